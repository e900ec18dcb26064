// Searches for the scales of Q4_K, Q5_K, Q6_K (sixteen sub-blocks side by side) and MXFP4. formats/quantize_k.py and
// quantize_blocks.py are the definitions; every sum here is taken in their order, without fused operations. Written on a
// simd_*.h, which is included before.
#pragma once
#include <cmath>
#include <cstring>

#include "half.h"
#include "quantize.h"

namespace gristmill {
namespace {

constexpr int kSide = 16;  // sub-blocks side by side
constexpr int kRefits = 2;
constexpr float kTiny = 1e-30f, kWorst = 3e38f;

inline F pick(F mask, F yes, F no) { return f_add(f_mul(mask, yes), f_mul(f_sub(f_set(1.0f), mask), no)); }
inline F f_not(F mask) { return f_sub(f_set(1.0f), mask); }
inline F f_below(F a, F b) { return f_not(f_at_least(a, b)); }
inline F f_clamp(F x, float low, float high) { return f_min(f_max(x, f_set(low)), f_set(high)); }
inline F f_neg(F x) { return f_sub(f_zero(), x); }

// a / b, 0 where b is too small to divide by.
inline F divide(F a, F b) {
  F there = f_at_least(f_abs(b), f_set(kTiny));
  return f_mul(there, f_div(a, pick(there, b, f_set(1.0f))));
}
inline F inverse(F x) { return divide(f_set(1.0f), x); }
inline F twice(F x) { return f_add(x, x); }
inline float round_half(float x) { return half_to_float(float_to_half(x)) + 0.0f; }

// Applies `of` to each block's lanes, `width` of them, one after another; every lane of a block gets its result.
template <class Of>
inline F each_block(F values, int width, Of of) {
  float v[kSide];
  f_store(v, values);
  for (int b = 0; b < kSide; b += width) {
    float result = v[b];
    for (int j = 1; j < width; j++) result = of(result, v[b + j]);
    for (int j = 0; j < width; j++) v[b + j] = result;
  }
  return f_load(v);
}
inline F total(F values, int width) {
  return each_block(values, width, [](float a, float b) { return a + b; });
}
inline F largest(F values, int width) {
  return each_block(values, width, [](float a, float b) { return b > a ? b : a; });
}
inline F halves(F values) {
  float v[kSide];
  f_store(v, values);
  for (float& one : v) one = round_half(one);
  return f_load(v);
}

// ---- Q4_K and Q5_K: x = d scale q - d_min minimum, 32 numbers a sub-block, 8 sub-blocks a block -----------------------

constexpr int kLine = 32, kLinesABlock = 8;

struct Lines {
  F scale, minimum, error;
};

void best_lines(const float (*x)[kSide], float n_max, F* best_step, F* best_offset) {
  F low = f_load(x[0]), high = low, sum_x = low;
  for (int i = 1; i < kLine; i++) {
    F v = f_load(x[i]);
    low = f_min(low, v), high = f_max(high, v), sum_x = f_add(sum_x, v);
  }
  low = f_min(low, f_zero());
  F width = f_sub(f_max(high, low), low), n = f_set(float(kLine)), best = f_set(kWorst);
  *best_step = f_zero(), *best_offset = f_neg(low);
  for (int k = -12; k <= 8; k++) {
    F inv = divide(f_set(n_max + float(k) / 8.0f), width), top = f_set(n_max);
    F sum_q = f_zero(), sum_qq = f_zero(), sum_qx = f_zero();
    for (int i = 0; i < kLine; i++) {
      F v = f_load(x[i]), q = f_min(f_round(f_mul(f_sub(v, low), inv)), top);
      sum_q = f_add(sum_q, q), sum_qq = f_add(sum_qq, f_mul(q, q)), sum_qx = f_add(sum_qx, f_mul(q, v));
    }
    F determinant = f_sub(f_mul(n, sum_qq), f_mul(sum_q, sum_q));
    F step = divide(f_sub(f_mul(n, sum_qx), f_mul(sum_x, sum_q)), determinant);
    F offset = divide(f_sub(f_mul(sum_q, sum_qx), f_mul(sum_qq, sum_x)), determinant);
    F through_zero = f_max(f_below(offset, f_zero()), f_at_least(f_zero(), determinant));
    step = f_max(pick(through_zero, divide(sum_qx, sum_qq), step), f_zero());
    offset = f_max(offset, f_zero());
    F with_step = f_mul(step, f_sub(f_mul(step, sum_qq), twice(f_add(f_mul(offset, sum_q), sum_qx))));
    F error = f_add(with_step, f_mul(offset, f_add(f_mul(n, offset), twice(sum_x))));
    F better = f_mul(f_below(error, best), f_not(f_at_least(f_zero(), sum_qq)));
    best = pick(better, error, best);
    *best_step = pick(better, step, *best_step), *best_offset = pick(better, offset, *best_offset);
  }
}

inline F line_q(F x, F offset, F inv, float n_max) { return f_clamp(f_round(f_mul(f_add(x, offset), inv)), 0.0f, n_max); }

Lines search_lines(const float (*x)[kSide], float n_max, F d, F d_min, const Lines& from) {
  static constexpr int kMoves[3] = {0, -1, 1};
  Lines best{from.scale, from.minimum, f_set(kWorst)};
  for (int a : kMoves) {
    for (int b : kMoves) {
      F scale = f_clamp(f_add(from.scale, f_set(float(a))), 0.0f, 63.0f);
      F minimum = f_clamp(f_add(from.minimum, f_set(float(b))), 0.0f, 63.0f);
      F step = f_mul(d, scale), offset = f_mul(d_min, minimum), inv = inverse(step), error = f_zero();
      for (int i = 0; i < kLine; i++) {
        F v = f_load(x[i]), miss = f_sub(f_sub(f_mul(step, line_q(v, offset, inv, n_max)), offset), v);
        error = f_add(error, f_mul(miss, miss));
      }
      F better = f_below(error, best.error);
      best = {pick(better, scale, best.scale), pick(better, minimum, best.minimum), pick(better, error, best.error)};
    }
  }
  return best;
}

void refit_lines(const float (*x)[kSide], float n_max, const Lines& from, F* d, F* d_min) {
  F step = f_mul(*d, from.scale), offset = f_mul(*d_min, from.minimum), inv = inverse(step);
  F sum_q = f_zero(), sum_qq = f_zero(), sum_qx = f_zero(), sum_x = f_zero();
  for (int i = 0; i < kLine; i++) {
    F v = f_load(x[i]), q = line_q(v, offset, inv, n_max);
    sum_q = f_add(sum_q, q), sum_qq = f_add(sum_qq, f_mul(q, q)), sum_qx = f_add(sum_qx, f_mul(q, v)), sum_x = f_add(sum_x, v);
  }
  F ss = total(f_mul(f_mul(from.scale, from.scale), sum_qq), kLinesABlock);
  F sm = total(f_mul(f_mul(from.scale, from.minimum), sum_q), kLinesABlock);
  F mm = total(f_mul(f_mul(from.minimum, from.minimum), f_set(float(kLine))), kLinesABlock);
  F sx = total(f_mul(from.scale, sum_qx), kLinesABlock), mx = f_neg(total(f_mul(from.minimum, sum_x), kLinesABlock));
  F determinant = f_sub(f_mul(ss, mm), f_mul(sm, sm)), alone = f_at_least(f_zero(), determinant);
  F both = divide(f_add(f_mul(sx, mm), f_mul(mx, sm)), determinant);
  *d = halves(f_max(pick(alone, divide(sx, ss), both), f_zero()));
  *d_min = halves(f_max(f_mul(f_not(alone), divide(f_add(f_mul(mx, ss), f_mul(sx, sm)), determinant)), f_zero()));
}

void fit_lines(const float (*x)[kSide], int n_levels, LineFit* fit) {
  float n_max = float(n_levels);
  F step, offset;
  best_lines(x, n_max, &step, &offset);
  F d = halves(f_div(largest(step, kLinesABlock), f_set(63.0f)));
  F d_min = halves(f_div(largest(offset, kLinesABlock), f_set(63.0f)));
  Lines best{f_min(f_round(f_mul(step, inverse(d))), f_set(63.0f)),
             f_min(f_round(f_mul(offset, inverse(d_min))), f_set(63.0f)), f_zero()};
  best = search_lines(x, n_max, d, d_min, best);
  for (int k = 0; k < kRefits; k++) {
    F other_d = d, other_min = d_min;
    refit_lines(x, n_max, best, &other_d, &other_min);
    Lines found = search_lines(x, n_max, other_d, other_min, best);
    F better = f_below(total(found.error, kLinesABlock), total(best.error, kLinesABlock));
    d = pick(better, other_d, d), d_min = pick(better, other_min, d_min);
    best = {pick(better, found.scale, best.scale), pick(better, found.minimum, best.minimum),
            pick(better, found.error, best.error)};
  }
  f_store(fit->d, d), f_store(fit->d_min, d_min), f_store(fit->scale, best.scale), f_store(fit->minimum, best.minimum);
  F chosen = f_mul(d, best.scale), below = f_mul(d_min, best.minimum), inv = inverse(chosen);
  for (int i = 0; i < kLine; i++) f_store(fit->q[i], line_q(f_load(x[i]), below, inv, n_max));
}

// ---- Q6_K: x = d scale q, 16 numbers a sub-block, 16 sub-blocks a block -----------------------------------------------

inline F symmetric_q(F x, F inv) { return f_clamp(f_round(f_mul(x, inv)), -32.0f, 31.0f); }

F best_symmetric_steps(const float (*x)[kSide]) {
  F low = f_load(x[0]), high = low;
  for (int i = 1; i < kSide; i++) low = f_min(low, f_load(x[i])), high = f_max(high, f_load(x[i]));
  F extreme = pick(f_at_least(high, f_neg(low)), high, low), best = f_zero(), best_step = f_zero();
  for (int k = -16; k <= 8; k++) {
    F inv = divide(f_set(-(32.0f + float(k) / 8.0f)), extreme), sum_qx = f_zero(), sum_qq = f_zero();
    for (int i = 0; i < kSide; i++) {
      F v = f_load(x[i]), q = symmetric_q(v, inv);
      sum_qx = f_add(sum_qx, f_mul(q, v)), sum_qq = f_add(sum_qq, f_mul(q, q));
    }
    F step = divide(sum_qx, sum_qq), gain = f_mul(step, sum_qx), better = f_not(f_at_least(best, gain));
    best = pick(better, gain, best), best_step = pick(better, step, best_step);
  }
  return best_step;
}

struct Symmetric {
  F scale, error;
};

Symmetric search_symmetric(const float (*x)[kSide], F d, F from) {
  static constexpr int kMoves[3] = {0, -1, 1};
  Symmetric best{from, f_set(kWorst)};
  for (int a : kMoves) {
    F scale = f_clamp(f_add(from, f_set(float(a))), -128.0f, 127.0f), step = f_mul(d, scale), inv = inverse(step);
    F error = f_zero();
    for (int i = 0; i < kSide; i++) {
      F v = f_load(x[i]), miss = f_sub(f_mul(step, symmetric_q(v, inv)), v);
      error = f_add(error, f_mul(miss, miss));
    }
    F better = f_below(error, best.error);
    best = {pick(better, scale, best.scale), pick(better, error, best.error)};
  }
  return best;
}

F refit_symmetric(const float (*x)[kSide], F d, F scale) {
  F inv = inverse(f_mul(d, scale)), above = f_zero(), below = f_zero();
  for (int i = 0; i < kSide; i++) {
    F v = f_load(x[i]), step = f_mul(symmetric_q(v, inv), scale);
    above = f_add(above, f_mul(step, v)), below = f_add(below, f_mul(step, step));
  }
  return halves(divide(total(above, kSide), total(below, kSide)));
}

void fit_symmetric(const float (*x)[kSide], SymmetricFit* fit) {
  F start = best_symmetric_steps(x);
  F most = each_block(start, kSide, [](float a, float b) { return std::fabs(b) > std::fabs(a) ? b : a; });
  F d = halves(f_div(most, f_set(-128.0f)));
  Symmetric best = search_symmetric(x, d, f_clamp(f_round(f_mul(start, inverse(d))), -128.0f, 127.0f));
  for (int k = 0; k < kRefits; k++) {
    F other_d = refit_symmetric(x, d, best.scale);
    Symmetric other = search_symmetric(x, other_d, best.scale);
    F better = f_below(total(other.error, kSide), total(best.error, kSide));
    d = pick(better, other_d, d);
    best = {pick(better, other.scale, best.scale), pick(better, other.error, best.error)};
  }
  f_store(fit->d, d), f_store(fit->scale, best.scale);
  F inv = inverse(f_mul(d, best.scale));
  for (int i = 0; i < kSide; i++) f_store(fit->q[i], symmetric_q(f_load(x[i]), inv));
}

// ---- MXFP4: two scales are tried ---------------------------------------------------------------------------------------

// Codes of |x| (two vectors) under the scale 2^(e - 127), and their squared error.
float mxfp4_codes(const F* size, int e, float* codes) {
  static constexpr float kLimits[] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f}, kSteps[] = {1, 1, 1, 1, 2, 2, 4};
  float unit = e8m0_half(uint8_t(e));
  F squares = f_zero();
  for (int half = 0; half < 2; half++) {
    F v = f_mul(size[half], f_set(1.0f / unit)), code = f_zero(), value = f_zero();
    for (int k = 0; k < 7; k++) {
      F above = f_below(f_set(kLimits[k]), v);
      code = f_add(code, above), value = f_add(value, f_mul(above, f_set(kSteps[k])));
    }
    F miss = f_sub(f_mul(f_set(unit), value), size[half]);
    squares = f_add(squares, f_mul(miss, miss));
    f_store(codes + kSide * half, code);
  }
  float sums[kSide];
  f_store(sums, squares);
  for (int width = kSide / 2; width; width /= 2)
    for (int i = 0; i < width; i++) sums[i] += sums[i + width];
  return sums[0];
}

void fit_mxfp4(const float* x, uint8_t* out) {
  F size[2] = {f_abs(f_load(x)), f_abs(f_load(x + kSide))};
  float most = f_peak(f_max(size[0], size[1]));
  if (most < kTiny) {
    std::memset(out, 0, 17);
    return;
  }
  int e = int(bits_of_float(most) >> 23) - 2;
  float first[2 * kSide], second[2 * kSide];
  float cut = mxfp4_codes(size, e, first), whole = mxfp4_codes(size, e + 1, second);
  const float* codes = whole < cut ? second : first;
  out[0] = uint8_t(whole < cut ? e + 1 : e);
  auto nibble = [&](int i) { return int(codes[i]) | (codes[i] > 0 && x[i] < 0 ? 8 : 0); };
  for (int i = 0; i < kSide; i++) out[1 + i] = uint8_t(nibble(i) | nibble(i + kSide) << 4);
}

constexpr Fits kFits = {fit_lines, fit_symmetric, fit_mxfp4};

}  // namespace
}  // namespace gristmill
