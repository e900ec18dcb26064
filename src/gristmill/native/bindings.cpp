// gristmill._kernels: the Python face of the operations. All shape checks are here, so that no array can make a kernel
// read or write outside it; everything long runs without the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>  // says whether this is glibc
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>

#include "grids.h"
#include "machine.h"
#include "sample.h"
#include "tape.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace gristmill;

namespace gristmill {
void bind_quantize(nb::module_& m);  // quantize_bindings.cpp
}

namespace {

using Unlocked = nb::gil_scoped_release;

void check(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

template <class Array>
auto data_or_null(const std::optional<Array>& array) -> decltype(array->data()) { return array ? array->data() : nullptr; }

// A weight whose shape has been checked, and the arrays that it points into.
struct Stored {
  using Scales = std::optional<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>;
  SourceWeight weight;
  In<uint8_t, 1> data;
  Scales scales;
  Optional<int32_t, 1> row_order;
};

Stored stored(const std::string& label, In<uint8_t, 1> data, int n_matrices, int stored_rows, int cols, Stored::Scales scales,
              Optional<int32_t, 1> row_order, const std::optional<std::string>& quantize_to,
              const std::optional<std::string>& shorter, std::optional<std::tuple<std::string, int, int64_t>> file) {
  SourceWeight w{};
  if (file) std::tie(w.path, w.file, w.offset) = *file;
  w.source = source_of(label);
  check(n_matrices > 0 && stored_rows > 0 && cols > 0, "pack: every dimension must be positive");
  int block = source_block(w.source);
  check(cols % block == 0, "pack: the columns are not a multiple of the type's block");
  check(double(n_matrices) * stored_rows * cols < 0x1p56, "pack: the shape is larger than any memory");
  int64_t n = int64_t(n_matrices) * stored_rows * cols;
  check(int64_t(data.size()) == n / block * source_block_bytes(w.source), "pack: the data's size does not fit the shape");
  w.n_matrices = n_matrices, w.stored_rows = stored_rows, w.cols = cols, w.data = data.data();
  w.rows = row_order ? int(row_order->size()) : stored_rows;
  w.row_order = data_or_null(row_order);
  check(w.rows > 0, "pack: row_order is empty");
  for (int r = 0; w.row_order && r < w.rows; r++)
    check(w.row_order[r] >= 0 && w.row_order[r] < stored_rows, "pack: row_order names a row that is not there");
  if (w.source == Source::MXFP4_SPLIT) {
    check(scales && scales->dtype() == nb::dtype<uint8_t>() && int64_t(scales->size()) == n / kBlock,
          "pack: mxfp4_split needs one uint8 scale for each 32 elements");
  } else if (w.source == Source::Q8_GROUPS) {
    check(scales && scales->dtype() == nb::dtype<float>() && scales->size() > 0 && n % int64_t(scales->size()) == 0,
          "pack: q8_groups needs float32 scales that divide the elements");
    w.group = int(n / int64_t(scales->size()));
    check(w.group % kBlock == 0 && cols % kBlock == 0, "pack: q8_groups needs groups and columns in multiples of 32");
  } else if (w.source == Source::FP8_GROUPS) {
    check(scales && scales->dtype() == nb::dtype<float>() && scales->size() > 0 && n % int64_t(scales->size()) == 0 &&
              cols % (n / int64_t(scales->size())) == 0,
          "pack: fp8 needs float32 scales that divide the rows");
    w.group = int(n / int64_t(scales->size()));
  } else if (w.source == Source::INT8_ROWS || w.source == Source::NVFP4) {
    check(scales && scales->dtype() == nb::dtype<float>() && int64_t(scales->size()) == int64_t(n_matrices) * stored_rows,
          "pack: int8 and nvfp4 need one float32 scale for each row");
  }
  if (quantize_to) {
    check(w.source <= Source::BF16 || w.source == Source::FP8_GROUPS, "pack: only float types are quantized");
    const std::string& to = *quantize_to;
    check(to == "int8" || to == "q8_0" || to == "q4_0" || to == "mxfp4", "pack: quantize_to must be int8, q8_0, q4_0 or mxfp4");
    w.quantize_to = to == "int8" ? Pack::Q8R : to == "q8_0" ? Pack::Q8_0 : to == "q4_0" ? Pack::Q4_0 : Pack::MXFP4;
  }
  if (shorter) {
    const std::string& to = *shorter;
    const bool pairs = w.source <= Source::BF16 || w.source == Source::FP8_GROUPS;
    check(w.source == Source::F32 ? to == "f32_24" : pairs && (to == "bf16" || to == "bf16_12"),
          "pack: shorter is f32_24 for f32, bf16 or bf16_12 for f16, bf16 and fp8");
    w.shorter = to == "f32_24" ? Pack::F32_24 : to == "bf16" ? Pack::BF16 : Pack::BF16_12;
  }
  w.scales = scales ? scales->data() : nullptr;
  const Matrix shape{pack_of(w), 1, 1, cols, nullptr};
  check(!shape.blocked() || cols % kBlock == 0, "pack: columns must be a multiple of 32");
  check(!shape.super() || cols % (kSuperSteps * kBlock) == 0, "pack: columns of this type must be a multiple of 256");
  return {w, std::move(data), std::move(scales), std::move(row_order)};
}

// Whoever needs the weight last lets go of its arrays, with the interpreter in hand.
std::shared_ptr<SourceWeight> kept(const Stored& one) {
  auto release = [](Stored* stored) {
    nb::gil_scoped_acquire locked;
    delete stored;
  };
  std::shared_ptr<Stored> stored(new Stored(one), release);
  return {stored, &stored->weight};
}

std::vector<std::shared_ptr<PackedMatrix>> put_all(Backend& ops, const std::vector<const Stored*>& weights, bool lazy) {
  std::vector<std::shared_ptr<SourceWeight>> all;
  for (const Stored* one : weights) all.push_back(kept(*one));
  Running running(ops);
  return ops.put(all, lazy);
}

void pack_matrix(Backend& ops, const Linear& w, int matrix) {
  check(0 <= matrix && matrix < w.n_matrices(), "pack: no such matrix");
  Running running(ops);
  ops.pack(w, matrix);
}

std::shared_ptr<Linear> make_linear(std::vector<std::shared_ptr<PackedMatrix>> parts, Optional<float, 1> bias) {
  check(!parts.empty(), "Linear: at least one part is needed");
  auto linear = std::make_shared<Linear>();
  check(std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part != nullptr; }), "Linear: a part is None");
  for (const auto& part : parts)
    check(part->matrix.cols == parts[0]->matrix.cols && part->matrix.n_matrices == parts[0]->matrix.n_matrices,
          "Linear: all parts must have the same columns and experts");
  linear->parts = std::move(parts);
  if (bias) {
    check(int(bias->size()) == linear->rows() * linear->n_matrices(), "Linear: the bias must have one number for each row");
    linear->bias.assign(bias->data(), bias->data() + bias->size());
  }
  return linear;
}

