"""Plain quantizers into the GGUF blocks that the gguf package reads but cannot write: the K types, IQ4_NL and IQ4_XS.

Layouts are those of ggml-common.h. Rounding is simple, not optimal: what counts is that every field of a block varies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from oracles import grid_quants

Blocks = NDArray[np.float32]  # [n, block size]
Bytes = NDArray[np.uint8]  # [n, bytes a block]

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _half(x: Blocks) -> Bytes:
    return x.astype(np.float16).reshape(-1, 1).view(np.uint8)


def _divide(x: Blocks, by: Blocks) -> Blocks:
    return np.divide(x, by, out=np.zeros_like(x), where=by != 0)


def _with_minimum(blocks: Blocks, group: int, q_max: int, scale_max: int) -> tuple[Bytes, Bytes, Bytes, Bytes, Bytes]:
    """x = d * scale * q - d_min * minimum: q [n, 256], scale and minimum [n, 256 / group], d and d_min as bytes."""
    x = blocks.reshape(len(blocks), -1, group)
    low = np.minimum(x.min(-1), 0)
    step = (x.max(-1) - low) / q_max
    d = (step.max(-1, keepdims=True) / scale_max).astype(np.float16).astype(np.float32)
    d_min = (-low.min(-1, keepdims=True) / scale_max).astype(np.float16).astype(np.float32)
    scale = np.clip(np.rint(_divide(step, d + 0 * step)), 0, scale_max)
    minimum = np.clip(np.rint(_divide(-low, d_min + 0 * low)), 0, scale_max)
    by = (d * scale)[..., None] + 0 * x
    q = np.clip(np.rint(_divide(x + (d_min * minimum)[..., None], by)), 0, q_max).reshape(blocks.shape)
    return q.astype(np.uint8), scale.astype(np.uint8), minimum.astype(np.uint8), _half(d), _half(d_min)


def _symmetric(blocks: Blocks, q_low: int, scale_max: int) -> tuple[NDArray[np.int8], NDArray[np.int8], Bytes]:
    """x = d * scale * q with q in q_low .. -q_low - 1, groups of 16; scales take the sign that lets q reach q_low."""
    x = blocks.reshape(len(blocks), 16, 16)
    extreme = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]
    step = extreme / q_low
    d = (np.abs(step).max(-1, keepdims=True) / scale_max).astype(np.float16).astype(np.float32)
    scale = np.clip(np.rint(_divide(step, d + 0 * step)), -scale_max, scale_max)
    q = np.clip(np.rint(_divide(x, (d * scale)[..., None] + 0 * x)), q_low, -q_low - 1).reshape(blocks.shape)
    return q.astype(np.int8), scale.astype(np.int8), _half(d)


def _join(*parts: Bytes) -> Bytes:
    return np.concatenate(parts, axis=-1)


def _two_bits(q: Bytes) -> Bytes:
    """Element 128 h + 32 j + l goes to bits 2j of byte 32 h + l."""
    q = q.reshape(-1, 2, 4, 32)
    return (q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6).reshape(-1, 64)


def _nibbles(q: Bytes) -> Bytes:
    """Element 64 g + l goes to the low, 64 g + 32 + l to the high nibble of byte 32 g + l."""
    q = (q & 15).reshape(-1, 4, 2, 32)
    return (q[:, :, 0] | q[:, :, 1] << 4).reshape(-1, 128)


def _six_bit_pairs(scale: Bytes, minimum: Bytes) -> Bytes:
    """Eight 6-bit scales and minima in 12 bytes; the upper four lend their top bits to the lower four's bytes."""
    low = scale[:, :4] | (scale[:, 4:] >> 4) << 6
    middle = minimum[:, :4] | (minimum[:, 4:] >> 4) << 6
    return _join(low, middle, scale[:, 4:] & 15 | (minimum[:, 4:] & 15) << 4)


def _q2_k(x: Blocks) -> Bytes:
    q, scale, minimum, d, d_min = _with_minimum(x, 16, 3, 15)
    return _join(scale | minimum << 4, _two_bits(q), d, d_min)


