"""What comes of requests reaches readers of many as it reaches a sink each, and what goes wrong there stays there."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import pytest
import small_model

from gristmill import LLM, SamplingParams
from gristmill.engine.telling import Share, Takers
from gristmill.types import Answer, Event, Request, TokenEvent

PROMPTS = [(1, 20 + i, 30) for i in range(7)]
LENGTHS = [5, 40, 40, 17, 33, 1, 64]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(small_model.write(tmp_path_factory.mktemp("model")), threads=1, max_sequences=8)


class Log:
    """A reader. calls: what it was told in each step. fails: from the so manieth token of a step on."""

    def __init__(self, fails: int | None = None) -> None:
        self.events: dict[int, list[Event]] = defaultdict(list)
        self.calls = list[str]()
        self._fails = fails
        self._n = 0

    def take(self, key: int, event: Event) -> bool:
        self.calls.append("take")
        self.events[key].append(event)
        return False

    def take_step(self, takers: Takers, token_ids: list[int]) -> None:
        self._n += 1
        if self._fails is not None and self._n > self._fails:
            raise OSError("the reader is gone")
        self.calls.append("step")
        for key, n_cached, token_id in zip(takers.keys, takers.n_cached, token_ids, strict=True):
            self.events[key].append(TokenEvent(token_id, None, n_cached=n_cached))

    def flush(self) -> None:
        self.calls.append("flush")


def run(llm: LLM, sinks: list[Callable[[Event], bool | None]], whole: frozenset[int] = frozenset()) -> None:
    """All prompts at once, until all have ended."""
    ended = [threading.Event() for _ in PROMPTS]

    def watched(sink: Callable[[Event], bool | None], done: threading.Event) -> Callable[[Event], bool | None]:
        def take(event: Event) -> bool | None:
            result = sink(event)
            if not isinstance(event, TokenEvent) or event.finish is not None:
                done.set()
            return result

        return take

    class Watched(Share):
        __slots__ = ()

        def __call__(self, event: Event) -> bool | None:
            return watched(super().__call__, ended[self.key])(event)

    for i, (prompt, length, sink) in enumerate(zip(PROMPTS, LENGTHS, sinks, strict=True)):
        params = SamplingParams(temperature=1, seed=i, max_tokens=length, ignore_eos=True)
        taker = Watched(sink.reader, i) if isinstance(sink, Share) else watched(sink, ended[i])
        llm.engine.submit(Request(prompt, params, whole=i in whole), taker)
    for each in ended:
        assert each.wait(20)


def test_a_reader_of_many_is_told_what_sinks_are(llm: LLM) -> None:
    alone: dict[int, list[Event]] = defaultdict(list)
    run(llm, [alone[i].append for i in range(7)])
    log, mixed = Log(), defaultdict[int, list[Event]](list)
    run(llm, [Share(log, i) if i % 3 else mixed[i].append for i in range(7)], whole=frozenset({4}))
    for i in range(7):
        expected = alone[i]
        assert len(expected) == LENGTHS[i]
        found = log.events[i] if i % 3 else mixed[i]
        if i == 4:
            expected = [Answer([e.token_id for e in expected if isinstance(e, TokenEvent)], found[0].finish)]
        assert found == expected


def test_what_a_step_has_for_a_reader_is_a_call_or_is_flushed(llm: LLM) -> None:
    log = Log()
    run(llm, [Share(log, i) for i in range(7)])
    calls = log.calls
    assert calls.count("step") > 20  # most steps go on
    assert calls[-1] == "flush"
    for call, following in pairwise(calls):
        assert following in ({"take", "flush"} if call == "take" else {"take", "step"})


def test_a_reader_that_fails_ends_its_own_requests_alone(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    engine, log, others, ended = llm.engine, Log(fails=3), list[Event](), threading.Event()
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    for i in range(2):
        engine.submit(Request(PROMPTS[i], params), Share(log, i))

    def take(event: Event) -> None:
        others.append(event)
        if isinstance(event, TokenEvent) and event.finish is not None:
            ended.set()

    engine.submit(Request(PROMPTS[2], params), take)
    assert ended.wait(20)
    assert len(others) == 100
    assert all(1 <= len(events) < 10 for events in log.events.values())
    while engine.load().n_running:  # the last event comes before the step's end
        time.sleep(0.001)
    assert "the reader is gone" in caplog.text
