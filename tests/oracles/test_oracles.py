"""The oracles can tell: leaving out any one feature moves their logits far beyond what the parity tests forgive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from transformers import PreTrainedModel

from oracles import kquants, mxfp4
from oracles.families import CONFIGS, WIDE, make, with_config, with_parameters
from oracles.oracle import Oracle

TOLERATED = 1e-4
N_POSITIONS = 200


def oracle_of(model: PreTrainedModel) -> Oracle:
    return Oracle(Path(), model, model.config)


def changed(model: PreTrainedModel, **values: Any) -> PreTrainedModel:
    """The same weights under a config with other values."""
    config = deepcopy(model.config)
    for name, value in values.items():
        setattr(config, name, value)
    return with_config(model, config)


def with_rope(model: PreTrainedModel, **values: Any) -> PreTrainedModel:
    return changed(model, rope_parameters={**model.config.rope_parameters, **values})


def filled(model: PreTrainedModel, end: str, value: float) -> PreTrainedModel:
    """Every parameter whose name ends so set to one value."""
    found = {name: np.full(p.shape, value) for name, p in model.named_parameters() if name.endswith(end)}
    assert found, f"no parameter ends in {end}"
    return with_parameters(model, found)


WITHOUT: Mapping[str, tuple[str, Callable[[PreTrainedModel], PreTrainedModel]]] = {
    "rope theta": ("llama3", lambda m: with_rope(m, rope_theta=1e4)),
    "norm weights": ("llama2", lambda m: filled(m, "norm.weight", 1.0)),
    "Llama 3.1 rope scaling": ("llama3.1", lambda m: with_rope(m, rope_type="default")),
    "Mistral's window": ("mistral", lambda m: changed(m, sliding_window=None)),
    "one key more in the window": ("mistral", lambda m: changed(m, sliding_window=m.config.sliding_window + 1)),
    "q, k, v biases": ("qwen2-tied", lambda m: filled(m, "_proj.bias", 0.0)),
    "q and k norms": ("qwen3-tied", lambda m: filled(filled(m, "q_norm.weight", 1.0), "k_norm.weight", 1.0)),
    "YaRN": ("qwen3-yarn", lambda m: with_rope(m, rope_type="default")),
    "YaRN's factor on cos and sin": ("qwen3-yarn", lambda m: with_rope(m, attention_factor=1.0)),
    "window from max_window_layers on": (
        "qwen2-window",
        lambda m: changed(m, layer_types=["sliding_attention"] * m.config.num_hidden_layers),
    ),
    "every second layer's window": (
        "gpt-oss",
        lambda m: changed(m, layer_types=["full_attention"] * m.config.num_hidden_layers),
    ),
    "which layers have the window": ("gpt-oss", lambda m: changed(m, layer_types=m.config.layer_types[::-1])),
    "sinks": ("gpt-oss", lambda m: filled(m, "sinks", -1e9)),
    "YaRN of gpt-oss": ("gpt-oss", lambda m: with_rope(m, rope_type="default")),
    "YaRN without rounding": ("gpt-oss", lambda m: with_rope(m, truncate=True)),
    "clamped SwiGLU": ("gpt-oss", lambda m: changed(m, swiglu_limit=1e9)),
    "router bias": ("gpt-oss", lambda m: filled(m, "router.bias", 0.0)),
    "gate and up biases": ("gpt-oss", lambda m: filled(m, "gate_up_proj_bias", 0.0)),
    "down biases": ("gpt-oss", lambda m: filled(m, "down_proj_bias", 0.0)),
    "attention output bias": ("gpt-oss", lambda m: filled(m, "o_proj.bias", 0.0)),
}


@pytest.mark.parametrize("feature", WITHOUT)
def test_a_missing_feature_shows(feature: str) -> None:
    name, without = WITHOUT[feature]
    oracle = oracle_of(make(name))
    ids = oracle.text(N_POSITIONS)
    assert np.abs(oracle_of(without(oracle.model)).logits(ids) - oracle.logits(ids)).max() > 100 * TOLERATED


@pytest.mark.parametrize("name", [*CONFIGS, *WIDE])
def test_logits_are_neither_flat_nor_certain(name: str) -> None:
    oracle = oracle_of(make(name))
    ids = oracle.text(N_POSITIONS)
    logits = oracle.logits(ids)
    assert 1 < logits.std() < 3
    assert len(set(logits.argmax(-1).tolist())) > N_POSITIONS / 8


@pytest.mark.parametrize("qtype", kquants.QUANTIZERS)
def test_quantizers_write_blocks_that_gguf_reads(qtype: gguf.GGMLQuantizationType) -> None:
    x = np.random.default_rng(0).standard_normal((5, 512)).astype(np.float32)
    x[0, :256], x[1] = 0, np.abs(x[1])
    blocks = kquants.quantize(x, qtype)
    error = kquants.dequantize(blocks, qtype.name) - x
    expected = {"Q2_K": 0.36, "Q3_K": 0.18, "Q4_K": 0.09, "Q5_K": 0.045, "Q6_K": 0.022, "IQ4_NL": 0.095}
    expected["IQ4_XS"] = expected["IQ4_NL"]
    expected |= {"IQ1_S": 0.6, "IQ1_M": 0.55, "IQ2_XXS": 0.36, "IQ2_XS": 0.32, "IQ2_S": 0.27}
    expected |= {"IQ3_XXS": 0.2, "IQ3_S": 0.14, "TQ1_0": 0.8, "TQ2_0": 0.8, "Q1_0": 0.61, "NVFP4": 0.1}
    assert error.std() / x.std() < expected[qtype.name]


def test_mxfp4_packs_alike_in_both_layouts() -> None:
    x = np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32)
    codes, scales = mxfp4.quantize(x)
    exact = mxfp4.dequantize(codes, scales)
    assert np.array_equal(
        gguf.quants.dequantize(mxfp4.pack_ggml(codes, scales), gguf.GGMLQuantizationType.MXFP4), exact
    )
    pairs = mxfp4.pack_pairs(codes)
    assert np.array_equal(np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(codes.shape), codes)
    assert np.abs(exact - x).max() < np.abs(x).max() / 3
