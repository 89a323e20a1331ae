#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_terminal.py PAGEFUSE MODEL FACTS: what a person at a terminal sees of a conversation and of progress. Status 1, and what the
terminal showed, where it is not so."""
import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

PATIENCE = 60  # s


class Terminal:
    """A program whose input, output and errors are a terminal, or its errors alone."""

    def __init__(self, *command, stdin=None):
        self.shown = ""
        master, slave = pty.openpty()
        self.screen = master
        self.process = subprocess.Popen(command, stdin=slave if stdin is None else stdin, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=self._control if stdin is None else None,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"})
        os.close(slave)

    @staticmethod
    def _control():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def wait_for(self, pattern):
        """What matched of what came since the last match."""
        end = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.shown)
            if found:
                self.shown = self.shown[found.end():]
                return found
            if time.monotonic() > end or not self._read(end - time.monotonic()):
                sys.exit(f"nothing like {pattern!r} in {self.shown!r}")

    def _read(self, seconds):
        if not select.select([self.screen], [], [], max(seconds, 0))[0]:
            return False
        try:
            more = os.read(self.screen, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += more.decode(errors="replace")
        return bool(more)

    def wait_to_edit(self, prompt="> "):
        """A prompt that is shown, and the terminal given over to the editor, which is a moment later: till then it edits itself."""
        self.wait_for(prompt)
        self._wait_till_it_edits_itself(False)

    def wait_to_work(self):
        """The line is read, and what it asks for begins."""
        self._wait_till_it_edits_itself(True)

    def _wait_till_it_edits_itself(self, wanted):
        end = time.monotonic() + PATIENCE
        while bool(termios.tcgetattr(self.screen)[3] & termios.ICANON) != wanted:
            if time.monotonic() > end:
                sys.exit("the terminal is left to itself" if not wanted else "the line is not read")
            time.sleep(0.01)

    def type(self, keys):
        os.write(self.screen, keys.encode())

    def end(self):
        while self._read(PATIENCE):
            pass
        return self.process.wait(PATIENCE)


def conversation(pagefuse, model, facts):
    chat = Terminal(pagefuse, "generate", model, "--chat", "--system", facts, "--max-new-tokens", "4000", "--check-paging", "never")
    chat.wait_for(r"/help lists the commands; Ctrl-C ends an answer, Ctrl-D the program")
    chat.wait_to_edit()
    chat.type("What does the tin cup hold?\r")
    chat.wait_for(r"45 keys\.\r\n")
    chat.wait_to_edit()
    # The line before, by the key up, with one word of it changed: back over "cup hold?", then "tin".
    chat.type("\x1b[A" + "\x1b[D" * len(" cup hold?") + "\x7f\x7f\x7fred\x05" + "\x7f" * len("cup hold?") + "box hold?\r")
    chat.wait_for(r"12 pins\.\r\n")
    chat.wait_to_edit()
    # Ctrl-C at the prompt forgets what was typed; the tab key completes a command.
    chat.type("never to be answered\x03")
    chat.wait_to_edit("\n[^\n]*> ")
    chat.type("/und\t\r")
    chat.wait_for(r'took back "What does the red box hold\?"')
    # A question of two lines, and a command that there is not.
    chat.type("What does\\\r")
    chat.wait_to_edit(r"\.\.\. ")
    chat.type("the tin cup hold?\r")
    chat.wait_to_edit()
    chat.type("/undo\r")
    chat.wait_for(r'took back "What does\s+the tin cup hold\?"')
    chat.type("/sav\r")
    chat.wait_for(r'pagefuse: unknown command "/sav"; similar names: "/save"')
    chat.wait_to_edit()
    chat.type("\x04")
    if chat.end() != 0:
        sys.exit("Ctrl-D at the prompt did not end the program well")


def interrupted_answer(pagefuse, model, facts):
    chat = Terminal(pagefuse, "generate", model, "--chat", "--system", facts, "--max-new-tokens", "8000", "--ignore-end",
                    "--check-paging", "never")
    chat.wait_to_edit()
    chat.type("What does the tin cup hold?\r")
    chat.wait_for(r"45 keys")
    chat.type("\x03")
    chat.wait_to_edit("\n[^\n]*> ")
    chat.type("/undo\r")
    chat.wait_for(r'took back "What does the tin cup hold\?"')
    chat.wait_to_edit()
    chat.type("\x04")
    if chat.end() != 0:
        sys.exit("the program did not outlive Ctrl-C in an answer")


def interrupted_question(pagefuse, model):
    """A question that takes its time to be read is taken back between two of its pieces, and the conversation goes on."""
    chat = Terminal(pagefuse, "generate", model, "--chat", "--system", "The tin cup holds 45 keys. " * 280, "--max-tokens-per-step", "4",
                    "--max-new-tokens", "8", "--check-paging", "never")
    chat.wait_to_edit()
    chat.type("What does the tin cup hold?\r")
    chat.wait_to_work()  # for a second or so, in two thousand steps
    chat.type("\x03")
    chat.wait_for(r"pagefuse: stopped before the answer: the question is taken back")
    chat.wait_to_edit()
    chat.type("/undo\r")
    chat.wait_for(r"there is nothing to undo")
    chat.wait_to_edit()
    chat.type("\x04")
    if chat.end() != 0:
        sys.exit("the program did not outlive Ctrl-C in a question")


def progress(pagefuse, model):
    """A model that takes its time to come is being read; the line is gone at the end. A pipe sees nothing of it."""
    slow = f"sleep 2; cat {model}/model.onnx"
    with subprocess.Popen(["bash", "-c", slow], stdout=subprocess.PIPE) as source:
        inspect = Terminal(pagefuse, "opt", "-", "-o", "/dev/null", stdin=source.stdout)
        inspect.wait_for(r"\r\x1b\[Kreading standard input, 1 s")
        inspect.end()
        if not re.search(r"\r\x1b\[K", inspect.shown):
            sys.exit(f"the line stays: {inspect.shown!r}")
    piped = subprocess.run(["bash", "-c", f"({slow}) | {pagefuse} opt - -o /dev/null"], capture_output=True, text=True)
    if "\r" in piped.stderr or "reading" in piped.stderr:
        sys.exit(f"progress in a pipe: {piped.stderr!r}")


def main():
    pagefuse, model, facts = sys.argv[1:]
    conversation(pagefuse, model, facts)
    interrupted_answer(pagefuse, model, facts)
    interrupted_question(pagefuse, model)
    progress(pagefuse, model)


if __name__ == "__main__":
    main()
