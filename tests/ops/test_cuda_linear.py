"""Products with matrices of every number type on Triton's kernels, against the numpy reference."""

# ruff: noqa: E402
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the GPU's memory is torch's")
pytest.importorskip("triton", reason="the GPU's kernels are Triton's")

from device import DEVICE, off, on
from random_weights import random_weight

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize import quantize
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.ops.reference import ReferenceOps
from gristmill.ops.triton import k_quants_layout, linear_prompt
from gristmill.ops.triton.common import INTERPRETED
from gristmill.ops.triton.linear import gated_linear, linear
from gristmill.ops.triton.linear_vector import blocks
from gristmill.ops.triton.quantized import Q8_0, SIX_BITS, Matrix, rows
from gristmill.ops.triton.quantized_layout import matrix_of, requantized

REFERENCE = ReferenceOps()
QUANTIZER = RowQuantizer(1)
EXACT = 1e-6 if INTERPRETED else 1e-2
"""A card rounds what it multiplies to bfloat16."""
KEPT = [q for q in QType if not requantized([random_weight(q, (1, 512))])]
CONVERTED = [q for q in QType if q not in KEPT]


def put(weights: list[Weight], bias: np.ndarray | None = None) -> Matrix:
    return matrix_of(weights, bias, on, QUANTIZER)


def exact(qtype: QType) -> float:
    """The K types' products of one token are differences: codes are fractions of 1, added to 1."""
    return 4 * EXACT if INTERPRETED and qtype.label.endswith("_k") else EXACT


def worst(actual: torch.Tensor, expected: np.ndarray) -> float:
    return float(np.abs(off(actual) - expected).max() / np.abs(expected).max())


def columns(qtype: QType) -> int:
    """Not a whole number of tiles, an odd number of groups where the type has groups of 32."""
    if qtype.block_size == 256:
        return 768
    return 52 if qtype.is_float else 512 if qtype in CONVERTED or qtype is QType.Q8_GROUPS else 288


@pytest.mark.parametrize("qtype", list(QType), ids=lambda q: q.label)
@pytest.mark.parametrize("n_tokens", [1, 2, 70])
def test_linear(qtype: QType, n_tokens: int) -> None:
    rng = np.random.default_rng(n_tokens)
    x = rng.normal(size=(n_tokens, columns(qtype))).astype(np.float32)
    weights = [random_weight(qtype, (n_rows, columns(qtype)), seed) for seed, n_rows in enumerate((70, 16, 3))]
    bias = rng.normal(size=89).astype(np.float32)
    expected = REFERENCE.linear(x, REFERENCE.put(weights, bias))
    assert worst(linear(on(x), put(weights, bias)), expected) < (exact(qtype) if qtype in KEPT else 1e-2)


@pytest.mark.parametrize(
    "qtype",
    [QType.F32, QType.BF16, QType.INT8_ROWS, QType.Q8_0, QType.MXFP4, QType.Q4_K, QType.Q5_K],
    ids=lambda q: q.label,
)
@pytest.mark.parametrize("n_tokens", [1, 5, 70, 300])
@pytest.mark.parametrize("limit", [0.0, 7.0])
def test_gated_linear(qtype: QType, n_tokens: int, limit: float) -> None:
    """Rows and tokens that are no whole number of tiles; whole groups of 8 columns, which a card fetches by itself."""
    rng, cols = np.random.default_rng(n_tokens), 768 if qtype.block_size == 256 else 288
    x = rng.normal(size=(n_tokens, cols)).astype(np.float32)
    gate, up = random_weight(qtype, (150, cols), 1), random_weight(qtype, (150, cols), 2)
    bias = rng.normal(size=300).astype(np.float32)
    expected = REFERENCE.gated_linear(x, REFERENCE.put([gate, up], bias), limit)
    actual = gated_linear(on(x), put([gate, up], bias), limit, torch.float32)
    assert worst(actual, expected) < 3 * exact(qtype)


