"""The benchmark tools: random models are sound, and the comparison divides what it measured the right way round."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from gristmill import LLM
from gristmill.bundled import STORY_MODEL
from gristmill.serve.sockets import free_port
from parity.data import shared_data

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, *args: object) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("qwen3-tiny", "q4_k_m"),
        ("qwen3-tiny", "q8_0"),
        ("qwen3moe-tiny", "q4_k_m"),
        ("qwen2-tiny", "f16"),
        ("gpt-oss-tiny", "mxfp4"),
    ],
)
def test_random_models_compute(model: str, label: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    run("random_model.py", model, "--type", label, "-o", path)
    reader = gguf.GGUFReader(path)
    for tensor in reader.tensors:
        if tensor.name.endswith(("_q.weight", "_down.weight", "_exps.weight")):
            numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            assert numbers.std() == pytest.approx(numbers.shape[-1] ** -0.5, rel=0.15)
    with LLM(path, device="cpu", threads=2) as llm:
        logits = llm.logits(list(range(32)))
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def printing(rows: object) -> str:
    return f"echo '{json.dumps(rows)}'"


def fakes(folder: Path) -> None:
    """Programs that print made-up numbers: half the speed and twice the time of gristmill's."""
    program(folder / "llama-bench", printing([{"avg_ts": 90.0}, {"avg_ts": 100.0}]))
    program(folder / "llama-batched-bench", "\n".join(printing({"pl": n, "speed_tg": 10.0 * n}) for n in (4, 8, 16)))
    program(folder / "llama-completion", "echo 'load time =    1000.00 ms'")
    program(folder / "run", '[ "$OMP_NUM_THREADS" = 3 ] && echo "achieved tok/s: 100.0" >&2')
    program(folder / "runq", 'echo "achieved tok/s: 50.0" >&2')
    shares = {"share_of_bandwidth": 0.8, "share_of_peak": 0.1}
    one = [{"tokens_per_s": 200.0, **shares}]
    batches = [{"batch": n, "tokens_per_s": 20.0 * n, **shares} for n in (4, 8, 16)]
    choice = f'case "$*" in *4,8,16*) {printing(batches)};; bench*) {printing(one)};;'
    program(folder / "gristmill", f"{choice} *) {printing({'stats': {'load_s': 0.5}})};; esac")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    fakes(tmp_path)
    return tmp_path


def test_comparison(programs: Path) -> None:
    """Twice the speed and half the time are both 2 times better."""
    common = ("--llama-bin", programs, "--gristmill", programs / "gristmill", "--rounds", 2, "--json")
    rows = json.loads(run("compare_llama_cpp.py", "a.gguf", *common, "--rest", 0, "--parts", "all"))["rows"]
    by_measure = {row["measure"]: row for row in rows}
    assert by_measure["prompt tok/s"]["llama_cpp"] == 100.0, "the better of llama.cpp's two is what counts"
    assert by_measure["generate, batch 16 tok/s"]["llama_cpp"] == 160.0
    doubled = {row["measure"] for row in rows if row["better"] == 2.0}
    deep = {"prompt at 4096 tok/s", "generate at 4096 tok/s"}
    assert doubled == {"prompt tok/s", "generate tok/s", "load s", *deep} | {
        f"generate, batch {n} tok/s" for n in (4, 8, 16)
    }
    assert set(by_measure) - doubled == {"start to first token s", "rested, to first token s", "peak memory GB"}
    assert {row["share"] for row in rows if row["measure"].endswith("tok/s")} == {0.8}
    assert {row["share"] for row in rows if not row["measure"].endswith("tok/s")} == {None}


def test_comparison_of_chosen_parts(programs: Path) -> None:
    common = ("a.gguf", "--llama-bin", programs, "--gristmill", programs / "gristmill", "--rounds", 1)
    rows = json.loads(run("compare_llama_cpp.py", *common, "--parts", "deep", "--depth", 64, "--json"))["rows"]
    assert [row["measure"] for row in rows] == ["prompt at 64 tok/s", "generate at 64 tok/s"]
    printed = run("compare_llama_cpp.py", *common, "--parts", "generate")
    assert printed.split()[-3:] == ["2.00x", "80%", "2.50x"]
    for args, problem in (
        (("--parts", "prompt,speed"), "'speed' is not one of prompt, generate, batch, deep, start"),
        (("--rounds", 0), "compare_llama_cpp: --rounds must be at least 1, not 0"),
        (("--llama-bin", programs / "none"), "none has no llama-bench: cmake --build llama.cpp/build --target llama-b"),
    ):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            run("compare_llama_cpp.py", *common, *args)
        assert problem in failed.value.stderr


