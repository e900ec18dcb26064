"""`gristmill bench machine`: the limits that speeds are shares of."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from gristmill.bench.machine import ARITHMETICS, Limits, Machine
from gristmill.cli import options
from gristmill.cli.bench_options import buffer_mb, card_of, table_console
from gristmill.ops.cpu import default_threads

if TYPE_CHECKING:
    from gristmill.bench.card import CardLimits

_UNITS = {"f32": "fp32 multiply-add, GFLOP/s", "bf16": "bf16 dot, GFLOP/s", "int8": "int8 dot, GOP/s"}

_EXAMPLES = """
\b
Examples:
  gristmill bench machine
  gristmill bench machine --threads 2 --json
  gristmill bench machine --device cuda --buffer-mb 4096
  GRISTMILL_ISA=avx2 gristmill bench machine
"""


@click.command(epilog=_EXAMPLES)
@options.option("--threads", type=click.IntRange(1, 1024), help="most threads; 1 is measured too [default: one a core]")
@options.option(
    "--isa",
    type=click.Choice(["auto", "amx", "avx512bf16", "avx512", "avxvnni", "avx2", "neon", "portable"]),
    default="auto",
    help="instruction set; auto: the best that this machine has",
)
@options.device
@buffer_mb
@options.option("--rounds", type=click.IntRange(1, 1000), default=15, help="of each measurement")
@options.as_json
def machine(threads: int | None, isa: str, device: str, buffer_mb: int, rounds: int, as_json: bool) -> None:
    """Measure how fast this machine reads memory and multiplies.

    Memory is read as packed weights are: in order, huge pages, every thread a stretch of its own. Multiply-adds (two
    operations each) run in registers, in the instruction set that the kernels use. Run it on an idle machine.

    With --device cuda, what a graphics card can do: a large copy on it, cuBLAS on large bfloat16 matrices, and what
    each kernel of a CUDA graph costs at least.
    """
    if device == "cuda":
        options.refuse_given(("threads", "isa"), "is for the processor: leave it out with --device cuda")
        _measure_card(buffer_mb, rounds, as_json)
        return
    most = threads or default_threads()
    console = Console(stderr=True)
    found = []
    tested = Machine(buffer_mb << 20, isa)
    for count in sorted({1, most}):
        console.print(f"measuring with {count} thread{'s' if count > 1 else ''} ...", style="dim")
        found.append(tested.limits(count, rounds))
    if as_json:
        click.echo(json.dumps({"isa": found[0].isa, "buffer_mb": buffer_mb, "limits": [_plain(x) for x in found]}))
    else:
        _print(found, buffer_mb, rounds)


def _measure_card(buffer_mb: int, rounds: int, as_json: bool) -> None:
    found = card_of(buffer_mb).limits(rounds)
    if as_json:
        click.echo(json.dumps({"rounds": rounds, "buffer_mb": buffer_mb, **_plain_card(found)}))
        return
    table = Table("", "best (median)", title=f"{found.name}; {rounds} rounds", box=None)
    table.columns[1].justify = "right"
    table.add_row(f"copy on the card ({buffer_mb} MiB), GB/s", f"{found.copy.best:.1f} ({found.copy.median:.1f})")
    table.add_row("cuBLAS bf16, GFLOP/s", f"{found.cublas.best:.0f} ({found.cublas.median:.0f})")
    table.add_row("a kernel in a graph, us", f"({found.in_graph_us:.2f})")
    table.add_row("a kernel launched by torch, us", f"({found.alone_us:.2f})")
    table_console().print(table)


def _plain_card(limits: CardLimits) -> dict[str, object]:
    fields = asdict(limits)
    rates = {"copy_gb_per_s": fields.pop("copy"), "cublas_gflop_per_s": fields.pop("cublas")}
    return {"card": fields.pop("name"), **rates, **fields}


def _plain(limits: Limits) -> dict[str, object]:
    fields = asdict(limits)
    return {"threads": fields["threads"], "read_gb_per_s": fields["read"], "peak_gflop_per_s": fields["peaks"]}


def _print(found: list[Limits], buffer_mb: int, rounds: int) -> None:
    title = f"{found[0].isa}, {os.cpu_count()} processors; best (median) of {rounds}"
    table = Table("", *(f"{x.threads} thread{'s' if x.threads > 1 else ''}" for x in found), title=title, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    reads = [f"{x.read.best:.1f} ({x.read.median:.1f})" for x in found]
    table.add_row(f"memory read ({buffer_mb} MiB), GB/s", *reads)
    for arithmetic in ARITHMETICS:
        rates = [x.peaks[arithmetic] for x in found]
        table.add_row(_UNITS[arithmetic], *(f"{rate.best:.1f} ({rate.median:.1f})" for rate in rates))
    table_console().print(table)
