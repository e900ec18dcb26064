"""From a file's weights to a `Matrix` on the device: which type it is kept as, and the kernels' order of its bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize import quantize
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.ops.triton import k_quants_layout, quantized
from gristmill.ops.triton.quantized import GROUP, Matrix
from gristmill.ops.triton.quantized_rows import quantize_rows

Upload = Callable[[NDArray[np.uint8]], Tensor]
"""Bytes as a uint8 tensor on the device."""

_FLOATS = {QType.F32: torch.float32, QType.F16: torch.float16, QType.BF16: torch.bfloat16}
_KINDS = {
    QType.INT8_ROWS: quantized.INT8_ROWS,
    QType.Q8_0: quantized.Q8_0,
    QType.Q8_GROUPS: quantized.Q8_0,
    QType.Q4_0: quantized.Q4_0,
    QType.MXFP4: quantized.MXFP4,
    QType.MXFP4_SPLIT: quantized.MXFP4,
    QType.Q4_K: quantized.Q4_K,
    QType.Q2_K: quantized.SIX_BITS,
    QType.Q3_K: quantized.SIX_BITS,
    QType.Q5_K: quantized.SIX_BITS,
    QType.Q6_K: quantized.SIX_BITS,
}


def requantized(weights: Sequence[Weight]) -> list[Weight]:
    """Those of a stack that `matrix_of` keeps as Q8_0 though nobody asked for that."""
    if _are_k_types(weights) or not _become_q8_0(weights):
        return []
    return [weight for weight in weights if weight.quantize_to is None and weight.qtype is not QType.Q8_0]


def _are_k_types(weights: Sequence[Weight]) -> bool:
    return all(weight.qtype in k_quants_layout.TYPES and weight.quantize_to is None for weight in weights)


def _become_q8_0(weights: Sequence[Weight]) -> bool:
    """All of what are not K types alone."""
    targets = {weight.quantize_to or (weight.qtype if _has_kernel(weight) else QType.Q8_0) for weight in weights}
    return targets <= {QType.Q8_0, *k_quants_layout.TYPES}


def _has_kernel(weight: Weight) -> bool:
    """Whether the weight is kept as it is, or FP8 as bfloat16; others as Q8_0, odd groups of scales as float32."""
    return weight.qtype.kept_as_float or weight.qtype in _KINDS


def matrix_of(
    weights: Sequence[Weight], bias: NDArray[np.float32] | None, upload: Upload, quantizer: RowQuantizer
) -> Matrix:
    """The weights' rows stacked in order. K types that differ are kept as codes of six bits, number for number. Others
    that differ are Q8_0 if that is what is kept of all that are no K types, float32 if one of them is that, and else
    bfloat16.

    quantizer  makes blocks of what has no kernel, and of floats that are to be blocks
    ValueError names a weight that cannot be quantized or is too large.
    """
    weights = _alike(weights, quantizer)
    qtype = weights[0].quantize_to or weights[0].qtype
    kind = _KINDS.get(qtype, quantized.FLOAT) if _one_type(weights) else quantized.SIX_BITS
    parts = [_laid(weight, upload, kind) for weight in weights]
    codes, scales = (_stacked([part[i] for part in parts]) for i in range(2))
    assert codes is not None
    name = weights[0].name
    if codes.shape[1] * codes.shape[2] >= 2**31:
        raise ValueError(
            f"tensor {name}: a matrix of 2^31 numbers or more is too large for the kernels: use device cpu"
        )
    if qtype is QType.INT8_ROWS and weights[0].quantize_to:
        codes, scales = quantize_rows(codes)
        if not torch.isfinite(scales).all():
            raise ValueError(
                f"tensor {name} holds numbers that are not finite and cannot be quantized: use --quantize none"
            )
    on_device = None
    if bias is not None:
        on_device = upload(_bytes(bias.astype(np.float32))).view(torch.float32).reshape(codes.shape[:2])
    return Matrix(kind.value, codes, scales, on_device, weights[0].shape[-1])


def _alike(weights: Sequence[Weight], quantizer: RowQuantizer) -> Sequence[Weight]:
    """Of one type that has a kernel, but for floats that the device will make int8 of; or K types."""
    weights = [weight if weight.qtype is not QType.FP8_GROUPS else _rounded(weight, quantizer) for weight in weights]
    weights = [weight if _groups_fit(weight) else _as_float(weight, QType.F32) for weight in weights]
    if _are_k_types(weights):
        return weights
    if _become_q8_0(weights):
        return [_encoded(weight, QType.Q8_0, quantizer) for weight in weights]
    if not _one_type(weights):
        kept = QType.F32 if any(weight.qtype is QType.F32 for weight in weights) else QType.BF16
        return [_as_float(weight, kept) for weight in weights]
    target = weights[0].quantize_to
    if target is None or target is QType.INT8_ROWS:
        return weights
    return [_encoded(weight, target, quantizer) for weight in weights]


def _one_type(weights: Sequence[Weight]) -> bool:
    return len({(weight.qtype, weight.quantize_to) for weight in weights}) == 1


def _encoded(weight: Weight, target: QType, quantizer: RowQuantizer) -> Weight:
    if weight.qtype is target:
        return weight
    return Weight(weight.name, np.concatenate(list(quantizer.encode(weight, target))), target, weight.shape)


def _rounded(weight: Weight, quantizer: RowQuantizer) -> Weight:
    return replace(_encoded(weight, QType.BF16, quantizer), quantize_to=weight.quantize_to)


def _as_float(weight: Weight, qtype: QType) -> Weight:
    """What is to be quantized has the values that it would have then. bfloat16 is rounded to nearest even."""
    if weight.qtype is qtype and weight.quantize_to is None:
        return weight
    values = torch.from_numpy(np.array(dequantize(quantize(weight)))).to(_FLOATS[qtype])
    return Weight(weight.name, values.reshape(-1).view(torch.uint8).numpy(), qtype, weight.shape)


def _groups_fit(weight: Weight) -> bool:
    """Whether those of Q8_GROUPS are whole groups of the kernels'."""
    if weight.qtype is not QType.Q8_GROUPS:
        return True
    assert weight.scales is not None
    return weight.shape[-1] % GROUP == 0 and len(weight.data) // weight.scales.size % GROUP == 0


