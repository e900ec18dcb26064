#include "pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "half.h"

namespace gristmill {

static constexpr size_t kHugePage = size_t(2) << 20;

HugeBuffer::HugeBuffer(size_t bytes) : mapped_bytes_(bytes + 64) {
  if (bytes >= kHugePage) mapped_bytes_ += 2 * kHugePage;  // address space to align in; what is not touched costs nothing
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(mapped_);
  if (bytes < kHugePage) return;
  data_ += (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage) % kHugePage;
#ifdef MADV_HUGEPAGE
  size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  madvise(data_, whole, MADV_HUGEPAGE);  // before the first touch; later it does nothing
#endif
}

Arena::Piece Arena::allocate(size_t bytes) {
  constexpr size_t kChunk = 32 * kHugePage;
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > kChunk / 4) {
    auto own = std::make_shared<HugeBuffer>(bytes);
    return {own->data(), own};
  }
  if (!chunk_ || used_ + bytes > kChunk) {
    chunk_ = std::make_shared<HugeBuffer>(kChunk);
    used_ = 0;
  }
  used_ += bytes;
  return {chunk_->data() + used_ - bytes, chunk_};
}

HugeBuffer::~HugeBuffer() { munmap(mapped_, mapped_bytes_); }

namespace {

// One row of a weight after another, as it is stored or, where no kernel reads that, as Q8_0.
struct RowReader {
  const SourceWeight& w;
  Pack pack;
  std::vector<float> floats;       // a row dequantized, for types that are quantized again
  std::vector<uint8_t> requantized;
  const uint8_t* row = nullptr;    // the row's blocks
  const uint8_t* e8m0 = nullptr;   // MXFP4_SPLIT
  int64_t first_element = 0;       // of the row, in the flattened weight

  RowReader(const SourceWeight& weight, Pack target) : w(weight), pack(target) {}

  void seek(int matrix, int r) {
    int64_t stored = int64_t(matrix) * w.stored_rows + (w.row_order ? w.row_order[r] : r);
    first_element = stored * w.cols;
    row = w.data + first_element / source_block(w.source) * source_block_bytes(w.source);
    if (w.source == Source::MXFP4_SPLIT) e8m0 = static_cast<const uint8_t*>(w.scales) + first_element / kBlock;
    if (pack == Pack::Q8_0 && w.source != Source::Q8_0) requantize();
  }

