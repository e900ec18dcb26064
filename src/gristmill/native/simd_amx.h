// The tiles of Intel's AMX: whether they may be used, their shapes, and the four that hold sums. Included after a simd_*.h.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

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
// To set them takes 60 ns, as long as a dozen products.
struct TileShapes {
  // So many rows, and so many bytes of each in tiles 2 and 3. others: rows of tile 3 and of sums 6 and 7, if they are not as
  // many.
  TileShapes(int rows, int second, int third) { set(rows, second, third, rows); }
  TileShapes(int rows, int second, int third, int others) { set(rows, second, third, others); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
  ~TileShapes() { asm volatile("tilerelease" ::: "memory"); }

  void set(int rows, int second, int third, int others) {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    for (int sums : {0, 1, 6, 7}) shapes.row_bytes[sums] = 64, shapes.rows[sums] = uint8_t(sums < 6 ? rows : others);
    for (int left : {2, 3}) {
      int bytes = left == 2 ? second : third;
      shapes.row_bytes[left] = uint16_t(bytes), shapes.rows[left] = uint8_t(left == 2 ? rows : others);
      shapes.row_bytes[left + 2] = 64, shapes.rows[left + 2] = uint8_t(bytes / 4);
    }
    asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
  }
};

// One tile, whose rows are `stride` bytes apart.
template <int Tile>
GRISTMILL_INLINE void load_tile(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile) : "memory");
}

constexpr int kSumTiles[] = {0, 1, 6, 7};

template <int Tile>
GRISTMILL_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile) : "memory");
}

// The first sizeof...(I) tiles of sums. Their first rows are `apart` floats from one another, as are a tile's rows `stride`.
template <int... I>
GRISTMILL_INLINE void clear_tiles(std::integer_sequence<int, I...>) {
  (clear_tile<kSumTiles[I]>(), ...);
}
template <int... I>
GRISTMILL_INLINE void load_tiles(std::integer_sequence<int, I...>, const float* from, size_t apart, size_t stride) {
  (load_tile<kSumTiles[I]>(from + I * apart, stride * sizeof(float)), ...);
}
template <int Tile>
GRISTMILL_INLINE void store_tile(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(Tile) : "memory");
}
template <int... I>
GRISTMILL_INLINE void store_tiles(std::integer_sequence<int, I...>, float* to, size_t apart, size_t stride) {
  (store_tile<kSumTiles[I]>(to + I * apart, stride * sizeof(float)), ...);
}

// Adds to a tile of sums the bfloat16 products of tile `Left` with what `right` points to, and to the first ones with right(i).
template <int Left, int Sum>
GRISTMILL_INLINE void add_pairs(const void* right, size_t stride) {
  load_tile<Left + 2>(right, stride);
  asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(Left + 2), "i"(Left), "i"(kSumTiles[Sum]) : "memory");
}
template <int Left, int... I, class Right>
GRISTMILL_INLINE void add_pairs_of(std::integer_sequence<int, I...>, Right right, size_t stride) {
  (add_pairs<Left, I>(right(I), stride), ...);
}

template <int N>
using Tiles = std::make_integer_sequence<int, N>;

}  // namespace
}  // namespace gristmill
