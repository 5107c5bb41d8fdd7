// CudaDevice: an NVIDIA GPU through NVIDIA's own driver (libcuda, found at run time; no toolkit), which runs Programs
// of PTX (Target::nvidia). It takes and gives arrays in host memory. The same GPU is a Vulkan Device too (device.h),
// with arrays that stay in its memory. Read next: codegen/nvidia/README.md, for what a launch passes to the code.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "engine/base/array.h"
#include "engine/base/print_text.h"

namespace tessera {

namespace cuda {
class Context;
}

struct CudaOptions {
  /// Takes what kernels print, line by line; without it that goes to stdout.
  PrintCallback print = {};
  /// Room for what one call prints or its checks say, in bytes (at most 1 GiB).
  int64_t print_bytes = int64_t{1} << 20;
  /// The driver's library to open instead of the system's.
  std::string library;
};

struct CudaDeviceInfo {
  int index = 0;                   // the N of "cuda:N"
  std::string name;                // "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;        // compute capability
  int driver_version = 0;          // the newest CUDA that the driver knows: 12040 is 12.4
  int64_t memory_bytes = 0;        // of the GPU
  std::vector<std::string> lacks;  // what Tessera needs and the device has not; empty: usable
  Target target;                   // the newest chip of Target::nvidia whose code runs here
};

/// Every GPU that NVIDIA's driver shows; empty where there is no such driver. Throws DeviceError if the driver fails.
std::vector<CudaDeviceInfo> list_cuda_devices(const CudaOptions& options = {});

/// The N of "cuda:N" ("cuda" is 0), in `select` or, if that is empty, in TESSERA_DEVICE; none for other devices. Throws
/// DeviceError for another text that begins with "cuda:".
std::optional<int> cuda_selected(std::string_view select = {});

/// A handle that copies share. Any number of threads may use it; calls run one after another.
class CudaDevice {
 public:
  /// Throws DeviceError, saying what to install or listing the devices, if there is no such device.
  explicit CudaDevice(int index = 0, const CudaOptions& options = {});
  const CudaDeviceInfo& info() const;
  const Target& target() const { return info().target; }

  /// Copies the inputs to the GPU, runs the program there, and returns the outputs when it is done. What the program
  /// does not write of an output is unspecified, or where it is aliased to an input its contents. The driver's code for
  /// a program is kept with the device. Throws SpecError on arguments that do not fit, KernelError if a check of the
  /// kernel failed, DeviceError if the driver fails.
  std::vector<Array> run(const Program& program, const std::vector<Array>& inputs, const DimValues& dims = {}) const;

  /// A call through this handle or its copies has failed in a way that ends all work of the process on the device (say,
  /// an access to no memory): every later one throws a DeviceError that says which kernel was running. A new process
  /// can use the device.
  bool lost() const;
  bool operator==(const CudaDevice&) const = default;

  const std::shared_ptr<cuda::Context>& context() const { return context_; }  ///< for runtime/ itself

 private:
  std::shared_ptr<cuda::Context> context_;
};

/// Made at its first use: the device that TESSERA_DEVICE names. What calls on host arrays use where that is "cuda:N".
CudaDevice& default_cuda_device();

}  // namespace tessera
