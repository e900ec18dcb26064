"""Methods of values that templates may call, each charged before it runs.

Text keeps its origin where that is certain."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gristmill.tokenizer import template_text as texts
from gristmill.tokenizer.interface import TemplateError

if TYPE_CHECKING:
    from gristmill.tokenizer.template_sandbox import SandboxEnvironment

Method = Callable[..., Any]
_MAX_WIDTH: Final = 1000
_PART: Final = 256  # bytes of a text and its mask in a list, however short
_CONVERSION = re.compile(r"%(?:\((\w*)\))?([#0\- +]*)(\d{0,4})(?:\.(\d{0,4}))?([a-zA-Z%])")
_FIELD = re.compile(r"(\w*)((?:\.\w+|\[[^\[\]]+\])*)")
_SPEC = re.compile(r"[^{}]{0,20}")

_LINE_ENDS: Final = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_BLANKS: Final = _LINE_ENDS + "\t \x1f\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _count_any(text: str, characters: str) -> int:
    return sum(str.count(text, character) for character in characters)


def _linear(name: str) -> Method:
    """A method of str that reads its text and arguments once or so, and gives no more than it reads."""
    function = getattr(str, name)

    def run(environment: SandboxEnvironment, text: str, *args: Any, **kwargs: Any) -> Any:
        environment.budget.charge(8 * len(text) + environment.weigh(args))
        result = function(text, *args, **kwargs)
        return texts.derive(result, text, *args) if isinstance(result, str) else result

    return run


def _from_right(name: str) -> Method:
    """One that searches from the right, which takes the product of both lengths at worst."""
    linear = _linear(name)

    def run(environment: SandboxEnvironment, text: str, part: str, *args: Any) -> Any:
        environment.budget.charge(len(text) * len(part))
        return linear(environment, text, part, *args)

    return run


def _padding(name: str) -> Method:
    function = getattr(str, name)

    def run(environment: SandboxEnvironment, text: str, width: int, *args: str) -> str:
        environment.budget.charge(8 * max(len(text), width))
        return texts.derive(function(text, width, *args), text, *args)

    return run


def _stripping(*, left: bool, right: bool) -> Method:
    def run(environment: SandboxEnvironment, text: str, chars: str | None = None) -> str:
        environment.budget.charge(8 * len(text) + len(text) * len(chars or ""))
        return texts.strip(text, chars, left=left, right=right)

    return run


def _splitting(*, from_right: bool) -> Method:
    def run(environment: SandboxEnvironment, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        n_parts = 1 + (_count_any(text, _BLANKS) if sep is None else text.count(sep))
        n_parts = n_parts if maxsplit < 0 else min(n_parts, maxsplit + 1)
        environment.budget.charge(8 * len(text) + _PART * n_parts + (len(text) * len(sep or "") if from_right else 0))
        return texts.split(text, sep, maxsplit, from_right=from_right)

    return run


def _split_lines(environment: SandboxEnvironment, text: str, keepends: bool = False) -> list[str]:
    environment.budget.charge(8 * len(text) + _PART * _count_any(text, _LINE_ENDS))
    ends = str.splitlines(text, keepends=True)
    environment.budget.charge(_PART * len(ends))
    found, at = [], 0
    for shown, whole in zip(str.splitlines(text, keepends), ends, strict=True):
        found.append(texts.cut(text, slice(at, at + len(shown))))
        at += len(whole)
    return found


def _partition(environment: SandboxEnvironment, text: str, sep: str) -> tuple[str, str, str]:
    environment.budget.charge(8 * len(text))
    return _around(text, str.find(text, sep) if sep else -1, sep, found_at_end=False)


def _partition_right(environment: SandboxEnvironment, text: str, sep: str) -> tuple[str, str, str]:
    environment.budget.charge(8 * len(text) + len(text) * len(sep))
    return _around(text, str.rfind(text, sep) if sep else -1, sep, found_at_end=True)


def _around(text: str, at: int, sep: str, *, found_at_end: bool) -> tuple[str, str, str]:
    if not sep:
        raise ValueError("empty separator")
    if at < 0:
        return ("", "", text) if found_at_end else (text, "", "")
    end = at + len(sep)
    return texts.cut(text, slice(0, at)), texts.cut(text, slice(at, end)), texts.cut(text, slice(end, None))


def replace(environment: SandboxEnvironment, text: str, old: str, new: str, count: int = -1) -> str:
    n_found = str.count(text, old)
    environment.budget.charge(8 * len(text) + (_PART + 8 * len(new)) * (n_found if count < 0 else min(count, n_found)))
    return texts.replace(text, old, new, count)


def join(environment: SandboxEnvironment, separator: str, items: Any) -> str:
    pieces = list(environment.items(items))
    environment.budget.charge(sum(8 * len(piece) for piece in pieces) + 8 * len(separator) * len(pieces))
    return texts.join(pieces, separator)


def _without_prefix(environment: SandboxEnvironment, text: str, prefix: str) -> str:
    environment.budget.charge(8 * len(text))
    return texts.cut(text, slice(len(prefix), None)) if prefix and str.startswith(text, prefix) else text


def _without_suffix(environment: SandboxEnvironment, text: str, suffix: str) -> str:
    environment.budget.charge(8 * len(text))
    return texts.cut(text, slice(0, len(text) - len(suffix))) if suffix and str.endswith(text, suffix) else text


def print_format(environment: SandboxEnvironment, form: str, values: Any) -> str:
    """`form % values`. Widths are limited; %c is not there, as it makes characters of numbers."""
    named = values if isinstance(values, Mapping) else None
    waiting = list(values) if isinstance(values, tuple) else [values]
    pieces: list[str] = []
    at = n_used = 0
    while (found := str.find(form, "%", at)) >= 0:
        environment.budget.charge(2 * _PART)
        match = _CONVERSION.match(form, found)
        if match is None or match[5] not in "sdiufFeEgGxXor%":
            raise TemplateError(f"formats with {texts.plain(form)[found : found + 12]!r}")
        pieces.append(texts.cut(form, slice(at, found)))
        at = match.end()
        if match[5] == "%":
            pieces.append(texts.cut(form, slice(found, found + 1)))
            continue
        if match[1] is not None:
            value = (named or {})[match[1]]
        else:
            if n_used == len(waiting):
                raise TypeError("not enough arguments for format string")
            value, n_used = waiting[n_used], n_used + 1
        pieces.append(_print_one(environment, match, value))
    if n_used < len(waiting) and named is None:
        raise TypeError("not all arguments converted during string formatting")
    pieces.append(texts.cut(form, slice(at, None)))
    return environment.concat(pieces)


def _print_one(environment: SandboxEnvironment, match: re.Match[str], value: Any) -> str:
    flags, width, precision, kind = match[2], match[3], match[4], match[5]
    if max(int(width or 0), int(precision or 0)) > _MAX_WIDTH:
        raise TemplateError(f"formats to a width of more than {_MAX_WIDTH}")
    if kind == "s" and not (flags or width or precision is not None):
        return environment.text_of(value)
    if kind in "sr":
        environment.budget.charge(10 * environment.weigh(value))
        value = environment.text_of(value) if kind == "s" else value
        environment.text_of(value)  # refuses what has no text
    elif not isinstance(value, int | float):
        raise TypeError(f"%{kind} needs a number")
    precise = "" if precision is None else f".{precision}"
    return f"%{flags}{width}{precise}{kind}" % (value,)


def _format(environment: SandboxEnvironment, form: str, *args: Any, **kwargs: Any) -> str:
    """`form.format(...)`. Literal text is the author's when all of `form` is."""
    pieces: list[str] = []
    n_used = 0
    is_authors = isinstance(form, texts.Marked) and form.fully
    for literal, field, spec, conversion in Formatter().parse(form):
        environment.budget.charge(2 * _PART)
        pieces.append(texts.mark(literal) if is_authors else literal)
        if field is None:
            continue
        match = _FIELD.fullmatch(field)
        if match is None or conversion not in (None, "s") or not _SPEC.fullmatch(spec or ""):
            raise TemplateError(f"formats with {field!r:.40} and {spec!r:.40}")
        name = match[1]
        if not name:
            name, n_used = str(n_used), n_used + 1
        value = args[int(name)] if name.isdecimal() else kwargs[name]
        for attribute, item in re.findall(r"\.(\w+)|\[([^\[\]]+)\]", match[2]):
            key = int(item) if item.isdecimal() else item
            value = environment.getattr(value, attribute) if attribute else environment.getitem(value, key)
        pieces.append(_format_one(environment, value, spec or ""))
    return environment.concat(pieces)


