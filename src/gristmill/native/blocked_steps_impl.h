// One step of a group, 32 columns of the weight, times activations in int8, or eight steps that share scales: what
// blocked_impl.h repeats. A tile is P panels by C columns of activations.
#pragma once
#include "linear_impl.h"
#include "quantized_types.h"

namespace gristmill {
namespace {

// One step's activations of columns that lie in up to two blocks, which are `apart` from each other, from the first one's column
// kSkip on. Below, A is one of these.
template <int kSkip>
struct StepActivations {
  const ActivationBlock* first;
  size_t apart;

  const ActivationBlock& block(int c) const { return first[c + kSkip < kTileColumns ? 0 : apart]; }
  const int8_t* q(int c) const { return block(c).q[(c + kSkip) % kTileColumns]; }
  float scale(int c) const { return block(c).scale[(c + kSkip) % kTileColumns]; }
  int32_t raise(int c) const { return block(c).raise[(c + kSkip) % kTileColumns]; }
  int32_t start(int half, int c) const { return block(c).start[half][(c + kSkip) % kTileColumns]; }
  const int8_t* sums(int c) const { return block(c).sums[(c + kSkip) % kTileColumns]; }
  StepActivations before(int n = 1) const { return {first - n, apart}; }
};

template <int I>
using Index = std::integral_constant<int, I>;

// What is multiplied as a stream is read in exactly its order.
template <int P, int C>
constexpr bool kStream = P == kGroup && C <= 2;

// What is worth asking for near its time where streams wait in the first-level cache: others lose by it, all at a step's end.
template <class T, int C>
constexpr bool kNear = kVectorBytes == 64 || kSmall<T> || C > 1 || T::kWhole || !kForeseen;

// There a step's lines are asked for as it is multiplied, some after each set: all of them at its end wait for one another.
template <int P, int C>
constexpr bool kAskInSteps = kVectorBytes == 64 && kStream<P, C>;

template <class T, int J, int P, int C, class A>
GRISTMILL_INLINE void dot_set(const uint8_t*& q, int stride, const A& a, I (&sum)[P][C]) {
  auto dot = [&](I acc, U w, int c) __attribute__((always_inline)) {
    return kSmall<T> ? i_dot4_small(acc, w, a.q(c) + 4 * J) : i_dot4(acc, w, a.q(c) + 4 * J);
  };
  if constexpr (kPanelByPanel && kStream<P, C>) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      const U w = T::template set<J>(q + 64 * p, stride);
      in_order(q);
#pragma GCC unroll 8
      for (int c = 0; c < C; c++) sum[p][c] = dot(sum[p][c], w, c);
    }
    return;
  }
  U w[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; p++) {
    w[p] = T::template set<J>(q + 64 * p, stride);
    if constexpr (kStream<P, C> && C == 1 && T::kQuantBytes == 512) in_order(q);
  }
#pragma GCC unroll 8
  for (int c = 0; c < C; c++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[p][c] = dot(sum[p][c], w[p], c);
}

// What is added to the first (Half 0) and to the second of two sums of a K type before their last kShift bits go: one is
// rounded down where the other is rounded up, so that their errors cancel.
template <class T, int Half>
constexpr int kRound = T::kShift ? (1 << T::kShift) / 2 - 1 + Half : 0;

// Where the sum of a half of a step starts, so that the quants' zero is taken off; sum: of the activations' quants.
template <class T, int Half>
constexpr int32_t start_of_half(int32_t sum) { return kRound<T, Half> - T::kZero * sum; }

template <class T, int P, int C, class A>
GRISTMILL_INLINE void start_sums(const A& a, I (&sum)[P][C]) {
#pragma GCC unroll 8
  for (int c = 0; c < C; c++) {
    I start = i_mul(i_set(a.start(0, c)), i_set(T::kZero));
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[p][c] = start;
  }
}

// kZero times -1/32 of what is given, which is a multiple of 32.
template <int kZero>
GRISTMILL_INLINE int32_t times_zero(int32_t sum) {
  if constexpr (kZero == 0) return 0;
  else if constexpr (32 % kZero == 0) return sum >> __builtin_ctz(32 / kZero);
  else if constexpr (kZero % 32 == 0) return sum * (kZero / 32);
  else return (sum >> 5) * kZero;
}

// What the two starts in a block of activations, which are Q6_K's, have to round.
constexpr int32_t kRounds = kRound<TypeQ6_K, 0> + kRound<TypeQ6_K, 1>;

// The same for one of two sums of a K type.
template <class T, int Half, int P, int C, class A>
GRISTMILL_INLINE void start_half(const A& a, I (&sum)[P][C]) {
  constexpr int32_t kOfStarts = T::kHalves ? kRound<TypeQ6_K, Half> : kRounds;
#pragma GCC unroll 8
  for (int c = 0; c < C; c++) {
    const int32_t starts = T::kHalves ? a.start(Half, c) : a.start(0, c) + a.start(1, c);
    I start = i_set(times_zero<T::kZero>(starts - kOfStarts) + kRound<T, Half>);
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[p][c] = start;
  }
}

// The same for the sums of kPart steps, from that of `a` on.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void start_part(A a, I (&sum)[P][C]) {
  int32_t starts[C] = {};
  for (int i = 0; i < T::kPart; i++, a.first++)
    for (int c = 0; c < C; c++) starts[c] += a.start(0, c) + a.start(1, c) - kRounds;
#pragma GCC unroll 8
  for (int c = 0; c < C; c++) {
    const I start = i_set(times_zero<T::kZero>(starts[c]));
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[p][c] = start;
  }
}

