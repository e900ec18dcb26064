"""`gristmill quantize`: `convert` for those who think of the type first, and have to name one."""

from __future__ import annotations

import click

from gristmill.cli import options
from gristmill.cli.convert import TYPE_HELP, out, out_format, perform
from gristmill.formats.write_types import CONVERT_TYPES

_EXAMPLES = """
\b
Examples:
  gristmill quantize -m Qwen3-0.6B/ -o qwen3-q4.gguf --type q4_k_m
  gristmill quantize -m model-f16.gguf -o model-q8_0.gguf --type q8_0
"""


@click.command(epilog=_EXAMPLES)
@options.model
@out
@options.option(
    "--type", "label", type=click.Choice(CONVERT_TYPES, case_sensitive=False), required=True, help=TYPE_HELP
)
@out_format
@options.tokenizer
@options.threads
@options.as_json
def quantize(
    model: str,
    out: str,
    label: str,
    out_format: str | None,
    tokenizer: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write a model with its weights in another number type."""
    perform(model, out, label, out_format, tokenizer, threads, as_json)
