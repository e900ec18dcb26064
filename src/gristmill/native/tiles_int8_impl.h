// y = x W^T for quantized weights in the tiles of Intel's AMX, for 16 rows of activations at once. Included after tiles_impl.h.
//
// One instruction multiplies 16 rows of activations by 64 columns of a panel. What takes time is to bring sums out of their tiles,
// so quants meet their scales before: as whole numbers of 16 bits, in two planes of bytes. The sums of 256 columns then
// become floats at once, with what is left of the scales. Bytes that meet few rows are multiplied where they lie, 32 columns at a
// time, and their sums meet the scales. All of it is whole numbers, and so are the sums of the few rows that no tile is worth
// (blocked_impl.h: Whole): the bits are the same.
#pragma once
#include "tiles_impl.h"

namespace gristmill {
namespace {

// Quants times their scales lie in kPlanes planes of bytes, of which the second has the lower kShift bits. kSmall: scales have six
// bits and quants are unsigned, so that the products with three bits fit a byte. kBytes: magnitudes of scales fit a byte.
template <class T>
struct Planes {
  static constexpr bool kSmall = T::kMinimum, kBytes = !kSmall && !T::kRows && (T::kOwnScales || T::kMostScale < 256);
  static constexpr int kPlanes = T::kRows ? 1 : 2, kShift = kSmall ? 3 : 8;
};

constexpr int kTileBytes = 64, kSetsATile = kTileBytes / 4;     // columns of a product
constexpr int kSuperTiles = kSuperSteps * kBlock / kTileBytes;  // of a super-block

// A panel's part of a super-block, taken apart.
struct alignas(64) TakenPanel {
  uint8_t planes[kSuperTiles][2][kSetsATile][64];
  float d[kLanes], dmin[kLanes];  // what is left of the scales, and of the minima
  uint8_t minima[128];
};

// Scales of 16 rows as sets meet them. Each is twice a lane, as 16 bits: in `first` and `second` with kSmall its upper and its
// lower three bits, with kBytes its magnitude in the lower and in the upper byte, where `negative` has four bits a lane; otherwise
// all of it in the first.
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
  if constexpr (To::kSmall) {
    u_store(high[J], _mm512_mullo_epi16(w, scale.first));
    u_store(low[J], _mm512_mullo_epi16(w, scale.second));
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

constexpr int kPair = 2;  // panels that are multiplied together

// Takes panels `first` and, if there is one, first + 1 of a group apart: n_steps of its super-block at q. Where they are fewer than
// kSuperSteps, the matrix ends there.
template <class T, int kLater>
inline void take_pair(const uint8_t* q, int width, int first, int n_steps, Asking<kLater>& asking, TakenPanel* out) {
  const size_t step_bytes = size_t(T::kQuantBytes + T::kScaleBytes) * width;
  const int n_panels = std::min(kPair, width - first);
  const uint8_t *steps = q + size_t(T::kSuperBytes) * width, *quants = steps + 64 * first;
  const uint8_t *scales = steps + T::kQuantBytes * width + T::kScaleBytes * first;
  F inverse[kPair];
  for (int p = 0; p < n_panels; p++) {
    F d = f_zero(), dmin = f_zero();
    if constexpr (T::kOwnScales) {
      const uint8_t* super = q + T::kSuperBytes * (first + p);
      T::read_super(super, d, dmin);
      if constexpr (T::kMinimum) std::memcpy(out[p].minima, super + kToMinima, sizeof out[p].minima);
    } else if constexpr (!T::kRows) {
      WholeScales<T> whole;
      for (int b = 0; b < n_steps; b++) whole.add(T::scale(scales + step_bytes * b + T::kScaleBytes * p));
      d = whole.d(), inverse[p] = whole.inverse();
    }
    f_store(out[p].d, d), f_store(out[p].dmin, dmin);
    if (n_steps % 2)
      for (auto& plane : out[p].planes[n_steps / 2]) std::memset(plane[kSetsATile / 2], 0, sizeof plane / 2);
  }
  for (int b = 0; b < n_steps; b++, quants += step_bytes, scales += step_bytes, asking.take())
    for (int p = 0; p < n_panels; p++) {
      const uint8_t* own = scales + T::kScaleBytes * p;
      I whole = i_set(1);
      if constexpr (T::kOwnScales) whole = T::scale(own);
      else if constexpr (!T::kRows) whole = WholeScales<T>::whole(T::scale(own), inverse[p]);
      const SetScale scale = set_scale<T>(whole);
      SetScale second = scale;
      if constexpr (T::kHalves) second = set_scale<T>(T::second_scale(own));
      uint8_t(*high)[64] = out[p].planes[b / 2][0] + b % 2 * 8, (*low)[64] = out[p].planes[b / 2][1] + b % 2 * 8;
      put_half<T, 0>(quants + 64 * p, 64 * width, scale, high, low);
      put_half<T, 4>(quants + 64 * p, 64 * width, second, high, low);
    }
}

// 64 numbers as round_block rounds them.
inline U rounded_bytes(const float* x, float inverse) {
  auto words = [&](int i) { return _mm512_packs_epi32(rounded(x + i, inverse), rounded(x + i + kLanes, inverse)); };
  const U order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words(0), words(2 * kLanes)));
}

// The sums of kSuperSteps blocks' quants from those of eight quants with 128 added, of which each 64 bits hold four in 16 bits:
// the lower 256 bits those of the even blocks, in order.
inline void put_sums(U eights, int8_t* high, int8_t* low) {
  const U pairs = _mm512_add_epi16(eights, _mm512_permutex_epi64(eights, 0x4e)), fours = _mm512_add_epi16(pairs, _mm512_permutex_epi64(pairs, 0xb1));
  const __m128i even = _mm512_castsi512_si128(fours), odd = _mm512_extracti32x4_epi32(fours, 2);
  const __m128i sums = _mm_sub_epi16(_mm_unpacklo_epi16(even, odd), _mm_set1_epi16(128 * kBlock));
  const __m128i times = _mm_srai_epi16(_mm_add_epi16(sums, _mm_set1_epi16(64)), 7);
  _mm_storeu_si64(high, _mm_cvtepi16_epi8(times));
  _mm_storeu_si64(low, _mm_cvtepi16_epi8(_mm_sub_epi16(sums, _mm_slli_epi16(times, 7))));
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
    put_sums(eights, out->sums[lane], out->sums[lane] + kSuperSteps);
    out->scale[lane] = shared.scale;
  }
}

