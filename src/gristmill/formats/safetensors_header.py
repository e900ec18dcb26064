"""Parses the JSON header of one .safetensors file and checks that its tensors tile the file. Reads no number.

Format: github.com/huggingface/safetensors, README "Format" and the checks of its reference implementation.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.formats.checkpoint import DAMAGED, bad_file, refuse_pointer, shown
from gristmill.formats.mapped import MappedFile

MAX_HEADER_BYTES = 16 << 20  # some 90,000 tensors; the format allows 100 MB, which JSON would make gigabytes of
MAX_JSON_COMMAS = 1 << 20  # these two bound the memory and the time that parsing takes
MAX_JSON_CONTAINERS = 1 << 18  # a tensor takes three
MAX_DIMS = 8
MAX_ELEMENTS = 1 << 56  # a size of 0 does not excuse the others: no array library could address them
_LENGTH_BYTES = 8
_POINTER_BYTES = 64  # of one that git leaves, more than enough to tell it by

_DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: dtype by its name in the format, offset from the start of the file."""

    name: str
    file: MappedFile
    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


def looks_like_safetensors(start: bytes) -> bool:
    """Whether a file that begins with these bytes has a safetensors header: a possible length, then `{`."""
    return len(start) > _LENGTH_BYTES and start[8:9] == b"{" and _length(start) <= MAX_HEADER_BYTES


def read_header(file: MappedFile) -> dict[str, StoredTensor]:
    """The tensors of one file by name. Raises ModelFormatError unless they tile its data without gap or overlap."""
    refuse_pointer(file.path, file.buffer[:_POINTER_BYTES])
    if file.size < _LENGTH_BYTES:
        raise bad_file(file.path, "header length", f"needs {_LENGTH_BYTES} bytes, the file has {file.size}")
    length = _length(file.buffer)
    data_start = _LENGTH_BYTES + length
    if length > MAX_HEADER_BYTES or data_start > file.size:
        most = min(MAX_HEADER_BYTES, file.size - _LENGTH_BYTES)
        raise bad_file(file.path, "header length", f"is {length}, at most {most} is possible")
    header = parse_json_object(file.buffer[_LENGTH_BYTES:data_start], file.path, "header")
    notes = header.pop("__metadata__", None)
    if notes is not None and not (isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values())):
        raise bad_file(file.path, "__metadata__", f"is {shown(notes)}, must be an object of strings")
    tensors = {name: _read_tensor(file, name, entry, data_start) for name, entry in header.items()}
    _check_tiling(file, tensors, data_start)
    return tensors


def read_json_file(path: Path, max_bytes: int) -> dict[str, Any]:
    """A JSON object from a file of bounded size."""
    if not path.is_file():
        raise bad_file(path, "file", "is missing or not a regular file")
    n_bytes = path.stat().st_size
    if n_bytes > max_bytes:
        raise bad_file(path, "file size", f"is {n_bytes} bytes, the limit is {max_bytes}")
    return parse_json_object(path.read_bytes(), path, "file")


def parse_json_object(raw: bytes, path: Path, where: str) -> dict[str, Any]:
    """`raw` as a JSON object whose keys are unique. Raises ModelFormatError for anything else."""
    n_containers, n_commas = raw.count(b"{") + raw.count(b"["), raw.count(b",")
    if n_containers > MAX_JSON_CONTAINERS or n_commas > MAX_JSON_COMMAS:
        limits = f"the limits are {MAX_JSON_CONTAINERS} and {MAX_JSON_COMMAS}"
        raise bad_file(path, where, f"is JSON of {n_containers} brackets and {n_commas} commas, {limits}")
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        raise bad_file(path, where, f"has the key {shown(error.args[0])} twice") from None
    except RecursionError:
        raise bad_file(path, where, "is JSON nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are both
        raise bad_file(path, where, f"is not JSON ({shown(str(error))})") from None
    if not isinstance(value, dict):
        raise bad_file(path, where, f"is a JSON {type(value).__name__}, must be an object")
    return value


class _DuplicateKeyError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _DuplicateKeyError(key)
    return result


def _length(start: Any) -> int:
    return int(struct.unpack_from("<Q", start)[0])


def _read_tensor(file: MappedFile, name: str, entry: Any, data_start: int) -> StoredTensor:
    where = f"tensor {shown(name)}"
    if not isinstance(entry, dict):
        raise bad_file(file.path, where, f"is described by {shown(entry)}, must be an object")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        raise bad_file(file.path, where, f"has the unknown dtype {shown(dtype)}", "save it as F32, F16 or BF16")
    shape = _sizes(entry.get("shape"))
    if shape is None or len(shape) > MAX_DIMS or math.prod(n or 1 for n in shape) > MAX_ELEMENTS:
        problem = f"has the shape {shown(entry.get('shape'))}, must be up to {MAX_DIMS} sizes of a possible array"
        raise bad_file(file.path, where, problem)
    span = _sizes(entry.get("data_offsets"))
    if span is None or len(span) != 2 or not span[0] <= span[1] <= file.size - data_start:
        problem = f"has data_offsets {shown(entry.get('data_offsets'))}, the file holds {file.size - data_start} bytes"
        raise bad_file(file.path, where, problem)
    n_bytes = span[1] - span[0]
    if math.prod(shape) * _DTYPE_BITS[dtype] != 8 * n_bytes:
        raise bad_file(file.path, where, f"has shape {shown(shape)} of {dtype}, which does not fit its {n_bytes} bytes")
    return StoredTensor(name, file, dtype, shape, data_start + span[0], n_bytes)


def _sizes(value: Any) -> tuple[int, ...] | None:
    """A JSON list of integers from 0 to 2^63 - 1 as a tuple, None for anything else."""
    if isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value):
        return tuple(value)
    return None


def _check_tiling(file: MappedFile, tensors: dict[str, StoredTensor], data_start: int) -> None:
    end = data_start
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.n_bytes)):
        if tensor.offset != end:
            problem = f"begins at byte {tensor.offset}, the one before ends at {end}: no gap or overlap is allowed"
            raise bad_file(file.path, f"tensor {shown(tensor.name)}", problem)
        end += tensor.n_bytes
    if end != file.size:
        raise bad_file(file.path, "file size", f"is {file.size} bytes, its tensors end at {end}", DAMAGED)
