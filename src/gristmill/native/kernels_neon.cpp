#include "simd_neon.h"
// The order matters: what follows is written on the operations above.
#include "peaks_impl.h"
#include "quantize_impl.h"
#include "shorten_impl.h"
#include "kernels_impl.h"
#include "attention_impl.h"

#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif

namespace gristmill {
const Kernels* kernels_neon() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? &kKernels : nullptr; }
}  // namespace gristmill
