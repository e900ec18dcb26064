"""llama-perplexity's file of log-probabilities: files written here by the format's rule, and, where llama-perplexity
is on the path, one that it wrote, of the bundled model."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from gristmill import LLM
from gristmill.bundled import STORY_MODEL
from gristmill.cli.main import main
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.llama_logprob_file import LlamaLogprobFile, open_base
from gristmill.perplexity import log_softmax

LLAMA_PERPLEXITY = shutil.which("llama-perplexity")
TEXT = 'Tom had a red ball. He took it to the park and threw it up high. "Look, Mum!" he said.'
TOKENS, ROWS, ROW = 20, 20 + 2 * 8 * 4, 8 + 2 * 2048  # where tokens and rows begin, bytes of a row


def written(path: Path, tokens: NDArray[np.int32], logits: NDArray[np.float32]) -> Path:
    """By the format's rule: steps of a 65,535th of the range, which ends 16 below the largest."""
    n_windows, context = tokens.shape
    size = logits.shape[1]
    with path.open("wb") as file:
        file.write(struct.pack("<8sI2i", b"_logits_", context, size, n_windows) + tokens.astype("<i4").tobytes())
        for row in logits:
            top, least = row.max(), max(row.min(), row.max() - 16)
            sum_exp = np.log(np.exp(row - top).sum())
            steps = np.round((row.clip(least) - least) / (top - least) * 65535)
            file.write(struct.pack("<2f", (top - least) / 65535, least - top - sum_exp))
            file.write(np.pad(steps, (0, size % 2)).astype("<u2").tobytes())
    return path


@pytest.fixture
def base_file(tmp_path: Path) -> Path:
    """Two windows of eight tokens, of a vocabulary of 2,048."""
    random = np.random.default_rng(1)
    tokens = random.integers(0, 2048, (2, 8), np.int32)
    return written(tmp_path / "base", tokens, random.normal(0, 2, (6, 2048)).astype(np.float32))


