"""What can be owned, found, broken, eaten and given: things with their looks and uses. Data only."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass

COLORS = ["red", "blue", "green", "yellow", "orange", "purple", "pink", "white", "silver", "brown", "golden"]


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing. `play` and `use` follow a subject in the past; `broke` says how it breaks, after its name."""

    noun: str
    group: str
    looks: str
    play: str = ""
    broke: str = ""
    mend: str = ""
    part: str = ""  # a piece of it that can come off


_C = "red|blue|green|yellow|orange|purple|pink"

TOYS: tuple[Thing, ...] = (
    Thing(
        "ball",
        "toy",
        f"{_C}|big|striped|bouncy",
        "bounced it on the ground|threw it high and caught it|rolled it down the path",
        "went flat with a long hiss",
        "put a patch on the hole and pumped it up again",
    ),
    Thing(
        "kite",
        "toy",
        f"{_C}|paper|striped",
        "flew it over the fields|watched it dance in the wind|made it loop in the sky",
        "tore right down the middle",
        "glued new paper over the hole",
        "tail",
    ),
    Thing(
        "doll",
        "toy",
        "little|rag|old|pretty|wooden",
        "dressed it in tiny clothes|told it secrets|rocked it to sleep",
        "lost an arm",
        "sewed the arm back on",
        "arm",
    ),
    Thing(
        "toy car",
        "toy",
        f"{_C}|fast|shiny|little",
        "raced it over the floor|drove it up and down the hills|made it zoom",
        "lost a wheel",
        "put the wheel back on with a new screw",
        "wheel",
    ),
    Thing(
        "toy train",
        "toy",
        f"{_C}|wooden|little",
        "pulled it along the floor|made it go choo choo|filled it with tiny stones",
        "fell apart in two pieces",
        "tied the two pieces together with a strong wire",
        "wheel",
    ),
    Thing(
        "teddy bear",
        "toy",
        "brown|soft|old|fluffy|little",
        "hugged it tight|took it everywhere|gave it rides",
        "lost an ear",
        "sewed the ear back on with brown thread",
        "eye",
    ),
    Thing(
        "drum",
        "toy",
        f"{_C}|little|loud|tin",
        "beat it from morning to night|marched around with it|went boom, boom, boom",
        "got a big hole in it",
        "put a new skin on it",
        "stick",
    ),
    Thing(
        "toy boat",
        "toy",
        f"{_C}|wooden|little",
        "sailed it on the water|pulled it on a string|made waves for it",
        "cracked and filled with water",
        "filled the crack with wax",
        "sail",
    ),
    Thing(
        "spinning top",
        "toy",
        f"{_C}|wooden|striped",
        "made it spin and hum|spun it on the floor|counted how long it could spin",
        "cracked in two",
        "glued it together",
    ),
    Thing(
        "puppet",
        "toy",
        "wooden|funny|little|striped",
        "made it dance|gave it a funny voice|made it wave",
        "got its strings in a knot",
        "put new strings on it",
        "string",
    ),
    Thing(
        "toy robot",
        "toy",
        "silver|shiny|little|tin",
        "made it march|wound it up|let it beep",
        "stopped moving",
        "put a tiny drop of oil into it",
        "key",
    ),
    Thing(
        "wagon",
        "toy",
        "red|little|wooden|old",
        "pulled it up and down the path|filled it with sand|gave rides in it",
        "lost a wheel",
        "hammered the wheel back on",
        "wheel",
    ),
    Thing(
        "scooter",
        "toy",
        f"{_C}|fast|shiny",
        "rode it down the path|zoomed around the corner on it|raced on it",
        "bent in the middle",
        "bent it straight again",
        "bell",
    ),
    Thing(
        "toy plane",
        "toy",
        "white|silver|paper|little",
        "threw it into the wind|made it land on the grass|flew it over the fence",
        "lost a wing",
        "glued the wing back on",
        "wing",
    ),
    Thing(
        "whistle",
        "toy",
        "silver|wooden|little|loud",
        "blew it all day|made it sing like a bird|blew it for every passing dog",
        "did not make a sound any more",
        "took out the sand that was stuck in it",
    ),
    Thing(
        "toy rabbit",
        "toy",
        "gray|soft|floppy|old",
        "hugged it tight|carried it by the ears|tucked it in at night",
        "lost a leg",
        "sewed the leg back on",
        "ear",
    ),
    Thing(
        "toy horse",
        "toy",
        "wooden|brown|little|white",
        "rode it around the room|brushed its mane|made it gallop",
        "lost its tail",
        "made it a new tail out of yarn",
        "tail",
    ),
    Thing(
        "music box",
        "toy",
        "tiny|silver|old|pretty",
        "listened to its song|wound it up again and again|danced to its tune",
        "stopped playing",
        "put a tiny wheel back in its place",
        "key",
    ),
    Thing(
        "picture book",
        "toy",
        "big|old|pretty|thick",
        "looked at the pictures|turned every page|read it again and again",
        "lost a page",
        "put the page back with glue",
        "page",
    ),
    Thing(
        "snow globe",
        "toy",
        "little|pretty|glass",
        "shook it to make it snow|looked into it for a long time|held it up to the light",
        "got a long crack",
        "put a strip of clear tape on the crack",
    ),
)

