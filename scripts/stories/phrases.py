"""Named lists of phrases: feelings, manners, ways to begin, to go on and to end. Data only.

{e} is whoever a feeling is told of; %his in a manner of speaking is the speaker's.
"""

from __future__ import annotations

MANNERS: dict[str, tuple[str, ...]] = {
    "sad": ("sadly", "in a small voice", "with tears in %his eyes", "with a sigh", "very quietly"),
    "happy": ("happily", "with a big smile", "with a laugh", "with shining eyes", "with a hop", "cheerfully"),
    "kind": ("kindly", "softly", "with a smile", "in a gentle voice", "with a warm smile", "with a nod"),
    "angry": ("crossly", "in a loud voice", "with a frown", "in a grumpy voice"),
    "shy": ("shyly", "in a tiny voice", "very softly", "so quietly that it was hard to hear"),
    "scared": ("in a shaky voice", "in a whisper", "with wide eyes"),
    "proud": ("proudly", "with a grin", "with %his nose in the air"),
    "tired": ("with a yawn", "sleepily", "in a tired voice", "slowly"),
}

BANKS: dict[str, tuple[str, ...]] = {
    # what a speaker does before the words
    "beat_plain": ("thought for a moment", "looked up", "took a deep breath", "looked around", "came closer", "blinked"),
    "beat_sad": ("sighed", "looked down", "sniffed", "wiped %his eyes", "hung %his head", "swallowed hard"),
    "beat_happy": ("laughed", "smiled from ear to ear", "jumped for joy", "beamed", "grinned", "spun around once"),
    "beat_kind": ("smiled", "bent down", "gave a little nod", "smiled kindly", "came closer", "gave a warm smile"),
    "beat_angry": ("frowned", "stamped once", "made a grumpy face", "turned red", "turned away", "huffed"),
    "beat_shy": ("looked down", "turned pink", "came one step closer", "waited a little", "smiled a tiny smile", "blushed"),
    "beat_scared": ("shivered", "stood very still", "gulped", "took a step back", "trembled", "listened"),
    "beat_proud": ("grinned", "stood up tall", "lifted %his chin", "smiled proudly", "bowed", "nodded"),
    "beat_tired": ("yawned", "rubbed %his eyes", "stretched", "blinked slowly", "gave a big yawn", "leaned back"),
    # feelings
    "sad": (
        "{e} felt [very |]sad.", "{e} wanted to cry.", "A [big |]tear rolled down [{e.his} cheek|{e.his} nose].",
        "{e} sat down and [cried|began to cry|put {e.his} head down].", "{e} did not know what to do.",
        "It made {e.o} feel [cold and empty|small and alone] inside.", "{e} sniffed and wiped {e.his} eyes.",
        "{e} was so sad that {e.he} could not [eat|speak|smile].", "{e} felt a lump in {e.his} throat.",
        "Two tears fell on the ground.", "{e} hung {e.his} head.", "All the fun went out of the day.",
        "{e} sighed a long, long sigh.", "For a while {e} said nothing at all.",
    ),
    "happy": (
        "{e} was [so happy|very happy|full of joy].", "{e} felt [warm|light] inside.", "{e} jumped [up and down|for joy].",
        "{e} laughed [out loud|and laughed].", "{e} had the biggest smile in the world.", "{e} danced in a circle.",
        "{e} could not stop smiling.", "{e} felt as light as a feather.", "{e} beamed like the sun.",
        "{e} was so glad that {e.he} gave a little [hop|skip|cheer].", "What a [happy|lovely|wonderful] feeling that was!",
        "It was the best feeling in the world.", "{e} smiled from ear to ear.", "{e} wanted to hug the whole world.",
    ),
    "proud": (
        "{e} felt [very |]proud.", "{e} stood up very tall.", "{e} was so proud that {e.he} [glowed|could not stop smiling].",
        "{e} looked at it again and again.", "{e} felt ten feet tall.", "{e} had done it all alone, and it felt good.",
        "{e} could hardly believe it.", "{e} had never been so proud before.",
    ),
    "scared": (
        "{e} was [scared|afraid|a little scared].", "{e} shook like a leaf.", "{e} felt {e.his} heart beat fast.",
        "{e} wanted to run [away|home].", "{e} held {e.his} breath.", "{e} did not dare to move.",
        "{e} felt cold all over.", "{e.his} legs felt as soft as [butter|jelly].", "{e} shut {e.his} eyes tight.",
        "Thump, thump, thump went {e.his} heart.",
    ),
    "angry": (
        "{e} was [cross|angry|very angry].", "{e} frowned and turned away.", "{e} did not think that was fair.",
        "{e} felt hot and grumpy.", "{e} made an angry face.", "{e} wanted to shout.", "{e} stamped on the ground.",
        "{e} was so cross that {e.he} did not say a word.",
    ),
    "guilty": (
        "{e} felt [bad|very bad|awful].", "{e} had a heavy feeling inside.", "{e} felt [a knot|a stone] in {e.his} belly.",
        "{e} knew that it was wrong.", "{e} could not look up.", "{e} did not feel like playing any more.",
        "Deep inside, {e} knew the truth.", "The bad feeling would not go away.", "{e} was ashamed.",
    ),
    "worried": (
        "{e} was worried.", "{e} began to worry.", "{e} had a bad feeling.", "{e} looked around with big eyes.",
        "What could have happened?", "{e} could not sit still.", "{e} walked up and down.",
        "{e} thought about it all the time.",
    ),
    "tired": (
        "{e} was tired.", "{e} gave a big yawn.", "{e.his} eyes began to close.", "{e} could hardly keep {e.his} eyes open.",
        "{e} was so tired that even {e.his} nose felt sleepy.", "{e} rubbed {e.his} eyes.",
    ),
    "surprised": (
        "{e} could not believe {e.his} eyes.", "{e} stared with [an open mouth|big round eyes].", "{e} was so surprised!",
        "{e} blinked two times.", "That was a surprise!", "{e} had never seen anything like it.", "{e} jumped in surprise.",
        "{e} looked and looked again.",
    ),
    "lonely": (
        "{e} felt [lonely|all alone].", "There was nobody to [play with|talk to|laugh with].", "{e} wished for a friend.",
        "The day was long when you were all alone.", "{e} watched the others from far away.",
        "It is no fun to play alone, {e.he} thought.", "{e} talked to {e.his} own shadow.",
    ),
    "brave": (
        "{e} took a deep breath.", "{e} counted to three.", "{e} made {e.his} heart strong.",
        "{e} was still afraid, but {e.he} did not [stop|turn back].", "I can do this, {e.he} thought.",
        "{e} thought of something nice and took one step.", "{e} pressed {e.his} lips together and went on.",
        "Being brave does not mean that you are not afraid, {e.he} told {e.himself}.",
    ),
    "thinking": (
        "{e} thought [hard|and thought|for a long time].", "{e} sat down to think.", "{e} scratched {e.his} head.",
        "{e} looked up at the clouds and thought.", "{e} thought so hard that {e.his} head felt warm.",
        "{e} walked around in a circle and thought about it.",
    ),
    "idea": (
        "Then {e} had an idea.", "All at once, {e} had an idea.", "Then a [good|clever|funny] idea came to {e.o}.",
        "Suddenly {e} knew what to do.", "Just then {e} had a plan.", "After a while, {e} began to smile. {E.he} had a plan.",
        "Then something came into {e.his} mind.",
    ),
    # little links
    "oneday": (
        "one day,", "one day,", "one {weather} [morning|day|afternoon],", "one {weather} day,", "then one day,",
        "one [morning|afternoon|evening],", "early one morning,", "on a {weather} {season} day,", "on [{day}|a {weather}] morning,",
        "one {season} [day|morning],", "it happened on a {weather} day:",
    ),
    "later": (
        "later,", "after a while,", "a little later,", "soon,", "some time later,", "before long,", "then,", "after that,",
        "by and by,", "a few minutes later,",
    ),
    "suddenly": ("suddenly", "all at once", "all of a sudden", "just then", "just at that moment", "at that moment"),
    "nextday": (
        "The next day,", "The next morning,", "In the morning,", "When the sun came up again,", "Early the next day,",
        "The day after that,", "When the new day began,",
    ),
    "wow": ("wow", "oh my", "hooray", "oh", "look", "goodness me", "hurray", "my, my"),
    "dear": ("dear", "my dear", "sweetheart", "little one", "my love", "darling"),
    # comfort and thanks
    "hug": (
        "{e} gave {h.o} a [big|long|warm] hug.", "{e} hugged {h.o} [tight|for a long time].", "{e} put an arm around {h.o}.",
        "{e} held {h.o} close.", "{e} sat down beside {h.o}.", "{e} took {h.o} in {e.his} arms.",
    ),
    "thanks": (
        "<h/happy-e: Thank you!>", "<h/happy-e: Thank you so much!>", "<h-e: Thank you. You are very kind.>",
        "<h/happy-e: Oh, thank you! I was so [worried|sad].>", "<h-e: Thank you for your help.>",
        "{h} thanked {e.o} [again and again|three times|with all {his} heart].", "{h} gave {e.o} a big smile to say thank you.",
        "<h-e: That was very kind of you. Thank you!>", "<h/happy-e: How can I ever thank you?> <e/kind-h: Your smile is enough.>",
        "<h/happy-e: Thank you, {e.n}!> <e/kind-h: You are welcome.>",
    ),
    "sorry": (
        "<h/sad-e: I am sorry.>", "<h/sad-e: I am so sorry.>", "<h/sad-e: I am very sorry. I will not do it again.>",
        "<h/shy-e: I am sorry, {e.n}. I was wrong.>", "<h/sad-e: Please do not be angry. I am sorry.>",
        "<h/sad-e: I did not mean to. I am sorry.>",
    ),
    "forgive": (
        "<e/kind-h: I forgive you.>", "<e/kind-h: It is all right. Everyone makes mistakes.>",
        "<e/kind-h: Thank you for saying that.>", "<e/kind-h: That is all right. We are still friends.>",
        "{e} was quiet for a moment. Then {e.he} smiled. \"It is all right.\"\x01",
        "<e/kind-h: I was sad, but now I feel better.>",
    ),
    "cheer": (
        "Everyone clapped.", "Everybody cheered.", "\"Hooray!\" they all shouted.", "\"Well done!\" everyone called.",
        "They clapped and clapped.", "The clapping went on and on.", "Hats flew up into the air.",
    ),
    "calm": (
        "<e/kind-h: Do not be sad, {h.n}.>", "<e/kind-h: Do not worry.>", "<e/kind-h: Dry your tears, {h.n}.>",
        "<e/kind-h: It will be all right.>", "<e/kind-h: Come here, {~dear}.>", "<e/kind-h: Oh, {h.n}! What is the matter?>",
        "<e/kind-h: Why are you sad, {h.n}?>",
    ),
    # small things that happen beside the road; nothing depends on them
    "interlude": (
        "{creature} [came by|went past] and looked at {h.o}.",
        "On the way, {h} saw {creature}. <h: Good day!> But it had no time to talk.",
        "{sight}", "{sight}", "{sight}",
        "A leaf fell down and landed right on {his} [nose|head]. It [tickled|made {him} laugh].",
        "{h} was hungry and ate {treat}. That helped a little.",
        "There was a big puddle in the way. {h} jumped, and almost made it. Splash!",
        "{h} hummed a little song.",
        "{h} stopped to [drink some cool water|catch {his} breath|look at a funny cloud].",
        "A cloud that looked like a [sheep|whale|shoe|teapot] hung above {them}.",
        "Something [rustled|moved] in the bushes, but it was only {creature}.",
        "{h} counted {his} steps: one, two, three, four, five.",
        "For a moment, the sun came out and made everything [gold|bright|warm].",
        "{h} found {find}, but {he} left it there.",
    ),
    # ways home and to the end of a day
    "dusk": (
        "When the sun went down, {they} [{walked}|went] home.", "The sun was low and the shadows were long.",
        "Soon it was time to go home.", "The sky turned pink and [orange|purple|gold].",
        "By now it was evening, and the first star came out.", "When it got dark, {they} said goodbye.",
        "The day was almost over.", "That evening, the moon looked in at the window.",
    ),
    "goodnight": (
        "That night, {h} slept very well.", "That night, {h} fell asleep with a smile.", "{h} lay down in {his} {h.bed} and dreamed of it.",
        "And when {h} went to sleep, {he} was still smiling.", "{h} closed {his} eyes. It had been a [good|long|wonderful] day.",
        "Soon {h} was fast asleep.", "That night the moon shone on {his} {h.bed}, and all was well.",
        "<h/tired: What a day!> And {he} fell asleep at once.",
        "{h} had the sweetest dreams that night.",
    ),
    "closing": (
        "And they lived happily ever after.", "The end.", "And that was that.", "It was the best day ever.",
        "What a day it had been!", "It was a day that {h} never forgot.", "{h} smiled whenever {he} thought of it.",
        "And everyone was happy.", "And if you listen well, you can still hear {them} laugh.",
        "{h} told the story again and again.", "From then on, every day was a little brighter.",
        "It was a very good day.", "And so the day had a happy end.",
    ),
    "friends_now": (
        "From that day on, {h} and {f} were [best friends|the best of friends|good friends].",
        "After that, {h} and {f} played together every day.", "{h} and {f} became best friends.",
        "And from then on, nobody ever saw {h.o} without {f}.", "From then on, {h} was never lonely again.",
        "Now {h} had a friend, and {f} had one too.", "They are still friends today.",
        "The next day they met again, and the day after that, and all the days after.",
    ),
    # what one learns
    "moral_share": (
        "{h} learned that sharing makes [everything better|everyone happy].", "Things are more fun when you share them.",
        "A little for everyone is better than a lot for one.", "{h} found out that a shared cookie tastes twice as good.",
        "{h} had less now, but {he} felt richer.", "From that day on, {h} liked to share.",
    ),
    "moral_honest": (
        "{h} learned that it is [best|always better] to tell the truth.", "The truth can be hard to say, but it makes the heart light.",
        "From then on, {h} always told the truth.", "{h} knew now that a small lie can grow very big.",
        "It is brave to tell the truth.", "{h} never told a lie like that again.",
    ),
    "moral_brave": (
        "{h} was not so afraid any more.", "{h} learned that you can be small and brave at the same time.",
        "Now {h} knew that {he} was braver than {he} thought.", "You are brave when you are afraid and do it anyway.",
        "After that, {h} was never quite so scared again.", "Sometimes the things we fear are not so bad at all.",
    ),
    "moral_help": (
        "{h} learned that it feels good to help.", "When we help each other, hard work is easy.",
        "One small act of kindness can change a whole day.", "{h} was glad that {he} had stopped to help.",
        "Helping hands are never too small.", "And {h} found that a kind heart makes many friends.",
    ),
    "moral_patience": (
        "{h} learned that good things take time.", "Sometimes you just have to wait.", "Slow and steady was the best way after all.",
        "After that, {h} was much better at waiting.", "The best things are worth waiting for.",
        "What grows slowly grows well.",
    ),
    "moral_careful": (
        "After that, {h} was always careful.", "{h} learned to look after {his} things.", "Next time, {h} would be more careful.",
        "{h} promised to be more careful from now on.", "It is better to be careful than to be sorry.",
        "{h} never forgot that again.",
    ),
    "moral_try": (
        "{h} learned never to give up.", "If it does not work the first time, try again.",
        "{h} knew now that mistakes help us learn.", "You can do hard things if you keep trying.",
        "Nobody is good at something the first time.", "It had taken many tries, but that made it even better.",
    ),
    "moral_friend": (
        "A friend makes everything better.", "{h} learned that a good friend is the best treasure of all.",
        "Good friends are always there when you need them.", "It is good to have a friend.",
        "With a friend beside you, nothing is so bad.", "A friend is worth more than [gold|all the toys in the world].",
    ),
    "moral_listen": (
        "From then on, {h} listened.", "{h} learned that it is wise to listen.", "Next time, {h} would listen the first time.",
        "After that, {h} always did what {he} was told. Well, almost always.", "It is good to listen to those who know more.",
    ),
    "moral_self": (
        "{h} did not want to be anybody else.", "{h} learned that everyone is good at something.",
        "Being different can be a good thing.", "{h} was happy to be just the way {he} was.",
        "Big or small, everyone matters.", "There was only one {h.n} in the whole world, and that was just right.",
    ),
    "moral_home": (
        "There is no place like home.", "{h} was glad to be home.", "Home is where somebody waits for you.",
        "The world is big and wonderful, but home is best.", "It is good to go away, and it is even better to come home.",
    ),
    "moral_joy": (
        "Sometimes the best things are the simple ones.", "You do not need much to be happy.",
        "It is the little things that make a day bright.",
        "There is always something to smile about.",
    ),
}
