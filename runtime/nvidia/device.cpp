// The GPUs that NVIDIA's driver shows, as Targets; and CudaDevice.
#include "runtime/device.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "runtime/nvidia/context.h"

namespace tessera {
namespace cuda {
namespace {

int attribute(const Driver& d, DeviceAttribute which, Ordinal ordinal, const std::string& device) {
  int value = 0;
  d.check(d.cuDeviceGetAttribute(&value, which, ordinal), "cuDeviceGetAttribute", device);
  return value;
}

CudaDeviceInfo describe(const Driver& d, int index, int driver_version) {
  CudaDeviceInfo info;
  info.index = index;
  info.driver_version = driver_version;
  const std::string device = "cuda:" + std::to_string(index);
  Ordinal ordinal = 0;
  d.check(d.cuDeviceGet(&ordinal, index), "cuDeviceGet", device);
  std::array<char, 256> name{};
  d.check(d.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, ordinal), "cuDeviceGetName", device);
  info.name = name.data();
  size_t bytes = 0;
  d.check(d.cuDeviceTotalMem_v2(&bytes, ordinal), "cuDeviceTotalMem_v2", device);
  info.memory_bytes = static_cast<int64_t>(bytes);
  info.major = attribute(d, DeviceAttribute::major, ordinal, device);
  info.minor = attribute(d, DeviceAttribute::minor, ordinal, device);
  info.ends_long_kernels = attribute(d, DeviceAttribute::kernel_timeout, ordinal, device) != 0;
  const std::optional<Target> target = Target::nvidia_for(info.major, info.minor, driver_version);
  if (!target) {
    const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
    if (info.major < 8)
      info.lacks.push_back("compute capability 8.0 or later (it has " + std::to_string(info.major) + "." +
                           std::to_string(info.minor) + ")");
    else info.lacks.push_back("a driver of CUDA 11.8 or later (it has " + version(driver_version) + ")");
    return info;
  }
  info.target = *target;
  Target& t = info.target;
  t.compute_units = attribute(d, DeviceAttribute::multiprocessor_count, ordinal, device);
  t.max_workgroup_size =
      std::min(t.max_workgroup_size, attribute(d, DeviceAttribute::max_threads_per_block, ordinal, device));
  t.shared_bytes =
      std::min<int64_t>(t.shared_bytes, attribute(d, DeviceAttribute::max_shared_per_block_optin, ordinal, device));
  t.max_buffer_bytes = info.memory_bytes;
  return info;
}

std::vector<CudaDeviceInfo> describe_all(const Driver& d) {
  int count = 0, version = 0;
  d.check(d.cuDriverGetVersion(&version), "cuDriverGetVersion", "NVIDIA's driver");
  d.check(d.cuDeviceGetCount(&count), "cuDeviceGetCount", "NVIDIA's driver");
  std::vector<CudaDeviceInfo> all;
  for (int i = 0; i < count; ++i) all.push_back(describe(d, i, version));
  return all;
}

}  // namespace
}  // namespace cuda

std::vector<CudaDeviceInfo> list_cuda_devices(const CudaOptions& options) {
  const auto driver = cuda::Driver::open(options.library);
  return driver ? cuda::describe_all(*driver) : std::vector<CudaDeviceInfo>{};
}

std::optional<int> cuda_selected(std::string_view select) {
  std::string given = select.empty() ? device_in_environment() : std::string(select);
  for (char& c : given) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));  // as names of Vulkan's are
  if (given == "cuda") return 0;
  if (!given.starts_with("cuda:")) return std::nullopt;
  int n = 0;
  const auto [rest, error] = std::from_chars(given.data() + 5, given.data() + given.size(), n);
  if (error != std::errc() || rest != given.data() + given.size() || n < 0)
    throw DeviceError((select.empty() ? "TESSERA_DEVICE=\"" : "device \"") + given + "\": a number follows \"cuda:\"",
                      {}, "tessera devices lists the devices");
  return n;
}

CudaDevice::CudaDevice(int index, const CudaOptions& options) {
  const std::string device = "device cuda:" + std::to_string(index);
  const auto driver = cuda::Driver::open(options.library);
  if (!driver)
    throw DeviceError(device + ": there is no NVIDIA GPU, or no driver of NVIDIA's (libcuda) for it", {},
                      "install NVIDIA's driver, or set TESSERA_DEVICE to a Vulkan device or interpreter");
  std::vector<CudaDeviceInfo> all = cuda::describe_all(*driver);
  if (index < 0 || static_cast<size_t>(index) >= all.size()) {
    std::string listing;
    for (const CudaDeviceInfo& i : all) listing += "\n  cuda:" + std::to_string(i.index) + ": " + i.name;
    throw DeviceError(device + " is none of NVIDIA's devices:" + listing);
  }
  CudaDeviceInfo& info = all[static_cast<size_t>(index)];
  if (!info.lacks.empty())
    throw DeviceError(device + " (" + info.name + ") cannot run Tessera: lacks " + info.lacks.front());
  context_ = std::make_shared<cuda::Context>(driver, std::move(info), options);
}

const CudaDeviceInfo& CudaDevice::info() const { return context_->info(); }
bool CudaDevice::lost() const { return context_->lost(); }
void CudaDevice::recover() {
  if (lost()) context_ = context_->again();
}
std::vector<Array> CudaDevice::run(const Program& program, const std::vector<Array>& inputs,
                                   const DimValues& dims) const {
  return context_->run(program, inputs, dims);
}

void CudaDevice::run_into(const Program& program, std::span<const HostArray> inputs, std::span<const HostArray> outputs,
                          const DimValues& dims) const {
  context_->run_into(program, inputs, outputs, dims);
}

std::vector<CudaArray> CudaDevice::launch(const Program& program, const std::vector<CudaArray>& inputs,
                                          const DimValues& dims) const {
  return context_->launch(*this, program, inputs, dims);
}
void CudaDevice::wait() const { context_->wait(); }

CudaDevice& default_cuda_device() {
  // Never destroyed: the driver may be gone by the time that static objects are, and gives back what it holds itself.
  static CudaDevice& device = *new CudaDevice(cuda_selected().value_or(0));
  return device;
}

}  // namespace tessera
