// y = x W^T for quantized weights in the tiles of Intel's AMX, of any number of rows. Included after tiles_few_impl.h.
//
// Panels are taken apart once for up to kWideAtOnce rows, two at a time, and meet tile after tile of them. Where these are
// many, the sums of one become floats while the next is multiplied.
#pragma once
#include "tiles_few_impl.h"

namespace gristmill {
namespace {

constexpr int kPair = 2;  // panels that are multiplied together

// Takes panels `first` and, if there is one, first + 1 of a group apart: n_steps of its super-block at q. Where they are fewer
// than kSuperSteps, the matrix ends there.
template <class T>
inline void take_pair(const uint8_t* q, int width, int first, int n_steps, TakenPanel* out) {
  const size_t step_bytes = size_t(T::kQuantBytes + T::kScaleBytes) * width;
  const int n_panels = std::min(kPair, width - first);
  const uint8_t *steps = q + size_t(T::kSuperBytes) * width, *quants = steps + 64 * first;
  const SuperScales scales = of_panel<T>({q, steps + T::kQuantBytes * width, step_bytes, width}, first);
  F inverse[kPair];
  for (int p = 0; p < n_panels; p++) {
    inverse[p] = take_scales<T>(of_panel<T>(scales, p), n_steps, out[p].scales);
    if (n_steps % 2) take_nothing(n_steps, out[p].planes);
  }
  for (int b = 0; b < n_steps; b++, quants += step_bytes)
    for (int p = 0; p < n_panels; p++)
      take_step<T>(quants + 64 * p, 64 * width, of_panel<T>(scales, p), inverse[p], b, out[p].planes);
}

// Sums of a group with all those columns, which wait for the next super-block.
struct WidePartial {
  alignas(64) float sums[kGroup / kPair][kWideAtOnce][kPair * kLanes];
};

// From so many rows on sums become floats beside the next products. All else is slower for it, as if the clock were, and fewer
// rows lose.
constexpr int kManyRows = 128;

// P panels' part of a super-block, taken apart, from step `begin` on, meets all tiles of rows. Last: sums are complete then and
// go to y, panel `first` and the next, times the scales of rows of Q8R. (What is often needed comes as arguments: see
// FewStages::turn.)
template <class T, int P, bool Last, bool Beside>
void many_rows(const Matrix& w, const Columns& columns, const TakenPanel* panels, int begin, int first, const uint8_t* row_scales,
               float (*sums)[kPair * kLanes], Asking<0>& asked) {
  alignas(64) int32_t products[P][2][kWideRows][kLanes];
  const int n_steps = w.n_steps(), n_products = (std::min(kSuperSteps, n_steps - begin) + 1) / 2;
  const size_t apart = size_t(n_steps + kSuperSteps - 1) / kSuperSteps;
  const WideBlock *a = columns.wide + begin / kSuperSteps, *then = a + 1;
  Asking<0> asking = asked;
  auto multiply = [&](int k, const WideBlock* left, const WideBlock* next) __attribute__((always_inline)) {
    if (k >= n_products) return;
    ask_for<sizeof left->q[0], 3>(next, int(k * sizeof left->q[0]));
    load_tile<2>(left->q[k], kTileBytes);
    each_tile_of<P>([&](auto p) __attribute__((always_inline)) {
      load_tile<4>(panels[p].planes[k][0], 64);
      add_bytes<2 * p, !Planes<T>::kSmall>();
      if constexpr (Planes<T>::kPlanes > 1) {
        load_tile<5>(panels[p].planes[k][1], 64);
        add_bytes<2 * p + 1, false>();
      }
    });
    asking.multiply();
  };
  auto add = [&](int c, int column, const WideBlock* left) __attribute__((always_inline)) {
    float* sum = sums[column + c];
    each_tile_of<P>([&](auto p) __attribute__((always_inline)) {
      F total = add_planes<T>(products[p], c, *left, panels[p].scales, begin ? f_load(sum + p * kLanes) : f_zero());
      if constexpr (!Last) {
        f_store(sum + p * kLanes, total);
      } else {
        if constexpr (T::kRows) total = f_mul(total, f_load(reinterpret_cast<const float*>(row_scales) + p * kLanes));
        put_lanes(w, columns, first + p, column + c, total);
      }
    });
  };
  auto store = [&]() __attribute__((always_inline)) {
    each_tile_of<P>([&](auto p) __attribute__((always_inline)) {
      store_tile<kSumTiles[2 * p]>(products[p][0], 64);
      if constexpr (Planes<T>::kPlanes > 1) store_tile<kSumTiles[2 * p + 1]>(products[p][1], 64);
    });
  };
  auto add_all = [&](int column, const WideBlock* left) __attribute__((always_inline)) {
    const int n = std::min(kWideRows, columns.n - column);
#pragma GCC unroll 4
    for (int c = 0; c < n; c++) add(c, column, left);
  };
  auto multiply_all = [&](const WideBlock* left, const WideBlock* next) __attribute__((always_inline)) {
    clear_tiles(Tiles<2 * P>());
    for (int k = 0; k < n_products; k++) multiply(k, left, next);
    store();
  };
  int column = kWideRows;  // of the next tile
  multiply_all(a, column < columns.n ? a + apart : then);
  for (; column < columns.n; column += kWideRows, a += apart) {
    const WideBlock *left = a + apart, *next = column + kWideRows < columns.n ? left + apart : then;
    if constexpr (Beside) {
      clear_tiles(Tiles<2 * P>());
#pragma GCC unroll 4
      for (int k = 0; k < kSuperTiles; k++) {
        multiply(k, left, next);
#pragma GCC unroll 4
        for (int c = 4 * k; c < 4 * k + 4; c++) add(c, column - kWideRows, a);
      }
      store();
    } else {
      add_all(column - kWideRows, a);
      multiply_all(left, next);
    }
  }
  add_all(column - kWideRows, a);
  asked = asking;
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
  if (all.n <= kWideRows) return few_linear<T, 1>(w, matrix, panel, panel_end, all);
  if (all.n <= 2 * kWideRows) return few_linear<T, 2>(w, matrix, panel, panel_end, all);
  TakenPanel taken[kPair];
  WidePartial partial;
  // Of the last rows too: other shapes would take longer than more rows.
  const TileShapes shapes(kWideRows, kTileBytes, kTileBytes);
  const int n_steps = w.n_steps();
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
          auto pass = [&](auto n_panels, auto last, auto beside) {
            many_rows<T, n_panels, last, beside>(w, columns, taken, begin, panel + pair, row_scales, partial.sums[pair / kPair],
                                                 asking);
          };
          auto choose = [&](auto last) {
            if (pair + 1 == width) pass(Index<1>(), last, Index<0>());
            else if (columns.n < kManyRows) pass(Index<2>(), last, Index<0>());
            else pass(Index<2>(), last, Index<1>());
          };
          if (end == n_steps) choose(Index<1>());
          else choose(Index<0>());
        }
      }
    }
  }
}

}  // namespace
}  // namespace gristmill
