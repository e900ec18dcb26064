#include "threads.h"

#include <algorithm>

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

// Something has begun, as a step of a model: others may have been woken by the last one's end.
void Courtesy::begin_anew() {
  if (pause_ == kFirst) return;
  pause_ = kFirst;
  next_ = Clock::now() + pause_;
}

void Courtesy::give_way() {
  auto before = Clock::now();
  std::this_thread::yield();
  auto now = Clock::now();
  auto waited = now - before;
  pause_ = waited < kNobody ? std::min(2 * pause_, kLast) : kFirst;
  next_ = now + pause_ + (waited < kNobody ? Clock::duration(0) : kKeepsPerWait * waited);
}

ThreadPool::ThreadPool(int n_threads) {
  for (int i = 1; i < n_threads; i++) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
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
  if (all_made_.load(std::memory_order_relaxed) && caller_.courtesy.due()) caller_.courtesy.give_way();
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

bool ThreadPool::take_lead(size_t& next) {
  next = lead_.load(std::memory_order_relaxed);
  return next != kTaken && lead_.compare_exchange_strong(next, kTaken, std::memory_order_acquire, std::memory_order_relaxed);
}

// Makes calls until all are made or another thread goes on with them.
void ThreadPool::lead(size_t next, Courtesy& courtesy) {
  try {
    while (next < calls_->size()) {
      (*calls_)[next++]();
      if (next == calls_->size() || !courtesy.due()) continue;
      lead_.store(next, std::memory_order_release);
      courtesy.give_way();
      if (!take_lead(next)) return;
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  all_made_.store(true, std::memory_order_release);
}

// Whether there may be something to help with.
bool ThreadPool::needs(const Member& member) const {
  return loop_.load(std::memory_order_seq_cst) / kNext != member.seen || lead_.load(std::memory_order_relaxed) != kTaken;
}

// Goes on with the calls, or takes items of a loop that is new, if there is either.
void ThreadPool::help(Member& member) {
  if (size_t next; take_lead(next)) lead(next, member.courtesy);
  uint64_t number = loop_.load(std::memory_order_acquire) / kNext;
  if (number == member.seen) return;
  member.seen = number;
  if (!enter(number)) return;
  take_items();
  loop_.fetch_sub(1, std::memory_order_release);
}

void ThreadPool::run_calls(const std::vector<std::function<void()>>& calls) {
  if (workers_.empty()) {
    for (const auto& call : calls) call();
    return;
  }
  calls_ = &calls;
  error_ = nullptr;
  all_made_.store(false, std::memory_order_relaxed);
  caller_.courtesy.begin_anew();
  lead(0, caller_.courtesy);
  while (!all_made_.load(std::memory_order_acquire)) {
    auto moved = [this] { return all_made_.load(std::memory_order_acquire) || needs(caller_); };
    if (spin_until(moved)) help(caller_);
    else std::this_thread::yield();
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work() {
  Member self;
  for (;;) {
    auto changed = [this, &self] { return stop_ || needs(self); };
    if (!spin_until(changed)) {
      std::unique_lock<std::mutex> lock(mutex_);
      n_sleeping_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, changed);
      n_sleeping_.fetch_sub(1, std::memory_order_seq_cst);
      self.courtesy.begin_anew();
    }
    if (stop_) return;
    help(self);
    if (self.courtesy.due()) self.courtesy.give_way();
  }
}

}  // namespace gristmill
