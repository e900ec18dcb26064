// What code says to the caches: what is read soon, and what is written and not read again. Knows the processor's baseline alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <unistd.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gristmill {

// Asks for the line at p: it is read soon.
inline void fetch(const uint8_t* p) {
  __builtin_prefetch(p, 0, 2);
  asm volatile("");  // gcc sees no effect in a function that only asks, and drops the call to it
}

// Where what is read once, and asked for some KiB before, had best wait. Past the larger caches (non-temporal) into the
// first-level one, if it has 48 KiB: 32 are not enough. Intel's cores then fetch half as fast; there the second-level cache.
// Elsewhere most streams are not asked for, as the processor foresees them at least as well.
enum class Wait { Nowhere, First, Second };

inline Wait streams_wait() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) return Wait::Second;
#endif
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  if (sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10) return Wait::First;
#endif
  return Wait::Nowhere;
}

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
