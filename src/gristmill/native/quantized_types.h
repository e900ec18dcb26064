// What quantized types are to a kernel: how a set of quants becomes bytes, and what scales they have. Included after a simd_*.h.
#pragma once
#include "grids.h"
#include "matrix.h"

namespace gristmill {
namespace {

GRISTMILL_INLINE F halves_at(const uint8_t* s) { return f_of_half(reinterpret_cast<const uint16_t*>(s)); }

// What sets the types apart: kQuantBytes, kScaleBytes and kSuperBytes as in matrix.h, kZero (the unsigned quant that means
// 0), set<J> (the 16 x 4 quants of columns 4 J .. 4 J + 3; sets are `stride` bytes apart), and scale, a whole number in K types.
//   kMinimum  a value is scale * quant - minimum; the minima of steps that share the activations' scale lie together before them,
//             but with kHalves beside the scales of each step: minima
//   kOffset   a value is scale * quant + offset; offsets stand after the scales of each step
//   kHalves   columns 16 .. 31 have a scale of their own, second_scale; scales: both, a pair
//   kLargest  of the quants, which are unsigned where they are under 128
//   kPairs    sets J and J + 4 share bytes, so that one is multiplied after the other
//   kRows     a scale for each row, after the last step, and none in the steps
//   kPart     steps that share a scale, which stands before kSuperSteps of them, kPartBytes for all rows; 0 where scales stand
//             in the steps
//   kInLine   sets that a line of bytes has, where the order in which they are multiplied leaves them together
//   kLong     scales, which are whole numbers, take more than eight bits
//   kShared   steps that share the activations' scale: so their sums meet it once
//   kShift    bits that a sum of a K type has beyond 16; they are rounded away before it meets its scale
//   kWhole    scales are whole numbers, or made so, and nothing is rounded away: see Whole
//   kDirect   with more columns than this (kDirectFar, if that is more and streams wait nowhere), sets are taken apart once for
//             all tiles (where that pays is the processor's)
//   kDear     a set takes many operations to take apart
//   kAsk      weights and activations are asked for early also where the first-level cache does not hold what is asked for
struct Nibbles {
  static constexpr int kQuantBytes = 256, kScaleBytes = 32, kSuperBytes = 0;
  static constexpr bool kMinimum = false, kOffset = false, kHalves = false, kPairs = true, kRows = false, kLong = false,
                        kDear = false, kAsk = true, kWhole = false;
  static constexpr int kShared = 1, kPart = 0, kInLine = 2, kLargest = 15;
  static constexpr int kDirect = kDirectNibbles;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    U w = u_load(q + stride * (J % 4));
    return J < 4 ? u_low(w) : u_high(w);
  }
};

struct TypeQ8_0 {
  static constexpr int kQuantBytes = 512, kZero = kByteZero, kScaleBytes = 32, kSuperBytes = 0;
  static constexpr bool kMinimum = false, kOffset = false, kHalves = false, kPairs = false, kRows = false, kLong = false,
                        kDear = false, kAsk = false, kWhole = false;
  static constexpr int kShared = 1, kPart = 0, kInLine = 1, kLargest = 255;
  static constexpr int kDirect = INT32_MAX;
  template <int J>
  static U set(const uint8_t* q, int stride) { return u_byte(u_load(q + stride * J)); }
  static F scale(const uint8_t* s) { return halves_at(s); }
};

struct TypeQ8F : TypeQ8_0 {
  static constexpr int kScaleBytes = 64;
  static F scale(const uint8_t* s) { return f_load(reinterpret_cast<const float*>(s)); }
};

struct TypeQ8G : TypeQ8F {
  static constexpr int kScaleBytes = 0, kSuperBytes = 256, kPart = 2, kPartBytes = 64;
};

struct TypeQ8R : TypeQ8_0 {
  static constexpr int kScaleBytes = 0;
  static constexpr bool kRows = true;
};

struct TypeQ4_0 : Nibbles {
  static constexpr int kZero = 8, kDirect = kDirectQ4;
  static F scale(const uint8_t* s) { return halves_at(s); }
};

struct TypeQ4_1 : Nibbles {
  static constexpr int kZero = 0, kScaleBytes = 64;
  static constexpr bool kOffset = true;
  static F scale(const uint8_t* s) { return halves_at(s); }
  static F offset(const uint8_t* s) { return halves_at(s + 2 * kLanes); }
};

// The same with another bit above the nibbles.
template <class Four>
struct FiveBits : Four {
  static constexpr int kQuantBytes = 320, kLargest = 31, kDirect = kDirectBits;
  static constexpr bool kDear = true;
  template <int J>
  static U set(const uint8_t* q, int stride) { return u_or(Nibbles::set<J>(q + stride, stride), u_bits<J, 1, 4>(u_load(q))); }
};

struct TypeQ5_0 : FiveBits<TypeQ4_0> {
  static constexpr int kZero = 16;
};

struct TypeQ5_1 : FiveBits<TypeQ4_1> {};

// What the nibbles of IQ4_NL and IQ4_XS stand for, as bytes of Q8.
struct Iq4 : Nibbles {
  static constexpr int kZero = kByteZero, kLargest = 255;
  static constexpr uint8_t at(int i) { return uint8_t(kIq4[i] + kByteZero); }
  template <int J>
  static U set(const uint8_t* q, int stride) {
    alignas(16) static constexpr uint8_t table[16] = {at(0), at(1), at(2),  at(3),  at(4),  at(5),  at(6),  at(7),
                                                      at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15)};
    return u_lookup(table, Nibbles::set<J>(q, stride));
  }
};

