"""The vocabulary inside a GGUF file: `tokenizer.ggml.*` (github.com/ggml-org/ggml, docs/gguf.md).

Behaves as llama.cpp does, except that plain text never becomes a control token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gristmill._tokenizer import Splitter
from gristmill.formats.strings import ByteStrings
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.kinds import SPECIAL
from gristmill.tokenizer.special import END_TEXTS
from gristmill.tokenizer.split import KNOWN_PATTERNS
from gristmill.tokenizer.vocabulary import (
    BYTE,
    NORMAL,
    UNDEFINED,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    AddedToken,
    Vocabulary,
)

_PREFIX = "tokenizer.ggml."


@dataclass(frozen=True, slots=True)
class _Pre:
    """What a name in `tokenizer.ggml.pre` stands for."""

    splitter: Splitter
    whole_word_first: bool = False
    adds_bos: bool = False
    patterns: tuple[str, ...] = ()


_LLAMA3 = _Pre(Splitter.LLAMA3, whole_word_first=True, adds_bos=True)
_QWEN2 = _Pre(Splitter.QWEN2)
_GPT2 = _Pre(Splitter.GPT2)
_O200K = _Pre(Splitter.O200K)
_TEKKEN = _Pre(Splitter.NONE, whole_word_first=True, adds_bos=True, patterns=(KNOWN_PATTERNS.tekken,))
_SMOLLM = _Pre(Splitter.NONE, patterns=(KNOWN_PATTERNS.digit, KNOWN_PATTERNS.gpt2))
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
        "tekken": _TEKKEN,
        "smollm": _SMOLLM,
    }
)


# Of the names that stand for one thing, the one that llama.cpp's own converter writes.
_WRITTEN: Final = ("llama-bpe", "smaug-bpe", "qwen2", "gpt-2", "gpt-4o", "tekken", "smollm")


def find_pre_name(splitter: Splitter, patterns: tuple[str, ...], whole_word_first: bool) -> str | None:
    """The name in `tokenizer.ggml.pre` of a pre-tokenizer, None where there is none."""
    for name in _WRITTEN:
        pre = _PRES[name]
        if (pre.splitter, pre.patterns, pre.whole_word_first) == (splitter, patterns, whole_word_first):
            return name
    return None


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

    def strings(self, field: str) -> Sequence[Any] | None:
        """An array, and none of numbers as files have them."""
        array = self.array(field)
        if isinstance(array, np.ndarray):
            raise self.fail(field, f"is an array of {array.dtype}, not of strings")
        return array

    def numbers(self, field: str) -> Sequence[Any] | None:
        """An array, and none of strings as files have them."""
        array = self.array(field)
        if isinstance(array, ByteStrings):
            raise self.fail(field, "is an array of strings, not of numbers")
        return array

    def token_id(self, field: str, n_ids: int) -> int | None:
        value = self.metadata.get(_PREFIX + field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_ids:
            problem = f"is {value!r:.80}, but the vocabulary has {n_ids} tokens"
            raise self.fail(field, f"{problem}: mend the file (gguf-set-metadata), or give --tokenizer FILE")
        return value

    def sound_id(self, field: str, n_ids: int) -> int | None:
        """An id that nothing depends on: files in use have it out of range."""
        value = self.metadata.get(_PREFIX + field)
        return value if type(value) is int and 0 <= value < n_ids else None


def load_gguf_vocabulary(metadata: Mapping[str, Any], where: str) -> CodecTokenizer:
    """The tokenizer that GGUF metadata describes."""
    return make_tokenizer(read_gguf_vocabulary(metadata, where))


def read_gguf_vocabulary(metadata: Mapping[str, Any], where: str) -> Vocabulary:
    """The vocabulary that GGUF metadata describes. String arrays may hold str or bytes. `where` names the file."""
    fields = _Fields(metadata, where)
    tokens = fields.strings("tokens")
    if not tokens:
        raise fields.fail("tokens", "is missing: the file has no vocabulary; give --tokenizer FILE")
    types = _token_types(fields, len(tokens))
    model = fields.text("model")
    if model == "gpt2":
        return _read_byte_level(fields, tokens, types)
    if model == "llama":
        return _read_sentencepiece(fields, tokens, types)
    raise fields.fail("model", f"is {model!r}; supported are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE)")


def _token_types(fields: _Fields, n_ids: int) -> bytes:
    array = fields.array("token_type")
    if array is None:
        return bytes([NORMAL]) * n_ids
    if len(array) != n_ids:
        raise fields.fail("token_type", f"has {len(array)} entries, but there are {n_ids} tokens")
    try:
        types = np.asarray(array)
    except (ValueError, TypeError, OverflowError):
        types = np.empty(0)
    if types.dtype.kind not in "iu" or types.ndim != 1 or types.min() < 0 or types.max() > BYTE:
        raise fields.fail("token_type", "holds something else than the types 0 to 6")
    return np.where(types == UNDEFINED, UNUSED, types).astype(np.uint8).tobytes()


def _read_byte_level(fields: _Fields, tokens: Sequence[Any], types: bytes) -> Vocabulary:
    name = fields.text("pre")
    pre = _PRES.get(name or "")
    if pre is None:
        raise fields.fail(
            "pre", f"is {name!r}; supported are {', '.join(_PRES)}: convert the model again or give --tokenizer FILE"
        )
    merges = fields.strings("merges")
    if merges is None:
        raise fields.fail("merges", "is missing")
    vocabulary = Vocabulary(
        "bpe",
        tokens,
        types,
        fields.where,
        f"{_PREFIX}tokens or merges",
        merges=merges,
        splitter=pre.splitter,
        patterns=pre.patterns,
        whole_word_first=pre.whole_word_first,
        unk_id=fields.sound_id("unknown_token_id", len(tokens)),
    )
    return _with_special(fields, vocabulary, adds_bos=pre.adds_bos)


def _read_sentencepiece(fields: _Fields, tokens: Sequence[Any], types: bytes) -> Vocabulary:
    scores = fields.numbers("scores")
    if scores is None:
        raise fields.fail("scores", "is missing")
    space_first = fields.flag("add_space_prefix", True)
    vocabulary = Vocabulary(
        "spm",
        tokens,
        types,
        fields.where,
        f"{_PREFIX}tokens or scores",
        scores=scores,
        space_first=space_first,
        space_after_added=space_first,
        strips_first_space=space_first,
        unk_id=fields.token_id("unknown_token_id", len(tokens)),
    )
    return _with_special(fields, vocabulary, adds_bos=True)


def _with_special(fields: _Fields, vocabulary: Vocabulary, *, adds_bos: bool) -> Vocabulary:
    n_ids, types = vocabulary.n_tokens, vocabulary.types
    bos_id = fields.token_id("bos_token_id", n_ids)
    named = [fields.token_id(name, n_ids) for name in ("eos_token_id", "eot_token_id", "eom_token_id")]
    ends = tuple(token_id for token_id in named if token_id is not None)
    by_id = np.frombuffer(types, np.uint8)
    ids = np.flatnonzero((by_id >= UNKNOWN) & (by_id <= USER_DEFINED)).tolist()
    texts = [vocabulary.token_text(token_id) for token_id in ids]
    added = tuple(
        # Files that have an end as user-defined are wrong: it would be found in any text, and end no answer.
        AddedToken(text, token_id, 0 if types[token_id] == USER_DEFINED and text not in END_TEXTS else SPECIAL)
        for text, token_id in zip(texts, ids, strict=True)
    )
    return replace(
        vocabulary,
        added=added,
        bos_id=bos_id,
        pad_id=fields.sound_id("padding_token_id", n_ids),
        named_end_ids=ends,
        prefix_ids=(bos_id,) if bos_id is not None and fields.flag("add_bos_token", adds_bos) else (),
        suffix_ids=(ends[0],) if ends and fields.flag("add_eos_token", False) else (),
    )