@pytest.mark.skipif(LLAMA_PERPLEXITY is None, reason="needs llama-perplexity, llama.cpp's, on the path")
def test_it_says_what_llama_perplexity_says(tmp_path: Path) -> None:
    """Of its own file, and of our model beside its: both round activations, each in its own way."""
    assert LLAMA_PERPLEXITY is not None
    text, file = tmp_path / "text", tmp_path / "base"
    text.write_text(TEXT)
    options = ["-c", "8", "-b", "8", "-t", "1", "--chunks", "2", "--kl-divergence-base", str(file)]
    command = [LLAMA_PERPLEXITY, "-m", str(STORY_MODEL), "-f", str(text), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = re.search(r"PPL = ([\d.]+)", done.stdout + done.stderr)
    assert said is not None
    theirs = float(said[1])

    with open_base(file) as base, LLM(max_context=64) as llm:
        ids = llm.encode(TEXT)
        assert base.windows.tokens.tolist() == [ids[:8], ids[8:16]]
        found = list(base.distributions())
    assert np.exp(np.concatenate([each.nll for each in found]).mean()) == pytest.approx(theirs, rel=1e-4)
    assert found[0].logprobs.shape == (3, 2048)

    compared = compare(file)
    assert compared["base"]["perplexity"] == pytest.approx(theirs, rel=1e-4)
    assert 0 < compared["base"]["kl"] < 0.01
    assert compared["base"]["same_top"] == 1


def test_a_model_beside_its_own_logits(tmp_path: Path) -> None:
    with LLM(max_context=64, kv_type="f32") as llm:
        ids = llm.encode(TEXT)
        windows = np.array([ids[:8], ids[8:16]], np.int32)
        logits = [llm.logits([llm.tokenizer.bos_id, *window[1:].tolist()])[4:7] for window in windows]
    compared = compare(written(tmp_path / "base", windows, np.concatenate(logits)))
    assert abs(compared["base"]["kl"]) < 1e-4
    assert compared["base"]["perplexity"] == pytest.approx(compared["perplexity"], rel=1e-4)
    assert compared["base"]["same_top"] == 1


def compare(base: Path) -> dict[str, Any]:
    """The bundled model on TEXT beside `base`."""
    arguments = ["perplexity", "--kl-base", str(base), "--kv-type", "f32", "--json"]
    result = CliRunner().invoke(main, arguments, input=TEXT)
    found: dict[str, Any] = json.loads(result.stdout)
    assert (found["ctx"], found["windows"], found["tokens"]) == (8, 2, 6)
    return found


def test_what_is_less_than_it_can_say_is_nothing(tmp_path: Path) -> None:
    """An odd vocabulary, most of it 16 and more below the likeliest: were it there as 16, it would be 2 %."""
    logits = np.random.default_rng(3).normal(0, 4, (2, 150_001)).astype(np.float32) - 40
    logits[:, 77] = 0
    tokens = np.array([[1, 2, 3, 4, 5, 77]], np.int32)
    with open_base(written(tmp_path / "base", tokens, logits)) as base:
        base.check(150_001, base.windows)
        (found,) = base.distributions()
    exact = log_softmax(logits)
    np.testing.assert_allclose(np.exp(found.logprobs), np.exp(exact), atol=2e-4)
    assert np.exp(found.logprobs).sum(axis=1) == pytest.approx(1, abs=1e-4)
    assert found.top.tolist() == [77, 77]
    np.testing.assert_allclose(found.nll[1], -exact[1, 77], atol=2e-4)
    assert found.nll[0] >= 16


def test_its_first_tokens_are_those_of_the_text(base_file: Path) -> None:
    """Where the model has BOS instead; all others must be the same."""
    with open_base(base_file) as base:
        windows = base.windows
        windows.tokens[:, 0] = 5
    with open_base(base_file) as base:
        base.check(2048, windows)
        windows.tokens[1, 3] = 5
        with pytest.raises(ModelFormatError, match="tokens: window 1, token 3 is"):
            base.check(2048, windows)
        with pytest.raises(ModelFormatError, match="vocabulary size: is 2048 and the model's is 2047"):
            base.check(2047, windows)


@pytest.mark.parametrize(
    ("at", "data", "message"),
    [
        (8, struct.pack("<I", 3), "n_ctx: is 3"),
        (8, struct.pack("<I", 1 << 31), "windows: have"),
        (12, struct.pack("<i", -2048), "n_vocab: is -2048"),
        (12, struct.pack("<i", 0x7FFFFFFF), "file: has 24708 bytes and its header asks for"),
        (16, struct.pack("<i", 0), "n_chunk: is 0"),
        (16, struct.pack("<i", 3), "file: has 24708 bytes and its header asks for"),
        (TOKENS + 4, struct.pack("<i", 2048), "tokens: an id is not in the vocabulary of 2048"),
        (ROWS, struct.pack("<f", float("nan")), "window 0: scales: not all"),
        (ROWS, struct.pack("<f", -1e-4), "window 0: scales"),
        (ROWS + 4, struct.pack("<f", float("-inf")), "window 0: scales"),
        (ROWS + 4 + 4 * ROW, struct.pack("<f", -1), "window 1: log-probabilities: do not make up"),
        (ROWS + 8 + 5 * ROW, b"\xff" * 4096, "window 1: log-probabilities: do not make up"),
    ],
)
def test_a_hostile_file_is_named(base_file: Path, tmp_path: Path, at: int, data: bytes, message: str) -> None:
    whole, bad = base_file.read_bytes(), tmp_path / "bad"
    bad.write_bytes(whole[:at] + data + whole[at + len(data) :])
    with pytest.raises(ModelFormatError, match=f"bad: {message}"), open_base(bad) as base:
        list(base.distributions())


def test_every_other_length_is_refused(base_file: Path, tmp_path: Path) -> None:
    whole, bad = base_file.read_bytes(), tmp_path / "bad"
    for n in (8, 19, 20, ROWS - 1, ROWS + ROW, len(whole) - 1, len(whole) + 1):
        bad.write_bytes((whole + b"\0")[:n])
        with pytest.raises(ModelFormatError, match=r"bad: (header|file): "):
            LlamaLogprobFile(bad)
