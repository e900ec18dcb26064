from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

class Packed: ...
class Stored: ...

class Linear:
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def n_matrices(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def arithmetic(self) -> str: ...
    @property
    def is_packed(self) -> bool: ...

class KvLayer:
    @property
    def n_bytes(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    def fill(self, byte: int) -> None: ...

class FileChangedError(OSError): ...

def stored(
    label: str,
    data: NDArray[np.uint8],
    n_matrices: int,
    stored_rows: int,
    cols: int,
    scales: NDArray[Any] | None,
    row_order: I32 | None,
    quantize_to: str | None,
    shorter: str | None,
    file: tuple[str, int, int] | None,
) -> Stored: ...
def linear_of(parts: Sequence[Packed], bias: F32 | None) -> Linear: ...

class Tape:
    def __init__(self) -> None: ...
    @property
    def n_calls(self) -> int: ...

class Ops:
    def __init__(self, n_threads: int, isa: str) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def n_threads(self) -> int: ...
    def put(self, weights: Sequence[Stored], lazy: bool) -> list[Packed]: ...
    def pack(self, w: Linear, matrix: int) -> None: ...
    @property
    def packing_s(self) -> float: ...
    def linear(self, w: Linear, x: F32, more: F32 | None, norm: F32 | None, eps: float) -> tuple[F32 | None, F32]: ...
    def embed(self, w: Linear, tokens: I32) -> F32: ...
    def rms_norm(self, x: F32, more: F32 | None, weight: F32, eps: float) -> tuple[F32 | None, F32]: ...
    def add(self, x: F32, z: F32) -> F32: ...
    def gated_linear(
        self, w: Linear, limit: float, x: F32, more: F32 | None, norm: F32 | None, eps: float
    ) -> tuple[F32 | None, F32]: ...
    def kv_layers(
        self, n_layers: int, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str
    ) -> list[KvLayer]: ...
    def kv_block_bytes(self, n_kv_heads: int, head_dim: int, kv_type: str) -> int: ...
    def rope_angles(self, positions: I32, inv_freq: F32, scale: float) -> tuple[F32, F32]: ...
    def store_qkv(
        self,
        qkv: F32,
        q_norm: F32 | None,
        k_norm: F32 | None,
        eps: float,
        cos: F32,
        sin: F32,
        kv: KvLayer,
        slots: I32,
    ) -> F32: ...
    def attention(
        self,
        q: F32,
        kv: KvLayer,
        positions: I32,
        query_start: I32,
        block_tables: I32,
        window: int,
        sinks: F32 | None,
        scale: float,
    ) -> F32: ...
    def take_rows(self, x: F32, rows: I32) -> F32: ...
    @staticmethod
    def advance(
        ids: I32,
        tokens: I32,
        positions: I32,
        seq_lens: I32,
        next_positions: NDArray[np.int64],
        slots: Sequence[I32],
        tables: Sequence[I32],
        begun: Sequence[Sequence[int]],
    ) -> None: ...
    def sample(
        self,
        logits: F32,
        temperature: F32,
        top_k: I32,
        top_p: F32,
        min_p: F32,
        seeds: NDArray[np.uint64],
        positions: NDArray[np.int64],
        penalties: F32,
        listed_start: I32,
        listed_ids: I32,
        listed_counts: I32,
        listed_bias: F32,
        masks: NDArray[np.uint32],
    ) -> I32: ...
    def logprobs(
        self, logits: F32, ids: I32, n_top: int
    ) -> tuple[NDArray[np.float64], I32, I32, NDArray[np.float64]]: ...
    def record(self, tape: Tape | None) -> None: ...
    def replay(self, tape: Tape) -> None: ...
    def share(self, tape: Tape, result: F32) -> F32: ...
    def moe(self, x: F32, router: F32, gate_up: Linear, down: Linear, n_active: int, limit: float) -> F32: ...

class Continuation:
    def __init__(
        self,
        ops: Ops,
        tape: Tape,
        ids: I32,
        tokens: I32,
        positions: I32,
        seq_lens: I32,
        next_positions: NDArray[np.int64],
        slots: Sequence[I32],
        tables: Sequence[I32],
    ) -> None: ...
    def __call__(self, begun: Sequence[Sequence[int]]) -> list[int]: ...

class ReadTest:
    def __init__(self, ops: Ops, n_bytes: int) -> None: ...
    def run(self, ops: Ops) -> float: ...

def measure_peak(ops: Ops, arithmetic: str, seconds: float) -> float: ...
def uniform(seed: int, position: int) -> float: ...
def dequantize(label: str, data: NDArray[np.uint8]) -> F32: ...
def grid_digits(label: str) -> NDArray[np.uint8]: ...
def find_strings(file: NDArray[np.uint8], position: int, max_bytes: int, starts: NDArray[np.int64]) -> int: ...
def quantize_rows(
    ops: Ops,
    label: str,
    data: NDArray[np.uint8],
    cols: int,
    rows: NDArray[np.int64],
    target: str,
    scales: NDArray[Any] | None,
    group: int,
) -> tuple[NDArray[np.uint8], F32, int]: ...
