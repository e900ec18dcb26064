// Re-lays weights for the kernels (see matrix.h) and reads single rows back.
#pragma once
#include <memory>
#include <vector>

#include "dequantize.h"
#include "matrix.h"
#include "threads.h"

namespace gristmill {

// Memory for weights, in huge pages where the system has them: a 4 KiB page costs a third of the read bandwidth.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_;   // at a huge page's start where it is as large as one
  void* mapped_;
  size_t mapped_bytes_;
};

// Gives matrices their memory, small ones side by side: a buffer for each would waste most of its last huge page.
class Arena {
 public:
  struct Piece {
    uint8_t* data;                       // at a multiple of 64
    std::shared_ptr<HugeBuffer> memory;  // goes when the last piece of it has gone
  };
  Piece allocate(size_t bytes);

 private:
  std::shared_ptr<HugeBuffer> chunk_;
  size_t used_ = 0;
};

struct PackedMatrix {
  Matrix matrix;
  std::shared_ptr<HugeBuffer> memory;
};

// A weight as its file stores it. `scales` belongs to MXFP4_SPLIT (bytes) and Q8_GROUPS (float32).
struct SourceWeight {
  Source source;
  int n_matrices, stored_rows, cols;
  const uint8_t* data;
  const void* scales;
  int group;                 // Q8_GROUPS: elements a scale
  const int32_t* row_order;  // null, or [rows]: which stored row is row r
  int rows;
};

// The layout that `weight` is packed into; other than its own type where no kernel reads that one.
Pack pack_of(const SourceWeight& weight);

// All of them in one parallel run, in order.
std::vector<PackedMatrix> pack(const std::vector<SourceWeight>& weights, ThreadPool& pool, Arena& arena);

// out[cols] = row `row` of matrix `matrix`, as float32.
void unpack_row(const Matrix& w, int matrix, int row, float* out);

}  // namespace gristmill
