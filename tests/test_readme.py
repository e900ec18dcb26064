"""What the README shows runs as it stands there, on a small model: Python, the first steps, the table's commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import small_model
from chromium import chromium
from hub.fake_hub import FakeHub
from served import TEMPLATE, wait_until

from gristmill.convert import convert
from gristmill.formats.open import open_checkpoint
from gristmill.serve.sockets import free_port

README = (Path(__file__).parents[1] / "README.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
SHELL = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    for line in block.replace("\\\n", " ").splitlines()
]
TABLE = [row.replace(r"\|", "|") for row in re.findall(r"^\| `([^`]+)` \|", README, re.MULTILINE)]
TABLE = [command for command in TABLE if "gristmill " in command]
HERE = "127.0.0.1:8000"
STORY = "The miller walks to the mill. The wheel turns in the stream and grinds the grain of the village. "


class Place:
    """A folder with what the README's commands name, a hub, and a server that its first steps have started."""

    def __init__(self, folder: Path, hub: FakeHub) -> None:
        port = free_port()
        self.folder = folder
        self.hub = hub
        self.here = f"127.0.0.1:{port}"
        brief = {"STEPS": 2, "PRESET": "260K", "VOCAB_SIZE": 300, "NUM_PROMPTS": 3, "INPUT_LEN": 8, "OUTPUT_LEN": 4}
        brief |= {"BATCH": 2, "EVAL_BATCHES": 1, "SAMPLE_TOKENS": 0}
        brief |= {"MAX_TOKENS": 50}  # a model of random weights may never end its answer, and fill its context
        brief |= {"BUFFER_MB": 256, "ROUNDS": 1, "REPETITIONS": 1, "THREADS": 1, "CHAT_TEMPLATE": folder / "chat.jinja"}
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "GRISTMILL_"))}
        self.env |= {f"GRISTMILL_{name}": str(value) for name, value in brief.items()}
        self.env |= {
            "HF_HOME": str(folder / "home"),
            "HF_ENDPOINT": hub.url,
            "NO_PROXY": "*",
            "GRISTMILL_PORT": str(port),
        }
        self.env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(self, command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A line of the README, at this place's address. It has to succeed."""
        line = ["bash", "-o", "pipefail", "-c", command.replace(HERE, self.here)]
        done = subprocess.run(
            line, cwd=self.folder, env=self.env, input=stdin, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done

    @contextmanager
    def serving(self, command: str) -> Iterator[None]:
        """While a line of the README that serves does so."""
        line = ["bash", "-c", f"exec {command}"]
        with subprocess.Popen(line, cwd=self.folder, env=self.env, stderr=subprocess.DEVNULL) as server:
            try:
                wait_until(lambda: server.poll() is not None or self.answers(), 120)
                assert server.poll() is None
                yield
            finally:
                server.send_signal(signal.SIGTERM)
                assert server.wait(120) == 0

    def answers(self) -> bool:
        try:
            return httpx.get(f"http://{self.here}/health").status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, hub = tmp_path_factory.mktemp("readme"), FakeHub()
    source = open_checkpoint(small_model.write(folder, 8192))
    convert(source, folder / "model.gguf", n_threads=1)
    convert(source, folder / "folder", n_threads=1)
    model = (folder / "model.gguf").read_bytes()
    hub.repos |= {"Qwen/Qwen3-0.6B-GGUF": {"Qwen3-0.6B-Q8_0.gguf": model}, "org/name": {"name-Q8_0.gguf": model}}
    (folder / "chat.jinja").write_text(TEMPLATE)
    (folder / "person.json").write_text(
        '{"type": "object", "properties": {"age": {"enum": [1, 2]}}, "required": ["age"]}'
    )
    (folder / "text.txt").write_text(STORY * 25)
    (folder / "stories.txt").write_text("\n<|endoftext|>\n".join(STORY * i for i in range(5, 60)))
    yield Place(folder, hub)
    hub.close()


@pytest.fixture(scope="module")
def served(place: Place) -> Iterator[Place]:
    pull, serve = SHELL[:2]
    assert pull.startswith("gristmill pull ")
    place.run(pull)
    with place.serving(serve):
        yield place


def test_there_is_something_to_run() -> None:
    assert len(PYTHON) == 2
    assert len(SHELL) == 4
    assert len(TABLE) >= 15


@pytest.mark.parametrize("command", SHELL[2:])
def test_first_steps(served: Place, command: str) -> None:
    done = served.run(command, stdin="What is a gristmill?\n")
    assert done.stdout
    if command.startswith("curl"):
        assert '"object":"chat.completion"' in done.stdout


@pytest.mark.parametrize("example", PYTHON)
def test_python(served: Place, example: str) -> None:
    script = example.replace(HERE, served.here)
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=served.folder, env=served.env, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout


def test_the_page(served: Place) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    assert f"http://{HERE}/ is a page to chat" in README
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"http://{served.here}/")
        page.fill("#input", "What is a gristmill?")
        page.press("#input", "Enter")
        sync_api.expect(page.locator(".answer .stats")).to_contain_text(re.compile(r"\d+ tokens"), timeout=120_000)


@pytest.mark.parametrize("command", TABLE)
def test_commands(place: Place, command: str, request: pytest.FixtureRequest) -> None:
    if command.startswith("gristmill serve"):
        with Place(place.folder, place.hub).serving(command):
            return
    if HERE in command:
        request.getfixturevalue("served")
    if "tok/tokenizer.model" in command:
        assert "`train-tokenizer stories.txt -o tok`" in README
        place.run("gristmill train-tokenizer stories.txt -o tok")
    done = place.run(command, stdin="What is a gristmill?\n")
    if command.startswith("gristmill train"):
        assert (place.folder / "tiny" / "last").is_dir()
    else:
        assert done.stdout