// Sums of P panels' planes.
template <int P>
struct alignas(64) UnitSums {
  int32_t sums[P][2][kWideRows][kLanes];
};

template <int Sum, bool Signed>
GRISTMILL_INLINE void add_bytes() {
  constexpr int kRight = 4 + Sum % 2;
  if constexpr (Signed)
    asm volatile("tdpbssd %%tmm%c0, %%tmm2, %%tmm%c1" ::"i"(kRight), "i"(kSumTiles[Sum]) : "memory");
  else
    asm volatile("tdpbsud %%tmm%c0, %%tmm2, %%tmm%c1" ::"i"(kRight), "i"(kSumTiles[Sum]) : "memory");
}

template <class T, int P, int kLater>
GRISTMILL_INLINE void multiply_planes(const WideBlock& a, const WideBlock* next, const TakenPanel* w, int n_tiles, UnitSums<P>& out, Asking<kLater>& asking) {
  using To = Planes<T>;
  clear_tiles(Tiles<2 * P>());
  for (int k = 0; k < n_tiles; k++, asking.multiply()) {
    ask_for<sizeof a.q[0], 3>(next, int(k * sizeof a.q[0]));
    load_tile<2>(a.q[k], kTileBytes);
    load_tile<4>(w[0].planes[k][0], 64);
    add_bytes<0, !To::kSmall>();
    if constexpr (To::kPlanes > 1) {
      load_tile<5>(w[0].planes[k][1], 64);
      add_bytes<1, false>();
    }
    if constexpr (P > 1) {
      load_tile<4>(w[1].planes[k][0], 64);
      add_bytes<2, !To::kSmall>();
      if constexpr (To::kPlanes > 1) {
        load_tile<5>(w[1].planes[k][1], 64);
        add_bytes<3, false>();
      }
    }
  }
  store_tile<0>(out.sums[0][0], 64);
  if constexpr (To::kPlanes > 1) store_tile<1>(out.sums[0][1], 64);
  if constexpr (P > 1) {
    store_tile<6>(out.sums[1][0], 64);
    if constexpr (To::kPlanes > 1) store_tile<7>(out.sums[1][1], 64);
  }
}

