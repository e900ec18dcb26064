// Ops::store_qkv and Ops::attention: what goes into the key-value cache, and how reading it is divided between threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "half.h"
#include "ops.h"
#include "shortened.h"

namespace gristmill {

namespace {

// Writes one position's numbers of a head into its block of the cache. step: 2 where numbers lie in pairs.
struct Writer {
  const Kernels& kernels;
  const KvLayer& kv;
  int offset, step;   // the position's in its block
  float* scratch;     // [head_dim]

  void key(const float* x, uint8_t* block) {
    if (kv.type == KvType::Q8_0) return quantized_key(x, block);
    if (kv.type == KvType::BF16_12) return shortened_key(x, block);
    if (kv.type == KvType::F32) return scatter(x, reinterpret_cast<float*>(block) + offset, kKvBlock);
    const uint16_t* small = halved(x);
    if (step == 1) return scatter(small, reinterpret_cast<uint16_t*>(block) + offset, kKvBlock);
    for (int i = 0; i < kv.head_dim; i += 2) std::memcpy(block + (size_t(i / 2) * kKvBlock + offset) * 4, small + i, 4);
  }
  void value(const float* x, uint8_t* block) {
    if (kv.type == KvType::Q8_0) return quantized_value(x, block);
    if (kv.type == KvType::BF16_12) return shortened_value(x, block);
    size_t first = size_t(offset / step) * step * kv.v_dim + offset % step;
    if (kv.type == KvType::F32) scatter(x, reinterpret_cast<float*>(block) + first, step);
    else scatter(halved(x), reinterpret_cast<uint16_t*>(block) + first, step);
  }
  // Asks for the lines of a head that will be written. Keys are scattered over a whole block: one after another these
  // misses would take longer than all the rest.
  void fetch(uint8_t* keys, uint8_t* values) const {
    for (size_t i = 0; i < kv.k_bytes(); i += 64) __builtin_prefetch(keys + i, 1);
    const size_t bases = kv.type == KvType::BF16_12 ? kKvBases : 0, two = (kv.v_bytes() - bases) / kKvBlock * 2;
    asm volatile("");  // gcc drops calls of a function that only prefetches
    for (size_t i = 0; i < two; i += 64) __builtin_prefetch(values + bases + offset / 2 * two + i, 1);
    if (bases) __builtin_prefetch(values, 1);
  }

