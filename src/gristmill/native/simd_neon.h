// The vector operations of kernels_impl.h for 64-bit Arm with the dot-product extension: four registers make one vector.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "half.h"

#define GRISTMILL_INLINE inline

namespace gristmill {
namespace {

constexpr const char* kIsa = "neon";
constexpr int kVectorBytes = 16;  // of a register
constexpr int kIntTile = 4, kFloatTile = 5, kFloatColumns = 5;  // accumulators of a tile
constexpr int kUnpackedTile = 5;  // of floats where words are taken apart
constexpr int kManyTile = 4;   // kIntTile where a group meets many tiles
constexpr int kWideColumns = 0;  // of a tile where taking quants apart is dear: so many share it
constexpr int kManyColumns = 0;  // of a tile with many columns, where each step's sums become floats; 0: as of others
constexpr int kDirectQ4 = 4, kDirectNibbles = 4, kDirectBits = 2, kDirectFar = 0;  // quantized_types.h: kDirect
constexpr bool kSplitSums = false;  // few outputs have two sums each: products wait less for one another
constexpr bool kForeseen = true;  // bytes that meet one column are read in an order that processors foresee
constexpr int kAttentionRows = 4, kAttentionAccumulators = 4;
constexpr int kStreamBlocks = 1, kStreamKeys = 32;  // of the cache that few rows meet at once: scores, values
constexpr bool kBf16Dot = false;

struct F { float32x4_t v[4]; };
struct I { int32x4_t v[4]; };
struct U { uint8x16_t v[4]; };

template <class Part>
inline F f_parts(Part part) { return {{part(0), part(1), part(2), part(3)}}; }
template <class Part>
inline I i_parts(Part part) { return {{part(0), part(1), part(2), part(3)}}; }
template <class Part>
inline U u_parts(Part part) { return {{part(0), part(1), part(2), part(3)}}; }

inline F f_set(float x) { return f_parts([&](int) { return vdupq_n_f32(x); }); }
inline F f_zero() { return f_set(0.0f); }
inline F f_load(const float* p) { return f_parts([&](int i) { return vld1q_f32(p + 4 * i); }); }
inline void f_store(float* p, F x) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.v[i]);
}
inline F f_load_n(const float* p, int n) {
  float lanes[16] = {};
  std::memcpy(lanes, p, size_t(n) * 4);
  return f_load(lanes);
}
inline void f_store_n(float* p, F x, int n) {
  float lanes[16];
  f_store(lanes, x);
  std::memcpy(p, lanes, size_t(n) * 4);
}
inline F f_add(F a, F b) { return f_parts([&](int i) { return vaddq_f32(a.v[i], b.v[i]); }); }
inline F f_sub(F a, F b) { return f_parts([&](int i) { return vsubq_f32(a.v[i], b.v[i]); }); }
inline F f_mul(F a, F b) { return f_parts([&](int i) { return vmulq_f32(a.v[i], b.v[i]); }); }
inline F f_div(F a, F b) { return f_parts([&](int i) { return vdivq_f32(a.v[i], b.v[i]); }); }
inline F f_fma(F a, F b, F c) { return f_parts([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); }); }
inline F f_fma_at(F a, const float* b, F c) { return f_fma(a, f_set(*b), c); }
inline F f_fnma(F a, F b, F c) { return f_parts([&](int i) { return vfmsq_f32(c.v[i], a.v[i], b.v[i]); }); }
inline F f_max(F a, F b) { return f_parts([&](int i) { return vmaxq_f32(a.v[i], b.v[i]); }); }
inline F f_min(F a, F b) { return f_parts([&](int i) { return vminq_f32(a.v[i], b.v[i]); }); }
inline F f_abs(F a) { return f_parts([&](int i) { return vabsq_f32(a.v[i]); }); }
inline F f_round(F a) { return f_parts([&](int i) { return vrndnq_f32(a.v[i]); }); }
inline F f_pow2(F n) {
  return f_parts([&](int i) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127)), 23));
  });
}
inline float f_sum(F a) { return vaddvq_f32(vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]))); }
inline float f_peak(F a) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[2]), vmaxq_f32(a.v[1], a.v[3]))); }
inline F f_between(F a, int low, int high, F b) {
  static const int32_t first[4] = {0, 1, 2, 3};
  return f_parts([&](int i) {
    int32x4_t lane = vaddq_s32(vld1q_s32(first), vdupq_n_s32(4 * i));
    uint32x4_t keep = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(low)), vcltq_s32(lane, vdupq_n_s32(high)));
    return vbslq_f32(keep, a.v[i], b.v[i]);
  });
}
// 1 in lanes where a >= b, otherwise 0.
inline F f_at_least(F a, F b) {
  return f_parts([&](int i) { return vbslq_f32(vcgeq_f32(a.v[i], b.v[i]), vdupq_n_f32(1.0f), vdupq_n_f32(0.0f)); });
}

