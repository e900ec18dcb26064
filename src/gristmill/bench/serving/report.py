"""What outcomes mean: latencies, throughput, goodput, under the names that vLLM's serving benchmark gives them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gristmill.bench.serving.load import Outcome, Run

METRICS: Final = ("ttft", "tpot", "itl", "e2el")
TITLES: Final = {
    "ttft": "Time to first token",
    "tpot": "Time per output token (after the first)",
    "itl": "Time between events with text",
    "e2el": "End to end",
}

_OF_REQUEST: Final[Mapping[str, Callable[[Outcome], float | None]]] = {
    "ttft": lambda outcome: outcome.first_token_s,
    "tpot": lambda outcome: outcome.each_token_s,
    "e2el": lambda outcome: outcome.whole_s,
}
GOODPUT_METRICS: Final = tuple(_OF_REQUEST)


def values(outcomes: Sequence[Outcome], metric: str) -> list[float]:
    """Seconds, of those that have them."""
    if metric == "itl":
        return [gap for outcome in outcomes for gap in outcome.between_s]
    return [value for outcome in outcomes if (value := _OF_REQUEST[metric](outcome)) is not None]


def is_good(outcome: Outcome, bounds_ms: Mapping[str, float]) -> bool:
    """Whether it keeps to all bounds. What it has no value for, an answer of one token say, it keeps to."""
    found = ((_OF_REQUEST[metric](outcome), bound) for metric, bound in bounds_ms.items())
    return all(value is None or value * 1000 <= bound for value, bound in found)


def summarize(
    run: Run, bounds_ms: Mapping[str, float], percentiles: Sequence[float] = (50, 90, 99), stream: bool = True
) -> dict[str, Any]:
    """Durations in seconds, latencies in milliseconds, None where nothing has one; rates a second of the whole run."""
    good = [outcome for outcome in run.outcomes if outcome.error is None]
    errors = Counter(outcome.error for outcome in run.outcomes if outcome.error is not None)
    n_in, n_out = sum(o.n_input for o in good), sum(o.n_output for o in good)
    seconds = run.duration_s
    summary: dict[str, Any] = {
        "duration": seconds,
        "completed": len(good),
        "failed": len(run.outcomes) - len(good),
        "errors": dict(errors.most_common()),
        "total_input_tokens": n_in,
        "total_output_tokens": n_out,
        "tokens_counted_by_server": all(o.counted for o in good),
        "request_throughput": len(good) / seconds,
        "request_goodput": sum(is_good(o, bounds_ms) for o in good) / seconds if bounds_ms else None,
        "input_throughput": n_in / seconds,
        "output_throughput": n_out / seconds,
        "total_token_throughput": (n_in + n_out) / seconds,
        "max_concurrent_requests": _most_at_once(good),
        "client_cpu_share": run.client_s / seconds,
    }
    for metric in METRICS if stream else ("e2el",):
        summary |= _latencies(metric, values(good, metric), percentiles)
    return summary


def _latencies(metric: str, seconds: Sequence[float], percentiles: Sequence[float]) -> dict[str, float | None]:
    ms = np.array(seconds) * 1000
    found: dict[str, float | None] = {}
    for name, of in (("mean", np.mean), ("median", np.median), ("std", np.std)):
        found[f"{name}_{metric}_ms"] = float(of(ms)) if ms.size else None
    for p in percentiles:
        found[f"p{p:g}_{metric}_ms"] = float(np.percentile(ms, p)) if ms.size else None
    return found


def _most_at_once(outcomes: Sequence[Outcome]) -> int:
    changes = sorted([(o.started, 1) for o in outcomes] + [(o.ended, -1) for o in outcomes])
    return int(max(np.cumsum([change for _, change in changes]), default=0))


def detail(run: Run) -> list[dict[str, Any]]:
    """Each request, its times in seconds from the first's start."""
    begin = min((o.started for o in run.outcomes), default=math.nan)
    return [
        {
            "start": o.started - begin,
            "waited": o.started - o.arrived,
            "ttft": None if o.error else o.first_token_s,
            "e2el": None if o.error else o.whole_s,
            "itls": o.between_s,
            "input_tokens": o.n_input,
            "output_tokens": o.n_output,
            "error": o.error,
        }
        for o in run.outcomes
    ]
