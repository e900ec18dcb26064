#include "build.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "unicode.h"

namespace gristmill {

namespace {

// Longest piece that takes part in merging; the longest of known vocabularies has 256 bytes. Bounds the work of a load.
constexpr size_t kMaxPieceBytes = 4096;
// Where all ways to cut a piece are looked at; SentencePiece's own limit is 16 characters unless told otherwise.
constexpr size_t kMaxCutPieceBytes = 1024;

[[noreturn]] void fail(const char* what, size_t index, const std::string& why) {
  throw std::invalid_argument(std::string(what) + " " + std::to_string(index) + " " + why);
}

// GPT-2's printable alphabet: bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves as code points, the 68
// others are U+0100 onwards in order.
class PrintableBytes {
 public:
  PrintableBytes() {
    std::fill(byte_of_, byte_of_ + kEnd, int16_t{-1});
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      byte_of_[printable ? byte : next++] = static_cast<int16_t>(byte);
    }
  }

  // Appends the bytes of `text`. False when it holds a character outside the alphabet: then it is itself what is appended.
  bool decode(std::string_view text, std::string& bytes) const {
    const size_t before = bytes.size();
    bytes.resize(before + text.size());
    char* to = bytes.data() + before;
    const char* end = text.data() + text.size();
    for (const char* p = text.data(); p < end;) {
      if (*p >= 0x21 && *p <= 0x7E) {
        *to++ = *p++;
        continue;
      }
      size_t length;
      const uint32_t code_point = decode_utf8(p, end, length);
      if (code_point >= kEnd || byte_of_[code_point] < 0) {
        bytes.replace(before, bytes.npos, text);
        return false;
      }
      *to++ = static_cast<char>(byte_of_[code_point]);
      p += length;
    }
    bytes.resize(static_cast<size_t>(to - bytes.data()));
    return true;
  }

 private:
  static constexpr uint32_t kEnd = 0x144;
  int16_t byte_of_[kEnd];
};

// Appends SentencePiece's spelling of spaces. False when the text holds a real space, which no text can then match.
bool unmark_spaces(std::string_view text, std::string& plain) {
  bool reachable = true;
  for (size_t i = 0; i < text.size();) {
    if (text.compare(i, 3, "\xE2\x96\x81") == 0) {
      plain.push_back(' ');
      i += 3;
    } else {
      reachable = reachable && text[i] != ' ';
      plain.push_back(text[i++]);
    }
  }
  return reachable;
}

uint8_t parse_byte_piece(std::string_view text, size_t index) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.size() == 6 && text.substr(0, 3) == "<0x" && text[5] == '>') {
    const int high = digit(text[3]), low = digit(text[4]);
    if (high >= 0 && low >= 0) return static_cast<uint8_t>(high * 16 + low);
  }
  fail("token", index, "is of the type byte, but its text is not <0x00> to <0xFF>");
}

void check_counts(const Pieces& pieces) {
  if (pieces.texts.empty()) throw std::invalid_argument("the vocabulary is empty");
  if (pieces.texts.size() >= 0x7FFFFFFF) throw std::invalid_argument("the vocabulary has 2^31 tokens or more");
  if (pieces.kinds.size() != pieces.texts.size()) {
    throw std::invalid_argument("the vocabulary has " + std::to_string(pieces.texts.size()) + " tokens, but " +
                                std::to_string(pieces.kinds.size()) + " token types");
  }
}

struct Base {
  Vocab vocab;
  std::array<uint32_t, 256> byte_ids;
};

// The vocabulary with the bytes each id decodes to. `spell` appends a text's bytes; false when no text can match it.
template <class Spell>
Base make_vocab(const Pieces& pieces, const Spell& spell) {
  check_counts(pieces);
  Base base;
  base.byte_ids.fill(kNone);
  size_t n_bytes = 0;
  for (const std::string_view text : pieces.texts) n_bytes += text.size();
  base.vocab.reserve(pieces.texts.size(), n_bytes);
  std::string bytes;
  for (size_t i = 0; i < pieces.texts.size(); ++i) {
    const std::string_view text = pieces.texts[i];
    switch (pieces.kinds[i]) {
      case PieceKind::kText: {
        bytes.clear();
        const bool reachable = spell(text, bytes) && !bytes.empty();
        if (reachable && bytes.size() > kMaxPieceBytes) {
          fail("token", i, "has " + std::to_string(bytes.size()) + " bytes; at most 4096 are supported");
        }
        base.vocab.append(bytes, reachable);
        break;
      }
      case PieceKind::kLiteral:
        base.vocab.append(text, false);
        break;
      case PieceKind::kByte: {
        const uint8_t byte = parse_byte_piece(text, i);
        if (base.byte_ids[byte] == kNone) base.byte_ids[byte] = static_cast<uint32_t>(i);
        const char c = static_cast<char>(byte);
        base.vocab.append({&c, 1}, false);
        break;
      }
      default:
        fail("token", i, "has an unknown type");
    }
  }
  base.vocab.index_from(0);
  return base;
}

