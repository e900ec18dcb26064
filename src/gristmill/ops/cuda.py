"""The operations on a GPU: Triton's kernels on memory, streams and graphs of torch's.

What a matrix multiplies is bfloat16, or float32 where all matrices are that; what it gives, and what layers add up in,
is float32.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gristmill.formats.checkpoint import Weight
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.ops.cpu import default_threads
from gristmill.ops.deferred import Sum
from gristmill.ops.interface import BLOCK_SIZE, STEP_TOKENS, Arrays, Begun, Stack
from gristmill.ops.triton import (
    advance,
    attention,
    embedding,
    kv,
    linear,
    logprobs,
    moe,
    norm,
    quantized,
    rope,
    sampling,
)
from gristmill.ops.triton.common import INTERPRETED
from gristmill.ops.triton.quantized import Matrix
from gristmill.ops.triton.quantized_layout import matrix_of, requantized
from gristmill.ops.triton.replay import Continuation, Recorder
from gristmill.ops.triton.staging import Staging, copied
from gristmill.types import Batch, RopeConfig

F32 = NDArray[np.float32]

KV_TYPES = {"f16": torch.float16, "f32": torch.float32}
_RESERVED = 2 << 20  # bytes for each token of a step: activations, logits if all are asked for, recorded steps
_ROOMY = 30 << 30  # bytes of a card that can spare that for steps of 2,048 tokens
_LEAST_CAPABILITY = (8, 0)  # of cards that multiply bfloat16


class CudaOps:
    """Implements `interface.Ops`. Under TRITON_INTERPRET=1 everything runs on the processor: slow, for tests.

    memory_fraction  of the card's memory that weights, cache and all else may take
    n_threads        that quantize weights while loading; None: as many as CpuOps would take
    dtype            of what matrices multiply; None: float32 under the interpreter or where all matrices are that,
                     otherwise bfloat16
    device           where memory lies; None: on the card, under the interpreter on the processor
    Raises ValueError where there is no card, or one that is too old. Whatever takes memory raises MemoryError where the
    card has too little.
    """

    name = "cuda"
    least_blocks = 2 if INTERPRETED else 64  # 1,024 positions: recording takes long here, and wide tables cost nothing
    batch_sizes = (1, 2, 4, *range(8, 65, 8), *range(80, 129, 16), *range(160, 257, 32))
    runs_ahead = True
    needs_warming = not INTERPRETED

    def __init__(
        self,
        memory_fraction: float = 0.9,
        n_threads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> None:
        if not 0 < memory_fraction <= 1:
            raise ValueError(f"gpu_memory_fraction must be above 0 and at most 1, not {memory_fraction}")
        if device is None and not INTERPRETED and not torch.cuda.is_available():
            raise ValueError("device is 'cuda', and torch finds no CUDA card here: use device cpu")
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # products and sums in one rounding; said, or it warns
        self._memory_fraction = memory_fraction
        self._device = device or torch.device("cpu" if INTERPRETED else "cuda")
        self._on_card = self._device.type == "cuda"
        roomy = False
        if self._on_card:
            card = torch.cuda.get_device_properties(self._device)
            if (card.major, card.minor) < _LEAST_CAPABILITY:
                raise ValueError(
                    f"device is 'cuda', and {card.name} has compute capability {card.major}.{card.minor}: kernels need"
                    " 8.0 and more, as cards have since 2020 (A100, RTX 30); use device cpu"
                )
            roomy = card.total_memory > _ROOMY
        self.step_tokens = self.prompt_tokens = 2048 if roomy else STEP_TOKENS
        self._dtype = dtype or torch.float32
        self._follows_weights = dtype is None and not INTERPRETED
        self._staging: Staging | None = None  # while weights are loaded
        self._quantizer = RowQuantizer(n_threads or default_threads())
        self._inv_freq: dict[RopeConfig, Tensor] = {}
        self._recorder = Recorder(self._device)

    # services

    def put(self, weights: Sequence[Weight], bias: F32 | None = None) -> Matrix:
        with self._room_for("the weights"):
            if self._staging is None and self._on_card:
                self._staging = Staging(self._device)
            matrix = matrix_of(weights, bias, self._staging or copied, self._quantizer)
        if self._follows_weights and matrix.codes.dtype != torch.float32:
            self._dtype = torch.bfloat16
        return matrix

    def put_all(self, stacks: Sequence[Stack]) -> list[Matrix]:
        return [self.put(weights, bias) for weights, bias in stacks]

    def finish_put(self) -> None:
        self._staging = None

    def put_vector(self, values: F32) -> Tensor:
        return self.array(np.ascontiguousarray(values, np.float32))

    def requantized(self, weights: Sequence[Weight]) -> list[Weight]:
        return requantized(weights)

    def array(self, values: NDArray[Any]) -> Tensor:
        """Unsigned numbers become signed ones of the same bits. Returns before they are there; what follows waits."""
        if values.dtype.kind == "u":
            values = values.view(f"i{values.dtype.itemsize}")
        tensor = torch.tensor(values)
        if self._on_card and values.size:
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)

    def get(self, array: Tensor | Sum[Tensor]) -> NDArray[Any]:
        array = _total(array)
        values: NDArray[Any] = (array.float() if array.dtype is torch.bfloat16 else array).cpu().numpy()
        return values

    def write(self, array: Tensor, values: Tensor) -> None:
        array.copy_(values)

    def kv_layers(self, n_layers: int, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str) -> list[kv.KvLayer]:
        """ValueError for a type that attention does not read here."""
        dtype = _kv_dtype(kv_type)
        with self._room_for("the key-value cache"):
            return [kv.kv_layer(n_blocks, n_kv_heads, head_dim, dtype, self._device) for _ in range(n_layers)]

    def kv_block_bytes(self, n_kv_heads: int, head_dim: int, kv_type: str) -> int:
        """ValueError for a type that attention does not read here."""
        return BLOCK_SIZE * n_kv_heads * 2 * head_dim * _kv_dtype(kv_type).itemsize

    def spare_memory(self) -> int:
        """Bytes that keys and values may take, of what is free now."""
        if not self._on_card:
            return 1 << 28
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return max(0, int(total * self._memory_fraction) - (total - free) - _RESERVED * self.step_tokens)

    def capture(self, step: Callable[[], Arrays]) -> tuple[Arrays, Callable[[], None]]:
        with self._room_for("a step"):
            return self._recorder.capture(step)

    def continuation(self, batch: Batch, ids: Tensor, again: Callable[[], None]) -> Continuation:
        return Continuation(batch, ids, again)

    @contextmanager
    def _room_for(self, what: str) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            free, total = (n / 2**30 for n in torch.cuda.mem_get_info())
            raise MemoryError(
                f"the card has no room for {what}: {free:.1f} of its {total:.1f} GiB are free. Take a smaller or"
                " quantized model, a smaller context or kv_budget, or device cpu; or end what else is on the card"
            ) from None

    # operations

    def embed(self, table: Matrix, tokens: Tensor) -> Tensor:
        return quantized.rows(table, tokens)

    def linear(self, x: Tensor, w: Matrix) -> Tensor:
        return linear.linear(x, w)

    def rms_norm(self, x: Tensor | Sum[Tensor], weight: Tensor, eps: float) -> Tensor:
        if isinstance(x, Tensor):
            return norm.rms_norm(x, weight, eps, self._dtype)
        if x.total is not None:
            return norm.rms_norm(x.total, weight, eps, self._dtype)
        total, normed = norm.add_rms_norm(x.x, x.y, weight, eps, self._dtype)
        x.is_now(total)
        return normed

    def add(self, x: Tensor | Sum[Tensor], y: Tensor | Sum[Tensor]) -> Sum[Tensor]:
        return Sum(_total(x), _total(y))

    def rope_angles(self, positions: Tensor, rope_config: RopeConfig) -> tuple[Tensor, Tensor]:
        if rope_config not in self._inv_freq:
            self._inv_freq[rope_config] = self.array(np.array(rope_config.inv_freq, np.float32))
        return rope.rope_angles(positions, self._inv_freq[rope_config], rope_config.scale)

    def store_qkv(
        self,
        qkv: Tensor,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        angles: tuple[Tensor, Tensor],
        kv_layer: kv.KvLayer,
        slots: Tensor,
    ) -> Tensor:
        return kv.store_qkv(qkv, q_norm, k_norm, eps, angles, kv_layer, slots)

    def attention(
        self,
        q: Tensor,
        kv_layer: kv.KvLayer,
        batch: Batch,
        block_tables: Tensor,
        window: int,
        sinks: Tensor | None,
    ) -> Tensor:
        return attention.attention(q, kv_layer, batch, block_tables, window, sinks, self._dtype)

    def gated_linear(self, x: Tensor, w: Matrix, limit: float) -> Tensor:
        return linear.gated_linear(x, w, limit, self._dtype)

    def moe(self, x: Tensor, router: Tensor, gate_up: Matrix, down: Matrix, n_active: int, limit: float) -> Tensor:
        return moe.moe(x, router, gate_up, down, n_active, limit, self._dtype)

    def take_rows(self, x: Tensor | Sum[Tensor], rows: Tensor) -> Tensor:
        return embedding.take_rows(_total(x), rows)

    def sample(self, logits: Tensor, batch: Batch) -> Tensor:
        if not len(logits):
            return torch.empty(0, dtype=torch.int32, device=self._device)
        return sampling.sample(logits, batch)

    def advance(self, batch: Batch, ids: Tensor, begun: Begun) -> None:
        advance.advance(batch, ids, begun)

    def logprobs(self, logits: Tensor, ids: Tensor, n_top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return logprobs.logprobs(logits, ids, n_top)


def _total(x: Tensor | Sum[Tensor]) -> Tensor:
    if isinstance(x, Tensor):
        return x
    return x.is_now(norm.add(x.x, x.y)) if x.total is None else x.total


def _kv_dtype(kv_type: str) -> torch.dtype:
    if kv_type not in KV_TYPES:
        raise ValueError(f"kv_type {kv_type!r} is not there on cuda: use {' or '.join(KV_TYPES)}")
    return KV_TYPES[kv_type]
