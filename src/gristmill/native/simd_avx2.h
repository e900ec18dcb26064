// The vector operations of kernels_impl.h for AVX2 with FMA and F16C, also with AVX-VNNI: two 256-bit registers make one vector.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define GRISTMILL_INLINE __attribute__((always_inline)) inline

namespace gristmill {
namespace {

#if defined(__AVXVNNI__)
constexpr const char* kIsa = "avxvnni";
#else
constexpr const char* kIsa = "avx2";
#endif
constexpr int kVectorBytes = 32;  // of a register
constexpr int kIntTile = 4, kFloatTile = 6, kFloatColumns = 6;  // accumulators of a tile
constexpr int kUnpackedTile = 5;  // of floats where words are taken apart
constexpr int kManyTile = 4;   // kIntTile where a group meets many tiles
constexpr int kWideColumns = 0;  // of a tile where taking quants apart is dear: so many share it
constexpr int kManyColumns = 0;  // of a tile with many columns, where each step's sums become floats; 0: as of others
constexpr int kDirectQ4 = 4, kDirectNibbles = 4, kDirectBits = 2, kDirectFar = 0;  // quantized_types.h: kDirect
constexpr bool kSplitSums = false;  // few outputs have two sums each: products wait less for one another
constexpr bool kForeseen = false;  // gcc reads bytes that meet one column in an order that processors foresee
constexpr int kAttentionRows = 6, kAttentionAccumulators = 6;
constexpr int kStreamBlocks = 2, kStreamKeys = 4;  // of the cache that few rows meet at once: scores, values
constexpr bool kBf16Dot = false;

struct F { __m256 a, b; };
struct I { __m256i a, b; };
struct U { __m256i a, b; };

inline __m256i lanes_below(int n, int first) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline F f_set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F f_zero() { return f_set(0.0f); }
inline F f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F f_load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, lanes_below(n, 0)), _mm256_maskload_ps(p + 8, lanes_below(n, 8))};
}
inline void f_store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline void f_store_n(float* p, F x, int n) {
  _mm256_maskstore_ps(p, lanes_below(n, 0), x.a);
  _mm256_maskstore_ps(p + 8, lanes_below(n, 8), x.b);
}
inline F f_add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F f_sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F f_mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F f_div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F f_fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F f_fma_at(F a, const float* b, F c) { return f_fma(a, f_set(*b), c); }
inline F f_fnma(F x, F y, F z) { return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
inline F f_max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F f_min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F f_abs(F x) {
  __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
inline F f_round(F x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline __m256 pow2(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline F f_pow2(F n) { return {pow2(n.a), pow2(n.b)}; }  // n integral, the result a normal number
inline float f_sum(F x) {
  __m256 s = _mm256_add_ps(x.a, x.b);
  __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  t = _mm_add_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}
inline float f_peak(F x) {
  __m256 s = _mm256_max_ps(x.a, x.b);
  __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  t = _mm_max_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
inline __m256 between(__m256 x, int low, int high, int first, __m256 y) {
  return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_andnot_si256(lanes_below(low, first), lanes_below(high, first))));
}
inline F f_between(F x, int low, int high, F y) {
  return {between(x.a, low, high, 0, y.a), between(x.b, low, high, 8, y.b)};
}

// 1 in lanes where a >= b, otherwise 0.
inline F f_at_least(F x, F y) {
  __m256 one = _mm256_set1_ps(1.0f);
  return {_mm256_and_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), one), _mm256_and_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ), one)};
}

inline __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m128i load8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
inline F f_of_half(const uint16_t* p) { return {_mm256_cvtph_ps(load16(p)), _mm256_cvtph_ps(load16(p + 8))}; }
// The first 16 of 32 halves, and the others.
inline F halves(__m256i x) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
}
inline F f_of_first_halves(U x) { return halves(x.a); }
inline F f_of_second_halves(U x) { return halves(x.b); }
inline void half_of_f(uint16_t* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline F f_of_i8(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p))), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p + 8)))};
}
inline __m256 of_e8m0(const uint8_t* p) {  // 2^(e - 128); subnormal for e of 0 and 1
  __m256i e = _mm256_cvtepu8_epi32(load8(p));
  __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}