inline F f_of_half(const uint16_t* p) {
  return f_parts([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
// The first 16 of 32 halves, and the others.
inline F halves(uint8x16_t low, uint8x16_t high) {
  const float16x8_t a = vreinterpretq_f16_u8(low), b = vreinterpretq_f16_u8(high);
  return {{vcvt_f32_f16(vget_low_f16(a)), vcvt_f32_f16(vget_high_f16(a)), vcvt_f32_f16(vget_low_f16(b)),
           vcvt_f32_f16(vget_high_f16(b))}};
}
inline F f_of_first_halves(U x) { return halves(x.v[0], x.v[1]); }
inline F f_of_second_halves(U x) { return halves(x.v[2], x.v[3]); }
inline void half_of_f(uint16_t* p, F x) {
  for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
inline F f_of_i8(const uint8_t* p) {
  int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(p));
  int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_s8(vget_high_s8(x));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
inline F f_of_e8m0(const uint8_t* p) {
  float lanes[16];
  for (int i = 0; i < 16; i++) lanes[i] = e8m0_half(p[i]);
  return f_load(lanes);
}
// x 2^n, where bits is n << 23 and n is not negative; where x is 0, that or what is nothing beside any other such number.
inline F f_raise(F x, int32_t bits) {
  return f_parts([&](int i) { return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.v[i]), vdupq_n_s32(bits))); });
}
inline F f_of_i(I a) { return f_parts([&](int i) { return vcvtq_f32_s32(a.v[i]); }); }
inline I i_of_f(F a) { return i_parts([&](int i) { return vcvtnq_s32_f32(a.v[i]); }); }
inline void i8_of_i(int8_t* p, I a) {
  int16x8_t low = vcombine_s16(vqmovn_s32(a.v[0]), vqmovn_s32(a.v[1])),
            high = vcombine_s16(vqmovn_s32(a.v[2]), vqmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}
inline I i_set(int32_t x) { return i_parts([&](int) { return vdupq_n_s32(x); }); }
inline I i_load(const int32_t* p) { return i_parts([&](int i) { return vld1q_s32(p + 4 * i); }); }
// The first half at p, the other at q.
inline U u_load(const uint8_t* p, const uint8_t* q) {
  return u_parts([&](int i) { return vld1q_u8(i < 2 ? p + 16 * i : q + 16 * (i - 2)); });
}
inline I i_of_u(U a) { return i_parts([&](int i) { return vreinterpretq_s32_u8(a.v[i]); }); }
inline void i_store(int32_t* p, I a) {
  for (int i = 0; i < 4; i++) vst1q_s32(p + 4 * i, a.v[i]);
}
inline I i_add(I a, I b) { return i_parts([&](int i) { return vaddq_s32(a.v[i], b.v[i]); }); }
inline I i_mul(I a, I b) { return i_parts([&](int i) { return vmulq_s32(a.v[i], b.v[i]); }); }
template <int N>
inline I i_shift_left(I x) { return i_parts([&](int i) { return vshlq_n_s32(x.v[i], N); }); }
// Two 16-bit numbers a lane: bits Shift .. Shift + 15 of a, then those of b.
template <int Shift>
inline I i_pair(I a, I b) {
  return i_parts([&](int i) {
    int32x4_t low = vshlq_s32(a.v[i], vdupq_n_s32(-Shift)), high = vshlq_s32(b.v[i], vdupq_n_s32(-Shift));
    return vsliq_n_s32(low, high, 16);
  });
}
// acc += the two products a lane of such pairs.
inline I i_dot2(I acc, I a, I b) {
  return i_parts([&](int i) {
    int16x8_t x = vreinterpretq_s16_s32(a.v[i]), y = vreinterpretq_s16_s32(b.v[i]);
    return vaddq_s32(acc.v[i], vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
  });
}
inline I i_of_u8(const uint8_t* p) {
  uint8x16_t x = vld1q_u8(p);
  uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_u8(vget_high_u8(x));
  auto wide = [](uint16x4_t half) { return vreinterpretq_s32_u32(vmovl_u16(half)); };
  return {{wide(vget_low_u16(low)), wide(vget_high_u16(low)), wide(vget_low_u16(high)), wide(vget_high_u16(high))}};
}
inline I i_of_i8(const uint8_t* p) {
  int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(p));
  int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_s8(vget_high_s8(x));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
           vmovl_s16(vget_high_s16(high))}};
}
// Bytes m + 8 e, with m under 8, as (8 + m) 2^e; with e of 31 nothing is left of 8.
inline I i_of_e5m3(const uint8_t* p) {
  const I x = i_of_u8(p);
  return i_parts([&](int i) {
    const int32x4_t mantissa = vorrq_s32(vandq_s32(x.v[i], vdupq_n_s32(7)), vdupq_n_s32(8));
    return vshlq_s32(mantissa, vshrq_n_s32(x.v[i], 3));
  });
}
inline I i_and(I a, int32_t bits) { return i_parts([&](int i) { return vandq_s32(a.v[i], vdupq_n_s32(bits)); }); }
template <int N>
inline I i_shift_right(I a) {  // zeros come in
  return i_parts([&](int i) { return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v[i]), vdupq_n_s32(-N))); });
}
inline int32_t i_sum(I a) { return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3]))); }

