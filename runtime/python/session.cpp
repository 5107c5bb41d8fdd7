#include "runtime/python/session.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/jax/import.h"
#include "runtime/call/call.h"

namespace tessera::python {
namespace {
std::atomic<uint64_t> modules{0}, calls{0}, bytes_copied{0};

/// A kernel made ready for where it runs.
struct Loaded {
  ir::Kernel kernel;
  std::optional<CompiledKernel> compiled;  // none: the interpreter runs it
  std::vector<Array> run(const std::vector<Array>& inputs) const { return compiled ? compiled->run(inputs) : interpret(kernel, inputs); }
};

/// Something made once, by whoever comes first; a failure is remembered as well as a success.
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
/// Onces by key. What is made is never dropped, so references stay good.
template <class T>
class Cache {
 public:
  template <class Make>
  const T& get(const std::string& key, const Make& make) {
    Once<T>* once = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto& slot = entries_[key];
      if (!slot) slot = std::make_unique<Once<T>>();
      once = slot.get();
    }
    return once->get(make);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Once<T>>> entries_;
};

// Leaked on purpose: XLA's threads may still call while the process ends.
Cache<Device>& devices() {
  static auto* cache = new Cache<Device>;
  return *cache;
}
Cache<Loaded>& loaded() {
  static auto* cache = new Cache<Loaded>;
  return *cache;
}
Cache<int>& grid_bounds() {
  static auto* cache = new Cache<int>;
  return *cache;
}

Device device_named(const std::string& select) {
  DeviceOptions options;
  options.select = select;
  return Device(options);
}
Loaded make_ready(ir::Kernel kernel, std::string_view device) {
  if (device == "interpreter") return {std::move(kernel), std::nullopt};
  if (device != "vulkan" && !device.starts_with("vulkan:"))
    throw SpecError("tessera: the device \"" + std::string(device) + "\" is not known", {}, "\"interpreter\", \"vulkan\" and \"vulkan:INDEX-OR-NAME\" are");
  const std::string select(device.substr(std::min(device.size(), std::strlen("vulkan:"))));
  const Device& d = devices().get(select, [&] { return select.empty() ? default_device() : device_named(select); });
  CompiledKernel compiled = load(d, kernel);
  return {std::move(kernel), std::move(compiled)};
}

int dynamic_grid_bounds(const Module& m) {
  return grid_bounds().get(std::string(m.key), [&] { return jax::num_dynamic_grid_bounds(m.text); });
}
const Loaded& load_module(const Module& m, const std::vector<int64_t>& grid_sizes) {
  std::string key = std::string(m.device) + "\n" + std::string(m.key);
  for (int64_t n : grid_sizes) key += " " + std::to_string(n);
  return loaded().get(key, [&] {
    ++modules;
    return make_ready(jax::import_kernel(m.text, {.grid_sizes = grid_sizes}), m.device);
  });
}

std::string show(DType t, const Shape& s) { return ir::to_string(ir::Type::array(t, s)); }
}  // namespace

void prepare(const Module& m) {
  if (dynamic_grid_bounds(m) == 0) load_module(m, {});
}

void call(const Module& m, std::span<const Buffer> arguments, std::span<const Buffer> results) {
  const auto open = static_cast<size_t>(dynamic_grid_bounds(m));
  if (arguments.size() < open) throw SpecError("tessera: the call has " + std::to_string(arguments.size()) + " arguments, too few for its grid");
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
  std::vector<Array> inputs;
  uint64_t copied = 0;
  for (const Buffer& b : arguments.subspan(open)) {
    Array& a = inputs.emplace_back(b.shape, b.dtype);
    if (a.nbytes()) std::memcpy(a.bytes(), b.data, static_cast<size_t>(a.nbytes()));
    copied += static_cast<uint64_t>(a.nbytes());
  }
  const std::vector<Array> outputs = k.run(inputs);
  if (outputs.size() != results.size())
    throw SpecError(k.kernel.name + ": gives " + std::to_string(outputs.size()) + " outputs but " + std::to_string(results.size()) + " are expected");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Array& a = outputs[i];
    if (a.dtype() != results[i].dtype || a.shape() != results[i].shape)
      throw SpecError(k.kernel.name + ": output " + std::to_string(i) + " is " + show(a.dtype(), a.shape()) + " but " +
                      show(results[i].dtype, results[i].shape) + " is expected");
    if (a.nbytes()) std::memcpy(results[i].data, a.bytes(), static_cast<size_t>(a.nbytes()));
    copied += static_cast<uint64_t>(a.nbytes());
  }
  bytes_copied += copied;
  ++calls;
}

std::vector<Array> run_text(std::string_view tir, std::string_view device, const std::vector<Array>& inputs) {
  const Loaded& k = loaded().get(std::string(device) + "\ntir\n" + std::string(tir), [&] {
    ++modules;
    ir::Kernel kernel = ir::parse(tir);
    ir::verify(kernel, "parsing");
    return make_ready(std::move(kernel), device);
  });
  std::vector<Array> outputs = k.run(inputs);
  ++calls;
  return outputs;
}

Stats stats() { return {modules, calls, bytes_copied}; }

}  // namespace tessera::python
