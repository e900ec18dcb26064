"""A model's rotary embedding as its files describe it, each format in its own way. Angles are `models/rope.py`'s."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, bad_file, shown
from gristmill.formats.dequantize import dequantize
from gristmill.models import rope as angles
from gristmill.models.fields import LIMIT_CONTEXT, Fields
from gristmill.types import RopeConfig

DIVISORS: Final = "rope_freqs.weight"
_GPT_OSS_THETA: Final = 150000.0
_THETA: Final = 10000.0
_HF_KINDS: Final = ("default", "linear", "llama3", "yarn")
_LOWEST, _HIGHEST = 1e-12, 1e12  # of a divisor
_GPT_OSS: Final[Mapping[str, Any]] = {  # where config.json says nothing (transformers, GptOssConfig)
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}


@dataclass(frozen=True, slots=True)
class Rope:
    """kind: none, linear, yarn or llama3; what a kind does not use keeps its default.

    scale     factor on cos and sin
    divisors  what each frequency is divided by besides, [head_dim / 2]; GGUF says llama3 so
    """

    theta: float
    kind: str = "none"
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    scale: float = 1.0
    low: float = 1.0
    high: float = 4.0
    divisors: tuple[float, ...] | None = None

    def config(self, head_dim: int) -> RopeConfig:
        return RopeConfig(tuple(map(float, self.inv_freq(head_dim))), self.scale)

    def inv_freq(self, head_dim: int) -> angles.F32:
        """The angles per position that these numbers stand for."""
        found = self._scaled(head_dim)
        if self.divisors is None:
            return found
        return (found / np.array(self.divisors, np.float32)).astype(np.float32)

    def _scaled(self, head_dim: int) -> angles.F32:
        plain = angles.plain(self.theta, head_dim)
        if self.kind == "linear":
            return plain / np.float32(self.factor)
        if self.kind == "llama3":
            return angles.llama3(plain, self.factor, self.low, self.high, self.original_context)
        if self.kind == "yarn":
            return angles.yarn(
                self.theta, head_dim, self.factor, self.original_context, self.beta_fast, self.beta_slow, self.truncate
            )
        return plain

    def context(self, stated: int) -> int:
        """Tokens of context of a model whose file states so many. What linear scaling or YaRN stretches is stated as it
        was before, as a rule, and is multiplied as in vLLM (config/model.py, _get_and_verify_max_len), but that YaRN
        never makes less of it than is stated: some files state what comes out."""
        if self.kind == "linear":
            stated = int(stated * shortest(self.factor))
        if self.kind == "yarn":
            stated = max(stated, int(self.original_context * shortest(self.factor)))
        return min(max(stated, 1), LIMIT_CONTEXT)

    def stated(self, context: int) -> int:
        """What a file is to state for `context` to be read from it."""
        return max(1, math.ceil(context / shortest(self.factor) - 1e-3)) if self.kind == "linear" else context


def read_rope(checkpoint: Checkpoint, arch: str, head_dim: int) -> Rope:
    """ModelFormatError names a field that is missing, absurd or of an unknown kind."""
    readers = {"gguf": _gguf, "safetensors": _hugging_face, "gpt-oss": _openai, "llama2c": _llama2c}
    return readers[checkpoint.format](checkpoint, arch, head_dim)


def _llama2c(checkpoint: Checkpoint, arch: str, head_dim: int) -> Rope:
    return Rope(_THETA)


def _openai(checkpoint: Checkpoint, arch: str, head_dim: int) -> Rope:
    """gpt-oss's original config.json (github.com/openai/gpt-oss, ModelConfig)."""
    f = Fields(checkpoint.path, checkpoint.metadata)
    factor = f.float("rope_scaling_factor", 32.0)
    if factor <= 1:
        return Rope(_theta(f, "rope_theta", "none", _GPT_OSS_THETA))
    return Rope(
        _theta(f, "rope_theta", "yarn", _GPT_OSS_THETA),
        "yarn",
        factor,
        original_context=f.int("initial_context_length", LIMIT_CONTEXT, 4096),
        beta_fast=f.float("rope_ntk_beta", 32.0),
        beta_slow=f.float("rope_ntk_alpha", 1.0),
        truncate=False,
        scale=angles.yarn_scale(factor),
    )


