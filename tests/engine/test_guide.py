"""Structured output: what is sampled under the masks satisfies its constraint; what cannot be kept is refused."""

from __future__ import annotations

import codecs
import gc
import itertools
import json
import os
import pickle
import random
import re
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import numpy as np
import psutil
import pytest
from random_schemas import SchemaMaker

from gristmill.engine import guide as guide_module
from gristmill.engine.guide import Guide, GuideCompiler, GuideError
from gristmill.engine.guide_schema import _FORMATS
from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer.files import load_path
from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.load import load_tokenizer
from gristmill.types import SamplingParams, StructuredOutputsParams

DATA = Path(os.environ.get("GRISTMILL_DATA", Path(__file__).parents[3] / "shared" / "data")) / "tokenizers"
VOCABULARIES = {
    "qwen2": "ggml-vocab-qwen2.gguf",
    "llama3": "ggml-vocab-llama-bpe.gguf",
    "llama2-gguf": "ggml-vocab-llama-spm.gguf",
    "llama2": "llama2-tokenizer.model",
    "llama2c": "llama2-tokenizer.bin",
    "o200k": "o200k_base.tiktoken.gz",
}
PADDING = 100
END, TURN, CALL = 400, 401, 402
PIECES = [
    '{"',
    '":',
    '", "',
    '": "',
    '"}',
    "true",
    "false",
    "null",
    "name",
    "kind",
    "the ",
    "  ",
    "12",
    "é",
    "日本",
    "\n\n",
]


class SmallTokenizer:
    """A byte for each of 256 ids, some longer pieces, three special tokens; the longest piece from the left."""

    vocab_size = 403
    bos_id = None
    eos_ids = (END, TURN)
    adds_bos = False
    strips_first_space = False
    special_ids: Mapping[str, int] = MappingProxyType({"<|end|>": END, "<|turn|>": TURN, "<|call|>": CALL})

    def __init__(self) -> None:
        pieces = [p.encode() for p in PIECES]
        pieces += [b"\xff<odd>"]
        pieces += [b"w%d" % i for i in range(400 - 256 - len(pieces))]
        self._bytes = [bytes([i]) for i in range(256)] + pieces + [b"<|end|>", b"<|turn|>", b"<|call|>"]
        self._ids = {text: i for i, text in enumerate(self._bytes) if i < END}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        data, ids = text.encode(), []
        while data:
            n = next(n for n in range(min(8, len(data)), 0, -1) if data[:n] in self._ids)
            ids.append(self._ids[data[:n]])
            data = data[n:]
        return ids

    def encode_parts(self, parts: Any, *, add_special: bool = True) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: Any, *, skip_special: bool = False) -> str:
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode(errors="replace")

    def is_special(self, token_id: int) -> bool:
        return token_id >= END


class Case:
    """A tokenizer, a compiler for a model whose vocabulary is padded beyond it, and a row for masks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = tokenizer.vocab_size + PADDING
        self.compiler = GuideCompiler(tokenizer, self.vocab_size, tokenizer.eos_ids)
        self.row = np.zeros(-(-self.vocab_size // 32), np.uint32)
        texts = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        kinds = (b'"', b'"}', b'"]', b"@"), (b"}", b"]", b"}}", b"]}"), (b",", b'",', b":", b'":')
        self._closers = [{i for i, text in enumerate(texts) if text in kind} for kind in kinds]
        self._closers.append({i for i, text in enumerate(texts) if text.strip()})

    def compile(self, **constraint: Any) -> Guide:
        return self.compiler.compile(StructuredOutputsParams(**constraint))

    def allowed(self, guide: Guide) -> list[int]:
        self.row.fill(0xFFFFFFFF)
        guide.mask(self.row)
        bits = np.unpackbits(self.row.view(np.uint8), bitorder="little")
        assert not bits[self.vocab_size :].any()
        return np.flatnonzero(bits).tolist()

    def walk(self, guide: Guide, rng: random.Random, free_steps: int = 30) -> str:
        """Text of tokens drawn evenly from masks; after free_steps those that end strings and lists are preferred."""
        ids: list[int] = []
        while len(ids) < 1500:
            allowed = self.allowed(guide)
            assert allowed, "a mask without any token"
            ends = [i for i in allowed if i in self.tokenizer.eos_ids]
            assert sorted(ends) == (sorted(self.tokenizer.eos_ids) if guide.may_end else [])
            assert not guide.finished or ends == allowed
            if ends and (len(ends) == len(allowed) or len(ids) > free_steps or rng.random() < 0.2):
                guide.advance(ends[0])
                assert guide.finished
                return b"".join(map(self.tokenizer.token_bytes, ids)).decode()
            ids.append(self._draw([i for i in allowed if i not in ends], rng, len(ids) > free_steps))
            guide.advance(ids[-1])
        raise AssertionError(f"no end after {len(ids)} tokens: {self.tokenizer.decode(ids)[:500]}")

    def _draw(self, allowed: list[int], rng: random.Random, closing: bool) -> int:
        if closing and rng.random() < 0.9:
            kinds = ([i for i in allowed if i in kind] for kind in self._closers)
            allowed = next(filter(None, kinds), allowed)
        return rng.choice(allowed)

    def accepts(self, guide: Guide, text: str) -> bool:
        """Whether `text`, byte by byte, is a whole answer; every token taken must have been in the mask."""
        for byte in text.encode():
            if byte not in self.allowed(guide) and not guide.forced():
                return False
            try:
                guide.advance(byte)
            except GuideError:
                raise
            except ValueError:
                return False
        return guide.may_end


@pytest.fixture(scope="module")
def small() -> Case:
    return Case(SmallTokenizer())


def real_case(name: str) -> Case:
    path = DATA / VOCABULARIES[name]
    if not path.exists():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    return Case(load_tokenizer(open_checkpoint(path)) if path.suffix == ".gguf" else load_path(path, None))


@pytest.fixture(scope="module")
def qwen2() -> Case:
    return real_case("qwen2")


# --- parameters


def test_params_keep_a_dict_as_text_and_stay_hashable() -> None:
    params = StructuredOutputsParams(json={"type": "object", "properties": {"b": {}, "a": {}}})
    assert params.json == '{"type": "object", "properties": {"b": {}, "a": {}}}'
    sampling = SamplingParams(structured_outputs=params)
    assert hash(sampling) == hash(SamplingParams(structured_outputs=StructuredOutputsParams(json=params.json)))
    for choice in (["a", "b"], iter("ab")):
        assert StructuredOutputsParams(choice=choice).choice == ("a", "b")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "none"),
        ({"json": "{}", "regex": "a"}, "json and regex"),
        ({"json_object": False}, "none"),
        ({"choice": []}, "choice"),
        ({"choice": "ab"}, "choice"),
        ({"choice": [1]}, "choice"),
        ({"choice": iter(())}, "choice"),
        ({"choice": 5}, "choice"),
        ({"json": {"a": {1, 2}}}, "json"),
        ({"json": {"a": float("nan")}}, "json"),
        ({"json": 5}, "json"),
        ({"regex": b"a"}, "regex"),
        ({"regex": "a", "whitespace_pattern": " "}, "white space"),
        ({"json_object": True, "whitespace_pattern": " ", "disable_any_whitespace": True}, "whitespace_pattern"),
    ],
)
def test_params_refuse(given: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        StructuredOutputsParams(**given)


def test_sampling_params_refuse_another_type() -> None:
    with pytest.raises(ValueError, match="structured_outputs"):
        SamplingParams(structured_outputs={"json": "{}"})  # type: ignore[arg-type]


# --- vocabularies


@pytest.mark.parametrize("name", ["small", *VOCABULARIES])
def test_free_text_allows_each_token_of_text_and_no_other(name: str, small: Case) -> None:
    """Oracle: Python's own UTF-8 decoder says which bytes can begin a text."""
    case = small if name == "small" else real_case(name)
    tokenizer = case.tokenizer
    expected = set(tokenizer.eos_ids)
    for token_id in range(tokenizer.vocab_size):
        if not tokenizer.is_special(token_id):
            try:
                codecs.getincrementaldecoder("utf-8")().decode(tokenizer.token_bytes(token_id))
            except UnicodeDecodeError:
                continue
            expected.add(token_id)
    assert set(case.allowed(case.compile(regex="(?s:.*)"))) == expected


