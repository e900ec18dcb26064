#include "threads.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
static inline void relax() { _mm_pause(); }
#elif defined(__aarch64__)
static inline void relax() { asm volatile("yield"); }
#else
static inline void relax() {}
#endif

namespace gristmill {

// Spinning longer would starve whoever else needs the core; sleeping at once would cost a wake-up for every kernel.
static constexpr auto kSpin = std::chrono::microseconds(80);

// Waits until done() holds, for at most kSpin. The clock is read seldom: it is dearer than the test.
template <class Done>
static bool spin_until(Done done) {
  auto end = std::chrono::steady_clock::now() + kSpin;
  for (;;) {
    for (int i = 0; i < 64; i++) {
      if (done()) return true;
      relax();
    }
    if (std::chrono::steady_clock::now() > end) return done();
  }
}

ThreadPool::ThreadPool(int n_threads) {
  for (int i = 1; i < n_threads; i++) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    loop_ += kNext;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take_items() {
  for (;;) {
    int item = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (item >= n_items_) return;
    (*body_)(item);
  }
}

void ThreadPool::run(int n_items, const std::function<void(int)>& body) {
  if (workers_.empty() || n_items <= 1) {
    for (int i = 0; i < n_items; i++) body(i);
    return;
  }
  n_items_ = n_items;
  body_ = &body;
  next_item_.store(0, std::memory_order_relaxed);
  loop_.fetch_add(kNext | kOpen, std::memory_order_seq_cst);
  if (n_sleeping_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  take_items();
  loop_.fetch_sub(kOpen, std::memory_order_acquire);
  while (!spin_until([this] { return loop_.load(std::memory_order_acquire) % kOpen == 0; })) std::this_thread::yield();
}

// Whether the caller is inside of this loop now; false if it has been closed.
bool ThreadPool::enter(uint64_t number) {
  uint64_t loop = loop_.load(std::memory_order_relaxed);
  while ((loop & kOpen) && loop / kNext == number)
    if (loop_.compare_exchange_weak(loop, loop + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
  return false;
}

void ThreadPool::work() {
  uint64_t seen = 0;
  for (;;) {
    auto changed = [this, &seen] { return loop_.load(std::memory_order_seq_cst) / kNext != seen; };
    if (!spin_until(changed)) {
      std::unique_lock<std::mutex> lock(mutex_);
      n_sleeping_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, changed);
      n_sleeping_.fetch_sub(1, std::memory_order_seq_cst);
    }
    if (stop_) return;
    seen = loop_.load(std::memory_order_acquire) / kNext;
    if (!enter(seen)) continue;
    take_items();
    loop_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace gristmill
