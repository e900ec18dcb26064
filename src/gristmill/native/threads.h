// A fixed team of threads that runs one loop at a time, and calls that have loops. Knows nothing of what they compute.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "home.h"

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
  // std::invalid_argument for less than one, and where the system gives fewer.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(seats_.size()); }

  // Calls body(item) for every item in [0, n_items), on all threads, and returns when all are done, or throws what one threw;
  // of the others, some may then not have been made.
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

  // What a thread has of a loop, on lines that are its own: those that come, take items and go meet only where one takes
  // another's. A processor that reads a line often reads its neighbour with it.
  struct alignas(128) Seat {
    std::atomic<uint64_t> inside{kOutside};  // the number of the loop that it takes items of
    std::atomic<uint64_t> left{0};           // packed: what nobody has taken of its part, and of which loop
  };
  static constexpr uint64_t kOutside = ~uint64_t(0);

  // Items begin .. end.
  struct Stretch {
    int begin, end;
    int size() const { return end - begin; }
  };
  static constexpr int kItemBits = 24, kMostItems = 1 << kItemBits, kLoops = 1 << 16;
  static uint64_t packed(Stretch items, uint64_t number);

  void work(int part);
  bool needs(const Member& member) const;
  void help(Member& member);
  bool take_lead(size_t& next);
  void lead(size_t next, Member& member);
  bool enter(int part, uint64_t number);
  bool anyone_inside(uint64_t number) const;
  void loop(int n_items, bool in_order, const std::function<void(int, int)>& body);
  void take_items(int part, uint64_t number);
  void take_all(int part, uint64_t number);
  Stretch all_of(int part) const;
  Stretch left_of(int part, uint64_t left, uint64_t number) const;
  bool take(int part, uint64_t number, bool first_ones, Stretch& some);
  bool take_over(int part, uint64_t number);

  // Where workers sleep.
  struct Bed {
    std::mutex mutex;
    std::condition_variable wake;
  };

  void end();

  const Home home_;
  std::vector<std::thread> workers_;
  std::unique_ptr<Bed> bed_ = std::make_unique<Bed>();
  std::vector<Seat> seats_;

  // Each on cache lines of its own: some threads wait on one while others count on the next. loop_: twice the loop's number,
  // and kOpen while workers may enter it.
  static constexpr uint64_t kOpen = 1;
  alignas(128) std::atomic<uint64_t> loop_{0};
  alignas(128) std::atomic<int> next_item_{0};
  alignas(128) std::atomic<int> n_sleeping_{0};
  int n_items_ = 0;
  bool in_order_ = true;  // items are taken one by one; otherwise each thread takes its part's
  const std::function<void(int, int)>* body_ = nullptr;
  std::atomic<bool> failed_{false};  // an item of this loop, of which failure_ then tells
  std::exception_ptr failure_;

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
