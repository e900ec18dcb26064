"""The speed of an answer is that at which the engine had its tokens, and of a few there is none."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import small_model
from click.testing import CliRunner

from gristmill import LLM, SamplingParams
from gristmill.cli import generate
from gristmill.cli.chat_backend import Tally
from gristmill.cli.chat_screen import PlainScreen
from gristmill.cli.main import main
from gristmill.cli.timed import tokens_per_s

PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


def test_times_are_the_engine_s_however_late_tokens_are_read(tmp_path: Path) -> None:
    with LLM(small_model.write(tmp_path), threads=1) as llm:
        started = time.perf_counter()
        tokens = llm.timed_pieces([1, 60, 61], PARAMS)
        found = [next(tokens)]
        time.sleep(0.5)
        read = time.perf_counter()
        found += tokens
        expected = list(llm.pieces([1, 60, 61], PARAMS))
    times = [token.at for token in found]
    assert [token.piece for token in found] == expected
    assert [started, *times, read] == sorted([started, *times, read])
    assert len(set(times)) == 5


def test_a_slow_reader_is_not_the_model_s_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "write", lambda text: time.sleep(0.1))
    monkeypatch.setattr(PlainScreen, "content", lambda self, text: time.sleep(0.1))
    given = ["-m", str(small_model.write(tmp_path)), "--threads", "1", "--temp", "0", "-n", "9", "--ignore-eos"]
    for command in (["generate", "-p", "abc"], ["chat"]):
        done = CliRunner().invoke(main, [*command, *given], input="abc\n")
        found = re.search(r"(?:output )?9 tokens(?:,| ·) ([\d.]+) tok/s", done.stderr)
        assert found is not None, done.output
        assert float(found[1]) > 20


def test_a_request_is_refused_and_ended_as_by_the_engine(tmp_path: Path) -> None:
    context = 8192
    with LLM(small_model.write(tmp_path, context), threads=1) as llm:
        with pytest.raises(ValueError, match="the prompt has no tokens"):
            next(llm.timed_pieces([], PARAMS))
        tokens = llm.timed_pieces([1], SamplingParams(max_tokens=None, ignore_eos=True))
        next(tokens)
        tokens.close()
        while llm.engine.load().n_running:
            time.sleep(0.001)
        assert llm.engine.load().n_steps < context - 2


def test_few_tokens_have_no_speed() -> None:
    assert [tokens_per_s(n, 0.5) for n in (0, 1, 2, 10)] == [None, None, 4.0, 20.0]
    assert tokens_per_s(10, 0.0) is None


def test_pieces_of_a_server_that_came_together_have_no_speed() -> None:
    def told(*times: float) -> Tally:
        tally = Tally(least_s=0.01)
        for at in times:
            tally.count(at=at)
        return tally

    assert told(1.0, 1.001, 1.002, 1.003).tokens_per_s is None
    assert told(1.0, 2.0).tokens_per_s is None
    assert told(1.0, 1.5, 2.0).tokens_per_s == 2.0
    several = told(1.0, 1.5, 2.0)
    several.n_output = 30  # as the server counts them: ten a piece, of which those of the first took no time
    assert several.tokens_per_s == 20.0
