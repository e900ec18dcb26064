// The tiles of Intel's AMX: whether they may be used, their shapes, and the four that hold sums. Included after a simd_*.h.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include "matrix.h"

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

// The shapes of this thread's tiles while it lives. Sums are tiles 0, 1, 6 and 7; tile 2 is multiplied by tile 4, and 3 by 5.
struct TileShapes {
  // So many rows, and so many bytes of each in tiles 2 and 3.
  TileShapes(int rows, int second, int third) { set(rows, second, third); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
  ~TileShapes() { asm volatile("tilerelease" ::: "memory"); }

  void set(int rows, int second, int third) {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    for (int sums : {0, 1, 6, 7}) shapes.row_bytes[sums] = 64, shapes.rows[sums] = uint8_t(rows);
    for (int left : {2, 3}) {
      int bytes = left == 2 ? second : third;
      shapes.row_bytes[left] = uint16_t(bytes), shapes.rows[left] = uint8_t(rows);
      shapes.row_bytes[left + 2] = 64, shapes.rows[left + 2] = uint8_t(bytes / 4);
    }
    asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
  }
};

// The first `Width` tiles of sums.
template <int Width>
GRISTMILL_INLINE void clear_tiles() {
  asm volatile("tilezero %%tmm0" ::: "memory");
  if constexpr (Width > 1) asm volatile("tilezero %%tmm1" ::: "memory");
  if constexpr (Width > 2) asm volatile("tilezero %%tmm6" ::: "memory");
  if constexpr (Width > 3) asm volatile("tilezero %%tmm7" ::: "memory");
}

// Their first rows are `apart` floats from one another, as are a tile's rows `stride`.
template <int Width>
GRISTMILL_INLINE void load_tiles(const float* from, size_t apart, size_t stride) {
  stride *= sizeof(float);
  asm volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(from), "r"(stride) : "memory");
  if constexpr (Width > 1) asm volatile("tileloadd (%0,%1,1), %%tmm1" ::"r"(from + apart), "r"(stride) : "memory");
  if constexpr (Width > 2) asm volatile("tileloadd (%0,%1,1), %%tmm6" ::"r"(from + 2 * apart), "r"(stride) : "memory");
  if constexpr (Width > 3) asm volatile("tileloadd (%0,%1,1), %%tmm7" ::"r"(from + 3 * apart), "r"(stride) : "memory");
}

template <int Width>
GRISTMILL_INLINE void store_tiles(float* to, size_t apart, size_t stride) {
  stride *= sizeof(float);
  asm volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(to), "r"(stride) : "memory");
  if constexpr (Width > 1) asm volatile("tilestored %%tmm1, (%0,%1,1)" ::"r"(to + apart), "r"(stride) : "memory");
  if constexpr (Width > 2) asm volatile("tilestored %%tmm6, (%0,%1,1)" ::"r"(to + 2 * apart), "r"(stride) : "memory");
  if constexpr (Width > 3) asm volatile("tilestored %%tmm7, (%0,%1,1)" ::"r"(to + 3 * apart), "r"(stride) : "memory");
}

}  // namespace
}  // namespace gristmill
