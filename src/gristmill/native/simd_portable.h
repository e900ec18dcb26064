// The vector operations of kernels_impl.h in the compiler's own vector types: right everywhere, fast where it can be.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

#define GRISTMILL_INLINE inline

namespace gristmill {
namespace {

constexpr const char* kIsa = "portable";
constexpr int kVectorBytes = 16;  // of a register
constexpr int kIntTile = 1, kFloatTile = 4, kFloatColumns = 2;  // accumulators of a tile
constexpr int kUnpackedTile = 4;  // of floats where words are taken apart
constexpr int kManyTile = 1;   // kIntTile where a group meets many tiles
constexpr int kWideColumns = 0;  // of a tile where taking quants apart is dear: so many share it
constexpr int kManyColumns = 0;  // of a tile with many columns, where each step's sums become floats; 0: as of others
constexpr int kDirectQ4 = 4, kDirectNibbles = 4, kDirectBits = 2, kDirectFar = 0;  // quantized_types.h: kDirect
constexpr bool kSplitSums = false;  // few outputs have two sums each: products wait less for one another
constexpr bool kForeseen = true;  // bytes that meet one column are read in an order that processors foresee
constexpr int kAttentionRows = 2, kAttentionAccumulators = 2;
constexpr int kStreamBlocks = 1, kStreamKeys = 32;  // of the cache that few rows meet at once: scores, values
constexpr bool kBf16Dot = false;

typedef float F __attribute__((vector_size(64)));
typedef int32_t I __attribute__((vector_size(64)));
typedef uint8_t U __attribute__((vector_size(64)));

template <class Lane>
inline F f_make(Lane lane) {
  F x;
  for (int i = 0; i < 16; i++) x[i] = lane(i);
  return x;
}
inline F f_set(float v) { return F{} + v; }
inline F f_zero() { return F{}; }
inline F f_load(const float* p) {
  F x;
  std::memcpy(&x, p, 64);
  return x;
}
inline F f_load_n(const float* p, int n) {
  F x{};
  std::memcpy(&x, p, size_t(n) * 4);
  return x;
}
inline void f_store(float* p, F x) { std::memcpy(p, &x, 64); }
inline void f_store_n(float* p, F x, int n) { std::memcpy(p, &x, size_t(n) * 4); }
inline F f_add(F a, F b) { return a + b; }
inline F f_sub(F a, F b) { return a - b; }
inline F f_mul(F a, F b) { return a * b; }
inline F f_div(F a, F b) { return a / b; }
inline F f_fma(F a, F b, F c) { return a * b + c; }
inline F f_fma_at(F a, const float* b, F c) { return f_fma(a, f_set(*b), c); }
inline F f_fnma(F a, F b, F c) { return c - a * b; }
inline F f_max(F a, F b) { return a > b ? a : b; }
inline F f_min(F a, F b) { return a < b ? a : b; }
inline F f_abs(F a) { return a < 0.0f ? -a : a; }
inline F f_round(F a) { return f_make([&](int i) { return std::nearbyintf(a[i]); }); }
inline F f_pow2(F n) { return f_make([&](int i) { return float_of_bits(uint32_t(int(n[i]) + 127) << 23); }); }
inline float f_sum(F a) {
  float s[16];
  f_store(s, a);
  for (int width = 8; width; width /= 2)
    for (int i = 0; i < width; i++) s[i] += s[i + width];
  return s[0];
}
inline float f_peak(F a) {
  float peak = a[0];
  for (int i = 1; i < 16; i++) peak = a[i] > peak ? a[i] : peak;
  return peak;
}
inline F f_between(F a, int low, int high, F b) { return f_make([&](int i) { return low <= i && i < high ? a[i] : b[i]; }); }
// 1 in lanes where a >= b, otherwise 0.
inline F f_at_least(F a, F b) { return f_make([&](int i) { return a[i] >= b[i] ? 1.0f : 0.0f; }); }

inline F f_of_half(const uint16_t* p) { return f_make([&](int i) { return half_to_float(p[i]); }); }
// The first 16 of 32 halves, and the others.
inline F halves(U a, int at) {
  return f_make([&](int i) { return half_to_float(uint16_t(a[at + 2 * i] | a[at + 2 * i + 1] << 8)); });
}
inline F f_of_first_halves(U a) { return halves(a, 0); }
inline F f_of_second_halves(U a) { return halves(a, 32); }
inline void half_of_f(uint16_t* p, F x) {
  for (int i = 0; i < 16; i++) p[i] = float_to_half(x[i]);
}
inline F f_of_i8(const uint8_t* p) { return f_make([&](int i) { return float(int8_t(p[i])); }); }
inline F f_of_e8m0(const uint8_t* p) { return f_make([&](int i) { return e8m0_half(p[i]); }); }
// x 2^n, where bits is n << 23 and n is not negative; where x is 0, that or what is nothing beside any other such number.
inline F f_raise(F x, int32_t bits) {
  typedef uint32_t Bits __attribute__((vector_size(64)));
  return F(Bits(x) + uint32_t(bits));
}
inline F f_of_i(I a) { return __builtin_convertvector(a, F); }
inline I i_of_f(F a) {
  I x;
  for (int i = 0; i < 16; i++) x[i] = int32_t(std::nearbyintf(a[i]));
  return x;
}
inline void i8_of_i(int8_t* p, I a) {
  for (int i = 0; i < 16; i++) p[i] = int8_t(a[i]);
}
inline I i_set(int32_t v) { return I{} + v; }
inline I i_load(const int32_t* p) {
  I x;
  std::memcpy(&x, p, 64);
  return x;
}
// The first half at p, the other at q.
inline U u_load(const uint8_t* p, const uint8_t* q) {
  U x;
  std::memcpy(&x, p, 32);
  std::memcpy(reinterpret_cast<uint8_t*>(&x) + 32, q, 32);
  return x;
}
inline I i_of_u(U a) { return I(a); }
inline void i_store(int32_t* p, I a) { std::memcpy(p, &a, 64); }
inline I i_add(I a, I b) { return a + b; }
inline I i_mul(I a, I b) { return a * b; }
template <int N>
inline I i_shift_left(I a) { return a << N; }
// Two 16-bit numbers a lane: bits Shift .. Shift + 15 of a, then those of b.
template <int Shift>
inline I i_pair(I a, I b) { return ((a >> Shift) & 0xffff) | ((b >> Shift) << 16); }
// acc += the two products a lane of such pairs.
inline I i_dot2(I acc, I a, I b) {
  for (int i = 0; i < 16; i++) acc[i] += int16_t(a[i]) * int16_t(b[i]) + (a[i] >> 16) * (b[i] >> 16);
  return acc;
}
inline I i_of_u8(const uint8_t* p) {
  I x;
  for (int i = 0; i < 16; i++) x[i] = p[i];
  return x;
}
inline I i_of_i8(const uint8_t* p) {
  I x;
  for (int i = 0; i < 16; i++) x[i] = int8_t(p[i]);
  return x;
}
// Bytes m + 8 e, with m under 8, as (8 + m) 2^e; with e of 31 nothing is left of 8.
inline I i_of_e5m3(const uint8_t* p) {
  I x;
  for (int i = 0; i < 16; i++) x[i] = int32_t(uint32_t((p[i] & 7) | 8) << (p[i] >> 3));
  return x;
}
inline I i_and(I a, int32_t bits) { return a & bits; }
template <int N>
inline I i_shift_right(I a) {  // zeros come in
  typedef uint32_t Bits __attribute__((vector_size(64)));
  return I(Bits(a) >> N);
}
inline int32_t i_sum(I a) {
  int32_t s = 0;
  for (int i = 0; i < 16; i++) s += a[i];
  return s;
}

inline U u_load(const uint8_t* p) {
  U x;
  std::memcpy(&x, p, 64);
  return x;
}
inline void u_store(uint8_t* p, U a) { std::memcpy(p, &a, 64); }
inline U u_low(U a) { return a & 15; }
inline U u_high(U a) { return a >> 4; }
inline U u_or(U a, U b) { return a | b; }
template <int From, int Count, int To>
inline U u_bits(U a) { return ((a >> From) & uint8_t((1 << Count) - 1)) << To; }
inline U u_lookup(const uint8_t* table, U index) {
  U x;
  for (int i = 0; i < 64; i++) x[i] = table[index[i]];
  return x;
}

constexpr int kByteZero = 128;
inline U u_byte(U a) { return a; }
inline I i_dot4(I acc, U w, const int8_t* a) {
  for (int i = 0; i < 16; i++)
    acc[i] += w[4 * i] * a[0] + w[4 * i + 1] * a[1] + w[4 * i + 2] * a[2] + w[4 * i + 3] * a[3];
  return acc;
}
inline I i_dot4_small(I acc, U w, const int8_t* a) { return i_dot4(acc, w, a); }
struct Short {
  static constexpr bool kUsed = false;  // simd_avx2.h
};

// The first number of each pair of bfloat16, and the second.
inline F f_even_bf16(const uint16_t* p) {
  return f_make([&](int i) { return bf16_to_float(p[2 * i]); });
}
inline F f_odd_bf16(const uint16_t* p) {
  return f_make([&](int i) { return bf16_to_float(p[2 * i + 1]); });
}

}  // namespace
}  // namespace gristmill
