"""One story being told: who is in it, what was last mentioned, and the telling of patterns. Knows no plot."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from stories.cast import HE, IT, SHE, THEY, WE, Being, Pronouns
from stories.phrases import BANKS
from stories.places import SKY, Place
from stories.speech import tell_speech
from stories.text import Bank, Choice, Node, Ref, Speech, Stop, finish, parse

_HERO_FORMS = {"he": "he", "him": "him", "his": "his", "himself": "himself"}
_GROUP_FORMS = {"they": "he", "them": "him", "their": "his", "themselves": "himself"}
_PLACE_FORMS = {"at": "at", "to": "to", "place": "noun"}
_PLACE_LISTS = {"spot": "spots", "sight": "sights", "pastime": "pastimes", "find": "finds"}
_KIND_WORDS = frozenset(["walked", "ran", "hand", "hands", "home", "home_at", "bed", "part"])

T = TypeVar("T")


class Story:
    """A story under way. Everything random in it comes from `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.chance = rng.random
        self.beings: dict[str, Being] = {}
        self.words: dict[str, str] = {}
        self.used: dict[str, list[int]] = {}  # per list of phrases, what is still to be drawn
        self.place: Place
        self.season = "summer"
        self.weather = "sunny"
        self.dated = False  # the story has come to a certain day
        self.placed = False  # it has been said where the hero is
        self.lists: dict[str, Sequence[str]] = {}  # words drawn one after the other, none twice
        self.sentence = 0
        self.subject: Being | None = None
        self.speaker: Being | None = None  # who spoke last in this paragraph
        self.spoke = -9  # the sentence in which somebody spoke last
        self.quoted = False  # the last thing told was a closing quote
        self.open_end = False  # its words were the last thing told, so an answer needs no name
        self.paragraphs: list[str] = []
        self.pieces: list[str] = []
        self.length = 0
        self.goal = int(rng.triangular(380, 1150, 640))  # characters after which optional things are left out
        self.reached: set[str] | None = None  # patterns told, where somebody wants to know

    # --- choosing

    def pick(self, options: str | Sequence[str]) -> str:
        choices = options.split("|") if isinstance(options, str) else options
        return choices[int(self.chance() * len(choices))]

    def choose(self, options: Sequence[T]) -> T:
        return options[int(self.chance() * len(options))]

    @property
    def group(self) -> str:
        """The group the hero's kind belongs to: child, animal, folk, thing or sea."""
        kind = self.beings["h"].kind
        assert kind is not None
        return kind.group

    def draw(self, name: str, count: int) -> int:
        """An index below `count`, not drawn under this name before as long as there are such."""
        left = self.used.get(name)
        if not left:
            left = self.used[name] = list(range(count))
        return left.pop(int(self.chance() * len(left)))

    def take(self, left: list[str]) -> str:
        """Draws one and takes it off the list."""
        return left.pop(int(self.chance() * len(left)))

    def likely(self, probability: float) -> bool:
        """Whether something optional is told: seldom once the story has its length."""
        return self.chance() < (probability * 1.15 if self.length < self.goal else probability * 0.25)

    # --- telling

    def one(self, *patterns: str) -> None:
        """Tells one of the patterns as the next sentences of the paragraph."""
        self.tell(patterns[int(self.chance() * len(patterns))])

    def may(self, probability: float, *patterns: str) -> bool:
        """Tells one of the patterns, perhaps; says whether it did."""
        if not self.likely(probability):
            return False
        self.one(*patterns)
        return True

    def bank(self, name: str, who: str = "") -> None:
        """Tells a phrase of a named list, about `who` as {e} where given."""
        if who:
            self.beings["e"] = self.beings[who]
        phrases = BANKS[name]
        self.tell(phrases[self.draw(name, len(phrases))])

    def tell(self, pattern: str) -> None:
        if self.reached is not None:
            self.reached.add(pattern)
        out: list[str] = []
        self.sentence += 1
        self.put(parse(pattern), out)
        text = "".join(out)
        if text:
            self.pieces.append(text)
            self.length += len(text)

    def par(self) -> None:
        """A new paragraph; names are said again in it."""
        if self.pieces:
            self.paragraphs.append(finish(" ".join(self.pieces)))
            self.pieces = []
            self.sentence += 2
            self.speaker = None

    def text(self) -> str:
        self.par()
        return "\n\n".join(self.paragraphs)

    def phrase(self, pattern: str) -> str:
        """A pattern told into a string of its own."""
        out: list[str] = []
        self.put(parse(pattern), out)
        return "".join(out)

    def put(self, nodes: Sequence[Node], out: list[str]) -> None:
        chance = self.chance
        for node in nodes:
            if isinstance(node, str):
                out.append(node)
            elif isinstance(node, Choice):
                chosen = node.options[int(chance() * len(node.options))]
                if isinstance(chosen, str):
                    out.append(chosen)
                else:
                    self.put(chosen if isinstance(chosen, tuple) else (chosen,), out)
            elif isinstance(node, Ref):
                out.append(self.refer(node))
            elif isinstance(node, Stop):
                self.sentence += 1
            elif isinstance(node, Bank):
                phrases = BANKS[node.name]
                self.put(parse(phrases[self.draw(node.name, len(phrases))]), out)
            elif isinstance(node, Speech):
                tell_speech(self, node, out)
            else:
                self.put(node, out)

    # --- words for somebody

    def refer(self, ref: Ref) -> str:
        being = self.beings.get(ref.key)
        word = self._word(ref.key, ref.form) if being is None else self.name(being, ref.form)
        return word[:1].upper() + word[1:] if ref.capital else word

    def _word(self, key: str, form: str) -> str:
        if key in _HERO_FORMS:
            hero = self.beings["h"]
            if hero.seen == -9 and not hero.tells:
                return self._first(hero, "own" if key == "his" else "")
            hero.seen = self.sentence
            return str(getattr(hero.pronouns, _HERO_FORMS[key]))
        if key in _GROUP_FORMS:
            group = WE if self.beings["h"].tells else THEY
            return str(getattr(group, _GROUP_FORMS[key]))
        if key in self.words:
            value = self.words[key]
            return self.phrase(value) if "[" in value or "{" in value else value
        if key in self.lists:
            options = self.lists[key]
            value = options[self.draw(key, len(options))]
            return self.phrase(value) if "{" in value or "[" in value else value
        if key == "here":
            if self.placed:
                return ""
            self.placed = True
            return self.place.at
        if key in _KIND_WORDS:
            return self.beings["h"].body(key)
        if key in _PLACE_FORMS:
            return str(getattr(self.place, _PLACE_FORMS[key]))
        if key in _PLACE_LISTS:
            found = getattr(self.place, _PLACE_LISTS[key]).split("|")
            return str(found[self.draw(key + self.place.noun, len(found))])
        if key == "sky":
            skies = SKY[self.weather].split("|")
            return skies[self.draw("sky" + self.weather, len(skies))]
        if key in ("weather", "season"):
            return str(getattr(self, key))
        raise ValueError(f"a pattern names {key!r} {form}, which this story has not")

    def clear(self, being: Being) -> bool:
        """Whether a pronoun can mean only this being here."""
        recent = self.sentence - 1
        if being.seen < recent:
            return False
        pronouns = being.pronouns
        return not any(b.pronouns is pronouns and b is not being and b.seen >= recent for b in self.beings.values())

    def name(self, being: Being, form: str) -> str:
        if form in ("", "o", "own"):
            return self._free(being, form)
        if form == "n":
            return being.vocative()
        if form in ("he", "him", "his", "himself"):
            being.seen = self.sentence
            return str(getattr(being.pronouns, form))
        if form in ("a", "the", "full", "intro", "new", "kind", "both"):
            being.seen = self.sentence
            being.streak = 0
            self.subject = being
            if form == "kind":
                return being.indefinite()
            if form == "a":
                return self._new(being) if being.name and being is not self.beings["h"] else being.indefinite()
            if form == "new":
                return self._new(being)
            if form == "both":
                return self._beside(being)
            if form == "intro":
                return self._introduce(being)
            return being.definite() if form == "the" else being.title()
        if form in _KIND_WORDS:
            return being.body(form)
        if form == "eat":
            assert being.kind is not None
            return self.pick(being.kind.eats)
        if form in ("noun", "adjective"):
            return str(getattr(being, form))
        return being.facts[form]

    def _new(self, being: Being) -> str:
        if being.name.startswith("Mr"):
            return being.name
        return f"{being.indefinite()} {'named' if self.chance() < 0.5 else 'called'} {being.name}"

    def _introduce(self, being: Being) -> str:
        """The first mention of a hero amid the action."""
        if being.tells:
            return "I"
        if not being.name:
            return being.definite() if self.chance() < 0.3 else being.indefinite()
        roll = self.chance()
        assert being.kind is not None
        if roll < (0.45 if being.kind.group == "child" else 0.15):
            return being.name
        if roll < 0.75:
            return self._new(being)
        if being.kind.group == "child":
            return f"{being.name}, {being.indefinite()},"
        return f"{being.name} the {being.noun}"

    def _beside(self, being: Being) -> str:
        """The first mention of one of two: Tom; his sister Mia; Pip the mouse."""
        if being.tells:
            return "I"
        if being.facts.get("rel"):
            return f"{self.beings['h'].pronouns.his} {being.facts['rel']} {being.name}"
        assert being.kind is not None
        return being.name if being.kind.group == "child" else f"{being.name} the {being.noun}"

    def _first(self, being: Being, form: str) -> str:
        """The hero, or one of two, mentioned before any opening has named them."""
        being.streak = 0
        if form == "":
            self.subject = being
        pair = self.words["pair"] == "pair"
        being.seen = self.sentence
        if form == "own":
            return being.title() + "'s"
        if being.tells:
            return "I" if form == "" else "me"
        return self._beside(being) if pair else self._introduce(being)

    def _free(self, being: Being, form: str) -> str:
        """A name or a pronoun, as the place asks for: subject, object or owner."""
        if being.seen == -9 and (
            being is self.beings["h"] or (self.words["pair"] == "pair" and being is self.beings["f"])
        ):
            return self._first(being, form)
        here = being.seen == self.sentence
        pronouns: Pronouns = being.pronouns
        if being.tells:
            being.seen = self.sentence
            return {"": "I", "o": "me", "own": "my"}[form]
        if self.clear(being):
            wish = 1.0 if here else 0.85 if being is self.subject else 0.5
            if being.streak > 3:
                wish = 0.3
            use = self.chance() < wish
        else:
            use = here and form == "own" and being is self.subject
        being.seen = self.sentence
        if form == "":
            self.subject = being
        if use:
            being.streak += 1
            return {"": pronouns.he, "o": pronouns.him, "own": pronouns.his}[form]
        being.streak = 0
        title = being.title()
        if pronouns is IT and being.adjective and self.chance() < 0.25:
            title = being.definite()
        elif being.name and being.kind is not None and self.chance() < 0.06 and self._only_one(being):
            title = f"the little {being.noun}" if self.chance() < 0.5 else f"the {being.noun}"
        if form != "own":
            return title
        return title + ("'" if title.endswith("s") and pronouns is THEY else "'s")

    def _only_one(self, being: Being) -> bool:
        return not any(b.noun == being.noun and b is not being for b in self.beings.values())


Teller = Callable[[Story], None]
__all__ = ["HE", "IT", "SHE", "Being", "Story", "Teller"]
