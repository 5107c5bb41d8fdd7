#include "tests/bench/gpu/time/cuda_timer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "codegen/compile.h"
#include "engine/base/platform.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/cuda.h"
#include "runtime/launch/arguments.h"
#include "runtime/nvidia/context.h"
#include "runtime/nvidia/tensors.h"
#include "tests/bench/gpu/time/suite_files.h"

namespace tessera::bench {

using cuda::Address, cuda::Status, cuda::StreamHandle, cuda::FunctionHandle, cuda::ModuleHandle;
struct EventHandle;  // what CUevent and so on point at
struct GraphHandle;
struct ExecutableHandle;

/// The driver, the primary context, a stream, and functions that only this program uses.
class CudaState {
 public:
  CudaState(std::shared_ptr<const cuda::Driver> driver, CudaDeviceInfo which, const std::string& library)
      : d(*driver), info(std::move(which)), driver_(std::move(driver)) {
    d.check(d.cuDeviceGet(&ordinal_, info.index), "cuDeviceGet", "timing");
    d.check(d.cuDevicePrimaryCtxRetain(&context, ordinal_), "cuDevicePrimaryCtxRetain", "timing");
    const cuda::Current current(d, context);
    d.check(d.cuStreamCreate(&stream, cuda::kStreamNonBlocking), "cuStreamCreate", "timing");
    void* opened = platform::open_library(library.empty() ? platform::kCudaDriver : library);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(platform::symbol(opened, name));
      return function != nullptr;
    };
    has_events = find(create_event, "cuEventCreate") && find(record_event, "cuEventRecord") &&
                 find(wait_event, "cuEventSynchronize") && find(elapsed, "cuEventElapsedTime") &&
                 find(destroy_event, "cuEventDestroy_v2");
    has_graphs = find(begin_capture, "cuStreamBeginCapture_v2") && find(end_capture, "cuStreamEndCapture") &&
                 find(instantiate, "cuGraphInstantiateWithFlags") && find(launch_graph, "cuGraphLaunch") &&
                 find(destroy_graph, "cuGraphDestroy") && find(destroy_executable, "cuGraphExecDestroy");
    find(copy, "cuMemcpyDtoDAsync_v2");
    find(function_attribute, "cuFuncGetAttribute");
    if (!has_events) return;
    for (EventHandle*& e : events) d.check(create_event(&e, 0), "cuEventCreate", "timing");
  }
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;
  ~CudaState() {
    if (d.cuCtxPushCurrent_v2(context) == cuda::kSuccess) {
      if (has_events)
        for (EventHandle* e : events) destroy_event(e);
      d.cuStreamDestroy_v2(stream);
      cuda::ContextHandle* popped = nullptr;
      d.cuCtxPopCurrent_v2(&popped);
    }
    d.cuDevicePrimaryCtxRelease_v2(ordinal_);
  }

