"""Folders of transformers with weights in FP8, in each way that such are published.

blocks   a scale for 128 x 128 numbers, `weight_scale_inv` (Qwen's own, DeepSeek's, transformers')
rows     a scale for each row, `weight_scale` in bfloat16 (compressed-tensors)
tensors  one scale, `weight_scale`, beside those of activations (ModelOpt)
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from oracles.families import edit_config, make, save
from oracles.oracle import Oracle

LARGEST = 448.0
BLOCK = 128
_SAID: dict[str, dict[str, Any]] = {
    "blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
    "rows": {"quant_method": "compressed-tensors", "format": "float-quantized"},
    "tensors": {"quant_method": "modelopt", "quant_algo": "FP8"},
}


def _scales(x: torch.Tensor, how: str) -> torch.Tensor:
    if how == "blocks":
        rows, cols = (-size % BLOCK for size in x.shape)
        blocks = torch.nn.functional.pad(x.abs(), (0, cols, 0, rows)).unfold(0, BLOCK, BLOCK).unfold(1, BLOCK, BLOCK)
        return blocks.amax((2, 3)) / LARGEST
    if how == "rows":
        return (x.abs().amax(1, keepdim=True) / LARGEST).bfloat16()
    return x.abs().max() / LARGEST


def _spread(scales: torch.Tensor, shape: torch.Size, how: str) -> torch.Tensor:
    """A scale for each number."""
    if how == "blocks":
        scales = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: shape[0], : shape[1]]
    return scales.float().expand(shape)


def save_fp8(name: str, folder: Path, how: str) -> tuple[Oracle, Path]:
    """The folder, and another, `folder`-bf16, that holds the very numbers rounded to bfloat16, which the oracle has."""
    plain = folder.with_name(folder.name + "-bf16")
    save(name, plain, dtype=torch.bfloat16)
    shutil.copytree(plain, folder)
    tensors = load_file(plain / "model.safetensors")
    codes, rounded = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for key, x in tensors.items():
        rounded[key] = codes[key] = x
        if not key.endswith("_proj.weight"):
            continue
        scales = _scales(x.float(), how)
        spread = _spread(scales, x.shape, how)
        codes[key] = (x.float() / spread).to(torch.float8_e4m3fn)
        codes[f"{key}_scale_inv" if how == "blocks" else f"{key}_scale"] = scales
        if how == "tensors":
            codes[key.replace(".weight", ".input_scale")] = torch.tensor(0.01)
        rounded[key] = (codes[key].float() * spread).bfloat16()
    save_file(codes, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(rounded, plain / "model.safetensors", metadata={"format": "pt"})
    edit_config(folder, {"quantization_config": _SAID[how]})
    model = make(name)
    model.load_state_dict(_merged(rounded, model.state_dict()))
    return Oracle(folder, model, model.config), plain


def _merged(stored: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of files as a model has them: experts stacked, gate above up, a tied head twice."""
    state = {key: x.float() for key, x in stored.items() if key in wanted}
    for key, like in wanted.items():
        at, _, kind = key.rpartition(".")
        if kind == "gate_up_proj":
            gates, ups = (_experts(stored, at, f"{part}_proj", len(like)) for part in ("gate", "up"))
            state[key] = torch.cat([gates, ups], dim=1)
        elif kind == "down_proj":
            state[key] = _experts(stored, at, kind, len(like))
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    return state


def _experts(stored: dict[str, torch.Tensor], at: str, kind: str, n: int) -> torch.Tensor:
    return torch.stack([stored[f"{at}.{e}.{kind}.weight"].float() for e in range(n)])
