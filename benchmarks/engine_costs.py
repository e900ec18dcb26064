"""What the engine adds and what it saves: Python's share of a step, a shared beginning, drafts from the text itself.

    python benchmarks/engine_costs.py model.gguf --threads 2

steps     time of a step that is not its computing, by sequences; the larger the model, the colder Python's data.
          Answers are told as a whole, or each token to its request's queue, or each step as the server's engine does
prefix    time to the first token of a prompt of 512 tokens, computed and found in the cache
drafts    speed with prompt lookup over that without: while a text goes in circles (what models do that were never
          trained), and while each token is drawn from the two, or the eight, likeliest, so that much looks like what
          was there and little is. Nothing else may run.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from side_by_side import chosen

from gristmill import LLM, SamplingParams
from gristmill.engine.telling import Share
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import Begun
from gristmill.serve.engine_sender import Sender
from gristmill.types import Batch, Event, Request, TokenEvent

PARTS = ("steps", "prefix", "drafts")
TEXTS = {
    "in circles": SamplingParams(temperature=0, max_tokens=128, ignore_eos=True),
    "drawn from two": SamplingParams(temperature=100, top_k=2, seed=1, max_tokens=128, ignore_eos=True),
    "drawn from eight": SamplingParams(temperature=100, top_k=8, seed=1, max_tokens=128, ignore_eos=True),
}


class Stopwatch:
    """Notes the time from the end of each step that goes on to the beginning of the next, by its sequences."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, float]] = []

    def watch(self) -> None:
        continuation, watch, ended = CpuOps.continuation, self, [0.0]

        def timed_continuation(ops: CpuOps, batch: Batch, ids: Any, again: Callable[[], None]) -> Any:
            go_on, n_rows = continuation(ops, batch, ids, again), len(ids)

            def timed(begun: Begun) -> list[int]:
                watch.gaps.append((n_rows, time.perf_counter() - ended[0]))
                chosen = go_on(begun)
                ended[0] = time.perf_counter()
                return chosen

            return timed

        CpuOps.continuation = timed_continuation  # type: ignore[method-assign]


def told(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> None:
    """Every token of every answer goes to a queue of its own, as for `LLM.stream`; nobody reads meanwhile."""
    engine, queues = llm._open(), [SimpleQueue[Event]() for _ in prompts]
    for prompt, queue in zip(prompts, queues, strict=True):
        engine.submit(Request(tuple(prompt), params), queue.put)
    while any(queue.qsize() < (params.max_tokens or 0) for queue in queues):
        time.sleep(0.02)


class Counted(Sender):
    """The server's sender. ended: released for each request that ends."""

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel)
        self.ended = threading.Semaphore(0)

    def take(self, key: int, event: Event) -> None:
        super().take(key, event)
        if isinstance(event, TokenEvent) and event.finish is not None:
            self.ended.release()


def sent(sender: Counted, llm: LLM, prompts: list[list[int]], params: SamplingParams) -> None:
    """What each step has for all of them goes to another process as one message."""
    engine = llm._open()
    for key, prompt in enumerate(prompts):
        engine.submit(Request(tuple(prompt), params), Share(sender, key))
    for _ in prompts:
        sender.ended.acquire()


def steps(model: str, threads: int, watch: Stopwatch, sequences: list[int], rounds: int) -> None:
    print("from the end of a step's computing to the beginning of the next one's, us, median (last decile)")
    ours, theirs = socket.socketpair()
    with LLM(model, threads=threads, max_sequences=64, max_context=256) as llm, ours:
        reading = subprocess.Popen(["cat"], stdin=theirs, stdout=subprocess.DEVNULL)
        theirs.close()  # so that it ends with this process
        ways: dict[str, Callable[[list[list[int]], SamplingParams], object]] = {
            "answers as a whole": llm.generate,
            "each token told": partial(told, llm),
            "each step sent": partial(sent, Counted(ours), llm),
        }
        for n in sequences:
            prompts = [[1 + i % 200] * (1 + i % 16) for i in range(n)]  # whose blocks begin at different steps
            params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
            for name, run in ways.items():
                run(prompts, params)
                watch.gaps.clear()
                for _ in range(rounds):
                    run(prompts, params)
                gaps = [gap * 1e6 for n_rows, gap in watch.gaps if n_rows == n]
                decile = statistics.quantiles(gaps, n=10)[8]
                print(f"  {n:3} sequences, {name:18} {statistics.median(gaps):8.1f} ({decile:.1f})")
        reading.kill()


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
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sequences", default="1,4,16,64", help="of the steps")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    watch, parts = Stopwatch(), chosen(parser, args.parts, PARTS)
    watch.watch()
    if "steps" in parts:
        steps(args.model, args.threads, watch, [int(n) for n in args.sequences.split(",")], args.rounds)
    if "prefix" in parts:
        prefix(args.model, args.threads)
    if "drafts" in parts:
        drafts(args.model, args.threads, args.rounds)


if __name__ == "__main__":
    main()
