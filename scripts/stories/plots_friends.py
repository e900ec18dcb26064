"""Plots between two: a new friend, sharing, a quarrel, a lie, a promise, a boast, a new baby, a hiding game."""

# ruff: noqa: E501
from __future__ import annotations

from stories.casting import cast_other
from stories.events import end, feel, play_together, say_sorry
from stories.openings import begin, open_story
from stories.registry import plot
from stories.story import Story


@plot(friend="cast", weight=1.3)
def new_friend(s: Story) -> None:
    s.beings["f"].facts["rel"] = ""
    open_story(s)
    s.one(
        "But {h} had nobody to play with.",
        "All day long, {h} played alone.",
        "{h} had many toys, but no friend."
        if s.group == "child"
        else "There was only one thing {h} did not have: a friend.",
        "{h} wished for a friend.",
        "It was very quiet {here}. A bit too quiet.",
    )
    feel(s, "h", "lonely", 0.5)
    way = s.pick("shy|different|wall|funny|copy|swing")
    begin(
        s,
        (
            "{h} saw {f.a} {here}.",
            "somebody new came {to}. It was {f.a}.",
            "{h} noticed {f.a} who was sitting {spot}.",
            "{f.new} moved in next door.",
        )
        if way != "wall"
        else (
            "{h} heard somebody sing behind a wall.",
            "a ball came flying over the fence.",
            '{h} found a little note {spot}. "Hello," it said.',
        ),
    )
    if way == "wall":
        s.one(
            '<h: Who is there?> A small voice answered. "Me. Who are you?"\x01',
            "{h} knocked: knock, knock. Somebody knocked back: knock, knock, knock!",
            '{h} wrote "Hello" on a leaf and threw it over to the other side.',
        )
        s.one(
            "{They} talked for a long time, and {they} could not even see each other.",
            '<h: What do you look like?> The voice laughed. "Guess!"\x01',
            '{h} guessed. "Are you tall?" "No." "Are you blue?" The voice giggled. "No!"\x01',
        )
        s.one(
            "The next day {they} talked again, and {they} told each other everything.",
            "{They} played a game: one hummed a song, and the other one had to guess it.",
        )
        s.may(
            0.5,
            "Then {h} found a hole, just big enough to look through. {he} saw one eye. The eye blinked.",
            "At last {h} climbed up and looked over.",
        )
        s.one(
            "And there stood {f.a}. <f/shy-h: Hello.> <h/happy-f: Hello!>",
            "It was {f.new}, and {f.he} was smiling. <f-h: You look just like your voice.>",
        )
    elif way == "shy":
        s.one(
            "{h} wanted to say hello, but no word came out.",
            "{h} hid [behind a tree|behind a bush] and watched.",
            "{F} did not look up. {h} did not know what to say.",
        )
        s.one(
            "{h} took one step. Then {he} ran away.",
            '"Tomorrow," thought {h}. "Tomorrow I will say something."\x01',
            "Three times {h} walked past, and three times {he} said nothing.",
        )
        s.one(
            "Then {f} dropped {f.his} [apple|hat|book|bag], and it rolled right to {h.o}.",
            "Then the wind took {f's} [hat|paper|scarf] and blew it in front of {h.o}.",
        )
        s.one(
            "{h} picked it up. <h/shy-f: Here. This is yours.> <f/shy-h: Thank you. I wanted to talk to you, but I was too shy.>",
            "<h/shy-f: I think you lost this.> <f/happy-h: You can talk! I thought you did not like me.>",
        )
        s.one(
            "<h/happy-f: You were shy too?> And {they} both laughed.",
            "{They} looked at each other, and both of {them} turned pink.",
        )
    elif way == "different":
        s.one(
            "{F} [was|looked] so different! {f.he} liked the night, and {h} liked the day."
            if s.chance() < 0.5
            else "{F} spoke in a strange way, and {h} did not know the words.",
            "{F} was loud. {h} was quiet.",
        )
        s.one(
            "<h: I like to sit still and look.> <f: I like to run!>",
            "<f-h: What do you like to eat?> <h-f: {treat}. And you?> <f: Oh no! I like {treat}.>",
            'At first, {h} thought, "We do not fit together at all."\x01',
        )
        s.one(
            "But then it began to rain, and both of {them} held out {their} tongues to catch the drops.",
            "Then {they} found out that both of {them} loved {hobby}.",
            "But when {h} laughed, {f} laughed too, and it was the very same laugh.",
        )
        s.one(
            "<f/happy-h: So we are a little bit the same!>",
            "<h/happy-f: We can do your things in the morning and my things in the afternoon.>",
            "After that {they} took turns: first a wild game, and then a quiet one.",
        )
    elif way == "funny":
        s.one(
            "{F} wore a [pot|basket|flower pot] on {f.his} head.",
            "{F} was walking backward and singing.",
            "{F} was talking to a [stone|snail|tree].",
        )
        s.one(
            "<h-f: What are you doing?> <f/happy-h: I am a king, and this is my crown!>"
            if s.chance() < 0.5
            else "<h-f: Why do you do that?> <f-h: Because nobody ever does it!>",
            "{h} had to laugh. {F} was not angry at all. {F.he} bowed.",
        )
        s.one(
            "So {h} put something on {his} head as well, and now there were two kings.",
            "<h-f: Can I do it too?> <f/happy-h: Of course! The more, the better!>",
        )
        s.one(
            "{They} marched up and down and said good day to every [tree|flower|bird].",
            "{They} were so silly that even {creature} turned around to look.",
        )
    elif way == "copy":
        s.one("{h} waved. {F} waved too.", "{h} hopped. {F} hopped too.")
        s.one(
            "{h} turned around once. {F} did the same. {h} stood on one leg, and so did {f}."
            if s.beings["h"].noun not in ("snail", "caterpillar", "train")
            else "{h} turned around once. {F} did the same.",
            "{h} made a funny face. {F} made an even funnier one.",
        )
        s.one(
            "<h/angry-f: Why do you do everything I do?> <f/shy-h: I want to play with you. I did not know how to ask.>",
            "<h-f: Are you my mirror?> {F} giggled. <f-h: No. I am {f.n}.>",
        )
        s.one(
            "<h/kind-f: You can just say, 'Let us play.'> <f/happy-h: Let us play!>",
            "<h/happy-f: Now you do something, and I will copy you!>",
        )
    else:
        s.one(
            "{F} sat all alone and drew lines in the [sand|dirt].",
            "{F} looked as lonely as {h} felt.",
            "{F} was looking at the others from far away, just like {h}.",
        )
        s.one(
            "{h} thought of what it was like to be alone. So {he} went over. <h/kind-f: Would you like some of my {food}?>".replace(
                "{food}", s.pick("apple|bread|berries|cake")
            ),
            "{h} took all {his} courage. <h/shy-f: Do you want to play {game}?>",
        )
        s.one(
            "{F} looked up. {F.his} whole face changed. <f/happy-h: Yes!>",
            "<f/shy-h: Nobody has asked me before.> <h/kind-f: I am asking you now.>",
            "{F} nodded so hard that {f.his} ears shook."
            if s.group != "child"
            else "{F} nodded, and {f.he} moved over to make room.",
        )
    play_together(s, 0.8)
    s.may(
        0.4,
        "<f-h: Will you come back tomorrow?> <h-f: Tomorrow, and the day after tomorrow!>",
        "Time went by so fast that {they} forgot to be hungry.",
        "When it was time to go, neither of {them} wanted to.",
    )
    end(
        s,
        '{h} ran home. "I have a friend!" {he} shouted, and everyone could hear it.',
        "That night, {h} did not feel lonely at all.",
        "Friends do not have to be the same.",
        "It is easy to make a friend if you are kind.",
        moral="friend",
        friends=True,
    )


