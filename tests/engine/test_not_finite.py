"""Requests whose numbers are not finite end with an error, alone, and leave nothing behind that others would use."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_model

from gristmill import LLM, RequestOutput, SamplingParams
from gristmill.types import NotFiniteError

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = [[1, 50], [1, 60, 70], [1, 80]]
BEGINNING = list(range(3, 43))


def with_broken_token(path: Path, sound: Path, token_id: int) -> Path:
    """The same model, except that it reads NaN where this token stands. It can write it nevertheless."""
    data = bytearray(sound.read_bytes())
    row, begin = small_model.DIM * 4, 28
    head = bytes(data[begin : begin + small_model.VOCAB * row])
    struct.pack_into("<i", data, 20, -small_model.VOCAB)  # the head is a matrix of its own, at the end
    data[begin + token_id * row : begin + (token_id + 1) * row] = np.full(small_model.DIM, np.nan, "<f4").tobytes()
    path.write_bytes(data + head)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def sound(path: Path) -> LLM:
    return LLM(path, threads=1)


def answer(llm: LLM, prompt: list[int], params: SamplingParams = GREEDY) -> list[int]:
    return llm.generate([prompt], params)[0].outputs[0].token_ids


def together(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> list[list[int] | BaseException]:
    async def main() -> list[list[RequestOutput] | BaseException]:
        return await asyncio.gather(*(llm.agenerate([p], params) for p in prompts), return_exceptions=True)

    return [o if isinstance(o, BaseException) else o[0].outputs[0].token_ids for o in asyncio.run(main())]


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("logprobs", [None, 2])
@pytest.mark.parametrize("replay", ["on", "check"])
def test_a_broken_prompt_fails_alone(
    sound: LLM,
    path: Path,
    tmp_path: Path,
    temperature: float,
    logprobs: int | None,
    replay: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRISTMILL_REPLAY", replay)
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=12, ignore_eos=True, logprobs=logprobs)
    expected = [answer(sound, prompt, params) for prompt in PROMPTS]
    broken = next(i for i in range(3, small_model.VOCAB) if i not in {t for each in expected + PROMPTS for t in each})
    with LLM(with_broken_token(tmp_path / "broken.bin", path, broken), threads=1) as llm:
        *told, error = together(llm, [*PROMPTS, [1, broken, 90]], params)
    assert told == expected
    assert isinstance(error, NotFiniteError)
    assert "logits are not finite (NaN or infinity) after 3 tokens" in str(error)


@pytest.mark.parametrize("logprobs", [None, 2])
def test_an_answer_that_breaks_ends_there(sound: LLM, path: Path, tmp_path: Path, logprobs: int | None) -> None:
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=logprobs)
    expected = [answer(sound, prompt) for prompt in PROMPTS]
    others = {t for prompt, tokens in zip(PROMPTS[1:], expected[1:], strict=True) for t in prompt + tokens}
    at = next(i for i in range(4, 12) if expected[0][i] not in {*others, *expected[0][:i], *PROMPTS[0]})
    model = with_broken_token(tmp_path / "broken.bin", path, expected[0][at])
    with LLM(model, threads=1) as llm:
        assert answer(llm, PROMPTS[0], SamplingParams(temperature=0, max_tokens=at + 1)) == expected[0][: at + 1]
        error, *told = together(llm, PROMPTS, params)
        assert told == expected[1:]
        assert isinstance(error, NotFiniteError)
        assert f"after {len(PROMPTS[0]) + at + 1} tokens" in str(error)
        pieces = [piece.event.token_id for piece in llm.pieces(PROMPTS[1], GREEDY)]
        assert pieces == expected[1]


@pytest.mark.parametrize("ask", [answer, LLM.embed, LLM.logits, LLM.score])
def test_what_a_broken_prompt_computed_before_it_broke_is_not_used(
    ask: Callable[[LLM, list[int]], object], sound: LLM, path: Path, tmp_path: Path
) -> None:
    expected = answer(sound, [*BEGINNING, 60])
    with LLM(with_broken_token(tmp_path / "broken.bin", path, 200), threads=1) as llm:
        with pytest.raises(NotFiniteError):
            ask(llm, [*BEGINNING, 200, 60])
        output = llm.generate([[*BEGINNING, 60]], GREEDY)[0]
        assert output.num_cached_tokens == 0
        assert output.outputs[0].token_ids == expected


def test_a_guess_of_a_broken_draft_model_is_a_wrong_guess(sound: LLM, path: Path, tmp_path: Path) -> None:
    expected = answer(sound, PROMPTS[0])
    model = with_broken_token(tmp_path / "broken.bin", path, expected[3])
    with LLM(path, threads=1, draft=model) as llm:
        assert answer(llm, PROMPTS[0]) == expected


def test_rows_are_numbers_or_an_error(path: Path, tmp_path: Path) -> None:
    with LLM(with_broken_token(tmp_path / "broken.bin", path, 200), threads=1) as llm:
        for ask, what in ((llm.embed, "hidden states"), (llm.logits, "logits"), (llm.score, "logits")):
            with pytest.raises(NotFiniteError, match=f"{what} are not finite"):
                ask([1, 50, 200, 60])
            assert np.isfinite(ask([1, 50, 60])).all()
