"""From each format's metadata to one ModelConfig. Of tensors it reads shapes, and divisors of rotation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, bad_file, shown
from gristmill.models.fields import LIMIT_CONTEXT, LIMIT_COUNT, LIMIT_LAYERS, LIMIT_VOCAB, LIMIT_WIDTH, Fields
from gristmill.models.rope_fields import read_rope
from gristmill.types import ModelConfig, MoeConfig

GPT_OSS_LIMIT = 7.0  # of the clamped SwiGLU
_GPT_OSS_ALPHA = 1.702  # of its sigmoid
_HF_ARCHS = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
}
_HF_KV_HEADS = {"mistral": 8, "qwen2": 32, "qwen3": 32, "qwen3moe": 4, "gpt-oss": 8}
_HF_HEAD_DIM = {"qwen3": 128, "gpt-oss": 64}
"""Where config.json leaves them out; of others as many as there are heads, and d_model shared among these."""
_GGUF_ARCHS = ("llama", "qwen2", "qwen3", "qwen3moe", "gpt-oss")
_WITH_EXPERTS = ("qwen3moe", "gpt-oss")
_QUANTIZED: Final[Mapping[str, tuple[str, tuple[str, ...]] | None]] = {
    "fp8": None,
    "fbgemm_fp8": None,
    "mxfp4": None,
    "compressed-tensors": ("format", ("float-quantized", "naive-quantized", "dense")),
    "modelopt": ("quant_algo", ("FP8", "FP8_PER_CHANNEL_PER_TOKEN")),
}
"""Each quant_method that the readers of safetensors know, with what else it must say if it says anything."""


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The model's dimensions. ModelFormatError names a field that is missing, absurd or of an unknown kind."""
    readers = {"gguf": _gguf, "safetensors": _hugging_face, "gpt-oss": _openai, "llama2c": _llama2c}
    config = readers[checkpoint.format](checkpoint)
    _check(checkpoint, config)
    return config


def _check(checkpoint: Checkpoint, c: ModelConfig) -> None:
    where = "configuration"
    if c.n_heads % c.n_kv_heads:
        raise bad_file(checkpoint.path, where, f"{c.n_heads} heads cannot share {c.n_kv_heads} key-value heads evenly")
    if c.head_dim % 2 or not 2 <= c.head_dim <= 1024:
        raise bad_file(checkpoint.path, where, f"heads of {c.head_dim} dimensions; must be even, 2 to 1024")
    if c.moe and c.moe.n_active > c.moe.n_experts:
        raise bad_file(checkpoint.path, where, f"{c.moe.n_active} active experts of {c.moe.n_experts}")


# ---- Hugging Face ----------------------------------------------------------------------------------------------------


