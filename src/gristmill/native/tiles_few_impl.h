// y = x W^T for quantized weights in the tiles of Intel's AMX, of up to 16 rows. Included after tiles_planes_impl.h.
//
// Each panel's part of a super-block is a unit. Several are on their way at once: while one is taken apart the one before is multiplied,
// and the sums of the one before that become floats. So nothing waits for tiles, and memory is asked evenly.
#pragma once
#include "tiles_planes_impl.h"

namespace gristmill {
namespace {

// A panel's n steps of a super-block, fewer than kSuperSteps where a matrix ends; n is 0 where there is none.
struct Unit {
  const uint8_t *super, *quants, *scales, *row_scales;
  size_t step_bytes;
  int panel, place, width;  // of a group of `width`
  int begin, n;
  bool last;  // of its panel
};

// The units of some panels, in order of memory.
template <class T>
class Units {
 public:
  Units(const Matrix& w, int matrix, int panel, int end) : w_(w), matrix_(matrix), panel_(panel), end_(end), n_steps_(w.n_steps()) {}

  Unit take() {
    if (panel_ >= end_) return {};
    const int width = w_.group_width(panel_), n = std::min(kSuperSteps, n_steps_ - begin_);
    const uint8_t *group = w_.group(matrix_, panel_), *super = group + w_.step_offset(width, begin_);
    const uint8_t* steps = super + size_t(T::kSuperBytes) * width;
    const Unit unit{super + T::kSuperBytes * place_, steps + 64 * place_, steps + T::kQuantBytes * width + T::kScaleBytes * place_,
                    group + w_.step_offset(width, n_steps_) + 64 * place_, size_t(T::kQuantBytes + T::kScaleBytes) * width,
                    panel_ + place_, place_, width, begin_, n, begin_ + n == n_steps_};
    if (++place_ == width) place_ = 0, begin_ += kSuperSteps;
    if (begin_ >= n_steps_) begin_ = 0, panel_ += kGroup;
    return unit;
  }

 private:
  const Matrix& w_;
  const int matrix_;
  int panel_;
  const int end_, n_steps_;
  int place_ = 0, begin_ = 0;
};

using PanelSums = float[kWideRows][kLanes];

// So far behind a super-block's end is asked for and, of what is taken apart for few rows, so far before that once more.
constexpr int kFarther = 2048, kTakenLater = 6144;

// What follows copies units and takes addresses before its loops: beside instructions that read and write memory as the compiler cannot
// know, only locals stay in registers.

// Units that are taken apart, multiplied, and added to sums.
template <class T>
class PlanesOfFew {
 public:
  static constexpr int kStages = 3, kLater = kTakenLater, kRowBytes = kTileBytes;

  // Rows of `a`, of which there are n. The i-th turn: takes units[0] apart, multiplies units[1] and adds units[2].
  GRISTMILL_INLINE void turn(int i, const Unit (&units)[kStages], const WideBlock* a, int n, PanelSums* sums, Asking<kLater>& asking) {
    constexpr int kStepLines = (int(T::kQuantBytes + T::kScaleBytes) + T::kSuperBytes / kSuperSteps) / 64 + 1;
    const Unit taken = units[0], multiplied = units[1], added = units[2];
    TakenQuants &in = planes_[i % 2], &out = planes_[1 - i % 2];
    const auto& products = products_[1 - i % 2];
    const TakenScales& scales = scales_[(i + 1) % 3];
    const WideBlock &multiplied_a = a[multiplied.begin / kSuperSteps], &added_a = a[added.begin / kSuperSteps];
    const int rows = added.n ? n : 0;
    F inverse = f_zero();
    if (taken.n) inverse = take_scales<T>(taken.super, taken.scales, taken.step_bytes, taken.n, scales_[i % 3]);
    auto take = [&](int b) __attribute__((always_inline)) {
      if (b < taken.n) {
        take_step<T>(taken.quants + taken.step_bytes * b, 64 * taken.width, taken.scales + taken.step_bytes * b, inverse, b, in);
        asking.ask(kStepLines);
      } else if (b == taken.n && b % 2) {
        take_nothing(b, in);
      }
    };
    auto add = [&](int c) __attribute__((always_inline)) {
      float* sum = sums[added.place][c];
      if (c < rows) f_store(sum, add_planes<T>(products, c, added_a, scales, added.begin ? f_load(sum) : f_zero()));
    };
    clear_tiles(Tiles<2>());
#pragma GCC unroll 4
    for (int k = 0; k < kSuperTiles; k++) {
      take(2 * k);
      if (2 * k < multiplied.n) {
        load_tile<2>(multiplied_a.q[k], kTileBytes);
        load_tile<4>(out[k][0], 64);
        add_bytes<0, !Planes<T>::kSmall>();
        load_tile<5>(out[k][1], 64);
        add_bytes<1, false>();
      }
      add(4 * k), add(4 * k + 1);
      take(2 * k + 1);
      add(4 * k + 2), add(4 * k + 3);
    }
    store_tile<0>(products_[i % 2][0], 64), store_tile<1>(products_[i % 2][1], 64);
  }

