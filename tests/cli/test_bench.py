"""`gristmill bench` as a person or a script calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_model

FIELDS = ["test", "batch", "depth", "threads", "tokens_per_s", "stddev", "gb_per_s", "share_of_bandwidth"]
FIELDS += ["gflop_per_s", "share_of_peak"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_model.write(tmp_path_factory.mktemp("model")))


def run(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill", "bench", *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})


def test_model_rows(model: str) -> None:
    done = run("model", "-m", model, "-p", "32", "-n", "4", "-b", "1,3", "-d", "0,20", "-t", "1", "-r", "2", "--json")
    rows = json.loads(done.stdout)
    assert [(row["test"], row["batch"], row["depth"]) for row in rows] == [
        ("pp32", 1, 0),
        ("tg4", 1, 0),
        ("tg4", 3, 0),
        ("pp32", 1, 20),
        ("tg4", 1, 20),
        ("tg4", 3, 20),
    ]
    for row in rows:
        assert list(row) == FIELDS
        assert row["threads"] == 1
        assert row["tokens_per_s"] > 0
        assert row["gb_per_s"] > 0
        assert 0 < row["share_of_peak"] < 1
    assert "test 6 of 6: tg4, batch 3, depth 20" in done.stderr
    # Every weight is read once a step; a tiny model's are 4 bytes each. Embeddings are the head.
    dim, hidden, layers, vocab = small_model.DIM, small_model.HIDDEN, small_model.LAYERS, small_model.VOCAB
    panels = -(-vocab // 16) * 16  # rows are stored 16 at a time
    kv = dim * small_model.KV_HEADS // small_model.HEADS
    weights = 4 * (layers * (2 * dim * dim + 2 * dim * kv + 3 * dim * hidden) + panels * dim)
    cache = sum(range(1, 5)) / 4 * layers * small_model.KV_HEADS * (8 + 16) * 2  # v is stored 16 wide
    assert rows[1]["gb_per_s"] / rows[1]["tokens_per_s"] * 1e9 == pytest.approx(weights + cache)


def test_model_table_and_environment(model: str) -> None:
    env = {"GRISTMILL_MODEL": model, "GRISTMILL_N_PROMPT": "0", "GRISTMILL_N_GENERATE": "2", "GRISTMILL_BATCH": "2"}
    done = run("model", "-r", "1", env={**env, "GRISTMILL_THREADS": "1", "GRISTMILL_DEPTH": "5"})
    assert done.returncode == 0
    assert "tok/s" in done.stdout
    assert done.stdout.splitlines()[1].split()[:4] == ["tg2", "2", "5", "1"]


def test_a_narrow_terminal_has_all_figures(model: str) -> None:
    done = run("model", "-m", model, "-p", "0", "-n", "2", "-b", "2", "-t", "1", "-r", "1", env={"COLUMNS": "40"})
    (row,) = done.stdout.splitlines()[1:]
    assert row.split()[0] == "tg2"
    assert "…" not in row


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-m", "nowhere.gguf"], "nowhere.gguf: no such file"),
        (["-b", "1,x"], "'1,x' is not numbers with commas between"),
        (["-b", "0"], "0 is not between 1 and 4096"),
        (["-p", "0", "-n", "0"], "nothing to measure"),
        (["-p", "512"], "needs 512 tokens of context, more than the model's 128"),
        (["-p", "0", "-n", "9", "-d", "120"], "tg9 at depth 120 needs 129 tokens of context"),
        (["-r", "0"], "0 is not in the range"),
        (["--buffer-mb", "1"], "1 is not in the range"),
        (["--quantize", "q4_1"], "'q4_1', which is no type"),
    ],
)
def test_a_mistake_gets_one_clear_line(model: str, args: list[str], message: str) -> None:
    done = run("model", *args, env={"GRISTMILL_MODEL": model})
    assert done.returncode in (1, 2)
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_model_quantized_at_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_model, "DIM", 256)  # small matrices keep their floats
    wide = small_model.write_model(tmp_path / "wide.bin")
    args = ["-m", str(wide), "-p", "0", "-n", "2", "-b", "1", "-t", "1", "-r", "1"]
    assert ["of f32" in run("model", *args, *more).stdout for more in ([], ["--quantize", "int8"])] == [True, False]


def test_machine() -> None:
    done = run("machine", "--threads", "2", "--rounds", "2", "--buffer-mb", "256", "--json")
    report = json.loads(done.stdout)
    assert [limits["threads"] for limits in report["limits"]] == [1, 2]
    for limits in report["limits"]:
        assert set(limits["peak_gflop_per_s"]) == {"f32", "bf16", "int8"}
        assert 0 < limits["read_gb_per_s"]["median"] <= limits["read_gb_per_s"]["best"]
    assert "measuring with 2 threads" in done.stderr


def test_machine_table_of_a_chosen_instruction_set() -> None:
    env = {"GRISTMILL_ISA": "portable", "GRISTMILL_THREADS": "1"}
    done = run("machine", "--rounds", "1", "--buffer-mb", "256", env=env)
    assert "portable" in done.stdout
    for unit in ("memory read (256 MiB), GB/s", "fp32", "bf16", "int8"):
        assert unit in done.stdout
    assert run("machine", "--isa", "sse9").returncode == 2


@pytest.mark.parametrize("command", ["machine", "model"])
def test_help_has_examples(command: str) -> None:
    done = run(command, "--help")
    assert "Examples:" in done.stdout
    assert f"gristmill bench {command}" in done.stdout


@pytest.fixture
def interpreted() -> dict[str, str]:
    """Kernels of cards run here, and what is measured is the processor."""
    pytest.importorskip("torch", reason="the GPU's memory is torch's")
    pytest.importorskip("triton", reason="the GPU's kernels are Triton's")
    return {"TRITON_INTERPRET": "1"}


def test_machine_on_a_card(interpreted: dict[str, str]) -> None:
    args = ("machine", "--device", "cuda", "--rounds", "2", "--buffer-mb", "256")
    report = json.loads(run(*args, "--json", env=interpreted).stdout)
    assert (report["card"], report["rounds"], report["buffer_mb"]) == ("Triton's interpreter", 2, 256)
    for rate in (report["copy_gb_per_s"], report["cublas_gflop_per_s"]):
        assert 0 < rate["median"] <= rate["best"]
    assert min(report["in_graph_us"], report["alone_us"]) > 0
    table = run(*args, env=interpreted).stdout
    for unit in ("copy on the card (256 MiB), GB/s", "cuBLAS bf16, GFLOP/s", "a kernel in a graph, us"):
        assert unit in table


def test_model_on_a_card(model: str, interpreted: dict[str, str]) -> None:
    """Every weight is read once a step, as it lies there: nothing is rounded up."""
    common = ("model", "-m", model, "--device", "cuda", "-b", "2", "-r", "1", "--buffer-mb", "256")
    done = run(*common, "-p", "4", "-n", "2", "-d", "5", "--json", env=interpreted)
    rows = json.loads(done.stdout)
    assert [row["test"] for row in rows] == ["pp4", "tg2"]
    assert all(list(row) == FIELDS for row in rows)
    dim, hidden, layers, vocab = small_model.DIM, small_model.HIDDEN, small_model.LAYERS, small_model.VOCAB
    kv = dim * small_model.KV_HEADS // small_model.HEADS
    weights = 4 * (layers * (2 * dim * dim + 2 * dim * kv + 3 * dim * hidden) + vocab * dim)
    cache = 2 * (6 + 7) / 2 * layers * small_model.KV_HEADS * (8 + 8) * 2
    assert rows[1]["gb_per_s"] / rows[1]["tokens_per_s"] * 1e9 == pytest.approx((weights + cache) / 2)
    table = run(*common, "-p", "0", "-n", "1", env=interpreted).stdout
    for word in ("of copy", "of cuBLAS", "each kernel of a step costs"):
        assert word in table


@pytest.mark.parametrize("command", ["machine", "model"])
def test_a_card_that_is_not_there(model: str, command: str) -> None:
    torch = pytest.importorskip("torch", reason="the GPU's memory is torch's")
    pytest.importorskip("triton", reason="the GPU's kernels are Triton's")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    done = run(command, "--device", "cuda", env={"TRITON_INTERPRET": "0", "GRISTMILL_MODEL": model})
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["Error: device is 'cuda', and torch finds no CUDA card here: use device cpu"]


@pytest.mark.parametrize(
    ("command", "option"), [("machine", "--threads"), ("model", "--threads"), ("machine", "--isa")]
)
def test_what_is_for_the_processor(command: str, option: str) -> None:
    done = run(command, "--device", "cuda", option, "2" if option == "--threads" else "auto")
    assert done.returncode == 2
    assert f"{option} is for the processor: leave it out with --device cuda" in done.stderr
