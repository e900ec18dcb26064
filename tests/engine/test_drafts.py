"""Prompt lookup: what it proposes, and that it is quiet where it is of no use."""

from __future__ import annotations

from random import Random

import pytest

from gristmill.engine.drafts import FIRST_LENGTH, FIRST_PAUSE, LONGEST, LONGEST_PAUSE, PromptLookup


def proposals_of(text: list[int], n_prompt: int) -> tuple[int, int, int]:
    """(steps, drafts computed, drafts right) while a model that says `text` is followed from its first n_prompt ids."""
    lookup, length = PromptLookup(), n_prompt
    n_steps = n_drafted = n_accepted = 0
    while length < len(text):
        drafts = lookup.propose(text[:length], len(text) - length - 1)
        right = 0
        while right < len(drafts) and drafts[right] == text[length + right]:
            right += 1
        lookup.learn(len(drafts), right)
        length += right + 1
        n_steps, n_drafted, n_accepted = n_steps + 1, n_drafted + len(drafts), n_accepted + right
    return n_steps, n_drafted, n_accepted


def test_what_followed_last_time_is_proposed() -> None:
    assert PromptLookup().propose([1, 2, 3, 40, 41, 42, 43, 1, 2, 3], 15) == [40, 41, 42][:FIRST_LENGTH]


def test_three_ids_in_a_row_count_for_more_than_two_and_late_for_more_than_early() -> None:
    assert PromptLookup().propose([1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3], 1) == [40]
    assert PromptLookup().propose([1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3], 1) == [50]
    assert PromptLookup().propose([8, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3], 1) == [50]


def test_nothing_is_proposed_for_what_is_new_or_short_or_not_wanted() -> None:
    assert PromptLookup().propose([1, 2, 3, 4, 5, 6], 5) == []
    assert PromptLookup().propose([1, 1], 5) == []
    assert PromptLookup().propose([], 5) == []
    assert PromptLookup().propose([1, 2, 3, 1, 2, 3], 0) == []


def test_a_circle_is_followed_round() -> None:
    assert PromptLookup().propose([5, 1, 2, 1, 2, 1, 2], 3) == [1, 2, 1]
    assert PromptLookup().propose([7, 7, 7, 7], 3) == [7, 7, 7]


def test_tokens_that_come_later_are_found_too() -> None:
    """An index that grows step by step proposes what one made at once proposes."""
    random, tokens, grown = Random(0), [0, 0, 0], PromptLookup()
    for _ in range(300):
        tokens.append(random.randrange(4))
        assert grown.propose(tokens, 3) == PromptLookup().propose(tokens, 3)


def test_drafts_grow_while_they_are_right_and_shrink_when_not() -> None:
    tokens = [1, 2, 3, *range(100, 200), 1, 2, 3]
    lookup = PromptLookup()
    lengths = []
    for _ in range(4):
        lengths.append(len(lookup.propose(tokens, 100)))
        lookup.learn(lengths[-1], lengths[-1])
    assert lengths == sorted(lengths)
    assert lengths[0] == FIRST_LENGTH
    assert lengths[-1] == LONGEST
    lookup.learn(LONGEST, 4)
    assert len(lookup.propose(tokens, 100)) == 5
    assert len(lookup.propose(tokens, 2)) == 2


def test_a_copied_text_takes_few_steps() -> None:
    text = [Random(1).randrange(50_000) for _ in range(600)]
    n_steps, n_drafted, n_accepted = proposals_of(text + text, len(text) + 3)
    assert n_steps < 600 / 12
    assert n_accepted > 0.9 * n_drafted


@pytest.mark.parametrize("vocab_size", [10, 30, 1000])
def test_text_that_does_not_repeat_is_left_alone(vocab_size: int) -> None:
    """Pairs of ids recur all the time, and what follows them is no better than chance."""
    random = Random(vocab_size)
    text = [random.randrange(vocab_size) for _ in range(4000)]
    n_steps, n_drafted, _ = proposals_of(text, 10)
    assert 0 < n_drafted < 0.03 * n_steps


def test_one_miss_among_hits_makes_no_pause() -> None:
    tokens = [1, 2, 3, 4, 1, 2, 3]
    lookup = PromptLookup()
    for n_accepted in (0, 1, 0, 2, 0):
        assert lookup.propose(tokens, 2) != []
        lookup.learn(2, n_accepted)
    assert lookup.propose(tokens, 2) != []
    lookup.learn(2, 0)
    assert lookup.propose(tokens, 2) == []


def test_pauses_double_up_to_the_longest_and_one_hit_does_not_end_them() -> None:
    tokens, lookup = [7] * 10, PromptLookup()

    def pause_after(n_accepted: int) -> int:
        """Tokens that come before it proposes again."""
        assert lookup.propose(tokens, 2) != []
        lookup.learn(2, n_accepted)
        n_before = len(tokens)
        while not lookup.propose(tokens, 2):
            tokens.append(7)
        return len(tokens) - n_before

    pauses = [pause_after(0) for _ in range(6)]
    assert pauses == [0, FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert [pause_after(1), pause_after(0)] == [0, LONGEST_PAUSE]


def test_it_comes_back_from_a_pause() -> None:
    random = Random(5)
    noise = [random.randrange(10) for _ in range(1000)]
    copied = [1000 + i for i in range(1500)]
    n_steps, _, n_accepted = proposals_of([*copied, *noise, *copied], len(copied))
    assert n_accepted > 1200
    assert n_steps < len(noise) + len(copied) / 5
