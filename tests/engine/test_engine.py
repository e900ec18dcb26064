"""The engine from other threads: submitting, cancelling, closing; queues, priorities and what is freed."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_model

from gristmill import LLM, SamplingParams
from gristmill.engine.draft_model import check_draft
from gristmill.engine.drafts import PromptLookup
from gristmill.engine.engine import Engine, EngineClosedError
from gristmill.engine.guide import GuideCompiler
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import QueueFullError, Scheduler
from gristmill.ops.cpu import CpuOps
from gristmill.types import Batch, Event, Failure, Request, StructuredOutputsParams, TokenEvent

LONG = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def long_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that needs a while to fill its context."""
    return small_model.write(tmp_path_factory.mktemp("long"), 8192)


@pytest.fixture
def llm(path: Path) -> LLM:
    return LLM(path, threads=1, max_sequences=4)


def n_in_use(llm: LLM) -> int:
    return sum(pool.n_blocks - pool.n_free for pool in llm._open()._scheduler._tables.pools)


def wait_until(condition: object, what: str) -> None:
    assert callable(condition)
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def test_prompts_run_together_and_come_back_in_order(llm: LLM) -> None:
    prompts = [[1, 10 + i] for i in range(11)]
    params = [SamplingParams(temperature=0, max_tokens=3 + i, ignore_eos=True) for i in range(11)]
    together = llm.generate(prompts, params)
    assert [o.prompt_token_ids for o in together] == prompts
    assert [len(o.outputs[0].token_ids) for o in together] == [3 + i for i in range(11)]
    for prompt, p, output in zip(prompts, params, together, strict=True):
        assert llm.generate([prompt], p)[0].outputs == output.outputs


def test_threads_and_tasks_share_one_engine(llm: LLM) -> None:
    prompts = [[1, 20 + i] for i in range(12)]
    expected = [o.outputs for o in llm.generate(prompts, LONG)]
    with ThreadPoolExecutor(6) as pool:
        assert [o[0].outputs for o in pool.map(lambda p: llm.generate([p], LONG), prompts)] == expected

    async def main() -> list[object]:
        return [o[0].outputs for o in await asyncio.gather(*(llm.agenerate([p], LONG) for p in prompts))]

    assert asyncio.run(main()) == expected


def test_answers_to_one_prompt_differ_by_their_seeds(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=7, max_tokens=12, ignore_eos=True)
    outputs = llm.generate([[1, 50, 60]], params)[0].outputs
    assert [o.index for o in outputs] == [0, 1, 2]
    for i, output in enumerate(outputs):
        single = SamplingParams(seed=7 + i, max_tokens=12, ignore_eos=True)
        assert llm.generate([[1, 50, 60]], single)[0].outputs[0].token_ids == output.token_ids
    assert len({tuple(o.token_ids) for o in outputs}) == 3


def test_answers_to_one_prompt_score_it_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    n_rows, step = [0], Runner.step

    def counted(self: Runner, batch: Batch) -> tuple[list[int], object]:
        n_rows[0] += len(batch.sample_rows)
        return step(self, batch)

    monkeypatch.setattr(Runner, "step", counted)
    ids = [3 + i * 7 % 200 for i in range(100)]
    output = llm.generate([ids], SamplingParams(n=3, seed=7, max_tokens=1, prompt_logprobs=0))[0]
    assert n_rows[0] == 100 + 2
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == 100


def test_what_a_prompt_has_in_common_with_an_earlier_one_is_not_computed_again(llm: LLM) -> None:
    prompt = list(range(3, 3 + 40))
    first, second = llm.generate([prompt], LONG)[0], llm.generate([prompt], LONG)[0]
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 32)
    assert first.outputs == second.outputs


def test_prompt_logprobs_are_the_scores(llm: LLM) -> None:
    ids = [1, 50, 60, 70, 80]
    output = llm.generate([ids], SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=2, ignore_eos=True))[0]
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    scores = llm.score(ids)
    assert len(output.prompt_logprobs) == 5
    for token_id, score, found in zip(ids[1:], scores, output.prompt_logprobs[1:], strict=True):
        assert found is not None
        assert found[token_id].logprob == score
        assert {1, 2} <= {p.rank for p in found.values()}