KvLayer kv_shape(Backend& ops, int n_kv_heads, int head_dim, const std::string& type) {
  check(n_kv_heads > 0 && head_dim > 0 && head_dim % 2 == 0, "kv_layers: heads and an even head_dim are needed");
  check(type == "f32" || type == "f16" || type == "q8_0", "kv_layers: the type must be f32, f16 or q8_0");
  check(type != "q8_0" || head_dim % kBlock == 0, "kv_layers: q8_0 needs a head_dim in multiples of 32; use f16");
  KvType kind = type == "f32" ? KvType::F32 : type == "f16" ? ops.half_type(head_dim) : KvType::Q8_0;
  return {nullptr, 0, 0, kind, n_kv_heads, head_dim, (head_dim + kLanes - 1) / kLanes * kLanes};
}

size_t kv_block_bytes(Backend& ops, int n_kv_heads, int head_dim, const std::string& type) {
  return kv_shape(ops, n_kv_heads, head_dim, type).block_bytes();
}

std::vector<std::shared_ptr<KvStore>> make_kv(Backend& ops, int n_layers, int n_blocks, int n_kv_heads, int head_dim,
                                              const std::string& type) {
  check(n_layers > 0 && n_blocks > 0 && n_blocks < INT32_MAX / kKvBlock, "kv_layers: layers and blocks are needed");
  check(n_kv_heads <= 1 << 16 && head_dim <= 1 << 16, "kv_layers: that many heads, or heads so large, are not kept");
  const double block_bytes = double(kv_block_bytes(ops, n_kv_heads, head_dim, type));
  check(block_bytes * n_layers * n_blocks < 0x1p56, "kv_layers: the cache is larger than any memory");
  return make_kv_layers(kv_shape(ops, n_kv_heads, head_dim, type), n_layers, n_blocks);
}

using MaybeResult = std::optional<Result<float>>;

