"""The benchmark tools: random models are sound, and the comparison divides what it measured the right way round."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from gristmill import LLM

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, *args: object) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("model", "label"),
    [("qwen3-tiny", "q4_k_m"), ("qwen3-tiny", "q8_0"), ("qwen2-tiny", "f16"), ("gpt-oss-tiny", "mxfp4")],
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


def test_comparison(tmp_path: Path) -> None:
    """Against programs that print made-up numbers: twice the speed and half the time are both 2 times better."""
    rows = [{"avg_ts": 90.0}, {"avg_ts": 100.0}]
    stats = {"prompt_tokens_per_s": 200.0, "output_tokens": 64, "output_tokens_per_s": 200.0, "load_s": 0.5}
    for name, printed in (
        ("llama-bench", json.dumps(rows)),
        ("llama-completion", "load time =    1000.00 ms"),
        ("gristmill", json.dumps({"stats": stats})),
    ):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{printed}'\n")
        program.chmod(0o755)
    found = run(
        "compare_llama_cpp.py", "a.gguf", "--llama-bin", tmp_path, "--gristmill", tmp_path / "gristmill", "--json"
    )
    by_measure = {row["measure"]: row for row in json.loads(found)["rows"]}
    assert by_measure["prompt tok/s"]["llama_cpp"] == 100.0, "the better of llama.cpp's two is what counts"
    assert {by_measure[m]["better"] for m in ("prompt tok/s", "generate tok/s", "load s")} == {2.0}
