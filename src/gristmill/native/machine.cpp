#include "machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace gristmill {

namespace {

constexpr size_t kStretch = size_t(4) << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

ReadTest::ReadTest(size_t bytes, ThreadPool& pool) : bytes_((bytes + kStretch - 1) / kStretch * kStretch), buffer_(bytes_) {
  pool.run(int(bytes_ / kStretch), [&](int i) { std::memset(buffer_.data() + i * kStretch, 1, kStretch); });
}

double ReadTest::run(const Kernels& kernels, ThreadPool& pool) const {
  std::atomic<uint32_t> seen{0};
  auto start = std::chrono::steady_clock::now();
  pool.run(int(bytes_ / kStretch), [&](int i) {
    seen.fetch_or(kernels.peaks->read(buffer_.data() + i * kStretch, kStretch), std::memory_order_relaxed);
  });
  return double(bytes_) / seconds_since(start);
}

double measure_peak(double (*loop)(int64_t n_rounds), ThreadPool& pool, double seconds) {
  // As many rounds as fill the time on one thread, then as many on each.
  int64_t n = 1024;
  for (;;) {
    auto start = std::chrono::steady_clock::now();
    loop(n);
    double took = seconds_since(start);
    if (took > seconds / 8) {
      n = std::max<int64_t>(1, int64_t(double(n) * seconds / took));
      break;
    }
    n *= 4;
  }
  int n_items = pool.size() * 8;  // several a thread, so that one which is held up does less
  std::atomic<int64_t> operations{0};
  auto start = std::chrono::steady_clock::now();
  pool.run(n_items, [&](int) {
    operations.fetch_add(int64_t(loop(std::max<int64_t>(1, n / 8))), std::memory_order_relaxed);
  });
  return double(operations.load()) / seconds_since(start);
}

}  // namespace gristmill
