// y = x W^T for bfloat16 in the tiles of Intel's AMX, 16 rows of activations at once, and what these tiles reach. Included after
// kernels_impl.h, for AVX-512 alone.
//
// One instruction adds the products of 32 columns of bfloat16, in an order of its own, so that single rows are tiles too.
#pragma once
#include <algorithm>

#include "kernels_impl.h"
#include "simd_amx.h"

namespace gristmill {
namespace {

constexpr int kWideAtOnce = 512;  // rows of activations for which weights are read, and taken apart, once

// A column's results of a panel go to y; the matrix's last panel may be short.
GRISTMILL_INLINE void put_lanes(const Matrix& w, const Columns& columns, int panel, int column, F out) {
  const int row = panel * kLanes, left = w.rows - row;
  float* y = columns.column[column].y + columns.first_row + row;
  if (left >= kLanes) f_store(y, out);
  else f_store_n(y, out, left);
}

// The same of n columns.
inline void put_tile(const Matrix& w, const Columns& columns, int panel, int column, int n, const float (*out)[kLanes]) {
  for (int c = 0; c < n; c++) put_lanes(w, columns, panel, column + c, f_load(out[c]));
}

// What is needed later is asked for evenly, in whatever is done meanwhile: asked for at once, a core waits for it, and memory
// for a core that asks for nothing. Intel's fetch more when asked twice: into the second-level cache and, kLater bytes later,
// into the first.
template <int kLater>
struct Asking {
  const uint8_t* next;
  // Lines of 64 bytes with each step that is taken apart, and with each product of a group's tiles.
  int taking = 0, multiplying = 0;

  void take() { ask(taking); }
  void multiply() { ask(multiplying); }
  void ask(int n) {
    for (const uint8_t* end = next + 64 * n; next < end; next += 64) {
      __builtin_prefetch(next, 0, 2);
      if (kLater) __builtin_prefetch(next - kLater, 0, 3);
    }
  }
};

constexpr int kPairColumns = 32;  // columns that one instruction multiplies

// Columns that many rows pass over before the next: so much of four panels stays in the first-level cache.
constexpr int kPairStretch = 256;

// A group's words of pairs, which tiles multiply where they lie. A step of kStepColumns is kWords of them a panel; one tile of
// rows meets kFewStretch columns at a time. kTaken: words are taken apart before.
template <int Width>
struct StoredPairs {
  static constexpr int kWords = 1, kStepColumns = 2, kFewStretch = INT32_MAX;
  static constexpr bool kTaken = false;
  const uint8_t* group;
  StoredPairs(const Matrix&, const uint8_t* group) : group(group) {}
  void restart() {}
  const uint8_t* words(int begin, int, Asking<0>&) const { return group + size_t(begin) / kStepColumns * Width * 64; }
};

// Those of a shortened group, taken apart into the first-level cache.
template <int Width>
class ShortenedPairs {
  using C = Code<Pack::BF16_12>;

 public:
  static constexpr int kWords = C::kWords, kStepColumns = C::kColumns, kFewStretch = kPairColumns;
  static constexpr bool kTaken = true;
  ShortenedPairs(const Matrix& w, const uint8_t* group)
      : group_(group), bases_(group + w.step_offset(Width, w.n_steps())), all_(w, group, Width), patches_(all_) {}
  // With the first column.
  void restart() { patches_ = all_; }
  // Of columns begin .. end, in order.
  const uint8_t* words(int begin, int end, Asking<0>& asking) {
    const uint8_t* q = group_ + size_t(begin) / C::kColumns * C::kWords * C::kWordBytes * Width;
    take_apart<C>(q, bases_, Width, begin, end, patches_, words_, [&] { asking.take(); });
    return words_;
  }

