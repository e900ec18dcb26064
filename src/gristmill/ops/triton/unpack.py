"""From the bits of a code to a number, exactly and in fewer cycles than a card's own conversions take.

A number of few bits becomes a part of a float's fraction or exponent, and one addition or product makes that float of
it. In Triton's interpreter, which knows no PTX, numbers are float32 and come by the slow way.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gristmill.ops.triton.common import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)


def _pairs(first: str, low: str, high: str, last: str, wide: bool) -> tl.constexpr:
    """PTX: of a register of four bytes, what their low bits say and then what the high ones say, in registers of two
    bfloat16, or of one float32 if wide. low, high: from register A, which has a byte in each half, to Y; first: makes
    constants for last."""
    of = 8 if wide else 4
    parts = ["{.reg .b32 a0, a1, m, z, y;", first, f"prmt.b32 a0, ${of}, 0, 0x4140; prmt.b32 a1, ${of}, 0, 0x4342;"]
    for i, (step, a) in enumerate(((low, "a0"), (low, "a1"), (high, "a0"), (high, "a1"))):
        parts.append((step + last).replace("A", a).replace("Y", "y" if wide else f"${i}"))
        if wide:
            parts.append(f"shl.b32 ${2 * i}, y, 16; and.b32 ${2 * i + 1}, y, 0xFFFF0000;")
    return tl.constexpr("".join(parts) + "}")


_E2M1 = (  # a sign, an exponent and a fraction where bfloat16 has them are 2^-127 times the doubled number
    "mov.b32 m, 0x7F007F00; mov.b32 z, 0x80008000;",
    "and.b32 Y, A, 0x000F000F; mul.lo.u32 Y, Y, 0x1040; and.b32 Y, Y, 0x81C081C0;",
    "and.b32 Y, A, 0x00F000F0; mul.lo.u32 Y, Y, 0x0104; and.b32 Y, Y, 0x81C081C0;",
    "fma.rn.bf16x2 Y, Y, m, z;",
)
_MINUS_8 = (  # the last bits of 128's fraction; minus 136
    "mov.b32 m, 0x3F803F80; mov.b32 z, 0xC308C308;",
    "and.b32 Y, A, 0x000F000F; or.b32 Y, Y, 0x43004300;",
    "shr.u32 Y, A, 4; and.b32 Y, Y, 0x000F000F; or.b32 Y, Y, 0x43004300;",
    "fma.rn.bf16x2 Y, Y, m, z;",
)
_INT8_NARROW = tl.constexpr(  # the last 7 bits of 128's fraction; minus 128 or, of negative numbers, 256
    "{.reg .b32 a0, a1, c0, c1, n; mov.b32 n, 0xBF80BF80; prmt.b32 a0, $2, 0, 0x4140; prmt.b32 a1, $2, 0, 0x4342;"
    "and.b32 c0, a0, 0x00800080; and.b32 c1, a1, 0x00800080; and.b32 a0, a0, 0x007F007F; and.b32 a1, a1, 0x007F007F;"
    "or.b32 c0, c0, 0x43004300; or.b32 c1, c1, 0x43004300; or.b32 a0, a0, 0x43004300; or.b32 a1, a1, 0x43004300;"
    "fma.rn.bf16x2 $0, c0, n, a0; fma.rn.bf16x2 $1, c1, n, a1;}"
)
_INT8_WIDE = tl.constexpr(  # the last bits of 2^23's fraction, 128 more than the number; minus 2^23 + 128
    "{.reg .b32 a, m; mov.b32 m, 0x4B000000; xor.b32 a, $4, 0x80808080;"
    + "".join(f"prmt.b32 ${i}, a, m, 0x744{i}; add.f32 ${i}, ${i}, 0fCB000080;" for i in range(4))
    + "}"
)
_E2M1_NARROW, _E2M1_WIDE = (_pairs(*_E2M1, wide) for wide in (False, True))
_MINUS_8_NARROW, _MINUS_8_WIDE = (_pairs(*_MINUS_8, wide) for wide in (False, True))


def _above_one(prepare: str) -> tl.constexpr:
    """PTX: bytes of registers a and b, which `prepare` makes, become the first byte of 1's fraction, and floats."""
    parts = ["{.reg .b32 a, b, p, m; mov.b32 m, 0x3F000000;", prepare]
    for j, register in enumerate("ab"):
        parts += [f"prmt.b32 ${4 * j + i}, {register}, m, 0x7{i}44;" for i in range(4)]
    return tl.constexpr("".join(parts) + "}")