def test_scores_from_a_position_on_cost_only_these(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [3 + i * 7 % 200 for i in range(100)]
    scores, logits, hidden = llm.score(ids), llm.logits(ids), llm.embed(ids)
    assert scores.shape == (99,)
    n_tokens, n_rows = [0], [0]
    step = Runner.step

    def counted(self: Runner, batch: Batch) -> tuple[list[int], object]:
        n_tokens[0] += len(batch.tokens)
        n_rows[0] += len(batch.sample_rows)
        return step(self, batch)

    monkeypatch.setattr(Runner, "step", counted)
    for start in (1, 2, 40, 80, 99, 100):
        n_tokens[0] = n_rows[0] = 0
        np.testing.assert_array_equal(llm.score(ids, start), scores[start - 1 :])
        assert n_rows[0] == 100 - (start - 1)
        assert n_tokens[0] == 100 - (start - 1) // 16 * 16  # the blocks before are in the cache
        np.testing.assert_array_equal(llm.logits(ids, start - 1), logits[start - 1 :])
        np.testing.assert_array_equal(llm.embed(ids, start - 1), hidden[start - 1 :])
    for start in (0, 101):
        with pytest.raises(ValueError, match=f"start must be a position from 1 to 100, .* not {start}"):
            llm.score(ids, start)
    for start in (-1, 100):
        with pytest.raises(ValueError, match=f"start must be a position from 0 to 99, .* not {start}"):
            llm.logits(ids, start)


def test_hidden_states_through_the_head_are_the_logits(llm: LLM) -> None:
    """The classifier of this model is its embedding, the first tensor of the file after a header of 28 bytes."""
    ids = list(range(3, 100))
    hidden, logits = llm.embed(ids), llm.logits(ids)
    assert hidden.shape == (97, small_model.DIM)
    raw = np.fromfile(llm.model_path, "<f4", small_model.VOCAB * small_model.DIM, offset=28)
    np.testing.assert_allclose(hidden @ raw.reshape(small_model.VOCAB, -1).T, logits, atol=1e-4)


def test_repetition_is_punished(llm: LLM) -> None:
    free = llm.generate([[1, 50]], LONG)[0].outputs[0].token_ids
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True, presence_penalty=2.0, frequency_penalty=2.0)
    assert len(set(llm.generate([[1, 50]], params)[0].outputs[0].token_ids)) > len(set(free))


def test_min_tokens_forbids_an_end(llm: LLM) -> None:
    free = llm.generate([[1, 50]], LONG)[0].outputs[0].token_ids
    params = SamplingParams(temperature=0, max_tokens=20, min_tokens=10, stop_token_ids=(free[0],), ignore_eos=True)
    output = llm.generate([[1, 50]], params)[0].outputs[0]
    assert free[0] not in output.token_ids[:10]
    with pytest.raises(ValueError, match="stop_token_ids: are all of the vocabulary"):
        llm.generate([[1]], SamplingParams(min_tokens=3, stop_token_ids=range(259)))
    with pytest.raises(ValueError, match="stop_token_ids: are all of allowed_token_ids"):
        llm.generate([[1]], SamplingParams(min_tokens=3, stop_token_ids=[7, 8, 9], allowed_token_ids=[8, 9]))
    with pytest.raises(ValueError, match="allowed_token_ids: token id 259 is outside"):
        llm.generate([[1]], SamplingParams(allowed_token_ids=[8, 259]))


def test_a_biased_token_is_chosen_and_a_forbidden_one_is_not(llm: LLM) -> None:
    free = llm.generate([[1, 50]], LONG)[0].outputs[0].token_ids
    params = SamplingParams(temperature=0, max_tokens=5, logit_bias={77: 100.0}, ignore_eos=True)
    assert llm.generate([[1, 50]], params)[0].outputs[0].token_ids == [77] * 5
    params = SamplingParams(temperature=0, max_tokens=1, logit_bias={free[0]: -100.0}, ignore_eos=True)
    assert llm.generate([[1, 50]], params)[0].outputs[0].token_ids != free[:1]
    with pytest.raises(ValueError, match="token id 259 is outside the vocabulary"):
        llm.generate([[1]], SamplingParams(logit_bias={259: 1.0}))


