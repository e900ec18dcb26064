#include "pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "half.h"

namespace gristmill {

static constexpr size_t kHugePage = size_t(2) << 20;

HugeBuffer::HugeBuffer(size_t bytes) : bytes_(std::max<size_t>(bytes, 64)) {
  if (bytes_ >= kHugePage) bytes_ = (bytes_ + kHugePage - 1) / kHugePage * kHugePage;
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(p);
#ifdef MADV_HUGEPAGE
  if (bytes_ >= kHugePage) madvise(p, bytes_, MADV_HUGEPAGE);  // before the first touch; later it does nothing
#endif
}

HugeBuffer::~HugeBuffer() { munmap(data_, bytes_); }

namespace {

// A row of blocks with 32 columns each, in the terms of matrix.h: unsigned quants and their scales.
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

  // Unsigned quants of block b in order of columns.
  void quants(int b, uint8_t* out) const {
    switch (pack) {
      case Pack::Q8_0:
        for (int i = 0; i < 32; i++) out[i] = uint8_t(row[size_t(b) * 34 + 2 + i] + 128);
        break;
      case Pack::Q8F:
        for (int i = 0; i < 32; i++) out[i] = uint8_t(row[size_t(b) * 32 + i] + 128);
        break;
      case Pack::Q4_0:
        for (int i = 0; i < 16; i++) {
          out[i] = row[size_t(b) * 18 + 2 + i] & 15;
          out[i + 16] = row[size_t(b) * 18 + 2 + i] >> 4;
        }
        break;
      case Pack::MXFP4:
        if (e8m0) {
          for (int i = 0; i < 16; i++) {
            out[2 * i] = row[size_t(b) * 16 + i] & 15;
            out[2 * i + 1] = row[size_t(b) * 16 + i] >> 4;
          }
        } else {
          for (int i = 0; i < 16; i++) {
            out[i] = row[size_t(b) * 17 + 1 + i] & 15;
            out[i + 16] = row[size_t(b) * 17 + 1 + i] >> 4;
          }
        }
        break;
      case Pack::Q4_K:
      case Pack::Q5_K: {
        bool fifth = pack == Pack::Q5_K;
        const uint8_t* block = row + size_t(b / 8) * (fifth ? 176 : 144);
        const uint8_t* q = block + (fifth ? 48 : 16) + 32 * (b % 8 / 2);
        for (int i = 0; i < 32; i++) {
          out[i] = q[i] >> (4 * (b % 2)) & 15;
          if (fifth) out[i] |= (block[16 + i] >> (b % 8) & 1) << 4;
        }
        break;
      }
      case Pack::Q6_K: {
        const uint8_t* block = row + size_t(b / 8) * 210;
        int part = b % 8 / 4, quarter = b % 4;
        for (int i = 0; i < 32; i++) {
          int lo = block[64 * part + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 15;
          int hi = block[128 + 32 * part + i] >> (2 * quarter) & 3;
          out[i] = uint8_t(lo | hi << 4);
        }
        break;
      }
      default: break;
    }
  }
};


// Lane r of the scales of block b, and of the scales of scales.
void put_scales(const RowReader& reader, const Matrix& m, int r, int b, uint8_t* scales, uint8_t* super) {
  const uint8_t* row = reader.row;
  switch (m.pack) {
    case Pack::Q8_0: std::memcpy(scales + (size_t(b) * kLanes + r) * 2, row + size_t(b) * 34, 2); break;
    case Pack::Q4_0: std::memcpy(scales + (size_t(b) * kLanes + r) * 2, row + size_t(b) * 18, 2); break;
    case Pack::Q8F: {
      const float* all = static_cast<const float*>(reader.w.scales);
      float s = all[(reader.first_element + int64_t(b) * kBlock) / reader.w.group];
      std::memcpy(scales + (size_t(b) * kLanes + r) * 4, &s, 4);
      break;
    }
    case Pack::MXFP4: scales[size_t(b) * kLanes + r] = reader.e8m0 ? reader.e8m0[b] : row[size_t(b) * 17]; break;
    case Pack::Q4_K:
    case Pack::Q5_K: {
      const uint8_t* block = row + size_t(b / 8) * (m.pack == Pack::Q5_K ? 176 : 144);
      uint8_t* out = scales + size_t(b) * kLanes * 2;
      k_scale_min(block + 4, b % 8, out + r, out + kLanes + r);
      if (b % 8 == 0) {
        std::memcpy(super + (size_t(b / 8) * 2 * kLanes + r) * 2, block, 2);
        std::memcpy(super + (size_t(b / 8) * 2 * kLanes + kLanes + r) * 2, block + 2, 2);
      }
      break;
    }
    case Pack::Q6_K: {
      const uint8_t* block = row + size_t(b / 8) * 210;
      uint8_t* out = scales + size_t(b) * kLanes * 2;
      out[r] = block[192 + 2 * (b % 8)];
      out[kLanes + r] = block[192 + 2 * (b % 8) + 1];
      if (b % 8 == 0) std::memcpy(super + (size_t(b / 8) * kLanes + r) * 2, block + 208, 2);
      break;
    }
    default: break;
  }
}

// Adds row r's quants of one block to the panel's groups.
void put_quants(const Matrix& m, int r, const uint8_t* q, uint8_t* groups) {
  if (m.pack == Pack::Q8_0 || m.pack == Pack::Q8F) {
    for (int j = 0; j < 8; j++) std::memcpy(groups + 64 * j + 4 * r, q + 4 * j, 4);
    return;
  }
  for (int j = 0; j < 4; j++)
    for (int k = 0; k < 4; k++) groups[64 * j + 4 * r + k] = uint8_t((q[4 * j + k] & 15) | (q[16 + 4 * j + k] & 15) << 4);
  if (m.pack == Pack::Q5_K) {
    for (int k = 0; k < 4; k++) {
      uint8_t bits = 0;
      for (int j = 0; j < 8; j++) bits |= uint8_t((q[4 * j + k] >> 4 & 1) << j);
      groups[256 + 4 * r + k] = bits;
    }
  } else if (m.pack == Pack::Q6_K) {
    for (int half = 0; half < 2; half++)
      for (int k = 0; k < 4; k++) {
        uint8_t bits = 0;
        for (int j = 0; j < 4; j++) bits |= uint8_t((q[16 * half + 4 * j + k] >> 4 & 3) << (2 * j));
        groups[256 + 64 * half + 4 * r + k] = bits;
      }
  }
}

void pack_blocked_row(const RowReader& reader, const Matrix& m, int r, uint8_t* panel) {
  uint8_t* scales = panel + m.quant_bytes();
  uint8_t* super = scales + m.scale_bytes();
  size_t group_bytes = m.quant_bytes() / m.n_blocks();
  uint8_t q[kBlock];
  for (int b = 0; b < m.n_blocks(); b++) {
    reader.quants(b, q);
    put_quants(m, r, q, panel + group_bytes * b);
    put_scales(reader, m, r, b, scales, super);
  }
}

void pack_plain_row(const RowReader& reader, const Matrix& m, int r, uint8_t* panel) {
  const uint8_t* row = reader.row;
  if (m.pack == Pack::F32) {
    for (int k = 0; k < m.cols; k++) std::memcpy(panel + (size_t(k) * kLanes + r) * 4, row + size_t(k) * 4, 4);
  } else if (m.pack == Pack::F16) {
    for (int k = 0; k < m.cols; k++) std::memcpy(panel + (size_t(k) * kLanes + r) * 2, row + size_t(k) * 2, 2);
  } else {
    for (int k = 0; k < m.cols; k++)
      std::memcpy(panel + (size_t(k / 2) * kLanes * 2 + 2 * r + k % 2) * 2, row + size_t(k) * 2, 2);
  }
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

PackedMatrix pack(const SourceWeight& weight, ThreadPool& pool) {
  Matrix m{pack_of(weight), weight.n_matrices, weight.rows, weight.cols, nullptr};
  auto memory = std::make_unique<HugeBuffer>(m.total_bytes());
  m.data = memory->data();
  uint8_t* base = memory->data();
  // A stretch of panels an item: row buffers are made once for each, and pages are touched in order.
  int panels_an_item = std::max(1, int((size_t(1) << 20) / m.panel_bytes()));
  int n_panels = m.n_panels() * m.n_matrices;
  pool.run((n_panels + panels_an_item - 1) / panels_an_item, [&](int item) {
    RowReader reader(weight, m.pack);
    for (int p = item * panels_an_item; p < std::min(n_panels, (item + 1) * panels_an_item); p++) {
      int matrix = p / m.n_panels(), first_row = p % m.n_panels() * kLanes;
      uint8_t* panel = base + m.matrix_bytes() * matrix + m.panel_bytes() * (p % m.n_panels());
      for (int r = 0; r < kLanes && first_row + r < m.rows; r++) {
        reader.seek(matrix, first_row + r);
        if (m.blocked()) pack_blocked_row(reader, m, r, panel);
        else pack_plain_row(reader, m, r, panel);
      }
    }
  });
  return {m, std::move(memory)};
}

void unpack_row(const Matrix& m, int matrix, int row, float* out) {
  const uint8_t* panel = m.panel(matrix, row / kLanes);
  int r = row % kLanes;
  auto f32 = [&](size_t i) { float v; std::memcpy(&v, panel + i * 4, 4); return v; };
  auto u16 = [&](const uint8_t* base, size_t i) { uint16_t v; std::memcpy(&v, base + i * 2, 2); return v; };
  if (m.pack == Pack::F32) {
    for (int k = 0; k < m.cols; k++) out[k] = f32(size_t(k) * kLanes + r);
    return;
  }
  if (m.pack == Pack::F16) {
    for (int k = 0; k < m.cols; k++) out[k] = half_to_float(u16(panel, size_t(k) * kLanes + r));
    return;
  }
  if (m.pack == Pack::BF16) {
    for (int k = 0; k < m.cols; k++) out[k] = bf16_to_float(u16(panel, size_t(k / 2) * kLanes * 2 + 2 * r + k % 2));
    return;
  }
  const uint8_t* scales = panel + m.quant_bytes();
  const uint8_t* super = scales + m.scale_bytes();
  size_t group_bytes = m.quant_bytes() / m.n_blocks();
  for (int b = 0; b < m.n_blocks(); b++, out += kBlock) {
    const uint8_t* groups = panel + group_bytes * b;
    const uint8_t* pair = scales + size_t(b) * kLanes * 2;
    for (int i = 0; i < kBlock; i++) {
      int j = i / 4, at = 4 * r + i % 4;
      int nibble = groups[64 * (j % 4) + at] >> (4 * (j / 4)) & 15;
      switch (m.pack) {
        case Pack::Q8_0: out[i] = float(groups[64 * j + at] - 128) * half_to_float(u16(pair, r)); break;
        case Pack::Q8F: {
          float s;
          std::memcpy(&s, scales + (size_t(b) * kLanes + r) * 4, 4);
          out[i] = float(groups[64 * j + at] - 128) * s;
          break;
        }
        case Pack::Q4_0: out[i] = float(nibble - 8) * half_to_float(u16(pair, r)); break;
        case Pack::MXFP4: out[i] = e8m0_half(scales[size_t(b) * kLanes + r]) * float(kMxfp4[nibble]); break;
        case Pack::Q4_K:
        case Pack::Q5_K: {
          const uint8_t* d = super + size_t(b / 8) * kLanes * 4;
          if (m.pack == Pack::Q5_K) nibble |= (groups[256 + at] >> j & 1) << 4;
          float dl = half_to_float(u16(d, r)) * float(pair[r]);
          out[i] = dl * float(nibble) - half_to_float(u16(d, kLanes + r)) * float(pair[kLanes + r]);
          break;
        }
        default: {  // Q6_K
          int hi = groups[256 + 64 * (j / 4) + at] >> (2 * (j % 4)) & 3;
          float d = half_to_float(u16(super + size_t(b / 8) * kLanes * 2, r));
          out[i] = d * float(int8_t(pair[kLanes * (i / 16) + r])) * float((nibble | hi << 4) - 32);
        }
      }
    }
  }
}

}  // namespace gristmill
