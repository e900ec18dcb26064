#include "pack.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "grids.h"
#include "half.h"
#include "lay.h"
#include "quantize.h"
#include "shortened.h"
#include "simd_stream.h"

namespace gristmill {

namespace {

// Bytes of a weight: `to` if they are in a file, otherwise where they lie. To have a file's pages mapped, and unmapped in the
// end, takes longer than to read them; and of one that has become shorter since it was mapped, to look at them ends the process.
const uint8_t* read_bytes(const SourceWeight& w, const uint8_t* from, size_t n_bytes, uint8_t* to) {
  if (w.file < 0) return from;
  for (size_t done = 0; done < n_bytes;) {
    const off_t at = off_t(w.offset) + (from - w.data) + off_t(done);
    const ssize_t n = pread(w.file, to + done, n_bytes - done, at);
    if (n > 0) done += size_t(n);
    else if (n == 0 || errno != EINTR)
      throw FileChangedError(w.path + ": weights: byte " + std::to_string(at) + " cannot be read: " +
                             (n ? std::strerror(errno) : "the file has become shorter since it was opened") + "; load it again");
  }
  return to;
}

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
  GroupReader(const SourceWeight& weight, Pack target, const Kernels& kernels, Scratch<uint8_t>& memory)
      : w_(weight), kernels_(kernels), memory_(memory), by_rows_(target == Pack::Q8R), target_(source_of(target)),
        quantizes_(weight.quantize_to != Pack::kCount),
        widens_(weight.source == Source::F16 && (target == Pack::BF16 || target == Pack::BF16_12)),
        spells_(is_grid(weight.source)),
        rounds_(weight.source == Source::FP8_GROUPS && !quantizes_),
        row_bytes_(row_bytes_of(weight.source)) {}

  // Row r of a matrix as it is stored. Also where to look for a row that is read soon, unless it is in a file.
  const uint8_t* stored(int matrix, int r) const { return w_.data + row_bytes_ * (first_element(matrix, r) / w_.cols); }
  bool in_file() const { return w_.file >= 0; }
  size_t row_bytes() const { return row_bytes_; }
  bool rewrites() const { return quantizes_ || widens_ || spells_ || rounds_; }
  bool exact() const { return exact_; }  // whether bfloat16 has had all numbers of float16 that were read

  // rows[n_lanes] from row `first` on; zeros after the matrix's last one. They hold until the next call.
  void read(int matrix, int first, int n_lanes, StoredRow* rows) {
    int n = std::min(n_lanes, w_.rows - first);
    size_t bytes = row_bytes_;
    if (quantizes_) bytes = row_bytes_of(target_);
    if (spells_) bytes = row_bytes_of(spelled(w_.source));
    if (rounds_) bytes = row_bytes_of(Source::BF16);
    if (rewrites()) rewritten_.resize(bytes * kGroupRows);
    if (n < n_lanes) zeros_.resize(bytes);
    for (int i = 0; i < n; i++) blocks_[i] = stored(matrix, first + i);
    if (in_file()) read_file(n);
    for (int i = 0; i < n_lanes; i++) {
      rows[i] = {zeros_.data(), w_.source == Source::MXFP4_SPLIT ? zeros_.data() : nullptr, nullptr, 0, 1, 0};
      if (i >= n) continue;
      rows[i].blocks = blocks_[i];
      rows[i].first_element = first_element(matrix, first + i);
      if (w_.source == Source::MXFP4_SPLIT) {
        rows[i].e8m0 = static_cast<const uint8_t*>(w_.scales) + rows[i].first_element / kBlock;
      } else if (w_.source == Source::Q8_GROUPS) {
        rows[i].group_scales = scales();
        rows[i].group = w_.group;
      } else if (w_.source == Source::INT8_ROWS || w_.source == Source::NVFP4) {
        rows[i].scale = scales()[rows[i].first_element / w_.cols];
      }
      uint8_t* rewritten = rewritten_.data() + bytes * i;
      if (quantizes_) {
        quantize(rows[i], rewritten);
      } else if (widens_) {
        exact_ &= kernels_.shortening->half_to_bf16(rows[i].blocks, w_.cols, rewritten);
        rows[i].blocks = rewritten;
      } else if (rounds_) {
        kernels_.to_bf16(floats(rows[i]), w_.cols, reinterpret_cast<uint16_t*>(rewritten));
        rows[i].blocks = rewritten;
      } else if (spells_) {
        spell(w_.source, rows[i].blocks, w_.cols, rewritten);
        rows[i].blocks = rewritten;
      }
    }
  }

