"""Direct speech: who says it, before, after or amid the words, with which verb. Knows no plot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stories.phrases import BANKS, MANNERS

if TYPE_CHECKING:
    from stories.cast import Being
    from stories.story import Story
    from stories.text import Speech

_SENTENCE = re.compile(r"(?<!Mr\.)(?<!Mrs\.)(?<=[.!?]) ")
_SHORT = (
    (re.compile(r"\b(I) am (?=[a-z])"), r"\1'm "),
    (re.compile(r"\b([Dd]o|[Dd]oes|[Dd]id|[Ii]s|[Cc]ould|[Ww]ould|[Ww]as|[Aa]re|[Hh]ave) not\b"), r"\1n't"),
    (re.compile(r"\b([Ii]t|[Tt]hat|[Hh]e|[Ss]he|[Ww]hat|There) is (?=[a-z])"), r"\1's "),
    (re.compile(r"\b([Cc]an)not\b"), r"\1't"),
    (re.compile(r"\b([Ww])ill not\b"), r"\1on't"),
    (re.compile(r"\b(I|you|You|[Ww]e|[Tt]hey|[Ii]t) will (?=[a-z])"), r"\1'll "),
    (re.compile(r"\b([Yy]ou|[Ww]e|[Tt]hey) are (?=[a-z])"), r"\1're "),
    (re.compile(r"\b([Ll]et) us\b"), r"\1's"),
    (re.compile(r"\b(I|[Yy]ou|[Ww]e) have (?=(?:been|found|lost|never|an idea|got|made|eaten|seen)\b)"), r"\1've "),
)


def shorten(words: str) -> str:
    """The words as they are spoken: I'm, don't, let's."""
    for pattern, short in _SHORT:
        words = pattern.sub(short, words)
    return words


_CRIES = {
    "sad": "cried",
    "scared": "cried|cried|whispered",
    "shy": "said|said|whispered",
    "tired": "said|mumbled",
    "happy": "cried|called|cried|said|laughed",
    "kind": "said|called|said",
}


def _verb(story: Story, speech: Speech, first: str, answers: bool) -> str:
    last = first[-1]
    if last == "?":
        return "asked" if story.chance() < 0.9 else "wanted to know"
    if last == "!":
        return story.pick(_CRIES.get(speech.mood, "cried|called|said|shouted|cried"))
    if answers and story.chance() < 0.25:
        return story.pick("answered|replied")
    return "told" if style_told(story, last) else "said"


def style_told(story: Story, last: str) -> bool:
    return last == "." and story.chance() < 0.1


def tell_speech(story: Story, speech: Speech, out: list[str]) -> None:
    """Puts one turn of talk into `out`, in one of the ways it can be told."""
    who = story.beings[speech.who]
    to = story.beings[speech.to] if speech.to else None
    answers = story.speaker is not None and story.speaker is not who
    bare = (
        answers
        and story.open_end
        and to is not None
        and story.speaker is to
        and not speech.mood
        and story.chance() < 0.3
    )
    again = story.speaker is who and story.spoke >= story.sentence - 1
    style = story.chance()
    tag = "" if bare else story.name(who, "")
    words: list[str] = []
    story.put(speech.body, words)
    said = " ".join("".join(words).split())
    if story.words["talk"] == "short":
        said = shorten(said)
    said = said[:1].upper() + said[1:]
    sentences = _SENTENCE.split(said)
    story.speaker = who
    story.spoke = story.sentence
    who.seen = story.sentence
    if bare:
        out.append(f'"{said}"\x01')
        story.open_end = story.quoted = True
        return
    if again:
        style = 0.35 if story.quoted or story.chance() < 0.3 else 0.4 + 0.6 * style
    verb = speech.verb or _verb(story, speech, sentences[-1] if style < 0.3 or style >= 0.85 else sentences[0], answers)
    if verb == "asked" and sentences[0][-1] == "!":
        verb = "called"
    if again and verb == "said" and story.chance() < 0.6:
        verb = "went on" if story.chance() < 0.5 else "added"
    text = _tagged(story, speech, sentences, (tag, verb), to, style)
    story.open_end = text[0] != '"'
    story.quoted = text[-1] == "\x01"
    out.append(text)


def _tagged(
    story: Story, speech: Speech, sentences: list[str], tag: tuple[str, str], to: Being | None, style: float
) -> str:
    name, verb = tag
    said = " ".join(sentences)
    manner = ""
    if verb == "wanted to know" and (style < 0.4 or len(sentences) > 1):
        verb = "asked"
    if speech.mood and verb in ("said", "asked", "answered", "replied") and story.chance() < 0.45:
        manner = " " + story.phrase(MANNERS[speech.mood][int(story.chance() * len(MANNERS[speech.mood]))])
        manner = manner.replace("%his", story.beings[speech.who].pronouns.his)
        manner = manner.replace("%he", story.beings[speech.who].pronouns.he)
    if verb == "told":
        if to is None:
            verb = "said"
        else:
            return f'{name} told {story.name(to, "o")}{manner}, "{said}"\x01'
    listener = ""
    if to is not None and not manner and story.chance() < 0.22:
        if verb == "asked":
            listener = " " + story.name(to, "o")
        elif verb in ("said", "called"):
            listener = " to " + story.name(to, "o")
    if style < 0.3:
        return f'{name} {verb}{listener}{manner}, "{said}"\x01'
    if style < 0.4 and not speech.verb and (style == 0.35 or not manner):
        beats = BANKS["beat_" + (speech.mood or "plain")]
        beat = story.phrase(beats[int(story.chance() * len(beats))])
        beat = beat.replace("%his", story.beings[speech.who].pronouns.his)
        return f'{name} {beat}. "{said}"\x01'
    pronoun = name in ("I", "he", "she", "it", "they")
    inverted = not pronoun and not listener and verb not in ("wanted to know", "went on") and story.chance() < 0.55
    after = f"{verb} {name}" if inverted else f"{name} {verb}"
    head, rest = (sentences[0], " ".join(sentences[1:])) if style < 0.85 else (said, "")
    call = to.vocative() + ", " if to is not None else "\x00"
    if head.startswith(call) and len(head) > len(call) + 8 and story.chance() < 0.5:
        tail = head[len(call) :]
        return f'"{call[:-2]}," {after}{manner}, "\x02{tail}"\x01' + (f' "{rest}"\x01' if rest else "")
    if head[-1] == ".":
        head = head[:-1] + ","
    text = f'"{head}" {after}{listener}{manner}.'
    return text + (f' "{rest}"\x01' if rest else "")
