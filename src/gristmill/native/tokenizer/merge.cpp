#include "merge.h"

#include <algorithm>
#include <functional>

namespace gristmill {

void PairTable::reserve(size_t n_pairs) {
  size_t n_slots = slots_.size();
  while (n_slots < n_pairs * 2) n_slots *= 2;
  if (n_slots > slots_.size()) grow(n_slots);
}

void PairTable::grow(size_t n_slots) {
  std::vector<Slot> old(n_slots, Slot{kEmpty, {kNone, kNone}});
  old.swap(slots_);
  mask_ = n_slots - 1;
  shift_ = 64;
  while (n_slots > 1) {
    n_slots /= 2;
    --shift_;
  }
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t at = place(slot.key);
    while (slots_[at].key != kEmpty) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

void PairTable::add(uint32_t left, uint32_t right, Merge merge) {
  if ((n_pairs_ + 1) * 2 > slots_.size()) grow(slots_.size() * 2);
  const uint64_t key = (static_cast<uint64_t>(left) << 32) | right;
  size_t at = place(key);
  while (slots_[at].key != kEmpty) {
    if (slots_[at].key == key) return;
    at = (at + 1) & mask_;
  }
  slots_[at] = Slot{key, merge};
  ++n_pairs_;
}

namespace {

constexpr uint32_t kSmall = 40;     // up to here a scan for the lowest rank beats the heap
constexpr uint32_t kWindow = 512;   // symbols merged at a time in longer runs, so that the work stays in the L1 cache
constexpr uint32_t kOverlap = 64;   // symbols at a window's right end that the next window merges again
constexpr int kMaxRefusals = 8;     // seams tried before a long run is merged whole

void merge_small(const PairTable& pairs, const uint32_t* symbols, uint32_t n, std::vector<Token>& out) {
  uint32_t id[kSmall], start[kSmall], rank[kSmall], joined[kSmall];
  for (uint32_t i = 0; i < n; ++i) {
    id[i] = symbols[i];
    start[i] = i;
  }
  for (uint32_t i = 0; i + 1 < n; ++i) {
    const Merge merge = pairs.find(id[i], id[i + 1]);
    rank[i] = merge.rank;
    joined[i] = merge.id;
  }
  while (n > 1) {
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < n; ++i) {
      if (rank[i] < rank[best]) best = i;
    }
    if (rank[best] == kNone) break;
    id[best] = joined[best];
    for (uint32_t i = best + 1; i + 1 < n; ++i) {
      id[i] = id[i + 1];
      start[i] = start[i + 1];
      rank[i] = rank[i + 1];
      joined[i] = joined[i + 1];
    }
    --n;
    if (best + 1 < n) {
      const Merge merge = pairs.find(id[best], id[best + 1]);
      rank[best] = merge.rank;
      joined[best] = merge.id;
    }
    if (best > 0) {
      const Merge merge = pairs.find(id[best - 1], id[best]);
      rank[best - 1] = merge.rank;
      joined[best - 1] = merge.id;
    }
  }
  for (uint32_t i = 0; i < n; ++i) out.push_back({id[i], start[i]});
}

// A heap of (rank, position) over a linked list. An entry is stale when its position no longer holds that rank.
void merge_heap(const PairTable& pairs, const uint32_t* symbols, uint32_t n, MergeScratch& s, std::vector<Token>& out) {
  s.id.assign(symbols, symbols + n);
  s.next.resize(n);
  s.previous.resize(n);
  s.rank.resize(n);
  s.joined.resize(n);
  s.heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    s.next[i] = i + 1;
    s.previous[i] = i - 1;
    const Merge merge = i + 1 < n ? pairs.find(symbols[i], symbols[i + 1]) : Merge{kNone, kNone};
    s.rank[i] = merge.rank;
    s.joined[i] = merge.id;
    if (merge.rank != kNone) s.heap.push_back((static_cast<uint64_t>(merge.rank) << 32) | i);
  }
  const std::greater<uint64_t> lowest_first;
  std::make_heap(s.heap.begin(), s.heap.end(), lowest_first);
  const auto look_again = [&](uint32_t at) {
    const Merge merge = s.next[at] < n ? pairs.find(s.id[at], s.id[s.next[at]]) : Merge{kNone, kNone};
    s.rank[at] = merge.rank;
    s.joined[at] = merge.id;
    if (merge.rank == kNone) return;
    s.heap.push_back((static_cast<uint64_t>(merge.rank) << 32) | at);
    std::push_heap(s.heap.begin(), s.heap.end(), lowest_first);
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), lowest_first);
    const uint64_t entry = s.heap.back();
    s.heap.pop_back();
    const uint32_t at = static_cast<uint32_t>(entry);
    if (s.rank[at] != static_cast<uint32_t>(entry >> 32)) continue;
    const uint32_t gone = s.next[at];
    s.id[at] = s.joined[at];
    s.rank[gone] = kNone;
    s.next[at] = s.next[gone];
    if (s.next[at] < n) s.previous[s.next[at]] = at;
    look_again(at);
    if (at > 0) look_again(s.previous[at]);
  }
  for (uint32_t i = 0; i < n; i = s.next[i]) out.push_back({s.id[i], i});
}