 private:
  int64_t first_element(int matrix, int r) const {
    return (int64_t(matrix) * w_.stored_rows + (w_.row_order ? w_.row_order[r] : r)) * w_.cols;
  }

  // Blocks of n rows, to copies of them: mostly of all that lies between the first and the last one.
  void read_file(int n) {
    const auto [low, high] = std::minmax_element(blocks_, blocks_ + n);
    const uint8_t* first = *low;
    const size_t at_once = size_t(*high - first) + row_bytes_, all = row_bytes_ * size_t(n);
    uint8_t* copy = memory_.grown(std::min(at_once, 2 * all));
    if (at_once <= 2 * all) {
      const uint8_t* rows = read_bytes(w_, first, at_once, copy);
      for (int i = 0; i < n; i++) blocks_[i] = rows + (blocks_[i] - first);
    } else {
      for (int i = 0; i < n; i++) blocks_[i] = read_bytes(w_, blocks_[i], row_bytes_, copy + row_bytes_ * i);
    }
  }

  const float* scales() const { return static_cast<const float*>(w_.scales); }
  size_t row_bytes_of(Source source) const { return size_t(w_.cols) / source_block(source) * source_block_bytes(source); }

  void quantize(StoredRow& row, uint8_t* to) {
    const float* x = floats(row);
    if (!by_rows_ && !fits(target_, x, w_.cols))  // by rows the scale becomes NaN, and so what is computed
      throw std::invalid_argument((w_.path.empty() ? "" : w_.path + ": ") + "a weight to be quantized has numbers that are not "
                                  "finite or too large for the type; load it as it is stored");
    if (by_rows_) row.scale = kernels_.quantize_row(x, w_.cols, reinterpret_cast<int8_t*>(to));
    else quantize_row(target_, x, w_.cols, to, kernels_);
    row.blocks = to;
  }

  const float* floats(const StoredRow& row) {
    floats_.resize(w_.cols);
    switch (w_.source) {
      case Source::F32: std::memcpy(floats_.data(), row.blocks, row_bytes_); break;
      case Source::F16: kernels_.from_half(reinterpret_cast<const uint16_t*>(row.blocks), w_.cols, floats_.data()); break;
      case Source::FP8_GROUPS:
        dequantize_fp8(row.blocks, scales(), w_.group, row.first_element, w_.cols, floats_.data(), kernels_);
        break;
      case Source::BF16:
        for (int i = 0; i < w_.cols; i++) {
          uint16_t v;
          std::memcpy(&v, row.blocks + 2 * i, 2);
          floats_[i] = bf16_to_float(v);
        }
        break;
      default: break;  // only floats are quantized
    }
    return floats_.data();
  }

  const SourceWeight& w_;
  const Kernels& kernels_;
  Scratch<uint8_t>& memory_;  // of rows that are read
  bool by_rows_;
  Source target_;  // what rows are quantized to
  bool quantizes_, widens_, spells_, rounds_, exact_ = true;
  size_t row_bytes_;
  const uint8_t* blocks_[kGroupRows];
  std::vector<float> floats_;       // of a row
  std::vector<uint8_t> rewritten_;  // a group's rows
  std::vector<uint8_t> zeros_;
};

// A weight on its way into a matrix. Its groups are counted through all matrices.
struct Job {
  const SourceWeight* weight;
  Matrix matrix;
  uint8_t* base;

