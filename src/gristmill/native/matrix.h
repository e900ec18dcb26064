// How a weight matrix lies in memory once packed, and what a kernel is handed. Plain structs, no behaviour but sizes.
//
// Rows are taken 16 at a time: a panel. The 16 rows of a panel are interleaved, so that one vector register holds one
// number of each row and every output has a lane of its own. Up to four panels make a group, and a group is one unbroken
// stream: a step of its first panel, the same step of the others, then the next step. (Four streams a thread, and twelve
// with the scales apart, read a third slower: the processor's prefetcher starts anew in each.)
//
// A step is what shares a scale. For each step the group holds the quants, set by set and in each set panel by panel, then
// the scales of each panel:
//
//   type         step        quants of a panel                        scales of a panel
//   F32          1 column    16 float
//   F16          1 column    16 half
//   BF16         2 columns   16 x 2 bfloat16
//   F32_24, BF16_12: see shortened.h
//   Q8_0         32 columns  8 sets                                   16 half
//   Q8F          32          8 sets                                   16 float
//   Q8G          32          8 sets                                   none: see below
//   Q8R          32          8 sets                                   none: 16 float a panel, see below
//   Q4_0, IQ4_NL 32          nibbles                                  16 half
//   Q5_0         32          fifth bits, nibbles                      16 half
//   Q4_1         32          nibbles                                  16 half, 16 half that are added to each number
//   Q5_1         32          fifth bits, nibbles                      the same
//   MXFP4        32          nibbles                                  16 E8M0 bytes
//   Q2_K         32          lower bits of sets 0, 1, 4 and 5, lower   16 bytes for columns 0..15, 16 for 16..31: the
//                            bits of sets 2, 3, 6 and 7               minimum in the high half
//   Q3_K         32          third bits, lower bits of sets 0, 1, 4   16 signed bytes for columns 0..15, 16 for 16..31
//                            and 5, lower bits of sets 2, 3, 6 and 7
//   Q4_K         32          nibbles                                  half a set: see below
//   Q5_K         32          fifth bits, nibbles                      the same
//   IQ4_XS       32          nibbles                                  16 signed bytes
//   IQ3_S, IQ3_XXS as IQ4_XS, IQ2 and IQ1 as Q3_K: see grids.h
//   Q6_K         32          upper bits of sets 0, 1, 4 and 5, two    16 signed bytes for columns 0..15, 16 for 16..31
//                            sets of nibbles, upper bits of sets 2,
//                            3, 6 and 7, two sets of nibbles
//   Q1_0         32          bits                                     none: see below
//   Q2_0         32          lower bits as of Q2_K                    none
//   NVFP4        32          nibbles                                  16 bytes for columns 0..15, 16 for 16..31: m + 8 e is
//                                                                    (8 + m) 2^e, m under 8; e of 31 is 0
//
// A set is 16 rows x 4 columns of bytes (value + Matrix::zero); nibbles are 4 sets of bytes with set j in the low and set
// j + 4 in the high half; bits, also fifth and third ones, are a set of bytes whose bit j is that of set j; upper and lower
// bits a set of bytes with two bits of each, the first set's lowest. All lies in the order in which a kernel for one sequence
// reads it (blocked_steps_impl.h: set_at). Before every eighth step of the types from Q2_K on stand the scales of scales of each
// panel: 16 half d, of Q2_K also 16 half dmin; of NVFP4 16 float d; of Q1_0 and Q2_0 the scales themselves, 16 half for every
// four of those steps, or two, and of Q8G 16 float for every two. Eight steps of Q4_K and Q5_K have four sets of 16 rows x 4
// bytes for each panel: the scales of steps 0, 2, 1 and 3, those of 4, 6, 5 and 7, and the minima of 0 .. 3 and of 4 .. 7, which
// are multiplied by the sums of activations as quants are by activations. Each has six bits. The upper two of byte i of the four
// sets are byte i of 16 half d and 16 half dmin, the highest first. Set i lies in steps 2 i and 2 i + 1: of a whole group two
// panels' in each, of narrower ones half of each panel's. (Side by side before the eight steps they leave steps of whole KiB, and
// some memory is read a tenth slower in these.) After the last step of Q8R stand the scales of each panel's rows,
// 16 float; after that of shortened types each panel's bases, a word, then the group's patches.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gristmill {

