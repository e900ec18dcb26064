"""Log-probabilities of chosen and of the likeliest tokens, on the device."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.common import chained, follow, tile
from gristmill.ops.triton.search import above_keys, head_end, id_of, key_of, lowest_key, read
from gristmill.ops.triton.survey import CHUNK, WAYS, row_peak, shortlist, survey

Tensor = torch.Tensor


def logprobs(logits: Tensor, ids: Tensor, n_top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of logits [R, vocab_size]: the log-probability of ids int32 [R], float64 [R]; their rank from 1, int32 [R]; and
    the n_top likeliest ids in order, int32 [R, n_top], with theirs, float64 [R, n_top]. n_top is at most vocab_size."""
    (n_rows, vocab_size), device = logits.shape, logits.device
    chosen = torch.empty(n_rows, dtype=torch.float64, device=device)
    ranks = torch.empty(n_rows, dtype=torch.int32, device=device)
    top_ids = torch.empty((n_rows, n_top), dtype=torch.int32, device=device)
    top = torch.empty((n_rows, n_top), dtype=torch.float64, device=device)
    if not n_rows:
        return chosen, ranks, top_ids, top
    seen = survey(logits, None, None, None)
    n_chunks = seen.peaks.shape[1]
    sums = torch.empty(n_rows, dtype=torch.float64, device=device)
    ahead = torch.empty((n_rows, n_chunks), dtype=torch.int32, device=device)
    _count_ahead[(n_rows, n_chunks)](logits, ids, ahead, vocab_size, n_chunks, CHUNK, num_warps=4, **chained())
    _finish[(n_rows,)](
        logits, ids, seen.peaks, seen.weights, ahead, sums, chosen, ranks, vocab_size, n_chunks, tile(n_chunks), WAYS,
        num_warps=4, **chained(),
    )  # fmt: skip
    if n_top:
        short = shortlist(logits, seen, None, n_top, None)
        block = 32 if n_top <= 32 else 128 if n_top <= 128 else tile(n_top, 1024)  # few kernels, as each is compiled
        keys = torch.empty((n_rows, block), dtype=torch.int64, device=device)
        _find_top[(n_rows,)](
            logits, seen.peaks, sums, short.ids, short.sizes, short.lows, keys, top_ids, top, vocab_size, n_chunks,
            short.ids.shape[1], n_top, tile(n_chunks), block, 512, num_warps=8, **chained(),
        )  # fmt: skip
    return chosen, ranks, top_ids, top


@triton.jit
def _count_ahead(logits_ptr, ids_ptr, ahead_ptr, vocab_size, n_chunks, chunk: tl.constexpr):
    """How many ids of a chunk come before the chosen one."""
    follow()
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    chosen = tl.load(ids_ptr + row)
    own = tl.load(logits_ptr + row * vocab_size + chosen).to(tl.float32)
    ids = c * chunk + tl.arange(0, chunk)
    x = tl.load(logits_ptr + row * vocab_size + ids, mask=ids < vocab_size, other=float("-inf")).to(tl.float32)
    before = (ids < vocab_size) & ((x > own) | ((x == own) & (ids < chosen)))
    tl.store(ahead_ptr + row * n_chunks + c, tl.sum(before.to(tl.int32)))


@triton.jit
def _finish(
    logits_ptr, ids_ptr, peaks_ptr, weights_ptr, ahead_ptr, sums_ptr, chosen_ptr, ranks_ptr, vocab_size, n_chunks,
    chunks: tl.constexpr, ways: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, chunks)
    real = c < n_chunks
    chunk = row * n_chunks + c
    weights = tl.load(weights_ptr + chunk * ways, mask=real, other=0.0).to(tl.float64)
    log_sum = row_peak(peaks_ptr, row, n_chunks, chunks).to(tl.float64) + tl.log(tl.sum(weights))
    own = tl.load(logits_ptr + row * vocab_size + tl.load(ids_ptr + row)).to(tl.float64)
    tl.store(sums_ptr + row, log_sum)
    tl.store(chosen_ptr + row, own - log_sum)
    tl.store(ranks_ptr + row, tl.sum(tl.load(ahead_ptr + chunk, mask=real, other=0)) + 1)


@triton.jit(do_not_specialize=["n_top"])
def _find_top(
    logits_ptr, peaks_ptr, sums_ptr, list_ptr, sizes_ptr, lows_ptr, keys_ptr, top_ids_ptr, top_ptr, vocab_size,
    n_chunks, most, n_top, chunks: tl.constexpr, block: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Collects the keys of the first n_top ids, then sorts them."""
    follow()
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * vocab_size
    list_ptr += row * most
    keys_ptr += row * block
    peak = row_peak(peaks_ptr, row, n_chunks, chunks)
    size = tl.load(sizes_ptr + row)
    listed = size > 0
    end = tl.where(listed, size, vocab_size)
    last = lowest_key(tl.load(lows_ptr + row))
    if n_top < vocab_size:
        last = head_end(
            last, above_keys(peak), n_top, True, end, list_ptr, logits_ptr, listed, peak, 1.0, tile
        )  # fmt: skip
    n = 0
    for begin in range(0, end, tile):
        i = begin + tl.arange(0, tile)
        ids, x = read(i, end, list_ptr, logits_ptr, listed)
        keys = key_of(x, ids)
        wanted = (i < end) & (keys >= last)
        place = n + tl.cumsum(wanted.to(tl.int32), axis=0) - 1
        tl.store(keys_ptr + place, keys, mask=wanted & (place < block))  # of a row of NaN all are wanted
        n += tl.sum(wanted.to(tl.int32))
    tl.debug_barrier()  # keys were stored by other threads
    k = tl.arange(0, block)
    ids = id_of(tl.sort(tl.load(keys_ptr + k, mask=k < n_top, other=-(2**63)), descending=True))
    tl.store(top_ids_ptr + row * n_top + k, ids, mask=k < n_top)
    top = tl.load(logits_ptr + ids, mask=k < n_top, other=0.0).to(tl.float64) - tl.load(sums_ptr + row)
    tl.store(top_ptr + row * n_top + k, top, mask=k < n_top)
