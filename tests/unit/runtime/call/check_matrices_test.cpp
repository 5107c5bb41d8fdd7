#include "runtime/call/check_matrices.h"

#include <algorithm>

#include "codegen/compile.h"
#include "codegen/make_bundle.h"
#include "engine/base/number.h"
#include "engine/front.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/call/call.h"
#include "runtime/submit/context.h"
#include "tests/support/judge/judge.h"
#include "tests/unit/runtime/support.h"

namespace check_matrices_test {
using namespace tessera;
using namespace tessera::test;

namespace {

// The judge in place of a device.
std::vector<Array> judged(const Program& p, const std::vector<Array>& inputs) {
  std::vector<Array> arrays = inputs;
  for (size_t i = inputs.size(); i < p.args.size(); ++i) {
    Shape shape;
    for (const Extent& d : p.args[i].shape) shape.push_back(*d.value());
    arrays.emplace_back(shape, p.args[i].dtype);
  }
  judge::Options options;
  options.subgroup_size = 32;
  const judge::Result r = judge::run(p, arrays, {}, options);
  REQUIRE(r.reports.empty());
  REQUIRE_FALSE(r.unfinished);
  return r.outputs;
}

// The same, of which one element is off by one.
RunProgram off_by_one(size_t output, int64_t element) {
  return [=](const Program& p, const std::vector<Array>& inputs) {
    auto outputs = judged(p, inputs);
    Array& a = outputs[output];
    a.set_element_bits(element, reference::from_double(a.dtype(), a.at(element) + 1));
    return outputs;
  };
}

}  // namespace

TEST_CASE("check_matrices: a driver that multiplies rightly is found right, for every shape that code may use") {
  Target t = gpu_matrix_target();
  t.matrices.push_back({16, 8, 16, DType::f16, DType::f16, DType::f32});
  t.matrices.push_back({8, 8, 32, DType::i8, DType::i8, DType::i32});
  for (const MatrixShape& shape : t.matrices) {
    INFO(to_string(shape));
    int runs = 0;
    const auto run = [&](const Program& p, const std::vector<Array>& inputs) {
      ++runs;
      return judged(p, inputs);
    };
    CHECK(wrong_product(shape, t, run).value_or("right") == "right");
    CHECK(runs == 1);
  }
}

TEST_CASE("check_matrices: a wrong element of either product is found and named") {
  const Target t = gpu_matrix_target();
  const MatrixShape& shape = t.matrices.front();
  const auto plain = wrong_product(shape, t, off_by_one(0, 37)), turned = wrong_product(shape, t, off_by_one(1, 1023));
  REQUIRE(plain);
  REQUIRE(turned);
  CHECK(*plain == "element [1, 5] of a product is 32, not 31");
  CHECK(*turned == "element [31, 31] of a product is 28, not 27");
}

TEST_CASE("check_matrices: a driver that makes no pipeline is wrong too, in its own words") {
  const auto fails = [](const Program&, const std::vector<Array>&) -> std::vector<Array> {
    throw DeviceError("vkCreateComputePipelines: VK_ERROR_UNKNOWN");
  };
  const Target t = gpu_matrix_target();
  CHECK(wrong_product(t.matrices.front(), t, fails) == "vkCreateComputePipelines: VK_ERROR_UNKNOWN");
}

TEST_CASE("check_matrices: a shape that no code uses is not tried") {
  Target t = gpu_matrix_target();
  t.subgroup_size = t.min_subgroup_size = t.max_subgroup_size = 64;
  t.can_require_subgroup_size = false;  // matrices belong to whole subgroups
  const auto run = [](const Program&, const std::vector<Array>&) -> std::vector<Array> {
    FAIL("nothing is to be run");
    return {};
  };
  CHECK(wrong_product({16, 16, 16, DType::f16, DType::f16, DType::f32}, t, run) == std::nullopt);
}

TEST_CASE("check_matrices: code loses the shapes that are known to be wrong, and no others") {
  const Device device;
  const Target t = gpu_matrix_target();
  const PallasCall call =
      pallas_call([](Ref a, Ref b, Ref o) { o[all] = dot(a[all], b[all], {.preferred_element_type = f32}); },
                  {.out_shape = {{{64, 64}, f32}}});
  const ir::Kernel kernel = call.trace({{{64, 64}, f16}, {{64, 64}, f16}});
  const Program program = compile(kernel, t);
  const auto features = needs_of(program, t).features;
  REQUIRE(std::count(features.begin(), features.end(), "matrix 16x16x16 f16 f16 f32") == 1);
  auto& right = device.context()->matrices_right;
  right["16x16x16 f16 f16 f32"] = true;
  CHECK(without_wrong_matrices(device, program, t) == std::nullopt);
  right["16x16x16 f16 f16 f32"] = false;
  const auto rest = without_wrong_matrices(device, program, t);
  REQUIRE(rest);
  CHECK(rest->matrices.size() + 1 == t.matrices.size());
  CHECK(without_wrong_matrices(device, compile(kernel, *rest), *rest) == std::nullopt);
}

// Where the device has matrices: tests/vendors/run. Code for a CPU driver has none, so it is taken for a GPU.
TEST_CASE("check_matrices: a device's shapes are tried when code first uses them") {
  const Device device;
  Target t = device.target();
  if (t.matrices.empty()) return;
  t.kind = Target::Kind::gpu;
  for (const MatrixShape& s : t.matrices) {
    INFO(to_string(s));
    const PallasCall call =
        pallas_call([&](Ref a, Ref b, Ref o) { o[all] = dot(a[all], b[all], {.preferred_element_type = s.sum}); },
                    {.out_shape = {{{64, 64}, s.sum}}});
    const Program program = compile(call.trace({{{64, 64}, s.a}, {{64, 64}, s.b}}), t);
    CHECK(without_wrong_matrices(device, program, t) == std::nullopt);
    for (const std::string& f : needs_of(program, t).features)
      if (f.starts_with("matrix ")) CHECK(device.context()->matrices_right.at(f.substr(7)));
  }
  CHECK_FALSE(device.context()->matrices_right.empty());
}

}  // namespace check_matrices_test
