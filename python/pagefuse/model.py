# SPDX-License-Identifier: Apache-2.0
"""A model's folder as what answers texts, token ids and conversations."""

from __future__ import annotations

import json
import numbers
import os
import reprlib
import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal, Mapping, Sequence, cast, overload

import numpy

from . import _pagefuse
from .engine import Completion, Engine, PathLike, Tokenizer
from .options import Message, Options, Prompt, Settings, check_names
from .progress import Progress, ProgressFunction, Reporting
from .stream import Answer, Call, Stream

if TYPE_CHECKING:
    from typing import Unpack

# New tokens where nobody says how many, as on the command line.
_USUAL_TOKENS = 32
_USUAL_ANSWER = 1024  # in a conversation, which a model ends by itself


_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p",
    "repetition_penalty", "frequency_penalty", "presence_penalty", "seed",
)  # fmt: skip


def _is_messages(prompt: object) -> bool:
    return isinstance(prompt, (list, tuple)) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _ids(prompt: object) -> numpy.ndarray:
    ids = numpy.asarray(prompt)
    if ids.size > 0 and ids.dtype.kind not in "iu":
        raise TypeError(f"prompt: expected a text, token ids or messages, got {reprlib.repr(prompt)}")
    if ids.ndim != 1 or ids.size == 0:
        raise ValueError(f"prompt: expected token ids [tokens], got {list(ids.shape)}")
    return ids.astype(numpy.int64)


def _is_one(prompts: object) -> bool:
    """One prompt, or a list of them."""
    if isinstance(prompts, str) or _is_messages(prompts):
        return True
    if isinstance(prompts, Mapping):
        raise TypeError("prompt: expected a list of messages, got one message alone")
    if isinstance(prompts, (list, tuple)):
        if not prompts:
            raise ValueError("prompt: expected a text, token ids or messages, got an empty list")
        return isinstance(prompts[0], numbers.Integral)
    if isinstance(prompts, (bytes, bytearray)) or prompts is None:
        raise TypeError(f"prompt: expected a text, token ids or messages, got {type(prompts).__name__}")
    return getattr(prompts, "ndim", 1) == 1


class Chat:
    """A conversation. What was said before is not computed again; an answer is read on a thread of its own until the
    next call comes (load(..., no_reread=True) leaves that to the next question).

    messages: all that was said, which may be changed between questions.
    """

    messages: list[dict[str, Any]]

    def __init__(self, model: Model, messages: Sequence[Message], options: Options) -> None:
        self._model = model
        self._options = options
        self.messages = [dict(message) for message in messages]

    def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """The answer to a question, which goes into `messages` with it; neither does if this raises."""
        call, reporting = self._call(question, options)
        with reporting as tell:
            answer = self._model._run(call, tell)[0]
        self._add(question, answer)
        threading.Thread(target=self._model.engine._reread, name="pagefuse.Reread").start()
        return answer

    def stream(self, question: str, **options: Unpack[Options]) -> Stream:
        """The same piece by piece. Of a Stream that is closed before its end what was read is the answer."""
        call, reporting = self._call(question, options)
        return _ChatStream(self, question, call, reporting)

    def undo(self) -> None:
        """Forgets the last question and what followed it."""
        users = [i for i, message in enumerate(self.messages) if message.get("role") == "user"]
        if not users:
            raise ValueError("nothing was asked that could be undone")
        del self.messages[users[-1] :]

    def clear(self) -> None:
        """Forgets all but what the system said."""
        self.messages = [message for message in self.messages if message.get("role") == "system"]

    def _call(self, question: str, options: Options) -> tuple[Call, Reporting]:
        if not isinstance(question, str):
            raise TypeError(f"question: expected a text, got {type(question).__name__}")
        asked = [*self.messages, {"role": "user", "content": question}]
        chosen = cast(Options, {**self._options, **options})
        call = self._model._call([asked], chosen, "chat")
        call.goes_on = True
        return call, Reporting(chosen.get("progress"))

    def _add(self, question: str, answer: Answer) -> None:
        self.messages.append({"role": "user", "content": question})
        self.messages.append({"role": "assistant", "content": answer.text})


