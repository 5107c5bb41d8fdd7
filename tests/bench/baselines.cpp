#include "tests/bench/baselines.h"

#include <cstdint>
#include <iterator>

namespace {
#include "shaders/add.h"
#include "shaders/blur.h"
#include "shaders/copy.h"
#include "shaders/iota.h"
#include "shaders/mandelbrot.h"
#include "shaders/matmul_lanes_16.h"
#include "shaders/matmul_lanes_16_500.h"
#include "shaders/matmul_lanes_16_gelu.h"
#include "shaders/matmul_lanes_32.h"
#include "shaders/matmul_lanes_32_500.h"
#include "shaders/matmul_lanes_32_gelu.h"
#include "shaders/matmul_naive.h"
#include "shaders/matmul_tiled.h"
#include "shaders/softmax_32.h"
#include "shaders/softmax_8.h"
}  // namespace

namespace tessera::bench {
namespace {

/// A Program of `words` that takes `inputs` of the kernel and writes its outputs, in `groups` workgroups, with 32-bit
/// `sizes` pushed.
template <size_t N>
Baseline baseline(const char* shader, const uint32_t (&words)[N], const ir::Kernel& k, std::vector<int> inputs,
                  int64_t groups, int32_t workgroup_size, std::vector<Extent> sizes = {}) {
  Baseline b;
  b.shader = shader;
  b.inputs = std::move(inputs);
  Program& p = b.program;
  p.name = shader;
  p.spirv.assign(std::begin(words), std::end(words));
  p.workgroup_size = workgroup_size;
  p.num_units = groups;
  p.extent_is_64.assign(sizes.size(), false);
  p.extents = std::move(sizes);
  const auto arg = [&](int i, bool output) {
    const ir::BlockMapping& m = k.blocks[static_cast<size_t>(i)];
    p.args.push_back({m.origin, m.dtype, m.array_shape, output, !output, output});
  };
  for (int i : b.inputs) arg(i, false);
  for (int i = 0; i < k.num_outputs(); ++i) arg(k.num_inputs + i, true);
  return b;
}

bool starts_with(const std::string& s, const char* prefix) { return s.rfind(prefix, 0) == 0; }

bool is(const ir::BlockMapping& b, DType dtype, const Shape& shape) {
  if (b.dtype != dtype || b.array_shape.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (b.array_shape[i] != Extent(shape[i])) return false;
  return true;
}

int64_t elements(const ir::BlockMapping& b, const DimValues& dims) {
  int64_t n = 1;
  for (const Extent& e : b.array_shape) n *= e.eval(dims);
  return n;
}

}  // namespace

std::vector<Baseline> baselines(const ir::Kernel& k, const Target& target, const DimValues& dims) {
  std::vector<Baseline> all;
  const bool lanes_of_8 =
      target.can_require_subgroup_size && target.min_subgroup_size <= 8 && 8 <= target.max_subgroup_size;
  const bool groups_of_256 = target.max_workgroup_size >= 256;
  const size_t arrays = k.blocks.size();
  const auto is_f32 = [&](size_t i, const Shape& shape) { return is(k.blocks[i], DType::f32, shape); };
  const auto size = [&](size_t i, size_t dim) { return k.blocks[i].array_shape[dim].eval(dims); };
  const auto count = [&](size_t i) { return elements(k.blocks[i], dims); };
  const auto add_lanes = [&](Baseline b) {
    b.program.required_subgroup_size = 8;
    if (lanes_of_8) all.push_back(std::move(b));
  };

  if (starts_with(k.name, "matmul") && k.num_inputs == 2 && arrays == 3) {
    const bool square = is_f32(0, {1024, 1024}) && is_f32(1, {1024, 1024}) && is_f32(2, {1024, 1024});
    if (starts_with(k.name, "matmul_activation") && square) {
      add_lanes(baseline("matmul_lanes 16, gelu", matmul_lanes_16_gelu, k, {0, 1}, 64 * 16, 8));
      add_lanes(baseline("matmul_lanes 32, gelu", matmul_lanes_32_gelu, k, {0, 1}, 32 * 16, 8));
    } else if (square) {
      add_lanes(baseline("matmul_lanes 16", matmul_lanes_16, k, {0, 1}, 64 * 16, 8));
      add_lanes(baseline("matmul_lanes 32", matmul_lanes_32, k, {0, 1}, 32 * 16, 8));
      if (groups_of_256) all.push_back(baseline("matmul_tiled", matmul_tiled, k, {0, 1}, 8 * 8, 256));
      all.push_back(baseline("matmul_naive", matmul_naive, k, {0, 1}, 1024 * 1024 / 64, 64, {1024}));
    } else if (is_f32(0, {4, 1024, 1024}) && is_f32(1, {4, 1024, 1024}) && is_f32(2, {4, 1024, 1024})) {
      add_lanes(baseline("matmul_lanes 16", matmul_lanes_16, k, {0, 1}, 4 * 64 * 16, 8));
      add_lanes(baseline("matmul_lanes 32", matmul_lanes_32, k, {0, 1}, 4 * 32 * 16, 8));
    } else if (is_f32(0, {500, 960}) && is_f32(1, {960, 700}) && is_f32(2, {500, 700})) {
      add_lanes(baseline("matmul_lanes 16", matmul_lanes_16_500, k, {0, 1}, 32 * 11, 8));
      add_lanes(baseline("matmul_lanes 32", matmul_lanes_32_500, k, {0, 1}, 16 * 11, 8));
    }
  }
  if (starts_with(k.name, "add") && k.num_inputs == 2 && arrays == 3 && k.blocks[0].dtype == DType::f32 &&
      groups_of_256) {
    all.push_back(baseline("add", add, k, {0, 1}, cdiv(count(2), 256), 256, {count(2)}));
    all.push_back(baseline("copy x 3/2", copy, k, {0}, cdiv(count(2), 256), 256, {count(2)}));
    all.back().traffic = 1.5;
    all.back().same_answer = false;
  }
  if (starts_with(k.name, "iota") && k.num_inputs == 0 && arrays == 1 && k.blocks[0].dtype == DType::i32 &&
      groups_of_256)
    all.push_back(baseline("iota", iota, k, {}, cdiv(count(0), 256), 256, {count(0)}));
  if (starts_with(k.name, "softmax") && k.num_inputs == 1 && arrays == 2 && k.blocks[0].dtype == DType::f32 &&
      k.blocks[0].array_shape.size() == 2 && target.subgroup_arithmetic) {
    if (lanes_of_8) {
      add_lanes(baseline("softmax, 8 lanes", softmax_8, k, {0}, size(0, 0), 8, {size(0, 1)}));
    } else {
      all.push_back(baseline("softmax, 32 lanes", softmax_32, k, {0}, size(0, 0), 32, {size(0, 1)}));
      all.back().program.required_subgroup_size = 32;
    }
  }
  if (starts_with(k.name, "mandelbrot") && k.num_inputs == 0 && arrays == 1 && is_f32(0, {3, 480, 640}))
    all.push_back(baseline("mandelbrot", mandelbrot, k, {}, 640 * 480 / 64, 64));
  if (starts_with(k.name, "blur") && k.num_inputs == 2 && arrays == 3 && k.blocks[0].dtype == DType::f32 &&
      k.blocks[0].array_shape.size() == 3 && size(0, 0) == 3 && is_f32(1, {37}))
    all.push_back(
        baseline("blur", blur, k, {0, 1}, 3 * size(0, 1) * cdiv(size(0, 2), 64), 64, {size(0, 1), size(0, 2)}));
  return all;
}

double flops(const ir::Kernel& k, const DimValues& dims) {
  if (!starts_with(k.name, "matmul") || k.num_inputs < 2) return 0;
  const ir::BlockMapping& x = k.blocks[0];
  const ir::BlockMapping& o = k.blocks[static_cast<size_t>(k.num_inputs)];
  return 2.0 * static_cast<double>(elements(o, dims)) * static_cast<double>(x.array_shape.back().eval(dims));
}

}  // namespace tessera::bench
