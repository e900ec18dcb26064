"""Each rule of the scheduler on its own. At every step, FakeEngine checks budgets, blocks and what is read of them."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine, answer_alone

from gristmill.engine.scheduler import MAX_ROWS, Part, QueueFullError, Scheduler
from gristmill.engine.sequence import Sequence, Status
from gristmill.engine.tables import BlockTables, first_kept, most_held
from gristmill.kv.pool import BlockPool
from gristmill.types import Finish, SamplingParams


def prompt_of(n: int, first: int = 0) -> list[int]:
    """n ids that no prompt with another `first` shares."""
    return [first * 1000 + i for i in range(n)]


def counts(parts: list[Part]) -> dict[int, int]:
    return {part.sequence.request_id: part.n_tokens for part in parts}


def run_checked(engine: FakeEngine) -> None:
    engine.run()
    engine.check_answers()


# What is served, and in what order


def test_every_running_sequence_gets_a_token_and_prompts_get_the_rest_in_order() -> None:
    engine = FakeEngine([100], step_tokens=32)
    for first, n in enumerate((10, 40, 40)):
        engine.add(prompt_of(n, first), max_output=6)
    steps = [engine.step() for _ in range(5)]
    assert [counts(parts) for parts in steps] == [
        {0: 10, 1: 22},
        {0: 1, 1: 18, 2: 13},
        {0: 1, 1: 1, 2: 27},
        {0: 1, 1: 1, 2: 1},
        {0: 1, 1: 1, 2: 1},
    ]
    assert [[part.n_logits for part in parts] for parts in steps[:3]] == [[1, 0], [1, 1, 0], [1, 1, 1]]
    run_checked(engine)


def test_a_lone_prompt_is_computed_in_steps_of_its_own_size() -> None:
    engine = FakeEngine([100], step_tokens=32, prompt_tokens=12)
    engine.add(prompt_of(30, 0), max_output=4)
    assert counts(engine.step()) == {0: 12}
    engine.add(prompt_of(50, 1), max_output=2)
    assert [counts(engine.step()) for _ in range(4)] == [{0: 18, 1: 14}, {0: 1, 1: 31}, {0: 1, 1: 5}, {0: 1, 1: 1}]
    engine.add(prompt_of(40, 2), max_output=2)
    assert [counts(engine.step()) for _ in range(5)] == [{2: 12}, {2: 12}, {2: 12}, {2: 4}, {2: 1}]
    run_checked(engine)


def test_who_wants_the_logits_of_many_tokens_gets_few_of_them_in_a_step() -> None:
    engine = FakeEngine([100], step_tokens=256)
    engine.add(prompt_of(200), max_output=2, rows_from=50)
    steps = [engine.step() for _ in range(4)]
    assert [(part.n_tokens, part.n_logits) for parts in steps for part in parts] == [
        (50 + MAX_ROWS, MAX_ROWS),
        (MAX_ROWS, MAX_ROWS),
        (200 - 50 - 2 * MAX_ROWS, 200 - 50 - 2 * MAX_ROWS),
        (1, 1),
    ]
    run_checked(engine)


def test_no_step_exceeds_its_tokens_when_all_run() -> None:
    engine = FakeEngine([100], max_sequences=4, step_tokens=4)
    for first in range(4):
        engine.add(prompt_of(9, first), max_output=3)
    assert counts(engine.step()) == {0: 4}
    run_checked(engine)


def test_priority_goes_before_arrival_and_arrival_decides_between_equals() -> None:
    engine = FakeEngine([100], max_sequences=2, step_tokens=8)
    for first, priority in enumerate((5, 1, 5, 1)):
        engine.add(prompt_of(8, first), max_output=1, priority=priority)
    assert [list(counts(engine.step())) for _ in range(4)] == [[1], [3], [0], [2]]
    run_checked(engine)


def test_a_prompt_of_higher_priority_takes_the_rest_of_a_step_from_a_lower_one_that_runs() -> None:
    engine = FakeEngine([100], step_tokens=16)
    engine.add(prompt_of(100, 0), priority=1)
    engine.step()
    engine.add(prompt_of(40, 1), priority=0)
    assert counts(engine.step()) == {1: 15, 0: 1}
    run_checked(engine)


def test_who_does_not_fit_is_not_overtaken_by_a_smaller_one_behind() -> None:
    engine = FakeEngine([6])
    engine.add(prompt_of(40, 0), max_output=8)
    engine.add(prompt_of(60, 1), max_output=8)
    engine.add(prompt_of(5, 2), max_output=8)
    for _ in range(8):
        assert list(counts(engine.step())) == [0]
    assert list(counts(engine.step())) == [1, 2]
    run_checked(engine)
    assert engine.scheduler.n_preempted == 0


def test_admission_sets_aside_what_running_ones_need_next() -> None:
    """The second would fit into the 3 free blocks, but the first is about to need one of them."""
    engine = FakeEngine([4])
    engine.add(prompt_of(15, 0), max_output=20)
    engine.step()
    engine.add(prompt_of(40, 1), max_output=3)
    assert list(counts(engine.step())) == [0]
    run_checked(engine)
    assert engine.scheduler.n_preempted == 0


def test_admission_asks_for_no_more_than_a_sequence_will_use() -> None:
    engine = FakeEngine([4])
    engine.add(prompt_of(64), max_output=1)
    run_checked(engine)


# What is refused


@pytest.mark.parametrize(("max_sequences", "step_tokens"), [(0, 4), (5, 4)])
def test_limits_that_cannot_be_kept_are_refused(max_sequences: int, step_tokens: int) -> None:
    with pytest.raises(ValueError, match=rf"step_tokens, which is {step_tokens}, not {max_sequences}"):
        FakeEngine([4], max_sequences=max_sequences, step_tokens=step_tokens)


@pytest.mark.parametrize("windows", [[], [0, 0], [-1]])
def test_pools_and_windows_must_match(windows: list[int]) -> None:
    with pytest.raises(ValueError, match="pool for each window"):
        Scheduler([BlockPool(4)], windows, max_sequences=1, step_tokens=1, max_queue=1)


def test_a_full_queue_refuses_and_names_its_limit() -> None:
    engine = FakeEngine([100], max_queue=2)
    for first in range(2):
        engine.add(prompt_of(4, first))
    with pytest.raises(QueueFullError, match="max_queue is 2"):
        engine.add(prompt_of(4, 2))
    engine.step()
    engine.add(prompt_of(4, 2))
    run_checked(engine)


@pytest.mark.parametrize(("n_prompt", "max_output"), [(0, 4), (4, 0)])
def test_a_request_without_tokens_is_refused(n_prompt: int, max_output: int) -> None:
    with pytest.raises(ValueError, match=f"{n_prompt} tokens of prompt and {max_output} of output"):
        FakeEngine([4]).add(prompt_of(n_prompt), max_output)


@pytest.mark.parametrize(("n_blocks", "windows"), [([4], [0]), ([4, 3], [0, 20]), ([3], [20]), ([2, 4], [1, 0])])
def test_a_request_fits_or_is_refused_to_the_token(n_blocks: list[int], windows: list[int]) -> None:
    """4 blocks hold 64 tokens, and the last of 65 is never computed. Windows alone hold a request of any length."""
    engine = FakeEngine(n_blocks, windows)
    engine.add(prompt_of(60), max_output=5)
    if 0 in windows:
        with pytest.raises(ValueError, match=r"60 tokens of prompt and 6 of output need 5 cache blocks .* there are 4"):
            engine.add(prompt_of(60), max_output=6)
    else:
        engine.add(prompt_of(500), max_output=6)
    run_checked(engine)


def test_a_window_that_does_not_fit_its_pool_is_refused() -> None:
    with pytest.raises(ValueError, match=r"need 3 cache blocks .* there are 2"):
        FakeEngine([100, 2], [0, 20]).add(prompt_of(60))


# Preemption


def test_the_last_in_order_makes_room_and_finishes_later_with_the_same_answer() -> None:
    engine = FakeEngine([6], step_tokens=64)
    first, second, third = (engine.add(prompt_of(24, i), max_output=30) for i in range(3))
    while not engine.scheduler.n_preempted:
        engine.step()
    assert third.n_preempted == 1
    assert third.status is Status.WAITING
    assert third.n_output > 0
    assert (first.n_preempted, second.n_preempted) == (0, 0)
    run_checked(engine)
    assert first.n_preempted == 0


def test_a_sequence_does_not_preempt_one_before_it_but_gives_way_itself() -> None:
    engine = FakeEngine([4], step_tokens=64)
    first = engine.add(prompt_of(20, 0), max_output=27)
    second = engine.add(prompt_of(30, 1), max_output=12)  # it needs its third block while the first needs none
    while not engine.scheduler.n_preempted:
        engine.step()
    assert second.n_preempted == 1
    assert first.n_computed < 32
    run_checked(engine)
    assert first.n_preempted == 0


def test_all_finish_when_three_times_too_much_is_asked_for() -> None:
    engine = FakeEngine([10], max_sequences=8, step_tokens=32)
    for first in range(8):
        engine.add(prompt_of(10, first), max_output=50)
    run_checked(engine)
    assert engine.scheduler.n_preempted > 3


def test_a_newcomer_joins_those_that_go_token_by_token() -> None:
    engine = FakeEngine([100])
    engine.add(prompt_of(20, 0), max_output=9)
    for _ in range(3):
        engine.step()
    engine.add(prompt_of(20, 1), max_output=2)
    assert [counts(engine.step()) for _ in range(3)] == [{0: 1, 1: 20}, {0: 1, 1: 1}, {0: 1}]
    run_checked(engine)


@pytest.mark.parametrize(("max_sequences", "priority", "goes_on"), [(3, 0, False), (2, 0, True), (2, -1, False)])
def test_steps_go_on_beside_one_that_waits_where_it_can_get_no_place(
    max_sequences: int, priority: int, goes_on: bool
) -> None:
    engine = FakeEngine([100], max_sequences=max_sequences)
    for first in range(2):
        engine.add(prompt_of(10, first), max_output=20)
    for _ in range(3):
        engine.step()
    scheduler = engine.scheduler
    assert scheduler.go_on() is not None
    assert scheduler.go_on_ahead() is not None
    engine.add(prompt_of(10, 2), max_output=20, priority=priority)
    assert (scheduler.go_on() is not None) == goes_on
    assert (scheduler.go_on_ahead() is not None) == goes_on
    run_checked(engine)


def test_drafts_of_what_is_preempted_are_forgotten() -> None:
    engine = FakeEngine([4], step_tokens=64)
    engine.add(prompt_of(20, 0), max_output=40)
    second = engine.add(prompt_of(20, 1), max_output=20)
    while not second.n_preempted:
        engine.step()
        second.drafts = [1, 2, 3] if second.status is Status.RUNNING else []
    assert second.drafts == []
    run_checked(engine)


def test_what_was_preempted_goes_on_from_the_cache_where_it_can() -> None:
    engine = FakeEngine([8], step_tokens=64)
    engine.add(prompt_of(40, 0), max_output=60)
    second = engine.add(prompt_of(40, 1), max_output=60)
    while not second.n_preempted:
        engine.step()
    n_known = len(second.tokens)
    n_computed = engine.n_computed(second)
    while second.status is Status.WAITING:
        engine.step()
    assert 0 < engine.n_computed(second) - n_computed < n_known
    assert second.n_cached == 0  # that counts its first admission alone
    run_checked(engine)


# Preemption by priority


def low_and_high(n_blocks: int, max_sequences: int, n_high: int) -> tuple[FakeEngine, list[Sequence]]:
    """Three sequences of priority 1 that hold 2 blocks each; then one of priority 0 comes, with a prompt of n_high."""
    engine = FakeEngine([n_blocks], max_sequences=max_sequences, step_tokens=64)
    low = [engine.add(prompt_of(20, first), max_output=8, priority=1) for first in range(3)]
    engine.step()
    engine.add(prompt_of(n_high, 3), max_output=4, priority=0)
    return engine, low


def test_higher_priority_takes_a_slot_from_the_last_of_the_lower() -> None:
    engine, low = low_and_high(n_blocks=100, max_sequences=3, n_high=5)
    assert list(counts(engine.step())) == [3, 0, 1]
    assert [sequence.n_preempted for sequence in low] == [0, 0, 1]
    run_checked(engine)


@pytest.mark.parametrize(("n_high", "n_victims"), [(20, 1), (40, 2), (70, 3)])
def test_higher_priority_takes_blocks_from_as_few_as_will_do(n_high: int, n_victims: int) -> None:
    engine, low = low_and_high(n_blocks=6, max_sequences=4, n_high=n_high)
    assert 3 in counts(engine.step())
    assert sum(sequence.n_preempted for sequence in low) == n_victims
    run_checked(engine)


def test_nobody_is_preempted_in_vain() -> None:
    """All of the lower priority together would not make enough room, as another of the higher one runs."""
    engine = FakeEngine([8], step_tokens=100)
    engine.add(prompt_of(60, 0), max_output=10, priority=0)
    engine.add(prompt_of(20, 1), max_output=10, priority=1)
    engine.step()
    engine.add(prompt_of(80, 2), max_output=4, priority=0)
    engine.step()
    assert engine.scheduler.n_preempted == 0
    run_checked(engine)


def test_blocks_shared_by_victims_count_once_and_as_free() -> None:
    """Two that share 4 of their 5 blocks hold 6 together, and the new one needs exactly these."""
    engine = FakeEngine([6], step_tokens=100)
    for _ in range(2):
        engine.add(prompt_of(70), max_output=5, priority=1)
    engine.step()
    engine.step()
    assert engine.scheduler.n_running == 2
    high = engine.add(prompt_of(90, 1), max_output=4, priority=0)
    engine.step()
    assert high.status is Status.RUNNING
    assert engine.scheduler.n_preempted == 2
    run_checked(engine)


def test_blocks_that_others_share_with_a_victim_do_not_count_as_free() -> None:
    """Preempting the second would free one block, as the other four stay with the first."""
    engine = FakeEngine([7], step_tokens=100)
    for priority in (0, 1):
        engine.add(prompt_of(70), max_output=9, priority=priority)
    engine.step()
    engine.step()
    assert engine.scheduler.n_running == 2
    engine.add(prompt_of(60, 1), max_output=4, priority=0)
    engine.step()
    assert engine.scheduler.n_preempted == 0
    run_checked(engine)


def test_equal_priority_preempts_nobody() -> None:
    engine = FakeEngine([100], max_sequences=1)
    first = engine.add(prompt_of(20, 0), max_output=5)
    engine.step()
    engine.add(prompt_of(20, 1))
    engine.step()
    assert first.n_preempted == 0
    run_checked(engine)


# The prefix cache


@pytest.mark.parametrize(("n_prompt", "n_cached"), [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32), (40, 32)])
def test_full_blocks_are_reused_and_a_token_is_left_to_compute(n_prompt: int, n_cached: int) -> None:
    engine = FakeEngine([100])
    engine.add(prompt_of(n_prompt))
    engine.run()
    second = engine.add(prompt_of(n_prompt))
    assert counts(engine.step()) == {1: n_prompt - n_cached}
    assert second.n_cached == n_cached
    run_checked(engine)


def test_an_answer_is_reused_by_the_prompt_that_holds_it() -> None:
    engine = FakeEngine([100])
    first = engine.add(prompt_of(20), max_output=30)
    engine.run()
    second = engine.add([*first.tokens, 5, 6, 7])
    engine.step()
    assert second.n_cached == 48  # of 49 computed: the last of the 50 never was
    run_checked(engine)


def test_salts_keep_apart_what_is_cached() -> None:
    engine = FakeEngine([100])
    engine.add(prompt_of(40), salt=b"a")
    engine.run()
    engine.add(prompt_of(40), salt=b"b")
    engine.add(prompt_of(40), salt=b"a")
    assert counts(engine.step()) == {1: 40, 2: 8}
    run_checked(engine)


def test_a_sequence_can_compute_everything_itself_and_still_publish() -> None:
    engine = FakeEngine([100])
    engine.add(prompt_of(40), rows_from=0)
    engine.run()
    engine.add(prompt_of(40), rows_from=0)
    assert counts(engine.step()) == {1: 40}
    engine.run()
    engine.add(prompt_of(40))
    assert counts(engine.step()) == {2: 8}
    run_checked(engine)


def test_only_a_whole_prefix_is_reused() -> None:
    engine = FakeEngine([100])
    engine.add(prompt_of(64))
    engine.run()
    engine.add([*prompt_of(16), 7, *prompt_of(64)[17:]])
    assert counts(engine.step()) == {1: 48}
    run_checked(engine)


def test_what_is_left_of_a_prefix_is_its_beginning() -> None:
    engine = FakeEngine([6])
    engine.add(prompt_of(80), max_output=1)
    engine.run()
    engine.add(prompt_of(40, 1), max_output=1)
    engine.run()
    engine.add(prompt_of(80), max_output=1)
    assert counts(engine.step()) == {2: 80 - 48}
    run_checked(engine)


def test_a_hit_on_blocks_that_nobody_holds_is_not_counted_as_room() -> None:
    """The blocks it would find are the very ones that are free: they do not count twice."""
    engine = FakeEngine([6], step_tokens=100)
    engine.add(prompt_of(48, 0), max_output=1)
    engine.run()
    engine.add(prompt_of(30, 1), max_output=20)
    engine.step()
    engine.add([*prompt_of(48, 0), *prompt_of(30, 2)], max_output=1)
    run_checked(engine)
    assert engine.scheduler.n_preempted == 0


def test_hashes_depend_on_salt_and_on_all_tokens_before() -> None:
    def hashes(tokens: list[int], salt: bytes = b"") -> list[bytes]:
        sequence = Sequence(0, tokens, len(tokens), SamplingParams(), 0, frozenset(), 1, salt=salt)
        sequence.hash_blocks(1)
        sequence.hash_blocks(3)
        return sequence.hashes

    tokens = prompt_of(48)
    assert hashes(tokens) == hashes(tokens)
    assert len({len(digest) for digest in hashes(tokens)}) == 1
    assert len(set(hashes([3] * 48))) == 3
    assert not set(hashes(tokens)) & set(hashes(tokens, b"salt"))
    assert [a == b for a, b in zip(hashes(tokens), hashes([*tokens[:20], 7, *tokens[21:]]), strict=True)] == [
        True,
        False,
        False,
    ]


# Prefixes that are being computed


def test_four_samples_compute_their_prompt_once() -> None:
    engine = FakeEngine([100], step_tokens=30)
    for _ in range(4):
        engine.add(prompt_of(72), max_output=3)
    run_checked(engine)
    prompts = sum(min(end, 72) - min(begin, 72) for _, begin, end in engine.computed)
    assert prompts == 72 + 3 * 8


def test_who_waits_for_a_prefix_blocks_nobody_behind() -> None:
    engine = FakeEngine([100], step_tokens=40)
    for first in (0, 0, 1):
        engine.add(prompt_of(100, first))
    assert [counts(engine.step()) for _ in range(4)] == [{0: 40}, {0: 40}, {0: 20, 2: 20}, {0: 1, 1: 4, 2: 35}]
    run_checked(engine)


def test_who_waits_for_a_prefix_that_is_aborted_computes_it() -> None:
    engine = FakeEngine([100], step_tokens=40)
    for _ in range(3):
        engine.add(prompt_of(100))
    engine.step()
    engine.scheduler.abort(0)
    assert counts(engine.step()) == {1: 40}
    assert engine.sequences[1].n_cached == 32
    engine.run()
    assert engine.n_computed(engine.sequences[2]) < 20


def test_who_waits_for_a_prefix_that_is_preempted_gets_on() -> None:
    engine = FakeEngine([8], max_sequences=2, step_tokens=20)
    engine.add(prompt_of(100, 0), max_output=2, priority=1)
    engine.add(prompt_of(100, 0), max_output=2, priority=1)
    engine.step()
    engine.add(prompt_of(100, 1), max_output=2, priority=0)
    engine.step()
    assert engine.sequences[0].n_preempted == 1
    run_checked(engine)


def test_higher_priority_does_not_wait_for_a_prefix_that_a_lower_one_computes() -> None:
    engine = FakeEngine([100], step_tokens=20)
    engine.add(prompt_of(100), priority=1)
    engine.step()
    engine.add(prompt_of(100), priority=0)
    assert counts(engine.step()) == {1: 19, 0: 1}
    run_checked(engine)


def test_who_waits_for_a_prefix_waits_on_where_another_that_computed_it_too_leaves() -> None:
    engine = FakeEngine([100], step_tokens=20)
    engine.add(prompt_of(100), priority=1)
    engine.step()
    engine.add(prompt_of(100), priority=0)
    engine.step()
    engine.scheduler.abort(0)
    third = engine.add(prompt_of(100), priority=0)
    engine.run()
    assert third.n_cached == 96


def test_of_two_with_higher_priority_one_waits_for_the_other() -> None:
    """One behind both began to compute the prefix before either: that does not hide that the first of them does."""
    engine = FakeEngine([100], step_tokens=40)
    for priority in (1, 0, 0):
        engine.add(prompt_of(100), priority=priority)
        engine.step()
    engine.run()
    assert [engine.n_computed(sequence) for sequence in engine.sequences[1:]] == [100 - 32 + 3, 100 - 96 + 3]
    engine.check_answers()


# Windows


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 18, 20, 128])
def test_a_window_holds_its_blocks_and_no_more(window: int) -> None:
    engine = FakeEngine([100, 100], [0, window], step_tokens=1, max_sequences=1)
    sequence = engine.add(prompt_of(200), max_output=100)
    most = 0
    while engine.scheduler.has_work:
        engine.step()
        most = max(most, engine.pools[1].n_blocks - engine.pools[1].n_free)
        if sequence.block_ids:
            full, windowed = sequence.block_ids
            n_freed = first_kept(sequence.n_full, window)
            assert len(full) == len(windowed)
            assert windowed[:n_freed] == [0] * n_freed
            assert (n_freed + 1) * 16 > sequence.n_full * 16 - window + 1
    assert most == most_held(299, window)
    engine.check_answers()


def test_a_window_frees_its_blocks_while_steps_go_on_by_themselves() -> None:
    engine = FakeEngine([100], [16])
    engine.add(prompt_of(10), max_output=200)
    for _ in range(3):
        engine.step()
    for _ in range(100):
        assert engine.scheduler.go_on() is not None
        engine.scheduler.take([7])
        assert engine.pools[0].n_blocks - engine.pools[0].n_free <= most_held(200, 16) + 1


def test_long_prompts_pass_through_a_small_window() -> None:
    engine = FakeEngine([5], [40], step_tokens=64)
    engine.add(prompt_of(1000), max_output=40)
    run_checked(engine)


@pytest.mark.parametrize(("window", "n_cached"), [(16, 48), (17, 48), (18, 16), (64, 16)])
def test_a_prefix_is_cut_where_a_window_before_it_is_incomplete(window: int, n_cached: int) -> None:
    """Of 3 cached blocks a group with a window has lost the second: a window of w reads the w - 1 positions before."""
    engine = FakeEngine([100, 100], [0, window], step_tokens=100)
    first = engine.add(prompt_of(49), max_output=1)
    engine.run()
    pool = engine.pools[1]
    lost = pool.find(first.hashes[1])
    assert lost is not None
    pool._idle.move_to_end(lost, last=False)
    pool.release(pool.allocate(100 - len(pool._idle) + 1))
    assert [pool.find(digest) is None for digest in first.hashes] == [False, True, False]
    second = engine.add(prompt_of(49), max_output=1)
    engine.step()
    assert second.n_cached == n_cached
    engine.check_answers()


# Drafts


def with_drafts(n_right: int, n_wrong: int, **options: int) -> tuple[FakeEngine, Sequence]:
    """A sequence whose prompt is computed, with drafts of which the first n_right are right."""
    engine = FakeEngine([100], step_tokens=options.get("step_tokens", 64), max_sequences=2)
    sequence = engine.add(prompt_of(20), max_output=options.get("max_output", 30))
    engine.step()
    sequence.drafts = engine.model.alone(sequence.tokens, n_right) + [-1] * n_wrong
    return engine, sequence


@pytest.mark.parametrize(("n_right", "n_wrong"), [(0, 3), (2, 3), (5, 0), (15, 0), (0, 1)])
def test_drafts_are_taken_as_far_as_they_are_right(n_right: int, n_wrong: int) -> None:
    engine, sequence = with_drafts(n_right, n_wrong)
    (part,) = engine.step()
    assert part.n_tokens == part.n_logits == 1 + n_right + n_wrong
    assert sequence.n_output == 1 + 1 + n_right
    assert sequence.n_computed == len(sequence.tokens) - 1
    assert (engine.scheduler.n_drafted, engine.scheduler.n_accepted) == (n_right + n_wrong, n_right)
    run_checked(engine)


def test_drafts_are_cut_to_the_tokens_of_a_step() -> None:
    engine, sequence = with_drafts(10, 0, step_tokens=20)
    engine.add(prompt_of(30, 1))
    sequence.drafts = engine.model.alone(sequence.tokens, 30)
    assert counts(engine.step()) == {0: 20}
    sequence.drafts = engine.model.alone(sequence.tokens, 3)
    assert counts(engine.step()) == {0: 4, 1: 16}
    run_checked(engine)


@pytest.mark.parametrize("max_output", [2, 3, 5])
def test_drafts_are_cut_to_the_output_that_is_left(max_output: int) -> None:
    engine, sequence = with_drafts(10, 0, max_output=max_output)
    (part,) = engine.step()
    assert part.n_tokens == max_output - 1
    assert sequence.finish is Finish.LENGTH
    run_checked(engine)


def test_drafts_preempt_nobody() -> None:
    engine = FakeEngine([4], step_tokens=64)
    first = engine.add(prompt_of(30, 0), max_output=10)
    engine.add(prompt_of(18, 1), max_output=4)
    engine.step()
    first.drafts = engine.model.alone(first.tokens, 8)
    assert counts(engine.step()) == {0: 2, 1: 1}
    assert engine.scheduler.n_preempted == 0
    run_checked(engine)


def test_nothing_is_taken_after_a_stop_among_drafts() -> None:
    engine = FakeEngine([100])
    output = engine.model.alone(prompt_of(20), 30)
    sequence = engine.add(prompt_of(20), max_output=30, stop_ids=frozenset({output[3]}))
    engine.step()
    sequence.drafts = output[1:9]
    engine.step()
    assert sequence.tokens[20:] == output[:4]
    assert sequence.finish is Finish.STOP
    run_checked(engine)


def test_drafts_may_leave_a_window_and_come_back() -> None:
    """Wrong drafts reach far beyond a window of one block; what the next query reads must still be there."""
    engine = FakeEngine([40, 40], [0, 16], step_tokens=64)
    sequence = engine.add(prompt_of(20), max_output=60)
    while engine.scheduler.has_work:
        if sequence.status is Status.RUNNING:
            sequence.drafts = [-1] * 40
        engine.step()
    engine.check_answers()


def test_wrong_drafts_are_not_published() -> None:
    engine, sequence = with_drafts(0, 40)
    engine.step()
    engine.run()
    guessed = [*sequence.tokens[:21], *[-1] * 40]
    engine.add(guessed)
    engine.step()
    assert engine.sequences[1].n_cached == 16
    run_checked(engine)


# How sequences end


@pytest.mark.parametrize(("min_tokens", "n_output"), [(0, 3), (3, 3), (4, 8)])
def test_a_stop_id_ends_a_sequence_that_has_its_min_tokens(min_tokens: int, n_output: int) -> None:
    engine = FakeEngine([100])
    output = engine.model.alone(prompt_of(20), 8)
    params = SamplingParams(temperature=0, min_tokens=min_tokens)
    sequence = engine.add(prompt_of(20), 8, params=params, stop_ids=frozenset({output[2]}))
    run_checked(engine)
    assert sequence.n_output == n_output
    assert sequence.finish is (Finish.STOP if n_output == 3 else Finish.LENGTH)


def test_a_stop_at_the_last_token_is_a_stop() -> None:
    engine = FakeEngine([100])
    output = engine.model.alone(prompt_of(20), 3)
    sequence = engine.add(prompt_of(20), 3, stop_ids=frozenset({output[2]}))
    run_checked(engine)
    assert sequence.finish is Finish.STOP


def test_an_abort_frees_at_once_wherever_a_sequence_is() -> None:
    engine = FakeEngine([100], max_sequences=1)
    running, waiting = engine.add(prompt_of(20, 0)), engine.add(prompt_of(20, 1))
    engine.step()
    assert engine.scheduler.abort(waiting.request_id) is waiting
    assert engine.scheduler.abort(running.request_id) is running
    assert not engine.scheduler.has_work
    assert engine.pools[0].n_free == 100
    assert {running.finish, waiting.finish} == {Finish.ABORT}
    assert engine.scheduler.abort(running.request_id) is None
    assert engine.step() == []


def test_an_abort_can_name_another_end() -> None:
    engine = FakeEngine([100])
    sequence = engine.add(prompt_of(20))
    engine.scheduler.abort(0, Finish.STOP)
    assert sequence.finish is Finish.STOP


def test_an_abort_between_schedule_and_update_is_ignored_by_update() -> None:
    engine = FakeEngine([100])
    first, second = engine.add(prompt_of(20, 0)), engine.add(prompt_of(20, 1))
    engine.step()
    engine.step(abort=0)
    assert (first.n_output, second.n_output) == (1, 2)
    engine.run()
    assert second.tokens[20:] == answer_alone(engine.model, second)


def test_a_step_that_crashed_is_left_by_aborting_its_parts() -> None:
    engine = FakeEngine([100])
    for _ in range(3):
        engine.add(prompt_of(40))
    for part in engine.scheduler.schedule():
        engine.scheduler.abort(part.sequence.request_id)
    engine.scheduler.check()
    assert engine.scheduler.n_waiting == 2
    engine.run()
    assert engine.pools[0].n_free == 100


# Pieces


def test_what_a_window_keeps() -> None:
    """By brute force: a block is kept as long as one of its positions is read by the next query, or a later one."""
    for window in range(1, 70):
        for n_full in range(12):
            oldest_read = n_full * 16 - window + 1
            kept = [block for block in range(13) if block * 16 + 15 >= oldest_read]
            assert first_kept(n_full, window) == kept[0]
        spans = [position // 16 - max(0, position - window + 1) // 16 + 1 for position in range(500)]
        assert most_held(500, window) == max(spans)
    assert first_kept(9, 0) == 0
    assert most_held(33, 0) == 3


def test_check_notices_a_block_that_nobody_accounts_for() -> None:
    tables = BlockTables([BlockPool(4)], [0])
    sequence = Sequence(0, prompt_of(20), 20, SamplingParams(), 0, frozenset(), 1)
    tables.open(sequence, 0)
    tables.extend(sequence, 20)
    tables.check([sequence])
    with pytest.raises(AssertionError):
        tables.check([])
