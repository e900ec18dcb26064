// Re-lays weights for the kernels (see matrix.h).
#pragma once
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "arena.h"
#include "buffers.h"
#include "dequantize.h"
#include "matrix.h"
#include "threads.h"

namespace gristmill {

// A file no longer has what it had when it was opened.
struct FileChangedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A weight as its file stores it. `scales` belongs to MXFP4_SPLIT (bytes), Q8_GROUPS, FP8_GROUPS, INT8_ROWS
// and NVFP4 (float32; of the last two a stored row has one scale).
struct SourceWeight {
  Source source;
  int n_matrices, stored_rows, cols;
  const uint8_t* data;
  const void* scales;
  int group;                 // Q8_GROUPS, FP8_GROUPS: elements a scale
  const int32_t* row_order;  // null, or [rows]: which stored row is row r
  int rows;
  Pack quantize_to = Pack::kCount;  // Q8R, Q8_0, Q4_0 or MXFP4 for floats, kCount for what it is
  Pack shorter = Pack::kCount;      // what its floats are kept as if it has codes for them (shortened.h), kCount: what they are
  int file = -1;                    // whose map `data` lies in, from byte `offset` on
  int64_t offset = 0;
  std::string path = {};            // of that file, for errors
  bool widened = false;             // of float16: it was bfloat16, and is kept as that
  bool guessed = false;             // by some of its rows alone; who reads the others finds out (Panels::exact)
};

// A weight as kernels read it. A lazy one lies in its file at first, and each of its matrices (of experts there are many) is
// packed when it is used for the second time.
struct PackedMatrix {
  enum class State : uint8_t { New, Used, Packed };
  Matrix matrix;                               // data: null while none of it is packed
  std::shared_ptr<HugeBuffer> memory;
  std::shared_ptr<SourceWeight> source;        // until all of it is packed; then null
  std::vector<State> states;                   // of each matrix, until then

  bool packed(int m) const { return !source || states[m] == State::Packed; }
};

// Some matrices of a weight that are to be packed.
struct Due {
  PackedMatrix* weight;
  std::vector<int> matrices;
};

// The layout that `weight` is packed into; other than its own type where no kernel reads that one.
Pack pack_of(const SourceWeight& weight);

// As it is in its file, and whether it may stay there for now: what it is multiplied as must not depend on numbers that no one
// has read.
PackedMatrix unpacked(std::shared_ptr<SourceWeight> weight, const Kernels& kernels);
bool may_wait(const SourceWeight& weight);

// Of a weight of float16 that is to be kept as bfloat16 if it loses nothing by that: whether it does, as far as some of its
// rows show where there is one matrix, otherwise all of them. The second reads all of it, and forgets how it was laid.
void guess_widened(SourceWeight& weight, ThreadPool& pool, const Kernels& kernels);
void find_widened(PackedMatrix& weight, ThreadPool& pool, const Kernels& kernels);

// All of them in one parallel run. Of a weight for which may_wait is false, all matrices are due at once.
void pack(const std::vector<Due>& due, ThreadPool& pool, Arena& arena, const Kernels& kernels);

// Panels as kernels take them: [begin, end) of matrix `index` of `matrix`, whose first panel is number `first` of the weight's.
struct Panels {
  Matrix matrix;
  int index, begin, end, first;
  bool exact = true;  // false: of float16 that is no bfloat16, against what was guessed; these are not its numbers
};

// Reads panels [begin, end) of a weight's matrix in order: where they are packed, there; otherwise they are laid in `memory`,
// some at a time, as they are multiplied or, as_stored, in the type of their file. Both ends are groups' or the last panel's.
class PanelReader {
 public:
  struct Memory {
    Scratch<uint8_t> rows, panels;
    void release() { rows.release(), panels.release(); }
  };
  PanelReader(const PackedMatrix& w, int matrix, int begin, int end, const Kernels& kernels, Memory& memory,
              bool as_stored = false);
  ~PanelReader();
  // The next ones up to `end`, which hold until the next call.
  Panels read(int end);

 private:
  class Near;
  const PackedMatrix& w_;
  int index_, next_;
  std::unique_ptr<Near> near_;  // of those that are not packed
};

}  // namespace gristmill
