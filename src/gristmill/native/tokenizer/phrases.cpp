#include "phrases.h"

#include "unicode.h"

namespace gristmill {

namespace {

// \w: beside such a character kSingleWord does not hold.
bool is_word(const char* p, const char* end) {
  size_t length;
  return ClassTable::get()[decode_utf8(p, end, length)] & (kLetter | kMark | kWord);
}

bool is_space(const char* p, const char* end) {
  size_t length;
  return ClassTable::get()[decode_utf8(p, end, length)] & kSpace;
}

const char* previous(const char* p, const char* begin) {
  do --p;
  while (p > begin && is_continuation(*p));
  return p;
}

}  // namespace

uint32_t Phrases::child(uint32_t node, uint8_t byte) const {
  uint32_t at = nodes_[node].first_child;
  while (at != 0 && nodes_[at].byte != byte) at = nodes_[at].sibling;
  return at;
}

void Phrases::add(std::string_view text, uint32_t id, uint8_t flags) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      fresh.sibling = nodes_[node].first_child;
      nodes_.push_back(fresh);
      nodes_[node].first_child = next;
    }
    node = next;
  }
  if (nodes_[node].id != 0xFFFFFFFFu) return;
  nodes_[node].id = id;
  nodes_[node].flags = flags;
  for (int with_special = (flags & kSpecial) ? 1 : 0; with_special < 2; ++with_special) {
    bool& starts = starts_[with_special][static_cast<uint8_t>(text[0])];
    n_starts_[with_special] += !starts;
    starts = true;
    some_start_[with_special] = text[0];
    ++n_[with_special];
  }
}

// The first byte from `from` on that a phrase may begin with. Usually all begin with the same one.
size_t Phrases::next_start(std::string_view text, size_t from, bool with_special) const {
  if (n_starts_[with_special] == 1) {
    const size_t at = text.find(some_start_[with_special], from);
    return at == std::string_view::npos ? text.size() : at;
  }
  while (from < text.size() && !starts_[with_special][static_cast<uint8_t>(text[from])]) ++from;
  return from;
}

bool Phrases::find(std::string_view text, size_t from, bool with_special, Found& found) const {
  const char* end = text.data() + text.size();
  for (size_t at = next_start(text, from, with_special); at < text.size();
       at = next_start(text, at + 1, with_special)) {
    uint32_t match = 0;
    size_t match_end = at;
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) break;
      if (nodes_[node].id == 0xFFFFFFFFu || ((nodes_[node].flags & kSpecial) && !with_special)) continue;
      match = node;
      match_end = i + 1;
    }
    if (match == 0) continue;
    const uint8_t flags = nodes_[match].flags;
    const char* left = text.data() + at;
    const char* right = text.data() + match_end;
    if ((flags & kSingleWord) &&
        ((at > from && is_word(previous(left, text.data()), end)) || (right < end && is_word(right, end)))) {
      at = match_end - 1;
      continue;
    }
    if (flags & kLeftStrip) {
      while (left > text.data() + from && is_space(previous(left, text.data()), end)) left = previous(left, text.data());
    }
    if (flags & kRightStrip) {
      while (right < end && is_space(right, end)) right += utf8_length(static_cast<unsigned char>(*right));
    }
    found = {static_cast<size_t>(left - text.data()), static_cast<size_t>(right - text.data()), nodes_[match].id};
    return true;
  }
  return false;
}

}  // namespace gristmill
