// Attention over the paged cache, written once on the vector operations of a simd_*.h; kernels_impl.h comes before it.
//
// A row's keys are taken in segments of kSegment absolute positions. A segment gives a state (maximum, sum, output) that no
// other segment and no other row has touched; states are then folded in order. So a row's bits depend on its position and
// window alone, whichever rows are computed beside it and however segments are divided between threads.
#pragma once
#include <algorithm>
#include <numeric>
#include <type_traits>

#include "kernels_impl.h"

namespace gristmill {
namespace {

// ---- types of the cache ---------------------------------------------------------------------------------------------

// How a cache's numbers meet queries and probabilities. A block of keys is [head_dim / kStep, 16 positions, kStep], so that a
// lane is a key; a block of values [16 positions / kStep, v_dim, kStep], so that a lane is a dimension.
struct KvAsItLies {
  static constexpr bool kQuantized = false, kShortened = false;
};

struct KvF32 : KvAsItLies {
  using Element = float;
  using Number = float;  // queries and probabilities
  static constexpr int kStep = 1;
  static F step(F acc, const Element* w, const Number* x) { return f_fma(f_load(w), f_set(*x), acc); }
};

struct KvF16 : KvAsItLies {
  using Element = uint16_t;
  using Number = float;
  static constexpr int kStep = 1;
  static F step(F acc, const Element* w, const Number* x) { return f_fma(f_of_half(w), f_set(*x), acc); }
};

struct KvBf16 : KvAsItLies {
  using Element = uint16_t;
  using Number = uint16_t;
  static constexpr int kStep = 2;
  template <class Acc>
  static Acc step(Acc acc, const Element* w, const Number* x) { return f_dot2(acc, w, x); }
};

// Few rows take it apart in registers (attention_shortened_impl.h), many meet it as bfloat16. Queries lie in the order of its
// words.
struct KvBf16_12 : KvBf16 {
  static constexpr bool kShortened = true;
};

using KvPairs = std::conditional_t<kBf16Dot, KvBf16, KvF16>;
using KvShortened = std::conditional_t<kBf16Dot, KvBf16_12, KvF16>;

// Int8 with a scale for each 32 numbers. A block of keys lies as a panel of Q8_0 weights does and meets int8 queries; values
// become what the kernels without scales read.
struct KvQ8 : std::conditional_t<kBf16Dot, KvBf16, KvF32> {
  static constexpr bool kQuantized = true;
};

inline void numbers_of(const float* x, float scale, int n, float* y) {
  for_lanes(n, [&](int i, auto count) { f_store_n(y + i, f_mul(f_load_n(x + i, count), f_set(scale)), count); });
}

inline void numbers_of(const float* x, float scale, int n, uint16_t* y) {
  for (int i = 0; i < n; i += kLanes) {
    int count = n - i < kLanes ? n - i : kLanes;
    float lanes[kLanes];
    f_store(lanes, f_mul(f_load_n(x + i, count), f_set(scale)));
    to_bf16(lanes, count, y + i);
  }
}

// 2^x for x <= 0, to 1e-7 where probabilities stay float32 and to 4e-6 where they are rounded to bfloat16 anyway.
template <class Number>
inline F f_exp2(F x) {
  x = f_max(f_set(-126.0f), x);  // NaN stays NaN
  F n = f_round(x), r = f_sub(x, n), p;
  if constexpr (std::is_same_v<Number, float>) {
    p = f_set(1.535336188319500e-4f);
    p = f_fma(p, r, f_set(1.339887440266574e-3f));
    p = f_fma(p, r, f_set(9.618437357674640e-3f));
    p = f_fma(p, r, f_set(5.550332471162809e-2f));
    p = f_fma(p, r, f_set(2.402264791363012e-1f));
    p = f_fma(p, r, f_set(6.931472028550421e-1f));
  } else {
    p = f_set(9.6713e-3f);
    p = f_fma(p, r, f_set(5.5826e-2f));
    p = f_fma(p, r, f_set(2.402214e-1f));
    p = f_fma(p, r, f_set(6.9313e-1f));
  }
  p = f_fma(p, r, f_set(1.0f));
  return f_mul(p, f_pow2(n));
}

inline float exp2_of(float x) {
  float y[kLanes];
  f_store(y, f_exp2<float>(f_set(x)));
  return y[0];
}

constexpr int kAhead = 4096;  // bytes: int8 needs so much arithmetic that memory must be asked for early

// ---- one segment ----------------------------------------------------------------------------------------------------

// One segment as a tile of rows sees it. Rows are numbered head * n_rows + row.
template <class T>
struct Segment {
  using Number = typename T::Number;
  using Element = typename T::Element;

