"""Vocabularies written as others read them: GGUF metadata, tokenizer.json, llama2.c's tokenizer.bin.

What a form cannot say is refused by name; what none of them says (a normal form in GGUF, say) is left to the reader."""

from __future__ import annotations

import json
import logging
import struct
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.write_file import new_file
from gristmill.tokenizer.gguf_vocab import find_pre_name
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.merges import Pair, has_unreachable_tokens, merges_of, scores_of, token_texts
from gristmill.tokenizer.special import find_end_ids
from gristmill.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE_MARK,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
)
from gristmill.tokenizer.write_json import config_fields, tokenizer_fields

logger = logging.getLogger(__name__)

MetadataValue = str | bool | np.uint32 | list[bytes] | NDArray[np.float32] | NDArray[np.int32]

_PREFIX: Final = "tokenizer.ggml."
_END_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
_FIRST_BYTE_ID: Final = 3


def to_gguf_metadata(vocabulary: Vocabulary) -> dict[str, MetadataValue]:
    """`tokenizer.*` key-values; a value's type is its GGUF type (np.uint32, bool, str; arrays of str, float32, int32).

    Raises TokenizerError for what GGUF has no name for: another pre-tokenizer than llama.cpp's, merges that scores
    cannot say, further tokens around every text.
    """
    texts, types = token_texts(vocabulary), _gguf_types(vocabulary)
    for token_id in np.flatnonzero(types == UNUSED).tolist():
        texts[token_id] = texts[token_id] or f"[PAD{token_id}]"
    found: dict[str, MetadataValue] = {
        _PREFIX + "model": "gpt2" if vocabulary.kind == "bpe" else "llama",
        _PREFIX + "tokens": [text.encode() for text in texts],
        _PREFIX + "token_type": types,
    }
    if vocabulary.kind == "bpe":
        merges = merges_of(vocabulary)
        found[_PREFIX + "pre"] = _pre_name(vocabulary, merges)
        found[_PREFIX + "merges"] = [f"{left} {right}".encode() for left, right in merges]
    else:
        found[_PREFIX + "pre"] = "default"
        found[_PREFIX + "scores"] = np.array(scores_of(vocabulary), np.float32)
        found[_PREFIX + "add_space_prefix"] = vocabulary.space_first
    ids = {
        "bos_token_id": vocabulary.bos_id,
        "unknown_token_id": vocabulary.unk_id,
        "padding_token_id": vocabulary.pad_id,
    }
    ids |= dict(zip(_END_KEYS, _named_ends(vocabulary), strict=False))
    found |= {_PREFIX + key: np.uint32(token_id) for key, token_id in ids.items() if token_id is not None}
    found |= {_PREFIX + key: flag for key, flag in _bos_eos_flags(vocabulary).items()}
    return found | _template_fields(vocabulary)


def _named_ends(vocabulary: Vocabulary) -> list[int]:
    """The end of text, then first what no reader finds by its text: there are keys for three. Logs what has none."""
    by_text = find_end_ids(vocabulary.special_ids, ())
    end, others = vocabulary.named_end_ids[:1], vocabulary.named_end_ids[1:]
    ends = [*end, *sorted(others, key=lambda token_id: token_id in by_text)]
    if lost := [token_id for token_id in ends[len(_END_KEYS) :] if token_id not in by_text]:
        what = "%s: GGUF has keys for %d ids that end an answer: %s will end none"
        logger.warning(what, vocabulary.where, len(_END_KEYS), ", ".join(map(str, lost)))
    return ends


def _gguf_types(vocabulary: Vocabulary) -> NDArray[np.int32]:
    types = np.frombuffer(vocabulary.types, np.uint8).astype(np.int32)
    for token in vocabulary.added:
        if types[token.token_id] == NORMAL:
            types[token.token_id] = USER_DEFINED
    if vocabulary.kind == "spm" and vocabulary.unk_id is not None and types[vocabulary.unk_id] == CONTROL:
        types[vocabulary.unk_id] = UNKNOWN
    return types


