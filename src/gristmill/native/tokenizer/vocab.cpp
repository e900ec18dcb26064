#include "vocab.h"

#include <algorithm>
#include <stdexcept>

namespace gristmill {

static constexpr size_t kMostSlots = size_t{1} << 31;

void Vocab::reserve(size_t n_pieces, size_t n_bytes) {
  arena_.reserve(n_bytes);
  offsets_.reserve(n_pieces + 1);
  findable_.reserve(n_pieces);
  size_t n_slots = 64;
  while (n_slots < n_pieces * 2) n_slots *= 2;
  grow(n_slots);
}

// Ids below n_slots have room in a slot then.
void Vocab::grow(size_t n_slots) {
  if (n_slots <= slots_.size()) return;
  if (n_slots > kMostSlots) throw std::length_error("a vocabulary of 2^30 pieces or more");
  std::vector<uint32_t> old(n_slots, kNone);
  old.swap(slots_);
  const uint32_t old_ids = (1u << id_bits_) - 1;
  id_bits_ = __builtin_ctzll(n_slots);
  const size_t mask = slots_.size() - 1;
  for (const uint32_t slot : old) {
    if (slot == kNone) continue;
    const uint32_t id = slot & old_ids;
    const std::string_view piece = (*this)[id];
    const uint64_t hash = hash_bytes(piece.data(), piece.size());
    size_t at = hash & mask;
    while (slots_[at] != kNone) at = (at + 1) & mask;
    slots_[at] = slot_of(hash, id);
  }
}

void Vocab::drop_index() {
  findable_ = std::vector<uint8_t>();  // {} would keep its memory
  slots_ = std::vector<uint32_t>();
  n_indexed_ = 0;
}

uint32_t Vocab::append(std::string_view piece, bool findable) {
  const uint32_t id = size();
  if (piece.size() > UINT32_MAX - arena_.size()) throw std::length_error("a vocabulary of 4 GiB or more");
  arena_.insert(arena_.end(), piece.begin(), piece.end());
  offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  findable_.push_back(findable);
  return id;
}

uint32_t Vocab::add(std::string_view piece, bool findable) {
  const uint32_t id = append(piece, findable);
  return findable ? index(id, hash_bytes(piece.data(), piece.size())) : id;
}

void Vocab::index_from(uint32_t first) {
  // Memory is what this waits for, so it is asked for some pieces ahead.
  constexpr uint32_t kBatch = 16;
  uint64_t hashes[kBatch];
  for (; first < size(); first += kBatch) {
    const uint32_t n = std::min(kBatch, size() - first);
    for (uint32_t i = 0; i < n; ++i) {
      const std::string_view piece = (*this)[first + i];
      hashes[i] = hash_bytes(piece.data(), piece.size());
      prefetch(hashes[i]);
    }
    for (uint32_t i = 0; i < n; ++i) {
      if (findable(first + i)) index(first + i, hashes[i]);
    }
  }
}

uint32_t Vocab::index(uint32_t id, uint64_t hash) {
  while ((n_indexed_ + 1) * 2 > slots_.size() || id + 1 >= slots_.size()) grow(slots_.empty() ? 64 : slots_.size() * 2);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at] != kNone; at = (at + 1) & mask) {
    if (holds(slots_[at], hash, (*this)[id])) {
      findable_[id] = false;
      return slots_[at] & ((1u << id_bits_) - 1);
    }
  }
  slots_[at] = slot_of(hash, id);
  ++n_indexed_;
  return id;
}

uint32_t Vocab::find(std::string_view piece, uint64_t hash) const {
  if (slots_.empty()) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at] != kNone; at = (at + 1) & mask) {
    if (holds(slots_[at], hash, piece)) return slots_[at] & ((1u << id_bits_) - 1);
  }
  return kNone;
}

}  // namespace gristmill
