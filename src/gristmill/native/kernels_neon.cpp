#include "simd_neon.h"
// The order matters: what follows is written on the operations above.
#include "peaks_impl.h"
#include "quantize_impl.h"
#include "shorten_impl.h"
#include "kernels_impl.h"
#include "attention_impl.h"

#if defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif

namespace gristmill {

const Kernels* kernels_neon() {
#if defined(__linux__)
  if (!(getauxval(AT_HWCAP) & HWCAP_ASIMDDP)) return nullptr;
#endif
  return &kKernels;  // all of Apple's processors have it
}

}  // namespace gristmill
