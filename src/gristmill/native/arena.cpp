#include "arena.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace gristmill {

static constexpr size_t kHugePage = size_t(2) << 20;
static constexpr size_t kChunk = size_t(1) << 30;  // of address space: what is not touched costs nothing

HugeBuffer::HugeBuffer(size_t bytes) : mapped_bytes_(bytes + 64) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
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

HugeBuffer::~HugeBuffer() { munmap(mapped_, mapped_bytes_); }

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