// Where there is `more`, the second is x + more.
std::pair<Rows, MaybeResult> rows_of(Backend& ops, const In<float, 2>& x, const Optional<float, 2>& more,
                                     const Optional<float, 1>& norm, float eps) {
  check(!more || (more->shape(0) == x.shape(0) && more->shape(1) == x.shape(1)), "rms_norm: the shapes differ");
  check(!more || norm, "rms_norm: a sum needs a norm");
  check(!norm || norm->size() == x.shape(1), "rms_norm: the weight's size is not x's width");
  MaybeResult total;
  if (more) total = make(ops, {x.shape(0), x.shape(1)});
  return {Rows{x.data(), data_or_null(norm), eps, data_or_null(more), total ? total->data() : nullptr}, total};
}

auto linear(Backend& ops, const Linear& w, In<float, 2> x, Optional<float, 2> more, Optional<float, 1> norm, float eps) {
  check(int(x.shape(1)) == w.cols() && w.n_matrices() == 1, "linear: x's width is not the weight's");
  auto [rows, total] = rows_of(ops, x, more, norm, eps);
  auto out = make(ops, {x.shape(0), size_t(w.rows())});
  perform(ops, [&ops, &w, rows = rows, n = int(x.shape(0)), out = out.data()] { ops.linear(rows, n, w, out); }, x, more, norm, w);
  return std::pair(total, out);
}

bool is_gated(const Linear& w) { return w.parts.size() == 2 && w.parts[0]->matrix.rows == w.parts[1]->matrix.rows; }

auto gated_linear(Backend& ops, const Linear& w, float limit, In<float, 2> x, Optional<float, 2> more, Optional<float, 1> norm,
                  float eps) {
  check(int(x.shape(1)) == w.cols() && w.n_matrices() == 1, "gated_linear: x's width is not the weight's");
  check(is_gated(w), "gated_linear: the weight must have two parts of the same rows");
  auto [rows, total] = rows_of(ops, x, more, norm, eps);
  auto out = make(ops, {x.shape(0), size_t(w.rows() / 2)});
  const int n = int(x.shape(0));
  perform(ops, [&ops, &w, rows = rows, n, limit, y = out.data()] { ops.gated_linear(rows, n, w, limit, y); }, x, more, norm, w);
  return std::pair(total, out);
}

auto embed(Backend& ops, const Linear& w, In<int32_t, 1> tokens) {
  check(w.parts.size() == 1 && w.n_matrices() == 1, "embed: one plain matrix is needed");
  auto y = make(ops, {tokens.size(), size_t(w.cols())});
  perform(ops, [&ops, &w, tokens = tokens.data(), n = int(tokens.size()), y = y.data()] {
    for (int i = 0; i < n; i++)
      check(tokens[i] >= 0 && tokens[i] < w.rows(), "embed: a token id is outside the vocabulary");
    ops.embed(w, tokens, n, y);
  }, tokens, w);
  return y;
}

auto rms_norm(Backend& ops, In<float, 2> x, Optional<float, 2> more, In<float, 1> weight, float eps) {
  auto [rows, total] = rows_of(ops, x, more, weight, eps);
  auto out = make(ops, {x.shape(0), x.shape(1)});
  perform(ops, [&ops, rows = rows, n_rows = int(x.shape(0)), n = int(x.shape(1)), out = out.data()] {
    ops.rms_norm(rows, n_rows, n, out);
  }, x, more, weight);
  return std::pair(total, out);
}

auto add(Backend& ops, In<float, 2> x, In<float, 2> z) {
  check(x.shape(0) == z.shape(0) && x.shape(1) == z.shape(1), "add: the shapes differ");
  auto y = make(ops, {x.shape(0), x.shape(1)});
  perform(ops, [&ops, x = x.data(), z = z.data(), n = int64_t(x.size()), y = y.data()] { ops.add(x, z, n, y); }, x, z);
  return y;
}

auto take_rows(Backend& ops, In<float, 2> x, In<int32_t, 1> rows) {
  size_t n = rows.size(), width = x.shape(1);
  auto y = make(ops, {n, width});
  perform(ops, [x = x.data(), count = x.shape(0), rows = rows.data(), n, width, y = y.data()] {
    for (size_t i = 0; i < n; i++) {
      check(rows[i] >= 0 && size_t(rows[i]) < count, "take_rows: a row is not there");
      std::memcpy(y + i * width, x + size_t(rows[i]) * width, width * sizeof(float));
    }
  }, x, rows);
  return y;
}

template <class T, int Rank>
using InOut = nb::ndarray<T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;

