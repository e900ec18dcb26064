"""From each format's metadata to one ModelConfig. It reads numbers only, never a tensor's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, bad_file, shown
from gristmill.formats.dequantize import dequantize
from gristmill.models import rope
from gristmill.models.fields import LIMIT_CONTEXT, LIMIT_COUNT, LIMIT_LAYERS, LIMIT_VOCAB, LIMIT_WIDTH, Fields
from gristmill.types import ModelConfig, MoeConfig, RopeConfig

GPT_OSS_LIMIT = 7.0  # of the clamped SwiGLU
_HF_ARCHS = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
}
_GGUF_ARCHS = ("llama", "qwen2", "qwen3", "qwen3moe", "gpt-oss")
_WITH_EXPERTS = ("qwen3moe", "gpt-oss")


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
    f = Fields(checkpoint.path, checkpoint.metadata)
    model_type = f.raw("model_type")
    if model_type not in _HF_ARCHS:
        raise f.error(
            "model_type", f"is {shown(model_type)}, gristmill runs {', '.join(_HF_ARCHS)}", "use one of these"
        )
    arch = _HF_ARCHS[model_type]
    activation = "silu"  # gpt-oss's clamped SwiGLU goes by that name too
    if f.raw("hidden_act") not in (None, activation):
        raise f.unsupported("hidden_act")
    n_heads = f.int("num_attention_heads", LIMIT_COUNT)
    d_model = f.int("hidden_size", LIMIT_WIDTH)
    head_dim = f.int("head_dim", LIMIT_WIDTH, 64 if arch == "gpt-oss" else max(1, d_model // n_heads))
    n_layers = f.int("num_hidden_layers", LIMIT_LAYERS)
    moe = _hf_experts(f, arch)
    return ModelConfig(
        arch=arch,
        vocab_size=f.int("vocab_size", LIMIT_VOCAB),
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=f.int("num_key_value_heads", LIMIT_COUNT, n_heads),
        head_dim=head_dim,
        d_ff=f.int("moe_intermediate_size" if arch == "qwen3moe" else "intermediate_size", LIMIT_WIDTH * 4),
        norm_eps=f.float("rms_norm_eps", 1e-6, high=1.0),
        rope=_hf_rope(f, arch, head_dim),
        windows=_hf_windows(f, arch, n_layers),
        max_context=f.int("max_position_embeddings", LIMIT_CONTEXT),
        tied_head=f.bool("tie_word_embeddings", False),
        swiglu_limit=f.float("swiglu_limit", GPT_OSS_LIMIT) if arch == "gpt-oss" else 0.0,
        moe=moe,
    )


def _hf_experts(f: Fields, arch: str) -> MoeConfig | None:
    if arch not in _WITH_EXPERTS:
        return None
    if arch == "gpt-oss":
        n_active = f.int("num_experts_per_tok", LIMIT_COUNT, f.int("experts_per_token", LIMIT_COUNT, 4))
        return MoeConfig(f.int("num_local_experts", LIMIT_COUNT), n_active)
    if not f.bool("norm_topk_prob", False):  # weights of the experts used that do not add up to one
        raise f.unsupported("norm_topk_prob")
    for name, plain in (("decoder_sparse_step", 1), ("mlp_only_layers", [])):  # layers without experts
        if f.has(name) and f.raw(name) != plain:
            raise f.unsupported(name)
    n_experts = f.int("num_experts", LIMIT_COUNT, f.int("num_local_experts", LIMIT_COUNT, 128))
    return MoeConfig(n_experts, f.int("num_experts_per_tok", LIMIT_COUNT, 8))


def _hf_rope(f: Fields, arch: str, head_dim: int) -> RopeConfig:
    values: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):  # transformers 4 and 5
        given = f.raw(name)
        if given is not None and not isinstance(given, Mapping):
            raise f.error(name, f"is {shown(given)}, must be an object")
        values.update(given or {})
    if f.float("partial_rotary_factor", values.get("partial_rotary_factor") or 1.0) != 1.0:
        raise f.unsupported("partial_rotary_factor")
    r = Fields(f.path, values)
    theta = r.float("rope_theta", f.float("rope_theta", 150000.0 if arch == "gpt-oss" else 10000.0))
    kind = r.raw("rope_type") or r.raw("type") or "default"
    if kind == "default":
        return _rope(rope.plain(theta, head_dim))
    factor = r.float("factor")
    if kind == "linear":
        return _rope(rope.plain(theta, head_dim) / np.float32(factor))
    original = r.int(
        "original_max_position_embeddings",
        LIMIT_CONTEXT,
        f.int("original_max_position_embeddings", LIMIT_CONTEXT, f.int("max_position_embeddings", LIMIT_CONTEXT)),
    )
    if kind == "llama3":
        low, high = r.float("low_freq_factor"), r.float("high_freq_factor")
        if high <= low:
            raise r.error("high_freq_factor", f"is {high:g}, must be over low_freq_factor {low:g}")
        return _rope(rope.llama3(rope.plain(theta, head_dim), factor, low, high, original))
    if kind == "yarn":
        if r.has("mscale") or r.has("mscale_all_dim"):
            raise r.unsupported("mscale" if r.has("mscale") else "mscale_all_dim")
        fast, slow = r.float("beta_fast", 32.0), r.float("beta_slow", 1.0)
        inv_freq = rope.yarn(theta, head_dim, factor, original, fast, slow, r.bool("truncate", True))
        return _rope(inv_freq, r.float("attention_factor", rope.yarn_scale(factor)))
    raise r.error(
        "rope_type", f"is {shown(kind)}; gristmill knows default, linear, llama3 and yarn", "use another model"
    )


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
    if arch not in _GGUF_ARCHS:
        problem = f"is {shown(arch)}, gristmill runs {', '.join(_GGUF_ARCHS)}"
        raise bad_file(checkpoint.path, "key 'general.architecture'", problem, "use one of these")
    f = Fields(checkpoint.path, checkpoint.metadata, f"{arch}.")
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
    n_layers = f.int("block_count", LIMIT_LAYERS)
    gpt_oss, experts = arch == "gpt-oss", arch in _WITH_EXPERTS
    if f.int("expert_count", LIMIT_COUNT, 0, low=0) and not experts:
        raise f.unsupported("expert_count")
    moe = MoeConfig(f.int("expert_count", LIMIT_COUNT), f.int("expert_used_count", LIMIT_COUNT)) if experts else None
    window = f.int("attention.sliding_window", LIMIT_CONTEXT, 0, low=0)
    return ModelConfig(
        arch=str(arch),
        vocab_size=checkpoint.get("token_embd.weight").shape[0],
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=f.int("attention.head_count_kv", LIMIT_COUNT, n_heads),
        head_dim=head_dim,
        d_ff=f.int("expert_feed_forward_length" if experts else "feed_forward_length", LIMIT_WIDTH * 4),
        norm_eps=f.float("attention.layer_norm_rms_epsilon", high=1.0),
        rope=_gguf_rope(checkpoint, f, head_dim, truncate=not gpt_oss),
        windows=tuple(0 if gpt_oss and i % 2 else window for i in range(n_layers)),
        max_context=f.int("context_length", LIMIT_CONTEXT),
        tied_head="output.weight" not in names,
        swiglu_limit=GPT_OSS_LIMIT if gpt_oss else 0.0,
        moe=moe,
    )


def _gguf_rope(checkpoint: Checkpoint, f: Fields, head_dim: int, truncate: bool) -> RopeConfig:
    theta = f.float("rope.freq_base", 10000.0)
    inv_freq = rope.plain(theta, head_dim)
    kind = f.raw("rope.scaling.type") or "none"
    scale = f.float("rope.scaling.attn_factor", 1.0)
    if kind == "yarn":
        factor = f.float("rope.scaling.factor")
        original = f.int("rope.scaling.original_context_length", LIMIT_CONTEXT, f.int("context_length", LIMIT_CONTEXT))
        fast, slow = f.float("rope.scaling.yarn_beta_fast", 32.0), f.float("rope.scaling.yarn_beta_slow", 1.0)
        inv_freq = rope.yarn(theta, head_dim, factor, original, fast, slow, truncate)
        scale *= rope.yarn_scale(factor)
    elif kind == "linear":
        inv_freq = inv_freq / np.float32(f.float("rope.scaling.factor"))
    elif kind != "none":
        raise f.unsupported("rope.scaling.type")
    if "rope_freqs.weight" in checkpoint.names():  # Llama 3.1: what each frequency is divided by
        factors = checkpoint.get("rope_freqs.weight")
        if factors.shape != (head_dim // 2,):
            raise bad_file(
                checkpoint.path, "tensor 'rope_freqs.weight'", f"has shape {factors.shape}, must be ({head_dim // 2},)"
            )
        inv_freq = (inv_freq / dequantize(factors)).astype(np.float32)
    return _rope(inv_freq, scale)


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
        rope=_rope(rope.plain(10000.0, head_dim)),
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
    theta, factor = f.float("rope_theta", 150000.0), f.float("rope_scaling_factor", 32.0)
    original = f.int("initial_context_length", LIMIT_CONTEXT, 4096)
    slow, fast = f.float("rope_ntk_alpha", 1.0), f.float("rope_ntk_beta", 32.0)
    inv_freq = (
        rope.yarn(theta, head_dim, factor, original, fast, slow, truncate=False)
        if factor > 1
        else rope.plain(theta, head_dim)
    )
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
        rope=_rope(inv_freq, rope.yarn_scale(factor)),
        windows=tuple(window if i % 2 == 0 else 0 for i in range(n_layers)),
        max_context=min(LIMIT_CONTEXT, int(original * factor)),
        tied_head=False,
        swiglu_limit=f.float("swiglu_limit", GPT_OSS_LIMIT),
        moe=MoeConfig(f.int("num_experts", LIMIT_COUNT), f.int("experts_per_token", LIMIT_COUNT, 4)),
    )


def _rope(inv_freq: Any, scale: float = 1.0) -> RopeConfig:
    return RopeConfig(tuple(float(x) for x in inv_freq), scale)