 private:
  alignas(64) TakenQuants planes_[2];
  alignas(64) int32_t products_[2][2][kWideRows][kLanes];
  TakenScales scales_[3];
};

// Bytes, which it would cost more to take apart than it saves: they are multiplied where they lie, a step at a time, and sums of steps
// meet the scales.
template <class T>
class BytesOfFew {
 public:
  static constexpr int kStages = 2, kLater = 16384, kRowBytes = kBlock;

  // Multiplies units[0] and adds units[1].
  GRISTMILL_INLINE void turn(int i, const Unit (&units)[kStages], const WideBlock* a, int n, PanelSums* sums, Asking<kLater>& asked) {
    const Unit multiplied = units[0], added = units[1];
    const WideBlock &multiplied_a = a[multiplied.begin / kSuperSteps], &added_a = a[added.begin / kSuperSteps];
    int32_t (*const in)[kWideRows][kLanes] = products_[i % 2], (*const out)[kWideRows][kLanes] = products_[1 - i % 2];
    float (*const sum)[kLanes] = sums[added.place];
    const int rows = added.n ? n : 0;
    constexpr int kStepLines = int(T::kQuantBytes + T::kScaleBytes) / 64 + 1;
    I scales[kSuperSteps];
    const F d = whole_scales(added, scales);
    Asking<kLater> asking = asked;
    auto multiply = [&](auto odd, int b) __attribute__((always_inline)) {
      constexpr int kSum = decltype(odd)::value;
      asm volatile("tilezero %%tmm%c0" ::"i"(kSum) : "memory");
      if (b < multiplied.n) {
        load_tile<2 + kSum>(multiplied_a.q[b / 2][0] + kSum * kBlock, kTileBytes);
        load_tile<4 + kSum>(multiplied.quants + multiplied.step_bytes * b, 64 * size_t(multiplied.width));
        asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(4 + kSum), "i"(2 + kSum), "i"(kSum) : "memory");
      }
      asking.ask(kStepLines);
    };
    auto add = [&](int c) __attribute__((always_inline)) {
      if (c >= rows) return;
      I total[2] = {i_set(0), i_set(0)};
#pragma GCC unroll 8
      for (int b = 0; b < kSuperSteps; b++) {
        const I product = i_load(out[b][c]);
        total[b % 2] = i_add(total[b % 2], T::kRows ? product : i_mul(product, scales[b]));
      }
      const F acc = added.begin ? f_load(sum[c]) : f_zero();
      f_store(sum[c], f_fma(f_of_i(i_add(total[0], total[1])), f_mul(d, f_set(added_a.scale[c])), acc));
    };
#pragma GCC unroll 4
    for (int b = 0; b < kSuperSteps; b += 2) {
      multiply(Index<0>(), b);
      add(2 * b), add(2 * b + 1);
      multiply(Index<1>(), b + 1);
      add(2 * b + 2), add(2 * b + 3);
      store_tile<0>(in[b], 64), store_tile<1>(in[b + 1], 64);
    }
    asked = asking;
  }

 private:
  using Products = int32_t[kSuperSteps][kWideRows][kLanes];

  // The scales of a unit's steps as whole numbers, which are to be multiplied by what is returned.
  static GRISTMILL_INLINE F whole_scales(const Unit& unit, I (&scales)[kSuperSteps]) {
    if constexpr (T::kRows) return f_set(1.0f);
    auto scale = [&](int b) { return b < unit.n ? T::scale(unit.scales + unit.step_bytes * b) : f_zero(); };
    WholeScales<T> whole;
#pragma GCC unroll 8
    for (int b = 0; b < kSuperSteps; b++) whole.add(scale(b));
    const F inverse = whole.inverse();
#pragma GCC unroll 8
    for (int b = 0; b < kSuperSteps; b++) scales[b] = whole.whole(scale(b), inverse);
    return whole.d();
  }

  alignas(64) Products products_[2];
};

template <class T, class Stages>
void few_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  const TileShapes shapes(columns.n, Stages::kRowBytes, Stages::kRowBytes);
  constexpr int kSuper = (T::kQuantBytes + T::kScaleBytes) * kSuperSteps + T::kSuperBytes;  // bytes of a panel
  Stages stages;
  alignas(64) PanelSums sums[kGroup];
  Units<T> rest(w, matrix, panel, panel_end);
  constexpr int kStages = Stages::kStages;
  Unit units[kStages] = {};
  Asking<Stages::kLater> asking{};
  for (int i = 0, left = kStages; left; i++) {
    for (int stage = kStages - 1; stage; stage--) units[stage] = units[stage - 1];
    units[0] = rest.take();
    if (!units[0].n) left--;
    else if (units[0].place == 0) asking.next = units[0].super + kSuper * units[0].width + kFarther;
    stages.turn(i, units, columns.wide, columns.n, sums, asking);
    const Unit added = units[kStages - 1];
    for (int c = 0; added.last && c < columns.n; c++) {
      F total = f_load(sums[added.place][c]);
      if constexpr (T::kRows) total = f_mul(total, f_load(reinterpret_cast<const float*>(added.row_scales)));
      put_lanes(w, columns, added.panel, c, total);
    }
  }
}

}  // namespace
}  // namespace gristmill
