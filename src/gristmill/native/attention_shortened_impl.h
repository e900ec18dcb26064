// Attention over a cache of bfloat16 in 12 bits a number (matrix.h: KvType::BF16_12), where there are dot products of bfloat16's
// pairs. After attention_impl.h.
//
// Few rows read it as the stream it is and take its words apart in registers; many rows meet it as bfloat16. Both add a row's
// products in the same order, which is that of the words.
#pragma once
#include "attention_impl.h"

namespace gristmill {
namespace {

using KvCode = Code<Pack::BF16_12>;
constexpr int kQuarters = KvCode::kWords + 1, kWordsBytes = KvCode::kWords * KvCode::kWordBytes;

// The bases of a pair of positions, as a word of values needs them.
typedef uint32_t PairBases __attribute__((vector_size(KvCode::kWordBytes)));

inline PairBases bases_of_pair(const uint8_t* values, int pair) {
  uint16_t of[2];
  for (int i = 0; i < 2; i++) std::memcpy(of + i, values + 4 * (2 * pair + i), 2);
  return PairBases{} + (of[0] | uint32_t(of[1]) << 16);
}

// Each asks for what lies so many bytes beyond the words it reads, where that is not 0.
template <int Ahead = 0>
inline void unpack_keys(const KvLayer& kv, const uint8_t* bytes, uint16_t* keys) {
  const uint8_t* words = bytes + kKvBases;
  auto* to = reinterpret_cast<uint8_t*>(keys);
  for (int g = 0; g < kv.head_dim / 8; g++, words += kWordsBytes) {
    if constexpr (Ahead > 0) ask_for<kWordsBytes, 3>(words, Ahead);
    each_plain_word<KvCode>(words, bytes, [&](int, const uint8_t* word) __attribute__((always_inline)) {
      std::memcpy(to, word, KvCode::kWordBytes);
      to += KvCode::kWordBytes;
    });
  }
}

template <int Ahead = 0>
inline void unpack_values(const KvLayer& kv, const uint8_t* bytes, uint16_t* values) {
  const uint8_t* words = bytes + kKvBases;
  auto* to = reinterpret_cast<uint8_t*>(values);
  const int n = kv.v_dim / 64;
  const size_t quarter = size_t(n) * KvCode::kWordBytes;
  for (int pair = 0; pair < kKvBlock / 2; pair++, to += (kQuarters - 1) * quarter) {
    const PairBases bases = bases_of_pair(bytes, pair);
    for (int g = 0; g < n; g++, words += kWordsBytes, to += KvCode::kWordBytes) {
      if constexpr (Ahead > 0) ask_for<kWordsBytes, 3>(words, Ahead);
      auto put = [&](int i, const uint8_t* word) __attribute__((always_inline)) {
        std::memcpy(to + i * quarter, word, KvCode::kWordBytes);
      };
      each_plain_word<KvCode>(words, reinterpret_cast<const uint8_t*>(&bases), put);
    }
  }
}

template <class T>
inline void unpack(const Segment<T>& s, int block, int head) {
  unpack_keys(s.kv, s.key_bytes(block, head), s.plain_keys(block));
  unpack_values(s.kv, s.value_bytes(block, head), s.plain_values(block));
}

// Asks for so many bytes as they lie in another head's keys or values, which are `away` from this one's.
template <int Bytes>
GRISTMILL_INLINE void ask_beyond(const uint8_t* at, ptrdiff_t away) {
  if (kStreamsWait == Wait::First)
#pragma GCC unroll 16
    for (int i = 0; i < Bytes; i += 64) __builtin_prefetch(at + away + i, 0, 0);
  else
#pragma GCC unroll 16
    for (int i = 0; i < Bytes; i += 64) __builtin_prefetch(at + away + i, 0, 2);
}

// Scores of R rows with the keys of a block, a lane a key.
template <class T, int R>
inline void shortened_scores(const Segment<T>& s, int block, int head, int row, ptrdiff_t away) {
  const typename T::Number* q = s.query(row);
  const uint8_t *bytes = s.key_bytes(block, head), *words = bytes + kKvBases;
  F acc[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) acc[r] = f_zero();
  ask_beyond<kKvBases>(bytes, away);
  for (int g = 0; g < s.kv.head_dim / 8; g++, words += kWordsBytes, q += kQuarters * R * T::kStep) {
    ask_beyond<kWordsBytes>(words, away);
    each_plain_word<KvCode>(words, bytes, [&](int i, const uint8_t* word) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) acc[r] = T::step(acc[r], reinterpret_cast<const uint16_t*>(word), q + (i * R + r) * T::kStep);
    });
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) f_store(s.scores + size_t(row + r) * kScoreStride + block * kKvBlock, acc[r]);
}

