// y = x W^T for weights that are floats, and what all linear kernels share. Included after a simd_*.h.
//
// A group of panels is read once, as the stream it is, for each tile of columns. Every output is one lane's sum over the
// weight's columns in order, whatever shares its tile.
#pragma once
#include <type_traits>

#include "matrix.h"
#include "shortened.h"
#include "simd_stream.h"

namespace gristmill {
namespace {

const Wait kStreamsWait = streams_wait();

// So many bytes before they are needed weights are asked for where each is read once: the processor foresees them only as
// far as a page of 4 KiB goes and as its window of instructions reaches, which unpacking makes short. kAheadUnpacked: into
// the second-level cache, where streams wait nowhere with more than two columns alone.
constexpr int kAheadOfStream = 6144, kAheadUnpacked = 8192;

// Asks for what lies so far beyond `at`, also where that is beyond an array's end.
template <int Bytes, int Cache>
GRISTMILL_INLINE void ask_for(const void* at, int ahead) {
  uintptr_t first = reinterpret_cast<uintptr_t>(at) + ahead;
#pragma GCC unroll 32
  for (int i = 0; i < Bytes; i += 64) __builtin_prefetch(reinterpret_cast<const void*>(first + i), 0, Cache);
}

// Asks for so much of a stream, where streams wait somewhere.
template <int Bytes>
GRISTMILL_INLINE void ask_for_stream(const void* at) {
  if (kStreamsWait == Wait::First) ask_for<Bytes, 0>(at, kAheadOfStream);
  else if (kStreamsWait == Wait::Second) ask_for<Bytes, 2>(at, kAheadOfStream);
}

// As many panels at once as a tile of C columns leaves accumulators for.
constexpr int panels_at_once(int accumulators, int n_columns) {
  return accumulators / n_columns >= 4 ? 4 : accumulators / n_columns >= 2 ? 2 : 1;
}

constexpr int kColumnsAtOnce = 128;

// Sums of a group over a part of the weight's columns. They wait here and not in y: rows of y often lie a multiple of 4 KiB
// apart, and few of them fit a cache at once.
struct Partial {
  alignas(64) float sums[kColumnsAtOnce][kGroup * kLanes];

