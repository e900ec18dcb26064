#include "sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace gristmill {

namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), twice: a counter-based generator.
uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr double kFarthest = 45;  // in units of the temperature

// The order of ids by logits.
struct Before {
  const float* logits;
  bool operator()(int32_t a, int32_t b) const { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; }
};

// A row on its way to a choice.
class Row {
 public:
  Row(const Kernels& kernels, const float* logits, int n, int32_t best, float inverse, RowMemory& memory)
      : kernels_(kernels), logits_(logits), n_(n), last_{float(double(logits[best]) - kFarthest / inverse), n},
        weights_(memory.weights), sums_(memory.sums), peaks_(memory.peaks), ids_(memory.ids) {
    size_t n_chunks = size_t(n + kWeighChunk - 1) / kWeighChunk;
    weights_.resize(n);
    sums_.resize(n_chunks);
    peaks_.resize(n_chunks);
    kernels.weigh(logits, n, logits[best], inverse, weights_.data(), sums_.data(), peaks_.data());
  }

  void drop_below(float logit) {
    last_ = {std::max(last_.logit, logit), n_};
    narrowed_ = true;
  }

  // Keeps the head of the order: the shortest with `count` ids or with `share` of the weight that is left.
  void keep_head(int count, double share) {
    double goal = share * add_up();
    auto reached = [&](int64_t n, double weight) { return n >= count || weight >= goal; };
    // Bisects for logits `high` and `low` between which the head ends.
    float low = last_.logit, high = std::numeric_limits<float>::infinity(), top = *std::max_element(peaks_.begin(), peaks_.end());
    Sum over_high{0, 0}, over_low{n_, std::numeric_limits<double>::infinity()};
    for (int i = 0; i < 40 && over_low.n - over_high.n > 64; i++) {
      float middle = low + (std::min(high, top) - low) / 2;
      if (middle <= low || middle >= high) break;
      Sum over = over_or_at(middle);
      if (reached(over.n, over.weight)) low = middle, over_low = over;
      else high = middle, over_high = over;
    }
    ids_.clear();
    each_over(low, [&](int i) {
      if (logits_[i] >= low && logits_[i] < high && kept(i)) ids_.push_back(i);
    });
    std::sort(ids_.begin(), ids_.end(), Before{logits_});
    for (int32_t i : ids_) {
      if (over_high.n > 0 && reached(over_high.n, over_high.weight)) break;
      over_high = {over_high.n + 1, over_high.weight + weights_[i]};
      last_ = {logits_[i], i};
    }
    narrowed_ = true;
  }

  // Weight of what is kept.
  double add_up() {
    if (narrowed_)
      for (size_t chunk = 0; chunk < sums_.size(); chunk++) sums_[chunk] = peaks_[chunk] < last_.logit ? 0 : sum_of(int(chunk));
    double total = 0;
    for (float sum : sums_) total += sum;
    return total;
  }

  // The id at which the weights in order of ids add up to more than target.
  int32_t at(double target, int32_t otherwise) const {
    double seen = 0;
    size_t chunk = 0;
    while (chunk + 1 < sums_.size() && seen + sums_[chunk] <= target) seen += sums_[chunk++];
    int32_t last = otherwise;
    for (int i = int(chunk) * kWeighChunk; i < n_; i++) {
      if (!kept(i)) continue;
      seen += weights_[i];
      last = i;
      if (seen > target) break;
    }
    return last;
  }

 private:
  bool kept(int i) const { return logits_[i] > last_.logit || (logits_[i] == last_.logit && i <= last_.id); }

  float sum_of(int chunk) const {
    float sum = 0;
    for (int i = chunk * kWeighChunk, end = std::min(i + kWeighChunk, n_); i < end; i++)
      if (kept(i)) sum += weights_[i];
    return sum;
  }

  struct Sum {
    int64_t n;
    double weight;
  };

