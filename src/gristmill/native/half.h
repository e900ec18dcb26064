// Conversions between float32 and the two 16-bit floats, exact, for code outside the kernels.
#pragma once
#include <cstdint>
#include <cstring>

namespace gristmill {

inline float float_of_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline uint32_t bits_of_float(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

inline float bf16_to_float(uint16_t h) { return float_of_bits(uint32_t(h) << 16); }

// Rounds to nearest even; NaN stays NaN.
inline uint16_t float_to_bf16(float f) {
  uint32_t bits = bits_of_float(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16) | 0x40;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float half_to_float(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact in float32
    float f = float(mantissa) * 5.9604644775390625e-08f;
    return sign ? -f : f;
  }
  return float_of_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Rounds to nearest even.
inline uint16_t float_to_half(float f) {
  uint32_t bits = bits_of_float(f);
  uint16_t sign = uint16_t((bits >> 16) & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;                  // rounds to 65536 or more
  if (bits < 0x38800000) {                                       // subnormal: let the adder round
    float scaled = float_of_bits(bits) + float_of_bits(0x3f000000);
    return sign | uint16_t(bits_of_float(scaled) - 0x3f000000);
  }
  bits += 0xfff + ((bits >> 13) & 1);
  return sign | uint16_t((bits - 0x38000000) >> 13);
}

// Half of the value that an E8M0 byte stands for: 2^(e - 128). MXFP4's table holds doubled values.
inline float e8m0_half(uint8_t e) { return float_of_bits(e < 2 ? 0x00200000u << e : uint32_t(e - 1) << 23); }

}  // namespace gristmill
