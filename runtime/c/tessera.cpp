#include <tessera/tessera.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/base/plural.h"
#include "runtime/c/handles.h"
#include "runtime/launch.h"

using namespace tessera;
using c::guarded, c::need;

static_assert(static_cast<int>(DType::boolean) == TESSERA_BOOL && static_cast<int>(DType::i64) == TESSERA_I64 &&
              static_cast<int>(DType::u4) == TESSERA_U4 && static_cast<int>(DType::u64) == TESSERA_U64 &&
              static_cast<int>(DType::f8e4m3fn) == TESSERA_F8E4M3FN && static_cast<int>(DType::f64) == TESSERA_F64 &&
              kNumDTypes == TESSERA_F64 + 1);

namespace tessera::c {
namespace {

struct LastError {
  std::string text;
  const char* fixed = "";  // when there is no memory for a text
  const char* get() const { return text.empty() ? fixed : text.c_str(); }
};
thread_local LastError last_error;

}  // namespace

tessera_result failed(tessera_result result, const char* what) noexcept {
  try {
    last_error.text = what;
  } catch (...) {
    last_error.text.clear();
    last_error.fixed = "the host's memory is used up";
  }
  return result;
}

tessera_result handled(const char* function) noexcept {
  try {
    throw;
  } catch (const Stopped& e) {
    return failed(TESSERA_ERROR_STOPPED, e.what());
  } catch (const BundleError& e) {
    return failed(TESSERA_ERROR_BUNDLE, e.what());
  } catch (const SpecError& e) {
    return failed(TESSERA_ERROR_ARGUMENT, e.what());
  } catch (const TraceError& e) {
    return failed(TESSERA_ERROR_ARGUMENT, e.what());
  } catch (const CompileError& e) {
    return failed(TESSERA_ERROR_LIMIT, e.what());
  } catch (const DeviceError& e) {
    return failed(TESSERA_ERROR_DEVICE, e.what());
  } catch (const KernelError& e) {
    return failed(TESSERA_ERROR_KERNEL, e.what());
  } catch (const std::bad_alloc&) {
    return failed(TESSERA_ERROR_MEMORY, "the host's memory is used up");
  } catch (const std::exception& e) {
    return failed(TESSERA_ERROR_INTERNAL, e.what());
  } catch (...) {
    return failed(TESSERA_ERROR_INTERNAL, function);
  }
}

namespace {

bool is_dtype(tessera_dtype t) { return t >= 0 && t < kNumDTypes; }

template <size_t N> void put(char (&to)[N], const std::string& text) {
  const size_t n = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), n);
  std::memset(to + n, 0, N - n);
}
tessera_device_info info_of(const DeviceInfo& d) {
  tessera_device_info info;
  put(info.name, d.name);
  put(info.driver, d.driver);
  put(info.kind, d.kind);
  put(info.api_version, d.api_version);
  info.memory_bytes = d.memory_bytes;
  info.max_array_bytes = d.max_array_bytes;
  info.index = d.index;
  info.usable = d.lacks.empty();
  return info;
}

void check_bytes(const char* function, const DeviceArray& a, size_t bytes) {
  if (static_cast<uint64_t>(a.nbytes()) != bytes)
    throw SpecError(std::string(function) + ": " + plural_is(bytes, "byte") + " given but the array " +
                    std::string(name(a.dtype())) + to_string(a.shape()) + " has " + std::to_string(a.nbytes()));
}

}  // namespace

namespace {
static_assert(static_cast<int>(Severity::info) == TESSERA_INFO &&
              static_cast<int>(Severity::warning) == TESSERA_WARNING &&
              static_cast<int>(Severity::error) == TESSERA_ERROR);
LogCallback c_log(tessera_log_function log, void* user) {
  return [=](Severity severity, const std::string& message) {
    log(user, static_cast<tessera_severity>(severity), message.c_str());
  };
}
}  // namespace

