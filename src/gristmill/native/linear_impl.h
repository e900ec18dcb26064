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
// far as a page of 4 KiB goes and as its window of instructions reaches, which unpacking makes short. Where streams wait in the
// second-level cache, the less there is to do with them, the later they are best asked for. kAheadUnpacked: into that cache,
// where streams wait nowhere with more than two columns alone.
constexpr int kAheadOfStream = 6144, kAheadShortened = 2560, kAheadAsItLies = 3072, kAheadTakenApart = 4096,
              kAheadUnpacked = 8192, kAheadIntoSecond = 2560;

// kAheadAsItLies as a number that gcc does not know, and so keeps in a register. Written into each of one column's requests it
// costs 5 % of the speed, for what reason is not known; two columns gain 4 by it.
const int kAheadInRegister = kStreamsWait == Wait::First ? kAheadAsItLies : 0;

// Asks for what lies so far beyond `at`, also where that is beyond an array's end.
template <int Bytes, int Cache>
GRISTMILL_INLINE void ask_for(const void* at, int ahead) {
  uintptr_t first = reinterpret_cast<uintptr_t>(at) + ahead;
#pragma GCC unroll 32
  for (int i = 0; i < Bytes; i += 64) __builtin_prefetch(reinterpret_cast<const void*>(first + i), 0, Cache);
}

// Asks for so much of a stream, where streams wait somewhere.
template <int Bytes, int Ahead = kAheadAsItLies>
GRISTMILL_INLINE void ask_for_stream(const void* at) {
  if (kStreamsWait == Wait::First) ask_for<Bytes, 0>(at, kAheadOfStream);
  else if (kStreamsWait == Wait::Second) ask_for<Bytes, 2>(at, Ahead);
}

// Has the compiler read what comes at p after what it has read so far: a stream that is read in exactly its order is fetched by
// the processor itself nearly as fast as memory gives, and any other far slower. Where a set of a panel is two registers, gcc
// needs more than a new name for p, and needs it after each panel.
constexpr bool kPanelByPanel = Short::kUsed;
GRISTMILL_INLINE void in_order(const uint8_t*& p) {
  if constexpr (kPanelByPanel) asm volatile("" : "+r"(p));
  else asm("" : "+r"(p));
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
#pragma GCC unroll 8
    for (int p = 0; p < P; p++)
#pragma GCC unroll 32
      for (int c = 0; c < C; c++) acc[p][c] = f_load(sums[column + c] + (first + p) * kLanes);
  }
  template <int P, int C>
  void put(int first, int column, const F (&acc)[P][C]) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++)
#pragma GCC unroll 32
      for (int c = 0; c < C; c++) f_store(sums[column + c] + (first + p) * kLanes, acc[p][c]);
  }
};

// The sums of P panels from `panel` on go to y; the matrix's last panel may be short.
template <int P, int C>
inline void put(const Matrix& w, const Columns& columns, int panel, int column, const F (&acc)[P][C]) {
#pragma GCC unroll 32
  for (int c = 0; c < C; c++) {
    float* y = columns.column[column + c].y + columns.first_row + panel * kLanes;
#pragma GCC unroll 8
    for (int p = 0; p < P; p++, y += kLanes) {
      unsigned left = unsigned(w.rows - (panel + p) * kLanes);
      if (left >= kLanes) f_store(y, acc[p][c]);
      else f_store_n(y, acc[p][c], int(left));
    }
  }
}

template <int P, int C>
inline void clear(F (&acc)[P][C]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 32
    for (int c = 0; c < C; c++) acc[p][c] = f_zero();
}

// How often tiles pass over a stretch.
struct Passes {
  int n = 0;
  template <int P, int N, int kSkip = 0>
  void tile(int, int) { n++; }
};

// What a core should fetch while tiles pass over a stretch of weights: the one that lies behind it, some of it in each of the
// n_steps that they take.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const uint8_t* stretch, const uint8_t* behind, int n_stretches, int n_steps)
      : next_(behind), end_(behind + (behind - stretch) * n_stretches), lines_(int((end_ - behind) / 64 / n_steps) + 1) {}
  bool asks() const { return end_; }
  void fetch() {
    if (next_ >= end_) return;
    for (int i = 0; i < lines_; i++) __builtin_prefetch(next_ + 64 * i, 0, 2);
    next_ += 64 * lines_;
  }

 private:
  const uint8_t *next_ = nullptr, *end_ = nullptr;
  int lines_ = 0;  // of 64 bytes
};

