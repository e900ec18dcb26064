"""Encodes float32 as Q8_0, with ggml's rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.qtypes import QType

_BLOCK_SIZE = QType.Q8_0.block_size
_LARGEST = 65504.0 * 127  # the scale is a float16


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