DeviceOptions options_of(const char* function, const tessera_device_options* options) {
  DeviceOptions o;
  if (!options) return o;
  if (options->size != sizeof *options || options->reserved != 0)
    throw SpecError(std::string(function) + ": options.size is " + std::to_string(options->size) + " and reserved " +
                        std::to_string(options->reserved) + ", but " + std::to_string(sizeof *options) +
                        " and 0 are right",
                    {}, "begin with tessera_device_defaults()");
  if (options->select) o.select = options->select;
  o.validation = options->validation != 0;
  o.memory_limit = options->memory_limit;
  o.watchdog_seconds = options->watchdog_seconds;
  if (options->log) o.log = c_log(options->log, options->log_user);
  o.allocation_callbacks = options->allocation_callbacks;
  if (options->print)
    o.print = [print = options->print, user = options->print_user](const std::string& line) {
      print(user, line.c_str());
    };
  return o;
}

Shape shape_of(const char* function, tessera_dtype dtype, int32_t rank, const int64_t* shape) {
  if (!is_dtype(dtype)) throw SpecError(std::string(function) + ": there is no dtype " + std::to_string(dtype));
  if (rank < 0) throw SpecError(std::string(function) + ": rank is " + std::to_string(rank) + ", which is below 0");
  if (rank > 0) need(function, "shape", shape);
  return Shape(shape, shape + rank);
}

void check_sizes(const char* function, const tessera_size* sizes, int32_t num_sizes) {
  if (num_sizes < 0)
    throw SpecError(std::string(function) + ": num_sizes is " + std::to_string(num_sizes) + ", which is below 0");
  if (num_sizes > 0) need(function, "sizes", sizes);
  for (int32_t i = 0; i < num_sizes; ++i) need(function, "the name of a size", sizes[i].name);
}

DimValues dims_of(const char* function, const std::string& name, Loc loc, const tessera_size* sizes,
                  int32_t num_sizes) {
  check_sizes(function, sizes, num_sizes);
  DimValues dims;
  for (int32_t i = 0; i < num_sizes; ++i)
    if (!dims.emplace(sizes[i].name, sizes[i].value).second)
      throw SpecError(name + ": the size " + sizes[i].name + " is given twice", loc);
  return dims;
}

void check_counts(const std::string& name, Loc loc, const std::string& signature, const Counts& wanted,
                  const Counts& given) {
  if (given != wanted)
    throw SpecError(name + ": takes " + plural(static_cast<size_t>(wanted.inputs), "input") + " and makes " +
                        plural(static_cast<size_t>(wanted.outputs), "output") + " but " + std::to_string(given.inputs) +
                        " and " + std::to_string(given.outputs) + " were given",
                    loc, "it is " + name + signature);
}
const char* name_at(const std::vector<std::string>& names, int32_t index, const std::string& function,
                    const char* what) {
  if (index < 0 || static_cast<size_t>(index) >= names.size())
    throw SpecError(function + ": there is no " + what + " " + std::to_string(index) + ": their number is " +
                    std::to_string(names.size()));
  return intern_file(names[static_cast<size_t>(index)]);  // a reload may end the bundle's own
}

}  // namespace tessera::c

// ---- versions and errors

