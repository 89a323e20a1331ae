#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that README.md and docs/ show, and compares every line that they print with the page.

usage: transcripts.py PAGEFUSE [PAGE...]       in the top folder

A page shows commands in two kinds of blocks:

  ```console     `$ COMMAND`, then all that it prints. `[...]` stands for any number of lines that the page leaves out.
                 ```console ort runs where PAGEFUSE_ORT_LIBS names a libonnxruntime.so; libonnxruntime.so.1 on the page is the first.
  ```sh          commands that must end with status 0. ```sh elsewhere has those of other tools or machines, which no test can run.

A command of pagefuse or ./dev in any other block is an error; so are those in running text (`pagefuse ...`) that name a command or
a flag that does not exist. What depends on the machine alone is not compared: times, rates, memory,
and of ONNX Runtime its release and the last digits of its floats (MACHINE). Pages whose blocks
tests/docs/walk.sh runs are left to it.

docs/first_hour.sh, the commands of README.md, is run too, as one of the pages. With PAGEFUSE_UPDATE_DOCS=1 blocks that differ are written anew.
"""
import os
import re
import subprocess
import sys
import tempfile

FIRST_HOUR = "docs/first_hour.sh"
WALKED = {"docs/adding_an_op.md", "docs/adding_a_fusion.md"}
NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# A number and its unit, and the numbers of a row of `bench`, which has no units.
MACHINE = [
    (r"%s(?= (?:ns|us|ms|s|GB/s)\b)" % NUMBER, "N"), (r"%s(?= here$)" % NUMBER, "N"),
    (r"%s(?= (?:tokens )?(?:a second|/s)| ?(?:tokens|tok)/s)" % NUMBER, "N"),
    (r"( +[0-9]+\.[0-9]{2}){2}$", " N N"), (r" +tokens/s +\+-$", " tokens/s +-"),
    (r"^memory: .*", "memory: N"),
    (r"\b((?:min|max|mean) -?[0-9]+\.[0-9]{2})[0-9]+", r"\1"),  # floats, of which targets may round the last digits
    (r"ONNX Runtime [0-9.]+", "ONNX Runtime N"), (r"floats within \S+,", "floats within N,")]
COMMAND = re.compile(r"^\s*(?:\$ )?(?:build/release/)?(?:pagefuse|\./dev)(?: |$)|^\s*\$ ")


class Block:
    """A fenced or an indented block: its words behind the fence, first line (from 0), and lines."""

    def __init__(self, info, first):
        self.info, self.first, self.lines = info, first, []


def blocks_of(lines):
    block = None
    for number, line in enumerate(lines):
        if line.startswith("```"):
            if block is None:
                block = Block(line[3:].strip(), number + 1)
            else:
                yield block
                block = None
        elif block is not None:
            block.lines.append(line)
        elif line.startswith("    ") and not line.lstrip().startswith(("-", "*")):
            indented = Block("indented", number)
            indented.lines.append(line)
            yield indented


def for_any_machine(line):
    for pattern, text in MACHINE:
        line = re.sub(pattern, text, line)
    return line.rstrip()


def agrees(shown, printed):
    """Whether the lines are the same, where "[...]" is any number of lines."""
    if not shown:
        return not printed
    if shown[0].strip() == "[...]":
        return any(agrees(shown[1:], printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and for_any_machine(shown[0]) == for_any_machine(printed[0]) and agrees(shown[1:], printed[1:])


def commands_of(lines):
    """The commands of a ```console block, each with the lines below it."""
    commands = []
    for line in lines:
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and commands[-1][0].endswith("\\") and not commands[-1][1]:
            commands[-1] = (commands[-1][0] + "\n" + line, [])
        elif commands:
            commands[-1][1].append(line)
    return commands


class Shell:
    """A folder of its own in which the commands of a page run, with the things that they name."""

    def __init__(self, folder, top, pagefuse):
        self.folder = folder
        build = os.path.join(folder, "build", "release")
        os.makedirs(build)
        os.symlink(pagefuse, os.path.join(build, "pagefuse"))
        plugins = os.path.join(os.path.dirname(pagefuse), "tests", "plugin")
        for name in os.listdir(plugins) if os.path.isdir(plugins) else ():
            if name.endswith(".so"):
                os.symlink(os.path.join(plugins, name), os.path.join(folder, name))
        for name in ("models", "tests", "docs"):
            os.symlink(os.path.join(top, name), os.path.join(folder, name))
        example = os.path.join(top, "plugin", "example")
        for name in os.listdir(example):
            os.symlink(os.path.join(example, name), os.path.join(folder, name))
        self.write_dev(os.path.join(top, "dev"))
        libraries = [path for path in os.environ.get("PAGEFUSE_ORT_LIBS", "").split(":") if path]
        self.ort = libraries[0] if libraries else None
        self.environment = dict(os.environ, PATH=build + ":" + os.environ["PATH"], COLUMNS="100",
                                CPATH=os.path.join(top, "plugin", "include"),  # as where the package is installed
                                XDG_CACHE_HOME=os.path.join(folder, "cache"))

    def write_dev(self, path):
        """./dev without what it installs and builds: what the test has built is there."""
        with open(path, encoding="utf8") as file:
            text = file.read()
        at = text.index('\ncase "${1:-}" in')
        with open(os.path.join(self.folder, "dev"), "w", encoding="utf8") as file:
            file.write(text[:at] + "\ninstall_packages() { :; }\nbuild() { :; }\n" + text[at:])
        os.chmod(os.path.join(self.folder, "dev"), 0o755)

    def run(self, command):
        if self.ort:
            command = re.sub(r"[^\s=]*libonnxruntime\.so\.1", self.ort, command)
        process = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False)
        return process.returncode, [line.rstrip() for line in process.stdout.decode(errors="replace").splitlines()]


class Pages:
    def __init__(self, top, pagefuse):
        self.top, self.pagefuse, self.wrong, self.ran, self.help = top, os.path.abspath(pagefuse), [], 0, {}
        self.update = os.environ.get("PAGEFUSE_UPDATE_DOCS") == "1"

    def fail(self, page, line, text):
        self.wrong.append("%s:%d: %s" % (page, line + 1, text))

    def help_of(self, command):
        if command not in self.help:
            told, of_all = (subprocess.run([self.pagefuse, *words, "--help"], capture_output=True, text=True, check=False)
                            for words in ((command,), ()))
            self.help[command] = told.stdout if told.returncode == 0 and told.stdout != of_all.stdout else None
        return self.help[command]

    def check_dev(self, page, line, word):
        with open(os.path.join(self.top, "dev"), encoding="utf8") as file:
            if not re.search(r"^  %s\)" % re.escape(word), file.read(), re.MULTILINE):
                self.fail(page, line, "there is no `./dev %s`" % word)

    def check_text(self, page, lines):
        """Commands in running text: that they and their flags exist."""
        inside = False
        for number, line in enumerate(lines):
            inside = inside != line.startswith("```")
            for code in re.findall(r"`((?:pagefuse|\./dev) [^`]+)`", "" if inside else line):
                words = code.split()
                if words[0] == "./dev":
                    self.check_dev(page, number, words[1])
                    continue
                command = words[1].strip(",.")
                if not re.fullmatch(r"[a-z]+", command):
                    continue
                if self.help_of(command) is None:
                    self.fail(page, number, "there is no command `pagefuse %s`" % command)
                    continue
                for flag in re.findall(r"(?<=\s)--?[a-z][a-z-]*", code):
                    if not re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(flag), self.help_of(command)):
                        self.fail(page, number, "`pagefuse %s` has no %s" % (command, flag))

    def console(self, page, block, shell):
        """The lines of the block, with what the commands print now."""
        now = [line for line in block.lines[:next((i for i, line in enumerate(block.lines) if line.startswith("$ ")), 0)]]
        for command, shown in commands_of(block.lines):
            _, printed = shell.run(command)
            self.ran += 1
            now += ("$ " + command).splitlines()
            same = agrees(shown, printed)
            now += shown if same else printed
            if not same and not self.update:
                self.fail(page, block.first + block.lines.index(("$ " + command).splitlines()[0]),
                          "`%s` prints other lines:\n  %s\nand the page shows\n  %s" %
                          (command, "\n  ".join(printed[:60]), "\n  ".join(shown)))
        return now

    def script(self, page, block, shell):
        commands = "\n".join(line for line in block.lines if not line.startswith("./dev "))  # check_dev() looks at these
        for number, line in enumerate(block.lines):
            if line.startswith("./dev "):
                self.check_dev(page, block.first + number, line.split()[1])
        self.ran += len(block.lines)
        status, printed = shell.run("set -e\n" + commands)
        if status != 0:
            self.fail(page, block.first, "commands end with status %d:\n  %s" % (status, "\n  ".join(printed[-20:])))

    def check(self, page):
        with open(os.path.join(self.top, page), encoding="utf8") as file:
            lines = file.read().splitlines()
        self.check_text(page, lines)
        if page in WALKED:
            return
        shown = lines[:]
        with tempfile.TemporaryDirectory() as folder:
            shell = Shell(folder, self.top, self.pagefuse)
            for block in reversed_after_running(blocks_of(lines), lambda block: self.look_at(page, block, shell)):
                shown[block.first:block.first + len(block.lines)] = block.now
        if self.update and shown != lines:
            with open(os.path.join(self.top, page), "w", encoding="utf8") as file:
                file.write("\n".join(shown) + "\n")

    def check_first_hour(self):
        """docs/first_hour.sh runs, and has the commands of README.md."""
        with open(os.path.join(self.top, "README.md"), encoding="utf8") as file:
            shown = [command for block in blocks_of(file.read().splitlines()) if block.info == "console"
                     for command, _ in commands_of(block.lines)]
        with open(os.path.join(self.top, FIRST_HOUR), encoding="utf8") as file:
            commands = file.read().split("\n\n", 1)[1].rstrip("\n")
        if commands != "\n".join(shown):
            self.fail(FIRST_HOUR, 0, "the commands are not those of README.md:\n%s" % "\n".join(shown))
        with tempfile.TemporaryDirectory() as folder:
            status, printed = Shell(folder, self.top, self.pagefuse).run(FIRST_HOUR)
        if status != 0:
            self.fail(FIRST_HOUR, 0, "status %d:\n  %s" % (status, "\n  ".join(printed[-20:])))

    def look_at(self, page, block, shell):
        kind, *words = block.info.split() or [""]
        if kind == "console":
            return self.console(page, block, shell) if words != ["ort"] or shell.ort else block.lines
        if kind == "sh":
            if words != ["elsewhere"]:
                self.script(page, block, shell)
            return block.lines
        for number, line in enumerate(block.lines):
            if COMMAND.search(line):
                self.fail(page, block.first + number, "a command that no test runs; put it into a block of ```console or ```sh: %s"
                          % line.strip())
        return block.lines


def reversed_after_running(blocks, look_at):
    """Runs the blocks in order, and gives them from the last one on, so that each may take other lines' place."""
    done = []
    for block in blocks:
        block.now = look_at(block)
        done.append(block)
    return reversed(done)


def pages_below(top):
    found = [name for name in sorted(os.listdir(top)) if name.endswith(".md")]
    return found + ["docs/" + name for name in sorted(os.listdir(os.path.join(top, "docs"))) if name.endswith(".md")]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    pages = Pages(os.getcwd(), sys.argv[1])
    for page in sys.argv[2:] or [*pages_below(os.getcwd()), FIRST_HOUR]:
        if page == FIRST_HOUR:
            pages.check_first_hour()
        else:
            pages.check(page)
    print("\n".join(pages.wrong) or "%d commands print what is shown" % pages.ran)
    sys.exit(1 if pages.wrong else 0)


if __name__ == "__main__":
    main()
