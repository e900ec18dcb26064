"""`gristmill rm`: removes models that were pulled."""

from __future__ import annotations

import click

from gristmill.cli.pull import size
from gristmill.hub.names import HubError, HubName, parse_name
from gristmill.hub.store import Stored, find, models_of, remove, remove_unfinished, unfinished
from gristmill.printable import printable

_EXAMPLES = """
\b
Examples:
  gristmill rm Qwen/Qwen3-0.6B-GGUF:Q8_0
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", metavar="ORG/NAME[:QUANT]...", nargs=-1, required=True)
def rm(names: tuple[str, ...]) -> None:
    """Remove models from the store, which is the Hugging Face hub's cache: for other programs they are gone as well.
    Where a model is not there as a whole, what has come of its repository's unfinished downloads goes."""
    for target in dict.fromkeys(_find(parse_name(name)) for name in names):
        if isinstance(target, Stored):
            click.echo(printable(f"removed {target.name} ({size(remove(target))})"))
        else:
            click.echo(printable(f"removed unfinished downloads of {target} ({size(remove_unfinished(target))})"))


def _find(name: HubName) -> Stored | str:
    """The model, or the repository of which there are unfinished downloads alone. HubError where there is neither."""
    try:
        return find(name)
    except HubError:
        if not unfinished(name.repo) or (name.quant is None and models_of(name.repo)):
            raise
        return name.repo
