"""Compiles the kernels for a card that is not there; prints what became of each as JSON. Needs TRITON_INTERPRET=0.

compile_kernels.py CAPABILITY
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields

import numpy as np
import torch
from compiled_for import compiling
from random_weights import random_weight
from sampling_batches import random_rows

from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.ops.triton.advance import advance
from gristmill.ops.triton.attention import attention
from gristmill.ops.triton.kv import kv_layer, store_qkv
from gristmill.ops.triton.linear import gated_linear, linear
from gristmill.ops.triton.logprobs import logprobs
from gristmill.ops.triton.moe import moe
from gristmill.ops.triton.norm import add_rms_norm
from gristmill.ops.triton.quantized import Matrix, rows
from gristmill.ops.triton.quantized_layout import matrix_of
from gristmill.ops.triton.quantized_rows import quantize_rows
from gristmill.ops.triton.rope import rope_angles
from gristmill.ops.triton.sampling import sample
from gristmill.types import Batch

COLUMNS = 2048
TYPES = (QType.F32, QType.BF16, QType.INT8_ROWS, QType.Q8_0, QType.Q4_0, QType.MXFP4, QType.Q4_K, QType.Q6_K)
INTS = torch.zeros(600, dtype=torch.int32)


def put(qtype: QType, *shape: int) -> Matrix:
    return matrix_of([random_weight(qtype, shape)], None, lambda data: torch.tensor(data), RowQuantizer(1))


def matrices() -> None:
    for qtype in TYPES:
        w = put(qtype, 128, COLUMNS)
        for n_tokens in (1, 16, 64, 600):
            x = torch.zeros(n_tokens, COLUMNS, dtype=torch.bfloat16)
            linear(x, w)
            gated_linear(x, w, 0.0, torch.bfloat16)
        rows(w, INTS[:64])
    for qtype in (QType.Q4_0, QType.MXFP4):
        for cols in (64, 96, 288, 2880):  # rows that are no whole number of tiles
            linear(torch.zeros(1, cols, dtype=torch.bfloat16), put(qtype, 128, cols))
    for qtype in (QType.F32, QType.BF16, QType.INT8_ROWS, QType.Q8_0, QType.MXFP4, QType.Q6_K):
        gate_up, down = put(qtype, 32, 128, COLUMNS), put(qtype, 32, COLUMNS, max(64, qtype.block_size))
        for n_tokens in (1, 16, 600):
            x = torch.zeros(n_tokens, COLUMNS, dtype=torch.bfloat16)
            moe(x, torch.zeros(n_tokens, 32), gate_up, down, 4, 7.0, torch.bfloat16)
    quantize_rows(torch.zeros((1, 4, COLUMNS), dtype=torch.bfloat16))


def between() -> None:
    """What is launched beside matrices, for heads of gpt-oss (64 of 64 share 8; window, sinks), Qwen3 and wide ones."""
    floats = torch.zeros(600, 80 * 64)
    add_rms_norm(floats, floats, floats[0], 1e-5, torch.bfloat16)
    angles = rope_angles(INTS, floats[0, :32], 1.0)
    norm = floats[0, :64]
    layer = kv_layer(10, 8, 64, torch.float16, floats.device)
    q = store_qkv(floats, norm, norm, 1e-6, angles, layer, INTS)
    batch = Batch(INTS, INTS, (INTS,), INTS[:5], INTS[:4], (INTS[:256].reshape(4, 64),), *[None] * 13)
    attention(q, layer, batch, batch.block_tables[0], 128, norm, torch.bfloat16)
    for head_dim, n_heads in ((128, 16), (256, 8)):
        attend(torch.float16, head_dim, n_heads)


def attend(kv_type: torch.dtype, head_dim: int, n_heads: int) -> None:
    batch = Batch(INTS, INTS, (INTS,), INTS[:5], INTS[:4], (INTS[:256].reshape(4, 64),), *[None] * 13)
    layer = kv_layer(10, 8, head_dim, kv_type, INTS.device)
    q = torch.zeros(600, n_heads * head_dim, dtype=kv_type)
    attention(q, layer, batch, batch.block_tables[0], 0, None, torch.bfloat16)


def choices() -> None:
    logits, rows = random_rows(np.random.default_rng(0), 2, 151936)
    values = [getattr(rows, field.name) for field in fields(rows)]
    sample(torch.from_numpy(logits), Batch(*(torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in values)))
    for n_top in (20, 1000):
        logprobs(torch.from_numpy(logits), INTS[:2], n_top)
    ints = INTS[:64]
    batch = Batch(*[ints] * 2, (ints,), *[ints] * 2, (ints.reshape(64, 1),), *[ints] * 6, ints.long(), *[ints] * 6)
    advance(batch, ints, [[]])


with compiling(int(sys.argv[1])) as compiled:
    matrices()
    between()
    choices()
    if int(sys.argv[1]) != 90:  # what spills there is another matter
        for shape in ((64, 16), (128, 16), (192, 8), (256, 8)):
            attend(torch.float32, *shape)
print(json.dumps([asdict(kernel) for kernel in compiled], default=sorted))
