"""What a load generator costs for each event of a stream: the one of `gristmill bench serve` beside httpx.

    python benchmarks/load_clients.py --streams 64 --events 500

A process writes events as OpenAI's servers do, a chunk each, to all streams in turns; without --pause-ms as fast as it
can, so that a client reads many at once. Each client reads them in this process, and its own processor time is what is
shown. Needs httpx (`gristmill[test]`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import httpx

from gristmill.bench.serving.answer import Answer
from gristmill.bench.serving.http import Address
from gristmill.bench.serving.load import Pace, Target, run
from gristmill.bench.serving.prompts import Prompt

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(finish: str | None) -> bytes:
    choice = {"index": 0, "text": " word", "logprobs": None, "finish_reason": finish}
    event = {"id": "cmpl-0123456789", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def serve(port: Connection, n_events: int, pause_s: float) -> None:
    """A server without a model: the port goes to the parent, and the process ends with it."""
    chunk, last = _chunk(None), _chunk("length") + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        writer.write(HEAD)
        for _ in range(n_events - 1):
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(pause_s)
        writer.write(last)
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def own(target: Target, prompts: list[Prompt]) -> None:
    result = await run(target, prompts, Pace())
    assert all(outcome.error is None for outcome in result.outcomes)


async def with_httpx(target: Target, prompts: list[Prompt]) -> None:
    limits = httpx.Limits(max_connections=len(prompts))
    url = f"http://{target.address.name}{target.path}"
    async with httpx.AsyncClient(timeout=None, limits=limits) as client:

        async def one(prompt: Prompt) -> None:
            answer = Answer(stream=True)
            body = {"prompt": prompt.content, "stream": True}
            async with client.stream("POST", url, json=body) as response:
                async for data in response.aiter_bytes():
                    answer.take(response.status_code, data, time.perf_counter())
            answer.end(200, time.perf_counter())

        await asyncio.gather(*map(one, prompts))


def measure(client: Callable[[Target, list[Prompt]], Awaitable[None]], target: Target, prompts: list[Prompt]) -> float:
    """Seconds of processor time."""
    start = time.process_time()
    asyncio.run(client(target, prompts))  # type: ignore[arg-type]
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--events", type=int, default=500, help="of each stream")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="after each event of a stream")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(there, args.events, args.pause_ms / 1000), daemon=True
    )
    process.start()
    try:
        target = Target(Address("127.0.0.1", here.recv(), "", False), "/v1/completions", {}, {"model": "m"}, chat=False)
        prompts = [Prompt("a", 1, args.events)] * args.streams
        for _ in range(args.rounds):
            for name, client in (("gristmill", own), ("httpx", with_httpx)):
                seconds = measure(client, target, prompts) / (args.streams * args.events)
                print(f"{name:10} {seconds * 1e6:6.1f} us an event, at most {1 / seconds:8.0f} events a second")
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
