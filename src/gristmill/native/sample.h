// Choosing tokens from logits, and their log-probabilities. Randomness depends on (seed, position) alone.
#pragma once
#include <cstdint>
#include <vector>

#include "matrix.h"

namespace gristmill {

// What changes a row's logits before a token is chosen. Each listed id gets its bias; then those that were seen (count of
// 0: in the prompt alone, n: n times in the output, -1: not seen) get the penalties.
struct Adjustments {
  const int32_t *ids, *counts;  // [n]
  const float* bias;            // [n]
  int n;
  float repetition, presence, frequency;  // 1, 0, 0: none
  const uint32_t* mask;                   // a bit for each id that is allowed, or null
};

struct SampleParams {
  float temperature;  // 0: greedy
  int32_t top_k;      // 0: all
  float top_p, min_p;
  uint64_t seed;
  int64_t position;   // of the token being chosen
};

// Memory for one row of logits at a time.
struct RowMemory {
  std::vector<float> adjusted, weights, sums, peaks;
  std::vector<int32_t> ids;
};

// A number in [0, 1) with 53 random bits, a function of its arguments alone.
double uniform(uint64_t seed, uint64_t position);

// Copies logits [n] to y, adjusted.
void adjust(const float* logits, int n, const Adjustments& adjustments, float* y);

// kNoId where a logit is NaN, or the largest not finite. Temperature first; then min_p, top_k and top_p each on what the one
// before left; of equal logits the lower id counts as larger. What has less than e^-45 of the likeliest's probability is never
// chosen.
int32_t sample(const Kernels& kernels, const float* logits, int n, const SampleParams& params, RowMemory& memory);

struct Logprobs {
  double logprob;
  int32_t rank;  // from 1; of equal logits the lower id comes first
};
// Of `id`, and the n_top likeliest in order.
Logprobs logprobs(const Kernels& kernels, const float* logits, int n, int32_t id, int n_top, int32_t* top_ids,
                  double* top_logprobs, RowMemory& memory);

}  // namespace gristmill
