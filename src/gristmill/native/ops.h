// The operations of gristmill.ops.interface on a thread pool: they divide the work, the kernels do it.
// Every pointer is row-major and contiguous; shapes have been checked by the bindings.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "buffers.h"
#include "matrix.h"
#include "pack.h"
#include "sample.h"
#include "threads.h"

namespace gristmill {

// y = x W^T + bias, with W's rows stacked from parts that may differ in type (q, k and v; gate and up).
struct Linear {
  std::vector<std::shared_ptr<PackedMatrix>> parts;
  std::vector<float> bias;  // [n_matrices * rows], or empty

  int rows() const;
  int cols() const { return parts[0]->matrix.cols; }
  int n_matrices() const { return parts[0]->matrix.n_matrices; }
  bool packed() const;  // all of it
};

// One layer of the cache. Layers share their memory.
struct KvStore {
  KvLayer layer;
  int n_blocks;
  std::shared_ptr<HugeBuffer> memory;
};

std::vector<std::shared_ptr<KvStore>> make_kv_layers(const KvLayer& shape, int n_layers, int n_blocks);

struct AttentionCall {
  const float* q;                // [T, n_heads, head_dim]
  float* y;                      // [T, n_heads, head_dim]
  const int32_t* positions;      // [T]
  const int32_t* query_start;    // [S + 1]
  const int32_t* block_tables;   // [S, n_table]
  const float* sinks;            // [n_heads] or null
  KvLayer kv;
  int n_sequences, n_table, n_heads, window;
  float scale;
};

struct StoreCall {
  const float* qkv;              // [T, (n_heads + 2 n_kv_heads) * head_dim]
  const float *q_norm, *k_norm;  // [head_dim] or null
  const float *cos, *sin;        // [T, head_dim / 2]
  const int32_t* slots;          // [T]
  float* q;                      // [T, n_heads, head_dim]
  KvLayer kv;
  int n_tokens, n_heads;
  float eps;
};

struct MoeCall {
  const float* x;                // [T, d_model]
  const float* router;           // [T, n_experts] logits
  const Linear *gate_up, *down;  // [n_experts, 2 d_ff, d_model], [n_experts, d_model, d_ff]
  float* y;                      // [T, d_model]
  int n_tokens, n_active;
  float limit;
};

// Rows that a product begins with: those of x, or the rms_norm of x, or of x + more, which total becomes.
struct Rows {
  const float* x;                // [n_rows, n]
  const float* norm = nullptr;   // [n]
  float eps = 0;
  const float* more = nullptr;   // [n_rows, n]
  float* total = nullptr;
};

// Work on fewer numbers than this is done by the calling thread: waking another would take longer.
constexpr int64_t kAlone = 16384;

// Columns of an item, the least that threads share of a matrix; and of what waits for SwiGLU where quants are taken apart into
// tiles for all columns at once.
constexpr int kColumnsOfItem = 128, kColumnsOfTiles = 512;

// From so many columns on kernels for 16 at once are faster, where there are some: for quants of less than a byte, and for bytes.
constexpr int kWideFrom = 5, kWideFromOfBytes = 4;

struct SampleCall {
  const float* logits;           // [R, vocab_size]
  const float* temperature;      // [R], and so on: see sample.h
  const int32_t* top_k;
  const float *top_p, *min_p;
  const uint64_t* seed;
  const int64_t* position;
  const float* penalties;        // [R, 3] repetition, presence, frequency, or null
  const int32_t* listed_start;   // [R + 1], or null where no row has adjustments
  const int32_t *listed_ids, *listed_counts;
  const float* listed_bias;      // [N] each
  const uint32_t* masks;         // [R, (vocab_size + 31) / 32] or null
  int32_t* ids;                  // [R]
  int n_rows, vocab_size, n_listed;
};

struct LogprobsCall {
  const float* logits;           // [R, vocab_size]
  const int32_t* ids;            // [R]
  double* logprobs;              // [R]
  int32_t *ranks, *top_ids;      // [R], [R, n_top]
  double* top_logprobs;          // [R, n_top]
  int n_rows, vocab_size, n_top;
};

class Ops {
 public:
  // isa: "auto" or the name of an instruction set; throws std::invalid_argument where the machine lacks it.
  Ops(int n_threads, const std::string& isa);

