#include "ops.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "half.h"
#include "unpack.h"

namespace gristmill {

namespace {

const Kernels* find_kernels(const std::string& isa) {
  struct Choice {
    const char* name;
    const Kernels* (*get)();
    bool (*slow)() = [] { return false; };
  };
  static constexpr Choice choices[] = {
#if defined(__x86_64__)
      {"amx", kernels_amx},
      // An Intel's products of pairs take twice the time of floats', but for those in tiles.
      {"avx512bf16", kernels_avx512bf16, [] { return __builtin_cpu_is("intel") != 0; }},
      {"avx512", kernels_avx512},
      {"avxvnni", kernels_avxvnni},
      {"avx2", kernels_avx2},
#elif defined(__aarch64__)
      {"neon", kernels_neon},
#endif
      {"portable", kernels_portable},
  };
  std::string known;
  for (const Choice& choice : choices) {
    known += std::string(known.empty() ? "" : ", ") + choice.name;
    if (isa == "auto" ? choice.slow() : isa != choice.name) continue;
    if (const Kernels* kernels = choice.get()) return kernels;
    if (isa != "auto") throw std::invalid_argument("this processor does not have the instruction set '" + isa + "'");
  }
  throw std::invalid_argument("instruction set '" + isa + "' is not one of auto, " + known);
}

}  // namespace

int Linear::rows() const {
  int n = 0;
  for (const auto& part : parts) n += part->matrix.rows;
  return n;
}

bool Linear::packed() const {
  return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return !part->source; });
}

Ops::Ops(int n_threads, const std::string& isa) : pool_(n_threads), kernels_(find_kernels(isa)) {}

void Ops::for_rows(int n_rows, int64_t cost, const std::function<void(int)>& body) {
  if (n_rows <= 1 || n_rows * cost < kAlone) {
    for (int i = 0; i < n_rows; i++) body(i);
  } else {
    pool_.run(n_rows, body);
  }
}

// ---- linear ---------------------------------------------------------------------------------------------------------

int Ops::tile_columns(int n, const Linear& w) const {
  int from = kWideFromOfBytes;
  for (const auto& part : w.parts)
    if (part->matrix.blocked() && part->matrix.quant_bytes() < kLanes * kBlock) from = kWideFrom;
  return kernels_->quantize_wide && n >= from ? kWideRows : kTileColumns;
}

const float* Ops::row_of(const Rows& x, int i, int n, float* normed) const {
  const size_t at = size_t(i) * n;
  if (!x.norm) return x.x + at;
  kernels_->rms_norm(x.x + at, x.more ? x.more + at : nullptr, x.more ? x.total + at : nullptr, x.norm, n, x.eps, normed);
  return normed;
}

