"""Compiles the kernels for an H200 that is not there; prints what became of each as JSON. Needs TRITON_INTERPRET=0."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import numpy as np
import torch
from compiled_for import compiling
from sampling_batches import random_rows

from gristmill.ops.triton.attention import attention
from gristmill.ops.triton.kv import kv_layer, store_qkv
from gristmill.ops.triton.logprobs import logprobs
from gristmill.ops.triton.norm import add_rms_norm
from gristmill.ops.triton.rope import rope_angles
from gristmill.ops.triton.sampling import sample
from gristmill.types import Batch


def launch() -> None:
    """What gpt-oss launches beside its matrices (64 heads of 64 share 8; windows, sinks), and what chooses tokens."""
    ints, floats = torch.zeros(600, dtype=torch.int32), torch.zeros(600, 80 * 64)
    add_rms_norm(floats, floats, floats[0], 1e-5, torch.bfloat16)
    layer = kv_layer(10, 8, 64, torch.float16, floats.device)
    angles = rope_angles(ints, floats[0, :32], 1.0)
    norm = floats[0, :64]
    q = store_qkv(floats, norm, norm, 1e-6, angles, layer, ints)
    batch = Batch(ints, ints, (ints,), ints[:5], ints[:4], (ints[:256].reshape(4, 64),), *[None] * 13)
    attention(q, layer, batch, batch.block_tables[0], 128, norm)
    logits, rows = random_rows(np.random.default_rng(0), 2, 151936)
    values = [getattr(rows, field.name) for field in fields(rows)]
    sample(torch.from_numpy(logits), Batch(*(v if v is None else torch.from_numpy(v) for v in values)))
    logprobs(torch.from_numpy(logits), ints[:2], 20)


with compiling(90) as compiled:
    launch()
print(json.dumps([asdict(kernel) for kernel in compiled], default=sorted))