enum class Pack : int {
  F32, F16, BF16, F32_24, BF16_12, Q8_0, Q8F, Q8R, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS,
  IQ3_S, IQ3_XXS, IQ2, IQ1, Q1_0, Q2_0, NVFP4, Q8G,
  kCount
};

constexpr bool has_fifth_bits(Pack pack) { return pack == Pack::Q5_0 || pack == Pack::Q5_1 || pack == Pack::Q5_K; }

// Which of a panel's sets is the k-th of nibbles.
constexpr int nibble_set(Pack pack, int k) { return has_fifth_bits(pack) ? k + 1 : pack == Pack::Q6_K ? k + 1 + k / 2 : k; }

constexpr int kLanes = 16;   // rows of a panel
constexpr int kBlock = 32;   // columns that share a scale
constexpr int kSuperSteps = 8;  // steps that share the scales of scales, where there are some

constexpr int kGroup = 4;    // panels in one stream

struct Matrix {
  Pack pack;
  int n_matrices;             // experts; 1 for a plain matrix
  int rows, cols;             // of one matrix
  const uint8_t* data;
  int zero = 0;               // what stands for 0 in the bytes of Q8, as its kernel wants it: 0 or 128

  bool blocked() const { return pack >= Pack::Q8_0; }
  bool shortened() const { return pack == Pack::F32_24 || pack == Pack::BF16_12; }
  // The type whose numbers these are.
  Pack plain() const { return pack == Pack::F32_24 ? Pack::F32 : pack == Pack::BF16_12 ? Pack::BF16 : pack; }
  bool super() const { return super_bytes() > 0 || pack == Pack::Q4_K || pack == Pack::Q5_K; }  // eight steps share scales
  bool shared() const { return super() && pack != Pack::Q8G; }  // activations have one scale in as many
  int n_panels() const { return (rows + kLanes - 1) / kLanes; }
  int n_groups() const { return (n_panels() + kGroup - 1) / kGroup; }  // of one matrix
  int n_steps() const {
    switch (pack) {
      case Pack::F32:
      case Pack::F16: return cols;
      case Pack::BF16: return (cols + 1) / 2;
      case Pack::F32_24: return cols / 4;
      case Pack::BF16_12: return cols / 8;
      default: return cols / kBlock;
    }
  }
  // Bytes of one panel in one step, and of its scales of scales in eight.
  size_t quant_bytes() const {
    switch (pack) {
      case Pack::F16: return 32;
      case Pack::F32:
      case Pack::BF16: return 64;
      case Pack::F32_24:
      case Pack::BF16_12: return 3 * 64;
      case Pack::Q8_0:
      case Pack::Q8F:
      case Pack::Q8G:
      case Pack::Q8R: return 512;
      case Pack::Q1_0: return 64;
      case Pack::Q2_0:
      case Pack::Q2_K: return 128;
      case Pack::Q3_K:
      case Pack::IQ2:
      case Pack::IQ1: return 192;
      case Pack::Q5_0:
      case Pack::Q5_1:
      case Pack::Q5_K: return 320;
      case Pack::Q6_K: return 384;
      default: return 256;
    }
  }
  size_t scale_bytes() const {
    if (!blocked()) return 0;
    switch (pack) {
      case Pack::Q8R:
      case Pack::Q8G:
      case Pack::Q1_0:
      case Pack::Q2_0: return 0;
      case Pack::IQ4_XS:
      case Pack::IQ3_S:
      case Pack::IQ3_XXS:
      case Pack::MXFP4: return 16;
      case Pack::Q8F:
      case Pack::Q4_1:
      case Pack::Q5_1: return 64;
      default: return 32;
    }
  }
  size_t super_bytes() const {
    switch (pack) {
      case Pack::Q1_0:
      case Pack::NVFP4:
      case Pack::Q2_K: return 64;
      case Pack::Q2_0: return 128;
      case Pack::Q8G: return 256;
      case Pack::Q3_K:
      case Pack::Q6_K:
      case Pack::IQ4_XS:
      case Pack::IQ3_S:
      case Pack::IQ3_XXS:
      case Pack::IQ2:
      case Pack::IQ1: return 32;
      default: return 0;
    }
  }
  // After a group's last step, of one panel.
  size_t tail_bytes() const { return pack == Pack::Q8R ? 64 : shortened() ? base_bytes() + patch_bytes() : 0; }
  static constexpr size_t base_bytes() { return 64; }
  size_t patch_bytes() const { return (size_t(cols) / 128 * 8 + 8 + 63) / 64 * 64; }
  size_t panel_bytes() const { return step_offset(1, n_steps()) + tail_bytes(); }
  size_t matrix_bytes() const { return (panel_bytes() * n_panels() + 63) / 64 * 64; }
  size_t total_bytes() const { return matrix_bytes() * n_matrices; }
  // Panels in the group of panel p; only the last group may have fewer than kGroup.
  int group_width(int p) const {
    int left = n_panels() - p / kGroup * kGroup;
    return left < kGroup ? left : kGroup;
  }
  size_t group_offset(int matrix, int p) const { return matrix_bytes() * matrix + panel_bytes() * (p / kGroup * kGroup); }
  const uint8_t* group(int matrix, int p) const { return data + group_offset(matrix, p); }
  // From a group's start to its step: the scales of scales where there are some, then the step's quants. n_steps() gives the
  // group's tail.
  size_t step_offset(int width, int step) const {
    return width * ((quant_bytes() + scale_bytes()) * step + super_bytes() * ((step + kSuperSteps - 1) / kSuperSteps));
  }
};