uint32_t tessera_version(void) { return TESSERA_VERSION_NUMBER; }
const char* tessera_version_string(void) { return TESSERA_VERSION; }
tessera_result tessera_check_version(uint32_t header) {
  return guarded("tessera_check_version", [&] {
    if (header >> 12 == TESSERA_VERSION_NUMBER >> 12) return;
    throw SpecError("tessera_check_version: the program was compiled with the header of Tessera " +
                    std::to_string(header >> 22) + "." + std::to_string(header >> 12 & 0x3ff) + "." +
                    std::to_string(header & 0xfff) + " but the library is " TESSERA_VERSION);
  });
}
const char* tessera_last_error(void) { return c::last_error.get(); }
const char* tessera_result_name(tessera_result r) {
  switch (r) {
    case TESSERA_OK: return "TESSERA_OK";
    case TESSERA_ERROR_ARGUMENT: return "TESSERA_ERROR_ARGUMENT";
    case TESSERA_ERROR_BUNDLE: return "TESSERA_ERROR_BUNDLE";
    case TESSERA_ERROR_LIMIT: return "TESSERA_ERROR_LIMIT";
    case TESSERA_ERROR_DEVICE: return "TESSERA_ERROR_DEVICE";
    case TESSERA_ERROR_KERNEL: return "TESSERA_ERROR_KERNEL";
    case TESSERA_ERROR_STOPPED: return "TESSERA_ERROR_STOPPED";
    case TESSERA_ERROR_MEMORY: return "TESSERA_ERROR_MEMORY";
    case TESSERA_ERROR_INTERNAL: return "TESSERA_ERROR_INTERNAL";
    default: return "?";
  }
}
const char* tessera_dtype_name(tessera_dtype t) {
  return c::is_dtype(t) ? name(static_cast<DType>(t)).data() : nullptr;
}
size_t tessera_dtype_bytes(tessera_dtype t) {
  return c::is_dtype(t) ? static_cast<size_t>(size_bytes(static_cast<DType>(t))) : 0;
}

tessera_result tessera_set_log(tessera_log_function log, void* user) {
  return guarded(__func__, [&] { set_log(log ? c::c_log(log, user) : LogCallback()); });
}

// ---- devices

tessera_device_options tessera_device_defaults(void) {
  tessera_device_options o{};
  o.size = sizeof o;
  o.watchdog_seconds = DeviceOptions{}.watchdog_seconds;
  return o;
}

tessera_result tessera_device_count(int32_t* count) {
  return guarded(__func__, [&] {
    need("tessera_device_count", "count", count);
    *count = static_cast<int32_t>(list_devices().size());
  });
}

tessera_result tessera_device_info_at(int32_t index, tessera_device_info* info) {
  return guarded(__func__, [&] {
    need("tessera_device_info_at", "info", info);
    const std::vector<DeviceInfo> all = list_devices();
    if (index < 0 || static_cast<size_t>(index) >= all.size())
      throw SpecError("tessera_device_info_at: there is no device " + std::to_string(index) + ": their number is " +
                      std::to_string(all.size()));
    *info = c::info_of(all[static_cast<size_t>(index)]);
  });
}

tessera_result tessera_device_create(const tessera_device_options* options, tessera_device** device) {
  return guarded(__func__, [&] {
    need("tessera_device_create", "device", device);
    *device = new tessera_device{Device(c::options_of("tessera_device_create", options))};
  });
}
void tessera_device_destroy(tessera_device* device) { delete device; }

tessera_result tessera_device_get_info(const tessera_device* device, tessera_device_info* info) {
  return guarded(__func__, [&] {
    need("tessera_device_get_info", "device", device);
    need("tessera_device_get_info", "info", info);
    *info = c::info_of(device->device.info());
  });
}
tessera_result tessera_device_wait(tessera_device* device) {
  return guarded(__func__, [&] {
    need("tessera_device_wait", "device", device);
    device->device.wait();
  });
}
tessera_result tessera_device_lost(const tessera_device* device, int32_t* lost) {
  return guarded(__func__, [&] {
    need("tessera_device_lost", "device", device);
    need("tessera_device_lost", "lost", lost);
    *lost = device->device.lost();
  });
}
tessera_result tessera_device_recover(tessera_device* device) {
  return guarded(__func__, [&] {
    need("tessera_device_recover", "device", device);
    device->device.recover();
  });
}
tessera_result tessera_device_allocated(const tessera_device* device, int64_t* bytes) {
  return guarded(__func__, [&] {
    need("tessera_device_allocated", "device", device);
    need("tessera_device_allocated", "bytes", bytes);
    *bytes = device->device.allocated_bytes();
  });
}
tessera_result tessera_device_validation(const tessera_device* device, void (*say)(void* user, const char* message),
                                         void* user) {
  return guarded(__func__, [&] {
    need("tessera_device_validation", "device", device);
    if (!say) throw SpecError("tessera_device_validation: say is NULL");
    for (const std::string& m : device->device.validation_messages()) say(user, m.c_str());
  });
}

