#include "runtime/python/session.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "engine/interpreter/plans.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/jax/import.h"
#include "engine/lint/lint.h"
#include "engine/passes/passes.h"
#include "runtime/call/graph.h"
#include "runtime/call/host_call.h"
#include "runtime/launch.h"
#include "runtime/nvidia/context.h"

namespace tessera::python {
namespace {
std::atomic<uint64_t> modules{0}, calls{0}, bytes_copied{0};

/// A kernel made ready for where it runs.
struct Loaded {
  ir::Kernel kernel;
  std::optional<CompiledKernel> compiled = {};  // for a Vulkan device,
  std::shared_ptr<const Program> program = {};  // or for `cuda`;
  const CudaDevice* cuda = nullptr;             // with none of them the interpreter runs it
  std::shared_ptr<Plans> plans = std::make_shared<Plans>();
};

/// Something made once, by the first thread that needs it; a failure is remembered as well as a success.
template <class T>
class Once {
 public:
  template <class Make>
  const T& get(const Make& make) {
    std::call_once(flag_, [&] {
      try {
        value_.emplace(make());
      } catch (...) {
        error_ = std::current_exception();
      }
    });
    if (error_) std::rethrow_exception(error_);
    return *value_;
  }

 private:
  std::once_flag flag_;
  std::optional<T> value_;
  std::exception_ptr error_;
};

struct LoadedGraph {
  std::shared_ptr<Graph> graph;  // for the interpreter; moved where a device compiles it
  std::shared_ptr<Once<std::optional<CompiledGraph>>> compiled;  // none: the interpreter runs it
};

/// Onces by key. What is made is never dropped, so references stay good.
template <class T, class Key = std::string, class Less = std::less<>>
class Cache {
 public:
  template <class Like, class Make>
  const T& get(const Like& key, const Make& make) {
    Once<T>* once = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto it = entries_.find(key);
      if (it == entries_.end()) it = entries_.emplace(Key(key), std::make_unique<Once<T>>()).first;
      once = it->second.get();
    }
    return once->get(make);
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Once<T>>, Less> entries_;
};

/// What a module is loaded as; a call looks it up without making one of these.
struct LoadedName {
  std::string key, device;
  std::vector<int64_t> grid_sizes;
};
struct LoadedLike {
  std::string_view key, device;
  std::span<const int64_t> grid_sizes;
  explicit operator LoadedName() const {
    return {std::string(key), std::string(device), {grid_sizes.begin(), grid_sizes.end()}};
  }
};
struct LessLoaded {
  using is_transparent = void;
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    if (const int c = std::string_view(a.key).compare(b.key)) return c < 0;
    if (const int c = std::string_view(a.device).compare(b.device)) return c < 0;
    return std::lexicographical_compare(a.grid_sizes.begin(), a.grid_sizes.end(), b.grid_sizes.begin(),
                                        b.grid_sizes.end());
  }
};

std::atomic<Printer> printer{nullptr};
void print(const std::string& line) {
  if (const Printer p = printer) p(line.c_str());
  else print_line({}, line);
}

// What is made, for as long as the process lives: XLA's threads may still call while it ends. A child process that was
// forked starts anew, since threads of its parent may have been in the middle of anything; but Vulkan's drivers live in
// threads and files that it has not got.
struct State {
  Cache<Device> devices;
  Cache<std::optional<Device>> threadless;
  Cache<CudaDevice> cuda_devices;
  Cache<Loaded, LoadedName, LessLoaded> loaded;  // modules
  Cache<Loaded> texts;
  Cache<LoadedGraph> graphs;
  Cache<int> grid_bounds;
  const InterpretOptions interpreter{.print = print};
  std::atomic<bool> uses_vulkan{false}, uses_cuda{false};
};
std::atomic<State*> current{nullptr};
std::atomic<bool> parent_used_vulkan{false}, parent_used_cuda{false};

State& state() {
  static const bool made = [] {
    current = new State;
    pthread_atfork(nullptr, nullptr, [] {
      if (current.load()->uses_vulkan) parent_used_vulkan = true;
      if (current.load()->uses_cuda) parent_used_cuda = true;
      current = new State;
    });
    return true;
  }();
  static_cast<void>(made);
  return *current;
}

/// Runs f, which uses the device. If the device is lost on the way, everything on it is forgotten (and leaked: other
/// threads may be in it), and the next call starts on a new one.
template <class AnyDevice, class F>
void on_device(const AnyDevice& device, const F& f) {
  State* before = current;
  try {
    f();
  } catch (const DeviceError& e) {
    if (!device.lost()) throw;
    if constexpr (std::is_same_v<AnyDevice, CudaDevice>) device.context()->let_go();
    auto* anew = new State;
    anew->uses_vulkan = before->uses_vulkan.load(), anew->uses_cuda = before->uses_cuda.load();
    if (!current.compare_exchange_strong(before, anew)) delete anew;
    std::string what = e.what();
    what.erase(std::min(what.find("\n  note: "), what.size()));  // what to do with a Device, which nobody has here
    throw DeviceError(what, {}, "the call's results are lost; the next call starts on a new device");
  }
}

Device device_named(const std::string& select) {
  DeviceOptions options;
  options.print = print;
  options.select = select;
  return Device(options);
}
void require_not_forked(bool parent_used_it, const char* kind) {
  if (parent_used_it)
    throw DeviceError(
        "tessera: this process was forked from one that had used a " + std::string(kind) +
            " device, and drivers do not survive that",
        {},
        "start it by spawn (multiprocessing.set_start_method(\"spawn\")), make the parent's first call after the fork, "
        "or use the device \"interpreter\"");
}

/// The devices that a name may mean; neither: the interpreter.
struct Where {
  const Device* vulkan = nullptr;
  const CudaDevice* cuda = nullptr;
};
Where device_of(std::string_view device) {
  if (device == "interpreter") return {};
  if (const std::optional<int> index = device.empty() ? std::nullopt : cuda_selected(device)) {
    require_not_forked(parent_used_cuda, "CUDA");
    state().uses_cuda = true;
    return {nullptr, &state().cuda_devices.get(std::to_string(*index), [&] {
              CudaOptions options;
              options.print = print;
              return CudaDevice(*index, options);
            })};
  }
  if (device != "vulkan" && !device.starts_with("vulkan:"))
    throw SpecError("tessera: the device \"" + std::string(device) + "\" is not known", {},
                    "\"interpreter\", \"vulkan\", \"vulkan:INDEX-OR-NAME\" and \"cuda:INDEX\" are");
  require_not_forked(parent_used_vulkan, "Vulkan");
  state().uses_vulkan = true;
  const std::string select(device.substr(std::min(device.size(), std::strlen("vulkan:"))));
  return {&state().devices.get(select, [&] { return device_named(select); })};
}

// Lavapipe hands the workgroups of every dispatch to threads, one per core. Waking them takes 5 us where they are awake
// and 45 where the cores sleep, which is more than a small kernel takes. With this variable at 0, which it reads while
// it is opened, the thread of its queue runs them.
constexpr const char* kThreads = "LP_NUM_THREADS";
/// Waking threads for it would take longer than they save.
bool is_small(const Program& p) {
  if (p.num_units.value() == 1 && p.max_workgroups == 0) return true;  // there is nothing to share
  const auto flops = p.cost_estimate.flops.value(), transcendentals = p.cost_estimate.transcendentals.value(),
             bytes = p.cost_estimate.bytes_accessed.value();
  constexpr double kWork = 1e5;  // about 50 us by one thread
  return flops && transcendentals && bytes &&
         static_cast<double>(*flops) + 8 * static_cast<double>(*transcendentals) + static_cast<double>(*bytes) <= kWork;
}
/// The same device without those threads; null where the driver is another, or its number of threads is set by the
/// environment.
const Device* threadless(const Device& device, std::string_view name) {
  const DeviceInfo& info = device.info();
  if (info.kind != "CPU" || !info.name.starts_with("llvmpipe")) return nullptr;
  const std::optional<Device>& found = state().threadless.get(std::string(name), [&]() -> std::optional<Device> {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    const char* told = std::getenv(kThreads);
    if (!told || *told) return std::nullopt;
    // it has its place in the environment (_native_library.py), so other threads may read theirs meanwhile: nothing
    // moves
    struct None {
      None() { ::setenv(kThreads, "0", 1); }
      ~None() { ::setenv(kThreads, "", 1); }
    };
    try {
      const None none;
      const Device d = device_named(std::to_string(info.index));
      if (d.info().name == info.name) return d;
    } catch (const Error&) {  // then all kernels run on the other one
    }
    return std::nullopt;
  });
  return found ? &*found : nullptr;
}

Loaded make_ready(ir::Kernel kernel, std::string_view device) {
  const Where where = device_of(device);
  if (where.cuda) {
    std::shared_ptr<const Program> program = program_for(*where.cuda, kernel);
    return {std::move(kernel), {}, std::move(program), where.cuda};
  }
  const Device* d = where.vulkan;
  if (!d) {
    passes::optimize(kernel);  // they change no result, and the interpreter computes what it is given, op by op
    return {std::move(kernel)};
  }
  CompiledKernel compiled = load(*d, kernel);
  if (const Device* one = is_small(compiled.program()) ? threadless(*d, device) : nullptr) compiled = compiled.on(*one);
  return {std::move(kernel), std::move(compiled)};
}

int dynamic_grid_bounds(const Module& m) {
  return state().grid_bounds.get(m.key, [&] { return jax::num_dynamic_grid_bounds(m.text); });
}
const Loaded& load_module(const Module& m, const std::vector<int64_t>& grid_sizes) {
  return state().loaded.get(LoadedLike{m.key, m.device, grid_sizes}, [&] {
    ++modules;
    ir::Kernel k = jax::import_kernel(m.text, {.grid_sizes = grid_sizes});
    if (has_all_sizes(k, {})) check_lints(k, {}, lint_of_environment().value_or(Lint::off));
    return make_ready(std::move(k), m.device);
  });
}

std::string show(DType t, const Shape& s) { return ir::to_string(ir::Type::array(t, s)); }

int64_t bytes_of(const Buffer& b) { return size_bytes(b.dtype) * num_elements(b.shape); }

std::vector<Array> copies_of(std::span<const Buffer> buffers) {
  std::vector<Array> copies;
  for (const Buffer& b : buffers) {
    Array& a = copies.emplace_back(b.shape, b.dtype);
    if (a.nbytes()) std::memcpy(a.bytes(), b.data, static_cast<size_t>(a.nbytes()));
    bytes_copied += static_cast<uint64_t>(a.nbytes());
  }
  return copies;
}

void run(const Loaded& k, std::span<const Buffer> arguments, std::span<const Buffer> results) {
  if (k.compiled) {
    on_device(k.compiled->device(), [&] { bytes_copied += call_on_host(*k.compiled, arguments, results); });
  } else if (k.program) {
    on_device(*k.cuda, [&] { k.cuda->run_into(*k.program, arguments, results); });
    for (const auto& buffers : {arguments, results})
      for (const Buffer& b : buffers) bytes_copied += static_cast<uint64_t>(bytes_of(b));
  } else bytes_copied += interpret(k.kernel, arguments, results, state().interpreter, *k.plans);
  ++calls;
}

}  // namespace

