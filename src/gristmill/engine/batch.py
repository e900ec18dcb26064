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
    starts, lens, slots = [0], list[int](), list[int]()
    tokens, positions, rows = list[int](), list[int](), list[int]()
    for part in parts:  # lists: for the few tokens of most steps they are several times faster than numpy
        blocks, begin = part.sequence.block_ids, part.sequence.n_computed
        end = begin + part.n_tokens
        tokens += part.sequence.tokens[begin:end]
        positions += range(begin, end)
        slots += [blocks[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(begin, end)]
        starts.append(len(tokens))
        rows += range(len(tokens) - part.n_logits, len(tokens))
        lens.append(end)
    width = 1 << (-(-max(lens) // BLOCK_SIZE) - 1).bit_length()  # few widths, so that steps have few shapes
    tables = np.zeros((len(parts), width), np.int32)
    for table, part, n in zip(tables, parts, lens, strict=True):
        n_blocks = -(-n // BLOCK_SIZE)
        table[:n_blocks] = part.sequence.block_ids[:n_blocks]
    wanting = [part.sequence for part in parts for _ in range(part.n_logits)]
    params = [s.params for s in wanting]
    return Batch(
        tokens=ops.array(np.array(tokens, np.int32)),
        positions=ops.array(np.array(positions, np.int32)),
        slots=ops.array(np.array(slots, np.int32)),
        query_start=ops.array(np.array(starts, np.int32)),
        seq_lens=ops.array(np.array(lens, np.int32)),
        block_tables=ops.array(tables),
        sample_rows=ops.array(np.array(rows, np.int32)),
        temperature=ops.array(np.array([p.temperature for p in params], np.float32)),
        top_k=ops.array(np.array([p.top_k for p in params], np.int32)),
        top_p=ops.array(np.array([p.top_p for p in params], np.float32)),
        min_p=ops.array(np.array([p.min_p for p in params], np.float32)),
        seeds=ops.array(np.array([s.seed for s in wanting], np.uint64)),
        next_positions=ops.array(np.array([positions[row] + 1 for row in rows], np.int64)),
    )