  const KvLayer& kv;
  int n_rows;                                // of each head
  int start;                                 // position of the first key
  int kv_head;                               // the first
  const int32_t* blocks;                     // of the segment
  int low[kMaxAttentionRows], high[kMaxAttentionRows];  // keys [low, high) are what a row sees
  float* states;
  float* totals;                             // of all segments so far, or null
  const float* q;                            // as lay_queries left them
  float* scores;                             // [rows, kScoreStride]
  Element* plain;                            // values [kSegment, v_dim], then keys, as kernels read them, if they lie otherwise

  const uint8_t* key_bytes(int block, int head) const { return kv.keys(blocks[block], kv_head + head); }
  const uint8_t* value_bytes(int block, int head) const { return kv.values(blocks[block], kv_head + head); }
  Element* plain_keys(int block) const { return plain + size_t(kSegment) * kv.v_dim + size_t(block) * kKvBlock * kv.head_dim; }
  Element* plain_values(int block) const { return plain + size_t(block) * kKvBlock * kv.v_dim; }
  const Element* keys(int block, int head) const {
    return T::kShortened ? plain_keys(block) : reinterpret_cast<const Element*>(key_bytes(block, head));
  }
  const Number* query(int row) const { return reinterpret_cast<const Number*>(q + size_t(row) * kv.head_dim); }
  const Element* values(int block, int head) const {
    if (T::kQuantized || T::kShortened) return plain_values(block);
    return reinterpret_cast<const Element*>(value_bytes(block, head));
  }
  size_t width() const { return size_t(kv.v_dim) + kStateHead; }
  float* state(int row) const { return states + row * width(); }
  float* total(int row) const { return totals + row * width(); }
};

// Keys [first, last) that some of a group's rows see.
struct Range {
  int first, last;
  int first_block() const { return first / kKvBlock; }
  int end_block() const { return (last + kKvBlock - 1) / kKvBlock; }
};

template <class T>
inline Range range_of(const Segment<T>& s, int row, int n) {
  Range range{kSegment, 0};
  for (int r = row; r < row + n; r++) {
    if (s.low[r] >= s.high[r]) continue;
    if (s.low[r] < range.first) range.first = s.low[r];
    if (s.high[r] > range.last) range.last = s.high[r];
  }
  return range;
}

// body(R, row) for groups of R rows, the largest first: kAttentionRows, 8, 4, 2, 1.
template <int R = kAttentionRows, class Body>
inline void for_groups(int n_rows, Body body, int row = 0) {
  for (; row + R <= n_rows; row += R) body(std::integral_constant<int, R>(), row);
  if constexpr (R > 1) for_groups<(R > 8 ? 8 : R > 4 ? 4 : R / 2)>(n_rows, body, row);
}

// Scores of R rows with the keys of V blocks, a lane a key: out[r * kScoreStride + key]. `row` begins a group of lay_queries.
template <class T, int R, int V>
inline void block_scores(const Segment<T>& s, const int* blocks, int head, int row, float* out) {
  const typename T::Number* q = s.query(row);
  const typename T::Element* keys[V];
  for (int v = 0; v < V; v++) keys[v] = s.keys(blocks[v], head);
  F acc[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) acc[r][v] = f_zero();
  constexpr int kBytes = kKvBlock * T::kStep * int(sizeof(typename T::Element));
  const bool ask = kStreamsWait != Wait::Nowhere && V == 1 && R <= 8;  // few rows read the cache as one stream
  for (int d = 0; d < s.kv.head_dim; d += T::kStep, q += R * T::kStep) {
    if (ask) ask_for_stream<kBytes>(keys[0] + size_t(d) * kKvBlock);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)  // rows outside: gcc would keep all their numbers in registers, which the sums need
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) acc[r][v] = T::step(acc[r][v], keys[v] + size_t(d) * kKvBlock, q + r * T::kStep);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) f_store(out + r * kScoreStride + v * kKvBlock, acc[r][v]);
}

