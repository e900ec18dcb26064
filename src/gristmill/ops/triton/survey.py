"""A first look at rows of logits, in chunks that many programs share: where is the weight, and which ids matter?

Every row gets 32 thresholds between its peak and what is too light to be chosen, close to one another near the peak. Of
each chunk is noted how many ids reach each threshold, and their weight. So one more pass lists the few ids among which
the choice is made, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gristmill.ops.interface import NO_ID
from gristmill.ops.triton.common import cdiv, chained, follow, tile

Tensor = torch.Tensor

CHUNK = 2048
WAYS = 32
_NO_ID = tl.constexpr(NO_ID)
_SLICE = 128  # ids that meet all thresholds at once
CAPACITY = 8192
"""Ids that a row's list holds; where more are needed the row itself is read."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Of R rows in C chunks: peaks float32 [R, C], bests int32 [R, C] (the first id at the peak; where a logit is NaN
    or infinity, the peak is infinity and the best NO_ID), thresholds float32 [R, 32] from the lowest, counts int32 and
    weights float32 [R, C, 32]: of the ids that reach each threshold."""

    peaks: Tensor
    bests: Tensor
    thresholds: Tensor
    counts: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Of R rows: what a choice has to read.

    ids    int32 [R, CAPACITY], in order
    sizes  int32 [R]: how many there are; -1: too many, the row itself is to be read; 0: the row, as all are wanted
    lows   float32 [R]: ids with lower logits are not wanted
    heads  int32 [R]: how many ids top_k leaves; 0: it leaves all
    """

    ids: Tensor
    sizes: Tensor
    lows: Tensor
    heads: Tensor


def survey(logits: Tensor, temperature: Tensor | None, top_k: Tensor | None, min_p: Tensor | None) -> Survey:
    """logits [R, vocab_size]; see `types.Batch` for the rest. Without a temperature it is 1 and nothing too light; rows
    that are greedy get their peaks alone."""
    n_rows, vocab_size = logits.shape
    n_chunks, device = cdiv(vocab_size, CHUNK), logits.device
    peaks = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=device)
    bests = torch.empty((n_rows, n_chunks), dtype=torch.int32, device=device)
    thresholds = torch.empty((n_rows, WAYS), dtype=torch.float32, device=device)
    counts = torch.empty((n_rows, n_chunks, WAYS), dtype=torch.int32, device=device)
    weights = torch.empty(counts.shape, dtype=torch.float32, device=device)
    grid = (n_rows, n_chunks)
    _find_peaks[grid](logits, peaks, bests, vocab_size, n_chunks, CHUNK, num_warps=4, **chained())
    _tabulate[grid](
        logits, temperature, top_k, min_p, peaks, thresholds, counts, weights, vocab_size, n_chunks, tile(n_chunks),
        CHUNK, _SLICE, WAYS, num_warps=4, **chained(),
    )  # fmt: skip
    return Survey(peaks, bests, thresholds, counts, weights)


def shortlist(
    logits: Tensor, seen: Survey, temperature: Tensor | None, top_k: Tensor | int, top_p: Tensor | None
) -> Shortlist:
    """At least the ids that top_k and then top_p leave; without either, the row itself."""
    (n_rows, vocab_size), n_chunks = logits.shape, seen.peaks.shape[1]
    device, most = logits.device, min(CAPACITY, vocab_size)
    ids = torch.empty((n_rows, most), dtype=torch.int32, device=device)
    sizes, heads = (torch.empty(n_rows, dtype=torch.int32, device=device) for _ in range(2))
    lows = torch.empty(n_rows, dtype=torch.float32, device=device)
    befores = torch.empty((n_rows, n_chunks), dtype=torch.int32, device=device)
    each = top_k if isinstance(top_k, torch.Tensor) else None
    _plan[(n_rows,)](
        temperature, each, top_p, seen.thresholds, seen.counts, seen.weights, sizes, lows, heads, befores,
        n_chunks, top_k if each is None else 0, most, tile(n_chunks), WAYS, num_warps=4, **chained(),
    )  # fmt: skip
    _list[(n_rows, n_chunks)](
        logits, sizes, lows, befores, ids, vocab_size, n_chunks, most, CHUNK, num_warps=4, **chained()
    )
    return Shortlist(ids, sizes, lows, heads)


@triton.jit
def weight_of(x, peak, temperature):
    """How likely a logit is beside the peak."""
    return tl.exp((x - peak) / temperature)


@triton.jit
def greedy(temperature, top_k):
    return (temperature == 0) | (top_k == 1)


@triton.jit
def row_peak(peaks_ptr, row, n_chunks, chunks: tl.constexpr):
    c = tl.arange(0, chunks)
    return tl.max(tl.load(peaks_ptr + row * n_chunks + c, mask=c < n_chunks, other=float("-inf")))


@triton.jit
def _find_peaks(logits_ptr, peaks_ptr, bests_ptr, vocab_size, n_chunks, chunk: tl.constexpr):
    follow()
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    ids = c * chunk + tl.arange(0, chunk)
    inside = ids < vocab_size
    x = tl.load(logits_ptr + row * vocab_size + ids, mask=inside, other=float("-inf")).to(tl.float32)
    x = tl.where(x < float("inf"), x, float("inf"))  # NaN too
    peak = tl.max(x)
    best = tl.min(tl.where(inside & (x == peak), ids, vocab_size - 1))
    tl.store(peaks_ptr + row * n_chunks + c, peak)
    tl.store(bests_ptr + row * n_chunks + c, tl.where(peak == float("inf"), _NO_ID, best))


