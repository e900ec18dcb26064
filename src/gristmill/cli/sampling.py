"""Options that say how tokens are chosen, and what they become: one SamplingParams. It knows no model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gristmill.cli.options import option
from gristmill.cli.text_file import read_text_file
from gristmill.types import RECOMMENDED, SamplingParams, StructuredOutputsParams

F = TypeVar("F", bound=Callable[..., Any])

USUAL: Final[Mapping[str, float]] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""How tokens are chosen where neither a person nor the model's makers say it: as llama.cpp does."""

_STRUCTURE: Final = f"{__name__}.structured_outputs"
_BIAS = re.compile(r"(\d+)(?:=([+-]?[\d.]+)|([+-][\d.]+))")


class Limit(click.types.IntParamType):
    """A number of tokens, at least 1, or -1 for as many as there is room for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        limit: int = super().convert(value, param, ctx)
        if limit < 1 and limit != -1:
            self.fail(f"{limit} is neither at least 1 nor -1, which is until the context is full", param, ctx)
        return limit


def chosen_by_models(make: Callable[..., Callable[[F], F]]) -> tuple[Callable[[F], F], ...]:
    """The options, made by `make`, that a model's makers may have recommended a value of."""

    def of_model(*names: str, help: str, **how: Any) -> Callable[[F], F]:
        default = USUAL.get(names[-1])
        usual = "the model's" if default is None else f"the model's, or {default}"
        return make(*names, default=None, help=f"{help} [default: {usual}]", **how)

    return (
        of_model("--temp", "temperature", type=float, help="0 always takes the likeliest token"),
        of_model("--top-k", "top_k", type=int, help="keep the k likeliest; 0 keeps all"),
        of_model("--top-p", "top_p", type=float, help="keep the likeliest that make up this share"),
        of_model("--min-p", "min_p", type=float, help="drop what is less likely than this share of the likeliest"),
        of_model(
            *("--repetition-penalty", "--repeat-penalty", "repetition_penalty"),
            type=float,
            help="over 1: tokens that are in the prompt or the answer become less likely",
        ),
    )


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Values wait in the context, so that a command needs no twenty arguments that it would only hand on."""
    ctx.meta[f"{__name__}.{parameter.name}"] = value
    return value


def _option(*names: str, **settings: Any) -> Callable[[F], F]:
    return option(*names, expose_value=False, callback=_keep, **settings)


_OPTIONS = (
    _option(
        "-n", "--max-tokens", type=Limit(), default=256, help="most tokens to write; -1: until the context is full"
    ),
    _option("--min-tokens", type=int, default=0, help="least tokens to write before an end"),
    *chosen_by_models(_option),
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

# What SamplingParams has under the same names.
_SAME = ("min_tokens", "presence_penalty", "frequency_penalty", "seed", "stop", "ignore_eos", "logprobs")

_FLAGS: Final[Mapping[str, str]] = {
    **{name: f"--{name.replace('_', '-')}" for name in (*RECOMMENDED, *_SAME, "max_tokens", "logit_bias")},
    "temperature": "--temp",
    "structured_outputs": "--json-schema, --regex, --choice or --grammar",
    "structured_outputs.json": "--json-schema",
    **{f"structured_outputs.{name}": f"--{name}" for name in ("regex", "choice", "grammar")},
}
"""What sets the fields that errors name."""

_FIELD = re.compile(rf"(?<![\w/.-])({'|'.join(sorted(map(re.escape, _FLAGS), reverse=True))})(?![\w/.-])")


def sampling(command: F) -> F:
    """Adds all of these options to a command, which asks `params_of` for what was given."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def params_of(ctx: click.Context, recommended: Mapping[str, float] | None = None) -> SamplingParams:
    """ValueError or click.UsageError for what makes no sense. recommended: by the model's makers."""

    def given(name: str) -> Any:
        return ctx.meta[f"{__name__}.{name}"]

    own = {name: given(name) for name in RECOMMENDED if given(name) is not None}
    with naming_options():
        if _STRUCTURE not in ctx.meta:  # the file may be a pipe, which can be read once
            ctx.meta[_STRUCTURE] = _structure(*map(given, ("json_schema", "regex", "choice", "grammar")))
        return SamplingParams(
            **{**USUAL, **(recommended or {}), **own},
            max_tokens=None if given("max_tokens") == -1 else given("max_tokens"),
            logit_bias=dict(map(_parse_bias, given("logit_bias"))) or None,
            structured_outputs=ctx.meta[_STRUCTURE],
            **{name: given(name) for name in _SAME},
        )


@contextmanager
def naming_options() -> Iterator[None]:
    """Errors about fields of SamplingParams speak of the options instead, which is what a user gave."""
    try:
        yield
    except ValueError as error:
        about, colon, rest = str(error).partition(":")
        named = _FIELD.sub(lambda match: _FLAGS[match[0]], about)
        if named == about:
            raise
        raise ValueError(named + colon + rest) from error


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
        return read_text_file(Path(name))
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None
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
