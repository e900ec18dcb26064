"""Options of the bench commands alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console

from gristmill.cli import options

if TYPE_CHECKING:
    from gristmill.bench.card import Card

_WIDE = 1000
"""Columns: more than any table has."""


class Numbers(options.ParamType):
    """Whole numbers with commas between, each from `low` to `high`."""

    name = "numbers"

    def __init__(self, low: int, high: int = 2**31 - 1) -> None:
        self._low = low
        self._high = high

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not numbers with commas between, such as 1,4,16", param, ctx)
        for number in numbers:
            if not self._low <= number <= self._high:
                self.fail(f"{number} is not between {self._low} and {self._high}", param, ctx)
        return numbers


def card_of(buffer_mb: int, matrices: Sequence[tuple[int, int]] = ()) -> Card:
    """ValueError where there is none, or no torch."""
    try:
        from gristmill.bench.card import Card
    except ModuleNotFoundError as error:
        raise ValueError(f"device cuda needs {error.name}: pip install 'gristmill[cuda]'") from None
    return Card(buffer_mb << 20, matrices)


def table_console() -> Console:
    """For tables on stdout, none of whose figures is cut: a narrow terminal breaks the lines."""
    return Console(highlight=False, emoji=False, width=_WIDE)


buffer_mb = options.option(
    "--buffer-mb",
    type=click.IntRange(256, 65536),
    default=512,
    help="MiB to read for the bandwidth; several times the last cache",
)
