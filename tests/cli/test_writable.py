"""What cannot be written is said before long work begins, and what was written when it is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
import small_model
from click.testing import CliRunner, Result

from gristmill.bench.serving.load import Run
from gristmill.cli import bench_serve
from gristmill.cli.main import main
from gristmill.cli.writable import check_file, check_folder
from gristmill.formats.write_file import WriteError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_model.write(tmp_path_factory.mktemp("model")))


def run(*args: object) -> Result:
    return CliRunner().invoke(main, list(map(str, args)), input="")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("perplexity --save-base nowhere/x", "--save-base nowhere/x: there is no folder nowhere; make it"),
        ("trace -p a -o nowhere/x.png", "--output nowhere/x.png: there is no folder nowhere; make it"),
        ("bench serve --output-json nowhere/r.json", "--output-json nowhere/r.json: there is no folder nowhere"),
        ("bench serve --plot nowhere/x.png", "--plot nowhere/x.png: there is no folder nowhere; make it"),
        ("train x --tokenizer t -o file", "--out file: file is a file; name a folder"),
        ("train x --tokenizer t -o file/run", "--out file/run: file is a file; name a folder"),
        ("train-tokenizer x -o file", "--out file: file is a file; name a folder"),
        ("serve --uds nowhere/s", "--uds nowhere/s: there is no folder nowhere; make it"),
        ("serve --uds file", "--uds file: is there already and no socket; name another place"),
        (f"serve --uds {'s' * 120}", "has 120 bytes, a socket's path "),
    ],
)
def test_it_is_said_before_anything_is_done(
    args: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a model that is not there is looked for, even."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRISTMILL_MODEL", "no-model")
    Path("file").touch()
    done = run(*args.split())
    assert done.exit_code == 2
    assert message in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_places_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    for path in (file, tmp_path / "new"):
        check_file("-o", path)
        file.touch()
    for path in (tmp_path, tmp_path / "a" / "b"):
        check_folder("-o", path)
    with pytest.raises(click.UsageError, match="is a folder; name a file in it"):
        check_file("-o", tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    check_file("-o", Path(os.devnull))
    for check, path in ((check_file, file), (check_file, tmp_path / "new"), (check_folder, tmp_path / "a" / "b")):
        with pytest.raises(click.UsageError, match=f"{tmp_path} may not be written to"):
            check("-o", path)


def test_a_measurement_is_shown_even_if_it_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WriteError, match=f"{tmp_path}: cannot be written: Is a directory"):
        bench_serve._tell({"completed": 7}, Run(), (50.0,), tmp_path, as_json=True)
    assert '"completed": 7' in capsys.readouterr().out


def test_convert_says_what_it_wrote(model: str, tmp_path: Path) -> None:
    """An ending for people: a name that ends in a stroke is a folder's."""
    folder, file = tmp_path / "a.gguf", tmp_path / "b.gguf"
    written = run("convert", "-m", model, "-o", f"{folder}/", "--type", "f16")
    assert written.exit_code == 0, written.output
    assert f"{folder}: a safetensors folder of " in written.stdout
    assert (folder / "config.json").is_file()
    assert f"{file}: a gguf file of " in run("quantize", "-m", model, "-o", file, "--type", "Q8_0").stdout
    assert f"{tmp_path / 'c.bin'}: a llama2c file of " in run("convert", "-m", model, "-o", tmp_path / "c.bin").stdout
    refused = run("convert", "-m", model, "-o", f"{tmp_path}/d/", "--format", "gguf")
    assert refused.exit_code == 2
    assert "names a folder, and gguf is one file" in refused.stderr


def test_a_second_signal_ends_at_once() -> None:
    script = """if True:
        import contextlib, os, signal
        from gristmill.cli.main import _end_in_order
        _end_in_order()
        with contextlib.suppress(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    """
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == -signal.SIGTERM


def test_a_command_that_is_told_to_end_leaves_nothing_half_written(tmp_path: Path) -> None:
    model, out = small_model.write_model(tmp_path / "large.bin", vocab=500_000), tmp_path / "out" / "x.gguf"
    out.parent.mkdir()
    command = [sys.executable, "-m", "gristmill", "convert", "-m", str(model), "-o", str(out), "--type", "q8_0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as converting:
        while not any(out.parent.iterdir()):
            assert converting.poll() is None
            time.sleep(0.001)
        converting.terminate()
        converting.communicate(timeout=60)
    assert converting.returncode == 143
    assert not list(out.parent.iterdir())
