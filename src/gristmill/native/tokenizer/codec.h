// Text to ids and ids to bytes for one vocabulary. Knows bytes, pieces and merges; nothing of files or of Python.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "merge.h"
#include "phrases.h"
#include "vocab.h"
#include "word_cache.h"

namespace gristmill {

// How text falls into words that are merged on their own.
enum class Splitter { kNone, kGpt2, kLlama3, kQwen2, kO200k, kNeighbours };

struct CodecOptions {
  Splitter splitter = Splitter::kNone;
  bool initial_bytes = true;      // merging starts from bytes, else from characters with bytes as the last resort
  bool whole_word_first = false;  // a word that is a piece is that piece, whatever the merges say
  bool marks_spaces = false;      // SentencePiece: U+2581 in text is the same as a space, and pieces hold spaces
  bool space_first = false;       // a space is put before the text
  bool space_after_phrase = false;  // and before text that follows an added token
  bool space_unless_there = false;  // no space is put before text that starts with one
  uint32_t unknown = kNone;       // what stands for characters that have neither piece nor byte pieces
};

// Ids of one encode call. Grown by hand: the loop writes up to four ids ahead without looking.
class IdBuffer {
 public:
  void reserve_more(size_t n) {
    if (size_ + n + 4 > capacity_) grow(n);
  }
  void push(uint32_t id) {
    reserve_more(1);
    data_[size_++] = static_cast<int32_t>(id);
  }
  int32_t* end() { return data_.get() + size_; }
  void advance(size_t n) { size_ += n; }
  size_t size() const { return size_; }
  int32_t* data() { return data_.get(); }
  void resize_down(size_t size) { size_ = size; }
  int32_t* release() { return data_.release(); }

 private:
  void grow(size_t n);
  std::unique_ptr<int32_t[]> data_;
  size_t size_ = 0, capacity_ = 0;
};

// What one thread needs while it encodes.
struct Workspace {
  WordCache cache;
  MergeScratch merge;
  std::vector<uint32_t> symbols;
  std::vector<uint32_t> starts;  // of characters, in bytes
  std::vector<Token> tokens;

  void forget_long_words() {
    merge = MergeScratch();
    symbols = std::vector<uint32_t>();  // {} would keep its memory
    starts = std::vector<uint32_t>();
    tokens = std::vector<Token>();
  }
};

class Codec {
 public:
  Codec(Vocab vocab, PairTable pairs, uint32_t n_ids, const std::array<uint32_t, 256>& byte_ids, CodecOptions options);

  void add_phrase(std::string_view text, uint32_t id, uint8_t flags);

  uint32_t n_ids() const { return n_ids_; }
  std::string_view bytes_of(uint32_t id) const { return vocab_[id]; }
  uint32_t find(std::string_view piece) const;

  // Valid UTF-8 to ids. `at_start`: no added token stands before the text. Throws std::invalid_argument when a byte has
  // no id.
  void encode(std::string_view text, bool with_special, bool at_start, IdBuffer& out);
  // The same for text between added tokens that the caller has already split into words.
  void encode_words(const std::vector<std::string_view>& words, IdBuffer& out);
  // Added tokens of `text` in order.
  std::vector<Found> find_phrases(std::string_view text, bool with_special) const;

 private:
  class Lease;
  void encode_text(std::string_view text, bool space_first, Workspace& work, IdBuffer& out) const;
  void encode_spaced(std::string_view text, bool space_first, Workspace& work, IdBuffer& out) const;
  void encode_symbols(std::string_view text, Workspace& work, IdBuffer& out) const;
  void split_and_encode(std::string_view text, Workspace& work, IdBuffer& out) const;
  template <class Next>
  void encode_each(std::string_view text, const Next& next, Workspace& work, IdBuffer& out) const;
  __attribute__((noinline)) void encode_new_word(const char* p, size_t n, const char* readable_end, Workspace& work,
                                                 IdBuffer& out) const;
  void merge_word(std::string_view word, Workspace& work, IdBuffer& out) const;
  void find_symbols(std::string_view word, Workspace& work) const;
  void push_unmatched(std::string_view bytes, IdBuffer& out) const;
  void collapse_unknown(size_t from, IdBuffer& out) const;
  void index_neighbours();

  Vocab vocab_;
  PairTable pairs_;
  uint32_t n_ids_;
  std::array<uint32_t, 256> byte_ids_;
  CodecOptions options_;
  bool may_be_unknown_ = false;
  Phrases phrases_;
  Phrases symbols_;  // those with kAfterSpacing
  // [previous][this] for ASCII characters and 128 for the rest: may a piece hold the two side by side?
  std::vector<uint8_t> neighbours_;

  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace gristmill
