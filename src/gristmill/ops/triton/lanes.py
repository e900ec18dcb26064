"""Sums over lanes, neighbours in a row that one thread has in registers.

Triton adds products in a tree, which takes half as many operations more than to add them one after another. PTX does
that here with eight registers, which hold neighbours only where a thread loads as many bytes at once: codes of two in a
byte, whose rows are whole multiples of 32 bytes. Floats, and rows of any length, are added in trees. The interpreter
knows no PTX.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gristmill.ops.triton.common import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)


def _lane(n_results: int, first: str, next_one: str) -> tuple[tl.constexpr, tl.constexpr]:
    """PTX for 8 numbers each of a and b, and its constraints: all 8 of a result are a sum, s0 or s1."""
    a, b = ([f"${8 * n + i}" for i in range(8)] for n in (n_results, n_results + 1))
    parts = ["{.reg .f32 s0, s1;", first.replace("A", a[0]).replace("B", b[0])]
    parts += [next_one.replace("A", a[i]).replace("B", b[i]) for i in range(1, 8)]
    parts += [f"mov.f32 ${8 * n + i}, s{n};" for n in range(n_results) for i in range(8)]
    return tl.constexpr("".join(parts) + "}"), tl.constexpr(",".join(["=f"] * 8 * n_results + ["f"] * 16))


_PRODUCTS, _ONE_RESULT = _lane(1, "mul.f32 s0, A, B;", "fma.rn.f32 s0, A, B, s0;")
_BOTH, _TWO_RESULTS = _lane(2, "mul.f32 s0, A, B; mov.f32 s1, B;", "fma.rn.f32 s0, A, B, s0; add.f32 s1, s1, B;")


@triton.jit
def sums_in_tree(values, R: tl.constexpr, K: tl.constexpr, LANE: tl.constexpr):
    """float32 [R, K / LANE]: sums of values [R, K] over lanes."""
    return tl.sum(tl.reshape(values, (R, K // LANE, LANE)), axis=2)


@triton.jit
def sums_of_products(a, b, R: tl.constexpr, K: tl.constexpr, LANE: tl.constexpr):
    """float32 [R, K / LANE]: sums of a [R, K] times b [1, K] over lanes."""
    b = tl.broadcast_to(b, (R, K))
    if _INTERPRETED:
        return sums_in_tree(a * b, R, K, LANE)
    else:
        return _one_of_each(tl.inline_asm_elementwise(_PRODUCTS, _ONE_RESULT, [a, b], tl.float32, True, 8), R, K, LANE)


@triton.jit
def sums_of_products_and_factors(a, b, R: tl.constexpr, K: tl.constexpr, LANE: tl.constexpr):
    """`sums_of_products`, and the sums of b alone, [R, K / LANE] too: they are computed once for all rows."""
    b = tl.broadcast_to(b, (R, K))
    if _INTERPRETED:
        return sums_in_tree(a * b, R, K, LANE), sums_in_tree(b, R, K, LANE)
    else:
        both = tl.inline_asm_elementwise(_BOTH, _TWO_RESULTS, [a, b], (tl.float32, tl.float32), True, 8)
        return _one_of_each(both[0], R, K, LANE), _one_of_each(both[1], R, K, LANE)


@triton.jit
def _one_of_each(values, R: tl.constexpr, K: tl.constexpr, LANE: tl.constexpr):
    """Of eights whose numbers are the same, added to lanes."""
    eights = tl.reduce(tl.reshape(values, (R, K // 8, 8)), 2, _either)
    if LANE == 8:
        return eights
    else:
        return tl.sum(tl.reshape(eights, (R, K // LANE, LANE // 8)), axis=2)


@triton.jit
def _either(a, b):
    return a
