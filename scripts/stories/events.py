"""Turns that many plots share: small asides, playing, comfort, trying again, a mood, the ways to end."""

from __future__ import annotations

from stories.story import Story


def feel(s: Story, who: str, mood: str, likely: float = 1.0) -> None:
    """A sentence or two of how somebody feels."""
    if likely >= 1.0 or s.likely(likely):
        s.bank(mood, who)
        if s.likely(0.08):
            s.bank(mood, who)


def aside(s: Story, likely: float = 0.25) -> None:
    """Something small beside the road."""
    if s.likely(likely):
        s.bank("interlude")


def play_together(s: Story, likely: float = 1.0) -> None:
    """The hero and {f} play."""
    if s.likely(likely):
        s.one(
            "{They} {pastime}, and then {they} {pastime}.",
            "{They} played {game} until {they} were out of breath.",
            "First {they} {pastime}. Then {they} played {game}.",
            "{h} and {f} {pastime} and laughed.",
            "{They} played {game}, and {f} won. Then {they} played again, and {h} won.",
            "Together {they} {pastime}. It was much more fun than being alone.",
            "All [morning|afternoon|day] {they} {pastime}.",
            "{They} {pastime} until {their} legs were tired.",
            "{h} showed {f.o} how to play {game}. {F} showed {h.o} a new trick.",
        )


def comfort(s: Story, who: str) -> None:
    """{e} comes to the sad hero."""
    s.bank("calm", who)
    if s.likely(0.4):
        s.bank("hug", who)


def at_once(s: Story, pattern: str) -> None:
    s.tell(("{~suddenly}, " if s.chance() < 0.8 else "but {~suddenly}, ") + pattern)


def thank(s: Story, who: str) -> None:
    s.bank("thanks", who)


def say_sorry(s: Story, who: str, forgive: bool = True) -> None:
    s.bank("sorry", who)
    if forgive:
        s.bank("forgive", who)


def prefixed(prefix: str, pattern: str) -> str:
    """A pattern after a word such as "Then ", with a small letter where it no longer opens the sentence."""
    if pattern[0] in '<"':
        return pattern
    small = pattern[:2] not in ("I ", "Mr", "Gr") and pattern[0].isalpha()
    return prefix + (pattern[0].lower() + pattern[1:] if prefix and small else pattern)


def end(s: Story, *lines: str, moral: str = "", friends: bool = False, night: bool = True) -> None:
    """Ends the story: perhaps a line of the plot's own, then a lesson, a friendship, the evening, or nothing at all."""
    if s.chance() < 0.45:
        s.par()
    told = False
    if lines and s.chance() < 0.75:
        s.one(*lines)
        told = True
    roll = s.chance()
    if moral and roll < 0.33:
        s.bank("moral_" + moral)
        told = True
    elif friends and roll < 0.7:
        s.bank("friends_now")
        told = True
    elif night and roll < 0.52 and s.beings["h"].kind and s.beings["h"].kind.group != "thing":
        if s.chance() < 0.4:
            s.bank("dusk_out" if s.placed and not s.place.indoors and s.chance() < 0.6 else "dusk")
        if s.likely(0.25):
            feel(s, "h", "tired")
        s.bank("goodnight")
        told = True
    if not told or s.chance() < 0.14:
        s.bank("closing")