@pytest.mark.parametrize("name", list(VOCABULARIES))
def test_usual_tokens_of_a_json_text_pass(name: str) -> None:
    case = real_case(name)
    text = '{"name": "Zoë <|im_end|> 日本", "tags": ["a b", "c"], "n": 12}'
    guide = case.compile(json_object=True)
    ids = case.tokenizer.encode("\n" + text, add_special=False)
    ids = ids[next(i for i in range(len(ids)) if case.tokenizer.decode(ids[i:]).startswith("{")) :]
    for token_id in ids:
        assert token_id in case.allowed(guide)
        guide.advance(token_id)
    assert guide.finished


def test_a_special_token_is_not_its_text(qwen2: Case) -> None:
    guide = qwen2.compile(regex=re.escape("<|im_start|>") + "x")
    special = qwen2.tokenizer.special_ids["<|im_start|>"]
    assert special not in qwen2.allowed(guide)
    with pytest.raises(ValueError, match="not allowed"):
        guide.advance(special)


def test_a_grammar_may_name_a_special_token_that_is_no_end(small: Case) -> None:
    guide = small.compile(grammar='start: <|call|> "x"')
    assert small.allowed(guide) == [CALL]
    guide.advance(CALL)
    assert small.allowed(guide) == [ord("x")]


def test_an_end_is_no_text_even_where_the_tokenizer_takes_it_for_text() -> None:
    case = Case(SmallTokenizer())
    case.compiler = GuideCompiler(case.tokenizer, case.vocab_size, [ord("!")])
    guide = case.compile(regex="[a!]b?")
    assert case.allowed(guide) == [ord("a")]
    guide.advance(ord("a"))
    assert case.allowed(guide) == [ord("!"), ord("b")]


@pytest.mark.parametrize("eos_ids", [[], [-1], [503]])
def test_compiler_refuses_ends_outside_the_vocabulary(eos_ids: list[int]) -> None:
    with pytest.raises(ValueError, match="end an answer"):
        GuideCompiler(SmallTokenizer(), 503, eos_ids)


# --- random schemas


def check_random_schemas(case: Case, seeds: range) -> int:
    """Walk each schema twice; how many compiled (a few random ones have no answer)."""
    n_compiled = 0
    for seed in seeds:
        schema = SchemaMaker(seed).make()
        try:
            guide = case.compile(json=schema)
        except GuideError:
            continue
        n_compiled += 1
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        rng = random.Random(seed)
        for start in (guide.copy(), guide):
            text = case.walk(start, rng)
            try:
                validator.validate(json.loads(text))
            except (ValueError, jsonschema.ValidationError) as error:
                raise AssertionError(f"{json.dumps(schema)} let pass {text!r}: {error}") from None
    return n_compiled


def test_random_answers_validate_small(small: Case) -> None:
    assert check_random_schemas(small, range(200)) >= 190


def test_random_answers_validate_qwen2(qwen2: Case) -> None:
    assert check_random_schemas(qwen2, range(1000, 1016)) >= 14


# --- the other constraints