void Ops::prepare(const Rows& x, const int* rows, int n_columns, int tile_columns, const Linear& w, Activations& out) {
  int n = w.cols(), n_f32 = n + kBesideF32, n_bf16 = (n + 1) / 2 * 2 + kBesideBf16, n_blocks = n / kBlock;
  const bool by_tiles = tile_columns == kWideRows;
  bool int8[2] = {}, wide = false, bf16 = false, f32 = false;
  for (const auto& part : w.parts) {
    const Matrix& m = part->matrix;
    const bool pairs = m.plain() == Pack::BF16 && kernels_->bf16_step == 2;
    if (m.blocked() && by_tiles) wide = true;
    else if (m.blocked()) int8[shared(m)] = true;
    bf16 |= pairs;
    // Normalized rows are nowhere else; and where tiles have many columns, those rows' sets matter.
    f32 |= !m.blocked() && !pairs && (x.norm || (m.shortened() && n_columns > kTileColumns));
  }
  const int n_wide = (n_blocks + kSuperSteps - 1) / kSuperSteps;
  size_t n_tiles = size_t(n_columns + tile_columns - 1) / tile_columns;
  for (int super = 0; super < 2; super++)
    if (int8[super]) out.int8[super].resize(std::max(out.int8[super].size(), n_tiles * n_blocks));
  if (wide) out.wide.resize(std::max(out.wide.size(), n_tiles * n_wide));
  if (f32) out.f32.resize(std::max(out.f32.size(), size_t(n_columns) * n_f32));
  if (bf16) out.bf16.resize(std::max(out.bf16.size(), size_t(n_columns) * n_bf16));
  out.tile_columns = tile_columns;
  out.columns.resize(n_columns);
  auto put = [&](int i) {
    Column& c = out.columns[i];
    c = Column{};
    if (rows && rows[i] < 0) return;
    thread_local Scratch<float> scratch;
    float* floats = f32 ? out.f32.data() + size_t(i) * n_f32 : x.norm ? scratch.grown(n) : nullptr;
    c.x = row_of(x, rows ? rows[i] : i, n, floats);
    int lane = i % tile_columns;
    size_t tile = size_t(i / tile_columns);
    if (wide) kernels_->quantize_wide(c.x, n, lane, out.wide.data() + tile * n_wide);
    for (int super = 0; super < 2; super++)
      if (int8[super]) kernels_->quantize_tile(c.x, n, super, lane, out.int8[super].data() + tile * n_blocks);
    if (bf16) {
      uint16_t* y = out.bf16.data() + size_t(i) * n_bf16;
      kernels_->to_bf16(c.x, n, y);
      if (n % 2) y[n] = 0;
      c.bf16 = y;
    }
    if (f32 && c.x != floats) c.x = std::copy_n(c.x, n, floats) - n;
    if (!f32 && x.norm) c.x = nullptr;  // the next row's is there; no one reads it
  };
  // A thread takes a whole tile, whose columns share cache lines; of few wide ones, where they hardly do, it takes a part.
  const int at_once = std::clamp((n_columns + pool_.size() - 1) / pool_.size(), by_tiles ? 1 : kTileColumns, tile_columns);
  const int n_tasks = (n_columns + at_once - 1) / at_once;
  for_rows(n_tasks, wide || int8[0] || int8[1] || bf16 || f32 ? int64_t(n) * at_once : 0, [&](int task) {
    for (int i = task * at_once; i < std::min((task + 1) * at_once, n_columns); i++) put(i);
  });
}

// The forms in which m meets n columns of x from `first` on.
Columns Ops::columns_of(const Matrix& m, const Activations& x, int first, int n) const {
  const bool wide = x.tile_columns == kWideRows;
  const Columns all{x.columns.data(), wide ? nullptr : x.int8[shared(m)].data(), wide ? x.wide.data() : nullptr, first + n, 0};
  return all.some(first, n, m.cols / kBlock);
}

void Ops::plan_part(const Linear& w, int matrix, int part, const Columns& columns, const Columns& other) {
  const int n_groups = w.parts[part]->matrix.n_groups();
  const int n_chunks = (columns.n + kColumnsOfItem - 1) / kColumnsOfItem;
  const int first = tasks_.empty() ? 0 : tasks_.back().end_item;
  tasks_.push_back({&w, matrix, part, columns, other, n_chunks, first, first + n_groups * n_chunks});
}

void Ops::plan(const Linear& w, int matrix, const Activations& x, int first, int n_columns) {
  int first_row = 0;
  for (int part = 0; part < int(w.parts.size()); part++) {
    const Matrix& m = w.parts[part]->matrix;
    Columns columns = columns_of(m, x, first, n_columns);
    columns.first_row = first_row;
    first_row += m.rows;
    plan_part(w, matrix, part, columns, columns);
  }
}

void Ops::plan_gated(const Linear& w, int matrix, const Activations& x, int first, int n_columns) {
  auto columns = [&](int part) { return columns_of(w.parts[part]->matrix, x, first, n_columns); };
  plan_part(w, matrix, 0, columns(0), columns(1));
}

std::vector<std::shared_ptr<PackedMatrix>> Ops::put(const std::vector<std::shared_ptr<SourceWeight>>& weights, bool lazy) {
  std::vector<std::shared_ptr<PackedMatrix>> all;
  std::vector<Due> due;
  for (const auto& weight : weights) {
    if (lazy && weight->file >= 0) guess_widened(*weight, pool_, *kernels_);
    all.push_back(std::make_shared<PackedMatrix>(unpacked(weight, *kernels_)));
    if (lazy && may_wait(*weight)) continue;
    due.push_back({all.back().get(), std::vector<int>(weight->n_matrices)});
    std::iota(due.back().matrices.begin(), due.back().matrices.end(), 0);
  }
  gristmill::pack(due, pool_, arena_, *kernels_);
  return all;
}

