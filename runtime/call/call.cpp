#include "runtime/call/call.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <numeric>
#include <sstream>

#include "codegen/spirv/emit.h"
#include "engine/base/write_file.h"
#include "engine/front/ops.h"
#include "engine/front/rearrange.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/call/check_matrices.h"
#include "runtime/call/disk_cache.h"
#include "runtime/call/tuning.h"
#include "runtime/launch.h"
#include "runtime/nvidia/context.h"
#include "runtime/record.h"
#include "runtime/submit/cache_file.h"
#include "runtime/submit/context.h"

namespace tessera {

namespace {

/// TESSERA_DUMP: the kernel as FOLDER/NAME.tir, whether it then compiles or not.
void dump(const char* folder, const ir::Kernel& kernel) {
  const std::string file = std::string(folder) + "/" + file_stem(kernel.name) + ".tir";
  if (!put_file(file, {ir::print(kernel, true)}))
    throw SpecError(kernel.name + ": TESSERA_DUMP: cannot write " + file, kernel.loc);
}

/// debug: compiles as compile() does, and prints what it made.
Program compile_aloud(const ir::Kernel& kernel, const Target& target, CompileOptions options) {
  ir::Kernel lanes;
  options.dump = [&](std::string_view, const ir::Kernel& k, bool) {
    if (k.level == ir::Level::lane) lanes = k;
  };
  Program program = compile(kernel, target, options);
  std::ostringstream out;  // in one piece, since several threads may compile
  out << "The lane-level kernel for pallas_call " << kernel.description() << " on " << target.name << ":\n"
      << ir::print(lanes);
  if (program.ptx.empty())
    out << "The SPIR-V for pallas_call " << kernel.description() << ":\n" << spirv::disassemble(program.spirv);
  else out << "The PTX for pallas_call " << kernel.description() << ":\n" << program.ptx;
  std::cout << out.str() << std::flush;
  return program;
}

std::atomic<uint64_t> compiled{0}, from_disk{0};

/// Whether a call that is bound for the kernel fits the Program: the file under its key may be of another kernel.
bool is_of(const Program& p, const ir::Kernel& k) {
  const auto fits = [&](const ProgramArg& a, const ir::BlockMapping& b) {
    return a.dtype == b.dtype && a.shape == b.array_shape && a.is_output == (&b - k.blocks.data() >= k.num_inputs) &&
           a.alias == b.alias && a.by_value == b.is_by_value();
  };
  return p.name == k.name && p.grid.size() == k.grid.size() &&
         std::equal(p.args.begin(), p.args.end(), k.blocks.begin(), k.blocks.end(), fits);
}

/// From TESSERA_CACHE, or compiled and put there. `text` is the options and the kernel's text.
Program compile_or_read(const ir::Kernel& kernel, const Target& target, const CompileOptions& options,
                        const std::string& text) {
  // debug prints what the compiler makes, so it compiles; debug info holds the text of files, which may have changed
  // since.
  const auto folder = kernel.call.debug || options.debug_info ? std::nullopt : cache_file::folder();
  const std::string key = folder ? disk_cache::key(target, text) : "";
  if (folder)
    if (auto program = disk_cache::read(*folder, key)) {
      if (is_of(*program, kernel)) {
        ++from_disk;
        return std::move(*program);
      }
      cache_file::say_broken(cache_file::path(*folder, "program", key));
    }
  Program program = kernel.call.debug ? compile_aloud(kernel, target, options) : compile(kernel, target, options);
  ++compiled;
  if (folder) disk_cache::write(*folder, key, program);
  return program;
}

}  // namespace

CompileCounts compile_counts() { return {compiled, from_disk}; }

namespace {

/// The context keeps it. `kind`: what beside kernel and device decides what is made. `usable`: the Program, or the next
/// one that the device can use in its place.
template <class Context, class Usable>
std::shared_ptr<const Program> program_for(Context& context, const ir::Kernel& kernel, const Target& target,
                                           CompileOptions options, std::string kind, Usable usable) {
  if (options.debug_info) kind += " debug_info";
  options.strict |= strict_by_environment();
  if (options.strict) kind += " strict";
  // The text holds all that compilation sees; with the source lines, since errors name them. The target is the device's
  // own.
  const std::string key = kind + (kernel.call.debug ? " debug\n" : "\n") + ir::print(kernel, true);
  const auto found = [&]() -> std::shared_ptr<const Program> {
    std::lock_guard lock(context.programs_mutex);
    const auto it = context.programs.find(key);
    return it != context.programs.end() ? it->second : nullptr;
  }();
  if (found && options.lint != Lint::error) return found;
  check_lints(kernel, options);
  options.lint = Lint::off;
  if (found) return found;
  if (const char* folder = std::getenv("TESSERA_DUMP"); folder && *folder) dump(folder, kernel);
  const auto make = [&](const Target& t) {
    return std::make_shared<const Program>(compile_or_read(kernel, t, options, key));
  };
  std::shared_ptr<const Program> program = usable(make(target), make);
  std::lock_guard lock(context.programs_mutex);
  return context.programs.emplace(key, std::move(program))
      .first->second;  // whoever came first, if two compiled it at once
}

CompiledKernel load(const Device& device, const ir::Kernel& kernel, Target target, CompileOptions options,
                    std::string kind) {
  vulkan::Context& context = *device.context();
  if (!options.general) target.choices = tuned_choices(device, kernel);
  if (target.choices != ScheduleChoices{}) kind += " " + to_string(target.choices);
  options.debug_info |= context.debug_info();
  const auto usable = [&](std::shared_ptr<const Program> program, const auto& make) {
    for (std::optional<Target> without = without_wrong_matrices(device, *program, target); without;
         without = without_wrong_matrices(device, *program, *without))
      program = make(*without);
    return program;
  };
  return {device, program_for(context, kernel, target, options, kind, usable)};
}

}  // namespace

std::shared_ptr<const Program> program_for(const CudaDevice& device, const ir::Kernel& kernel,
                                           const CompileOptions& options) {
  return program_for(*device.context(), kernel, device.target(), options, options.general ? "general" : "fast",
                     [](std::shared_ptr<const Program> p, const auto&) { return p; });
}

std::vector<Array> run_on(const CudaDevice& device, const ir::Kernel& kernel, const std::vector<Array>& inputs,
                          const DimValues& dims, const CompileOptions& options) {
  return device.run(*program_for(device, kernel, options), inputs, dims);
}

bool strict_by_environment() {
  const char* v = std::getenv("TESSERA_STRICT");
  return v && std::string_view(v) == "1";
}

CompiledKernel load(const Device& device, const ir::Kernel& kernel, const CompileOptions& options) {
  if (options.dump) {
    CompileOptions own = options;
    own.strict |= strict_by_environment();
    own.debug_info |= device.context()->debug_info();
    Target target = device.target();
    if (!own.general) target.choices = tuned_choices(device, kernel);
    return {device, std::make_shared<const Program>(compile(kernel, target, own))};
  }
  return load(device, kernel, device.target(), options, options.general ? "general" : "fast");
}

CompiledKernel load_for_table(const Device& device, const ir::Kernel& kernel) {
  Target target = device.target();
  target.push_constant_bytes = 0;
  return load(device, kernel, target, {}, "fast table");
}

namespace {
/// x as `how` says, by a copy on the device.
DeviceArray spread(const Device& device, const PallasCall& call, const DeviceArray& x, const PallasCall::Spread& how) {
  std::vector<int64_t> order(how.dims.size());  // of x's dims, as they follow each other in the result
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return how.dims[static_cast<size_t>(a)] < how.dims[static_cast<size_t>(b)]; });
  Shape with_ones(how.shape.size(), 1);
  for (size_t d = 0; d < how.dims.size(); ++d) with_ones[static_cast<size_t>(how.dims[d])] = x.shape()[d];
  const auto copy = pallas_call(
      [=](Ref from, Ref to) { to[all] = broadcast_to(reshape(transpose(from[all], order), with_ones), how.shape); },
      {.out_shape = {{{how.shape.begin(), how.shape.end()}, x.dtype()}}, .name = call.name() + "_spread"}, call.loc());
  return launch(device, copy, {x.donated() ? x.share() : x})[0];
}
}  // namespace

