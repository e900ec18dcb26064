"""gristmill beside llama.cpp on one GGUF file: both take turns, so that a drifting machine drifts for both.

    python benchmarks/compare_llama_cpp.py model.gguf --llama-bin llama.cpp/build/bin --threads 2 --rounds 5

Speeds are llama-bench's pp and tg (the better of flash attention on and off) against `gristmill generate --json`; start
is the wall time of a process that loads the model and prints one token. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# measure -> whether more of it is better
HIGHER_IS_BETTER: Mapping[str, bool] = {
    "prompt tok/s": True,
    "generate tok/s": True,
    "load s": False,
    "start to first token s": False,
    "peak memory GB": False,
}


@dataclass(frozen=True, slots=True)
class Job:
    """What both engines are asked: a prompt of n_prompt tokens, and n_generate tokens after `depth` others."""

    model: Path
    llama_bin: Path
    gristmill: tuple[str, ...]
    threads: int
    n_prompt: int
    n_generate: int
    depth: int
    kv_type: str
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A finished process: what it printed, how long it took, the most memory that it held."""

    stdout: str
    stderr: str
    wall_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one measure; `better` is how many times better gristmill is, whichever direction is good."""

    measure: str
    llama_cpp: float
    gristmill: float
    better: float


def run(command: Sequence[str]) -> Run:
    """RuntimeError with the end of its stderr when the command fails.

    A child's peak memory starts at that of the process that started it, so this one must stay small: no numpy here.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s, process.returncode = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))  # a single token may be half a character
    if process.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)[:200]} ended with {process.returncode}:\n{texts[1][-2000:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Run(texts[0], texts[1], wall_s, usage.ru_maxrss * unit)


def measure_llama_cpp(job: Job) -> dict[str, float]:
    """One round. Keys as in HIGHER_IS_BETTER."""
    common = ["-m", str(job.model), "-t", str(job.threads)]
    bench = [str(job.llama_bin / "llama-bench"), *common, "-r", "1", "-o", "json", "-fa", "on,off"]
    bench += ["-ctk", job.kv_type, "-ctv", job.kv_type]
    prompt = json.loads(run([*bench, "-p", str(job.n_prompt), "-n", "0"]).stdout)
    generate = json.loads(run([*bench, "-p", "0", "-n", str(job.n_generate), "-d", str(job.depth)]).stdout)
    once = [str(job.llama_bin / "llama-completion"), *common, "-c", str(context(job)), "-p", "a", "-n", "1", "-no-cnv"]
    start = run(once)
    load = re.search(r"load time =\s*([\d.]+) ms", start.stdout + start.stderr)
    return {
        "prompt tok/s": max(row["avg_ts"] for row in prompt),
        "generate tok/s": max(row["avg_ts"] for row in generate),
        "load s": float(load.group(1)) / 1000 if load else float("nan"),
        "start to first token s": start.wall_s,
        "peak memory GB": start.peak_bytes / 1e9,
    }


def measure_gristmill(job: Job) -> dict[str, float]:
    """One round. Keys as in HIGHER_IS_BETTER."""
    one = job.prompt_ids[:1]
    prompt, _ = generate(job, job.prompt_ids[: job.n_prompt], 1)
    long, _ = generate(job, job.prompt_ids[: job.depth] or one, job.n_generate)
    short, start = generate(job, one, 1)
    return {
        "prompt tok/s": prompt["prompt_tokens_per_s"],
        "generate tok/s": long["output_tokens_per_s"],
        "load s": short["load_s"],
        "start to first token s": start.wall_s,
        "peak memory GB": start.peak_bytes / 1e9,
    }


def generate(job: Job, ids: Sequence[int], n: int) -> tuple[dict[str, float], Run]:
    """`stats` of one greedy `gristmill generate --json`, and its process."""
    command = [*job.gristmill, "generate", "-m", str(job.model), "--prompt-ids", ",".join(map(str, ids))]
    command += ["-n", str(n), "--temp", "0", "--threads", str(job.threads), "--ctx", str(context(job))]
    finished = run([*command, "--kv-type", job.kv_type, "--device", "cpu", "--ignore-eos", "--json"])
    return json.loads(finished.stdout)["stats"], finished


def context(job: Job) -> int:
    """Tokens of context that both engines are given for one-token runs and generation."""
    return max(job.n_prompt, job.depth + job.n_generate) + 64


def compare(job: Job, rounds: int) -> list[Row]:
    """A B A B ..., then medians. One round more comes first and is dropped: it warms the page cache."""
    measure_llama_cpp(job)
    theirs, ours = [], []
    for _ in range(rounds):
        theirs.append(measure_llama_cpp(job))
        ours.append(measure_gristmill(job))
    rows = []
    for measure, higher in HIGHER_IS_BETTER.items():
        a = statistics.median(each[measure] for each in theirs)
        b = statistics.median(each[measure] for each in ours)
        rows.append(Row(measure, a, b, b / a if higher else a / b))
    return rows


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'':24}{'llama.cpp':>12}{'gristmill':>12}{'times better':>14}"]
    lines += [f"{r.measure:24}{r.llama_cpp:12.2f}{r.gristmill:12.2f}{r.better:13.2f}x" for r in rows]
    return "\n".join(lines)


def random_ids(n: int) -> tuple[int, ...]:
    """Always the same, and low enough for any vocabulary."""
    return tuple(random.Random(0).choices(range(10, 1000), k=n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-bin", type=Path, required=True, help="folder of llama-bench and llama-completion")
    mine = f"{shlex.quote(sys.executable)} -m gristmill"
    parser.add_argument("--gristmill", default=mine, help="command [default: this Python's own]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, default=0, help="tokens in the cache before generating")
    parser.add_argument("--kv-type", default="f16", choices=["f16", "f32", "q8_0"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        ids = random_ids(max(args.prompt, args.depth, 1))
        command = tuple(shlex.split(args.gristmill))
        sizes = (args.threads, args.prompt, args.generate, args.depth, args.kv_type)
        job = Job(args.model, args.llama_bin, command, *sizes, ids)
        rows = compare(job, args.rounds)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"compare_llama_cpp: {error}")
    if args.json:
        settings = {"model": str(args.model), "threads": args.threads, "prompt": args.prompt, "rounds": args.rounds}
        settings |= {"generate": args.generate, "depth": args.depth, "kv_type": args.kv_type}
        print(json.dumps({**settings, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(
            f"{args.model.name}: {args.threads} threads, pp{args.prompt}, tg{args.generate} at {args.depth}, "
            f"{args.kv_type} cache, medians of {args.rounds}"
        )
        print(table(rows))


if __name__ == "__main__":
    main()
