"""What the server counts, under vLLM's names with the prefix `gristmill:`. It knows no request's content."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gristmill.serve.service import Service

_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0)
_SLOW: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_TOKENS: Final = tuple(float(2**i) for i in range(18))


class _LoadCollector(Collector):
    """Read from the engine when somebody asks."""

    def __init__(self, service: Service, model: str) -> None:
        self._service = service
        self._model = model

    def collect(self) -> Iterator[Metric]:
        load = self._service.load()
        for name, text, value in (
            ("num_requests_running", "Requests that are computed.", load.n_running),
            ("num_requests_waiting", "Requests that wait for their turn.", load.n_waiting),
            ("kv_cache_usage_perc", "Share of the cache that requests hold, 0 to 1.", load.used),
        ):
            gauge = GaugeMetricFamily(f"gristmill:{name}", text, labels=["model_name"])
            gauge.add_metric([self._model], value)
            yield gauge
        preempted = CounterMetricFamily("gristmill:num_preemptions", "Requests put back.", labels=["model_name"])
        preempted.add_metric([self._model], load.n_preempted)
        yield preempted
        restarts = CounterMetricFamily("gristmill:engine_restarts", "Restarts of the engine.", labels=["model_name"])
        restarts.add_metric([self._model], self._service.health.n_restarts)
        yield restarts


class TokenMetrics(Collector):
    """What is counted with every token: plain numbers of one thread, of which metrics are made when somebody asks.

    n_generated  tokens of answers
    """

    def __init__(self, model: str) -> None:
        self.n_generated = 0
        self._model = model
        self._counts = [0] * (len(_FAST) + 1)
        self._seconds = 0.0

    def took(self, seconds: float, n_tokens: int) -> None:
        """n_tokens came together, so long after those before."""
        self._counts[bisect_left(_FAST, seconds / n_tokens)] += n_tokens
        self._seconds += seconds

    def collect(self) -> Iterator[Metric]:
        tokens = CounterMetricFamily("gristmill:generation_tokens", "Tokens of answers.", labels=["model_name"])
        tokens.add_metric([self._model], self.n_generated)
        yield tokens
        name, text = "gristmill:inter_token_latency_seconds", "Between two tokens."
        times = HistogramMetricFamily(name, text, labels=["model_name"])
        bounds = [*map(str, _FAST), "+Inf"]
        counts = [float(n) for n in accumulate(self._counts)]
        times.add_metric([self._model], list(zip(bounds, counts, strict=True)), self._seconds)
        yield times


class Metrics:
    """One registry for one server, so that several may live in a process."""

    def __init__(self, service: Service, model: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_LoadCollector(service, model))
        self._model = model
        self.per_token = TokenMetrics(model)
        self._registry.register(self.per_token)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"gristmill:{name}", text, ["model_name", *labels], registry=self._registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            made = Histogram(f"gristmill:{name}", text, ["model_name"], buckets=buckets, registry=self._registry)
            return made.labels(model)

        self.success = counter("request_success", "Requests that were answered.", "finished_reason")
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts.").labels(model)
        self.cache_queries = counter("prefix_cache_queries", "Tokens of prompts looked for.").labels(model)
        self.cache_hits = counter("prefix_cache_hits", "Tokens of prompts found in the cache.").labels(model)
        self.first_token = histogram("time_to_first_token_seconds", "Until the first token.", _SLOW)
        self.whole = histogram("e2e_request_latency_seconds", "Until the last token.", _SLOW)
        self.prompt_length = histogram("request_prompt_tokens", "Tokens of a prompt.", _TOKENS)
        self.answer_length = histogram("request_generation_tokens", "Tokens of an answer.", _TOKENS)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def ended(self, reason: str) -> None:
        self.success.labels(self._model, reason).inc()


class Meter:
    """Times one call's answers. `close` may come early: then the answers that are open count as aborted."""

    def __init__(self, metrics: Metrics, n_answers: int) -> None:
        self._metrics = metrics
        self._start = time.perf_counter()
        self._last = [0.0] * n_answers
        self._n_tokens = [0] * n_answers
        self._ended = [False] * n_answers

    def prompt(self, n_tokens: int) -> None:
        metrics = self._metrics
        metrics.prompt_tokens.inc(n_tokens)
        metrics.prompt_length.observe(n_tokens)
        metrics.cache_queries.inc(n_tokens)

    def cached(self, n_tokens: int) -> None:
        self._metrics.cache_hits.inc(n_tokens)

    def tokens(self, index: int, n_tokens: int, finish: str | None) -> None:
        now, metrics = time.perf_counter(), self._metrics
        if n_tokens and self._n_tokens[index] == 0:
            metrics.first_token.observe(now - self._start)
        elif n_tokens:
            metrics.per_token.took(now - self._last[index], n_tokens)
        self._last[index] = now
        self._n_tokens[index] += n_tokens
        metrics.per_token.n_generated += n_tokens
        if finish is not None:
            self._end(index, finish)
            metrics.whole.observe(now - self._start)

    def close(self) -> None:
        for index, ended in enumerate(self._ended):
            if not ended:
                self._end(index, "abort")

    def _end(self, index: int, reason: str) -> None:
        self._ended[index] = True
        self._metrics.ended(reason)
        self._metrics.answer_length.observe(self._n_tokens[index])