// 32 columns of up to kTileColumns rows of activations in int8, side by side. For weights with scales of scales kSuperSteps
// blocks have the same scale: x ~ q * scale. They keep the sums of their q as 128 h + l, four to a block: h of blocks 0..3 in
// block 0, h of 4..7 in block 1, l of 0..3 in block 2, l of 4..7 in block 3. For all others each block has a power of two of
// its own, since to multiply by that is to add to a float's exponent, which takes nothing from the multiplier: x ~ q * 2^n *
// scale, with n >= 0. Of these the last block's scale is the row's: kUnit, or NaN where the row has a number that is not finite
// or too large.
constexpr int kTileColumns = 4;
constexpr int kUnitExponent = -48, kMostRaise = 107;  // more, and the exponent of a sum of products would run over
constexpr float kUnit = 0x1p-48f;
struct alignas(64) ActivationBlock {
  int8_t q[kTileColumns][kBlock];
  float scale[kTileColumns];
  union {
    int8_t sums[kTileColumns][4];
    int32_t raise[kTileColumns];  // n << 23
  };
  int32_t start[2][kTileColumns];  // - the sum of q; in such eight what sums of columns 0..15 and 16..31 of Q6_K start with
};

// The same of 16 rows and kSuperSteps blocks, which share a scale whatever the weights are, for kernels that multiply so many
// at once. 64 columns of all rows lie together. The sums are those of blocks 0, 2, 1, 3, 4, 6, 5 and 7, and of the two halves
// of each in order. Beyond a row's end all is 0.
constexpr int kWideRows = 16;
struct alignas(64) WideBlock {
  int8_t q[kSuperSteps / 2][kWideRows][2 * kBlock];
  float scale[kWideRows];
  int16_t sums[kWideRows][kSuperSteps], halves[kWideRows][2 * kSuperSteps];
};

constexpr int kBesideF32 = 16, kBesideBf16 = 32;  // numbers between two rows: those a power of two apart would share cache sets

// One row of activations as the float kernels read it, and where its results go.
struct Column {
  const float* x;          // float32 [cols]
  const uint16_t* bf16;    // bfloat16 [cols rounded up to even], zero beyond; where Kernels::bf16_step is 2
  float* y;                // [rows]
};

// Rows of activations, in the forms that their weights need.
struct Columns {
  const Column* column;            // [n]
  const ActivationBlock* blocks;   // [n / kTileColumns rounded up, cols / 32]
  const WideBlock* wide;           // [n / kWideRows rounded up, cols / 256 rounded up] instead of blocks, or null
  int n;
  int first_row;                   // of y: where this matrix's results start

  // At most so many from `begin` on, a multiple of kTileColumns and of kWideRows. n_blocks: cols / 32.
  Columns some(int begin, int most, int n_blocks) const {
    const size_t n_wide = size_t(n_blocks + kSuperSteps - 1) / kSuperSteps;
    return {column + begin, blocks ? blocks + size_t(begin) / kTileColumns * n_blocks : nullptr,
            wide ? wide + size_t(begin) / kWideRows * n_wide : nullptr, n - begin < most ? n - begin : most, first_row};
  }
};

