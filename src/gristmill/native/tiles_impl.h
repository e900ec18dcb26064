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

constexpr int kPairColumns = 32;  // columns that one instruction multiplies

// Columns that many rows pass over before the next: so much of four panels stays in the first-level cache.
constexpr int kPairStretch = 256;

template <int Width>
inline void pair_group(const Matrix& w, const uint8_t* group, int panel, const Columns& all, TileShapes& shapes) {
  constexpr int kBytes = kPairColumns / 2 * 64 * Width;
  float sums[kWideAtOnce / kWideRows][Width][kWideRows][kLanes];
  const size_t row_bytes = size_t(w.cols + kBesideBf16) * 2;
  for (int first = 0; first < all.n; first += kWideAtOnce) {
    const Columns columns = all.some(first, kWideAtOnce, 0);
    const int n_tiles = (columns.n + kWideRows - 1) / kWideRows, stretch = n_tiles > 1 ? kPairStretch : w.cols;
    for (int begin = 0; begin < w.cols; begin += stretch) {
      const int end = std::min(begin + stretch, w.cols);
      const uint8_t* weights = group + size_t(begin) / kPairColumns * kBytes;
      Ahead ahead{weights + size_t(end - begin) / kPairColumns * kBytes, n_tiles > 1 ? kBytes / 64 / n_tiles + 1 : 0};
      for (int column = 0; column < columns.n; column += kWideRows) {
        const int n = std::min(columns.n - column, kWideRows);
        if (column && n < kWideRows) shapes.set(n, 64, 64);
        const uint16_t* x = columns.column[column].bf16;
        const uint8_t* q = weights;
        auto& out = sums[column / kWideRows];
        if (begin) load_tiles(Tiles<Width>(), out[0][0], kWideRows * kLanes, kLanes);
        else clear_tiles(Tiles<Width>());
        for (int k = begin; k < end; k += kPairColumns, q += kBytes) {
          if (n_tiles == 1) ask_for_stream<kBytes>(q);
          ahead.fetch();
          load_tile<2>(x + k, row_bytes);
          add_pairs_of<2>(Tiles<Width>(), [&](int p) { return q + 64 * p; }, 64 * Width);
        }
        store_tiles(Tiles<Width>(), out[0][0], kWideRows * kLanes, kLanes);
        if (end == w.cols)
          for (int p = 0; p < Width; p++) put_tile(w, columns, panel + p, column, n, out[p]);
        if (column && n < kWideRows) shapes.set(kWideRows, 64, 64);
      }
    }
  }
}

void pair_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  if (w.cols % kPairColumns) return plain_linear<PlainBf16>(w, matrix, panel, panel_end, columns);
  TileShapes shapes(columns.n < kWideRows ? columns.n : kWideRows, 64, 64);
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    switch (w.group_width(panel)) {
      case 1: pair_group<1>(w, group, panel, columns, shapes); break;
      case 2: pair_group<2>(w, group, panel, columns, shapes); break;
      case 3: pair_group<3>(w, group, panel, columns, shapes); break;
      default: pair_group<4>(w, group, panel, columns, shapes);
    }
  }
}

// ---- limits ---------------------------------------------------------------------------------------------------------

// n times four products of `columns` columns. Returns the operations.
template <class Products>
inline double tile_rounds(int64_t n, int columns, Products products) {
  const TileShapes shapes(kWideRows, 64, 64);
  clear_tiles(Tiles<4>());
  asm volatile("tilezero %%tmm2\n\ttilezero %%tmm3\n\ttilezero %%tmm4\n\ttilezero %%tmm5" ::: "memory");
  for (int64_t i = 0; i < n; i++) products();
  return double(n) * 4 * kWideRows * kLanes * columns * 2;
}

double peak_bf16_tiles(int64_t n) {
  return tile_rounds(n, 32, [] {
    asm volatile(
        "tdpbf16ps %%tmm4, %%tmm2, %%tmm0\n\ttdpbf16ps %%tmm5, %%tmm2, %%tmm1\n\t"
        "tdpbf16ps %%tmm4, %%tmm3, %%tmm6\n\ttdpbf16ps %%tmm5, %%tmm3, %%tmm7" ::: "memory");
  });
}

double peak_int8_tiles(int64_t n) {
  return tile_rounds(n, 64, [] {
    asm volatile(
        "tdpbssd %%tmm4, %%tmm2, %%tmm0\n\ttdpbssd %%tmm5, %%tmm2, %%tmm1\n\t"
        "tdpbssd %%tmm4, %%tmm3, %%tmm6\n\ttdpbssd %%tmm5, %%tmm3, %%tmm7" ::: "memory");
  });
}

constexpr Peaks kTilePeaks = {peak_f32, peak_bf16_tiles, peak_int8_tiles, read_all};

}  // namespace
}  // namespace gristmill
