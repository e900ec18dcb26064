"""Write a model with random weights and the dimensions of a published one, to measure speed without downloading it.

Numbers repeat after some millions, and so do rows of the vocabulary: dozens of tokens have exactly equal logits, of
which greedy choices take the lowest id here and some other in llama.cpp.

python benchmarks/random_model.py qwen3-0.6b --type q8_0 --vocab vocab.gguf -o qwen3.gguf
python benchmarks/random_model.py qwen3-30b-a3b --layers 16 --type q4_k_m --vocab vocab.gguf -o moe.gguf
python benchmarks/random_model.py gpt-oss-20b --type mxfp4 --vocab o200k_base.tiktoken.gz -o gpt-oss.gguf
python benchmarks/random_model.py llama2c-110m --type q8_0 -o 110m.bin
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import random_llama2c
import vocabularies
from gguf import GGMLQuantizationType as Type
from model_shapes import SHAPES, ModelShape, Tensor, tensors
from numpy.typing import NDArray
from random_blocks import RandomTensors, n_bytes

# The number that llama.cpp writes as general.file_type, which is only a name for people.
_FILE_TYPES: Mapping[str, int] = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q8_0": 7,
    "q5_0": 8,
    "q5_1": 9,
    "q4_k_m": 15,
    "q6_k": 18,
    "iq2_xxs": 19,
    "iq2_xs": 20,
    "iq3_xxs": 23,
    "iq1_s": 24,
    "iq4_nl": 25,
    "iq3_s": 26,
    "iq2_s": 28,
    "iq4_xs": 30,
    "bf16": 32,
    "tq1_0": 36,
    "mxfp4": 38,
    "mxfp4_q8_0": 38,
    "nvfp4": 39,
    "q1_0": 40,
}
_NVFP4_SCALE = 2.0**-12  # what a matrix is multiplied by, so that its blocks have scales in the middle of their range


def type_of(tensor: Tensor, label: str, shape: ModelShape) -> Type:
    """Which type llama.cpp's quantizer gives a tensor of a file of type `label`."""
    name = tensor.name
    if tensor.kind in ("norm", "bias") or "ffn_gate_inp" in name:
        return Type.F32
    if label.startswith("mxfp4"):
        return Type.MXFP4 if "_exps" in name else Type.Q8_0 if label == "mxfp4_q8_0" else Type.BF16
    is_head = name == ("token_embd.weight" if shape.tied_head else "output.weight")
    if is_head and label.startswith(("q4", "q5", "iq", "tq", "nv")):
        return Type.Q6_K
    if label == "q4_k_m":
        generous = ("attn_v", "ffn_down") if _more_bits(tensor.layer, shape.n_layers) else ()
        return Type.Q6_K if any(part in name for part in generous) else Type.Q4_K
    return Type[label.upper()]


def _more_bits(layer: int, n_layers: int) -> bool:
    eighth = n_layers // 8
    return layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2


def data_of(tensor: Tensor, qtype: Type, random: RandomTensors) -> Iterator[NDArray[np.generic]]:
    """Weights that keep a vector's length, norms near 1, small biases: nothing grows to infinity at any depth."""
    if tensor.kind == "scale":
        yield np.full(tensor.shape, _NVFP4_SCALE, np.float32)
    elif tensor.kind == "norm":
        yield random.rng.uniform(0.8, 1.2, tensor.shape).astype(np.float32)
    elif tensor.kind == "bias":
        yield random.rng.normal(0.0, 0.1, tensor.shape).astype(np.float32)
    else:
        std = 0.5 if tensor.kind == "embedding" else tensor.shape[-1] ** -0.5
        yield from random.chunks(qtype, tensor.shape, std / _NVFP4_SCALE if qtype is Type.NVFP4 else std)


