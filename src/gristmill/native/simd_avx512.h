// The vector operations of kernels_impl.h for AVX-512 with VNNI, and with BF16 where it is compiled for it. F: 16 floats, I: 16
// int32, U: 64 bytes.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

// What a tile is made of: left to itself gcc calls some of it, and a tile's registers go through memory.
#define GRISTMILL_INLINE __attribute__((always_inline)) inline

namespace gristmill {
namespace {

constexpr int kVectorBytes = 64;  // of a register
constexpr int kIntTile = 16, kFloatTile = 24, kFloatColumns = 6;  // accumulators of a tile
constexpr int kUnpackedTile = 24;  // of floats where words are taken apart
constexpr bool kSplitSums = true;  // few outputs have two sums each: products wait less for one another
constexpr bool kForeseen = true;  // bytes that meet one column are read in an order that processors foresee
constexpr int kAttentionRows = 12, kAttentionAccumulators = 24;
constexpr int kStreamBlocks = 1, kStreamKeys = 32;  // of the cache that few rows meet at once: scores, values

using F = __m512;
using I = __m512i;
using U = __m512i;

inline __mmask16 first_lanes(int n) { return __mmask16((1u << n) - 1); }
inline F f_zero() { return _mm512_setzero_ps(); }
inline F f_set(float x) { return _mm512_set1_ps(x); }
inline F f_load(const float* p) { return _mm512_loadu_ps(p); }
inline F f_load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void f_store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline void f_store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
inline F f_add(F a, F b) { return _mm512_add_ps(a, b); }
inline F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F f_div(F a, F b) { return _mm512_div_ps(a, b); }
inline F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c
// The same with one number for all lanes, which is read anew each time and takes no register.
inline F f_fma_at(F a, const float* b, F c) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(a), "m"(*b));
  return c;
}
inline F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
inline F f_max(F a, F b) { return _mm512_max_ps(a, b); }
inline F f_min(F a, F b) { return _mm512_min_ps(a, b); }
inline F f_abs(F a) { return _mm512_abs_ps(a); }
inline F f_round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F f_pow2(F n) { return _mm512_scalef_ps(_mm512_set1_ps(1.0f), n); }  // n integral
inline float f_sum(F a) { return _mm512_reduce_add_ps(a); }
inline float f_peak(F a) { return _mm512_reduce_max_ps(a); }
// Lanes i with low <= i < high keep a; the others become b.
inline F f_between(F a, int low, int high, F b) {
  __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __mmask16 keep = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(low)) & _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(high));
  return _mm512_mask_blend_ps(keep, b, a);
}

// 1 in lanes where a >= b, otherwise 0.
inline F f_at_least(F a, F b) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), _mm512_set1_ps(1.0f));
}

