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
// where nobody waited. After a wait, chosen or not, the core is kept for less than a turn of the system's: so that the next
// wait is chosen, and a busy neighbour gets little more than its half.
class Courtesy {
 public:
  void begin_anew();
  bool due() const { return Clock::now() >= next_; }
  void give_way();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kFirst = std::chrono::microseconds(200), kLast = 16 * kFirst,
                                   kNobody = std::chrono::microseconds(15), kTurn = std::chrono::microseconds(2500);
  Clock::duration pause_ = kFirst;
  Clock::time_point next_;
  long n_taken_ = 0;  // how often the system had taken the core when that was last looked at
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

  // The same for stretches of items, begin .. end, whose order does not matter but that are best done next to one another.
  // Each thread has a part of them to itself and takes half of what is left of it at a time. Whose part is done takes over the
  // last half of what is left of the longest.
  void run_stretches(int n_items, const std::function<void(int begin, int end)>& body);

  // Makes the calls in order, each of which may `run` loops, and returns when all are made, or throws what one threw.
  // They move from thread to thread: whose turn it is to give way, leaves the next one to another that is there.
  void run_calls(const std::vector<std::function<void()>>& calls);

 private:
  struct Member {
    int part;           // of a loop
    uint64_t seen = 0;  // the last loop's number
    Courtesy courtesy = {};
  };

  // Items begin .. end that nobody has taken. Its own thread takes the first ones, others the last, and none is taken twice.
  class alignas(64) Part {
   public:
    void set(int begin, int end) { left_.store(pack(begin, end), std::memory_order_release); }
    int size() const;
    bool take(bool first_ones, int& begin, int& end);

   private:
    static uint64_t pack(int begin, int end) { return uint64_t(uint32_t(end)) << 32 | uint32_t(begin); }
    std::atomic<uint64_t> left_{0};
  };

  void work(int part);
  bool needs(const Member& member) const;
  void help(Member& member);
  bool take_lead(size_t& next);
  void lead(size_t next, Member& member);
  bool enter(uint64_t number);
  void loop(int n_items, bool in_order, const std::function<void(int, int)>& body);
  void take_items(int part);
  bool take_over(int part);

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
  bool in_order_ = true;  // items are taken one by one; otherwise from parts_
  std::vector<Part> parts_;
  const std::function<void(int, int)>* body_ = nullptr;

  // The next call, for whoever takes it; kTaken while somebody makes one and where there are none.
  static constexpr size_t kTaken = ~size_t(0);
  alignas(64) std::atomic<size_t> lead_{kTaken};
  std::atomic<bool> all_made_{true};
  const std::vector<std::function<void()>>* calls_ = nullptr;
  std::exception_ptr error_;
  Member caller_{0};
  int leader_ = 0;  // part of the thread that makes calls
  std::atomic<bool> stop_{false};
};

}  // namespace gristmill
