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

inline uint64_t read_word(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

// Fewer than 8 bytes as a number; of as many bytes, no others have it.
inline uint64_t read_short(const char* p, size_t size) {
  const auto byte = [p](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(p[i])); };
  if (size < 4) return size == 0 ? 0 : byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
  uint32_t first, last;
  std::memcpy(&first, p, 4);
  std::memcpy(&last, p + size - 4, 4);
  return first | static_cast<uint64_t>(last) << 32;
}

// Of 8 bytes and more the last word overlaps the one before it: no bytes are left over.
inline uint64_t hash_bytes(const char* data, size_t size) {
  uint64_t hash = 0x9E3779B97F4A7C15ull ^ size;
  if (size < 8) return fold_multiply(hash ^ read_short(data, size), 0xA0761D6478BD642Full);
  const char* last = data + size - 8;
  for (; data < last; data += 8) hash = fold_multiply(hash ^ read_word(data), 0xD6E8FEB86659FD93ull);
  return fold_multiply(hash ^ read_word(last), 0xA0761D6478BD642Full);
}

inline bool equal_bytes(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  if (a.size() < 8) return read_short(a.data(), a.size()) == read_short(b.data(), b.size());
  const size_t last = a.size() - 8;
  for (size_t i = 0; i < last; i += 8) {
    if (read_word(a.data() + i) != read_word(b.data() + i)) return false;
  }
  return read_word(a.data() + last) == read_word(b.data() + last);
}

class Vocab {
 public:
  // Appends a piece under the next id. Only a `findable` piece is found by its bytes; of equal ones, the first is. Throws
  // std::length_error where all pieces together have 2^32 bytes or there are 2^30 of them.
  uint32_t add(std::string_view piece, bool findable);
  // The same for many pieces at once: append each, then index all from the first of them on. Until then none is found.
  uint32_t append(std::string_view piece, bool findable);
  void index_from(uint32_t first);
  void reserve(size_t n_pieces, size_t n_bytes);
  void drop_index();  // from now on none is found, and none added

  uint32_t size() const { return static_cast<uint32_t>(offsets_.size() - 1); }
  std::string_view operator[](uint32_t id) const {
    return {arena_.data() + offsets_[id], offsets_[id + 1] - offsets_[id]};
  }
  // Whether `find` gives it, once it is indexed.
  bool findable(uint32_t id) const { return id < findable_.size() && findable_[id] != 0; }
  bool gives(uint32_t id, std::string_view piece) const {  // whether `find` would, without looking elsewhere
    return findable(id) && equal_bytes((*this)[id], piece);
  }
  uint32_t find(std::string_view piece) const {  // kNone when there is none
    return find(piece, hash_bytes(piece.data(), piece.size()));
  }
  // The same in two steps, for many pieces at once: ask for the memory of all, then look.
  uint32_t find(std::string_view piece, uint64_t hash) const;
  void prefetch(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }

 private:
  // A slot is an id and, in the bits that ids leave, some of its piece's hash.
  uint32_t slot_of(uint64_t hash, uint32_t id) const { return static_cast<uint32_t>(hash >> 32) << id_bits_ | id; }
  bool holds(uint32_t slot, uint64_t hash, std::string_view piece) const {
    return (slot ^ slot_of(hash, 0)) >> id_bits_ == 0 && equal_bytes((*this)[slot & ((1u << id_bits_) - 1)], piece);
  }
  void grow(size_t n_slots);
  uint32_t index(uint32_t id, uint64_t hash);  // the id that has the piece: of an equal one, where there is one

  std::vector<char> arena_;
  std::vector<uint32_t> offsets_{0};
  std::vector<uint8_t> findable_;
  std::vector<uint32_t> slots_;  // open addressing, a power of two, at most half full; kNone is no slot's value
  int id_bits_ = 0;
  size_t n_indexed_ = 0;
};

}  // namespace gristmill