// Calls visit<P, C>(first_panel, first_column) for tiles that cover `width` panels and n columns; C at most `Most`. kWidth: the
// width where the compiler knows it, so that it makes no tiles for panels that are never left over.
template <int Accumulators, int Most, int kWidth = 0, class Visit>
inline void each_panel(int width, int column, Visit& visit) {
  constexpr int P = panels_at_once(Accumulators, Most);
  int p = 0;
  for (; p + P <= width; p += P) visit.template tile<P, Most>(p, column);
  if constexpr (kWidth == 0 || kWidth % P != 0)
    for (; p < width; p++) visit.template tile<1, Most>(p, column);
}

template <int Accumulators, int Most, int kWidth = 0, class Visit>
inline void each_tile(int width, int column, int n, Visit& visit) {
  if constexpr (Most > 0) {
    for (; n - column >= Most; column += Most) each_panel<Accumulators, Most, kWidth>(width, column, visit);
    if (column < n) each_tile<Accumulators, Most - 1, kWidth>(width, column, n, visit);
  }
}

// Whether tiles have room for many columns. Where they don't, more than one leaves none for the four panels of a group, which
// are then passed over one after another, in stretches that stay in the cache.
constexpr bool kWideTiles = kFloatTile >= 8;

// At: activations are read anew for each product. Otherwise gcc keeps those of all panels in registers, and sums in memory.
struct PlainF32 {
  static constexpr int kTile = kFloatTile, kMost = kFloatColumns;
  static constexpr Pack kShortened = Pack::F32_24;
  static constexpr int kNumberBytes = 4;  // of activations
  static const void* numbers(const Column& c, int k) { return c.x + k; }
  static constexpr int kBytes = kLanes * 4, kStep = 1, kParts = 1;
  template <int Part, bool At = false>
  static F step(F acc, const uint8_t* w, const Column& c, int k) {
    const F number = f_load(reinterpret_cast<const float*>(w));
    return At ? f_fma_at(number, c.x + k, acc) : f_fma(number, f_set(c.x[k]), acc);
  }
};

struct PlainF16 {
  static constexpr int kTile = kFloatTile, kMost = kFloatColumns;
  static constexpr int kBytes = kLanes * 2, kStep = 1, kParts = 1;
  template <int Part>
  static F step(F acc, const uint8_t* w, const Column& c, int k) {
    return f_fma(f_of_half(reinterpret_cast<const uint16_t*>(w)), f_set(c.x[k]), acc);
  }
};

// A pair of columns is one product of pairs or, in two parts, two of floats.
struct PlainBf16 {
  static constexpr int kTile = kBf16Dot ? kFloatTile : kUnpackedTile, kMost = kTile < kFloatColumns ? kTile : kFloatColumns;
  static constexpr Pack kShortened = Pack::BF16_12;
  static constexpr int kNumberBytes = kBf16Dot ? 2 : 4;
  static const void* numbers(const Column& c, int k) {
    if constexpr (kBf16Dot) return c.bf16 + k;
    else return c.x + k;
  }
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
  Ahead ahead;

