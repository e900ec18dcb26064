"""Runs one step: Batch in, logits and ids out. Small steps are recorded and replayed. It knows nothing of requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.kv.cache import KvCache
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import Array, Ops
from gristmill.types import Batch

REPLAY = ("on", "off", "check")
MAX_RECORDED_TOKENS = 64
"""Steps of more tokens compute for so long that recording them gains nothing."""
MAX_RECORDINGS = 32

_FIELDS = tuple(field.name for field in fields(Batch))


@dataclass(frozen=True, slots=True)
class Recording:
    """A step that was recorded: the arrays it reads, its results, and what does it again."""

    batch: Batch
    ids: Array  # [R]
    logits: Array  # [R, vocab_size]
    again: Callable[[], None]


class Runner:
    """A decoder, a backend and a cache that belong together. Several threads may call it; their steps take turns.

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
        self._turn = threading.Lock()

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [R, vocab_size]."""
        with self._turn:
            return self._ops.get(self._forward(batch))

    def step(self, batch: Batch, want_logits: bool = False) -> tuple[list[int], NDArray[np.float32] | None]:
        """(the chosen id of each sampled row, logits [R, vocab_size] where they are wanted)."""
        with self._turn:
            ids, logits = self._step(batch)
            chosen: list[int] = self._ops.get(ids).tolist()
            return chosen, np.array(self._ops.get(logits)) if want_logits else None

    def _forward(self, batch: Batch) -> Any:
        return self._decoder.forward(self._ops, batch, self._kv)

    def _eager(self, batch: Batch) -> tuple[Array, Array]:
        logits = self._forward(batch)
        return self._ops.sample(logits, batch), logits

    def _step(self, batch: Batch) -> tuple[Array, Array]:
        n_tokens = len(batch.tokens)  # prompts come in too many lengths to be worth a recording each
        if self._replay == "off" or n_tokens > MAX_RECORDED_TOKENS or n_tokens != len(batch.sample_rows):
            return self._eager(batch)
        shapes = tuple(n for name in _FIELDS for n in getattr(batch, name).shape)
        recording = self._recordings.get(shapes)
        if recording is None:
            recording = self._record(batch)
            self._recordings[shapes] = recording
            if len(self._recordings) > MAX_RECORDINGS:
                self._recordings.popitem(last=False)
        else:
            self._recordings.move_to_end(shapes)
            for name in _FIELDS:
                self._ops.write(getattr(recording.batch, name), getattr(batch, name))
            recording.again()
        if self._replay == "check":
            self._compare(recording, batch)
        return recording.ids, recording.logits

    def _record(self, batch: Batch) -> Recording:
        own = Batch(*(self._ops.array(np.array(self._ops.get(getattr(batch, name)))) for name in _FIELDS))
        (ids, logits), again = self._ops.capture(lambda: self._eager(own))
        return Recording(own, ids, logits, again)

    def _compare(self, recording: Recording, batch: Batch) -> None:
        ids, logits = (self._ops.get(array) for array in self._eager(batch))
        same = np.array_equal(logits.view(np.uint32), self._ops.get(recording.logits).view(np.uint32))
        if not same or not np.array_equal(ids, self._ops.get(recording.ids)):
            raise RuntimeError(f"a replayed step of {len(batch.tokens)} tokens differs from the same step run eagerly")
