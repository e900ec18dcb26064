// Byte-pair merging: which neighbours join, and the exact, near-linear order of joining. Knows symbols, not text.
#pragma once

#include <cstdint>
#include <vector>

#include "vocab.h"

namespace gristmill {

struct Merge {
  uint32_t rank;  // lower joins first; equal ranks join from the left; kNone when the pair never joins
  uint32_t id;    // the symbol the pair becomes
};

// (left, right) -> Merge, in one flat array.
class PairTable {
 public:
  void reserve(size_t n_pairs);
  void add(uint32_t left, uint32_t right, Merge merge);  // of equal pairs, the first counts
  void prefetch(uint32_t left, uint32_t right) const {
    __builtin_prefetch(&slots_[place((static_cast<uint64_t>(left) << 32) | right)], 1);
  }
  size_t size() const { return n_pairs_; }

  Merge find(uint32_t left, uint32_t right) const {
    const uint64_t key = (static_cast<uint64_t>(left) << 32) | right;
    // Most pairs asked about are not held. One bit of a table that the L2 cache holds says so for nearly all of them.
    const size_t bit = filter_place(key);
    if (!(filter_[bit / 64] >> (bit % 64) & 1)) return {kNone, kNone};
    for (size_t at = place(key);; at = after(at)) {
      if (slots_[at].key == key) return slots_[at].merge;
      if (slots_[at].key == kEmpty) return {kNone, kNone};
    }
  }

 private:
  // No symbol has the id kNone and a partner, so this key stands for none; looking it up yields {kNone, kNone}.
  static constexpr uint64_t kEmpty = ~0ull;
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static uint64_t hash(uint64_t key) { return (key ^ (key >> 29)) * 0x9E3779B97F4A7C15ull; }
  size_t place(uint64_t key) const {
    return static_cast<size_t>(static_cast<unsigned __int128>(hash(key)) * slots_.size() >> 64);
  }
  size_t after(size_t at) const { return ++at < slots_.size() ? at : 0; }
  static size_t filter_place(uint64_t key) { return static_cast<size_t>(hash(key) >> (64 - kFilterBits)); }
  void grow(size_t n_slots);

  static constexpr int kFilterBits = 21;
  std::vector<uint64_t> filter_ = std::vector<uint64_t>((size_t{1} << kFilterBits) / 64);
  // Open addressing, at most three quarters full: who is not held seldom gets past the filter.
  std::vector<Slot> slots_{16, Slot{kEmpty, {kNone, kNone}}};
  size_t n_pairs_ = 0;
};

struct Token {
  uint32_t id;     // kNone or a symbol without a token when nothing matched
  uint32_t start;  // index of its first initial symbol
};

// Working memory of one thread's merging, kept between calls.
struct MergeScratch {
  std::vector<uint32_t> id, next, previous, rank, joined;
  std::vector<uint64_t> heap;
  std::vector<Token> window;
};

// Joins `symbols` by `pairs` until no pair is left and appends the tokens to `out`. Always the pair of lowest rank is
// joined, the leftmost of equals, as if all pairs were looked at again after each join.
void merge_symbols(const PairTable& pairs, const uint32_t* symbols, uint32_t n_symbols, MergeScratch& scratch,
                   std::vector<Token>& out);

}  // namespace gristmill