  template <int P, int C>
  void get(int first, int column, F (&acc)[P][C]) const {
    for (int p = 0; p < P; p++)
      for (int c = 0; c < C; c++) acc[p][c] = f_load(sums[column + c] + (first + p) * kLanes);
  }
  template <int P, int C>
  void put(int first, int column, const F (&acc)[P][C]) {
    for (int p = 0; p < P; p++)
      for (int c = 0; c < C; c++) f_store(sums[column + c] + (first + p) * kLanes, acc[p][c]);
  }
};

// The sums of P panels from `panel` on go to y; the matrix's last panel may be short.
template <int P, int C>
inline void put(const Matrix& w, const Columns& columns, int panel, int column, const F (&acc)[P][C]) {
  for (int c = 0; c < C; c++) {
    float* y = columns.column[column + c].y + columns.first_row + panel * kLanes;
    for (int p = 0; p < P; p++, y += kLanes) {
      unsigned left = unsigned(w.rows - (panel + p) * kLanes);
      if (left >= kLanes) f_store(y, acc[p][c]);
      else f_store_n(y, acc[p][c], int(left));
    }
  }
}

template <int P, int C>
inline void clear(F (&acc)[P][C]) {
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++) acc[p][c] = f_zero();
}

// What a core should fetch while it multiplies: the stretch of weights that it will need next.
struct Ahead {
  const uint8_t* next;
  int lines;  // of 64 bytes, a step
  void fetch() {
    for (int i = 0; i < lines; i++) __builtin_prefetch(next + 64 * i, 0, 2);
    next += 64 * lines;
  }
};

// Calls visit<P, C>(first_panel, first_column) for tiles that cover `width` panels and n columns; C at most `Most`.
template <int Accumulators, int Most, class Visit>
inline void each_panel(int width, int column, Visit& visit) {
  constexpr int P = panels_at_once(Accumulators, Most);
  int p = 0;
  for (; p + P <= width; p += P) visit.template tile<P, Most>(p, column);
  for (; p < width; p++) visit.template tile<1, Most>(p, column);
}

template <int Accumulators, int Most, class Visit>
inline void each_tile(int width, int column, int n, Visit& visit) {
  if constexpr (Most > 0) {
    for (; n - column >= Most; column += Most) each_panel<Accumulators, Most>(width, column, visit);
    if (column < n) each_tile<Accumulators, Most - 1>(width, column, n, visit);
  }
}

struct PlainF32 {
  static constexpr int kBytes = kLanes * 4, kStep = 1, kParts = 1;
  template <int Part>
  static F step(F acc, const uint8_t* w, const Column& c, int k) {
    return f_fma(f_load(reinterpret_cast<const float*>(w)), f_set(c.x[k]), acc);
  }
};

struct PlainF16 {
  static constexpr int kBytes = kLanes * 2, kStep = 1, kParts = 1;
  template <int Part>
  static F step(F acc, const uint8_t* w, const Column& c, int k) {
    return f_fma(f_of_half(reinterpret_cast<const uint16_t*>(w)), f_set(c.x[k]), acc);
  }
};

// A pair of columns is one product of pairs or, in two parts, two of floats.
// At: activations are read anew for each product of pairs. Otherwise gcc keeps those of all panels in registers, and sums in memory.
struct PlainBf16 {
  static constexpr int kBytes = kLanes * 4, kStep = 2, kParts = kBf16Dot ? 1 : 2;
  template <int Part, bool At = false, class Acc>
  static Acc step(Acc acc, const uint8_t* w, const Column& c, int k) {
    const auto* pairs = reinterpret_cast<const uint16_t*>(w);
    if constexpr (kBf16Dot && At) return f_dot2_at(acc, pairs, c.bf16 + k);
    else if constexpr (kBf16Dot) return f_dot2(acc, pairs, c.bf16 + k);
    else if constexpr (Part == 0) return f_fma(f_even_bf16(pairs), f_set(c.x[k]), acc);
    else return f_fma(f_odd_bf16(pairs), f_set(c.x[k + 1]), acc);
  }
};

// Columns k_begin .. k_end of the weight, which lie at `steps`, with one tile of activations.
template <class T>
struct PlainVisit {
  const Matrix& w;
  const uint8_t* steps;
  int width, panel, k_begin, k_end;
  const Columns& columns;
  Partial& partial;

  template <int P, int C>
  void tile(int first, int column) {
    F acc[P][C];
    if (k_begin) partial.get<P, C>(first, column, acc);
    else clear<P, C>(acc);
    const uint8_t* q = steps + T::kBytes * first;
    const Column* x = columns.column + column;
    const bool ask = kStreamsWait != Wait::Nowhere && P == kGroup && columns.n <= kFloatColumns;
    for (int k = k_begin; k < k_end; k += T::kStep, q += T::kBytes * width) {
      if (ask) ask_for_stream<T::kBytes * P>(q);
      auto add = [&](auto part) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int p = 0; p < P; p++)
#pragma GCC unroll 16
          for (int c = 0; c < C; c++) acc[p][c] = T::template step<part>(acc[p][c], q + T::kBytes * p, x[c], k);
      };
      add(std::integral_constant<int, 0>());
      if constexpr (T::kParts == 2)
        if (k + 1 < k_end) add(std::integral_constant<int, 1>());
    }
    if (k_end < w.cols) partial.put<P, C>(first, column, acc);
    else put<P, C>(w, columns, panel + first, column, acc);
  }
};

template <class T>
void plain_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& all) {
  constexpr int kStretch = 2048 / T::kBytes * 32 * T::kStep;  // of columns: a group's share of them stays in the cache
  Partial partial;
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    int width = w.group_width(panel);
    for (int column = 0; column < all.n; column += kColumnsAtOnce) {
      Columns columns = all.some(column, kColumnsAtOnce, 0);
      int stretch = columns.n > kFloatColumns ? kStretch : w.cols;
      for (int k = 0, end; k < w.cols; k = end) {
        end = w.cols - k > stretch ? k + stretch : w.cols;
        PlainVisit<T> visit{w, group + T::kBytes * size_t(k / T::kStep) * width, width, panel, k, end, columns, partial};
        each_tile<kFloatTile, kFloatColumns>(width, 0, columns.n, visit);
      }
    }
  }
}

