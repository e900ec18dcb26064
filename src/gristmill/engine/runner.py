"""Runs one step: Batch in, logits and ids out. Small steps are recorded and replayed. It knows nothing of requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.kv.cache import KvCache
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import Array, Begun, Ops
from gristmill.types import Batch

REPLAY = ("on", "off", "check")
MAX_RECORDED_TOKENS = 64
"""Steps of more tokens compute for so long that recording them gains nothing."""
MAX_RECORDINGS = 64

_FIELDS = tuple(field.name for field in fields(Batch))


@dataclass(slots=True)
class Recording:
    """A step that was recorded: the arrays it reads, its results, and what does it again.

    go_on  the same with the ids that it chose, once that was asked for
    """

    batch: Batch
    arrays: tuple[Array, ...]  # of the batch, in one row
    ids: Array  # [R]
    logits: Array  # [R, vocab_size]
    again: Callable[[], None]
    n_blocks: int  # of a sequence at most
    go_on: Callable[[Begun], list[int]] | None = None


class Runner:
    """A decoder, a backend and a cache that belong together. One thread uses it.

    replay  on: a step whose arrays have shapes that were seen before is replayed. off: every step runs operation by
            operation, which is what a step means. check: both, and RuntimeError where a single bit differs
    """

    def __init__(self, decoder: Decoder, ops: Ops, kv: KvCache, replay: str = "on") -> None:
        if replay not in REPLAY:
            raise ValueError(f"replay must be one of {', '.join(REPLAY)}, not {replay!r}")
        self._decoder = decoder
        self._ops = ops
        self._kv = kv
        self._replay = replay
        self._recordings: OrderedDict[tuple[int, ...], Recording] = OrderedDict()
        self._last: Recording | None = None  # the step before, where `step` ran a recorded one

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [R, vocab_size]."""
        logits: NDArray[np.float32] = self._ops.get(self._decoder.forward(self._ops, batch, self._kv))
        return logits

    def hidden(self, batch: Batch) -> NDArray[np.float32]:
        """What the head would read: [R, d_model]."""
        hidden: NDArray[np.float32] = self._ops.get(self._decoder.hidden(self._ops, batch, self._kv))
        return hidden

    def step(self, batch: Batch) -> tuple[list[int], Array]:
        """(the chosen id of each sampled row, logits [R, vocab_size] that hold until the next step)."""
        n_tokens = len(batch.tokens)  # prompts come in too many lengths to be worth a recording each
        self._last = None
        if self._replay == "off" or n_tokens > MAX_RECORDED_TOKENS or n_tokens != len(batch.sample_rows):
            ids, logits = self._eager(batch)
        else:
            recording = self._run_recorded(batch)
            ids, logits = recording.ids, recording.logits
            self._last = recording
        chosen: list[int] = self._ops.get(ids).tolist()
        return chosen, logits

    def go_on(self, begun: Begun, n_blocks: int, build: Callable[[], Batch]) -> tuple[list[int], Array]:
        """The step after the last one, if that was of one token of each sequence and so is this one: the same as
        `step(build())`, without building it where the recorded arrays can go on by themselves.

        n_blocks  that the longest of those sequences has now whose token begins a block
        """
        recording = self._last
        if recording is None or n_blocks > recording.n_blocks:
            return self.step(build())
        if recording.go_on is None:
            recording.go_on = self._ops.continuation(recording.batch, recording.ids, recording.again)
        ids = recording.go_on(begun)
        if self._replay == "check":
            self._compare(recording, build())
        return ids, recording.logits

    def forget(self) -> None:
        """Drop what was recorded, after a step that failed."""
        self._recordings.clear()
        self._last = None

    def _eager(self, batch: Batch) -> tuple[Array, Array]:
        logits = self._decoder.forward(self._ops, batch, self._kv)
        return self._ops.sample(logits, batch), logits

    def _run_recorded(self, batch: Batch) -> Recording:
        arrays = _arrays(batch)
        shapes = tuple(n for array in arrays for n in array.shape)
        recording = self._recordings.get(shapes)
        if recording is None:
            recording = self._record(batch)
            self._recordings[shapes] = recording
            if len(self._recordings) > MAX_RECORDINGS:
                self._recordings.popitem(last=False)
        else:
            self._recordings.move_to_end(shapes)
            for array, values in zip(recording.arrays, arrays, strict=True):
                self._ops.write(array, values)
            recording.again()
        if self._replay == "check":
            self._compare(recording, batch)
        return recording

    def _record(self, batch: Batch) -> Recording:
        def copy(array: Array) -> Array:
            return self._ops.array(np.array(self._ops.get(array)))

        values = (getattr(batch, name) for name in _FIELDS)
        own = Batch(*(tuple(map(copy, value)) if isinstance(value, tuple) else copy(value) for value in values))
        (ids, logits), again = self._ops.capture(lambda: self._eager(own))
        return Recording(own, _arrays(own), ids, logits, again, own.block_tables[0].shape[1])

    def _compare(self, recording: Recording, batch: Batch) -> None:
        ids, logits = (self._ops.get(array) for array in self._eager(batch))
        same = np.array_equal(logits.view(np.uint32), self._ops.get(recording.logits).view(np.uint32))
        if not same or not np.array_equal(ids, self._ops.get(recording.ids)):
            raise RuntimeError(f"a replayed step of {len(batch.tokens)} tokens differs from the same step run eagerly")


def _arrays(batch: Batch) -> tuple[Array, ...]:
    arrays = list[Any]()
    for name in _FIELDS:
        value = getattr(batch, name)
        if isinstance(value, tuple):
            arrays += value
        else:
            arrays.append(value)
    return tuple(arrays)