void set_printer(Printer p) { printer = p; }

void prepare(const Module& m) {
  if (dynamic_grid_bounds(m) == 0) load_module(m, {});
}

void call(const Module& m, std::span<const Buffer> arguments, std::span<const Buffer> results) {
  const auto open = static_cast<size_t>(dynamic_grid_bounds(m));
  if (arguments.size() < open)
    throw SpecError("tessera: the call has " + std::to_string(arguments.size()) + " arguments, too few for its grid");
  std::vector<int64_t> grid_sizes;
  for (const Buffer& b : arguments.first(open)) {
    if (num_elements(b.shape) != 1 || (b.dtype != DType::i32 && b.dtype != DType::i64))
      throw SpecError("tessera: a size of the grid is " + show(b.dtype, b.shape) + ", not an integer scalar");
    int64_t n = 0;
    if (b.dtype == DType::i32) {
      int32_t narrow = 0;
      std::memcpy(&narrow, b.data, sizeof narrow);
      n = narrow;
    } else {
      std::memcpy(&n, b.data, sizeof n);
    }
    grid_sizes.push_back(n);
  }
  const Loaded& k = load_module(m, grid_sizes);
  run(k, arguments.subspan(open), results);
}

namespace {
const Loaded& load_text(const TextFile& file, std::string_view device) {
  std::string name;
  for (const std::string_view part : {device, file.path, file.text}) name += std::string(part) + "\n";
  return state().texts.get(name, [&] {
    ++modules;
    ir::Kernel kernel = ir::parse(file.text, file.path);
    ir::verify(kernel, "parsing");
    return make_ready(std::move(kernel), device);
  });
}
/// An array of rank 0 as an argument by value.
CudaArray number_of(const Array& a) {
  const uint64_t bits = a.element_bits(0);
  if (a.dtype() == DType::boolean) return bits != 0;
  if (a.dtype() == DType::u64) return bits;
  if (a.dtype() == DType::i64) return static_cast<int64_t>(bits);
  if (a.dtype() == DType::f64) return a.at(0);
  if (is_float(a.dtype())) return static_cast<float>(a.at(0));
  return static_cast<int64_t>(a.at(0));
}
const CudaDevice& gpu_of(std::string_view device) {
  const Where where = device_of(device);
  if (!where.cuda)
    throw SpecError(
        "tessera: an argument lies on an NVIDIA GPU, and the kernel runs on \"" + std::string(device) + "\"", {},
        "load the kernel for \"cuda:0\", or copy the array to the host first");
  return *where.cuda;
}
}  // namespace