void Ops::pack_used(const Linear& w, const std::vector<int>& matrices, PackedMatrix::State least) {
  std::vector<Due> due;
  for (const auto& part : w.parts) {
    if (!part->source) continue;
    Due some{part.get(), {}};
    for (int matrix : matrices) {
      auto& state = part->states[matrix];
      if (state == PackedMatrix::State::Packed) continue;
      if (state >= least) some.matrices.push_back(matrix);
      else state = PackedMatrix::State::Used;
    }
    if (!some.matrices.empty()) due.push_back(std::move(some));
  }
  if (due.empty()) return;
  const auto begin = std::chrono::steady_clock::now();
  gristmill::pack(due, pool_, arena_, *kernels_);
  if (least == PackedMatrix::State::Used)
    packing_ns_ += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
}

// Panels of one part with their bias, which go where `columns` says.
void Ops::multiply(const Linear& w, int matrix, int part, const Panels& panels, const Columns& columns) const {
  const Matrix& m = w.parts[part]->matrix;
  Columns some = columns;
  some.first_row += panels.first * kLanes;
  kernels_->linear[int(panels.matrix.pack)](panels.matrix, panels.index, panels.begin, panels.end, some);
  if (w.bias.empty()) return;
  const int row = (panels.first + panels.begin) * kLanes, n = std::min((panels.first + panels.end) * kLanes, m.rows) - row;
  const float* bias = w.bias.data() + size_t(matrix) * w.rows() + row;
  for (int before = 0; before < part; before++) bias += w.parts[before]->matrix.rows;
  for (int c = 0; c < columns.n; c++) kernels_->add(bias, columns.column[c].y + (columns.first_row + row), n);
}

// The first items of begin .. end that are one block: whole groups, or chunks of one group. begin: then the next item.
Ops::Block Ops::take_block(const Task& t, int& begin, int end) const {
  const int n_items = std::min(end, t.end_item) - begin;
  const int group = (begin - t.first_item) / t.n_chunks, chunk = (begin - t.first_item) % t.n_chunks;
  const bool whole = chunk == 0 && n_items >= t.n_chunks;
  const int n_groups = whole ? n_items / t.n_chunks : 1, n_chunks = whole ? t.n_chunks : std::min(n_items, t.n_chunks - chunk);
  begin += n_groups * n_chunks;
  const int panel_end = std::min((group + n_groups) * kGroup, t.w->parts[t.part]->matrix.n_panels());
  const int first = chunk * kColumnsOfItem, n = std::min(n_chunks * kColumnsOfItem, t.columns.n - first);
  return {group * kGroup, panel_end, first, n};
}

void Ops::run_tasks(const std::function<void(const Task&, const Block&)>& body) {
  int64_t cost = 0;
  for (const Task& t : tasks_) cost += int64_t(t.w->parts[t.part]->matrix.rows) * t.columns.n * t.w->cols();
  auto items = [&](int begin, int end) {
    auto task = std::upper_bound(tasks_.begin(), tasks_.end(), begin, [](int item, const Task& t) { return item < t.end_item; });
    for (; begin < end; task++)
      while (begin < std::min(end, task->end_item)) {
        const Block block = take_block(*task, begin, end);
        body(*task, block);
      }
  };
  const int n_items = tasks_.empty() ? 0 : tasks_.back().end_item;
  if (cost < kAlone * 4) items(0, n_items);
  else pool_.run_stretches(n_items, items);
}

