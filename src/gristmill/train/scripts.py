"""Which script a character belongs to. Of Unicode's scripts only that two characters share one matters here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

ANY: Final = -1
"""A character that goes with every script: a mark that takes on the one before it."""

_COMMON, _LATIN, _HAN = 0, 1, 2
_JAPANESE: Final = frozenset(["Han", "Hiragana", "Katakana"])  # written mixed: one script here
_LONG_VOWEL: Final = "\u30fc"
# unicode.org/Public/UNIDATA/Scripts.txt, Unicode 16; Common is what is in none.
_NAMES: Final = (
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki "
    "Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee "
    "Chorasmian Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan "
    "Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati "
    "Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana "
    "Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana "
    "Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu "
    "Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi "
    "Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani "
    "Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki "
    "Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian "
    "Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician "
    "Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian "
    "Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri "
    "Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai "
    "Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square"
)


def find_scripts(characters: Iterable[str]) -> dict[str, int]:
    """A number for each character's script, ANY for marks that have none of their own."""
    found = {c: _LATIN if c.isascii() and c.isalpha() else _COMMON for c in characters}
    others = "".join(c for c in found if not c.isascii())
    for number, part in _find_others(others) if others else ():
        found[part] = number
    if _LONG_VOWEL in found:
        found[_LONG_VOWEL] = _HAN
    return found


def _find_others(text: str) -> Iterator[tuple[int, str]]:
    import regex  # type: ignore[import-untyped]  # here, since plain English needs none of it

    fixed = {"Latin": _LATIN, "Inherited": ANY} | dict.fromkeys(_JAPANESE, _HAN)
    for number, name in enumerate(_NAMES.split(), _HAN + 1):
        try:
            pattern = regex.compile(rf"\p{{Script={name}}}")
        except regex.error:
            continue  # a script younger than the package's Unicode
        for c in pattern.findall(text):
            yield fixed.get(name, number), c