CLOSED = {"type": "object", "additionalProperties": False}
NUMBERS = {"type": "array", "items": {"type": "integer"}}
FORMATTED = {"const": {"format": "zip"}}


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        ({"regex": r"\d{3}-[a-z/]+"}, ["123-a/b", "000-z"], ["12-a", "123-", "123-a "]),
        ({"regex": "^a|b$"}, ["a", "b"], ["ab", ""]),
        ({"regex": "a\nb\\\nc\\\\/"}, ["a\nb\nc\\/"], ["a\\nb"]),
        ({"regex": "a\rb\\\rc\\\\"}, ["a\rb\rc\\"], ["a\rb\rc"]),
        (
            {"choice": ["yes", "no", "yes please", "a+b", "[x]/{y}", "n\nl", "r\rl", "\\d", ""]},
            ["yes", "yes please", "a+b", "[x]/{y}", "n\nl", "r\rl", "\\d", ""],
            ["ye", "aab", "5", "no "],
        ),
        ({"grammar": 'start: "a" ("," "a")* end\nend: /[.!]/ // as text ends'}, ["a.", "a,a,a!"], ["a", "a,,a."]),
        ({"grammar": 'start: %json {"type": "string"}'}, ['"\\n"'], ['"\\u0061"', '"\\u0001"']),
        (
            {"grammar": '%llguidance {"no_forcing": true, "allow_initial_skip": true}\n%ignore " "\nstart: "a" "b"'},
            ["ab", " a b"],
            ["b"],
        ),
        (
            {"grammar": "start: (A | B | C | D | E | F)+\n" + "".join(f"{c}: /{c}.*/ & /.*b/\n" for c in "ABCDEF")},
            ["A-b", "A-bF+b"],
            ["A-", "G-b"],
        ),
        ({"grammar": 'start: "a" # no <[1]>, @b nor stop=""\n// so <|end|>'}, ["a"], ["b"]),
        (
            {"grammar": '%llguidance {}\nstart: "J" %json {"type": "integer", "minimum": 5} "/" /x\\/y/'},
            ["J7/x/y"],
            ["J4/x/y"],
        ),
        ({"json_object": True}, ["{}", '{"a": [1, {}], "b": "\\n"}'], ["[]", "1", "{", '{"a" 1}', '{"\\u0061": 1}']),
        ({"json": {"type": "array", "items": {"type": "integer"}}}, ["[]", "[ 1,\n2 ]"], ["[1.5]", "{}"]),
        (
            {"json": {"type": "array", "items": {"type": "integer"}}, "disable_any_whitespace": True},
            ["[1,2]"],
            ["[1, 2]"],
        ),
        ({"json": {"type": "array"}, "whitespace_pattern": "[ \\n]{0,2}"}, ["[1,  2]", "[\n1]"], ["[1,   2]", "[\t1]"]),
        ({"json": "true"}, ["1", "{}"], ["x"]),
        (
            {"json": {"type": "object", "properties": {"a": {"type": "null"}}}},
            ['{"a":null}', '{"b":5}'],
            ['{"a":5}', '{"\\u0061":5}'],
        ),
        ({"json": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}}, ["0", str(2**62)], [str(2**63), "-1"]),
        ({"json": {"type": "integer", "maximum": 2**53 + 3}}, [str(2**53 + 2)], [str(2**53 + 4)]),
        (
            {"json": {**CLOSED, "properties": {f"k{i}": {} for i in range(300)}, "minProperties": 0}},
            ["{}", '{"k7": 1}'],
            ['{"l": 1}'],
        ),
        ({"json": {"type": "object", "minProperties": 1}}, ['{"a": 1}', '{"a": 1, "b": 2}'], ["{}"]),
        ({"json": {"type": "string"}}, ['"ab"', '"\\""'], ['"\\u0061"', '"\\u0001"', '"\n"']),
        # keywords that refuse nothing
        ({"json": {"type": "array", "uniqueItems": False, "maxItems": 2}}, ["[1, 1]"], ["[1, 1, 1]"]),
        (
            {
                "json": {
                    "type": "object",
                    "propertyNames": {"type": "string", "description": "a name"},
                    "additionalProperties": {"type": "array", "items": {"type": "integer"}, "uniqueItems": False},
                }
            },
            ['{"a": [1, 1]}', "{}"],
            ['{"a": ["1"]}'],
        ),
        (
            {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "propertyNames": True}}}},
            ['{"a": 1}'],
            ["[]"],
        ),
        (
            {"grammar": 'start: %json {"anyOf": [{"type": "array", "uniqueItems": false}, {"propertyNames": {}}]}'},
            ["[1, 1]"],
            ["[1"],
        ),
        # names and values that are no keywords
        (
            {
                "json": {
                    "type": "object",
                    "properties": {"uniqueItems": False, "propertyNames": {"type": "string"}},
                    "required": ["propertyNames"],
                }
            },
            ['{"propertyNames": "a"}'],
            ['{"propertyNames": 1}', '{"uniqueItems": 1, "propertyNames": "a"}', "{}"],
        ),
        (
            {"json": {"enum": [{"uniqueItems": False, "propertyNames": {}}]}},
            ['{"uniqueItems": false, "propertyNames": {}}'],
            ["{}"],
        ),
        ({"json": {"const": {"uniqueItems": False}}}, ['{"uniqueItems": false}'], ["{}"]),
        # names that are listed
        (
            {"json": {"type": "object", "propertyNames": {"enum": ["b", "a", 1]}, "additionalProperties": NUMBERS}},
            ["{}", '{"a": [1]}', '{"b": [], "a": [2]}'],
            ['{"c": [1]}', '{"1": [1]}', '{"a": 1}', '{"a": [1], "a": [1]}', "[]"],
        ),
        (
            {
                "json": {
                    "propertyNames": {"$ref": "#/$defs/n"},
                    "required": ["a"],
                    "type": "object",
                    "$defs": {"n": {"title": "N", "enum": ["a", "b"], "type": "string"}},
                }
            },
            ['{"a": 1}', '{"a": {"c": 1}, "b": []}'],
            ["{}", '{"b": 1}', '{"a": 1, "c": 2}'],
        ),
        (
            {
                "json": {
                    "type": "object",
                    "propertyNames": {"anyOf": [{"type": "string", "const": "a"}, {"not": {}}]},
                    "additionalProperties": {"propertyNames": {"enum": ["b"]}, "additionalProperties": {"const": 5}},
                }
            },
            ['{"a": {"b": 5}}', '{"a": {}}', '{"a": 1}'],
            ['{"a": {"b": 6}}', '{"a": {"a": 5}}', '{"b": {}}'],
        ),
        ({"json": {"type": "object", "propertyNames": {"enum": []}}}, ["{}"], ['{"a": 1}']),
        # a pattern binds alone, where a format stands beside it
        (
            {"json": {"type": "string", "format": "time", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}},
            ['"12:30"'],
            ['"12:30:00Z"', '"12:3"'],
        ),
        (
            {"json": {"allOf": [{"format": "email"}, {"pattern": "^.{5}$"}], "type": "string"}},
            ['"a@b.c"'],
            ['"abcde"', '"a@b.cd"'],
        ),
        # formats that nobody here knows
        ({"json": {"type": "string", "format": "path", "maxLength": 2}}, ['"/a"', '""'], ['"/ab"', "1"]),
        ({"grammar": 'start: %json {"anyOf": [{"type": "string", "format": "byte"}]}'}, ['"a"'], ["1"]),
        (
            {"json": {**CLOSED, "properties": {"format": {"type": "string", "format": "regex"}, "a": FORMATTED}}},
            ['{"format": "("}', '{"a": {"format": "zip"}}'],
            ['{"format": 1}', '{"a": {}}'],
        ),
        # what holds at once, as tools write it
        ({"json": {"allOf": [{"pattern": "^a"}, {"pattern": "b$"}], "type": "string"}}, ['"ab"'], ['"a"', '"b"']),
        (
            {"json": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 20}},
            ['"http://a.bc/d"'],
            ['"http://abcdefghijklmnop"', '"a b"'],
        ),
        ({"json": {"type": "string", "enum": [f"a{i}" for i in range(900)], "pattern": "7$"}}, ['"a17"'], ['"a18"']),
        (
            {
                "json": {
                    "$ref": "#/$defs/node",
                    "$defs": {
                        "dated": {"type": "object", "properties": {"on": {"type": "string", "format": "date"}}},
                        "node": {
                            "allOf": [
                                {"$ref": "#/$defs/dated"},
                                {"properties": {"in": {"type": "array", "items": {"$ref": "#/$defs/node"}}}},
                            ]
                        },
                    },
                }
            },
            ['{"on": "2024-02-29", "in": [{"in": []}]}'],
            ['{"in": [{"on": "29"}]}', '{"in": [1]}'],
        ),
        (
            {
                "json": {
                    "$id": "https://example.com/a",
                    "allOf": [{"$ref": "#/$defs/a"}, {"pattern": "^a"}],
                    "$defs": {"a": {"type": "string", "pattern": "b$"}},
                }
            },
            ['"ab"'],
            ['"a"', '"b"'],
        ),
        (
            {
                "json": {
                    "$ref": "#pair",
                    "minProperties": 1,
                    "required": ["b"],
                    "$defs": {
                        "a": {"$anchor": "pair", "type": "object", "properties": {"b": {"$ref": "#/$defs/c"}}},
                        "c": {"$id": "https://example.com/c", "$ref": "#/$defs/c", "$defs": {"c": {"const": 5}}},
                    },
                }
            },
            ['{"b": 5}', '{"b": 5, "c": 1}'],
            ['{"b": 1}', "{}"],
        ),
        (
            {"grammar": "start: A\nA: /[a-z]{2,5}/ & ~/no|yes/ & B // both\nB: /.*[aeiou].*/"},
            ["nor", "yet"],
            ["no", "by", "NO"],
        ),
    ],
)
def test_what_passes(constraint: dict[str, Any], good: list[str], bad: list[str], small: Case) -> None:
    for text in good:
        assert small.accepts(small.compile(**constraint), text), text
    for text in bad:
        assert not small.accepts(small.compile(**constraint), text), text


