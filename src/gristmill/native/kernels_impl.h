// The kernels, written once on the vector operations of a simd_*.h, which must be included before this file.
//
// Every output has a lane and a fixed order of operations of its own: columns of the weight in order, blocks in order,
// keys by absolute position. So a row's result does not depend on how many rows, panels or threads work beside it.
#pragma once
#include <cmath>

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

void quantize(const float* x, int n, int8_t* q, float* scale, int32_t* sum) {
  for (int b = 0; b < n / kBlock; b++, x += kBlock, q += kBlock) {
    F low = f_load(x), high = f_load(x + kLanes);
    float peak = f_peak(f_max(f_abs(low), f_abs(high)));
    float inverse = peak > 0 ? 127.0f / peak : 0.0f;
    I a = i_of_f(f_mul(low, f_set(inverse))), c = i_of_f(f_mul(high, f_set(inverse)));
    i8_of_i(q, a);
    i8_of_i(q + kLanes, c);
    scale[b] = peak / 127.0f;
    sum[2 * b] = i_sum(a);
    sum[2 * b + 1] = i_sum(c);
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

// ---- linear: weights that are floats --------------------------------------------------------------------------------

// A panel's results go to rows [16 p, 16 p + 16) of y; the last panel may be short.
inline void put(const Matrix& w, int panel, float* y, F acc) {
  int left = w.rows - panel * kLanes;
  if (left >= kLanes) f_store(y + panel * kLanes, acc);
  else f_store_n(y + panel * kLanes, acc, left);
}

struct PlainF32 {
  static constexpr int kBytes = kLanes * 4, kStep = 1;
  static F step(F acc, const uint8_t* w, const Column& c, int k) {
    return f_fma(f_load(reinterpret_cast<const float*>(w)), f_set(c.x[k]), acc);
  }
};

struct PlainF16 {
  static constexpr int kBytes = kLanes * 2, kStep = 1;
  static F step(F acc, const uint8_t* w, const Column& c, int k) {
    return f_fma(f_of_half(reinterpret_cast<const uint16_t*>(w)), f_set(c.x[k]), acc);
  }
};

struct PlainBf16 {
  static constexpr int kBytes = kLanes * 4, kStep = 2;
  static F step(F acc, const uint8_t* w, const Column& c, int k) {
    return f_dot2(acc, reinterpret_cast<const uint16_t*>(w), c.x_bf16 + k);
  }
};

// P panels, the first of them number `first` of its group of `width`, with C columns.
template <class T, int P, int C>
inline void plain_tile(const Matrix& w, const uint8_t* group, int width, int first, int panel, const Column* columns) {
  F acc[P][C];
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++) acc[p][c] = f_zero();
  const uint8_t* q = group + T::kBytes * first;
  for (int k = 0; k < w.cols; k += T::kStep, q += T::kBytes * width)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++)
#pragma GCC unroll 16
      for (int c = 0; c < C; c++) acc[p][c] = T::step(acc[p][c], q + T::kBytes * p, columns[c], k);
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++) put(w, panel + p, columns[c].y, acc[p][c]);
}

// ---- linear: weights in blocks of 32 with activations in int8 -------------------------------------------------------

// What sets the types apart: kQuantBytes and kScaleBytes a step, kZero (the unsigned quant that means 0), set<J> (the 16 x 4
// quants of columns 4 J .. 4 J + 3; sets are `stride` bytes apart), and scales. kMinimum: a value is scale * quant - minimum. kHalves: a scale for 16 columns.
struct Nibbles {
  static constexpr int kQuantBytes = 256, kScaleBytes = 32, kSuperBytes = 0;
  static constexpr bool kMinimum = false, kHalves = false, kSmall = true;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    U w = u_load(q + stride * (J % 4));
    return J < 4 ? u_low(w) : u_high(w);
  }
};

struct TypeQ8_0 {
  static constexpr int kQuantBytes = 512, kZero = kByteZero, kScaleBytes = 32, kSuperBytes = 0;
  static constexpr bool kMinimum = false, kHalves = false, kSmall = false;
  template <int J>
  static U set(const uint8_t* q, int stride) { return u_byte(u_load(q + stride * J)); }
  static F scale(const uint8_t* s, F) { return f_of_half(reinterpret_cast<const uint16_t*>(s)); }
};

struct TypeQ8F : TypeQ8_0 {
  static constexpr int kScaleBytes = 64;
  static F scale(const uint8_t* s, F) { return f_load(reinterpret_cast<const float*>(s)); }
};