// acc + the sums of one row as numbers.
template <class T>
GRISTMILL_INLINE F add_planes(const int32_t (*sums)[kWideRows][kLanes], int c, const WideBlock& a, const TakenPanel& w, F acc) {
  using To = Planes<T>;
  I total = i_load(sums[0][c]);
  if constexpr (To::kPlanes > 1) total = i_add(i_shift_left<To::kShift>(total), i_load(sums[1][c]));
  const F scale = f_set(a.scale[c]);
  if constexpr (T::kRows) return f_fma(f_of_i(total), scale, acc);
  if constexpr (T::kMinimum)
    acc = f_fnma(f_of_i(dot_minima(w.minima, a.sums[c], 4)), f_mul(f_load(w.dmin), scale), acc);
  return f_fma(f_of_i(total), f_mul(f_load(w.d), scale), acc);
}

// Sums of a group with all those columns, which wait for the next super-block.
struct WidePartial {
  alignas(64) float sums[kGroup / kPair][kWideAtOnce][kPair * kLanes];
};

// A pair's (or a last panel's) part of a super-block, taken apart, with one tile of activations.
template <class T, int P>
struct PlanesVisit {
  const Matrix& w;
  const Columns& columns;
  const TakenPanel* taken;
  int panel, begin, end;
  const uint8_t* row_scales;  // of Q8R

  // n columns from `column` on; `sums` wait for the next super-block. next: what is multiplied then.
  template <int kLater>
  void tile(const WideBlock& a, const WideBlock* next, int column, int n, float (*sums)[kPair * kLanes], Asking<kLater>& asking) const {
    UnitSums<P> unit;
    multiply_planes<T, P>(a, next, taken, (end - begin + 1) / 2, unit, asking);
    if (end == w.n_steps()) return put(unit, a, column, n, sums);
    if (n < kWideRows) return add(unit, a, n, sums, asking);
    add(unit, a, kWideRows, sums, asking);  // the same, unrolled
  }

 private:
  GRISTMILL_INLINE F sum(const UnitSums<P>& unit, const WideBlock& a, int p, int c, const float (*sums)[kPair * kLanes]) const {
    return add_planes<T>(unit.sums[p], c, a, taken[p], begin ? f_load(sums[c] + p * kLanes) : f_zero());
  }

  template <int kLater>
  GRISTMILL_INLINE void add(const UnitSums<P>& unit, const WideBlock& a, int n, float (*sums)[kPair * kLanes], Asking<kLater>& asking) const {
#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
#pragma GCC unroll 2
      for (int p = 0; p < P; p++) {
        f_store(sums[c] + p * kLanes, sum(unit, a, p, c, sums));
        if (kLater && p == 0) asking.add();
      }
  }

  void put(const UnitSums<P>& unit, const WideBlock& a, int column, int n, float (*sums)[kPair * kLanes]) const {
    for (int p = 0; p < P; p++)
      for (int c = 0; c < n; c++) {
        F total = sum(unit, a, p, c, sums);
        if constexpr (T::kRows) total = f_mul(total, f_load(reinterpret_cast<const float*>(row_scales) + p * kLanes));
        put_lanes(w, columns, panel + p, column + c, total);
      }
  }
};

// With more tiles of activations what is next is asked for while they are multiplied alone; with so many, once so far beyond it and again later.
constexpr int kFewTiles = 2, kFarther = 2048, kLater = 6144;

