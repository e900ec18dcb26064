"""The operations on this machine's processor, through the C++ core: threads, and kernels for its instruction set."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from gristmill import _kernels
from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.mapped import place_of
from gristmill.formats.qtypes import QType
from gristmill.ops.deferred import Normed, Sum
from gristmill.ops.interface import STEP_TOKENS, Arrays, Begun, Stack
from gristmill.types import Batch, RopeConfig

Array = NDArray[Any]
F32 = NDArray[np.float32]
Rows = F32 | Sum[F32] | Normed[F32]
_Native = Callable[[F32, F32 | None, Any, float], tuple[F32 | None, F32]]
"""Of x, what is added to it, a norm's weight and its eps: (the sum, what becomes of its norm)."""

N_EXACT = 1 << 15
N_AS_STORED = 1 << 16
_SHORTER = {QType.F32: "f32_24", QType.F16: "bf16_12", QType.BF16: "bf16_12", QType.FP8_GROUPS: "bf16_12"}


class CpuOps:
    """Implements `interface.Ops`.

    n_threads  None: `default_threads`
    isa        auto, amx, avx512bf16, avx512, avxvnni, avx2, neon or portable; None: what GRISTMILL_ISA says, or auto
    n_exact    matrices of blocked types with up to so many elements are kept as float32, and floats of that size are
               not quantized: too small to gain speed from int8 activations, and the models that have such matrices
               lose the most by them
    n_as_stored  matrices of floats with up to so many elements are read as they are; larger ones are kept in fewer bits
               a number, where nearly all of their numbers allow that: memory is what they wait for. Bfloat16 loses
               nothing by its 12 bits; float32 is rounded to 24, by at most a 2^23rd of its row's largest number, less
               than its sums lose. Float16 that was made of bfloat16, as most published files are, is kept and
               multiplied as that
    lazy       matrices are left in the files that they are mapped from, and packed when they are multiplied for the
               second time: results are the same, the first of them comes sooner. Large ones of float32, which must be
               rounded first, do not wait. The files must not change meanwhile
    """

    name = "cpu"
    least_blocks = 1
    step_tokens = STEP_TOKENS
    batch_sizes: tuple[int, ...] = ()
    runs_ahead = False
    needs_warming = False

    def __init__(
        self,
        n_threads: int | None = None,
        isa: str | None = None,
        n_exact: int = N_EXACT,
        n_as_stored: int = N_AS_STORED,
        lazy: bool = False,
    ) -> None:
        if n_threads is not None and (not isinstance(n_threads, SupportsIndex) or not 1 <= n_threads <= 1024):
            raise ValueError(f"threads must be between 1 and 1024, not {n_threads!r}")
        self._n_exact = n_exact
        self._n_as_stored = n_as_stored
        isa = isa or os.environ.get("GRISTMILL_ISA") or "auto"
        self._native = _kernels.Ops(n_threads or default_threads(), isa)
        self.prompt_tokens = _prompt_tokens(self.isa, self.n_threads)
        self._lazy = lazy
        self._waiting: list[_kernels.Linear] = []

    @property
    def isa(self) -> str:
        return self._native.isa

    @property
    def n_threads(self) -> int:
        return self._native.n_threads

    def put(self, weights: Sequence[Weight], bias: F32 | None = None) -> _kernels.Linear:
        return self.put_all([(weights, bias)])[0]

    def put_all(self, stacks: Sequence[Stack]) -> list[_kernels.Linear]:
        parts = iter(self._native.put([self._stored(w) for weights, _ in stacks for w in weights], self._lazy))
        linears = [
            _kernels.linear_of(
                [next(parts) for _ in weights],
                None if bias is None else np.ascontiguousarray(bias, np.float32).reshape(-1),
            )
            for weights, bias in stacks
        ]
        self._waiting += [w for w in linears if not w.is_packed]
        return linears

    @property
    def packing_s(self) -> float:
        """Seconds that products have waited for weights to be packed."""
        return self._native.packing_s

    def pack_waiting(self, stop: Callable[[], bool]) -> None:
        """Pack what still lies in its file, a matrix at a time, until stop() says so. MemoryError: no room for it."""
        while self._waiting:
            w = self._waiting[-1]
            for matrix in range(w.n_matrices):
                if stop():
                    return
                self._native.pack(w, matrix)
            self._waiting.pop()

    def _stored(self, weight: Weight) -> _kernels.Stored:
        if self._requantizes(weight):
            weight = replace(_as_float32(weight), quantize_to=QType.Q8_0)
        elif not self._has_kernel(weight):
            weight = _as_float32(weight)
        *experts, rows, cols = weight.shape
        n_matrices = experts[0] if experts else 1
        stored_rows = rows
        if weight.row_order is not None:
            block = weight.qtype.block_size
            stored_rows = len(weight.data) // weight.qtype.block_bytes * block // (n_matrices * cols)
        scales = None if weight.scales is None else np.ascontiguousarray(weight.scales).reshape(-1)
        target = weight.quantize_to.label if weight.quantize_to and rows * cols > self._n_exact else None
        return _kernels.stored(
            weight.qtype.label,
            weight.data,
            n_matrices,
            stored_rows,
            cols,
            scales,
            weight.row_order,
            target,
            self._shorter(weight, rows * cols),
            place_of(weight.data),
        )

    def _shorter(self, weight: Weight, n_elements: int) -> str | None:
        """What its numbers are kept as if they fit it: in fewer bits, float32 rounded to 24, the others as they are."""
        if n_elements <= self._n_as_stored:
            return None
        return _SHORTER.get(weight.qtype)

    def _has_kernel(self, weight: Weight) -> bool:
        """Whether the weight is packed as it is rather than as float32."""
        if weight.qtype.kept_as_float:
            return True
        if weight.qtype is QType.Q8_GROUPS and not _groups_fit(weight):
            return False
        return weight.shape[-1] % 32 == 0 and weight.shape[-2] * weight.shape[-1] > self._n_exact

    def finish_put(self) -> None: ...

    def put_vector(self, values: F32) -> F32:
        return np.ascontiguousarray(values, np.float32)

    def array(self, values: Array) -> Array:
        return values

    def get(self, array: Array | Sum[F32] | Normed[F32]) -> Array:
        if isinstance(array, Normed):
            if array.values is None:
                array.values = self._through(array, self._native.rms_norm)
            return array.values
        if isinstance(array, Sum):
            return array.is_now(self._native.add(array.x, array.y)) if array.total is None else array.total
        return array

    def _through(self, normed: Normed[F32], call: _Native) -> F32:
        """What the call makes of the rows' norm. On its way it takes the sum that they are, if no one has."""
        x = normed.x
        if not isinstance(x, Sum) or x.total is not None:
            return call(self.get(x), None, normed.weight, normed.eps)[1]
        total, result = call(x.x, x.y, normed.weight, normed.eps)
        assert total is not None
        x.is_now(total)
        return result

    def _product(self, x: Rows, w: _kernels.Linear, call: _Native) -> F32:
        """Rows that it rounds are normalized on the way; those that it reads as they are, before."""
        if isinstance(x, Normed) and x.values is None and w.arithmetic != "f32":
            return self._through(x, call)
        return call(self.get(x), None, None, 0.0)[1]

    def kv_layers(
        self, n_layers: int, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str
    ) -> list[_kernels.KvLayer]:
        return self._native.kv_layers(n_layers, n_blocks, n_kv_heads, head_dim, kv_type)

    def kv_block_bytes(self, n_kv_heads: int, head_dim: int, kv_type: str) -> int:
        return self._native.kv_block_bytes(n_kv_heads, head_dim, kv_type)

    def write(self, array: Array, values: Array) -> None:
        np.copyto(array, values, casting="no")

    def capture(self, step: Callable[[], Arrays]) -> tuple[Arrays, Callable[[], None]]:
        tape = _kernels.Tape()
        self._native.record(tape)
        try:
            results = tuple(map(self.get, step()))
        finally:
            self._native.record(None)
        lasting = tuple(self._native.share(tape, r) if r.dtype == np.float32 else r for r in results)
        return lasting, partial(self._native.replay, tape)

    def continuation(self, batch: Batch, ids: Array, again: Callable[[], None]) -> Callable[[Begun], list[int]]:
        assert isinstance(again, partial)
        (tape,) = again.args
        state = (batch.tokens, batch.positions, batch.seq_lens, batch.next_positions, batch.slots, batch.block_tables)
        return _kernels.Continuation(self._native, tape, ids, *state)

    def requantized(self, weights: Sequence[Weight]) -> list[Weight]:
        return [weight for weight in weights if self._requantizes(weight)]

    def _requantizes(self, weight: Weight) -> bool:
        return self._has_kernel(weight) and weight.shape[-1] % weight.qtype.row_multiple != 0

    def embed(self, table: _kernels.Linear, tokens: Array) -> F32:
        return self._native.embed(table, tokens)

    def linear(self, x: Rows, w: _kernels.Linear) -> F32:
        return self._product(x, w, partial(self._native.linear, w))

    def rms_norm(self, x: F32 | Sum[F32], weight: F32, eps: float) -> Normed[F32]:
        return Normed(x, weight, eps)

    def add(self, x: F32 | Sum[F32], y: F32) -> Sum[F32]:
        return Sum(self.get(x), self.get(y))

    def rope_angles(self, positions: Array, rope: RopeConfig) -> tuple[F32, F32]:
        return self._native.rope_angles(positions, np.array(rope.inv_freq, np.float32), rope.scale)

    def store_qkv(
        self,
        qkv: F32,
        q_norm: F32 | None,
        k_norm: F32 | None,
        eps: float,
        angles: tuple[F32, F32],
        kv_layer: _kernels.KvLayer,
        slots: Array,
    ) -> F32:
        return self._native.store_qkv(qkv, q_norm, k_norm, eps, *angles, kv_layer, slots)

    def attention(
        self, q: F32, kv_layer: _kernels.KvLayer, batch: Batch, block_tables: Array, window: int, sinks: F32 | None
    ) -> F32:
        scale = kv_layer.head_dim**-0.5
        return self._native.attention(
            q, kv_layer, batch.positions, batch.query_start, block_tables, window, sinks, scale
        )

    def gated_linear(self, x: Rows, w: _kernels.Linear, limit: float) -> F32:
        return self._product(x, w, partial(self._native.gated_linear, w, limit))

    def moe(
        self,
        x: Rows,
        router: F32,
        gate_up: _kernels.Linear,
        down: _kernels.Linear,
        n_active: int,
        limit: float,
    ) -> F32:
        return self._native.moe(self.get(x), router, gate_up, down, n_active, limit)

    def take_rows(self, x: F32 | Sum[F32], rows: Array) -> F32:
        return self._native.take_rows(self.get(x), rows)

    def sample(self, logits: F32, batch: Batch) -> Array:
        return self._native.sample(
            logits,
            batch.temperature,
            batch.top_k,
            batch.top_p,
            batch.min_p,
            batch.seeds,
            batch.next_positions,
            batch.penalties,
            batch.listed_start,
            batch.listed_ids,
            batch.listed_counts,
            batch.listed_bias,
            batch.masks,
        )

    def advance(self, batch: Batch, ids: Array, begun: Begun) -> None:
        self._native.advance(
            ids,
            batch.tokens,
            batch.positions,
            batch.seq_lens,
            batch.next_positions,
            batch.slots,
            batch.block_tables,
            begun,
        )

    def logprobs(self, logits: F32, ids: Array, n_top: int) -> tuple[Array, Array, Array, Array]:
        return self._native.logprobs(logits, ids, n_top)


