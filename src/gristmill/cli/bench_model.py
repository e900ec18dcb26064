"""`gristmill bench model`: speed of prompts and generation, and how near it comes to the machine's limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gristmill.bench.machine import Machine
from gristmill.bench.model import LIMIT_ROUNDS, Case, ModelBench, Row, main_arithmetic, multiplied, plan
from gristmill.cli import options
from gristmill.cli.bench_options import Numbers, buffer_mb, card_of, table_console
from gristmill.cli.loading import load_decoder
from gristmill.llm import pick_backend, spare_on_card
from gristmill.ops.cpu import default_threads

_EXAMPLES = """
\b
Examples:
  gristmill bench model -m model.gguf
  gristmill bench model -m model.gguf -p 512,2048 -n 64 -b 1 -t 1,2
  gristmill bench model -m model.gguf -p 0 -n 32 -d 0,4096 --json > deep.json
  gristmill bench model -m model.gguf --device cuda -b 1,16,64 -d 1024 --buffer-mb 4096
"""


@click.command(epilog=_EXAMPLES)
@options.model
@options.option("-p", "--n-prompt", type=Numbers(0), default="512", help="lengths of prompts; 0 for none")
@options.option("-n", "--n-generate", type=Numbers(0), default="128", help="tokens to generate; 0 for none")
@options.option("-d", "--depth", type=Numbers(0), default="0", help="tokens in the cache before")
@options.option("-b", "--batch", type=Numbers(1, 4096), default="1,4,16", help="sequences generating at once")
@options.option("-t", "--threads", type=Numbers(1, 1024), help="thread counts [default: one a core]")
@options.option("-r", "--repetitions", type=click.IntRange(1, 1000), default=3, help="of each test, after a warm-up")
@options.kv_type
@options.quantize
@options.device
@options.gpu_memory_fraction
@buffer_mb
@options.as_json
def model(
    model: str,
    n_prompt: tuple[int, ...],
    n_generate: tuple[int, ...],
    depth: tuple[int, ...],
    batch: tuple[int, ...],
    threads: tuple[int, ...] | None,
    repetitions: int,
    kv_type: str,
    quantize: str,
    device: str,
    gpu_memory_fraction: float,
    buffer_mb: int,
    as_json: bool,
) -> None:
    """Measure a model: prompts (pp) and generation (tg), as tokens a second and as shares of this machine's limits.

    Several numbers may be given with commas between. Speeds count the tokens of all sequences of a batch and include
    building the batch and greedy sampling. GB/s are bytes that must be read (each weight once a step, keys and values
    of all earlier positions; of experts the number expected if routers chose evenly), GFLOP/s multiply-adds of linears
    and attention; shares are of what is measured in the same process. A depth is filled with keys and values of one
    number. Run it on an idle machine.

    With --device cuda shares are of a large copy on the card, and of what cuBLAS does with the model's own shapes and
    512 tokens.
    """
    on_card = device == "cuda"
    if on_card:
        options.refuse_given(("threads",), "is for the processor: leave it out with --device cuda")
    counts = (1,) if on_card else threads or (default_threads(),)
    cases = plan(n_prompt, n_generate, batch, depth, counts)
    first = pick_backend(device, None if on_card else counts[0], gpu_memory_fraction)
    decoder = load_decoder(model, first, quantize)
    card = card_of(buffer_mb, multiplied(decoder)) if on_card else None
    bench = ModelBench(
        decoder,
        kv_type,
        cases,
        lambda count: first if count == counts[0] else pick_backend(device, count),
        card or Machine(buffer_mb << 20),
        spare_on_card(first) if on_card else None,
    )
    rows = [bench.run(case, repetitions) for case in _shown(cases)]
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
    elif card is None:
        _print(rows, "read", main_arithmetic(decoder), None)
    else:
        each = f"each kernel of a step costs {card.launch_us(LIMIT_ROUNDS, recorded=True):.2f} us at least"
        _print(rows, "copy", "cuBLAS", f"{card.name}; {each}")


def _shown(cases: list[Case]) -> Iterator[Case]:
    """The cases one by one, said on stderr: a bar where someone is watching, a line each otherwise."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(cases))
        for i, case in enumerate(cases, 1):
            what = f"{case.name}, batch {case.batch}, depth {case.depth}, {case.threads} threads"
            bar.update(task, description=what)
            if not console.is_terminal:
                console.print(f"test {i} of {len(cases)}: {what}", soft_wrap=True)
            yield case
            bar.advance(task)


def _print(rows: list[Row], bandwidth: str, arithmetic: str, caption: str | None) -> None:
    table = Table("test", box=None, pad_edge=False, caption=caption)
    for head in ("batch", "depth", "threads", "tok/s", "GB/s", f"of {bandwidth}", "GFLOP/s", f"of {arithmetic}"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        digits = 0 if row.tokens_per_s >= 1000 else 1
        table.add_row(
            row.test,
            str(row.batch),
            str(row.depth),
            str(row.threads),
            f"{row.tokens_per_s:.{digits}f} ± {row.stddev:.{digits}f}",
            f"{row.gb_per_s:.1f}",
            f"{row.share_of_bandwidth:.0%}",
            f"{row.gflop_per_s:.0f}",
            f"{row.share_of_peak:.0%}",
        )
    table_console().print(table)
