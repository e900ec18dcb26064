// y = x W^T for weights in blocks of 32 with activations in int8: tiles of these pass over a group, a stretch of its steps at a
// time.
#pragma once
#include <algorithm>

#include "blocked_steps_impl.h"

namespace gristmill {
namespace {

// Steps begin .. end of a group, whose bytes start at q, with one tile of activations. kWidth: the group's panels, 0 where
// the compiler can't know.
template <class T, int kWidth>
struct BlockedVisit {
  const Matrix& w;
  const uint8_t* q;
  int width, panel, begin, end;
  const Columns& columns;
  Partial& partial;
  Ahead ahead;
  uint8_t* beside = nullptr;  // for what is of eight steps together, of all panels, where that has been taken out of the stream

  template <int P, int C, int kSkip = 0>
  __attribute__((noinline)) void tile(int first, int column) {
    if constexpr (kWidth) width = kWidth;
    if constexpr (P == kGroup) first = 0;
    const size_t step_bytes = size_t(T::kQuantBytes + T::kScaleBytes) * width;
    const int stride = 64 * width, to_scales = T::kQuantBytes * width - 64 * first + int(to_panel<T>(first, width, step_bytes));
    const int n_steps = w.n_steps();
    StepActivations<kSkip> a{columns.blocks + size_t(column / kTileColumns) * n_steps + begin, size_t(n_steps)};
    const uint8_t* at = q + 64 * first;
    [[maybe_unused]] uint8_t* super_at = beside;
    F acc[P][C];
    if (begin) partial.get<P, C>(first, column, acc);
    else clear<P, C>(acc);
    const bool asks_in_steps = kIntoSecond<T> || (kAskInSteps<P, C> && kStreamsWait == Wait::First && !ahead.asks());
    // Asks for so much of the stream, some KiB beyond p.
    auto ask_beyond = [&](const uint8_t* p, auto bytes) __attribute__((always_inline)) {
      constexpr int kAhead = T::kQuantBytes == 512 ? kAheadAsItLies : kAheadTakenApart;
      if constexpr (kIntoSecond<T>) return ask_for<bytes, 2>(p, kAheadIntoSecond);
      if (kStreamsWait == Wait::Second || (kNear<T, C> && kStreamsWait == Wait::First)) ask_for_stream<bytes, kAhead>(p);
      else if (T::kAsk && (C > 2 || kStreamsWait != Wait::Nowhere)) ask_for<bytes, 2>(p, kAheadUnpacked);
    };
    auto ask = [&]() __attribute__((always_inline)) {
      if (ahead.asks()) {
        ahead.fetch();
        if constexpr (T::kAsk && C % kTileColumns == 0)
          for (int i = C / kTileColumns; i < 2 * C / kTileColumns; i++)  // the next tile's
            ask_for<sizeof(ActivationBlock), 3>(a.first + i * a.apart, 0);
      } else if constexpr (P == kGroup) {
        if (!asks_in_steps) ask_beyond(at, Index<(T::kQuantBytes + T::kScaleBytes) * kGroup>());
      }
    };
    // Steps over what stands before eight of them.
    auto take_super = [&]() __attribute__((always_inline)) -> SuperScales {
      if constexpr (T::kBeside) {
        uint8_t* super = super_at + T::kSuperBytes * first;
        super_at += T::kSuperBytes * width;
        if (column == 0) T::template take<P>({nullptr, at + to_scales, step_bytes, width}, super);
        return {super, nullptr, 0, width};
      }
      const uint8_t* super = at - 64 * first + T::kSuperBytes * first;
      if constexpr (P == kGroup && !T::kWhole && T::kSuperBytes > 0)
        if (!ahead.asks()) ask_beyond(super, Index<T::kSuperBytes * kGroup>());
      at += T::kSuperBytes * width;
      return {super, at + to_scales, step_bytes, width};
    };
    auto next = [&]() __attribute__((always_inline)) { at += (T::kQuantBytes + T::kScaleBytes) * width, a.first++; };
    if constexpr (T::kWhole) {
      for (int b = begin; b < end; b += kSuperSteps) {
        const SuperScales super = take_super();
        auto step = [&](auto add) __attribute__((always_inline)) { add(at, at + to_scales), ask(), next(); };
        whole_super<T, P, C>(super, end - b < kSuperSteps ? end - b : kSuperSteps, stride, a, acc, asks_in_steps, step);
      }
    } else if constexpr (T::kPart > 0) {
      for (int b = begin; b < end; b += kSuperSteps) {
        F d[kSuperSteps / T::kPart][P];
        read_parts<T, P>(take_super().super, d);
        const uint8_t* none = nullptr;
#pragma GCC unroll 8
        for (int part = 0; part < kSuperSteps / T::kPart; part++) {
          I sum[P][C];
          if constexpr (T::kShared > 1) start_part<T, P, C>(a, sum);
#pragma GCC unroll 4
          for (int i = 0; i < T::kPart; i++, next()) {
            if constexpr (T::kShared == 1) start_sums<T, P, C>(a, sum);
            dot_all<T, P, C>(at, stride, none, a, sum, asks_in_steps);
            if constexpr (T::kShared == 1)
              for (int p = 0; p < P; p++) add_scaled<T, C>(sum[p], d[part][p], a, acc[p]);
            ask();
          }
          if constexpr (T::kShared > 1) add_shared<T, P, C>(sum, d[part], a.before(), acc);
        }
      }
    } else if constexpr (T::kShared == 1) {
      for (int b = begin; b < end; b++, next()) {
        block_step<T, P, C>(at, stride, at + to_scales, a, acc, asks_in_steps);
        ask();
      }
    } else {
      for (int b = begin; b < end; b += T::kShared) {
        const SuperScales super = take_super();
        F d[P], dmin[P];
        I total[P][C];
        clear_sums<P, C>(total);
        // Two steps. read(i): at the end of the first or the other; pair(p): a panel's scales where they do not come with steps.
        auto two_steps = [&](auto read, auto pair) __attribute__((always_inline)) {
          I sum[2][P][C], scale[2][P];
          block_half<T, 0, P, C>(at, stride, at + to_scales, a, sum[0], scale[0], asks_in_steps);
          read(0);
          ask(), next();
          block_half<T, 1, P, C>(at, stride, at + to_scales, a, sum[1], scale[1], asks_in_steps);
          read(1);
#pragma GCC unroll 8
          for (int p = 0; p < P; p++) {
            if constexpr (T::kSixBits) scale[0][p] = pair(p);
            else scale[0][p] = i_pair<0>(scale[0][p], scale[1][p]);
          }
          add_pair<T, P, C>(sum[0], sum[1], scale[0], total);
          ask(), next();
        };
        auto nothing = [](int) __attribute__((always_inline)) {};
        if constexpr (kInStream<T>) {  // all is read in the order of memory, and what is of all steps with the last
          typename T::Sets sets[P];
#pragma GCC unroll 4
          for (int i = 0; i < T::kShared / 2; i++)
            two_steps(
                [&](int half) __attribute__((always_inline)) {
#pragma GCC unroll 8
                  for (int p = 0; p < P; p++)
                    if (P < kGroup ? half : p / 2 == half) sets[p][i] = T::read_set(of_panel<T>(super, p), i);
                  in_order(at);
                },
                [&](int p) __attribute__((always_inline)) { return T::pair(sets[p][i / 2], i % 2); });
          U minima[P][2];
#pragma GCC unroll 8
          for (int p = 0; p < P; p++) {
            T::take_halves(sets[p], d[p], dmin[p]);
            for (int half = 0; half < 2; half++) minima[p][half] = T::six_bits(sets[p][2 + half]);
          }
          less_minima<P, C>(minima, dmin, a.before(T::kShared), acc);
        } else {
#pragma GCC unroll 8
          for (int p = 0; p < P; p++) read_super<T>(of_panel<T>(super, p), d[p], dmin[p]);
          if constexpr (T::kMinimum && T::kHalves) {
            StepActivations<kSkip> of_step = a;
            for (int i = 0; i < T::kShared; i++, of_step.first++)
              add_minima<T, P, C>(super.own + step_bytes * i, of_step, total);
            less_total<P, C>(total, dmin, a, acc);
            clear_sums<P, C>(total);
          } else if constexpr (T::kMinimum) {
            read_and_less_minima<T, P, C>(super, dmin, a, acc);
          }
          if constexpr (T::kHalves) {
            for (int i = 0; i < T::kShared; i++, next()) {
              block_halves<T, P, C>(at, stride, at + to_scales, a, total, asks_in_steps);
              ask();
            }
          } else {
            for (int i = 0; i < T::kShared; i += 2)
              two_steps(nothing, [&](int p) __attribute__((always_inline)) {
                if constexpr (T::kSixBits) return T::pair_at(super.super + T::kSuperBytes * p, i / 2);
                else return i_set(0);
              });
          }
        }
        add_shared<T, P, C>(total, d, a.before(), acc);
      }
    }
    if (end < n_steps) return partial.put<P, C>(first, column, acc);
    if constexpr (T::kShared == 1) scale_columns<P, C>(a.before(), acc);
    if constexpr (T::kRows) scale_rows<P, C>(at, acc);  // `at` is 64 bytes a panel past the last step
    put<P, C>(w, columns, panel + first, column, acc);
  }
};

constexpr int kFewColumns = 16, kWaitingColumns = 8;

// Steps of a group that all tiles pass over before the next: what is near while they do. Each tile begins anew with every
// stretch, so that long ones cost less where the second-level cache is read as fast as tiles need it. With few tiles,
// fetching the next ones needs room beside them, and what is taken apart takes more room.
constexpr int kStretch = 16, kShortStretch = 8;
constexpr int kLongStretch = 96, kLongExpanded = 32, kLongOfFew = 32;

template <class T>
inline int stretch_of(int n_columns, bool apart) {
  const bool far = kStreamsWait == Wait::Nowhere;
  if (n_columns <= kFewColumns) return far && T::kQuantBytes < 512 ? kLongOfFew : kShortStretch;
  if (apart) return far ? kLongExpanded : kShortStretch;
  return far ? kLongStretch : kStretch;
}

template <class T, int J>
inline void expand_set(const uint8_t* q, int stride, int width, uint8_t* out) {
  for (int p = 0; p < width; p++) u_store(out + stride * J + 64 * p, T::template set<J>(q + 64 * p, stride));
}

template <class T>
inline void expand_scales(const uint8_t* from, uint8_t* to) {
  if constexpr (T::kSixBits) {
    return;
  } else if constexpr (T::kShared == 1) {
    f_store(reinterpret_cast<float*>(to), T::scale(from));
    if constexpr (T::kOffset) f_store(reinterpret_cast<float*>(to) + kLanes, T::offset(from));
  } else {
    auto* numbers = reinterpret_cast<int32_t*>(to);
    if constexpr (T::kHalves) i_store(numbers, T::scales(from));
    else i_store(numbers, T::scale(from));
    if constexpr (T::kHalves && T::kMinimum) i_store(numbers + kLanes, T::minima(from));
  }
}

constexpr int kExpandPasses = 2;  // meanwhile as much is asked for as in so many passes of tiles

// n_steps of a whole group of T's, as Expanded<T> reads them. The first step is a multiple of kSuperSteps.
template <class T>
inline void expand(const uint8_t* q, int n_steps, uint8_t* out, Ahead& ahead) {
  constexpr int width = kGroup, stride = 64 * width;
  [[maybe_unused]] uint8_t* super = out;
  for (int b = 0; b < n_steps; b++) {
    if (b % kSuperSteps == 0) {
      super = out;
      if constexpr (T::kSuperBytes > 0)
        for (int p = 0; p < width; p++, q += T::kSuperBytes) std::memcpy(out + Expanded<T>::kSuperBytes * p, q, T::kSuperBytes);
      out += Expanded<T>::kSuperBytes * width;
    }
    expand_set<T, 0>(q, stride, width, out);
    expand_set<T, 1>(q, stride, width, out);
    expand_set<T, 2>(q, stride, width, out);
    expand_set<T, 3>(q, stride, width, out);
    expand_set<T, 4>(q, stride, width, out);
    expand_set<T, 5>(q, stride, width, out);
    expand_set<T, 6>(q, stride, width, out);
    expand_set<T, 7>(q, stride, width, out);
    q += T::kQuantBytes * width, out += 512 * width;
    for (int p = 0; p < width; p++, q += T::kScaleBytes, out += Expanded<T>::kScaleBytes)
      expand_scales<T>(q, out);
    if constexpr (T::kSixBits)
      if (b % kSuperSteps == kSuperSteps - 1) {
        constexpr size_t step_bytes = size_t(T::kQuantBytes + T::kScaleBytes) * width;
        const uint8_t* scales = q - T::kScaleBytes * width - step_bytes * (kSuperSteps - 1);  // of the first step
        SixBitsApart<T>::template take<width>({nullptr, scales, step_bytes, width}, super);
      }
    for (int i = 0; i < kExpandPasses; i++) ahead.fetch();
  }
}

// Calls visit for tiles that cover a whole group and n columns.
template <class T, int Accumulators, class Visit>
GRISTMILL_INLINE void each_blocked_tile(int n, Visit& visit) {
  int column = 0;
  if constexpr (T::kDear && kWideColumns > 0)
    if (kStreamsWait == Wait::Nowhere)
      for (; n - column >= kWideColumns; column += kWideColumns)
        each_panel<Accumulators, kWideColumns, kGroup>(kGroup, column, visit);
  // Types of scales of scales have a second sum of each output, for which these leave no registers.
  if constexpr (kManyColumns > 0 && T::kShared == 1 && Accumulators == kManyTile) {
    static_assert(2 * kManyColumns % kTileColumns == 0);
    constexpr int P = 2, kBoth = 2 * kManyColumns;
    for (; n > kFewColumns && n - column >= kBoth; column += kBoth) {
      for (int p = 0; p < kGroup; p += P) visit.template tile<P, kManyColumns>(p, column);
      for (int p = 0; p < kGroup; p += P)
        visit.template tile<P, kManyColumns, kManyColumns % kTileColumns>(p, column + kManyColumns);
    }
  }
  each_tile<Accumulators, kTileColumns, kGroup>(kGroup, column, n, visit);
}

template <class T, int Accumulators>
inline void visit_group(const Matrix& w, const uint8_t* q, int width, int panel, int begin, int end, const Columns& columns,
                        Partial& partial, Ahead ahead) {
  if (width == kGroup) {
    BlockedVisit<T, kGroup> visit{w, q, width, panel, begin, end, columns, partial, ahead};
    each_blocked_tile<T, Accumulators>(columns.n, visit);
  } else {
    BlockedVisit<T, 0> visit{w, q, width, panel, begin, end, columns, partial, ahead};
    each_tile<1, kTileColumns>(width, 0, columns.n, visit);  // a panel at a time: there is one such group in a matrix
  }
}

// A group with all columns.
template <class T>
void blocked_group(const Matrix& w, const uint8_t* group, int panel, const Columns& columns, [[maybe_unused]] uint8_t* expanded,
                   Partial& partial) {
  const int width = w.group_width(panel), n_steps = w.n_steps();
  const bool far = kStreamsWait == Wait::Nowhere;
  const bool apart = width == kGroup && columns.n > (far ? std::max(T::kDirect, kDirectFar) : T::kDirect);
  const bool many = apart || columns.n > kIntTile / kGroup;
  // Where memory is waited for, what is next is asked for once, over all passes. Where products take longer, in half of them, and
  // what lies behind it in the others: so early, and twice.
  const bool waits = T::kQuantBytes == 512 || columns.n <= kWaitingColumns;
  Passes passes{apart ? kExpandPasses : 0};
  if (apart) each_blocked_tile<Expanded<T>, kManyTile>(columns.n, passes);
  else each_blocked_tile<ScalesApart<T>, kManyTile>(columns.n, passes);
  int stretch = many ? stretch_of<T>(columns.n, apart) : n_steps;
  for (int b = 0; b < n_steps; b += stretch) {
    int end = b + stretch < n_steps ? b + stretch : n_steps;
    const uint8_t *q = group + w.step_offset(width, b), *next = group + w.step_offset(width, end);
    Ahead ahead = many ? Ahead(q, next, waits ? 1 : 2, (end - b) * passes.n) : Ahead();
    if constexpr (T::kDirect < INT32_MAX) {
      if (apart) {
        expand<T>(q, end - b, expanded, ahead);
        BlockedVisit<Expanded<T>, kGroup> visit{w, expanded, width, panel, b, end, columns, partial, ahead};
        each_blocked_tile<Expanded<T>, kManyTile>(columns.n, visit);
        continue;
      }
    }
    if constexpr (!T::kWhole) {  // which has tiles of its own for many
      if constexpr (T::kSixBits) {
        if (many && width == kGroup) {
          BlockedVisit<ScalesApart<T>, kGroup> visit{w, q, width, panel, b, end, columns, partial, ahead, expanded};
          each_blocked_tile<ScalesApart<T>, kManyTile>(columns.n, visit);
          continue;
        }
      }
      if (many) {
        visit_group<T, kManyTile>(w, q, width, panel, b, end, columns, partial, ahead);
        continue;
      }
    }
    if constexpr (kVectorBytes == 64 && T::kQuantBytes == 512 && !T::kWhole) {
      if (far && columns.n == 1 && width == kGroup && int64_t(w.rows) * w.cols >= kFromMemory) {
        BlockedVisit<IntoSecond<T>, kGroup>{w, q, width, panel, b, end, columns, partial, ahead}.template tile<kGroup, 1>(0, 0);
        continue;
      }
    }
    visit_group<T, kIntTile>(w, q, width, panel, b, end, columns, partial, ahead);
  }
}

template <class T>
void blocked_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& all) {
  constexpr int kExpandedBytes =
      (512 + Expanded<T>::kScaleBytes) * kLongExpanded + Expanded<T>::kSuperBytes * (kLongExpanded / kSuperSteps);
  constexpr int kSupers = T::kSixBits ? ScalesApart<T>::kSuperBytes * (kLongStretch / kSuperSteps) : 0;
  alignas(64) uint8_t expanded[std::max({T::kDirect < INT32_MAX ? kExpandedBytes : 0, kSupers, 1}) * kGroup];
  Partial partial;
  for (; panel < panel_end; panel += kGroup)
    for (int column = 0; column < all.n; column += kColumnsAtOnce)
      blocked_group<T>(w, w.group(matrix, panel), panel, all.some(column, kColumnsAtOnce, w.n_steps()), expanded, partial);
}

}  // namespace
}  // namespace gristmill
