"""`gristmill convert`: a model in another format or number type."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gristmill.cli import options
from gristmill.cli.loading import log_to_stderr
from gristmill.cli.streams import write_json
from gristmill.convert import OUT_FORMATS, Report
from gristmill.convert import convert as run
from gristmill.convert.job import Progress
from gristmill.formats.checkpoint import Checkpoint
from gristmill.formats.open import open_checkpoint
from gristmill.formats.write_types import CONVERT_TYPES
from gristmill.hub.store import locate
from gristmill.ops.cpu import default_threads

_EXAMPLES = """
\b
Examples:
  gristmill convert -m Qwen3-0.6B/ -o qwen3.gguf --type q8_0
  gristmill convert -m model.gguf -o folder/ --type bf16
  gristmill convert -m stories15M.bin -o stories15M-q8.bin --type q8_0
  gristmill convert -m out/ckpt.pt -o model.bin
"""

out = options.option("-o", "--out", required=True, help="what to write: NAME.gguf, NAME.bin (llama2.c), or a folder")
out_format = options.option(
    "--format", "out_format", type=click.Choice(OUT_FORMATS), help="[default: by the ending of --out]"
)
TYPE_HELP = "number type of the weights (q4_k_m: Q4_K and Q6_K, by tensor)"


@click.command(epilog=_EXAMPLES)
@options.model
@out
@options.option(
    "--type",
    "label",
    type=click.Choice(CONVERT_TYPES, case_sensitive=False),
    help=f"{TYPE_HELP} [default: as they are]",
)
@out_format
@options.tokenizer
@options.threads
@options.as_json
def convert(
    model: str,
    out: str,
    label: str | None,
    out_format: str | None,
    tokenizer: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write a model as GGUF, as a safetensors folder or as llama2.c's .bin.

    Reads what every command reads, and here alone also llama2.c's training checkpoints (.pt) and Meta's consolidated
    .pth files, which needs PyTorch.
    """
    perform(model, out, label, out_format, tokenizer, threads, as_json)


def perform(
    model: str,
    out: str,
    label: str | None,
    out_format: str | None,
    tokenizer: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """What `convert` and `quantize` both do."""
    if out.endswith("/"):
        if out_format not in (None, "safetensors"):
            raise click.UsageError(f"--out {out}: names a folder, and {out_format} is one file; leave out the last /")
        out_format = "safetensors"
    with _progress() as progress:
        report = run(
            _open(locate(model)),
            Path(out),
            label=label,
            out_format=out_format,
            tokenizer=Path(tokenizer) if tokenizer else None,
            n_threads=threads or default_threads(),
            progress=progress,
        )
    if as_json:
        write_json(dataclasses.asdict(report))
    else:
        click.echo(_summary(report))


def _open(path: Path) -> Checkpoint:
    """As all commands do, or what PyTorch saved: only here is such a file opened at all."""
    from gristmill.formats.torch_files import is_torch_checkpoint, open_torch_checkpoint

    return open_torch_checkpoint(path) if is_torch_checkpoint(path) else open_checkpoint(path)


def _summary(report: Report) -> str:
    types = ", ".join(f"{label} {_size(n)}" for label, n in report.bytes_by_type.items())
    speed = report.bytes_in / max(report.seconds, 1e-9)
    kind = "a safetensors folder" if report.format == "safetensors" else f"a {report.format} file"
    return (
        f"{report.out}: {kind} of {_size(report.bytes_out)} ({types}) from {_size(report.bytes_in)} of tensors"
        f" in {report.seconds:.1f} s, {_size(int(speed))}/s"
    )


def _size(n: float) -> str:
    for unit in ("B", "KB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.2f} GB"


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Moves a bar on a terminal; None where stderr is none."""
    log_to_stderr()
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("converting"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("converting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