def write_gguf(
    shape: ModelShape,
    label: str,
    path: Path,
    vocabulary: vocabularies.Vocabulary | None,
    seed: int,
    say: Callable[[str], None],
    f16_of_f32: bool = False,
) -> None:
    """Stream the file to `path`. ValueError when a tensor's rows don't fit the type, or the disk has no room."""
    plan = []
    for tensor in tensors(shape):
        plan.append((tensor, type_of(tensor, label, shape)))
        if plan[-1][1] is Type.NVFP4:
            name, n_matrices = tensor.name.replace(".weight", ".scale"), math.prod(tensor.shape[:-2])
            plan.append((replace(tensor, name=name, shape=(n_matrices,), kind="scale"), Type.F32))
    total = sum(n_bytes(qtype, tensor.shape) for tensor, qtype in plan)
    check_room(path, total)
    writer = gguf.GGUFWriter(path, shape.arch)
    add_metadata(writer, shape, label)
    if vocabulary is not None:
        vocabulary.write(writer, shape.vocab_size)
    for tensor, qtype in plan:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), n_bytes(qtype, tensor.shape), qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None, "the header has been written, so the one file is open"
    random, file = RandomTensors(np.random.default_rng(seed), f16_of_f32), writer.fout[0]
    writer.write_padding(file, file.tell())
    for done, (tensor, qtype) in enumerate(plan, start=1):
        for piece in data_of(tensor, qtype, random):
            file.write(np.ascontiguousarray(piece).data)
        writer.write_padding(file, n_bytes(qtype, tensor.shape))
        say(f"{done} of {len(plan)} tensors, {file.tell() / 1e9:.2f} of {total / 1e9:.2f} GB")
    writer.close()


def add_metadata(writer: gguf.GGUFWriter, shape: ModelShape, label: str) -> None:
    s = shape
    writer.add_name("random weights")
    writer.add_file_type(_FILE_TYPES[label])
    writer.add_block_count(s.n_layers)
    writer.add_context_length(s.max_context)
    writer.add_embedding_length(s.d_model)
    writer.add_feed_forward_length(s.d_ff)
    writer.add_head_count(s.n_heads)
    writer.add_head_count_kv(s.n_kv_heads)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_rope_freq_base(s.rope_theta)
    writer.add_layer_norm_rms_eps(s.norm_eps)
    if s.arch == "llama":
        writer.add_vocab_size(s.vocab_size)
        writer.add_rope_dimension_count(s.head_dim)
    if s.n_experts:
        writer.add_expert_count(s.n_experts)
        writer.add_expert_used_count(s.n_active)
        writer.add_expert_feed_forward_length(s.d_ff)
    if s.arch == "gpt-oss":
        writer.add_sliding_window(s.window)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(32.0)
        writer.add_rope_scaling_orig_ctx_len(4096)
        writer.add_rope_scaling_yarn_beta_fast(32.0)
        writer.add_rope_scaling_yarn_beta_slow(1.0)


def check_room(path: Path, n_bytes_needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < n_bytes_needed + (1 << 30):
        raise ValueError(f"{path.parent} has {free / 1e9:.1f} GB free, {path.name} needs {n_bytes_needed / 1e9:.1f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[*SHAPES, *random_llama2c.SIZES])
    parser.add_argument("--type", default="q8_0", choices=_FILE_TYPES, help="mxfp4: experts so, all else bf16")
    parser.add_argument("--vocab", type=Path, help="a .gguf or .tiktoken[.gz] file to take the vocabulary from")
    parser.add_argument("--f16-of-f32", action="store_true", help="F16 of numbers that are not BF16's")
    parser.add_argument("--layers", type=int, help="fewer than the published model has, where memory is short")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    start, part = time.perf_counter(), args.output.with_name(args.output.name + ".part")

    def say(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    try:
        if args.model in random_llama2c.SIZES:
            random_llama2c.write(args.model, args.type, part, args.seed)
        else:
            vocabulary = vocabularies.read(args.vocab) if args.vocab else None
            shape = SHAPES[args.model]
            shape = replace(shape, n_layers=args.layers or shape.n_layers)
            write_gguf(shape, args.type, part, vocabulary, args.seed, say, args.f16_of_f32)
        os.replace(part, args.output)
    except (ValueError, OSError) as error:
        sys.exit(f"random_model: {error}")
    finally:
        part.unlink(missing_ok=True)
    size, seconds = args.output.stat().st_size, time.perf_counter() - start
    print(f"{args.output}: {args.model} {args.type}, {size / 1e9:.2f} GB in {seconds:.1f} s")


if __name__ == "__main__":
    main()
