#include "pack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <numeric>
#include <vector>

#include "half.h"
#include "lay.h"
#include "quantize.h"
#include "shortened.h"
#include "simd_stream.h"

namespace gristmill {

static constexpr size_t kHugePage = size_t(2) << 20;

HugeBuffer::HugeBuffer(size_t bytes) : mapped_bytes_(bytes + 64) {
  if (bytes >= kHugePage) mapped_bytes_ += 2 * kHugePage;  // address space to align in; what is not touched costs nothing
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(mapped_);
  if (bytes < kHugePage) return;
  data_ += (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage) % kHugePage;
#ifdef MADV_HUGEPAGE
  size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  madvise(data_, whole, MADV_HUGEPAGE);  // before the first touch; later it does nothing
#endif
}

void HugeBuffer::trim(size_t first) {
  uint8_t* end = static_cast<uint8_t*>(mapped_) + mapped_bytes_;
  uint8_t* start = data_ + (first + kHugePage - 1) / kHugePage * kHugePage;
  if (start < end) madvise(start, size_t(end - start), MADV_DONTNEED);
}

void Arena::expect(size_t bytes) {
  if (filler_.joinable() && bytes > 0 && bytes <= size_) {
    fill_to_ = bytes;
    chunk_->trim(bytes);
    return;
  }
  stop_filling();
  if (chunk_) chunk_->trim(used_);
  chunk_.reset();
  used_ = size_ = 0;
  if (bytes < 2 * kHugePage) return;
  chunk_ = std::make_shared<HugeBuffer>(bytes);
  size_ = bytes;
  fill_to_ = bytes, filled_ = 0;
  filler_ = std::thread([this, data = static_cast<volatile uint8_t*>(chunk_->data())] {
    // Touched, not madvised: that would hold a lock which whoever allocates memory meanwhile waits for.
    for (size_t at = 0; at < fill_to_; filled_ = at += 4096) data[at] = 0;
  });
}

void Arena::stop_filling() {
  fill_to_ = 0;
  if (filler_.joinable()) filler_.join();
}

Arena::Piece Arena::allocate(size_t bytes) {
  constexpr size_t kChunk = 32 * kHugePage;
  stop_filling();
  bytes = (bytes + 63) / 64 * 64;
  if (used_ + bytes > size_) {
    if (bytes > kChunk / 4) {
      auto own = std::make_shared<HugeBuffer>(bytes);
      return {own->data(), own};
    }
    if (chunk_) chunk_->trim(used_);
    chunk_ = std::make_shared<HugeBuffer>(kChunk);
    used_ = 0, size_ = kChunk;
  }
  used_ += bytes;
  return {chunk_->data() + used_ - bytes, chunk_};
}

HugeBuffer::~HugeBuffer() { munmap(mapped_, mapped_bytes_); }

namespace {

// A group's rows, one group of a weight after another: as they are stored or, where the target is another type, in that one.
class GroupReader {
  static Source source_of(Pack target) {
    switch (target) {
      case Pack::Q8R: return Source::INT8_ROWS;
      case Pack::Q4_0: return Source::Q4_0;
      case Pack::MXFP4: return Source::MXFP4;
      default: return Source::Q8_0;
    }
  }

 public:
  GroupReader(const SourceWeight& weight, Pack target, const Kernels& kernels)
      : w_(weight), kernels_(kernels), by_rows_(target == Pack::Q8R), target_(source_of(target)),
        requantizes_(weight.quantize_to != Pack::kCount || (target == Pack::Q8_0 && weight.source != Source::Q8_0)),
        widens_(weight.source == Source::F16 && (target == Pack::BF16 || target == Pack::BF16_12)),
        row_bytes_(size_t(weight.cols) / source_block(weight.source) * source_block_bytes(weight.source)) {}

  // Row r of a matrix, before any re-quantizing. Also where to look for a row that is read soon.
  const uint8_t* stored(int matrix, int r) const { return w_.data + row_bytes_ * (first_element(matrix, r) / w_.cols); }
  size_t row_bytes() const { return row_bytes_; }
  bool rewrites() const { return requantizes_ || widens_; }
  bool exact() const { return exact_; }  // whether bfloat16 has had all numbers of float16 that were read

