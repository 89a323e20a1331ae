#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_on_terminal.py PAGEFUSE URL FACTS: Ctrl-C in an answer of `pagefuse chat --url` keeps what came, gives the server's pages back, and
the conversation goes on. Status 1, and why, where it is not so."""
import pathlib
import re
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from on_terminal import Terminal  # noqa: E402


def held(url):
    with urllib.request.urlopen(url + "/metrics", timeout=30) as reply:
        return float(re.search(r'^\S*pages\{.*state="held"\} (\S+)$', reply.read().decode(), re.M).group(1))


def main():
    pagefuse, url, facts = sys.argv[1:]
    chat = Terminal(pagefuse, "chat", "--url", url, "--system", facts, "--max-new-tokens", "8000", "--ignore-end")
    chat.wait_for(r"/help lists the commands; Ctrl-C ends an answer, Ctrl-D the program")
    chat.wait_to_edit()
    chat.type("What does the tin cup hold?\r")
    chat.wait_for(r"45 keys")
    if held(url) == 0:
        sys.exit("no pages are held while an answer is written")
    chat.type("\x03")
    chat.wait_to_edit("\n[^\n]*> ")
    end = time.monotonic() + 2
    while held(url) > 0:
        if time.monotonic() > end:
            sys.exit("pages are held 2 s after Ctrl-C")
        time.sleep(0.02)
    chat.type("/undo\r")
    chat.wait_for(r'took back "What does the tin cup hold\?"')
    chat.wait_to_edit()
    chat.type("\x04")
    if chat.end() != 0:
        sys.exit("the program did not outlive Ctrl-C in an answer")


if __name__ == "__main__":
    main()
