"""Rotary frequencies with every known scaling worked in, so that the decoder sees one list of angles."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def plain(theta: float, head_dim: int) -> F32:
    """theta^(-2 i / head_dim), float32 [head_dim / 2] (Su et al., RoFormer, arXiv:2104.09864)."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    return (1.0 / np.float32(theta) ** exponents).astype(np.float32)


def llama3(inv_freq: F32, factor: float, low: float, high: float, original_context: int) -> F32:
    """Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, those between blended.

    low, high  how many turns within the original context separate the three ranges
    """
    wavelength = 2 * np.pi / inv_freq
    turns = original_context / wavelength
    blend = np.clip((turns - low) / (high - low), 0, 1)
    scaled = (1 - blend) * inv_freq / factor + blend * inv_freq
    return np.where(turns < low, inv_freq / factor, np.where(turns > high, inv_freq, scaled)).astype(np.float32)


def yarn(
    theta: float,
    head_dim: int,
    factor: float,
    original_context: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> F32:
    """YaRN's blend of slowed and kept frequencies (Peng et al., arXiv:2309.00071).

    truncate  round the blend's ends to whole dimensions, as YaRN's authors do; gpt-oss does not
    """

    def dimension_of(turns: float) -> float:
        return head_dim * math.log(original_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension_of(beta_fast), dimension_of(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    kept = plain(theta, head_dim)
    ramp = np.clip((np.arange(len(kept), dtype=np.float32) - low) / (high - low), 0, 1).astype(np.float32)
    blended: F32 = kept / np.float32(factor) * ramp + kept * (1 - ramp)
    return blended


def yarn_scale(factor: float) -> float:
    """YaRN's factor on attention, here on cos and sin."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
