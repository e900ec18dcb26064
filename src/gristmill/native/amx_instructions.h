// The instructions of Intel's AMX. Tiles are known by their numbers, which are constants.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace gristmill {
namespace {

// Whether the processor has tiles of both kinds and the system lets this process use them, which it must be asked for (Linux).
inline bool may_use_tiles() {
#if defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 7, b, c = 0, d;
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  bool here = (d >> 22 & 1) && (d >> 24 & 1) && (d >> 25 & 1);  // bfloat16, tiles, int8
  return here && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

struct Shapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

inline void set_shapes(const Shapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory"); }
inline void release_tiles() { asm volatile("tilerelease" ::: "memory"); }

// One tile, whose rows are `stride` bytes apart.
template <int Tile>
GRISTMILL_INLINE void load_tile(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
GRISTMILL_INLINE void store_tile(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
GRISTMILL_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile) : "memory");
}

// Sum += Left times Right: pairs of bfloat16; four signed bytes with four that are signed or not.
template <int Sum, int Left, int Right>
GRISTMILL_INLINE void multiply_pairs() {
  asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(Right), "i"(Left), "i"(Sum) : "memory");
}
template <int Sum, int Left, int Right, bool Signed>
GRISTMILL_INLINE void multiply_bytes() {
  if constexpr (Signed) asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(Right), "i"(Left), "i"(Sum) : "memory");
  else asm volatile("tdpbsud %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(Right), "i"(Left), "i"(Sum) : "memory");
}

}  // namespace
}  // namespace gristmill
