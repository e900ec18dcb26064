#include "unicode.h"

#include <cstring>
#include <stdexcept>

#include "unicode_tables.h"

namespace gristmill {

const ClassTable& ClassTable::get() {
  static const ClassTable table;
  return table;
}

ClassTable::ClassTable() {
  constexpr size_t n_runs = sizeof(kClassRuns) / sizeof(kClassRuns[0]);
  size_t run = 0;
  size_t n_blocks = 0;
  uint8_t block[256];
  for (uint32_t high = 0; high < 0x1100; ++high) {
    for (uint32_t low = 0; low < 256; ++low) {
      const uint32_t code_point = high << 8 | low;
      while (run + 1 < n_runs && kClassRuns[run + 1] >> 8 <= code_point) ++run;
      block[low] = static_cast<uint8_t>(kClassRuns[run]);
    }
    size_t same = 0;
    while (same < n_blocks && std::memcmp(blocks_[same], block, 256) != 0) ++same;
    if (same == n_blocks) {
      if (n_blocks == 512) throw std::logic_error("unicode_tables.h has more distinct blocks than ClassTable holds");
      std::memcpy(blocks_[n_blocks++], block, 256);
    }
    index_[high] = static_cast<uint16_t>(same);
  }
  for (uint32_t c = 0; c < 128; ++c) ascii_[c] = (*this)[c];
}

}  // namespace gristmill
