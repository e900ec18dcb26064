"""The commands as a person or a script calls them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import small_model
from click.testing import CliRunner, Result
from oracles.families import save

from gristmill.cli import options
from gristmill.cli.inspect import _bytes, _count, _plain, _safe
from gristmill.cli.main import main
from gristmill.cli.streams import one_line
from gristmill.convert import convert
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import quantize_type
from gristmill.formats.write_gguf import NewTensor, write_gguf
from gristmill.formats.write_gguf_raw import raw_values
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
        "packing_s",
        "first_token_s",
    }
    assert report["stats"]["output_tokens"] == len(report["output_ids"]) == len(report["logprobs"])
    again = run("generate", "-m", model, "-n", "5", "--seed", "1", "--json", "-p", "abc")
    assert json.loads(again.stdout)["output_ids"] == report["output_ids"]


def test_generate_chats_through_a_template(model: str, tmp_path: Path) -> None:
    """Which is a wish for a chat itself."""
    (tmp_path / "t.jinja").write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}>")
    given = ("generate", "-m", model, "--chat-template", str(tmp_path / "t.jinja"), "--json", "-n", "3", "-p", "hi")
    said = ("[user: hi]>", "[user: hi]>", "[system: be brief][user: hi]>")
    for args, text in zip(((), ("--chat",), ("--system", "be brief")), said, strict=True):
        ids = json.loads(run(*given, *args).stdout)["prompt_ids"]
        decoded = run("tokenize", "-m", model, "--decode", stdin=" ".join(map(str, ids))).stdout
        assert decoded.strip().removeprefix("<s>").strip() == text
    for args in (("--chat",), ("--system", "be brief")):
        refused = run("generate", "-m", model, *args, "-p", "hi")
        assert refused.returncode == 1
        assert "chat template" in refused.stderr


def test_generate_tells_a_thought_from_an_answer(model: str, tmp_path: Path) -> None:
    """The text is as the model wrote it; where an answer is constrained, what is printed is its content alone."""
    (tmp_path / "t.jinja").write_text("{{ messages[-1].content }}<|im_start|><think>\n")
    given = ("-m", model, "--chat-template", str(tmp_path / "t.jinja"), "-p", "hi", "-n", "9", "--seed", "1")
    free = report_of(*given)
    assert list(free["message"]) == ["role", "content", "reasoning_content"]
    assert (free["message"]["content"], free["message"]["reasoning_content"]) == ("", free["text"])
    for args, printed in (((), free["text"]), (("--regex", "[0-9]+"), "")):
        done = CliRunner().invoke(main, ["generate", *given, *args])
        assert done.stdout == printed + "\n"


def test_generate_says_whether_a_constrained_answer_is_whole(model: str) -> None:
    for n, cut in (("3", True), ("9", False)):
        args = ["generate", "-m", model, "-p", "abc", "--regex", "[0-9]{5}", "-n", n]
        done = CliRunner().invoke(main, args)
        assert ("the answer is not complete: it was cut by --max-tokens" in done.stderr) is cut
    assert "not complete" not in CliRunner().invoke(main, ["generate", "-m", model, "-p", "abc", "-n", "3"]).stderr


def test_generate_measures_what_it_names(model: str) -> None:
    started = time.perf_counter()
    found = report_of("-m", model, "-p", "abc", "-n", "5", "--logprobs", "2")
    taken, stats = time.perf_counter() - started, found["stats"]
    assert 0 < stats["load_s"] + stats["first_token_s"] < taken
    assert stats["prompt_tokens_per_s"] * stats["first_token_s"] == pytest.approx(stats["prompt_tokens"])
    for token in found["logprobs"]:
        assert len(token["top"]) == 2
        assert token["top"][0]["logprob"] >= max(token["logprob"], token["top"][1]["logprob"])


def test_generate_has_no_speed_of_a_token_or_two(model: str) -> None:
    speeds = [
        report_of("-m", model, "-p", "abc", "-n", str(n), "--ignore-eos")["stats"]["output_tokens_per_s"]
        for n in (1, 2, 3)
    ]
    assert speeds[:2] == [None, None]
    assert speeds[2] > 0
    assert "output 2 tokens, - tok/s" in run("generate", "-m", model, "-p", "abc", "-n", "2", "--ignore-eos").stderr


def test_generate_leaves_out_the_line_end_after_a_text_of_stdin(model: str) -> None:
    for piped, text in (("abc", "abc"), ("abc\n", "abc"), ("a\nb\r\n", "a\nb"), ("abc\n\n", "abc\n"), ("\n", "")):
        done = CliRunner().invoke(main, ["generate", "--json", "-m", model, "-n", "1"], input=piped)
        assert json.loads(done.stdout)["prompt_ids"] == report_of("-m", model, "-n", "1", "-p", text)["prompt_ids"]


def test_generate_takes_ids_and_environment(model: str) -> None:
    env = {"GRISTMILL_MODEL": model, "GRISTMILL_MAX_TOKENS": "3", "GRISTMILL_TEMP": "0"}
    done = run("generate", "--prompt-ids", "1,50,60", "--json", env=env)
    report = json.loads(done.stdout)
    assert report["prompt_ids"] == [1, 50, 60]
    assert len(report["output_ids"]) <= 3


def report_of(*args: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """`gristmill generate --json` in this process, which is faster."""
    done = CliRunner().invoke(main, ["generate", "--json", *args], env=env)
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def ids_of(*args: str, env: dict[str, str] | None = None) -> list[int]:
    """What greedy generation with these options answers."""
    ids: list[int] = report_of("--prompt-ids", "1,60,61,62,60,61,62,60,61", "--temp", "0", *args, env=env)["output_ids"]
    return ids


def test_generate_answers_ids_with_ids(model: str) -> None:
    done = CliRunner().invoke(main, ["generate", "-m", model, "--prompt-ids", "1,50", "--temp", "0", "-n", "5"])
    expected = report_of("-m", model, "--prompt-ids", "1,50", "--temp", "0", "-n", "5")["output_ids"]
    assert done.stdout == " ".join(map(str, expected)) + " \n"


def test_generate_until_the_context_is_full(model: str) -> None:
    found = report_of("-m", model, "--prompt-ids", "1,50", "--ctx", "40", "-n", "-1", "--ignore-eos")
    assert (len(found["output_ids"]), found["finish_reason"]) == (38, "length")


def test_generate_guesses_and_says_the_same(model: str) -> None:
    given = ("-m", model, "-n", "40", "--ignore-eos")
    expected = ids_of(*given)
    assert ids_of(*given, "--speculate", "7") == expected
    assert ids_of(*given, "--draft", model) == expected
    assert ids_of(*given, env={"GRISTMILL_SPECULATE": "4", "GRISTMILL_DRAFT": model}) == expected


def test_generate_punishes_biases_and_holds_back_an_end(model: str) -> None:
    given = ("-m", model, "-n", "30", "--ignore-eos")
    free = ids_of(*given)
    for option in ("--repetition-penalty", "--repeat-penalty", "--presence-penalty", "--frequency-penalty"):
        assert ids_of(*given, option, "2") != free
    for name in ("REPETITION", "PRESENCE", "FREQUENCY"):
        assert ids_of(*given, env={f"GRISTMILL_{name}_PENALTY": "2"}) != free
    for bias in ("77+100", "77=100", " 77 + 100 "):
        assert ids_of(*given, "--logit-bias", bias) == [77] * 30
    assert free[0] not in ids_of(*given, "--logit-bias", f"{free[0]}-100", env={"GRISTMILL_LOGIT_BIAS": "8+1\n9+1"})
    ending = ("-m", model, "-n", "30", "--logit-bias", "2+100")
    assert ids_of(*ending) == [2]
    assert ids_of(*ending, "--min-tokens", "5").index(2) == 5
    assert ids_of(*ending, env={"GRISTMILL_MIN_TOKENS": "6"}).index(2) == 6


def test_generate_keeps_to_what_an_answer_must_look_like(model: str, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "g.lark").write_text('start: "<" /[ab]{2}/ ">"')

    def text(*args: str, env: dict[str, str] | None = None) -> str:
        return str(report_of("-m", model, "-p", "abc", "--seed", "1", "-n", "100", *args, env=env)["text"])

    for form in (str(tmp_path / "schema.json"), json.dumps(schema)):
        assert isinstance(json.loads(text("--json-schema", form))["n"], int)
    assert re.fullmatch("[0-9]{4}", text("--regex", "[0-9]{4}"))
    assert text("--choice", "red wine", "--choice", "beer") in ("red wine", "beer")
    assert re.fullmatch("<[ab]{2}>", text("--grammar", str(tmp_path / "g.lark")))
    assert text(env={"GRISTMILL_CHOICE": "red wine\nbeer"}) in ("red wine", "beer")
    assert re.fullmatch("[xy]", text(env={"GRISTMILL_REGEX": "[xy]"}))
    assert re.fullmatch("<[ab]{2}>", text(env={"GRISTMILL_GRAMMAR": str(tmp_path / "g.lark")}))
    assert "n" in json.loads(text(env={"GRISTMILL_JSON_SCHEMA": json.dumps(schema)}))
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8-sig")  # as some editors write it
    assert "n" in json.loads(text("--json-schema", str(tmp_path / "schema.json")))


def test_a_schema_may_come_through_a_pipe(model: str) -> None:
    """As <(command) in a shell: it is read once."""
    reading, writing = os.pipe()
    os.write(writing, b'{"const": 7}')
    os.close(writing)
    command = [sys.executable, "-m", "gristmill", "generate", "-m", model, "-p", "abc", "--json"]
    done = subprocess.run([*command, "--json-schema", f"/dev/fd/{reading}"], capture_output=True, pass_fds=[reading])
    os.close(reading)
    assert json.loads(done.stdout)["text"] == "7"


def test_generate_quantizes_at_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wider model, as small matrices keep their floats: its probabilities move a little, with each type otherwise."""
    monkeypatch.setattr(small_model, "DIM", 256)
    wide = str(small_model.write(tmp_path))
    args = ["generate", "-m", wide, "-p", "abc", "-n", "1", "--temp", "0", "--logprobs", "0", "--json"]
    names = ("none", "int8", "q8_0", "q4_0", "mxfp4")
    runs = [run(*args), *(run(*args, env={"GRISTMILL_QUANTIZE": name}) for name in names)]
    first = [json.loads(done.stdout)["logprobs"][0]["logprob"] for done in runs]
    assert first[0] == first[1]
    assert len(set(first)) == 5
    assert max(first[:4]) - min(first[:4]) < 0.5
    assert "[none|int8|q8_0|q4_0|mxfp4]" in run("generate", "--help").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-m", "nowhere.gguf", "-p", "a"], "nowhere.gguf: no such file"),
        (["-p", "a", "--prompt-ids", "1"], "not both"),
        (["--prompt-ids", "1,x"], "must be numbers"),
        (["-p", "a", "--temp", "-1"], "--temp must be"),
        (["-p", "a", "--ctx", "100000"], "the context must be between 2 and the model's 128"),
        (["-p", "a" * 200], "leaves no room to answer"),
        (["-p", "a", "--logprobs", "2"], "--logprobs needs --json"),
        (["-p", "a", "--speculate", "16"], "16 is not in the range 0<=x<=15"),
        (["-p", "a", "--draft", "nowhere.gguf"], "nowhere.gguf: no such file"),
        (["-p", "a", "--logit-bias", "x+1"], "--logit-bias must be a token id and a number"),
        (["-p", "a", "--logit-bias", "3+1.2.3"], "--logit-bias must be a token id and a number"),
        (["-p", "a", "--regex", "a", "--choice", "b"], "--regex and --choice cannot be given together"),
        (["-p", "a", "--regex", "(a"], "--regex: "),
        (["-p", "a", "--json-schema", "none.json"], "--json-schema: none.json: No such file"),
        (["-p", "a", "--json-schema", "{"], "--json-schema: "),
        (["-p", "a", "--json-schema", '{"type": "stop"}'], "--json-schema: Invalid type: stop"),
        (["-p", "a", "--min-tokens", "7", "-n", "3"], "--min-tokens (7) must not be over --max-tokens (3)"),
        (["-p", "a", "--min-tokens", "7", "--regex", "a"], "--min-tokens cannot be kept together with --json-schema, "),
        (["-p", "a", "-n", "0"], "'--max-tokens': 0 is neither at least 1 nor -1"),
        (["-p", "a", "--logit-bias", "259+1"], "--logit-bias: token id 259 is outside"),
        (["--prompt-ids", "1", "--chat-template", "t.jinja"], "--chat-template need text, not --prompt-ids"),
        (["-p", "a", "--grammar", "none.lark"], "--grammar: none.lark: No such file"),
        (["-p", "a", "--repeat-penalty", "0"], "--repetition-penalty must be at least 0.01"),
        (["-p", "a", "--quantize", "int7"], "'int7', which is no type"),
    ],
)
def test_a_mistake_gets_one_clear_line(model: str, args: list[str], message: str) -> None:
    done = run("generate", *args, env={"GRISTMILL_MODEL": model})
    assert done.returncode in (1, 2)
    assert not done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_earlier_versions_of_click_do() -> None:
    """Their types of options have no parameters."""
    code = "import click; click.ParamType.__class_getitem__ = None; import gristmill.cli.bench, gristmill.cli.trace"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_variable_holds_one_value_a_line() -> None:
    @click.command()
    @options.option("--stop", multiple=True)
    def show(stop: tuple[str, ...]) -> None:
        click.echo(json.dumps(stop))

    for value, expected in (
        ("little girl", ["little girl"]),
        ("a b\r\n\n \n the end \n", ["a b", " the end "]),
        ("\n", []),
    ):
        assert json.loads(CliRunner().invoke(show, env={"GRISTMILL_STOP": value}).stdout) == expected
    assert json.loads(CliRunner().invoke(show, ["--stop", "a\nb", "--stop", " "]).stdout) == ["a\nb", " "]
    assert "--kv-type is GRISTMILL_KV_TYPE" in CliRunner().invoke(main, ["--help"]).stdout


