"""SentencePiece's `tokenizer.model`: the protobuf read by hand. Schema: github.com/google/sentencepiece,
src/sentencepiece_model.proto; wire format: protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.kinds import AFTER_SPACING, SPECIAL
from gristmill.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE_MARK,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    AddedToken,
    Vocabulary,
    as_text,
)

_MAX_FILE_BYTES = 64 << 20
_BPE = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _MalformedError(Exception):
    """The bytes are no protobuf message of this schema."""


@dataclass(slots=True)
class _Model:
    texts: list[bytes] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: bytearray = field(default_factory=bytearray)
    trainer: dict[int, int | bytes] = field(default_factory=dict)
    normalizer: dict[int, int | bytes] = field(default_factory=dict)

    def trainer_int(self, number: int, default: int) -> int:
        """A signed field of the trainer's specification."""
        value = self.trainer.get(number, default)
        if isinstance(value, bytes):
            raise _MalformedError
        return value - (1 << 64) if value >= 1 << 63 else value

    def asks(self, number: int, default: bool) -> bool:
        """A bool of the normalizer's specification."""
        return bool(self.normalizer.get(number, default))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _MalformedError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of one message; fixed32 and bytes come as bytes."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            size, at = _read_varint(data, at)
        if size is None or size > len(data) - at:
            raise _MalformedError
        yield tag >> 3, data[at : at + size]
        at += size


def _read_piece(data: bytes, model: _Model) -> None:
    text, score, piece_type = b"", 0.0, NORMAL
    for number, value in _read_fields(data):
        if number == 1 and isinstance(value, bytes):
            text = value
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            score = struct.unpack("<f", value)[0]
        elif number == 3 and isinstance(value, int) and NORMAL <= value <= BYTE:
            piece_type = value
        elif number in (1, 2, 3):
            raise _MalformedError
    model.texts.append(text)
    model.scores.append(score)
    model.types.append(piece_type)


def _read_model(data: bytes) -> _Model:
    model = _Model()
    for number, value in _read_fields(data):
        if number in (1, 2, 3) and not isinstance(value, bytes):
            raise _MalformedError
        if number == 1 and isinstance(value, bytes):
            _read_piece(value, model)
        elif number == 2 and isinstance(value, bytes):
            model.trainer = dict(_read_fields(value))
        elif number == 3 and isinstance(value, bytes):
            model.normalizer = dict(_read_fields(value))
    return model


def _refuse_unsupported(model: _Model, path: Path) -> None:
    """What changes the ids and is not implemented is refused by name."""
    if model.trainer_int(3, 1) != _BPE:
        raise TokenizerError(f"{path}: trainer_spec.model_type is {model.trainer_int(3, 1)}; supported is 2 (BPE)")
    if UNUSED in model.types:
        raise TokenizerError(f"{path}: piece {model.types.index(UNUSED)} is of the type unused, which is not supported")
    if model.trainer_int(24, 0):
        raise TokenizerError(f"{path}: trainer_spec.treat_whitespace_as_suffix is not supported")
    if model.normalizer.get(2):
        raise TokenizerError(f"{path}: normalizer_spec has a character map; supported is the identity")
    if model.asks(4, True):
        raise TokenizerError(f"{path}: normalizer_spec.remove_extra_whitespaces is not supported")
    if not model.asks(5, True):
        raise TokenizerError(f"{path}: normalizer_spec.escape_whitespaces = false is not supported")


def _tokens(model: _Model) -> list[bytes]:
    """Pieces by id. User-defined ones have spaces for U+2581, as in GGUF: they are decoded as they are spelt. One that
    had a space before is found in no text, where every space is U+2581."""
    return [
        text.replace(SPACE_MARK.encode(), b" ") if kind == USER_DEFINED else text
        for text, kind in zip(model.texts, model.types, strict=True)
    ]


def load_sentencepiece(path: Path, *, adds_bos: bool = True, adds_eos: bool = False) -> CodecTokenizer:
    """The tokenizer of a SentencePiece BPE model."""
    return make_tokenizer(read_sentencepiece(path, adds_bos=adds_bos, adds_eos=adds_eos))


def read_sentencepiece(path: Path, *, adds_bos: bool = True, adds_eos: bool = False) -> Vocabulary:
    """The vocabulary of a SentencePiece BPE model. The file does not say whether texts start with BOS; Llama's do."""
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise TokenizerError(f"{path}: has more than {_MAX_FILE_BYTES} bytes; this is no vocabulary")
    try:
        model = _read_model(path.read_bytes())
        ids = [model.trainer_int(number, default) for number, default in ((40, 0), (41, 1), (42, 2), (43, -1))]
        _refuse_unsupported(model, path)
    except _MalformedError:
        raise TokenizerError(f"{path}: is no SentencePiece model, or is damaged") from None
    n_ids = len(model.texts)
    if any(token_id >= n_ids for token_id in ids[:3]):
        raise TokenizerError(
            f"{path}: trainer_spec has the unk, bos and eos ids {ids[:3]}, but there are {n_ids} pieces"
        )
    unk_id, bos_id, eos_id, pad_id = (token_id if 0 <= token_id < n_ids else None for token_id in ids)
    space_first = model.asks(3, True)
    texts = _tokens(model)
    return Vocabulary(
        "spm",
        texts,
        bytes(model.types),
        str(path),
        "pieces or scores",
        scores=model.scores,
        space_first=space_first,
        space_after_added=space_first,
        strips_first_space=space_first,
        added=tuple(
            AddedToken(as_text(texts[i]), i, AFTER_SPACING if piece_type == USER_DEFINED else SPECIAL)
            for i, piece_type in enumerate(model.types)
            if piece_type in (UNKNOWN, CONTROL) or (piece_type == USER_DEFINED and b" " not in model.texts[i])
        ),
        bos_id=bos_id,
        unk_id=unk_id,
        pad_id=pad_id,
        named_end_ids=() if eos_id is None else (eos_id,),
        prefix_ids=(bos_id,) if adds_bos and bos_id is not None else (),
        suffix_ids=(eos_id,) if adds_eos and eos_id is not None else (),
    )
