"""gristmill beside llama2.c on its own checkpoints, in turns: tokens a second of generation and of prompts.

    python benchmarks/random_model.py llama2c-110m --type f32 -o 110m.bin
    python benchmarks/random_model.py llama2c-110m --type q8_0 -o 110m-q8.bin
    python benchmarks/compare_llama2c.py 110m.bin 110m-q8.bin --llama2c DIR --threads 2 --rounds 5

DIR holds llama2.c's `run`, `runq` and `tokenizer.bin`. Build them with -Ofast -fopenmp -march=native, which is what it
recommends for speed and what alone is fair. Files of version 0 go to `run`, of version 2 to `runq`. llama2.c computes
a prompt token by token; both are given one that fills most of the model's context. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from side_by_side import Part, as_json, bench_model, compare, own_command, run, speed, table

MAGIC = 0x616B3432
GREEDY = ("-t", "0")


@dataclass(frozen=True, slots=True)
class Job:
    """One checkpoint, the program of llama2.c that reads it, and how many tokens each test has."""

    model: Path
    program: Path
    gristmill: tuple[str, ...]
    threads: int
    n_prompt: int
    n_generate: int


def job_of(model: Path, folder: Path, gristmill: tuple[str, ...], threads: int, n_generate: int) -> Job:
    """Sizes that fit the checkpoint's context. ValueError for a file that llama2.c does not read."""
    with model.open("rb") as file:
        header = file.read(36)
    if len(header) < 36:
        raise ValueError(f"{model}: too short for a llama2.c checkpoint")
    magic, version = struct.unpack_from("<Ii", header)
    if magic == MAGIC and version != 2:
        raise ValueError(f"{model}: llama2.c's run reads version 0 and runq version 2, not {version}")
    quantized = magic == MAGIC
    max_context = struct.unpack_from("<i", header, 8 + 24 if quantized else 24)[0]
    if not 16 <= max_context <= 1 << 20:
        raise ValueError(f"{model}: a context of {max_context} tokens; is this a llama2.c checkpoint?")
    n_prompt = min(512, max_context - 16)
    return Job(
        model, folder / ("runq" if quantized else "run"), gristmill, threads, n_prompt, min(n_generate, n_prompt)
    )


def parts(job: Job) -> tuple[Part, Part]:
    generate, prompt = (f"{job.model.name} {what} tok/s" for what in ("generate", "prompt"))
    return (
        Part(
            generate,
            lambda: {generate: llama2c(job, job.n_generate, "")},
            lambda: speed(generate, ours(job, 0, job.n_generate)),
        ),
        Part(
            prompt,
            lambda: {prompt: llama2c(job, job.n_prompt, text(job))},
            lambda: speed(prompt, ours(job, job.n_prompt, 0)),
        ),
    )


def llama2c(job: Job, steps: int, prompt: str) -> float:
    """Tokens a second that it says it achieved: of all steps but the first."""
    command = [str(job.program), str(job.model), "-z", str(job.program.parent / "tokenizer.bin"), *GREEDY]
    finished = run([*command, "-n", str(steps), "-i", prompt], {"OMP_NUM_THREADS": str(job.threads)})
    found = re.search(r"achieved tok/s: ([\d.]+)", finished.stderr)
    if found is None:
        raise RuntimeError(f"{shlex.join(command)} said no speed; it may have ended at its first token")
    return float(found.group(1))


def ours(job: Job, n_prompt: int, n_generate: int) -> dict[str, float]:
    sizes = ("-p", n_prompt, "-n", n_generate, "-b", 1, "-d", 0, "-t", job.threads, "-r", 1)
    (row,) = bench_model(job.gristmill, "-m", job.model, *sizes, "--device", "cpu")
    return row


def text(job: Job) -> str:
    """A prompt of more tokens than are computed, so that none is sampled: single letters are at least one each."""
    letters = random.Random(0).choices("bcdfghjklmnpqrstvwxz", k=2 * job.n_prompt)
    return " ".join(letters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--llama2c", type=Path, required=True, help="folder of run, runq and tokenizer.bin")
    parser.add_argument("--gristmill", default=own_command(), help="command [default: this Python's own]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", "--generate", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        command = tuple(shlex.split(args.gristmill))
        jobs = [job_of(model, args.llama2c, command, args.threads, args.generate) for model in args.models]
        rows = compare([part for job in jobs for part in parts(job)], args.rounds)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"compare_llama2c: {error}")
    if args.json:
        print(as_json(rows, "llama2c", {"threads": args.threads, "rounds": args.rounds}))
    else:
        print(f"{args.threads} threads, medians of {args.rounds}")
        print(table(rows, "llama2.c"))


if __name__ == "__main__":
    main()
