"""Attention of the newest tokens: the keys of a sequence are split between programs, whose results are then combined.

Where a sequence is cut depends on its own length alone, so its neighbours change no bit. Lengths are read on the device
and the grid depends on shapes alone, so that a recorded step can be replayed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.attention_tile import LOG2_E, visit
from gristmill.ops.triton.common import cdiv, chained, follow, is_roomy, tile
from gristmill.ops.triton.kv import KvLayer

Tensor = torch.Tensor
_LOG2_E = tl.constexpr(LOG2_E.value)

_SPLIT = 128  # keys of one program at least


def most_tokens(n_heads: int, n_kv_heads: int) -> int:
    """How many new tokens a sequence may have here: as many as fill the smallest tile of a tensor core, and up to 4."""
    return max(1, min(4, 16 // (n_heads // n_kv_heads)))


def attend(
    q: Tensor, layer: KvLayer, query_start: Tensor, seq_lens: Tensor, block_tables: Tensor,
    window: int, sinks: Tensor | None, y: Tensor,
) -> None:  # fmt: skip
    """What `attention.attention` says, into y, for the sequences with at most `most_tokens` tokens in this step."""
    k, v = layer
    n_kv_heads, head_dim = k.shape[1], k.shape[3]
    n_heads, n_sequences = q.shape[1] // head_dim, len(seq_lens)
    most = most_tokens(n_heads, n_kv_heads)
    n_slots = min(most, len(q) - n_sequences + 1)  # every sequence has a token
    most_splits = 32 if n_kv_heads >= 8 else 64
    block_d = tile(head_dim, 16)
    wide = k.element_size() == 4
    narrow = not wide and block_d <= 128
    small = 16 if wide and block_d > 128 else 32
    keys = 128 if narrow and is_roomy() else 64 if narrow else small  # as far as shared memory holds them
    farthest = block_tables.shape[1] * 16
    if window:
        farthest = min(farthest, window + most + _SPLIT)
    n_splits = min(most_splits, cdiv(farthest, _SPLIT))
    parts = torch.empty((n_sequences * n_slots, n_heads, n_splits, head_dim), dtype=torch.float32, device=q.device)
    peaks, totals = (torch.empty(parts.shape[:3], dtype=torch.float32, device=q.device) for _ in range(2))
    _attend_split[(n_splits, n_kv_heads, n_sequences)](
        q, k, v, query_start, seq_lens, block_tables, sinks, parts, peaks, totals, block_tables.shape[1], n_splits,
        n_slots, most, most_splits, n_heads, n_kv_heads, head_dim, window, tile(n_heads // n_kv_heads, 16),
        keys, block_d, _SPLIT, num_warps=4, num_stages=3, **chained(),
    )  # fmt: skip
    _combine[(n_sequences * n_slots, n_heads)](
        query_start, seq_lens, parts, peaks, totals, y, n_splits, n_slots, most, most_splits, n_heads, head_dim,
        window, block_d, _SPLIT, num_warps=4, **chained(),
    )  # fmt: skip


@triton.jit
def _span(seq_len, n_tokens, window: tl.constexpr, most_splits: tl.constexpr, least: tl.constexpr):
    """(the first key that is seen, where the first program begins, how many keys each has)."""
    low = 0
    if window:
        low = tl.maximum(seq_len - n_tokens - window + 1, 0)
    begin = low // least * least
    size = tl.cdiv(tl.cdiv(seq_len - begin, most_splits), least) * least
    return low, begin, tl.maximum(size, least)


@triton.jit(do_not_specialize=["table_width", "n_splits", "n_slots"])
def _attend_split(
    q_ptr, k_ptr, v_ptr, query_start_ptr, seq_lens_ptr, tables_ptr, sinks_ptr, parts_ptr, peaks_ptr, totals_ptr,
    table_width, n_splits, n_slots, most_tokens: tl.constexpr, most_splits: tl.constexpr,
    n_heads: tl.constexpr, n_kv_heads: tl.constexpr, head_dim: tl.constexpr, window: tl.constexpr, rows: tl.constexpr,
    keys: tl.constexpr, block_d: tl.constexpr, least: tl.constexpr,
):  # fmt: skip
    follow()
    group: tl.constexpr = n_heads // n_kv_heads
    split = tl.program_id(0)
    kv_head = tl.program_id(1)
    s = tl.program_id(2)
    query_start = tl.load(query_start_ptr + s)
    n_tokens = tl.load(query_start_ptr + s + 1) - query_start
    seq_len = tl.load(seq_lens_ptr + s)
    low, begin, size = _span(seq_len, n_tokens, window, most_splits, least)
    begin += split * size
    if (n_tokens > most_tokens) | (begin >= seq_len):
        return

    r = tl.arange(0, rows)
    dims = tl.arange(0, block_d)
    token = r // group
    head = kv_head * group + r % group
    valid = token < n_tokens
    at = ((query_start + token).to(tl.int64) * n_heads + head)[:, None] * head_dim + dims[None, :]
    inside = valid[:, None] & (dims < head_dim)[None, :]
    q = tl.load(q_ptr + at, mask=inside, other=0.0).to(k_ptr.dtype.element_ty)
    positions = seq_len - n_tokens + tl.minimum(token, n_tokens - 1)

    peak = tl.full((rows,), float("-inf"), tl.float32)
    total = tl.zeros((rows,), tl.float32)
    if sinks_ptr is not None:  # noqa: SIM102 (known when the kernel is compiled, unlike what follows)
        if split == 0:
            peak = tl.load(sinks_ptr + head).to(tl.float32) * _LOG2_E
            total = total + 1.0
    acc = tl.zeros((rows, block_d), tl.float32)
    peak, total, acc = visit(
        q, peak, total, acc, positions, begin, tl.minimum(begin + size, seq_len), low, k_ptr, v_ptr,
        tables_ptr + s.to(tl.int64) * table_width, kv_head, dims, n_kv_heads, head_dim, window, keys, True,
    )  # fmt: skip
    part = ((s * n_slots + token).to(tl.int64) * n_heads + head) * n_splits + split
    tl.store(parts_ptr + part[:, None] * head_dim + dims[None, :], acc, mask=inside)
    tl.store(peaks_ptr + part, peak, mask=valid)
    tl.store(totals_ptr + part, total, mask=valid)


@triton.jit(do_not_specialize=["n_splits", "n_slots"])
def _combine(
    query_start_ptr, seq_lens_ptr, parts_ptr, peaks_ptr, totals_ptr, y_ptr, n_splits, n_slots,
    most_tokens: tl.constexpr, most_splits: tl.constexpr, n_heads: tl.constexpr, head_dim: tl.constexpr,
    window: tl.constexpr, block_d: tl.constexpr, least: tl.constexpr,
):  # fmt: skip
    """Sums over as many splits as there can ever be: that their order is the same for every length and table."""
    follow()
    slot = tl.program_id(0)
    head = tl.program_id(1)
    s = slot // n_slots
    token = slot % n_slots
    query_start = tl.load(query_start_ptr + s)
    n_tokens = tl.load(query_start_ptr + s + 1) - query_start
    seq_len = tl.load(seq_lens_ptr + s)
    if (n_tokens > most_tokens) | (token >= n_tokens):
        return
    if seq_len == 0:  # padding
        slot = 0
        n_tokens = tl.load(query_start_ptr + 1) - tl.load(query_start_ptr)
        seq_len = tl.load(seq_lens_ptr)
    _low, begin, size = _span(seq_len, n_tokens, window, most_splits, least)
    split = tl.arange(0, most_splits)
    used = split < tl.cdiv(seq_len - begin, size)
    dims = tl.arange(0, block_d)
    part = (slot.to(tl.int64) * n_heads + head) * n_splits + split
    peaks = tl.load(peaks_ptr + part, mask=used, other=float("-inf"))
    weights = tl.exp2(peaks - tl.max(peaks))
    total = tl.sum(weights * tl.load(totals_ptr + part, mask=used, other=0.0))
    inside = used[:, None] & (dims < head_dim)[None, :]
    parts = tl.load(parts_ptr + part[:, None] * head_dim + dims[None, :], mask=inside, other=0.0)
    y = tl.sum(parts * weights[:, None], axis=0) / total
    to = y_ptr + ((query_start + token).to(tl.int64) * n_heads + head) * head_dim + dims
    tl.store(to, y.to(y_ptr.dtype.element_ty), mask=dims < head_dim)
