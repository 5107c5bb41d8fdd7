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
    const Status status = d.cuStreamCreate(&stream_, kStreamNonBlocking);
    d.check(
        status, "cuStreamCreate", name(), {},
        ends_context(status) ? "a kernel has ended what the process had of the device: a new process can use it" : "");
  } catch (...) {
    d.cuDevicePrimaryCtxRelease_v2(ordinal_);
    throw;
  }
}

Context::~Context() {
  if (!handle_) return;  // let go
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

void Context::let_go() noexcept {
  const std::lock_guard lock(mutex_);
  if (lost_.empty() || !handle_) return;
  const Driver& d = *driver_;
  if (d.cuCtxPushCurrent_v2(handle_) == kSuccess) {  // all of these may fail, and the context takes the rest with it
    for (const auto& [text, module] : modules_) d.cuModuleUnload(module.handle);
    d.cuStreamDestroy_v2(stream_);
    ContextHandle* popped = nullptr;
    d.cuCtxPopCurrent_v2(&popped);
  }
  modules_.clear();
  d.cuDevicePrimaryCtxRelease_v2(ordinal_);
  handle_ = nullptr, stream_ = nullptr;
}

std::shared_ptr<Context> Context::again() {
  let_go();
  std::shared_ptr<Context> anew;
  try {
    anew = std::make_shared<Context>(driver_, info_, options_);
  } catch (const DeviceError& e) {
    const std::string what = e.what();
    throw DeviceError("CudaDevice::recover: " + what.substr(0, what.find('\n')), lost_loc_,
                      "the driver gives the process no new context (or another library of the process keeps the old "
                      "one): a new process can use the device");
  }
  const std::lock_guard lock(programs_mutex);
  anew->programs = programs;
  return anew;
}

void Context::require_alive() const {
  if (!lost_.empty())
    throw DeviceError("the device " + name() + " was lost in an earlier call: " + lost_, lost_loc_, lost_note_);
}

void Context::lose(Status status, const char* function) {
  require_alive();
  const std::vector<Running> running = std::exchange(running_, {});
  lost_ = std::string(function) + " on " + name() + ": " + driver_->text(status);
  if (running.empty()) lost_ += "; nothing was running";
  else if (running.size() == 1) lost_ += "; it was running " + running[0].name;
  else lost_ += "; it was running one of ";
  for (size_t i = 0; i < running.size() && running.size() > 1; ++i)
    lost_ += (i ? ", " : "") + running[i].name + (running[i].loc ? " (" + to_string(running[i].loc) + ")" : "");
  if (running.size() == 1) lost_loc_ = running[0].loc;
  lost_note_ =
      status == kLaunchTimeout
          ? "a GPU that drives a display ends kernels which take seconds: give the kernel less work in a call, "
            "or run it on another GPU; "
          : "";
  lost_note_ +=
      "CudaDevice::recover() makes the device usable again where the driver allows that, without the contents of its "
      "arrays; else a new process can use it";
  throw DeviceError(lost_, lost_loc_, lost_note_);
}

void Context::check(Status status, const char* function, const std::string& what, Loc loc, const std::string& note) {
  if (ends_context(status)) lose(status, function);
  driver_->check(status, function, what, loc, note);
}

void Context::wait_for_stream() {
  const Status status = driver_->cuStreamSynchronize(stream_);
  if (status != kSuccess) lose(status, "cuStreamSynchronize");
  running_.clear();
}

void Context::wait() {
  const std::lock_guard lock(mutex_);
  require_alive();
  const Current current(*driver_, handle_);
  wait_for_stream();
}
void Context::wait_for(uint64_t stream) {
  const std::lock_guard lock(mutex_);
  require_alive();
  const Current current(*driver_, handle_);
  check(driver_->cuStreamSynchronize(reinterpret_cast<StreamHandle*>(stream)), "cuStreamSynchronize",
        "the stream " + std::to_string(stream));
}
uint64_t Context::stream() {
  const std::lock_guard lock(mutex_);
  require_alive();
  return reinterpret_cast<uint64_t>(stream_);
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
  require_alive();
  const Current current(*driver_, handle_);
  check(driver_->cuMemcpyHtoDAsync_v2(to, from.bytes(), static_cast<size_t>(from.nbytes()), stream_),
        "cuMemcpyHtoDAsync_v2", what);
  wait_for_stream();
}
void Context::download(Array& to, Address from, const std::string& what) {
  if (to.nbytes() == 0) return;
  const std::lock_guard lock(mutex_);
  require_alive();
  const Current current(*driver_, handle_);
  check(driver_->cuMemcpyDtoHAsync_v2(to.bytes(), from, static_cast<size_t>(to.nbytes()), stream_),
        "cuMemcpyDtoHAsync_v2", what);
  wait_for_stream();
}

std::shared_ptr<Block> Context::allocate(int64_t bytes, const std::string& what) {
  const std::lock_guard lock(mutex_);
  require_alive();
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
    check(status, "cuMemAlloc_v2", what, loc);
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
  check(status, "cuModuleLoadDataEx", p.name, p.loc,
        status == kUnsupportedPtx ? "install a newer driver of NVIDIA"
        : said.empty()            ? ""
                                  : "it says: " + said);
  try {
    check(d.cuModuleGetFunction(&m.function, m.handle, "main"), "cuModuleGetFunction", p.name, p.loc);
    if (p.shared_bytes > kMostStaticShared)
      check(d.cuFuncSetAttribute(m.function, FunctionAttribute::max_dynamic_shared_bytes,
                                 static_cast<int>(p.shared_bytes)),
            "cuFuncSetAttribute", p.name, p.loc);
  } catch (...) {
    d.cuModuleUnload(m.handle);
    throw;
  }
  return modules_.emplace(p.ptx, m).first->second.function;
}

}  // namespace tessera::cuda
