"""Sums and norms that wait for whatever reads them: computed on its way, they cost less than by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

A = TypeVar("A")
"""A backend's array."""


@dataclass(slots=True)
class Sum(Generic[A]):
    """x + y, of [T, d_model] each. total: once something has computed it."""

    x: A
    y: A
    total: A | None = None

    def is_now(self, total: A) -> A:
        """Something has computed it; memory of what was added can be used again."""
        self.x = self.y = self.total = total
        return total


@dataclass(slots=True)
class Normed(Generic[A]):
    """`rms_norm` of x. values: once something has computed them for all to read."""

    x: A | Sum[A]
    weight: A
    eps: float
    values: A | None = None