// ---- bundles

tessera_result tessera_bundle_load(const char* path, tessera_bundle** bundle) {
  return guarded(__func__, [&] {
    need("tessera_bundle_load", "path", path);
    need("tessera_bundle_load", "bundle", bundle);
    *bundle = new tessera_bundle{Bundle(std::string(path))};
  });
}
tessera_result tessera_bundle_load_memory(const void* bytes, size_t size, const char* name, tessera_bundle** bundle) {
  return guarded(__func__, [&] {
    need("tessera_bundle_load_memory", "bytes", bytes);
    need("tessera_bundle_load_memory", "name", name);
    need("tessera_bundle_load_memory", "bundle", bundle);
    *bundle = new tessera_bundle{Bundle(std::span(static_cast<const std::byte*>(bytes), size), name)};
  });
}
void tessera_bundle_destroy(tessera_bundle* bundle) { delete bundle; }

tessera_result tessera_bundle_kernel_count(const tessera_bundle* bundle, int32_t* count) {
  return guarded(__func__, [&] {
    need("tessera_bundle_kernel_count", "bundle", bundle);
    need("tessera_bundle_kernel_count", "count", count);
    *count = static_cast<int32_t>(bundle->bundle.kernels().size());
  });
}
tessera_result tessera_bundle_kernel_name(const tessera_bundle* bundle, int32_t index, const char** name) {
  return guarded(__func__, [&] {
    need("tessera_bundle_kernel_name", "bundle", bundle);
    need("tessera_bundle_kernel_name", "name", name);
    *name = c::name_at(bundle->bundle.kernels(), index, "tessera_bundle_kernel_name", "kernel");
  });
}
tessera_result tessera_bundle_reload(tessera_bundle* bundle, int32_t* changed) {
  return guarded(__func__, [&] {
    need("tessera_bundle_reload", "bundle", bundle);
    const bool fresh = bundle->bundle.reload();
    if (changed) *changed = fresh;
  });
}
tessera_result tessera_bundle_prewarm(const tessera_bundle* bundle, tessera_device* device, int32_t threads,
                                      int32_t (*progress)(void* user, int32_t done, int32_t total, const char* kernel),
                                      void* user) {
  return guarded(__func__, [&] {
    need("tessera_bundle_prewarm", "bundle", bundle);
    need("tessera_bundle_prewarm", "device", device);
    if (threads < 0)
      throw SpecError("tessera_bundle_prewarm: threads is " + std::to_string(threads) + ", which is below 0");
    BundlePrewarmOptions o;
    o.threads = threads;
    if (progress)
      o.progress = [&](const Prewarmed& p) {
        if (progress(user, static_cast<int32_t>(p.done), static_cast<int32_t>(p.total), p.kernel.c_str()) != 0)
          throw c::Stopped("tessera_bundle_prewarm: stopped by progress after " + std::to_string(p.done) + " of " +
                           std::to_string(p.total) + " kernels");
      };
    prewarm(device->device, bundle->bundle, o);
  });
}

// ---- kernels

tessera_result tessera_kernel_get(const tessera_bundle* bundle, tessera_device* device, const char* name,
                                  tessera_kernel** kernel) {
  return guarded(__func__, [&] {
    need("tessera_kernel_get", "bundle", bundle);
    need("tessera_kernel_get", "device", device);
    need("tessera_kernel_get", "name", name);
    need("tessera_kernel_get", "kernel", kernel);
    const Bundle fixed = bundle->bundle.snapshot();
    auto k = std::make_unique<tessera_kernel>(tessera_kernel{fixed.kernel(device->device, name),
                                                             fixed.variant(device->device, name),
                                                             fixed.explain(device->device, name),
                                                             {},
                                                             {},
                                                             0});
    k->signature = signature(k->kernel.program());
    // Names are the bundle's; all else is the variant's that runs here, since variants of a damaged file may disagree.
    const std::vector<BundleArgument> named = fixed.arguments(name);
    const std::vector<ProgramArg>& args = k->kernel.program().args;
    for (size_t i = 0; i < args.size(); ++i) {
      const ProgramArg& a = args[i];
      tessera_kernel::Argument own{named.at(i).name, {}, {}};
      for (const Extent& e : a.shape) {
        own.shape += (own.shape.empty() ? "" : ", ") + to_string(e);
        own.sizes.push_back(e.value().value_or(-1));
      }
      k->arguments.push_back(std::move(own));
      k->num_inputs += !a.is_output;
    }
    *kernel = k.release();
  });
}
void tessera_kernel_destroy(tessera_kernel* kernel) { delete kernel; }

