"""`gristmill chat` from a pipe: what it answers, its commands, its files, and a server that stands in for one."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
import small_model
from click.testing import CliRunner, Result
from parity.data import shared_data

from gristmill import LLM, SamplingParams
from gristmill.cli import chat_backend, chat_commands, chat_remote, chat_screen, chat_session
from gristmill.cli.chat_local import _as_one_text
from gristmill.cli.chat_repl import Repl
from gristmill.cli.chat_screen import PlainScreen, is_open, unquote
from gristmill.cli.chat_session import Conversation, load, read_setting, save
from gristmill.cli.main import main
from gristmill.dialogue.types import ContentDelta
from gristmill.printable import printable

CONTEXT = 4096
GREEDY = SamplingParams(temperature=0, top_k=40, top_p=0.95, min_p=0.05, max_tokens=12, ignore_eos=True)
TEMPLATE = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("model"), CONTEXT)


@pytest.fixture(scope="module")
def template(model: Path) -> str:
    path = model.parent / "t.jinja"
    path.write_text(TEMPLATE)
    return str(path)


def chat(*args: str, lines: str | bytes) -> Result:
    """The chat in this process; it ends with the lines."""
    return CliRunner().invoke(main, ["chat", *args], input=lines)


def greedy(model: Path, *args: str, lines: str) -> Result:
    return chat("-m", str(model), "--temp", "0", "-n", "12", "--ignore-eos", "--threads", "1", *args, lines=lines)


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_answers_are_those_of_the_conversation_and_follow_it(model: Path, template: str) -> None:
    done = greedy(model, "--chat-template", template, "--system", "be brief", lines="How do you do?\nAnd now?\n")
    messages = [say("system", "be brief")]
    texts = []
    with LLM(model, chat_template=template, threads=1) as llm:
        for question in ("How do you do?", "And now?"):
            messages.append(say("user", question))
            texts.append(llm.chat(messages, GREEDY)[0].outputs[0].text)
            messages.append(say("assistant", texts[-1]))
        n_prompt = len(llm.encode_chat(messages[:-1]))
    assert done.exit_code == 0
    assert done.stdout == "".join(text + "\n" * (not text.endswith("\n")) for text in texts)
    first, _, second, _ = done.stderr.splitlines()
    assert "cached" not in first
    assert f"prompt {n_prompt}, " in second
    assert 16 <= int(second.split(f"prompt {n_prompt}, ")[1].split()[0]) < n_prompt  # from the first turn
    assert f"{CONTEXT - n_prompt - 12:,} of {CONTEXT:,} tokens left" in second


def test_a_model_without_a_template_goes_on_with_the_text(model: Path) -> None:
    done = greedy(model, "--stop", "\x00\x00", lines='Once\n"""\nthere\nwas"""\n')
    with LLM(model, threads=1) as llm:
        first = llm.generate("Once", GREEDY)[0].outputs[0].text
        space = " " * (not first[-1].isspace())
        second = llm.generate(f"Once{'' if first[0].isspace() else ' '}{first}{space}there\nwas", GREEDY)[0].outputs[0]
    assert done.stdout.startswith(first)
    assert done.stdout.rstrip("\n").endswith(second.text.rstrip("\n"))
    assert done.stderr.count("no chat template") == 1
    for command in ("/system be brief", "/think off"):
        refused = greedy(model, lines=command)
        assert refused.exit_code == 1
        assert "this model has no chat template, so" in refused.stderr


def test_texts_of_a_conversation_as_one() -> None:
    def joined(*texts: str) -> str:
        return _as_one_text(Conversation([say("user", text) for text in texts]))

    assert joined("a", "b") == "a b"
    assert joined("a\n", "b", " c", "", "d") == "a\nb c d"
    assert joined("", "a") == "a"


def test_whoever_asks_for_a_text_or_for_a_template_gets_it(model: Path, template: str) -> None:
    given = ("--chat-template", template, "-n", "-1", "--ctx", "64")
    plain = greedy(model, *given, "--plain", lines="Once\n/system be brief\n")
    assert "What you write is a text that the model continues." in plain.stderr
    assert "no place for a system message" in plain.stderr
    assert plain.stdout == greedy(model, *given[2:], lines="Once\n").stdout
    assert plain.stdout != greedy(model, *given, "--no-plain", lines="Once\n").stdout
    refused = greedy(model, "--no-plain", lines="Once\n")
    assert refused.exit_code == 1
    assert "no chat template" in refused.stderr
    assert not refused.stdout


def test_a_template_that_the_vocabulary_only_suggests(tmp_path: Path) -> None:
    """Of llama2.c's files, which mostly tell stories, it is used where it is asked for."""
    tokenizer = small_model.write_bytes(tmp_path / "tokenizer.json", ["<|im_start|>", "<|im_end|>"])
    model = small_model.write_model(tmp_path / "alone.bin", CONTEXT)
    given = ("--tokenizer", str(tokenizer))
    told = greedy(model, *given, lines="Once\n/tokens\n")
    assert (
        "What you write is a text that the model continues. For answers in the form of ChatML: --no-plain"
        in told.stderr
    )
    assert "prompt, 4 tokens" in told.stdout
    asked = greedy(model, *given, "--no-plain", lines="Once\n/tokens\n")
    assert "--no-plain" not in asked.stderr
    assert "256:'<|im_start|>'" in asked.stdout


