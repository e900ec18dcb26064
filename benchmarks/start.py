"""Where the time from a process's start to its first token goes, phase by phase, and how fast weights are packed.

    python benchmarks/start.py model.gguf --rounds 5

Each round is a fresh process; medians. Phases run one after another here; in `gristmill generate`, the last line, the
command as a user runs it, weights share the cores with imports and vocabulary. GB/s are bytes of the file packed a
second, into memory that was never touched. Run it alone, with the page cache warm. Python may keep what it compiles, as
in an installed program.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from queue import SimpleQueue

PHASES = ("interpreter", "imports", "header", "vocabulary", "weights", "cache", "first token", "exit")
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "mxfp4")


def child(model: str, threads: int | None) -> None:
    """Prints the time at which each phase ended, by the clock that all processes share."""
    ends = [time.perf_counter()]
    from gristmill import llm
    from gristmill.tokenizer import gguf_vocab, load  # noqa: F401

    ends.append(time.perf_counter())
    checkpoint = llm.open_checkpoint(llm.Path(model))
    ends.append(time.perf_counter())
    tokenizer = load.load_tokenizer(checkpoint)
    ends.append(time.perf_counter())
    ops = llm.pick_backend("cpu", threads)
    decoder = llm.build(checkpoint, ops)
    ends.append(time.perf_counter())
    context = llm.pick_context(decoder.config, None)
    kv_plan = llm.plan(ops, decoder.config, "f16", context, 1, ops.step_tokens, llm.spare_memory(0))
    engine = llm.Engine(decoder, ops, llm.EngineSettings(context, 1, eos_ids=tokenizer.eos_ids), kv_plan, "f16")
    ends.append(time.perf_counter())
    events: SimpleQueue[object] = SimpleQueue()
    engine.submit(llm.Request((1,), llm.SamplingParams(temperature=0, max_tokens=1)), events.put)
    events.get()
    ends.append(time.perf_counter())
    print(json.dumps(ends), flush=True)


def round_of(model: str, threads: int | None) -> list[float]:
    """Seconds of each phase in one fresh process, which ends as a command does."""
    command = [sys.executable, __file__, model, "--child"]
    command += ["--threads", str(threads)] if threads else []
    start = time.perf_counter()
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment()).stdout
    stop = time.perf_counter()
    times = [start, *json.loads(out), stop]
    return [b - a for a, b in itertools.pairwise(times)]


def command_s(model: str, threads: int | None) -> float:
    command = [
        sys.executable,
        "-m",
        "gristmill",
        "generate",
        "-m",
        model,
        "--prompt-ids",
        "1",
        "-n",
        "1",
        "--temp",
        "0",
    ]
    command += ["--threads", str(threads)] if threads else []
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def environment() -> dict[str, str]:
    """As the command sets it for itself, but that Python may keep what it compiles."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OPENBLAS_NUM_THREADS": "1"}


def pack_speeds(threads: int | None, rounds: int) -> dict[str, float]:
    """GB/s by type: 64 M numbers in four matrices, packed in one run."""
    import numpy as np
    from kernels import random_weight

    from gristmill.formats.qtypes import QType
    from gristmill.ops.cpu import CpuOps

    speeds, rng = {}, np.random.default_rng(0)
    for label in TYPES:
        qtype = next(q for q in QType if q.label == label)
        weight = random_weight(qtype, (16384, 1024), rng)
        times = []
        for _ in range(rounds):
            ops = CpuOps(threads)
            start = time.perf_counter()
            ops.put_all([([weight], None)] * 4)
            times.append(time.perf_counter() - start)
        speeds[label] = 4 * len(weight.data) / statistics.median(times) / 1e9
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-pack", action="store_true", help="without the speeds by type")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.model, args.threads)
        return
    rounds = [round_of(args.model, args.threads) for _ in range(args.rounds)]
    size = os.path.getsize(args.model) / 1e9
    print(f"{os.path.basename(args.model)}, {size:.2f} GB, medians of {args.rounds}")
    for phase, *times in zip(PHASES, *rounds, strict=True):
        speed = f"{size / statistics.median(times):8.1f} GB/s" if phase == "weights" else ""
        print(f"{phase:20}{1e3 * statistics.median(times):8.0f} ms{speed}")
    print(f"{'sum':20}{1e3 * statistics.median(map(sum, rounds)):8.0f} ms")
    whole = statistics.median(command_s(args.model, args.threads) for _ in range(args.rounds))
    print(f"{'gristmill generate':20}{1e3 * whole:8.0f} ms")
    if not args.no_pack:
        for label, speed in pack_speeds(args.threads, args.rounds).items():
            print(f"packing {label:12}{speed:8.1f} GB/s")


if __name__ == "__main__":
    main()
