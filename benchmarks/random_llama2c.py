"""llama2.c checkpoints with random weights, as its export.py lays them out: version 0 for f32, version 2 for q8_0."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

GROUP_SIZE = 64


@dataclass(frozen=True, slots=True)
class Size:
    """Llama 2's dimensions with as many kv heads as heads and a head that is the embedding."""

    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    vocab_size: int
    max_context: int


SIZES: Mapping[str, Size] = {
    "llama2c-15m": Size(288, 768, 6, 6, 32000, 256),
    "llama2c-110m": Size(768, 2048, 12, 12, 32000, 1024),
}


def write(name: str, label: str, path: Path, seed: int) -> None:
    """ValueError unless `label` is f32 or q8_0."""
    size, rng = SIZES[name], np.random.default_rng(seed)
    if label not in ("f32", "q8_0"):
        raise ValueError(f"llama2.c has f32 and q8_0, not {label}")
    with path.open("wb") as file:
        if label == "f32":
            file.write(struct.pack("<7i", *_header(size)))
            _write_version_0(size, file, rng)
        else:
            group = GROUP_SIZE
            while size.d_model % group:
                group //= 2
            header = struct.pack("<Ii7iBi", 0x616B3432, 2, *_header(size), 1, group)
            file.write(header.ljust(256, b"\0"))
            _write_version_2(size, group, file, rng)


def _header(s: Size) -> tuple[int, ...]:
    return s.d_model, s.d_ff, s.n_layers, s.n_heads, s.n_heads, s.vocab_size, s.max_context


def _matrices(s: Size) -> Iterator[tuple[int, int]]:
    """(rows, cols) of wq wk wv wo w1 w2 w3, each for all layers."""
    square = (s.d_model, s.d_model)
    for shape in (square, square, square, square, (s.d_ff, s.d_model), (s.d_model, s.d_ff), (s.d_ff, s.d_model)):
        yield from [shape] * s.n_layers


def _write_version_0(s: Size, file: BinaryIO, rng: np.random.Generator) -> None:
    def norms(n: int) -> None:
        file.write(rng.uniform(0.8, 1.2, n * s.d_model).astype("<f4").tobytes())

    def matrix(shape: tuple[int, int], std: float) -> None:
        file.write((rng.standard_normal(shape, np.float32) * np.float32(std)).astype("<f4").tobytes())

    shapes = list(_matrices(s))
    matrix((s.vocab_size, s.d_model), 0.1)
    norms(s.n_layers)
    for shape in shapes[: 4 * s.n_layers]:
        matrix(shape, shape[1] ** -0.5)
    norms(s.n_layers)
    for shape in shapes[4 * s.n_layers :]:
        matrix(shape, shape[1] ** -0.5)
    norms(1)
    inv_freq = 1e4 ** -(np.arange(0, s.d_model // s.n_heads, 2) / (s.d_model // s.n_heads))
    angles = np.arange(s.max_context)[:, None] * inv_freq
    file.write(np.cos(angles).astype("<f4").tobytes() + np.sin(angles).astype("<f4").tobytes())


def _write_version_2(s: Size, group: int, file: BinaryIO, rng: np.random.Generator) -> None:
    file.write(rng.uniform(0.8, 1.2, (2 * s.n_layers + 1) * s.d_model).astype("<f4").tobytes())
    for rows, cols in ((s.vocab_size, s.d_model), *_matrices(s)):
        std = 0.1 if rows == s.vocab_size else cols**-0.5
        file.write(rng.integers(-127, 128, (rows, cols), np.int8).tobytes())
        scales = std / 73.6 * rng.uniform(0.7, 1.2, rows * cols // group)  # 73.6 is the deviation of -127..127
        file.write(scales.astype("<f4").tobytes())
