"""Steps of every kind before the first request, for backends that compile their kernels when they first need them."""

from __future__ import annotations

from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import SamplingParams

_GENERATING = (1, 2, 17, 33)
"""Sequences of a step of one token each: kernels take them up to 1, 16, 32 and 64 at a time."""

_PROMPTS = (2, 3, 4, 65)
"""Tokens of a prompt: few, which attention takes by their number, and more than kernels for few take."""


def warm(runner: Runner, ops: Ops, n_groups: int, n_blocks: int, max_sequences: int) -> None:
    """What they write to the cache's first n_blocks is written again before it is read,
    since no block has been handed out."""
    for n in _GENERATING:
        if n <= max(2, max_sequences):
            runner.step(build([Part(_sequence(1, n_groups, n_blocks), 1, 1) for _ in range(n)], ops))
    for n in _PROMPTS:
        runner.step(build([Part(_sequence(n, n_groups, n_blocks), n, 1)], ops))
    runner.forget()


def _sequence(n_tokens: int, n_groups: int, n_blocks: int) -> Sequence:
    blocks = [i % n_blocks for i in range(-(-n_tokens // BLOCK_SIZE))]
    params = SamplingParams(temperature=0.5, top_k=40, top_p=0.9, min_p=0.01)
    return Sequence(0, [0] * n_tokens, n_tokens, params, 0, frozenset(), 1, block_ids=[blocks] * n_groups)
