"""How files encode numbers, and as which of that floats may be kept instead."""

from __future__ import annotations

from enum import Enum


class QType(Enum):
    """Number encodings. value = (name, elements a block, bytes a block); GGUF's names, sizes, layouts (ggml-common.h).

    MXFP4_SPLIT  as in gpt-oss safetensors: `data` holds 16 bytes for 32 elements, element 2j in the low and 2j+1 in the
                 high nibble of byte j; `scales` holds one E8M0 byte for each block
    Q8_GROUPS    as in llama2.c v2: `data` holds int8, `scales` one float32 for each group of
                 len(data) / len(scales) consecutive elements of the flattened tensor, as the file stores it
    FP8_GROUPS   as in safetensors of FP8: `data` holds E4M3 (without infinities), `scales` one float32 for each group
                 of len(data) / len(scales) elements of a row, rows as `data` stores them
    INT8_ROWS    in no file, made at load: `data` holds int8, `scales` one float32 for each row, as `data` stores them
    NVFP4        `scales` holds one float32 for each row; a GGUF has one for each matrix, or none
    """

    F32 = ("f32", 1, 4)
    F16 = ("f16", 1, 2)
    BF16 = ("bf16", 1, 2)
    Q4_0 = ("q4_0", 32, 18)
    Q4_1 = ("q4_1", 32, 20)
    Q5_0 = ("q5_0", 32, 22)
    Q5_1 = ("q5_1", 32, 24)
    Q8_0 = ("q8_0", 32, 34)
    Q2_K = ("q2_k", 256, 84)
    Q3_K = ("q3_k", 256, 110)
    Q4_K = ("q4_k", 256, 144)
    Q5_K = ("q5_k", 256, 176)
    Q6_K = ("q6_k", 256, 210)
    IQ1_S = ("iq1_s", 256, 50)
    IQ1_M = ("iq1_m", 256, 56)
    IQ2_XXS = ("iq2_xxs", 256, 66)
    IQ2_XS = ("iq2_xs", 256, 74)
    IQ2_S = ("iq2_s", 256, 82)
    IQ3_XXS = ("iq3_xxs", 256, 98)
    IQ3_S = ("iq3_s", 256, 110)
    IQ4_NL = ("iq4_nl", 32, 18)
    IQ4_XS = ("iq4_xs", 256, 136)
    TQ1_0 = ("tq1_0", 256, 54)
    TQ2_0 = ("tq2_0", 256, 66)
    Q1_0 = ("q1_0", 128, 18)
    Q2_0 = ("q2_0", 64, 18)
    MXFP4 = ("mxfp4", 32, 17)
    NVFP4 = ("nvfp4", 64, 36)
    MXFP4_SPLIT = ("mxfp4_split", 32, 16)
    Q8_GROUPS = ("q8_groups", 1, 1)
    FP8_GROUPS = ("fp8", 1, 1)
    INT8_ROWS = ("int8", 1, 1)

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def block_size(self) -> int:
        return self.value[1]

    @property
    def block_bytes(self) -> int:
        return self.value[2]

    @property
    def is_float(self) -> bool:
        return self in (QType.F32, QType.F16, QType.BF16)

    @property
    def kept_as_float(self) -> bool:
        """Whether backends keep it as floats, FP8 as bfloat16, and may quantize it while it is loaded."""
        return self.is_float or self is QType.FP8_GROUPS

    @property
    def scales_apart(self) -> bool:
        """Whether a Weight of it has `scales`."""
        return self in (QType.NVFP4, QType.MXFP4_SPLIT, QType.Q8_GROUPS, QType.FP8_GROUPS, QType.INT8_ROWS)

    @property
    def kept_bytes(self) -> int:
        """Bytes that a block takes as a CPU keeps it (native/matrix.h)."""
        return _KEPT_BYTES.get(self, self.block_bytes)

    @property
    def row_multiple(self) -> int:
        """Of how many numbers rows are a multiple where a CPU multiplies them as they are; others become Q8_0."""
        return 256 if self in (QType.Q1_0, QType.Q2_0, QType.NVFP4) else 1

    @property
    def alignment(self) -> int:
        """What the first byte's address is a multiple of in every Weight: the widest number inside a block."""
        return 4 if self is QType.F32 else 1 if self.scales_apart or self is QType.MXFP4 else 2


_KEPT_BYTES = {  # scales of these are bytes; codes of IQ and TQ become one for each number, FP8 bfloat16
    QType.Q3_K: 114,
    QType.IQ1_S: 114,
    QType.IQ1_M: 114,
    QType.IQ2_XXS: 114,
    QType.IQ2_XS: 114,
    QType.IQ2_S: 114,
    QType.IQ3_XXS: 138,
    QType.IQ3_S: 138,
    QType.IQ4_XS: 138,
    QType.TQ1_0: 72,
    QType.TQ2_0: 72,
    QType.NVFP4: 37,
    QType.FP8_GROUPS: 2,
}
_TYPES = {"int8": QType.INT8_ROWS, "q8_0": QType.Q8_0, "q4_0": QType.Q4_0, "mxfp4": QType.MXFP4}
QUANTIZE_CHOICES = ("none", *_TYPES)
"""What `quantize_type` knows."""


def quantize_type(name: str | None) -> QType | None:
    """What to quantize dense weights to at load: None for None and 'none'. ValueError for what is not a choice."""
    if name is None or name == "none":
        return None
    if name not in _TYPES:
        problem = "which is no type that weights are quantized to"
        raise ValueError(f"quantize is {name!r}, {problem}; use one of {', '.join(QUANTIZE_CHOICES)}")
    return _TYPES[name]
