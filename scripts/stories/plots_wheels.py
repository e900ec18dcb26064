"""Plots of trains, trucks, boats, planes, clouds and lanterns, and of those who live in the sea."""

# ruff: noqa: E501
from __future__ import annotations

from stories.events import end, feel
from stories.openings import begin, open_story
from stories.registry import plot
from stories.story import Story


@plot("train|truck|bus|tractor", friend="cast", weight=0.8, tells=0.04)
def up_the_hill(s: Story) -> None:
    s.words["load"] = s.pick(
        "toys for the children|milk for the town|apples for the market|wood for the winter|books for the school|a piano|presents for the feast|hay for the cows"
    )
    open_story(s, day=False)
    s.one(
        'The others were bigger and stronger. "You are too small for real work," they said.',
        "All day long, {h} only did small jobs.",
        "{h} dreamed of a big job.",
        "The big ones always laughed at {h.o}.",
    )
    begin(
        s,
        (
            "a load of {load} had to go over the high hill.",
            "somebody was needed to bring {load} over the hill, and quickly.",
            "the big ones were all broken or busy. And there stood {load}, waiting.",
        ),
    )
    s.one(
        '"I am too tired," said the first. "I am too fine," said the second. {H} rolled forward. <h/shy: I can try.>',
        "<h: Let me do it!> The others laughed. But nobody else wanted to go.",
        "It was {h} who said yes.",
    )
    s.may(
        0.6,
        "It was so heavy that {his} wheels groaned.",
        "At first the road was flat, and it went well.",
        "The rain began, and the way was wet.",
        "{sky}.",
    )
    s.par()
    s.one(
        "Then came the hill. It was steep. {h} went slower, and slower, and slower.",
        "Halfway up, {h} stopped. {he} even began to roll back!",
        "The hill seemed to have no end.",
    )
    feel(s, "h", "worried", 0.4)
    s.one(
        "<h: A little bit. And a little bit more. And a little bit more.>",
        "{h} thought of all those who were waiting. <h: I must not stop.>",
        '"Slow is fine," {h} said to {himself}. "Only stopping is bad."\x01',
    )
    if s.chance() < 0.5:
        s.one(
            "A cow stood in the way. <h: Please, could you move?> The cow thought about it for a long time.",
            "Then a tree lay across the way. {h} pushed and pushed.",
            'A bird sat down on {h.o}. "Up there you can see the top!" it sang.',
        )
        s.one("At last the way was free.", "And on it went.")
    else:
        s.one(
            "Then {f.new} came up from behind. <f-h: I will push, and you pull!>",
            "{f.new} saw it. {f.he} had laughed before. Now {f.he} did not laugh. <f-h: Come, I will help you.>",
        )
        s.one(
            "Together {they} pulled and pushed, and the top came nearer.",
            "<h: Thank you!> <f: Save your breath, and pull!>",
        )
    s.one(
        "And then {h} was on the top. Down below lay the town, with all its little lights.",
        "One last pull, and it was done. Down the other side it went, whee!",
    )
    s.one(
        "Everyone was waiting. They clapped and waved.",
        '"Here comes {h.n}!" the children shouted.' if s.beings["h"].name else '"Here it comes!" the children shouted.',
        "That night, the whole town had what it needed.",
    )
    feel(s, "h", "proud", 0.6) if s.chance() < 0.5 else s.one("{h} was tired from top to bottom, and very happy.")
    if s.likely(0.3):
        s.bank("cheer")
    end(
        s,
        "After that, nobody laughed at {h.o} any more.",
        '"Who did it?" asked the big ones. "The little one," said everybody.',
        moral="try",
    )


