"""gristmill beside llama.cpp on one GGUF file: both take turns, so that a drifting machine drifts for both.

    python benchmarks/compare_llama_cpp.py model.gguf --llama-bin llama.cpp/build/bin --threads 2 --rounds 5
    python benchmarks/compare_llama_cpp.py model.gguf --llama-bin DIR --parts deep --depth 4096 -n 32

Parts: prompt and generate, alone and after --depth tokens (deep), are llama-bench's pp and tg with the better of flash
attention on and off; batch is llama-batched-bench's generation of several sequences; gristmill's side of these is
`gristmill bench model`. start is a process that loads the model and prints one token: its load time, wall time and peak
memory, of the second of two in a row, since a virtual machine may first have to get memory back; rested is one alone,
after --rest seconds of nothing, in which such a machine gives its free memory to its host. Rounds are taken part by
part; a run of llama.cpp warms the page cache first. Nothing else may run meanwhile. Of gristmill's speeds it says how
much of the machine's limit they take (memory's or the multiplier's, measured around each), and how many times better
they would be at all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from side_by_side import Part, Run, as_json, bench_model, chosen, compare, own_command, run, speed, table

BATCH_DEPTH, BATCH_TOKENS = 16, 32
"""Tokens of each sequence before and while a batch generates."""


@dataclass(frozen=True, slots=True)
class Job:
    """What both engines are asked: n_prompt tokens to compute, n_generate to generate, `depth` before the deep ones."""

    model: Path
    llama_bin: Path
    gristmill: tuple[str, ...]
    threads: int
    n_prompt: int
    n_generate: int
    depth: int
    batches: tuple[int, ...]
    kv_type: str
    rest_s: float


def parts(job: Job) -> Mapping[str, tuple[Part, ...]]:
    """All that can be compared, by the name that --parts takes."""
    p, n = job.n_prompt, job.n_generate

    def alone(label: str, n_prompt: int, n_generate: int, depth: int) -> Part:
        asked = (job, label, n_prompt, n_generate, depth)
        return Part(label, lambda: llama_bench(*asked), lambda: gristmill_bench(*asked))

    return {
        "prompt": (alone("prompt tok/s", p, 0, 0),),
        "generate": (alone("generate tok/s", 0, n, 0),),
        "batch": (Part("batch", lambda: llama_batched(job), lambda: gristmill_batched(job)),),
        "deep": (
            alone(f"prompt at {job.depth} tok/s", p, 0, job.depth),
            alone(f"generate at {job.depth} tok/s", 0, n, job.depth),
        ),
        "start": (Part("start", lambda: llama_start(job), lambda: gristmill_start(job), higher_is_better=False),),
        "rested": (Part("rested", lambda: rested(llama_start, job), lambda: rested(gristmill_start, job), False),),
    }


def llama_bench(job: Job, label: str, n_prompt: int, n_generate: int, depth: int) -> dict[str, float]:
    command = [
        str(job.llama_bin / "llama-bench"),
        "-m",
        str(job.model),
        "-t",
        str(job.threads),
        "-r",
        "1",
        "-o",
        "json",
    ]
    attention = "on" if job.kv_type == "q8_0" else "on,off"  # it quantizes values for flash attention alone
    command += ["-fa", attention, "-ctk", job.kv_type, "-ctv", job.kv_type]
    finished = run([*command, "-p", str(n_prompt), "-n", str(n_generate), "-d", str(depth)])
    return {label: max(row["avg_ts"] for row in json.loads(finished.stdout))}


def gristmill_bench(job: Job, label: str, n_prompt: int, n_generate: int, depth: int) -> dict[str, float]:
    (row,) = bench_model(
        job.gristmill, "-p", n_prompt, "-n", n_generate, "-d", depth, "-b", 1, "-r", 1, *_common(job), "-t", job.threads
    )
    return speed(label, row)


def llama_batched(job: Job) -> dict[str, float]:
    sizes = ["-npp", str(BATCH_DEPTH), "-ntg", str(BATCH_TOKENS), "-npl", ",".join(map(str, job.batches))]
    context = max(job.batches) * (BATCH_DEPTH + BATCH_TOKENS) + 64
    command = [str(job.llama_bin / "llama-batched-bench"), "-m", str(job.model), "-t", str(job.threads)]
    command += ["-c", str(context), *sizes, "-ctk", job.kv_type, "-ctv", job.kv_type, "--output-format", "jsonl"]
    rows = [json.loads(line) for line in run(command).stdout.splitlines() if line.startswith("{")]
    return {batch_label(row["pl"]): row["speed_tg"] for row in rows}


def gristmill_batched(job: Job) -> dict[str, float]:
    sizes = ("-p", 0, "-n", BATCH_TOKENS, "-d", BATCH_DEPTH, "-b", ",".join(map(str, job.batches)))
    rows = bench_model(job.gristmill, *sizes, "-r", 1, *_common(job), "-t", job.threads)
    return {name: value for row in rows for name, value in speed(batch_label(row["batch"]), row).items()}


def run_twice(command: list[str]) -> Run:
    run(command)
    return run(command)


def rested(start: Callable[[Job, Callable[[list[str]], Run]], dict[str, float]], job: Job) -> dict[str, float]:
    time.sleep(job.rest_s)
    return {"rested, to first token s": start(job, run)["start to first token s"]}


def llama_start(job: Job, measured: Callable[[list[str]], Run] = run_twice) -> dict[str, float]:
    command = [str(job.llama_bin / "llama-completion"), "-m", str(job.model), "-t", str(job.threads)]
    finished = measured([*command, "-c", str(_context(job)), "-p", "a", "-n", "1", "-no-cnv"])
    load = re.search(r"load time =\s*([\d.]+) ms", finished.stdout + finished.stderr)
    return {
        "load s": float(load.group(1)) / 1000 if load else float("nan"),
        "start to first token s": finished.wall_s,
        "peak memory GB": finished.peak_bytes / 1e9,
    }


def gristmill_start(job: Job, measured: Callable[[list[str]], Run] = run_twice) -> dict[str, float]:
    command = [*job.gristmill, "generate", *_common(job), "--threads", str(job.threads), "--ctx", str(_context(job))]
    finished = measured([*command, "--prompt-ids", "10", "-n", "1", "--temp", "0", "--ignore-eos", "--json"])
    return {
        "load s": json.loads(finished.stdout)["stats"]["load_s"],
        "start to first token s": finished.wall_s,
        "peak memory GB": finished.peak_bytes / 1e9,
    }


def _common(job: Job) -> tuple[str, ...]:
    return ("-m", str(job.model), "--kv-type", job.kv_type, "--device", "cpu")


def _context(job: Job) -> int:
    """Tokens of context that both engines are given where one token is generated."""
    return max(job.n_prompt, job.n_generate) + 64


def batch_label(n: int) -> str:
    return f"generate, batch {n} tok/s"


def warm(job: Job) -> None:
    """The file into the page cache, gristmill's sources compiled."""
    llama_start(job, run)
    gristmill_start(job, run)