  template <int P, int C>
  void tile(int first, int column) {
    F acc[P][C];
    if (k_begin) partial.get<P, C>(first, column, acc);
    else clear<P, C>(acc);
    const uint8_t* q = steps + T::kBytes * first;
    const Column* x = columns.column + column;
    const bool ask = kStreamsWait != Wait::Nowhere && P == kGroup && columns.n <= kFloatColumns;
    for (int k = k_begin; k < k_end; k += T::kStep, q += T::kBytes * width) {
      if (ahead.asks()) ahead.fetch();
      else if (ask) ask_for_stream<T::kBytes * P>(q);
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
  constexpr int kStretchBytes = kWideTiles ? 65536 : 8192;  // of a panel: what a group has of them stays in the cache
  constexpr int kStretch = kStretchBytes / T::kBytes * T::kStep, kStreamed = kWideTiles ? T::kMost : T::kTile / kGroup;
  Partial partial;
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t* group = w.group(matrix, panel);
    int width = w.group_width(panel);
    for (int column = 0; column < all.n; column += kColumnsAtOnce) {
      Columns columns = all.some(column, kColumnsAtOnce, 0);
      const bool many = columns.n > kStreamed;
      const int stretch = many ? kStretch : w.cols;
      Passes passes;
      each_tile<T::kTile, T::kMost>(width, 0, columns.n, passes);
      for (int k = 0, end; k < w.cols; k = end) {
        end = w.cols - k > stretch ? k + stretch : w.cols;
        const int n_steps = (end - k) / T::kStep;
        const uint8_t *steps = group + T::kBytes * size_t(k / T::kStep) * width,
                      *next = steps + T::kBytes * size_t(n_steps) * width;
        const bool asks = many && !kWideTiles && n_steps > 0;
        PlainVisit<T> visit{
            w, steps, width, panel, k, end, columns, partial, asks ? Ahead(steps, next, 1, n_steps * passes.n) : Ahead()};
        each_tile<T::kTile, T::kMost>(width, 0, columns.n, visit);
      }
    }
  }
}

// ---- shortened numbers ----------------------------------------------------------------------------------------------

// Calls use(i, word) with a panel's words of one shortened step as those of the type that they stand for.
template <class C, class Use>
GRISTMILL_INLINE void each_plain_word(const uint8_t* q, const uint8_t* bases, Use use) {
  typedef typename C::Lane Register __attribute__((vector_size(kVectorBytes)));
  constexpr int kRegisters = C::kWordBytes / kVectorBytes;
  auto load = [](const uint8_t* p, int r) __attribute__((always_inline)) {
    Register v;
    std::memcpy(&v, p + kVectorBytes * r, sizeof v);
    return v;
  };
  Register base[kRegisters], last[kRegisters] = {}, word[kRegisters];
#pragma GCC unroll 4
  for (int r = 0; r < kRegisters; r++) base[r] = load(bases, r);
#pragma GCC unroll 16
  for (int i = 0; i < C::kWords; i++) {
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; r++) {
      const Register shortened = load(q + C::kWordBytes * i, r);
      word[r] = C::number(C::kept(shortened), base[r]);
      last[r] |= C::carried(i, shortened);
    }
    use(i, reinterpret_cast<const uint8_t*>(word));
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRegisters; r++) last[r] = C::number(last[r], base[r]);
  use(C::kWords, reinterpret_cast<const uint8_t*>(last));
}

// The patches of a group, from some column on.
template <class C>
class Patches {
 public:
  Patches(const Matrix& w, const uint8_t* group, int width)
      : next_(group + w.step_offset(width, w.n_steps()) + w.base_bytes() * width) {}

  // The first column of the step of the next one, or `end` where none comes before that.
  int before(int end) const {
    const int column = patch().column();
    return column < end ? column / C::kColumns * C::kColumns : end;
  }
  void go_to(int column) {
    while (patch().column() < column) next_ += sizeof(Patch);
  }
  // Puts those of a panel before column k + kColumns into its words of columns from k on.
  __attribute__((noinline)) void put(int k, int panel, uint8_t* words) const {
    const uint8_t* at = next_;
    for (Patch p = patch(); p.column() < k + C::kColumns; at += sizeof p, std::memcpy(&p, at, sizeof p)) {
      if (p.row() / kLanes != panel) continue;
      const auto value = typename C::Lane(p.value);
      uint8_t* word = words + C::kWordBytes * ((p.column() - k) / C::kStepColumns);
      std::memcpy(word + sizeof value * C::lane(p.row() % kLanes, p.column()), &value, sizeof value);
    }
  }