def _format_one(environment: SandboxEnvironment, value: Any, spec: str) -> str:
    if not spec:
        return environment.text_of(value)
    if any(int(number) > _MAX_WIDTH for number in re.findall(r"\d+", spec)):
        raise TemplateError(f"formats to a width of more than {_MAX_WIDTH}")
    if not isinstance(value, str | int | float) or spec.endswith("c"):
        raise TemplateError(f"formats {type(value).__name__} with {spec!r}")
    environment.budget.charge(8 * len(value) if isinstance(value, str) else _MAX_WIDTH)
    return format(texts.plain(value) if isinstance(value, str) else value, spec)


def _of(kind: type, name: str) -> Method:
    """A method of a container, as it is; what it hashes or compares is weighed."""
    function = getattr(kind, name)

    def run(environment: SandboxEnvironment, container: Any, *args: Any) -> Any:
        if kind is dict:
            environment.weigh(args)
            environment.budget.charge(100 * len(container) if name == "copy" else 0)
        else:
            environment.weigh((container, *args))
        return function(container, *args)

    return run


_LINEAR = """capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier
islower isnumeric isprintable isspace istitle isupper lower startswith swapcase title upper"""

METHODS: Mapping[type, Mapping[str, Method]] = MappingProxyType(
    {
        str: MappingProxyType(
            {
                **{name: _linear(name) for name in _LINEAR.split()},
                **{name: _from_right(name) for name in ("rfind", "rindex")},
                **{name: _padding(name) for name in ("center", "ljust", "rjust", "zfill")},
                "strip": _stripping(left=True, right=True),
                "lstrip": _stripping(left=True, right=False),
                "rstrip": _stripping(left=False, right=True),
                "split": _splitting(from_right=False),
                "rsplit": _splitting(from_right=True),
                "splitlines": _split_lines,
                "partition": _partition,
                "rpartition": _partition_right,
                "replace": replace,
                "join": join,
                "removeprefix": _without_prefix,
                "removesuffix": _without_suffix,
                "format": _format,
            }
        ),
        dict: MappingProxyType({name: _of(dict, name) for name in ("get", "items", "keys", "values", "copy")}),
        list: MappingProxyType({name: _of(list, name) for name in ("count", "index", "copy")}),
        tuple: MappingProxyType({name: _of(tuple, name) for name in ("count", "index")}),
    }
)