template <int P, int C>
GRISTMILL_INLINE void clear_sums(I (&sum)[P][C]) {
#pragma GCC unroll 8
  for (int c = 0; c < C; c++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[p][c] = i_set(0);
}

template <int P, int C>
GRISTMILL_INLINE void add_sums(const I (&from)[P][C], I (&to)[P][C]) {
#pragma GCC unroll 8
  for (int c = 0; c < C; c++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) to[p][c] = i_add(to[p][c], from[p][c]);
}

// acc += one panel's sums times its scale.
template <class T, int C, class A>
GRISTMILL_INLINE void add_scaled(const I (&sum)[C], F scale, const A& a, F (&acc)[C]) {
#pragma GCC unroll 8
  for (int c = 0; c < C; c++) {
    F raised = f_raise(f_of_i(sum[c]), a.raise(c));
    acc[c] = T::kRows ? f_add(acc[c], raised) : f_fma(raised, scale, acc[c]);
  }
}

// acc += the sums of activations times the offsets of each panel.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void add_offsets(const uint8_t* scales, const A& a, F (&acc)[P][C]) {
  F offset[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; p++) offset[p] = T::offset(scales + T::kScaleBytes * p);
#pragma GCC unroll 8
  for (int c = 0; c < C; c++) {
    const F sum = f_raise(f_set(float(-a.start(0, c))), a.raise(c));
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) acc[p][c] = f_fma(sum, offset[p], acc[p][c]);
  }
}

// The rows' own scale, once all columns are summed; a: the last block.
template <int P, int C, class A>
GRISTMILL_INLINE void scale_columns(const A& a, F (&acc)[P][C]) {
  for (int c = 0; c < C; c++)
    for (int p = 0; p < P; p++) acc[p][c] = f_mul(acc[p][c], f_set(a.scale(c)));
}

// total += first * scale + second * the second scale of each panel.
template <class T, int P, int C>
GRISTMILL_INLINE void add_pair(const I (&first)[P][C], const I (&second)[P][C], const I (&scale)[P], I (*total)[C]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) total[p][c] = i_dot2(total[p][c], i_pair<T::kShift>(first[p][c], second[p][c]), scale[p]);
}

// What a total is multiplied by: a panel's scale of scales, the activations' scale, and the bits that were rounded away.
template <class T>
GRISTMILL_INLINE F shared_factor(F d, float scale) { return f_mul(d, f_set(scale * float(1 << T::kShift))); }

// acc += total, of steps that share the activations' scale, as numbers.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void add_shared(const I (&total)[P][C], const F (&d)[P], const A& a, F (&acc)[P][C]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) acc[p][c] = f_fma(f_of_i(total[p][c]), shared_factor<T>(d[p], a.scale(c)), acc[p][c]);
}

// The scales of the weight's rows, likewise.
template <int P, int C>
inline void scale_rows(const uint8_t* scales, F (&acc)[P][C]) {
  for (int p = 0; p < P; p++) {
    F scale = f_load(reinterpret_cast<const float*>(scales) + kLanes * p);
    for (int c = 0; c < C; c++) acc[p][c] = f_mul(acc[p][c], scale);
  }
}

