"""Parses the front of one GGUF file: key-values and tensor descriptions. Every count and offset is checked before use.

Format: ggml's docs/gguf.md, versions 2 and 3, little-endian. Limits are stated below; the file is taken for hostile.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill._kernels import find_strings
from gristmill.formats.checkpoint import DAMAGED, ModelFormatError, bad_file, shown
from gristmill.formats.gguf_types import GgmlType, ggml_type
from gristmill.formats.mapped import MappedFile
from gristmill.formats.strings import PREFIX_BYTES, ByteStrings

MAGIC = b"GGUF"
MAX_STRING_BYTES = 16 << 20
MAX_NAME_BYTES = 1 << 16
MAX_TEXT_BYTES = 32 << 20  # of all keys, names and strings outside arrays together: a file may be sparse, memory is not
MAX_ARRAY = 64 << 20
MAX_STRINGS = 2 << 20  # in all string arrays together; the largest vocabularies have 0.3 M tokens and 0.6 M merges
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_DIMS = 4

_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {  # value type: (struct code, numpy dtype)
    0: ("<B", "u1"),
    1: ("<b", "i1"),
    2: ("<H", "<u2"),
    3: ("<h", "<i2"),
    4: ("<I", "<u4"),
    5: ("<i", "<i4"),
    6: ("<f", "<f4"),
    _BOOL: ("<B", "u1"),
    10: ("<Q", "<u8"),
    11: ("<q", "<i8"),
    12: ("<d", "<f8"),
}
_MIN_KEY_BYTES = 8 + 1 + 4 + 1  # key length, key, value type, value
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8  # name length, name, n_dims, type, offset


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: shape outermost first (the reverse of GGUF's order), offset from the start of the file."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """metadata values: int, float, bool, str, ByteStrings, or a read-only numpy array (uint8 for arrays of bool)."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def read_header(file: MappedFile) -> GgufHeader:
    """The header of one file. Raises ModelFormatError on anything but a sound GGUF v2 or v3."""
    cursor = _Cursor(file)
    if file.buffer[:4] != MAGIC:
        raise bad_file(file.path, "magic", f"is {shown(file.buffer[:4])}, not {MAGIC!r}", "give a GGUF file")
    cursor.position = 4
    _check_version(cursor)
    n_tensors = cursor.number("<Q", "tensor count")
    n_keys = cursor.number("<Q", "key count")
    cursor.check_count("key count", n_keys, _MIN_KEY_BYTES, MAX_KEYS)
    cursor.check_count("tensor count", n_tensors, _MIN_TENSOR_BYTES, MAX_TENSORS)
    metadata = _read_metadata(cursor, n_keys)
    alignment = _alignment(cursor, metadata)
    infos = _read_tensors(cursor, n_tensors, alignment)
    data_start = -(-cursor.position // alignment) * alignment
    return GgufHeader(metadata, _place(file, infos, data_start))


class _Cursor:
    """A position in the file that never passes its end."""

    __slots__ = ("end", "file", "n_strings", "n_text_bytes", "position")

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.position = 0
        self.end = file.size
        self.n_strings = 0
        self.n_text_bytes = 0

    def fail(self, where: str, problem: str, remedy: str = DAMAGED) -> ModelFormatError:
        return bad_file(self.file.path, where, problem, remedy)

    def need(self, n_bytes: int, where: str) -> int:
        """Step over n_bytes that must be there; where they begin."""
        start = self.position
        if n_bytes > self.end - start:
            raise self.fail(where, f"needs {n_bytes} bytes at {start}, the file ends at {self.end}")
        self.position = start + n_bytes
        return start

    def number(self, code: str, where: str) -> Any:
        return struct.unpack_from(code, self.file.buffer, self.need(struct.calcsize(code), where))[0]

    def check_count(self, where: str, count: int, min_bytes: int, limit: int) -> None:
        left = self.end - self.position
        if count > limit or count * min_bytes > left:
            most = min(limit, left // min_bytes)
            raise self.fail(where, f"is {count}, at most {most} are possible with {left} bytes left")

    def skip_string(self, where: str, limit: int = MAX_STRING_BYTES) -> int:
        """Step over a string's length and bytes; how many bytes."""
        length = int(self.number("<Q", f"length of {where}"))
        if length > limit:
            raise self.fail(where, f"is {length} bytes long, the limit is {limit}")
        self.need(length, where)
        return length

    def string(self, where: str, limit: int = MAX_STRING_BYTES) -> bytes:
        length = self.skip_string(where, limit)
        self.n_text_bytes += length
        if self.n_text_bytes > MAX_TEXT_BYTES:
            raise self.fail(where, f"brings all text to {self.n_text_bytes} bytes, the limit is {MAX_TEXT_BYTES}")
        return self.file.buffer[self.position - length : self.position]

    def name(self, where: str) -> str:
        raw = self.string(where, MAX_NAME_BYTES)
        if not raw:
            raise self.fail(where, "is empty")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.fail(where, f"is {shown(raw)}, which is not UTF-8") from None


def _check_version(cursor: _Cursor) -> None:
    version = cursor.number("<I", "version")
    if version in (2, 3):
        return
    if version and version % (1 << 16) == 0:
        raise cursor.fail(
            "version",
            f"{version >> 24} is stored big-endian",
            "convert it to little-endian with llama.cpp's gguf_convert_endian.py",
        )
    raise cursor.fail("version", f"is {version}, gristmill reads 2 and 3", "convert it again with a current llama.cpp")


def _read_metadata(cursor: _Cursor, n_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(n_keys):
        key = cursor.name(f"key {i}")
        where = f"key {shown(key)}"
        if key in metadata:
            raise cursor.fail(where, "appears twice")
        metadata[key] = _read_value(cursor, where)
    return metadata


def _read_value(cursor: _Cursor, where: str) -> Any:
    value_type = cursor.number("<I", f"type of {where}")
    if value_type == _STRING:
        return cursor.string(where).decode(errors="replace")
    if value_type == _ARRAY:
        return _read_array(cursor, where)
    if value_type not in _NUMBERS:
        raise cursor.fail(where, f"has the unknown value type {value_type}")
    value = cursor.number(_NUMBERS[value_type][0], where)
    if value_type != _BOOL:
        return value
    if value > 1:
        raise cursor.fail(where, f"is a bool with the value {value}, must be 0 or 1")
    return value == 1


def _read_array(cursor: _Cursor, where: str) -> Any:
    value_type = cursor.number("<I", f"element type of {where}")
    count = cursor.number("<Q", f"length of {where}")
    if value_type == _ARRAY:
        raise cursor.fail(where, "is an array of arrays, which no reader supports")
    if value_type == _STRING:
        cursor.check_count(f"length of {where}", count, PREFIX_BYTES, MAX_STRINGS - cursor.n_strings)
        cursor.n_strings += count
        return _read_strings(cursor, count, where)
    if value_type not in _NUMBERS:
        raise cursor.fail(where, f"has the unknown element type {value_type}")
    dtype = np.dtype(_NUMBERS[value_type][1])
    cursor.check_count(f"length of {where}", count, dtype.itemsize, MAX_ARRAY)
    start = cursor.need(count * dtype.itemsize, where)
    return cursor.file.view(start, count * dtype.itemsize).view(dtype)


def _read_strings(cursor: _Cursor, count: int, where: str) -> ByteStrings:
    """`count` strings from the cursor on, which hostile files have two million of."""
    file = cursor.file.view(0, cursor.end)
    starts = np.empty(count + 1, dtype=np.int64)
    n_sound = find_strings(file, cursor.position, MAX_STRING_BYTES, starts)
    cursor.position = int(starts[n_sound]) - PREFIX_BYTES
    if n_sound < count:
        cursor.skip_string(f"element {n_sound} of {where}")  # says what is wrong
    return ByteStrings(file, starts)


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise cursor.fail("key 'general.alignment'", f"is {shown(alignment)}, must be a power of two")
    return alignment


def _read_tensors(cursor: _Cursor, n_tensors: int, alignment: int) -> dict[str, TensorInfo]:
    infos: dict[str, TensorInfo] = {}
    for i in range(n_tensors):
        name = cursor.name(f"name of tensor {i}")
        where = f"tensor {shown(name)}"
        if name in infos:
            raise cursor.fail(where, "appears twice")
        infos[name] = _read_tensor(cursor, name, where)
        if infos[name].offset % alignment:
            raise cursor.fail(where, f"has offset {infos[name].offset}, which is no multiple of {alignment}")
    return infos


def _read_tensor(cursor: _Cursor, name: str, where: str) -> TensorInfo:
    n_dims = cursor.number("<I", f"n_dims of {where}")
    if n_dims > MAX_DIMS:
        raise cursor.fail(where, f"has {n_dims} dimensions, at most {MAX_DIMS} are possible")
    dims = tuple(cursor.number("<Q", f"dimension {d} of {where}") for d in range(n_dims))
    type_id = cursor.number("<I", f"type of {where}")
    offset = cursor.number("<Q", f"offset of {where}")
    kind = ggml_type(type_id)
    if kind is None:
        raise cursor.fail(where, f"has the unknown type {type_id}", "gristmill may be older than the file")
    if 0 in dims:
        raise cursor.fail(where, f"has dimensions {list(dims)}, none may be 0")
    n_elements = math.prod(dims)
    if (dims[0] if dims else 1) % kind.block_size:
        raise cursor.fail(where, f"has rows of {dims[:1]} numbers, {kind.label} needs a multiple of {kind.block_size}")
    return TensorInfo(name, kind, dims[::-1], offset, n_elements // kind.block_size * kind.block_bytes)


def _place(file: MappedFile, infos: dict[str, TensorInfo], data_start: int) -> dict[str, TensorInfo]:
    """The tensors by offset in the file, each inside it and none over another."""
    placed: dict[str, TensorInfo] = {}
    end, before = data_start, ""
    for info in sorted(infos.values(), key=lambda info: info.offset):
        offset = data_start + info.offset
        where = f"tensor {shown(info.name)}"
        if offset + info.n_bytes > file.size:
            problem = f"takes bytes {offset} to {offset + info.n_bytes}, the file ends at {file.size}"
            raise bad_file(file.path, where, problem)
        if offset < end:
            raise bad_file(file.path, where, f"begins at byte {offset}, inside tensor {shown(before)}")
        end, before = offset + info.n_bytes, info.name
        placed[info.name] = TensorInfo(info.name, info.type, info.shape, offset, info.n_bytes)
    return {name: placed[name] for name in infos}
