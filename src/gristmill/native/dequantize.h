// Blocks as model files store them (layouts of ggml's and of the other readers), turned into float32.
#pragma once
#include <cstdint>
#include <string>

namespace gristmill {

enum class Source : int {
  F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S,
  IQ3_XXS, IQ3_S, TQ1_0, TQ2_0, IQ4_NL, IQ4_XS, Q1_0, Q2_0, MXFP4, MXFP4_SPLIT, Q8_GROUPS, INT8_ROWS, NVFP4, FP8_GROUPS
};

// Throws std::invalid_argument for a label that gristmill.formats.qtypes does not define.
Source source_of(const std::string& label);
int source_block(Source source);        // elements a block
int source_block_bytes(Source source);  // bytes a block
bool scales_apart(Source source);       // MXFP4_SPLIT, Q8_GROUPS, INT8_ROWS, NVFP4 and FP8_GROUPS

// Dequantizes n elements (a multiple of the block) exactly as ggml does. Not for types that keep their scales apart, but for
// NVFP4 without the scales of its rows.
void dequantize(Source source, const uint8_t* data, int64_t n, float* out);

// The 6-bit scale and minimum of sub-block j (0..7) of a Q4_K or Q5_K block.
inline void k_scale_min(const uint8_t* scales, int j, uint8_t* scale, uint8_t* minimum) {
  if (j < 4) {
    *scale = scales[j] & 63;
    *minimum = scales[j + 4] & 63;
  } else {
    *scale = (scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4);
    *minimum = (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4);
  }
}

// The 6-bit scale of sub-block j (0..7) of an IQ4_XS block, whose scales begin at `scales`.
inline int iq4_scale(const uint8_t* scales, int j) {
  const int low = scales[2 + j / 2] >> (4 * (j % 2)) & 15, high = scales[j / 4] >> (2 * (j % 4)) & 3;
  return (low | high << 4) - 32;
}

// The 6-bit scale of columns 16 j .. 16 j + 15 of a Q3_K block, whose scales begin at `scales`.
inline int q3_scale(const uint8_t* scales, int j) {
  const int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4, high = scales[8 + j % 4] >> (2 * (j / 4)) & 3;
  return (low | high << 4) - 32;
}

// A scale of NVFP4, UE4M3, as ggml reads it: mantissa * 2^exponent with a mantissa of 8 to 15, or of 0.
struct Ue4m3 {
  int mantissa, exponent;
};
constexpr Ue4m3 ue4m3(uint8_t bits) {
  Ue4m3 x{bits & 7, (bits >> 3 & 15) - 10};
  if (bits == 0x7f || (bits & 0x7f) == 0) return {0, 0};
  if (x.exponent > -10) return {x.mantissa | 8, x.exponent};
  for (x.exponent = -9; x.mantissa < 8; x.exponent--) x.mantissa *= 2;  // subnormal: of 2^-9
  return x;
}

constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kMxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled E2M1

}  // namespace gristmill
