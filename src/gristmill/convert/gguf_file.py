"""Any checkpoint as GGUF: its key-values as llama.cpp's loaders ask for them, its tensors in the types of a mixture."""

from __future__ import annotations

import logging
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.convert.job import Job
from gristmill.convert.parts import Part, list_parts
from gristmill.formats.checkpoint import Weight, bad_file
from gristmill.formats.qtypes import QType
from gristmill.formats.write_gguf import write_gguf
from gristmill.formats.write_gguf_raw import raw_values, without_split
from gristmill.formats.write_types import Mixture, is_always_float32
from gristmill.models import rope as angles
from gristmill.models.families import names_in
from gristmill.models.hyperparameters import GPT_OSS_LIMIT
from gristmill.models.rope_fields import DIVISORS, Rope, read_rope
from gristmill.models.sampling import gguf_keys, said_by

logger = logging.getLogger(__name__)

_QUANTIZATION_VERSION = 2
_FOLDER = "write a safetensors folder instead"
_ARCHS = {"mistral": "llama"}  # what llama.cpp calls by another name
_QWEN_BIASES = ("attn_q.bias", "attn_k.bias", "attn_v.bias")


def write(job: Job, label: str | None) -> int:
    """Write job.out; its size. label: one of CONVERT_TYPES, None to keep the types that GGUF has."""
    config = job.config
    arch = _ARCHS.get(config.arch, config.arch)
    rope = read_rope(job.checkpoint, config.arch, config.head_dim)
    parts = list_parts(job.checkpoint, config, names_in("gguf", arch))
    divisors = _divisors(rope, config.head_dim)
    if divisors is not None:
        parts.insert(0, _frequencies(divisors))
    _tell_of_biases(job.checkpoint.path, arch, parts)
    mixture = Mixture(
        label, config.n_layers, config.tied_head, config.moe is not None, config.n_kv_heads < config.n_heads
    )
    types = {part.name: mixture.type_of(part.name, part.shape, part.qtype) for part in parts}
    all_as_asked = _tell_of_types(job.checkpoint.path, parts, types, mixture)
    tensors = [job.tensor(part, types[part.name]) for part in parts]
    file_type = mixture.file_type() if all_as_asked else None
    metadata = _copied(job.checkpoint.path) if job.checkpoint.format == "gguf" else _described(job, arch, rope)
    if label is None and all(types[part.name] is part.qtype or part.qtype.is_float for part in parts):
        file_type = metadata.get("general.file_type")
    metadata.pop("general.file_type", None)
    if file_type is not None:
        metadata["general.file_type"] = file_type
    if any(not tensor.qtype.is_float for tensor in tensors):
        metadata["general.quantization_version"] = _QUANTIZATION_VERSION
    if job.vocabulary is not None:
        from gristmill.tokenizer.write import to_gguf_metadata

        metadata = {key: value for key, value in metadata.items() if not key.startswith("tokenizer.")}
        metadata |= to_gguf_metadata(job.vocabulary)
    return write_gguf(job.out, metadata, tensors)


def _copied(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = dict(without_split(raw_values(path)))
    values.pop("general.alignment", None)  # what is written has the usual one
    return values


def _described(job: Job, arch: str, rope: Rope) -> dict[str, Any]:
    """The key-values of a model that was no GGUF."""
    c = job.config
    if arch == "gpt-oss" and c.swiglu_limit != GPT_OSS_LIMIT:
        problem = f"is {c.swiglu_limit:g}, and GGUF has no word for another one than {GPT_OSS_LIMIT:g}"
        raise bad_file(job.checkpoint.path, "field 'swiglu_limit'", problem, _FOLDER)
    keys: dict[str, Any] = {
        "vocab_size": c.vocab_size,
        "block_count": c.n_layers,
        "context_length": rope.stated(c.max_context),
        "embedding_length": c.d_model,
        "feed_forward_length": job.dense_width,
        "attention.head_count": c.n_heads,
        "attention.head_count_kv": c.n_kv_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        "attention.layer_norm_rms_epsilon": float(c.norm_eps),
        "rope.dimension_count": c.head_dim,
    }
    if c.moe is not None:
        keys |= {
            "expert_count": c.moe.n_experts,
            "expert_used_count": c.moe.n_active,
            "expert_feed_forward_length": c.d_ff,
        }
    keys |= _windows(job) | _rope(job, rope)
    general: dict[str, Any] = {"general.architecture": arch, "general.type": "model", "general.name": job.name}
    general |= gguf_keys(said_by(job.checkpoint))
    return general | {f"{arch}.{key}": value for key, value in keys.items()}


def _windows(job: Job) -> dict[str, Any]:
    windows = job.config.windows
    if not any(windows):
        return {}
    usual = tuple(0 if job.config.arch == "gpt-oss" and i % 2 else windows[0] for i in range(len(windows)))
    if windows != usual:
        problem = "have sliding windows in an order that GGUF cannot say"
        raise bad_file(job.checkpoint.path, "layers", problem, _FOLDER)
    return {"attention.sliding_window": windows[0]}


def _rope(job: Job, rope: Rope) -> dict[str, Any]:
    arch = job.config.arch
    keys: dict[str, Any] = {"rope.freq_base": rope.theta}
    if rope.kind in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope.kind, "rope.scaling.factor": rope.factor}
    if rope.kind == "yarn":
        if rope.truncate == (arch == "gpt-oss"):
            problem = f"has YaRN with truncate {rope.truncate}, which GGUF cannot say for {arch}"
            raise bad_file(job.checkpoint.path, "rope_scaling", problem, _FOLDER)
        keys |= {
            "rope.scaling.original_context_length": rope.original_context,
            "rope.scaling.yarn_beta_fast": rope.beta_fast,
            "rope.scaling.yarn_beta_slow": rope.beta_slow,
        }
        attention = rope.scale / angles.yarn_scale(rope.factor)
        if abs(attention - 1) > 1e-6:
            keys["rope.scaling.attn_factor"] = attention
    return keys