@plot(friend="pair", weight=1.2)
def sharing(s: Story) -> None:
    child = s.group == "child"
    s.words["good"] = (
        s.pick("cookie|piece of cake|pear|bun|chocolate bar|orange|muffin")
        if child
        else s.pick("pear|apple|honey cake|peach|melon|plum")
    )
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} found a big, sweet {good}." if not child else "{h} got a big, sweet {good}. {F} had nothing.",
            "there was only one {good} left.",
            "{h} had a {good}. It smelled wonderful.",
            "{h} and {f} were given a {good}, but only one.",
        ),
    )
    s.one(
        "<f-h: Can I have some?> <h/angry-f: No! It is mine!>",
        "<h: I saw it first!> <f: No, I saw it first!>",
        "{h} hid it [behind {his} back|under a leaf]. <f-h: What have you got there?> <h-f: Nothing.>",
        "{h} looked at it. It was not very big. If {he} gave some away, there would be only a little left.",
    )
    way = s.pick("lost|half|sick|trade|third")
    feel(s, "f", s.pick("sad|angry"), 0.6)
    s.par()
    if way == "lost":
        s.one(
            "{They} pulled. {h} pulled this way, and {f} pulled that way.",
            "{h} ran away with it, and {f} ran after {h.o}.",
            "{h} held it up high so that {f} could not reach it.",
        )
        s.one(
            "And then, plop! It fell into the [mud|pond|river].",
            "A big black bird swooped down and took it. Away it flew!",
            "{They} did not look, and a goat came from behind and ate it in one bite.",
        )
        s.one(
            "Now nobody had anything.",
            "{They} looked at the empty place. Then {they} looked at each other.",
            "It was very quiet.",
        )
        s.one(
            "<h/sad-f: If I had shared it, we would both have had some.>",
            "<h/sad-f: I am sorry.> <f-h: I am sorry too.>",
            "{h} began to laugh, because {f} looked so silly. Then {f} laughed too.",
        )
        s.one(
            "Later {they} found {find} and a handful of berries. {They} counted them: one for you, one for me.",
            "The next time there was only one of something, {they} cut it right down the middle.",
        )
    elif way == "half":
        s.one(
            "{f} turned away and said nothing. {h} took a bite. It did not taste as good as {he} had thought.",
            "{h} took one bite, and {f} watched. It was hard to swallow.",
        )
        s.one(
            "{h} looked at the {good}, and {he} looked at {f.o}. Then {he} broke it in two.",
            '"Alone it is no fun," thought {h}.',
        )
        s.one(
            "<h/kind-f: Here. The bigger half is for you.> <f/happy-h: Really?>",
            "<h/shy-f: Do you want half?> {F} turned around, and {f.his} eyes were shining.",
        )
        s.one(
            "{They} sat side by side and chewed. Now it tasted just right.",
            "{f} broke {f.his} half in two and gave a piece back. <f-h: This is for sharing with me.>",
        )
    elif way == "sick":
        s.one(
            "{h} ate it all alone, as fast as {he} could.",
            "{h} went behind a bush and ate it all, down to the last crumb.",
        )
        s.one(
            "A little later, {his} belly began to hurt. Ow, ow, ow!",
            "Then {h} felt as full as a balloon. {he} could not run, and {he} could not play.",
        )
        s.one(
            "{F} came and saw it. {F.he} could have laughed. But {f.he} got {h.o} some water and rubbed {h.his} belly.",
            "<f/kind-h: Are you sick? I will stay with you.>",
            "{F} brought {h.o} a cup of tea." if child else "{F} brought {h.o} some cool leaves.",
        )
        s.one(
            "<h/sad-f: I did not share with you, and you are so kind to me.>",
            "{h} felt bad, and not only in {his} belly.",
        )
        s.one(
            "<f/kind-h: Next time, give me half. Then only half of your belly will hurt.>",
            "The next day, {h} brought {f.o} a whole basket of [nuts|berries|plums].",
        )
    elif way == "trade":
        s.one("Then {h} saw that {f} had {treat}.", "<f-h: Wait. I have something too.> And {f} took out {treat}.")
        s.one(
            "<h-f: Shall we put it together?> <f-h: Then we have a feast!>",
            "<f-h: You give me some of yours, and I give you some of mine.>",
        )
        s.one(
            "{They} laid everything on a [big leaf|flat stone|blanket] and made it look nice.",
            "{They} sat down like a king and a queen."
            if s.beings["h"].pronouns is not s.beings["f"].pronouns
            else "{They} sat down like two kings.",
        )
        s.one("It was only a little food, but it was a big party.", "{creature} came too, and it got a crumb.")
    else:
        cast_other(s, "x", "mouse|bird|squirrel|hedgehog|rabbit|kitten", "thin|hungry|small|cold")
        s.one(
            "While {they} were still fighting, {x.a} came along and looked at {them} with big eyes.",
            "Then {they} saw {x.a}. {X.he} did not ask for anything. {x.he} only looked.",
        )
        s.one(
            "<h-x: Are you hungry?> {X} nodded. <x/shy-h: I have not eaten since yesterday.>",
            "<x/shy-h: I only want to smell it.>",
        )
        s.one("{h} and {f} stopped fighting. {They} looked at each other.", "All at once, {they} were both ashamed.")
        s.one(
            "{They} broke it into three pieces. The biggest one was for {x}.",
            "<h-f: I am not that hungry.> <f-h: I am not hungry either.> And {they} gave it all to {x.o}.",
        )
        s.one(
            "{x} ate and ate. Then {x.he} did a little dance to thank {them}.",
            "From then on {they} were three, and three is even better than two.",
        )
    end(s, '"Half and half," {they} always said after that.', "And it tasted of more.", moral="share")


