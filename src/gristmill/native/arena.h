// Memory for weights and for what is computed from them.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "home.h"

namespace gristmill {

// Memory for weights, in huge pages where the system has them: a 4 KiB page costs a third of the read bandwidth.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  uint8_t* data() const { return data_; }
  // Gives back whole pages from byte `first` on.
  void trim(size_t first);

 private:
  uint8_t* data_;   // at a huge page's start where it is as large as one
  void* mapped_;
  size_t mapped_bytes_;
};

// Gives matrices their memory, side by side: a buffer for each would waste most of its last huge page.
class Arena {
 public:
  struct Piece {
    uint8_t* data;                       // at a multiple of 64
    std::shared_ptr<HugeBuffer> memory;  // goes when the last piece of it has gone
  };
  Arena() = default;
  ~Arena() { stop_filling(); }

  // About so many bytes will be asked for. A thread clears the first of them while the caller does something else, until
  // the first allocation: by then they are needed at once. Said again before it, with less or little more: the thread goes
  // on to there, and what is beyond that memory is had when it is needed. 0: nothing more is to come, what is left over goes
  // back.
  void expect(size_t bytes);
  // None of it is needed soon: what was cleared goes back, and is cleared where pieces are first written.
  void put_off();
  size_t filled() const { return filled_; }  // bytes that the thread has cleared
  Piece allocate(size_t bytes);

 private:
  void stop_filling();

  std::shared_ptr<HugeBuffer> chunk_;
  size_t used_ = 0, size_ = 0;  // bytes of the chunk
  Home home_;  // the filler's
  std::thread filler_;
  std::atomic<size_t> fill_to_{0}, filled_{0};
};

}  // namespace gristmill
