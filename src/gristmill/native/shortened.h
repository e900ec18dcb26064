// Floats in fewer bits, without loss. Where a row's numbers lie within a factor of 2^15 of one another, all but a few, four bits say
// which power of two a number has, and their types spend eight on it. What the words of a panel in some steps spare carries another:
//
//   type       kept as    words that carry one more          bits a number
//   float      F32_28     7, each 1 column                   28
//   bfloat16   BF16_12    3, each 2 columns                  12
//
// A word is what the type itself takes for a panel in a step (matrix.h), lane by lane. A lane's code is the number's sign and its
// magnitude less the row's base, magnitudes taken as whole numbers. Those that do not fit are patches: they are written over what
// their code 0 became.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "matrix.h"

namespace gristmill {

template <Pack kPack>
struct Code {
  static constexpr Pack kPlain = kPack == Pack::F32_28 ? Pack::F32 : Pack::BF16;
  using Lane = std::conditional_t<kPlain == Pack::F32, uint32_t, uint16_t>;
  // Of a lane's bits one is the sign, then four are spare, from kLow on, and four more say which power of two.
  static constexpr int kSpare = 4, kLow = 8 * int(sizeof(Lane)) - 1 - kSpare, kMantissa = kLow - 4;
  static constexpr int kWords = (kLow + 1) / kSpare;  // stored for kWords + 1
  static constexpr int kStepColumns = 4 / int(sizeof(Lane)), kColumns = (kWords + 1) * kStepColumns;
  static constexpr int kLanesOfWord = kLanes * kStepColumns, kWordBytes = kLanesOfWord * int(sizeof(Lane));
  static constexpr Lane kSign = Lane(Lane(1) << (kLow + kSpare)), kMagnitude = Lane(kSign - 1);
  static constexpr Lane kLargest = Lane((Lane(1) << kLow) - 1);  // code of a magnitude
  static constexpr Lane kKept = kSign | kLargest, kCarried = (1 << kSpare) - 1;

  // Which lane of its word a number of column k has.
  static int lane(int row, int k) { return row * kStepColumns + k % kStepColumns; }

  // What words[i] carries of the last code, in its place there.
  template <class V>
  static V carried(int i, V word) {
    const Lane place = Lane(kCarried << (i * kSpare));
    V v = (word >> (kLow - i * kSpare)) & place;
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
static_assert(Code<Pack::F32_28>::kWords == 7 && Code<Pack::F32_28>::kMantissa == 23);
static_assert(Code<Pack::BF16_12>::kWords == 3 && Code<Pack::BF16_12>::kMantissa == 7);

// A number that has no code. They stand in the order of their steps; after the last one comes a place of kNowhere.
struct Patch {
  uint32_t place;  // column * kGroup * kLanes + row in the group
  uint32_t value;  // its bits

  int column() const { return int(place / (kGroup * kLanes)); }
  int row() const { return int(place % (kGroup * kLanes)); }
};
constexpr uint32_t kNowhere = UINT32_MAX;

// Of a row: what its codes are less than its magnitudes, and for how many numbers there is no code.
struct Base {
  uint32_t base;
  int n_patches;
};

// What an instruction set does of it.
struct Shortening {
  // The largest number has the largest code. cols: a multiple of Code::kColumns.
  Base (*base_below_largest)(Pack pack, const uint8_t* row, int cols);
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
  return pack == Pack::F32_28 ? body(Code<Pack::F32_28>()) : body(Code<Pack::BF16_12>());
}

}  // namespace gristmill
