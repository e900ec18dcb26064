"""`gristmill train`: a small Llama from text, resumable, on a CPU or on GPUs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Console

from gristmill.cli import options
from gristmill.cli.writable import check_folder
from gristmill.train.presets import PRESETS, Shape, usual_d_ff
from gristmill.train.settings import Settings
from gristmill.train.sources import DATASETS, SEPARATOR, download, find_files

if TYPE_CHECKING:
    from gristmill.train.group import Group
    from gristmill.train.loop import Job
    from gristmill.train.run import Texts

_EXAMPLES = """
\b
Examples:
  gristmill train stories.txt --tokenizer tokenizer.bin -o tiny --preset 260K --steps 5000
  gristmill train -o tiny --resume
  gristmill train data/*.jsonl --tokenizer tokenizer.model -o mine --d-model 256 --n-layers 6 --n-heads 8 --ctx 512
  gristmill train --dataset tinystories --tokenizer tokenizer.model -o 15m --preset 15M --batch 128 --micro-batch 32
  torchrun --nproc-per-node 4 -m gristmill train --dataset tinystories --tokenizer tokenizer.model -o 110m --preset 110M
  gristmill generate -m tiny/best -p "Once upon a time"
"""
_DEFAULTS = Settings()


def _setting(name: str, kind: Any, text: str, *more: str) -> Callable[[options.F], options.F]:
    """An option that is a field of Settings."""
    long = "--" + name.replace("_", "-")
    return options.option(*more, long, name, type=kind, default=getattr(_DEFAULTS, name), help=text)


def _dimension(name: str, text: str) -> Callable[[options.F], options.F]:
    return options.option("--" + name.replace("_", "-"), type=int, help=f"{text} [default: the preset's]")


@click.command(epilog=_EXAMPLES)
@click.argument("files", nargs=-1)
@options.option("-o", "--out", required=True, help="folder of the run: last/, best/, logs, a picture of the loss")
@options.option("--resume", is_flag=True, help="go on where the run in --out stopped, with its settings and data")
@options.option("--tokenizer", help="tokenizer.bin, .model or .json, or a folder with one")
@options.option("--dataset", type=click.Choice(DATASETS), help="download a dataset instead of naming FILES")
@options.option("--preset", type=click.Choice(tuple(PRESETS)), default="260K", help="dimensions to begin with")
@_dimension("d_model", "width")
@_dimension("n_layers", "layers")
@_dimension("n_heads", "query heads")
@_dimension("n_kv_heads", "key-value heads; as many as --n-heads where that is given")
@_dimension("d_ff", "width of the feed-forward network; 8/3 of another --d-model")
@options.option("--vocab-size", type=int, help="rows of the embedding [default: the tokenizer's]")
@options.option(
    "--ctx", "context", type=int, help="tokens of a sequence, and the model's context [default: the preset's]"
)
@options.option("--tied/--untied", default=True, help="whether the head is the embedding")
@_setting("steps", int, "updates of the weights")
@_setting("batch", int, "sequences in a step, over all processes")
@_setting("micro_batch", int, "sequences that a process computes at once; 0: all of its own")
@_setting("lr", float, "highest learning rate")
@_setting("min_lr", float, "learning rate at the end")
@_setting("warmup", int, "steps in which the learning rate rises")
@_setting("weight_decay", float, "of matrices")
@_setting("beta1", float, "AdamW's")
@_setting("beta2", float, "AdamW's")
@_setting("clip", float, "longest gradient; 0: any")
@_setting("eval_every", int, "steps between evaluations, each with a checkpoint and a sample")
@_setting("eval_batches", int, "held-out batches of an evaluation, at most")
@_setting("log_every", int, "steps between lines on the screen; files get every step")
@_setting("patience", int, "evaluations without a better loss after which to stop; 0: never")
@_setting("sample_tokens", int, "tokens of a sample; 0: no samples")
@_setting("sample_prompt", str, "what samples begin with")
@_setting("seed", int, "of the first weights, the order of the data and the samples")
@_setting("dtype", click.Choice(["auto", "float32", "bfloat16"]), "of matrix products; auto: bfloat16 on a GPU")
@options.option("--compile/--no-compile", "compile", default=_DEFAULTS.compile, help="let torch compile the model")
@options.option(
    "--separator", default=SEPARATOR, help="what stands between a text file's documents; \\n is a line's end"
)
@options.option(
    "--val-fraction", type=float, default=0.02, help="share of each text that is held out, of short files together"
)
@options.option("--shards", help="folder for token ids, to share between runs [default: OUT/shards]")
@options.threads
@options.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="where to compute")
@options.as_json
@click.pass_context
def train(
    click_context: click.Context, /, out: str, threads: int | None, device: str, as_json: bool, **given: Any
) -> None:
    """Train a Llama from FILES: texts, .jsonl with `text`, TinyStories' .json, or folders of these.

    OUT/last and OUT/best are models that every command reads. Ctrl-C saves one and stops; --resume goes on exactly
    where it stopped, with the settings of then; those that are given again count instead.
    """
    folder = Path(out)
    check_folder("--out", folder)
    try:
        from gristmill.train.group import join
    except ModuleNotFoundError as error:
        raise ValueError(f"gristmill train needs PyTorch ({error}): pip install 'gristmill[train]'") from None
    from gristmill.ops.cpu import default_threads
    from gristmill.train.checkpoint import BEST
    from gristmill.train.loop import train as run
    from gristmill.train.report import RunReport

    threads = threads or max(1, default_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    console = Console(stderr=True)
    with join(device, threads) as group:
        job = _job(click_context, folder, given, threads, group, console)
        s = job.settings
        with _interrupted(console) as stop:
            if not group.leads:
                run(job, group, None, stop)
                return
            console.print(_summary(job, group), highlight=False, soft_wrap=True)
            with RunReport(folder, console, s.steps, job.state.step, s.log_every).shown() as report:
                state = run(job, group, report, stop)
    best = quote(str(folder / BEST))
    if as_json:
        click.echo(json.dumps({"out": out, **asdict(state), "settings": asdict(s)}))
    elif state.step < s.steps and not 0 < s.patience <= state.n_worse:
        console.print(
            f"stopped after step {state.step}; go on: gristmill train -o {quote(str(out))} --resume",
            markup=False,
            soft_wrap=True,
        )
    else:
        console.print(
            f"best validation loss {state.best:.4f}; try it: gristmill generate -m {best} -p 'Once upon a time'",
            markup=False,
            soft_wrap=True,
            highlight=False,
        )


def _job(ctx: click.Context, folder: Path, given: dict[str, Any], threads: int, group: Group, console: Console) -> Job:
    from gristmill.train.run import begin, resume

    asked = {name for name in given if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    names = {field.name for field in fields(Settings)}
    shards = Path(given["shards"]) if given["shards"] else None
    if given["resume"]:
        fixed = asked - names - {"resume", "files", "dataset", "shards", "separator", "val_fraction"}
        options.refuse_given(sorted(fixed), "cannot change in a run that is resumed; leave it out")
        texts = None
        if given["files"] or given["dataset"]:
            texts = _texts(given, threads, console)
        else:
            options.refuse_given(("separator", "val_fraction"), "is for FILES: give them again, or leave it out")
        return resume(folder, {name: given[name] for name in asked & names}, texts, shards, group)
    if not given["tokenizer"]:
        raise click.UsageError("a new run needs --tokenizer FILE (gristmill train-tokenizer makes one)")
    if not given["files"] and not given["dataset"]:
        raise click.UsageError(f"a new run needs FILES to learn from, or --dataset {DATASETS[0]}")
    preset = PRESETS[given["preset"]]
    context = preset.context if given["context"] is None else given["context"]
    settings = Settings(**{name: given[name] for name in names if name in given}, ctx=context)
    texts = _texts(given, threads, console)
    tokenizer = Path(given["tokenizer"])
    return begin(folder, lambda n: _shape(preset, given, n), settings, texts, tokenizer, shards, group)


def _shape(preset: Shape, given: dict[str, Any], n_tokens: int) -> Shape:
    """The preset with what is given instead."""
    own = {field.name: given[field.name] for field in fields(Shape) if given.get(field.name) is not None}
    if "n_heads" in own:
        own.setdefault("n_kv_heads", own["n_heads"])
    if own.get("d_model", preset.d_model) != preset.d_model:
        own.setdefault("d_ff", usual_d_ff(own["d_model"]))
    return replace(preset, **{"vocab_size": n_tokens, **own}, tied_head=given["tied"])


def _texts(given: dict[str, Any], threads: int, console: Console) -> Texts:
    from gristmill.train.run import Texts

    if given["files"] and given["dataset"]:
        raise click.UsageError("give FILES or --dataset, not both")
    files = download(given["dataset"]) if given["dataset"] else find_files(given["files"])
    separator = given["separator"].replace("\\n", "\n")
    return Texts(
        files,
        separator,
        given["val_fraction"],
        threads,
        lambda done, total: console.print(f"tokenized {done} of {total} pieces", highlight=False),
    )


def _summary(job: Job, group: Group) -> str:
    n_train, n_val = sum(job.shards.n_train), sum(job.shards.n_val)
    epochs = job.settings.steps * job.settings.batch * job.settings.ctx / max(1, n_train)
    return (
        f"{n_train:,} tokens to train on, {n_val:,} held out; {job.settings.steps:,} steps of"
        f" {job.settings.batch * job.settings.ctx:,} tokens ({epochs:.1f} epochs) on {group.device}"
        + (f", {group.size} processes" if group.size > 1 else "")
        + (f"; from step {job.state.step:,} on" if job.state.step else "")
        + ("; evaluated on other sequences than before, so the best checkpoint is evaluated again" if job.best else "")
    )


@contextmanager
def _interrupted(console: Console) -> Iterator[Callable[[], bool]]:
    """Whether somebody has pressed Ctrl-C, or asked the process to end. The second time it ends at once."""
    asked = list[int]()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        console.print("stopping after this step, with a checkpoint; once more stops at once", style="yellow")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
