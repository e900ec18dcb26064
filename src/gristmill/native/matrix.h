// How a weight matrix lies in memory once packed, and what a kernel is handed. Plain structs, no behaviour but sizes.
//
// Rows are grouped in panels of 16; the 16 rows of a panel are interleaved, so that one vector register holds one number
// of each row and every output has a lane of its own. A panel is:
//
//   F32    cols x 16 float                         F16    cols x 16 half
//   BF16   cols/2 x 16 x 2 bfloat16
//   blocked types, for each block of 32 columns, first all quants of the panel, then all scales:
//     quants, 64 bytes a group; a group is 16 rows x 4 columns
//       Q8      8 groups of bytes, value + 128
//       nibbles 4 groups: group j in the low and group j + 4 in the high half of the bytes
//       Q5_K    nibbles, then 1 group whose bit j is the fifth bit of group j
//       Q6_K    nibbles, then 2 groups: bits 2(j % 4) of group j / 4 are the upper two bits of group j
//     scales, 16 (rows) of each
//       Q8_0, Q4_0  half            Q8F  float            MXFP4  E8M0 byte
//       Q4_K, Q5_K  scale byte, minimum byte; and after all blocks, for each 8 blocks: half d, half dmin
//       Q6_K        2 signed bytes (columns 0..15, 16..31); and after all blocks, for each 8 blocks: half d
#pragma once
#include <cstddef>
#include <cstdint>

namespace gristmill {

enum class Pack : int { F32, F16, BF16, Q8_0, Q8F, Q4_0, Q4_K, Q5_K, Q6_K, MXFP4, kCount };

constexpr int kLanes = 16;   // rows of a panel
constexpr int kBlock = 32;   // columns that share a scale

struct Matrix {
  Pack pack;
  int n_matrices;             // experts; 1 for a plain matrix
  int rows, cols;             // of one matrix
  const uint8_t* data;

  bool blocked() const { return pack >= Pack::Q8_0; }
  int n_panels() const { return (rows + kLanes - 1) / kLanes; }
  int n_blocks() const { return cols / kBlock; }
  size_t quant_bytes() const {  // of one panel
    switch (pack) {
      case Pack::F32: return size_t(cols) * kLanes * 4;
      case Pack::F16: return size_t(cols) * kLanes * 2;
      case Pack::BF16: return size_t(cols + 1) / 2 * kLanes * 4;
      case Pack::Q8_0:
      case Pack::Q8F: return size_t(n_blocks()) * 512;
      case Pack::Q5_K: return size_t(n_blocks()) * 320;
      case Pack::Q6_K: return size_t(n_blocks()) * 384;
      default: return size_t(n_blocks()) * 256;
    }
  }
  size_t scale_bytes() const {  // of one panel, the scales of scales not counted
    switch (pack) {
      case Pack::Q8_0:
      case Pack::Q4_0:
      case Pack::Q4_K:
      case Pack::Q5_K:
      case Pack::Q6_K: return size_t(n_blocks()) * kLanes * 2;
      case Pack::Q8F: return size_t(n_blocks()) * kLanes * 4;
      case Pack::MXFP4: return size_t(n_blocks()) * kLanes;
      default: return 0;
    }
  }
  size_t super_bytes() const {
    size_t n_super = size_t(n_blocks()) / 8;
    if (pack == Pack::Q4_K || pack == Pack::Q5_K) return n_super * kLanes * 4;
    return pack == Pack::Q6_K ? n_super * kLanes * 2 : 0;
  }
  size_t panel_bytes() const { return (quant_bytes() + scale_bytes() + super_bytes() + 63) / 64 * 64; }
  size_t matrix_bytes() const { return panel_bytes() * n_panels(); }
  size_t total_bytes() const { return matrix_bytes() * n_matrices; }
  const uint8_t* panel(int matrix, int p) const { return data + matrix_bytes() * matrix + panel_bytes() * p; }
};

// One row of activations in the form its weight's kernel reads, and where the results go.
struct Column {
  const float* x = nullptr;         // float32 [cols]
  const uint16_t* x_bf16 = nullptr; // bfloat16 [cols rounded up to even], zero beyond
  const int8_t* q = nullptr;        // int8 [cols]: x ~ q * scale
  const float* scale = nullptr;     // [cols / 32]
  const int32_t* sum = nullptr;     // [cols / 16]: sums of q
  float* y = nullptr;               // [rows]
};

// Attention over a paged cache; strides in elements. See ops.cpp for the arrays' shapes.
struct KvLayer {
  const void* k;   // [n_blocks, n_kv_heads, head_dim, 16]
  const void* v;   // [n_blocks, n_kv_heads, 16, v_dim]
  bool half;       // float16 or float32
  int n_kv_heads, head_dim, v_dim;
};

struct AttentionRows {
  const float* const* q;   // [n_rows] -> [head_dim], not yet scaled
  float* const* y;         // [n_rows] -> [head_dim]
  const int* position;     // [n_rows] absolute position of the row's token
  const float* sink;       // [n_rows] or null
  int n_rows, kv_head, window;
  const int32_t* blocks;   // block ids of the sequence
  float scale;
};

constexpr int kKvBlock = 16;     // positions in a block of the cache
constexpr int kMaxAttentionRows = 32;

// What one instruction set offers.
struct Kernels {
  const char* name;
  void (*linear[int(Pack::kCount)])(const Matrix& w, int matrix, int panel_begin, int panel_end, const Column* columns,
                                    int n_columns);
  void (*quantize)(const float* x, int n, int8_t* q, float* scale, int32_t* sum);
  void (*to_bf16)(const float* x, int n, uint16_t* y);
  void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* y);
  void (*swiglu)(const float* gate, const float* up, int n, float limit, float* y);
  void (*add)(const float* x, float* y, int n);                    // y += x
  void (*scaled_add)(const float* x, float a, float* y, int n);    // y += a x
  void (*attention)(const KvLayer& kv, const AttentionRows& rows, float* scratch);
  void (*to_half)(const float* x, int n, uint16_t* y);
  void (*from_half)(const uint16_t* x, int n, float* y);
};

const Kernels* kernels_portable();
const Kernels* kernels_avx2();
const Kernels* kernels_avx512();
const Kernels* kernels_neon();

}  // namespace gristmill
