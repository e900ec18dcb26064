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

// Memory for elements that are written before they are read, straight from the system: it gives what is written, and gets back
// all of it.
template <class T>
class Scratch {
 public:
  // n elements, the first at a multiple of 64 bytes, until the next call.
  T* grown(size_t n) {
    if (n > size_) {
      release();
      memory_ = std::make_unique<HugeBuffer>(n * sizeof(T));
      size_ = n;
    }
    return memory_ ? reinterpret_cast<T*>(memory_->data()) : nullptr;
  }
  void release() { memory_.reset(), size_ = 0; }

 private:
  std::unique_ptr<HugeBuffer> memory_;
  size_t size_ = 0;
};

// What one thread at a time uses: as many as were ever in use at once, and not one for each thread that ever used one.
template <class T>
class Spares {
 public:
  // body(one of them)
  template <class Body>
  void with_one(Body body) {
    std::unique_ptr<T> one;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) one = std::move(idle_.back()), idle_.pop_back();
    }
    if (!one) one = std::make_unique<T>();
    body(*one);
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(one));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace gristmill