// The set that is multiplied as the i-th. Sets lie in the order of these.
template <class T>
constexpr int set_at(int i) {
  return T::kPairs ? i / 2 + i % 2 * 4 : i;
}

// How many sets' products of pairs, two of them by numbers of at most 127, fit 16 bits together: one, two, four or eight.
template <class T>
constexpr int sets_together() {
  int n = T::kHalves ? 4 : 8;
  while (n * 2 * T::kLargest * 127 > INT16_MAX) n /= 2;
  return n;
}

// The same sums as dot_step's, where products are added as 16 bits first.
template <class T, int P, int C, class A, class S = Short>
GRISTMILL_INLINE void dot_step_short(const uint8_t* q, int stride, const A& a, I (&even)[P][C], I (&odd)[P][C]) {
  constexpr int kTogether = sets_together<T>();
  I sums[P][C];
  auto dot = [&](auto j, bool first) __attribute__((always_inline)) {
    U w[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) w[p] = T::template set<j>(q + 64 * p, stride);
#pragma GCC unroll 8
    for (int c = 0; c < C; c++)
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) {
        const I two = S::dot2(w[p], a.q(c) + 4 * j);
        sums[p][c] = first ? two : S::add(sums[p][c], two);
      }
  };
  auto add_to = [&](I (&sum)[P][C]) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int c = 0; c < C; c++)
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) sum[p][c] = S::add_to(sum[p][c], sums[p][c]);
  };
  // The i-th set: where the halves have sums of their own, one half's as far as they fit together and then the other's.
  auto place = [](int i) constexpr {
    if (!T::kHalves) return set_at<T>(i);
    const int in_half = i / (2 * kTogether) * kTogether + i % kTogether;
    return in_half + (i / kTogether % 2) * 4;
  };
  auto one = [&](auto i) __attribute__((always_inline)) {
    constexpr int j = place(i);
    dot(Index<j>(), i % kTogether == 0);
    if (i % kTogether < kTogether - 1) return;
    if (T::kHalves && j >= 4) add_to(odd);
    else add_to(even);
  };
  // Sets J and J + 4, which share bytes.
  auto both = [&](auto j) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      const U low = T::template set<j>(q + 64 * p, stride), high = T::template set<j + 4>(q + 64 * p, stride);
      in_order(q);
#pragma GCC unroll 8
      for (int c = 0; c < C; c++) {
        const I two = S::dot2(low, a.q(c) + 4 * j), others = S::dot2(high, a.q(c) + 4 * (j + 4));
        sums[p][c] = S::add(2 * j % kTogether ? S::add(sums[p][c], two) : two, others);
      }
    }
    if constexpr ((2 * j + 2) % kTogether == 0) add_to(even);
  };
  if constexpr (kStream<P, C> && T::kPairs && !T::kHalves && kTogether > 1)
    return both(Index<0>()), both(Index<1>()), both(Index<2>()), both(Index<3>());
  one(Index<0>()), one(Index<1>()), one(Index<2>()), one(Index<3>());
  one(Index<4>()), one(Index<5>()), one(Index<6>()), one(Index<7>());
}

// Bytes that one column meets where streams wait nowhere, asked for into the second-level cache some after each set. (Two
// columns, and all that is taken apart, lose by it.)
template <class T>
struct IntoSecond : T {};
constexpr int64_t kFromMemory = 1 << 19;  // numbers of a matrix; smaller ones may well be in the caches, and lose by it
template <class T>
constexpr bool kIntoSecond = false;
template <class T>
constexpr bool kIntoSecond<IntoSecond<T>> = true;

// Asks for the I-th eighth of the lines of a group's step that lie so far beyond the one at q as a stream is asked for.
template <class T, int C, int I>
GRISTMILL_INLINE void ask_for_eighth(const uint8_t* q) {
  constexpr int kLines = int(T::kQuantBytes + T::kScaleBytes) * kGroup / 64, kFirst = I * kLines / 8;
  constexpr int kBytes = ((I + 1) * kLines / 8 - kFirst) * 64;
  if constexpr (kIntoSecond<T>) return ask_for<kBytes, 2>(q + kFirst * 64, kAheadIntoSecond);
  const int as_it_lies = C == 1 ? kAheadInRegister : kAheadAsItLies;
  const int ahead = T::kQuantBytes == 512 && T::kPart == 0 ? as_it_lies : kAheadOfStream;
  ask_for<kBytes, 0>(q + kFirst * 64, ahead);
}

