"""A model's rotary embedding as hyperparameters, which each format writes in its own way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, bad_file
from gristmill.formats.dequantize import dequantize
from gristmill.models import rope as angles
from gristmill.types import ModelConfig

_FREQS = "rope_freqs.weight"
_CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class Rope:
    """kind: none, linear, yarn or llama3; what a kind does not use keeps its default.

    scale     yarn: factor on cos and sin
    divisors  llama3: what each plain frequency is divided by, float32 [head_dim / 2]
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

    def inv_freq(self, head_dim: int) -> angles.F32:
        """The angles per position that these numbers stand for."""
        plain = angles.plain(self.theta, head_dim)
        if self.kind == "linear":
            return plain / np.float32(self.factor)
        if self.kind == "llama3":
            return (plain / np.array(self.divisors, np.float32)).astype(np.float32)
        if self.kind == "yarn":
            return angles.yarn(
                self.theta, head_dim, self.factor, self.original_context, self.beta_fast, self.beta_slow, self.truncate
            )
        return plain


def read_rope(checkpoint: Checkpoint, config: ModelConfig) -> Rope:
    """The rotary embedding of a checkpoint whose configuration has been read and checked."""
    readers = {"gguf": _gguf, "safetensors": _hugging_face, "gpt-oss": _openai, "llama2c": _llama2c}
    rope = readers[checkpoint.format](checkpoint, config)
    assert np.allclose(rope.inv_freq(config.head_dim), config.rope.inv_freq, rtol=1e-5), "both read the same fields"
    assert math.isclose(rope.scale, config.rope.scale, rel_tol=1e-6), "both read the same fields"
    return rope


def _llama2c(checkpoint: Checkpoint, config: ModelConfig) -> Rope:
    return Rope(10000.0)


def _openai(checkpoint: Checkpoint, config: ModelConfig) -> Rope:
    m = checkpoint.metadata
    theta, factor = float(m.get("rope_theta") or 150000.0), float(m.get("rope_scaling_factor") or 32.0)
    if factor <= 1:
        return Rope(theta)
    original = int(m.get("initial_context_length") or 4096)
    fast, slow = float(m.get("rope_ntk_beta") or 32.0), float(m.get("rope_ntk_alpha") or 1.0)
    return Rope(theta, "yarn", factor, original, fast, slow, truncate=False, scale=config.rope.scale)


def _hugging_face(checkpoint: Checkpoint, config: ModelConfig) -> Rope:
    m = checkpoint.metadata
    r: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        r.update(m.get(name) or {})
    default = 150000.0 if config.arch == "gpt-oss" else 10000.0
    theta = float(r.get("rope_theta") or m.get("rope_theta") or default)
    kind = r.get("rope_type") or r.get("type") or "default"
    if kind == "default":
        return Rope(theta)
    factor = float(r["factor"])
    if kind == "linear":
        return Rope(theta, "linear", factor)
    original = int(_first(r, m, "original_max_position_embeddings") or m["max_position_embeddings"])
    if kind == "llama3":
        low, high = float(r["low_freq_factor"]), float(r["high_freq_factor"])
        plain = angles.plain(theta, config.head_dim)
        divisors = plain / angles.llama3(plain, factor, low, high, original)
        return Rope(theta, kind, factor, original, low=low, high=high, divisors=tuple(map(float, divisors)))
    fast, slow = float(r.get("beta_fast") or 32.0), float(r.get("beta_slow") or 1.0)
    truncate = r.get("truncate") is not False
    return Rope(theta, kind, factor, original, fast, slow, truncate, config.rope.scale)


def _first(r: Mapping[str, Any], m: Mapping[str, Any], name: str) -> Any:
    return r.get(name) or m.get(name)


def _gguf(checkpoint: Checkpoint, config: ModelConfig) -> Rope:
    m, prefix = checkpoint.metadata, f"{config.arch}.rope."
    theta = _shortest(m.get(prefix + "freq_base", 10000.0))
    kind = m.get(prefix + "scaling.type", "none")
    rope = Rope(theta)
    if kind in ("linear", "yarn"):
        rope = Rope(theta, kind, _shortest(m[prefix + "scaling.factor"]))
    if kind == "yarn":
        original = int(m.get(prefix + "scaling.original_context_length", m[f"{config.arch}.context_length"]))
        fast, slow = m.get(prefix + "scaling.yarn_beta_fast", 32.0), m.get(prefix + "scaling.yarn_beta_slow", 1.0)
        rope = replace(rope, original_context=original, beta_fast=_shortest(fast), beta_slow=_shortest(slow))
        rope = replace(rope, truncate=config.arch != "gpt-oss", scale=config.rope.scale)
    if _FREQS in checkpoint.names():
        if rope.kind != "none":
            raise bad_file(checkpoint.path, f"tensor {_FREQS!r}", f"is there beside a scaling of type {kind!r}")
        return replace(rope, kind="llama3", divisors=tuple(map(float, dequantize(checkpoint.get(_FREQS)))))
    return rope


def _shortest(value: float) -> float:
    """A number that was float32 as its author wrote it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def find_llama3(checkpoint: Checkpoint, rope: Rope, head_dim: int) -> Rope:
    """`rope` with the factor, bounds and original context that its divisors come from, which GGUF does not tell.

    Between the two bounds 1 / divisor is a straight line in the number of turns within the original context; only
    ratios matter, so the lower bound may be 1. Where less than two frequencies lie between, the bounds are Llama 3.1's.
    ModelFormatError where no such numbers give the divisors.
    """
    assert rope.divisors is not None
    if rope.original_context:
        return rope
    divisors, plain = np.array(rope.divisors), angles.plain(rope.theta, head_dim).astype(np.float64)
    factor = round(float(divisors.max()), 4)
    share = (1 / divisors - 1 / factor) / (1 - 1 / factor)  # 0 where slowed, 1 where kept
    between = np.flatnonzero((share > _CLOSE) & (share < 1 - _CLOSE))
    high = 4.0
    if len(between) > 1:
        slope, start = np.polyfit(plain[between], share[between], 1)
        high = round(1 - 1 / start, 3)
        turns = slope * (high - 1)
    elif len(between) == 1:
        turns = (1 + 3 * share[between[0]]) / plain[between[0]]
    else:
        edge = plain[share > 0.5].min() if (share > 0.5).any() else plain.max() * 8
        turns = 4 / edge
    found = replace(rope, factor=factor, high=high, original_context=round(float(turns) * 2 * math.pi))
    again = angles.llama3(angles.plain(rope.theta, head_dim), factor, 1.0, high, found.original_context)
    if not np.allclose(again, rope.inv_freq(head_dim), rtol=_CLOSE):
        problem = "slows frequencies in another way than Llama 3.1"
        raise bad_file(checkpoint.path, f"tensor {_FREQS!r}", problem, "write GGUF, which can hold it")
    return found