  void wait(const std::string& what) const { d.check(d.cuStreamSynchronize(stream), "cuStreamSynchronize", what); }
  /// Seconds of what `launch` queues, with the context current.
  double time(const std::string& what, const std::function<void()>& launch) const {
    if (!has_events) {
      wait(what);
      const auto start = std::chrono::steady_clock::now();
      launch();
      wait(what);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    d.check(record_event(events[0], stream), "cuEventRecord", what);
    launch();
    d.check(record_event(events[1], stream), "cuEventRecord", what);
    d.check(wait_event(events[1]), "cuEventSynchronize", what);
    float ms = 0;
    d.check(elapsed(&ms, events[0], events[1]), "cuEventElapsedTime", what);
    return 1e-3 * static_cast<double>(ms);
  }

  const cuda::Driver& d;
  CudaDeviceInfo info;
  cuda::ContextHandle* context = nullptr;
  StreamHandle* stream = nullptr;
  bool has_events = false, has_graphs = false;
  Status (*begin_capture)(StreamHandle*, int mode) = nullptr;
  Status (*end_capture)(StreamHandle*, GraphHandle**) = nullptr;
  Status (*instantiate)(ExecutableHandle**, GraphHandle*, unsigned long long flags) = nullptr;  // NOLINT: CUDA's type
  Status (*launch_graph)(ExecutableHandle*, StreamHandle*) = nullptr;
  Status (*destroy_graph)(GraphHandle*) = nullptr;
  Status (*destroy_executable)(ExecutableHandle*) = nullptr;
  Status (*function_attribute)(int* value, int which, FunctionHandle*) = nullptr;
  Status (*copy)(Address to, Address from, size_t bytes, StreamHandle*) = nullptr;

 private:
  std::shared_ptr<const cuda::Driver> driver_;
  cuda::Ordinal ordinal_ = 0;
  Status (*create_event)(EventHandle**, unsigned flags) = nullptr;
  Status (*record_event)(EventHandle*, StreamHandle*) = nullptr;
  Status (*wait_event)(EventHandle*) = nullptr;
  Status (*elapsed)(float* ms, EventHandle* from, EventHandle* to) = nullptr;
  Status (*destroy_event)(EventHandle*) = nullptr;
  std::array<EventHandle*, 2> events{};
};

/// A Program, and what the driver made of it.
class CudaLoaded {
 public:
  CudaLoaded(std::shared_ptr<CudaState> state, Program made) : program(std::move(made)), state_(std::move(state)) {
    const cuda::Driver& d = state_->d;
    const cuda::Current current(d, state_->context);
    std::array<char, 8192> log{};
    std::array<cuda::JitOption, 2> options{cuda::JitOption::error_log, cuda::JitOption::error_log_bytes};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
    const Status status = d.cuModuleLoadDataEx(&module_, program.ptx.c_str(), static_cast<unsigned>(options.size()),
                                               options.data(), values.data());
    log.back() = 0;
    d.check(status, "cuModuleLoadDataEx", program.name, program.loc, log.data());
    d.check(d.cuModuleGetFunction(&function, module_, "main"), "cuModuleGetFunction", program.name);
    if (program.shared_bytes > cuda::kMostStaticShared)
      d.check(d.cuFuncSetAttribute(function, cuda::FunctionAttribute::max_dynamic_shared_bytes,
                                   static_cast<int>(program.shared_bytes)),
              "cuFuncSetAttribute", program.name);
    if (!state_->function_attribute) return;
    state_->function_attribute(&local_bytes, 3, function);
    state_->function_attribute(&registers, 4, function);
  }
  CudaLoaded(const CudaLoaded&) = delete;
  CudaLoaded& operator=(const CudaLoaded&) = delete;
  ~CudaLoaded() {
    if (state_->d.cuCtxPushCurrent_v2(state_->context) != cuda::kSuccess) return;
    state_->d.cuModuleUnload(module_);
    cuda::ContextHandle* popped = nullptr;
    state_->d.cuCtxPopCurrent_v2(&popped);
  }

  Program program;
  FunctionHandle* function = nullptr;
  int registers = 0, local_bytes = 0;  // of a thread

 private:
  std::shared_ptr<CudaState> state_;
  ModuleHandle* module_ = nullptr;
};

namespace {

/// Pieces of the GPU's memory.
class Memory {
 public:
  explicit Memory(std::shared_ptr<CudaState> state) : state_(std::move(state)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (state_->d.cuCtxPushCurrent_v2(state_->context) != cuda::kSuccess) return;
    state_->d.cuStreamSynchronize(state_->stream);
    for (const Address a : all_) state_->d.cuMemFree_v2(a);
    cuda::ContextHandle* popped = nullptr;
    state_->d.cuCtxPopCurrent_v2(&popped);
  }
  Address allocate(int64_t bytes) {
    Address a = 0;
    state_->d.check(state_->d.cuMemAlloc_v2(&a, static_cast<size_t>(std::max<int64_t>(bytes, 4) + 3) / 4 * 4),
                    "cuMemAlloc_v2", "timing");
    all_.push_back(a);
    return a;
  }

