#include "threads.h"

#include <sys/resource.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

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

static int at_least_one(int n_threads) {
  if (n_threads < 1) throw std::invalid_argument("threads: at least one is needed");
  return n_threads;
}

ThreadPool::ThreadPool(int n_threads) : seats_(at_least_one(n_threads)) {
  try {
    for (int i = 1; i < n_threads; i++) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::exception& error) {
    const std::string n_made = std::to_string(workers_.size() + 1), wanted = std::to_string(n_threads);
    end();
    throw std::invalid_argument("threads: the system gives " + n_made + " of " + wanted + ", ask for fewer: " + error.what());
  }
}

ThreadPool::~ThreadPool() {
  if (home_.here()) {
    end();
  } else {
    // The threads are elsewhere, and what stood for them may by now stand for others: all of it is left as it is.
    static_cast<void>(new std::vector<std::thread>(std::move(workers_)));
    static_cast<void>(bed_.release());
  }
}

void ThreadPool::end() {
  {
    std::lock_guard<std::mutex> lock(bed_->mutex);
    stop_ = true;
  }
  bed_->wake.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int n_items, const std::function<void(int)>& body) {
  loop(n_items, true, [&body](int item, int) { body(item); });
}

void ThreadPool::run_stretches(int n_items, const std::function<void(int, int)>& body) {
  if (workers_.empty()) return body(0, n_items);
  loop(n_items, n_items >= kMostItems, body);
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
  const uint64_t number = loop_.load(std::memory_order_relaxed) / 2 + 1;
  if (number % kLoops == 0)  // numbers repeat, and what a seat has may be of any loop since they last did
    for (int part = 0; part < size(); part++) seats_[part].left.store(packed(all_of(part), number), std::memory_order_relaxed);
  loop_.store(2 * number | kOpen, std::memory_order_seq_cst);
  if (n_sleeping_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard<std::mutex> lock(bed_->mutex);
    bed_->wake.notify_all();
  }
  if (all_made_.load(std::memory_order_relaxed) && caller_.courtesy.due()) caller_.courtesy.give_way();
  take_items(leader_, number);
  loop_.store(2 * number, std::memory_order_seq_cst);
  while (!spin_until([this, number] { return !anyone_inside(number); })) std::this_thread::yield();
  if (failed_.exchange(false, std::memory_order_relaxed)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// Whether this thread is inside of the loop now; false if that has been closed. Either this sees that it is closed, or who
// closed it sees this inside.
bool ThreadPool::enter(int part, uint64_t number) {
  seats_[part].inside.store(number, std::memory_order_seq_cst);
  if (loop_.load(std::memory_order_seq_cst) == (2 * number | kOpen)) return true;
  seats_[part].inside.store(kOutside, std::memory_order_release);
  return false;
}

bool ThreadPool::anyone_inside(uint64_t number) const {
  auto inside = [number](const Seat& seat) { return seat.inside.load(std::memory_order_seq_cst) == number; };
  return std::any_of(seats_.begin(), seats_.end(), inside);
}

// The first to fail keeps what it threw for who made the loop, and takes no more.
void ThreadPool::take_items(int part, uint64_t number) {
  try {
    take_all(part, number);
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
  }
}

void ThreadPool::take_all(int part, uint64_t number) {
  if (in_order_) {
    for (int item; (item = next_item_.fetch_add(1, std::memory_order_relaxed)) < n_items_;) (*body_)(item, item + 1);
    return;
  }
  do
    for (Stretch some; take(part, number, true, some);) (*body_)(some.begin, some.end);
  while (take_over(part, number));
}

uint64_t ThreadPool::packed(Stretch items, uint64_t number) {
  return number << 2 * kItemBits | uint64_t(items.end) << kItemBits | uint64_t(items.begin);
}

ThreadPool::Stretch ThreadPool::all_of(int part) const {
  const int64_t n = n_items_;
  return {int(n * part / size()), int(n * (part + 1) / size())};
}

// What a part has left in this loop: where its seat speaks of an earlier one, nobody has taken any of it.
ThreadPool::Stretch ThreadPool::left_of(int part, uint64_t left, uint64_t number) const {
  if (left >> 2 * kItemBits != number % kLoops) return all_of(part);
  return {int(left % kMostItems), int((left >> kItemBits) % kMostItems)};
}

// Half of a part's items, at least one: the first or the last. False if there is none.
bool ThreadPool::take(int part, uint64_t number, bool first_ones, Stretch& some) {
  std::atomic<uint64_t>& left = seats_[part].left;
  uint64_t before = left.load(std::memory_order_acquire), rest;
  do {
    const Stretch all = left_of(part, before, number);
    const int n = (all.size() + 1) / 2;
    if (n == 0) return false;
    some = first_ones ? Stretch{all.begin, all.begin + n} : Stretch{all.end - n, all.end};
    rest = packed(first_ones ? Stretch{some.end, all.end} : Stretch{all.begin, some.begin}, number);
  } while (!left.compare_exchange_weak(before, rest, std::memory_order_acq_rel, std::memory_order_acquire));
  return true;
}

// Makes the last half of the longest part this thread's; false if nothing is left.
bool ThreadPool::take_over(int part, uint64_t number) {
  for (;;) {
    int longest = part, most = 0;
    for (int other = 0; other < size(); other++) {
      const int n = left_of(other, seats_[other].left.load(std::memory_order_acquire), number).size();
      if (n > most) longest = other, most = n;
    }
    if (most == 0) return false;
    Stretch some;
    if (!take(longest, number, false, some)) continue;
    seats_[part].left.store(packed(some, number), std::memory_order_release);
    return true;
  }
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
  return loop_.load(std::memory_order_seq_cst) / 2 != member.seen || lead_.load(std::memory_order_relaxed) != kTaken;
}

// Goes on with the calls, or takes items of a loop that is new, if there is either.
void ThreadPool::help(Member& member) {
  if (size_t next; take_lead(next)) lead(next, member);
  uint64_t number = loop_.load(std::memory_order_acquire) / 2;
  if (number == member.seen) return;
  member.seen = number;
  if (!enter(member.part, number)) return;
  take_items(member.part, number);
  seats_[member.part].inside.store(kOutside, std::memory_order_release);
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
      const uint64_t loop = loop_.load(std::memory_order_relaxed);
      if (loop & kOpen || anyone_inside(loop / 2)) {
        std::this_thread::yield();
        continue;
      }
      std::unique_lock<std::mutex> lock(bed_->mutex);
      n_sleeping_.fetch_add(1, std::memory_order_seq_cst);
      bed_->wake.wait(lock, changed);
      n_sleeping_.fetch_sub(1, std::memory_order_seq_cst);
      self.courtesy.begin_anew();
    }
    if (stop_) return;
    help(self);
    if (self.courtesy.due()) self.courtesy.give_way();
  }
}

}  // namespace gristmill
