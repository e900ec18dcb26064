"""SentencePiece's `tokenizer.model`, written by hand as it is read. Schema: github.com/google/sentencepiece,
src/sentencepiece_model.proto; wire format: protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from gristmill.formats.write_file import new_file
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.merges import has_byte_tokens, scores_of, token_texts
from gristmill.tokenizer.vocabulary import SPACE_MARK, USER_DEFINED, Vocabulary

_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_BPE: Final = 2


def write_sentencepiece(vocabulary: Vocabulary, path: Path) -> None:
    """A SentencePiece BPE model at `path`. Raises TokenizerError naming what such a file cannot say."""
    if vocabulary.kind != "spm":
        raise TokenizerError(f"{vocabulary.where}: is a byte-level BPE, which no SentencePiece model is")
    if vocabulary.unk_id is None:
        raise TokenizerError(f"{vocabulary.where}: has no unknown token, which a SentencePiece model needs")
    data = b"".join(_field(1, piece) for piece in _pieces(vocabulary))
    data += _field(2, _trainer(vocabulary)) + _field(3, _normalizer(vocabulary))
    with new_file(path, len(data)) as file:
        file.write(data)


def _pieces(vocabulary: Vocabulary) -> list[bytes]:
    """User-defined tokens have spaces as they are; SentencePiece finds no piece that does."""
    texts, types = token_texts(vocabulary), vocabulary.types
    for token in vocabulary.added:
        if types[token.token_id] == USER_DEFINED:
            texts[token.token_id] = texts[token.token_id].replace(" ", SPACE_MARK)
    rows = zip(texts, scores_of(vocabulary), types, strict=True)
    return [_field(1, text.encode()) + _float(2, score) + _int(3, kind) for text, score, kind in rows]


def _trainer(vocabulary: Vocabulary) -> bytes:
    ids = ((40, vocabulary.unk_id), (41, vocabulary.bos_id), (42, vocabulary.eos_id), (43, vocabulary.pad_id))
    return (
        _int(3, _BPE)
        + _int(4, vocabulary.n_tokens)
        + _int(35, has_byte_tokens(vocabulary))
        + b"".join(_int(number, -1 if token_id is None else token_id) for number, token_id in ids)
    )


def _normalizer(vocabulary: Vocabulary) -> bytes:
    """No normalization: spaces become U+2581, and one is put before the text where the vocabulary wants that."""
    return _field(1, b"identity") + _int(3, vocabulary.space_first) + _int(4, 0) + _int(5, 1)


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _int(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def _float(number: int, value: float) -> bytes:
    return _tag(number, _FIXED32) + struct.pack("<f", value)


def _field(number: int, data: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
