"""Thousands of small random lives of a scheduler. What is checked, and how, is in fake_engine.py."""

from __future__ import annotations

from random import Random

import pytest
from fake_engine import FakeEngine, answer_alone

from gristmill.engine.scheduler import QueueFullError
from gristmill.engine.sequence import Sequence, Status
from gristmill.engine.tables import most_held
from gristmill.types import Finish, SamplingParams

WINDOWS = [[0], [0, 18], [24], [0, 1, 48], [16]]
LONGEST_PROMPT, LONGEST_OUTPUT = 70, 24


def random_engine(random: Random, windows: list[int]) -> FakeEngine:
    max_sequences = random.randint(1, 5)
    least = [most_held(LONGEST_PROMPT + LONGEST_OUTPUT - 1, window) for window in windows]
    return FakeEngine(
        [n + random.choice((0, 1, random.randint(0, 4 * n))) for n in least],
        windows,
        max_sequences=max_sequences,
        step_tokens=max_sequences + random.choice((0, random.randint(0, 10), random.randint(0, 80))),
        max_queue=random.choice((2, 6)),
        vocab_size=random.choice((2, 50)),
    )


def add_request(engine: FakeEngine, random: Random, beginnings: list[list[int]], n_priorities: int) -> None:
    beginning = random.choice(beginnings)
    prompt = beginning[: random.randint(1, LONGEST_PROMPT)]
    n_own = random.randint(0, LONGEST_PROMPT - len(prompt))
    prompt = prompt + [random.randrange(engine.model.vocab_size) for _ in range(n_own if random.random() < 0.3 else 0)]
    n_waiting = engine.scheduler.n_waiting
    try:
        engine.add(
            prompt,
            random.randint(1, LONGEST_OUTPUT),
            params=SamplingParams(temperature=0, min_tokens=random.choice((0, 0, 5))),
            stop_ids=frozenset({1}) if random.random() < 0.3 else frozenset(),
            priority=random.randrange(n_priorities),
            salt=random.choice((b"", b"", b"other")),
            rows_from=random.choice((0, random.randrange(len(prompt)))) if random.random() < 0.1 else None,
        )
    except QueueFullError:
        assert n_waiting == engine.scheduler.n_waiting >= 2


def guess(engine: FakeEngine, random: Random, sequence: Sequence) -> list[int]:
    """Drafts that are right, then mostly wrong."""
    n = random.randint(0, 8)
    n_right = random.randint(0, n)
    right = engine.model.alone(sequence.tokens, n_right, sequence.salt)
    return right + [random.randrange(engine.model.vocab_size) for _ in range(n - n_right)]


def live(seed: int, windows: list[int]) -> int:
    """Returns the steps that followed a plan."""
    random = Random(seed)
    engine = random_engine(random, windows)
    beginnings = [[random.randrange(engine.model.vocab_size) for _ in range(LONGEST_PROMPT)] for _ in range(2)]
    n_requests, n_priorities = random.randint(1, 8), random.choice((1, 1, 3))
    abort_rate, draft_rate = random.choice((0, 0, 0.05)), random.choice((0, 0, 0.7))
    n_added, n_steps = 0, 0
    while n_added < n_requests or engine.scheduler.has_work:
        while n_added < n_requests and random.random() < 0.5:
            add_request(engine, random, beginnings, n_priorities)
            n_added += 1
        aborted = random.choice(engine.sequences) if engine.sequences and random.random() < abort_rate else None
        if aborted is not None and random.random() < 0.5:
            was_there = aborted.status is not Status.FINISHED
            assert (engine.scheduler.abort(aborted.request_id) is aborted) == was_there
            aborted = None
        for sequence in engine.sequences:
            running = sequence.status is Status.RUNNING and len(sequence.tokens) - sequence.n_computed == 1
            if draft_rate and running and random.random() < draft_rate:
                sequence.drafts = guess(engine, random, sequence)
        engine.step(aborted.request_id if aborted is not None else None)
        n_steps += 1
        assert n_steps < 5000, "no progress"
    for sequence in engine.sequences:
        assert sequence.status is Status.FINISHED
        expected, output = answer_alone(engine.model, sequence), sequence.tokens[sequence.n_prompt :]
        assert output == (expected[: len(output)] if sequence.finish is Finish.ABORT else expected)
    assert all(pool.n_free == pool.n_blocks for pool in engine.pools)
    return engine.n_followed


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_random_lives(windows: list[int]) -> None:
    n_followed = 0
    for seed in range(2000):
        try:
            n_followed += live(seed, windows)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, windows {windows}: {error}") from error
    assert n_followed > 1000