class _ChatStream(Stream):
    def __init__(self, chat: Chat, question: str, call: Call, reporting: Reporting) -> None:
        self._chat, self._question = chat, question
        super().__init__(chat._model, call, reporting)

    def _finish(self, answer: Answer) -> None:
        super()._finish(answer)
        self._chat._add(self._question, answer)


class Model:
    """What load() gives: generates from texts, token ids and conversations. Thread-safe: calls take turns.

    engine: the Engine, for ids alone. tokenizer: None where the folder has none; then prompts are ids.
    """

    engine: Engine
    tokenizer: Tokenizer | None

    def __init__(self, path: str, engine: Engine, texts: _pagefuse.Texts | None) -> None:
        self._path = path
        self._texts = texts
        self.engine = engine
        self.tokenizer = None if texts is None else Tokenizer._of(texts.tokenizer)

    @property
    def sampling(self) -> dict[str, float]:
        """How the model is meant to be sampled: what its files say, else greedily."""
        return self.engine._engine.sampling

    @property
    def has_chat_template(self) -> bool:
        return self._texts is not None and self._texts.has_chat_template

    def encode(self, prompt: Prompt) -> numpy.ndarray:
        """The ids, int64 [tokens], that the model reads for a text, or for messages by its chat template.

        ValueError without a tokenizer; RuntimeError for messages without a template.
        """
        if not isinstance(prompt, str) and not _is_messages(prompt):
            return _ids(prompt)
        if self._texts is None:
            raise ValueError(f'prompt: expected token ids, since "{self._path}" has no tokenizer.json')
        if isinstance(prompt, str):
            ids = self._texts.encode_prompt(prompt)
            twice = self._texts.begins_twice(ids)
            if twice is not None:
                warnings.warn(f"the prompt begins with {twice} twice: the tokenizer puts it in front of every text")
            return ids
        given = json.dumps({"messages": [dict(m) for m in cast(Any, prompt)], "add_generation_prompt": True})
        return self._texts.encode_chat(given)

    # A text is a sequence of texts, too: the first signature that fits counts.
    @overload
    def generate(  # type: ignore[misc]
        self, prompts: Prompt, *, samples: Literal[1] = 1, logits: bool = False, **options: Unpack[Options]
    ) -> Answer: ...

    @overload
    def generate(  # type: ignore[misc]
        self, prompts: Prompt, *, samples: int, logits: bool = False, **options: Unpack[Options]
    ) -> Answer | list[Answer]: ...

    @overload
    def generate(
        self, prompts: Sequence[Prompt], *, samples: int = 1, logits: bool = False, **options: Unpack[Options]
    ) -> list[Answer]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        samples: int = 1,
        logits: bool = False,
        **options: Unpack[Options],
    ) -> Answer | list[Answer]:
        """Generates behind one prompt, or behind each of a list, in one batch.

        prompts: a text, token ids (a list, or an array [tokens]), messages ({"role": ..., "content": ...}) for the
            chat template; or a list of such.
        samples: answers a prompt, 1 to 16; the prompt is computed once. logits: keep them in `Answer.logits`.
        options, by name: see `pagefuse.Options` (max_new_tokens, temperature, top_k, top_p, min_p,
            repetition_penalty, frequency_penalty, presence_penalty, seed, stop, ignore_end, progress).

        Gives an Answer for one prompt with one sample, else a list: samples of the first prompt, of the second, ...
        ValueError for what is out of range, with the range; TypeError for a name that there is not, with similar
        ones; MemoryError if one prompt alone does not fit; RuntimeError where one answer alone fails. Where that is so
        of some of several prompts, `Answer.error` says why, and the others are answered.

        >>> model.generate("What does the red box hold?", max_new_tokens=16, temperature=0.7, seed=1).text
        """
        one = _is_one(prompts)
        call = self._call([prompts] if one else list(cast(Any, prompts)), options, "generate", ["samples", "logits"])
        call.samples = samples
        call.arguments.update(samples=samples, logits=logits)
        with Reporting(options.get("progress")) as tell:
            answers = self._run(call, tell)
        return answers[0] if one and samples == 1 else answers

    def stream(self, prompt: Prompt, **options: Unpack[Options]) -> Stream:
        """The answer to one prompt as an iterator over pieces of its text, as they come.

        Takes what generate() takes. ValueError without a tokenizer.

        >>> for text in model.stream("What does the red box hold?"):
        ...     print(text, end="", flush=True)
        """
        if not _is_one(prompt):
            raise ValueError("prompt: expected one for a stream, got a list of them")
        if self._texts is None:
            raise ValueError(f'stream() needs a tokenizer, and "{self._path}" has no tokenizer.json: use generate()')
        return Stream(self, self._call([prompt], options, "stream"), Reporting(options.get("progress")))

    def chat(
        self,
        system: str | None = None,
        *,
        messages: Sequence[Message] = (),
        **options: Unpack[Options],
    ) -> Chat:
        """A conversation, whose `ask` and `stream` answer questions over one cache.

        system: what the system says before it. messages: a conversation to go on with. options: of all answers.
        ValueError for a model without a chat template.
        """
        if not self.has_chat_template:
            raise ValueError(
                f'"{self._path}" has no chat template: expected chat_template.jinja, chat_template in '
                "tokenizer_config.json or chat_template.json, or load(..., chat_template=FILE)"
            )
        check_names(options, list(Options.__annotations__), "chat")
        if system is not None and not isinstance(system, str):
            raise TypeError(f"system: expected a text, got {type(system).__name__}")
        if system is not None:
            messages = [{"role": "system", "content": system}, *messages]
        return Chat(self, messages, options)

    @property
    def stats(self) -> dict[str, float]:
        """As Engine.stats."""
        return self.engine.stats

    def __repr__(self) -> str:
        kind = "paged" if self.engine.paged else "as it was exported"
        return f'pagefuse.Model("{self._path}": {kind}, {self.engine.vocabulary} tokens)'

    def _call(self, prompts: list[Any], options: Options, function: str, more: Sequence[str] = ()) -> Call:
        check_names(options, [*Options.__annotations__, *more], function)
        stop = options.get("stop")
        stops = [] if stop is None else [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(one, str) for one in stops):
            raise TypeError(f"stop: expected a text, or a list of texts, got {stop!r}")
        if stops and self._texts is None:
            raise ValueError(f'stop: expected none, since "{self._path}" has no tokenizer.json')
        wanted = options.get("max_new_tokens")
        if wanted is not None and (not isinstance(wanted, numbers.Integral) or wanted < 0):
            raise ValueError(f"max_new_tokens: expected a whole number, 0 or more, got {wanted!r}")
        ids = [self.encode(prompt) for prompt in prompts]
        counts, refused = [], []
        for prompt, tokens in zip(prompts, ids):
            usual = _USUAL_ANSWER if _is_messages(prompt) else _USUAL_TOKENS
            try:
                counts.append(self.engine._engine.new_tokens(prompt=len(tokens), wanted=wanted, usual=usual))
                refused.append("")
            except ValueError as error:  # the model has no positions for it; others may be shorter
                if len(prompts) == 1:
                    raise
                counts.append(0)
                refused.append(str(error))
        ends = [] if options.get("ignore_end") else self.engine.end_tokens
        named = {name: options[name] for name in _SAMPLING if options.get(name) is not None}  # type: ignore[literal-required]
        arguments = {
            "max_new_tokens": counts,
            "refused": refused,
            "sampling": {**self.sampling, **named},
            "stop_tokens": [*ends, *(self._texts.stop_tokens(stops) if self._texts else [])],
        }
        return Call(ids, arguments, stops)

    def _run(self, call: Call, tell: ProgressFunction | None = None, heard: Any = None) -> list[Answer]:
        """Runs the prompts. heard(token, piece): hears of the one answer that there is, and whether it goes on."""
        count = len(call.prompts) * call.samples
        texts = [_pagefuse.AnswerText(self._texts, call.stops) for _ in range(count)] if self._texts else []
        pieces: list[list[str]] = [[] for _ in range(count)]
        counts = _Counts(call, tell)

        def on_token(place: int, token: int) -> bool:
            piece = texts[place].add(token) if texts else ""
            pieces[place].append(piece)
            counts.token()
            goes_on = heard is None or heard(token, piece)
            return goes_on and not (texts and texts[place].stopped)

        with self.engine._turns.one():
            completions = self.engine._engine.generate(
                call.prompts, on_token=on_token, on_step=counts.step, **call.arguments
            )
        answers = []
        for place, completion in enumerate(Completion(**one) for one in completions):
            stopped = bool(texts) and texts[place].stopped
            text = "".join(pieces[place]) + (texts[place].finish() if texts else "")
            answers.append(
                Answer(
                    text,
                    completion.tokens,
                    "stop" if stopped else completion.finish,
                    completion.seed,
                    len(call.prompts[place // call.samples]),
                    completion.logits,
                    completion.as_exported,
                    completion.error,
                    completion.cached_tokens,
                )
            )
        if count == 1 and answers[0].error is not None:
            raise RuntimeError(answers[0].error)
        return answers


class _Counts:
    """Tells how many tokens of prompts and of answers are done."""

    def __init__(self, call: Call, tell: ProgressFunction | None) -> None:
        self._tell = tell
        self._prompt, self._prompts = 0, call.total()
        self._answer, self._answers = 0, sum(call.arguments["max_new_tokens"]) * call.samples

    def step(self, decode: bool, tokens: int) -> None:
        if self._tell is not None and not decode:
            # Steps may have tokens of prompts and of answers.
            self._prompt = min(self._prompt + tokens, self._prompts)
            self._tell("prompt", self._prompt, self._prompts)

    def token(self) -> None:
        self._answer += 1
        if self._tell is not None:
            self._tell("answer", self._answer, self._answers)


def load(
    path: PathLike,
    *,
    chat_template: PathLike | None = None,
    progress: Progress = None,
    **settings: Unpack[Settings],
) -> Model:
    """Loads a model's folder of Hugging Face's or ONNX Runtime GenAI's layout, or a graph in one.

    chat_template: a file that goes before that of the folder.
    progress: a function that hears how far it has come: progress(stage, done, total). None: a line on a terminal.
    settings, by name: see `pagefuse.Settings` (graph, kv_cache, block_size, weights, threads, max_memory, options,
        max_tokens_per_step, max_sequences, cache_tokens, cache_bytes, prefix_reuse, no_reread, drafts, step_ms,
        require_paged, check_paging).

    FileNotFoundError for a folder or a graph that is not there; ValueError for files and settings that are wrong, with
    what was expected; TypeError for a setting that there is not, with similar ones; MemoryError. A UserWarning tells
    if the graph is not paged, and where the folder's files disagree.

    >>> model = pagefuse.load("models/gemma3_recall", kv_cache="fp8_per_token_head", threads=2)
    """
    check_names(settings, list(Settings.__annotations__), "load")
    place = os.fspath(path)
    template = "" if chat_template is None else os.fspath(chat_template)
    texts = _pagefuse.Texts.open(place, graph=settings.get("graph", ""), chat_template=template)
    with Reporting(progress) as tell:
        on_stage = None if tell is None else (lambda stage: tell(stage, 0, 0))
        engine = Engine(place, _on_stage=on_stage, **settings)
    for line in engine._engine.contradictions:
        warnings.warn(line, stacklevel=2)
    if not engine.paged:
        warnings.warn(f"not paged: {engine.why_not_paged}; it generates as it was exported", stacklevel=2)
    return Model(place, engine, texts)
