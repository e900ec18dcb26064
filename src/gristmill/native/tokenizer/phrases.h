// Added tokens: whole texts that become one id wherever they stand, before anything else looks at the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gristmill {

// How a phrase claims what surrounds it (the fields of an added token in tokenizer.json).
enum PhraseFlags : uint8_t {
  kSpecial = 1,     // found only when the caller asks for special tokens
  kLeftStrip = 2,   // swallows white space before it
  kRightStrip = 4,  // and after it
  kSingleWord = 8,  // not inside a word
  kAfterSpacing = 16,  // SentencePiece's user-defined symbols: found once spaces are put and marks replaced
};

struct Found {
  size_t start, end;  // bytes of the text that the phrase replaces
  uint32_t id;
};

class Phrases {
 public:
  void add(std::string_view text, uint32_t id, uint8_t flags);
  bool empty(bool with_special) const { return n_[with_special] == 0; }

  // The next phrase at or after byte `from`, leftmost first, longest of these. False when there is none.
  bool find(std::string_view text, size_t from, bool with_special, Found& found) const;

 private:
  struct Node {
    uint32_t first_child = 0, sibling = 0;  // 0 is no node: the root is nobody's child
    uint32_t id = 0xFFFFFFFFu;
    uint8_t byte = 0, flags = 0;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_{Node{}};
  size_t next_start(std::string_view text, size_t from, bool with_special) const;

  bool starts_[2][256] = {};  // [with_special]: bytes a phrase may begin with
  int n_starts_[2] = {0, 0};
  char some_start_[2] = {0, 0};
  uint32_t n_[2] = {0, 0};
};

}  // namespace gristmill