std::vector<CudaArray> run_text_on_gpu(const TextFile& file, std::string_view device,
                                       std::span<const GpuBuffer> inputs) {
  gpu_of(device);
  const Loaded& k = load_text(file, device);
  const Program& p = *k.program;
  std::vector<CudaArray> outputs;
  on_device(*k.cuda, [&] {
    std::vector<CudaArray> arrays;
    bool is_foreign = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& [b, on_gpu, own] = inputs[i];
      if (own) {
        arrays.push_back(*own);
      } else if (on_gpu) {
        is_foreign = true;
        arrays.push_back(
            CudaArray::import(*k.cuda, reinterpret_cast<uint64_t>(b.data), b.shape, b.dtype, std::make_shared<int>()));
      } else {
        const Array copy = copies_of({&b, 1})[0];
        const bool by_value = i < p.args.size() && p.args[i].by_value && copy.shape().empty();
        arrays.push_back(by_value ? number_of(copy) : CudaArray(*k.cuda, copy));
      }
    }
    outputs = k.cuda->launch(p, arrays);
    if (is_foreign) k.cuda->wait();  // before its owner does something else with it
  });
  ++calls;
  return outputs;
}

void wait_for(const CudaArray& array) {
  if (array.device().lost()) return array.device().wait();  // which throws; what calls use now is another one
  on_device(array.device(), [&] { array.device().wait(); });
}
Array download(const CudaArray& array) {
  if (array.device().lost()) return array.download();
  Array host({}, DType::f32);
  on_device(array.device(), [&] { host = array.download(); });
  return host;
}

