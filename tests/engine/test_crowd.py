"""A request's answer does not depend on its neighbours: tokens and log-probabilities equal, bit for bit, those it gets
alone, under random arrivals, chunks, preemption, shared beginnings, drafts, threads and replay; new blocks hold NaN."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_models import checkpoint
from instruction_sets import isas
from late_ops import LateOps

from gristmill.engine.adjust import Adjuster, AllowedIds, needs_adjusting
from gristmill.engine.draft_model import DraftModel
from gristmill.engine.drafts import PromptLookup
from gristmill.engine.loop import Loop, Stream
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Scheduler
from gristmill.engine.sequence import Sequence
from gristmill.formats.open import open_checkpoint
from gristmill.kv.cache import KvCache, KvPlan, allocate, windows_of
from gristmill.kv.pool import BlockPool
from gristmill.models.build import build
from gristmill.models.decoder import Decoder
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import BLOCK_SIZE
from gristmill.types import Event, PromptLogprobs, Request, SamplingParams, TokenEvent

Answers = dict[int, list[TokenEvent]]
QTYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K")
CASES = [("llama-wide", qtype) for qtype in QTYPES]
CASES += [("qwen3-wide", "Q8_0"), ("qwen3-moe-wide", "Q4_K"), ("gpt-oss-wide", "MXFP4"), ("gpt-oss-wide", "Q8_0")]
CASES += [("mistral", "F32"), ("qwen2-untied", "F32"), ("qwen2-window", "F32")]
AMPLE = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@dataclass(frozen=True)
class Way:
    """How requests are run."""

    threads: int = 1
    isa: str = "auto"
    n_blocks: int = AMPLE
    max_sequences: int = 16
    step_tokens: int = 512
    replay: str = "off"
    speculate: bool = False
    draft: bool = False  # the model guesses for itself, so that most guesses are right
    ahead: bool = False  # steps are begun before what the one before them chose is looked at
    arrivals: int | None = None  # seed of the steps between one request and the next; None: all at once


class Poison:
    """Fills blocks with NaN when they are handed out, so that what an earlier owner left there cannot be mistaken."""

    def __init__(self, ops: CpuOps, decoder: Decoder, kv: KvCache) -> None:
        c = decoder.config
        self._ops, self._kv = ops, kv
        self._width = (c.n_heads + 2 * c.n_kv_heads) * c.head_dim
        self._half = c.head_dim // 2

    def fill(self, group: int, blocks: list[int]) -> None:
        n = len(blocks) * BLOCK_SIZE
        slots = np.concatenate([np.arange(b * BLOCK_SIZE, (b + 1) * BLOCK_SIZE) for b in blocks]).astype(np.int32)
        qkv = np.full((n, self._width), np.nan, np.float32)
        angles = np.ones((n, self._half), np.float32), np.zeros((n, self._half), np.float32)
        for layer, g in zip(self._kv.layers, self._kv.groups, strict=True):
            if g == group:
                self._ops.store_qkv(qkv, None, None, 1e-6, angles, layer, slots)


class PoisonedPool(BlockPool):
    def __init__(self, n_blocks: int, group: int, poison: Poison) -> None:
        super().__init__(n_blocks)
        self._group, self._poison = group, poison

    def allocate(self, n: int) -> list[int]:
        blocks = super().allocate(n)
        if blocks:
            self._poison.fill(self._group, blocks)
        return blocks


class Guesses(PromptLookup):
    """Drafts that are mostly right, since random models do not repeat themselves: what the request got alone."""

    def __init__(self, n_prompt: int, answer: list[int], rng: random.Random) -> None:
        super().__init__()
        self._n_prompt, self._answer, self._rng = n_prompt, answer, rng

    def propose(self, tokens: list[int], n: int) -> list[int]:
        at = len(tokens) - self._n_prompt
        guesses = self._answer[at : at + self._rng.randrange(min(n, 6) + 1)]
        return [token_id if self._rng.random() < 0.8 else 1 for token_id in guesses]


class Crowd:
    """A loop that is stepped by hand, and what its requests were told."""

    def __init__(self, path: Path, way: Way, kv_type: str = "f16", answers: Answers | None = None) -> None:
        self.way = way
        self._answers = answers or {}
        self.ops = LateOps(way.threads, way.isa) if way.ahead else CpuOps(way.threads, way.isa)
        self.decoder = build(open_checkpoint(path), self.ops)
        self.windows = windows_of(self.decoder.config)
        kv = allocate(self.ops, self.decoder.config, [way.n_blocks] * len(self.windows), kv_type)
        poison = Poison(self.ops, self.decoder, kv)
        self.pools = [PoisonedPool(way.n_blocks, g, poison) for g in range(len(self.windows))]
        self.scheduler = Scheduler(
            list[BlockPool](self.pools),
            list(self.windows),
            max_sequences=way.max_sequences,
            step_tokens=way.step_tokens,
            max_queue=1000,
        )
        draft_model = None
        if way.draft and not all(self.decoder.config.windows):
            kv_plan = KvPlan(self.windows, (way.n_blocks,) * len(self.windows), 0)
            vocab_size = self.decoder.config.vocab_size
            draft_model = DraftModel(self.decoder, self.ops, kv_plan, kv_type, way.step_tokens, way.replay, vocab_size)
        self.loop = Loop(self.scheduler, Runner(self.decoder, self.ops, kv, way.replay), self.ops, draft_model)
        self.told: dict[int, list[Event]] = {}
        self.n_cached = 0

    def add(self, number: int, request: Request) -> None:
        params, n = request.params, len(request.prompt_ids)
        assert params.max_tokens is not None
        assert params.seed is not None
        sequence = Sequence(
            request_id=number,
            tokens=list(request.prompt_ids),
            n_prompt=n,
            params=params,
            seed=params.seed,
            stop_ids=frozenset(params.stop_token_ids),
            max_output=params.max_tokens,
            priority=request.priority,
            arrival=number,
            salt=request.cache_salt.encode(),
            rows_from=request.rows_from if params.prompt_logprobs is not None else None,
        )
        adjuster, lookup = None, None
        allowed, vocab_size = params.allowed_token_ids, self.decoder.config.vocab_size
        if needs_adjusting(params, allowed is not None):
            mask = None if allowed is None else AllowedIds(allowed, vocab_size)
            bad = [(i, j) for i in range(0, vocab_size, 2) for j in (3, 5)] if params.bad_words else []
            adjuster = Adjuster(params, request.prompt_ids, vocab_size, mask, bad)
        if self.way.speculate:
            answer = [event.token_id for event in self._answers[number]]
            lookup = Guesses(
                n, answer[0 if sequence.rows_from is None else n - 1 - sequence.rows_from :], random.Random(number)
            )
        self.told[number] = []
        self.loop.add(sequence, Stream(request, self.told[number].append, adjuster, lookup))

    def run(self, requests: list[Request]) -> Answers:
        """Tokens with their log-probabilities, by request; those of the prompt too where they were asked for."""
        rng = random.Random(self.way.arrivals)
        waiting = list(enumerate(requests))
        while waiting or self.loop.has_work:
            while waiting and (self.way.arrivals is None or not self.loop.has_work or rng.random() < 0.4):
                self.add(*waiting.pop(0))
            self.loop.step(lambda: rng.random() < 0.4)
            self.scheduler.check()
        for pool in self.pools:
            pool.check([])
        self.n_cached = sum(
            e.n_cached for events in self.told.values() for e in events[-1:] if isinstance(e, TokenEvent)
        )
        return {number: list(_flat(events)) for number, events in self.told.items()}


def _flat(events: list[Event]) -> Iterator[TokenEvent]:
    for event in events:
        assert isinstance(event, TokenEvent | PromptLogprobs), event
        yield from ([event._replace(n_cached=0)] if isinstance(event, TokenEvent) else event.tokens)


def requests_of(vocab_size: int, seed: int, n: int = 9) -> list[Request]:
    """Several beginnings in common, texts that repeat themselves, and every kind of sampling."""
    rng = random.Random(seed)
    phrase = [rng.randrange(vocab_size) for _ in range(7)]
    beginnings = [phrase * 6, [rng.randrange(vocab_size) for _ in range(37)]]
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0, "prompt_logprobs": 2},
        {"temperature": 1.2, "top_p": 0.95},
        {"temperature": 1.0, "top_k": 30, "min_p": 0.01},
        {"temperature": 0.7, "repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.1},
        {"temperature": 0, "logit_bias": {3: 5.0, 4: -100.0}, "min_tokens": 5, "stop_token_ids": (3,)},
        {"temperature": 0.9, "allowed_token_ids": range(3, vocab_size, 2)},
        {"temperature": 0, "logit_bias": {3: 5.0, 5: 4.0, 8: 4.0}, "bad_words": ["any"]},
    ]
    requests = []
    for i in range(n):
        own = [rng.randrange(vocab_size) for _ in range(rng.randrange(1, 30))]
        prompt = [[], *beginnings][rng.randrange(3)] + own
        kind = kinds[i % len(kinds)]
        params = SamplingParams(max_tokens=rng.randrange(6, 30), seed=rng.randrange(2**32), logprobs=3, **kind)
        rows_from = len(prompt) // 2 if i >= len(kinds) else 0
        priority, salt = rng.randrange(2), rng.choice(["", "", "s"])
        requests.append(Request(tuple(prompt), params, priority, salt, rows_from=rows_from))
    return requests


def alone(path: Path, requests: list[Request], isa: str = "auto", kv_type: str = "f16") -> Answers:
    crowd = Crowd(path, Way(isa=isa, max_sequences=1), kv_type)
    told: Answers = {}
    for number, request in enumerate(requests):
        told |= {number: crowd.run([replace(request, cache_salt=f"own {number}")])[0]}
    assert crowd.n_cached == 0
    return told


WAYS = {
    "together": Way(threads=2, replay="on"),
    "short of blocks": Way(n_blocks=7, step_tokens=24, max_sequences=6, arrivals=1),
    "drafts": Way(threads=2, replay="check", speculate=True, arrivals=2, step_tokens=40),
    "a draft model": Way(threads=2, n_blocks=14, step_tokens=30, replay="on", draft=True, arrivals=4),
    "small steps": Way(threads=3, n_blocks=12, step_tokens=9, max_sequences=9, replay="on", speculate=True, arrivals=3),
}


@pytest.mark.parametrize(("model", "qtype"), CASES, ids=["-".join(case) for case in CASES])
def test_a_crowd_changes_no_answer(folder: Path, model: str, qtype: str) -> None:
    path = checkpoint(folder, model, qtype)
    requests = requests_of(200, seed=len(model + qtype))
    expected = alone(path, requests)
    seen = dict.fromkeys(("preempted", "cached", "accepted"), 0)
    for name, way in WAYS.items():
        crowd = Crowd(path, way, answers=expected)
        told = crowd.run(requests)
        for number in expected:
            assert told[number] == expected[number], f"{name}: request {number}"
        seen["preempted"] += crowd.scheduler.n_preempted
        seen["cached"] += crowd.n_cached
        seen["accepted"] += crowd.scheduler.n_accepted
    assert all(seen.values()), seen  # otherwise the ways are not as hard as they are meant to be


@pytest.mark.parametrize(
    ("model", "qtype", "kv_type"), [("qwen3-wide", "Q4_K", "q8_0"), ("gpt-oss-wide", "MXFP4", "f32")]
)
@pytest.mark.parametrize("isa", isas())
def test_nor_on_any_instruction_set(folder: Path, model: str, qtype: str, kv_type: str, isa: str) -> None:
    path, requests = checkpoint(folder, model, qtype), requests_of(200, seed=5)
    expected = alone(path, requests, isa, kv_type)
    for name in ("short of blocks", "small steps"):
        assert Crowd(path, replace(WAYS[name], isa=isa), kv_type, expected).run(requests) == expected


GOING_ON = {
    "together": Way(threads=2, replay="check"),
    "short of blocks": Way(n_blocks=9, step_tokens=40, max_sequences=6, replay="check", arrivals=1),
    "without recordings": Way(threads=2, n_blocks=9, max_sequences=3, replay="off", arrivals=2),
    "ahead": Way(threads=2, replay="on", ahead=True),
    "ahead and short of blocks": Way(n_blocks=9, step_tokens=40, max_sequences=6, ahead=True, replay="on", arrivals=1),
}


@pytest.mark.parametrize(
    ("model", "qtype"), [("llama-wide", "Q8_0"), ("gpt-oss-wide", "MXFP4"), ("qwen2-window", "F32")]
)
def test_nor_where_steps_go_on_by_themselves(
    folder: Path, model: str, qtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that want nothing but tokens, long enough for several blocks and wider block tables."""
    path, n_gone_on = checkpoint(folder, model, qtype), {"go_on": 0, "begin": 0}

    def counted(name: str) -> Any:
        method = getattr(Runner, name)

        def count(self: Runner, *args: Any) -> Any:
            n_gone_on[name] += 1
            return method(self, *args)

        return count

    for name in n_gone_on:
        monkeypatch.setattr(Runner, name, counted(name))
    requests = []
    for i, request in enumerate(requests_of(200, seed=3, n=12)):
        params = SamplingParams(temperature=i % 3 / 2, seed=i, max_tokens=20 + 3 * i, stop_token_ids=(i,))
        requests.append(replace(request, params=params, rows_from=0))
    expected = alone(path, requests)
    for name, way in GOING_ON.items():
        n_gone_on |= dict.fromkeys(n_gone_on, 0)
        crowd = Crowd(path, way)
        assert crowd.run(requests) == expected, name
        assert n_gone_on["begin" if way.ahead else "go_on"] > 5, name


