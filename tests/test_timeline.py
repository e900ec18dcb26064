"""The timeline of `gristmill trace` accounts for every token and block, and the answers are the engine's."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_model

from gristmill import LLM, SamplingParams
from gristmill.formats.open import open_checkpoint
from gristmill.kv.cache import KvPlan
from gristmill.models.build import build
from gristmill.models.decoder import Decoder
from gristmill.ops.cpu import CpuOps
from gristmill.tracing.timeline import AGAIN, ANSWER, PROMPT, WAITING, Share, Timeline, run

N_ANSWER = 30
BEGIN = list(range(3, 43))
PROMPTS = [[*BEGIN, 50, 51], [*BEGIN, 60], list(range(100, 110))]  # the first two share two blocks of 16
ROOMY, TIGHT = 40, 7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def loaded(model: Path) -> tuple[Decoder, CpuOps]:
    ops = CpuOps(1)
    return build(open_checkpoint(model), ops), ops


def timeline(
    loaded: tuple[Decoder, CpuOps], n_blocks: int, prompts: list[list[int]] = PROMPTS, eos_ids: tuple[int, ...] = ()
) -> Timeline:
    plan = KvPlan((0,), (n_blocks,), 0)
    return run(*loaded, plan, "f32", prompts, N_ANSWER, eos_ids, max_sequences=3, step_tokens=24)


def shares_of(found: Timeline, request: int) -> list[Share]:
    return [share for step in found.steps for share in step.shares if share.request == request]


@pytest.fixture(params=[ROOMY, TIGHT])
def found(request: pytest.FixtureRequest, loaded: tuple[Decoder, CpuOps]) -> Timeline:
    return timeline(loaded, request.param)


def test_answers_are_the_engines(found: Timeline, model: Path) -> None:
    params = SamplingParams(temperature=0, max_tokens=N_ANSWER, ignore_eos=True)
    with LLM(model, kv_type="f32", threads=1) as llm:
        expected = [output.outputs[0].token_ids for output in llm.generate(PROMPTS, params)]
    assert [list(answer) for answer in found.answers] == expected
    assert [list(prompt) for prompt in found.prompts] == PROMPTS


def test_every_token_is_accounted_for(found: Timeline) -> None:
    """From admission to preemption or the end, positions follow each other; together they are all but the last token,
    whose successor nobody asked for."""
    for i, prompt in enumerate(PROMPTS):
        end = furthest = 0
        for share in shares_of(found, i):
            if share.preempted:
                end = 0
            if share.kind == WAITING:
                assert share.n_tokens == 0
                assert end == 0
                continue
            assert share.first == (end or share.n_cached)
            assert not end or share.n_cached == 0
            assert (share.kind == AGAIN) == (share.first < furthest)
            end = share.first + share.n_tokens
            furthest = max(furthest, end)
            assert share.n_tokens == 1 or share.kind != ANSWER
            assert (share.first < len(prompt)) == (share.kind == PROMPT) or share.kind == AGAIN
        assert end == len(prompt) + N_ANSWER - 1
        assert [share.finished for share in shares_of(found, i)][-2:] == [False, True]


def test_limits_are_kept(found: Timeline) -> None:
    for step in found.steps:
        assert 0 < step.n_tokens <= 24
        assert 0 < step.blocks_used <= found.n_blocks
        assert step.ms > 0


def test_blocks_are_those_of_the_tokens(loaded: tuple[Decoder, CpuOps]) -> None:
    """Alone, a request holds a block for each 16 tokens; two that share a beginning hold its blocks together."""
    for step in timeline(loaded, ROOMY, PROMPTS[2:]).steps:
        (share,) = step.shares
        assert step.blocks_used == -(-(share.first + share.n_tokens) // 16)
    both = timeline(loaded, ROOMY, PROMPTS[:2])
    step = next(step for step in both.steps if len(step.shares) == 2 and all(s.kind == ANSWER for s in step.shares))
    held = [-(-(share.first + 1) // 16) for share in step.shares]
    assert step.blocks_used == sum(held) - 2


def test_a_beginning_in_common_is_computed_once(found: Timeline) -> None:
    """The second waits for the blocks that the first computes."""
    shares = shares_of(found, 1)
    admitted = next(share for share in shares if share.kind != WAITING)
    assert (admitted.kind, admitted.n_cached) == (PROMPT, 32)
    assert shares[0].kind == WAITING


def test_few_blocks_preempt(loaded: tuple[Decoder, CpuOps]) -> None:
    """With seven blocks the last that came gives way, and computes its tokens again, but for what was cached."""
    roomy, tight = timeline(loaded, ROOMY), timeline(loaded, TIGHT)
    assert not any(share.preempted for step in roomy.steps for share in step.shares)
    shares = [share for i in range(3) for share in shares_of(tight, i)]
    lost = [share for share in shares if share.preempted]
    assert lost
    assert {share.request for share in lost} <= {1, 2}
    again = [share for share in shares if share.kind == AGAIN]
    assert again
    assert len(tight.steps) > len(roomy.steps)


def test_an_answer_ends_at_eos(loaded: tuple[Decoder, CpuOps]) -> None:
    stop = timeline(loaded, ROOMY).answers[0][1]
    assert timeline(loaded, ROOMY, PROMPTS[:1], (stop,)).answers[0][-1] == stop


def test_what_cannot_run(loaded: tuple[Decoder, CpuOps]) -> None:
    for prompt, problem in (
        ([], "prompt 1: it has no tokens"),
        ([1] * 99, "prompt 1: 99 tokens and 30 to generate are more than the 128"),
        ([1, 259], "prompt 1: token id 259 is outside the vocabulary of 259"),
    ):
        with pytest.raises(ValueError, match=problem):
            timeline(loaded, ROOMY, [PROMPTS[0], prompt])
    with pytest.raises(ValueError, match="need 5 cache blocks of 16 positions, and there are 4"):
        timeline(loaded, 4, PROMPTS[:1])
