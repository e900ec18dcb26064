#include "codec.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "pretokenize.h"

namespace gristmill {

namespace {

constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxIdle = 4;                 // workspaces kept for later calls
constexpr size_t kMaxKept = size_t{1} << 16;   // symbols of the longest word that they keep memory for

// `text` behind `before`, with U+2581 as spaces.
std::string replace_marks(std::string_view text, std::string_view before = {}) {
  std::string plain;
  plain.reserve(before.size() + text.size());
  plain.append(before);
  size_t from = 0;
  for (size_t mark = text.find(kSpaceMark); mark != std::string_view::npos; mark = text.find(kSpaceMark, from)) {
    plain.append(text, from, mark - from);
    plain.push_back(' ');
    from = mark + sizeof kSpaceMark - 1;
  }
  plain.append(text, from, std::string_view::npos);
  return plain;
}

}  // namespace

// A workspace borrowed for one call, so that threads never share one.
class Codec::Lease {
 public:
  explicit Lease(Codec& codec) : codec_(codec) {
    {
      const std::lock_guard<std::mutex> lock(codec.idle_mutex_);
      if (!codec.idle_.empty()) {
        work_ = std::move(codec.idle_.back());
        codec.idle_.pop_back();
      }
    }
    if (!work_) work_ = std::make_unique<Workspace>();
  }
  ~Lease() {
    if (work_->symbols.capacity() > kMaxKept) work_->forget_long_words();
    const std::lock_guard<std::mutex> lock(codec_.idle_mutex_);
    if (codec_.idle_.size() < kMaxIdle) codec_.idle_.push_back(std::move(work_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() { return *work_; }

 private:
  Codec& codec_;
  std::unique_ptr<Workspace> work_;
};

void IdBuffer::grow(size_t n) {
  capacity_ = std::max(size_ + n + 4, capacity_ * 2);
  std::unique_ptr<int32_t[]> larger(new int32_t[capacity_]);
  if (size_ > 0) std::memcpy(larger.get(), data_.get(), size_ * sizeof(int32_t));
  data_ = std::move(larger);
}

Codec::Codec(Vocab vocab, PairTable pairs, uint32_t n_ids, const std::array<uint32_t, 256>& byte_ids,
             CodecOptions options)
    : vocab_(std::move(vocab)), pairs_(std::move(pairs)), n_ids_(n_ids), byte_ids_(byte_ids), options_(options) {
  idle_.reserve(kMaxIdle);
  may_be_unknown_ = !options_.initial_bytes && options_.unknown != kNone &&
                    std::find(byte_ids_.begin(), byte_ids_.end(), kNone) != byte_ids_.end();
  if (options_.splitter == Splitter::kNeighbours) index_neighbours();
  if (options_.initial_bytes && !options_.whole_word_first) vocab_.drop_index();  // merging needs none
}

void Codec::add_phrase(std::string_view text, uint32_t id, uint8_t flags) {
  if (flags & kAfterSpacing) {
    symbols_.add(replace_marks(text), id, 0);
  } else {
    phrases_.add(text, id, flags);
  }
}

uint32_t Codec::find(std::string_view piece) const {
  const uint32_t id = vocab_.find(piece);
  return id < n_ids_ ? id : kNone;
}

// Two characters that no piece holds side by side are never joined, so text may be cut between them.
void Codec::index_neighbours() {
  neighbours_.assign(129 * 129, 0);
  const auto group = [](char c) { return static_cast<unsigned char>(c) < 0x80 ? static_cast<size_t>(c) : size_t{128}; };
  for (uint32_t id = 0; id < vocab_.size(); ++id) {
    if (!vocab_.findable(id)) continue;
    const std::string_view piece = vocab_[id];
    for (size_t i = 1; i < piece.size(); ++i) {
      if (!is_continuation(piece[i])) neighbours_[group(piece[i - 1]) * 129 + group(piece[i])] = 1;
    }
  }
}

void Codec::push_unmatched(std::string_view bytes, IdBuffer& out) const {
  for (const char c : bytes) {
    const uint32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNone) {
      out.push(id);
    } else if (options_.unknown != kNone) {
      out.push(options_.unknown);
    } else {
      char message[80];
      std::snprintf(message, sizeof message, "the vocabulary has no token for byte 0x%02X",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      throw std::invalid_argument(message);
    }
  }
}

void Codec::merge_word(std::string_view word, Workspace& work, IdBuffer& out) const {
  if (options_.whole_word_first) {
    const uint32_t id = find(word);
    if (id != kNone) return out.push(id);
  }
  if (word.size() >= kNone) throw std::invalid_argument("a text of 4 GiB without a break is too long to tokenize");
  find_symbols(word, work);
  work.tokens.clear();
  merge_symbols(pairs_, work.symbols.data(), static_cast<uint32_t>(work.symbols.size()), work.merge, work.tokens);
  out.reserve_more(work.tokens.size());
  const auto start_of = [&](size_t symbol) -> size_t {
    return options_.initial_bytes ? symbol : symbol < work.starts.size() ? work.starts[symbol] : word.size();
  };
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    const Token& token = work.tokens[i];
    if (token.id < n_ids_) {
      out.push(token.id);
      continue;
    }
    const size_t from = start_of(token.start);
    const size_t next = i + 1 < work.tokens.size() ? work.tokens[i + 1].start : work.symbols.size();
    push_unmatched(word.substr(from, start_of(next) - from), out);
  }
}

// What merging starts from: bytes, or characters and where each starts.
void Codec::find_symbols(std::string_view word, Workspace& work) const {
  work.symbols.clear();
  work.starts.clear();
  if (options_.initial_bytes) {
    for (const char c : word) work.symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  for (size_t i = 0; i < word.size();) {
    const size_t length = std::min(utf8_length(static_cast<unsigned char>(word[i])), word.size() - i);
    work.starts.push_back(static_cast<uint32_t>(i));
    work.symbols.push_back(vocab_.find(word.substr(i, length)));
    i += length;
  }
}

void Codec::encode_new_word(const char* p, size_t n, const char* readable_end, Workspace& work, IdBuffer& out) const {
  const size_t n_before = out.size();
  merge_word({p, n}, work, out);
  const size_t n_ids = out.size() - n_before;
  if (n > WordCache::kMaxBytes || n_ids == 0 || n_ids > WordCache::kMaxIds) return;
  work.cache.insert(WordCache::make_key(p, n, readable_end), out.data() + n_before, n_ids);
}

// Words are found some at a time, so that the cache's memory is on its way before the first is looked up.
template <class Next>
void Codec::encode_each(std::string_view text, const Next& next, Workspace& work, IdBuffer& out) const {
  struct Word {
    const char* start;
    size_t size, place;
    WordCache::Key key;
  };
  constexpr size_t kBatch = 32;
  Word words[kBatch];
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    size_t n_words = 0;
    for (; n_words < kBatch && p < end; ++n_words) {
      Word& word = words[n_words];
      const char* word_end = next(p, end);
      word.start = p;
      word.size = static_cast<size_t>(word_end - p);
      p = word_end;
      if (word.size > WordCache::kMaxBytes) continue;
      word.key = WordCache::make_key(word.start, word.size, end);
      word.place = WordCache::place(word.key);
      work.cache.prefetch(word.place);
    }
    for (size_t i = 0; i < n_words; ++i) {
      const Word& word = words[i];
      const WordCache::Entry* entry =
          word.size <= WordCache::kMaxBytes ? work.cache.find(word.key, word.place) : nullptr;
      if (entry == nullptr) {
        encode_new_word(word.start, word.size, end, work, out);
        continue;
      }
      out.reserve_more(WordCache::kMaxIds);
      std::memcpy(out.end(), entry->ids, sizeof entry->ids);
      out.advance(entry->n_ids());
    }
  }
}

void Codec::split_and_encode(std::string_view text, Workspace& work, IdBuffer& out) const {
  const auto with = [&](const auto& rules) {
    encode_each(text, [&](const char* p, const char* end) { return rules.next(p, end); }, work, out);
  };
  switch (options_.splitter) {
    case Splitter::kGpt2: return with(Gpt2());
    case Splitter::kLlama3: return with(Cl100k<3>());
    case Splitter::kQwen2: return with(Cl100k<1>());
    case Splitter::kO200k: return with(O200k());
    case Splitter::kNone:
      return encode_each(text, [](const char*, const char* end) { return end; }, work, out);
    case Splitter::kNeighbours: break;
  }
  const auto group = [](char c) { return static_cast<unsigned char>(c) < 0x80 ? static_cast<size_t>(c) : size_t{128}; };
  const auto next_cut = [&](const char* p, const char* end) {
    size_t before = group(*p);
    for (++p; p < end; ++p) {
      const size_t here = group(*p);
      if (!neighbours_[before * 129 + here] && !is_continuation(*p)) break;
      before = here;
    }
    return p;
  };
  encode_each(text, next_cut, work, out);
}

void Codec::encode_text(std::string_view text, bool space_first, Workspace& work, IdBuffer& out) const {
  if (text.empty()) return;
  const size_t from = out.size();
  encode_spaced(text, space_first, work, out);
  if (may_be_unknown_) collapse_unknown(from, out);
}

void Codec::encode_spaced(std::string_view text, bool space_first, Workspace& work, IdBuffer& out) const {
  const bool has_marks = options_.marks_spaces && text.find(kSpaceMark) != std::string_view::npos;
  if (options_.space_unless_there && (text[0] == ' ' || text.rfind(kSpaceMark, 0) == 0)) space_first = false;
  if (!space_first && !has_marks) return encode_symbols(text, work, out);
  encode_symbols(replace_marks(text, space_first ? " " : ""), work, out);
}

void Codec::encode_symbols(std::string_view text, Workspace& work, IdBuffer& out) const {
  size_t from = 0;
  Found found;
  while (!symbols_.empty(false) && symbols_.find(text, from, false, found)) {
    split_and_encode(text.substr(from, found.start - from), work, out);
    out.push(found.id);
    from = found.end;
  }
  split_and_encode(text.substr(from), work, out);
}

// SentencePiece reports neighbouring unknown characters of a text as one unknown token.
void Codec::collapse_unknown(size_t from, IdBuffer& out) const {
  const auto unknown = static_cast<int32_t>(options_.unknown);
  int32_t* data = out.data();
  size_t n = from;
  for (size_t i = from; i < out.size(); ++i) {
    if (data[i] == unknown && n > from && data[n - 1] == unknown) continue;
    data[n++] = data[i];
  }
  out.resize_down(n);
}

void Codec::encode(std::string_view text, bool with_special, bool at_start, IdBuffer& out) {
  Lease work(*this);
  out.reserve_more(text.size() / 4 + 8);
  size_t from = 0;
  bool space = at_start ? options_.space_first : options_.space_after_phrase;
  Found found;
  while (!phrases_.empty(with_special) && phrases_.find(text, from, with_special, found)) {
    if (found.start > from) encode_text(text.substr(from, found.start - from), space, *work, out);
    out.push(found.id);
    from = found.end;
    space = options_.space_after_phrase;
  }
  encode_text(text.substr(from), space, *work, out);
}

void Codec::encode_words(const std::vector<std::string_view>& words, IdBuffer& out) {
  Lease work(*this);
  for (const std::string_view word : words) {
    encode_each(word, [](const char*, const char* end) { return end; }, *work, out);
  }
}

std::vector<Found> Codec::find_phrases(std::string_view text, bool with_special) const {
  std::vector<Found> all;
  Found found;
  size_t from = 0;
  while (!phrases_.empty(with_special) && phrases_.find(text, from, with_special, found)) {
    all.push_back(found);
    from = found.end;
  }
  return all;
}

}  // namespace gristmill
