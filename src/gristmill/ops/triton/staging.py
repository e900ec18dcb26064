"""The way of a file's bytes onto the card."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STAGED = 64 << 20  # bytes copied at a time


class Staging:
    """Copies bytes to the device through two pinned buffers: one is filled from the file while the other is sent."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        pinned = device.type == "cuda"
        self._buffers = [torch.empty(_STAGED, dtype=torch.uint8, pin_memory=pinned) for _ in range(2)]
        self._sent = [torch.cuda.Event() for _ in range(2)]

    def __call__(self, data: NDArray[np.uint8]) -> Tensor:
        to = torch.empty(len(data), dtype=torch.uint8, device=self._device)
        for i, begin in enumerate(range(0, len(data), _STAGED)):
            buffer, sent = self._buffers[i % 2], self._sent[i % 2]
            part = data[begin : begin + _STAGED]
            sent.synchronize()
            np.copyto(buffer.numpy()[: len(part)], part)
            to[begin : begin + len(part)].copy_(buffer[: len(part)], non_blocking=True)
            sent.record()
        return to


def copied(data: NDArray[np.uint8]) -> Tensor:
    """Onto this processor, where kernels are interpreted."""
    return torch.from_numpy(np.array(data))