tessera_result tessera_kernel_signature(const tessera_kernel* kernel, const char** text) {
  return guarded(__func__, [&] {
    need("tessera_kernel_signature", "kernel", kernel);
    need("tessera_kernel_signature", "signature", text);
    *text = kernel->signature.c_str();
  });
}
tessera_result tessera_kernel_check(const tessera_kernel* kernel, const char* signature) {
  return guarded(__func__, [&] {
    need("tessera_kernel_check", "kernel", kernel);
    need("tessera_kernel_check", "signature", signature);
    checked(kernel->kernel, signature);
  });
}
tessera_result tessera_kernel_variant(const tessera_kernel* kernel, const char** variant) {
  return guarded(__func__, [&] {
    need("tessera_kernel_variant", "kernel", kernel);
    need("tessera_kernel_variant", "variant", variant);
    *variant = kernel->variant.c_str();
  });
}
tessera_result tessera_kernel_variants(const tessera_kernel* kernel, const char** text) {
  return guarded(__func__, [&] {
    need("tessera_kernel_variants", "kernel", kernel);
    need("tessera_kernel_variants", "text", text);
    *text = kernel->variants.c_str();
  });
}
tessera_result tessera_kernel_argument_count(const tessera_kernel* kernel, int32_t* inputs, int32_t* outputs) {
  return guarded(__func__, [&] {
    need("tessera_kernel_argument_count", "kernel", kernel);
    if (inputs) *inputs = kernel->num_inputs;
    if (outputs) *outputs = static_cast<int32_t>(kernel->arguments.size()) - kernel->num_inputs;
  });
}
tessera_result tessera_kernel_argument(const tessera_kernel* kernel, int32_t index, tessera_argument_info* info) {
  return guarded(__func__, [&] {
    need("tessera_kernel_argument", "kernel", kernel);
    need("tessera_kernel_argument", "info", info);
    if (index < 0 || static_cast<size_t>(index) >= kernel->arguments.size())
      throw SpecError("tessera_kernel_argument: " + kernel->kernel.program().name + " has no argument " +
                      std::to_string(index) + ": their number is " + std::to_string(kernel->arguments.size()));
    const tessera_kernel::Argument& own = kernel->arguments[static_cast<size_t>(index)];
    const ProgramArg& a = kernel->kernel.program().args[static_cast<size_t>(index)];
    *info = {own.name.c_str(),
             own.shape.c_str(),
             own.sizes.data(),
             static_cast<tessera_dtype>(a.dtype),
             static_cast<int32_t>(a.shape.size()),
             a.is_output,
             a.alias};
  });
}

// ---- arrays

tessera_result tessera_array_create(tessera_device* device, tessera_dtype dtype, int32_t rank, const int64_t* shape,
                                    const void* data, tessera_array** array) {
  return guarded(__func__, [&] {
    need("tessera_array_create", "device", device);
    need("tessera_array_create", "array", array);
    const Shape dims = c::shape_of("tessera_array_create", dtype, rank, shape);
    const DType t = static_cast<DType>(dtype);
    *array = new tessera_array{data ? DeviceArray(device->device, dims, t, data) : DeviceArray(device->device, dims, t),
                               dims};
  });
}
void tessera_array_destroy(tessera_array* array) { delete array; }

