"""MXFP4 blocks as gpt-oss checkpoints store them, written from the OCP Microscaling specification (version 1.0).

32 numbers share one E8M0 scale byte (2 ** (byte - 127)); each is an E2M1 code: a sign and one of eight magnitudes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)


def quantize(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """float32 [..., K] -> codes uint8 [..., K / 32, 32] in 0..15 and scales uint8 [..., K / 32]."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    largest = np.abs(blocks).max(axis=-1)
    exponent = np.floor(np.log2(np.maximum(largest, 2.0**-120))) - 2  # 6 = 1.5 * 2**2 is the largest code
    scaled = blocks / np.exp2(exponent)[..., None]
    nearest = np.abs(np.abs(scaled)[..., None] - MAGNITUDES).argmin(axis=-1)
    return (nearest + 8 * (scaled < 0)).astype(np.uint8), (exponent + 127).astype(np.uint8)


def dequantize(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The exact float32 [..., K] that `codes` and `scales` stand for."""
    values = np.where(codes >= 8, -1, 1) * MAGNITUDES[codes & 7]
    scaled = np.ldexp(values, scales.astype(np.int32)[..., None] - 127)
    return scaled.reshape(*codes.shape[:-2], -1).astype(np.float32)


def pack_pairs(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """As in safetensors, uint8 [..., K / 32, 16]: element 2j in the low nibble of byte j, 2j + 1 in the high one."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def pack_ggml(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """GGUF's layout, uint8 [..., K / 32 * 17]: the scale byte, then element j low and j + 16 high in byte j."""
    nibbles = codes[..., :16] | codes[..., 16:] << 4
    return np.concatenate([scales[..., None], nibbles], axis=-1).reshape(*codes.shape[:-2], -1)
