"""RoPE and the context that it is for are what llama.cpp, transformers and vLLM make of the same fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import gguf
import numpy as np
import pytest
from oracles.families import save
from oracles.gguf_files import Linear, save_gguf
from transformers import GptOssConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from gristmill import LLM
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.open import open_checkpoint
from gristmill.models.fields import LIMIT_CONTEXT
from gristmill.models.hyperparameters import read_config
from gristmill.types import ModelConfig

HF: Mapping[str, Any] = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
}


def config_of(metadata: Mapping[str, Any], file_format: str = "safetensors") -> ModelConfig:
    return read_config(SimpleNamespace(format=file_format, path=Path("model"), metadata=metadata))  # type: ignore[arg-type]


def config_of_gguf(path: Path, keys: Mapping[str, Any], context: int = 4096) -> ModelConfig:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((8, 64), np.float32))
    for key, value in keys.items():
        name = f"llama.rope.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_float32(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_config(open_checkpoint(path))


# ---- linear scaling in GGUF ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("linear", get_args(Linear))
def test_linear_scaling_is_found_as_llama_cpp_finds_it(linear: Linear, tmp_path: Path) -> None:
    oracle = save_gguf(save("llama2-linear", tmp_path / "hf"), tmp_path / "model.gguf", linear=linear)
    ids = oracle.text(60)
    with LLM(oracle.path, device="cpu", threads=2, kv_type="f32") as llm:
        assert np.abs(llm.logits(ids) - oracle.logits(ids)).max() < 1e-4


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"scaling.factor": 4.0}, 4.0),
        ({"scaling.factor": 0.0}, 1.0),
        ({"scale_linear": 0.0}, 1.0),
        ({"scaling.factor": 0.0, "scale_linear": 4.0}, 1.0),
        ({"scaling.factor": 2.0, "scale_linear": 4.0}, 2.0),
        ({"scaling.type": "linear"}, 1.0),
        ({"scaling.type": "none", "scaling.factor": 4.0}, 1.0),
    ],
)
def test_which_factor_counts(keys: dict[str, Any], factor: float, tmp_path: Path) -> None:
    """As in llama.cpp, where a factor of 0 is none and the older key is read where the newer is absent."""
    found, plain = (config_of_gguf(tmp_path / f"{i}.gguf", k) for i, k in enumerate((keys, {})))
    assert np.array_equal(np.array(found.rope.inv_freq, "f4"), np.array(plain.rope.inv_freq, "f4") / np.float32(factor))
    assert found.max_context == 4096 * factor


# ---- context ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (None, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, 32768),  # stretched already
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}, 32768),
        ({"type": "yarn", "factor": 1.5}, 49152),
        ({"type": "linear", "factor": 4.0}, 131072),
        ({"rope_type": "linear", "factor": 1.3}, 42598),
        ({"rope_type": "linear", "factor": 1e-9}, 1),
        ({"rope_type": "linear", "factor": 1e12}, LIMIT_CONTEXT),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            32768,
        ),
    ],
)
def test_the_context_that_a_scaling_is_for(scaling: dict[str, Any] | None, context: int) -> None:
    """As vLLM derives its max_model_len, but that YaRN never leaves less than max_position_embeddings."""
    assert config_of({**HF, "rope_scaling": scaling}).max_context == context
    if scaling is not None:
        assert config_of({**HF, "rope_parameters": {**scaling, "rope_theta": 1e4}}).max_context == context


def test_the_original_context_may_stand_beside_the_scaling() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    within, beside = (
        {**HF, "rope_scaling": {**yarn, "original_max_position_embeddings": 8192}},
        {**HF, "rope_scaling": yarn, "original_max_position_embeddings": 8192},
    )
    assert config_of(within) == config_of(beside) != config_of({**HF, "rope_scaling": yarn})
    both = {**beside, "rope_scaling": {**yarn, "original_max_position_embeddings": 64}}
    theirs = LlamaConfig(head_dim=16, **{**both, "rope_theta": 1e4})
    np.testing.assert_allclose(config_of({**both, "rope_theta": 1e4}).rope.inv_freq, rope_of(theirs)[0], rtol=1e-6)


@pytest.mark.parametrize("turns", [{"beta_fast": 8.0, "beta_slow": 8.0, "truncate": False}, {"beta_slow": 11.0}])
def test_a_scaling_may_leave_nothing_to_blend(turns: dict[str, Any]) -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4, **turns}
    found = config_of({**HF, "rope_parameters": yarn}).rope.inv_freq
    theirs = LlamaConfig(head_dim=16, max_position_embeddings=HF["max_position_embeddings"], rope_parameters=yarn)
    np.testing.assert_allclose(found, rope_of(theirs)[0], rtol=1e-6)


def test_attn_factor_is_on_top_of_yarns_own_scale() -> None:
    """As in vLLM, which DeepSeek-R1-0528-Qwen3-8B's config.json is written for. attention_factor replaces both."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    deepseek = {**HF, "model_type": "qwen3", "rope_scaling": {**yarn, "attn_factor": 0.8782488562869419}}
    assert config_of(deepseek).rope.scale == pytest.approx(1.0)
    assert config_of({**HF, "rope_scaling": yarn}).rope.scale == pytest.approx(1.1386294)
    both = {**yarn, "attn_factor": 0.5, "attention_factor": 0.7}
    assert config_of({**HF, "rope_scaling": both}).rope.scale == 0.7