 private:
  alignas(64) uint8_t words_[kPairStretch / 2 * Width * 64];
  const uint8_t *group_, *bases_;
  Patches<C> all_, patches_;
};

template <class Pairs, int Width>
inline void pair_group(const Matrix& w, const uint8_t* group, int panel, const Columns& all, TileShapes& shapes) {
  constexpr int kBytes = kPairColumns / 2 * 64 * Width;
  constexpr int kStepLines = Pairs::kWords * Width, kLines = kPairColumns / Pairs::kStepColumns * kStepLines;
  float sums[kWideAtOnce / kWideRows][Width][kWideRows][kLanes];
  const size_t row_bytes = size_t(w.cols + kBesideBf16) * 2;
  Pairs pairs(w, group);
  for (int first = 0; first < all.n; first += kWideAtOnce) {
    const Columns columns = all.some(first, kWideAtOnce, 0);
    const int n_tiles = (columns.n + kWideRows - 1) / kWideRows;
    const bool once = n_tiles == 1;
    const int stretch = once ? std::min(Pairs::kFewStretch, w.cols) : kPairStretch;
    pairs.restart();
    Asking<0> asking{group + kAheadTakenApart, Pairs::kTaken ? kStepLines : 0, Pairs::kTaken ? 0 : kLines};
    for (int begin = 0; begin < w.cols; begin += stretch) {
      const int end = std::min(begin + stretch, w.cols);
      if (!once) {
        const uint8_t* next = group + w.step_offset(Width, end / Pairs::kStepColumns);
        asking = {next, 0, kLines / n_tiles + 1};
      }
      const uint8_t* weights = pairs.words(begin, end, asking);
      for (int column = 0; column < columns.n; column += kWideRows) {
        const int n = std::min(columns.n - column, kWideRows);
        if (column && n < kWideRows) shapes.set(n, 64, 64, n);
        const uint16_t* x = columns.column[column].bf16;
        const uint8_t* q = weights;
        auto& out = sums[column / kWideRows];
        if (!begin) clear_tiles(Tiles<Width>());
        else if (!once) load_tiles(Tiles<Width>(), out[0][0], kWideRows * kLanes, kLanes);
        auto multiply = [&](auto left, int k) __attribute__((always_inline)) {
          load_tile<left>(x + k, row_bytes);
          add_pairs_of<left>(Tiles<Width>(), [&](int p) { return q + 64 * p; }, 64 * Width);
          asking.multiply();
          q += kBytes;
        };
        int k = begin;
        for (; k + kPairColumns < end; k += 2 * kPairColumns) multiply(Index<2>(), k), multiply(Index<3>(), k + kPairColumns);
        if (k < end) multiply(Index<2>(), k);
        if (!once || end == w.cols) store_tiles(Tiles<Width>(), out[0][0], kWideRows * kLanes, kLanes);
        if (end == w.cols)
          for (int p = 0; p < Width; p++) put_tile(w, columns, panel + p, column, n, out[p]);
        if (column && n < kWideRows) shapes.set(kWideRows, 64, 64, kWideRows);
      }
    }
  }
}

template <template <int> class Pairs>
void pair_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  if (w.cols % kPairColumns) return plain_linear<PlainBf16>(w, matrix, panel, panel_end, columns);
  TileShapes shapes(columns.n < kWideRows ? columns.n : kWideRows, 64, 64);
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    switch (w.group_width(panel)) {
      case 1: pair_group<Pairs<1>, 1>(w, group, panel, columns, shapes); break;
      case 2: pair_group<Pairs<2>, 2>(w, group, panel, columns, shapes); break;
      case 3: pair_group<Pairs<3>, 3>(w, group, panel, columns, shapes); break;
      default: pair_group<Pairs<4>, 4>(w, group, panel, columns, shapes);
    }
  }
}

void short_pair_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  if (w.cols % kPairColumns) return shortened_linear<PlainBf16>(w, matrix, panel, panel_end, columns);
  pair_linear<ShortenedPairs>(w, matrix, panel, panel_end, columns);
}

// ---- limits ---------------------------------------------------------------------------------------------------------

// n times four products of `columns` columns. Returns the operations.
template <class Products>
inline double tile_rounds(int64_t n, int columns, Products products) {
  const TileShapes shapes(kWideRows, 64, 64);
  clear_tiles(Tiles<4>());
  clear_tile<2>(), clear_tile<3>(), clear_tile<4>(), clear_tile<5>();
  for (int64_t i = 0; i < n; i++) products();
  return double(n) * 4 * kWideRows * kLanes * columns * 2;
}

double peak_bf16_tiles(int64_t n) {
  return tile_rounds(n, 32, [] {
    multiply_pairs<0, 2, 4>(), multiply_pairs<1, 2, 5>(), multiply_pairs<6, 3, 4>(), multiply_pairs<7, 3, 5>();
  });
}

double peak_int8_tiles(int64_t n) {
  return tile_rounds(n, 64, [] {
    multiply_bytes<0, 2, 4, true>(), multiply_bytes<1, 2, 5, true>();
    multiply_bytes<6, 3, 4, true>(), multiply_bytes<7, 3, 5, true>();
  });
}

constexpr Peaks kTilePeaks = {peak_f32, peak_bf16_tiles, peak_int8_tiles, read_all};

}  // namespace
}  // namespace gristmill
