// A fixed team of threads that runs one loop at a time, and calls that have loops. Knows nothing of what they compute.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gristmill {

// When a thread lets others have its core that wait for it, which is a moment of its choice: where the system takes the core,
// it is in the middle of something that all threads then wait for. To ask takes 2 us, so it is done more and more seldom
// where nobody waited, and long not again where somebody kept the core, lest a busy neighbour gets most of it.
class Courtesy {
 public:
  void begin_anew();
  bool due() const { return Clock::now() >= next_; }
  void give_way();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kFirst = std::chrono::microseconds(200), kLast = 16 * kFirst,
                                   kNobody = std::chrono::microseconds(15);
  static constexpr int kKeepsPerWait = 16;
  Clock::duration pause_ = kFirst;
  Clock::time_point next_;
};

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(item) for every item in [0, n_items), on all threads, and returns when all are done.
  // Items are handed out one by one, so that a thread that the system took away delays only its own item, and one that
  // comes when all are taken, delays nothing. The caller may give way before it takes any, while others do.
  // Only one thread may call this at a time.
  void run(int n_items, const std::function<void(int item)>& body);

  // Makes the calls in order, each of which may `run` loops, and returns when all are made, or throws what one threw.
  // They move from thread to thread: whose turn it is to give way, leaves the next one to another that is there.
  void run_calls(const std::vector<std::function<void()>>& calls);

 private:
  struct Member {
    uint64_t seen = 0;   // the last loop's number
    Courtesy courtesy;
  };

  void work();
  bool needs(const Member& member) const;
  void help(Member& member);
  bool take_lead(size_t& next);
  void lead(size_t next, Courtesy& courtesy);
  bool enter(uint64_t number);
  void take_items();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // The loop's number above kOpen, which is set while workers may enter it, and below it how many are inside.
  static constexpr uint64_t kOpen = uint64_t(1) << 31, kNext = kOpen << 1;

  // Each on a cache line of its own: some threads wait on one while others count on the next.
  alignas(64) std::atomic<uint64_t> loop_{0};
  alignas(64) std::atomic<int> next_item_{0};
  alignas(64) std::atomic<int> n_sleeping_{0};
  int n_items_ = 0;
  const std::function<void(int)>* body_ = nullptr;

  // The next call, for whoever takes it; kTaken while somebody makes one and where there are none.
  static constexpr size_t kTaken = ~size_t(0);
  alignas(64) std::atomic<size_t> lead_{kTaken};
  std::atomic<bool> all_made_{true};
  const std::vector<std::function<void()>>* calls_ = nullptr;
  std::exception_ptr error_;
  Member caller_;
  std::atomic<bool> stop_{false};
};

}  // namespace gristmill
