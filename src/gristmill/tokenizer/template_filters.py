"""Filters and tests that templates may use: Jinja's own where they stay within what they are given, ours elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from jinja2 import filters as jinja
from jinja2 import pass_context, pass_environment
from jinja2.runtime import Context, Undefined
from jinja2.tests import TESTS as JINJA_TESTS
from markupsafe import escape

from gristmill.tokenizer import template_text as texts
from gristmill.tokenizer.interface import TemplateError
from gristmill.tokenizer.template_methods import METHODS, join, print_format, replace

if TYPE_CHECKING:
    from gristmill.tokenizer.template_sandbox import SandboxEnvironment

_MAX_UNIQUE: Final = 4096
_MAX_INDENT: Final = 32
_PATH_PART: Final = 64  # bytes of a part of an attribute's path "a.b.c", however short


def _text_filter(function: Callable[[str], str], bytes_each: int = 16) -> Callable[..., str]:
    """bytes_each: what `function` makes of a character, at most."""

    @pass_environment
    def run(environment: SandboxEnvironment, value: Any) -> str:
        text = environment.text_of(value)
        environment.budget.charge(bytes_each * len(text))
        return texts.derive(str(function(texts.plain(text))), text)

    return run


def _charge_paths(environment: SandboxEnvironment, *arguments: Any) -> None:
    """For arguments of which any may be the path of an attribute, which Jinja cuts into its parts."""
    n_parts = sum(str.count(path, ".") for path in arguments if isinstance(path, str))
    environment.budget.charge(_PATH_PART * n_parts)


def _weighed(function: Callable[..., Any], factor: int = 1) -> Callable[..., Any]:
    """A filter of Jinja's that takes the environment and a finite value; at most `factor` times its size is made."""

    @pass_environment
    def run(environment: SandboxEnvironment, value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, Iterator):
            value = list(environment.items(value))
        weight = environment.weigh(value) + environment.weigh(args) + environment.weigh(kwargs)
        environment.budget.charge(factor * weight)
        result = function(environment, value, *args, **kwargs)
        return environment.number(result)

    return run


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """For filters that do not take the environment."""
    return lambda _environment, *args, **kwargs: function(*args, **kwargs)


