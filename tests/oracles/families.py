"""Small random models of every family, saved by transformers, which then says what their logits are.

It owns sizes, seeds and how random weights are scaled; it knows nothing of gristmill.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from oracles.oracle import Oracle


def llama(**changes: Any) -> LlamaConfig:
    """Llama 2 style: theta 10,000, as many kv heads as heads, head of its own."""
    sizes = {
        "vocab_size": 517,
        "hidden_size": 72,
        "intermediate_size": 100,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "tie_word_embeddings": False,
    }
    return LlamaConfig(**{**sizes, **_IDS, **changes})


def mistral(**changes: Any) -> MistralConfig:
    """Every layer sees a window that is shorter than the tests' texts."""
    sizes = {
        "vocab_size": 517,
        "hidden_size": 96,
        "intermediate_size": 136,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 40,
        "sliding_window": 23,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "tie_word_embeddings": False,
    }
    return MistralConfig(**{**sizes, **_IDS, **changes})


def qwen2(**changes: Any) -> Qwen2Config:
    """Biases on q, k and v; the R1 distillations differ in theta (10,000) and in an embedding of their own."""
    sizes = {
        "vocab_size": 517,
        "hidden_size": 120,
        "intermediate_size": 200,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": True,
    }
    return Qwen2Config(**{**sizes, **_IDS, **changes})


def qwen3(**changes: Any) -> Qwen3Config:
    """A norm on each head's q and k, and heads wider than d_model / n_heads."""
    sizes = {
        "vocab_size": 515,
        "hidden_size": 72,
        "intermediate_size": 104,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 40,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": True,
    }
    return Qwen3Config(**{**sizes, **_IDS, **changes})


def qwen3_moe(**changes: Any) -> Qwen3MoeConfig:
    """Qwen3 with experts in every layer, of whose weights those used add up to one; none has a bias."""
    sizes = {
        "vocab_size": 515,
        "hidden_size": 72,
        "intermediate_size": 200,  # of layers without experts, which the published models do not have
        "moe_intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 40,
        "num_experts": 11,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": False,
    }
    return Qwen3MoeConfig(**{**sizes, **_IDS, **changes})


def gpt_oss(**changes: Any) -> GptOssConfig:
    """Experts, sinks, every second layer windowed, YaRN without rounding, biases everywhere, clamped SwiGLU."""
    sizes = {
        "vocab_size": 519,
        "hidden_size": 96,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_local_experts": 8,
        "num_experts_per_tok": 4,
        "sliding_window": 19,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "tie_word_embeddings": False,
    }
    return GptOssConfig(**{**sizes, **_IDS, **changes})


_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
_LLAMA31_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,  # short, so that a test's text reaches all three of its ranges
}
_QWEN_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 256}

CONFIGS: Mapping[str, Callable[[], PretrainedConfig]] = {
    "llama2": llama,
    "llama2-gqa-tied": lambda: llama(
        hidden_size=108,
        intermediate_size=136,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=20,
        tie_word_embeddings=True,
    ),
    "llama2-gqa": lambda: llama(
        hidden_size=96,
        intermediate_size=160,
        num_attention_heads=6,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ),
    "llama3": lambda: llama(
        hidden_size=128,
        intermediate_size=352,
        num_attention_heads=8,
        num_key_value_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
    ),
    "llama3.1": lambda: llama(
        hidden_size=96, num_attention_heads=4, num_key_value_heads=2, rope_parameters=dict(_LLAMA31_ROPE)
    ),
    "llama2-linear": lambda: llama(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}),
    "mistral": mistral,
    "mistral-full": lambda: mistral(sliding_window=None),
    "qwen2-tied": qwen2,
    "qwen2-untied": lambda: qwen2(
        hidden_size=112,
        num_attention_heads=7,
        num_key_value_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=False,
    ),
    "qwen2-window": lambda: qwen2(num_hidden_layers=4, use_sliding_window=True, sliding_window=21, max_window_layers=2),
    "qwen3-tied": qwen3,
    "qwen3-untied": lambda: qwen3(
        hidden_size=100,
        head_dim=24,
        num_attention_heads=8,
        num_key_value_heads=1,
        tie_word_embeddings=False,
    ),
    "qwen3-yarn": lambda: qwen3(max_position_embeddings=1024, rope_parameters=dict(_QWEN_YARN)),
    "qwen3-moe": qwen3_moe,
    "qwen3-moe-tied": lambda: qwen3_moe(num_experts=5, num_experts_per_tok=4, tie_word_embeddings=True),
    "gpt-oss": gpt_oss,
    "gpt-oss-odd": lambda: gpt_oss(
        hidden_size=100,
        intermediate_size=72,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=24,
        num_local_experts=5,
        max_position_embeddings=32 * 512,
        rope_parameters={**gpt_oss().rope_parameters, "original_max_position_embeddings": 512},
    ),
}

# Wide enough for blocks of 256; rows in numbers that no kernel's tile divides.
WIDE: Mapping[str, Callable[[], PretrainedConfig]] = {
    "llama-wide": lambda: llama(
        vocab_size=1031,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=2,
        num_attention_heads=32,
        num_key_value_heads=2,
        head_dim=24,
    ),
    "qwen3-wide": lambda: qwen3(
        vocab_size=1031,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        head_dim=64,
        tie_word_embeddings=False,
    ),
    "llama2c-wide": lambda: llama(
        vocab_size=1031,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    ),
    "qwen3-moe-wide": lambda: qwen3_moe(
        vocab_size=1031,
        hidden_size=256,
        moe_intermediate_size=256,
        num_hidden_layers=2,
        head_dim=64,
        num_experts=6,
    ),
    "gpt-oss-wide": lambda: gpt_oss(
        vocab_size=1031,
        hidden_size=256,
        intermediate_size=160,
        num_hidden_layers=2,
        max_position_embeddings=32 * 512,
        rope_parameters={**gpt_oss().rope_parameters, "original_max_position_embeddings": 512},
    ),
}