def test_what_people_add_counts() -> None:
    """As in transformers, where both are there; the base is of either."""
    added = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    there = {"rope_type": "default", "rope_theta": 1e6}
    both = {**HF, "rope_scaling": added, "rope_parameters": there}
    assert config_of(both) == config_of({**HF, "rope_scaling": added, "rope_theta": 1e6})
    assert config_of(both) != config_of({**HF, "rope_parameters": there})


def test_a_scale_that_is_not_computed_is_refused(tmp_path: Path) -> None:
    yarn = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.yarn_log_multiplier": 1.0}
    with pytest.raises(ModelFormatError, match=r"rope\.scaling\.yarn_log_multiplier"):
        config_of_gguf(tmp_path / "a.gguf", yarn)


def test_the_context_of_gguf(tmp_path: Path) -> None:
    yarn = {"scaling.type": "yarn", "scaling.factor": 4.0}
    assert config_of_gguf(tmp_path / "a.gguf", yarn).max_context == 16384
    original = {**yarn, "scaling.original_context_length": 1024}
    assert config_of_gguf(tmp_path / "b.gguf", original).max_context == 4096
    inexact = {"scaling.type": "linear", "scaling.factor": 2.3}  # which float32 has less of
    assert config_of_gguf(tmp_path / "c.gguf", inexact, context=1000).max_context == 2300


@pytest.mark.parametrize("scaling", [{"rope_type": "yarn", "factor": 4.0}, {"rope_type": "linear", "factor": 2.0}])
def test_the_longer_context_can_be_asked_for(scaling: dict[str, Any], tmp_path: Path) -> None:
    oracle = save("llama2", tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    fields["rope_parameters"] = {**scaling, "rope_theta": 1e4}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with LLM(tmp_path, device="cpu", threads=1, max_context=700) as llm:
        assert len(llm.logits(oracle.text(600), 599)) == 1


# ---- what config.json leaves out -------------------------------------------------------------------------------------


PLAIN: Mapping[str, Any] = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 1.0}


def rope_of(config: Any) -> tuple[np.ndarray, float]:
    """What transformers computes."""
    inv_freq, scale = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config, "cpu")
    return inv_freq.numpy(), scale


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"rope_theta": 1e5},
        {"rope_scaling": None},
        {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024}},
        {"rms_norm_eps": 1e-6, "num_local_experts": 4, "sliding_window": 64},
    ],
)
def test_gpt_oss_is_what_transformers_takes_it_for(said: dict[str, Any]) -> None:
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
    given = {**sizes, "num_attention_heads": 16, **said}
    theirs, ours = GptOssConfig(**given), config_of({"model_type": "gpt_oss", **given})
    inv_freq, scale = rope_of(theirs)
    np.testing.assert_allclose(ours.rope.inv_freq, inv_freq, rtol=1e-6)
    assert ours.rope.scale == pytest.approx(scale)
    assert ours.norm_eps == theirs.rms_norm_eps
    assert (ours.n_kv_heads, ours.head_dim) == (theirs.num_key_value_heads, theirs.head_dim)
    assert ours.moe is not None
    assert (ours.moe.n_experts, ours.moe.n_active) == (theirs.num_local_experts, theirs.num_experts_per_tok)
    assert ours.windows == (theirs.sliding_window, 0, theirs.sliding_window)
    assert (ours.max_context, ours.swiglu_limit) == (theirs.max_position_embeddings, theirs.swiglu_limit)


