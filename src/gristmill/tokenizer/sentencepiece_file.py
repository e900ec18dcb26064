"""SentencePiece's `tokenizer.model`: the protobuf read by hand. Schema: github.com/google/sentencepiece,
src/sentencepiece_model.proto; wire format: protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from gristmill._tokenizer import Codec
from gristmill.tokenizer.core import CodecTokenizer, SpecialTokens
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.kinds import AFTER_SPACING, BYTE, LITERAL, SPECIAL, TEXT
from gristmill.tokenizer.special import find_end_ids

_MAX_FILE_BYTES = 64 << 20
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_KINDS = MappingProxyType({_NORMAL: TEXT, _BYTE: BYTE})
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
    text, score, piece_type = b"", 0.0, _NORMAL
    for number, value in _read_fields(data):
        if number == 1 and isinstance(value, bytes):
            text = value
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            score = struct.unpack("<f", value)[0]
        elif number == 3 and isinstance(value, int) and _NORMAL <= value <= _BYTE:
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
    if _UNUSED in model.types:
        raise TokenizerError(
            f"{path}: piece {model.types.index(_UNUSED)} is of the type unused, which is not supported"
        )
    if model.trainer_int(24, 0):
        raise TokenizerError(f"{path}: trainer_spec.treat_whitespace_as_suffix is not supported")
    if model.normalizer.get(2):
        raise TokenizerError(f"{path}: normalizer_spec has a character map; supported is the identity")
    if model.asks(4, True):
        raise TokenizerError(f"{path}: normalizer_spec.remove_extra_whitespaces is not supported")
    if not model.asks(5, True):
        raise TokenizerError(f"{path}: normalizer_spec.escape_whitespaces = false is not supported")


def load_sentencepiece(path: Path, *, adds_bos: bool = True, adds_eos: bool = False) -> CodecTokenizer:
    """The tokenizer of a SentencePiece BPE model. The file does not say whether texts start with BOS; Llama's do."""
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise TokenizerError(f"{path}: has more than {_MAX_FILE_BYTES} bytes; this is no vocabulary")
    try:
        model = _read_model(path.read_bytes())
        ids = [model.trainer_int(number, default) for number, default in ((40, 0), (41, 1), (42, 2))]
        _refuse_unsupported(model, path)
    except _MalformedError:
        raise TokenizerError(f"{path}: is no SentencePiece model, or is damaged") from None
    n_ids = len(model.texts)
    if any(token_id >= n_ids for token_id in ids):
        raise TokenizerError(f"{path}: trainer_spec has the unk, bos and eos ids {ids}, but there are {n_ids} pieces")
    unk_id, bos_id, eos_id = (token_id if token_id >= 0 else None for token_id in ids)
    space_first = model.asks(3, True)
    try:
        codec = Codec.scored(
            model.texts,
            bytes(_KINDS.get(piece_type, LITERAL) for piece_type in model.types),
            model.scores,
            space_first=space_first,
            space_after_phrase=False,
            unknown=-1 if unk_id is None else unk_id,
        )
    except ValueError as error:
        raise TokenizerError(f"{path}: {error}") from None
    special_ids: dict[str, int] = {}
    for token_id, piece_type in enumerate(model.types):
        if piece_type in (_UNKNOWN, _CONTROL, _USER_DEFINED):
            text = model.texts[token_id].decode(errors="replace")
            codec.add_phrase(text, token_id, AFTER_SPACING if piece_type == _USER_DEFINED else SPECIAL)
            if piece_type != _USER_DEFINED:
                special_ids.setdefault(text, token_id)
    special = SpecialTokens(
        bos_id,
        find_end_ids(special_ids, () if eos_id is None else (eos_id,)),
        prefix_ids=(bos_id,) if adds_bos and bos_id is not None else (),
        suffix_ids=(eos_id,) if adds_eos and eos_id is not None else (),
        ids=MappingProxyType(special_ids),
    )
    return CodecTokenizer(codec, special, strips_first_space=space_first)
