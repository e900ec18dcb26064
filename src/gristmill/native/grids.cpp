#include "grids.h"

#include <cstring>
#include <type_traits>

#include "grid_points.h"
#include "half.h"

namespace gristmill {

namespace {

constexpr int kNumbers = 256, kScales = 16;  // of a block

// A block with a code for each number and a scale for each 16.
struct Codes {
  uint8_t code[kNumbers];
  uint8_t scale[kScales];  // of IQ1, IQ2 and IQ3 s stands for 2 s + 1
  uint16_t d;              // a float16

  template <class Point>
  void put(int first, Point point) { std::memcpy(code + first, &point, sizeof point); }
  void both_scales(int group, int s) { scale[2 * group] = scale[2 * group + 1] = uint8_t(s); }
};

template <class V>
V read(const uint8_t* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

int digit_of(char hex) { return hex <= '9' ? hex - '0' : hex - 'a' + 10; }

// The points of a grid, a byte for each digit.
using Eight = uint64_t;  // digits of base 3
using Four = uint32_t;   // of base 8

template <class Point>
std::vector<Point> points_of(const char* bits) {
  constexpr int kDigits = sizeof(Point), kBase = kDigits == 8 ? 3 : 8;
  std::vector<Point> points;
  for (int n = 0; bits[n / 4]; n++) {
    const int place = n / 4 ^ 1;  // of a byte's two hexadecimal digits the higher stands first
    if (!(digit_of(bits[place]) >> n % 4 & 1)) continue;
    Point point = 0;
    for (int i = 0, rest = n; i < kDigits; i++, rest /= kBase) point |= Point(rest % kBase) << 8 * i;
    points.push_back(point);
  }
  return points;
}

template <const char* kBits, class Point>
const std::vector<Point>& points() {
  static const std::vector<Point> all = points_of<Point>(kBits);
  return all;
}

// Bit i of eight in byte i; of seven, whose eighth makes their number even.
struct Spread {
  uint64_t of_eight[256] = {}, of_seven[128] = {};
  constexpr Spread() {
    for (int bits = 0; bits < 256; bits++)
      for (int i = 0; i < 8; i++) of_eight[bits] |= uint64_t(bits >> i & 1) << 8 * i;
    for (int bits = 0; bits < 128; bits++) of_seven[bits] = of_eight[bits | __builtin_parity(unsigned(bits)) << 7];
  }
};
constexpr Spread kSpread;

// In all of these g is a group of 32 numbers and l eight of them.

void take_iq2_xxs(const uint8_t* b, Codes& to) {
  const auto& grid = points<kGridIq2Xxs, Eight>();
  for (int g = 0; g < 8; g++) {
    const uint8_t* index = b + 2 + 8 * g;
    const uint32_t rest = read<uint32_t>(index + 4);
    for (int l = 0; l < 4; l++) to.put(32 * g + 8 * l, grid[index[l]] | kSpread.of_seven[rest >> 7 * l & 127] << 2);
    to.both_scales(g, int(rest >> 28));
  }
}

void take_iq2_xs(const uint8_t* b, Codes& to) {
  const auto& grid = points<kGridIq2Xs, Eight>();
  for (int i = 0; i < 32; i++) {
    const uint32_t q = read<uint16_t>(b + 2 + 2 * i);
    to.put(8 * i, grid[q & 511] | kSpread.of_seven[q >> 9] << 2);
  }
  for (int i = 0; i < kScales; i++) to.scale[i] = b[66 + i / 2] >> 4 * (i % 2) & 15;
}

void take_iq2_s(const uint8_t* b, Codes& to) {
  const auto& grid = points<kGridIq2S, Eight>();
  const uint8_t *low = b + 2, *signs = b + 34, *high = b + 66;
  for (int i = 0; i < 32; i++)
    to.put(8 * i, grid[low[i] | (high[i / 4] >> 2 * (i % 4) & 3) << 8] | kSpread.of_eight[signs[i]] << 2);
  for (int i = 0; i < kScales; i++) to.scale[i] = b[74 + i / 2] >> 4 * (i % 2) & 15;
}

void take_iq3_xxs(const uint8_t* b, Codes& to) {
  const auto& grid = points<kGridIq3Xxs, Four>();
  for (int g = 0; g < 8; g++) {
    const uint8_t* index = b + 2 + 8 * g;
    const uint32_t rest = read<uint32_t>(b + 66 + 4 * g);
    for (int l = 0; l < 4; l++) {
      const uint64_t points = grid[index[2 * l]] | uint64_t(grid[index[2 * l + 1]]) << 32;
      to.put(32 * g + 8 * l, points | kSpread.of_seven[rest >> 7 * l & 127] << 3);
    }
    to.both_scales(g, int(rest >> 28));
  }
}

void take_iq3_s(const uint8_t* b, Codes& to) {
  const auto& grid = points<kGridIq3S, Four>();
  const uint8_t *low = b + 2, *high = b + 66, *signs = b + 74;
  for (int g = 0; g < 8; g++) {
    const uint32_t ninth = uint32_t(high[g]) << 8;
    auto point = [&](int i) { return uint64_t(grid[low[8 * g + i] | (ninth >> i & 256)]); };
    for (int l = 0; l < 4; l++)
      to.put(32 * g + 8 * l, point(2 * l) | point(2 * l + 1) << 32 | kSpread.of_eight[signs[4 * g + l]] << 3);
  }
  for (int g = 0; g < 8; g++) to.both_scales(g, b[106 + g / 2] >> 4 * (g % 2) & 15);
}

constexpr uint64_t kFourInAll = 0x0404040404040404;  // the bit of what is taken off in IQ1

void take_iq1_s(const uint8_t* b, Codes& to) {
  const auto& grid = points<kGridIq1, Eight>();
  for (int g = 0; g < 8; g++) {
    const uint32_t high = read<uint16_t>(b + 34 + 2 * g);
    for (int l = 0; l < 4; l++)
      to.put(32 * g + 8 * l, grid[b[2 + 4 * g + l] | (high >> 3 * l & 7) << 8] | (high >> 15) * kFourInAll);
    to.both_scales(g, high >> 12 & 7);
  }
}

void take_iq1_m(const uint8_t* b, Codes& to) {
  const auto& grid = points<kGridIq1, Eight>();
  const uint8_t *low = b, *high = b + 32, *scales = b + 48;
  for (int i = 0; i < 32; i++) {
    const uint32_t four = high[i / 2] >> 4 * (i % 2) & 15;
    to.put(8 * i, grid[low[i] | (four & 7) << 8] | (four >> 3) * kFourInAll);
  }
  to.d = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t four = read<uint16_t>(scales + 2 * i);  // scales of three bits, and four bits of d
    for (int j = 0; j < 4; j++) to.scale[4 * i + j] = four >> 3 * j & 7;
    to.d = uint16_t(to.d | (four >> 12) << 4 * i);
  }
}

// Five digits of base three a byte, as the fraction that the byte is of 256.
void take_tq1_0(const uint8_t* b, Codes& to) {
  uint8_t* code = to.code;
  auto take_digits = [&](const uint8_t* packed, auto count, int n_digits) {
    for (int power = 1; n_digits > 0; n_digits--, power *= 3, code += count)
      for (int i = 0; i < count; i++) code[i] = uint8_t(uint8_t(packed[i] * power) * 3 >> 8);
  };
  take_digits(b, std::integral_constant<int, 32>(), 5);
  take_digits(b + 32, std::integral_constant<int, 16>(), 5);
  take_digits(b + 48, std::integral_constant<int, 4>(), 4);
}

void take_tq2_0(const uint8_t* b, Codes& to) {
  for (int g = 0; g < 8; g++)
    for (int i = 0; i < 32; i++) to.code[32 * g + i] = b[g / 4 * 32 + i] >> 2 * (g % 4) & 3;
}

void take(Source source, const uint8_t* b, Codes& to) {
  switch (source) {
    case Source::IQ1_M: return take_iq1_m(b, to);
    case Source::TQ1_0: to.d = read<uint16_t>(b + 52); return take_tq1_0(b, to);
    case Source::TQ2_0: to.d = read<uint16_t>(b + 64); return take_tq2_0(b, to);
    default: to.d = read<uint16_t>(b);
  }
  switch (source) {
    case Source::IQ1_S: return take_iq1_s(b, to);
    case Source::IQ2_XXS: return take_iq2_xxs(b, to);
    case Source::IQ2_XS: return take_iq2_xs(b, to);
    case Source::IQ2_S: return take_iq2_s(b, to);
    case Source::IQ3_XXS: return take_iq3_xxs(b, to);
    default: return take_iq3_s(b, to);
  }
}

// Bits 0 and 1 of each code in 64 bytes, as Q3_K has them.
void put_pairs_of_bits(const Codes& codes, uint8_t* __restrict to) {
  for (int half = 0; half < 2; half++, to += 32)
    for (int i = 0; i < 32; i++) {
      const uint8_t* c = codes.code + 128 * half + i;
      to[i] = uint8_t((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
    }
}

// Six bits, of which 32 stands for nothing.
uint8_t six_bits(uint8_t s) { return uint8_t(32 + 2 * s + 1); }

void put_q3_k(const Codes& codes, uint8_t* __restrict to) {
  for (int i = 0; i < 32; i++) {
    int bits = 0;
    for (int g = 0; g < 8; g++) bits |= (codes.code[32 * g + i] >> 2 & 1) << g;
    to[i] = uint8_t(bits);
  }
  put_pairs_of_bits(codes, to + 32);
  uint8_t* scales = to + 96;
  std::memset(scales, 0, 12);
  for (int i = 0; i < kScales; i++) {
    const int six = six_bits(codes.scale[i]);
    scales[i % 8] = uint8_t(scales[i % 8] | (six & 15) << 4 * (i / 8));
    scales[8 + i % 4] = uint8_t(scales[8 + i % 4] | six >> 4 << 2 * (i / 4));
  }
  std::memcpy(to + 108, &codes.d, 2);
}

void put_iq4_xs(const Codes& codes, uint8_t* __restrict to) {
  std::memcpy(to, &codes.d, 2);
  std::memset(to + 2, 0, 6);
  for (int g = 0; g < 8; g++) {
    const int six = six_bits(codes.scale[2 * g]);
    to[2 + g / 4] = uint8_t(to[2 + g / 4] | six >> 4 << 2 * (g % 4));
    to[4 + g / 2] = uint8_t(to[4 + g / 2] | (six & 15) << 4 * (g % 2));
    const uint8_t* c = codes.code + 32 * g;
    for (int i = 0; i < 16; i++) to[8 + 16 * g + i] = uint8_t(c[i] | c[16 + i] << 4);
  }
}

// Four blocks of 64 numbers.
void put_q2_0(const Codes& codes, uint8_t* __restrict to) {
  for (int n = 0; n < kNumbers; n += 64, to += 18) {
    std::memcpy(to, &codes.d, 2);
    for (int i = 0; i < 16; i++) {
      const auto four = read<uint32_t>(codes.code + n + 4 * i);
      to[2 + i] = uint8_t(four | four >> 6 | four >> 12 | four >> 18);
    }
  }
}

}  // namespace

Source spelled(Source source) {
  switch (source) {
    case Source::IQ3_XXS:
    case Source::IQ3_S: return Source::IQ4_XS;
    case Source::TQ1_0:
    case Source::TQ2_0: return Source::Q2_0;
    default: return Source::Q3_K;
  }
}

void spell(Source source, const uint8_t* blocks, int64_t n, uint8_t* out) {
  const Source target = spelled(source);
  const int bytes = source_block_bytes(source), out_bytes = kNumbers / source_block(target) * source_block_bytes(target);
  Codes codes;
  for (; n > 0; n -= kNumbers, blocks += bytes, out += out_bytes) {
    take(source, blocks, codes);
    if (target == Source::Q3_K) put_q3_k(codes, out);
    else if (target == Source::IQ4_XS) put_iq4_xs(codes, out);
    else put_q2_0(codes, out);
  }
}

void numbers_of_grid(Source source, const uint8_t* blocks, int64_t n, float* out) {
  const bool ternary = spelled(source) == Source::Q2_0;
  const Curve& curve = source == Source::IQ3_S     ? kCurveIq3S
                       : source == Source::IQ3_XXS ? kCurveIq3Xxs
                       : source <= Source::IQ1_M   ? kCurveIq1
                                                   : kCurveIq2;
  const int bytes = source_block_bytes(source);
  Codes codes;
  for (; n > 0; n -= kNumbers, blocks += bytes, out += kNumbers) {
    take(source, blocks, codes);
    const float d = half_to_float(codes.d);
    for (int i = 0; i < kNumbers; i++) {
      if (ternary) out[i] = d * float(codes.code[i] - 1);
      else out[i] = d * curve.unit * float(2 * codes.scale[i / 16] + 1) * float(curve.value[codes.code[i]]);
    }
  }
}

std::vector<uint8_t> grid_digits(Source source) {
  auto bytes_of = [](const auto& points) {
    const auto* first = reinterpret_cast<const uint8_t*>(points.data());
    return std::vector<uint8_t>(first, first + points.size() * sizeof points[0]);
  };
  switch (source) {
    case Source::IQ1_S:
    case Source::IQ1_M: return bytes_of(points<kGridIq1, Eight>());
    case Source::IQ2_XXS: return bytes_of(points<kGridIq2Xxs, Eight>());
    case Source::IQ2_XS: return bytes_of(points<kGridIq2Xs, Eight>());
    case Source::IQ2_S: return bytes_of(points<kGridIq2S, Eight>());
    case Source::IQ3_XXS: return bytes_of(points<kGridIq3Xxs, Four>());
    case Source::IQ3_S: return bytes_of(points<kGridIq3S, Four>());
    default: return {};
  }
}

}  // namespace gristmill
