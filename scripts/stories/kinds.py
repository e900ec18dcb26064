"""Who can be in a story: the kinds of heroes and friends, their names, their bodies and their ways. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of hero; lists are separated by bars. `group` says which plots and places suit it."""

    noun: str
    group: str  # child, animal, folk, thing, sea
    adjectives: str
    habitats: str  # names of the places' habitats
    home: str
    home_at: str = "in"
    walked: str = "walked"
    ran: str = "ran"
    hand: str = "hand"
    bed: str = "bed"
    eats: str = "cookies|apples|soup|pancakes|bread and honey|strawberries"
    cry: str = ""  # how a glad noise of it is told
    part: str = ""  # what it is proud of, with its adjective
    genders: str = "mf"
    young: str = ""  # word for a young one, where the plain noun is a grown one
    skills: str = ""  # fly, swim, dig, climb


BOYS = (
    "Tom Ben Sam Max Leo Tim Jack Finn Noah Oscar Theo Hugo Eli Luke Owen Felix Henry Oliver Jake Adam Peter Paul Emil "
    "Nico Milo Toby Ravi Omar Kofi Kenji Mateo Anton Karl Bruno Otto Jonas Arlo Rory Dan Will George Simon Ned Gus Ali"
).split()
GIRLS = (
    "Mia Lily Anna Sue Lucy Emma Ella Zoe Nora Ruby Rosa Ada Ivy Clara Maya Amy Sara Jane Kate Molly Daisy Alice Grace "
    "Hannah Eva Lena Nina Tara Priya Leila Yuki Ines Marta Greta Frida Olive Poppy Tess Wendy Polly Bella Sophie Kim Fay"
).split()
BOY_PETS = (
    "Pip Bobo Nibbles Tumble Bruno Fuzz Hopper Pogo Rusty Socks Benny Biscuit Muffin Chip Dash Fergus Gizmo Waldo "
    "Oskar Bumble Pebble Button Barnaby Rufus Sprout Acorn Scout Monty Ziggy Nutmeg Pepper Rocky"
).split()
GIRL_PETS = (
    "Dot Pearl Hazel Fern Clover Tilly Mimi Lulu Penny Rosie Willow Coco Bonnie Posy Maple Honey Pipa Trixie Dolly "
    "Kiki Nell Juniper Flora Sunny Cherry Peaches Tansy Berry Velvet Minnie Luna Plum"
).split()

CHILD_ADJECTIVES = "little|little|little|young|small|cheerful|curious|shy|kind|clever|quiet|happy|brave"

_CHILD_PLACES = "town|wild|water|farm"

