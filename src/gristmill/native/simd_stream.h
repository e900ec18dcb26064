// Writing to memory past the caches, for what is not read again soon. Knows the processor's baseline alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gristmill {

// n bytes, a multiple of 16; both places are multiples of 16. A line that is written whole is never read first.
inline void stream_copy(uint8_t* to, const uint8_t* from, size_t n) {
#if defined(__x86_64__)
  for (size_t i = 0; i < n; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
#else
  std::memcpy(to, from, n);
#endif
}

// After the last stream_copy of a thread, before others may read.
inline void stream_end() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace gristmill