struct TypeIq4Nl : Iq4 {
  static F scale(const uint8_t* s) { return halves_at(s); }
};

struct TypeIq4Xs : Iq4 {
  static constexpr int kScaleBytes = 16, kSuperBytes = 32, kShared = kSuperSteps, kShift = 4;
  static I scale(const uint8_t* s) { return i_of_i8(s); }
  static void read_super(const uint8_t* s, F& d, F&) { d = halves_at(s); }
};

struct TypeMxfp4 : Nibbles {
  static constexpr int kZero = 12, kLargest = 24, kScaleBytes = 16;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    alignas(16) static constexpr uint8_t table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return u_lookup(table, Nibbles::set<J>(q, stride));
  }
  static F scale(const uint8_t* s) { return f_of_e8m0(s); }
};

struct TypeNvfp4 : TypeMxfp4 {
  static constexpr int kScaleBytes = 32, kSuperBytes = 64, kShared = kSuperSteps, kShift = 0;
  static constexpr bool kHalves = true, kLong = true;
  static I scale(const uint8_t* s) { return i_of_e5m3(s); }
  static I second_scale(const uint8_t* s) { return scale(s + kLanes); }
  static I scales(const uint8_t* s) { return i_pair<0>(scale(s), second_scale(s)); }
  static void read_super(const uint8_t* s, F& d, F&) { d = f_load(reinterpret_cast<const float*>(s)); }
};

struct TypeQ4_K : Nibbles {
  static constexpr int kZero = 0, kScaleBytes = 16, kSuperBytes = 192, kShared = kSuperSteps;
  static constexpr int kDirect = kDirectQ4, kShift = 1;
  static constexpr bool kMinimum = true;
  static I scale(const uint8_t* s) { return i_of_u8(s); }
  static void read_super(const uint8_t* s, F& d, F& dmin) {
    d = halves_at(s), dmin = halves_at(s + 2 * kLanes);
  }
};

struct TypeQ5_K : FiveBits<TypeQ4_K> {
  static constexpr int kShift = 2;
};