def _lazily(function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        environment: Any = context.environment
        _charge_paths(environment, *args, *kwargs.values())
        if isinstance(value, Undefined) or not value:
            return function(context, value, *args, **kwargs)
        return function(context, environment.items(value), *args, **kwargs)

    return run


@pass_environment
def _trim(environment: SandboxEnvironment, value: Any, chars: str | None = None) -> str:
    result: str = METHODS[str]["strip"](environment, environment.text_of(value), chars)
    return result


@pass_environment
def _replace(environment: SandboxEnvironment, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = (environment.text_of(part) for part in (value, old, new))
    return replace(environment, text, old, new, -1 if count is None else count)


@pass_environment
def _join(environment: SandboxEnvironment, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = environment.items(value)
    if attribute is not None:
        _charge_paths(environment, attribute)
        items = map(jinja.make_attrgetter(environment, attribute), items)
    return join(environment, environment.text_of(d), [environment.text_of(item) for item in items])


@pass_environment
def _format(environment: SandboxEnvironment, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TypeError("format takes positional or named values, not both")
    return print_format(environment, environment.text_of(value), kwargs or args)


@pass_environment
def _indent(
    environment: SandboxEnvironment, s: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    text = environment.text_of(s)
    size = len(width) if isinstance(width, str) else width
    environment.budget.charge(64 * len(text) + 5 * size * (1 + str.count(text, "\n")))
    return texts.derive(jinja.do_indent(texts.plain(text), width, first, blank), text)


@pass_environment
def _center(environment: SandboxEnvironment, value: Any, width: int = 80) -> str:
    result: str = METHODS[str]["center"](environment, environment.text_of(value), width)
    return result


@pass_environment
def _reverse(environment: SandboxEnvironment, value: Any) -> Any:
    if isinstance(value, str):
        return environment.cut(value, None, None, -1)
    items = list(environment.items(value)) if isinstance(value, Iterator) else value
    return list(environment.items(reversed(items)))


@pass_environment
def _sum(environment: SandboxEnvironment, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    items = environment.items(iterable)
    if attribute is not None:
        _charge_paths(environment, attribute)
        items = map(jinja.make_attrgetter(environment, attribute), items)
    for item in items:
        start = environment.call_binop(None, "+", start, item)  # type: ignore[arg-type]
    return start


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > 30:
        raise TemplateError(f"rounds to {precision} places")
    return jinja.do_round(value, precision, method)  # type: ignore[arg-type]


def _unique(environment: SandboxEnvironment, value: Any, *args: Any, **kwargs: Any) -> list[Any]:
    if len(value) > _MAX_UNIQUE:
        raise TemplateError(f"asks for unique ones of {len(value)} items; {_MAX_UNIQUE} are allowed")
    return list(jinja.do_unique(environment, value, *args, **kwargs))


@pass_environment
def _to_json(
    environment: SandboxEnvironment,
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Python writes it, without escapes for HTML."""
    wide = len(indent) if isinstance(indent, str) else indent or 0
    if wide > _MAX_INDENT or environment.weigh(separators) > 256:
        raise TemplateError(f"indents JSON by {wide} characters or has long separators; {_MAX_INDENT} are allowed")
    factor = 2 if indent is None else 16 + 2 * wide  # each value stands on a line of its own, indented as deep as it is
    environment.budget.charge(factor * environment.weigh(x))
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": _weighed(_plain(abs)),
        "capitalize": _text_filter(str.capitalize),
        "center": _center,
        "count": len,
        "d": jinja.do_default,
        "default": jinja.do_default,
        "dictsort": _weighed(_plain(jinja.do_dictsort), 4),
        "e": _text_filter(escape),
        "escape": _text_filter(escape),
        "first": jinja.do_first,
        "float": _weighed(_plain(jinja.do_float)),
        "format": _format,
        "indent": _indent,
        "int": _weighed(_plain(jinja.do_int)),
        "items": jinja.do_items,
        "join": _join,
        "last": jinja.do_last,
        "length": len,
        "list": pass_environment(lambda environment, value: list(environment.items(value))),
        "lower": _text_filter(str.lower),
        "map": _lazily(jinja.do_map),
        "max": _weighed(jinja.do_max, 4),
        "min": _weighed(jinja.do_min, 4),
        "reject": _lazily(jinja.do_reject),
        "rejectattr": _lazily(jinja.do_rejectattr),
        "replace": _replace,
        "reverse": _reverse,
        "round": _weighed(_plain(_round)),
        "safe": pass_environment(lambda environment, value: environment.text_of(value)),
        "select": _lazily(jinja.do_select),
        "selectattr": _lazily(jinja.do_selectattr),
        "sort": _weighed(jinja.do_sort, 16),
        "string": pass_environment(lambda environment, value: environment.text_of(value)),
        "sum": _sum,
        "title": _text_filter(jinja.do_title, bytes_each=64),
        "tojson": _to_json,
        "trim": _trim,
        "truncate": _weighed(jinja.do_truncate, 4),
        "unique": _weighed(_unique, 4),
        "upper": _text_filter(str.upper),
        "wordcount": _weighed(_plain(jinja.do_wordcount), 64),
    }
)


def _of_int(test: Callable[[int], bool]) -> Callable[[Any], bool]:
    def run(value: Any) -> bool:
        if not isinstance(value, int | float):
            raise TypeError(f"{type(value).__name__} is no number")
        return test(value)  # type: ignore[arg-type]

    return run


def _divisible(value: Any, number: int) -> bool:
    return _of_int(lambda n: n % number == 0)(value)


def _comparing(name: str) -> Callable[..., Any]:
    return pass_environment(lambda environment, left, right: environment.compare(name, left, right))


_SIMPLE = """boolean callable defined false float integer iterable mapping none number sameas sequence string true
undefined"""
_COMPARING = {
    "eq": "== eq equalto",
    "ne": "!= ne",
    "gt": "> gt greaterthan",
    "gteq": ">= ge",
    "lt": "< lt lessthan",
    "lteq": "<= le",
    "in": "in",
}

TESTS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: cast(Callable[..., Any], JINJA_TESTS[name]) for name in _SIMPLE.split()},
        **{name: _comparing(kind) for kind, names in _COMPARING.items() for name in names.split()},
        "odd": _of_int(lambda value: value % 2 == 1),
        "even": _of_int(lambda value: value % 2 == 0),
        "divisibleby": _divisible,
        "lower": lambda value: isinstance(value, str) and value.islower(),
        "upper": lambda value: isinstance(value, str) and value.isupper(),
        "filter": pass_environment(lambda environment, value: isinstance(value, str) and value in environment.filters),
        "test": pass_environment(lambda environment, value: isinstance(value, str) and value in environment.tests),
    }
)
