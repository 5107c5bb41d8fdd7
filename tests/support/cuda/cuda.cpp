// NVIDIA's driver as far as runtime/nvidia uses it, without a GPU: libcuda.so.1 for tests, which runs kernels on the
// emulator of PTX (tests/ptx). It does what is queued as late as it may, when the stream is waited for; it says what
// the real driver would leave undefined (control.h), counts what there is, and fails where a test tells it to.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/ptx/emulator.h"
#include "tests/support/cuda/control.h"

namespace {

namespace ptx = tessera::ptx;
using Status = int;
using Address = uint64_t;
enum : Status {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialised = 3,
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  invalid_ptx = 218,
  unsupported_ptx = 222,
  invalid_handle = 400,
  not_found = 500,
  illegal_address = 700,
  out_of_resources = 701,
  launch_timeout = 702,
  misaligned_address = 716,
  launch_failed = 719,
};

struct Function {
  std::string name;
  const struct Module* module = nullptr;
  int64_t dynamic_shared = 48 << 10;
};
struct Module {
  ptx::Module code;
  std::map<std::string, std::unique_ptr<Function>> functions;
};
struct Allocation {
  size_t bytes = 0;
  std::unique_ptr<std::byte[]> storage;
  std::byte* first = nullptr;
  bool written = false;
};
struct Stream {
  std::deque<std::function<Status()>> queue;
};

std::recursive_mutex mutex;
FakeCudaDevice device;
bool initialised = false;
int retained = 0;
int context_object = 0;                   // whose address is the context's handle
thread_local std::vector<void*> current;  // the stack of contexts
int pushed = 0;
std::map<Module*, std::unique_ptr<Module>> modules;
std::map<Stream*, std::unique_ptr<Stream>> streams;
std::map<Address, Allocation> memory;
uint64_t used = 0;
Status ended = success;  // what every call says after a kernel's fault
std::string misused;
/// As on a GPU: what nobody has written is some number, and no fault when a kernel depends on it.
const bool every_byte_is_a_number = std::getenv("FAKE_CUDA_UNWRITTEN") != nullptr;
std::map<std::string, int> calls;
std::string failing;
int fails_after = 0;
Status fails_with = success;

/// What cuTensorMapEncodeTiled has made: a map's bytes say which of these it is.
struct Tensor {
  ptx::TensorMap map;  // its buffer is still unknown
  Address address = 0;
};
std::vector<Tensor> tensors;
constexpr uint64_t kTensorMark = 0x7e11ab1e7e450125;
constexpr size_t kTensorBytes = 128, kTensorAlignment = 64;

void misuse(const std::string& what) {
  if (misused.empty()) misused = what;
}

/// What a function says before it does anything.
Status begin(const char* function, bool in_context) {
  const int number = calls[function]++;
  if (failing == function && number == fails_after) {
    if (fails_with >= 700)  // ends the context: nothing that is queued in it begins
      for (const auto& [stream, owned] : streams) stream->queue.clear();
    return fails_with;
  }
  if (!initialised && std::string(function) != "cuInit") return not_initialised;
  if (in_context && current.empty()) return invalid_context;
  if (in_context && retained == 0) misuse(std::string(function) + ": the context has been released");
  return in_context ? ended : success;
}

std::map<Address, Allocation>::iterator allocation_of(Address a) {
  auto it = memory.upper_bound(a);
  if (it == memory.begin()) return memory.end();
  --it;
  return a - it->first < it->second.bytes ? it : memory.end();
}
/// The bytes, or null and what is wrong with them said.
std::byte* bytes_at(const char* function, Address a, size_t bytes, bool write) {
  const auto it = allocation_of(a);
  if (it == memory.end() || a - it->first + bytes > it->second.bytes) {
    misuse(std::string(function) + ": " + std::to_string(bytes) + " bytes are in no allocation");
    return nullptr;
  }
  if (write) it->second.written = true;
  return it->second.first + (a - it->first);
}

Status run(const Function& f, ptx::Launch launch) {
  std::vector<Address> starts;
  for (auto& [address, allocation] : memory) {
    ptx::Buffer b;
    b.name = "allocation " + std::to_string(starts.size());
    b.bytes = {allocation.first, allocation.bytes};
    b.initialised = allocation.written || every_byte_is_a_number;
    b.may_hold_poison = true;
    launch.buffers.push_back(b);
    starts.push_back(address);
  }
  for (size_t at = 0; at + 8 <= launch.parameters.size(); at += 8) {
    Address a;
    std::memcpy(&a, &launch.parameters[at], 8);
    const auto it = allocation_of(a);
    if (it == memory.end()) continue;
    const auto number = static_cast<uint32_t>(std::find(starts.begin(), starts.end(), it->first) - starts.begin());
    launch.addresses.push_back({at, number, static_cast<int64_t>(a - it->first), ptx::kNone});
  }
  for (size_t at = 0; at + kTensorBytes <= launch.parameters.size(); at += kTensorAlignment) {
    uint64_t words[2];
    std::memcpy(words, &launch.parameters[at], sizeof words);
    if (words[0] != kTensorMark || words[1] >= tensors.size()) continue;
    const Tensor& t = tensors[words[1]];
    const auto it = allocation_of(t.address);
    if (it == memory.end()) return illegal_address;
    ptx::TensorMap map = t.map;
    map.buffer = static_cast<uint32_t>(std::find(starts.begin(), starts.end(), it->first) - starts.begin());
    map.offset = t.address - it->first;
    launch.tensors.push_back({at, std::move(map)});
  }
  for (auto& [address, allocation] : memory) allocation.written = true;  // as far as it needs to be known
  try {
    const ptx::Result r = ptx::run(f.module->code, launch);
    if (r.ok()) return success;
    if (std::getenv("FAKE_CUDA_SAYS")) std::fprintf(stderr, "%s\n", r.text.c_str());
    return r.fault == ptx::Fault::bounds      ? illegal_address
           : r.fault == ptx::Fault::alignment ? misaligned_address
                                              : launch_failed;
  } catch (const ptx::Error& e) {
    if (std::getenv("FAKE_CUDA_SAYS")) std::fprintf(stderr, "%s\n", e.what());
    return launch_failed;
  }
}

}  // namespace

