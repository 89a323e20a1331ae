"""Runs exported decoder graphs over a paged, optionally quantised KV cache.

>>> import pagefuse
>>> engine = pagefuse.Engine("models/gemma3_recall", kv_cache="fp8_per_token_head")
>>> engine.generate([2, 10, 11], max_new_tokens=4).tokens
array([...])

Errors: what a caller got wrong is ValueError, a file that is not there FileNotFoundError, what is not
supported NotImplementedError, memory that does not suffice MemoryError. Each message names node, value,
expected and found.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, Union

import numpy

from . import _pagefuse
from ._pagefuse import Tensor, __version__

__all__ = [
    "Completion",
    "Engine",
    "Plugin",
    "Port",
    "Report",
    "Session",
    "Tensor",
    "Tokenizer",
    "UnfusedPlace",
    "load_plugin",
    "optimize",
    "ort_library_path",
    "register_rules",
    "__version__",
]

# An array of numpy, anything that speaks DLPack or that numpy takes, or a Tensor. Memory that is dense, row
# after row, is shared, not copied.
Array = Any
Path_ = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class UnfusedPlace:
    """A place that no fused op took up, and why."""

    family: str
    """What it is a place of: "attention without pages"."""
    node: str
    """The first such node."""
    places: int
    """In how many places it is left for the same reason."""
    rule: str
    """The nearest rule; empty where nothing resembles it."""
    reason: str
    """The first condition that failed, with expected and found."""


@dataclass(frozen=True)
class Report:
    """What the passes did."""

    rewrites: dict[str, int]
    """How often each rule and pass rewrote something."""
    why_not_paged: str
    """Node and condition; empty if all is paged or nobody wanted it."""
    unfused: list[UnfusedPlace]
    written: str
    """Bodies and opset of the file that was written."""
    text: str
    """The graph as text, if no file was asked for; large tensors are left out."""


def optimize(
    path: Path_,
    output: Path_ | None = None,
    *,
    page: bool = True,
    kv_cache: str | None = None,
    indexer_cache: str | None = None,
    weights: str | None = None,
    disabled: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    function_bodies: bool = True,
    target_opset: int | None = None,
) -> Report:
    """Rewrites the graph at `path` as `pagefuse opt` does, and writes it to `output` as ONNX.

    page: let decoders have a paged cache, of the formats `kv_cache` and `indexer_cache`.
    weights: "int8" or "int4" for weights of that size in the file.
    disabled: passes to leave out. options: options of passes, by name.
    function_bodies: the file also has a function for each fused op, by which ONNX Runtime runs it, in opset
    `target_opset` (21).
    """
    chosen = dict(options or {})
    for name, value in (("kv_cache", kv_cache), ("indexer_cache", indexer_cache), ("weights", weights)):
        if value is not None:
            chosen[name] = value
    report = _pagefuse.optimize(
        os.fspath(path),
        None if output is None else os.fspath(output),
        page=page,
        disabled=list(disabled),
        options=chosen,
        function_bodies=function_bodies,
        target_opset=target_opset,
    )
    report["unfused"] = [UnfusedPlace(**place) for place in report["unfused"]]
    return Report(**report)


@dataclass(frozen=True)
class Plugin:
    """What a plug-in that was loaded has: names of ops with their domains, and of rules."""

    name: str
    version: str
    ops: list[str]
    rules: list[str]


def load_plugin(path: Path_) -> Plugin:
    """Loads ops, kernels and rules from a shared object or a text of ops and rules, for this process.

    A file that is loaded already is left as it is. FileNotFoundError or ValueError for one that is not there or is wrong,
    and what the plug-in itself says; then nothing of it is added. Code of a shared object that crashes ends the process.
    """
    return Plugin(**_pagefuse.load_plugin(os.fspath(path)))


def register_rules(text: str, *, name: str | None = None) -> None:
    """Adds rules in the text form of `opt --rules` to all that is optimised or loaded from now on.

    name: what errors call the text, and the pass of its rules; each text has its own. ValueError with line, column
    and a mark if the text is wrong, or a rule has a name that there is already; then nothing is added.
    """
    global _registered
    _pagefuse.register_rules(text, name or f"registered-{_registered + 1}.rules.txt")
    _registered += 1


_registered = 0  # texts so far


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    dtype: str
    """As ONNX spells it: "float", "int64", "bfloat16"."""
    shape: tuple[int | str | None, ...] | None
    """Numbers, names, None for what is not known; None if the rank is not."""


class Session:
    """A graph that runs on named arrays. Thread-safe: runs of one session take turns.

    optimise: fuse what can be fused; inputs and outputs may then be those of a paged graph.
    weights: "float32", "bf16", "int8" or "int4". threads: 0 for all. max_memory: bytes that a run may take.
    """

    def __init__(
        self,
        path: Path_,
        *,
        optimise: bool = True,
        weights: str = "float32",
        threads: int = 0,
        max_memory: int = 0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._session = _pagefuse.Session(
            os.fspath(path),
            optimise=optimise,
            weights=weights,
            threads=threads,
            max_memory=max_memory,
            options=dict(options or {}),
        )

    @property
    def inputs(self) -> list[Port]:
        return [Port(*port) for port in self._session.inputs]

    @property
    def outputs(self) -> list[Port]:
        return [Port(*port) for port in self._session.outputs]

    def run(
        self, feeds: Mapping[str, Array], fetches: Sequence[str] = ()
    ) -> dict[str, numpy.ndarray | Tensor]:
        """Runs on feeds by input name; gives outputs by name, all or those of `fetches`.

        Outputs of types that numpy lacks are Tensors. An output that is a cache input, updated, is the
        memory of that feed, which must be writable.
        """
        return self._session.run(dict(feeds), list(fetches))

    def kernels(self) -> str:
        """A line a node: its kernel, and why better ones were refused."""
        return self._session.kernels()


@dataclass(frozen=True)
class Completion:
    """What followed a prompt."""

    tokens: numpy.ndarray
    """The new ones, int64."""
    finish: str
    """"length", "stop" (a stop token, which is the last), "ended" (by on_token), "failed"."""
    seed: int
    """That it was drawn with."""
    logits: numpy.ndarray | None = None
    """[tokens, vocabulary], if they were asked for."""
    error: str | None = None
    """Why it failed."""
    as_exported: bool = False
    """Of an engine that pages: all or the end of it was run by the graph as it was exported, which does otherwise with
    longer texts or with one of the tokens."""


class Engine:
    """A decoder with continuous batching. Not thread-safe.

    path: a model's folder, or its graph. graph: which of several of a folder.
    kv_cache: format of the cache ("none", "bf16", "fp8_per_token_head", "int8_per_token_head", ...).
    weights: "float32", "bf16", "int8" or "int4". threads: 0 for all.
    require_paged: a graph that cannot be paged, or has other logits then, is an error; else it generates unfused, see
        `why_not_paged`.
    check_paging: "once", "always" or "never": compare the logits of the rewritten graph with those of the graph as it was
        exported; "once" keeps what was found in the user's cache folder. `verdict` says what was found.
    """

    def __init__(
        self,
        path: Path_,
        *,
        graph: str = "",
        kv_cache: str | None = None,
        block_size: int | None = None,
        weights: str = "float32",
        threads: int = 0,
        max_memory: int = 0,
        options: Mapping[str, str] | None = None,
        max_tokens_per_step: int = 512,
        max_sequences: int = 64,
        cache_tokens: int = 0,
        require_paged: bool = False,
        check_paging: str = "once",
    ) -> None:
        self._engine = _pagefuse.Engine(
            os.fspath(path),
            graph=graph,
            kv_cache=kv_cache,
            block_size=block_size,
            weights=weights,
            threads=threads,
            max_memory=max_memory,
            options=dict(options or {}),
            max_tokens_per_step=max_tokens_per_step,
            max_sequences=max_sequences,
            cache_tokens=cache_tokens,
            require_paged=require_paged,
            check_paging=check_paging,
        )

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
        """Steps, tokens and seconds of prefill and decode so far; bytes of the cache a token."""
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
        seed: int | None = None,
        stop_tokens: Sequence[int] | None = None,
        samples: int = 1,
        logits: bool = False,
        on_token: Callable[[int, int], bool | None] | None = None,
    ) -> Completion | list[Completion]:
        """Generates behind one prompt (ids: a list, or an array of one dim), or behind each of a list.

        temperature 0 takes the likeliest token. stop_tokens: by default `end_tokens`. samples: answers a
        prompt, which is computed once. on_token(completion, token) is called as tokens come, and ends its
        completion by returning False. Gives one Completion for one prompt with one sample, else a list.
        """
        found = self._engine.generate(
            prompts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            stop_tokens=None if stop_tokens is None else list(stop_tokens),
            samples=samples,
            logits=logits,
            on_token=on_token,
        )
        return [Completion(**one) for one in found] if isinstance(found, list) else Completion(**found)


class Tokenizer:
    """Text to token ids and back, as tokenizer.json says. Thread-safe.

    path: that file, or the folder of a model.
    """

    def __init__(self, path: Path_) -> None:
        self._tokenizer = _pagefuse.Tokenizer(os.fspath(path))

    def encode(self, text: str, *, add_special: bool = True) -> numpy.ndarray:
        """Ids, int64. add_special: with the tokens that the file puts around every text."""
        return self._tokenizer.encode(text, add_special=add_special)

    def decode(self, ids: Array, *, special: bool = False) -> str:
        """The text of tokens; special tokens have one only if `special`."""
        return self._tokenizer.decode(ids, special=special)

    def __len__(self) -> int:
        return len(self._tokenizer)


def ort_library_path() -> Path:
    """libpagefuse_ort.so, for SessionOptions.register_custom_ops_library of ONNX Runtime."""
    path = Path(__file__).with_name("libpagefuse_ort.so")
    if not path.exists():
        raise FileNotFoundError(f'"{path}": this package was built without it')
    return path