// The sets of one step, every second one to `even`. ask: after each it asks for an eighth of the stream.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void dot_step(const uint8_t* q, int stride, const uint8_t*& scales, const A& a, I (&even)[P][C],
                               I (&odd)[P][C], bool ask) {
  if constexpr (Short::kUsed && kSmall<T>) return dot_step_short<T, P, C>(q, stride, a, even, odd);
  auto dot = [&](auto i, I (&sum)[P][C]) __attribute__((always_inline)) {
    dot_set<T, set_at<T>(i)>(q, stride, a, sum);
    if constexpr (kStream<P, C> && (i + 1) % T::kInLine == 0) in_order(q);
    if constexpr (kAskInSteps<P, C>)
      if (ask) ask_for_eighth<T, C, i>(q);
  };
  if constexpr (T::kHalves && !T::kDear && kVectorBytes < 64) {
    // A half after the other, where registers do not hold the sums of both.
    dot_set<T, 0>(q, stride, a, even), dot_set<T, 1>(q, stride, a, even), dot_set<T, 2>(q, stride, a, even);
    dot_set<T, 3>(q, stride, a, even), dot_set<T, 4>(q, stride, a, odd), dot_set<T, 5>(q, stride, a, odd);
    dot_set<T, 6>(q, stride, a, odd), dot_set<T, 7>(q, stride, a, odd);
    return;
  }
  dot(Index<0>(), even), dot(Index<1>(), odd), dot(Index<2>(), even), dot(Index<3>(), odd);
  dot(Index<4>(), even), dot(Index<5>(), odd), dot(Index<6>(), even), dot(Index<7>(), odd);
  if constexpr (kStream<P, C>) in_order(scales);
}

// Adds a step's products to sums that have been started.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void dot_all(const uint8_t* q, int stride, const uint8_t*& scales, const A& a, I (&sum)[P][C], bool ask) {
  // Two sums an output where there are few, so that fewer products wait for the one before: whole numbers may be added in
  // any order.
  constexpr bool kTwo = kSplitSums && kStream<P, C> && (C == 1 ? T::kPairs || (T::kPart > 0 && T::kShared > 1) : T::kShared == 1);
  if constexpr (kTwo) {
    I other[P][C];
    clear_sums<P, C>(other);
    dot_step<T, P, C>(q, stride, scales, a, sum, other, ask);
    add_sums<P, C>(other, sum);
  } else {
    dot_step<T, P, C>(q, stride, scales, a, sum, sum, ask);
  }
}

// acc += one step of P panels times one block of C columns, where each step has a scale of the activations.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void block_step(const uint8_t* q, int stride, const uint8_t* scales, const A& a, F (&acc)[P][C], bool ask) {
  I sum[P][C];
  start_sums<T, P, C>(a, sum);
  dot_all<T, P, C>(q, stride, scales, a, sum, ask);
#pragma GCC unroll 8
  for (int p = 0; p < P; p++) {
    F scale = f_zero();
    if constexpr (!T::kRows) scale = T::scale(scales + T::kScaleBytes * p);
    add_scaled<T, C>(sum[p], scale, a, acc[p]);
  }
  if constexpr (T::kOffset) add_offsets<T, P, C>(scales, a, acc);
}

// The scales of P panels that stand before kSuperSteps steps, all of them: read where a stream has them, not when they are met.
template <class T, int P>
GRISTMILL_INLINE void read_parts(const uint8_t* super, F (&scales)[kSuperSteps / T::kPart][P]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 8
    for (int part = 0; part < kSuperSteps / T::kPart; part++)
      scales[part][p] = T::scale(super + T::kSuperBytes * p + T::kPartBytes * part);
}

// total += one step of a K type whose halves have scales of their own: they are a pair.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void block_halves(const uint8_t* q, int stride, const uint8_t* scales, const A& a,
                                   I (*total)[C], bool ask) {
  if constexpr (P > 1 && P * C > 2 && !kForeseen) {  // registers hold the sums of two outputs, and no order is lost
    constexpr int kFirst = P / 2;
    block_halves<T, kFirst, C>(q, stride, scales, a, total, ask);
    block_halves<T, P - kFirst, C>(q + 64 * kFirst, stride, scales + T::kScaleBytes * kFirst, a, total + kFirst, ask);
    return;
  }
  I first[P][C], second[P][C], scale[P];
  start_half<T, 0, P, C>(a, first);
  start_half<T, 1, P, C>(a, second);
  dot_step<T, P, C>(q, stride, scales, a, first, second, ask);
#pragma GCC unroll 8
  for (int p = 0; p < P; p++, scales += T::kScaleBytes) scale[p] = T::scales(scales);
  add_pair<T, P, C>(first, second, scale, total);
}