@plot("child|animal|elf|princess|prince|dragon|robot|-giant", parent="any", friend="cast", weight=1.3)
def the_lie(s: Story) -> None:
    child = s.group == "child"
    s.words["deed"] = s.pick("vase|cake|window|cup|jar") if child else s.pick("honey|berries|pot|jar")
    deed = s.words["deed"]
    open_story(s)
    begin(
        s,
        {
            "vase": (
                "{h} ran through the room with a ball. Crash! {p's} blue vase fell down and broke.",
                "{h} wanted to smell the flowers, and the vase fell off the table.",
            ),
            "cake": (
                "there was a cake on the table for the party. {h} took a little bite, and then one more, and then one more.",
                "{h} put {his} finger into the cake. Soon there was a big hole in it.",
            ),
            "window": (
                "{h} kicked the ball too hard. It flew right through the window!",
                "there was a crash. {h's} ball had gone through a window.",
            ),
            "cup": (
                "{h} played with {p's} best cup. It slipped and broke.",
                "{h} wanted to drink from {p's} golden cup, and the handle came off.",
            ),
            "jar": (
                "{h} climbed up to get the jam. The jar fell down, and everything was red and sticky.",
                "{h} ate all the cookies in the jar, one after the other.",
            ),
            "honey": (
                "{h} found the honey that was saved for the winter. {he} ate and ate, until it was all gone.",
                "{h} only wanted to try the winter honey. But it was so sweet that {he} could not stop.",
            ),
            "berries": (
                "{h} ate all the berries that {p} had picked.",
                "{h} sat down on the basket of berries. Squash!",
            ),
            "pot": (
                "{h} ran too fast and knocked over {p's} big pot.",
                "{h} played drum on {p's} best pot until it cracked.",
            ),
        }[deed],
    )
    feel(s, "h", "scared", 0.5)
    s.one(
        '"Nobody saw it," thought {h}.',
        "{h} looked around. Nobody was there.",
        "What would {p} say?",
        "{h} swept it all under the [bed|rug|table]."
        if deed in ("vase", "cup", "window") and child
        else "{h} quickly went away and tried to look as if nothing had happened.",
    )
    s.par()
    s.one(
        "Then {p} came in. <p-h: Who did this?>",
        "In the evening, {p} saw it. <p-h: What happened here?>",
        "It did not take long. <p-h: {h.n}, do you know anything about this?>",
    )
    lie = s.pick("animal|friend|wind|nothing")
    if lie == "animal":
        s.words["blame"] = s.pick("the cat|the dog|a bird") if child else s.pick("a crow|the fox|the ants")
        s.one("<h-p: It was {blame}!>", "{h} turned red. <h-p: I saw it. It was {blame}.>")
        s.one(
            "{p} frowned and sent {blame} away. {blame} did not know why.",
            "<p/angry: Then {blame} will get no supper tonight.>"
            if child and s.words["blame"] != "a bird"
            else "<p: Then I will have to talk to {blame}.>",
        )
        s.may(0.6, "From outside, {blame} looked at {h.o} with sad eyes.")
    elif lie == "friend":
        s.one("<h-p: It was {f.n}!>", 'Before {h} could think, {he} said, "{f.n} did it!"\x01')
        s.one(
            "<p-h: {f.n}? Then I must talk to {f.n}.> {H} felt cold all over.",
            "{p} shook {p.his} head. <p/sad: I did not think that {f.n} would do that.>",
        )
        s.one(
            "The next day, {f} did not come to play. {f.he} had to stay at home, and {f.he} did not even know why.",
            "When {f} came by, {p} did not smile at {f.o}. {F} looked at {h.o}. <f/sad-h: What did I do?>",
        )
    elif lie == "wind":
        s.one(
            "<h-p: The wind did it.> {P} looked out. Not a leaf was moving.",
            "<h-p: A giant came in, and he had very big feet.> <p-h: A giant? And where did he go?> <h-p: Out of the window.>",
        )
        s.one(
            "<p-h: I see.> That was all that {p} said.",
            "And then {h} had to tell more and more. The story grew and grew, and {he} no longer knew what {he} had said first.",
        )
    else:
        s.one("<h-p: I do not know.> {h} could not look at {p.o}.", "{h} shook {his} head and said nothing.")
        s.one(
            "{p} only nodded and cleaned it up alone.",
            "<p-h: Are you sure?> <h-p: Yes.> It was such a small word, and it was so heavy.",
        )
    feel(s, "h", "guilty")
    s.may(
        0.6,
        "At supper, {h} could not eat.",
        "That night {h} could not sleep. The lie sat on {his} chest like a fat toad.",
        "Even {his} favorite game was no fun.",
        "{h} went for a walk, but the bad feeling walked with {him}.",
    )
    s.par()
    s.one(
        "At last {h} could not stand it any more. {he} went to {p.o}.",
        "{h} took a deep breath. It was harder than jumping into cold water.",
        "In the morning, {h} went to {p.o} with {his} head down.",
    )
    s.one(
        "<h/sad-p: It was me. I told a lie.>",
        "<h/sad-p: I did it. And I was afraid to tell you.>",
        "<h/shy-p: I have to tell you something. It was me.>",
    )
    if lie == "friend":
        s.one(
            "Then {h} ran to {f.o}. <h/sad-f: I said that it was you. I am so sorry.> <f/kind-h: That was mean. But it was brave to tell me.>",
            "<p-h: Then there is somebody else who needs to hear it.> So {h} went to {f.o} and told {f.him} everything. {F} was quiet for a while, and then {f.he} held out {f.his} {f.hand}.",
        )
    elif lie == "animal" and child and s.words["blame"] != "a bird":
        s.one(
            "{h} hugged {blame} for a long time and gave it something good to eat.",
            "Then {h} said sorry to {blame} too.",
        )
    s.one(
        "{p} sat down beside {h.o}. <p/kind-h: I am sad about the {deed}. But I am glad that you told me.>",
        "<p/kind-h: I knew it all the time. I was waiting for you.>",
        "<p/kind-h: A {deed} can be replaced. Trust is harder to mend.>"
        if deed in ("vase", "cup", "window", "pot", "jar")
        else "<p/kind-h: We can find more {deed}. But the truth is worth more.>",
    )
    s.may(
        0.5,
        "{They} cleaned up together.",
        "{h} gave {p.o} all the coins {he} had saved."
        if child
        else "The next day {h} helped {p.o} from morning to night.",
        "{h} helped to make a new one.",
    )
    end(s, "All at once, {h} felt as light as a bird.", "And that night {h} slept like a stone.", moral="honest")


