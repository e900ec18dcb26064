"""What a caller asks of an answer -> one grammar for llguidance, checked first and refused by name where it would be
ignored, be understood differently, or not be compiled in bounded time and stack. It knows no vocabulary."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from gristmill.engine.guide_copies import check_copies
from gristmill.engine.guide_moves import check_moves
from gristmill.engine.guide_parts import children_first, token_parts
from gristmill.engine.guide_schema import GuideError, check_schema, check_size, naming, parse_schema, refuse_constant
from gristmill.types import StructuredOutputsParams

MAX_GRAMMAR_BYTES: Final = 64 << 10
MAX_REGEX_BYTES: Final = 16 << 10
MAX_CHOICE_BYTES: Final = 64 << 10
# Escapes a model may write in JSON strings: without \uXXXX, since a key written with it would pass for another key.
_ESCAPES = 'nrbtf\\"'
_WHITESPACE = re.compile(r"(?:[ \t\r\n\[\]()?*+|]|\\[nrt]|\\x(?:20|0[9aAdD])|\{[0-9]*(?:,[0-9]*)?\})*")


def constraint_field(params: StructuredOutputsParams) -> str:
    """The name of the one constraint that is set."""
    for name in ("json", "regex", "choice", "grammar"):
        if getattr(params, name) is not None:
            return name
    return "json_object"


def build_grammar(params: StructuredOutputsParams, end_texts: frozenset[str] = frozenset()) -> str:
    """llguidance's JSON for `params`. end_texts: texts of tokens that end an answer, which no grammar may name.

    Raises GuideError.
    """
    answer, frame = _answer(params, end_texts), params.frame
    if frame is None:
        return json.dumps({"grammars": [answer]})
    outer = {"lark_grammar": check_lark(frame.grammar, end_texts, embeds=True)}
    return json.dumps({"grammars": [outer, {"name": "answer", **answer}]})


def _answer(params: StructuredOutputsParams, end_texts: frozenset[str]) -> dict[str, Any]:
    """The constraint itself, as one of llguidance's grammars."""
    field = constraint_field(params)
    if field == "grammar":
        assert params.grammar is not None
        return _lark(check_lark(params.grammar, end_texts))
    if field in ("regex", "choice"):
        regex, choice = params.regex, params.choice or ()
        pattern = _regex_in_lark(field, regex) if regex is not None else _choice_regex(choice)
        without = params.frame.not_answer if params.frame is not None else None
        rest = f" & ~/{_regex_in_lark('regex', without)}/" if without is not None else ""
        return _lark(f"start: ANSWER\nANSWER: /{pattern}/{rest}")
    schema: dict[str, Any] = {"type": "object"} if field == "json_object" else parse_schema("json", params.json)
    schema["x-guidance"] = {
        "json_allowed_escapes": _ESCAPES,
        "whitespace_flexible": not params.disable_any_whitespace,
        **_whitespace(params.whitespace_pattern),
    }
    return {"json_schema": schema}


def _lark(text: str) -> dict[str, Any]:
    return {"lark_grammar": text}


def _whitespace(pattern: str | None) -> dict[str, str]:
    if pattern is None:
        return {}
    check_size("whitespace_pattern", pattern, 256)
    if _WHITESPACE.fullmatch(pattern) is None:
        raise GuideError(
            "whitespace_pattern", f"{pattern!r} may have spaces, \\n, \\r, \\t, [], (), | and repetitions only"
        )
    return {"whitespace_pattern": pattern}


def _regex_in_lark(field: str, regex: str) -> str:
    """`regex` as it stands between two slashes."""
    check_size(field, regex, MAX_REGEX_BYTES)
    if not regex:
        raise GuideError(field, "is empty")
    if (len(regex) - len(regex.rstrip("\\"))) % 2:
        raise GuideError(field, "ends with a backslash that escapes nothing")
    # Pairs first, so that a slash or line end after an escaped backslash is not taken for an escaped one.
    return re.sub(r"\\(.)|/|\n|\r", _escape_for_lark, regex, flags=re.DOTALL)


