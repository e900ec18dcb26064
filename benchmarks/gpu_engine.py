"""Whole models on a card, through the engine's own runner and scheduler, beside torch doing the same work."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu_model import weight_bytes
from gpu_report import ROUNDS, Report, allocated_bytes, reserved_bytes
from gpu_torch import TorchModel
from model_shapes import ModelShape

from gristmill.bench.card import DEVICE, Card, clocked, timed, wait
from gristmill.bench.model import Case, ModelBench, Row, multiplied
from gristmill.engine.engine import Engine, EngineSettings
from gristmill.kv.cache import KvPlan, plan
from gristmill.models.decoder import Decoder
from gristmill.ops.cuda import CudaOps
from gristmill.ops.triton.common import INTERPRETED
from gristmill.types import Event, Failure, Request, SamplingParams, TokenEvent

REPETITIONS = 1 if ROUNDS < 3 else 3


def steps(
    decoder: Decoder, ops: CudaOps, cases: Sequence[Case], buffer_bytes: int, kv_type: str, report: Report
) -> dict[Case, Row]:
    """Tokens of sequences side by side, and prompts; shares of a copy, and of cuBLAS with the model's shapes.

    kernels_ms is a step's graph alone, done again and again; a step is it and what lies between two of them.
    """
    card = Card(buffer_bytes, multiplied(decoder))
    bench = ModelBench(decoder, kv_type, cases, lambda _: ops, card, ops.spare_memory())
    rows = {}
    for case in cases:
        row = rows[case] = bench.run(case, REPETITIONS)
        figures = {"ms": 1e3 * case.batch / row.tokens_per_s} if case.kind == "tg" else {}
        recording = bench._runners[1]._last
        if case.kind == "tg" and recording is not None:
            figures["kernels_ms"] = 1e3 * statistics.median(clocked(recording.again, ROUNDS))
        report.say(
            "steps",
            test=row.test,
            batch=row.batch,
            depth=row.depth,
            tokens_per_s=row.tokens_per_s,
            of_copy=row.share_of_bandwidth,
            of_cublas=row.share_of_peak,
            **figures,
        )
    return rows


def profile(decoder: Decoder, ops: CudaOps, cases: Sequence[Case], kv_type: str, report: Report) -> None:
    """Which kernels a step, or a prompt, waits for: the ten that take most, each with how often it ran. A kernel that
    begins before the one it follows has ended counts from then on, so that their sum is more than the time of all."""
    bench = ModelBench(decoder, kv_type, cases, lambda _: ops, Card(0, multiplied(decoder)), ops.spare_memory())
    for case in cases:
        bench.compute(case, bench.sequences(case))
        recording = bench._runners[1]._last
        is_prompt = case.kind == "pp" or recording is None
        sequences = bench.sequences(case)
        run = partial(bench.compute, case, sequences) if is_prompt else recording.again
        began, ended, kernels = 0.0, 0.0, list[tuple[str, float]]()
        with profiled() as events:
            run()
            wait()
        for event in events():
            kernels.append((event.name, event.time_range.elapsed_us()))
            began = min(began or event.time_range.start, event.time_range.start)
            ended = max(ended, event.time_range.end)
        report.say(
            "profile", test=case.name, batch=case.batch, depth=case.depth, kernels=len(kernels), us=ended - began
        )
        names = Counter[str]()
        for name, us in kernels:
            names[name] += us
        for name, us in names.most_common(10):
            report.say("kernel", name=name[:60], times=sum(each == name for each, _ in kernels), us=us)


@contextmanager
def profiled() -> Iterator[Callable[[], list[Any]]]:
    """What gives, afterwards, all that the card did meanwhile; nothing without a card."""
    if INTERPRETED:
        yield list
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        yield lambda: [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]


def torch_steps(shape: ModelShape, cases: Sequence[Case], compiled: bool, report: Report) -> None:
    """The same cases in bfloat16: tokens in a CUDA graph, prompts as torch launches them. Those of models with experts
    are not compiled, as how many tokens an expert gets is read on the processor."""
    model = TorchModel(shape, DEVICE)
    for case in cases:
        if case.kind == "pp" and compiled and shape.n_experts:
            continue
        model.remember(case.batch, case.depth + case.n_tokens if case.kind == "tg" else 0)
        run = model.step if case.kind == "tg" else model.prompt
        if compiled:
            torch.compiler.reset()  # or sizes that change from case to case would count as unknown
            run = torch.compile(run, dynamic=False)
        ids = torch.zeros(case.batch if case.kind == "tg" else case.n_tokens, dtype=torch.int64, device=DEVICE)
        run(ids)
        if case.kind == "tg":
            took = statistics.median(timed([lambda run=run, ids=ids: run(ids)], ROUNDS))
        else:
            took = statistics.median(clocked(lambda run=run, ids=ids: run(ids), ROUNDS))
        speed = len(ids) / took
        report.say(
            "torch",
            test=case.name,
            batch=case.batch,
            depth=case.depth,
            compiled=compiled,
            tokens_per_s=speed,
            ms=1e3 * took,
        )


def memory(shape: ModelShape, kind: str, decoder: Decoder, before: int, report: Report) -> None:
    """Weights by arithmetic, as the decoder counts its matrices, and as torch allocated them since `before`."""
    linears = [w for la in decoder.layers for w in (la.qkv, la.o, la.gate_up, la.down, la.router) if w is not None]
    tables = [decoder.embed] if decoder.embed is decoder.head else [decoder.embed, decoder.head]
    n_bytes = sum(w.n_bytes for w in (*linears, *tables))
    report.say(
        "weights",
        type=kind,
        arithmetic_gb=weight_bytes(shape, kind) / 1e9,
        matrices_gb=n_bytes / 1e9,
        allocated_gb=(allocated_bytes() - before) / 1e9,
    )


def served(
    decoder: Decoder, ops: CudaOps, n: int, n_prompt: int, n_output: int, offline_s: float, kv_type: str, report: Report
) -> None:
    """n requests at once through the engine, of random prompts: nothing is found in its cache, and none ends early.

    offline_s: what their prompts and their tokens take without a scheduler
    """
    context = n_prompt + n_output
    before, start = allocated_bytes(), time.perf_counter()
    kv_plan = plan(ops, decoder.config, kv_type, context, n, ops.step_tokens, ops.spare_memory())
    engine = Engine(decoder, ops, EngineSettings(context, n, step_tokens=ops.step_tokens), kv_plan, kv_type)
    warmed = time.perf_counter() - start
    _say_memory(kv_plan, before, warmed, report)
    try:
        rng = np.random.default_rng(0)
        for _ in range(2):  # the first is for what nobody thought of
            prompts = rng.integers(decoder.config.vocab_size, size=(n, n_prompt)).tolist()
            times = _run(engine, prompts, n_output)
    finally:
        engine.close()
    firsts = [told[0] for told in times]
    gaps = [(told[-1] - told[0]) / max(1, len(told) - 1) for told in times]
    total = max(told[-1] for told in times)
    report.say(
        "served",
        requests=n,
        n_prompt=n_prompt,
        n_output=n_output,
        seconds=total,
        output_tokens_per_s=n * n_output / total,
        first_token_ms=1e3 * statistics.median(firsts),
        between_tokens_ms=1e3 * statistics.median(gaps),
        of_offline=offline_s / total,
    )


def offline_seconds(rows: dict[Case, Row], prompt: Case, tokens: Case) -> float:
    """Of tokens.batch sequences."""
    return sum(case.n_tokens * tokens.batch / rows[case].tokens_per_s for case in (prompt, tokens))


def _say_memory(kv_plan: KvPlan, before: int, warmed: float, report: Report) -> None:
    report.say(
        "pool",
        arithmetic_gb=kv_plan.n_bytes / 1e9,
        allocated_gb=(allocated_bytes() - before) / 1e9,
        reserved_in_all_gb=reserved_bytes() / 1e9,
        warming_s=warmed,
    )


def _run(engine: Engine, prompts: list[list[int]], n_output: int) -> list[list[float]]:
    """Of each request, when each of its tokens was told, in seconds since all were submitted."""
    params = SamplingParams(temperature=0, max_tokens=n_output, ignore_eos=True)
    times: list[list[float]] = [[] for _ in prompts]
    ended, failures, start = threading.Semaphore(0), list[Exception](), time.perf_counter()

    def take(told: list[float], event: Event) -> None:
        if isinstance(event, TokenEvent):
            told.append(time.perf_counter() - start)
        if isinstance(event, Failure):
            failures.append(event.error)
        if isinstance(event, Failure) or (isinstance(event, TokenEvent) and event.finish is not None):
            ended.release()

    for prompt, told in zip(prompts, times, strict=True):
        engine.submit(Request(tuple(prompt), params), lambda event, told=told: take(told, event))
    for _ in prompts:
        ended.acquire()
    if failures:
        raise failures[0]
    assert all(len(told) == n_output for told in times)
    return times
