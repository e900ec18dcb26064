"""Puts together the cast and the stage of a story: hero, friend, family, helpers, things, place, season."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from stories import kinds, things
from stories.cast import HE, IT, SHE, Being, I, Pronouns
from stories.kinds import KINDS, Kind
from stories.places import PLACES, SEASONS, WEATHER, Place
from stories.story import Story
from stories.things import Thing

_RELATIONS = ("sister", "brother", "cousin")
_HEROES = (("child", 0.54), ("animal", 0.27), ("folk", 0.13), ("thing", 0.06), ("sea", 0.06))
_ORPHANS = frozenset(("robot", "snowman", "teddy bear", "doll", "gnome", "giant"))

PROFESSIONS = [
    "baker f m",
    "farmer f m",
    "gardener f m",
    "teacher f m",
    "neighbor f m",
    "mailman m",
    "bus driver f m",
    "librarian f m",
    "fisherman m",
    "doctor f m",
    "painter f m",
    "shopkeeper f m",
    "firefighter f m",
    "grocer f m",
    "shoemaker m",
    "old man m",
    "old woman f",
    "tailor f m",
    "carpenter f m",
    "nurse f",
]
ELDERS = [
    "owl",
    "turtle",
    "badger",
    "bear",
    "crow",
    "goose",
    "toad",
    "mole",
    "goat",
    "stork",
    "donkey",
    "elephant",
    "hedgehog",
    "beaver",
]


@cache
def _kinds_of(groups: str) -> tuple[tuple[Kind, ...], ...]:
    """The kinds a plot suits, by group; groups or nouns, with bars; '-noun' leaves one out."""
    wanted = groups.split("|")
    out = {w[1:] for w in wanted if w[0] == "-"}
    chosen = [k for k in KINDS if (k.group in wanted or k.noun in wanted) and k.noun not in out]
    return tuple(tuple(k for k in chosen if k.group == g) for g, _ in _HEROES)


@cache
def _places_for(habitats: str, indoors: bool) -> tuple[Place, ...]:
    wanted = set(habitats.split("|"))
    return tuple(p for p in PLACES if p.indoors == indoors and wanted & set(p.habitats.split("|")))


def name_of(story: Story, kind: Kind, pronouns: Pronouns) -> str:
    """A name nobody in the story has."""
    if kind.group == "child" or kind.noun in ("princess", "prince", "knight", "pirate", "wizard", "witch"):
        names = kinds.BOYS if pronouns is HE else kinds.GIRLS
    else:
        names = kinds.BOY_PETS if pronouns is HE else kinds.GIRL_PETS
        if story.chance() < 0.15:
            names = kinds.BOYS if pronouns is HE else kinds.GIRLS
    taken = {b.name for b in story.beings.values()}
    while (name := story.pick(names)) in taken:
        pass
    return name


def cast_kind(story: Story, kind: Kind, named: bool = True, gender: str = "") -> Being:
    pronouns = HE if (gender or story.pick(list(kind.genders))) == "m" else SHE
    being = Being(kind.noun, pronouns, adjective=story.pick(kind.adjectives), kind=kind)
    if kind.young and being.adjective in ("little", "young") and story.chance() < 0.4:
        being.noun = kind.young
    if named:
        being.name = name_of(story, kind, pronouns)
    return being


def cast_hero(story: Story, groups: str, tells: float) -> None:
    """The hero {h}; `tells` is how likely it tells the story itself."""
    by_group = _kinds_of(groups)
    total = sum(w for (_, w), ks in zip(_HEROES, by_group, strict=True) if ks)
    roll = story.chance() * total
    for (_, weight), members in zip(_HEROES, by_group, strict=True):
        if not members:
            continue
        roll -= weight
        if roll <= 0:
            break
    members = [m for m in by_group if m][-1] if roll > 0 else members
    kind = story.choose(members)
    hero = cast_kind(story, kind, named=kind.group == "child" or story.chance() < 0.8)
    hero.adjective = hero.adjective or "little"
    if hero.name and story.chance() < tells:
        hero.tells = True
        hero.facts["third"] = hero.pronouns.he
        hero.pronouns = I
    story.beings["h"] = hero


def cast_friend(story: Story, key: str = "f") -> None:
    """A friend of the hero's: a child or sibling for a child, somebody of the same parts for others."""
    hero = story.beings["h"]
    assert hero.kind is not None
    other = ("f" if hero.pronouns is HE else "m") if story.chance() < 0.75 else "fm"[int(story.chance() * 2)]
    if hero.kind.group == "child":
        kind = KINDS[0] if other == "m" else KINDS[1]
        friend = cast_kind(story, kind)
        related = story.chance() < 0.35
    else:
        homes = set(hero.kind.habitats.split("|"))
        pool = [
            k
            for k in KINDS
            if k.group == hero.kind.group
            and k.noun != hero.kind.noun
            and other in k.genders
            and homes & set(k.habitats.split("|"))
        ]
        if not pool:
            pool = [k for k in KINDS if k.group == hero.kind.group and other in k.genders]
        friend = cast_kind(story, story.choose(pool), gender=other)
        related = False
    friend.facts["rel"] = ""
    if related:
        word = "cousin" if story.chance() < 0.2 else "brother" if other == "m" else "sister"
        friend.facts["rel"] = ("little " if story.chance() < 0.3 else "big " if story.chance() < 0.3 else "") + word
    story.beings[key] = friend


