"""Reads GGUF models, one file or a set of split files. Owns tensors and key-values; does not know what they mean."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import DAMAGED, Weight, bad_file, shown
from gristmill.formats.gguf_header import GgufHeader, TensorInfo, read_header
from gristmill.formats.gguf_types import ggml_type_id
from gristmill.formats.mapped import MappedFile, release_weight
from gristmill.formats.qtypes import QType

_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
_SPLIT_REMEDY = "keep all parts of a split model in one folder under the names that llama-gguf-split gave them"


class GgufCheckpoint:
    """A GGUF model. A split one opens from any of its parts; its key-values are those of the first part.

    metadata values: int, float, bool, str (bytes that are not UTF-8 become U+FFFD), a read-only numpy array (uint8
    where the file says bool; may be unaligned), or ByteStrings. A file that holds a vocabulary alone has no names.

    NVFP4 `X.weight` may have an `X.scale`, which its numbers are multiplied by and which is part of it here. Its
    `X.input_scale` is for who rounds activations to four bits as well, which no backend does: it has no name.
    """

    format = "gguf"

    def __init__(self, path: Path) -> None:
        self.path = path
        parts = _open_parts(path)
        self.metadata: Mapping[str, Any] = parts[0][1].metadata
        self._files = [file for file, _ in parts]
        self._tensors: dict[str, tuple[MappedFile, TensorInfo]] = {}
        for file, header in parts:
            for name, info in header.tensors.items():
                if name in self._tensors:
                    other = self._tensors[name][0].path.name
                    raise bad_file(file.path, f"tensor {shown(name)}", f"is also in {shown(other)}", _SPLIT_REMEDY)
                self._tensors[name] = (file, info)
        n_tensors = len(self._tensors)
        expected = self.metadata.get("split.tensors.count", n_tensors)
        self._scales = self._take_scales()
        if len(parts) > 1 and not _is(expected, n_tensors):
            problem = f"is {shown(expected)}, the parts hold {n_tensors} tensors"
            raise bad_file(parts[0][0].path, "key 'split.tensors.count'", problem, _SPLIT_REMEDY)

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def get(self, name: str) -> Weight:
        """The tensor `name`. KeyError when there is none, ModelFormatError when its type is not one of QType's."""
        file, info = self._tensors[name]
        qtype = info.type.qtype
        if qtype is None:
            readable = ", ".join(q.label for q in QType if ggml_type_id(q) is not None)
            problem = f"has type {info.type.label}, which gristmill does not compute"
            raise bad_file(file.path, f"tensor {shown(name)}", problem, f"use a file with {readable}")
        scales = self._row_scales(name, info.shape) if qtype is QType.NVFP4 else None
        return Weight(name, file.view(info.offset, info.n_bytes, qtype.alignment), qtype, info.shape, scales)

    def _take_scales(self) -> dict[str, tuple[MappedFile, TensorInfo]]:
        """What NVFP4 tensors are multiplied by, by their names; it and what belongs to activations lose their own."""
        scales = {}
        for name in [name for name, (_, info) in self._tensors.items() if info.type.qtype is QType.NVFP4]:
            stem = name.removesuffix(".weight")
            self._tensors.pop(f"{stem}.input_scale", None)
            if scale := self._tensors.pop(f"{stem}.scale", None):
                scales[name] = scale
        return scales

    def _row_scales(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """float32, one for each row: of all rows of a matrix the same."""
        n_matrices, n_rows = math.prod(shape[:-2]), shape[-2] if len(shape) > 1 else 1
        if name not in self._scales:
            return np.ones(n_matrices * n_rows, np.float32)
        file, info = self._scales[name]
        if info.type.qtype is not QType.F32 or info.shape != (n_matrices,):
            problem = (
                f"is {info.type.label} {info.shape}, which must be f32 {(n_matrices,)}: one number for each matrix"
            )
            raise bad_file(file.path, f"tensor {shown(info.name)}", problem, DAMAGED)
        values = file.view(info.offset, info.n_bytes, 4).view("<f4")
        if not np.isfinite(values).all():
            raise bad_file(file.path, f"tensor {shown(info.name)}", "holds a number that is not finite", DAMAGED)
        return np.repeat(values, n_rows).astype(np.float32)

    def release(self, weight: Weight) -> None:
        release_weight(self._files, weight)

    def release_all(self) -> None:
        for file in self._files:
            file.release_all()


def _open_parts(path: Path) -> list[tuple[MappedFile, GgufHeader]]:
    file = MappedFile(path)
    header = read_header(file)
    count = header.metadata.get("split.count", 1)
    if type(count) is not int or count < 0:
        raise bad_file(path, "key 'split.count'", f"is {shown(count)}, must be a positive integer")
    if count <= 1:
        return [(file, header)]
    parts = []
    for number, part in enumerate(_part_paths(path, count)):
        opened = (file, header) if part == path else _open_one(part)
        _check_part(opened[0].path, opened[1].metadata, number, count)
        parts.append(opened)
    return parts


def _open_one(path: Path) -> tuple[MappedFile, GgufHeader]:
    file = MappedFile(path)
    return file, read_header(file)


def _part_paths(path: Path, count: int) -> list[Path]:
    """The files of a split model beside `path`; all must be there."""
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        problem = f"is {shown(path.name)}, a part of {count} is named like model-00001-of-{count:05}.gguf"
        raise bad_file(path, "file name", problem, _SPLIT_REMEDY)
    paths = []
    for number in range(1, count + 1):
        part = path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf")
        if not part.is_file():
            raise bad_file(path, f"part {number} of {count}", f"{shown(part.name)} is missing", _SPLIT_REMEDY)
        paths.append(part)
    return paths


def _is(value: Any, expected: int) -> bool:
    """An array of numbers is none."""
    return type(value) is int and value == expected


def _check_part(path: Path, metadata: Mapping[str, Any], number: int, count: int) -> None:
    for key, expected in (("split.no", number), ("split.count", count)):
        value = metadata.get(key)
        if not _is(value, expected):
            raise bad_file(path, f"key {key!r}", f"is {shown(value)}, its name asks for {expected}", _SPLIT_REMEDY)
