// Ops::store_qkv and Ops::attention: what goes into the key-value cache, and how reading it is divided between threads.
#include <algorithm>
#include <cstring>

#include "ops.h"

namespace gristmill {

namespace {

// Su et al., RoFormer (arXiv:2104.09864): turns the pair (x[i], x[i + n/2]) by the angle of i.
void rotate(float* x, const float* cos, const float* sin, int n) {
  int half = n / 2;
  for (int i = 0; i < half; i++) {
    float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

template <class Element>
void scatter(const Element* x, Element* cache, int n, size_t stride) {
  for (int i = 0; i < n; i++) cache[size_t(i) * stride] = x[i];
}

}  // namespace

void Ops::store_qkv(const StoreCall& c) {
  int n = c.kv.head_dim, n_kv = c.kv.n_kv_heads, width = (c.n_heads + 2 * n_kv) * n;
  for_rows(c.n_tokens, width, [&](int t) {
    const float *row = c.qkv + size_t(t) * width, *cos = c.cos + size_t(t) * (n / 2), *sin = c.sin + size_t(t) * (n / 2);
    size_t block = size_t(c.slots[t] / kKvBlock), offset = size_t(c.slots[t] % kKvBlock);
    thread_local std::vector<float> head;
    thread_local std::vector<uint16_t> half;
    head.resize(n), half.resize(n);
    for (int h = 0; h < c.n_heads + n_kv; h++) {
      bool is_q = h < c.n_heads;
      const float* norm = is_q ? c.q_norm : c.k_norm;
      float* x = is_q ? c.q + (size_t(t) * c.n_heads + h) * n : head.data();
      if (norm) kernels_->rms_norm(row + size_t(h) * n, norm, n, c.eps, x);
      else std::memcpy(x, row + size_t(h) * n, size_t(n) * 4);
      rotate(x, cos, sin, n);
      if (is_q) continue;
      size_t at = (block * n_kv + (h - c.n_heads)) * n * kKvBlock + offset;
      if (c.kv.half) {
        kernels_->to_half(x, n, half.data());
        scatter(half.data(), static_cast<uint16_t*>(c.k_cache) + at, n, kKvBlock);
      } else {
        scatter(x, static_cast<float*>(c.k_cache) + at, n, kKvBlock);
      }
    }
    for (int h = 0; h < n_kv; h++) {
      const float* v = row + size_t(c.n_heads + n_kv + h) * n;
      size_t at = ((block * n_kv + h) * kKvBlock + offset) * c.kv.v_dim;
      if (c.kv.half) kernels_->to_half(v, n, static_cast<uint16_t*>(c.v_cache) + at);
      else std::memcpy(static_cast<float*>(c.v_cache) + at, v, size_t(n) * 4);
    }
  });
}

void Ops::attention(const AttentionCall& c) {
  struct Item {
    int sequence, kv_head, first_row, n_rows;
  };
  int group = c.n_heads / c.kv.n_kv_heads, head_dim = c.kv.head_dim;
  int tile = kMaxAttentionRows / group >= 1 ? kMaxAttentionRows / group * group : kMaxAttentionRows;
  std::vector<Item> items;
  for (int s = 0; s < c.n_sequences; s++) {
    int n_rows = (c.query_start[s + 1] - c.query_start[s]) * group;
    // The last rows have the most keys to read: start with them.
    for (int first = (n_rows - 1) / tile * tile; first >= 0; first -= tile)
      for (int h = 0; h < c.kv.n_kv_heads; h++) items.push_back({s, h, first, std::min(tile, n_rows - first)});
  }
  for_rows(int(items.size()), kAlone, [&](int i) {
    const Item& item = items[i];
    const float* q[kMaxAttentionRows];
    float *y[kMaxAttentionRows], sink[kMaxAttentionRows];
    int position[kMaxAttentionRows];
    for (int r = 0; r < item.n_rows; r++) {
      int token = c.query_start[item.sequence] + (item.first_row + r) / group;
      int head = item.kv_head * group + (item.first_row + r) % group;
      size_t at = (size_t(token) * c.n_heads + head) * head_dim;
      q[r] = c.q + at, y[r] = c.y + at, position[r] = c.positions[token];
      if (c.sinks) sink[r] = c.sinks[head];
    }
    thread_local std::vector<float> scratch;
    scratch.resize(std::max(scratch.size(), size_t(4096) + size_t(kMaxAttentionRows) * c.kv.v_dim));
    AttentionRows rows{q, y, position, c.sinks ? sink : nullptr, item.n_rows, item.kv_head, c.window,
                       c.block_tables + size_t(item.sequence) * c.n_table, c.scale};
    kernels_->attention(c.kv, rows, scratch.data());
  });
}

}  // namespace gristmill