def test_comparison_with_a_cache_of_q8_0(programs: Path) -> None:
    """llama-bench ends where values are to be quantized without flash attention."""
    refuses = 'case "$*" in *"-fa on,off"*"-ctv q8_0"*) exit 1;; esac'
    program(programs / "llama-bench", f"{refuses}; {printing([{'avg_ts': 100.0}])}")
    common = ("a.gguf", "--llama-bin", programs, "--gristmill", programs / "gristmill", "--rounds", 1, "--json")
    rows = json.loads(run("compare_llama_cpp.py", *common, "--parts", "generate", "--kv-type", "q8_0"))["rows"]
    assert [row["better"] for row in rows] == [2.0]


def test_comparison_with_ik_llama(tmp_path: Path) -> None:
    """The better of weights as they are and repacked, each measure by itself, out of the logs of three programs."""

    def either(plain: str, repacked: str) -> str:
        return f'case "$*" in *"-rtr 0"*) {plain};; *-rtr*) {repacked};; *) {plain};; esac'

    def line(sequences: int, speed: float) -> str:
        return f"echo '| 16 | 32 | {sequences:4} | 768 | 0.100 | 160.00 | 5.000 | {speed:8.2f} | 5.1 | 9.0 |'"

    fakes(tmp_path)
    program(tmp_path / "llama-bench", either(printing([{"avg_ts": 100.0}]), printing([{"avg_ts": 60.0}])))
    header = "echo '| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |'"
    batches = (
        f"{header}; {line(4, 40)}; {line(8, 30)}; {line(16, 9)}",
        f"{line(4, 7)}; {line(8, 80)}; {line(16, 160)}",
    )
    program(tmp_path / "llama-batched-bench", either(*batches))
    rows = [{"n_kv": at, "speed_pp": pp, "speed_tg": 100.0} for at, pp in ((0, 900.0), (4096, 100.0), (4608, 900.0))]
    program(tmp_path / "llama-sweep-bench", "{ " + "; ".join(map(printing, rows)) + "; } >&2")
    common = ("a.gguf", "--ik-bin", tmp_path, "--gristmill", tmp_path / "gristmill", "--rounds", 1)
    found = json.loads(run("compare_ik_llama.py", *common, "--json"))["rows"]
    assert {row["measure"]: row["ik_llama_cpp"] for row in found} == {
        "prompt tok/s": 100.0,
        "generate tok/s": 100.0,
        **{f"generate, batch {n} tok/s": 10.0 * n for n in (4, 8, 16)},
        "prompt at 4096 tok/s": 100.0,
        "generate at 4096 tok/s": 100.0,
    }
    assert {row["better"] for row in found} == {2.0}
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("compare_ik_llama.py", *common, "--parts", "deep", "--depth", 4000)
    assert "no row of 4000 tokens: take a multiple of 512" in failed.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("compare_ik_llama.py", *common, "--parts", "batch", "--batch", "4,32")
    assert "no row of 32 sequences" in failed.value.stderr


def test_comparison_with_llama2c(programs: Path) -> None:
    """`run` is given version 0 and `runq` version 2, with as many threads as gristmill."""
    run("random_model.py", "llama2c-15m", "--type", "f32", "-o", programs / "plain.bin")
    run("random_model.py", "llama2c-15m", "--type", "q8_0", "-o", programs / "int8.bin")
    common = ("--llama2c", programs, "--gristmill", programs / "gristmill", "--rounds", 1, "--threads", 3, "--json")
    rows = json.loads(run("compare_llama2c.py", programs / "plain.bin", programs / "int8.bin", *common))["rows"]
    assert [(row["measure"], row["llama2c"], row["better"]) for row in rows] == [
        ("plain.bin generate tok/s", 100.0, 2.0),
        ("plain.bin prompt tok/s", 100.0, 2.0),
        ("int8.bin generate tok/s", 50.0, 4.0),
        ("int8.bin prompt tok/s", 50.0, 4.0),
    ]
    (programs / "short.bin").write_bytes(b"ak42")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("compare_llama2c.py", programs / "short.bin", *common)
    assert "too short for a llama2.c checkpoint" in failed.value.stderr


ROW = {"test": "tg128", "batch": 4, "depth": 64, "threads": 2, "gb_per_s": 20.0, "gflop_per_s": 80.0}
LIMITS = {"threads": 2, "read_gb_per_s": {"best": 50.0, "median": 49.0}}
MACHINE = {"limits": [{**LIMITS, "peak_gflop_per_s": {"f32": {"best": 200.0}, "int8": {"best": 900.0}}}]}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    (tmp_path / "machine.json").write_text(json.dumps(MACHINE))
    prompt = {**ROW, "test": "pp512", "batch": 1, "depth": 0, "gb_per_s": 0.5, "gflop_per_s": 400.0}
    (tmp_path / "q8_0.json").write_text(json.dumps([ROW, prompt, {**ROW, "threads": 1}]))
    return tmp_path


