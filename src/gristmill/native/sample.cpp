#include "sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace gristmill {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), twice: a counter-based generator.
static uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double uniform(uint64_t seed, uint64_t position) { return double(mix(mix(seed) ^ position) >> 11) * 0x1p-53; }

// Temperature first; then min_p, top_k and top_p each on what the one before left; ties go to the lower id.
int32_t sample(const float* logits, int n, int32_t best, const SampleParams& p) {
  if (p.temperature == 0.0f || p.top_k == 1) return best;
  const double inverse = 1.0 / p.temperature, peak = logits[best];
  std::vector<int32_t> ids;
  // p(i) / p(best) >= min_p is a threshold on logits.
  double threshold = p.min_p > 0 ? peak + std::log(double(p.min_p)) / inverse : -INFINITY;
  for (int32_t i = 0; i < n; i++)
    if (double(logits[i]) >= threshold) ids.push_back(i);
  auto before = [logits](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  if (p.top_k > 0 && size_t(p.top_k) < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + p.top_k, ids.end(), before);
    ids.resize(p.top_k);
  }
  bool sorted = p.top_p < 1.0f;
  if (sorted) std::sort(ids.begin(), ids.end(), before);
  else std::sort(ids.begin(), ids.end());
  std::vector<double> weights(ids.size());
  double total = 0;
  for (size_t i = 0; i < ids.size(); i++) total += weights[i] = std::exp((double(logits[ids[i]]) - peak) * inverse);
  if (sorted) {  // the shortest head whose share reaches top_p
    double kept = 0, goal = total * double(p.top_p);
    size_t count = 0;
    while (count < ids.size() && (count == 0 || kept < goal)) kept += weights[count++];
    ids.resize(count);
    total = kept;
  }
  double target = uniform(p.seed, uint64_t(p.position)) * total, seen = 0;
  for (size_t i = 0; i < ids.size(); i++) {
    seen += weights[i];
    if (seen > target) return ids[i];
  }
  return ids.back();
}

}  // namespace gristmill
