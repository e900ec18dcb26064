"""`generate` and `chat` choose tokens as the model's files recommend, unless they are told otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from recommending import gguf_file

from gristmill.cli.main import main

GREEDY = {"temp": 0.9, "top_k": 1}  # whatever the temperature, one token is left


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(gguf_file(tmp_path_factory.mktemp("model") / "tiny.gguf", **GREEDY))


def generated(model: str, *args: str, env: dict[str, str] | None = None) -> list[int]:
    command = ["generate", "-m", model, "-p", "Hello", "-n", "20", "--threads", "1", "--json", "--ignore-eos", *args]
    done = CliRunner().invoke(main, command, env=env)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["output_ids"]


def test_generate(model: str, tmp_path: Path) -> None:
    greedy = generated(model, "--temp", "0")
    assert [generated(model, "--seed", seed) for seed in "123"] == [greedy] * 3
    assert generated(model, "--seed", "1", "--temp", "2") == greedy  # one is left even so
    free = generated(model, "--seed", "1", "--top-k", "0")
    assert free != greedy
    plain = generated(str(gguf_file(tmp_path / "b.gguf")), "--seed", "1")
    assert plain != greedy
    assert generated(model, "--seed", "1", "--generation-config", "none") == plain
    assert generated(model, "--seed", "1", env={"GRISTMILL_GENERATION_CONFIG": "none"}) == plain
    said = ("--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05")
    assert generated(model, "--seed", "1", *said) == plain  # what the help says of models that recommend nothing


def test_generate_with_a_chats_template(model: str, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    chat = ("--chat", "--chat-template", str(tmp_path / "t.jinja"))
    assert generated(model, *chat, "--seed", "1") == generated(model, *chat, "--temp", "0")
    none = generated(model, *chat, "--seed", "1", "--generation-config", "none")
    assert none != generated(model, *chat, "--temp", "0")


def talked(model: str, *args: str, lines: str) -> str:
    command = ["chat", "-m", model, "--threads", "1", "-n", "20", "--ignore-eos", *args]
    done = CliRunner().invoke(main, command, input=lines)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_chat(model: str) -> None:
    greedy = talked(model, "--temp", "0", lines="Hello\n")
    assert talked(model, "--seed", "1", lines="Hello\n") == greedy
    assert talked(model, "--seed", "1", "--generation-config", "none", lines="Hello\n") != greedy
    assert talked(model, "--seed", "1", lines="/set top_k 0\nHello\n") != greedy


def test_chat_shows_it(model: str) -> None:
    shown = talked(model, "--top-k", "3", lines="/show\n/set top_k default\n/set temperature\n/set top_k\n/set top_p\n")
    assert "top_k = 3\n" in shown
    assert shown.endswith(
        "temperature is not set (the model's default: 0.9)\ntop_k is not set (the model's default: 1)\n"
        "top_p is not set (gristmill's default: 0.95)\n"
    )


def test_what_makes_no_sense_is_refused_with_the_remedy(tmp_path: Path) -> None:
    model = str(gguf_file(tmp_path / "bad.gguf", temp=-3.0))
    for command in (["generate", "-p", "a"], ["chat"]):
        done = CliRunner().invoke(main, [*command, "-m", model], input="")
        assert done.exit_code == 1
        assert "general.sampling.temp" in done.output
        assert "--generation-config none" in done.output
    assert len(generated(model, "--generation-config", "none", "--temp", "0")) == 20


def test_a_server_has_its_own() -> None:
    done = CliRunner().invoke(main, ["chat", "--base-url", "http://127.0.0.1:9", "--generation-config", "none"])
    assert done.exit_code == 2
    assert "--generation-config is for a model in this process" in done.output
