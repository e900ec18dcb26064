// A bounded memory of short words and their ids: 16-byte keys, two per cache line, the older one makes way.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "vocab.h"

namespace gristmill {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 15;
  static constexpr size_t kMaxIds = 4;

  struct Key {
    uint64_t low, high;
    bool operator==(const Key& other) const { return ((low ^ other.low) | (high ^ other.high)) == 0; }
  };
  struct Entry {
    Key key;
    int32_t ids[kMaxIds];  // -1 behind the last
    size_t n_ids() const { return 1 + size_t{ids[1] >= 0} + size_t{ids[2] >= 0} + size_t{ids[3] >= 0}; }
  };

  // Zeros, which the system gives page by page as words come. A key's last byte is its length, so no word's key is zero.
  WordCache() : memory_(std::calloc(kBuckets + 1, sizeof(Bucket))) {
    if (!memory_) throw std::bad_alloc();
    const size_t beyond = reinterpret_cast<uintptr_t>(memory_.get()) % sizeof(Bucket);
    buckets_ = reinterpret_cast<Bucket*>(static_cast<char*>(memory_.get()) + (beyond ? sizeof(Bucket) - beyond : 0));
  }

  // The key of n <= kMaxBytes bytes. `readable_end`: how far memory may be read.
  static Key make_key(const char* p, size_t n, const char* readable_end) {
    Key key{0, 0};
    if (readable_end - p >= 16) {
      std::memcpy(&key.low, p, 8);
      std::memcpy(&key.high, p + 8, 8);
      if (n < 8) {
        key.low &= (1ull << (8 * n)) - 1;
        key.high = 0;
      } else {
        key.high &= (1ull << (8 * (n - 8))) - 1;
      }
    } else {
      char bytes[16] = {};
      std::memcpy(bytes, p, n);
      std::memcpy(&key.low, bytes, 8);
      std::memcpy(&key.high, bytes + 8, 8);
    }
    key.high |= static_cast<uint64_t>(n) << 56;
    return key;
  }

  // Where a key's entry is, if anywhere; `prefetch` asks the memory for it before `find` needs it.
  static size_t place(const Key& key) {
    return static_cast<size_t>(fold_multiply(key.low ^ 0x9E3779B97F4A7C15ull, key.high ^ 0xD6E8FEB86659FD93ull)) &
           (kBuckets - 1);
  }
  void prefetch(size_t place) const { __builtin_prefetch(&buckets_[place]); }

  const Entry* find(const Key& key, size_t place) const {
    const Bucket& bucket = buckets_[place];
    if (bucket.entries[0].key == key) return &bucket.entries[0];
    if (bucket.entries[1].key == key) return &bucket.entries[1];
    return nullptr;
  }

  void insert(const Key& key, const int32_t* ids, size_t n_ids) {
    Bucket& bucket = buckets_[place(key)];
    bucket.entries[1] = bucket.entries[0];
    Entry& entry = bucket.entries[0];
    entry.key = key;
    for (size_t i = 0; i < kMaxIds; ++i) entry.ids[i] = i < n_ids ? ids[i] : -1;
  }

 private:
  static constexpr size_t kBuckets = size_t{1} << 16;  // 4 MiB in all
  struct Bucket {  // a cache line
    Entry entries[2];
  };
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  std::unique_ptr<void, Free> memory_;
  Bucket* buckets_;
};

}  // namespace gristmill
