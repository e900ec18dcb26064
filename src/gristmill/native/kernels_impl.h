// The kernels, written once on the vector operations of a simd_*.h, which must be included before this file.
//
// Every output has a lane and a fixed order of operations of its own: columns of the weight in order, blocks in order,
// keys by absolute position. So a row's result does not depend on how many rows, panels or threads work beside it.
#pragma once
#include <cfloat>
#include <cmath>
#include <cstring>
#include <type_traits>

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
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, std::integral_constant<int, kLanes>());
  if (i < n) body(i, n - i);
}

// Rows are read one after another, and each begins a page where the processor foresees nothing: asked for so early, they
// are there in time.
constexpr int kFloatsAhead = 1024;
__attribute__((always_inline)) inline void fetch_row(const float* x) { __builtin_prefetch(x + kFloatsAhead, 0, 3); }

// What the largest of n numbers is multiplied by to become 127.
inline float inverse_scale(float peak) { return peak > 0 ? 127.0f / peak : 0.0f; }

inline F block_peaks(const float* x) { return f_max(f_abs(f_load(x)), f_abs(f_load(x + kLanes))); }

// NaN in some lane where x is not finite.
inline F poison_of(F x, F poison) { return f_fma(x, f_zero(), poison); }

// Quants. What is not finite becomes some quant, so that no sum runs over.
inline I rounded(const float* x, float inverse) {
  return i_of_f(f_min(f_max(f_mul(f_load(x), f_set(inverse)), f_set(-127.0f)), f_set(127.0f)));
}

// One block of 32: q and their sums by halves.
inline void round_block(const float* x, float inverse, int8_t* q, int32_t* sum) {
  I first = rounded(x, inverse), second = rounded(x + kLanes, inverse);
  i8_of_i(q, first);
  i8_of_i(q + kLanes, second);
  sum[0] = i_sum(first), sum[1] = i_sum(second);
}

void quantize(const float* x, int n, int8_t* q, float* scale, int32_t* sum) {
  for (int b = 0; b < n / kBlock; b++, x += kBlock) {
    const float peak = f_peak(block_peaks(x));
    round_block(x, inverse_scale(peak), q + b * kBlock, sum + 2 * b);
    scale[b] = peak / 127.0f + f_sum(poison_of(f_load(x + kLanes), poison_of(f_load(x), f_zero())));
  }
}

// The sums of kSuperSteps blocks' quants, as 128 high + low. They are gathered in registers: what was just stored in pieces can't
// be loaded as a whole until it has reached the cache.
struct SplitSums {
  uint64_t high = 0, low = 0;

  void add(int i, int32_t sum) {
    int32_t rest = ((sum + 64) & 127) - 64;
    high |= uint64_t(uint8_t((sum - rest) / 128)) << (8 * i);
    low |= uint64_t(uint8_t(rest)) << (8 * i);
  }
  void put(int lane, ActivationBlock* out) const {
    const uint32_t fours[] = {uint32_t(high), uint32_t(high >> 32), uint32_t(low), uint32_t(low >> 32)};
    for (int i = 0; i < 4; i++) std::memcpy(out[i].sums[lane], fours + i, 4);
  }
};

// What n numbers have in common that share a scale: x ~ q / inverse = q * scale.
struct SharedScale {
  float scale, inverse;

  SharedScale(const float* x, int n) {
    F peaks = f_zero(), poison = f_zero();
    for (int i = 0; i < n; i += kLanes) {
      fetch_row(x + i);
      F v = f_load(x + i);
      peaks = f_max(peaks, f_abs(v)), poison = poison_of(v, poison);
    }
    const float peak = f_peak(peaks);
    scale = peak / 127.0f + f_sum(poison), inverse = inverse_scale(peak);
  }
};

