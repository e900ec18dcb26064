"""The script for a machine with a card runs from beginning to end, so that no time there is lost to a slip.

Its figures mean nothing in Triton's interpreter, but what it computes and compares does.
"""

# ruff: noqa: E402
from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the GPU's memory is torch's")
pytest.importorskip("triton", reason="the GPU's kernels are Triton's")

import device

from gristmill.ops.triton.common import INTERPRETED

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="with a card the script itself is run")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = ["--batch", "1", "2", "--depth", "14", "--steps", "3", "--prompt", "6", "--served", "5", "3"]
SMALL += ["--at-once", "2", "--bits-prompt", "6", "--buffer-mb", "1", "--check-tokens", "4"]
SMALL += ["--check-large", "", "--no-compile"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Knows small models."""
    assert device.INTERPRETED
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu
    from model_shapes import SHAPES, ModelShape

    dense = ModelShape("qwen3", 96, 2, 64, 64, 4, 2, 32, 128, 1e6, 1e-6, True)
    experts = ModelShape("gpt-oss", 96, 2, 64, 64, 4, 2, 32, 4096, 1e5, 1e-5, False, n_experts=4, n_active=2, window=16)
    blocks = ModelShape("qwen3", 96, 8, 256, 256, 4, 2, 64, 128, 1e6, 1e-6, False)
    monkeypatch.setitem(SHAPES, "small-blocks", blocks)  # type: ignore[arg-type]
    monkeypatch.setitem(SHAPES, "small", dense)  # type: ignore[arg-type]
    monkeypatch.setitem(SHAPES, "small-experts", experts)  # type: ignore[arg-type]
    return gpu


def lines(script: ModuleType, tmp_path: Path, *parts: str, model: str = "small", kind: str = "bf16") -> list[Any]:
    path = tmp_path / "card.jsonl"
    how = ["--model", model, "--check-models", model, "--type", kind, "--json", str(path)]
    assert script.main([*parts, *how, *SMALL]) == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("model", "kind"), [("small", "int8"), ("small-experts", "mxfp4")])
def test_models(script: ModuleType, tmp_path: Path, model: str, kind: str) -> None:
    said = lines(script, tmp_path, "steps", "profile", "served", "bits", model=model, kind=kind)
    of = {what: [line for line in said if line["what"] == what] for what in {line["what"] for line in said}}
    assert [(line["test"], line["batch"]) for line in of["steps"][:3]] == [("tg3", 1), ("tg3", 2), ("pp6", 1)]
    assert [(line["test"], line["batch"]) for line in of["torch"]] == [("tg3", 1), ("tg3", 2), ("pp6", 1)]
    assert [(line["test"], line["batch"]) for line in of["profile"]] == [("tg2", 1), ("tg2", 2), ("pp6", 1)]
    assert all(line["tokens_per_s"] > 0 for line in of["steps"] + of["torch"])
    assert all(("kernels_ms" in line) == line["test"].startswith("tg") for line in of["steps"])
    for line in of["weights"]:
        assert line["matrices_gb"] <= line["arithmetic_gb"] < 1.05 * line["matrices_gb"], "norms are no matrices"
    blocks = (2 + 2 + 2) if "experts" in model else (2 + 2)  # of layers: a step's tokens beside a window of each
    assert of["pool"][0]["arithmetic_gb"] == pytest.approx(blocks * 16 * 2 * 2 * 32 * 2 * 1e-9)
    (served,) = of["served"]
    assert served["output_tokens_per_s"] == pytest.approx(2 * 3 / served["seconds"])
    assert 0 < served["first_token_ms"] < served["seconds"] * 1e3
    beside = {line["of"]: line["same"] for line in of["bits"]}
    assert beside["prompt again"]
    assert beside["token beside 1"]


def test_kernels_and_limits(script: ModuleType, tmp_path: Path) -> None:
    said = lines(script, tmp_path, "limits", "kernels", model="small-experts")
    assert {line["what"] for line in said} == {"limits", "linear", "experts", "attention", "choice", "logprobs"}
    linear = [line for line in said if line["what"] == "linear"]
    assert {line["matrix"] for line in linear} == {"qkv", "o", "gate_up", "down", "head"}
    assert {line["type"] for line in linear} == {"cuBLAS", "bf16", "int8", "q8_0", "mxfp4"}
    assert all(line["of_cublas"] == 1 for line in linear if line["type"] == "cuBLAS")


@pytest.mark.parametrize("model", ["small", "small-experts"])
def test_it_computes_what_the_processor_does(script: ModuleType, tmp_path: Path, model: str) -> None:
    tokens, logits = lines(script, tmp_path, "check", model=model)
    assert (tokens["texts"], tokens["equal"]) == (3, 3)
    assert 0 < logits["worst"] < 0.05
    assert 0 <= logits["kl"] < 1e-3


def test_a_difference_is_a_failure(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_check

    monkeypatch.setattr(gpu_check, "tokens", lambda *_: False)
    monkeypatch.setattr(gpu_check, "logits", lambda *_: True)
    assert script.main(["check", "--check-large", ""]) == 1


def test_what_fails_leaves_the_others(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Any) -> None:
        raise ValueError("out of memory")

    monkeypatch.setattr(script.Measuring, "kernels", broken)
    path = tmp_path / "card.jsonl"
    assert script.main(["kernels", "limits", "--model", "small", "--json", str(path), *SMALL]) == 1
    assert "out of memory" in capsys.readouterr().err
    assert json.loads(path.read_text())["what"] == "limits"


@pytest.mark.parametrize(
    ("model", "kind"),
    [(m, k) for m in ("small", "small-experts") for k in ("bf16", "int8", "q8_0", "mxfp4")]
    + [("small-blocks", k) for k in ("q4_k", "q6_k", "q4_k_m")],
)
def test_weights_by_arithmetic(script: ModuleType, model: str, kind: str) -> None:
    """All tensors that a model is made of, as they lie in memory."""
    from gpu_model import random_decoder, weight_bytes
    from model_shapes import SHAPES

    decoder = random_decoder(SHAPES[model], kind, torch.device("cpu"))
    n_bytes = decoder.norm.nbytes + decoder.embed.n_bytes
    n_bytes += decoder.head.n_bytes if decoder.head is not decoder.embed else 0
    for layer in decoder.layers:
        matrices = (layer.qkv, layer.o, layer.router, layer.gate_up, layer.down)
        vectors = (layer.attn_norm, layer.q_norm, layer.k_norm, layer.sinks, layer.ffn_norm)
        n_bytes += sum(w.n_bytes for w in matrices if w is not None)
        n_bytes += sum(v.nbytes for v in vectors if v is not None)
    assert weight_bytes(SHAPES[model], kind) == n_bytes


@pytest.mark.parametrize("n", [2, 6, 70])
def test_torch_computes_experts_alike_however_many_tokens_there_are(script: ModuleType, n: int) -> None:
    """Gathered, all of them for every token, and one after another."""
    from gpu_torch import TorchModel
    from model_shapes import SHAPES

    torch.manual_seed(0)
    model = TorchModel(SHAPES["small-experts"], torch.device("cpu"))
    x = torch.randn((n, 64), dtype=torch.bfloat16)
    _, _, router, gate_up, down = model._layers[0]
    alone = torch.cat([model._experts(row[None], router, gate_up, down) for row in x])
    torch.testing.assert_close(model._experts(x, router, gate_up, down), alone, rtol=2e-2, atol=2e-2)
