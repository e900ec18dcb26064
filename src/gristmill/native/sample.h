// Choosing tokens from logits. Randomness depends on (seed, position) alone.
#pragma once
#include <cstdint>

namespace gristmill {

struct SampleParams {
  float temperature;  // 0: greedy
  int32_t top_k;      // 0: all
  float top_p, min_p;
  uint64_t seed;
  int64_t position;   // of the token being chosen
};

// A number in [0, 1) with 53 random bits, a function of its arguments alone.
double uniform(uint64_t seed, uint64_t position);

// best: the index of the largest logit, the first where several are.
int32_t sample(const float* logits, int n, int32_t best, const SampleParams& params);

}  // namespace gristmill
