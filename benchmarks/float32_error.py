"""How exact products of float32 weights are, kept as stored and in 24 bits: root mean square errors beside float64.

    python benchmarks/float32_error.py

Errors are shares of the products' own root mean square. Weights are normal numbers, numbers with heavy tails
(Student's t with 4 degrees of freedom), and normal ones of which one in a thousand is 30 times as large; activations
are normal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import CpuOps

N_ROWS, N_TOKENS = 1024, 16


def weights_of(kind: str, n_cols: int, rng: np.random.Generator) -> NDArray[np.float32]:
    values = rng.standard_t(4, (N_ROWS, n_cols)) if kind == "heavy tails" else rng.normal(size=(N_ROWS, n_cols))
    if kind == "outliers":
        values[rng.random(values.shape) < 1e-3] *= 30
    return values.astype(np.float32)


def error(values: NDArray[np.float32], x: NDArray[np.float32], ops: CpuOps) -> tuple[float, float]:
    """(Error of x values^T beside float64, bits a weight takes)."""
    weight = ops.put([Weight("w", values.view(np.uint8).reshape(-1), QType.F32, values.shape)])
    exact = x.astype(np.float64) @ values.T.astype(np.float64)
    off = ops.linear(x, weight) - exact
    return float(np.sqrt(np.mean(off**2) / np.mean(exact**2))), 8 * weight.n_bytes / values.size


def main() -> None:
    print(f"{'weights':12} {'columns':>7} {'as stored':>10} {'in 24 bits':>10} {'times':>6} {'bits':>6}")
    for kind in ("normal", "heavy tails", "outliers"):
        for n_cols in (512, 2048, 8192):
            rng = np.random.default_rng(n_cols)
            values, x = weights_of(kind, n_cols, rng), rng.normal(size=(N_TOKENS, n_cols)).astype(np.float32)
            stored, _ = error(values, x, CpuOps(n_as_stored=values.size))
            short, bits = error(values, x, CpuOps())
            print(f"{kind:12} {n_cols:7} {stored:10.2e} {short:10.2e} {short / stored:6.2f} {bits:6.2f}")


if __name__ == "__main__":
    main()