struct TypeQ4_0 : Nibbles {
  static constexpr int kZero = 8;
  static F scale(const uint8_t* s, F) { return f_of_half(reinterpret_cast<const uint16_t*>(s)); }
};

struct TypeMxfp4 : Nibbles {
  static constexpr int kZero = 12, kScaleBytes = 16;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    alignas(16) static constexpr uint8_t table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return u_lookup(table, Nibbles::set<J>(q, stride));
  }
  static F scale(const uint8_t* s, F) { return f_of_e8m0(s); }
};

struct TypeQ4_K : Nibbles {
  static constexpr int kZero = 0, kSuperBytes = 64;
  static constexpr bool kMinimum = true;
  static F scale(const uint8_t* s, F d) { return f_mul(f_of_u8(s), d); }
  static F minimum(const uint8_t* s, F dmin) { return f_mul(f_of_u8(s + kLanes), dmin); }
};

struct TypeQ5_K : TypeQ4_K {
  static constexpr int kQuantBytes = 320;
  template <int J>
  static U set(const uint8_t* q, int stride) { return u_or(Nibbles::set<J>(q, stride), u_bits<J, 1>(u_load(q + stride * 4))); }
};

struct TypeQ6_K : Nibbles {
  static constexpr int kQuantBytes = 384, kZero = 32, kSuperBytes = 32;
  static constexpr bool kHalves = true;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    return u_or(Nibbles::set<J>(q, stride), u_bits<2 * (J % 4), 2>(u_load(q + stride * (4 + J / 4))));
  }
  static F scale(const uint8_t* s, F d) { return f_mul(f_of_i8(s), d); }
  static F scale_high(const uint8_t* s, F d) { return f_mul(f_of_i8(s + kLanes), d); }
};

template <class T, int J, int P, int C>
inline void dot_set(const uint8_t* q, int stride, const Column* columns, int b, I (&sum)[P][C]) {
  U w[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; p++) w[p] = T::template set<J>(q + 64 * p, stride);
#pragma GCC unroll 16
  for (int c = 0; c < C; c++) {
    const int8_t* a = columns[c].q + size_t(b) * kBlock + 4 * J;
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[p][c] = T::kSmall ? i_dot4_small(sum[p][c], w[p], a) : i_dot4(sum[p][c], w[p], a);
  }
}

template <class T, int P, int C>
inline void blocked_tile(const Matrix& w, const uint8_t* group, int width, int first, int panel, const Column* columns) {
  F acc[P][C], d[P] = {}, dmin[P] = {};
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++) acc[p][c] = f_zero();
  int n_blocks = w.n_steps();
  const uint8_t* q = group + 64 * first;
  const int stride = 64 * width, to_scales = T::kQuantBytes * width - 64 * first + T::kScaleBytes * first;
  for (int b = 0; b < n_blocks; b++) {
    if (T::kSuperBytes && b % 8 == 0) {
      const uint8_t* super = q - 64 * first + T::kSuperBytes * first;
      for (int p = 0; p < P; p++, super += T::kSuperBytes) {
        d[p] = f_of_half(reinterpret_cast<const uint16_t*>(super));
        if (T::kMinimum) dmin[p] = f_of_half(reinterpret_cast<const uint16_t*>(super) + kLanes);
      }
      q += T::kSuperBytes * width;
    }
    const uint8_t* scales = q + to_scales;
    I sum[P][C];
#pragma GCC unroll 16
    for (int c = 0; c < C; c++) {
      const int32_t* s = columns[c].sum + 2 * b;
      I start = i_set(-T::kZero * (T::kHalves ? s[0] : s[0] + s[1]));
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) sum[p][c] = start;
    }
    dot_set<T, 0>(q, stride, columns, b, sum);
    dot_set<T, 1>(q, stride, columns, b, sum);
    dot_set<T, 2>(q, stride, columns, b, sum);
    dot_set<T, 3>(q, stride, columns, b, sum);
    if constexpr (T::kHalves) {
#pragma GCC unroll 16
      for (int c = 0; c < C; c++) {
        F a = f_set(columns[c].scale[b]);
        I start = i_set(-T::kZero * columns[c].sum[2 * b + 1]);
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) {
          acc[p][c] = f_fma(f_of_i(sum[p][c]), f_mul(T::scale(scales + T::kScaleBytes * p, d[p]), a), acc[p][c]);
          sum[p][c] = start;
        }
      }
    }
    dot_set<T, 4>(q, stride, columns, b, sum);
    dot_set<T, 5>(q, stride, columns, b, sum);
    dot_set<T, 6>(q, stride, columns, b, sum);
    dot_set<T, 7>(q, stride, columns, b, sum);
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      F scale;
      if constexpr (T::kHalves) scale = T::scale_high(scales + T::kScaleBytes * p, d[p]);
      else scale = T::scale(scales + T::kScaleBytes * p, d[p]);
