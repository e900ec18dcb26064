"""Where each format keeps each weight of the decoder. Names and row orders only; nothing here computes or allocates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Checkpoint, Weight, bad_file
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.types import ModelConfig

NO_HEAD = "%s: has no lm_head.weight: embeddings are the model's; in answers, its token embedding stands in for it"
Order = NDArray[np.int32]
_NO_DATA = np.empty(0, np.uint8)
_ROWS_THAT_TELL = 32


@dataclass(frozen=True, slots=True)
class Names:
    """A format's names; {i} is the layer, {e} an expert where each is a tensor of its own.

    None where the format has no such thing. A bias stands beside its weight.
    """

    embed: str
    norm: str
    head: str
    attn_norm: str
    o: str
    ffn_norm: str
    q: str
    k: str
    v: str
    qkv: str | None  # q, k and v in one
    q_norm: str | None
    k_norm: str | None
    sinks: str | None
    router: str | None
    gate: str
    up: str
    gate_up: str | None  # gate and up in one, row by row in turn
    down: str
    bias: Callable[[str], str]
    paired_rope: bool = False  # q and k rotate neighbours (2 i, 2 i + 1) instead of (i, i + head_dim / 2)
    experts_transposed: bool = False  # float experts are stored [E, in, out]


def _dotted(name: str) -> str:
    return name.removesuffix(".weight") + ".bias"


def _underscored(name: str) -> str:
    return name.removesuffix("_weight").removesuffix(".weight") + (
        "_bias" if name.endswith(("_weight", "_proj")) else ".bias"
    )


_HF_PREFIX = "model."
_HF_LAYER = _HF_PREFIX + "layers.{i}."
_HF = Names(
    embed=_HF_PREFIX + "embed_tokens.weight",
    norm=_HF_PREFIX + "norm.weight",
    head="lm_head.weight",
    attn_norm=_HF_LAYER + "input_layernorm.weight",
    q=_HF_LAYER + "self_attn.q_proj.weight",
    k=_HF_LAYER + "self_attn.k_proj.weight",
    v=_HF_LAYER + "self_attn.v_proj.weight",
    qkv=None,
    o=_HF_LAYER + "self_attn.o_proj.weight",
    q_norm=_HF_LAYER + "self_attn.q_norm.weight",
    k_norm=_HF_LAYER + "self_attn.k_norm.weight",
    sinks=_HF_LAYER + "self_attn.sinks",
    ffn_norm=_HF_LAYER + "post_attention_layernorm.weight",
    router=None,
    gate=_HF_LAYER + "mlp.gate_proj.weight",
    up=_HF_LAYER + "mlp.up_proj.weight",
    gate_up=None,
    down=_HF_LAYER + "mlp.down_proj.weight",
    bias=_underscored,
)
_HF_QWEN3_MOE = replace(
    _HF,
    router=_HF_LAYER + "mlp.gate.weight",
    gate=_HF_LAYER + "mlp.experts.{e}.gate_proj.weight",
    up=_HF_LAYER + "mlp.experts.{e}.up_proj.weight",
    down=_HF_LAYER + "mlp.experts.{e}.down_proj.weight",
)
_HF_GPT_OSS = replace(
    _HF,
    router=_HF_LAYER + "mlp.router.weight",
    gate_up=_HF_LAYER + "mlp.experts.gate_up_proj",
    down=_HF_LAYER + "mlp.experts.down_proj",
    experts_transposed=True,
)
_GGUF = Names(
    embed="token_embd.weight",
    norm="output_norm.weight",
    head="output.weight",
    attn_norm="blk.{i}.attn_norm.weight",
    q="blk.{i}.attn_q.weight",
    k="blk.{i}.attn_k.weight",
    v="blk.{i}.attn_v.weight",
    qkv=None,
    o="blk.{i}.attn_output.weight",
    q_norm="blk.{i}.attn_q_norm.weight",
    k_norm="blk.{i}.attn_k_norm.weight",
    sinks="blk.{i}.attn_sinks.weight",
    ffn_norm="blk.{i}.ffn_norm.weight",
    router=None,
    gate="blk.{i}.ffn_gate.weight",
    up="blk.{i}.ffn_up.weight",
    gate_up=None,
    down="blk.{i}.ffn_down.weight",
    bias=_dotted,
)
_GGUF_LLAMA = replace(_GGUF, paired_rope=True)
_GGUF_QWEN3_MOE = replace(
    _GGUF,
    router="blk.{i}.ffn_gate_inp.weight",
    gate="blk.{i}.ffn_gate_exps.weight",
    up="blk.{i}.ffn_up_exps.weight",
    down="blk.{i}.ffn_down_exps.weight",
)
_GGUF_GPT_OSS = replace(_GGUF_QWEN3_MOE, ffn_norm="blk.{i}.post_attention_norm.weight")
_LLAMA2C = replace(
    _GGUF_LLAMA,
    embed="tok_embeddings.weight",
    norm="norm.weight",
    attn_norm="layers.{i}.attention_norm.weight",
    q="layers.{i}.attention.wq.weight",
    k="layers.{i}.attention.wk.weight",
    v="layers.{i}.attention.wv.weight",
    o="layers.{i}.attention.wo.weight",
    q_norm=None,
    k_norm=None,
    sinks=None,
    ffn_norm="layers.{i}.ffn_norm.weight",
    gate="layers.{i}.feed_forward.w1.weight",
    up="layers.{i}.feed_forward.w3.weight",
    down="layers.{i}.feed_forward.w2.weight",
)
_OPENAI = replace(
    _HF,
    embed="embedding.weight",
    norm="norm.scale",
    head="unembedding.weight",
    attn_norm="block.{i}.attn.norm.scale",
    qkv="block.{i}.attn.qkv.weight",
    o="block.{i}.attn.out.weight",
    q_norm=None,
    k_norm=None,
    sinks="block.{i}.attn.sinks",
    ffn_norm="block.{i}.mlp.norm.scale",
    router="block.{i}.mlp.gate.weight",
    gate_up="block.{i}.mlp.mlp1_weight",
    down="block.{i}.mlp.mlp2_weight",
)


def names_of(checkpoint: Checkpoint, config: ModelConfig) -> Names:
    return names_in(checkpoint.format, config.arch)


def names_in(file_format: str, arch: str) -> Names:
    """The names that a format (see `Checkpoint.format`) has for an architecture."""
    if file_format == "gguf":
        return {"llama": _GGUF_LLAMA, "qwen3moe": _GGUF_QWEN3_MOE, "gpt-oss": _GGUF_GPT_OSS}.get(arch, _GGUF)
    if file_format == "safetensors":
        return {"qwen3moe": _HF_QWEN3_MOE, "gpt-oss": _HF_GPT_OSS}.get(arch, _HF)
    return _OPENAI if file_format == "gpt-oss" else _LLAMA2C


def _stored_names(checkpoint: Checkpoint, config: ModelConfig) -> Names:
    """`names_of`, as they are in this file: transformers' AutoModel saves without the `model.` of AutoModelForCausalLM,
    as models for embeddings mostly are."""
    names = names_of(checkpoint, config)
    if not _is_base_model(checkpoint):
        return names
    values = {field.name: getattr(names, field.name) for field in fields(names)}
    plain: dict[str, Any] = {name: v.removeprefix(_HF_PREFIX) for name, v in values.items() if isinstance(v, str)}
    return replace(names, **plain)


def _is_base_model(checkpoint: Checkpoint) -> bool:
    """Whether AutoModel saved it."""
    there = set(checkpoint.names()) if checkpoint.format == "safetensors" else set()
    return _HF.embed not in there and _HF.embed.removeprefix(_HF_PREFIX) in there


def with_head(checkpoint: Checkpoint, config: ModelConfig) -> ModelConfig:
    """`config`, with the head that the files have, as in transformers. Where it is said to be the embedding and has
    other numbers, it counts; where there is none, as AutoModel saved it, the embedding is: what is for embeddings needs
    none. Who gets a tied head that was not said to be one may log NO_HEAD."""
    if config.tied_head:
        return replace(config, tied_head=not _has_own_head(checkpoint, config))
    if not _is_base_model(checkpoint) or _HF.head in checkpoint.names():
        return config
    return replace(config, tied_head=True)


def _has_own_head(checkpoint: Checkpoint, config: ModelConfig) -> bool:
    """Whether transformers' files have a head beside the embedding and not the same numbers twice, as many have. A few
    rows tell: training changes all of a head's."""
    embed = _HF.embed.removeprefix(_HF_PREFIX) if _is_base_model(checkpoint) else _HF.embed
    if not {embed, _HF.head} <= set(checkpoint.names()):
        return False
    shape, found = (config.vocab_size, config.d_model), []
    for weight in (checkpoint.get(embed), checkpoint.get(_HF.head)):
        if weight.shape != shape:
            return True
        rows = weight.data.reshape(config.vocab_size, -1)[:: -(-config.vocab_size // _ROWS_THAT_TELL)]
        found.append((weight.qtype, rows.tobytes()))
        checkpoint.release(weight)
    return found[0] != found[1]


_WITH_HEAD_NORMS = ("qwen3", "qwen3moe")


@dataclass(frozen=True, slots=True)
class Projection:
    """Rows of a linear layer in the decoder's order: weight [rows, cols] or [E, rows, cols], bias likewise."""

    weight: Weight
    bias: NDArray[np.float32] | None


class Tensors:
    """The decoder's weights by their role, whatever the file calls them; remembers which names it gave out.

    copies  whether weights that files lay in another way are copied; False, for who asks for names, types and shapes:
            such have no numbers
    """

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, copies: bool = True) -> None:
        self.copies = copies
        self._checkpoint = checkpoint
        self._config = config
        self._names = _stored_names(checkpoint, config)
        self._there = set(checkpoint.names())
        self._used: set[str] = set()

    def check_unused(self) -> None:
        """ModelFormatError where no role asked for some: the model is not what its configuration says."""
        unused = sorted(name for name in self._there - self._used if not is_idle(name, self._config.tied_head))
        if unused:
            problem = f"holds {len(unused)} tensors that {self._config.arch} does not have, among them {unused[0]!r}"
            remedy = "the configuration may name the wrong architecture"
            raise bad_file(self._checkpoint.path, "tensors", problem, remedy)

    def vector(self, name: str, n: int, layer: int = 0) -> NDArray[np.float32]:
        """float32 [n], a copy."""
        weight = self._get(name.format(i=layer), (n,))
        values = np.array(dequantize(weight))
        self._checkpoint.release(weight)  # to read it brought the file's pages around it, up to 2 MB, into this process
        return values

    def _of_family(self, archs: tuple[str, ...], name: str | None, n: int, i: int) -> NDArray[np.float32] | None:
        """What `archs` always have, and others do not."""
        if self._config.arch not in archs:
            return None
        assert name is not None, "every format that such a family has names it"
        return self.vector(name, n, i)

    def embed(self) -> Projection:
        return Projection(self._get(self._names.embed, (self._config.vocab_size, self._config.d_model)), None)

    def head(self) -> Projection:
        return Projection(self._get(self._names.head, (self._config.vocab_size, self._config.d_model)), None)

    def norm(self) -> NDArray[np.float32]:
        return self.vector(self._names.norm, self._config.d_model)

    def attn_norm(self, i: int) -> NDArray[np.float32]:
        return self.vector(self._names.attn_norm, self._config.d_model, i)

    def ffn_norm(self, i: int) -> NDArray[np.float32]:
        return self.vector(self._names.ffn_norm, self._config.d_model, i)

    def q_norm(self, i: int) -> NDArray[np.float32] | None:
        return self._of_family(_WITH_HEAD_NORMS, self._names.q_norm, self._config.head_dim, i)

    def k_norm(self, i: int) -> NDArray[np.float32] | None:
        return self._of_family(_WITH_HEAD_NORMS, self._names.k_norm, self._config.head_dim, i)

    def sinks(self, i: int) -> NDArray[np.float32] | None:
        return self._of_family(("gpt-oss",), self._names.sinks, self._config.n_heads, i)

    def qkv(self, i: int) -> list[Projection]:
        """q, k and v, their heads' rows in the order that rotates i with i + head_dim / 2."""
        c, names = self._config, self._names
        n_q, n_kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
        if names.qkv:
            return [self._linear(names.qkv, n_q + 2 * n_kv, c.d_model, i)]
        q, k, v = (
            self._linear(name, n, c.d_model, i) for name, n in ((names.q, n_q), (names.k, n_kv), (names.v, n_kv))
        )
        if names.paired_rope:
            q, k = _take(q, _halves(c.n_heads, c.head_dim)), _take(k, _halves(c.n_kv_heads, c.head_dim))
        return [q, k, v]

    def o(self, i: int) -> Projection:
        return self._linear(self._names.o, self._config.d_model, self._config.n_heads * self._config.head_dim, i)

    def router(self, i: int) -> Projection:
        moe, name = self._config.moe, self._names.router
        assert moe is not None, "models without experts are not asked for it"
        assert name is not None, "every format that such a family has names it"
        return self._linear(name, moe.n_experts, self._config.d_model, i)

    def gate_up(self, i: int) -> list[Projection]:
        c, names = self._config, self._names
        if names.gate_up is None:
            return [self._linear(name, c.d_ff, c.d_model, i, experts=True) for name in (names.gate, names.up)]
        both = self._linear(names.gate_up, 2 * c.d_ff, c.d_model, i, experts=True)
        every_second = np.arange(0, 2 * c.d_ff, 2, dtype=np.int32)
        return [_take(both, every_second), _take(both, every_second + 1)]

    def down(self, i: int) -> Projection:
        return self._linear(self._names.down, self._config.d_model, self._config.d_ff, i, experts=True)

    def _linear(self, name: str, rows: int, cols: int, layer: int, experts: bool = False) -> Projection:
        name = name.replace("{i}", str(layer))
        moe = self._config.moe if experts else None
        outer: tuple[int, ...] = (moe.n_experts,) if moe else ()
        if "{e}" in name:
            return Projection(self._stacked(name, rows, cols), None)
        if moe and self._names.experts_transposed and self._is_float(name):
            weight = self._transposed(self._get(name, (*outer, cols, rows)))
        else:
            weight = self._get(name, (*outer, rows, cols))
        bias_name = self._names.bias(name)
        if bias_name not in self._there:
            return Projection(weight, None)
        return Projection(weight, dequantize(self._get(bias_name, (*outer, rows))))

    def _stacked(self, name: str, rows: int, cols: int) -> Weight:
        """The matrices of all experts, which are tensors of their own, as one, copied."""
        assert self._config.moe is not None, "only experts are named by {e}"
        weights = [self._get(name.replace("{e}", str(e)), (rows, cols)) for e in range(self._config.moe.n_experts)]
        first = weights[0]
        for weight in weights:
            if _kind(weight) != _kind(first):
                problem = f"is {_kind(weight)}, that of another expert {_kind(first)}"
                raise bad_file(self._checkpoint.path, f"tensor {weight.name!r}", problem, "save all in one type")
        if not self.copies:
            return replace(first, name=name, data=_NO_DATA, shape=(len(weights), rows, cols), scales=None)
        scales = None if first.scales is None else np.stack([w.scales for w in weights if w.scales is not None])
        data = np.empty(len(weights) * first.data.nbytes, np.uint8)
        for e, weight in enumerate(weights):
            data[e * first.data.nbytes :][: first.data.nbytes] = weight.data
            self._checkpoint.release(weight)
        return replace(first, name=name, data=data, shape=(len(weights), rows, cols), scales=scales)

    def _transposed(self, weight: Weight) -> Weight:
        """[E, cols, rows] of plain floats as [E, rows, cols], copied."""
        n, cols, rows = weight.shape
        if not self.copies:
            return replace(weight, data=_NO_DATA, shape=(n, rows, cols))
        values = weight.data.reshape(n, cols, rows, weight.qtype.block_bytes)
        data = np.ascontiguousarray(values.transpose(0, 2, 1, 3)).reshape(-1)
        return replace(weight, data=data, shape=(n, rows, cols))

    def _is_float(self, name: str) -> bool:
        return name in self._there and self._checkpoint.get(name).qtype is not QType.MXFP4_SPLIT

    def _get(self, name: str, shape: tuple[int, ...]) -> Weight:
        if name not in self._there:
            raise bad_file(self._checkpoint.path, f"tensor {name!r}", "is missing")
        self._used.add(name)
        weight = self._checkpoint.get(name)
        if weight.shape != shape:
            problem = f"has shape {weight.shape}, the model's configuration asks for {shape}"
            raise bad_file(self._checkpoint.path, f"tensor {name!r}", problem)
        return weight


def _kind(weight: Weight) -> str:
    scales = "" if weight.scales is None else f" with scales {weight.scales.shape}"
    return weight.qtype.label + scales


def is_idle(name: str, tied_head: bool) -> bool:
    """Tensors that some files carry and no engine reads."""
    return name.endswith("rotary_emb.inv_freq") or name == "rope_freqs.weight" or (tied_head and name == _HF.head)


def _halves(n_heads: int, head_dim: int) -> Order:
    """Row order that turns pairs (2 i, 2 i + 1) of each head into (i, i + head_dim / 2)."""
    within = np.arange(head_dim).reshape(-1, 2).T.reshape(-1)
    return (np.arange(n_heads)[:, None] * head_dim + within).reshape(-1).astype(np.int32)


def _take(projection: Projection, order: Order) -> Projection:
    bias = None if projection.bias is None else np.ascontiguousarray(projection.bias[..., order])
    return Projection(projection.weight.take_rows(order), bias)
