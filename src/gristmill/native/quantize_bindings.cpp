// The Python face of quantize.h; what it checks is what keeps every read and write inside its array.
#include "quantize.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "tape.h"

namespace gristmill {

namespace {

using namespace nb::literals;
using Scales = std::optional<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>;

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

// (bytes, scales, first row that does not fit or -1) of the rows `rows` of a stored tensor.
auto quantize(Backend& ops, const std::string& label, In<uint8_t, 1> data, int64_t cols, In<int64_t, 1> rows,
              const std::string& target, Scales scales, int64_t group) {
  SourceRows x{source_of(label), data.data(), nullptr, 0, cols};
  Source to = source_of(target);
  require(cols > 0 && cols <= 1 << 30, "quantize_rows: rows must have 1 to 2^30 columns");
  int block = source_block(x.source);
  require(cols % block == 0, "quantize_rows: the columns are not whole blocks of the source");
  int64_t row_bytes = cols / block * source_block_bytes(x.source);
  require(int64_t(data.size()) % row_bytes == 0, "quantize_rows: the data is not whole rows");
  int64_t n_stored = int64_t(data.size()) / row_bytes, n = n_stored * cols;
  if (x.source == Source::MXFP4_SPLIT) {
    require(scales && scales->dtype() == nb::dtype<uint8_t>() && int64_t(scales->size()) == n / 32,
            "quantize_rows: mxfp4_split needs one uint8 scale for each 32 elements");
  } else if (scales_apart(x.source)) {
    require(scales && scales->dtype() == nb::dtype<float>() && scales->size() > 0 && n % int64_t(scales->size()) == 0,
            "quantize_rows: this type needs float32 scales that divide the elements");
    x.group = n / int64_t(scales->size());
  }
  x.scales = scales ? scales->data() : nullptr;
  check_target(to, cols, group);
  size_t n_rows = rows.size();
  for (size_t i = 0; i < n_rows; i++)
    require(rows.data()[i] >= 0 && rows.data()[i] < n_stored, "quantize_rows: a row is not there");
  auto out = make<uint8_t>(ops, {n_rows * size_t(cols / source_block(to) * source_block_bytes(to))});
  auto out_scales = make<float>(ops, {to == Source::Q8_GROUPS ? n_rows * size_t(cols / group) : 0});
  int64_t bad;
  {
    Running running(ops);
    bad = quantize_rows(x, rows.data(), int64_t(n_rows), to, group, out.data(), out_scales.data(), ops.pool(), ops.kernels());
  }
  return nb::make_tuple(out, out_scales, bad);
}

}  // namespace

void bind_quantize(nb::module_& m) {
  m.def("quantize_rows", quantize, "ops"_a, "label"_a, "data"_a, "cols"_a, "rows"_a, "target"_a, "scales"_a.none(), "group"_a);
}

}  // namespace gristmill