// A row's query for int8 keys: quants, then the scales of 32 each, then the sums of 16 each.
struct QuantizedQuery {
  float* memory;
  int n;
  int8_t* q() const { return reinterpret_cast<int8_t*>(memory); }
  float* scale() const { return memory + n / 4; }
  int32_t* sum() const { return reinterpret_cast<int32_t*>(scale() + n / kBlock); }
};

// The same for int8 keys.
template <int R, int V>
inline void quantized_scores(const Segment<KvQ8>& s, const int* blocks, int head, int row, float* out) {
  int n = s.kv.head_dim;
  F acc[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) acc[r][v] = f_zero();
  const uint8_t* keys[V];
  for (int v = 0; v < V; v++) keys[v] = s.key_bytes(blocks[v], head);
  for (int g = 0; g < n / kBlock; g++) {
    I sum[R][V];
    const int8_t* q[R];
    float scale[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      QuantizedQuery query{const_cast<float*>(s.q) + size_t(row + r) * n, n};
      q[r] = query.q() + g * kBlock, scale[r] = query.scale()[g];
      I start = i_set(-kByteZero * (query.sum()[2 * g] + query.sum()[2 * g + 1]));
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) sum[r][v] = start;
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        U k = u_byte(u_load(keys[v] + 64 * j));
        __builtin_prefetch(keys[v] + 64 * j + kAhead);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) sum[r][v] = i_dot4(sum[r][v], k, q[r] + 4 * j);
      }
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      F k_scale = f_of_half(reinterpret_cast<const uint16_t*>(keys[v] + 512));
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) acc[r][v] = f_fma(f_of_i(sum[r][v]), f_mul(k_scale, f_set(scale[r])), acc[r][v]);
      keys[v] += 512 + 2 * kKvBlock;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) f_store(out + r * kScoreStride + v * kKvBlock, acc[r][v]);
}

template <class T, int R, int V>
inline void scores_of(const Segment<T>& s, const int* blocks, int head, int row, float* out) {
  if constexpr (T::kQuantized) quantized_scores<R, V>(s, blocks, head, row, out);
  else block_scores<T, R, V>(s, blocks, head, row, out);
}

// Puts one head's shortened keys and values of a block where Segment looks for them.
template <class T>
inline void unpack(const Segment<T>& s, int block, int head);

// The same, of values that are multiplied by their scales.
template <class T>
inline void unpack_values(const Segment<T>& s, int block, int head) {
  if constexpr (T::kQuantized) {
    int v_dim = s.kv.v_dim;
    const uint8_t* bytes = s.value_bytes(block, head);
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(bytes + kKvBlock * v_dim);
    auto* out = const_cast<typename T::Element*>(s.values(block, head));
    for (int g = 0; g < v_dim / kBlock; g++) {
      float scale[kKvBlock];
      f_store(scale, f_of_half(scales + g * kKvBlock));
      for (int j = 0; j < kKvBlock; j += T::kStep) {
        F a = f_set(scale[j]);
        if (T::kStep == 2) {
          float lanes[kLanes];
          for (int i = 0; i < kLanes; i += 2) std::memcpy(lanes + i, scale + j, 8);
          a = f_load(lanes);
        }
        size_t at = (size_t(j / T::kStep) * v_dim + g * kBlock) * T::kStep;
        __builtin_prefetch(bytes + at + kAhead);
#pragma GCC unroll 4
        for (int i = 0; i < kBlock * T::kStep; i += kLanes) {
          F x = f_mul(f_of_i8(bytes + at + i), a);
          if constexpr (std::is_same_v<typename T::Element, float>) f_store(out + at + i, x);
          else bf16_of_f(out + at + i, x);
        }
      }
    }
  }
}

// Turns a row's scores, computed for whole blocks of `range`, into probabilities in the same place, 0 outside [low, high).
template <class Number>
inline void softmax(float* s, int low, int high, Range range, float* state) {
  int first = range.first_block() * kKvBlock, last = range.end_block() * kKvBlock;
  F peak = f_set(-INFINITY);
  for (int i = first; i < last; i += kLanes) {
    F x = f_load(s + i);
    if (i < low || i + kLanes > high) f_store(s + i, x = f_between(x, low - i, high - i, f_set(-INFINITY)));
    peak = f_max(peak, x);
  }
  float top = low < high ? f_peak(peak) : 0.0f;
  F total = f_zero();
  Number* p = reinterpret_cast<Number*>(s);  // not wider than the scores: what is written has been read
  for (int i = first; i < last; i += kLanes) {
    F x = f_exp2<Number>(f_sub(f_load(s + i), f_set(top)));
    if (i < low || i + kLanes > high) x = f_between(x, low - i, high - i, f_zero());
    total = f_add(total, x);
    if constexpr (std::is_same_v<Number, float>) f_store(p + i, x);
    else bf16_of_f(p + i, x);
  }
  state[0] = top;
  state[1] = low < high ? f_sum(total) : 0.0f;
}

