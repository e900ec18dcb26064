"""Options that several commands share. Each has an environment variable: --kv-type is GRISTMILL_KV_TYPE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gristmill.engine.drafts import LONGEST
from gristmill.formats.quantize import QUANTIZE_CHOICES

F = TypeVar("F", bound=Callable[..., Any])


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """click.option with its environment variable, shown in the help."""
    long = next(name for name in names if name.startswith("--"))
    variable = "GRISTMILL_" + long.split("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, show_default=True, **settings)


model = option("-m", "--model", required=True, help="model file or folder")
tokenizer = option("--tokenizer", help="vocabulary file, where the model has none in or beside it")
threads = option("--threads", type=int, help="threads [default: one a core]")
context = option(
    "--ctx", "context", type=int, help="tokens of prompt and answer together [default: the model's, to 8192]"
)
kv_type = option(
    "--kv-type",
    type=click.Choice(["f16", "f32", "q8_0"]),
    default="f16",
    help="what keys and values are kept in (f16 is bfloat16 where AVX-512 multiplies that)",
)
quantize = option(
    "--quantize", metavar=f"[{'|'.join(QUANTIZE_CHOICES)}]", default="none", help="what dense float weights are kept as"
)
speculate = option(
    "--speculate",
    type=click.IntRange(0, LONGEST),
    default=0,
    metavar="N",
    help=f"guess up to N tokens (at most {LONGEST}) from what the text has said before; 0: none. The text is the same",
)
draft = option(
    "--draft", metavar="MODEL", help="a smaller model of the same vocabulary that guesses; the text is the same"
)
device = option("--device", type=click.Choice(["auto", "cpu"]), default="auto", help="where to compute")
as_json = option("--json", "as_json", is_flag=True, help="print JSON for scripts")