def test_formats_bind_that_the_compiler_knows(small: Case) -> None:
    """It refuses all others, so they are left out; `unknown`, a format of its own, says nothing."""
    from llguidance import LLMatcher

    vocabulary = small.compiler._read_vocabulary()
    names = {*jsonschema.FormatChecker.checkers, *jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers}
    names |= {*_FORMATS, "password", "binary", "byte", "base64", "url", "nanoid", "jwt", "e164", "cidrv4", "path"}
    known = {name for name in names if not LLMatcher(vocabulary, of_format(name), log_level=0).is_error()}
    assert known == _FORMATS
    for name in names:
        assert small.accepts(small.compile(json={"type": "string", "format": name}), '"<"') == (name not in known)


def of_format(name: str) -> str:
    return json.dumps({"grammars": [{"json_schema": {"type": "string", "format": name}}]})


def test_regex_answers_match(qwen2: Case) -> None:
    for pattern in (r"[a-f0-9]{8}-[a-f0-9]{4}", r"(cat|dog)s?( and (cat|dog)s?){0,3}\.", r"[А-я]{2,9}/[^/]{1,3}"):
        for seed in range(3):
            assert re.fullmatch(pattern, qwen2.walk(qwen2.compile(regex=pattern), random.Random(seed)))


# --- failing closed


