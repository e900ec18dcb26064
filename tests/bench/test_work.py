"""Bytes and operations of a step, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gristmill.bench.model import Case, plan, work_of
from gristmill.bench.work import LinearCost, ModelCost, Span, Work, expected_experts, step_work

# Two layers: the first sees everything, the second 3 positions. 10 bytes of keys and values a position and layer.
LINEAR = LinearCost(rows=6, cols=4, n_bytes=100)
HEAD = LinearCost(rows=50, cols=4, n_bytes=1000)
ATTENTION = 2 * 2 * 2 * 8  # scores and values, a multiply-add is two, 2 heads of 8
COST = ModelCost((LINEAR, LINEAR), (HEAD,), windows=(0, 3), n_heads=2, head_dim=8, kv_bytes=10)


def test_one_token_of_one_sequence() -> None:
    # The sixth token: the first layer sees 6 positions, the second 3.
    assert step_work(COST, [Span(5, 1)], 1) == Work(
        n_bytes=2 * 100 + 1000 + 10 * (6 + 3),
        n_operations=2 * (2 * 6 * 4 + 50 * 4) + ATTENTION * (6 + 3),
    )


def test_a_prompt_without_logits() -> None:
    # Four tokens from the start see 1 + 2 + 3 + 4 positions, and 1 + 2 + 3 + 3 within the window; all four are read.
    assert step_work(COST, [Span(0, 4)], 0) == Work(
        n_bytes=2 * 100 + 10 * (4 + 4), n_operations=4 * 2 * 2 * 6 * 4 + ATTENTION * (10 + 9)
    )
    # After two others: 3 + 4 + 5 + 6 and 3 + 3 + 3 + 3; the window's first token reaches back to the start.
    assert step_work(COST, [Span(2, 4)], 0) == Work(
        n_bytes=2 * 100 + 10 * (6 + 6), n_operations=4 * 2 * 2 * 6 * 4 + ATTENTION * (18 + 12)
    )


def test_matrices_at_the_end_meet_the_rows_whose_logits_are_wanted() -> None:
    cost = replace(COST, linears=(LINEAR,), ends=(LINEAR, HEAD))
    one, none = step_work(cost, [Span(0, 4)], 1), step_work(cost, [Span(0, 4)], 0)
    assert one.n_operations - none.n_operations == 2 * (6 * 4 + 50 * 4)
    assert (none.n_bytes, one.n_bytes) == (100 + 10 * (4 + 4), 2 * 100 + 1000 + 10 * (4 + 4))


def test_a_batch_reads_weights_once_and_each_sequence_its_own_cache() -> None:
    one, two = step_work(COST, [Span(5, 1)], 1), step_work(COST, [Span(5, 1)] * 2, 2)
    assert two.n_bytes - one.n_bytes == 10 * (6 + 3)
    assert two.n_operations == 2 * one.n_operations


def test_experts() -> None:
    experts = LinearCost(rows=6, cols=4, n_bytes=800, n_experts=8, n_active=2)
    cost = ModelCost((experts,), (HEAD,), windows=(0,), n_heads=2, head_dim=8, kv_bytes=0)
    one = step_work(cost, [Span(0, 1)], 0)
    assert one.n_bytes == pytest.approx(200), "one token reads exactly the two that it uses"
    assert one.n_operations == 2 * 2 * 6 * 4 + ATTENTION
    # The second token finds each of the 8 unread with chance 6/8: 2 + 2 * 6/8 are read.
    assert expected_experts(8, 2, 2) == pytest.approx(3.5)
    assert expected_experts(8, 2, 1000) == pytest.approx(8)
    assert expected_experts(1, 1, 1) == 1
    assert expected_experts(1, 1, 0) == 0


def test_a_test_is_the_sum_of_its_steps() -> None:
    generate = work_of(COST, Case("tg", n_tokens=3, batch=2, depth=4, threads=1), 512)
    steps = [step_work(COST, [Span(n, 1)] * 2, 2) for n in (4, 5, 6)]
    assert generate == steps[0] + steps[1] + steps[2]
    prompt = work_of(COST, Case("pp", n_tokens=600, batch=1, depth=4, threads=1), 512)
    assert prompt == step_work(COST, [Span(4, 512)], 0) + step_work(COST, [Span(516, 88)], 1)


def test_plan_has_every_combination() -> None:
    tests = plan([512], [0, 128], [1, 4], [0, 64], [1, 2])
    assert len(tests) == 2 * 2 * (1 + 2), "prompts are computed one at a time"
    assert Case("tg", 128, 4, 64, 2) in tests
    assert {t.name for t in tests} == {"pp512", "tg128"}
    with pytest.raises(ValueError, match="nothing to measure"):
        plan([0], [0], [1], [0], [1])
