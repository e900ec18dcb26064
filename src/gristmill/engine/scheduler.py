"""Which sequences run, and how many tokens of each a step computes. It knows ids and counts: no arrays, no text.

There is no prefill and no decode: a sequence's n_computed catches up with its tokens, by many a step while its prompt
is read and by one a step afterwards; drafts are tokens beyond its last. Whatever is to be served or spared, it goes by
one order: priority, then arrival. The first in order always gets on, so everything finishes.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from gristmill.engine.sequence import Sequence, Status
from gristmill.engine.steady import Steady
from gristmill.engine.tables import BlockTables
from gristmill.kv.pool import BlockPool
from gristmill.ops.interface import BLOCK_SIZE, Begun
from gristmill.types import Finish

MAX_ROWS = 64
"""Rows in one step of a sequence that wants the logits of all its tokens: they take much memory."""

_order = attrgetter("order")


class QueueFullError(RuntimeError):
    """As many requests wait as may."""


@dataclass(frozen=True, slots=True)
class Part:
    """The next n_tokens of a sequence's tokens + drafts, from n_computed on; the last n_logits of these want logits."""

    sequence: Sequence
    n_tokens: int
    n_logits: int


class Scheduler:
    """Call `schedule`, compute its parts, call `update` with what was chosen, and so on while it `has_work`.

    pools, windows  as BlockTables
    max_sequences   run at once at most
    step_tokens     computed in one step at most, drafts included; each running sequence gets one of them
    prompt_tokens   the same while there is only one sequence; None: step_tokens
    max_queue       sequences may wait before `add` refuses more
    """

    def __init__(
        self,
        pools: list[BlockPool],
        windows: list[int],
        *,
        max_sequences: int,
        step_tokens: int,
        prompt_tokens: int | None = None,
        max_queue: int,
    ) -> None:
        if not 1 <= max_sequences <= step_tokens:
            raise ValueError(
                f"max_sequences must be at least 1 and at most step_tokens, which is {step_tokens}, not {max_sequences}"
            )
        self._tables = BlockTables(pools, windows)
        self._max_sequences = max_sequences
        self._step_tokens = step_tokens
        self._prompt_tokens = step_tokens if prompt_tokens is None else min(prompt_tokens, step_tokens)
        self._max_queue = max_queue
        self._running: list[Sequence] = []  # both in order
        self._waiting: list[Sequence] = []
        self._computing: dict[bytes, Sequence] = {}  # blocks that running sequences will publish, by hash
        self._singles: list[Part] | None = None  # the parts of a step of one token each, while the same ones run
        self._steady: Steady | None = None  # while they go on by `take`
        self.n_preempted = 0  # these three since the beginning
        self.n_drafted = 0
        self.n_accepted = 0

    @property
    def running(self) -> tuple[Sequence, ...]:
        """In order."""
        self.settle()
        return tuple(self._running)

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queues a new sequence. QueueFullError when too many wait, ValueError for one that could never finish."""
        if not sequence.tokens or sequence.max_output < 1:
            raise ValueError(f"{len(sequence.tokens)} tokens of prompt and {sequence.max_output} of output: give some")
        self._tables.check_fits(sequence)
        if len(self._waiting) >= self._max_queue:
            raise QueueFullError(
                f"{len(self._waiting)} requests wait and max_queue is {self._max_queue}: try again later"
            )
        insort(self._waiting, sequence, key=_order)

    def abort(self, request_id: int, finish: Finish = Finish.ABORT) -> Sequence | None:
        """Ends a sequence at once, between any two calls, and frees what it held. None if there is none of this id."""
        self.settle()
        for sequence in chain(self._running, self._waiting):
            if sequence.request_id == request_id:
                self._end(sequence, finish)
                return sequence
        return None

    def retract(self, sequence: Sequence) -> None:
        """What a sequence has computed is not to be used by others. Nothing happens unless it runs."""
        self.settle()
        if sequence.status is Status.RUNNING:
            self._tables.retract(sequence)

    def reserve(self, sequence: Sequence, n_tokens: int) -> None:
        """Takes blocks for n_tokens of a running sequence ahead of need, as far as they are free."""
        self.settle()
        self._tables.extend(sequence, min(n_tokens, sequence.max_tokens - 1))

    def schedule(self) -> list[Part]:
        """What to compute next: a part of each running sequence, in order.

        Each gets one token. What is left of the step goes, in order, to drafts, to prompts, and to sequences that wait.
        """
        self.settle()
        self._steady = None
        self._make_way()
        unfinished = self._serve_running()
        is_lone = len(self._running) + len(self._waiting) == 1
        n_left = (self._prompt_tokens if is_lone else self._step_tokens) - len(self._running)
        n_more = self._spend(n_left, deque(unfinished)) if n_left and (unfinished or self._waiting) else 0
        if unfinished or n_more:
            return [_part(sequence) for sequence in self._running]
        if self._singles is None:
            self._singles = [Part(sequence, 1, 1) for sequence in self._running]
        return self._singles.copy()

    def go_on(self) -> tuple[Begun, int] | None:
        """Instead of `schedule`, after a step of one token of each sequence and while none has drafts, if the next step
        is again one token of each of them: (the blocks that these tokens begin, how many blocks the longest sequence
        has then). None where only `schedule` can tell."""
        if not self._singles or (self._waiting and not self._is_closed_to(self._waiting[0])):
            return None
        if self._steady is None:
            self._steady = Steady([part.sequence for part in self._singles], self._tables)
        begun = self._steady.begin()
        return None if begun is None else (begun, self._steady.n_blocks())

    def plan(self, n_blocks: int) -> list[Begun]:
        """Several steps to `go_on` with, as long as nothing else is asked or told: the blocks that each of them begins.
        None of them needs more than n_blocks of a sequence. Empty where `go_on` must be asked."""
        self.settle()
        if self.go_on() is None or self._steady is None:
            return []
        return self._steady.plan(n_blocks)

    @property
    def append(self) -> Callable[[list[int]], bool]:
        """What to tell the ids of each planned step. It says False, and does nothing, where `take` must be told."""
        assert self._steady is not None
        return self._steady.append_simple

    @property
    def is_steady(self) -> bool:
        """Whether the sequences of the last `go_on` are still those that run, so that `take` can be told their ids."""
        return self._steady is not None and self._singles is not None

    def go_on_ahead(self) -> tuple[Begun, int] | None:
        """`go_on` for the step after that, before `take` is told what it chose: as if no stop token was among that."""
        if not self.is_steady or (self._waiting and not self._is_closed_to(self._waiting[0])):
            return None
        assert self._steady is not None
        begun = self._steady.begin(1)
        return None if begun is None else (begun, self._steady.n_blocks(1))

    def take(self, ids: list[int]) -> list[Sequence]:
        """`update` after `go_on`: the id chosen for each sequence, in order. Returns those that it ended."""
        steady, ended = self._steady, list[Sequence]()
        assert steady is not None
        for sequence in steady.append(ids):
            token_id = sequence.tokens.pop()
            self._catch_up(sequence)
            self._advance(Part(sequence, 1, 1), [token_id])
            if sequence.finish is not None:
                ended.append(sequence)
        if steady.n_steps % BLOCK_SIZE == 0:
            self.settle()
        return ended

    def settle(self) -> None:
        """Catch up on what `take` leaves for when it matters: every n_computed, and the blocks that were filled. All
        other calls do so first."""
        for sequence in self._steady.sequences if self._steady is not None else ():
            if sequence.finish is None:
                self._catch_up(sequence)

    def update(self, parts: list[Part], chosen: list[list[int]]) -> list[tuple[Sequence, list[int]]]:
        """Takes the ids chosen after each part's last token and its drafts; publishes, finishes and frees what is due.

        Returns for each part its sequence and the tokens appended to it: none while its prompt goes on, or if it was
        aborted since it was scheduled.
        """
        self.settle()
        self._steady = None
        return [
            (part.sequence, self._advance(part, ids) if part.sequence.finish is None else [])
            for part, ids in zip(parts, chosen, strict=True)
        ]

    def check(self) -> None:
        """AssertionError unless every list, table and block is as it should be. For tests: it is slow."""
        self.settle()
        self._tables.check(self._running)
        assert len(self._running) <= self._max_sequences
        for sequences, status in ((self._running, Status.RUNNING), (self._waiting, Status.WAITING)):
            assert sequences == sorted(sequences, key=_order), f"{status.value} out of order"
            assert all(s.status is status and s.finish is None for s in sequences), f"not all {status.value}"
            assert all(s.n_computed < len(s.tokens) < s.max_tokens for s in sequences), "nothing left to do"
        assert not any(s.n_computed or s.block_ids or s.drafts for s in self._waiting), "a waiting one holds something"
        for digest, sequence in self._computing.items():
            assert sequence.status is Status.RUNNING, "a block is awaited from a sequence that does not run"
            assert digest in sequence.hashes[sequence.n_full :], "a block is awaited that is there"

    def _is_closed_to(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence can get no place before one becomes free."""
        return len(self._running) == self._max_sequences and sequence.priority >= self._running[-1].priority

    def _make_way(self) -> None:
        """For the first waiting sequence, preempts running ones of lower priority, as few as will do; none if all of
        them would not do, as others can use what it cannot use yet."""
        if not self._waiting or not self._running or self._waiting[0].priority >= self._running[-1].priority:
            return
        for sequence in self._waiting:
            n_hit = self._find_prefix(sequence)
            if n_hit is not None:
                n_lower = sum(other.priority > sequence.priority for other in self._running)
                if self._fits(sequence, n_hit, n_lower):
                    while not self._fits(sequence, n_hit):
                        self._preempt(self._running[-1])
                return

    def _serve_running(self) -> list[Sequence]:
        """Schedules one token of each running sequence; for its block, the last in order are preempted, if need be
        itself. Returns those with more to compute."""
        unfinished = []
        for sequence in self._running:  # only its tail goes while it is walked
            position = sequence.n_computed
            if position % BLOCK_SIZE == 0 and not self._make_room(sequence):
                break
            sequence.n_scheduled = 1
            if len(sequence.tokens) + len(sequence.drafts) - position > 1:
                unfinished.append(sequence)
        return unfinished

    def _make_room(self, sequence: Sequence) -> bool:
        """A block for its next token. False if it was the last in order, and so was preempted itself."""
        while self._tables.extend(sequence, sequence.n_computed + 1) == sequence.n_computed:
            last = self._running[-1]
            self._preempt(last)
            if last is sequence:
                return False
        return True

    def _spend(self, n_left: int, unfinished: deque[Sequence]) -> int:
        """Gives up to n_left tokens, in order, to sequences with more to compute and to waiting ones, and preempts none
        for that. Returns how many it gave."""
        n = n_left
        for sequence in tuple(self._waiting):
            while unfinished and unfinished[0].order < sequence.order:
                n -= self._schedule_more(unfinished.popleft(), n)
            if n == 0 or len(self._running) == self._max_sequences:
                break
            n_hit = self._find_prefix(sequence)
            if n_hit is None:
                continue
            if not self._fits(sequence, n_hit):
                break  # if smaller ones behind it went first, it might wait for ever
            self._admit(sequence, n_hit)
            n -= self._schedule_more(sequence, n)
        for sequence in unfinished:
            n -= self._schedule_more(sequence, n)
        return n_left - n

    def _schedule_more(self, sequence: Sequence, n_left: int) -> int:
        """Schedules more tokens of a running sequence, as its free blocks and n_left allow. Returns how many."""
        n_useful = sequence.max_tokens - 1 - len(sequence.tokens)  # nothing follows the last token
        del sequence.drafts[n_useful:]
        begin = sequence.n_computed + sequence.n_scheduled
        end = min(begin + n_left, len(sequence.tokens) + len(sequence.drafts))
        if sequence.rows_from is not None:
            end = min(end, max(sequence.n_computed, sequence.rows_from) + MAX_ROWS)
        n = min(end, self._tables.extend(sequence, end)) - begin
        sequence.n_scheduled += n
        return n

    def _find_prefix(self, sequence: Sequence) -> int | None:
        """Blocks of a waiting sequence that are cached. None while one before it in order computes the next of them:
        it had better wait for these than compute them too."""
        if sequence.awaited is not None and self._is_computed_before(sequence.awaited, sequence):
            return None
        sequence.hash_blocks(len(sequence.tokens) // BLOCK_SIZE)
        n_hit = self._tables.find_prefix(sequence)
        sequence.awaited = None
        for digest in sequence.hashes[n_hit : sequence.n_reusable // BLOCK_SIZE]:
            if not self._is_computed_before(digest, sequence):
                break
            sequence.awaited = digest  # the last of them, so that one look at it answers until all are there
        return n_hit if sequence.awaited is None else None

    def _is_computed_before(self, digest: bytes, sequence: Sequence) -> bool:
        other = self._computing.get(digest)
        return other is not None and other.order < sequence.order

    def _fits(self, sequence: Sequence, n_hit: int, n_leaving: int = 0) -> bool:
        """Whether it could be admitted, were the last n_leaving running ones preempted."""
        n_staying = len(self._running) - n_leaving
        staying, leaving = self._running[:n_staying], self._running[n_staying:]
        return n_staying < self._max_sequences and self._tables.fits(sequence, n_hit, staying, leaving)

    def _admit(self, sequence: Sequence, n_hit: int) -> None:
        self._singles = None
        self._waiting.remove(sequence)
        insort(self._running, sequence, key=_order)
        sequence.status = Status.RUNNING
        self._tables.open(sequence, n_hit)
        if sequence.n_preempted == 0:
            sequence.n_cached = sequence.n_computed
        for digest in sequence.hashes[n_hit:]:
            self._computing[digest] = sequence

    def _advance(self, part: Part, chosen: list[int]) -> list[int]:
        sequence, accepted = part.sequence, []
        n_full = sequence.n_full
        sequence.n_computed += part.n_tokens
        if chosen:
            accepted = sequence.accept(chosen)
            if len(chosen) > 1:
                self.n_drafted += len(chosen) - 1
                self.n_accepted += len(accepted) - 1
                sequence.n_computed = len(sequence.tokens) - 1  # what rejected drafts left behind is overwritten
        self._complete(sequence, n_full)
        if sequence.finish is not None:
            self._end(sequence, sequence.finish)
        return accepted

    def _catch_up(self, sequence: Sequence) -> None:
        """With a sequence of which all but the last token is computed."""
        n_full = sequence.n_full
        sequence.n_computed = len(sequence.tokens) - 1
        self._complete(sequence, n_full)

    def _complete(self, sequence: Sequence, n_before: int) -> None:
        """Lets others find the blocks that were filled since n_before of them were."""
        if sequence.n_full > n_before:
            self._tables.complete(sequence, n_before)
            for digest in sequence.hashes[n_before : sequence.n_full]:
                self._computing.pop(digest, None)

    def _preempt(self, sequence: Sequence) -> None:
        """Back to waiting with all its tokens; they are computed again, as far as the cache does not keep them."""
        self._leave(sequence)
        self.n_preempted += 1
        sequence.n_preempted += 1
        sequence.status = Status.WAITING
        insort(self._waiting, sequence, key=_order)

    def _end(self, sequence: Sequence, finish: Finish) -> None:
        if sequence.status is Status.RUNNING:
            self._leave(sequence)
        else:
            self._waiting.remove(sequence)
        sequence.status = Status.FINISHED
        sequence.finish = finish

    def _leave(self, sequence: Sequence) -> None:
        self._singles = None
        self._running.remove(sequence)
        for digest in sequence.hashes[sequence.n_full :]:
            if self._computing.get(digest) is sequence:
                del self._computing[digest]
        self._tables.close(sequence)
        sequence.n_computed = sequence.n_scheduled = 0
        sequence.drafts = []


def _part(sequence: Sequence) -> Part:
    """What is scheduled of it. Logits are wanted once its tokens are all computed, for the last and for each draft;
    of a sequence that wants more rows, for each token from there on."""
    n_drafts = sequence.n_computed + sequence.n_scheduled - len(sequence.tokens)  # below 0: its prompt goes on
    if sequence.drafts:
        del sequence.drafts[max(0, n_drafts) :]
    n_logits = max(0, n_drafts + 1)
    if sequence.rows_from is not None:
        n_logits = max(0, min(sequence.n_scheduled, sequence.n_computed + sequence.n_scheduled - sequence.rows_from))
    return Part(sequence, sequence.n_scheduled, n_logits)
