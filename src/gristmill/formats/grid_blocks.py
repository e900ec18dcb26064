"""Decodes blocks of GGUF's types of 1.6 to 3.4 bits, whose codes stand for several numbers: bytes to float32.

Layouts: ggml's ggml-common.h. N blocks come as uint8 [N, block_bytes] and go as float32 [N, 256]. A code of IQ1, IQ2
and IQ3 names a point of a grid, which has what eight or four neighbours are without their signs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from gristmill._kernels import grid_digits
from gristmill.formats.blocks import half
from gristmill.formats.qtypes import QType

_Bytes = NDArray[np.uint8]
_Floats = NDArray[np.float32]
_Numbers = NDArray[np.int64]

_TERNARY = (-1, 0, 1)
_MAGNITUDES_2 = (8, 25, 43)
_MAGNITUDES_3 = {"iq3_xxs": (4, 12, 20, 28, 36, 44, 52, 62), "iq3_s": (1, 3, 5, 7, 9, 11, 13, 15)}


@cache
def _grid(label: str) -> _Floats:
    """All points of a type's grid, float32 [points, 4] of IQ3, [points, 8] of the others."""
    values = _MAGNITUDES_3.get(label) or (_TERNARY if label.startswith("iq1") else _MAGNITUDES_2)
    digits = grid_digits(label).reshape(-1, 4 if label in _MAGNITUDES_3 else 8)
    return np.array(values, np.float32)[digits]


def _numbers(blocks: _Bytes, begin: int, end: int, dtype: str = "u1") -> _Numbers:
    """Whole numbers that lie in bytes [begin, end) of each block."""
    return np.ascontiguousarray(blocks[:, begin:end]).view(dtype).astype(np.int64)


def _parts(numbers: _Numbers, bits: int, count: int) -> _Numbers:
    """[N, K] to [N, K * count]: of each number its lowest `bits`, the next ones, and so on."""
    shifts = bits * np.arange(count)
    return (numbers[:, :, None] >> shifts & (1 << bits) - 1).reshape(len(numbers), -1)


def _signs(eight: _Numbers) -> _Floats:
    """[N, K] of eight bits to [N, 8 K]: -1 where one is set."""
    return (1 - 2 * _parts(eight, 1, 8)).astype(np.float32)


def _all_signs(seven: _Numbers) -> _Floats:
    """Of seven bits, where an even number of eight is set."""
    return _signs(seven | (_parts(seven, 1, 7).reshape(*seven.shape, 7).sum(-1) & 1) << 7)


def _scaled(d: _Floats, scales: _Numbers, points: _Floats) -> _Floats:
    """d * (2 scale + 1) * each number; scales [N, 8] or [N, 16], points [N, points, 4 or 8]."""
    n, k = scales.shape
    scale = d * (2 * scales + 1).astype(np.float32)
    return (scale[:, :, None] * points.reshape(n, k, -1)).reshape(n, -1)


def _iq2_xxs(b: _Bytes) -> _Floats:
    """d, then for 32 numbers 4 codes of 8 bits, 4 times 7 signs, a scale of 4 bits."""
    halves = _numbers(b, 2, 66, "<u4").reshape(len(b), 8, 2)
    points = _grid("iq2_xxs")[_parts(halves[:, :, 0], 8, 4)]
    signs = _all_signs(_parts(halves[:, :, 1], 7, 4))
    return _scaled(half(b, 0) * np.float32(0.125), halves[:, :, 1] >> 28, points) * signs


def _iq2_xs(b: _Bytes) -> _Floats:
    """d, for 8 numbers a code of 9 bits and 7 signs[32], for 16 a scale of 4 bits[8]."""
    codes = _numbers(b, 2, 66, "<u2")
    points, signs = _grid("iq2_xs")[codes & 511], _all_signs(codes >> 9)
    return _scaled(half(b, 0) * np.float32(0.125), _parts(_numbers(b, 66, 74), 4, 2), points) * signs


