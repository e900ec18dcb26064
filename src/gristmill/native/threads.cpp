#include "threads.h"

#include <sys/resource.h>

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

// How often the system has taken this thread's core while it had work to do; also where it gave way.
static long times_taken() {
#if defined(RUSAGE_THREAD)
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nivcsw;
#else
  return 0;
#endif
}

void Courtesy::give_way() {
  const auto before = Clock::now();
  if (const long n_taken = times_taken(); n_taken != n_taken_) {
    n_taken_ = n_taken, next_ = before + kTurn;
    return;
  }
  std::this_thread::yield();
  const auto now = Clock::now();
  const auto waited = now - before;
  if (waited < kNobody) {
    pause_ = std::min(2 * pause_, kLast), next_ = now + pause_;
  } else {
    n_taken_ = times_taken(), pause_ = kFirst, next_ = now + kFirst + waited * 3 / 4;
  }
}

int ThreadPool::Part::size() const {
  const uint64_t left = left_.load(std::memory_order_acquire);
  return int(left >> 32) - int(uint32_t(left));
}

// Half of the items, at least one: the first or the last. False if there is none.
bool ThreadPool::Part::take(bool first_ones, int& begin, int& end) {
  uint64_t left = left_.load(std::memory_order_acquire), rest;
  do {
    const int first = int(uint32_t(left)), last = int(left >> 32), n = (last - first + 1) / 2;
    if (first == last) return false;
    begin = first_ones ? first : last - n, end = begin + n;
    rest = first_ones ? pack(end, last) : pack(first, begin);
  } while (!left_.compare_exchange_weak(left, rest, std::memory_order_acq_rel, std::memory_order_acquire));
  return true;
}

ThreadPool::ThreadPool(int n_threads) : parts_(n_threads) {
  for (int i = 1; i < n_threads; i++) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take_items(int part) {
  if (in_order_) {
    for (int item; (item = next_item_.fetch_add(1, std::memory_order_relaxed)) < n_items_;) (*body_)(item, item + 1);
    return;
  }
  do
    for (int begin, end; parts_[part].take(true, begin, end);) (*body_)(begin, end);
  while (take_over(part));
}

// Makes the last half of the longest part this thread's; false if nothing is left.
bool ThreadPool::take_over(int part) {
  for (;;) {
    Part* longest = &parts_[part];
    for (Part& other : parts_)
      if (other.size() > longest->size()) longest = &other;
    if (longest == &parts_[part]) return false;
    int begin, end;
    if (!longest->take(false, begin, end)) continue;
    parts_[part].set(begin, end);
    return true;
  }
}

void ThreadPool::run(int n_items, const std::function<void(int)>& body) {
  loop(n_items, true, [&body](int item, int) { body(item); });
}

void ThreadPool::run_stretches(int n_items, const std::function<void(int, int)>& body) {
  if (workers_.empty()) return body(0, n_items);
  const int n_parts = int(parts_.size());
  for (int i = 0; i < n_parts; i++) parts_[i].set(int(int64_t(n_items) * i / n_parts), int(int64_t(n_items) * (i + 1) / n_parts));
  loop(n_items, false, body);
}

void ThreadPool::loop(int n_items, bool in_order, const std::function<void(int, int)>& body) {
  if (workers_.empty() || n_items <= 1) {
    for (int i = 0; i < n_items; i++) body(i, i + 1);
    return;
  }
  n_items_ = n_items;
  in_order_ = in_order;
  body_ = &body;
  next_item_.store(0, std::memory_order_relaxed);
  loop_.fetch_add(kNext | kOpen, std::memory_order_seq_cst);
  if (n_sleeping_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  if (all_made_.load(std::memory_order_relaxed) && caller_.courtesy.due()) caller_.courtesy.give_way();
  take_items(leader_);
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
void ThreadPool::lead(size_t next, Member& member) {
  leader_ = member.part;
  try {
    while (next < calls_->size()) {
      (*calls_)[next++]();
      if (next == calls_->size() || !member.courtesy.due()) continue;
      lead_.store(next, std::memory_order_release);
      member.courtesy.give_way();
      if (!take_lead(next)) return;
      leader_ = member.part;
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
  if (size_t next; take_lead(next)) lead(next, member);
  uint64_t number = loop_.load(std::memory_order_acquire) / kNext;
  if (number == member.seen) return;
  member.seen = number;
  if (!enter(number)) return;
  take_items(member.part);
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
  lead(0, caller_);
  while (!all_made_.load(std::memory_order_acquire)) {
    auto moved = [this] { return all_made_.load(std::memory_order_acquire) || needs(caller_); };
    if (spin_until(moved)) help(caller_);
    else std::this_thread::yield();
  }
  leader_ = caller_.part;
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work(int part) {
  Member self{part};
  for (;;) {
    auto changed = [this, &self] { return stop_ || needs(self); };
    if (!spin_until(changed)) {
      // Others are still in it, and what comes next should find this thread awake.
      if (loop_.load(std::memory_order_relaxed) % kNext) {
        std::this_thread::yield();
        continue;
      }
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
