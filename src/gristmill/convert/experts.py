"""Experts as transformers' files keep them, one in memory at a time. Qwen3's are tensors of their own. gpt-oss's have
rows of gate and up in turn; MXFP4 is one tensor of blocks and one of scales, floats have rows and columns exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.convert.job import Job
from gristmill.convert.parts import Part
from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType
from gristmill.formats.write_gguf import NewTensor
from gristmill.formats.write_safetensors import NewBytes

_SIZE, _BYTES = QType.MXFP4_SPLIT.block_size, QType.MXFP4_SPLIT.block_bytes


def expert_tensors(job: Job, part: Part, qtype: QType) -> list[NewTensor | NewBytes]:
    """The tensors that hold `part`, weights [E, rows, cols], as `qtype`: MXFP4 or a float type. The blocks of MXFP4 are
    to be produced before the scales. ValueError for MXFP4 where cols is no multiple of 32."""
    n_experts, rows, cols = part.shape
    if "{e}" in part.name:
        return [job.tensor(_alone(part, e), qtype) for e in range(n_experts)]
    if qtype.is_float:
        return [NewTensor(part.name, qtype, (n_experts, cols, rows), lambda: _exchanged(job, part, qtype))]
    if cols % _SIZE:
        raise ValueError(f"{part.name}: rows of {cols} numbers are not whole blocks of mxfp4: give --type bf16 or f32")
    n_blocks, scales = cols // _SIZE, list[NDArray[np.uint8]]()

    def blocks() -> Iterator[NDArray[np.uint8]]:
        for encoded in _experts(job, part, QType.MXFP4):
            made = split_mxfp4(encoded)
            scales.append(made[1])
            yield made[0]

    return [
        NewBytes(f"{part.name}_blocks", (n_experts, rows, n_blocks, _BYTES), blocks),
        NewBytes(f"{part.name}_scales", (n_experts, rows, n_blocks), lambda: scales),
    ]


def split_mxfp4(encoded: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Whole blocks of MXFP4, which have numbers j and j + 16 in a byte, as MXFP4_SPLIT, which has 2 j and 2 j + 1: the
    codes [n, 16] and the scales [n]."""
    stored = encoded.reshape(-1, QType.MXFP4.block_bytes)
    pairs = np.ascontiguousarray(stored[:, 1:]).view("<u2")  # bytes 2 j and 2 j + 1 in one number
    codes = np.empty((len(stored), _BYTES), np.uint8)
    codes[:, : _BYTES // 2] = pairs & 0x0F | pairs >> 4 & 0xF0
    codes[:, _BYTES // 2 :] = pairs >> 4 & 0x0F | pairs >> 8 & 0xF0
    return codes, stored[:, 0].copy()


def _alone(part: Part, e: int) -> Part:
    """Expert e of `part`, which is one weight."""
    name = part.name.replace("{e}", str(e))
    return Part(name, part.qtype, part.shape[1:], lambda: tuple(_expert(weight, e) for weight in part.get()))


def _exchanged(job: Job, part: Part, qtype: QType) -> Iterator[NDArray[Any]]:
    """[cols, rows] of each expert."""
    for encoded in _experts(job, part, qtype):
        values = encoded.view(f"<u{qtype.block_bytes}").reshape(part.shape[1:])
        yield np.ascontiguousarray(values.T)


def _experts(job: Job, part: Part, qtype: QType) -> Iterator[NDArray[np.uint8]]:
    """The bytes of one expert after the other, as `qtype`, rows of the part's weights in turn."""
    weights = part.get()
    for i in range(part.shape[0]):
        each = []
        for weight in weights:
            is_last = weight is weights[-1] or weight.data is not weights[-1].data
            chunks = job.quantizer.encode(_expert(weight, i), qtype, job.leave if is_last else None)
            each.append(np.concatenate(list(chunks)).reshape(weight.shape[1], -1))
        encoded = np.stack(each, axis=1).reshape(-1)
        job.types[qtype.label] += encoded.nbytes
        yield encoded


def _expert(weight: Weight, i: int) -> Weight:
    """Weights [E, rows, cols] of expert i alone: [rows, cols]."""
    n_experts = weight.shape[0]
    scales = None if weight.scales is None else weight.scales.reshape(n_experts, -1)[i]
    return replace(weight, data=weight.data.reshape(n_experts, -1)[i], shape=weight.shape[1:], scales=scales)
