"""Models of published dimensions with random weights, made on the card: gristmill's decoder, and the same in torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from model_shapes import ModelShape

from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.kv.cache import allocate, windows_of
from gristmill.models.decoder import Decoder, Layer
from gristmill.ops.cuda import CudaOps
from gristmill.ops.interface import BLOCK_SIZE
from gristmill.ops.triton import quantized
from gristmill.ops.triton.quantized import Matrix
from gristmill.types import ModelConfig, MoeConfig, RopeConfig, SamplingParams

KINDS = {"bf16": quantized.FLOAT, "int8": quantized.INT8_ROWS, "q8_0": quantized.Q8_0, "mxfp4": quantized.MXFP4}


def random_matrix(kind: str, n_experts: int, rows: int, cols: int, device: torch.device) -> Matrix:
    """Numbers of about 1 / sqrt(cols) in size."""
    n_groups = -(-cols // 64) * 2
    if kind == "bf16":
        codes = torch.randn((n_experts, rows, cols), device=device, dtype=torch.bfloat16) * cols**-0.5
        return Matrix(quantized.FLOAT.value, codes, None, None, cols)
    if kind == "mxfp4":
        codes = torch.randint(0, 256, (n_experts, rows, n_groups * 16), device=device, dtype=torch.uint8)
        scales = torch.full((n_experts, rows, n_groups), 127 - int(np.log2(cols) / 2) - 2, device=device)
        return Matrix(quantized.MXFP4.value, codes, scales.to(torch.uint8), None, cols)
    codes = torch.randint(-127, 128, (n_experts, rows, cols), device=device, dtype=torch.int8)
    size = (n_experts, rows) if kind == "int8" else (n_experts, rows, cols // 32)
    scales = torch.full(size, cols**-0.5 / 70, device=device, dtype=torch.float32 if kind == "int8" else torch.float16)
    return Matrix(KINDS[kind].value, codes, scales, None, cols)


def matrix_bytes(w: Matrix, share: float = 1.0) -> float:
    """share: of its experts that are read."""
    return share * (w.codes.nbytes + (0 if w.scales is None else w.scales.nbytes))


class OurModel:
    """A decoder on the card with `n` sequences of `depth` tokens each, whose keys and values are whatever was there."""

    def __init__(self, shape: ModelShape, kind: str, ops: CudaOps, n: int, depth: int, n_steps: int) -> None:
        self.ops, self.config, self.depth, self.n = ops, config_of(shape), depth, n
        device = ops.array(np.zeros(1, np.float32)).device
        s, experts = shape, max(1, shape.n_experts)
        dense = "bf16" if s.n_experts else kind

        def matrix(rows: int, cols: int, kind: str = dense, experts: int = 1) -> Matrix:
            return random_matrix(kind, experts, rows, cols, device)

        def ones(size: int) -> torch.Tensor:
            return torch.ones(size, device=device)

        qk = s.arch == "qwen3"
        layers = tuple(
            Layer(
                attn_norm=ones(s.d_model),
                qkv=matrix((s.n_heads + 2 * s.n_kv_heads) * s.head_dim, s.d_model),
                q_norm=ones(s.head_dim) if qk else None,
                k_norm=ones(s.head_dim) if qk else None,
                sinks=ones(s.n_heads) if s.arch == "gpt-oss" else None,
                o=matrix(s.d_model, s.n_heads * s.head_dim),
                ffn_norm=ones(s.d_model),
                router=matrix(s.n_experts, s.d_model) if s.n_experts else None,
                gate_up=matrix(2 * s.d_ff, s.d_model, kind, experts),
                down=matrix(s.d_model, s.d_ff, kind, experts),
            )
            for _ in range(s.n_layers)
        )
        embed = matrix(s.vocab_size, s.d_model, "bf16")
        head = embed if s.tied_head else matrix(s.vocab_size, s.d_model)
        self.decoder = Decoder(self.config, embed, layers, ones(s.d_model), head)
        n_groups, per_sequence = len(windows_of(self.config)), -(-(depth + n_steps + 1) // BLOCK_SIZE)
        cache = allocate(ops, self.config, [n * per_sequence] * n_groups, "f16")
        for layer in cache.layers:
            for part in layer:
                part.normal_()
        self.runner = Runner(self.decoder, ops, cache)
        self.sequences = [
            Sequence(
                i,
                [i % 100] * (depth + 1),
                depth + 1,
                SamplingParams(temperature=0),
                0,
                frozenset(),
                n_steps + 1,
                n_computed=depth,
                block_ids=[list(range(i * per_sequence, (i + 1) * per_sequence))] * n_groups,
            )
            for i in range(n)
        ]

    def bytes_of_a_step(self) -> float:
        """Weights read once (of experts, as many as n tokens choose if each does evenly), keys and values of every
        sequence."""
        c = self.config
        share = 1 - (1 - c.moe.n_active / c.moe.n_experts) ** self.n if c.moe else 1.0
        total = matrix_bytes(self.decoder.head)
        for layer, window in zip(self.decoder.layers, c.windows, strict=True):
            total += matrix_bytes(layer.qkv) + matrix_bytes(layer.o)
            total += matrix_bytes(layer.gate_up, share) + matrix_bytes(layer.down, share)
            seen = min(self.depth, window) if window else self.depth
            total += self.n * seen * c.n_kv_heads * c.head_dim * 2 * 2
        return total

    def start(self) -> None:
        """The first step, which is recorded."""
        self.runner.step(build([Part(s, 1, 1) for s in self.sequences], self.ops))
        self._after()

    def step(self) -> None:
        places = [s.n_computed // BLOCK_SIZE for s in self.sequences if s.n_computed % BLOCK_SIZE == 0]
        begun = [s.block_ids[0][s.n_computed // BLOCK_SIZE] for s in self.sequences if s.n_computed % BLOCK_SIZE == 0]
        n_groups = len(self.sequences[0].block_ids)
        self.runner.go_on(
            [begun] * n_groups,
            max(places, default=-1) + 1,
            lambda: build([Part(s, 1, 1) for s in self.sequences], self.ops),
        )
        self._after()

    def prompt(self, n_tokens: int) -> None:
        """So many tokens at the start of the first sequence."""
        s = self.sequences[0]
        fresh = Sequence(0, [1] * n_tokens, n_tokens, s.params, 0, frozenset(), 1, block_ids=s.block_ids)
        self.runner.step(build([Part(fresh, n_tokens, 1)], self.ops))

    def _after(self) -> None:
        for s in self.sequences:
            s.n_computed += 1
            s.tokens.append(0)


def config_of(s: ModelShape) -> ModelConfig:
    inv_freq = tuple(float(s.rope_theta ** (-2 * i / s.head_dim)) for i in range(s.head_dim // 2))
    windows = tuple(s.window if i % 2 == 0 else 0 for i in range(s.n_layers))
    moe = MoeConfig(s.n_experts, s.n_active) if s.n_experts else None
    return ModelConfig(
        s.arch,
        s.vocab_size,
        s.n_layers,
        s.d_model,
        s.n_heads,
        s.n_kv_heads,
        s.head_dim,
        s.d_ff,
        s.norm_eps,
        RopeConfig(inv_freq),
        windows,
        s.max_context,
        s.tied_head,
        7.0 if s.n_experts else 0.0,
        moe,
    )


def torch_step(shape: ModelShape, n: int, depth: int, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """One token of each of n sequences through a dense model of this shape in bfloat16: ids [n] -> ids [n]. Keys and
    values lie in one piece a sequence, which is easier than pages; nothing is written to them."""
    s, kind = shape, torch.bfloat16

    def weight(rows: int, cols: int) -> torch.Tensor:
        return torch.randn((rows, cols), device=device, dtype=kind) * cols**-0.5

    n_qkv = (s.n_heads + 2 * s.n_kv_heads) * s.head_dim
    layers = [
        (
            weight(n_qkv, s.d_model),
            weight(s.d_model, s.n_heads * s.head_dim),
            weight(2 * s.d_ff, s.d_model),
            weight(s.d_model, s.d_ff),
            torch.randn((2, n, s.n_kv_heads, depth, s.head_dim), device=device, dtype=kind),
        )
        for _ in range(s.n_layers)
    ]
    embed = weight(s.vocab_size, s.d_model)
    head = embed if s.tied_head else weight(s.vocab_size, s.d_model)
    angle = torch.rand(s.head_dim // 2, device=device, dtype=kind)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), eps=s.norm_eps)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()), -1)

    def step(ids: torch.Tensor) -> torch.Tensor:
        x = embed[ids]
        for qkv, o, gate_up, down, (k, v) in layers:
            heads = F.linear(norm(x), qkv).view(n, -1, 1, s.head_dim)
            q = rotated(norm(heads[:, : s.n_heads]))
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            x = x + F.linear(y.reshape(n, -1), o)
            gate, up = F.linear(norm(x), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(norm(x), head).argmax(-1)

    return step
