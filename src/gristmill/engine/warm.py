"""Steps of every kind before the first request, for backends where the first of a kind takes long: what these compile
and record need not be compiled and recorded while somebody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from gristmill.engine.adjust import Adjuster
from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import Batch, SamplingParams

_PROMPTS = (65, 33, 17, 5, 4, 3, 2)
"""Tokens of a prompt: one more than tiles hold, and few, which attention takes by their number."""

_N_TOP = (0, 1, 33, 129)
"""Likeliest tokens beside a token's own log-probability: none, few, many, more."""

Progress = Callable[[int, int], None]


class Warmer:
    """runner, ops     what is to be warmed
    n_blocks        of the cache in each group. What is written there is written again before it is read, as none of
                    them has been handed out
    vocab_size, max_sequences, max_context  of what is to come
    """

    def __init__(
        self, runner: Runner, ops: Ops, n_blocks: tuple[int, ...], vocab_size: int, max_sequences: int, max_context: int
    ) -> None:
        self._runner, self._ops, self._n_blocks = runner, ops, n_blocks
        self._vocab_size, self._max_sequences, self._max_context = vocab_size, max_sequences, max_context

    def run(self, progress: Progress | None = None) -> None:
        """progress(steps done, steps in all)."""
        steps = [*self._prompts(), *self._generating(), self._go_on, self._adjusted, self._log_probabilities]
        for i, step in enumerate(steps):
            step()
            if progress is not None:
                progress(i + 1, len(steps))

    def _prompts(self) -> Iterator[Callable[[], object]]:
        n = min(self._max_context, self._ops.step_tokens)
        sizes = [n]
        while n > 2 * _PROMPTS[0]:  # tiles grow with what there is to do
            n //= 2
            sizes.append(n)
        for n in (*sizes, *_PROMPTS):
            if n <= self._max_context:
                yield lambda n=n: self._runner.step(self._batch(n, n, 1))  # type: ignore[misc]

    def _generating(self) -> Iterator[Callable[[], object]]:
        """Every shape that is recorded, from the largest on: the others then fit the memory that it took. A position is
        left for the step after."""
        sizes = self._ops.batch_sizes or (1, 2)
        most = next((size for size in sizes if size >= self._max_sequences), sizes[-1])
        width = self._ops.least_blocks
        widths = [width]
        while width * BLOCK_SIZE < self._max_context:
            width *= 2
            widths.append(width)
        for size in sorted((size for size in sizes if size <= most), reverse=True):
            for width in reversed(widths):
                yield partial(self._generate, min(width * BLOCK_SIZE, self._max_context) - 1, size)

    def _generate(self, length: int, n_sequences: int) -> None:
        self._runner.step(self._batch(length, 1, n_sequences))

    def _go_on(self) -> None:
        """The last of these once more."""
        self._runner.go_on([[] for _ in self._n_blocks], 0, partial(self._batch, 1, 1, 1))

    def _adjusted(self) -> None:
        """Biases, and then a mask."""
        adjuster = Adjuster(SamplingParams(logit_bias={0: 1.0}), (), self._vocab_size, None)
        self._runner.step(self._batch(1, 1, 1, adjuster))
        adjuster.masks.append(np.full(-(-self._vocab_size // 32), 2**32 - 1, np.uint32))
        self._runner.step(self._batch(1, 1, 1, adjuster))

    def _log_probabilities(self) -> None:
        _, logits = self._runner.step(self._batch(1, 1, 1))
        first = self._ops.array(np.zeros(1, np.int32))
        rows = self._ops.take_rows(logits, first)
        for n_top in _N_TOP:
            for result in self._ops.logprobs(rows, first, min(n_top, self._vocab_size)):
                self._ops.get(result)

    def _batch(self, length: int, n_new: int, n_sequences: int, adjuster: Adjuster | None = None) -> Batch:
        """Sequences that have `length` tokens once their last n_new are computed, whose logits are all wanted."""
        places = range(-(-length // BLOCK_SIZE))
        sequence = Sequence(
            0,
            [0] * length,
            length,
            SamplingParams(temperature=0.5, top_k=40, top_p=0.9, min_p=0.01),
            0,
            frozenset(),
            1,
            n_computed=length - n_new,
            block_ids=[[i % n for i in places] for n in self._n_blocks],
        )
        parts = [Part(sequence, n_new, n_new)] * n_sequences
        return build(parts, self._ops, {} if adjuster is None else {0: adjuster})
