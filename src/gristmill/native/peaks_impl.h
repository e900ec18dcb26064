// Loops that reach an instruction set's limits, written on a simd_*.h, which must be included before this file.
//
// Operands come from the first-level cache anew in each round and every accumulator has a product of its own: otherwise
// the compiler would take the products out of the loop where an operation is made of several instructions.
#pragma once
#include <cstring>
#include <type_traits>

#include "machine.h"

namespace gristmill {
namespace {

// Accumulators as many as the kernels' tiles have, at most two panels high: gcc keeps those in registers.
constexpr int kIntPanels = kIntTile > 4 ? 2 : 1, kIntColumns = kIntTile / kIntPanels;
constexpr int kFloatPanels = kFloatTile > 6 ? 2 : 1, kFloatAcross = kFloatTile > 6 ? 10 : kFloatTile;

template <class Acc, int P, int C, class Step>
inline double peak_rounds(int64_t n, Acc zero, Step step) {
  Acc acc[P][C];
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++) acc[p][c] = zero;
  for (int64_t i = 0; i < n; i++) {
    asm volatile("" ::: "memory");
#pragma GCC unroll 16
    for (int c = 0; c < C; c++)
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) acc[p][c] = step(acc[p][c], p, c);
  }
  Acc kept[P][C];
  std::memcpy(kept, acc, sizeof kept);
  asm volatile("" ::"r"(kept) : "memory");
  return double(n) * P * C * kLanes * 2;
}

double peak_f32(int64_t n) {
  alignas(64) float w[kFloatPanels * kLanes], x[kFloatAcross];
  for (float& v : w) v = 1.0f;
  for (float& v : x) v = 0.5f;
  asm volatile("" ::"r"(w), "r"(x) : "memory");
  return peak_rounds<F, kFloatPanels, kFloatAcross>(
      n, f_zero(), [&](F acc, int p, int c) { return f_fma(f_load(w + p * kLanes), f_set(x[c]), acc); });
}

// Without products of pairs both numbers of a pair become floats.
double peak_bf16(int64_t n) {
  using Number = std::conditional_t<kBf16Dot, uint16_t, float>;
  alignas(64) uint16_t w[kFloatPanels * kLanes * 2];
  alignas(64) Number x[kFloatAcross * 2];
  for (uint16_t& v : w) v = 0x3f80;  // 1
  for (Number& v : x) v = Number(kBf16Dot ? 0x3f00 : 0.5);
  asm volatile("" ::"r"(w), "r"(x) : "memory");
  return 2 * peak_rounds<F, kFloatPanels, kFloatAcross>(n, f_zero(), [&](auto acc, int p, int c) {
           const uint16_t* pairs = w + p * kLanes * 2;
           if constexpr (kBf16Dot) return f_dot2(acc, pairs, x + c * 2);
           else return f_fma(f_odd_bf16(pairs), f_set(x[c * 2 + 1]), f_fma(f_even_bf16(pairs), f_set(x[c * 2]), acc));
         });
}

double peak_int8(int64_t n) {
  alignas(64) uint8_t w[kIntPanels * 64];
  alignas(64) int8_t x[kIntColumns * 4];
  for (uint8_t& v : w) v = 100;
  for (int i = 0; i < int(sizeof x); i++) x[i] = i % 2 ? -1 : 1;  // their sum is 0, so that nothing overflows
  asm volatile("" ::"r"(w), "r"(x) : "memory");
  return 4 * peak_rounds<I, kIntPanels, kIntColumns>(
                 n, i_set(0), [&](I acc, int p, int c) { return i_dot4_small(acc, u_load(w + p * 64), x + c * 4); });
}

uint32_t read_all(const uint8_t* data, size_t bytes) {
  U acc[4] = {u_load(data), u_load(data), u_load(data), u_load(data)};
  for (size_t i = 0; i < bytes; i += 256)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) acc[j] = u_or(acc[j], u_load(data + i + 64 * j));
  U all = u_or(u_or(acc[0], acc[1]), u_or(acc[2], acc[3]));
  uint32_t first;
  std::memcpy(&first, &all, sizeof first);
  return first;
}

constexpr Peaks kPeaks = {peak_f32, peak_bf16, peak_int8, read_all};

}  // namespace
}  // namespace gristmill
