"""Compiles the kernels that multiply for an H200 that is not there; prints what became of each as JSON. Needs
TRITON_INTERPRET=0."""

from __future__ import annotations

import json
from dataclasses import asdict

import torch
from compiled_for import compiling
from random_weights import random_weight

from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.ops.triton.advance import advance
from gristmill.ops.triton.linear import linear
from gristmill.ops.triton.moe import moe
from gristmill.ops.triton.quantized import Matrix, rows
from gristmill.ops.triton.quantized_layout import matrix_of
from gristmill.ops.triton.quantized_rows import quantize_rows
from gristmill.types import Batch

COLUMNS = 2048
TYPES = (QType.F32, QType.BF16, QType.INT8_ROWS, QType.Q8_0, QType.Q4_0, QType.MXFP4)


def put(qtype: QType, *shape: int) -> Matrix:
    return matrix_of([random_weight(qtype, shape)], None, lambda data: torch.tensor(data), RowQuantizer(1))


def launch() -> None:
    ints = torch.zeros(64, dtype=torch.int32)
    for qtype in TYPES:
        w = put(qtype, 128, COLUMNS)
        for n_tokens in (1, 16, 64, 600):
            linear(torch.zeros(n_tokens, COLUMNS, dtype=torch.bfloat16), w)
        rows(w, ints)
    gate_up, down = put(QType.MXFP4, 32, 128, COLUMNS), put(QType.MXFP4, 32, COLUMNS, 64)
    for n_tokens in (1, 600):
        x = torch.zeros(n_tokens, COLUMNS, dtype=torch.bfloat16)
        moe(x, torch.zeros(n_tokens, 32), gate_up, down, 4, 7.0, torch.bfloat16)
    quantize_rows(torch.zeros((1, 4, COLUMNS), dtype=torch.bfloat16))
    batch = Batch(*[ints] * 2, (ints,), *[ints] * 2, (ints.reshape(64, 1),), *[ints] * 6, ints.long(), *[ints] * 6)
    advance(batch, ints, [[]])


with compiling(90) as compiled:
    launch()
print(json.dumps([asdict(kernel) for kernel in compiled], default=sorted))
