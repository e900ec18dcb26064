"""Writes the tokens that a step computes into one Batch. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.engine.adjust import Adjuster
from gristmill.engine.scheduler import Part
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import Batch

_NONE: Mapping[int, Adjuster] = {}


def build(parts: Many[Part], ops: Ops, adjusters: Mapping[int, Adjuster] = _NONE) -> Batch:
    """One flat batch of all parts in order. Their blocks must have been allocated. Of single tokens, padded to one of
    `ops.batch_sizes`.

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
    n_padding = _padding(parts, ops.batch_sizes)
    if n_padding:
        tokens += tokens[:1] * n_padding
        positions += positions[:1] * n_padding
        starts += range(len(parts) + 1, len(tokens) + 1)
        rows += range(len(parts), len(tokens))
        wanting += wanting[:1] * n_padding
    params = [s.params for s in wanting]

    def array(values: Iterable[Any], kind: type) -> Any:
        return ops.array(np.array(values, kind))

    return Batch(
        tokens=array(tokens, np.int32),
        positions=array(positions, np.int32),
        slots=tuple(array(_slots(parts, lens, group) + [-1] * n_padding, np.int32) for group in groups),
        query_start=array(starts, np.int32),
        seq_lens=array(lens + [0] * n_padding, np.int32),
        block_tables=tuple(ops.array(_tables(parts, lens, group, ops.least_blocks, n_padding)) for group in groups),
        sample_rows=array(rows, np.int32),
        temperature=array([p.temperature for p in params], np.float32),
        top_k=array([p.top_k for p in params], np.int32),
        top_p=array([p.top_p for p in params], np.float32),
        min_p=array([p.min_p for p in params], np.float32),
        seeds=array([s.seed for s in wanting], np.uint64),
        next_positions=array([positions[row] + 1 for row in rows], np.int64),
        **_adjustments(parts, adjusters, ops, n_padding),
        n_padding=n_padding,
        least_tokens=1 if n_padding else min(part.n_tokens for part in parts),
    )


def _padding(parts: Many[Part], sizes: tuple[int, ...]) -> int:
    """How many sequences are missing to the next size, where each part is one token."""
    if not sizes or any(part.n_tokens != 1 or part.n_logits != 1 for part in parts):
        return 0
    return next((size - len(parts) for size in sizes if size >= len(parts)), 0)


def _slots(parts: Many[Part], lens: list[int], group: int) -> list[int]:
    slots = list[int]()
    for part, end in zip(parts, lens, strict=True):
        blocks = part.sequence.block_ids[group]
        slots += [blocks[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(end - part.n_tokens, end)]
    return slots


def _tables(parts: Many[Part], lens: list[int], group: int, least: int, n_padding: int) -> NDArray[np.int32]:
    width = max(least, 1 << (-(-max(lens) // BLOCK_SIZE) - 1).bit_length())  # few widths, so that steps have few shapes
    tables = np.zeros((len(parts) + n_padding, width), np.int32)
    for table, part, n in zip(tables, parts, lens, strict=False):
        n_blocks = -(-n // BLOCK_SIZE)
        table[:n_blocks] = part.sequence.block_ids[group][:n_blocks]
    return tables


def _adjustments(parts: Many[Part], adjusters: Mapping[int, Adjuster], ops: Ops, n_padding: int) -> dict[str, Any]:
    """The arrays of a batch that change logits, without elements where no row asks for them."""
    penalties, start = list[tuple[float, float, float]](), list[int]()
    ids, counts, bias = list[int](), list[int](), list[float]()
    masks = np.zeros((0, 0), np.uint32)
    if any(part.n_logits and part.sequence.request_id in adjusters for part in parts):
        n_rows, start = sum(part.n_logits for part in parts) + n_padding, [0]
        for part in parts:
            p, adjuster = part.sequence.params, adjusters.get(part.sequence.request_id)
            for n_drafts in _drafts_before(part):
                penalties.append((p.repetition_penalty, p.presence_penalty, p.frequency_penalty))
                if adjuster is not None:
                    adjuster.list_ids(part.sequence, n_drafts, ids, counts, bias)
                    if adjuster.masks:
                        if not len(masks):
                            masks = np.full((n_rows, len(adjuster.masks[0])), 2**32 - 1, np.uint32)
                        masks[len(start) - 1] = adjuster.masks[n_drafts]
                start.append(len(ids))
        penalties += [(1.0, 0.0, 0.0)] * n_padding
        start += [len(ids)] * n_padding
        padding = (
            (1 << (len(ids) - 1).bit_length()) - len(ids) if ids else 0
        )  # few sizes, so that steps have few shapes
        ids += [-1] * padding
        counts += [-1] * padding
        bias += [0.0] * padding
    return {
        "penalties": ops.array(np.array(penalties, np.float32).reshape(-1, 3)),
        "listed_start": ops.array(np.array(start, np.int32)),
        "listed_ids": ops.array(np.array(ids, np.int32)),
        "listed_counts": ops.array(np.array(counts, np.int32)),
        "listed_bias": ops.array(np.array(bias, np.float32)),
        "masks": ops.array(masks),
    }


def _drafts_before(part: Part) -> list[int]:
    """For each row of its logits, how many drafts come before what the row leads to. Those of a prompt have none."""
    n_drafts = max(0, part.sequence.n_computed + part.n_tokens - len(part.sequence.tokens))
    return [max(0, i) for i in range(n_drafts + 1 - part.n_logits, n_drafts + 1)]
