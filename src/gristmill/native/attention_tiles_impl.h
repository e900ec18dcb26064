// Attention over a cache of bfloat16, or of its numbers in 12 bits, in the tiles of Intel's AMX: 16 rows by 16 keys or
// dimensions. After attention_shortened_impl.h.
//
// A tile adds products in an order of its own, so that single rows are tiles too. Blocks of keys and of values lie as its right
// side does; what of them a row does not see has the probability 0 and adds nothing.
#pragma once
#include "attention_shortened_impl.h"
#include "simd_amx.h"

namespace gristmill {
namespace {

struct KvTiles : KvBf16 {};
struct KvShortTiles : KvBf16_12 {};

// Keys and values are asked for so many bytes before they are needed, into the first-level cache.
constexpr int kAheadOfKeys = 1024;

constexpr int kTileDims = 32;       // of a key that are multiplied at once
constexpr int kMostTileDims = 256;  // of a value

inline bool fits_tiles(const KvLayer& kv) {
  const bool pairs = kv.type == KvType::BF16 || kv.type == KvType::BF16_12;
  return pairs && kv.head_dim % kTileDims == 0 && kv.v_dim % kLanes == 0 && kv.v_dim <= kMostTileDims;
}

// Rows lie one after another, in the places that attention_impl.h has for them.
void lay_tile_queries(const KvLayer& kv, const AttentionRows& rows) {
  F scale = f_set(rows.scale * 1.44269504f);
  for (int row = 0; row < rows.n_heads * rows.n_rows; row++) {
    uint16_t* to = reinterpret_cast<uint16_t*>(rows.laid + size_t(row) * kv.head_dim);
    for (int i = 0; i < kv.head_dim; i += kLanes) {
      fetch_row(rows.q[row] + i);
      const F x = f_mul(f_load(rows.q[row] + i), scale);
      if (kv.type == KvType::BF16) {
        bf16_of_f(to + i, x);
        continue;
      }
      uint16_t numbers[kLanes];
      bf16_of_f(numbers, x);
      uint16_t* pairs = to + 2 * place_of_pair(i / 2, kv.head_dim);
      for (int j = 0; j < kLanes; j += 2) std::memcpy(pairs + j * kPairsApart, numbers + j, 4);
    }
  }
}

// Scores of the rows from `row` on, as many as the tiles have, with the keys of V blocks.
template <class T, int V>
inline void tile_scores(const Segment<T>& s, const uint16_t* const (&keys)[V], int row, float* out) {
  const uint16_t* q = s.query(row);
  constexpr int kBytes = kTileDims * kKvBlock * 2;
  clear_tiles(Tiles<V>());
  for (int d = 0; d < s.kv.head_dim; d += kTileDims) {
    if constexpr (V == 1 && !T::kShortened) ask_for<kBytes, 3>(keys[0] + size_t(d) * kKvBlock, kAheadOfKeys);
    load_tile<2>(q + d, size_t(s.kv.head_dim) * sizeof(float));
    add_pairs_of<2>(Tiles<V>(), [&](int v) { return keys[v] + size_t(d) * kKvBlock; }, 64);
  }
  store_tiles(Tiles<V>(), out, kKvBlock, kScoreStride);
}

// Adds a block's values, from w on, to the first Width tiles of sums.
template <int Width>
GRISTMILL_INLINE void add_tile_values(const uint16_t* w, int v_dim, const uint16_t* p) {
  load_tile<3>(p, kScoreStride * sizeof(float));
  add_pairs_of<3>(Tiles<Width>(), [&](int v) { return w + v * kLanes * 2; }, size_t(v_dim) * 4);
}

// Values of a range's blocks. What lies behind the last key may never have been written, so that its block is copied without it.
template <class T>
class TileValues {
 public:
  TileValues(const Segment<T>& s, Range range) : s_(s), range_(range) {}

  const uint16_t* of(int block, const uint16_t* values) {
    int n = range_.last - block * kKvBlock, v_dim = s_.kv.v_dim;
    if (n >= kKvBlock) return values;
    std::fill(last_, last_ + kKvBlock * v_dim, uint16_t(0));
    std::memcpy(last_, values, size_t(n / 2) * v_dim * 4);
    if (n % 2) {
      size_t at = size_t(n / 2) * v_dim * 2;
      for (int i = 0; i < v_dim; i++) last_[at + 2 * i] = values[at + 2 * i];
    }
    return last_;
  }

