"""Many requests at once beside llama.cpp's batched bench on the same file, in turns: tokens per second in all.

    python benchmarks/offline.py model.gguf --llama-bin llama.cpp/build/bin --threads 2 --rounds 3

gristmill answers 64 requests of random lengths (prompts of 32 to 224 tokens, answers of 32 to 96), 16 at once, each
chosen greedily to its full length, and refills as answers end. llama-batched-bench computes waves of 16 equal requests
(128 + 64 tokens) without any scheduling or sampling of its own, which favours it. It clears the memory of its cache
while it loads; gristmill's is touched by as many other requests before, which are not timed. Nothing else may run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

from side_by_side import Part, as_json, compare, run, table

PROMPT, ANSWER = (32, 224), (32, 96)


def child(model: str, threads: int, n_requests: int, at_once: int) -> None:
    """Prints the speed; in a process of its own, so that both engines start alike."""
    from gristmill import LLM, SamplingParams

    rng = random.Random(0)
    with LLM(model, threads=threads, max_sequences=at_once, max_context=512) as llm:
        for _ in range(2):
            prompts = [
                [rng.randrange(llm.config.vocab_size) for _ in range(rng.randint(*PROMPT))] for _ in range(n_requests)
            ]
            lengths = [rng.randint(*ANSWER) for _ in prompts]
            params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]
            start = time.perf_counter()
            outputs = llm.generate(prompts, params)
            seconds = time.perf_counter() - start
    n_tokens = sum(len(o.prompt_token_ids) + len(o.outputs[0].token_ids) for o in outputs)
    print(json.dumps({"tok/s in all": n_tokens / seconds}))


def gristmill(model: Path, threads: int, n_requests: int, at_once: int) -> dict[str, float]:
    command = [sys.executable, __file__, str(model), "--child", "--threads", str(threads)]
    finished = run([*command, "--requests", str(n_requests), "--at-once", str(at_once)])
    speed: dict[str, float] = json.loads(finished.stdout)
    return speed


def llama_batched(model: Path, llama_bin: Path, threads: int, at_once: int) -> dict[str, float]:
    prompt, answer = sum(PROMPT) // 2, sum(ANSWER) // 2
    command = [str(llama_bin / "llama-batched-bench"), "-m", str(model), "-t", str(threads), "--output-format", "jsonl"]
    command += [
        "-npp",
        str(prompt),
        "-ntg",
        str(answer),
        "-npl",
        str(at_once),
        "-c",
        str(at_once * (prompt + answer) + 64),
    ]
    rows = [json.loads(line) for line in run(command).stdout.splitlines() if line.startswith("{")]
    return {"tok/s in all": rows[-1]["speed"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-bin", type=Path, help="folder of llama.cpp's programs")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.child:
        child(str(args.model), args.threads, args.requests, args.at_once)
        return
    if args.llama_bin is None:
        parser.error("--llama-bin is needed")
    part = Part(
        f"{args.at_once} at once",
        lambda: llama_batched(args.model, args.llama_bin, args.threads, args.at_once),
        lambda: gristmill(args.model, args.threads, args.requests, args.at_once),
    )
    try:
        rows = compare([part], args.rounds)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"offline: {error}")
    print(as_json(rows, "llama_cpp", {"model": str(args.model)}) if args.json else table(rows, "llama.cpp"))


if __name__ == "__main__":
    main()
