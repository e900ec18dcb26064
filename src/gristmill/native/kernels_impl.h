// The kernels, written once on the vector operations of a simd_*.h, which must be included before this file.
//
// Every output has a lane and a fixed order of operations of its own: columns of the weight in order, blocks in order,
// keys by absolute position. So a row's result does not depend on how many rows, panels or threads work beside it.
#pragma once
#include <cmath>

#include "blocked_impl.h"
#include "matrix.h"

namespace gristmill {
namespace {

// ---- elementary functions -------------------------------------------------------------------------------------------

// e^x to about 2 ulp: x = n ln 2 + r, then a polynomial in r (Cephes' coefficients).
inline F f_exp(F x) {
  x = f_min(f_max(x, f_set(-87.3f)), f_set(88.0f));
  F n = f_round(f_mul(x, f_set(1.44269504f)));
  F r = f_fnma(n, f_set(0.693359375f), x);
  r = f_fnma(n, f_set(-2.12194440e-4f), r);
  F p = f_set(1.9875691500e-4f);
  p = f_fma(p, r, f_set(1.3981999507e-3f));
  p = f_fma(p, r, f_set(8.3334519073e-3f));
  p = f_fma(p, r, f_set(4.1665795894e-2f));
  p = f_fma(p, r, f_set(1.6666665459e-1f));
  p = f_fma(p, r, f_set(5.0000001201e-1f));
  p = f_add(f_fma(p, f_mul(r, r), r), f_set(1.0f));
  return f_mul(p, f_pow2(n));
}

inline float exp1(float x) {
  float y[16];
  f_store(y, f_exp(f_set(x)));
  return y[0];
}

template <class Body>
inline void for_lanes(int n, Body body) {  // body(offset, count), 16 at a time
  for (int i = 0; i < n; i += kLanes) body(i, n - i < kLanes ? n - i : kLanes);
}

void quantize(const float* x, int n, int lane, ActivationBlock* out) {
  for (int b = 0; b < n / kBlock; b++, x += kBlock, out++) {
    F low = f_load(x), high = f_load(x + kLanes);
    float peak = f_peak(f_max(f_abs(low), f_abs(high)));
    float inverse = peak > 0 ? 127.0f / peak : 0.0f;
    I first = i_of_f(f_mul(low, f_set(inverse))), second = i_of_f(f_mul(high, f_set(inverse)));
    i8_of_i(out->q[lane], first);
    i8_of_i(out->q[lane] + kLanes, second);
    int32_t sum_low = i_sum(first), sum_high = i_sum(second);
    out->scale[lane] = peak / 127.0f;
    out->scaled_sum[lane] = out->scale[lane] * float(sum_low + sum_high);
    out->negative[lane] = -(sum_low + sum_high);
    out->negative_low[lane] = -sum_low;
    out->negative_high[lane] = -sum_high;
  }
}

void to_bf16(const float* x, int n, uint16_t* y) {
  for (int i = 0; i < n; i++) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    y[i] = uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

void to_half(const float* x, int n, uint16_t* y) {
  for_lanes(n, [&](int i, int count) {
    uint16_t lanes[kLanes];
    half_of_f(lanes, f_load_n(x + i, count));
    std::memcpy(y + i, lanes, size_t(count) * 2);
  });
}

void from_half(const uint16_t* x, int n, float* y) {
  for_lanes(n, [&](int i, int count) {
    uint16_t lanes[kLanes] = {};
    std::memcpy(lanes, x + i, size_t(count) * 2);
    f_store_n(y + i, f_of_half(lanes), count);
  });
}

void rms_norm(const float* x, const float* weight, int n, float eps, float* y) {
  F squares = f_zero();
  for_lanes(n, [&](int i, int count) {
    F v = f_load_n(x + i, count);
    squares = f_fma(v, v, squares);
  });
  F inverse = f_set(1.0f / std::sqrt(f_sum(squares) / float(n) + eps));
  for_lanes(n, [&](int i, int count) {
    f_store_n(y + i, f_mul(f_mul(f_load_n(x + i, count), inverse), f_load_n(weight + i, count)), count);
  });
}

// limit 0: gate sigmoid(gate) up. Otherwise gpt-oss's: gate clamped from above, up on both sides, (up + 1) gate sigmoid(1.702 gate).
void swiglu(const float* gate, const float* up, int n, float limit, float* y) {
  F one = f_set(1.0f), slope = f_set(limit > 0 ? 1.702f : 1.0f);
  for_lanes(n, [&](int i, int count) {
    F g = f_load_n(gate + i, count), u = f_load_n(up + i, count);
    if (limit > 0) {
      g = f_min(g, f_set(limit));
      u = f_add(f_max(f_min(u, f_set(limit)), f_set(-limit)), one);
    }
    F sigmoid = f_div(one, f_add(one, f_exp(f_mul(f_sub(f_zero(), slope), g))));
    f_store_n(y + i, f_mul(f_mul(g, sigmoid), u), count);
  });
}

void add(const float* x, float* y, int n) {
  for_lanes(n, [&](int i, int count) { f_store_n(y + i, f_add(f_load_n(x + i, count), f_load_n(y + i, count)), count); });
}

void scaled_add(const float* x, float a, float* y, int n) {
  for_lanes(n, [&](int i, int count) {
    f_store_n(y + i, f_fma(f_load_n(x + i, count), f_set(a), f_load_n(y + i, count)), count);
  });
}

// ---- attention ------------------------------------------------------------------------------------------------------

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

constexpr Kernels kKernels = {
    kIsa,
    {plain_linear<PlainF32>, plain_linear<PlainF16>, plain_linear<PlainBf16>, blocked_linear<TypeQ8_0>,
     blocked_linear<TypeQ8F>, blocked_linear<TypeQ4_0>, blocked_linear<TypeQ4_K>, blocked_linear<TypeQ5_K>,
     blocked_linear<TypeQ6_K>, blocked_linear<TypeMxfp4>},
    quantize, to_bf16, rms_norm, swiglu, add, scaled_add, attention, to_half, from_half,
    &kPeaks,
};

}  // namespace
}  // namespace gristmill
