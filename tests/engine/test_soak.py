"""Mixed load for a while: memory, threads and descriptors stay flat. GRISTMILL_SOAK_S=3600 makes it an hour; on a slow
machine it takes as long as it needs for its requests."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import psutil
import pytest
import small_model

from gristmill import LLM, SamplingParams, StructuredOutputsParams
from gristmill.types import Event, Request

pytestmark = pytest.mark.alone

SECONDS = float(os.environ.get("GRISTMILL_SOAK_S", "10"))
LEAST_REQUESTS = 1000  # before the first look and after it
MAX_GROWTH = 8 << 20


def one_request(rng: random.Random, llm: LLM) -> None:
    """Submit something; sometimes wait for it, sometimes give it up."""
    pattern = StructuredOutputsParams(regex=f"[a-z]{{{rng.randrange(1, 9)}}}")
    kinds = [
        SamplingParams(temperature=1.0, max_tokens=rng.randrange(1, 40), seed=rng.randrange(9)),
        SamplingParams(temperature=0, max_tokens=20, logprobs=3, prompt_logprobs=1),
        SamplingParams(max_tokens=30, repetition_penalty=1.2, n=2, seed=1),
        SamplingParams(max_tokens=30, structured_outputs=pattern),
        SamplingParams(max_tokens=10, stop="e"),
    ]
    prompt = [1, *(rng.randrange(259) for _ in range(rng.randrange(1, 80)))]
    match rng.randrange(4):
        case 0:
            stream = llm.stream(prompt, kinds[0])
            next(stream, None)
            stream.close()
        case 1:
            request = Request(tuple(prompt), kinds[0], priority=rng.randrange(3), cache_salt=rng.choice(["", "a"]))

            def take(_: Event) -> bool:
                return False

            number = llm._open().submit(request, take)
            time.sleep(rng.random() * 0.002)
            llm._open().cancel(number)
        case 2:
            llm.score(prompt)
        case _:
            llm.generate([prompt], rng.choice(kinds))


def test_memory_stays_flat_under_mixed_load(tmp_path: Path) -> None:
    with LLM(small_model.write(tmp_path), threads=1, max_sequences=4, kv_budget=300_000) as llm:
        stop = threading.Event()
        errors: list[BaseException] = []
        n_done = [0] * 4

        def work(seed: int) -> None:
            rng = random.Random(seed)
            try:
                while not stop.is_set():
                    one_request(rng, llm)
                    n_done[seed] += 1
            except BaseException as error:  # shown below: a thread's own error would be lost
                errors.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        process = psutil.Process()

        def look_after_a_while() -> tuple[int, int, int]:
            wanted = sum(n_done) + LEAST_REQUESTS
            time.sleep(SECONDS / 2)
            while sum(n_done) < wanted and not errors:
                time.sleep(0.1)
            return process.memory_info().rss, process.num_fds(), process.num_threads()

        before = look_after_a_while()  # recordings, caches of grammars and the allocator settle
        after = look_after_a_while()
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert after[0] - before[0] < MAX_GROWTH, f"{(after[0] - before[0]) / 2**20:.1f} MiB more"
    assert after[1] <= before[1] + 1, "descriptors"  # fewer is what earlier tests left to the garbage collector
    assert after[2] <= before[2] + 1, "threads"
