// Runs of ASCII letters, 16 bytes at a time where the processor's baseline has such instructions.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace gristmill {

inline bool is_ascii_letter(char c) { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; }

// First byte from p on that is no ASCII letter.
inline __attribute__((always_inline)) const char* skip_ascii_letters(const char* p, const char* end) {
#if defined(__SSE2__)
  while (end - p >= 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    // 'a' .. 'z' become -128 .. -103 and everything else is larger, as signed bytes.
    const __m128i shifted = _mm_add_epi8(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), _mm_set1_epi8(0x80 - 'a'));
    const int others = _mm_movemask_epi8(_mm_cmpgt_epi8(shifted, _mm_set1_epi8(-128 + 25)));
    if (others != 0) return p + __builtin_ctz(static_cast<unsigned>(others));
    p += 16;
  }
#elif defined(__ARM_NEON) && defined(__aarch64__)
  while (end - p >= 16) {
    const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(p));
    const uint8x16_t shifted = vsubq_u8(vorrq_u8(bytes, vdupq_n_u8(0x20)), vdupq_n_u8('a'));
    const uint8x16_t others = vcgeq_u8(shifted, vdupq_n_u8(26));
    const uint64_t nibbles = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(others), 4)), 0);
    if (nibbles != 0) return p + (__builtin_ctzll(nibbles) >> 2);
    p += 16;
  }
#endif
  while (p < end && is_ascii_letter(*p)) ++p;
  return p;
}

}  // namespace gristmill
