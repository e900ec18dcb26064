#include "quantize.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "half.h"
#include "matrix.h"
#include "threads.h"

namespace gristmill {

namespace {

void put_half(uint8_t* to, float value) {
  uint16_t half = float_to_half(value);
  std::memcpy(to, &half, 2);
}

// ---- blocks of 32 ---------------------------------------------------------------------------------------------------

// The first of the largest in magnitude, with its sign, makes the lowest code: -half steps (ggml's Q4_0 and Q5_0).
float signed_scale(const float* x, float half) {
  float most = 0, extreme = 0;
  for (int i = 0; i < 32; i++)
    if (std::fabs(x[i]) > most) most = std::fabs(x[i]), extreme = x[i];
  return extreme / -half;
}

float safe_inverse(float d) {
  float inverse = 1.0f / d;
  return std::fabs(inverse) <= FLT_MAX ? inverse : 0.0f;
}

void block_q4_0(const float* x, uint8_t* out) {
  float d = signed_scale(x, 8.0f), inverse = safe_inverse(d);
  put_half(out, d);
  auto code = [&](float v) { return uint8_t(std::min(15, int(v * inverse + 8.5f))); };
  for (int i = 0; i < 16; i++) out[2 + i] = uint8_t(code(x[i]) | code(x[i + 16]) << 4);
}

void block_q5_0(const float* x, uint8_t* out) {
  float d = signed_scale(x, 16.0f), inverse = safe_inverse(d);
  put_half(out, d);
  uint32_t high = 0;
  for (int i = 0; i < 16; i++) {
    int a = std::min(31, int(x[i] * inverse + 16.5f)), b = std::min(31, int(x[i + 16] * inverse + 16.5f));
    high |= uint32_t(a >> 4) << i | uint32_t(b >> 4) << (i + 16);
    out[6 + i] = uint8_t((a & 15) | (b & 15) << 4);
  }
  std::memcpy(out + 2, &high, 4);
}

// One group of Q8_GROUPS: max |x| / 127 in float32, codes rounded half to even (llama2.c's export.py).
void group_int8(const float* x, int64_t n, uint8_t* out, float* scale) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) most = std::max(most, std::fabs(x[i]));
  *scale = most / 127.0f;
  for (int64_t i = 0; i < n; i++) out[i] = uint8_t(int8_t(*scale > 0 ? std::nearbyint(x[i] / *scale) : 0.0f));
}

// ---- blocks of 256 --------------------------------------------------------------------------------------------------

// Eight scales and eight minimums of 6 bits in twelve bytes; those of the last four lend their top bits to the first eight.
void put_scales(const float* scale, const float* minimum, uint8_t* out) {
  for (int j = 0; j < 4; j++) {
    int high_scale = int(scale[j + 4]), high_minimum = int(minimum[j + 4]);
    out[j] = uint8_t(int(scale[j]) | (high_scale >> 4) << 6);
    out[j + 4] = uint8_t(int(minimum[j]) | (high_minimum >> 4) << 6);
    out[j + 8] = uint8_t((high_scale & 15) | (high_minimum & 15) << 4);
  }
}

// Lanes [lane, lane + 8) of a fit as one block of Q4_K, or of Q5_K with its plane of fifth bits.
void put_lines(const LineFit& fit, int lane, bool fifth, uint8_t* out) {
  put_half(out, fit.d[lane]), put_half(out + 2, fit.d_min[lane]);
  put_scales(fit.scale + lane, fit.minimum + lane, out + 4);
  uint8_t *high = out + 16, *low = out + (fifth ? 48 : 16);
  for (int i = 0; i < 32; i++) {
    int bits = 0;
    for (int j = 0; j < 8; j += 2) {
      int a = int(fit.q[i][lane + j]), b = int(fit.q[i][lane + j + 1]);
      low[16 * j + i] = uint8_t((a & 15) | (b & 15) << 4);
      bits |= (a >> 4) << j | (b >> 4) << (j + 1);
    }
    if (fifth) high[i] = uint8_t(bits);
  }
}

void row_lines(const float* x, int64_t n, bool fifth, uint8_t* out, const Fits& fits) {
  alignas(64) float side[32][16];
  LineFit fit;
  int bytes = fifth ? 176 : 144;
  for (int64_t at = 0; at < n; at += 512, out += 2 * bytes) {
    int n_lanes = int(std::min<int64_t>(16, (n - at) / 32));
    for (int j = 0; j < 16; j++)
      for (int i = 0; i < 32; i++) side[i][j] = j < n_lanes ? x[at + 32 * j + i] : 0.0f;
    fits.lines(side, fifth ? 31 : 15, &fit);
    for (int lane = 0; lane < n_lanes; lane += 8) put_lines(fit, lane, fifth, out + lane / 8 * bytes);
  }
}

