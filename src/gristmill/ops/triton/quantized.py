"""Matrices as kernels read them: floats, or codes of 8, 6 or 4 bits with scales, turned into floats a tile at a time.

What is stored is what the file says, number for number; only its order in memory is the kernels' (see
`quantized_layout`). E experts (1 where there are none), R rows, K columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.common import INTERPRETED, cdiv, chained, follow, tile
from gristmill.ops.triton.unpack import eight_bits, four_bits, four_bits_above_one, six_bits_above_one

FLOAT = tl.constexpr(0)
INT8_ROWS = tl.constexpr(1)
Q8_0 = tl.constexpr(2)
Q4_0 = tl.constexpr(3)  # from here on two codes share a byte
MXFP4 = tl.constexpr(4)
Q4_K = tl.constexpr(5)  # from here on with minimums, and scales of scales for 256 columns
SIX_BITS = tl.constexpr(6)

GROUP = 32
"""Columns that share a scale."""

_INTERPRETED = tl.constexpr(INTERPRETED)


@dataclass(frozen=True, slots=True)
class Matrix:
    """w [E, rows, cols] and what is added to the products.

    kind    FLOAT      codes float32, float16 or bfloat16 [E, rows, cols]
            INT8_ROWS  codes int8 [E, rows, cols], scales float32 [E, rows]
            Q8_0       codes int8 [E, rows, cols], scales float16 or float32 [E, rows, cols / 32]
            Q4_0       codes uint8 [E, rows, 32 n] for n pairs of groups: byte 32 i + j holds column 64 i + j in its low
                       bits and 64 i + 32 + j in its high ones; scales float16 [E, rows, 2 n]; where the last group has
                       no partner, that is zeros
            MXFP4      as Q4_0, scales uint8: exponents of 2, plus 127 (OCP Microscaling Formats v1.0)
            Q4_K       as Q4_0, codes 0 .. 15; a number is its code times a scale minus a minimum. scales int32
                       [E, rows, 5 n] for n blocks of 256 columns: two float16, of scales and of minimums, then for each
                       pair of groups four int8 that these are multiplied by: scale and minimum of one, of the other
            SIX_BITS   what the other K types are, codes 0 .. 63: codes uint8 [E, rows, 192 n] for n blocks, of a row
                       first the low four bits of all as Q4_0, then two more bits: byte 32 i + j holds those of columns
                       128 i + j, + 32, + 64, + 96, the first lowest. scales int32 [E, rows, 9 n]: as Q4_K, but the four
                       int8 are for each group: scale and minimum of its first 16 columns, of the others
    bias    float32 [E, rows] or None
    """

    kind: int
    codes: Tensor
    scales: Tensor | None
    bias: Tensor | None
    cols: int

    @property
    def n_matrices(self) -> int:
        return self.codes.shape[0]

    @property
    def rows(self) -> int:
        return self.codes.shape[1]

    @property
    def n_bytes(self) -> int:
        return sum(part.nbytes for part in (self.codes, self.scales, self.bias) if part is not None)

    @property
    def arithmetic(self) -> str:
        """What it is multiplied in, as `bench` calls that."""
        return "f32" if self.codes.dtype == torch.float32 else "bf16"

    @property
    def n_stored(self) -> int:
        """Codes in a row: columns, or bytes of two."""
        return self.cols // 2 if self.kind == SIX_BITS.value else self.codes.shape[2]

    @property
    def two_in_a_byte(self) -> bool:
        return self.kind >= Q4_0.value

    @property
    def dot_type(self) -> tl.dtype:
        """What tiles are multiplied in: bfloat16, which tensor cores like best and whose range nothing leaves; float32
        where the matrix is that, or where Triton's interpreter would read bfloat16 as something else."""
        return tl.float32 if INTERPRETED or self.codes.dtype == torch.float32 else tl.bfloat16


@triton.jit
def codes_in_row(n_stored, KIND: tl.constexpr):
    """How far it is from a row's codes to the next row's."""
    return n_stored + n_stored // 2 if KIND == SIX_BITS else n_stored


@triton.jit
def load_codes(codes, r, k, inside, n_stored, KIND: tl.constexpr):
    """[R, K] codes of rows r [R] and stored columns k [K]; of SIX_BITS their low four bits."""
    return tl.load(codes + r[:, None] * codes_in_row(n_stored, KIND) + k[None, :], mask=inside, other=0)


