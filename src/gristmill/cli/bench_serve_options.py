"""Values of `gristmill bench serve`'s options: lengths, bounds, percentiles, JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from gristmill.bench.serving.prompts import Span
from gristmill.bench.serving.report import GOODPUT_METRICS
from gristmill.cli import options


class SpanType(options.ParamType):
    """A length, or two with a colon between."""

    name = "N or LOW:HIGH"

    def convert(self, value: str | Span, param: click.Parameter | None, ctx: click.Context | None) -> Span:
        if isinstance(value, Span):
            return value
        low, _, high = value.partition(":")
        try:
            span = Span(int(low), int(high or low))
        except ValueError:
            self.fail(f"{value!r} is neither a length nor two such as 32:224", param, ctx)
        if not 1 <= span.low <= span.high <= 1 << 24:
            self.fail(f"{value!r} is not from 1 up to {1 << 24}, the lower length first", param, ctx)
        return span


class Rate(options.ParamType):
    """A positive number, or inf."""

    name = "number or inf"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            rate = float(value)
        except ValueError:
            rate = math.nan
        if not rate > 0:
            self.fail(f"{value!r} is neither a number over 0 nor inf", param, ctx)
        return rate


class Bounds(options.ParamType):
    """metric:milliseconds, with commas between."""

    name = "METRIC:MS,..."

    def convert(
        self, value: str | dict[str, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, float]:
        if isinstance(value, dict):
            return value
        bounds = {}
        for part in value.replace(",", " ").split():
            metric, _, bound = part.partition(":")
            if metric not in GOODPUT_METRICS:
                self.fail(f"{metric!r} is not one of {', '.join(GOODPUT_METRICS)}", param, ctx)
            try:
                bounds[metric] = float(bound)
            except ValueError:
                bounds[metric] = math.nan
            if not 0 <= bounds[metric] < math.inf:
                self.fail(f"{part!r} is not of the form {metric}:MILLISECONDS", param, ctx)
        if not bounds:
            self.fail("give at least one bound, ttft:1000 say", param, ctx)
        return bounds


class Percentiles(options.ParamType):
    """Numbers from 0 to 100 with commas between."""

    name = "numbers"

    def convert(
        self, value: str | tuple[float, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not numbers with commas between, such as 50,90,99", param, ctx)
        for number in found:
            if not 0 <= number <= 100:
                self.fail(f"{number:g} is not from 0 to 100", param, ctx)
        return found


class JsonObject(options.ParamType):
    """An object in JSON."""

    name = "JSON"

    def convert(
        self, value: str | dict[str, Any], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.fail(f"{value!r:.80} is no JSON object", param, ctx)
        return found
