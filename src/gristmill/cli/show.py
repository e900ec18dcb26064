"""`gristmill show`: one model that was pulled."""

from __future__ import annotations

import json

import click

from gristmill.cli import options
from gristmill.cli.inspect import describe
from gristmill.cli.pull import facts, size
from gristmill.formats.open import open_checkpoint
from gristmill.hub.names import parse_name
from gristmill.hub.store import find
from gristmill.printable import printable

_EXAMPLES = """
\b
Examples:
  gristmill show Qwen/Qwen3-0.6B-GGUF:Q8_0
  gristmill inspect Qwen/Qwen3-0.6B-GGUF:Q8_0      # its metadata and tensors, and the memory it needs
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="ORG/NAME[:QUANT]")
@options.as_json
def show(name: str, as_json: bool) -> None:
    """Show where a pulled model lies and what it is."""
    stored = find(parse_name(name))
    report = describe(open_checkpoint(stored.path), None, 1, "f16", None)
    config = report.get("config", {})  # a vocabulary alone has none
    model = {
        "architecture": config.get("arch"),
        "parameters": report["parameters"],
        "context": config.get("max_context"),
        "types": report["bytes_by_type"],
    }
    if as_json:
        click.echo(json.dumps({**facts(stored), **model}))
        return
    types = ", ".join(f"{label} {size(n)}" for label, n in model["types"].items())
    files = f"{size(stored.n_bytes)} in {len(stored.files)} file{'s' if len(stored.files) > 1 else ''}"
    rows = {"name": stored.name, "path": stored.path, "revision": stored.revision, "size": files}
    for key, value in {**rows, **model, "types": types}.items():
        click.echo(printable(f"{key:12}  {value or '-'}"))
