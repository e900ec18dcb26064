"""A tile of queries meets the keys of its sequence, tile by tile at absolute positions, with a running softmax.

The rows of a tile are several tokens' heads that share one head of keys: row r is token r // group, head r % group.
Logits are in units of log 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gristmill.ops.interface import BLOCK_SIZE
from gristmill.ops.triton.common import dot

_BLOCK_SIZE = tl.constexpr(BLOCK_SIZE)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def visit(
    q, peak, total, acc, positions, begin, end, low, k_ptr, v_ptr, table_ptr, kv_head, dims,
    n_kv_heads: tl.constexpr, head_dim: tl.constexpr, window: tl.constexpr, keys: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """Fold keys begin .. end, in tiles of `keys`, into the peak [rows], total [rows] and sum of values acc [rows, D].

    positions  [rows] of the queries
    low        the first key that any row sees; those before it, and from `end` on, are not read
    masked     False where every row sees all of these keys, and they are whole tiles
    """
    scale: tl.constexpr = 1.4426950408889634 / head_dim**0.5
    for start in tl.range(begin, end, keys):
        key = start + tl.arange(0, keys)
        if masked:
            stored = (key >= low) & (key < end)
            block = tl.load(table_ptr + key // _BLOCK_SIZE, mask=stored, other=0).to(tl.int64)
        else:
            block = tl.load(table_ptr + key // _BLOCK_SIZE).to(tl.int64)
        row = (block * n_kv_heads + kv_head) * _BLOCK_SIZE + key % _BLOCK_SIZE
        at = row[:, None] * head_dim + dims[None, :]
        if masked:
            inside = stored[:, None] & (dims < head_dim)[None, :]
            k = tl.load(k_ptr + at, mask=inside, other=0.0)
            v = tl.load(v_ptr + at, mask=inside, other=0.0)
        elif head_dim != dims.shape[0]:
            k = tl.load(k_ptr + at, mask=(dims < head_dim)[None, :], other=0.0)
            v = tl.load(v_ptr + at, mask=(dims < head_dim)[None, :], other=0.0)
        else:
            k = tl.load(k_ptr + at)
            v = tl.load(v_ptr + at)
        scores = dot(q, tl.trans(k), tl.zeros((q.shape[0], keys), tl.float32))
        if masked:
            seen = stored[None, :] & (key[None, :] <= positions[:, None])
            if window:
                seen = seen & (key[None, :] > positions[:, None] - window)
            scores = tl.where(seen, scores, float("-inf"))
        above = tl.maximum(peak, tl.max(scores, axis=1) * scale)
        base = above
        if masked:
            base = tl.where(above == float("-inf"), 0.0, above)  # a row that has seen no key yet
        p = tl.exp2(scores * scale - base[:, None])  # one instruction before the exponential: a product and a sum
        fade = tl.exp2(peak - base)
        total = total * fade + tl.sum(p, axis=1)
        acc = dot(p.to(v.dtype), v, acc * fade[:, None])
        peak = above
    return peak, total, acc