// Adds a block's values, those of G words in each quarter from the gth on, to the outputs of R rows, which wait in their states.
template <class T, int R, int G>
inline void add_shortened(const Segment<T>& s, int head, int row, Range range, int block, int g, ptrdiff_t away) {
  const int n = s.kv.v_dim / 64, first = std::max(range.first / 2 - block * kKvBlock / 2, 0);
  const int end = std::min(range.last / 2 - block * kKvBlock / 2, kKvBlock / 2);
  constexpr int kStride = kScoreStride * int(sizeof(float) / sizeof(typename T::Number));
  const uint8_t* bytes = s.value_bytes(block, head);
  const auto* p = reinterpret_cast<const typename T::Number*>(s.scores + size_t(row) * kScoreStride) + block * kKvBlock;
  float* out = s.state(row) + kStateHead + g * kLanes;
  auto place = [&](int r, int i, int word) { return out + r * s.width() + (i * n + word) * kLanes; };
  F acc[R][G][kQuarters];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int word = 0; word < G; word++)
#pragma GCC unroll 4
      for (int i = 0; i < kQuarters; i++) acc[r][word][i] = f_load(place(r, i, word));
  auto add = [&](int pair, auto whole) __attribute__((always_inline)) {
    const PairBases bases = bases_of_pair(bytes, pair);
    const uint8_t* words = bytes + kKvBases + (pair * n + g) * kWordsBytes;
    ask_beyond<G * kWordsBytes>(words, away);
#pragma GCC unroll 4
    for (int w = 0; w < G; w++) {
      auto add_word = [&](int i, const uint8_t* word) __attribute__((always_inline)) {
        PairBases values;
        std::memcpy(&values, word, sizeof values);
        if (!whole) values &= 0xffff;  // the last key's partner may never have been written
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
          acc[r][w][i] = T::step(acc[r][w][i], reinterpret_cast<const uint16_t*>(&values), p + r * kStride + 2 * pair);
      };
      each_plain_word<KvCode>(words + w * kWordsBytes, reinterpret_cast<const uint8_t*>(&bases), add_word);
    }
  };
  ask_beyond<kKvBases>(bytes, away);
  for (int pair = first; pair < end; pair++) add(pair, std::true_type());
  if (range.last % 2 && end < kKvBlock / 2) add(end, std::false_type());
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int word = 0; word < G; word++)
#pragma GCC unroll 4
      for (int i = 0; i < kQuarters; i++) f_store(place(r, i, word), acc[r][word][i]);
}

// visit(block, head, away) for all heads of a range's blocks, as they lie in memory: `away` is from(block, head)'s distance from
// what is read after the next head, which may be another block's, or behind the last ones `then`'s.
template <class From, class Then, class Visit>
inline void each_head(int begin, int end, int n_heads, From from, Then then, Visit visit) {
  constexpr int kBeyond = 2;
  for (int b = begin; b < end; b++)
    for (int h = 0; h < n_heads; h++) {
      const int block = b + (h + kBeyond) / n_heads, head = (h + kBeyond) % n_heads;
      const uint8_t* soon = block < end ? from(block, head) : then(std::min(block - end + begin, end - 1), head);
      visit(b, h, soon - from(b, h));
    }
}

template <class T>
void stream_shortened(const Segment<T>& s, int n_heads) {
  const Range range = range_of(s, 0, s.n_rows);
  const int begin = range.first_block(), end = range.end_block();
  auto keys = [&](int b, int h) { return s.key_bytes(b, h); };
  auto values = [&](int b, int h) { return s.value_bytes(b, h); };
  std::fill(s.states, s.state(n_heads * s.n_rows), 0.0f);
  each_head(begin, end, n_heads, keys, values, [&](int b, int h, ptrdiff_t away) {
    for_groups(s.n_rows, [&](auto R, int r) { shortened_scores<T, R>(s, b, h, h * s.n_rows + r, away); });
  });
  for (int row = 0; row < n_heads * s.n_rows; row++) {
    const int r = row % s.n_rows;
    softmax<typename T::Number>(s.scores + size_t(row) * kScoreStride, s.low[r], s.high[r], range, s.state(row));
  }
  each_head(begin, end, n_heads, values, values, [&](int b, int h, ptrdiff_t away) {
    for_groups<4>(s.n_rows, [&](auto R, int r) {
      constexpr int G = R > 2 ? 1 : 2;
      int g = 0;
      for (; g + G <= s.kv.v_dim / 64; g += G) add_shortened<T, R, G>(s, h, h * s.n_rows + r, range, b, g, away);
      for (; g < s.kv.v_dim / 64; g++) add_shortened<T, R, 1>(s, h, h * s.n_rows + r, range, b, g, away);
    });
  });
  for (int row = 0; s.totals && row < n_heads * s.n_rows; row++) fold(s.state(row), s.kv.v_dim, s.total(row));
}

}  // namespace
}  // namespace gristmill
