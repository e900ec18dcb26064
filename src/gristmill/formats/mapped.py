"""A file in memory without reading it: bounds-checked, aligned views of a read-only map. Knows no format."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight, bad_file, shown_path


class _Map(mmap.mmap):
    """A map with its file's name, a descriptor, which is closed with it, and the address of its first byte."""

    path: Path
    descriptor: int
    address: int


class MappedFile:
    """A regular file mapped read-only. Its views keep the map alive; it goes when the last one does."""

    __slots__ = ("_bytes", "_map", "path", "size")

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise bad_file(path, "file", "is missing or not a regular file")
        with path.open("rb") as file:
            self.size = file.seek(0, 2)
            if self.size == 0:
                raise bad_file(path, "file", "is empty (0 bytes)")
            self._map = _Map(file.fileno(), self.size, access=mmap.ACCESS_READ)
            self._map.descriptor = os.dup(file.fileno())
        weakref.finalize(self._map, os.close, self._map.descriptor)
        self.path = self._map.path = path
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._map.address = _address(self._bytes)

    @property
    def buffer(self) -> mmap.mmap:
        """The whole file, for `struct` and `bytes` reads."""
        return self._map

    def view(self, offset: int, n_bytes: int, alignment: int = 1) -> NDArray[np.uint8]:
        """uint8 [n_bytes] from `offset`, read-only; a copy only where the file's own offset is not aligned."""
        assert 0 <= offset <= offset + n_bytes <= self.size, "the reader has not checked its bounds"
        data = self._bytes[offset : offset + n_bytes]
        if offset % alignment == 0:
            return data
        copy = data.copy()
        self.release(data)
        copy.flags.writeable = False
        return copy

    def release(self, data: NDArray[np.generic]) -> None:
        """Drop the pages that hold `data` from this process when it is a view of this file; they stay readable."""
        start = _address(data) - self._map.address
        stop = start + data.nbytes
        if 0 <= start < stop <= self.size:
            self._release(start // mmap.PAGESIZE * mmap.PAGESIZE, stop)

    def release_all(self) -> None:
        """The same of all pages."""
        self._release(0, self.size)

    def _release(self, start: int, stop: int) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)


def place_of(data: NDArray[np.generic]) -> tuple[str, int, int] | None:
    """Where bytes that are a view, without gaps, of a file's read-only map can be read as well: its name as errors may
    show it, a descriptor, open as long as the map, and the place of their first one in it. None for all others."""
    if not data.flags.c_contiguous:
        return None
    base: object = data
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, memoryview) or not isinstance(base.obj, _Map):
        return None
    return shown_path(base.obj.path), base.obj.descriptor, _address(data) - base.obj.address


def release_weight(files: Iterable[MappedFile], weight: Weight) -> None:
    """Drop the pages behind `weight` (under any name, rows in any order) wherever they lie in `files`."""
    for file in files:
        file.release(weight.data)
        if weight.scales is not None:
            file.release(weight.scales)


def _address(data: NDArray[np.generic]) -> int:
    return int(data.__array_interface__["data"][0])
