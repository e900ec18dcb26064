"""On a machine with a card: what it can do at best, and how near kernels and models come to that, beside torch.

    python benchmarks/gpu.py limits
    python benchmarks/gpu.py linear --model qwen3-8b
    python benchmarks/gpu.py attention --model qwen3-8b
    python benchmarks/gpu.py model --model qwen3-8b --type bf16 --batch 1 16 64 --depth 1024 --compile

Medians. Kernels are timed inside of CUDA graphs, over weights too many for the card's cache. Run it alone on the card.
Where there is none, `TRITON_INTERPRET=1 ... --model qwen3-tiny` shows that it runs, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from gpu_model import OurModel, random_matrix, torch_step
from model_shapes import SHAPES, ModelShape

from gristmill.ops.cuda import CudaOps
from gristmill.ops.interface import BLOCK_SIZE
from gristmill.ops.triton.attention import attention
from gristmill.ops.triton.common import INTERPRETED
from gristmill.ops.triton.kv import kv_layer
from gristmill.ops.triton.linear import linear
from gristmill.types import Batch

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
CACHE_BYTES = 1 << 18 if INTERPRETED else 256 << 20
"""More than what is found in the cache again."""

ROUNDS = 2 if INTERPRETED else 20


def seconds(runs: list[Callable[[], object]]) -> float:
    """Of one run, where all are done one after another, as a CUDA graph."""

    def all_runs() -> None:
        for run in runs:
            run()

    all_runs()  # compiles
    if INTERPRETED:
        return _median(all_runs) / len(runs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_runs()
    return _median(graph.replay) / len(runs)


def _median(run: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS + 1):
        _wait()
        start = time.perf_counter()
        run()
        _wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _wait() -> None:
    if not INTERPRETED:
        torch.cuda.synchronize()


def copy_speed() -> float:
    """Bytes read and written in a second by a large copy on the device."""
    n = CACHE_BYTES * 8
    a, b = (torch.empty(n, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    return 2 * n / seconds([lambda: b.copy_(a)])


def limits() -> None:
    print(f"device copy              {copy_speed() / 1e12:8.3f} TB/s")
    n = 128 if INTERPRETED else 8192
    a, b = (torch.randn((n, n), device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    print(f"cuBLAS bf16 {n}^3       {2 * n**3 / seconds([lambda: a @ b]) / 1e12:8.1f} TFLOP/s")
    x = torch.zeros(1, device=DEVICE)
    print(f"launch inside of a graph {seconds([lambda: x.add_(1)] * 1000) * 1e6:8.2f} us")


def linears(shape: ModelShape) -> None:
    """Each matrix of the model in each type beside cuBLAS in bf16, as shares of a copy's speed, and in TFLOP/s."""
    copied = copy_speed()
    matrices = {
        "qkv": ((shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim, shape.d_model),
        "o": (shape.d_model, shape.n_heads * shape.head_dim),
        "gate_up": (2 * shape.d_ff, shape.d_model),
        "down": (shape.d_model, shape.d_ff),
    }
    print(f"{'matrix':8} {'type':6} {'tokens':>6} {'us':>9} {'of copy':>8} {'TFLOP/s':>8}")
    for name, (rows, cols) in matrices.items():
        for n_tokens in (1, 16, 64, 512, 4096)[: 3 if INTERPRETED else None]:
            x = torch.randn((n_tokens, cols), device=DEVICE, dtype=torch.bfloat16)
            n_copies = max(1, CACHE_BYTES // (2 * rows * cols))
            weights = [torch.randn((rows, cols), device=DEVICE, dtype=torch.bfloat16) for _ in range(n_copies)]
            rows_of = [("cuBLAS", 2.0 * rows * cols, [lambda w=w, x=x: F.linear(x, w) for w in weights])]
            for kind in ("bf16", "int8", "q8_0", "mxfp4"):
                ws = [random_matrix(kind, 1, rows, cols, DEVICE) for _ in range(n_copies)]
                rows_of.append((kind, float(ws[0].codes.nbytes), [lambda w=w, x=x: linear(x, w) for w in ws]))
            for kind, n_bytes, runs in rows_of:
                took, flop = seconds(runs), 2.0 * rows * cols * n_tokens
                share = n_bytes / took / copied
                print(f"{name:8} {kind:6} {n_tokens:6} {took * 1e6:9.1f} {share:8.1%} {flop / took / 1e12:8.1f}")


def attentions(shape: ModelShape) -> None:
    """Single tokens over a cache as shares of a copy's speed, and prompts in TFLOP/s, beside torch's SDPA."""
    copied = copy_speed()
    s, kind = shape, torch.float32 if INTERPRETED else torch.bfloat16
    cases = [(1, 4096, 1), (16, 1024, 1), (64, 1024, 1), (1, 0, 512), (1, 0, 4096), (4, 1024, 512)]
    print(f"{'sequences':>9} {'depth':>6} {'new':>5} {'us':>9} {'SDPA us':>9} {'of copy':>8} {'TFLOP/s':>8}")
    for n, depth, new in [(2, 40, 1), (1, 0, 40)] if INTERPRETED else cases:
        n_blocks = -(-(depth + new) // BLOCK_SIZE)
        table = torch.arange(n * n_blocks, dtype=torch.int32, device=DEVICE).reshape(n, n_blocks)
        lens = torch.full((n,), depth + new, dtype=torch.int32, device=DEVICE)
        starts = torch.arange(0, n * new + 1, new, dtype=torch.int32, device=DEVICE)
        batch = Batch(None, None, (), starts, lens, (table,), *[None] * 13)
        n_bytes = 2 * 2 * n * (depth + new) * s.n_kv_heads * s.head_dim
        n_layers = max(1, CACHE_BYTES // n_bytes)
        layers = [kv_layer(n * n_blocks, s.n_kv_heads, s.head_dim, kind, DEVICE) for _ in range(n_layers)]
        for layer in layers:
            for part in layer:
                part.normal_()
        q = torch.randn((n * new, s.n_heads * s.head_dim), device=DEVICE, dtype=kind)
        took = seconds([lambda la=la, q=q, b=batch, t=table: attention(q, la, b, t, 0, None) for la in layers])
        heads = torch.randn((n, s.n_heads, new, s.head_dim), device=DEVICE, dtype=kind)
        k = torch.randn((n, s.n_kv_heads, depth + new, s.head_dim), device=DEVICE, dtype=kind)
        whole = new > 1 and depth == 0  # SDPA's causal mask begins at the first key
        peer = seconds(
            [lambda q=heads, k=k, c=whole: F.scaled_dot_product_attention(q, k, k, is_causal=c, enable_gqa=True)]
        )
        flop = 4.0 * n * s.n_heads * s.head_dim * sum(range(depth + 1, depth + new + 1))
        share = n_bytes / took / copied
        print(f"{n:9} {depth:6} {new:5} {took * 1e6:9.1f} {peer * 1e6:9.1f} {share:8.1%} {flop / took / 1e12:8.1f}")


def models(name: str, kind: str, batches: list[int], depth: int, n_steps: int, compiled: bool) -> None:
    """Steps of one token a sequence through the engine's own runner, ids on the card; prompts; the same in torch."""
    shape, copied, ops = SHAPES[name], copy_speed(), CudaOps(dtype=None if INTERPRETED else torch.bfloat16)
    for n in batches:
        model = OurModel(shape, kind, ops, n, depth, n_steps)
        model.start()
        times = []
        for _ in range(n_steps - 1):
            _wait()
            start = time.perf_counter()
            model.step()
            times.append(time.perf_counter() - start)
        took = statistics.median(times)
        share = model.bytes_of_a_step() / took / copied
        speed = f"{took * 1e3:8.3f} ms a step, {n / took:9.1f} tok/s, {share:.1%} of copy"
        print(f"{name} {kind} batch {n:3} depth {depth}: {speed}")
        if n == 1:
            for n_tokens in (64, 512):
                if n_tokens <= depth:
                    took = _median(lambda m=model, t=n_tokens: m.prompt(t))
                    print(f"{name} {kind} prompt of {n_tokens}: {took * 1e3:8.3f} ms, {n_tokens / took:9.1f} tok/s")
        del model
        if not shape.n_experts:
            step = torch_step(shape, n, depth, DEVICE)
            run = torch.compile(step) if compiled else step
            ids = torch.zeros(n, dtype=torch.int64, device=DEVICE)
            took = seconds([lambda run=run, ids=ids: run(ids)])
            how = "compiled, " if compiled else ""
            print(
                f"{name} torch bf16, {how}in a graph, batch {n:3}: {took * 1e3:8.3f} ms a step, {n / took:9.1f} tok/s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["limits", "linear", "attention", "model"])
    parser.add_argument("--model", choices=list(SHAPES), default="qwen3-8b")
    parser.add_argument("--type", choices=["bf16", "int8", "q8_0", "mxfp4"], default="bf16")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--depth", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--compile", action="store_true", help="torch.compile for torch's part")
    given = parser.parse_args()
    with torch.inference_mode():
        if given.what == "limits":
            limits()
        elif given.what == "linear":
            linears(SHAPES[given.model])
        elif given.what == "attention":
            attentions(SHAPES[given.model])
        else:
            models(given.model, given.type, given.batch, given.depth, given.steps, given.compile)


if __name__ == "__main__":
    np.random.seed(0)
    main()
