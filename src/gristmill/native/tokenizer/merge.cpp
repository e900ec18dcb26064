#include "merge.h"

#include <algorithm>
#include <functional>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill {

void PairTable::reserve(size_t n_pairs) {
  const size_t n_slots = n_pairs * 4 / 3 + 1;
  if (n_slots > slots_.size()) grow(n_slots);
}

void PairTable::grow(size_t n_slots) {
  std::vector<Slot> old(n_slots, Slot{kEmpty, {kNone, kNone}});
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t at = place(slot.key);
    while (slots_[at].key != kEmpty) at = after(at);
    slots_[at] = slot;
  }
}

void PairTable::add(uint32_t left, uint32_t right, Merge merge) {
  if ((n_pairs_ + 1) * 4 > slots_.size() * 3) grow(slots_.size() * 2);
  const uint64_t key = (static_cast<uint64_t>(left) << 32) | right;
  size_t at = place(key);
  while (slots_[at].key != kEmpty) {
    if (slots_[at].key == key) return;
    at = after(at);
  }
  slots_[at] = Slot{key, merge};
  ++n_pairs_;
  const size_t bit = filter_place(key);
  filter_[bit / 64] |= uint64_t{1} << (bit % 64);
}

namespace {

constexpr uint32_t kSmall = 24;      // up to here a plain scan for the lowest rank is the fastest
constexpr uint32_t kWindow = 256;    // symbols merged at a time in longer runs, so that all work stays in the L1 cache
constexpr uint32_t kOverlap = 32;    // symbols at a window's right end that the next window merges again
constexpr int kMaxRefusals = 8;      // seams tried before a long run is merged whole

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

constexpr uint32_t kBlock = 16;
constexpr uint32_t kBlocks = kWindow / kBlock;
static_assert(kBlocks == kBlock, "lowest() looks at as many blocks as there are ranks in one");

// The lowest of 16 ranks. Ranks are below 2^31 - 1, which stands for none.
constexpr int32_t kNoRank = 0x7FFFFFFF;

#if defined(__SSE2__)
inline __m128i lower(__m128i a, __m128i b) {
  const __m128i greater = _mm_cmpgt_epi32(a, b);
  return _mm_or_si128(_mm_and_si128(greater, b), _mm_andnot_si128(greater, a));
}

inline int32_t lowest(const int32_t* rank) {
  const auto* lanes = reinterpret_cast<const __m128i*>(rank);
  __m128i low = lower(lower(_mm_loadu_si128(lanes), _mm_loadu_si128(lanes + 1)),
                      lower(_mm_loadu_si128(lanes + 2), _mm_loadu_si128(lanes + 3)));
  low = lower(low, _mm_shuffle_epi32(low, 0x4E));
  low = lower(low, _mm_shuffle_epi32(low, 0xB1));
  return _mm_cvtsi128_si32(low);
}

inline uint32_t first_of(const int32_t* rank, int32_t wanted) {
  const auto* lanes = reinterpret_cast<const __m128i*>(rank);
  const __m128i all = _mm_set1_epi32(wanted);
  const __m128i low = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(lanes), all),
                                      _mm_cmpeq_epi32(_mm_loadu_si128(lanes + 1), all));
  const __m128i high = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(lanes + 2), all),
                                       _mm_cmpeq_epi32(_mm_loadu_si128(lanes + 3), all));
  return static_cast<uint32_t>(__builtin_ctz(static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(low, high)))));
}
#else
inline int32_t lowest(const int32_t* rank) {
  int32_t low = rank[0];
  for (uint32_t i = 1; i < kBlock; ++i) low = rank[i] < low ? rank[i] : low;
  return low;
}

inline uint32_t first_of(const int32_t* rank, int32_t wanted) {
  uint32_t i = 0;
  while (rank[i] != wanted) ++i;
  return i;
}
#endif

// Up to kWindow symbols: ranks stay at their places, and the lowest is found by way of the lowest of each 16.
void merge_window(const PairTable& pairs, const uint32_t* symbols, uint32_t n, std::vector<Token>& out) {
  int32_t rank[kWindow], block_rank[kBlocks];
  uint32_t id[kWindow], joined[kWindow];
  uint16_t next[kWindow], previous[kWindow];
  const auto look = [&](uint32_t at, uint32_t right) {
    const Merge merge = pairs.find(id[at], id[right]);
    rank[at] = merge.rank == kNone ? kNoRank : static_cast<int32_t>(merge.rank);
    joined[at] = merge.id;
  };
  for (uint32_t i = 0; i < n; ++i) {
    id[i] = symbols[i];
    next[i] = static_cast<uint16_t>(i + 1);
    previous[i] = static_cast<uint16_t>(i - 1);
  }
  for (uint32_t i = 0; i + 1 < n; ++i) look(i, i + 1);
  for (uint32_t i = n - 1; i < kWindow; ++i) rank[i] = kNoRank;
  for (uint32_t block = 0; block < kBlocks; ++block) block_rank[block] = lowest(rank + block * kBlock);
  for (;;) {
    const int32_t best = lowest(block_rank);
    if (best == kNoRank) break;
    const uint32_t block = first_of(block_rank, best);
    const uint32_t at = block * kBlock + first_of(rank + block * kBlock, best);
    const uint32_t gone = next[at];
    const uint32_t right = next[gone];
    id[at] = joined[at];
    rank[gone] = kNoRank;
    next[at] = static_cast<uint16_t>(right);
    if (right < n) {
      previous[right] = static_cast<uint16_t>(at);
      look(at, right);
    } else {
      rank[at] = kNoRank;
    }
    if (at > 0) {
      const uint32_t left = previous[at];
      look(left, at);
      block_rank[left / kBlock] = lowest(rank + left / kBlock * kBlock);
    }
    block_rank[block] = lowest(rank + block * kBlock);
    block_rank[gone / kBlock] = lowest(rank + gone / kBlock * kBlock);
  }
  for (uint32_t i = 0; i < n; i = next[i]) out.push_back({id[i], i});
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
  } else if (n <= kWindow) {
    merge_window(pairs, symbols, n, out);
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
  if (n_symbols > kWindow && merge_windows(pairs, symbols, n_symbols, scratch, out)) return;
  merge_run(pairs, symbols, n_symbols, scratch, out);
}

}  // namespace gristmill
