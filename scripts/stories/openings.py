"""How stories begin: who the hero is, where home is, what the day is like. Knows no plot.

A beginning either stays outside of time ("Once upon a time ...") or is already amid a certain day.
"""

# ruff: noqa: E501
from __future__ import annotations

from functools import cache

from stories.story import Story

HOBBIES = {
    "child": "to paint|to jump in puddles|to sing|to dance|to climb trees|to read books|to build towers|to play outside|to collect "
    "stones|to look at the stars|to help in the kitchen|to ask questions|to draw animals|to count things|to run|to tell jokes|to "
    "play in the mud|to watch the birds|to dress up|to eat pancakes|to listen to stories|to make music|to feed the ducks|to play "
    "hide and seek|to look at bugs|to make things out of old boxes|to dream|to swim|to whistle|to play with toy trains|to plant "
    "things|to hear about dragons|to go for walks|to ride on the bus|to wear funny hats|to make new friends|to learn new words",
    "animal": "to play in the tall grass|to explore|to chase butterflies|to sleep in the sun|to roll in the leaves|to listen to the "
    "birds|to sing|to dance in the rain|to look at the moon|to collect pretty stones|to tell jokes|to play in the water|to smell the "
    "flowers|to eat {h.eat}|to hear stories|to play tricks|to look for {h.eat}|to watch the clouds|to dream of far places|to make "
    "new friends|to play hide and seek|to run races|to lie in the grass|to count the stars",
    "folk": "to sing|to dance|to explore|to tell stories|to look at the stars|to help others|to collect shiny things|to eat {h.eat}|"
    "to paint|to make new friends|to play tricks|to build things|to listen to the wind|to plant flowers|to play music|to dream|to "
    "read old books|to watch the sunset|to walk in the rain|to bake cakes|to invent games",
    "sea": "to blow bubbles|to swim in circles|to play with the waves|to collect shells|to explore|to hide in the seaweed|to listen to the "
    "songs of the whales|to chase the little bubbles|to look at the light above|to dance in the water|to eat {h.eat}|to race with the "
    "others|to hear stories|to make new friends",
    "thing": "to go fast|to see new places|to watch the birds|to look at the moon|to work hard|to make children laugh|to sing a little "
    "song|to help|to look at the sea|to feel the wind|to say hello to everyone|to dream of far places",
}

TRAITS: dict[str, tuple[str, ...]] = {
    "curious": (
        "{h} wanted to know everything.",
        "{h} asked a hundred questions every day.",
        "If there was a box, {h} had to look inside.",
        "{h} always wanted to know why.",
    ),
    "shy": (
        "{h} did not talk very much.",
        "When somebody said hello, {h} hid [behind a tree|{his} face].",
        "{h} spoke so softly that you had to come very close.",
        "{h} liked quiet places best.",
    ),
    "brave": (
        "{h} was small, but {his} heart was big.",
        "Almost nothing could scare {h.o}.",
        "{h} was the first to try anything new.",
    ),
    "clumsy": (
        "{h} fell over {his} own feet at least once a day.",
        "Things often fell down when {h} was near.",
        "If there was one puddle in the road, {h} fell into it.",
    ),
    "kind": (
        "{h} was kind to everyone.",
        "{h} could not see anybody sad without trying to help.",
        "{h} always had a nice word for everyone.",
        "Everyone liked {h.o}.",
    ),
    "messy": (
        "{h} never put anything away.",
        "There was always a bit of mud on {his} nose.",
        "{h} left {his} things everywhere.",
    ),
    "cheerful": (
        "{h} laughed all day long.",
        "{h} woke up with a song every morning.",
        "Even when it rained, {h} was happy.",
        "{h} had the loudest laugh [for miles|of all].",
    ),
    "dreamy": (
        "{h} often sat quite still and dreamed.",
        "{h} liked to look at the clouds and think.",
        "Sometimes {h} forgot to listen, because {he} was dreaming.",
    ),
    "busy": (
        "{h} was always busy with something.",
        "{h} never sat still, not even for a minute.",
        "{h} had a new plan every morning.",
    ),
    "careful": (
        "{h} was always very careful.",
        "{h} looked twice before every step.",
        "{h} liked it when everything was in its place.",
    ),
    "silly": (
        "{h} loved to make others laugh.",
        "{h} made the funniest faces [of all|in the world].",
        "{h} could walk backward and sing at the same time.",
    ),
    "hungry": (
        "{h} was always hungry.",
        "{h} thought about food from morning to night.",
        "{h} could eat more {h.eat} than anybody else.",
    ),
    "quick": ("{h} ran like the wind.", "{h} did everything fast.", "Nobody could run as fast as {h.o}."),
    "stubborn": ("When {h} said no, it was no.", "{h} liked to do everything alone.", "{h} never gave up easily."),
    "small": (
        "{h} was the smallest of all.",
        "{h} was so small that {he} could sleep in a shoe.",
        "Everyone was bigger than {h}, even the cat.",
    ),
}