#define BEGIN(in_context)            \
  const std::lock_guard lock(mutex); \
  if (const Status s = begin(__func__, in_context)) return s

extern "C" {

void fake_cuda_describe(const FakeCudaDevice* d) { device = *d; }
void fake_cuda_fail(const char* function, int after, int status) {
  const std::lock_guard lock(mutex);
  failing = function ? function : "";
  fails_after = after, fails_with = status;
  calls.clear();
}
int fake_cuda_calls(const char* function) { return calls[function]; }
int fake_cuda_live() { return static_cast<int>(modules.size() + streams.size() + memory.size()) + retained + pushed; }
const char* fake_cuda_misuse() { return misused.c_str(); }
void fake_cuda_reset() { ended = success, misused.clear(); }

Status cuInit(unsigned flags) {
  BEGIN(false);
  if (flags != 0) return invalid_value;
  initialised = true;
  return device.count == 0 ? no_device : success;
}
Status cuDriverGetVersion(int* version) {
  BEGIN(false);
  *version = device.driver_version;
  return success;
}
Status cuGetErrorName(Status status, const char** text) {
  static const std::map<Status, const char*> names = {
      {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},     {invalid_value, "CUDA_ERROR_INVALID_VALUE"},
      {invalid_ptx, "CUDA_ERROR_INVALID_PTX"},         {unsupported_ptx, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {launch_failed, "CUDA_ERROR_LAUNCH_FAILED"},
      {launch_timeout, "CUDA_ERROR_LAUNCH_TIMEOUT"}};
  const auto it = names.find(status);
  *text = it == names.end() ? nullptr : it->second;
  return *text ? success : invalid_value;
}
Status cuGetErrorString(Status status, const char** text) {
  static std::map<Status, std::string> texts;
  const std::lock_guard lock(mutex);
  *text = texts.emplace(status, "error " + std::to_string(status) + " of the fake").first->second.c_str();
  return success;
}
Status cuDeviceGetCount(int* count) {
  BEGIN(false);
  *count = device.count;
  return success;
}
Status cuDeviceGet(int* ordinal, int index) {
  BEGIN(false);
  if (index < 0 || index >= device.count) return invalid_device;
  *ordinal = index;
  return success;
}
Status cuDeviceGetName(char* name, int size, int ordinal) {
  BEGIN(false);
  if (ordinal < 0 || ordinal >= device.count) return invalid_device;
  std::strncpy(name, "A GPU that is none", static_cast<size_t>(size));
  return success;
}
Status cuDeviceGetAttribute(int* value, int which, int) {
  BEGIN(false);
  const std::map<int, int> values = {
      {1, 1024}, {16, 4}, {17, device.drives_display}, {75, device.major}, {76, device.minor}, {97, 227 << 10}};
  const auto it = values.find(which);
  if (it == values.end()) return invalid_value;
  *value = it->second;
  return success;
}
Status cuDeviceTotalMem_v2(size_t* bytes, int) {
  BEGIN(false);
  *bytes = device.memory_bytes;
  return success;
}
Status cuDevicePrimaryCtxRetain(void** context, int) {
  BEGIN(false);
  ++retained;
  *context = &context_object;
  return success;
}
Status cuDevicePrimaryCtxRelease_v2(int) {
  BEGIN(false);
  if (retained == 0) return invalid_context;
  if (--retained > 0) return success;
  // What is left goes with the context. Only where a function was told to fail may a caller have lost hold of it.
  if (ended == success && (!memory.empty() || (failing.empty() && modules.size() + streams.size() > 0)))
    misuse("cuDevicePrimaryCtxRelease_v2: the context still has memory, modules or streams");
  memory.clear(), modules.clear(), streams.clear();
  used = 0;
  if (device.recovers) ended = success;
  return success;
}
Status cuCtxPushCurrent_v2(void* context) {
  BEGIN(false);
  if (context != &context_object || retained == 0) return invalid_context;
  current.push_back(context);
  ++pushed;
  return success;
}
Status cuCtxPopCurrent_v2(void** context) {
  BEGIN(false);
  if (current.empty()) return invalid_context;
  *context = current.back();
  current.pop_back();
  --pushed;
  return success;
}
Status cuStreamCreate(Stream** stream, unsigned flags) {
  BEGIN(true);
  if (flags > 1) return invalid_value;
  auto made = std::make_unique<Stream>();
  *stream = made.get();
  streams.emplace(made.get(), std::move(made));
  return success;
}
Status cuStreamSynchronize(Stream* stream) {
  BEGIN(true);
  if (reinterpret_cast<uintptr_t>(stream) <= 2)
    return success;  // the legacy stream, and the thread's own: none is used
  if (!streams.count(stream)) return invalid_handle;
  while (!stream->queue.empty() && ended == success) {
    ended = stream->queue.front()();
    stream->queue.pop_front();
  }
  stream->queue.clear();
  return ended;
}
Status cuStreamDestroy_v2(Stream* stream) {
  const std::lock_guard lock(mutex);
  ++calls[__func__];
  if (!streams.count(stream)) return invalid_handle;
  if (!stream->queue.empty()) misuse("cuStreamDestroy_v2: the stream is at work");
  streams.erase(stream);
  return success;
}
Status cuModuleLoadDataEx(Module** module, const void* text, unsigned count, const int* options, void** values) {
  BEGIN(true);
  char* log = nullptr;
  size_t room = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == 5) log = static_cast<char*>(values[i]);
    else if (options[i] == 6) room = reinterpret_cast<size_t>(values[i]);
    else return invalid_value;
  }
  auto made = std::make_unique<Module>();
  try {
    made->code = ptx::parse(static_cast<const char*>(text));
  } catch (const ptx::Error& e) {
    if (log && room) log[std::string(e.what()).copy(log, room - 1)] = 0;
    return invalid_ptx;
  }
  *module = made.get();
  modules.emplace(made.get(), std::move(made));
  return success;
}
Status cuModuleGetFunction(Function** function, Module* module, const char* name) {
  BEGIN(true);
  if (!modules.count(module)) return invalid_handle;
  if (!module->code.find(name)) return not_found;
  auto& f = module->functions[name];
  if (!f) f = std::make_unique<Function>(Function{name, module});
  *function = f.get();
  return success;
}
Status cuModuleUnload(Module* module) {
  const std::lock_guard lock(mutex);
  ++calls[__func__];
  return modules.erase(module) ? success : invalid_handle;
}
Status cuFuncSetAttribute(Function* function, int which, int value) {
  BEGIN(true);
  if (which != 8 || value < 0 || value > 227 << 10) return invalid_value;
  function->dynamic_shared = value;
  return success;
}
Status cuMemAlloc_v2(Address* address, size_t bytes) {
  BEGIN(true);
  if (bytes == 0) return invalid_value;
  if (bytes > device.memory_bytes - used) return out_of_memory;
  Allocation a;
  a.bytes = bytes;
  a.storage = std::make_unique<std::byte[]>(bytes + 256);
  std::memset(a.storage.get(), 0xa5, bytes + 256);
  a.first = a.storage.get() + (256 - reinterpret_cast<uintptr_t>(a.storage.get()) % 256);
  *address = reinterpret_cast<Address>(a.first);
  memory.emplace(*address, std::move(a));
  used += bytes;
  return success;
}
Status cuMemFree_v2(Address address) {
  const std::lock_guard lock(mutex);
  ++calls[__func__];
  if (current.empty()) misuse("cuMemFree_v2: no context is current");
  const auto it = memory.find(address);
  if (it == memory.end()) return invalid_value;
  for (const auto& [stream, own] : streams)
    if (!stream->queue.empty()) misuse("cuMemFree_v2: a stream is at work");
  used -= it->second.bytes;
  memory.erase(it);
  return ended;
}
Status cuMemGetInfo_v2(size_t* available, size_t* total) {
  BEGIN(true);
  *available = device.memory_bytes - used, *total = device.memory_bytes;
  return success;
}
Status cuMemsetD8Async(Address address, unsigned char value, size_t bytes, Stream* stream) {
  BEGIN(true);
  if (!streams.count(stream)) return invalid_handle;
  stream->queue.emplace_back([=] {
    if (std::byte* to = bytes_at("cuMemsetD8Async", address, bytes, true)) std::memset(to, value, bytes);
    return success;
  });
  return success;
}
Status cuMemcpyHtoDAsync_v2(Address address, const void* from, size_t bytes, Stream* stream) {
  BEGIN(true);
  if (!streams.count(stream)) return invalid_handle;
  stream->queue.emplace_back([=] {
    if (std::byte* to = bytes_at("cuMemcpyHtoDAsync_v2", address, bytes, true)) std::memcpy(to, from, bytes);
    return success;
  });
  return success;
}
Status cuMemcpyDtoHAsync_v2(void* to, Address address, size_t bytes, Stream* stream) {
  BEGIN(true);
  if (!streams.count(stream)) return invalid_handle;
  stream->queue.emplace_back([=] {
    if (std::byte* from = bytes_at("cuMemcpyDtoHAsync_v2", address, bytes, false)) std::memcpy(to, from, bytes);
    return success;
  });
  return success;
}
Status cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
  BEGIN(true);
  if (!streams.count(stream)) return invalid_handle;
  stream->queue.emplace_back([=] {
    const std::byte* source = bytes_at("cuMemcpyDtoDAsync_v2", from, bytes, false);
    std::byte* target = bytes_at("cuMemcpyDtoDAsync_v2", to, bytes, true);
    if (source && target) std::memmove(target, source, bytes);
    return success;
  });
  return success;
}
Status cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream* stream, void** parameters,
                      void** extra) {
  BEGIN(true);
  if (!streams.count(stream)) return invalid_handle;
  const bool empty = grid_x * uint64_t{grid_y} * grid_z == 0 || block_x * uint64_t{block_y} * block_z == 0;
  if (empty || (parameters && extra) || block_x * uint64_t{block_y} * block_z > 1024) return invalid_value;
  if (static_cast<int64_t>(shared_bytes) > function->dynamic_shared) return out_of_resources;
  ptx::Launch launch;
  launch.entry = function->name;
  launch.grid[0] = grid_x, launch.grid[1] = grid_y, launch.grid[2] = grid_z;
  launch.block[0] = block_x, launch.block[1] = block_y, launch.block[2] = block_z;
  launch.dynamic_shared = shared_bytes;
  launch.inexact = false;
  if (extra) {
    if (extra[0] != reinterpret_cast<void*>(1) || extra[2] != reinterpret_cast<void*>(2) || extra[4])
      return invalid_value;
    const auto* block = static_cast<const std::byte*>(extra[1]);
    launch.parameters.assign(block, block + *static_cast<const size_t*>(extra[3]));
  }
  // A single parameter, as the entry has it.
  if (parameters) {
    const auto* block = static_cast<const std::byte*>(parameters[0]);
    launch.parameters.assign(block, block + function->module->code.find(function->name)->param_bytes);
  }
  if (launch.parameters.size() != function->module->code.find(function->name)->param_bytes)
    misuse("cuLaunchKernel: " + std::to_string(launch.parameters.size()) +
           " bytes of parameters, but the entry takes " +
           std::to_string(function->module->code.find(function->name)->param_bytes));
  stream->queue.emplace_back([function, launch] { return run(*function, launch); });
  return success;
}

