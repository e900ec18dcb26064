"""How far our quantizers are from float32, beside the files that another program made of the same model.

python benchmarks/quantizers.py model-f16.gguf model-q4_k_m.gguf model-q6_k.gguf ...

The first file is the original; of each other one, every quantized tensor is compared with what `gristmill quantize`
makes of it in that tensor's type. Errors are root mean squares over all numbers of a type, weighted by nothing.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.ops.cpu import default_threads

WRITTEN = (QType.Q4_0, QType.Q5_0, QType.Q8_0, QType.Q4_K, QType.Q5_K, QType.Q6_K, QType.MXFP4)


@dataclass
class Sums:
    """Of one type: squared errors of both, numbers, and seconds that ours took."""

    ours: float = 0.0
    theirs: float = 0.0
    n: int = 0
    seconds: float = 0.0
    equal: int = 0
    n_bytes: int = 0

    def add(self, original: Weight, other: Weight, quantizer: RowQuantizer) -> None:
        start = time.perf_counter()
        encoded = np.concatenate([chunk.copy() for chunk in quantizer.encode(original, other.qtype)])
        self.seconds += time.perf_counter() - start
        values = dequantize(original)
        ours = dequantize(Weight(original.name, encoded, other.qtype, original.shape))
        self.ours += float(np.square(ours - values, dtype=np.float64).sum())
        self.theirs += float(np.square(dequantize(other) - values, dtype=np.float64).sum())
        self.n += values.size
        self.equal += int((encoded == other.data).sum())
        self.n_bytes += other.data.size


def compare(original: Checkpoint, others: list[Checkpoint], n_threads: int) -> dict[QType, Sums]:
    quantizer = RowQuantizer(n_threads)
    sums: dict[QType, Sums] = defaultdict(Sums)
    for other in others:
        for name in other.names():
            weight = other.get(name)
            if weight.qtype in WRITTEN:
                sums[weight.qtype].add(original.get(name), weight, quantizer)
                other.release(weight)
                original.release(original.get(name))
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("original", type=Path)
    parser.add_argument("others", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=default_threads())
    args = parser.parse_args()
    sums = compare(open_checkpoint(args.original), [open_checkpoint(path) for path in args.others], args.threads)
    print("| type | numbers | RMSE, ours | RMSE, theirs | ours / theirs | equal bytes | ns a number |")
    print("|---|---|---|---|---|---|---|")
    for qtype, s in sorted(sums.items(), key=lambda item: item[0].label):
        ours, theirs = np.sqrt(s.ours / s.n), np.sqrt(s.theirs / s.n)
        print(
            f"| {qtype.label} | {s.n / 1e6:.1f} M | {ours:.6g} | {theirs:.6g} | {ours / theirs:.4f}"
            f" | {s.equal / s.n_bytes:.1%} | {s.seconds / s.n * 1e9:.2f} |"
        )


if __name__ == "__main__":
    main()