@triton.jit
def load_above(codes, r, k, inside, n_stored, KIND: tl.constexpr):
    """Of SIX_BITS the bytes [R, K] that hold what `load_codes` leaves out, and by how much they are to be shifted for
    that, [1, K]. Of all else two zeros."""
    if KIND == SIX_BITS:
        at = n_stored + k // 64 * 32 + k % 32
        above = tl.load(codes + r[:, None] * codes_in_row(n_stored, KIND) + at[None, :], mask=inside, other=0)
        return above, (k // 32 % 2 * 4)[None, :]
    else:
        return 0, 0


@triton.jit
def load_scales(scales, r, group, inside, n_groups, KIND: tl.constexpr):
    """[R, G] of rows r [R] and groups [G], float32; MXFP4's are bfloat16, and halved, as its codes are doubled."""
    s = tl.load(scales + r[:, None] * n_groups + group[None, :], mask=inside, other=0)
    if KIND == MXFP4:
        s = s.to(tl.int32)
        bits = tl.where(s < 2, 0x20 << s, (s - 1) << 7)  # 2^(s - 128), subnormal for the smallest two
        if _INTERPRETED:  # it knows no such bfloat16
            return (bits << 16).to(tl.float32, bitcast=True)
        else:
            return bits.to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        return s.to(tl.float32)


@triton.jit
def scales_in_row(n_stored, KIND: tl.constexpr):
    """How many scales a row has."""
    if KIND == INT8_ROWS:
        return 1
    elif KIND == Q8_0:
        return n_stored // 32
    elif KIND == Q4_K:
        return n_stored // 128 * 5
    elif KIND == SIX_BITS:
        return n_stored // 128 * 9
    else:
        return n_stored // 16


@triton.jit
def load_scales_and_minimums(scales, r, k, inside, n_stored, KIND: tl.constexpr):
    """Of Q4_K and SIX_BITS, rows r [R] and stored columns k [G], float32 [R, G]: scale and minimum of what the low bits
    hold, and of the high ones. The scale is of numbers as `codes_above_one` has them, 16 or 128 times what it is."""
    block, pair = k // 128, k // 32 % 4
    at = scales + r[:, None] * scales_in_row(n_stored, KIND) + block[None, :] * (5 if KIND == Q4_K else 9)
    both = tl.load(at, mask=inside, other=0)
    d, d_minimum = _half(both) * (16 if KIND == Q4_K else 128), _half(both >> 16)
    if KIND == Q4_K:
        low = tl.load(at + 1 + pair[None, :], mask=inside, other=0)
        high = low >> 16
    else:
        of_16 = (k // 16 % 2 * 16)[None, :]
        low = tl.load(at + 1 + 2 * pair[None, :], mask=inside, other=0) >> of_16
        high = tl.load(at + 2 + 2 * pair[None, :], mask=inside, other=0) >> of_16
    return d * _int8(low), d_minimum * _int8(low >> 8), d * _int8(high), d_minimum * _int8(high >> 8)


@triton.jit
def codes_above_one(pairs, above, shift, KIND: tl.constexpr):
    """Of Q4_K 1 + c / 16, of SIX_BITS 1 + c / 128, of the codes c in the low and in the high bits."""
    if KIND == Q4_K:
        return four_bits_above_one(pairs)
    else:
        return six_bits_above_one(pairs, above, shift)


@triton.jit
def _half(bits):
    """The float16 in the low 16 of 32 bits."""
    return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _int8(bits):
    """The int8 in the low 8 of 32 bits."""
    return (bits << 24 >> 24).to(tl.float32)


@triton.jit
def for_each(s, R: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    """s [R, K / GROUP] as [R, K]."""
    return tl.reshape(tl.broadcast_to(tl.expand_dims(s, 2), (R, K // GROUP, GROUP)), (R, K))


@triton.jit
def plain_tile(
    codes, scales, r, r_inside, k0, n_stored, KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr, TYPE: tl.constexpr
):  # fmt: skip
    """[R, K] numbers of stored columns k0 .. k0 + K of a matrix with one column a code. INT8_ROWS is left unscaled, and
    of TYPE; floats are left as they are."""
    k = k0 + tl.arange(0, K)
    tile = load_codes(codes, r, k, r_inside[:, None] & (k < n_stored)[None, :], n_stored, KIND)
    if KIND == Q8_0:
        group = k0 // 32 + tl.arange(0, K // 32)
        n_groups = n_stored // 32
        s = load_scales(scales, r, group, r_inside[:, None] & (group < n_groups)[None, :], n_groups, KIND)
        return eight_bits(tile, tl.float32) * for_each(s, R, K, 32)
    elif KIND == INT8_ROWS:
        return eight_bits(tile, TYPE)
    else:
        return tile


@triton.jit
def paired_tiles(codes, scales, r, r_inside, k0, n_stored, KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr):
    """Two tiles [R, K] of bytes k0 .. k0 + K: what the low bits hold, and the high ones. Float32; of MXFP4 bfloat16, in
    which its numbers are exact."""
    k = k0 + tl.arange(0, K)
    inside = r_inside[:, None] & (k < n_stored)[None, :]
    pairs = load_codes(codes, r, k, inside, n_stored, KIND)
    if KIND >= Q4_K:
        G: tl.constexpr = 32 if KIND == Q4_K else 16
        first = k0 + G * tl.arange(0, K // G)
        real = r_inside[:, None] & (first < n_stored)[None, :]
        low_s, low_m, high_s, high_m = load_scales_and_minimums(scales, r, first, real, n_stored, KIND)
        above, shift = load_above(codes, r, k, inside, n_stored, KIND)
        low, high = codes_above_one(pairs, above, shift, KIND)
        low = (low - 1) * for_each(low_s, R, K, G) - for_each(low_m, R, K, G)
        high = (high - 1) * for_each(high_s, R, K, G) - for_each(high_m, R, K, G)
        return low, high
    else:
        pair = k0 // 32 + tl.arange(0, K // 32)
        n_groups = n_stored // 16
        real = r_inside[:, None] & (2 * pair < n_groups)[None, :]
        low_scales = load_scales(scales, r, 2 * pair, real, n_groups, KIND)
        high_scales = load_scales(scales, r, 2 * pair + 1, real, n_groups, KIND)
        low, high = four_bits(pairs, KIND == MXFP4, low_scales.dtype)
        return low * for_each(low_scales, R, K, 32), high * for_each(high_scales, R, K, 32)


@triton.jit
def first_columns(k0, K: tl.constexpr):
    """The columns [K] that the low bits of bytes k0 .. k0 + K hold; the high bits hold those 32 further."""
    k = k0 + tl.arange(0, K)
    return k // 32 * 64 + k % 32


def rows(table: Matrix, indices: Tensor) -> Tensor:
    """float32 [T, cols]: rows `indices` (int32 [T]) of a matrix without experts, bias left out."""
    return _rows_of(table, indices, len(indices), torch.float32)


def unpacked(w: Matrix, dtype: torch.dtype) -> Tensor:
    """All rows of a matrix without experts, [rows, cols], bias left out; those of INT8_ROWS without their scales."""
    return _rows_of(w, None, w.rows, dtype)


def _rows_of(table: Matrix, indices: Tensor | None, n_rows: int, dtype: torch.dtype) -> Tensor:
    y = torch.empty((n_rows, table.cols), dtype=dtype, device=table.codes.device)
    block = min(1024, tile(table.n_stored, 32))
    _rows[(n_rows, cdiv(table.n_stored, block))](
        y, indices, table.codes, table.scales, table.n_stored, table.cols, table.kind, block, **chained()
    )
    return y


@triton.jit
def _rows(y, indices, codes, scales, n_stored, n_cols, KIND: tl.constexpr, BLOCK: tl.constexpr):
    follow()
    t = tl.program_id(0).to(tl.int64)
    r = t + tl.zeros((1,), tl.int64)
    if indices is not None:
        r = tl.load(indices + t).to(tl.int64) + tl.zeros((1,), tl.int64)
    every = r >= 0
    k0 = tl.program_id(1) * BLOCK
    if KIND >= Q4_0:
        low, high = paired_tiles(codes, scales, r, every, k0, n_stored, KIND, 1, BLOCK)
        k = first_columns(k0, BLOCK)
        tl.store(y + t * n_cols + k[None, :], low, mask=(k < n_cols)[None, :])
        tl.store(y + t * n_cols + k[None, :] + 32, high, mask=(k + 32 < n_cols)[None, :])
    else:
        tile = plain_tile(codes, scales, r, every, k0, n_stored, KIND, 1, BLOCK, tl.float32).to(tl.float32)
        if KIND == INT8_ROWS:  # noqa: SIM102 (known when the kernel is compiled)
            if indices is not None:
                tile = tile * tl.load(scales + r)[:, None]
        k = k0 + tl.arange(0, BLOCK)
        tl.store(y + t * n_cols + k[None, :], tile, mask=(k < n_cols)[None, :])
