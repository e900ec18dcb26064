"""`gristmill bench`: the group of measuring commands."""

from __future__ import annotations

import click

from gristmill.cli.bench_machine import machine
from gristmill.cli.bench_model import model
from gristmill.cli.bench_serve import serve


@click.group()
def bench() -> None:
    """Measure this machine, models on it, and servers."""


for command in (machine, model, serve):
    bench.add_command(command)
