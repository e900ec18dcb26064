// y = x W^T for quantized weights in the tiles of Intel's AMX, of any number of rows. Included after tiles_few_impl.h.
//
// Panels are taken apart once for up to kWideAtOnce rows, two at a time, and meet tile after tile of them.
#pragma once
#include "tiles_few_impl.h"

namespace gristmill {
namespace {

constexpr int kPair = 2;  // panels that are multiplied together

// Takes panels `first` and, if there is one, first + 1 of a group apart: n_steps of its super-block at q. Where they are fewer than
// kSuperSteps, the matrix ends there.
template <class T>
inline void take_pair(const uint8_t* q, int width, int first, int n_steps, TakenPanel* out) {
  const size_t step_bytes = size_t(T::kQuantBytes + T::kScaleBytes) * width;
  const int n_panels = std::min(kPair, width - first);
  const uint8_t *steps = q + size_t(T::kSuperBytes) * width, *quants = steps + 64 * first;
  const uint8_t* scales = steps + T::kQuantBytes * width + T::kScaleBytes * first;
  F inverse[kPair];
  for (int p = 0; p < n_panels; p++) {
    inverse[p] = take_scales<T>(q + T::kSuperBytes * (first + p), scales + T::kScaleBytes * p, step_bytes, n_steps, out[p].scales);
    if (n_steps % 2) take_nothing(n_steps, out[p].planes);
  }
  for (int b = 0; b < n_steps; b++, quants += step_bytes, scales += step_bytes)
    for (int p = 0; p < n_panels; p++) take_step<T>(quants + 64 * p, 64 * width, scales + T::kScaleBytes * p, inverse[p], b, out[p].planes);
}

// Sums of P panels' planes.
template <int P>
struct alignas(64) UnitSums {
  int32_t sums[P][2][kWideRows][kLanes];
};

template <class T, int P>
GRISTMILL_INLINE void multiply_planes(const WideBlock& a, const WideBlock* next, const TakenPanel* w, int n_tiles, UnitSums<P>& out, Asking<0>& asking) {
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
  void tile(const WideBlock& a, const WideBlock* next, int column, int n, float (*sums)[kPair * kLanes], Asking<0>& asking) const {
    UnitSums<P> unit;
    multiply_planes<T, P>(a, next, taken, (end - begin + 1) / 2, unit, asking);
    if (end == w.n_steps()) return put(unit, a, column, n, sums);
    if (n < kWideRows) return add(unit, a, n, sums);
    add(unit, a, kWideRows, sums);  // the same, unrolled
  }

 private:
  GRISTMILL_INLINE F sum(const UnitSums<P>& unit, const WideBlock& a, int p, int c, const float (*sums)[kPair * kLanes]) const {
    return add_planes<T>(unit.sums[p], c, a, taken[p].scales, begin ? f_load(sums[c] + p * kLanes) : f_zero());
  }

  GRISTMILL_INLINE void add(const UnitSums<P>& unit, const WideBlock& a, int n, float (*sums)[kPair * kLanes]) const {
#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
#pragma GCC unroll 2
      for (int p = 0; p < P; p++) f_store(sums[c] + p * kLanes, sum(unit, a, p, c, sums));
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
  if (all.n <= kWideRows) return few_linear<T, 1>(w, matrix, panel, panel_end, all);
  if (all.n <= 2 * kWideRows) return few_linear<T, 2>(w, matrix, panel, panel_end, all);
  TakenPanel taken[kPair];
  WidePartial partial;
  const TileShapes shapes(kWideRows, kTileBytes, kTileBytes);  // of the last rows too: other shapes would take longer than more rows
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
        Asking<0> asking{next, 0, int(next - q) / 64 / (kGroup / kPair * n_tiles * kSuperTiles) + 1};
        for (int pair = 0; pair < width; pair += kPair) {
          take_pair<T>(q, width, pair, end - begin, taken);
          const uint8_t* row_scales = group + w.step_offset(width, n_steps) + pair * w.tail_bytes();
          auto visit = [&](auto visit) __attribute__((always_inline)) {
            const WideBlock *first_tile = columns.wide + begin / kSuperSteps, *a = first_tile;
            for (int column = 0; column < columns.n; column += kWideRows, a += n_supers) {
              const int n = std::min(columns.n - column, kWideRows);
              const WideBlock* then = column + kWideRows < columns.n ? a + n_supers : first_tile + 1;
              visit.tile(*a, then, column, n, partial.sums[pair / kPair] + column, asking);
            }
          };
          if (pair + 1 < width) visit(PlanesVisit<T, 2>{w, columns, taken, panel + pair, begin, end, row_scales});
          else visit(PlanesVisit<T, 1>{w, columns, taken, panel + pair, begin, end, row_scales});
        }
      }
    }
  }
}

}  // namespace
}  // namespace gristmill
