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
//   kSixBits  scales and minima have six bits, and d and dmin of kSuperSteps steps the bits that these leave
//   kBeside   what is of kSuperSteps steps together has been taken out of the stream
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
                        kSixBits = false, kBeside = false, kDear = false, kAsk = true, kWhole = false;
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
                        kSixBits = false, kBeside = false, kDear = false, kAsk = false, kWhole = false;
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

// Where the scales of a group's panel are: what stands before kSuperSteps steps, what is in the first of these, and how far the
// next is.
struct SuperScales {
  const uint8_t *super, *own;
  size_t step_bytes;
  int width;  // of the group
};

struct TypeQ4_K : Nibbles {
  static constexpr int kZero = 0, kScaleBytes = 32, kShared = kSuperSteps;
  static constexpr int kDirect = kDirectQ4, kShift = 1;
  static constexpr bool kMinimum = true, kSixBits = true;
  using Sets = U[4];
  static U read_set(const SuperScales& s, int i) {
    const uint8_t* own = s.own + 2 * i * s.step_bytes;
    return s.width == kGroup ? u_load(own) : u_load(own, own + s.step_bytes);
  }
  static void read(const SuperScales& s, Sets& sets) {
    for (int i = 0; i < 4; i++) sets[i] = read_set(s, i);
  }
  // A pair: the scales of the first two of a set's four steps, or of the others.
  static I pair(U set, int others) {
    const I words = i_of_u(set);
    return i_and(others ? i_shift_right<8>(words) : words, 0x003f003f);
  }
  static I scale(const SuperScales& s, int step) {
    const I two = pair(read_set(s, step / 4), step % 4 / 2);
    return step % 2 ? i_shift_right<16>(two) : i_and(two, 63);
  }
  static U six_bits(U set) { return u_bits<0, 6, 0>(set); }
  template <int Set>
  static U two_bits(const Sets& sets) { return u_bits<6, 2, 6 - 2 * Set>(sets[Set]); }
  static void take_halves(const Sets& sets, F& d, F& dmin) {
    const U halves = u_or(u_or(two_bits<0>(sets), two_bits<1>(sets)), u_or(two_bits<2>(sets), two_bits<3>(sets)));
    d = f_of_first_halves(halves), dmin = f_of_second_halves(halves);
  }
};

