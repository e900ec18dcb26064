"""One model, many files: float32 says the same whatever the format, and rounded weights compute what they stand for.

What a rounded file is held against is transformers with the float32 numbers that its blocks stand for, so the distance
measured is that of the arithmetic alone (oracles/measure.py says how, and what rounding activations must cost).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from oracles.families import CONFIGS, save
from oracles.gguf_files import save_gguf
from oracles.gpt_oss_files import save_hugging_face, save_original
from oracles.llama2c_files import read_version_0, save_llama2c
from oracles.measure import MIN_TOP1, agreement, int8_cost, log_softmax
from oracles.oracle import Oracle

from gristmill import LLM
from parity.data import shared_data

Save = Callable[[Path], Oracle]
Checkpoint = Callable[[str, Save], Oracle]
N_POSITIONS = 200
N_MEASURED = 400

MAX_KL = 4e-4  # twice what int8 activations cost these models
MAX_KL_BFLOAT16 = 5e-5  # bfloat16 activations cost 7e-6
MAX_KL_EXPERTS = 1e-3
BLOCKS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4")
GRIDS = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0")
ROUNDED = (*BLOCKS, *GRIDS, "Q1_0", "NVFP4")
THOROUGH = os.environ.get("GRISTMILL_THOROUGH") == "1"
WIDE_DENSE = ("llama-wide", "qwen3-wide", "llama2c-wide") if THOROUGH else ("llama-wide",)
WINDOW_LOST = ("mistral", "qwen2-window")  # GGUF cannot say what these models' windows are


def logits_of(oracle: Oracle, ids: list[int]) -> NDArray[np.float32]:
    with LLM(oracle.path, device="cpu", threads=2, kv_type="f32") as llm:
        return llm.logits(ids)


def source(name: str, checkpoint: Checkpoint) -> Oracle:
    return checkpoint(name, partial(save, name))


def rounded(checkpoint: Checkpoint, name: str, label: str, choose: Type | Callable[[str], Type]) -> Oracle:
    base = source(name, checkpoint)
    return checkpoint(f"{name}, {label}.gguf", lambda path: save_gguf(base, path, choose))


def assert_agree(oracle: Oracle, max_kl: float) -> None:
    ids = oracle.text(N_MEASURED)
    found = agreement(oracle, ids, logits_of(oracle, ids))
    assert found.mean_kl <= max_kl, found
    assert found.top1 >= MIN_TOP1, found


@pytest.mark.parametrize("name", [*CONFIGS, "llama-wide", "qwen3-wide", "qwen3-moe-wide", "gpt-oss-wide"])
def test_gguf_float32(name: str, checkpoint: Checkpoint) -> None:
    """Of the wide ones, matrices of more than 65,536 elements are rounded to 24 bits."""
    base, oracle = source(name, checkpoint), rounded(checkpoint, name, "F32", Type.F32)
    ids = oracle.text(N_POSITIONS)
    logits = logits_of(oracle, ids)
    assert np.abs(logits - oracle.logits(ids)).max() < 1e-4
    if name not in WINDOW_LOST:
        assert np.abs(logits - logits_of(base, ids)).max() < 1e-5


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", ["llama2", "llama2-gqa"])
def test_llama2c_float32(name: str, version: int, checkpoint: Checkpoint) -> None:
    base = source(name, checkpoint)
    oracle = checkpoint(f"{name}-v{version}.bin", partial(save_llama2c, base, version=version))
    ids = oracle.text(N_POSITIONS)
    logits = logits_of(oracle, ids)
    assert np.abs(logits - oracle.logits(ids)).max() < 1e-4
    assert np.abs(logits - logits_of(base, ids)).max() < 1e-5


@pytest.mark.parametrize("name", ["llama2", "llama2c-wide"])
def test_llama2c_int8(name: str, checkpoint: Checkpoint) -> None:
    """Groups of 64 weights in the wide one; in the other, groups of 8 that run on from row to row of ffn_down."""
    base = source(name, checkpoint)
    assert_agree(checkpoint(f"{name}-v2.bin", partial(save_llama2c, base, version=2)), MAX_KL)


def test_llama2c_int8_with_a_tied_head(checkpoint: Checkpoint) -> None:
    """Its layers must drown its embedding, which multiplies every rounding: int8 everywhere would cost 3e-3. All but
    its head is small enough for the engine to keep exact.
    """
    base = source("llama2-gqa", checkpoint)
    assert_agree(checkpoint("llama2-gqa-v2.bin", partial(save_llama2c, base, version=2)), MAX_KL)


@pytest.mark.parametrize("name", ["llama3", "qwen2-tied", "gpt-oss-odd"])
def test_float16(name: str, checkpoint: Checkpoint) -> None:
    """Half-precision weights are exact in float32, so nothing but their own rounding is lost."""
    folder = checkpoint(f"{name}, float16", partial(save, name, dtype=torch.float16))
    for oracle in (folder, rounded(checkpoint, name, "F16", Type.F16)):
        ids = oracle.text(N_POSITIONS)
        assert np.abs(logits_of(oracle, ids) - oracle.logits(ids)).max() < 1e-4


@pytest.mark.parametrize("name", ["llama-wide", "qwen3-wide"])
def test_bfloat16(name: str, checkpoint: Checkpoint) -> None:
    folder = checkpoint(f"{name}, bfloat16", partial(save, name, dtype=torch.bfloat16))
    for oracle in (folder, rounded(checkpoint, name, "BF16", Type.BF16)):
        assert_agree(oracle, MAX_KL_BFLOAT16)


@pytest.mark.parametrize("qtype", ROUNDED)
@pytest.mark.parametrize("name", WIDE_DENSE)
def test_gguf_types(name: str, qtype: str, checkpoint: Checkpoint) -> None:
    assert_agree(rounded(checkpoint, name, qtype, Type[qtype]), MAX_KL)


def q4_k_m(name: str) -> Type:
    """As in llama.cpp's Q4_K_M: more bits for v, for the way down and for the head."""
    return Type.Q6_K if any(part in name for part in ("attn_v", "ffn_down", "output.weight")) else Type.Q4_K


