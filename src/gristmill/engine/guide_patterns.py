"""Patterns and constants of JSON schemas in the characters that strings of an answer can have. They are written without
\\uXXXX, so most control characters are not among them: the compiler drops those, or takes quotes for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gristmill.engine.guide_parts import as_dict, as_list

_UNWRITABLE: Final = r"\x00-\x07\x0b\x0e-\x1f\x7f"
_CONTROL: Final = re.compile(f"[{_UNWRITABLE}]")
_HEX: Final = "[0-9a-fA-F]"
_ATOM: Final = re.compile(
    rf"\\(?:[pP](?:\{{[^}}]*\}}|.)|[xu]\{{{_HEX}+\}}|x{_HEX}{{2}}|u{_HEX}{{4}}|U{_HEX}{{8}}|.)|.", re.DOTALL
)
"""A character, or all of its escape."""
_NAMED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_VERBOSE: Final = re.compile(r"\?[a-zA-Z]*x")
_LOOK_AROUND: Final = re.compile(r"\?<?[=!]")
_SECONDS: Final = r"\d+([.,]\d+)?S"
_TIME: Final = rf"T(\d+H(\d+M)?({_SECONDS})?|\d+M({_SECONDS})?|{_SECONDS})"

_WITHOUT_LOOK_AROUND: Final = {
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$": (
        r"^([A-Za-z0-9_'+\-]+\.)*[A-Za-z0-9_'+\-]*[A-Za-z0-9_+\-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
    ),
    r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$": (
        rf"^P(\d+W|(\d+Y(\d+M)?(\d+D)?|\d+M(\d+D)?|\d+D)({_TIME})?|{_TIME})$"
    ),
}
"""Patterns that zod gives e-mail addresses and durations, and their equals."""


class UnwritableError(ValueError):
    """A string that no answer can have is asked for, or a pattern is read in more than one way."""


def make_writable(schemas: Sequence[dict[str, Any]]) -> None:
    """In place, leave characters that cannot be written out of what patterns match. Raises UnwritableError.

    The compiler takes a class of all control characters, as most that begin with ^ are, to hold the escapes of the
    quote and the backslash too.
    """
    constants = [[*_values([schema.get("const"), schema.get("enum")])] for schema in schemas]
    data = {id(value) for values in constants for value in values if isinstance(value, dict)}
    with_patterns = any(schema.get("patternProperties") for schema in schemas)
    for schema, values in zip(schemas, constants, strict=True):
        for value in values:
            _check_text("const or enum", value)
        if with_patterns:  # which would not match such a name any more
            names = [*as_dict(schema.get("properties")), *as_list(schema.get("required"))]
            for name in (*names, *(key for value in values for key in as_dict(value))):
                _check_text("beside patternProperties, a property", name)
        if (changed := _changed(schema)) and id(schema) in data:
            raise UnwritableError("has a reference that may lead into a const or enum, which has a pattern: move it")
        schema.update(changed)


def _values(document: object) -> Iterator[object]:
    pending = [document]
    while pending:
        value = pending.pop()
        yield value
        if isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value


def _check_text(what: str, text: object) -> None:
    if isinstance(text, str) and (found := _CONTROL.search(text)):
        raise UnwritableError(f"{what} has U+{ord(found[0]):04X} in {text!r:.60}, which no answer can have")


def _changed(schema: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if isinstance(pattern := schema.get("pattern"), str):
        changed["pattern"] = writable(pattern)
    if isinstance(patterns := schema.get("patternProperties"), dict):
        changed["patternProperties"] = by_pattern = {writable(key): value for key, value in patterns.items()}
        if len(by_pattern) < len(patterns):
            raise UnwritableError("has two patternProperties that match the same names: join them")
    return changed


def writable(pattern: str) -> str:
    """ECMA-262's `pattern` in the compiler's words, which has nested classes and operations on them. Raises
    UnwritableError."""
    name = f"pattern {pattern!r:.80}"
    atoms = _ATOM.findall(_WITHOUT_LOOK_AROUND.get(pattern, pattern))
    written: list[str] = []
    at = 0
    while at < len(atoms):
        atom, at = atoms[at], at + 1
        if atom == "[":
            try:
                end = atoms.index("]", at)
            except ValueError:
                raise UnwritableError(f"{name} has an unclosed class") from None
            if atoms[at:end] in ([], ["^"]):
                raise UnwritableError(f"{name} has [] or [^], which is read in two ways; write [\\]]")
            written.append(_without_control(_class(atoms[at:end])))
            at = end + 1
        elif atom[:2] in (r"\p", r"\P"):
            written.append(_without_control(atom))
        elif atom == "(" and _LOOK_AROUND.match("".join(atoms[at : at + 3])):
            raise UnwritableError(f"{name} has look-around, which is not supported")
        elif atom == "(" and _VERBOSE.match("".join(atoms[at : at + 10])):
            raise UnwritableError(f"{name} has the flag x, which JSON Schema lacks; leave it out")
        else:
            _check_text(name, _character(atom))
            written.append(atom)
    return "".join(written)


def _without_control(members: str) -> str:
    return f"[{members}&&[^{_UNWRITABLE}]]"


def _class(atoms: Sequence[str]) -> str:
    """atoms: what stands between the brackets."""
    negated = atoms[0] == "^"
    written = ["[^" if negated else "["]
    at = int(negated)
    while at < len(atoms):
        if at + 2 < len(atoms) and atoms[at + 1] == "-":
            low, high = atoms[at], atoms[at + 2]
            is_range = _character(low) is not None and _character(high) is not None
            written += [_member(low), "-" if is_range else r"\-", _member(high)]  # beside \w, say, it is itself
            at += 3
        else:
            written.append(_member(atoms[at]))
            at += 1
    return "".join(written) + "]"


def _member(atom: str) -> str:
    character = _character(atom)
    if character is None:
        return atom
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def _character(atom: str) -> str | None:
    """None: it stands for no one character, or the compiler does not know it either."""
    if len(atom) == 1:
        return atom
    if len(atom) > 2 and atom[1] in "xuU":
        code = int(atom[2:].strip("{}"), 16)
        return chr(code) if code < 0x110000 else None
    return _NAMED.get(atom[1], None if atom[1].isalnum() else atom[1])
