"""`gristmill list`: the models that were pulled."""

from __future__ import annotations

import json
import time

import click

from gristmill.cli import options
from gristmill.cli.pull import facts, size
from gristmill.hub.store import all_models, store_folder
from gristmill.printable import printable

_EXAMPLES = """
\b
Examples:
  gristmill list
  gristmill list --json
"""


@click.command(epilog=_EXAMPLES)
@options.as_json
def list(as_json: bool) -> None:
    """List the models in the store, which is the Hugging Face hub's cache: what -m takes, size, when it came."""
    there = all_models()
    if as_json:
        click.echo(json.dumps([facts(stored) for stored in there]))
        return
    if not there:
        click.echo(f"no model in {store_folder()}; gristmill pull ORG/NAME downloads one", err=True)
    names = [printable(str(stored.name)) for stored in there]
    width = max(map(len, names), default=0)
    for name, stored in zip(names, there, strict=True):
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored.pulled))
        click.echo(f"{name:{width}}  {size(stored.n_bytes):>8}  {day}")
