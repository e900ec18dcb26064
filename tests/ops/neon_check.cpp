// Compares the NEON kernels with the portable ones over random weights of every layout; built for Arm by test_neon.py.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "half.h"
#include "pack.h"

using namespace gristmill;

static std::mt19937 rng(1);

static std::vector<float> normals(size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

static double worst(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, scale = 1e-6;
  for (size_t i = 0; i < a.size(); i++) {
    if (!(std::fabs(a[i] - b[i]) <= 1e30)) return 1e30;  // NaN or infinity
    most = std::max(most, double(std::fabs(a[i] - b[i]))), scale = std::max(scale, double(std::fabs(b[i])));
  }
  return most / scale;
}

static std::vector<uint8_t> random_weights(Source source, size_t n) {
  int bytes = source_block_bytes(source);
  std::vector<uint8_t> data(n / source_block(source) * bytes);
  for (uint8_t& b : data) b = uint8_t(rng());
  for (size_t at = 0; at < data.size(); at += bytes) {
    uint16_t small = float_to_half(0.001f), tiny = float_to_bf16(0.37f);
    auto put = [&](size_t offset, uint16_t v) { std::memcpy(&data[at + offset], &v, 2); };
    float x = float(int(rng() % 2000)) / 1000 - 1;
    if (source == Source::F32) std::memcpy(&data[at], &x, 4);
    if (source == Source::F16) put(0, float_to_half(x));
    if (source == Source::BF16) put(0, uint16_t(tiny ^ (rng() & 0x80ff)));
    switch (source) {
      case Source::Q8_0: case Source::Q4_0: case Source::Q5_0: case Source::IQ4_NL: case Source::IQ4_XS: put(0, small); break;
      case Source::Q1_0: case Source::Q2_0: put(0, small); break;
      case Source::IQ1_S: case Source::IQ2_XXS: case Source::IQ2_XS: case Source::IQ2_S: case Source::IQ3_XXS: case Source::IQ3_S:
        put(0, small);
        break;
      case Source::IQ1_M:  // the highest four bits of four words
        for (int i = 0; i < 4; i++) data[at + 49 + 2 * i] = uint8_t((data[at + 49 + 2 * i] & 15) | (small >> 4 * i & 15) << 4);
        break;
      case Source::TQ1_0: put(52, small); break;
      case Source::TQ2_0: put(64, small); break;
      case Source::Q4_1: case Source::Q5_1: put(0, small), put(2, float_to_half(-0.01f)); break;
      case Source::Q4_K: case Source::Q5_K: put(0, small), put(2, small); break;
      case Source::Q2_K: put(80, small), put(82, small); break;
      case Source::Q3_K: put(108, small); break;
      case Source::Q6_K: put(208, small); break;
      case Source::MXFP4: data[at] = uint8_t(118 + rng() % 6); break;
      case Source::NVFP4:
        for (int i = 0; i < 4; i++) data[at + i] &= 0x7f;
        break;
      default: break;
    }
  }
  return data;
}

// The weight packed, after its last group was laid near where it is multiplied: both alike, but for what is kept in fewer bits.
static PackedMatrix packed_by(const Kernels& kernels, const SourceWeight& weight, Arena& arena, bool& same) {
  ThreadPool pool(1);
  PackedMatrix w = unpacked(std::make_shared<SourceWeight>(weight), kernels);
  PanelReader::Memory memory;
  const int end = w.matrix.n_panels(), begin = (end - 1) / kGroup * kGroup;
  PanelReader reader(w, 0, begin, end, kernels, memory);
  const Panels near = reader.read(end);
  pack({{&w, {0}}}, pool, arena, kernels);
  if (weight.shorter != Pack::kCount) {
    same &= w.packed(0) && w.matrix.pack == weight.shorter;
    return w;
  }
  same &= w.packed(0) && near.first == begin && near.end == end - begin &&
          !std::memcmp(near.matrix.data, w.matrix.group(0, begin), w.matrix.panel_bytes() * near.end);
  return w;
}

static bool check_linear(Source source, const char* name, const Kernels& neon, const Kernels& portable,
                         Pack quantize_to = Pack::kCount, Pack shorter = Pack::kCount, int group = 64) {
  int rows = 70, cols = 512, n_columns = 7;
  std::vector<uint8_t> data = random_weights(source, size_t(rows) * cols);
  const float far = 1e4f;  // has no code in fewer bits
  if (shorter == Pack::F32_24) std::memcpy(&data[4 * 777], &far, 4);
  std::vector<float> scales(size_t(rows) * cols / group);
  for (float& scale : scales) scale = float(1 + rng() % 100) * 1e-5f;
  SourceWeight w{source, 1, rows, cols, data.data(), scales_apart(source) ? scales.data() : nullptr, group, nullptr, rows,
                 quantize_to, shorter};
  Arena arena;
  bool same = true;
  PackedMatrix packed = packed_by(portable, w, arena, same), again = packed_by(neon, w, arena, same);
  same &= !std::memcmp(packed.matrix.data, again.matrix.data, packed.matrix.total_bytes());  // quantized alike
  std::vector<float> x = normals(size_t(n_columns) * cols), results[2];
  double gap[2] = {0, 0};
  for (int n : {1, n_columns}) {
    int which = 0;
    for (const Kernels* kernels : {&portable, &neon}) {
      std::vector<float> y(size_t(n) * rows);
      int n_blocks = cols / kBlock;
      std::vector<ActivationBlock> blocks(size_t(n + kTileColumns - 1) / kTileColumns * n_blocks);
      std::vector<uint16_t> bf16(x.size());
      std::vector<Column> columns(n);
      for (int c = 0; c < n; c++) {
        size_t at = size_t(c) * cols;
        kernels->quantize_tile(&x[at], cols, packed.matrix.shared(), c % kTileColumns,
                               &blocks[size_t(c / kTileColumns) * n_blocks]);
        kernels->to_bf16(&x[at], cols, &bf16[at]);
        columns[c] = {&x[at], &bf16[at], &y[size_t(c) * rows]};
      }
      kernels->linear[int(packed.matrix.pack)](packed.matrix, 0, 0, packed.matrix.n_panels(), {columns.data(), blocks.data(), nullptr, n, 0});
      results[which++] = y;
    }
    gap[n > 1] = worst(results[1], results[0]);
  }
  bool good = same && gap[0] < 1e-5 && gap[1] < 1e-5;
  std::printf("%-8s vector %.1e matrix %.1e %s\n", name, gap[0], gap[1], good ? "ok" : "DIFFERS");
  return good;
}

// Both keep float16 in the same layout here; n_rows of one come from the cache in its own order, of the other in tiles.
static bool check_attention(const Kernels& neon, const Kernels& portable, int n_rows) {
  int head_dim = 24, v_dim = 32, n_keys = 100, width = v_dim + kStateHead;
  size_t block = 24 * 16 + 16 * 32;
  std::vector<float> kept = normals(8 * block), q = normals(size_t(n_rows) * head_dim);
  std::vector<uint16_t> cache(kept.size());
  portable.to_half(kept.data(), int(kept.size()), cache.data());
  KvLayer kv{reinterpret_cast<uint8_t*>(cache.data()), 0, 2 * block, KvType::F16, 1, head_dim, v_dim};
  std::vector<int32_t> blocks = {5, 0, 7, 2, 1, 3, 6, 4};
  std::vector<float> results[2], scratch(kv.scratch_floats()), laid(q.size());
  int which = 0;
  for (const Kernels* kernels : {&portable, &neon}) {
    std::vector<float> y(size_t(n_rows) * head_dim), states(size_t(n_rows) * width);
    std::vector<const float*> qs;
    std::vector<int> positions;
    for (int r = 0; r < n_rows; r++) qs.push_back(&q[size_t(r) * head_dim]), positions.push_back(n_keys - n_rows + r);
    AttentionRows rows{qs.data(), positions.data(), n_rows, 0, 1, 40, blocks.data(), 0.2f, laid.data()};
    kernels->attention_queries(kv, rows);
    kernels->attention_segment(kv, rows, 0, states.data(), nullptr, scratch.data());
    for (int r = 0; r < n_rows; r++) {
      std::vector<float> total(width);
      total[0] = 0.3f, total[1] = 1.0f;  // a sink
      kernels->attention_fold(&states[size_t(r) * width], v_dim, total.data());
      kernels->attention_finish(total.data(), head_dim, &y[size_t(r) * head_dim]);
    }
    results[which++] = y;
  }
  double gap = worst(results[1], results[0]);
  bool good = gap < 1e-4 && neon.bf16_step == 1 && portable.bf16_step == 1;
  std::printf("attention of %d rows %.1e %s\n", n_rows, gap, good ? "ok" : "DIFFERS");
  return good;
}

int main() {
  const Kernels *neon = kernels_neon(), *portable = kernels_portable();
  if (!neon) return std::printf("no dot-product extension here\n"), 2;
  struct Case {
    Source source;
    const char* name;
  };
  bool good = true;
  for (Case c : {Case{Source::F32, "f32"}, {Source::F16, "f16"}, {Source::BF16, "bf16"}, {Source::Q8_0, "q8_0"},
                 {Source::Q4_0, "q4_0"}, {Source::Q4_1, "q4_1"}, {Source::Q5_0, "q5_0"}, {Source::Q5_1, "q5_1"},
                 {Source::Q2_K, "q2_k"}, {Source::Q3_K, "q3_k"}, {Source::Q4_K, "q4_k"}, {Source::Q5_K, "q5_k"}, {Source::Q6_K, "q6_k"},
                 {Source::IQ1_S, "iq1_s"}, {Source::IQ1_M, "iq1_m"}, {Source::IQ2_XXS, "iq2_xxs"}, {Source::IQ2_XS, "iq2_xs"},
                 {Source::IQ2_S, "iq2_s"}, {Source::IQ3_XXS, "iq3_xxs"}, {Source::IQ3_S, "iq3_s"}, {Source::TQ1_0, "tq1_0"},
                 {Source::TQ2_0, "tq2_0"},
                 {Source::IQ4_NL, "iq4_nl"}, {Source::IQ4_XS, "iq4_xs"}, {Source::Q1_0, "q1_0"}, {Source::Q2_0, "q2_0"},
                 {Source::MXFP4, "mxfp4"}, {Source::INT8_ROWS, "int8"}, {Source::NVFP4, "nvfp4"},
                 {Source::Q8_GROUPS, "q8_groups"}})
    good &= check_linear(c.source, c.name, *neon, *portable);
  for (Pack pack : {Pack::Q8R, Pack::Q8_0})
    for (Source source : {Source::F32, Source::F16, Source::BF16})
      good &= check_linear(source, "quantized", *neon, *portable, pack);
  good &= check_linear(Source::Q8_GROUPS, "q8_groups of 32", *neon, *portable, Pack::kCount, Pack::kCount, 32);
  good &= check_linear(Source::F32, "f32_24", *neon, *portable, Pack::kCount, Pack::F32_24);
  good &= check_linear(Source::BF16, "bf16_12", *neon, *portable, Pack::kCount, Pack::BF16_12);
  good &= check_attention(*neon, *portable, 6) && check_attention(*neon, *portable, 23);
  std::vector<float> x = normals(50), w = normals(50), a(50), b(50);
  auto norm = [&](const Kernels* k, std::vector<float>& y) { k->rms_norm(x.data(), nullptr, nullptr, w.data(), 50, 1e-5f, y.data()); };
  norm(neon, a), norm(portable, b);
  good &= worst(a, b) < 1e-5;
  neon->swiglu(x.data(), w.data(), 50, 7, a.data()), portable->swiglu(x.data(), w.data(), 50, 7, b.data());
  good &= worst(a, b) < 1e-5;
  std::printf(good ? "all ok\n" : "FAILED\n");
  return good ? 0 : 1;
}