def _escape_for_lark(match: re.Match[str]) -> str:
    special = {"/": "\\/", "\n": "\\n", "\r": "\\r", "\\\n": "\\n", "\\\r": "\\r"}
    return special.get(match.group(), match.group())


def _choice_regex(choice: tuple[str, ...]) -> str:
    check_size("choice", "".join(choice), MAX_CHOICE_BYTES)
    special = {"\n": "\\n", "\r": "\\r"}
    meta = re.compile(r"[\\.+*?()|\[\]{}^$#&\-~/\n\r]")
    return "(?:" + "|".join(meta.sub(lambda m: special.get(m[0], "\\" + m[0]), text) for text in choice) + ")"


_LARK_TOKENS = re.compile(
    r"""
      (?P<comment>(?:\#|//)[^\n]*)
    | (?P<string>"(?:\\.|[^"\\\n])*"i?)
    | (?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
    | (?P<special><[^<>\s]+>)
    | (?P<embedded>%(?:json|regex|llguidance)(?![a-z]))
    | (?P<attribute>\b(?:temperature|stop|stop_capture)\s*=)
    | (?P<grammar>@[A-Za-z0-9_\-]*)
    | (?P<word>[A-Za-z][A-Za-z0-9_\-]*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_HARMLESS_OPTIONS = frozenset({"no_forcing", "allow_initial_skip"})


def check_lark(text: str, end_texts: frozenset[str], *, embeds: bool = False) -> str:
    """`text` with its JSON schemas as `build_grammar` would give them. embeds: it may refer to other grammars.

    Raises GuideError for what llguidance allows beyond a grammar of text: options of sampling, ids, end tokens.
    """
    check_size("grammar", text, MAX_GRAMMAR_BYTES)
    if not text.strip():
        raise GuideError("grammar", "is empty")
    kept: list[str] = []
    tokens: list[tuple[str | None, str]] = []
    at = 0
    while match := _LARK_TOKENS.match(text, at):
        at = match.end()
        kept.append(match.group())
        tokens.append((match.lastgroup, match.group()))
        if match.lastgroup == "special":
            _check_special(match.group(), end_texts)
        elif match.lastgroup == "grammar" and not embeds:
            raise GuideError("grammar", f"refers to another grammar, {match.group()}; there is none")
        elif match.lastgroup == "attribute":
            raise GuideError("grammar", f"has {match.group()!r}, which is not implemented; leave it out")
        elif match.lastgroup == "embedded":
            try:
                value, at = _read_embedded(match.group(), text, at)
            except GuideError as error:  # said as the library says it
                line = text[: match.start()].split("\n")
                raise GuideError("grammar", f"at {len(line)}({len(line[-1]) + 1}): {error.reason}") from None
            kept.append(" " + json.dumps(value))
    if ("other", "&") in tokens:
        with naming("grammar"):
            order = children_first(token_parts(tokens))
            check_moves(order)
            check_copies(order)
    return "".join(kept)


def _check_special(name: str, end_texts: frozenset[str]) -> None:
    if name.startswith("<["):
        raise GuideError("grammar", f"has token ids {name}; name a special token by its text")
    if name in end_texts:
        raise GuideError("grammar", f"names {name}, which ends an answer; that is allowed wherever the grammar may end")


def _read_embedded(keyword: str, text: str, at: int) -> tuple[Any, int]:
    """The JSON after `keyword`, checked, and where it ends."""
    space = re.compile(r"\s*").match(text, at)
    assert space is not None
    try:
        value, end = json.JSONDecoder(parse_constant=refuse_constant).raw_decode(text, space.end())
    except (ValueError, RecursionError) as error:
        raise GuideError("grammar", f"{keyword} is not followed by JSON: {error}") from None
    if keyword == "%json":
        check_schema("grammar", value)
        value["x-guidance"] = {"json_allowed_escapes": _ESCAPES}
    elif keyword == "%llguidance" and not (isinstance(value, dict) and value.keys() <= _HARMLESS_OPTIONS):
        raise GuideError("grammar", f"%llguidance may set {' and '.join(sorted(_HARMLESS_OPTIONS))} only")
    return value, end
