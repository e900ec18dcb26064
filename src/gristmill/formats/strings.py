"""Many strings as one buffer and their offsets, so that a vocabulary of 200,000 tokens costs no Python object each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

PREFIX_BYTES = 8


class ByteStrings(Sequence[bytes]):
    """An immutable sequence of byte strings (any bytes, often but not always UTF-8), backed by a file's own bytes."""

    __slots__ = ("_buffer", "_starts")

    def __init__(self, buffer: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        """buffer uint8; starts int64 [n + 1]: string i is buffer[starts[i] : starts[i + 1] - 8], as GGUF lays them."""
        self._buffer = buffer
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return self._buffer[self._starts[i] : self._starts[i + 1] - PREFIX_BYTES].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.tolist())

    def __repr__(self) -> str:
        return f"ByteStrings({len(self)})"

    def tolist(self) -> list[bytes]:
        """All strings as Python bytes."""
        if not len(self):
            return []
        first = int(self._starts[0])
        block = self._buffer[first : self._starts[-1]].tobytes()
        offsets = (self._starts - first).tolist()
        return [block[a : b - PREFIX_BYTES] for a, b in pairwise(offsets)]

    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """(buffer uint8, starts int64 [n], ends int64 [n]) with string i = buffer[starts[i]:ends[i]]."""
        return self._buffer, self._starts[:-1], self._starts[1:] - PREFIX_BYTES
