// Quantized weights and activations as the tiles of Intel's AMX multiply them. Included after tiles_impl.h.
//
// One instruction multiplies 16 rows of activations by 64 columns of a panel. What takes time is to bring sums out of their
// tiles, so quants meet their scales before: as whole numbers of 16 bits, in two planes of bytes. The sums of 256 columns then
// become floats at once, with what is left of the scales. All of it is whole numbers, and so are the sums of the few rows that
// no tile is worth (quantized_types.h: Whole): the bits are the same.
#pragma once
#include "tiles_impl.h"

namespace gristmill {
namespace {

// Quants times their scales lie in kPlanes planes of bytes, of which the second has the lower kShift bits. kOne: scales have
// four bits and quants two, so that their products fit a byte. kSmall: scales have six bits and quants are unsigned, so that
// the products with three bits fit a byte. kBytes: magnitudes of scales fit a byte.
template <class T>
struct Planes {
  static constexpr bool kOne = T::kMinimum && T::kHalves, kSmall = T::kMinimum && !T::kHalves;
  static constexpr bool kBytes = !T::kMinimum && !T::kRows && (T::kOwnScales ? !T::kLong : T::kMostScale < 256);
  static constexpr int kPlanes = T::kRows || kOne ? 1 : 2, kShift = kSmall ? 3 : 8;
};

constexpr int kTileBytes = 64, kSetsATile = kTileBytes / 4;     // columns of a product
constexpr int kSuperTiles = kSuperSteps * kBlock / kTileBytes;  // of a super-block

// A panel's part of a super-block, taken apart.
using TakenQuants = uint8_t[kSuperTiles][2][kSetsATile][64];

// What is left of its scales, and its minima or offsets in pairs: of blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7, or of the
// halves of each.
struct alignas(64) TakenScales {
  float d[kLanes], dmin[kLanes];
  int32_t minima[kSuperSteps][kLanes];
};

struct alignas(64) TakenPanel {
  TakenQuants planes;
  TakenScales scales;
};

// Scales of 16 rows as sets meet them. Each is twice a lane, as 16 bits: in `first` and `second` with kSmall its upper and its
// lower three bits, with kBytes its magnitude in the lower and in the upper byte, where `negative` has four bits a lane;
// otherwise all of it in the first.
struct SetScale {
  U first, second;
  __mmask64 negative = 0;
};

template <class T>
GRISTMILL_INLINE SetScale set_scale(I scale) {
  using To = Planes<T>;
  if constexpr (To::kBytes) {
    const U bytes = _mm512_abs_epi32(scale), both = i_pair<0>(bytes, bytes);
    return {both, _mm512_slli_epi16(both, 8), _mm512_movepi8_mask(_mm512_srai_epi32(scale, 31))};
  } else {
    const U both = i_pair<0>(scale, scale);
    if constexpr (To::kSmall) return {_mm512_srli_epi16(both, 3), _mm512_and_si512(both, _mm512_set1_epi16(7))};
    else return {both, both};
  }
}

constexpr __mmask64 kOddBytes = 0xaaaaaaaaaaaaaaaa;

// Products of the even and of the odd bytes of a set, in 16 bits.
GRISTMILL_INLINE void put_products(U even, U odd, uint8_t* high, uint8_t* low) {
  u_store(high, _mm512_mask_blend_epi8(kOddBytes, _mm512_bsrli_epi128(even, 1), odd));
  u_store(low, _mm512_mask_blend_epi8(kOddBytes, even, _mm512_bslli_epi128(odd, 1)));
}

// Signed bytes times scales of 16 bits.
GRISTMILL_INLINE void put_words(U w, U scale, uint8_t* high, uint8_t* low) {
  put_products(_mm512_mullo_epi16(_mm512_maddubs_epi16(_mm512_set1_epi16(1), w), scale),
               _mm512_mullo_epi16(_mm512_maddubs_epi16(_mm512_set1_epi16(0x100), w), scale), high, low);
}

template <class T, int J>
GRISTMILL_INLINE void put_set(const uint8_t* q, int stride, const SetScale& scale, uint8_t (*high)[64], uint8_t (*low)[64]) {
  using To = Planes<T>;
  constexpr bool kStored = T::kQuantBytes == 512;  // as signed bytes
  U w = T::template set<J>(q, stride);
  if constexpr (!kStored && !To::kSmall) w = _mm512_sub_epi8(w, _mm512_set1_epi8(int8_t(T::kZero)));
  if constexpr (To::kOne || To::kSmall) {
    u_store(high[J], _mm512_mullo_epi16(w, scale.first));
    if constexpr (To::kSmall) u_store(low[J], _mm512_mullo_epi16(w, scale.second));
  } else if constexpr (T::kRows) {
    u_store(high[J], w);
  } else if constexpr (!To::kBytes) {
    put_words(w, scale.first, high[J], low[J]);
  } else if (kStored && scale.negative) {  // rare; and a stored quant of -128 has no negative
    const U minus = _mm512_sub_epi16(_mm512_setzero_si512(), scale.first);
    put_words(w, _mm512_mask_blend_epi8(scale.negative, scale.first, minus), high[J], low[J]);
  } else {
    if constexpr (!kStored) w = _mm512_mask_sub_epi8(w, scale.negative, _mm512_setzero_si512(), w);
    put_products(_mm512_maddubs_epi16(scale.first, w), _mm512_maddubs_epi16(scale.second, w), high[J], low[J]);
  }
}

// Columns 4 First .. 4 First + 15 of a step, which share a scale.
template <class T, int First>
GRISTMILL_INLINE void put_half(const uint8_t* q, int stride, const SetScale& scale, uint8_t (*high)[64], uint8_t (*low)[64]) {
  put_set<T, First>(q, stride, scale, high, low), put_set<T, First + 1>(q, stride, scale, high, low);
  put_set<T, First + 2>(q, stride, scale, high, low), put_set<T, First + 3>(q, stride, scale, high, low);
}

// Two sets of minima, which are bytes, as numbers of 16 bits.
template <class T>
inline void take_minima(const SuperScales& scales, TakenScales& out) {
  for (int half = 0; half < 2; half++) {
    const U four = set_of_minima<T>(scales, half);
    i_store(out.minima[2 * half], _mm512_and_si512(four, _mm512_set1_epi16(255)));
    i_store(out.minima[2 * half + 1], _mm512_srli_epi16(four, 8));
  }
}

// The offsets of a panel's n steps as whole numbers; returns what 1 is then.
template <class T>
GRISTMILL_INLINE F take_offsets(const uint8_t* scales, size_t step_bytes, int n, TakenScales& out) {
  WholeOffsets whole;
  I numbers[kSuperSteps];
  for (int b = 0; b < n; b++) whole.add(T::offset(scales + step_bytes * b));
  const F inverse = whole.inverse();
#pragma GCC unroll 8
  for (int b = 0; b < kSuperSteps; b++)
    numbers[b] = b < n ? WholeOffsets::whole(T::offset(scales + step_bytes * b), inverse) : i_set(0);
  for (int i = 0; i < kSuperSteps / 2; i++) {
    const int b = i / 2 * 4 + i % 2;
    i_store(out.minima[i], i_pair<0>(numbers[b], numbers[b + 2]));
  }
  return whole.d();
}

// The scales of a panel's n steps, and what they are multiplied by to be whole.
template <class T>
GRISTMILL_INLINE F take_scales(const SuperScales& scales, int n, TakenScales& out) {
  F d = f_zero(), dmin = f_zero(), inverse = f_zero();
  if constexpr (T::kOwnScales) {
    read_super<T>(scales, d, dmin);
    if constexpr (T::kMinimum && T::kHalves)
      for (int b = 0; b < kSuperSteps; b++)
        i_store(out.minima[b], b < n ? T::minima(scales.own + scales.step_bytes * b) : i_set(0));
    else if constexpr (T::kMinimum) take_minima<T>(scales, out);
  } else if constexpr (!T::kRows) {
    WholeScales<T> whole;
    for (int b = 0; b < n; b++) whole.add(scale_of<T>(scales, b));
    d = whole.d(), inverse = whole.inverse();
    if constexpr (T::kOffset) dmin = take_offsets<T>(scales.own, scales.step_bytes, n, out);
  }
  f_store(out.d, d), f_store(out.dmin, dmin);
  return inverse;
}

// Step b of a panel, whose sets lie `stride` bytes apart.
template <class T>
GRISTMILL_INLINE void take_step(const uint8_t* quants, int stride, const SuperScales& scales, F inverse, int b,
                                TakenQuants& out) {
  I whole = i_set(1);
  if constexpr (T::kOwnScales) whole = scale_of<T>(scales, b);
  else if constexpr (!T::kRows) whole = WholeScales<T>::whole(scale_of<T>(scales, b), inverse);
  const SetScale scale = set_scale<T>(whole);
  SetScale second = scale;
  if constexpr (T::kHalves) second = set_scale<T>(T::second_scale(scales.own + scales.step_bytes * b));
  uint8_t(*high)[64] = out[b / 2][0] + b % 2 * 8, (*low)[64] = out[b / 2][1] + b % 2 * 8;
  put_half<T, 0>(quants, stride, scale, high, low);
  put_half<T, 4>(quants, stride, second, high, low);
}

// What stands for a step b beyond the last.
inline void take_nothing(int b, TakenQuants& out) {
  for (auto& plane : out[b / 2]) std::memset(plane[b % 2 * 8], 0, sizeof plane / 2);
}

template <int Sum, bool Signed, int Left = 2>
GRISTMILL_INLINE void add_bytes() {
  multiply_bytes<kSumTiles[Sum], Left, 4 + Sum % 2, Signed>();
}

// Minima or offsets times the sums of row c.
template <class T>
GRISTMILL_INLINE F of_minima(const TakenScales& w, const WideBlock& a, int c) {
  const int16_t* sums = T::kHalves ? a.halves[c] : a.sums[c];
  I total = i_set(0);
  for (int i = 0; i < (T::kHalves ? kSuperSteps : kSuperSteps / 2); i++) {
    int32_t two;
    std::memcpy(&two, sums + 2 * i, 4);
    total = i_dot2(total, i_load(w.minima[i]), i_set(two));
  }
  return f_of_i(total);
}

// acc + the sums of one row as numbers.
template <class T>
GRISTMILL_INLINE F add_planes(const int32_t (*sums)[kWideRows][kLanes], int c, const WideBlock& a, const TakenScales& w, F acc) {
  using To = Planes<T>;
  I total = i_load(sums[0][c]);
  if constexpr (To::kPlanes > 1) total = i_add(i_shift_left<To::kShift>(total), i_load(sums[1][c]));
  const F scale = f_set(a.scale[c]);
  if constexpr (T::kRows) return f_fma(f_of_i(total), scale, acc);
  if constexpr (T::kMinimum) acc = f_fnma(of_minima<T>(w, a, c), f_mul(f_load(w.dmin), scale), acc);
  if constexpr (T::kOffset) acc = f_fma(of_minima<T>(w, a, c), f_mul(f_load(w.dmin), scale), acc);
  return f_fma(f_of_i(total), f_mul(f_load(w.d), scale), acc);
}

// 64 numbers as round_block rounds them.
inline U rounded_bytes(const float* x, float inverse) {
  auto words = [&](int i) { return _mm512_packs_epi32(rounded(x + i, inverse), rounded(x + i + kLanes, inverse)); };
  const U order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words(0), words(2 * kLanes)));
}