def _q3_k(x: Blocks) -> Bytes:
    signed, scale, d = _symmetric(x, -4, 31)
    q, six = (signed + 4).astype(np.uint8), (scale + 32).astype(np.uint8)
    high = (q >> 2).reshape(-1, 8, 32)
    mask = np.bitwise_or.reduce(high << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    top = (six >> 4).reshape(-1, 4, 4)
    packed = _join(
        six[:, :8] & 15 | (six[:, 8:] & 15) << 4, top[:, 0] | top[:, 1] << 2 | top[:, 2] << 4 | top[:, 3] << 6
    )
    return _join(mask, _two_bits(q & 3), packed, d)


def _q4_k(x: Blocks) -> Bytes:
    q, scale, minimum, d, d_min = _with_minimum(x, 32, 15, 63)
    return _join(d, d_min, _six_bit_pairs(scale, minimum), _nibbles(q))


def _q5_k(x: Blocks) -> Bytes:
    q, scale, minimum, d, d_min = _with_minimum(x, 32, 31, 63)
    high = (q >> 4).reshape(-1, 8, 32)
    fifth = np.bitwise_or.reduce(high << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    return _join(d, d_min, _six_bit_pairs(scale, minimum), fifth, _nibbles(q))


def _q6_k(x: Blocks) -> Bytes:
    signed, scale, d = _symmetric(x, -32, 127)
    q = (signed + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = q & 15, q >> 4
    ql = np.concatenate([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], axis=-1)
    qh = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return _join(ql.reshape(-1, 128), qh.reshape(-1, 64), scale.view(np.uint8), d)


def _iq4_nl(x: Blocks) -> Bytes:
    extreme = np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1)
    d = (extreme / -127).astype(np.float16).astype(np.float32)
    return _join(_half(d), _on_curve(_divide(x, d + 0 * x)))


def _on_curve(x: Blocks) -> Bytes:
    """[n, 32] as nibbles [n, 16] of the nearest values."""
    q = np.abs(x[..., None] - IQ4_VALUES).argmin(-1).astype(np.uint8)
    return q[:, :16] | q[:, 16:] << 4


def _iq4_xs(x: Blocks) -> Bytes:
    parts = x.reshape(-1, 8, 32)
    extreme = np.take_along_axis(parts, np.abs(parts).argmax(-1)[..., None], -1)[..., 0]
    step = extreme / -127
    d = (np.abs(step).max(-1, keepdims=True) / 31).astype(np.float16).astype(np.float32)
    scale = np.clip(np.rint(_divide(step, d + 0 * step)), -31, 31)
    codes = _on_curve(_divide(parts, (d * scale)[..., None] + 0 * parts).reshape(-1, 32)).reshape(len(x), -1)
    six = (scale + 32).astype(np.uint8)
    high = (six >> 4).reshape(-1, 2, 4)
    high = high[..., 0] | high[..., 1] << 2 | high[..., 2] << 4 | high[..., 3] << 6
    return _join(_half(d), high, six[:, ::2] & 15 | (six[:, 1::2] & 15) << 4, codes)


def _q1_0(x: Blocks) -> Bytes:
    return _join(_half(np.abs(x).mean(-1, keepdims=True)), np.packbits(x >= 0, axis=-1, bitorder="little"))


def _nvfp4(x: Blocks) -> Bytes:
    """ggml-quants.c: quantize_row_nvfp4_ref."""
    parts = x.reshape(-1, 4, 16)
    scales = gguf.quants.NVFP4.fp32_to_ue4m3(np.abs(parts).max(-1) / np.float32(6))
    d = gguf.quants.NVFP4.ue4m3_to_fp32(scales)[:, :, None, None]
    codes = np.abs(parts[..., None] - d * np.array(gguf.quants.NVFP4.kvalues)).argmin(-1).astype(np.uint8)
    return _join(scales.astype(np.uint8), (codes[:, :, :8] | codes[:, :, 8:] << 4).reshape(-1, 32))


QUANTIZERS: Mapping[Type, tuple[int, Callable[[Blocks], Bytes]]] = {
    Type.Q2_K: (256, _q2_k),
    Type.Q3_K: (256, _q3_k),
    Type.Q4_K: (256, _q4_k),
    Type.Q5_K: (256, _q5_k),
    Type.Q6_K: (256, _q6_k),
    Type.IQ4_NL: (32, _iq4_nl),
    Type.IQ4_XS: (256, _iq4_xs),
    Type.Q1_0: (128, _q1_0),
    Type.NVFP4: (64, _nvfp4),
    **grid_quants.QUANTIZERS,
}


def quantize(x: NDArray[np.float32], qtype: Type) -> Bytes:
    """float32 [..., K] -> uint8 [..., bytes a row] in the blocks of `qtype`, a key of QUANTIZERS."""
    size, quantizer = QUANTIZERS[qtype]
    return quantizer(x.astype(np.float32).reshape(-1, size)).reshape(*x.shape[:-1], -1)


def _signs(block: bytes) -> list[int]:
    """ggml-quants.c: dequantize_row_q1_0."""
    return [1 if block[2 + i // 8] >> i % 8 & 1 else -1 for i in range(128)]


def _ternary(block: bytes) -> list[int]:
    """ggml-quants.c: dequantize_row_q2_0."""
    return [(block[2 + i // 4] >> 2 * (i % 4) & 3) - 1 for i in range(64)]


_LATER = {
    "Q1_0": _signs,
    "Q2_0": _ternary,
}  # than the gguf package can read; blocks of 18 bytes, whose scale comes first


def dequantize(data: NDArray[np.generic], name: str) -> NDArray[np.float32]:
    """float32 [..., K] of blocks [..., bytes a row] of ggml's type `name`, as ggml reads them."""
    if name not in _LATER:
        return gguf.quants.dequantize(data, Type[name])
    blocks = data.reshape(-1, 18)
    numbers = np.array([_LATER[name](block.tobytes()) for block in blocks], np.float32)
    d = np.frombuffer(blocks[:, :2].tobytes(), np.float16).astype(np.float32)
    return (d[:, None] * numbers).reshape(*data.shape[:-1], -1)
