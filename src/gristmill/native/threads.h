// A fixed team of threads that runs one loop at a time. Knows nothing of what the loop computes.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gristmill {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(item) for every item in [0, n_items), on all threads, and returns when all are done.
  // Items are handed out one by one, so that a thread that the system took away delays only its own item, and one that
  // comes when all are taken, delays nothing.
  // Only one thread may call this at a time.
  void run(int n_items, const std::function<void(int item)>& body);

 private:
  void work();
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
  std::atomic<bool> stop_{false};
};

}  // namespace gristmill
