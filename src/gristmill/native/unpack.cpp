#include "unpack.h"

#include <algorithm>
#include <cstring>

#include "grids.h"
#include "half.h"
#include "lay.h"
#include "shortened.h"

namespace gristmill {

namespace {

uint16_t u16_at(const uint8_t* base, int i) {
  uint16_t v;
  std::memcpy(&v, base + 2 * i, 2);
  return v;
}

float f32_at(const uint8_t* base, int i) {
  float v;
  std::memcpy(&v, base + 4 * i, 4);
  return v;
}

// Column i of row r of a step. row_scales: of Q8R, the panel's.
float unpack_one(const Matrix& m, const Place<const uint8_t>& at, const uint8_t* row_scales, int step, int r, int i) {
  int j = i / 4, lane = 4 * r + i % 4;
  int nibble = m.quant_bytes() < 256 ? 0 : at.quants[at.stride * nibble_set(m.pack, j % 4) + lane] >> (4 * (j / 4)) & 15;
  if (has_fifth_bits(m.pack)) nibble |= (at.quants[lane] >> j & 1) << 4;
  auto half = [&](const uint8_t* scales) { return half_to_float(u16_at(scales, r)); };
  auto two_bits = [&](int set) { return at.quants[at.stride * set + lane] >> (4 * (j / 4) + 2 * (j % 2)) & 3; };
  auto three_bits = [&] { return two_bits(1 + j % 4 / 2) | (at.quants[lane] >> j & 1) << 2; };
  auto on_curve = [&](const Curve& curve, uint8_t scale, int code) {
    return half(at.super) * curve.unit * float(int8_t(scale)) * float(curve.value[code]);
  };
  auto byte = [&] { return float(int8_t(at.quants[at.stride * j + lane] - m.zero)); };
  switch (m.pack) {
    case Pack::Q8_0: return byte() * half(at.scales);
    case Pack::Q8F: return byte() * f32_at(at.scales, r);
    case Pack::Q8G: return byte() * f32_at(at.super + 4 * kLanes * (step % kSuperSteps / 2), r);
    case Pack::Q8R: return byte() * f32_at(row_scales, r);
    case Pack::Q4_0: return float(nibble - 8) * half(at.scales);
    case Pack::Q5_0: return float(nibble - 16) * half(at.scales);
    case Pack::Q4_1:
    case Pack::Q5_1: return float(nibble) * half(at.scales) + half(at.scales + 2 * kLanes);
    case Pack::IQ4_NL: return half(at.scales) * float(kIq4[nibble]);
    case Pack::IQ4_XS: return half(at.super) * float(int8_t(at.scales[r])) * float(kIq4[nibble]);
    case Pack::IQ3_S: return on_curve(kCurveIq3S, at.scales[r], nibble);
    case Pack::IQ3_XXS: return on_curve(kCurveIq3Xxs, at.scales[r], nibble);
    case Pack::IQ2: return on_curve(kCurveIq2, at.scales[kLanes * (i / 16) + r], three_bits());
    case Pack::IQ1: return on_curve(kCurveIq1, at.scales[kLanes * (i / 16) + r], three_bits());
    case Pack::Q1_0: {
      const float d = half(at.super + 2 * kLanes * (step % kSuperSteps / 4));
      return at.quants[lane] >> j & 1 ? d : -d;
    }
    case Pack::Q2_0: return float(two_bits(j % 4 / 2) - 1) * half(at.super + 2 * kLanes * (step % kSuperSteps / 2));
    case Pack::MXFP4: return e8m0_half(at.scales[r]) * float(kMxfp4[nibble]);
    case Pack::NVFP4: {
      const int scale = at.scales[kLanes * (i / 16) + r], e = scale >> 3;
      return f32_at(at.super, r) * float((e < 31 ? ((scale & 7) | 8) << e : 0) * kMxfp4[nibble]);
    }
    case Pack::Q4_K:
    case Pack::Q5_K: {
      auto byte_of = [&](int set, int k) { return half_of_set(m, at, step, set, k / 32)[k % 32]; };
      auto byte_of_half = [&](int k) {
        int bits = 0;
        for (int set = 0; set < 4; set++) bits = bits << 2 | byte_of(set, k) >> 6;
        return bits;
      };
      auto hidden = [&](int k) { return half_to_float(uint16_t(byte_of_half(k) | byte_of_half(k + 1) << 8)); };
      auto six_bits = [&](int set, int i) { return float(byte_of(set + step % kSuperSteps / 4, 4 * r + i) & 63); };
      const float scale = hidden(2 * r) * six_bits(0, step % 2 * 2 + step % 4 / 2);
      return scale * float(nibble) - hidden(2 * (kLanes + r)) * six_bits(2, step % 4);
    }
    case Pack::Q2_K: {
      const int both = at.scales[kLanes * (i / 16) + r];
      return half(at.super) * float(both & 15) * float(two_bits(j % 4 / 2)) - half(at.super + 2 * kLanes) * float(both >> 4);
    }
    default: {  // Q3_K and Q6_K
      float scale = half(at.super) * float(int8_t(at.scales[kLanes * (i / 16) + r]));
      if (m.pack == Pack::Q3_K) return scale * float(three_bits() - 4);
      return scale * float((nibble | two_bits(3 * (j % 4 / 2)) << 4) - 32);
    }
  }
}

template <class C>
void unpack_shortened(const Matrix& m, const uint8_t* group, int width, int in_group, int r, float* out) {
  using Lane = typename C::Lane;
  const uint8_t* tail = group + m.step_offset(width, m.n_steps());
  auto at = [&](const uint8_t* word, int lane) {
    Lane v;
    std::memcpy(&v, word + sizeof(Lane) * lane, sizeof v);
    return v;
  };
  auto float_of = [](Lane bits) { return float_of_bits(uint32_t(bits) << (32 - 8 * sizeof bits)); };
  const Lane base = at(tail + m.base_bytes() * in_group, C::lane(r, 0));
  for (int k = 0; k < m.cols; k++) {
    const uint8_t* words = group + m.step_offset(width, k / C::kColumns) + m.quant_bytes() * in_group;
    const int word = k % C::kColumns / C::kStepColumns, lane = C::lane(r, k);
    Lane code = 0;
    if (word < C::kWords) code = C::kept(at(words + C::kWordBytes * word, lane));
    else for (int i = 0; i < C::kWords; i++) code |= C::carried(i, at(words + C::kWordBytes * i, lane));
    out[k] = float_of(C::number(code, base));
  }
  const uint8_t* patches = tail + m.base_bytes() * width;
  for (Patch p; std::memcpy(&p, patches, sizeof p), p.place != kNowhere; patches += sizeof p)
    if (p.row() == in_group * kLanes + r) out[p.column()] = float_of(Lane(p.value));
}

}  // namespace

void unpack_row(const Matrix& m, int matrix, int row, float* out) {
  int panel = row / kLanes, r = row % kLanes, width = m.group_width(panel);
  const uint8_t* group = m.group(matrix, panel);
  if (m.shortened())
    return with_code(m.pack, [&](auto code) { unpack_shortened<decltype(code)>(m, group, width, panel % kGroup, r, out); });
  const uint8_t* row_scales = group + m.step_offset(width, m.n_steps()) + m.tail_bytes() * (panel % kGroup);
  for (int step = 0; step < m.n_steps(); step++) {
    Place<const uint8_t> at = place(m, group, width, panel % kGroup, step);
    if (m.blocked()) {
      for (int i = 0; i < kBlock; i++) *out++ = unpack_one(m, at, row_scales, step, r, i);
    } else if (m.pack == Pack::F32) {
      *out++ = f32_at(at.quants, r);
    } else if (m.pack == Pack::F16) {
      *out++ = half_to_float(u16_at(at.quants, r));
    } else {
      for (int k = 2 * step; k < std::min(m.cols, 2 * step + 2); k++) *out++ = bf16_to_float(u16_at(at.quants, 2 * r + k % 2));
    }
  }
}

}  // namespace gristmill