def nested_names(depth: int) -> dict[str, Any]:
    """Each within another: written out, twice as many at every depth."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": schema}
    return schema


DRAFT7 = "http://json-schema.org/draft-07/schema#"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("json", {"json": "{"}, "not JSON"),
    ("json", {"json": "5"}, "JSON object"),
    ("json", {"json": "false"}, "nsatisf"),
    ("json", {"json": '{"const": NaN}'}, "not JSON"),
    ("json", {"json": '{"multipleOf": 1e999}'}, "range"),
    ("json", {"json": '{"const": "\\ud800"}'}, "hex escape"),
    ("json", {"json": {"type": "strnig"}}, "strnig"),
    ("json", {"json": {"type": "string", "minLength": "3"}}, "minLength"),
    ("json", {"json": {"type": "string", "pattern": "(?=a)b"}}, "look-around"),
    ("json", {"json": {"type": "string", "pattern": "("}}, "unclosed"),
    ("json", {"json": {"not": {"type": "string"}}}, "not"),
    ("json", {"json": {"if": {"type": "string"}, "then": {}}}, "if"),
    ("json", {"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
    ("json", {"json": {"type": "array", "default": {"uniqueItems": False}, "uniqueItems": 0}}, "uniqueItems"),
    ("json", {"json": {"type": "array", "contains": {}}}, "contains"),
    ("json", {"json": {"type": "object", "propertyNames": {"pattern": "a"}}}, "propertyNames"),
    ("json", {"json": {"type": "object", "propertyNames": {"type": "string", "maxLength": 3}}}, "propertyNames"),
    ("json", {"json": {"type": "object", "propertyNames": False}}, "propertyNames"),
    ("json", {"json": {"type": "object", "propertyNames": {"enum": ["a"], "maxLength": 0}}}, "propertyNames"),
    ("json", {"json": {"type": "object", "propertyNames": {"enum": ["a"], "type": "null"}}}, "propertyNames"),
    ("json", {"json": {"propertyNames": {"anyOf": [{"enum": ["a"]}, {"not": {"enum": ["a"]}}]}}}, "propertyNames"),
    ("json", {"json": {"properties": {"b": {}}, "propertyNames": {"enum": ["a"]}}}, "propertyNames"),
    ("json", {"json": {"patternProperties": {"b": {}}, "propertyNames": {"enum": ["a"]}}}, "propertyNames"),
    (
        "json",
        {"json": {"propertyNames": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/a"}}}},
        "propertyNames",
    ),
    ("json", {"json": {"propertyNames": {"enum": ["a"]}, "$ref": "#/%61dditionalProperties"}}, "propertyNames"),
    ("json", {"json": nested_names(20)}, "propertyNames: what all have"),
    ("json", {"json": {"type": "object", "propertyNames": 1}}, "propertyNames"),
    ("json", {"json": {"type": "object", "dependentRequired": {"a": ["b"]}}}, "dependentRequired"),
    ("json", {"json": {"$schema": DRAFT7, "type": "object", "dependencies": {"a": ["b"]}}}, "dependencies"),
    ("json", {"json": {"type": "object", "unevaluatedProperties": False}}, "unevaluatedProperties"),
    ("json", {"json": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, "oneOf"),
    ("json", {"json": {"$ref": "#/$defs/none"}}, "none"),
    ("json", {"json": {"$ref": "https://example.com/schema"}}, "example.com"),
    ("json", {"json": {"$ref": "#"}}, "satisfies"),
    ("json", {"json": {"type": "integer", "minimum": 5, "maximum": 3}}, "minimum"),
    ("json", {"json": {"allOf": [{"type": "string"}, {"type": "null"}]}}, "nsatisf"),
    ("json", {"json": {"const": 2**53 + 1}}, "2\\^53"),
    ("json", {"json": {"enum": [[{"a": -(2**60)}]]}}, "2\\^53"),
    ("json", {"json": {"type": "integer", "minimum": 10**400}}, "double"),
    ("json", {"json": {"type": "integer", "minimum": int(sys.float_info.max) + 1}}, "double"),
    ("json", {"json": {"type": "integer", "exclusiveMaximum": -int(sys.float_info.max) - 1}}, "double"),
    ("json", {"json": {"type": "integer", "multipleOf": 10**400}}, "multipleOf 10*: as"),
    ("json", {"json": {"type": "integer", "multipleOf": -(10**400)}}, "multipleOf must be over 0"),
    ("json", {"json": {"const": 10**900}}, "2\\^53"),
    ("json", {"json": {"type": "object", "minProperties": 10**900}}, "minProperties"),
    ("json", {"json": {"type": "object", "required": ["a", "a"], "minProperties": 3}}, "with 1 required"),
    ("json", {"json": {"type": "object", "minProperties": 2}}, "minProperties"),
    ("json", {"json": {"type": "object", "x-guidance": {"lenient": True}, "not": {}}}, "x-guidance"),
    ("json", {"json": {"type": "integer", "multipleOf": 0}}, "multipleOf"),
    ("json", {"json": {"type": "number", "multipleOf": 1e-5}}, "multipleOf 1e-05: as a fraction"),
    ("json", {"json": {"allOf": [{"multipleOf": 9.67}, {"multipleOf": 100}]}}, "multipleOf"),
    ("json", {"json": {"allOf": [{"multipleOf": p} for p in (2, 3, 5, 7, 11, 13)]}}, "multipleOf"),
    ("json", {"json": {"patternProperties": {f"^p{i}$": {} for i in range(65)}}}, "patternProperties"),
    ("json", {"json": '{"items":' * 200 + "{}" + "}" * 200}, "deep"),
    ("json", {"json": '{"items":' * 5000 + "{}" + "}" * 5000}, "deep"),
    ("json", {"json": json.dumps({"description": "x" * (256 << 10)})}, "bytes"),
    ("whitespace_pattern", {"json_object": True, "whitespace_pattern": "x*"}, "x\\*"),
    ("whitespace_pattern", {"json_object": True, "whitespace_pattern": "\\s*"}, "may have"),
    ("whitespace_pattern", {"json_object": True, "whitespace_pattern": " " * 257}, "bytes"),
    ("json_object", {"json_object": True, "whitespace_pattern": "[ "}, "unclosed"),
    ("regex", {"regex": ""}, "empty"),
    ("regex", {"regex": "("}, "unclosed"),
    ("regex", {"regex": "a\\"}, "backslash"),
    ("regex", {"regex": "(?!a)b"}, "look-around"),
    ("regex", {"regex": "[a-z]" * 90 + "(?!a)"}, "at 2.9.: look-around"),
    ("regex", {"regex": "a)|(b"}, "unopened"),
    ("regex", {"regex": "(a)\\1"}, "backreferences"),
    ("regex", {"regex": "[^\\x00-\\x{10FFFF}]"}, "."),
    ("regex", {"regex": "a" * (17 << 10)}, "bytes"),
    ("regex", {"regex": "é" * (9 << 10)}, "bytes"),
    ("regex", {"regex": "\ud800"}, "surrogate"),
    ("choice", {"choice": ["a" * 70_000]}, "bytes"),
    ("choice", {"choice": ["\ud800"]}, "surrogate"),
    ("grammar", {"grammar": " \n"}, "empty"),
    ("grammar", {"grammar": 'begin: "a"'}, "start"),
    ("grammar", {"grammar": "start: other"}, "other"),
    ("grammar", {"grammar": 'start: "a'}, "."),
    ("grammar", {"grammar": "start: start"}, "satisfies"),
    ("grammar", {"grammar": '{"grammars": [{"json_schema": {}}]}'}, "."),
    ("grammar", {"grammar": "start: <[400]>"}, "token ids"),
    ("grammar", {"grammar": "start: <[*]>"}, "token ids"),
    ("grammar", {"grammar": 'start: "a" <|end|>'}, "ends an answer"),
    ("grammar", {"grammar": 'start: "a" <|nothing|>'}, "nothing"),
    ("grammar", {"grammar": 'start: "a" <odd>'}, "odd"),
    ("grammar", {"grammar": "start: x\nx[temperature=0.5]: /a+/"}, "temperature"),
    ("grammar", {"grammar": 'start: x\nx[lazy, stop = "b"]: /a+/'}, "stop"),
    ("grammar", {"grammar": 'start: x\nx[stop_capture="b"]: /a+/'}, "has 'stop_capture='"),
    ("grammar", {"grammar": '%llguidance {"allow_invalid_utf8": true}\nstart: "a"'}, "llguidance"),
    ("grammar", {"grammar": 'start: %json {"type": "string", "format": 5}'}, "format"),
    ("grammar", {"grammar": 'start: %json {"x-guidance": {"lenient": true}, "not": {}}'}, "x-guidance"),
    ("grammar", {"grammar": "start: %json {"}, "JSON"),
    ("grammar", {"grammar": 'start: "' + "a" * (65 << 10) + '"'}, "bytes"),
]


@pytest.mark.parametrize(("field", "constraint", "word"), REFUSED)
def test_refused_by_name(field: str, constraint: dict[str, Any], word: str, small: Case) -> None:
    with pytest.raises(GuideError, match=word) as caught:
        small.compile(**constraint)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"structured_outputs.{field}: ")
    assert len(str(caught.value)) < 500
    assert "backtrace" not in str(caught.value)


def test_a_refusal_reaches_another_process_whole() -> None:
    error = GuideError("regex", "is empty")
    assert repr(pickle.loads(pickle.dumps(error))) == repr(error)
    assert str(pickle.loads(pickle.dumps(error))) == "structured_outputs.regex: is empty"


def test_a_grammar_that_outgrows_its_limits_fails_and_is_not_given_out_again(small: Case) -> None:
    wide = {"grammar": "start: " + " | ".join(f'"a{i}"' for i in range(6000))}
    guide = small.compile(**wide)
    with pytest.raises(GuideError, match="cannot go on"):
        guide.advance(ord("a"))
    row = np.full_like(small.row, 0xFFFFFFFF)
    with pytest.raises(GuideError, match="cannot go on"):
        guide.mask(row)  # the library's own mask would allow an end here
    assert not row.any()
    assert not guide.may_end
    assert not guide.finished
    fresh = small.compile(**wide)
    assert fresh._compiled is not guide._compiled
    assert small.allowed(fresh) == [ord("a")]


@pytest.mark.parametrize("dtype_shape", [(np.int32, 16), (np.uint32, 15), (np.uint32, 17)])
def test_mask_refuses_another_row(dtype_shape: tuple[Any, int], small: Case) -> None:
    with pytest.raises(ValueError, match="row must be"):
        small.compile(json_object=True).mask(np.zeros(dtype_shape[1], dtype_shape[0]))
    frozen = np.zeros_like(small.row)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="row must be"):
        small.compile(json_object=True).mask(frozen)


# --- bombs


@pytest.mark.alone
@pytest.mark.parametrize(
    "constraint",
    [
        {"json": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(4000)}}},
        {"json": {"allOf": [{"anyOf": [{"type": "string", "minLength": i}, {"maxLength": i}]} for i in range(25)]}},
        {"json": {"allOf": [{"type": "integer", "multipleOf": p} for p in (9967, 9973)]}},
        {"json": {"patternProperties": {f"^(a|b)*a(a|b){{{i}}}$": {} for i in range(40)}}},
        {"json": {"type": "string", "pattern": "(?" * 100_000}},
        {"grammar": "start: a" + "?" * 60_000},
    ],
)
def test_bombs_are_refused_in_time(constraint: dict[str, Any], small: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the usual limit, so that a busy machine keeps within 2.5 s, which the first does not without one."""
    monkeypatch.setattr(guide_module, "COMPILE_LIMIT_S", 0.5)
    small.compiler.prepare()
    start = time.perf_counter()
    with pytest.raises(GuideError):
        small.compile(**constraint)
    assert time.perf_counter() - start < 2.5


