"""Somebody or something in a story, and the words for it. Knows nothing of what happens to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from stories.kinds import Kind


@dataclass(frozen=True, slots=True)
class Pronouns:
    he: str
    him: str
    his: str
    himself: str


HE = Pronouns("he", "him", "his", "himself")
SHE = Pronouns("she", "her", "her", "herself")
IT = Pronouns("it", "it", "its", "itself")
THEY = Pronouns("they", "them", "their", "themselves")
I = Pronouns("I", "me", "my", "myself")  # noqa: E741
WE = Pronouns("we", "us", "our", "ourselves")


@dataclass(slots=True, eq=False)
class Being:
    """Somebody or something. `seen` is the sentence of its last mention; -9 where it has not been named yet."""

    noun: str
    pronouns: Pronouns
    name: str = ""
    adjective: str = ""
    kind: Kind | None = None
    owner: Being | None = None  # whose parent or friend this is: "her mom"
    call: str = ""  # what one calls it to its face
    tells: bool = False  # it tells the story itself
    seen: int = -9
    streak: int = 0  # pronouns since its name was last heard
    facts: dict[str, str] = field(default_factory=dict)

    def title(self) -> str:
        """The plain name: Tom, the old owl, his mom."""
        if self.tells:
            return "I"
        if self.name:
            return self.name
        if self.owner is not None:
            return f"{self.owner.pronouns.his} {self.noun}"
        return f"the {self.noun}"

    def definite(self) -> str:
        if self.tells:
            return "I"
        if self.owner is not None and not self.name:
            return self.title()
        return f"the {self.adjective} {self.noun}" if self.adjective else f"the {self.noun}"

    def indefinite(self) -> str:
        return f"a {self.adjective} {self.noun}" if self.adjective else f"a {self.noun}"

    def vocative(self) -> str:
        if self.call:
            return self.call
        if self.name:
            return self.name
        return self.noun

    def body(self, what: str) -> str:
        """A word of its kind: walked, ran, hand, home, bed ..."""
        if what in self.facts:
            return self.facts[what]
        kind = self.kind
        if kind is None:
            return {"walked": "walked", "ran": "ran", "hand": "hand", "home": "house", "bed": "bed"}[what]
        if what == "hands":
            return {"foot": "feet", "hoof": "hooves"}.get(kind.hand, kind.hand + "s")
        value: str = getattr(kind, what)
        return value.replace("{he}", self.pronouns.he)