void Ops::run() {
  run_tasks([&](const Task& t, const Block& b) {
    const PackedMatrix& part = *t.w->parts[t.part];
    const Columns columns = t.columns.some(b.first, b.n, t.w->cols() / kBlock);
    thread_local PanelReader::Memory memory;
    if (part.packed(t.matrix)) {
      if (part.matrix.n_matrices == 1) memory.release();  // of experts others may have to be read
      return multiply(*t.w, t.matrix, t.part, {part.matrix, t.matrix, b.panel, b.panel_end, 0}, columns);
    }
    PanelReader reader(part, t.matrix, b.panel, b.panel_end, *kernels_, memory);
    for (int p = b.panel; p < b.panel_end; p += kGroup) {
      const Panels panels = reader.read(std::min(p + kGroup, b.panel_end));
      if (!panels.exact) guessed_wrong_ = true;
      multiply(*t.w, t.matrix, t.part, panels, columns);
    }
  });
}

// Gate's and up's products with some columns wait in the cache for one another; y gets their swiglu alone.
void Ops::run_gated(float limit) {
  constexpr int kFloats = 16384, kBeside = 16;  // of a row: from one to the next no power of two
  run_tasks([&](const Task& t, const Block& b) {
    thread_local Scratch<float> products;
    thread_local std::vector<Column> columns;
    thread_local PanelReader::Memory memory[2];
    const int d_ff = t.w->parts[0]->matrix.rows, most = std::min(b.n, columns_before_swiglu());
    const bool packed = t.w->parts[0]->packed(t.matrix) && t.w->parts[1]->packed(t.matrix);
    if (packed && t.w->n_matrices() == 1) memory[0].release(), memory[1].release();
    const int step = packed ? std::max(kFloats / most / kLanes / kGroup, 1) * kGroup : kGroup, stride = step * kLanes + kBeside;
    float* const both = products.grown(size_t(2) * most * stride);
    columns.resize(columns_before_swiglu());
    PanelReader gates(*t.w->parts[0], t.matrix, b.panel, b.panel_end, *kernels_, memory[0]);
    PanelReader ups(*t.w->parts[1], t.matrix, b.panel, b.panel_end, *kernels_, memory[1]);
    for (int p = b.panel; p < b.panel_end; p += step) {
      const int end = std::min(p + step, b.panel_end), row = p * kLanes, n = std::min(end * kLanes, d_ff) - row;
      const Panels panels[2] = {gates.read(end), ups.read(end)};
      if (!panels[0].exact || !panels[1].exact) guessed_wrong_ = true;
      for (int first = b.first; first < b.first + b.n; first += most) {
        float* out = both;
        for (int part = 0; part < 2; part++, out += size_t(most) * stride) {
          Columns some = (part ? t.other : t.columns).some(first, most, t.w->cols() / kBlock);
          std::copy_n(some.column, some.n, columns.begin());
          for (int c = 0; c < some.n; c++) columns[c].y = out + size_t(c) * stride;
          some.column = columns.data(), some.first_row = -row;
          multiply(*t.w, t.matrix, part, panels[part], some);
        }
        const float *gate = both, *up = gate + size_t(most) * stride;
        for (int c = 0; c < std::min(most, b.first + b.n - first); c++)
          kernels_->swiglu(gate + size_t(c) * stride, up + size_t(c) * stride, n, limit, t.columns.column[first + c].y + row);
      }
    }
  });
}

void Ops::linear(const Rows& x, int n_rows, const Linear& w, float* y) {
  if (n_rows == 0) return;
  if (!w.packed()) pack_used(w, {0});
  const int rows = w.rows();
  do {
    prepare(x, nullptr, n_rows, tile_columns(n_rows, w), w, input_);
    for (int i = 0; i < n_rows; i++) input_.columns[i].y = y + size_t(i) * rows;
    tasks_.clear();
    plan(w, 0, input_, 0, n_rows);
    run();
  } while (!w.packed() && guessed_wrong(w));
}

void Ops::gated_linear(const Rows& x, int n_rows, const Linear& w, float limit, float* y) {
  if (n_rows == 0) return;
  if (!w.packed()) pack_used(w, {0});
  const int d_ff = w.rows() / 2;
  do {
    prepare(x, nullptr, n_rows, tile_columns(n_rows, w), w, input_);
    for (int i = 0; i < n_rows; i++) input_.columns[i].y = y + size_t(i) * d_ff;
    tasks_.clear();
    plan_gated(w, 0, input_, 0, n_rows);
    run_gated(limit);
  } while (!w.packed() && guessed_wrong(w));
}

