"""int8 with a scale for each row, against the formula in float64, and which choices there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType, quantize_type
from gristmill.formats.quantize import quantize, quantize_int8_rows


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.float32, (3, 32), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_codes_are_nearest_and_scales_a_127th(x: np.ndarray) -> None:
    data, scales = quantize_int8_rows(x)
    codes = data.view(np.int8).reshape(x.shape).astype(np.float64)
    for row, code, scale in zip(x.astype(np.float64), codes, scales, strict=True):
        peak = np.abs(row).max()
        if peak < 4e-37:
            assert np.abs(code * np.float64(scale) - row).max() <= 4e-37
            continue
        np.testing.assert_allclose(scale, peak / 127, rtol=2e-7)
        exact = row / peak * 127
        assert np.abs(code - exact).max() <= 0.5 + 1e-4  # float32 may tip what is half way to within 1e-4 of 127
        far = np.abs(np.abs(exact - np.trunc(exact)) - 0.5) > 1e-4
        np.testing.assert_array_equal(code[far], np.rint(exact)[far])


def test_known_rows() -> None:
    """Halves go to even; zeros stay zeros."""
    x = np.float32([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.4], [0] * 8, [-2, 1, 0, 0, 0, 0, 0, 0]])
    data, scales = quantize_int8_rows(x)
    assert data.view(np.int8).reshape(3, 8).tolist() == [[127, 0, 2, 2, 0, -2, -2, 126], [0] * 8, [-127, 64, *[0] * 6]]
    np.testing.assert_array_equal(scales, np.float32([1, 0, np.float32(2) / np.float32(127)]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        quantize_int8_rows(np.float32([[1, bad]]))


def test_rows_keep_their_scales_in_another_order() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(2, 6, 32)) * np.geomspace(0.01, 100, 6)[:, None]).astype(np.float32)
    data, scales = quantize_int8_rows(x)
    weight = Weight("w", data, QType.INT8_ROWS, x.shape, scales)
    order = np.array([5, 0, 3], np.int32)
    taken = dequantize(weight.take_rows(order))
    np.testing.assert_array_equal(taken, dequantize(weight)[:, order])
    assert (np.abs(taken - x[:, order]) <= np.abs(x[:, order]).max(axis=-1, keepdims=True) / 250).all()
    asked = Weight("w", x.view(np.uint8).reshape(-1), QType.F32, x.shape, quantize_to=QType.INT8_ROWS)
    np.testing.assert_array_equal(dequantize(quantize(asked.take_rows(order))), taken)


def test_only_floats_in_whole_blocks_are_quantized() -> None:
    def asked(qtype: QType, cols: int) -> QType | None:
        return Weight("w", np.zeros(0, np.uint8), qtype, (4, cols)).quantized_to(QType.Q8_0).quantize_to

    assert [asked(q, 64) for q in (QType.F32, QType.F16, QType.BF16)] == [QType.Q8_0] * 3
    assert [asked(QType.F32, 40), asked(QType.Q4_0, 64), asked(QType.Q8_0, 64)] == [None] * 3


def test_choices() -> None:
    assert [quantize_type(name) for name in (None, "none", "int8", "q8_0")] == [None, None, QType.INT8_ROWS, QType.Q8_0]
    assert [quantize_type(name) for name in ("q4_0", "mxfp4")] == [QType.Q4_0, QType.MXFP4]
    with pytest.raises(ValueError, match=r"'int4', which is no type that .*; use one of none, int8, q8_0, q4_0, mxfp4"):
        quantize_type("int4")