def test_a_prompt_that_fills_the_context(model: Path) -> None:
    with LLM(model, threads=1) as llm:
        assert len(llm.encode("a" * 60)) == 62
    for n, full in ((61, False), (62, True), (63, True)):
        done = greedy(model, "--ctx", "64", lines="a" * n + "\n")
        assert (f"{n + 2} tokens with this message, and the context holds 64" in done.stderr) is full


def test_the_speed_of_an_answer_leaves_out_the_packing_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which comes with the second token of a model that is loaded lazily."""
    times = iter([0.0, 1.0, 6.0, 6.5])
    monkeypatch.setattr(chat_backend.time, "perf_counter", lambda: next(times))
    tally = chat_backend.Tally(started=next(times))
    assert tally.tokens_per_s is None
    for packing_s in (2.0, 6.5, 6.5):
        tally.count(packing_s)
    assert tally.packing_s == 4.5
    assert tally.tokens_per_s == 2 / (5.5 - 4.5)


def test_a_lazy_model_s_chat_says_what_packing_took(
    model: Path, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = iter(range(100))
    monkeypatch.setattr(LLM, "packing_s", property(lambda self: float(next(packed))))
    done = greedy(model, "--chat-template", template, lines="How do you do?\n")
    assert "11.00 s more to pack the weights" in done.stderr


def test_set_and_show(model: Path, template: str) -> None:
    lines = (
        '/set temperature 0.7\n/set stop ["a", "b"]\n/set top_k 3.5\n/set n 2\n/set top_p 2\n/set top_k default\n/show'
    )
    done = chat("-m", str(model), "--chat-template", template, "--top-k", "7", "--temp", "0", lines=lines)
    assert "temperature = 0.7\n" in done.stdout
    assert "stop = 'a', 'b'\n" in done.stdout
    assert "top_k is not set (gristmill's default: 40)" in done.stdout
    assert "Error: top_k: '3.5' is not a whole number" in done.stderr
    assert "Error: 'n' is no setting; there are temperature, top_k, top_p" in done.stderr
    assert "Error: top_p must be over 0.0 and at most 1.0, not 2.0" in done.stderr
    assert done.exit_code == 1


def test_what_was_set_can_be_set_back(model: Path, template: str) -> None:
    lines = (
        '/set max_tokens 5\n/set max_tokens -1\n/set max_tokens\n/system """be\nbrief"""\n/system\n/system -\n/system\n'
    )
    done = greedy(model, "--chat-template", template, lines=lines)
    assert done.stdout == "max_tokens is not set\nbe\nbrief\nno system message\n"
    assert done.stderr == "max_tokens = 5\nmax_tokens is not set\nthe system message is set\nno system message\n"


def test_settings_reach_the_model(model: Path, template: str) -> None:
    """The likeliest token's text stops the answer; without it, it does not."""
    with LLM(model, chat_template=template, threads=1) as llm:
        text = llm.chat([say("user", "Hello")], GREEDY)[0].outputs[0].text
    at = next(i for i in range(3, len(text)) if text[i].isascii() and text[i].isalnum() and text.index(text[i]) == i)
    done = greedy(model, "--chat-template", template, lines=f"/set stop {text[at]}\nHello\n")
    assert done.stdout.rstrip("\n") == text[:at].rstrip("\n")


