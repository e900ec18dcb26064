"""What it means to quantize: float weights as Q8_0 or as int8 with a scale for each row, and which of them may be.

Backends do the same while they load, faster; numpy is the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType

QUANTIZE_CHOICES = ("none", "int8", "q8_0")
_NOT_YET = ("q4_0", "mxfp4")
_BLOCK_SIZE = QType.Q8_0.block_size
_LARGEST = 65504.0 * 127  # the scale is a float16


def quantize_type(name: str | None) -> QType | None:
    """What to quantize dense weights to at load: None for None and 'none'. ValueError for what is not a choice."""
    if name is None or name == "none":
        return None
    if name not in QUANTIZE_CHOICES:
        problem = "which is not there yet" if name in _NOT_YET else "which is no type that weights are quantized to"
        raise ValueError(f"quantize is {name!r}, {problem}; use one of {', '.join(QUANTIZE_CHOICES)}")
    return QType.INT8_ROWS if name == "int8" else QType.Q8_0


def quantize_at_load(weight: Weight, target: QType) -> Weight:
    """`weight` to be kept as `target` (INT8_ROWS or Q8_0) by a backend. The same weight where that is not possible: it
    is quantized already, or its rows are not a multiple of 32 long."""
    if not weight.qtype.is_float or weight.shape[-1] % _BLOCK_SIZE:
        return weight
    return replace(weight, quantize_to=target)


def quantize(weight: Weight) -> Weight:
    """`weight` as its `quantize_to` says, rows in their logical order; itself where that is None."""
    if weight.quantize_to is None:
        return weight
    values = dequantize(weight)
    if weight.quantize_to is QType.Q8_0:
        return Weight(weight.name, quantize_q8_0(values), QType.Q8_0, weight.shape)
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


def quantize_q8_0(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """float32 [..., cols], cols a multiple of 32, as Q8_0 blocks: uint8 [n_bytes], bit for bit as ggml writes them.

    A block is a float16 scale max|x| / 127 and 32 int8, rounded half away from zero (quantize_row_q8_0_ref of
    ggml-quants.c). Raises ValueError for other shapes and for numbers that no scale can hold.
    """
    if x.ndim == 0 or x.shape[-1] % _BLOCK_SIZE:
        raise ValueError(f"quantize_q8_0: x has shape {x.shape}; its rows must be a multiple of {_BLOCK_SIZE} long")
    blocks = np.asarray(x, dtype=np.float32).reshape(-1, _BLOCK_SIZE)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    if not (largest <= _LARGEST).all():
        raise ValueError(f"quantize_q8_0: x holds {largest.max()}; numbers must be finite and within {_LARGEST:.0f}")
    scale = largest / np.float32(127)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1 / scale
    inverse[~np.isfinite(inverse)] = 0  # all zeros, or so small that the float16 scale is zero too
    scaled = blocks * inverse
    whole = np.trunc(scaled)
    codes = whole + np.copysign(np.abs(scaled - whole) >= 0.5, scaled)
    out = np.empty((len(blocks), QType.Q8_0.block_bytes), dtype=np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8)
    out[:, 2:] = codes.astype(np.int8).view(np.uint8)
    return out.reshape(-1)
