// What amx_instructions.h has, in plain C++: so that its kernels can be tested on a processor without tiles (make emulate-amx).
// Tiles that don't fit one another end the process, as the processor would end it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill {
namespace {

inline bool may_use_tiles() { return true; }

struct Shapes {
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct TileFile {
  Shapes shapes;
  uint8_t row[8][16][64] = {};
};
inline thread_local TileFile tiles;

inline void set_shapes(const Shapes& shapes) { tiles = TileFile{shapes}; }
inline void release_tiles() { tiles.shapes = {}; }

template <int Tile>
void load_tile(const void* from, size_t stride) {
  for (int r = 0; r < tiles.shapes.rows[Tile]; r++)
    std::memcpy(tiles.row[Tile][r], static_cast<const uint8_t*>(from) + stride * r, tiles.shapes.row_bytes[Tile]);
}
template <int Tile>
void store_tile(void* to, size_t stride) {
  for (int r = 0; r < tiles.shapes.rows[Tile]; r++)
    std::memcpy(static_cast<uint8_t*>(to) + stride * r, tiles.row[Tile][r], tiles.shapes.row_bytes[Tile]);
}
template <int Tile>
void clear_tile() {
  std::memset(tiles.row[Tile], 0, sizeof tiles.row[Tile]);
}

// Calls add(sum, left, right) for every four bytes of each that meet.
template <class Number, class Add>
void multiply(int sum, int left, int right, Add add) {
  const Shapes& s = tiles.shapes;
  const int rows = s.rows[sum], inner = s.row_bytes[left] / 4, columns = s.row_bytes[sum] / 4;
  if (!rows || s.rows[left] != rows || s.rows[right] != inner || s.row_bytes[right] != s.row_bytes[sum]) __builtin_trap();
  for (int r = 0; r < rows; r++)
    for (int k = 0; k < inner; k++)
      for (int c = 0; c < columns; c++) {
        uint8_t* at = tiles.row[sum][r] + 4 * c;
        Number number;
        std::memcpy(&number, at, 4);
        number = add(number, tiles.row[left][r] + 4 * k, tiles.row[right][k] + 4 * c);
        std::memcpy(at, &number, 4);
      }
}

inline float bf16_at(const uint8_t* p) {
  const uint32_t bits = uint32_t(p[1]) << 24 | uint32_t(p[0]) << 16;
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}

template <int Sum, int Left, int Right>
__attribute__((noinline)) void multiply_pairs() {
  multiply<float>(Sum, Left, Right, [](float sum, const uint8_t* a, const uint8_t* b) {
    return sum + bf16_at(a) * bf16_at(b) + bf16_at(a + 2) * bf16_at(b + 2);
  });
}
template <int Sum, int Left, int Right, bool Signed>
__attribute__((noinline)) void multiply_bytes() {
  multiply<int32_t>(Sum, Left, Right, [](int32_t sum, const uint8_t* a, const uint8_t* b) {
    for (int i = 0; i < 4; i++) sum += int32_t(int8_t(a[i])) * (Signed ? int32_t(int8_t(b[i])) : int32_t(b[i]));
    return sum;
  });
}

}  // namespace
}  // namespace gristmill
