"""Plots about things: lost, broken, shared, swapped, taken by the wind, found under the ground."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_friend, cast_grown, cast_other, cast_thing
from stories.events import aside, at_once, comfort, end, feel, play_together, thank
from stories.openings import begin, open_story
from stories.registry import plot
from stories.story import Story
from stories.things import TOYS, TREASURES, WEAR


def _own(s: Story) -> None:
    """The hero's favorite thing {o}."""
    s.one(
        "{h} had {o.a}. It was {his} favorite thing in the world.",
        "{h} had {o.a} that {he} took everywhere.",
        "The best thing {h} owned was {o.a}.",
        "For {his} birthday, {h} had got {o.a}. {h} loved it very much.",
        "{h} owned {o.a}. {his} [grandma|grandpa|aunt] had given it to {him} [last winter|as a present].",
        "Of all {his} things, {h} liked {his} {o.adjective} {o.noun} best.",
        "{h} never went anywhere without {his} {o.adjective} {o.noun}.",
        "{h} had a special {o.noun}. It was {o.adjective}, and it always made {him} smile.",
    )


@plot(parent="any", weight=1.3)
def lost_thing(s: Story) -> None:
    cast_thing(s, "o", TOYS[:12] + WEAR[:8] + TREASURES[:8])
    open_story(s)
    _own(s)
    begin(
        s,
        (
            "{h} wanted to take {his} {o.noun}, but it was gone.",
            "{h} saw that {his} {o.noun} was missing.",
            "{h} reached for {his} {o.noun}. It was not there!",
            "{h} could not find {his} {o.noun} anywhere.",
            "{h} put down {his} {o.noun} for just a minute. When {he} looked again, it was gone.",
            "{h} woke up and {his} {o.noun} was not in its place.",
        ),
    )
    feel(s, "h", s.pick("sad|worried"), 0.8)
    s.may(
        0.7,
        "<h/sad: Where is my {o.noun}?>",
        "<h/sad-p: I cannot find my {o.noun}!>",
        "<h/sad: Oh no! My {o.noun} is gone!>",
        "<h-p: Have you seen my {o.noun}?> <p/kind-h: No, I have not. Where did you have it last?>",
        "<p-h: What are you looking for?> <h/sad-p: My {o.noun}. I have lost it.>",
    )
    s.par()
    s.one(
        "{h} looked {spot}. Then {he} looked {spot}. Nothing!",
        "First {he} looked {spot}. There was only {find}. Then {he} looked {spot}. There was nothing.",
        "{h} looked high and low, left and right, {spot} and {spot}.",
        "{h} searched the whole place. {He} looked {spot}, and {he} even looked {spot}. No {o.noun}.",
        "{h} went back to {place} and looked for it. It was not {spot}, and it was not {spot}.",
        "{p} helped {h.o} look. {they} looked {spot}, and {they} looked {spot}, but all {they} found was {find}.",
    )
    aside(s, 0.3)
    s.may(0.3, "{h} was about to give up.", "{h} looked until {he} was tired.", '"It must be somewhere," {h} thought.')
    way = s.pick("child|bird|wearing|gone_back|keeper|needs")
    if way == "child":
        cast_friend(s, "g")
        at_once(s, "{h} saw {g.new}. {G} had {o.the} in {g.his} {g.hand}.")
        s.one(
            "<h-g: That is my {o.noun}!> <g/shy-h: I found it {spot}. I did not know whose it was.>",
            "<g-h: Is this yours? I found it {spot}.> <h/happy-g: Yes! I have looked for it all day!>",
            "{h} was not sure what to say. <h/shy-g: I think that is mine.> <g/kind-h: Then you must have it back.>",
        )
        s.one("{g} gave it back at once.", "{g} held it out with a smile.", "{g} put it into {h's} {hand}.")
        thank(s, "g")
        s.beings["f"] = s.beings["g"]
        play_together(s, 0.6)
        end(
            s,
            "{h} had found {his} {o.noun}, and a friend too.",
            '"I am glad I lost it," {h} said, "or I would not have met you."\x01',
            friends=True,
        )
    elif way == "bird":
        cast_other(s, "x", "magpie|crow|squirrel|mouse", "small|black|busy|young", "f")
        at_once(
            s,
            "{h} heard a noise above {him}. There sat {x.a}. {X.his} nest was full of things, and one of them was {h's} {o.noun}!",
        )
        s.one(
            "<h-x: Please give me my {o.noun}.> <x/shy-h: But I need it. My babies are cold, and it is so nice and soft.>"
            if s.beings["o"].noun in ("mitten", "scarf", "hat", "sweater", "blanket", "cap", "teddy bear")
            else "<h-x: That is mine!> <x/shy-h: But it is so pretty. I wanted my babies to look at it.>",
            "<h-x: Why did you take it?> <x/shy-h: I thought that nobody wanted it.>",
        )
        feel(s, "h", "thinking", 0.5)
        s.one(
            "{h} ran home and came back with some [wool|straw|cotton]. <h-x: Take this. It is much better.>",
            "{h} found {find} and gave it to {x.o}. <h-x: We can trade.> {X} was very happy with that.",
            "{h} picked soft moss for the nest. {x} liked it so much that {x.he} gave {o.the} back.",
        )
        end(
            s,
            'The babies looked down and said, "Peep!"\x01 That meant thank you.',
            "{h} had {his} {o.noun}, and {x} had what {x.he} needed.",
            "Now and then, {h} came to see how the babies were growing.",
            moral="share",
        )
    elif way == "wearing":
        s.one(
            "Then {p} looked at {h.o} and began to laugh.",
            "Then {p} came in and looked at {h.o}. {P.his} eyes grew big, and then {p.he} laughed.",
        )
        s.one(
            "<p-h: What is that [on your back|in your bag|under your arm]?>",
            "<p-h: {h.n}, have you looked in your own bag?>",
            "<p-h: Turn around, {~dear}.>",
        )
        s.one(
            "{h} looked, and there it was! {h.he} had carried it the whole time.",
            "{h} felt with one {hand}. It was {o.the}! It had been there all day.",
        )
        s.one(
            "{h} turned red. Then {he} laughed too.",
            "{h} laughed so much that {he} had to sit down.",
            "<h/shy-p: Oh! How silly of me!>",
        )
        end(
            s,
            '"Next time I will look there first," {h} said.',
            "It became {their} favorite joke.",
            "Sometimes the thing you look for is very near.",
        )
    elif way == "gone_back":
        s.one(
            "<p/kind-h: Close your eyes and think. What did you do this morning?>",
            "<p-h: Let us walk back the way you came.>",
            "Then {h} thought about the day, step by step.",
        )
        s.one(
            "{h} thought. First {he} had eaten breakfast. Then {he} had played {game}. Then {he} had [rested|sat down] {spot}. That was it!",
            "{They} walked back slowly. At every step {they} looked down. And there, {spot}, something {o.adjective} was waiting.",
            "{h} remembered the puddle, and the funny beetle, and the place where {he} had stopped to rest.",
        )
        s.one(
            "{h} ran there as fast as {he} could. And there it was, just where {he} had left it!",
            "And there was {his} {o.noun}, {spot}, a little wet but not broken.",
            "There it lay and waited for {him}.",
        )
        feel(s, "h", "happy")
        end(
            s,
            "{h} hugged {his} {o.noun} and did not let go of it all evening.",
            "From then on, {h} always put {his} {o.noun} in the same place.",
            moral="careful",
        )
    elif way == "keeper":
        cast_grown(s)
        s.one(
            "Then {h} met {w.a}. <w-h: You look sad. What is wrong?> <h/sad-w: I have lost my {o.noun}.>",
            "{h} asked everyone. At last {he} asked {w.a}.",
        )
        s.one(
            "<w-h: What does it look like?> <h-w: It is {o.adjective}, and I love it.>",
            "<w-h: Is it {o.adjective}?> <h-w: Yes! How did you know?>",
        )
        s.one(
            "{w} smiled and opened [a drawer|a big box|a bag]. There lay {o.the}!",
            "{w} held something up. It was {o.the}! <w/kind-h: It was lying {spot}.>",
        )
        thank(s, "w")
        end(
            s,
            "{h} skipped all the way home with {o.the}.",
            "The next day, {h} brought {w.o} {treat} to say thank you.",
            moral="help",
        )
    else:
        cast_other(s, "x", "baby rabbit|kitten|puppy|little mouse|baby bird|lamb", "tiny|small|lost")
        at_once(s, "{h} found it {spot}. But on top of it, fast asleep, lay {x.a}!")
        s.one(
            "{x} was cold and [all alone|very tired]. {h} could not take {o.the} away now.",
            "{x} looked so [small|happy] that {h} did not want to wake {x.o}.",
        )
        s.one(
            "So {h} sat down and waited. When {x} woke up, {x.he} licked {h's} {hand}.",
            "{h} waited and waited, until {x} opened one eye and yawned.",
            "<h/kind: You can have it for a while.>",
        )
        s.one(
            "Together {they} looked for {x's} mother, and soon {they} found her.",
            "{h} carried {x.o} back to {x.his} mother.",
            "Then {x's} mother came. She was so happy!",
        )
        end(
            s,
            "{h} took {his} {o.noun} home. It was still warm.",
            "{his} {o.noun} was a bit dirty, but {h} did not mind at all.",
            moral="help",
        )


