// Tiles here are those of AMD's cores (simd_avx512.h), which lose a fifth with those of kernels_avx512.cpp.
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
  return kernels_avx512() && __builtin_cpu_supports("avx512bf16") ? &kKernels : nullptr;
}
}  // namespace gristmill
