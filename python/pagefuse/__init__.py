# SPDX-License-Identifier: Apache-2.0
"""Runs exported decoder graphs over a paged, optionally quantised KV cache.

>>> import pagefuse
>>> model = pagefuse.load("models/gemma3_recall", kv_cache="fp8_per_token_head")
>>> print(model.generate("The red box holds 12 pins.\\nWhat does the red box hold? "))
12 pins.

`load` gives a Model, which generates from texts, token ids and conversations: generate, stream, chat. Below it are
Engine (token ids alone), Tokenizer, Session (any graph, on named arrays) and optimize (what the passes make of a graph).

Errors: what a caller got wrong is ValueError or, for types and names, TypeError; a file that is not there
FileNotFoundError, what is not supported NotImplementedError, memory that does not suffice MemoryError, all else
RuntimeError. Each message names node or argument, expected and found.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Sequence

from . import _pagefuse
from ._pagefuse import Tensor, __version__
from .engine import Array, Completion, Engine, PathLike, Tokenizer
from .model import Chat, Model, load
from .options import Options, Settings
from .stream import Answer, Stream

if TYPE_CHECKING:
    import numpy

__all__ = [
    "Answer",
    "Array",
    "Chat",
    "Completion",
    "Engine",
    "Model",
    "Options",
    "Plugin",
    "Port",
    "Report",
    "Session",
    "Settings",
    "Stream",
    "Tensor",
    "Tokenizer",
    "UnfusedPlace",
    "load",
    "load_plugin",
    "optimize",
    "ort_library_path",
    "register_rules",
    "__version__",
]

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
    path: PathLike,
    output: PathLike | None = None,
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


def load_plugin(path: PathLike) -> Plugin:
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
        path: PathLike,
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


def ort_library_path() -> Path:
    """libpagefuse_ort.so, for SessionOptions.register_custom_ops_library of ONNX Runtime."""
    path = Path(__file__).with_name("libpagefuse_ort.so")
    if not path.exists():
        raise FileNotFoundError(f'"{path}": this package was built without it')
    return path