  // Puts all before column `end` where place(column - begin, row in the group) says, and goes there.
  template <class Place>
  void put_all(int begin, int end, Place place) {
    for (Patch p = patch(); p.column() < end; next_ += sizeof p, p = patch()) {
      const auto value = typename C::Lane(p.value);
      std::memcpy(place(p.column() - begin, p.row()), &value, sizeof value);
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

// A group's words of columns begin .. end, whose steps are at q, as those that they stand for, which lie at `words` as a plain
// group's do. patches: from `begin` on; after: called after each step.
template <class C, class After>
GRISTMILL_INLINE void take_apart(const uint8_t* q, const uint8_t* bases, int width, int begin, int end, Patches<C>& patches,
                                 uint8_t* words, After after) {
  uint8_t* to = words;
  for (int k = begin; k < end; k += C::kColumns, to += (C::kWords + 1) * width * C::kWordBytes, after())
    for (int p = 0; p < width; p++, q += C::kWords * C::kWordBytes)
      each_plain_word<C>(q, bases + C::kWordBytes * p, [&](int i, const uint8_t* word) __attribute__((always_inline)) {
        std::memcpy(to + (i * width + p) * C::kWordBytes, word, C::kWordBytes);
      });
  patches.put_all(begin, end, [&](int k, int row) {
    uint8_t* word = words + (k / C::kStepColumns * width + row / kLanes) * C::kWordBytes;
    return word + sizeof(typename C::Lane) * C::lane(row % kLanes, k);
  });
}

// Written out, since gcc gives up unrolling loops as large as these bodies, and then keeps what they index in memory.
template <int N, class Body>
GRISTMILL_INLINE void each_index(Body body) {
  body(std::integral_constant<int, 0>());
  if constexpr (N > 1) body(std::integral_constant<int, 1>());
  if constexpr (N > 2) body(std::integral_constant<int, 2>());
  if constexpr (N > 3) body(std::integral_constant<int, 3>());
}

constexpr int kShortenedStretch = 256;  // of columns: a group's share of them stays in the cache

// Columns k_begin .. k_end of a shortened weight with one tile of activations. Each tile takes words apart anew, in registers.
template <class T>
struct ShortenedVisit {
  using C = Code<T::kShortened>;
  static constexpr int kBytes = C::kWords * C::kWordBytes;
  const Matrix& w;
  const uint8_t *steps, *bases;
  Patches<C> patches;  // from k_begin on
  int width, panel, k_begin, k_end;
  const Columns& columns;
  Partial& partial;
  Ahead ahead;

  template <int P, int N>
  void tile(int first, int column) {
    F acc[P][N];
    if (k_begin) partial.get<P, N>(first, column, acc);
    else clear<P, N>(acc);
    const uint8_t *q = steps + kBytes * first, *base = bases + C::kWordBytes * first;
    const Column* x = columns.column + column;
    Patches<C> patch = patches;
    int k = k_begin;
    auto add = [&](auto p, int i, const uint8_t* word) __attribute__((always_inline)) {
      auto add_part = [&](auto part) __attribute__((always_inline)) {
#pragma GCC unroll 32
        for (int c = 0; c < N; c++) acc[p][c] = T::template step<part, (N > 2)>(acc[p][c], word, x[c], k + i * C::kStepColumns);
      };
      add_part(std::integral_constant<int, 0>());
      if constexpr (T::kParts == 2) add_part(std::integral_constant<int, 1>());
    };
    auto add_expanded = [&](auto p) __attribute__((always_inline)) {
      each_plain_word<C>(q + kBytes * p, base + C::kWordBytes * p,
                         [&](int i, const uint8_t* word) __attribute__((always_inline)) { add(p, i, word); });
      if constexpr (kPanelByPanel && P == kGroup) in_order(q);
    };
    auto add_patched = [&](auto p) __attribute__((always_inline)) {
      alignas(64) uint8_t words[C::kWords + 1][C::kWordBytes];
      each_plain_word<C>(q + kBytes * p, base + C::kWordBytes * p,
                         [&](int i, const uint8_t* word) __attribute__((always_inline)) {
                           std::memcpy(words[i], word, C::kWordBytes);
                         });
      patch.put(k, first + p, words[0]);
#pragma GCC unroll 16
      for (int i = 0; i <= C::kWords; i++) add(p, i, words[i]);
    };
    for (;; k += C::kColumns, q += kBytes * width) {
      for (const int stop = patch.before(k_end); k < stop; k += C::kColumns, q += kBytes * width) {
        if constexpr (P == 1 && N > 8)
          ask_for_next<N>(column, first * (kShortenedStretch / C::kColumns) + (k - k_begin) / C::kColumns);
        if (ahead.asks()) ahead.fetch();
        else if (kStreamsWait != Wait::Nowhere && P == kGroup) ask_for_stream<kBytes * P, kAheadShortened>(q);
        each_index<P>(add_expanded);
      }
      if (k >= k_end) break;
      each_index<P>(add_patched);
      patch.go_to(k + C::kColumns);
    }
    if (k_end < w.cols) partial.put<P, N>(first, column, acc);
    else put<P, N>(w, columns, panel + first, column, acc);
  }

  // While a tile passes over all panels, the next one's activations come nearer: in each step a quarter of a row's stretch.
  template <int N>
  GRISTMILL_INLINE void ask_for_next(int column, int step) const {
    constexpr int kQuarter = kShortenedStretch / 4;
    const int next = column + N + step / 4;
    if (step / 4 >= N || next >= columns.n) return;
    ask_for<kQuarter * T::kNumberBytes, 3>(T::numbers(columns.column[next], k_begin + step % 4 * kQuarter), 0);
  }
};

// With up to so many columns a group is one stream. More of them share what is taken apart: tiles of one panel, and as many
// columns as there are accumulators for, where there are some. With more than those it is taken apart once for all.
constexpr int kStreamedColumns = kWideTiles ? 4 : kUnpackedTile / kGroup;

template <int Most, class Visit>
inline void each_wide_tile(int width, int column, int n, Visit& visit) {
  if constexpr (!kWideTiles) {
    each_tile<kUnpackedTile, kUnpackedTile>(width, column, n, visit);
  } else if constexpr (Most <= kStreamedColumns) {
    each_tile<kFloatTile, kStreamedColumns>(width, column, n, visit);
  } else {
    for (; n - column >= Most; column += Most) each_panel<Most, Most>(width, column, visit);
    each_wide_tile<Most - (Most > 8 ? 8 : 1)>(width, column, n, visit);
  }
}

// With more columns than one tile has a group is taken apart once for all of them, so much of it at a time that it stays in the
// first-level cache, and multiplied there.
template <class T>
void shortened_linear_of_many(const Matrix& w, const uint8_t* group, int panel, const Columns& columns, Partial& partial) {
  using C = Code<T::kShortened>;
  constexpr int kBytes = 16384, kColumns = kBytes / (kGroup * C::kWordBytes) * C::kStepColumns;
  alignas(64) uint8_t words[kBytes];
  const int width = w.group_width(panel);
  Patches<C> patches(w, group, width);
  Passes passes;
  each_tile<T::kTile, T::kMost>(width, 0, columns.n, passes);
  for (int k = 0, end; k < w.cols; k = end) {
    end = w.cols - k > kColumns ? k + kColumns : w.cols;
    const uint8_t *steps = group + w.step_offset(width, k / C::kColumns), *next = group + w.step_offset(width, end / C::kColumns);
    take_apart<C>(steps, group + w.step_offset(width, w.n_steps()), width, k, end, patches, words, [] {});
    PlainVisit<T> visit{w, words, width, panel, k, end, columns, partial, Ahead(steps, next, 1, (end - k) / T::kStep * passes.n)};
    each_tile<T::kTile, T::kMost>(width, 0, columns.n, visit);
  }
}

template <class T>
void shortened_linear(const Matrix& w, int matrix, int panel, int panel_end, const Columns& all) {
  using C = Code<T::kShortened>;
  Partial partial;
  for (; panel < panel_end; panel += kGroup) {
    const uint8_t *group = w.group(matrix, panel);
    const int width = w.group_width(panel);
    const uint8_t* bases = group + w.step_offset(width, w.n_steps());
    for (int column = 0; column < all.n; column += kColumnsAtOnce) {
      Columns columns = all.some(column, kColumnsAtOnce, 0);
      if constexpr (kWideTiles) {
        if (columns.n > kFloatTile) {
          shortened_linear_of_many<T>(w, group, panel, columns, partial);
          continue;
        }
      }
      const bool many = columns.n > kStreamedColumns;
      const int stretch = many ? kShortenedStretch : w.cols;
      Passes passes;
      each_wide_tile<kFloatTile>(width, 0, columns.n, passes);
      Patches<C> patches(w, group, width);
      for (int k = 0, end; k < w.cols; k = end) {
        end = w.cols - k > stretch ? k + stretch : w.cols;
        const uint8_t *steps = group + w.step_offset(width, k / C::kColumns),
                      *next = group + w.step_offset(width, end / C::kColumns);
        patches.go_to(k);
        ShortenedVisit<T> visit{w, steps, bases, patches, width, panel, k, end, columns, partial,
                                many ? Ahead(steps, next, 1, (end - k) / C::kColumns * passes.n) : Ahead()};
        each_wide_tile<kFloatTile>(width, 0, columns.n, visit);
      }
    }
  }
}

}  // namespace
}  // namespace gristmill
