// What tiles take over from kernels_avx512bf16.cpp.
#include "simd_avx512.h"
// The order matters: what follows is written on the operations above.
#include "peaks_impl.h"
#include "quantize_impl.h"
#include "shorten_impl.h"
#include "kernels_impl.h"
#include "attention_impl.h"
#include "attention_shortened_impl.h"
#include "attention_tiles_impl.h"
#include "tiles_impl.h"
#include "tiles_planes_impl.h"
#include "tiles_few_impl.h"
#include "tiles_int8_impl.h"

namespace gristmill {
const Kernels* kernels_amx() {
  if (!kernels_avx512bf16() || !may_use_tiles()) return nullptr;
  static const Kernels kernels = [] {
    Kernels k = *kernels_avx512bf16();
    k.name = "amx";
    k.quantize_tile = quantize_whole;
    k.quantize_wide = quantize_wide;
    k.byte_zero = 0;
    auto set = [&](Pack pack, auto linear) { k.linear[int(pack)] = linear; };
    k.peaks = &kTilePeaks;
    k.attention_queries = tile_attention_queries;
    k.attention_segment = tile_attention_segment;
    set(Pack::BF16, pair_linear<StoredPairs>);
    set(Pack::BF16_12, short_pair_linear);
    set(Pack::Q8_0, tiled_linear<TypeQ8_0>);
    set(Pack::Q8F, tiled_linear<TypeQ8F>);
    set(Pack::Q8G, tiled_linear<TypeQ8G>);
    set(Pack::Q8R, tiled_linear<TypeQ8R>);
    set(Pack::Q4_0, tiled_linear<TypeQ4_0>);
    set(Pack::Q4_1, tiled_linear<TypeQ4_1>);
    set(Pack::Q5_0, tiled_linear<TypeQ5_0>);
    set(Pack::Q5_1, tiled_linear<TypeQ5_1>);
    set(Pack::IQ4_NL, tiled_linear<TypeIq4Nl>);
    set(Pack::Q1_0, tiled_linear<TypeQ1_0>);
    set(Pack::Q2_0, tiled_linear<TypeQ2_0>);
    set(Pack::Q2_K, tiled_linear<TypeQ2_K>);
    set(Pack::Q3_K, tiled_linear<TypeQ3_K>);
    set(Pack::Q4_K, tiled_linear<TypeQ4_K>);
    set(Pack::Q5_K, tiled_linear<TypeQ5_K>);
    set(Pack::Q6_K, tiled_linear<TypeQ6_K>);
    set(Pack::IQ4_XS, tiled_linear<TypeIq4Xs>);
    set(Pack::IQ3_S, tiled_linear<TypeIq3S>);
    set(Pack::IQ3_XXS, tiled_linear<TypeIq3Xxs>);
    set(Pack::IQ2, tiled_linear<TypeIq2>);
    set(Pack::IQ1, tiled_linear<TypeIq1>);
    set(Pack::MXFP4, tiled_linear<TypeMxfp4>);
    set(Pack::NVFP4, tiled_linear<TypeNvfp4>);
    return k;
  }();
  return &kernels;
}
}  // namespace gristmill
