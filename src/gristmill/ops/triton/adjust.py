"""Logits with a batch's biases, penalties and masks: a copy, since the model's own are asked for too."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.common import cdiv, chained, follow
from gristmill.types import Batch

Tensor = torch.Tensor

_CHUNK = 2048


def adjust(logits: Tensor, batch: Batch) -> Tensor:
    """`reference.adjust` of every row: [R, vocab_size] -> float32 [R, vocab_size]; logits themselves where no row asks
    for a change. Listed ids outside the vocabulary are passed over."""
    listed, masked = len(batch.listed_start) > 0, len(batch.masks) > 0
    if not listed and not masked:
        return logits
    n_rows, vocab_size = logits.shape
    y = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    _adjust[(n_rows, cdiv(vocab_size, _CHUNK))](
        logits, y, batch.penalties if len(batch.penalties) else None, batch.listed_start if listed else None,
        batch.listed_ids, batch.listed_counts, batch.listed_bias, batch.masks if masked else None, vocab_size,
        batch.masks.shape[1] if masked else 0, _CHUNK, 256, num_warps=4, **chained(),
    )  # fmt: skip
    return y


@triton.jit
def _adjust(
    logits_ptr, y_ptr, penalties_ptr, start_ptr, ids_ptr, counts_ptr, bias_ptr, masks_ptr, vocab_size, n_words,
    chunk: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, vocab_size)
    logits_ptr += row * vocab_size
    y_ptr += row * vocab_size
    ids = begin + tl.arange(0, chunk)
    x = tl.load(logits_ptr + ids, mask=ids < end, other=0.0).to(tl.float32)
    tl.store(y_ptr + ids, _masked(x, ids, ids < end, masks_ptr, row * n_words), mask=ids < end)
    if start_ptr is not None:
        tl.debug_barrier()  # the listed ones are written once more, perhaps by other threads
        last = tl.load(start_ptr + row + 1)
        for i in range(tl.load(start_ptr + row), last, tile):
            at = i + tl.arange(0, tile)
            own = tl.load(ids_ptr + at, mask=at < last, other=-1)
            here = (own >= begin) & (own < end)
            z = tl.load(logits_ptr + own, mask=here, other=0.0).to(tl.float32)
            z += tl.load(bias_ptr + at, mask=here, other=0.0)
            count = tl.load(counts_ptr + at, mask=here, other=-1)
            if penalties_ptr is not None:
                repetition = tl.load(penalties_ptr + row * 3)
                taken = tl.load(penalties_ptr + row * 3 + 1) * (count > 0).to(tl.float32)
                taken += tl.load(penalties_ptr + row * 3 + 2) * count.to(tl.float32)
                z = tl.where(count >= 0, z * tl.where(z > 0, 1 / repetition, repetition) - taken, z)
            tl.store(y_ptr + own, _masked(z, own, here, masks_ptr, row * n_words), mask=here)


@triton.jit
def _masked(x, ids, inside, masks_ptr, row_at):
    if masks_ptr is not None:
        words = tl.load(masks_ptr + row_at + ids // 32, mask=inside, other=0)
        x = tl.where((words >> (ids % 32).to(words.dtype)) & 1 != 0, x, float("-inf"))
    return x