// Turns a step of one token a sequence into the next one, in place. begun[g]: blocks of layer group g for the sequences whose
// next position begins one, in order. It is done at once: no tape notes it, and so little needs no lock.
void advance(In<int32_t, 1> ids, InOut<int32_t, 1> tokens, InOut<int32_t, 1> positions, InOut<int32_t, 1> seq_lens,
             InOut<int64_t, 1> next_positions, std::vector<InOut<int32_t, 1>> slots, std::vector<InOut<int32_t, 2>> tables,
             const std::vector<std::vector<int32_t>>& begun) {
  size_t n = ids.size(), n_begun = 0;
  check(tokens.size() == n && positions.size() == n && seq_lens.size() == n && next_positions.size() == n,
        "advance: one token of each sequence is needed");
  check(slots.size() == tables.size() && begun.size() == tables.size(),
        "advance: slots, a table and begun blocks for each group are needed");
  for (size_t i = 0; i < n; i++) n_begun += (positions.data()[i] + 1) % kKvBlock == 0;
  for (size_t g = 0; g < tables.size(); g++) {
    check(slots[g].size() == n && tables[g].shape(0) == n, "advance: a slot and a row of blocks for each sequence are needed");
    check(begun[g].size() == n_begun, "advance: a block is needed for each sequence whose next position begins one");
    for (size_t i = 0; i < n; i++) {
      size_t block = size_t(positions.data()[i] + 1) / kKvBlock;
      check(positions.data()[i] >= 0 && block < tables[g].shape(1), "advance: the block tables are too narrow");
    }
  }
  for (size_t g = 0; g < tables.size(); g++) {
    const int32_t* next = begun[g].data();
    for (size_t i = 0; i < n; i++) {
      int position = positions.data()[i] + 1, offset = position % kKvBlock;
      int32_t& block = tables[g].data()[i * tables[g].shape(1) + position / kKvBlock];
      if (offset == 0) block = *next++;
      slots[g].data()[i] = block * kKvBlock + offset;
    }
  }
  for (size_t i = 0; i < n; i++) {
    tokens.data()[i] = std::max(ids.data()[i], 0);  // kNoId: whatever it is, it will not be looked at
    positions.data()[i]++, seq_lens.data()[i]++, next_positions.data()[i]++;
  }
}

// A recorded step of one token a sequence that goes on by itself, in one call: what lies between two steps is done while
// the interpreter's own data wait in memory, so that little of it should be touched.
struct Continuation {
  nb::object ops, tape;  // kept alive
  Backend* backend;
  const Tape* recorded;
  In<int32_t, 1> ids;
  InOut<int32_t, 1> tokens, positions, seq_lens;
  InOut<int64_t, 1> next_positions;
  std::vector<InOut<int32_t, 1>> slots;
  std::vector<InOut<int32_t, 2>> tables;

  std::vector<int32_t> operator()(const std::vector<std::vector<int32_t>>& begun) {
    advance(ids, tokens, positions, seq_lens, next_positions, slots, tables, begun);
    replay(*backend, *recorded);
    return {ids.data(), ids.data() + ids.size()};
  }
};

void make_continuation(Continuation* self, nb::object ops, nb::object tape, In<int32_t, 1> ids, InOut<int32_t, 1> tokens,
                       InOut<int32_t, 1> positions, InOut<int32_t, 1> seq_lens, InOut<int64_t, 1> next_positions,
                       std::vector<InOut<int32_t, 1>> slots, std::vector<InOut<int32_t, 2>> tables) {
  new (self) Continuation{ops, tape, nb::cast<Backend*>(ops), nb::cast<const Tape*>(tape), ids, tokens, positions, seq_lens,
                          next_positions, std::move(slots), std::move(tables)};
}

auto rope_angles(Backend& ops, In<int32_t, 1> positions, In<float, 1> inv_freq, float scale) {
  size_t n = positions.size(), half = inv_freq.size();
  auto cos = make(ops, {n, half}), sin = make(ops, {n, half});
  perform(
      ops,
      [&ops, positions = positions.data(), n, inv_freq = inv_freq.data(), half, scale, cos = cos.data(), sin = sin.data()] {
        ops.rope_angles(positions, int(n), inv_freq, int(half), scale, cos, sin);
      },
      positions, inv_freq);
  return std::pair(cos, sin);
}

void check_slots(const StoreCall& c, int n_slots) {
  for (int t = 0; t < c.n_tokens; t++)
    check(c.slots[t] >= 0 && c.slots[t] < n_slots, "store_qkv: a slot is outside the cache");
}

