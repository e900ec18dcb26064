// Memory for results, handed back and used again: the page faults of a fresh array cost as much as a kernel that fills it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "pack.h"

namespace gristmill {

class Buffers {
 public:
  using Buffer = std::unique_ptr<HugeBuffer>;

  // n_bytes or a little more, at a multiple of 64.
  Buffer take(size_t n_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Buffer>& waiting = free_[size_class(n_bytes)];
    if (waiting.empty()) return std::make_unique<HugeBuffer>(size_class(n_bytes));
    Buffer buffer = std::move(waiting.back());
    waiting.pop_back();
    return buffer;
  }

  // What was taken with n_bytes; very large ones are not worth their memory.
  void give_back(Buffer buffer, size_t n_bytes) {
    constexpr size_t kLargest = size_t(64) << 20;
    if (n_bytes > kLargest) return;
    std::lock_guard<std::mutex> lock(mutex_);
    free_[size_class(n_bytes)].push_back(std::move(buffer));
  }

 private:
  // Rounded up to a quarter of a power of two, at least a page.
  static size_t size_class(size_t n_bytes) {
    size_t step = 1024;
    while (step * 8 < n_bytes) step *= 2;
    return step * 4 >= n_bytes ? step * 4 : (n_bytes + step - 1) / step * step;
  }

  std::mutex mutex_;
  std::map<size_t, std::vector<Buffer>> free_;
};

}  // namespace gristmill
