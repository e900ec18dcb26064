// Memory that is used again: the page faults of a fresh array cost as much as a kernel that fills it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "arena.h"

namespace gristmill {

// Results, handed back. The smallest that will do is taken, however large: prompts come in many lengths, and those after the
// longest then find memory that was touched before.
class Buffers {
 public:
  struct Buffer {
    std::unique_ptr<HugeBuffer> memory;
    size_t n_bytes = 0;
  };

  // n_bytes or more, at a multiple of 64.
  Buffer take(size_t n_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = free_.lower_bound(n_bytes);
    if (found == free_.end()) {
      n_bytes = (n_bytes + kPage - 1) / kPage * kPage;
      return {std::make_unique<HugeBuffer>(n_bytes), n_bytes};
    }
    Buffer buffer{std::move(found->second), found->first};
    free_.erase(found);
    return buffer;
  }

  void give_back(Buffer buffer) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.emplace(buffer.n_bytes, std::move(buffer.memory));
  }

 private:
  static constexpr size_t kPage = 4096;

  std::mutex mutex_;
  std::multimap<size_t, std::unique_ptr<HugeBuffer>> free_;
};

// Memory for n elements that are written before they are read.
template <class T>
T* grown(std::vector<T>& memory, size_t n) {
  if (memory.size() < n) memory.resize(n);
  return memory.data();
}

}  // namespace gristmill
