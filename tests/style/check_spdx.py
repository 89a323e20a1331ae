#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_spdx.py [--add]: every source file of the tree begins with its licence, below a line of #! if it has one.

--add writes the line where it is missing. Run in the top folder. The status is 1 if a file lacks the line."""
import os
import subprocess
import sys

LINE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = {".cc": "// ", ".cu": "// ", ".h": "// ", ".c": "// ", ".inc": "// ", ".py": "# ", ".pyi": "# ", ".sh": "# ", ".cmake": "# "}


def comment_of(path):
    name = os.path.basename(path)
    if name in ("CMakeLists.txt", "dev") or path == ".ci/run":
        return "# "
    return COMMENTS.get(os.path.splitext(name)[1])


def main():
    tracked = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.splitlines()
    missing = []
    for path in tracked:
        comment = comment_of(path)
        if comment is None or os.path.islink(path):
            continue
        with open(path, encoding="utf8") as file:
            lines = file.read().split("\n")
        at = 1 if lines[0].startswith("#!") else 0
        if len(lines) > at and lines[at] == comment + LINE:
            continue
        missing.append(path)
        if "--add" in sys.argv:
            lines.insert(at, comment + LINE)
            with open(path, "w", encoding="utf8") as file:
                file.write("\n".join(lines))
    print("%s %d files without the line" % ("wrote" if "--add" in sys.argv else "found", len(missing)))
    if "--add" not in sys.argv:
        print("\n".join(missing[:20]))
        sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
