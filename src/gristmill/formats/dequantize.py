"""What every encoding means, in numpy: the definition that all kernels are tested against. Speed is not its concern."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats import blocks as plain_blocks
from gristmill.formats import grid_blocks
from gristmill.formats.blocks import decode_split_mxfp4
from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType


def _e4m3() -> NDArray[np.float32]:
    codes = np.arange(128)
    exponent, mantissa = codes >> 3, codes & 7
    values = np.where(exponent == 0, mantissa / 512, (8 + mantissa) * 2.0 ** (exponent - 10))
    values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


E4M3 = _e4m3()
"""float32 [256], what each byte stands for: sign, 4 bits of exponent, 3 of mantissa (OCP's FP8, without infinities)."""
_DECODERS = plain_blocks.DECODERS | grid_blocks.DECODERS
_CHUNK_ELEMENTS = 1 << 21  # bounds the temporaries to tens of MB whatever the tensor's size


def dequantize(weight: Weight) -> NDArray[np.float32]:
    """`weight` as float32 of `weight.shape`, its `row_order` applied; a read-only view where the file has just that.

    Equal bit for bit to ggml's dequantization (GGUF's types; NVFP4 then times the scale of its row), fp4 * 2^(scale -
    127) (MXFP4_SPLIT), int8 * scale of its group (Q8_GROUPS) or row (INT8_ROWS), E4M3 * scale of its group
    (FP8_GROUPS). Scales that are infinite or NaN give infinities and NaN, without a warning.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _dequantize(weight)


def _dequantize(weight: Weight) -> NDArray[np.float32]:
    order, shape = weight.row_order, weight.shape
    if order is None:
        return _decode(weight.qtype, weight.data, weight.scales).reshape(shape)
    if len(shape) < 2:
        return _decode(weight.qtype, weight.data, weight.scales)[order]
    n_outer, cols = math.prod(shape[:-2]), shape[-1]

    def take(stored: NDArray[Any], row_size: int) -> NDArray[Any]:
        return stored.reshape(n_outer, -1, row_size)[:, order]

    if weight.qtype is QType.Q8_GROUPS:  # a group may span rows, so rows are taken from the numbers
        return take(_decode(weight.qtype, weight.data, weight.scales), cols).reshape(shape)
    n_blocks = cols // weight.qtype.block_size
    scales = None
    if weight.scales is not None:
        n_stored = len(weight.data) // (n_blocks * weight.qtype.block_bytes)
        scales = take(weight.scales, weight.scales.size // n_stored).reshape(-1)
    data = take(weight.data, n_blocks * weight.qtype.block_bytes).reshape(-1)
    return _decode(weight.qtype, data, scales).reshape(shape)


def _decode(qtype: QType, data: NDArray[np.uint8], scales: NDArray[Any] | None) -> NDArray[np.float32]:
    """float32 [n_elements] of everything stored in `data`."""
    if qtype is QType.F32:
        return data.view("<f4")
    if qtype is QType.F16:
        return data.view("<f2").astype(np.float32)
    if qtype is QType.BF16:
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if qtype in (QType.Q8_GROUPS, QType.INT8_ROWS, QType.FP8_GROUPS):
        assert scales is not None, "their scales are kept apart"
        numbers = E4M3[data] if qtype is QType.FP8_GROUPS else data.view(np.int8)
        return (numbers.reshape(scales.size, -1) * scales.astype(np.float32).reshape(-1, 1)).reshape(-1)
    blocks = data.reshape(-1, qtype.block_bytes)
    values = np.empty((len(blocks), qtype.block_size), dtype=np.float32)
    step = _CHUNK_ELEMENTS // qtype.block_size
    for i in range(0, len(blocks), step):
        if qtype is QType.MXFP4_SPLIT:
            assert scales is not None, "MXFP4_SPLIT keeps its scales apart"
            values[i : i + step] = decode_split_mxfp4(blocks[i : i + step], scales.reshape(-1)[i : i + step])
        else:
            values[i : i + step] = _DECODERS[qtype](blocks[i : i + step])
    if qtype is QType.NVFP4:
        assert scales is not None, "NVFP4 has a scale for each row"
        values.reshape(len(scales), -1)[:] *= scales[:, None]
    return values.reshape(-1)