constexpr int kKvBlock = 16;           // positions in a block of the cache
constexpr int kNoId = -1;              // instead of a token, where none can be chosen
constexpr int kWeighChunk = 128;      // logits whose weights are summed first, so that a choice looks at few of them
constexpr int kSegment = 256;          // positions whose keys share one softmax; a row's segments are folded in order
constexpr int kScoreStride = kSegment + 16;  // floats from one row of scores to the next: a power of two would share cache sets
// Rows that one task computes together, at most and where there would be too few tasks. (What they meet is taken apart for each
// task anew.)
constexpr int kMaxAttentionRows = 264, kFewerAttentionRows = 96;
constexpr int kStreamRows = 16;        // up to so many rows a head, reading the cache takes longer than computing
constexpr int kStateHead = 16;         // floats before a state's output: the maximum (base 2), the sum, and none

enum class KvType : int { F32, F16, BF16, BF16_12, Q8_0 };

// Blocks whose keys lie together, and their values after them: as long a run as memory needs to be read at full speed. (The first
// runs are shorter: KvLayer.)
constexpr int kKvChunk = 16;

// One layer of the paged cache. A block of one head holds 16 positions:
//
//   type     keys                                                    values
//   F32      [head_dim, 16]                                          [16, v_dim]
//   F16      the same                                                the same
//   BF16     [head_dim / 2, 16, 2]                                   [8, v_dim, 2]
//   BF16_12  bases [16, 2], words [head_dim / 8, 3, 16, 2]           bases [16, 2], words [8, v_dim / 64, 3, 16, 2]
//   Q8_0     for every 32 dimensions [8, 16, 4] bytes (value + 128)  signed bytes [16 / step, v_dim, step], then half scales
//            and 16 half scales: a panel of Q8_0 weights             [v_dim / 32, 16]; step: Kernels::bf16_step
//
// BF16 stands in for F16 where the processor multiplies pairs of bfloat16 and heads are not small, BF16_12 where they have a
// multiple of 64 numbers: Ops::half_type. Its words (shortened.h) are the first three quarters of a head's numbers, which carry
// the last one. A position's numbers have one base, which stands twice: what is less than that, a 2^16th of the largest,
// becomes it.
constexpr int kKvBases = 64;  // bytes

// Chunks of 1, 1, 2, 4 and 8 blocks, then of kKvChunk, each of them of all layers side by side: few blocks touch few huge pages.
// A layer's chunk of n blocks is keys [n, n_kv_heads, k_bytes()], then values [n, n_kv_heads, v_bytes()].
struct KvLayer {
  uint8_t* memory;        // of all layers
  size_t before, stride;  // bytes of one block: of the layers before this one, of all layers
  KvType type;
  int n_kv_heads, head_dim, v_dim;

  uint8_t* keys(int block, int head) const {
    const int n = chunk_blocks(block);
    return chunk(block, n) + place(block, head, n) * k_bytes();
  }
  uint8_t* values(int block, int head) const {
    const int n = chunk_blocks(block);
    return chunk(block, n) + size_t(n) * n_kv_heads * k_bytes() + place(block, head, n) * v_bytes();
  }
  static int chunk_blocks(int block) { return block < kKvChunk ? 1 << (31 - __builtin_clz(block | 1)) : kKvChunk; }
  uint8_t* chunk(int block, int n) const { return memory + size_t(block & -n) * stride + n * before; }
  size_t place(int block, int head, int n) const { return size_t(block & (n - 1)) * n_kv_heads + head; }
  size_t block_bytes() const { return n_kv_heads * (k_bytes() + v_bytes()); }

  size_t bytes(int n) const {
    if (type == KvType::BF16_12) return kKvBases + size_t(n) * 24;
    return size_t(n) * (type == KvType::F32 ? 64 : type == KvType::Q8_0 ? 17 : 32);
  }
  size_t k_bytes() const { return bytes(head_dim); }
  size_t v_bytes() const { return bytes(v_dim); }
  // Floats of scratch memory that a segment of keys takes.
  size_t scratch_floats() const {
    const size_t plain = type == KvType::Q8_0 ? v_dim : type == KvType::BF16_12 ? (head_dim + v_dim) / 2 : 0;
    return size_t(kFewerAttentionRows) * kScoreStride + kSegment * plain + 16;
  }
};

