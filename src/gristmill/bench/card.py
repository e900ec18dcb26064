"""A graphics card's limits, measured through torch: copying on it, cuBLAS, and what a kernel in a graph costs at least.

Under Triton's interpreter it runs on the processor with small sizes: what comes out then means nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gristmill.bench.machine import Rate
from gristmill.ops.triton.common import INTERPRETED

Run = Callable[[], object]

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_LARGE = 64 if INTERPRETED else 8192  # rows and columns of a matrix on which cuBLAS is at its best
_TOKENS = 16 if INTERPRETED else 512  # rows of what a model's matrices are multiplied with: a step of a prompt
_LAUNCHES = 10 if INTERPRETED else 1000


@dataclass(frozen=True, slots=True)
class CardLimits:
    """copy: GB/s read and written. cublas: GFLOP/s of large bfloat16 matrices. in_graph_us, alone_us: of a kernel that
    does nearly nothing, one of many in a CUDA graph, and launched from Python."""

    name: str
    copy: Rate
    cublas: Rate
    in_graph_us: float
    alone_us: float


class Card:
    """n_bytes   to copy, so many that no cache helps
    matrices  (rows, columns) of a model, on whose shapes cuBLAS is measured; without any, on large ones
    ValueError where there is no card.
    """

    def __init__(self, n_bytes: int, matrices: Sequence[tuple[int, int]] = ()) -> None:
        if not INTERPRETED and not torch.cuda.is_available():
            raise ValueError("device is 'cuda', and torch finds no CUDA card here: use device cpu")
        self._n_bytes = n_bytes
        self._matrices = matrices

    @property
    def name(self) -> str:
        return "Triton's interpreter" if INTERPRETED else torch.cuda.get_device_name()

    def read(self, threads: int, rounds: int) -> Rate:
        """GB/s, read and written, of copies from one half of the memory to the other. threads: of no consequence."""
        a, b = torch.empty(self._n_bytes // 2 * 2, dtype=torch.uint8, device=DEVICE).chunk(2)
        return _rate(2 * len(a), timed([lambda: b.copy_(a)], rounds))

    def peak(self, threads: int, arithmetic: str, rounds: int) -> Rate:
        """GFLOP/s of cuBLAS, over all matrices together as a step of a prompt multiplies them."""
        tokens = _TOKENS if self._matrices else _LARGE
        shapes = self._matrices or [(_LARGE, _LARGE)]
        seconds, n_operations = [0.0] * rounds, 0.0
        for rows, cols in sorted(set(shapes)):
            n = shapes.count((rows, cols))
            w, x = (torch.randn((size, cols), device=DEVICE, dtype=_TYPES[arithmetic]) for size in (rows, tokens))
            took = timed([lambda w=w, x=x: torch.nn.functional.linear(x, w)], rounds)  # type: ignore[misc]
            seconds = [total + n * each for total, each in zip(seconds, took, strict=True)]
            n_operations += 2.0 * n * rows * cols * tokens
        return _rate(n_operations, seconds)

    def launch_us(self, rounds: int, recorded: bool) -> float:
        """Of a kernel that does nearly nothing, in a CUDA graph or launched from Python: the median."""
        x = torch.zeros(1, device=DEVICE)
        return statistics.median(timed([lambda: x.add_(1)] * _LAUNCHES, rounds, recorded)) * 1e6

    def limits(self, rounds: int) -> CardLimits:
        """All of them."""
        in_graph_us, alone_us = (self.launch_us(rounds, recorded) for recorded in (True, False))
        return CardLimits(self.name, self.read(1, rounds), self.peak(1, "bf16", rounds), in_graph_us, alone_us)


def timed(runs: Sequence[Run], rounds: int, recorded: bool = True) -> list[float]:
    """Seconds of one of the runs on average, where all are done one after another, for each round after a first one.

    recorded: as a CUDA graph, so without what launching costs the processor
    """

    def all_runs() -> None:
        for run in runs:
            run()

    all_runs()  # what is compiled is compiled
    again: Run = all_runs
    if recorded and not INTERPRETED:
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            all_runs()
        again = graph.replay
    return [seconds / len(runs) for seconds in clocked(again, rounds)]


def clocked(run: Run, rounds: int) -> list[float]:
    """Seconds of each round after a first one, until the card has done it."""
    seconds = []
    for _ in range(rounds + 1):
        wait()
        start = time.perf_counter()
        run()
        wait()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def wait() -> None:
    """For all that was launched."""
    if not INTERPRETED:
        torch.cuda.synchronize()


def _rate(n: float, seconds: Sequence[float]) -> Rate:
    return Rate(n / min(seconds) / 1e9, n / statistics.median(seconds) / 1e9)