def test_regenerate_and_clear(model: Path, template: str) -> None:
    once = greedy(model, "--chat-template", template, lines="Hello\n")
    lines = "Hello\n/regenerate\nMore\n/clear\nHello\n/nonsense\n/bye\nnever\n"
    done = greedy(model, "--chat-template", template, lines=lines)
    assert done.stdout.startswith(once.stdout * 2)
    assert done.stdout.endswith(once.stdout)
    assert "Error: /nonsense is no command" in done.stderr
    empty = greedy(model, "--chat-template", template, lines="/regenerate\n")
    assert "there is no message to answer yet" in empty.stderr


def test_save_and_load(model: Path, template: str, tmp_path: Path) -> None:
    file, other = tmp_path / "talk.json", tmp_path / "other.txt"
    other.write_text("precious")
    args = (model, "--chat-template", template)
    lines = f"/system be brief\nHello\n/save {file}\n/save {file}\n/save {other}\nMore\n"
    first = greedy(*args, lines=lines)
    assert "is no conversation; give another name" in first.stderr
    assert other.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.txt", "talk.json"]
    saved = json.loads(file.read_text())
    assert saved["system"] == "be brief"
    assert [message["role"] for message in saved["messages"]] == ["user", "assistant"]
    again = chat("-m", str(model), "--chat-template", template, "--threads", "1", lines=f"/load {file}\nMore\n")
    answer = saved["messages"][1]["content"]
    assert first.stdout == answer + "\n" * (not answer.endswith("\n")) + again.stdout


class Scripted(PlainScreen):
    """Somebody who types these lines."""

    interactive = True

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self._lines = iter(lines)
        self.seen: list[tuple[str, str]] = []

    def read(self, kept: str, hint: str) -> str | None:
        """Notes what stands in the line and beside it."""
        self.seen.append((kept, hint))
        return next(self._lines, None)


class Answering:
    """A backend that has these answers, some of which fail."""

    name, context, notice = "m", 100, None

    def __init__(self, *answers: str | BaseException) -> None:
        self._answers = iter(answers)
        self.tally: chat_backend.Tally | None = None

    def answer(self, conversation: Conversation) -> Generator[chat_backend.ChatDelta, None, None]:
        self.tally = chat_backend.Tally(n_prompt=5)
        answer = next(self._answers)
        if isinstance(answer, BaseException):
            raise answer
        self.tally.count()
        yield ContentDelta(answer)

    def defaults(self, conversation: Conversation) -> dict[str, tuple[Any, str]]:
        return {}

    def check(self, conversation: Conversation) -> None: ...

    def token_text(self, token_id: int) -> str:
        return str(token_id)

    def idle(self) -> nullcontext[None]:
        return nullcontext()

    def close(self) -> None: ...


def test_an_answer_that_fails_takes_nothing_away() -> None:
    """A message is back in the line; another answer that does not come leaves the one before."""
    screen = Scripted("a", "b", "/regenerate", "/clear")
    repl = Repl(Answering(OSError("gone"), "one", ValueError("no")), screen, Conversation())
    repl._step()
    assert not repl.conversation.messages
    for _ in range(2):
        repl._step()
        assert repl.conversation.messages == [say("user", "b"), say("assistant", "one")]
    repl.run()
    assert not repl.conversation.messages
    left = "94 of 100 tokens left"
    assert screen.seen == [("", ""), ("a", ""), ("", left), ("", left), ("", "")]


def test_an_answer_that_is_stopped_before_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    """Only a new message is back in the line: what /regenerate would have answered stays where it is."""
    screen = Scripted("a", "b", "/regenerate")
    repl = Repl(Answering(KeyboardInterrupt(), "one", KeyboardInterrupt()), screen, Conversation())
    repl.run()
    assert repl.conversation.messages == [say("user", "b"), say("assistant", "one")]
    assert [kept for kept, _ in screen.seen] == ["", "a", "", ""]
    assert capsys.readouterr().err.count("stopped before there was an answer\n") == 2


