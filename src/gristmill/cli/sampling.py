"""Options that say how tokens are chosen, and what they become: one SamplingParams. It knows no model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gristmill.cli.options import option
from gristmill.types import SamplingParams, StructuredOutputsParams

F = TypeVar("F", bound=Callable[..., Any])

_BIAS = re.compile(r"(\d+)(?:=([+-]?[\d.]+)|([+-][\d.]+))")


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Values wait in the context, so that a command needs no twenty arguments that it would only hand on."""
    ctx.meta[f"{__name__}.{parameter.name}"] = value
    return value


def _option(*names: str, **settings: Any) -> Callable[[F], F]:
    return option(*names, expose_value=False, callback=_keep, **settings)


_OPTIONS = (
    _option("-n", "--max-tokens", type=int, default=256, help="most tokens to write; -1: until the context is full"),
    _option("--min-tokens", type=int, default=0, help="least tokens to write before an end"),
    _option("--temp", type=float, default=0.8, help="0 always takes the likeliest token"),
    _option("--top-k", type=int, default=40, help="keep the k likeliest; 0 keeps all"),
    _option("--top-p", type=float, default=0.95, help="keep the likeliest that make up this share"),
    _option("--min-p", type=float, default=0.05, help="drop what is less likely than this share of the likeliest"),
    _option(
        "--repetition-penalty",
        "--repeat-penalty",
        type=float,
        default=1.0,
        help="over 1: tokens that are in the prompt or the answer become less likely",
    ),
    _option("--presence-penalty", type=float, default=0.0, help="taken from logits of tokens in the answer"),
    _option("--frequency-penalty", type=float, default=0.0, help="taken from them as often as they are in the answer"),
    _option(
        "--logit-bias",
        multiple=True,
        metavar="ID+BIAS",
        help="added to a token's logit: 15043+1, 15043-2.5 or 15043=-100; may be given several times",
    ),
    _option("--seed", type=int, help="the same seed gives the same text [default: a new one each time]"),
    _option("--stop", multiple=True, help="text that ends the answer; may be given several times"),
    _option("--ignore-eos", is_flag=True, help="go on after an end-of-text token"),
    _option("--logprobs", type=int, help="with --json: logprobs of this many alternatives a token"),
    _option("--json-schema", metavar="FILE|TEXT", help="the answer is JSON of this schema"),
    _option("--regex", help="the whole answer matches this regular expression"),
    _option("--choice", multiple=True, help="the answer is one of these texts; give it several times"),
    _option("--grammar", metavar="FILE", help="the answer keeps to this Lark grammar, which begins at the rule start"),
)

_SAME = (  # what SamplingParams has under the same names
    *("min_tokens", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("seed", "stop", "ignore_eos", "logprobs"),
)


def sampling(command: F) -> F:
    """Adds all of these options to a command, which asks `params_of` for what was given."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def params_of(ctx: click.Context) -> SamplingParams:
    """ValueError or click.UsageError for what makes no sense."""

    def given(name: str) -> Any:
        return ctx.meta[f"{__name__}.{name}"]

    return SamplingParams(
        temperature=given("temp"),
        max_tokens=None if given("max_tokens") == -1 else given("max_tokens"),
        logit_bias=dict(map(_parse_bias, given("logit_bias"))) or None,
        structured_outputs=_structure(given("json_schema"), given("regex"), given("choice"), given("grammar")),
        **{name: given(name) for name in _SAME},
    )


def _structure(
    json_schema: str | None, regex: str | None, choice: tuple[str, ...], grammar: str | None
) -> StructuredOutputsParams | None:
    flags = {"--json-schema": json_schema, "--regex": regex, "--choice": choice or None, "--grammar": grammar}
    names = [name for name, value in flags.items() if value is not None]
    if len(names) > 1:
        raise click.UsageError(f"an answer keeps to one of these: {' and '.join(names)} cannot be given together")
    if json_schema is not None:
        is_text = json_schema.lstrip().startswith("{")
        return StructuredOutputsParams(json=json_schema if is_text else _read("--json-schema", json_schema))
    if grammar is not None:
        return StructuredOutputsParams(grammar=_read("--grammar", grammar))
    if choice:
        return StructuredOutputsParams(choice=choice)
    return None if regex is None else StructuredOutputsParams(regex=regex)


def _read(flag: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{flag}: {name} is not UTF-8 text") from None
    except OSError as error:
        raise click.UsageError(f"{flag}: {name}: {error.strerror or error}") from None


def _parse_bias(text: str) -> tuple[int, float]:
    matched = _BIAS.fullmatch(text.replace(" ", ""))
    try:
        if matched is not None:
            return int(matched[1]), float(matched[2] or matched[3])
    except ValueError:
        pass
    raise click.UsageError(f"--logit-bias must be a token id and a number, as in 15043+1 or 15043=-100, not {text!r}")