  int n_lanes(int g) const { return matrix.group_width(first_panel(g)) * kLanes; }
  int number(int g) const { return g / matrix.n_groups(); }  // of the matrix that has it
  int first_panel(int g) const { return g % matrix.n_groups() * kGroup; }
};

// Asks for bytes [begin, end) of row i of the group after the one in work.
void fetch_row(const Job& job, const GroupReader& reader, int g, int i, size_t begin, size_t end) {
  int r = job.first_panel(g) * kLanes + i;
  if (r >= job.matrix.rows) return;
  const uint8_t* row = reader.stored(job.number(g), r);
  for (size_t at = begin; at < end; at += 64) fetch(row + at);
}

// Lays groups [begin, end) of a job, one after another. The rows of a group are 64 streams, too many for the processor to
// foresee; but while one stretch of them is laid, the next one can be asked for.
class GroupLayer {
 public:
  GroupLayer(const Job& job, int end, const Kernels& kernels, Scratch<uint8_t>& memory)
      : job_(job), end_(end), kernels_(kernels), reader_(*job.weight, job.matrix.pack, kernels, memory) {}

  // put(at, unit): where steps that belong at byte `at` of the group are laid; done(at, n_bytes): they are there. Whether all
  // of the group could be laid; its tail is then to be had.
  template <class Put, class Done>
  bool lay(int g, Put put, Done done) {
    constexpr size_t kStretchBytes = size_t(192) << 10;  // of all rows: two of them fit the second-level cache
    const Matrix& m = job_.matrix;
    const size_t row_bytes = reader_.row_bytes();
    const int unit = steps_at_once(m.pack), n_steps = m.n_steps(), panel = job_.first_panel(g), width = m.group_width(panel);
    const int n_stretches = int((row_bytes * kGroupRows + kStretchBytes - 1) / kStretchBytes);
    const int stretch = std::max(unit, (n_steps / n_stretches + unit) / unit * unit);
    reader_.read(job_.number(g), panel * kLanes, width * kLanes, rows_);
    if (!reader_.exact()) return false;
    begin_tail(m, rows_, width, kernels_, tail_);
    for (int step = 0; step < n_steps; step += stretch) {
      int stop = std::min(step + stretch, n_steps), fetched = 0;
      bool last = stop == n_steps;
      int next_group = last ? g + 1 : g, next_step = last ? 0 : stop;
      bool fetches = !reader_.in_file() && next_group < end_ && (last || !reader_.rewrites());
      int n_fetch = fetches ? job_.n_lanes(next_group) : 0;
      size_t from = row_bytes * next_step / n_steps, to = std::min(row_bytes, row_bytes * (next_step + stretch) / n_steps);
      for (int s = step; s < stop; s += unit) {
        int due = n_fetch * (s - step + unit) / (stop - step);
        for (; fetched < std::min(due, n_fetch); fetched++) fetch_row(job_, reader_, next_group, fetched, from, to);
        int laid = std::min(s + unit, stop);
        size_t at = m.step_offset(width, s);
        lay_steps(m, rows_, put(at), width, s, laid, kernels_, tail_);
        done(at, m.step_offset(width, laid) - at);
      }
    }
    return !tail_.overflows;
  }
  const Tail& tail() const { return tail_; }

