"""The commands as a person or a script calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_model

from gristmill.formats.open import open_checkpoint
from gristmill.formats.quantize import quantize_type
from gristmill.models.build import build
from gristmill.ops.cpu import CpuOps


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_model.write(tmp_path_factory.mktemp("model")))


def run(*args: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`gristmill ARGS` in a process of its own."""
    command = [sys.executable, "-m", "gristmill", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env={**os.environ, **(env or {})})


def test_generate_prints_the_text_and_its_speed(model: str) -> None:
    done = run("generate", "-m", model, "-p", "abc", "-n", "5", "--temp", "0")
    assert done.returncode == 0
    assert done.stdout.startswith("abc")
    assert "tok/s" in done.stderr
    assert "tok/s" not in done.stdout


def test_generate_json_has_every_field(model: str) -> None:
    done = run("generate", "-m", model, "-n", "5", "--seed", "1", "--json", "--logprobs", "2", stdin="abc")
    report = json.loads(done.stdout)
    assert set(report) == {"prompt_ids", "output_ids", "text", "finish_reason", "stats", "logprobs"}
    assert set(report["stats"]) == {
        "prompt_tokens",
        "prompt_tokens_per_s",
        "output_tokens",
        "output_tokens_per_s",
        "load_s",
        "first_token_s",
    }
    assert report["stats"]["output_tokens"] == len(report["output_ids"]) == len(report["logprobs"])
    again = run("generate", "-m", model, "-n", "5", "--seed", "1", "--json", "-p", "abc")
    assert json.loads(again.stdout)["output_ids"] == report["output_ids"]


def test_generate_chats_through_a_template(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}>")
    given = ("generate", "-m", model, "--chat-template", str(tmp_path / "t.jinja"), "--json", "-n", "3", "-p", "hi")
    said = ("[user: hi]>", "[system: be brief][user: hi]>")
    for args, text in zip((("--chat",), ("--system", "be brief")), said, strict=True):
        ids = json.loads(run(*given, *args).stdout)["prompt_ids"]
        decoded = run("tokenize", "-m", model, "--decode", stdin=" ".join(map(str, ids))).stdout
        assert decoded.strip().removeprefix("<s>").strip() == text
    refused = run("generate", "-m", model, "--chat", "-p", "hi")
    assert refused.returncode == 1
    assert "chat template" in refused.stderr


def test_generate_takes_ids_and_environment(model: str) -> None:
    env = {"GRISTMILL_MODEL": model, "GRISTMILL_MAX_TOKENS": "3", "GRISTMILL_TEMP": "0"}
    done = run("generate", "--prompt-ids", "1,50,60", "--json", env=env)
    report = json.loads(done.stdout)
    assert report["prompt_ids"] == [1, 50, 60]
    assert len(report["output_ids"]) <= 3


