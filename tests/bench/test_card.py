"""A card's limits: the arithmetic is right, and what is measured through them is the model that they are limits of."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the GPU's memory is torch's")
pytest.importorskip("triton", reason="the GPU's kernels are Triton's")

from engine_models import checkpoint

from gristmill.bench import card
from gristmill.bench.card import Card, timed
from gristmill.bench.machine import Rate
from gristmill.bench.model import Case, ModelBench, multiplied
from gristmill.formats.open import open_checkpoint
from gristmill.models.build import build
from gristmill.ops.cpu import CpuOps
from gristmill.ops.cuda import CudaOps
from gristmill.ops.interface import Ops

SECONDS = [0.5, 0.25, 1.0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every run takes the SECONDS of its round; how many runs there were each time."""
    asked: list[int] = []

    def fake(runs: Sequence[Callable[[], object]], rounds: int, recorded: bool = True) -> list[float]:
        asked.append(len(runs))
        runs[0]()
        return SECONDS[:rounds]

    monkeypatch.setattr(card, "timed", fake)
    return asked


def test_a_copy_reads_and_writes(clock: list[int]) -> None:
    """Half of the memory is read and half written, all of it in a quarter of a second at best."""
    assert Card(4000).read(1, 3) == Rate(4000 / 0.25 / 1e9, 4000 / 0.5 / 1e9)


def test_cublas_multiplies_every_matrix(clock: list[int]) -> None:
    """Each shape is timed once and counts as often as it is there; rounds are of all shapes together."""
    a_round = 2.0 * card._TOKENS * (2 * 48 * 32 + 16 * 80)
    peak = Card(1000, [(48, 32), (16, 80), (48, 32)]).peak(1, "f32", 3)
    assert clock == [1, 1]
    assert peak.best == pytest.approx(a_round / (3 * 0.25) / 1e9)
    assert peak.median == pytest.approx(a_round / (3 * 0.5) / 1e9)


def test_without_a_model_large_matrices(clock: list[int]) -> None:
    limits = Card(1000).limits(3)
    assert limits.cublas.best == pytest.approx(2.0 * card._LARGE**3 / 0.25 / 1e9)
    assert limits.in_graph_us == limits.alone_us == 0.5e6


def test_seconds_are_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "clocked", lambda run, rounds: [6.0] * rounds)
    runs: list[str] = []
    assert timed([lambda: runs.append("a"), lambda: runs.append("b")], 2, recorded=False) == [3.0, 3.0]
    assert runs == ["a", "b"], "once before anything is timed"


def test_matrices_of_experts_count_as_often_as_a_token_uses_them(tmp_path: Path) -> None:
    decoder = build(open_checkpoint(checkpoint(tmp_path, "gpt-oss-tiny", "MXFP4")), CudaOps())
    config = decoder.config
    assert config.moe is not None
    shapes = multiplied(decoder)
    assert shapes.count((config.d_model, config.d_ff)) == config.n_layers * config.moe.n_active
    assert len(shapes) == config.n_layers * 2 * (1 + config.moe.n_active)


@pytest.mark.parametrize("model", ["qwen3-tiny", "gpt-oss-tiny"])
def test_it_generates_what_the_processor_does(tmp_path: Path, model: str) -> None:
    """Over the end of a block and of the tables that steps are recorded with; each begun before the last is finished.

    Depths are filled with bytes, so with the same keys and values on both.
    """
    path, case = checkpoint(tmp_path, model, "F32"), Case("tg", 5, 2, 30, 1)
    texts = []
    for ops, machine in ((CpuOps(1), Limits()), (CudaOps(), Card(1000))):
        bench = made(path, case, ops, machine)
        sequences = bench.sequences(case)
        bench.compute(case, sequences)
        texts.append([sequence.tokens for sequence in sequences])
        assert [sequence.n_computed for sequence in sequences] == [35, 35]
    assert texts[0] == texts[1]


def test_shares_are_of_what_was_measured(tmp_path: Path) -> None:
    """GB/s over those of the copy, operations over those of cuBLAS."""
    case = Case("tg", 1, 1, 0, 1)
    row = made(checkpoint(tmp_path, "llama-tiny", "F32"), case, CudaOps(), Limits()).run(case, 1)
    assert row.share_of_bandwidth == pytest.approx(row.gb_per_s / 200)
    assert row.share_of_peak == pytest.approx(row.gflop_per_s / 8000)


class Limits:
    """Made up."""

    def read(self, threads: int, rounds: int) -> Rate:
        return Rate(200, 100)

    def peak(self, threads: int, arithmetic: str, rounds: int) -> Rate:
        assert arithmetic in ("f32", "bf16")
        return Rate(8000, 4000)


def made(path: Path, case: Case, ops: Ops, machine: Card | Limits) -> ModelBench:
    return ModelBench(build(open_checkpoint(path), ops), "f32", [case], lambda _: ops, machine)


def test_a_cache_larger_than_the_card(tmp_path: Path) -> None:
    ops, case = CudaOps(), Case("tg", 1, 1, 30, 1)
    decoder = build(open_checkpoint(checkpoint(tmp_path, "llama-tiny", "F32")), ops)
    with pytest.raises(ValueError, match=r"the cache would take .* GB and 0.0 GB of memory may be used"):
        ModelBench(decoder, "f32", [case], lambda _: ops, Card(1000), memory=1000)