// out[r] += p[r] values for V vectors of dimensions and n steps of keys; `stride` numbers from one row of p to the next.
template <class T, int V, int R>
__attribute__((always_inline)) inline void value_steps(F (&acc)[R][V], const typename T::Element* w,
                                                       const typename T::Number* p, int n, int v_dim) {
  constexpr int kStride = kScoreStride * int(sizeof(float) / sizeof(typename T::Number));
  constexpr int kBytes = V * kLanes * T::kStep * int(sizeof(typename T::Element));
  const bool ask = kStreamsWait != Wait::Nowhere && R <= 4, ask_next = !ask && R <= 2 && kStreamKeys < kKvBlock;
  for (int j = 0; j < n; j++, p += T::kStep, w += size_t(v_dim) * T::kStep) {
    if (ask) ask_for_stream<kBytes>(w);
    else if (ask_next) ask_for<kBytes, 3>(w, kStreamKeys * v_dim * int(sizeof(typename T::Element)));
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) acc[r][v] = T::step(acc[r][v], w + v * kLanes * T::kStep, p + r * kStride);
  }
}

// acc += the values of blocks [b, b_end) from dimension d on, for R rows, keys in order.
template <class T, int R, int V>
__attribute__((always_inline)) inline void block_values(const Segment<T>& s, int head, int row, Range range, int b, int b_end,
                                                        int d, F (&acc)[R][V]) {
  constexpr int kSteps = kKvBlock / T::kStep;
  const auto* p = reinterpret_cast<const typename T::Number*>(s.scores + size_t(row) * kScoreStride);
  int v_dim = s.kv.v_dim;
  for (; b < b_end; b++) {
    int j = b * kSteps < range.first / T::kStep ? range.first / T::kStep : b * kSteps;
    int end = (b + 1) * kSteps < range.last / T::kStep ? (b + 1) * kSteps : range.last / T::kStep;
    const typename T::Element* w = s.values(b, head) + d * T::kStep;
    value_steps<T, V, R>(acc, w + size_t(j - b * kSteps) * v_dim * T::kStep, p + j * T::kStep, end - j, v_dim);
    if (T::kStep == 2 && range.last % 2 && end < (b + 1) * kSteps) {  // the last key's partner may never have been written
      const typename T::Element* pairs = w + size_t(end - b * kSteps) * v_dim * 2;
      typename T::Element tail[V * kLanes * 2];
      for (int i = 0; i < V * kLanes; i++) tail[2 * i] = pairs[2 * i], tail[2 * i + 1] = 0;
      value_steps<T, V, R>(acc, tail, p + end * T::kStep, 1, v_dim);
    }
  }
}

// Adds some blocks' values to the outputs of R rows, which wait in their states.
template <class T, int R, int V>
inline void add_values(const Segment<T>& s, int head, int row, Range range, int b, int b_end, int d) {
  float* out = s.state(row) + kStateHead + d;
  size_t width = s.width();
  F acc[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) acc[r][v] = f_load(out + r * width + v * kLanes);
  block_values<T, R, V>(s, head, row, range, b, b_end, d, acc);
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) f_store(out + r * width + v * kLanes, acc[r][v]);
}

// How a state enters a total: total = total * keep + state * take. A state without keys has the sum 0 and changes nothing.
struct Fold {
  float keep, take;
};

// Enters the state's maximum and sum; its output is left to the caller, unless `take` is 0.
inline Fold fold_head(const float* state, float* total) {
  if (state[1] == 0.0f) return {1.0f, 0.0f};
  float top = state[0] > total[0] ? state[0] : total[0];
  Fold fold{total[1] == 0.0f ? 0.0f : exp2_of(total[0] - top), exp2_of(state[0] - top)};
  total[0] = top;
  total[1] = total[1] * fold.keep + state[1] * fold.take;
  return fold;
}

inline void fold_output(F x, Fold fold, float* total) {
  f_store(total, f_fma(x, f_set(fold.take), f_mul(f_load(total), f_set(fold.keep))));
}

