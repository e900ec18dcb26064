"""What the engine's thread does: one step after another for the requests that are open. Nothing here is thread-safe."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from gristmill.engine.adjust import Adjuster
from gristmill.engine.batch import advance, build
from gristmill.engine.draft_model import DraftModel
from gristmill.engine.drafts import PromptLookup
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part, Scheduler
from gristmill.engine.sequence import Sequence
from gristmill.ops.interface import Ops
from gristmill.types import Batch, Event, Failure, Finish, PromptLogprobs, PromptRows, Request, TokenEvent, Wants

Sink = Callable[[Event], bool | None]
"""Takes a request's events, on the engine's thread: it must be quick. True after a token ends the request there."""

MAX_DRAFTS = 15

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Stream:
    """What belongs to a request beside its sequence.

    adjuster, lookup  None where it does without
    n_told            positions of the prompt whose rows were told, for a request that wants them
    """

    request: Request
    sink: Sink
    adjuster: Adjuster | None = None
    lookup: PromptLookup | None = None
    n_told: int = 0


class Computed(NamedTuple):
    """A part that was computed.

    rows       logits or hidden states of the whole step; the part's begin with first_row
    position   of the first of them
    ids        chosen for each row
    n_new      the last so many of these lie beyond the sequence's tokens; the others have their successors already
    """

    part: Part
    rows: Any
    first_row: int
    position: int
    ids: list[int]
    n_new: int

    @property
    def chosen(self) -> list[int]:
        return self.ids[len(self.ids) - self.n_new :]


class Loop:
    """Owns the requests that are open, from `add` to the event that ends them."""

    def __init__(self, scheduler: Scheduler, runner: Runner, ops: Ops, draft_model: DraftModel | None = None) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._ops = ops
        self._draft_model = draft_model
        self._streams: dict[int, Stream] = {}
        self._adjusters: dict[int, Adjuster] = {}  # these four hold what few requests need, by their ids
        self._lookups: dict[int, PromptLookup] = {}
        self._hidden: set[int] = set()
        self._scored: set[int] = set()
        self._last: tuple[list[Part], Batch, list[int]] | None = None  # a step of one token each, and what was chosen

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def add(self, sequence: Sequence, stream: Stream) -> None:
        """What the scheduler refuses fails at once."""
        try:
            self.scheduler.add(sequence)
        except (ValueError, RuntimeError) as error:
            self._tell(stream, Failure(error))
            return
        request_id, wants = sequence.request_id, stream.request.wants
        self._streams[request_id] = stream
        if stream.adjuster is not None:
            self._adjusters[request_id] = stream.adjuster
        if stream.lookup is not None:
            self._lookups[request_id] = stream.lookup
        if wants is Wants.HIDDEN:
            self._hidden.add(request_id)
        if (
            wants is Wants.LOGPROBS
            or sequence.params.logprobs is not None
            or sequence.params.prompt_logprobs is not None
        ):
            self._scored.add(request_id)

    def cancel(self, request_id: int) -> None:
        """End a request without another event. Nothing happens where it has ended already."""
        self.scheduler.abort(request_id)
        self._close(request_id)

    def fail_all(self, error: BaseException) -> None:
        for request_id in list(self._streams):
            self._fail(request_id, error)

    def step(self) -> None:
        """Compute the next tokens of everything that runs. An error ends the requests of the step and no others."""
        self._draft()
        parts = self._mask(self.scheduler.schedule())
        try:
            computed = self._compute(parts)
            logprobs = self._logprobs(computed)
        except Exception as error:
            _log.exception("a step of %d requests failed", len(parts))
            self._runner.forget()
            self._last = None
            for part in parts:
                self._fail(part.sequence.request_id, error)
            return
        updates = self.scheduler.update([each.part for each in computed], [each.chosen for each in computed])
        for each, (sequence, accepted) in zip(computed, updates, strict=True):
            stream = self._streams.get(sequence.request_id)
            if stream is not None and sequence.all_rows:
                self._tell_rows(stream, each, logprobs)
            if stream is not None and accepted:
                self._tell_tokens(stream, each, accepted, logprobs)

    def _draft(self) -> None:
        for sequence in self.scheduler.running if self._lookups else ():
            lookup = self._lookups.get(sequence.request_id)
            if lookup is not None and len(sequence.tokens) - sequence.n_computed == 1:
                sequence.drafts = lookup.propose(sequence.tokens, MAX_DRAFTS)
        if self._draft_model is not None:
            ready = [s for s in self.scheduler.running if len(s.tokens) - s.n_computed == 1 and self._may_draft(s)]
            for sequence in ready:
                self.scheduler.reserve(sequence, len(sequence.tokens) + MAX_DRAFTS)
            self._draft_model.propose(ready, MAX_DRAFTS)

    def _may_draft(self, sequence: Sequence) -> bool:
        """Not where each choice changes what the next may be, nor where another way to guess has found something."""
        return sequence.request_id not in self._adjusters and not sequence.drafts

    def _mask(self, parts: list[Part]) -> list[Part]:
        """Fill the masks of those that keep to a grammar; where a grammar cannot go on, its request ends."""
        for part in parts if self._adjusters else ():
            adjuster = self._adjusters.get(part.sequence.request_id)
            try:
                if adjuster is not None and part.n_logits:
                    adjuster.fill_mask()
            except ValueError as error:
                self._fail(part.sequence.request_id, error)
        return [part for part in parts if part.sequence.finish is None] if self._adjusters else parts

    def _compute(self, parts: list[Part]) -> list[Computed]:
        hidden = [p for p in parts if p.sequence.request_id in self._hidden] if self._hidden else []
        others = [p for p in parts if p not in hidden] if hidden else parts
        computed = list[Computed]()
        if others:
            batch = self._batch(others)
            ids, logits = self._runner.step(batch)
            single = len(others) == len(batch.tokens) == len(ids)
            self._last = (others, batch, ids) if single and not self._adjusters else None
            computed += _split(others, ids, logits)
        if hidden:
            rows = self._runner.hidden(build(hidden, self._ops))
            computed += _split(hidden, [0] * len(rows), rows)
        return computed

    def _batch(self, parts: list[Part]) -> Batch:
        """While the same sequences go on one token at a time, most of a batch stays as it was."""
        if self._last is not None:
            before, batch, ids = self._last
            if len(before) == len(parts) and all(map(is_, before, parts)) and not self._adjusters:
                advanced = advance(batch, parts, ids, self._ops)
                if advanced is not None:
                    return advanced
        return build(parts, self._ops, self._adjusters)

    def _logprobs(self, computed: list[Computed]) -> dict[int, TokenEvent]:
        """For each row of logits whose log-probabilities are wanted, the token that it leads to, with them."""
        if not self._scored:
            return {}
        wanted = list[tuple[int, int, int]]()  # row, id, alternatives
        for each in computed:
            sequence = each.part.sequence
            params, n_given = sequence.params, len(each.ids) - each.n_new
            for i, token_id in enumerate(each.ids):
                n_top = params.prompt_logprobs if i < n_given else params.logprobs
                if n_top is not None:
                    successor = sequence.tokens[each.position + i + 1] if i < n_given else token_id
                    wanted.append((each.first_row + i, successor, n_top))
        if not wanted:
            return {}
        rows, ids, tops = zip(*wanted, strict=True)
        logits = self._ops.take_rows(computed[0].rows, self._ops.array(np.array(rows, np.int32)))
        n_top = min(max(tops), logits.shape[1])
        results = self._ops.logprobs(logits, self._ops.array(np.array(ids, np.int32)), n_top)
        columns = zip(wanted, *(self._ops.get(result).tolist() for result in results), strict=True)
        return {
            row: TokenEvent(token_id, None, logprob, rank, tuple(zip(top_ids[:n], top[:n], strict=True)))
            for (row, token_id, n), logprob, rank, top_ids, top in columns
        }

    def _tell_rows(self, stream: Stream, each: Computed, logprobs: dict[int, TokenEvent]) -> None:
        """What was asked for of the prompt's tokens, each once: after a preemption they are computed again."""
        sequence = each.part.sequence
        end = min(each.position + len(each.ids), sequence.n_prompt)
        begin = max(each.position, stream.n_told)
        if begin >= end:
            return
        stream.n_told = end
        rows = [each.first_row + position - each.position for position in range(begin, end)]
        wants, last = stream.request.wants, end == sequence.n_prompt
        if wants in (Wants.TOKENS, Wants.LOGPROBS):
            told = rows[: sequence.n_prompt - 1 - begin]  # the last position leads to what is generated
            event: Event = PromptLogprobs(begin + 1, tuple(logprobs[row] for row in told), last)
        else:
            event = PromptRows(begin, np.array(self._ops.get(each.rows)[rows[0] : rows[-1] + 1]), last)
        if self._tell(stream, event) or (last and wants is not Wants.TOKENS):
            self.cancel(sequence.request_id)

    def _tell_tokens(
        self, stream: Stream, each: Computed, accepted: list[int], logprobs: dict[int, TokenEvent]
    ) -> None:
        sequence = each.part.sequence
        request_id = sequence.request_id
        if request_id not in self._streams:
            return
        if each.n_new > 1 and stream.lookup is not None:
            stream.lookup.learn(each.n_new - 1, len(accepted) - 1)
        if each.n_new > 1 and self._draft_model is not None:
            self._draft_model.learn(sequence, each.n_new - 1, len(accepted) - 1)
        try:
            if stream.adjuster is not None:
                stream.adjuster.advance(accepted)
        except ValueError as error:
            self._fail(request_id, error)
            return
        row = each.first_row + len(each.ids) - each.n_new
        for i, token_id in enumerate(accepted):
            finish = sequence.finish if i == len(accepted) - 1 else None
            event = TokenEvent(token_id, finish, n_cached=sequence.n_cached)
            if logprobs and row + i in logprobs:
                event = replace(logprobs[row + i], finish=finish, n_cached=sequence.n_cached)
            if self._tell(stream, event):
                self.scheduler.abort(request_id, Finish.STOP)
                self._close(request_id)
                return
        if sequence.finish is not None:
            self._close(request_id)

    def _fail(self, request_id: int, error: BaseException) -> None:
        stream = self._streams.get(request_id)
        self.cancel(request_id)
        if stream is not None:
            self._tell(stream, Failure(error))

    def _tell(self, stream: Stream, event: Event) -> bool:
        """Whether the request is to end here: its sink says so, or cannot take events."""
        try:
            return bool(stream.sink(event))
        except Exception:
            _log.exception("what takes a request's events raised an error; the request ends")
            return True

    def _close(self, request_id: int) -> None:
        self._streams.pop(request_id, None)
        self._adjusters.pop(request_id, None)
        self._lookups.pop(request_id, None)
        if self._draft_model is not None:
            self._draft_model.forget(request_id)
        self._hidden.discard(request_id)
        self._scored.discard(request_id)


def _split(parts: list[Part], ids: list[int], rows: Any) -> list[Computed]:
    computed = list[Computed]()
    first = 0
    for part in parts:
        sequence, n = part.sequence, part.n_logits
        end = sequence.n_computed + part.n_tokens
        n_new = max(0, end - len(sequence.tokens) + 1)
        computed.append(Computed(part, rows, first, end - n, ids[first : first + n], n_new))
        first += n
    return computed