NAMES = [f"p{k}" for k in range(1, 23)]
SEARCHED = {name: {"type": "string", "pattern": f"(a.{{{k}}}b)"} for k, name in enumerate(NAMES)}
"""Patterns that may begin anywhere in a string: a step of all of them may begin any set of them."""
PATTERNS = [*SEARCHED.values()]
ADDRESS = "https://example.com/own"
HALF, OTHER_HALF = {"allOf": PATTERNS[:8]}, {"allOf": PATTERNS[8:16]}
"""Each may stand alone, and beside anything but the other."""
FORMATS = ("date-time", "duration", "email", "hostname", "ipv6", "uri")
TOKENS = [f"/.*a.{{{k}}}b.*/" for k in range(len(NAMES))]


def chained(links: list[dict[str, Any]]) -> dict[str, Any]:
    definitions = {f"a{i}": {**link, "$ref": f"#/$defs/a{i + 1}"} for i, link in enumerate(links)}
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{len(links)}": {}}}


def anchored() -> dict[str, Any]:
    definitions = {name: {**pattern, "$anchor": name} for name, pattern in SEARCHED.items()}
    return {"allOf": [{"$ref": f"#{name}"} for name in NAMES], "$defs": definitions}


def elsewhere(keyword: str, **more: Any) -> dict[str, Any]:
    """An object that `keyword` gives an address of its own, from which pointers lead to its own definitions."""
    references = [{"$ref": f"#/$defs/{name}"} for name in NAMES]
    own = {keyword: ADDRESS, "allOf": references, "$defs": SEARCHED}
    return {**more, "$ref": "#/$defs/own", "$defs": {**{name: {} for name in NAMES}, "own": own}}


def going_round() -> dict[str, Any]:
    """Definitions in pairs, each leading to the other: those that hold at once have no pattern but where they lead."""
    to = {name: {"$ref": f"#/$defs/{name}"} for name in [*NAMES, *(f"{name}b" for name in NAMES)]}
    pairs = {name: {"properties": {"s": pattern, name: to[f"{name}b"]}} for name, pattern in SEARCHED.items()}
    pairs |= {f"{name}b": {"properties": {"c": to[name]}} for name in NAMES}
    places = {
        "a": {"properties": {name: to[name] for name in NAMES}},
        "z": {"allOf": [to[f"{name}b"] for name in NAMES]},
    }
    return {"type": "object", "properties": places, "$defs": pairs}


def keys(n: int) -> dict[str, Any]:
    return {f"k{i}": {} for i in range(n)}


def wide(end: str) -> str:
    classes = itertools.islice(itertools.combinations(string.ascii_letters + string.digits, 3), 8000)
    return "(" + "|".join(f"[{''.join(letters)}]{end}{i}" for i, letters in enumerate(classes)) + ")"