 private:
  const Job& job_;
  int end_;
  const Kernels& kernels_;
  GroupReader reader_;
  StoredRow rows_[kGroupRows];
  Tail tail_;
};

// Groups [begin, end), to where they stay. Steps are laid in the first-level cache and then written past all caches: laid in
// place they would be read from memory first, and that is twice as slow. Whether all of them could be laid.
bool pack_groups(const Job& job, int begin, int end, const Kernels& kernels) {
  const Matrix& m = job.matrix;
  alignas(64) uint8_t stage[17 << 10];
  if (m.step_offset(kGroup, steps_at_once(m.pack)) > sizeof stage) throw std::logic_error("pack: a group's steps are too large");
  Scratch<uint8_t> memory;
  GroupLayer layer(job, end, kernels, memory);
  for (int g = begin; g < end; g++) {
    const int panel = job.first_panel(g);
    uint8_t* group = job.base + m.group_offset(job.number(g), panel);
    const bool laid = layer.lay(g, [&](size_t) { return stage; },
                                [&](size_t at, size_t n_bytes) { stream_copy(group + at, stage, n_bytes); });
    if (!laid) return false;
    std::copy(layer.tail().bytes.begin(), layer.tail().bytes.end(), group + m.step_offset(m.group_width(panel), m.n_steps()));
  }
  stream_end();
  return true;
}

// What it is kept as, its own type where its numbers don't allow fewer bits; float16 that was bfloat16 is that at least, as its
// products are. Rows from all over the weight tell; where others prove them wrong, it is laid again.
Pack kept_as(const SourceWeight& weight, const Kernels& kernels) {
  constexpr int kRows = 64;
  const Pack plain = pack_of(weight);
  if (weight.quantize_to != Pack::kCount || weight.shorter == Pack::kCount) return plain;
  const Matrix m{weight.shorter, weight.n_matrices, weight.rows, weight.cols, nullptr};
  const bool half = weight.source == Source::F16;
  const bool codes = m.shortened() && weight.cols % with_code(m.pack, [](auto code) { return code.kColumns; }) == 0;
  const Pack whole = half || !m.shortened() ? Pack::BF16 : plain;
  if (!half && !codes) return whole;
  const int64_t n_rows = int64_t(weight.n_matrices) * weight.stored_rows, looked_at = std::min(n_rows, int64_t(kRows));
  const size_t row_bytes = size_t(weight.cols) * source_block_bytes(weight.source);
  std::vector<uint8_t> read(row_bytes), bf16(size_t(weight.cols) * 2);
  std::vector<float> floats(weight.source == Source::FP8_GROUPS ? weight.cols : 0);
  int64_t n_patches = 0;
  for (int64_t i = 0; i < looked_at; i++) {
    const int64_t number = i * n_rows / looked_at;
    const uint8_t* row = read_bytes(weight, weight.data + row_bytes * size_t(number), row_bytes, read.data());
    if (weight.source == Source::FP8_GROUPS) {
      const float* scales = static_cast<const float*>(weight.scales);
      dequantize_fp8(row, scales, weight.group, number * weight.cols, weight.cols, floats.data(), kernels);
      kernels.to_bf16(floats.data(), weight.cols, reinterpret_cast<uint16_t*>(bf16.data()));
      row = bf16.data();
    } else if (half) {
      if (!kernels.shortening->half_to_bf16(row, weight.cols, bf16.data())) return plain;
      row = bf16.data();
    }
    if (codes) n_patches += base_of(m.pack, row, weight.cols, kernels).n_patches;
  }
  const int64_t room = int64_t(m.patch_bytes() / sizeof(Patch)) * looked_at / kLanes;  // as much as so many rows have
  return codes && n_patches * 2 <= room ? m.pack : whole;
}

}  // namespace

Pack pack_of(const SourceWeight& w) {
  if (w.quantize_to != Pack::kCount) return w.quantize_to;
  switch (w.source) {
    case Source::F32: return Pack::F32;
    case Source::F16: return w.widened ? Pack::BF16 : Pack::F16;
    case Source::BF16:
    case Source::FP8_GROUPS: return Pack::BF16;
    case Source::Q4_0: return Pack::Q4_0;
    case Source::Q4_1: return Pack::Q4_1;
    case Source::Q5_0: return Pack::Q5_0;
    case Source::Q5_1: return Pack::Q5_1;
    case Source::IQ4_NL: return Pack::IQ4_NL;
    case Source::IQ4_XS: return Pack::IQ4_XS;
    case Source::Q2_K: return Pack::Q2_K;
    case Source::Q3_K: return Pack::Q3_K;
    case Source::Q4_K: return Pack::Q4_K;
    case Source::Q5_K: return Pack::Q5_K;
    case Source::Q6_K: return Pack::Q6_K;
    case Source::IQ1_S:
    case Source::IQ1_M: return Pack::IQ1;
    case Source::IQ2_XXS:
    case Source::IQ2_XS:
    case Source::IQ2_S: return Pack::IQ2;
    case Source::IQ3_XXS: return Pack::IQ3_XXS;
    case Source::IQ3_S: return Pack::IQ3_S;
    case Source::TQ1_0:
    case Source::TQ2_0: return Pack::Q2_0;
    case Source::Q1_0: return Pack::Q1_0;
    case Source::Q2_0: return Pack::Q2_0;
    case Source::MXFP4:
    case Source::MXFP4_SPLIT: return Pack::MXFP4;
    case Source::Q8_GROUPS: return w.group == 2 * kBlock && w.cols % (kSuperSteps * kBlock) == 0 ? Pack::Q8G : Pack::Q8F;
    case Source::INT8_ROWS: return Pack::Q8R;
    case Source::NVFP4: return Pack::NVFP4;
    default: return Pack::Q8_0;
  }
}

