"""Weights of every number type at random."""

from __future__ import annotations

import math

import numpy as np

from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType

PLAIN_FLOATS = (QType.F32, QType.F16, QType.BF16)
FLOATS = (*PLAIN_FLOATS, QType.FP8_GROUPS)  # what is multiplied as floats


def random_weight(qtype: QType, shape: tuple[int, ...], seed: int = 0) -> Weight:
    """Random quants with scales that keep the values of order 0.1."""
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    if qtype in PLAIN_FLOATS:
        x = (rng.normal(size=n) * 0.1).astype(np.float32)
        if qtype is QType.F16:
            x = x.astype(np.float16)
        elif qtype is QType.BF16:
            x = (x.view(np.uint32) >> 16).astype(np.uint16)
        return Weight("w", x.view(np.uint8), qtype, shape)
    blocks = rng.integers(0, 256, (n // qtype.block_size, qtype.block_bytes), dtype=np.uint8)
    scales = None
    halves = {
        "q2_k": (80, 82),
        "q3_k": (108,),
        "q6_k": (208,),
        "q4_1": (0, 2),
        "q5_1": (0, 2),
        "q4_k": (0, 2),
        "q5_k": (0, 2),
        "tq1_0": (52,),
        "tq2_0": (64,),
    }
    sizes = {"iq3_xxs": 3e-4, "iq1_s": 1e-2, "iq1_m": 1e-2, "tq1_0": 0.1, "tq2_0": 0.1, "q1_0": 0.1, "q2_0": 0.1}
    if qtype is QType.MXFP4:
        blocks[:, 0] = rng.integers(118, 124, len(blocks))
    elif qtype is QType.MXFP4_SPLIT:
        scales = rng.integers(118, 124, len(blocks), dtype=np.uint8)
    elif qtype is QType.NVFP4:  # scales that lie close enough together to be kept exactly
        blocks[:, :4] = rng.integers(8, 64, (len(blocks), 4)) * (rng.random((len(blocks), 4)) < 0.95)
        scales = rng.uniform(0.02, 0.04, n // shape[-1]).astype(np.float32)
    elif qtype is QType.FP8_GROUPS:  # by powers of two, so that bfloat16 has all numbers, and so near that 12 bits do
        blocks[:] = rng.integers(56, 119, blocks.shape) | blocks & 0x80
        scales = (2.0 ** rng.integers(-12, -9, n // math.gcd(shape[-1], 64))).astype(np.float32)
    elif qtype in (QType.Q8_GROUPS, QType.INT8_ROWS):
        per_scale = 64 if qtype is QType.Q8_GROUPS else shape[-1]
        scales = rng.uniform(0.5e-3, 1e-3, n // per_scale).astype(np.float32)
    else:
        size = sizes.get(qtype.label, 1e-3 if qtype.block_bytes < 100 else 1e-4)
        if qtype is QType.IQ1_M:  # four bits in each of four numbers
            d = rng.uniform(size / 2, size, len(blocks)).astype(np.float16)[:, None].view(np.uint16)
            blocks[:, 49::2] = blocks[:, 49::2] & 15 | (d >> np.arange(0, 16, 4, dtype=np.uint16) << 4).astype(np.uint8)
            return Weight("w", blocks.reshape(-1), qtype, shape)
        for at in halves.get(qtype.label, (0,)):
            blocks[:, at : at + 2] = rng.uniform(size / 2, size, len(blocks)).astype(np.float16)[:, None].view(np.uint8)
    return Weight("w", blocks.reshape(-1), qtype, shape, scales)