def test_generate_quantizes_at_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wider model, as small matrices keep their floats: its probabilities move a little, with each type otherwise."""
    monkeypatch.setattr(small_model, "DIM", 256)
    wide = str(small_model.write(tmp_path))
    args = ["generate", "-m", wide, "-p", "abc", "-n", "1", "--temp", "0", "--logprobs", "0", "--json"]
    runs = [run(*args), *(run(*args, env={"GRISTMILL_QUANTIZE": name}) for name in ("none", "int8", "q8_0"))]
    first = [json.loads(done.stdout)["logprobs"][0]["logprob"] for done in runs]
    assert first[0] == first[1]
    assert len(set(first)) == 3
    assert max(first) - min(first) < 0.5
    assert "[none|int8|q8_0]" in run("generate", "--help").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-m", "nowhere.gguf", "-p", "a"], "nowhere.gguf: no such file"),
        (["-p", "a", "--prompt-ids", "1"], "not both"),
        (["--prompt-ids", "1,x"], "must be numbers"),
        (["-p", "a", "--temp", "-1"], "temperature must be"),
        (["-p", "a", "--ctx", "100000"], "the context must be between 2 and the model's 128"),
        (["-p", "a" * 200], "leaves no room to answer"),
        (["-p", "a", "--logprobs", "2"], "--logprobs needs --json"),
        (["-p", "a", "--quantize", "mxfp4"], "'mxfp4', which is not there yet; use one of none, int8, q8_0"),
        (["-p", "a", "--quantize", "int7"], "'int7', which is no type"),
    ],
)
def test_a_mistake_gets_one_clear_line(model: str, args: list[str], message: str) -> None:
    done = run("generate", *args, env={"GRISTMILL_MODEL": model})
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_inspect_shows_tensors_and_memory(model: str) -> None:
    report = json.loads(run("inspect", model, "--json", "--ctx", "64", "--slots", "2").stdout)
    assert report["format"] == "llama2c"
    assert report["config"]["d_model"] == 32
    # 4 blocks of 16 positions, 2 kv heads of 8 + 16 numbers (v is padded), f16, 2 layers, 2 slots
    assert report["memory"]["kv_bytes"] == 4 * 16 * 2 * (8 + 16) * 2 * 2 * 2
    assert report["memory"]["weights_bytes"] == sum(t["bytes"] for t in report["tensors"])
    text = run("inspect", model).stdout
    assert "layers.1.attention.wq.weight" in text
    assert "together" in text


@pytest.mark.parametrize("name", ["int8", "q8_0"])
def test_inspect_knows_what_quantizing_saves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to what the packed matrices really take, of which the last panel's missing rows are the difference."""
    monkeypatch.setattr(small_model, "DIM", 256)
    path = small_model.write(tmp_path)
    plain, quantized = (
        json.loads(run("inspect", str(path), "--json", "--quantize", to).stdout) for to in ("none", name)
    )
    decoder = build(open_checkpoint(path), CpuOps(1), quantize=quantize_type(name))
    linears = [w for layer in decoder.layers for w in (layer.qkv, layer.o, layer.gate_up, layer.down)]
    packed = sum(w.n_bytes for w in {id(w): w for w in (decoder.embed, decoder.head, *linears)}.values())
    norms = 4 * 256 * (2 * len(decoder.layers) + 1)
    assert quantized["memory"]["weights_bytes"] == pytest.approx(packed + norms, rel=0.05)
    assert quantized["memory"]["weights_bytes"] < plain["memory"]["weights_bytes"]
    assert quantized["tensors"] == plain["tensors"]
    assert name in quantized["memory"]["bytes_by_type"]
    assert f"{name} " in run("inspect", str(path), "--quantize", name).stdout


def test_a_bad_replay_mode_names_its_variable(model: str) -> None:
    done = run("generate", "-m", model, "-p", "a", env={"GRISTMILL_REPLAY": "often"})
    assert done.returncode in (1, 2)
    assert "GRISTMILL_REPLAY must be one of on, off, check, not 'often'" in done.stderr
    assert "Traceback" not in done.stderr


def test_tokenize_and_back(model: str) -> None:
    ids = json.loads(run("tokenize", "-m", model, "--json", stdin="héllo").stdout)
    assert len(ids["ids"]) == len(ids["tokens"])
    plain = run("tokenize", "-m", model, "--no-special", stdin="héllo").stdout
    assert plain.split() == [str(i) for i in ids["ids"][1:]]
    assert run("tokenize", "-m", model, "--decode", stdin=plain).stdout == "héllo"


def test_tokenize_refuses_what_is_not_text(model: str) -> None:
    command = [sys.executable, "-m", "gristmill", "tokenize", "-m", model]
    done = subprocess.run(command, input=b"ab\xff", capture_output=True)
    assert done.returncode == 2
    assert b"not UTF-8: byte 2 is 0xff" in done.stderr


@pytest.mark.parametrize("command", ["generate", "inspect", "tokenize"])
def test_help_has_examples(command: str) -> None:
    done = run(command, "--help")
    assert "Examples:" in done.stdout
    assert f"gristmill {command}" in done.stdout
