"""Kernels that are interpreted read and write nothing but their tensors: elsewhere lies what Python has, or what else a
card holds, and a slip would show as anything, much later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


class Bounds:
    """Triton's loads and stores, each looked at before it is done."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.begins = np.zeros(1, np.int64)
        self.ends = np.zeros(1, np.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, pointers: NDArray[Any], mask: NDArray[Any], other: NDArray[Any], dtype: Any) -> Any:
        self._check(pointers, mask, np.dtype(dtype).itemsize)
        return self._memory.load(pointers, mask, other, dtype)

    def store(self, pointers: NDArray[Any], values: NDArray[Any], mask: NDArray[Any]) -> Any:
        self._check(pointers, mask, values.dtype.itemsize)
        return self._memory.store(pointers, values, mask)

    def look_at(self, arguments: Any) -> None:
        """Of a launch. Empty tensors have no memory."""
        tensors = [getattr(a, "base", a) for a in arguments]  # a descriptor's too
        storages = [a.untyped_storage() for a in tensors if hasattr(a, "untyped_storage")]
        places = sorted({(s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages if s.nbytes()})
        self.begins, self.ends = (np.array([0, *ends], np.int64) for ends in zip(*places, strict=True))

    def _check(self, pointers: NDArray[Any], mask: NDArray[Any], n_bytes: int) -> None:
        used = np.asarray(pointers)[np.asarray(mask).astype(bool)].astype(np.int64)
        after = self.ends[np.searchsorted(self.begins, used, side="right") - 1]
        assert (used + n_bytes <= after).all(), "a kernel reads or writes beside its tensors"


@pytest.fixture(autouse=True)
def within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    bounds, launch = Bounds(interpreter._interpreter), interpreter.GridExecutor.__call__

    def launched(self: Any, *args: Any, **given: Any) -> Any:
        bounds.look_at([*args, *given.values()])
        return launch(self, *args, **given)

    monkeypatch.setattr(interpreter, "_interpreter", bounds)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launched)
