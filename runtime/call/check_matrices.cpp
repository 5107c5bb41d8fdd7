#include "runtime/call/check_matrices.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <sstream>

#include "codegen/compile.h"
#include "codegen/make_bundle.h"
#include "engine/base/error.h"
#include "engine/base/number.h"
#include "engine/call/pallas_call.h"
#include "engine/front/ops.h"
#include "engine/front/ref.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/compiled_kernel.h"
#include "runtime/submit/context.h"

namespace tessera {
namespace {

// The product's outputs: a b + c, and the same of a and b transposed.
ir::Kernel product(const MatrixShape& s) {
  const auto several = [](int64_t n) { return n * std::max<int64_t>(2, 32 / n); };
  const int64_t m = several(s.m), n = several(s.n), k = several(s.k);
  const auto body = [=](Ref a, Ref b, Ref at, Ref bt, Ref c, Ref plain, Ref transposed) {
    plain[all] = dot(a[all], b[all], {.preferred_element_type = s.sum}) + c[all];
    transposed[all] =
        dot(at[all], bt[all], {.lhs_contract = {0}, .rhs_contract = {1}, .preferred_element_type = s.sum}) + c[all];
  };
  const PallasCall call =
      pallas_call(body, {.out_shape = {{{m, n}, s.sum}, {{m, n}, s.sum}}, .name = "check_matrices"});
  return call.trace({{{m, k}, s.a}, {{k, n}, s.b}, {{k, m}, s.a}, {{n, k}, s.b}, {{m, n}, s.sum}});
}

// Pseudo-random whole numbers from -3 to 3, of unsigned dtypes 0 to 6: f8e5m2 holds them exactly, and f32 all sums of
// their products.
Array numbers(Shape shape, DType dtype, uint32_t seed) {
  Array values(std::move(shape), dtype);
  uint32_t state = seed;
  for (int64_t i = 0; i < values.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const double v = static_cast<double>((state >> 16) % 7) - (is_unsigned_int(dtype) ? 0 : 3);
    values.set_element_bits(i, reference::from_double(dtype, v));
  }
  return values;
}

bool uses(const Needs& needs, const MatrixShape& shape) {
  return std::find(needs.features.begin(), needs.features.end(), "matrix " + to_string(shape)) != needs.features.end();
}

// Whole numbers, unless the device is wrong.
std::string number(const Array& a, int64_t i) {
  std::ostringstream out;
  out << a.at(i);
  return out.str();
}

std::optional<std::string> difference(const Array& got, const Array& want) {
  const int64_t columns = want.shape()[1];
  for (int64_t i = 0; i < want.size(); ++i)
    if (got.element_bits(i) != want.element_bits(i))
      return "element [" + std::to_string(i / columns) + ", " + std::to_string(i % columns) + "] of a product is " +
             number(got, i) + ", not " + number(want, i);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> wrong_product(const MatrixShape& shape, Target target, const RunProgram& run) {
  target.matrices = {shape};
  try {
    const ir::Kernel kernel = product(shape);
    const Program program = compile(kernel, target);
    if (!uses(needs_of(program, target), shape)) return std::nullopt;
    std::vector<Array> inputs;
    for (int i = 0; i < kernel.num_inputs; ++i)
      inputs.push_back(numbers(bind_shape(kernel, i, {}), kernel.blocks[static_cast<size_t>(i)].dtype,
                               static_cast<uint32_t>(i) + 1));
    const auto got = run(program, inputs), want = interpret(kernel, inputs);
    for (size_t i = 0; i < want.size(); ++i)
      if (auto wrong = difference(got[i], want[i])) return wrong;
    return std::nullopt;
  } catch (const Error& e) {  // the driver makes no pipeline of it, for one
    return std::string(e.what());
  }
}

std::optional<Target> without_wrong_matrices(const Device& device, const Program& program, const Target& target) {
  if (target.matrices.empty()) return std::nullopt;
  vulkan::Context& context = *device.context();
  const auto run = [&](const Program& p, const std::vector<Array>& inputs) {
    return CompiledKernel(device, std::make_shared<const Program>(p)).run(inputs);
  };
  Target rest = target;
  const Needs needs = needs_of(program, target);
  std::lock_guard lock(context.matrices_mutex);
  std::erase_if(rest.matrices, [&](const MatrixShape& shape) {
    if (!uses(needs, shape)) return false;
    const auto [it, fresh] = context.matrices_right.try_emplace(to_string(shape), true);
    if (!fresh) return !it->second;
    const auto wrong = wrong_product(shape, target, run);
    if (device.lost()) {  // nothing is known of the shape
      context.matrices_right.erase(it);
      throw DeviceError(wrong.value_or(device.info().name + " was lost"));
    }
    if (!wrong) return false;
    it->second = false;
    log(Severity::warning,
        "tessera: " + device.info().name + ": matrices " + to_string(shape) + " are not used, for the driver (" +
            device.info().driver + ") gets them wrong: " + *wrong,
        context.log_callback());
    return true;
  });
  return rest.matrices.size() == target.matrices.size() ? std::nullopt : std::optional(std::move(rest));
}

}  // namespace tessera
