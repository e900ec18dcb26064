"""Decodes blocks of each quantized type: bytes to float32, all blocks at once.

Layouts: ggml's ggml-common.h; MXFP4: OCP Microscaling Formats v1.0. Products and sums are taken in ggml's order, so the
results are equal bit for bit. N blocks come as uint8 [N, block_bytes] and go as float32 [N, block_size].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.qtypes import QType

_Bytes = NDArray[np.uint8]
_Floats = NDArray[np.float32]

_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # e2m1 times two; ggml's code 8 is +0


def decode_split_mxfp4(blocks: _Bytes, scales: _Bytes) -> _Floats:
    """float32 [N, 32] of uint8 [N, 16] with neighbours in a byte (low nibble first) and E8M0 scales uint8 [N].

    Code 8 is -0.0, as e2m1 has it and transformers gives it.
    """
    pairs = np.stack((blocks & 15, blocks >> 4), axis=-1)  # [N, 16, 2]
    values = np.array([-0.0 if code == 8 else value for code, value in enumerate(_FP4_DOUBLED)], dtype=np.float32)
    return _e8m0_half(scales)[:, None] * values[pairs.reshape(-1, 32)]


def half(blocks: _Bytes, at: int) -> _Floats:
    """The float16 at byte `at` of each block, [N, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: _Bytes) -> _Bytes:
    """[N, K] to [N, 2, K]: all low nibbles, then all high ones."""
    return np.stack((packed & 15, packed >> 4), axis=1)


def _pairs_of_bits(packed: _Bytes) -> _Bytes:
    """[N, K] to [N, 4, K]: bits 0-1 of all bytes, then bits 2-3, 4-5, 6-7."""
    return np.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)


def _bit_planes(packed: _Bytes) -> _Bytes:
    """[N, K] to [N, 8, K]: bit 0 of all bytes, then bit 1, ..."""
    return np.stack([packed >> shift & 1 for shift in range(8)], axis=1)


def _floats(values: NDArray[np.generic]) -> _Floats:
    return values.astype(np.float32)


def _e8m0_half(scales: _Bytes) -> _Floats:
    """2^(scale - 128): E8M0 has bias 127, and half of it goes with doubled fp4 values."""
    return np.ldexp(np.float32(1), np.arange(256, dtype=np.int32) - 128).astype(np.float32)[scales]


def _q4_0(b: _Bytes) -> _Floats:
    return half(b, 0) * (_floats(_nibbles(b[:, 2:]).reshape(-1, 32)) - 8)


def _q4_1(b: _Bytes) -> _Floats:
    return half(b, 0) * _floats(_nibbles(b[:, 4:]).reshape(-1, 32)) + half(b, 2)


def _five_bits(high: _Bytes, low: _Bytes) -> _Floats:
    """0 .. 31 of [N, 4] fifth bits (element i is bit i) and [N, 16] nibbles."""
    fifth = np.unpackbits(high, axis=1, bitorder="little")
    return _floats(_nibbles(low).reshape(-1, 32) | fifth << 4)


def _q5_0(b: _Bytes) -> _Floats:
    return half(b, 0) * (_five_bits(b[:, 2:6], b[:, 6:]) - 16)


def _q5_1(b: _Bytes) -> _Floats:
    return half(b, 0) * _five_bits(b[:, 4:8], b[:, 8:]) + half(b, 2)


def _q8_0(b: _Bytes) -> _Floats:
    return half(b, 0) * _floats(b[:, 2:].view(np.int8))


def _iq4(packed: _Bytes) -> _Floats:
    """What [N, 16] nibbles stand for, [N, 32]: a curve of 16 numbers, denser around zero."""
    return np.array(_IQ4_VALUES, dtype=np.float32)[_nibbles(packed).reshape(-1, 32)]


def _iq4_nl(b: _Bytes) -> _Floats:
    return half(b, 0) * _iq4(b[:, 2:])


