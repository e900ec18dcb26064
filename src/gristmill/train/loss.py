"""The loss of a batch: the head and the cross-entropy in one, without all of its logits at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gristmill.ops.autograd import AutogradLinear
from gristmill.ops.products import product

CHUNK_NUMBERS = 1 << 22
"""Logits that are held at once, 16 MiB of float32: those of a whole batch would be the most memory of all."""


def cross_entropy(hidden: Tensor, head: AutogradLinear, targets: Tensor) -> Tensor:
    """The mean of -log softmax(hidden head^T)[target]: hidden [T, d_model], targets [T] -> a number, in nats."""
    assert head.bias is None
    loss: Tensor = _CrossEntropy.apply(hidden, head.w, targets)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Head and loss in one, a chunk of rows at a time. Gradients are computed on the way forward, where the logits are
    at hand: softmax(logits) - onehot(target) (the backward pass only scales them)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, w: Tensor, targets: Tensor) -> Tensor:
        n, vocab_size = len(hidden), len(w)
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        x, weight = hidden.to(dtype), w.to(dtype)
        wanted = any(ctx.needs_input_grad)
        grad_x = torch.empty_like(x) if wanted else None
        grad_w = torch.zeros_like(w) if wanted else None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        rows = max(1, CHUNK_NUMBERS // vocab_size)
        for begin in range(0, n, rows):
            part, target = x[begin : begin + rows], targets[begin : begin + rows, None]
            logits = product(part, weight)
            p = torch.log_softmax(logits.float(), dim=-1)
            total -= p.gather(1, target).sum()
            if grad_x is not None and grad_w is not None:
                p.exp_()
                p.scatter_add_(1, target, torch.full_like(target, -1, dtype=p.dtype))
                p = p.to(dtype)
                grad_x[begin : begin + rows] = product(p, weight.t())
                if p.dtype == grad_w.dtype:
                    grad_w.addmm_(p.t(), part)
                else:
                    grad_w += p.t() @ part
        if grad_x is not None and grad_w is not None:
            ctx.save_for_backward(grad_x.to(hidden.dtype), grad_w)
        ctx.n = n
        return total / n

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        grad_x, grad_w = ctx.saved_tensors
        scale = grads[0] / ctx.n
        return grad_x * scale, grad_w * scale, None
