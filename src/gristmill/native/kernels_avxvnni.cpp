#include "simd_avx2.h"
// The order matters: what follows is written on the operations above.
#include "peaks_impl.h"
#include "quantize_impl.h"
#include "shorten_impl.h"
#include "kernels_impl.h"
#include "attention_impl.h"

namespace gristmill {
const Kernels* kernels_avxvnni() {
  bool here = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
              __builtin_cpu_supports("avxvnni");
  return here ? &kKernels : nullptr;
}
}  // namespace gristmill
