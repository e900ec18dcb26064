"""What it means to quantize at load: float weights as int8 with a scale for each row, or as blocks.

Backends do the same while they load, faster; numpy is the definition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_blocks import quantize_blocks


def quantize(weight: Weight) -> Weight:
    """`weight` as its `quantize_to` says, rows in their logical order; itself where that is None."""
    if weight.quantize_to is None:
        return weight
    values = dequantize(weight)
    if weight.quantize_to is not QType.INT8_ROWS:
        return Weight(weight.name, quantize_blocks(weight.quantize_to, values), weight.quantize_to, weight.shape)
    data, scales = quantize_int8_rows(values)
    return Weight(weight.name, data, QType.INT8_ROWS, weight.shape, scales)


def quantize_int8_rows(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """float32 [..., rows, cols] as INT8_ROWS: the int8 as uint8 [n], and float32 scales [n rows].

    A row's scale is max|x| / 127; its numbers are x * (127 / max|x|) in float32, rounded half to even. A row of zeros
    has scale 0; where 127 / max|x| is not finite (max|x| under 4e-37) the row's numbers become 0. ValueError for
    numbers that are not finite.
    """
    rows = np.asarray(x, dtype=np.float32).reshape(-1, x.shape[-1])
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise ValueError("quantize_int8_rows: x holds numbers that are not finite")
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(127) / largest
    inverse[~np.isfinite(inverse)] = 0
    codes = np.rint(rows * inverse).astype(np.int8)
    return codes.view(np.uint8).reshape(-1), (largest / np.float32(127)).reshape(-1)