// ---- bytes with one tile of activations ----------------------------------------------------------------------------------
// Here taking apart would cost more than it saves: bytes are multiplied where they lie, a step at a time.

constexpr int kBytesFarther = 2048, kBytesLater = 16384;

// sums[c] += a panel's n steps with row c, of which there are `rows`. kSteps: n where the compiler can know it, otherwise 0.
template <class T, int kSteps>
inline void bytes_super(const uint8_t* q, const uint8_t* scales, size_t step_bytes, int width, int n, const WideBlock& a, int rows,
                        bool begins, Asking<kBytesLater>& asking, float (*sums)[kLanes]) {
  constexpr int kLines = int(T::kQuantBytes + T::kScaleBytes) / 64, kStepLines = kLines / 2 + 1;
  alignas(64) int32_t products[kSuperSteps][kWideRows][kLanes];
  if (kSteps) n = kSteps;
  const int row_lines = n * (kLines + 1 - kStepLines) / rows;
  auto multiply = [&](auto odd, int b) __attribute__((always_inline)) {
    constexpr int kSum = decltype(odd)::value;
    asm volatile("tilezero %%tmm%c0" ::"i"(kSum) : "memory");
    load_tile<2 + kSum>(a.q[b / 2][0] + kSum * kBlock, kTileBytes);
    load_tile<4 + kSum>(q + step_bytes * b, 64 * size_t(width));
    asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(4 + kSum), "i"(2 + kSum), "i"(kSum) : "memory");
    asking.ask(kStepLines);
  };
#pragma GCC unroll 4
  for (int b = 0; b < n; b += 2) {
    multiply(Index<0>(), b);
    if (b + 1 < n) multiply(Index<1>(), b + 1);
    store_tile<0>(products[b], 64);
    if (b + 1 < n) store_tile<1>(products[b + 1], 64);
  }
  WholeScales<T> whole;
  I scale[kSuperSteps];
  F d = f_set(1.0f);
  if constexpr (!T::kRows) {
#pragma GCC unroll 8
    for (int b = 0; b < n; b++) whole.add(T::scale(scales + step_bytes * b));
    const F inverse = whole.inverse();
    d = whole.d();
#pragma GCC unroll 8
    for (int b = 0; b < n; b++) scale[b] = whole.whole(T::scale(scales + step_bytes * b), inverse);
  }
  for (int c = 0; c < rows; c++, asking.ask(row_lines)) {
    I total[2] = {i_set(0), i_set(0)};
#pragma GCC unroll 8
    for (int b = 0; b < n; b++) {
      const I sum = i_load(products[b][c]);
      total[b % 2] = i_add(total[b % 2], T::kRows ? sum : i_mul(sum, scale[b]));
    }
    const F acc = begins ? f_zero() : f_load(sums[c]);
    f_store(sums[c], f_fma(f_of_i(i_add(total[0], total[1])), f_mul(d, f_set(a.scale[c])), acc));
  }
}

template <class T>
void bytes_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  const TileShapes shapes(columns.n, kBlock, kBlock);
  const int n_steps = w.n_steps(), n = columns.n;
  float sums[kGroup][kWideRows][kLanes];
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    const int width = w.group_width(panel);
    const size_t panel_bytes = T::kQuantBytes + T::kScaleBytes, step_bytes = panel_bytes * width;
    for (int begin = 0; begin < n_steps; begin += kSuperSteps) {
      const int some = std::min(kSuperSteps, n_steps - begin);
      const uint8_t* q = group + step_bytes * begin;
      Asking<kBytesLater> asking{q + step_bytes * some + kBytesFarther};
      for (int p = 0; p < width; p++) {
        const uint8_t *quants = q + 64 * p, *scales = q + T::kQuantBytes * width + T::kScaleBytes * p;
        const WideBlock& a = columns.wide[begin / kSuperSteps];
        if (some == kSuperSteps) bytes_super<T, kSuperSteps>(quants, scales, step_bytes, width, some, a, n, !begin, asking, sums[p]);
        else bytes_super<T, 0>(quants, scales, step_bytes, width, some, a, n, !begin, asking, sums[p]);
      }
    }
    const uint8_t* row_scales = group + w.step_offset(width, n_steps);
    for (int p = 0; p < width; p++)
      for (int c = 0; c < n; c++) {
        F total = f_load(sums[p][c]);
        if constexpr (T::kRows) total = f_mul(total, f_load(reinterpret_cast<const float*>(row_scales) + p * kLanes));
        put_lanes(w, columns, panel + p, c, total);
      }
  }
}

