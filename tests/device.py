"""Moves arrays to where Triton's kernels run in tests: a card, or this processor where they are interpreted."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime import interpreter

from gristmill.ops.triton.common import INTERPRETED
from gristmill.types import Batch

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")


def patch_once_a_launch() -> None:
    """Triton's interpreter prepares its language again for each function that a kernel calls, which is a third of its
    time: once a launch for each module will do."""
    launch, patched = interpreter.GridExecutor.__call__, set[int]()

    def launched(self: Any, *args: Any, **given: Any) -> Any:
        patched.clear()
        return launch(self, *args, **given)

    def called(self: Any, *args: Any, **given: Any) -> Any:
        if id(self.fn.__globals__) not in patched:
            patched.add(id(self.fn.__globals__))
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **given)

    interpreter.GridExecutor.__call__ = launched
    interpreter.InterpretedFunction.__call__ = called


if INTERPRETED:
    patch_once_a_launch()


def on(array: NDArray[Any], dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE, dtype)


def off(tensor: torch.Tensor) -> NDArray[Any]:
    tensor = tensor.cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor).numpy()


def batch_on(batch: Batch) -> Batch:
    """The same batch in tensors."""
    values = (getattr(batch, field.name) for field in fields(batch))
    return Batch(
        *(tuple(map(on, v)) if isinstance(v, tuple) else on(v) if isinstance(v, np.ndarray) else v for v in values)
    )
