"""Writes the character class table of the native tokenizer: python scripts/make_unicode_tables.py

The table is Unicode 16.0.0, whichever Python runs the engine: the `tokenizers` (0.21 to 0.23) and `tiktoken` (0.8 to
0.14) libraries classify every code point so, and both agree. Needs Python 3.14 or `pip install unicodedata2==16.0.0`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

UNICODE_VERSION = "16.0.0"
TARGET = Path(__file__).parent.parent / "src/gristmill/native/tokenizer/unicode_tables.h"
WORD = 64
CLASSES = {"Lu": 1, "Lt": 1, "Ll": 2, "Lm": 4, "Lo": 4, "Mn": 8, "Mc": 8, "Me": 8}
CLASSES |= {"Nd": 16 | WORD, "Nl": 16 | WORD, "No": 16, "Pc": WORD}
# The property White_Space (PropList.txt), which regular expressions mean by \s.
WHITE_SPACE = [
    *range(0x09, 0x0E),
    0x20,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
]
# The properties Join_Control and, of symbols, Other_Alphabetic (PropList.txt), which \w takes beside categories.
OTHERS_IN_WORDS = [
    *range(0x200C, 0x200E),
    *range(0x24B6, 0x24EA),
    *range(0x1F130, 0x1F14A),
    *range(0x1F150, 0x1F16A),
    *range(0x1F170, 0x1F18A),
]
HEADER = """\
// Made by scripts/make_unicode_tables.py from Unicode {version}. Do not edit.
#pragma once

#include <cstdint>

namespace gristmill {{

// first code point << 8 | CharClass; a run ends where the next begins.
constexpr uint32_t kClassRuns[] = {{
{rows}
}};

}}  // namespace gristmill
"""


def find_database() -> object:
    """The module `unicodedata` or `unicodedata2`, whichever holds UNICODE_VERSION."""
    for name in ("unicodedata", "unicodedata2"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if module.unidata_version == UNICODE_VERSION:
            return module
    raise SystemExit(f"needs Unicode {UNICODE_VERSION}: use Python 3.14 or pip install unicodedata2=={UNICODE_VERSION}")


def main() -> None:
    database = find_database()
    runs: list[int] = []
    for code_point in range(0x110000):
        char_class = CLASSES.get(database.category(chr(code_point)), 0)  # type: ignore[attr-defined]
        if code_point in WHITE_SPACE:
            char_class = 32
        if code_point in OTHERS_IN_WORDS:
            char_class = WORD
        if not runs or runs[-1] & 0xFF != char_class:
            runs.append(code_point << 8 | char_class)
    rows = [", ".join(f"0x{run:X}" for run in runs[i : i + 10]) for i in range(0, len(runs), 10)]
    text = HEADER.format(version=UNICODE_VERSION, rows="\n".join(f"    {row}," for row in rows))
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {len(runs)} runs, {len(text)} characters")


if __name__ == "__main__":
    main()