def test_lines_without_anything_are_no_messages(model: Path) -> None:
    assert greedy(model, lines="\n \n").stdout == ""
    assert greedy(model, lines='""""""\n').stdout != ""


def test_a_file_that_the_model_has_no_place_for_changes_nothing(model: Path, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text('{"system": "S", "messages": []}')
    done = greedy(model, lines=f"/load {tmp_path / 'talk.json'}\n/system\n")
    assert "no place for a system message" in done.stderr
    assert done.stdout == "no system message\n"


def test_a_conversation_that_is_not_there_is_told_as_by_every_command(model: Path, tmp_path: Path) -> None:
    done = greedy(model, lines=f"/load {tmp_path / 'absent.json'}\n/save {tmp_path}\n")
    assert f"Error: {tmp_path / 'absent.json'}: No such file or directory\n" in done.stderr
    assert f"Error: {tmp_path}: Is a directory\n" in done.stderr


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe that nobody writes to, say."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "gristmill", "chat", "--threads", "1"]
    lines = f"/load {pipe}\n/save {pipe}\n/load /dev/tty\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60)
    assert done.stderr.count(f"Error: {pipe}: is no regular file; give the name of one\n") == 2
    assert "Error: /dev/tty: is no regular file" in done.stderr
    assert pipe.is_fifo()


def test_a_command_can_be_stopped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As on a network's disk that does not answer; nothing has changed then."""

    def slow(path: Path) -> Conversation:
        signal.raise_signal(signal.SIGINT)
        return Conversation([say("user", "never")])

    monkeypatch.setattr(chat_commands, "load", slow)
    repl = Repl(Answering("one"), Scripted("a", "/load talk.json"), Conversation())
    repl.run()
    assert repl.conversation.messages == [say("user", "a"), say("assistant", "one")]
    assert capsys.readouterr().err.endswith("stopped\n")


def test_what_a_loaded_conversation_does_not_say_stays(model: Path, template: str, tmp_path: Path) -> None:
    bare, whole = tmp_path / "bare.json", tmp_path / "whole.json"
    bare.write_text('{"messages": [{"role": "user", "content": "a"}]}')
    whole.write_text('{"messages": [], "system": "S", "settings": {"top_k": 7}}')
    args = ("-m", str(model), "--chat-template", template, "--system", "be brief", "--temp", "0.5")
    show = "/system\n/set temperature\n/set top_k\n"
    done = chat(*args, lines=f"/load {bare}\n{show}/load {whole}\n{show}")
    assert done.stdout == (
        "be brief\ntemperature = 0.5\ntop_k is not set (gristmill's default: 40)\n"
        "S\ntemperature is not set (gristmill's default: 0.8)\ntop_k = 7\n"
    )
    assert f"1 messages from {bare}; it says nothing of system and settings: what was set stays\n" in done.stderr
    assert done.stderr.endswith(f"0 messages from {whole}\n")


def test_a_block_of_lines_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ends where it does at a terminal, where the whole text is looked at each time."""
    parts = ["", " ", "a", '"', '""', '"""', ' """ ', '"""a', 'b"""', "/system ", '/system """', '""" """']
    random = Random(1)
    texts = ["\n".join(random.choices(parts, k=random.randint(1, 5))) for _ in range(2000)]
    lines = ['"""', *["some line or other"] * 1000, '"""']
    looked_at: list[str] = []

    def noted(text: str) -> bool:
        looked_at.append(text)
        return is_open(text)

    def read(text: str) -> str | None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return PlainScreen().read("", "")

    monkeypatch.setattr(chat_screen, "is_open", noted)
    for text in texts:
        there = text.split("\n")
        ends = (n for n in range(1, len(there)) if not is_open("\n".join(there[:n])))
        assert read(text + "\n") == "\n".join(there[: next(ends, len(there))])
    looked_at.clear()
    assert read("\n".join(lines)) == "\n".join(lines)
    assert sum(map(len, looked_at)) < 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "messages: there must be a list"),
        ('{"messages": [{"role": "boss", "content": ""}]}', "messages[0].role: is 'boss'"),
        ('{"messages": [{"role": "user"}]}', "messages[0].content: is None, not text"),
        ('{"messages": [], "settings": {"top_k": "many"}}', "settings: top_k: 'many' is not a whole number"),
        ('{"messages": [], "settings": {"what": 1}}', "settings: 'what' is no setting"),
        ('{"messages": [], "settings": {"min_p": 7}}', "settings: min_p must be"),
        ('{"messages": [], "think": "much"}', "think: is 'much'"),
        ('{"messages": [], "system": 1}', "system: is 1, not text"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_broken_file_changes_nothing(model: Path, template: str, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    done = greedy(model, "--chat-template", template, "--system", "S", lines=f"/load {tmp_path / 'bad.json'}\n/show\n")
    assert message in done.stderr
    assert "system  S\n" in done.stdout


def test_a_conversation_is_read_as_it_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "talk.json"
    answer = {**say("assistant", "é"), "reasoning_content": "hm"}
    talk = Conversation([say("user", "a"), answer], "S", {"temperature": 0.5, "stop": ("[", "b"), "seed": 7}, "off")
    for _ in range(2):  # the second takes the first one's place
        save(path, talk, "m")
        assert load(path) == talk
    monkeypatch.setattr(chat_session, "MAX_FILE_BYTES", path.stat().st_size - 1)
    with pytest.raises(ValueError, match=r"talk\.json: has more than"):
        load(path)


def test_a_conversation_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        save(tmp_path / "talk.json", Conversation([say("user", "\ud800")]), "m")
    assert not list(tmp_path.iterdir())


def test_conversations_of_openai_s_form(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    messages = [say("system", "S"), say("user", "a")]
    path.write_text(json.dumps({"messages": messages}))
    assert load(path) == Conversation([say("user", "a")], "S")
    for content in ({"messages": messages[::-1]}, {"system": "mine", "messages": messages}):
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match="messages: one system message, and that first"):
            load(path)


def test_switches() -> None:
    found = [read_setting("ignore_eos", text) for text in ("on", "TRUE", "Off", "false")]
    assert found == [True, True, False, False]
    with pytest.raises(ValueError, match="ignore_eos: 'yes' is not on or off"):
        read_setting("ignore_eos", "yes")


def test_what_a_terminal_s_encoding_lacks_is_escaped(model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gristmill", "chat", "-m", str(model)],
        input="/set stop ü\n/set stop\n".encode(),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stdout) == (0, b"stop = '\\xfc'\n")
    assert done.stderr.endswith(done.stdout)


def test_a_full_context_is_said(tmp_path: Path, template: str) -> None:
    small = small_model.write(tmp_path, 64)
    done = greedy(small, "--chat-template", template, lines=f"{'a' * 70}\nshort\n/set max_tokens default\n/clear\nb\n")
    assert done.exit_code == 1
    assert "tokens with this message, and the context holds 64" in done.stderr
    assert "/clear begins a new conversation, /save" in done.stderr
    assert done.stderr.count("the answer was cut") == 1
    assert done.stdout.count("\n") >= 2  # after it, there are answers again


def test_tokens_and_thinking(model: Path) -> None:
    path = str(shared_data("templates/Qwen-Qwen3-0.6B.jinja"))
    lines = "Hello\n/tokens\n/think off\n/regenerate\n/tokens\n/think low\n/regenerate\n/tokens\n/think maybe\n"
    done = greedy(model, "--chat-template", path, lines=lines)
    with LLM(model, chat_template=path, threads=1) as llm:
        prompts = [
            llm.encode_chat([say("user", "Hello")], chat_template_kwargs=kwargs)
            for kwargs in ({}, {"enable_thinking": False}, {"enable_thinking": True})
        ]
        outputs = [llm.generate([ids], GREEDY)[0].outputs[0].token_ids for ids in prompts]
    shown = [line for line in done.stdout.splitlines() if line.startswith(("prompt, ", "answer, "))]
    ids = [[int(word.split(":")[0]) for word in line.split(": ", 1)[1].split() if word[0].isdigit()] for line in shown]
    assert [found[:5] for found in ids[1::2]] == [found[:5] for found in outputs]
    assert [len(found) for found in prompts] == [int(line.split()[1]) for line in shown[::2]]
    assert "/think takes on, off, low, medium, high or default, not 'maybe'" in done.stderr


def test_thoughts_are_kept_apart(model: Path, tmp_path: Path) -> None:
    """A prompt that ends in an open thought: what comes is reasoning, and an answer without content stays empty."""
    (tmp_path / "t.jinja").write_text(TEMPLATE + "<|im_start|><think>\n")
    done = greedy(model, "--chat-template", str(tmp_path / "t.jinja"), lines=f"Hello\n/save {tmp_path / 'c.json'}\n")
    answer = json.loads((tmp_path / "c.json").read_text())["messages"][1]
    assert not done.stdout.strip()
    assert answer["content"] == ""
    assert len(answer["reasoning_content"]) > 3
    assert answer["reasoning_content"] in done.stderr


def test_a_home_that_nobody_knows_is_a_name_as_any_other(model: Path) -> None:
    done = greedy(model, lines="Hello\n/save ~nobody-of-this-name/talk.json\n/tokens\n")
    assert "~nobody-of-this-name is not there; make it first" in done.stderr
    assert done.stdout.count("answer, 12 tokens") == 1  # the chat goes on
    assert done.exit_code == 1


def test_bad_input_is_one_clear_line(model: Path) -> None:
    done = chat("-m", str(model), "-n", "2", lines=b"ok\n\xff\xfe\n")
    assert "line 2 of the input is not UTF-8" in done.stderr
    assert done.exit_code == 1
    for args, message in (
        (("-m", str(model), "--api-key", "k"), "--api-key is for --base-url"),
        (("--base-url", "http://x/v1", "--ctx", "9"), "--ctx is for a model in this process"),
        (("--base-url", "http://x/v1", "--api-key", "one\ntwo"), "is no key: give one, without white space"),
        (("--base-url", "http://x/v1", "--api-key", ""), "is no key: give one, without white space"),
        (("--base-url", "host:1"), "must begin with http:// or https://"),
        (("--base-url", "http://["), "--base-url: 'http://[' is no address: "),
        (("--base-url", "http://127.0.0.1:9", "--api-key", "a€"), "an address or key holds '€', which no request can"),
        (("--base-url", "http://127.0.0.1:9/ü"), "an address or key holds 'ü', which no request can have there"),
        (("-m", str(model), "--temp", "-1"), "--temp must be"),
        (("-m", str(model), "-n", "0"), "0 is neither at least 1 nor -1"),
        (("-m", str(model), "--system", "S"), "no place for a system message"),
    ):
        done = chat(*args, lines="")
        assert done.exit_code in (1, 2)
        assert message in done.stderr


def test_what_is_not_used_is_not_imported(model: Path) -> None:
    code = (
        "import sys; from gristmill.cli.main import main; main({!r}, standalone_mode=False); print(sorted(sys.modules))"
    )
    here = subprocess.run(
        [sys.executable, "-c", code.format(["chat", "-m", str(model), "-n", "2"])],
        input="a\n",
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("http.client", "urllib.request", "httpx", "prompt_toolkit", "jinja2"):
        assert f"'{name}'" not in here.stdout


def test_what_a_model_says_cannot_steer_a_terminal() -> None:
    assert printable("a\x1b[2J\x9b1m\r\x00\x7f\u202eb\tc\n[red]é日👩‍🌾") == (
        "a\\x1b[2J\\x9b1m\\r\\x00\\x7f\\u202eb\tc\n[red]é日👩‍🌾"
    )
    assert unquote('"""\na\nb\n"""') == ("a\nb", True)
    assert not PlainScreen.interactive


class Stream(io.StringIO):
    """A pipe, or what says that it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: terminal  # type: ignore[method-assign]


@pytest.mark.parametrize(("terminal", "shown"), [(True, "\\x1b[2J \\u200fא"), (False, "\x1b[2J \u200fא")])
def test_what_could_steer_a_terminal_is_escaped_there_alone(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, shown: str
) -> None:
    out, err = Stream(terminal=terminal), Stream(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    screen = PlainScreen()
    screen.content("\x1b[2J \u200fא")
    screen.note("\x1b[2J \u200fא")
    assert (out.getvalue(), err.getvalue()) == (shown, f"{shown}\n")


class Server:
    """Answers with the events it was given, and keeps what it was asked."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.status = 200
        self.models: list[dict[str, Any]] = [{"id": "m1", "max_model_len": 100}]
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(200, json.dumps({"data": outer.models}).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append((self.path, dict(self.headers), json.loads(body)))
                if outer.status != 200:
                    self._reply(outer.status, json.dumps(outer.events[0]).encode())
                    return
                lines = [e if isinstance(e, bytes) else b"data: " + json.dumps(e).encode() for e in outer.events]
                self._reply(200, b"".join(line + b"\n\n" for line in lines))

            def _reply(self, status: int, data: bytes) -> None:
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def piece(finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 16}}
GOOD = [
    b": a comment",
    piece(role="assistant"),
    piece(reasoning_content="hm ", reasoning="hm "),
    piece(reasoning="so"),
    piece(content="He\x1b[31mllo "),
    piece(content="[b]you[/b]"),
    piece("stop"),
    {"choices": [], "usage": USAGE},
    b"data: [DONE]",
]


def test_a_server_is_asked_for_what_was_set_alone(server: Server) -> None:
    server.events = GOOD
    args = ("--base-url", server.url, "--api-key", "secret", "--temp", "0", "--stop", "X", "--system", "S")
    done = chat(*args, lines="Hi\n/think off\n/set min_p 0.1\nMore\n/tokens\n")
    assert done.stdout == "He\x1b[31mllo [b]you[/b]\n" * 2
    assert done.stderr.count("hm so") == 2
    assert "20 tokens" in done.stderr
    assert "prompt 30, 16 of them cached" in done.stderr
    assert "50 of 100 tokens left" in done.stderr
    assert "a server tells no token ids" in done.stderr
    (path, headers, first), (_, _, second) = server.asked
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", "Bearer secret")
    assert first == {
        "model": "m1",
        "messages": [say("system", "S"), say("user", "Hi")],
        "temperature": 0.0,
        "stop": ["X"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    said = "He\x1b[31mllo [b]you[/b]"
    assert second["messages"][1:] == [say("user", "Hi"), say("assistant", said), say("user", "More")]
    assert second["chat_template_kwargs"] == {"enable_thinking": False}
    assert second["min_p"] == 0.1


@pytest.mark.parametrize(
    ("status", "events", "message"),
    [
        (400, [{"error": {"message": "context of 100", "code": "context_length_exceeded"}}], "/clear begins a new"),
        (400, [{"error": {"message": "no room in the Context"}}], "/clear begins a new"),
        (401, [{"error": {"message": "no such key"}}], "HTTP 401: no such key"),
        (422, [{"detail": "odd"}], "HTTP 422: {'detail': 'odd'}"),
        (302, [{}], "HTTP 302"),
        (200, [piece(content="Hel")], "the connection ended before the answer did"),
        (200, [piece(content="Hel"), {"error": {"message": "engine is gone"}}], "Error: engine is gone"),
        (200, [piece(content="Hel"), b'error: {"message": "no slot"}'], "Error: no slot"),
        (200, [b"data: what?"], "which is no JSON object"),
        (200, [{"choices": 7}, {"choices": [7, {"delta": 7}]}], "the connection ended before"),
    ],
)
def test_what_goes_wrong_on_a_server_is_said(server: Server, status: int, events: list[Any], message: str) -> None:
    server.status, server.events = status, events
    done = chat("--base-url", server.url, "--model", "other", lines="Hi\nMore\n")
    assert message in done.stderr
    assert done.exit_code == 1
    assert done.exception is None or isinstance(done.exception, SystemExit)
    roles = [message["role"] for message in server.asked[1][2]["messages"]]
    assert roles == (["user", "assistant", "user"] if "Hel" in done.stdout else ["user"])  # what came is kept


def test_an_answer_that_has_no_room_is_told_what_to_set(server: Server) -> None:
    """/clear does not help where max_tokens alone takes the context."""
    server.status = 400
    server.events = [{"error": {"message": "no room", "code": "context_length_exceeded"}}]
    done = chat("--base-url", server.url, "-n", "98", lines="Hi\n/set max_tokens default\nHi\n")
    first, second = done.stderr.split("max_tokens is not set")
    assert "/set max_tokens default, or a smaller value" in first
    assert "The context is full" not in first
    assert "/set max_tokens" not in second
    assert "The context is full: /clear begins a new conversation" in second


def test_what_is_no_error_of_a_server(server: Server) -> None:
    """Its events may have no space after the colon, and name an error where there is none."""
    answer = json.dumps({**piece("stop", content="Hello"), "error": None})
    server.events = [f"data:{answer}".encode(), b"data:[DONE]"]
    done = chat("--base-url", server.url, lines="Hi\n")
    assert (done.exit_code, done.stdout) == (0, "Hello\n")


def test_a_thought_ends_its_line(server: Server) -> None:
    """On stderr, and nothing of it on stdout."""
    server.events = [piece(reasoning_content="hm"), piece("length"), b"data: [DONE]"]
    done = chat("--base-url", server.url, lines="Hi\n")
    assert done.stdout == ""
    assert done.stderr.startswith("hm\n1 tokens")


def test_what_a_server_recommends_is_shown_and_effort_is_its_own_field(server: Server) -> None:
    server.events = GOOD
    server.models[0]["default_sampling_params"] = {"top_k": 20, "stop": "x"}
    done = chat("--base-url", server.url, lines="/set top_k\n/set stop\n/think low\nHi\n")
    assert done.stdout.startswith("top_k is not set (the server's default: 20)\nstop is not set\n")
    body = server.asked[0][2]
    assert body["reasoning_effort"] == "low"
    assert not {"top_k", "chat_template_kwargs"} & set(body)


def test_a_server_s_model_that_is_named_has_no_known_context(server: Server) -> None:
    server.events = GOOD
    done = chat("--base-url", server.url, "--model", "m1", lines="Hi\n")
    assert "50 tokens of context used" in done.stderr


def test_a_server_s_lines_have_an_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.events = [piece(content="a" * 100)]
    monkeypatch.setattr(chat_remote, "_MAX_LINE_BYTES", 100)
    assert "a line of more than 100 bytes" in chat("--base-url", server.url, lines="Hi\n").stderr


@pytest.mark.parametrize("ending", ["", "/", "/v1/"])
def test_a_server_s_address_may_leave_out_the_version(server: Server, ending: str) -> None:
    server.events = GOOD
    done = chat("--base-url", server.url.removesuffix("/v1") + ending, lines="Hi\n")
    assert done.exit_code == 0, done.stderr
    assert server.asked[0][0] == "/v1/chat/completions"


def test_keys_of_a_server_are_nothing_to_a_model_here(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the environment may hold, a line each."""
    monkeypatch.setenv("GRISTMILL_API_KEY", "one\ntwo")
    assert chat("-m", str(model), lines="/bye\n").exit_code == 0
    refused = chat("--base-url", "http://127.0.0.1:9", lines="/bye\n")
    assert refused.exit_code == 2
    assert "is no key: give one, without white space" in refused.stderr


def test_a_server_s_other_path_is_kept(server: Server) -> None:
    server.events = GOOD
    chat("--base-url", server.url.removesuffix("/v1") + "/openai", lines="Hi\n")
    assert server.asked[0][0] == "/openai/chat/completions"


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
def test_a_connection_that_ends_within_what_a_server_says(status: str) -> None:
    """Both in the list of models and in an answer."""
    said = f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n{{".encode()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

        def answer() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection, connection.makefile("rb") as asked:
                    asked.readline()
                    asked.read(int(http.client.parse_headers(asked).get("Content-Length", 0)))
                    connection.sendall(said)

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        for args in ((), ("--model", "m")):
            done = chat("--base-url", url, *args, lines="Hi\n")
            assert f"{url}: the connection ended before the answer did" in done.stderr
            assert isinstance(done.exception, SystemExit)
        answering.join()


def test_which_model_of_a_server(server: Server) -> None:
    server.models = [{"id": "a"}, {"id": "b"}]
    assert "has a, b: choose one with --model NAME" in chat("--base-url", server.url, lines="").stderr
    server.close()
    assert "is the server running?" in chat("--base-url", server.url, lines="").stderr