def test_cancelled_requests_leave_nothing_behind(llm: LLM) -> None:
    """200 of them, some at once, some while they wait, some in the middle of an answer."""
    rng, engine = random.Random(0), llm._open()
    n_events: dict[int, int] = {}
    for i in range(200):
        counted = i

        def take(_: Event, counted: int = counted) -> bool:
            n_events[counted] = n_events.get(counted, 0) + 1
            return False

        prompt = tuple(rng.randrange(259) for _ in range(rng.randrange(1, 100)))
        request_id = engine.submit(Request(prompt, SamplingParams(max_tokens=None, ignore_eos=True)), take)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.003)
        engine.cancel(request_id)
    wait_until(lambda: engine._scheduler.n_running + engine._scheduler.n_waiting + engine._orders.qsize() == 0, "ended")
    assert n_in_use(llm) == 0
    assert engine._loop is not None
    assert not engine._loop._streams
    assert not engine._loop._adjusters
    assert n_events


def test_requests_of_every_kind_leave_nothing_behind(path: Path) -> None:
    with LLM(path, threads=1, speculate=True) as llm:
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=3, logprobs=1, repetition_penalty=1.2))
        llm.score([1, 2, 3])
        llm.embed([1, 2, 3])
        loop = llm._open()._loop
        assert loop is not None
        kept = loop._streams, loop._adjusters, loop._lookups, loop._scored, loop._hidden
        wait_until(lambda: not any(kept), "nothing is kept")


def test_each_request_gets_as_many_alternatives_as_it_asked_for(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=4, logprobs=n, ignore_eos=True) for n in (1, 4)]
    few, many = llm.generate([[1, 2]] * 2, params)
    assert few.outputs[0].logprobs is not None
    assert many.outputs[0].logprobs is not None
    assert [len(found) for found in few.outputs[0].logprobs] == [1] * 4
    assert [len(found) for found in many.outputs[0].logprobs] == [4] * 4


def test_a_cancelled_request_ends_within_two_steps(llm: LLM) -> None:
    engine = llm._open()
    n_after, cancelled, started = [0], threading.Event(), threading.Event()

    def take(event: Event) -> bool:
        started.set()
        n_after[0] += cancelled.is_set()
        return False

    request_id = engine.submit(Request((1, 2), SamplingParams(max_tokens=None, ignore_eos=True)), take)
    assert started.wait(60)
    engine.cancel(request_id)
    cancelled.set()
    wait_until(lambda: n_in_use(llm) == 0, "freed")
    assert n_after[0] <= 2


def test_a_stream_that_is_closed_ends_its_request(llm: LLM) -> None:
    stream = llm.stream([1, 2], SamplingParams(max_tokens=None, ignore_eos=True))
    next(stream)
    stream.close()
    wait_until(lambda: n_in_use(llm) == 0, "freed")


def test_a_task_that_is_cancelled_ends_its_requests(llm: LLM) -> None:
    async def main() -> None:
        task = asyncio.create_task(llm.agenerate([[1, 2]] * 300, LONG))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    wait_until(lambda: n_in_use(llm) == 0, "freed")


