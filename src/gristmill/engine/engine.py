"""The engine as other threads see it: they submit requests and cancel them; its own thread does everything else."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue

from gristmill.engine.adjust import Adjuster, AllowedIds, Mask, needs_adjusting
from gristmill.engine.draft_model import DraftModel
from gristmill.engine.drafts import PromptLookup
from gristmill.engine.loop import Loop, Stream
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import QueueFullError, Scheduler
from gristmill.engine.sequence import Sequence
from gristmill.engine.telling import Sink
from gristmill.engine.warm import Progress, Warmer
from gristmill.kv.cache import KvPlan, allocate
from gristmill.kv.pool import BlockPool
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import STEP_TOKENS, Ops
from gristmill.types import Request, SamplingParams, Wants

_UNBOUNDED = 1 << 30
_NONE = frozenset[int]()

Order = Callable[[Loop], None] | None
"""What another thread asks of the engine's own. None: that it end."""


class EngineClosedError(RuntimeError):
    """The engine was closed before, or while, the request ran."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """max_context    tokens of prompt and answer together
    max_sequences  requests that run at once; the others wait
    max_queue      so many may wait; None: any number
    step_tokens    tokens computed in one step
    eos_ids        end an answer unless ignore_eos
    speculate      tokens that n-grams of a text may guess at a time; 0: they guess none
    replay         as Runner
    """

    max_context: int
    max_sequences: int = 16
    max_queue: int | None = None
    step_tokens: int = STEP_TOKENS
    eos_ids: tuple[int, ...] = ()
    speculate: int = 0
    replay: str = "on"


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine does at a moment. used: share of the cache's blocks that requests hold, 0 to 1, in the fullest
    pool. n_preempted: requests that had to give theirs back, since the beginning; n_steps: steps since then."""

    n_running: int
    n_waiting: int
    used: float
    n_preempted: int
    n_steps: int = 0