auto store_qkv(Backend& ops, In<float, 2> qkv, Optional<float, 1> q_norm, Optional<float, 1> k_norm, float eps, In<float, 2> cos,
               In<float, 2> sin, const KvStore& kv, In<int32_t, 1> slots) {
  StoreCall c{};
  c.kv = kv.layer;
  size_t n_tokens = qkv.shape(0), head_dim = size_t(c.kv.head_dim), heads = qkv.shape(1) / head_dim;
  check(qkv.shape(1) % head_dim == 0 && heads > 2 * size_t(c.kv.n_kv_heads), "store_qkv: qkv's width is not whole heads");
  check(heads % c.kv.n_kv_heads == 0, "store_qkv: the heads of q are not a multiple of the cache's");
  check(slots.size() == n_tokens && cos.shape(0) == n_tokens && sin.shape(0) == n_tokens, "store_qkv: the token counts differ");
  check(cos.shape(1) * 2 == head_dim && sin.shape(1) * 2 == head_dim, "store_qkv: cos and sin must be [T, head_dim / 2]");
  check((!q_norm || q_norm->size() == head_dim) && (!k_norm || k_norm->size() == head_dim),
        "store_qkv: a norm is not head_dim wide");
  c.n_heads = int(heads) - 2 * c.kv.n_kv_heads;
  auto q = make(ops, {n_tokens, size_t(c.n_heads) * head_dim});
  c.qkv = qkv.data(), c.q_norm = data_or_null(q_norm), c.k_norm = data_or_null(k_norm), c.cos = cos.data(), c.sin = sin.data();
  c.slots = slots.data(), c.q = q.data();
  c.n_tokens = int(n_tokens), c.eps = eps;
  const int n_slots = kv.n_blocks * kKvBlock;
  perform(ops, [&ops, c, n_slots] {
    check_slots(c, n_slots);
    ops.store_qkv(c);
  }, qkv, q_norm, k_norm, cos, sin, kv, slots);
  if (ops.tape) ops.tape->store = c, ops.tape->n_slots = n_slots, ops.tape->n_calls_to_store = ops.tape->calls.size();
  return q;
}

// The arrays that say which rows attend to what.
void check_tables(const AttentionCall& c, int n_tokens, int n_blocks) {
  const int32_t *starts = c.query_start, *table = c.block_tables;
  check(starts[0] == 0 && starts[c.n_sequences] == n_tokens, "attention: query_start does not cover the tokens");
  for (int s = 0; s < c.n_sequences; s++) {
    check(starts[s] <= starts[s + 1] && starts[s + 1] <= n_tokens, "attention: query_start must not decrease");
    for (int t = starts[s]; t < starts[s + 1]; t++)
      check(c.positions[t] >= 0 && c.positions[t] < c.n_table * kKvBlock, "attention: a position is outside the block table");
    for (int b = 0; b < c.n_table; b++, table++)
      check(*table >= 0 && *table < n_blocks, "attention: a block id is outside the cache");
  }
}

auto attention(Backend& ops, In<float, 2> q, const KvStore& kv, In<int32_t, 1> positions, In<int32_t, 1> query_start,
               In<int32_t, 2> block_tables, int window, Optional<float, 1> sinks, float scale) {
  AttentionCall c{};
  c.kv = kv.layer;
  size_t n_tokens = q.shape(0), head_dim = size_t(c.kv.head_dim);
  c.n_sequences = int(block_tables.shape(0)), c.n_table = int(block_tables.shape(1));
  check(window >= 0, "attention: the window is negative");
  check(q.shape(1) % (head_dim * c.kv.n_kv_heads) == 0, "attention: q's heads are not a multiple of the cache's");
  c.n_heads = int(q.shape(1) / head_dim);
  check(positions.size() == n_tokens && query_start.size() == block_tables.shape(0) + 1,
        "attention: the counts of tokens or sequences differ");
  check(!sinks || int(sinks->size()) == c.n_heads, "attention: one sink for each head is needed");
  auto y = make(ops, {n_tokens, q.shape(1)});
  c.q = q.data(), c.y = y.data(), c.positions = positions.data(), c.query_start = query_start.data();
  c.block_tables = block_tables.data(), c.sinks = data_or_null(sinks), c.window = window, c.scale = scale;
  auto note = [&](auto call) { perform(ops, call, q, kv, positions, query_start, block_tables, sinks); };
  const int n_blocks = kv.n_blocks;
  if (ops.tape && ops.tape->takes_back_store(c)) {
    note([&ops, c, n_tokens, n_blocks, store = ops.tape->store, n_slots = ops.tape->n_slots] {
      check_slots(store, n_slots);
      check_tables(c, int(n_tokens), n_blocks);
      ops.attention(c, &store);
    });
    ops.tape->unwritten.insert(c.q);
  } else {
    note([&ops, c, n_tokens, n_blocks] {
      check_tables(c, int(n_tokens), n_blocks);
      ops.attention(c);
    });
  }
  return y;
}

