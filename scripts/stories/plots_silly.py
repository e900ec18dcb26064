"""Plots to laugh about: hiccups, wrong words, giant pumpkins, echoes, lost hats, and days where all goes wrong."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_grown
from stories.events import end, feel, play_together, prefixed
from stories.openings import begin, open_story
from stories.registry import plot
from stories.story import Story


@plot("child|animal|folk|-snail|-teddy bear|-doll|-robot", friend="cast", parent="any", weight=1.0)
def hiccups(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "{h} had the hiccups.",
            "{h} ate too fast, and then it began. Hic!",
            '{h} wanted to say good morning. But what came out was, "Good hic!"\x01',
        ),
    )
    s.one(
        "Hic! Every time, {h} jumped a little.",
        "Hic! A bird fell off its branch. Hic! The milk was spilled.",
        "Hic! It did not stop. Hic! It did not stop at all.",
    )
    tips = [
        "<p-h: Drink a glass of water.> {H} drank. Hic! Now the water was everywhere.",
        '{f.new} said, "You must hold your breath." {H} held it and turned red, and then blue. Hic!',
        "<p-h: Stand on your head.> {H} did. Hic! Down {h.he} fell.",
        "An old man told {h.him} to eat a spoon of sugar. {H} ate five. Hic! {They} were very good."
        if s.group == "child"
        else "An old goat told {h.him} to chew some thistles. {H} tried it. Ouch! Hic!",
        '"Say the days of the week backward," somebody said. <h: Sunday, hic, Friday, hic!>',
        '"Boo!" said {p}. {h} laughed. Hic!',
        "<p-h: Think of nothing.> {H} thought of nothing. Nothing, nothing, hic!",
    ]
    s.par()
    for i in range(3):
        if i < 2 or s.likely(0.5):
            s.tell(prefixed(("", "Then ", "")[i], s.take(tips)))
    s.one(
        "By noon, everyone within a mile was trying to help.",
        "<h/sad: Will it stay for hic ever?>",
        "{h} began to be sad. Nobody can play hide and seek with the hiccups.",
    )
    s.par()
    way = s.pick("scare|forget|catch|useful")
    if way == "scare":
        s.one(
            "Just then a door banged. Bang! {h} jumped as high as a house.",
            "Behind {h.o}, somebody sneezed like thunder.",
        )
        s.one(
            "And then it was quiet. {h} waited. Nothing. The hiccups were gone!",
            "Everyone waited. One minute, two minutes. No hic!",
        )
    elif way == "forget":
        s.one(
            "Then a little one fell down and cried. {h} ran over and helped it up, and dried its tears, and told it a joke.",
            "Then {h} saw {creature}, and it was so funny that {he} forgot everything.",
        )
        s.one(
            "Only later {he} noticed: there was no hic any more.",
            "<p-h: Where are your hiccups?> <h-p: Oh! I forgot them somewhere.>",
        )
    elif way == "catch":
        s.one(
            'And then it stopped. <h/happy: It is gone!> But what was that? "Hic!" said {p}.',
            'At last {h} was well. But "hic!" said somebody beside {him}. It was {p}!',
        )
        s.one("<h-p: Drink some water, hold your breath and stand on your head!>", "Now {h} knew a lot of good advice.")
    else:
        s.one(
            "That night, a fox came creeping to the hens. Hic! went {h}, so loudly that the fox ran away."
            if s.beings["h"].noun != "fox"
            else "That night, a thief came creeping. Hic! went {h}, so loudly that the thief ran away.",
            "Then fog came, and the others could not find the way. But {they} could hear {h.o}. Hic! Hic! Hic!",
        )
        s.one("<p/happy-h: Your hiccups saved us!> And at that moment, they were gone.")
    end(
        s,
        '"Good night," said {h}. "Good hic," said {p}.',
        "It was so quiet now. {h} almost missed {them}.",
        moral="joy",
    )


@plot("child|animal|elf|prince|princess|knight|dragon", friend="pair", parent="any", weight=1.1, tells=0.06)
def misunderstanding(s: Story) -> None:
    open_story(s, pair=True)
    what = s.pick("monster|move|bear|king|ghost")
    if what == "monster":
        begin(
            s,
            (
                '{h} heard {p} say, "There is something big and green in the garden, and it is growing."\x01'
                if s.group == "child"
                else '{h} heard {p} say, "There is something big and green by the pond, and it is growing."\x01',
                '{p} said at breakfast, "It has a hundred arms, and it eats everything." {h} stopped chewing.',
            ),
        )
        s.one(
            "{h} told {f.o}. <h/scared-f: There is a monster!>",
            "<h/scared-f: Something with a hundred arms lives out there!> <f/scared-h: With a hundred arms?>",
        )
        s.one(
            "{f} told the neighbors, and each of {them} made it a little bigger.",
            "By noon it had teeth. By evening it had wings.",
            "Soon everyone knew. Some locked their doors.",
        )
        s.one(
            "{They} took pots for hats and spoons for swords, and {they} went to look.",
            "<f: We must be brave.> {They} crept closer, with a net and a big spoon.",
        )
        s.one(
            "There stood {p} with a hoe. <p-h: Have you come to help me? This weed is terrible!>",
            "<h/scared-p: Look out! The monster!> {P} looked around. <p-h: What monster? This is only a pumpkin plant.>",
        )
    elif what == "move":
        begin(
            s,
            (
                "{h} saw {p} put things into a big box.",
                '{h} heard {p} say, "On Friday, we must say goodbye to the old one."\x01',
            ),
        )
        s.one(
            "<h/sad-f: We are going to move away!> {F} turned pale.",
            "{h} ran to {f.o}. <h/sad-f: They are giving me away!>",
        )
        s.one(
            "<f-h: Then I will hide you.> And {f} hid {h.o} {spot}.",
            "{They} said goodbye for one hour, and {they} both cried.",
            "{f} gave {h.o} {f.his} best toy, so that {h.he} would not forget {f.him}.",
        )
        s.one(
            "When it got late, {p} came looking. <p-h: What are you doing here?> <h/sad-p: I do not want to go!>",
            'In the evening {h} asked in a small voice, "Why do we have to go?"\x01',
        )
        s.one(
            "<p-h: Go? Where? I am only giving away the old {thing}.>".replace(
                "{thing}", s.pick("chair|table|stove|bed")
            ),
            "{P} laughed and took {h.o} in {p.his} arms. <p/kind-h: Nobody is going away. I am only cleaning.>",
        )
    elif what == "bear":
        begin(s, ("{h} and {f} saw something big and brown {spot}.", "something big and furry was moving {spot}."))
        s.one(
            "<f/scared-h: A bear!> <h/scared-f: Shh! Do not move.>"
            if s.beings["h"].noun != "bear" and s.beings["f"].noun != "bear"
            else "<f/scared-h: A wolf!> <h/scared-f: Shh! Do not move.>",
            "It grunted. It had a hump on its back.",
        )
        s.one(
            "{They} lay flat on the ground and did not breathe.",
            "{They} climbed up a tree, one after the other, faster than ever before.",
        )
        s.one("It came nearer and nearer. It sniffed. It sneezed!", "It stood up. It was as tall as a door!")
        s.one(
            "Then it took off its fur. It was {p}, in a big old coat!",
            "<p: Has anybody seen my glasses?> It was {p}, under a brown blanket!",
        )
    elif what == "king":
        begin(
            s, ('a letter came. "The king is coming on {day}," it said.', "{h} heard that a king would come to visit.")
        )
        s.one(
            "{h} and {f} cleaned everything. {They} swept the road and washed the ducks.",
            "{They} made a throne of boxes and a carpet of leaves.",
        )
        s.one(
            "{They} waited with flowers. The whole town waited too."
            if s.group == "child"
            else "{They} waited with flowers. Everyone else waited too.",
            "{f} practiced to bow until {f.his} back hurt.",
        )
        s.one(
            "But nobody came, only an old man on a donkey. <f-h: He is not a king.>",
            "The only one who came was a boy with a box.",
        )
        s.one(
            'The stranger laughed. "King is my name. I have come to mend the clock."\x01',
            '"I bring the king," said the stranger and opened a box. It was a chess piece that had been lost.',
        )
        s.one(
            '{They} looked at each other. Then {h} said, "Well, the throne is ready. Please sit down!"\x01',
            "<h/kind: You can have the flowers anyway.> And the stranger was as happy as a real king.",
        )
    else:
        begin(
            s,
            ("{h} and {f} saw something white in the dark.", "{f} came running. <f/scared-h: There is a ghost {at}!>"),
        )
        s.one(
            "It had long arms, and it waved.",
            "It moved up and down and made no sound.",
            '"Whooo," it went, or was it the wind?',
        )
        s.one(
            "<h: We could ask it what it wants.> <f/scared-h: You ask it.>",
            "{They} threw a pine cone at it. The ghost caught the pine cone.",
        )
        s.one(
            "{h} took one step, and then one more. The ghost had buttons!",
            "{h} pulled at it, very carefully. It was wet.",
        )
        s.one("It was {p's} night shirt, and it hung out to dry.", "It was only a sheet on a line.")
    s.one(
        "{They} laughed until {they} had to sit down.",
        "{h} turned red, and then {he} began to laugh.",
        "<h-f: It was your idea!> <f-h: No, it was yours!>",
        "First it was very quiet. Then all of {them} laughed.",
    )
    end(s, "After that, {h} always asked first.", "{They} talked about it for years.", moral="joy")


@plot("animal|child|gnome|elf", friend="cast", parent="any", weight=0.9, tells=0.06, season="autumn|summer")
def too_big(s: Story) -> None:
    s.words["veg"] = s.pick("turnip|pumpkin|carrot|radish|cabbage|potato")
    open_story(s)
    begin(
        s,
        (
            "{h} wanted to pull a {veg} out of the ground.",
            "{h} saw a {veg} in the field. It was as big as a [barrel|house|cow]!",
            "{h} planted a {veg}, and it grew and grew and would not stop.",
        ),
    )
    s.one(
        "{h} pulled. It did not move.",
        "{h} pulled and pulled, until {he} fell over backward.",
        "It was stuck as if it were nailed down.",
    )
    s.one(
        "{h} called {p}. {h} pulled, and {p} pulled. Nothing!",
        "{p} came and helped. {They} counted to three and pulled. It did not move at all.",
    )
    s.one(
        "Then {f.new} came by. Now three of {them} pulled, one behind the other.",
        "<h-f: Can you help us?> {f.a} took hold as well.",
    ) if s.chance() < 0.5 else s.one(
        "{f.new} laughed. <f-h: I will show you how to do it.> But {f} could not do it either."
    )
    s.one(
        "Then came a cow, and then a donkey, and then two hens. {They} all pulled.",
        "More and more came, big ones and small ones, until the line reached the road.",
    )
    s.par()
    way = s.pick("mouse|rain|dig|ask")
    if way == "mouse":
        s.one(
            'Last of all came a tiny mouse. {They} all laughed. "What can you do?"\x01'
            if s.beings["h"].noun != "mouse"
            else 'Last of all came a tiny beetle. {They} all laughed. "What can you do?"\x01'
        )
        s.one(
            "But the little one took hold too. One, two, three, plop! Out it came!",
            '"One more can be just enough," said the little one. And it was!',
        )
        s.one("{They} all fell down in one big heap.", "The line fell over, like a row of blocks.")
    elif way == "rain":
        s.one(
            "Then it began to rain. {They} were all wet and cross. <h/sad: We will never do it.>",
            "In the end, {they} were so tired that {they} sat down. Then it rained.",
        )
        s.one(
            "But the rain made the ground soft. {h} gave one small pull. Plop!",
            "The water ran down, and the {veg} came up, all by itself, like a cork.",
        )
    elif way == "dig":
        s.one(
            'A mole put its head out. "Why are you pulling? Why do you not dig?"\x01'
            if s.beings["h"].noun != "mole"
            else "{h} stopped. <h: Why are we pulling? I can dig!>",
            "{f} sat down and thought. <f: What if we push from below?>"
            if s.beings["f"].seen >= 0
            else "{h} sat down and thought. <h: What if we push from below?>",
        )
        s.one(
            "So {they} dug a hole beside it, and in a minute it lay there on the grass.",
            "{They} dug and pushed, and up it came.",
        )
    else:
        s.one(
            "{h} had an idea. {he} bent down and knocked. <h/kind: Would you please come out?>",
            '"Has anybody asked it?" said a snail.',
        )
        s.one('"Well," said the {veg}, "since you ask so nicely." And out it came.')
        s.one("{They} were all very surprised.")
    s.one(
        "{They} made [soup|a pie] out of it, and there was enough for the whole village, and for the next day too.",
        "{They} cooked it in the biggest pot there was, and everybody who had pulled got a plate.",
        "{h} hollowed it out and made a boat of it."
        if s.words["veg"] in ("pumpkin", "turnip")
        else "It was enough for a whole winter.",
    )
    end(s, "And {they} saved one seed for the next year.", moral="help")


@plot(
    "child|animal|shepherd|elf|prince|princess|giant",
    friend="",
    weight=0.8,
    tells=0.12,
    places="hill|forest|lake|meadow|river",
)
def the_echo(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            '{h} stood {here} and called, "Hello!" And somebody answered, "Hello!"\x01',
            '{h} shouted for joy {here}. "Hooray!" And from far away it came back. "Hooray!"\x01',
        ),
    )
    s.one(
        '<h: Who are you?> "Who are you?" asked the voice.',
        "{h} looked behind the rocks. Nobody was there.",
        '<h: Come out!> "Come out!" said the voice.',
    )
    s.one(
        '<h/angry: Do not copy me!> "Do not copy me!" it said.',
        '{h} stamped. <h/angry: You are silly!> "You are silly!" the voice shouted back.',
        '<h/angry: Go away!> "Go away!" it cried.',
    )
    s.one(
        "{h} was cross and went home.",
        "{h} picked up a stone. Then {he} put it down again.",
        "The more {h} shouted, the angrier the voice became.",
    )
    s.par()
    cast_grown(s)
    s.one(
        "On the way {he} met {w.a}. <h-w: Somebody over there is mean to me.>",
        "{w.a} had heard everything. <w-h: Who are you fighting with?>",
    )
    s.one("<w/kind-h: Go back and say something nice.>", "<w/kind-h: Try it with a kind word.>")
    s.one(
        '{h} did not believe it. But {he} went back. <h/shy: I am sorry.> "I am sorry," said the voice.',
        'So {h} took a breath. <h: You have a nice voice!> "You have a nice voice!" it said.',
    )
    s.one(
        '<h/happy: Do you want to be my friend?> "Be my friend," said the voice, very softly.',
        '<h: I like you!> "I like you!" it called.',
    )
    s.one(
        "{h} laughed, and the whole valley laughed with {him}.",
        "{h} sang, and somebody far away sang the second voice.",
    )
    s.may(
        0.6,
        "<h-w: Who is it?> <w/kind-h: Your own voice. What you call out comes back to you.>",
        "{w} winked. <w-h: It is the same with everyone you meet.>",
    )
    end(
        s,
        '"Good night!" called {h}. "Good night!" said the hills.',
        "After that, {h} only called nice things.",
        moral="joy",
    )


@plot("child|animal|folk|-giant|-snowman", friend="cast", parent="any", weight=1.0)
def bad_day(s: Story) -> None:
    open_story(s, day=False)
    begin(
        s,
        (
            "everything went wrong from the start.",
            "{h} got up on the wrong side of the {h.bed}.",
            "{h} woke up and stepped right into something wet.",
        ),
    )
    wrongs = [
        "{his} breakfast fell on the floor.",
        "{h} put {his} hat on backward and walked into a tree.",
        "A bird took {his} [bread|bun|pear].",
        "{h} sat down on something sticky. It was honey.",
        "It began to rain just over {his} head, or so it seemed.",
        "{h} wanted to say something nice, but it came out wrong.",
        "{he} slipped on a wet leaf. Bump!",
        "{h} lost {his} lucky stone.",
        "{his} best joke made nobody laugh.",
        "A bee chased {him} around the house.",
        "{h} fell into the only puddle far and wide.",
    ]
    for i in range(s.choose((3, 4, 4))):
        w = s.take(wrongs)
        starts = (
            s.pick(("First, ", "To begin with, ", "")),
            s.pick(("Then ", "Next, ", "After that, ")),
            "",
            s.pick(("And then ", "To top it all, ")),
        )
        s.tell(prefixed(starts[i], w))
    s.one(
        "<h/angry: This is a bad day! I am going back to bed!>",
        "<h/sad: Today everything is against me.>",
        '"Enough!" cried {h}.',
    )
    feel(s, "h", s.pick("angry|sad"), 0.5)
    s.par()
    way = s.pick("list|restart|worse|rain")
    if way == "list":
        s.one(
            "{p} listened to it all. <p-h: And what was good today?> <h-p: Nothing!> <p-h: Nothing at all?>",
            "<p/kind-h: Tell me one good thing.> {H} thought and thought.",
        )
        s.one(
            "<h-p: Well. The puddle was warm.> <p-h: That is one.>",
            "<h-p: There was a rainbow. A small one.> <p-h: That is one.>",
        )
        s.one(
            "<h-p: And the bird looked very happy with my bread.> <p-h: That is two.>",
            "<h-p: And you are here.> <p/kind-h: That is a big one.>",
        )
        s.one(
            "In the end there were ten good things and only nine bad ones. {h} had to laugh.",
            "{They} counted on, and when {they} had no more fingers, the bad feeling was gone."
            if s.group == "child"
            else "{They} counted on and on, and in the end, the bad feeling was gone.",
        )
    elif way == "restart":
        s.one(
            "<p-h: Shall we start the day again?> {P} made it dark, and {h} lay down and closed {h.his} eyes.",
            "So {h} went back to {his} {h.bed}, lay down, and got up again, this time on the other side.",
        )
        s.one(
            '"Cock-a-doodle-doo!" called {p}. <p/happy-h: Good morning! What a lovely day!>',
            "<h: Good morning, world. Now we will try that again.>",
        )
        s.one(
            "{They} had breakfast for the second time, and nothing fell down.",
            "The rain had stopped, and there was a new smell in the air.",
        )
        s.one("And the second part of the day was so nice that {h} forgot the first.")
    elif way == "worse":
        s.one(
            "Then {h} met {f.new}. {f.he} had fallen into the brook, and lost a shoe, and there was a frog on {f.his} head."
            if s.group == "child"
            else "Then {h} met {f.new}. {f.he} had fallen into the brook, and there was a frog on {f.his} head."
        )
        s.one(
            "<f/sad-h: I have had such a bad day.> <h-f: Me too! You tell me yours, and I will tell you mine.>",
            "{They} looked at each other for a moment, and then {they} began to laugh.",
        )
        s.one(
            "{They} laughed so hard that the frog fell off.",
            "<f-h: A stone, too?> <h-f: And honey!> And {they} rolled on the ground with laughter.",
        )
        s.one("A bad day for two is only half as bad.")
    else:
        s.one(
            "{h} sat down in the middle of a puddle. It could not get any worse.",
            "It rained harder and harder. {h} was wet all over. So it did not matter any more.",
        )
        s.one(
            "{h} kicked the water, and it made a big splash. {he} kicked again. It was fun!",
            "{h} jumped. Splash! {h} jumped once more. Splash!",
        )
        s.one(
            "{f.new} came running, and then others too. {They} all jumped in the rain.",
            "Soon {p} came out with an umbrella. {P} looked at {h.o}, put the umbrella away, and jumped in too.",
        )
        s.one(
            "{They} splashed and sang until {they} were blue.", "Nobody had ever had so much fun in such bad weather."
        )
    end(s, '"It was a good bad day," said {h} in the evening.', '"Tomorrow is a new day," said {p}.', moral="joy")


@plot("child|animal|folk|thing|-giant|-snowman|-cloud|-star", friend="pair", weight=0.9, tells=0.1)
def just_a_day(s: Story) -> None:
    """A quiet day: small joys, one after the other, and one small turn."""
    thing = s.group == "thing"
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} had nothing to do.",
            "{h} and {f} met early in the morning.",
            '{h} said to {f}, "Let us go and see what the day has for us."\x01',
            "{h} and {f} went out to find something {they} had never seen before.",
        ),
    )
    s.one("{They} went {to}. {sight}", "The way led {to}. {sight}", "First {they} looked around {at}. {sight}")
    s.may(
        0.7,
        "<f-h: What is that?> It was {creature}.",
        "{f} found {find} and gave it to {h.o}.",
        "{sight}",
        "{They} followed {creature} for a while.",
    )
    if not thing:
        play_together(s)
    else:
        s.one(
            "{They} went fast, and then {they} went slow.",
            "{They} said hello to everyone on the way.",
            "{They} went up one hill and down the other.",
        )
    s.par()
    s.one(
        "At noon {they} shared {treat}." if not thing else "At noon {they} rested in the shade.",
        "When {they} were tired, {they} sat down and told each other what {they} saw in the clouds."
        if not thing
        else "When {they} were tired, {they} stopped and looked at the clouds.",
    )
    s.one(
        "<h-f: That one looks like a [dragon|boot|cake].> <f-h: No, like my [uncle|grandma].>",
        "<f-h: What is the best thing in the world?> {H} thought about it. <h-f: Today.>",
        "<h-f: Do you think that the clouds know where they are going?> <f-h: Do we?>",
        "For a long time {they} did not say anything. With a friend, that is nice too.",
    )
    turn = s.pick("rain|found|help|lost")
    if turn == "rain":
        s.one(
            "Then there came a short, warm rain. {They} did not run away. {They} opened {their} mouths and caught the drops."
            if not thing
            else "Then there came a short, warm rain. It washed all the dust off {them}.",
            "A few drops fell. And then, over the hills, there was a rainbow.",
        )
        s.one(
            "<f/happy-h: Look! Seven colors!> {They} counted them, and {they} got nine.",
            "<h-f: I can smell the wet earth.>",
        )
    elif turn == "found":
        s.one(
            "Then {h} stumbled over something. It was {find}.",
            "On the way back, something shone {spot}. It was {find}.",
        )
        s.one(
            "{They} gave it a place of honor.",
            "<f-h: Whose is it?> Nobody knew. So {they} put it where the owner could see it.",
            "{They} looked at it from all sides, and then {they} put it back for the next one.",
        )
    elif turn == "help":
        s.one(
            "A beetle lay on its back and kicked its legs. {h} turned it over, very gently.",
            "A snail was crossing the road. {They} waited until it was on the other side. It took a while.",
            "A small bird had lost its way. {They} showed it the right tree.",
        )
        s.one("<h: Good luck, little one!>", "It did not say thank you, but it looked like it.")
    else:
        s.one(
            "Then {they} did not know the way any more. Left or right?",
            "<h-f: Have we been here before?> <f-h: I think so. Or not.>",
        )
        s.one(
            "{They} went left, and left again, and came out behind {their} own house. {They} had never seen it from that side."
            if not thing
            else "{They} went left, and left again, and there was a place {they} had never seen.",
            "{They} followed the smell of supper, and it was the right way."
            if not thing
            else "{They} followed the setting sun, and it was the right way.",
        )
    s.one(
        "When the sun was low, {their} shadows were as long as trees.",
        "In the evening, the sky turned [red|pink|purple] and gold.",
        "Then the first star came out, and it was time.",
    )
    end(
        s,
        '"What did you do today?" somebody asked. "Nothing," said {h}. And it had been wonderful.',
        '"Tomorrow again?" asked {f}. {H} only nodded.',
        moral="joy",
        friends=False,
    )