@pytest.mark.parametrize("n_threads", ["0", "-1", "1025"])
@pytest.mark.parametrize(
    "args",
    [
        *("generate -p a", "convert -o x.gguf", "perplexity", "trace -p a", "chat"),
        *("train x --tokenizer t -o run", "train-tokenizer x -o vocabulary"),
    ],
)
def test_a_number_of_threads_that_cannot_be(args: str, n_threads: str) -> None:
    done = CliRunner().invoke(main, [*args.split(), "--threads", n_threads], input="")
    assert done.exit_code == 2
    assert f"'--threads': {n_threads} is not in the range 1<=x<=1024" in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        *(
            "serve --uds no/where --drain-timeout nan",
            "serve --uds no/where --gpu-memory-fraction nan",
            "generate -p a --gpu-memory-fraction nan",
        ),
        "chat --gpu-memory-fraction nan",
    ],
)
def test_what_is_no_number_is_in_no_range(args: str) -> None:
    done = CliRunner().invoke(main, args.split(), input="")
    assert done.exit_code == 2
    assert f"'{args.split()[-2]}': 'nan' is no finite number" in done.stderr


def test_a_file_that_is_no_text_is_named(model: str, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    for option in ("--grammar", "--json-schema"):
        done = CliRunner().invoke(main, ["generate", "-m", model, "-p", "a", option, str(tmp_path / "bytes")])
        assert done.exit_code == 1
        assert done.stderr == f"Error: {option}: {tmp_path / 'bytes'}: is not UTF-8 text\n"
    done = CliRunner().invoke(main, ["serve", "-m", model, "--api-key-file", str(tmp_path / "bytes")])
    assert (done.exit_code, done.stderr) == (1, f"Error: {tmp_path / 'bytes'}: is not UTF-8 text\n")


@pytest.mark.parametrize(
    "args", ["generate -p a --grammar", "generate -p a --json-schema", "serve -m nowhere.gguf --port 0 --api-key-file"]
)
def test_of_a_text_without_end_little_is_read(args: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    written = 0

    def write() -> None:
        nonlocal written
        with suppress(BrokenPipeError), open("pipe", "wb", buffering=0) as pipe:
            while written < 16 << 20:
                written += pipe.write(b"start: /a/\n" * 1000)

    writer = threading.Thread(target=write)
    writer.start()
    done = CliRunner().invoke(main, [*args.split(), "pipe"], input="")
    writer.join(60)
    assert done.exit_code == 1
    assert "pipe: has more than 1048576 characters" in done.stderr
    assert written < 4 << 20


def test_too_little_memory_is_said_in_a_line(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("gristmill.cli.generate.load_as", load)
    done = CliRunner().invoke(main, ["generate", "-m", model, "-p", "a"])
    assert (done.exit_code, done.stderr) == (1, "Error: Unable to allocate 9 GiB\n")


def test_a_system_s_error_names_its_file_first() -> None:
    assert one_line(FileNotFoundError(2, "No such file or directory", "a\x1bb")) == "a\\x1bb: No such file or directory"
    assert one_line(OSError("said well")) == "said well"
    assert one_line(MemoryError()) == "MemoryError"


def test_what_an_error_quotes_cannot_steer_the_terminal() -> None:
    assert one_line(ValueError("the server says: a\x1b[2Jb\nc")) == "the server says: a\\x1b[2Jb\nc"


def test_inspect_finds_its_model_as_all_commands_do(model: str) -> None:
    asked = json.loads(run("inspect", model, "--json").stdout)
    assert json.loads(run("inspect", "-m", model, "--json").stdout) == asked
    assert json.loads(run("inspect", "--json", env={"GRISTMILL_MODEL": model}).stdout) == asked
    assert json.loads(run("inspect", model, "--json", env={"GRISTMILL_MODEL": "nowhere"}).stdout) == asked
    both = run("inspect", model, "-m", model)
    assert both.returncode == 2
    assert "--model and MODEL both name a model" in both.stderr


def test_inspect_says_where_it_cuts_a_value() -> None:
    assert _safe("a" * 200) == "a" * 200
    assert _safe("[" * 201) == "[" * 200 + "…"
    assert _safe("a\x1b[2J\nb") == "a\\x1b[2J\\nb"
    assert _plain(np.arange(8)) == list(range(8))
    assert _plain(np.arange(9)) == {"length": 9, "first": list(range(8))}


def test_inspect_shows_texts_as_they_are(tmp_path: Path) -> None:
    """Whatever they would mean to the library that draws the table."""
    texts = {"a": r"\[/b] [/i]", "b": r"\[bold]x", "c": ":smile: [red]", "d": "end\\"}
    write_gguf(tmp_path / "[red].gguf", {"general.architecture": "llama", **texts}, ())
    done = CliRunner().invoke(main, ["inspect", str(tmp_path / "[red].gguf")])
    shown = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert shown[0][0] == str(tmp_path / "[red].gguf")
    assert {key: value.strip() for key, value in shown[3:]} == texts


def test_inspect_cuts_no_name(tmp_path: Path) -> None:
    """Each stands on one line of a pipe."""
    keys = {"general.architecture": "llama", f"general.{'very_' * 20}long": 1}
    write_gguf(tmp_path / "model.gguf", keys, ())
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "model.gguf")]).stdout
    assert set(keys) < set(shown.split())


