"""Models with experts as safetensors folders, from every layout that holds them: as they are published, as transformers
reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from oracles.families import save
from oracles.fp8_files import save_fp8
from oracles.gpt_oss_files import save_hugging_face, save_original
from oracles.oracle import Oracle
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Mxfp4Config, PreTrainedModel

from gristmill import LLM
from gristmill.convert import convert
from gristmill.convert.experts import split_mxfp4
from gristmill.formats.checkpoint import ModelFormatError, Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType

NAME = "gpt-oss-wide"
N_POSITIONS = 60
Sources = dict[str, Path]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """transformers' layout, MXFP4 beside bfloat16."""
    return save_hugging_face(tmp_path_factory.mktemp("published") / "model", NAME)


@pytest.fixture(scope="module")
def sources(published: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """The same model in each layout."""
    folder = tmp_path_factory.mktemp("sources")
    gguf = run(published.path, folder / "model.gguf")
    return {"folder": published.path, "original": save_original(folder / "original", NAME).path, "gguf": gguf}


def run(source: Path, out: Path, label: str | None = None) -> Path:
    convert(open_checkpoint(source), out, label=label, n_threads=2)
    return out


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def of_transformers(folder: Path) -> PreTrainedModel:
    """What it loads, complete; on a processor it dequantizes MXFP4 to bfloat16, which holds every number of it."""
    how = {"quantization_config": Mxfp4Config(dequantize=True)} if "quantization_config" in config_of(folder) else {}
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", **how
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.float().eval()


def logits_of(model: Path | PreTrainedModel, ids: list[int]) -> NDArray[np.float32]:
    if isinstance(model, Path):
        with LLM(model, device="cpu", threads=2, kv_type="f32") as llm:
            return llm.logits(ids)
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].numpy()


@pytest.mark.parametrize("source", ["folder", "original", "gguf"])
@pytest.mark.parametrize("label", [None, "bf16", "mxfp4"])
def test_it_is_what_is_published(
    source: str, label: str | None, published: Oracle, sources: Sources, tmp_path: Path
) -> None:
    """Name by name, byte by byte."""
    out = run(sources[source], tmp_path / "out", label)
    found, expected = stored(out), stored(published.path)
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert torch.equal(found[name], tensor), name
    said, wanted = config_of(out), config_of(published.path)
    assert said["quantization_config"] == wanted["quantization_config"]
    for key in ("model_type", "architectures", "num_local_experts", "num_experts_per_tok", "layer_types", "head_dim"):
        assert said[key] == wanted[key], key


@pytest.mark.parametrize("source", ["folder", "original", "gguf"])
@pytest.mark.parametrize("label", [None, "f32"])
def test_transformers_and_gristmill_agree_on_it(
    source: str, label: str | None, published: Oracle, sources: Sources, tmp_path: Path
) -> None:
    out, ids = run(sources[source], tmp_path / "out", label), published.text(N_POSITIONS)
    theirs = logits_of(of_transformers(out), ids)
    assert np.abs(theirs - published.logits(ids)).max() < 2e-5
    assert ("quantization_config" in config_of(out)) == (label is None)
    ours, direct = logits_of(out, ids), logits_of(published.path, ids)
    if label is None:
        assert np.array_equal(ours, direct)  # the same bytes
    else:
        assert np.abs(ours - theirs).max() < 1e-4


def test_floats_become_mxfp4_and_stay_what_they_then_are(tmp_path: Path) -> None:
    """A folder of bfloat16 as transformers saves it, say after training."""
    oracle = save(NAME, tmp_path / "floats")
    ids = oracle.text(N_POSITIONS)
    same = run(oracle.path, tmp_path / "same")
    assert_same_tensors(oracle.path, same)
    assert np.abs(logits_of(of_transformers(same), ids) - oracle.logits(ids)).max() < 2e-5
    quantized = run(oracle.path, tmp_path / "quantized", "mxfp4")
    assert stored(quantized)["model.layers.0.mlp.experts.down_proj_blocks"].dtype == torch.uint8
    exact = run(quantized, tmp_path / "exact", "f32")
    assert np.abs(logits_of(of_transformers(quantized), ids) - logits_of(exact, ids)).max() < 1e-4
    again = run(run(quantized, tmp_path / "there.gguf"), tmp_path / "back")
    for name, tensor in stored(quantized).items():
        assert torch.equal(stored(again)[name], tensor), name


def test_experts_of_no_such_type_need_one(published: Oracle, tmp_path: Path) -> None:
    gguf = run(published.path, tmp_path / "model.gguf", "f32")
    whole = run(gguf, tmp_path / "whole")
    assert "quantization_config" not in config_of(whole)
    eighths = run(gguf, tmp_path / "q8.gguf", "q8_0")
    with pytest.raises(ValueError, match="its matrices are q8_0; say --type f32, f16, bf16"):
        run(eighths, tmp_path / "out")
    out = run(eighths, tmp_path / "out", "bf16")
    assert stored(out)["model.layers.0.mlp.experts.gate_up_proj"].shape == (8, 256, 320)
    assert of_transformers(out).config.model_type == "gpt_oss"


