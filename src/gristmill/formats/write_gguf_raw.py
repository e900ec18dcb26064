"""The key-values of a GGUF file as they stand in it, so that a copy keeps their types and every byte of their texts."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gristmill.formats.gguf_header import read_header
from gristmill.formats.mapped import MappedFile
from gristmill.formats.strings import ByteStrings
from gristmill.formats.write_gguf import RawValue

_START = 4 + 4 + 8 + 8  # magic, version, two counts
_STRING, _ARRAY = 8, 9
_NUMBER_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def raw_values(path: Path) -> dict[str, RawValue]:
    """Every key of a GGUF file, of a split model those of its first part. ModelFormatError where it is unsound."""
    file = MappedFile(_first_part(path))
    position = _START
    values: dict[str, RawValue] = {}
    for key, value in read_header(file).metadata.items():  # in the file's order, all bounds checked
        position += 8 + len(key.encode())
        (type_id,) = struct.unpack_from("<I", file.buffer, position)
        start = position + 4
        position = start + _n_bytes(file, start, type_id, value)
        values[key] = RawValue(type_id, file.buffer[start:position])
    return values


def without_split(values: Mapping[str, RawValue]) -> dict[str, RawValue]:
    """The keys that stay true when a model's parts become one file."""
    return {key: value for key, value in values.items() if not key.startswith("split.")}


def _n_bytes(file: MappedFile, start: int, type_id: int, value: Any) -> int:
    if type_id == _STRING:
        return 8 + int(struct.unpack_from("<Q", file.buffer, start)[0])
    if type_id != _ARRAY:
        return _NUMBER_BYTES[type_id]
    if isinstance(value, ByteStrings):
        ends = value.arrays()[2]
        return int(ends[-1]) - start if len(value) else 12
    return 12 + int(value.nbytes)


def _first_part(path: Path) -> Path:
    return path.with_name(re.sub(r"-[0-9]{5}-of-([0-9]{5}\.gguf)$", r"-00001-of-\1", path.name))