 private:
  const Segment<T>& s_;
  Range range_;
  alignas(64) uint16_t last_[kKvBlock * kMostTileDims];
};

// body(Width, d) for all dimensions, four vectors at once where there are so many.
template <class Body>
inline void for_dimensions(int v_dim, Body body) {
  int d = 0;
  for (; d + 4 * kLanes <= v_dim; d += 4 * kLanes) body(std::integral_constant<int, 4>(), d);
  for (; d < v_dim; d += kLanes) body(std::integral_constant<int, 1>(), d);
}

template <class T>
void stream_tiles(const Segment<T>& s, int n_heads) {
  constexpr int kOne = 0;  // where shortened keys and values are taken apart, one head after another, so that they stay near
  const Range range = range_of(s, 0, s.n_rows);
  const TileShapes shapes(s.n_rows, 64, 32);
  const int v_dim = s.kv.v_dim;
  std::fill(s.states, s.state(n_heads * s.n_rows), 0.0f);
  for (int b = range.first_block(); b < range.end_block(); b++)
    for (int h = 0; h < n_heads; h++) {
      if constexpr (T::kShortened) unpack_keys<kAheadOfKeys>(s.kv, s.key_bytes(b, h), s.plain_keys(kOne));
      const uint16_t* keys[] = {s.keys(T::kShortened ? kOne : b, h)};
      tile_scores<T, 1>(s, keys, h * s.n_rows, s.scores + size_t(h) * s.n_rows * kScoreStride + b * kKvBlock);
    }
  for (int row = 0; row < n_heads * s.n_rows; row++) {
    int r = row % s.n_rows;
    softmax<uint16_t>(s.scores + size_t(row) * kScoreStride, s.low[r], s.high[r], range, s.state(row));
  }
  TileValues<T> values(s, range);
  for (int b = range.first_block(); b < range.end_block(); b++)
    for (int h = 0; h < n_heads; h++) {
      const int row = h * s.n_rows;
      if constexpr (T::kShortened) unpack_values<kAheadOfKeys>(s.kv, s.value_bytes(b, h), s.plain_values(kOne));
      const uint16_t *w = values.of(b, s.values(T::kShortened ? kOne : b, h)),
                     *p = reinterpret_cast<const uint16_t*>(s.scores + size_t(row) * kScoreStride);
      for_dimensions(v_dim, [&](auto width, int d) {
        constexpr int kWidth = decltype(width)::value;
        float* out = s.state(row) + kStateHead + d;
        if constexpr (!T::kShortened)
          for (int j = 0; j < kKvBlock / 2; j++) ask_for<kWidth * 64, 3>(w + (size_t(j) * v_dim + d) * 2, kAheadOfKeys);
        load_tiles(Tiles<kWidth>(), out, kLanes, s.width());
        add_tile_values<kWidth>(w + d * 2, v_dim, p + b * kKvBlock);
        store_tiles(Tiles<kWidth>(), out, kLanes, s.width());
      });
    }
  for (int row = 0; s.totals && row < n_heads * s.n_rows; row++) fold(s.state(row), v_dim, s.total(row));
}

template <class T>
void segment_in_tiles(Segment<T>& s, NextSegment next) {
  constexpr int kRows = kWideRows, V = 4;
  float* scores = s.scores;
  if constexpr (T::kShortened) {
    const Range all = range_of(s, 0, s.n_rows);
    for (int b = all.first_block(); b < all.end_block(); b++) unpack(s, b, 0);
  }
  TileShapes shapes(kRows, 64, 32);
  for (int row = 0; row < s.n_rows; row += kRows) {
    const int n = s.n_rows - row < kRows ? s.n_rows - row : kRows;
    if (n < kRows) shapes.set(n, 64, 32, n);
    const Range range = range_of(s, row, n);
    s.scores = scores - size_t(row) * kScoreStride;  // every tile of rows uses the same memory
    for (int b = range.first_block(); b < range.end_block(); b += V) {
      const uint16_t* keys[V];
      for (int v = 0; v < V; v++) keys[v] = s.keys(b + v < range.end_block() ? b + v : b, 0);
      tile_scores<T, V>(s, keys, row, scores + b * kKvBlock);
      next.fetch(V * kRows * 3 / 2);
    }
    Fold folds[kRows];
    for (int r = 0; r < n; r++) {
      softmax<uint16_t>(scores + size_t(r) * kScoreStride, s.low[row + r], s.high[row + r], range, s.state(row + r));
      if (s.totals) folds[r] = fold_head(s.state(row + r), s.total(row + r));
    }
    TileValues<T> values(s, range);
    const uint16_t* p = reinterpret_cast<const uint16_t*>(scores);
    for_dimensions(s.kv.v_dim, [&](auto width, int d) {
      constexpr int kWidth = decltype(width)::value;
      float out[kWidth][kRows][kLanes];
      clear_tiles(Tiles<kWidth>());
      for (int b = range.first_block(); b < range.end_block(); b++)
        add_tile_values<kWidth>(values.of(b, s.values(b, 0)) + d * 2, s.kv.v_dim, p + b * kKvBlock);
      store_tiles(Tiles<kWidth>(), out[0][0], kRows * kLanes, kLanes);
      for (int r = 0; r < n; r++) {
        if (s.totals && folds[r].take == 0.0f && folds[r].keep == 1.0f) continue;
        for (int v = 0; v < kWidth; v++) {
          const int at = kStateHead + d + v * kLanes;
          if (s.totals) fold_output(f_load(out[v][r]), folds[r], s.total(row + r) + at);
          else f_store(s.state(row + r) + at, f_load(out[v][r]));
        }
      }
    });
  }
  s.scores = scores;
}

template <>
void stream_segment<KvTiles>(const Segment<KvTiles>& s, int n_heads) { stream_tiles(s, n_heads); }
template <>
void stream_shortened<KvShortTiles>(const Segment<KvShortTiles>& s, int n_heads) { stream_tiles(s, n_heads); }
template <>
void tile_segment<KvTiles>(Segment<KvTiles>& s, NextSegment next) { segment_in_tiles(s, next); }
template <>
void tile_segment<KvShortTiles>(Segment<KvShortTiles>& s, NextSegment next) { segment_in_tiles(s, next); }

void tile_attention_queries(const KvLayer& kv, const AttentionRows& rows) {
  if (fits_tiles(kv)) lay_tile_queries(kv, rows);
  else attention_queries(kv, rows);
}

void tile_attention_segment(const KvLayer& kv, const AttentionRows& rows, int segment, float* states, float* totals,
                            float* scratch) {
  if (fits_tiles(kv) && kv.type == KvType::BF16) segment_states<KvTiles>(kv, rows, segment, states, totals, scratch);
  else if (fits_tiles(kv)) segment_states<KvShortTiles>(kv, rows, segment, states, totals, scratch);
  else attention_segment(kv, rows, segment, states, totals, scratch);
}

}  // namespace
}  // namespace gristmill
