// The tiles of Intel's AMX: their shapes, and the four that hold sums. Included after a simd_*.h.
#pragma once
#include <utility>

#include "matrix.h"
#if defined(GRISTMILL_EMULATE_AMX)
#include "amx_emulated.h"
#else
#include "amx_instructions.h"
#endif

namespace gristmill {
namespace {

// The shapes of this thread's tiles while it lives. Sums are tiles 0, 1, 6 and 7; tile 2 is multiplied by tile 4, and 3 by 5.
// To set them takes 60 ns, as long as a dozen products.
struct TileShapes {
  // So many rows, and so many bytes of each in tiles 2 and 3. others: rows of tile 3 and of sums 6 and 7, if they are not as
  // many.
  TileShapes(int rows, int second, int third) { set(rows, second, third, rows); }
  TileShapes(int rows, int second, int third, int others) { set(rows, second, third, others); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
  ~TileShapes() { release_tiles(); }

  void set(int rows, int second, int third, int others) {
    Shapes shapes;
    for (int sums : {0, 1, 6, 7}) shapes.row_bytes[sums] = 64, shapes.rows[sums] = uint8_t(sums < 6 ? rows : others);
    for (int left : {2, 3}) {
      int bytes = left == 2 ? second : third;
      shapes.row_bytes[left] = uint16_t(bytes), shapes.rows[left] = uint8_t(left == 2 ? rows : others);
      shapes.row_bytes[left + 2] = 64, shapes.rows[left + 2] = uint8_t(bytes / 4);
    }
    set_shapes(shapes);
  }
};

constexpr int kSumTiles[] = {0, 1, 6, 7};

// The first sizeof...(I) tiles of sums. Their first rows are `apart` floats from one another, as are a tile's rows `stride`.
template <int... I>
GRISTMILL_INLINE void clear_tiles(std::integer_sequence<int, I...>) {
  (clear_tile<kSumTiles[I]>(), ...);
}
template <int... I>
GRISTMILL_INLINE void load_tiles(std::integer_sequence<int, I...>, const float* from, size_t apart, size_t stride) {
  (load_tile<kSumTiles[I]>(from + I * apart, stride * sizeof(float)), ...);
}
template <int... I>
GRISTMILL_INLINE void store_tiles(std::integer_sequence<int, I...>, float* to, size_t apart, size_t stride) {
  (store_tile<kSumTiles[I]>(to + I * apart, stride * sizeof(float)), ...);
}

// Adds to a tile of sums the bfloat16 products of tile `Left` with what `right` points to, and to the first ones with right(i).
template <int Left, int Sum>
GRISTMILL_INLINE void add_pairs(const void* right, size_t stride) {
  load_tile<Left + 2>(right, stride);
  multiply_pairs<kSumTiles[Sum], Left, Left + 2>();
}
template <int Left, int... I, class Right>
GRISTMILL_INLINE void add_pairs_of(std::integer_sequence<int, I...>, Right right, size_t stride) {
  (add_pairs<Left, I>(right(I), stride), ...);
}

template <int N>
using Tiles = std::make_integer_sequence<int, N>;

}  // namespace
}  // namespace gristmill