@plot(friend="pair", weight=1.0)
def the_quarrel(s: Story) -> None:
    s.words["game1"] = s.pick("hide and seek|tag|pirates|leapfrog|trains")
    s.words["game2"] = s.pick("kings and queens|catch|shop|marbles|doctor")
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} had a fight.",
            "{h} wanted to play {game1}, but {f} wanted to play {game2}.",
            "something happened that had never happened before. {h} and {f} had a fight.",
        ),
    )
    s.one(
        "<h/angry-f: We always do what you want!> <f/angry-h: That is not true!>",
        "<f/angry-h: {game1} is for babies!> <h/angry-f: And {game2} is boring!>",
        "First {they} talked. Then {they} shouted. Then {they} did not talk at all.",
        "It began with something small. A minute later, nobody knew what it was.",
    )
    s.one(
        "{f} drew a line on the ground. <f/angry-h: This side is mine!>",
        "{h} went to one side, and {f} went to the other.",
        "<h/angry-f: I do not want to be your friend any more!> And {h} walked away.",
        "{f} stamped off and did not look back.",
    )
    s.par()
    s.one(
        "{h} played alone. But you cannot play {game1} alone.",
        "{h} told a joke, but there was nobody to laugh.",
        "It was a long, long day.",
        "{h} saw a cloud that looked like a [pig|shoe]. {he} turned to tell {f.full}, but nobody was there.",
    )
    s.one(
        "On the other side, {f} was just as sad.",
        "{f} built something alone. When it was done, {f.he} had nobody to show it to.",
        "{f} sat [behind a tree|on a stone] and pulled up grass.",
    )
    way = s.pick("rain|both|puppy|gift|note")
    if way == "rain":
        s.one(
            "Then it began to rain. There was only one dry place, under the [bridge|big tree|old roof].",
            "Dark clouds came. {h} ran under the big tree. And who came running from the other side?",
        )
        s.one(
            "{They} sat there with {their} backs to each other. Drip, drop, drip, drop.",
            "Neither of {them} said a word. The rain was loud.",
        )
        s.one(
            "Then {f} sneezed. {h} gave {f.him} half of {h.his} coat."
            if s.group == "child"
            else "Then {f} sneezed. {h} moved a little closer, to keep {f.him} warm.",
            "Then thunder came, and {they} both jumped, right into each other's arms.",
        )
        if s.likely(0.7):
            say_sorry(s, "f")
    elif way == "both":
        s.one('At last {h} got up. "I will say sorry," {he} thought.')
        s.one(
            "{h} walked very fast. At the corner, bump! {h} ran right into {f.o}.",
            "Halfway there, {h} met {f.o}. {F.he} was on {f.his} way too.",
        )
        s.one('"I am sorry!" {they} both said at the same moment. Then {they} had to laugh.')
    elif way == "puppy":
        s.one(
            "Then a little dog came along and carried off {f's} ball."
            if s.group == "child"
            else "Then a goat came along and began to eat {f's} hat.",
            "Then the wind took {f's} paper boat and blew it away.",
        )
        s.one(
            "{h} jumped up. There was no time to be cross. {They} ran after it together.",
            "<f: Help!> And {h} was already running.",
        )
        s.one(
            "Left and right {they} ran, until {they} caught it. {They} fell down in the grass and laughed.",
            "When {they} had it back, {they} noticed that {they} were friends again.",
        )
    elif way == "gift":
        s.one(
            "{h} found {find}. It was just the thing that {f} would like.",
            "{h} picked the most beautiful flower {he} could find.",
        )
        s.one(
            "{h} laid it on the line and went away. A little later it was gone, and in its place lay {find}.",
            "{h} put it in front of {f's} door and knocked and hid.",
        )
        s.one(
            "Then {f} came. <f/shy-h: Is that from you?> <h/shy-f: Yes. I am sorry.> <f-h: I am sorry too.>",
            "{f} stepped over the line. <f/shy-h: I do not like this line.> <h-f: I do not like it either.> So {they} rubbed it out.",
        )
    else:
        s.one(
            "{h} drew a picture of two friends, one with a sad face and one with a sadder face. {he} made a paper plane of it and let it fly."
            if s.group == "child"
            else "{h} whistled {their} song. It was very quiet. Then, from far away, the answer came."
        )
        s.one(
            "A minute later, {f} stood in front of {h.o}. <f/shy-h: I was wrong.> <h/shy-f: No, I was wrong.> <f-h: Shall we fight about that too?>",
            "{f} came running. <f/happy-h: I missed you!> <h/happy-f: I missed you too!>",
        )
    s.may(
        0.7,
        "<h-f: First {game2}, and then {game1}?> <f/happy-h: First {game1}, and then {game2}!>",
        "{They} made up a new game. It was half {game1} and half {game2}.",
        "That afternoon {they} played both, and both were fun.",
    )
    end(
        s,
        "{They} still had a fight now and then. But it never lasted long.",
        "And what was the fight about? Nobody could remember.",
        moral="friend",
    )