  // Of what is kept and has a logit of at least `bound`, which must be over last_.logit.
  Sum over_or_at(float bound) const {
    Sum sum{0, 0};
    for (size_t chunk = 0; chunk < peaks_.size(); chunk++) {
      if (peaks_[chunk] < bound) continue;
      int begin = int(chunk) * kWeighChunk, count = std::min(kWeighChunk, n_ - begin);
      sum.weight += kernels_.weight_at_least(logits_ + begin, weights_.data() + begin, count, bound, &sum.n);
    }
    return sum;
  }

  template <class Visit>
  void each_over(float bound, Visit visit) const {
    for (size_t chunk = 0; chunk < peaks_.size(); chunk++) {
      if (peaks_[chunk] < bound) continue;
      for (int i = int(chunk) * kWeighChunk, end = std::min(i + kWeighChunk, n_); i < end; i++) visit(i);
    }
  }

  const Kernels& kernels_;
  const float* logits_;
  int n_;
  struct {
    float logit;
    int32_t id;
  } last_;  // of the order by logits: what comes after it is dropped
  bool narrowed_ = false;
  std::vector<float>&weights_, &sums_, &peaks_;
  std::vector<int32_t>& ids_;
};

}  // namespace

double uniform(uint64_t seed, uint64_t position) { return double(mix(mix(seed) ^ position) >> 11) * 0x1p-53; }

void adjust(const float* logits, int n, const Adjustments& a, float* y) {
  std::memcpy(y, logits, size_t(n) * sizeof(float));
  for (int i = 0; i < a.n; i++) {
    if (a.ids[i] < 0 || a.ids[i] >= n) continue;
    float& z = y[a.ids[i]];
    z += a.bias[i];
    if (a.counts[i] < 0) continue;
    z = z > 0 ? z / a.repetition : z * a.repetition;
    if (a.counts[i] > 0) z -= a.presence + a.frequency * float(a.counts[i]);
  }
  if (!a.mask) return;
  for (int i = 0; i < n; i++)
    if (!(a.mask[i / 32] >> (i % 32) & 1)) y[i] = -std::numeric_limits<float>::infinity();
}

int32_t sample(const Kernels& kernels, const float* logits, int n, const SampleParams& p, RowMemory& memory) {
  int32_t best = kernels.argmax(logits, n);
  if (best == kNoId || p.temperature == 0.0f || p.top_k == 1) return best;
  Row row(kernels, logits, n, best, 1.0f / p.temperature, memory);
  if (p.min_p > 0) row.drop_below(float(double(logits[best]) + std::log(double(p.min_p)) * p.temperature));
  if (p.top_k > 0 && p.top_k < n) row.keep_head(p.top_k, 2.0);
  if (p.top_p < 1.0f) row.keep_head(n, double(p.top_p));
  return row.at(uniform(p.seed, uint64_t(p.position)) * row.add_up(), best);
}

Logprobs logprobs(const Kernels& kernels, const float* logits, int n, int32_t id, int n_top, int32_t* top_ids,
                  double* top_logprobs, RowMemory& memory) {
  int32_t best = std::max(kernels.argmax(logits, n), 0);
  Row row(kernels, logits, n, best, 1.0f, memory);
  double offset = double(logits[best]) + std::log(row.add_up());
  Before before{logits};
  int32_t rank = 1;
  for (int i = 0; i < n; i++) rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
  // A heap of the best so far, its top the last of them in order.
  int kept = 0;
  for (int i = 0; i < n && n_top > 0; i++) {
    if (kept == n_top) {
      if (!before(i, top_ids[0])) continue;
      std::pop_heap(top_ids, top_ids + kept--, before);
    }
    top_ids[kept++] = i;
    std::push_heap(top_ids, top_ids + kept, before);
  }
  std::sort_heap(top_ids, top_ids + kept, before);
  for (int k = 0; k < n_top; k++) top_logprobs[k] = double(logits[top_ids[k]]) - offset;
  return {double(logits[id]) - offset, rank};
}

}  // namespace gristmill
