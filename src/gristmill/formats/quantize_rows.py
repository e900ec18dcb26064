"""Tensors of a file in another number type, a stretch of rows at a time: natively, on several threads.

Which type a tensor should have is not known here (see write_types.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _kernels
from gristmill.formats.checkpoint import Weight, shown
from gristmill.formats.qtypes import QType

_Bytes = NDArray[np.uint8]
_CHUNK_NUMBERS = 4 << 20  # what is in memory at once: 16 MiB where they are float32


class RowQuantizer:
    """n_threads threads that turn rows into other types. Not for use by several threads at once."""

    def __init__(self, n_threads: int, isa: str | None = None) -> None:
        self._native = _kernels.Ops(n_threads, isa or os.environ.get("GRISTMILL_ISA") or "auto")

    def encode(self, weight: Weight, qtype: QType, done: Callable[[Weight], None] | None = None) -> Iterator[_Bytes]:
        """The bytes of `weight` as `qtype`, rows in their logical order; verbatim where it is of that type already.

        done  is told of each stretch of stored rows that is not needed any more, as a Weight that views it
        ValueError names the tensor whose numbers are not finite or too large for `qtype`, or whose rows do not fit it.
        """
        for chunk, _ in self._chunks(weight, qtype, 0, done):
            yield chunk

    def encode_groups(self, weight: Weight, group: int, done: Callable[[Weight], None] | None = None) -> Iterator[Any]:
        """The same as Q8_GROUPS of `group` numbers: all the int8, then the scales as one float32 array."""
        if weight.qtype is QType.Q8_GROUPS and weight.row_order is None:
            assert weight.scales is not None
            if weight.scales.size * group == weight.n_elements:
                yield weight.data
                yield weight.scales
                if done:
                    done(weight)
                return
        scales = []
        for chunk, of_chunk in self._chunks(weight, QType.Q8_GROUPS, group, done):
            yield chunk
            scales.append(of_chunk.copy())
        yield np.concatenate(scales)

    def _chunks(
        self, weight: Weight, qtype: QType, group: int, done: Callable[[Weight], None] | None
    ) -> Iterator[tuple[_Bytes, NDArray[np.float32]]]:
        cols = weight.shape[-1]
        if cols % qtype.block_size:
            raise ValueError(
                f"tensor {shown(weight.name)} has rows of {cols} numbers, {qtype.label} needs whole blocks"
            )
        rows = _stored_rows(weight)
        row_bytes = cols // weight.qtype.block_size * weight.qtype.block_bytes
        verbatim = weight.qtype is qtype and not qtype.scales_apart
        stored = weight.data.reshape(-1, row_bytes)
        a_time = max(1, _CHUNK_NUMBERS // cols)
        for start in range(0, len(rows), a_time):
            taken = rows[start : start + a_time]
            first, last = int(taken.min()), int(taken.max()) + 1
            if verbatim:
                in_order = last - first == len(taken) and bool((np.diff(taken) == 1).all())
                yield (stored[first:last] if in_order else stored[taken]).reshape(-1), np.empty(0, np.float32)
            else:
                data, scales, bad = _kernels.quantize_rows(
                    self._native, weight.qtype.label, weight.data, cols, taken, qtype.label, weight.scales, group
                )
                if bad >= 0:
                    problem = f"row {start + bad} holds numbers that are not finite or too large for {qtype.label}"
                    raise ValueError(f"tensor {shown(weight.name)}: {problem}: give another --type (bf16, f32)")
                yield data, scales
            if done:
                done(replace(weight, data=stored[first:last].reshape(-1), scales=None))


def _stored_rows(weight: Weight) -> NDArray[np.int64]:
    """For each logical row, flattened over the outer dimensions, which stored row it is."""
    rows = math.prod(weight.shape[:-1])
    if weight.row_order is None:
        return np.arange(rows, dtype=np.int64)
    assert len(weight.shape) > 1, "the elements of a vector have no order of rows"
    n_outer = math.prod(weight.shape[:-2])
    elements = len(weight.data) // weight.qtype.block_bytes * weight.qtype.block_size
    n_stored = elements // weight.shape[-1] // n_outer
    return (np.arange(n_outer)[:, None] * n_stored + weight.row_order).reshape(-1).astype(np.int64)
