"""gristmill beside ik_llama.cpp, llama.cpp's fork with the fastest published CPU kernels, on one GGUF file, in turns.

    python benchmarks/compare_ik_llama.py model.gguf --ik-bin ik_llama.cpp/build/bin --threads 2 --rounds 3

ik_llama.cpp's side is the better of its weights as in the file and repacked when loaded (-rtr), each measure by itself.
Parts: prompt and generate are its llama-bench's pp and tg; batch is its llama-batched-bench's generation; deep is its
llama-sweep-bench at --depth tokens, whose prompts there are pieces of --prompt tokens. gristmill's side is `gristmill
bench model`, as beside llama.cpp. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from compare_llama_cpp import BATCH_DEPTH, BATCH_TOKENS, Job, add_sizes, batch_label, gristmill_batched, gristmill_bench
from side_by_side import Part, Run, as_json, chosen, compare, run, table

PROMPT, GENERATE = "prompt tok/s", "generate tok/s"


def parts(job: Job) -> Mapping[str, tuple[Part, ...]]:
    """All that can be compared, by the name that --parts takes."""
    p, n, deep = job.n_prompt, job.n_generate, job.depth

    def gristmill_deep() -> dict[str, float]:
        found = gristmill_bench(job, f"prompt at {deep} tok/s", p, 0, deep)
        return found | gristmill_bench(job, f"generate at {deep} tok/s", 0, n, deep)

    return {
        "prompt": (Part("prompt", lambda: ik_bench(job, PROMPT, p, 0), lambda: gristmill_bench(job, PROMPT, p, 0, 0)),),
        "generate": (
            Part("generate", lambda: ik_bench(job, GENERATE, 0, n), lambda: gristmill_bench(job, GENERATE, 0, n, 0)),
        ),
        "batch": (Part("batch", lambda: ik_batched(job), lambda: gristmill_batched(job)),),
        "deep": (Part("deep", lambda: ik_deep(job), gristmill_deep),),
    }


def ik_bench(job: Job, label: str, n_prompt: int, n_generate: int) -> dict[str, float]:
    command = [*_ik(job, "llama-bench"), "-r", "1", "-o", "json", "-p", str(n_prompt), "-n", str(n_generate)]
    found = [json.loads(run([*command, "-rtr", repack]).stdout) for repack in ("0", "1")]
    return {label: max(row["avg_ts"] for rows in found for row in rows)}


def ik_batched(job: Job) -> dict[str, float]:
    """Its table: prompt, generated, sequences, cache, then seconds and tokens/s of prompts, of generation."""
    sizes = ["-npp", str(BATCH_DEPTH), "-ntg", str(BATCH_TOKENS), "-npl", ",".join(map(str, job.batches))]
    command = [*_ik(job, "llama-batched-bench"), *sizes]
    command += ["-c", str(max(job.batches) * (BATCH_DEPTH + BATCH_TOKENS) + 64)]
    found: dict[str, float] = {}
    for repack in ([], ["-rtr"]):
        for line in _printed(run([*command, *repack])):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("|") and cells[0].isdigit():
                label = batch_label(int(cells[2]))
                found[label] = max(found.get(label, 0), float(cells[7]))
    if missing := [n for n in job.batches if batch_label(n) not in found]:
        raise RuntimeError(f"llama-batched-bench printed no row of {missing[0]} sequences: {shlex.join(command)}")
    return found


def ik_deep(job: Job) -> dict[str, float]:
    """Its sweep takes pieces of --prompt tokens, one after the other, and generates after each: the one at --depth."""
    command = [*_ik(job, "llama-sweep-bench"), "-ub", str(job.n_prompt), "-n", str(job.n_generate)]
    command += ["-c", str(job.depth + 2 * job.n_prompt), "--output-format", "jsonl"]
    found = []
    for repack in ([], ["-rtr"]):
        rows = [json.loads(line) for line in _printed(run([*command, *repack])) if line.startswith("{")]
        found += [row for row in rows if row["n_kv"] == job.depth]
    if not found:
        raise RuntimeError(f"llama-sweep-bench printed no row of {job.depth} tokens: take a multiple of {job.n_prompt}")
    return {
        f"prompt at {job.depth} tok/s": max(row["speed_pp"] for row in found),
        f"generate at {job.depth} tok/s": max(row["speed_tg"] for row in found),
    }


def _printed(finished: Run) -> list[str]:
    """Its log, where results are among the rest, goes to either."""
    return (finished.stdout + finished.stderr).splitlines()


def _ik(job: Job, program: str) -> tuple[str, ...]:
    """Flash attention, which it is made for, is its default."""
    kv = ("-ctk", job.kv_type, "-ctv", job.kv_type)
    return (str(job.llama_bin / program), "-m", str(job.model), "-t", str(job.threads), *kv)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--ik-bin", type=Path, required=True, help="folder of ik_llama.cpp's programs")
    parser.add_argument("--parts", default="prompt,generate,batch,deep", help="of prompt,generate,batch,deep")
    add_sizes(parser)
    args = parser.parse_args()
    sizes = (args.threads, args.prompt, args.generate, args.depth, args.batch, args.kv_type, 0)
    job = Job(args.model, args.ik_bin, tuple(shlex.split(args.gristmill)), *sizes)
    known = parts(job)
    names = chosen(parser, args.parts, list(known))
    try:
        rows = compare([part for name in names for part in known[name]], args.rounds)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"compare_ik_llama: {error}")
    if args.json:
        settings = {"model": str(args.model), "threads": args.threads, "prompt": args.prompt, "depth": args.depth}
        print(as_json(rows, "ik_llama_cpp", {**settings, "kv_type": args.kv_type, "rounds": args.rounds}))
    else:
        print(f"{args.model.name}: {args.threads} threads, {args.kv_type} cache, medians of {args.rounds}")
        print(table(rows, "ik_llama.cpp"))


if __name__ == "__main__":
    main()
