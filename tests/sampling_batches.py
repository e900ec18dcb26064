"""Batches of which only the sampling matters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.types import Batch


def sampling(n: int, **given: Any) -> Batch:
    """A batch of n rows of which only the sampling matters; what is not given asks for nothing."""
    fields: dict[str, Any] = dict.fromkeys(
        ("tokens", "positions", "slots", "query_start", "seq_lens", "block_tables", "sample_rows")
    )
    fields |= {
        "temperature": np.ones(n),
        "top_k": np.zeros(n),
        "top_p": np.ones(n),
        "min_p": np.zeros(n),
        "seeds": np.full(n, 7),
        "next_positions": np.arange(n),
        "penalties": np.zeros((0, 3)),
        "listed_start": np.zeros(0),
        "listed_ids": np.zeros(0),
        "listed_counts": np.zeros(0),
        "listed_bias": np.zeros(0),
        "masks": np.zeros((0, 0)),
    }
    types = {"top_k": np.int32, "seeds": np.uint64, "next_positions": np.int64, "masks": np.uint32}
    types |= dict.fromkeys(("listed_start", "listed_ids", "listed_counts"), np.int32)
    for name, values in (fields | given).items():
        fields[name] = values if values is None else np.ascontiguousarray(values, types.get(name, np.float32))
    return Batch(**fields)


def bits(allowed: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """[R, vocab_size] -> the words of a mask."""
    padded = np.pad(allowed, ((0, 0), (0, -allowed.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint32)


def random_rows(rng: np.random.Generator, n: int, vocab_size: int) -> tuple[NDArray[np.float32], Batch]:
    """Rows with every combination of parameters, biases, counts and masks."""
    n_listed = rng.integers(0, 6, n)
    start = np.concatenate([[0], np.cumsum(n_listed)])
    listed = [rng.choice(vocab_size, k, replace=False) for k in n_listed]
    allowed = rng.random((n, vocab_size)) < 0.8
    allowed[:, 0] = True
    batch = sampling(
        n,
        temperature=rng.choice([0.0, 0.5, 1.0, 1.7], n),
        top_k=rng.choice([0, 1, 5, 100], n),
        top_p=rng.choice([1.0, 0.9, 0.3], n),
        min_p=rng.choice([0.0, 0.05, 1.0], n),
        seeds=rng.integers(0, 2**63, n),
        next_positions=rng.integers(0, 1000, n),
        penalties=np.stack([rng.choice([1, 1.3, 0.7], n), rng.choice([0, 0.5, -1], n), rng.choice([0, 0.2], n)], 1),
        listed_start=start,
        listed_ids=np.concatenate(listed),
        listed_counts=rng.integers(-1, 4, start[-1]),
        listed_bias=rng.choice([0.0, 1.5, -100.0], start[-1]),
        masks=bits(allowed),
    )
    return (rng.normal(size=(n, vocab_size)) * rng.choice([0.5, 3], (n, 1))).astype(np.float32), batch
