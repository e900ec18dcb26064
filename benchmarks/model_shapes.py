"""Dimensions of published models, and the tensors that a GGUF file of each holds. It knows nothing of their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """arch is GGUF's name for the family; n_experts 0 means a dense model, window 0 that every layer sees all."""

    arch: str
    vocab_size: int
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    max_context: int
    rope_theta: float
    norm_eps: float
    tied_head: bool
    n_experts: int = 0
    n_active: int = 0
    window: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """shape is outermost first; kind is what its numbers should look like: weight, norm, bias, embedding or scale."""

    name: str
    shape: tuple[int, ...]
    kind: str
    layer: int = -1


SHAPES: Mapping[str, ModelShape] = {
    "qwen3-0.6b": ModelShape("qwen3", 151936, 28, 1024, 3072, 16, 8, 128, 40960, 1e6, 1e-6, True),
    "qwen3-8b": ModelShape("qwen3", 151936, 36, 4096, 12288, 32, 8, 128, 40960, 1e6, 1e-6, False),
    "qwen3-30b-a3b": ModelShape(
        "qwen3moe", 151936, 48, 2048, 768, 32, 4, 128, 40960, 1e6, 1e-6, False, n_experts=128, n_active=8
    ),
    "qwen2-1.5b": ModelShape("qwen2", 151936, 28, 1536, 8960, 12, 2, 128, 131072, 1e4, 1e-6, False),
    "llama2-7b": ModelShape("llama", 32000, 32, 4096, 11008, 32, 32, 128, 4096, 1e4, 1e-5, False),
    "gpt-oss-20b": ModelShape(
        "gpt-oss",
        201088,
        24,
        2880,
        2880,
        64,
        8,
        64,
        131072,
        150000.0,
        1e-5,
        False,
        n_experts=32,
        n_active=4,
        window=128,
    ),
    "qwen3-tiny": ModelShape("qwen3", 1024, 4, 256, 512, 4, 2, 64, 1024, 1e6, 1e-6, True),
    "qwen3moe-tiny": ModelShape(
        "qwen3moe", 1024, 4, 256, 256, 4, 2, 64, 1024, 1e6, 1e-6, False, n_experts=8, n_active=2
    ),
    "qwen2-tiny": ModelShape("qwen2", 1024, 4, 256, 512, 4, 2, 64, 1024, 1e4, 1e-6, False),
    "gpt-oss-tiny": ModelShape(
        "gpt-oss", 1024, 4, 256, 256, 8, 2, 32, 131072, 150000.0, 1e-5, False, n_experts=8, n_active=4, window=128
    ),
}  # the tiny ones are for trying things: nothing measured on them says anything


def tensors(shape: ModelShape) -> Iterator[Tensor]:
    """Every tensor in the order of the file, as llama.cpp's converter names them."""
    s = shape
    yield Tensor("token_embd.weight", (s.vocab_size, s.d_model), "embedding")
    for layer in range(s.n_layers):
        for name, dims, kind in (*_attention(s), *(_experts(s) if s.n_experts else _ffn(s))):
            yield Tensor(f"blk.{layer}.{name}", dims, kind, layer)
    yield Tensor("output_norm.weight", (s.d_model,), "norm")
    if not s.tied_head:
        yield Tensor("output.weight", (s.vocab_size, s.d_model), "weight")


def _attention(s: ModelShape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "attn_norm.weight", (s.d_model,), "norm"
    for part, n_heads in (("q", s.n_heads), ("k", s.n_kv_heads), ("v", s.n_kv_heads)):
        yield f"attn_{part}.weight", (n_heads * s.head_dim, s.d_model), "weight"
        if s.arch in ("qwen2", "gpt-oss"):
            yield f"attn_{part}.bias", (n_heads * s.head_dim,), "bias"
    yield "attn_output.weight", (s.d_model, s.n_heads * s.head_dim), "weight"
    if s.arch in ("qwen3", "qwen3moe"):
        yield "attn_q_norm.weight", (s.head_dim,), "norm"
        yield "attn_k_norm.weight", (s.head_dim,), "norm"
    if s.arch == "gpt-oss":
        yield "attn_output.bias", (s.d_model,), "bias"
        yield "attn_sinks.weight", (s.n_heads,), "bias"


def _ffn(s: ModelShape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "ffn_norm.weight", (s.d_model,), "norm"
    yield "ffn_gate.weight", (s.d_ff, s.d_model), "weight"
    yield "ffn_up.weight", (s.d_ff, s.d_model), "weight"
    yield "ffn_down.weight", (s.d_model, s.d_ff), "weight"


def _experts(s: ModelShape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    gpt_oss = s.arch == "gpt-oss"
    yield f"{'post_attention' if gpt_oss else 'ffn'}_norm.weight", (s.d_model,), "norm"
    matrices = (
        ("ffn_gate_inp", (s.n_experts, s.d_model)),
        ("ffn_gate_exps", (s.n_experts, s.d_ff, s.d_model)),
        ("ffn_up_exps", (s.n_experts, s.d_ff, s.d_model)),
        ("ffn_down_exps", (s.n_experts, s.d_model, s.d_ff)),
    )
    for name, shape in matrices:
        yield f"{name}.weight", shape, "weight"
        if gpt_oss:
            yield f"{name}.bias", shape[:-1], "bias"