uint64_t gpu_stream(std::string_view device) { return gpu_of(device).context()->stream(); }
void wait_for_gpu_stream(std::string_view device, uint64_t stream) { gpu_of(device).context()->wait_for(stream); }

std::vector<Array> run_text(const TextFile& file, std::string_view device, std::span<const Buffer> inputs) {
  const Loaded& k = load_text(file, device);
  std::vector<Array> outputs;
  if (!k.compiled && !k.program) {
    outputs = interpret(k.kernel, copies_of(inputs), state().interpreter, *k.plans);
    ++calls;
    return outputs;
  }
  std::vector<std::pair<DType, Shape>> types;
  for (const Buffer& b : inputs) types.emplace_back(b.dtype, b.shape);
  std::vector<Buffer> results;
  for (const auto& [dtype, shape] : output_types(k.program ? *k.program : k.compiled->program(), types)) {
    Array& a = outputs.emplace_back(shape, dtype);
    results.push_back({dtype, shape, a.bytes()});
  }
  run(k, inputs, results);
  return outputs;
}

namespace {
const LoadedGraph& graph_of(const GraphFiles& f, std::string_view device) {
  std::string name;
  for (const std::string_view part : {device, f.folder, f.key, f.text}) name += std::string(part) + "\n";
  return state().graphs.get(name, [&]() -> LoadedGraph {
    auto graph = std::make_shared<Graph>(parse_graph(f.text, std::string(f.folder)));
    modules += graph->kernels.size();
    return {std::move(graph), std::make_shared<Once<std::optional<CompiledGraph>>>()};
  });
}
}  // namespace

