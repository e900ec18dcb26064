// Turns rows of any stored type into blocks of another one, as formats/quantize*.py define. Knows no file.
#pragma once
#include <cstdint>
#include <string>

#include "dequantize.h"

namespace gristmill {

// Two blocks of Q4_K or Q5_K, lane j holding sub-block j: x = d scale q - d_min minimum.
struct LineFit {
  alignas(64) float d[16], d_min[16], scale[16], minimum[16], q[32][16];
};
// A block of Q6_K, lane j holding sub-block j: x = d scale q.
struct SymmetricFit {
  alignas(64) float d[16], scale[16], q[16][16];
};
// The searches, compiled for each instruction set. x[i] holds number i of each sub-block.
struct Fits {
  void (*lines)(const float (*x)[16], int n_levels, LineFit* fit);
  void (*symmetric)(const float (*x)[16], SymmetricFit* fit);
  void (*mxfp4)(const float* x, uint8_t* out);  // 32 numbers as a block of MXFP4
};

struct Kernels;
class ThreadPool;

// Whether all n numbers are finite and not too large for `target`.
bool fits(Source target, const float* x, int64_t n);

// x[n], whole blocks, as `target`: one of the types with blocks, or floats.
void quantize_row(Source target, const float* x, int64_t n, uint8_t* out, const Kernels& kernels);

// A tensor as its file stores it; rows of `cols` numbers.
struct SourceRows {
  Source source;
  const uint8_t* data;
  const void* scales;  // of types that keep them apart, see SourceWeight
  int64_t group;       // Q8_GROUPS, FP8_GROUPS: elements a scale
  int64_t cols;
};

// n elements of FP8_GROUPS from `first` of the tensor on, which begin at data; each `group` of the tensor's share a scale.
void dequantize_fp8(const uint8_t* data, const float* scales, int64_t group, int64_t first, int64_t n, float* out,
                    const Kernels& kernels);

// Throws std::invalid_argument where nothing quantizes to `target` or rows of `cols` numbers have no whole blocks of it.
void check_target(Source target, int64_t cols, int64_t group);

// Row rows[i] of x as `target` at out[i]; of Q8_GROUPS the scales of its groups go to `scales`, one after another.
// Returns the first i whose numbers are not finite or too large for `target`, -1 where there is none.
int64_t quantize_rows(const SourceRows& x, const int64_t* rows, int64_t n_rows, Source target, int64_t group, uint8_t* out,
                      float* scales, ThreadPool& pool, const Kernels& kernels);

}  // namespace gristmill
