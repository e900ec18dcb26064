"""Sizes of models that are worth training at home, and the config.json of a new one. It knows no tensor.

The table is that of github.com/karpathy/llama2.c, whose models bear these names; 1M stands between its two smallest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NORM_EPS = 1e-5
ROPE_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama's dimensions. vocab_size is what the preset was made for; a model takes its tokenizer's."""

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    vocab_size: int
    context: int
    tied_head: bool = True

    def __post_init__(self) -> None:
        for name in ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff", "vocab_size", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{flag(name)} must be at least 1, not {getattr(self, name)}")
        if self.d_model % self.n_heads or self.d_model // self.n_heads % 2:
            raise ValueError(
                f"--d-model {self.d_model} does not give --n-heads {self.n_heads} heads of an even width: make it a"
                f" multiple of {2 * self.n_heads}"
            )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"--n-heads {self.n_heads} cannot share --n-kv-heads {self.n_kv_heads} evenly: choose a divisor of"
                f" {self.n_heads}"
            )

    @property
    def n_parameters(self) -> int:
        head_dim = self.d_model // self.n_heads
        attention = 2 * self.d_model * head_dim * (self.n_heads + self.n_kv_heads)
        layer = attention + 3 * self.d_model * self.d_ff + 2 * self.d_model
        n_vocabularies = 1 if self.tied_head else 2
        return n_vocabularies * self.vocab_size * self.d_model + self.n_layers * layer + self.d_model


PRESETS = {
    "260K": Shape(64, 5, 8, 4, 172, 512, 512),
    "1M": Shape(128, 5, 4, 2, 352, 1024, 512),
    "15M": Shape(288, 6, 6, 6, 768, 32000, 256),
    "42M": Shape(512, 8, 8, 8, 1376, 32000, 1024),
    "110M": Shape(768, 12, 12, 12, 2048, 32000, 1024),
}


def flag(name: str) -> str:
    """The option that sets a field."""
    return "--ctx" if name == "context" else "--" + name.replace("_", "-")


def usual_d_ff(d_model: int) -> int:
    """8 / 3 d_model, which makes SwiGLU's three matrices as large as two of 4 d_model, up to a multiple of 32."""
    return -(-(8 * d_model // 3) // 32) * 32


def hf_config(shape: Shape, bos_id: int, eos_ids: tuple[int, ...]) -> dict[str, Any]:
    """config.json of a Llama as transformers writes it; rope_theta stands where its versions 4 and 5 look for it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "head_dim": shape.d_model // shape.n_heads,
        "max_position_embeddings": shape.context,
        "hidden_act": "silu",
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": shape.tied_head,
        "bos_token_id": bos_id,
        "eos_token_id": list(eos_ids),
        "dtype": "float32",
    }