def gpt_oss_mix(rest: Type) -> Callable[[str], Type]:
    """As the published gpt-oss files: MXFP4 experts, all else in one wider type."""
    return lambda name: Type.MXFP4 if "_exps" in name else rest


def test_gguf_mixed_types(checkpoint: Checkpoint) -> None:
    assert_agree(rounded(checkpoint, "qwen3-wide", "Q4_K_M", q4_k_m), MAX_KL)


@pytest.mark.parametrize("rest", ["BF16", "Q8_0"])
def test_gguf_experts(rest: str, checkpoint: Checkpoint) -> None:
    assert_agree(rounded(checkpoint, "gpt-oss-wide", f"MXFP4 + {rest}", gpt_oss_mix(Type[rest])), MAX_KL_EXPERTS)


@pytest.mark.parametrize("qtype", ["Q4_0", "Q8_0"])
def test_gguf_experts_of_other_types(qtype: str, checkpoint: Checkpoint) -> None:
    assert_agree(rounded(checkpoint, "gpt-oss-wide", qtype, Type[qtype]), MAX_KL_EXPERTS)


@pytest.mark.parametrize("qtype", ["Q4_K", "Q6_K", "Q8_0", "BF16"])
def test_gguf_qwen3_experts(qtype: str, checkpoint: Checkpoint) -> None:
    choose = q4_k_m if qtype == "Q4_K" else Type[qtype]
    assert_agree(rounded(checkpoint, "qwen3-moe-wide", qtype, choose), MAX_KL_EXPERTS)


EXPERT_FOLDERS: Mapping[str, Callable[..., Oracle]] = {"Hugging Face": save_hugging_face, "OpenAI": save_original}


@pytest.mark.parametrize("layout", EXPERT_FOLDERS)
def test_mxfp4_folders(layout: str, checkpoint: Checkpoint) -> None:
    save_folder = partial(EXPERT_FOLDERS[layout], name="gpt-oss-wide")
    assert_agree(checkpoint(f"gpt-oss-wide, MXFP4, {layout}", save_folder), MAX_KL_EXPERTS)


@pytest.fixture(scope="module", params=["aidreams260K.bin", "stories260K.bin"])
def trained(request: pytest.FixtureRequest) -> tuple[Oracle, list[int]]:
    """A trained model and a text drawn from it."""
    oracle = read_version_0(shared_data(f"models/{request.param}"))
    ids, rng = [1], np.random.default_rng(0)
    while len(ids) < min(N_POSITIONS, oracle.config.max_position_embeddings):
        p = np.exp(log_softmax(oracle.logits(ids)[-1]))
        ids.append(int(rng.choice(len(p), p=p)))
    return oracle, ids


@pytest.mark.parametrize("qtype", ["Q8_0", "Q4_0", "MXFP4"])
def test_trained_models(qtype: str, trained: tuple[Oracle, list[int]], tmp_path: Path) -> None:
    """Trained models, read on text drawn from themselves. They are small enough for the engine to spare them int8
    activations, which would cost one of them, whose few dimensions hold outliers, 2e-2 of KL.
    """
    model, ids = trained
    rows_of_172 = "ffn_down"  # not a multiple of 32: such a tensor stays float16
    path = tmp_path / "trained.gguf"
    oracle = save_gguf(model, path, lambda name: Type.F16 if rows_of_172 in name else Type[qtype])
    found = agreement(oracle, ids, logits_of(oracle, ids))
    assert found.mean_kl <= min(MAX_KL, int8_cost(oracle, ids).mean_kl / 10), found
    assert found.top1 >= MIN_TOP1, found
