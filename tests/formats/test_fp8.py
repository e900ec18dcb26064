"""FP8 means what torch and transformers say it means, in each way that it is published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from oracles.families import edit_config
from oracles.fp8_files import BLOCK, save_fp8
from oracles.measure import MIN_TOP1, agreement
from oracles.oracle import Oracle
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from gristmill import LLM
from gristmill.convert import convert
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.dequantize import E4M3, dequantize
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType

CASES = [("llama-wide", "blocks"), ("qwen3-moe-wide", "blocks"), ("llama-wide", "rows"), ("qwen3-wide", "tensors")]
CASES += [("llama3.1", "blocks"), ("qwen3-moe-wide", "rows")]
N_POSITIONS = 400
MAX_KL = 5e-5


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Oracle, Path]:
    name, how = request.param
    return save_fp8(name, tmp_path_factory.mktemp("fp8") / "model", how)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_fp8("llama-wide", tmp_path / "model", "blocks")[0].path


def logits_of(path: Path, ids: list[int], **options: object) -> NDArray[np.float32]:
    with LLM(path, device="cpu", threads=2, kv_type="f32", **options) as llm:  # type: ignore[arg-type]
        return llm.logits(ids)


def change(folder: Path, changes: dict[str, torch.Tensor | None]) -> Path:
    tensors = load_file(folder / "model.safetensors") | changes
    save_file({k: v for k, v in tensors.items() if v is not None}, folder / "model.safetensors")
    return folder


def test_every_code_is_torch_s() -> None:
    theirs = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(E4M3, theirs, equal_nan=True)
    assert np.array_equal(np.signbit(E4M3), np.signbit(theirs))


def test_numbers(made: tuple[Oracle, Path]) -> None:
    """All are, rounded, those of the folder in bfloat16."""
    checkpoint, plain = open_checkpoint(made[0].path), open_checkpoint(made[1])
    assert set(checkpoint.names()) == set(plain.names())
    n_fp8 = 0
    for name in plain.names():
        weight = checkpoint.get(name)
        n_fp8 += weight.qtype is QType.FP8_GROUPS
        rounded = torch.from_numpy(np.array(dequantize(weight))).bfloat16().float().numpy()
        assert np.array_equal(rounded, dequantize(plain.get(name))), name
    assert n_fp8 > 6


@pytest.mark.parametrize("lazy", [False, True])
def test_logits(made: tuple[Oracle, Path], lazy: bool) -> None:
    """Bit by bit those of the same numbers in bfloat16, and near transformers'."""
    oracle, plain = made
    ids = oracle.text(N_POSITIONS)
    logits = logits_of(oracle.path, ids, lazy=lazy)
    assert np.array_equal(logits, logits_of(plain, ids))
    found = agreement(oracle, ids, logits)
    assert found.mean_kl <= MAX_KL * (20 if oracle.config.model_type == "qwen3_moe" else 1), found
    assert found.top1 >= MIN_TOP1, found


def test_transformers_reads_the_same(folder: Path) -> None:
    """Where whole blocks make up a matrix: it takes no others apart."""
    stored, checkpoint, n = load_file(folder / "model.safetensors"), open_checkpoint(folder), 0
    for name in checkpoint.names():
        if checkpoint.get(name).qtype is QType.FP8_GROUPS and not any(size % BLOCK for size in stored[name].shape):
            theirs = Fp8Dequantize(None)._dequantize_one(stored[name], stored[f"{name}_scale_inv"], torch.float32)
            assert np.array_equal(dequantize(checkpoint.get(name)), theirs.numpy()), name
            n += 1
    assert n == 10


@pytest.mark.parametrize("quantize", ["int8", "q8_0", "q4_0"])
def test_quantized_at_load(quantize: str, tmp_path: Path) -> None:
    """From the numbers themselves, not from bfloat16: nearly what bfloat16's become."""
    oracle, plain = save_fp8("llama-wide", tmp_path / "model", "blocks")
    ids = oracle.text(N_POSITIONS)
    ours, theirs = (logits_of(path, ids, quantize=quantize) for path in (oracle.path, plain))
    assert 0 < np.abs(ours - theirs).max() < 0.4


@pytest.mark.parametrize(("label", "qtype"), [(None, QType.BF16), ("q8_0", QType.Q8_0), ("q4_k_m", QType.Q4_K)])
def test_conversion(label: str | None, qtype: QType, made: tuple[Oracle, Path], tmp_path: Path) -> None:
    if label == "q4_k_m" and made[0].config.hidden_size % 256:
        pytest.skip("its rows are no blocks of 256")
    convert(open_checkpoint(made[0].path), tmp_path / "model.gguf", label=label)
    gguf = open_checkpoint(tmp_path / "model.gguf")
    assert gguf.get("blk.0.attn_q.weight").qtype is qtype
    if label is None:
        convert(open_checkpoint(made[1]), tmp_path / "plain.gguf")
        plain = open_checkpoint(tmp_path / "plain.gguf")
        for name in plain.names():
            assert np.array_equal(gguf.get(name).data, plain.get(name).data), name


def test_a_folder_of_bfloat16(made: tuple[Oracle, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its matrices are bf16, fp8; say --type"):
        convert(open_checkpoint(made[0].path), tmp_path / "out")
    convert(open_checkpoint(made[0].path), tmp_path / "out", label="bf16")
    found, expected = (load_file(path / "model.safetensors") for path in (tmp_path / "out", made[1]))
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], x) for name, x in expected.items())
    assert "quantization_config" not in open_checkpoint(tmp_path / "out").metadata


NAME = "model.layers.1.mlp.up_proj.weight"
SCALES = f"{NAME}_scale_inv"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({SCALES: None}, f"tensor '{NAME}': is FP8 and has no '{SCALES}' nor"),
        ({SCALES: torch.ones(6, 2, dtype=torch.int32)}, f"tensor '{SCALES}': has dtype I32"),
        ({SCALES: torch.ones(2, 6)}, f"tensor '{SCALES}': has shape"),
        ({SCALES: torch.full((6, 2), float("inf"))}, f"tensor '{SCALES}': holds numbers that are not finite"),
        ({NAME: torch.ones(768 * 256).to(torch.float8_e4m3fn)}, f"tensor '{NAME}': is FP8 and has shape"),
        ({NAME: torch.ones(768, 256).to(torch.float8_e5m2)}, f"tensor '{NAME}': has dtype F8_E5M2"),
    ],
)
def test_what_does_not_fit_is_named(folder: Path, changes: dict[str, torch.Tensor | None], message: str) -> None:
    with pytest.raises(ModelFormatError, match=message), LLM(change(folder, changes), device="cpu"):
        pass


@pytest.mark.parametrize("size", ["128", [128], [128, -1], [0, 128], [1.5, 2]])
def test_sizes_of_blocks_are_checked(folder: Path, size: object) -> None:
    edit_config(folder, {"quantization_config": {"quant_method": "fp8", "weight_block_size": size}})
    with pytest.raises(ModelFormatError, match="weight_block_size"), LLM(folder, device="cpu"):
        pass