@plot("boat|lantern", friend="cast", weight=0.7, tells=0.05)
def in_the_fog(s: Story) -> None:
    lamp = s.beings["h"].noun == "lantern"
    open_story(s, day=False)
    s.one(
        "{h} was old, and the paint had come off."
        if s.beings["h"].adjective == "old"
        else "{h} was the smallest of all.",
        "Nobody thought much of {h.o}.",
        "Most days, {h} had nothing to do." if lamp else "{h} had never been far from the shore.",
    )
    begin(
        s,
        (
            "a thick fog came over the sea.",
            "the fishing boats had gone far out. Then the fog came.",
            "in the evening, you could not see the end of the pier.",
        ),
    )
    s.one(
        "The big lamp of the lighthouse went out. Click! It was dark.",
        "The lighthouse could not shine through it. It was like wool.",
        "From out there came a long, sad sound. Somebody was lost!",
    )
    s.one(
        "<h: Somebody has to show them the way.>",
        '"Help!" cried a voice in the fog. It was {f.new}.' if not lamp else "Far out, somebody was calling for help.",
        "Everyone stood on the shore and waited and worried.",
    )
    feel(s, "h", "brave", 0.5) if not lamp else None
    s.par()
    if lamp:
        s.one(
            "The old sailor took {h.o} from the hook and lit the flame.",
            "A girl came running and took {h.o} in her hand.",
        )
        s.one(
            "{They} went out to the end of the pier. The wind pulled at the flame, but {h} burned on.",
            "{h} was small. But {he} shone with all {his} might.",
        )
        s.one(
            'To the left and to the right {h} swung. "Here! Here! Here is the land!"\x01',
            "The flame grew thin. <h: Not now. Not yet.>",
        )
    else:
        s.one(
            "{h} knew every rock, for {he} was so small that {he} had played between {them}.",
            "{h} went out. Ding, ding, ding, went {his} little bell.",
        )
        s.one(
            "The waves were as high as houses. Up and down, up and down.",
            "{h} could not see a thing, so {he} listened.",
        )
        s.one(
            "And there {f.he} was: {f.a}, between two rocks. <h/kind-f: Come behind me. I know the way.>"
            if s.beings["f"].seen < 0
            else "And there {f} was, between two rocks. <h/kind-f: Come behind me. I know the way.>"
        )
    s.one(
        "One after the other, the boats came out of the fog.",
        "Slowly, slowly, they found the way home.",
        "And then there was a shadow, and then a boat, and then all of them.",
    )
    s.one(
        '"We saw a little light," said the fishermen, "and we knew where home was."\x01'
        if lamp
        else '"We heard a little bell," said the others, "and we knew where home was."\x01',
        "On the shore, they hugged each other and laughed.",
    )
    s.one(
        "The next day, {h} got a new coat of paint, as red as a cherry.",
        "From then on, {h} had a place of honor.",
        "After that, whenever the fog came, everybody asked for {h.o}.",
    )
    end(
        s,
        "A small light can be big in the dark." if lamp else "You do not have to be big to be a help.",
        moral="self",
        night=False,
    )


@plot("cloud|star|plane", friend="cast", weight=0.7, tells=0.06)
def high_above(s: Story) -> None:
    noun = s.beings["h"].noun
    open_story(s, day=False)
    if noun == "cloud":
        s.one(
            "{h} did not want to rain. {he} thought that nobody liked rain.",
            "The big clouds made thunder. {h} could only make a few drops.",
            "Whenever {h} came, people took out {their} umbrellas and frowned.",
        )
        s.one(
            "So {h} held all {his} water and grew heavier and heavier.",
            "{h} floated away, to where nobody would see {him}.",
        )
        begin(
            s,
            (
                "{h} came to a dry field.",
                "{h} heard a small voice from below.",
                "{h} saw a garden where everything was brown.",
            ),
        )
        s.one(
            'A little flower hung its head. "Water," it whispered.',
            "The corn was yellow. The frogs sat in the dust.",
            'A girl stood there with an empty can. "If only it would rain!" she said.',
        )
        s.one("<h: They want rain? They want me?>", "{h} could hardly believe it.")
        s.one(
            "Plip. One drop fell. Plop. Then another one. And then it rained and rained.",
            "{h} took a deep breath and let go. It felt wonderful.",
        )
        s.one(
            "The flower lifted its head. The frogs began to sing.",
            "The girl did not run inside. She danced in the puddles, with her mouth wide open.",
        )
        s.one(
            "Then the sun came out, and over the field stood a rainbow. {h} had helped to make it.",
            "In the end, {h} was very small and very light, and very happy.",
        )
        end(s, "The next day, {h} drank from the sea and came back.", moral="self", night=False)
        return
    if noun == "star":
        s.one("{h} was so far away that nobody knew {him}.", "{h} thought that nobody on earth ever looked at {him}.")
        begin(
            s,
            (
                "{h} saw a child at a window.",
                "{h} looked down and saw a little light.",
                "{h} heard somebody cry, far down on the earth.",
            ),
        )
        s.one(
            "The child was sick and could not sleep.",
            'The child counted: "Ninety-eight, ninety-nine." Then it stopped. It could not find the last one.',
        )
        s.one("{h} shone as brightly as {he} could.", "{h} leaned forward, as far as a star can lean.")
        s.one(
            '"There you are!" said the child. "One hundred!"\x01',
            'The child saw {h.o} and smiled. "You are my star," the child said.',
        )
        s.one(
            "From then on, {they} looked at each other every night.",
            "When clouds came, {h} waited. Behind the clouds, {he} was still there.",
        )
        s.one(
            "Years went by. The child grew up and became a sailor. And which star showed the way home over the sea? It was {h}.",
            'One night, the child held up another child. "Look," it said. "That one is ours."\x01',
        )
        end(s, "And {h} was never lonely again.", moral="self", night=False)
        return
    begin(
        s,
        (
            "there was a lot of snow, and the road to the village was shut.",
            "somebody on a small island was very sick.",
            'a letter came. "Please help! We have no more food on the mountain."\x01',
        ),
    )
    s.one(
        "The big planes could not land there. It was too small. <h: I am small. Let me go!>",
        '"It is too windy," said the others. But {h} wanted to try.',
    )
    s.one(
        "{They} put [boxes|medicine|bread and blankets] into {h.o}, and off {he} went.",
        "{h} rolled, and hopped, and flew.",
    )
    s.one(
        "The wind threw {him} up and down like a ball.",
        "Snow was everywhere, above and below.",
        'A flock of geese flew beside {h.o}. "This way!" {they} called.',
    )
    s.one(
        "Then {h} saw lights. Somebody had made a long row of lamps in the snow.",
        "There was only a tiny strip to land on. {h} held {his} breath.",
    )
    s.one("Bump, bump, bump. {h} was down!", "{h} came down as softly as a feather.")
    s.one(
        "Children ran up and patted {his} wings.",
        "Everybody helped to carry the boxes, and there was hot soup for the pilot.",
    )
    end(s, "On the way back, the sun came out, and the whole world was white and gold.", moral="help", night=False)


