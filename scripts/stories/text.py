"""The pattern language of the stories: parses a pattern into nodes. Knows no words and no story.

[a|b|c]             one of the alternatives (they nest; an empty one says nothing)
{h} {h.o} {h's}     somebody as subject, object, owner: a name or a pronoun, as the context allows
{h.he} {h.the} ...  a given form of somebody or something;  {H} the same with a capital
{they} {his} ...    pronouns of the hero and those with the hero;  {spot} a variable of the story
{~bank}             a pattern from a named list of phrases
<h/sad-f asked: .>  direct speech: the speaker, the mood, the listener, the verb (all but the speaker optional)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

_SPEAKER = re.compile(r"(\w+)(?:/(\w+))?(?:-(\w+))?(?: ([\w ]+?))?: *")
# after these a name is told, never "said he"
_TAG = re.compile(r'(?:" (?:said|asked|called|cried|thought|shouted|whispered)|\b[Ii]t was(?: only)?) $')
_OBJECT = re.compile(r"\b(?:with|of|from|like|beside|to|between) $")  # after these a name stands as object
_STOP = re.compile(r"(?<!Mr)(?<!Mrs)(?<=[.!?]) ")


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    key: str
    form: str
    capital: bool


@dataclass(frozen=True, slots=True)
class Bank:
    name: str


@dataclass(frozen=True, slots=True)
class Speech:
    who: str
    mood: str
    to: str
    verb: str
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a sentence inside a pattern."""


STOP = Stop()
Node = str | Choice | Ref | Bank | Speech | Stop | tuple["Node", ...]


def _reference(body: str) -> Node:
    if body[0] == "~":
        return Bank(body[1:])
    name, _, form = body.partition(".")
    if name.endswith("'s"):
        name, form = name[:-2], "own"
    return Ref(name[0].lower() + name[1:], form, name[0].isupper())


def _placed(node: Node, before: Node | None) -> Node:
    """A free mention gets the form its place asks for, where the words before it leave no choice."""
    if not isinstance(node, Ref) or node.form or not isinstance(before, str):
        return node
    if _TAG.search(before):
        return Ref(node.key, "full", node.capital)
    return Ref(node.key, "o", node.capital) if _OBJECT.search(before) else node


def _sequence(source: str, at: int, ends: str) -> tuple[tuple[Node, ...], int]:
    nodes: list[Node] = []
    start = at

    def flush(end: int) -> None:
        for i, piece in enumerate(_STOP.split(source[start:end])):
            if i:
                nodes.append(" ")
                nodes.append(STOP)
            if piece:
                nodes.append(piece)

    while at < len(source) and source[at] not in ends:
        c = source[at]
        if c not in "[{<":
            at += 1
            continue
        flush(at)
        if c == "[":
            options: list[Node] = []
            while True:
                inner, at = _sequence(source, at + 1, "|]")
                if at >= len(source):
                    raise ValueError(f"pattern without a closing bracket: {source!r}")
                options.append(inner[0] if len(inner) == 1 else inner)
                if source[at] == "]":
                    break
            nodes.append(Choice(tuple(options)))
        elif c == "{":
            end = source.index("}", at)
            node = _reference(source[at + 1 : end])
            nodes.append(_placed(node, nodes[-1] if nodes else None))
            at = end
        else:
            head = _SPEAKER.match(source, at + 1)
            if head is None:
                raise ValueError(f"speech without a speaker: {source[at:]!r}")
            body, at = _sequence(source, head.end(), ">")
            if at >= len(source):
                raise ValueError(f"pattern with a speech that does not end: {source!r}")
            who, mood, to, verb = (part or "" for part in head.groups())
            nodes.append(Speech(who, mood, to, verb, body))
        at += 1
        start = at
    flush(at)
    return tuple(nodes), at


@cache
def parse(source: str) -> tuple[Node, ...]:
    """The nodes of a pattern; ValueError where its brackets do not close."""
    nodes, at = _sequence(source, 0, "]|}>")
    if at != len(source):
        raise ValueError(f"pattern with a stray {source[at]!r}: {source!r}")
    return nodes


_AN = re.compile(r" a (?=[aeiouAEIOU])(?!one\b|once\b|use|uni|eu)")
_AN_FIRST = re.compile(r"\bA (?=[aeiouAEIOU])(?!one\b|once\b|use|uni|eu)")
_CAPITAL = re.compile(r'(?:[.!?](?: "?|" "|(?<=\.)" )|\x01"?)[a-z]')
_SPACES = re.compile(r"  +")
_SAID_I = re.compile(r'" (said|asked|called|cried|thought|shouted|whispered) I\b')
_I_FIRST = re.compile(r"\bI and ((?:the|my) \w+|[A-Z]\w+)")


def _raise(match: re.Match[str]) -> str:
    found = match.group()
    return found[:-1] + found[-1].upper()


def finish(paragraph: str) -> str:
    """Articles, capitals and spaces of a paragraph. \\x01 asks for a capital, \\x02 forbids one."""
    paragraph = _SPACES.sub(" ", paragraph.strip()).replace("\x01 ", " \x01")
    for mark in (" ,", " .", " !", " ?"):
        paragraph = paragraph.replace(mark, mark[1])
    if " and " in paragraph and "I and " in paragraph:
        paragraph = _I_FIRST.sub(r"\1 and I", paragraph)
    paragraph = _CAPITAL.sub(_raise, "\x01" + paragraph)
    paragraph = _AN_FIRST.sub("An ", _AN.sub(" an ", paragraph)).replace("\x01", "").replace("\x02", "")
    return _SAID_I.sub(r'" I \1', paragraph) if " I" in paragraph else paragraph