inline U u_load(const uint8_t* p) { return u_parts([&](int i) { return vld1q_u8(p + 16 * i); }); }
inline void u_store(uint8_t* p, U a) {
  for (int i = 0; i < 4; i++) vst1q_u8(p + 16 * i, a.v[i]);
}
inline U u_low(U a) { return u_parts([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(15)); }); }
inline U u_high(U a) { return u_parts([&](int i) { return vshrq_n_u8(a.v[i], 4); }); }
inline U u_or(U a, U b) { return u_parts([&](int i) { return vorrq_u8(a.v[i], b.v[i]); }); }
template <int From, int Count, int To>
inline U u_bits(U a) {
  return u_parts([&](int i) { return vandq_u8(vshlq_u8(a.v[i], vdupq_n_s8(To - From)), vdupq_n_u8(((1 << Count) - 1) << To)); });
}
inline U u_lookup(const uint8_t* table, U index) {
  uint8x16_t t = vld1q_u8(table);
  return u_parts([&](int i) { return vqtbl1q_u8(t, index.v[i]); });
}

// The dot product multiplies signed by signed, so the bytes of Q8 lose their offset first.
constexpr int kByteZero = 0;
inline U u_byte(U a) { return u_parts([&](int i) { return veorq_u8(a.v[i], vdupq_n_u8(128)); }); }
inline I i_dot4(I acc, U w, const int8_t* a) {
  int32_t four;
  std::memcpy(&four, a, 4);
  int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return i_parts([&](int i) { return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(w.v[i]), x); });
}
inline I i_dot4_small(I acc, U w, const int8_t* a) { return i_dot4(acc, w, a); }
struct Short {
  static constexpr bool kUsed = false;  // simd_avx2.h
};

// The first number of each pair of bfloat16, and the second.
inline F f_even_bf16(const uint16_t* p) {
  return f_parts([&](int i) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)), 16)); });
}
inline F f_odd_bf16(const uint16_t* p) {
  return f_parts([&](int i) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)), vdupq_n_u32(0xffff0000u)));
  });
}

}  // namespace
}  // namespace gristmill