  // rows[n_lanes] from row `first` on; zeros after the matrix's last one. They hold until the next call.
  void read(int matrix, int first, int n_lanes, StoredRow* rows) {
    int n = std::min(n_lanes, w_.rows - first);
    size_t bytes = requantizes_ ? size_t(w_.cols / source_block(target_) * source_block_bytes(target_)) : row_bytes_;
    if (rewrites()) rewritten_.resize(bytes * kGroupRows);
    if (n < n_lanes) zeros_.resize(bytes);
    for (int i = 0; i < n_lanes; i++) {
      rows[i] = {zeros_.data(), w_.source == Source::MXFP4_SPLIT ? zeros_.data() : nullptr, nullptr, 0, 1, 0};
      if (i >= n) continue;
      rows[i].blocks = stored(matrix, first + i);
      rows[i].first_element = first_element(matrix, first + i);
      if (w_.source == Source::MXFP4_SPLIT) {
        rows[i].e8m0 = static_cast<const uint8_t*>(w_.scales) + rows[i].first_element / kBlock;
      } else if (w_.source == Source::Q8_GROUPS) {
        rows[i].group_scales = static_cast<const float*>(w_.scales);
        rows[i].group = w_.group;
      } else if (w_.source == Source::INT8_ROWS) {
        rows[i].scale = static_cast<const float*>(w_.scales)[rows[i].first_element / w_.cols];
      }
      uint8_t* rewritten = rewritten_.data() + bytes * i;
      if (requantizes_) {
        requantize(rows[i], rewritten);
      } else if (widens_) {
        exact_ &= kernels_.shortening->half_to_bf16(rows[i].blocks, w_.cols, rewritten);
        rows[i].blocks = rewritten;
      }
    }
  }

 private:
  int64_t first_element(int matrix, int r) const {
    return (int64_t(matrix) * w_.stored_rows + (w_.row_order ? w_.row_order[r] : r)) * w_.cols;
  }

  void requantize(StoredRow& row, uint8_t* to) {
    const float* x = floats(row.blocks);
    if (by_rows_) row.scale = kernels_.quantize_row(x, w_.cols, reinterpret_cast<int8_t*>(to));
    else quantize_row(target_, x, w_.cols, to, kernels_);
    row.blocks = to;
  }

  const float* floats(const uint8_t* row) {
    floats_.resize(w_.cols);
    switch (w_.source) {
      case Source::F32: std::memcpy(floats_.data(), row, row_bytes_); break;
      case Source::F16: kernels_.from_half(reinterpret_cast<const uint16_t*>(row), w_.cols, floats_.data()); break;
      case Source::BF16:
        for (int i = 0; i < w_.cols; i++) {
          uint16_t v;
          std::memcpy(&v, row + 2 * i, 2);
          floats_[i] = bf16_to_float(v);
        }
        break;
      default: dequantize(w_.source, row, w_.cols, floats_.data());
    }
    return floats_.data();
  }

  const SourceWeight& w_;
  const Kernels& kernels_;
  bool by_rows_;
  Source target_;  // what rows are quantized to
  bool requantizes_, widens_, exact_ = true;
  size_t row_bytes_;
  std::vector<float> floats_;       // a row dequantized
  std::vector<uint8_t> rewritten_;  // a group's rows
  std::vector<uint8_t> zeros_;
};

// A weight on its way into a matrix, and how its groups are divided.
struct Job {
  const SourceWeight* weight;
  Matrix matrix;
  uint8_t* base;
  int groups_a_matrix, n_groups;

  int n_lanes(int g) const { return matrix.group_width(first_panel(g)) * kLanes; }
  int first_panel(int g) const { return g % groups_a_matrix * kGroup; }
};

// Asks for bytes [begin, end) of row i of the group after the one in work.
void fetch_row(const Job& job, const GroupReader& reader, int g, int i, size_t begin, size_t end) {
  int r = job.first_panel(g) * kLanes + i;
  if (r >= job.matrix.rows) return;
  const uint8_t* row = reader.stored(g / job.groups_a_matrix, r);
  for (size_t at = begin; at < end; at += 64) fetch(row + at);
}

// Where the rows of groups [begin, end) lie.
struct Span {
  uintptr_t low = UINTPTR_MAX, high = 0;

