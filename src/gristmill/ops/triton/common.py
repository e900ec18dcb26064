"""What the kernels share: whether they are interpreted, products of tiles, and sizes of tiles."""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
"""Whether kernels run in Triton's interpreter, on the CPU: TRITON_INTERPRET=1 was set before Triton was imported."""

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def dot(a, b, c):
    """a @ b + c of tiles a and b of one type, in float32; of float32 as three products of TF32."""
    if _INTERPRETED:  # it multiplies bfloat16 wrongly
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, c, input_precision="tf32x3")


def cdiv(n: int, size: int) -> int:
    """How many tiles of this size hold n things."""
    return -(-n // size)


def tile(n: int, smallest: int = 1) -> int:
    """The power of two that holds n things: tiles have no other sizes."""
    return max(smallest, 1 << max(0, n - 1).bit_length())
