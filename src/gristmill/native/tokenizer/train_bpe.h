// Trains a BPE vocabulary as SentencePiece does: words and how often each occurs, then the most frequent pair of
// neighbours again and again. Knows no file and no Python. Trainer: github.com/google/sentencepiece.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "vocab.h"

namespace gristmill {

// Words of lines and their counts. A line starts with a space that is put there, a word with all spaces before it.
class WordCounts {
 public:
  // Valid UTF-8.
  void add(std::string_view text);
  void absorb(const WordCounts& other);

  uint32_t n_words() const { return words_.size(); }
  std::string_view word(uint32_t i) const { return words_[i]; }
  int64_t count(uint32_t i) const { return counts_[i]; }
  // Of all lines, without what separates them.
  int64_t n_bytes() const { return n_bytes_; }
  std::unordered_map<uint32_t, int64_t> count_characters() const;

 private:
  void add_line(std::string_view line);
  void count_word(std::string_view word, int64_t n);

  Vocab words_;
  std::vector<int64_t> counts_;
  std::string first_;
  int64_t n_bytes_ = 0;
};

// A character that pieces may be made of.
struct PieceCharacter {
  uint32_t code_point;
  int16_t script;   // pieces hold one script; kAnyScript goes with each
  bool stays_alone;  // a digit, where those are split
};
constexpr int16_t kAnyScript = -1;

// Merges one at a time. Of pairs of one frequency the shorter one is merged first, then the lower in code points.
class BpeTrainer {
 public:
  // max_characters: of a piece. Characters that are not named break words.
  BpeTrainer(const WordCounts& words, const std::vector<PieceCharacter>& characters, uint32_t max_characters);

  // Up to n further pieces; fewer only when there are no more.
  size_t add_pieces(size_t n);
  // UTF-8 with U+2581 for spaces, in the order of merging.
  const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  struct Symbol {
    std::string text;
    uint32_t n_characters;
    int16_t first_script, last_script;
    bool is_space;    // nothing but spaces
    bool has_space;   // one in front
    bool stays_alone;
  };
  struct Pair {
    uint32_t left, right;
    int64_t count;
    std::vector<uint32_t> places;  // where it has been, in order; some may be gone
  };
  struct Candidate {
    int64_t count;
    uint64_t start;  // of its text, as a number that sorts alike
    uint32_t n_characters;
    uint32_t pair;
  };

  void lay_words(const WordCounts& words, const std::unordered_map<uint32_t, uint32_t>& symbol_of);
  bool may_join(uint32_t left, uint32_t right) const;
  uint32_t find_pair(uint32_t left, uint32_t right) const;
  void add_pair(uint32_t left, uint32_t right, uint32_t place, int64_t count);
  void remove_pair(uint32_t left, uint32_t right, int64_t count);
  void grow_index();
  void merge(uint32_t pair);
  uint32_t next_of(uint32_t place) const { return place + symbols_[slots_[place]].n_characters; }
  void push(uint32_t pair);
  std::string text_of(uint32_t pair) const { return symbols_[pairs_[pair].left].text + symbols_[pairs_[pair].right].text; }
  bool is_worse(const Candidate& a, const Candidate& b) const;

  uint32_t max_characters_;
  std::vector<Symbol> symbols_;
  // A slot for each character of each word, and one between words. A symbol stands in the slot of its first character;
  // the slot of its last one says how long it is.
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> word_of_;  // by slot
  std::vector<int64_t> counts_;    // by word
  std::vector<Pair> pairs_;
  std::vector<uint32_t> index_;  // of pairs, open addressing, a power of two, at most half full
  std::vector<Candidate> heap_;
  std::vector<uint32_t> fresh_;  // pairs that the present merge made
  std::unordered_set<std::string> known_;
  std::vector<std::string> pieces_;
};

}  // namespace gristmill