@pytest.mark.parametrize("qtype", [QType.BF16, QType.INT8_ROWS, QType.Q8_0, QType.MXFP4, QType.Q4_K], ids=str)
@pytest.mark.parametrize("sizes", [(256, 128, 8), (128, 128, 8), (128, 64, 4)])
def test_prompts_of_bfloat16(qtype: QType, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a card multiplies as they are, in tiles of every size."""
    monkeypatch.setattr(linear_prompt, "_tile_sizes", lambda *_: sizes)
    cols = max(96, qtype.block_size)
    weight, rng = random_weight(qtype, (150, cols), 1), np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(300, cols)).astype(np.float32)).to(torch.bfloat16)
    expected = REFERENCE.linear(x.float().numpy(), REFERENCE.put([weight]))
    assert worst(linear(x.to(DEVICE), put([weight])), expected) < 1e-2


@pytest.mark.parametrize(
    "qtype",
    [QType.BF16, QType.INT8_ROWS, QType.Q8_0, QType.MXFP4, QType.Q4_K, QType.Q6_K],
    ids=lambda q: q.label,
)
def test_sums_split_over_columns(qtype: QType) -> None:
    """As many as 16 programs for a row, the last with less to do; no bias."""
    rng, cols = np.random.default_rng(0), 4352 if qtype.block_size == 256 else 4128
    weight = random_weight(qtype, (5, cols))
    for n_tokens in (1, 3):
        x = rng.normal(size=(n_tokens, cols)).astype(np.float32)
        assert worst(linear(on(x), put([weight])), REFERENCE.linear(x, REFERENCE.put([weight]))) < exact(qtype)


@pytest.mark.parametrize("qtype", [QType.Q4_0, QType.MXFP4, QType.Q4_K, QType.Q6_K], ids=lambda q: q.label)
def test_long_rows_of_two_codes_a_byte(qtype: QType) -> None:
    """Of which a thread has 16 bytes at once, as in published models; and gates beside."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 4096)).astype(np.float32)
    gate, up = random_weight(qtype, (70, 4096), 1), random_weight(qtype, (70, 4096), 2)
    assert blocks(put([gate]))[1] == 1024
    assert worst(linear(on(x), put([gate])), REFERENCE.linear(x, REFERENCE.put([gate]))) < exact(qtype)
    expected = REFERENCE.gated_linear(x, REFERENCE.put([gate, up]), 0.0)
    assert worst(gated_linear(on(x), put([gate, up]), 0.0, torch.float32), expected) < 3 * exact(qtype)


def test_activations_of_bfloat16() -> None:
    x = torch.randn((3, 96), generator=torch.Generator().manual_seed(0)).to(DEVICE, torch.bfloat16)
    weight = random_weight(QType.Q8_0, (40, 96))
    for n_tokens in (1, 3):
        expected = REFERENCE.linear(off(x[:n_tokens]), REFERENCE.put([weight]))
        assert worst(linear(x[:n_tokens], put([weight])), expected) < EXACT


@pytest.mark.parametrize("qtype", [QType.BF16, QType.INT8_ROWS, QType.MXFP4, QType.Q4_K, QType.Q6_K], ids=str)
def test_neighbours_change_no_bit(qtype: QType) -> None:
    """A token's sums are the same beside any others of a step. (The interpreter's products depend on a tile's width
    and on a token's place in it, so that here both are the same.)"""
    rng = np.random.default_rng(0)
    cols = 768 if qtype.block_size == 256 else 544
    w = put([random_weight(qtype, (70, cols))], rng.normal(size=70).astype(np.float32))
    x = on(rng.normal(size=(64, cols)).astype(np.float32))
    assert torch.equal(linear(x[:40], w), linear(x, w)[:40])
    assert torch.equal(linear(x[:3], w), linear(x[:16], w)[:3])


@pytest.mark.parametrize("qtype", list(QType), ids=lambda q: q.label)
def test_rows_are_those_of_the_file(qtype: QType) -> None:
    weight = random_weight(qtype, (37, columns(qtype)))
    tokens = np.array([0, 36, 5, 5, 17], np.int32)
    expected = dequantize(weight)[tokens]
    actual = off(rows(put([weight]), on(tokens)))
    if qtype in KEPT:
        np.testing.assert_array_equal(actual, expected)
    else:
        assert np.abs(actual - expected).max() <= np.abs(expected).max() / 200


@pytest.mark.parametrize(
    "qtype", [QType.F16, QType.Q8_0, QType.INT8_ROWS, QType.Q8_GROUPS, QType.MXFP4_SPLIT, QType.Q6_K]
)
def test_rows_in_another_order(qtype: QType) -> None:
    order = np.array([5, 2, 8, 8, 0], np.int32)
    weight = random_weight(qtype, (9, max(192, qtype.block_size)))
    taken = weight.take_rows(order)
    actual = off(rows(put([taken]), torch.arange(5, dtype=torch.int32, device=DEVICE)))
    np.testing.assert_array_equal(actual, dequantize(weight)[order])


@pytest.mark.filterwarnings("ignore:overflow")
def test_every_number_of_four_bits() -> None:
    """All scales of MXFP4, the subnormal ones too, times all codes."""
    codes = np.tile(np.arange(0, 256, 17, dtype=np.uint8), 255)  # each of the 16 twice
    weight = Weight("w", codes, QType.MXFP4_SPLIT, (255, 32), np.arange(255, dtype=np.uint8))  # 255 means NaN
    actual = off(rows(put([weight]), torch.arange(255, dtype=torch.int32, device=DEVICE)))
    np.testing.assert_array_equal(actual, dequantize(weight))


def test_types_that_differ_are_stacked_as_floats() -> None:
    mixed = [random_weight(QType.Q8_0, (8, 64)), random_weight(QType.F32, (4, 64), 1)]
    expected = np.concatenate([dequantize(weight) for weight in mixed])
    np.testing.assert_array_equal(off(rows(put(mixed), torch.arange(12, dtype=torch.int32, device=DEVICE))), expected)
    halves = put([random_weight(QType.Q8_0, (8, 64)), random_weight(QType.F16, (4, 64), 1)])
    assert halves.codes.dtype is torch.bfloat16
    for qtype in (QType.Q4_K, QType.Q5_0):  # nothing is stored again on the way
        mixed = [random_weight(qtype, (8, 256)), random_weight(QType.F32, (4, 256), 1)]
        expected = np.concatenate([dequantize(weight) for weight in mixed])
        numbers = off(rows(put(mixed), torch.arange(12, dtype=torch.int32, device=DEVICE)))
        np.testing.assert_array_equal(numbers, expected)


def test_k_types_that_differ_are_stacked_number_for_number() -> None:
    mixed = [random_weight(q, (8, 512), i) for i, q in enumerate((QType.Q4_K, QType.Q6_K, QType.Q3_K))]
    stacked = put(mixed)
    assert stacked.kind == SIX_BITS.value
    expected = np.concatenate([dequantize(weight) for weight in mixed])
    np.testing.assert_array_equal(off(rows(stacked, torch.arange(24, dtype=torch.int32, device=DEVICE))), expected)
    x = np.random.default_rng(0).normal(size=(1, 512)).astype(np.float32)
    assert worst(linear(on(x), stacked), x @ expected.T) < exact(QType.Q6_K)


def test_k_types_beside_others_are_stored_again_like_those() -> None:
    stacked = put([random_weight(q, (8, 256)) for q in (QType.Q4_K, QType.Q5_0)])
    assert stacked.kind == Q8_0.value


@pytest.mark.parametrize(("qtype", "at"), [(QType.Q6_K, 208), (QType.Q3_K, 108)])
def test_scales_that_no_minimum_can_be_made_of_are_refused(qtype: QType, at: int) -> None:
    weight = random_weight(qtype, (2, 256))
    weight.data[at : at + 2] = np.array([60000], np.float16).view(np.uint8)
    with pytest.raises(ValueError, match="tensor w: a scale of its q"):
        put([weight])


def test_large_matrices_are_taken_apart_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k_quants_layout, "_AT_ONCE", 3 * 512)
    weight = random_weight(QType.Q5_K, (7, 512))
    np.testing.assert_array_equal(
        off(rows(put([weight]), torch.arange(7, dtype=torch.int32, device=DEVICE))), dequantize(weight)
    )


