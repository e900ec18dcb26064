"""gristmill serve beside llama-server on one GGUF file, under the same load, in turns: `gristmill bench serve` asks.

    python benchmarks/compare_llama_server.py model.gguf --llama-bin llama.cpp/build/bin --clients 1,16,64 --rounds 3
    python benchmarks/compare_llama_server.py model.gguf --offline --requests 64 --rounds 3

Each client has one request open: random ids (32 to 224), 32 to 96 tokens to answer, streamed. Servers are started anew
for each round with as many slots as clients, and the model's memory is theirs alone. --offline compares with the same
requests given to `LLM.generate` in one call, both with 16 at once: what serving costs. There both processes stay, are
asked in turns, and have answered as many twice before, since the cache's memory is slow when it is first written.
Processes differ in where their memory lies: start it several times. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from compare_llama_cpp import numbers
from side_by_side import Part, Row, as_json, compare, run, table

from gristmill.bench.serving.prompts import Span, synthetic

PROMPT, ANSWER = Span(32, 224), Span(32, 96)
CONTEXT = 512
SLOTS_OFFLINE = 16

RATES = {"tok/s in all": "total_token_throughput", "tok/s out": "output_throughput"}
DELAYS = {
    "ttft ms p50": "p50_ttft_ms",
    "ttft ms p99": "p99_ttft_ms",
    "tpot ms p50": "p50_tpot_ms",
    "tpot ms p99": "p99_tpot_ms",
    "e2el ms p50": "p50_e2el_ms",
}


@dataclass(frozen=True, slots=True)
class Job:
    """requests: for a client, at least 8 in all."""

    model: Path
    llama_bin: Path | None
    threads: int
    requests: int
    port: int

    def load(self, clients: int | None, seed: int) -> list[str]:
        """Of `gristmill bench serve`."""
        n = self.requests if clients is None else max(8, self.requests * clients)
        args = ["--num-prompts", str(n), "--num-warmups", "2", "--tokenizer", str(self.model), "--seed", str(seed)]
        args += ["--input-len", f"{PROMPT.low}:{PROMPT.high}", "--output-len", f"{ANSWER.low}:{ANSWER.high}"]
        return args if clients is None else [*args, "--max-concurrency", str(clients)]


@contextmanager
def serving(command: Sequence[str], port: int) -> Iterator[str]:
    """The address of a server that is ready. RuntimeError with the end of what it said where it ends instead."""
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            while True:
                if process.poll() is not None:
                    said.seek(0)
                    raise RuntimeError(f"{command[0]} ended: {said.read()[-2000:].decode(errors='replace')}")
                try:
                    with urllib.request.urlopen(f"{url}/health", timeout=5):
                        break
                except OSError:
                    time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure(url: str, load: Sequence[str]) -> dict[str, Any]:
    asked = [sys.executable, "-m", "gristmill", "bench", "serve", "--base-url", url, *load, "--json"]
    summary: dict[str, Any] = json.loads(run(asked).stdout)
    if summary["failed"]:
        raise RuntimeError(f"requests failed: {summary['errors']}")
    return summary


def our_server(job: Job, slots: int) -> list[str]:
    command = [sys.executable, "-m", "gristmill", "serve", "-m", str(job.model), "--port", str(job.port)]
    return [*command, "--slots", str(slots), "--threads", str(job.threads), "--ctx", str(CONTEXT), "--device", "cpu"]


def ours(job: Job, clients: int) -> dict[str, Any]:
    with serving(our_server(job, clients), job.port) as url:
        return measure(url, job.load(clients, 0))


def theirs(job: Job, clients: int) -> dict[str, Any]:
    assert job.llama_bin is not None
    command = [str(job.llama_bin / "llama-server"), "-m", str(job.model), "--port", str(job.port), "--no-webui"]
    command += ["-np", str(clients), "-c", str(CONTEXT * clients), "-t", str(job.threads), "-tb", str(job.threads)]
    with serving(command, job.port) as url:
        return measure(url, job.load(clients, 0))


@contextmanager
def offline(job: Job) -> Iterator[Callable[[int], float]]:
    """What has a process answer the requests of a seed, and gives its speed. RuntimeError where the process ends."""
    command = [sys.executable, __file__, str(job.model), "--child", "--threads", str(job.threads)]
    command += ["--requests", str(job.requests)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asking, answers = process.stdin, process.stdout

        def speed(seed: int) -> float:
            print(seed, file=asking, flush=True)
            if not (line := answers.readline()):
                raise RuntimeError("the process without a server ended")
            return float(line)

        yield speed


def compare_offline(job: Job, rounds: int) -> list[Row]:
    with serving(our_server(job, SLOTS_OFFLINE), job.port) as url, offline(job) as speed:

        def served(seed: int) -> float:
            return float(measure(url, job.load(None, seed))[RATES["tok/s in all"]])

        for seed in (rounds, rounds + 1):  # none of those that count
            served(seed)
            speed(seed)
        asked_offline, asked_served = count(), count()  # the same seeds
        name = "tok/s in all"
        part = Part("served", lambda: {name: speed(next(asked_offline))}, lambda: {name: served(next(asked_served))})
        return compare([part], rounds)


def child(job: Job) -> None:
    """Reads seeds, and prints the speed of the requests of each."""
    from gristmill import LLM, SamplingParams

    with LLM(job.model, threads=job.threads, max_sequences=SLOTS_OFFLINE, max_context=CONTEXT, device="cpu") as llm:
        for seed in map(int, sys.stdin):
            prompts = synthetic(job.requests, PROMPT, ANSWER, seed, llm.tokenizer, as_ids=True)
            params = [SamplingParams(temperature=0, max_tokens=p.n_output, ignore_eos=True) for p in prompts]
            start = time.perf_counter()
            outputs = llm.generate([prompt.content for prompt in prompts], params)
            seconds = time.perf_counter() - start
            print(sum(len(o.prompt_token_ids) + len(o.outputs[0].token_ids) for o in outputs) / seconds, flush=True)


def parts_of(job: Job, clients: int) -> tuple[Part, Part]:
    """Rates and delays of the same rounds: the second part reads what the first has measured."""
    found: dict[str, list[dict[str, Any]]] = {"theirs": [], "ours": []}

    def rates(side: str) -> dict[str, float]:
        summary = theirs(job, clients) if side == "theirs" else ours(job, clients)
        found[side].append(summary)
        return {f"{clients} clients: {name}": summary[key] for name, key in RATES.items()}

    def delays(side: str) -> dict[str, float]:
        summary = found[side].pop(0)
        return {f"{clients} clients: {name}": summary[key] for name, key in DELAYS.items()}

    return (
        Part(f"{clients} clients", lambda: rates("theirs"), lambda: rates("ours")),
        Part(f"{clients} clients, delays", lambda: delays("theirs"), lambda: delays("ours"), higher_is_better=False),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-bin", type=Path, help="folder of llama.cpp's programs")
    parser.add_argument("--offline", action="store_true", help="compare with LLM.generate instead")
    parser.add_argument("--clients", type=numbers(1), default=(1, 16, 64))
    parser.add_argument("--requests", type=int, default=2, help="for each client; with --offline, in all")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=8399)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    job = Job(args.model, args.llama_bin, args.threads, args.requests, args.port)
    if args.child:
        child(job)
        return
    if not args.offline and args.llama_bin is None:
        parser.error("--llama-bin is needed")
    name = "offline" if args.offline else "llama-server"
    rows = list[Row]()
    try:
        if args.offline:
            rows = compare_offline(job, args.rounds)
        else:
            for clients in args.clients:
                rows += compare(parts_of(job, clients), args.rounds)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"compare_llama_server: {error}")
    print(as_json(rows, name.replace("-", "_"), {"model": str(args.model)}) if args.json else table(rows, name))


if __name__ == "__main__":
    main()
