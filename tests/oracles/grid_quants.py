"""Plain quantizers into the GGUF blocks whose codes stand for several numbers: IQ1, IQ2, IQ3, TQ1_0 and TQ2_0.

Layouts are those of ggml-common.h, the grids' points those of the gguf package. Rounding is simple, not optimal: what
counts is that every field of a block varies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

Blocks = NDArray[np.float32]  # [n, 256]
Bytes = NDArray[np.uint8]  # [n, bytes a block]
Numbers = NDArray[np.int64]


@cache
def _grid(name: str) -> Blocks:
    """float32 [points, 4 or 8]"""
    quant = getattr(gguf.quants, name)
    quant.init_grid()
    return np.asarray(quant.grid, np.float32).reshape(quant.grid_shape)


def _nearest(x: Blocks, name: str) -> Numbers:
    """The code of the point nearest to each [..., 4 or 8]."""
    grid = _grid(name)
    return (2 * x @ grid.T - (grid**2).sum(-1)).argmax(-1)


def _bytes(numbers: Numbers, dtype: str = "u1") -> Bytes:
    return numbers.astype(dtype).reshape(len(numbers), -1).view(np.uint8)


def _half(d: Blocks) -> Bytes:
    return d.astype("<f2").reshape(-1, 1).view(np.uint8)


def _join_bits(numbers: Numbers, bits: int, count: int) -> Numbers:
    """[n, K * count] to [n, K]: the first is the lowest."""
    return (numbers.reshape(len(numbers), -1, count) << bits * np.arange(count)).sum(-1)


def _scales(x: Blocks, group: int, largest: float, most: int) -> tuple[Blocks, Numbers, Blocks]:
    """d [n, 1], codes of scales [n, 256 / group] and x [n, 256 / group, group] over d (2 code + 1)."""
    parts = x.reshape(len(x), -1, group)
    step = np.abs(parts).max(-1) / largest
    d = np.maximum(step.max(-1, keepdims=True) / (2 * most + 1), 1e-6).astype(np.float16).astype(np.float32)
    codes = np.clip(np.rint((step / d - 1) / 2), 0, most).astype(np.int64)
    return d, codes, parts / (d * (2 * codes + 1))[..., None]


def _signs(x: Blocks, even: bool) -> tuple[Numbers, Blocks]:
    """Eight signs a number [n, 32] and magnitudes [n, 32, 8]; even: the smallest changes where their number is odd."""
    eights = x.reshape(len(x), 32, 8)
    negative = eights < 0
    if even:
        odd, smallest = negative.sum(-1) % 2 == 1, np.abs(eights).argmin(-1)
        flipped = odd[..., None] & (np.arange(8) == smallest[..., None])
        negative, eights = negative ^ flipped, np.where(flipped, -eights, eights)
    return _join_bits(negative.reshape(len(x), -1).astype(np.int64), 1, 8), np.where(negative, -eights, eights)


def _iq2_xxs(x: Blocks) -> Bytes:
    d, scale, over = _scales(x, 32, 43, 15)
    signs, size = _signs(over, even=True)
    codes = _join_bits(_nearest(size, "IQ2_XXS"), 8, 4)
    rest = _join_bits(signs & 127, 7, 4) | scale << 28
    return np.concatenate([_half(d * 8), _bytes(np.stack([codes, rest], -1).reshape(len(x), -1), "<u4")], -1)


def _iq2_xs(x: Blocks) -> Bytes:
    d, scale, over = _scales(x, 16, 43, 15)
    signs, size = _signs(over, even=True)
    codes = _nearest(size, "IQ2_XS") | (signs & 127) << 9
    return np.concatenate([_half(d * 8), _bytes(codes, "<u2"), _bytes(_join_bits(scale, 4, 2))], -1)


def _iq2_s(x: Blocks) -> Bytes:
    d, scale, over = _scales(x, 16, 43, 15)
    signs, size = _signs(over, even=False)
    codes = _nearest(size, "IQ2_S")
    parts = [_bytes(codes & 255), _bytes(signs), _bytes(_join_bits(codes >> 8, 2, 4)), _bytes(_join_bits(scale, 4, 2))]
    return np.concatenate([_half(d * 8), *parts], -1)


def _iq3_xxs(x: Blocks) -> Bytes:
    d, scale, over = _scales(x, 32, 62, 15)
    signs, size = _signs(over, even=True)
    rest = _join_bits(signs & 127, 7, 4) | scale << 28
    codes = _nearest(size.reshape(len(x), 64, 4), "IQ3_XXS")
    return np.concatenate([_half(d * 4), _bytes(codes), _bytes(rest, "<u4")], -1)


def _iq3_s(x: Blocks) -> Bytes:
    d, scale, over = _scales(x, 32, 15, 15)
    signs, size = _signs(over, even=False)
    codes = _nearest(size.reshape(len(x), 64, 4), "IQ3_S")
    parts = [_bytes(codes & 255), _bytes(_join_bits(codes >> 8, 1, 8)), _bytes(signs), _bytes(_join_bits(scale, 4, 2))]
    return np.concatenate([_half(d), *parts], -1)


def _ternary(over: Blocks, below: NDArray[np.bool_]) -> Numbers:
    """Codes [n, 32] of over [n, 32, 8], where an eighth is taken off if below [n, 32] and added otherwise."""
    return _nearest(over - np.where(below, -0.125, 0.125).astype(np.float32)[..., None], "IQ1_S")


def _iq1_s(x: Blocks) -> Bytes:
    d, scale, over = _scales(x, 32, 1.125, 7)
    below = over.mean(-1) < 0
    codes = _ternary(over.reshape(len(x), 32, 8), np.repeat(below, 4, axis=1))
    high = _join_bits(codes >> 8, 3, 4) | scale << 12 | below.astype(np.int64) << 15
    return np.concatenate([_half(d), _bytes(codes & 255), _bytes(high, "<u2")], -1)


def _iq1_m(x: Blocks) -> Bytes:
    d, scale, over = _scales(x, 16, 1.125, 7)
    eights = over.reshape(len(x), 32, 8)
    below = eights.mean(-1) < 0
    codes = _ternary(eights, below)
    high = _join_bits(codes >> 8 | below.astype(np.int64) << 3, 4, 2)
    d_bits = d.astype("<f2").view("<u2").astype(np.int64) >> 4 * np.arange(4) & 15
    return np.concatenate(
        [_bytes(codes & 255), _bytes(high), _bytes(_join_bits(scale, 3, 4) | d_bits << 12, "<u2")], -1
    )


def _digits(x: Blocks) -> tuple[Bytes, Numbers]:
    """d as bytes and each number as 0, 1 or 2."""
    d = np.abs(x).max(-1, keepdims=True).astype(np.float16).astype(np.float32)
    return _half(d), np.clip(np.rint(x / np.maximum(d, 1e-6)), -1, 1).astype(np.int64) + 1


def _tq1_0(x: Blocks) -> Bytes:
    d, digits = _digits(x)

    def packed(digits: Numbers, n: int) -> Bytes:
        """[n, count] digits, the first of all bytes before the second; as the fraction of 256, rounded up."""
        whole = (digits.reshape(len(x), n, -1) * 3 ** np.arange(4, 4 - n, -1)[:, None]).sum(1)
        return _bytes(-(-whole * 256 // 243))

    return np.concatenate(
        [packed(digits[:, :160], 5), packed(digits[:, 160:240], 5), packed(digits[:, 240:], 4), d], -1
    )


def _tq2_0(x: Blocks) -> Bytes:
    d, digits = _digits(x)
    neighbours = digits.reshape(-1, 2, 4, 32).swapaxes(2, 3).reshape(len(x), -1)
    return np.concatenate([_bytes(_join_bits(neighbours, 2, 4)), d], -1)


QUANTIZERS: Mapping[Type, tuple[int, Callable[[Blocks], Bytes]]] = {
    Type.IQ1_S: (256, _iq1_s),
    Type.IQ1_M: (256, _iq1_m),
    Type.IQ2_XXS: (256, _iq2_xxs),
    Type.IQ2_XS: (256, _iq2_xs),
    Type.IQ2_S: (256, _iq2_s),
    Type.IQ3_XXS: (256, _iq3_xxs),
    Type.IQ3_S: (256, _iq3_s),
    Type.TQ1_0: (256, _tq1_0),
    Type.TQ2_0: (256, _tq2_0),
}
