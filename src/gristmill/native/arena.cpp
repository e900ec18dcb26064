#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace gristmill {

static constexpr size_t kHugePage = size_t(2) << 20;
static constexpr size_t kLittle = 16;  // what was expected need not be cleared anew for so small a part of it more

HugeBuffer::HugeBuffer(size_t bytes) : mapped_bytes_(bytes + 64) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  if (bytes >= kHugePage) mapped_bytes_ += 2 * kHugePage;  // address space to align in; what is not touched costs nothing
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

void HugeBuffer::trim(size_t first) {
  uint8_t* end = static_cast<uint8_t*>(mapped_) + mapped_bytes_;
  uint8_t* start = data_ + (first + kHugePage - 1) / kHugePage * kHugePage;
  if (start < end) madvise(start, size_t(end - start), MADV_DONTNEED);
}

void Arena::expect(size_t bytes) {
  if (filler_.joinable() && bytes > 0 && bytes <= size_ + size_ / kLittle) {
    fill_to_ = std::min(bytes, size_);
    chunk_->trim(bytes);
    return;
  }
  stop_filling();
  if (chunk_) chunk_->trim(used_);
  chunk_.reset();
  used_ = size_ = 0;
  if (bytes < 2 * kHugePage) return;
  chunk_ = std::make_shared<HugeBuffer>(bytes);
  size_ = bytes;
  fill_to_ = bytes, filled_ = 0;
  home_ = Home();
  filler_ = std::thread([this, data = static_cast<volatile uint8_t*>(chunk_->data())] {
    // Touched, not madvised: that would hold a lock which whoever allocates memory meanwhile waits for.
    for (size_t at = 0; at < fill_to_; filled_ = at += 4096) data[at] = 0;
  });
}

void Arena::put_off() {
  stop_filling();
  if (chunk_) chunk_->trim(used_);
}

void Arena::stop_filling() {
  fill_to_ = 0;
  if (!filler_.joinable()) return;
  if (home_.here()) filler_.join();
  else static_cast<void>(new std::thread(std::move(filler_)));  // as ThreadPool's
}

Arena::Piece Arena::allocate(size_t bytes) {
  constexpr size_t kChunk = 32 * kHugePage;
  stop_filling();
  bytes = (bytes + 63) / 64 * 64;
  if (used_ + bytes > size_) {
    if (bytes > kChunk / 4) {
      auto own = std::make_shared<HugeBuffer>(bytes);
      return {own->data(), own};
    }
    if (chunk_) chunk_->trim(used_);
    chunk_ = std::make_shared<HugeBuffer>(kChunk);
    used_ = 0, size_ = kChunk;
  }
  used_ += bytes;
  return {chunk_->data() + used_ - bytes, chunk_};
}

}  // namespace gristmill