TOO_WIDE: list[dict[str, Any]] = [
    {"json": {"allOf": PATTERNS}},
    {"json": {"allOf": [{"anyOf": [pattern, {"type": "null"}]} for pattern in PATTERNS]}},
    {"json": {"allOf": [{"properties": {"a": pattern}} for pattern in PATTERNS]}},
    {"json": {"allOf": [{"additionalProperties": pattern} for pattern in PATTERNS]}},
    {"json": {"allOf": [{"items": pattern} for pattern in PATTERNS]}},
    {"json": {"allOf": [{"prefixItems": [pattern]} for pattern in PATTERNS]}},
    {"json": {"allOf": [{"patternProperties": {"^a": pattern}} for pattern in PATTERNS]}},
    {"json": chained(PATTERNS)},
    {"json": chained([{"properties": {"a": pattern}} for pattern in PATTERNS])},
    {"json": anchored()},
    {"json": {"$ref": "#own", "$defs": {"a": {"$anchor": "own", "allOf": PATTERNS}}}},
    {"json": {"$ref": "#/$defs/own", "$defs": {"own": {"$id": ADDRESS, "allOf": PATTERNS}}}},
    {"json": {"$id": ADDRESS, "$ref": f"{ADDRESS}#/$defs/a", "$defs": {"a": {"allOf": PATTERNS}}}},
    {"json": elsewhere("$id")},
    {"json": elsewhere("id", **{"$schema": "http://json-schema.org/draft-04/schema#"})},
    {"json": {"$ref": "#a", "$defs": {"a": {**CLOSED, "$anchor": "a", "properties": keys(999)}}, "minProperties": 1}},
    {"json": going_round()},
    {"json": {"allOf": [{"anyOf": PATTERNS}, {"anyOf": [{"minLength": i} for i in range(2000)]}]}},
    {"json": {"type": "object", "patternProperties": {wide("x"): {}, wide("y"): {}}}},
    {"json": {**CLOSED, "properties": keys(1000), "minProperties": 1}},
    {"json": {"allOf": [{**CLOSED, "properties": keys(2000), "required": [*keys(1000)]}, {"maxProperties": 1001}]}},
    {"json": {"allOf": [{"oneOf": [pattern, {"type": "null"}]} for pattern in PATTERNS]}},
    {"json": {"allOf": [{"anyOf": []}, *PATTERNS]}},
    {"json": {"allOf": [{"format": name} for name in FORMATS]}},
    {"json": {"allOf": [{"minLength": i} for i in range(17)]}},
    {"json": {"allOf": [{"patternProperties": {f"a.{{{i}}}b": {}}} for i in range(17)]}},
    {"json": {"allOf": [{"properties": {"a": pattern}} for pattern in PATTERNS[:11]]}},
    {"json": {"properties": {"a": HALF}, "patternProperties": {"^a": OTHER_HALF}}},
    {"json": {"allOf": [{"patternProperties": {"^a": half}} for half in (HALF, OTHER_HALF)]}},
    {"json": {"allOf": [{"anyOf": [{"properties": {"a": HALF}}]}, {"properties": {"a": OTHER_HALF}}]}},
    {"json": {"allOf": [{"properties": {"a": HALF}}, {"additionalProperties": OTHER_HALF}]}},
    {"json": {"allOf": [{"required": ["a"], "additionalProperties": HALF}, {"properties": {"a": OTHER_HALF}}]}},
    {"json": {"allOf": [{"prefixItems": [{}, half]} for half in (HALF, OTHER_HALF)]}},
    {
        "json": {
            "allOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c~0%20d"}],
            "$defs": {"a/b": HALF, "c~ d": OTHER_HALF},
        }
    },
    {"json": {"allOf": [HALF, {"$ref": "#/$defs/a/anyOf/1"}], "$defs": {"a": {"anyOf": [{}, OTHER_HALF]}}}},
    {"json": {**CLOSED, "properties": keys(300), "anyOf": [{"minProperties": 1}, {"maxProperties": 9}]}},
    {"json": {"anyOf": [{**CLOSED, "properties": keys(300)}, {"type": "null"}], "maxProperties": 9}},
    {"json": {"type": "object", "required": [*keys(12_000)]}},
    {"json": {"const": keys(12_000)}},
    {"grammar": f"start: %json {json.dumps({'allOf': PATTERNS})}"},
    {"grammar": "start: A\nA: " + " & ".join(TOKENS)},
    {"grammar": "start: A\nA: /[ab]{40}c/ & ~" + " & ~".join(TOKENS)},
    {"grammar": "start: A0\nA22: /.*/\n" + "".join(f"A{k}: A{k + 1} & {token}\n" for k, token in enumerate(TOKENS))},
    {"grammar": "%ignore " + " & ".join(TOKENS) + '\nstart: "a"'},
]


@pytest.mark.parametrize("constraint", TOO_WIDE)
def test_what_is_too_wide_together_is_refused_before_it_is_compiled(constraint: dict[str, Any], small: Case) -> None:
    """A compilation that has begun cannot be ended: most of these would take minutes, and all memory."""
    before = threading.enumerate()
    with pytest.raises(GuideError, match=r"at once|name fewer") as caught:
        small.compile(**constraint)
    assert [caught.value.field] == [*constraint]
    assert not set(threading.enumerate()) - set(before)


def test_references_that_lead_everywhere_take_no_time(small: Case) -> None:
    """Each schema is looked at a few times, by however many ways it is reached."""
    all_to_all = {str(i): {"anyOf": [{"$ref": f"#/$defs/{j}"} for j in range(60)], "pattern": "^a"} for i in range(60)}
    doubling: dict[str, Any] = {str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(180)}
    doubling["180"] = {"type": "string", "pattern": "a"}
    for definitions in (all_to_all, doubling):
        start = time.process_time()
        with pytest.raises(GuideError, match=r"at once|one of its own"):
            small.compile(json={"$ref": "#/$defs/0", "$defs": definitions})
        assert time.process_time() - start < 2


def nested(kind: str, n: int) -> dict[str, Any]:
    """A schema that the compiler writes twice or more for each level around it."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(n):
        if kind == "names elsewhere":
            names = {"properties": {"a": {}, "b": {}}, "additionalProperties": False}
            schema = {"type": "object", "additionalProperties": schema, "allOf": [names]}
        elif kind == "required":
            schema = {"type": "object", "additionalProperties": schema, "required": ["a", "b"]}
        elif kind == "patterns":
            schema = {"type": "object", "patternProperties": {"^[a-z]": schema}, "properties": {"a": {}, "b": {}}}
        elif kind == "options":
            options = [{"required": [name], "properties": {name: {}}} for name in "bc"]
            schema = {"type": "object", "properties": {"a": schema}, "anyOf": options}
        else:
            schema = {"type": "array", "items": schema, "allOf": [{"prefixItems": [{}, {}], "minItems": 2}]}
    return schema


@pytest.mark.parametrize("kind", ["names elsewhere", "required", "patterns", "options", "elements"])
def test_a_small_schema_that_is_written_a_million_times(kind: str) -> None:
    """It would take gigabytes on a thread that nothing ends."""
    case = Case(SmallTokenizer())
    assert case.compile(json=nested(kind, 3))
    with pytest.raises(GuideError, match="meet each of several properties or options"):
        case.compile(json=nested(kind, 24))


def linked(n: int, link: Mapping[str, Any]) -> dict[str, Any]:
    """Objects of two properties each, whose schemas are the same object's, n times."""
    definitions: dict[str, Any] = {"d0": {"type": "object"}}
    for i in range(1, n):
        to = json.loads(json.dumps(link).replace("NEXT", f"#/$defs/d{i - 1}"))
        definitions[f"d{i}"] = {"type": "object", "properties": {"a": to, "b": to}, "required": ["a", "b"]}
    return {"$ref": f"#/$defs/d{n - 1}", "$defs": definitions}


@pytest.mark.parametrize(
    "link",
    [
        {"$ref": "NEXT"},
        {"$ref": "NEXT", "description": "x"},
        {"allOf": [{"$ref": "NEXT"}], "title": "x"},
        {"anyOf": [{"$ref": "NEXT"}, {"type": "null"}]},
    ],
)
def test_what_references_lead_to_is_written_once(link: Mapping[str, Any]) -> None:
    assert Case(SmallTokenizer()).compile(json=linked(60, link))


def test_a_reference_with_others_beside_it_is_written_again() -> None:
    with pytest.raises(GuideError, match="meet each of several properties or options"):
        Case(SmallTokenizer()).compile(json=linked(60, {"$ref": "NEXT", "type": "object"}))