void find_single_bytes(Base& base) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    base.byte_ids[static_cast<size_t>(byte)] = base.vocab.find({&c, 1});
  }
}

// Texts that only decoding knows: an added token may also be in the model's merges, but it is found before any merging.
class LiteralTexts {
 public:
  explicit LiteralTexts(const Pieces& pieces) : pieces_(pieces) {}
  bool has(const std::string& text) {
    if (!built_) {
      built_ = true;
      for (size_t i = 0; i < pieces_.texts.size(); ++i) {
        if (pieces_.kinds[i] != PieceKind::kText && !pieces_.texts[i].empty()) texts_.insert(pieces_.texts[i]);
      }
    }
    return texts_.count(text) != 0;
  }

 private:
  const Pieces& pieces_;
  bool built_ = false;
  std::unordered_set<std::string_view> texts_;
};

// The left part, the right part and the whole of one merge.
struct Parts {
  std::string whole;
  size_t left_size;
  std::string_view texts[2];
  uint64_t hashes[2];
  uint32_t ids[3];

  bool are_held() const { return ids[0] != kNone && ids[1] != kNone && ids[2] != kNone; }
};

// Merges by rank.
template <class Spell>
PairTable make_pairs(const Vocab& vocab, const Pieces& pieces, const std::vector<TextPair>& merges,
                     const Spell& spell) {
  PairTable pairs;
  pairs.reserve(merges.size());
  LiteralTexts literals(pieces);
  // Memory is what this waits for, so it is asked for some merges ahead.
  constexpr size_t kBatch = 16;
  Parts batch[kBatch];
  uint32_t made = kNone;
  for (size_t first = 0; first < merges.size(); first += kBatch) {
    const size_t n = std::min(kBatch, merges.size() - first);
    for (size_t i = 0; i < n; ++i) {
      Parts& parts = batch[i];
      parts.whole.clear();
      spell(merges[first + i].first, parts.whole);
      parts.left_size = parts.whole.size();
      spell(merges[first + i].second, parts.whole);
      const std::string_view whole(parts.whole);
      parts.texts[0] = whole.substr(0, parts.left_size);
      parts.texts[1] = whole.substr(parts.left_size);
      for (int k = 0; k < 2; ++k) {
        parts.hashes[k] = hash_bytes(parts.texts[k].data(), parts.texts[k].size());
        vocab.prefetch(parts.hashes[k]);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      Parts& parts = batch[i];
      for (int k = 0; k < 2; ++k) parts.ids[k] = vocab.find(parts.texts[k], parts.hashes[k]);
      // Most vocabularies number tokens as merges make them, so that the last one or its successor is nearly always it.
      made = vocab.gives(made, parts.whole) ? made : vocab.gives(made + 1, parts.whole) ? made + 1 : vocab.find(parts.whole);
      parts.ids[2] = made;
      if (parts.are_held()) pairs.prefetch(parts.ids[0], parts.ids[1]);
    }
    for (size_t i = 0; i < n; ++i) {
      const Parts& parts = batch[i];
      if (parts.are_held()) {
        pairs.add(parts.ids[0], parts.ids[1], {static_cast<uint32_t>(first + i), parts.ids[2]});
        continue;
      }
      const std::string left(merges[first + i].first), last(merges[first + i].second);
      if (!literals.has(left) && !literals.has(last) && !literals.has(left + last)) {
        fail("merge", first + i, "joins or makes a token that the vocabulary does not hold");
      }
    }
  }
  return pairs;
}

// Characters that occur in pieces but are none themselves get symbols past the ids, so that they can still be joined.
void add_bare_characters(Vocab& vocab, uint32_t n_ids) {
  for (uint32_t id = 0; id < n_ids; ++id) {
    if (!vocab.findable(id)) continue;
    const std::string piece(vocab[id]);
    for (size_t i = 0; i < piece.size();) {
      const size_t length = std::min(utf8_length(static_cast<unsigned char>(piece[i])), piece.size() - i);
      if (vocab.find({piece.data() + i, length}) == kNone) vocab.add({piece.data() + i, length}, true);
      i += length;
    }
  }
}

// Every way to make a piece of two others, with rank(id) as its rank. `is_cut`: may a piece be cut before this byte?
template <class Rank, class IsCut>
PairTable make_all_pairs(const Vocab& vocab, uint32_t n_ids, const Rank& rank, const IsCut& is_cut) {
  PairTable pairs;
  pairs.reserve(n_ids * size_t{2});
  for (uint32_t id = 0; id < n_ids; ++id) {
    if (!vocab.findable(id)) continue;
    const std::string_view piece = vocab[id];
    if (piece.size() > kMaxCutPieceBytes) fail("token", id, "has over 1024 bytes; that is not supported");
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (!is_cut(piece[cut])) continue;
      const uint32_t left = vocab.find(piece.substr(0, cut));
      if (left == kNone) continue;
      const uint32_t right = vocab.find(piece.substr(cut));
      if (right != kNone) pairs.add(left, right, {rank(id), id});
    }
  }
  return pairs;
}

