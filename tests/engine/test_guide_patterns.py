"""Patterns of JSON schemas: what passes is what others find that they match, however it is escaped."""

from __future__ import annotations

import itertools
import json
import random
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from engine.test_guide import Case, SmallTokenizer

from gristmill.engine.guide import GuideError
from gristmill.engine.guide_patterns import _WITHOUT_LOOK_AROUND

PATTERNS = [
    # classes of all control characters, or of all but some
    r'^[^"]*$',
    r'^[^"\\]*$',
    r"^[^\\/]+$",
    r'^[^\\/:*?"<>|]+$',
    r"^[^ -~]$",
    r"^[\x00-!]$",
    r'^(?:[^"\\]|\\.)*$',
    r'^[^"\n]?$',
    r'^[^\d\s"]{2}$',
    r'^(?i:[^a"])$',
    r'^[^"]{0,3}\.txt$',
    r'[^"]',
    r'^([^"]|\n)+$',
    r'^[^\b"]+$',
    r"^[^\x22\u005c]+$",
    r'^[^é"]$',
    r"^\S\D\W.$",
    r"^[\s\S]$",
    r"^[^\S]$",
    # characters that mean something within classes elsewhere
    r'^[^&&"]$',
    r"^[a&&b]+$",
    r"^[[a]$",
    r"^[^[]+$",
    r"^[^[\]]+$",
    r"^[[:alpha:]]$",
    r'^[^~~"]$',
    r"^[!--]$",
    r"^[+--]$",
    r'^[^-"]$',
    r"^[a\-z]$",
    r"^[-a]$",
    r"^[a-]$",
    r"^[a^]$",
    r"^[\^a]$",
    r"^[^^]$",
    r'^["\]]$',
    r"^[\\-\]]$",
    r"^[\<a\>]$",
    r"^[^{}#/ ]+$",
    r"^[()*+?|$.]+$",
]
CHARACTERS = [*'"\\\n\t\r\b\faAz0_é !-[]&~^./:|({}#,+$<x日', ""]
DRAWN = random.Random(0)
TEXTS = [".txt", 'a".txt', "\\.txt", ":]", "a]", *("".join(DRAWN.choices(CHARACTERS, k=3)) for _ in range(60))]


class EscapingCase(Case):
    """Where a backslash is allowed it is often taken."""

    def _draw(self, allowed: list[int], rng: random.Random, closing: bool) -> int:
        if ord("\\") in allowed and rng.random() < 0.5:
            return ord("\\")
        return super()._draw(allowed, rng, closing)


@pytest.fixture(scope="module")
def case() -> EscapingCase:
    return EscapingCase(SmallTokenizer())


def accepts(case: Case, schema: dict[str, Any], value: Any) -> bool:
    guide = case.compile(json=schema, disable_any_whitespace=True)
    return case.accepts(guide, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_passes_is_what_python_finds(pattern: str, case: EscapingCase) -> None:
    found = re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern, re.ASCII)
    for text in CHARACTERS + TEXTS:
        assert accepts(case, {"type": "string", "pattern": pattern}, text) == bool(found.search(text)), text


def test_classes_of_unicode_hold_no_quotes_that_they_do_not_name(case: EscapingCase) -> None:
    for character in "".join(CHARACTERS):
        category = unicodedata.category(character)
        for pattern, wanted in (
            (r"^\P{P}$", category[0] != "P"),
            (r"^[^\p{P}]$", category[0] != "P"),
            (r"^\pP$", category[0] == "P"),
            (r"^\p{Cc}$", category == "Cc"),
            (r"^[\p{Cc}é-]$", category == "Cc" or character in "é-"),
            (r"^[\w-.]$", re.fullmatch(r"[\w.-]", character, re.ASCII) is not None),
            (r"^[!-\d]$", re.fullmatch(r"[!\d-]", character, re.ASCII) is not None),
        ):
            assert accepts(case, {"type": "string", "pattern": pattern}, character) == wanted, (pattern, character)


@pytest.mark.parametrize(
    ("index", "before", "parts", "after"),
    [
        (0, "", "aZ_'+-.@\n", "@b.cd"),
        (0, "a@", "aZ0_'-.@\n", ""),
        (0, "a@", [*"a0-.@", ".."], ".cd"),
        (1, "P", "1YMDWTHS.", ""),
        (1, "P", ["1Y", "1M", "12D", "1W", "T", "3H", "1S", "1.5S", "0,1S", "1", "\n"], ""),
    ],
)
def test_patterns_without_look_around_equal_theirs(index: int, before: str, parts: Sequence[str], after: str) -> None:
    """Over all texts of up to five parts: each kind of character, and longer ones where a match has more."""
    pair = [*_WITHOUT_LOOK_AROUND.items()][index]
    original, equal = (re.compile(pattern.removesuffix("$") + r"\Z", re.ASCII) for pattern in pair)
    texts = [before + "".join(chosen) + after for n in range(6) for chosen in itertools.product(parts, repeat=n)]
    matches = [text for text in texts if original.search(text)]
    assert matches == [text for text in texts if equal.search(text)]
    assert len(matches) > 20


