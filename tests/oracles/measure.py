"""How far logits may be from a reference when a kernel rounds its activations, and where that question is fair.

Random models have flat distributions, so top-1 is asked only where the reference's two best logits stand CLEAR apart;
a model with experts is asked only where, in every layer, the choice of experts is CLEAR: elsewhere the slightest
rounding decides. Activations rounded to int8, in blocks of 256 for K types and, with powers of two for scales, of 32
for others (in Intel's tiles of 256 for all), move the logits of the wide models by 0.02, which costs 2e-4 of KL; with
experts, 5e-4 to 8e-4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from oracles.oracle import Oracle

CLEAR = 0.1
MIN_TOP1 = 0.99


@dataclass(frozen=True, slots=True)
class Agreement:
    """mean_kl and max_kl in nats over n positions; top1 is a share of the n_clear positions with a clear best token."""

    mean_kl: float
    max_kl: float
    top1: float
    n: int
    n_clear: int


def log_softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def agreement(oracle: Oracle, ids: list[int], logits: NDArray[np.float32]) -> Agreement:
    """Compare `logits` [T, vocab] for `ids` with the oracle's, over the positions that are fair to ask."""
    fair = oracle.router_margins(ids) > CLEAR
    reference, logits = oracle.logits(ids)[fair], logits[fair]
    p, q = log_softmax(reference), log_softmax(logits)
    kl = (np.exp(p) * (p - q)).sum(axis=-1)
    second, first = np.partition(reference, -2, axis=-1)[:, -2:].T
    clear = first - second > CLEAR
    same = reference.argmax(-1) == logits.argmax(-1)
    assert clear.sum() >= 100, f"{oracle.path.name}: only {clear.sum()} of {len(ids)} positions say anything"
    return Agreement(float(kl.mean()), float(kl.max()), float(same[clear].mean()), len(kl), int(clear.sum()))


def int8_cost(oracle: Oracle, ids: list[int]) -> Agreement:
    """The oracle against itself with the input of every linear layer rounded to int8, one scale for 32 numbers."""

    def rounded(_module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        x = inputs[0]
        if x.shape[-1] % 32:
            return inputs
        blocks = x.unflatten(-1, (-1, 32))
        scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
        return ((blocks / scale).round() * scale).flatten(-2), *inputs[1:]

    linear = [module for module in oracle.model.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [module.register_forward_pre_hook(rounded) for module in linear]
    logits = oracle.logits(ids)
    for hook in hooks:
        hook.remove()
    return agreement(oracle, ids, logits)
