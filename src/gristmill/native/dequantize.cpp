#include "dequantize.h"

#include <cmath>
#include <stdexcept>

#include "grids.h"
#include "half.h"

namespace gristmill {

namespace {

struct Info {
  const char* label;
  int block, bytes;
};
constexpr Info kInfo[] = {{"f32", 1, 4},      {"f16", 1, 2},     {"bf16", 1, 2},    {"q4_0", 32, 18},  {"q4_1", 32, 20},
                          {"q5_0", 32, 22},   {"q5_1", 32, 24},  {"q8_0", 32, 34},  {"q2_k", 256, 84}, {"q3_k", 256, 110},
                          {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210}, {"iq1_s", 256, 50}, {"iq1_m", 256, 56},
                          {"iq2_xxs", 256, 66}, {"iq2_xs", 256, 74}, {"iq2_s", 256, 82}, {"iq3_xxs", 256, 98},
                          {"iq3_s", 256, 110}, {"tq1_0", 256, 54}, {"tq2_0", 256, 66}, {"iq4_nl", 32, 18},
                          {"iq4_xs", 256, 136}, {"q1_0", 128, 18}, {"q2_0", 64, 18}, {"mxfp4", 32, 17}, {"mxfp4_split", 32, 16},
                          {"q8_groups", 1, 1}, {"int8", 1, 1}, {"nvfp4", 64, 36}, {"fp8", 1, 1}};

uint16_t u16_at(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
uint32_t u32_at(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
float half_at(const uint8_t* p) { return half_to_float(u16_at(p)); }

void block_q4_0(const uint8_t* b, float* y) {
  float d = half_at(b);
  for (int i = 0; i < 16; i++) {
    y[i] = float((b[2 + i] & 15) - 8) * d;
    y[i + 16] = float((b[2 + i] >> 4) - 8) * d;
  }
}

void block_q4_1(const uint8_t* b, float* y) {
  float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 16; i++) {
    y[i] = float(b[4 + i] & 15) * d + m;
    y[i + 16] = float(b[4 + i] >> 4) * d + m;
  }
}

void block_q5_0(const uint8_t* b, float* y) {
  float d = half_at(b);
  uint32_t high = u32_at(b + 2);
  for (int i = 0; i < 16; i++) {
    int low = b[6 + i];
    y[i] = float(((low & 15) | int((high >> i) & 1) << 4) - 16) * d;
    y[i + 16] = float(((low >> 4) | int((high >> (i + 16)) & 1) << 4) - 16) * d;
  }
}

void block_q5_1(const uint8_t* b, float* y) {
  float d = half_at(b), m = half_at(b + 2);
  uint32_t high = u32_at(b + 4);
  for (int i = 0; i < 16; i++) {
    int low = b[8 + i];
    y[i] = float((low & 15) | int((high >> i) & 1) << 4) * d + m;
    y[i + 16] = float((low >> 4) | int((high >> (i + 16)) & 1) << 4) * d + m;
  }
}

void block_q8_0(const uint8_t* b, float* y) {
  float d = half_at(b);
  for (int i = 0; i < 32; i++) y[i] = float(int8_t(b[2 + i])) * d;
}

void block_q2_k(const uint8_t* b, float* y) {
  const uint8_t *scales = b, *q = b + 16;
  float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int half = 0; half < 2; half++, q += 32) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int part = 0; part < 2; part++) {
        uint8_t sc = *scales++;
        float dl = d * float(sc & 15), ml = dmin * float(sc >> 4);
        for (int i = 0; i < 16; i++) *y++ = dl * float((q[16 * part + i] >> shift) & 3) - ml;
      }
    }
  }
}

void block_q3_k(const uint8_t* b, float* y) {
  const uint8_t *high = b, *q = b + 32, *scales = b + 96;
  float d = half_at(b + 108);
  int bit = 0, scale_index = 0;
  for (int half = 0; half < 2; half++, q += 32) {
    for (int shift = 0; shift < 8; shift += 2, bit++) {
      for (int part = 0; part < 2; part++, scale_index++) {
        float dl = d * float(q3_scale(scales, scale_index));
        for (int i = 0; i < 16; i++) {
          int at = 16 * part + i;
          *y++ = dl * float(((q[at] >> shift) & 3) - ((high[at] >> bit) & 1 ? 0 : 4));
        }
      }
    }
  }
}

// Q4_K, and Q5_K with its plane of fifth bits.
void block_q45_k(const uint8_t* b, bool fifth, float* y) {
  float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t *scales = b + 4, *high = b + 16, *q = b + (fifth ? 48 : 16);
  for (int j = 0; j < 8; j++) {
    uint8_t sc, m;
    k_scale_min(scales, j, &sc, &m);
    float dl = d * float(sc), ml = dmin * float(m);
    for (int i = 0; i < 32; i++) {
      int low = q[32 * (j / 2) + i] >> (4 * (j % 2)) & 15;
      int value = fifth ? low + ((high[i] >> j) & 1) * 16 : low;
      *y++ = dl * float(value) - ml;
    }
  }
}

