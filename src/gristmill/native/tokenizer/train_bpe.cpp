#include "train_bpe.h"

#include <algorithm>
#include <stdexcept>

#include "unicode.h"

namespace gristmill {

namespace {

constexpr char kSpaceMark[] = "\xE2\x96\x81";
constexpr uint32_t kBreak = kNone;         // between words, and a character that no piece has
constexpr uint32_t kTail = 0x80000000u;    // the slot of a symbol's last character: this and how many it has
constexpr uint32_t kGone = kTail;          // a slot inside of a symbol
constexpr uint32_t kDead = 0xFFFFFFFFu;    // a place of the index that has no pair
constexpr size_t kMaxSlots = 0xFFFFFFF0u;

uint64_t pair_hash(uint32_t left, uint32_t right) {
  return fold_multiply((static_cast<uint64_t>(left) << 32 | right) ^ 0x9E3779B97F4A7C15ull, 0xD6E8FEB86659FD93ull);
}

// The first 8 bytes of two texts put together, as a number that sorts as the text does.
uint64_t start_of(const std::string& left, const std::string& right) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) {
    const size_t at = i - left.size();
    const unsigned char byte = i < left.size()     ? static_cast<unsigned char>(left[i])
                               : at < right.size() ? static_cast<unsigned char>(right[at])
                                                   : 0;
    value = value << 8 | byte;
  }
  return value;
}

void append_utf8(std::string& text, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

template <class Each>
void for_each_character(std::string_view text, const Each& each) {
  const char* end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    size_t length;
    each(decode_utf8(p, end, length));
    p += length;
  }
}

}  // namespace

void WordCounts::count_word(std::string_view word, int64_t n) {
  const uint64_t hash = hash_bytes(word.data(), word.size());
  const uint32_t known = words_.find(word, hash);
  if (known != kNone) {
    counts_[known] += n;
  } else {
    words_.add(word, true);
    counts_.push_back(n);
  }
}

void WordCounts::add_line(std::string_view line) {
  n_bytes_ += static_cast<int64_t>(line.size());
  // The end of the word that starts here: spaces, then all up to the next space.
  const auto word_end = [&](size_t at) {
    while (at < line.size() && line[at] == ' ') ++at;
    const size_t space = line.find(' ', at);
    return space == std::string_view::npos ? line.size() : space;
  };
  size_t at = word_end(0);
  first_.assign(1, ' ');
  first_.append(line.substr(0, at));
  count_word(first_, 1);
  while (at < line.size()) {
    const size_t end = word_end(at);
    count_word(line.substr(at, end - at), 1);
    at = end;
  }
}

void WordCounts::add(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) add_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void WordCounts::absorb(const WordCounts& other) {
  for (uint32_t i = 0; i < other.n_words(); ++i) count_word(other.word(i), other.count(i));
  n_bytes_ += other.n_bytes_;
}

std::unordered_map<uint32_t, int64_t> WordCounts::count_characters() const {
  std::unordered_map<uint32_t, int64_t> found;
  for (uint32_t i = 0; i < n_words(); ++i) {
    for_each_character(word(i), [&](uint32_t code_point) { found[code_point] += count(i); });
  }
  return found;
}

BpeTrainer::BpeTrainer(const WordCounts& words, const std::vector<PieceCharacter>& characters, uint32_t max_characters)
    : max_characters_(max_characters) {
  std::unordered_map<uint32_t, uint32_t> symbol_of;
  for (const PieceCharacter& c : characters) {
    Symbol symbol{{}, 1, c.script, c.script, c.code_point == ' ', c.code_point == ' ', c.stays_alone};
    if (symbol.is_space) {
      symbol.text = kSpaceMark;
      symbol.first_script = symbol.last_script = kAnyScript;
    } else {
      append_utf8(symbol.text, c.code_point);
    }
    symbol_of.emplace(c.code_point, static_cast<uint32_t>(symbols_.size()));
    symbols_.push_back(std::move(symbol));
  }
  lay_words(words, symbol_of);
  for (uint32_t place = 0; place + 1 < slots_.size(); ++place) {
    if (slots_[place] != kBreak && slots_[place + 1] != kBreak) {
      add_pair(slots_[place], slots_[place + 1], place, counts_[word_of_[place]]);
    }
  }
  for (const uint32_t pair : fresh_) push(pair);
  fresh_.clear();
}

void BpeTrainer::lay_words(const WordCounts& words, const std::unordered_map<uint32_t, uint32_t>& symbol_of) {
  slots_.push_back(kBreak);
  word_of_.push_back(0);
  for (uint32_t i = 0; i < words.n_words(); ++i) {
    const auto word = static_cast<uint32_t>(counts_.size());
    for_each_character(words.word(i), [&](uint32_t code_point) {
      const auto found = symbol_of.find(code_point);
      slots_.push_back(found == symbol_of.end() ? kBreak : found->second);
      word_of_.push_back(word);
    });
    slots_.push_back(kBreak);
    word_of_.push_back(word);
    counts_.push_back(words.count(i));
    if (slots_.size() > kMaxSlots) {
      throw std::invalid_argument("the text has words of over 2^32 characters in all: give a part of it");
    }
  }
}

