"""Plots of every day: birthdays, teeth, messy rooms, food one does not like, saved coins, picnics, tents, the wind."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_friend, cast_other, cast_parent, cast_thing
from stories.events import aside, end, feel, prefixed
from stories.openings import begin, open_story
from stories.registry import plot
from stories.story import Story
from stories.things import TOYS, WEAR


@plot("child|animal|folk|-giant", friend="cast", parent="any", weight=1.2, tells=0.1)
def forgotten_birthday(s: Story) -> None:
    s.beings["f"].facts["rel"] = ""
    open_story(s, day=False)
    s.par()
    s.one(
        "One morning, {h} woke up early. It was {his} birthday!",
        "It was {h's} birthday at last.",
        '"Today is my birthday!" {h} said to the sun.',
    )
    s.one(
        '{h} ran to {p.o}. But {p} only said, "Good morning. Did you sleep well?"\x01',
        "{h} waited for a song. There was no song. {p} was busy with the [wash|dishes|broom].",
    )
    s.one(
        "{h} went to see {f.new}. <f-h: I have no time today. I am sorry!>",
        "Outside {he} met {f.new}. {F} hid something behind {f.his} back and ran away.",
        "{h} looked for {his} friends. Nobody was there. Even {f.new} was gone.",
    )
    s.may(
        0.6,
        "Not one card, not one flower, not one little cake.",
        "<h: Do you know what day it is?> <p-h: Yes. It is {day}.>",
        "Nobody said a word about it.",
    )
    feel(s, "h", s.pick("sad|lonely"))
    s.par()
    s.one(
        '{h} went off and sat {spot}. "They have all forgotten me," {he} thought.',
        "All day long, {h} walked around alone.",
        "{h} sang a birthday song for {himself}, very quietly.",
    )
    aside(s, 0.3)
    s.one(
        "In the evening {he} went home. It was dark in there. {h} opened the door.",
        "When it got dark, {h} came home with slow steps.",
        "Then {p} called. <p-h: {h.n}, can you come here for a minute?>",
    )
    s.one(
        '"Surprise!" Everyone was there! {f}, and {p}, and all the others.',
        'Then all the lights went on. "Happy birthday!" they shouted.',
    )
    s.one(
        "There were [paper stars|flowers|lanterns] everywhere, and in the middle stood a {cake} with candles.",
        "There was a {cake} as big as a wheel, and music, and a hat for everyone.",
        "{They} had worked all day: {f} had made the cake, and {p} had made the lights.",
    )
    s.one(
        "<h/happy: I thought that you had forgotten!> <p/kind-h: Forgotten? We have thought of nothing else all day!>",
        "{h} could not speak. {he} laughed, and there was a tear in it too.",
        "<f-h: It was so hard not to tell you!>",
    )
    s.one(
        "{h} blew out the candles and made a wish. But what could {he} wish for? {he} had everything.",
        "{They} danced until the moon came up.",
        "The best present was from {f}: {find2}.".replace(
            "{find2}",
            s.pick(
                "a box full of jokes|a shell that sounded like the sea|a drawing of the two of {them}|a tiny plant in a pot"
            ),
        ),
    )
    end(s, "It was the best birthday of all.", "That night {h} fell asleep with cake on {his} nose.", moral="friend")


@plot(
    "child|mouse|bear|rabbit|fox|elf|princess|raccoon|monkey",
    parent="mom|dad|grandma|grandpa",
    friend="",
    weight=1.1,
    tells=0.1,
)
def the_present(s: Story) -> None:
    cast_parent(s, "q")
    while s.beings["q"].noun == s.beings["p"].noun:
        cast_parent(s, "q")
    open_story(s)
    begin(
        s,
        (
            "{h} wanted to give {p.o} a present.",
            "{p's} birthday was near, and {h} had no present.",
            "{h} remembered that it was {p's} birthday the next day.",
        ),
    )
    s.one(
        "{h} looked into {his} money box. There were only three coins."
        if s.group == "child"
        else "But what do you give to somebody who has everything?",
        "It had to be something special.",
        "<h-q: What does {p.full} like?> <q/kind-h: Everything that you make.>".replace(
            "{p.full}", "she" if s.beings["p"].pronouns.he == "she" else "he"
        ),
    )
    tries = [
        "{h} painted a picture. But the paint ran, and {picture} looked like soup.",
        "{h} baked a cake. It was as hard as a brick.",
        "{h} picked flowers. But on the way home, a goat ate {them}.",
        "{h} wanted to make a chain of beads. The string broke, and the beads rolled away.",
        "{h} wrote a song. But {he} forgot how it went.",
        "{h} made a vase out of mud. It fell apart.",
    ]
    s.tell(prefixed("First, ", s.take(tries)))
    s.tell(prefixed(s.pick(("Then ", "After that, ")), s.take(tries)))
    feel(s, "h", "sad", 0.8)
    s.may(0.5, "<h/sad-q: Nothing works!>", "There was only one hour left.", "{h} sat on the step with empty {hands}.")
    s.par()
    feel(s, "h", "idea")
    way = s.pick("box|time|help|breakfast")
    if way == "box":
        s.one(
            "{h} took a little box, thought of all the nice things {he} knew, and blew a kiss into it. Then {he} closed it quickly.",
            "{h} filled a jar with small notes. On each of {them} was something that {he} loved about {p.o}.",
        )
        s.one(
            "{p} opened it. <p-h: What is in it?> <h/shy-p: Kisses. You can take one when you are sad.>",
            "{p} looked into it for a long time and did not say a word.",
        )
    elif way == "time":
        s.one(
            "{h} cut {number} tickets out of paper. On {them} {he} drew a broom, a plate and a hug.",
            "{h} gave {p.o} a whole day: a day with {him}.",
        )
        s.one(
            "<p-h: What is this?> <h-p: For this one, I wash the dishes. And for this one, you get a hug.>",
            "{they} went for a walk and had {treat}, and {h} asked a hundred questions, and {p} had time to answer {them} all.",
        )
        s.one("{p} used the hug ticket first.", "<p/happy-h: Nobody ever gave me time before.>")
    elif way == "help":
        s.one(
            "{h} got up before the sun. {he} swept the floor, and fed the hens, and set the table.",
            "While {p} was asleep, {h} mended the old [chair|bench] that {p} loved so much.",
        )
        s.one(
            "When {p} came in, {p.he} stood still. <p: Who did all this?>", "{p} rubbed {p.his} eyes. Was it a dream?"
        )
        s.one("{h} jumped out from behind the door. <h/happy-p: Happy birthday!>")
    else:
        s.one(
            "{h} took the burnt cake, the running picture and the three flowers that were left, and put {them} all on a tray."
            if s.chance() < 0.5
            else "{h} made breakfast: bread, honey, and an egg that was only a little bit broken.",
            "{h} tied a ribbon around {himself} and sat down on the table.",
        )
        s.one(
            "{p} laughed until {p.he} cried. <p/happy-h: That is the best present I ever got!>",
            "<p-h: Is that all for me?> <h/shy-p: It did not turn out right.> <p/kind-h: It is just right.>",
        )
    s.bank("hug", "p")
    end(
        s,
        "And what was left over, {they} ate together.",
        '"It is not the present," said {p}. "It is you."\x01',
        moral="joy",
    )


@plot("child", parent="mom|dad|grandma|grandpa", friend="cast", weight=0.8, tells=0.2)
def loose_tooth(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "{h} bit into an apple, and something wobbled. It was a tooth!",
            "{h} had a loose tooth.",
            "one of {h's} teeth began to wobble.",
        ),
    )
    s.one(
        "{h} pushed it with {his} tongue. It went this way and that way.",
        "It wobbled when {he} talked, and it wobbled when {he} laughed.",
        "<h/happy-p: Look! It moves!>",
    )
    s.one(
        "But {h} was a bit afraid. <h/scared-p: Will it hurt?> <p/kind-h: When it is ready, it will fall out by itself.>",
        "All {his} friends had lost a tooth, only {h} had not.",
        "{h} ate only soup, because {he} was afraid to bite.",
    )
    tries = [
        'Grandpa said, "Tie it to the door!" {h} ran away.',
        '{f.new} said, "I can pull it out for you." {H} shut {his} mouth tight.',
        "{h} ate a hard carrot, and it still did not come out.",
        "{h} wobbled it all day long, even at lunch.",
        "{h} talked to it. <h: Come on, tooth. Jump!>",
    ]
    s.par()
    s.tell(s.take(tries))
    s.may(0.7, s.take(tries))
    s.one(
        "Then, when {he} was not thinking of it at all, {h} sneezed. Achoo! Out it flew.",
        "And then, in the middle of a laugh, it was out.",
        "That evening {he} bit into {treat}, and there it was.",
    )
    way = s.chance()
    if way < 0.5:
        s.one(
            "But where was it? {h} looked under the table and behind the [stove|couch]. It was gone!",
            "It rolled over the floor and into a tiny hole. <h/sad: My tooth!>",
        )
        s.one(
            "{p} helped {him} look. {they} found {find}, two peas and a button, but no tooth.",
            "{h} cried. Now nobody would believe {him}.",
        )
        s.one(
            '<p/kind-h: Write a letter, and tell the truth.> So {h} wrote: "My tooth is in the mouse hole."\x01',
            "Then the cat stretched and got up. And there it lay, small and white!",
        )
    else:
        s.one(
            "It was so small! {h} could not believe that it had been in {his} mouth.",
            "{h} looked into the mirror. There was a little window in {his} smile.",
        )
        s.one(
            "<h/happy: I can whistle through it!> And {he} could.",
            'When {he} said "sun", it sounded like "thun". {p} laughed, and {h} laughed too.',
        )
    s.one("At night {he} put it under {his} pillow.", "{h} laid the tooth in a tiny box and put it beside the bed.")
    s.one(
        "In the morning, there was a shiny coin.",
        'And in the morning, there was a coin, and a very small note: "Well done."\x01',
    )
    end(s, "Now {h} was really big.", "{h} smiled at everyone, as wide as {he} could.", moral="brave")


@plot("child|mouse|rabbit|bear|raccoon|squirrel|elf|witch|pirate|monkey", parent="mom|dad", weight=1.0)
def messy_room(s: Story) -> None:
    s.words["trait"] = "messy"
    s.words["room"] = (
        "room" if s.group in ("child", "folk") else s.beings["h"].body("home").split(" of ")[0].split(" in ")[0]
    )
    open_story(s, day=False)
    s.one(
        "{h's} {room} was the messiest of all. You could not see the floor.",
        "In {his} {room}, there were things on the floor, things on the bed and things on top of the things.",
    )
    begin(
        s,
        (
            "{p} looked in. <p-h: {h.n}, please clean up!> <h-p: Later.>",
            "{p} fell over a pile of things. <p/angry-h: Today you clean up!>",
            "{h} could not find {his} other mitten.",
        ),
    )
    s.one(
        "{h} pushed everything under the bed. Done!",
        "{h} picked up one thing. Then {he} began to play with it.",
        "{h} lay down on the pile and looked at the ceiling.",
    )
    s.may(
        0.6, "The next day, it was even worse.", "<h: I like it like this.>", "Somewhere in there, something squeaked."
    )
    s.par()
    way = s.pick("lost|guest|mountain|game")
    if way == "lost":
        s.one(
            "Then came the day of the big [trip|feast]. But where was {his} [ticket|lucky stone|costume]?",
            "Then {h} wanted to take {his} favorite toy to a friend. It was not there.",
        )
        s.one(
            "{h} dug left, {h} dug right. {he} found an old sandwich, but not the right thing.",
            "{h} turned everything over. {he} found things {he} had lost a year ago.",
        )
        s.one(
            "There was only one way. {h} had to clean up.",
            "<h/sad-p: I cannot find it!> <p-h: If everything has a place, you can find everything.>",
        )
        s.one(
            "Books to books, socks to socks, blocks to blocks. And at the very bottom, there it was!",
            "It took two hours. And the last thing {he} picked up was what {he} was looking for.",
        )
    elif way == "guest":
        cast_other(
            s,
            "x",
            "mouse|frog|beetle|hedgehog|spider" if s.beings["h"].noun != "mouse" else "frog|beetle|snail",
            "small|tiny|shy",
        )
        s.one(
            "In the middle of the mess, {h} found {x.a}. {X} had moved in!",
            "That night, something moved under the heap. It was {x.a}.",
        )
        s.one(
            "<x-h: It is so nice here. So many places to hide! I have asked all my cousins to come.>",
            "<x/happy-h: What a lovely nest!> {H} looked around. A nest?",
        )
        s.one(
            "The next day there were ten of them. The day after that, there were thirty.",
            "And at night they had a party and made a lot of noise.",
        )
        s.one(
            "So {h} cleaned up until everything was shiny. The cousins moved out, one by one.",
            "{h} made a cozy little box for {x.o} in the garden, and then {he} cleaned up the rest.",
        )
    elif way == "mountain":
        s.one(
            "One day the pile was as high as a mountain. {h} climbed up. At the top, {he} slipped.",
            "When {h} opened the door, it all came rolling out, and {h} was buried.",
        )
        s.one("<h/scared-p: Help! I am lost in my own {room}!>", "Only {his} nose was showing.")
        s.one(
            "{p} threw a rope and pulled {him} out. {They} both laughed, but {h} had learned something.",
            "{p} dug {h.o} out with a spoon, and it took until supper.",
        )
        s.one(
            "The two of {them} sorted everything: this to keep, this to give away, this to forget.",
            "After supper {they} cleaned up, and {they} sang a song with {number} verses.",
        )
    else:
        s.one(
            "{p} had an idea. <p-h: Let us play store. I will buy all the red things.>",
            "<p-h: I bet you cannot put everything away before this song is over.> <h-p: I bet I can!>",
        )
        s.one(
            "{h} ran and brought {them}. Then {p} bought everything that was round, and then everything soft.",
            "{h} raced around like the wind. Toys flew into boxes, and books flew onto shelves.",
        )
        s.one(
            "And suddenly you could see the floor. It was blue! {h} had forgotten that.",
            "When it was over, the {room} was clean, and {h} had not even noticed.",
        )
    end(
        s,
        "{h} turned around in the middle of the {room}. There was so much room to dance!",
        "It stayed clean for almost a week.",
        moral="careful",
    )


@plot(
    "child|bear|rabbit|panda|dragon|mouse|prince|princess|elephant|monkey|robot",
    parent="mom|dad|grandma|grandpa",
    weight=0.9,
)
def picky_eater(s: Story) -> None:
    s.words["yuck"] = (
        s.pick("soup|spinach|peas|carrots|mushrooms|beans|pumpkin") if s.beings["h"].noun != "robot" else "green oil"
    )
    open_story(s, day=False)
    s.one(
        "{h} only liked one thing: [pancakes|noodles|bread with jam].",
        "There was one thing that {h} would never eat: {yuck}.",
        'At every meal, {h} said the same word: "Yuck!"\x01',
    )
    begin(s, ("{they} had {yuck} for lunch.", "{p} put a big plate of {yuck} on the table.", "{p} cooked {yuck}."))
    s.one(
        "<h/angry-p: I do not like it!> <p-h: You have never tried it.> <h-p: I know it without trying.>",
        "{h} shut {his} mouth tight and shook {his} head.",
        "{h} hid it under the [plate|napkin|table].",
        "<h: It looks like something from a pond.>",
    )
    s.one(
        "<p/kind-h: Just one bite.> <h-p: Never!>",
        "{p} did not say anything. {p.he} ate {p.his} own, and it seemed to taste very good.",
        "{p} sighed and took the plate away.",
    )
    s.par()
    way = s.pick("garden|game|guest|hungry")
    if way == "garden":
        s.one(
            "The next week, {p} took {h.o} to the garden. {They} planted little seeds.",
            '"Come," said {p} the next day. "I want to show you where it grows."\x01',
        )
        s.one(
            "{h} watered {them} and watched {them} and pulled out the weeds.",
            "{h} dug in the soil and found some with {his} own {hands}.",
        )
        s.one(
            "Then came the day when it was ready. {h} had grown it {himself}! {he} took a tiny, tiny bite.",
            "{h} washed it and looked at it. It was {his} own. So {he} tried it.",
        )
    elif way == "game":
        s.one(
            "<p-h: Close your eyes. You are a [dragon|giant|rabbit], and this is your magic food.>",
            "{p} made a face on the plate, with two eyes and a big green smile.",
        )
        s.one(
            "{h} thought about that. {he} opened one eye. Then {he} opened {his} mouth.",
            "<h-p: What kind of magic?> <p-h: It makes you strong enough to lift me up.>",
        )
        s.one(
            "{h} took a bite, then another one, and tried to lift {p.o}. {p} jumped a little, to help.",
            "One bite for the giant, one for the moon, one for {creature}.",
        )
    elif way == "guest":
        cast_friend(s, "g")
        s.one(
            "That day {g.new} came to lunch. <g/happy: {yuck}! My favorite!>",
            "Then {g.new} came by and looked at the plate. <g-h: Do you not want it? May I have it?>",
        )
        s.one("{G} ate one plate, and then a second one. {h} watched.", '"Mmm," said {g}. "Mmm, mmm, mmm."\x01')
        s.one(
            "Was it really that good? {h} took a tiny bit with the tip of {his} fork."
            if s.group != "animal"
            else "Was it really that good? {h} took a tiny bit.",
            "<h/shy-g: Can I have a bite of yours?>",
        )
    else:
        s.one(
            "Later {h} was hungry. {his} belly growled like a bear. There was only {yuck}.",
            "{They} went for a long walk, up the hill and down again. When {they} came home, {h} could have eaten a chair.",
        )
        s.one(
            "{h} looked left and right. Nobody was watching. {he} took one bite.",
            '"Only because I am so hungry," {h} said.',
        )
    s.one(
        "It was not bad. It was not bad at all!",
        "{h} chewed. {he} stopped. {he} chewed again. <h: Hm.>",
        "It tasted a little like [nuts|butter|summer].",
    )
    s.one(
        "<h/shy-p: Is there any more?>",
        "And then the plate was empty.",
        "{p} did not say a word, but {p.he} smiled at the pot.",
    )
    end(
        s,
        "The next day, there was something new on the table. <h: What is that? Yuck!> Then {h} laughed.",
        "But {he} still did not like [onions|cabbage].",
        moral="try",
    )


@plot(
    "child|animal|pirate|elf|gnome|witch|wizard|-snail|-penguin",
    season="autumn|spring|winter",
    friend="cast",
    weight=1.1,
    tells=0.08,
)
def the_wind_took_it(s: Story) -> None:
    cast_thing(
        s,
        "o",
        [w for w in WEAR if w.noun in ("hat", "scarf", "cap", "umbrella", "ribbon", "blanket")]
        + [t for t in TOYS if t.noun in ("kite", "toy plane")],
    )
    s.weather = "windy"
    open_story(s)
    begin(
        s,
        (
            "a strong wind came up and took {h's} {o.adjective} {o.noun}.",
            "{h} went out with {his} new {o.adjective} {o.noun}. Whoosh! The wind took it.",
            "{h} held on to {his} {o.noun} with all {his} strength. But the wind was stronger.",
        ),
    )
    s.one(
        "<h: Stop! Come back!> But the wind did not listen.",
        "Up it flew, over the fence and away.",
        "{h} jumped, but it was too high.",
    )
    s.one("{h} ran after it.", '"Catch it!" called {h} and ran.', "And {h} ran, and ran, and ran.")
    s.par()
    stops = [
        "It landed on the head of a cow. <h: Hold still!> But the cow shook her head, and off it went.",
        "It hung in a tree for a moment. {h} climbed up. Just then, whoosh, it flew on.",
        "It danced over the water. A duck tried to catch it, but she was too slow.",
        "It fell right in front of {creature}. {h} reached out, and the wind laughed and took it again.",
        'It flew through an open window and out through the other one. "Oh!" said somebody inside.',
        "It rolled down the hill like a wheel.",
        "It sat down on the tower clock" + " for a moment, as if it wanted to know the time.",
    ]
    for i in range(3):
        if i < 2 or s.likely(0.5):
            s.tell(prefixed(("", "Then ", "After that, ")[i], s.take(stops)))
    s.may(
        0.5,
        "{h} was out of breath.",
        '"I will never get it back," {h} thought.',
        "By now everyone in the street was running after it."
        if s.group == "child"
        else "By now a whole crowd was running after it.",
    )
    s.par()
    way = s.pick("friend|nest|home|cold")
    if way == "friend":
        s.one("At last it landed in the arms of {f.new}.", "Then somebody caught it. It was {f.new}.")
        s.one(
            "<f-h: Is this yours? It came to me out of the sky!> <h/happy-f: Yes! Thank you!>",
            "<f/happy-h: I was wishing for a friend, and the wind brought me this.>",
        )
        s.one(
            "{They} laughed about it, and then {they} raced the wind together.",
            "Now each of {them} held one end, and the wind did not get it again.",
        )
        end(s, '"Thank you, wind," said {h}.', moral="friend", friends=True)
    elif way == "nest":
        s.one(
            "It was stuck high up in a tree. A bird was already sitting in it.",
            "Some days later {h} found it in a bush. There were three blue eggs in it.",
        )
        s.one(
            "{h} looked at it for a while. <h/kind: Keep it. You need it more than I do.>",
            "{h} could not take it away now.",
        )
        s.one(
            "In spring, {number} little birds looked over the edge.",
            "And {h} got a new one, with a string under the chin."
            if s.beings["o"].noun in ("hat", "cap")
            else "And {h} got a new one, and this time {he} held on to it.",
        )
        end(s, moral="share")
    elif way == "home":
        s.one(
            "In the end, {h} gave up and went home, sad and tired. And what hung on the gate? {his} {o.noun}!",
            "{h} turned around. It was nowhere to be seen. But when {he} came home, it was lying in front of the door.",
        )
        s.one(
            "The wind had only played a game.",
            "<h: You silly wind!> And the wind laughed in the chimney."
            if s.group == "child"
            else "<h: You silly wind!> And the wind laughed in the trees.",
        )
        end(s, "After that, {h} tied it on with a ribbon.", moral="joy")
    else:
        s.one(
            "It came down right on somebody who was cold. {f.new} was shivering {spot}.",
            "It landed around the neck of {f.new}, who had no coat.",
        )
        s.one(
            "<f/shy-h: Is this yours? It is so warm.> {H} looked at {f.o}, and then {h.he} smiled. <h/kind-f: The wind gave it to you.>",
            "{F} wanted to give it back. <h/kind-f: We can share it. One day you, one day me.>",
        )
        end(s, "Maybe the wind knew what it was doing.", moral="share", friends=True)


@plot("child", parent="any", places="market|park|beach", weight=0.9, tells=0.12)
def saved_coins(s: Story) -> None:
    cast_thing(s, "o", [t for t in TOYS if t.noun not in ("wagon",)])
    open_story(s)
    begin(
        s,
        (
            "{h} saw {o.a} in a shop window.",
            "{h} stood in front of the toy shop. There it was: {o.a}!",
            "{h} saw the most beautiful {o.noun} in the world. It was {o.adjective}.",
        ),
    )
    s.one(
        "It cost ten coins. {h} had only two.",
        "<h-p: Can I have it?> <p-h: You can save up for it.>",
        "{h} pressed {his} nose against the glass.",
    )
    s.one(
        "So {h} went to work. {he} swept the steps of the neighbor and got one coin.",
        "{h} walked the dog of the old lady next door. {h} watered the baker's flowers. {h} carried bags.",
        "{h} sold lemonade in front of the house. The first cup {he} drank {himself}.",
    )
    s.may(
        0.6,
        "Every coin went into a jar. Clink!",
        "Each evening {h} counted: three, four, five.",
        "It rained for a week, and nobody bought anything.",
    )
    s.par()
    s.one(
        "At last the jar was full. {h} ran to the shop.",
        "Then came the day when {he} had ten coins. {h} put {them} in {his} pocket and set off.",
    )
    if s.chance() < 0.6:
        s.one(
            "But on the way, {h} saw a small child. The child was crying, for the money for the bread was lost.",
            "But at the corner stood an old man with a fiddle. It had only one string left.",
            "But in front of the shop sat somebody who had no shoes, and it was cold.",
        )
        s.one(
            "{h} felt the coins in {his} pocket. {They} were heavy.",
            "{h} looked at the shop, and then {he} looked back.",
            "{h} walked on. Then {he} walked slower. Then {he} stopped.",
        )
        s.one(
            "{h} took out the coins and gave {them} away, every one of {them}.",
            "It was hard. But then it was easy. <h/kind: Here. You need it more than I do.>",
        )
        s.one(
            '"Thank you," was all they said. But their eyes shone.',
            "{h} went home with empty pockets and a full heart.",
        )
        s.may(
            0.8,
            "On {his} birthday, there was a box on the table. In it was {o.a}. {p} had seen everything.",
            'A week later, the man from the shop knocked at the door. "I saw what you did," he said and gave {him} {o.the}.',
            "And when {h} passed the shop, {he} found that {he} did not need {o.the} any more.",
        )
        end(s, moral="help")
    else:
        s.one(
            "But the place in the window was empty!",
            '"I am sorry," said the man in the shop. "I sold it this morning."\x01',
        )
        feel(s, "h", "sad")
        s.one(
            '{h} turned to go. Then the man called, "Wait! There is one more. But it is not finished."\x01',
            "{h} walked home slowly. In {his} pocket, the coins clinked.",
        )
        s.one(
            "So {h} bought wood and paint with {his} coins, and with {p's} help {he} made one {himself}.",
            "{they} finished it together, and {h} painted it {color}.",
        )
        s.one(
            "It was a bit crooked. But nobody in the world had the same one.",
            "It was even better than the one in the window.",
        )
        end(s, moral="try")


@plot(friend="pair", season="summer|spring", weight=1.1)
def the_picnic(s: Story) -> None:
    s.weather = s.pick("sunny|warm")
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} wanted to have a picnic.",
            '{h} said, "Let us have a picnic!" And {f} was already packing.',
            "{h} and {f} packed a basket with {treat} and {treat}.",
        ),
    )
    s.one(
        "{They} put {treat} into a basket, and {treat}, and a blanket.",
        "{h} carried the basket, and {f} carried the blanket.",
        "It had to be the perfect place. Here it was too sunny, and there it was too wet.",
    )
    s.one(
        "At last {they} found a good place, right {spot2}.".replace(
            "{spot2}", s.pick("under an old tree|beside a little brook|on top of a small hill")
        ),
        "{They} sat down in the soft grass.",
    )
    way = s.pick("ants|rain|forgot|visitors|bee")
    s.par()
    if way == "ants":
        s.one(
            "{f} opened the basket. It was moving! Hundreds of ants were in it.",
            "When {they} looked away, a long black line came through the grass. Ants!",
        )
        s.one("<f/angry: Shoo! Go away!> But the ants did not listen.", "One after the other, the crumbs walked away.")
        s.one(
            "<h-f: Look how strong they are! That one is carrying a whole [cherry|crumb].>",
            "{h} lay down on {h.his} belly to watch.",
        )
        s.one(
            "{They} made a trail of sugar, far away from the blanket, and the ants were happy.",
            "{They} gave the ants the crusts, and kept the middle for {themselves}.",
        )
    elif way == "rain":
        s.one(
            "Then a fat drop fell on {h's} nose. And another one. And then a thousand.",
            "{They} had just sat down when it began to pour.",
        )
        s.one("<f/sad-h: Everything is getting wet!>", "{They} grabbed the basket and ran.")
        s.one(
            "{They} crept under the blanket and ate there, with the rain drumming on top.",
            "{They} found a little [cave|barn|hollow tree] and sat down in it. It was dry and cozy.",
        )
        s.one(
            "The bread was wet, and the cake was wet, and {they} laughed about it.",
            "<h-f: This is the best picnic of all.> <f/happy-h: The wettest, anyway!>",
        )
        s.one("Then the sun came out, and a rainbow stood over the fields.")
    elif way == "forgot":
        s.one(
            "{h} opened the basket. It was empty! <h-f: I thought that you had packed it.> <f-h: I thought that you had!>",
            "<f-h: Where is the basket?> It was still at home, on the table.",
        )
        s.one(
            "{They} looked at each other. {Their} bellies growled, first one, and then the other.",
            "For a moment {they} wanted to be cross. But then {they} had to laugh.",
        )
        s.one(
            "So {they} looked around. There were [blackberries|wild strawberries] and [nuts|apples|mint], and water from the brook.",
            "{They} picked berries until {their} fingers were blue."
            if s.group == "child"
            else "{They} picked berries until {their} noses were blue.",
        )
        s.one(
            "{They} laid everything on a big leaf. It was a feast!", "Nothing from a basket could have tasted better."
        )
    elif way == "visitors":
        s.one(
            "{h} was about to take the first bite when {creature} came by and looked hungry.",
            "Then somebody coughed. It was a small, thin squirrel."
            if s.beings["h"].noun != "squirrel" and s.beings["f"].noun != "squirrel"
            else "Then somebody coughed. It was a small, thin hen.",
        )
        s.one(
            "{They} gave it something. A minute later, it came back with its whole family.",
            "<h/kind: Would you like some?> And then there was another one, and another one.",
        )
        s.one(
            "In the end {they} had only one {thing} left, and {number} guests.".replace(
                "{thing}", s.pick("cookie|cherry|egg")
            ),
            "Soon there were more guests than crumbs.",
        )
        s.one(
            "But the guests had brought something too: one had a nut, one had a song, one had a joke.",
            "Then the guests ran off and came back with nuts and berries, and the party went on.",
        )
    else:
        s.one(
            "Then a bee came and sat down on the jam. {f} jumped up and ran around in circles.",
            "Bzzz! A bee flew around {f's} nose.",
        )
        s.one(
            "<h/kind-f: Stand still, like a tree.> <f/scared-h: I am a tree, I am a tree, I am a tree.>",
            "<f/scared: Go away!> The bee only buzzed louder.",
        )
        s.one(
            "{h} put a drop of honey on a leaf and carried it a few steps away. The bee followed.",
            "The bee sat on {f's} ear for a moment. Then it saw a flower, and off it went.",
        )
        s.one(
            "<f-h: Is it gone?> <h-f: It has been gone for a long time.> {F} was still a tree.",
            "{They} watched how it drank and flew home. <f: It only wanted lunch, like us.>",
        )
    s.may(
        0.5,
        "Then {they} lay on {their} backs and looked at the clouds.",
        "Afterward {they} {pastime}.",
        "{They} were so full that {they} rolled home.",
    )
    end(s, '"Same place tomorrow?" asked {f}. "Same place tomorrow," said {h}.', moral="joy")


@plot(
    "child|bear|mouse|rabbit|hedgehog|elf",
    friend="pair",
    parent="dad|mom|grandpa",
    season="summer",
    weight=0.8,
    tells=0.1,
)
def night_outside(s: Story) -> None:
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} wanted to sleep outside.",
            "{h} and {f} put up a tent behind the house."
            if s.group == "child"
            else "{h} and {f} made a bed of leaves under the open sky.",
            '{h} asked {p.o}, "May we sleep outside tonight?" {P} thought about it and nodded.',
        ),
    )
    s.one(
        "{They} took a lamp, two blankets and {treat}.",
        "<p-h: I will leave the door open.> <h/proud-p: We will not need it!>",
        "<f/proud: We are not afraid of anything.>",
    )
    s.one(
        "First it was fun. {They} told jokes and counted the bats.",
        "{They} made shadows with the lamp: a rabbit, a wolf and a crooked swan.",
        "{They} lay on {their} backs and looked for falling stars.",
    )
    s.par()
    s.one("Then it got dark. Really dark.", "Then the lamp went out.", "Then {they} heard something. Crack!")
    s.one(
        "<f/scared-h: Did you hear that?> <h/scared-f: No. Yes.>",
        "Something was walking around {them}. Step, step, step.",
        "Something breathed, very near.",
        '"Hoo," went something in the tree.',
    )
    s.one(
        "{They} held on to each other and did not move.",
        "{They} pulled the blankets over {their} heads.",
        "<h/scared-f: You look.> <f/scared-h: No, you.>",
    )
    s.one(
        "Then a nose came in. It was wet and cold. It was only the [dog|neighbor's cat|calf]!"
        if s.group == "child"
        else "Then a nose came out of the dark. It was only a hedgehog!"
        if s.beings["h"].noun != "hedgehog" and s.beings["f"].noun != "hedgehog"
        else "Then a nose came out of the dark. It was only a mole!",
        "{h} looked out. It was {p}, with two more blankets and cocoa.",
        "It was only an apple that had fallen down. And then another one: thump!",
    )
    s.one(
        "{They} laughed so loudly that a window opened somewhere."
        if s.group == "child"
        else "{They} laughed so loudly that the owl flew away.",
        "<f-h: I knew it all the time.> <h-f: Of course you did.>",
    )
    s.one(
        "After that, the night sounds were not so strange. They were even a little bit like music.",
        "{They} moved closer together, and soon {they} were asleep.",
        "One after the other, the stars came out and looked down at {them}.",
    )
    s.one(
        "In the morning, there was dew on {their} noses.",
        "A bird woke {them} up, very early, with a very loud song.",
        "The first thing {they} saw was the sky.",
    )
    end(s, '"And tonight?" asked {f}. "Tonight," said {h}, "I sleep in my {h.bed}."\x01', moral="brave")
