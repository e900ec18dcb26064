"""Jinja2's immutable sandbox for templates of unknown authors: what they may touch, and a budget for what they do.

Knows nothing of chats. Every operation that reads or makes more than a few bytes is charged before it is done, and each
charge looks at the clock; so a template ends within its budget wherever it runs, without threads or signals."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from types import BuiltinMethodType, CodeType, MethodType
from typing import Any, Final, NoReturn

from jinja2 import Template, pass_environment
from jinja2 import TemplateError as JinjaError
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from gristmill.tokenizer import template_text as texts
from gristmill.tokenizer.interface import TemplateError
from gristmill.tokenizer.template_code import TICK, Generation, Generator, check_tree, insert_ticks
from gristmill.tokenizer.template_filters import FILTERS, TESTS
from gristmill.tokenizer.template_methods import METHODS, print_format
from gristmill.tokenizer.template_text import Marked

MAX_SOURCE_CHARS: Final = 1 << 17
MAX_CALLS_DEEP: Final = 100
MAX_VALUES_DEEP: Final = 100
MAX_RANGE: Final = 100_000
MAX_SECONDS: Final = 1.0
MAX_BYTES: Final = 96 << 20
"""Bytes that a rendering may make and read, in sum; and for each character that it is given:"""
BYTES_PER_CHARACTER: Final = 64

_FILE_NAME = "<chat template>"
_VIEWS: tuple[type, ...] = (type({}.items()), type({}.keys()), type({}.values()))
_CONTAINERS: tuple[Any, ...] = (list, tuple, dict, *_VIEWS)
_WEIGHED_AT_ONCE = 1 << 16
_STEP = 64  # bytes that any small operation counts as
_LOOP_ATTRIBUTES = frozenset(
    ("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0", "previtem", "nextitem")
) | {"changed", "cycle"}
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


class Budget:
    """What one rendering may still spend."""

    def __init__(self, n_bytes: int, deadline: float) -> None:
        self.n_bytes = self._left = n_bytes
        self._deadline = deadline

    def charge(self, n_bytes: int) -> None:
        """Before an operation that makes or reads so many bytes. Raises TemplateError when that is too much."""
        if not isinstance(n_bytes, int) or n_bytes < 0:  # a width that is negative or NaN must not buy more
            raise TemplateError("counts or measures text with something else than a natural number")
        self._left -= n_bytes
        if self._left < 0:
            raise TemplateError(
                f"makes and reads more than the {self.n_bytes >> 20} MiB of text and values that it may"
            )
        if time.monotonic() > self._deadline:
            raise TemplateError(f"takes more than the {MAX_SECONDS} s that it may")


@dataclass(frozen=True, slots=True)
class _Global:
    """A function that templates find by name."""

    run: Callable[..., Any]


class SandboxEnvironment(ImmutableSandboxedEnvironment):
    """What one rendering sees of the world, and its budget. Belongs to one thread.

    clock  local time for `strftime_now`
    """

    code_generator_class = Generator
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(
        self, budget: Budget, clock: Callable[[], datetime], extensions: tuple[type[Extension], ...] = ()
    ) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, cache_size=0, extensions=extensions)
        self.budget = budget
        self._clock = clock
        self._calls_deep = 0
        self._literals: dict[str, Marked] = {}
        self.filters = {**FILTERS, TICK: _tick}
        self.tests = dict(TESTS)
        self.globals = {
            "raise_exception": _Global(self._refuse),
            "strftime_now": _Global(self._strftime),
            "range": _Global(_make_range),
            "namespace": _Global(self._make_namespace),
            "dict": _Global(self._make_dict),
        }

    def tick(self) -> bool:
        """One more step of a loop."""
        self.budget.charge(_STEP)
        return True

    def literal(self, text: str) -> Marked:
        """A constant of the template."""
        found = self._literals.get(text)
        if found is None:
            found = self._literals[text] = texts.mark(text)
        return found

    def text_of(self, value: Any) -> str:
        """What printing `value` gives. TemplateError for what has no text of its own, such as a function."""
        if isinstance(value, str):
            self.budget.charge(_STEP)
            return value
        if value is None or isinstance(value, bool | int | float | Undefined):
            return str(value)
        if isinstance(value, (range, *_CONTAINERS)):
            self.budget.charge(10 * self.weigh(value))
            return str(value)
        raise TemplateError(f"prints {_kind(value)}")

    def concat(self, pieces: Iterable[Any]) -> str:
        found = [self.text_of(piece) for piece in pieces]
        self.budget.charge(sum(map(n_bytes_of, found)))
        return texts.join(found)

    def weigh(self, value: Any) -> int:
        """Bytes that a walk over `value` passes by, where what is held twice counts twice. Charged as it goes.

        Raises TemplateError also where values nest too deep: Python hashes tuples by recursion and checks no depth.
        """
        total, charged = 0, 0
        around: list[Iterator[Any]] = [iter((value,))]
        while around:
            for item in around[-1]:
                total += _weight_of(item)
                if total - charged > _WEIGHED_AT_ONCE:
                    self.budget.charge(total - charged)
                    charged = total
                if isinstance(item, _CONTAINERS):
                    around.append(chain(item, item.values()) if isinstance(item, dict) else iter(item))
                    break
            else:
                around.pop()
            if len(around) > MAX_VALUES_DEEP:
                raise TemplateError(f"nests values more than {MAX_VALUES_DEEP} deep")
        self.budget.charge(total - charged)
        return total

    def items(self, value: Any) -> Iterator[Any]:
        """`iter(value)`, each step charged."""
        for item in value:
            self.budget.charge(_STEP)
            yield item

    def made(self, container: Any) -> Any:
        """A list or tuple that the template wrote down."""
        self.budget.charge(_STEP + 16 * len(container))
        return container

    def make_dict(self, keys_and_values: tuple[Any, ...]) -> dict[Any, Any]:
        """A dict that the template wrote down: key, value, key, value."""
        keys = keys_and_values[::2]
        self.budget.charge(_STEP + 100 * len(keys))
        self.weigh(keys)  # they will be hashed
        return dict(zip(keys, keys_and_values[1::2], strict=True))

    def compare_chain(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        result: Any = True
        for name, left, right in zip(names, values[:-1], values[1:], strict=True):
            result = self.compare(name, left, right)
            if not result:
                break
        return result

    def compare(self, name: str, left: Any, right: Any) -> Any:
        """name: as Jinja calls the operator: eq, ne, gt, gteq, lt, lteq, in, notin."""
        inside = name in ("in", "notin")
        if isinstance(left, str) and isinstance(right, str):
            self.budget.charge(_STEP + (len(right) if inside else min(len(left), len(right))))
        else:
            if inside and not isinstance(right, str | list | tuple | dict | range | Undefined):
                right = list(self.items(right))
            self.weigh(left)
            if not (inside and isinstance(right, dict)):
                self.weigh(right)
        return _COMPARE[name](left, right)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.charge(_STEP)
        if isinstance(left, str) and operator == "%":
            return print_format(self, left, right)
        if isinstance(left, Undefined) or isinstance(right, Undefined):
            return super().call_binop(context, operator, left, right)
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            self.budget.charge(n_bytes_of(left) + n_bytes_of(right))
            return texts.join((left, right))
        if operator == "*" and isinstance(left, int):
            left, right = right, left
        if operator == "*" and isinstance(left, str | list | tuple) and isinstance(right, int):
            self.budget.charge(n_bytes_of(left) * max(right, 0))
            result = left * right
            return texts.derive(result, left) if isinstance(result, str) else result
        both = (left, right)
        if operator == "+" and any(all(isinstance(side, kind) for side in both) for kind in (list, tuple)):
            self.budget.charge(n_bytes_of(left) + n_bytes_of(right))
            return left + right
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "**" and abs(right) > 64:
                raise TemplateError(f"raises a number to the power {right}")
            return self.number(super().call_binop(context, operator, left, right))
        raise TypeError(f"unsupported: {type(left).__name__} {operator} {type(right).__name__}")

    def number(self, value: Any) -> Any:
        """`value`, refused when it is an integer of more than 64 bits."""
        if isinstance(value, int) and value.bit_length() > 64:
            raise TemplateError("computes an integer of more than 64 bits")
        return value

    def cut(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """`value[start:stop:step]`."""
        where = slice(start, stop, step)
        if isinstance(value, str | list | tuple | range):
            self.budget.charge(_STEP + 8 * len(range(*where.indices(len(value)))))
            return texts.cut(value, where) if isinstance(value, str) else value[where]
        if isinstance(value, Undefined):
            return value[where]
        raise TypeError(f"cannot slice {_kind(value)}")

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.budget.charge(_STEP)
        if isinstance(obj, Undefined):
            return obj[argument]
        if isinstance(argument, str):
            if isinstance(obj, Mapping) and argument in obj:
                return obj[argument]
            return self._attribute(obj, texts.plain(argument))
        if isinstance(obj, str) and isinstance(argument, int) and -len(obj) <= argument < len(obj):
            return texts.cut(obj, slice(argument, argument + 1 or None))
        if isinstance(obj, dict | list | tuple | range):
            self.weigh(argument)  # it may be hashed
            try:
                return obj[argument]
            except (TypeError, LookupError):
                pass
        # Without a hint an error prints the argument, however large that is.
        hint = None if isinstance(argument, int) else f"{_kind(obj)} has no element that {_kind(argument)} names"
        return self.undefined(hint, obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.budget.charge(_STEP)
        if isinstance(obj, dict) and attribute in obj and not hasattr(obj, attribute):
            return obj[attribute]
        return self._attribute(obj, attribute)

    def _attribute(self, obj: Any, name: str) -> Any:
        """What Jinja's own look-up gives, for methods that are known to be bounded; everything else is unsafe."""
        if isinstance(obj, Undefined) and not name.startswith("_"):
            return getattr(obj, name)
        if isinstance(obj, Namespace) and not name.startswith("_"):
            return getattr(obj, name) if hasattr(obj, name) else self.undefined(obj=obj, name=name)
        if isinstance(obj, LoopContext) and name in _LOOP_ATTRIBUTES:
            return getattr(obj, name)
        for kind, methods in METHODS.items():
            if isinstance(obj, kind) and name in methods:
                return getattr(obj, name)
        if not hasattr(obj, name):
            return self.undefined(obj=obj, name=name)
        if name.startswith("_"):
            raise TemplateError(f"asks {_kind(obj)} for the attribute {name!r:.40}")
        return self.unsafe_undefined(obj, name)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.budget.charge(_STEP * (1 + len(args) + len(kwargs)))
        hidden = ("_loop_vars", "_block_vars")
        loop_variables: dict[str, Any] = {name: kwargs.pop(name) for name in hidden if name in kwargs}
        if isinstance(obj, _Global):
            return obj.run(*args, **kwargs)
        if isinstance(obj, BuiltinMethodType):
            for kind, methods in METHODS.items():
                if isinstance(obj.__self__, kind) and obj.__name__ in methods:
                    return methods[obj.__name__](self, obj.__self__, *args, **kwargs)
        if isinstance(obj, MethodType) and isinstance(obj.__self__, LoopContext) and obj.__name__ in _LOOP_ATTRIBUTES:
            self.weigh(args)
            return obj(*args)
        if isinstance(obj, Macro | Undefined):
            return self._call_macro(context, obj, args, {**kwargs, **loop_variables})
        raise TemplateError(f"calls {_kind(obj)}")

    def call_filter(self, name: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return super().call_filter(_check_name(name), value, *args, **kwargs)

    def call_test(self, name: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return super().call_test(_check_name(name), value, *args, **kwargs)

    def _call_macro(self, context: Context, macro: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._calls_deep >= MAX_CALLS_DEEP:
            raise TemplateError(f"nests macros more than {MAX_CALLS_DEEP} deep")
        self._calls_deep += 1
        try:
            return context.call(macro, *args, **kwargs)
        finally:
            self._calls_deep -= 1

    def _refuse(self, message: Any) -> NoReturn:
        raise TemplateError(f"refuses the conversation: {texts.plain(self.text_of(message))[:500]}")

    def _strftime(self, form: Any) -> str:
        form = self.text_of(form)
        if len(form) > 64:
            raise TemplateError("asks for the time in a format of more than 64 characters")
        return self._clock().strftime(form)

    def _make_namespace(self, *args: Any, **kwargs: Any) -> Namespace:
        values = self._make_dict(*args, **kwargs)
        for name in values:
            if not isinstance(name, str) or name.startswith("_"):
                raise TemplateError(f"puts {name!r:.40} into a namespace")
        return Namespace(**values)

    def _make_dict(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        if len(args) > 1 or (args and not isinstance(args[0], Mapping)):
            raise TemplateError("calls dict or namespace with something else than names and values")
        values = {**(args[0] if args else {}), **kwargs}
        self.budget.charge(_STEP + 100 * len(values))
        return values


def compile_template(source: str) -> CodeType:
    """Checked code for `run`. Raises TemplateError naming the line for what is no template or what none may do."""
    if len(source) > MAX_SOURCE_CHARS:
        raise TemplateError(f"has {len(source)} characters; {MAX_SOURCE_CHARS} are allowed")
    environment = SandboxEnvironment(Budget(MAX_BYTES, math.inf), datetime.now, extensions=(loopcontrols, Generation))
    try:
        tree = environment.parse(source)
        check_tree(tree)
        insert_ticks(tree, environment)
        return environment.compile(tree, filename=_FILE_NAME)
    except TemplateError:
        raise
    except JinjaError as error:
        raise TemplateError(f"line {getattr(error, 'lineno', '?')}: {error!s:.200}") from None
    except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
        raise TemplateError(f"cannot be compiled: {type(error).__name__}: {error!s:.200}") from None


def run(
    code: CodeType, variables: Mapping[str, Any], n_characters: int, clock: Callable[[], datetime], started: float
) -> str:
    """The text that compiled code gives for `variables`, which hold plain data of `n_characters` characters.

    started  when the work began, as time.monotonic() tells it: compiling counts too

    Raises TemplateError for whatever goes wrong, with the line where it did.
    """
    environment = SandboxEnvironment(
        Budget(MAX_BYTES + BYTES_PER_CHARACTER * n_characters, started + MAX_SECONDS), clock
    )
    template = Template.from_code(environment, code, environment.globals)
    try:
        return environment.concat(template.root_render_func(template.new_context(dict(variables))))
    except Exception as error:  # a hostile template can raise anything
        where = f"line {line}: " if (line := _line_of(error, template)) else ""
        reason = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error!s:.200}"
    raise TemplateError(where + reason)  # out here it keeps no frame alive


def _line_of(error: Exception, template: Template) -> int | None:
    """The template's line in which `error` was raised."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE_NAME:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def n_bytes_of(value: str | list[Any] | tuple[Any, ...] | range) -> int:
    """About what a copy of `value` takes, its items not counted."""
    if isinstance(value, str):
        return len(value) * ((1 if value.isascii() else 4) + isinstance(value, Marked))
    return 8 * len(value)


def _weight_of(item: Any) -> int:
    """What an item counts by itself, without what it holds."""
    if isinstance(item, str):
        return _STEP + n_bytes_of(item)
    if isinstance(item, dict):
        return _STEP * (1 + 2 * len(item))
    if isinstance(item, range):
        return _STEP * (1 + len(item))
    if isinstance(item, Namespace):
        raise TemplateError("treats a namespace as a value")
    return _STEP


def _check_name(name: Any) -> str:
    """A filter's or test's name that is a value: looking for another kind would hash it, however large it is."""
    if not isinstance(name, str):
        raise TemplateError(f"names a filter or test by {_kind(name)}")
    return name


def _kind(value: object) -> str:
    return f"a value of type {'str' if isinstance(value, str) else type(value).__name__}"


@pass_environment
def _tick(environment: SandboxEnvironment, _: None) -> bool:
    return environment.tick()


def _make_range(*args: Any) -> range:
    found = range(*args)
    if len(found) > MAX_RANGE:
        raise TemplateError(f"asks for a range of {len(found)} numbers; {MAX_RANGE} are allowed")
    return found
