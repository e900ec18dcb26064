"""The vocabulary inside a GGUF file: `tokenizer.ggml.*` (github.com/ggml-org/ggml, docs/gguf.md).

Behaves as llama.cpp does, except that plain text never becomes a control token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gristmill._tokenizer import Codec, Splitter
from gristmill.tokenizer.core import CodecTokenizer, SpecialTokens
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.kinds import BYTE, LITERAL, SPECIAL, TEXT
from gristmill.tokenizer.special import find_end_ids

_PREFIX = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_KINDS = bytes([LITERAL, TEXT, LITERAL, LITERAL, LITERAL, LITERAL, BYTE])  # by token type; 0 is undefined


@dataclass(frozen=True, slots=True)
class _Pre:
    """What a name in `tokenizer.ggml.pre` stands for."""

    splitter: Splitter
    whole_word_first: bool = False
    adds_bos: bool = False


_LLAMA3 = _Pre(Splitter.LLAMA3, whole_word_first=True, adds_bos=True)
_QWEN2 = _Pre(Splitter.QWEN2)
_GPT2 = _Pre(Splitter.GPT2)
_O200K = _Pre(Splitter.O200K)
_PRES = MappingProxyType(
    {
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "llama-bpe": _LLAMA3,
        "dbrx": _Pre(Splitter.LLAMA3),
        "smaug-bpe": _Pre(Splitter.LLAMA3),
        "qwen2": _QWEN2,
        "deepseek-r1-qwen": _QWEN2,
        "stablelm2": _QWEN2,
        "megrez": _QWEN2,
        "gpt-2": _GPT2,
        "phi-2": _GPT2,
        "gpt-4o": _O200K,
        "llama4": _O200K,
    }
)


class _Fields:
    """`tokenizer.ggml.*` with checked types. `where` names the file in errors."""

    def __init__(self, metadata: Mapping[str, Any], where: str) -> None:
        self.metadata = metadata
        self.where = where

    def fail(self, field: str, problem: str) -> TokenizerError:
        return TokenizerError(f"{self.where}: {_PREFIX}{field} {problem}")

    def text(self, field: str) -> str | None:
        value = self.metadata.get(_PREFIX + field)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if value is not None and not isinstance(value, str):
            raise self.fail(field, f"is {value!r:.80}, not a string")
        return value

    def flag(self, field: str, default: bool) -> bool:
        value = self.metadata.get(_PREFIX + field, default)
        if not isinstance(value, bool | int):
            raise self.fail(field, f"is {value!r:.80}, not a bool")
        return bool(value)

    def array(self, field: str) -> Sequence[Any] | None:
        value = self.metadata.get(_PREFIX + field)
        if value is None:
            return None
        if isinstance(value, str | bytes) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
            raise self.fail(field, f"is {value!r:.80}, not an array")
        array: Sequence[Any] = value
        return array

    def token_id(self, field: str, n_ids: int) -> int | None:
        value = self.metadata.get(_PREFIX + field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_ids:
            raise self.fail(field, f"is {value!r:.80}, but the vocabulary has {n_ids} tokens")
        return value


def load_gguf_vocabulary(metadata: Mapping[str, Any], where: str) -> CodecTokenizer:
    """The tokenizer that GGUF metadata describes. String arrays may hold str or bytes. `where` names the file."""
    fields = _Fields(metadata, where)
    tokens = fields.array("tokens")
    if not tokens:
        raise fields.fail("tokens", "is missing: the file has no vocabulary; give --tokenizer FILE")
    types = _token_types(fields, len(tokens))
    model = fields.text("model")
    if model == "gpt2":
        return _load_byte_level(fields, tokens, types)
    if model == "llama":
        return _load_sentencepiece(fields, tokens, types)
    raise fields.fail("model", f"is {model!r}; supported are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE)")


def _token_types(fields: _Fields, n_ids: int) -> bytes:
    array = fields.array("token_type")
    if array is None:
        return bytes([_NORMAL]) * n_ids
    if len(array) != n_ids:
        raise fields.fail("token_type", f"has {len(array)} entries, but there are {n_ids} tokens")
    try:
        types = np.asarray(array)
    except (ValueError, TypeError, OverflowError):
        types = np.empty(0)
    if types.dtype.kind not in "iu" or types.ndim != 1 or types.min() < 0 or types.max() > _BYTE:
        raise fields.fail("token_type", "holds something else than the types 0 to 6")
    return types.astype(np.uint8).tobytes()


def _load_byte_level(fields: _Fields, tokens: Sequence[Any], types: bytes) -> CodecTokenizer:
    name = fields.text("pre")
    pre = _PRES.get(name or "")
    if pre is None:
        raise fields.fail(
            "pre", f"is {name!r}; supported are {', '.join(_PRES)}: convert the model again or give --tokenizer FILE"
        )
    merges = fields.array("merges")
    if merges is None:
        raise fields.fail("merges", "is missing")
    try:
        codec = Codec.byte_level(
            _strings(tokens), types.translate(_kind_table()), _strings(merges), pre.splitter, pre.whole_word_first
        )
    except (ValueError, TypeError) as error:
        raise TokenizerError(f"{fields.where}: {_PREFIX}tokens or merges: {error}") from None
    return _finish(fields, codec, tokens, types, adds_bos=pre.adds_bos, space_first=False)


def _load_sentencepiece(fields: _Fields, tokens: Sequence[Any], types: bytes) -> CodecTokenizer:
    scores = fields.array("scores")
    if scores is None:
        raise fields.fail("scores", "is missing")
    space_first = fields.flag("add_space_prefix", True)
    unknown = fields.token_id("unknown_token_id", len(tokens))
    try:
        codec = Codec.scored(
            _strings(tokens),
            types.translate(_kind_table()),
            _to_list(scores),
            space_first=space_first,
            space_after_phrase=space_first,
            unknown=-1 if unknown is None else unknown,
        )
    except (ValueError, TypeError) as error:
        raise TokenizerError(f"{fields.where}: {_PREFIX}tokens or scores: {error}") from None
    return _finish(fields, codec, tokens, types, adds_bos=True, space_first=space_first)


def _finish(
    fields: _Fields, codec: Codec, tokens: Sequence[Any], types: bytes, *, adds_bos: bool, space_first: bool
) -> CodecTokenizer:
    bos_id = fields.token_id("bos_token_id", len(tokens))
    named = [fields.token_id(name, len(tokens)) for name in ("eos_token_id", "eot_token_id", "eom_token_id")]
    ends = [token_id for token_id in named if token_id is not None]
    special_ids: dict[str, int] = {}
    by_id = np.frombuffer(types, np.uint8)
    for token_id in np.flatnonzero((by_id >= _UNKNOWN) & (by_id <= _USER_DEFINED)).tolist():
        text = _as_text(tokens[token_id])
        codec.add_phrase(text, token_id, 0 if types[token_id] == _USER_DEFINED else SPECIAL)
        if types[token_id] != _USER_DEFINED:
            special_ids.setdefault(text, token_id)
    prefix = (bos_id,) if bos_id is not None and fields.flag("add_bos_token", adds_bos) else ()
    suffix = (ends[0],) if ends and fields.flag("add_eos_token", False) else ()
    special = SpecialTokens(
        bos_id, find_end_ids(special_ids, tuple(ends)), prefix, suffix, MappingProxyType(special_ids)
    )
    return CodecTokenizer(codec, special, strips_first_space=space_first)


def _kind_table() -> bytes:
    return _KINDS + bytes(256 - len(_KINDS))


def _as_text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _to_list(array: Sequence[Any]) -> list[Any]:
    to_list = getattr(array, "tolist", None)
    return to_list() if to_list is not None else list(array)


def _strings(array: Sequence[Any]) -> Any:
    """What the codec takes: one buffer with places where the array is such (no object for each string), else a list."""
    arrays = getattr(array, "arrays", None)
    return arrays() if arrays is not None else _to_list(array)