  Span(const Job& job, const GroupReader& reader, int begin, int end) {
    for (int g = begin; g < end; g++) {
      int first = job.first_panel(g) * kLanes, n = std::min(job.n_lanes(g), job.matrix.rows - first);
      for (int r = first; r < first + n; r++) {
        uintptr_t row = reinterpret_cast<uintptr_t>(reader.stored(g / job.groups_a_matrix, r));
        low = std::min(low, row), high = std::max(high, row + reader.row_bytes());
      }
    }
  }
};

// Where it fails, pages come one by one, or go with their file.
void advise(const Span& span, int advice) {
  uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), start = span.low / page * page;
  madvise(reinterpret_cast<void*>(start), span.high - start, advice);
}

// Groups [begin, end). The rows of a group are 64 streams, too many for the processor to foresee; but while one stretch of
// them is laid, the next one can be asked for. Steps are laid in the first-level cache and then written past all caches:
// laid in place they would be read from memory first, and that is twice as slow. Whether all of them could be laid.
bool pack_groups(const Job& job, int begin, int end, const Kernels& kernels) {
  constexpr size_t kStretchBytes = size_t(192) << 10;  // of all rows: two of them fit the second-level cache
  const Matrix& m = job.matrix;
  GroupReader reader(*job.weight, m.pack, kernels);
  size_t row_bytes = reader.row_bytes();
  int unit = steps_at_once(m.pack), n_steps = m.n_steps();
  int n_stretches = int((row_bytes * kGroupRows + kStretchBytes - 1) / kStretchBytes);
  int stretch = std::max(unit, (n_steps / n_stretches + unit) / unit * unit);
  StoredRow rows[kGroupRows];
  alignas(64) uint8_t stage[16384];
  Tail tail;
  assert(m.step_offset(kGroup, unit) <= sizeof stage);
#ifdef MADV_POPULATE_READ
  advise(Span(job, reader, begin, end), MADV_POPULATE_READ);  // asking for bytes of a page that is not there does nothing
#endif
  for (int g = begin; g < end; g++) {
    int panel = job.first_panel(g), matrix = g / job.groups_a_matrix, width = m.group_width(panel);
    uint8_t* group = job.base + (m.group(matrix, panel) - m.data);
    reader.read(matrix, panel * kLanes, width * kLanes, rows);
    if (!reader.exact()) return false;
    begin_tail(m, rows, width, kernels, tail);
    for (int step = 0; step < n_steps; step += stretch) {
      int stop = std::min(step + stretch, n_steps), fetched = 0;
      bool last = stop == n_steps;
      int next_group = last ? g + 1 : g, next_step = last ? 0 : stop;
      int n_fetch = next_group < end && (last || !reader.rewrites()) ? job.n_lanes(next_group) : 0;
      size_t from = row_bytes * next_step / n_steps, to = std::min(row_bytes, row_bytes * (next_step + stretch) / n_steps);
      for (int s = step; s < stop; s += unit) {
        int due = n_fetch * (s - step + unit) / (stop - step);
        for (; fetched < std::min(due, n_fetch); fetched++) fetch_row(job, reader, next_group, fetched, from, to);
        int laid = std::min(s + unit, stop);
        size_t at = m.step_offset(width, s), n_bytes = m.step_offset(width, laid) - at;
        lay_steps(m, rows, stage, width, s, laid, kernels, tail);
        stream_copy(group + at, stage, n_bytes);
      }
    }
    std::copy(tail.bytes.begin(), tail.bytes.end(), group + m.step_offset(width, n_steps));
    if (tail.overflows) return false;
  }
  stream_end();
  return true;
}

// What it is kept as without loss, or its own type where its numbers don't allow that. Rows from all over the weight tell; where
// others prove them wrong, it is laid again.
Pack kept_as(const SourceWeight& weight, const Kernels& kernels) {
  constexpr int kRows = 64;
  const Pack plain = pack_of(weight);
  if (weight.quantize_to != Pack::kCount || weight.lossless == Pack::kCount) return plain;
  const Matrix m{weight.lossless, weight.n_matrices, weight.rows, weight.cols, nullptr};
  if (m.shortened() && weight.cols % with_code(m.pack, [](auto code) { return code.kColumns; })) return plain;
  const int64_t n_rows = int64_t(weight.n_matrices) * weight.stored_rows, looked_at = std::min(n_rows, int64_t(kRows));
  const size_t row_bytes = size_t(weight.cols) * source_block_bytes(weight.source);
  std::vector<uint8_t> bf16(weight.source == Source::F16 ? row_bytes : 0);
  int64_t n_patches = 0;
  for (int64_t i = 0; i < looked_at; i++) {
    const uint8_t* row = weight.data + row_bytes * size_t(i * n_rows / looked_at);
    if (weight.source == Source::F16) {
      if (!kernels.shortening->half_to_bf16(row, weight.cols, bf16.data())) return plain;
      row = bf16.data();
    }
    if (m.shortened()) n_patches += base_of(m.pack, row, weight.cols, kernels).n_patches;
  }
  const int64_t room = int64_t(m.patch_bytes() / sizeof(Patch)) * looked_at / kLanes;  // as much as so many rows have
  return n_patches * 2 <= room ? m.pack : plain;
}

}  // namespace

Pack pack_of(const SourceWeight& w) {
  if (w.quantize_to != Pack::kCount) return w.quantize_to;
  switch (w.source) {
    case Source::F32: return Pack::F32;
    case Source::F16: return Pack::F16;
    case Source::BF16: return Pack::BF16;
    case Source::Q4_0: return Pack::Q4_0;
    case Source::Q4_K: return Pack::Q4_K;
    case Source::Q5_K: return Pack::Q5_K;
    case Source::Q6_K: return Pack::Q6_K;
    case Source::MXFP4:
    case Source::MXFP4_SPLIT: return Pack::MXFP4;
    case Source::Q8_GROUPS: return Pack::Q8F;
    case Source::INT8_ROWS: return Pack::Q8R;
    default: return Pack::Q8_0;
  }
}

