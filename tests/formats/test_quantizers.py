"""The quantizers: native and numpy give the same bits, ggml's simple types are matched, and searches find more."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from instruction_sets import isas
from numpy.typing import NDArray
from oracles import kquants, mxfp4

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_blocks import quantize_blocks, quantize_groups
from gristmill.formats.quantize_rows import RowQuantizer

F32 = NDArray[np.float32]
BLOCKED = [QType.Q4_0, QType.Q5_0, QType.Q8_0, QType.MXFP4, QType.Q4_K, QType.Q5_K, QType.Q6_K]
K_TYPES = [QType.Q4_K, QType.Q5_K, QType.Q6_K]


def samples(rows: int = 24, cols: int = 768) -> F32:
    """Rows of each kind that a search could trip over, among ordinary ones."""
    rng = np.random.default_rng(7)
    x = rng.normal(0, 0.02, (rows, cols))
    x[1] = rng.standard_t(2, cols)  # outliers
    x[2] = 0
    x[3, :256] = 0
    x[4] = np.abs(x[4])
    x[5] = -np.abs(x[5]) - 0.1
    x[6] = 0.25
    x[7] = -0.25
    x[8] *= 1e-12
    x[9] *= 1e-38
    x[10] *= 1e4
    x[11] = np.tile([1, -1], cols // 2)
    x[12, 1::2] = 0
    x[13] = np.round(x[13] * 50) / 50  # ties
    x[14] = np.repeat(rng.normal(0, 1, cols // 32), 32)
    x[15:17] = [[0.37], [-0.37]] * rng.uniform(0.999, 1.001, (2, cols))
    x[17, :32], x[17, 32:64] = 0.05, -0.05
    return x.astype(np.float32)


def encode(weight: Weight, qtype: QType, isa: str | None = None, n_threads: int = 2) -> NDArray[np.uint8]:
    return np.concatenate([chunk.copy() for chunk in RowQuantizer(n_threads, isa).encode(weight, qtype)])


def weight_of(x: NDArray[np.generic], qtype: QType) -> Weight:
    return Weight("w", np.ascontiguousarray(x).reshape(-1).view(np.uint8), qtype, x.shape)


def error_of(blocks: NDArray[np.uint8], qtype: QType, x: F32) -> float:
    values = dequantize(Weight("w", blocks.reshape(-1), qtype, x.shape))
    return float(np.sqrt(np.square((values - x).astype(np.float64)).mean()))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("qtype", BLOCKED)
def test_native_gives_the_bits_of_the_definition(qtype: QType, isa: str) -> None:
    x = samples()
    expected = quantize_blocks(qtype, x).reshape(len(x), -1)
    found = encode(weight_of(x, QType.F32), qtype, isa).reshape(len(x), -1)
    differing = np.flatnonzero((found != expected).any(axis=1))
    assert differing.tolist() == []


@pytest.mark.parametrize("isa", isas())
def test_floats_are_rounded_to_the_nearest(isa: str) -> None:
    x = samples()
    assert (encode(weight_of(x, QType.F32), QType.F16, isa).view("<f2") == x.astype("<f2").reshape(-1)).all()
    bits = x.view(np.uint32).astype(np.uint64)
    bf16 = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).reshape(-1)
    assert (encode(weight_of(x, QType.F32), QType.BF16, isa).view("<u2") == bf16).all()
    assert (
        encode(weight_of(x.astype("<f2"), QType.F16), QType.F32, isa).view("<f4") == x.astype("<f2").reshape(-1)
    ).all()


@pytest.mark.parametrize(
    ("qtype", "other"), [(QType.Q8_0, Type.Q8_0), (QType.Q4_0, Type.Q4_0), (QType.Q5_0, Type.Q5_0)]
)
def test_simple_types_are_those_of_ggml(qtype: QType, other: Type) -> None:
    x = samples()
    x[8:10] = 0  # the gguf package divides by scales that float16 cannot hold
    expected = gguf.quants.quantize(x, other).reshape(len(x), -1)
    assert (quantize_blocks(qtype, x).reshape(len(x), -1) == expected).all()


def test_mxfp4_is_the_specification_or_nearer() -> None:
    x = samples()
    x[9] = 0
    plain = mxfp4.dequantize(*mxfp4.quantize(x))
    found = dequantize(Weight("w", quantize_blocks(QType.MXFP4, x), QType.MXFP4, x.shape))
    missed, specified = (np.square(y - x).reshape(-1, 32).sum(axis=1) for y in (found, plain))
    assert (missed <= specified * (1 + 1e-6)).all()
    assert missed[0:24].sum() < specified[0:24].sum()  # the next scale is nearer for some


@pytest.mark.parametrize(
    ("qtype", "other"), [(QType.Q4_K, Type.Q4_K), (QType.Q5_K, Type.Q5_K), (QType.Q6_K, Type.Q6_K)]
)
def test_searches_beat_plain_rounding(qtype: QType, other: Type) -> None:
    x = np.random.default_rng(1).normal(0, 0.02, (64, 1024)).astype(np.float32)
    plain = error_of(np.asarray(kquants.quantize(x, other)).view(np.uint8), qtype, x)
    assert error_of(quantize_blocks(qtype, x), qtype, x) < 0.95 * plain


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("spread", [0, 1e-3])
@pytest.mark.parametrize(("qtype", "other"), [(QType.Q4_K, Type.Q4_K), (QType.Q5_K, Type.Q5_K)])
def test_numbers_that_are_nearly_equal_come_back(qtype: QType, other: Type, spread: float, sign: int) -> None:
    """A sub-block, or every one of a block, whose numbers all get the same code."""
    rng = np.random.default_rng(3)
    x = rng.normal(0, 0.5, (128, 8, 32))
    level = np.ones((128, 8), bool)
    level[64:, ::2] = False  # beside ordinary ones
    equal = sign * rng.uniform(0.2, 1, (128, 8, 1)) * rng.uniform(1 - spread, 1 + spread, x.shape)
    x = np.where(level[..., None], equal, x).astype(np.float32).reshape(128, 256)

    def errors(blocks: NDArray[np.uint8]) -> tuple[float, float]:
        misses = (gguf.quants.dequantize(blocks.reshape(128, -1), other) - x).reshape(2, 64, 8, 32)
        return float(np.square(misses[0]).mean()), float(np.square(misses[1][level[64:]]).mean())

    found, plain = errors(quantize_blocks(qtype, x)), errors(np.asarray(kquants.quantize(x, other)).view(np.uint8))
    assert found[0] <= 1.01 * plain[0] < 1e-4
    assert found[1] <= 1.01 * plain[1] < 1e-3


@pytest.mark.parametrize("qtype", K_TYPES)
def test_numbers_on_the_grid_come_back(qtype: QType) -> None:
    """What a block can say exactly is found again, but for the last bit of its scales."""
    x = samples()[:1]
    once = dequantize(Weight("w", quantize_blocks(qtype, x), qtype, x.shape))
    again = dequantize(Weight("w", quantize_blocks(qtype, once), qtype, x.shape))
    assert np.sqrt(np.square(again - once).mean()) < 0.1 * np.sqrt(np.square(once - x).mean())


def test_groups_of_llama2c() -> None:
    x = samples()[:8]
    data, scales = quantize_groups(x, 64)
    *chunks, found = RowQuantizer(2).encode_groups(weight_of(x, QType.F32), 64)
    assert (np.concatenate(chunks) == data).all()
    assert (found == scales).all()
    with pytest.raises(ValueError, match="whole groups of 7"):
        quantize_groups(x, 7)


def test_groups_that_are_there_stay_as_they_are() -> None:
    """Whatever their largest number; in groups of another size, or rows in another order, they are made anew."""
    rng = np.random.default_rng(2)
    codes, scales = rng.integers(-90, 90, (6, 64), dtype=np.int8), rng.uniform(0.01, 1, 12).astype(np.float32)
    weight = Weight("w", codes.view(np.uint8).reshape(-1), QType.Q8_GROUPS, codes.shape, scales)
    seen = list[Weight]()
    data, kept = RowQuantizer(1).encode_groups(weight, 32, seen.append)
    assert np.array_equal(data, weight.data)
    assert np.array_equal(kept, scales)
    assert [each.data.nbytes for each in seen] == [weight.data.nbytes]
    order = np.array([5, 0, 1, 2, 3, 4], np.int32)
    for other, group in ((weight, 64), (weight.take_rows(order), 32)):
        data, made = RowQuantizer(1).encode_groups(other, group)
        expected = quantize_groups(dequantize(other), group)
        assert np.array_equal(data, expected[0])
        assert np.array_equal(made, expected[1])


def test_rows_go_in_their_logical_order() -> None:
    x = samples()
    order = np.random.default_rng(0).permutation(len(x)).astype(np.int32)[:20]
    weight = weight_of(x, QType.F32).take_rows(order)
    assert (encode(weight, QType.Q4_K) == quantize_blocks(QType.Q4_K, x[order])).all()
    assert (encode(weight, QType.F32).view("<f4") == x[order].reshape(-1)).all()
    experts = weight_of(x.reshape(2, 12, -1), QType.F32).take_rows(order[:12] % 12)
    assert (encode(experts, QType.F32).view("<f4") == x.reshape(2, 12, -1)[:, order[:12] % 12].reshape(-1)).all()


@pytest.mark.parametrize("rows_a_time", [1, 5, 24])
def test_stretches_of_rows_are_those_of_the_whole(rows_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each is told of once it is done with."""
    x, seen = samples(), list[Weight]()
    monkeypatch.setattr("gristmill.formats.quantize_rows._CHUNK_NUMBERS", rows_a_time * x.shape[1] + 1)
    weight, backwards = weight_of(x, QType.F32), np.arange(len(x), dtype=np.int32)[::-1]
    for qtype in (QType.F32, QType.F16, QType.Q8_0):
        seen.clear()
        chunks = list(RowQuantizer(2).encode(weight, qtype, seen.append))
        assert len(chunks) == -(-len(x) // rows_a_time)
        values = dequantize(Weight("w", np.concatenate(chunks), qtype, x.shape))
        expected = {QType.F32: x, QType.F16: x.astype("<f2").astype(np.float32)}
        if qtype is QType.Q8_0:
            expected[qtype] = dequantize(Weight("w", quantize_blocks(qtype, x), qtype, x.shape))
        assert np.array_equal(values, expected[qtype])
        assert np.array_equal(np.concatenate([each.data for each in seen]), weight.data)
        turned = np.concatenate(list(RowQuantizer(2).encode(weight.take_rows(backwards), qtype)))
        assert np.array_equal(dequantize(Weight("w", turned, qtype, x.shape)), expected[qtype][::-1])
    *chunks, scales = RowQuantizer(2).encode_groups(weight, 64)
    expected_codes, expected_scales = quantize_groups(x, 64)
    assert np.array_equal(np.concatenate(chunks), expected_codes)
    assert np.array_equal(scales, expected_scales)
    x[17, 3] = np.nan
    with pytest.raises(ValueError, match="tensor 'w': row 17 holds"):
        encode(weight, QType.F16)


def test_rows_that_are_no_whole_blocks_are_named() -> None:
    with pytest.raises(ValueError, match="tensor 'w' has rows of 48 numbers, q4_0 needs whole blocks"):
        encode(weight_of(samples().reshape(-1, 48), QType.F32), QType.Q4_0)


@pytest.mark.parametrize("source", [*BLOCKED, QType.F16, QType.BF16])
def test_any_type_is_read(source: QType) -> None:
    x = samples()
    x[10] = 0  # too large for float16
    stored = Weight("w", encode(weight_of(x, QType.F32), source), source, x.shape)
    assert (encode(stored, QType.F32).view("<f4") == dequantize(stored).reshape(-1)).all()
    assert (encode(stored, source) == stored.data).all()


def test_split_mxfp4_keeps_every_bit() -> None:
    codes, scales = mxfp4.quantize(samples()[:8])
    packed = mxfp4.pack_pairs(codes).reshape(-1)
    stored = Weight("w", packed, QType.MXFP4_SPLIT, (8, 768), scales.reshape(-1))
    assert (encode(stored, QType.MXFP4) == mxfp4.pack_ggml(codes, scales).reshape(-1)).all()
    assert (encode(stored, QType.F32).view("<f4") == mxfp4.dequantize(codes, scales).reshape(-1)).all()


@pytest.mark.parametrize("qtype", [QType.F16, QType.BF16, *BLOCKED])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(qtype: QType, bad: float) -> None:
    x = samples()
    x[17, 300] = bad
    with pytest.raises(ValueError, match=r"tensor 'w': row 17 holds numbers that are not finite"):
        encode(weight_of(x, QType.F32), qtype)


def test_what_float16_cannot_hold_is_named() -> None:
    x = samples()
    x[3, 4] = 1e5
    with pytest.raises(ValueError, match=r"row 3 .* too large for f16: give another --type \(bf16, f32\)"):
        encode(weight_of(x, QType.F32), QType.F16)


def test_threads_do_not_matter() -> None:
    x = np.random.default_rng(3).normal(size=(500, 256)).astype(np.float32)
    found = [encode(weight_of(x, QType.F32), QType.Q4_K, n_threads=n).tobytes() for n in (1, 2, 5)]
    assert len(set(found)) == 1
