"""The plots by name, and the telling of one whole story. Knows which plot suits whom, not what happens in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from stories.casting import cast_friend, cast_hero, cast_parent, name_of, set_stage
from stories.openings import open_story
from stories.story import Story


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: who it suits (groups or nouns with bars), what it needs from the start, how often it comes."""

    name: str
    tell: Callable[[Story], None]
    heroes: str
    friend: str  # "" none, "cast" met later, "pair" there from the start
    parent: str  # "" none, "any", or which
    season: str
    places: tuple[str, ...]
    tells: float
    weight: float


def plot(
    heroes: str = "child|animal|folk",
    *,
    friend: str = "",
    parent: str = "",
    season: str = "",
    places: str = "",
    tells: float = 0.08,
    weight: float = 1.0,
) -> Callable[[Callable[[Story], None]], Plot]:
    """Makes a plot of a function that tells it."""

    def make(tell: Callable[[Story], None]) -> Plot:
        return Plot(
            tell.__name__, tell, heroes, friend, parent, season, tuple(filter(None, places.split("|"))), tells, weight
        )

    return make


def start(plot_: Plot, rng: random.Random) -> Story:
    """A story with its cast and stage, before its first word."""
    story = Story(rng)
    cast_hero(story, plot_.heroes, plot_.tells)
    set_stage(story, story.pick(plot_.season) if plot_.season else "", plot_.places)
    hero = story.beings["h"]
    if plot_.friend == "pair" and not hero.name:
        assert hero.kind is not None
        hero.name = name_of(story, hero.kind, hero.pronouns)
    if plot_.friend:
        cast_friend(story)
    if plot_.parent:
        cast_parent(story, who="" if plot_.parent == "any" else story.pick(plot_.parent))
    story.words["pair"] = plot_.friend
    return story


def tell_plot(plot_: Plot, rng: random.Random, reached: set[str] | None = None) -> str:
    """One story of this plot, of 60 to 270 words."""
    while True:
        story = start(plot_, rng)
        story.reached = reached
        plot_.tell(story)
        text = story.text()
        if 60 <= text.count(" ") + 1 <= 280:
            return text


__all__ = ["Plot", "Story", "open_story", "plot", "start", "tell_plot"]
