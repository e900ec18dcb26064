"""Writes the tokens that a step computes into one Batch. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.engine.adjust import Adjuster
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import Batch

_NONE: Mapping[int, Adjuster] = {}


def build(parts: Many[Part], ops: Ops, adjusters: Mapping[int, Adjuster] = _NONE) -> Batch:
    """One flat batch of all parts in order. Their blocks must have been allocated.

    adjusters  by request id, of those whose logits are to be changed
    """
    starts, lens = [0], list[int]()
    tokens, positions, rows = list[int](), list[int](), list[int]()
    for part in parts:  # lists: for the few tokens of most steps they are several times faster than numpy
        sequence = part.sequence
        begin, end = sequence.n_computed, sequence.n_computed + part.n_tokens
        tokens += sequence.tokens[begin:end]
        if end > len(sequence.tokens):
            tokens += sequence.drafts[: end - len(sequence.tokens)]
        positions += range(begin, end)
        starts.append(len(tokens))
        rows += range(len(tokens) - part.n_logits, len(tokens))
        lens.append(end)
    groups = range(len(parts[0].sequence.block_ids))
    wanting = [part.sequence for part in parts for _ in range(part.n_logits)]
    params = [s.params for s in wanting]

    def array(values: Iterable[Any], kind: type) -> Any:
        return ops.array(np.array(values, kind))

    return Batch(
        tokens=array(tokens, np.int32),
        positions=array(positions, np.int32),
        slots=tuple(array(_slots(parts, lens, group), np.int32) for group in groups),
        query_start=array(starts, np.int32),
        seq_lens=array(lens, np.int32),
        block_tables=tuple(ops.array(_tables(parts, lens, group)) for group in groups),
        sample_rows=array(rows, np.int32),
        temperature=array([p.temperature for p in params], np.float32),
        top_k=array([p.top_k for p in params], np.int32),
        top_p=array([p.top_p for p in params], np.float32),
        min_p=array([p.min_p for p in params], np.float32),
        seeds=array([s.seed for s in wanting], np.uint64),
        next_positions=array([positions[row] + 1 for row in rows], np.int64),
        **_adjustments(wanting, adjusters, ops),
    )


def advance(batch: Batch, parts: Many[Part], chosen: list[int], ops: Ops) -> Batch | None:
    """The batch after `batch`, which had one token of each of the same sequences, now that `chosen` have followed.

    What did not change are the same arrays. None where the block tables have become too narrow: then `build` it.
    """
    positions, seq_lens = ops.get(batch.positions) + 1, ops.get(batch.seq_lens) + 1
    slots, tables = [ops.get(array) + 1 for array in batch.slots], batch.block_tables
    begun = [row for row, position in enumerate(positions.tolist()) if not position % BLOCK_SIZE]  # a block
    if begun:
        widened = [np.array(ops.get(array)) for array in tables]
        if seq_lens.max() > widened[0].shape[1] * BLOCK_SIZE:
            return None
        for row in begun:
            index = positions[row] // BLOCK_SIZE
            for group, table in enumerate(parts[row].sequence.block_ids):
                slots[group][row] = table[index] * BLOCK_SIZE
                widened[group][row, index] = table[index]
        tables = tuple(ops.array(array) for array in widened)
    return Batch(  # `replace` would take as long as all of the above
        ops.array(np.array(chosen, np.int32)),
        ops.array(positions),
        tuple(ops.array(array) for array in slots),
        batch.query_start,
        ops.array(seq_lens),
        tables,
        batch.sample_rows,
        batch.temperature,
        batch.top_k,
        batch.top_p,
        batch.min_p,
        batch.seeds,
        ops.array(ops.get(batch.next_positions) + 1),
        batch.penalties,
        batch.listed_start,
        batch.listed_ids,
        batch.listed_counts,
        batch.listed_bias,
        batch.masks,
    )


def _slots(parts: Many[Part], lens: list[int], group: int) -> list[int]:
    slots = list[int]()
    for part, end in zip(parts, lens, strict=True):
        blocks = part.sequence.block_ids[group]
        slots += [blocks[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(end - part.n_tokens, end)]
    return slots


def _tables(parts: Many[Part], lens: list[int], group: int) -> NDArray[np.int32]:
    width = 1 << (-(-max(lens) // BLOCK_SIZE) - 1).bit_length()  # few widths, so that steps have few shapes
    tables = np.zeros((len(parts), width), np.int32)
    for table, part, n in zip(tables, parts, lens, strict=True):
        n_blocks = -(-n // BLOCK_SIZE)
        table[:n_blocks] = part.sequence.block_ids[group][:n_blocks]
    return tables


def _adjustments(wanting: list[Sequence], adjusters: Mapping[int, Adjuster], ops: Ops) -> dict[str, Any]:
    """The arrays of a batch that change logits, without elements where no row asks for them."""
    rows = [adjusters.get(sequence.request_id) for sequence in wanting] if adjusters else []
    penalties, start = list[tuple[float, float, float]](), [0]
    ids, counts, bias = list[int](), list[int](), list[float]()
    masks = np.zeros((0, 0), np.uint32)
    if any(rows):
        for row, (adjuster, sequence) in enumerate(zip(rows, wanting, strict=True)):
            p = sequence.params
            penalties.append((p.repetition_penalty, p.presence_penalty, p.frequency_penalty))
            if adjuster is not None:
                adjuster.list_ids(sequence, ids, counts, bias)
                if adjuster.mask is not None:
                    if not len(masks):
                        masks = np.full((len(rows), len(adjuster.mask)), 2**32 - 1, np.uint32)
                    masks[row] = adjuster.mask
            start.append(len(ids))
        padding = (
            (1 << (len(ids) - 1).bit_length()) - len(ids) if ids else 0
        )  # few sizes, so that steps have few shapes
        ids += [-1] * padding
        counts += [-1] * padding
        bias += [0.0] * padding
    return {
        "penalties": ops.array(np.array(penalties, np.float32).reshape(-1, 3)),
        "listed_start": ops.array(np.array(start if any(rows) else [], np.int32)),
        "listed_ids": ops.array(np.array(ids, np.int32)),
        "listed_counts": ops.array(np.array(counts, np.int32)),
        "listed_bias": ops.array(np.array(bias, np.float32)),
        "masks": ops.array(masks),
    }
