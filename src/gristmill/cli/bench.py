"""`gristmill bench`: the group of measuring commands."""

from __future__ import annotations

import click

from gristmill.cli.bench_machine import machine
from gristmill.cli.bench_model import model


@click.group()
def bench() -> None:
    """Measure this machine, and models on it."""


for command in (machine, model):
    bench.add_command(command)
