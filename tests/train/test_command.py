"""`gristmill train` as a person or a script calls it, and two processes that train as one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import small_run
from click.testing import CliRunner

from gristmill.cli.main import main
from gristmill.cli.train import _shape
from gristmill.train.presets import PRESETS, Shape, usual_d_ff
from gristmill.train.settings import Settings

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="training needs torch")
SMALL = ("--d-model", "32", "--n-layers", "2", "--n-heads", "4", "--n-kv-heads", "2", "--ctx", "32", "--threads", "1")
RUN = ("--batch", "4", "--warmup", "2", "--eval-batches", "2", "--val-fraction", "0.1", "--sample-tokens", "4")


def command(folder: Path, *args: str) -> list[str]:
    small_run.write_text(folder)
    given = (str(folder / "text.txt"), "--tokenizer", str(small_run.write_tokenizer(folder)), "-o", str(folder / "run"))
    return ["train", *given, *SMALL, *RUN, *args]


def gristmill(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gristmill", *args], capture_output=True, text=True, timeout=300)


def losses(folder: Path) -> list[float]:
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row] + [row["val_loss"] for row in rows if "val_loss" in row]


@needs_torch
def test_ctrl_c_saves_what_resume_goes_on_from(tmp_path: Path) -> None:
    args = command(tmp_path, "--steps", "100000", "--eval-every", "100000")
    process = subprocess.Popen([sys.executable, "-m", "gristmill", *args], stderr=subprocess.PIPE, text=True)
    log = tmp_path / "run" / "log.jsonl"
    while not (log.exists() and log.stat().st_size):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0
    assert f"go on: gristmill train -o {tmp_path / 'run'} --resume" in said
    step = json.loads((tmp_path / "run" / "last" / "state.json").read_text())["state"]["step"]
    resumed = gristmill("train", "-o", str(tmp_path / "run"), "--resume", "--steps", str(step + 3), "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["step"] == step + 3
    generated = gristmill("generate", "-m", str(tmp_path / "run" / "best"), "-p", "the", "-n", "4", "--json")
    assert json.loads(generated.stdout)["output_ids"]
    again = ("train", "-o", str(tmp_path / "run"), "--resume", "--threads", "1")
    environment = {"GRISTMILL_CTX": "64", "GRISTMILL_TOKENIZER": "nowhere"}  # of other commands, say
    assert CliRunner().invoke(main, again, env=environment).exit_code == 0
    changed = gristmill("train", "-o", str(tmp_path / "run"), "--resume", "--d-model", "64")
    assert changed.returncode == 2
    assert "--d-model cannot change" in changed.stderr
    for option in (("--separator", "x"), ("--val-fraction", "0.5")):
        refused = CliRunner().invoke(main, [*again, *option])
        assert f"{option[0]} is for FILES" in refused.stderr


@needs_torch
def test_ctrl_c_before_the_first_step_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing yet to go on from."""
    monkeypatch.setattr("gristmill.train.run.prepare", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    done = CliRunner().invoke(main, command(tmp_path, "--steps", "1"))
    assert (done.exit_code, done.stderr) == (130, "\nAborted!\n")
    assert not (tmp_path / "run").exists()


@needs_torch
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """The same losses, to rounding: a mean of two halves' gradients is added up in another order."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    steps = ("--steps", "6", "--eval-every", "3", "--lr", "3e-3")
    alone = gristmill(*command(tmp_path / "one", *steps))
    assert alone.returncode == 0, alone.stderr
    args = command(tmp_path / "two", *steps, "--micro-batch", "1")
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--log-dir", str(tmp_path / "logs"))
    together = subprocess.run(
        [sys.executable, "-m", *torchrun, "--redirects", "3", "-m", "gristmill", *args],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert together.returncode == 0, together.stderr
    said = [path.read_text() for path in sorted((tmp_path / "logs").rglob("stderr.log"))]
    assert len(said) == 2
    assert "2 processes" in said[0]
    assert not said[1]
    one, two = losses(tmp_path / "one" / "run"), losses(tmp_path / "two" / "run")
    assert len(one) == 8
    assert two == pytest.approx(one, abs=1e-4)


@needs_torch
@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("-o", "x"), "needs --tokenizer"),
        (("-o", "x", "--tokenizer", "nowhere.bin", "y.txt"), "y.txt: no such file or folder"),
        (("-o", "x", "--tokenizer", "t"), "needs FILES to learn from, or --dataset"),
        (("-o", "nowhere", "--resume"), "nowhere: holds no checkpoint to resume from"),
        (("-o", "x", "--tokenizer", "t", __file__, "--steps", "0"), "--steps must be at least 1"),
        (("-o", "x", "--tokenizer", "t", __file__, "--ctx", "0"), "--ctx must be at least 1"),
    ],
)
def test_what_is_refused_says_why(args: tuple[str, ...], error: str) -> None:
    done = gristmill("train", *args)
    assert done.returncode in (1, 2)
    assert error in done.stderr
    assert "Traceback" not in done.stderr


@needs_torch
@pytest.mark.parametrize("name", ["d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff", "vocab_size"])
def test_a_dimension_of_nothing_is_refused(tmp_path: Path, name: str) -> None:
    option = f"--{name.replace('_', '-')}"
    done = CliRunner().invoke(main, command(tmp_path, option, "0"))
    assert done.exit_code == 1
    assert done.stderr == f"Error: {option} must be at least 1, not 0\n"


def test_a_shape_is_the_preset_s_where_nothing_is_said() -> None:
    preset = PRESETS["260K"]
    nothing: dict[str, Any] = dict.fromkeys(("d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff", "vocab_size"))
    nothing |= {"context": None, "tied": True}

    def shape(**given: Any) -> Shape:
        return _shape(preset, {**nothing, **given}, 777)

    assert shape() == replace(preset, vocab_size=777)
    assert shape(tied=False, context=99, vocab_size=800) == replace(preset, vocab_size=800, context=99, tied_head=False)
    assert shape(n_heads=4) == replace(preset, vocab_size=777, n_heads=4, n_kv_heads=4)
    assert shape(n_heads=4, n_kv_heads=2).n_kv_heads == 2
    assert (shape(d_model=64).d_ff, shape(d_model=128).d_ff, shape(d_model=128, d_ff=9).d_ff) == (172, 352, 9)


def test_presets_have_the_sizes_that_they_are_named_after() -> None:
    million = {name: preset.n_parameters / 1e6 for name, preset in PRESETS.items()}
    assert million["260K"] == pytest.approx(0.26, rel=0.01)
    assert million["1M"] == pytest.approx(1.05, rel=0.05)
    assert million["15M"] == pytest.approx(15.2, rel=0.01)
    assert million["42M"] == pytest.approx(41.7, rel=0.02)
    assert million["110M"] == pytest.approx(109.5, rel=0.01)
    assert [usual_d_ff(PRESETS[name].d_model) for name in ("15M", "42M", "110M")] == [768, 1376, 2048]


def test_shapes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="make it a multiple of 14"):
        Shape(64, 5, 7, 7, 172, 512, 512)
    with pytest.raises(ValueError, match="20 heads of an even width: make it a multiple of 40"):
        Shape(60, 5, 20, 4, 172, 512, 512)
    with pytest.raises(ValueError, match="choose a divisor of 8"):
        Shape(64, 5, 8, 3, 172, 512, 512)


@pytest.mark.parametrize(
    ("name", "value", "most"), [("beta1", 1.5, "1"), ("beta2", -0.1, "1"), ("lr", float("nan"), "1e+06")]
)
def test_settings_that_cannot_be(name: str, value: float, most: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"--{name} must be at least 0 and at most {most}, not {value}")):
        Settings(**{name: value})


def test_the_learning_rate_rises_and_falls() -> None:
    s = Settings(steps=100, warmup=10, lr=1.0, min_lr=0.1)
    rates = [s.lr_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11)
    assert max(rates) == rates[10] == 1.0
    assert rates[55] == pytest.approx(0.55)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0.1 < rates[-1] < 0.101