void fold(const float* state, int v_dim, float* total) {
  Fold how = fold_head(state, total);
  if (how.take == 0.0f && how.keep == 1.0f) return;
  for (int d = kStateHead; d < v_dim + kStateHead; d += kLanes) fold_output(f_load(state + d), how, total + d);
}

// The outputs of R rows over the whole range, put into their states, or straight into the totals.
template <class T, int R, int V>
inline void whole_values(const Segment<T>& s, int row, Range range, int d, const Fold* folds) {
  F acc[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) acc[r][v] = f_zero();
  block_values<T, R, V>(s, 0, row, range, range.first_block(), range.end_block(), d, acc);
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    if (folds && folds[r].take == 0.0f && folds[r].keep == 1.0f) continue;
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      int at = kStateHead + d + v * kLanes;
      if (folds) fold_output(acc[r][v], folds[r], s.total(row + r) + at);
      else f_store(s.state(row + r) + at, acc[r][v]);
    }
  }
}

// A power of two: how many vectors go beside so many rows.
constexpr int vectors_beside(int rows) {
  int v = 1;
  while (v < 8 && 2 * v * rows <= kAttentionAccumulators) v *= 2;
  return v;
}

template <class T, int R>
inline void group_values(const Segment<T>& s, int head, int row, Range range, int b, int b_end) {
  constexpr int V = vectors_beside(R);
  int d = 0;
  for (; d + V * kLanes <= s.kv.v_dim; d += V * kLanes) add_values<T, R, V>(s, head, row, range, b, b_end, d);
  for (; d < s.kv.v_dim; d += kLanes) add_values<T, R, 1>(s, head, row, range, b, b_end, d);
}

// Few rows: the cache is read in its own order, block after block with all heads, as only long streams are read at full speed.
template <class T>
void stream_segment(const Segment<T>& s, int n_heads) {
  Range range = range_of(s, 0, s.n_rows);
  std::fill(s.states, s.state(n_heads * s.n_rows), 0.0f);
  auto scores = [&](auto n_blocks, int b) {
    int blocks[n_blocks];
    std::iota(blocks, blocks + n_blocks, b);
    for (int h = 0; h < n_heads; h++)
      for_groups(s.n_rows, [&](auto R, int r) {
        int row = h * s.n_rows + r;
        constexpr int V = R * n_blocks <= kAttentionAccumulators ? n_blocks : 1;
        for (int i = 0; i < n_blocks; i += V)
          scores_of<T, R, V>(s, blocks + i, h, row, s.scores + size_t(row) * kScoreStride + (b + i) * kKvBlock);
      });
  };
  int block = range.first_block();
  for (; block + kStreamBlocks <= range.end_block(); block += kStreamBlocks) scores(Index<kStreamBlocks>(), block);
  for (; block < range.end_block(); block++) scores(Index<1>(), block);
  for (int row = 0; row < n_heads * s.n_rows; row++) {
    int r = row % s.n_rows;
    softmax<typename T::Number>(s.scores + size_t(row) * kScoreStride, s.low[r], s.high[r], range, s.state(row));
  }
  int step = s.n_rows > 2 ? 2 : 1;
  auto values = [&](auto max_rows) {  // so few rows that all dimensions fit beside each other
    for (int b = range.first_block(); b < range.end_block(); b += step)
      for (int h = 0; h < n_heads; h++) {
        int end = b + step < range.end_block() ? b + step : range.end_block();
        for (int i = b; i < end; i++) unpack_values(s, i, h);
        for (int k = b * kKvBlock; k < end * kKvBlock; k += kStreamKeys) {
          const Range some{std::max(range.first, k), std::min(range.last, k + kStreamKeys)};
          if (some.first >= some.last) continue;
          for_groups<max_rows>(s.n_rows, [&](auto R, int r) { group_values<T, R>(s, h, h * s.n_rows + r, some, b, end); });
        }
      }
  };
  if (s.kv.v_dim <= 4 * kLanes) values(std::integral_constant<int, kAttentionRows < 4 ? kAttentionRows : 4>());
  else values(std::integral_constant<int, kAttentionRows < 2 ? kAttentionRows : 2>());
  for (int row = 0; s.totals && row < n_heads * s.n_rows; row++) fold(s.state(row), s.kv.v_dim, s.total(row));
}

// The same over a shortened cache.
template <class T>
void stream_shortened(const Segment<T>& s, int n_heads);