 private:
  std::shared_ptr<CudaState> state_;
  std::vector<Address> all_;
};

class Launched : public Contender {
 public:
  Launched(const std::shared_ptr<CudaState>& state, std::shared_ptr<CudaLoaded> loaded, const ir::Kernel& kernel,
           const std::vector<Array>& inputs, int sets)
      : s_(state), loaded_(std::move(loaded)), memory_(state), p_(loaded_->program) {
    const cuda::Current current(s_->d, s_->context);
    for (size_t i = inputs.size(); i < p_.args.size(); ++i) {
      const int alias = p_.args[i].alias;
      begin_.push_back(alias >= 0 ? inputs[static_cast<size_t>(alias)]
                                  : poisoned(bind_shape(kernel, static_cast<int>(i), {}), kernel.blocks[i].dtype));
    }
    count_ = workgroups_of(p_, {}, s_->info.memory_bytes / 4);
    const std::vector<int64_t> sizes = extents_of(p_, {}, s_->info.name);
    std::vector<Address> after;  // the arena's and the report's
    if (p_.scratch_bytes > 0) after.push_back(memory_.allocate(p_.scratch_bytes * count_));
    if (p_.report_bytes > 0) {
      after.push_back(memory_.allocate(p_.report_bytes));
      s_->d.check(s_->d.cuMemsetD8Async(after.back(), 0, static_cast<size_t>(p_.report_bytes), s_->stream),
                  "cuMemsetD8Async", p_.name);
    }
    for (int set = 0; set < sets; ++set) {
      std::vector<Address> at(p_.args.size(), 0);
      for (size_t i = p_.args.size(); i-- > 0;) {
        if (at[i] != 0) continue;
        const Array& a = i < inputs.size() ? inputs[i] : begin_[i - inputs.size()];
        at[i] = memory_.allocate(a.nbytes());
        upload(at[i], a);
        if (const int alias = p_.args[i].alias; alias >= 0) at[static_cast<size_t>(alias)] = at[i];
      }
      if (set == 0) outputs_.assign(at.begin() + static_cast<std::ptrdiff_t>(inputs.size()), at.end());
      at.insert(at.end(), after.begin(), after.end());
      blocks_.push_back(argument_block(p_, at, sizes));
      cuda::put_tensors(s_->d, p_, {}, at, blocks_.back());
    }
    s_->wait(p_.name);
  }

  ~Launched() override {
    if (s_->d.cuCtxPushCurrent_v2(s_->context) != cuda::kSuccess) return;
    forget_graph();
    cuda::ContextHandle* popped = nullptr;
    s_->d.cuCtxPopCurrent_v2(&popped);
  }

  double batch(int repeats) override {
    const cuda::Current current(s_->d, s_->context);
    const auto all = [&] {
      for (int i = 0; i < repeats; ++i) launch(static_cast<size_t>(i) % blocks_.size());
    };
    if (s_->has_graphs && captured_ != repeats) capture(repeats, all);
    const double seconds = s_->time(p_.name, [&] {
      if (executable_) s_->d.check(s_->launch_graph(executable_, s_->stream), "cuGraphLaunch", p_.name);
      else all();
    });
    return seconds / repeats;
  }
  bool by_graph() const override { return executable_ != nullptr; }

  std::vector<Array> outputs() override {
    const cuda::Current current(s_->d, s_->context);
    for (size_t i = 0; i < begin_.size(); ++i) upload(outputs_[i], begin_[i]);
    launch(0);
    std::vector<Array> all;
    for (size_t i = 0; i < begin_.size(); ++i) {
      all.emplace_back(begin_[i].shape(), begin_[i].dtype());
      s_->d.check(
          s_->d.cuMemcpyDtoHAsync_v2(all[i].bytes(), outputs_[i], static_cast<size_t>(all[i].nbytes()), s_->stream),
          "cuMemcpyDtoHAsync_v2", p_.name);
    }
    s_->wait(p_.name);
    return all;
  }

 private:
  void forget_graph() {
    if (executable_) s_->destroy_executable(executable_);
    executable_ = nullptr;
  }
  // A batch as a graph, so that launches are in no time; plain launches if that fails.
  void capture(int repeats, const std::function<void()>& all) {
    constexpr int kThisThread = 1;
    forget_graph();
    captured_ = repeats;
    GraphHandle* graph = nullptr;
    if (s_->begin_capture(s_->stream, kThisThread) != cuda::kSuccess) return;
    all();
    if (s_->end_capture(s_->stream, &graph) != cuda::kSuccess || !graph) return;
    if (s_->instantiate(&executable_, graph, 0) != cuda::kSuccess) executable_ = nullptr;
    s_->destroy_graph(graph);
  }
  void upload(Address to, const Array& from) {
    if (from.nbytes() == 0) return;
    s_->d.check(s_->d.cuMemcpyHtoDAsync_v2(to, from.bytes(), static_cast<size_t>(from.nbytes()), s_->stream),
                "cuMemcpyHtoDAsync_v2", p_.name);
  }
  void launch(size_t set) {
    if (count_ == 0) return;
    size_t bytes = blocks_[set].size();
    void* extra[] = {cuda::kLaunchBlock, blocks_[set].data(), cuda::kLaunchBlockBytes, &bytes, cuda::kLaunchEnd};
    void* parameters[] = {blocks_[set].data()};  // where there are tensors: the driver knows how the entry aligns them
    const bool tensors = !p_.tensors.empty();
    const int64_t dynamic = p_.shared_bytes > cuda::kMostStaticShared ? p_.shared_bytes : 0;
    s_->d.check(s_->d.cuLaunchKernel(loaded_->function, static_cast<unsigned>(count_), 1, 1,
                                     static_cast<unsigned>(p_.workgroup_size), 1, 1, static_cast<unsigned>(dynamic),
                                     s_->stream, tensors ? parameters : nullptr, tensors ? nullptr : extra),
                "cuLaunchKernel", p_.name);
  }

