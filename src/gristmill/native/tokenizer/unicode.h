// UTF-8 and the character classes that pre-tokenizers ask for. Text is valid UTF-8: it came from a Python str.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

// General categories, grouped as the published patterns group them; with the last, what else \w takes.
enum CharClass : uint8_t {
  kUpper = 1,        // Lu, Lt
  kLower = 2,        // Ll
  kCaseless = 4,     // Lm, Lo
  kMark = 8,         // M
  kNumber = 16,      // N
  kSpace = 32,       // White_Space
  kWord = 64,        // Nd, Nl, Pc, Join_Control, the rest of Alphabetic; letters and marks go without saying
  kLetter = kUpper | kLower | kCaseless,
};

// The loops over text depend on these being inlined, which compilers judge too dear.
#define GRISTMILL_INLINE inline __attribute__((always_inline))

// Class of every code point, expanded once from unicode_tables.h.
class ClassTable {
 public:
  static const ClassTable& get();
  uint8_t ascii(unsigned char c) const { return ascii_[c]; }
  uint8_t operator[](uint32_t code_point) const {
    return code_point < 0x110000 ? blocks_[index_[code_point >> 8]][code_point & 0xFF] : 0;
  }

 private:
  ClassTable();
  uint8_t ascii_[128];
  uint16_t index_[0x1100];
  uint8_t blocks_[512][256];
};

constexpr size_t utf8_length(unsigned char lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The code point at `p` and its length in bytes; never reads at or past `end`.
inline uint32_t decode_utf8(const char* p, const char* end, size_t& length) {
  const auto* u = reinterpret_cast<const unsigned char*>(p);
  length = utf8_length(u[0]);
  if (static_cast<size_t>(end - p) < length) length = static_cast<size_t>(end - p);
  switch (length) {
    case 1: return u[0];
    case 2: return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    case 3: return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    default: return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
  }
}

}  // namespace gristmill
