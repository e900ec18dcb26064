// Floats in fewer bits. What the words of a panel in three steps spare carries a fourth:
//
//   type       kept as    columns a word    bits a number    what is lost
//   bfloat16   BF16_12    2                 12               nothing
//   float      F32_24     1                 24               at most a 2^23rd of the largest number of its row that has a code
//
// A word is what the type itself takes for a panel in a step (matrix.h), lane by lane. It holds a number's code, which its
// row's base gives a meaning. Where a row's bfloat16 numbers lie within a factor of 2^15 of one another, all but a few, four
// bits say which power of two a number has, and the type spends eight on it: a code is the number's sign and its magnitude less
// the base, magnitudes taken as whole numbers. A float's code is a multiple of the base, a power of two: sums of float32 lose
// more than that, and numbers of fewer bits, as those that were bfloat16, lose nothing. Numbers that have no code are patches:
// they are written over what their code 0 became.
#pragma once
#include <cstdint>
#include <cstring>

#include "matrix.h"

namespace gristmill {

// As many as lie in so many bytes.
template <class T, size_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};

template <class Number, Pack kType>
struct Words {
  using Lane = Number;
  static constexpr Pack kPlain = kType;
  static constexpr int kWords = 3;  // stored for kWords + 1
  static constexpr int kStepColumns = 4 / int(sizeof(Lane)), kColumns = (kWords + 1) * kStepColumns;
  static constexpr int kLanesOfWord = kLanes * kStepColumns, kWordBytes = kLanesOfWord * int(sizeof(Lane));
  static constexpr Lane kSign = Lane(Lane(1) << (8 * sizeof(Lane) - 1)), kMagnitude = Lane(kSign - 1);

  // Which lane of its word a number of column k has.
  static int lane(int row, int k) { return row * kStepColumns + k % kStepColumns; }
};

// Of a pack: which code a number has and what a code stands for, a lane or a vector of them at a time.
//   code, number    a number's code, and its number
//   outside         not 0 where a number has no code
//   kept, carried   a word's own code, and what words[i] carries of the last code, in its place there
//   carry           the last code as words[i] carries it
template <Pack kPack>
struct Code;

template <>
struct Code<Pack::BF16_12> : Words<uint16_t, Pack::BF16> {
  // After the sign four bits are spare, from kLow on, and four more say which power of two. A last code's sign is carried
  // beside its magnitude.
  static constexpr int kSpare = 4, kLow = 8 * int(sizeof(Lane)) - 1 - kSpare, kMantissa = kLow - 4;
  static constexpr Lane kLargest = Lane((1 << kLow) - 1);  // code of a magnitude
  static constexpr Lane kKept = kSign | kLargest, kCarried = (1 << kSpare) - 1;

  template <class V>
  static V code(V number, V base) {
    return (number & kSign) | ((number & kMagnitude) - base);
  }
  template <class V>
  static V outside(V number, V base) {
    return V((number & kMagnitude) - base) & Lane(~kLargest);
  }
  template <class V>
  static V number(V code, V base) {
    return code + base;
  }
  template <class V>
  static V kept(V word) {
    return word & kKept;
  }
  template <class V>
  static V carried(int i, V word) {
    const Lane place = Lane(kCarried << (i * kSpare));
    V v = (word >> (kLow - i * kSpare)) & place;
    if (i < kWords - 1) return v;
    return (v & kLargest) | ((word << 1) & kSign);
  }
  template <class V>
  static V carry(int i, V last) {
    V whole = (last & kLargest) | ((last & kSign) >> (8 * int(sizeof(Lane)) - 1 - kLow));
    return ((whole >> (i * kSpare)) & kCarried) << kLow;
  }
};

template <>
struct Code<Pack::F32_24> : Words<uint32_t, Pack::F32> {
  // A code is a whole number of 24 bits, before 8 that are spare.
  static constexpr int kSpare = 8, kBits = 8 * int(sizeof(Lane)) - kSpare;
  static constexpr Lane kCarried = (1 << kSpare) - 1;
  static constexpr float kOne = 1 << kSpare, kLargest = kOne * ((1 << (kBits - 1)) - 1);

  template <class V>
  static V code(V number, V base) {
    using Floats = typename VectorOf<float, sizeof(V)>::Type;
    using Ints = typename VectorOf<int32_t, sizeof(V)>::Type;
    const V half = (number & kSign) | 0x3f000000u;  // 0.5 of the number's sign
    const Floats code = (Floats)number / ((Floats)base * kOne) + (Floats)half;
    return (V)__builtin_convertvector(code, Ints) << kSpare;
  }
  template <class V>
  static V outside(V number, V base) {
    using Floats = typename VectorOf<float, sizeof(V)>::Type;
    const Floats largest = (Floats)base * kLargest;
    return ((V)largest - (number & kMagnitude)) & kSign;
  }
  template <class V>
  static V number(V code, V base) {
    using Floats = typename VectorOf<float, sizeof(V)>::Type;
    using Ints = typename VectorOf<int32_t, sizeof(V)>::Type;
    return (V)(__builtin_convertvector((Ints)code, Floats) * (Floats)base);
  }
  template <class V>
  static V kept(V word) {
    return word & Lane(~kCarried);
  }
  template <class V>
  static V carried(int i, V word) {
    return (word & kCarried) << (kSpare * (i + 1));
  }
  template <class V>
  static V carry(int i, V last) {
    return (last >> (kSpare * (i + 1))) & kCarried;
  }
};

// A number that has no code. They stand in the order of their steps; after the last one comes a place of kNowhere.
struct Patch {
  uint32_t place;  // column * kGroup * kLanes + row in the group
  uint32_t value;  // its bits

  int column() const { return int(place / (kGroup * kLanes)); }
  int row() const { return int(place % (kGroup * kLanes)); }
};
constexpr uint32_t kNowhere = UINT32_MAX;

// Of a row: what gives its codes a meaning, and for how many numbers there is no code.
struct Base {
  uint32_t base;
  int n_patches;
};

// What an instruction set does of it.
struct Shortening {
  // The largest number has the largest code, of float the largest one that lies near the others. cols: a multiple of kColumns.
  Base (*base)(Pack pack, const uint8_t* row, int cols);
  // A panel's plain words of a step, `stride` bytes apart, become shortened ones; bases: of each lane. Whether all numbers have
  // a code; those that have none get 0.
  bool (*words)(Pack pack, const uint8_t* words, int stride, const uint8_t* bases, uint8_t* to);
  // bfloat16 numbers, a multiple of 64, become codes of one base, which is returned: three quarters of them, which carry the
  // fourth. What is less than the base becomes that.
  uint16_t (*head)(uint16_t* numbers, int n);
  // n float16 become bfloat16. Whether none loses anything by that: a file of float16 that was made of bfloat16 has only such.
  bool (*half_to_bf16)(const uint8_t* half, int n, uint8_t* to);
};

// Calls body with the Code of a type that is shortened.
template <class Body>
auto with_code(Pack pack, Body body) {
  return pack == Pack::F32_24 ? body(Code<Pack::F32_24>()) : body(Code<Pack::BF16_12>());
}

}  // namespace gristmill