def cast_parent(story: Story, key: str = "p", who: str = "") -> None:
    """Somebody grown who looks after the hero: a parent, or who comes nearest to one."""
    hero = story.beings["h"]
    assert hero.kind is not None
    if hero.kind.noun in _ORPHANS or hero.kind.group == "thing":
        noun, pronouns = {
            "robot": ("old inventor", HE),
            "snowman": ("girl next door", SHE),
            "teddy bear": ("old rocking horse", HE),
            "doll": ("old rocking horse", HE),
            "train": ("old engine", HE),
            "boat": ("old lighthouse", HE),
            "cloud": ("moon", SHE),
            "star": ("moon", SHE),
            "plane": ("pilot", SHE),
            "lantern": ("old sailor", HE),
        }.get(hero.kind.noun, ("old owl", SHE) if hero.kind.group == "folk" else ("old mechanic", HE))
        story.beings[key] = Being(noun, pronouns, call="my friend")
        return
    if hero.kind.group == "child":
        noun = who or story.pick("mom|mom|mom|dad|dad|grandma|grandpa|aunt|uncle")
    else:
        noun = who or story.pick("mother|mother|mother|father|father|grandmother|grandfather")
        noun = {"mom": "mother", "dad": "father", "grandma": "grandmother", "grandpa": "grandfather"}.get(noun, noun)
    pronouns = SHE if noun in ("mom", "grandma", "aunt", "mother", "grandmother") else HE
    being = Being(noun, pronouns, owner=hero)
    being.call = {
        "mom": "Mom",
        "dad": "Dad",
        "grandma": "Grandma",
        "grandpa": "Grandpa",
        "aunt": "Auntie",
        "uncle": "Uncle",
        "mother": "Mama",
        "father": "Papa",
        "grandmother": "Grandma",
        "grandfather": "Grandpa",
    }[noun]
    if noun in ("mom", "dad", "grandma", "grandpa") and story.chance() < 0.3:
        being.name = being.call
    story.beings[key] = being


def cast_grown(story: Story, key: str = "w", jobs: Sequence[str] = PROFESSIONS) -> None:
    """Somebody grown whom the hero meets: a person with a trade for a child, an old animal for others."""
    hero = story.beings["h"]
    assert hero.kind is not None
    if hero.kind.group in ("child", "thing") or (hero.kind.group == "folk" and story.chance() < 0.5):
        noun, *genders = _job(story.pick(jobs))
        pronouns = HE if story.pick(genders) == "m" else SHE
        being = Being(
            noun, pronouns, adjective="" if noun.startswith("old") else story.pick("kind|old|friendly|busy|cheerful")
        )
        title = ("Mr. " if pronouns is HE else "Mrs. ") + story.pick(things.SURNAMES)
        being.call = title
        if noun == "neighbor" or story.chance() < 0.35:
            being.name = title
    else:
        noun = story.pick(
            [e for e in ELDERS if e != hero.kind.noun and all(e != b.noun for b in story.beings.values())]
        )
        being = Being(
            noun, HE if story.chance() < 0.5 else SHE, adjective=story.pick("old|wise|wise old|big|kind old|gray")
        )
        being.call = ("Mr. " if being.pronouns is HE else "Mrs. ") + noun.capitalize()
    story.beings[key] = being


def _job(job: str) -> list[str]:
    words = job.split(" ")
    genders = [w for w in words if w in ("f", "m")]
    return [" ".join(words[: len(words) - len(genders)]), *genders]


def cast_other(story: Story, key: str, noun: str, adjective: str = "", gender: str = "", named: bool = False) -> Being:
    """Somebody else, as a plot wants it; nouns and adjectives with bars are drawn from."""
    noun = story.pick(noun)
    pronouns = {"m": HE, "f": SHE, "n": IT}[gender or story.pick("f|m")]
    kind = next((k for k in KINDS if k.noun == noun), None)
    being = Being(noun, pronouns, adjective=story.pick(adjective), kind=kind)
    if named:
        being.name = name_of(story, kind or KINDS[10], pronouns)
    being.call = being.name or (f"little {noun}" if "small" in being.adjective or "little" in being.adjective else noun)
    story.beings[key] = being
    return being


def cast_thing(story: Story, key: str, pool: Sequence[Thing]) -> Thing:
    """A thing {o}, with what can be done to it among its facts."""
    thing = story.choose(pool)
    look = story.pick(thing.looks)
    being = Being(thing.noun, IT, adjective=look)
    being.facts = {"broke": thing.broke, "mend": thing.mend, "part": thing.part or "string", "look": look}
    if thing.play:
        story.lists[key + "_play"] = thing.play.split("|")
    story.words |= {"broke": thing.broke, "mend": thing.mend}
    story.beings[key] = being
    return thing


def set_stage(story: Story, season: str, places: Sequence[str]) -> None:
    """Season, weather and place; `places` names where the plot can happen, where it cares."""
    story.season = season or story.pick(SEASONS)
    story.weather = story.pick(WEATHER[story.season])
    hero = story.beings["h"]
    assert hero.kind is not None
    if places:
        pool: Sequence[Place] = [p for p in PLACES if p.noun.removeprefix("the ") in places]
    else:
        pool = _places_for(hero.kind.habitats, False)
        if not pool:
            pool = _places_for("wild|water", False)
    story.place = story.choose(pool)
    story.words["talk"] = "short" if story.chance() < 0.5 else "full"
    story.lists |= {
        "treat": things.TREATS.split("|"),
        "creature": kinds.PASSERS_BY,
        "color": things.COLORS,
        "game": things.GAMES.split("|"),
        "soup": things.SOUPS.split("|"),
        "cake": things.CAKES.split("|"),
        "picture": things.PAINTINGS.split("|"),
        "village": things.VILLAGES.split("|"),
        "number": things.NUMBERS.split("|"),
        "plant": things.PLANTS.split("|"),
        "day": things.DAYS.split("|"),
    }