inline F f_of_e8m0(const uint8_t* p) { return {of_e8m0(p), of_e8m0(p + 8)}; }
// x 2^n, where bits is n << 23 and n is not negative; where x is 0, that or what is nothing beside any other such number.
inline F f_raise(F x, int32_t bits) {
  auto part = [&](__m256 a) { return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(bits))); };
  return {part(x.a), part(x.b)};
}
inline F f_of_i(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I i_of_f(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline void i8_of_i(int8_t* p, I x) {
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline I i_set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline __m256i* ymm(int32_t* p) { return reinterpret_cast<__m256i*>(p); }
inline const __m256i* ymm(const int32_t* p) { return reinterpret_cast<const __m256i*>(p); }
inline I i_load(const int32_t* p) { return {_mm256_loadu_si256(ymm(p)), _mm256_loadu_si256(ymm(p + 8))}; }
inline void i_store(int32_t* p, I x) {
  _mm256_storeu_si256(ymm(p), x.a);
  _mm256_storeu_si256(ymm(p + 8), x.b);
}
inline I i_add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I i_mul(I x, I y) { return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)}; }
template <int N>
inline I i_shift_left(I x) { return {_mm256_slli_epi32(x.a, N), _mm256_slli_epi32(x.b, N)}; }
template <int Shift>
inline __m256i pair(__m256i a, __m256i b) {
  return _mm256_blend_epi16(_mm256_srli_epi32(a, Shift), _mm256_slli_epi32(b, 16 - Shift), 0xaa);
}
// Two 16-bit numbers a lane: bits Shift .. Shift + 15 of a, then those of b.
template <int Shift>
inline I i_pair(I x, I y) { return {pair<Shift>(x.a, y.a), pair<Shift>(x.b, y.b)}; }
// acc += the two products a lane of such pairs.
inline I i_dot2(I acc, I x, I y) {
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(x.a, y.a)), _mm256_add_epi32(acc.b, _mm256_madd_epi16(x.b, y.b))};
}
inline I i_of_u8(const uint8_t* p) { return {_mm256_cvtepu8_epi32(load8(p)), _mm256_cvtepu8_epi32(load8(p + 8))}; }
inline I i_of_i8(const uint8_t* p) { return {_mm256_cvtepi8_epi32(load8(p)), _mm256_cvtepi8_epi32(load8(p + 8))}; }
// Bytes m + 8 e, with m under 8, as (8 + m) 2^e; with e of 31 nothing is left of 8.
inline I i_of_e5m3(const uint8_t* p) {
  auto eight = [](__m256i x) {
    const __m256i mantissa = _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(7)), _mm256_set1_epi32(8));
    return _mm256_sllv_epi32(mantissa, _mm256_srli_epi32(x, 3));
  };
  const I x = i_of_u8(p);
  return {eight(x.a), eight(x.b)};
}
inline I i_and(I x, int32_t bits) {
  return {_mm256_and_si256(x.a, _mm256_set1_epi32(bits)), _mm256_and_si256(x.b, _mm256_set1_epi32(bits))};
}
template <int N>
inline I i_shift_right(I x) { return {_mm256_srli_epi32(x.a, N), _mm256_srli_epi32(x.b, N)}; }  // zeros come in
inline int32_t i_sum(I x) {
  __m256i s = _mm256_add_epi32(x.a, x.b);
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

inline __m256i load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline U u_load(const uint8_t* p, const uint8_t* q) { return {load32(p), load32(q)}; }  // the first half at p, the other at q
inline I i_of_u(U x) { return {x.a, x.b}; }
inline U u_load(const uint8_t* p) { return u_load(p, p + 32); }
inline void u_store(uint8_t* p, U x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.b);
}
inline __m256i low4(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline U u_low(U x) { return {low4(x.a), low4(x.b)}; }
inline U u_high(U x) { return {low4(_mm256_srli_epi16(x.a, 4)), low4(_mm256_srli_epi16(x.b, 4))}; }
inline U u_or(U x, U y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
template <int From, int Count, int To>
inline __m256i bits(__m256i x) {
  __m256i shifted =
      From >= To ? _mm256_srli_epi16(x, From >= To ? From - To : 0) : _mm256_slli_epi16(x, From < To ? To - From : 0);
  return _mm256_and_si256(shifted, _mm256_set1_epi8(char(((1 << Count) - 1) << To)));
}
// Bits [From, From + Count) of each byte, moved to start at bit To.
template <int From, int Count, int To>
inline U u_bits(U x) { return {bits<From, Count, To>(x.a), bits<From, Count, To>(x.b)}; }
inline U u_lookup(const uint8_t* table, U index) {
  __m256i t = _mm256_broadcastsi128_si256(load16(table));
  return {_mm256_shuffle_epi8(t, index.a), _mm256_shuffle_epi8(t, index.b)};
}

inline __m256i four_at(const int8_t* a) {
  int32_t four;
  std::memcpy(&four, a, 4);
  return _mm256_set1_epi32(four);
}
// Keeps gcc from adding in another order: it would multiply first, and keep all products in memory.
inline I now(I x) {
  asm("" : "+x"(x.a), "+x"(x.b));
  return x;
}
// AVX-512's encoding of the same (-mavx512vnni -mavx512vl) lets a processor without AVX-VNNI check what follows.
#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
struct Short {
  static constexpr bool kUsed = false;
};
constexpr int kByteZero = 128;
inline U u_byte(U x) { return x; }
inline I i_dot4(I acc, U w, const int8_t* a) {
  const __m256i x = four_at(a);
  return now({_mm256_dpbusd_epi32(acc.a, w.a, x), _mm256_dpbusd_epi32(acc.b, w.b, x)});
}
inline I i_dot4_small(I acc, U w, const int8_t* a) { return i_dot4(acc, w, a); }
#else
// Sums of 16 bits, two products of quants under 128 each: as many are added as fit, then they become lanes of 32.
struct Short {
  static constexpr bool kUsed = true;
  static I dot2(U w, const int8_t* a) {
    const __m256i x = four_at(a);
    return {_mm256_maddubs_epi16(w.a, x), _mm256_maddubs_epi16(w.b, x)};
  }
  static I add(I x, I y) { return now({_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)}); }
  static I add_to(I acc, I sums) {
    const __m256i one = _mm256_set1_epi16(1);
    return now(
        {_mm256_add_epi32(acc.a, _mm256_madd_epi16(sums.a, one)), _mm256_add_epi32(acc.b, _mm256_madd_epi16(sums.b, one))});
  }
};
// Bytes are signed. maddubs wants one side unsigned: that gives its sign to the other. No activation is -128, so that two
// products fit 16 bits.
constexpr int kByteZero = 0;
inline U u_byte(U x) {
  const __m256i sign = _mm256_set1_epi8(char(128));
  return {_mm256_xor_si256(x.a, sign), _mm256_xor_si256(x.b, sign)};
}
inline I i_dot4(I acc, U w, const int8_t* a) {
  const __m256i x = four_at(a);
  auto dot2 = [&](__m256i v) { return _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(x, v)); };
  return Short::add_to(acc, {dot2(w.a), dot2(w.b)});
}
inline I i_dot4_small(I acc, U w, const int8_t* a) { return Short::add_to(acc, Short::dot2(w, a)); }
#endif

// The first number of each pair of bfloat16, and the second.
inline F f_even_bf16(const uint16_t* p) {
  auto eight = [](const uint16_t* q) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(load32(reinterpret_cast<const uint8_t*>(q)), 16));
  };
  return {eight(p), eight(p + 16)};
}
inline F f_odd_bf16(const uint16_t* p) {
  __m256i upper = _mm256_set1_epi32(int(0xffff0000));
  auto eight = [&](const uint16_t* q) {
    return _mm256_castsi256_ps(_mm256_and_si256(load32(reinterpret_cast<const uint8_t*>(q)), upper));
  };
  return {eight(p), eight(p + 16)};
}

}  // namespace
}  // namespace gristmill
