// Where one pretoken ends: the published patterns of byte-level vocabularies as hand-written state machines.
// Each `next(p, end)` gives the end of the pretoken that starts at p < end, as a leftmost-first regex would.
#pragma once

#include "ascii.h"
#include "unicode.h"

namespace gristmill {

class PreTokenizer {
 public:
  PreTokenizer() : classes_(ClassTable::get()) {}

 protected:
  struct Char {
    uint8_t char_class;
    size_t length;
  };

  GRISTMILL_INLINE Char at(const char* p, const char* end) const {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80) return {classes_.ascii(byte), 1};
    return beyond_ascii(p, end);
  }

  __attribute__((noinline)) Char beyond_ascii(const char* p, const char* end) const {
    size_t length;
    const uint32_t code_point = decode_utf8(p, end, length);
    return {classes_[code_point], length};
  }

  static bool is_newline(char c) { return c == '\r' || c == '\n'; }
  static bool is_other(uint8_t char_class) { return (char_class & (kLetter | kNumber | kSpace)) == 0; }

  // First character from p on that is no letter.
  GRISTMILL_INLINE const char* skip_letters(const char* p, const char* end) const {
    for (;;) {
      p = skip_ascii_letters(p, end);
      if (p == end || static_cast<unsigned char>(*p) < 0x80) return p;
      const Char c = beyond_ascii(p, end);
      if (!(c.char_class & kLetter)) return p;
      p += c.length;
    }
  }

  // First character from p on whose class is outside `wanted`.
  const char* skip(const char* p, const char* end, uint8_t wanted) const {
    while (p < end) {
      const Char c = at(p, end);
      if (!(c.char_class & wanted)) break;
      p += c.length;
    }
    return p;
  }

  const char* skip_other(const char* p, const char* end) const {
    while (p < end) {
      const Char c = at(p, end);
      if (!is_other(c.char_class)) break;
      p += c.length;
    }
    return p;
  }

  // \p{N}{1,limit}, given that the character at p is a number.
  const char* skip_numbers(const char* p, const char* end, int limit) const {
    for (int n = 0; n < limit && p < end; ++n) {
      const Char c = at(p, end);
      if (!(c.char_class & kNumber)) break;
      p += c.length;
    }
    return p;
  }

  // 's|'t|'re|'ve|'m|'ll|'d at p; 0 when there is none. Ignoring case, U+017F (long s) is an s as well.
  template <bool kIgnoreCase>
  static size_t contraction(const char* p, const char* end) {
    if (end - p < 2 || *p != '\'') return 0;
    const auto lower = [](char c) { return kIgnoreCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
    const char a = lower(p[1]);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (end - p < 3) return 0;
    const char b = lower(p[2]);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    if (kIgnoreCase && a == '\xC5' && b == '\xBF') return 3;
    return 0;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+ with kNewlines, else \s+(?!\S)|\s+; p is at a space.
  template <bool kNewlines>
  const char* skip_space(const char* p, const char* end) const {
    const char* start = p;
    const char* after_newline = nullptr;
    const char* last = p;
    while (p < end) {
      const Char c = at(p, end);
      if (!(c.char_class & kSpace)) break;
      last = p;
      p += c.length;
      if (kNewlines && is_newline(*last)) after_newline = p;
    }
    if (after_newline != nullptr) return after_newline;
    return p == end || last == start ? p : last;
  }

  const ClassTable& classes_;
};

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Gpt2 : public PreTokenizer {
 public:
  GRISTMILL_INLINE const char* next(const char* p, const char* end) const {
    if (const size_t n = contraction<false>(p, end)) return p + n;
    const char* q = p + (*p == ' ' && p + 1 < end);
    const Char c = at(q, end);
    if (c.char_class & kLetter) return skip_letters(q + c.length, end);
    if (c.char_class & kNumber) return skip(q + c.length, end, kNumber);
    if (is_other(c.char_class)) return skip_other(q + c.length, end);
    return skip_space<false>(p, end);
  }
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// with kDigits = 3 (Llama 3); Qwen2 has \p{N} there, kDigits = 1.
template <int kDigits>
class Cl100k : public PreTokenizer {
 public:
  GRISTMILL_INLINE const char* next(const char* p, const char* end) const {
    if (const size_t n = contraction<true>(p, end)) return p + n;
    const Char c = at(p, end);
    const char* q = p + c.length;
    if (c.char_class & kLetter) return skip_letters(q, end);
    if (c.char_class & kNumber) return skip_numbers(p, end, kDigits);
    if (q < end && !is_newline(*p)) {
      const Char d = at(q, end);
      if (d.char_class & kLetter) return skip_letters(q + d.length, end);
      if (*p == ' ' && is_other(d.char_class)) return skip_newlines(skip_other(q + d.length, end), end);
    }
    if (is_other(c.char_class)) return skip_newlines(skip_other(q, end), end);
    return skip_space<true>(p, end);
  }

 private:
  static const char* skip_newlines(const char* p, const char* end) {
    while (p < end && is_newline(*p)) ++p;
    return p;
  }
};

// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
// \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
class O200k : public PreTokenizer {
 public:
  GRISTMILL_INLINE const char* next(const char* p, const char* end) const {
    const Char c = at(p, end);
    if (const char* word = word_end(p, end, c)) return word + contraction<true>(word, end);
    if (c.char_class & kNumber) return skip_numbers(p, end, 3);
    const char* q = p + (*p == ' ' && p + 1 < end);
    const Char d = at(q, end);
    if (is_other(d.char_class)) {
      q = skip_other(q + d.length, end);
      while (q < end && (is_newline(*q) || *q == '/')) ++q;
      return q;
    }
    return skip_space<true>(p, end);
  }

 private:
  static constexpr uint8_t kHead = kUpper | kCaseless | kMark;  // the first class of a word
  static constexpr uint8_t kTail = kLower | kCaseless | kMark;  // the second

  // End of the two word patterns without contraction, nullptr when neither matches. The first pattern is tried with and
  // then without its optional lead character before the second is.
  const char* word_end(const char* p, const char* end, Char c) const {
    const char* all_heads = nullptr;
    if (!(c.char_class & (kLetter | kNumber)) && !is_newline(*p)) {
      if (const char* word = heads_then_tails(p + c.length, end, &all_heads)) return word;
      if (!(c.char_class & kMark)) return all_heads;
      const char* unused;
      return heads_then_tails(p, end, &unused);  // a mark is a tail, so this matches
    }
    if (!(c.char_class & kLetter)) return nullptr;
    if (const char* word = heads_then_tails(p, end, &all_heads)) return word;
    return all_heads;
  }

  // [head]*[tail]+ with backtracking; nullptr when no tail is there. Then *all_heads is the end of [head]+, or nullptr.
  const char* heads_then_tails(const char* p, const char* end, const char** all_heads) const {
    const char* start = p;
    const char* last_tail = nullptr;  // end of the last character that is head and tail
    while (p < end) {
      const Char c = at(p, end);
      if (!(c.char_class & kHead)) {
        if (c.char_class & kTail) return skip(p + c.length, end, kTail);
        break;
      }
      p += c.length;
      if (c.char_class & kTail) last_tail = p;
    }
    *all_heads = p > start ? p : nullptr;
    return last_tail;
  }
};

}  // namespace gristmill