// tiktoken's ranks say which tokens there are, not of which two each is made. Merging a token's bytes by the tokens of
// lower rank leaves these two, and no other two ever become it. False when some token is not reached in this way.
bool find_last_pairs(const Base& base, uint32_t n_ids, PairTable& pairs) {
  pairs.reserve(n_ids);
  MergeScratch scratch;
  std::vector<uint32_t> symbols;
  std::vector<Token> parts;
  for (uint32_t id = 0; id < n_ids; ++id) {
    const std::string_view piece = base.vocab[id];
    if (!base.vocab.findable(id) || piece.size() < 2) continue;
    symbols.clear();
    for (const char c : piece) symbols.push_back(base.byte_ids[static_cast<unsigned char>(c)]);
    parts.clear();
    merge_symbols(pairs, symbols.data(), static_cast<uint32_t>(symbols.size()), scratch, parts);
    if (parts.size() != 2 || parts[0].id == kNone || parts[1].id == kNone) return false;
    pairs.add(parts[0].id, parts[1].id, {id, id});
  }
  return true;
}

std::unique_ptr<Codec> finish(Base base, PairTable pairs, size_t n_ids, CodecOptions options) {
  if (options.unknown != kNone && options.unknown >= n_ids) {
    fail("the unknown token", options.unknown, "is outside of the vocabulary");
  }
  return std::make_unique<Codec>(std::move(base.vocab), std::move(pairs), static_cast<uint32_t>(n_ids), base.byte_ids,
                                 options);
}

}  // namespace

std::unique_ptr<Codec> build_byte_level(const Pieces& pieces, const std::vector<TextPair>& merges,
                                        CodecOptions options) {
  const PrintableBytes alphabet;
  const auto spell = [&](std::string_view text, std::string& bytes) { return alphabet.decode(text, bytes); };
  Base base = make_vocab(pieces, spell);
  find_single_bytes(base);
  PairTable pairs = make_pairs(base.vocab, pieces, merges, spell);
  return finish(std::move(base), std::move(pairs), pieces.texts.size(), options);
}

std::unique_ptr<Codec> build_char_level(const Pieces& pieces, const std::vector<TextPair>& merges,
                                        CodecOptions options) {
  Base base = make_vocab(pieces, unmark_spaces);
  PairTable pairs = make_pairs(base.vocab, pieces, merges, unmark_spaces);
  return finish(std::move(base), std::move(pairs), pieces.texts.size(), options);
}

std::unique_ptr<Codec> build_scored(const Pieces& pieces, const std::vector<float>& scores, CodecOptions options) {
  const size_t n_ids = pieces.texts.size();
  Base base = make_vocab(pieces, unmark_spaces);
  if (scores.size() != n_ids) {
    throw std::invalid_argument("the vocabulary has " + std::to_string(n_ids) + " tokens, but " +
                                std::to_string(scores.size()) + " scores");
  }
  for (size_t i = 0; i < n_ids; ++i) {
    if (std::isnan(scores[i])) fail("score", i, "is not a number");
  }
  std::vector<float> order(scores);
  std::sort(order.begin(), order.end(), [](float a, float b) { return a > b; });
  order.erase(std::unique(order.begin(), order.end()), order.end());
  const auto rank = [&](uint32_t id) {
    const auto at = std::lower_bound(order.begin(), order.end(), scores[id], [](float a, float b) { return a > b; });
    return static_cast<uint32_t>(at - order.begin());
  };
  add_bare_characters(base.vocab, static_cast<uint32_t>(n_ids));
  PairTable pairs = make_all_pairs(base.vocab, static_cast<uint32_t>(n_ids), rank,
                                   [](char c) { return !is_continuation(c); });
  return finish(std::move(base), std::move(pairs), n_ids, options);
}

std::unique_ptr<Codec> build_ranked(const Pieces& pieces, CodecOptions options) {
  const auto spell = [](std::string_view text, std::string& bytes) {
    bytes.append(text);
    return true;
  };
  Base base = make_vocab(pieces, spell);
  find_single_bytes(base);
  const auto n_ids = static_cast<uint32_t>(pieces.texts.size());
  PairTable pairs;
  if (!find_last_pairs(base, n_ids, pairs)) {
    pairs = make_all_pairs(base.vocab, n_ids, [](uint32_t id) { return id; }, [](char) { return true; });
  }
  return finish(std::move(base), std::move(pairs), n_ids, options);
}

}  // namespace gristmill
