"""ggml's numbering of tensor types, with the sizes of those that gristmill can measure but not compute."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.formats.qtypes import QType

_QTYPES = {
    0: QType.F32,
    1: QType.F16,
    2: QType.Q4_0,
    3: QType.Q4_1,
    6: QType.Q5_0,
    7: QType.Q5_1,
    8: QType.Q8_0,
    10: QType.Q2_K,
    11: QType.Q3_K,
    12: QType.Q4_K,
    13: QType.Q5_K,
    14: QType.Q6_K,
    16: QType.IQ2_XXS,
    17: QType.IQ2_XS,
    18: QType.IQ3_XXS,
    19: QType.IQ1_S,
    20: QType.IQ4_NL,
    21: QType.IQ3_S,
    22: QType.IQ2_S,
    23: QType.IQ4_XS,
    29: QType.IQ1_M,
    30: QType.BF16,
    34: QType.TQ1_0,
    35: QType.TQ2_0,
    39: QType.MXFP4,
    40: QType.NVFP4,
    41: QType.Q1_0,
    42: QType.Q2_0,
}
_OTHERS = {  # id: label, elements a block, bytes a block
    9: ("q8_1", 32, 40),
    15: ("q8_k", 256, 292),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    31: ("q4_0_4_4", 32, 18),  # rows in turn, which llama.cpp reads no more
    32: ("q4_0_4_8", 32, 18),
    33: ("q4_0_8_8", 32, 18),
    36: ("iq4_nl_4_4", 32, 18),
    37: ("iq4_nl_4_8", 32, 18),
    38: ("iq4_nl_8_8", 32, 18),
}


@dataclass(frozen=True, slots=True)
class GgmlType:
    """A tensor type of GGUF; qtype is None where gristmill cannot compute with it."""

    label: str
    block_size: int
    block_bytes: int
    qtype: QType | None


def ggml_type(type_id: int) -> GgmlType | None:
    """The type with ggml's number `type_id`, None when there is no such type."""
    qtype = _QTYPES.get(type_id)
    if qtype is not None:
        return GgmlType(qtype.label, qtype.block_size, qtype.block_bytes, qtype)
    return GgmlType(*_OTHERS[type_id], None) if type_id in _OTHERS else None


def ggml_type_id(qtype: QType) -> int | None:
    """ggml's number for `qtype`, None for the encodings that GGUF does not have."""
    return next((type_id for type_id, candidate in _QTYPES.items() if candidate is qtype), None)
