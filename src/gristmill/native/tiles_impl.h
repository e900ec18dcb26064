// y = x W^T in the tiles of Intel's AMX, for 16 rows of activations at once. Included after kernels_impl.h, for AVX-512 alone.
//
// Int8: one instruction multiplies 16 rows of activations by a panel of weights, 32 columns of both, in whole numbers; what
// follows is what blocked_impl.h does with its sums, in the same order, so that the bits are the same. Bytes are multiplied
// where they lie, other quants once they have been taken apart.
// BF16: one instruction adds the products of 32 columns in an order of its own, so that single rows are tiles too.
#pragma once
#include "kernels_impl.h"
#include "simd_amx.h"

namespace gristmill {
namespace {

// ---- int8 -----------------------------------------------------------------------------------------------------------

// A type of Q8 whose bytes lie as tiles multiply them, signed; fewer rows of activations are multiplied by bytes + 128, as ever.
template <class T>
struct SignedBytes : T {
  template <int J>
  static U set(const uint8_t* q, int stride) { return _mm512_xor_si512(T::template set<J>(q, stride), _mm512_set1_epi8(-128)); }
};

// A step of another type, taken apart: signed bytes, then the scales, and the second ones, as Expanded<T> has them. The first
// of steps that share the activations' scale has what these begin with.
template <class T>
struct alignas(64) SignedStep {
  int8_t q[512];
  int32_t scales[T::kHalves ? 2 : 1][kLanes];
  uint8_t super[T::kSuperBytes];
};

template <class T, int... J>
GRISTMILL_INLINE void expand_signed(const uint8_t* q, int stride, int8_t* out, std::integer_sequence<int, J...>) {
  const U zero = _mm512_set1_epi8(int8_t(T::kZero));
  (_mm512_store_si512(out + 64 * J, _mm512_sub_epi8(T::template set<J>(q, stride), zero)), ...);
}

// n_steps of a group, panel by panel. The first step is a multiple of kSuperSteps.
template <class T>
inline void expand_group(const uint8_t* q, int width, int n_steps, SignedStep<T> (*out)[kStretch]) {
  for (int b = 0; b < n_steps; b++) {
    if constexpr (T::kSuperBytes > 0)
      if (b % kSuperSteps == 0)
        for (int p = 0; p < width; p++, q += T::kSuperBytes) std::memcpy(out[p][b].super, q, T::kSuperBytes);
    for (int p = 0; p < width; p++)
      expand_signed<T>(q + 64 * p, 64 * width, out[p][b].q, std::make_integer_sequence<int, 8>());
    q += T::kQuantBytes * width;
    if constexpr (!T::kRows)
      for (int p = 0; p < width; p++, q += T::kScaleBytes)
        expand_scales<T>(q, reinterpret_cast<uint8_t*>(out[p][b].scales));
  }
}

// Where a panel's first step begins, and its scales. Sets are Steps::kSet bytes apart, steps Steps::kStep.
struct Panel {
  const uint8_t *q, *scales;
};

// What a core should fetch meanwhile. Intel's fetch more when asked twice: into the second-level cache, later into the first.
struct AheadTwice {
  static constexpr int kFar = 4096, kNear = -12288;  // from what Ahead would ask for
  Ahead ahead;
  void fetch() {
    for (int i = 0; i < ahead.lines; i++) {
      __builtin_prefetch(ahead.next + kFar + 64 * i, 0, 2);
      __builtin_prefetch(ahead.next + kNear + 64 * i, 0, 3);
    }
    ahead.next += 64 * ahead.lines;
  }
};

// The steps of a whole group of bytes, as they lie there.
template <class T>
struct StoredSteps {
  using Ask = AheadTwice;
  static constexpr size_t kSet = 64 * kGroup, kStep = (T::kQuantBytes + T::kScaleBytes) * kGroup;
  const uint8_t* q;
  Panel panel(int p) const { return {q + 64 * p, q + T::kQuantBytes * kGroup + T::kScaleBytes * p}; }
};

template <class T>
struct TakenSteps {
  using Ask = Ahead;
  static constexpr size_t kSet = 64, kStep = sizeof(SignedStep<T>);
  const SignedStep<T> (*steps)[kStretch];
  Panel panel(int p) const {
    return {reinterpret_cast<const uint8_t*>(steps[p][0].q), reinterpret_cast<const uint8_t*>(steps[p][0].scales)};
  }
};

// Sums of one step [16 activations, 16 weights]. Q6_K has two scales a step, and so two of them.
template <class T>
struct alignas(64) StepSums {
  int32_t low[kWideRows][kLanes], high[T::kHalves ? kWideRows : 1][kLanes];
};

// A product of signed bytes: activations in tile `Left`, weights, a set of which is `stride` bytes after the one before, in Left + 2.
template <int Sum, int Left>
GRISTMILL_INLINE void multiply_bytes(const int8_t* activations, const uint8_t* weights, size_t stride) {
  asm volatile("tilezero %%tmm%c0" ::"i"(Sum) : "memory");
  load_tile<Left>(activations, kBlock);
  load_tile<Left + 2>(weights, stride);
  asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(Left + 2), "i"(Left), "i"(Sum) : "memory");
}

// One of two sets of tiles, in which products are under way while those of the other one are stored.
template <class T, int Set>
struct StepTiles {
  template <size_t kSet>
  static GRISTMILL_INLINE void multiply(const uint8_t* q, const WideBlock& a) {
    multiply_bytes<Set, 2 + Set>(a.q[0], q, kSet);
    if constexpr (T::kHalves) multiply_bytes<6 + Set, 2 + Set>(a.q[0] + kBlock / 2, q + 4 * kSet, kSet);
  }
  static GRISTMILL_INLINE void store(StepSums<T>& sums) {
    store_tile<Set>(sums.low, 64);
    if constexpr (T::kHalves) store_tile<6 + Set>(sums.high, 64);
  }
};

template <class T, int Rows>
GRISTMILL_INLINE void add_step(const uint8_t* scales, const WideBlock& a, const StepSums<T>& sums, F (&acc)[Rows]) {
  F scale = f_zero();
  if constexpr (!T::kRows) scale = T::scale(scales);
#pragma GCC unroll 16
  for (int c = 0; c < Rows; c++) {
    F raised = f_raise(f_of_i(i_load(sums.low[c])), a.raise[c]);
    acc[c] = T::kRows ? f_add(acc[c], raised) : f_fma(raised, scale, acc[c]);
  }
}

// What steps that share the activations' scale begin with; a: the first one's.
template <class T, int Rows>
GRISTMILL_INLINE void start_shared(const uint8_t* scales, const WideBlock* a, I (&total)[Rows], F (&acc)[Rows]) {
  const uint8_t* super = scales + T::kScaleBytes;
  F d, dmin;
  T::read_super(super, d, dmin);
#pragma GCC unroll 16
  for (int c = 0; c < Rows; c++) {
    total[c] = i_set(0);
    if constexpr (T::kMinimum)
      acc[c] = f_fnma(f_of_i(dot_minima(super + kToMinima, a->sums[c], sizeof *a)), f_mul(dmin, f_set(a->scale[c])), acc[c]);
  }
}

// And what they end with; `scales` are the first one's.
template <class T, int Rows>
GRISTMILL_INLINE void end_shared(const uint8_t* scales, const WideBlock& a, const I (&total)[Rows], F (&acc)[Rows]) {
  F d, dmin;
  T::read_super(scales + T::kScaleBytes, d, dmin);
#pragma GCC unroll 16
  for (int c = 0; c < Rows; c++) acc[c] = f_fma(f_of_i(total[c]), shared_factor<T>(d, a.scale[c]), acc[c]);
}

// total += a pair of sums times their scales.
template <class T, int Rows>
GRISTMILL_INLINE void add_pair(const int32_t (*first)[kLanes], const int32_t (*second)[kLanes], I scale, I (&total)[Rows]) {
#pragma GCC unroll 16
  for (int c = 0; c < Rows; c++) {
    I low = i_add(i_load(first[c]), i_set(kRound<T, 0>)), high = i_add(i_load(second[c]), i_set(kRound<T, 1>));
    total[c] = i_dot2(total[c], i_pair<T::kShift>(low, high), scale);
  }
}

// acc += n_steps of a panel. While sums become floats, the next ones are stored, and products of a step more are under way.
template <class T, class Steps, int Rows>
GRISTMILL_INLINE void add_steps(Panel w, int n_steps, const WideBlock* a, typename Steps::Ask& ahead, F (&acc)[Rows]) {
  constexpr int kAhead = T::kHalves ? 1 : 2;  // steps that are begun; two products of one are enough
  StepSums<T> sums[4];                        // of the step before, this one and the next
  I total[T::kShared > 1 ? Rows : 1];
  auto add = [&](auto i, int b) __attribute__((always_inline)) {
    constexpr int kNext = (i + 1) % 4, kBegun = (i + kAhead) % 2;
    if (b + kAhead < n_steps) StepTiles<T, kBegun>::template multiply<Steps::kSet>(w.q + kAhead * Steps::kStep, a[kAhead]);
    if (b + 1 < n_steps) StepTiles<T, kNext % 2>::store(sums[kNext]);
    if constexpr (T::kShared == 1) {
      add_step<T, Rows>(w.scales, *a, sums[i], acc);
    } else {
      if (b % T::kShared == 0) start_shared<T, Rows>(w.scales, a, total, acc);
      if constexpr (T::kHalves)
        add_pair<T, Rows>(sums[i].low, sums[i].high, i_pair<0>(T::scale(w.scales), T::second_scale(w.scales)), total);
      else if constexpr (i % 2)
        add_pair<T, Rows>(sums[i - 1].low, sums[i].low, i_pair<0>(T::scale(w.scales - Steps::kStep), T::scale(w.scales)), total);
      if (b % T::kShared == T::kShared - 1) end_shared<T, Rows>(w.scales - (T::kShared - 1) * Steps::kStep, *a, total, acc);
    }
    ahead.fetch();
    w.q += Steps::kStep, w.scales += Steps::kStep, a++;
  };
  StepTiles<T, 0>::template multiply<Steps::kSet>(w.q, a[0]);
  if (kAhead > 1 && n_steps > 1) StepTiles<T, 1>::template multiply<Steps::kSet>(w.q + Steps::kStep, a[1]);
  StepTiles<T, 0>::store(sums[0]);
  for (int b = 0; b < n_steps; b += 4) {
    add(Index<0>(), b);
    if (b + 1 < n_steps) add(Index<1>(), b + 1);
    if (b + 2 < n_steps) add(Index<2>(), b + 2);
    if (b + 3 < n_steps) add(Index<3>(), b + 3);
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

// Steps begin .. end of a group with one tile of activations after another, `Rows` of each.
template <class T, int Rows, class Steps>
inline void tiled_stretch(const Matrix& w, const Steps& steps, int width, int panel, int begin, int end, const uint8_t* row_scales,
                          const Columns& columns, Partial& partial, typename Steps::Ask ahead) {
  for (int column = 0; column < columns.n; column += kWideRows) {
    const WideBlock* a = columns.wide + size_t(column / kWideRows) * w.n_steps() + begin;
    const int n = columns.n - column < kWideRows ? columns.n - column : kWideRows;
    for (int p = 0; p < width; p++) {
      F acc[Rows];
#pragma GCC unroll 16
      for (int c = 0; c < Rows; c++) acc[c] = begin ? f_load(partial.sums[column + c] + p * kLanes) : f_zero();
      add_steps<T, Steps, Rows>(steps.panel(p), end - begin, a, ahead, acc);
      if (end < w.n_steps()) {
#pragma GCC unroll 16
        for (int c = 0; c < Rows; c++) f_store(partial.sums[column + c] + p * kLanes, acc[c]);
        continue;
      }
      float out[Rows][kLanes];
      const F row_scale = T::kRows ? f_load(reinterpret_cast<const float*>(row_scales) + kLanes * p) : f_zero();
#pragma GCC unroll 16
      for (int c = 0; c < Rows; c++) {
        F sum = T::kShared == 1 ? f_mul(acc[c], f_set(a[end - begin - 1].scale[c])) : acc[c];
        f_store(out[c], T::kRows ? f_mul(sum, row_scale) : sum);
      }
      put_tile(w, columns, panel + p, column, n, out);
    }
  }
}

constexpr int kFewRows = 8;  // of activations: so few have smaller tiles, where bytes are multiplied

// Rows: of each tile of activations. One of kFewRows must hold all columns.
template <class T, int Rows>
void linear_of_rows(const Matrix& w, int matrix, int panel, int panel_end, const Columns& all) {
  constexpr int kBytes = T::kHalves ? kBlock / 2 : kBlock;
  const TileShapes shapes(Rows, kBytes, kBytes);
  SignedStep<T> taken[kGroup][kStretch];
  Partial partial;
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    const int width = w.group_width(panel), n_steps = w.n_steps();
    const uint8_t* row_scales = group + w.step_offset(width, n_steps);
    for (int first = 0; first < all.n; first += kColumnsAtOnce) {
      const Columns columns = all.some(first, kColumnsAtOnce, n_steps);
      const int n_tiles = (columns.n + kWideRows - 1) / kWideRows, stretch = n_tiles > 1 ? kStretch : kShortStretch;
      for (int b = 0; b < n_steps; b += stretch) {
        const int end = b + stretch < n_steps ? b + stretch : n_steps;
        const uint8_t *q = group + w.step_offset(width, b), *next = group + w.step_offset(width, end);
        const Ahead ahead{next, int((next - q) / 64 / ((end - b) * n_tiles * width)) + 1};
        if (T::kQuantBytes == 512 && width == kGroup) {
          tiled_stretch<T, Rows>(w, StoredSteps<T>{q}, width, panel, b, end, row_scales, columns, partial, {ahead});
        } else {
          expand_group<T>(q, width, end - b, taken);
          tiled_stretch<Expanded<T>, Rows>(w, TakenSteps<T>{taken}, width, panel, b, end, row_scales, columns, partial, ahead);
        }
      }
    }
  }
}

template <class T>
void tiled_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  if (!columns.wide) return blocked_linear<T>(w, matrix, panel, panel_end, columns);
  if constexpr (T::kQuantBytes == 512)
    if (columns.n <= kFewRows) return linear_of_rows<T, kFewRows>(w, matrix, panel, panel_end, columns);
  linear_of_rows<T, kWideRows>(w, matrix, panel, panel_end, columns);
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
      load_tile<2>(x + k, size_t(w.cols + kBesideBf16) * 2);
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
