"""How fast attention and the choice of tokens are on a card, beside what it can copy and what torch reaches.

python benchmarks/gpu_kernels.py --heads 32 --kv-heads 8 --head-dim 128
With TRITON_INTERPRET=1 it only shows that it runs: give it small sizes, and believe no figure.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gristmill.ops.triton.attention import attention
from gristmill.ops.triton.common import INTERPRETED
from gristmill.ops.triton.kv import KvLayer, kv_layer
from gristmill.ops.triton.logprobs import logprobs
from gristmill.ops.triton.sampling import sample
from gristmill.types import Batch

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
KIND = torch.bfloat16


def seconds(run: Callable[[], object], repeats: int = 20) -> float:
    """The median of a recorded graph, so of kernels without Python. Before each run the cache is filled with others."""
    run()  # and so everything is compiled
    if INTERPRETED:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    others = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
    times = []
    for _ in range(repeats):
        others.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return float(np.median(times))


def copied_a_second(n_bytes: int) -> float:
    """Bytes that a large copy on the device reads and writes a second."""
    x, y = (torch.empty(n_bytes, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    return 2 * n_bytes / seconds(lambda: y.copy_(x))


def batch_of(n_sequences: int, before: int, new: int) -> tuple[Batch, int]:
    """Equal sequences with `new` tokens after `before` others, and how many blocks they take."""
    length = before + new
    width = -(-length // 16)
    tables = np.random.default_rng(0).permutation(n_sequences * width).reshape(n_sequences, width).astype(np.int32)

    def there(values: object) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=DEVICE)

    starts, lengths = there([i * new for i in range(n_sequences + 1)]), there([length] * n_sequences)
    none = there([])
    return Batch(none, none, (none,), starts, lengths, (there(tables),), *[none] * 13), tables.size


def sampling_of(n_rows: int, temperature: float, top_k: int, top_p: float) -> Batch:
    def there(value: float, kind: torch.dtype) -> torch.Tensor:
        return torch.full((n_rows,), value, dtype=kind, device=DEVICE)

    none = torch.empty(0, device=DEVICE)
    floats, longs = torch.float32, torch.int64
    chosen_by = there(temperature, floats), there(top_k, torch.int32), there(top_p, floats), there(0, floats)
    return Batch(none, none, (), none, none, (), none, *chosen_by, there(7, longs), there(1, longs), *[none] * 6)


@dataclass(frozen=True, slots=True)
class Heads:
    """H query heads that share G heads of keys, of D numbers each."""

    n: int
    n_kv: int
    dim: int

    def queries(self, n_tokens: int) -> torch.Tensor:
        return torch.randn((n_tokens, self.n * self.dim), device=DEVICE, dtype=KIND)

    def cache(self, n_blocks: int) -> KvLayer:
        layer = kv_layer(n_blocks, self.n_kv, self.dim, KIND, DEVICE)
        for part in layer:
            part.normal_()
        return layer


def attend_seconds(heads: Heads, n_sequences: int, before: int, new: int) -> float:
    batch, n_blocks = batch_of(n_sequences, before, new)
    q, layer, tables = heads.queries(n_sequences * new), heads.cache(n_blocks), batch.block_tables[0]
    return seconds(lambda: attention(q, layer, batch, tables, 0, None))


def torch_seconds(heads: Heads, n: int) -> float:
    q, kv = (torch.randn((1, h, n, heads.dim), device=DEVICE, dtype=KIND) for h in (heads.n, heads.n_kv))
    attend = torch.nn.functional.scaled_dot_product_attention
    return seconds(lambda: attend(q, kv, kv, is_causal=True, enable_gqa=True))


def show_attention(heads: Heads, contexts: list[int], batches: list[int], copy: float) -> None:
    for context in contexts:
        for n in batches:
            t = attend_seconds(heads, n, context - 1, 1)
            rate = 2 * n * context * heads.n_kv * heads.dim * KIND.itemsize / t
            print(f"{n} new tokens at {context}: {t * 1e6:.1f} us, {rate / 1e9:.0f} GB/s, {rate / copy:.0%} of a copy")
    for context in contexts:
        t = attend_seconds(heads, 1, 0, context)
        rate, share = 2 * heads.n * heads.dim * context**2 / t, torch_seconds(heads, context) / t
        print(f"a prompt of {context}: {t * 1e6:.1f} us, {rate / 1e12:.1f} TFLOP/s, {share:.0%} of torch's speed")


def show_choices(n: int, vocab_size: int) -> None:
    logits = 3 * torch.randn((n, vocab_size), device=DEVICE)
    for what in ((0.0, 0, 1.0), (1.0, 0, 1.0), (1.0, 50, 1.0), (1.0, 0, 0.95), (1.0, 50, 0.95)):
        batch = sampling_of(n, *what)
        t = seconds(lambda batch=batch: sample(logits, batch))
        print(f"{n} choices by temperature, top_k, top_p = {what}: {t * 1e6:.1f} us")
    ids = torch.zeros(n, dtype=torch.int32, device=DEVICE)
    t = seconds(lambda: logprobs(logits, ids, 20))
    print(f"{n} rows of log-probabilities, the first 20 of each: {t * 1e6:.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("heads", 32), ("kv-heads", 8), ("head-dim", 128), ("vocabulary", 151936)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--contexts", type=int, nargs="+", default=[1024, 8192, 32768])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--copy-mib", type=int, default=2048)
    args = parser.parse_args()
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as ops/cuda.py has it
    copy = copied_a_second(args.copy_mib << 20)
    print(f"a copy of {args.copy_mib} MiB: {copy / 1e9:.0f} GB/s")
    show_attention(Heads(args.heads, args.kv_heads, args.head_dim), args.contexts, args.batches, copy)
    for n in args.batches:
        show_choices(n, args.vocabulary)


if __name__ == "__main__":
    main()
