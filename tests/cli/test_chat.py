"""`gristmill chat` from a pipe: what it answers, its commands, its files, and a server that stands in for one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import small_model
from click.testing import CliRunner, Result
from parity.data import shared_data

from gristmill import LLM, SamplingParams
from gristmill.cli import chat_backend
from gristmill.cli.chat_screen import PlainScreen, printable, unquote
from gristmill.cli.main import main

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
    assert done.stdout == "".join(printable(text) + "\n" * (not text.endswith("\n")) for text in texts)
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
    assert done.stdout.startswith(printable(first))
    assert done.stdout.rstrip("\n").endswith(printable(second.text).rstrip("\n"))
    assert done.stderr.count("no chat template") == 1
    for command in ("/system be brief", "/think off"):
        refused = greedy(model, lines=command)
        assert refused.exit_code == 1
        assert "this model has no chat template, so" in refused.stderr


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
    assert "top_k is not set (the model's default: 40)" in done.stdout
    assert "Error: top_k: '3.5' is not a whole number" in done.stderr
    assert "Error: 'n' is no setting; there are temperature, top_k, top_p" in done.stderr
    assert "Error: top_p must be over 0.0 and at most 1.0, not 2.0" in done.stderr
    assert done.exit_code == 1


def test_settings_reach_the_model(model: Path, template: str) -> None:
    """The likeliest token's text stops the answer; without it, it does not."""
    with LLM(model, chat_template=template, threads=1) as llm:
        text = llm.chat([say("user", "Hello")], GREEDY)[0].outputs[0].text
    at = next(i for i in range(3, len(text)) if text[i].isascii() and text[i].isalnum() and text.index(text[i]) == i)
    done = greedy(model, "--chat-template", template, lines=f"/set stop {text[at]}\nHello\n")
    assert done.stdout.rstrip("\n") == printable(text[:at]).rstrip("\n")


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
    answer = printable(saved["messages"][1]["content"])
    assert first.stdout == answer + "\n" * (not answer.endswith("\n")) + again.stdout


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
    lines = "Hello\n/tokens\n/think off\n/regenerate\n/tokens\n/think low\n/think maybe\n"
    done = greedy(model, "--chat-template", path, lines=lines)
    with LLM(model, chat_template=path, threads=1) as llm:
        prompts = [
            llm.encode_chat([say("user", "Hello")], chat_template_kwargs=kwargs)
            for kwargs in ({}, {"enable_thinking": False})
        ]
        outputs = [llm.generate([ids], GREEDY)[0].outputs[0].token_ids for ids in prompts]
    shown = [line for line in done.stdout.splitlines() if line.startswith(("prompt, ", "answer, "))]
    ids = [[int(word.split(":")[0]) for word in line.split(": ", 1)[1].split() if word[0].isdigit()] for line in shown]
    assert [found[:5] for found in ids[1::2]] == [found[:5] for found in outputs]
    assert [len(found) for found in prompts] == [int(line.split()[1]) for line in shown[::2]]
    assert "does not know reasoning_effort (think low); give on or off" in done.stderr
    assert "/think takes on, off, low, medium, high or default, not 'maybe'" in done.stderr


def test_thoughts_are_kept_apart(model: Path, tmp_path: Path) -> None:
    """A prompt that ends in an open thought: what comes is reasoning, and an answer without content stays empty."""
    (tmp_path / "t.jinja").write_text(TEMPLATE + "<|im_start|><think>\n")
    done = greedy(model, "--chat-template", str(tmp_path / "t.jinja"), lines=f"Hello\n/save {tmp_path / 'c.json'}\n")
    answer = json.loads((tmp_path / "c.json").read_text())["messages"][1]
    assert not done.stdout.strip()
    assert answer["content"] == ""
    assert len(answer["reasoning_content"]) > 3
    assert printable(answer["reasoning_content"]) in done.stderr


def test_bad_input_is_one_clear_line(model: Path) -> None:
    done = chat("-m", str(model), "-n", "2", lines=b"ok\n\xff\xfe\n")
    assert "line 2 of the input is not UTF-8" in done.stderr
    assert done.exit_code == 1
    for args, message in (
        (("-m", str(model), "--api-key", "k"), "--api-key is for --base-url"),
        (("--base-url", "http://x/v1", "--ctx", "9"), "--ctx is for a model in this process"),
        (("--base-url", "http://x/v1", "--api-key", "one\ntwo"), "is no key: give one, without white space"),
        (("--base-url", "host:1"), "must begin with http:// or https://"),
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
    assert done.stdout == "He\\x1b[31mllo [b]you[/b]\n" * 2
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
        (401, [{"error": {"message": "no such key"}}], "HTTP 401: no such key"),
        (422, [{"detail": "odd"}], "HTTP 422: {'detail': 'odd'}"),
        (302, [{}], "HTTP 302"),
        (200, [piece(content="Hel")], "the connection ended before the answer did"),
        (200, [piece(content="Hel"), {"error": {"message": "engine is gone"}}], "Error: engine is gone"),
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


@pytest.mark.parametrize("ending", ["", "/", "/v1/"])
def test_a_server_s_address_may_leave_out_the_version(server: Server, ending: str) -> None:
    server.events = GOOD
    done = chat("--base-url", server.url.removesuffix("/v1") + ending, lines="Hi\n")
    assert done.exit_code == 0, done.stderr
    assert server.asked[0][0] == "/v1/chat/completions"


def test_a_server_s_other_path_is_kept(server: Server) -> None:
    server.events = GOOD
    chat("--base-url", server.url.removesuffix("/v1") + "/openai", lines="Hi\n")
    assert server.asked[0][0] == "/openai/chat/completions"


def test_which_model_of_a_server(server: Server) -> None:
    server.models = [{"id": "a"}, {"id": "b"}]
    assert "has a, b: choose one with --model NAME" in chat("--base-url", server.url, lines="").stderr
    server.close()
    assert "is the server running?" in chat("--base-url", server.url, lines="").stderr