std::vector<DeviceArray> launch(const Device& device, const PallasCall& call, const GridSizes& grid,
                                const std::vector<DeviceArray>& arguments) {
  std::vector<ShapeDtype> types;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const DeviceArray& a = arguments[i];
    ShapeDtype t;
    if (a.number()) {  // of the argument's dtype, if it is by value: else trace() says what is wrong
      t.dtype = call.array(i, *a.number()).dtype();
      types.push_back(std::move(t));
      continue;
    }
    for (int64_t d : a.shape()) t.shape.emplace_back(d);
    t.dtype = a.dtype();
    types.push_back(std::move(t));
  }
  const ir::Kernel& kernel = call.in_shape() ? call.trace() : call.trace(types);
  const CompiledKernel ready = load(device, kernel);
  std::vector<DeviceArray> own = arguments;
  const auto spreads = call.spreads(types);
  for (size_t i = 0; i < spreads.size(); ++i) {
    if (!spreads[i]) continue;
    own[i] = spread(device, call, arguments[i], *spreads[i]);
    const auto& args = ready.program().args;
    // the copy has no other owner
    if (args[i].written ||
        std::any_of(args.begin(), args.end(), [&](const ProgramArg& a) { return a.alias == static_cast<int>(i); }))
      own[i] = donate(own[i]);
  }
  std::vector<DeviceArray> made = ready(own, call.dims(kernel, grid));
  for (size_t i = 0; i < spreads.size(); ++i)
    if (spreads[i] && arguments[i].donated()) arguments[i].give_to(call.name());
  return made;
}

std::vector<DeviceArray> launch(const Device& device, const PallasCall& call,
                                const std::vector<DeviceArray>& arguments) {
  return launch(device, call, GridSizes{}, arguments);
}

std::vector<Array> run_on_default_device(const ir::Kernel& kernel, const std::vector<Array>& inputs,
                                         const DimValues& dims) {
  if (interpreter_selected()) return interpret(kernel, inputs, {.dims = dims});
  if (cuda_selected()) return run_on(default_cuda_device(), kernel, inputs, dims);
  return load(default_device(), kernel).run(inputs, dims);
}

}  // namespace tessera
