"""Chooses a token for each row of logits, on the device, and each row as its own parameters say."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.interface import NO_ID
from gristmill.ops.triton.adjust import adjust
from gristmill.ops.triton.common import chained, follow, tile
from gristmill.ops.triton.random import uniform
from gristmill.ops.triton.search import above_keys, head_end, key_of, lowest_key, read, weight_from
from gristmill.ops.triton.survey import CHUNK, WAYS, greedy, row_peak, shortlist, survey, weight_of
from gristmill.types import Batch

Tensor = torch.Tensor

_NO_ID = tl.constexpr(NO_ID)


def sample(logits: Tensor, batch: Batch) -> Tensor:
    """One id for each row of logits [R, vocab_size], int32 [R]; see `reference.ReferenceOps.sample`.

    logits  float32, bfloat16 or float16, of less than 2^24 ids; they are not changed
    batch   its sampling arrays as `types.Batch` says, on the device; seeds and masks may be int64 and int32 of the
            same bits
    """
    n_rows, vocab_size = logits.shape
    chosen = torch.empty(n_rows, dtype=torch.int32, device=logits.device)
    if not n_rows:
        return chosen
    logits = adjust(logits, batch)
    seen = survey(logits, batch.temperature, batch.top_k, batch.min_p)
    short = shortlist(logits, seen, batch.temperature, batch.top_k, batch.top_p)
    n_chunks = seen.peaks.shape[1]
    _choose[(n_rows,)](
        logits, batch.temperature, batch.top_k, batch.top_p, batch.seeds, batch.next_positions, seen.peaks,
        seen.bests, seen.weights, short.ids, short.sizes, short.lows, short.heads, chosen, vocab_size,
        n_chunks, short.ids.shape[1], tile(n_chunks), CHUNK, WAYS, 512, num_warps=8, **chained(),
    )  # fmt: skip
    return chosen


@triton.jit
def _choose(
    logits_ptr, temperature_ptr, top_k_ptr, top_p_ptr, seeds_ptr, positions_ptr, peaks_ptr, bests_ptr, weights_ptr,
    list_ptr, sizes_ptr, lows_ptr, heads_ptr, chosen_ptr, vocab_size, n_chunks, most, chunks: tl.constexpr,
    chunk: tl.constexpr, ways: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * vocab_size
    list_ptr += row * most
    peak = row_peak(peaks_ptr, row, n_chunks, chunks)
    c = tl.arange(0, chunks)
    at_peak = (c < n_chunks) & (tl.load(peaks_ptr + row * n_chunks + c, mask=c < n_chunks, other=0.0) == peak)
    best = tl.min(tl.load(bests_ptr + row * n_chunks + c, mask=at_peak, other=vocab_size - 1))
    best = tl.where(peak == float("-inf"), _NO_ID, best)
    tl.store(chosen_ptr + row, best)
    temperature = tl.load(temperature_ptr + row)
    if greedy(temperature, tl.load(top_k_ptr + row)) | (best == _NO_ID):
        return

    top_p = tl.load(top_p_ptr + row).to(tl.float64)
    size = tl.load(sizes_ptr + row)
    listed = size > 0
    begin = 0
    end = tl.where(listed, size, vocab_size)
    chunk_at = weights_ptr + (row * n_chunks + c) * ways
    chunk_weights = tl.load(chunk_at, mask=c < n_chunks, other=0.0).to(tl.float64)
    total = tl.sum(chunk_weights)
    last = lowest_key(tl.load(lows_ptr + row))
    if size != 0:
        high = above_keys(peak)
        head = tl.load(heads_ptr + row)
        if head > 0:
            last = head_end(last, high, head, True, end, list_ptr, logits_ptr, listed, peak, temperature, tile)
            total = weight_from(last, end, list_ptr, logits_ptr, listed, peak, temperature, tile)
        if top_p < 1:
            goal = top_p * total
            last = head_end(last, high, goal, False, end, list_ptr, logits_ptr, listed, peak, temperature, tile)
            total = weight_from(last, end, list_ptr, logits_ptr, listed, peak, temperature, tile)
    target = total * uniform(tl.load(seeds_ptr + row), tl.load(positions_ptr + row))
    before = tl.zeros((), tl.float64)
    if size == 0:  # all that is not too light: the chunks' weights tell in which of them it is
        up_to = tl.cumsum(chunk_weights, axis=0)
        heavy = tl.max(tl.where(chunk_weights > 0, c, 0))
        within = tl.minimum(tl.min(tl.where(up_to > target, c, chunks)), heavy)
        before = tl.sum(tl.where(c == within, up_to - chunk_weights, 0.0))
        begin = within * chunk
        end = tl.minimum(begin + chunk, vocab_size)

    found = False
    while (begin < end) & (found == 0):
        i = begin + tl.arange(0, tile)
        ids, x = read(i, end, list_ptr, logits_ptr, listed)
        kept = (i < end) & (key_of(x, ids) >= last)
        weights = tl.where(kept, weight_of(x, peak, temperature), 0.0).to(tl.float64)
        over = kept & (before + tl.cumsum(weights, axis=0) > target)
        found = tl.max(over.to(tl.int32)) > 0
        best = tl.where(found, tl.min(tl.where(over, ids, vocab_size)), tl.max(tl.where(kept, ids, best)))
        before += tl.sum(weights)
        begin += tile
    tl.store(chosen_ptr + row, best)