DEEP = """
import json, sys
sys.path[:0] = sys.argv[1:]
from test_guide import Case, SmallTokenizer, GuideError
case = Case(SmallTokenizer())
def chain(n, inner):
    defs = {f"a{i}": inner({"$ref": f"#/$defs/a{i + 1}"}) for i in range(n)}
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{n}": {"type": "null"}}}
def nest(schema):
    for _ in range(90):
        schema = {"type": "array", "items": schema}
    return schema
bombs = [
    {"json": chain(4000, lambda s: s)},
    {"json": chain(3400, lambda s: {"type": "array", "items": s})},
    {"json": chain(90, nest)},
    {"grammar": "start: r0\\n" + "".join(f"r{i}: r{i + 1}\\n" for i in range(4800)) + 'r4800: "a"'},
    {"grammar": "start: R0\\n" + "".join(f"R{i}: R{i + 1}\\n" for i in range(4800)) + 'R4800: "a"'},
    {"grammar": "start: " + "(" * 20000 + '"a"' + ")" * 20000},
    {"regex": "(" * 8000 + "a" + ")" * 8000},
    {"regex": "(a*)*" * 3200},
]
for bomb in bombs:
    try:
        guide = case.compile(**bomb)
        for _ in range(3):
            allowed = case.allowed(guide)
            guide.advance(allowed[0])
    except GuideError as error:
        print(str(error)[:100])
print("survived")
"""


def test_deep_recursion_does_not_end_the_process() -> None:
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", DEEP, str(folder), str(folder.parent)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["survived"], (done.returncode, done.stdout, done.stderr)


def test_a_compilation_past_its_limit_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    compile_really = guide_module._compile

    def compile_slowly(*args: Any) -> Any:
        released.wait(20)
        return compile_really(*args)

    monkeypatch.setattr(guide_module, "_compile", compile_slowly)
    monkeypatch.setattr(guide_module, "COMPILE_LIMIT_S", 0.1)
    case = Case(SmallTokenizer())
    for i in range(4):
        with pytest.raises(GuideError, match="to compile; simplify"):
            case.compile(regex=f"a{i}")
    with pytest.raises(GuideError, match="still being compiled"):
        case.compile(regex="b")
    released.set()
    monkeypatch.setattr(guide_module, "COMPILE_LIMIT_S", 60.0)
    assert case.accepts(case.compile(regex="b"), "b")


def test_memory_stays_flat_over_distinct_schemas() -> None:
    case = Case(SmallTokenizer())
    case.compiler = GuideCompiler(case.tokenizer, case.vocab_size, case.tokenizer.eos_ids, cache_bytes=16 << 20)
    process = psutil.Process()

    def use(numbers: range) -> int:
        for i in numbers:
            schema = {"type": "object", "properties": {f"k{i}": {"enum": [f"v{i}", i]}, "s": {"type": "string"}}}
            guide = case.compile(json=schema)
            for byte in b'{"k':
                case.allowed(guide)
                guide.advance(byte)
        gc.collect()
        return process.memory_info().rss

    before = use(range(500))
    assert use(range(500, 2500)) - before < 24 << 20
    assert sum(c.weight_bytes for c in case.compiler._cache.values()) <= 16 << 20


# --- state


def steps(case: Case, guide: Guide, rng: random.Random, n: int) -> Iterator[int]:
    for _ in range(n):
        allowed = [i for i in case.allowed(guide) if i not in case.tokenizer.eos_ids]
        if not allowed:
            return
        token_id = rng.choice(allowed)
        guide.advance(token_id)
        yield token_id


@pytest.mark.parametrize("seed", range(5))
def test_rollback_and_copies_give_the_same_masks(seed: int, small: Case) -> None:
    rng = random.Random(seed)
    guide = small.compile(json=SchemaMaker(seed + 50).make())
    masks = [small.allowed(guide)]
    ids = []
    for token_id in steps(small, guide, rng, 40):
        ids.append(token_id)
        masks.append(small.allowed(guide))
    fork = guide.copy()
    for back in (1, 5, 0, len(ids) - 6):
        guide.rollback(back)
        assert small.allowed(guide) == masks[guide.n_tokens]
    assert small.allowed(fork) == masks[-1]
    for token_id in ids[guide.n_tokens :]:
        guide.advance(token_id)
        assert small.allowed(guide) == masks[guide.n_tokens]
    with pytest.raises(ValueError, match="forget"):
        guide.rollback(len(ids) + 1)


def test_rollback_over_an_end(small: Case) -> None:
    guide = small.compile(choice=["a", "ab"])
    guide.advance(ord("a"))
    before = small.allowed(guide)
    assert before == [ord("b"), END, TURN]
    guide.advance(TURN)
    assert guide.finished
    assert small.allowed(guide) == [END, TURN]
    with pytest.raises(ValueError, match="not allowed"):
        guide.advance(ord("b"))
    guide.rollback(1)
    assert not guide.finished
    assert small.allowed(guide) == before
    guide.advance(ord("b"))
    assert guide.finished
    guide.rollback(2)
    assert small.allowed(guide) == [ord("a")]


def test_a_token_that_is_not_allowed_changes_nothing(small: Case) -> None:
    guide = small.compile(choice=["ab"])
    for token_id in (ord("b"), END, CALL, 450, 503, -1, 10**6):
        with pytest.raises(ValueError, match="token"):
            guide.advance(token_id)
    assert guide.n_tokens == 0
    guide.advance(ord("a"))
    guide.advance(ord("b"))
    assert guide.finished


def test_forced_tokens_are_the_usual_ones_and_all_that_masks_allow(qwen2: Case) -> None:
    guide = qwen2.compile(regex="The quick brown fox jumps( over| under)")
    forced = guide.forced()
    usual = qwen2.tokenizer.encode("The quick brown fox jumps over", add_special=False)
    assert len(forced) >= 3
    assert forced == usual[: len(forced)]
    for token_id in forced:
        assert qwen2.allowed(guide) == [token_id]
        guide.advance(token_id)
    assert guide.forced() == []
    assert len(qwen2.allowed(guide)) > 1


def test_forced_text_is_spelled_by_sentencepiece_without_its_space() -> None:
    case = real_case("llama2")
    guide = case.compile(json={"const": "name of a person"})
    assert case.walk(guide, random.Random(0)) == '"name of a person"'


def test_several_threads(small: Case) -> None:
    """Guides of one grammar in several threads at once, while others are compiled."""
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            case = Case(small.tokenizer)
            case.compiler = small.compiler
            for i in range(5):
                text = case.walk(
                    case.compile(json={"type": "array", "items": {"type": "integer"}}), random.Random(seed + i)
                )
                assert all(isinstance(n, int) for n in json.loads(text))
                case.compile(regex=f"s{seed}x{i}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_importing_is_light() -> None:
    code = "import sys, gristmill.engine.guide; print('llguidance' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
