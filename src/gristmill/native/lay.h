// Lays the rows of one group (matrix.h) the way the kernels read them. Knows no threads and no file.
#pragma once
#include <vector>

#include "dequantize.h"
#include "matrix.h"
#include "shortened.h"

namespace gristmill {

constexpr int kGroupRows = kGroup * kLanes;

// One row as stored, its scales beside it where its type keeps them apart.
struct StoredRow {
  const uint8_t* blocks;
  const uint8_t* e8m0;       // MXFP4 with the scales apart: one for each step; otherwise null
  const float* group_scales; // Q8F, Q8G: element i of the row has group_scales[(first_element + i) / group]
  int64_t first_element;
  int group;
  float scale;               // Q8R, NVFP4
};

// Where the bytes of one step of a group's panel are: the first of its sets, which are `stride` apart, and its scales.
template <class Byte>
struct Place {
  Byte *quants, *scales, *super;
  int stride, panel;
};

template <class Byte>
Place<Byte> place(const Matrix& m, Byte* group, int width, int in_group, int step) {
  Byte* quants = group + m.step_offset(width, step) + (step % kSuperSteps == 0 ? m.super_bytes() * width : 0);
  size_t set_bytes = m.quant_bytes() < 64 ? m.quant_bytes() : 64;
  return {quants + set_bytes * in_group, quants + m.quant_bytes() * width + m.scale_bytes() * in_group,
          group + m.step_offset(width, step / kSuperSteps * kSuperSteps) + m.super_bytes() * in_group, int(set_bytes) * width,
          in_group};
}

// A half of one of the four sets that eight steps of Q4_K or Q5_K have; at: the panel's place in `step`.
template <class Byte>
Byte* half_of_set(const Matrix& m, const Place<Byte>& at, int step, int set, int half) {
  const int width = at.stride / 64;
  const size_t step_bytes = (m.quant_bytes() + m.scale_bytes()) * width;
  Byte* scales = at.scales - step_bytes * (step % kSuperSteps);
  if (width < kGroup) return scales + step_bytes * (2 * set + half);
  return scales - m.scale_bytes() * at.panel + step_bytes * (2 * set + at.panel / 2) + 64 * (at.panel % 2) + 32 * half;
}

// What stands after a group's last step.
struct Tail {
  std::vector<uint8_t> bytes;
  int n_patches = 0;
  bool overflows = false;  // it has no room for all patches: the group cannot be laid so
};

// Of a row of a type that is shortened. Of bfloat16 as few powers of two below the largest number are left out as can be; where
// that is many numbers, large ones may go instead.
Base base_of(Pack pack, const uint8_t* row, int cols, const Kernels& kernels);

// Steps that are laid at once; lay_steps begins at a multiple of it.
int steps_at_once(Pack pack);

// Before the steps: all of the tail but patches. rows[width * 16], zeros where the matrix has no such row.
void begin_tail(const Matrix& m, const StoredRow* rows, int width, const Kernels& kernels, Tail& tail);

// Steps [begin, end) of all rows of a group, put at `to`, their patches at the end of the tail. From the first step to the last.
void lay_steps(const Matrix& m, const StoredRow* rows, uint8_t* to, int width, int begin, int end, const Kernels& kernels,
               Tail& tail);

}  // namespace gristmill
