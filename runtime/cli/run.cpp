#include <charconv>
#include <filesystem>
#include <iostream>
#include <random>
#include <string_view>

#include "engine/base/npy.h"
#include "engine/base/scalar.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/cli/commands.h"

namespace tessera::cli {
namespace {
InterpretOptions interpret_options(const RunArguments& a, const ir::Kernel& k, const DimValues& dims) {
  InterpretOptions o{.dims = dims};
  o.uninitialised = a.uninitialised == "nan"    ? Uninitialised::nan
                    : a.uninitialised == "zero" ? Uninitialised::zero
                                                : Uninitialised::pattern;
  o.out_of_bounds = a.out_of_bounds == "raise" ? OutOfBounds::raise : OutOfBounds::clamp;
  o.races = a.races;
  o.warn = [](const std::string& what) { std::cerr << "warning: " << what << "\n"; };
  if (a.races) o.parallel = parallel_axes(k);
  if (a.seed.empty()) return o;
  uint64_t seed = 0;
  const auto [rest, error] = std::from_chars(a.seed.data(), a.seed.data() + a.seed.size(), seed);
  if (a.seed == "random") seed = std::random_device()();
  else if (rest != a.seed.data() + a.seed.size() || error != std::errc())
    throw UsageError("--seed " + a.seed + ": expected a number or random");
  std::cerr << "seed: " << seed << "\n";
  o.seed = seed;
  return o;
}

/// On a Vulkan device, or an NVIDIA GPU through its own driver.
std::vector<Array> run_on_device(const RunArguments& a, const ir::Kernel& k, const std::vector<Array>& arrays,
                                 const DimValues& dims) {
  CompileOptions compile_options;
  compile_options.general = a.general;
  if (const std::optional<int> n = cuda_selected(a.device)) {
    if (timed(a))
      throw UsageError("--trace and --repeat time Vulkan's devices, and cuda:" + std::to_string(*n) + " is none");
    compile_options.debug_info = a.debug_info;
    return run_on(CudaDevice(*n), k, arrays, dims, compile_options);
  }
  DeviceOptions options;
  options.select = a.device;
  options.debug_info = a.debug_info;
  const Device device(options);
  if (!timed(a)) return load(device, k, compile_options).run(arrays, dims);
  if (a.general)
    throw UsageError("--trace and --repeat time what a graph would run, and --codegen general is of kernels alone");
  return run_timed(device, graph_of(k, arrays, dims), arrays, a);
}
}  // namespace

Lint lint_named(const std::string& name, Lint otherwise) {
  return name.empty() ? lint_of_environment().value_or(otherwise) : lint_from_name(name).value();
}

namespace {
/// A file, or for an argument by value the number itself.
Array argument(const ir::Kernel& k, size_t i, const std::string& text) {
  const ir::BlockMapping& b = k.blocks[i];
  const auto bits = b.is_by_value() ? ir::parse_literal(b.dtype, text) : std::nullopt;
  if (b.is_by_value() && !bits && !std::filesystem::exists(text))
    throw UsageError(k.name + ": " + b.origin + " is a number by value, but --in names " + text +
                     ", which is neither one of " + std::string(name(b.dtype)) + " nor a file");
  return bits ? Scalar(b.dtype, *bits).array(b.dtype) : read_npy(text, b.dtype);
}
}  // namespace

void run(const RunArguments& a) {
  if (std::filesystem::is_directory(a.file)) return run_graph(a);
  require_device_for_times(a);
  const DimValues dims = parse_dims(a.dims);
  const ir::Kernel k = read_kernel(a.file);
  auto count = [](size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); };
  const auto inputs = static_cast<size_t>(k.num_inputs), outputs = static_cast<size_t>(k.num_outputs());
  if (a.in.size() != inputs)
    throw UsageError(k.name + " takes " + count(inputs, "input") + " but --in names " + std::to_string(a.in.size()));
  if (!a.out.empty() && a.out.size() != outputs)
    throw UsageError(k.name + " has " + count(outputs, "output") + " but --out names " + std::to_string(a.out.size()));

  std::vector<Array> arrays;
  for (size_t i = 0; i < inputs; ++i) arrays.push_back(argument(k, i, a.in[i]));
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& x : arrays) types.emplace_back(x.dtype(), x.shape());
  check_lints(k, bind_dims(k, types, dims), lint_named(a.lint, Lint::warn));
  std::vector<Array> results;
  if (interpreter_selected(a.device)) {
    results = interpret(k, arrays, interpret_options(a, k, dims));
  } else {
    if (a.races || !a.seed.empty() || a.uninitialised != "nan" || a.out_of_bounds != "clamp")
      throw UsageError("--races, --seed, --uninitialised and --out-of-bounds are the interpreter's", {},
                       "add --device interpreter");
    results = run_on_device(a, k, arrays, dims);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (a.out.empty()) std::cout << k.blocks[inputs + i].origin << " = " << results[i] << "\n";
    else write_npy(a.out[i], results[i]);
  }
}

}  // namespace tessera::cli