@pytest.mark.parametrize("config", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig])
def test_others_are_what_transformers_takes_them_for(config: Any) -> None:
    given: dict[str, Any] = {**HF, "num_hidden_layers": 30, "max_position_embeddings": 8192, "num_attention_heads": 32}
    given |= {"hidden_size": 2048}
    del given["num_key_value_heads"]
    if config is Qwen3MoeConfig:
        given |= {"moe_intermediate_size": 32, "norm_topk_prob": True}
    elif config in (Qwen2Config, Qwen3Config):
        given["use_sliding_window"] = True
    given["model_type"] = config.model_type
    theirs, ours = config(**given), config_of(given)
    head_dim = getattr(theirs, "head_dim", None) or 2048 // 32
    assert (ours.n_kv_heads, ours.head_dim) == (theirs.num_key_value_heads, head_dim)
    plain = LlamaConfig(head_dim=head_dim, rope_parameters=PLAIN)
    np.testing.assert_allclose(ours.rope.inv_freq, rope_of(plain)[0], rtol=1e-6)
    assert theirs.rope_parameters == {"rope_type": "default", "rope_theta": PLAIN["rope_theta"]}
    assert (ours.norm_eps, ours.tied_head) == (theirs.rms_norm_eps, theirs.tie_word_embeddings)
    window = getattr(theirs, "sliding_window", None) or 0
    types = getattr(theirs, "layer_types", None) or ["sliding_attention"] * 30
    assert ours.windows == tuple(window if kind == "sliding_attention" else 0 for kind in types)
    moe = ours.moe and (ours.moe.n_experts, ours.moe.n_active)
    assert moe == ((theirs.num_experts, theirs.num_experts_per_tok) if config is Qwen3MoeConfig else None)


def test_mistral_may_say_that_it_has_no_window() -> None:
    mistral = {**HF, "model_type": "mistral"}
    assert config_of({**mistral, "sliding_window": None}).windows == (0, 0)
    assert config_of(mistral).windows == (4096, 4096)


def test_openais_gpt_oss_is_what_its_authors_take_it_for() -> None:
    """What ModelConfig says where config.json does not (github.com/openai/gpt-oss, gpt_oss/torch/model.py)."""
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "head_dim": 16}
    given = {**sizes, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8, "sliding_window": 128}
    rope = {"rope_theta": 150000.0, "rope_scaling_factor": 32.0, "rope_ntk_alpha": 1.0, "rope_ntk_beta": 32.0}
    defaults = {**rope, "initial_context_length": 4096, "experts_per_token": 4, "swiglu_limit": 7.0}
    said, unsaid = (config_of(metadata, "gpt-oss") for metadata in ({**given, **defaults}, given))
    assert said == unsaid
    assert said.max_context == 131072
    assert config_of({**given, "rope_scaling_factor": 1.0}, "gpt-oss").max_context == 4096


def test_gpt_oss_without_scaling() -> None:
    given = {**HF, "num_key_value_heads": 4, "head_dim": 16, "rope_scaling": {"rope_type": "default"}}
    plain = LlamaConfig(head_dim=16, rope_parameters={"rope_type": "linear", "rope_theta": 150000.0, "factor": 1.0})
    ours = config_of({**given, "model_type": "gpt_oss"}).rope
    np.testing.assert_allclose(ours.inv_freq, rope_of(plain)[0], rtol=1e-6)
    assert ours.scale == 1


@pytest.mark.parametrize("config", [LlamaConfig, Qwen2Config, Qwen3Config])
def test_null_key_value_heads_are_as_many_as_heads(config: Any) -> None:
    given = {**HF, "num_key_value_heads": None, "model_type": config.model_type}
    assert config_of(given).n_kv_heads == config(**given).num_key_value_heads == HF["num_attention_heads"]
