// Operations as Python calls them: each is done at once and, while a tape is recording, noted on it, so that the same work
// can be done again on the same arrays as one native call. What changes from step to step must lie in those arrays.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <functional>
#include <optional>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "buffers.h"
#include "ops.h"

namespace gristmill {

namespace nb = nanobind;

template <class T, int Rank>
using In = nb::ndarray<const T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
template <class T, int Rank>
using Optional = std::optional<In<T, Rank>>;
template <class T>
using Result = nb::ndarray<nb::numpy, T>;

struct Tape {
  std::shared_ptr<Buffers> integers = std::make_shared<Buffers>();   // results that the next step reads
  std::vector<std::function<void()>> calls;
  std::unordered_set<const void*> results;
  std::vector<std::shared_ptr<void>> kept;   // inputs that come from outside
  StoreCall store{};                         // the last one,
  int n_slots = 0;                           // of its cache,
  size_t n_calls_to_store = 0;               // and how many calls there are with it

  std::unordered_set<const void*> unwritten; // results that a replay does without

  // Takes the last call back if it stored, in the same cache, what c's queries come from: it can be done on the way to c's y, and
  // without them.
  bool takes_back_store(const AttentionCall& c) {
    if (calls.empty() || n_calls_to_store != calls.size()) return false;
    if (store.q != c.q || store.kv.memory != c.kv.memory || store.qkv == c.y) return false;
    calls.pop_back();
    return true;
  }
};

// Tapes share the memory of their floats, as one step is done before the next; what runs without a tape never writes there.
struct Backend : Ops {
  using Ops::Ops;
  std::shared_ptr<Buffers> eager = std::make_shared<Buffers>(), recorded = std::make_shared<Buffers>();
  Tape* tape = nullptr;   // the one that is recording

  template <class T>
  const std::shared_ptr<Buffers>& buffers() const {
    if (!tape) return eager;
    return std::is_integral_v<T> ? tape->integers : recorded;
  }
};

// While it lives, the interpreter runs on and no other thread uses these ops: they share threads and scratch memory.
struct Running {
  explicit Running(Ops& ops) : lock(ops.busy()) {}
  nb::gil_scoped_release unlocked;  // first, so that no one waits for the lock with the interpreter in hand
  std::lock_guard<std::mutex> lock;
};

// An array for a result, whose memory is used again when its last reader has gone.
template <class T = float>
Result<T> make(Backend& backend, std::initializer_list<size_t> shape) {
  struct Lease {
    std::shared_ptr<Buffers> buffers;
    Buffers::Buffer buffer;
  };
  size_t n_bytes = sizeof(T);
  for (size_t s : shape) n_bytes *= s;
  const auto& buffers = backend.buffers<T>();
  auto* lease = new Lease{buffers, buffers->take(n_bytes)};
  nb::capsule owner(lease, [](void* p) noexcept {
    auto* lease = static_cast<Lease*>(p);
    lease->buffers->give_back(std::move(lease->buffer));
    delete lease;
  });
  T* data = reinterpret_cast<T*>(lease->buffer.memory->data());
  if (backend.tape) backend.tape->results.insert(data), backend.tape->unwritten.erase(data);
  return Result<T>(data, shape, owner);
}

// A result of the tape, whose memory other tapes may use once nothing but this array refers to it.
inline Result<float> share(const Backend& backend, const Tape& tape, Result<float> result) {
  if (!tape.results.count(result.data())) return result;
  auto* memory = new std::shared_ptr<Buffers>(backend.recorded);
  nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<std::shared_ptr<Buffers>*>(p); });
  std::vector<size_t> shape;
  for (size_t i = 0; i < result.ndim(); i++) shape.push_back(result.shape(i));
  return Result<float>(result.data(), shape.size(), shape.data(), owner);
}

namespace detail {

template <class T, class... Config>
void keep(Tape& tape, const nb::ndarray<T, Config...>& array) {
  if (tape.unwritten.count(array.data()))
    throw std::logic_error("a recorded step can read queries only in the attention that follows their storing");
  if (!tape.results.count(array.data())) tape.kept.push_back(std::make_shared<nb::ndarray<T, Config...>>(array));
}
template <class T, class... Config>
void keep(Tape& tape, const std::optional<nb::ndarray<T, Config...>>& array) {
  if (array) keep(tape, *array);
}
template <class Object>
void keep(Tape& tape, const Object& object) {
  tape.kept.push_back(std::make_shared<nb::object>(nb::find(object)));
}

}  // namespace detail

// Does `call`, which may throw, and notes it. The tape keeps the inputs alive, except results: their memory is its own, and
// reusing it in a replay in the same order is what makes a tape small.
template <class Call, class... Inputs>
void perform(Backend& backend, Call call, const Inputs&... inputs) {
  if (backend.tape) {
    backend.tape->calls.push_back(call);
    (detail::keep(*backend.tape, inputs), ...);
  }
  Running running(backend);
  call();
}

inline void replay(Backend& backend, const Tape& tape) {
  Running running(backend);
  backend.pool().run_calls(tape.calls);
}

}  // namespace gristmill