_TINY = {"vocab_size": 67, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16}

# For kernels that are interpreted: few of everything, rows of whole groups of 32.
TINY: Mapping[str, Callable[[], PretrainedConfig]] = {
    "llama-tiny": lambda: llama(**_TINY, num_attention_heads=4, num_key_value_heads=2),
    "llama-tiny-256": lambda: llama(
        **{**_TINY, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "head_dim": 64},
        num_attention_heads=4,
        num_key_value_heads=1,
    ),
    "mistral-tiny": lambda: mistral(**{**_TINY, "sliding_window": 9, "head_dim": 24}),
    "qwen2-tiny": lambda: qwen2(
        **{k: v for k, v in _TINY.items() if k != "head_dim"}, num_attention_heads=4, num_key_value_heads=1
    ),
    "qwen3-tiny": lambda: qwen3(**_TINY),
    "qwen3-moe-tiny": lambda: qwen3_moe(
        **{**_TINY, "moe_intermediate_size": 32, "num_experts": 5, "num_experts_per_tok": 2}
    ),
    "gpt-oss-tiny": lambda: gpt_oss(
        **{**_TINY, "intermediate_size": 32, "sliding_window": 9, "num_local_experts": 5, "num_experts_per_tok": 2},
        num_attention_heads=4,
        max_position_embeddings=32 * 512,
        rope_parameters={**gpt_oss().rope_parameters, "original_max_position_embeddings": 512},
    ),
}


def build(config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    """The model of `config` with random weights that leave none of its features without effect."""
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    randomize(model, seed)
    return model


def make(name: str) -> PreTrainedModel:
    """The model `name` of CONFIGS, WIDE or TINY, the same at every call."""
    return build({**CONFIGS, **WIDE, **TINY}[name](), seed=sum(name.encode()))


def randomize(model: PreTrainedModel, seed: int) -> None:
    """Fill every parameter: logits of deviation 1.5 to 2, attention that prefers some keys, norms that differ."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        values = _random(rng, name, tuple(parameter.shape), model.config)
        parameter.data.copy_(torch.from_numpy(values.astype(np.float32)))


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...], config: PretrainedConfig) -> NDArray[Any]:
    tied = config.tie_word_embeddings
    last = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if last.endswith("norm"):
        return rng.uniform(0.5, 1.5, shape)
    if name.endswith("sinks"):
        return rng.normal(1.0, 1.0, shape)
    if name.endswith("bias"):
        return rng.normal(0.0, 0.3, shape)
    d_model = shape[-1]
    if last == "embed_tokens":
        return rng.normal(0.0, 2.0 / np.sqrt(d_model) if tied else 1.0, shape)
    d_in = shape[1] if "experts" in name and config.model_type == "gpt_oss" else d_model  # [E, in, out]
    branch = 2.0 if tied else 0.5  # a tied head repeats its input unless the layers drown it
    gain = {"lm_head": 1.5, "q_proj": 1.3, "k_proj": 1.3, "o_proj": branch, "down_proj": branch, "gate_up_proj": 2.5}
    return rng.normal(0.0, gain.get(last, 1.0) / np.sqrt(d_in), shape)


def with_parameters(model: PreTrainedModel, tensors: Mapping[str, NDArray[np.float32]]) -> PreTrainedModel:
    """A copy of `model` in which the parameters named in `tensors` (any shape of that size) have those values."""
    model = deepcopy(model)
    parameters = dict(model.named_parameters())
    for name, x in tensors.items():
        parameters[name].data = torch.from_numpy(np.array(x, np.float32)).reshape(parameters[name].shape)
    return model


def with_config(model: PreTrainedModel, config: PretrainedConfig) -> PreTrainedModel:
    """`model`'s weights in a model made from `config`."""
    other = type(model)._from_config(config, dtype=torch.float32).eval()
    other.load_state_dict(model.state_dict())
    return other


def save(
    name: str, folder: Path, *, dtype: torch.dtype = torch.float32, style: int = 5, max_shard_size: str = "1GB"
) -> Oracle:
    """Write the model `name` of CONFIGS, WIDE or TINY to `folder`; the oracle holds its weights as rounded to `dtype`.

    style  5 or 4: config.json as that major version of transformers writes it
    """
    model = make(name)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype).float()
    state = {key: value.to(dtype) for key, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    model.save_pretrained(folder, state_dict=state, max_shard_size=max_shard_size)
    edit_config(folder, {"dtype": str(dtype).removeprefix("torch.")})
    if style == 4:
        config_to_style_4(folder)
    return Oracle(folder, model, model.config)


def edit_config(folder: Path, changes: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=2))


def config_to_style_4(folder: Path) -> None:
    """Rewrite config.json as transformers 4 did: rope_theta beside rope_scaling, torch_dtype, no layer_types.

    As in Qwen's own files, a window that `use_sliding_window` turns off is still stated.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.44.0"
    config.pop("layer_types", None)
    if config.get("use_sliding_window") is False:
        config["sliding_window"] = 16
    path.write_text(json.dumps(config, indent=2))