@plot(friend="cast", parent="any", weight=1.2)
def broken_toy(s: Story) -> None:
    cast_thing(s, "o", [t for t in TOYS if t.broke])
    open_story(s)
    _own(s)
    s.may(0.5, "Every day, {h} {o_play}.", "{h} {o_play}, or {he} {o_play}.")
    who = s.pick("hero|friend|accident")
    if who == "friend":
        begin(
            s,
            (
                "{f.new} came to play. <f-h: May I try your {o.noun}?> <h-f: Yes, but be careful with it.>",
                "{f.new} saw {o.the}. <f-h: Oh, that is nice! Can I have a turn?> {H} nodded.",
            ),
        )
        s.one(
            "{f} {o_play}. {f.he} was a little too wild.",
            "At first {f} was careful. Then {f.he} forgot.",
            "{f} laughed and pulled and pushed.",
        )
        s.one("Crack! {o.the} {broke}.", "Then there was a terrible sound. {o.the} {broke}!", "Oh no! {o.the} {broke}.")
        feel(s, "h", s.pick("sad|angry"))
        feel(s, "f", "guilty", 0.6)
        s.may(
            0.4,
            "<h/angry-f: You broke it! Go away!>",
            "<h/sad-f: My {o.noun}! Look what you did!>",
            "Neither of {them} said a word.",
        )
        s.par()
        if s.chance() < 0.5:
            s.one(
                "{f} went home with {f.his} head down.", "{f} wanted to run away. But {f.he} stopped and turned around."
            )
            say_sorry_by(s, "f", "h")
            s.one(
                "<f-h: I will help you to mend it.>",
                "<f-h: Let us try to fix it together.>",
                "<f-h: My [grandpa|mother|uncle] has a lot of glue.>",
            )
            s.one(
                "{They} got [tape and glue|a needle and some thread|a small hammer and some nails]. {h} held {o.the}, and {f} {mend}.",
                "It took [a long time|all afternoon]. {f} {mend}, and {h} helped.",
            )
        else:
            s.one(
                "{f} ran home. A little later {f.he} came back with {f.his} own [favorite toy|ball|teddy bear]. <f/shy-h: You can have this. I am sorry.>",
                "That night {f} could not sleep. The next day {f.he} came with a small box. In it was {f.his} best toy. <f/shy-h: This is for you.>",
            )
            s.one(
                "{h} looked at the present and then at {f.o}. <h/kind-f: Keep it. But will you help me to mend {o.the}?>",
                "{h} was not angry any more. <h/kind-f: You do not have to give me that. Let us fix {o.the} together.>",
            )
            s.one("So {f} {mend}, and {h} held it still.", "{They} worked side by side. {f} {mend}.")
        s.one(
            "It did not look like new. But it worked!",
            "Now {o.the} had a [little line|patch|funny bump], but it was as good as before.",
            "<h/happy: It works again!>",
            "When it was done, {o.the} was almost better than before.",
        )
        end(
            s,
            "{h} looked at the mended place and smiled. It made {him} think of {f.o}.",
            "A toy can break, but a friend can help to mend it.",
            moral="careful",
            friends=True,
        )
        return
    begin(
        s,
        ("{h} was playing with {his} {o.noun} {here}.", "{h} took {his} {o.noun} out to play {here}.")
        if who == "hero"
        else (
            "{h} left {his} {o.noun} on the [stairs|path|floor] and went to eat.",
            "{h} forgot {his} {o.noun} outside. That night there was a storm.",
        ),
    )
    if who == "hero":
        s.may(
            0.5,
            "<p-h: Be careful, or it will break!> But {h} did not listen.",
            "{h} wanted to see how strong it was.",
            "{h} was in a hurry, as always.",
        )
        s.one(
            "{h} was too wild, and {o.the} {broke}.",
            "Then, with a loud crack, {o.the} {broke}.",
            "{h} slipped and fell, and {o.the} {broke}.",
        )
    else:
        s.one(
            "Somebody stepped on it in the dark. Crunch! {o.the} {broke}.",
            "When {h} came back, {o.the} had broken.",
            "The wind knocked it over, and {o.the} {broke}.",
        )
    feel(s, "h", "sad")
    s.par()
    s.one(
        "{h} took the pieces to {p.o}. <h/sad-p: Can you make it whole again?>",
        "{p} found {h.o} with the pieces in {his} lap.",
        "{h} ran to {p.o} and cried.",
    )
    comfort(s, "p")
    s.one(
        "<p-h: I think we can mend this. Get me the [glue|toolbox|sewing box].>",
        "<p-h: Let me see. It is not so bad. Do you want to help me?>",
        "<p-h: We cannot buy a new one. But we can try to fix it.>",
    )
    s.one(
        "{h} held the light while {p} {mend}.",
        "{p} {mend}. {h} watched every move.",
        "Slowly and carefully, {p} {mend}.",
        "{p} showed {h.o} how it was done. Then {h} {mend} all alone!",
    )
    s.may(
        0.5,
        "{They} had to wait until it was dry. That was the hardest part.",
        '"Now count to a hundred," said {p}. {H} counted very fast.',
    )
    s.one("At last it was done.", "And look! It was whole again.", "In the end, {o.the} was as good as new.")
    feel(s, "h", "happy")
    end(
        s,
        "{h} {o_play} again, but more gently this time.",
        "The next week, {h} fixed a [chair|cup|toy] all by {himself}.",
        '"Broken things can be mended," said {p}, "if you take your time."\x01',
        moral="careful",
    )


def say_sorry_by(s: Story, who: str, to: str) -> None:
    """{who} begs pardon of {to}, and gets it."""
    s.beings["a"], s.beings["b"] = s.beings[who], s.beings[to]
    s.one(
        "<a/sad-b: I am so sorry.> <b/kind-a: It is all right.>",
        "<a/sad-b: I am sorry. I should have been careful.> <b/kind-a: I know you did not mean it.>",
        "<a/shy-b: I feel so bad. Are you still my friend?> <b/kind-a: Of course I am.>",
        "<a/sad-b: Please forgive me.> {B} thought for a while. <b/kind-a: I forgive you.>",
        "<a/sad-b: It was my fault. I am sorry.> <b/kind-a: Thank you for saying that.>",
    )