@pytest.mark.parametrize("source", ["folder", "original", "gguf"])
def test_progress_ends_at_the_end(source: str, sources: Sources, tmp_path: Path) -> None:
    seen = list[tuple[int, int]]()
    convert(open_checkpoint(sources[source]), tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert 0.9 * seen[-1][1] < seen[-1][0] <= seen[-1][1]


def test_nothing_is_left_of_what_was_interrupted(sources: Sources, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(open_checkpoint(sources["gguf"]), tmp_path / "out", progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Qwen3 with experts, a tensor for each, in several files of bfloat16."""
    folder = tmp_path_factory.mktemp("qwen") / "model"
    return save("qwen3-moe-wide", folder, dtype=torch.bfloat16, max_shard_size="1MB")


@pytest.mark.parametrize("label", [None, "f32", "bf16"])
def test_qwen3_s_experts_go_to_gguf_and_back(label: str | None, qwen: Oracle, tmp_path: Path) -> None:
    gguf = run(qwen.path, tmp_path / "model.gguf", label)
    back = run(gguf, tmp_path / "back", "bf16")
    assert len(list(qwen.path.glob("*.safetensors"))) > 1
    found, expected = stored(back), stored(qwen.path)
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    said, wanted = config_of(back), config_of(qwen.path)
    sizes = ("num_experts_per_tok", "moe_intermediate_size", "intermediate_size")
    for key in ("model_type", "architectures", "norm_topk_prob", *sizes):
        assert said[key] == wanted[key], key
    ids = qwen.text(N_POSITIONS)
    assert np.abs(logits_of(of_transformers(back), ids) - qwen.logits(ids)).max() < 2e-5
    assert np.array_equal(logits_of(back, ids), logits_of(qwen.path, ids))
    if label != "f32":  # routers, which GGUF always has in float32, are that here in any file
        assert np.array_equal(logits_of(gguf, ids), logits_of(qwen.path, ids))
    assert np.abs(logits_of(gguf, ids) - qwen.logits(ids)).max() < (1e-4 if label == "f32" else 0.1)


def test_qwen3_s_experts_are_quantized(qwen: Oracle, tmp_path: Path) -> None:
    gguf = open_checkpoint(run(qwen.path, tmp_path / "model.gguf", "q4_k_m"))
    assert gguf.get("blk.0.ffn_gate_exps.weight").qtype is QType.Q4_K
    assert gguf.get("blk.0.ffn_gate_exps.weight").shape == (6, 256, 256)
    assert gguf.get("blk.0.ffn_gate_inp.weight").qtype is QType.F32
    with pytest.raises(ValueError, match="type mxfp4 has no place in safetensors"):
        run(qwen.path, tmp_path / "out", "mxfp4")


def test_experts_in_types_of_their_own_are_refused(qwen: Oracle, tmp_path: Path) -> None:
    folder = run(qwen.path, tmp_path / "model", "f32")
    name = "model.layers.1.mlp.experts.4.up_proj.weight"
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {name: tensors[name].bfloat16()}, folder / "model.safetensors")
    with pytest.raises(ModelFormatError, match=f"{name}.*is bf16.*, that of another expert f32"), LLM(folder):
        pass


def test_experts_with_scales_of_their_own_kind_are_refused(tmp_path: Path) -> None:
    folder = save_fp8("qwen3-moe-wide", tmp_path / "model", "blocks")[0].path
    name = "model.layers.1.mlp.experts.4.up_proj.weight"
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {f"{name}_scale_inv": torch.tensor(0.5)}, folder / "model.safetensors")
    message = f"{name}.*is fp8 with scales.*, that of another expert fp8"
    with pytest.raises(ModelFormatError, match=message), LLM(folder):
        pass


def test_split_blocks_mean_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    encoded = rng.integers(0, 256, (50, 17), dtype=np.uint8)
    encoded[:, 0] = rng.integers(110, 140, 50)
    codes, scales = split_mxfp4(encoded)
    whole = Weight("whole", encoded.reshape(-1), QType.MXFP4, (50, 32))
    apart = Weight("apart", codes.reshape(-1), QType.MXFP4_SPLIT, (50, 32), scales)
    assert np.array_equal(dequantize(whole), dequantize(apart))


def assert_same_tensors(a: Path, b: Path) -> None:
    first, second = open_checkpoint(a), open_checkpoint(b)
    assert set(first.names()) == set(second.names())
    for name in first.names():
        assert np.array_equal(dequantize(first.get(name)), dequantize(second.get(name))), name
