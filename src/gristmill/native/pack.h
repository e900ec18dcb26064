// Re-lays weights for the kernels (see matrix.h) and reads single rows back.
#pragma once
#include <atomic>
#include <memory>
#include <thread>
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
  // Gives back whole pages from byte `first` on.
  void trim(size_t first);

 private:
  uint8_t* data_;   // at a huge page's start where it is as large as one
  void* mapped_;
  size_t mapped_bytes_;
};

// Gives matrices their memory, side by side: a buffer for each would waste most of its last huge page.
class Arena {
 public:
  struct Piece {
    uint8_t* data;                       // at a multiple of 64
    std::shared_ptr<HugeBuffer> memory;  // goes when the last piece of it has gone
  };
  Arena() = default;
  ~Arena() { stop_filling(); }

  // About so many bytes will be asked for. A thread clears the first of them while the caller does something else, until
  // the first allocation: by then they are needed at once. Said again before it, with less: the thread goes on to there.
  // 0: nothing more is to come, what is left over goes back.
  void expect(size_t bytes);
  size_t filled() const { return filled_; }  // bytes that the thread has cleared
  Piece allocate(size_t bytes);

 private:
  void stop_filling();

  std::shared_ptr<HugeBuffer> chunk_;
  size_t used_ = 0, size_ = 0;  // bytes of the chunk
  std::thread filler_;
  std::atomic<size_t> fill_to_{0}, filled_{0};
};

struct PackedMatrix {
  Matrix matrix;
  std::shared_ptr<HugeBuffer> memory;
};

// A weight as its file stores it. `scales` belongs to MXFP4_SPLIT (bytes), Q8_GROUPS and INT8_ROWS
// (float32; a stored row has one scale).
struct SourceWeight {
  Source source;
  int n_matrices, stored_rows, cols;
  const uint8_t* data;
  const void* scales;
  int group;                 // Q8_GROUPS: elements a scale
  const int32_t* row_order;  // null, or [rows]: which stored row is row r
  int rows;
  Pack quantize_to = Pack::kCount;  // Q8R, Q8_0, Q4_0 or MXFP4 for floats, kCount for what it is
  Pack lossless = Pack::kCount;     // what its floats are kept as if they lose nothing by it (shortened.h), kCount: what they are
  bool mapped = false;              // `data` lies in a file's map, whose pages may be dropped once they are read
};

// The layout that `weight` is packed into; other than its own type where no kernel reads that one.
Pack pack_of(const SourceWeight& weight);

// All of them in one parallel run, in order.
std::vector<PackedMatrix> pack(const std::vector<SourceWeight>& weights, ThreadPool& pool, Arena& arena, const Kernels& kernels);

// out[cols] = row `row` of matrix `matrix`, as float32.
void unpack_row(const Matrix& w, int matrix, int row, float* out);

}  // namespace gristmill