// One step of another K type; two of them are a pair.
template <class T, int Half, int P, int C, class A>
GRISTMILL_INLINE void block_half(const uint8_t* q, int stride, const uint8_t* scales, const A& a, I (&sum)[P][C],
                                 I (&scale)[P], bool ask) {
  start_half<T, Half, P, C>(a, sum);
  dot_all<T, P, C>(q, stride, scales, a, sum, ask);
  if constexpr (!T::kSixBits) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++, scales += T::kScaleBytes) scale[p] = T::scale(scales);
  }
}

// Sums of one step; a type with halves has second ones.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void whole_sums(const uint8_t* q, int stride, const uint8_t*& scales, const A& a,
                                 I (&first)[P][C], I (&second)[P][C], bool ask) {
#pragma GCC unroll 8
  for (int c = 0; c < C; c++) {
    const int32_t of_second = T::kHalves ? a.start(1, c) : 0;
    const I start = i_set((a.start(0, c) - of_second) * T::kZero), other = i_set(of_second * T::kZero);
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) first[p][c] = start, second[p][c] = other;
  }
  if constexpr (T::kHalves) dot_step<T, P, C>(q, stride, scales, a, first, second, ask);
  else dot_all<T, P, C>(q, stride, scales, a, first, ask);
}

template <int P, int C>
GRISTMILL_INLINE void add_times(const I (&sum)[P][C], const I (&scale)[P], I (&total)[P][C]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) total[p][c] = i_add(total[p][c], i_mul(sum[p][c], scale[p]));
}

// The sum of a panel's minima times one column's sums of activations, which are at `sums`, `stride` bytes from a block to the
// next.
GRISTMILL_INLINE I dot_minima(U first, U second, const int8_t* sums, size_t stride) {
  I sum = i_dot4_small(i_dot4_small(i_set(0), first, sums), second, sums + stride);
  return i_dot4_small(i_dot4_small(i_shift_left<7>(sum), first, sums + 2 * stride), second, sums + 3 * stride);
}

// Takes the minima of steps that share the activations' scale off, two sets of each panel; a: the first one's block.
template <int P, int C, class A>
GRISTMILL_INLINE void less_minima(const U (&minima)[P][2], const F (&dmin)[P], const A& a, F (&acc)[P][C]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) {
      const I sum = dot_minima(minima[p][0], minima[p][1], a.sums(c), sizeof(ActivationBlock));
      acc[p][c] = f_fnma(f_of_i(sum), f_mul(dmin[p], f_set(a.scale(c))), acc[p][c]);
    }
}

template <class T, int P, int C, class A>
GRISTMILL_INLINE void read_and_less_minima(const SuperScales& scales, const F (&dmin)[P], const A& a, F (&acc)[P][C]) {
  U minima[P][2];
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
    for (int half = 0; half < 2; half++) minima[p][half] = set_of_minima<T>(of_panel<T>(scales, p), half);
  less_minima<P, C>(minima, dmin, a, acc);
}

// The sums of both halves of a step's activations, of 16 bits each.
template <class T, class A>
GRISTMILL_INLINE int32_t sums_of_halves(const A& a, int c) {
  int32_t first = a.start(0, c), second = a.start(1, c);
  if constexpr (T::kWhole) first -= second;
  else first = (first - kRound<TypeQ6_K, 0>) >> 5, second = (second - kRound<TypeQ6_K, 1>) >> 5;
  return int32_t(uint32_t(-second) << 16 | (uint32_t(-first) & 0xffff));
}

// total += the minima of one step of P panels, which its halves have of their own, times the sums of activations.
template <class T, int P, int C, class A>
GRISTMILL_INLINE void add_minima(const uint8_t* scales, const A& a, I (&total)[P][C]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++) {
    const I minima = T::minima(scales + T::kScaleBytes * p);
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) total[p][c] = i_dot2(total[p][c], minima, i_set(sums_of_halves<T>(a, c)));
  }
}

