"""The random numbers of `reference.uniform`, on the device: a function of (seed, position) alone."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def uniform(seed, position):
    """A float64 in [0, 1) from 64 bits each, by SplitMix64's finalizer (Steele, Lea, Flood 2014)."""
    z = _mix(_mix(seed.to(tl.uint64, bitcast=True)) ^ position.to(tl.uint64, bitcast=True))
    return (z >> 11).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def _mix(z):
    z += 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)