namespace {

// Groups [begin, end) of a job.
struct Item {
  int job, begin, end;
};

// Where a weight's matrices go, and their groups, a few at a time.
void place(const Due& due, bool shorter, Arena& arena, const Kernels& kernels, std::vector<Job>& jobs, std::vector<Item>& items) {
  constexpr size_t kItemBytes = size_t(1) << 20;
  const SourceWeight& weight = *due.weight->source;
  Matrix& m = due.weight->matrix;
  if (!m.data || !shorter) {
    Matrix placed = m;
    placed.pack = shorter ? kept_as(weight, kernels) : pack_of(weight);
    Arena::Piece piece = arena.allocate(placed.total_bytes());  // where it throws, nothing was laid
    placed.data = piece.data;
    m = placed, due.weight->memory = std::move(piece.memory);
  }
  const int groups = m.n_groups(), a_time = std::max(1, int(kItemBytes / (m.panel_bytes() * kGroup)));
  for (int matrix : due.matrices)
    for (int g = 0; g < groups; g += a_time)
      items.push_back({int(jobs.size()), matrix * groups + g, matrix * groups + std::min(g + a_time, groups)});
  jobs.push_back({&weight, m, const_cast<uint8_t*>(m.data)});
}

// Packs what is due; returns what has too many numbers that have no code in what it was to be kept as.
std::vector<Due> pack_some(const std::vector<Due>& due, bool shorter, ThreadPool& pool, Arena& arena, const Kernels& kernels) {
  std::vector<Job> jobs;
  std::vector<Item> items;
  for (const Due& one : due) place(one, shorter, arena, kernels, jobs, items);
  std::vector<char> laid(items.size());
  pool.run(int(items.size()), [&](int i) {
    const Item& item = items[i];
    laid[i] = pack_groups(jobs[item.job], item.begin, item.end, kernels);
  });
  std::vector<Due> again;
  for (size_t i = 0; i < items.size(); i++)
    if (const Due& one = due[items[i].job]; !laid[i] && (again.empty() || again.back().weight != one.weight))
      again.push_back(one);
  return again;
}

}  // namespace

bool may_wait(const SourceWeight& w) {
  if (w.file < 0 || w.shorter == Pack::F32_24) return false;
  return w.shorter == Pack::kCount || (w.n_matrices == 1 && (w.source != Source::F16 || w.widened));
}

namespace {

// Whether bfloat16 has all numbers of n rows of float16, spread over all of it.
bool is_widened(const SourceWeight& w, int64_t n, ThreadPool& pool, const Kernels& kernels) {
  constexpr int kRowsAtOnce = 64;
  const int64_t n_rows = int64_t(w.n_matrices) * w.stored_rows;
  n = std::min(n, n_rows);
  std::atomic<bool> exact{true};
  pool.run(int((n + kRowsAtOnce - 1) / kRowsAtOnce), [&](int i) {
    thread_local Scratch<uint8_t> memory;
    const size_t row_bytes = size_t(w.cols) * 2;
    uint8_t *copy = memory.grown(2 * row_bytes), *bf16 = copy + row_bytes;
    const int64_t first = int64_t(i) * kRowsAtOnce, end = std::min(first + kRowsAtOnce, n);
    for (int64_t r = first; r < end && exact; r++) {
      const uint8_t* row = read_bytes(w, w.data + row_bytes * size_t(r * n_rows / n), row_bytes, copy);
      if (!kernels.shortening->half_to_bf16(row, w.cols, bf16)) exact = false;
    }
  });
  return exact;
}

}  // namespace

void guess_widened(SourceWeight& w, ThreadPool& pool, const Kernels& kernels) {
  constexpr int kSomeRows = 4;
  if (w.source != Source::F16 || w.shorter == Pack::kCount || w.quantize_to != Pack::kCount) return;
  w.guessed = w.n_matrices == 1;
  w.widened = is_widened(w, w.guessed ? kSomeRows : INT64_MAX, pool, kernels);
  if (!w.widened) w.guessed = false, w.shorter = Pack::kCount;
}