 private:
  template <class T>
  void scatter(const T* x, T* __restrict to, int stride) const {
    for (int i = 0; i < kv.head_dim; i++) to[size_t(i) * stride] = x[i];
  }
  const uint16_t* halved(const float* x) const {
    auto* small = reinterpret_cast<uint16_t*>(scratch);
    if (kv.type == KvType::BF16) kernels.to_bf16(x, kv.head_dim, small);
    else kernels.to_half(x, kv.head_dim, small);
    return small;
  }
  // Codes [3, head_dim / 4] of one base, which goes to the front of the block.
  const uint16_t* shortened(const float* x, uint8_t* block) const {
    auto* codes = reinterpret_cast<uint16_t*>(scratch);
    kernels.to_bf16(x, kv.head_dim, codes);
    const uint16_t base = kernels.shortening->head(codes, kv.head_dim);
    for (int i = 0; i < 2; i++) std::memcpy(block + offset * 4 + i * 2, &base, 2);
    return codes;
  }
  void shortened_key(const float* x, uint8_t* block) const {
    const uint16_t* codes = shortened(x, block);
    const int quarter = kv.head_dim / 4;
    uint8_t* to = block + kKvBases + offset * 4;
    for (int i = 0; i < quarter; i += 2)
      for (int j = 0; j < 3; j++, to += 64) std::memcpy(to, codes + j * quarter + i, 4);
  }
  void shortened_value(const float* x, uint8_t* block) const {
    const uint16_t* codes = shortened(x, block);
    const int quarter = kv.head_dim / 4;
    uint16_t* to = reinterpret_cast<uint16_t*>(block + kKvBases) + size_t(offset / 2) * quarter * 6 + offset % 2;
    for (int i = 0; i < quarter; i += kLanes)
      for (int j = 0; j < 3; j++, to += 2 * kLanes)
        for (int lane = 0; lane < kLanes; lane++) to[2 * lane] = codes[j * quarter + i + lane];
  }
  struct Quants {
    const int8_t* q;
    const float* scale;
  };
  Quants quantize(const float* x) const {
    int n = kv.head_dim;
    auto* q = reinterpret_cast<int8_t*>(scratch);
    auto* scale = reinterpret_cast<float*>(q + n);
    kernels.quantize(x, n, q, scale, reinterpret_cast<int32_t*>(scale + n / kBlock));
    return {q, scale};
  }
  static void put_half(float x, uint8_t* to) {
    uint16_t half = float_to_half(x);
    std::memcpy(to, &half, 2);
  }
  void quantized_key(const float* x, uint8_t* block) const {
    Quants quants = quantize(x);
    for (int g = 0; g < kv.head_dim / kBlock; g++, block += 512 + 2 * kKvBlock) {
      for (int i = 0; i < kBlock; i++) block[i / 4 * 64 + offset * 4 + i % 4] = uint8_t(quants.q[g * kBlock + i] + 128);
      put_half(quants.scale[g], block + 512 + 2 * offset);
    }
  }
  void quantized_value(const float* x, uint8_t* block) const {
    Quants quants = quantize(x);
    for (int i = 0; i < kv.head_dim; i++)
      block[(size_t(offset / step) * kv.v_dim + i) * step + offset % step] = uint8_t(quants.q[i]);
    for (int g = 0; g < kv.head_dim / kBlock; g++)
      put_half(quants.scale[g], block + size_t(kKvBlock) * kv.v_dim + (g * kKvBlock + offset) * 2);
  }
};

// What store_qkv does with a token's heads.
class Heads {
 public:
  Heads(const Kernels& kernels, const StoreCall& call)
      : kernels_(kernels), c_(call), n_(call.kv.head_dim), group_(call.n_heads / call.kv.n_kv_heads),
        step_(call.kv.type == KvType::BF16 || call.kv.type == KvType::Q8_0 ? kernels.bf16_step : 1) {}

  // Asks for the lines of a key-value head that will be written.
  void fetch(int t, int h) const { writer(t, nullptr).fetch(c_.kv.keys(block(t), h), c_.kv.values(block(t), h)); }

  // Writes a key-value head; its queries go to q [group, head_dim].
  void put(int t, int h, float* q) const {
    thread_local Scratch<float> memory;
    float *key = memory.grown(size_t(n_) * 2), *scratch = key + n_;
    for (int i = 0; i < group_; i++) turn(t, h * group_ + i, c_.q_norm, q + size_t(i) * n_);
    turn(t, c_.n_heads + h, c_.k_norm, key);
    Writer to = writer(t, scratch);
    to.key(key, c_.kv.keys(block(t), h));
    to.value(row(t) + size_t(c_.n_heads + c_.kv.n_kv_heads + h) * n_, c_.kv.values(block(t), h));
  }

 private:
  int block(int t) const { return c_.slots[t] / kKvBlock; }
  Writer writer(int t, float* scratch) const { return {kernels_, c_.kv, c_.slots[t] % kKvBlock, step_, scratch}; }
  const float* row(int t) const { return c_.qkv + size_t(t) * (c_.n_heads + 2 * c_.kv.n_kv_heads) * n_; }
  void turn(int t, int head, const float* norm, float* y) const {
    const float* x = row(t) + size_t(head) * n_;
    if (norm) kernels_.rms_norm(x, nullptr, nullptr, norm, n_, c_.eps, y);
    else std::memcpy(y, x, size_t(n_) * 4);
    kernels_.rotate(y, c_.cos + size_t(t) * (n_ / 2), c_.sin + size_t(t) * (n_ / 2), n_);
  }

