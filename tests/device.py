"""Moves arrays to where Triton's kernels run in tests: a card, or this processor where they are interpreted."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gristmill.ops.triton.common import INTERPRETED
from gristmill.types import Batch

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")


def on(array: NDArray[Any], dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE, dtype)


def off(tensor: torch.Tensor) -> NDArray[Any]:
    tensor = tensor.cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor).numpy()


def batch_on(batch: Batch) -> Batch:
    """The same batch in tensors."""
    values = (getattr(batch, field.name) for field in fields(batch))
    return Batch(*(tuple(map(on, v)) if isinstance(v, tuple) else v if v is None else on(v) for v in values))
