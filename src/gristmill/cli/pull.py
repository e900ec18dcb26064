"""`gristmill pull`: downloads a model of the Hugging Face hub."""

from __future__ import annotations

import json
from typing import Any

import click

from gristmill.cli import options
from gristmill.cli.loading import progress_bar
from gristmill.hub.names import parse_name
from gristmill.hub.store import Stored
from gristmill.printable import printable

_EXAMPLES = """
\b
Examples:
  gristmill pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  gristmill pull Qwen/Qwen3-0.6B
  gristmill generate -m Qwen/Qwen3-0.6B-GGUF:Q8_0 -p "Once upon a time"

Without QUANT: the only model there is, or of several .gguf ones Q4_K_M, or Q8_0; of .gguf and safetensors say which. A
file's own name is a QUANT as well. Models lie where other programs of the hub find them too (HF_HOME); HF_TOKEN opens
gated ones, HF_ENDPOINT names another hub.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="ORG/NAME[:QUANT]")
@options.as_json
def pull(name: str, as_json: bool) -> None:
    """Download a model of the Hugging Face hub, to use with -m.

    A download that broke off goes on where it was. Only weights without code are taken: .gguf, or safetensors with
    config and vocabulary.
    """
    asked = parse_name(name)
    from gristmill.hub.pull import pull as download

    _log_once()
    try:
        with progress_bar("downloading") as report:
            stored = download(asked, report) if report is not None else download(asked)
    except KeyboardInterrupt:
        click.echo(f"stopped; what has come is kept: gristmill pull {asked} goes on", err=True)
        raise
    if as_json:
        click.echo(json.dumps(facts(stored)))
    else:
        click.echo(printable(f"{stored.name}: {size(stored.n_bytes)} at {stored.path}"))


def _log_once() -> None:
    """The library writes its warnings itself as well, as they come."""
    from huggingface_hub.utils import logging

    logging.get_logger().handlers.clear()
    logging.enable_propagation()


def facts(stored: Stored) -> dict[str, Any]:
    """A stored model for scripts."""
    return {
        "name": str(stored.name),
        "path": str(stored.path),
        "revision": stored.revision,
        "bytes": stored.n_bytes,
        "files": [str(file) for file in stored.files],
        "pulled": int(stored.pulled),
    }


def size(n_bytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if n_bytes < 999.5:  # more would be rounded to 1e+03
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.2f} GB"
