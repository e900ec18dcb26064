// GGUF's types of 1.6 to 3.4 bits, whose codes stand for several numbers at once, as types that have a code for each.
//
// In IQ1, IQ2 and IQ3 a code names a point of a grid: what four or eight neighbours are without their signs (in IQ1, before an
// eighth of their scale is added or taken off). Their blocks become blocks of Q3_K and IQ4_XS in size and layout, with signs in
// the highest bit, whose codes stand for other numbers: Curve. TQ1_0 and TQ2_0 become Q2_0. Layouts: ggml-common.h.
#pragma once
#include <cstdint>
#include <vector>

#include "dequantize.h"

namespace gristmill {

// A number is unit * a block's scale * a whole scale * value[code].
struct Curve {
  int8_t value[16];
  float unit;
};
// As Q3_K.
inline constexpr Curve kCurveIq1{{-7, 1, 9, 0, -9, -1, 7, 0}, 0x1p-3f};
inline constexpr Curve kCurveIq2{{8, 25, 43, 0, -8, -25, -43, 0}, 0x1p-3f};
// As IQ4_XS.
inline constexpr Curve kCurveIq3Xxs{{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}, 0x1p-2f};
inline constexpr Curve kCurveIq3S{{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}, 1};

constexpr bool is_grid(Source source) { return source >= Source::IQ1_S && source <= Source::TQ2_0; }

// What layout blocks of `source`, which is_grid, become.
Source spelled(Source source);

// Blocks of n numbers, a multiple of 256, in that layout; or the numbers themselves.
void spell(Source source, const uint8_t* blocks, int64_t n, uint8_t* out);
void numbers_of_grid(Source source, const uint8_t* blocks, int64_t n, float* out);

// The digits of all points of a grid in order, eight a point, of IQ3 four; empty for types that have none.
std::vector<uint8_t> grid_digits(Source source);

}  // namespace gristmill
