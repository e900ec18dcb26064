"""What is listed for one request's logits, also after guesses at the tokens before them."""

from __future__ import annotations

import math

from gristmill.engine.adjust import Adjuster, needs_adjusting
from gristmill.engine.sequence import Sequence
from gristmill.types import SamplingParams


def listed(adjuster: Adjuster, sequence: Sequence, n_drafts: int) -> dict[int, tuple[int, float]]:
    """By id: how often it was seen, and its bias."""
    ids, counts, bias = list[int](), list[int](), list[float]()
    adjuster.list_ids(sequence, n_drafts, ids, counts, bias)
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, zip(counts, bias, strict=True), strict=True))


def test_an_end_is_forbidden_until_the_drafts_before_it_make_up_the_min_tokens() -> None:
    params = SamplingParams(min_tokens=3, logit_bias={9: 2.0, 50: 1.0})
    sequence = Sequence(0, [1, 2, 30], 2, params, 0, frozenset({8, 9}), 10, drafts=[31, 32, 33])
    adjuster = Adjuster(params, (1, 2), 100, None)
    forbidden = {8: (-1, -math.inf), 9: (-1, -math.inf), 50: (-1, 1.0)}
    allowed = {9: (-1, 2.0), 50: (-1, 1.0)}
    assert [listed(adjuster, sequence, n) for n in range(4)] == [forbidden, forbidden, allowed, allowed]


def test_drafts_count_as_seen_for_those_after_them_alone() -> None:
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.5, logit_bias={31: 1.0})
    sequence = Sequence(0, [1, 2, 30], 2, params, 0, frozenset(), 10, drafts=[31, 30])
    adjuster = Adjuster(params, (1, 2), 100, None)
    adjuster.advance([30])
    seen = {1: (0, 0.0), 2: (0, 0.0), 30: (1, 0.0)}
    assert listed(adjuster, sequence, 2) == {**seen, 30: (2, 0.0), 31: (1, 1.0)}
    assert listed(adjuster, sequence, 1) == {**seen, 31: (1, 1.0)}
    assert listed(adjuster, sequence, 0) == {**seen, 31: (-1, 1.0)}


def test_the_end_of_a_bad_sequence_is_forbidden_after_its_beginning_alone() -> None:
    """Which may be tokens of the answer, drafts, or both, but none of the prompt."""
    params = SamplingParams(bad_words=["which the engine has as ids"])
    sequence = Sequence(0, [1, 30, 31], 2, params, 0, frozenset(), 10, drafts=[32, 31])
    adjuster = Adjuster(params, (1, 30), 100, None, [(7,), (31, 32, 33), (30, 31, 9), (31, 8), (1, 2, 3, 4, 5)])
    found = [listed(adjuster, sequence, n) for n in range(3)]
    assert [sorted(ids) for ids in found] == [[7, 8], [7, 33], [7, 8]]
    assert all(each == (-1, -math.inf) for ids in found for each in ids.values())


def test_one_token_at_least_is_an_adjustment_and_none_is_not() -> None:
    assert needs_adjusting(SamplingParams(min_tokens=1), False)
    assert needs_adjusting(SamplingParams(bad_words=["a"]), False)
    assert not needs_adjusting(SamplingParams(), False)
