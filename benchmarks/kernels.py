"""How fast the linear kernels are, by number type and columns: GB/s of weights and GFLOP/s. Run it alone.

python benchmarks/kernels.py --threads 2 --rows 16384 --cols 4096
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import cycle, islice

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import CpuOps

TYPES = ("f32", "f16", "bf16", "q8_0", "int8", "q4_0", "q4_k", "q5_k", "q6_k", "mxfp4")
COLUMNS = (1, 2, 4, 16, 128)


def random_weight(qtype: QType, shape: tuple[int, int], rng: np.random.Generator) -> Weight:
    """Random bytes. No float, half or scale is huge or denormal, which would be slow; other values change no speed."""
    n_blocks = shape[0] * shape[1] // qtype.block_size
    data = rng.integers(0, 256, n_blocks * qtype.block_bytes, dtype=np.uint8)
    data = data & 0x1B | 0x20
    scales = np.full(shape[0], 0.01, np.float32) if qtype in (QType.INT8_ROWS, QType.NVFP4) else None
    return Weight("random", data, qtype, shape, scales)


def best_of(n: int, ops: CpuOps, x: NDArray[np.float32], packed: Iterator[object]) -> float:
    """Least seconds of one product, each time with the next weight."""
    best = np.inf
    for weight in islice(packed, n):
        start = time.perf_counter()
        ops.linear(x, weight)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--types", default=",".join(TYPES))
    args = parser.parse_args()
    ops, rng = CpuOps(args.threads, args.isa), np.random.default_rng(0)
    print(f"{ops.isa}, {ops.n_threads} threads, {args.rows} x {args.cols}: GB/s of the file / GFLOP/s, by columns")
    print("type    pack GB/s " + "".join(f"{n:>18}" for n in COLUMNS))
    for label in args.types.split(","):
        qtype = next(q for q in QType if q.label == label)
        weight = random_weight(qtype, (args.rows, args.cols), rng)
        start = time.perf_counter()
        packed = [ops.put([weight])]
        pack_s = time.perf_counter() - start
        while len(packed) * len(weight.data) < 1e9:  # more than any cache holds
            packed.append(ops.put([weight]))
        cells, copies = [], cycle(packed)  # a copy comes again when no cache holds it any more
        for n in COLUMNS:
            x = rng.normal(size=(n, args.cols)).astype(np.float32)
            seconds = best_of(3 if n > 16 else 12, ops, x, copies)
            flop = 2 * n * args.rows * args.cols
            cells.append(f"{len(weight.data) / seconds / 1e9:9.1f} / {flop / seconds / 1e9:6.0f}")
        print(f"{label:7} {len(weight.data) / pack_s / 1e9:9.2f} " + "".join(cells))


if __name__ == "__main__":
    main()
