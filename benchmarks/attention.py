"""Attention alone: GB/s of keys and values for single tokens, GFLOP/s for a prompt's chunk.

    python benchmarks/attention.py --threads 1 2 --depth 512 4096

Medians of rounds in which the thread counts take turns. Single tokens read several layers, 128 MiB in all, so that
none is found in the processor's cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import BLOCK_SIZE
from gristmill.types import Batch

CACHE_BYTES = 128 << 20


def batch_of(n_sequences: int, depth: int, n_new: int) -> Batch:
    """Each sequence with n_new tokens after `depth` others, in blocks one after another."""
    n_blocks = -(-(depth + n_new) // BLOCK_SIZE)
    tables = np.arange(n_sequences * n_blocks, dtype=np.int32).reshape(n_sequences, n_blocks)
    positions = np.tile(np.arange(depth, depth + n_new, dtype=np.int32), n_sequences)
    owner = np.repeat(np.arange(n_sequences), n_new)
    slots = (tables[owner, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE).astype(np.int32)
    starts = np.arange(n_sequences + 1, dtype=np.int32) * n_new
    lens = np.full(n_sequences, depth + n_new, np.int32)
    none = np.zeros(0, np.float32)
    return Batch(positions, positions, (slots,), starts, lens, (tables,), *[none] * 13)


class Case:
    """One measurement; `run` takes the next of several layers, so that no layer is found in the processor's cache."""

    def __init__(self, ops: CpuOps, shape: tuple[int, int, int], kv_type: str, sizes: tuple[int, int, int]) -> None:
        heads, kv_heads, head_dim = shape
        n_sequences, depth, n_new = sizes
        n_tokens = n_sequences * (depth + n_new)
        self.kv_bytes = n_tokens * ops.kv_block_bytes(kv_heads, head_dim, kv_type) / BLOCK_SIZE
        keys = n_sequences * sum(range(depth + 1, depth + n_new + 1))
        self.flop = 4.0 * keys * heads * head_dim
        self.decode = n_new == 1
        fill, self._batch = batch_of(n_sequences, 0, depth + n_new), batch_of(n_sequences, depth, n_new)
        rng = np.random.default_rng(0)
        qkv = rng.normal(size=(n_tokens, (heads + 2 * kv_heads) * head_dim)).astype(np.float32)
        angles = np.ones((n_tokens, head_dim // 2), np.float32), np.zeros((n_tokens, head_dim // 2), np.float32)
        n_layers = max(2, int(CACHE_BYTES / self.kv_bytes)) if self.decode else 1
        self._layers = ops.kv_layers(n_layers, fill.block_tables[0].size, kv_heads, head_dim, kv_type)
        for layer in self._layers:
            ops.store_qkv(qkv, None, None, 1e-6, angles, layer, fill.slots[0])
        self._q = rng.normal(size=(n_sequences * n_new, heads * head_dim)).astype(np.float32)
        self._ops = ops

    def run(self) -> float:
        """Seconds for one layer."""
        start = time.perf_counter()
        for layer in self._layers:
            self._ops.attention(self._q, layer, self._batch, self._batch.block_tables[0], 0, None)
        return (time.perf_counter() - start) / len(self._layers)


def label(case: Case, seconds: float) -> str:
    if case.decode:
        return f"{case.kv_bytes / seconds / 1e9:8.1f} GB/s"
    return f"{case.flop / seconds / 1e9:8.0f} GFLOP/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--depth", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--kv-type", nargs="+", default=["f16"])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    shape = (args.heads, args.kv_heads, args.head_dim)
    pools = [CpuOps(n) for n in args.threads]
    heads = f"{args.heads} query heads, {args.kv_heads} key-value heads of {args.head_dim}"
    print(f"{pools[0].isa}, {heads}; threads {args.threads}")
    for kv_type in args.kv_type:
        sizes = [(n, depth, 1) for depth in args.depth for n in args.sequences]
        sizes += [(1, depth, 512) for depth in (0, *args.depth[1:])]
        for n_sequences, depth, n_new in sizes:
            cases = [Case(ops, shape, kv_type, (n_sequences, depth, n_new)) for ops in pools]
            cells = measure([case.run for case in cases], args.rounds)
            what = f"{n_sequences:2} sequences" if n_new == 1 else f"prompt of {n_new}"
            row = "".join(label(case, seconds) for case, seconds in zip(cases, cells, strict=True))
            print(f"{kv_type:5} {what:15} at {depth:5}: {row}", flush=True)


def measure(runs: list[Callable[[], float]], rounds: int) -> list[float]:
    """Median seconds of each."""
    for run in runs:
        run()
    times = [[run() for run in runs] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


if __name__ == "__main__":
    main()