bool Ops::guessed_wrong(const Linear& w) {
  const bool wrong = guessed_wrong_.exchange(false);
  for (const auto& part : w.parts) {
    if (!part->source || !part->source->guessed) continue;
    if (wrong) find_widened(*part, pool_, *kernels_);
    else part->source->guessed = false;
  }
  return wrong;
}

void Ops::embed(const Linear& w, const int32_t* tokens, int n_tokens, float* y) {
  const PackedMatrix& table = *w.parts[0];
  const int cols = table.matrix.cols;
  for_rows(n_tokens, cols, [&](int i) {
    thread_local PanelReader::Memory memory;
    const int panel = tokens[i] / kLanes / kGroup * kGroup, end = std::min(panel + kGroup, table.matrix.n_panels());
    const Panels panels = PanelReader(table, 0, panel, end, *kernels_, memory, true).read(end);
    unpack_row(panels.matrix, panels.index, tokens[i] - panels.first * kLanes, y + size_t(i) * cols);
  });
}

// ---- elementwise ----------------------------------------------------------------------------------------------------

void Ops::rms_norm(const Rows& x, int n_rows, int n, float* y) {
  for_rows(n_rows, n, [&](int i) { row_of(x, i, n, y + size_t(i) * n); });
}

void Ops::add(const float* x, const float* z, int64_t n, float* y) {
  constexpr int64_t kStretch = 65536, kNear = 2048;  // what is copied is still in the nearest cache when it is added to
  for_rows(int((n + kStretch - 1) / kStretch), n < kStretch ? 0 : kStretch, [&](int i) {
    int64_t end = std::min((i + 1) * kStretch, n);
    for (int64_t begin = i * kStretch; begin < end; begin += kNear) {
      int64_t count = std::min(kNear, end - begin);
      std::memcpy(y + begin, x + begin, size_t(count) * 4);
      kernels_->add(z + begin, y + begin, int(count));
    }
  });
}

// ---- mixture of experts ---------------------------------------------------------------------------------------------

namespace {

// The n_active largest logits, largest first (the lower index where equal), and their softmax.
void route(const float* logits, int n_experts, int n_active, int* experts, float* weights) {
  thread_local std::vector<char> taken;
  taken.assign(n_experts, false);
  for (int k = 0; k < n_active; k++) {
    int best = -1;
    for (int e = 0; e < n_experts; e++)
      if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
    experts[k] = best;
    taken[best] = true;
  }
  float total = 0;
  for (int k = 0; k < n_active; k++) total += weights[k] = std::exp(logits[experts[k]] - logits[experts[0]]);
  for (int k = 0; k < n_active; k++) weights[k] /= total;
}

}  // namespace