// ---- shortened numbers ----------------------------------------------------------------------------------------------

// A panel's words of one shortened step as those of the type that they stand for.
struct PlainWords {
  typedef Code::Lane Word __attribute__((vector_size(Code::kWordBytes)));
  Word word[Code::kWords + 1];

  GRISTMILL_INLINE void expand(const uint8_t* q, const uint8_t* bases) {
    const Word base = load(bases);
    Word last{};
#pragma GCC unroll 16
    for (int i = 0; i < Code::kWords; i++) {
      Word shortened = load(q + Code::kWordBytes * i);
      last |= Code::carried(i, shortened);
      word[i] = (shortened & Code::kKept) + base;
    }
    word[Code::kWords] = last + base;
  }

  static Word load(const uint8_t* p) {
    Word v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
};

// The patches of a group, from some column on.
class Patches {
 public:
  Patches(const Matrix& w, const uint8_t* group, int width)
      : next_(group + w.step_offset(width, w.n_steps()) + w.base_bytes() * width) {}

  // The first column of the step of the next one, or `end` where none comes before that.
  int before(int end) const {
    const int column = patch().column();
    return column < end ? column / Code::kColumns * Code::kColumns : end;
  }
  void go_to(int column) {
    while (patch().column() < column) next_ += sizeof(Patch);
  }
  // Puts those of a panel before column k + kColumns into its words of columns from k on, which are `stride` bytes apart.
  __attribute__((noinline)) void put(int k, int panel, uint8_t* words, int stride) const {
    const uint8_t* at = next_;
    for (Patch p = patch(); p.column() < k + Code::kColumns; at += sizeof p, std::memcpy(&p, at, sizeof p)) {
      if (p.row() / kLanes != panel) continue;
      const auto value = Code::Lane(p.value);
      uint8_t* word = words + stride * ((p.column() - k) / Code::kStepColumns);
      std::memcpy(word + sizeof value * Code::lane(p.row() % kLanes, p.column()), &value, sizeof value);
    }
  }

 private:
  Patch patch() const {
    Patch p;
    std::memcpy(&p, next_, sizeof p);
    return p;
  }
  const uint8_t* next_;
};

// Written out, since gcc gives up unrolling loops as large as these bodies, and then keeps what they index in memory.
template <int N, class Body>
GRISTMILL_INLINE void each_index(Body body) {
  body(std::integral_constant<int, 0>());
  if constexpr (N > 1) body(std::integral_constant<int, 1>());
  if constexpr (N > 2) body(std::integral_constant<int, 2>());
  if constexpr (N > 3) body(std::integral_constant<int, 3>());
}

// All columns of a shortened weight with one tile of activations.
struct ShortenedVisit {
  static constexpr int kBytes = Code::kWords * Code::kWordBytes;
  const Matrix& w;
  const uint8_t* group;
  int width, panel;
  const Columns& columns;

