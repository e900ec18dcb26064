"""Training learns, its checkpoints are models for every command, and what is resumed goes on bit for bit."""

# ruff: noqa: E402
from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

import small_run
from rich.console import Console

from gristmill import LLM
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.open import open_checkpoint
from gristmill.train.checkpoint import find_tokenizer, link
from gristmill.train.data import Windows, validation
from gristmill.train.group import Group
from gristmill.train.loop import Job, adamw, autocast_of, micro_batch_of, train
from gristmill.train.model import Model
from gristmill.train.report import RunReport, read_log
from gristmill.train.run import Texts, begin, resume
from gristmill.train.settings import Settings, State

ALONE = Group(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text, the tokenizer and, soon, shards."""
    folder = tmp_path_factory.mktemp("given")
    small_run.write_text(folder)
    small_run.write_tokenizer(folder)
    return folder


def new(given: Path, folder: Path, settings: Settings) -> Job:
    texts = Texts([given / "text.txt"], "<|endoftext|>", 0.1, 1)
    return begin(folder, lambda _: small_run.SHAPE, settings, texts, given / "bytes.bin", given / "shards", ALONE)


def run(job: Job, stop: Callable[[], bool] = lambda: False) -> State:
    report = RunReport(job.folder, Console(quiet=True), job.settings.steps, job.state.step, 1)
    with report.shown():
        return train(job, ALONE, report, stop)


@pytest.fixture(scope="module")
def done(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 12 steps."""
    folder = tmp_path_factory.mktemp("run") / "run"
    run(new(given, folder, small_run.SETTINGS))
    return folder


def step_of(checkpoint: Path) -> int:
    return int(json.loads((checkpoint / "state.json").read_text())["state"]["step"])


def rewrite_state(checkpoint: Path, **values: Any) -> None:
    """In a file of its own: `last` and `best` may share theirs."""
    path = checkpoint / "state.json"
    content = json.loads(path.read_text())
    content["state"].update(values)
    path.unlink()
    path.write_text(json.dumps(content))


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in read_log(folder) if "loss" in row]


def test_it_learns(given: Path, tmp_path: Path) -> None:
    run(new(given, tmp_path / "run", small_run.settings(steps=60, eval_every=60)))
    found = losses(tmp_path / "run")
    assert [step for step, _ in found] == list(range(1, 61))
    assert abs(found[0][1] - np.log(259)) < 0.2  # nothing is known of the text yet
    assert found[-1][1] < 3.1


@pytest.mark.parametrize("stop_after", [1, 5, 8])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(given: Path, done: Path, tmp_path: Path, stop_after: int) -> None:
    folder = tmp_path / "run"
    steps = iter(range(1, 100))
    state = run(new(given, folder, small_run.SETTINGS), lambda: next(steps) == stop_after)
    assert state.step == stop_after
    state = run(resume(folder, {}, None, None, ALONE))
    assert state.step == 12
    assert losses(folder) == losses(done)
    assert [row for row in read_log(folder) if "val_loss" in row] == [r for r in read_log(done) if "val_loss" in r]
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (folder / "last" / name).read_bytes() == (done / "last" / name).read_bytes()