  const Kernels& kernels_;
  const StoreCall& c_;
  int n_, group_, step_;
};

}  // namespace

std::vector<std::shared_ptr<KvStore>> make_kv_layers(const KvLayer& shape, int n_layers, int n_blocks) {
  const size_t bytes = (shape.block_bytes() + 63) / 64 * 64, stride = bytes * n_layers;
  const int n_last = KvLayer::chunk_blocks(n_blocks - 1);  // whole chunks
  auto memory = std::make_shared<HugeBuffer>(size_t((n_blocks + n_last - 1) / n_last * n_last) * stride);
  std::vector<std::shared_ptr<KvStore>> layers;
  for (int i = 0; i < n_layers; i++) {
    layers.push_back(std::make_shared<KvStore>(KvStore{shape, n_blocks, memory}));
    KvLayer& layer = layers.back()->layer;
    layer.memory = memory->data(), layer.before = bytes * i, layer.stride = stride;
  }
  return layers;
}

void Ops::store_qkv(const StoreCall& c) {
  const int n_kv = c.kv.n_kv_heads, q_width = c.n_heads * c.kv.head_dim, width = q_width + 2 * n_kv * c.kv.head_dim;
  const int n_groups = (c.n_tokens + kKvBlock - 1) / kKvBlock,
            n_parts = n_groups < pool_.size() ? std::min(n_kv, pool_.size()) : 1;
  const Heads heads(*kernels_, c);
  auto leaves = [&](int t) { return c.slots[t + 1] / kKvBlock != c.slots[t] / kKvBlock; };
  // A thread takes neighbours, which share cache lines; of few tokens it takes some heads. The next token's block is asked for
  // head by head, since a core waits for few lines at a time.
  for_rows(n_groups * n_parts, int64_t(width) * std::min(c.n_tokens, kKvBlock) * 8 / n_parts, [&](int i) {
    const int first = i / n_parts * kKvBlock, end = std::min(c.n_tokens, first + kKvBlock), part = i % n_parts;
    const int head = n_kv * part / n_parts, end_head = n_kv * (part + 1) / n_parts;
    for (int h = head; h < end_head; h++) heads.fetch(first, h);
    for (int t = first; t < end; t++)
      for (int h = head; h < end_head; h++) {
        if (t + 1 < end && leaves(t)) heads.fetch(t + 1, h);
        heads.put(t, h, c.q + size_t(t) * q_width + size_t(q_width / n_kv) * h);
      }
  });
}

// float32 throughout, as the definition has it: an angle is rounded before its cosine is taken.
void Ops::rope_angles(const int32_t* positions, int n_tokens, const float* inv_freq, int n, float scale, float* cos, float* sin) {
  for_rows(n_tokens, int64_t(n) * 16, [&](int t) {
    for (int i = 0; i < n; i++) {
      float angle = float(positions[t]) * inv_freq[i];
      cos[size_t(t) * n + i] = std::cos(angle) * scale;
      sin[size_t(t) * n + i] = std::sin(angle) * scale;
    }
  });
}

namespace {

// Rows of one sequence that are computed together: n_rows of each of some key-value heads, and the segments they see.
struct Tile {
  int sequence, first_row, n_rows, kv_head, n_heads;
  int segment, end_segment;

  int size() const { return n_heads * n_rows; }
};

// What the kernels want to know of a tile's rows.
struct TileRows {
  const float* q[kMaxAttentionRows];
  float* y[kMaxAttentionRows];
  float sink[kMaxAttentionRows];
  int position[kMaxAttentionRows];
  AttentionRows rows;

  TileRows(const AttentionCall& c, const Tile& tile, float* laid) {
    int group = c.n_heads / c.kv.n_kv_heads;
    for (int i = 0; i < tile.size(); i++) {
      int r = tile.first_row + i % tile.n_rows, token = c.query_start[tile.sequence] + r / group;
      int head = (tile.kv_head + i / tile.n_rows) * group + r % group;
      size_t at = (size_t(token) * c.n_heads + head) * c.kv.head_dim;
      q[i] = c.q + at, y[i] = c.y + at;
      sink[i] = c.sinks ? c.sinks[head] : 0.0f;
      if (i < tile.n_rows) position[i] = c.positions[token];
    }
    const int32_t* blocks = c.block_tables + size_t(tile.sequence) * c.n_table;
    rows = {q, position, tile.n_rows, tile.kv_head, tile.n_heads, c.window, blocks, c.scale, laid};
  }