void row_q6_k(const float* x, int64_t n, uint8_t* out, const Fits& fits) {
  alignas(64) float side[16][16];
  SymmetricFit fit;
  for (int64_t at = 0; at < n; at += 256, out += 210) {
    for (int j = 0; j < 16; j++)
      for (int i = 0; i < 16; i++) side[i][j] = x[at + 16 * j + i];
    fits.symmetric(side, &fit);
    std::memset(out, 0, 192);
    for (int k = 0; k < 256; k++) {
      int code = int(fit.q[k % 16][k / 16]) + 32, half = k / 128, quarter = k % 128 / 32, i = k % 32;
      out[64 * half + 32 * (quarter % 2) + i] |= uint8_t((code & 15) << (4 * (quarter / 2)));
      out[128 + 32 * half + i] |= uint8_t((code >> 4) << (2 * quarter));
    }
    for (int j = 0; j < 16; j++) out[192 + j] = uint8_t(int8_t(fit.scale[j]));
    put_half(out + 208, fit.d[0]);
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

const float* floats_of_row(const SourceRows& x, int64_t row, float* to, const Kernels& kernels) {
  int64_t first = row * x.cols;
  const uint8_t* data = x.data + first / source_block(x.source) * source_block_bytes(x.source);
  switch (x.source) {
    case Source::F16: kernels.from_half(reinterpret_cast<const uint16_t*>(data), int(x.cols), to); return to;
    case Source::BF16:
      for (int64_t i = 0; i < x.cols; i++) {
        uint16_t v;
        std::memcpy(&v, data + 2 * i, 2);
        to[i] = bf16_to_float(v);
      }
      return to;
    case Source::F32: std::memcpy(to, data, size_t(x.cols) * 4); return to;
    case Source::MXFP4_SPLIT:
      for (int64_t i = 0; i < x.cols; i++) {
        float unit = e8m0_half(static_cast<const uint8_t*>(x.scales)[(first + i) / 32]);
        int code = data[i / 2] >> (4 * (i % 2)) & 15;
        to[i] = code == 8 ? unit * -0.0f : unit * float(kMxfp4[code]);
      }
      return to;
    case Source::Q8_GROUPS:
    case Source::INT8_ROWS:
      for (int64_t i = 0; i < x.cols; i++)
        to[i] = float(int8_t(data[i])) * static_cast<const float*>(x.scales)[(first + i) / x.group];
      return to;
    case Source::FP8_GROUPS:
      dequantize_fp8(data, static_cast<const float*>(x.scales), x.group, first, x.cols, to, kernels);
      return to;
    case Source::NVFP4:
      dequantize(x.source, data, x.cols, to);
      for (int64_t i = 0; i < x.cols; i++) to[i] *= static_cast<const float*>(x.scales)[(first + i) / x.group];
      return to;
    default: dequantize(x.source, data, x.cols, to); return to;
  }
}

// MXFP4 with its scales apart and neighbours in a byte, as ggml lays it; every bit stays.
void row_mxfp4_of_split(const SourceRows& x, int64_t row, uint8_t* out) {
  int64_t first = row * x.cols / 32;
  for (int64_t b = first; b < first + x.cols / 32; b++, out += 17) {
    const uint8_t* q = x.data + 16 * b;
    out[0] = static_cast<const uint8_t*>(x.scales)[b];
    for (int i = 0; i < 16; i++)
      out[1 + i] = uint8_t((q[i / 2] >> (4 * (i % 2)) & 15) | (q[8 + i / 2] >> (4 * (i % 2)) & 15) << 4);
  }
}

// The largest magnitude that `target` has a scale or a number for.
float limit_of(Source target) {
  constexpr float kHalf = 65504.0f;
  switch (target) {
    case Source::F32:
    case Source::Q8_GROUPS: return FLT_MAX;
    case Source::F16: return kHalf;
    case Source::BF16: return 3.38e38f;
    case Source::Q4_0: return kHalf * 8;
    case Source::Q5_0: return kHalf * 16;
    case Source::Q8_0: return kHalf * 127;
    case Source::MXFP4: return 1e37f;
    default: return kHalf * 512;  // the types with blocks of 256, with room for the search
  }
}

}  // namespace

void dequantize_fp8(const uint8_t* data, const float* scales, int64_t group, int64_t first, int64_t n, float* out,
                    const Kernels& kernels) {
  for (int64_t i = 0, end; i < n; i = end) {
    const int64_t g = (first + i) / group;
    end = std::min(n, (g + 1) * group - first);
    kernels.from_fp8(data + i, int(end - i), scales[g], out + i);
  }
}

bool fits(Source target, const float* x, int64_t n) {
  const float limit = limit_of(target);
  bool all = true;
  for (int64_t i = 0; i < n; i++) all &= std::fabs(x[i]) <= limit;
  return all;
}

void quantize_row(Source target, const float* x, int64_t n, uint8_t* out, const Kernels& kernels) {
  switch (target) {
    case Source::F32: std::memcpy(out, x, size_t(n) * 4); break;
    case Source::F16: kernels.to_half(x, int(n), reinterpret_cast<uint16_t*>(out)); break;
    case Source::BF16: kernels.to_bf16(x, int(n), reinterpret_cast<uint16_t*>(out)); break;
    case Source::Q8_0: kernels.quantize_q8_0(x, int(n), out); break;
    case Source::Q4_0:
      for (int64_t i = 0; i < n; i += 32) block_q4_0(x + i, out + i / 32 * 18);
      break;
    case Source::Q5_0:
      for (int64_t i = 0; i < n; i += 32) block_q5_0(x + i, out + i / 32 * 22);
      break;
    case Source::MXFP4:
      for (int64_t i = 0; i < n; i += 32) kernels.fits->mxfp4(x + i, out + i / 32 * 17);
      break;
    case Source::Q4_K: row_lines(x, n, false, out, *kernels.fits); break;
    case Source::Q5_K: row_lines(x, n, true, out, *kernels.fits); break;
    case Source::Q6_K: row_q6_k(x, n, out, *kernels.fits); break;
    default: throw std::invalid_argument("nothing quantizes to this type");
  }
}

void check_target(Source target, int64_t cols, int64_t group) {
  switch (target) {
    case Source::F32: case Source::F16: case Source::BF16: case Source::Q4_0: case Source::Q5_0: case Source::Q8_0:
    case Source::Q4_K: case Source::Q5_K: case Source::Q6_K: case Source::MXFP4: break;
    case Source::Q8_GROUPS:
      if (group <= 0 || cols % group) throw std::invalid_argument("quantize_rows: the columns are not whole groups");
      return;
    default: throw std::invalid_argument("quantize_rows: nothing quantizes to this type");
  }
  if (cols % source_block(target)) throw std::invalid_argument("quantize_rows: the columns are not whole blocks of the target");
}

int64_t quantize_rows(const SourceRows& x, const int64_t* rows, int64_t n_rows, Source target, int64_t group, uint8_t* out,
                      float* scales, ThreadPool& pool, const Kernels& kernels) {
  constexpr int64_t kItem = 32768;  // numbers a thread takes at once
  int64_t a_time = std::max<int64_t>(1, kItem / x.cols), n_items = (n_rows + a_time - 1) / a_time;
  int64_t row_bytes = x.cols / source_block(target) * source_block_bytes(target);
  int64_t row_scales = target == Source::Q8_GROUPS ? x.cols / group : 0;
  std::atomic<int64_t> bad{n_rows};
  pool.run(int(n_items), [&](int item) {
    std::vector<float> floats(size_t(x.cols));
    for (int64_t i = item * a_time; i < std::min(n_rows, (item + 1) * a_time); i++) {
      if (x.source == Source::MXFP4_SPLIT && target == Source::MXFP4) {
        row_mxfp4_of_split(x, rows[i], out + i * row_bytes);
        continue;
      }
      const float* v = floats_of_row(x, rows[i], floats.data(), kernels);
      if (!fits(target, v, x.cols)) {
        int64_t before = bad;
        while (i < before && !bad.compare_exchange_weak(before, i)) {}
        return;
      }
      if (target != Source::Q8_GROUPS) {
        quantize_row(target, v, x.cols, out + i * row_bytes, kernels);
        continue;
      }
      for (int64_t g = 0; g < row_scales; g++)
        group_int8(v + g * group, group, out + i * row_bytes + g * group, scales + i * row_scales + g);
    }
  });
  return bad == n_rows ? -1 : int64_t(bad);
}

}  // namespace gristmill