HOMES = {
    "town": "in a small house with a [red|green|blue|brown] [door|roof]|in a tall house in the middle of the town|in a little town by "
    "the sea|in a village between two hills|at the end of a long street|near a big park|in a yellow house next to the bakery|"
    "in a house with a crooked chimney|in {village}|above a shop that sold shoes|in a small flat with a big window",
    "wild": "at the edge of the forest|deep in the forest|near a quiet river|under a big old oak tree|on the side of a green hill|in a "
    "green valley|not far from a blue lake|where the forest meets the fields|between the roots of a tall tree",
    "farm": "on a small farm|on a big farm with a red barn|on a farm at the end of the road|near the old mill|on a farm with many animals",
    "water": "by the sea|near a wide river|on the shore of a blue lake|on a small island|close to the beach",
    "castle": "in a [big|white|old] castle|in a land of hills and castles|in a far kingdom|in a castle with seven towers",
    "snow": "in the far north, where it is always cold|in a land of ice and snow|near the top of a white mountain",
    "jungle": "in a hot green land|deep in the jungle|where the sun is hot and the trees are tall|near a wide brown river",
    "rails": "at a little station in the hills|at a busy station|in a long valley with many bridges",
    "road": "at the edge of a small town|on a busy street|near a big farm|in a town full of hills",
    "harbor": "in a small harbor|in a quiet bay|by an island with a lighthouse",
    "sea": "at the bottom of the sea|in the deep blue sea|near a bright coral reef|not far from an old sunken ship|in a warm sea",
    "sky": "high up in the sky|far above the hills|over a small town",
}

FAMILY = (
    "with {his} mom and dad",
    "with {his} grandma",
    "with {his} mother",
    "with {his} dad and a [big brother|little sister]",
    "with {his} grandpa and a [fat|lazy|black] cat",
    "with {his} big family",
)