def _pre_name(vocabulary: Vocabulary, merges: list[Pair]) -> str:
    splitter, patterns = vocabulary.splitter, vocabulary.patterns
    whole_word_first = vocabulary.whole_word_first or vocabulary.is_ranked
    name = find_pre_name(splitter, patterns, whole_word_first)
    if name is None and whole_word_first and not has_unreachable_tokens(vocabulary, merges):
        name = find_pre_name(splitter, patterns, False)  # then merges alone make every word that is a token
    if name is None and patterns:
        raise TokenizerError(
            f"{vocabulary.where}: the pre-tokenizer's pattern {patterns[0]!r:.80} has no name in GGUF; "
            "write tokenizer.json instead"
        )
    if name is None:
        raise TokenizerError(
            f"{vocabulary.where}: the pre-tokenizer {splitter.name} "
            f"{'with' if whole_word_first else 'without'} ignore_merges has no name in GGUF"
        )
    return name


def _bos_eos_flags(vocabulary: Vocabulary) -> dict[str, bool]:
    prefix, suffix = vocabulary.prefix_ids, vocabulary.suffix_ids
    if prefix not in ((), (vocabulary.bos_id,)) or suffix not in ((), (vocabulary.eos_id,)):
        raise TokenizerError(
            f"{vocabulary.where}: puts the ids {prefix} before and {suffix} after each text; "
            "GGUF can say BOS and EOS alone"
        )
    return {"add_bos_token": bool(prefix), "add_eos_token": bool(suffix)}


def _template_fields(vocabulary: Vocabulary) -> dict[str, MetadataValue]:
    key = "tokenizer.chat_template"
    named = {name: text for name, text in vocabulary.chat_templates.items() if name}
    found: dict[str, MetadataValue] = {f"{key}.{name}": text for name, text in named.items()}
    if named:
        found[key + "s"] = [name.encode() for name in named]
    if vocabulary.chat_template is not None:
        found[key] = vocabulary.chat_template
    return found


def write_tokenizer_json(vocabulary: Vocabulary, path: Path) -> None:
    """tokenizer.json at `path`, and tokenizer_config.json beside it, as transformers' AutoTokenizer loads them.

    Raises TokenizerError for scores that merges cannot say. Files are put in place when they are complete.
    """
    _write(path, json.dumps(tokenizer_fields(vocabulary), ensure_ascii=False, indent=1).encode())
    config = json.dumps(config_fields(vocabulary), ensure_ascii=False, indent=2).encode()
    _write(path.with_name("tokenizer_config.json"), config)


def write_llama2c(vocabulary: Vocabulary, path: Path) -> None:
    """llama2.c's tokenizer.bin at `path`: a SentencePiece vocabulary laid out as that program takes for granted.

    Raises TokenizerError naming what the file cannot say.
    """
    texts, scores = _llama2c_pieces(vocabulary), scores_of(vocabulary)
    pieces = [struct.pack("<fi", score, len(text)) + text for text, score in zip(texts, scores, strict=True)]
    _write(path, struct.pack("<i", max(map(len, texts))) + b"".join(pieces))


def _llama2c_pieces(vocabulary: Vocabulary) -> list[bytes]:
    def fail(problem: str) -> TokenizerError:
        return TokenizerError(f"{vocabulary.where}: {problem}: llama2.c's tokenizer.bin cannot say that")

    if vocabulary.kind != "spm":
        raise fail("is a byte-level BPE")
    if not vocabulary.space_first:
        raise fail("puts no space before a text")
    ids = (vocabulary.unk_id, vocabulary.bos_id, vocabulary.eos_id)
    if ids != (0, 1, 2):
        raise fail(f"the ids of unknown, BOS and EOS are {ids}, not 0, 1 and 2")
    texts = token_texts(vocabulary)
    wanted = [f"<0x{byte:02X}>" for byte in range(256)]
    if texts[_FIRST_BYTE_ID : _FIRST_BYTE_ID + 256] != wanted or vocabulary.types.count(BYTE) != 256:
        raise fail(f"the tokens of bytes are not ids {_FIRST_BYTE_ID} to {_FIRST_BYTE_ID + 255}")
    for token in vocabulary.added:
        if token.token_id not in ids:
            raise fail(f"token {token.token_id} ({token.text!r:.80}) is found before all merging")
    pieces = [text.replace(SPACE_MARK, " ").encode() for text in texts]
    pieces[1:3] = [b"\n" + piece + b"\n" for piece in pieces[1:3]]  # as llama2.c prints them
    return pieces


def _write(path: Path, data: bytes) -> None:
    with new_file(path, len(data)) as file:
        file.write(data)
