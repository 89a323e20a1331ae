# SPDX-License-Identifier: Apache-2.0
"""Token ids in, token ids out; and the tokenizer that makes ids of texts."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, Union, cast

import numpy

from . import _pagefuse
from .options import Settings, check_names

if TYPE_CHECKING:
    from typing import Unpack

# An array of numpy, anything that speaks DLPack or that numpy takes, or a Tensor. Memory that is dense, row
# after row, is shared, not copied.
Array = Any
PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Completion:
    """What followed a prompt."""

    tokens: numpy.ndarray
    """The new ones, int64."""
    finish: str
    """"length", "stop" (a stop token, which is the last), "ended" (by on_token), "failed", "refused" (before any step)."""
    seed: int
    """That it was drawn with."""
    logits: numpy.ndarray | None = None
    """[tokens, vocabulary], if they were asked for."""
    error: str | None = None
    """Why it failed or was refused."""
    as_exported: bool = False
    """Of an engine that pages: all or the end of it was run by the graph as it was exported, which does otherwise with
    longer texts or with one of the tokens."""
    cached_tokens: int = 0
    """Tokens of the prompt that were not computed, since earlier texts began so: a figure, which depends on these."""


class _Turns:
    """Calls of one engine take turns, and what fills the time in which nobody waits ends when somebody does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None  # that has the turn
        self._waiting: collections.deque[None] = collections.deque()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """A turn. RuntimeError within another one of this thread, as in a function that hears of tokens."""
        if self._thread == threading.get_ident():
            raise RuntimeError("a call of this engine runs on this thread: expected none from a function that it calls")
        self._waiting.append(None)
        try:
            self._lock.acquire()
        finally:
            self._waiting.pop()
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None
            self._lock.release()

    def nobody_waits(self) -> bool:
        return not self._waiting


class Engine:
    """A decoder with continuous batching. Thread-safe: calls take turns.

    path: a model's folder, or its graph.
    settings, by name: see `pagefuse.Settings` (graph, kv_cache, block_size, weights, threads, max_memory, options,
        max_tokens_per_step, max_sequences, cache_tokens, cache_bytes, prefix_reuse, no_reread, drafts, step_ms,
        require_paged, check_paging). `verdict` says what the check of paging found, `why_not_paged` why a graph generates
        unfused.

    FileNotFoundError for a path that is not there; ValueError for a graph or a setting that is wrong, with what was
    expected; TypeError for a setting that there is not, with similar ones; RuntimeError for a graph that cannot be paged
    if that is required.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        _on_stage: Callable[[str], object] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        check_names(settings, list(Settings.__annotations__), "Engine")
        given = cast(Any, {**settings, "options": dict(settings.get("options") or {})})
        self._engine = _pagefuse.Engine(os.fspath(path), on_stage=_on_stage, **given)
        self._turns = _Turns()
        self._rereads = self._engine.paged and not settings.get("no_reread")

    @property
    def paged(self) -> bool:
        return self._engine.paged

    @property
    def why_not_paged(self) -> str:
        """Node and condition; empty if it is."""
        return self._engine.why_not_paged

    @property
    def verdict(self) -> str:
        """What the comparison with the graph as it was exported found; empty if there was none."""
        return self._engine.verdict

    @property
    def vocabulary(self) -> int:
        """Tokens that there are; 0 if the graph does not tell."""
        return self._engine.vocabulary

    @property
    def end_tokens(self) -> list[int]:
        """By which answers end, as the files beside the graph say."""
        return self._engine.end_tokens

    @property
    def stats(self) -> dict[str, float]:
        """Steps, tokens and seconds of prefill and decode up to the last step; tokens that earlier prompts began with
        (shared) and that were guessed (drafts); bytes of the cache a token."""
        return self._engine.stats

    def generate(
        self,
        prompts: Array | Sequence[Array],
        *,
        max_new_tokens: int = 32,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        seed: int | None = None,
        stop_tokens: Sequence[int] | None = None,
        samples: int = 1,
        logits: bool = False,
        on_token: Callable[[int, int], bool | None] | None = None,
    ) -> Completion | list[Completion]:
        """Generates behind one prompt (ids: a list, or an array [tokens]), or behind each of a list.

        temperature 0 takes the likeliest token; what follows it bounds and weighs the tokens (docs/generate.md).
        stop_tokens: by default `end_tokens`. samples: answers a prompt, which is computed once.
        on_token(completion, token) is called as tokens come, and ends its completion by returning False.

        Gives one Completion for one prompt with one sample, else a list. ValueError for what is out of range; TypeError
        for texts, which pagefuse.load(FOLDER).generate takes; MemoryError if one prompt alone does not fit. Where that
        is so of some of several prompts, their completions are "refused", `error` says why, and the others come.
        """
        sampling = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty,
        }
        with self._turns.one():
            found = self._engine.generate(
                prompts,
                max_new_tokens=[max_new_tokens],
                sampling=sampling if seed is None else {**sampling, "seed": seed},
                stop_tokens=None if stop_tokens is None else list(stop_tokens),
                samples=samples,
                logits=logits,
                on_token=on_token,
            )
        return [Completion(**one) for one in found] if isinstance(found, list) else Completion(**found)

    def _reread(self) -> None:
        """Reads answers into the cache, as a next turn will, until another call waits or the program ends."""
        if not self._rereads:
            return
        with self._turns.one():
            self._engine.reread(lambda: self._turns.nobody_waits() and threading.main_thread().is_alive())


class Tokenizer:
    """Text to token ids and back, as tokenizer.json says. Thread-safe.

    path: that file, or the folder of a model. FileNotFoundError where there is none; NotImplementedError for a kind of
    tokenizer that is not supported.
    """

    def __init__(self, path: PathLike) -> None:
        self._tokenizer = _pagefuse.Tokenizer(os.fspath(path))

    @classmethod
    def _of(cls, tokenizer: _pagefuse.Tokenizer) -> Tokenizer:
        made = cls.__new__(cls)
        made._tokenizer = tokenizer
        return made

    def encode(self, text: str, *, add_special: bool = True) -> numpy.ndarray:
        """Ids, int64 [tokens]. add_special: with the tokens that the file puts around every text."""
        return self._tokenizer.encode(text, add_special=add_special)

    def decode(self, ids: Array, *, special: bool = False) -> str:
        """The text of tokens; special tokens have one only if `special`."""
        return self._tokenizer.decode(ids, special=special)

    def __len__(self) -> int:
        return len(self._tokenizer)
