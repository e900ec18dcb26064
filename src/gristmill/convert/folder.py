"""Any checkpoint as a folder in Hugging Face's layout: config.json, model.safetensors, the tokenizer's files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from gristmill.convert.experts import expert_tensors
from gristmill.convert.job import Job
from gristmill.convert.parts import list_parts
from gristmill.convert.rope import find_llama3
from gristmill.formats.checkpoint import bad_file, shown_path
from gristmill.formats.qtypes import QType
from gristmill.formats.safetensors import CONFIG_NAME
from gristmill.formats.write_file import new_folder
from gristmill.formats.write_gguf import NewTensor
from gristmill.formats.write_safetensors import NewBytes, safetensors_bytes, write_safetensors
from gristmill.formats.write_types import FLOAT_TYPES, is_always_float32
from gristmill.models import rope as angles
from gristmill.models.families import names_in
from gristmill.models.rope_fields import Rope, read_rope, shortest
from gristmill.models.sampling import FILE_NAME, said_by

_FLOATS = {"f32": QType.F32, "f16": QType.F16, "bf16": QType.BF16}
_DTYPES = {QType.F32: "float32", QType.F16: "float16", QType.BF16: "bfloat16"}
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
}
_BLOCKS = (QType.MXFP4, QType.MXFP4_SPLIT)
_QUANTIZATION = {  # as the published gpt-oss says that its experts are MXFP4
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}
_COPIED = (  # beside the weights, whatever belongs to the tokenizer and to chats
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model",
    "vocab.json", "merges.txt", "generation_config.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
_BIASES = (  # field, who has it, what it stands for
    ("attention_bias", ("llama", "qwen3", "qwen3moe", "gpt-oss"), {"q_proj", "k_proj", "v_proj", "o_proj"}),
    ("mlp_bias", ("llama",), {"gate_proj", "up_proj", "down_proj"}),
)
_TEMPLATES = "additional_chat_templates"


def write(job: Job, label: str | None) -> int:
    """Write the folder job.out; its size.

    label  f32, f16 or bf16, for every tensor but experts that are MXFP4, which become floats for f32 alone; mxfp4, for
           experts, with bfloat16 beside them; None for what is stored, where that is one type and perhaps MXFP4 experts
    """
    qtype, experts = _types(job, label)
    tensors = list[NewTensor | NewBytes]()
    biases = list[str]()
    for part in list_parts(job.checkpoint, job.config, names_in("safetensors", job.config.arch)):
        is_expert = len(part.shape) > 2
        tensors += expert_tensors(job, part, experts) if is_expert else [job.tensor(part, qtype)]
        if part.name.endswith(".bias"):
            biases.append(part.name)
    config = _config(job, qtype, biases) | _quantization(job, experts)
    with new_folder(job.out, safetensors_bytes(tensors)) as folder:
        write_safetensors(folder / "model.safetensors", tensors)
        (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n")
        if job.vocabulary is not None:
            from gristmill.tokenizer.write import write_tokenizer_json

            write_tokenizer_json(job.vocabulary, folder / "tokenizer.json")
        elif job.checkpoint.format == "safetensors":
            _copy_tokenizer(job.checkpoint.path, folder)
        if (said := said_by(job.checkpoint)) and not (folder / FILE_NAME).exists():
            sampling = _ends(job) | {"do_sample": True, **said}  # which transformers then asks for the ends, too
            (folder / FILE_NAME).write_text(json.dumps(sampling, indent=2) + "\n")
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _types(job: Job, label: str | None) -> tuple[QType, QType]:
    """The float type of everything but experts, and the type of those."""
    weights = [job.checkpoint.get(name) for name in job.checkpoint.names()]
    experts = {weight.qtype for weight in weights if len(weight.shape) > 2}
    keeps = bool(experts) and experts <= set(_BLOCKS) and label != "f32" and job.config.arch == "gpt-oss"
    if label == "mxfp4":
        return QType.BF16, QType.MXFP4
    if label is not None:
        return _FLOATS[label], QType.MXFP4 if keeps else _FLOATS[label]
    named = [w for w in weights if job.checkpoint.format != "gguf" or not is_always_float32(w.name, w.shape)]
    found = {w.qtype for w in named if len(w.shape) == 2} | (set() if keeps else experts)
    if len(found) == 1 and next(iter(found)).is_float:
        qtype = found.pop()
        return qtype, QType.MXFP4 if keeps else qtype
    labels = ", ".join(sorted(qtype.label for qtype in found))
    path = shown_path(job.checkpoint.path)
    raise ValueError(f"{path}: its matrices are {labels}; say --type {', '.join(FLOAT_TYPES)} for the folder")


def _quantization(job: Job, experts: QType) -> dict[str, Any]:
    return {"quantization_config": _QUANTIZATION} if job.config.moe and not experts.is_float else {}


def _copy_tokenizer(source: Path, folder: Path) -> None:
    source = source if source.is_dir() else source.parent
    for name in _COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (source / _TEMPLATES).is_dir():
        shutil.copytree(source / _TEMPLATES, folder / _TEMPLATES)


def _ends(job: Job) -> dict[str, Any]:
    """What is said of a vocabulary that is written beside it."""
    if job.vocabulary is None:
        return {}
    ends = job.vocabulary.eos_ids
    named = list(ends) if len(ends) > 1 else ends[0] if ends else None
    return {"bos_token_id": job.vocabulary.bos_id, "eos_token_id": named}


def _config(job: Job, qtype: QType, biases: list[str]) -> dict[str, Any]:
    """config.json, as transformers 4 wrote it and 5 reads it; of a folder its own, with another number type."""
    dtype = _DTYPES[qtype]
    if job.checkpoint.format == "safetensors" and job.checkpoint.metadata:
        renewed = ("dtype", "torch_dtype", "quantization_config")
        given = {key: value for key, value in job.checkpoint.metadata.items() if key not in renewed}
        if job.config.tied_head != given.get("tie_word_embeddings", False):  # for want of a head, or it has its own
            given["tie_word_embeddings"] = job.config.tied_head
        named = "dtype" if "dtype" in job.checkpoint.metadata else "torch_dtype"  # which version 4 knows alone
        return _ends(job) | given | {named: dtype}
    c = job.config
    rope = read_rope(job.checkpoint, c.arch, c.head_dim)
    windows = [window for window in c.windows if window]
    arch = "mistral" if c.arch == "llama" and windows else c.arch
    fields: dict[str, Any] = {
        "architectures": [_CLASSES[arch]],
        "model_type": {"gpt-oss": "gpt_oss", "qwen3moe": "qwen3_moe"}.get(arch, arch),
        "vocab_size": c.vocab_size,
        "hidden_size": c.d_model,
        "intermediate_size": job.dense_width,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": rope.stated(c.max_context),
        "rms_norm_eps": shortest(c.norm_eps),
        "tie_word_embeddings": c.tied_head,
        "torch_dtype": dtype,
    }
    fields |= _ends(job)
    return fields | _experts(job) | _rope(job, rope) | _windows(job, arch) | _bias_flags(job, arch, biases)


def _experts(job: Job) -> dict[str, Any]:
    c = job.config
    if c.moe is None:
        return {}
    fields: dict[str, Any] = {"num_experts_per_tok": c.moe.n_active}
    if c.arch == "qwen3moe":
        return fields | {"num_experts": c.moe.n_experts, "moe_intermediate_size": c.d_ff, "norm_topk_prob": True}
    fields["num_local_experts"] = c.moe.n_experts
    return fields | {"experts_per_token": c.moe.n_active, "swiglu_limit": c.swiglu_limit}


def _rope(job: Job, rope: Rope) -> dict[str, Any]:
    if rope.kind != "yarn" and abs(rope.scale - 1) > 1e-6:
        problem = f"is {rope.scale:g}, which config.json can say of YaRN alone"
        where = f"key '{job.config.arch}.rope.scaling.attn_factor'"
        raise bad_file(job.checkpoint.path, where, problem, "write GGUF instead")
    if rope.divisors is not None:
        rope = find_llama3(job.checkpoint, rope, job.config.head_dim)
    # gpt-oss without a word on it has YaRN
    scaling: dict[str, Any] | None = {"rope_type": "default"} if job.config.arch == "gpt-oss" else None
    if rope.kind == "linear":
        scaling = {"rope_type": "linear", "factor": shortest(rope.factor)}
    elif rope.kind == "yarn":
        scaling = {
            "rope_type": "yarn",
            "factor": shortest(rope.factor),
            "original_max_position_embeddings": rope.original_context,
            "beta_fast": shortest(rope.beta_fast),
            "beta_slow": shortest(rope.beta_slow),
        }
        if not rope.truncate:
            scaling["truncate"] = False
        if abs(rope.scale / angles.yarn_scale(rope.factor) - 1) > 1e-6:
            scaling["attention_factor"] = rope.scale
    elif rope.kind == "llama3":
        scaling = {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low,
            "high_freq_factor": rope.high,
            "original_max_position_embeddings": rope.original_context,
        }
    return {"rope_theta": shortest(rope.theta), "rope_scaling": scaling}


def _windows(job: Job, arch: str) -> dict[str, Any]:
    windows = job.config.windows
    if not any(windows):
        return {"sliding_window": None} if arch == "mistral" else {}
    if arch == "gpt-oss":
        types = ["sliding_attention" if window else "full_attention" for window in windows]
        return {"sliding_window": max(windows), "layer_types": types}
    if arch == "mistral":
        return {"sliding_window": windows[0]}
    return {"use_sliding_window": True, "sliding_window": windows[0], "max_window_layers": 0}  # GGUF has one for all


def _bias_flags(job: Job, arch: str, biases: list[str]) -> dict[str, Any]:
    """Qwen2 always has biases on q, k and v; of the others some may have them on all of attention, Llama on all of its
    feed-forward network too, and must say so."""
    parts = {name.rsplit(".", 2)[-2] for name in biases}
    if arch == "qwen2":
        parts -= {"q_proj", "k_proj", "v_proj"}
    if arch == "gpt-oss":
        parts.discard("router")  # which always has one
    flags: dict[str, Any] = {}
    for name, archs, wanted in _BIASES:
        if arch in archs and (found := parts & wanted) in (set(), wanted):
            flags[name] = bool(found)
            parts -= wanted
    if not parts:
        return flags
    problem = f"has biases on {', '.join(sorted(parts))}, which config.json cannot say for {arch}"
    raise bad_file(job.checkpoint.path, "tensors", problem, "write GGUF instead")
