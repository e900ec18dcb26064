"""What it means to quantize to types with blocks of 32, and to llama2.c's groups, in numpy. For 256: quantize_k.py.

The native quantizer (native/quantize.cpp) gives the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_k import quantize_q4_k, quantize_q5_k, quantize_q6_k

_Floats = NDArray[np.float32]
_Bytes = NDArray[np.uint8]

_E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12], dtype=np.float32)
_E2M1_LIMITS = np.array([0.5, 1.5, 2.5, 3.5, 5, 7, 10], dtype=np.float32)  # a number on one goes to the smaller code
_NOTHING = np.float32(1e-30)
_LARGEST_Q8_0 = 65504.0 * 127  # the scale is a float16


def quantize_blocks(qtype: QType, x: _Floats) -> _Bytes:
    """float32 [..., cols], cols a multiple of the block, as blocks of `qtype`: uint8 [n_bytes]. KeyError for others."""
    blocks = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, qtype.block_size)
    encoders = {
        QType.Q4_0: quantize_q4_0,
        QType.Q5_0: quantize_q5_0,
        QType.Q8_0: quantize_q8_0,
        QType.MXFP4: quantize_mxfp4,
        QType.Q4_K: quantize_q4_k,
        QType.Q5_K: quantize_q5_k,
        QType.Q6_K: quantize_q6_k,
    }
    return encoders[qtype](blocks).reshape(-1)


def quantize_q8_0(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """float32 [..., cols], cols a multiple of 32, as Q8_0 blocks: uint8 [n_bytes], bit for bit as ggml writes them.

    A block is a float16 scale max|x| / 127 and 32 int8, rounded half away from zero (quantize_row_q8_0_ref of
    ggml-quants.c). Raises ValueError for other shapes and for numbers that no scale can hold.
    """
    if x.ndim == 0 or x.shape[-1] % QType.Q8_0.block_size:
        raise ValueError(
            f"quantize_q8_0: x has shape {x.shape}; its rows must be a multiple of {QType.Q8_0.block_size} long"
        )
    blocks = np.asarray(x, dtype=np.float32).reshape(-1, QType.Q8_0.block_size)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    if not (largest <= _LARGEST_Q8_0).all():
        raise ValueError(
            f"quantize_q8_0: x holds {largest.max()}; numbers must be finite and within {_LARGEST_Q8_0:.0f}"
        )
    scale = largest / np.float32(127)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1 / scale
    inverse[~np.isfinite(inverse)] = 0  # all zeros, or so small that the float16 scale is zero too
    scaled = blocks * inverse
    whole = np.trunc(scaled)
    codes = whole + np.copysign(np.abs(scaled - whole) >= 0.5, scaled)
    out = np.empty((len(blocks), QType.Q8_0.block_bytes), dtype=np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8)
    out[:, 2:] = codes.astype(np.int8).view(np.uint8)
    return out.reshape(-1)


def quantize_q4_0(x: _Floats) -> _Bytes:
    """float32 [N, 32] as Q4_0, uint8 [N, 18]: the first of the largest in magnitude, sign and all, becomes -8 steps.

    Bit for bit as ggml writes them (quantize_row_q4_0_ref of ggml-quants.c).
    """
    d, q = _signed_codes(x, 8)
    return np.concatenate([d, q[:, :16] | q[:, 16:] << 4], axis=1)


def quantize_q5_0(x: _Floats) -> _Bytes:
    """float32 [N, 32] as Q5_0, uint8 [N, 22]: as Q4_0, with -16 steps."""
    d, q = _signed_codes(x, 16)
    high = np.packbits(q >> 4, axis=1, bitorder="little")
    return np.concatenate([d, high, (q[:, :16] & 15) | (q[:, 16:] & 15) << 4], axis=1)


def _signed_codes(x: _Floats, half: int) -> tuple[_Bytes, _Bytes]:
    """The scale as float16 bytes [N, 2], and codes 0 .. 2 half - 1 [N, 32]."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    d = extreme / np.float32(-half)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1 / d
    inverse[~np.isfinite(inverse)] = 0
    codes = np.trunc(x * inverse + np.float32(half + 0.5))
    return d.astype("<f2").view(np.uint8), np.minimum(codes, 2 * half - 1).astype(np.uint8)


def quantize_mxfp4(x: _Floats) -> _Bytes:
    """float32 [N, 32] as MXFP4, uint8 [N, 17]: an E8M0 scale, then nibbles (OCP Microscaling v1.0, in ggml's layout).

    The scale is the specification's (the largest number's exponent less that of 4), under which numbers may be cut to
    6, or the next one where that is nearer. A block of nothing over 1e-30 is zeros.
    """
    most = np.abs(x).max(axis=1)
    e = np.maximum((most.view(np.uint32) >> 23).astype(np.int32) - 2, 0)
    first, cut = _mxfp4_codes(x, e)
    second, whole = _mxfp4_codes(x, e + 1)
    larger = whole < cut
    codes = np.where(larger[:, None], second, first)
    blocks = np.concatenate([(e + larger).astype(np.uint8)[:, None], codes[:, :16] | codes[:, 16:] << 4], axis=1)
    return np.where((most < _NOTHING)[:, None], np.uint8(0), blocks)


def _mxfp4_codes(x: _Floats, e: NDArray[np.int32]) -> tuple[_Bytes, _Floats]:
    """Codes [N, 32] under the scales 2^(e - 127), and their squared errors [N]."""
    unit = np.ldexp(np.float32(1), e - 128)[:, None]  # of the doubled table
    size = np.abs(x)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        codes = (size * (1 / unit))[:, :, None] > _E2M1_LIMITS
    codes = codes.sum(axis=2, dtype=np.uint8)
    miss = unit * _E2M1_DOUBLED[codes] - size
    errors = miss * miss
    while errors.shape[1] > 1:  # in halves, as vectors are summed
        errors = errors[:, : errors.shape[1] // 2] + errors[:, errors.shape[1] // 2 :]
    return np.where((codes > 0) & (x < 0), codes + np.uint8(8), codes), errors[:, 0]


def quantize_groups(x: _Floats, group: int) -> tuple[_Bytes, _Floats]:
    """float32 of any shape as Q8_GROUPS: int8 as uint8 [n], and the scales max|x| / 127, float32 [n / group].

    Codes are x / scale, rounded half to even, as llama2.c's export.py has them. ValueError where groups do not divide.
    """
    if x.size % group:
        raise ValueError(f"quantize_groups: {x.size} numbers are not whole groups of {group}")
    groups = np.asarray(x, dtype=np.float32).reshape(-1, group)
    scales = np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.rint(groups / np.where(scales > 0, scales, np.float32(1)))
    return codes.astype(np.int8).view(np.uint8).reshape(-1), scales.reshape(-1)
