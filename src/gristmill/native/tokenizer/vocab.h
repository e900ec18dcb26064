// The pieces of a vocabulary: bytes of each id in one arena, and an exact index from bytes to id.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill {

constexpr uint32_t kNone = 0xFFFFFFFFu;

// 64-bit hash of any bytes: 8-byte words folded by 64 x 64 -> 128 bit multiplication.
inline uint64_t fold_multiply(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(const char* data, size_t size) {
  uint64_t hash = 0x9E3779B97F4A7C15ull ^ size;
  while (size >= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    hash = fold_multiply(hash ^ word, 0xD6E8FEB86659FD93ull);
    data += 8;
    size -= 8;
  }
  uint64_t tail = 0;
  if (size > 0) std::memcpy(&tail, data, size);
  return fold_multiply(hash ^ tail, 0xA0761D6478BD642Full);
}

class Vocab {
 public:
  // Appends a piece under the next id. Only a `findable` piece is found by its bytes; of equal ones, the first is.
  uint32_t add(std::string_view piece, bool findable);
  // The same for many pieces at once: append each, then index all from the first of them on. Until then none is found.
  uint32_t append(std::string_view piece, bool findable);
  void index_from(uint32_t first);
  void reserve(size_t n_pieces, size_t n_bytes);

  uint32_t size() const { return static_cast<uint32_t>(offsets_.size() - 1); }
  std::string_view operator[](uint32_t id) const {
    return {arena_.data() + offsets_[id], static_cast<size_t>(offsets_[id + 1] - offsets_[id])};
  }
  bool findable(uint32_t id) const { return findable_[id] != 0; }
  uint32_t find(std::string_view piece) const {  // kNone when there is none
    return find(piece, hash_bytes(piece.data(), piece.size()));
  }
  // The same in two steps, for many pieces at once: ask for the memory of all, then look.
  uint32_t find(std::string_view piece, uint64_t hash) const;
  void prefetch(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }

 private:
  struct Slot {
    uint32_t hash;
    uint32_t id;
  };
  void grow(size_t n_slots);
  uint32_t index(uint32_t id, uint64_t hash);

  std::vector<char> arena_;
  std::vector<uint64_t> offsets_{0};
  std::vector<uint8_t> findable_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t n_indexed_ = 0;
};

}  // namespace gristmill
