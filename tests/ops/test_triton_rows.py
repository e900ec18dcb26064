"""The kernels that take one row at a time equal the reference: norms, angles, SwiGLU, rows by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device import off, on

from gristmill.ops.reference import ReferenceOps
from gristmill.ops.reference import swiglu as reference_swiglu
from gristmill.ops.triton.activation import swiglu
from gristmill.ops.triton.embedding import take_rows
from gristmill.ops.triton.norm import add, add_rms_norm, rms_norm
from gristmill.ops.triton.rope import rope_angles
from gristmill.types import RopeConfig

REFERENCE = ReferenceOps()
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_rows", "width"), [(1, 64), (3, 96), (2, 2880)])
def test_norms(dtype: torch.dtype, n_rows: int, width: int) -> None:
    x, y, weight = (on(normal(n, width, seed=n), dtype) for n in (n_rows, n_rows, 1))
    weight = weight[0].float()
    expected = REFERENCE.rms_norm(off(x), off(weight), 1e-5)
    np.testing.assert_allclose(off(rms_norm(x, weight, 1e-5)), expected, rtol=ROUNDING[dtype], atol=1e-6)
    total, normed = add_rms_norm(x, y, weight, 1e-5, torch.float32)
    exact = off(x) + off(y)
    assert total.dtype == dtype
    assert normed.dtype == torch.float32
    np.testing.assert_allclose(off(total), exact, rtol=ROUNDING[dtype])
    np.testing.assert_allclose(off(normed), REFERENCE.rms_norm(exact, off(weight), 1e-5), rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(off(add(x, y)), off(total))


def test_no_rows_give_none() -> None:
    none, weight, numbers = on(normal(0, 40)), on(normal(40)), on(np.zeros(0, np.int32))
    results = [add(none, none), rms_norm(none, weight, 1e-6), take_rows(none, numbers)]
    assert [y.shape for y in (*results, *add_rms_norm(none, none, weight, 1e-6))] == [none.shape] * 5


def test_a_row_s_norm_does_not_depend_on_its_neighbours() -> None:
    x, weight = on(normal(5, 200)), on(normal(200))
    np.testing.assert_array_equal(off(rms_norm(x, weight, 1e-6))[3:4], off(rms_norm(x[3:4], weight, 1e-6)))


def test_angles_of_scaled_rotations() -> None:
    """Given frequencies are taken as they are; YaRN's factor scales both."""
    rope = RopeConfig(tuple(float(x) for x in 5e5 ** -(np.arange(20) / 20)), 1.3)
    positions = np.array([0, 1, 77, 4095, 131071], np.int32)
    actual = rope_angles(on(positions), on(np.array(rope.inv_freq, np.float32)), rope.scale)
    for a, e in zip(actual, REFERENCE.rope_angles(positions, rope), strict=True):
        np.testing.assert_allclose(off(a), e, atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [0.0, 0.9])
@pytest.mark.parametrize("width", [40, 1500])
def test_swiglu(dtype: torch.dtype, limit: float, width: int) -> None:
    gate_up = on(normal(3, 2 * width), dtype)
    expected = reference_swiglu(off(gate_up), limit)
    np.testing.assert_allclose(off(swiglu(gate_up, limit)), expected, rtol=ROUNDING[dtype], atol=1e-5)
    np.testing.assert_allclose(off(swiglu(gate_up, limit, torch.float32)), expected, rtol=1e-5, atol=1e-6)


def test_rows_by_number() -> None:
    rows = np.array([0, 36, 5, 5, 17], np.int32)
    x = normal(37, 1100)
    np.testing.assert_array_equal(off(take_rows(on(x), on(rows))), x[rows])
    halves = on(x, torch.bfloat16)
    np.testing.assert_array_equal(off(take_rows(halves, on(rows), torch.float32)), off(halves)[rows])
    quants = np.random.default_rng(1).integers(-127, 128, (37, 1100)).astype(np.int8)
    scales = np.abs(normal(37, seed=2))
    actual = take_rows(on(quants), on(rows), torch.float32, on(scales))
    np.testing.assert_array_equal(off(actual), (quants * scales[:, None])[rows])
