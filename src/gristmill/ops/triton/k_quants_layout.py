"""From blocks of the K types to the codes and scales of `quantized.Matrix`, number for number.

Layouts: formats/blocks.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gristmill.formats.qtypes import QType

TYPES = (QType.Q2_K, QType.Q3_K, QType.Q4_K, QType.Q5_K, QType.Q6_K)

_AT_ONCE = 1 << 26  # numbers: what they are taken apart into is several times the bytes of their blocks


def four_bits(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Q4_K, uint8 [E, rows, n, 144] -> codes uint8 [E, rows, 128 n], int32 [E, rows, 5 n]."""
    scales, minimums = _scales_and_minimums(blocks[..., 4:16])
    return blocks[..., 16:].flatten(-2), _words(blocks[..., :4], scales, minimums)


def six_bits(qtype: QType, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """One of TYPES, uint8 [E, rows, n, block bytes] -> codes uint8 [E, rows, 192 n], int32 [E, rows, 9 n].

    OverflowError where a scale of scales leaves float16 as its minimum needs it: numbers above 60,000.
    """
    n_experts, n_rows, n, _ = blocks.shape
    codes = torch.empty((n_experts, n_rows, 192 * n), dtype=torch.uint8, device=blocks.device)
    words = torch.empty((n_experts, n_rows, 9 * n), dtype=torch.int32, device=blocks.device)
    at_once = max(1, _AT_ONCE // (n_experts * n * 256))
    for parts in zip(*(tensor.split(at_once, dim=1) for tensor in (blocks, codes, words)), strict=True):
        numbers, halves, scales, minimums = _DECODERS[qtype](parts[0])
        of_128 = numbers.unflatten(-1, (2, 4, 32))
        low, above = of_128 & 15, of_128 >> 4
        pairs = low[..., 0::2, :] | low[..., 1::2, :] << 4
        upper = above[..., 0, :] | above[..., 1, :] << 2 | above[..., 2, :] << 4 | above[..., 3, :] << 6
        parts[1].copy_(torch.cat((pairs.flatten(-4), upper.flatten(-3)), dim=-1))
        parts[2].copy_(_words(halves, scales, minimums))
    return codes, words


def _words(halves: Tensor, scales: Tensor, minimums: Tensor) -> Tensor:
    """Of each block its two float16, 4 bytes, and then scale and minimum in turns, bytes: int32 [E, rows, words]."""
    of_block = torch.cat((halves, torch.stack((scales, minimums), dim=-1).flatten(-2)), dim=-1)
    return of_block.contiguous().view(torch.int32).flatten(-2)


def _scales_and_minimums(packed: Tensor) -> tuple[Tensor, Tensor]:
    """8 scales and 8 minimums of 6 bits from 12 bytes: the first 4 of each whole, the last 4 in three pieces."""
    first, second, third = packed.unflatten(-1, (3, 4)).unbind(-2)
    scales = torch.cat((first & 63, third & 15 | first >> 6 << 4), dim=-1)
    minimums = torch.cat((second & 63, third >> 4 | second >> 6 << 4), dim=-1)
    return scales, minimums


def _planes(packed: Tensor, n_bits: int, run: int) -> Tensor:
    """[..., K] -> [..., K * 8 / n_bits]: of each run of bytes first the lowest bits of all, then the next ones."""
    runs = packed.unflatten(-1, (-1, run))
    planes = [runs >> shift & ((1 << n_bits) - 1) for shift in range(0, 8, n_bits)]
    return torch.stack(planes, dim=-2).flatten(-3)


_Decoded = tuple[Tensor, Tensor, Tensor, Tensor]
"""Codes 0 .. 63 [..., 256], the two float16 [..., 4], scales and minimums for 16 columns [..., 16], all uint8."""


def _q2_k(b: Tensor) -> _Decoded:
    return _planes(b[..., 16:80], 2, 32), b[..., 80:84], b[..., :16] & 15, b[..., :16] >> 4


def _q3_k(b: Tensor) -> _Decoded:
    """Codes minus 4: the minimum is four times the scale."""
    low = _planes(b[..., 96:104], 4, 8)
    high = _planes(b[..., 104:108], 2, 4)
    scales = (low | high << 4) - 32  # int8, as its bits go
    codes = _planes(b[..., 32:96], 2, 32) | _planes(b[..., :32], 1, 32) << 2
    return codes, _with_multiple(b[..., 108:110], 4), scales, scales


def _q4_k(b: Tensor) -> _Decoded:
    scales, minimums = _scales_and_minimums(b[..., 4:16])
    return _planes(b[..., 16:], 4, 32), b[..., :4], _twice(scales), _twice(minimums)


def _q5_k(b: Tensor) -> _Decoded:
    scales, minimums = _scales_and_minimums(b[..., 4:16])
    codes = _planes(b[..., 48:], 4, 32) | _planes(b[..., 16:48], 1, 32) << 4
    return codes, b[..., :4], _twice(scales), _twice(minimums)


def _q6_k(b: Tensor) -> _Decoded:
    """Codes minus 32: the minimum is 32 times the scale."""
    codes = _planes(b[..., :128], 4, 64) | _planes(b[..., 128:192], 2, 32) << 4
    scales = b[..., 192:208]
    return codes, _with_multiple(b[..., 208:210], 32), scales, scales


def _twice(of_32: Tensor) -> Tensor:
    return of_32.repeat_interleave(2, dim=-1)


def _with_multiple(half: Tensor, factor: int) -> Tensor:
    """The two bytes of a float16, and those of its multiple."""
    d = half.contiguous().view(torch.float16)
    multiple = d * factor
    if bool((torch.isfinite(d) & ~torch.isfinite(multiple)).any()):
        raise OverflowError
    return torch.cat((d, multiple), dim=-1).view(torch.uint8)


_DECODERS = {QType.Q2_K: _q2_k, QType.Q3_K: _q3_k, QType.Q4_K: _q4_k, QType.Q5_K: _q5_k, QType.Q6_K: _q6_k}