auto moe(Backend& ops, In<float, 2> x, In<float, 2> router, const Linear& gate_up, const Linear& down, int n_active,
         float limit) {
  check(int(x.shape(1)) == gate_up.cols() && down.rows() == gate_up.cols() && gate_up.rows() == 2 * down.cols(),
        "moe: the experts' shapes do not fit");
  check(is_gated(gate_up), "moe: gate and up must be two parts of the same rows");
  check(gate_up.n_matrices() == down.n_matrices() && int(router.shape(1)) == down.n_matrices() && router.shape(0) == x.shape(0),
        "moe: the router's shape does not fit the experts");
  check(n_active > 0 && n_active <= down.n_matrices(), "moe: n_active must be between 1 and the number of experts");
  auto y = make(ops, {x.shape(0), x.shape(1)});
  MoeCall c{x.data(), router.data(), &gate_up, &down, y.data(), int(x.shape(0)), n_active, limit};
  perform(ops, [&ops, c] { ops.moe(c); }, x, router, gate_up, down);
  return y;
}

auto sample_rows(Backend& ops, In<float, 2> logits, In<float, 1> temperature, In<int32_t, 1> top_k, In<float, 1> top_p,
                 In<float, 1> min_p, In<uint64_t, 1> seed, In<int64_t, 1> position, In<float, 2> penalties,
                 In<int32_t, 1> listed_start, In<int32_t, 1> listed_ids, In<int32_t, 1> listed_counts,
                 In<float, 1> listed_bias, In<uint32_t, 2> masks) {
  size_t n = logits.shape(0), n_listed = listed_ids.size();
  check(temperature.size() == n && top_k.size() == n && top_p.size() == n && min_p.size() == n && seed.size() == n &&
            position.size() == n,
        "sample: one parameter for each row is needed");
  check(!penalties.size() || (penalties.shape(0) == n && penalties.shape(1) == 3), "sample: penalties must be [R, 3] or empty");
  check(!listed_start.size() || listed_start.size() == n + 1, "sample: listed_start must be [R + 1] or empty");
  check(listed_counts.size() == n_listed && listed_bias.size() == n_listed,
        "sample: a count and a bias for each listed id are needed");
  check(!masks.size() || (masks.shape(0) == n && masks.shape(1) == (logits.shape(1) + 31) / 32),
        "sample: masks must be [R, (vocab_size + 31) / 32] or empty");
  auto ids = make<int32_t>(ops, {n});
  SampleCall c{logits.data(), temperature.data(), top_k.data(), top_p.data(), min_p.data(), seed.data(), position.data(),
               penalties.size() ? penalties.data() : nullptr, listed_start.size() ? listed_start.data() : nullptr,
               listed_ids.data(), listed_counts.data(), listed_bias.data(), masks.size() ? masks.data() : nullptr,
               ids.data(), int(n), int(logits.shape(1)), int(n_listed)};
  perform(ops, [&ops, c] { ops.sample(c); }, logits, temperature, top_k, top_p, min_p, seed, position, penalties, listed_start,
          listed_ids, listed_counts, listed_bias, masks);
  return ids;
}

auto logprobs_of(Backend& ops, In<float, 2> logits, In<int32_t, 1> ids, int n_top) {
  size_t n = logits.shape(0), n_vocab = logits.shape(1);
  check(ids.size() == n, "logprobs: one id for each row is needed");
  check(n_top >= 0 && size_t(n_top) <= n_vocab, "logprobs: n_top must be between 0 and the size of the vocabulary");
  for (size_t r = 0; r < n; r++)
    check(ids.data()[r] >= 0 && size_t(ids.data()[r]) < n_vocab, "logprobs: an id is outside the vocabulary");
  auto logprobs = make<double>(ops, {n});
  auto ranks = make<int32_t>(ops, {n});
  auto top_ids = make<int32_t>(ops, {n, size_t(n_top)});
  auto top_logprobs = make<double>(ops, {n, size_t(n_top)});
  LogprobsCall c{logits.data(), ids.data(), logprobs.data(), ranks.data(), top_ids.data(), top_logprobs.data(),
                 int(n), int(n_vocab), n_top};
  perform(ops, [&ops, c] { ops.logprobs(c); }, logits, ids);
  return std::tuple(logprobs, ranks, top_ids, top_logprobs);
}