@plot("sea", friend="cast", weight=0.9, tells=0.08)
def sea_friends(s: Story) -> None:
    open_story(s)
    way = s.pick("shy|net|pearl|big|wave")
    if way == "shy":
        begin(
            s,
            ("{h} saw two eyes {here}.", "{h} found a little hole. Somebody was in there.", "{h} heard a sigh {here}."),
        )
        s.one(
            "<h: Who is there?> The eyes went away.",
            "<h: Hello! Do you want to play?> There was no answer, only three bubbles.",
        )
        s.one(
            "{h} put a shell in front of the hole and waited. A little later it was gone.",
            "The next day {h} came again and told a joke to the dark hole. Something giggled.",
        )
        s.one(
            "On the third day {f.a} looked out. <f/shy-h: Everybody thinks that I am scary.> <h/kind-f: I think that you are funny.>",
            "And then {f.new} came out, very slowly. <f/shy-h: I thought that you would laugh at me.>",
        )
        s.one("{They} {pastime}, and then {they} {pastime}.", "{h} showed {f.o} all the best places.")
    elif way == "net":
        begin(
            s, ("{h} and {f.new} were playing when a big shadow came.", "{h} heard a cry. {f.new} was caught in a net!")
        )
        if s.beings["f"].seen < 0:
            s.beings["f"].seen = s.sentence
        s.one(
            "<f/scared-h: I cannot move! Swim away!> <h-f: Not without you!>",
            "The net was thick and strong. {h} pulled, but it did not break.",
        )
        s.one(
            "{h} called the crabs. Snip, snip, snip! Ten little claws began to cut.",
            "{h} called everyone. All of {them} swam in the same direction, down, down, down, until the net tore.",
        )
        s.one(
            "There was a hole, and it grew. <f/happy-h: I am free!>", "And out {they} came, {f} and a hundred others."
        )
        s.one(
            "{They} swam home so fast that the bubbles could not keep up.",
            "The crabs bowed and went back to their supper.",
        )
    elif way == "pearl":
        begin(s, ("{h} found a shining pearl {spot}.", "something glowed {spot}. It was a pearl."))
        s.one("<h/happy: It is mine!> And {h} hid it.", "{h} showed it to nobody. {he} sat on it all day long.")
        s.one(
            "The others asked {h.o} to play. But {h} had to guard {his} pearl.",
            "The others laughed and raced, and {h} could not go with {them}.",
        )
        s.one(
            "Then {f.new} came by, looking for something. <f/sad-h: I have lost the lamp of our house. My little ones are afraid in the dark.>",
            "{f.new} sat in a dark hole and cried. <f/sad-h: It is so dark down here.>",
        )
        s.one(
            "{h} looked at the pearl. It was beautiful. But what good was it under a stone?",
            "{h} thought about it for one whole night.",
        )
        s.one(
            "<h/kind-f: Take this. It shines.> {F} put it in the middle of the cave, and everything glowed.",
            "So {h} hung the pearl up high, where everyone could see it. Now the whole reef had a lamp.",
        )
        s.one("Every evening {they} all sat around it and told stories.", "And {h} had time to play again.")
    elif way == "big":
        s.one(
            "{h} was afraid of everything that was big."
            if s.beings["h"].noun != "whale"
            else "{h} was so big that all the little ones were afraid of {him}."
        )
        begin(s, ("a big storm came.", "the water grew dark and wild.", "the waves threw everything around."))
        s.one(
            "The little ones could not hold on. They were pulled away, one by one.",
            "{h} was thrown up and down, and {he} did not know where home was."
            if s.beings["h"].noun != "whale"
            else "The little ones cried for help.",
        )
        s.one(
            'Then something huge came up from below. It was a whale! "Come under my fin," she said. "It is quiet there."\x01'
            if s.beings["h"].noun != "whale"
            else "{h} spread out {his} fins. <h/kind: Come under here! It is quiet.>"
        )
        s.one(
            "{They} all slipped under it. Outside the storm roared, but under the fin it was as calm as in a pond.",
            "There they sat, a hundred little ones, and sang until the storm was over.",
        )
        s.one(
            '"You are not scary at all," said {h}. The whale laughed, and everybody shook.'
            if s.beings["h"].noun != "whale"
            else '"You are not scary at all," {they} said. {h} laughed, and everybody shook.'
        )
        s.beings["f"].seen = 0
        end(
            s, "After that, {they} were not afraid of big things any more, only of storms, and not much.", moral="brave"
        )
        return
    else:
        begin(
            s,
            (
                "a big wave threw {h.o} into a small pool on the beach.",
                "the water went away, and {h} was left in a little pool.",
            ),
        )
        s.one(
            "It was warm and tiny. {h} could see the sea, but {he} could not get there.",
            "The sun burned, and the pool grew smaller and smaller.",
        )
        s.one(
            "In the pool sat {f.new}. <f-h: Do not worry. It comes back twice a day.> <h-f: What comes back?> <f-h: The sea.>",
            "{f.new} was there too. {F} was quite calm. <f-h: We only have to wait.>",
        )
        s.one(
            "{They} told each other stories to make the time go by.",
            "{They} counted the clouds. At four hundred and two, the first wave came.",
        )
        s.one(
            "A child looked in and made a big eye. {h} blew a bubble. The child laughed and put a hat over the pool, so that it was cool.",
            "A gull came by and looked hungry. {f} showed {h.o} how to look like a stone.",
        )
        s.one(
            "Then, splash! The sea was back, and it took {them} home.",
            "Wave after wave came nearer, until the pool was no longer a pool.",
        )
    end(s, "The next day {they} met again, half in the sun and half in the shade.", moral="friend", friends=True)