struct AttentionRows {
  const float* const* q;   // [n_heads, n_rows] -> [head_dim], not yet scaled
  const int* position;     // [n_rows] absolute position of the row's token
  int n_rows;              // of each head
  int kv_head, n_heads;    // key-value heads; more than one only for up to kStreamRows rows
  int window;
  const int32_t* blocks;   // block ids of the sequence
  float scale;
  float* laid;             // [n_heads, n_rows, head_dim] queries as segments meet them
};

struct Peaks;  // machine.h
struct Fits;   // quantize.h
struct Shortening;  // shortened.h

// What one instruction set offers.
struct Kernels {
  const char* name;
  void (*linear[int(Pack::kCount)])(const Matrix& w, int matrix, int panel_begin, int panel_end, const Columns& columns);
  // out: [n / 32], of which it fills one lane. super: for a Matrix that is so.
  void (*quantize_tile)(const float* x, int n, bool super, int lane, ActivationBlock* out);
  // [n / 256 rounded up]; null where nothing takes 16 rows at once.
  void (*quantize_wide)(const float* x, int n, int lane, WideBlock* out);
  void (*quantize)(const float* x, int n, int8_t* q, float* scale, int32_t* sum);  // scale [n / 32], sum [n / 16]
  float (*quantize_row)(const float* x, int n, int8_t* q);  // a weight's row: one scale for all of it, which is returned
  void (*quantize_q8_0)(const float* x, int n, uint8_t* blocks);  // a weight's row as ggml's Q8_0 [n / 32, 34]
  void (*to_bf16)(const float* x, int n, uint16_t* y);
  // Of x, or of x + more, which total becomes.
  void (*rms_norm)(const float* x, const float* more, float* total, const float* weight, int n, float eps, float* y);
  void (*swiglu)(const float* gate, const float* up, int n, float limit, float* y);
  void (*add)(const float* x, float* y, int n);                    // y += x
  void (*scaled_add)(const float* x, float a, float* y, int n);    // y += a x
  void (*rotate)(float* x, const float* cos, const float* sin, int n);  // cos and sin [n / 2]
  int (*argmax)(const float* x, int n);  // the first of the largest; kNoId where that is not finite, or one is NaN
  // weights[i] = e^((logits[i] - peak) inverse), at least e^-87; their sums and the largest logit of each kWeighChunk.
  void (*weigh)(const float* logits, int n, float peak, float inverse, float* weights, float* chunk_sums, float* chunk_peaks);
  // The weights of logits of at least `bound` added up, and their number added to count.
  double (*weight_at_least)(const float* logits, const float* weights, int n, float bound, int64_t* count);
  void (*to_half)(const float* x, int n, uint16_t* y);
  void (*from_half)(const uint16_t* x, int n, float* y);
  void (*from_fp8)(const uint8_t* x, int n, float scale, float* y);  // E4M3 without infinities, times scale
  int byte_zero;    // Matrix::zero
  int bf16_step;    // 2 where bfloat16 is multiplied in pairs, otherwise 1
  // Lays the queries of some rows, once for all their segments.
  void (*attention_queries)(const KvLayer& kv, const AttentionRows& rows);
  // States [n_heads, n_rows, kStateHead + v_dim] of all rows over one segment of keys; where there are totals (of the same
  // shape) it is folded into them, and states are left undefined.
  void (*attention_segment)(const KvLayer& kv, const AttentionRows& rows, int segment, float* states, float* totals,
                            float* scratch);
  void (*attention_fold)(const float* state, int v_dim, float* total);
  void (*attention_finish)(const float* total, int n, float* y);
  const Peaks* peaks;
  const Fits* fits;
  const Shortening* shortening;
};

const Kernels* kernels_portable();
const Kernels* kernels_avx2();
const Kernels* kernels_avxvnni();
const Kernels* kernels_avx512();
const Kernels* kernels_avx512bf16();
const Kernels* kernels_amx();
const Kernels* kernels_neon();

}  // namespace gristmill