def _hugging_face(checkpoint: Checkpoint) -> ModelConfig:
    """config.json as transformers 4 and 5 write it."""
    if not checkpoint.metadata:
        problem = "is not beside it, and says what model this is"
        raise bad_file(checkpoint.path, "config.json", problem, "download it into the folder")
    f = Fields(checkpoint.path, checkpoint.metadata)
    model_type = f.raw("model_type")
    arch = _HF_ARCHS.get(model_type) if isinstance(model_type, str) else None
    if arch is None:
        raise f.error(
            "model_type", f"is {shown(model_type)}, gristmill runs {', '.join(_HF_ARCHS)}", "use one of these"
        )
    _check_quantization(f)
    activation = "silu"  # gpt-oss's clamped SwiGLU goes by that name too
    if f.raw("hidden_act") not in (None, activation):
        raise f.unsupported("hidden_act")
    if not f.bool("is_causal", True):  # of some models for embeddings, where a token sees those after it
        raise f.unsupported("is_causal")
    n_heads = f.int("num_attention_heads", LIMIT_COUNT)
    d_model = f.int("hidden_size", LIMIT_WIDTH)
    gpt_oss = arch == "gpt-oss"  # what its config.json leaves out is as in the published models, as in transformers
    head_dim = f.int("head_dim", LIMIT_WIDTH, _HF_HEAD_DIM.get(arch, max(1, d_model // n_heads)))
    n_layers = f.int("num_hidden_layers", LIMIT_LAYERS)
    rope = read_rope(checkpoint, arch, head_dim)
    return ModelConfig(
        arch=arch,
        vocab_size=f.int("vocab_size", LIMIT_VOCAB),
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=_hf_kv_heads(f, arch, n_heads),
        head_dim=head_dim,
        d_ff=f.int("moe_intermediate_size" if arch == "qwen3moe" else "intermediate_size", LIMIT_WIDTH * 4),
        norm_eps=f.float("rms_norm_eps", 1e-5 if gpt_oss else 1e-6, high=1.0),
        rope=rope.config(head_dim),
        windows=_hf_windows(f, arch, n_layers),
        max_context=rope.context(f.int("max_position_embeddings", LIMIT_CONTEXT, 131072 if gpt_oss else None)),
        tied_head=f.bool("tie_word_embeddings", False),
        swiglu_limit=_swiglu_limit(f) if gpt_oss else 0.0,
        moe=_hf_experts(f, arch),
    )


def _hf_kv_heads(f: Fields, arch: str, n_heads: int) -> int:
    """null is not the family's usual number: it stands for as many as there are heads."""
    name = "num_key_value_heads"
    return f.int(name, LIMIT_COUNT, n_heads if name in f.names() else _HF_KV_HEADS.get(arch, n_heads))


def _check_quantization(f: Fields) -> None:
    """Tensors show how they are stored; what else is done with them, and with activations, only the method tells."""
    said = f.raw("quantization_config")
    if not isinstance(said, Mapping | None):
        raise f.error("quantization_config", f"is {shown(said)}, must be an object")
    q = Fields(f.path, said or {})
    if not q.has("quant_method"):
        return
    method = q.text("quant_method")
    if method not in _QUANTIZED:
        known = ", ".join(_QUANTIZED)
        raise q.error("quant_method", f"is {shown(method)}, gristmill reads {known}", "use another file of this model")
    name, known_values = _QUANTIZED[method] or ("quant_method", (method,))
    if q.has(name) and q.text(name) not in known_values:
        raise q.unsupported(name)
    if q.raw("transform_config"):  # of compressed-tensors: rotations of activations
        raise q.unsupported("transform_config")


def _hf_experts(f: Fields, arch: str) -> MoeConfig | None:
    if arch not in _WITH_EXPERTS:
        return None
    if arch == "gpt-oss":
        n_active = f.int("num_experts_per_tok", LIMIT_COUNT, f.int("experts_per_token", LIMIT_COUNT, 4))
        return MoeConfig(f.int("num_local_experts", LIMIT_COUNT, 128), n_active)
    if not f.bool("norm_topk_prob", False):  # weights of the experts used that do not add up to one
        raise f.unsupported("norm_topk_prob")
    for name, plain in (("decoder_sparse_step", 1), ("mlp_only_layers", [])):  # layers without experts
        if f.has(name) and f.raw(name) != plain:
            raise f.unsupported(name)
    n_experts = f.int("num_experts", LIMIT_COUNT, f.int("num_local_experts", LIMIT_COUNT, 128))
    return MoeConfig(n_experts, f.int("num_experts_per_tok", LIMIT_COUNT, 8))


def _swiglu_limit(f: Fields) -> float:
    if f.float("swiglu_alpha", _GPT_OSS_ALPHA) != _GPT_OSS_ALPHA:
        raise f.unsupported("swiglu_alpha")
    return f.float("swiglu_limit", GPT_OSS_LIMIT)


def _hf_windows(f: Fields, arch: str, n_layers: int) -> tuple[int, ...]:
    """Each layer's window: by `layer_types` where it is given, otherwise by the family's own rule."""
    if arch == "llama" or (arch.startswith("qwen") and not f.bool("use_sliding_window", False)):
        return (0,) * n_layers
    if arch == "qwen3moe":
        raise f.unsupported("use_sliding_window")
    if "sliding_window" in f.names() and not f.has("sliding_window"):
        return (0,) * n_layers
    window = f.int("sliding_window", LIMIT_CONTEXT, 128 if arch == "gpt-oss" else 4096)
    types = f.raw("layer_types")
    if types is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(types, list) or len(types) != n_layers or any(t not in known for t in types):
            raise f.error("layer_types", f"is {shown(types)}, must name full_attention or sliding_attention a layer")
        return tuple(window if t == "sliding_attention" else 0 for t in types)
    if arch == "gpt-oss":
        return tuple(window if i % 2 == 0 else 0 for i in range(n_layers))
    first = 0 if arch == "mistral" else f.int("max_window_layers", LIMIT_LAYERS, 28, low=0)
    return tuple(window if i >= first else 0 for i in range(n_layers))


# ---- GGUF ------------------------------------------------------------------------------------------------------------


def _gguf(checkpoint: Checkpoint) -> ModelConfig:
    """Key-values as llama.cpp's converter writes them (gguf-py, constants.py)."""
    arch = checkpoint.metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in _GGUF_ARCHS:
        problem = f"is {shown(arch)}, gristmill runs {', '.join(_GGUF_ARCHS)}"
        raise bad_file(checkpoint.path, "key 'general.architecture'", problem, "use one of these")
    f = Fields(checkpoint.path, {key: _alike(value) for key, value in checkpoint.metadata.items()}, f"{arch}.")
    names = set(checkpoint.names())
    if "token_embd.weight" not in names:
        raise bad_file(
            checkpoint.path, "tensor 'token_embd.weight'", "is missing", "this file may hold a vocabulary alone"
        )
    n_heads = f.int("attention.head_count", LIMIT_COUNT)
    d_model = f.int("embedding_length", LIMIT_WIDTH)
    head_dim = f.int("attention.key_length", LIMIT_WIDTH, max(1, d_model // n_heads))
    if f.int("attention.value_length", LIMIT_WIDTH, head_dim) != head_dim:
        raise f.unsupported("attention.value_length")
    if f.int("rope.dimension_count", LIMIT_WIDTH, head_dim) != head_dim:
        raise f.unsupported("rope.dimension_count")
    if not f.bool("attention.causal", True):
        raise f.unsupported("attention.causal")
    n_layers = f.int("block_count", LIMIT_LAYERS)
    gpt_oss, experts = arch == "gpt-oss", arch in _WITH_EXPERTS
    if f.int("expert_count", LIMIT_COUNT, 0, low=0) and not experts:
        raise f.unsupported("expert_count")
    moe = MoeConfig(f.int("expert_count", LIMIT_COUNT), f.int("expert_used_count", LIMIT_COUNT)) if experts else None
    window = f.int("attention.sliding_window", LIMIT_CONTEXT, None if gpt_oss else 0, low=0)
    rope = read_rope(checkpoint, arch, head_dim)
    return ModelConfig(
        arch=arch,
        vocab_size=math.prod(checkpoint.get("token_embd.weight").shape[:-1]),
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=f.int("attention.head_count_kv", LIMIT_COUNT, n_heads),
        head_dim=head_dim,
        d_ff=f.int("expert_feed_forward_length" if experts else "feed_forward_length", LIMIT_WIDTH * 4),
        norm_eps=f.float("attention.layer_norm_rms_epsilon", high=1.0),
        rope=rope.config(head_dim),
        windows=tuple(0 if gpt_oss and i % 2 else window for i in range(n_layers)),
        max_context=rope.context(f.int("context_length", LIMIT_CONTEXT)),
        tied_head="output.weight" not in names,
        swiglu_limit=GPT_OSS_LIMIT if gpt_oss else 0.0,
        moe=moe,
    )


def _alike(value: Any) -> Any:
    """A number for each layer as one number, where all are the same; anything else as it is."""
    is_alike = isinstance(value, np.ndarray) and value.size > 0 and (value == value[0]).all()
    return value[0].item() if is_alike else value


# ---- llama2.c and OpenAI's own layout --------------------------------------------------------------------------------


def _llama2c(checkpoint: Checkpoint) -> ModelConfig:
    m = checkpoint.metadata
    head_dim = m["dim"] // m["n_heads"]
    return ModelConfig(
        arch="llama",
        vocab_size=m["vocab_size"],
        n_layers=m["n_layers"],
        d_model=m["dim"],
        n_heads=m["n_heads"],
        n_kv_heads=m["n_kv_heads"],
        head_dim=head_dim,
        d_ff=m["hidden_dim"],
        norm_eps=1e-5,
        rope=read_rope(checkpoint, "llama", head_dim).config(head_dim),
        windows=(0,) * m["n_layers"],
        max_context=m["max_seq_len"],
        tied_head=m["shared_classifier"],
    )


def _openai(checkpoint: Checkpoint) -> ModelConfig:
    """config.json beside gpt-oss's original checkpoint (github.com/openai/gpt-oss, ModelConfig)."""
    f = Fields(checkpoint.path, checkpoint.metadata)
    n_layers = f.int("num_hidden_layers", LIMIT_LAYERS)
    head_dim = f.int("head_dim", LIMIT_WIDTH)
    window = f.int("sliding_window", LIMIT_CONTEXT, low=0)
    rope = read_rope(checkpoint, "gpt-oss", head_dim)
    return ModelConfig(
        arch="gpt-oss",
        vocab_size=f.int("vocab_size", LIMIT_VOCAB),
        n_layers=n_layers,
        d_model=f.int("hidden_size", LIMIT_WIDTH),
        n_heads=f.int("num_attention_heads", LIMIT_COUNT),
        n_kv_heads=f.int("num_key_value_heads", LIMIT_COUNT),
        head_dim=head_dim,
        d_ff=f.int("intermediate_size", LIMIT_WIDTH * 4),
        norm_eps=1e-5,
        rope=rope.config(head_dim),
        windows=tuple(window if i % 2 == 0 else 0 for i in range(n_layers)),
        max_context=rope.context(f.int("initial_context_length", LIMIT_CONTEXT, 4096)),
        tied_head=False,
        swiglu_limit=_swiglu_limit(f),
        moe=MoeConfig(f.int("num_experts", LIMIT_COUNT), f.int("experts_per_token", LIMIT_COUNT, 4)),
    )
