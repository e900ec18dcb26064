"""The random models as GGUF: names, metadata keys and tensor transformations as llama.cpp's converter leaves them.

It owns the mapping in both directions, so that a torch model can hold exactly what a quantized file says.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from oracles import kquants, mxfp4
from oracles.families import with_config, with_parameters
from oracles.oracle import Oracle

Array = NDArray[np.float32]
Choose = Callable[[str], Type]
Linear = Literal["type and factor", "factor", "scale_linear"]

ARCHES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
}

_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.router": "ffn_gate_inp",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.gate_up_proj": "ffn_{}_exps.weight",
    "mlp.experts.gate_up_proj_bias": "ffn_{}_exps.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name: str, arch: str) -> str:
    """The GGUF name of a parameter; a gate_up one keeps a `{}` for `gate` and `up`."""
    if name in _TOP:
        return _TOP[name]
    _, _, layer, rest = name.split(".", 3)
    if rest == "post_attention_layernorm.weight":
        return f"blk.{layer}.{'post_attention_norm' if arch == 'gpt-oss' else 'ffn_norm'}.weight"
    if rest in _NAMES:
        return f"blk.{layer}.{_NAMES[rest]}"
    module, end = rest.rsplit(".", 1)
    return f"blk.{layer}.{_NAMES[module]}.{end}"


def interleave(x: Array, n_heads: int) -> Array:
    """Rows of each head from halves (transformers) to pairs (Meta, llama.cpp's `llama`): i + d / 2 becomes 2i + 1."""
    return x.reshape(n_heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def halve(x: Array, n_heads: int) -> Array:
    """The inverse of `interleave`."""
    return x.reshape(n_heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def to_gguf(model: PreTrainedModel) -> dict[str, Array]:
    """Every tensor under its GGUF name, float32, in GGUF's orientation and row order."""
    config, tensors = model.config, {}
    arch = ARCHES[config.model_type]
    for name, parameter in model.named_parameters():
        x, to = parameter.detach().numpy(), gguf_name(name, arch)
        if arch == "gpt-oss" and name.endswith(("gate_up_proj", "down_proj")):
            x = x.swapaxes(1, 2)  # [E, in, out] -> [E, out, in]
        if "{}" in to:
            gate, up = (x[:, 0::2], x[:, 1::2]) if arch == "gpt-oss" else np.split(x, 2, axis=1)
            tensors[to.format("gate")] = np.ascontiguousarray(gate, np.float32)
            tensors[to.format("up")] = np.ascontiguousarray(up, np.float32)
            continue
        if arch == "llama" and "q_proj" in name:
            x = interleave(x, config.num_attention_heads)
        if arch == "llama" and "k_proj" in name:
            x = interleave(x, config.num_key_value_heads)
        tensors[to] = np.ascontiguousarray(x, np.float32)
    return tensors


def from_gguf(model: PreTrainedModel, tensors: dict[str, Array]) -> PreTrainedModel:
    """A copy of `model` that holds `tensors`: the inverse of `to_gguf`."""
    config, arch = model.config, ARCHES[model.config.model_type]
    values = {}
    for name, _ in model.named_parameters():
        to = gguf_name(name, arch)
        if "{}" in to:
            gate, up = (tensors[to.format(part)] for part in ("gate", "up"))
            x = np.concatenate([gate, up], axis=1)
            if arch == "gpt-oss":
                x = np.stack([gate, up], axis=2).reshape(x.shape)
        else:
            x = tensors[to]
        if arch == "gpt-oss" and name.endswith(("gate_up_proj", "down_proj")):
            x = x.swapaxes(1, 2)
        if arch == "llama" and "q_proj" in name:
            x = halve(x, config.num_attention_heads)
        if arch == "llama" and "k_proj" in name:
            x = halve(x, config.num_key_value_heads)
        values[name] = x
    return with_parameters(model, values)


def encode(x: Array, qtype: Type) -> NDArray[np.generic]:
    """`x` as `qtype`, in the form that GGUFWriter.add_tensor takes."""
    if qtype in kquants.QUANTIZERS:
        return kquants.quantize(x, qtype)
    if qtype == Type.MXFP4:
        return mxfp4.pack_ggml(*mxfp4.quantize(x))
    return gguf.quants.quantize(x, qtype)


def always_float32(name: str, x: Array) -> bool:
    """What llama.cpp never quantizes: vectors, norms, biases, sinks and the router."""
    return x.ndim == 1 or not name.endswith(".weight") or name.endswith("_norm.weight") or "ffn_gate_inp" in name


def save_gguf(
    oracle: Oracle,
    path: Path,
    qtype: Type | Choose = Type.F32,
    *,
    vocabulary: bool = False,
    linear: Linear = "type and factor",
) -> Oracle:
    """Write `path`; the oracle returned holds the numbers that its blocks stand for, as the gguf package reads them.

    qtype       one for all, or by tensor name
    vocabulary  add placeholder tokens (llama.cpp refuses a file without any)
    linear      how a linear scaling is written
    """
    choose = qtype if callable(qtype) else lambda _: qtype
    config = plain_attention(oracle.model.config)
    writer = gguf.GGUFWriter(path, ARCHES[config.model_type])
    add_metadata(writer, config)
    if config.rope_parameters["rope_type"] == "linear":
        add_linear(writer, config.rope_parameters["factor"], linear)
    if vocabulary:
        add_placeholder_vocabulary(writer, config.vocab_size)
    held = {}
    for name, x in to_gguf(oracle.model).items():
        of = Type.F32 if always_float32(name, x) else choose(name)
        data = encode(x, of)
        writer.add_tensor(name, data, raw_dtype=of)
        held[name] = kquants.dequantize(data, of.name).reshape(x.shape)
    factors = llama31_factors(config)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = from_gguf(oracle.model, held)
    model = with_config(model, config)
    return Oracle(path, model, config)


def plain_attention(config: PretrainedConfig) -> PretrainedConfig:
    """What GGUF says of `config`: the converter drops the windows of Mistral and Qwen, so every layer sees all."""
    if config.model_type == "gpt_oss" or getattr(config, "sliding_window", None) is None:
        return config
    config = deepcopy(config)
    config.sliding_window = None
    if hasattr(config, "layer_types"):
        config.layer_types = ["full_attention"] * config.num_hidden_layers
    return config


def add_metadata(writer: gguf.GGUFWriter, config: PretrainedConfig) -> None:
    arch, rope = ARCHES[config.model_type], config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_name("random")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if head_dim * config.num_attention_heads != config.hidden_size:  # converted from an older config.json it is absent
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch == "llama":
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(head_dim)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if arch == "qwen3moe":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if arch == "gpt-oss":
        writer.add_sliding_window(config.sliding_window)
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def add_linear(writer: gguf.GGUFWriter, factor: float, linear: Linear) -> None:
    """As llama.cpp's converter does now, or with less, which its loader takes for the same."""
    if linear == "scale_linear":
        writer.add_float32(f"{writer.arch}.rope.scale_linear", factor)
        return
    if linear == "type and factor":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(factor)


def add_placeholder_vocabulary(writer: gguf.GGUFWriter, n: int) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{i}>" for i in range(n)])
    writer.add_token_types([gguf.TokenType.NORMAL] * n)
    writer.add_token_merges(["< 0"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def copy_gguf(source: Path, out: Path, change: Callable[[gguf.GGUFWriter], None], without: str = "") -> Path:
    """The GGUF file `source` with what `change` adds, but for the tensors whose names end with `without`."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    assert architecture is not None
    writer = gguf.GGUFWriter(out, architecture.contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and field is not architecture:
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if field.types[1:] else None)
    change(writer)
    for tensor in reader.tensors:
        if not without or not tensor.name.endswith(without):
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def llama31_factors(config: PretrainedConfig) -> Array | None:
    """Divisors of each inverse frequency, which GGUF keeps as the tensor rope_freqs.weight [head_dim / 2]."""
    if config.rope_parameters["rope_type"] != "llama3":
        return None
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    head_dim = config.head_dim
    plain = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
    factors: Array = (plain / scaled).numpy()
    return factors
