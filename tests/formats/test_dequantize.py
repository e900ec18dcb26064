"""Every encoding against code that is not ours: the gguf package, transformers, and llama2.c's formula."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import kquants

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_blocks import quantize_q8_0

APART = tuple(qtype for qtype in QType if qtype.scales_apart)
GGUF_TYPES = [qtype for qtype in QType if qtype not in APART]
HALF_FLOATS = {  # byte offsets of the float16 fields of a block, after ggml-common.h
    QType.Q4_0: [0],
    QType.Q4_1: [0, 2],
    QType.Q5_0: [0],
    QType.Q5_1: [0, 2],
    QType.Q8_0: [0],
    QType.Q2_K: [80, 82],
    QType.Q3_K: [108],
    QType.Q4_K: [0, 2],
    QType.Q5_K: [0, 2],
    QType.Q6_K: [208],
    QType.IQ1_S: [0],
    QType.IQ1_M: [],
    QType.IQ2_XXS: [0],
    QType.IQ2_XS: [0],
    QType.IQ2_S: [0],
    QType.IQ3_XXS: [0],
    QType.IQ3_S: [0],
    QType.TQ1_0: [52],
    QType.TQ2_0: [64],
    QType.IQ4_NL: [0],
    QType.IQ4_XS: [0],
    QType.MXFP4: [],
    QType.Q1_0: [0],
    QType.Q2_0: [0],
}
EXTREMES = np.array([0, -0.0, 6e-8, -6e-8, 65504, -65504, np.inf, -np.inf, np.nan, 1], dtype="<f2")


def random_blocks(qtype: QType, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, qtype.block_bytes), dtype=np.uint8)


def oracle(qtype: QType, rows: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return kquants.dequantize(rows, qtype.name)


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nan], theirs.view(np.uint32)[~nan])


@pytest.mark.parametrize("qtype", GGUF_TYPES, ids=lambda q: q.label)
def test_sizes_are_ggmls(qtype: QType) -> None:
    sizes = {name: gguf.GGML_QUANT_SIZES[number] for name, number in gguf.GGMLQuantizationType.__members__.items()}
    sizes["Q2_0"] = (64, 18)  # ggml-common.h: block_q2_0
    assert sizes[qtype.name] == (qtype.block_size, qtype.block_bytes)


@pytest.mark.parametrize("qtype", GGUF_TYPES, ids=lambda q: q.label)
@pytest.mark.parametrize("kind", ["random", "finite", "extreme"])
def test_equal_to_the_gguf_package(qtype: QType, kind: str) -> None:
    blocks = random_blocks(qtype, 3 * 5 * 4 * 20, seed=1)
    for at in HALF_FLOATS.get(qtype, []):
        n = len(blocks)
        halves = np.resize(EXTREMES, n) if kind == "extreme" else np.linspace(-9, 9, n).astype("<f2")
        if kind != "random":
            blocks[:, at : at + 2] = halves.view(np.uint8).reshape(n, 2)
    shape = (3, 5, 4 * 20 * qtype.block_size)
    weight = Weight("w", blocks.reshape(-1), qtype, shape)
    assert_same_bits(dequantize(weight), oracle(qtype, blocks.reshape(3, 5, -1)))


def test_nvfp4_is_ggmls_times_a_scale_for_each_row() -> None:
    """Every byte as a scale, also those that ggml never writes."""
    blocks = random_blocks(QType.NVFP4, 6 * 128, seed=1)
    blocks[:, :4] = np.arange(6 * 128 * 4).reshape(-1, 4) % 256
    theirs = oracle(QType.NVFP4, blocks.reshape(6, -1))
    ones, scales = np.ones(6, np.float32), np.array([1, 0.37, -2, 0, 1e-3, 7], np.float32)
    shape = (2, 3, 64 * 128)
    assert_same_bits(dequantize(Weight("w", blocks.reshape(-1), QType.NVFP4, shape, ones)), theirs.reshape(shape))
    weight = Weight("w", blocks.reshape(-1), QType.NVFP4, shape, scales)
    assert_same_bits(dequantize(weight), (theirs * scales[:, None]).reshape(shape))
    taken = weight.take_rows(np.array([2, 0], np.int32))
    np.testing.assert_array_equal(dequantize(taken), dequantize(weight)[:, [2, 0]])


@pytest.mark.parametrize("qtype", [QType.Q4_0, QType.Q6_K], ids=lambda q: q.label)
def test_more_blocks_than_fit_a_chunk(qtype: QType) -> None:
    n = (1 << 21) // qtype.block_size * 2 + 3
    blocks = random_blocks(qtype, n, seed=2)
    weight = Weight("w", blocks.reshape(-1), qtype, (n, qtype.block_size))
    assert_same_bits(dequantize(weight), oracle(qtype, blocks))


@pytest.mark.parametrize("qtype", GGUF_TYPES, ids=lambda q: q.label)
@pytest.mark.parametrize("leading", [(), (3,)], ids=["matrix", "experts"])
def test_row_order_and_fewer_rows(qtype: QType, leading: tuple[int, ...]) -> None:
    n_stored = 6
    blocks = random_blocks(qtype, int(np.prod(leading)) * n_stored * 2, seed=3)
    shape = (*leading, n_stored, 2 * qtype.block_size)
    stored = Weight("w", blocks.reshape(-1), qtype, shape)
    plain = dequantize(stored)
    taken = stored.take_rows(np.array([5, 0, 0, 3], dtype=np.int32))
    assert taken.shape == (*leading, 4, 2 * qtype.block_size)
    np.testing.assert_array_equal(dequantize(taken), plain[..., [5, 0, 0, 3], :])
    again = taken.take_rows(np.array([3, 1], dtype=np.int32))
    np.testing.assert_array_equal(dequantize(again), plain[..., [3, 0], :])


def test_row_order_of_a_vector() -> None:
    values = np.arange(6, dtype=np.float32)
    weight = Weight("bias", values.view(np.uint8), QType.F32, (6,)).take_rows(np.array([4, 1], dtype=np.int32))
    assert weight.shape == (2,)
    np.testing.assert_array_equal(dequantize(weight), [4, 1])


@pytest.mark.parametrize("group_size", [2, 6, 15])  # 15 is a row and a half
def test_groups_span_rows(group_size: int) -> None:
    rng = np.random.default_rng(4)
    codes = rng.integers(-127, 128, (2, 6, 10), dtype=np.int8)
    scales = rng.normal(size=codes.size // group_size).astype(np.float32)
    weight = Weight("w", codes.reshape(-1).view(np.uint8), QType.Q8_GROUPS, codes.shape, scales)
    flat = codes.reshape(-1)
    expected = [np.float32(flat[i]) * scales[i // group_size] for i in range(flat.size)]  # runq.c: dequantize
    expected = np.array(expected, dtype=np.float32).reshape(codes.shape)
    np.testing.assert_array_equal(dequantize(weight), expected)
    order = np.array([2, 0, 5], dtype=np.int32)
    np.testing.assert_array_equal(dequantize(weight.take_rows(order)), expected[:, order])


def test_split_mxfp4_equals_transformers() -> None:
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("transformers.integrations.mxfp4")
    rng = np.random.default_rng(5)
    blocks = rng.integers(0, 256, (3, 5, 4, 16), dtype=np.uint8)
    for low, high in ((100, 150), (1, 255)):  # 2^-126 .. 2^127: beyond, torch's ldexp leaves float32
        scales = rng.integers(low, high, (3, 5, 4), dtype=np.uint8)
        theirs = module.convert_moe_packed_tensors(
            torch.from_numpy(blocks.copy()), torch.from_numpy(scales.copy()), dtype=torch.float32
        )
        weight = Weight("w", blocks.reshape(-1), QType.MXFP4_SPLIT, (3, 5, 128), scales.reshape(-1))
        assert_same_bits(dequantize(weight), theirs.transpose(1, 2).contiguous().numpy())
        order = np.array([4, 1], dtype=np.int32)
        np.testing.assert_array_equal(dequantize(weight.take_rows(order)), dequantize(weight)[:, order])


def test_split_mxfp4_is_the_documented_formula() -> None:
    """e2m1 times 2^(scale - 127), every code with every scale."""
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    codes = np.arange(16, dtype=np.uint8)
    blocks = np.tile(codes, (256, 1))  # low nibble the code, high nibble 0
    weight = Weight("w", blocks.reshape(-1), QType.MXFP4_SPLIT, (256, 32), np.arange(256, dtype=np.uint8))
    values = dequantize(weight)
    for scale in range(256):
        expected = [(-1) ** (c >> 3) * magnitudes[c & 7] * 2.0 ** (scale - 127) for c in range(16)]
        expected = [np.float32(v) if abs(v) < 2.0**128 else np.copysign(np.inf, v) for v in expected]
        np.testing.assert_array_equal(values[scale, 0::2], np.array(expected, dtype=np.float32))
    assert not values[:, 1::2].any()


floats = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=1, max_dims=3, max_side=3).map(lambda s: (*s[:-1], 32 * s[-1])),
    elements=st.floats(-8e6, 8e6, width=32) | st.integers(-254, 254).map(lambda n: n / 2),
)


@given(floats)
@settings(max_examples=200, deadline=None)
def test_quantize_q8_0_writes_ggmls_bytes(x: np.ndarray) -> None:
    scale = np.abs(x.reshape(-1, 32)).max(axis=1) / 127
    tiny = (scale > 0) & (scale < 1e-37)  # where 1 / scale overflows, ggml's result is undefined
    ours = quantize_q8_0(x).reshape(-1, 34)
    with np.errstate(all="ignore"):
        theirs = gguf.quantize(x, gguf.GGMLQuantizationType.Q8_0).reshape(-1, 34)
    np.testing.assert_array_equal(ours[~tiny], theirs[~tiny])
    assert not ours[tiny, :2].any()


def test_quantize_q8_0_rounds_halves_away_from_zero() -> None:
    x = np.array([127, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997] + [0] * 25, dtype=np.float32)
    assert quantize_q8_0(x)[2:9].view(np.int8).tolist() == [127, 1, -1, 2, 3, -3, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf, 8.4e6])
def test_quantize_q8_0_refuses_what_no_scale_holds(value: float) -> None:
    x = np.zeros((2, 32), dtype=np.float32)
    x[1, 7] = value
    with pytest.raises(ValueError, match="quantize_q8_0: x holds"):
        quantize_q8_0(x)


@pytest.mark.parametrize("shape", [(), (31,), (2, 33)])
def test_quantize_q8_0_refuses_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        quantize_q8_0(np.zeros(shape, dtype=np.float32))