  template <int P, int N>
  void tile(int first, int column) {
    F acc[P][N];
    clear<P, N>(acc);
    const uint8_t* q = group + kBytes * first;
    const uint8_t* bases = group + w.step_offset(width, w.n_steps()) + Code::kWordBytes * first;
    const Column* x = columns.column + column;
    const bool ask = kStreamsWait != Wait::Nowhere && P == kGroup && columns.n <= kFloatColumns;
    Patches patch(w, group, width);
    int k = 0;
    auto add = [&](auto p, const PlainWords& words) __attribute__((always_inline)) {
      auto add_part = [&](int i, auto part) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int c = 0; c < N; c++)
          acc[p][c] = PlainBf16::step<part, (N > 2)>(acc[p][c], reinterpret_cast<const uint8_t*>(&words.word[i]), x[c], k + i * Code::kStepColumns);
      };
#pragma GCC unroll 16
      for (int i = 0; i <= Code::kWords; i++) {
        add_part(i, std::integral_constant<int, 0>());
        if constexpr (PlainBf16::kParts == 2) add_part(i, std::integral_constant<int, 1>());
      }
    };
    auto add_expanded = [&](auto p) __attribute__((always_inline)) {
      PlainWords words;
      words.expand(q + kBytes * p, bases + Code::kWordBytes * p);
      add(p, words);
    };
    auto add_patched = [&](auto p) __attribute__((always_inline)) {
      PlainWords words;
      words.expand(q + kBytes * p, bases + Code::kWordBytes * p);
      patch.put(k, first + p, reinterpret_cast<uint8_t*>(words.word), Code::kWordBytes);
      add(p, words);
    };
    for (;; k += Code::kColumns, q += kBytes * width) {
      for (const int stop = patch.before(w.cols); k < stop; k += Code::kColumns, q += kBytes * width) {
        if (ask) ask_for_stream<kBytes * P>(q);
        each_index<P>(add_expanded);
      }
      if (k >= w.cols) break;
      each_index<P>(add_patched);
      patch.go_to(k + Code::kColumns);
    }
    put<P, N>(w, columns, panel + first, column, acc);
  }
};

// Columns begin .. end of a shortened group as steps of the type that it stands for.
void expand_shortened(const Matrix& w, const uint8_t* group, int width, int begin, int end, uint8_t* to) {
  const uint8_t *q = group + w.step_offset(width, begin / Code::kColumns), *bases = group + w.step_offset(width, w.n_steps());
  Patches patches(w, group, width);
  patches.go_to(begin);
  for (int k = begin; k < end; k += Code::kColumns, to += (Code::kWords + 1) * Code::kWordBytes * width) {
    for (int p = 0; p < width; p++, q += Code::kWords * Code::kWordBytes) {
      PlainWords words;
      words.expand(q, bases + Code::kWordBytes * p);
#pragma GCC unroll 16
      for (int i = 0; i <= Code::kWords; i++) std::memcpy(to + Code::kWordBytes * (i * width + p), &words.word[i], Code::kWordBytes);
    }
    if (patches.before(end) > k) continue;
    for (int p = 0; p < width; p++) patches.put(k, p, to + Code::kWordBytes * p, Code::kWordBytes * width);
    patches.go_to(k + Code::kColumns);
  }
}

// Many columns share what is expanded once. A function of its own: inlined into the next, gcc keeps its sums in memory.
__attribute__((noinline)) void expanded_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& all) {
  constexpr int kSteps = 256, kStretch = kSteps * Code::kStepColumns;
  alignas(64) uint8_t expanded[kSteps * kGroup * Code::kWordBytes];
  Partial partial;
  for (; panel < panel_end; panel += kGroup) {
    const int width = w.group_width(panel);
    for (int column = 0; column < all.n; column += kColumnsAtOnce) {
      Columns columns = all.some(column, kColumnsAtOnce, 0);
      for (int k = 0, end; k < w.cols; k = end) {
        end = w.cols - k > kStretch ? k + kStretch : w.cols;
        expand_shortened(w, w.group(matrix, panel), width, k, end, expanded);
        PlainVisit<PlainBf16> visit{w, expanded, width, panel, k, end, columns, partial};
        each_tile<kFloatTile, kFloatColumns>(width, 0, columns.n, visit);
      }
    }
  }
}

// Few columns take words apart in registers, as often as there are tiles.
void shortened_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& columns) {
  if (columns.n > 4 * kFloatColumns) return expanded_linear(w, matrix, panel, panel_end, columns);
  for (; panel < panel_end; panel += kGroup) {
    ShortenedVisit visit{w, w.group(matrix, panel), w.group_width(panel), panel, columns};
    each_tile<kFloatTile, kFloatColumns>(visit.width, 0, columns.n, visit);
  }
}

}  // namespace
}  // namespace gristmill