  std::shared_ptr<CudaState> s_;
  std::shared_ptr<CudaLoaded> loaded_;
  Memory memory_;
  const Program& p_;
  std::vector<Array> begin_;
  int64_t count_ = 0;
  std::vector<Address> outputs_;
  std::vector<std::vector<std::byte>> blocks_;
  int captured_ = 0;  // runs in the graph
  ExecutableHandle* executable_ = nullptr;
};

class Copied : public Contender {
 public:
  Copied(const std::shared_ptr<CudaState>& state, int64_t bytes) : s_(state), memory_(state), bytes_(bytes) {
    const cuda::Current current(s_->d, s_->context);
    from_ = memory_.allocate(bytes);
    to_ = memory_.allocate(bytes);
  }
  double batch(int repeats) override {
    const cuda::Current current(s_->d, s_->context);
    return s_->time("copy", [&] {
      for (int i = 0; i < repeats; ++i)
        s_->d.check(s_->copy(to_, from_, static_cast<size_t>(bytes_), s_->stream), "cuMemcpyDtoDAsync_v2", "copy");
    }) / repeats;
  }
  std::vector<Array> outputs() override { return {}; }

 private:
  std::shared_ptr<CudaState> s_;
  Memory memory_;
  int64_t bytes_;
  Address from_ = 0, to_ = 0;
};

}  // namespace

std::unique_ptr<CudaTimer> CudaTimer::open(const std::string& library, const std::string& name) {
  auto driver = cuda::Driver::open(library);
  if (!driver) return nullptr;
  CudaOptions options;
  options.library = library;
  const std::vector<CudaDeviceInfo> devices = list_cuda_devices(options);
  if (devices.empty()) return nullptr;
  CudaDeviceInfo chosen = devices[0];
  for (const CudaDeviceInfo& d : devices)
    if (d.name == name) {
      chosen = d;
      break;
    }
  if (!chosen.lacks.empty()) throw DeviceError(chosen.name + " lacks " + chosen.lacks[0]);
  auto timer = std::make_unique<CudaTimer>();
  timer->state_ = std::make_shared<CudaState>(std::move(driver), std::move(chosen), library);
  return timer;
}

std::string CudaTimer::name() const { return state_->info.name; }
int CudaTimer::driver_version() const { return state_->info.driver_version; }
const Target& CudaTimer::target() const { return state_->info.target; }
const char* CudaTimer::clock() const { return state_->has_events ? "events" : "host"; }
int64_t CudaTimer::memory_bytes() const { return state_->info.memory_bytes; }

std::shared_ptr<CudaLoaded> CudaTimer::load(const ir::Kernel& kernel) const {
  return std::make_shared<CudaLoaded>(state_, compile(kernel, target()));
}

CudaCode CudaTimer::code(const CudaLoaded& loaded) {
  return {loaded.program.ptx, loaded.registers, loaded.local_bytes, loaded.program.shared_bytes,
          loaded.program.workgroup_size};
}

std::unique_ptr<Contender> CudaTimer::contender(std::shared_ptr<CudaLoaded> loaded, const ir::Kernel& kernel,
                                                const std::vector<Array>& inputs, int sets) const {
  return std::make_unique<Launched>(state_, std::move(loaded), kernel, inputs, sets);
}

std::unique_ptr<Contender> CudaTimer::copy(int64_t bytes) const {
  if (!state_->copy) return nullptr;
  return std::make_unique<Copied>(state_, bytes);
}

}  // namespace tessera::bench
