"""Where the backend computes beside the engine's thread, steps are begun before what the last one chose is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engine_models import checkpoint
from late_ops import LateOps

from gristmill.engine.loop import Loop, Stream
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Scheduler
from gristmill.engine.sequence import Sequence
from gristmill.formats.open import open_checkpoint
from gristmill.kv.cache import allocate
from gristmill.kv.pool import BlockPool
from gristmill.models.build import build
from gristmill.types import Event, Failure, Finish, Request, SamplingParams, TokenEvent

N_BLOCKS = 30


class Stepped:
    """A loop that is stepped by hand. ahead: whether it may run ahead; told: events by request."""

    def __init__(self, path: Path, ahead: bool = True) -> None:
        self.ops = LateOps(1)
        self.ops.runs_ahead = ahead
        decoder = build(open_checkpoint(path), self.ops)
        self.pool = BlockPool(N_BLOCKS)
        self.scheduler = Scheduler([self.pool], [0], max_sequences=4, step_tokens=64, max_queue=9)
        self.loop = Loop(
            self.scheduler, Runner(decoder, self.ops, allocate(self.ops, decoder.config, [N_BLOCKS], "f32")), self.ops
        )
        self.told: dict[int, list[Event]] = {}

    def add(self, number: int, n_output: int, sink: Callable[[Event], bool] | None = None, **given: object) -> None:
        params = SamplingParams(temperature=0, max_tokens=n_output, ignore_eos=True, **given)  # type: ignore[arg-type]
        prompt = [3 + number, 5, 8]
        events = self.told.setdefault(number, [])

        def take(event: Event) -> bool:
            events.append(event)
            return sink(event) if sink is not None else False

        stops = frozenset(params.stop_token_ids)
        sequence = Sequence(number, list(prompt), 3, params, 0, stops, n_output, arrival=number)
        self.loop.add(sequence, Stream(Request(tuple(prompt), params), take))

    def run(self, between: Callable[[int], None] = lambda step: None) -> dict[int, list[int]]:
        """Tokens by request. between(n) is called before the n-th step."""
        n = 0
        while self.loop.has_work:
            between(n)
            self.loop.step()
            self.scheduler.check()
            n += 1
        self.pool.check([])
        return {k: [e.token_id for e in v if isinstance(e, TokenEvent)] for k, v in self.told.items()}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("models"), "llama-wide", "F32")


def test_the_order_of_steps(path: Path) -> None:
    """Each is begun before the one before it is waited for, but for the last, of which it is known that it is that."""
    stepped = Stepped(path)
    stepped.add(0, 9)
    assert len(stepped.run()[0]) == 9
    # the prompt gives the first token and a recorded step the second
    assert stepped.ops.log == ["record", "begin", *["begin", "finish"] * 6, "finish"]


def test_without_it_none_overlaps(path: Path) -> None:
    stepped = Stepped(path, ahead=False)
    stepped.add(0, 9)
    assert len(stepped.run()[0]) == 9
    assert stepped.ops.log == ["record", *["go on"] * 7]


def answers(path: Path, ahead: bool, **given: object) -> tuple[dict[int, list[int]], Stepped]:
    """Three requests, one of them long enough for three blocks, and one that comes later."""
    stepped = Stepped(path, ahead)
    for number, n_output in enumerate((40, 7, 20)):
        stepped.add(number, n_output, **given)
    return stepped.run(lambda n: stepped.add(3, 12) if n == 9 else None), stepped


def test_answers_are_the_same(path: Path) -> None:
    expected, _ = answers(path, ahead=False)
    told, stepped = answers(path, ahead=True)
    assert told == expected
    assert stepped.ops.log.count("begin") == stepped.ops.log.count("finish") > 20


def test_nothing_follows_a_token_that_ends(path: Path) -> None:
    """It is seen when the next step is under way already."""
    whole, _ = answers(path, ahead=False)
    stop = whole[0][11]
    expected, _ = answers(path, ahead=False, stop_token_ids=(stop,))
    told, stepped = answers(path, ahead=True, stop_token_ids=(stop,))
    assert told == expected
    assert len(told[0]) <= 12
    ends = [events[-1].finish for events in stepped.told.values() if isinstance(events[-1], TokenEvent)]
    assert Finish.STOP in ends


@pytest.mark.parametrize("at", [4, 5, 6])
def test_who_leaves_while_a_step_is_in_flight(path: Path, at: int) -> None:
    whole, _ = answers(path, ahead=False)
    stepped = Stepped(path)
    stepped.add(0, 20)
    stepped.add(1, 20)
    told = stepped.run(lambda n: stepped.loop.cancel(1) if n == at else None)
    assert told[0] == whole[0][:20]
    assert len(told[1]) == at - 1


def test_who_says_that_it_has_enough(path: Path) -> None:
    whole, _ = answers(path, ahead=False)
    stepped = Stepped(path)
    stepped.add(0, 20)
    stepped.add(1, 20, lambda event: len(stepped.told[1]) == 4)
    told = stepped.run()
    assert told[0] == whole[0][:20]
    assert len(told[1]) == 4


def test_all_leave_and_another_comes(path: Path) -> None:
    expected = Stepped(path, ahead=False)
    expected.add(7, 10)
    stepped = Stepped(path)
    stepped.add(0, 20)
    for _ in range(5):
        stepped.loop.step()
    assert stepped.ops.log[-1] == "finish"
    stepped.loop.cancel(0)
    assert not stepped.loop.has_work
    stepped.add(7, 10)
    assert stepped.run()[7] == expected.run()[7]


def test_a_step_that_fails_in_flight(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = Stepped(path)
    stepped.add(0, 20)
    for _ in range(4):
        stepped.loop.step()
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "finish", lambda self: 1 / 0)
        stepped.loop.step()
    (failure,) = [event for event in stepped.told[0] if isinstance(event, Failure)]
    assert isinstance(failure.error, ZeroDivisionError)
    assert not stepped.loop.has_work
    stepped.add(1, 5)
    assert len(stepped.run()[1]) == 5
