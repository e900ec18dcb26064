"""The examples run as their docstrings say, on a tiny model, and do what they promise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import small_model

from gristmill import LLM, SamplingParams

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(model: Path) -> LLM:
    return LLM(model)


def run(name: str, *args: object) -> list[str]:
    """Lines that the example prints."""
    command = [sys.executable, "-X", "utf8", str(FOLDER / f"{name}.py"), *map(str, args)]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().removesuffix("\n").replace("\r", "").split("\n")


def text(llm: LLM, prompt: str, max_tokens: int) -> str:
    return llm.generate(prompt, SamplingParams(temperature=0, max_tokens=max_tokens))[0].outputs[0].text


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_is_short_says_how_to_run_it_and_is_tested(name: str) -> None:
    source = (FOLDER / f"{name}.py").read_text()
    assert len(source.splitlines()) < 40
    assert re.match(rf'"""[^"]+python examples/{name}\.py model\.gguf ', source)
    assert f'run("{name}"' in Path(__file__).read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_says_what_it_needs(name: str) -> None:
    command = [sys.executable, "-X", "utf8", str(FOLDER / f"{name}.py")]
    bare = subprocess.run(command, capture_output=True, text=True)
    assert bare.returncode == 1
    assert f"python examples/{name}.py model.gguf " in bare.stderr


def test_batch_file(model: Path, llm: LLM, tmp_path: Path) -> None:
    prompts = ["ab", "über", "the\u2028sea"]
    (tmp_path / "prompts.txt").write_text("\n\n".join(prompts), "utf-8")
    found = [json.loads(line) for line in run("batch_file", model, tmp_path / "prompts.txt")]
    assert [each["prompt"] for each in found] == prompts
    assert [each["answer"] for each in found] == [text(llm, prompt, 64) for prompt in prompts]
    assert {each["finish_reason"] for each in found} <= {"stop", "length"}


def test_stream(model: Path, llm: LLM) -> None:
    params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=100, seed=1)
    expected = "ab" + llm.generate("ab", params)[0].outputs[0].text
    assert "\n".join(run("stream", model, "ab")) == expected.replace("\r", "")


def test_json_schema(model: Path) -> None:
    (line,) = run("json_schema", model, "soup: ")
    assert re.fullmatch("(good|bad|mixed), [1-5] of 5", line)


def test_embeddings(model: Path, llm: LLM) -> None:
    texts = ["ab", "ab", "the sea"]
    lines = run("embeddings", model, *texts)
    assert [lines[0], lines[4]] == ["mean of all tokens", "last token"]
    one, two = llm.embed(llm.encode("ab")), llm.embed(llm.encode("the sea"))
    for first, a, b in ((1, one.mean(0), two.mean(0)), (5, one[-1], two[-1])):
        table = np.array([line.split()[:3] for line in lines[first : first + 3]], float)
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        np.testing.assert_allclose(table, [[1, 1, cosine], [1, 1, cosine], [cosine, cosine, 1]], atol=1e-3)
    assert lines[3].endswith(" the sea")


def test_async_many(model: Path, llm: LLM) -> None:
    prompts = ["ab", "the sea", "x"]
    found = "\n".join(run("async_many", model, *prompts))
    for prompt in prompts:
        assert (prompt + text(llm, prompt, 40)).replace("\r", "") in found
    assert found.endswith("3 answers")