def _prompt_tokens(isa: str, n_threads: int) -> int:
    """So few that what a layer makes of them stays in the caches, but as many as each thread's tiles want, and so many
    that weights come from memory while they are multiplied: in AMX's tiles that takes more."""
    return STEP_TOKENS if isa == "amx" else min(STEP_TOKENS, max(128, 64 * n_threads))


def default_threads() -> int:
    """min(cores this process may run on, the container's CPU quota rounded up, physical cores)."""
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    limits += [n for n in (_cgroup_quota(), _physical_cores()) if n]
    return max(1, min(limits))


def _cgroup_quota() -> int:
    """Whole cores of the control group's quota, 0 where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return 0 if quota == "max" else -(-int(quota) // int(period))
    except (OSError, ValueError):
        pass
    try:
        quota_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return -(-quota_us // period_us) if quota_us > 0 else 0
    except (OSError, ValueError):
        return 0


def _physical_cores() -> int:
    """Cores, hyper-threads counted once, 0 where the system does not say."""
    try:
        siblings = {
            p.read_text() for p in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
        }
        return len(siblings)
    except OSError:
        return 0


def _groups_fit(weight: Weight) -> bool:
    assert weight.scales is not None
    return weight.shape[-1] % 32 == 0 and len(weight.data) // weight.scales.size % 32 == 0


def _as_float32(weight: Weight) -> Weight:
    values = np.ascontiguousarray(dequantize(weight))
    return Weight(weight.name, values.view(np.uint8).reshape(-1), QType.F32, weight.shape)
