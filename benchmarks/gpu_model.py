"""Models of published dimensions with random weights, made on the card without a file, and what they should weigh."""

from __future__ import annotations

import math

import torch
from model_shapes import ModelShape, Tensor, tensors

from gristmill.models.decoder import Decoder, Layer
from gristmill.ops.triton import quantized
from gristmill.ops.triton.quantized import Matrix
from gristmill.types import ModelConfig, MoeConfig, RopeConfig

KINDS = {
    "bf16": quantized.FLOAT,
    "int8": quantized.INT8_ROWS,
    "q8_0": quantized.Q8_0,
    "mxfp4": quantized.MXFP4,
    "q4_k": quantized.Q4_K,
    "q6_k": quantized.SIX_BITS,
}
TYPES = (*KINDS, "q4_k_m")
"""Of models: q4_k_m is q4_k, but q6_k where `llama-quantize` has that in files of this name: in values and
down-projections of some layers, and in the vocabulary."""


def random_matrix(
    kind: str, rows: int, cols: int, device: torch.device, n_experts: int = 1, biased: bool = False
) -> Matrix:
    """Numbers of about 1 / sqrt(cols) in size; biases of 0."""
    bias = torch.zeros((n_experts, rows), device=device) if biased else None
    if kind == "bf16":
        codes = torch.randn((n_experts, rows, cols), device=device, dtype=torch.bfloat16) * cols**-0.5
        return Matrix(quantized.FLOAT.value, codes, None, bias, cols)
    if kind == "mxfp4":
        n_groups = -(-cols // 64) * 2
        codes = torch.randint(0, 256, (n_experts, rows, n_groups * 16), device=device, dtype=torch.uint8)
        exponent = 127 - int(math.log2(cols) / 2) - 2
        scales = torch.full((n_experts, rows, n_groups), exponent, device=device, dtype=torch.uint8)
        return Matrix(quantized.MXFP4.value, codes, scales, bias, cols)
    if kind in ("q4_k", "q6_k"):
        n_bytes, n_words, middle = (128, 5, 8) if kind == "q4_k" else (192, 9, 32)
        codes = torch.randint(0, 256, (n_experts, rows, cols // 256 * n_bytes), device=device, dtype=torch.uint8)
        halves = torch.tensor([1, middle], device=device) * cols**-0.5 / 40 / middle
        words = torch.full((n_experts, rows, cols // 256, n_words), 40 * 0x01010101, device=device, dtype=torch.int32)
        words[..., 0] = halves.to(torch.float16).view(torch.int32)
        return Matrix(KINDS[kind].value, codes, words.flatten(-2), bias, cols)
    codes = torch.randint(-127, 128, (n_experts, rows, cols), device=device, dtype=torch.int8)
    size = (n_experts, rows) if kind == "int8" else (n_experts, rows, cols // 32)
    scales = torch.full(size, cols**-0.5 / 70, device=device, dtype=torch.float32 if kind == "int8" else torch.float16)
    return Matrix(KINDS[kind].value, codes, scales, bias, cols)


def random_decoder(shape: ModelShape, kind: str, device: torch.device) -> Decoder:
    """kind: of all matrices but the embedding; of a model with experts, of these alone. The others are bf16."""
    s, gpt_oss, biased = shape, shape.arch == "gpt-oss", shape.arch in ("qwen2", "gpt-oss")
    experts, is_moe = max(1, shape.n_experts), shape.n_experts > 0

    def ones(size: int) -> torch.Tensor:
        return torch.ones(size, device=device)

    def of(part: str, i: int = 0) -> str:
        return _of_part(part, i, kind, s)

    def layer(i: int) -> Layer:
        return Layer(
            attn_norm=ones(s.d_model),
            qkv=random_matrix(
                of("qkv", i), (s.n_heads + 2 * s.n_kv_heads) * s.head_dim, s.d_model, device, biased=biased
            ),
            q_norm=ones(s.head_dim) if s.arch in ("qwen3", "qwen3moe") else None,
            k_norm=ones(s.head_dim) if s.arch in ("qwen3", "qwen3moe") else None,
            sinks=ones(s.n_heads) if gpt_oss else None,
            o=random_matrix(of("o"), s.d_model, s.n_heads * s.head_dim, device, biased=gpt_oss),
            ffn_norm=ones(s.d_model),
            router=random_matrix(of("router"), s.n_experts, s.d_model, device, biased=gpt_oss) if is_moe else None,
            gate_up=random_matrix(of("gate_up"), 2 * s.d_ff, s.d_model, device, experts, gpt_oss),
            down=random_matrix(of("down", i), s.d_model, s.d_ff, device, experts, gpt_oss),
        )

    embed = random_matrix("bf16", s.vocab_size, s.d_model, device)
    head = embed if s.tied_head else random_matrix(of("head"), s.vocab_size, s.d_model, device)
    return Decoder(config_of(s), embed, tuple(layer(i) for i in range(s.n_layers)), ones(s.d_model), head)


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
        7.0 if s.arch == "gpt-oss" else 0.0,
        moe,
    )


def weight_bytes(shape: ModelShape, kind: str) -> int:
    """What all tensors of a file of this model take as `random_decoder` has them."""
    return sum(_bytes_of(tensor, shape, kind) for tensor in tensors(shape))


def _bytes_of(tensor: Tensor, shape: ModelShape, kind: str) -> int:
    *outer, cols = tensor.shape
    n = math.prod(tensor.shape)
    if tensor.kind in ("norm", "bias"):
        return 4 * n
    if tensor.name == "token_embd.weight":
        return 2 * n
    match _of_part(_PARTS[tensor.name.rsplit(".", 2)[-2]], tensor.layer, kind, shape):
        case "bf16":
            return 2 * n
        case "int8":
            return n + 4 * math.prod(outer)
        case "q8_0":
            return n + n // 16
        case "q4_k":
            return n // 256 * 148
        case "q6_k":
            return n // 256 * 228
        case _:
            return math.prod(outer) * -(-cols // 64) * 34


_PARTS = {
    "attn_q": "qkv",
    "attn_k": "qkv",
    "attn_v": "qkv",
    "attn_output": "o",
    "ffn_gate_inp": "router",
    **{f"ffn_{name}{experts}": "gate_up" for name in ("gate", "up") for experts in ("", "_exps")},
    "ffn_down": "down",
    "ffn_down_exps": "down",
    "output": "head",
}
"""Where a decoder has what a file calls so."""


def _of_part(part: str, layer: int, kind: str, s: ModelShape) -> str:
    """Which of KINDS a matrix is, of a model of one of TYPES."""
    if s.n_experts and part not in ("gate_up", "down"):
        return "bf16"
    if kind != "q4_k_m":
        return kind
    eighth = s.n_layers // 8
    more = layer < eighth or layer >= s.n_layers * 7 // 8 or (layer - eighth) % 3 == 2
    return "q6_k" if part == "head" or (more and part in ("qkv", "down")) else "q4_k"