@plot(friend="cast", weight=1.0)
def the_promise(s: Story) -> None:
    s.beings["f"].facts["rel"] = ""
    child = s.group == "child"
    s.words["task"] = (
        s.pick("water {f's} flowers|feed {f's} rabbit|look after {f's} kitten|feed {f's} fish")
        if child
        else s.pick("watch {f's} eggs|guard {f's} nuts|water {f's} flowers|look after {f's} little brother")
    )
    open_story(s)
    s.one("{h} had a friend, {f.new}.", "Next door lived {f.new}.", "{H.his} friend was {f.new}.")
    begin(
        s,
        (
            "{f} had to go away for a few days.",
            "{f} had to go to {f.his} grandmother, who was sick.",
            "{f} went on a trip.",
        ),
    )
    task = s.words["task"].replace("{f's}", "my")
    s.tell(
        s.pick(("<f-h: Will you " + task + "?>", "<f-h: Please, can you " + task + " until I come back?>"))
        + s.pick((" <h-f: I promise!>", " <h-f: Of course! I promise.>", " <h/proud-f: You can count on me.>"))
    )
    s.par()
    s.one(
        "The first day was easy.",
        "On the first day, {h} got up early and did everything right.",
        "In the beginning, {h} thought of it every hour.",
    )
    s.one(
        "But on the second day, there was [a fair in town|a big game in the park|fresh snow on the hill]. Everyone was going."
        if child
        else "But on the second day, everyone went to [the lake|the big feast|see the new lambs].",
        'But then some friends came. "Come and swim with us!" they called.',
        "But on the third day it was raining and cold, and {his} {h.bed} was so warm.",
    )
    s.one(
        '"It will be all right for one day," a voice in {his} head said.',
        "{h} wanted to go so much!",
        "{h} took two steps. Then {he} stopped.",
    )
    if s.chance() < 0.6:
        s.one(
            "But {he} had promised. And a promise is a promise.",
            'Then {he} thought of {f\'s} face. "No," {h} told the others. "I made a promise."\x01',
            "{h} sighed. Then {he} turned around and went to do {his} job.",
        )
        s.one(
            "It took only a little while, and it felt good.",
            "{he} could hear the others laugh in the distance. But {he} did not go.",
            "It was good that {he} went. The [door|gate] was open, and the wind had blown everything over."
            if child
            else "It was good that {he} stayed, for a fox came by and looked around.",
        )
        s.one(
            "When {f} came home, everything was just as it should be.",
            "At last {f} came back. <f/happy-h: You did it! I knew it!>",
        )
        s.one(
            "{F} had brought {h.o} [a shell|a little bell|a blue stone] from the trip.",
            "<f-h: You are the best friend I have.>",
            "And the next day, {they} went to the lake together.",
        )
    else:
        s.one(
            "So {h} went with the others and forgot all about it.", '"Just this once," thought {h}, and off {he} ran.'
        )
        s.one(
            "In the evening, {he} remembered. Oh no! {h} ran as fast as {he} could.",
            "It was late when {h} thought of {his} promise. {his} heart beat fast.",
        )
        s.one(
            "There were sad brown leaves everywhere." if "flower" in task else "It was almost too late.",
            "Everything was quiet. Too quiet!",
        )
        feel(s, "h", "guilty")
        s.one("{h} stayed all night and did what {he} could.", "{h} did not go home until all was well again.")
        s.one(
            "When {f} came back, {h} told {f.o} everything. <h/sad-f: I broke my promise.> {F} was silent. <f/kind-h: Thank you for telling me. And thank you for coming back.>",
            "<h/sad-f: I forgot it for one day. I am sorry.> <f-h: And all the other days?> <h-f: I was here.> {F} smiled a little.",
        )
    end(s, "{h} never made a promise lightly again.", "A promise is a small word and a big thing.", moral="friend")