def _laid(weight: Weight, upload: Upload, kind: tl.constexpr) -> tuple[Tensor, Tensor | None]:
    """(codes [E, rows, n_stored], scales [E, rows, ..])."""
    qtype, cols, n_experts = weight.qtype, weight.shape[-1], math.prod(weight.shape[:-2])
    order = None if weight.row_order is None else upload(_bytes(weight.row_order)).view(torch.int32)

    def rows_of(flat: Tensor, *row: int) -> Tensor:
        stored = flat.reshape(n_experts, -1, *row)
        return stored if order is None else stored.index_select(1, order)

    raw = upload(weight.data)
    if qtype.is_float:
        return rows_of(raw.view(_FLOATS[qtype]), cols), None
    if qtype is QType.INT8_ROWS:
        return rows_of(raw.view(torch.int8), cols), rows_of(_scales(weight, upload).view(torch.float32))
    if qtype is QType.Q8_GROUPS:
        assert weight.scales is not None
        repeats = len(weight.data) // weight.scales.size // GROUP
        scales = _scales(weight, upload).view(torch.float32).repeat_interleave(repeats)
        return rows_of(raw.view(torch.int8), cols), rows_of(scales, cols // GROUP)
    if qtype is QType.MXFP4_SPLIT:
        nibbles = rows_of(raw, cols // GROUP, 16)
        neighbours = torch.stack((nibbles & 15, nibbles >> 4), dim=-1).flatten(-2)
        return _paired(neighbours), _even(rows_of(_scales(weight, upload), cols // GROUP))
    blocks = rows_of(raw, cols // qtype.block_size, qtype.block_bytes)
    if kind == quantized.Q4_K:
        return k_quants_layout.four_bits(blocks)
    if kind == quantized.SIX_BITS:
        try:
            return k_quants_layout.six_bits(qtype, blocks)
        except OverflowError:
            raise ValueError(
                f"tensor {weight.name}: a scale of its {qtype.label} blocks is too large for a card: use device cpu"
            ) from None
    n_scale = 1 if qtype is QType.MXFP4 else 2
    scales, codes = blocks[..., :n_scale].contiguous(), blocks[..., n_scale:].contiguous()
    scales = scales.squeeze(-1) if n_scale == 1 else scales.view(torch.float16).squeeze(-1)
    if qtype is QType.Q8_0:
        return codes.view(torch.int8).flatten(-2), scales
    return _paired(torch.cat((codes & 15, codes >> 4), dim=-1)), _even(scales)


def _paired(nibbles: Tensor) -> Tensor:
    """4-bit codes of [E, rows, groups, 32] as `Matrix` keeps them: [E, rows, 32 n]."""
    if nibbles.shape[2] % 2:
        nibbles = torch.nn.functional.pad(nibbles, (0, 0, 0, 1))
    low, high = nibbles[:, :, 0::2], nibbles[:, :, 1::2]
    return (low | high << 4).flatten(-2)


def _even(scales: Tensor) -> Tensor:
    """[E, rows, groups], with one group of zeros more where they are odd."""
    return torch.nn.functional.pad(scales, (0, scales.shape[2] % 2)).contiguous()


def _stacked(parts: list[Tensor | None]) -> Tensor | None:
    tensors = [part for part in parts if part is not None]
    if not tensors:
        return None
    return tensors[0].contiguous() if len(tensors) == 1 else torch.cat(tensors, dim=1)


def _scales(weight: Weight, upload: Upload) -> Tensor:
    assert weight.scales is not None
    return upload(_bytes(weight.scales))


def _bytes(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