void load_graph(const GraphFiles& files, std::string_view device) { graph_of(files, device); }

std::vector<Array> run_graph(const GraphFiles& files, std::string_view device, std::span<const Buffer> inputs) {
  const LoadedGraph& g = graph_of(files, device);
  const auto& compiled = g.compiled->get([&]() -> std::optional<CompiledGraph> {
    const Where where = device_of(device);
    if (where.cuda)
      throw DeviceError("tessera: graphs run on Vulkan devices and on the interpreter, and not on " +
                        std::string(device));
    if (!where.vulkan) return std::nullopt;
    return load(*where.vulkan, std::move(*g.graph));
  });
  std::vector<Array> outputs;
  if (compiled) {
    const Graph& graph = compiled->graph();
    std::vector<Buffer> results;
    for (const size_t v : graph.body.outputs) {
      Array& a = outputs.emplace_back(graph.values[v].shape, graph.values[v].dtype);
      results.push_back({a.dtype(), a.shape(), a.bytes()});
    }
    on_device(compiled->device(), [&] { bytes_copied += call_on_host(*compiled, inputs, results); });
  } else {
    outputs = interpret(*g.graph, copies_of(inputs));
  }
  ++calls;
  return outputs;
}

std::string import_text(std::string_view module) {
  return ir::print(jax::import_kernel(module, {.open_grid = true}), true);
}

std::string devices() {
  std::string lines;
  const auto add = [&](const std::string& device, const std::string& name, const std::string& kind,
                       const std::string& driver, const std::vector<std::string>& lacks) {
    lines += device + "\t" + name + "\t" + kind + "\t" + driver + "\t";
    for (size_t i = 0; i < lacks.size(); ++i) lines += (i ? ", " : "") + lacks[i];
    lines += "\n";
  };
  std::vector<CudaDeviceInfo> cuda;
  try {
    cuda = list_cuda_devices();
  } catch (const DeviceError&) {  // of that driver, which the others do not need
  }
  try {
    for (const DeviceInfo& d : list_devices())
      add("vulkan:" + std::to_string(d.index), d.name, d.kind, d.driver, d.lacks);
  } catch (const DeviceError&) {
    if (cuda.empty()) throw;
  }
  for (const CudaDeviceInfo& d : cuda)
    add("cuda:" + std::to_string(d.index), d.name, "GPU",
        "CUDA " + std::to_string(d.driver_version / 1000) + "." + std::to_string(d.driver_version % 1000 / 10),
        d.lacks);
  return lines;
}

std::string device_of_environment() {
  if (interpreter_selected()) return "interpreter";
  const std::optional<int> cuda = cuda_selected();
  return cuda ? "cuda:" + std::to_string(*cuda) : "vulkan";
}

std::string unnamed_cpu_driver() {
  if (!device_in_environment().empty()) return "";
  try {
    const DeviceInfo info = find_device();
    return info.kind == "CPU" ? info.name : "";
  } catch (const Error&) {  // which the first call will tell
    return "";
  }
}

void submit_nothing(std::string_view device, int64_t times) {
  const Device* d = device_of(device).vulkan;
  for (int64_t i = 0; d && i < times; ++i) d->submit_nothing();
}

Stats stats() {
  const CompileCounts c = compile_counts();
  return {modules, calls, bytes_copied, c.compiled, c.from_disk};
}

}  // namespace tessera::python
