"""Batches for tests of attention: sequences whose blocks lie in random order."""

from __future__ import annotations

import numpy as np

from gristmill.ops.interface import BLOCK_SIZE
from gristmill.types import Batch


def batch_of(lengths: list[tuple[int, int]], n_blocks: int, seed: int = 0) -> Batch:
    """Sequences of (tokens before this step, tokens in it) whose blocks lie in random order."""
    free = list(np.random.default_rng(seed).permutation(n_blocks))
    width = max(-(-(done + new) // BLOCK_SIZE) for done, new in lengths)
    tables = np.zeros((len(lengths), width), np.int32)
    positions, slots = [], []
    for s, (done, new) in enumerate(lengths):
        for b in range(-(-(done + new) // BLOCK_SIZE)):
            tables[s, b] = free.pop()
        p = np.arange(done, done + new)
        positions.append(p)
        slots.append(tables[s, p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE)
    starts = np.cumsum([0, *(new for _, new in lengths)]).astype(np.int32)
    lens = np.array([done + new for done, new in lengths], np.int32)
    none = np.zeros(0, np.float32)
    flat = np.concatenate(positions).astype(np.int32)
    where = np.concatenate(slots).astype(np.int32)
    return Batch(flat, flat, (where,), starts, lens, (tables,), *[none] * 13)