// Eight blocks of one scale at a time, the last time perhaps fewer.
template <bool kWhole>
void quantize_shared(const float* x, int n, int lane, ActivationBlock* out) {
  for (int left = n / kBlock; left > 0; left -= kSuperSteps, out += kSuperSteps) {
    const int n_blocks = left < kSuperSteps ? left : kSuperSteps;
    const SharedScale shared(x, n_blocks * kBlock);
    SplitSums sums;
    for (int i = 0; i < n_blocks; i++, x += kBlock) {
      int32_t sum[2];
      round_block(x, shared.inverse, out[i].q[lane], sum);
      sums.add(i, sum[0] + sum[1]);
      out[i].scale[lane] = shared.scale;
      out[i].start[0][lane] = kWhole ? -(sum[0] + sum[1]) : start_of_half<TypeQ6_K, 0>(sum[0]);
      out[i].start[1][lane] = kWhole ? -sum[1] : start_of_half<TypeQ6_K, 1>(sum[1]);
    }
    if (n_blocks == kSuperSteps) sums.put(lane, out);
  }
}

// Each block has the least power of two of which 127 reach its largest number. All are bits of floats.
void quantize_blocks(const float* x, int n, int lane, ActivationBlock* out) {
  constexpr uint32_t kUnitBits = (127 + kUnitExponent) << 23, kMantissa = (1 << 23) - 1, kMost = kMostRaise << 23;
  F poison = f_zero();
  bool large = false;
  for (int b = 0; b < n / kBlock; b++, x += kBlock, out++) {
    fetch_row(x);
    fetch_row(x + kLanes);
    poison = poison_of(f_load(x + kLanes), poison_of(f_load(x), poison));
    const float least = f_peak(block_peaks(x)) / 127.0f;
    uint32_t power;  // of NaN more than any other
    std::memcpy(&power, &least, 4);
    power = (power + kMantissa) & ~kMantissa;
    if (power < kUnitBits) power = kUnitBits;
    large |= power - kUnitBits > kMost;
    float inverse;
    int32_t sum[2];
    const uint32_t inverse_power = (254u << 23) - power;
    std::memcpy(&inverse, &inverse_power, 4);
    round_block(x, inverse, out->q[lane], sum);
    out->raise[lane] = int32_t(power - kUnitBits);
    out->start[0][lane] = -(sum[0] + sum[1]);
  }
  out[-1].scale[lane] = large ? NAN : kUnit + f_sum(poison);
}

void quantize_tile(const float* x, int n, bool super, int lane, ActivationBlock* out) {
  if (super) quantize_shared<false>(x, n, lane, out);
  else quantize_blocks(x, n, lane, out);
}

// Quants rounded half to even. A row with a number that is not finite gets the scale NaN.
float quantize_row(const float* x, int n, int8_t* q) {
  F peaks = f_zero(), poison = f_zero();
  for (int i = 0; i < n; i += kLanes) {
    F v = f_load(x + i);
    peaks = f_max(peaks, f_abs(v)), poison = poison_of(v, poison);
  }
  float peak = f_peak(peaks), inverse = 127.0f / peak;
  if (!(inverse <= FLT_MAX)) inverse = 0;  // a row of zeros, or so small that it becomes one
  for (int i = 0; i < n; i += kLanes) i8_of_i(q + i, i_of_f(f_mul(f_load(x + i), f_set(inverse))));
  return peak / 127.0f + f_sum(poison);
}

// scale = max |x| / 127 as half; quants rounded half away from zero, with the scale not yet rounded.
void quantize_q8_0(const float* x, int n, uint8_t* blocks) {
  for (int b = 0; b < n / kBlock; b++, x += kBlock, blocks += 34) {
    float d = f_peak(f_max(f_abs(f_load(x)), f_abs(f_load(x + kLanes)))) / 127.0f, inverse = 1.0f / d;
    if (!(inverse <= FLT_MAX)) inverse = 0;
    uint16_t halves[kLanes];
    half_of_f(halves, f_set(d));
    std::memcpy(blocks, halves, 2);
    int8_t q[kBlock];
    for (int i = 0; i < kBlock; i++) {
      float v = x[i] * inverse;
      int whole = int(v);
      float rest = v - float(whole);
      q[i] = int8_t(whole + (rest >= 0.5f) - (rest <= -0.5f));
    }
    std::memcpy(blocks + 2, q, kBlock);
  }
}

