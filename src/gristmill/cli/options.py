"""Options that several commands share. Each has an environment variable: --kv-type is GRISTMILL_KV_TYPE."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from gristmill.bundled import STORY_MODEL
from gristmill.engine.drafts import LONGEST
from gristmill.formats.qtypes import QUANTIZE_CHOICES

F = TypeVar("F", bound=Callable[..., Any])


class ParamType(click.ParamType):  # type: ignore[type-arg]
    """A type of an option's own, without the parameter that only the latest versions of click have."""


class FiniteRange(click.FloatRange):
    """A range that holds neither NaN, which is beyond no bound, nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return found


class _Text(click.types.StringParamType):
    """Several in one environment variable stand on lines of their own; lines without anything are left out."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return [line for line in rv.replace("\r\n", "\n").split("\n") if line.strip()]


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """click.option with its environment variable. `multiple` ones are texts, of which that holds one a line."""
    long = next(name for name in names if name.startswith("--"))
    variable = "GRISTMILL_" + long.split("/")[0].removeprefix("--").replace("-", "_").upper()
    if settings.get("multiple"):
        settings["type"] = _Text()
    return click.option(*names, envvar=variable, show_default=True, **settings)


def check_key(key: str | None) -> None:
    """A server may take several, a line each; whoever asks it shows one. UsageError for what is none."""
    if key is not None and len(key.split()) != 1:
        raise click.BadParameter("is no key: give one, without white space", param_hint="'--api-key'")


api_key = option("--api-key", help="the server's key; better in GRISTMILL_API_KEY, which other users do not see")
model = click.option(
    "-m",
    "--model",
    envvar="GRISTMILL_MODEL",
    default=str(STORY_MODEL),
    show_default="the story model that comes along",
    help="model file or folder, or ORG/NAME[:QUANT] of a pulled model",
)
tokenizer = option("--tokenizer", help="vocabulary file, where the model has none in or beside it")
threads = option("--threads", type=click.IntRange(1, 1024), help="threads [default: one a core]")
context = option(
    "--ctx", "context", type=int, help="tokens of prompt and answer together [default: the model's, to 8192]"
)
kv_type = option(
    "--kv-type",
    type=click.Choice(["f16", "f32", "q8_0"]),
    default="f16",
    help="what keys and values are kept in (f16 is bfloat16 where AVX-512 or AMX multiplies that fast)",
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
device = option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="where to compute; auto is the processor",
)
processor = option(
    "--device", type=click.Choice(["auto", "cpu"]), default="auto", help="where to compute: the processor alone"
)
gpu_memory_fraction = option(
    "--gpu-memory-fraction",
    type=FiniteRange(0, 1, min_open=True),
    default=0.9,
    metavar="SHARE",
    help="of a card's memory that weights and cache may take",
)
generation_config = option(
    "--generation-config",
    type=click.Choice(["auto", "none"]),
    default="auto",
    help="how tokens are chosen where nothing is said: auto, as the model's files recommend; none: not by these",
)
as_json = option("--json", "as_json", is_flag=True, help="print JSON for scripts")
chat_template = option("--chat-template", help="a Jinja2 file to use instead of the model's own template")


@dataclass(frozen=True, slots=True)
class Loading:
    """How a command that generates loads its model: the options of these names."""

    speculate: int
    draft: str | None
    tokenizer: str | None
    context: int | None
    threads: int | None
    kv_type: str
    quantize: str
    device: str
    gpu_memory_fraction: float
    generation_config: str
    chat_template: str | None


_LOADING = (
    *(speculate, draft, tokenizer, context, threads, kv_type, quantize, device, gpu_memory_fraction),
    generation_config,
)


def loading(command: Callable[..., None]) -> Callable[..., None]:
    """Adds these options, but for --chat-template, to a command that is given all of them as one, `how: Loading`."""
    names = [field.name for field in fields(Loading)]

    @wraps(command)
    def gathered(**given: Any) -> None:
        how = Loading(**{name: given.pop(name) for name in names})
        command(how=how, **given)

    for add in reversed(_LOADING):
        gathered = add(gathered)
    return gathered


def given(name: str) -> bool:
    """Whether the command line has it, and not a default or the environment."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(names: Iterable[str], reason: str) -> None:
    """UsageError for the first of these options that is given."""
    for name in filter(given, names):
        flag = "--ctx" if name == "context" else f"--{name.replace('_', '-')}"
        raise click.UsageError(f"{flag} {reason}")
