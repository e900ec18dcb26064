"""How many blocks a budget is divided into, and what is refused before anything is allocated."""

from __future__ import annotations

import pytest

from gristmill.engine.tables import most_held
from gristmill.kv.cache import KvPlan, block_bytes, check_type, plan
from gristmill.ops.cpu import CpuOps
from gristmill.types import ModelConfig, RopeConfig

OPS = CpuOps(1)


def config_of(*windows: int, head_dim: int = 32) -> ModelConfig:
    return ModelConfig(
        arch="llama",
        vocab_size=100,
        n_layers=len(windows),
        d_model=2 * head_dim,
        n_heads=2,
        n_kv_heads=1,
        head_dim=head_dim,
        d_ff=64,
        norm_eps=1e-5,
        rope=RopeConfig((1.0,) * (head_dim // 2)),
        windows=windows,
        max_context=1000,
        tied_head=True,
    )


def test_a_budget_is_used_to_the_byte_and_one_byte_less_is_a_sequence_less() -> None:
    config = config_of(0, 0)
    one = 7 * block_bytes(OPS, config, "f16")  # of 100 tokens
    assert plan(OPS, config, "f16", 100, 4, 64, budget=4 * one) == KvPlan((0,), (28,), 4 * one)
    assert plan(OPS, config, "f16", 100, 4, 64, budget=4 * one - 1) == KvPlan((0,), (21,), 3 * one)
    assert plan(OPS, config, "f16", 100, 4, 64, budget=one) == KvPlan((0,), (7,), one)
    with pytest.raises(ValueError, match="the key-value cache of one sequence of 100 tokens takes"):
        plan(OPS, config, "f16", 100, 4, 64, budget=one - 1)


@pytest.mark.parametrize("window", [1, 16, 17, 18, 33, 34, 40, 48])
def test_layers_with_a_window_get_the_windows_of_all_sequences_and_what_a_step_adds(window: int) -> None:
    made = plan(OPS, config_of(0, window, 0), "f16", 1000, 3, 64, budget=1 << 30)
    assert made.windows == (0, window)
    assert made.n_blocks[0] == 3 * 63
    n_needed = 3 * most_held(1000, window) + 64 // 16
    assert n_needed <= made.n_blocks[1] <= n_needed + 3


def test_a_window_longer_than_the_context_takes_no_more_than_that() -> None:
    made = plan(OPS, config_of(0, 500), "f16", 40, 2, 16, budget=1 << 30)
    assert made.n_blocks == (6, 6 + 1)


def test_a_draft_model_has_as_many_blocks_of_its_own() -> None:
    config, draft = config_of(0, 32), config_of(0)
    alone = plan(OPS, config, "f16", 100, 4, 64, budget=1 << 30)
    both = plan(OPS, config, "f16", 100, 4, 64, budget=1 << 30, draft=draft)
    assert both.n_blocks == alone.n_blocks
    assert both.n_bytes == alone.n_bytes + alone.n_blocks[0] * block_bytes(OPS, draft, "f16")
    fewer = plan(OPS, config, "f16", 100, 4, 64, budget=both.n_bytes - 1, draft=draft)
    assert fewer.n_blocks[0] == alone.n_blocks[0] - 7


def test_a_type_that_does_not_fit_the_heads_is_refused() -> None:
    check_type(config_of(0, head_dim=48), "f16")
    with pytest.raises(ValueError, match="needs heads of a multiple of 32, and this model's have 48: use f16"):
        check_type(config_of(0, head_dim=48), "q8_0")
    with pytest.raises(ValueError, match="kv_type must be one of f16, f32, q8_0, not 'q4_0'"):
        check_type(config_of(0), "q4_0")
    with pytest.raises(ValueError, match="needs heads of a multiple of 32"):
        plan(OPS, config_of(0), "q8_0", 100, 1, 64, budget=1 << 30, draft=config_of(0, head_dim=16))