void find_widened(PackedMatrix& weight, ThreadPool& pool, const Kernels& kernels) {
  SourceWeight& w = *weight.source;
  w.guessed = false;
  w.widened = is_widened(w, INT64_MAX, pool, kernels);
  if (!w.widened) w.shorter = Pack::kCount;
  weight.matrix.pack = pack_of(w);
  weight.matrix.data = nullptr, weight.memory = nullptr;  // it was laid as something else, if at all
}

PackedMatrix unpacked(std::shared_ptr<SourceWeight> weight, const Kernels& kernels) {
  const SourceWeight& w = *weight;
  const Matrix m{pack_of(w), w.n_matrices, w.rows, w.cols, nullptr, kernels.byte_zero};
  return {m, nullptr, std::move(weight), std::vector<PackedMatrix::State>(w.n_matrices)};
}

void pack(const std::vector<Due>& due, ThreadPool& pool, Arena& arena, const Kernels& kernels) {
  if (std::vector<Due> again = pack_some(due, true, pool, arena, kernels); !again.empty()) {
    for (const Due& one : again)
      if (one.weight->source->source == Source::F16) find_widened(*one.weight, pool, kernels);
    pack_some(again, false, pool, arena, kernels);
  }
  for (const Due& one : due) {
    auto& states = one.weight->states;
    for (int matrix : one.matrices) states[matrix] = PackedMatrix::State::Packed;
    if (std::count(states.begin(), states.end(), PackedMatrix::State::Packed) < int64_t(states.size())) continue;
    one.weight->source.reset();
    states.clear();
  }
}

// Lays groups where they are near. Numbers are not shortened: that takes longer than they take to be read once.
class PanelReader::Near {
 public:
  Near(const PackedMatrix& w, int matrix, int end, const Kernels& kernels, Memory& memory, bool as_stored)
      : matrix_(with(w.matrix, as_stored && is_half(*w.source) ? Pack::F16 : w.matrix.plain())),
        first_(matrix * matrix_.n_groups()), job_{w.source.get(), matrix_, nullptr},
        panels_(memory.panels), layer_(job_, group_of(end + kGroup - 1), kernels, memory.rows) {}

  Panels lay(int begin, int end) {
    uint8_t* const data = panels_.grown(matrix_.panel_bytes() * size_t(end - begin));
    for (int panel = begin; panel < end; panel += kGroup) {
      uint8_t* const group = data + matrix_.panel_bytes() * size_t(panel - begin);
      exact_ &= layer_.lay(group_of(panel), [&](size_t at) { return group + at; }, [](size_t, size_t) {});
      const auto& tail = layer_.tail().bytes;
      std::copy(tail.begin(), tail.end(), group + matrix_.step_offset(matrix_.group_width(panel), matrix_.n_steps()));
    }
    const int rows = std::min(end * kLanes, matrix_.rows) - begin * kLanes;
    return {{matrix_.pack, 1, rows, matrix_.cols, data, matrix_.zero}, 0, 0, end - begin, begin, exact_};
  }

 private:
  static bool is_half(const SourceWeight& w) { return w.source == Source::F16 && w.quantize_to == Pack::kCount; }
  static Matrix with(Matrix m, Pack pack) {
    m.pack = pack;
    return m;
  }
  int group_of(int panel) const { return first_ + panel / kGroup; }

  const Matrix matrix_;
  const int first_;
  const Job job_;
  Scratch<uint8_t>& panels_;
  GroupLayer layer_;
  bool exact_ = true;
};

PanelReader::PanelReader(const PackedMatrix& w, int matrix, int begin, int end, const Kernels& kernels,
                         Memory& memory, bool as_stored)
    : w_(w), index_(matrix), next_(begin),
      near_(w.packed(matrix) ? nullptr : new Near(w, matrix, end, kernels, memory, as_stored)) {}

PanelReader::~PanelReader() = default;

Panels PanelReader::read(int end) {
  const int begin = next_;
  next_ = end;
  return near_ ? near_->lay(begin, end) : Panels{w_.matrix, index_, begin, end, 0};
}

}  // namespace gristmill
