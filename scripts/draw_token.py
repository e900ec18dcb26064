"""Draws docs/token.svg: where a token travels, from text to token and back. Run: python scripts/draw_token.py"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

WIDTH, BOX_W, BOX_H, STEP = 820, 236, 62, 104
LEFT, MIDDLE, RIGHT = 20, 292, 564
# column, row, title, file, what arrives
BOXES = [
    (LEFT, 0, "text", "cli/generate.py", ""),
    (LEFT, 1, "encode", "tokenizer/", "str"),
    (LEFT, 2, "request", "engine/engine.py", "token ids"),
    (MIDDLE, 2, "batch", "engine/batch.py", "Sequence"),
    (MIDDLE, 1, "step", "engine/runner.py", "Batch"),
    (MIDDLE, 0, "model", "models/decoder.py", "Batch, cache"),
    (RIGHT, 0, "operations", "ops/cpu.py, native/", "weights, arrays"),
    (RIGHT, 1, "sample", "native/sample.cpp", "logits"),
    (RIGHT, 2, "decode", "tokenizer/stream.py", "id"),
]


def main() -> None:
    height = 3 * STEP + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L10 5 L0 10 z" fill="#8a5a2b"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fffdf8"/>',
    ]
    for before, after in pairwise(BOXES):
        parts += arrow(before, after)
    for x, row, title, file, _ in BOXES:
        y = 20 + row * STEP
        fill = "#f6e3c5" if title == "model" else "#fbf3e4"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="9" fill="{fill}" stroke="#8a5a2b"/>'
            f'<text x="{x + 16}" y="{y + 27}" font-size="17" fill="#3b2a17" font-weight="bold">{title}</text>'
            f'<text x="{x + 16}" y="{y + 48}" font-size="13" fill="#6b5a45" font-family="monospace">{file}</text>'
        )
    bottom = 20 + 2 * STEP + BOX_H  # the chosen id is the next step's input
    start, end = RIGHT + BOX_W / 2, LEFT + BOX_W / 2
    parts.append(
        f'<path d="M{start} {bottom} V{bottom + 26} H{end} V{bottom + 4}" fill="none" stroke="#8a5a2b" '
        'stroke-width="1.6" stroke-dasharray="5 4" marker-end="url(#tip)"/>'
        f'<text x="{WIDTH / 2}" y="{bottom + 44}" font-size="13" fill="#6b5a45" text-anchor="middle">'
        "and once more, until a stop</text>"
    )
    Path(__file__).parents[1].joinpath("docs", "token.svg").write_text("\n".join([*parts, "</svg>", ""]))


def arrow(before: tuple[int, int, str, str, str], after: tuple[int, int, str, str, str]) -> list[str]:
    """A line from one box to the next with what it carries."""
    (x0, row0, *_), (x1, row1, *_, label) = before, after
    y0, y1 = 20 + row0 * STEP, 20 + row1 * STEP
    if x0 == x1:
        x = x0 + BOX_W / 2
        start, end = (y0 + BOX_H, y1) if row1 > row0 else (y0, y1 + BOX_H)
        line, at = f"M{x} {start} V{end}", (x + 10, (start + end) / 2 + 4)
        anchor = "start"
    else:
        y = y0 + BOX_H / 2
        line, at = f"M{x0 + BOX_W} {y} H{x1}", ((x0 + BOX_W + x1) / 2, y0 - 6 if row0 == 0 else y - BOX_H / 2 - 6)
        anchor = "middle"
    return [
        f'<path d="{line}" stroke="#8a5a2b" stroke-width="1.6" fill="none" marker-end="url(#tip)"/>',
        f'<text x="{at[0]}" y="{at[1]}" font-size="13" fill="#6b5a45" text-anchor="{anchor}">{label}</text>',
    ]


if __name__ == "__main__":
    main()
