// Numbers on their way into fewer bits (shortened.h), in the compiler's own vectors, as wide as the instruction set has them.
// Included after a simd_*.h.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cstring>

#include "half.h"
#include "shortened.h"

namespace gristmill {
namespace {

template <class V>
inline V load_vector(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Bits that some lane has.
template <class V>
inline uint64_t any_bits(V v) {
  typedef uint64_t Longs __attribute__((vector_size(kVectorBytes)));
  const Longs longs = (Longs)v;
  uint64_t any = 0;
  for (size_t i = 0; i < sizeof(V) / 8; i++) any |= longs[i];
  return any;
}

// Of bfloat16: the magnitude that is as far below the row's largest as codes go.
Base base_below_largest(const uint8_t* row, int cols) {
  using C = Code<Pack::BF16_12>;
  typedef int16_t Lanes __attribute__((vector_size(kVectorBytes)));  // as which all processors compare
  constexpr int kPerVector = kVectorBytes / 2, kCounted = 1 << 15;  // so many columns' patches fit a lane
  const int whole = cols / kPerVector * kPerVector;
  auto magnitudes = [row](int k) { return load_vector<Lanes>(row + 2 * k) & int16_t(C::kMagnitude); };
  auto magnitude = [row](int k) { return int16_t(load_vector<uint16_t>(row + 2 * k) & C::kMagnitude); };
  Lanes largest{};
  for (int k = 0; k < whole; k += kPerVector) {
    const Lanes x = magnitudes(k);
    largest = x > largest ? x : largest;
  }
  int16_t most = 0;
  for (int i = 0; i < kPerVector; i++) most = std::max(most, int16_t(largest[i]));
  for (int k = whole; k < cols; k++) most = std::max(most, magnitude(k));
  const auto base = int16_t(most > int16_t(C::kLargest) ? most - C::kLargest : 0);
  int n_patches = 0;
  for (int k = 0; k < whole;) {
    Lanes below{};
    for (const int end = std::min(whole, k + kCounted); k < end; k += kPerVector) below -= magnitudes(k) < base;
    for (int i = 0; i < kPerVector; i++) n_patches += below[i];
  }
  for (int k = whole; k < cols; k++) n_patches += magnitude(k) < base;
  return {uint32_t(base), n_patches};
}

// Of float: the power of two of which a code makes the largest number that is at most 16 times as large as they are in the
// mean, for which larger ones and zeros don't count. Of a row with many larger ones, or too small a largest one, no number has
// a code.
Base base_of_floats(const uint8_t* row, int cols) {
  using C = Code<Pack::F32_24>;
  typedef uint32_t Bits __attribute__((vector_size(16)));
  typedef int32_t Ints __attribute__((vector_size(16)));
  typedef float Floats __attribute__((vector_size(16)));
  constexpr float kNear = 16, kSmallest = 0x1p-94f;  // which leaves bases that are normal numbers
  constexpr uint32_t kExponent = 0x7f800000, kBelow = 30u << 23;  // a code with the spare bits and its sign has 32
  float largest = 0, limit = FLT_MAX;
  int n_patches = 0;
  for (bool all = false; !all;) {
    Ints most{}, n_zero{}, n_outside{};
    Floats sum{};
    for (int k = 0; k < cols; k += 4) {
      const Bits x = load_vector<Bits>(row + 4 * k) & C::kMagnitude;
      const Ints outside = Ints(x) > int32_t(bits_of_float(limit)), inside = Ints(x) & ~outside;
      most = inside > most ? inside : most;
      n_zero -= inside == 0, n_outside -= outside;
      sum += Floats(inside);
    }
    auto of_all = [](auto v) { return (v[0] + v[1]) + (v[2] + v[3]); };
    largest = float_of_bits(uint32_t(std::max(std::max(most[0], most[1]), std::max(most[2], most[3]))));
    n_patches = of_all(n_outside);
    limit = kNear * of_all(sum) / float(std::max(1, cols - of_all(n_zero)));
    if (n_patches > cols / 64 || limit > FLT_MAX) return {bits_of_float(1), cols};
    all = largest <= limit;
  }
  if (!largest) return {bits_of_float(1), n_patches};
  return largest >= kSmallest ? Base{(bits_of_float(largest) & kExponent) - kBelow, n_patches} : Base{bits_of_float(1), cols};
}

template <class C>
bool shorten_words(const uint8_t* words, int stride, const uint8_t* bases, uint8_t* to) {
  using Lane = typename C::Lane;
  typedef Lane Lanes __attribute__((vector_size(kVectorBytes)));
  static_assert(C::kWordBytes % kVectorBytes == 0);
  auto shorten_all = [&](auto code) __attribute__((always_inline)) {
    for (int v = 0; v < C::kWordBytes; v += kVectorBytes) {
      const Lanes base = load_vector<Lanes>(bases + v);
      auto number = [&](int i) __attribute__((always_inline)) { return load_vector<Lanes>(words + stride * i + v); };
      const Lanes last = code(number(C::kWords), base);
#pragma GCC unroll 4
      for (int i = 0; i < C::kWords; i++) {
        const Lanes word = code(number(i), base) | C::carry(i, last);
        std::memcpy(to + C::kWordBytes * i + v, &word, sizeof word);
      }
    }
  };
  Lanes outside{};
  shorten_all([&](Lanes x, Lanes base) __attribute__((always_inline)) {
    outside |= C::outside(x, base);
    return C::code(x, base);
  });
  if (!any_bits(outside)) return true;
  shorten_all([&](Lanes x, Lanes base) __attribute__((always_inline)) {
    const auto inside = Lanes(C::outside(x, base) == 0);
    return C::code(x & inside, base) & inside;
  });
  return false;
}

Base base_of(Pack pack, const uint8_t* row, int cols) {
  return pack == Pack::F32_24 ? base_of_floats(row, cols) : base_below_largest(row, cols);
}

bool shorten_words(Pack pack, const uint8_t* words, int stride, const uint8_t* bases, uint8_t* to) {
  return with_code(pack, [&](auto code) { return shorten_words<decltype(code)>(words, stride, bases, to); });
}

uint16_t shorten_head(uint16_t* numbers, int n) {
  using C = Code<Pack::BF16_12>;
  typedef int16_t Lanes __attribute__((vector_size(2 * kLanes)));
  const int quarter = n / 4;
  auto magnitude = [&](int i) __attribute__((always_inline)) { return load_vector<Lanes>(numbers + i) & int16_t(C::kMagnitude); };
  auto larger = [](Lanes a, Lanes b) __attribute__((always_inline)) { return a > b ? a : b; };
  Lanes largest = Lanes{} + int16_t(C::kLargest);
  for (int i = 0; i < n; i += kLanes) largest = larger(largest, magnitude(i));
  int16_t most = 0;
  for (int i = 0; i < kLanes; i++) most = std::max(most, int16_t(largest[i]));
  const auto base = int16_t(most - C::kLargest);
  auto code = [&](int i) __attribute__((always_inline)) {
    typedef uint16_t Codes __attribute__((vector_size(2 * kLanes)));
    return (load_vector<Codes>(numbers + i) & C::kSign) | Codes(larger(magnitude(i), Lanes{} + base) - base);
  };
  for (int i = 0; i < quarter; i += kLanes) {
    const auto last = code(C::kWords * quarter + i);
    for (int j = 0; j < C::kWords; j++) {
      const auto word = code(j * quarter + i) | C::carry(j, last);
      std::memcpy(numbers + j * quarter + i, &word, sizeof word);
    }
  }
  return uint16_t(base);
}

bool half_to_bf16(const uint8_t* half, int n, uint8_t* to) {
  typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
  typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
  Words all{};
  auto some = [&](const uint8_t* from, uint8_t* out) __attribute__((always_inline)) {
    float floats[kLanes];
    f_store(floats, f_of_half(reinterpret_cast<const uint16_t*>(from)));
    const Words words = load_vector<Words>(floats);
    all |= words;
    const Halves upper = __builtin_convertvector(words >> 16, Halves);
    std::memcpy(out, &upper, sizeof upper);
  };
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) some(half + 2 * i, to + 2 * i);
  if (i < n) {
    uint8_t from[2 * kLanes] = {}, out[2 * kLanes];
    std::memcpy(from, half + 2 * i, 2 * size_t(n - i));
    some(from, out);
    std::memcpy(to + 2 * i, out, 2 * size_t(n - i));
  }
  uint32_t any = 0;
  for (int lane = 0; lane < kLanes; lane++) any |= all[lane];
  return !(any & 0xffff);
}

constexpr Shortening kShortening = {base_of, shorten_words, shorten_head, half_to_bf16};

}  // namespace
}  // namespace gristmill
