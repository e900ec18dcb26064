"""Prompts, arrivals, and what is made of outcomes."""

from __future__ import annotations

import json
import math
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
import small_model

from gristmill.bench.serving.load import Outcome, Pace, Run
from gristmill.bench.serving.picture import draw
from gristmill.bench.serving.prompts import Prompt, Span, sharegpt, synthetic
from gristmill.bench.serving.report import METRICS, detail, summarize, values
from gristmill.tokenizer.files import load_path
from gristmill.tokenizer.interface import Tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    small_model.write_tokenizer(tmp_path / "tokenizer.bin")
    return load_path(tmp_path / "tokenizer.bin", small_model.VOCAB)


def test_synthetic_prompts(tokenizer: Tokenizer) -> None:
    words = synthetic(50, Span(3, 9), Span(5, 5), 1, None, as_ids=True)
    for prompt in words:
        assert isinstance(prompt.content, str)
        assert 3 <= prompt.n_input == len(prompt.content.split()) <= 9
        assert prompt.n_output == 5
    assert {prompt.n_input for prompt in words} == set(range(3, 10))
    assert words == synthetic(50, Span(3, 9), Span(5, 5), 1, None, as_ids=True)
    assert words != synthetic(50, Span(3, 9), Span(5, 5), 2, None, as_ids=True)
    for prompt in synthetic(20, Span(40, 60), Span(1, 3), 0, tokenizer, as_ids=True):
        assert len(prompt.content) == prompt.n_input
        assert not {0, 1, 2} & set(prompt.content)
    for prompt in synthetic(20, Span(40, 60), Span(1, 3), 0, tokenizer, as_ids=False):
        assert isinstance(prompt.content, str)


def test_sharegpt(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def entry(*texts: str) -> dict[str, object]:
        return {"id": "x", "conversations": [{"from": "human", "value": text} for text in texts]}

    path = tmp_path / "chats.json"
    messages = {"messages": [{"role": "user", "content": "four"}, {"role": "assistant", "content": "fives"}]}
    entries = [entry("hello", "world!"), entry("alone"), entry("a", "too short"), messages, entry("x" * 5000, "long")]
    path.write_text(json.dumps(entries))
    # A space goes before a text, and each byte is a token.
    found = sharegpt(path, 2, None, 0, tokenizer)
    assert sorted(found, key=lambda p: p.n_input) == [Prompt("four", 5, 6), Prompt("hello", 6, 7)]
    assert {prompt.n_output for prompt in sharegpt(path, 2, Span(9, 9), 0, tokenizer)} == {9}
    with pytest.raises(ValueError, match=r"chats\.json: 2 conversations .* fewer than --num-prompts 3"):
        sharegpt(path, 3, None, 0, tokenizer)
    for text, message in (("{", "is no JSON"), ("{}", "is no list"), ("[1]", "entry 0 has no list `conversations`")):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            sharegpt(path, 1, None, 0, None)
    path.write_text(json.dumps([entry("a", "b"), {"conversations": [{"value": 1}, {"value": "b"}]}]))
    with pytest.raises(ValueError, match="entry 1 has a turn without a text"):
        sharegpt(path, 1, None, 0, None)
    path.write_text(json.dumps([entry("a", "b"), entry("\ud800", "b")]))
    with pytest.raises(ValueError, match=r"entry 1 has the lone surrogate U\+D800"):
        sharegpt(path, 1, None, 0, None)


def test_arrivals() -> None:
    assert Pace().arrivals(3) == [0.0] * 3
    poisson = Pace(requests_per_s=50, seed=1).arrivals(5000)
    assert poisson == sorted(poisson)
    assert poisson[-1] == pytest.approx(100)
    gaps = [b - a for a, b in zip([0.0, *poisson], poisson, strict=False)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.1)  # as an exponential distribution
    even = Pace(requests_per_s=50, burstiness=100, seed=1).arrivals(5000)
    gaps = [b - a for a, b in pairwise(even)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps) / 10, rel=0.1)
    assert Pace(requests_per_s=50, burstiness=1e-300).arrivals(3) == [0.0] * 3


def outcome(start: float, first: float, gaps: list[float], n_output: int) -> Outcome:
    times = [start + first]
    for gap in gaps:
        times.append(times[-1] + gap)
    return Outcome(start, start, times[-1], tuple(times), 10, n_output)


def test_summary() -> None:
    outcomes = [
        outcome(100.0, 0.5, [0.1, 0.3], 5),
        outcome(100.0, 1.5, [0.2], 2),
        outcome(101.0, 0.25, [], 1),
        Outcome(100.0, 100.0, 102.0, error="HTTP 503: too many"),
    ]
    run = Run(outcomes, duration_s=2.0, client_s=0.5)
    summary = summarize(run, {"ttft": 600, "tpot": 150}, (50, 90))
    assert (summary["completed"], summary["failed"]) == (3, 1)
    assert summary["errors"] == {"HTTP 503: too many": 1}
    assert (summary["total_input_tokens"], summary["total_output_tokens"]) == (30, 8)
    assert summary["request_throughput"] == 1.5
    assert summary["request_goodput"] == 1.0  # the first and the third; the second's first token is late
    assert summary["output_throughput"] == 4.0
    assert summary["total_token_throughput"] == 19.0
    assert summary["max_concurrent_requests"] == 2
    assert summary["client_cpu_share"] == 0.25
    assert summary["mean_ttft_ms"] == pytest.approx(750)
    assert summary["median_ttft_ms"] == summary["p50_ttft_ms"] == pytest.approx(500)
    assert values(outcomes[:3], "tpot") == pytest.approx([0.1, 0.2])  # 0.4 s for 4 tokens; one token alone has none
    assert values(outcomes[:3], "itl") == pytest.approx([0.1, 0.3, 0.2])
    assert summary["p90_e2el_ms"] == pytest.approx(1540)
    assert [row["start"] for row in detail(run)] == [0.0, 0.0, 1.0, 0.0]
    assert detail(run)[3]["ttft"] is None
    json.dumps(summary, allow_nan=False)


def test_answers_that_are_no_streams_have_an_end_alone(tmp_path: Path) -> None:
    run = Run([Outcome(0.0, 0.0, 2.0, n_input=5, n_output=4)], 2.0, 0.1)
    assert (detail(run)[0]["ttft"], detail(run)[0]["e2el"]) == (None, 2.0)
    assert [values(run.outcomes, metric) for metric in METRICS] == [[], [], [], [2.0]]
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    draw(tmp_path / "a.png", run, "a title")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_summary_of_failures_alone() -> None:
    summary = summarize(Run([Outcome(0, 0, 1, error="no")], 1.0, 0.1), {}, (50,))
    assert summary["completed"] == 0
    assert summary["mean_ttft_ms"] is None
    assert summary["request_goodput"] is None
    assert math.isfinite(summary["output_throughput"])
