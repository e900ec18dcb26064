"""Runs one step: Batch in, logits and ids out. Some are recorded and replayed. It knows nothing of requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill.kv.cache import KvCache
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import Ahead, Array, Begun, Continuation, Ops
from gristmill.types import Batch

REPLAY = ("on", "off", "check")
MAX_RECORDED_TOKENS = 64
"""Steps of more sequences compute for so long that recording them gains nothing."""
MAX_RECORDINGS = 64

_FIELDS = tuple(field.name for field in fields(Batch) if field.name not in ("n_padding", "least_tokens"))


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
    go_on: Continuation | Ahead | None = None


class Runner:
    """A decoder, a backend and a cache that belong together. One thread uses it.

    replay  on: a step whose arrays have shapes that were seen before is replayed. off: every step runs operation by
            operation, which is what a step means. check: both, and RuntimeError where a single bit differs

    prompt_tokens  tokens that one step had best compute of a prompt that nothing else is computed with

    On backends with `batch_sizes` what changes logits is no part of a recording: tokens are chosen again where a row
    asks for it.
    """

    def __init__(self, decoder: Decoder, ops: Ops, kv: KvCache, replay: str = "on") -> None:
        if replay not in REPLAY:
            raise ValueError(f"replay must be one of {', '.join(REPLAY)}, not {replay!r}")
        self._decoder = decoder
        self._ops = ops
        self._kv = kv
        self._replay = replay
        # Experts have only a share of a step's tokens each.
        self.prompt_tokens = ops.step_tokens if decoder.config.moe else ops.prompt_tokens
        self._recordings: OrderedDict[tuple[int, ...], Recording] = OrderedDict()
        self._last: Recording | None = None  # the step before, where `step` ran a recorded one
        self._n_padding = 0  # of that

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [R, vocab_size], without padding."""
        logits: NDArray[np.float32] = self._ops.get(self._decoder.forward(self._ops, batch, self._kv))
        return logits[: len(logits) - batch.n_padding]

    def hidden(self, batch: Batch) -> Array:
        """What the head would read: [R, d_model] on the backend. Padding comes last."""
        return self._decoder.hidden(self._ops, batch, self._kv)

    def step(self, batch: Batch) -> tuple[list[int], Array]:
        """(the chosen id of each sampled row, logits [R, vocab_size] that hold until the next step). Padding is left
        out of the ids, and comes last among the logits."""
        self._last = None
        if self._replay == "off" or not self._is_worth_recording(batch):
            ids, logits = self._eager(batch)
        else:
            adjusted = bool(self._ops.batch_sizes and (len(batch.listed_start) or len(batch.masks)))
            recording = self._run_recorded(_unadjusted(batch) if adjusted else batch)
            ids, logits = recording.ids, recording.logits
            if adjusted:
                ids = self._ops.sample(logits, batch)
            else:
                self._last, self._n_padding = recording, batch.n_padding
        return _without_padding(self._ops.get(ids).tolist(), batch.n_padding), logits

    def go_on(self, begun: Begun, n_blocks: int, build: Callable[[], Batch]) -> tuple[list[int], Array]:
        """The step after the last one, if that was of one token of each sequence and so is this one: the same as
        `step(build())`, without building it where the recorded arrays can go on by themselves.

        n_blocks  that the longest sequence has now
        """
        recording = self._last
        if recording is None or n_blocks > recording.n_blocks:
            return self.step(build())
        ids = self._continuation(recording)(begun)
        if self._replay == "check":
            self._compare(recording, build())
        return _without_padding(ids, self._n_padding), recording.logits

    def go_on_simply(self) -> tuple[Continuation, int] | None:
        """(what `go_on` would call at every step from here on while no sequence has more blocks than this, this); None
        where `go_on` must be called."""
        if self._last is None or self._replay != "on" or self._n_padding or self._ops.runs_ahead:
            return None
        return self._continuation(self._last), self._last.n_blocks

    def begin(self, begun: Begun, n_blocks: int) -> bool:
        """`go_on` on a backend that `runs_ahead`, without waiting: `finish` gives the ids, in the order in which steps
        were begun, at most two of them before one is finished. False, and nothing is done, where only `go_on` will do.
        """
        recording = self._last
        if recording is None or n_blocks > recording.n_blocks or self._replay != "on":
            return False
        self._ahead(recording).begin(begun)
        return True

    def finish(self) -> list[int]:
        """What the step begun first chose, once it has done so."""
        assert self._last is not None
        return _without_padding(self._ahead(self._last).finish(), self._n_padding)

    def forget(self) -> None:
        """Drop what was recorded, after a step that failed."""
        self._recordings.clear()
        self._last = None

    def _is_worth_recording(self, batch: Batch) -> bool:
        n_tokens, is_prompt = len(batch.tokens), len(batch.tokens) != len(batch.sample_rows)
        if self._ops.batch_sizes:
            return not is_prompt and n_tokens == len(batch.seq_lens) and n_tokens in self._ops.batch_sizes
        if is_prompt:  # other lengths than that of a whole step are too many
            return len(batch.seq_lens) == 1 and n_tokens == self.prompt_tokens
        return n_tokens <= MAX_RECORDED_TOKENS

    def _continuation(self, recording: Recording) -> Continuation:
        if recording.go_on is None:
            recording.go_on = self._ops.continuation(recording.batch, recording.ids, recording.again)
        return recording.go_on

    def _ahead(self, recording: Recording) -> Ahead:
        assert self._ops.runs_ahead
        return cast(Ahead, self._continuation(recording))

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
            if len(self._recordings) > MAX_RECORDINGS and not self._ops.batch_sizes:  # these are few by themselves
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
        copies: list[Any] = [tuple(map(copy, value)) if isinstance(value, tuple) else copy(value) for value in values]
        own = Batch(*copies)
        (ids, logits), again = self._ops.capture(lambda: self._eager(own))
        return Recording(own, _arrays(own), ids, logits, again, own.block_tables[0].shape[1])

    def _compare(self, recording: Recording, batch: Batch) -> None:
        ids, logits = (self._ops.get(array) for array in self._eager(batch))
        same = np.array_equal(logits.view(np.uint32), self._ops.get(recording.logits).view(np.uint32))
        if not same or not np.array_equal(ids, self._ops.get(recording.ids)):
            raise RuntimeError(f"a replayed step of {len(batch.tokens)} tokens differs from the same step run eagerly")


def _unadjusted(batch: Batch) -> Batch:
    """Without what changes logits."""
    names = ("penalties", "listed_start", "listed_ids", "listed_counts", "listed_bias")
    return replace(batch, **{name: getattr(batch, name)[:0] for name in names}, masks=batch.masks[:0, :0])


def _without_padding(ids: list[int], n_padding: int) -> list[int]:
    return ids[: len(ids) - n_padding] if n_padding else ids


def _arrays(batch: Batch) -> tuple[Array, ...]:
    arrays = list[Any]()
    for name in _FIELDS:
        value = getattr(batch, name)
        if isinstance(value, tuple):
            arrays += value
        else:
            arrays.append(value)
    return tuple(arrays)