struct TypeQ6_K : Nibbles {
  static constexpr int kQuantBytes = 384, kZero = 32, kLargest = 63, kSuperBytes = 32, kShared = kSuperSteps;
  static constexpr int kDirect = kDirectBits, kShift = 1;
  static constexpr bool kHalves = true, kDear = true;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    constexpr int kUpper = J % 4 / 2;
    U upper = u_bits<4 * (J / 4) + 2 * (J % 2), 2, 4>(u_load(q + stride * 3 * kUpper));
    return u_or(Nibbles::set<J>(q + stride * (kUpper + 1), stride), upper);
  }
  static I scale(const uint8_t* s) { return i_of_i8(s); }
  static I second_scale(const uint8_t* s) { return i_of_i8(s + kLanes); }
  static I scales(const uint8_t* s) { return i_pair<0>(scale(s), second_scale(s)); }
  static void read_super(const uint8_t* s, F& d, F&) { d = halves_at(s); }
};

struct TypeQ2_K : Nibbles {
  static constexpr int kQuantBytes = 128, kZero = 0, kLargest = 3, kSuperBytes = 64, kShared = kSuperSteps;
  static constexpr int kDirect = kDirectBits, kShift = 0;
  static constexpr bool kHalves = true, kMinimum = true, kDear = true;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    return u_bits<4 * (J / 4) + 2 * (J % 2), 2, 0>(u_load(q + stride * (J % 4 / 2)));
  }
  static I scale(const uint8_t* s) { return i_low4(i_of_u8(s)); }
  static I second_scale(const uint8_t* s) { return scale(s + kLanes); }
  static I scales(const uint8_t* s) { return i_pair<0>(scale(s), second_scale(s)); }
  static I minima(const uint8_t* s) { return i_pair<4>(i_of_u8(s), i_of_u8(s + kLanes)); }
  static void read_super(const uint8_t* s, F& d, F& dmin) { TypeQ4_K::read_super(s, d, dmin); }
};

struct TypeQ3_K : TypeQ6_K {
  static constexpr int kQuantBytes = 192, kZero = 4, kLargest = 7, kShift = 0;
  template <int J>
  static U set(const uint8_t* q, int stride) {
    U lower = u_bits<4 * (J / 4) + 2 * (J % 2), 2, 0>(u_load(q + stride * (1 + J % 4 / 2)));
    return u_or(lower, u_bits<J, 1, 2>(u_load(q)));
  }
};

struct TypeIq4Codes : TypeIq4Xs {
  template <int J>
  static U set(const uint8_t* q, int stride) { return Nibbles::set<J>(q, stride); }
};

// Codes laid as Codes are that stand for other numbers, of whose sums kShifted bits are beyond 16.
template <class Codes, const Curve& kCurve, int kZeroByte, int kShifted>
struct OnCurve : Codes {
  static constexpr int largest() {
    int most = 0;
    for (const int8_t value : kCurve.value) most = value > most ? value : most;
    return most;
  }
  static constexpr int kZero = kZeroByte, kLargest = kZeroByte + largest(), kShift = kShifted;
  static constexpr uint8_t at(int i) { return uint8_t(kCurve.value[i] + kZeroByte); }
  template <int J>
  static U set(const uint8_t* q, int stride) {
    alignas(16) static constexpr uint8_t table[16] = {at(0), at(1), at(2),  at(3),  at(4),  at(5),  at(6),  at(7),
                                                      at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15)};
    return u_lookup(table, Codes::template set<J>(q, stride));
  }
  static void read_super(const uint8_t* s, F& d, F&) { d = f_mul(halves_at(s), f_set(kCurve.unit)); }
};

// Few bits, whose scales are floats, each of kPart steps.
struct TypeQ1_0 : Nibbles {
  static constexpr int kQuantBytes = 64, kZero = 1, kLargest = 2, kScaleBytes = 0, kSuperBytes = 64;
  static constexpr int kShared = kSuperSteps, kShift = 0, kPart = 4, kPartBytes = 32, kInLine = 8;
  static constexpr int kDirect = INT32_MAX;
  static constexpr bool kPairs = false;
  template <int J>
  static U set(const uint8_t* q, int) { return u_bits<J, 1, 1>(u_load(q)); }
  static F scale(const uint8_t* s) { return halves_at(s); }
};

struct TypeQ2_0 : TypeQ1_0 {
  static constexpr int kQuantBytes = 128, kLargest = 3, kSuperBytes = 128, kPart = 2, kInLine = 4;
  static constexpr bool kPairs = true;
  template <int J>
  static U set(const uint8_t* q, int stride) { return TypeQ2_K::set<J>(q, stride); }
};