inline F f_of_half(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
// The first 16 of 32 halves, and the others.
inline F f_of_first_halves(U a) { return _mm512_cvtph_ps(_mm512_castsi512_si256(a)); }
inline F f_of_second_halves(U a) { return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1)); }
inline void half_of_f(uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline F f_of_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline F f_of_e8m0(const uint8_t* p) {  // 2^(e - 128)
  __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_scalef_ps(_mm512_set1_ps(1.0f), _mm512_cvtepi32_ps(_mm512_sub_epi32(e, _mm512_set1_epi32(128))));
}
// x 2^n, where bits is n << 23 and n is not negative; where x is 0, that or what is nothing beside any other such number.
inline F f_raise(F x, int32_t bits) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(bits)));
}
inline F f_of_i(I a) { return _mm512_cvtepi32_ps(a); }
inline I i_of_f(F a) { return _mm512_cvtps_epi32(a); }
inline void i8_of_i(int8_t* p, I a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a)); }
inline I i_set(int32_t x) { return _mm512_set1_epi32(x); }
inline I i_load(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void i_store(int32_t* p, I a) { _mm512_storeu_si512(p, a); }
inline I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
inline I i_mul(I a, I b) { return _mm512_mullo_epi32(a, b); }
template <int N>
inline I i_shift_left(I a) { return _mm512_slli_epi32(a, N); }
// Two 16-bit numbers a lane: bits Shift .. Shift + 15 of a, then those of b.
template <int Shift>
inline I i_pair(I a, I b) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, Shift), _mm512_slli_epi32(b, 16 - Shift));
}
// acc += the two products a lane of such pairs.
inline I i_dot2(I acc, I a, I b) { return _mm512_dpwssd_epi32(acc, a, b); }
inline I i_of_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline I i_of_i8(const uint8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline int32_t i_sum(I a) { return _mm512_reduce_add_epi32(a); }

// Bytes m + 8 e, with m under 8, as (8 + m) 2^e; with e of 31 nothing is left of 8.
inline I i_of_e5m3(const uint8_t* p) {
  const I x = i_of_u8(p), mantissa = _mm512_or_si512(_mm512_and_si512(x, _mm512_set1_epi32(7)), _mm512_set1_epi32(8));
  return _mm512_sllv_epi32(mantissa, _mm512_srli_epi32(x, 3));
}
inline I i_and(I a, int32_t bits) { return _mm512_and_si512(a, _mm512_set1_epi32(bits)); }
template <int N>
inline I i_shift_right(I a) { return _mm512_srli_epi32(a, N); }  // zeros come in
inline U u_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline U u_load(const uint8_t* p, const uint8_t* q) {  // the first half at p, the other at q
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)), 1);
}
inline I i_of_u(U a) { return a; }
inline void u_store(uint8_t* p, U a) { _mm512_storeu_si512(p, a); }
inline U u_low(U a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
inline U u_high(U a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15)); }
inline U u_or(U a, U b) { return _mm512_or_si512(a, b); }
// Bits [From, From + Count) of each byte, moved to start at bit To.
template <int From, int Count, int To>
inline U u_bits(U a) {
  U shifted = From >= To ? _mm512_srli_epi16(a, From >= To ? From - To : 0) : _mm512_slli_epi16(a, From < To ? To - From : 0);
  return _mm512_and_si512(shifted, _mm512_set1_epi8(char(((1 << Count) - 1) << To)));
}
inline U u_lookup(const uint8_t* table, U index) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), index);
}

constexpr int kByteZero = 128;  // what i_dot4 sees as zero in a byte of Q8
inline U u_byte(U a) { return a; }
// acc += four products a lane: unsigned w with the four signed bytes at a, the same for every lane.
inline I i_dot4(I acc, U w, const int8_t* a) {
  int32_t four;
  std::memcpy(&four, a, 4);
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(four));
}
inline I i_dot4_small(I acc, U w, const int8_t* a) { return i_dot4(acc, w, a); }  // w under 128
struct Short {
  static constexpr bool kUsed = false;  // simd_avx2.h
};

// The first number of each pair of bfloat16, and the second.
inline F f_even_bf16(const uint16_t* p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
inline F f_odd_bf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(int(0xffff0000))));
}

#if defined(__AVX512BF16__)
constexpr const char* kIsa = "avx512bf16";
constexpr bool kBf16Dot = true;
constexpr int kManyTile = 8;  // kIntTile where a group meets many tiles; so are AMD's cores fastest
constexpr int kWideColumns = 8;  // of a tile where taking quants apart is dear and streams wait nowhere: so many share it
constexpr int kManyColumns = 6;  // of a tile with many columns, where each step's sums become floats; 0: as of others
constexpr int kDirectQ4 = INT32_MAX, kDirectNibbles = 16, kDirectBits = 8;
constexpr int kDirectFar = 16;  // no fewer where streams wait nowhere

inline void bf16_of_f(uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x));
}
// acc += w[2 lane] x[0] + w[2 lane + 1] x[1], bfloat16
inline F f_dot2(F acc, const uint16_t* w, const uint16_t* x) {
  int32_t two;
  std::memcpy(&two, x, 4);
  return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_loadu_si512(w), (__m512bh)_mm512_set1_epi32(two));
}
// The same, where the pair of x is read anew each time and takes no register.
inline F f_dot2_at(F acc, const uint16_t* w, const uint16_t* x) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(_mm512_loadu_si512(w)), "m"(*reinterpret_cast<const int32_t*>(x)));
  return acc;
}
#else
constexpr const char* kIsa = "avx512";
constexpr bool kBf16Dot = false;
constexpr int kManyTile = 16;  // and so Intel's
constexpr int kWideColumns = 0, kManyColumns = 0;
constexpr int kDirectQ4 = 8, kDirectNibbles = 8, kDirectBits = 8, kDirectFar = 0;
#endif

}  // namespace
}  // namespace gristmill