void to_bf16(const float* x, int n, uint16_t* y) {
  for (int i = 0; i < n; i++) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;  // rounded it might become a zero
    y[i] = uint16_t((nan ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

void to_half(const float* x, int n, uint16_t* y) {
  for_lanes(n, [&](int i, auto count) {
    uint16_t lanes[kLanes];
    half_of_f(lanes, f_load_n(x + i, count));
    std::memcpy(y + i, lanes, size_t(count) * 2);
  });
}

void from_half(const uint16_t* x, int n, float* y) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) f_store(y + i, f_of_half(x + i));
  if (i == n) return;
  uint16_t lanes[kLanes] = {};
  std::memcpy(lanes, x + i, size_t(n - i) * 2);
  f_store_n(y + i, f_of_half(lanes), n - i);
}

// Sign, 4 bits of exponent, 3 of mantissa, in the places of a float's, whose exponent is 120 more.
void from_fp8(const uint8_t* x, int n, float scale, float* y) {
  for (int i = 0; i < n; i++) {
    const uint32_t magnitude = uint32_t(x[i] & 0x7f) << 20, bits = magnitude | uint32_t(x[i] & 0x80) << 24;
    float value;
    std::memcpy(&value, &bits, 4);
    y[i] = (magnitude == 0x7f << 20 ? NAN : value * 0x1p120f) * scale;
  }
}

void rms_norm(const float* x, const float* more, float* total, const float* weight, int n, float eps, float* y) {
  F squares = f_zero();
  for_lanes(n, [&](int i, auto count) {
    fetch_row(x + i);
    F v = f_load_n(x + i, count);
    if (more) {
      fetch_row(more + i);
      f_store_n(total + i, v = f_add(v, f_load_n(more + i, count)), count);
    }
    squares = f_fma(v, v, squares);
  });
  if (more) x = total;
  F inverse = f_set(1.0f / std::sqrt(f_sum(squares) / float(n) + eps));
  for_lanes(n, [&](int i, auto count) {
    f_store_n(y + i, f_mul(f_mul(f_load_n(x + i, count), inverse), f_load_n(weight + i, count)), count);
  });
}

// limit 0: gate sigmoid(gate) up. Otherwise gpt-oss's: gate clamped from above, up on both sides, (up + 1) gate sigmoid(1.702
// gate).
void swiglu(const float* gate, const float* up, int n, float limit, float* y) {
  F one = f_set(1.0f), slope = f_set(limit > 0 ? 1.702f : 1.0f);
  for_lanes(n, [&](int i, auto count) {
    fetch_row(gate + i);
    fetch_row(up + i);
    F g = f_load_n(gate + i, count), u = f_load_n(up + i, count);
    if (limit > 0) {
      g = f_min(f_set(limit), g);  // NaN stays NaN
      u = f_add(f_max(f_set(-limit), f_min(f_set(limit), u)), one);
    }
    F sigmoid = f_div(one, f_add(one, f_exp(f_mul(f_sub(f_zero(), slope), g))));
    f_store_n(y + i, f_mul(f_mul(g, sigmoid), u), count);
  });
}

void add(const float* x, float* y, int n) {
  for_lanes(n, [&](int i, auto count) {
    fetch_row(x + i);
    f_store_n(y + i, f_add(f_load_n(x + i, count), f_load_n(y + i, count)), count);
  });
}

void scaled_add(const float* x, float a, float* y, int n) {
  for_lanes(n, [&](int i, auto count) {
    f_store_n(y + i, f_fma(f_load_n(x + i, count), f_set(a), f_load_n(y + i, count)), count);
  });
}

// Su et al., RoFormer (arXiv:2104.09864): turns the pair (x[i], x[i + n / 2]) by the angle of i.
void rotate(float* x, const float* cos, const float* sin, int n) {
  int half = n / 2;
  for_lanes(half, [&](int i, auto count) {
    F a = f_load_n(x + i, count), b = f_load_n(x + half + i, count), c = f_load_n(cos + i, count), s = f_load_n(sin + i, count);
    f_store_n(x + i, f_fnma(b, s, f_mul(a, c)), count);
    f_store_n(x + half + i, f_fma(a, s, f_mul(b, c)), count);
  });
}

int argmax(const float* x, int n) {
  constexpr int kStretch = 1024;
  int best = kNoId;
  float peak = -INFINITY, sum = 0;
  F sums = f_zero();
  for (int start = 0; start < n; start += kStretch) {
    int count = n - start < kStretch ? n - start : kStretch, whole = count / kLanes * kLanes;
    F most = f_set(-INFINITY);
    for (int i = 0; i < whole; i += kLanes) {
      F each = f_load(x + start + i);
      most = f_max(each, most), sums = f_add(each, sums);
    }
    float top = f_peak(most);
    for (int i = whole; i < count; i++) top = x[start + i] > top ? x[start + i] : top, sum += x[start + i];
    if (top > peak) {
      peak = top;
      for (best = start; x[best] != top;) best++;
    }
  }
  sum += f_sum(sums);  // NaN if any is, and where infinities of both signs are
  return std::isnan(sum) || peak == INFINITY ? kNoId : best;
}

// 0 * (-inf) and the like give NaN weights only where logits are NaN.
void weigh(const float* logits, int n, float peak, float inverse, float* weights, float* chunk_sums, float* chunk_peaks) {
  for (int chunk = 0; chunk * kWeighChunk < n; chunk++) {
    int start = chunk * kWeighChunk;
    F sum = f_zero(), most = f_set(-INFINITY), far = f_set(-INFINITY);
    for_lanes(n - start < kWeighChunk ? n - start : kWeighChunk, [&](int i, auto count) {
      F z = f_load_n(logits + start + i, count);
      F w = f_between(f_exp(f_mul(f_sub(z, f_set(peak)), f_set(inverse))), 0, count, f_zero());
      f_store_n(weights + start + i, w, count);
      sum = f_add(sum, w);
      most = f_max(f_between(z, 0, count, far), most);
    });
    chunk_sums[chunk] = f_sum(sum);
    chunk_peaks[chunk] = f_peak(most);
  }
}

double weight_at_least(const float* logits, const float* weights, int n, float bound, int64_t* count) {
  F sum = f_zero(), lanes = f_zero(), least = f_set(bound);
  int whole = n / kLanes * kLanes;
  for (int i = 0; i < whole; i += kLanes) {
    F in = f_at_least(f_load(logits + i), least);
    lanes = f_add(lanes, in);
    sum = f_fma(in, f_load(weights + i), sum);
  }
  double weight = f_sum(sum);
  int64_t kept = int64_t(f_sum(lanes));
  for (int i = whole; i < n; i++)
    if (logits[i] >= bound) kept++, weight += weights[i];
  *count += kept;
  return weight;
}

// attention_impl.h
void attention_queries(const KvLayer& kv, const AttentionRows& rows);
void attention_segment(const KvLayer& kv, const AttentionRows& rows, int segment, float* states, float* totals, float* scratch);
void attention_fold(const float* state, int v_dim, float* total);
void attention_finish(const float* total, int n, float* y);

constexpr Kernels kKernels = {
    kIsa,
    {plain_linear<PlainF32>, plain_linear<PlainF16>, plain_linear<PlainBf16>, shortened_linear<PlainF32>,
     shortened_linear<PlainBf16>, blocked_linear<TypeQ8_0>, blocked_linear<TypeQ8F>, blocked_linear<TypeQ8R>,
     blocked_linear<TypeQ4_0>, blocked_linear<TypeQ4_1>, blocked_linear<TypeQ5_0>, blocked_linear<TypeQ5_1>,
     blocked_linear<TypeIq4Nl>, blocked_linear<TypeMxfp4>,
     blocked_linear<TypeQ2_K>, blocked_linear<TypeQ3_K>, blocked_linear<TypeQ4_K>, blocked_linear<TypeQ5_K>,
     blocked_linear<TypeQ6_K>, blocked_linear<TypeIq4Xs>, blocked_linear<TypeIq3S>, blocked_linear<TypeIq3Xxs>,
     blocked_linear<TypeIq2>, blocked_linear<TypeIq1>, blocked_linear<TypeQ1_0>, blocked_linear<TypeQ2_0>,
     blocked_linear<TypeNvfp4>, blocked_linear<TypeQ8G>},
    quantize_tile, nullptr, quantize, quantize_row, quantize_q8_0, to_bf16, rms_norm, swiglu, add, scaled_add, rotate, argmax,
    weigh, weight_at_least, to_half, from_half, from_fp8, 128, kBf16Dot ? 2 : 1,
    attention_queries, attention_segment, attention_fold, attention_finish, &kPeaks, &kFits, &kShortening,
};

}  // namespace
}  // namespace gristmill
