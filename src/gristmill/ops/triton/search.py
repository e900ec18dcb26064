"""Device functions that find where the head of a row ends: its first ids by logits, the lower of two equal ones first.

An id's key is one integer that orders ids so: its logit's bits, then the id from the last to the first. No two are
equal.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gristmill.ops.triton.survey import weight_of

_ID_BITS = tl.constexpr(24)
_LAST_ID = tl.constexpr(2**24 - 1)
_WAYS = tl.constexpr(16)
_INT32_MAX = tl.constexpr(2**31 - 1)


@triton.jit
def lowest_key(x):
    """Less than or equal to the int64 keys of all ids whose float32 logit is x, and above those of lower logits."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0 becomes 0
    return (bits ^ ((bits >> 31) & _INT32_MAX)).to(tl.int64) << _ID_BITS


@triton.jit
def above_keys(x):
    """Greater than the keys of all ids whose logit is x."""
    return lowest_key(x) + (_LAST_ID + 1)


@triton.jit
def key_of(x, ids):
    return lowest_key(x) | (ids ^ _LAST_ID)


@triton.jit
def id_of(key):
    return ((key & _LAST_ID) ^ _LAST_ID).to(tl.int32)


@triton.jit
def read(i, end, list_ptr, logits_ptr, listed):
    """(ids, logits) of places i < end of a row's list, or of the row itself."""
    ids = tl.where(listed, tl.load(list_ptr + i, mask=i < tl.where(listed, end, 0), other=0), i)
    return ids, tl.load(logits_ptr + ids, mask=i < end, other=float("-inf")).to(tl.float32)


@triton.jit
def head_end(
    low, high, goal, by_count: tl.constexpr, end, list_ptr, logits_ptr, listed, peak, temperature, tile: tl.constexpr
):
    """The last key of the shortest head with `goal` ids, or with that weight. It is at least `low` and below `high`.

    Each round looks at 16 places between the two, and leaves a 16th.
    """
    way = tl.arange(0, _WAYS)
    n_high = 0
    while high - low > 1:
        step = (high - low + (_WAYS - 1)) // _WAYS
        edges = low + step * way
        counts = tl.zeros((_WAYS,), tl.int32)
        weights = tl.zeros((_WAYS,), tl.float64)
        for begin in range(0, end, tile):
            i = begin + tl.arange(0, tile)
            ids, x = read(i, end, list_ptr, logits_ptr, listed)
            reached = (i < end)[:, None] & (key_of(x, ids)[:, None] >= edges[None, :])
            counts += tl.sum(reached.to(tl.int32), axis=0)
            if not by_count:
                weight = weight_of(x, peak, temperature).to(tl.float64)
                weights += tl.sum(tl.where(reached, weight[:, None], 0.0), axis=0)
        enough = counts >= goal if by_count else weights >= goal
        chosen = tl.max(tl.where(enough & (edges < high), way, 0))
        n_low = tl.sum(tl.where(way == chosen, counts, 0))
        if (chosen + 1 < _WAYS) & (low + step * (chosen + 1) < high):
            n_high = tl.sum(tl.where(way == chosen + 1, counts, 0))
            high = low + step * (chosen + 1)
        low += step * chosen
        if n_low - n_high <= 1:
            high = low + 1
    return low


@triton.jit
def weight_from(key, end, list_ptr, logits_ptr, listed, peak, temperature, tile: tl.constexpr):
    """The weight of the ids whose keys are at least `key`, float64."""
    weight = tl.zeros((), tl.float64)
    for begin in range(0, end, tile):
        i = begin + tl.arange(0, tile)
        ids, x = read(i, end, list_ptr, logits_ptr, listed)
        kept = (i < end) & (key_of(x, ids) >= key)
        weight += tl.sum(tl.where(kept, weight_of(x, peak, temperature), 0.0).to(tl.float64))
    return weight
