"""The story model that comes along: it is the default everywhere, small, and tells stories."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gristmill import LLM, SamplingParams
from gristmill.bundled import STORY_MODEL
from gristmill.formats.open import open_checkpoint

ROOT = Path(__file__).parents[1]
PROMPT = "Once upon a time, a little girl named Lily"


def gristmill(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRISTMILL_")}
    command = [sys.executable, "-m", "gristmill", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM() as model:
        yield model


def test_it_is_a_few_megabytes_with_a_card() -> None:
    assert STORY_MODEL.stat().st_size < 6 << 20
    card = STORY_MODEL.with_name("README.md").read_text()
    for heading in ("Data", "Size", "Loss", "Train it again", "Limits"):
        assert f"## {heading}" in card


def test_what_it_recommends_changed_no_weight() -> None:
    """The digest is of the file as it was converted, before it said which temperature suits it."""
    checkpoint, digest = open_checkpoint(STORY_MODEL), hashlib.sha256()
    assert checkpoint.metadata["general.sampling.temp"] == pytest.approx(0.7)
    for name in checkpoint.names():
        weight = checkpoint.get(name)
        digest.update(f"{name} {weight.qtype.label} {weight.shape}".encode())
        digest.update(weight.data)
    assert digest.hexdigest() == "d21f1c2259e40b45e33ec8dfc86898bf84208bbfc7729e836336a6e0172eb98e"


def test_generate_tells_a_story_without_a_model_being_named() -> None:
    done = gristmill("generate", "-p", PROMPT, "--seed", "1", "-n", "400")
    assert done.stdout.startswith(PROMPT)
    assert len(done.stdout.split()) > 60


def test_stories_end_and_are_words_of_the_vocabulary_of_children(llm: LLM) -> None:
    known = set(_words((ROOT / "scripts" / "stories").glob("*.py")))
    params = [SamplingParams(temperature=0.7, max_tokens=440, seed=seed) for seed in range(16)]
    outputs = [answer.outputs[0] for answer in llm.generate([PROMPT] * len(params), params)]
    assert sum(output.finish_reason == "stop" for output in outputs) >= 14
    words = [word for output in outputs for word in _split(output.text)]
    strange = [word for word in words if word not in known]
    assert len(strange) < 0.03 * len(words), sorted(set(strange))
    for output in outputs:
        assert "Lily" in output.text or " she " in output.text


def test_it_predicts_stories_it_has_never_seen(llm: LLM, tmp_path: Path) -> None:
    text = tmp_path / "unseen.txt"
    write = [sys.executable, "scripts/stories", str(text), "--count", "40", "--seed", "99", "--processes", "1"]
    subprocess.run(write, cwd=ROOT, check=True, timeout=300)
    assert _nll(llm, text.read_text().split("<|endoftext|>")) < 0.6


def _nll(llm: LLM, texts: list[str]) -> float:
    """Nats a token."""
    scores = [llm.score(llm.tokenizer.encode(text.strip())[: llm.max_context]) for text in texts]
    return -sum(float(score.sum()) for score in scores) / sum(map(len, scores))


def test_chat_continues_what_is_written() -> None:
    done = gristmill("chat", "--seed", "1", "-n", "60", stdin="One day, a boy named Tom\nThe next morning\n")
    assert len(done.stdout.split()) > 20


def test_chat_template_joins_texts_and_refuses_tools(llm: LLM) -> None:
    said = [
        {"role": "user", "content": "One day, a cat"},
        {"role": "assistant", "content": " sat down."},
        {"role": "user", "content": "Then it"},
    ]
    ids = llm.encode_chat(said)
    assert llm.tokenizer.decode(ids[1:]) == "One day, a cat sat down. Then it"
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(ValueError, match="cannot call tools"):
        llm.encode_chat(said, tools=[tool])


def _words(files: Iterable[Path]) -> list[str]:
    return [word for file in files for word in _split(file.read_text())]


def _split(text: str) -> list[str]:
    letters = "".join(c.lower() if c.isalpha() or c == "'" else " " for c in text)
    return [word.strip("'") for word in letters.split() if word.strip("'")]
