"""Writes GGUF, version 3, little-endian. Tensors come from producers one after another, so that memory stays small.

Format: ggml's docs/gguf.md. Which keys a model needs is not known here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gristmill.formats.checkpoint import shown
from gristmill.formats.gguf_header import MAGIC, MAX_DIMS
from gristmill.formats.gguf_types import ggml_type_id
from gristmill.formats.qtypes import QType
from gristmill.formats.strings import ByteStrings
from gristmill.formats.write_file import new_file, write_all

ALIGNMENT = 32
MAX_NAME_BYTES = 63  # ggml keeps names in 64 bytes, the last of them a zero
_VERSION = 3
_STRING, _ARRAY = 8, 9
_TYPES = {
    "uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5, "float32": 6, "bool": 7,
    "uint64": 10, "int64": 11, "float64": 12,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RawValue:
    """A value as another GGUF file holds it: the number of its type, and its bytes."""

    type_id: int
    data: bytes


class NewTensor(NamedTuple):
    """A tensor to write. produce() gives its bytes in order, in pieces of any size; shape outermost first."""

    name: str
    qtype: QType
    shape: tuple[int, ...]
    produce: Callable[[], Iterable[Any]]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) // self.qtype.block_size * self.qtype.block_bytes


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Iterable[NewTensor]) -> int:
    """Write `path` whole or not at all; its size in bytes.

    metadata  bool, str, bytes, float (as float32), int (uint32 where it fits, else the narrowest of int32, uint64,
              int64), numpy scalars (their own type), RawValue; one-dimensional numpy arrays; lists and tuples of one
              of the former
    Raises ValueError for a value or a tensor that GGUF cannot hold, WriteError where the disk cannot.
    """
    tensors = list(tensors)
    header = _header(metadata, tensors)
    data_bytes = sum(_padded(tensor.n_bytes) for tensor in tensors)
    with new_file(path, len(header) + data_bytes) as file:
        write_all(file, header)
        for tensor in tensors:
            n_bytes = sum(write_all(file, piece) for piece in tensor.produce())
            if n_bytes != tensor.n_bytes:
                raise ValueError(f"tensor {shown(tensor.name)}: {n_bytes} bytes were made, {tensor.n_bytes} are needed")
            write_all(file, bytes(_padded(n_bytes) - n_bytes))
    return len(header) + data_bytes


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def _header(metadata: Mapping[str, Any], tensors: Sequence[NewTensor]) -> bytes:
    pieces = [struct.pack("<4sIQQ", MAGIC, _VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        type_id, data = _value(key, value)
        pieces += [_string(key), struct.pack("<I", type_id), data]
    offset = 0
    for tensor in tensors:
        pieces.append(_description(tensor, offset))
        offset += _padded(tensor.n_bytes)
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise ValueError("two tensors have the same name")
    header = b"".join(pieces)
    return header + bytes(_padded(len(header)) - len(header))


def _description(tensor: NewTensor, offset: int) -> bytes:
    where, type_id = f"tensor {shown(tensor.name)}", ggml_type_id(tensor.qtype)
    if len(tensor.name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"{where}: its name is longer than the {MAX_NAME_BYTES} bytes that ggml allows")
    if type_id is None:
        raise ValueError(f"{where}: GGUF has no type {tensor.qtype.label}")
    if not 1 <= len(tensor.shape) <= MAX_DIMS or min(tensor.shape) < 1:
        raise ValueError(f"{where}: shape {tensor.shape} must have 1 to {MAX_DIMS} dimensions, none of them 0")
    if tensor.shape[-1] % tensor.qtype.block_size:
        raise ValueError(f"{where}: rows of {tensor.shape[-1]} numbers are not whole blocks of {tensor.qtype.label}")
    dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
    return _string(tensor.name) + dims + struct.pack("<IQ", type_id, offset)


def _string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any) -> tuple[int, bytes]:
    """(number of the type, bytes) of one value."""
    if isinstance(value, RawValue):
        return value.type_id, value.data
    if isinstance(value, str | bytes):
        return _STRING, _string(value)
    if isinstance(value, ByteStrings | list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1):
        element_type, count, data = _array(key, value)
        return _ARRAY, struct.pack("<IQ", element_type, count) + data
    number = _typed(value)
    if number is None or number.dtype.name not in _TYPES:
        raise ValueError(f"key {shown(key)}: a {type(value).__name__} is nothing that GGUF can hold")
    return _TYPES[number.dtype.name], number.astype(number.dtype.newbyteorder("<")).tobytes()


def _array(key: str, values: Any) -> tuple[int, int, bytes]:
    """(number of the elements' type, how many, their bytes)."""
    if len(values) and all(isinstance(item, str | bytes) for item in values):
        return _STRING, len(values), b"".join(map(_string, values))
    array = values if isinstance(values, np.ndarray) else np.array([_typed(item) for item in values] or [0])
    if not len(values):
        return (_TYPES[array.dtype.name] if isinstance(values, np.ndarray) else _STRING), 0, b""
    if array.dtype.name not in _TYPES or array.ndim != 1:
        raise ValueError(f"key {shown(key)}: its elements are of no type, or of several, that GGUF can hold")
    return _TYPES[array.dtype.name], len(array), array.astype(array.dtype.newbyteorder("<")).tobytes()


def _typed(value: Any) -> Any:
    """A number as the numpy scalar whose type it is to have; None for what is no number."""
    if isinstance(value, np.generic):
        return value
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, float):
        return np.float32(value)
    if isinstance(value, int):
        for kind in (np.uint32, np.int32, np.uint64, np.int64):
            if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
                return kind(value)
    return None
