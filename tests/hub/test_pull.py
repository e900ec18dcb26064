"""`gristmill pull`, in a process of its own, from a hub on this machine; and what it makes possible."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
import small_model
from click.testing import CliRunner
from hub.fake_hub import FakeHub, blob_id

from gristmill.cli.main import main
from gristmill.convert import convert
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint

BIG = os.urandom(1 << 20) * 25  # the library writes 10 MiB at a time
NAME = "mill/tiny-GGUF"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A tiny model as a .gguf, as two of them, and as a safetensors folder, by path."""
    folder = tmp_path_factory.mktemp("files")
    source = open_checkpoint(small_model.write(folder))
    convert(source, folder / "tiny-F32.gguf", n_threads=1)
    convert(source, folder / "hf", n_threads=1)
    whole = open_checkpoint(folder / "tiny-F32.gguf")
    names = list(whole.names())
    for number, part in enumerate((names[:10], names[10:])):
        writer = gguf.GGUFWriter(folder / f"parts-{number + 1:05}-of-00002.gguf", "llama")
        for key, value in whole.metadata.items() if number == 0 else ():
            if key.startswith("llama."):
                writer.add_float32(key, value) if isinstance(value, float) else writer.add_uint32(key, value)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(names))
        for name in part:
            writer.add_tensor(name, dequantize(whole.get(name)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    paths = [*folder.glob("*.gguf"), *(folder / "hf").iterdir()]
    return {path.name: path.read_bytes() for path in paths}


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    hub = FakeHub()
    hub.repos[NAME] = {"README.md": b"# Tiny", "tiny-F32.gguf": files["tiny-F32.gguf"]}
    yield hub
    hub.close()


class Machine:
    """One with a store of its own. ask(ARGS) runs `gristmill ARGS`; here, where that needs no hub."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        self.env = {**kept, "HF_HOME": str(home), "HF_ENDPOINT": url, "NO_PROXY": "*", "COLUMNS": "200"}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "gristmill", *args]

    def ask(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        if args[0] != "pull" and not env:
            done = CliRunner().invoke(main, args, catch_exceptions=False)
            return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)
        command = self.command(*args)
        return subprocess.run(command, capture_output=True, text=True, env={**self.env, **env}, timeout=300)

    def told(self, *args: str, **env: str) -> str:
        """What a command that must succeed prints."""
        done = self.ask(*args, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *args: str, **env: str) -> str:
        """The one line of a command that must not."""
        done = self.ask(*args, **env)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: ")
        assert "Traceback" not in done.stderr
        return done.stderr

    def stored(self) -> list[str]:
        return [model["name"] for model in json.loads(self.told("list", "--json"))]


@pytest.fixture
def machine(tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    return Machine(tmp_path / "home", hub.url)


def test_pull_list_show_use_and_rm(machine: Machine, hub: FakeHub, files: dict[str, bytes]) -> None:
    assert machine.stored() == []
    said = machine.told("pull", NAME)
    path = Path(said.split(" at ")[1].strip())
    assert path.name == "tiny-F32.gguf"
    assert path.read_bytes() == files["tiny-F32.gguf"]
    assert not any("README" in asked.path for asked in hub.asked)

    assert machine.stored() == [f"{NAME}:F32"]
    assert machine.told("list").startswith(f"{NAME}:F32  ")
    shown = json.loads(machine.told("show", NAME, "--json"))
    assert shown["name"] == f"{NAME}:F32"
    assert shown["path"] == str(path)
    assert shown["revision"] == hub.revision(NAME)
    assert shown["bytes"] == len(files["tiny-F32.gguf"])
    assert (shown["architecture"], shown["context"]) == ("llama", small_model.CONTEXT)
    assert "architecture  llama" in machine.told("show", f"{NAME}:f32")

    hub.is_down = True  # and nobody asks it any more
    asked = len(hub.asked)
    for name in (NAME, f"{NAME}:F32", f"{NAME}:f32", f"{NAME}:tiny-F32.gguf", str(path)):
        report = machine.told("generate", "-m", name, "-p", "ab", "-n", "3", "--temp", "0", "--json")
        assert len(json.loads(report)["output_ids"]) == 3
    assert len(hub.asked) == asked

    assert machine.told("rm", NAME, f"{NAME}:F32").startswith(f"removed {NAME}:F32 (")
    assert machine.stored() == []
    assert not path.exists()
    assert not [p for p in (machine.home / "hub").rglob("*") if p.is_file() and "tiny" in str(p)]
    assert f"gristmill pull {NAME}" in machine.refused("rm", NAME)


def test_every_command_takes_a_name(machine: Machine, hub: FakeHub, tmp_path: Path) -> None:
    machine.told("pull", NAME)
    text = tmp_path / "text.txt"
    text.write_text("A mill grinds grain. " * 20)
    model = ("-m", NAME)
    machine.told("generate", *model, "-p", "ab", "-n", "2", "--draft", NAME)
    machine.told("inspect", NAME)
    machine.told("tokenize", *model, str(text))
    machine.told("perplexity", *model, "-f", str(text), "--ctx", "64")
    machine.told("bench", "model", *model, "-p", "4", "-n", "2", "-r", "1")
    machine.told("trace", *model, "-p", "ab")
    machine.told("convert", *model, "-o", str(tmp_path / "out.bin"))
    machine.told("quantize", *model, "-o", str(tmp_path / "out.gguf"), "--type", "q8_0")
    code = (
        f"from gristmill import LLM; llm = LLM({NAME!r}); print(llm.model_name, len(llm.generate('ab'))); llm.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=machine.env)
    assert done.stdout == f"{NAME} 1\n"


def test_a_name_that_was_not_pulled_says_what_to_do(machine: Machine, hub: FakeHub) -> None:
    for command in (("generate", "-p", "a"), ("serve",), ("tokenize",), ("perplexity",), ("convert", "-o", "x.gguf")):
        error = machine.refused(*command, "-m", "mill/none:Q8_0")
        assert "gristmill pull mill/none:Q8_0" in error
        assert "no such file or folder" in error
    assert hub.asked == []
    machine.told("pull", NAME)
    error = machine.refused("generate", "-p", "a", "-m", f"{NAME}:Q8_0")
    assert "no Q8_0 of this model; it has F32; download it: gristmill pull mill/tiny-GGUF:Q8_0" in error


def test_a_path_needs_nothing_of_the_hub(files: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(files["tiny-F32.gguf"])
    code = f"""import sys; from gristmill import LLM; LLM({str(path)!r}).close()
print([m for m in sys.modules if m.split('.')[0] in ('huggingface_hub', 'httpx', 'httpx2')])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_split_model_is_pulled_whole(machine: Machine, hub: FakeHub, files: dict[str, bytes]) -> None:
    parts = {f"Q8_0/{name}": data for name, data in files.items() if name.startswith("parts")}
    hub.repos[NAME] |= parts
    machine.told("pull", f"{NAME}:q8_0")
    assert machine.stored() == [f"{NAME}:Q8_0"]
    machine.told("generate", "-m", NAME, "--prompt-ids", "5,6", "-n", "1")
    [stored] = json.loads(machine.told("list", "--json"))
    Path(stored["files"][1]).unlink()  # a part that is gone: not a whole model any more
    assert machine.stored() == []


def test_a_safetensors_repository(machine: Machine, hub: FakeHub, files: dict[str, bytes]) -> None:
    folder = {name: data for name, data in files.items() if not name.endswith(".gguf")}
    hub.repos["mill/tiny"] = {**folder, "pytorch_model.bin": b"\x80\x02", "original/consolidated.00.pth": b"PK"}
    machine.told("pull", "mill/tiny")
    [stored] = json.loads(machine.told("list", "--json"))
    assert {Path(path).name for path in stored["files"]} == set(folder)
    assert not any(".bin" in asked.path or ".pth" in asked.path for asked in hub.asked)
    machine.told("generate", "-m", "mill/tiny", "-p", "ab", "-n", "2")
    hub.repos["mill/tiny"]["tiny-F32.gguf"] = files["tiny-F32.gguf"]
    assert "mill/tiny:QUANT of F32, safetensors" in machine.refused("pull", "mill/tiny")
    machine.told("pull", "mill/tiny:F32")
    assert machine.stored() == ["mill/tiny:F32", "mill/tiny:safetensors"]
    machine.told("rm", "mill/tiny:safetensors")
    assert machine.stored() == ["mill/tiny:F32"]
    machine.told("generate", "-m", "mill/tiny", "-p", "ab", "-n", "2")


def test_what_is_there_is_not_downloaded_again(machine: Machine, hub: FakeHub, files: dict[str, bytes]) -> None:
    machine.told("pull", NAME)
    n = len(hub.downloads())
    machine.told("pull", NAME)
    assert len(hub.downloads()) == n
    hub.repos[NAME]["README.md"] = b"# Another revision"
    machine.told("pull", NAME)
    assert len(hub.downloads()) == n  # the same bytes in another revision
    hub.repos[NAME]["other-Q8_0.gguf"] = files["tiny-F32.gguf"] + b"\0"
    machine.told("pull", f"{NAME}:Q8_0")
    assert machine.stored() == [f"{NAME}:Q8_0", f"{NAME}:F32"]  # the latter of an older revision
    machine.told("rm", f"{NAME}:F32")
    assert machine.stored() == [f"{NAME}:Q8_0"]
    blobs = [path.stat().st_size for path in (machine.home / "hub").glob("models--*/blobs/*")]
    assert blobs == [len(files["tiny-F32.gguf"]) + 1]


def test_without_links_a_file_is_there_once(machine: Machine, hub: FakeHub, files: dict[str, bytes]) -> None:
    """As on disks that have none."""
    path = Path(machine.told("pull", NAME, HF_HUB_DISABLE_SYMLINKS="1").split(" at ")[1].strip())
    assert path.read_bytes() == files["tiny-F32.gguf"]
    assert not path.is_symlink()
    assert list(path.parents[2].glob("blobs/*")) == []
    n = len(hub.downloads())
    machine.told("pull", NAME, HF_HUB_DISABLE_SYMLINKS="1")
    assert len(hub.downloads()) == n
    hub.repos[NAME]["other-Q8_0.gguf"] = b"other"
    machine.told("pull", f"{NAME}:Q8_0", HF_HUB_DISABLE_SYMLINKS="1")
    assert machine.told("rm", f"{NAME}:Q8_0") == f"removed {NAME}:Q8_0 (5 B)\n"
    assert machine.stored() == [f"{NAME}:F32"]
    machine.told("rm", NAME)
    assert not path.parents[2].exists()


def test_what_was_pulled_is_told_whatever_else_is_there(
    machine: Machine, hub: FakeHub, files: dict[str, bytes]
) -> None:
    for label in ("Q4_K_M", "F16", "Q8_0"):  # each the only one of its revision
        hub.repos[NAME] = {f"tiny-{label}.gguf": files["tiny-F32.gguf"] + label.encode()}
        assert machine.told("pull", NAME).startswith(f"{NAME}:{label}: ")
    assert machine.stored() == [f"{NAME}:Q8_0", f"{NAME}:F16", f"{NAME}:Q4_K_M"]


def test_a_connection_that_breaks_is_taken_up_again(machine: Machine, hub: FakeHub) -> None:
    hub.repos["mill/big"] = {"big-Q8_0.gguf": BIG}
    hub.cuts = [21 << 20]
    done = machine.ask("pull", "mill/big")
    assert Path(done.stdout.split(" at ")[1].strip()).read_bytes() == BIG
    assert done.stderr.count("Trying to resume") == 1
    ranges = [asked.range for asked in hub.downloads() if asked.path.startswith("/cdn")]
    assert ranges == [None, f"bytes={20 << 20}-"]


def test_a_terminal_shows_how_far_it_is(machine: Machine, hub: FakeHub) -> None:
    hub.repos["mill/big"] = {"big-Q8_0.gguf": BIG}
    ours, theirs = os.openpty()
    env = {**machine.env, "TERM": "xterm-256color"}
    with subprocess.Popen(
        machine.command("pull", "mill/big"), env=env, stdout=subprocess.PIPE, stderr=theirs
    ) as pulling:
        os.close(theirs)
        shown = b""
        while b"26.2/26.2 MB" not in shown:
            shown += os.read(ours, 4096)
        assert b"downloading" in shown
        assert pulling.wait(120) == 0
    os.close(ours)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_pull_that_was_ended_goes_on(machine: Machine, hub: FakeHub, end: int, ignores_ranges: bool) -> None:
    hub.repos["mill/big"] = {"big-Q8_0.gguf": BIG}
    hub.stall_at = 12 << 20
    pulling = subprocess.Popen(
        machine.command("pull", "mill/big"), env=machine.env, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    blobs = machine.home / "hub" / "models--mill--big" / "blobs"
    assert hub.stalled.wait(120)
    while sum(path.stat().st_size for path in blobs.glob("*")) < 10 << 20:
        assert pulling.poll() is None
    assert machine.stored() == []  # nothing of a model that is not whole
    pulling.send_signal(end)
    _, error = pulling.communicate(timeout=120)
    if end == signal.SIGINT:
        assert "gristmill pull mill/big goes on" in error
        assert pulling.returncode == 130
    hub.stall_at, hub.ignores_ranges = None, ignores_ranges
    hub.free.set()
    path = Path(machine.told("pull", "mill/big").split(" at ")[1].strip())
    assert path.read_bytes() == BIG
    assert hub.downloads()[-1].range == f"bytes={10 << 20}-"
    assert [blob.name for blob in blobs.iterdir() if "incomplete" in blob.name] == []


def test_other_bytes_than_promised_are_thrown_away(machine: Machine, hub: FakeHub) -> None:
    hub.spoiled = True
    error = machine.refused("pull", NAME)
    assert "SHA-256" in error
    assert "tiny-F32.gguf" in error
    assert machine.stored() == []
    hub.spoiled = False
    machine.told("pull", NAME)


def test_small_files_are_checked_too(machine: Machine, hub: FakeHub, files: dict[str, bytes]) -> None:
    """By git's hash of them. Here what had come of one is not its beginning."""
    folder = {name: data for name, data in files.items() if not name.endswith(".gguf")}
    hub.repos[NAME] = folder
    partial = beginning(machine, b"").with_name(f"{blob_id(folder['config.json'])}.incomplete")
    partial.write_bytes(bytes(len(folder["config.json"])))
    assert "config.json came with git's SHA-1 " in machine.refused("pull", NAME)
    path = Path(machine.told("pull", NAME).split(" at ")[1].strip())
    assert (path / "config.json").read_bytes() == folder["config.json"]


def test_errors_of_the_hub_are_one_line_that_helps(machine: Machine, hub: FakeHub) -> None:
    error = machine.refused("pull", "mill/nowhere")
    assert f"{hub.url} has no model mill/nowhere" in error
    assert "HF_TOKEN" in error
    assert "it has F32" in machine.refused("pull", f"{NAME}:Q8_0")
    hub.repos["mill/pickles"] = {"pytorch_model.bin": b"\x80\x02", "config.json": b"{}"}
    assert "neither .gguf nor .safetensors" in machine.refused("pull", "mill/pickles")
    assert "org/name:QUANT" in machine.refused("pull", "../../x")
    assert "org/name:QUANT" in machine.refused("pull", "http://169.254.169.254/latest")
    assert "HF_HUB_OFFLINE" in machine.refused("pull", NAME, HF_HUB_OFFLINE="1")
    assert "token in HF_TOKEN is not valid" in machine.refused("pull", NAME, HF_TOKEN="hf_bad")
    for token in ("hf_g\N{LATIN SMALL LETTER O WITH DIAERESIS}d", "hf_g\x1bd"):
        assert "HF_TOKEN holds a character that is in no token" in machine.refused("pull", NAME, HF_TOKEN=token)
    hub.forbids = b'{"error": "Its token has no access"}'
    assert machine.refused("pull", NAME).endswith(f"{hub.url} answered 403: Its token has no access\n")
    hub.forbids = b""
    assert "answered 403: it wants a token, in HF_TOKEN, that may read it" in machine.refused("pull", NAME)
    hub.forbids = None
    hub.is_down = True
    assert "answered 503" in machine.refused("pull", NAME)
    error = machine.refused("pull", NAME, HF_ENDPOINT="http://127.0.0.1:1")
    assert "cannot reach http://127.0.0.1:1" in error
    hub.is_down = False
    for page in (b"<html>Accept the terms of this network</html>", b"[]", b"{}"):
        hub.page = page
        assert f"{hub.url} answers, and not as a hub does" in machine.refused("pull", NAME)
    assert machine.stored() == []


def test_gated_models_want_a_token_which_only_the_hub_sees(machine: Machine, hub: FakeHub) -> None:
    hub.gated.add(NAME)
    error = machine.refused("pull", NAME)
    assert f"agree to its terms at {hub.url}/{NAME}" in error
    assert "HF_TOKEN" in error
    machine.told("pull", NAME, HF_TOKEN="hf_good")
    assert {asked.token for asked in hub.asked if asked.path.startswith("/cdn")} == {None}


def beginning(machine: Machine, content: bytes) -> Path:
    """Where a download of `content` that broke off has left what had come."""
    blobs = machine.home / "hub" / "models--mill--tiny-GGUF" / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    return blobs / f"{hashlib.sha256(content).hexdigest()}.incomplete"


def test_more_than_there_is_to_come_is_begun_anew(machine: Machine, files: dict[str, bytes]) -> None:
    content = files["tiny-F32.gguf"]
    beginning(machine, content).write_bytes(content + b"more")
    assert Path(machine.told("pull", NAME).split(" at ")[1].strip()).read_bytes() == content


def test_a_full_disk_is_told_before_anything_comes(machine: Machine, hub: FakeHub, files: dict[str, bytes]) -> None:
    """With the library's own view of a disk that is nearly full."""
    code = "import shutil, collections; d = collections.namedtuple('d', 'total used free')(1, 1, 1000)\n"
    code += "shutil.disk_usage = lambda _: d\nfrom gristmill.cli.main import main; main()"
    command = [sys.executable, "-c", code, "pull", NAME]
    done = subprocess.run(command, capture_output=True, text=True, env=machine.env)
    assert done.returncode == 1
    assert "are to come, and 1000 are free" in done.stderr
    assert not hub.downloads()
    beginning(machine, files["tiny-F32.gguf"]).write_bytes(files["tiny-F32.gguf"][:-1000])
    assert subprocess.run(command, capture_output=True, env=machine.env).returncode == 0
