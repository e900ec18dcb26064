"""From a batch of one token of each sequence to the one after it, in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from gristmill.ops.interface import BLOCK_SIZE, Begun
from gristmill.ops.triton.common import chained, follow, tile
from gristmill.types import Batch

_BLOCK_SIZE = tl.constexpr(BLOCK_SIZE)


def advance(batch: Batch, ids: torch.Tensor, begun: Begun) -> None:
    """See `interface.Ops.advance`. The ids int32 [S] stay on the device; what `begun` lists is copied there. Nothing
    waits for the device. Padding (slots below 0, sequences of length 0) stays that."""
    n = len(ids)
    block = tile(n, 64)
    arrays = batch.tokens, batch.positions, batch.seq_lens, batch.next_positions
    _next_tokens[(1,)](*arrays, ids, n, block, num_warps=1, **chained())
    for slots, table, new in zip(batch.slots, batch.block_tables, begun, strict=True):
        blocks = _uploaded(new, slots.device) if new else slots
        _next_slots[(1,)](batch.positions, slots, table, blocks, n, table.shape[1], block, num_warps=1, **chained())


def _uploaded(blocks: Sequence[int], device: torch.device) -> torch.Tensor:
    """From pinned memory, as any other copy would first wait for the step that runs."""
    return torch.tensor(blocks, dtype=torch.int32, pin_memory=device.type == "cuda").to(device, non_blocking=True)


@triton.jit(do_not_specialize=["n"])
def _next_tokens(tokens, positions, seq_lens, next_positions, ids, n, S: tl.constexpr):
    follow()
    s = tl.arange(0, S)
    inside = s < n
    tl.store(tokens + s, tl.maximum(tl.load(ids + s, mask=inside), 0), mask=inside)
    tl.store(positions + s, tl.load(positions + s, mask=inside) + 1, mask=inside)
    length = tl.load(seq_lens + s, mask=inside, other=0)
    tl.store(seq_lens + s, length + 1, mask=inside & (length > 0))
    tl.store(next_positions + s, tl.load(next_positions + s, mask=inside) + 1, mask=inside)


@triton.jit(do_not_specialize=["n"])
def _next_slots(positions, slots, table, new, n, width, S: tl.constexpr):
    """Where a position begins a block, the next of `new` goes into the sequence's table [S, width]."""
    follow()
    s = tl.arange(0, S)
    inside = (s < n) & (tl.load(slots + s, mask=s < n, other=-1) >= 0)
    position = tl.load(positions + s, mask=inside, other=1)
    place = s * width + position // _BLOCK_SIZE
    begins = (position % _BLOCK_SIZE == 0) & inside
    which = tl.cumsum(begins.to(tl.int32), axis=0) - 1
    fresh = tl.load(new + which, mask=begins, other=0)
    block = tl.where(begins, fresh, tl.load(table + place, mask=inside, other=0))
    tl.store(table + place, block, mask=begins)
    tl.store(slots + s, block * _BLOCK_SIZE + position % _BLOCK_SIZE, mask=inside)
