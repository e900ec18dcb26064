"""What the kernels share: whether they are interpreted, products of tiles, and sizes of tiles."""

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.language.target_info import cuda_capability_geq, current_target

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
"""Whether kernels run in Triton's interpreter, on the CPU: TRITON_INTERPRET=1 was set before Triton was imported."""

_INTERPRETED = tl.constexpr(INTERPRETED)
_CHAINING = tl.constexpr(9)  # capability of Hopper, whose kernels may begin before the ones they follow have ended


@cache
def chained() -> dict[str, bool]:
    """How a kernel that begins with `follow` is launched: where the card can do that, beside the end of the one before
    it, as NVIDIA's "programmatic dependent launch" has it."""
    target = None if INTERPRETED else current_target()
    can = target is not None and target.backend == "cuda" and target.arch >= 10 * _CHAINING.value
    return {"launch_pdl": True} if can else {}


@cache
def is_roomy() -> bool:
    """Whether programs may have 227 KiB of shared memory and fetch whole tiles by themselves (Hopper's "TMA"), as on
    H100, H200 and B200; consumer cards have 99 KiB."""
    target = None if INTERPRETED else current_target()
    return target is None or (target.backend == "cuda" and target.arch in (90, 100, 103))


@triton.jit
def let_next_begin():
    """The kernel after this one may begin, and wait, once all programs of this one are here."""
    if not _INTERPRETED:  # noqa: SIM102 (known when the kernel is compiled)
        if cuda_capability_geq(_CHAINING, 0):
            gdc_launch_dependents()


@triton.jit
def wait_for_last():
    """Until the kernels before this one have ended. Only what none of them writes may be read before, and nothing be
    written; every program must come here, or the kernel after this one would not wait for all of them."""
    if not _INTERPRETED:  # noqa: SIM102 (known when the kernel is compiled)
        if cuda_capability_geq(_CHAINING, 0):
            gdc_wait()


@triton.jit
def follow():
    """Where a kernel begins that reads what others wrote."""
    let_next_begin()
    wait_for_last()


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