WEAR: tuple[Thing, ...] = (
    Thing("hat", "wear", f"{_C}|straw|woolly|pointed"),
    Thing("scarf", "wear", f"{_C}|long|woolly|striped"),
    Thing("mitten", "wear", f"{_C}|woolly|warm"),
    Thing("cap", "wear", f"{_C}|striped"),
    Thing("ribbon", "wear", f"{_C}|silk|long"),
    Thing("cape", "wear", f"{_C}|long|shiny"),
    Thing("necklace", "wear", "silver|golden|shell|pretty"),
    Thing("ring", "wear", "silver|golden|tiny|shiny"),
    Thing("sweater", "wear", f"{_C}|woolly|warm|striped"),
    Thing("blanket", "wear", f"{_C}|soft|warm|old"),
    Thing("umbrella", "wear", f"{_C}|big|spotted"),
    Thing("backpack", "wear", f"{_C}|little|new"),
)

TREASURES: tuple[Thing, ...] = (
    Thing("shell", "treasure", "pink|white|shiny|curly|spotted"),
    Thing("stone", "treasure", "shiny|smooth|green|round|sparkling"),
    Thing("coin", "treasure", "gold|silver|shiny|old"),
    Thing("key", "treasure", "rusty|tiny|golden|old"),
    Thing("feather", "treasure", "blue|long|white|bright|soft"),
    Thing("bell", "treasure", "little|silver|golden|tiny"),
    Thing("marble", "treasure", "blue|green|glass|shiny"),
    Thing("button", "treasure", "red|gold|shiny|big|wooden"),
    Thing("pearl", "treasure", "white|tiny|shiny"),
    Thing("acorn", "treasure", "big|golden|shiny"),
    Thing("pine cone", "treasure", "big|perfect|brown"),
    Thing("bottle", "treasure", "green|old|little|glass"),
    Thing("box", "treasure", "little|wooden|locked|old|painted"),
    Thing("mirror", "treasure", "little|silver|round"),
    Thing("crystal", "treasure", "clear|purple|sparkling"),
    Thing("lamp", "treasure", "old|little|brass"),
)

TREATS = (
    "a cookie|a piece of apple pie|a bowl of strawberries|a slice of bread with honey|a warm bun|a plate of pancakes|"
    "a bowl of soup|a piece of cheese|a ripe pear|a cup of warm milk|a blueberry muffin|a handful of nuts|a jam sandwich|"
    "a slice of melon|a baked apple|a bag of cherries|a piece of chocolate cake|a cup of cocoa|some carrot sticks|"
    "a bowl of porridge|a banana|a slice of lemon cake"
)

SOUPS = "tomato soup|carrot soup|pumpkin soup|vegetable soup|bean soup|noodle soup|mushroom soup|potato soup"
CAKES = (
    "chocolate cake|apple pie|carrot cake|lemon cake|cherry pie|honey cake|berry tart|pumpkin pie|nut cake|"
    "blueberry pie"
)
PLANTS = "sunflower|pumpkin|bean|tomato|strawberry|carrot|rose|tulip|melon|apple|pea|daisy|cucumber|poppy|radish"
GAMES = (
    "hide and seek|tag|catch|pirates|leapfrog|follow the leader|kings and queens|shop|doctor|knights and dragons|hopscotch|"
    "marbles|statues|circus|explorers|trains"
)
PAINTINGS = (
    "a yellow house|a purple cat|the sea|a dragon with a hat|a rainbow|a tree full of birds|a big red sun|a horse with wings|"
    "the whole family|a boat in a storm|a smiling moon|a green elephant|a city of candy|a whale|a rocket"
)
DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
NUMBERS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty"
SURNAMES = (
    "Brown|Green|Hill|Baker|Wood|Miller|Bell|Fox|Stone|Field|Rose|Lake|Parker|Cook|Winter|Berry|Gray|Moss|Finch|Potter"
)
VILLAGES = "Applewood|Greenhill|Littlebrook|Sandybay|Oakdale|Honeyfield|Snowdrop|Bluewater|Willowtown|Pebbleton"