def test_another_batch_goes_on_with_the_next_sequences(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, take = [], Windows.take

    def taking(self: Windows, first: int, end: int) -> Any:
        taken.append((first, end))
        return take(self, first, end)

    monkeypatch.setattr(Windows, "take", taking)
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    state = run(resume(folder, {"steps": 14, "batch": 8}, None, None, ALONE))
    assert taken == [(48, 56), (56, 64)]
    tokens = [row["tokens"] for row in read_log(folder) if "tokens" in row]
    assert tokens == [n * 32 for n in [*range(4, 49, 4), 56, 64]]
    assert state.tokens == tokens[-1]
    state = run(resume(folder, {"steps": 15, "ctx": 16}, None, None, ALONE))  # half as long
    assert taken[2:] == [(128, 136)]
    assert state.tokens == tokens[-1] + 8 * 16


def test_a_run_that_died_repeats_what_was_lost(given: Path, done: Path, tmp_path: Path) -> None:
    """Its log goes further than its checkpoint."""
    folder = tmp_path / "run"

    def die() -> bool:
        if len(losses(folder)) == 6:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run(new(given, folder, small_run.SETTINGS), die)
    assert run(resume(folder, {}, None, None, ALONE)).step == 12
    assert losses(folder) == losses(done)


def test_accumulated_gradients_are_those_of_the_batch(given: Path, done: Path, tmp_path: Path) -> None:
    run(new(given, tmp_path / "run", small_run.settings(micro_batch=1)))
    for (_, one), (_, four) in zip(losses(tmp_path / "run"), losses(done), strict=True):
        assert abs(one - four) < 1e-4


@pytest.mark.filterwarnings("ignore")  # torch's compiler uses what torch warns of
def test_a_compiled_model_learns_the_same(given: Path, done: Path, tmp_path: Path) -> None:
    run(new(given, tmp_path / "run", small_run.settings(compile=True)))
    for (_, compiled), (_, plain) in zip(losses(tmp_path / "run"), losses(done), strict=True):
        assert abs(compiled - plain) < 1e-5


def test_without_a_clip_gradients_are_as_long_as_they_are(given: Path, tmp_path: Path) -> None:
    found = []
    for clip in (0.0, 1e6):
        folder = tmp_path / str(clip)
        run(new(given, folder, small_run.settings(steps=3, clip=clip, sample_tokens=0)))
        found.append(losses(folder))
    assert found[0] == found[1]


def test_a_batch_that_cannot_be_shared_out() -> None:
    assert micro_batch_of(Settings(batch=6), 2) == 3
    assert micro_batch_of(Settings(batch=12, micro_batch=3), 2) == 3
    with pytest.raises(ValueError, match="--batch 5 cannot be shared by 2 processes"):
        micro_batch_of(Settings(batch=5), 2)
    with pytest.raises(ValueError, match="--micro-batch 4 does not divide the 6 sequences"):
        micro_batch_of(Settings(batch=12, micro_batch=4), 2)


def test_types_of_products() -> None:
    def in_bfloat16(dtype: str) -> bool:
        with autocast_of(dtype, ALONE.device)():
            return bool((torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16)

    assert [in_bfloat16(dtype) for dtype in ("auto", "float32", "bfloat16")] == [False, False, True]
    with pytest.raises(ValueError, match="--dtype must be auto, float32 or bfloat16, not 'float16'"):
        autocast_of("float16", ALONE.device)


def test_matrices_decay_and_vectors_do_not(done: Path) -> None:
    model = Model(open_checkpoint(done / "last"), ALONE.device)
    optimizer = adamw(model, Settings(weight_decay=0.3, beta1=0.8, beta2=0.9))
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert {decays[id(p)] for p in model.parameters() if p.dim() > 1} == {0.3}
    assert {decays[id(p)] for p in model.parameters() if p.dim() == 1} == {0.0}
    assert optimizer.defaults["betas"] == (0.8, 0.9)


def test_a_checkpoint_is_a_model_for_serving(done: Path) -> None:
    for name in ("last", "best"):
        model = Model(open_checkpoint(done / name), ALONE.device)
        with LLM(done / name, device="cpu", threads=1, kv_type="f32") as llm:
            ids = llm.encode("the mill stone")
            logits = llm.logits(ids)
            assert llm.generate("the mill")[0].outputs[0].token_ids
        ours = model.logits(torch.tensor([ids])).detach().numpy()
        assert np.abs(logits - ours).max() < 1e-4
        assert ids[0] == 1


def test_a_checkpoint_is_a_model_for_transformers(done: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(done / "last", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ours = Model(open_checkpoint(done / "last"), ALONE.device)
    tokens = torch.randint(259, (1, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours.logits(tokens), theirs(tokens).logits[0], rtol=0, atol=1e-5)


def test_checkpoints_are_read_by_safetensors(done: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    weights = numpy.load_file(done / "last" / "model.safetensors")
    assert weights["model.layers.1.self_attn.k_proj.weight"].shape == (16, 32)
    moments = numpy.load_file(done / "last" / "optimizer.safetensors")
    assert moments["layers.1.qkv.exp_avg"].shape == (64, 32)
    assert np.abs(moments["layers.1.qkv.exp_avg"]).max() > 0


def test_the_best_is_the_best(given: Path, tmp_path: Path) -> None:
    """A learning rate that ruins the model after a good start: best stays where the loss was lowest, patience ends."""
    folder = tmp_path / "run"
    s = small_run.settings(steps=400, eval_every=4, patience=3, warmup=300, lr=3.0, clip=0.0, sample_tokens=0)
    state = run(new(given, folder, s))
    evaluations = {row["step"]: row["val_loss"] for row in read_log(folder) if "val_loss" in row}
    best_step = min(evaluations, key=lambda step: evaluations[step])
    assert state.step == best_step + 3 * 4 < 400
    assert state.best == evaluations[best_step]
    assert json.loads((folder / "best" / "state.json").read_text())["state"]["step"] == best_step
    assert json.loads((folder / "last" / "state.json").read_text())["state"]["n_worse"] == 3


@pytest.mark.parametrize("changes", [{"eval_batches": 1}, {"batch": 2}, {"ctx": 16}, {"batch": 8, "eval_batches": 1}])
def test_a_loss_is_compared_with_one_of_the_same_sequences(done: Path, tmp_path: Path, changes: dict[str, int]) -> None:
    """Where evaluations use others now, the best checkpoint is measured on these; as if they were harder here."""
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    rewrite_state(folder / "last", best=0.5, n_worse=1)
    job = resume(folder, {"steps": 16, "patience": 2, "lr": 0.01, **changes}, None, None, ALONE)
    s, same = job.settings, changes == {"batch": 8, "eval_batches": 1}
    windows = torch.from_numpy(validation(job.shards, s.ctx, s.batch * s.eval_batches))
    model = Model(open_checkpoint(done / "best"), ALONE.device)
    with torch.no_grad():
        before = float(model(windows[:, :-1].contiguous(), windows[:, 1:].contiguous()))
    at_once = run(replace(job, settings=replace(s, steps=12)))  # nothing is left to do
    state = run(job)
    loss = read_log(folder)[-2]["val_loss"]
    assert loss < before
    assert at_once.best == (0.5 if same else pytest.approx(before, abs=1e-5))
    assert (state.best, state.n_worse) == ((0.5, 2) if same else (loss, 0))
    assert step_of(folder / "best") == (12 if same else 16)


@pytest.mark.parametrize("there", [True, False])
def test_the_best_stays_where_it_is_better_on_other_sequences_too(done: Path, tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    rewrite_state(folder / "last", n_worse=1)
    if not there:
        shutil.rmtree(folder / "best")
    state = run(resume(folder, {"steps": 16, "lr": 100.0, "eval_batches": 1}, None, None, ALONE))
    assert state.n_worse == 1
    assert state.best is not None
    assert (folder / "best").exists() == there
    assert not there or step_of(folder / "best") == 12


def test_an_interrupted_save_leaves_the_one_before(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    job = resume(folder, {"steps": 16}, None, None, ALONE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gristmill.train.checkpoint._write_tensors", full)
    before = (folder / "last" / "model.safetensors").read_bytes()
    with pytest.raises(OSError, match="last: cannot be written: No space left on device"):
        run(job)
    assert (folder / "last" / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["best", "last"]
    assert resume(folder, {}, None, None, ALONE).state.step == 12


def test_a_crash_between_the_two_renames_loses_nothing(given: Path, done: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    (folder / "last").rename(folder / ".last.old")
    with pytest.raises(ValueError, match="holds a run already"):
        new(given, folder, small_run.SETTINGS)
    job = resume(folder, {"steps": 20}, None, None, ALONE)
    assert job.state.step == 12
    assert run(job).step == 20
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["best", "last"]


def test_a_crash_before_the_best_follows_the_last_loses_nothing(
    given: Path, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was evaluated last was the best, and only `last` has it."""
    folder, links = tmp_path / "run", iter((link, None))

    def dying(source: Path, target: Path) -> None:
        if not (do := next(links)):
            raise KeyboardInterrupt
        do(source, target)

    monkeypatch.setattr("gristmill.train.loop.link", dying)
    with pytest.raises(KeyboardInterrupt):
        run(new(given, folder, small_run.SETTINGS))
    assert step_of(folder / "best") == 4
    assert step_of(folder / "last") == 8
    resume(folder, {}, None, None, ALONE)
    assert step_of(folder / "best") == 8
    assert (folder / "best" / "model.safetensors").samefile(folder / "last" / "model.safetensors")
    (folder / "best").rename(folder / ".best.old")  # a crash between the two renames
    rewrite_state(folder / "last", step=9)
    resume(folder, {}, None, None, ALONE)
    assert step_of(folder / "best") == 8
    shutil.rmtree(folder / "best")
    shutil.copytree(done / "last", folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "last")
    resume(folder, {}, None, None, ALONE)  # a checkpoint alone, not the last one of a run
    assert not (folder / "best").exists()


def test_a_run_that_has_moved_goes_on(given: Path, tmp_path: Path) -> None:
    texts = Texts([given / "text.txt"], "<|endoftext|>", 0.1, 1)
    before, after = tmp_path / "before", tmp_path / "after"
    run(begin(before, lambda _: small_run.SHAPE, small_run.SETTINGS, texts, given / "bytes.bin", None, ALONE))
    before.rename(after)
    assert run(resume(after, {"steps": 16}, None, None, ALONE)).step == 16


def test_what_lies_beside_the_tokenizer_goes_with_it(given: Path, tmp_path: Path) -> None:
    """So that its shards are those of the checkpoint's tokenizer."""
    small_run.write_tokenizer(tmp_path)
    for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        (tmp_path / name).write_text("{}")
    texts = Texts([given / "text.txt"], "<|endoftext|>", 0.1, 1)
    folder, s = tmp_path / "run", small_run.settings(steps=1)
    run(begin(folder, lambda _: small_run.SHAPE, s, texts, tmp_path / "bytes.bin", None, ALONE))
    assert run(resume(folder, {"steps": 2}, texts, None, ALONE)).step == 2
    assert (folder / "best" / "added_tokens.json").read_text() == "{}"


def test_a_tokenizer_is_found_in_a_checkpoint_again(tmp_path: Path) -> None:
    for name in ("o200k_base.tiktoken.gz", "ranks.tiktoken", "tokenizer.bin", "tokenizer.model", "tokenizer.json"):
        (tmp_path / name).touch()
        assert find_tokenizer(tmp_path) == tmp_path / name
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no such file, nor a folder with one of tokenizer\.json"):
        find_tokenizer(tmp_path / "empty")


def test_what_is_refused(given: Path, done: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds a run already"):
        new(given, done, small_run.SETTINGS)
    with pytest.raises(ValueError, match="holds no checkpoint to resume from"):
        resume(tmp_path, {}, None, None, ALONE)
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    small_run.write_text(tmp_path, 50)
    other = Texts([tmp_path / "text.txt"], "<|endoftext|>", 0.1, 1)
    shards = given / "shards"
    before = {path: path.read_bytes() for path in shards.iterdir()}
    for place in (tmp_path / "other", shards, None):
        with pytest.raises(ValueError, match="would be other shards than"):
            resume(folder, {}, other, place, ALONE)
    assert {path: path.read_bytes() for path in shards.iterdir()} == before
    assert not (tmp_path / "other").exists()
    (folder / "last" / "optimizer.safetensors").write_bytes(b"{}")
    with pytest.raises(ModelFormatError, match=r"optimizer\.safetensors"):
        run(resume(folder, {"steps": 16}, None, None, ALONE))
    (folder / "last" / "state.json").write_text("{}")
    with pytest.raises(ValueError, match=r"state\.json: no state to resume from"):
        resume(folder, {}, None, None, ALONE)


def test_a_loss_that_is_no_number_ends_the_run(given: Path, tmp_path: Path) -> None:
    s = small_run.settings(steps=60, eval_every=60, lr=1e5, warmup=0, clip=0.0)
    with pytest.raises(ValueError, match=r"the loss is .*lower --lr"):
        run(new(given, tmp_path / "run", s))


def test_weights_that_are_no_numbers_replace_no_checkpoint(given: Path, tmp_path: Path) -> None:
    s = small_run.settings(steps=60, eval_every=1, lr=1e5, warmup=0, clip=0.0, sample_tokens=0)
    with pytest.raises(ValueError, match=r"the loss is .*lower --lr"):
        run(new(given, tmp_path / "run", s))
    evaluated = [row["step"] for row in read_log(tmp_path / "run") if "val_loss" in row]
    job = resume(tmp_path / "run", {}, None, None, ALONE)
    assert job.state.step == evaluated[-1]
    assert all(np.isfinite(value.numpy()).all() for value in Model(job.start, ALONE.device).tensors().values())


def test_a_run_that_has_nothing_left_to_do(given: Path, done: Path, tmp_path: Path) -> None:
    """Where it was evaluated it says again how it went; else there is nothing to say."""
    assert run(resume(done, {"steps": 5}, None, None, ALONE)).best is not None
    steps = iter((False, False, True))
    run(new(given, tmp_path / "run", small_run.SETTINGS), lambda: next(steps))
    with pytest.raises(ValueError, match="--steps 3: 3 are done, and none was evaluated; ask for more"):
        resume(tmp_path / "run", {"steps": 3}, None, None, ALONE)


@pytest.mark.parametrize(
    ("of", "name", "value"),
    [
        *(
            ("state", "best", "low"),
            ("state", "step", 2.5),
            ("state", "tokens", 11),
            ("state", "shards", 7),
            ("state", "n_worse", None),
        ),
        *(("settings", "batch", 4.5), ("settings", "lr", "1"), ("settings", "sample_prompt", 7)),
        ("settings", "compile", "no"),
    ],
)
def test_a_state_of_other_types_is_refused(done: Path, tmp_path: Path, of: str, name: str, value: object) -> None:
    shutil.copytree(done, tmp_path / "run")
    path = tmp_path / "run" / "last" / "state.json"
    content = json.loads(path.read_text())
    content[of][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"state\.json: no state to resume from"):
        resume(tmp_path / "run", {}, None, None, ALONE)


def test_what_a_model_says_cannot_steer_a_terminal(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    RunReport(tmp_path, console, 4, 0, 1).sampled(4, "a\x1b[2J\x9b1m\r[/red] :smile:\n\tb")
    assert r"a\x1b[2J\x9b1m\r[/red] :smile:" in console.file.getvalue()
    assert read_log(tmp_path) == [{"step": 4, "sample": "a\x1b[2J\x9b1m\r[/red] :smile:\n\tb"}]


def test_the_logs(done: Path) -> None:
    lines = (done / "log.csv").read_text().splitlines()
    assert lines[0].startswith("step,tokens,loss,val_loss")
    assert len(lines) == 13
    assert lines[4].split(",")[:2] == ["4", str(4 * 4 * 32)]
    assert lines[4].split(",")[3]
    assert not lines[3].split(",")[3]
    assert [row["step"] for row in read_log(done) if "sample" in row] == [4, 8, 12]
    pytest.importorskip("matplotlib")
    assert (done / "loss.png").read_bytes().startswith(b"\x89PNG")