// Bytes that lie as tiles multiply them, signed, as bytes + 128.
template <class T>
struct SignedBytes : T {
  template <int J>
  static U set(const uint8_t* q, int stride) { return _mm512_xor_si512(T::template set<J>(q, stride), _mm512_set1_epi8(-128)); }
};

void quantize_whole(const float* x, int n, bool, int lane, ActivationBlock* out) { quantize_shared<true>(x, n, lane, out); }

template <class Type>
void tiled_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& all) {
  using T = Whole<Type>;
  if (!all.wide) {
    if constexpr (T::kQuantBytes == 512) return blocked_linear<SignedBytes<T>>(w, matrix, panel, panel_end, all);
    else return blocked_linear<T>(w, matrix, panel, panel_end, all);
  }
  if constexpr (T::kQuantBytes == 512)
    if (all.n <= kWideRows) return bytes_linear<T>(w, matrix, panel, panel_end, all);
  TakenPanel taken[kPair];
  WidePartial partial;
  TileShapes shapes(all.n < kWideRows ? all.n : kWideRows, kTileBytes, kTileBytes);
  const int n_steps = w.n_steps(), n_supers = (n_steps + kSuperSteps - 1) / kSuperSteps;
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    const int width = w.group_width(panel);
    for (int first = 0; first < all.n; first += kWideAtOnce) {
      const Columns columns = all.some(first, kWideAtOnce, n_steps);
      const int n_tiles = (columns.n + kWideRows - 1) / kWideRows;
      for (int begin = 0; begin < n_steps; begin += kSuperSteps) {
        const int end = std::min(begin + kSuperSteps, n_steps);
        const uint8_t *q = group + w.step_offset(width, begin), *next = group + w.step_offset(width, end);
        const int n_lines = int(next - q) / 64 / (kGroup / kPair), n_products = n_tiles * kSuperTiles;
        auto multiply = [&](auto asking) __attribute__((always_inline)) {
          for (int pair = 0; pair < width; pair += kPair) {
            take_pair<T>(q, width, pair, end - begin, asking, taken);
            const uint8_t* row_scales = group + w.step_offset(width, n_steps) + pair * w.tail_bytes();
            auto visit = [&](auto visit) __attribute__((always_inline)) {
              const WideBlock *first_tile = columns.wide + begin / kSuperSteps, *a = first_tile;
              for (int column = 0; column < columns.n; column += kWideRows, a += n_supers) {
                const int n = std::min(columns.n - column, kWideRows);
                const WideBlock* then = column + kWideRows < columns.n ? a + n_supers : first_tile + 1;
                if (column && n < kWideRows) shapes.set(n, kTileBytes, kTileBytes);
                visit.tile(*a, then, column, n, partial.sums[pair / kPair] + column, asking);
                if (column && n < kWideRows) shapes.set(kWideRows, kTileBytes, kTileBytes);
              }
            };
            if (pair + 1 < width) visit(PlanesVisit<T, 2>{w, columns, taken, panel + pair, begin, end, row_scales});
            else visit(PlanesVisit<T, 1>{w, columns, taken, panel + pair, begin, end, row_scales});
          }
        };
        if (n_tiles > kFewTiles) multiply(Asking<0>{next, 0, n_lines / n_products + 1});
        else multiply(Asking<kLater>{next + kFarther, n_lines * 5 / (8 * kSuperSteps), n_lines / (4 * n_products), n_lines / (8 * columns.n) + 1});
      }
    }
  }
}

}  // namespace
}  // namespace gristmill
