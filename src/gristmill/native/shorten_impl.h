// Numbers on their way into fewer bits (shortened.h), in the compiler's own vectors, as wide as the instruction set has them.
// Included after a simd_*.h.
#pragma once
#include <algorithm>
#include <cstring>

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

template <class C>
Base base_below_largest(const uint8_t* row, int cols) {
  using Lane = std::make_signed_t<typename C::Lane>;  // as which all processors compare
  typedef Lane Lanes __attribute__((vector_size(kVectorBytes)));
  constexpr int kPerVector = kVectorBytes / int(sizeof(Lane)), kCounted = 1 << 15;  // so many columns' patches fit a lane
  const int whole = cols / kPerVector * kPerVector;
  auto magnitudes = [row](int k) { return load_vector<Lanes>(row + sizeof(Lane) * k) & Lane(C::kMagnitude); };
  auto magnitude = [row](int k) {
    Lane x;
    std::memcpy(&x, row + sizeof x * k, sizeof x);
    return Lane(x & Lane(C::kMagnitude));
  };
  Lanes largest{};
  for (int k = 0; k < whole; k += kPerVector) {
    const Lanes x = magnitudes(k);
    largest = x > largest ? x : largest;
  }
  Lane most = 0;
  for (int i = 0; i < kPerVector; i++) most = std::max(most, Lane(largest[i]));
  for (int k = whole; k < cols; k++) most = std::max(most, magnitude(k));
  const auto base = Lane(most > Lane(C::kLargest) ? most - Lane(C::kLargest) : 0);
  int n_patches = 0;
  for (int k = 0; k < whole;) {
    Lanes below{};
    for (const int end = std::min(whole, k + kCounted); k < end; k += kPerVector) below -= magnitudes(k) < base;
    for (int i = 0; i < kPerVector; i++) n_patches += below[i];
  }
  for (int k = whole; k < cols; k++) n_patches += magnitude(k) < base;
  return {uint32_t(base), n_patches};
}

template <class C>
bool shorten_words(const uint8_t* words, int stride, const uint8_t* bases, uint8_t* to) {
  using Lane = typename C::Lane;
  typedef Lane Lanes __attribute__((vector_size(kVectorBytes)));
  static_assert(C::kWordBytes % kVectorBytes == 0);
  auto shorten_all = [&](auto code) __attribute__((always_inline)) {
    for (int v = 0; v < C::kWordBytes; v += kVectorBytes) {
      const Lanes last = code(C::kWords, v);
#pragma GCC unroll 16
      for (int i = 0; i < C::kWords; i++) {
        const Lanes word = code(i, v) | C::carry(i, last);
        std::memcpy(to + C::kWordBytes * i + v, &word, sizeof word);
      }
    }
  };
  auto number = [&](int i, int v) __attribute__((always_inline)) { return load_vector<Lanes>(words + stride * i + v); };
  auto above = [&](Lanes x, int v) __attribute__((always_inline)) { return (x & C::kMagnitude) - load_vector<Lanes>(bases + v); };
  Lanes all{};
  shorten_all([&](int i, int v) __attribute__((always_inline)) {
    const Lanes x = number(i, v), code = above(x, v);
    all |= code;
    return (x & C::kSign) | code;
  });
  if (!any_bits(all & Lane(~C::kLargest))) return true;
  shorten_all([&](int i, int v) {
    const Lanes x = number(i, v), code = above(x, v);
    return ((x & C::kSign) | code) & Lanes(code <= C::kLargest);
  });
  return false;
}

Base base_below_largest(Pack pack, const uint8_t* row, int cols) {
  return with_code(pack, [&](auto code) { return base_below_largest<decltype(code)>(row, cols); });
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

constexpr Shortening kShortening = {base_below_largest, shorten_words, shorten_head, half_to_bf16};

}  // namespace
}  // namespace gristmill
