"""Plots about helping: old neighbors, hurt wings, stuck cats, sick friends, lost pets, shared soup, letters."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_friend, cast_grown, cast_other
from stories.events import aside, end, feel, prefixed
from stories.openings import begin, open_story
from stories.registry import plot
from stories.story import Story


@plot("child|animal|folk|-giant|-snail|-ant|-ladybug|-bee|-caterpillar", weight=1.2)
def old_neighbor(s: Story) -> None:
    child = s.group == "child"
    cast_grown(s, jobs=("old man m", "old woman f", "old woman f")) if child else cast_grown(s)
    s.beings["w"].adjective = "" if s.beings["w"].noun.startswith("old") else "old"
    open_story(s)
    s.one(
        "Nearby lived {w.a}.",
        "At the end of the road lived {w.a}. {W} always looked cross."
        if child
        else "Not far away lived {w.a}. {W} always looked cross.",
        "{w.a} lived there too, all alone.",
    )
    trouble = s.pick("glasses|bag|fence|wood|garden|lonely")
    begin(
        s,
        {
            "glasses": (
                "{h} saw that {w} was looking for something.",
                "{h} met {w.o}. {W} was crawling around on the ground."
                if child
                else "{h} met {w.o}. {W} was looking at the ground.",
            ),
            "bag": (
                "{h} saw {w.o} with a heavy bag.",
                "{w} came up the hill with a big bag. Every few steps, {w.he} had to stop.",
            ),
            "fence": (
                "the storm had blown down {w's} fence.",
                "{w} stood in front of {w.his} broken fence and sighed.",
            ),
            "wood": (
                "it was cold, and {w} had no wood for the fire.",
                "{h} noticed that there was no smoke over {w's} house.",
            ),
            "garden": (
                "{h} saw that {w's} garden was full of weeds.",
                "{w} wanted to pick the apples, but {w.he} was too old to climb the tree.",
            ),
            "lonely": (
                "{h} saw {w.o} at the window. {W} looked sad.",
                "{h} noticed that nobody ever came to see {w.o}.",
            ),
        }[trouble],
    )
    s.may(
        0.5,
        "{h} was a bit afraid of {w.o}.",
        "{h} wanted to go and play. But {he} stopped.",
        "The others walked by. {h} did not.",
    )
    s.one(
        "<h/shy-w: Can I help you?>",
        "<h/kind-w: Is something wrong?>",
        "<h-w: Good morning. What are you doing?>",
        "{h} went closer. <h/kind-w: Let me help you.>",
    )
    s.one(
        "{W} looked up. Nobody had asked {w.o} that for a long time.",
        "<w-h: You? You are so small!> <h-w: But I am strong.>",
        "<w-h: That is kind of you.>",
        "At first {w} only grumbled. Then {w.he} nodded.",
    )
    s.par()
    if trouble == "glasses":
        s.one("<w-h: I have lost my glasses, and without my glasses I cannot look for my glasses.>")
        s.one(
            "{h} looked {spot}. {h} looked under the table, in the bread and in the flower pot."
            if child
            else "{h} looked {spot}, and in every hole, and under every leaf.",
            "{They} looked for an hour.",
        )
        s.one(
            "Then {h} looked up and began to laugh. <h-w: They are on your head!>",
            "And then {h} found {them}. {They} were in the pocket of {w's} coat.",
            "At last, {h} saw something shine. {creature} was sitting on {them}.",
        )
        s.one("{w} put them on. <w/happy-h: So that is what you look like!>", "{W} laughed until {w.his} belly shook.")
    elif trouble == "bag":
        s.one(
            "{h} took one handle, and {w} took the other.",
            "{h} took the bag. It was so heavy that {he} had to use both {hands}.",
            "{h} got {his} little wagon, and {they} put the bag into it."
            if child
            else "{They} rolled it, and pushed it, and pulled it.",
        )
        s.one(
            "On the way, {w} told {h.o} stories from long ago, when {w.he} was small.",
            "The bag had a hole. Potatoes rolled down the hill, and {h} ran after every one of {them}."
            if child
            else "The bag had a hole. Nuts rolled down the hill, and {h} ran after every one of {them}.",
        )
        s.one(
            "At {w's} door {they} sat down and [drank lemonade|ate a pear].",
            "<w/kind-h: Without you, I would still be at the bottom of the hill.>",
        )
    elif trouble == "fence":
        s.one(
            "{h} held the boards, and {w} hammered. Bang, bang, bang!",
            "{h} gave {w.o} the nails, one by one.",
            "{h} called all {his} friends. With so many hands, it was done by noon."
            if child
            else "{h} called all {his} friends. Together it was done by noon.",
        )
        s.one(
            "Then {they} painted it. {h} painted {color}, and {w} painted {color}.",
            "In the end there was one board too many. It became a little bench.",
        )
    elif trouble == "wood":
        s.one(
            "{h} ran home and came back with a cart full of wood."
            if child
            else "{h} ran into the forest and came back with dry sticks, again and again.",
            "{h} went from door to door. Everybody gave one piece of wood, and soon there was a big pile."
            if child
            else "{h} asked the others. Each one brought a stick, and soon there was a big pile.",
        )
        s.one(
            "Soon the fire was burning, and the whole room was warm and golden.",
            "When the fire was burning, {w} took an old [flute|book] from the shelf.",
        )
    elif trouble == "garden":
        s.one(
            "{h} worked all afternoon, and {w} showed {h.o} what to pull out and what to leave.",
            "{h} climbed up into the apple tree and threw the apples down, and {w} caught {them} in {w.his} apron."
            if child
            else "{h} shook the tree, and the apples came down like rain.",
        )
        s.one(
            "{They} found a [toad|forgotten pumpkin|bird's nest] in the middle of it.",
            "There was a lot to do. But {they} laughed a lot, too.",
        )
    else:
        s.one(
            "The next day, {h} came back with {treat}. {w} opened the door, only a little.",
            "{h} picked a bunch of flowers, put {them} in front of {w's} door, knocked and hid.",
        )
        s.one(
            "<h/shy-w: I thought that you might like this.> {w's} chin began to shake.",
            "{W} looked left and right. Then {w.he} smelled the flowers and smiled.",
        )
        s.one(
            "It turned out that {w} could [do magic tricks|play the violin|tell the best stories in the world|make puppets out of socks]."
        )
    s.may(
        0.6,
        "<w/kind-h: Come in. I have {treat} for you.>",
        "<w/kind-h: You have a good heart.>",
        "{w} gave {h.o} [a shiny coin|an old map|a little wooden horse].",
        "{w} was not cross at all. {w.he} had only been alone too long.",
    )
    end(
        s,
        "After that, {h} came by every {day}.",
        "And nobody ever saw {w.o} look cross again.",
        "From then on, {w} waved whenever {h} went by.",
        moral="help",
    )


@plot("child|animal|folk|-giant|-snail|-ant|-bee|-ladybug|-caterpillar|-bird|-owl", parent="any", weight=1.1)
def hurt_animal(s: Story) -> None:
    child = s.group == "child"
    cast_other(
        s,
        "x",
        "bird|sparrow|robin|owl|butterfly|swallow"
        if s.chance() < 0.6
        else ("rabbit|fox|hedgehog|squirrel|turtle" if child else "bee|beetle|butterfly|sparrow"),
        "small|little|young",
    )
    x = s.beings["x"].noun
    open_story(s)
    s.words["part"] = (
        "wing" if x in ("bird", "sparrow", "robin", "owl", "butterfly", "swallow", "bee", "beetle") else "leg"
    )
    begin(
        s,
        (
            "{h} found {x.a} {spot}.",
            "{h} heard a soft sound {here}. {spot} lay {x.a}.",
            "something fell down in front of {h.o}. It was {x.a}.",
        ),
    )
    s.one(
        "{x.his} {part} was hurt.",
        "{X} could not [fly|get up] any more." if s.words["part"] == "wing" else "{X} could not walk.",
        "One {part} hung down, and {x.he} was shaking.",
    )
    s.one(
        "<h/kind-x: Do not be afraid. I will help you.>",
        "<h/sad-x: You poor little {x.noun}!>",
        "{h} wanted to pick {x.o} up, but {x} was afraid. So {h} waited, very still.",
        "{h} ran to {p.o}. <h-p: Please come! Somebody is hurt!>",
    )
    s.par()
    s.one(
        "{p} looked at the {part}. <p/kind-h: It needs rest, and it needs you.>",
        "{h} carried {x.o} home and made a soft bed in a box.",
        "Together, {they} made a nest out of [wool|hay|an old scarf].",
    )
    s.one(
        "{p} made a tiny splint from a [match|little stick] and a ribbon.",
        "{they} put a bit of cool moss on the {part}.",
        "{p} showed {h.o} how to hold {x.o}, as gently as a raw egg.",
    )
    s.one(
        "{h} fed {x.o} every hour, with [seeds|crumbs|drops of honey], and at night {he} got up to look."
        if x not in ("fox", "owl")
        else "{h} fed {x.o} every hour, and at night {he} got up to look.",
        "At first {x} did not want to eat. {h} sat beside {x.o} and talked until {x.he} took one crumb.",
        "{h} told {x.o} everything, and {x} was a good listener.",
    )
    s.may(
        0.6,
        "One day {x} [hopped|crept] onto {h's} {h.hand}.",
        "When {h} came, {x} made a glad little sound.",
        "{h} gave {x.o} a name. It was Crumb.",
        "Day by day, {x} grew stronger.",
    )
    s.par()
    s.one(
        'Then {p} said, "I think it is time."\x01',
        "After two weeks, the {part} was well.",
        "And one {weather} morning, {x} looked up at the sky."
        if s.words["part"] == "wing"
        else "And one {weather} morning, {x} looked over at the trees.",
    )
    s.one(
        "<h/sad-p: Can {x.he} not stay with us?> <p/kind-h: {x.he} has a home out there, just as you have one here.>"
        if s.chance() < 0.5
        else "{h} was sad. {he} wanted to keep {x.o} for ever.",
        "{h} knew what {he} had to do, but it was hard.",
    )
    s.one(
        "{h} opened {his} {hands}. For a moment, nothing happened. Then {x} flew up, up, up!"
        if s.words["part"] == "wing" and child
        else "{h} took one step back. For a moment, nothing happened. Then {x} was off!",
        "{they} took {x.o} back to where {he} had found {x.him}. {X} turned around once, and was gone.",
    )
    s.one("{h} cried a little, and {he} laughed a little.", "<h: Goodbye, {x.noun}!>", "{h} waved for a long time.")
    way = s.chance()
    if way < 0.6:
        s.one(
            "In spring, there was a tap at the window. And who sat there? {x}, and next to {x.o} three little ones!"
            if child
            else "In spring, somebody came to visit. It was {x}, with three little ones!",
            "But every evening, {x} came by and [sang|looked in], just to say good night.",
            "Some days later, {h} found a [feather|flower|shiny stone] at the door. {he} knew who had brought it.",
        )
    end(
        s,
        "{h} looked up and smiled. Somewhere out there, {he} had a friend.",
        "To love somebody sometimes means to let go.",
        moral="help",
    )


@plot("child", friend="cast", parent="any", places="park|garden|yard|farm", weight=0.9)
def stuck_cat(s: Story) -> None:
    cast_other(s, "x", "kitten|cat", "white|gray|orange|black|spotted")
    open_story(s)
    begin(
        s,
        (
            "{h} heard a sad meow. High up in a tree sat {x.a}.",
            "{x.a} was stuck in the top of a tree.",
            "{h} and {his} friends saw {x.a} in the old apple tree.",
        ),
    )
    s.one(
        '"Meow!" {X.he} could go up, but {x.he} could not come down.',
        "{x} looked down and cried.",
        "The branch was thin, and the wind was shaking it.",
    )
    tries = [
        "{h} held up a bowl of milk. {x} looked at it, but {x.he} did not move.",
        "{h} threw up a rope. It came down on {h.his} own head.",
        '{h} called, "Come, kitty, kitty!" {X} only climbed higher.',
        "{h} put a ladder against the tree, but it was too short.",
        "{h} shook the tree a little. That was a bad idea. {X} held on with all {x.his} claws.",
        "{h} sang a song about fish. {X} listened, but {x.he} stayed where {x.he} was.",
    ]
    for _ in range(s.choose((2, 3))):
        s.tell(s.take(tries))
    s.may(0.5, "More and more people came and looked up.", "It began to get dark.", "<h/sad: What shall we do?>")
    s.par()
    way = s.pick("fireman|basket|brave|self")
    if way == "fireman":
        s.one(
            "{p} called the fire station. Soon a big red truck came around the corner.",
            '"Make room!" somebody shouted. It was a firefighter with a long ladder.',
        )
        s.one(
            "Up went the ladder, and up went the firefighter. {x} was so surprised that {x.he} forgot to meow.",
            "<h: Please be careful with {x.him}!> The firefighter smiled and climbed up.",
        )
        s.one(
            "A minute later, {x} was sitting safely in {h's} arms, purring.",
            "And down they came, with {x} in the firefighter's coat.",
        )
        s.one("{h} was allowed to ring the bell of the truck. Ding, ding, ding!")
    elif way == "basket":
        feel(s, "h", "idea")
        s.one(
            "{h} took a basket and a long rope, and put a bit of fish into it. Then {he} threw the rope over a branch and pulled the basket up.",
            "{he} tied a basket to a rope and laid {his} own warm sweater in it. {f.new} pulled it up.",
        )
        s.one(
            "{x} smelled it. One paw, two paws, and then {x.he} sat in the basket.",
            "For a long time nothing moved. Then {x} jumped in!",
        )
        s.one(
            "Very, very slowly, {they} let it down.",
            "{they} let the rope go, bit by bit, and everybody held their breath.",
        )
    elif way == "brave":
        cast_grown(s)
        s.one(
            "{w.a} brought a longer ladder and held it. But who would go up? {h} was the lightest.",
            "<w-h: The branch is too thin for me.> <h/scared-w: Then I will go.>",
        )
        feel(s, "h", "brave")
        s.one(
            "Step by step, {h} went up. {he} did not look down.",
            "{h} climbed with one hand for the tree and one hand for the kitten.",
        )
        s.one("{x} crept onto {his} shoulder and hid in {his} hair.", "<h/kind-x: There you are. Hold on tight.>")
    else:
        s.one(
            "In the end, everyone sat down and had supper under the tree. It smelled of fish.",
            "At last, {they} gave up and went inside. The window stayed open.",
        )
        s.one(
            "And when nobody was looking, {x} came down all alone, backward, one paw after the other.",
            "A little later, somebody walked in through the window, tail up, as if nothing had happened. It was {x}!",
        )
        s.one("<h-x: You could do it all the time!> {X} only licked {x.his} paw.", "{h} laughed. Cats!")
    end(
        s,
        "The next morning, {x} was sitting in the tree again.",
        "{x} stayed close to {h.o} for the rest of the day.",
        "It turned out that {x} had no home. Well, now {x.he} had one.",
        moral="help",
    )


@plot(friend="pair", weight=1.0)
def sick_friend(s: Story) -> None:
    child = s.group == "child"
    open_story(s, pair=True)
    begin(
        s,
        (
            "{f} was sick and had to stay in bed.",
            "{h} went to fetch {f.o}. But {f} lay in bed with a red nose.",
            "{f} did not come out to play. {f.he} had a cold.",
        ),
    )
    s.one(
        "<f/sad-h: My head hurts, and I am bored.>",
        "<f/tired-h: I cannot play today.> And {f.he} coughed.",
        "{F} had spots all over, even on {f.his} ears.",
    )
    s.one(
        "{h} wanted to make {f.o} happy. But how?",
        "{h} thought about it all the way home.",
        "<h/kind-f: Wait here! I will be back.> Where else could {f} go?",
    )
    gifts = [
        "{h} made some {soup}. It was a bit thick, and the spoon stood up in it all by itself.",
        "{h} brought {find}, and {he} told {f.o} where {he} had found it.",
        "{h} put on a show at the window, with [socks|leaves] for puppets. {f} laughed and coughed and laughed."
        if child
        else "{h} put on a show in front of {f's} door, with leaves and sticks.",
        "{h} collected jokes from everyone and told {them}, one after the other.",
        "{h} could not bring the [meadow|lake|park] to {f.o}, so {he} brought a little piece of it in a box.",
        "{h} made a long paper chain, with one link for each day until {f} was well."
        if child
        else "{h} made a chain of flowers and hung it over {f's} bed.",
        "{h} read to {f.o} from a book about pirates."
        if child
        else "{h} told {f.o} a story about a snail who went around the world.",
    ]
    s.par()
    s.tell(prefixed("First, ", s.take(gifts)))
    s.tell(prefixed(s.pick(("Then ", "The next day, ", "Later, ")), s.take(gifts)))
    s.may(
        0.6,
        "<f-h: You are better than any medicine.>",
        "{f} smiled for the first time that day.",
        "<f-h: Do it again!>",
        "{f's} nose was still red, but {f.his} eyes were shining.",
    )
    s.par()
    if s.chance() < 0.5:
        s.one(
            "A week later, {f} was well. But now {h} sneezed. Achoo!",
            "When {f} was up again, {h} lay in bed with a red nose.",
        )
        s.one(
            "<f/happy-h: Now it is my turn!> And {f} put the soup on the stove."
            if child
            else "<f/happy-h: Now it is my turn!> And {f} ran off to collect jokes.",
            "There was a knock at the door. It was {f}, with {treat} and a very bad joke.",
        )
    else:
        s.one("In a few days, {f} was well again.", "After three days, {f} jumped out of bed.")
        s.one(
            "<f-h: Being sick was almost nice, with you.>", "{They} ran out together, and the whole world smelled new."
        )
    end(s, "Nothing helps against a cold like a good friend.", moral="friend")


@plot("child|animal|elf|-giant", parent="any", weight=1.0)
def lost_pet(s: Story) -> None:
    child = s.group == "child"
    cast_other(
        s,
        "x",
        "puppy|kitten|rabbit|parrot|duckling" if child else "chick|duckling|baby bird|baby mouse|puppy",
        "little|small|wet|muddy|lonely",
    )
    if s.beings["x"].noun == s.beings["h"].noun:
        cast_other(s, "x", "baby bird", "little|small")
    open_story(s)
    begin(
        s,
        (
            "{h} found {x.a} {spot}.",
            "{x.a} followed {h.o} all the way home.",
            "{x.a} sat in front of the door and looked at {h.o}.",
        ),
    )
    s.one(
        "<h-x: Who are you? Where do you live?> {X} only [blinked|looked at {h.him}].",
        "{X} had no name and no home, or so it seemed.",
        "{X} was hungry and tired.",
    )
    s.one(
        "{h} gave {x.o} something to eat and a warm place to sleep.",
        "{h} washed the mud off, and it turned out that {x} was as white as snow.",
        "{x} ate three bowls full and fell asleep on {h's} feet."
        if child
        else "{x} ate and ate and fell asleep next to {h.o}.",
    )
    s.one(
        "<h/happy-p: Can we keep {x.o}? Please!> <p/kind-h: Maybe somebody is looking for {x.o}.>",
        "<h-p: I want {x.o} to stay for ever.> <p-h: And what if somebody is crying for {x.o}?>",
    )
    s.par()
    s.one(
        "{h} did not want to hear that. But {he} knew that it was true.",
        "{h} thought of it all night.",
        "{h} was quiet for a long time.",
    )
    s.one(
        'So {they} put up signs on every tree: "Found: {x.a}."\x01'
        if child
        else 'So {they} asked everyone {they} met. "Who has lost {x.a}?"\x01',
        "The next day, {they} went from house to house and asked."
        if child
        else "The next day, {they} went from nest to nest and asked.",
    )
    aside(s, 0.3)
    if s.chance() < 0.6:
        cast_grown(s) if not child else cast_friend(s, "w")
        s.one(
            "Then {w.a} came running. <w/happy: There you are! I have looked for you everywhere!>",
            "At the last door stood {w.a}, with red eyes. When {w.he} saw {x.o}, {w.he} laughed and cried at the same time.",
        )
        s.one("{x} jumped up and down for joy. There was no doubt.", "{x} ran to {w.o} as fast as {x.he} could.")
        s.one("{h} was sad and glad at the same time.", "{h} swallowed hard. But it was right.")
        s.one(
            "<w-h: Thank you! Will you come and visit us?> <h-w: Every day!>",
            "<w/kind-h: You looked after {x.o} so well. You can come and play whenever you like.>",
        )
        if s.chance() < 0.4:
            s.one(
                "In summer, there was a knock at the door. <w-h: We have too many little ones now. Would you like one?>",
                "And on {h's} birthday, there was a basket in front of the door, and something in it moved."
                if child
                else "And one day, there was a basket in front of {h's} door, and something in it moved.",
            )
    else:
        s.one("{They} waited one week, and then another one. Nobody came.", "Nobody had lost {x.o}. Nobody knew {x.o}.")
        s.one(
            "<p/kind-h: Well. I think that {x} has chosen us.>",
            "<p-h: I have asked everyone. So there is only one thing left to do. {x} needs a name.>",
        )
        s.one('{h} knew at once: "[Button|Cookie|Star|Puddle]!"\x01', "<h/happy-x: Did you hear? You are home!>")
        feel(s, "h", "happy")
    end(
        s,
        "{x} yawned and laid {x.his} head on {h's} {h.hand}." if child else "{x} yawned and fell asleep.",
        moral="help",
    )


@plot("animal|gnome|elf|child", friend="cast", weight=0.8, tells=0.04)
def shared_soup(s: Story) -> None:
    child = s.group == "child"
    open_story(s)
    begin(
        s,
        (
            "it was cold, and {h} had nothing to eat but one {thing}.".replace(
                "{thing}", s.pick("potato|carrot|onion")
            ),
            "{h} wanted to make soup, but the [cupboard|basket] was empty.",
            "{h} had a big pot, but nothing to put into it.",
        ),
    )
    s.one(
        "{h} filled the pot with water and made a fire.",
        "<h: Water is a good start.> And {h} put the pot on the fire.",
        "{h} set the pot in the middle of the [square|clearing], where everyone could see it.",
    )
    s.one(
        "{f.new} came by. <f-h: What are you making?> <h-f: The best soup in the world. Only something is missing.>",
        "{f.new} smelled the fire. <f-h: What is in the pot?> <h-f: Soup. It just needs a little more.>",
    )
    s.one(
        "<f-h: I have a carrot. Will that help?> <h/happy-f: That is just what it needs!>",
        "{f} went home and came back with two potatoes.",
        "<f-h: I have some beans, but beans alone are boring.> Plop, in they went.",
    )
    s.par()
    s.one(
        "Then came {creature}. It brought a leaf of parsley."
        if not child
        else "Then the baker came by with some bread, and the farmer brought an onion.",
        "Next came {w2} with an onion, and then somebody with a bunch of herbs.".replace(
            "{w2}",
            s.pick("an old goat|a fat hen|two mice") if not child else s.pick("an old lady|the mailman|two boys"),
        ),
        "One after the other they came: one with peas, one with corn, one with a pinch of salt.",
    )
    s.one(
        "{They} all stood around the pot and stirred.",
        "The soup began to smell so good that more and more came.",
        '"A bit more salt," said one. "A bit more pepper," said another.',
    )
    s.may(
        0.5,
        '"What kind of soup is it?" somebody asked. <h/happy: Friend soup!>',
        "Somebody got a fiddle, and {they} sang until the lid danced.",
        "A little one fell asleep next to the warm pot.",
    )
    s.one(
        "Then {they} all sat down and ate, and there was enough for everyone.",
        "Each one had given only a little, and each one got a full bowl.",
        "Everyone had two bowls, and the pot was still not empty.",
    )
    end(
        s,
        '"How did you do that, with only water?" asked {f}. <h: I did not do it. We all did.>',
        "From then on, there was soup for everyone on every cold {day}.",
        moral="share",
    )


@plot("child|mouse|rabbit|bear|fox|princess|robot|penguin", parent="grandma|grandpa", weight=0.9, tells=0.12)
def the_letter(s: Story) -> None:
    open_story(s)
    begin(
        s,
        (
            "{h} missed {p.o}, who lived far away.",
            "{h} wanted to write a letter to {p.o}, who lived on the other side of the mountains.",
            "{h} thought of {p.o}. It was a long time since {he} had seen {p.him}.",
        ),
    )
    s.one(
        "But {h} could not write yet. So {he} drew.",
        "{h} took a big sheet of paper and a {color} pencil.",
        "What do you put into a letter? {h} thought about it.",
    )
    s.one(
        "{h} drew {picture}, and next to it {himself}, waving.",
        "{he} drew the house, the tree and {creature}.",
        "{h} put in a [leaf|feather|flower] and a very small stone.",
    )
    s.may(
        0.6,
        "{he} wanted to send a hug too. So {he} lay down on the paper, and {his} [mom|friend] drew a line around {him}."
        if s.group == "child"
        else "{he} pressed {his} {h.hand} on it, so that there was a print.",
        "At the end {he} kissed the paper, and that was the stamp.",
    )
    s.par()
    way = s.pick("wind|wait|surprise")
    if way == "wind":
        s.one(
            "On the way to the mailbox, the wind tore the letter out of {his} {hand}."
            if s.beings["h"].body("hand") == "hand"
            else "On the way, the wind took the letter and blew it away."
        )
        s.one(
            "It flew over the fence, over the pond and into a tree. {h} ran after it.",
            "Over the roofs it went, like a white bird.",
        )
        s.one(
            'A [boy with a net|man on a ladder|big gull] caught it. "Is this yours?"\x01',
            "It landed right on the nose of a cow. She looked surprised.",
        )
        s.one(
            "It was a bit wet and a bit torn, but {h} put it in the box.",
            "{h} wiped it clean and held it tight with both {hands}.",
        )
    else:
        s.one("{h} put it into the box. Plop!", "The mailman took the letter and put it into his big bag.")
        s.one("Then {he} waited. One day, two days, three days.", "Every morning {he} ran to the door. Nothing!")
        s.may(0.6, "<h/sad: Maybe it got lost.>", '"Letters walk slowly," they told {him}.')
    s.one(
        "And then the answer came. It was thick and soft.",
        "On {day}, there was a letter with {his} name on it.",
        "At last the mailman rang the bell. But it was not a letter. It was a box!",
    ) if way != "surprise" else s.one(
        "One morning there was a knock. It was not the mailman. It was {p}!",
        "Then, on {day}, somebody stood at the gate with a big bag. {p}!",
    )
    if way != "surprise":
        s.one(
            'In it was a [scarf|picture|photo of a cat] and a line: "I love you. Come soon!"\x01',
            "{p} had drawn a picture too: two of {them}, one big and one small, side by side.",
        )
        s.one("{h} put it under {his} pillow.", "{h} looked at it ten times, and then ten times more.")
    else:
        s.one(
            "<p/happy-h: Your letter was so nice that I had to bring the answer myself.>",
            "<p-h: I got your hug. Now I want a real one.>",
        )
        s.one("{h} jumped into {p's} arms.", "{They} hugged for so long that the soup got cold.")
    end(s, "And {h} began to draw the next letter.", "A letter is a small thing, but it can carry a lot.", moral="joy")


@plot(
    "animal|fairy|elf|gnome|-lion|-tiger",
    weight=0.9,
    friend="cast",
    tells=0.05,
    places="forest|meadow|pond|garden|river|hill|lake",
)
def lost_egg(s: Story) -> None:
    open_story(s)
    cast_other(s, "x", "duckling|chick|baby owl|baby turtle|baby swan", "wet|tiny|little|fluffy")
    begin(
        s,
        (
            "{h} found an egg {spot}.",
            "a big white egg lay {spot}. {h} almost fell over it.",
            "{h} saw something round {spot}. It was an egg, and it was still warm.",
        ),
    )
    s.one(
        "There was no nest, and nobody was there.",
        "<h: Hello? Has anybody lost an egg?> No answer.",
        "{h} knocked on it. Something inside knocked back!",
    )
    s.one(
        "{h} asked {f.new}. <f-h: It is not mine. Mine are blue.>",
        "{f.new} came by. <f-h: You must keep it warm, or it will die.>",
    )
    s.one(
        "So {h} lay down on it very carefully."
        if s.group == "animal"
        else "So {h} wrapped it in moss and held it close.",
        "{h} covered it with soft leaves and stayed beside it all night.",
    )
    s.par()
    s.one(
        "It rained, and {h} got wet, but the egg stayed dry.",
        "The others went to play. {h} stayed.",
        "It was boring to sit on an egg. But {h} stayed.",
        "{h} sang to the egg and told it about the world.",
    )
    s.one(
        "On the third day, it went crack. A tiny beak came out.",
        "And then, one morning, there was a crack in it, and another one.",
    )
    s.one('It was {x.a}! {x.he} looked at {h.o} and said, "Mama!"\x01', 'Out came {x.a}. "Mama?" {x.he} asked.')
    s.one("<h/shy-x: Me? No, I am not your mother. I am only me.>", "{h} did not know whether to laugh or to cry.")
    s.one(
        "{x} followed {h.o} wherever {h.he} went. When {h} jumped, {x} jumped. When {h} ate, {x} ate.",
        "{h} showed {x.o} where to find food and how to hide from the rain.",
    )
    s.par()
    s.one(
        "Then, one day, somebody called across the water. {x} lifted {x.his} head.",
        "Some days later a mother came. She was looking for her lost egg. She had cried a lot.",
    )
    s.one(
        '"My baby!" she cried. {x} looked at her, and then {x.he} looked at {h.o}.',
        "She had the same eyes and the same feet as {x.the}.",
    )
    s.one("<h/kind-x: Go on. That is your real mother.>", "It was hard for {h.o}. But {h.he} gave {x.o} a little push.")
    s.one(
        'The mother bowed to {h.o}. "Without you, my baby would not be here."\x01',
        "{x} ran to her, but then {x.he} came back and pressed {x.his} head against {h.o}.",
    )
    end(
        s,
        "After that, {x} had two mothers."
        if s.beings["h"].pronouns.he == "she"
        else "After that, {x} had a big family.",
        "{x} came to visit every day, and each time {x.he} was a little bigger.",
        moral="help",
    )
