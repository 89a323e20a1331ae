# SPDX-License-Identifier: Apache-2.0
"""What python/bindings/ make; the package gives it names."""

from typing import Any, Callable, Mapping, Sequence

import numpy

__version__: str

class Tensor:
    """Elements of a type that numpy may lack, as bfloat16 or float8e4m3fn."""
    def __init__(self, bits: Any, dtype: str, shape: Sequence[int] | None = None) -> None:
        """Takes the bits of an array as elements of `dtype`, without a copy."""
    @property
    def dtype(self) -> str:
        """The name of the type, as ONNX spells it."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Its dims."""
    def bits(self) -> numpy.ndarray:
        """The same memory as an array of unsigned integers; bytes of two elements where they have four bits."""
    def __dlpack__(self, stream: object = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Session:
    def __init__(
        self,
        path: str,
        *,
        optimise: bool = True,
        weights: str = "float32",
        threads: int = 0,
        max_memory: int = 0,
        options: Mapping[str, str] = {},
    ) -> None: ...
    @property
    def inputs(self) -> list[tuple[str, str, tuple[int | str | None, ...] | None]]: ...
    @property
    def outputs(self) -> list[tuple[str, str, tuple[int | str | None, ...] | None]]: ...
    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str] = []) -> dict[str, numpy.ndarray | Tensor]: ...
    def kernels(self) -> str: ...

class Engine:
    def __init__(
        self,
        path: str,
        *,
        graph: str = "",
        kv_cache: str | None = None,
        block_size: int | None = None,
        weights: str = "float32",
        threads: int = 0,
        max_memory: int = 0,
        options: Mapping[str, str] = {},
        max_tokens_per_step: int = 512,
        max_sequences: int | None = None,
        cache_tokens: int = 0,
        cache_bytes: int = 0,
        prefix_reuse: str = "exact",
        no_reread: bool = False,
        drafts: str = "auto",
        step_ms: int = 200,
        require_paged: bool = False,
        check_paging: str = "once",
        on_stage: Callable[[str], object] | None = None,
    ) -> None: ...
    @property
    def paged(self) -> bool: ...
    @property
    def why_not_paged(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def end_tokens(self) -> list[int]: ...
    @property
    def contradictions(self) -> list[str]: ...
    @property
    def sampling(self) -> dict[str, float]: ...
    @property
    def stats(self) -> dict[str, float]: ...
    def reread(self, goes_on: Callable[[], bool]) -> None: ...
    def new_tokens(self, prompt: int, wanted: int | None, usual: int) -> int: ...
    def generate(
        self,
        prompts: Any,
        *,
        max_new_tokens: Sequence[int],
        sampling: dict[str, float],
        stop_tokens: Sequence[int] | None = None,
        samples: int = 1,
        logits: bool = False,
        on_token: Callable[[int, int], bool | None] | None = None,
        on_step: Callable[[bool, int], object] | None = None,
        refused: Sequence[str] = (),
    ) -> Any: ...

class Tokenizer:
    def __init__(self, path: str) -> None: ...
    def encode(self, text: str, *, add_special: bool = True) -> numpy.ndarray: ...
    def decode(self, ids: Any, *, special: bool = False) -> str: ...
    def __len__(self) -> int: ...

class Texts:
    @staticmethod
    def open(path: str, graph: str = "", chat_template: str = "") -> Texts | None: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def has_chat_template(self) -> bool: ...
    def encode_prompt(self, text: str) -> numpy.ndarray: ...
    def begins_twice(self, ids: Any) -> str | None: ...
    def encode_chat(self, given: str) -> numpy.ndarray: ...
    def stop_tokens(self, stops: Sequence[str]) -> list[int]: ...

class AnswerText:
    def __init__(self, texts: Texts, stops: Sequence[str]) -> None: ...
    def add(self, token: int) -> str: ...
    def finish(self) -> str: ...
    @property
    def stopped(self) -> bool: ...

def optimize(
    path: str,
    output: str | None = None,
    *,
    page: bool = True,
    disabled: Sequence[str] = [],
    options: Mapping[str, str] = {},
    function_bodies: bool = True,
    target_opset: int | None = None,
) -> dict[str, Any]: ...
def load_plugin(path: str) -> dict[str, Any]: ...
def register_rules(text: str, name: str) -> None: ...