  const char* isa() const { return kernels_->name; }
  const Kernels& kernels() const { return *kernels_; }
  // What a cache of 16 bits a number holds. Small heads gain no speed from bfloat16 and lose the most by it.
  KvType half_type(int head_dim) const {
    if (kernels_->bf16_step != 2 || head_dim < 32) return KvType::F16;
    return head_dim % 64 ? KvType::BF16 : KvType::BF16_12;
  }
  ThreadPool& pool() { return pool_; }
  std::mutex& busy() { return busy_; }  // held by whoever calls any of the following
  // Each as it lies in its file; those that may not wait there, all of them where nothing is lazy, are packed.
  std::vector<std::shared_ptr<PackedMatrix>> put(const std::vector<std::shared_ptr<SourceWeight>>& weights, bool lazy);
  double packing_s() const { return double(packing_ns_) * 1e-9; }  // that products have waited for weights to be packed
  // Packs one matrix of each part that is not packed yet.
  void pack(const Linear& w, int matrix) { pack_used(w, {matrix}, PackedMatrix::State::New); }

  void linear(const Rows& x, int n_rows, const Linear& w, float* y);
  // swiglu of the products with w's two parts, gate and up, of rows() / 2 rows each.
  void gated_linear(const Rows& x, int n_rows, const Linear& w, float limit, float* y);
  void embed(const Linear& w, const int32_t* tokens, int n_tokens, float* y);
  void rms_norm(const Rows& x, int n_rows, int n, float* y);
  void add(const float* x, const float* z, int64_t n, float* y);
  // cos, sin: [n_tokens, n]
  void rope_angles(const int32_t* positions, int n_tokens, const float* inv_freq, int n, float scale, float* cos, float* sin);
  void store_qkv(const StoreCall& call);
  // before: what has still to be done for these queries, and is done on the way where that is faster; its q is then not written.
  void attention(const AttentionCall& call, const StoreCall* before = nullptr);
  void moe(const MoeCall& call);
  void sample(const SampleCall& call);
  void logprobs(const LogprobsCall& call);

 private:
  // Rows of activations in each form that the parts of a weight need.
  struct Activations {
    std::vector<ActivationBlock> int8[2];  // [whether blocks share scales]
    std::vector<WideBlock> wide;           // instead of them, where tile_columns is kWideRows
    std::vector<float> f32;
    std::vector<uint16_t> bf16;
    std::vector<Column> columns;
    int tile_columns = kTileColumns;
  };
  // A part of a weight that meets some columns, or gate, and then up with `other`. Its items, which threads share: groups of
  // panels, and of each chunks of columns, one after the other.
  struct Task {
    const Linear* w;
    int matrix, part;
    Columns columns, other;
    int n_chunks, first_item, end_item;
  };
  // Panels of a task with n columns from `first` on.
  struct Block {
    int panel, panel_end, first, n;
  };

  // So many columns are quantized side by side where a matrix meets n of them.
  int tile_columns(int n, const Linear& w) const;
  int columns_before_swiglu() const { return kernels_->quantize_wide ? kColumnsOfTiles : kColumnsOfItem; }
  // Whether blocks of activations that meet m share scales.
  bool shared(const Matrix& m) const { return kernels_->quantize_wide || m.shared(); }
  // Row i of x; where it is normalized, that is in `normed`.
  const float* row_of(const Rows& x, int i, int n, float* normed) const;
  // Column i is row rows[i] of x (row i where rows is null); nothing where that is negative.
  void prepare(const Rows& x, const int* rows, int n_columns, int tile_columns, const Linear& w, Activations& out);
  Columns columns_of(const Matrix& m, const Activations& x, int first, int n) const;
  // Add the tasks of n_columns columns from `first` on, a multiple of x.tile_columns: of all parts, or of gate and up together.
  void plan(const Linear& w, int matrix, const Activations& x, int first, int n_columns);
  void plan_gated(const Linear& w, int matrix, const Activations& x, int first, int n_columns);
  void plan_part(const Linear& w, int matrix, int part, const Columns& columns, const Columns& other);
  // Does all tasks that were added.
  void run();
  void run_gated(float limit);
  void run_tasks(const std::function<void(const Task&, const Block&)>& body);
  Block take_block(const Task& t, int& begin, int end) const;
  // Packs those of these matrices that have been used before, or, where `least` is New, all that are not packed; the others are
  // used now.
  void pack_used(const Linear& w, const std::vector<int>& matrices, PackedMatrix::State least = PackedMatrix::State::Used);
  // After all of w has been multiplied as it lies in its file: whether what was guessed of it was wrong. It is known then.
  bool guessed_wrong(const Linear& w);
  void multiply(const Linear& w, int matrix, int part, const Panels& panels, const Columns& columns) const;
  void for_rows(int n_rows, int64_t cost, const std::function<void(int)>& body);

  std::mutex busy_;
  ThreadPool pool_;
  Arena arena_;
  const Kernels* kernels_;
  std::atomic<int64_t> packing_ns_{0};
  std::atomic<bool> guessed_wrong_{false};
  Activations input_;
  std::vector<float> hidden_rows_, out_;  // of experts
  std::vector<Task> tasks_;
  Spares<RowMemory> rows_;  // of logits
  Scratch<float> states_;  // of attention that is divided by segments
};

}  // namespace gristmill
