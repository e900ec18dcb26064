"""Writes the points of GGUF's grids for the native module: python scripts/make_grids.py

The points are those of the `gguf` package. Each has a digit for every number that it stands for, of base 3 or 8, the
first number's the lowest. Read as one number they ascend in a grid, so a grid is a row of bits: which numbers it has.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import quants

TARGET = Path(__file__).parent.parent / "src/gristmill/native/grid_points.h"
DIGITS_A_LINE = 116
HEADER = """\
// Made by scripts/make_grids.py from ggml's grids. Do not edit.
//
// Bit i % 8 of byte i / 8 says whether a grid has the point whose digits make the number i, the first digit the lowest.
#pragma once

namespace gristmill {
"""


def bits_of(name: str) -> np.ndarray:
    """uint8 [base ** digits / 8 rounded up]. ValueError where points do not ascend."""
    quant = getattr(quants, name)
    quant.init_grid()
    grid = np.asarray(quant.grid).reshape(quant.grid_shape)
    values = np.unique(grid)
    numbers = np.searchsorted(values, grid) @ len(values) ** np.arange(grid.shape[1])
    if not (np.diff(numbers) > 0).all():
        raise ValueError(f"{name}: its points do not ascend")
    bits = np.zeros(len(values) ** grid.shape[1], np.uint8)
    bits[numbers] = 1
    return np.packbits(bits, bitorder="little")


def main() -> None:
    text = HEADER
    for name, quant in (
        ("kGridIq1", "IQ1_S"),
        ("kGridIq2Xxs", "IQ2_XXS"),
        ("kGridIq2Xs", "IQ2_XS"),
        ("kGridIq2S", "IQ2_S"),
        ("kGridIq3Xxs", "IQ3_XXS"),
        ("kGridIq3S", "IQ3_S"),
    ):
        digits = bits_of(quant).tobytes().hex()
        lines = [digits[i : i + DIGITS_A_LINE] for i in range(0, len(digits), DIGITS_A_LINE)]
        text += f"\nconstexpr char {name}[] =\n" + "\n".join(f'    "{line}"' for line in lines) + ";\n"
    TARGET.write_text(text + "\n}  // namespace gristmill\n")


if __name__ == "__main__":
    main()
