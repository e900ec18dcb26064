#include "simd_avx512.h"
// The order matters: what follows is written on the operations above.
#include "peaks_impl.h"
#include "quantize_impl.h"
#include "shorten_impl.h"
#include "kernels_impl.h"
#include "attention_impl.h"

namespace gristmill {
const Kernels* kernels_avx512() {
  bool here = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  return here ? &kKernels : nullptr;
}
}  // namespace gristmill