def _divisors(rope: Rope, head_dim: int) -> NDArray[np.float32] | None:
    """What GGUF divides frequencies by, which is its way to say Llama 3.1's scaling."""
    if rope.kind == "llama3":
        return angles.plain(rope.theta, head_dim) / rope.inv_freq(head_dim)
    return None if rope.divisors is None else np.array(rope.divisors, np.float32)


def _frequencies(divisors: NDArray[np.float32]) -> Part:
    values = divisors.astype("<f4")
    weight = Weight(DIVISORS, values.view(np.uint8), QType.F32, values.shape)
    return Part(weight.name, weight.qtype, weight.shape, lambda: (weight,))


def _tell_of_biases(path: Path, arch: str, parts: list[Part]) -> None:
    """Qwen3 with attention_bias has one on what attention gives, too."""
    biases = {part.name.split(".", 2)[-1] for part in parts if part.name.endswith(".bias")}
    if arch.startswith("qwen") and (others := biases.difference(_QWEN_BIASES)):
        logger.warning(
            "%s: has %s, which llama.cpp does not take for %s: it will not load the GGUF, while gristmill does",
            path.name,
            ", ".join(sorted(others)),
            arch,
        )


def _tell_of_types(path: Path, parts: list[Part], types: dict[str, QType], mixture: Mixture) -> bool:
    """Numbers that are rounded a second time are worse than those of a file made from the original, what has fewer bits
    than were asked for stays as it is, and rows have to be whole blocks. False where some tensor stays, or most of the
    model is another type for its rows."""
    again: Counter[tuple[str, str]] = Counter()
    stays: Counter[tuple[str, str]] = Counter()
    fitted: Counter[tuple[str, str, int]] = Counter()
    n_fitted, n_matrices = 0, 0
    for part in parts:
        if mixture.label is not None and not is_always_float32(part.name, part.shape):
            wish, fitting = mixture.asked(part.name), mixture.wanted(part.name, part.shape[-1])
            n_matrices += math.prod(part.shape)
            if types[part.name] is fitting and fitting is not wish:
                fitted[wish.label, fitting.label, wish.block_size] += 1
                n_fitted += math.prod(part.shape)
        target = types[part.name]
        stored = QType.MXFP4 if part.qtype is QType.MXFP4_SPLIT else part.qtype
        if stored.is_float or target.is_float:
            continue
        if target is not stored:
            again[stored.label, target.label] += 1
        elif mixture.label is not None and (wanted := mixture.wanted(part.name, part.shape[-1])) is not stored:
            stays[stored.label, wanted.label] += 1
    for (before, after), n in again.items():
        logger.warning(
            "%s: %d tensors go from %s to %s and lose twice; converted from the original model they would lose once",
            path.name,
            n,
            before,
            after,
        )
    for (kept, asked), n in stays.items():
        logger.warning("%s: %d tensors stay %s, as %s would take more room and hold no more", path.name, n, kept, asked)
    for (asked, label, block), n in fitted.items():
        logger.warning(
            "%s: %d tensors become %s, as their rows are no multiple of the %d numbers of a block of %s",
            path.name,
            n,
            label,
            block,
            asked,
        )
    return not stays and 2 * n_fitted <= n_matrices
