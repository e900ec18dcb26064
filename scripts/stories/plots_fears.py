"""Plots about things that seem big: the dark, deep water, thunder, strange noises, being lost, a first day."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_friend, cast_grown, cast_other
from stories.events import aside, at_once, end, feel, prefixed
from stories.openings import begin, open_story, split
from stories.registry import plot
from stories.story import Story


@plot("child|animal|dragon|robot|elf|prince|princess", parent="any", weight=1.1)
def the_dark(s: Story) -> None:
    open_story(s, day=False)
    s.one(
        "There was only one thing {h} did not like: the dark.",
        "{h} was afraid of the dark.",
        "Only at night, when it was dark, {h} was not so happy.",
        "{h} did not like it when the sun went down.",
        "{h} was brave in the daytime, but not at night.",
    )
    s.par()
    s.one(
        "One night, the light went out.",
        "That evening, the wind blew out the [candle|lamp].",
        "One evening, {h} lay in {his} {h.bed} and could not sleep.",
        "One night, {h} woke up. It was as black as ink.",
        "Then came a night without a moon.",
    )
    s.one(
        "The shadows looked like big [animals|giants|birds].",
        "In the corner stood something tall and thin.",
        "Everything looked strange and gray.",
        "Something long and dark moved on the wall.",
        "There was a tap, tap, tap at the [window|door].",
    )
    feel(s, "h", "scared")
    way = s.pick("look|light|friend|stars|song")
    if way == "look":
        s.one(
            "<h/scared: Who is there?> Nobody answered.",
            "<h/scared: [Mama|Help]!>",
            "{h} pulled the blanket over {his} head.",
        )
        s.one(
            "{p} came in with a small light. <p/kind-h: What is the matter?> <h/scared-p: There is a monster!>",
            "{p} heard {h.o} and came at once. <h/scared-p: Look! Something is standing over there!>",
        )
        s.one(
            "<p/kind-h: Let us look at it together.>",
            "<p-h: Hold my hand. We will say hello to it.>"
            if s.beings["h"].body("hand") == "hand"
            else "<p-h: Come close to me. We will say hello to it.>",
        )
        s.one(
            "{They} went step by step. The monster was only [a coat on a hook|a chair with a hat on it|a heap of clothes|the branch of a tree]!",
            "{They} came nearer and nearer. It was just [a curtain in the wind|an old umbrella|a pile of blankets].",
        )
        s.one(
            "{h} had to laugh. <h/happy: Good night, monster!>",
            "{h} laughed. <h: You are not scary at all.>",
            "{h} touched it with one finger. It was soft." if s.group == "child" else "{h} touched it. It was soft.",
        )
        end(
            s,
            "From that night on, {h} always said hello to the shadows.",
            "When {h} saw a shadow now, {he} guessed what it was. It was a good game.",
            moral="brave",
        )
    elif way == "light":
        cast_other(s, "x", "firefly|glow worm", "tiny|little", named=s.chance() < 0.5)
        at_once(s, "a tiny light came through the [window|leaves]. It was {x.a}.")
        s.one(
            "<x-h: Why are you not asleep?> <h/shy-x: Because it is so dark.>",
            "<x-h: Do not be afraid. I am here.>",
            "<h-x: Are you not afraid of the dark?> <x-h: Oh no. I need the dark.>",
        )
        s.one(
            "<x-h: In the daytime, nobody can see my light. Only the dark makes it shine.>",
            "<x-h: If there were no night, you would never see me.>",
            "<x-h: Look what the dark can do!> And {x} drew a circle of light in the air.",
        )
        s.one(
            "{h} looked out. There were hundreds of little lights, and above {them} all the stars.",
            "{h} watched {x.o} fly up and down, up and down. It was like a slow dance.",
            "Soon more lights came, until the whole place was glowing.",
        )
        s.may(0.7, "{his} eyes grew heavy.", "{h} forgot to be scared.", "<h/tired-x: It is beautiful.>")
        end(
            s,
            "After that, {h} waited for the dark each night, for then {x} came to visit.",
            "And when {x} flew away, {h} was already asleep.",
            moral="brave",
        )
    elif way == "friend":
        cast_other(s, "x", "mouse|kitten|bat|owl|cricket", "small|little|gray")
        s.one(
            "Then {h} heard somebody crying. It was {x.a}.",
            'Then a tiny voice said, "I am scared!" It was {x.a}.',
            "But what was that? Under the [bed|leaves] sat {x.a}, and {x.he} was shaking.",
        )
        s.one(
            "<h/kind-x: Are you afraid of the dark too?> <x/shy-h: Yes. It is so big.>",
            "<h/kind-x: What is wrong?> <x/sad-h: I lost my way in the dark.>",
        )
        s.one(
            "{h} forgot {his} own fear. <h/kind-x: Come here. I will stay with you.>",
            "Now {h} had to be brave for two. <h/kind-x: You can sleep beside me.>",
            "<h/kind-x: We can be scared together. Then it is only half as bad.>",
        )
        s.one(
            "{h} sang a [quiet|little] song, and {x} listened.",
            "{They} told each other stories until the moon came up.",
            "{They} named all the shadows: that one was Uncle Long Leg, and that one was Mrs. Hat.",
        )
        end(
            s,
            "In the morning, {x} was gone, but there was a tiny {present} on the pillow.".replace(
                "{present}", s.pick("nut|flower|berry|feather")
            ),
            "Soon both of {them} were fast asleep.",
            moral="brave",
        )
    elif way == "stars":
        s.one(
            "{p} sat down beside {h.o}. <p/kind-h: Come with me. I want to show you something.>",
            "{p} took {h.o} outside.",
        )
        s.one(
            "{They} stood under the sky. At first {h} kept {his} eyes shut. <p-h: Now look up.>",
            "Outside it was cool and still. <p-h: Wait until your eyes know the dark.>",
        )
        s.one(
            "There were more stars than {h} could count.",
            "The sky was full of stars. Some were big, some were tiny, and one of them [fell|was blue].",
            "Thousands of stars looked down at {h.o}.",
        )
        s.one(
            "<h-p: Were they always there?> <p-h: Always. But you can only see them when it is dark.>",
            "<p-h: The night has its own lamps.>",
            "<h/happy-p: That one looks like a [bear|spoon|boat]!>",
        )
        feel(s, "h", "happy", 0.5)
        end(
            s,
            "{h} picked one star and called it {his} own. It was there every night.",
            "Back in {his} {h.bed}, {h} left the curtain open, so that the stars could see {him}.",
            moral="brave",
        )
    else:
        s.one(
            '{h} thought of what {p} always said: "If you are afraid, sing."\x01',
            "Then {h} remembered a song that {p} had taught {him}.",
        )
        s.one(
            "So {h} sang, first softly and then louder.",
            "{h} hummed one line, and then one more.",
            "{H} sang about [a little boat|the moon and the sea|three fat ducks].",
        )
        s.one(
            "With every line, the dark grew smaller.",
            "Outside, {creature} seemed to listen.",
            "And then somebody sang with {him}. It was {p}, at the door.",
        )
        feel(s, "h", "brave", 0.5)
        end(
            s,
            "By the last line, {h} was asleep.",
            "And the dark was only the dark, soft and quiet like a blanket.",
            moral="brave",
        )


@plot(
    "child|animal|pirate|elf|dragon|-frog|-duck|-penguin|-turtle|-beaver|-otter|-snail|-ant|-bee|-ladybug|-caterpillar|-owl|-bird",
    friend="cast",
    places="lake|pond|river|beach",
    season="summer|spring",
    weight=0.9,
)
def afraid_of_water(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "{h} sat {here} and watched the others swim.",
            "all the others jumped into the water, but {h} stayed on the shore.",
            "everybody wanted to swim. Only {h} did not want to.",
            "{h} stood at the edge of the water with dry feet.",
        ),
    )
    s.one(
        "The water looked deep and [dark|cold|green].",
        "{h} put one toe in and pulled it out again. Brr!",
        "{h} had never been in deep water before.",
        "What if there was something down there?",
    )
    feel(s, "h", "scared", 0.6)
    s.one(
        "{f.new} swam by. <f/happy-h: Come in! The water is lovely!> <h/shy-f: No, thank you. I like it here.>",
        "{f.new} came out of the water and shook off the drops. <f-h: Are you not hot? Come and swim!> <h/shy-f: I cannot. I am afraid.>",
        '{f.new} sat down next to {h.o}. <f-h: Why do you never swim?> {H} did not want to say it. Then {h.he} whispered, "I am scared."\x01',
    )
    s.one(
        "{f} did not laugh. <f/kind-h: I was scared too, the first time.>",
        "<f/kind-h: That is all right. Let us start with our [feet|toes].>",
        "<f/kind-h: I can show you a trick.>",
    )
    s.par()
    s.one(
        "First {they} only sat in the shallow water and splashed with {their} feet.",
        "{They} began where the water was no deeper than a puddle.",
        "On the first day, {h} only got {his} feet wet. On the second day, {his} belly got wet too.",
    )
    s.one(
        'Then {f} said, "Now blow bubbles."\x01 {h} put {his} nose in and blew. It tickled!',
        "Next, {f} held {h.o} while {h.he} lay on {h.his} back. <f/kind-h: The water will carry you.>",
        "{f} showed {h.o} how to float like a leaf.",
    )
    s.may(
        0.5,
        "Once, {h} swallowed some water and coughed. <h/sad-f: I will never learn it!>",
        "A wave splashed over {his} head. {h} came up and blinked.",
        "{h} sank like a stone, but only for a second. {F} pulled {h.him} up.",
    )
    if s.chance() < 0.5:
        cast_other(
            s,
            "x",
            "duckling|kitten|puppy|baby turtle"
            if s.beings["h"].noun not in ("puppy", "kitten")
            else "duckling|baby turtle",
            "tiny|little",
            "n",
        )
        at_once(s, "{they} heard a cry. {x.a} was sitting on a floating log, and the log was drifting away!")
        s.one(
            "{f} was too far off. {h} did not think twice. {he} took a deep breath and swam.",
            "There was no time to be afraid. {h} kicked {his} legs and swam.",
        )
        s.one(
            "It was not far, but it felt like a long way. {h} pushed the log back to the shore.",
            "{h} reached the log and pushed it, kick, kick, kick, until it touched the sand.",
        )
        s.one(
            "<f/happy-h: {h.n}! You swam!> {H} looked back at the water. <h: I did?>",
            "Only then {h} noticed what {he} had done. <h/happy: I can swim!>",
            "{x} shook itself dry and ran off. And {h} stood there, wet and very surprised.",
        )
    else:
        s.one(
            "<f-h: Now I will let go.> And {h} floated, all by {h.himself}!",
            '"Look!" said {f}. "I am not holding you any more!"\x01',
            "And then, all at once, it worked. One stroke, two strokes, three strokes!",
        )
        feel(s, "h", s.pick("proud|happy"))
    end(
        s,
        "That summer, nobody could get {h.o} out of the water.",
        "{h} and {f} swam until {their} lips were blue.",
        '"The water is lovely!" {h} called to everyone on the shore.',
        moral="brave",
        friends=True,
    )


@plot("child|animal|folk|-giant", parent="any", weight=1.0)
def the_storm(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "the sky turned dark in the middle of the day.",
            "big black clouds came over the hills.",
            "{h} was playing {here} when the first drops fell.",
            "the wind began to howl, and {h} had to run home.",
        ),
    )
    s.one(
        "Then there was a flash and a loud boom!",
        'The wind pulled at the [roof|trees]. "Boom!" went the thunder.',
        "Rain beat down like a thousand little drums. Then, crash! Thunder!",
    )
    feel(s, "h", "scared")
    way = s.pick("count|guest|tell|job")
    s.par()
    if way == "count":
        s.one(
            "{h} ran to {p.o} and hid {his} face. <h/scared-p: Make it stop!>",
            "<h/scared-p: Is the sky angry?> <p/kind-h: No, the sky is only making music.>",
        )
        s.one(
            "<p-h: When you see the flash, start to count. If you can count far, the storm is far away.>",
            "<p-h: Let us count together until the thunder comes.>",
        )
        s.one(
            'Flash! "One, two, three," {they} counted. Boom! The next time {they} got to five. Then to eight.',
            '"One, two," said {h}. Boom! But soon {they} could count to ten, and then to twenty.',
        )
        s.one(
            "<h/happy-p: It is going away!>",
            "The storm went away over the hills, and the thunder only grumbled like an old [bear|man].",
            "{h} was so busy counting that {he} forgot to be afraid.",
        )
        end(
            s,
            "When the sun came out, {h} was a little sorry that it was over.",
            "The next time it thundered, {h} ran to the window to count.",
            moral="brave",
        )
    elif way == "guest":
        cast_other(
            s,
            "x",
            "kitten|puppy|rabbit|sparrow|squirrel|hedgehog|lamb"
            if s.group == "child"
            else "mouse|sparrow|hedgehog|butterfly|beetle|frog",
            "wet|tiny|cold|little",
        )
        at_once(s, "{h} heard a sound at the door. Outside stood {x.a}, shaking all over.")
        s.one(
            "<h/kind: You poor thing! Come in!>",
            "<p-h: It is too cold for anyone out there. Let {x.o} in.>",
            "{h} forgot the thunder and opened the door wide.",
        )
        s.one(
            "{They} dried {x.o} with a [soft towel|bit of wool] and gave {x.o} something warm to [eat|drink].",
            "{h} made a bed of [old socks|hay|leaves] and gave {x.o} half of {his} supper.",
            "{x} crept close to {h.o} and stopped shaking.",
        )
        s.one(
            '"Boom!" went the thunder. {X} shook again. <h/kind-x: It is only noise. It cannot hurt you.>',
            'With every boom, {x} jumped. And {h} said each time, "I am here."\x01',
        )
        s.one(
            "{h} noticed that {he} was not afraid any more. There was no time for that.",
            "It is hard to be afraid when you have to look after somebody smaller.",
        )
        end(
            s,
            "In the morning, a rainbow stood over the [hills|trees], and {x} did not want to leave.",
            "When the storm was over, {x} stayed for breakfast.",
            moral="help",
        )
    elif way == "tell":
        s.one(
            "{p} lit a candle and made [cocoa|tea with honey]. <p-h: A storm is the best time for a story.>",
            "All the lights went out. <p/kind-h: Now it is just right for a story.>",
        )
        s.one(
            "{p} told of a [ship|bear|cloud] that got lost in a storm and found an island of [apples|singing birds|soft sand].",
            "{p} told {h.o} how the thunder was a giant who moved his chairs around.",
            "The story was about a mouse who wanted to catch the wind in a sack.",
        )
        s.one(
            'Whenever it thundered, {p} made it a part of the story. "Boom!" went the giant\'s door.',
            'Each time it thundered, {they} both said "Boom!" as loud as {they} could.',
            "{h} laughed so hard that {he} did not hear the thunder.",
        )
        end(
            s,
            "When the story was over, the storm was over too.",
            "<h-p: Will there be another storm tomorrow?> <p-h: Why do you ask?> <h/happy-p: I want to hear more!>",
            moral="joy",
        )
    else:
        s.words["goods"] = s.pick("flower pots|little chicks|clean sheets|young rabbits|paper boats")
        s.one(
            "Then {h} remembered the {goods} outside. They would be blown away!",
            "But the {goods} were still outside! They were in danger.",
        )
        s.one(
            "{h} wanted to stay in, but {he} knew what {he} had to do.",
            "<p-h: I cannot do it all alone. Will you help me?> {H} looked out at the rain and nodded.",
        )
        feel(s, "h", "brave")
        s.one(
            "{they} ran out into the rain. The wind pushed {them} back, but {they} went on.",
            "Step by step, {they} fought against the wind.",
            "Rain ran down {their} faces. {they} carried everything inside, one by one.",
        )
        s.one(
            "When the last one was safe, {they} shut the door. Bang!",
            "At last all was safe and dry. Only {they} were dripping.",
        )
        s.one(
            "<p/proud-h: I could not have done it without you.>",
            "{p} looked at {h.o}. <p-h: You were not afraid at all!> <h-p: I was. But I forgot about it.>",
        )
        end(
            s,
            "{They} sat by the warm stove and listened to the storm. Now it sounded almost friendly."
            if s.group == "child"
            else "{They} sat close together and listened to the rain. Now it sounded almost friendly.",
            moral="brave",
        )


@plot("child|animal|folk|-giant|-lion", friend="pair", weight=1.1)
def strange_noise(s: Story) -> None:
    noise = s.pick(
        "Boo-hoo-hoo|Grrr, grrr|Tap, tap, tap|Whooo, whooo|Scratch, scratch|Plop, plop|Hrrr, pschhh|Squeak, squeak|Bump, bump, bump"
    )
    s.words["noise"] = noise
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} heard a strange noise.",
            "{h} stood still. <h-f: Did you hear that?>",
            "there was a strange sound. {f} heard it first.",
            "{h} and {f} were playing {here} when {they} heard something odd.",
        ),
    )
    s.one('"{noise}," it went.', '"{noise}!" And then again, "{noise}!"\x01', 'It went like this: "{noise}."\x01')
    s.one(
        "<f/scared-h: What is that?> <h/scared-f: I do not know.>",
        "<h-f: Maybe it is a [ghost|giant|dragon].> <f/scared-h: Do not say that!>",
        "<f/scared-h: It sounds like a monster.> <h-f: There are no monsters. I think.>",
        "{They} looked at each other with big eyes.",
    )
    s.may(
        0.5,
        "<f-h: Let us run away.> <h-f: No. I want to know what it is.>",
        "<h-f: You go first.> <f-h: No, you go first!> So {they} went side by side.",
        "{h} picked up a [stick|pot lid|long branch], just in case.",
    )
    s.par()
    s.one(
        "{They} crept closer, one step at a time.",
        "On tiptoe {they} followed the sound.",
        "{They} followed the noise past {spot2}.".replace(
            "{spot2}", s.pick("the old tree|the tall grass|the big stones|the dark bushes")
        ),
        "Slowly, slowly, {they} went nearer.",
    )
    aside(s, 0.3)
    s.may(
        0.5,
        'The noise got louder. "{noise}!"\x01',
        "Then it was quiet. That was even worse.",
        "A twig broke. {They} both jumped.",
        "{f} held on to {h.o}.",
    )
    found = {
        "Boo-hoo-hoo": (
            '{spot} sat a [tiny ghost|small owl|little fox], crying big tears. "I have lost my mother," it sobbed.|Behind a bush sat a very big [bear|dog|troll], and it was crying! It had a thorn in its foot.',
            "{They} stayed with it and helped until it smiled again.|{h} was not afraid any more. Who could be afraid of somebody who is so sad?",
        ),
        "Grrr, grrr": (
            "It was a [fat cat|small dog|sleepy bear cub], and its belly was growling. It was so hungry!|It was an old lion made of stone, and inside its mouth a family of cats was purring.",
            "{They} gave it {treat}, and the growling stopped at once.|{h} laughed. The terrible monster was only an empty belly.",
        ),
        "Tap, tap, tap": (
            'It was a [woodpecker|red bird] with a bright red head. "Good day," it said. "I am building a house."|It was a loose [board|shutter], and the wind was playing with it.|An egg lay {spot}. Tap, tap, tap! A tiny beak came out.',
            "{They} laughed until {their} bellies hurt.|{They} sat down and watched for a long time.",
        ),
        "Whooo, whooo": (
            'It was only the wind, blowing over an empty bottle.|It was a young owl who was learning to sing. "Was it good?" the owl asked.',
            '"It was very good," said {h}, and {f} clapped.|{h} blew over the bottle too. "Whooo!" Now {they} had a flute.',
        ),
        "Scratch, scratch": (
            "A kitten was shut in a [box|shed|basket], and it wanted to get out.|It was a mole, digging a new tunnel. It put its head out and sneezed.",
            '{They} helped it out, and it ran around {them} in circles.|"Sorry about the noise," it seemed to say.',
        ),
        "Plop, plop": (
            "Ripe [apples|plums|pears] were falling from a tree, one by one.|Three fat frogs were jumping into a [bucket|puddle], one after the other.",
            "{They} sat down and had a feast.|{h} counted. Plop, plop, plop, and then no more.",
        ),
        "Hrrr, pschhh": (
            "{spot} lay an old [man|giant|bear], fast asleep. He was snoring!|It was a very small hedgehog with a very big snore.",
            "{They} put a leaf blanket over him and went away on tiptoe.|{h} held {h.his} nose so that {h.he} would not laugh out loud.",
        ),
        "Squeak, squeak": (
            "It was the old gate, moving in the wind.|Five baby mice lay in a nest, and all of {them} were hungry.|It was {f's} own shoe! It squeaked with every step.",
            "{They} laughed all the way home.|So that was the terrible monster!",
        ),
        "Bump, bump, bump": (
            "A ball was rolling down some steps, and a puppy ran after it.|It was a goat who wanted to open a door with its head.|A little elephant was learning to jump rope."
            if s.group != "child"
            else "A ball was rolling down some steps, and a puppy ran after it.|It was a goat who wanted to open a door with its head.",
            "{h} opened the way for it, and it ran off happily.|{They} laughed so much that {they} had to hold on to each other.",
        ),
    }[noise]
    s.one(
        "Then {they} saw it.",
        "{They} looked around the corner.",
        "{h} counted to three and looked.",
        "At last {they} were close enough to see.",
    )
    s.one(*_bars(found[0]))
    s.one(*_bars(found[1]))
    s.may(
        0.5,
        "<f-h: And I thought it was a monster!>",
        "<h/happy-f: And you wanted to run away!>",
        "<f-h: I was not afraid at all.> <h-f: Oh yes, you were. And I was too.>",
        "All that fear for nothing!",
    )
    end(
        s,
        "After that, whenever {they} heard a strange noise, {they} went to see what it was.",
        '"{noise}," said {h} at bedtime, and {f} laughed in the dark.'
        if s.beings["f"].facts["rel"]
        else '"{noise}!" said {h} when {they} said goodbye, and {f} laughed.',
        moral="brave",
    )


def _bars(source: str) -> tuple[str, ...]:
    return split(source)


@plot("child", parent="mom|dad", places="school yard", weight=0.9, tells=0.14)
def first_day(s: Story) -> None:
    open_story(s)
    s.one(
        "It was {his} first day of school." if s.dated else "Today was the first day of school.",
        "Today, {h} had to go to school for the first time.",
        "That day was a big day. {h} had a new [school|class] and did not know anyone.",
    )
    s.dated = True
    s.one(
        "{his} new [shoes|backpack] felt stiff.",
        "{h} had a new backpack, and in it was a pencil, an apple and a stone for luck.",
        "{h} could not eat {his} breakfast.",
        "{h} put on {his} shoes very slowly.",
    )
    s.one(
        "<h/shy-p: What if nobody likes me?> <p/kind-h: Just be {h.n}. That is enough.>",
        "<h/sad-p: I do not want to go. My belly hurts.> <p/kind-h: I think there are butterflies in it.>",
        "<h-p: Will you come back for me?> <p/kind-h: Of course. I will be at the gate.>",
        "{p} drew a tiny heart on {h's} hand. <p/kind-h: When you miss me, press it.>",
    )
    s.par()
    s.one(
        "The room was full of voices.",
        "In the class there were so many children! Everyone seemed to know each other.",
        "The teacher had a kind face. She showed {h.o} an empty chair.",
        "At the door, {h} wanted to turn around.",
    )
    feel(s, "h", s.pick("scared|lonely"), 0.7)
    cast_friend(s, "g")
    s.beings["g"].facts["rel"] = ""
    s.beings["f"] = s.beings["g"]
    way = s.pick("crying|pencil|lunch|drawing|lost")
    if way == "crying":
        s.one("Then {h} saw {f.a} in the corner. {F} was crying.", "Beside {h.o} sat {f.a} with red eyes.")
        s.one(
            "<h/kind-f: Is this your first day too?> {F} nodded.",
            "<h/kind-f: Do you have butterflies in your belly?> <f/sad-h: Yes, about a hundred.>",
        )
        s.one(
            "{h} gave {f.o} the stone for luck." if s.chance() < 0.4 else "{h} gave {f.o} half of {his} apple.",
            "<h/kind-f: We can be new together.>",
            "{h} made a funny face, and {f} laughed a little.",
        )
    elif way == "pencil":
        s.one(
            "Then {h's} pencil broke. Crack! {h} did not dare to say anything.",
            "{h} opened {his} bag. {his} pencil was not there!",
        )
        s.one(
            "{f.new} pushed a {color} pencil over the table. <f/kind-h: I have two.>",
            "<f-h: Take this one. My name is {f.n}.>",
        )
        s.one(
            "{h} drew a [cat|house|rocket] with it, and {f} drew a [mouse|garden|moon] next to it.",
            "<h/shy-f: Thank you. I am {h.n}.>",
        )
    elif way == "lunch":
        s.one("At lunch, {h} sat alone.", "When it was time to eat, {h} did not know where to sit.")
        s.one(
            "{f.new} came over. <f-h: Can I sit here? I have too many [grapes|cookies].>",
            "{f.new} sat down beside {him}. <f-h: What have you got?> <h/shy-f: Cheese.> <f/happy-h: I love cheese! Do you want to trade?>",
        )
        s.one(
            "{They} shared everything, even the last crumb.",
            "{They} found out that {they} both had a [cat|baby brother|loose tooth].",
        )
    elif way == "drawing":
        s.one(
            '"Draw what you love," said the teacher. {H} drew {picture}.',
            "{h} took a {color} crayon and drew {picture}.",
        )
        s.one(
            "{f.new} looked over. <f/happy-h: Wow! Can you teach me that?>",
            'A voice beside {him} said, "That is the best picture I have ever seen." It was {f.new}.',
        )
        s.one("{They} drew until the bell rang.", "Soon three more children wanted to see it.")
    else:
        s.one(
            "In the break, {h} could not find the way back to the class.",
            "{h} opened the wrong door and stood in a room full of [brooms|big kids].",
        )
        s.one(
            "There stood {f.new}. <f-h: I am lost.> <h-f: Me too!>",
            "{f.new} was walking up and down the hall. <f/shy-h: Do you know where we have to go?> <h-f: No. But we can look together.>",
        )
        s.one(
            "{They} tried three doors. The third was right, and everyone laughed, and so did {they}.",
            "{They} followed the smell of [paint|glue], and there it was.",
        )
    feel(s, "h", "happy", 0.5)
    s.par()
    s.one(
        "When the bell rang, {h} could not believe that it was over.",
        "At the end of the day, {p} stood at the gate.",
        "On the way home, {h} talked and talked.",
    )
    s.one(
        "<p-h: How was it?> <h/happy-p: Can I go again tomorrow?>",
        "<p-h: And the butterflies?> <h/happy-p: They flew away!>",
        "<h/happy-p: I have a friend! My friend's name is {f.n}.>",
    )
    end(
        s,
        "That night, {h} put {his} shoes next to the bed, ready for the morning.",
        '"Tomorrow I will look for somebody who is alone," {h} thought.',
        moral="friend",
    )


@plot(
    "child|mouse|rabbit|bear|duck|elephant|kitten|puppy|lamb|fox|penguin|deer|chick|monkey|panda",
    parent="mom|dad|grandma|grandpa",
    weight=1.1,
)
def getting_lost(s: Story) -> None:
    child = s.group == "child"
    open_story(s)
    if child:
        s.words["big"] = s.pick("the market|the big store|the zoo|the fair|the train station|the woods|the museum")
    else:
        s.words["big"] = s.pick("the deep forest|the high hills|the far meadow|the other side of the river")
    begin(s, ("{h} went to {big} with {p.o}.", "{p} took {h.o} along to {big}."))
    s.one("<p-h: Stay close to me.> <h-p: I will.>", "<p-h: Hold on to me.>", '"Do not run off," said {p}.')
    s.tell(
        "But then {h} saw "
        + s.pick(
            "a blue butterfly|a dog with a hat|a man with balloons|a tower of oranges|a tiny train"
            if child
            else "a blue butterfly|a tree full of red berries|a shiny beetle|a hopping frog|a long trail of ants"
        )
        + s.pick(
            " and stopped to look, only for a moment.| and forgot everything else.| and went after it, just a little way."
        )
    )
    s.one(
        "When {he} turned around, {p} was gone.",
        "Then {h} looked up. Where was {p}?",
        "{h} looked left. {h} looked right. {p} was not there!",
        "All {he} could see was [legs and bags|strange faces|people and more people]."
        if child
        else "All {he} could see was trees and more trees.",
    )
    feel(s, "h", s.pick("scared|worried"))
    s.may(
        0.5,
        "<h/scared: {p.n}! Where are you?>",
        "{h} called, but nobody answered.",
        "{h} ran one way, and then the other way.",
    )
    s.par()
    way = s.pick("stay|helper|sign|song")
    if way == "stay":
        s.one(
            'Then {he} remembered what {p} had told {him}. "If you get lost, stay where you are."\x01',
            '"Stay in one place, and I will find you." That was what {p} always said.',
        )
        s.one(
            "So {h} sat down [on a step|by a big clock|next to a fountain] and waited."
            if child
            else "So {h} sat down [under a tall tree|on a flat stone] and waited.",
            "It was hard to sit still. {h} counted to a hundred, and then to a hundred again.",
        )
        aside(s, 0.4)
        s.one(
            'And then there was a voice. "{h.n}!"\x01 It was {p}!',
            "At last {h} saw a face {he} knew. {p} came running.",
        )
    elif way == "helper":
        cast_grown(s)
        s.one(
            "{w.a} saw {him}. <w/kind-h: Are you lost?> {H} nodded.",
            "{h} looked for somebody who could help. There was {w.a}. <h/shy-w: Excuse me. I cannot find my {p.noun}.>",
        )
        s.one(
            "<w-h: What does your {p.noun} look like?> <h/sad-w: Like the nicest {p.noun} in the world.>",
            "<w/kind-h: Do not worry. We will find your {p.noun} together.>",
            "<w-h: What is your name?> <h/shy-w: I am {h.n}.>",
        )
        s.one(
            "{w} lifted {h.o} up high, so that {h.he} could see over everything. And there was {p}!",
            "{They} walked slowly and called together. Then somebody called back. It was {p}!",
            "{w} rang a bell and called in a loud voice. Soon {p} came running.",
        )
    elif way == "sign":
        s.one(
            "Then {h} looked at the ground. There were footprints!",
            "Then {h} thought of the way {they} had come: first the [red door|old tree], then the [bridge|big stone].",
        )
        s.one(
            "Step by step, {h} went back. First there was [a puddle shaped like a heart|a tree with two trunks], then [a broken fence|a bush with white flowers].",
            "{h} followed {them} around a corner, over a bridge and past [a bakery|an old well].",
        )
        s.one("And at the end stood {p}, looking just as worried.", "There was {p}! {p.he} was calling and calling.")
    else:
        s.one(
            "{h} did what {he} always did when {he} was afraid. {he} sang the song {they} sang at bedtime.",
            "{h} began to whistle {their} song, the one that only {they} knew.",
        )
        s.one(
            "{he} sang louder and louder. Some stopped to listen.", "At first {his} voice was shaky. Then it was clear."
        )
        s.one(
            "And from far away, somebody sang the next line. It was {p}!",
            "And then, between all the noise, somebody whistled back.",
        )
    s.one(
        "{p} lifted {h.o} up and held {h.o} tight. <p-h: I looked for you everywhere!>",
        "{They} ran to each other. <h/happy-p: I was so afraid!> <p-h: So was I.>",
        "{p} did not scold. {p.he} only held {h.o} close.",
    )
    s.may(
        0.5,
        "<h/sad-p: I will not run off again.>",
        "<h-p: I only looked for a moment.> <p/kind-h: A moment can be long.>",
        "<p-h: You did just the right thing.>",
    )
    end(
        s,
        "{They} went home side by side, and {h} did not let go, not even at the door.",
        "And on the way home, {they} looked at everything together.",
        moral=s.pick("listen|home"),
    )


@plot("child|animal|elf|dragon|teddy bear|-owl|-bat", parent="mom|dad|grandma|grandpa", weight=1.0)
def cannot_sleep(s: Story) -> None:
    open_story(s, day=False)
    s.par()
    s.one(
        "One night, {h} could not sleep.",
        "It was late, but {h} was wide awake.",
        "The moon was high, and {h} still lay awake.",
        "It was bedtime, but {h} was not tired at all.",
    )
    s.one(
        "{h} turned to the left. {h} turned to the right.",
        "{h} shut {his} eyes, but {they} opened again.",
        "The blanket was too hot, and then it was too cold.",
        "{h} counted the [stars|lines on the wall|sounds of the night].",
    )
    s.one(
        "<h-p: I cannot sleep.> <p/tired-h: Have you tried to close your eyes?> <h-p: Yes. They do not stay closed.>",
        "{h} went to {p.o}. <h-p: My eyes are too awake.>",
        "<h: Is anybody awake?> <p/tired-h: Now I am.>",
    )
    s.par()
    tries = [
        "{p} gave {h.o} a cup of warm milk. It was good, but it did not help.",
        "<p-h: Count sheep.> {H} counted. At sheep number {number}, one of them stopped and asked {h.o} a riddle.",
        "{p} sang a song about the moon. {H} liked it so much that {h.he} sang too.",
        "<p-h: Think of something nice.> {H} thought of cake, and now {h.he} was hungry.",
        "{p} told a story. It was so good that {h} wanted to know how it went on.",
        "{They} looked out of the window. The moon was awake as well.",
        "{h} tried to sleep upside down, like a bat. {he} fell out of bed.",
        "<p-h: Make yourself heavy, like a stone.> {H} made {h.himself} so heavy that the bed creaked.",
    ]
    for i in range(s.choose((2, 3, 3))):
        pattern = s.take(tries)
        s.tell(prefixed(s.pick(("Then ", "Next, ", "After that, ", "")) if i else "", pattern))
    s.one(
        "<p/tired-h: I do not know what else to do.> And {p} yawned.",
        "Now {p} was very tired. {p.he} sat down on the bed, just for a minute.",
        "<p/tired-h: Now you tell me a story.>",
    )
    s.one(
        "So {h} told {p.o} about the day: about {creature}, and the wind, and the cake. After a while it was very quiet. {p} was asleep!",
        '{h} looked at {p.o}. {P.his} eyes were closed. "Sleep well," {h} whispered and pulled up the blanket.',
        "{h} stroked {p.his} head and hummed. First {p} fell asleep, and then, very softly, {h} did too.",
        "{p} lay down beside {h.o} and listened to the rain. Drip, drop, drip, drop.",
    )
    s.one(
        "And somewhere between one breath and the next, {h} fell asleep.",
        "{h} yawned. It was hard work to put somebody to bed. A moment later {he} slept.",
        "It was so warm and quiet that {h's} eyes fell shut.",
        "The moon looked in and saw two sleepers in one bed.",
    )
    s.may(0.35, "In the morning, nobody wanted to get up.", "And the sheep? They slept too.", "Good night, {h.n}.")


@plot("child|animal|folk", friend="cast", weight=0.9, places="hill|forest|playground|park|farm|big tree|castle garden")
def too_high(s: Story) -> None:
    s.words["high"] = (
        s.pick("the tall slide|the high ladder|the old apple tree")
        if s.group == "child"
        else s.pick("the high rock|the tall tree|the steep hill")
    )
    s.beings["f"].facts["rel"] = ""
    open_story(s)
    begin(
        s,
        (
            "{h} stood in front of {high} and looked up.",
            "the others were climbing up {high}. {h} wanted to come too.",
            '{f.new} said to {h.o}, "Let us climb up {high}!"\x01',
        ),
    )
    s.one(
        "It was very, very high.",
        "The top was so far away that it made {him} dizzy.",
        "It looked as high as the clouds.",
    )
    s.one(
        "{h} went up three steps. Then {he} looked down. That was a mistake.",
        "{h} began to climb. Halfway up, {he} stopped. {his} legs would not go up, and {they} would not go down.",
        "{h} climbed and climbed. Then the wind blew, and {he} held on tight.",
    )
    feel(s, "h", "scared")
    s.one("<h/scared: I am stuck!>", "<h/scared: Help! I cannot move!>", "{h} shut {his} eyes.")
    s.par()
    if s.beings["f"].seen < 0:
        s.one("{f.new} heard {him}.", "Down below stood {f.new}.")
    s.one(
        "<f/kind-h: Do not look down. Look at me.>",
        "<f/kind-h: I will come up to you. Wait!> And {f} climbed up next to {h.o}.",
        "<f/kind-h: Only think of the next step. Just one.>",
    )
    s.one(
        "<f-h: Now the left foot. Good. Now the right foot.>",
        '"One step," said {f}. "And one more. And now a small one."\x01',
        "{f} sang a silly song, one word for each step.",
    )
    feel(s, "h", "brave", 0.7)
    if s.chance() < 0.6:
        s.one(
            "Step by step, {they} did not go down but up. And then {they} were at the top!",
            "<f-h: It is just as far up as down. What do you want?> {H} thought. <h-f: Up!>",
        )
        s.one(
            "From there {h} could see the whole world: the river like a ribbon, the houses like toys.",
            "The wind was in {their} faces. It was wonderful up there.",
            "<h/happy: I can see my house from here!>",
        )
        feel(s, "h", s.pick("proud|happy"), 0.7)
    else:
        s.one(
            "And then {h} felt the ground under {his} feet again.",
            "At last {h} was down. The grass had never felt so soft.",
            "With the last step, {h} fell right into {f's} arms.",
        )
        s.one(
            "<h-f: I was not very brave.> <f/kind-h: Yes, you were. You asked for help.>",
            "<h-f: Thank you. Will you come with me again tomorrow?> <f/happy-h: Of course!>",
            "The next day {h} tried again. {he} got one step higher. And the day after, one more.",
        )
    end(
        s,
        '"Tomorrow," said {h}, "we will go even higher."\x01',
        "After that, it did not look so high any more.",
        moral="brave",
        friends=True,
    )