void Ops::moe(const MoeCall& c) {
  if (c.n_tokens == 0) return;
  int n_experts = c.gate_up->n_matrices(), d_ff = c.down->cols(), d_model = c.gate_up->cols();
  int n_pairs = c.n_tokens * c.n_active;
  std::vector<int> experts(n_pairs);
  std::vector<float> weights(n_pairs);
  for_rows(c.n_tokens, int64_t(n_experts) * c.n_active, [&](int t) {
    const size_t first = size_t(t) * c.n_active;
    route(c.router + size_t(t) * n_experts, n_experts, c.n_active, &experts[first], &weights[first]);
  });
  for (const Linear* w : {c.gate_up, c.down})
    for (const auto& part : w->parts)
      if (part->source && part->source->guessed) find_widened(*part, pool_, *kernels_);  // what follows is not made twice
  // Pairs (token, choice) by expert, each expert's from a tile's start: it is then one matrix product over its pairs.
  std::vector<int> count(n_experts, 0), start(n_experts + 1, 0), place_of(n_pairs);
  for (int e : experts) count[e]++;
  if (!c.gate_up->packed() || !c.down->packed()) {
    std::vector<int> used;
    for (int e = 0; e < n_experts; e++)
      if (count[e]) used.push_back(e);
    pack_used(*c.gate_up, used), pack_used(*c.down, used);
  }
  int n_each = n_pairs / int(n_experts - std::count(count.begin(), count.end(), 0));
  int tile = std::min(tile_columns(n_each, *c.gate_up), tile_columns(n_each, *c.down));
  for (int e = 0; e < n_experts; e++) start[e + 1] = start[e] + (count[e] + tile - 1) / tile * tile;
  int n_places = start[n_experts];
  std::vector<int> token_at(n_places, -1), place_at(n_places, -1), next(start.begin(), start.end() - 1);
  for (int pair = 0; pair < n_pairs; pair++) {
    int place = place_of[pair] = next[experts[pair]]++;
    token_at[place] = pair / c.n_active, place_at[place] = place;
  }
  hidden_rows_.resize(std::max(hidden_rows_.size(), size_t(n_places) * d_ff));
  out_.resize(std::max(out_.size(), size_t(n_places) * d_model));
  auto each_expert = [&](auto plan, std::vector<float>& y, int width) {
    for (int place = 0; place < n_places; place++) input_.columns[place].y = y.data() + size_t(place) * width;
    tasks_.clear();
    for (int e = 0; e < n_experts; e++)
      if (count[e]) plan(e);
  };
  prepare({c.x}, token_at.data(), n_places, tile, *c.gate_up, input_);
  each_expert([&](int e) { plan_gated(*c.gate_up, e, input_, start[e], count[e]); }, hidden_rows_, d_ff);
  run_gated(c.limit);
  prepare({hidden_rows_.data()}, place_at.data(), n_places, tile, *c.down, input_);
  each_expert([&](int e) { plan(*c.down, e, input_, start[e], count[e]); }, out_, d_model);
  run();
  for_rows(c.n_tokens, int64_t(c.n_active) * d_model, [&](int t) {
    float* y = c.y + size_t(t) * d_model;
    std::fill(y, y + d_model, 0.0f);
    for (int k = 0; k < c.n_active; k++) {
      int pair = t * c.n_active + k;
      kernels_->scaled_add(out_.data() + size_t(place_of[pair]) * d_model, weights[pair], y, d_model);
    }
  });
}

// ---- sampling -------------------------------------------------------------------------------------------------------

void Ops::sample(const SampleCall& c) {
  auto adjusted = [&](int r, const float* logits, std::vector<float>& y) -> const float* {
    static constexpr float kNone[3] = {1, 0, 0};
    int begin = c.listed_start ? std::clamp(c.listed_start[r], 0, c.n_listed) : 0;
    int end = c.listed_start ? std::clamp(c.listed_start[r + 1], begin, c.n_listed) : 0;
    if (begin == end && !c.masks) return logits;
    const float* penalty = c.penalties ? c.penalties + 3 * r : kNone;
    const uint32_t* mask = c.masks ? c.masks + size_t(r) * ((c.vocab_size + 31) / 32) : nullptr;
    y.resize(c.vocab_size);
    adjust(logits, c.vocab_size, {c.listed_ids + begin, c.listed_counts + begin, c.listed_bias + begin, end - begin,
                                  penalty[0], penalty[1], penalty[2], mask}, y.data());
    return y.data();
  };
  for_rows(c.n_rows, c.vocab_size, [&](int r) {
    SampleParams params{c.temperature[r], c.top_k[r], c.top_p[r], c.min_p[r], c.seed[r], c.position[r]};
    rows_.with_one([&](RowMemory& memory) {
      const float* logits = adjusted(r, c.logits + size_t(r) * c.vocab_size, memory.adjusted);
      c.ids[r] = gristmill::sample(*kernels_, logits, c.vocab_size, params, memory);
    });
  });
}

void Ops::logprobs(const LogprobsCall& c) {
  for_rows(c.n_rows, c.vocab_size, [&](int r) {
    const float* logits = c.logits + size_t(r) * c.vocab_size;
    const size_t top = size_t(r) * c.n_top;
    rows_.with_one([&](RowMemory& memory) {
      Logprobs result = gristmill::logprobs(*kernels_, logits, c.vocab_size, c.ids[r], c.n_top, c.top_ids + top,
                                            c.top_logprobs + top, memory);
      c.logprobs[r] = result.logprob;
      c.ranks[r] = result.rank;
    });
  });
}

}  // namespace gristmill
