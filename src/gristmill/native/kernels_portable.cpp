#include "simd_portable.h"
// The order matters: what follows is written on the operations above.
#include "peaks_impl.h"
#include "quantize_impl.h"
#include "shorten_impl.h"
#include "kernels_impl.h"
#include "attention_impl.h"

namespace gristmill {
const Kernels* kernels_portable() { return &kKernels; }
}  // namespace gristmill