def _iq4_xs(b: _Bytes) -> _Floats:
    """d, high 2 bits of 8 scales[2], their low nibbles[4], nibbles[128]; a scale of 6 bits for 32 elements each."""
    low = np.stack((b[:, 4:8] & 15, b[:, 4:8] >> 4), axis=2).reshape(-1, 8)
    high = np.stack([b[:, 2:4] >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(-1, 8)
    scale = half(b, 0) * (_floats(low | high << 4) - 32)
    return (scale[:, :, None] * _iq4(b[:, 8:].reshape(-1, 16)).reshape(-1, 8, 32)).reshape(-1, 256)


def _mxfp4(b: _Bytes) -> _Floats:
    return _e8m0_half(b[:, :1]) * np.array(_FP4_DOUBLED, dtype=np.float32)[_nibbles(b[:, 1:]).reshape(-1, 32)]


def _ue4m3_half(scales: _Bytes) -> _Floats:
    """Half of what four bits of exponent and three of mantissa stand for; half goes with doubled fp4 values."""
    exponent, mantissa = (scales >> 3 & 15).astype(np.int32), _floats(scales & 7)
    values = np.ldexp(np.where(exponent > 0, mantissa + 8, mantissa), np.maximum(exponent, 1) - 11)
    return np.where((scales & 127 == 0) | (scales == 127), np.float32(0), values).astype(np.float32)


def _nvfp4(b: _Bytes) -> _Floats:
    """scales[4] (UE4M3, of 16 elements each), nibbles[32]: eight bytes of each, their low nibbles first."""
    codes = _nibbles(b[:, 4:].reshape(-1, 8)).reshape(-1, 4, 16)
    values = np.array(_FP4_DOUBLED, dtype=np.float32)[codes]
    return (_ue4m3_half(b[:, :4])[:, :, None] * values).reshape(-1, 64)


def _q2_k(b: _Bytes) -> _Floats:
    """scales[16] (low nibble scale, high nibble minimum, of 16 elements each), 2-bit codes[64], d, dmin."""
    scale = half(b, 80) * _floats(b[:, :16] & 15)
    minimum = half(b, 82) * _floats(b[:, :16] >> 4)
    codes = _pairs_of_bits(b[:, 16:80].reshape(-1, 32)).reshape(-1, 16, 16)
    return (scale[:, :, None] * _floats(codes) - minimum[:, :, None]).reshape(-1, 256)


def _q3_k(b: _Bytes) -> _Floats:
    """high bits[32], low 2 bits[64], scales[12] of 6 bits for 16 elements each, d."""
    packed = b[:, 96:108]
    low = _nibbles(packed[:, :8]).reshape(-1, 16)
    high = _pairs_of_bits(packed[:, 8:]).reshape(-1, 16)
    scale = half(b, 108) * (_floats(low | high << 4) - 32)
    codes = _pairs_of_bits(b[:, 32:96].reshape(-1, 32)).reshape(-1, 256)
    above = _bit_planes(b[:, :32]).reshape(-1, 256)
    values = _floats(codes | above << 2) - 4
    return (scale[:, :, None] * values.reshape(-1, 16, 16)).reshape(-1, 256)


def _scales_and_minimums(packed: _Bytes) -> tuple[_Bytes, _Bytes]:
    """8 scales and 8 minimums of 6 bits from 12 bytes: the first 4 of each whole, the last 4 in three pieces."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((first & 63, third & 15 | first >> 6 << 4), axis=1)
    minimums = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), axis=1)
    return scales, minimums


def _with_minimums(b: _Bytes, codes: _Bytes) -> _Floats:
    """d, dmin, scales[12] at the front of Q4_K and Q5_K, applied to codes [N, 256] in runs of 32."""
    scales, minimums = _scales_and_minimums(b[:, 4:16])
    scale = (half(b, 0) * _floats(scales))[:, :, None]
    minimum = (half(b, 2) * _floats(minimums))[:, :, None]
    return (scale * _floats(codes.reshape(-1, 8, 32)) - minimum).reshape(-1, 256)


def _q4_k(b: _Bytes) -> _Floats:
    return _with_minimums(b, _nibbles(b[:, 16:].reshape(-1, 32)).reshape(-1, 256))


def _q5_k(b: _Bytes) -> _Floats:
    low = _nibbles(b[:, 48:].reshape(-1, 32)).reshape(-1, 256)
    high = _bit_planes(b[:, 16:48]).reshape(-1, 256) << np.uint8(4)
    return _with_minimums(b, low | high)


def _q6_k(b: _Bytes) -> _Floats:
    """low nibbles[128], high 2 bits[64], int8 scales[16] for 16 elements each, d."""
    low = _nibbles(b[:, :128].reshape(-1, 64)).reshape(-1, 256)
    high = _pairs_of_bits(b[:, 128:192].reshape(-1, 32)).reshape(-1, 256)
    scale = half(b, 208) * _floats(b[:, 192:208].view(np.int8))
    values = _floats(low | high << 4) - 32
    return (scale[:, :, None] * values.reshape(-1, 16, 16)).reshape(-1, 256)


def _q1_0(b: _Bytes) -> _Floats:
    """d, a bit for each of 128 numbers, which are d and -d."""
    return half(b, 0) * (2 * _floats(np.unpackbits(b[:, 2:], axis=1, bitorder="little")) - 1)


def _q2_0(b: _Bytes) -> _Floats:
    """d, codes of two bits for 64 numbers, which are -1, 0, 1 and 2 times d."""
    return half(b, 0) * (
        _floats(np.stack([b[:, 2:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(-1, 64)) - 1
    )


DECODERS = {
    QType.Q4_0: _q4_0,
    QType.Q4_1: _q4_1,
    QType.Q5_0: _q5_0,
    QType.Q5_1: _q5_1,
    QType.Q8_0: _q8_0,
    QType.Q2_K: _q2_k,
    QType.Q3_K: _q3_k,
    QType.Q4_K: _q4_k,
    QType.Q5_K: _q5_k,
    QType.Q6_K: _q6_k,
    QType.IQ4_NL: _iq4_nl,
    QType.IQ4_XS: _iq4_xs,
    QType.Q1_0: _q1_0,
    QType.Q2_0: _q2_0,
    QType.MXFP4: _mxfp4,
    QType.NVFP4: _nvfp4,
}