class Engine:
    """Runs requests together. Any thread may call it; `close` it, or its thread lives as long as the process.

    draft     a smaller model of the same vocabulary that guesses tokens ahead
    guide_of  makes the guide of a request with structured output; None where the model has no vocabulary, or no token
              of it ends an answer
    bad_ids   the tokens that a bad word may have; None where the model has no vocabulary
    warming   called with (steps done, steps in all) where the backend needs to be warmed before the first request
    """

    def __init__(
        self,
        decoder: Decoder,
        ops: Ops,
        settings: EngineSettings,
        kv_plan: KvPlan,
        kv_type: str,
        guide_of: Callable[[SamplingParams], Mask] | None = None,
        draft: Decoder | None = None,
        warming: Progress | None = None,
        bad_ids: Callable[[str], list[tuple[int, ...]]] | None = None,
    ) -> None:
        self.config = decoder.config
        self.settings = settings
        self._eos_ids = frozenset(settings.eos_ids)
        self._guide_of = guide_of
        self._bad_ids = bad_ids
        runner = Runner(decoder, ops, allocate(ops, decoder.config, kv_plan.n_blocks, kv_type), settings.replay)
        self._pools = [BlockPool(n) for n in kv_plan.n_blocks]
        self._scheduler = Scheduler(
            self._pools,
            list(kv_plan.windows),
            max_sequences=settings.max_sequences,
            step_tokens=max(settings.step_tokens, settings.max_sequences),
            prompt_tokens=runner.prompt_tokens,
            max_queue=_UNBOUNDED,
        )
        guesser = None
        if draft is not None:
            guesser = DraftModel(
                draft, ops, kv_plan, kv_type, settings.step_tokens, settings.replay, decoder.config.vocab_size
            )
        if ops.needs_warming:
            sizes = settings.max_sequences, settings.max_context
            Warmer(runner, ops, kv_plan.n_blocks, decoder.config.vocab_size, *sizes).run(warming)
            if guesser is not None:
                guesser.warmer(*sizes).run(warming)
        self._loop: Loop | None = Loop(self._scheduler, runner, ops, guesser)
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._ids = count()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def check(self, prompt_ids: list[int], wants: Wants = Wants.TOKENS) -> None:
        """ValueError for a prompt that cannot be run: empty, too long, or with an id outside the vocabulary."""
        limit = self.settings.max_context
        if not prompt_ids:
            raise ValueError("the prompt has no tokens; give at least one (a BOS token, say)")
        if len(prompt_ids) > limit - (wants is Wants.TOKENS):
            excess = "leaves no room to answer in" if wants is Wants.TOKENS else "is more than"
            raise ValueError(
                f"the prompt has {len(prompt_ids)} tokens, which {excess} a context of {limit};"
                " shorten it or raise the context"
            )
        if min(prompt_ids) < 0 or max(prompt_ids) >= self.config.vocab_size:
            bad = next(i for i in prompt_ids if not 0 <= i < self.config.vocab_size)
            raise ValueError(f"token id {bad} is outside the vocabulary of {self.config.vocab_size}")

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request; its events go to the sink. Returns the id to cancel it by.

        ValueError for what cannot be run, QueueFullError where too many wait, EngineClosedError after `close`, and in a
        process that was forked from the engine's.
        """
        self.check(list(request.prompt_ids), request.wants)
        sequence, stream = self._sequence(request), self._stream(request, sink)
        with self._starting:
            if self._loop is None:
                raise EngineClosedError("the engine was closed")
            if self._thread is not None and not self._thread.is_alive():
                raise EngineClosedError("the engine's thread is not in this process: load the model after the fork")
            limit, n_waiting = self.settings.max_queue, self._scheduler.n_waiting + self._orders.qsize()
            if limit is not None and n_waiting >= limit:
                raise QueueFullError(f"{n_waiting} requests wait and max_queue is {limit}: try again later")
            self._start(self._loop)
            self._orders.put(lambda loop: loop.add(sequence, stream))
        return sequence.request_id

    def cancel(self, request_id: int) -> None:
        """End a request before its next step, without another event. One that has ended is left alone."""
        self._orders.put(lambda loop: loop.cancel(request_id))

    def load(self) -> Load:
        """Read from another thread than the engine's, so its parts may be of two moments."""
        scheduler = self._scheduler
        used = max(1 - pool.n_free / pool.n_blocks for pool in self._pools)
        loop = self._loop
        n_steps = loop.n_steps if loop is not None else 0
        return Load(scheduler.n_running, scheduler.n_waiting, used, scheduler.n_preempted, n_steps)

    def close(self) -> None:
        """End all requests with EngineClosedError, and the thread; free the cache."""
        with self._starting:
            self._loop = None
            thread, self._thread = self._thread, None
        if thread is not None:
            _stop(self._orders, thread)

    def _start(self, loop: Loop) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=_run, args=(loop, self._orders), name="gristmill engine", daemon=True)
        try:
            thread.start()
            self._thread = thread
            # Also at exit: a thread that comes back from native code into an interpreter that is gone ends the process.
            weakref.finalize(self, _stop, self._orders, thread)
        except BaseException:  # an interrupt, say: if it did start, it must not run beside the next one
            self._orders.put(None)
            self._orders, self._thread = SimpleQueue(), None
            raise

    def _sequence(self, request: Request) -> Sequence:
        params, n_prompt = request.params, len(request.prompt_ids)
        number = next(self._ids)
        room = self.settings.max_context - n_prompt
        generates = request.wants is Wants.TOKENS
        return Sequence(
            request_id=number,
            tokens=list(request.prompt_ids),
            n_prompt=n_prompt,
            params=params,
            seed=int.from_bytes(os.urandom(8)) if params.seed is None else params.seed % 2**64,
            stop_ids=self._stop_ids(params),
            max_output=min(room, params.max_tokens or room) if generates else 1,
            priority=request.priority,
            arrival=number,
            salt=request.cache_salt.encode(),
            rows_from=request.rows_from if not generates or params.prompt_logprobs is not None else None,
        )

    def _lookup(self) -> PromptLookup | None:
        return PromptLookup(self.settings.speculate) if self.settings.speculate else None

    def _stop_ids(self, params: SamplingParams) -> frozenset[int]:
        """One object for most requests, since it is looked at with every token."""
        ends = _NONE if params.ignore_eos else self._eos_ids
        return ends.union(params.stop_token_ids) if params.stop_token_ids else ends

    def _stream(self, request: Request, sink: Sink) -> Stream:
        params = request.params
        guide: Mask | None = None
        if request.wants is not Wants.TOKENS:
            return Stream(request, sink)
        vocab_size, allowed = self.config.vocab_size, params.allowed_token_ids
        for name, ids in (("logit_bias", params.logit_bias), ("allowed_token_ids", allowed)):
            if ids and max(ids) >= vocab_size:
                raise ValueError(f"{name}: token id {max(ids)} is outside the vocabulary of {vocab_size}")
        if params.min_tokens and self._stop_ids(params) >= set(range(vocab_size) if allowed is None else allowed):
            every = "all of the vocabulary" if allowed is None else "all of allowed_token_ids"
            raise ValueError(f"stop_token_ids: are {every}, which min_tokens leaves no token to choose from")
        if params.structured_outputs is not None:
            if self._guide_of is None:
                raise ValueError(
                    "structured_outputs needs a vocabulary and a token of it that ends answers; this model lacks them"
                )
            guide = self._guide_of(params)
        elif allowed is not None:
            guide = AllowedIds(allowed, vocab_size)
        bad = list[tuple[int, ...]]()
        if params.bad_words:
            if self._bad_ids is None:
                raise ValueError("bad_words need a vocabulary, and this model has none")
            bad = [ids for word in params.bad_words for ids in self._bad_ids(word)]
        adjuster = None
        if needs_adjusting(params, guide is not None):
            adjuster = Adjuster(params, request.prompt_ids, vocab_size, guide, bad)
        return Stream(request, sink, adjuster, self._lookup())


def _run(loop: Loop, orders: SimpleQueue[Order]) -> None:
    while True:
        while not loop.has_work or not orders.empty():
            order = orders.get()
            if order is None:
                return
            with _failing_all(loop):
                order(loop)
            del order  # it may hold on to who gave it, and so to the engine
        with _failing_all(loop):
            loop.step(orders.qsize)


@contextmanager
def _failing_all(loop: Loop) -> Iterator[None]:
    """Whose request has gone wrong there cannot be told."""
    try:
        yield
    except Exception as error:
        loop.fail_all(error)


def _stop(orders: SimpleQueue[Order], thread: threading.Thread) -> None:
    orders.put(lambda loop: loop.fail_all(EngineClosedError("the engine was closed")))
    orders.put(None)
    if thread is not threading.current_thread():
        thread.join()
