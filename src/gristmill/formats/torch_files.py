"""Checkpoints that PyTorch saved: llama2.c's training ones (.pt) and Meta's consolidated.*.pth beside params.json.

Only `gristmill convert` imports this module, and only this one unpickles: torch.load(weights_only=True), which takes
tensors and plain containers and refuses everything else. They appear as a checkpoint in Hugging Face's layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight, bad_file, shown
from gristmill.formats.qtypes import QType
from gristmill.formats.safetensors_header import read_json_file

if TYPE_CHECKING:
    import torch

_MAX_PARAMS_BYTES = 1 << 20
_MAX_SHARDS = 64
_COMPILED = "_orig_mod."  # what torch.compile puts before every name
_NAMES = {
    "tok_embeddings.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
}
_SPLIT_BY_COLUMNS = ("attention.wo.weight", "feed_forward.w2.weight")
_QTYPES = {"torch.float32": QType.F32, "torch.float16": QType.F16, "torch.bfloat16": QType.BF16}
_IDLE = ("rope.freqs", "freqs_cos", "freqs_sin")
_LLAMA2_THETA, _LLAMA3_THETA = 1e4, 5e5
_LLAMA_3_2 = ((2048, 16), (3072, 28))  # width and layers of 1B and 3B


def is_torch_checkpoint(path: Path) -> bool:
    """Whether `path` is, by its name, something to open here: a .pt or .pth, or a folder with Meta's files."""
    if path.is_dir():
        return bool(_shards(path)) and not any(path.glob("*.safetensors"))
    return path.suffix in (".pt", ".pth") and path.is_file()


def open_torch_checkpoint(path: Path) -> TorchCheckpoint:
    """The checkpoint at `path`. ModelFormatError where PyTorch is missing, or the file is none of the two kinds."""
    if path.is_dir() or path.suffix == ".pth":
        folder = path if path.is_dir() else path.parent
        return _open_meta(folder)
    loaded = _load(path)
    state, args = loaded.get("model"), loaded.get("model_args")
    if not isinstance(state, dict) or not isinstance(args, dict):
        raise bad_file(
            path, "file", "has no 'model' and 'model_args'", "give a checkpoint that llama2.c's train.py saved"
        )
    tensors = {name: [tensor] for name, tensor in _tensors_in(path, state).items()}
    return TorchCheckpoint(path, tensors, args, tied=True)


class TorchCheckpoint:
    """Implements `Checkpoint`. Tensors are joined from their shards when they are asked for."""

    format = "safetensors"

    def __init__(
        self, path: Path, tensors: Mapping[str, Sequence[torch.Tensor]], args: Mapping[str, Any], *, tied: bool
    ) -> None:
        self.path = path
        self._tensors = dict(tensors)
        for name, n_dims in (("tok_embeddings.weight", 2), ("norm.weight", 1), ("layers.0.feed_forward.w1.weight", 2)):
            if name not in tensors:
                raise bad_file(path, f"tensor {name!r}", "is missing", "give a Llama checkpoint")
            shape = tuple(tensors[name][0].shape)
            if len(shape) != n_dims:
                raise bad_file(path, f"tensor {name!r}", f"has shape {shape}, must have {n_dims} dimensions")
        if tied:
            self._tensors.pop("output.weight", None)
        self._files = {_hugging_face_name(name): name for name in self._tensors}
        self._heads: dict[str, int] = {}
        self.metadata: Mapping[str, Any] = self._config(args, tied)

    def names(self) -> Iterable[str]:
        return self._files.keys()

    def get(self, name: str) -> Weight:
        """The tensor `name`; q and k have the order of their rows from (2 i, 2 i + 1) to (i, i + head_dim / 2)."""
        meta_name = self._files[name]
        data, qtype, shape = _array(self._joined(meta_name))
        weight = Weight(name, data, qtype, shape)
        for part, n_heads in self._heads.items():
            if part in name and shape[0] == n_heads * self._head_dim:  # others are refused by who asks for it
                return weight.take_rows(_halves(n_heads, self._head_dim))
        return weight

    def release(self, weight: Weight) -> None:
        """PyTorch's memory goes with its tensors."""

    def release_all(self) -> None: ...

    def _joined(self, name: str) -> torch.Tensor:
        import torch

        parts = self._tensors[name]
        if len(parts) == 1 or parts[0].dim() == 1:
            return parts[0]
        return torch.cat(list(parts), dim=self._axis(name))

    def _axis(self, name: str) -> int:
        """Along which dimension shards divide a matrix. Llama 2 divides its embedding by columns, Llama 3 by rows."""
        if name == "tok_embeddings.weight":
            return 0 if self._tensors[name][0].shape[1] == self._tensors["norm.weight"][0].shape[0] else 1
        return 1 if name.endswith(_SPLIT_BY_COLUMNS) else 0

    def _shape(self, name: str) -> tuple[int, ...]:
        parts = self._tensors[name]
        shape = list(parts[0].shape)
        shape[self._axis(name)] *= len(parts)
        return tuple(shape)

    def _config(self, args: Mapping[str, Any], tied: bool) -> dict[str, Any]:
        vocab_size, dim = self._shape("tok_embeddings.weight")
        n_heads = _positive(self.path, args, "n_heads")
        n_kv_heads = _positive(self.path, args, "n_kv_heads", n_heads)
        if dim % n_heads:
            raise bad_file(self.path, "n_heads", f"is {n_heads}, which does not divide the width {dim}")
        theta = _number(self.path, args, "rope_theta", _LLAMA2_THETA)
        self._heads |= {"q_proj": n_heads, "k_proj": n_kv_heads}
        self._head_dim = dim // n_heads
        config: dict[str, Any] = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": vocab_size,
            "hidden_size": dim,
            "intermediate_size": self._shape("layers.0.feed_forward.w1.weight")[0],
            "num_hidden_layers": _positive(self.path, args, "n_layers"),
            "num_attention_heads": n_heads,
            "num_key_value_heads": n_kv_heads,
            "head_dim": self._head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": _number(self.path, args, "norm_eps", 1e-5),
            "rope_theta": theta,
            "tie_word_embeddings": tied or "output.weight" not in self._tensors,
            "max_position_embeddings": _positive(self.path, args, "max_seq_len", _usual_context(theta, args)),
        }
        if args.get("use_scaled_rope"):  # most often without its factor, which Meta's code chooses by the model
            usual = 32.0 if (dim, config["num_hidden_layers"]) in _LLAMA_3_2 else 8.0
            config["rope_scaling"] = {
                "rope_type": "llama3",
                "factor": _number(self.path, args, "rope_scaling_factor", usual),
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            }
        return config


