#include "runtime/nvidia/context.h"

#include <array>
#include <utility>

namespace tessera::cuda {

Current::Current(const Driver& driver, ContextHandle* context) : driver_(driver) {
  driver.check(driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent_v2", "");
}
Current::~Current() {
  ContextHandle* popped = nullptr;
  driver_.cuCtxPopCurrent_v2(&popped);
}

Context::Context(std::shared_ptr<const Driver> driver, CudaDeviceInfo info, const CudaOptions& options)
    : driver_(std::move(driver)), info_(std::move(info)), options_(options) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (options.print_bytes < 0 || options.print_bytes > kMost)
    throw SpecError("CudaOptions::print_bytes is " + std::to_string(options.print_bytes) + ", not between 0 and " +
                    std::to_string(kMost));
  const Driver& d = *driver_;
  d.check(d.cuDeviceGet(&ordinal_, info_.index), "cuDeviceGet", name());
  d.check(d.cuDevicePrimaryCtxRetain(&handle_, ordinal_), "cuDevicePrimaryCtxRetain", name());
  try {
    const Current current(d, handle_);
    d.check(d.cuStreamCreate(&stream_, kStreamNonBlocking), "cuStreamCreate", name());
  } catch (...) {
    d.cuDevicePrimaryCtxRelease_v2(ordinal_);
    throw;
  }
}

Context::~Context() {
  const Driver& d = *driver_;
  if (d.cuCtxPushCurrent_v2(handle_) == kSuccess) {
    for (const auto& [text, module] : modules_) d.cuModuleUnload(module.handle);
    d.cuStreamDestroy_v2(stream_);
    ContextHandle* popped = nullptr;
    d.cuCtxPopCurrent_v2(&popped);
  }
  d.cuDevicePrimaryCtxRelease_v2(ordinal_);
}

bool Context::lost() {
  const std::lock_guard lock(mutex_);
  return !lost_.empty();
}

FunctionHandle* Context::function(const Program& p) {
  if (p.ptx.empty())
    throw DeviceError(p.name + ": its code is not PTX, and " + name() + " runs no other", p.loc,
                      "compile it for CudaDevice::target()");
  if (const auto it = modules_.find(p.ptx); it != modules_.end()) return it->second.function;
  if (p.workgroup_size > info_.target.max_workgroup_size || p.shared_bytes > info_.target.shared_bytes)
    throw CompileError(p.name + ": takes " + std::to_string(p.workgroup_size) + " threads and " +
                           std::to_string(p.shared_bytes) + " bytes of shared memory in a block, but " + name() +
                           " has at most " + std::to_string(info_.target.max_workgroup_size) + " and " +
                           std::to_string(info_.target.shared_bytes),
                       p.loc, "compile it for CudaDevice::target()");
  const Driver& d = *driver_;
  std::array<char, 8192> log{};
  std::array<JitOption, 2> options{JitOption::error_log, JitOption::error_log_bytes};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  Module m;
  const Status status = d.cuModuleLoadDataEx(&m.handle, p.ptx.c_str(), static_cast<unsigned>(options.size()),
                                             options.data(), values.data());
  log.back() = 0;
  const std::string said = log.data();
  d.check(status, "cuModuleLoadDataEx", p.name, p.loc,
          status == kUnsupportedPtx ? "install a newer driver of NVIDIA"
          : said.empty()            ? ""
                                    : "it says: " + said);
  try {
    d.check(d.cuModuleGetFunction(&m.function, m.handle, "main"), "cuModuleGetFunction", p.name, p.loc);
    if (p.shared_bytes > kMostStaticShared)
      d.check(d.cuFuncSetAttribute(m.function, FunctionAttribute::max_dynamic_shared_bytes,
                                   static_cast<int>(p.shared_bytes)),
              "cuFuncSetAttribute", p.name, p.loc);
  } catch (...) {
    d.cuModuleUnload(m.handle);
    throw;
  }
  return modules_.emplace(p.ptx, m).first->second.function;
}

}  // namespace tessera::cuda
