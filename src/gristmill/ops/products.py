"""Matrix products of training: by oneDNN where that is faster than what torch chooses.

torch gives float32 matrices to MKL, which leaves the widest vectors of processors that are not Intel's unused; oneDNN,
which torch brings along, does not. All else keeps torch's own products: bfloat16, GPUs, other processors.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """x [T, K] times w [N, K] transposed, plus bias [N] -> [T, N], with gradients."""
    if not _by_onednn(x, w):
        return F.linear(x, w, bias)
    y: Tensor = _Linear.apply(x, w)  # type: ignore[no-untyped-call]
    return y if bias is None else y + bias


def product(x: Tensor, w: Tensor) -> Tensor:
    """x [M, K] times w [N, K] transposed -> [M, N], without gradients. Both may be transposed views."""
    if not _by_onednn(x, w):
        return torch.mm(x, w.t())
    multiply = _opaque if torch.compiler.is_compiling() else _onednn
    return multiply(_packed(x), _packed(w))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return product(x, w)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, Tensor | None]:
        x, w = ctx.saved_tensors
        grad_x = product(grads[0], w.t()) if ctx.needs_input_grad[0] else None
        return grad_x, _of_weight(grads[0], x) if ctx.needs_input_grad[1] else None


def _of_weight(grad: Tensor, x: Tensor) -> Tensor:
    """grad [T, N] transposed times x [T, K] -> [N, K]; the smaller one first, because oneDNN copies that."""
    if grad.shape[1] <= x.shape[1]:
        return product(grad.t(), x.t())
    return product(x.t(), grad.t()).t()


def _by_onednn(x: Tensor, w: Tensor) -> bool:
    return (
        x.dtype == w.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and _has_onednn()
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_onednn() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn(x: Tensor, w: Tensor) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")
    return y


@torch.library.custom_op("gristmill::product", mutates_args=())
def _opaque(x: Tensor, w: Tensor) -> Tensor:
    """The same for torch.compile, which expects constant weights in oneDNN's operation and fails on others."""
    return _onednn(x, w)


@_opaque.register_fake
def _(x: Tensor, w: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[0])


def _packed(x: Tensor) -> Tensor:
    """x, copied where neither its rows nor its columns follow each other: on such oneDNN takes minutes."""
    return x if x.is_contiguous() or x.t().is_contiguous() else x.contiguous()