_FOUR_BITS = _above_one(  # the first bits of the fraction, and the last one of 1's exponent above them
    "shl.b32 a, $8, 3; lop3.b32 a, a, 0x78787878, 0x80808080, 0xEA; shr.u32 b, $8, 1;"
    "lop3.b32 b, b, 0x78787878, 0x80808080, 0xEA;"
)
_SIX_BITS = _above_one(
    "shr.u32 p, $9, $10; shl.b32 a, p, 4; lop3.b32 a, $8, a, 0x0F0F0F0F, 0xE4;"
    "lop3.b32 a, a, 0x3F3F3F3F, 0x80808080, 0xEA;"
    "shr.u32 b, $8, 4; shl.b32 p, p, 2; lop3.b32 b, b, p, 0x0F0F0F0F, 0xE4;"
    "lop3.b32 b, b, 0x3F3F3F3F, 0x80808080, 0xEA;"
)
_OUT_8_SHIFTED = tl.constexpr(",".join(["=r"] * 8 + ["r"] * 6))
_OUT_2, _OUT_4, _OUT_8 = (tl.constexpr(",".join(["=r"] * n + ["r"])) for n in (2, 4, 8))


@triton.jit
def eight_bits(codes, TYPE: tl.constexpr):
    """int8 as TYPE, float32 or bfloat16."""
    if _INTERPRETED:
        return codes.to(tl.float32)
    elif tl.float32 == TYPE:
        return tl.inline_asm_elementwise(_INT8_WIDE, _OUT_4, [codes], tl.float32, True, 4)
    else:
        return tl.inline_asm_elementwise(_INT8_NARROW, _OUT_2, [codes], tl.bfloat16, True, 4)


@triton.jit
def four_bits(pairs, E2M1: tl.constexpr, TYPE: tl.constexpr):
    """What the low and the high bits of bytes say, of TYPE: float32 or bfloat16. Unsigned codes minus 8; or e2m1
    doubled: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives."""
    if _INTERPRETED:
        return _slowly(pairs & 15, E2M1), _slowly(pairs >> 4, E2M1)
    elif tl.float32 == TYPE:
        WIDE: tl.constexpr = _E2M1_WIDE if E2M1 else _MINUS_8_WIDE
        return tl.inline_asm_elementwise(WIDE, _OUT_8, [pairs], (tl.float32, tl.float32), True, 4)
    else:
        NARROW: tl.constexpr = _E2M1_NARROW if E2M1 else _MINUS_8_NARROW
        return tl.inline_asm_elementwise(NARROW, _OUT_4, [pairs], (tl.bfloat16, tl.bfloat16), True, 4)


@triton.jit
def four_bits_above_one(pairs):
    """1 + c / 16 in float32, of the codes c that the low and the high bits of bytes hold: a sum of products with such
    numbers, less the sum of what they are multiplied by, is that of codes, and takes no operation to make floats."""
    if _INTERPRETED:
        return 1 + (pairs & 15).to(tl.float32) / 16, 1 + (pairs >> 4).to(tl.float32) / 16
    else:
        return tl.inline_asm_elementwise(_FOUR_BITS, _OUT_8, [pairs], (tl.float32, tl.float32), True, 4)


@triton.jit
def six_bits_above_one(pairs, above, shift):
    """1 + c / 128 in float32, of codes c in the low and the high bits of `pairs` and two more bits each of `above`: the
    lowest ones of what is left when it is shifted by `shift`, int32 and the same for four neighbours."""
    if _INTERPRETED:
        bits = above >> shift.to(tl.uint8)
        low, high = (pairs & 15) | (bits & 3) << 4, (pairs >> 4) | (bits >> 2 & 3) << 4
        return 1 + low.to(tl.float32) / 128, 1 + high.to(tl.float32) / 128
    else:
        return tl.inline_asm_elementwise(
            _SIX_BITS, _OUT_8_SHIFTED, [pairs, above, shift], (tl.float32, tl.float32), True, 4
        )


@triton.jit
def _slowly(nibbles, E2M1: tl.constexpr):
    n = nibbles.to(tl.int32)
    if E2M1:
        size, exponent = n & 1, (n >> 1) & 3
        size = tl.where(exponent > 0, (size + 2) << tl.maximum(exponent - 1, 0), size)
        return tl.where(n >= 8, -size, size).to(tl.float32)
    else:
        return (n - 8).to(tl.float32)