_STATIC_NAMED = (
    "[Once upon a time,|Once upon a time|Once,|A long time ago,|Long ago,] there [was|lived] {h.a} [named|called] {h.n}.",
    "Once upon a time, there was {h.a} [named|called] {h.n}.",
    "Once there was {h.a} [named|called] {h.n}.",
    "There once [was|lived] {h.a} whose name was {h.n}.",
    "There was once {h.a} [named|called] {h.n}.",
    "Once upon a time, {home}, there lived {h.a} [named|called] {h.n}.",
    "{home} there [was|lived] {h.a} [named|called] {h.n}.",
    "{h.n} was {h.a} who lived {home}.",
    "{h.n} was {h.a}.",
    "{h.a} named {h.n} lived {home}.",
    "This is [the|a] story of {h.a} [named|called] {h.n}.",
    "{h.n} lived {home}.",
    "Far away, {home}, there lived {h.a}. {h.his} name was {h.n}.",
    "[Not long ago|Many years ago|Not so long ago], {h.a} named {h.n} lived {home}.",
    "Let me tell you about {h.n}. {H.he} was {h.a} who lived {home}.",
    "Everyone {home_short} knew {h.both}.",
    "{home} lived {h.a} called {h.n}.",
    "Once upon a time, in a [land|place] far away, there was {h.a} named {h.n}.",
    "There was {h.a} [named|called] {h.n}. {H.he} lived {home}.",
    "{h.both} lived {home}.",
)
_STATIC_UNNAMED = (
    "Once upon a time, there [was|lived] {h.a} {home}.",
    "Once there was {h.a}.",
    "The {h.adjective} {h.noun} lived {home}.",
    "{home} there lived {h.a}.",
    "There was once {h.a} who lived {home}.",
    "{h.a} lived {home}.",
    "Long, long ago, {h.a} lived {home}.",
    "In a [land|place] far away, there was {h.a}.",
)
_NAME_AFTER = (
    "The {h.adjective} {h.noun} lived {home}. {H.his} name was {h.n}.",
    "The {h.adjective} {h.noun} was called {h.n}, and {h.he} lived {home}.",
    "{h.a} lived {home}. Everybody called {h.him} {h.n}.",
    "Once upon a time, {h.a} lived {home}. {h.his} name was {h.n}.",
    "There was once {h.a}. {h.he} was called {h.n}, because {h.his} [mother|grandmother] liked the name.",
)
_LIKES = (
    "{h} [loved|liked] {hobby}.",
    "{h} loved {hobby} more than anything.",
    "Every day, {h} liked {hobby}.",
    "What {h} liked best was {hobby}.",
    "{h} loved {hobby} and {hobby}.",
    "{h} loved {hobby}, and {he} was very good at it.",
    "More than anything else, {h} loved {hobby}.",
    "Most of all, {h} loved {hobby}.",
    "Some days {h} liked {hobby}. Other days {he} liked {hobby}.",
)
_DATED = (
    "One {weather} {tod}, {h.intro} was {at}.",
    "One {weather} {tod}, {h.intro} {walked} {to}.",
    "It was a {weather} {season} day, and {sky}. {H.intro} was {at}.",
    "It was a {weather} {tod}. {h.intro} {walked} {to}.",
    "It was a {weather} {season} day and {sky}. {H.intro} went {to}.",
    "{sky}. {H.intro} was {at}.",
    "{sky}, and {h.intro} {walked} {to}.",
    "On {day}, {h.intro} went {to}.",
    "[Early one morning|Late one afternoon|Late one evening], {h.intro} {walked} {to}.",
    "It was {day}, and {sky}. {h.intro} was on the way {to}.",
    "One day, {h.intro} was [playing|sitting|all alone] {at}.",
    "One day, {h.intro} went {to}. {sight}",
    "One {season} {tod}, when {sky}, {h.intro} went {to}.",
    "In the middle of {season}, on a {weather} day, {h.intro} was {at}.",
    "When {h.intro} woke up, {sky}. After breakfast {h.he} {walked} {to}.",
    "It was {season}. {sky}, and {h.intro} was {at}.",
    "The day was {weather}, and {sky}. {H.intro} was {at}.",
)
_WAKE = (
    '"Wake up, {h.n}!" called {his} [mom|dad|grandma]. "It is a {weather} day!"\x01 {h} jumped out of bed.',
    '"Good morning, {h.n}," said {his} [mom|dad|mother]. "Did you sleep well?"\x01 {sky}.',
    "{h.n} opened {his} eyes. {sky}. It was a good day for an adventure.",
    "{h.n} was bored. {H.he} had played with all {his} toys, and {sky}.",
    '"What shall we do today?" asked {h.n}. {sky}.',
    "{h.n} looked out of the window. {sky}.",
    '"May I go outside?" asked {h.n}. "Yes, but put on your [boots|hat|coat]," said {his} [mom|dad].',
)
_PAIR = (
    "{h.n} and {f.n} were [best friends|good friends|friends].",
    "{h.n} and {f.n} [did everything together|were always together].",
    "Once there were two friends, {h.n} and {f.n}.",
    "Once upon a time, there were two friends named {h.n} and {f.n}.",
    "{h.n} had a [best|good] friend named {f.n}.",
    "{h.n} and {h.his} friend {f.n} lived {home}.",
    "Nobody had a better friend than {h.n}. {h.his} friend's name was {f.n}.",
)
_PAIR_DATED = (
    "{h.both} and {f.both} were {at}.",
    "One {weather} {tod}, {h.both} and {f.both} were {at}.",
    "It was a {weather} {season} day, and {h.both} and {f.both} were playing {at}.",
    "{sky}. {H.both} and {f.both} {walked} {to}.",
    "One day, {h.both} and {f.both} went {to}.",
    "{h.both} and {f.both} were playing {game} {at}.",
    "On {day}, {h.both} and {f.both} met {at}.",
    "Last {season}, {h.both} and {f.both} were often {at}.",
)
_PAIR_FAMILY = (
    "{h.n} and {h.his} {f.rel} {f.n} lived {home}.",
    "{h.n} had a {f.rel} named {f.n}.",
    "{h.n} and {h.his} {f.rel} were [never far apart|always together]. {H.his} {f.rel}'s name was {f.n}.",
    "Once upon a time, there lived a {h.noun} named {h.n}. {h.he} had a {f.rel} called {f.n}.",
    "{h.n} and {h.his} {f.rel} {f.n} shared everything: a room, a toy box and a big secret.",
)
_PAIR_TWO = (
    "Once upon a time, there were {h.a} named {h.n} and {f.kind} named {f.n}. They were [friends|best friends].",
    "{h.n} was {h.a}, and {f.n} was {f.kind}. They were very different, but they were friends.",
    "{h.a} and {f.kind} lived {home}. The {h.noun} was called {h.n}, and the {f.noun} was called {f.n}.",
    "A {h.noun} and a {f.noun} can be friends. {h.n} and {f.n} were the best of friends.",
    "{h.n} the {h.noun} had a friend called {f.n}. {f.n} was {f.kind}.",
)
_FIRST = (
    "My name is {h.n}. I am {age} years old, and I live {home}.",
    "My name is {h.n}. I love {hobby}.",
    "I am {h.n}. I live {home} {family}.",
    "Hello! My name is {h.n}, and I am {age} years old. I love {hobby}.",
    "My name is {h.n}, and I want to tell you a story.",
    "When I was {age} years old, I lived {home} {family}.",
    "I have a [big|little] secret, and today I will tell you about it.",
    "I love {hobby}. My name is {h.n}, and I am {age} years old.",
)
_FIRST_DATED = (
    "I want to tell you what happened to me [last week|last {season}|on {day}|yesterday].",
    "I will never forget that {weather} day.",
    "My name is {h.n}, and this is what happened to me [last week|last {season}|on {day}|yesterday].",
    "One day, when I was {age} years old, I was {at}.",
    "I was {at}, and {sky}.",
    "Last {season}, on a {weather} day, I was {at}.",
)
_FIRST_OTHER = (
    "My name is {h.n}. I am {h.a}, and I live {home}.",
    "I am {h.a}. My name is {h.n}, and I love {hobby}.",
    "Hello! I am {h.n}, the {h.noun}. I live {home}.",
    "I am only {h.a}, but I have a story to tell.",
)