  // Writes the keys and values of a tile of one token first; its queries, which are nowhere else, lie in memory [size, head_dim].
  void store(const Heads& heads, int token, const Tile& tile, int head_dim, float* memory) {
    for (int h = 0; h < tile.n_heads; h++) heads.fetch(token, tile.kv_head + h);
    for (int h = 0; h < tile.n_heads; h++) heads.put(token, tile.kv_head + h, memory + size_t(h) * tile.n_rows * head_dim);
    for (int i = 0; i < tile.size(); i++) q[i] = memory + size_t(i) * head_dim;
  }
};

int rows_of_head(const AttentionCall& c, int sequence) {
  return (c.query_start[sequence + 1] - c.query_start[sequence]) * (c.n_heads / c.kv.n_kv_heads);
}

// Whether there are tasks enough for all threads if each takes as many rows as it may.
bool are_many(const AttentionCall& c, int n_threads) {
  int n_tasks = 0;
  for (int s = 0; s < c.n_sequences; s++)
    if (const int n = rows_of_head(c, s); n > kFewerAttentionRows)
      n_tasks += (n + kMaxAttentionRows - 1) / kMaxAttentionRows * c.kv.n_kv_heads;
  return n_tasks >= 4 * n_threads;
}

// Adds the tiles of one sequence, of up to `step` rows, and returns how many segments they have. Few rows go with `n_heads`
// heads at a time.
int plan_sequence(const AttentionCall& c, int sequence, int step, int n_heads, std::vector<Tile>& tiles) {
  int group = c.n_heads / c.kv.n_kv_heads, start = c.query_start[sequence], n_segments = 0;
  const int n_rows = rows_of_head(c, sequence);
  if (n_rows <= kStreamRows) n_heads = std::clamp(n_heads, 1, kFewerAttentionRows / std::max(n_rows, 1));
  else n_heads = 1;
  // The last rows have the most keys to read: start with them.
  for (int row = (n_rows - 1) / step * step; row >= 0 && n_rows; row -= step) {
    int count = std::min(step, n_rows - row), first = INT32_MAX, last = 0;
    for (int t = start + row / group; t <= start + (row + count - 1) / group; t++)
      first = std::min(first, c.positions[t]), last = std::max(last, c.positions[t]);
    int segment = c.window && first >= c.window ? (first - c.window + 1) / kSegment : 0;
    for (int h = 0; h < c.kv.n_kv_heads; h += n_heads, n_segments += last / kSegment + 1 - segment)
      tiles.push_back({sequence, row, count, h, std::min(n_heads, c.kv.n_kv_heads - h), segment, last / kSegment + 1});
  }
  return n_segments;
}

}  // namespace

void Ops::attention(const AttentionCall& c, const StoreCall* before) {
  int width = c.kv.v_dim + kStateHead, n_segments = 0;
  std::vector<Tile> tiles;
  const bool many = are_many(c, pool_.size());
  const int most_rows = many ? kMaxAttentionRows : kFewerAttentionRows;
  // All heads together are read fastest, but every thread must have something to do, and many threads as much.
  for (int n_heads = c.kv.n_kv_heads;; n_heads = (n_heads + 1) / 2) {
    tiles.clear(), n_segments = 0;
    for (int s = 0; s < c.n_sequences; s++) n_segments += plan_sequence(c, s, most_rows, n_heads, tiles);
    if (n_heads == 1 || n_segments >= 2 * pool_.size() - 2) break;
  }
  auto start = [&](const TileRows& t, float* totals) {
    for (int r = 0; r < t.rows.n_heads * t.rows.n_rows; r++) {
      float* total = totals + size_t(r) * width;
      std::fill(total, total + width, 0.0f);
      // A sink is a key without a value: it enters the denominator alone.
      if (c.sinks) total[0] = t.sink[r] * 1.44269504f, total[1] = 1.0f;
      else total[0] = -INFINITY;
    }
  };
  auto fold = [&](const TileRows& t, const float* states, float* totals) {
    for (int r = 0; r < t.rows.n_heads * t.rows.n_rows; r++)
      kernels_->attention_fold(states + size_t(r) * width, c.kv.v_dim, totals + size_t(r) * width);
  };
  auto finish = [&](const TileRows& t, const float* totals) {
    for (int r = 0; r < t.rows.n_heads * t.rows.n_rows; r++)
      kernels_->attention_finish(totals + size_t(r) * width, c.kv.head_dim, t.y[r]);
  };
  size_t scratch_floats = c.kv.scratch_floats();
  const bool whole = many || int(tiles.size()) >= 8 * pool_.size() || n_segments == int(tiles.size()) || pool_.size() == 1;
  bool on_the_way = before && whole;
  for (int s = 0; s < c.n_sequences; s++) on_the_way &= c.query_start[s + 1] - c.query_start[s] <= 1;
  if (before && !on_the_way) store_qkv(*before);
  if (whole) {
    for_rows(int(tiles.size()), kAlone, [&](int i) {
      thread_local Scratch<float> memory;
      const Tile& tile = tiles[i];
      const size_t n = size_t(tile.size());
      float* totals = memory.grown(scratch_floats + n * (2 * width + 2 * c.kv.head_dim));
      float *states = totals + n * width, *scratch = states + n * width, *q = scratch + scratch_floats;
      TileRows t(c, tile, q + n * c.kv.head_dim);
      if (on_the_way) t.store(Heads(*kernels_, *before), c.query_start[tile.sequence], tile, c.kv.head_dim, q);
      start(t, totals);
      kernels_->attention_queries(c.kv, t.rows);
      for (int s = tile.segment; s < tile.end_segment; s++)
        kernels_->attention_segment(c.kv, t.rows, s, states, totals, scratch);
      finish(t, totals);
    });
    return;
  }
  // Too few tiles to keep the threads busy: a segment a task, and whoever ends a tile's last one folds them all.
  struct Part {
    int tile, segment;
    size_t states;
  };
  std::vector<Part> parts;
  std::vector<size_t> first_state, first_row;
  std::vector<std::atomic<int>> left(tiles.size());
  size_t n_states = 0, n_rows = 0;
  for (int i = 0; i < int(tiles.size()); i++) {
    left[i] = tiles[i].end_segment - tiles[i].segment;
    first_state.push_back(n_states), first_row.push_back(n_rows), n_rows += tiles[i].size();
    for (int s = tiles[i].segment; s < tiles[i].end_segment; s++, n_states += tiles[i].size()) parts.push_back({i, s, n_states});
  }
  float *states = states_.grown(n_states * width + n_rows * c.kv.head_dim), *laid = states + n_states * width;
  auto laid_of = [&](int tile) { return laid + first_row[tile] * c.kv.head_dim; };
  for_rows(int(tiles.size()), kAlone, [&](int i) {
    kernels_->attention_queries(c.kv, TileRows(c, tiles[i], laid_of(i)).rows);
  });
  for_rows(int(parts.size()), kAlone, [&](int i) {
    thread_local Scratch<float> memory;
    const Part& part = parts[i];
    const Tile& tile = tiles[part.tile];
    TileRows t(c, tile, laid_of(part.tile));
    float* totals = memory.grown(scratch_floats + size_t(tile.size()) * width);
    float* scratch = totals + size_t(tile.size()) * width;
    kernels_->attention_segment(c.kv, t.rows, part.segment, states + part.states * width, nullptr, scratch);
    if (left[part.tile].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    start(t, totals);
    for (int s = 0; s < tile.end_segment - tile.segment; s++)
      fold(t, states + (first_state[part.tile] + size_t(s) * tile.size()) * width, totals);
    finish(t, totals);
  });
}

}  // namespace gristmill
