#include "vocab.h"

#include <algorithm>

namespace gristmill {

void Vocab::reserve(size_t n_pieces, size_t n_bytes) {
  arena_.reserve(n_bytes);
  offsets_.reserve(n_pieces + 1);
  findable_.reserve(n_pieces);
  size_t n_slots = 64;
  while (n_slots < n_pieces * 2) n_slots *= 2;
  grow(n_slots);
}

void Vocab::grow(size_t n_slots) {
  if (n_slots <= slots_.size()) return;
  std::vector<Slot> old(n_slots, Slot{0, kNone});
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == kNone) continue;
    const std::string_view piece = (*this)[slot.id];
    size_t at = hash_bytes(piece.data(), piece.size()) & mask;
    while (slots_[at].id != kNone) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

uint32_t Vocab::append(std::string_view piece, bool findable) {
  const uint32_t id = size();
  arena_.insert(arena_.end(), piece.begin(), piece.end());
  offsets_.push_back(arena_.size());
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
  if ((n_indexed_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 64 : slots_.size() * 2);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id != kNone) {
    if (slots_[at].hash == static_cast<uint32_t>(hash >> 32) && (*this)[slots_[at].id] == (*this)[id]) {
      return slots_[at].id;
    }
    at = (at + 1) & mask;
  }
  slots_[at] = Slot{static_cast<uint32_t>(hash >> 32), id};
  ++n_indexed_;
  return id;
}

uint32_t Vocab::find(std::string_view piece, uint64_t hash) const {
  if (slots_.empty()) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].id != kNone; at = (at + 1) & mask) {
    if (slots_[at].hash == static_cast<uint32_t>(hash >> 32) && (*this)[slots_[at].id] == piece) return slots_[at].id;
  }
  return kNone;
}

}  // namespace gristmill
