"""Every native operation against its numpy reference, on every instruction set of this machine and odd shapes."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from instruction_sets import isas
from random_weights import FLOATS, random_weight

from gristmill import _kernels
from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize import quantize
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import NO_ID
from gristmill.ops.reference import ReferenceOps
from gristmill.types import Batch

REFERENCE = ReferenceOps()
PAIRS = (QType.BF16, QType.FP8_GROUPS)
BLOCKED = tuple(q for q in QType if q not in FLOATS)
GRIDS = (QType.IQ1_S, QType.IQ1_M, QType.IQ2_XXS, QType.IQ2_XS, QType.IQ2_S, QType.IQ3_XXS, QType.IQ3_S)
TERNARY = (QType.TQ1_0, QType.TQ2_0)
K_TYPES = (QType.Q2_K, QType.Q3_K, QType.Q4_K, QType.Q5_K, QType.Q6_K, QType.IQ4_XS)
FEW_BITS = (QType.Q1_0, QType.Q2_0)
SUPER = (*K_TYPES, *GRIDS, *TERNARY, *FEW_BITS, QType.NVFP4)  # scales of 256 columns, whose activations share one
OFFSETS = (QType.Q4_1, QType.Q5_1)
SCALES = (QType.Q8_0, QType.Q4_0, QType.Q5_0, QType.IQ4_NL, *OFFSETS, QType.Q8_GROUPS, *FEW_BITS)  # that tiles round
SHORT_SUMS = (
    QType.Q4_K,
    QType.Q5_K,
    QType.Q6_K,
    QType.IQ4_XS,
    *GRIDS[2:],
)  # of products, rounded to 16 bits: not IQ1's
NORMED = (*((q,) for q in QType), (QType.Q4_K, QType.Q6_K), (QType.Q8_0, QType.F32), (QType.F16, QType.Q4_0))


@pytest.fixture(params=isas(), scope="module")
def cpu(request: pytest.FixtureRequest) -> CpuOps:
    return CpuOps(2, request.param, n_exact=0)


def quantized(x: np.ndarray, block: int = 32) -> np.ndarray:
    """What activations become before they meet blocked weights: int8 with a scale for 256, or a power of two for 32."""
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % block)])
    blocks = padded.reshape(*x.shape[:-1], -1, block)
    peak = np.maximum(np.abs(blocks).max(axis=-1, keepdims=True), np.float32(1e-30))
    scale, inverse = peak / np.float32(127), np.float32(127) / peak
    if block == 32:
        scale = np.exp2(np.maximum(np.ceil(np.log2(scale)), -48))
        inverse = 1 / scale
    return (np.rint(blocks * inverse) * scale).reshape(padded.shape)[..., : x.shape[-1]].astype(np.float32)


def rounded(x: np.ndarray) -> np.ndarray:
    """To bfloat16, nearest even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def float32(weight: Weight) -> Weight:
    return Weight("w", dequantize(weight).reshape(-1).view(np.uint8), QType.F32, weight.shape)


def group_of(qtype: QType) -> int:
    """Columns that share a scale in `random_weight`."""
    return 64 if qtype is QType.Q8_GROUPS else qtype.block_size


def columns_of(qtype: QType) -> int:
    """Of which its kernel wants a multiple."""
    return 256 if qtype in SUPER else max(32, group_of(qtype))


def seen(x: np.ndarray, qtype: QType, isa: str) -> np.ndarray:
    """x as the kernel for this type sees it."""
    if qtype in FLOATS:
        return rounded(x) if qtype in PAIRS and isa in ("amx", "avx512bf16") else x
    return quantized(x, 256) if qtype in SUPER or isa == "amx" else quantized(x)


