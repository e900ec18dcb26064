"""Everything to be measured on a machine with a card, each part beside torch's and as a share of what the card can do.

    python benchmarks/gpu.py check
    python benchmarks/gpu.py limits kernels steps served bits --model qwen3-8b --json card.jsonl
    python benchmarks/gpu.py steps served --model qwen3-8b --type int8 --json card.jsonl
    python benchmarks/gpu.py steps --model qwen3-8b --type q4_k_m --no-compile --json card.jsonl
    python benchmarks/gpu.py limits kernels steps served --model qwen3-0.6b --json card.jsonl
    python benchmarks/gpu.py limits kernels steps served --model gpt-oss-20b --type mxfp4 --json card.jsonl

check    texts and logits of small models, and logits of Qwen3-0.6B, beside the processor's: it fails if they differ
limits   a large copy, cuBLAS, launches
kernels  matrices beside cuBLAS, attention beside SDPA, experts, the choice of tokens
steps    tokens of 1, 16 and 64 sequences, prompts of 512 and 8192; torch with and without torch.compile
profile  the kernels that these steps and prompts wait for
served   requests of 512 tokens in and 128 out, 16 and 32 at once, through the scheduler; memory of weights and pool
bits     which bits of logits depend on neighbours and on the cut of a prompt

Medians; run it alone on the card, and memory checks apart, as they take long (graphs need torch's own memory):

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 TRITON_INTERPRET=0 compute-sanitizer --tool memcheck --error-exitcode 1 \\
      python -m pytest tests/ops/test_triton_*.py tests/ops/test_cuda_linear.py tests/ops/test_cuda_moe.py
    TRITON_INTERPRET=0 compute-sanitizer --tool racecheck --error-exitcode 1 \\
      python -m pytest tests/ops/test_triton_*.py tests/ops/test_cuda_linear.py tests/ops/test_cuda_moe.py

Without a card, `TRITON_INTERPRET=1 ... --model qwen3-tiny` with small numbers shows that it runs; figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import gpu_check
import gpu_engine
import gpu_kernels
import torch
from gpu_model import TYPES, random_decoder
from gpu_report import ROUNDS, Report, allocated_bytes
from model_shapes import SHAPES

from gristmill.bench.card import DEVICE, Card
from gristmill.bench.model import Case
from gristmill.models.decoder import Decoder
from gristmill.ops.cuda import CudaOps
from gristmill.ops.triton.common import INTERPRETED

PARTS = ("check", "limits", "kernels", "steps", "profile", "served", "bits")


class Measuring:
    """One model on the card at a time, made where a part needs it."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.shape, self.report = given, SHAPES[given.model], Report(given.json)
        self.ops = CudaOps(dtype=None if INTERPRETED else torch.bfloat16)
        self.failed = False
        self._buffer_bytes = given.buffer_mb << 20

    @cached_property
    def decoder(self) -> Decoder:
        before = allocated_bytes()
        decoder = random_decoder(self.shape, self.given.type, DEVICE)
        gpu_engine.memory(self.shape, self.given.type, decoder, before, self.report)
        return decoder

    @cached_property
    def copy(self) -> float:
        """Bytes a second."""
        return Card(self._buffer_bytes).read(1, ROUNDS).median * 1e9

    def check(self) -> None:
        for name in self.given.check_models:
            self.failed |= not gpu_check.tokens(name, self.given.check_tokens, self.report)
            self.failed |= not gpu_check.logits(name, "bf16", self.given.check_tokens, self.report)
        if self.given.check_large:
            self.failed |= not gpu_check.logits(self.given.check_large, "bf16", 64, self.report)

    def limits(self) -> None:
        limits = asdict(Card(self._buffer_bytes).limits(ROUNDS))
        rates = {
            f"{name}_{unit}": limits.pop(name)["median"]
            for name, unit in (("copy", "gb_per_s"), ("cublas", "gflop_per_s"))
        }
        self.report.say("limits", card=limits.pop("name"), **rates, **limits)

    def kernels(self) -> None:
        gpu_kernels.linears(self.shape, self.copy, self.report)
        if self.shape.n_experts:
            gpu_kernels.experts(self.shape, self.given.type, self.copy, self.report)
        gpu_kernels.attentions(self.shape, self.copy, self.report)
        gpu_kernels.choices(self.shape.vocab_size, self.report)

    def steps(self) -> None:
        given = self.given
        cases = [Case("tg", given.steps, n, given.depth, 1) for n in given.batch]
        cases += [Case("pp", n, 1, 0, 1) for n in given.prompt]
        self._steps(cases)
        del self.__dict__["decoder"]  # room for torch's
        self.tidy()
        for compiled in (False, True)[: 1 + given.compile]:
            gpu_engine.torch_steps(self.shape, cases, compiled, self.report)

    def profile(self) -> None:
        given = self.given
        cases = [Case("tg", 2, n, given.depth, 1) for n in given.batch]
        cases += [Case("pp", n, 1, 0, 1) for n in given.prompt]
        gpu_engine.profile(self.decoder, self.ops, cases, given.kv_type, self.report)

    def served(self) -> None:
        n_prompt, n_output = self.given.served
        prompt = Case("pp", n_prompt, 1, 0, 1)
        tokens = [Case("tg", n_output, n, n_prompt, 1) for n in self.given.at_once]
        rows = self._steps([prompt, *tokens])
        for case in tokens:
            self.tidy()
            offline = gpu_engine.offline_seconds(rows, prompt, case)
            sizes = case.batch, n_prompt, n_output
            gpu_engine.served(self.decoder, self.ops, *sizes, offline, self.given.kv_type, self.report)

    def bits(self) -> None:
        gpu_check.invariance(self.decoder, self.ops, self.given.batch, self.given.bits_prompt, self.report)

    def _steps(self, cases: Sequence[Case]) -> dict[Case, gpu_engine.Row]:
        return gpu_engine.steps(self.decoder, self.ops, cases, self._buffer_bytes, self.given.kv_type, self.report)

    def tidy(self) -> None:
        gc.collect()
        if not INTERPRETED:
            torch.cuda.empty_cache()


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--model", choices=list(SHAPES), default="qwen3-8b")
    parser.add_argument("--type", choices=TYPES, default="bf16", help="of matrices; of experts where there are any")
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--depth", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--prompt", type=int, nargs="+", default=[512, 8192])
    parser.add_argument("--served", type=int, nargs=2, default=[512, 128], help="tokens in and out")
    parser.add_argument("--at-once", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--bits-prompt", type=int, default=513)
    parser.add_argument("--check-models", nargs="*", default=["qwen3-tiny", "qwen2-tiny", "gpt-oss-tiny"])
    parser.add_argument("--check-large", default="qwen3-0.6b", help="'' for none")
    parser.add_argument("--check-tokens", type=int, default=48)
    parser.add_argument("--buffer-mb", type=int, default=4096, help="that are copied")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="torch.compile too")
    parser.add_argument("--json", type=Path, help="a file to which each line is appended")
    return parser.parse_args(given)


def main(argv: Sequence[str]) -> int:
    """1 where a part failed; the others are measured all the same."""
    given = arguments(argv)
    measuring = Measuring(given)
    for part in given.parts:
        run: Callable[[], None] = getattr(measuring, part)
        try:
            run()
        except Exception:
            traceback.print_exc()
            measuring.failed = True
        measuring.tidy()
    return int(measuring.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
