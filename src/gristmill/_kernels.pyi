from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

class Packed:
    @property
    def n_bytes(self) -> int: ...

class Linear:
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def n_matrices(self) -> int: ...

class KvLayer:
    @property
    def n_bytes(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    def fill(self, byte: int) -> None: ...

def linear_of(parts: Sequence[Packed], bias: F32 | None) -> Linear: ...

class Ops:
    def __init__(self, n_threads: int, isa: str) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def n_threads(self) -> int: ...
    def pack(
        self,
        label: str,
        data: NDArray[np.uint8],
        n_matrices: int,
        stored_rows: int,
        cols: int,
        scales: NDArray[Any] | None,
        row_order: I32 | None,
    ) -> Packed: ...
    def linear(self, x: F32, w: Linear) -> F32: ...
    def embed(self, w: Linear, tokens: I32) -> F32: ...
    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32: ...
    def add(self, x: F32, z: F32) -> F32: ...
    def swiglu(self, gate_up: F32, limit: float) -> F32: ...
    def kv_layer(self, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str) -> KvLayer: ...
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
    def moe(self, x: F32, router: F32, gate_up: Linear, down: Linear, n_active: int, limit: float) -> F32: ...

def sample(
    logits: F32,
    temperature: F32,
    top_k: I32,
    top_p: F32,
    min_p: F32,
    seeds: NDArray[np.uint64],
    next_positions: NDArray[np.int64],
) -> list[int]: ...
def uniform(seed: int, position: int) -> float: ...
def dequantize(label: str, data: NDArray[np.uint8]) -> F32: ...