def multiplied(weight: Weight, isa: str) -> np.ndarray:
    """The numbers that a weight's kernel multiplies: tiles round scales to 255ths of the largest of 256."""
    values, columns = dequantize(weight), weight.shape[-1]
    if isa != "amx" or weight.qtype not in SCALES:
        return values
    offsets = np.float32(0)
    if weight.qtype is QType.Q8_GROUPS:
        assert weight.scales is not None
        scales = np.repeat(weight.scales, 64 // 32)
    else:
        blocks = weight.data.reshape(-1, weight.qtype.block_bytes)
        scales = np.repeat(blocks[:, :2].copy().view(np.float16).astype(np.float32), weight.qtype.block_size // 32)
        if weight.qtype in OFFSETS:
            offsets = blocks[:, 2:4].copy().view(np.float16).astype(np.float32).reshape(len(values), -1, 1)
    scales = scales.reshape(-1, columns // 32)
    padded = np.pad(scales, ((0, 0), (0, -scales.shape[-1] % 8))).reshape(len(scales), -1, 8)
    most = np.abs(padded).max(axis=-1, keepdims=True)
    whole = np.rint(padded * (np.float32(255) / np.maximum(most, np.float32(2**-110))))
    kept = (whole * (most * np.float32(1 / 255))).reshape(len(scales), -1)[:, : columns // 32]
    ratio = np.divide(kept, scales, out=np.ones_like(scales), where=scales != 0)
    return ((values.reshape(len(scales), -1, 32) - offsets) * ratio[:, :, None] + offsets).reshape(values.shape)


@pytest.mark.parametrize("qtype", list(QType), ids=lambda q: q.label)
@pytest.mark.parametrize("n_rows", [1, 2, 7, 13, 40, 150])
@pytest.mark.parametrize("n_blocks", [2, 16])
def test_linear(cpu: CpuOps, qtype: QType, n_rows: int, n_blocks: int) -> None:
    """Also with no whole number of blocks of columns, for types that have none."""
    cols = 53 if qtype in FLOATS and n_blocks == 2 else columns_of(qtype) * n_blocks
    rng = np.random.default_rng(n_rows)
    x = rng.normal(size=(n_rows, cols)).astype(np.float32)
    weights = [random_weight(qtype, (rows, cols), seed) for seed, rows in enumerate((70, 16, 3))]
    bias = rng.normal(size=89).astype(np.float32)
    expected = seen(x, qtype, cpu.isa) @ np.concatenate([multiplied(w, cpu.isa) for w in weights]).T + bias
    actual = cpu.linear(x, cpu.put(weights, bias))
    # Where sums of products are rounded to 16 bits they differ by that, a few percent of what rounding the activations
    # does; all others only by the order of additions.
    tolerance = 8e-5 if qtype in SHORT_SUMS else 2e-5
    scale = np.abs(x).sum(axis=-1, keepdims=True) * 0.1
    np.testing.assert_array_less(np.abs(actual - expected) / scale, tolerance)


@pytest.mark.parametrize("qtype", [QType.Q1_0, QType.Q2_0, QType.NVFP4], ids=lambda q: q.label)
def test_rows_that_no_kernel_reads_become_q8_0(qtype: QType) -> None:
    """And it is said; rows of 256 stay what they are."""
    ops, reference = CpuOps(2, n_exact=0), CpuOps(2, n_exact=0)
    weight = random_weight(qtype, (70, 384))
    assert ops.requantized([random_weight(qtype, (70, 512)), weight]) == [weight]
    encoded = quantize(replace(float32(weight), quantize_to=QType.Q8_0))
    x = np.random.default_rng(0).normal(size=(5, 384)).astype(np.float32)
    np.testing.assert_array_equal(ops.linear(x, ops.put([weight])), reference.linear(x, reference.put([encoded])))


def test_scales_of_nvfp4_that_are_far_apart_are_rounded(cpu: CpuOps) -> None:
    """Powers of two under a 128th of the largest's of 256 numbers: to 0 or that 128th."""
    rows, cols = 32, 512
    rng = np.random.default_rng(0)
    weight = random_weight(QType.NVFP4, (rows, cols))
    bits = rng.integers(0, 127, (rows, cols // 16)).astype(np.uint8)
    weight.data.reshape(-1, 36)[:, :4] = bits.reshape(-1, 4)
    kept = cpu.embed(cpu.put([weight]), np.arange(rows, dtype=np.int32))
    exponent, mantissa = (bits >> 3).astype(np.float64), (bits & 7).astype(np.float64)
    size = np.where(exponent > 0, (mantissa + 8) * np.exp2(exponent - 10), mantissa * 2.0**-9)
    power = np.exp2(np.floor(np.log2(np.maximum(size, 2.0**-12)))).reshape(rows, 2, 16)
    least = power.max(axis=-1, keepdims=True) / 128
    near, values = power >= least, dequantize(weight).reshape(rows, 2, 16, 16)
    kept = kept.reshape(values.shape)
    assert 0.3 < near.mean() < 0.9
    np.testing.assert_array_equal(kept[near], values[near])
    assert weight.scales is not None
    most = 6.00001 * least / 2 * weight.scales[:, None, None]
    assert (np.abs(kept - values).max(axis=-1) <= most).all()


@pytest.mark.parametrize(
    ("qtype", "columns"),
    [*((q, columns_of(q)) for q in QType), (QType.Q8_GROUPS, 256)],
    ids=lambda value: value.label if isinstance(value, QType) else str(value),
)
def test_a_row_s_bits_do_not_depend_on_its_neighbours(cpu: CpuOps, qtype: QType, columns: int) -> None:
    """At every number of rows that has kernels of its own; the last super-block and the last group are not whole."""
    cols = 9 * columns
    x = np.random.default_rng(0).normal(size=(600, cols)).astype(np.float32)
    weight = cpu.put([random_weight(qtype, (170, cols), 0)])
    alone = np.concatenate([cpu.linear(x[i : i + 1], weight) for i in range(20)])
    for n_rows in (*range(2, 20), 24, 31, 32, 33, 48, 127, 128, 150, 600):
        together = cpu.linear(x[:n_rows], weight)
        np.testing.assert_array_equal(together[:20].view(np.uint32), alone[:n_rows].view(np.uint32))
        if n_rows > 40:
            few = cpu.linear(x[n_rows - 3 : n_rows], weight)
            np.testing.assert_array_equal(together[-3:].view(np.uint32), few.view(np.uint32))


@pytest.mark.parametrize("qtype", [QType.Q8_0, QType.INT8_ROWS, QType.Q8_GROUPS], ids=lambda q: q.label)
@pytest.mark.parametrize("cols", [576, 768])
def test_a_row_of_a_large_matrix_has_the_same_bits_alone(cpu: CpuOps, qtype: QType, cols: int) -> None:
    """Of so many bytes one column's kernel asks ahead for what it reads, where the processor gains by it."""
    x = np.random.default_rng(0).normal(size=(3, cols)).astype(np.float32)
    weight = cpu.put([random_weight(qtype, (1100, cols), 0)])
    alone = np.concatenate([cpu.linear(x[i : i + 1], weight) for i in range(3)])
    np.testing.assert_array_equal(cpu.linear(x, weight).view(np.uint32), alone.view(np.uint32))


@pytest.mark.parametrize("qtype", SCALES, ids=lambda q: q.label)
@pytest.mark.parametrize("n_rows", [1, 3, 5, 16, 17, 40])
def test_scales_of_any_sign_and_size(cpu: CpuOps, qtype: QType, n_rows: int) -> None:
    """Negative ones beside quants of -128, zeros, and such as are far smaller or larger than their neighbours."""
    weight = random_weight(qtype, (40, 512), 0)
    block = weight.data.reshape(-1, qtype.block_bytes).copy()
    scales = np.random.default_rng(1).normal(size=(40, 512 // group_of(qtype))) * 1e-3
    scales[1], scales[2, 3], scales[3, ::2], scales[4], scales[5, 0] = 0, 0, 1e-6, 1e-7, 0.5
    if qtype is QType.Q8_GROUPS:
        block[::3] = 128
        weight = replace(weight, data=block.reshape(-1), scales=scales.astype(np.float32).reshape(-1))
    else:
        block[:, :2] = scales.astype(np.float16).reshape(-1, 1).view(np.uint8)
        first = 4 if qtype in OFFSETS else 2
        block[:, 2:first] = scales[:, ::-1].astype(np.float16).reshape(-1, 1).view(np.uint8)[:, : first - 2]
        block[::3, first:] = 128 if qtype is QType.Q8_0 else 0
        weight = replace(weight, data=block.reshape(-1))
    x = np.random.default_rng(n_rows).normal(size=(n_rows, 512)).astype(np.float32)
    values = multiplied(weight, cpu.isa)
    gap = np.abs(cpu.linear(x, cpu.put([weight])) - seen(x, qtype, cpu.isa) @ values.T)
    assert (gap <= 1e-5 * (np.abs(x) @ np.abs(values).T) + 1e-9).all()


@pytest.mark.parametrize("target", [QType.Q8_0, QType.Q4_0, QType.MXFP4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_what_cannot_be_quantized_is_refused(cpu: CpuOps, target: QType, bad: float) -> None:
    values = np.ones((70, 64), np.float32)
    values[65, 5] = bad
    weight = Weight("w", values.view(np.uint8).reshape(-1), QType.F32, (70, 64), quantize_to=target)
    with pytest.raises(ValueError, match="not finite or too large for the type"):
        cpu.put([weight])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("qtype", "at"), [*((q, 0) for q in SCALES), *((q, 2) for q in OFFSETS)], ids=lambda q: getattr(q, "label", q)
)
def test_scales_that_are_not_finite_stay_visible(cpu: CpuOps, qtype: QType, at: int, bad: float) -> None:
    """In their own row alone, at any number of rows. at: of the scale, or of the offset, in its block."""
    weight = random_weight(qtype, (40, 512), 0)
    if qtype is QType.Q8_GROUPS:
        assert weight.scales is not None
        weight.scales[3 * 512 // 64 + 2] = bad
    else:
        blocks = weight.data.reshape(40, -1, qtype.block_bytes)
        blocks[3, 2, at : at + 2] = np.array([bad], np.float16).view(np.uint8)
    for n_rows in (1, 3, 5, 16, 40):
        x = np.random.default_rng(n_rows).normal(size=(n_rows, 512)).astype(np.float32)
        finite = np.isfinite(cpu.linear(x, cpu.put([weight])))
        assert not finite[:, 3].any()
        assert np.delete(finite, 3, axis=1).all()


@pytest.mark.parametrize("isa", ["avx512bf16", "avxvnni"])
@pytest.mark.parametrize("qtype", BLOCKED, ids=lambda q: q.label)
@pytest.mark.parametrize("n_rows", [3, 4, 8, 9, 12, 17, 150])
def test_other_products_give_the_same_bits(isa: str, qtype: QType, n_rows: int) -> None:
    """With a last stretch of one step, for types in blocks of 32, and a last group of fewer panels."""
    if isa not in isas():
        pytest.skip(f"this machine has no {isa}")
    same = "avx2" if isa == "avxvnni" else "avx512"
    cols = 9 * columns_of(qtype)
    x = np.random.default_rng(0).normal(size=(n_rows, cols)).astype(np.float32)
    weight = random_weight(qtype, (170, cols), 0)
    other, plain = (ops.linear(x, ops.put([weight])) for ops in (CpuOps(1, isa), CpuOps(1, same)))
    np.testing.assert_array_equal(other.view(np.uint32), plain.view(np.uint32))


def floats_with_outliers(qtype: QType, rows: int, cols: int) -> Weight:
    """Among normal numbers a row of zeros, a zero, and some that are far too small, far too large or not finite."""
    values = (np.random.default_rng(rows).normal(size=(rows, cols)) * 0.02).astype(np.float32)
    values[3] = 0
    values[5, 7], values[5, 8], values[7, 9], values[0, cols - 1], values[rows - 1, 0] = 0, 1e-30, 1e20, -1e-20, np.inf
    bits = values if qtype is QType.F32 else (values.view(np.uint32) >> 16).astype(np.uint16)
    return Weight("w", bits.view(np.uint8).reshape(-1), qtype, (rows, cols))


@pytest.mark.parametrize(("rows", "cols"), [(64, 256), (170, 512), (70, 1024), (33, 264), (96, 288), (200, 2048)])
@pytest.mark.parametrize(("qtype", "most"), [(QType.F32, 0.85), (QType.BF16, 0.85)], ids=["f32", "bf16"])
def test_fewer_bits_give_the_bits_of_all(cpu: CpuOps, qtype: QType, most: float, rows: int, cols: int) -> None:
    """Floats in 24 bits and bfloat16 in 12: what is read back is multiplied as if it were stored so."""
    weight = floats_with_outliers(qtype, rows, cols)
    shorter, stored = (CpuOps(2, cpu.isa, n_as_stored=n) for n in (0, rows * cols))
    short = shorter.put([weight])
    numbers, values = shorter.embed(short, np.arange(rows, dtype=np.int32)), dequantize(weight)
    if qtype is QType.F32:
        assert_rounded_to_24_bits(numbers, values)
        weight = Weight("w", numbers.view(np.uint8).reshape(-1), qtype, (rows, cols))
    else:
        np.testing.assert_array_equal(numbers, values)
    plain = stored.put([weight])
    assert short.n_bytes < plain.n_bytes * most
    for n_rows in (1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 24, 25, 47, 150, 520):
        x = np.random.default_rng(n_rows).normal(size=(n_rows, cols)).astype(np.float32)
        expected = stored.linear(x, plain)
        np.testing.assert_array_equal(shorter.linear(x, short).view(np.uint32), expected.view(np.uint32))


def assert_rounded_to_24_bits(numbers: np.ndarray, values: np.ndarray) -> None:
    """To multiples of a power of two, at most a 2^22nd of the row's largest, but for what is far from the others."""
    far = np.abs(values) > 1
    np.testing.assert_array_equal(numbers[far], values[far])
    near, values = (np.where(far, 0, v).astype(np.float64) for v in (numbers, values))
    step = np.exp2(np.frexp(np.abs(values).max(-1, keepdims=True))[1] - 23.0)
    assert (np.abs(near - values) <= 0.5 * step * (1 + 2.0**-20)).all()
    np.testing.assert_array_equal(near % step, 0)


def test_float32_that_was_made_of_bfloat16_is_as_it_was(cpu: CpuOps) -> None:
    """In 24 bits, but for what is a 2^15th of the largest and less."""
    values = truncated_to_bf16(np.random.default_rng(0).normal(size=(170, 512)).astype(np.float32))
    values[np.abs(values) < 1e-3] = 0
    weight = Weight("w", values.view(np.uint8).reshape(-1), QType.F32, values.shape)
    packed = CpuOps(2, cpu.isa, n_as_stored=0).put([weight])
    assert packed.n_bytes < 0.85 * values.nbytes
    np.testing.assert_array_equal(cpu.embed(packed, np.arange(170, dtype=np.int32)), values)


def test_float32_in_fewer_bits_is_as_exact_as_its_sums(cpu: CpuOps) -> None:
    """The error beside float64 hardly grows."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(256, 2048)).astype(np.float32)
    x = rng.normal(size=(5, 2048)).astype(np.float32)
    weight = Weight("w", values.view(np.uint8).reshape(-1), QType.F32, values.shape)
    exact = x.astype(np.float64) @ values.T.astype(np.float64)
    errors = []
    for n_as_stored in (0, values.size):
        ops = CpuOps(2, cpu.isa, n_as_stored=n_as_stored)
        errors.append(np.sqrt(np.mean((ops.linear(x, ops.put([weight])) - exact) ** 2)))
    assert errors[0] < 1.15 * errors[1]


@pytest.mark.parametrize(("rows", "cols"), [(64, 256), (170, 512), (33, 264), (70, 1032)])
def test_float16_that_was_made_of_bfloat16_is_multiplied_as_that(cpu: CpuOps, rows: int, cols: int) -> None:
    """With numbers below float16's normal ones and infinities, at any number of rows, and read back."""
    values = (np.random.default_rng(rows).normal(size=(rows, cols)) * 2e-3).astype(np.float32)
    values[3], values[0, 1], values[rows - 1, 0] = 0, np.inf, -np.inf
    half = truncated_to_bf16(values).astype(np.float16)
    assert (np.abs(half[half != 0]) < np.finfo(np.float16).smallest_normal).any()
    bits = (half.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    weights = [
        Weight("w", stored.view(np.uint8).reshape(-1), qtype, (rows, cols))
        for stored, qtype in ((half, QType.F16), (bits, QType.BF16))
    ]
    ops = CpuOps(2, cpu.isa, n_as_stored=0)
    as_half, as_bf16 = (ops.put([weight]) for weight in weights)
    assert as_half.n_bytes == as_bf16.n_bytes
    assert as_half.arithmetic == as_bf16.arithmetic
    for n_rows in (1, 4, 7, 24, 150):
        x = np.random.default_rng(n_rows).normal(size=(n_rows, cols)).astype(np.float32)
        actual, expected = ops.linear(x, as_half), ops.linear(x, as_bf16)
        np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))
    tokens = np.arange(rows, dtype=np.int32)
    np.testing.assert_array_equal(ops.embed(as_half, tokens), half.astype(np.float32))


def truncated_to_bf16(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.mark.parametrize("qtype", [QType.F32, QType.F16, QType.BF16], ids=["f32", "f16", "bf16"])
def test_numbers_that_do_not_fit_fewer_bits_stay_as_they_are(cpu: CpuOps, qtype: QType) -> None:
    """Of any bits at all, and of rows that only some parts of the matrix show."""
    dtype = np.uint32 if qtype is QType.F32 else np.uint16
    rng = np.random.default_rng(0)
    most = 0x7BFF if qtype is QType.F16 else np.iinfo(dtype).max // 2 - np.iinfo(dtype).max // 256
    bits = rng.integers(0, most, (256, 512), dtype=dtype)  # no NaN
    if qtype is QType.F16:
        mostly = truncated_to_bf16(rng.normal(size=(2048, 512)).astype(np.float32)).astype(np.float16).view(dtype)
    else:
        mostly = floats_with_outliers(qtype, 2048, 512).data.view(dtype).reshape(2048, 512).copy()
    mostly[1025:1031] = bits[:6]
    for values in (bits, mostly):
        weight = Weight("w", values.view(np.uint8).reshape(-1), qtype, values.shape)
        packed = CpuOps(2, cpu.isa, n_as_stored=0).put([weight])
        assert packed.n_bytes == values.nbytes
        assert qtype is not QType.F16 or packed.arithmetic == "f32"
        tokens = np.arange(len(values), dtype=np.int32)
        np.testing.assert_array_equal(cpu.embed(packed, tokens), dequantize(weight))


@pytest.mark.parametrize("qtype", list(QType), ids=lambda q: q.label)
def test_no_rows_give_no_rows(cpu: CpuOps, qtype: QType) -> None:
    """As in a step that chooses no token."""
    weight = cpu.put([random_weight(qtype, (70, 512), 0)])
    assert cpu.linear(np.zeros((0, 512), np.float32), weight).shape == (0, 70)


@pytest.mark.parametrize("qtype", list(QType), ids=lambda q: q.label)
def test_embed_gives_the_rows_themselves(cpu: CpuOps, qtype: QType) -> None:
    weight = random_weight(qtype, (37, 256))
    tokens = np.array([0, 36, 5, 5, 17], np.int32)
    actual = cpu.embed(cpu.put([weight]), tokens)
    expected = dequantize(weight)[tokens]
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("qtype", [q for q in QType if not q.scales_apart], ids=lambda q: q.label)
def test_native_dequantization_equals_the_definition(qtype: QType) -> None:
    """Bit for bit, over random bytes."""
    data = np.random.default_rng(3).integers(0, 256, 200 * qtype.block_bytes, dtype=np.uint8)
    weight = Weight("w", data, qtype, (200 * qtype.block_size,))
    actual = _kernels.dequantize(qtype.label, data)
    np.testing.assert_array_equal(actual, dequantize(weight))


@pytest.mark.parametrize(
    "qtype", [QType.F32, QType.Q4_K, QType.MXFP4_SPLIT, QType.Q8_GROUPS, QType.INT8_ROWS], ids=lambda q: q.label
)
def test_rows_in_another_order(cpu: CpuOps, qtype: QType) -> None:
    weight = random_weight(qtype, (40, 256))
    order = np.random.default_rng(1).permutation(40)[:33].astype(np.int32)
    tokens = np.arange(33, dtype=np.int32)
    actual = cpu.embed(cpu.put([weight.take_rows(order)]), tokens)
    np.testing.assert_array_equal(actual, dequantize(weight)[order])


def test_groups_that_cross_rows_are_read_right(cpu: CpuOps) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(-127, 128, 6 * 40, dtype=np.int8).view(np.uint8)
    weight = Weight("w", data, QType.Q8_GROUPS, (6, 40), rng.uniform(0.01, 0.02, 5).astype(np.float32))
    x = rng.normal(size=(3, 40)).astype(np.float32)
    expected = REFERENCE.linear(x, REFERENCE.put([weight]))
    np.testing.assert_allclose(cpu.linear(x, cpu.put([weight])), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_rows", [1, 5, 131])
def test_a_row_s_scale_is_applied_once_however_many_stretches(cpu: CpuOps, n_rows: int) -> None:
    """1600 columns are four stretches where there are many rows; 150 rows are two groups and a part."""
    x = np.random.default_rng(n_rows).normal(size=(n_rows, 1600)).astype(np.float32)
    weight = random_weight(QType.INT8_ROWS, (150, 1600))
    expected = REFERENCE.linear(seen(x, QType.INT8_ROWS, cpu.isa), REFERENCE.put([weight]))
    scale = np.abs(x).sum(axis=-1, keepdims=True) * 0.1
    np.testing.assert_array_less(np.abs(cpu.linear(x, cpu.put([weight])) - expected) / scale, 2e-5)


def test_experts_have_scales_of_their_own(cpu: CpuOps) -> None:
    """A handle of several matrices: the scales of each stand at the end of each."""
    weight = random_weight(QType.INT8_ROWS, (5, 20, 64))
    x, router = np.eye(5, 64, dtype=np.float32), np.eye(5, dtype=np.float32)
    down = random_weight(QType.F32, (5, 64, 10), 1)
    gate, up = (weight.take_rows(np.arange(i, 20, 2, dtype=np.int32)) for i in (0, 1))
    actual, expected = (ops.moe(x, router, ops.put([gate, up]), ops.put([down]), 1, 0.0) for ops in (cpu, REFERENCE))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", [QType.INT8_ROWS, QType.Q8_0], ids=lambda q: q.label)
@pytest.mark.parametrize("qtype", FLOATS, ids=lambda q: q.label)
def test_quantizing_at_load_equals_the_definition(cpu: CpuOps, qtype: QType, target: QType) -> None:
    """Bit for bit: ties, rows of zeros, tiny and huge numbers, rows in another order."""
    weight = random_weight(qtype, (150, 224))
    values = weight.data.view({4: np.float32, 2: np.uint16, 1: np.uint8}[qtype.block_bytes]).reshape(150, 224).copy()
    values[3] = 0
    ties = np.float32([127, 0.5, -0.5, 1.5, 2.5, -2.5, 63.5, -126.5])
    as_stored = {QType.F32: ties, QType.F16: ties.astype(np.float16).view(np.uint16)}
    as_stored[QType.FP8_GROUPS] = np.arange(8, dtype=np.uint8)
    values[4, :8] = as_stored.get(qtype, (ties.view(np.uint32) >> 16).astype(np.uint16))
    values[4, 8:] = 0
    if qtype is not QType.F32:
        values[5] &= {QType.F16: 0x83FF, QType.BF16: 0x807F, QType.FP8_GROUPS: 0x87}[qtype]  # denormal numbers
    weight = replace(weight, data=values.view(np.uint8).reshape(-1), quantize_to=target)
    weight = weight.take_rows(np.random.default_rng(1).permutation(150).astype(np.int32))
    expected = dequantize(quantize(weight))
    packed = cpu.put([weight])
    np.testing.assert_array_equal(cpu.embed(packed, np.arange(150, dtype=np.int32)), expected)
    x = seen(np.random.default_rng(2).normal(size=(9, 224)).astype(np.float32), target, cpu.isa)
    gap = np.abs(cpu.linear(x, packed) - x @ multiplied(quantize(weight), cpu.isa).T)
    assert (gap <= 1e-5 * (np.abs(x) @ np.abs(expected).T)).all()


def test_a_number_that_is_not_finite_stays_visible(cpu: CpuOps) -> None:
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    values[0, 5], values[1, 63], values[2, 0] = np.nan, np.inf, -np.inf
    weight = Weight("w", values.view(np.uint8).reshape(-1), QType.F32, (4, 64), quantize_to=QType.INT8_ROWS)
    y = cpu.linear(np.ones((1, 64), np.float32), cpu.put([weight]))
    assert np.isnan(y[0, :3]).all()
    assert np.isfinite(y[0, 3])


@pytest.mark.parametrize("qtype", BLOCKED, ids=lambda q: q.label)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_activations_that_are_not_finite_stay_visible(cpu: CpuOps, qtype: QType, bad: float) -> None:
    """Wherever they stand, and in their own row alone."""
    cols = 2 * max(64, columns_of(qtype))
    x = np.random.default_rng(0).normal(size=(20, cols)).astype(np.float32)
    for row, col in enumerate((0, 15, 16, 31, cols - 17, cols - 1)):
        x[3 * row, col] = bad
    y = cpu.linear(x, cpu.put([random_weight(qtype, (40, cols))]))
    spoilt = np.isin(np.arange(20), np.arange(6) * 3)
    assert not np.isfinite(y[spoilt]).any()
    assert np.isfinite(y[~spoilt]).all()


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("qtype", [QType.F32, QType.F16, QType.BF16], ids=lambda q: q.label)
def test_any_nan_stays_one(cpu: CpuOps, qtype: QType, bits: int) -> None:
    """Also that of cards, all of whose bits are set, which rounding up would make a zero."""
    x = np.ones((2, 64), np.float32)
    x.view(np.uint32)[0, 3] = bits
    y = cpu.linear(x, cpu.put([random_weight(qtype, (20, 64))]))
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1]).all()


@pytest.mark.parametrize("limit", [0.0, 7.0])
@pytest.mark.parametrize("bad", [np.nan, -np.nan])
def test_a_gate_that_is_nan_stays_so(cpu: CpuOps, limit: float, bad: float) -> None:
    eye = Weight("w", np.eye(64, dtype=np.float32).reshape(-1).view(np.uint8), QType.F32, (64, 64))
    ones = Weight("w", np.ones((64, 64), np.float32).reshape(-1).view(np.uint8), QType.F32, (64, 64))
    for parts in ([eye, ones], [ones, eye]):
        y = cpu.gated_linear(np.full((1, 64), bad, np.float32), cpu.put(parts), limit)
        assert np.isnan(y).all()


@pytest.mark.parametrize("qtype", [q for q in BLOCKED if q not in SUPER], ids=lambda q: q.label)
def test_activations_may_be_of_any_size(cpu: CpuOps, qtype: QType) -> None:
    """Twice the activations give twice the result, bit for bit; and no more than a power of two has room for."""
    x = np.random.default_rng(0).normal(size=(9, 256)).astype(np.float32)
    w = cpu.put([random_weight(qtype, (40, 256))])
    y = cpu.linear(x, w)
    for factor in np.float32([2**-20, 2**20, 2**40]):
        np.testing.assert_array_equal(cpu.linear(x * factor, w), y * factor)
    assert np.abs(cpu.linear(x * np.float32(1e-20), w)).max() <= np.abs(y).max() * 1e-20 + 1e-12
    assert not cpu.linear(np.zeros_like(x), w).any()
    huge = np.isfinite(cpu.linear(x * np.float32(1e30), w))
    assert huge.all() if cpu.isa == "amx" else not huge.any()


@pytest.mark.parametrize("n", [1, 16, 20, 577])
def test_rms_norm_and_add(cpu: CpuOps, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (rng.normal(size=(5, n)).astype(np.float32) for _ in range(2))
    w = rng.uniform(0.5, 1.5, n).astype(np.float32)
    expected, summed = (REFERENCE.rms_norm(rows, w, 1e-5) for rows in (x, x + y))
    np.testing.assert_allclose(cpu.get(cpu.rms_norm(x, w, 1e-5)), expected, rtol=1e-5, atol=1e-6)
    for read_first in (True, False):
        total = cpu.add(x, y)
        if read_first:
            np.testing.assert_array_equal(cpu.get(total), x + y)
        np.testing.assert_allclose(cpu.get(cpu.rms_norm(total, w, 1e-5)), summed, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(cpu.get(total), x + y)


@pytest.mark.parametrize("n_rows", [1, 4, 7, 16, 40])
@pytest.mark.parametrize("types", NORMED, ids=lambda types: "+".join(t.label for t in types))
def test_rows_are_normalized_on_the_way(cpu: CpuOps, types: tuple[QType, ...], n_rows: int) -> None:
    """The bits of a sum, its norm and their product, each by itself; and the sum is there for the next layer."""
    rng = np.random.default_rng(n_rows)
    x, y = (rng.normal(size=(n_rows, 256)).astype(np.float32) for _ in range(2))
    norm = rng.uniform(0.5, 1.5, 256).astype(np.float32)
    w = cpu.put([random_weight(qtype, (176, 256), rng) for qtype in types])
    apart = cpu.get(cpu.rms_norm(np.array(cpu.get(cpu.add(x, y))), norm, 1e-5))
    for product in (cpu.linear, *([partial(cpu.gated_linear, limit=0.0)] if len(types) == 2 else [])):
        expected, total = product(apart, w), cpu.add(x, y)
        np.testing.assert_array_equal(product(cpu.rms_norm(total, norm, 1e-5), w), expected)
        np.testing.assert_array_equal(cpu.get(total), x + y)
        again = cpu.rms_norm(total, norm, 1e-5)
        np.testing.assert_array_equal(product(again, w), expected)
        np.testing.assert_array_equal(cpu.get(again), apart)
        np.testing.assert_array_equal(product(again, w), expected)


@pytest.mark.parametrize("limit", [0.0, 7.0])
@pytest.mark.parametrize("n_rows", [1, 5, 16, 150, 300])
@pytest.mark.parametrize("d_ff", [45, 1500])
def test_gated_linear(cpu: CpuOps, d_ff: int, n_rows: int, limit: float) -> None:
    """Gate and up of two types; columns and panels that are done in several pieces, the last ones smaller."""
    rng = np.random.default_rng(n_rows)
    x = rng.normal(size=(n_rows, 256)).astype(np.float32)
    bias = rng.normal(size=2 * d_ff).astype(np.float32)
    for types in ((QType.F32, QType.F32), (QType.Q4_0, QType.Q8_0)):
        weights = [random_weight(qtype, (d_ff, 256), seed) for seed, qtype in enumerate(types)]
        values = [multiplied(w, cpu.isa).astype(np.float32).view(np.uint8).reshape(-1) for w in weights]
        floats = [Weight("w", v, QType.F32, (d_ff, 256)) for v in values]
        expected = REFERENCE.gated_linear(seen(x, types[0], cpu.isa), REFERENCE.put(floats, bias), limit)
        actual = cpu.gated_linear(x, cpu.put(weights, bias), limit)
        np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)
        assert cpu.gated_linear(x[:0], cpu.put(weights, bias), limit).shape == (0, d_ff)


@pytest.mark.parametrize("n_rows", [1, 3, 8, 150])
def test_gated_linear_gives_the_bits_of_linear(cpu: CpuOps, n_rows: int) -> None:
    """Where up is 1 and the gate so large that its sigmoid is 1, what comes out is the gate itself."""
    x = np.random.default_rng(0).uniform(0.5, 1, size=(n_rows, 512)).astype(np.float32)
    for qtype in (QType.Q8_0, QType.Q4_0, QType.Q6_K, QType.F16):
        gate = random_weight(qtype, (1500, 512), 1)
        up = Weight("zero", np.zeros(1500 * 512 * 4, np.uint8), QType.F32, (1500, 512))
        bias = np.repeat(np.float32([1e3, 1]), 1500)
        alone = cpu.linear(x, cpu.put([gate], bias[:1500]))
        assert alone.min() > 100
        np.testing.assert_array_equal(cpu.gated_linear(x, cpu.put([gate, up], bias), 0.0), alone)


@pytest.mark.parametrize("qtype", [QType.F32, QType.BF16, QType.MXFP4, QType.Q8_0], ids=lambda q: q.label)
@pytest.mark.parametrize("n_tokens", [0, 1, 3, 29, 90])
def test_moe(cpu: CpuOps, qtype: QType, n_tokens: int) -> None:
    experts, d_model, d_ff, active = 7, 64, 96, 3
    rng = np.random.default_rng(n_tokens)
    x = rng.normal(size=(n_tokens, d_model)).astype(np.float32)
    router = rng.normal(size=(n_tokens, experts)).astype(np.float32)
    gate, up = (random_weight(qtype, (experts, d_ff, d_model), seed) for seed in (1, 2))
    down = random_weight(qtype, (experts, d_model, d_ff), 3)
    biases = [rng.normal(size=(experts, n)).astype(np.float32) * 0.1 for n in (2 * d_ff, d_model)]
    results = [
        ops.moe(x, router, ops.put([gate, up], biases[0]), ops.put([down], biases[1]), active, 7.0)
        for ops in (cpu, REFERENCE)
    ]
    # int8 activations cost about a percent of the largest output
    tolerance = 1e-5 if qtype is QType.F32 else 0.02
    assert results[0].shape == results[1].shape
    most = np.abs(results[1]).max(initial=0.0)
    assert np.abs(results[0] - results[1]).max(initial=0.0) <= tolerance * most


def decode_batch(positions: list[int], tables: list[list[list[int]]]) -> Batch:
    """One token of each sequence at these positions; tables[g][s]: the blocks of sequence s in group g."""
    n = len(positions)
    fields = dict.fromkeys(field.name for field in dataclasses.fields(Batch))
    slots = [[row[p // 16] * 16 + p % 16 for p, row in zip(positions, table, strict=True)] for table in tables]
    fields |= {
        "tokens": np.zeros(n, np.int32),
        "positions": np.array(positions, np.int32),
        "slots": tuple(np.array(slot, np.int32) for slot in slots),
        "seq_lens": np.array(positions, np.int32) + 1,
        "block_tables": tuple(np.array(table, np.int32) for table in tables),
        "next_positions": np.array(positions, np.int64) + 1,
    }
    return Batch(**fields)


def test_a_batch_goes_on(cpu: CpuOps) -> None:
    """For as many steps as three blocks have, in two groups of layers with blocks of their own."""
    starts = [0, 5, 15, 30]
    groups = [[[8 * s + 3 * g + b + 1 for b in range(4)] for s in range(4)] for g in range(2)]
    known = [
        [[b if i <= p // 16 else 0 for i, b in enumerate(row)] for p, row in zip(starts, g, strict=True)]
        for g in groups
    ]
    own, reference = decode_batch(starts, known), decode_batch(starts, known)
    for step in range(1, 32):
        positions = [start + step for start in starts]
        ids = np.array([step, 7, 100 + step, NO_ID], np.int32)
        new = [s for s, p in enumerate(positions) if p % 16 == 0]
        begun = [[group[s][positions[s] // 16] for s in new] for group in groups]
        for ops, batch in ((cpu, own), (REFERENCE, reference)):
            ops.advance(batch, ids, begun)
            expected = decode_batch(positions, groups)
            for name in ("positions", "seq_lens", "next_positions"):
                np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name))
            np.testing.assert_array_equal(batch.tokens, [step, 7, 100 + step, 0])
            np.testing.assert_array_equal(batch.slots, expected.slots)
        np.testing.assert_array_equal(own.block_tables, reference.block_tables)


def test_a_batch_that_cannot_go_on_is_left_as_it_was(cpu: CpuOps) -> None:
    batch, ids = decode_batch([15, 3], [[[1], [2]]]), np.array([5, 6], np.int32)
    with pytest.raises(ValueError, match="block tables are too narrow"):
        cpu.advance(batch, ids, [[9]])
    with pytest.raises(ValueError, match="a block is needed for each sequence"):
        cpu.advance(batch, ids, [[]])
    with pytest.raises(ValueError, match="one token of each"):
        cpu.advance(batch, ids[:1], [[9]])
    with pytest.raises(ValueError, match="for each group"):
        cpu.advance(batch, ids, [])
    assert batch.positions.tolist() == [15, 3]
    assert batch.slots[0].tolist() == [31, 35]


def test_a_wrong_shape_is_an_error_and_not_a_crash(cpu: CpuOps) -> None:
    w = cpu.put([random_weight(QType.Q8_0, (8, 64))])
    with pytest.raises(ValueError, match="width"):
        cpu.linear(np.zeros((2, 32), np.float32), w)
    with pytest.raises(ValueError, match="vocabulary"):
        cpu.embed(w, np.array([8], np.int32))
    with pytest.raises(ValueError, match="size does not fit"):
        cpu.put([Weight("w", np.zeros(33, np.uint8), QType.Q8_0, (1, 32))])
    with pytest.raises(ValueError, match="one float32 scale for each row"):
        cpu.put([Weight("w", np.zeros(64, np.uint8), QType.INT8_ROWS, (2, 32), np.ones(1, np.float32))])
    with pytest.raises(ValueError, match="multiple of 32"):
        cpu.put([Weight("w", np.zeros(80, np.uint8), QType.F16, (2, 20), quantize_to=QType.INT8_ROWS)])
    with pytest.raises(ValueError, match="only float types"):
        cpu.put([Weight("w", np.zeros(34, np.uint8), QType.Q8_0, (1, 32), quantize_to=QType.INT8_ROWS)])


def test_what_no_program_means_is_an_error_and_not_a_crash() -> None:
    ops, nothing = _kernels.Ops(1, "auto"), np.zeros(0, np.uint8)
    with pytest.raises(ValueError, match="at least one is needed"):
        _kernels.Ops(0, "auto")
    with pytest.raises(ValueError, match="larger than any memory"):
        ops.kv_layers(2048, 16384, 65536, 65536, "f32")
    with pytest.raises(ValueError, match="larger than any memory"):
        _kernels.stored("f32", nothing, 2**22, 2**21, 2**21, None, None, None, None, None)
    with pytest.raises(ValueError, match="row_order is empty"):
        _kernels.stored("f32", np.zeros(256, np.uint8), 1, 2, 32, None, np.zeros(0, np.int32), None, None, None)
    with pytest.raises(ValueError, match="a part is None"):
        _kernels.linear_of([None], None)  # type: ignore[list-item]


def test_an_unknown_instruction_set_is_named() -> None:
    with pytest.raises(ValueError, match="'sse9' is not one of auto"):
        CpuOps(1, "sse9")


def test_small_matrices_meet_exact_activations() -> None:
    """Up to n_exact elements nothing is rounded; one row more and activations become int8."""
    ops = CpuOps(1, n_exact=64 * 512)
    x = np.random.default_rng(0).normal(size=(2, 512)).astype(np.float32)
    small, large = random_weight(QType.Q8_0, (64, 512)), random_weight(QType.Q8_0, (65, 512))
    gaps = [np.abs(ops.linear(x, ops.put([w])) - REFERENCE.linear(x, REFERENCE.put([w]))).max() for w in (small, large)]
    assert gaps[0] < 1e-4 < gaps[1]