// What a core asks for while it computes: a head's keys and values of the segment that comes next.
struct NextSegment {
  const KvLayer& kv;
  const int32_t* blocks;
  int head, n_blocks;
  int block = 0, line = 0;

  void fetch(int n_lines) {
    if (block >= n_blocks) return;
    int n_key = int(kv.k_bytes() / 64), n_value = int(kv.v_bytes() / 64), n = n_key + n_value, end = std::min(line + n_lines, n);
    const uint8_t *keys = kv.keys(blocks[block], head), *values = kv.values(blocks[block], head);
    for (; line < std::min(end, n_key); line++) __builtin_prefetch(keys + 64 * line, 0, 2);
    for (; line < end; line++) __builtin_prefetch(values + 64 * (line - n_key), 0, 2);
    if (line == n) block++, line = 0;
  }
};

template <class T, int R>
inline void tile_values(const Segment<T>& s, int row, Range range, const Fold* folds) {
  constexpr int V = vectors_beside(R);
  int d = 0;
  for (; d + V * kLanes <= s.kv.v_dim; d += V * kLanes) whole_values<T, R, V>(s, row, range, d, folds);
  for (; d < s.kv.v_dim; d += kLanes) whole_values<T, R, 1>(s, row, range, d, folds);
}

// Many rows of one head: a group of rows after another over all of the segment, which stays in the processor's cache.
template <class T>
void tile_segment(Segment<T>& s, NextSegment next) {
  float* scores = s.scores;
  Range all = range_of(s, 0, s.n_rows);
  for (int b = all.first_block(); b < all.end_block(); b++) {
    if constexpr (T::kShortened) unpack(s, b, 0);
    else unpack_values(s, b, 0);
  }
  for_groups(s.n_rows, [&](auto R, int row) {
    constexpr int kMost = T::kQuantized && R > 4 ? 1 : 4, V = vectors_beside(R) < kMost ? vectors_beside(R) : kMost;
    Range range = range_of(s, row, R);
    s.scores = scores - size_t(row) * kScoreStride;  // every group uses the same memory
    for (int b = range.first_block(); b < range.end_block(); b += V) {
      int blocks[V];
      for (int v = 0; v < V; v++) blocks[v] = b + v < range.end_block() ? b + v : b;
      scores_of<T, R, V>(s, blocks, 0, row, scores + b * kKvBlock);
      next.fetch(V * R * 3 / 2);  // in time, if the rows are many
    }
    Fold folds[R];
    for (int r = 0; r < R; r++) {
      softmax<typename T::Number>(scores + size_t(r) * kScoreStride, s.low[row + r], s.high[row + r], range, s.state(row + r));
      if (s.totals) folds[r] = fold_head(s.state(row + r), s.total(row + r));
    }
    tile_values<T, R>(s, row, range, s.totals ? folds : nullptr);
  });
  s.scores = scores;
}

// Which word of a shortened key has this pair of its n numbers: words carry pairs of its quarters in turn, so that those of a
// quarter, 8 and more, are kPairsApart.
constexpr int kPairsApart = 4;
inline int place_of_pair(int pair, int n) { return pair % (n / 8) * kPairsApart + pair / (n / 8); }

// A shortened head's query as its words meet it, `apart` pairs from one of its pairs to the next.
template <class Number>
inline void lay_shortened(const float* x, F scale, int n, uint32_t* to, int apart) {
  constexpr int kMost = 16 * kLanes;  // of the query at a time: a part of each quarter
  Number numbers[kPairsApart][kMost / kPairsApart];
  const int quarter = n / kPairsApart, most = kMost / kPairsApart;
  for (int first = 0; first < quarter; first += most, to += size_t(most / 2) * kPairsApart * apart) {
    const int count = std::min(most, quarter - first);
    for (int i = 0; i < kPairsApart; i++)
      for (int j = 0; j < count; j += kLanes)
        bf16_of_f(numbers[i] + j, f_mul(f_load(x + i * quarter + first + j), scale));
    for (int j = 0; j < count / 2; j++)
      for (int i = 0; i < kPairsApart; i++) std::memcpy(to + size_t(j * kPairsApart + i) * apart, numbers[i] + 2 * j, 4);
  }
}

