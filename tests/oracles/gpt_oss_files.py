"""gpt-oss checkpoints with MXFP4 experts, in Hugging Face's layout and in OpenAI's original one.

Names and shapes: transformers' GptOssForCausalLM, and gpt_oss/torch/model.py and weights.py of openai/gpt-oss.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from transformers import PreTrainedModel

from oracles import mxfp4
from oracles.families import edit_config, make
from oracles.oracle import Oracle

Quantized = dict[str, tuple[NDArray[np.uint8], NDArray[np.uint8]]]


def quantize_experts(model: PreTrainedModel) -> Quantized:
    """Round `model` in place: experts to MXFP4, all else to bfloat16. Returns the experts' codes and scales.

    Keys are parameter names; codes are [E, out, in / 32, 32], the transpose of the parameter.
    """
    experts: Quantized = {}
    for name, parameter in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            codes, scales = mxfp4.quantize(parameter.detach().transpose(1, 2).contiguous().numpy())
            parameter.data = torch.from_numpy(mxfp4.dequantize(codes, scales)).transpose(1, 2).contiguous()
            experts[name] = codes, scales
        else:
            parameter.data = parameter.data.bfloat16().float()
    return experts


def _build(name: str) -> tuple[PreTrainedModel, Quantized]:
    model = make(name)
    return model, quantize_experts(model)


def save_hugging_face(folder: Path, name: str = "gpt-oss") -> Oracle:
    """`*_blocks` and `*_scales` beside bfloat16 tensors, in two shards with an index."""
    model, experts = _build(name)
    tensors = {k: v.bfloat16() for k, v in model.state_dict().items() if k not in experts}
    for key, (codes, scales) in experts.items():
        tensors[f"{key}_blocks"] = torch.from_numpy(mxfp4.pack_pairs(codes))
        tensors[f"{key}_scales"] = torch.from_numpy(scales)
    folder.mkdir(parents=True)
    _save_shards(tensors, folder, "model-{:05d}-of-{:05d}.safetensors", index=True)
    model.config.save_pretrained(folder)
    quantization = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    }
    edit_config(
        folder,
        {"quantization_config": quantization, "architectures": ["GptOssForCausalLM"], "dtype": "bfloat16"},
    )
    return Oracle(folder, model, model.config)


def save_original(folder: Path, name: str = "gpt-oss") -> Oracle:
    """`block.N...` names, q, k and v in one matrix, and two files that no index joins."""
    model, experts = _build(name)
    config, state = model.config, model.state_dict()
    tensors = {
        "embedding.weight": state["model.embed_tokens.weight"],
        "norm.scale": state["model.norm.weight"],
        "unembedding.weight": state["lm_head.weight"],
    }
    for i in range(config.num_hidden_layers):
        source, block = f"model.layers.{i}.", f"block.{i}."
        attention = source + "self_attn."
        for end in ("weight", "bias"):
            qkv = [state[f"{attention}{x}_proj.{end}"] for x in "qkv"]
            tensors[f"{block}attn.qkv.{end}"] = torch.cat(qkv)
            tensors[f"{block}attn.out.{end}"] = state[f"{attention}o_proj.{end}"]
            tensors[f"{block}mlp.gate.{end}"] = state[f"{source}mlp.router.{end}"]
        tensors[block + "attn.sinks"] = state[attention + "sinks"]
        tensors[block + "attn.norm.scale"] = state[source + "input_layernorm.weight"]
        tensors[block + "mlp.norm.scale"] = state[source + "post_attention_layernorm.weight"]
        for n, projection in ((1, "gate_up_proj"), (2, "down_proj")):
            key = f"{source}mlp.experts.{projection}"
            codes, scales = experts[key]
            tensors[f"{block}mlp.mlp{n}_bias"] = state[f"{key}_bias"]
            tensors[f"{block}mlp.mlp{n}_weight.blocks"] = torch.from_numpy(mxfp4.pack_pairs(codes))
            tensors[f"{block}mlp.mlp{n}_weight.scales"] = torch.from_numpy(scales)
    tensors = {k: v if v.dtype == torch.uint8 else v.bfloat16().contiguous() for k, v in tensors.items()}
    folder.mkdir(parents=True)
    _save_shards(tensors, folder, "model--{:05d}-of-{:05d}.safetensors", index=False)
    rope = config.rope_parameters
    settings = {
        "num_hidden_layers": config.num_hidden_layers,
        "num_experts": config.num_local_experts,
        "experts_per_token": config.num_experts_per_tok,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "swiglu_limit": config.swiglu_limit,
        "head_dim": config.head_dim,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "sliding_window": config.sliding_window,
        "initial_context_length": rope["original_max_position_embeddings"],
        "rope_theta": rope["rope_theta"],
        "rope_scaling_factor": rope["factor"],
        "rope_ntk_alpha": rope["beta_slow"],
        "rope_ntk_beta": rope["beta_fast"],
    }
    (folder / "config.json").write_text(json.dumps(settings))
    return Oracle(folder, model, config)


def _save_shards(tensors: dict[str, torch.Tensor], folder: Path, pattern: str, *, index: bool) -> None:
    names = sorted(tensors)
    half = len(names) // 2
    weight_map = {}
    for number, keys in enumerate((names[:half], names[half:]), start=1):
        file_name = pattern.format(number, 2)
        save_file({key: tensors[key] for key in keys}, folder / file_name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(keys, file_name)
    if index:
        total = sum(t.numel() * t.element_size() for t in tensors.values())
        content = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))
