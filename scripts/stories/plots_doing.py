"""Plots about doing: building, learning, racing, growing, cooking, painting, performing; what fails and then works."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_grown, cast_other
from stories.events import aside, end, feel
from stories.openings import begin, open_story, split
from stories.registry import plot
from stories.story import Story

_BUILDS = {
    # what is built: (its parts, how it fails, what helps, how it is used in the end)
    "tower": (
        "blocks|boxes|flat stones",
        "fell down with a crash|leaned to one side and fell",
        "put the biggest ones at the bottom",
        "It was so tall that a bird sat down on the top.|It stood, and it stood, and it did not even shake.",
    ),
    "raft": (
        "logs and rope|old boards|sticks and string",
        "sank like a stone|came apart in the middle",
        "tie every knot twice",
        "It floated! It turned once and then it carried {them} over the water.|{they} drifted along, and dragonflies rode with {them}.",
    ),
    "kite": (
        "paper and sticks|an old newspaper and some string",
        "would not fly|went up a little and crashed",
        "give it a long tail",
        "Up it went, higher than the trees, higher than the birds.|It pulled at the string as if it wanted to see the sea.",
    ),
    "snow house": (
        "blocks of snow",
        "fell in on one side|melted on top of {him}",
        "make the walls round, like a bowl",
        "Inside it was blue and still, and not even cold.|There was room for two, if one of them was small.",
    ),
    "bird house": (
        "old boards and nails|a box and some glue",
        "had a hole that was too small|fell off the tree",
        "draw it on paper first",
        "Before the week was over, two small birds moved in.|In spring there were five blue eggs in it.",
    ),
    "bridge": (
        "sticks and stones|boards",
        "broke with a loud crack|washed away in the night",
        "put a big stone in the middle",
        "Even a fat toad could walk across it.|{creature} was the first to cross it.",
    ),
    "tent": (
        "blankets and chairs|branches and leaves",
        "fell on {his} head|blew away",
        "tie the corners to something heavy",
        "Inside, it was {their} own little world.|{They} ate {treat} in it and told each other secrets.",
    ),
    "sandcastle": (
        "wet sand and shells",
        "slid down like porridge|was washed away by a wave",
        "build it farther from the water",
        "It had four towers, and on each was a feather.|A crab moved in and would not come out.",
    ),
    "little cart": (
        "a box and four old wheels",
        "lost a wheel at the first stone|only went in circles",
        "make all the wheels the same size",
        "It rolled down the hill so fast that the wind whistled.|It was a bit crooked, but it rolled.",
    ),
    "swing": (
        "rope and a board|a vine and a stick",
        "was so crooked that {he} slid off|came down with a bump",
        "make both ropes the same length",
        "Back and forth {they} went, with toes up in the sky.|From up there you could see over the bushes.",
    ),
}


@plot("child|animal|folk|-snowman|-snail|-ant|-bee|-ladybug|-caterpillar", friend="cast", weight=1.4)
def building(s: Story) -> None:
    kind = s.beings["h"].kind
    assert kind is not None
    choices = [
        b
        for b in _BUILDS
        if (b != "sandcastle")
        and (b != "snow house" or s.season == "winter")
        and (b != "raft" or s.season in ("summer", "spring"))
    ]
    what = s.pick(choices)
    parts, fails, tip, done = _BUILDS[what]
    s.words |= {"what": what, "parts": s.pick(parts), "fail": s.pick(split(fails)), "tip": tip}
    open_story(s)
    begin(
        s,
        (
            "{h} wanted to build a {what}.",
            "{h} had a big plan. {he} wanted to make a {what}.",
            "{h} saw a {what} in a book. {he} wanted to have one too."
            if kind.group == "child"
            else "{h} dreamed of a {what}. {h.he} wanted to make it {himself}.",
            "{h} found {parts} {here}. <h: I can make a {what} out of this!>",
            "<h/happy: I am going to build the best {what} in the world!>",
        ),
    )
    s.one(
        "{h} got {parts} and began at once.",
        "{h} collected {parts} and worked all morning.",
        "All {he} needed was {parts}. It looked easy.",
        "{h} took {parts} and set to work. It was harder than {he} had thought.",
    )
    s.may(
        0.3,
        "{h} was so busy that {he} forgot to eat.",
        "{creature} stopped to watch.",
        "{his} [hands|ears] were dirty, but {he} did not care."
        if kind.group == "child"
        else "{h} hummed a song as {he} worked.",
    )
    s.one(
        "At last it was done. But then the {what} {fail}!",
        "But the {what} {fail}.",
        '"Ready!" said {h}. At that moment the {what} {fail}.',
        "{h} stepped back to look at it, and the {what} {fail}.",
    )
    feel(s, "h", s.pick("sad|angry"), 0.8)
    s.may(
        0.5,
        "{h} tried again. And again it did not work.",
        "The second one was even worse.",
        "{h} kicked a stone. <h/angry: I will never build anything again!>",
        "<h/sad: I cannot do it.>",
    )
    s.par()
    if s.chance() < 0.6:
        s.one(
            "{f.new} came by. <f-h: What are you making?> <h/sad-f: A {what}. But it does not work.>"
            if not s.beings["f"].facts["rel"]
            else "{his} {f.rel} {f.n} came to look. <f-h: What are you making?> <h/sad-f: A {what}. But it does not work.>",
            "Just then, {f.new} came along and looked at the mess."
            if not s.beings["f"].facts["rel"]
            else "Just then, {his} {f.rel} {f.n} came along and looked at the mess.",
        )
        s.one(
            "<f/kind-h: Maybe you have to {tip}.>",
            "{f} walked around it and thought. <f-h: I think we should {tip}.>",
            "<f-h: I tried that once. You need to {tip}.> <h-f: Will you help me?>",
        )
        s.one(
            "So {they} started again. One held, and the other one tied and pushed.",
            "{They} worked side by side, and this time {they} did it slowly.",
            "{f} had the ideas, and {h} had the strength.",
            "<h-f: You hold this, and I will hold that.>",
        )
        s.words["they2"] = "{they}"
    else:
        cast_grown(s)
        s.one(
            "{w.a} came by. <w-h: Do you know how often I had to try when I was small? Ten times!>",
            "{h} went to {w.a} and asked for help.",
            "Then {h} met {w.a}, who knew a lot about such things.",
        )
        s.one(
            "<w/kind-h: Try to {tip}.>",
            "{w} looked at it for a long time. <w-h: You should {tip}. Then it will hold.>",
            "<w/kind-h: It is a good start. Now {tip}, and be patient.>",
        )
        s.one(
            "{h} began again, and this time {he} was slow and careful.",
            "{h} ran back and tried once more.",
            "{h} took a deep breath and began from the beginning.",
        )
    s.one(
        "It took [a long time|two days|all afternoon].",
        "Bit by bit, it began to look right.",
        "And when it was done, nobody dared to breathe.",
        "This time, {they} did just that.",
    )
    s.one(*split(done))
    feel(s, "h", s.pick("proud|happy"), 0.8)
    end(
        s,
        '"What shall we build next?" asked {h}.',
        '"I am glad that it broke the first time," said {h}. "Now it is much better."\x01',
        "It was not perfect, but {he} had made it {himself}.",
        moral="try",
    )


@plot(
    "child|animal|-snail|-fish",
    friend="cast",
    parent="any",
    season="spring",
    places="garden|meadow|farm|yard",
    weight=1.1,
    tells=0.1,
)
def growing(s: Story) -> None:
    s.words["plant"] = s.pick("sunflower|pumpkin|bean|tomato plant|strawberry plant|melon|pea|apple tree|rose")
    open_story(s)
    begin(
        s,
        (
            "{h} found a [small|tiny|brown|round] seed.",
            "{p} gave {h.o} a tiny seed. <p-h: Look after it well.>",
            "{h} had a [brown|tiny|striped] seed in {his} {hand}."
            if s.beings["h"].body("hand") in ("hand", "paw")
            else "{h} found a tiny seed.",
            "a bird dropped a tiny seed right in front of {h.o}.",
        ),
    )
    s.one(
        "<h-p: What is in it?> <p-h: You will see, if you can wait.>",
        "<h-p: What will it be?> <p/kind-h: Plant it, and it will tell you.>",
        "<h-p: Is it alive?> <p-h: It is sleeping. It needs a bed of soil.>",
    )
    s.one(
        "{h} dug a small hole, put the seed in and covered it.",
        "{h} made a hole, not too deep, and laid the seed to bed.",
        "{h} pushed it into the soft ground and gave it some water.",
    )
    s.par()
    s.one(
        "The next morning {h} ran out to look. There was nothing.",
        "{h} sat down next to it and waited. Nothing happened.",
        "One day passed, then two, then three. All {he} could see was dirt.",
    )
    s.one(
        "<h/angry: Why does it take so long?>",
        "<h/sad-p: It is broken.> <p/kind-h: No. It is busy where you cannot see it.>",
        "{h} wanted to dig it up and see. <p-h: No! Let it sleep.>",
        "{h} sang to it. {h} told it stories. {h} even shouted at it.",
        "{h} knocked on the ground. <h: Hello? Are you coming?>",
    )
    s.may(
        0.6,
        "{h} watered it every day, even when {he} wanted to play.",
        "When it was hot, {h} brought water. When it was cold, {h} covered the spot with [straw|leaves].",
        "{h} chased away the [snails|hens|birds].",
    )
    s.one(
        "Then it rained, and the sun came out. And there it was: a tiny green tip!",
        "And one morning, a little green nose came out of the ground.",
        "On the tenth day, the earth had a crack. Something green looked out.",
    )
    feel(s, "h", s.pick("happy|surprised"))
    way = s.pick("share|eaten|wind|grow")
    s.par()
    if way == "eaten":
        cast_other(s, "x", "snail|rabbit|caterpillar|goat", "hungry|small|slow|young")
        s.one("But one day, half of the leaves were gone. Next to it sat {x.a}, and {x.he} was chewing.")
        s.one(
            "<h/angry-x: That is my plant!> <x/shy-h: I am sorry. It tasted so good, and I was so hungry.>",
            "{h} wanted to be angry, but {x} looked so thin.",
        )
        s.one(
            "<h/kind-x: You can have the weeds. There are more than enough of them.>",
            "{h} showed {x.o} a place full of fresh clover. <h-x: Eat here as much as you like.>",
        )
        s.one(
            "From then on, {x} ate the weeds and left the plant alone. It grew twice as fast.",
            "{x} was glad, and {x.he} promised to keep the others away too.",
        )
    elif way == "wind":
        s.one(
            "But then there came a strong wind, and the little plant was bent to the ground.",
            "One night, a storm broke the stem.",
        )
        s.one(
            "{h} cried. But {p} got a stick and a piece of string. <p/kind-h: Let us help it to stand.>",
            "<h/sad-p: Now it will die!> <p-h: Plants are stronger than you think.>",
        )
        s.one(
            "{They} tied it to a stick. In a week, it had grown around the stick and on, up and up.",
            "{h} held it straight while {p} tied a soft knot. And it went on growing.",
        )
    else:
        s.one(
            "It got leaves: two, four, eight. It grew as high as {his} knee, and then as high as {his} nose.",
            "It grew, and {h} grew too, but not as fast.",
            "Every day it was a bit bigger. {h} measured it with a stick.",
        )
        aside(s, 0.2)
    if s.words["plant"] in ("sunflower", "rose"):
        s.one(
            "In summer there was a bud, and one day the bud opened. It was a {plant}, as [yellow as the sun|big as a plate]!"
            if s.words["plant"] == "sunflower"
            else "In summer there was a bud, and one day the bud opened. It was a rose, and it smelled of honey.",
            "Then it bloomed, and all the bees came to the party.",
        )
        s.one(
            "{h} did not pick it. {he} wanted everybody to see it.",
            "<h/happy-p: It was in that tiny seed all the time!>",
            "In autumn, it gave {him} a whole handful of new seeds.",
        )
    else:
        s.one(
            "In the end, it was a {plant}, and it was full of [sweet|ripe|fat] {fruit}.".replace(
                "{fruit}",
                {
                    "pumpkin": "pumpkins",
                    "bean": "beans",
                    "tomato plant": "tomatoes",
                    "strawberry plant": "strawberries",
                    "melon": "melons",
                    "pea": "peas",
                    "apple tree": "little apples",
                }.get(s.words["plant"], "fruit"),
            )
            if s.words["plant"] != "apple tree"
            else "It took years. But one autumn, the little tree had its first three apples."
        )
        s.one(
            "{h} picked the first one and shared it with {p.o}.",
            "{They} ate until {they} were full, and gave the rest to [the neighbors|{their} friends|everyone].",
            "Nothing had ever tasted so good.",
        )
    end(
        s,
        "And one seed {he} kept, for next spring.",
        '"Now I know what was in it," said {h}. "A whole summer!"\x01',
        moral="patience",
    )


@plot("child|animal|folk|thing|-plane|-cloud|-star|-lantern|-boat|-tractor", friend="cast", weight=1.1)
def the_race(s: Story) -> None:
    group = s.group
    s.beings["f"].facts["rel"] = ""
    open_story(s)
    begin(
        s,
        (
            "there was a big race {here}. Everyone was there."
            if group != "thing"
            else "there was a big race. Everyone was there.",
            "{h} heard about a race. The winner would get a [golden cup|big cake|silver ribbon].",
            '{f.new} said, "I am the fastest of all! Who wants to race me?"\x01',
            "everyone met for the great {season} race.",
        ),
    )
    if s.beings["f"].seen < 0:
        s.one(
            "{h} wanted to win. So did {f.new}.",
            "Next to {h.o} stood {f.new}, who had won last year.",
            "The fastest of all was {f.new}. Everybody thought that {f.he} would win.",
        )
    s.one(
        "<f/proud-h: You will never beat me.> <h-f: We will see.>",
        "<f/proud-h: You? You are much too slow!> {H} said nothing.",
        "<f-h: May the best one win.> <h-f: Good luck!>",
        "{h} was so excited that {his} [knees shook|heart beat fast]."
        if group != "thing"
        else "{h} was so excited that {he} shook.",
    )
    s.may(
        0.4,
        "{h} had trained for weeks, up the hill and down the hill.",
        "Everyone stood in a row. It was very quiet.",
        "The way was long: around the pond, over the bridge and back.",
    )
    s.par()
    s.one(
        '"One, two, three, go!" And off {they} went.',
        "A whistle blew. {They} were off!",
        '"Ready, steady, go!" shouted [an old frog|somebody]. The race began.'
        if group != "child"
        else '"Ready, steady, go!" shouted the teacher. The race began.',
    )
    way = s.pick("stop|slow|fall|both")
    if way == "stop":
        cast_other(s, "x", "duckling|kitten|mouse|bird|beetle|chick", "tiny|small|little", "n")
        s.one(
            "{h} was in front. The end was near! Then {h} saw {x.a} {stuck}.".replace(
                "{stuck}",
                s.pick(
                    "on its back, kicking its legs|stuck in the mud|with one foot in a net|that had fallen into a hole"
                ),
            ),
            'Halfway there, {h} heard a weak little voice. "Help!" It was {x.a}, and it was stuck between two stones.',
        )
        s.one(
            "{h} looked at the others, who ran past. {h} looked at {x.o}. Then {he} stopped.",
            "If {h} stopped now, {he} would lose. If {he} did not stop, who would help? {h} stopped.",
            "<f-h: Come on! Do not stop now!> But {h} was already turning around.",
        )
        s.one(
            "It took a while until the little one was free. All the others were gone.",
            "Carefully, {h} set it free. <h/kind-x: There you go.>",
        )
        s.one(
            "{h} came in last. But when everybody heard why, {they} cheered the loudest for {h.o}.",
            "{f} won the race. But {f.he} came to {h.o} and gave {h.him} the prize. <f-h: You did something better than winning.>",
            "{h} was the last one, with {x.the} beside {h.him}. And nobody laughed.",
        )
        end(
            s,
            "There was a cup for the fastest. But the best smile of the day belonged to {h.o}.",
            '"Who won?" they asked {h.o} at home. "I think I did," {h} said.',
            moral="help",
        )
    elif way == "slow":
        s.one(
            "{f} was far ahead in no time. {h} went on, not fast, but without a stop.",
            "Soon {h} was the last. But {h.he} did not give up.",
        )
        s.one(
            "{f} looked back and laughed. <f/proud: I have plenty of time. I will just [rest|eat something|pick some flowers].>",
            "{f} was so sure to win that {f.he} stopped to [talk to a friend|look at {f.himself} in a puddle|take a nap].",
        )
        s.one(
            "Step by step, {h} came nearer. {h} did not look left or right."
            if group != "thing"
            else "Bit by bit, {h} came nearer. {h} did not look left or right.",
            "Nobody saw {h.o} pass, so quiet was {h.he}.",
        )
        s.one(
            "When {f} looked up, {h} was almost there. {f} ran like the wind, but it was too late!",
            "All at once everyone cheered. {h} had crossed the line!",
        )
        s.one(
            "<f/sad-h: How did you do that?> <h-f: I just kept going.>",
            '{f} was silent. Then {f.he} said, "Well done."\x01',
        )
        end(s, "The next day {they} raced again, only for fun.", moral="patience")
    elif way == "fall":
        s.one(
            "{They} were side by side. Then {f} slipped and fell into the mud.",
            "{f} was first. But at the bridge, {f.he} fell and hurt {f.his} [knee|leg]."
            if group != "thing"
            else "{f} was first. But on the hill, {f.he} got stuck in the mud.",
        )
        s.one("{h} could have won now. It was only a few steps.", 'Everyone shouted, "Go, {h.n}, go!"')
        s.one(
            "But {h} went back. <h/kind-f: Lean on me.>"
            if group != "thing"
            else "But {h} went back. <h/kind-f: I will pull you out.>",
            "But {h} turned around. <h-f: It is no fun to win like that.>",
        )
        s.one(
            "Side by side {they} came over the line, last of all.",
            "So {they} went on together, slowly, and {they} laughed about the mud.",
        )
        s.one(
            "<f/shy-h: I said mean things to you, and you helped me. I am sorry.>"
            if s.chance() < 0.5
            else "<f-h: Why did you do that?> <h-f: Because you are my friend.>",
            "The crowd was silent for a moment. Then it roared.",
        )
        end(
            s,
            "{They} cut the cake in two." if s.chance() < 0.5 else "{They} both got a ribbon that day.",
            "Afterward, nobody talked about the winner. They only talked about those two.",
            moral="friend",
            friends=True,
        )
    else:
        s.one(
            "{h} was faster on the hill. {f} was faster on the flat road.",
            "First {h} was in front, then {f}, then {h.full} again.",
        )
        s.one(
            "{They} came to a [river|wide ditch]. {h} could not get over it alone, and {f} could not either.",
            "Then a tree lay across the way. It was too heavy for one.",
        )
        s.one(
            "{They} looked at each other. <h-f: Together?> <f-h: Together!>",
            "<f-h: If you help me, I will help you.> <h-f: All right!>",
        )
        s.one(
            "With one big push, it was done. And then {they} went on, side by side, and neither wanted to be first any more.",
            "{They} helped each other over. From there on, {they} laughed more than {they} raced.",
        )
        s.one(
            "{They} crossed the line at the same moment.",
            '"Two winners!" called the judge. "That has never happened before!"\x01',
        )
        end(s, "{They} cut the prize in half. Each half was enough.", moral="friend", friends=True)


@plot("child|animal|folk|-giant", friend="", parent="any", weight=1.1, tells=0.1)
def learning(s: Story) -> None:
    kind = s.beings["h"].kind
    assert kind is not None
    child = kind.group == "child" or kind.noun in ("prince", "princess", "knight", "pirate", "witch", "wizard", "elf")
    skills = (
        [
            "ride a bike",
            "tie a shoe",
            "skate",
            "whistle",
            "swim",
            "jump rope",
            "write {his} name",
            "do a cartwheel",
            "play the flute",
            "juggle",
        ]
        if child
        else ["jump over the brook", "whistle", "sing", "dance", "stand on one leg", "climb the tall tree"]
    )
    if "fly" in kind.skills:
        skills = ["fly", "land softly", "fly in a circle", "sing"]
    skill = s.pick(skills)
    s.words["skill"] = s.phrase(skill)
    fails = {
        "ride a bike": (
            "The bike leaned to one side, and bump, {h} lay in the grass.|{h} rode right into a bush.",
            "look ahead, not down at your feet",
        ),
        "tie a shoe": (
            "The knot was as big as a potato, and the shoe fell off.|{h} tied both shoes together and fell over.",
            "make two bunny ears and let them hug",
        ),
        "skate": (
            "{his} feet went one way, and {he} went the other way.|{h} sat down with a bump. The ground was very hard.",
            "bend your knees and lean forward",
        ),
        "whistle": (
            "All that came out was air. Pfff!|It sounded like a sick kettle.",
            "make your lips as round as a pea and blow softly",
        ),
        "swim": (
            "{h} swallowed half the water and sank.|{h} kicked and splashed, but {he} did not move.",
            "be calm and move like a frog",
        ),
        "jump rope": (
            "The rope caught {his} feet every time.|{h} jumped when the rope was up and stood when the rope was down.",
            "listen to the rope and not to your feet",
        ),
        "write {his} name": (
            "The first letter looked like a spider, and the last one fell off the paper.|{h} wrote it backward.",
            "draw it in the sand first, very big",
        ),
        "do a cartwheel": (
            "{h} rolled over like a potato.|{h} landed flat on {his} back and looked at the sky.",
            "put your hands down first and look at them",
        ),
        "play the flute": (
            "It squeaked so badly that the cat ran away.|The sound was like a door that needs oil.",
            "play one note a day, until it is a friend",
        ),
        "juggle": (
            "One ball landed on {his} nose, and one in the soup.|All three balls fell down at once.",
            "start with one ball, then take two",
        ),
        "jump over the brook": (
            "Splash! {h} landed right in the middle.|{h} ran, and stopped, and fell in anyway.",
            "run up fast and do not stop",
        ),
        "sing": (
            "It sounded like an old door.|The note was so wrong that a bird fell silent.",
            "listen first and sing after that",
        ),
        "dance": (
            "{h} fell over {his} own feet.|{h} turned left when {he} should have turned right.",
            "feel the music in your belly first",
        ),
        "stand on one leg": (
            "{h} wobbled like jelly and fell over.|One, two, and down {he} went.",
            "look at one thing that does not move",
        ),
        "climb the tall tree": (
            "{h} slid down and landed on {his} behind.|{h} got as high as a mushroom and slid back.",
            "hold on with three and move with one",
        ),
        "fly": (
            "{h} fell out of the nest and into a bush.|{h} flapped and flapped and did not leave the ground.",
            "wait for the wind and lean on it",
        )
        if "nest" in kind.home
        else (
            "{h} jumped off a rock and landed in a bush.|{h} flapped and flapped and did not leave the ground.",
            "wait for the wind and lean on it",
        ),
        "land softly": (
            "{h} came down like a stone. Thump!|{h} flew right into a haystack.",
            "slow down before you land, not after",
        ),
        "fly in a circle": (
            "{h} flew into a tree, twice.|It was more of a square than a circle.",
            "lean to one side, just a little",
        ),
    }[skill]
    s.words["tip"] = fails[1]
    open_story(s)
    s.one(
        "There was one thing {he} could not do. {he} could not {skill}.",
        "All {his} friends could {skill}, but {h} could not.",
        "More than anything, {h} wanted to {skill}.",
        "<h-p: I want to {skill}!> <p-h: Then you have to practice.>",
    )
    begin(
        s,
        (
            "{h} began to practice.",
            "{h} tried it for the first time.",
            '{h} said, "Today I will learn to {skill}."\x01',
        ),
    )
    s.one(*split(fails[0]))
    s.may(
        0.6,
        "{h} tried again. It was no better.",
        "The second time was even worse.",
        "After ten tries, {h} was still no better.",
        "{creature} laughed at {him}. At least it looked like that.",
    )
    feel(s, "h", s.pick("sad|angry"), 0.8)
    s.one(
        "<h/sad-p: I will never learn to {skill}!>",
        "<h/angry: It is too hard!>",
        "<h/sad-p: Everyone can do it but me.>",
        '"Enough," said {h} and sat down.',
    )
    s.par()
    s.one(
        "{p} sat down beside {him}. <p/kind-h: Do you know how long it took me? A whole summer.>",
        "<p/kind-h: You cannot do it yet. Yet is a very small word, but a very good one.>",
        "<p-h: Shall I tell you a secret? You have to {tip}.>",
        "<p-h: Try to {tip}.>",
        "<p-h: Watch me. You must {tip}.>",
        "{p} had watched it all. <p/kind-h: Slowly! First {tip}.>",
        "<p/kind-h: When you were a baby, you could not even walk. You fell and fell. And look at you now!>",
    )
    s.one(
        "{h} nodded and got up.",
        "The next day, {h} tried again. And the day after that, and the day after that.",
        "{h} practiced in the morning and in the evening, in the sun and in the rain.",
        "Every day {h} got a tiny bit better. You could hardly see it.",
    )
    s.may(
        0.4,
        "Once it almost worked, and then it did not.",
        "Sometimes {he} wanted to stop. But {he} thought of {p's} words.",
        "It was like a stone that rolls a little farther each time.",
    )
    s.one(
        "And then, one [morning|evening], it just happened. {h} could {skill}!",
        "And suddenly, without knowing how, {h} did it!",
        "Then came the day when it worked. {h} did not even notice at first.",
    )
    s.one(
        "<h/happy-p: Look at me! Look at me!>",
        "<h/happy-p: Did you see that?> <p/happy-h: I saw it!>",
        "{p} clapped and clapped.",
        "{h} did it again, to be sure. And again. And again.",
    )
    feel(s, "h", "proud", 0.5)
    end(
        s,
        'A week later, {h} showed a smaller one how to {skill}. "You cannot do it yet," {he} said. "But you will."\x01',
        "Now {h} wanted to learn something new.",
        moral="try",
    )


@plot(
    "child|mouse|bear|rabbit|hedgehog|bunny|gnome|elf|witch|princess|prince|dragon|raccoon",
    parent="grandma|grandpa|mom|dad",
    weight=1.0,
    tells=0.1,
)
def baking(s: Story) -> None:
    s.words["bake"] = s.pick(
        "apple pie|chocolate cake|carrot cake|berry tart|honey cake|pumpkin pie|plum cake|nut cake"
    )
    s.words["for_who"] = s.pick(
        "for {p's} birthday|for the {season} feast|for a friend who was sick|because it was raining|for the new neighbors|just for fun"
    )
    open_story(s)
    begin(
        s,
        (
            "{h} and {p} wanted to bake a {bake}.",
            "{h} had an idea. <h-p: Let us bake a {bake}!>",
            '{p} asked, "Would you like to bake a {bake} with me?"\x01',
            "it smelled of sugar in {p's} kitchen. {p} was going to bake a {bake}.",
        ),
    )
    s.one(
        "{h} put on an apron that was much too long.",
        "First {they} washed {their} hands."
        if s.beings["h"].body("hand") == "hand"
        else "First {they} washed {their} paws.",
        "{h} stood on a chair to reach the bowl.",
        "{p} read from an old book full of spots.",
    )
    s.one(
        "{h} broke the eggs. Only one of {them} landed on the floor.",
        "{h} stirred until {his} arm was tired.",
        "{They} measured the flour, and a white cloud rose up and made {them} sneeze.",
        "In went the flour, the butter, the eggs and a bit of salt.",
    )
    way = s.pick("salt|burnt|gone|no_thing|small")
    s.par()
    if way == "salt":
        s.one(
            '"Now the sugar," said {p}. {H} took the white jar from the shelf.',
            "{h} did the sugar all alone: one cup, and then another.",
        )
        s.one(
            "When it was done, {h} took the first bite. {his} face went as [sour|crooked] as a lemon. It was salt!"
            if s.chance() < 0.5
            else "It looked perfect. But when {they} tasted it, {they} both made a terrible face. It was full of salt!"
        )
        s.one("<h/sad-p: I took the wrong jar!>", "{h} wanted to hide under the table.")
        s.one(
            "But {p} laughed until {p.he} had to hold on to the table. <p/kind-h: When I was little, I did it with pepper!>",
            "<p/kind-h: Now we know what the cows feel like when they lick salt. Come, we will make another one.>",
        )
        s.one(
            "{They} drew a big S on one jar, and a smiling mouth on the other. Then {they} started again.",
            "So {they} made a second one, and this time {they} tasted everything first.",
        )
    elif way == "burnt":
        s.one(
            "While it was in the oven, {they} played {game}. {They} forgot the time.",
            "{h} wanted to watch the oven, but then {he} saw {creature} at the window.",
        )
        s.one(
            '"What is that smell?" asked {p}. {They} ran into the kitchen. It was all black!',
            "Then there was smoke. The {bake} was as black as a boot.",
        )
        feel(s, "h", "sad")
        s.one(
            "<p-h: Only the outside is black. Let us look inside.> {P} cut off the crust, and the middle was soft and sweet.",
            "{h} looked at it for a while. <h: Can we cut off the black part?>",
            "<p-h: Well. We will call it coal cake.> And {h} had to laugh.",
        )
        s.one(
            "{They} cut it into tiny pieces and covered them with [jam|cream|berries]. Nobody saw a thing.",
            "{They} put cream on top, and then more cream.",
        )
    elif way == "gone":
        s.one(
            "{They} put it on the window sill to cool. When {they} came back, it was gone!",
            "{p} set it on the step to cool. A minute later, the plate was empty.",
        )
        s.one(
            "On the floor there was a trail of crumbs. {h} followed it.",
            "<h/angry-p: A thief!> {They} followed the crumbs.",
        )
        s.one(
            "The crumbs led under the [porch|big bush]. There sat a thin [dog|fox] with four tiny puppies, and all of them had cake on their noses.".replace(
                "[dog|fox] with four tiny puppies", s.pick("dog with four tiny puppies|cat with five tiny kittens")
            ),
            "At the end of the trail lay a fat puppy, fast asleep, with crumbs in its fur.",
        )
        s.one(
            "{h} could not be angry any more.",
            "<p-h: Well. It seems that somebody liked it.>",
            "<h/kind: They needed it more than we did.>",
        )
        s.one(
            "So {they} went in and baked another one. And this time, {they} shut the window.",
            "{They} baked again, one big cake and one small one for the step.",
        )
    elif way == "no_thing":
        s.words["need"] = s.pick("eggs|butter|honey|milk|flour")
        s.one(
            "But {they} could not find any {need} in the house!",
            "Then {p} looked into the jar. <p/sad-h: Oh dear. We have no {need}.>",
        )
        s.one(
            "{h} ran to the neighbor. She had no {need}, but she gave {him} a cup of [nuts|sugar]. Next door, they had no {need} either, but they gave {him} some [raisins|apples].",
            "{h} went from door to door. One had [nuts|cherries], one had [apples|cinnamon], but nobody had {need}.",
        )
        s.one(
            'At the last house, an old man smiled. "I have {need}," he said. "But I have nobody to eat cake with."\x01'
        )
        s.one("<h/happy: Then come with us!>", "{h} thought for one second. <h/kind: You can eat it with us!>")
        s.one(
            "In the end, the whole street sat around the table, and there was enough for all.",
            "So everybody came: the one with the nuts, the one with the apples, and the old man.",
        )
    else:
        s.one(
            "When it came out of the oven, it was as flat as a [plate|hat].",
            "It did not rise. It was as small as a cookie and as hard as a stone.",
        )
        s.one(
            "<h/sad-p: What did we do wrong?> {P} looked at the table. There stood the baking powder, and nobody had opened it.",
            "<h/sad-p: It is a stone!> {P} knocked on it. Knock, knock!",
        )
        s.one(
            "<p/happy-h: A very good stone. We can use it to hold the door.>",
            "{p} smiled. <p/kind-h: The second one is always better.>",
        )
        s.one(
            "{They} tried again, and {they} did not forget anything this time.",
            "So {they} began from the start, step by step.",
        )
    s.one(
        "And how good it tasted!",
        "It was the best {bake} {they} had ever made.",
        "{They} ate it while it was warm.",
        "It was a little crooked, but it was sweet.",
    )
    end(
        s,
        '"What shall we bake tomorrow?" asked {h}.',
        "There was flour on {his} nose, but nobody told {him}.",
        "{They} kept the biggest piece for [the mailman|somebody who was sad|breakfast].",
        moral="try",
    )


@plot("child|mouse|rabbit|fox|bear|robot|elf|dragon|princess|monkey|raccoon", friend="cast", weight=1.0, tells=0.08)
def the_contest(s: Story) -> None:
    what = s.pick(
        "drawing|singing|pie|pumpkin|costume|kite|snowman"
        if s.season == "winter"
        else "drawing|singing|pie|pumpkin|costume|kite"
    )
    s.words["what"] = what
    s.words["made"] = {
        "drawing": "a picture",
        "singing": "a song",
        "pie": "a pie",
        "pumpkin": "a pumpkin",
        "costume": "a costume",
        "kite": "a kite",
        "snowman": "a snowman",
    }[what]
    s.beings["f"].facts["rel"] = ""
    open_story(s)
    begin(
        s,
        (
            "there was a {what} contest in the [town|village].",
            '{h} saw a sign on a tree. "Big {what} contest," it said.',
            "{h} heard that there would be a {what} contest on {day}.",
        ),
    )
    s.one(
        "<h/happy: I want to win!>",
        "{h} worked on {made} every day for a week.",
        "{h} had never been in a contest before.",
        "{h} knew at once what {he} wanted to do.",
    )
    way = s.pick("ruined|swap|own|help")
    if way == "ruined":
        s.one(
            "On the morning of the contest, {h} stumbled. And all {his} work was ruined!",
            "But the night before, it rained in through the roof, and everything {he} had made was spoiled."
            if what != "singing"
            else "But on that morning, {h} had no voice. Only a croak came out.",
        )
        feel(s, "h", "sad")
        s.may(0.6, "There was only one hour left.", "<h/sad: Now I cannot go.>")
        s.one(
            "{f.new} found {h.o}. <f/kind-h: You still have one hour. I will help you.>",
            "{f.new} sat down beside {h.o}. <f-h: Can you make something new out of it?>",
        )
        s.one(
            "So {h} took what was left, and {h.he} made something quite different. It was odd and wild and funny."
            if what != "singing"
            else "So {h} did not sing. {h.he} danced and clapped and drummed on a pot instead.",
            "{They} worked so fast that there was no time to be afraid.",
        )
        s.one(
            "The judges looked at it for a long time. Then they smiled.",
            'When the judges came to {h.o}, {they} laughed out loud. "We have never seen anything like this," they said.',
        )
        s.one(
            "{h} did not get the first prize. {he} got a special one, for the best idea.",
            "{h} won the prize for the funniest of all!",
        )
    elif way == "swap":
        s.one(
            "Next to {h.o} stood {f.new}. {F.his} work was beautiful.",
            "Then {h} saw what {f.new} had made. It was so much better!",
        )
        s.one(
            "{h} felt small and a bit jealous.",
            'A mean little thought came into {h\'s} head. "What if something happened to it?"\x01',
            "{h} wanted to go home.",
        )
        s.one(
            "But then {h} saw that {f} was shaking. <f/scared-h: I am so afraid. What if they do not like it?>",
            "Then {f} turned around. <f/shy-h: I like yours so much. I could never do that.>",
        )
        s.one(
            "<h/kind-f: It is the best one here.> And when {h} had said it, the bad feeling was gone.",
            "{h} took a deep breath. <h/kind-f: Yours is wonderful.>",
        )
        s.one(
            "{f} won the first prize, and {h} clapped the loudest.",
            "In the end, neither of {them} won. An old lady with a [green|tiny] hat did. {They} laughed and clapped for her.",
        )
    elif way == "own":
        s.one(
            "The others all made the same thing: big and shiny and perfect.",
            'Everyone told {h.o} what to do. "Make it bigger!" "Make it pink!" "Put gold on it!"\x01',
        )
        s.one(
            "{h} did not know what was right any more.", "{h} tried to do it like the others, but it did not feel good."
        )
        s.one(
            "In the end, {h} did it {his} own way, small and simple.",
            'Then {h} thought of {his} [grandma|grandpa], who always said, "Do what you love." So {he} did.',
        )
        s.one(
            'The judge was an old [woman|man] with glasses. "This one," said the judge, "comes from the heart."\x01',
            'One of the judges stopped in front of {h.o} and wiped a tear away. "It reminds me of when I was small."\x01',
        )
        feel(s, "h", "proud")
    else:
        s.one(
            "On the way there, {h} met {f.new}, who was crying. <f/sad-h: I forgot [my things|everything] at home!>",
            "Beside {h.o} stood {f.new}, with nothing at all. <f/sad-h: Mine broke.>",
        )
        s.one(
            "{h} had worked so long. But there was enough for two.",
            "{h} looked at {h.his} own things and thought for a moment. <h/kind-f: Let us do it together.>",
        )
        s.one(
            "{They} put {f's} ideas and {h's} work together, and it became something new.",
            "<f/happy-h: Really?> <h-f: Really!>",
        )
        s.one(
            '"Who made this?" asked the judges. "We did!" said both of {them} at the same time.',
            "And that is how two of {them} won one prize.",
        )
    if s.likely(0.4):
        s.bank("cheer")
    end(
        s,
        "The ribbon hung over {his} {h.bed} for a long time."
        if way in ("ruined", "own")
        else "On the way home, {they} were already planning the next one.",
        '"Next year," said {h}, "I will do it again."\x01',
        moral="self" if way == "own" else "try",
    )