@triton.jit
def _tabulate(
    logits_ptr, temperature_ptr, top_k_ptr, min_p_ptr, peaks_ptr, thresholds_ptr, counts_ptr, weights_ptr, vocab_size,
    n_chunks, chunks: tl.constexpr, chunk: tl.constexpr, width: tl.constexpr, ways: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    peak = row_peak(peaks_ptr, row, n_chunks, chunks)
    peak = tl.where(tl.abs(peak) < float("inf"), peak, 0.0)  # otherwise nothing is chosen, and no number is to be NaN
    if temperature_ptr is None:
        temperature = 1.0
        floor = float("-inf")
    else:
        temperature = tl.load(temperature_ptr + row)
        if greedy(temperature, tl.load(top_k_ptr + row)):
            return
        min_p = tl.load(min_p_ptr + row)
        floor = peak + temperature * tl.where(min_p > 0, tl.log(tl.maximum(min_p, 1e-19)), -45.0)
    way = tl.arange(0, ways)
    share = (ways - way).to(tl.float32) / ways
    thresholds = tl.where(way == 0, floor, tl.maximum(peak - temperature * (45.0 * share * share), floor))
    if c == 0:
        tl.store(thresholds_ptr + row * ways + way, thresholds)
    count = tl.zeros((ways,), tl.int32)
    weight = tl.zeros((ways,), tl.float32)
    for begin in range(c * chunk, tl.minimum((c + 1) * chunk, vocab_size), width):
        ids = begin + tl.arange(0, width)
        inside = ids < vocab_size
        x = tl.load(logits_ptr + row * vocab_size + ids, mask=inside, other=float("-inf")).to(tl.float32)
        reached = inside[:, None] & (x[:, None] >= thresholds[None, :])
        count += tl.sum(reached.to(tl.int32), axis=0)
        weight += tl.sum(tl.where(reached, weight_of(x, peak, temperature)[:, None], 0.0), axis=0)
    at = (row * n_chunks + c) * ways + way
    tl.store(counts_ptr + at, count)
    tl.store(weights_ptr + at, weight)


@triton.jit(do_not_specialize=["top_k"])
def _plan(
    temperature_ptr, top_k_ptr, top_p_ptr, thresholds_ptr, counts_ptr, weights_ptr, sizes_ptr, lows_ptr, heads_ptr,
    befores_ptr, n_chunks, top_k, most: tl.constexpr, chunks: tl.constexpr, ways: tl.constexpr,
):  # fmt: skip
    """Finds the highest threshold that leaves enough, and where each chunk's ids that reach it are to be listed."""
    follow()
    row = tl.program_id(0).to(tl.int64)
    tl.store(sizes_ptr + row, 0)
    if top_k_ptr is not None:
        top_k = tl.load(top_k_ptr + row)
        if greedy(tl.load(temperature_ptr + row), top_k):
            return
        top_p = tl.load(top_p_ptr + row)
    else:
        top_p = tl.full((), 1.0, tl.float32)
    c = tl.arange(0, chunks)
    way = tl.arange(0, ways)
    real = c < n_chunks
    at = (row * n_chunks + c)[:, None] * ways + way[None, :]
    counts = tl.sum(tl.load(counts_ptr + at, mask=real[:, None], other=0), axis=0)
    weights = tl.sum(tl.load(weights_ptr + at, mask=real[:, None], other=0.0).to(tl.float64), axis=0)
    by_count = (top_k > 0) & (top_k < tl.max(counts))
    tl.store(heads_ptr + row, tl.where(by_count, top_k, 0))
    if by_count | (top_p < 1):
        reached = tl.where(by_count, counts >= top_k, weights >= top_p.to(tl.float64) * tl.max(weights))
        chosen = tl.max(tl.where(reached, way, 0))
        n = tl.sum(tl.where(way == chosen, counts, 0))
        tl.store(sizes_ptr + row, tl.where(n <= most, n, -1))
    else:
        chosen = 0
    here = tl.load(counts_ptr + (row * n_chunks + c) * ways + chosen, mask=real, other=0)
    tl.store(befores_ptr + row * n_chunks + c, tl.cumsum(here, axis=0) - here, mask=real)
    tl.store(lows_ptr + row, tl.load(thresholds_ptr + row * ways + chosen))


@triton.jit
def _list(
    logits_ptr, sizes_ptr, lows_ptr, befores_ptr, ids_ptr, vocab_size, n_chunks, most: tl.constexpr, chunk: tl.constexpr
):
    follow()
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    if tl.load(sizes_ptr + row) <= 0:
        return
    low = tl.load(lows_ptr + row)
    ids = c * chunk + tl.arange(0, chunk)
    inside = ids < vocab_size
    x = tl.load(logits_ptr + row * vocab_size + ids, mask=inside, other=float("-inf")).to(tl.float32)
    wanted = inside & (x >= low)
    at = tl.load(befores_ptr + row * n_chunks + c) + tl.cumsum(wanted.to(tl.int32), axis=0) - 1
    tl.store(ids_ptr + row * most + at, ids, mask=wanted)