def test_patterns_of_zod_are_kept(case: EscapingCase) -> None:
    good = ["a.b+c@d-e.fg", "o'b@x.y.zz", "-@a.bc"], ["P3W", "P1Y2D", "PT5.5S", "P1DT1H3S"]
    bad = [".a@b.cd", "a..b@c.de", "a.@b.cd", "a'@b.cd", "a@b.c"], ["P", "PT", "P1DT", "P1Y1W", "P1D1Y"]
    for i, pattern in enumerate(_WITHOUT_LOOK_AROUND):
        for text in good[i] + bad[i]:
            assert accepts(case, {"type": "string", "pattern": pattern}, text) == (text in good[i]), text


NAMES = {"type": "object", "patternProperties": {r'^[^"\\]+$': {"type": "integer"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": r'^[^"\\]*$'},
        {"type": "string", "pattern": r'^[^\\/:*?"<>|]+$', "maxLength": 9},
        {"type": "string", "pattern": r'^(?:[^"\\]|\\.)*$'},
        {"type": "string", "allOf": [{"pattern": r'^[^"]+$'}, {"pattern": r"^[^\\]+$"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "pattern": r"^[^ -~]+$"}}},
        {"$ref": "#a", "$defs": {"a": {"$anchor": "a", "type": "string", "pattern": r'^[^"\\a]+$'}}},
        NAMES,
        {**NAMES, "additionalProperties": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "string", "pattern": r'^[^"\\]$'}},
    ],
)
def test_escapes_pass_where_they_match(schema: dict[str, Any], case: EscapingCase) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    lark = f"start: %json {json.dumps(schema)}"
    for seed in range(40):
        for guide in (case.compile(json=schema), case.compile(grammar=lark)):
            validator.validate(json.loads(case.walk(guide, random.Random(seed), free_steps=12)))


def test_what_looks_like_a_schema_stays_what_it_is(case: EscapingCase) -> None:
    value = {"pattern": '^[^"]$', "patternProperties": {"[a]": 1}}
    schema = {"const": value, "default": value, "examples": [value]}
    assert accepts(case, schema, value)
    named = {"properties": {"pattern": {"const": "[a]"}, "const": {"type": "string", "pattern": '^[^"]$'}}}
    assert accepts(case, {"type": "object", **named}, {"pattern": "[a]", "const": "b"})
    assert not accepts(case, {"type": "object", **named}, {"pattern": "[a]", "const": '"'})


def test_names_of_properties_may_have_any_character(case: EscapingCase) -> None:
    schema = {"type": "object", "properties": {"a\x01\x7f": {}}, "additionalProperties": False}
    assert accepts(case, schema, {"a\x01\x7f": 1})
    assert not accepts(case, schema, {"a": 1})


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"const": "a\x01b"}, r"const or enum has U\+0001 in 'a\\x01b'"),
        ({"enum": ["a", ["\x1b[0m"]]}, r"U\+001B"),
        ({"properties": {"a": {"const": {"b": "\x7f"}}}}, r"U\+007F"),
        ({"pattern": "^a\x01$"}, r"pattern '\^a\\x01\$' has U\+0001"),
        ({"pattern": r"^a\x01$"}, r"U\+0001"),
        ({"pattern": r"^a\u001f$"}, r"U\+001F"),
        ({"pattern": r"^a\u{7f}$"}, r"U\+007F"),
        ({"pattern": r"^a\x{00000000001}$"}, r"U\+0001"),
        ({"pattern": r"^a\U0000000e$"}, r"U\+000E"),
        ({"pattern": r"\v"}, r"U\+000B"),
        ({"pattern": r"\a?"}, r"U\+0007"),
        ({"type": "string", "pattern": r"^[\x01\v]$"}, "Regex is empty"),
        ({"pattern": "[]a]"}, r"\[\] or \[\^\]"),
        ({"pattern": "[^]]"}, r"write \[\\\]\]"),
        ({"pattern": "^[a"}, "unclosed"),
        ({"pattern": "(?ix)a # [b"}, "flag x"),
        ({"pattern": r"^(?!\.)[a-z.]+$"}, r"pattern '\^\(\?!\\\\\.\)\[a-z\.\]\+\$' has look-around, which is not"),
        ({"pattern": "[a-z]" * 60 + "(?=a)"}, r"^structured_outputs\.\w+: (at 1\(8\): )?pattern .{80} has look-around"),
        ({"pattern": "(?<=a)b|(?<!c)"}, "look-around"),
        ({"pattern": "[a-z]" * 60 + r"(b)\1"}, r"^structured_outputs\.\w+: .{0,60}backreferences are not supported in"),
        ({"patternProperties": {"\x01": {}}}, r"U\+0001"),
        ({"patternProperties": {"[.]": {}, r"[\.]": {"type": "null"}}}, "two patternProperties"),
        ({"patternProperties": {"[^b]": {}}, "properties": {"a\x01": {}}}, r"beside patternProperties, a property has"),
        ({"patternProperties": {"[^b]": {}}, "required": ["a\x01"]}, r"U\+0001"),
        ({"allOf": [{"patternProperties": {"[^b]": {}}}, {"const": {"a\x01": 1}}]}, r"U\+0001"),
        ({"properties": {"a": {"const": {"pattern": "[^a]"}}, "b": {"$ref": "#/properties/a/const"}}}, "lead into"),
    ],
)
def test_characters_that_no_answer_can_have_are_refused(schema: dict[str, Any], word: str, case: EscapingCase) -> None:
    with pytest.raises(GuideError, match=word) as caught:
        case.compile(json=schema)
    assert caught.value.field == "json"
    with pytest.raises(GuideError, match=word) as caught:
        case.compile(grammar=f"start: %json {json.dumps(schema)}")
    assert caught.value.field == "grammar"