// GGUF's strings lie back to back, each behind its length as 8 little-endian bytes. Writes where the bytes of each begin,
// and at last where those of another one would; returns how many there are: fewer than asked for where one is longer than
// max_bytes or than what is left of the file.
size_t find_strings(In<uint8_t, 1> file, size_t position, uint64_t max_bytes,
                    nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> starts) {
  constexpr size_t kPrefix = 8;
  const size_t end = file.size();
  check(position <= end && starts.size() > 0, "find_strings: the position is not in the file, or there is no room");
  const size_t most = starts.size() - 1;
  size_t n = 0;
  for (;; n++) {
    starts.data()[n] = int64_t(position + kPrefix);
    if (n == most || end - position < kPrefix) return n;
    uint64_t length = 0;
    for (size_t i = 0; i < kPrefix; i++) length |= uint64_t(file.data()[position + i]) << (8 * i);
    if (length > max_bytes || length > end - position - kPrefix) return n;
    position += kPrefix + size_t(length);
  }
}

auto dequantize_array(const std::string& label, In<uint8_t, 1> data) {
  Source source = source_of(label);
  check(!scales_apart(source), "dequantize: this type keeps its scales apart");
  check(data.size() % source_block_bytes(source) == 0, "dequantize: the data is not whole blocks");
  size_t n = data.size() / source_block_bytes(source) * source_block(source);
  float* y = new float[n ? n : 1];
  nb::capsule owner(y, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  {
    Unlocked unlocked;
    dequantize(source, data.data(), int64_t(n), y);
  }
  return Result<float>(y, {n}, owner);
}

Result<uint8_t> grid_digits_of(const std::string& label) {
  auto* digits = new std::vector<uint8_t>(grid_digits(source_of(label)));
  nb::capsule owner(digits, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
  return Result<uint8_t>(digits->data(), {digits->size()}, owner);
}

size_t linear_bytes(const Linear& w) {
  size_t n = 0;
  for (const auto& part : w.parts) n += part->matrix.total_bytes();
  return n;
}

// In what the largest part is multiplied.
const char* linear_arithmetic(const Linear& w) {
  const Matrix* largest = &w.parts[0]->matrix;
  for (const auto& part : w.parts)
    if (part->matrix.rows > largest->rows) largest = &part->matrix;
  return largest->blocked() ? "int8" : largest->plain() == Pack::BF16 ? "bf16" : "f32";
}

void make_read_test(ReadTest* self, Backend& ops, size_t n_bytes) {
  check(n_bytes > 0 && n_bytes <= size_t(1) << 36, "ReadTest: between 1 byte and 64 GiB");
  Running running(ops);
  new (self) ReadTest(n_bytes, ops.pool());
}

double run_read_test(const ReadTest& test, Backend& ops) {
  Running running(ops);
  return test.run(ops.kernels(), ops.pool());
}

double peak_of(Backend& ops, const std::string& arithmetic, double seconds) {
  const Peaks& peaks = *ops.kernels().peaks;
  auto loop = arithmetic == "f32" ? peaks.f32 : arithmetic == "bf16" ? peaks.bf16 : arithmetic == "int8" ? peaks.int8 : nullptr;
  check(loop, "measure_peak: arithmetic must be f32, bf16 or int8");
  check(seconds > 0 && seconds <= 10, "measure_peak: seconds must be over 0 and at most 10");
  Running running(ops);
  return measure_peak(loop, ops.pool(), seconds);
}

void trim_heap() {
  Unlocked unlocked;
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // a process that was forked, or ends while a thread computes, frees nothing: no leak
  nb::exception<FileChangedError>(m, "FileChangedError", PyExc_OSError);
  nb::class_<PackedMatrix>(m, "Packed");
  nb::class_<Linear>(m, "Linear")
      .def_prop_ro("rows", &Linear::rows)
      .def_prop_ro("cols", &Linear::cols)
      .def_prop_ro("n_matrices", &Linear::n_matrices)
      .def_prop_ro("n_bytes", linear_bytes)
      .def_prop_ro("arithmetic", linear_arithmetic)
      .def_prop_ro("is_packed", &Linear::packed);
  nb::class_<Stored>(m, "Stored");
  m.def("stored", stored, "label"_a, "data"_a, "n_matrices"_a, "stored_rows"_a, "cols"_a, "scales"_a.none(), "row_order"_a.none(),
        "quantize_to"_a.none(), "shorter"_a.none(), "file"_a.none());
  nb::class_<KvStore>(m, "KvLayer")
      .def_prop_ro("n_bytes", [](const KvStore& kv) { return kv.layer.block_bytes() * kv.n_blocks; })
      .def_prop_ro("head_dim", [](const KvStore& kv) { return kv.layer.head_dim; })
      .def("fill", [](KvStore& kv, int byte) {
        size_t n_k = kv.layer.n_kv_heads * kv.layer.k_bytes(), n_v = kv.layer.n_kv_heads * kv.layer.v_bytes();
        for (int block = 0; block < kv.n_blocks; block++) {
          std::memset(kv.layer.keys(block, 0), byte, n_k);
          std::memset(kv.layer.values(block, 0), byte, n_v);
        }
      }, "byte"_a);
  m.def("linear_of", make_linear, "parts"_a, "bias"_a.none());
  nb::class_<Tape>(m, "Tape")
      .def(nb::init<>())
      .def_prop_ro("n_calls", [](const Tape& tape) { return tape.calls.size(); });
  nb::class_<Backend>(m, "Ops")
      .def(nb::init<int, const std::string&>(), "n_threads"_a, "isa"_a)
      .def_prop_ro("isa", [](const Backend& ops) { return std::string(ops.isa()); })
      .def_prop_ro("n_threads", [](Backend& ops) { return ops.pool().size(); })
      .def("put", put_all, "weights"_a, "lazy"_a)
      .def("pack", pack_matrix, "w"_a, "matrix"_a)
      .def_prop_ro("packing_s", [](const Backend& ops) { return ops.packing_s(); })
      .def("linear", linear, "w"_a, "x"_a, "more"_a.none(), "norm"_a.none(), "eps"_a)
      .def("embed", embed, "w"_a, "tokens"_a)
      .def("rms_norm", rms_norm, "x"_a, "more"_a.none(), "weight"_a, "eps"_a)
      .def("add", add, "x"_a, "z"_a)
      .def("gated_linear", gated_linear, "w"_a, "limit"_a, "x"_a, "more"_a.none(), "norm"_a.none(), "eps"_a)
      .def("kv_layers", make_kv, "n_layers"_a, "n_blocks"_a, "n_kv_heads"_a, "head_dim"_a, "kv_type"_a)
      .def("kv_block_bytes", kv_block_bytes, "n_kv_heads"_a, "head_dim"_a, "kv_type"_a)
      .def("rope_angles", rope_angles, "positions"_a, "inv_freq"_a, "scale"_a)
      .def("store_qkv", store_qkv, "qkv"_a, "q_norm"_a.none(), "k_norm"_a.none(), "eps"_a, "cos"_a, "sin"_a, "kv"_a, "slots"_a)
      .def("attention", attention, "q"_a, "kv"_a, "positions"_a, "query_start"_a, "block_tables"_a, "window"_a,
           "sinks"_a.none(), "scale"_a)
      .def("take_rows", take_rows, "x"_a, "rows"_a)
      .def_static("advance", advance, "ids"_a, "tokens"_a, "positions"_a, "seq_lens"_a, "next_positions"_a, "slots"_a,
                  "tables"_a, "begun"_a)
      .def("sample", sample_rows, "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seeds"_a, "positions"_a,
           "penalties"_a, "listed_start"_a, "listed_ids"_a, "listed_counts"_a, "listed_bias"_a, "masks"_a)
      .def("logprobs", logprobs_of, "logits"_a, "ids"_a, "n_top"_a)
      .def("record", [](Backend& ops, Tape* tape) { ops.tape = tape; }, "tape"_a.none())
      .def("replay", replay, "tape"_a)
      .def("share", share, "tape"_a, "result"_a)
      .def("moe", moe, "x"_a, "router"_a, "gate_up"_a, "down"_a, "n_active"_a, "limit"_a);
  nb::class_<Continuation>(m, "Continuation")
      .def("__init__", make_continuation, "ops"_a, "tape"_a, "ids"_a, "tokens"_a, "positions"_a, "seq_lens"_a, "next_positions"_a,
           "slots"_a, "tables"_a)
      .def("__call__", &Continuation::operator(), "begun"_a);
  nb::class_<ReadTest>(m, "ReadTest")
      .def("__init__", make_read_test, "ops"_a, "n_bytes"_a)
      .def("run", run_read_test, "ops"_a);
  m.def("measure_peak", peak_of, "ops"_a, "arithmetic"_a, "seconds"_a);
  m.def("uniform", uniform);
  m.def("dequantize", dequantize_array, "label"_a, "data"_a);
  m.def("grid_digits", grid_digits_of, "label"_a);
  m.def("trim_heap", trim_heap);
  m.def("find_strings", find_strings, "file"_a, "position"_a, "max_bytes"_a, "starts"_a);
  bind_quantize(m);
}
