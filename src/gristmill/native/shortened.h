// Bfloat16 in 12 bits, without loss. Where a row's numbers lie within a factor of 2^15 of one another, all but a few, four bits say
// which power of two a number has, and bfloat16 spends eight on it. What three words spare carries a fourth.
//
// A word is what bfloat16 takes for a panel in a step, 16 rows x 2 columns (matrix.h), lane by lane. A lane's code is the number's
// sign and its magnitude less the row's base, magnitudes taken as whole numbers. Those that do not fit are patches: they are written
// over what their code 0 became.
#pragma once
#include <cstdint>
#include <cstring>

#include "matrix.h"

namespace gristmill {

struct Code {
  using Lane = uint16_t;
  static constexpr int kMantissa = 7, kSpare = 4, kLow = kMantissa + 4;  // spare bits are between magnitude and sign, from kLow on
  static constexpr int kWords = (kLow + 1) / kSpare;                     // stored for kWords + 1
  static constexpr int kStepColumns = 2, kColumns = (kWords + 1) * kStepColumns;
  static constexpr int kLanesOfWord = kLanes * kStepColumns, kWordBytes = kLanesOfWord * int(sizeof(Lane));
  static constexpr Lane kSign = 0x8000, kMagnitude = 0x7fff, kLargest = (1 << kLow) - 1;  // kLargest: code of a magnitude
  static constexpr Lane kKept = kSign | kLargest, kCarried = (1 << kSpare) - 1;

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
static_assert(Code::kWords == 3);

// A number that has no code. They stand in the order of their steps; after the last one comes a place of kNowhere.
struct Patch {
  uint32_t place;  // column * kGroup * kLanes + row in the group
  uint32_t value;  // its bits

  int column() const { return int(place / (kGroup * kLanes)); }
  int row() const { return int(place % (kGroup * kLanes)); }
};
constexpr uint32_t kNowhere = UINT32_MAX;

}  // namespace gristmill
