// What this machine can do at best: bytes read from memory and multiply-adds a second. Knows nothing of models.
#pragma once
#include "arena.h"
#include "matrix.h"
#include "threads.h"

namespace gristmill {

// One instruction set's loops, on the same vector operations as its kernels. See peaks_impl.h.
struct Peaks {
  // n rounds of multiply-adds on accumulators that stay in registers; returns the operations done, two a multiply-add.
  double (*f32)(int64_t n_rounds);
  double (*bf16)(int64_t n_rounds);
  double (*int8)(int64_t n_rounds);
  // Loads every byte, in order; returns something of them. `bytes` is a multiple of 256.
  uint32_t (*read)(const uint8_t* data, size_t bytes);
};

// Memory that no cache holds, laid and read as packed weights are: huge pages, long stretches, a thread each.
class ReadTest {
 public:
  ReadTest(size_t bytes, ThreadPool& pool);
  // Bytes a second of one pass over all of it.
  double run(const Kernels& kernels, ThreadPool& pool) const;

 private:
  size_t bytes_;
  HugeBuffer buffer_;
};

// Operations a second of `loop` on all threads of the pool, working for about `seconds`.
double measure_peak(double (*loop)(int64_t n_rounds), ThreadPool& pool, double seconds);

}  // namespace gristmill
