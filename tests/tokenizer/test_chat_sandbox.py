"""Templates are hostile: none runs code, reads what it is not given, or takes more time and memory than it may."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processor_time import assert_quick, slowness

from gristmill.tokenizer.chat import ChatTemplate
from gristmill.tokenizer.interface import TemplateError

USER = [{"role": "user", "content": "Hello <|x|>"}]
SECONDS = 1.5


def render(source: str, **kwargs: Any) -> str:
    parts = ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(USER, chat_template_kwargs=kwargs)
    return "".join(text for text, _ in parts)


INJECTIONS = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ ''['__cl' ~ 'ass__']['__m' + 'ro__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ messages|attr('__init__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ messages | groupby('__class__') }}",
    "{{ [''] | selectattr('__class__') | list }}",
    "{{ [''] | sort(attribute='__class__') }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ lipsum() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ range.run }}{{ range }}",
    "{{ raise_exception.run.__globals__ }}",
    "{{ raise_exception['run'] }}{{ raise_exception['__class__'] }}",
    "{{ messages.append.__self__ }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m['_environment'] }}{{ m }}",
    "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
    "{% for x in [1] %}{{ loop['__init__'] }}{{ loop }}{% endfor %}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(range) }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ '%s' | format(range) }}",
    "{{ 'x'.format.__self__ }}",
    "{% set f = '{.__class__}'.format %}{{ f(1) }}",
    "{{ ['{.__class__}'] | map('format', 1) | list }}",
    "{{ (1).__class__.__base__ }}",
    "{{ undefined_name.__class__ }}{{ undefined_name['__class__'] }}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace({'__class__': 1}) %}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% from 'os' import path %}",
    "{% extends '/etc/passwd' %}",
    "{% block x %}{% endblock %}",
    "{% autoescape true %}{% endautoescape %}",
    "{{ dict(a=1)['__class__'] }}",
    "{{ dict.run }}{{ dict.fromkeys }}{{ dict }}",
    "{{ messages[0].__class__ }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages.clear() }}",
    "{{ config.items() }}{{ request.application }}",
    "{{ ''.encode().__class__ }}",
    "{{ ''.translate({}) }}",
    "{{ caller.__globals__ }}",
    "{{ (messages | map('upper')).gi_frame.f_globals }}{{ messages | map('upper') }}",
    "{{ context.environment }}{{ environment.filters }}",
    "{{ messages[0].items.__self__ }}",
    "{{ messages | pprint }}",
    "{{ 7 | tojson(default=range) }}",
]


REFUSED = {
    "{% include 'x' %}": "uses include",
    "{{ messages._x }}": "asks for the attribute '_x'",
    "{% set ns = namespace() %}{% set ns._x = 1 %}": "asks for the attribute '_x'",
    "{% for x in [1] recursive %}{{ x }}{% endfor %}": "has a recursive loop",
    "{{ range(*[1]) }}": r"passes \* or \*\* arguments",
    "{{ dict(**{}) }}": r"passes \* or \*\* arguments",
    "{{ 1 | default(**{}) }}": r"passes \* or \*\* arguments",
    f"{{{{ {2**64} }}}}": "holds an integer of more than 64 bits",
    f"{{{{ {{{','.join(f'{i}:1' for i in range(1001))}}} }}}}": "holds a dict of more than 1000 entries",
    "{{ 1 }}" * 6001: "more than 6000 nodes or nested deeper than 100",
}


@pytest.mark.parametrize("source", REFUSED, ids=lambda source: source[:40])
def test_what_templates_may_not_is_refused_by_name(source: str) -> None:
    with pytest.raises(TemplateError, match=REFUSED[source]):
        render(source)


def test_as_much_as_templates_may() -> None:
    entries = ",".join(f"{i}:1" for i in range(1000))
    assert render(f"{{{{ {2**64 - 1} }}}}") == str(2**64 - 1)
    assert render(f"{{{{ {{{entries}}} | length }}}}") == "1000"
    assert render("{{ 1 }}" * 5000) == "1" * 5000


@pytest.mark.parametrize("source", INJECTIONS)
def test_injections_fail(source: str) -> None:
    with pytest.raises(TemplateError, match=r"^chat template: "):
        render(source)


def test_injections_would_work_in_plain_jinja() -> None:
    """The list is worth something: many of its members reach Python where nothing holds them."""
    import jinja2

    def reaches(source: str) -> bool:
        try:
            text = jinja2.Environment().from_string(source).render(messages=[dict(m) for m in USER])
        except Exception:
            return False
        return any(word in text for word in ("class", "uid=", "built-in", "object at", "module", "function"))

    assert sum(reaches(source) for source in INJECTIONS if "popen" not in source) >= 20


def test_nothing_leaks_into_the_message() -> None:
    with pytest.raises(TemplateError) as caught:
        render("{{ raise_exception(range) }}")
    assert "0x" not in str(caught.value)


DOUBLE = "{%% set ns = namespace(x=%s) %%}{%% for i in range(99) %%}{%% set ns.x = %s %%}{%% endfor %%}"
BOMBS = {
    "product": "{{ 'a' * 10**9 }}",
    "product of a constant": "{% set x = 'a' * 1000000000 %}",
    "product the other way": "{{ 10**9 * 'a' }}",
    "product of a list": "{{ ([0] * 10**9) | length }}",
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops with a filter": "{% for a in range(99999) if false %}{% endfor %}" * 1
    + "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "loops that print": "{% for a in range(99999) %}{% for b in range(99999) %}aaaa{% endfor %}{% endfor %}",
    "range": "{{ range(10**9) | length }}",
    "range as a list": "{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent of a precision": "{{ '%.1000000000f' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent as a test": "{{ '%1000000000d' is odd }}",
    "percent as another test": "{{ '%1000000000d' is even }}{{ '%1000000000d' is divisibleby(3) }}",
    "percent of nothing": "{{ ('%1000000000s' % nothing) | length }}",
    "percent by filter": "{{ '%1000000000d' | format(1) }}",
    "many percents": "{{ ('%1000d' * 100000) % ([1] * 100000) }}",
    "center": "{{ 'a' | center(10**9) }}",
    "budget bought with a negative width": "{{ 'a' | indent(-1000000000) }}{{ 'a'.center(10**9) }}",
    "budget bought with a negative count": "{{ 'a'.replace('a', 'b', -1000000000) }}{{ 'a' * 10**9 }}",
    "budget lost in a number that is none": "{{ 'a' | indent('nan' | float) }}{{ 'a'.center(10**9) }}",
    "center as a method": "{{ 'a'.center(10**9) }}{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "indent": "{{ ('a\\n' * 100000) | indent(100000) }}",
    "indent by text": "{{ ('a\\n' * 100000) | indent('a' * 100000) }}",
    "indented JSON": "{{ [[[[1]]]] | tojson(indent=10**9) }}",
    "deep JSON": "{% set ns = namespace(x=[1] * 85000) %}{% for i in range(96) %}{% set ns.x = [ns.x] %}{% endfor %}"
    "{{ ns.x | tojson(indent=32) }}",
    "separators of JSON": "{{ range(9999) | list | tojson(separators=['a' * 1000000, 'b']) }}",
    "long separators of JSON": "{{ ([1] * 600000) | tojson(separators=['a' * 390, 'b']) | length }}",
    "concatenation": DOUBLE % ("'ab'", "ns.x ~ ns.x"),
    "addition": DOUBLE % ("'ab'", "ns.x + ns.x"),
    "addition of lists": DOUBLE % ("[1]", "ns.x + ns.x"),
    "join": DOUBLE % ("'ab'", "[ns.x, ns.x] | join('-')"),
    "join as a method": DOUBLE % ("'ab'", "'-'.join([ns.x, ns.x])"),
    "replace": DOUBLE % ("'aa'", "ns.x | replace('a', 'aa')"),
    "replace as a method": DOUBLE % ("'aa'", "ns.x.replace('a', 'aa')"),
    "replace of nothing": DOUBLE % ("'aa'", "ns.x.replace('', ns.x)"),
    "escape": DOUBLE % ("'&&'", "(ns.x ~ ns.x) | escape"),
    "JSON of JSON": DOUBLE % ("'\"\"'", "ns.x | tojson"),
    "nested lists as text": DOUBLE % ("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
    "nested lists as JSON": DOUBLE % ("[1]", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "nested lists compared": DOUBLE.replace("ns", "a") % ("[1]", "[a.x, a.x]")
    + DOUBLE.replace("ns", "b") % ("[1]", "[b.x, b.x]")
    + "{{ a.x == b.x }}",
    "nested lists searched": DOUBLE.replace("ns", "a") % ("[1]", "[a.x, a.x]")
    + DOUBLE.replace("ns", "b") % ("[1]", "[b.x, b.x]")
    + "{{ a.x in [b.x] }}{{ [b.x].index(a.x) }}",
    "nested tuples hashed": DOUBLE % ("(1,)", "(ns.x, ns.x)") + "{{ {ns.x: 1} | length }}",
    "nested tuples looked up": DOUBLE % ("(1,)", "(ns.x, ns.x)") + "{{ {}[ns.x] }}{{ {}.get(ns.x) }}",
    "nested dicts": DOUBLE % ("{}", "{1: ns.x, 2: ns.x}") + "{{ ns.x | string }}",
    "namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}{{ ns | tojson }}{{ [ns] | string }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "format by argument": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format of a precision": "{{ '{:.1000000000f}'.format(1) }}",
    "format doubled": DOUBLE % ("'ab'", "'{0}{0}'.format(ns.x)"),
    "power": "{{ 10**10**9 }}",
    "power in steps": DOUBLE % ("10", "ns.x ** 60"),
    "product of numbers": DOUBLE % ("10", "ns.x * ns.x"),
    "round": "{{ 1 | round(10**9, 'ceil') }}",
    "sum of lists": "{{ ([[1]*1000] * 10000) | sum(start=[]) | length }}",
    "batch": "{{ [1] | batch(10**9, 'x') | list }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "recursion twice": "{% macro m(n) %}{{ m(n + 1) if n < 60 }}{{ m(n + 1) if n < 60 }}{% endmacro %}{{ m(0) }}",
    "recursion with a caller": "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "set block": "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = y %}{% endfor %}",
    "filter block": "{% filter center(1000000000) %}a{% endfilter %}",
    "slices": "{% set x = [0] * 1000000 %}{% for i in range(99999) %}{% set y = x[1:] %}{% endfor %}",
    "slices of text": "{% set x = 'é' * 1000000 %}{% for i in range(99999) %}{% set y = x[::-1] %}{% endfor %}",
    "search from the right": "{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}",
    "split from the right": "{{ ('a' * 1000000).rsplit('b' ~ 'a' * 500000) }}",
    "strip of many": "{{ ('a' * 1000000).strip('b' * 100000 ~ 'a') | length }}",
    "sort of long texts": "{% set x = 'a' * 1000000 %}{{ ([x ~ 'b', x ~ 'a'] * 10000) | sort | length }}",
    "sort of long texts that are mapped": "{% set x = 'a' * 1000000 %}"
    "{{ ([x ~ 'b', x ~ 'a'] * 10000) | map('string') | sort | length }}",
    "integer of a long text": "{% set x = ('f' * 10000000) | int(0, 16) %}{{ x * x is even }}",
    "unique of many": "{{ range(99999) | unique | list | length }}",
    "minimum of long texts": "{% set x = 'a' * 1000000 %}{{ ([x ~ 'b', x ~ 'a'] * 10000) | min }}",
    "search in a list of long texts": "{% set x = 'a' * 1000000 %}{{ x ~ 'c' in [x ~ 'b'] * 99999 }}",
    "characters of a long text": "{% for c in 'a' * 10000000 %}{% for d in 'a' * 10000000 %}{% endfor %}{% endfor %}",
    "mapped characters": "{{ ('a' * 20000000) | map('string') | list | length }}",
    "length of a generator": "{% for c in ('a' * 20000000) | select %}{{ loop.length }}{% endfor %}",
    "selection that finds nothing": "{{ ('a' * 90000000) | reject | list }}" * 3,
    "lines": "{{ ('\\n' * 20000000).splitlines() | length }}",
    "words": "{{ ('a ' * 10000000).split() | length }}",
    "lines of another kind": "{{ ('\x0b' * 20000000).splitlines() | length }}",
    "words counted": "{{ ('ab ' * 10000000) | wordcount }}{{ ('ab-' * 10000000) | title | length }}",
    "percents": "{{ ('%%' * 10000000) % () }}",
    "braces": "{{ ('{{' * 10000000).format() }}",
    "fields": "{{ ('{0}' * 10000000).format(1) }}",
    "partitions": "{% set x = 'é' * 10000000 %}{% for i in range(9999) %}{% set y = x.partition('a') %}{% endfor %}",
    "time": "{{ strftime_now('%9999999Y' * 10000) }}",
    "text of many variables": "{% set x = 'a' * 30000000 %}" + "{% set y = x ~ 1 %}" * 99,
    "printing one text often": "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{{ x }}{% endfor %}",
    "huge constant": "{{ 1" + "0" * 4000 + " }}",
    "deep parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "deep lists": "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
    "path of an attribute": "{{ [1] | map(attribute='ab.' * 10000000) | list }}",
    "path of an attribute behind a default": "{{ [1] | map(default=1, attribute='ab.' * 10000000) | list }}",
    "path of an attribute that is selected": "{{ [1] | selectattr('ab.' * 10000000) | list }}",
    "path of attributes in a sum": "{{ [1, 2] | sum('ab.' * 10000000) }}{{ [1] | join('', 'ab.' * 10000000) }}",
    "long sum": "{{ 1" + " + 1" * 30_000 + " }}",
    "deep ifs": "{% if 1 %}" * 3_000 + "{% endif %}" * 3_000,
    "many statements": "{{ a }}" * 18_000,
    "long source": "a" * 2_000_000,
    "unclosed comments": "{# " * 40_000,
    "unclosed statements": "{% if " * 20_000,
    "blanks": "{{ 1 " + " " * 120_000,
}  # fmt: skip


def peak_mb(work: Callable[[], object]) -> float:
    """How far resident memory rises above its start while `work` runs."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("needs /proc")

    def resident() -> float:
        return int(status.read_text().split("VmRSS:")[1].split()[0]) / 1024

    start, highest, done = resident(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.002):
            highest = max(highest, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return highest - start


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_in_time_and_memory(name: str) -> None:
    def explode() -> None:
        with pytest.raises(TemplateError, match=r"^chat template: "):
            render(BOMBS[name])

    assert peak_mb(lambda: assert_quick(explode, SECONDS)) < 200


def longest_pause(work: Callable[[], object]) -> float:
    """For how long at most another thread is kept waiting while `work` runs: in seconds that the process computes
    meanwhile, which a busy machine does not make more."""
    longest, done = 0.0, threading.Event()

    def beat() -> None:
        nonlocal longest
        last = time.process_time()
        while not done.is_set():
            time.sleep(0.001)
            now = time.process_time()
            longest, last = max(longest, now - last), now

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        work()
    finally:
        done.set()
        thread.join()
    return longest


_APART = """
import json, sys, threading
from gristmill.tokenizer.chat import ChatTemplate, TemplateError

def render(sources):
    for source in sources:
        try:
            print("".join(text for text, _ in ChatTemplate(source).render([{"role": "user", "content": "x"}])))
        except TemplateError:
            print("refused")

threading.stack_size(1 << 18)
thread = threading.Thread(target=render, args=(json.load(sys.stdin),))
thread.start()
thread.join()
"""


def render_apart(sources: list[str]) -> list[str]:
    """What each gives, or "refused", in a process of its own: one that crashes or hangs fails the test alone."""
    done = subprocess.run(
        [sys.executable, "-c", _APART], input=json.dumps(sources), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr or f"the process ended with {done.returncode}"
    return done.stdout.splitlines()


DEEP = "{%- set ns = namespace(x=()) %}{% for i in range(4000) %}{% set ns.x = ((((((ns.x,),),),),),) %}{% endfor -%}"
WIDE = "{%- set ns = namespace(x=(1,)) %}{% for i in range(64) %}{% set ns.x = (ns.x, ns.x) %}{% endfor -%}"
NAMES = [
    "{{ [1] | map(ns.x) | list }}",
    "{{ [1] | select(ns.x) | list }}",
    "{{ [{'a': 1}] | selectattr('a', ns.x) | list }}",
    "{{ (1)[ns.x].y }}",
]
USES = [
    *NAMES,
    "{{ {ns.x: 1} | length }}",
    "{{ messages[0][ns.x] }}",
    "{{ ns.x in {} }}",
    "{{ {}.get(ns.x) }}",
    "{{ [ns.x] | unique | list }}",
    "{{ [{'a': 1}] | map(attribute=ns.x) | list }}",
    "{{ ns.x == (ns.x,) }}",
    "{{ [ns.x, ns.x] | sort }}",
    "{{ ns.x }}",
    "{{ '%r' % [ns.x] }}",
    "{{ ns.x | tojson }}",
    "{{ {1: ns.x}.values() | string }}",
]


@pytest.mark.parametrize(("value", "uses"), [(DEEP, USES), (WIDE, NAMES)], ids=["deep", "wide"])
def test_large_values_are_refused_before_they_are_walked(value: str, uses: list[str]) -> None:
    """Python hashes tuples by recursion without a limit, and whatever it hashes or prints it does at one go."""
    harmless = "{{ ns.x is filter }}{{ ns.x is test }}{{ ns.x | length > 0 }}"
    expected = ["FalseFalseTrue", *["refused"] * len(uses)]
    assert render_apart([value + use for use in (harmless, *uses)]) == expected


PAUSING = ("loops", "sort of long texts", "replace", "nested lists as JSON", "search from the right")


@pytest.mark.parametrize("name", PAUSING)
def test_other_threads_go_on(name: str) -> None:
    def explode() -> None:
        with pytest.raises(TemplateError):
            render(BOMBS[name])

    assert any(0 < longest_pause(explode) < 0.75 * slowness() for _ in range(3))  # unbounded it is many seconds
