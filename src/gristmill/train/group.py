"""The processes that train one model together, as `torchrun` starts them; one alone is a group too."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Group:
    """rank of size processes, and the device of this one."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and reports."""
        return self.rank == 0

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
            values /= self.size
        return values

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def join(device: str, n_threads: int) -> Iterator[Group]:
    """The group that torchrun's environment describes, nccl between GPUs, gloo elsewhere. device: auto, cpu or cuda."""
    torch.set_num_threads(n_threads)
    _keep_freed_memory()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    if cuda and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch finds no GPU; use --device cpu, or install torch with CUDA")
    local = torch.device("cpu")
    if cuda:
        local = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(local)
    if size > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Group(rank, size, local)
    finally:
        if size > 1:
            dist.destroy_process_group()


def _keep_freed_memory() -> None:
    """Have glibc use large arrays' memory again. Else it returns that to the system, which clears it for each step:
    up to a third of a small model's time."""
    if platform.libc_ver()[0] == "glibc":
        libc, trim_threshold, mmap_max = ctypes.CDLL(None), -1, -4  # as malloc.h numbers them
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, -1)  # never