tessera_result tessera_array_get_info(const tessera_array* array, tessera_dtype* dtype, int32_t* rank,
                                      const int64_t** shape, size_t* bytes) {
  return guarded(__func__, [&] {
    need("tessera_array_get_info", "array", array);
    const DeviceArray& a = array->array;
    const DType t = a.dtype();
    if (dtype) *dtype = static_cast<tessera_dtype>(t);
    if (rank) *rank = static_cast<int32_t>(array->shape.size());
    if (shape) *shape = array->shape.data();
    if (bytes) *bytes = static_cast<size_t>(a.nbytes());
  });
}
tessera_result tessera_array_write(tessera_array* array, const void* data, size_t bytes) {
  return guarded(__func__, [&] {
    need("tessera_array_write", "array", array);
    if (bytes > 0) need("tessera_array_write", "data", data);
    c::check_bytes("tessera_array_write", array->array, bytes);
    Array host(array->array.shape(), array->array.dtype());
    if (bytes > 0) std::memcpy(host.bytes(), data, bytes);
    array->array.write(host);
  });
}
tessera_result tessera_array_read(const tessera_array* array, void* data, size_t bytes) {
  return guarded(__func__, [&] {
    need("tessera_array_read", "array", array);
    if (bytes > 0) need("tessera_array_read", "data", data);
    c::check_bytes("tessera_array_read", array->array, bytes);
    array->array.download(data);
  });
}
tessera_result tessera_array_donate(tessera_array* array) {
  return guarded(__func__, [&] {
    need("tessera_array_donate", "array", array);
    array->array.buffer("tessera_array_donate");  // throws if it is gone
    array->donate = true;
  });
}
tessera_result tessera_array_keep(tessera_array* array) {
  return guarded(__func__, [&] {
    need("tessera_array_keep", "array", array);
    array->array.buffer("tessera_array_keep");  // throws if it is gone
    array->donate = false;
  });
}

// ---- numbers by value

namespace {
/// One element of that dtype.
Scalar scalar_of(const char* function, tessera_dtype dtype, const void* value) {
  if (!c::is_dtype(dtype)) throw SpecError(std::string(function) + ": there is no dtype " + std::to_string(dtype));
  need(function, "value", value);
  uint64_t bits = 0;
  const DType t = static_cast<DType>(dtype);
  std::memcpy(&bits, value, static_cast<size_t>(size_bytes(t)));
  return {t, is_int4(t) ? bits & 15 : t == DType::boolean ? bits != 0 : bits};
}
}  // namespace

tessera_result tessera_scalar_create(tessera_dtype dtype, const void* value, tessera_array** scalar) {
  return guarded(__func__, [&] {
    need("tessera_scalar_create", "scalar", scalar);
    *scalar = new tessera_array{DeviceArray(scalar_of("tessera_scalar_create", dtype, value)), {}, false, dtype};
  });
}
tessera_result tessera_scalar_set(tessera_array* scalar, const void* value) {
  return guarded(__func__, [&] {
    need("tessera_scalar_set", "scalar", scalar);
    if (!scalar->array.number())
      throw SpecError("tessera_scalar_set: scalar is an array", {}, "tessera_array_write() replaces its contents");
    scalar->array = DeviceArray(scalar_of("tessera_scalar_set", scalar->scalar_dtype, value));
  });
}
tessera_result tessera_kernel_argument_by_value(const tessera_kernel* kernel, int32_t index, int32_t* by_value) {
  return guarded(__func__, [&] {
    need("tessera_kernel_argument_by_value", "kernel", kernel);
    need("tessera_kernel_argument_by_value", "by_value", by_value);
    const Program& p = kernel->kernel.program();
    if (index < 0 || static_cast<size_t>(index) >= p.args.size())
      throw SpecError("tessera_kernel_argument_by_value: " + p.name + " has no argument " + std::to_string(index) +
                      ": their number is " + std::to_string(p.args.size()));
    *by_value = p.args[static_cast<size_t>(index)].by_value;
  });
}