// acc -= those totals; a: the first step's.
template <int P, int C, class A>
GRISTMILL_INLINE void less_total(const I (&total)[P][C], const F (&dmin)[P], const A& a, F (&acc)[P][C]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) acc[p][c] = f_fnma(f_of_i(total[p][c]), f_mul(dmin[p], f_set(a.scale(c))), acc[p][c]);
}

// acc += n steps of P panels that share the activations' scale, as whole numbers. step(add): calls add with where the next step's
// sets and scales are, and goes on from it; so does `a`.
template <class T, int P, int C, class A, class Step>
GRISTMILL_INLINE void whole_super(const SuperScales& super, int n, int stride, const A& a, F (&acc)[P][C], bool ask,
                                  Step step) {
  // Scales that are not whole are only once all of them are known, and so wait with the sums.
  constexpr bool kWait = !T::kOwnScales && !T::kRows;
  F d[P], scales[kSuperSteps][P], offsets[kSuperSteps][P];
  I total[P][C], sums[kWait ? kSuperSteps : 1][P][C];
  int32_t of_columns[kSuperSteps][C];
  WholeScales<T> whole[P];
  WholeOffsets whole_offsets[P];
  F dmin[P];
  I minima[P][C];
  auto read_supers = [&](auto own) __attribute__((always_inline)) {
    if constexpr (own) {
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) read_super<T>(of_panel<T>(super, p), d[p], dmin[p]);
    }
  };
  read_supers(Index<T::kOwnScales && !kInStream<T>>());
  clear_sums<P, C>(total), clear_sums<P, C>(minima);
  for (int i = 0; i < n; i++)
    step([&](const uint8_t* q, const uint8_t* own) __attribute__((always_inline)) {
      auto& sum = sums[kWait ? i : 0];
      I other[P][C], scale[2][P];
      whole_sums<T, P, C>(q, stride, own, a, sum, other, ask);
      if constexpr (T::kMinimum && T::kHalves) add_minima<T, P, C>(own, a, minima);
      if constexpr (T::kOffset)
        for (int c = 0; c < C; c++) of_columns[i][c] = -a.start(0, c);
#pragma GCC unroll 8
      for (int p = 0; p < P; p++, own += T::kScaleBytes) {
        if constexpr (kWait) whole[p].add(scales[i][p] = T::scale(scale_at<T>(super.super + T::kSuperBytes * p, own, i)));
        if constexpr (T::kOffset) whole_offsets[p].add(offsets[i][p] = T::offset(own));
        if constexpr (T::kOwnScales) scale[0][p] = scale_of<T>(of_panel<T>(super, p), i);
        if constexpr (T::kHalves) scale[1][p] = T::second_scale(own);
      }
      if constexpr (T::kRows) add_sums<P, C>(sum, total);
      if constexpr (T::kOwnScales) add_times<P, C>(sum, scale[0], total);
      if constexpr (T::kHalves) add_times<P, C>(other, scale[1], total);
    });
  if constexpr (T::kRows)
    for (F& one : d) one = f_set(1.0f);
  if constexpr (T::kMinimum && T::kHalves) less_total<P, C>(minima, dmin, a.before(), acc);
  read_supers(Index<kInStream<T>>());
  if constexpr (kInStream<T>) read_and_less_minima<T, P, C>(super, dmin, a.before(n), acc);
  if constexpr (T::kOffset) {
    for (int p = 0; p < P; p++) {
      const F one = whole_offsets[p].d(), inverse = whole_offsets[p].inverse();
      I added[C];
      for (I& sum : added) sum = i_set(0);
      for (int i = 0; i < n; i++) {
        const I offset = WholeOffsets::whole(offsets[i][p], inverse);
        for (int c = 0; c < C; c++) added[c] = i_add(added[c], i_mul(offset, i_set(of_columns[i][c])));
      }
      for (int c = 0; c < C; c++) acc[p][c] = f_fma(f_of_i(added[c]), f_mul(one, f_set(a.before().scale(c))), acc[p][c]);
    }
  }
  if constexpr (kWait) {
    F inverse[P];
    for (int p = 0; p < P; p++) d[p] = whole[p].d(), inverse[p] = whole[p].inverse();
    for (int i = 0; i < n; i++) {
      I scale[P];
      for (int p = 0; p < P; p++) scale[p] = whole[p].whole(scales[i][p], inverse[p]);
      add_times<P, C>(sums[i], scale, total);
    }
  }
  add_shared<T, P, C>(total, d, a.before(), acc);
}

}  // namespace
}  // namespace gristmill
