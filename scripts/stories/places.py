"""Where stories happen: places with their spots, sights and pastimes; seasons, weather and hours. Data only."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A place. `spots` are where a thing may lie, `sights` whole sentences, `pastimes` follow a subject in the past."""

    noun: str  # with its article
    at: str
    to: str
    habitats: str
    spots: str
    sights: str
    pastimes: str
    finds: str
    indoors: bool = False


PLACES: tuple[Place, ...] = (
    Place(
        "the park",
        "in the park",
        "to the park",
        "town",
        "under a bench|behind the slide|next to the fountain|in the tall grass|under the big oak tree|near the swings",
        "A man was selling balloons near the gate.|Two dogs chased each other around a tree.|"
        "Some ducks swam on the small pond.|The swings moved softly in the wind.|A lady was reading a book on a bench.|"
        "Pigeons walked up and down the path.",
        "went down the slide|rode on the swings|ran around the fountain|rolled down the grassy hill|fed the ducks|"
        "played tag",
        "a shiny coin|a lost glove|a red leaf|a bird feather|a blue marble",
    ),
    Place(
        "the playground",
        "at the playground",
        "to the playground",
        "town",
        "under the slide|in the sandbox|behind the climbing frame|next to the seesaw|by the fence",
        "The slide was warm from the sun.|Many children were shouting and laughing.|The seesaw went up and down.|"
        "A big boy hung upside down from the bars.|Somebody had made a long road in the sandbox.",
        "dug in the sandbox|went up and down on the seesaw|climbed to the top of the bars|slid down the slide|"
        "pushed each other on the swings",
        "a toy shovel|a smooth stone|a yellow button|a bottle top|a paper star",
    ),
    Place(
        "the garden",
        "in the garden",
        "to the garden",
        "town|farm",
        "under the rose bush|behind the shed|between the cabbages|under a flower pot|next to the water can|by the gate",
        "Bees hummed around the flowers.|The tomatoes were red and round.|A worm came out of the wet soil.|"
        "White sheets danced on the clothes line.|The apple tree was full of small green apples.",
        "watered the flowers|picked strawberries|looked for worms|chased butterflies|pulled out weeds|smelled the roses",
        "a snail shell|a round pebble|a pink petal|an old spoon|a rusty key",
    ),
    Place(
        "the yard",
        "in the yard",
        "to the yard",
        "town|farm",
        "under the porch|behind the woodpile|in a puddle|next to the fence|under the steps|by the bucket",
        "The neighbor's cat slept on the wall.|A sparrow took a bath in a puddle.|The old swing hung from the tree.|"
        "The wash was drying in the wind.",
        "drew on the ground with chalk|jumped over a rope|splashed in the puddles|built a fort from boxes|"
        "kicked a ball at the wall",
        "a piece of chalk|a bent nail|a gray feather|a small bell|a green marble",
    ),
    Place(
        "the kitchen",
        "in the kitchen",
        "to the kitchen",
        "home",
        "under the table|behind the flour jar|in the bread box|on the top shelf|next to the stove|in the sink",
        "Something good was baking in the oven.|The kettle sang on the stove.|A row of cups hung on the wall.|"
        "Flour lay on the table like snow.|The clock on the wall went tick, tock.",
        "stirred the soup|licked the spoon|set the table|washed the cups|cut out cookies",
        "a silver spoon|a jar of jam|a little bell|a string",
        indoors=True,
    ),
    Place(
        "the bedroom",
        "in the bedroom",
        "to the bedroom",
        "home",
        "under the bed|behind the curtain|under the pillow|in the toy box|between two books|inside a shoe",
        "The toys sat in a row on the shelf.|The curtain moved a little.|A thin line of light came under the door.|"
        "The blanket had stars on it.",
        "built a tower|looked at picture books|played with blocks|made a tent from a blanket|dressed up",
        "an old sock|a lost puzzle piece|a crayon|a sticker",
        indoors=True,
    ),
    Place(
        "the beach",
        "at the beach",
        "to the beach",
        "water|town",
        "under a towel|behind a rock|in a small pool|half under the sand|next to an old boat|between two shells",
        "Small waves ran up the sand and back again.|A gull cried in the sky.|Far out, a white boat was sailing.|"
        "The sand was warm and soft.|A crab walked sideways into its hole.",
        "dug a deep hole|collected shells|jumped over the waves|built a sandcastle|looked for crabs|threw stones into "
        "the water",
        "a pink shell|a piece of green glass|a long feather|a gray stone with a hole in it|a starfish",
    ),
    Place(
        "the lake",
        "by the lake",
        "to the lake",
        "water|wild|town",
        "in the reeds|under the small bridge|behind a wet log|on a flat stone|at the edge of the water",
        "The water was as smooth as a mirror.|A fish jumped and made rings in the water.|Two swans swam past.|"
        "Blue dragonflies hung over the reeds.|A fisherman sat in his boat.",
        "threw pebbles into the water|watched the fish|dipped their toes in the water|made boats out of leaves|"
        "looked for frogs",
        "a white pebble|a swan feather|a fish hook|a wooden cork|a water lily",
    ),
    Place(
        "the forest",
        "in the forest",
        "to the forest",
        "wild|town|castle",
        "under a pile of leaves|behind a mossy rock|inside a hollow log|between the roots of an old tree|under a fern|"
        "next to a mushroom",
        "A woodpecker knocked on a tree.|The sun made gold spots on the ground.|The leaves whispered in the wind.|"
        "A squirrel ran up a tree with a nut in its mouth.|It smelled of moss and mushrooms.|A cuckoo called far away.",
        "picked berries|jumped over the roots|looked for mushrooms|climbed on a fallen tree|followed a tiny path|"
        "collected pine cones",
        "a pine cone|a spotted feather|a big acorn|a round nut|a red berry|a curly piece of bark",
    ),
    Place(
        "the meadow",
        "in the meadow",
        "to the meadow",
        "wild|farm|castle",
        "in the tall grass|under a daisy|behind a gray stone|next to a molehill|near the old fence",
        "The grass was full of flowers.|Grasshoppers sang in the grass.|A lark flew up into the sky.|"
        "White clouds sailed over the meadow.|The wind made waves in the grass.",
        "picked daisies|rolled in the grass|made flower crowns|ran after a butterfly|looked at the clouds|blew on "
        "dandelions",
        "a daisy|a four-leaf clover|a grasshopper|a blue petal|a shiny beetle",
    ),
    Place(
        "the river",
        "by the river",
        "to the river",
        "wild|water|farm|town",
        "between the stones|under the old bridge|in the mud|behind a willow tree|on the sandy bank",
        "The water ran over the stones and sang.|A leaf floated by like a small boat.|A heron stood on one leg.|"
        "The river was clear and cold.|Little fish hid in the shadow of the bridge.",
        "skipped stones|splashed in the cool water|caught little fish and let them go|built a dam from sticks|"
        "sailed leaves down the river",
        "a smooth stone|a wet stick|a silver fish scale|an old bottle|a floating apple",
    ),
    Place(
        "the hill",
        "on the hill",
        "up the hill",
        "wild|farm|castle|town",
        "behind a bush|under a flat rock|in a rabbit hole|next to the old tree on top|in the long grass",
        "From the top, the houses looked as small as toys.|The wind blew hard up there.|Sheep were eating grass on the hill.|"
        "A hawk made circles in the sky.",
        "raced to the top|rolled all the way down|flew paper planes|counted the houses|lay down and looked at the sky",
        "a gray feather|a flat stone|a tuft of wool|a yellow flower",
    ),
    Place(
        "the farm",
        "on the farm",
        "to the farm",
        "farm|town",
        "behind the barn|in the hay|under the cart|next to the well|in the chicken house|by the pig pen",
        "A rooster crowed on the fence.|The cows looked over the gate.|Hens scratched in the dirt.|"
        "The barn smelled of hay.|A fat pig slept in the mud.",
        "fed the hens|jumped in the hay|looked for eggs|brushed the pony|carried water to the cows|rode on the cart",
        "a brown egg|a horseshoe|a long straw|a rusty nail",
    ),
    Place(
        "the market",
        "at the market",
        "to the market",
        "town",
        "under the fruit stand|behind a basket of apples|next to the flower cart|between two boxes|by the fountain",
        'A woman was shouting, "Fresh fish!"|There were hills of oranges and lemons.|It smelled of bread and flowers.|'
        "People with bags and baskets walked everywhere.",
        "tasted a piece of cheese|looked at the fish|counted the pumpkins|smelled the flowers|carried the basket",
        "a lost coin|a squashed plum|a paper bag|a button",
    ),
    Place(
        "the library",
        "in the library",
        "to the library",
        "town",
        "behind a row of books|under a chair|between two pages|on the lowest shelf|next to the globe",
        "It was so quiet that you could hear the clock.|An old man was sleeping over his newspaper.|"
        "There were books up to the ceiling.",
        "looked at picture books|listened to a story|sat in the soft chairs|turned the big globe",
        "an old bookmark|a pencil|a pair of glasses",
        indoors=True,
    ),
    Place(
        "the school yard",
        "in the school yard",
        "to school",
        "town",
        "under the bench|behind the big tree|next to the door|in the sandbox|by the wall",
        "The bell rang once.|Children ran in all directions.|A teacher stood at the door and smiled.",
        "played ball|jumped rope|played hide and seek|traded stickers|ran races",
        "a lost mitten|a marble|a pencil",
    ),
    Place(
        "the pond",
        "at the pond",
        "to the pond",
        "wild|water|farm",
        "in the reeds|under a lily pad|behind a wet rock|in the mud|on a floating log",
        "A fat frog sat on a lily pad.|The water was green and still.|Tadpoles swam in the warm water.|"
        "A water bug ran over the pond.|The reeds moved in the wind.",
        "jumped from stone to stone|splashed with the frogs|watched the tadpoles|blew bubbles|floated little sticks",
        "a lily petal|a round pebble|a snail shell|a green feather",
    ),
    Place(
        "the big tree",
        "under the big tree",
        "to the big tree",
        "jungle|wild",
        "behind a thick root|under a heap of leaves|in a hole in the tree|between two branches|in the shade",
        "Bright birds called from the branches.|The shade was cool and dark.|A lizard slept on a warm stone.|"
        "Ripe fruit lay on the ground.",
        "played tag around the tree|swung on a vine|rested in the shade|threw nuts into a hole|told jokes",
        "a ripe mango|a bright feather|a hard nut|a smooth stick",
    ),
    Place(
        "the water hole",
        "at the water hole",
        "to the water hole",
        "jungle",
        "in the mud|behind a rock|under a bush|at the edge of the water|in the tall grass",
        "Three zebras came to drink.|A hippo yawned in the water.|The mud was warm and soft.|Birds sat on a rhino's back.",
        "splashed in the water|rolled in the mud|drank the cool water|sprayed water at each other|made footprints in the mud",
        "a round stone|a white feather|a big seed",
    ),
    Place(
        "the jungle",
        "in the jungle",
        "into the jungle",
        "jungle",
        "under a giant leaf|behind a tree|in a bush|next to an ant hill|between the vines",
        "Parrots shouted in the trees.|A long green snake slept in the sun.|Drops of water fell from the leaves.|"
        "Blue butterflies, as big as plates, flew past.",
        "swung on the vines|looked for bananas|followed a parrot|hid behind giant leaves|made a drum out of a log",
        "a parrot feather|a red seed|a coconut|a strange flower",
    ),
    Place(
        "the ice",
        "on the ice",
        "over the ice",
        "snow",
        "in the snow|behind a block of ice|in a crack in the ice|under a snow hill|at the edge of the water",
        "The ice was blue and shiny.|Snow began to fall, soft and slow.|A seal put its head out of the water.|"
        "Green lights danced in the sky.",
        "slid over the ice|made snowballs|built a snow house|jumped over the cracks|rolled in the snow",
        "a fish bone|a gray stone|a lost mitten|a drop of ice",
    ),
    Place(
        "the snowy hill",
        "on the snowy hill",
        "to the snowy hill",
        "snow",
        "under the snow|behind a fir tree|next to the sled|in a small cave|by a frozen bush",
        "The whole hill was white.|The fir trees wore caps of snow.|Everything was very quiet.|"
        "The snow sparkled like sugar.",
        "slid down the hill|threw snowballs|made snow angels|pulled the sled to the top|rolled big snowballs",
        "a pine cone|a red berry|a lost hat",
    ),
    Place(
        "the castle garden",
        "in the castle garden",
        "to the castle garden",
        "castle",
        "behind a stone lion|under a rose bush|in the fountain|next to the high wall|under a marble bench",
        "Peacocks walked on the grass.|The fountain threw silver water into the air.|Flags moved on the towers.|"
        "An old gardener was cutting a bush into the shape of a swan.",
        "ran between the hedges|fed the goldfish|picked white roses|danced on the grass|hid behind the statues",
        "a gold button|a peacock feather|a tiny key",
    ),
    Place(
        "the coral reef",
        "at the coral reef",
        "to the coral reef",
        "sea",
        "behind a pink coral|under a flat stone|in a big shell|between the waving seaweed|next to a sponge",
        "Hundreds of striped fish swam by like a ribbon.|The corals were red, yellow and purple.|A sea snail crept over a stone.|"
        "The light came down from above in long beams.|A shrimp cleaned the teeth of a big old fish.",
        "chased bubbles|swam in and out of the corals|hid between the seaweed|raced around the rocks|played with a turtle",
        "a round pearl|a blue shell|a piece of green glass|a curly snail shell",
    ),
    Place(
        "the old ship",
        "by the old ship",
        "to the old ship",
        "sea",
        "under the anchor|in a wooden chest|behind the broken mast|in a big pot|inside an old boot",
        "The old ship lay on its side, all covered with seaweed.|A big eel looked out of a window of the ship.|It was dark and still.|"
        "A jellyfish floated by like a lamp.",
        "swam through the round windows|rang the old ship's bell|looked for gold|played captain|told stories of storms",
        "a gold coin|a rusty spoon|a glass bottle|a silver ring|a wooden button",
    ),
    Place(
        "the sea",
        "in the sea",
        "out into the sea",
        "sea",
        "deep down in the dark|behind a big rock|under a boat|near the sandy ground|in a forest of seaweed",
        "The waves rolled on and on.|Far above, a boat made a dark shadow.|A cloud of tiny fish glittered in the light.|"
        "The water was warm on top and cold down below.",
        "jumped over the waves|blew bubbles|swam in circles|listened to the songs of the whales|followed the turtles",
        "a floating bottle|a white feather|a long piece of seaweed|a piece of wood",
    ),
    Place(
        "the castle tower",
        "in the castle tower",
        "up to the castle tower",
        "castle",
        "behind an old chair|under the stairs|inside a big vase|on the window seat|behind a curtain",
        "Bats slept under the roof.|From the window you could see the whole land.|The stairs went round and round.|"
        "Dust danced in the light.",
        "ran up and down the stairs|played king and queen|looked out of the window|told secrets|tried on old hats",
        "an old crown|a dusty book|a candle|a map",
        indoors=True,
    ),
)

