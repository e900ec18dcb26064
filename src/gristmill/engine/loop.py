"""What the engine's thread does: one step after another for the requests that are open. Nothing here is thread-safe."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gristmill.engine.adjust import Adjuster
from gristmill.engine.batch import build
from gristmill.engine.draft_model import DraftModel
from gristmill.engine.drafts import PromptLookup
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part, Scheduler
from gristmill.engine.sequence import Sequence
from gristmill.engine.telling import Followers, Sink, Teller
from gristmill.ops.interface import NO_ID, Begun, Ops
from gristmill.types import (
    Answer,
    Batch,
    Event,
    Failure,
    Finish,
    NotFiniteError,
    PromptLogprobs,
    PromptRows,
    Request,
    TokenEvent,
    Wants,
)

MAX_DRAFTS = 15

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Stream:
    """What belongs to a request beside its sequence.

    adjuster, lookup  None where it does without
    looked_up         the drafts of this step are the lookup's
    n_told            positions of the prompt whose rows were told, for a request that wants them
    """

    request: Request
    sink: Sink
    adjuster: Adjuster | None = None
    lookup: PromptLookup | None = None
    looked_up: bool = False
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
    """Owns the requests that are open, from `add` to the event that ends them. n_steps: steps that were begun."""

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
        self._singles: list[Part] | None = None  # of the last step, if that was one token of each sequence
        self.n_steps = 0
        self._followers = Followers(())  # of these, those that are told each token
        self._teller = Teller()
        self._in_flight = list[Part]()  # of a step that was begun and not finished

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def add(self, sequence: Sequence, stream: Stream) -> None:
        """What the scheduler refuses fails at once."""
        try:
            self.scheduler.add(sequence)
        except Exception as error:
            self._tell(stream, Failure(error))
            self._teller.flush()
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
        if request_id in self._streams:
            self.scheduler.abort(request_id)
            self._close(request_id)

    def fail_all(self, error: BaseException) -> None:
        for request_id in list(self._streams):
            self._fail(request_id, error)
        self._teller.flush()

    def step(self, is_interrupted: Callable[[], object] = lambda: True) -> None:
        """Compute the next tokens of everything that runs. An error ends the requests of the step and no others.

        is_interrupted  asked where the next step is one more token of the same sequences and nothing else: until it
                        says so, such steps follow at once

        Where the backend computes beside this thread, steps that go on overlap: the next one is begun before what the
        last one chose is looked at, and what it computed for those who end with that is passed over.
        """
        self.n_steps += 1
        self._step()
        self._teller.flush()
        if self._singles is not None and not self._in_flight and not self._are_looked_at:
            self._go_on_simply(self._singles, is_interrupted)
            self._teller.flush()

    def _go_on_simply(self, parts: list[Part], is_interrupted: Callable[[], object]) -> None:
        """Steps that `_step` would make, with little around each: a model that computes throws Python's code and data
        out of the processor's caches, so that every call and object between two steps is slow."""
        simple, tell = self._runner.go_on_simply(), self._followers.tell
        if simple is None:
            return
        compute, n_blocks = simple
        while plan := self.scheduler.plan(n_blocks):
            append = self.scheduler.append
            for begun in plan:
                if is_interrupted():
                    return
                self.n_steps += 1
                try:
                    ids = compute(begun)
                except Exception as error:
                    self._fail_step(parts, error)
                    return
                if not append(ids):
                    self._take(ids)
                    return
                if ended := tell(ids):
                    self._stop_rows(ended)
                    return

    def _step(self) -> None:
        if self._in_flight:
            self._overlap(self._in_flight)
            return
        drafted = self._draft()
        plain = self._singles is not None and not drafted and not self._adjusters
        going = self.scheduler.go_on() if plain else None
        parts = self._singles if going is not None else self._mask(self.scheduler.schedule())
        assert parts is not None
        try:
            if going is not None and self._begin(*going):
                self._in_flight = parts
                return
            ids, computed = self._go_on(parts, *going) if going is not None else ([], self._compute(parts))
            logprobs = self._logprobs(computed)
        except Exception as error:
            self._fail_step(parts, error)
            return
        if ids:
            self._take(ids)
        else:
            self._update(computed, logprobs)

    def _overlap(self, parts: list[Part]) -> None:
        """Ends the step in flight. Begins the next one before that, where it is certain which one that is."""
        going = self.scheduler.go_on_ahead()
        try:
            ahead = going is not None and self._begin(*going)
            ids = self._runner.finish()
        except Exception as error:
            self._fail_step(parts, error)
            return
        self._in_flight = parts if ahead else []
        if self.scheduler.is_steady:
            self._take(ids)
        else:  # somebody left meanwhile
            self.scheduler.settle()
            self._update(_split(parts, ids, None), {})

    @property
    def _are_looked_at(self) -> bool:
        """Whether some request wants more of a step than its token."""
        return bool(self._adjusters or self._lookups or self._scored or self._draft_model is not None)

    def _begin(self, begun: Begun, n_blocks: int) -> bool:
        """One more token of each sequence, without waiting for it."""
        if self._are_looked_at or not self._ops.runs_ahead:
            return False
        return self._runner.begin(begun, n_blocks)

    def _fail_step(self, parts: list[Part], error: Exception) -> None:
        _log.error("a step of %d requests failed", len(parts), exc_info=error)
        self._runner.forget()
        self._singles, self._in_flight = None, []
        for part in parts:
            self._fail(part.sequence.request_id, error)

    def _update(self, computed: list[Computed], logprobs: dict[int, TokenEvent]) -> None:
        for each in computed:
            if NO_ID in each.ids:
                self._refuse(each)
        updates = self.scheduler.update([each.part for each in computed], [each.chosen for each in computed])
        for each, (sequence, accepted) in zip(computed, updates, strict=True):
            stream = self._streams.get(sequence.request_id)
            if stream is not None and sequence.rows_from is not None:
                self._tell_rows(stream, each, logprobs)
            if stream is not None and accepted:
                self._tell_tokens(stream, each, accepted, logprobs)

    def _refuse(self, each: Computed) -> None:
        """Attention adds up values of later tokens too, times 0, which is NaN where they are not finite: so what was
        computed before them is not to be trusted either."""
        sequence = each.part.sequence
        self.scheduler.retract(sequence)
        what = "hidden states" if sequence.request_id in self._hidden else "logits"
        reason = "its weights are damaged, or its numbers too large for the types that they are kept in"
        n_tokens = each.position + len(each.ids)
        error = NotFiniteError(f"the model's {what} are not finite (NaN or infinity) after {n_tokens} tokens: {reason}")
        self._fail(sequence.request_id, error)

    def _go_on(self, parts: list[Part], begun: Begun, n_blocks: int) -> tuple[list[int], list[Computed]]:
        """One more token of each sequence: the ids, or where there is more to tell than these, what was computed."""
        ids, logits = self._runner.go_on(begun, n_blocks, self._rebuild)
        if not self._scored:
            return ids, []
        self.scheduler.settle()
        return [], _split(parts, ids, logits)

    def _rebuild(self) -> Batch:
        """The batch of a step that goes on, from nothing."""
        assert self._singles is not None
        self.scheduler.settle()
        return build(self._singles, self._ops)

    def _take(self, ids: list[int]) -> None:
        """The rest of a step that went on without anything but a token for each sequence."""
        assert self._singles is not None
        if NO_ID in ids:
            self.scheduler.settle()
            self._update(_split(self._singles, ids, None), {})
            return
        ended = self.scheduler.take(ids)
        if not ended:
            self._stop_rows(self._followers.tell(ids))
            return
        for part, token_id in zip(self._singles, ids, strict=True):
            sequence = part.sequence
            stream = self._streams[sequence.request_id]
            event = TokenEvent(token_id, sequence.finish, n_cached=sequence.n_cached)
            if not stream.request.whole and self._tell(stream, event):
                self._stop(sequence.request_id)
        for sequence in ended:
            self._end(sequence)

    def _draft(self) -> bool:
        """Guess what comes next. Whether there are guesses."""
        if not self._lookups and not self._adjusters and self._draft_model is None:
            return False
        ready = [s for s in self.scheduler.running if len(s.tokens) - s.n_computed == 1]
        self._each(ready, self._guess)
        if self._draft_model is not None:
            others = [sequence for sequence in ready if sequence.finish is None and not sequence.drafts]
            for sequence in others:
                self.scheduler.reserve(sequence, len(sequence.tokens) + MAX_DRAFTS)
            self._draft_model.propose(others, MAX_DRAFTS)
        if self._adjusters:
            self._each([sequence for sequence in ready if sequence.drafts], self._keep_possible)
        return any(sequence.drafts for sequence in ready)

    def _guess(self, sequence: Sequence) -> None:
        """What its grammar leaves no choice about, or what its text has said before."""
        adjuster, lookup = self._adjusters.get(sequence.request_id), self._lookups.get(sequence.request_id)
        sequence.drafts = adjuster.forced()[:MAX_DRAFTS] if adjuster is not None else []
        if lookup is not None:
            is_forced = bool(sequence.drafts)
            sequence.drafts = sequence.drafts or lookup.propose(sequence.tokens, MAX_DRAFTS)
            self._streams[sequence.request_id].looked_up = bool(sequence.drafts) and not is_forced

    def _keep_possible(self, sequence: Sequence) -> None:
        """Of the drafts, those before the first that the grammar forbids."""
        adjuster = self._adjusters.get(sequence.request_id)
        if adjuster is not None:
            sequence.drafts = adjuster.possible(sequence.drafts)

    def _mask(self, parts: list[Part]) -> list[Part]:
        """Fill the masks of those that keep to a grammar. Returns the parts without those that cannot go on."""
        if not self._adjusters:
            return parts
        self._each([part.sequence for part in parts if part.n_logits], self._fill_masks)
        return [part for part in parts if part.sequence.finish is None]

    def _fill_masks(self, sequence: Sequence) -> None:
        adjuster = self._adjusters.get(sequence.request_id)
        if adjuster is not None:
            adjuster.fill_masks(sequence.drafts)

    def _each(self, sequences: list[Sequence], ask: Callable[[Sequence], None]) -> None:
        """Asks the grammar of each; where a grammar cannot go on, its request ends."""
        for sequence in sequences:
            try:
                ask(sequence)
            except ValueError as error:
                self._fail(sequence.request_id, error)

    def _compute(self, parts: list[Part]) -> list[Computed]:
        hidden = [p for p in parts if p.sequence.request_id in self._hidden] if self._hidden else []
        others = [p for p in parts if p not in hidden] if hidden else parts
        computed = list[Computed]()
        self._singles = None
        if others:
            batch = build(others, self._ops, self._adjusters)
            ids, logits = self._runner.step(batch)
            computed += _split(others, ids, logits)
            if len(parts) == len(batch.tokens) - batch.n_padding == len(ids):
                self._singles, self._followers = parts, self._following(parts)
        if hidden:
            rows = self._runner.hidden(build(hidden, self._ops))
            is_finite = np.isfinite(self._ops.get(rows)).all(axis=1)
            computed += _split(hidden, np.where(is_finite, 0, NO_ID).tolist(), rows)
        return computed

    def _following(self, parts: list[Part]) -> Followers:
        rows = ((row, self._streams[part.sequence.request_id], part.sequence) for row, part in enumerate(parts))
        return Followers((row, stream.sink, s.n_cached) for row, stream, s in rows if not stream.request.whole)

    def _logprobs(self, computed: list[Computed]) -> dict[int, TokenEvent]:
        """For each row of logits whose log-probabilities are wanted, the token that it leads to, with them."""
        if not self._scored:
            return {}
        wanted = list[tuple[int, int, int]]()  # row, id, alternatives
        for each in computed:
            if NO_ID in each.ids:
                continue
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
        if each.n_new > 1 and stream.lookup is not None and stream.looked_up:
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
        for i, token_id in enumerate(accepted if not stream.request.whole else ()):
            finish = sequence.finish if i == len(accepted) - 1 else None
            if logprobs and row + i in logprobs:
                event = logprobs[row + i]._replace(finish=finish, n_cached=sequence.n_cached)
            else:
                event = TokenEvent(token_id, finish, n_cached=sequence.n_cached)
            if self._tell(stream, event):
                self._stop(request_id)
                return
        if sequence.finish is not None:
            self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        """Nothing more will come of a request; one that waited for the whole answer is told it."""
        stream = self._streams.get(sequence.request_id)
        self._close(sequence.request_id)
        if stream is not None and stream.request.whole and sequence.finish is not None:
            self._tell(stream, Answer(sequence.tokens[sequence.n_prompt :], sequence.finish, sequence.n_cached))

    def _stop(self, request_id: int) -> None:
        """Who takes its events wants no more of them."""
        self.scheduler.abort(request_id, Finish.STOP)
        self._close(request_id)

    def _stop_rows(self, rows: list[int]) -> None:
        assert self._singles is not None
        for row in rows:
            self._stop(self._singles[row].sequence.request_id)

    def _fail(self, request_id: int, error: BaseException) -> None:
        stream = self._streams.get(request_id)
        self.cancel(request_id)
        if stream is not None:
            self._tell(stream, Failure(error))

    def _tell(self, stream: Stream, event: Event) -> bool:
        """Whether the request is to end here."""
        return self._teller.tell(stream.sink, event)

    def _close(self, request_id: int) -> None:
        self._streams.pop(request_id, None)
        self._adjusters.pop(request_id, None)
        self._lookups.pop(request_id, None)
        if self._draft_model is not None:
            self._draft_model.forget(request_id)
        self._hidden.discard(request_id)
        self._scored.discard(request_id)
        if not self._streams:
            self._followers = Followers(())  # whoever is told may hold on to the engine


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