def test_roofline_draws(measured: Path) -> None:
    run("roofline.py", measured / "machine.json", measured / "q8_0.json", "-o", measured / "a.png")
    picture = (measured / "a.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("roofline.py", measured / "q8_0.json", measured / "q8_0.json", "-o", measured / "b.png")
    assert "not what `gristmill bench machine --json` prints" in failed.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("roofline.py", measured / "machine.json", measured / "q8_0.json", "--threads", 8, "-o", measured / "b.png")
    assert "measured with [2] threads, not with 8" in failed.value.stderr
    assert not (measured / "b.png").exists()


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script, imported."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, made)
    spec.loader.exec_module(made)
    return made


def test_roofline_points(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roofline = module("roofline", monkeypatch)
    assert roofline.read_limits(measured / "machine.json", None) == roofline.Limits(
        2, 50.0, {"f32": 200.0, "int8": 900.0}
    )
    assert roofline.read_points(measured / "q8_0.json", 2) == [
        roofline.Point("tg", "tg128 ×4 at 64", 4.0, 80.0),
        roofline.Point("pp", "pp512", 800.0, 400.0),
    ]


def test_goals_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    goals = module("goals", monkeypatch)
    rows = [
        {"measure": "generate tok/s", "better": 1.2, "share": 0.96},
        {"measure": "load s", "better": 3.0, "share": None},
        {"measure": "start to first token s", "better": 2.5, "share": None},
    ]
    path, other = tmp_path / "f16.json", tmp_path / "llama2c.json"
    path.write_text(json.dumps({"model": "somewhere/Qwen3-F16.gguf", "rows": rows}))
    of_llama2c = {"measure": "a-110m-q8.bin generate tok/s", "better": 2.0, "share": 1.0}
    other.write_text(json.dumps({"rows": [of_llama2c, {**of_llama2c, "measure": "110m.bin generate tok/s"}]}))
    bars = goals.read_bars([other, path])
    assert [(bar.goal.label, bar.times, bar.at_limit, bar.goal.times) for bar in bars] == [
        ("generate, F16", 1.2, 1.25, 1.2),
        ("llama2.c generate, 110m-q8", 2.0, 2.0, 2.2),
        ("first token, F16", 2.5, None, 2.0),
    ]
    run("goals.py", path, other, "-o", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    path.write_text("[]")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("goals.py", path, "-o", tmp_path / "b.png")
    assert "f16.json: not what a comparison prints with --json" in failed.value.stderr
    path.write_text(json.dumps({"model": "Qwen3-Q5_K.gguf", "rows": rows}))
    with pytest.raises(ValueError, match=r"f16\.json: has no figure of a goal; its model's name has to end with"):
        goals.read_bars([other, path])


def test_what_the_server_costs_is_measured_with_a_vocabulary_alone() -> None:
    vocabulary = shared_data("tokenizers/ggml-vocab-qwen2.gguf")
    rows = json.loads(run("serve_overhead.py", vocabulary, "--parts", "events,requests", "--seconds", "0.3", "--json"))
    assert [row["what"] for row in rows] == ["stream, an event a token", "short requests, 32 at once"]
    assert all(value > 0 for row in rows for value in row.values() if not isinstance(value, str))


def test_serving_is_compared_with_the_same_requests_in_one_call() -> None:
    sizes = ("--requests", 2, "--rounds", 2, "--threads", 1, "--port", free_port())
    (row,) = json.loads(run("compare_llama_server.py", STORY_MODEL, "--offline", *sizes, "--json"))["rows"]
    assert row["measure"] == "tok/s in all"
    assert row["better"] == pytest.approx(row["gristmill"] / row["offline"])


@pytest.mark.parametrize("script", ["engine_costs.py", "serve_overhead.py"])
def test_a_part_that_is_none_is_named(script: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(script, STORY_MODEL, "--parts", "speed")
    assert "--parts: 'speed' is not one of" in failed.value.stderr


def test_a_start_is_measured_phase_by_phase() -> None:
    lines = run("start.py", STORY_MODEL, "--rounds", 1, "--no-pack", "--threads", 2).splitlines()[1:]
    phases = ["interpreter", "imports", "header", "vocabulary", "weights", "cache", "first token", "exit", "sum"]
    assert [line[:20].strip() for line in lines] == [*phases, "gristmill generate"]
    assert int(lines[-1].split()[-2]) > 0