@plot("animal|child|dragon|knight|giant|train|truck|boat|plane", friend="cast", weight=1.0, tells=0.0)
def the_boast(s: Story) -> None:
    s.words["trait"] = "quick"
    s.beings["f"].facts["rel"] = ""
    kind = s.beings["h"].kind
    assert kind is not None
    s.words["best"] = (
        s.pick("strongest|fastest|bravest|cleverest") if kind.group != "thing" else s.pick("strongest|fastest|shiniest")
    )
    open_story(s, day=False)
    s.one(
        "{h} thought that {he} was the {best} of all.",
        '{h} was proud. Too proud! "I am the {best}!" {he} told everyone.',
        "From morning to night, {h} talked about how great {he} was.",
    )
    s.may(
        0.5,
        "The others were tired of it.",
        '"Yes, yes," said the others, and they went away.',
        "Nobody liked to hear it any more.",
    )
    begin(s, ("{h} met {f.new}.", "{f.new} came by. {f.he} was small and quiet.", "{h} laughed at {f.new}."))
    s.one(
        "<h/proud-f: You are so small! What can you do?> <f-h: I can do what I can.>",
        "<h/proud-f: I am the {best} of all. Look at me!> {F} said nothing.",
        "<h/proud-f: I do not need anybody's help.> <f-h: Everybody needs help some day.>",
    )
    s.par()
    s.one(
        "The next day, {h} fell into a deep hole. {he} could not get out."
        if kind.group not in ("thing",)
        else "The next day, {h} got stuck in the [mud|sand|snow].",
        "Soon after that, {h} got {his} [foot|head] stuck between two rocks. It would not move."
        if kind.group != "thing"
        else "Soon after that, something inside {h.o} went clonk, and {he} stood still.",
    )
    s.one(
        "{h} pulled and pushed. It was no use.",
        "{h} tried with all {his} strength. {He} only got more tired.",
        "What good was it now to be the {best}?",
    )
    s.one(
        "<h/sad: Help! Can anybody hear me?> At first, nobody came.",
        "{h} called for help. {His} voice was not so proud any more.",
    )
    s.one("Then {f} looked around the corner. <f-h: Do you need help?>", "But one heard {him}, and it was {f}.")
    s.one(
        "<h/shy-f: But you are so small.> <f-h: Small enough to get in there.>",
        "{h} was ashamed. <h/shy-f: I laughed at you.> <f/kind-h: I know. Hold still.>",
    )
    s.one(
        "{f} crept in and loosened one little stone. That was all it took."
        if kind.group != "thing"
        else "{f} found one little loose screw and turned it. That was all it took.",
        "{f} called all the little ones. Ten of {them} pulled together, and {h} was free!",
        "{f} bit through the roots, one by one." if kind.group == "animal" else "{f} had a rope and a good plan.",
    )
    s.one(
        "<h-f: Thank you. You are the {best} of all.> <f-h: No. I only helped.>",
        '{h} did not know what to say. That was new. Then {he} said, "Thank you."\x01',
        "<h/shy-f: I was wrong about you.>",
    )
    end(
        s,
        "From then on, {h} listened more than {he} talked.",
        '"Who is the {best}?" somebody asked later. "It depends," said {h}, and smiled at {f.o}.',
        moral="help",
        friends=True,
    )


