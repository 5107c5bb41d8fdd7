// Blurs a PNG by a Gaussian: blur [IN.png [OUT.png]]. The picture's size arrives with the call: one compiled kernel
// serves every size.
#include <tessera/tessera.hpp>

#include "samples/support/picture.h"
#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

constexpr int radius = 18, taps = 2 * radius + 1, columns = 256;

/// Blurs along the columns and transposes, so that two calls blur both ways. A program adds up 256 pixels of row i + t
/// - radius, t being the last grid axis; beyond the first and last rows the picture goes on as it ends.
ts::PallasCall make_blur() {
  const ts::Extent h = ts::dim("h"), w = ts::dim("w");
  return ts::pallas_call(
      [](Ref pixels, Ref weight, Ref o, Ref sum) {
        ts::when(ts::program_id(2) == 0, [&] { sum[all] = ts::zeros({columns}); });
        sum[all] += weight[0] * pixels[all];
        ts::when(ts::program_id(2) == taps - 1, [&] { o[all] = sum[all]; });
      },
      {.out_shape = {{{w, h}, ts::f32}},
       .grid = {h, ts::cdiv(w, columns), taps},
       .in_specs = {{{ts::squeezed, columns},
                     [](Value i, Value j, Value t) {
                       return ts::Indices{ts::clamp(0, i + t - radius, ts::num_programs(0) - 1), j};
                     }},
                    {{1}, [](Value, Value, Value t) { return t; }}},
       .out_specs = {{{columns, ts::squeezed}, [](Value i, Value j, Value) { return ts::Indices{j, i}; }}},
       .scratch_shapes = {ts::VMEM({columns}, ts::f32)},
       .name = "blur",
       .in_shape = {{{h, w}, ts::f32}, {{taps}, ts::f32}}});
}

int main(int argc, char** argv) try {
  const ts::Array picture = sample::read_png(argc > 1 ? argv[1] : TESSERA_SAMPLES_DIR "/mandelbrot.png");  // [3, h, w]
  const ts::Array weights = sample::gaussian(taps, radius / 3.0);
  const ts::PallasCall blur = ts::vmap(make_blur(), {0, std::nullopt});  // over the three colours
  const ts::Array blurred = blur(blur(picture, weights), weights);
  sample::write_png(argc > 2 ? argv[2] : "blurred.png", blurred);
  // Two sums of 37 products, of weights that add up to 1 and colours from 0 to 1: an error of at most 37 * 2^-24 each.
  if (argc == 1) return sample::check("blur", blurred, {.entries = 4.4e-6, .row_sums = 4.4e-6 * 640});
  return sample::check(
      "blur", blurred, [&](int64_t position) { return sample::blurred_entry(picture, weights, position); }, 4.4e-6);
} catch (const std::exception& e) {
  return sample::fail("blur", e);
}
