// y = x W^T in the tiles of Intel's AMX, for 16 rows of activations at once. Included after kernels_impl.h, for AVX-512 alone.
//
// Int8: one instruction multiplies 16 rows of activations by a panel of weights, 32 columns of both, in whole numbers; what
// follows is what blocked_impl.h does with its sums, in the same order, so that the bits are the same.
// BF16: one instruction adds the products of 32 columns in an order of its own, so that single rows are tiles too.
#pragma once
#include "kernels_impl.h"
#include "simd_amx.h"

namespace gristmill {
namespace {

// ---- int8 -----------------------------------------------------------------------------------------------------------

// sums [16 activations, 16 weights] of signed bytes. Two sets of tiles, so that one product need not wait for the other.
template <int Which>
GRISTMILL_INLINE void multiply_tile(const int8_t* activations, const int8_t* weights, int32_t* sums) {
  asm volatile("tilezero %%tmm%c0" ::"i"(Which) : "memory");
  load_tile<2 + Which>(activations, kBlock);
  load_tile<4 + Which>(weights, 64);
  asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(4 + Which), "i"(2 + Which), "i"(Which) : "memory");
  store_tile<Which>(sums, 64);
}

// One step of a panel as the tiles take it: 8 sets of signed quants, then the scales, and the second ones or the minima.
template <class T>
struct alignas(64) SignedStep {
  int8_t q[512];
  float scales[T::kMinimum || T::kHalves ? 2 : 1][kLanes];
};

template <class T, int... J>
GRISTMILL_INLINE void expand_signed(const uint8_t* q, int stride, int8_t* out, std::integer_sequence<int, J...>) {
  const U zero = _mm512_set1_epi8(int8_t(T::kZero));
  (_mm512_store_si512(out + 64 * J, _mm512_sub_epi8(T::template set<J>(q, stride), zero)), ...);
}

// n_steps of a group, panel by panel. The first step is a multiple of 8.
template <class T>
inline void expand_group(const uint8_t* q, int width, int n_steps, SignedStep<T> (*out)[kStretch]) {
  F d[kGroup] = {}, dmin[kGroup] = {};
  for (int b = 0; b < n_steps; b++) {
    if (T::kSuperBytes && b % 8 == 0) {
      for (int p = 0; p < width; p++) read_super<T>(q + T::kSuperBytes * p, d[p], dmin[p]);
      q += T::kSuperBytes * width;
    }
    for (int p = 0; p < width; p++)
      expand_signed<T>(q + 64 * p, 64 * width, out[p][b].q, std::make_integer_sequence<int, 8>());
    q += T::kQuantBytes * width;
    if constexpr (!T::kRows)
      for (int p = 0; p < width; p++, q += T::kScaleBytes)
        expand_scales<T>(q, d[p], dmin[p], reinterpret_cast<uint8_t*>(out[p][b].scales));
  }
}

// Products of one step, taken to floats by add_step. Q6_K has two scales a step, and so two products.
struct alignas(64) TileSums {
  int32_t low[kWideRows][kLanes], high[kWideRows][kLanes];
};

template <class T>
GRISTMILL_INLINE void multiply_step(const SignedStep<T>& w, const WideBlock& a, TileSums& sums) {
  multiply_tile<0>(a.q[0], w.q, sums.low[0]);
  if constexpr (T::kHalves) multiply_tile<1>(a.q[0] + kBlock / 2, w.q + 256, sums.high[0]);
}

template <class T>
GRISTMILL_INLINE void add_step(const SignedStep<T>& w, const WideBlock& a, const TileSums& sums, F (&acc)[kWideRows]) {
  F scale = f_load(w.scales[0]), second = T::kMinimum || T::kHalves ? f_load(w.scales[T::kMinimum || T::kHalves]) : f_zero();
#pragma GCC unroll 16
  for (int c = 0; c < kWideRows; c++) {
    F sum = f_of_i(i_load(sums.low[c]));
    if constexpr (T::kHalves) {
      F half = f_mul(sum, scale);
      acc[c] = f_fma(f_fma(f_of_i(i_load(sums.high[c])), second, half), f_set(a.scale[c]), acc[c]);
    } else {
      acc[c] = f_fma(sum, T::kRows ? f_set(a.scale[c]) : f_mul(scale, f_set(a.scale[c])), acc[c]);
    }
    if constexpr (T::kMinimum) acc[c] = f_fnma(second, f_set(a.scaled_sum[c]), acc[c]);
  }
}

// n columns' results of a panel go to y; the matrix's last panel may be short.
inline void put_tile(const Matrix& w, const Columns& columns, int panel, int column, int n, const float (*out)[kLanes]) {
  const int row = panel * kLanes, left = w.rows - row;
  for (int c = 0; c < n; c++) {
    float* y = columns.column[column + c].y + columns.first_row + row;
    if (left >= kLanes) f_store(y, f_load(out[c]));
    else f_store_n(y, f_load(out[c]), left);
  }
}

// Steps begin .. end of a group with one tile of activations after another.
template <class T>
inline void tiled_stretch(const Matrix& w, const SignedStep<T> (*steps)[kStretch], int width, int panel, int begin, int end,
                          const uint8_t* row_scales, const Columns& columns, Partial& partial, Ahead ahead) {
  TileSums sums[2];
  for (int column = 0; column < columns.n; column += kWideRows) {
    const WideBlock* a = columns.wide + size_t(column / kWideRows) * w.n_steps() + begin;
    const int n = columns.n - column < kWideRows ? columns.n - column : kWideRows, n_steps = end - begin;
    for (int p = 0; p < width; p++) {
      F acc[kWideRows];
#pragma GCC unroll 16
      for (int c = 0; c < kWideRows; c++) acc[c] = begin ? f_load(partial.sums[column + c] + p * kLanes) : f_zero();
      multiply_step<T>(steps[p][0], a[0], sums[0]);
      for (int b = 0; b < n_steps; b++) {  // the next product is under way while this one's sums become floats
        if (b + 1 < n_steps) multiply_step<T>(steps[p][b + 1], a[b + 1], sums[(b + 1) % 2]);
        add_step<T>(steps[p][b], a[b], sums[b % 2], acc);
        ahead.fetch();
      }
      if (end < w.n_steps()) {
#pragma GCC unroll 16
        for (int c = 0; c < kWideRows; c++) f_store(partial.sums[column + c] + p * kLanes, acc[c]);
        continue;
      }
      float out[kWideRows][kLanes];
      const F row_scale = T::kRows ? f_load(reinterpret_cast<const float*>(row_scales) + kLanes * p) : f_zero();
#pragma GCC unroll 16
      for (int c = 0; c < kWideRows; c++) f_store(out[c], T::kRows ? f_mul(acc[c], row_scale) : acc[c]);
      put_tile(w, columns, panel + p, column, n, out);
    }
  }
}

template <class T>
void tiled_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& all) {
  if (!all.wide) return blocked_linear<T>(w, matrix, panel, panel_end, all);
  constexpr int kBytes = T::kHalves ? kBlock / 2 : kBlock;
  const TileShapes shapes(kWideRows, kBytes, kBytes);
  SignedStep<T> steps[kGroup][kStretch];
  Partial partial;
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    const int width = w.group_width(panel), n_steps = w.n_steps();
    const uint8_t* row_scales = group + w.step_offset(width, n_steps) - 64 * size_t(width);
    for (int first = 0; first < all.n; first += kColumnsAtOnce) {
      const Columns columns = some_columns(all, first, n_steps);
      const int n_tiles = (columns.n + kWideRows - 1) / kWideRows, stretch = n_tiles > 1 ? kStretch : kShortStretch;
      for (int b = 0; b < n_steps; b += stretch) {
        const int end = b + stretch < n_steps ? b + stretch : n_steps;
        const uint8_t *q = group + w.step_offset(width, b), *next = group + w.step_offset(width, end);
        expand_group<T>(q, width, end - b, steps);
        const Ahead ahead{next, int((next - q) / 64 / ((end - b) * n_tiles * width)) + 1};
        tiled_stretch<T>(w, steps, width, panel, b, end, row_scales, columns, partial, ahead);
      }
    }
  }
}

