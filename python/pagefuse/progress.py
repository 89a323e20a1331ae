# SPDX-License-Identifier: Apache-2.0
"""What a call that lasts tells of how far it has come."""

from __future__ import annotations

import sys
import threading
import time
from typing import Callable, Union

# Called with a stage, how much of it is done, and how much there is (0: not known): ("reading", 0, 0),
# ("rewriting", 0, 0), ("prompt", 512, 957) tokens, ("answer", 3, 32) tokens. What it raises ends the call.
ProgressFunction = Callable[[str, int, int], object]
# None: a line on a terminal; False: nothing.
Progress = Union[ProgressFunction, bool, None]

_SECONDS = 1.0  # what is over sooner shows nothing
_PAUSE = 0.1  # between two lines: nobody reads faster
_TO_BEGIN = "\r\x1b[K"  # and the line is empty


class ProgressLine:
    """A line on the error stream, if that is a terminal, once a second has passed; it is gone at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._wrote = 0.0
        self._shown = self._over = False
        self._timer = threading.Timer(_SECONDS, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, stage: str, done: int, total: int) -> None:
        text = stage + (f" {done} of {total} tokens" if total else " the model")
        with self._lock:
            if self._shown and not self._over and time.monotonic() - self._wrote > _PAUSE:
                self._write(text)
            self._text = text

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            if self._shown and not self._over:
                self._write("")
            self._over = True

    def _begin(self) -> None:
        with self._lock:
            if not self._over:
                self._shown = True
                self._write(self._text)

    def _write(self, text: str) -> None:
        self._wrote = time.monotonic()
        sys.stderr.write(_TO_BEGIN + text)
        sys.stderr.flush()


class Reporting:
    """A `with` block in which a ProgressFunction is told, or nothing is."""

    def __init__(self, progress: Progress) -> None:
        self._line: ProgressLine | None = None
        if callable(progress):
            self.tell: ProgressFunction | None = progress
            return
        if progress not in (None, True, False):
            raise TypeError(f"progress: expected a function, True, False or None, got {progress!r}")
        # Of a notebook or a service the error stream is no terminal.
        if progress is not False and sys.stderr is not None and sys.stderr.isatty():
            self._line = ProgressLine()
        self.tell = self._line

    def __enter__(self) -> ProgressFunction | None:
        return self.tell

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Takes the line away; nothing is told any more."""
        if self._line is not None:
            self._line.close()