def _iq2_s(b: _Bytes) -> _Floats:
    """d, low bytes of codes[32], 8 signs[32], high 2 bits of codes[8], for 16 numbers a scale of 4 bits[8]."""
    codes = _numbers(b, 2, 34) | _parts(_numbers(b, 66, 74), 2, 4) << 8
    points, signs = _grid("iq2_s")[codes], _signs(_numbers(b, 34, 66))
    return _scaled(half(b, 0) * np.float32(0.125), _parts(_numbers(b, 74, 82), 4, 2), points) * signs


def _iq3_xxs(b: _Bytes) -> _Floats:
    """d, for 4 numbers a code of 8 bits[64], for 32 numbers 4 times 7 signs and a scale of 4 bits[8]."""
    rest = _numbers(b, 66, 98, "<u4")
    points, signs = _grid("iq3_xxs")[_numbers(b, 2, 66)], _all_signs(_parts(rest, 7, 4))
    return _scaled(half(b, 0) * np.float32(0.25), rest >> 28, points) * signs


def _iq3_s(b: _Bytes) -> _Floats:
    """d, low bytes of codes[64], their ninth bits[8], 8 signs[32], for 32 numbers a scale of 4 bits[4]."""
    codes = _numbers(b, 2, 66) | _parts(_numbers(b, 66, 74), 1, 8) << 8
    points, signs = _grid("iq3_s")[codes], _signs(_numbers(b, 74, 106))
    return _scaled(half(b, 0), _parts(_numbers(b, 106, 110), 4, 2), points) * signs


def _iq1(d: _Floats, codes: _Numbers, scales: _Numbers, below: _Numbers) -> _Floats:
    """An eighth of a scale is added to eight numbers, or taken off them where `below` is 1."""
    points = _grid("iq1_s")[codes] + (np.float32(0.125) - np.float32(0.25) * below.astype(np.float32))[:, :, None]
    return _scaled(d, scales, points)


def _iq1_s(b: _Bytes) -> _Floats:
    """d, low bytes of codes[32], for 32 numbers 4 times 3 more bits of a code, 3 of a scale, 1 for below[8]."""
    high = _numbers(b, 34, 50, "<u2")
    codes = _numbers(b, 2, 34) | _parts(high, 3, 4) << 8
    return _iq1(half(b, 0), codes, high >> 12 & 7, np.repeat(high >> 15, 4, axis=1))


def _iq1_m(b: _Bytes) -> _Floats:
    """Low bytes of codes[32], for 8 numbers 3 more bits and one for below[16], 4 times 4 scales of 3 bits, 4 of d."""
    high, last = _parts(_numbers(b, 32, 48), 4, 2), _numbers(b, 48, 56, "<u2")
    d = (last >> 12 << 4 * np.arange(4)).sum(-1).astype("<u2").view("<f2").astype(np.float32)[:, None]
    return _iq1(d, _numbers(b, 0, 32) | (high & 7) << 8, _parts(last & 4095, 3, 4), high >> 3)


def _base_three(packed: _Bytes, n: int) -> _Bytes:
    """[N, K] to [N, n K]: the first digits of all bytes, then the next ones. Of 256, a byte is the part they make."""
    powers = 3 ** np.arange(n, dtype=np.uint8)
    shifted = packed[:, None, :] * powers[:, None]  # what is beyond eight bits are the digits before
    return (shifted.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(packed), -1)


def _tq1_0(b: _Bytes) -> _Floats:
    """Five digits of base 3 a byte[32], likewise[16], four a byte[4], d."""
    digits = [_base_three(b[:, :32], 5), _base_three(b[:, 32:48], 5), _base_three(b[:, 48:52], 4)]
    return half(b, 52) * (np.concatenate(digits, axis=1).astype(np.float32) - 1)


def _tq2_0(b: _Bytes) -> _Floats:
    """Codes of two bits[64], d."""
    codes = b[:, :64].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    return half(b, 64) * (codes.reshape(-1, 256).astype(np.float32) - 1)


DECODERS = {
    QType.IQ1_S: _iq1_s,
    QType.IQ1_M: _iq1_m,
    QType.IQ2_XXS: _iq2_xxs,
    QType.IQ2_XS: _iq2_xs,
    QType.IQ2_S: _iq2_s,
    QType.IQ3_XXS: _iq3_xxs,
    QType.IQ3_S: _iq3_s,
    QType.TQ1_0: _tq1_0,
    QType.TQ2_0: _tq2_0,
}