// Spaces stand in front of a piece, or are all of it; scripts do not mix.
bool BpeTrainer::may_join(uint32_t left, uint32_t right) const {
  const Symbol& a = symbols_[left];
  const Symbol& b = symbols_[right];
  if (a.n_characters + b.n_characters > max_characters_ || a.stays_alone || b.stays_alone) return false;
  if (b.has_space && !(a.is_space && b.is_space)) return false;
  if (a.is_space && !b.is_space && a.n_characters > 1) return false;
  return a.last_script == kAnyScript || b.first_script == kAnyScript || a.last_script == b.first_script;
}

uint32_t BpeTrainer::find_pair(uint32_t left, uint32_t right) const {
  if (index_.empty()) return kDead;
  const size_t mask = index_.size() - 1;
  for (size_t at = pair_hash(left, right) & mask; index_[at] != kDead; at = (at + 1) & mask) {
    const Pair& pair = pairs_[index_[at]];
    if (pair.left == left && pair.right == right) return index_[at];
  }
  return kDead;
}

void BpeTrainer::grow_index() {
  index_.assign(std::max<size_t>(1024, index_.size() * 2), kDead);
  const size_t mask = index_.size() - 1;
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    size_t at = pair_hash(pairs_[i].left, pairs_[i].right) & mask;
    while (index_[at] != kDead) at = (at + 1) & mask;
    index_[at] = i;
  }
}

void BpeTrainer::add_pair(uint32_t left, uint32_t right, uint32_t place, int64_t count) {
  if (!may_join(left, right)) return;
  uint32_t pair = find_pair(left, right);
  if (pair == kDead) {
    pair = static_cast<uint32_t>(pairs_.size());
    pairs_.push_back({left, right, 0, {}});
    if (pairs_.size() * 2 > index_.size()) {
      grow_index();
    } else {
      const size_t mask = index_.size() - 1;
      size_t at = pair_hash(left, right) & mask;
      while (index_[at] != kDead) at = (at + 1) & mask;
      index_[at] = pair;
    }
    fresh_.push_back(pair);
  }
  pairs_[pair].count += count;
  pairs_[pair].places.push_back(place);
}

void BpeTrainer::remove_pair(uint32_t left, uint32_t right, int64_t count) {
  const uint32_t pair = find_pair(left, right);
  if (pair != kDead) pairs_[pair].count -= count;
}

bool BpeTrainer::is_worse(const Candidate& a, const Candidate& b) const {
  if (a.count != b.count) return a.count < b.count;
  if (a.n_characters != b.n_characters) return a.n_characters > b.n_characters;
  if (a.start != b.start) return a.start > b.start;
  const int order = text_of(a.pair).compare(text_of(b.pair));
  return order != 0 ? order > 0 : a.pair > b.pair;
}

void BpeTrainer::push(uint32_t pair) {
  const Pair& p = pairs_[pair];
  if (p.count <= 0) return;
  const Symbol& left = symbols_[p.left];
  const Symbol& right = symbols_[p.right];
  heap_.push_back({p.count, start_of(left.text, right.text), left.n_characters + right.n_characters, pair});
  std::push_heap(heap_.begin(), heap_.end(), [this](const Candidate& a, const Candidate& b) { return is_worse(a, b); });
}

void BpeTrainer::merge(uint32_t pair) {
  const uint32_t left = pairs_[pair].left, right = pairs_[pair].right;
  const auto whole = static_cast<uint32_t>(symbols_.size());
  {
    const Symbol &a = symbols_[left], &b = symbols_[right];
    symbols_.push_back({a.text + b.text, a.n_characters + b.n_characters,
                        a.first_script == kAnyScript ? b.first_script : a.first_script,
                        b.last_script == kAnyScript ? a.last_script : b.last_script, a.is_space && b.is_space,
                        a.has_space, false});
  }
  const uint32_t n_characters = symbols_[whole].n_characters;
  const std::vector<uint32_t> places = std::move(pairs_[pair].places);
  pairs_[pair].places = {};
  for (const uint32_t place : places) {
    if (slots_[place] != left) continue;
    const uint32_t second = next_of(place);
    if (slots_[second] != right) continue;
    const int64_t count = counts_[word_of_[place]];
    const uint32_t end = next_of(second);
    const uint32_t next = slots_[end];
    uint32_t before = place - 1;
    if (slots_[before] != kBreak && slots_[before] >= kTail) before -= slots_[before] - kTail - 1;
    const uint32_t previous = slots_[before];
    if (previous != kBreak) remove_pair(previous, left, count);
    if (next != kBreak) remove_pair(right, next, count);
    slots_[second] = kGone;
    slots_[place] = whole;
    slots_[end - 1] = kTail | n_characters;
    if (previous != kBreak) add_pair(previous, whole, before, count);
    if (next != kBreak) add_pair(whole, next, place, count);
  }
  pairs_[pair].count = 0;
  for (const uint32_t made : fresh_) push(made);
  fresh_.clear();
}

size_t BpeTrainer::add_pieces(size_t n) {
  const auto worse = [this](const Candidate& a, const Candidate& b) { return is_worse(a, b); };
  size_t n_added = 0;
  while (n_added < n && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), worse);
    const Candidate best = heap_.back();
    heap_.pop_back();
    const int64_t count = pairs_[best.pair].count;
    if (count != best.count) {
      push(best.pair);
      continue;
    }
    std::string text = text_of(best.pair);
    // Another way to the same text: two neighbours that make it are one piece when text is encoded.
    if (!known_.insert(text).second) continue;
    pieces_.push_back(std::move(text));
    merge(best.pair);
    ++n_added;
  }
  return n_added;
}

}  // namespace gristmill
