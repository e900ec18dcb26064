"""Mixtures of experts on Triton's kernels, against the numpy reference."""

# ruff: noqa: E402
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the GPU's memory is torch's")
pytest.importorskip("triton", reason="the GPU's kernels are Triton's")

from device import off, on
from random_weights import random_weight

from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.ops.reference import ReferenceOps
from gristmill.ops.triton.common import INTERPRETED
from gristmill.ops.triton.moe import moe
from gristmill.ops.triton.moe_route import choose, route
from gristmill.ops.triton.quantized import Matrix
from gristmill.ops.triton.quantized_layout import matrix_of

REFERENCE = ReferenceOps()
QUANTIZER = RowQuantizer(1)
N_EXPERTS, D_MODEL, D_FF = 5, 96, 32


def put(weights: list[Weight], bias: np.ndarray | None) -> Matrix:
    return matrix_of(weights, bias, on, QUANTIZER)


@pytest.mark.parametrize(
    "qtype", [QType.F32, QType.BF16, QType.Q8_0, QType.MXFP4, QType.INT8_ROWS, QType.Q4_K, QType.Q6_K, QType.Q5_0]
)
@pytest.mark.parametrize(("n_tokens", "limit"), [(1, 7.0), (20, 0.0), (70, 7.0)])
def test_moe(qtype: QType, n_tokens: int, limit: float) -> None:
    rng = np.random.default_rng(n_tokens)
    d_model, d_ff = (256, 256) if qtype.block_size == 256 else (D_MODEL, D_FF)
    x = rng.normal(size=(n_tokens, d_model)).astype(np.float32)
    router = rng.normal(size=(n_tokens, N_EXPERTS)).astype(np.float32)
    router[0, :2] = 3.0  # the first of two equals
    gate_up = ([random_weight(qtype, (N_EXPERTS, d_ff, d_model), seed) for seed in (0, 1)], (N_EXPERTS, 2 * d_ff))
    down = ([random_weight(qtype, (N_EXPERTS, d_model, d_ff), 2)], (N_EXPERTS, d_model))
    stacks = [(weights, rng.normal(size=shape).astype(np.float32)) for weights, shape in (gate_up, down)]
    expected = REFERENCE.moe(x, router, *(REFERENCE.put(*stack) for stack in stacks), 2, limit)
    tensors = on(x), on(router)
    actual = off(moe(*tensors, *(put(*stack) for stack in stacks), 2, limit))
    exact = INTERPRETED and qtype is not QType.Q5_0  # which is stored again
    at_most = 2e-2 if not exact else 4e-6 if qtype.block_size == 256 else 1e-6
    assert np.abs(actual - expected).max() / np.abs(expected).max() < at_most


@pytest.mark.parametrize("n_tokens", [1, 3])
def test_a_token_that_is_not_finite_spoils_no_other(n_tokens: int) -> None:
    rng = np.random.default_rng(0)
    router = rng.normal(size=(n_tokens, N_EXPERTS)).astype(np.float32)
    router[-1] = np.nan
    with np.errstate(invalid="ignore"):
        chosen, weights = (off(array) for array in choose(on(router), 2))
    expected = np.argsort(-router, axis=1, kind="stable")[:, :2]
    assert np.array_equal(chosen[:-1], expected[:-1])
    assert chosen.min() >= 0
    assert chosen.max() < N_EXPERTS
    assert np.isnan(weights).all(axis=1).tolist() == [False] * (n_tokens - 1) + [True]
    gate_up = put([random_weight(QType.F32, (N_EXPERTS, D_FF, D_MODEL), seed) for seed in (0, 1)], None)
    down = put([random_weight(QType.F32, (N_EXPERTS, D_MODEL, D_FF), 2)], None)
    x = on(rng.normal(size=(n_tokens, D_MODEL)).astype(np.float32))
    with np.errstate(invalid="ignore"):
        y = off(moe(x, on(router), gate_up, down, 2, 0.0))
    assert np.isnan(y).any(axis=1).tolist() == [False] * (n_tokens - 1) + [True]


def test_no_tokens() -> None:
    gate_up = put([random_weight(QType.F32, (N_EXPERTS, D_FF, D_MODEL), seed) for seed in (0, 1)], None)
    down = put([random_weight(QType.F32, (N_EXPERTS, D_MODEL, D_FF), 2)], None)
    empty = np.zeros((0, D_MODEL), np.float32)
    assert moe(on(empty), on(empty[:, :N_EXPERTS]), gate_up, down, 2, 0.0).shape == (0, D_MODEL)


@pytest.mark.parametrize("n_tokens", [1, 3, 200])
def test_every_assignment_is_in_one_tile_of_its_expert(n_tokens: int) -> None:
    rng = np.random.default_rng(n_tokens)
    router = rng.normal(size=(n_tokens, 12)).astype(np.float32)
    router[:, 7] += 5  # one has most of the tokens
    routes = route(on(router), 4, 16)
    chosen = np.argsort(-router, axis=1, kind="stable")[:, :4]
    tiles = off(routes.order).reshape(-1, 16)
    assert sorted(tiles[tiles >= 0]) == list(range(4 * n_tokens))
    for tile, expert in zip(tiles, routes.tile_experts.tolist(), strict=True):
        assert set(chosen.reshape(-1)[tile[tile >= 0]]) == ({expert} if expert >= 0 else set())
    np.testing.assert_allclose(off(routes.weights).sum(axis=1), 1, rtol=1e-6)