Status cuTensorMapEncodeTiled(void* map, int type, unsigned rank, Address address, const uint64_t* sizes,
                              const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleaving,
                              int swizzle, int promotion, int outside) {
  BEGIN(false);
  const std::map<int, ptx::Type> types = {{0, ptx::Type::u8}, {6, ptx::Type::f16}, {9, ptx::Type::bf16}};
  const auto known = types.find(type);
  if (known == types.end() || rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(map) % 64 != 0 || address % 16 != 0 ||
      interleaving != 0 || swizzle != 3 || promotion < 0 || promotion > 3 || outside != 0)
    return invalid_value;
  Tensor t;
  t.address = address;
  t.map.type = known->second;
  t.map.swizzle = ptx::TensorMap::b128;
  for (unsigned i = 0; i < rank; ++i) {
    if (sizes[i] == 0 || box[i] == 0 || box[i] > 256 || steps[i] != 1 || (i + 1 < rank && strides[i] % 16 != 0))
      return invalid_value;
    t.map.dims.push_back(sizes[i]);
    t.map.box.push_back(box[i]);
    if (i + 1 < rank) t.map.strides.push_back(strides[i]);
  }
  const uint64_t words[2] = {kTensorMark, tensors.size()};
  std::memset(map, 0, kTensorBytes);
  std::memcpy(map, words, sizeof words);
  tensors.push_back(std::move(t));
  return success;
}

}  // extern "C"
