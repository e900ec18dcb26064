"""A replayed step gives the bits of the same step run operation by operation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engine_models import checkpoint
from instruction_sets import isas
from numpy.typing import NDArray

from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.formats.open import open_checkpoint
from gristmill.kv.cache import allocate, windows_of
from gristmill.models.build import build as build_decoder
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.ops.reference import ReferenceOps
from gristmill.types import SamplingParams

N_BLOCKS = 40
MODELS = (
    ("llama-wide", "Q4_K"),
    ("llama-wide", "BF16"),
    ("qwen3-wide", "Q8_0"),
    ("qwen3-moe-wide", "Q6_K"),
    ("gpt-oss-wide", "MXFP4"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def make_runner(path: Path, ops: Ops, replay: str) -> Runner:
    decoder = build_decoder(open_checkpoint(path), ops)
    return Runner(
        decoder, ops, allocate(ops, decoder.config, [N_BLOCKS] * len(windows_of(decoder.config)), "f16"), replay
    )


def sequences(n: int, n_groups: int = 1) -> list[Sequence]:
    """Half of them greedy, half sampled."""
    share = N_BLOCKS // n
    return [
        Sequence(
            i,
            [7 + i, 11 * i],
            2,
            SamplingParams(temperature=i % 2, top_p=0.9, seed=i),
            i,
            frozenset(),
            100,
            block_ids=[list(range(share * i, share * (i + 1)))] * n_groups,
        )
        for i in range(n)
    ]


def generate(runner: Runner, ops: Ops, crowd: list[Sequence], n_steps: int) -> list[list[int]]:
    """Prompts first, then one token of each at a time; in every third step the last sequence stays out."""
    runner.forward(build([Part(s, 1, 0) for s in crowd], ops))
    for s in crowd:
        s.n_computed += 1
    for step in range(n_steps):
        present = crowd[:-1] if step % 3 == 2 and len(crowd) > 1 else crowd
        ids, _ = runner.step(build([Part(s, 1, 1) for s in present], ops))
        for s, token_id in zip(present, ids, strict=True):
            s.n_computed += 1
            s.tokens.append(token_id)
    return [s.tokens for s in crowd]


@pytest.mark.parametrize(("model", "qtype"), MODELS, ids=["-".join(m) for m in MODELS])
@pytest.mark.parametrize("isa", isas())
def test_replay_changes_nothing(folder: Path, model: str, qtype: str, isa: str) -> None:
    path, ops = checkpoint(folder, model, qtype), CpuOps(2, isa)
    n_groups = 2 if model.startswith("gpt-oss") else 1
    n_steps = 2 * BLOCK_SIZE  # far enough for wider block tables
    eager = generate(make_runner(path, ops, "off"), ops, sequences(3, n_groups), n_steps)
    assert generate(make_runner(path, ops, "on"), ops, sequences(3, n_groups), n_steps) == eager
    assert generate(make_runner(path, ops, "check"), ops, sequences(3, n_groups), n_steps) == eager


def read_prompts(runner: Runner, ops: CpuOps, n_groups: int) -> list[tuple[list[int], NDArray[np.float32]]]:
    """What each of two prompts, of three whole steps and a part of one, leads to."""
    n, results = 3 * runner.prompt_tokens + 5, []
    for seed in range(2):
        tokens = np.random.default_rng(seed).integers(1, 90, n).tolist()
        s = Sequence(
            seed,
            tokens,
            n,
            SamplingParams(temperature=0),
            0,
            frozenset(),
            9,
            block_ids=[list(range(N_BLOCKS))] * n_groups,
        )
        while s.n_computed < n:
            n_tokens = min(runner.prompt_tokens, n - s.n_computed)
            ids, logits = runner.step(build([Part(s, n_tokens, int(s.n_computed + n_tokens == n))], ops))
            s.n_computed += n_tokens
        results.append((ids, np.array(ops.get(logits))))
    return results


@pytest.mark.parametrize(("model", "qtype"), MODELS, ids=["-".join(m) for m in MODELS])
@pytest.mark.parametrize("isa", isas())
def test_whole_steps_of_prompts_replay(folder: Path, model: str, qtype: str, isa: str) -> None:
    path, ops = checkpoint(folder, model, qtype), CpuOps(2, isa)
    n_groups = 2 if model.startswith("gpt-oss") else 1
    ops.prompt_tokens = ops.step_tokens = 32
    runner = make_runner(path, ops, "on")
    eager = read_prompts(make_runner(path, ops, "off"), ops, n_groups)
    for other in (runner, make_runner(path, ops, "check")):
        for (ids, logits), (expected, exact) in zip(read_prompts(other, ops, n_groups), eager, strict=True):
            assert ids == expected
            np.testing.assert_array_equal(logits.view(np.uint32), exact.view(np.uint32))
    assert len(runner._recordings) == 3, "the second prompt's steps are those of the first"


def test_the_reference_replays_too(folder: Path) -> None:
    path, ops = checkpoint(folder, "llama-wide", "Q8_0"), ReferenceOps()
    eager = generate(make_runner(path, ops, "off"), ops, sequences(2), 5)
    assert generate(make_runner(path, ops, "check"), ops, sequences(2), 5) == eager


def test_recorded_steps_share_little_memory() -> None:
    """Whatever their length and number: what a step computed is read before the next one begins."""
    ops, addresses = CpuOps(1), set[int]()
    x = ops.array(np.arange(32, dtype=np.float32).reshape(2, 16))

    def step() -> tuple[NDArray[np.float32], ...]:
        y = x
        for _ in range(20):
            y = ops.get(ops.add(y, x))
            addresses.add(y.ctypes.data)
        return (y,)

    steps = [ops.capture(step) for _ in range(5)]
    assert len(addresses) <= 3
    for n, ((y,), again) in enumerate(steps):
        ops.write(x, np.full_like(x, n))
        again()
        assert (y == 21 * n).all()
    eager = ops.get(ops.add(x, x))
    steps[0][1]()
    assert (eager == 8).all()


def test_a_step_whose_calls_move_from_thread_to_thread_changes_nothing() -> None:
    """Threads leave the next call to another when they give way, which they do more often than here are cores."""
    ops = CpuOps(4)
    x = ops.array(np.ones((256, 512), np.float32))

    def step() -> tuple[NDArray[np.float32], ...]:
        y = x
        for _ in range(300):
            y = ops.get(ops.add(y, x))
        return (y,)

    (y,), again = ops.capture(step)
    for n in range(1, 30):
        ops.write(x, np.full_like(x, n))
        again()
        assert (y == 301 * n).all()


def test_the_check_finds_a_replay_that_does_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = CpuOps(1)
    runner = make_runner(checkpoint(folder, "llama-wide", "Q8_0"), ops, "check")
    capture = CpuOps.capture
    monkeypatch.setattr(CpuOps, "capture", lambda self, step: (capture(self, step)[0], lambda: None))
    with pytest.raises(RuntimeError, match="differs"):
        generate(runner, ops, sequences(1), 3)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_bad_value_in_a_replayed_step_is_an_error(folder: Path, n_threads: int) -> None:
    """What was checked when the step was recorded is checked again with every new value."""
    ops = CpuOps(n_threads)
    runner = make_runner(checkpoint(folder, "llama-wide", "Q8_0"), ops, "on")
    crowd = sequences(1)
    generate(runner, ops, crowd, 3)
    crowd[0].tokens[-1] = 10**6
    with pytest.raises(ValueError, match="vocabulary"):
        runner.step(build([Part(crowd[0], 1, 1)], ops))
    crowd[0].tokens[-1], crowd[0].block_ids = 5, [[N_BLOCKS] * 4]
    with pytest.raises(ValueError, match="cache"):
        runner.step(build([Part(crowd[0], 1, 1)], ops))


def test_recordings_are_few(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.engine.runner.MAX_RECORDINGS", 8)
    ops = CpuOps(1)
    runner = make_runner(checkpoint(folder, "llama-wide", "Q8_0"), ops, "on")
    for n in range(1, 20):
        crowd = [
            Sequence(i, [1], 1, SamplingParams(temperature=0), 0, frozenset(), 9, block_ids=[[i]]) for i in range(n)
        ]
        runner.step(build([Part(s, 1, 1) for s in crowd], ops))
    assert len(runner._recordings) == 8


def test_an_unknown_way_to_replay_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="replay must be one of"):
        make_runner(checkpoint(folder, "llama-wide", "Q8_0"), CpuOps(1), "always")
