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
    d.cuStreamSynchronize(stream_);
    pool_.release(d);
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

void Context::require_alive(const std::string& what, Loc loc) const {
  if (!lost_.empty()) throw DeviceError(what + ": " + lost_, loc, "a new process can use the device");
}

void Context::wait_for_stream(const std::string& what, Loc loc) {
  const Status status = driver_->cuStreamSynchronize(stream_);
  const std::vector<std::string> running = std::exchange(running_, {});
  if (status == kSuccess) return;
  std::string kernels = running.empty() ? what : "";
  for (const std::string& k : running) kernels += (kernels.empty() ? "" : ", ") + k;
  if (running.size() > 1) kernels = "one of " + kernels;
  lost_ = name() + " is lost since " + kernels + " failed: " + driver_->text(status);
  driver_->check(status, "cuStreamSynchronize", running.empty() ? what : kernels, loc,
                 name() + " is lost to this process; a new process can use it");
}

void Context::wait() {
  const std::lock_guard lock(mutex_);
  require_alive("wait", {});
  const Current current(*driver_, handle_);
  wait_for_stream("wait", {});
}
void Context::finish() noexcept {
  try {
    wait();
  } catch (const Error&) {  // whoever waits next is told
  }
}

void Context::upload(Address to, const Array& from, const std::string& what) {
  if (from.nbytes() == 0) return;
  const std::lock_guard lock(mutex_);
  require_alive(what, {});
  const Current current(*driver_, handle_);
  driver_->check(driver_->cuMemcpyHtoDAsync_v2(to, from.bytes(), static_cast<size_t>(from.nbytes()), stream_),
                 "cuMemcpyHtoDAsync_v2", what);
  wait_for_stream(what, {});
}
void Context::download(Array& to, Address from, const std::string& what) {
  if (to.nbytes() == 0) return;
  const std::lock_guard lock(mutex_);
  require_alive(what, {});
  const Current current(*driver_, handle_);
  driver_->check(driver_->cuMemcpyDtoHAsync_v2(to.bytes(), from, static_cast<size_t>(to.nbytes()), stream_),
                 "cuMemcpyDtoHAsync_v2", what);
  wait_for_stream(what, {});
}

std::shared_ptr<Block> Context::allocate(int64_t bytes, const std::string& what) {
  const std::lock_guard lock(mutex_);
  require_alive(what, {});
  return allocate_in_turn(bytes, what, {});
}
std::shared_ptr<Block> Context::allocate_in_turn(int64_t bytes, const std::string& what, Loc loc) {
  const Driver& d = *driver_;
  const auto size = static_cast<size_t>(bytes + 3) / 4 * 4;
  Address address = 0;
  if (!pool_.take(size, address)) {
    const Current current(d, handle_);
    Status status = d.cuMemAlloc_v2(&address, size);
    if (status == kOutOfMemory) {  // but for what nothing uses
      d.cuStreamSynchronize(stream_);
      pool_.release(d);
      status = d.cuMemAlloc_v2(&address, size);
    }
    size_t available = 0, total = 0;
    if (status == kOutOfMemory && d.cuMemGetInfo_v2(&available, &total) == kSuccess)
      throw DeviceError(what + ": takes " + std::to_string(size) + " bytes, but of the memory of " + name() + " " +
                            std::to_string(available) + " of " + std::to_string(total) + " bytes are free",
                        loc);
    d.check(status, "cuMemAlloc_v2", what, loc);
  }
  return std::make_shared<Block>(shared_from_this(), address, size);
}
void Context::give_back(Address address, size_t bytes) noexcept { pool_.put(address, bytes); }

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
