"""Prompts as people give them to `LLM` -> text, or ids as a list of Python's. It knows no vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BYTES = bytes | bytearray | memoryview
Ids = Sequence[int] | NDArray[np.integer[Any]]
Prompt = str | Ids | Mapping[str, Any]
"""Text, ids (an array of them is one-dimensional), or vLLM's {"prompt": text} and {"prompt_token_ids": ids}."""


def as_prompts(given: Prompt | Iterable[Prompt]) -> list[str | list[int]]:
    """One prompt or several. ValueError that names the first which is none."""
    is_one = isinstance(given, str | Mapping | _BYTES) or (isinstance(given, np.ndarray) and given.ndim == 0)
    if is_one or not isinstance(given, Iterable):
        return [as_prompt(given, "prompts")]
    items = list(given)
    if items and _is_id(items[0]):
        return [as_ids(items, "prompts")]
    return [as_prompt(item, f"prompts[{i}]") for i, item in enumerate(items)]


def as_prompt(given: Any, where: str) -> str | list[int]:
    """ValueError for what is neither text nor ids. where: what that calls it."""
    if isinstance(given, Mapping):
        if len(given) != 1 or not set(given) <= {"prompt", "prompt_token_ids"}:
            names = ", ".join(map(str, given))
            raise ValueError(f"{where} has {names:.80}; give it prompt or prompt_token_ids, one of the two")
        (name,) = given
        given, where = given[name], f"{where}[{name!r}]"
        return as_text(given, where) if name == "prompt" else as_ids(given, where)
    return given if isinstance(given, str) else as_ids(given, where, "text or a list of token ids")


def as_text(given: Any, where: str) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{where} is of type {type(given).__name__}; give text")
    return given


def as_ids(given: Any, where: str, wanted: str = "a list of token ids") -> list[int]:
    """ValueError for what is no sequence of whole numbers."""
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "iu":
        return list(given.tolist())
    if not isinstance(given, Sequence) or isinstance(given, str | _BYTES):
        raise ValueError(f"{where} is of type {type(given).__name__}; give {wanted}")
    if not all(map(_is_id, given)):
        wrong = next(item for item in given if not _is_id(item))
        raise ValueError(f"{where} has {wrong!r:.40} among its token ids; they are whole numbers")
    return [int(i) for i in given]


def _is_id(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