def test_the_comparison_can_fail(folder: Path) -> None:
    path, requests = checkpoint(folder, "llama-wide", "Q8_0"), requests_of(200, seed=1)
    other = [replace(r, prompt_ids=(r.prompt_ids[0] ^ 1, *r.prompt_ids[1:])) for r in requests]
    expected, told = alone(path, requests), Crowd(path, WAYS["together"]).run(other)
    assert all(told[number] != expected[number] for number in expected)


def test_a_draft_model_guesses_right_after_a_preemption(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model guesses for itself. It keeps to the blocks and the output that are left, and nothing stays behind."""
    propose = DraftModel.propose

    def checked(self: DraftModel, sequences: Iterable[Sequence], most: int) -> None:
        guessed = list(sequences)
        propose(self, guessed, most)
        assert all(len(s.tokens) + len(s.drafts) < s.max_tokens for s in guessed), "guesses after the last token"

    monkeypatch.setattr(DraftModel, "propose", checked)
    crowd = Crowd(checkpoint(folder, "llama-wide", "Q8_0"), Way(n_blocks=8, max_sequences=4, draft=True))
    params = SamplingParams(temperature=0, max_tokens=34, seed=0)
    crowd.run([Request(tuple(range(9 * i + 3, 9 * i + 21)), params) for i in range(4)])
    scheduler, draft_model = crowd.scheduler, crowd.loop._draft_model
    assert scheduler.n_preempted > 0
    assert scheduler.n_accepted > 0.9 * scheduler.n_drafted > 90
    assert draft_model is not None
    assert not draft_model._states


@contextmanager
def broken_step(crowd: Crowd, at: int) -> Iterator[None]:
    """The at-th step from now on raises an error in the middle of the forward pass."""
    gated_linear, n = crowd.ops.gated_linear, [0]

    def failing(*args: Any) -> Any:
        n[0] += 1
        if n[0] == at:
            raise RuntimeError("a kernel failed")
        return gated_linear(*args)

    crowd.ops.gated_linear = failing  # type: ignore[method-assign]
    yield
    crowd.ops.gated_linear = gated_linear  # type: ignore[method-assign]


def test_a_step_that_fails_ends_its_requests_alone(folder: Path) -> None:
    path, requests = checkpoint(folder, "llama-wide", "Q8_0"), requests_of(200, seed=1)
    expected = alone(path, requests)
    crowd = Crowd(path, Way(max_sequences=4))
    for number, request in enumerate(requests):
        crowd.add(number, request)
    with broken_step(crowd, at=9):
        while crowd.loop.has_work:
            crowd.loop.step()
            crowd.scheduler.check()
    failed = {n for n, events in crowd.told.items() if not isinstance(events[-1], TokenEvent)}
    assert 1 <= len(failed) <= 4
    assert all(str(crowd.told[n][-1].error) == "a kernel failed" for n in failed)  # type: ignore[union-attr]
    for number in expected.keys() - failed:
        assert list(_flat(crowd.told[number])) == expected[number]
