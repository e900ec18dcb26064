"""What the engine adds and what it saves: Python's share of a step, a shared beginning, drafts from the text itself.

    python benchmarks/engine_costs.py model.gguf --threads 2

steps     time of a step that is not the recorded step itself, by sequences (any small model will do)
prefix    time to the first token of a prompt of 512 tokens, computed and found in the cache
drafts    speed with prompt lookup over that without: while a text goes in circles (what models do that were never
          trained), and while each token is drawn from the two, or the eight, likeliest, so that much looks like what
          was there and little is. Nothing else may run.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from gristmill import LLM, SamplingParams
from gristmill.ops.cpu import CpuOps

TEXTS = {
    "in circles": SamplingParams(temperature=0, max_tokens=128, ignore_eos=True),
    "drawn from two": SamplingParams(temperature=100, top_k=2, seed=1, max_tokens=128, ignore_eos=True),
    "drawn from eight": SamplingParams(temperature=100, top_k=8, seed=1, max_tokens=128, ignore_eos=True),
}


class Stopwatch:
    """Adds up the time of recorded steps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.n = 0

    def watch(self) -> None:
        capture, watch = CpuOps.capture, self

        def timed_capture(ops: CpuOps, step: Callable[[], Any]) -> Any:
            results, again = capture(ops, step)

            def timed() -> None:
                start = time.perf_counter()
                again()
                watch.seconds += time.perf_counter() - start
                watch.n += 1

            return results, timed

        CpuOps.capture = timed_capture  # type: ignore[method-assign]


def steps(model: str, threads: int, watch: Stopwatch) -> None:
    print("step, time beside the recorded step itself, us")
    with LLM(model, threads=threads, max_sequences=64, max_context=256) as llm:
        for n in (1, 4, 16, 64):
            prompts = [[1 + i % 200] for i in range(n)]
            params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
            llm.generate(prompts, params)
            costs = []
            for _ in range(5):
                watch.seconds, watch.n = 0.0, 0
                start = time.perf_counter()
                llm.generate(prompts, params)
                seconds = time.perf_counter() - start
                costs.append((seconds - watch.seconds) / watch.n * 1e6)
            print(f"  {n:3} sequences {statistics.median(costs):8.1f}")


def prefix(model: str, threads: int) -> None:
    rng = random.Random(0)
    with LLM(model, threads=threads, max_sequences=4, max_context=1024) as llm:
        shared = [rng.randrange(llm.config.vocab_size) for _ in range(512)]
        times = []
        for i in range(4):
            prompt = [*shared, 1 + i]
            start = time.perf_counter()
            next(llm.pieces(prompt, SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)))
            times.append(time.perf_counter() - start)
    first, hit = times[0], statistics.median(times[1:])
    print(f"first token of 513: {first * 1e3:.1f} ms, with 512 in the cache {hit * 1e3:.1f} ms ({first / hit:.1f}x)")


def drafts(model: str, threads: int, rounds: int) -> None:
    rng = random.Random(0)
    with LLM(model, threads=threads, max_sequences=1, max_context=2048) as plain:
        prompt = [rng.randrange(plain.config.vocab_size) for _ in range(240)]
        with LLM(model, threads=threads, max_sequences=1, max_context=2048, speculate=True) as guessing:
            for name, params in TEXTS.items():
                ratios = []
                for _ in range(rounds):
                    seconds = []
                    for llm in (plain, guessing):
                        llm.generate([prompt], SamplingParams(temperature=0, max_tokens=2))  # into the cache
                        start = time.perf_counter()
                        llm.generate([prompt], params)
                        seconds.append(time.perf_counter() - start)
                    ratios.append(seconds[0] / seconds[1])
                print(f"drafts, {name}: {statistics.median(ratios):.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--parts", default="steps,prefix,drafts")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    watch, parts = Stopwatch(), args.parts.split(",")
    watch.watch()
    if "steps" in parts:
        steps(args.model, args.threads, watch)
    if "prefix" in parts:
        prefix(args.model, args.threads)
    if "drafts" in parts:
        drafts(args.model, args.threads, args.rounds)


if __name__ == "__main__":
    main()
