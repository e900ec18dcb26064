// From the parts that files hold (pieces, merges, scores, ranks) to a Codec. Everything is checked; errors are
// std::invalid_argument naming the index of the piece or merge.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "codec.h"

namespace gristmill {

enum class PieceKind : uint8_t {
  kText,     // text may become this id
  kLiteral,  // only decoding knows it: control, unused, added tokens
  kByte,     // written <0xAB>: one byte
};

struct Pieces {
  std::vector<std::string_view> texts;
  std::vector<PieceKind> kinds;
};

using TextPair = std::pair<std::string_view, std::string_view>;

// Byte-level BPE. kText pieces and merges are written in the printable alphabet of GPT-2 (one character a byte).
std::unique_ptr<Codec> build_byte_level(const Pieces& pieces, const std::vector<TextPair>& merges, CodecOptions options);

// BPE over characters with merges by rank, as tokenizer.json writes SentencePiece models.
std::unique_ptr<Codec> build_char_level(const Pieces& pieces, const std::vector<TextPair>& merges, CodecOptions options);

// SentencePiece BPE: any two neighbours join when together they are a piece, the highest score first.
std::unique_ptr<Codec> build_scored(const Pieces& pieces, const std::vector<float>& scores, CodecOptions options);

// tiktoken: any two neighbours join when together they are a piece, the lowest id first. kText pieces are raw bytes.
std::unique_ptr<Codec> build_ranked(const Pieces& pieces, CodecOptions options);

}  // namespace gristmill