def _fill(story: Story) -> None:
    hero = story.beings["h"]
    assert hero.kind is not None
    group = hero.kind.group
    habitats = hero.kind.habitats.split("|")
    where = story.pick(habitats)
    story.words["home"] = story.phrase(story.pick(split(HOMES[where])))
    story.words["home_short"] = {
        "town": "in the street",
        "wild": "in the forest",
        "farm": "on the farm",
        "castle": "in the kingdom",
        "water": "by the water",
    }.get(where, "there")
    story.lists["hobby"] = HOBBIES[group].split("|")
    story.words["tod"] = story.pick(
        "morning|morning|afternoon|day|evening" if group != "thing" else "morning|day|afternoon"
    )
    story.words["age"] = story.pick("four|five|five|six|six|seven")
    story.words["family"] = story.pick(FAMILY)


@cache
def split(source: str) -> tuple[str, ...]:
    """Splits at the bars outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(source):
        depth += (c == "[") - (c == "]")
        if c == "|" and not depth:
            parts.append(source[start:i])
            start = i + 1
    return (*parts, source[start:])


def _about(story: Story, likely: float = 0.75) -> None:
    """A sentence or two on what the hero is like."""
    roll = story.chance()
    trait = story.words.get("trait") or story.pick(list(TRAITS))
    if trait == "small" and story.beings["h"].noun in ("giant", "elephant", "bear", "train", "bus", "truck"):
        trait = "kind"
    if trait in ("shy", "hungry", "quick", "clumsy", "dreamy", "small", "messy") and story.group == "thing":
        trait = "cheerful"
    if roll < 0.38 * likely / 0.75:
        story.one(*_LIKES)
    elif roll < likely:
        if story.chance() < 0.4:
            story.one(f"{{h}} was very {trait}.")
        story.one(*TRAITS[trait])
        if story.chance() < 0.2:
            story.one(*_LIKES)


def open_story(story: Story, pair: bool = False, day: bool = True) -> None:
    """Tells the opening. With `pair`, the friend {f} is there from the start; without `day`, it names no day."""
    _fill(story)
    hero = story.beings["h"]
    assert hero.kind is not None
    group = hero.kind.group
    if hero.tells:
        if group == "child" and day and not pair and story.chance() < 0.25:
            story.one(*_FIRST_DATED)
            story.dated = True
            return
        story.one(*(_FIRST if group == "child" else _FIRST_OTHER))
        if story.chance() < 0.3:
            story.one(
                "I love {hobby}.",
                "I like {hobby}, and I like {hobby} too.",
                "People say that I am [curious|funny|brave|clever].",
            )
        if pair:
            friend = story.beings["f"]
            story.one(
                "My {f.rel}'s name is {f.n}." if friend.facts["rel"] else "My best friend is called {f.n}.",
                "{f.n} is my {f.rel}." if friend.facts["rel"] else "I have a friend named {f.n}.",
            )
            friend.seen = story.sentence
        return
    if story.chance() < (0.12 if pair else 0.16):
        return  # nothing: whoever is named first is introduced there
    if pair and day and not story.place.indoors and story.chance() < 0.22:
        story.one(*_PAIR_DATED)
        hero.seen = story.beings["f"].seen = story.sentence
        story.dated = story.placed = True
        return
    if pair and story.chance() < 0.75:
        friend = story.beings["f"]
        if friend.facts["rel"]:
            story.one(*_PAIR_FAMILY)
        elif group == "child" or friend.noun == hero.noun:
            story.one(*_PAIR)
        else:
            story.one(*_PAIR_TWO)
        hero.seen = friend.seen = story.sentence
        if story.chance() < 0.4:
            story.one(
                "They [loved|liked] {hobby}.",
                "They often played {game} together.",
                "Every day they met {at}.",
                "{h} was [loud|quick|brave], and {f} was [quiet|careful|clever].",
            )
        return
    roll = story.chance() if day else 0.36 + 0.64 * story.chance()
    if roll < 0.3:
        _dated(story)
    elif day and roll < 0.36 and hero.name and group == "child" and not story.place.indoors:
        story.one(*_WAKE)
        story.dated = True
        hero.seen = story.sentence
    else:
        if not hero.name:
            story.one(*_STATIC_UNNAMED)
        elif roll < 0.46 and group != "child":
            story.one(*_NAME_AFTER)
        else:
            story.one(*_STATIC_NAMED)
        hero.seen = story.sentence
        story.subject = hero
        _about(story)
    if pair:
        story.one(
            *(
                ("{h} had a {f.rel} named {f.n}.", "{H.his} {f.rel} {f.n} was there too.")
                if story.beings["f"].facts["rel"]
                else (
                    "{h} had a friend named {f.n}.",
                    "{H.his} best friend was called {f.n}.",
                    "{H.his} friend {f.n} was always with {him}.",
                )
            )
        )
        story.beings["f"].seen = story.sentence


def _dated(story: Story) -> None:
    hero = story.beings["h"]
    story.one(*_DATED)
    hero.seen = story.sentence
    story.subject = hero
    story.dated = True
    story.placed = True
    if story.chance() < 0.3:
        story.one("{sight}")


def begin(story: Story, patterns: tuple[str, ...]) -> None:
    """Tells what starts the plot; where the opening stood outside of time, the day is named first."""
    pattern = story.pick(patterns)
    if story.words["pair"] == "pair" or story.chance() < 0.4:
        story.sentence += 2  # names again
    if story.reached is not None:
        story.reached.add(pattern)
    if story.dated:
        if story.chance() < 0.25:
            story.par()
        story.tell(pattern)
        return
    story.dated = True
    if story.chance() < 0.8:
        story.par()
    if pattern[0] in '<"':
        story.one(
            "One {weather} {tod}, {h} was [sitting|playing|all alone] {at}.",
            "It was a {weather} {season} {tod}.",
            "One day, {h} was {at}.",
        )
        story.tell(pattern)
        return
    start = story.phrase("{~oneday}")
    story.tell(start + " " + pattern)