@plot("child|bear|rabbit|mouse|elephant|duck|fox|penguin|princess|prince", parent="mom|dad", weight=0.9, tells=0.14)
def new_baby(s: Story) -> None:
    child = s.group == "child"
    s.words["baby"] = s.pick("brother|sister")
    open_story(s, day=False)
    begin(
        s,
        (
            "there was a baby in the house. It was {h's} new little {baby}."
            if child
            else "there was a new baby in the nest. It was {h's} little {baby}.",
            "{h} got a new little {baby}.",
            "{p} came home with something small in a blanket. It was {h's} new {baby}!"
            if child
            else "an egg cracked open, and there was {h's} new {baby}!"
            if s.beings["h"].noun in ("duck", "duckling", "penguin")
            else "something small lay next to {p.o}. It was {h's} new {baby}!",
        ),
    )
    s.one(
        "The baby slept. The baby cried. The baby drank milk. That was all.",
        "It was red and loud, and it could not even play {game}.",
        "Everybody came to see the baby. Nobody looked at {h.o}.",
        '"Be quiet, the baby is asleep," they said all day long.',
    )
    s.one(
        "<h-p: Will you play with me?> <p/tired-h: Not now, {h.n}. The baby is hungry.>",
        "<h-p: Can we give it back?> <p-h: No, {h.n}. The baby stays.>",
        "{h} made a tower, and nobody looked. {h} sang, and nobody listened."
        if child
        else "{h} did a trick, and nobody looked.",
    )
    feel(s, "h", s.pick("sad|angry|lonely"))
    s.par()
    s.one(
        "{h} crept under the [table|bed|bush]. <h/sad: Nobody needs me any more.>",
        "<h/sad-p: You do not love me any more.> {P} was very surprised.",
        "{h} packed {his} bag: a teddy bear, an apple and one sock. <h: I am moving out.>"
        if child
        else "{h} went off to sit by {himself}.",
    )
    s.one(
        "{p} took {h.o} on {p.his} lap. <p/kind-h: Love is not like a cake. It does not get smaller when you share it. It grows.>",
        "{p} sat down next to {h.o}. <p/kind-h: When you were little, I carried you all night long. Now I need your help.>",
    )
    s.one(
        "Then the baby began to cry. Nobody could make it stop.",
        "That night, the baby cried and cried.",
        "Just then the baby woke up and screamed.",
    )
    s.one(
        "{h} leaned over. {h} made a funny noise: brrr! The baby stopped and looked.",
        "{h} sang the song that {he} liked best. The baby grew quiet.",
        "{h} made a face like a frog. The baby blinked.",
    )
    s.one(
        "And then it smiled. It was its very first smile, and it was for {h.o}!",
        "A tiny hand took hold of {him} and did not let go."
        if child
        else "It put its tiny head on {h.o} and fell asleep.",
    )
    feel(s, "h", s.pick("proud|happy"))
    s.may(
        0.6,
        "<p-h: Nobody else can do that. Only you.>",
        "<h/kind: When you are bigger, I will show you everything.>",
        "<h-p: I think we can keep it.>",
    )
    end(
        s,
        "And {h} was not the smallest any more. Now {he} was the big one.",
        '"That is my {baby}," {h} told everyone.',
        moral="self",
    )


