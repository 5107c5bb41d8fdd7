#include "tests/kernels/support.h"

#include <algorithm>
#include <functional>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/ir/reference.h"

namespace tessera::test {
namespace {

uint32_t hash(uint32_t seed, int64_t i) {
  uint64_t x = (static_cast<uint64_t>(seed) << 32) ^ static_cast<uint64_t>(i) ^ 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 32);
}

double roundings(DType t) { return is_narrow_float(t) ? std::ldexp(1.0, -float_format(t).mantissa - 1) : 0; }

/// What the kernel's output blocks bind to.
std::vector<kernels::Type> output_types(const ir::Kernel& k, const std::vector<Array>& arguments) {
  std::vector<std::pair<DType, Shape>> inputs;
  for (const Array& a : arguments) inputs.emplace_back(a.dtype(), a.shape());
  const DimValues dims = bind_dims(k, inputs);
  std::vector<kernels::Type> types;
  for (size_t i = arguments.size(); i < k.blocks.size(); ++i) {
    Shape shape;
    for (const Extent& e : k.blocks[i].array_shape) shape.push_back(e.eval(dims));
    types.emplace_back(shape, k.blocks[i].dtype);
  }
  return types;
}

void compare(const std::string& where, const std::vector<Array>& got, const std::vector<kernels::Type>& types,
             const std::vector<Doubles>& expected, const Check& how) {
  CAPTURE(where);
  REQUIRE(got.size() == types.size());
  REQUIRE(got.size() == expected.size());
  for (size_t o = 0; o < got.size(); ++o) {
    CAPTURE(o);
    REQUIRE(got[o].shape() == types[o].shape);
    REQUIRE(got[o].dtype() == types[o].dtype);
    REQUIRE(got[o].size() == static_cast<int64_t>(expected[o].size()));
    int64_t wrong = 0, first = -1;
    double worst = 0;
    for (int64_t i = 0; i < got[o].size(); ++i) {
      const double e = expected[o][static_cast<size_t>(i)], g = got[o].at(i);
      if (std::isnan(e) || e == g) continue;
      const double least =
          is_narrow_float(got[o].dtype())
              ? std::ldexp(1.0, float_format(got[o].dtype()).least_exponent - float_format(got[o].dtype()).mantissa)
              : 0;
      const double allowed = how.absolute + (how.relative + roundings(got[o].dtype())) * std::fabs(e) + least;
      const double off = std::fabs(g - e) / allowed;
      if (off <= 1) continue;  // false for NaN
      if (wrong++ == 0) first = i;
      worst = std::max(worst, std::isnan(off) ? INFINITY : off);
    }
    CHECK_MESSAGE(wrong == 0, "output ", o, " ", to_string(got[o].shape()), ": ", wrong,
                  " elements differ, first element ", first, ": ", got[o].at(std::max<int64_t>(first, 0)),
                  ", expected ", expected[o][static_cast<size_t>(std::max<int64_t>(first, 0))], "; worst ", worst,
                  " times what is allowed");
  }
}

}  // namespace

const std::optional<Device>& device() {
  static const std::optional<Device> d = []() -> std::optional<Device> {
    try {
      DeviceOptions options;
      options.validation = true;
      return Device(options);
    } catch (const DeviceError& e) {
      MESSAGE("not run on a device: ", e.what());
      return std::nullopt;
    }
  }();
  return d;
}

std::vector<Array> on_lanes(const ir::Kernel& k, const std::vector<Array>& arguments, bool general) {
  const Target target = gpu_target();
  ir::Kernel lane;
  CompileOptions options;
  options.general = general;
  options.dump = [&](std::string_view, const ir::Kernel& step, bool) {
    if (step.level == ir::Level::lane) lane = step;
  };
  const Program program = compile(k, target, options);
  std::vector<Array> arrays = arguments;
  std::vector<std::pair<DType, Shape>> inputs;
  for (const Array& a : arguments) inputs.emplace_back(a.dtype(), a.shape());
  for (const kernels::Type& t : output_types(k, arguments)) {
    const int from = k.blocks[arrays.size()].alias;
    arrays.push_back(from >= 0 ? arguments[static_cast<size_t>(from)] : Array(t.shape, t.dtype));
  }
  lane::RunOptions run;
  run.subgroup_size = target.subgroup_size;
  run.seed = 1;
  const lane::RunResult r = lane::run(lane, arrays, k.num_inputs, bind_dims(program, inputs), run);
  std::string reports;
  for (const std::string& s : r.reports) reports += s + "\n";
  CHECK_MESSAGE(reports.empty(), k.name, ": ", reports);
  return r.outputs;
}

Array random(const Shape& shape, DType dtype, uint32_t seed, double scale, double offset) {
  Array a(shape, dtype);
  for (int64_t i = 0; i < a.size(); ++i)
    a.set_element_bits(
        i, reference::from_double(dtype, offset + scale * (std::ldexp(static_cast<double>(hash(seed, i)), -31) - 1)));
  return a;
}

Array random_integers(const Shape& shape, DType dtype, uint32_t seed, int64_t low, int64_t high) {
  Array a(shape, dtype);
  for (int64_t i = 0; i < a.size(); ++i)
    a.set_element_bits(
        i, reference::from_double(
               dtype,
               static_cast<double>(low + static_cast<int64_t>(hash(seed, i) % static_cast<uint64_t>(high - low + 1)))));
  return a;
}

Array integers(const std::vector<int32_t>& values) { return Array({static_cast<int64_t>(values.size())}, values); }

Doubles doubles(const Array& a) {
  Doubles d(static_cast<size_t>(a.size()));
  for (int64_t i = 0; i < a.size(); ++i) d[static_cast<size_t>(i)] = a.at(i);
  return d;
}

void check(const PallasCall& call, const std::vector<Array>& arguments, const std::vector<Doubles>& expected,
           Check how) {
  const ir::Kernel& k = call.trace_for(arguments);
  const std::vector<kernels::Type> types = output_types(k, arguments);
  compare("interpreter", interpret(k, arguments, {.races = true}), types, expected, how);
  for (const bool general : {false, true}) {
    if (general && !how.general) continue;
    const std::string form = general ? "general form" : "fast form";
    if (how.gpu) compare("a GPU's code, " + form, on_lanes(k, arguments, general), types, expected, how);
    if (how.device && device()) {
      CompileOptions options;
      options.general = general;
      compare("device, " + form, load(*device(), k, options).run(arguments), types, expected, how);
      for (const std::string& message : device()->validation_messages()) FAIL_CHECK(message);
    }
  }
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace tessera::test