using TypeIq3S = OnCurve<TypeIq4Codes, kCurveIq3S, 16, 1>;
using TypeIq3Xxs = OnCurve<TypeIq4Codes, kCurveIq3Xxs, 64, 3>;
using TypeIq2 = OnCurve<TypeQ3_K, kCurveIq2, 64, 2>;
using TypeIq1 = OnCurve<TypeQ3_K, kCurveIq1, 16, 0>;

template <class T>
constexpr bool kSmall = T::kLargest < 128;

constexpr int kToMinima = 64;  // from a panel's scales of scales

// A type T whose quants have been taken apart into bytes, and its scales into floats or, in K types, 32 bits.
template <class T>
struct Expanded : T {
  static constexpr bool kPairs = T::kHalves, kDear = false;
  static constexpr int kInLine = kPairs ? 2 : 1;
  static constexpr int kQuantBytes = 512, kSuperBytes = (T::kSuperBytes + 63) / 64 * 64;
  static constexpr int kScaleBytes = (T::kHalves && T::kMinimum) || T::kOffset ? 128 : 64;
  template <int J>
  static U set(const uint8_t* q, int stride) { return u_load(q + stride * J); }
  static auto scale(const uint8_t* s) {
    if constexpr (T::kShared > 1) return i_load(reinterpret_cast<const int32_t*>(s));
    else return f_load(reinterpret_cast<const float*>(s));
  }
  static I scales(const uint8_t* s) { return i_load(reinterpret_cast<const int32_t*>(s)); }
  static I minima(const uint8_t* s) { return i_load(reinterpret_cast<const int32_t*>(s) + kLanes); }
  static F offset(const uint8_t* s) { return f_load(reinterpret_cast<const float*>(s) + kLanes); }
};

// A type T whose sums meet their scales as whole numbers, exactly, and become floats once in kSuperSteps steps. Scales that are
// whole numbers in the file are taken as they are; of others the largest of those steps becomes kMostScale and the rest, which
// are rounded, as many times what then is 1. A quant times its scale fits 16 bits. Offsets likewise, of 16 bits.
template <class T>
struct Whole : T {
  static constexpr bool kWhole = true, kOwnScales = T::kSuperBytes > 0 && T::kPart == 0;
  static constexpr int kShared = kSuperSteps, kShift = 0, kDirect = INT32_MAX;  // many columns meet it in tiles
  static constexpr int kMostScale = T::kScaleBytes == kLanes ? 2048 : 255;  // MXFP4's powers of two stay what they are
};

// Where step b of some that share the activations' scale has its own; super: what stands before them, own: the step's.
template <class T>
GRISTMILL_INLINE const uint8_t* scale_at(const uint8_t* super, const uint8_t* own, int b) {
  if constexpr (T::kPart > 0) return super + T::kPartBytes * (b / T::kPart);
  else return own;
}

// Some numbers of each of a panel's rows as whole ones, the largest of which is kMost: a number is about whole(number) * d.
template <int kMost>
class WholeNumbers {
 public:
  GRISTMILL_INLINE void add(F number) {
    most_ = f_max(f_abs(number), most_), poison_ = f_fma(number, f_zero(), poison_);  // of what is not finite, NaN
  }
  // Once all are added.
  GRISTMILL_INLINE F d() const { return f_fma(most_, f_set(1.0f / float(kMost)), poison_); }
  GRISTMILL_INLINE F inverse() const { return f_div(f_set(float(kMost)), f_max(most_, f_set(0x1p-110f))); }
  static GRISTMILL_INLINE I whole(F number, F inverse) { return i_of_f(f_mul(number, inverse)); }

 private:
  F most_ = f_zero(), poison_ = f_zero();
};
template <class T>
using WholeScales = WholeNumbers<T::kMostScale>;
using WholeOffsets = WholeNumbers<INT16_MAX>;  // eight of them times sums of activations fit 32 bits

}  // namespace
}  // namespace gristmill