// Queries in the form the keys meet, scaled: a row after another, or the rows of a group of for_groups side by side, kStep
// numbers of each in turn.
template <class T>
void lay_queries(const KvLayer& kv, const AttentionRows& rows) {
  using Number = typename T::Number;
  int n = kv.head_dim;
  float* memory = rows.laid;
  float scale = rows.scale * 1.44269504f;
  for (int h = 0; h < rows.n_heads; h++)
    for_groups(rows.n_rows, [&](auto R, int first) {
      for (int r = 0; r < R; r++) {
        int row = h * rows.n_rows + first + r;
        constexpr int kRowsAhead = 2;
        if (row + kRowsAhead < rows.n_heads * rows.n_rows)
          for (int i = 0; i < n; i += kLanes) __builtin_prefetch(rows.q[row + kRowsAhead] + i, 0, 3);
        if constexpr (T::kQuantized) {
          QuantizedQuery query{memory + size_t(row) * n, n};
          quantize(rows.q[row], n, query.q(), query.scale(), query.sum());
          for (int g = 0; g < n / kBlock; g++) query.scale()[g] *= scale;
        } else {
          Number lanes[kLanes];
          Number* to = reinterpret_cast<Number*>(memory + size_t(row - r) * n) + r * T::kStep;
          if constexpr (T::kShortened) {
            lay_shortened<Number>(rows.q[row], f_set(scale), n, reinterpret_cast<uint32_t*>(to), R);
            continue;
          }
          for_lanes(n, [&](int i, auto count) {
            numbers_of(rows.q[row] + i, scale, count, lanes);
            for (int j = 0; j < count / T::kStep; j++)
              std::memcpy(to + size_t(i + j * T::kStep) * R, lanes + j * T::kStep, sizeof(Number) * T::kStep);
          });
        }
      }
    });
}

template <class T>
void segment_states(const KvLayer& kv, const AttentionRows& rows, int number, float* states, float* totals, float* memory) {
  const int32_t* blocks = rows.blocks + number * kSegment / kKvBlock;
  Segment<T> s{kv, rows.n_rows, number * kSegment, rows.kv_head, blocks, {}, {}, states, totals, rows.laid, memory, nullptr};
  const auto end_of_scores = reinterpret_cast<uintptr_t>(memory + size_t(kFewerAttentionRows) * kScoreStride);
  s.plain = reinterpret_cast<typename T::Element*>((end_of_scores + 63) / 64 * 64);
  int end = 0;
  for (int r = 0; r < rows.n_rows; r++) {
    int position = rows.position[r], begin = rows.window && position >= rows.window ? position - rows.window + 1 : 0;
    s.low[r] = begin > s.start ? begin - s.start : 0;
    s.high[r] = position + 1 - s.start < kSegment ? position + 1 - s.start : kSegment;
    end = position >= end ? position + 1 : end;
  }
  if (rows.n_rows <= kStreamRows) {
    if constexpr (T::kShortened) return stream_shortened<T>(s, rows.n_heads);
    return stream_segment<T>(s, rows.n_heads);
  }
  int left = (end - s.start - kSegment + kKvBlock - 1) / kKvBlock, most = kSegment / kKvBlock;
  tile_segment<T>(s, {kv, blocks + kSegment / kKvBlock, rows.kv_head, left < most ? left : most});
}

// body(T()) for the cache's type.
template <class Body>
inline void with_type(KvType type, Body body) {
  if (type == KvType::Q8_0) body(KvQ8());
  else if (type == KvType::BF16_12) body(KvShortened());
  else if (type == KvType::BF16) body(KvPairs());
  else if (type == KvType::F16) body(KvF16());
  else body(KvF32());
}

// ---- what the table offers ------------------------------------------------------------------------------------------

void attention_queries(const KvLayer& kv, const AttentionRows& rows) {
  with_type(kv.type, [&](auto type) { lay_queries<decltype(type)>(kv, rows); });
}

void attention_segment(const KvLayer& kv, const AttentionRows& rows, int segment, float* states, float* totals, float* scratch) {
  with_type(kv.type, [&](auto type) { segment_states<decltype(type)>(kv, rows, segment, states, totals, scratch); });
}

void attention_fold(const float* state, int v_dim, float* total) { fold(state, v_dim, total); }

void attention_finish(const float* total, int n, float* y) {
  F inverse = f_set(1.0f / total[1]);
  for_lanes(n, [&](int d, auto count) { f_store_n(y + d, f_mul(f_load(total + kStateHead + d), inverse), count); });
}

}  // namespace
}  // namespace gristmill