#pragma GCC unroll 16
      for (int c = 0; c < C; c++) {
        float a = columns[c].scale[b];
        acc[p][c] = f_fma(f_of_i(sum[p][c]), f_mul(scale, f_set(a)), acc[p][c]);
        if constexpr (T::kMinimum) {
          const int32_t* s = columns[c].sum + 2 * b;
          acc[p][c] = f_fnma(T::minimum(scales + T::kScaleBytes * p, dmin[p]), f_set(a * float(s[0] + s[1])), acc[p][c]);
        }
      }
    }
    q += (T::kQuantBytes + T::kScaleBytes) * width;
  }
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++) put(w, panel + p, columns[c].y, acc[p][c]);
}

// ---- tiles over panels and columns ----------------------------------------------------------------------------------

template <class T, int P, int C>
struct PlainTile {
  static void run(const Matrix& w, const uint8_t* group, int width, int first, int panel, const Column* c) {
    plain_tile<T, P, C>(w, group, width, first, panel, c);
  }
};
template <class T, int P, int C>
struct BlockedTile {
  static void run(const Matrix& w, const uint8_t* group, int width, int first, int panel, const Column* c) {
    blocked_tile<T, P, C>(w, group, width, first, panel, c);
  }
};

// Tile<T, P, n> for n of 1 .. C columns.
template <template <class, int, int> class Tile, class T, int P, int C>
inline void columns_left(const Matrix& w, const uint8_t* group, int width, int first, int panel, const Column* c, int n) {
  if constexpr (C > 0) {
    if (n == C) Tile<T, P, C>::run(w, group, width, first, panel, c);
    else columns_left<Tile, T, P, C - 1>(w, group, width, first, panel, c, n);
  }
}

// Few columns: all panels of the group together, so that the group is read as the one stream it is.
template <template <class, int, int> class Tile, class T>
inline void few(const Matrix& w, const uint8_t* group, int width, int panel, const Column* columns, int n) {
  if (width == kGroup) return columns_left<Tile, T, kGroup, kFewColumns>(w, group, kGroup, 0, panel, columns, n);
  for (int c = 0; c < n; c++) {
    if (width == 1) Tile<T, 1, 1>::run(w, group, 1, 0, panel, columns + c);
    if (width == 2) Tile<T, 2, 1>::run(w, group, 2, 0, panel, columns + c);
    if (width == 3) Tile<T, 3, 1>::run(w, group, 3, 0, panel, columns + c);
  }
}

template <template <class, int, int> class Tile, class T, int P, int C>
void linear(const Matrix& w, int matrix, int panel, int panel_end, const Column* columns, int n_columns) {
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    int width = w.group_width(panel), p = 0;
    if (n_columns <= kFewColumns) {
      few<Tile, T>(w, group, width, panel, columns, n_columns);
      continue;
    }
    for (; p + P <= width; p += P) {
      int c = 0;
      for (; c + C <= n_columns; c += C) Tile<T, P, C>::run(w, group, width, p, panel + p, columns + c);
      columns_left<Tile, T, P, C - 1>(w, group, width, p, panel + p, columns + c, n_columns - c);
    }
    for (; p < width; p++)
      for (int c = 0; c < n_columns; c++) Tile<T, 1, 1>::run(w, group, width, p, panel + p, columns + c);
  }
}

// attention_impl.h
void attention_segment(const KvLayer& kv, const AttentionRows& rows, int segment, float* states, float* scratch);
void attention_fold(const float* state, int v_dim, float* total);
void attention_finish(const float* total, int n, float* y);

template <class T>
constexpr auto plain = linear<PlainTile, T, kFloatPanels, kFloatColumns>;
template <class T>
constexpr auto blocked = linear<BlockedTile, T, kIntPanels, kIntColumns>;

constexpr Kernels kKernels = {
    kIsa,
    {plain<PlainF32>, plain<PlainF16>, plain<PlainBf16>, blocked<TypeQ8_0>, blocked<TypeQ8F>, blocked<TypeQ4_0>,
     blocked<TypeQ4_K>, blocked<TypeQ5_K>, blocked<TypeQ6_K>, blocked<TypeMxfp4>},
    quantize, to_bf16, rms_norm, swiglu, add, scaled_add, to_half, from_half, kBf16Dot ? 2 : 1,
    attention_segment, attention_fold, attention_finish,
};

}  // namespace
}  // namespace gristmill