// ---- calls

tessera_result tessera_launch(const tessera_kernel* kernel, tessera_array* const* inputs, int32_t num_inputs,
                              tessera_array** outputs, int32_t num_outputs, const tessera_size* sizes,
                              int32_t num_sizes) {
  return guarded(__func__, [&] {
    need("tessera_launch", "kernel", kernel);
    const Program& p = kernel->kernel.program();
    const auto made = static_cast<int32_t>(kernel->arguments.size()) - kernel->num_inputs;
    c::check_counts(p.name, p.loc, kernel->signature, {kernel->num_inputs, made}, {num_inputs, num_outputs});
    if (num_inputs > 0) need("tessera_launch", "inputs", inputs);
    if (num_outputs > 0) need("tessera_launch", "outputs", outputs);
    const Device& device = kernel->kernel.device();
    std::vector<DeviceArray> arguments;
    std::vector<std::pair<DType, Shape>> types;
    for (int32_t i = 0; i < num_inputs; ++i) {
      if (!inputs[i])
        throw SpecError(p.name + ": argument " + std::to_string(i) + " (" +
                            kernel->arguments[static_cast<size_t>(i)].name + ") is NULL",
                        p.loc);
      if (inputs[i]->array.number() && !p.args[static_cast<size_t>(i)].by_value)
        throw SpecError(p.name + ": argument " + std::to_string(i) + " (" +
                            kernel->arguments[static_cast<size_t>(i)].name +
                            ") is a number, but the kernel takes an array",
                        p.loc, "make an array of rank 0 with tessera_array_create");
      if (p.args[static_cast<size_t>(i)].by_value) types.emplace_back(p.args[static_cast<size_t>(i)].dtype, Shape{});
      else types.emplace_back(inputs[i]->array.dtype(), inputs[i]->array.shape());
      arguments.push_back(inputs[i]->donate ? donate(inputs[i]->array) : inputs[i]->array);
    }
    const DimValues dims = c::dims_of("tessera_launch", p.name, p.loc, sizes, num_sizes);
    std::vector<DeviceArray> into;
    std::vector<std::pair<DType, Shape>> wanted;
    for (int32_t i = 0; i < num_outputs; ++i) {
      const int alias = p.args[static_cast<size_t>(num_inputs + i)].alias;
      if (outputs[i]) {
        for (int32_t j = 0; j < num_inputs; ++j)
          if (!inputs[j]->array.number() && inputs[j]->array.buffer(p.name) &&
              inputs[j]->array.buffer(p.name) == outputs[i]->array.buffer(p.name))
            throw SpecError(p.name + ": output " + std::to_string(i) + " (" +
                                kernel->arguments[static_cast<size_t>(num_inputs + i)].name + ") is argument " +
                                std::to_string(j) + " too",
                            p.loc, "an output of a call is an array of its own, or NULL");
        into.push_back(outputs[i]->array);
      } else if (alias >= 0 && inputs[alias]->donate) {
        into.emplace_back();
      } else {
        if (wanted.empty()) wanted = output_types(p, types, dims);
        into.emplace_back(device, wanted[static_cast<size_t>(i)].second, wanted[static_cast<size_t>(i)].first);
      }
    }
    std::vector<std::unique_ptr<tessera_array>> fresh;
    for (int32_t i = 0; i < num_outputs; ++i) fresh.push_back(outputs[i] ? nullptr : std::make_unique<tessera_array>());
    const std::vector<DeviceArray> results = launch_into(device, p, arguments, into, dims);
    for (int32_t i = 0; i < num_outputs; ++i) {
      if (!fresh[static_cast<size_t>(i)]) continue;
      fresh[static_cast<size_t>(i)]->array = results[static_cast<size_t>(i)];
      fresh[static_cast<size_t>(i)]->shape = results[static_cast<size_t>(i)].shape();
      outputs[i] = fresh[static_cast<size_t>(i)].release();
    }
  });
}