class Held:
    """A method that waits until it may go on."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.in_time: bool | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.begun.set()
        self.in_time = self.may_go_on.wait(5)
        return self.method(*args, **kwargs)


def held_encode(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held(LLM.encode)
    monkeypatch.setattr(LLM, "encode", lambda *args: held(*args))
    return held


def held_compile(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held(GuideCompiler.compile)
    monkeypatch.setattr(GuideCompiler, "compile", lambda *args: held(*args))
    return held


@pytest.mark.parametrize(
    ("hold", "prompts", "wanted", "error"),
    [
        (held_encode, "a" * 5000, None, "leaves no room to answer in"),
        (held_encode, ["a", "b"], None, None),
        (held_compile, "a", "[ab]{3}", None),
        (held_compile, "a", "(", r"structured_outputs\.regex"),
    ],
)
def test_a_loop_goes_on_while_a_call_of_its_is_submitted(
    llm: LLM,
    monkeypatch: pytest.MonkeyPatch,
    hold: Callable[[pytest.MonkeyPatch], Held],
    prompts: Any,
    wanted: str | None,
    error: str | None,
) -> None:
    held = hold(monkeypatch)
    params = replace(LONG, structured_outputs=None if wanted is None else StructuredOutputsParams(regex=wanted))

    async def main() -> int:
        task = asyncio.create_task(llm.agenerate(prompts, params))
        while not held.begun.is_set():
            await asyncio.sleep(0.001)
        held.may_go_on.set()
        return len(await task)

    if error is not None:
        with pytest.raises(ValueError, match=error):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) == (2 if isinstance(prompts, list) else 1)
    assert held.in_time


@pytest.mark.parametrize("hold", [held_encode, held_compile])
def test_a_task_that_is_cancelled_while_it_submits_ends_its_requests(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, hold: Callable[[pytest.MonkeyPatch], Held]
) -> None:
    """Though its loop is closed before they are there."""
    held, ended, cancel = hold(monkeypatch), list[int](), Engine.cancel
    monkeypatch.setattr(Engine, "cancel", lambda engine, number: (ended.append(number), cancel(engine, number)))
    params = replace(LONG, structured_outputs=StructuredOutputsParams(regex="[ab]{90}"))
    loop = asyncio.new_event_loop()
    task = loop.create_task(llm.agenerate(["a", "b"], params))
    try:
        while not held.begun.is_set():
            loop.run_until_complete(asyncio.sleep(0.001))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        loop.close()
    assert not ended
    held.may_go_on.set()
    wait_until(lambda: len(ended) == 2, "cancelled")
    wait_until(lambda: n_in_use(llm) == 0, "freed")


def test_cancelling_what_has_ended_looks_through_no_queue(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for = list[int]()
    monkeypatch.setattr(Scheduler, "abort", lambda _, request_id, *__: looked_for.append(request_id))
    assert list(llm.stream([1, 2], LONG))
    llm.generate([1, 2], LONG)
    assert not looked_for


def test_an_answer_that_comes_when_its_loop_is_closed_is_no_error(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = threading.Event()
    llm._open().submit(Request((1,), LONG), lambda _: closed.wait(60))  # until then no step is made

    async def main() -> None:
        task = asyncio.create_task(llm.agenerate([[1, 2]], LONG))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(Engine, "cancel", lambda *_: None)  # as if it came a moment too late
    asyncio.run(main())
    closed.set()
    llm.generate([[1, 3]], LONG)  # which ends no sooner
    assert not caplog.records


def test_urgent_requests_go_first(path: Path) -> None:
    llm, ended = LLM(path, threads=1, max_sequences=1), list[int]()
    engine, done, submitted = llm._open(), threading.Semaphore(0), threading.Event()

    def take(number: int, event: Event) -> bool:
        assert submitted.wait(60)  # the engine's thread: the first one does not end before the others are there
        if isinstance(event, TokenEvent) and event.finish is not None:
            ended.append(number)
            done.release()
        return False

    for number, priority in enumerate([0, 5, 5, -1, 0]):
        engine.submit(Request((1, number + 2), LONG, priority), lambda event, number=number: take(number, event))
    submitted.set()
    for _ in range(5):
        assert done.acquire(timeout=60)
    assert ended.index(3) < ended.index(4) < ended.index(1) < ended.index(2)


def test_a_full_queue_refuses_more(long_path: Path) -> None:
    llm = LLM(long_path, threads=1, max_sequences=1)
    engine = llm._open()
    object.__setattr__(engine.settings, "max_queue", 3)
    forever = SamplingParams(max_tokens=None, ignore_eos=True)

    def flood() -> None:
        for _ in range(50):
            engine.submit(Request((1,), forever), lambda _: False)

    with pytest.raises(QueueFullError, match="max_queue is 3"):
        flood()
    llm.close()


def test_closing_ends_what_runs_with_a_reason(long_path: Path) -> None:
    llm = LLM(long_path, threads=1, max_sequences=2)
    events: list[Event] = []
    for _ in range(5):
        params = SamplingParams(max_tokens=None, ignore_eos=True)
        llm._open().submit(Request((1,), params), lambda event: bool(events.append(event)))
    engine = llm._open()
    llm.close()
    reasons = [event for event in events if isinstance(event, Failure)]
    assert reasons
    assert all(isinstance(event.error, EngineClosedError) for event in reasons)
    with pytest.raises(EngineClosedError):
        engine.submit(Request((1,), LONG), lambda _: False)


def test_a_thread_that_cannot_start_may_start_later(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            llm.generate([[1]], LONG)
    assert llm.generate([[1]], LONG)


def test_a_start_that_is_interrupted_leaves_no_second_thread(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate([[1]], LONG)
    assert len(llm.generate([[1]], LONG)[0].outputs[0].token_ids) == 100
    wait_until(lambda: {*threading.enumerate()} - before == {llm._open()._thread}, "the first thread ended")


def test_a_sink_that_fails_ends_its_own_request_alone(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    def take(_: Event) -> bool:
        raise OSError("the reader is gone")

    llm._open().submit(Request((1, 2), LONG), take)
    assert llm.generate([[1, 50]], LONG)[0].outputs[0].finish_reason == "length"
    wait_until(lambda: n_in_use(llm) == 0, "freed")
    assert "the reader is gone" in caplog.text


def test_who_takes_tokens_may_end_a_request_while_steps_follow_at_once(llm: LLM) -> None:
    prompts, params = [[1, 10 + i] for i in range(3)], SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    alone = [list(llm.generate([prompt], params)[0].outputs[0].token_ids) for prompt in prompts]
    told: list[list[int]] = [[], [], []]
    ended = threading.Semaphore(0)

    def follow(i: int, n_wanted: int, event: Event) -> bool:
        assert isinstance(event, TokenEvent)
        told[i].append(event.token_id)
        if len(told[i]) in (n_wanted, 40):
            ended.release()
        return len(told[i]) == n_wanted

    for i, n_wanted in enumerate((7, 41, 22)):
        llm._open().submit(Request(tuple(prompts[i]), params), partial(follow, i, n_wanted))
    for _ in prompts:
        assert ended.acquire(timeout=60)
    wait_until(lambda: llm.engine.load().used == 0, "a request that was ended keeps its blocks")
    assert told == [alone[0][:7], alone[1], alone[2][:22]]


def test_a_step_that_fails_where_steps_follow_at_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    continuation, n_left = CpuOps.continuation, [5]

    def failing(ops: CpuOps, *args: Any) -> Callable[[Any], list[int]]:
        go_on = continuation(ops, *args)

        def compute(begun: Any) -> list[int]:
            n_left[0] -= 1
            if n_left[0] == 0:
                raise RuntimeError("no more")
            return go_on(begun)

        return compute

    monkeypatch.setattr(CpuOps, "continuation", failing)
    with pytest.raises(RuntimeError, match="no more"):
        llm.generate([[1, 10]], LONG)
    n_steps = llm.engine.load().n_steps
    n_left[0] = -1
    assert len(llm.generate([[1, 10]], LONG)[0].outputs[0].token_ids) == 100
    assert llm.engine.load().n_steps == n_steps + 100
    assert llm.engine.load().used == 0


def cancelled(llm: LLM) -> None:
    async def main() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(llm.agenerate([[1]] * 300, LONG), 0.001)

    asyncio.run(main())


def refused(llm: LLM) -> None:
    with suppress(ValueError):
        llm.generate([[1], [2]], [LONG, replace(LONG, logit_bias={9999: 1.0})])
    with suppress(ValueError):
        llm.generate([[1]], replace(LONG, structured_outputs=StructuredOutputsParams(regex="(")))


def refused_beside(llm: LLM) -> None:
    async def main() -> None:
        for prompts in ([1, 2], [[1], [9999]]):
            with suppress(ValueError):
                await llm.agenerate(prompts, replace(LONG, structured_outputs=StructuredOutputsParams(regex="(")))

    llm.generate([[1]], LONG)
    asyncio.run(main())


def failed(llm: LLM) -> None:
    with pytest.MonkeyPatch.context() as patch, suppress(RuntimeError):
        patch.setattr("gristmill.engine.loop._log.disabled", True)  # pytest keeps what is logged
        patch.setattr(Runner, "step", broken_step)
        llm.generate([[1]], LONG)


def broken_step(*_: object) -> None:
    raise RuntimeError("no more")


@pytest.mark.parametrize(
    "ask",
    [
        lambda llm: llm.generate([[1]], LONG),
        lambda llm: list(llm.stream("a", LONG)),
        cancelled,
        refused,
        refused_beside,
        failed,
    ],
)
def test_an_llm_that_is_dropped_ends_its_thread(path: Path, ask: Callable[[LLM], object]) -> None:
    """Whatever it was asked for, and at once: its weights are not to wait for the garbage collector."""

    def count() -> int:
        return sum(thread.name == "gristmill engine" for thread in threading.enumerate())

    gc.collect()
    before = count()
    gc.disable()
    try:
        llm = LLM(path, threads=1)
        ask(llm)
        assert count() == before + 1
        del llm
        wait_until(lambda: count() == before, "the thread ended")
    finally:
        gc.enable()


def test_a_draft_model_changes_no_answer(llm: LLM, path: Path) -> None:
    """Here the model guesses for itself, so that nearly all is right."""
    prompts = [[1, 20 + i, 30] for i in range(6)]
    params = [SamplingParams(temperature=i % 2, seed=i, max_tokens=60, ignore_eos=True, logprobs=1) for i in range(6)]
    expected = [output.outputs for output in llm.generate(prompts, params)]
    with LLM(path, threads=1, draft=path, speculate=True) as both:
        assert [output.outputs for output in both.generate(prompts, params)] == expected
    with LLM(path, threads=1, max_sequences=4, draft=path) as guessing:
        assert [output.outputs for output in guessing.generate(prompts, params)] == expected
        scheduler = guessing._open()._scheduler
        assert scheduler.n_accepted > 0.9 * scheduler.n_drafted > 100


def test_what_a_draft_model_guesses_is_not_held_for_a_repetition(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt = list[tuple[int, int]]()
    monkeypatch.setattr(PromptLookup, "propose", lambda *_: [])
    monkeypatch.setattr(PromptLookup, "learn", lambda _, *counts: learnt.append(counts))
    with LLM(path, threads=1, draft=path, speculate=True) as llm:
        llm.generate([[1, 2]], LONG)
        assert llm._open()._scheduler.n_accepted
    assert not learnt


@pytest.mark.parametrize("vocab", [200, 300])
def test_a_draft_model_may_be_padded_otherwise(llm: LLM, path: Path, tmp_path: Path, vocab: int) -> None:
    """What only one of the two knows is neither given to the other nor guessed."""
    prompts = [[1, 258 - i, 30] for i in range(6)]
    params = [SamplingParams(temperature=2, seed=i, max_tokens=60, ignore_eos=True) for i in range(6)]
    expected = [output.outputs for output in llm.generate(prompts, params)]
    with LLM(path, threads=1, draft=small_model.write_model(tmp_path / "padded.bin", vocab=vocab)) as guessing:
        assert [output.outputs for output in guessing.generate(prompts, params)] == expected
        assert guessing._open()._scheduler.n_accepted > 0


def test_a_draft_model_must_fit(path: Path, tmp_path: Path) -> None:
    short = small_model.write_model(tmp_path / "short.bin", context=64)
    with pytest.raises(ValueError, match="made for 64 tokens of context, not 128"):
        LLM(path, draft=short)
    other = small_model.write_model(tmp_path / "other.bin", vocab=130)
    with pytest.raises(ValueError, match="has 130 tokens and the model 259: they need one vocabulary"):
        LLM(path, draft=other)


def test_a_draft_model_needs_a_layer_that_keeps_everything(llm: LLM) -> None:
    config = llm._open().config
    check_draft(config, replace(config, windows=(0, 16)), 128)
    with pytest.raises(ValueError, match="all have a sliding window keeps too little for a draft model"):
        check_draft(config, replace(config, windows=(16, 32)), 128)


def test_a_cache_that_cannot_hold_one_context_is_refused_before_loading(path: Path) -> None:
    with pytest.raises(ValueError, match=r"one sequence of 128 tokens takes .* MiB as f32, and 0 MiB may be used"):
        LLM(path, kv_type="f32", kv_budget=1000)
    with pytest.raises(ValueError, match="max_sequences must be between 1 and 4096, not 0"):
        LLM(path, max_sequences=0)
    LLM(path, kv_budget=100_000).close()
