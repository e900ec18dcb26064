#include "arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace gristmill {

static constexpr size_t kHugePage = size_t(2) << 20;
static constexpr size_t kChunk = size_t(1) << 30;  // of address space: what is not touched costs nothing

// Where a sanitizer looks for what is read and written beyond small buffers, they lie where it can see that.
#ifdef __SANITIZE_ADDRESS__
static constexpr bool kOnHeap = true;
#else
static constexpr bool kOnHeap = false;
#endif

HugeBuffer::HugeBuffer(size_t bytes) : mapped_(nullptr), mapped_bytes_(bytes + 64) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  if (kOnHeap && bytes < kHugePage) {
    data_ = static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    if (!data_) throw std::bad_alloc();
    return;
  }
  if (bytes >= kHugePage) mapped_bytes_ += 2 * kHugePage;  // to align in
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(mapped_);
  if (bytes < kHugePage) return;
  data_ += (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage) % kHugePage;
#ifdef MADV_HUGEPAGE
  size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  madvise(data_, whole, MADV_HUGEPAGE);  // before the first touch; later it does nothing
#endif
}

HugeBuffer::~HugeBuffer() {
  if (mapped_) munmap(mapped_, mapped_bytes_);
  else std::free(data_);
}

// Null where so much address space is not to be had, which memory may be.
static std::shared_ptr<HugeBuffer> new_chunk() {
  try {
    return std::make_shared<HugeBuffer>(kChunk);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Arena::Piece Arena::allocate(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (used_ + bytes > size_) {
    std::shared_ptr<HugeBuffer> chunk = bytes > kChunk / 4 ? nullptr : new_chunk();
    if (!chunk) {
      auto own = std::make_shared<HugeBuffer>(bytes);
      return {own->data(), own};
    }
    chunk_ = std::move(chunk);
    used_ = 0, size_ = kChunk;
  }
  used_ += bytes;
  return {chunk_->data() + used_ - bytes, chunk_};
}

}  // namespace gristmill
