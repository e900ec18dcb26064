"""Random bytes that are valid blocks of a GGUF type and whose numbers have a wanted spread. It knows no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# Fields of a block in file order: ("bytes", n) is random; ("scale", r) a float16 that is r times the block's scale;
# ("exponent", 1) an E8M0 byte; ("ue4m3", n) as many of those. A minimum is r times the scale such that the numbers
# average zero.
FIELDS: Mapping[Type, tuple[tuple[str, float], ...]] = {
    Type.Q4_0: (("scale", 1), ("bytes", 16)),
    Type.Q4_1: (("scale", 1), ("scale", -7.5), ("bytes", 16)),
    Type.Q5_0: (("scale", 1), ("bytes", 20)),
    Type.Q5_1: (("scale", 1), ("scale", -15.5), ("bytes", 20)),
    Type.Q8_0: (("scale", 1), ("bytes", 32)),
    Type.IQ4_NL: (("scale", 1), ("bytes", 16)),
    Type.IQ4_XS: (("scale", 1), ("bytes", 134)),
    Type.IQ1_S: (("scale", 1), ("bytes", 48)),
    Type.IQ2_XXS: (("scale", 1), ("bytes", 64)),
    Type.IQ2_XS: (("scale", 1), ("bytes", 72)),
    Type.IQ2_S: (("scale", 1), ("bytes", 80)),
    Type.IQ3_XXS: (("scale", 1), ("bytes", 96)),
    Type.IQ3_S: (("scale", 1), ("bytes", 108)),
    Type.TQ1_0: (("bytes", 52), ("scale", 1)),
    Type.Q1_0: (("scale", 1), ("bytes", 16)),
    Type.MXFP4: (("exponent", 1), ("bytes", 16)),
    Type.NVFP4: (("ue4m3", 4), ("bytes", 32)),
    Type.Q2_K: (("bytes", 80), ("scale", 1), ("scale", 1.5)),
    Type.Q3_K: (("bytes", 108), ("scale", 1)),
    Type.Q4_K: (("scale", 1), ("scale", 7.5), ("bytes", 140)),
    Type.Q5_K: (("scale", 1), ("scale", 15.5), ("bytes", 172)),
    Type.Q6_K: (("bytes", 208), ("scale", 1)),
}
_TILE_BYTES = 4 << 20


def tile(qtype: Type, std: float, rng: np.random.Generator, f16_of_f32: bool = False) -> Bytes:
    """uint8 [n blocks, bytes a block]: about 4 MiB of numbers of mean near 0 and standard deviation `std`.

    F16 is made of BF16, as in published files, whose checkpoints are BF16; f16_of_f32: of F32.
    """
    size, n_bytes = gguf.GGML_QUANT_SIZES[qtype]
    n = _TILE_BYTES // n_bytes
    if qtype in (Type.F32, Type.F16, Type.BF16):
        numbers = rng.standard_normal(n * size, np.float32) * np.float32(std)
        if qtype is Type.F16 and not f16_of_f32:
            numbers = gguf.quants.dequantize(gguf.quants.quantize(numbers, Type.BF16), Type.BF16)
        return gguf.quants.quantize(numbers, qtype).view(np.uint8).reshape(n, n_bytes)
    spread = 1.0  # of Q1_0, whose numbers are a block's scale and its negative, and which gguf.quants cannot read
    if qtype is not Type.Q1_0:
        blocks = _blocks(qtype, np.full(n, 2.0**-4), rng)
        spread = 16 * float(gguf.quants.dequantize(blocks[:4096], qtype).std())
    varied = std / spread * rng.uniform(0.7, 1.2, n)  # no two blocks alike, mean square near 1
    return _blocks(qtype, varied, rng)


def _blocks(qtype: Type, scales: NDArray[np.float64], rng: np.random.Generator) -> Bytes:
    parts = []
    for kind, amount in FIELDS[qtype]:
        if kind == "bytes":
            parts.append(rng.integers(0, 256, (len(scales), int(amount)), np.uint8))
        elif kind == "scale":
            parts.append((amount * scales).astype("<f2")[:, None].view(np.uint8))
        elif kind == "ue4m3":
            scales_of_16 = gguf.quants.NVFP4.fp32_to_ue4m3(scales.astype(np.float32)).astype(np.uint8)
            parts.append(np.repeat(scales_of_16[:, None], int(amount), axis=1))
        else:
            parts.append((np.rint(np.log2(scales)) + 127).astype(np.uint8)[:, None])
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True, slots=True)
class RandomTensors:
    """Streams tensors of any size out of one tile for each type and spread, starting each at another block."""

    rng: np.random.Generator
    f16_of_f32: bool = False
    tiles: dict[tuple[Type, float], Bytes] = field(default_factory=dict)

    def chunks(self, qtype: Type, shape: tuple[int, ...], std: float) -> Iterator[Bytes]:
        """The bytes of a tensor of `shape` in pieces of a few MiB. ValueError when a row does not fill whole blocks."""
        key = (qtype, std)
        if key not in self.tiles:
            self.tiles[key] = tile(qtype, std, self.rng, self.f16_of_f32)
        blocks, left = self.tiles[key], n_bytes(qtype, shape) // gguf.GGML_QUANT_SIZES[qtype][1]
        start = int(self.rng.integers(len(blocks)))
        while left:
            piece = blocks[start : start + left]
            yield piece
            left -= len(piece)
            start = 0


def n_bytes(qtype: Type, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor. ValueError when a row does not fill whole blocks."""
    size, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    if shape[-1] % size:
        raise ValueError(
            f"{qtype.name} needs rows of a multiple of {size} numbers, not {shape[-1]}: choose another type"
        )
    return int(np.prod(shape)) // size * block_bytes