void block_q6_k(const uint8_t* b, float* y) {
  const uint8_t *low = b, *high = b + 128;
  const int8_t* scales = reinterpret_cast<const int8_t*>(b + 192);
  float d = half_at(b + 208);
  for (int n = 0; n < 256; n++) {
    int part = n / 128, quarter = n % 128 / 32, i = n % 32;
    int lo = low[64 * part + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 15;
    int hi = high[32 * part + i] >> (2 * quarter) & 3;
    y[n] = d * float(scales[n / 16]) * float((lo | hi << 4) - 32);
  }
}

void block_table(const uint8_t* q, const int8_t* table, float d, float* y) {
  for (int i = 0; i < 16; i++) {
    y[i] = d * float(table[q[i] & 15]);
    y[i + 16] = d * float(table[q[i] >> 4]);
  }
}

void block_iq4_xs(const uint8_t* b, float* y) {
  float d = half_at(b);
  for (int j = 0; j < 8; j++) block_table(b + 8 + 16 * j, kIq4, d * float(iq4_scale(b + 2, j)), y + 32 * j);
}

void block_q1_0(const uint8_t* b, float* y) {
  float d = half_at(b);
  for (int i = 0; i < 128; i++) y[i] = b[2 + i / 8] >> (i % 8) & 1 ? d : -d;
}

void block_q2_0(const uint8_t* b, float* y) {
  float d = half_at(b);
  for (int i = 0; i < 64; i++) y[i] = float((b[2 + i / 4] >> (2 * (i % 4)) & 3) - 1) * d;
}

// Four scales, then for each of them 16 numbers: those of a byte are eight apart.
void block_nvfp4(const uint8_t* b, float* y) {
  for (int part = 0; part < 4; part++, y += 16) {
    const Ue4m3 scale = ue4m3(b[part]);
    const float d = std::ldexp(float(scale.mantissa), scale.exponent - 1);  // half of it: numbers are doubled
    for (int i = 0; i < 8; i++) {
      const uint8_t q = b[4 + 8 * part + i];
      y[i] = d * float(kMxfp4[q & 15]);
      y[i + 8] = d * float(kMxfp4[q >> 4]);
    }
  }
}

}  // namespace

Source source_of(const std::string& label) {
  for (int i = 0; i < int(sizeof(kInfo) / sizeof(kInfo[0])); i++)
    if (label == kInfo[i].label) return Source(i);
  throw std::invalid_argument("no kernel reads weights of type '" + label + "'");
}

int source_block(Source source) { return kInfo[int(source)].block; }
int source_block_bytes(Source source) { return kInfo[int(source)].bytes; }
bool scales_apart(Source source) { return source >= Source::MXFP4_SPLIT; }

void dequantize(Source source, const uint8_t* data, int64_t n, float* y) {
  if (is_grid(source)) return numbers_of_grid(source, data, n, y);
  int block = source_block(source), bytes = source_block_bytes(source);
  for (int64_t i = 0; i < n; i += block, data += bytes, y += block) {
    switch (source) {
      case Source::F32: std::memcpy(y, data, 4); break;
      case Source::F16: *y = half_at(data); break;
      case Source::BF16: *y = bf16_to_float(u16_at(data)); break;
      case Source::Q4_0: block_q4_0(data, y); break;
      case Source::Q4_1: block_q4_1(data, y); break;
      case Source::Q5_0: block_q5_0(data, y); break;
      case Source::Q5_1: block_q5_1(data, y); break;
      case Source::Q8_0: block_q8_0(data, y); break;
      case Source::Q2_K: block_q2_k(data, y); break;
      case Source::Q3_K: block_q3_k(data, y); break;
      case Source::Q4_K: block_q45_k(data, false, y); break;
      case Source::Q5_K: block_q45_k(data, true, y); break;
      case Source::Q6_K: block_q6_k(data, y); break;
      case Source::IQ4_NL: block_table(data + 2, kIq4, half_at(data), y); break;
      case Source::IQ4_XS: block_iq4_xs(data, y); break;
      case Source::Q1_0: block_q1_0(data, y); break;
      case Source::Q2_0: block_q2_0(data, y); break;
      case Source::NVFP4: block_nvfp4(data, y); break;
      case Source::MXFP4: block_table(data + 1, kMxfp4, e8m0_half(data[0]), y); break;
      default: throw std::invalid_argument("this type keeps its scales apart");
    }
  }
}

}  // namespace gristmill
