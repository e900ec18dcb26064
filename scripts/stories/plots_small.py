"""Plots of small great things: a chain of swaps, glasses, teasing, a play, a balloon, fishing, a narrow bridge, winter."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_friend, cast_thing
from stories.events import end, feel
from stories.openings import begin, open_story
from stories.registry import plot
from stories.story import Story
from stories.things import TREASURES


@plot("child|animal|elf|gnome|pirate|-giant", parent="any", weight=1.0, tells=0.1)
def swap_chain(s: Story) -> None:
    child = s.group == "child"
    cast_thing(s, "o", TREASURES[:8])
    open_story(s)
    begin(
        s,
        (
            "{h} found {o.a} {spot}.",
            "{h} went out with nothing but {o.a}.",
            "{h} had {o.a}, and {he} did not know what to do with it.",
        ),
    )
    if child:
        people = [
            "an old man",
            "a fisherman",
            "the baker",
            "a girl with a dog",
            "a boy on a bike",
            "the mailman",
            "a lady with a big hat",
            "a farmer",
        ]
    else:
        people = [
            "an old toad",
            "a busy hen",
            "a fat mole",
            "a young crow",
            "a goat",
            "two mice",
            "a sleepy owl",
            "a snail",
        ]
    goods = [
        "a ball of string",
        "a red balloon",
        "a jar of honey",
        "a warm hat",
        "a bag of nuts",
        "a little bell",
        "a big pumpkin",
        "a pot of paint",
        "a paper lantern",
        "a basket of plums",
        "a toy drum",
        "a silver spoon",
    ]
    had = "{o.the}"
    reasons = [
        '"That is just what I have been looking for!"',
        '"I need that more than anything!"',
        '"What a lovely thing!"',
        '"Oh! My grandmother had one like that."',
    ]
    meetings = ["Then {h} met ", "At the corner stood " if child else "Under a bush sat ", "Next came "]
    for i in range(s.choose((2, 3, 3))):
        who, got = s.take(people), s.take(goods)
        meet = s.take(meetings) if i else s.pick(("On the way, {h} met ", "There stood "))
        offer = (
            s.take(reasons)
            + "\x01"
            + s.pick(
                (
                    " And so {h} got " + got + " for " + had + ".",
                    " {h} gave " + had + " away and got " + got + " instead.",
                )
            )
        )
        s.tell(meet + who + ". " + offer)
        had = "the " + got.split(" ", 1)[1]
        if i == 0:
            s.may(0.5, "That was a good trade.", "<h/happy: Fair is fair!>", "{h} walked on and whistled.")
    s.par()
    s.words["had"] = had
    way = s.pick("back|gift|cry")
    if way == "back":
        s.one(
            "In the evening {h} came home with {had}. <p-h: And what did you have this morning?> <h-p: {o.a}.> {P} laughed. <p-h: I have been looking for {o.a} all day!>",
            "At last {h} met somebody who had {o.a}, a very fine one. {h} looked at it for a long time, and then {he} gave {had} for it.",
        )
        s.one(
            "So in the end it was all as before, and {h} had had a wonderful day.",
            "{h} had walked around in a big circle, and it had been fun.",
        )
    elif way == "gift":
        s.one(
            "{h} came home and put {had} on the table. <h-p: This is for you.>",
            "It was {p's} birthday, and now {h} had the best present.",
        )
        s.one(
            "<p/happy-h: How did you get that?> <h-p: It all began with {o.a}.>",
            "{p} could not believe it. <p-h: From {o.a}? You are a clever one!>",
        )
    else:
        s.one(
            "On the way home, {h} saw a very small child, who was crying."
            if child
            else "On the way home, {h} saw a very small mouse, who was crying."
            if s.beings["h"].noun != "mouse"
            else "On the way home, {h} saw a very small frog, who was crying."
        )
        s.one(
            "{h} thought for a moment. Then {he} gave {had} away, and this time {he} asked for nothing.",
            "{h} held out {had}. <h/kind: Here. It is yours.>",
        )
        s.one(
            "And what did {h} get? A smile. It was the best trade of the day.",
            "The little one laughed. That was worth more than all the rest.",
        )
    end(s, '"Tomorrow," said {h}, "I will start with a button."\x01', moral="joy")


@plot(
    "child|mole|owl|bear|rabbit|mouse|elephant|robot|princess|knight",
    friend="cast",
    parent="any",
    weight=0.9,
    tells=0.12,
)
def new_glasses(s: Story) -> None:
    s.beings["f"].facts["rel"] = ""
    open_story(s, day=False)
    s.one(
        "{h} often fell over things.",
        "For {h.o}, the trees were green clouds and the stars were not there at all.",
        "{h} said hello to a bush, because {he} thought it was {his} aunt."
        if s.group == "child"
        else "{h} said hello to a stone, because {he} thought it was a friend.",
    )
    begin(
        s,
        (
            "{p} noticed it. <p-h: Can you see that bird?> <h-p: Which bird?>",
            "{h} walked right into a door. <p-h: I think that you need glasses.>",
            "{h} poured the milk next to the cup." if s.group != "animal" else "{h} tried to eat a pebble.",
        ),
    )
    s.one(
        "So {they} went to [an old doctor|a wise old owl]. And {h} got glasses, round and {color}.".replace(
            "[an old doctor|a wise old owl]",
            "an old doctor" if s.group != "animal" else "a wise old stork",
        ),
        "{h} tried on seven pairs. The seventh was just right.",
    )
    s.one(
        "The whole world jumped closer! Every leaf had an edge.",
        "<h/happy: The trees have leaves! So many leaves!>",
        "{h} could see the birds on the roof, and even the feathers on the birds.",
    )
    s.par()
    s.one(
        'But the others stared. "You look funny," somebody said.',
        'Somebody laughed. "You have windows on your nose!"\x01',
    )
    feel(s, "h", s.pick("sad|angry"), 0.8)
    s.one(
        "{h} put the glasses into {his} pocket. At once, everything was blurry again.",
        "{h} hid the glasses {spot} and went without {them}.",
    )
    s.may(0.6, "Bump! There was the tree.", "{h} did not see the puddle, and in {he} went.")
    s.one(
        "Then {f.new} lost a tiny [ring|bell|bead]. Everyone looked for it, but nobody could find it.",
        "Then {f.new} began to cry. <f/sad-h: My little beetle has run away!>",
    )
    s.one(
        "{h} thought about it. Then {he} put on {his} glasses.",
        "There was only one thing to do. {h} got {his} glasses.",
    )
    s.one(
        "{he} looked left and right. And there it was, under a leaf, no bigger than a crumb!",
        "It took one minute. <h: There! In the grass, behind the third daisy!>",
    )
    s.one(
        "<f/happy-h: You have the best eyes of all!>",
        '"I want glasses too," said the one who had laughed.',
        "<f-h: Can I try them on?> And then everybody wanted to try them on.",
    )
    end(
        s,
        "From then on, {h} only took {them} off to sleep.",
        "That night, {h} saw the stars for the very first time.",
        moral="self",
    )


@plot("child|animal|elf|robot|-lion|-tiger", friend="cast", weight=1.0, tells=0.1)
def teased(s: Story) -> None:
    s.beings["f"].facts["rel"] = ""
    kind = s.beings["h"].kind
    assert kind is not None
    child = kind.group == "child"
    s.words["odd"] = (
        s.pick("red hair|big ears|funny shoes|old coat|soft voice|round belly|freckles")
        if child
        else kind.part or "funny nose"
    )
    open_story(s)
    begin(
        s,
        (
            "{f.new} laughed at {h's} {odd}.",
            "{h} came along, and {f.new} pointed at {his} {odd}.",
            "{h} met {f.new}, who liked to tease everyone.",
        ),
    )
    s.one(
        "<f: Look at that! How silly!> The others laughed too.",
        "<f/proud-h: You look like a [carrot|mop|turnip]!>",
        "{f} made up a song about it, and it was not a nice song.",
    )
    feel(s, "h", s.pick("sad|angry"))
    s.may(
        0.5,
        "{h} went home another way, so that nobody would see {him}.",
        "{h} looked into a puddle. Was it really so funny?",
        "{h} wanted to say something mean too. But nothing came to {him}.",
    )
    s.par()
    way = s.pick("help|friend|joke|why")
    if way == "help":
        s.one(
            "The next day {h} heard somebody shout. {f} had fallen into a deep ditch!",
            "A few days later, {f} got stuck in the mud, up to the belly.",
        )
        s.one(
            "Nobody else was there. {h} could have walked on.",
            "For a moment {h} stood still. It would serve {f.o} right!",
        )
        s.one(
            "But {h} lay down flat and held out a long branch. <h-f: Hold on to this!>",
            "<h-f: Give me your {f.hand}.> And {h} pulled with all {his} strength."
            if child
            else "<h-f: Hold on to me!> And {h} pulled with all {his} strength.",
        )
        s.one(
            "{F} stood there, all wet. <f/shy-h: Why did you help me? I was so mean.> <h-f: Because you needed help.>",
            "<f/shy-h: I am sorry for what I said.> <h/kind-f: It is all right.>",
        )
    elif way == "friend":
        cast_friend(s, "g")
        s.one(
            "Then {g.new} stood beside {him}. <g/angry-f: Stop that! It is not funny.>",
            "But one did not laugh. It was {g.new}. <g-f: I like it the way it is.>",
        )
        s.one(
            "{F} did not know what to say. Without the laughing, it was no fun.",
            "It got very quiet. One after the other, they looked down.",
        )
        s.one(
            "<h/shy-g: Thank you.> <g/kind-h: Next time, you do it for me.>",
            "{h} and {g} walked home together, and nobody said a word about it.",
        )
        s.one(
            "The next day {f} came to {them}. <f/shy-h: Can I play with you? I will not do it again.> And {they} made room.",
            "And {f}? Some days later {f.he} came and said that {f.he} was sorry.",
        )
    elif way == "joke":
        s.one(
            "But {h} laughed as well. <h/happy-f: You are right! And you should see me in the morning!>",
            "{h} thought for a moment. <h-f: Yes, it is. Do you want to touch it?>"
            if s.words["odd"] not in ("soft voice",)
            else "{h} thought for a moment. <h-f: Yes, it is. That is why everybody listens.>",
        )
        s.one(
            "{F} was so surprised that {f.he} forgot {f.his} next joke.", "{F} opened {f.his} mouth and shut it again."
        )
        s.one(
            "Then {they} told jokes, one after the other, but none that hurt.",
            "{They} looked at each other. And then {they} both laughed, but not in a mean way.",
        )
    else:
        s.one(
            "That evening {h} saw {f.o} all alone, behind a tree. {F} was crying.",
            "On the way home, {h} saw something. {f} was sitting {spot}, with red eyes.",
        )
        s.one(
            "<h-f: What is wrong?> <f/sad-h: Nobody ever plays with me.>",
            "{h} sat down next to {f.o} and waited. <f/shy-h: At home, they laugh at me, too.>",
        )
        s.one(
            "<h-f: Maybe it is because you say mean things.> {F} was silent for a while. <f/shy-h: I do not know how to begin.>",
            "<h/kind-f: You can play with me. But no more teasing.> <f-h: I promise.>",
        )
        s.one(
            "<h/kind-f: You begin with hello.> <f/shy-h: Hello.> <h/happy-f: Hello!>",
            "{They} played {game} until it was dark, and nobody was mean.",
        )
    end(
        s,
        "And {h} learned to like {his} {odd}.",
        "After that, nobody laughed, or if they did, they laughed together.",
        moral="self" if way in ("joke", "friend") else "friend",
    )


@plot(
    "child|mouse|rabbit|bear|penguin|frog|fox|duck|elf|princess",
    friend="pair",
    parent="mom|dad|grandma",
    weight=0.9,
    tells=0.1,
)
def the_play(s: Story) -> None:
    s.words["role"] = s.pick("a tree|a king|the moon|a lion|a cloud|a pirate|a flower|a dragon|the sun|a snail|a wolf")
    s.words["frole"] = s.pick("a queen|a star|a sailor|a horse|a rock|a bee|the rain|a cook|a bird")
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} were in a play. {h} was {role}, and {f} was {frole}.",
            "everyone wanted to put on a play. {h} had to be {role}.",
            "{h} and {f} practiced for the big play.",
        ),
    )
    s.one(
        '{h} had only one line: "The night is over!"\x01 {he} said it from morning to night.',
        "{h} said {his} words in the bath, and at breakfast, and even in {his} sleep."
        if s.group == "child"
        else "{h} said {his} words at breakfast, and at night, and even in {his} sleep.",
    )
    s.may(
        0.6,
        "{p} sewed a costume out of an old [curtain|blanket|coat].",
        "The costume was a bit too big and very warm.",
        "{They} painted the trees and the sky on a big sheet.",
    )
    s.par()
    s.one("Then the great evening came. All the seats were full.", "{h} looked through the curtain. So many eyes!")
    s.one(
        "{his} mouth was dry, and {his} knees were soft.",
        "<h/scared-f: I have forgotten everything!> <f/kind-h: Just look at me.>",
    )
    way = s.pick("forgot|fell|sneeze|cry")
    if way == "forgot":
        s.one(
            "{h} stepped out and opened {his} mouth. Nothing came out.",
            "Then it was {his} turn. {h} stood there and could not say a word.",
        )
        s.one("It was so quiet that you could hear a moth.", "Somebody coughed.")
        s.one(
            'Then {f} whispered, "The night." And {h} remembered. <h: The night is over!>',
            '{f} took {h.o} by the arm and said, "Look! What is over?" <h: The night! The night is over!>',
        )
    elif way == "fell":
        s.one(
            "{h} came out and stepped on {his} own costume. Bump! There {he} lay.",
            "{h} walked into the painted sky, and the sky fell down.",
        )
        s.one("Everyone laughed. {h} wanted to sink into the ground.", "{h} turned as red as a tomato.")
        s.one(
            "But {f} lay down right next to {h.him}. <f: That is how we sleep in this land!> And then {h} jumped up. <h: The night is over!>",
            'Then {h} got up, bowed, and said, "Even {role} can fall." {They} clapped until the lamps shook.',
        )
    elif way == "sneeze":
        s.one(
            "There was dust in the costume. {h} felt it coming. Ah, ah, achoo!",
            "In the middle of the sad part, {h} had to sneeze.",
        )
        s.one("The paper crown flew off the stage and landed on somebody's head.", "Three paper stars fell down.")
        s.one(
            "First it was quiet. Then somebody began to laugh, and in the end {they} all did, and {h} laughed too.",
            '<f: Bless you, {h.n}!> And the whole hall shouted, "Bless you!"\x01',
        )
    else:
        s.one(
            "A baby in the first row began to cry, and it would not stop.",
            "Then the lights went out. Everyone was frightened.",
        )
        s.one(
            "{h} forgot that {he} was afraid. {he} went to the edge of the stage and sang, softly.",
            "<h/kind: Do not be afraid. It is only a small dark.> And {h} made up a new story, right there.",
        )
        s.one("Soon it was quiet, and everyone listened.", "It was not in the play, but it was the best part of it.")
    s.one(
        "At the end {they} all bowed, and the clapping would not stop.",
        "<p/proud-h: You were the best {part} I have ever seen.>".replace("{part}", s.words["role"].split(" ", 1)[1]),
        "Flowers flew onto the stage, and one landed on {his} nose.",
    )
    end(s, '"And next year?" asked {f}. "Next year," said {h}, "I want two lines."\x01', moral="brave")


@plot("child|bear|mouse|elephant|rabbit|fairy|monkey", parent="mom|dad|grandma|grandpa", weight=0.8, tells=0.1)
def the_balloon(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "{p} bought {h.o} a {color} balloon." if s.group == "child" else "{h} found a {color} balloon in a bush.",
            "{h} had a balloon. It was {color} and as big as {his} head.",
        ),
    )
    s.one(
        "It bobbed and danced, and it looked as if it laughed.",
        "{h} gave it a name. It was Bob.",
        "{h} took it everywhere, even to {his} {h.bed}.",
    )
    s.one(
        "<p-h: Hold on to it tight.> <h-p: I will never let go.>",
        "{h} tied the string around {his} {hand}, but not very well.",
    )
    s.par()
    s.one(
        "But then {creature} came by, and {h} wanted to point at it. Oh no! The string slipped away.",
        "But then {h} had to sneeze. Achoo! And the balloon was gone.",
        "{h} only wanted to scratch {his} nose. That was enough.",
    )
    s.one("Up it went, past the trees, past the birds.", "It rose and rose, and it did not look back.")
    s.one(
        "<h/sad: Come back!> But it only grew smaller.",
        "{h} jumped, but {he} was not a bird.",
        "Soon it was as small as a pea.",
    )
    feel(s, "h", "sad")
    way = s.pick("story|found|cloud|tree")
    if way == "story":
        s.one(
            "{p} knelt down. <p/kind-h: Where do you think it is going?> <h/sad-p: Away.> <p-h: Yes, but where?>",
            "<p/kind-h: Maybe it has somewhere to go.>",
        )
        s.one(
            "{h} thought. <h-p: Maybe to the sea.> <p-h: And then?> <h-p: It will dance with the gulls.>",
            "<h-p: To the moon. To play with the stars.>",
        )
        s.one(
            "All the way home {they} told each other what the balloon would see: whales, and mountains, and a penguin who would wave.",
            "With every step, the story grew longer, and {h} was less sad.",
        )
        s.one("That night {h} waved to the sky. <h/happy: Have a good trip!>")
    elif way == "found":
        s.one(
            "Far away, on the other side of the hill, a lonely boy looked up. Something {color} came down from the sky."
            if s.group == "child"
            else "Far away, on the other side of the hill, a lonely hedgehog looked up. Something round came down from the sky."
        )
        s.one("It was the first present of his life.", "He laughed for the first time in a week.")
        s.one(
            'He tied a note to it: "Thank you, whoever you are." And the wind turned around.',
            "He did not know where it came from, but he said thank you.",
        )
        s.one(
            "A few days later, {h} found a wrinkled balloon {spot}, with a note on it."
            if s.chance() < 0.5
            else "{h} did not know that. But that evening, {he} suddenly felt better."
        )
    elif way == "cloud":
        s.one(
            "Then {h} saw a cloud that was as round as a balloon.",
            "{h} lay down in the grass and looked up for a long time.",
        )
        s.one(
            "<h-p: Look! It has turned into a cloud.> {P} looked up. <p-h: So it has. And a fine one.>",
            "<p-h: Now it is free.> {H} thought about that. <h-p: Is it happy?> <p/kind-h: I think so.>",
        )
        s.one("After that, {h} had not one balloon, but a whole sky full of {them}.")
    else:
        s.one("But it did not fly far. It was caught in the top of a tall tree.", "Then a branch caught the string.")
        s.one(
            "{h} tried a stick, and a rope, and a very long song. It did not come down.",
            "{p} climbed up, but {p.his} arms were too short.",
        )
        s.one(
            "Then a crow came and looked at it. Peck! Bang! The crow was so surprised that it fell off the branch.",
            "At night it got smaller, and in the morning it came down by itself, soft and tired.",
        )
        s.one("{h} had to laugh, even if {he} was a little sad.", "{h} kept the string. It was a good string.")
    end(s, moral="joy", night=True)


@plot(
    "child|bear|penguin|otter|kitten|duck|pirate",
    parent="grandpa|dad|grandma|mom",
    places="lake|river|pond|beach",
    weight=0.9,
    tells=0.14,
)
def gone_fishing(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "{p} took {h.o} fishing.",
            "{h} and {p} sat by the water with two long rods.",
            "<p-h: Come, we will catch our supper!> {They} walked down to the water.",
        ),
    )
    s.one(
        "<p-h: The most important thing is to be quiet.> <h-p: How long?> <p-h: Longer than that.>",
        "{h} looked at the cork. It did not move. {h} looked at {p.o}. {P.he} did not move either.",
        "A minute went by. <h-p: Is it always like this?>",
    )
    s.one(
        "{h} wiggled. {h} hummed. {h} dropped a stone into the water. <p-h: Shh!>",
        "{h} counted the dragonflies. Then {he} counted {p's} buttons."
        if s.group == "child"
        else "{h} counted the dragonflies. Then {he} counted the clouds in the water.",
        "{sight}",
    )
    s.may(
        0.6,
        "Once it pulled, but it was only an old boot. In the boot sat a crab.",
        "Once there was a big splash. That was {p's} hat.",
        "{h} caught a long green weed, then another one.",
    )
    s.par()
    way = s.pick("big|talk|nothing")
    if way == "big":
        s.one(
            "Then, all at once, the cork was gone! The rod bent like a bow.",
            "Suddenly something pulled so hard that {h} almost fell in.",
        )
        s.one("{p} held {h.o}, and {h} held the rod. {They} pulled and pulled.", "<h/happy: It is a whale!>")
        s.one(
            "It was the most beautiful fish {h} had ever seen, silver, with a red tail. It looked at {h.o}.",
            "Out came a big old fish with a gray beard. It seemed to sigh.",
        )
        s.one(
            "{h} was quiet for a moment. <h-p: Can we let it go?> {P} smiled. <p/kind-h: It is your fish.>",
            "<h/shy-p: It has a family, I think.>",
        )
        s.one(
            "{They} put it back. It turned around once, waved its tail and was gone.",
            "So {they} had bread and cheese for supper, and nothing had ever tasted better.",
        )
    elif way == "talk":
        s.one(
            "And because there was nothing to do, {p} began to talk. {p.he} told {h.o} of the time when {p.he} was small.",
            "<h-p: What were you like when you were little?> {P} laughed. <p-h: Just like you. Only louder.>",
        )
        s.one(
            "{h} had never heard that before. {he} moved a little closer.",
            "{They} talked about big things and small things, about stars and socks.",
        )
        s.one(
            "{They} forgot the fish, and the fish forgot {them}.",
            "When the sun went down, the bucket was empty, but {h} was full of stories.",
        )
    else:
        s.one(
            "{They} sat there all day and caught nothing at all.",
            "The sun went up, and the sun went down, and the bucket stayed empty.",
        )
        s.one(
            "But {h} had seen a heron, two frogs and a blue flash that was a kingfisher.",
            "But little by little, {h} grew as still as the water. {he} heard things {he} had never heard before.",
        )
        s.one(
            "<p-h: Were you bored?> {H} thought about it. <h-p: No. It was full.>",
            "<h-p: Can we catch nothing again tomorrow?>",
        )
    end(s, "On the way home, {h} carried the empty bucket, and it was not heavy.", moral="patience")


@plot(
    "animal|knight|gnome|dragon|-bird|-owl|-bee|-ladybug|-snail|-duck|-frog|-turtle|-otter|-beaver|-penguin",
    friend="cast",
    weight=0.9,
    tells=0.04,
)
def narrow_bridge(s: Story) -> None:
    s.beings["f"].facts["rel"] = ""
    open_story(s)
    begin(
        s,
        (
            "{h} wanted to cross a bridge. It was so narrow that only one could pass.",
            "{h} came to a fallen tree that lay across the river like a bridge.",
        ),
    )
    s.one(
        "In the middle, {h} met {f.new}, who came from the other side.",
        "At the very same time, {f.new} stepped on it from the other end. In the middle {they} met, nose to nose.",
    )
    s.one(
        "<f-h: Go back! I was here first.> <h-f: No, I was here first!>",
        "<h-f: Let me pass.> <f-h: Let me pass!>",
        "<f/angry-h: I never go backward.> <h/angry-f: I do not either.>",
    )
    s.one(
        "{They} stood there. The sun went up higher and higher.",
        "{They} stared at each other. Neither of {them} moved.",
        "{They} pushed a little, first {h.full}, and then {f.full}. The bridge shook.",
    )
    s.may(
        0.6,
        "On both sides, the others began to wait.",
        '"What is going on there?" somebody called.',
        "{creature} sat down to watch.",
    )
    s.par()
    way = s.pick("fall|sleep|idea|over")
    if way == "fall":
        s.one(
            "{They} pushed harder. Then there was a crack, and splash! {They} were both in the water.",
            "{h} slipped. {f} slipped. Splash, and splash!",
        )
        s.one(
            "The water was cold. {They} came out on the same side, dripping.",
            "{They} had to help each other out, for the bank was steep.",
        )
        s.one(
            "<h-f: That was silly.> <f-h: Very silly.> And {they} began to laugh.",
            "{h} looked at {f.o}. There was a weed on {f.his} head. {f} looked at {h.o}. There was a frog on {h.his}."
            if not s.beings["h"].tells
            else "{They} looked at each other and began to laugh.",
        )
        s.one(
            "The next day, {they} met at the bridge again. <h-f: After you.> <f-h: No, after you!>",
            "Later {they} built a second bridge, right next to the first.",
        )
    elif way == "sleep":
        s.one(
            "It got dark. {They} were hungry, and {they} were cold.",
            "In the evening it began to snow." if s.season == "winter" else "In the evening it began to rain.",
        )
        s.one(
            "<f-h: Are you cold?> <h-f: A little. And you?> <f-h: A little.> So {they} moved closer together.",
            "<h-f: I have half a nut.> <f-h: I have half a pear.> {They} ate, and it was better than before.",
        )
        s.one(
            "{They} talked all night, and in the morning neither of {them} knew why {they} had been so cross.",
            "When the sun came up, {they} were friends.",
        )
        s.one(
            "<h-f: Where did you want to go?> <f-h: I was going to look for a friend.> <h-f: So was I!>",
            "Then {they} went on together, and it did not matter on which side.",
        )
    elif way == "idea":
        s.one(
            'Then a tiny voice said, "One of you could lie down, and the other one could step over." It was an ant.',
            "At last {h} had an idea. <h-f: If I lie down flat, you can climb over me.>",
        )
        s.one(
            "<f-h: Would you do that?> <h-f: If you say please.> <f: Please!>",
            "{They} looked at each other. That was so easy!",
        )
        s.one(
            "{h} lay down, {f} stepped over, very carefully, and it was done.",
            "And so {they} did it, and it took less than a minute.",
        )
        s.one("From the other side, {f} waved. <f/happy-h: Thank you! Next time I will lie down.>")
    else:
        s.one(
            "Then {h} saw that {f} was carrying something. It was medicine. <h-f: Who is sick?> <f/sad-h: My little brother.>",
            "Then {h} looked at {f.o} more closely. {f.he} was old, and {f.his} legs were shaking."
            if s.beings["f"].adjective == "old"
            else "Then {h} saw that {f} had tears in {f.his} eyes. <f/sad-h: Please. I am so late.>",
        )
        s.one(
            "{h} did not say another word. {he} went back, step by step.",
            "At once, {h} turned around and let {f.o} pass.",
        )
        s.one(
            "It cost {h.o} only a minute. {F} bowed. <f-h: I will not forget that.>",
            "<f/happy-h: Thank you! You are kind.> And off {f.he} ran.",
        )
    end(s, "After that, the bridge was wide enough for everyone.", moral="friend")


@plot(
    "squirrel|mouse|hedgehog|ant|mole|bear|badger|rabbit|beaver|raccoon|gnome|elf",
    friend="cast",
    season="autumn",
    weight=0.7,
    tells=0.05,
)
def before_winter(s: Story) -> None:
    open_story(s, day=False)
    s.one(
        "It was autumn, and everyone was busy.",
        "The days grew shorter, and the leaves came down.",
        "Winter was near. You could smell it.",
    )
    s.one(
        "From morning to night, {h} carried [nuts|seeds|roots] into {his} house.",
        "{h} filled one jar after the other.",
        '{h} had no time to play. "First the work," {he} said.',
    )
    s.one(
        "Only {f.new} did nothing. {f.he} sat in the sun and sang.",
        "And {f.new}? {F} danced with the falling leaves and looked at the clouds.",
    )
    s.one(
        "<h-f: Do you not have to get ready?> <f-h: Oh, there is time!>",
        "<f/happy-h: Come and play!> <h-f: I cannot. Winter is coming.>",
        '"You will be hungry," said the others. {F} only laughed.',
    )
    s.par()
    s.one(
        "Then the snow came. It snowed for three days and three nights.",
        "One morning everything was white and hard and still.",
    )
    s.one(
        "There was a knock at {h's} door. Outside stood {f}, thin and cold.",
        "{h} heard a weak little song in the wind. It was {f}, and {f.he} was shaking.",
    )
    s.one("<f/shy-h: I have nothing to eat. I did not listen.>", "<f/sad-h: May I warm my feet? Only for a minute.>")
    s.may(
        0.6,
        'The others said, "It is {f.his} own fault."\x01',
        "{h} looked at the jars. {They} were just enough for one.",
        "{h} thought of the long, hot days and all the work.",
    )
    s.one(
        "But {h} opened the door. <h/kind-f: Come in. We will share.>",
        "{h} put a second bowl on the table. <h/kind-f: Sit down.>",
    )
    s.par()
    s.one(
        "The winter was long and dark. But every evening {f} sang, and told stories of summer, and the dark was not so dark.",
        "{f} could do something after all. {f.he} knew a hundred songs and a thousand stories.",
    )
    s.one(
        "Soon all the others came too, to listen, and each one brought a nut.",
        "{h} had never laughed so much in any winter.",
    )
    s.one(
        "<h-f: I collected the food. But you collected the sun.>",
        "<f-h: Next autumn I will help you.> <h-f: And next summer you will teach me to dance.>",
    )
    s.one(
        "When spring came, {they} had eaten the last crumb and sung the last song.",
        "And when the snow melted, {they} were both a little fatter and a lot happier.",
    )
    end(s, "The next autumn, {they} worked together, and {they} sang while {they} worked.", moral="share", night=False)


@plot("child|animal|elf|robot|princess|prince|witch|-penguin", friend="pair", weight=1.0, tells=0.1)
def rainy_day(s: Story) -> None:
    s.season = s.pick("spring|autumn")
    s.weather = "rainy"
    child = s.group == "child"
    open_story(s, pair=True, day=False)
    begin(
        s,
        (
            "it rained and rained and would not stop.",
            "{h} and {f} had to stay inside, because it was pouring.",
            "{h} and {f} sat at the window and looked at the rain."
            if child
            else "{h} and {f} sat inside and looked at the rain.",
        ),
    )
    s.one(
        "<f/sad-h: What a boring day.> <h-f: Very boring.>",
        "{They} had played everything there was to play.",
        "{They} watched two raindrops race down the glass. The left one won."
        if child
        else "{They} watched the raindrops fall from leaf to leaf.",
    )
    s.par()
    way = s.pick("ship|zoo|band|cave|rain")
    if way == "ship":
        s.one("Then {h} looked at the bed. It was not a bed any more. It was a ship!")
        s.one(
            "<h/happy: All aboard!> {F} jumped on. The floor was the sea, and it was deep.",
            "{f} made a sail from a sheet, and {h} was the captain."
            if child
            else "{f} made a sail from a big leaf, and {h} was the captain.",
        )
        s.one(
            "{They} met a whale, which looked a bit like a pillow."
            if child
            else "{They} met a whale, which looked a bit like a log.",
            "There came a storm, and {they} had to hold on. Left, right, left!",
            "{They} landed on an island and ate coconuts, which tasted like apples.",
        )
        s.one(
            "<f/scared: Sharks!> But they were only socks."
            if child
            else "<f/scared: Sharks!> But they were only sticks.",
            "A pirate came, but he was tired and wanted to play too.",
        )
    elif way == "zoo":
        s.one(
            'Then {f} said, "Let us be animals!" {H} was a lion. {F} was a snake, a long one.'
            if child
            else 'Then {f} said, "Let us be people!" {H} put on a leaf for a hat, and {f} walked on two legs.'
        )
        s.one(
            "{They} roared, and {they} hissed, and somebody knocked on the wall."
            if child
            else "{They} said good day and how do you do, and {they} laughed until {they} fell over."
        )
        s.one(
            "The chair was a giraffe, and the rug was a river full of crocodiles."
            if child
            else "A stone was a teapot, and a nut was a cake."
        )
        s.one(
            "{They} fed each other [cookies|raisins] and slept in a cave under the table."
            if child
            else "{They} drank rain tea and ate mud pie, but only a little."
        )
    elif way == "band":
        s.one(
            "Drip, drop, drip, went the rain. {f} began to tap along.",
            "There was a leak in the roof. Plink, plonk, plink! It sounded like music.",
        )
        s.one(
            "{h} took a pot and two spoons, and {f} blew on a comb."
            if child
            else "{h} took a hollow log and two sticks, and {f} blew on a blade of grass.",
            "Boom, boom, clack! Soon the whole house shook."
            if child
            else "Boom, boom, clack! Soon everybody came to listen.",
        )
        s.one("{They} sang a song about the rain, and it had only one word: wet.", "The thunder played the big drum.")
        s.one(
            "When it was over, somebody clapped. It was [the neighbor|grandma|the mailman], all wet, at the door."
            if child
            else "When it was over, somebody clapped. It was {creature}, all wet, in the door."
        )
    elif way == "cave":
        s.one(
            "{They} built a cave out of blankets and chairs. Inside it was dark and warm."
            if child
            else "{They} crept into the deepest corner, where it was dark and warm."
        )
        s.one(
            "{h} told a story about a drop of rain that wanted to see the sea.",
            "{They} told each other secrets. {h} had two, and {f} had three.",
        )
        s.one(
            "<f-h: And then? What happened then?> <h-f: Then it met another drop, and they became a brook.>",
            "Outside the rain drummed, and inside it was safe.",
        )
        s.one("{They} were almost sorry when it stopped.", "The story was so long that it got dark.")
    else:
        s.one(
            "{h} looked out again. <h-f: Why do we sit inside? We are not made of sugar!>",
            "<f-h: The ducks are out there, and they look happy.>",
        )
        s.one(
            "{They} ran out, and in one minute {they} were wet from top to toe.",
            "{They} jumped into every puddle, and some of them twice.",
        )
        s.one(
            "{They} sailed [paper boats|leaves|sticks] down the road, and {f's} boat won.",
            "{They} opened {their} mouths and drank the sky.",
        )
        s.one(
            "Then {they} sat by the stove, with {their} feet in a tub, and everything smelled of wet wool."
            if child
            else "Then {they} shook {themselves}, and the drops flew in all directions."
        )
    s.one(
        "When {they} looked up, the sun was shining. {They} had not even noticed.",
        "Then it stopped. <f/sad-h: Oh no. And what do we do now?>",
        "In the evening, the rain was still falling. But it did not sound boring any more.",
    )
    end(s, '"I hope that it rains tomorrow," said {h}.', moral="joy")
