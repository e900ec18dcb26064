"""A rotary embedding in the words of config.json, which asks for what GGUF keeps as mere numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Checkpoint, bad_file
from gristmill.models import rope as angles
from gristmill.models.rope_fields import DIVISORS, Rope

F64 = NDArray[np.float64]

_CLOSE = 1e-4
_GGUF = "write GGUF, which can hold it"


def find_llama3(checkpoint: Checkpoint, rope: Rope, head_dim: int) -> Rope:
    """`rope`, which has divisors, with the factor, bounds and original context that they come from instead.

    Between the two bounds 1 / divisor is a straight line in the number of turns within the original context; only
    ratios matter, so the lower bound may be 1. Where less than two frequencies lie between, the bounds are Llama 3.1's.
    ModelFormatError where no such numbers give the divisors.
    """
    assert rope.divisors is not None
    where = f"tensor {DIVISORS!r}"
    if rope.kind != "none":
        raise bad_file(checkpoint.path, where, f"is there beside a scaling of type {rope.kind!r}", _GGUF)
    divisors = np.array(rope.divisors)
    if np.allclose(divisors, 1, rtol=_CLOSE):
        return replace(rope, divisors=None)
    factor = round(float(divisors.max()), 4)
    with np.errstate(divide="ignore", invalid="ignore"):  # of numbers that are no such scaling
        high, original = _fit(angles.plain(rope.theta, head_dim).astype(np.float64), divisors, factor)
        found = replace(rope, kind="llama3", factor=factor, high=high, original_context=original, divisors=None)
        again = found.inv_freq(head_dim)
    if not np.allclose(again, rope.inv_freq(head_dim), rtol=_CLOSE):
        raise bad_file(checkpoint.path, where, "slows frequencies in another way than Llama 3.1", _GGUF)
    return found


def _fit(plain: F64, divisors: F64, factor: float) -> tuple[float, int]:
    """The upper bound, where the lower is 1, and the original context; 0 of it where there is none."""
    share = (1 / divisors - 1 / factor) / (1 - np.float64(1) / factor)  # 0 where slowed, 1 where kept
    between = np.flatnonzero((share > _CLOSE) & (share < 1 - _CLOSE))
    high = 4.0
    if len(between) > 1:
        slope, start = np.polyfit(plain[between], share[between], 1)
        high = round(float(1 - 1 / start), 3)
        turns = slope * (high - 1)
    elif len(between) == 1:
        turns = (1 + 3 * share[between[0]]) / plain[between[0]]
    else:
        edge = plain[share > 0.5].min() if (share > 0.5).any() else plain.max() * 8
        turns = math.ceil(8 * math.pi / edge) / (2 * math.pi)  # the context is whole, and the edge is still kept
    return high, round(float(turns) * 2 * math.pi) if np.isfinite(turns) else 0
