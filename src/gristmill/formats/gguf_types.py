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
    20: QType.IQ4_NL,
    23: QType.IQ4_XS,
    30: QType.BF16,
    39: QType.MXFP4,
}
_OTHERS = {  # id: label, elements a block, bytes a block
    9: ("q8_1", 32, 40),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
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