// ---- bfloat16 -------------------------------------------------------------------------------------------------------

constexpr int kPairColumns = 32;  // columns that one instruction multiplies

template <int Width>
inline void pair_group(const Matrix& w, const uint8_t* group, int panel, const Columns& columns, TileShapes& shapes) {
  constexpr int kBytes = kPairColumns / 2 * 64 * Width;
  float out[Width][kWideRows][kLanes];
  for (int column = 0; column < columns.n; column += kWideRows) {
    const int n = columns.n - column < kWideRows ? columns.n - column : kWideRows;
    if (column && n < kWideRows) shapes.set(n, 64, 64);
    const uint16_t* x = columns.column[column].bf16;
    const uint8_t* q = group;
    clear_tiles(Tiles<Width>());
    for (int k = 0; k < w.cols; k += kPairColumns, q += kBytes) {
      if (column == 0) ask_for_stream<kBytes>(q);
      load_tile<2>(x + k, size_t(w.cols) * 2);
      add_pairs_of<2>(Tiles<Width>(), [&](int p) { return q + 64 * p; }, 64 * Width);
    }
    store_tiles(Tiles<Width>(), out[0][0], kWideRows * kLanes, kLanes);
    for (int p = 0; p < Width; p++) put_tile(w, columns, panel + p, column, n, out[p]);
    if (column && n < kWideRows) shapes.set(kWideRows, 64, 64);
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
