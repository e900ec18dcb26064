"""safetensors against the package that defines the format, and gpt-oss's two layouts against transformers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import format_files as ff
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CONFIG = {"model_type": "llama", "rope_theta": 1e6, "nested": {"a": [1, 2.5, None, True]}}


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    made = {
        f"{label}.{len(shape)}": torch.randn(shape).to(dtype)
        for label, dtype in DTYPES.items()
        for shape in ((7,), (3, 5), (2, 3, 4))
    }
    return made | {"empty": torch.empty(0, 4)}


def assert_holds(path: Path, expected: dict[str, torch.Tensor]) -> None:
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "safetensors"
    assert set(checkpoint.names()) == set(expected)
    for name, values in expected.items():
        weight = checkpoint.get(name)
        assert weight.shape == tuple(values.shape)
        assert DTYPES[weight.qtype.label] == values.dtype
        assert weight.data.tobytes() == values.contiguous().view(torch.uint8).numpy().tobytes()
        assert weight.data.ctypes.data % weight.qtype.alignment == 0
        np.testing.assert_array_equal(dequantize(weight), values.float().numpy())


def write_folder(path: Path, *, n_shards: int, index: bool = True) -> dict[str, torch.Tensor]:
    ff.folder(path, {"config.json": CONFIG})
    made = tensors()
    if n_shards == 1:
        save_file(made, path / "model.safetensors", metadata={"format": "pt"})
        return made
    weight_map = {}
    for shard in range(n_shards):
        name = f"model-{shard + 1:05}-of-{n_shards:05}.safetensors"
        part = dict(list(made.items())[shard::n_shards])
        save_file(part, path / name)
        weight_map |= dict.fromkeys(part, name)
    if index:
        ff.folder(path, {"model.safetensors.index.json": {"metadata": {"total_size": 1}, "weight_map": weight_map}})
    return made


@pytest.mark.parametrize(("n_shards", "index"), [(1, False), (3, True), (3, False)])
def test_folders(tmp_path: Path, n_shards: int, index: bool) -> None:
    expected = write_folder(tmp_path, n_shards=n_shards, index=index)
    assert_holds(tmp_path, expected)
    assert open_checkpoint(tmp_path).metadata == CONFIG


def test_single_file(tmp_path: Path) -> None:
    expected = tensors()
    save_file(expected, tmp_path / "weights.safetensors")
    assert_holds(tmp_path / "weights.safetensors", expected)
    assert open_checkpoint(tmp_path / "weights.safetensors").metadata == {}
    unnamed = (tmp_path / "weights.safetensors").rename(tmp_path / "blob")
    assert_holds(unnamed, expected)
    with pytest.raises(KeyError):
        open_checkpoint(unnamed).get("no such tensor")


def test_a_shard_opens_the_whole_model(tmp_path: Path) -> None:
    expected = write_folder(tmp_path, n_shards=3)
    assert_holds(tmp_path / "model-00002-of-00003.safetensors", expected)


def test_an_index_that_was_left_over_beside_one_file(tmp_path: Path) -> None:
    """As transformers leaves it where a model of one file is saved over one of shards."""
    config = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**config, num_attention_heads=2, tie_word_embeddings=False))
    model.save_pretrained(tmp_path, max_shard_size="1KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    model.save_pretrained(tmp_path)
    assert_holds(tmp_path, model.state_dict())


def test_links_as_the_hub_cache_has_them(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "blobs", n_shards=3)
    snapshot = ff.folder(tmp_path / "snapshot", {})
    for blob in (tmp_path / "blobs").iterdir():
        (snapshot / blob.name).symlink_to(os.path.relpath(blob, snapshot))
    assert_holds(snapshot, expected)


def test_unaligned_data_is_copied_into_place(tmp_path: Path) -> None:
    """Writers before 0.3 did not pad the header, so numbers begin at any byte."""
    values = np.arange(6, dtype="<f4")
    for pad in range(4):
        header = json.dumps({"a": ff.entry("F32", [6], 0, 24)}).encode() + b" " * pad
        (tmp_path / "a.safetensors").write_bytes(ff.safetensors(header, values.tobytes()))
        assert_holds(tmp_path / "a.safetensors", {"a": torch.from_numpy(values)})


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.float64, torch.bool, torch.float8_e5m2])
def test_other_dtypes_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"good": torch.ones(2), "w.q": torch.zeros(4, 32).to(dtype)}, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path / "model.safetensors")
    assert checkpoint.get("good").shape == (2,)
    with pytest.raises(ModelFormatError, match=r"model\.safetensors: tensor 'w.q': has dtype [A-Z]+\d*.*BF16"):
        checkpoint.get("w.q")


def experts(rows: int, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = torch.randint(0, 256, (2, rows, groups, 16), dtype=torch.uint8)
    return blocks, torch.randint(100, 140, (2, rows, groups), dtype=torch.uint8)


def hugging_face_gpt_oss() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    made = {"model.embed_tokens.weight": torch.randn(5, 64).bfloat16(), "lm_head.weight": torch.randn(5, 64).bfloat16()}
    prefix = "model.layers.0.mlp.experts"
    made[f"{prefix}.gate_up_proj_blocks"], made[f"{prefix}.gate_up_proj_scales"] = experts(6, 2)
    made[f"{prefix}.down_proj_blocks"], made[f"{prefix}.down_proj_scales"] = experts(64, 3)
    made[f"{prefix}.gate_up_proj_bias"] = torch.randn(2, 6).bfloat16()
    return made


def original_gpt_oss() -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    made = {name: torch.randn(5, 64).bfloat16() for name in ("embedding.weight", "unembedding.weight")}
    made |= {"norm.scale": torch.randn(64), "block.0.attn.qkv.weight": torch.randn(8, 64).bfloat16()}
    made["block.0.attn.sinks"] = torch.randn(4).bfloat16()
    made["block.0.mlp.mlp1_weight.blocks"], made["block.0.mlp.mlp1_weight.scales"] = experts(6, 2)
    made["block.0.mlp.mlp2_weight.blocks"], made["block.0.mlp.mlp2_weight.scales"] = experts(64, 3)
    return made


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("n_files", [1, 2])
def test_gpt_oss(tmp_path: Path, original: bool, n_files: int) -> None:
    made = original_gpt_oss() if original else hugging_face_gpt_oss()
    ff.folder(tmp_path, {"config.json": {"num_experts": 2}})
    for i in range(n_files):  # blocks and scales fall into different files
        save_file(dict(list(made.items())[i::n_files]), tmp_path / f"model--{i + 1:05}-of-{n_files:05}.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == ("gpt-oss" if original else "safetensors")
    prefix = "block.0.mlp." if original else "model.layers.0.mlp.experts."
    joints = ("mlp1_weight", "mlp2_weight") if original else ("gate_up_proj", "down_proj")
    separator = "." if original else "_"
    plain = {name for name in made if not name.endswith(("blocks", "scales"))}
    assert set(checkpoint.names()) == plain | {prefix + joint for joint in joints}
    for joint, shape in zip(joints, ((2, 6, 64), (2, 64, 96)), strict=True):
        weight = checkpoint.get(prefix + joint)
        blocks, scales = made[f"{prefix}{joint}{separator}blocks"], made[f"{prefix}{joint}{separator}scales"]
        assert (weight.name, weight.qtype, weight.shape) == (prefix + joint, QType.MXFP4_SPLIT, shape)
        assert weight.data.tobytes() == blocks.numpy().tobytes()
        assert weight.scales is not None
        assert weight.scales.dtype == np.uint8
        assert weight.scales.tobytes() == scales.numpy().tobytes()
        checkpoint.release(weight)
        convert = pytest.importorskip("transformers.integrations.mxfp4").convert_moe_packed_tensors
        theirs = convert(blocks, scales, dtype=torch.float32).transpose(1, 2).numpy()
        np.testing.assert_array_equal(dequantize(weight), theirs)
    for name in plain:
        np.testing.assert_array_equal(dequantize(checkpoint.get(name)), made[name].float().numpy())
