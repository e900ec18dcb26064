"""Writes the tokens that a step computes into one Batch. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from gristmill.engine.sequence import Sequence
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import Batch


@dataclass(frozen=True, slots=True)
class Part:
    """The next n_tokens of a sequence; logits are wanted for its last n_logits of these."""

    sequence: Sequence
    n_tokens: int
    n_logits: int


def build(parts: Many[Part], ops: Ops) -> Batch:
    """One flat batch of all parts in order. Their blocks must have been allocated."""
    starts = np.cumsum([0, *(part.n_tokens for part in parts)])
    lens = [part.sequence.n_computed + part.n_tokens for part in parts]
    width = 1 << (max(-(-n // BLOCK_SIZE) for n in lens) - 1).bit_length()  # few widths, so that steps have few shapes
    tables = np.zeros((len(parts), width), np.int32)
    for row, part, n in zip(tables, parts, lens, strict=True):
        n_blocks = -(-n // BLOCK_SIZE)
        row[:n_blocks] = part.sequence.block_ids[:n_blocks]
    positions = np.concatenate([np.arange(n - part.n_tokens, n) for part, n in zip(parts, lens, strict=True)])
    owner = np.repeat(np.arange(len(parts)), [part.n_tokens for part in parts])
    slots = tables[owner, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    tokens = [t for part, n in zip(parts, lens, strict=True) for t in part.sequence.tokens[n - part.n_tokens : n]]
    rows = [r for part, end in zip(parts, starts[1:], strict=True) for r in range(end - part.n_logits, end)]
    wanting = [part.sequence for part in parts for _ in range(part.n_logits)]
    params = [s.params for s in wanting]
    return Batch(
        tokens=ops.array(np.array(tokens, np.int32)),
        positions=ops.array(positions.astype(np.int32)),
        slots=ops.array(slots.astype(np.int32)),
        query_start=ops.array(starts.astype(np.int32)),
        seq_lens=ops.array(np.array(lens, np.int32)),
        block_tables=ops.array(tables),
        sample_rows=ops.array(np.array(rows, np.int32)),
        temperature=ops.array(np.array([p.temperature for p in params], np.float32)),
        top_k=ops.array(np.array([p.top_k for p in params], np.int32)),
        top_p=ops.array(np.array([p.top_p for p in params], np.float32)),
        min_p=ops.array(np.array([p.min_p for p in params], np.float32)),
        seeds=ops.array(np.array([s.seed for s in wanting], np.uint64)),
        next_positions=ops.array(positions[rows].astype(np.int64) + 1),
    )