def numbers(low: int) -> Callable[[str], tuple[int, ...]]:
    """For argparse: whole numbers with commas between."""

    def parse(text: str) -> tuple[int, ...]:
        found = tuple(int(part) for part in text.split(","))
        if min(found) < low:
            raise ValueError(text)
        return found

    return parse


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options of whichever engine gristmill is compared with."""
    parser.add_argument("--gristmill", default=own_command(), help="command [default: this Python's own]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, default=4096, help="tokens in the cache before the deep parts")
    parser.add_argument("-b", "--batch", type=numbers(1), default=(4, 8, 16), help="sequences generating at once")
    parser.add_argument("--kv-type", default="f16", choices=["f16", "f32", "q8_0"])
    parser.add_argument("--json", action="store_true")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-bin", type=Path, required=True, help="folder of llama.cpp's programs")
    parser.add_argument(
        "--parts", default="prompt,generate,batch,start", help="of prompt,generate,batch,deep,start,rested; all"
    )
    add_sizes(parser)
    parser.add_argument("--rest", type=float, default=15, help="seconds before each of rested's starts")
    args = parser.parse_args()
    sizes = (args.threads, args.prompt, args.generate, args.depth, args.batch, args.kv_type, args.rest)
    job = Job(args.model, args.llama_bin, tuple(shlex.split(args.gristmill)), *sizes)
    known = parts(job)
    names = chosen(parser, args.parts, list(known))
    for program in ("llama-bench", "llama-batched-bench", "llama-completion"):
        if not (args.llama_bin / program).exists():
            parser.error(f"{args.llama_bin} has no {program}: cmake --build llama.cpp/build --target {program}")
    try:
        warm(job)
        rows = compare([part for name in names for part in known[name]], args.rounds)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"compare_llama_cpp: {error}")
    if args.json:
        settings = {"model": str(args.model), "threads": args.threads, "prompt": args.prompt, "generate": args.generate}
        settings |= {"depth": args.depth, "kv_type": args.kv_type, "rounds": args.rounds}
        print(as_json(rows, "llama_cpp", settings))
    else:
        print(
            f"{args.model.name}: {args.threads} threads, prompt {args.prompt}, generate {args.generate} (a batch"
            f" {BATCH_TOKENS} each), {args.kv_type} cache, medians of {args.rounds}"
        )
        print(table(rows, "llama.cpp"))


if __name__ == "__main__":
    main()
