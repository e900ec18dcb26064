// Attention over the paged cache, written once on the vector operations of a simd_*.h; kernels_impl.h comes before it.
//
// A row's keys are taken in spans of absolute positions, so that its result does not depend on the rows beside it.
#pragma once
#include "kernels_impl.h"

namespace gristmill {
namespace {

constexpr int kSpan = kAttentionVectors * kKvBlock;  // keys that share one step of the online softmax

struct Full {
  using Element = float;
  static F load(const float* p) { return f_load(p); }
};
struct Half {
  using Element = uint16_t;
  static F load(const uint16_t* p) { return f_of_half(p); }
};

// Scores of R rows against the span's keys, a lane a key: out[r][kSpan].
template <class E, int R>
inline void span_scores(const KvLayer& kv, const AttentionRows& rows, int first_row, const typename E::Element* const* keys,
                        float* out) {
  F acc[R][kAttentionVectors];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < kAttentionVectors; v++) acc[r][v] = f_zero();
  for (int d = 0; d < kv.head_dim; d++) {
    F k[kAttentionVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kAttentionVectors; v++) k[v] = E::load(keys[v] + size_t(d) * kKvBlock);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      F q = f_set(rows.q[first_row + r][d]);
#pragma GCC unroll 8
      for (int v = 0; v < kAttentionVectors; v++) acc[r][v] = f_fma(q, k[v], acc[r][v]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < kAttentionVectors; v++) f_store(out + r * kSpan + v * kKvBlock, f_mul(acc[r][v], f_set(rows.scale)));
}

// o[r] += p[r] V over the keys [low, high) of the span, 16 dimensions at a time, keys in order.
template <class E, int R>
inline void span_values(const KvLayer& kv, const typename E::Element* const* values, const float* p, int low, int high,
                        float* const* o) {
  for (int d = 0; d < kv.v_dim; d += kLanes) {
    F acc[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) acc[r] = f_load(o[r] + d);
    for (int j = low; j < high; j++) {
      F v = E::load(values[j / kKvBlock] + size_t(j % kKvBlock) * kv.v_dim + d);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) acc[r] = f_fma(f_set(p[r * kSpan + j]), v, acc[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) f_store(o[r] + d, acc[r]);
  }
}

// Masks the scores of one row, folds them into its running maximum and sum, and leaves probabilities in their place.
// Returns what the row's earlier output must be multiplied by.
inline float fold_span(float* s, int low, int high, float* maximum, float* total) {
  F peak = f_set(*maximum), sum = f_zero();
  for (int v = 0; v < kAttentionVectors; v++) {
    F masked = f_between(f_load(s + v * kLanes), low - v * kLanes, high - v * kLanes, f_set(-INFINITY));
    f_store(s + v * kLanes, masked);
    peak = f_max(peak, masked);
  }
  float top = f_peak(peak);
  for (int v = 0; v < kAttentionVectors; v++) {
    F p = f_exp(f_sub(f_load(s + v * kLanes), f_set(top)));
    p = f_between(p, low - v * kLanes, high - v * kLanes, f_zero());
    f_store(s + v * kLanes, p);
    sum = f_add(sum, p);
  }
  float keep = *maximum == top ? 1.0f : exp1(*maximum - top);
  *total = *total * keep + f_sum(sum);
  *maximum = top;
  return keep;
}

template <class E>
void attention_rows(const KvLayer& kv, const AttentionRows& rows, float* scratch) {
  using Element = typename E::Element;
  constexpr int R = kAttentionRows;
  float* scores = scratch;                                    // [R, kSpan]
  float* outputs = scratch + R * kSpan;                       // [n_rows, v_dim]
  float maximum[kMaxAttentionRows], total[kMaxAttentionRows];
  int first = rows.position[0], last = rows.position[0];
  for (int r = 0; r < rows.n_rows; r++) {
    // A sink is a key without a value: it enters the denominator alone.
    maximum[r] = rows.sink ? rows.sink[r] : -1e30f;
    total[r] = rows.sink ? 1.0f : 0.0f;
    first = rows.position[r] < first ? rows.position[r] : first;
    last = rows.position[r] > last ? rows.position[r] : last;
    for (int d = 0; d < kv.v_dim; d++) outputs[r * kv.v_dim + d] = 0.0f;
  }
  int begin = rows.window && first >= rows.window ? first - rows.window + 1 : 0;
  size_t k_block = size_t(kv.n_kv_heads) * kv.head_dim * kKvBlock, v_block = size_t(kv.n_kv_heads) * kv.v_dim * kKvBlock;
  for (int span = begin / kSpan * kSpan; span <= last; span += kSpan) {
    const Element *keys[kAttentionVectors], *values[kAttentionVectors];
    for (int v = 0; v < kAttentionVectors; v++) {
      int position = span + v * kKvBlock;
      size_t id = size_t(rows.blocks[(position <= last ? position : last) / kKvBlock]);
      keys[v] = static_cast<const Element*>(kv.k) + id * k_block + size_t(rows.kv_head) * kv.head_dim * kKvBlock;
      values[v] = static_cast<const Element*>(kv.v) + id * v_block + size_t(rows.kv_head) * kv.v_dim * kKvBlock;
    }
    for (int r = 0; r < rows.n_rows; r += R) {
      int n = rows.n_rows - r < R ? rows.n_rows - r : R;
      if (n == R) span_scores<E, R>(kv, rows, r, keys, scores);
      else for (int i = 0; i < n; i++) span_scores<E, 1>(kv, rows, r + i, keys, scores + i * kSpan);
      int low = kSpan, high = 0;
      float* o[R];
      for (int i = 0; i < n; i++) {
        int position = rows.position[r + i];
        int row_low = rows.window && position - rows.window + 1 > span ? position - rows.window + 1 - span : 0;
        int row_high = position + 1 - span < kSpan ? position + 1 - span : kSpan;
        row_high = row_high < 0 ? 0 : row_high;
        float keep = fold_span(scores + i * kSpan, row_low, row_high, &maximum[r + i], &total[r + i]);
        o[i] = outputs + size_t(r + i) * kv.v_dim;
        if (keep != 1.0f)
          for (int d = 0; d < kv.v_dim; d += kLanes) f_store(o[i] + d, f_mul(f_load(o[i] + d), f_set(keep)));
        low = row_low < low ? row_low : low;
        high = row_high > high ? row_high : high;
      }
      if (n == R) span_values<E, R>(kv, values, scores, low, high, o);
      else for (int i = 0; i < n; i++) span_values<E, 1>(kv, values, scores + i * kSpan, low, high, o + i);
    }
  }
  for (int r = 0; r < rows.n_rows; r++) {
    F inverse = f_set(1.0f / total[r]);
    for_lanes(kv.head_dim, [&](int d, int count) {
      f_store_n(rows.y[r] + d, f_mul(f_load(outputs + size_t(r) * kv.v_dim + d), inverse), count);
    });
  }
}

void attention(const KvLayer& kv, const AttentionRows& rows, float* scratch) {
  if (kv.half) attention_rows<Half>(kv, rows, scratch);
  else attention_rows<Full>(kv, rows, scratch);
}

}  // namespace
}  // namespace gristmill
