"""Asks a server for answers at a chosen rate and notes when what came. It judges nothing."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from gristmill.bench.serving.answer import Answer, AnswerError
from gristmill.bench.serving.http import Address, Pool, encode_request
from gristmill.bench.serving.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of whom. body: fields of every request beside prompt and lengths, or in their place."""

    address: Address
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    chat: bool
    stream: bool = True

    def request(self, prompt: Prompt) -> bytes:
        asked: dict[str, Any] = {"max_tokens": prompt.n_output}
        if self.chat:
            asked["messages"] = [{"role": "user", "content": prompt.content}]
        else:
            asked["prompt"] = prompt.content
        if self.stream:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"Content-Type": "application/json", **self.headers}
        return encode_request(self.address, "POST", self.path, headers, json.dumps({**asked, **self.body}).encode())


@dataclass(frozen=True, slots=True)
class Pace:
    """requests_per_s: infinity asks for all at once. burstiness: shape of the gamma distribution of the times between;
    1 is a Poisson process, less comes in bursts, more is evener. timeout_s: of one request."""

    requests_per_s: float = math.inf
    burstiness: float = 1.0
    max_concurrency: int | None = None
    seed: int = 0
    timeout_s: float = 600.0

    def arrivals(self, n: int) -> list[float]:
        """Seconds after the start. They are stretched to take n / requests_per_s in all, as vLLM's benchmark does."""
        if math.isinf(self.requests_per_s):
            return [0.0] * n
        gaps = np.random.default_rng(self.seed).gamma(self.burstiness, 1.0, n)
        times = np.cumsum(gaps)
        stretch = n / self.requests_per_s / times[-1] if times[-1] else 0.0  # of gaps too short for a number: at once
        return [float(t) for t in times * stretch]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request. Times in seconds of one clock.

    started  when it was sent; arrived: when it was due, earlier where max_concurrency made it wait
    times    when text came; none of an answer that was asked for as a whole
    n_input, n_output  tokens as the server counts them, or else as the client does: `counted` says which
    error    why there is no answer; the other fields then mean nothing
    """

    arrived: float
    started: float
    ended: float
    times: tuple[float, ...] = ()
    n_input: int = 0
    n_output: int = 0
    counted: bool = True
    error: str | None = None

    @property
    def first_token_s(self) -> float | None:
        return self.times[0] - self.started if self.times else None

    @property
    def whole_s(self) -> float:
        return self.ended - self.started

    @property
    def each_token_s(self) -> float | None:
        """Mean time of a token after the first; None where there is none."""
        return (self.ended - self.times[0]) / (self.n_output - 1) if self.times and self.n_output > 1 else None

    @property
    def between_s(self) -> list[float]:
        """Times between events that had text."""
        return [b - a for a, b in pairwise(self.times)]


@dataclass(frozen=True, slots=True)
class Run:
    """outcomes in the order of the prompts. client_s: processor time that the client took of duration_s."""

    outcomes: list[Outcome] = field(default_factory=list)
    duration_s: float = 0.0
    client_s: float = 0.0


async def run(
    target: Target, prompts: Sequence[Prompt], pace: Pace, done: Callable[[Outcome], None] = lambda _: None
) -> Run:
    """All prompts. Failures are outcomes; nothing is raised for them."""
    pool = Pool(target.address)
    limit = asyncio.Semaphore(pace.max_concurrency or len(prompts))
    requests = [target.request(prompt) for prompt in prompts]
    start, busy = time.perf_counter(), time.process_time()

    async def one(request: bytes, prompt: Prompt, due: float) -> Outcome:
        wait = start + due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        arrived = time.perf_counter()
        async with limit:
            outcome = await _ask(pool, request, prompt, target.stream, arrived, pace.timeout_s)
        done(outcome)
        return outcome

    try:
        asked = zip(requests, prompts, pace.arrivals(len(prompts)), strict=True)
        outcomes = await asyncio.gather(*(one(*each) for each in asked))
    finally:
        pool.close()
    return Run(outcomes, max(o.ended for o in outcomes) - start, time.process_time() - busy)


async def _ask(pool: Pool, request: bytes, prompt: Prompt, stream: bool, arrived: float, timeout_s: float) -> Outcome:
    answer, now = Answer(stream), time.perf_counter
    started = now()

    def take(status: int, data: bytes) -> None:
        answer.take(status, data, now())

    try:
        async with asyncio.timeout(timeout_s):
            status = await pool.ask(request, take)
        ended = now()
        answer.end(status, ended)
    except TimeoutError:
        return Outcome(arrived, started, now(), error=f"no answer within {timeout_s:g} s")
    except AnswerError as error:
        return Outcome(arrived, started, now(), error=str(error))
    except OSError as error:
        return Outcome(arrived, started, now(), error=error.strerror or str(error) or type(error).__name__)
    counted = answer.n_output is not None
    n_input = prompt.n_input if answer.n_input is None else answer.n_input
    n_output = len(answer.times) if answer.n_output is None else answer.n_output
    times = tuple(answer.times) if stream else ()
    return Outcome(arrived, started, ended, times, n_input, n_output, counted)