namespace {

// Those of `weights` whose numbers are in `which`, packed; returns those that lose something by what they were to be kept as.
std::vector<int> pack_some(const std::vector<SourceWeight>& weights, const std::vector<int>& which, bool lossless, ThreadPool& pool,
                           Arena& arena, const Kernels& kernels, std::vector<PackedMatrix>& packed) {
  struct Item {
    int job, begin, end;
  };
  constexpr size_t kItemBytes = size_t(1) << 20, kItemsAtOnce = 8;
  std::vector<Job> jobs;
  std::vector<Item> items;
  for (int w : which) {
    const SourceWeight& weight = weights[w];
    Matrix m{lossless ? kept_as(weight, kernels) : pack_of(weight), weight.n_matrices, weight.rows, weight.cols, nullptr, kernels.byte_zero};
    Arena::Piece piece = arena.allocate(m.total_bytes());
    m.data = piece.data;
    packed[w] = {m, piece.memory};
    int groups = (m.n_panels() + kGroup - 1) / kGroup, n_groups = groups * m.n_matrices;
    int a_time = std::max(1, int(kItemBytes / (m.panel_bytes() * kGroup)));
    for (int g = 0; g < n_groups; g += a_time) items.push_back({int(jobs.size()), g, std::min(g + a_time, n_groups)});
    jobs.push_back({&weight, m, piece.data, groups, n_groups});
  }
  std::vector<char> laid(items.size());
  // Some at a time, so that a large matrix is not in memory twice: its file's pages go when nobody reads there any more.
  for (size_t first = 0; first < items.size(); first += kItemsAtOnce) {
    size_t n = std::min(kItemsAtOnce, items.size() - first);
    pool.run(int(n), [&](int i) {
      const Item& item = items[first + i];
      laid[first + i] = pack_groups(jobs[item.job], item.begin, item.end, kernels);
    });
    for (size_t i = first; i < first + n; i++) {
      const Job& job = jobs[items[i].job];
      if (!job.weight->mapped) continue;
      advise(Span(job, GroupReader(*job.weight, job.matrix.pack, kernels), items[i].begin, items[i].end), MADV_DONTNEED);
    }
  }
  std::vector<int> again;
  for (size_t i = 0; i < items.size(); i++)
    if (int w = which[items[i].job]; !laid[i] && (again.empty() || again.back() != w)) again.push_back(w);
  return again;
}

}  // namespace

std::vector<PackedMatrix> pack(const std::vector<SourceWeight>& weights, ThreadPool& pool, Arena& arena, const Kernels& kernels) {
  std::vector<PackedMatrix> packed(weights.size());
  std::vector<int> all(weights.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> again = pack_some(weights, all, true, pool, arena, kernels, packed);
  if (!again.empty()) pack_some(weights, again, false, pool, arena, kernels, packed);
  return packed;
}

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
  int nibble = at.quants[at.stride * nibble_set(m.pack, j % 4) + lane] >> (4 * (j / 4)) & 15;
  auto byte = [&] { return float(int8_t(at.quants[at.stride * j + lane] - m.zero)); };
  switch (m.pack) {
    case Pack::Q8_0: return byte() * half_to_float(u16_at(at.scales, r));
    case Pack::Q8F: return byte() * f32_at(at.scales, r);
    case Pack::Q8R: return byte() * f32_at(row_scales, r);
    case Pack::Q4_0: return float(nibble - 8) * half_to_float(u16_at(at.scales, r));
    case Pack::MXFP4: return e8m0_half(at.scales[r]) * float(kMxfp4[nibble]);
    case Pack::Q4_K:
    case Pack::Q5_K: {
      if (m.pack == Pack::Q5_K) nibble |= (at.quants[lane] >> j & 1) << 4;
      float scale = half_to_float(u16_at(at.super, r)) * float(at.scales[r]);
      const uint8_t* minima = at.super + 4 * kLanes + 4 * kLanes * (step % kSuperSteps / 4);
      return scale * float(nibble) - half_to_float(u16_at(at.super, kLanes + r)) * float(minima[4 * r + step % 4]);
    }
    default: {  // Q6_K
      int upper = at.quants[at.stride * 3 * (j % 4 / 2) + lane] >> (4 * (j / 4) + 2 * (j % 2)) & 3;
      float scale = half_to_float(u16_at(at.super, r)) * float(int8_t(at.scales[kLanes * (i / 16) + r]));
      return scale * float((nibble | upper << 4) - 32);
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
    if (word < C::kWords) code = at(words + C::kWordBytes * word, lane) & C::kKept;
    else for (int i = 0; i < C::kWords; i++) code |= C::carried(i, at(words + C::kWordBytes * i, lane));
    out[k] = float_of(Lane(code + base));
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
