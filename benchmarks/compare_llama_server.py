"""gristmill serve beside llama-server on one GGUF file, under the same load, in turns: `gristmill bench serve` asks.

    python benchmarks/compare_llama_server.py model.gguf --llama-bin llama.cpp/build/bin --clients 1,16,64 --rounds 3
    python benchmarks/compare_llama_server.py model.gguf --offline --requests 64 --rounds 3

Each client has one request open: random ids (32 to 224), 32 to 96 tokens to answer, streamed. Servers are started anew
for each round with as many slots as clients, and the model's memory is theirs alone. --offline compares with the same
requests given to `LLM.generate` in one call, both with 16 at once: what serving costs. There each process answers as
many others before, since the cache's memory is slow when it is first written, and by how much is up to the machine.
Nothing else may run meanwhile.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def measure(job: Job, command: Sequence[str], clients: int | None) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    with serving(command, job.port) as url:
        for seed in (0,) if clients is not None else (1, 0):
            load = job.load(clients, seed)
            asked = [sys.executable, "-m", "gristmill", "bench", "serve", "--base-url", url, *load, "--json"]
            summary = json.loads(run(asked).stdout)
    if summary["failed"]:
        raise RuntimeError(f"requests failed: {summary['errors']}")
    return summary


def ours(job: Job, clients: int | None) -> dict[str, Any]:
    slots = SLOTS_OFFLINE if clients is None else clients
    command = [sys.executable, "-m", "gristmill", "serve", "-m", str(job.model), "--port", str(job.port)]
    command += ["--slots", str(slots), "--threads", str(job.threads), "--ctx", str(CONTEXT), "--device", "cpu"]
    return measure(job, command, clients)


def theirs(job: Job, clients: int) -> dict[str, Any]:
    assert job.llama_bin is not None
    command = [str(job.llama_bin / "llama-server"), "-m", str(job.model), "--port", str(job.port), "--no-webui"]
    command += ["-np", str(clients), "-c", str(CONTEXT * clients), "-t", str(job.threads), "-tb", str(job.threads)]
    return measure(job, command, clients)


def offline(job: Job) -> dict[str, float]:
    command = [sys.executable, __file__, str(job.model), "--child", "--threads", str(job.threads)]
    speed: dict[str, float] = json.loads(run([*command, "--requests", str(job.requests)]).stdout)
    return speed


def child(job: Job) -> None:
    """Prints the speed of the requests that `--offline` serves."""
    from gristmill import LLM, SamplingParams

    with LLM(job.model, threads=job.threads, max_sequences=SLOTS_OFFLINE, max_context=CONTEXT, device="cpu") as llm:
        speed = 0.0
        for seed in (1, 0):
            prompts = synthetic(job.requests, PROMPT, ANSWER, seed, llm.tokenizer, as_ids=True)
            params = [SamplingParams(temperature=0, max_tokens=p.n_output, ignore_eos=True) for p in prompts]
            start = time.perf_counter()
            outputs = llm.generate([prompt.content for prompt in prompts], params)
            seconds = time.perf_counter() - start
            speed = sum(len(o.prompt_token_ids) + len(o.outputs[0].token_ids) for o in outputs) / seconds
    print(json.dumps({"tok/s in all": speed}))


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
    parser.add_argument("--clients", default="1,16,64")
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
            served = Part(
                "served", lambda: offline(job), lambda: {"tok/s in all": ours(job, None)[RATES["tok/s in all"]]}
            )
            rows = compare([served], args.rounds)
        else:
            for clients in map(int, args.clients.split(",")):
                rows += compare(parts_of(job, clients), args.rounds)
    except (RuntimeError, OSError) as error:
        sys.exit(f"compare_llama_server: {error}")
    print(as_json(rows, name.replace("-", "_"), {"model": str(args.model)}) if args.json else table(rows, name))


if __name__ == "__main__":
    main()
