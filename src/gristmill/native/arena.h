// Memory for weights and for what is computed from them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gristmill {

// Memory for weights, in huge pages where the system has them: a 4 KiB page costs a third of the read bandwidth.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  uint8_t* data() const { return data_; }

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
  Piece allocate(size_t bytes);

 private:
  std::shared_ptr<HugeBuffer> chunk_;
  size_t used_ = 0, size_ = 0;  // bytes of the chunk
};

}  // namespace gristmill