struct TypeQ5_K : FiveBits<TypeQ4_K> {
  static constexpr int kShift = 2, kDirect = kDirectBits;
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
  static I scale(const uint8_t* s) { return i_and(i_of_u8(s), 15); }
  static I second_scale(const uint8_t* s) { return scale(s + kLanes); }
  static I scales(const uint8_t* s) { return i_pair<0>(scale(s), second_scale(s)); }
  static I minima(const uint8_t* s) { return i_pair<4>(i_of_u8(s), i_of_u8(s + kLanes)); }
  static void read_super(const uint8_t* s, F& d, F& dmin) { d = halves_at(s), dmin = halves_at(s + 2 * kLanes); }
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

// Whether scales of six bits are met where they lie in memory.
template <class T>
constexpr bool kInStream = T::kSixBits && !T::kBeside && T::kQuantBytes < 512;

// From the scales of a group's panel in one step to those of panel p after it, where sets of six bits lie: after an even one.
template <class T>
GRISTMILL_INLINE size_t to_panel(int p, int width, size_t step_bytes) {
  if (T::kSixBits && T::kQuantBytes < 512 && width == kGroup) return p / 2 * step_bytes + p % 2 * 64;
  return size_t(T::kScaleBytes) * p;
}

template <class T>
GRISTMILL_INLINE SuperScales of_panel(const SuperScales& s, int p) {
  return {s.super + T::kSuperBytes * p, s.own + to_panel<T>(p, s.width, s.step_bytes), s.step_bytes, s.width};
}

// A type T of scales of six bits, which the first tile takes apart for all others, and d and dmin out of the rest of their bytes.
// They lie beside the stream. (Tiles of more columns, which share what is dear to take apart, are slower with these.)
template <class T>
struct SixBitsApart : T {
  static constexpr int kSets = 4 * 64, kSuperBytes = kSets + 2 * 4 * kLanes;
  static constexpr bool kBeside = true, kDear = false;
  template <int P>
  static void take(const SuperScales& from, uint8_t* to) {
    for (int p = 0; p < P; p++, to += kSuperBytes) {
      typename T::Sets sets;
      F d, dmin;
      T::read(of_panel<T>(from, p), sets);
      T::take_halves(sets, d, dmin);
      for (int i = 0; i < 4; i++) u_store(to + 64 * i, T::six_bits(sets[i]));
      f_store(reinterpret_cast<float*>(to + kSets), d), f_store(reinterpret_cast<float*>(to + kSets) + kLanes, dmin);
    }
  }
  static void read_super(const uint8_t* s, F& d, F& dmin) {
    const auto* numbers = reinterpret_cast<const float*>(s + kSets);
    d = f_load(numbers), dmin = f_load(numbers + kLanes);
  }
  static U set_of_minima(const uint8_t* s, int half) { return u_load(s + 64 * (2 + half)); }
  // Scales of steps 2 i and 2 i + 1: to read from a byte on is to move words by one.
  static I pair_at(const uint8_t* s, int i) { return T::pair(u_load(s + 64 * (i / 2) + i % 2), 0); }
};

template <class T>
using ScalesApart = std::conditional_t<T::kSixBits, SixBitsApart<T>, T>;

// A type T whose quants have been taken apart into bytes, and its scales into floats or, in K types, 32 bits.
template <class T>
struct Expanded : ScalesApart<T> {
  static constexpr bool kBeside = false;
  static constexpr bool kPairs = T::kHalves, kDear = false;
  static constexpr int kInLine = kPairs ? 2 : 1;
  static constexpr int kQuantBytes = 512, kSuperBytes = (ScalesApart<T>::kSuperBytes + 63) / 64 * 64;
  static constexpr int kScaleBytes = T::kSixBits ? 0 : (T::kHalves && T::kMinimum) || T::kOffset ? 128 : 64;
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
  static constexpr bool kWhole = true, kOwnScales = (T::kSuperBytes > 0 && T::kPart == 0) || T::kSixBits;
  static constexpr int kShared = kSuperSteps, kShift = 0, kDirect = INT32_MAX;  // many columns meet it in tiles
  static constexpr int kMostScale = T::kScaleBytes == kLanes ? 2048 : 255;  // MXFP4's powers of two stay what they are
};

// Where step b of some that share the activations' scale has its own; super: what stands before them, own: the step's.
template <class T>
GRISTMILL_INLINE const uint8_t* scale_at(const uint8_t* super, const uint8_t* own, int b) {
  if constexpr (T::kPart > 0) return super + T::kPartBytes * (b / T::kPart);
  else return own;
}

// A panel's scale in step b.
template <class T>
GRISTMILL_INLINE auto scale_of(const SuperScales& s, int b) {
  if constexpr (kInStream<T>) return T::scale(s, b);
  else return T::scale(scale_at<T>(s.super, s.own + s.step_bytes * b, b));
}

template <class T>
GRISTMILL_INLINE void read_super(const SuperScales& s, F& d, F& dmin) {
  if constexpr (kInStream<T>) {
    typename T::Sets sets;
    T::read(s, sets);
    T::take_halves(sets, d, dmin);
  } else {
    T::read_super(s.super, d, dmin);
  }
}

// The minima of four steps, the first or the last, as bytes that are multiplied as quants are.
template <class T>
GRISTMILL_INLINE U set_of_minima(const SuperScales& s, int half) {
  if constexpr (kInStream<T>) return T::six_bits(T::read_set(s, 2 + half));
  else return T::set_of_minima(s.super, half);
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
