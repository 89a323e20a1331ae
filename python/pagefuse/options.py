# SPDX-License-Identifier: Apache-2.0
"""Names and types of what load() and the calls of a Model take."""

from __future__ import annotations

import difflib
from typing import Any, Mapping, Sequence, TypedDict, Union

import numpy

from .progress import Progress

# {"role": "user", "content": "..."}, and what else the chat template looks at.
Message = Mapping[str, Any]
# A text, token ids, or a conversation.
Prompt = Union[str, Sequence[int], Sequence[Message], numpy.ndarray]


class Options(TypedDict, total=False):
    """How an answer is made: what generate(), stream(), ask() take by name."""

    max_new_tokens: int | None
    """By default 32, and 1024 in a conversation; less where the model has no more positions."""
    temperature: float | None
    """0 to 100; 0 takes the likeliest token. This and the next six: by default what the model's files say
    (`Model.sampling`)."""
    top_k: int | None
    """Of the K likeliest tokens; 0 for all."""
    top_p: float | None
    """Of the fewest tokens whose probabilities reach P, more than 0 and at most 1."""
    min_p: float | None
    """Of tokens with at least this part of the largest probability, 0 to 1."""
    repetition_penalty: float | None
    """Of tokens that were there; 1 for none."""
    frequency_penalty: float | None
    """For each time that a token came, -2 to 2."""
    presence_penalty: float | None
    """For tokens that came, -2 to 2."""
    seed: int | None
    """The same seed gives the same tokens; a fresh one by default."""
    stop: str | Sequence[str] | None
    """Texts, or special tokens, at which an answer ends; they are no part of its text."""
    ignore_end: bool
    """Go on behind the end tokens that the model's files name."""
    progress: Progress
    """A function that hears how far the call has come: progress(stage, done, total). None: a line on a terminal."""


class Settings(TypedDict, total=False):
    """What load() takes by name beside a chat template, and Engine."""

    graph: str
    """Which of several graphs of a folder."""
    kv_cache: str | None
    """Format of the cache: "none", "bf16", "fp8_per_token_head", "int8_per_token_head", ..."""
    block_size: int | None
    """Tokens a block of the cache."""
    weights: str
    """"float32" (as they are), "bf16", "int8" or "int4"."""
    threads: int
    """0 for all."""
    max_memory: int
    """Bytes that may be held beside the weights as loaded; 0 for four fifths of what there is."""
    options: Mapping[str, str] | None
    """Options of passes, by name."""
    max_tokens_per_step: int
    """Longer prompts are computed in pieces of so many tokens, 4 or more."""
    max_sequences: int | None
    """Sequences that run at once, at most half of max_tokens_per_step; 64 or that half if left out."""
    cache_tokens: int
    """Tokens that the cache holds in all; 0 for what cache_bytes holds."""
    cache_bytes: int
    """Memory of the cache; 0 for 60 % of what is left beside the weights, taken as it is first used."""
    prefix_reuse: str
    """"exact", "all" or "off": what texts begin with alike is computed once; "all" takes also tokens that were written,
    whose rows are not bit for bit those of a prompt."""
    no_reread: bool
    """In a conversation, do not read an answer between questions."""
    drafts: str
    """"auto" or "off": run guesses of next tokens beside them where a text repeats itself; the tokens are the same."""
    step_ms: int
    """Milliseconds that a step with pieces of prompts may take while others are answered, 1 or more."""
    require_paged: bool
    """A graph that cannot be paged, or has other logits then, is an error; else it generates unfused."""
    check_paging: str
    """"once", "always" or "never": compare the logits of the rewritten graph with those of the graph as it was exported;
    "once" keeps what was found in the user's cache folder."""


def check_names(given: Mapping[str, object], known: Sequence[str], function: str) -> None:
    """TypeError that names what is not known, and what it resembles."""
    for name in given:
        if name not in known:
            similar = difflib.get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(similar)}?" if similar else f"expected one of {', '.join(known)}"
            raise TypeError(f'{function}() has no option "{name}": {hint}')
