#include "simd_portable.h"
// The order matters: kernels_impl.h is written on the operations above.
#include "kernels_impl.h"
#include "attention_impl.h"

namespace gristmill {
const Kernels* kernels_portable() { return &kKernels; }
}  // namespace gristmill
