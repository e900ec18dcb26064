"""`gristmill rm`: removes models that were pulled."""

from __future__ import annotations

import click

from gristmill.cli.pull import size
from gristmill.hub.names import parse_name
from gristmill.hub.store import find, remove
from gristmill.printable import printable

_EXAMPLES = """
\b
Examples:
  gristmill rm Qwen/Qwen3-0.6B-GGUF:Q8_0
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", metavar="ORG/NAME[:QUANT]...", nargs=-1, required=True)
def rm(names: tuple[str, ...]) -> None:
    """Remove models from the store, which is the Hugging Face hub's cache: for other programs they are gone as well."""
    for stored in dict.fromkeys(find(parse_name(name)) for name in names):
        click.echo(printable(f"removed {stored.name} ({size(remove(stored))})"))