@plot(friend="pair", weight=0.9)
def hide_and_seek(s: Story) -> None:
    open_story(s, pair=True)
    begin(
        s,
        (
            "{h} and {f} played hide and seek {here}.",
            "{they} wanted to play hide and seek. {f} had to count.",
            "{f} shut {f.his} eyes and counted. {h} ran off to hide.",
        ),
    )
    s.one(
        "<f: One, two, three.> {H} ran and looked for a good place.",
        "{h} looked here and there. One place was too small, and one place was too wet.",
    )
    s.one(
        "{h} hid {spot}, and made {himself} very small.",
        "Then {h} found the best hiding place in the world, {spot}. Nobody would find {him} there.",
        "{h} hid {spot} and held {his} breath.",
    )
    s.one(
        "<f: Here I come!> {F} looked {spot}. No {h.n}.",
        "{f} looked {spot}, and {f.he} looked {spot}. <f: Where can {h.n} be?>",
        "{h} could hear {f's} steps. {They} came nearer, and then {they} went away.",
    )
    way = s.pick("sleep|found|forgot|swap")
    s.par()
    if way == "sleep":
        s.one(
            "It was so warm and quiet there. {h's} eyes fell shut.",
            "{h} waited and waited. {he} yawned. And then {he} was asleep.",
        )
        s.one(
            "{f} looked for a long time. Then {f.he} began to worry. <f/scared: {h.n}! You have won! Come out!> But nobody came.",
            "<f: I give up! Come out!> Nothing moved.",
        )
        s.one(
            "{f} called everyone to help. {They} looked everywhere until it was almost dark.",
            "{f} stood still and listened. And there it was: a tiny snore!",
        )
        s.one(
            "{f} followed the sound. There lay {h}, rolled up like a [cat|bun].",
            "And then somebody heard a snore. It came from {spot}.",
        )
        s.one(
            "<h/tired-f: Have I won?> <f/happy-h: You have won, and how!>",
            "{h} opened one eye. <h/tired: You found me. That took you long.>",
        )
    elif way == "found":
        s.one(
            "While {h} was hiding, {he} felt something soft. There was somebody else in there!",
            "Then something tickled {h.o}. {h} was not alone.",
        )
        cast_other(s, "x", "kitten|rabbit|puppy|hedgehog|baby owl|fawn", "tiny|little|lost|frightened")
        s.one("It was {x.a}. <h/kind-x: Are you hiding too?>", "Two eyes looked at {h.o}. {They} belonged to {x.a}.")
        s.one(
            "{x} was too scared to come out. {h} talked to {x.o} very softly.",
            "{h} forgot the game. {x} was shaking all over.",
        )
        s.one(
            'When {f} found {them}, {h} said, "Shh. Look who is here."\x01',
            "<f: Found you!> <h: Quiet! There is somebody who needs us.>",
        )
        s.one(
            "{They} took {x.o} home, and there {x.his} mother was waiting.",
            "Together {they} gave {x.o} some water and stayed until {x.his} mother came.",
        )
    elif way == "forgot":
        s.one(
            "{f} was looking when {f.he} saw {creature}. {f.he} followed it and forgot the game.",
            "On the way, {f} found {find} and sat down to look at it. And so {f.he} forgot that {h} was hiding.",
        )
        s.one(
            "{h} waited. It got cold, and {his} legs fell asleep.", "{h} waited for a hundred years, or so it seemed."
        )
        s.one(
            "At last {h} came out. There sat {f}! <h/angry-f: You did not look for me!>",
            "{h} looked out. Nobody was there. {h} felt forgotten.",
        )
        s.one(
            "<f/sad-h: Oh! I am so sorry. I forgot!> {F} looked so unhappy that {h} could not be angry for long.",
            "{F} turned red. <f/shy-h: You were hidden too well!>",
        )
        s.one(
            "<h-f: Now I will count, and you hide.> And {h} found {f.o} at once, because {f} could not stop giggling.",
            "{f} gave {h.o} {find}, and {they} began again.",
        )
    else:
        s.one(
            "Then {h} had a funny idea. {he} crept around behind {f.o} and followed {f.him}.",
            "{h} saw {f's} hat lying there, and {he} had an idea. {h} put it on and walked around like {f}."
            if s.group == "child"
            else "Then {h} had a funny idea. Whenever {f} went left, {h} crept to the right.",
        )
        s.one(
            "{F} looked in front, and {h} was behind. {F} turned around, and {h} turned too.",
            "Around and around the tree {they} went.",
        )
        s.one(
            "Then {h} had to laugh, and it was all over. <f/happy-h: Got you!>",
            "At last {f} looked at the ground and saw two shadows. <f/happy: I can see you!>",
        )
        s.one(
            "{They} laughed so much that {they} had to lie down in the grass.",
            "<f-h: That was the best game ever.> <h-f: Again?> <f-h: Again!>",
        )
    end(
        s,
        "And the best hiding place stayed {their} secret.",
        "After that {they} played something else, something with less waiting.",
        moral="friend",
    )