// The sums of kSuperSteps blocks' quants and of their halves from those of eight quants with 128 added, of which each 64 bits
// hold four in 16 bits: lanes 0 .. 3 those of the even blocks, in order.
inline void put_sums(U eights, int16_t* sums, int16_t* halves) {
  auto put = [](int16_t* out, __m128i with_zero, int n) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_sub_epi16(with_zero, _mm_set1_epi16(int16_t(128 * n))));
  };
  auto lanes = [](U v) { return std::pair(_mm512_castsi512_si128(v), _mm512_extracti32x4_epi32(v, 2)); };
  const U of_16 = _mm512_add_epi16(eights, _mm512_permutex_epi64(eights, 0xb1)), others = _mm512_permutex_epi64(of_16, 0x4e);
  const auto [first_even, first_odd] = lanes(of_16);
  const auto [second_even, second_odd] = lanes(others);
  const __m128i even = _mm_unpacklo_epi16(first_even, second_even), odd = _mm_unpacklo_epi16(first_odd, second_odd);
  put(halves, _mm_unpacklo_epi32(even, odd), kLanes), put(halves + kSuperSteps, _mm_unpackhi_epi32(even, odd), kLanes);
  const auto [all_even, all_odd] = lanes(_mm512_add_epi16(of_16, others));
  put(sums, _mm_unpacklo_epi32(all_even, all_odd), kBlock);
}

void quantize_wide(const float* x, int n, int lane, WideBlock* out) {
  constexpr int kSuper = kSuperSteps * kBlock;
  float last[kSuper] = {};
  for (; n > 0; n -= kSuper, x += kSuper, out++) {
    if (n < kSuper) x = std::copy_n(x, n, last) - n;
    const SharedScale shared(x, kSuper);
    U eights = _mm512_setzero_si512();
    for (int i = 0; i < kSuperTiles; i++) {
      const U bytes = rounded_bytes(x + i * kTileBytes, shared.inverse);
      u_store(reinterpret_cast<uint8_t*>(out->q[i][lane]), bytes);
      const U sums = _mm512_sad_epu8(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)), _mm512_setzero_si512());
      eights = _mm512_or_si512(eights, _mm512_sll_epi64(sums, _mm_cvtsi32_si128(16 * i)));
    }
    put_sums(eights, out->sums[lane], out->halves[lane]);
    out->scale[lane] = shared.scale;
  }
}

}  // namespace
}  // namespace gristmill
