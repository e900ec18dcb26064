"""Attention of prompts: each program takes a tile of one sequence's tokens, and all keys that these see."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.attention_tile import LOG2_E, visit
from gristmill.ops.triton.common import cdiv, chained, follow, is_roomy, tile
from gristmill.ops.triton.kv import KvLayer

Tensor = torch.Tensor
_LOG2_E = tl.constexpr(LOG2_E.value)


def attend(
    q: Tensor, layer: KvLayer, query_start: Tensor, seq_lens: Tensor, block_tables: Tensor,
    window: int, sinks: Tensor | None, longer_than: int, y: Tensor,
) -> None:  # fmt: skip
    """What `attention.attention` says, into y, for the sequences with more than `longer_than` tokens in this step."""
    k, v = layer
    n_kv_heads, head_dim = k.shape[1], k.shape[3]
    n_heads = q.shape[1] // head_dim
    block_d = tile(head_dim, 16)
    wide = k.element_size() == 4
    narrow = not wide and block_d <= 128
    if narrow:  # as far as registers and shared memory hold them
        rows, keys = 128, 128 if is_roomy() else 64
    else:
        rows, keys = (64, 32) if not wide else (32, 32) if block_d <= 128 else (16, 16)
    rows = max(rows, tile(n_heads // n_kv_heads))
    n_tiles = cdiv(len(q), rows // (n_heads // n_kv_heads)) + len(seq_lens)  # at most one of a sequence is not full
    _attend[(n_tiles, n_kv_heads)](
        q, k, v, query_start, seq_lens, block_tables, sinks, y, len(seq_lens), n_tiles, block_tables.shape[1],
        longer_than, n_heads, n_kv_heads, head_dim, window, rows, keys, block_d,
        num_warps=4 if wide else 8, num_stages=3 if narrow else 2, **chained(),
    )  # fmt: skip


@triton.jit(do_not_specialize=["n_sequences", "n_tiles", "table_width"])
def _attend(
    q_ptr, k_ptr, v_ptr, query_start_ptr, seq_lens_ptr, tables_ptr, sinks_ptr, y_ptr, n_sequences, n_tiles, table_width,
    longer_than: tl.constexpr, n_heads: tl.constexpr, n_kv_heads: tl.constexpr, head_dim: tl.constexpr,
    window: tl.constexpr, rows: tl.constexpr, keys: tl.constexpr, block_d: tl.constexpr,
):  # fmt: skip
    follow()
    group: tl.constexpr = n_heads // n_kv_heads
    tokens: tl.constexpr = rows // group
    this = n_tiles - 1 - tl.program_id(0)  # late tiles see the most keys: they begin first
    kv_head = tl.program_id(1)
    s, s_end = 0, n_sequences - 1
    while s < s_end:  # the last sequence whose tiles do not begin after this one
        middle = (s + s_end + 1) // 2
        if tl.load(query_start_ptr + middle) // tokens + middle <= this:
            s = middle
        else:
            s_end = middle - 1
    query_start = tl.load(query_start_ptr + s)
    n_tokens = tl.load(query_start_ptr + s + 1) - query_start
    first = (this - query_start // tokens - s) * tokens
    if (n_tokens <= longer_than) | (first >= n_tokens):
        return

    r = tl.arange(0, rows)
    dims = tl.arange(0, block_d)
    token = first + r // group
    valid = (token < n_tokens) & (r < tokens * group)
    head = kv_head * group + r % group
    at = ((query_start + token).to(tl.int64) * n_heads + head)[:, None] * head_dim + dims[None, :]
    inside = valid[:, None] & (dims < head_dim)[None, :]
    q = tl.load(q_ptr + at, mask=inside, other=0.0).to(k_ptr.dtype.element_ty)

    before = tl.load(seq_lens_ptr + s) - n_tokens
    first_position = before + first
    last_position = before + tl.minimum(first + tokens, n_tokens) - 1
    positions = tl.minimum(before + token, last_position)
    low = 0
    begin = 0
    whole_begin = 0
    end = last_position + 1
    if window:
        low = tl.maximum(first_position - window + 1, 0)
        begin = low // keys * keys
        whole_begin = tl.minimum(tl.cdiv(tl.maximum(last_position - window + 1, 0), keys) * keys, end)
    whole_end = tl.maximum((first_position + 1) // keys * keys, whole_begin)

    table_ptr = tables_ptr + s * table_width.to(tl.int64)
    if sinks_ptr is None:
        peak = tl.full((rows,), float("-inf"), tl.float32)
        total = tl.zeros((rows,), tl.float32)
    else:
        peak = tl.load(sinks_ptr + head).to(tl.float32) * _LOG2_E
        total = tl.full((rows,), 1.0, tl.float32)
    acc = tl.zeros((rows, block_d), tl.float32)
    if window:
        peak, total, acc = visit(
            q, peak, total, acc, positions, begin, whole_begin, low, k_ptr, v_ptr, table_ptr, kv_head, dims,
            n_kv_heads, head_dim, window, keys, True,
        )  # fmt: skip
    peak, total, acc = visit(
        q, peak, total, acc, positions, whole_begin, whole_end, low, k_ptr, v_ptr, table_ptr, kv_head, dims,
        n_kv_heads, head_dim, window, keys, False,
    )  # fmt: skip
    peak, total, acc = visit(
        q, peak, total, acc, positions, whole_end, end, low, k_ptr, v_ptr, table_ptr, kv_head, dims,
        n_kv_heads, head_dim, window, keys, True,
    )  # fmt: skip
    tl.store(y_ptr + at, (acc / total[:, None]).to(y_ptr.dtype.element_ty), mask=inside)
