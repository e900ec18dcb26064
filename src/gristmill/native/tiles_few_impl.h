// y = x W^T for quantized weights in the tiles of Intel's AMX, of up to 32 rows. Included after tiles_planes_impl.h.
//
// Each panel's part of a super-block is a unit. Several are on their way at once: while one is taken apart the one before is
// multiplied, and the sums of the one before that become floats. So nothing waits for tiles, and memory is asked evenly.
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
  Units(const Matrix& w, int matrix, int panel, int end)
      : w_(w), matrix_(matrix), panel_(panel), end_(end), n_steps_(w.n_steps()) {}

  Unit take() {
    if (panel_ >= end_) return {};
    const int width = w_.group_width(panel_), n = std::min(kSuperSteps, n_steps_ - begin_);
    const uint8_t *group = w_.group(matrix_, panel_), *super = group + w_.step_offset(width, begin_);
    const uint8_t* steps = super + size_t(T::kSuperBytes) * width;
    const size_t step_bytes = size_t(T::kQuantBytes + T::kScaleBytes) * width;
    const Unit unit{super + T::kSuperBytes * place_, steps + 64 * place_,
                    steps + T::kQuantBytes * width + to_panel<T>(place_, width, step_bytes),
                    group + w_.step_offset(width, n_steps_) + 64 * place_, step_bytes,
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

// Calls use(t) for N tiles, which are two at most.
template <int N, class Use>
GRISTMILL_INLINE void each_tile_of(Use use) {
  use(Index<0>());
  if constexpr (N > 1) use(Index<1>());
}

// So far behind a super-block's end is asked for and, of what is taken apart for few rows, so far before that once more.
constexpr int kFarther = 2048, kTakenLater = 6144;

// Units that are taken apart, multiplied by N tiles of rows, and added to sums. What is between two stages lies in one place,
// of which a stage has read a part when the one before it writes there.
template <class T, int N>
class FewStages {
 public:
  static constexpr int kStages = 3;
  using Sums = float[N * kWideRows][kLanes];  // of a panel

  // n rows of `a`, whose tiles lie `apart` blocks apart. The i-th turn: takes units[0] apart, multiplies units[1] and adds
  // units[2]. It copies units and takes addresses before its loop: beside instructions that read and write memory as the
  // compiler cannot know, only locals stay in registers.
  GRISTMILL_INLINE void turn(int i, const Unit (&units)[kStages], const WideBlock* a, size_t apart, int n, Sums* sums,
                             Asking<kTakenLater>& asking) {
    constexpr int kPlanes = Planes<T>::kPlanes,
                  kStepLines = (int(T::kQuantBytes + T::kScaleBytes) + T::kSuperBytes / kSuperSteps) / 64 + 1;
    const Unit taken = units[0], multiplied = units[1], added = units[2];
    TakenQuants& planes = planes_;
    auto& products = products_;
    const TakenScales& scales = scales_[(i + 1) % kStages];
    const WideBlock *multiplied_a = a + multiplied.begin / kSuperSteps, *added_a = a + added.begin / kSuperSteps;
    const int rows = added.n ? n : 0;
    F inverse = f_zero();
    const SuperScales scales_of_taken{taken.super, taken.scales, taken.step_bytes, taken.width};
    if (taken.n) inverse = take_scales<T>(scales_of_taken, taken.n, scales_[i % kStages]);
    auto multiply = [&](int k) __attribute__((always_inline)) {
      each_tile_of<N>([&](auto t) __attribute__((always_inline)) { load_tile<2 + t>(multiplied_a[t * apart].q[k], kTileBytes); });
      load_tile<4>(planes[k][0], 64);
      each_tile_of<N>([&](auto t) __attribute__((always_inline)) { add_bytes<2 * t, !Planes<T>::kSmall, 2 + t>(); });
      if constexpr (kPlanes > 1) {
        load_tile<5>(planes[k][1], 64);
        each_tile_of<N>([&](auto t) __attribute__((always_inline)) { add_bytes<2 * t + 1, false, 2 + t>(); });
      }
    };
    auto take = [&](int b) __attribute__((always_inline)) {
      if (b < taken.n) {
        take_step<T>(taken.quants + taken.step_bytes * b, 64 * taken.width, scales_of_taken, inverse, b, planes);
        asking.ask(kStepLines);
      } else if (b == taken.n && b % 2) {
        take_nothing(b, planes);
      }
    };
    auto add = [&](int c) __attribute__((always_inline)) {
      each_tile_of<N>([&](auto t) __attribute__((always_inline)) {
        const int row = t * kWideRows + c;
        float* sum = sums[added.place][row];
        if (row < rows)
          f_store(sum, add_planes<T>(products[t], c, added_a[t * apart], scales, added.begin ? f_load(sum) : f_zero()));
      });
    };
    clear_tiles(Tiles<2 * N>());
#pragma GCC unroll 4
    for (int k = 0; k < kSuperTiles; k++) {
      if (2 * k < multiplied.n) multiply(k);
      take(2 * k);
      add(4 * k), add(4 * k + 1);
      take(2 * k + 1);
      add(4 * k + 2), add(4 * k + 3);
    }
    each_tile_of<N>([&](auto t) __attribute__((always_inline)) {
      store_tile<kSumTiles[2 * t]>(products[t][0], 64);
      if constexpr (kPlanes > 1) store_tile<kSumTiles[2 * t + 1]>(products[t][1], 64);
    });
  }

 private:
  alignas(64) TakenQuants planes_;
  alignas(64) int32_t products_[N][2][kWideRows][kLanes];
  TakenScales scales_[kStages];
};

template <class T, int N>
void few_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  const int n_first = std::min(columns.n, kWideRows), n_last = N > 1 ? columns.n - n_first : n_first;
  const TileShapes shapes(n_first, kTileBytes, kTileBytes, n_last);
  constexpr int kSuper = (T::kQuantBytes + T::kScaleBytes) * kSuperSteps + T::kSuperBytes;  // bytes of a panel
  const size_t apart = size_t(w.n_steps() + kSuperSteps - 1) / kSuperSteps;
  using Stages = FewStages<T, N>;
  constexpr int kStages = Stages::kStages;
  Stages stages;
  alignas(64) typename Stages::Sums sums[kGroup];
  Units<T> rest(w, matrix, panel, panel_end);
  Unit units[kStages] = {};
  Asking<kTakenLater> asking{};
  for (int i = 0, left = kStages; left; i++) {
    for (int stage = kStages - 1; stage; stage--) units[stage] = units[stage - 1];
    units[0] = rest.take();
    if (!units[0].n) left--;
    else if (units[0].place == 0) asking.next = units[0].super + kSuper * units[0].width + kFarther;
    stages.turn(i, units, columns.wide, apart, columns.n, sums, asking);
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
