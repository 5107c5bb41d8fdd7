#include "runtime/call/call.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/context.h"
#include "runtime/launch.h"

namespace tessera {

namespace {
/// What TESSERA_DUMP asks for: NAME.tir in that folder, then NAME.2.tir and so on for further kernels of the name.
void dump_to_folder(const ir::Kernel& kernel) {
  const char* folder = std::getenv("TESSERA_DUMP");
  if (!folder || !*folder) return;
  static std::mutex mutex;
  static std::map<std::string, int> count;
  std::lock_guard lock(mutex);
  const int n = ++count[kernel.name];
  const std::string path = std::string(folder) + "/" + kernel.name + (n > 1 ? "." + std::to_string(n) : "") + ".tir";
  std::ofstream out(path, std::ios::binary);
  out << ir::print(kernel);
  if (!out.flush()) throw Error("TESSERA_DUMP: cannot write " + path);
}
}  // namespace

std::vector<DeviceArray> CompiledKernel::operator()(const std::vector<DeviceArray>& inputs, const DimValues& dims) const {
  return launch(device_, *program_, inputs, dims);
}

std::vector<Array> CompiledKernel::run(const std::vector<Array>& inputs, const DimValues& dims) const {
  std::vector<std::pair<DType, Shape>> shapes;
  for (const Array& a : inputs) shapes.emplace_back(a.dtype(), a.shape());
  bind_dims(*program_, shapes, dims);  // before anything is uploaded
  std::vector<DeviceArray> arguments;
  for (const Array& a : inputs) arguments.emplace_back(device_, a);
  std::vector<Array> outputs;
  for (const DeviceArray& o : (*this)(arguments, dims)) outputs.push_back(o.download());
  return outputs;
}

CompiledKernel load(const Device& device, const ir::Kernel& kernel, const CompileOptions& options) {
  if (options.dump) return {device, std::make_shared<const Program>(compile(kernel, device.target(), options))};
  vulkan::Context& context = *device.context();
  // The text holds all that compilation sees; with the source lines, since errors name them. The target is the device's own.
  const std::string key = (options.general ? "general\n" : "fast\n") + ir::print(kernel, true);
  {
    std::lock_guard lock(context.programs_mutex);
    if (auto it = context.programs.find(key); it != context.programs.end()) return {device, it->second};
  }
  auto program = std::make_shared<const Program>(compile(kernel, device.target(), options));
  std::lock_guard lock(context.programs_mutex);
  const auto [kept, is_new] = context.programs.emplace(key, std::move(program));  // whoever came first, if two compiled it at once
  if (is_new) dump_to_folder(kernel);
  return {device, kept->second};
}

std::vector<Array> run_on_default_device(const ir::Kernel& kernel, const std::vector<Array>& inputs) {
  const char* device = std::getenv("TESSERA_DEVICE");
  if (device && std::string_view(device) == "interpreter") return interpret(kernel, inputs);
  return load(default_device(), kernel).run(inputs);
}

}  // namespace tessera