def test_inspect_says_numbers_as_text_that_json_lacks(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    odd = {"general.architecture": "llama", "a": nan, "b": -inf, "c": [1.5, inf]}
    write_gguf(tmp_path / "model.gguf", odd, ())
    done = CliRunner().invoke(main, ["inspect", str(tmp_path / "model.gguf"), "--json"])
    told = json.loads(done.stdout, parse_constant=pytest.fail)["metadata"]
    assert (told["a"], told["b"], told["c"]) == ("nan", "-inf", [1.5, "inf"])


def test_inspect_rounds_for_people() -> None:
    assert [_bytes(n) for n in (1023, 1024, 5 << 20, 3 << 30)] == ["1023 B", "1.0 KiB", "5.0 MiB", "3.00 GiB"]
    assert [_count(n) for n in (999, 1000, 2_500_000, 7 * 10**9)] == ["999", "1.00 K", "2.50 M", "7.00 B"]


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
    short = run("inspect", model, "--no-tensors").stdout
    assert "layers.1" not in short
    assert "together" in short


def test_special_tokens_of_a_prompt(model: str) -> None:
    """Not parsed unless it is said so, which is for text alone."""
    asked = ("generate", "-m", model, "-n", "1", "--json", "-p", "a</s>b")
    plain, parsed = (json.loads(run(*asked, *more).stdout)["prompt_ids"] for more in ((), ("--parse-special",)))
    assert len(parsed) < len(plain)
    assert parsed.count(2) == 1
    for others in (("--chat", "-p", "a"), ("--prompt-ids", "1,2")):
        done = run("generate", "-m", model, "--parse-special", *others)
        assert done.returncode == 2
        assert "--parse-special is for a prompt's text" in done.stderr


def test_inspect_says_why_a_model_cannot_be_run(tmp_path: Path) -> None:
    """And shows what the file holds all the same: an architecture that is not there, a tensor too many, one missing."""
    path = small_model.write(tmp_path)
    assert json.loads(run("inspect", str(path), "--json").stdout)["problem"] is None
    source = open_checkpoint(path)
    convert(source, tmp_path / "model.gguf", n_threads=1)
    keys, whole = raw_values(tmp_path / "model.gguf"), open_checkpoint(tmp_path / "model.gguf")
    weights = [whole.get(name) for name in whole.names()]
    tensors = [NewTensor(w.name, w.qtype, w.shape, partial(iter, [w.data])) for w in weights]
    odd = tensors[-1]._replace(name="blk.0.odd.weight")
    for changed, kept, problem in (
        ({"general.architecture": "gemma9"}, tensors, "'general.architecture': is 'gemma9'"),
        ({}, [*tensors, odd], "holds 1 tensors that llama does not have, among them 'blk.0.odd.weight'"),
        ({}, tensors[:-1], "is missing"),
    ):
        write_gguf(tmp_path / "odd.gguf", {**keys, **changed}, kept)
        report = json.loads(run("inspect", str(tmp_path / "odd.gguf"), "--json").stdout)
        assert problem in report["problem"]
        assert len(report["tensors"]) == len(kept)
        assert "memory" not in report
        text = run("inspect", str(tmp_path / "odd.gguf")).stdout
        assert f"cannot be run: {report['problem']}" in text
        assert kept[0].name in text


def test_inspect_knows_that_windows_need_no_whole_context(tmp_path: Path) -> None:
    """Each sequence keeps its window of 19 positions, in 3 blocks at most, beside what a step of 512 tokens adds."""
    path = save("gpt-oss", tmp_path).path
    memory = json.loads(run("inspect", str(path), "--json", "--ctx", "4096", "--slots", "2").stdout)["memory"]
    block = CpuOps(1).kv_block_bytes(2, 32, "f16")
    assert memory["kv_bytes"] == block * 2 * (2 * 256 + 2 * 3 + 32)  # two layers of each kind


@pytest.mark.parametrize("name", ["int8", "q8_0", "q4_0", "mxfp4"])
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


def test_an_empty_variable_is_as_if_unset(model: str) -> None:
    empty = {"GRISTMILL_REPLAY": "", "GRISTMILL_ISA": "", "GRISTMILL_THREADS": ""}
    assert run("generate", "-m", model, "-p", "a", "-n", "1", env=empty).returncode == 0


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
    written = json.dumps(ids["ids"][1:])  # a list as JSON has it
    assert json.loads(run("tokenize", "-m", model, "--decode", "--json", stdin=written).stdout) == {"text": "héllo"}
    for word in ("five", "1_0", "+5", "\N{ARABIC-INDIC DIGIT THREE}"):
        refused = run("tokenize", "-m", model, "--decode", stdin=f"5 {word}")
        assert refused.returncode == 2
        assert f"ids must be numbers: '{word}' is none" in refused.stderr


def test_ids_without_a_text_are_told(model: str) -> None:
    def decode(ids: str) -> Result:
        return CliRunner().invoke(main, ["tokenize", "-m", model, "--decode"], input=ids)

    told = decode(f"{10**30} 400000 400000")
    assert (told.exit_code, told.stdout) == (0, "")
    assert told.stderr.startswith(f"no text for 3 of the ids, such as {10**30}: not in 0 .. ")
    assert decode("-1").exit_code == 1


@pytest.mark.parametrize("flag", ["--no-special", "--special", "--parse-special"])
def test_what_is_for_text_is_not_for_ids(model: str, flag: str) -> None:
    refused = CliRunner().invoke(main, ["tokenize", "-m", model, "--decode", flag], input="5")
    assert refused.exit_code == 2
    assert flag in refused.stderr
    assert "for text, not for --decode: leave" in refused.stderr


def test_tokenize_reads_special_tokens_where_it_is_told_to() -> None:
    def ids(*args: str) -> list[int]:
        done = CliRunner().invoke(main, ["tokenize", "--no-special", "--json", *args], input="</s>")
        found: list[int] = json.loads(done.stdout)["ids"]
        return found

    assert ids("--parse-special") == [2]
    assert 2 not in ids()


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