def _usual_context(theta: float, args: Mapping[str, Any]) -> int:
    """params.json does not say it: that of Llama 3.1 and 3.2, Llama 2, Llama 3 or Code Llama."""
    if args.get("use_scaled_rope"):
        return 131072
    return {_LLAMA2_THETA: 4096, _LLAMA3_THETA: 8192}.get(theta, 16384)


def _positive(path: Path, args: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = args.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 28:
        raise bad_file(path, name, f"is {shown(value)}, must be a positive integer")
    return value


def _number(path: Path, args: Mapping[str, Any], name: str, default: float) -> float:
    value = args.get(name) or default
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise bad_file(path, name, f"is {shown(value)}, must be a number") from None


def _open_meta(folder: Path) -> TorchCheckpoint:
    shards = _shards(folder)
    if not shards:
        raise bad_file(
            folder, "folder", "holds no consolidated.*.pth", "give the folder of a model as Meta published it"
        )
    if len(shards) > _MAX_SHARDS:
        raise bad_file(folder, "folder", f"holds {len(shards)} shards, at most {_MAX_SHARDS} are possible")
    args = read_json_file(folder / "params.json", _MAX_PARAMS_BYTES)
    loaded = [_tensors_in(path, _load(path)) for path in shards]
    tensors: dict[str, list[torch.Tensor]] = {}
    for name in loaded[0]:
        parts = [part[name] for part in loaded if name in part]
        if len(parts) < len(loaded) or any(part.shape != parts[0].shape for part in parts):
            raise bad_file(folder, f"tensor {shown(name)}", "is missing in a shard, or has another shape there")
        tensors[name] = parts
    return TorchCheckpoint(folder, tensors, args, tied=False)


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("consolidated.*.pth"))


def _load(path: Path) -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        remedy = "install PyTorch (pip install torch), or give the model as safetensors, GGUF or .bin"
        raise bad_file(path, "file", "is a PyTorch file, and PyTorch is not installed", remedy) from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # many kinds, and none of them is ours
        problem = f"cannot be loaded as plain tensors ({shown(str(error).partition(chr(10))[0])})"
        raise bad_file(path, "file", problem, "only files of tensors and plain values are opened") from None
    if not isinstance(loaded, dict):
        raise bad_file(path, "file", f"holds a {type(loaded).__name__}, not a dictionary of tensors")
    return loaded


def _tensors_in(path: Path, state: Mapping[Any, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a model under Meta's names, without those that nothing reads."""
    import torch

    named = {str(name).removeprefix(_COMPILED): tensor for name, tensor in state.items()}
    tensors = {name: tensor for name, tensor in named.items() if name not in _IDLE}
    for name, tensor in tensors.items():
        where = f"tensor {shown(name)}"
        if not isinstance(tensor, torch.Tensor):
            raise bad_file(path, where, f"is a {type(tensor).__name__}, not a tensor")
        is_plain = str(tensor.dtype) in _QTYPES and tensor.layout == torch.strided
        if not is_plain or tensor.dim() not in (1, 2):
            problem = f"is {tensor.dtype} of shape {tuple(tensor.shape)}, not a matrix of floats"
            raise bad_file(path, where, problem, "quantized checkpoints are not converted")
    return tensors


def _hugging_face_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    if name.startswith("layers.") and name.count(".") >= 3:
        _, layer, part = name.removesuffix(".weight").split(".", 2)
        return f"model.layers.{layer}.{_LAYER_NAMES.get(part, part)}.weight"
    return name


def _array(tensor: torch.Tensor) -> tuple[NDArray[np.uint8], QType, tuple[int, ...]]:
    import torch

    qtype = _QTYPES[str(tensor.dtype)]
    data = tensor.detach().contiguous().view(torch.uint8).numpy().reshape(-1)
    assert data.nbytes == math.prod(tensor.shape) * qtype.block_bytes
    return data, qtype, tuple(tensor.shape)


def _halves(n_heads: int, head_dim: int) -> NDArray[np.int32]:
    within = np.arange(head_dim).reshape(-1, 2).T.reshape(-1)
    return (np.arange(n_heads)[:, None] * head_dim + within).reshape(-1).astype(np.int32)