KINDS: tuple[Kind, ...] = (
    Kind("boy", "child", CHILD_ADJECTIVES, _CHILD_PLACES, "house", genders="m"),
    Kind("girl", "child", CHILD_ADJECTIVES, _CHILD_PLACES, "house", genders="f"),
    # animals of the woods, fields and waters
    Kind("rabbit", "animal", "little|white|brown|gray|fluffy|young", "wild|farm", "burrow", walked="hopped",
         ran="hopped as fast as {he} could", hand="paw", eats="carrots|clover|lettuce|sweet grass",
         part="long soft ears", skills="dig"),
    Kind("bunny", "animal", "little|tiny|white|fluffy|soft", "wild|farm", "burrow", walked="hopped", ran="hopped fast",
         hand="paw", eats="carrots|clover|lettuce|dandelions", part="fluffy white tail", skills="dig"),
    Kind("mouse", "animal", "little|tiny|gray|brown|clever|quiet", "wild|farm|town", "hole", walked="scurried",
         ran="scurried", hand="paw", eats="cheese|seeds|bread crumbs|corn", part="long thin tail", skills="climb"),
    Kind("bear", "animal", "little|young|brown|fluffy|round|clumsy", "wild|water", "cave", hand="paw",
         eats="honey|berries|fish|nuts", part="round soft ears", skills="climb|swim", young="bear cub"),
    Kind("fox", "animal", "little|young|red|clever|quick", "wild|farm", "den", ran="raced", hand="paw",
         eats="berries|apples|eggs", part="bushy red tail", skills="dig"),
    Kind("squirrel", "animal", "little|red|gray|quick|busy", "wild", "hole in an old oak tree", walked="scampered",
         ran="scampered", hand="paw", bed="nest", eats="nuts|acorns|seeds", part="bushy tail", skills="climb"),
    Kind("hedgehog", "animal", "little|small|brown|shy|prickly", "wild|farm", "nest of dry leaves", hand="paw",
         walked="trotted", eats="apples|berries|mushrooms", part="prickly coat", skills="dig"),
    Kind("frog", "animal", "little|green|small|cheerful|noisy", "wild|water", "pond", home_at="by", walked="hopped",
         ran="hopped quickly", hand="foot", eats="flies|bugs", part="long strong legs", skills="swim"),
    Kind("duck", "animal", "little|yellow|white|brown|cheerful", "water|farm", "pond", home_at="by", walked="waddled",
         ran="waddled quickly", hand="wing", bed="nest", eats="bread crumbs|seeds|corn", part="flat yellow feet",
         skills="swim|fly", young="duckling"),
    Kind("puppy", "animal", "little|brown|playful|fluffy|black and white|silly", "town|farm|wild", "house",
         walked="trotted", ran="ran", hand="paw", bed="basket", eats="biscuits|sausages|bones", part="waggy tail",
         skills="dig|swim"),
    Kind("kitten", "animal", "little|gray|orange|fluffy|white|playful|sleepy", "town|farm", "house", walked="padded",
         ran="ran", hand="paw", bed="basket", eats="milk|fish", part="long whiskers", skills="climb"),
    Kind("pig", "animal", "little|pink|round|muddy|happy", "farm", "barn", walked="trotted", ran="galloped",
         hand="hoof", bed="straw", eats="corn|apples|potatoes", part="curly tail", young="piglet"),
    Kind("lamb", "animal", "little|white|woolly|gentle|young", "farm", "barn", walked="trotted", ran="skipped",
         hand="hoof", bed="straw", eats="grass|clover|hay", part="soft white wool"),
    Kind("pony", "animal", "little|brown|white|spotted|young", "farm", "stable", walked="trotted", ran="galloped",
         hand="hoof", bed="straw", eats="hay|apples|carrots", part="long silky tail"),
    Kind("goat", "animal", "little|white|brown|stubborn|young", "farm|wild", "barn", walked="trotted", ran="jumped and ran",
         hand="hoof", bed="straw", eats="grass|leaves|hay", part="short curly horns", skills="climb"),
    Kind("elephant", "animal", "little|baby|gray|big|gentle|young", "jungle|water", "forest", walked="stomped",
         ran="stomped along", hand="trunk", bed="bed of leaves", eats="bananas|leaves|grass", part="long trunk",
         skills="swim"),
    Kind("monkey", "animal", "little|cheeky|brown|playful|silly", "jungle", "tall tree", walked="swung from branch to branch",
         ran="swung quickly through the trees", hand="hand", bed="nest", eats="bananas|nuts|mangoes", part="long curly tail",
         skills="climb"),
    Kind("lion", "animal", "little|young|golden|proud|sleepy", "jungle", "den", hand="paw", walked="padded",
         eats="meat|fish", part="golden fur", genders="mf", young="lion cub"),
    Kind("tiger", "animal", "little|young|striped|playful", "jungle|water", "den", hand="paw", walked="padded",
         eats="meat|fish", part="orange stripes", skills="climb|swim"),
    Kind("giraffe", "animal", "little|young|tall|gentle|spotted", "jungle", "forest", hand="hoof", bed="bed of grass",
         eats="leaves|fruit", part="long, long neck"),
    Kind("panda", "animal", "little|round|sleepy|fluffy|baby", "jungle|wild", "bamboo forest", hand="paw",
         bed="bed of leaves", eats="bamboo|leaves", part="black and white fur", skills="climb"),
    Kind("penguin", "animal", "little|small|black and white|round|chilly", "snow", "snow house", walked="waddled",
         ran="slid on {his} belly", hand="wing", eats="fish", part="smooth black coat", skills="swim"),
    Kind("turtle", "animal", "little|green|slow|old|patient", "water|wild", "pond", home_at="by", walked="crawled",
         ran="crawled as fast as {he} could", hand="foot", eats="leaves|lettuce|berries", part="hard round shell",
         skills="swim"),
    Kind("snail", "animal", "little|tiny|slow|brown", "wild|farm", "garden", walked="crept", ran="slid along",
         hand="head", eats="leaves|lettuce", part="shiny round shell", bed="shell"),
    Kind("beaver", "animal", "little|brown|busy|young", "water|wild", "house of sticks", hand="paw",
         eats="leaves|bark|roots", part="flat tail", skills="swim"),
    Kind("otter", "animal", "little|brown|playful|wet|young", "water", "den by the river", hand="paw",
         eats="fish|crabs", part="thick brown fur", skills="swim"),
    Kind("mole", "animal", "little|black|shy|small", "wild|farm", "tunnel", hand="paw", eats="roots|bugs",
         part="strong paws", skills="dig"),
    Kind("badger", "animal", "little|young|grumpy|striped", "wild", "burrow", hand="paw", eats="roots|berries|nuts",
         part="striped nose", skills="dig"),
    Kind("raccoon", "animal", "little|gray|cheeky|curious", "wild|town", "hollow log", hand="paw",
         eats="apples|nuts|corn", part="striped tail", skills="climb"),
    Kind("deer", "animal", "little|young|gentle|shy|spotted", "wild", "forest", hand="hoof", bed="bed of moss",
         ran="leaped", eats="grass|leaves|berries", part="long thin legs", young="fawn"),
    Kind("owl", "animal", "little|young|brown|sleepy|fluffy", "wild", "hollow tree", walked="flew", ran="flew quickly",
         hand="wing", bed="nest", eats="bugs|berries", part="big round eyes", skills="fly"),
    Kind("bird", "animal", "little|blue|yellow|red|tiny|cheerful", "wild|town|farm", "nest", walked="flew",
         ran="flew quickly", hand="wing", bed="nest", eats="seeds|berries|crumbs", part="bright feathers", skills="fly"),
    Kind("bee", "animal", "little|tiny|busy|fuzzy|yellow", "wild|farm", "hive", walked="buzzed", ran="buzzed quickly",
         hand="wing", bed="hive", eats="honey", part="thin shiny wings", skills="fly"),
    Kind("ladybug", "animal", "little|tiny|red|spotted", "wild|farm", "rose bush", walked="crawled", ran="flew",
         hand="leg", bed="leaf", eats="tiny green bugs", part="black spots", skills="fly|climb"),
    Kind("ant", "animal", "little|tiny|busy|black|red", "wild|farm", "ant hill", walked="marched", ran="ran",
         hand="leg", eats="crumbs|seeds", part="strong legs", skills="dig|climb"),
    Kind("caterpillar", "animal", "little|green|hungry|fuzzy|slow", "wild|farm", "apple tree", walked="crawled",
         ran="crawled as fast as {he} could", hand="foot", bed="leaf", eats="leaves", part="many small feet",
         skills="climb"),
    Kind("chick", "animal", "little|yellow|fluffy|tiny", "farm", "barn", walked="hopped", ran="ran", hand="wing",
         bed="nest", eats="seeds|corn", part="soft yellow feathers"),
    Kind("donkey", "animal", "little|gray|stubborn|gentle", "farm", "stable", walked="trotted", ran="galloped",
         hand="hoof", bed="straw", eats="hay|carrots|apples", part="long gray ears"),
    # people of tales
    Kind("dragon", "folk", "little|young|green|red|purple|friendly|small", "wild|castle", "cave", walked="walked",
         ran="flew", hand="claw", eats="hot soup|toast|peppers|pancakes", part="shiny green tail", skills="fly"),
    Kind("robot", "folk", "little|small|shiny|silver|round", "town|wild", "workshop", walked="rolled", ran="rolled quickly",
         hand="hand", eats="oil|batteries", part="round glass eyes"),
    Kind("princess", "folk", "little|young|brave|kind|clever", "castle|wild", "castle", genders="f"),
    Kind("prince", "folk", "little|young|brave|kind|clever", "castle|wild", "castle", genders="m"),
    Kind("knight", "folk", "little|young|brave|small|kind", "castle|wild", "castle"),
    Kind("pirate", "folk", "little|young|brave|cheerful", "water", "ship", home_at="on"),
    Kind("fairy", "folk", "little|tiny|kind|shy", "wild|castle", "flower house", walked="flew", ran="flew quickly",
         eats="honey|berries|nectar", part="thin silver wings", genders="f", skills="fly"),
    Kind("elf", "folk", "little|small|cheerful|clever", "wild|snow", "mushroom house", eats="berries|honey|nuts"),
    Kind("gnome", "folk", "little|small|old|cheerful|grumpy", "wild|farm", "house under a root", eats="mushrooms|berries|soup",
         genders="m", part="tall red hat"),
    Kind("giant", "folk", "kind|friendly|gentle|big|shy", "wild|castle", "house as tall as a hill", walked="stomped",
         eats="big bowls of soup|whole pies|barrels of apples", genders="mf"),
    Kind("wizard", "folk", "little|young|clumsy|kind", "castle|wild", "tower", genders="m"),
    Kind("witch", "folk", "little|young|kind|clumsy|funny", "wild|castle", "crooked house", genders="f"),
    Kind("snowman", "folk", "little|round|cheerful|friendly", "snow", "yard", walked="rolled", ran="slid",
         hand="stick hand", eats="ice|snow", part="carrot nose", genders="m"),
    Kind("teddy bear", "folk", "little|old|soft|brown", "town", "toy box", hand="paw", part="button eyes",
         eats="pretend tea|pretend cake"),
    Kind("doll", "folk", "little|pretty|old|small", "town", "doll house", genders="f", eats="pretend tea|pretend cake"),
    # those of the sea, in plots of their own
    Kind("fish", "sea", "little|tiny|silver|golden|striped|quick", "sea", "coral reef", home_at="in", walked="swam",
         ran="swam as fast as {he} could", hand="fin", bed="bed of seaweed", eats="seaweed|tiny shrimps", part="shiny scales"),
    Kind("crab", "sea", "little|red|small|grumpy", "sea", "hole in the sand", walked="walked sideways", ran="ran sideways",
         hand="claw", bed="bed of sand", eats="seaweed|mussels", part="strong claws"),
    Kind("octopus", "sea", "little|purple|shy|young|clever", "sea", "cave under the sea", walked="floated", ran="shot off",
         hand="arm", bed="bed of sand", eats="mussels|tiny shrimps", part="eight long arms"),
    Kind("whale", "sea", "little|young|big|gentle|blue", "sea", "wide blue sea", walked="swam", ran="swam fast",
         hand="fin", bed="bed of waves", eats="tiny shrimps", part="great big tail"),
    Kind("dolphin", "sea", "little|young|gray|playful|cheerful", "sea", "warm blue sea", walked="swam", ran="raced",
         hand="fin", bed="bed of waves", eats="little fish|squid", part="long smile"),
    Kind("seahorse", "sea", "little|tiny|orange|shy", "sea", "garden of seaweed", walked="drifted", ran="swam upright",
         hand="fin", bed="bed of seaweed", eats="tiny shrimps", part="curly tail"),
    Kind("starfish", "sea", "little|red|slow|orange", "sea", "rock pool", walked="crept", ran="crept a little faster",
         hand="arm", bed="bed of sand", eats="mussels", part="five round arms"),
    # things that live
    Kind("train", "thing", "little|red|blue|old|small", "rails", "train shed", walked="rolled", ran="raced",
         hand="wheel", part="loud whistle", genders="mf", bed="shed"),
    Kind("truck", "thing", "little|red|green|old|strong", "road", "garage", walked="drove", ran="drove fast",
         hand="wheel", part="big round lights", bed="garage"),
    Kind("bus", "thing", "little|yellow|old|red|friendly", "road", "garage", walked="drove", ran="drove fast",
         hand="wheel", part="loud horn", bed="garage"),
    Kind("boat", "thing", "little|blue|white|red|old", "harbor", "harbor", walked="sailed", ran="sailed fast",
         hand="rope", part="bright white sail", skills="swim", bed="harbor"),
    Kind("tractor", "thing", "little|green|red|old|strong", "road", "shed", walked="drove", ran="drove fast",
         hand="wheel", part="big back wheels", bed="shed"),
    Kind("plane", "thing", "little|white|red|small", "sky", "hangar", walked="flew", ran="flew fast", hand="wing",
         part="shiny wings", skills="fly", bed="hangar"),
    Kind("cloud", "thing", "little|white|small|fluffy|gray", "sky", "sky", walked="floated", ran="raced",
         hand="side", part="soft white sides", skills="fly", bed="sky"),
    Kind("star", "thing", "little|tiny|small|silver|shy", "sky", "sky", walked="floated", ran="flew", hand="point",
         part="silver light", skills="fly", bed="sky"),
    Kind("lantern", "thing", "little|old|small|red", "harbor", "shed by the sea", walked="swung", ran="swung",
         hand="handle", part="warm yellow light", bed="shelf"),
)

# Animals that may turn up beside any hero, with the pronoun of a creature one does not know.
PASSERS_BY = (
    "a small brown bird|an orange butterfly|a gray squirrel|a fat bumblebee|a green frog|a shiny beetle|a black cat|"
    "a tiny ladybug|a slow snail|a white goose|a long worm|a blue dragonfly|a spotted dog|a baby rabbit|a row of ants"
).split("|")
