// A fixed team of threads that runs one loop at a time. Knows nothing of what the loop computes.
#pragma once
#include <atomic>
#include <condition_variable>
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
  // Items are handed out one by one, so that a thread that the system took away delays only its own item.
  // Only one thread may call this at a time.
  void run(int n_items, const std::function<void(int item)>& body);

 private:
  void work();
  void take_items();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // Each on a cache line of its own: some threads wait on one while others count on the next.
  alignas(64) std::atomic<unsigned> epoch_{0};     // one more for each loop
  alignas(64) std::atomic<int> n_running_{0};      // workers that have not yet left the present loop
  alignas(64) std::atomic<int> next_item_{0};
  alignas(64) std::atomic<int> n_sleeping_{0};
  int n_items_ = 0;
  const std::function<void(int)>* body_ = nullptr;
  std::atomic<bool> stop_{false};
};

}  // namespace gristmill
