"""What it means to quantize to Q4_K, Q5_K and Q6_K: the search for scales, in numpy. Native code gives its bits.

Blocks of 256 are searched side by side (N of them), numbers of a sub-block one after another, so that the order of
every sum is fixed. What is minimized is the plain squared error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float32]
_Bytes = NDArray[np.uint8]

# Steps that the whole range is first divided into, beside the number of levels; each is refitted by least squares.
_STRETCHES = tuple(np.float32(k) / np.float32(8) for k in range(-12, 9))
_SYMMETRIC_STRETCHES = tuple(np.float32(k) / np.float32(8) for k in range(-16, 9))
_NEIGHBOURS = tuple((a, b) for a in (0, -1, 1) for b in (0, -1, 1))
_REFITS = 2
_TINY = np.float32(1e-30)  # what is not over it counts as zero
_WORST = np.float32(3e38)
_MAX_6_BITS = np.float32(63)


def quantize_q4_k(x: _Floats) -> _Bytes:
    """float32 [N, 256] as Q4_K blocks, uint8 [N, 144]."""
    d, d_min, scales, minimums, q = _fit_with_minimums(x, 15)
    return np.concatenate([d, d_min, _pack_6_bits(scales, minimums), _pack_nibbles(q)], axis=1)


def quantize_q5_k(x: _Floats) -> _Bytes:
    """float32 [N, 256] as Q5_K blocks, uint8 [N, 176]."""
    d, d_min, scales, minimums, q = _fit_with_minimums(x, 31)
    high = np.packbits(q.transpose(0, 2, 1) >> 4, axis=-1, bitorder="little").reshape(-1, 32)  # bit j: sub-block j
    return np.concatenate([d, d_min, _pack_6_bits(scales, minimums), high, _pack_nibbles(q & np.uint8(15))], axis=1)


def quantize_q6_k(x: _Floats) -> _Bytes:
    """float32 [N, 256] as Q6_K blocks, uint8 [N, 210]."""
    x = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, 16, 16)
    start = _best_symmetric_steps(x)
    largest = np.take_along_axis(start, np.abs(start).argmax(1)[:, None], axis=1)  # [N, 1]
    d = _round_half(largest / np.float32(-128))
    scale = np.clip(np.rint(start * _inverse(d)), -128, 127)
    scale, q, error = _search_symmetric(x, d, scale)
    for _ in range(_REFITS):
        step = q * scale[:, :, None]
        other_d = _round_half(_divide(_total(_sum(step * x)), _total(_sum(step * step)))[:, None])
        other = _search_symmetric(x, other_d, scale)
        better = _total(other[2]) < _total(error)
        d, scale, error = (
            np.where(better[:, None], new, old) for new, old in ((other_d, d), (other[0], scale), (other[2], error))
        )
        q = np.where(better[:, None, None], other[1], q)
    codes = (q + 32).astype(np.uint8).reshape(-1, 2, 4, 32)  # halves of four quarters
    low = (codes[:, :, :2] & 15) | (codes[:, :, 2:] & 15) << 4
    high = (codes >> 4) << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    return np.concatenate(
        [
            low.reshape(-1, 128),
            np.bitwise_or.reduce(high, axis=2).reshape(-1, 64),
            scale.astype(np.int8).view(np.uint8),
            _half_bytes(d),
        ],
        axis=1,
    )


# ---- scale and minimum -----------------------------------------------------------------------------------------------


def _fit_with_minimums(x: _Floats, n_max: int) -> tuple[_Bytes, _Bytes, _Bytes, _Bytes, _Bytes]:
    """x = d scale q - d_min minimum: d, d_min as bytes [N, 2], scale, minimum uint8 [N, 8], q uint8 [N, 8, 32]."""
    x = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, 8, 32)
    step, offset = _best_lines(x, n_max)
    d = _round_half(step.max(1, keepdims=True) / _MAX_6_BITS)
    d_min = _round_half(offset.max(1, keepdims=True) / _MAX_6_BITS)
    scale = np.minimum(np.rint(step * _inverse(d)), _MAX_6_BITS)
    minimum = np.minimum(np.rint(offset * _inverse(d_min)), _MAX_6_BITS)
    scale, minimum, q, error = _search_lines(x, n_max, d, d_min, scale, minimum)
    for _ in range(_REFITS):
        other_d, other_min = _refit_lines(x, scale, minimum, q)
        found = _search_lines(x, n_max, other_d, other_min, scale, minimum)
        better = (_total(found[3]) < _total(error))[:, None]
        d, d_min = np.where(better, other_d, d), np.where(better, other_min, d_min)
        scale, minimum = np.where(better, found[0], scale), np.where(better, found[1], minimum)
        q, error = np.where(better[:, :, None], found[2], q), np.where(better, found[3], error)
    codes = (scale.astype(np.uint8), minimum.astype(np.uint8), q.astype(np.uint8))
    return _half_bytes(d), _half_bytes(d_min), *codes


def _best_lines(x: _Floats, n_max: int) -> tuple[_Floats, _Floats]:
    """Of each sub-block the step and the offset below zero (both >= 0) that fit it best on their own: [N, 8]."""
    low = np.minimum(x.min(-1), np.float32(0))
    width = np.maximum(x.max(-1), low) - low
    n, sum_x = np.float32(x.shape[-1]), _sum(x)
    best, best_step, best_offset = np.full_like(low, _WORST), np.zeros_like(low), -low
    for stretch in _STRETCHES:
        inverse = _divide(np.float32(n_max) + stretch, width)
        q = np.minimum(np.rint((x - low[..., None]) * inverse[..., None]), np.float32(n_max))
        sum_q, sum_qq, sum_qx = _sum(q), _sum(q * q), _sum(q * x)
        determinant = n * sum_qq - sum_q * sum_q
        step = _divide(n * sum_qx - sum_x * sum_q, determinant)
        offset = _divide(sum_q * sum_qx - sum_qq * sum_x, determinant)
        through_zero = (offset < 0) | (determinant <= 0)  # no slope where all codes are the same
        step = np.maximum(np.where(through_zero, _divide(sum_qx, sum_qq), step), np.float32(0))
        offset = np.maximum(offset, np.float32(0))
        error = step * (step * sum_qq - 2 * (offset * sum_q + sum_qx)) + offset * (n * offset + 2 * sum_x)
        better = (error < best) & (sum_qq > 0)
        best = np.where(better, error, best)
        best_step, best_offset = np.where(better, step, best_step), np.where(better, offset, best_offset)
    return best_step, best_offset


def _search_lines(
    x: _Floats, n_max: int, d: _Floats, d_min: _Floats, scale: _Floats, minimum: _Floats
) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """The best (scale, minimum, q, error) of each sub-block where scale and minimum move by one at most."""
    best = np.full_like(scale, _WORST)
    best_scale, best_minimum, best_q = scale, minimum, np.zeros_like(x)
    for a, b in _NEIGHBOURS:
        s = np.clip(scale + np.float32(a), np.float32(0), _MAX_6_BITS)
        m = np.clip(minimum + np.float32(b), np.float32(0), _MAX_6_BITS)
        step, offset = d * s, (d_min * m)[..., None]
        q = np.clip(np.rint((x + offset) * _inverse(step)[..., None]), np.float32(0), np.float32(n_max))
        miss = step[..., None] * q - offset - x
        error = _sum(miss * miss)
        better = error < best
        best = np.where(better, error, best)
        best_scale, best_minimum = np.where(better, s, best_scale), np.where(better, m, best_minimum)
        best_q = np.where(better[..., None], q, best_q)
    return best_scale, best_minimum, best_q, best


def _refit_lines(x: _Floats, scale: _Floats, minimum: _Floats, q: _Floats) -> tuple[_Floats, _Floats]:
    """d and d_min [N, 1] by least squares over the block, everything else as it is."""
    sum_q, sum_qq, sum_qx = _sum(q), _sum(q * q), _sum(q * x)
    ss = _total(scale * scale * sum_qq)
    sm = _total(scale * minimum * sum_q)
    mm = _total(minimum * minimum * np.float32(x.shape[-1]))
    sx, mx = _total(scale * sum_qx), -_total(minimum * _sum(x))
    determinant = ss * mm - sm * sm
    alone = ~(determinant > 0)
    d = np.where(alone, _divide(sx, ss), _divide(sx * mm + mx * sm, determinant))
    d_min = np.where(alone, np.float32(0), _divide(mx * ss + sx * sm, determinant))
    return tuple(_round_half(np.maximum(v, np.float32(0))[:, None]) for v in (d, d_min))  # type: ignore[return-value]


# ---- scale alone -----------------------------------------------------------------------------------------------------


def _best_symmetric_steps(x: _Floats) -> _Floats:
    """Of each sub-block the step that fits it best on its own, [N, 16]; its sign makes the largest number -32 steps."""
    low, high = x.min(-1), x.max(-1)
    extreme = np.where(high >= -low, high, low)
    best, best_step = np.zeros_like(extreme), np.zeros_like(extreme)
    for stretch in _SYMMETRIC_STRETCHES:
        inverse = _divide(-(np.float32(32) + stretch), extreme)
        q = np.clip(np.rint(x * inverse[..., None]), np.float32(-32), np.float32(31))
        sum_qx, sum_qq = _sum(q * x), _sum(q * q)
        step = _divide(sum_qx, sum_qq)
        better = step * sum_qx > best
        best, best_step = np.where(better, step * sum_qx, best), np.where(better, step, best_step)
    steps: _Floats = best_step
    return steps


def _search_symmetric(x: _Floats, d: _Floats, scale: _Floats) -> tuple[_Floats, _Floats, _Floats]:
    """The best (scale, q, error) of each sub-block where the scale moves by one at most."""
    best, best_scale, best_q = np.full_like(scale, _WORST), scale, np.zeros_like(x)
    for a in (0, -1, 1):
        s = np.clip(scale + np.float32(a), np.float32(-128), np.float32(127))
        step = d * s
        q = np.clip(np.rint(x * _inverse(step)[..., None]), np.float32(-32), np.float32(31))
        miss = step[..., None] * q - x
        error = _sum(miss * miss)
        better = error < best
        best, best_scale = np.where(better, error, best), np.where(better, s, best_scale)
        best_q = np.where(better[..., None], q, best_q)
    return best_scale, best_q, best


# ---- small things ----------------------------------------------------------------------------------------------------


def _sum(values: _Floats) -> _Floats:
    """Over the last axis, one number after another."""
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = total + values[..., i]
    return total


_total = _sum  # of a block's sub-blocks


def _divide(a: _Floats | np.float32, b: _Floats) -> _Floats:
    """a / b, 0 where b is too small to divide by."""
    there = np.abs(b) >= _TINY
    return np.where(there, a / np.where(there, b, np.float32(1)), np.float32(0))


def _inverse(x: _Floats) -> _Floats:
    return _divide(np.float32(1), x)


def _round_half(x: _Floats) -> _Floats:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32) + np.float32(0)  # and no negative zero


def _half_bytes(x: _Floats) -> _Bytes:
    return np.ascontiguousarray(x.astype("<f2")).view(np.uint8)


def _pack_nibbles(q: _Bytes) -> _Bytes:
    """[N, 8, 32] to [N, 128]: sub-blocks 2 j in low nibbles, 2 j + 1 in high ones."""
    return (q[:, 0::2] | q[:, 1::2] << np.uint8(4)).reshape(-1, 128)


def _pack_6_bits(scales: _Bytes, minimums: _Bytes) -> _Bytes:
    """Eight scales and eight minimums in twelve bytes; the last four of each lend their top bits to the first."""
    first = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    second = minimums[:, :4] | (minimums[:, 4:] >> 4) << 6
    return np.concatenate([first, second, (scales[:, 4:] & 15) | (minimums[:, 4:] & 15) << 4], axis=1)
