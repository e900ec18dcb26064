// Floats in fewer bits, without loss. Where a row's numbers lie within a factor of 2^15 of one another, all but a few, four bits
// say which power of two a number has: less than its type spends on it. What the numbers of a panel in some steps spare carries
// another step's:
//
//   type       kept as    what n words spare carries one more           bits a number
//   float      F32_28     7 words of 4 bits, 8 columns                   28
//   half       F16_15     15 words of 1 bit, 16 columns                  15
//   bfloat16   BF16_12    3 words of 4 bits (each 2 columns), 8 columns  12
//
// A word is what the type itself takes for a panel in a step (matrix.h), lane by lane. A lane's code is the number's sign and its
// magnitude less the row's base, magnitudes taken as whole numbers. Those that do not fit are patches: they are written over what
// their code 0 became.
#pragma once
#include <cstdint>
#include <cstring>

#include "matrix.h"

namespace gristmill {

template <Pack kPack>
struct Shortened;

template <>
struct Shortened<Pack::F32_28> {
  using Lane = uint32_t;
  static constexpr Pack kPlain = Pack::F32;
  static constexpr int kMantissa = 23, kSpare = 4;
};
template <>
struct Shortened<Pack::F16_15> {
  using Lane = uint16_t;
  static constexpr Pack kPlain = Pack::F16;
  static constexpr int kMantissa = 10, kSpare = 1;
};
template <>
struct Shortened<Pack::BF16_12> {
  using Lane = uint16_t;
  static constexpr Pack kPlain = Pack::BF16;
  static constexpr int kMantissa = 7, kSpare = 4;
};

// What follows from these. Spare bits are those between a code's magnitude and its sign.
template <Pack kPack>
struct Code : Shortened<kPack> {
  using typename Shortened<kPack>::Lane;
  using Shortened<kPack>::kMantissa;
  using Shortened<kPack>::kSpare;
  static constexpr int kLow = kMantissa + 4;                      // the lowest spare bit
  static constexpr int kWords = (kLow + 1) / kSpare;              // stored for kWords + 1
  static constexpr int kStepColumns = kPack == Pack::BF16_12 ? 2 : 1, kColumns = (kWords + 1) * kStepColumns;
  static constexpr int kLanesOfWord = kLanes * kStepColumns, kWordBytes = kLanesOfWord * int(sizeof(Lane));
  static constexpr Lane kSign = Lane(Lane(1) << (8 * sizeof(Lane) - 1)), kMagnitude = Lane(kSign - 1);
  static constexpr Lane kLargest = Lane((Lane(1) << kLow) - 1);  // code of a magnitude
  static constexpr Lane kKept = kSign | kLargest;
  static constexpr Lane kCarried = Lane((Lane(1) << kSpare) - 1);

  // Which lane of its word a number of column k has.
  static int lane(int row, int k) { return row * kStepColumns + k % kStepColumns; }

  // What words[i] carries of the last code, in its place there.
  template <class V>
  static V carried(int i, V word) {
    V v = (word >> (kLow - i * kSpare)) & Lane(kCarried << (i * kSpare));
    if (i < kWords - 1) return v;
    return (v & kLargest) | ((word << 1) & kSign);
  }
  // The last code as the words carry it: its sign beside its magnitude.
  template <class V>
  static V carry(int i, V last) {
    V whole = (last & kLargest) | ((last & kSign) >> (8 * int(sizeof(Lane)) - 1 - kLow));
    return ((whole >> (i * kSpare)) & kCarried) << kLow;
  }
};
static_assert(Code<Pack::F32_28>::kWords == 7 && Code<Pack::F16_15>::kWords == 15 && Code<Pack::BF16_12>::kWords == 3);

// A number that has no code. They stand in the order of their steps; after the last one comes a place of kNowhere.
struct Patch {
  uint32_t place;  // column * kGroup * kLanes + row in the group
  uint32_t value;  // its bits

  int column() const { return int(place / (kGroup * kLanes)); }
  int row() const { return int(place % (kGroup * kLanes)); }
};
constexpr uint32_t kNowhere = UINT32_MAX;

// Calls body with the Code of a type that is shortened.
template <class Body>
auto with_code(Pack pack, Body body) {
  switch (pack) {
    case Pack::F32_28: return body(Code<Pack::F32_28>());
    case Pack::F16_15: return body(Code<Pack::F16_15>());
    default: return body(Code<Pack::BF16_12>());
  }
}

}  // namespace gristmill
