"""What the server itself costs: throughput and added latency with an engine that costs nothing.

    python benchmarks/serve_overhead.py VOCAB.gguf
    python benchmarks/serve_overhead.py VOCAB.gguf --parts stream --rates 50000,100000 --seconds 5

stream    64 streams get a token each in steps of equal length, --rates tokens a second in all: how many arrive,
          and how long after it was given out the last token of each stream is there
events    the same without a clock: a token of each stream in every turn of the event loop, so that none wait together
requests  answers of 4 tokens, not streamed, 32 open at once
latency   1 and 8 streams of 50 tokens a second: time between a token being given out and its event's arrival; and one
          short request after another, whole

The server is a process, the client another (this one). Nothing else may run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import costless
import numpy as np
from side_by_side import chosen

from gristmill.bench.serving.http import Address
from gristmill.bench.serving.load import Pace, Run, Target, run
from gristmill.bench.serving.prompts import Prompt

Row = dict[str, object]
N_PROMPT = 16
PARTS = ("stream", "events", "requests", "latency")


@dataclass(frozen=True, slots=True)
class Asked:
    """What came, when each prompt's tokens were given out, and the processor time that server and client took."""

    run: Run
    given: dict[int, list[float]]
    server_s: float
    client_s: float


@dataclass(frozen=True, slots=True)
class Client:
    """The server's process, asked by `pipe` when it gave out what, and by HTTP for everything else."""

    address: Address
    pipe: Connection
    chat: bool

    def ask(self, n: int, n_output: int, step_s: float, stream: bool, at_once: int) -> Asked:
        """Prompts are ids, the first of which is a number."""
        self.pipe.send(step_s)
        _, before = self.pipe.recv()
        path = "/v1/chat/completions" if self.chat else "/v1/completions"
        target = Target(self.address, path, {}, {"model": "costless", "ignore_eos": True}, self.chat, stream)
        words = "word " * N_PROMPT
        prompts = [Prompt(words if self.chat else [i] + [100] * (N_PROMPT - 1), N_PROMPT, n_output) for i in range(n)]
        client_before = time.process_time()
        result = asyncio.run(run(target, prompts, Pace(max_concurrency=at_once)))
        client_s = time.process_time() - client_before
        failed = [outcome.error for outcome in result.outcomes if outcome.error]
        if failed:
            raise RuntimeError(f"{len(failed)} requests failed: {failed[0]}")
        self.pipe.send(step_s)
        given, after = self.pipe.recv()
        return Asked(result, given, after - before, client_s)

    def stream(self, rate: float, seconds: float, at_once: int) -> Row:
        """rate: tokens a second of all streams; 0: without a clock."""
        n_output = int((rate or 20_000) * seconds / at_once)
        asked = self.ask(at_once, n_output, at_once / rate if rate else 0.0, True, at_once)
        result = asked.run
        last = [] if self.chat else [result.outcomes[i].ended - times[-1] for i, times in asked.given.items()]
        n_events = sum(len(outcome.times) for outcome in result.outcomes)
        n_tokens = sum(outcome.n_output for outcome in result.outcomes)
        return {
            "what": f"stream, {rate:.0f} tokens/s given" if rate else "stream, an event a token",
            "tokens/s": n_tokens / result.duration_s,
            "events/s": n_events / result.duration_s,
            **_late("last token late", last),
            "server us a token": 1e6 * asked.server_s / n_tokens,
            "client's": 1e6 * asked.client_s / n_tokens,
        }

    def requests(self, n: int, at_once: int) -> Row:
        asked = self.ask(n, 4, 0.0, False, at_once)
        result = asked.run
        return {
            "what": f"short requests, {at_once} at once",
            "requests/s": n / result.duration_s,
            **_late("whole", [outcome.whole_s for outcome in result.outcomes]),
            "server us a request": 1e6 * asked.server_s / n,
            "client's": 1e6 * asked.client_s / n,
        }

    def latency(self, seconds: float) -> list[Row]:
        rows = list[Row]()
        if not self.chat:
            for n in (1, 8):
                asked = self.ask(n, int(100 * seconds), 1 / 50, True, n)
                pairs = [(asked.run.outcomes[i].times, times) for i, times in asked.given.items()]
                alone = [p for p in pairs if len(p[0]) == len(p[1])]  # others had tokens that came together
                late = [a - b for arrived, sent in alone for a, b in zip(arrived, sent, strict=True)]
                rows.append({"what": f"{len(alone)} of {n} streams, 50 tokens/s each", **_late("token late", late)})
        asked = self.ask(int(200 * seconds), 1, 0.0, False, 1)
        whole = [outcome.whole_s for outcome in asked.run.outcomes]
        rows.append({"what": "one request after another", **_late("whole", whole)})
        return rows


def _late(name: str, seconds: Sequence[float]) -> Row:
    if not seconds:
        return {}
    p50, p99 = np.percentile(np.array(seconds) * 1000, [50, 99])
    return {f"{name}, ms p50": float(p50), f"{name}, ms p99": float(p99)}


def measure(client: Client, args: argparse.Namespace) -> list[Row]:
    rows, parts = list[Row](), args.parts
    client.ask(64, 8, 0.0, True, 64)  # warm
    for _ in range(args.rounds):
        if "stream" in parts:
            rows += [client.stream(float(rate), args.seconds, args.streams) for rate in args.rates.split(",")]
        if "events" in parts:
            rows.append(client.stream(0.0, args.seconds, args.streams))
        if "requests" in parts:
            rows.append(client.requests(int(1000 * args.seconds), 32))
        if "latency" in parts:
            rows += client.latency(args.seconds)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary", type=Path, help="a GGUF with a vocabulary")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rates", default="50000,100000", help="tokens a second, with commas between")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0, help="about so long each")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--chat", action="store_true", help="chats instead of completions")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.parts = chosen(parser, args.parts, PARTS)
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=costless.serve, args=(there, args.vocabulary), daemon=True)
    process.start()
    there.close()
    try:
        client = Client(Address("127.0.0.1", here.recv(), "", False), here, args.chat)
        _wait(client.address)
        print(f"server: process {process.pid}", file=sys.stderr)
        rows = measure(client, args)
    finally:
        here.close()
        process.join(10)
        process.terminate()
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        what, *figures = row.items()
        print(f"{what[1]!s:34}", ", ".join(f"{name} {value:.5g}" for name, value in figures))


def _wait(address: Address) -> None:
    import socket

    while True:
        try:
            socket.create_connection((address.host, address.port)).close()
            return
        except OSError:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
