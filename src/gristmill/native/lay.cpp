#include "lay.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "shortened.h"

namespace gristmill {

namespace {

// Registers of 16 bytes in the compiler's own vector types: every processor has them, and more would not help here, since
// memory is what packing waits for.
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint16_t Halves __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));

template <class V>
inline V load(const void* p) {
  V v;
  std::memcpy(&v, p, 16);
  return v;
}
template <class V>
inline void store(uint8_t* p, V v) {
  std::memcpy(p, &v, 16);
}

// Elements of a and b in turn: those of the lower halves, those of the upper halves.
inline Bytes low(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes high(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline Halves low(Halves a, Halves b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Halves high(Halves a, Halves b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
inline Words low(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Words high(Words a, Words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

// N vectors of N elements: v[i][j] and v[j][i] change places. Each round deals the two halves of the list into one another.
template <class V, int N>
inline void transpose(V (&v)[N]) {
  for (int dealt = 1; dealt < N; dealt *= 2) {
    V next[N];
    for (int i = 0; i < N / 2; i++) {
      next[2 * i] = low(v[i], v[i + N / 2]);
      next[2 * i + 1] = high(v[i], v[i + N / 2]);
    }
    for (int i = 0; i < N; i++) v[i] = next[i];
  }
}

// 16 bytes of four rows, four of each to a set: `sets` are `stride` apart, `to` is the first row's lane in the first one.
inline void put_sets(Words (&v)[4], uint8_t* to, int stride) {
  transpose(v);
  for (int k = 0; k < 4; k++) store(to + stride * k, v[k]);
}

inline uint32_t word(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// ---- blocks of 32 ---------------------------------------------------------------------------------------------------

// 32 bytes of each row, `at` bytes from its start, plus `zero`, which is 0 or 128.
void lay_bytes(const StoredRow* rows, size_t at, int zero, const Place<uint8_t>& to) {
  const uint32_t added = uint32_t(zero) * 0x01010101;
  for (int r = 0; r < kLanes; r += 4) {
    for (int half = 0; half < 2; half++) {
      Words v[4];
      for (int i = 0; i < 4; i++) v[i] = load<Words>(rows[r + i].blocks + at + 16 * half) ^ added;
      put_sets(v, to.quants + to.stride * 4 * half + 4 * r, to.stride);
    }
  }
}

// 16 bytes of each row, with column j in the low and column j + 16 in the high half, as sets have them.
template <Pack kPack>
void lay_nibbles(const StoredRow* rows, size_t at, const Place<uint8_t>& to) {
  for (int r = 0; r < kLanes; r += 4) {
    Words v[4];
    for (int i = 0; i < 4; i++) v[i] = load<Words>(rows[r + i].blocks + at);
    put_sets(v, to.quants + to.stride * nibble_set(kPack, 0) + 4 * r, to.stride);
  }
}

inline Words words_at(const StoredRow* rows, size_t at) {
  return Words{word(rows[0].blocks + at), word(rows[1].blocks + at), word(rows[2].blocks + at), word(rows[3].blocks + at)};
}

// Bits of each word change places where bit P of their number is set and bit Q is not, or the other way round.
template <int P, int Q>
inline Words swapped(Words x) {
  constexpr auto mask = [] {
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= uint32_t((i >> Q & 1) && !(i >> P & 1)) << i;
    return bits;
  };
  constexpr uint32_t kMask = mask();
  constexpr int kApart = (1 << P) - (1 << Q);
  const Words differ = (x ^ x >> kApart) & kMask;
  return x ^ differ ^ differ << kApart;
}

// Four bytes of each row, whose bit i belongs to column i: bit j of byte i becomes that of column 4 j + i.
void lay_bits_of_32(const StoredRow* rows, size_t at, const Place<uint8_t>& to) {
  for (int r = 0; r < kLanes; r += 4)
    store(to.quants + 4 * r, swapped<1, 0>(swapped<2, 1>(swapped<3, 0>(swapped<4, 1>(words_at(rows + r, at))))));
}

// 16 bytes of each row with neighbours in one byte.
void lay_neighbours(const StoredRow* rows, size_t at, const Place<uint8_t>& to) {
  for (int r = 0; r < kLanes; r += 4) {
    Words v[4];
    for (int i = 0; i < 4; i++) {
      Bytes q = load<Bytes>(rows[r + i].blocks + at), even = q & 15, odd = q >> 4;
      v[i] = Words(low(even, odd) | high(even, odd) << 4);
    }
    put_sets(v, to.quants + 4 * r, to.stride);
  }
}

// Eight bytes of each row hold two bits of each of 32 columns in order: those of sets 0, 1, 4 and 5, then all others.
void lay_pairs_of_32(const StoredRow* rows, size_t at, const Place<uint8_t>& to) {
  for (int r = 0; r < kLanes; r += 4) {
    const Words a = words_at(rows + r, at), b = words_at(rows + r, at + 4);
    // Columns of a set become bytes, and sets what these hold of each.
    store(to.quants + 4 * r, swapped<4, 2>(swapped<3, 1>((a & 0xffff) | b << 16)));
    store(to.quants + to.stride + 4 * r, swapped<4, 2>(swapped<3, 1>(a >> 16 | (b & 0xffff0000))));
  }
}

void lay_half_scales(const StoredRow* rows, size_t at, uint8_t* to) {
  for (int r = 0; r < kLanes; r++) std::memcpy(to + 2 * r, rows[r].blocks + at, 2);
}

// Of Q8F and Q8G, those of a step.
void lay_group_scales(const StoredRow* rows, int step, uint8_t* to) {
  for (int r = 0; r < kLanes; r++) {
    const StoredRow& row = rows[r];
    float scale = row.group_scales ? row.group_scales[(row.first_element + int64_t(step) * kBlock) / row.group] : 0;
    std::memcpy(to + 4 * r, &scale, 4);
  }
}

template <Pack kPack>
void lay_block(const StoredRow* rows, int step, int zero, const Place<uint8_t>& to) {
  size_t b = size_t(step);
  if constexpr (kPack == Pack::Q8_0) {
    lay_bytes(rows, b * 34 + 2, zero, to);
    lay_half_scales(rows, b * 34, to.scales);
  } else if constexpr (kPack == Pack::Q4_0 || kPack == Pack::IQ4_NL) {
    lay_nibbles<kPack>(rows, b * 18 + 2, to);
    lay_half_scales(rows, b * 18, to.scales);
  } else if constexpr (kPack == Pack::Q4_1 || kPack == Pack::Q5_0 || kPack == Pack::Q5_1) {
    constexpr int kHalfBytes = kPack == Pack::Q5_0 ? 2 : 4, kBytes = kHalfBytes + (has_fifth_bits(kPack) ? 20 : 16);
    if constexpr (has_fifth_bits(kPack)) lay_bits_of_32(rows, b * kBytes + kHalfBytes, to);
    lay_nibbles<kPack>(rows, b * kBytes + kBytes - 16, to);
    lay_half_scales(rows, b * kBytes, to.scales);
    if constexpr (kPack != Pack::Q5_0) lay_half_scales(rows, b * kBytes + 2, to.scales + 2 * kLanes);
  } else if constexpr (kPack == Pack::Q8R) {
    lay_bytes(rows, b * 32, zero, to);
  } else if constexpr (kPack == Pack::Q8F) {
    lay_bytes(rows, b * 32, zero, to);
    lay_group_scales(rows, step, to.scales);
  } else if (rows[0].e8m0) {
    lay_neighbours(rows, b * 16, to);
    for (int r = 0; r < kLanes; r++) to.scales[r] = rows[r].e8m0[b];
  } else {
    lay_nibbles<kPack>(rows, b * 17 + 1, to);
    for (int r = 0; r < kLanes; r++) to.scales[r] = rows[r].blocks[b * 17];
  }
}

// ---- blocks of 256, eight steps at once -----------------------------------------------------------------------------

// 32 bytes of each row hold 32 columns of one step in their low halves and of another in their high ones.
template <Pack kPack>
void lay_both_halves(const StoredRow* rows, size_t at, const Place<uint8_t>& to_low, const Place<uint8_t>& to_high) {
  for (int r = 0; r < kLanes; r += 4) {
    Words v[4], u[4];
    for (int i = 0; i < 4; i++) {
      Words a = load<Words>(rows[r + i].blocks + at), c = load<Words>(rows[r + i].blocks + at + 16);
      v[i] = (a & 0x0f0f0f0f) | (c & 0x0f0f0f0f) << 4;
      u[i] = (a >> 4 & 0x0f0f0f0f) | (c & 0xf0f0f0f0);
    }
    transpose(v);
    transpose(u);
    for (int k = 0; k < 4; k++) {
      store(to_low.quants + to_low.stride * nibble_set(kPack, k) + 4 * r, v[k]);
      store(to_high.quants + to_high.stride * nibble_set(kPack, k) + 4 * r, u[k]);
    }
  }
}

// The 6-bit scales and minima of a block (see k_scale_min), unpacked: eight bytes of each.
inline Words unpack_k_scales(const uint8_t* packed) {
  uint32_t a = word(packed), b = word(packed + 4), c = word(packed + 8);
  return Words{a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4, b & 0x3f3f3f3f,
               (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4};
}

// Q4_K and Q5_K: `at` is the block's place in each row, `quants` that of its nibbles in the block.
template <Pack kPack>
void lay_k4(const Matrix& m, const StoredRow* rows, size_t at, int quants, const Place<uint8_t>* to) {
  uint8_t halves[64];
  lay_half_scales(rows, at, halves);
  lay_half_scales(rows, at + 2, halves + 2 * kLanes);
  for (int r = 0; r < kLanes; r++) {
    Words sets = unpack_k_scales(rows[r].blocks + at + 4);
    for (int i = 0; i < 2; i++) sets[i] = (sets[i] & 0xff0000ff) | (sets[i] & 0xff00) << 8 | (sets[i] >> 8 & 0xff00);
    for (int i = 0; i < 4; i++) {
      const uint32_t both = sets[i] | (word(halves + 4 * r) << (2 * i) & 0xc0c0c0c0);
      std::memcpy(half_of_set(m, to[0], 0, i, r / 8) + 4 * (r % 8), &both, 4);
    }
  }
  for (int s = 0; s < 8; s += 2) lay_both_halves<kPack>(rows, at + quants + 16 * s, to[s], to[s + 1]);
}

// Q5_K and Q3_K: bit s of byte i is the highest bit of column i of step s.
void lay_highest_bits(const StoredRow* rows, size_t at, const Place<uint8_t>* to) {
  for (int r = 0; r < kLanes; r += 4) {
    Words v[2][4];
    for (int half = 0; half < 2; half++) {
      for (int i = 0; i < 4; i++) v[half][i] = load<Words>(rows[r + i].blocks + at + 16 * half);
      transpose(v[half]);
    }
    for (int s = 0; s < 8; s++) {
      Words bits{};
      for (int j = 0; j < 8; j++) bits |= (v[j / 4][j % 4] >> s & 0x01010101) << j;
      store(to[s].quants + 4 * r, bits);
    }
  }
}

// 64 bytes of each row hold two bits of each column: of column 128 h + 32 s + i bits 2 s and 2 s + 1 of byte 32 h + i. Those of
// sets 0, 1, 4 and 5 of each step become set `first`, all others set `second`.
void lay_pairs_of_bits(const StoredRow* rows, size_t at, int first, int second, const Place<uint8_t>* to) {
  for (int part = 0; part < 2; part++)
    for (int r = 0; r < kLanes; r += 4) {
      Words v[2][4];
      for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 4; i++) v[half][i] = load<Words>(rows[r + i].blocks + at + 32 * part + 16 * half);
        transpose(v[half]);
      }
      for (int s = 0; s < 4; s++)
        for (int other = 0; other < 2; other++) {
          const Place<uint8_t>& step = to[4 * part + s];
          Words bits{};
          for (int j = 0; j < 4; j++) bits |= (v[j / 2][2 * other + j % 2] >> (2 * s) & 0x03030303) << (2 * j);
          store(step.quants + step.stride * (other ? second : first) + 4 * r, bits);
        }
    }
}

// A byte for each 16 columns of each row.
void lay_scales_of_16(Bytes (&scales)[kLanes], const Place<uint8_t>* to) {
  transpose(scales);
  for (int s = 0; s < 8; s++) {
    store(to[s].scales, scales[2 * s]);
    store(to[s].scales + kLanes, scales[2 * s + 1]);
  }
}

void lay_k6(const StoredRow* rows, size_t at, const Place<uint8_t>* to) {
  Bytes scales[kLanes];
  for (int r = 0; r < kLanes; r++) scales[r] = load<Bytes>(rows[r].blocks + at + 192);
  lay_scales_of_16(scales, to);
  lay_half_scales(rows, at + 208, to[0].super);
  for (int part = 0; part < 2; part++)
    for (int s = 0; s < 2; s++) {
      const Place<uint8_t>* two = to + 4 * part + s;
      lay_both_halves<Pack::Q6_K>(rows, at + 64 * part + 32 * s, two[0], two[2]);
    }
  lay_pairs_of_bits(rows, at + 128, 0, 3, to);
}

void lay_k2(const StoredRow* rows, size_t at, const Place<uint8_t>* to) {
  Bytes scales[kLanes];
  for (int r = 0; r < kLanes; r++) scales[r] = load<Bytes>(rows[r].blocks + at);
  lay_scales_of_16(scales, to);
  lay_half_scales(rows, at + 80, to[0].super);
  lay_half_scales(rows, at + 82, to[0].super + 2 * kLanes);
  lay_pairs_of_bits(rows, at + 16, 0, 1, to);
}

void lay_k3(const StoredRow* rows, size_t at, const Place<uint8_t>* to) {
  Bytes scales[kLanes];
  for (int r = 0; r < kLanes; r++)
    for (int j = 0; j < 16; j++) scales[r][j] = uint8_t(q3_scale(rows[r].blocks + at + 96, j));
  lay_scales_of_16(scales, to);
  lay_half_scales(rows, at + 108, to[0].super);
  lay_highest_bits(rows, at, to);
  lay_pairs_of_bits(rows, at + 32, 1, 2, to);
}

void lay_iq4_xs(const StoredRow* rows, size_t at, const Place<uint8_t>* to) {
  for (int s = 0; s < 8; s++) {
    lay_nibbles<Pack::IQ4_XS>(rows, at + 8 + 16 * s, to[s]);
    for (int r = 0; r < kLanes; r++) to[s].scales[r] = uint8_t(iq4_scale(rows[r].blocks + at + 2, s));
  }
  lay_half_scales(rows, at, to[0].super);
}

// Q1_0 and Q2_0: blocks of 18 bytes, of which a scale is the first two, for some steps each.
template <Pack kPack>
void lay_few_bits(const StoredRow* rows, int step, const Place<uint8_t>* to) {
  constexpr int kSteps = kPack == Pack::Q1_0 ? 4 : 2;
  for (int s = 0; s < kSuperSteps; s++) {
    const size_t block = size_t((step + s) / kSteps) * 18, quants = block + 2 + s % kSteps * (16 / kSteps);
    if (s % kSteps == 0) lay_half_scales(rows, block, to[0].super + 2 * kLanes * (s / kSteps));
    if constexpr (kPack == Pack::Q1_0) lay_bits_of_32(rows, quants, to[s]);
    else lay_pairs_of_32(rows, quants, to[s]);
  }
}

// What bytes are as scales of NVFP4.
struct Ue4m3Table {
  static constexpr int kOfZero = -64;  // exponent, less than any other
  int8_t exponent[256], mantissa[256];
  constexpr Ue4m3Table() : exponent(), mantissa() {
    for (int i = 0; i < 256; i++) {
      const Ue4m3 x = ue4m3(uint8_t(i));
      exponent[i] = int8_t(x.mantissa ? x.exponent : kOfZero), mantissa[i] = int8_t(x.mantissa & 7);
    }
  }
};
constexpr Ue4m3Table kUe4m3;

// The scales of 256 numbers of a row as so many 2^unit, a byte each (matrix.h: NVFP4). What is less than 8 is rounded to 0 or 8.
Bytes nvfp4_scales(const uint8_t* block, int* unit) {
  int most = INT8_MIN;
  for (int i = 0; i < 16; i++) most = std::max(most, int(kUe4m3.exponent[block[i / 4 * 36 + i % 4]]));
  *unit = most - 7;
  Bytes out;
  for (int i = 0; i < 16; i++) {
    const uint8_t scale = block[i / 4 * 36 + i % 4];
    const int e = kUe4m3.exponent[scale] - *unit;
    out[i] = kUe4m3.exponent[scale] == kUe4m3.kOfZero || e < -1 ? 31 << 3 : e < 0 ? 0 : uint8_t(e << 3 | kUe4m3.mantissa[scale]);
  }
  return out;
}

// Blocks of 36 bytes: four scales, then for each of them 16 numbers, of which those of a byte are eight apart.
void lay_nvfp4(const StoredRow* rows, size_t at, const Place<uint8_t>* to) {
  Bytes scales[kLanes];
  for (int r = 0; r < kLanes; r++) {
    int unit;
    scales[r] = nvfp4_scales(rows[r].blocks + at, &unit);
    const float d = std::ldexp(rows[r].scale, unit - 1);  // numbers are doubled
    std::memcpy(to[0].super + 4 * r, &d, 4);
  }
  lay_scales_of_16(scales, to);
  for (int s = 0; s < 8; s++)
    for (int r = 0; r < kLanes; r += 4) {
      Words v[4];
      for (int i = 0; i < 4; i++) {
        const Bytes q = load<Bytes>(rows[r + i].blocks + at + 36 * (s / 2) + 4 + 16 * (s % 2));
        const Bytes low_half = q & 15, high_half = q >> 4;
        const Bytes first = __builtin_shufflevector(low_half, high_half, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        const Bytes second =
            __builtin_shufflevector(low_half, high_half, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
        v[i] = Words(first | second << 4);
      }
      put_sets(v, to[s].quants + 4 * r, to[s].stride);
    }
}

void lay_groups(const StoredRow* rows, int step, int zero, const Place<uint8_t>* to) {
  for (int s = 0; s < kSuperSteps; s++) {
    lay_bytes(rows, size_t(step + s) * kBlock, zero, to[s]);
    if (s % 2 == 0) lay_group_scales(rows, step + s, to[0].super + 4 * kLanes * (s / 2));
  }
}

template <Pack kPack>
void lay_eight(const Matrix& m, const StoredRow* rows, int step, const Place<uint8_t>* to) {
  size_t block = size_t(step) / 8;
  if constexpr (kPack == Pack::Q1_0 || kPack == Pack::Q2_0) {
    lay_few_bits<kPack>(rows, step, to);
  } else if constexpr (kPack == Pack::Q8G) {
    lay_groups(rows, step, m.zero, to);
  } else if constexpr (kPack == Pack::NVFP4) {
    lay_nvfp4(rows, block * 144, to);
  } else if constexpr (kPack == Pack::Q4_K) {
    lay_k4<kPack>(m, rows, block * 144, 16, to);
  } else if constexpr (kPack == Pack::Q5_K) {
    lay_k4<kPack>(m, rows, block * 176, 48, to);
    lay_highest_bits(rows, block * 176 + 16, to);
  } else if constexpr (kPack == Pack::Q2_K) {
    lay_k2(rows, block * 84, to);
  } else if constexpr (kPack == Pack::Q3_K) {
    lay_k3(rows, block * 110, to);
  } else if constexpr (kPack == Pack::IQ4_XS) {
    lay_iq4_xs(rows, block * 136, to);
  } else {
    lay_k6(rows, block * 210, to);
  }
}

// ---- plain numbers --------------------------------------------------------------------------------------------------

// 16 bytes of each row as elements of V's size; every element of a row goes to another step.
template <class V, int N>
void lay_plain(const StoredRow* rows, size_t at, uint8_t* to, size_t step_bytes) {
  for (int r = 0; r < kLanes; r += N) {
    V v[N];
    for (int i = 0; i < N; i++) v[i] = load<V>(rows[r + i].blocks + at);
    transpose(v);
    for (int k = 0; k < N; k++) store(to + step_bytes * k + 16 / N * r, v[k]);
  }
}

// The same where fewer than 16 bytes are left: n_bytes of each row. The second half of a last pair may be missing: zero.
void lay_rest(const StoredRow* rows, size_t at, int n_bytes, int element_bytes, uint8_t* to, size_t step_bytes) {
  int n_elements = (n_bytes + element_bytes - 1) / element_bytes;
  for (int r = 0; r < kLanes; r++)
    for (int i = 0; i < n_elements * element_bytes; i++)
      to[step_bytes * (i / element_bytes) + element_bytes * r + i % element_bytes] = i < n_bytes ? rows[r].blocks[at + i] : 0;
}

template <Pack kPack>
void lay_floats(const Matrix& m, const StoredRow* rows, uint8_t* group, int width, int begin, int end) {
  constexpr int element = kPack == Pack::F16 ? 2 : 4, together = 16 / element;
  int number = kPack == Pack::F32 ? 4 : 2;
  size_t step_bytes = m.quant_bytes() * width, row_bytes = size_t(m.cols) * number;
  // A panel's rows over a whole line of each, before others': rows often lie a power of two apart, and no cache holds more of
  // them.
  for (int p = 0; p < width; p++) {
    const StoredRow* panel = rows + p * kLanes;
    for (int step = begin; step < end; step += together) {
      size_t at = size_t(step) * element;
      uint8_t* to = group + m.step_offset(width, step) + m.quant_bytes() * p;
      if (at + 16 > row_bytes) lay_rest(panel, at, int(row_bytes - at), element, to, step_bytes);
      else if constexpr (kPack == Pack::F16) lay_plain<Halves, 8>(panel, at, to, step_bytes);
      else lay_plain<Words, 4>(panel, at, to, step_bytes);
    }
  }
}

// ---- shortened numbers ----------------------------------------------------------------------------------------------

template <class Lane>
inline Lane lane_at(const uint8_t* p, int i) {
  Lane v;
  std::memcpy(&v, p + sizeof(Lane) * i, sizeof v);
  return v;
}

// Of bfloat16: the powers of two that most numbers have.
Base widest_base(const uint8_t* row, int cols) {
  using C = Code<Pack::BF16_12>;
  constexpr int kExponents = 1 << (15 - C::kMantissa), kWindow = 16;
  int n[kExponents + kWindow] = {}, in = 0, most = 0, best = 0;
  for (int k = 0; k < cols; k++) n[(lane_at<uint16_t>(row, k) & C::kMagnitude) >> C::kMantissa]++;
  for (int e = kExponents - 1; e >= 0; e--) {
    in += n[e] - n[e + kWindow];
    if (in >= most) most = in, best = e;
  }
  return {uint32_t(best) << C::kMantissa, cols - most};
}

// Where shorten_words found numbers without a code: they become patches. at: the column of the first word.
template <class C>
void patch(const uint8_t* words, int stride, const uint8_t* bases, int at, int panel, Tail& tail, int most_patches,
           Patch* patches) {
  using Lane = typename C::Lane;
  for (int i = 0; i <= C::kWords; i++)
    for (int lane = 0; lane < C::kLanesOfWord; lane++) {
      const Lane x = lane_at<Lane>(words + stride * i, lane);
      if (!C::outside(x, lane_at<Lane>(bases, lane))) continue;
      if (tail.n_patches + 1 >= most_patches) {
        tail.overflows = true;
        return;
      }
      const int column = at + i * C::kStepColumns + lane % C::kStepColumns, row = panel * kLanes + lane / C::kStepColumns;
      patches[tail.n_patches++] = {uint32_t(column * kGroup * kLanes + row), x};
    }
}

constexpr int kShortenedAtOnce = 4;

template <class C>
void lay_shortened(const Matrix& m, const StoredRow* rows, uint8_t* group, int width, int begin, int end, const Kernels& kernels,
                   Tail& tail) {
  constexpr int kPlainSteps = C::kWords + 1;
  const Matrix plain{C::kPlain, 1, kLanes, m.cols, nullptr};
  const int stride = C::kWordBytes * width;
  uint8_t* bases = tail.bytes.data();
  auto* patches = reinterpret_cast<Patch*>(bases + width * m.base_bytes());
  const int most_patches = int(m.patch_bytes() * width / sizeof(Patch));
  alignas(64) uint8_t words[kShortenedAtOnce * kPlainSteps * kGroup * C::kWordBytes];
  for (int step = begin, stop; step < end; step = stop) {
    stop = std::min(step + kShortenedAtOnce, end);
    const int first = step * kPlainSteps;
    lay_floats<C::kPlain>(plain, rows, words - plain.step_offset(width, first), width, first, stop * kPlainSteps);
    const uint8_t* from = words;
    for (int s = step; s < stop; s++, from += stride * kPlainSteps)
      for (int p = 0; p < width; p++) {
        const uint8_t *plain_words = from + C::kWordBytes * p, *base = bases + p * m.base_bytes();
        uint8_t* to = group + m.step_offset(width, s) + m.quant_bytes() * p;
        if (!kernels.shortening->words(m.pack, plain_words, stride, base, to))
          patch<C>(plain_words, stride, base, s * C::kColumns, p, tail, most_patches, patches);
      }
  }
}

template <class C>
void lay_bases(Pack pack, const StoredRow* rows, int n_rows, int cols, const Kernels& kernels, uint8_t* to) {
  for (int r = 0; r < n_rows; r++) {
    const auto base = typename C::Lane(base_of(pack, rows[r].blocks, cols, kernels).base);
    for (int i = 0; i < C::kStepColumns; i++, to += sizeof base) std::memcpy(to, &base, sizeof base);
  }
}

// ---- any type -------------------------------------------------------------------------------------------------------

template <Pack kPack>
void lay(Matrix m, const StoredRow* rows, uint8_t* group, int width, int begin, int end, const Kernels& kernels, Tail& tail) {
  m.pack = kPack;  // the same, but known to the compiler, which then knows all sizes
  if constexpr (kPack <= Pack::BF16) {
    lay_floats<kPack>(m, rows, group, width, begin, end);
  } else if constexpr (kPack < Pack::Q8_0) {
    lay_shortened<Code<kPack>>(m, rows, group, width, begin, end, kernels, tail);
  } else if constexpr (kPack >= Pack::Q2_K) {
    for (int step = begin; step < end; step += 8) {
      for (int p = 0; p < width; p++) {
        Place<uint8_t> to[8];
        for (int s = 0; s < 8; s++) to[s] = place(m, group, width, p, step + s);
        lay_eight<kPack>(m, rows + p * kLanes, step, to);
      }
    }
  } else {
    for (int step = begin; step < end; step++)
      for (int p = 0; p < width; p++) lay_block<kPack>(rows + p * kLanes, step, m.zero, place(m, group, width, p, step));
  }
}

}  // namespace

Base base_of(Pack pack, const uint8_t* row, int cols, const Kernels& kernels) {
  const Base base = kernels.shortening->base(pack, row, cols);
  return pack == Pack::F32_24 || base.n_patches <= cols / 512 ? base : widest_base(row, cols);
}

int steps_at_once(Pack pack) {
  switch (pack) {
    case Pack::F16: return 32;  // of plain numbers, a line of a row
    case Pack::F32:
    case Pack::BF16: return 16;
    case Pack::F32_24:
    case Pack::BF16_12: return kShortenedAtOnce;
    default: return pack >= Pack::Q2_K ? kSuperSteps : 1;
  }
}

void begin_tail(const Matrix& m, const StoredRow* rows, int width, const Kernels& kernels, Tail& tail) {
  tail.bytes.assign(width * m.tail_bytes(), 0xff);  // patches: kNowhere
  tail.n_patches = 0, tail.overflows = false;
  uint8_t* to = tail.bytes.data();
  const int n_rows = width * kLanes;
  if (m.pack == Pack::Q8R)
    for (int r = 0; r < n_rows; r++) std::memcpy(to + 4 * r, &rows[r].scale, 4);
  else if (m.shortened())
    with_code(m.pack, [&](auto code) { lay_bases<decltype(code)>(m.pack, rows, n_rows, m.cols, kernels, to); });
}

void lay_steps(const Matrix& m, const StoredRow* rows, uint8_t* to, int width, int begin, int end, const Kernels& kernels,
               Tail& tail) {
  // As if the whole group were there: the pointer is moved back by what is left out.
  uint8_t* group = to - m.step_offset(width, begin);
  switch (m.pack) {
    case Pack::F32: return lay<Pack::F32>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::F16: return lay<Pack::F16>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::BF16: return lay<Pack::BF16>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::F32_24: return lay<Pack::F32_24>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::BF16_12: return lay<Pack::BF16_12>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q8_0: return lay<Pack::Q8_0>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q8F: return lay<Pack::Q8F>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q8R: return lay<Pack::Q8R>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q4_0: return lay<Pack::Q4_0>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q4_1: return lay<Pack::Q4_1>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q5_0: return lay<Pack::Q5_0>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q5_1: return lay<Pack::Q5_1>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::IQ4_NL: return lay<Pack::IQ4_NL>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q1_0: return lay<Pack::Q1_0>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q2_0: return lay<Pack::Q2_0>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q8G: return lay<Pack::Q8G>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::NVFP4: return lay<Pack::NVFP4>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q2_K: return lay<Pack::Q2_K>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q3_K:
    case Pack::IQ2:
    case Pack::IQ1: return lay<Pack::Q3_K>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q4_K: return lay<Pack::Q4_K>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q5_K: return lay<Pack::Q5_K>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::Q6_K: return lay<Pack::Q6_K>(m, rows, group, width, begin, end, kernels, tail);
    case Pack::IQ4_XS:
    case Pack::IQ3_S:
    case Pack::IQ3_XXS: return lay<Pack::IQ4_XS>(m, rows, group, width, begin, end, kernels, tail);
    default: return lay<Pack::MXFP4>(m, rows, group, width, begin, end, kernels, tail);
  }
}

}  // namespace gristmill
