"""Plots with a little magic: wishes, dragons, stars, maps, toys at night, snowmen, clouds and the moon."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_other
from stories.events import end, feel
from stories.openings import begin, open_story, split
from stories.registry import plot
from stories.story import Story


@plot("child|animal|folk|-giant", parent="any", weight=1.1, tells=0.06)
def one_wish(s: Story) -> None:
    wishes = {
        "to be very big": (
            "{h} grew and grew. First {he} was as big as a house, and then as big as a hill.",
            "{he} could not go home any more, for {he} did not fit through the door.|Nobody could hear {him}, so far up was {his} head.|{he} wanted to hug {p.o}, but {he} was afraid to crush {p.him}.",
            "It is good to be just the right size.",
        ),
        "to be very small": (
            "{h} shrank and shrank, until {he} was no bigger than a [bean|thimble].",
            "A blade of grass was like a tree. A drop of rain was like a bath.|An ant as big as a horse looked at {h.o}.|{p} was calling, but {p.he} could not see {h.o}, so small was {h.he}.",
            "The world had never looked so big.",
        ),
        "that everything were sweet": (
            "The grass was candy, the stones were cake, and the rain was lemonade.",
            "On the second day, {h} was thirsty for plain water. There was none.|{his} teeth hurt, and everything was sticky.|Even the soup was sweet. Even {his} {h.bed} was sticky.",
            "Nothing ever tasted as good as that first slice of plain bread.",
        ),
        "that it were always summer": (
            "The snow melted, and the sun shone day and night.",
            "The flowers hung their heads. The brook was dry.|The bear could not sleep, and the squirrels ran in circles.|It was so hot that nobody wanted to play.",
            "When the first snow fell, {h} caught a flake and thanked it.",
        ),
        "to understand what animals say": (
            '"Good day," said a beetle. "Nice weather," said a crow.',
            "From then on it was never quiet. Even at night the moths were talking.|The flies told bad jokes, and the hens would not stop talking about eggs.|The worms complained, and the birds all spoke at the same time.",
            "Sometimes it is nice not to know everything.",
        ),
        "that nobody could see {him}": (
            "{h} looked down, and there was nothing. No {hands}, no feet, no belly.",
            "At first it was fun. But nobody said hello, and nobody asked {him} to play.|{p} walked right past {h.o} and called {his} name.|Somebody sat down on {him}, and that was not nice at all.",
            "It is good to be seen by somebody who loves you.",
        ),
        "for a mountain of {toys}": (
            "There were so many that they came out of the windows.",
            "There was no room to sit, no room to eat and no room to play.|{h} did not know which one to take first. In the end {he} took none.|{h} could not find {his} old favorite under all those new things.",
            "{h} gave most of {them} away and kept one.",
        ),
    }
    child = s.group == "child"
    wish = s.pick(
        [w for w in wishes if child or w not in ("to understand what animals say", "for a mountain of {toys}")]
    )
    s.words["toys"] = "toys"
    s.words["wish"] = wish
    became, trouble, lesson = wishes[wish]
    cast_other(
        s,
        "x",
        "fish|fairy|old woman|frog|moth|snail" if child else "fish|fairy|moth|swan",
        "golden|silver|tiny|strange",
    )
    if s.beings["x"].noun == "old woman":
        s.beings["x"].pronouns = type(s.beings["x"].pronouns)("she", "her", "her", "herself")
        s.beings["x"].adjective = "tiny"
    open_story(s)
    begin(
        s,
        (
            "{h} met {x.a} {here}. {x.his} foot was caught in the roots."
            if s.beings["x"].noun != "fish" and s.beings["x"].noun != "snail"
            else "{h} met {x.a} {here}. {x.he} lay on the dry ground and could not get back into the water."
            if s.beings["x"].noun == "fish"
            else "{h} met {x.a} {here}. {x.he} lay on {x.his} back and could not turn over.",
            "{h} found {x.a} in a net {here}.",
            "{h} pulled {x.a} out of the mud.",
        ),
    )
    s.one("{h} helped {x.o} at once.", "{h} was very careful and set {x.o} free.")
    s.one(
        "<x-h: You helped me. For that you have one wish. Think well!>",
        "<x/happy-h: Thank you! Now you may wish for something. But only one thing!>",
    )
    s.one(
        "{h} did not think for long. {he} wished {wish}.",
        "<h: Anything?> <x: Anything.> So {h} wished {wish}.",
        "{h} thought of a hundred things. In the end {he} wished {wish}.",
    )
    s.par()
    s.one(
        "There was a soft pop.",
        "{x} blinked, and the air grew warm.",
        "Nothing happened. But the next morning it had come true.",
    )
    s.one(*split(became))
    s.one("<h/happy: Hooray!>", "At first it was wonderful.", "{h} laughed for joy.", "What fun that was!")
    parts = list(split(trouble))
    s.tell(
        "But then " + "things went wrong. " + s.take(parts)
        if s.chance() < 0.5
        else "But soon it was not so much fun. " + s.take(parts)
    )
    s.may(0.7, s.take(parts))
    feel(s, "h", s.pick("sad|worried"), 0.7)
    s.par()
    s.one(
        "{h} ran back to {place}. <h/sad: Please, {x.noun}, come back!>",
        "{h} went to look for {x.o}. It took all day and half the night.",
        "<h/sad: I want everything to be like before!>",
    )
    s.one(
        "{x} looked at {h.o}. <x-h: I thought so. Most of them come back.>",
        "<x/kind-h: I have only one wish for each. But you may give yours back.>",
        "{x} was there. <x-h: Well, was it a good wish?> {H} shook {h.his} head.",
    )
    s.one(
        "Pop! And everything was as before.",
        "{h} shut {his} eyes and counted to three, and all was as it should be.",
        "And in the morning it was all over, like a dream.",
    )
    s.one(lesson, "{p} wondered why {h} hugged {p.him} so tight.", "{h} looked around. Everything was just right.")
    end(
        s,
        "If {he} ever gets a second wish, {he} will think a little longer."
        if not s.beings["h"].tells
        else "If I ever get a second wish, I will think a little longer.",
        '"Next time," said {h}, "I will wish for nothing. I have everything."\x01',
        moral="joy",
    )


@plot("dragon|bird|owl|lion|firefly|witch|wizard|duck|bee|star|elephant|fairy", friend="cast", weight=1.0, tells=0.05)
def cannot_do_it(s: Story) -> None:
    hero = s.beings["h"]
    noun = hero.kind.noun if hero.kind else ""
    skill, result, good = {
        "dragon": (
            "breathe fire",
            "Only a little steam came out. Pfff.|Out came a soap bubble.|Nothing came out but a hiccup.",
            "steam",
        ),
        "bird": ("sing", "It sounded like a rusty gate.|Only a squeak came out.", "squeak"),
        "owl": (
            "stay awake at night",
            "When the moon came up, {his} eyes fell shut.|{h} fell off the branch, fast asleep.",
            "day",
        ),
        "lion": ("roar", 'It sounded like a kitten with a cold.|Only a tiny "meep" came out.', "meep"),
        "witch": (
            "fly on a broom",
            "The broom flew off without {him}.|The broom went backward and into a pond.",
            "broom",
        ),
        "wizard": (
            "do magic",
            "The hat turned into a cabbage.|Instead of a rabbit, there was a very surprised cow.",
            "cow",
        ),
        "duck": ("quack", 'It sounded like "moo".|Only bubbles came out.', "moo"),
        "bee": (
            "find the way",
            "{h} flew left when all the others flew right.|{h} always came home last, with leaves in {his} hair.",
            "way",
        ),
        "star": ("shine", "There was only a weak little glow.|The others sparkled, and {h} did not.", "glow"),
        "elephant": (
            "make the big trumpet sound",
            "Pfft. It sounded like a wet sock.|A pea came out, and nothing else.",
            "pfft",
        ),
        "fairy": ("do the sparkle spell", "It rained frogs.|All the flowers turned gray.", "frogs"),
    }.get(noun, ("sing", "It sounded like a rusty gate.|Only a squeak came out.", "squeak"))
    s.words["skill"] = s.phrase(skill)
    hero.facts["rel"] = ""
    s.words["nouns"] = {"fairy": "fairies", "witch": "witches"}.get(noun, noun + "s")
    s.words["result"] = s.pick(split(result))
    open_story(s, day=False)
    s.one(
        "But {h} could not {skill}.",
        "All the other {nouns} could {skill}. {h} could not.",
        "There was only one problem. {h} could not {skill}.",
    )
    s.one("{h} tried and tried. {result}", "{result}", "{h} tried it every day. {result}")
    s.one(
        "The others laughed.",
        '"What kind of {h.noun} are you?" the others asked.',
        "{h} pretended that it did not matter. But it did.",
        '"Maybe tomorrow," said the others. They said it every day.',
    )
    feel(s, "h", s.pick("sad|lonely"), 0.8)
    begin(
        s, ("{h} went away to be alone.", "{h} walked far away, to where nobody could hear {him}.", "{h} met {f.new}.")
    )
    if s.beings["f"].seen < 0:
        s.one("There {he} met {f.new}.", "Somebody was sitting {spot}. It was {f.new}.")
    s.one(
        "<f-h: Why are you so sad?> <h/sad-f: Because I cannot {skill}.>",
        "<f-h: What is the matter?> {H} told {f.o} everything.",
    )
    s.one(
        "<f/kind-h: I cannot do it either, and I am happy.>",
        "<f-h: Show me what you can do.> {H} was shy, but {h.he} did it.",
        "<f/kind-h: I like you the way you are.>",
    )
    s.par()
    turn = {
        "steam": (
            "That winter, the pond froze, and a family of ducks was caught in the ice. Fire would have burned {them}. But warm steam was just right.|A big fire would have burned the pancakes. But {his} warm steam made the best dumplings in the land.",
        ),
        "squeak": (
            "That night, a fox came creeping up. {h} squeaked so loudly and so badly that the fox put his paws over his ears and ran.|A baby in a nest would not stop crying. {h} squeaked, and the baby laughed so hard that it fell asleep.",
        ),
        "day": (
            "But in the daytime, when all the other owls were asleep, {h} saw that the little ones had climbed out of the nest. {he} caught {them} just in time.|But one day, in bright sunlight, {h} saw the smoke before anyone else and woke {them} all.",
        ),
        "meep": (
            'A tiny mouse had run away from all the lions, because {they} were so loud. It was not afraid of "meep". So {h} could show it the way home.|The zebra babies could not sleep, because the others roared so loudly. {h} sang {them} a soft "meep, meep", and {they} slept.',
        ),
        "broom": (
            "Then a kitten fell into a deep well. A fast broom was no use. But {h} walked down, step by step, and brought it up.|Then a storm came, and all the flying witches were blown away. Only {h}, who walked, could bring the soup to the old people.",
        ),
        "cow": (
            "That year, there was no milk in the village, and the children were hungry. {h} tried to make a rabbit ten times, and each time it was a cow. Now there was milk for everyone!|The king was bored by magic that worked. When he saw the cow in the hat, he laughed for the first time in a year.",
        ),
        "moo": (
            'Then the calf ran away and could not find its mother. {h} said "moo", and the calf came running.|One foggy day, the cows lost {their} way. {h} stood at the gate and said "moo" until the last cow was home.',
        ),
        "way": (
            "But because {h} always flew the wrong way, {he} found a meadow that no bee had ever seen. It was full of flowers.|One day the meadow was mowed, and there was no food. Only {h} knew other places, because {he} had been lost in all of them.",
        ),
        "glow": (
            "But down below, a child was afraid of the dark. The big bright stars were too bright. {his} weak, soft glow was just right to fall asleep by.|Then clouds hid the sky. But {h} was so small that {he} slipped through a gap, and a lost boat saw {him} and came home.",
        ),
        "pfft": (
            "Then a baby mouse was stuck in a pipe. {h} put {his} trunk to the pipe. Pfft! Out flew the mouse, safe and sound.|On the birthday cake there were a hundred candles. Pfft! {h} blew them all out at once.",
        ),
        "frogs": (
            "That summer there were so many flies that nobody could sleep. {h} did the spell, it rained frogs, and by evening there was not one fly left.|The frog king was lonely in his pond. After one spell, he was not lonely any more.",
        ),
    }[good][0]
    s.one(*split(turn))
    s.may(
        0.6,
        "Everyone was silent. Then they clapped.",
        'The others came and said, "We could not have done that."\x01',
        "<f/happy said: You see?>",
    )
    feel(s, "h", s.pick("proud|happy"), 0.8)
    end(
        s,
        "{h} still could not {skill}. But {he} did not mind any more.",
        "And some time later, when {he} no longer thought about it, {h} found that {he} could {skill}, just a little.",
        moral="self",
        friends=True,
    )


@plot("child|animal|pirate|elf|knight|-snail|-caterpillar", friend="pair", weight=1.2, tells=0.08)
def treasure_map(s: Story) -> None:
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} found an old map {here}.",
            "a bottle lay {spot}. In it was a map.",
            "{h} and {f} found a piece of paper with a red cross on it.",
            "{f} came running. <f/happy-h: Look what I have found! A map!>",
        ),
    )
    s.one(
        "<f-h: The cross! That is where the treasure is!>",
        '"Treasure!" {they} whispered at the same time.',
        "<h/happy-f: Gold! Silver! Jewels!> <f: Or cake.>",
        'On the back was written: "Only for the brave."\x01',
    )
    s.may(
        0.5,
        "{They} packed a [spade|rope|lamp] and {treat}.",
        "{h} put on a pirate hat made of paper." if s.group == "child" else "{They} set out at once.",
    )
    s.par()
    steps = [
        "First {they} had to go over the old bridge. One board was missing, and {they} had to jump.",
        'The map said, "Ten steps to the left." But whose steps? {h} took ten small ones, and {f} took ten big ones.',
        "Then {they} came to three tall trees. They looked like three old men.",
        "{They} had to cross a field full of [thorns|tall thistles|sleepy cows]. {They} went on tiptoe.",
        '"Turn around at the singing stone," it said. {They} found a stone with a hole in it, and when the wind blew, it sang.',
        "Then {they} had to crawl through a dark, narrow place. {f} went first, and {h} held on to {f.him}."
        if not s.beings["f"].tells
        else "",
        "A wide puddle lay in the way. {h} made a bridge from a branch.",
        "In the middle of the way lay {creature}. {They} waited politely until it was gone.",
    ]
    s.tell(s.take(steps))
    s.tell(s.take(steps))
    s.may(0.5, s.take(steps))
    s.may(
        0.5,
        "<f/tired-h: My legs hurt. Let us go home.> <h-f: Only a little farther!>",
        "{h} wanted to give up. But {f} pulled {h.o} on.",
        "It began to get dark. But {they} could not stop now.",
    )
    s.par()
    s.one(
        "And there it was: a cross made of two white stones.",
        "At last {they} stood in front of an old tree with a red cross on it.",
        "<h/happy-f: Here! It must be here!>",
    )
    s.one(
        "{They} dug and dug. Then, clonk! There was a box.",
        "{h} dug with both {hands}. Something hard was down there.",
        "Under the leaves lay a chest. {They} opened it, very slowly.",
    )
    s.one(
        'In it was a [little silver bell|big red book|golden cup], and a letter: "The real treasure is the friend who came with you."\x01',
        "There was no gold in it. There were [marbles|shells|buttons] in all colors, and they shone like jewels.",
        'It was empty, but for a piece of paper. "Put in something you love, and hide it again for the next ones," it said.',
        'It was full of [seeds|nuts]. And a note said, "Plant us!" So {they} did.\x01',
        "In it was a second map! And this one was even bigger.",
    )
    s.one(
        "{They} looked at each other and laughed.",
        "{h} read it two times, to be sure.",
        "<f-h: That is better than gold.> <h-f: Much better.>",
        "{They} shared everything fairly: one for you, one for me.",
    ) if s.chance() < 0.6 else s.may(
        0.9, "{They} looked at each other and smiled.", "<h-f: What a day!> <f/happy-h: What a treasure!>"
    )
    end(
        s,
        "{They} hid the map again, for somebody else to find.",
        "At home {they} told nobody. It was {their} secret.",
        moral="friend",
    )


@plot("teddy bear|doll|robot", weight=0.5, friend="cast", tells=0.06)
def toys_at_night(s: Story) -> None:
    s.words["kid"] = s.pick("Tom|Mia|Leo|Anna|Ben|Lucy")
    open_story(s, day=False)
    s.one("{h} belonged to a child named {kid}.", "In the daytime {h} sat on {kid}'s shelf and did not move.")
    s.one(
        "But at night, when everyone was asleep, the toys woke up.",
        "But when the clock struck twelve, the toys began to move.",
    )
    s.par()
    way = s.pick("behind|new|crying")
    if way == "behind":
        s.one(
            "One night, {h} heard a thin voice behind the shelf. It was {f.new}.",
            "One night, somebody was missing. It was {f.new}.",
        )
        s.one(
            "{F} had fallen behind the toy box. <f/sad-h: Nobody noticed. And now {kid} will forget me.>",
            "At last {h} found {f.o} behind the big toy box, full of dust.",
        )
    elif way == "new":
        s.one(
            "One night, there was a new toy on the shelf. It was {f.new}, and {f.he} was afraid.",
            "One night, {h} met {f.new}, who had come out of a box only that day.",
        )
        s.one(
            "<f/shy-h: I do not know anyone here.> <h/kind-f: Now you know me.>",
            "<f/scared-h: What if {kid} does not like me?> <h/kind-f: We will see about that.>",
        )
    else:
        s.one(
            "One night, {h} found {f.a} crying behind the toy box.",
            "One night, {h} heard somebody cry. It was {f.new}.",
        )
        s.one(
            "<f/sad-h: {kid} does not play with me any more.> <h/kind-f: That is not true.>",
            "<f/sad-h: I am so old that {kid} has forgotten me.>",
        )
    s.one(
        "{h} called all the others: the tin soldier, the ball and the wooden horse.",
        "The blocks made stairs, and the train gave {them} a ride.",
        "{They} tied three ribbons together and made a rope.",
    )
    s.one(
        "{They} had to cross the whole room. The cat lay on the rug, and one of her ears moved.",
        "It was a long way over the carpet. The moon made a white road on the floor.",
        "Somewhere a board creaked. {They} all fell down and lay still. But it was nothing.",
    )
    s.one(
        "{h} climbed up onto the bed and put {f.o} right next to {kid}'s pillow.",
        "Together {they} pushed and pulled, until {f} lay in {kid}'s arm.",
    )
    s.one(
        "In the first light, {they} all ran back to {their} places.",
        "Then the sun came up. Quick, quick, back to the shelf!",
    )
    s.par()
    s.one(
        '{kid} woke up. "Oh, there you are! I have missed you!"\x01',
        'In the morning, {kid} rubbed both eyes and hugged {f.o}. "How did you get here?"\x01',
    )
    s.one(
        "On the shelf, {h} sat quite still. But if you looked closely, you could see {h.o} smile.",
        "{h} winked at {f.o}, and nobody saw it.",
    )
    end(s, "And the next night? That is another story.", moral="friend")


@plot("child", friend="pair", season="winter", places="yard|garden|hill|park", weight=0.9, tells=0.12)
def snowman_friend(s: Story) -> None:
    open_story(s, pair=True)
    begin(
        s,
        (
            "there was so much snow that {h} and {f} could not see the fence.",
            "the first snow fell, and {h} and {f} ran out to play.",
            "{h} and {f} rolled a ball of snow. It grew bigger and bigger.",
        ),
    )
    s.one(
        "{They} made a snowman with a carrot nose and two black buttons for eyes.",
        "One ball, two balls, three balls, and a pot for a hat. What a fine snowman!",
    )
    s.one(
        "<f-h: He needs a name.> <h: Mr. Frost!>",
        "{h} gave him {h.his} own red scarf, so that he would not be cold.",
        "{They} gave him a broom, and he looked very serious.",
    )
    way = s.pick("sun|alive|nose|lonely")
    s.par()
    if way == "sun":
        s.one(
            "{They} said good morning to him every day. But then the sun came, and he got thinner and thinner.",
            "Then it got warm. Drip, drop, drip, drop. The snowman was melting!",
        )
        s.one(
            "<h/sad-f: He is going away!> {They} brought an umbrella to keep the sun off. It did not help much.",
            "{f} cried. {h} put more snow on him, but it melted too.",
        )
        s.one(
            "One morning there was only a puddle, with a carrot in it.",
            "In the end, only the scarf and two buttons were left.",
        )
        s.one(
            "<h/sad: Goodbye.> Then {f} looked into the puddle. It mirrored the blue sky. <f-h: Maybe he is up there now.>",
            "But where he had stood, the first white snowdrops came out of the ground.",
        )
        s.one(
            "The next winter, it snowed again. {They} ran out and rolled a big ball. <h/happy: Welcome back!>",
            "{They} kept the buttons in a box, for the next winter.",
        )
    elif way == "alive":
        s.one(
            "That night, {h} looked out of the window. The snowman waved!",
            'In the evening, when {h} said good night to him, he said, "Good night, {h.n}."\x01',
        )
        s.one(
            "<h-f: {f.n}! Wake up! He can move!> {They} put on {their} boots and ran out.",
            "{h} woke {f.o}, and together {they} crept out into the moonlight.",
        )
        s.one(
            "The snowman bowed. He showed {them} how to dance on the ice without falling down.",
            "He told {them} where the snow comes from, and how it sleeps in the clouds.",
            "{They} slid down the hill together, three in a row.",
        )
        s.one(
            "In the morning, he stood in his place and did not say a word. But his hat was on backward.",
            "The next day, he was still as snow. Only there were three pairs of footprints on the hill, and one was very round.",
        )
    elif way == "nose":
        s.one("The next morning, his nose was gone!", "When {they} came back from lunch, the snowman had no nose.")
        s.one(
            "{They} gave him a new carrot. The next day, it was gone too. <f/angry: A thief!>",
            "<h-f: Who steals a nose?>",
        )
        s.one(
            "That evening, {they} hid behind the [wall|bush] and waited. It was very cold.",
            "{h} and {f} looked for tracks. There {they} were, small and round, in the snow.",
        )
        s.one(
            "Then a thin little rabbit came hopping over the snow, sat down and ate the nose.",
            "The tracks led to a hole. In it sat a rabbit with four babies, and each one had a bit of carrot.",
        )
        s.one(
            "<h/kind-f: It must be so hungry.> From then on, there was a carrot for the rabbit, and a pine cone for a nose.",
            "{They} made a second snowman, a small one, all for the rabbit. It had five noses.",
        )
    else:
        s.one("<f-h: He looks lonely.> {H} thought so too.", "He stood there all alone and looked at the road.")
        s.one(
            "So {they} built a snow woman, and then a snow child, and then a snow dog.",
            "So {they} made him a friend. And the friend got a friend, too.",
        )
        s.one(
            "In the end, the whole yard was full, and there was no snow left to stand on.",
            "People stopped and laughed. Some took off their hats and said good day.",
        )
        s.one(
            "At night, when the moon shone, it looked as if they were all talking.",
            "And the first one? It seemed to {h.o} that he was smiling now.",
        )
    end(s, "Then {they} went in and drank hot cocoa.", moral="joy")


@plot("child|animal|fairy|elf|princess|prince", parent="any", weight=0.9)
def the_moon(s: Story) -> None:
    open_story(s, day=False)
    s.par()
    s.one(
        "One night, {h} looked up at the moon. It was round and yellow.",
        "One evening, the moon was so big that it seemed to sit on the roof."
        if s.group == "child"
        else "One evening, the moon was so big that it seemed to sit in the tree.",
    )
    way = s.pick("follow|catch|thin|lamp")
    if way == "follow":
        s.one(
            "{h} walked a few steps. The moon walked with {him}!",
            "When {h} stopped, the moon stopped. When {h} ran, it ran too.",
        )
        s.one(
            "<h-p: Why does it follow me?> <p/kind-h: Maybe it likes you.>",
            "{h} hid behind a tree and looked out. There it was!",
        )
        s.one(
            "{h} went left and right, up the hill and down again. The moon never got lost.",
            "{h} tried to run away from it. It was not even out of breath.",
        )
        s.one(
            "Then {p} came along. <p-h: It is following me.> <h-p: No, it is following me!> {They} went in two directions, and each one had the moon.",
            "<h-p: But it follows you too! How can it do that?> <p/kind-h: It is big enough for everyone.>",
        )
        s.one("When {h} lay in {his} {h.bed}, the moon stood at the window. It had come all the way home with {him}.")
    elif way == "catch":
        s.one(
            "{h} wanted to have it. {he} climbed on the highest hill and jumped. It was too far.",
            "<h-p: I want the moon!> <p/happy-h: And what would you do with it?> <h-p: Love it.>",
        )
        s.one(
            "Then {he} saw it in the [pond|bucket]. It had fallen into the water!",
            "On the way back, {h} saw it lying in a puddle.",
        )
        s.one(
            "{h} reached into the water. The moon broke into a hundred pieces. <h/sad: I have broken it!>",
            "{h} dipped in a cup, and there was the moon, in the cup! But when {he} drank, it was gone.",
        )
        s.one(
            "{h} waited. The water grew still, and the moon was whole again.",
            "<p/kind-h: Look up.> It was still there, as round as before.",
        )
        s.one(
            "<p-h: Nobody can own the moon. But everyone can look at it.>",
            "From then on, {h} put out a bowl of water every night. So the moon could come and visit.",
        )
    elif way == "thin":
        s.one(
            "Some nights later, {h} saw that a piece was missing. <h/scared-p: Somebody has bitten the moon!>",
            "But each night it got thinner. {h} was worried. <h-p: The moon is sick!>",
        )
        s.one(
            "{h} put a plate of [cheese|cake|bread] on the [window sill|hill], so that it could eat.",
            "{h} saved half of {his} supper for the moon.",
        )
        s.one(
            "In the morning the plate was empty. But the next night, the moon was thinner still.",
            "{creature} ate it all up. But {h} did not know that.",
        )
        s.one("Then came a night without any moon. {h} cried.", "And one night it was gone. {h} lay awake and was sad.")
        s.one(
            "<p/kind-h: Wait. It always comes back.> And a few nights later, there was a thin silver line in the sky.",
            "<p/kind-h: It is only resting.> And it was true. Soon it grew fat and round again.",
        )
        s.one("<h/happy-p: It was the cheese!> {P} only smiled.", "{h} was sure that the plate had helped.")
    else:
        s.one(
            '{h} heard a small voice. "I am so tired," said the moon. "I have to shine every night."\x01',
            'But the moon looked sad. <h: What is the matter, Moon?> "I am lonely," said the moon.',
        )
        s.one(
            "<h/kind: Come down and rest. I will shine for you tonight.> And {h} took a [lamp|lantern] and went up the hill.",
            "{h} thought about it. Then {he} began to sing, so that the moon was not alone.",
        )
        s.one(
            "All night long, {h} held up {his} little light. The moths came to look.",
            "{h} told the moon about the day, for the moon never sees the day.",
        )
        s.one(
            "In the morning, {h} was so tired that {he} fell asleep in {his} breakfast.",
            "When the sun came up, the moon was pale, but it was smiling.",
        )
        s.one("That evening, the moon was brighter than ever, and one beam fell right on {h's} nose.")
    end(s, '"Good night, Moon," said {h}.', moral="joy")


@plot("child|animal|elf|gnome|fairy|princess|prince|-giant", friend="cast", weight=1.0, tells=0.08)
def fallen_star(s: Story) -> None:
    cast_other(s, "x", "star", "little|tiny|young", "f")
    open_story(s, day=False)
    s.par()
    s.one(
        "One night, something bright fell from the sky.",
        "One evening, {h} saw a light fall behind the trees.",
        "One night, there was a soft thump {at}.",
    )
    s.one(
        "{h} ran out to look. {spot} lay {x.a}, and {x.he} was crying.",
        "{h} followed the light. There, {spot}, lay {x.a}.",
    )
    s.one(
        "<x/sad-h: I looked down too far, and I fell.>",
        "<x/sad-h: I want to go home. My mother is the [moon|big star over there].>",
        "{x.his} light went on and off, on and off.",
    )
    s.one(
        "<h/kind-x: Do not cry. I will bring you home.> But how?",
        "{h} picked {x.o} up. {x.he} was warm, like a fresh bun."
        if s.beings["h"].body("hand") in ("hand", "paw")
        else "<h/kind-x: I will help you.>",
    )
    s.par()
    tries = [
        "{h} climbed the highest tree. It was not high enough.",
        "{h} threw {x.o} up, as high as {h.he} could. Down {x.he} came again.",
        "{h} tied {x.o} to a kite. The wind went to sleep, and the kite came down.",
        "{h} put {x.o} on a swing and pushed. Higher, higher! But not high enough.",
    ]
    s.tell(s.take(tries))
    s.may(0.7, s.take(tries))
    s.may(0.6, "The light of {x} grew weaker.", "<x/sad-h: I am getting cold.>", "Soon the night would be over.")
    s.one(
        "Then {h} asked {f.new}. <f-h: I know who can help. Let us ask the [wind|owls|wild geese].>",
        "{f.new} came by and thought. <f-h: We need many. Let us call everyone!>",
    )
    way = s.chance()
    if way < 0.5:
        s.one(
            'The wild geese were just going south. "Sit on my back," said the biggest one to {x.o}.',
            "The owls came, without a sound, and took {x.o} on their soft wings.",
        )
        s.one("Up and up they flew, until they were only a dot.", "Higher and higher they went, past the clouds.")
    else:
        s.one(
            "{They} all stood on each other's backs, the big ones at the bottom and the little ones on top. It was a tower that reached the clouds.",
            "{They} told the moon. The moon let down one long white beam, and {x} climbed up on it.",
        )
        s.one("<x/happy: I can feel it! I am almost there!>", '"Hold on!" everyone called. "Do not let go!"\x01')
    s.one(
        "And then there was one more light in the sky.",
        "A minute later, a gap in the sky was filled.",
        "Far above, something sparkled three times. That meant thank you.",
    )
    feel(s, "h", "happy", 0.5)
    end(
        s,
        "Every night, {h} waved to {x.o}, and every night the star blinked.",
        "And if you look up, you may see the one that blinks."
        if not s.beings["h"].tells
        else "I still look for it every night.",
        moral="help",
    )
