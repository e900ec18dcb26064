"""What the scheduler does with several requests, step by step, on the engine's own loop. It knows no text."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from gristmill.engine.loop import Loop, Stream
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part, Scheduler
from gristmill.engine.sequence import Sequence, Status
from gristmill.kv.cache import KvPlan, allocate
from gristmill.kv.pool import BlockPool
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import Ops
from gristmill.types import Event, Failure, Request, SamplingParams, TokenEvent

PROMPT, ANSWER, AGAIN, WAITING = "prompt", "answer", "again", "waiting"


@dataclass(frozen=True, slots=True)
class Share:
    """One request's part in a step.

    kind       prompt: tokens that were given. answer: the one that was chosen last, to choose the next.
               again: tokens that were computed before the request was preempted. waiting: none
    first      position of the first of n_tokens that were computed
    n_cached   tokens that the cache had, of a request that is admitted in this step
    preempted  whether it lost its blocks in this step
    finished   whether the step ended it
    """

    request: int
    kind: str
    first: int = 0
    n_tokens: int = 0
    n_cached: int = 0
    preempted: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """shares: of the requests that are open, in the order in which they came. blocks_used: of the cache."""

    shares: tuple[Share, ...]
    blocks_used: int
    ms: float

    @property
    def n_tokens(self) -> int:
        return sum(share.n_tokens for share in self.shares)


@dataclass(frozen=True, slots=True)
class Timeline:
    """prompts, answers: ids of each request. n_blocks: in the cache, over all groups of layers."""

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[tuple[int, ...], ...]
    n_blocks: int
    steps: tuple[Step, ...]


class WatchedScheduler(Scheduler):
    """A scheduler that notes what each step is made of. It decides nothing by itself."""

    def __init__(
        self,
        pools: list[BlockPool],
        windows: list[int],
        requests: list[Sequence],
        *,
        max_sequences: int,
        step_tokens: int,
    ) -> None:
        super().__init__(pools, windows, max_sequences=max_sequences, step_tokens=step_tokens, max_queue=len(requests))
        self._pools = pools
        self._requests = requests
        self._furthest = [0] * len(requests)  # tokens of each that were ever computed
        self.shares: list[Share] = []
        self.blocks_used = 0

    def go_on(self) -> None:
        """Every step is scheduled, so that it is noted."""

    def schedule(self) -> list[Part]:
        """As its base does. Then `shares` and `blocks_used` are of the step that comes."""
        before = [(request.status, request.n_preempted) for request in self._requests]
        parts = super().schedule()
        part_of = {part.sequence.request_id: part for part in parts}
        self.shares = []
        for i, (request, (status, n_preempted)) in enumerate(zip(self._requests, before, strict=True)):
            if request.finish is None:
                share = self._share(i, part_of.get(request.request_id), status is not Status.RUNNING)
                self.shares.append(replace(share, preempted=request.n_preempted > n_preempted))
        self.blocks_used = sum(pool.n_blocks - pool.n_free for pool in self._pools)
        return parts

    def _share(self, i: int, part: Part | None, is_new: bool) -> Share:
        if part is None:
            return Share(i, WAITING)
        first, request = part.sequence.n_computed, self._requests[i]
        kind = AGAIN if first < self._furthest[i] else PROMPT if first < request.n_prompt else ANSWER
        self._furthest[i] = max(self._furthest[i], first + part.n_tokens)
        return Share(i, kind, first, part.n_tokens, first if is_new else 0)


def run(
    decoder: Decoder,
    ops: Ops,
    kv_plan: KvPlan,
    kv_type: str,
    prompts: list[list[int]],
    n_tokens: int,
    eos_ids: tuple[int, ...] = (),
    *,
    max_sequences: int,
    step_tokens: int,
) -> Timeline:
    """Answer all prompts together, greedily, with up to n_tokens each.

    ValueError for a prompt that cannot be run: empty, too long for the model or its cache, an id that is none.
    """
    requests = [_request(i, ids, n_tokens, eos_ids, decoder) for i, ids in enumerate(prompts)]
    pools = [BlockPool(n) for n in kv_plan.n_blocks]
    scheduler = WatchedScheduler(
        pools, list(kv_plan.windows), requests, max_sequences=max_sequences, step_tokens=step_tokens
    )
    runner = Runner(decoder, ops, allocate(ops, decoder.config, kv_plan.n_blocks, kv_type))
    loop = Loop(scheduler, runner, ops)
    failures, answers = list[BaseException](), [list[int]() for _ in prompts]
    for i, request in enumerate(requests):

        def take(event: Event, i: int = i) -> None:
            if isinstance(event, Failure):
                failures.append(event.error)
            elif isinstance(event, TokenEvent):
                answers[i].append(event.token_id)

        loop.add(request, Stream(Request(tuple(request.tokens), request.params), take))
    steps = list[Step]()
    while loop.has_work and not failures:
        started = time.perf_counter()
        loop.step()
        ms = (time.perf_counter() - started) * 1e3
        shares = (replace(s, finished=requests[s.request].finish is not None) for s in scheduler.shares)
        steps.append(Step(tuple(shares), scheduler.blocks_used, ms))
    if failures:
        raise failures[0]
    chosen = tuple(map(tuple, answers))
    return Timeline(tuple(map(tuple, prompts)), chosen, sum(kv_plan.n_blocks), tuple(steps))


def _request(number: int, ids: list[int], n_tokens: int, eos_ids: tuple[int, ...], decoder: Decoder) -> Sequence:
    c = decoder.config
    if not ids:
        raise ValueError(f"prompt {number}: it has no tokens; give at least one (a BOS token, say)")
    if len(ids) + n_tokens > c.max_context:
        raise ValueError(
            f"prompt {number}: {len(ids)} tokens and {n_tokens} to generate are more than the {c.max_context} of the"
            " model's context: shorten it or generate fewer"
        )
    if bad := [i for i in ids if not 0 <= i < c.vocab_size]:
        raise ValueError(f"prompt {number}: token id {bad[0]} is outside the vocabulary of {c.vocab_size}")
    return Sequence(
        request_id=number,
        tokens=list(ids),
        n_prompt=len(ids),
        params=SamplingParams(temperature=0.0),
        seed=0,
        stop_ids=frozenset(eos_ids),
        max_output=n_tokens,
        arrival=number,
    )