def _hugging_face(checkpoint: Checkpoint, arch: str, head_dim: int) -> Rope:
    """rope_theta and rope_scaling of transformers 4, rope_parameters of 5."""
    f = Fields(checkpoint.path, checkpoint.metadata)
    r = Fields(f.path, _hf_values(f, arch))
    for said in (f, r):
        if said.float("partial_rotary_factor", 1.0) != 1.0:
            raise said.unsupported("partial_rotary_factor")
    kind = r.text("rope_type", r.text("type", "default"))
    if kind not in _HF_KINDS:
        problem = f"is {shown(kind)}; gristmill knows {', '.join(_HF_KINDS[:-1])} and {_HF_KINDS[-1]}"
        raise r.error("rope_type", problem, "use another model")
    default = _GPT_OSS_THETA if arch == "gpt-oss" else _THETA
    theta = _theta(r if r.has("rope_theta") else f, "rope_theta", kind, default)
    if kind == "default":
        return Rope(theta)
    factor = r.float("factor")
    if kind == "linear":
        return Rope(theta, kind, factor)
    original = _hf_original(r, f)
    if kind == "llama3":
        low, high = r.float("low_freq_factor"), r.float("high_freq_factor")
        if high <= low:
            raise r.error("high_freq_factor", f"is {high:g}, must be over low_freq_factor {low:g}")
        return Rope(theta, kind, factor, original, low=low, high=high)
    if r.has("mscale") or r.has("mscale_all_dim"):
        raise r.unsupported("mscale" if r.has("mscale") else "mscale_all_dim")
    fast, slow = r.float("beta_fast", 32.0), r.float("beta_slow", 1.0)
    attn_factor = r.float("attn_factor", 1.0)  # vLLM's, which DeepSeek-R1-0528-Qwen3-8B undoes YaRN's own scale by
    scale = r.float("attention_factor", attn_factor * angles.yarn_scale(factor))
    return Rope(theta, kind, factor, original, fast, slow, r.bool("truncate", True), scale)


def _hf_values(f: Fields, arch: str) -> Mapping[str, Any]:
    """Where both are there rope_scaling counts, as in transformers: people add it."""
    said: dict[str, Mapping[str, Any]] = {}
    for name in ("rope_scaling", "rope_parameters"):
        given = f.raw(name)
        if given is not None and not isinstance(given, Mapping):
            raise f.error(name, f"is {shown(given)}, must be an object")
        said[name] = given or {}
    theta = {"rope_theta": said["rope_parameters"]["rope_theta"]} if "rope_theta" in said["rope_parameters"] else {}
    values = {**theta, **said["rope_scaling"]} if said["rope_scaling"] else said["rope_parameters"]
    return values or (_GPT_OSS if arch == "gpt-oss" else {})


def _hf_original(r: Fields, f: Fields) -> int:
    """Where both say it the configuration itself counts, as in transformers."""
    name = "original_max_position_embeddings"
    for said in (f, r):
        if said.has(name):
            return said.int(name, LIMIT_CONTEXT)
    return f.int("max_position_embeddings", LIMIT_CONTEXT)


def _gguf(checkpoint: Checkpoint, arch: str, head_dim: int) -> Rope:
    """Key-values as llama.cpp takes them (src/llama-model.cpp): a factor without a type is of a linear scaling."""
    f = Fields(checkpoint.path, checkpoint.metadata, f"{arch}.")
    kind = f.text("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn"):
        raise f.unsupported("rope.scaling.type")
    if kind == "yarn" and f.float("rope.scaling.yarn_log_multiplier", 0.0, low=0.0):
        raise f.unsupported("rope.scaling.yarn_log_multiplier")
    theta = _theta(f, "rope.freq_base", kind, _THETA)
    scale, divisors = f.float("rope.scaling.attn_factor", 1.0), _divisors(checkpoint, head_dim)
    factor = 1.0 if kind == "none" else _gguf_factor(f, kind)
    if kind != "yarn":
        return Rope(theta, "none" if factor == 1 else kind, factor, scale=scale, divisors=divisors)
    return Rope(
        theta,
        kind,
        factor,
        original_context=f.int(
            "rope.scaling.original_context_length", LIMIT_CONTEXT, f.int("context_length", LIMIT_CONTEXT)
        ),
        beta_fast=f.float("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=f.float("rope.scaling.yarn_beta_slow", 1.0),
        truncate=arch != "gpt-oss",
        scale=scale * angles.yarn_scale(factor),
        divisors=divisors,
    )


def _gguf_factor(f: Fields, kind: str) -> float:
    """1 where it is 0 or, of a linear scaling, absent. Files from before there were types call it `rope.scale_linear`,
    which is still to be read (ggml's docs/gguf.md)."""
    names = ("rope.scaling.factor", "rope.scale_linear")
    name = next((name for name in names if f.has(name)), names[0])
    if kind == "linear" and not f.has(name):
        return 1.0
    return f.float(name) if f.float(name, low=0.0) else 1.0


def _divisors(checkpoint: Checkpoint, head_dim: int) -> tuple[float, ...] | None:
    if DIVISORS not in checkpoint.names():
        return None
    weight, where, n = checkpoint.get(DIVISORS), f"tensor {DIVISORS!r}", (head_dim + 1) // 2
    if weight.shape != (n,):
        raise bad_file(checkpoint.path, where, f"has shape {weight.shape}, must be ({n},)")
    values = dequantize(weight)
    sound = (values >= _LOWEST) & (values <= _HIGHEST)
    if not sound.all():
        problem = f"holds {values[~sound][0]:g}, must hold numbers from {_LOWEST:g} to {_HIGHEST:g}"
        raise bad_file(checkpoint.path, where, problem)
    return tuple(map(float, values))


def shortest(value: float) -> float:
    """A number that was float32 as its author wrote it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _theta(f: Fields, name: str, kind: str, default: float) -> float:
    theta = f.float(name, default)
    if kind == "yarn" and theta <= 1:  # frequencies that do not fall with the dimension are of no range of it
        raise f.error(name, f"is {theta:g}, must be over 1 with YaRN")
    return theta