  // ggml's Q8_0: scale = max |x| / 127 as half, quants rounded half away from zero with the unrounded scale.
  void requantize() {
    floats.resize(w.cols);
    requantized.resize(size_t(w.cols) / kBlock * 34);
    dequantize(w.source, row, w.cols, floats.data());
    for (int b = 0; b < w.cols / kBlock; b++) {
      const float* x = floats.data() + b * kBlock;
      uint8_t* out = requantized.data() + size_t(b) * 34;
      float peak = 0;
      for (int i = 0; i < kBlock; i++) peak = std::max(peak, std::fabs(x[i]));
      float d = peak / 127.0f, inverse = d ? 1.0f / d : 0.0f;
      uint16_t h = float_to_half(d);
      std::memcpy(out, &h, 2);
      for (int i = 0; i < kBlock; i++) out[2 + i] = uint8_t(int8_t(std::roundf(x[i] * inverse)));
    }
    row = requantized.data();
  }
};

// Where one panel's bytes of one step are: the first of its sets, which are `stride` apart, and its scales.
template <class Byte>
struct Place {
  Byte *quants, *scales, *super;
  int stride;
};

template <class Byte>
Place<Byte> place(const Matrix& m, Byte* group, int width, int in_group, int step) {
  Byte* quants = group + m.step_offset(width, step) + (step % 8 == 0 ? m.super_bytes() * width : 0);
  size_t set_bytes = std::min<size_t>(64, m.quant_bytes());
  return {quants + set_bytes * in_group, quants + m.quant_bytes() * width + m.scale_bytes() * in_group,
          group + m.step_offset(width, step / 8 * 8) + m.super_bytes() * in_group, int(set_bytes) * width};
}

// Lane r of the scales of block b, and of the scales of scales.
void put_scales(const RowReader& reader, const Matrix& m, int r, int b, const Place<uint8_t>& to) {
  const uint8_t* row = reader.row;
  switch (m.pack) {
    case Pack::Q8_0: std::memcpy(to.scales + 2 * r, row + size_t(b) * 34, 2); break;
    case Pack::Q4_0: std::memcpy(to.scales + 2 * r, row + size_t(b) * 18, 2); break;
    case Pack::Q8F: {
      const float* all = static_cast<const float*>(reader.w.scales);
      std::memcpy(to.scales + 4 * r, &all[(reader.first_element + int64_t(b) * kBlock) / reader.w.group], 4);
      break;
    }
    case Pack::MXFP4: to.scales[r] = reader.e8m0 ? reader.e8m0[b] : row[size_t(b) * 17]; break;
    case Pack::Q4_K:
    case Pack::Q5_K: {
      const uint8_t* block = row + size_t(b / 8) * (m.pack == Pack::Q5_K ? 176 : 144);
      k_scale_min(block + 4, b % 8, to.scales + r, to.scales + kLanes + r);
      if (b % 8 == 0) {
        std::memcpy(to.super + 2 * r, block, 2);
        std::memcpy(to.super + 2 * (kLanes + r), block + 2, 2);
      }
      break;
    }
    case Pack::Q6_K: {
      const uint8_t* block = row + size_t(b / 8) * 210;
      to.scales[r] = block[192 + 2 * (b % 8)];
      to.scales[kLanes + r] = block[192 + 2 * (b % 8) + 1];
      if (b % 8 == 0) std::memcpy(to.super + 2 * r, block + 208, 2);
      break;
    }
    default: break;
  }
}

// Four bytes of a row: its share of a set.
uint32_t four(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// The low (shift 0) or high (shift 4) halves of columns 0..15 beside those of columns 16..31, as nibbles lie in sets.
void put_nibbles(const uint8_t* q, int shift, const Place<uint8_t>& to, uint8_t* lane) {
  constexpr uint32_t kLow = 0x0f0f0f0f;
  for (int j = 0; j < 4; j++) {
    uint32_t v = (four(q + 4 * j) >> shift & kLow) | (four(q + 16 + 4 * j) >> shift & kLow) << 4;
    std::memcpy(lane + to.stride * j, &v, 4);
  }
}

// Row r's quants of block b.
void put_quants(const RowReader& reader, const Matrix& m, int r, int b, const Place<uint8_t>& to) {
  const uint8_t* row = reader.row;
  uint8_t* lane = to.quants + 4 * r;
  switch (m.pack) {
    case Pack::Q8_0:
    case Pack::Q8F: {
      const uint8_t* q = row + (m.pack == Pack::Q8_0 ? size_t(b) * 34 + 2 : size_t(b) * 32);
      for (int j = 0; j < 8; j++) {
        uint32_t v = four(q + 4 * j) ^ 0x80808080;  // + 128
        std::memcpy(lane + to.stride * j, &v, 4);
      }
      break;
    }
    case Pack::Q4_0:
    case Pack::MXFP4: {
      uint8_t mixed[16];
      const uint8_t* q = row + (m.pack == Pack::Q4_0 ? size_t(b) * 18 + 2 : size_t(b) * 17 + 1);
      if (reader.e8m0) {  // neighbours share a byte
        q = row + size_t(b) * 16;
        for (int i = 0; i < 8; i++) {
          mixed[2 * i] = uint8_t((q[i] & 15) | q[i + 8] << 4);
          mixed[2 * i + 1] = uint8_t(q[i] >> 4 | (q[i + 8] & 0xf0));
        }
        q = mixed;
      }
      for (int j = 0; j < 4; j++) std::memcpy(lane + to.stride * j, q + 4 * j, 4);
      break;
    }
    case Pack::Q4_K:
    case Pack::Q5_K: {
      bool fifth = m.pack == Pack::Q5_K;
      const uint8_t* block = row + size_t(b / 8) * (fifth ? 176 : 144);
      put_nibbles(block + (fifth ? 48 : 16) + 32 * (b % 8 / 2), 4 * (b % 2), to, lane);
      if (!fifth) break;
      uint32_t bits = 0;
      for (int j = 0; j < 8; j++) bits |= (four(block + 16 + 4 * j) >> (b % 8) & 0x01010101) << j;
      std::memcpy(lane + to.stride * 4, &bits, 4);
      break;
    }
    case Pack::Q6_K: {
      const uint8_t* block = row + size_t(b / 8) * 210;
      int part = b % 8 / 4, quarter = b % 4;
      put_nibbles(block + 64 * part + 32 * (quarter % 2), 4 * (quarter / 2), to, lane);
      for (int half = 0; half < 2; half++) {
        uint32_t bits = 0;
        const uint8_t* high = block + 128 + 32 * part + 16 * half;
        for (int j = 0; j < 4; j++) bits |= (four(high + 4 * j) >> (2 * quarter) & 0x03030303) << (2 * j);
        std::memcpy(lane + to.stride * (4 + half), &bits, 4);
      }
      break;
    }
    default: break;
  }
}

void pack_blocked_row(const RowReader& reader, const Matrix& m, int r, uint8_t* group, int width, int in_group) {
  for (int b = 0; b < m.n_steps(); b++) {
    Place<uint8_t> to = place(m, group, width, in_group, b);
    put_quants(reader, m, r, b, to);
    put_scales(reader, m, r, b, to);
  }
}

// Columns of `Size` bytes, `together` of them in a step.
template <int Size>
void pack_plain_row(const uint8_t* row, const Matrix& m, int r, uint8_t* group, int width, int in_group, int together) {
  uint8_t* to = group + m.quant_bytes() * in_group + size_t(r) * Size * together;
  for (int k = 0; k < m.cols; k += together, to += m.quant_bytes() * width)
    for (int i = 0; i < together && k + i < m.cols; i++) std::memcpy(to + Size * i, row + size_t(k + i) * Size, Size);
}

void pack_row(const RowReader& reader, const Matrix& m, int r, uint8_t* group, int width, int in_group) {
  if (m.blocked()) pack_blocked_row(reader, m, r, group, width, in_group);
  else if (m.pack == Pack::F32) pack_plain_row<4>(reader.row, m, r, group, width, in_group, 1);
  else pack_plain_row<2>(reader.row, m, r, group, width, in_group, m.pack == Pack::BF16 ? 2 : 1);
}

}  // namespace

Pack pack_of(const SourceWeight& w) {
  switch (w.source) {
    case Source::F32: return Pack::F32;
    case Source::F16: return Pack::F16;
    case Source::BF16: return Pack::BF16;
    case Source::Q4_0: return Pack::Q4_0;
    case Source::Q4_K: return Pack::Q4_K;
    case Source::Q5_K: return Pack::Q5_K;
    case Source::Q6_K: return Pack::Q6_K;
    case Source::MXFP4:
    case Source::MXFP4_SPLIT: return Pack::MXFP4;
    case Source::Q8_GROUPS: return Pack::Q8F;
    default: return Pack::Q8_0;
  }
}

PackedMatrix pack(const SourceWeight& weight, ThreadPool& pool, Arena& arena) {
  Matrix m{pack_of(weight), weight.n_matrices, weight.rows, weight.cols, nullptr};
  Arena::Piece piece = arena.allocate(m.total_bytes());
  m.data = piece.data;
  uint8_t* base = piece.data;
  // A stretch of groups an item: row buffers are made once for each, and pages are touched in order.
  int groups_a_matrix = (m.n_panels() + kGroup - 1) / kGroup, n_groups = groups_a_matrix * m.n_matrices;
  int groups_an_item = std::max(1, int((size_t(1) << 20) / (m.panel_bytes() * kGroup)));
  pool.run((n_groups + groups_an_item - 1) / groups_an_item, [&](int item) {
    RowReader reader(weight, m.pack);
    for (int g = item * groups_an_item; g < std::min(n_groups, (item + 1) * groups_an_item); g++) {
      int matrix = g / groups_a_matrix, panel = g % groups_a_matrix * kGroup, width = m.group_width(panel);
      uint8_t* group = base + (m.group(matrix, panel) - m.data);
      for (int r = 0; r < width * kLanes && panel * kLanes + r < m.rows; r++) {
        reader.seek(matrix, panel * kLanes + r);
        pack_row(reader, m, r % kLanes, group, width, r / kLanes);
      }
    }
  });
  return {m, piece.memory};
}

namespace {

uint16_t u16_at(const uint8_t* base, int i) {
  uint16_t v;
  std::memcpy(&v, base + 2 * i, 2);
  return v;
}

float f32_at(const uint8_t* base, int i) {
  float v;
  std::memcpy(&v, base + 4 * i, 4);
  return v;
}

// Column i of row r of a block.
float unpack_one(Pack pack, const Place<const uint8_t>& at, int r, int i) {
  int j = i / 4, lane = 4 * r + i % 4;
  int nibble = at.quants[at.stride * (j % 4) + lane] >> (4 * (j / 4)) & 15;
  switch (pack) {
    case Pack::Q8_0: return float(at.quants[at.stride * j + lane] - 128) * half_to_float(u16_at(at.scales, r));
    case Pack::Q8F: return float(at.quants[at.stride * j + lane] - 128) * f32_at(at.scales, r);
    case Pack::Q4_0: return float(nibble - 8) * half_to_float(u16_at(at.scales, r));
    case Pack::MXFP4: return e8m0_half(at.scales[r]) * float(kMxfp4[nibble]);
    case Pack::Q4_K:
    case Pack::Q5_K: {
      if (pack == Pack::Q5_K) nibble |= (at.quants[at.stride * 4 + lane] >> j & 1) << 4;
      float scale = half_to_float(u16_at(at.super, r)) * float(at.scales[r]);
      return scale * float(nibble) - half_to_float(u16_at(at.super, kLanes + r)) * float(at.scales[kLanes + r]);
    }
    default: {  // Q6_K
      int high = at.quants[at.stride * (4 + j / 4) + lane] >> (2 * (j % 4)) & 3;
      float scale = half_to_float(u16_at(at.super, r)) * float(int8_t(at.scales[kLanes * (i / 16) + r]));
      return scale * float((nibble | high << 4) - 32);
    }
  }
}

}  // namespace

void unpack_row(const Matrix& m, int matrix, int row, float* out) {
  int panel = row / kLanes, r = row % kLanes, width = m.group_width(panel);
  const uint8_t* group = m.group(matrix, panel);
  for (int step = 0; step < m.n_steps(); step++) {
    Place<const uint8_t> at = place(m, group, width, panel % kGroup, step);
    if (m.blocked()) {
      for (int i = 0; i < kBlock; i++) *out++ = unpack_one(m.pack, at, r, i);
    } else if (m.pack == Pack::F32) {
      *out++ = f32_at(at.quants, r);
    } else if (m.pack == Pack::F16) {
      *out++ = half_to_float(u16_at(at.quants, r));
    } else {
      for (int k = 2 * step; k < std::min(m.cols, 2 * step + 2); k++) *out++ = bf16_to_float(u16_at(at.quants, 2 * r + k % 2));
    }
  }
}

}  // namespace gristmill