void merge_run(const PairTable& pairs, const uint32_t* symbols, uint32_t n, MergeScratch& s, std::vector<Token>& out) {
  if (n <= kSmall) {
    merge_small(pairs, symbols, n, out);
  } else {
    merge_heap(pairs, symbols, n, s, out);
  }
}

// Long runs, window by window. Why this is exact: take tokens t1 .. tn, each the merging of its own symbols. Suppose that
// merging the symbols of every two neighbours alone gives these two. Then merging everything gives t1 .. tn: look at the
// first join that would cross a border of these tokens. Until then the joins inside the two tokens at that border are
// those of the two alone, in the same order, so the two alone would have made that join as well. Inside a window the
// neighbours fulfil this; at a seam we merge the two and look. False: no seam was found, and `out` is as it was.
bool merge_windows(const PairTable& pairs, const uint32_t* symbols, uint32_t n, MergeScratch& s,
                   std::vector<Token>& out) {
  const size_t n_before = out.size();
  std::vector<Token> pair;
  uint32_t from = 0;
  int n_refusals = 0;
  for (;;) {
    const uint32_t size = std::min(kWindow, n - from);
    s.window.clear();
    merge_run(pairs, symbols + from, size, s, s.window);
    if (from > 0) {
      const uint32_t left = out.back().start;
      const uint32_t end = from + (s.window.size() > 1 ? s.window[1].start : size);
      pair.clear();
      merge_run(pairs, symbols + left, end - left, s, pair);
      if (pair.size() != 2 || left + pair[1].start != from) {
        // One token further left the windows may agree; a run that keeps refusing is merged whole.
        out.pop_back();
        if (out.size() == n_before || ++n_refusals > kMaxRefusals) break;
        from = left;
        continue;
      }
    }
    n_refusals = 0;
    const bool last = from + size == n;
    size_t n_kept = s.window.size();
    if (!last) {
      // The window's right end lacks its neighbours: leave it to the next window.
      do --n_kept;
      while (n_kept > 0 && s.window[n_kept].start + kOverlap > size);
      if (n_kept == 0) break;
    }
    for (size_t i = 0; i < n_kept; ++i) out.push_back({s.window[i].id, from + s.window[i].start});
    if (last) return true;
    from += s.window[n_kept].start;
  }
  out.resize(n_before);
  return false;
}

}  // namespace

void merge_symbols(const PairTable& pairs, const uint32_t* symbols, uint32_t n_symbols, MergeScratch& scratch,
                   std::vector<Token>& out) {
  if (n_symbols > 2 * kWindow && merge_windows(pairs, symbols, n_symbols, scratch, out)) return;
  merge_run(pairs, symbols, n_symbols, scratch, out);
}

}  // namespace gristmill