@pytest.mark.parametrize(
    ("types", "told"),
    [
        ((QType.Q4_K, QType.Q8_0, QType.Q6_K), (0, 2)),  # K types beside Q8_0
        ((QType.Q5_0, QType.Q8_0, QType.Q4_K), (0, 2)),
        ((QType.Q4_K, QType.Q6_K), ()),  # number for number
        ((QType.Q8_0, QType.Q8_0), ()),
        ((QType.Q5_0, QType.BF16), ()),  # floats
        ((QType.FP8_GROUPS, QType.Q8_0), ()),
    ],
)
def test_what_becomes_q8_0_unasked(types: tuple[QType, ...], told: tuple[int, ...]) -> None:
    weights = [random_weight(qtype, (32, 512)) for qtype in types]
    assert requantized(weights) == [weights[i] for i in told]
    kept = off(rows(put(weights), torch.arange(32 * len(types), dtype=torch.int32, device=DEVICE)))
    for i, weight in enumerate(weights):
        part, own = kept[32 * i : 32 * i + 32], dequantize(weight)
        if i in told:
            floats = Weight("w", own.reshape(-1).view(np.uint8), QType.F32, own.shape)
            np.testing.assert_array_equal(part, dequantize(quantize(floats.quantized_to(QType.Q8_0))))
        else:
            np.testing.assert_allclose(part, own, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("target", [QType.INT8_ROWS, QType.Q8_0, QType.Q4_0, QType.MXFP4], ids=lambda q: q.label)
def test_quantized_at_load(target: QType) -> None:
    weight = random_weight(QType.BF16, (20, 96)).quantized_to(target)
    expected = REFERENCE.put([weight]).w
    np.testing.assert_array_equal(
        off(rows(put([weight]), torch.arange(20, dtype=torch.int32, device=DEVICE))), expected
    )


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    weight = random_weight(QType.F32, (3, 2080))
    weight.data.view(np.float32)[[5, 2080 + 7, 4 * 1000]] = 1, bad, 3
    with pytest.raises(ValueError, match="tensor w holds numbers that are not finite"):
        put([weight.quantized_to(QType.INT8_ROWS)])
