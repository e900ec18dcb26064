// What products of bfloat16's pairs take over from kernels_avx512.cpp.
// gcc's own headers trip these two wherever an intrinsic starts from an undefined register (gcc bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "simd_avx512.h"
// The order matters: what follows is written on the operations above.
#include "peaks_impl.h"
#include "quantize_impl.h"
#include "shorten_impl.h"
#include "kernels_impl.h"
#include "attention_impl.h"
#include "attention_shortened_impl.h"

namespace gristmill {
const Kernels* kernels_avx512bf16() {
  if (!kernels_avx512() || !__builtin_cpu_supports("avx512bf16")) return nullptr;
  static const Kernels kernels = [] {
    Kernels k = *kernels_avx512();
    k.name = kIsa;
    k.bf16_step = 2;
    k.linear[int(Pack::BF16)] = plain_linear<PlainBf16>;
    k.linear[int(Pack::BF16_12)] = shortened_linear<PlainBf16>;
    k.attention_queries = attention_queries;
    k.attention_segment = attention_segment;
    k.peaks = &kPeaks;
    return k;
  }();
  return &kernels;
}
}  // namespace gristmill
