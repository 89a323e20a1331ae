# SPDX-License-Identifier: Apache-2.0
"""An answer, whole or as it is made."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterator, cast

import numpy

from .progress import Reporting

if TYPE_CHECKING:
    from .model import Model


@dataclass(frozen=True)
class Answer:
    """What followed a prompt. str() of it is its text."""

    text: str
    """Without the stop at which it ended; empty where the model has no tokenizer."""
    tokens: numpy.ndarray
    """The new ones, int64 [tokens], an end token included."""
    finish: str
    """"length", "stop" (an end token or a stop), "ended" (a stream was closed), "failed", "refused" (before any
    step)."""
    seed: int
    """That it was drawn with."""
    prompt_tokens: int
    """How many tokens the prompt has."""
    logits: numpy.ndarray | None = field(default=None, repr=False)
    """float32 [tokens, vocabulary], if they were asked for."""
    as_exported: bool = False
    """As in Completion."""
    error: str | None = None
    """Of one of several that failed or was refused: why. One alone raises it."""
    cached_tokens: int | None = 0
    """As in Completion; None of a stream that was closed, for which nobody waited."""

    def __str__(self) -> str:
        return self.text


@dataclass
class Call:
    """Prompts as ids, and options as the engine takes them."""

    prompts: list[Any]
    arguments: dict[str, Any]
    stops: list[str]
    samples: int = 1
    goes_on: bool = False
    """As a conversation, whose next question has the answer before it."""

    def total(self) -> int:
        return sum(len(ids) for ids in self.prompts)


class Stream(Iterator[str]):
    """An answer as it is made: an iterator over pieces of its text, whole characters each.

    It is made on a thread of its own, and goes on while its reader is busy. close(), the end of a `with` block, or dropping
    it ends it at the next token. `answer` is there then; before the end it is None. Errors come where the piece would.
    """

    answer: Answer | None = None

    def __init__(self, model: Model, call: Call, reporting: Reporting) -> None:
        self._prompt_tokens = call.total()
        self._read: list[tuple[int, str]] = []
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = threading.Event()
        # The thread does not know the Stream, so that one that nobody holds any more ends.
        told = (model, call, reporting, self._items, self._closed)
        threading.Thread(target=_produce, args=told, name="pagefuse.Stream").start()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        while self.answer is None and not self._closed.is_set():
            item = self._items.get()
            if isinstance(item, BaseException):
                self._closed.set()
                raise item
            if isinstance(item, Answer):
                rest = item.text[sum(len(piece) for _, piece in self._read) :]
                self._finish(item)
                if rest:  # text that was held back for a stop which did not come
                    return rest
                break
            self._read.append(item)
            if item[1]:
                return cast(str, item[1])
        raise StopIteration

    def close(self) -> None:
        """Ends the answer, which is what was read of it."""
        if self.answer is not None or self._closed.is_set():
            return
        # Nobody waits for the thread: a stream may be dropped by one that holds what its thread waits for.
        self._closed.set()
        tokens = numpy.array([token for token, _ in self._read], numpy.int64)
        text = "".join(piece for _, piece in self._read)
        self._finish(Answer(text, tokens, "ended", 0, self._prompt_tokens, cached_tokens=None))

    def _finish(self, answer: Answer) -> None:
        self.answer = answer

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()


def _produce(
    model: Model,
    call: Call,
    reporting: Reporting,
    items: queue.SimpleQueue[Any],
    closed: threading.Event,
) -> None:
    def heard(token: int, piece: str) -> bool:
        reporting.close()  # the text follows on the terminal
        items.put((token, piece))
        # A program that ends does not wait for an answer that nobody reads to its end.
        return not closed.is_set() and threading.main_thread().is_alive()

    try:
        items.put(model._run(call, reporting.tell, heard)[0])
    except BaseException as error:  # noqa: BLE001: it is raised where the answer is read
        items.put(error)
    finally:
        reporting.close()
    if call.goes_on:
        model.engine._reread()