SEASONS = ("spring", "summer", "autumn", "winter")

# weather by season: name and how a day of it is called
WEATHER = {
    "spring": "sunny|bright|windy|rainy|warm|fresh",
    "summer": "sunny|hot|warm|bright|sunny|golden",
    "autumn": "windy|rainy|gray|foggy|golden|cool",
    "winter": "cold|snowy|frosty|gray|icy|windy",
}

# what the sky and the earth did on such a day; whole clauses in the past
SKY = {
    "sunny": "the sun was shining|the sun smiled down from a blue sky|there was not a cloud in the sky|the sun was warm and "
    "yellow|the sky was as blue as could be",
    "bright": "the sun was shining|everything looked clean and new|the sky was blue and clear|the light was so bright that "
    "even the puddles shone",
    "windy": "the wind blew through the trees|the wind pulled at every leaf|the wind was playing with the leaves|the clouds "
    "raced across the sky|a strong wind blew around the corners",
    "rainy": "the rain was falling softly|rain tapped on the leaves|big drops fell from the sky|it rained and rained|the "
    "puddles grew bigger and bigger",
    "warm": "the air was soft and warm|a warm wind was blowing|the sun felt like a warm blanket|it was warm enough to go "
    "without a coat",
    "fresh": "the first flowers came out of the ground|the birds sang in every tree|the grass was wet and green|everything "
    "smelled of spring",
    "hot": "it was so hot that even the birds were quiet|the sun burned in the sky|the air was hot and still|everyone was "
    "looking for shade",
    "golden": "the light was as yellow as honey|the leaves were red and gold|the air smelled of apples|the sun lay golden on "
    "the hills",
    "gray": "the sky was gray|thick clouds hid the sun|it looked as if it might rain|the whole world looked gray",
    "foggy": "fog lay over the fields|you could not see the end of the road|the trees looked like gray giants in the fog|"
    "everything was hidden in white fog",
    "cool": "the air was cool and clear|the first yellow leaves fell from the trees|a cool wind came down from the hills|"
    "it was time to wear a warm sweater",
    "cold": "the snow lay deep on the ground|it was so cold that noses turned red|the puddles were hard with ice|an icy wind "
    "blew over the fields",
    "snowy": "snow was falling|big white flakes danced in the air|everything was white and soft|the snow covered the roofs "
    "and the trees",
    "frosty": "there was frost on every leaf|the windows were covered with flowers of ice|the grass crunched under every step|"
    "the air was so cold that it sparkled",
    "icy": "long icicles hung from the roof|the lake was frozen|the roads were as smooth as glass|everything was covered with "
    "ice",
}