@plot("sea|duck|otter|penguin|beaver|turtle|frog", friend="cast", weight=0.6, tells=0.06)
def message_bottle(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "a bottle came floating by. There was a piece of paper in it.",
            "{h} found a bottle {spot}. Something was inside.",
        ),
    )
    s.one(
        "{h} could not read. {he} turned it around and around.",
        "What could it be? A map? A secret?",
        "{h} shook it. It did not say anything.",
    )
    s.one(
        "{h} asked {f.new}. <f-h: I think that it is a recipe for soup.>",
        "{f.new} looked at it. <f-h: It is upside down. No, now it is upside down.>",
    )
    s.one(
        "{They} took it to the old heron, who had seen the whole world.",
        "Nobody knew. So {they} went to the oldest one of all, a very old pelican.",
    )
    s.par()
    s.one(
        'The old one put on [two snail shells|two drops of water] as glasses and read: "I am all alone on a small island. Please write to me."\x01',
        'It said, "Whoever finds this is my friend."\x01',
    )
    s.one(
        "<h/sad-f: Somebody is lonely.> <f-h: Then we must answer!>", "{h} was silent. Somewhere, somebody was waiting."
    )
    s.one(
        "{They} put in a shell, a feather and a drawing of {themselves}, and gave the bottle back to the waves.",
        "{They} could not write, so {they} put in the most beautiful things {they} had.",
    )
    s.one("The bottle danced away until it was only a dot.", '"Swim well, bottle!" {h} called.')
    s.par()
    s.one(
        "Days went by, and weeks. {h} looked out every morning.",
        "{They} waited until the moon had been round two times.",
    )
    s.one(
        "And then, one morning, there was a tap, tap, tap. The bottle was back!",
        "Then somebody came over the waves, in a boat made of a box. It was a little old sailor with a white beard.",
    )
    s.one(
        "There was a song in it, and a button, and a smile drawn in red."
        if s.chance() < 0.5
        else '"I got your letter," it said. "I am not alone any more."\x01',
        "It smelled of far islands.",
    )
    end(s, "From then on, the bottle went to and fro, to and fro.", moral="friend")
