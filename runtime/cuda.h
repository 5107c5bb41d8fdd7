// CudaDevice: an NVIDIA GPU through NVIDIA's own driver (libcuda, found at run time; no toolkit), which runs Programs
// of PTX (Target::nvidia), on arrays in host memory or on CudaArrays, which stay in the GPU's. The same GPU is a Vulkan
// Device too (device.h). Read next: codegen/nvidia/README.md, for what a launch passes to the code.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "engine/base/array.h"
#include "engine/base/host_array.h"
#include "engine/base/print_text.h"
#include "engine/base/scalar.h"

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
  bool ends_long_kernels = false;  // after some seconds, since it drives a display
  std::vector<std::string> lacks;  // what Tessera needs and the device has not; empty: usable
  Target target;                   // the newest chip of Target::nvidia whose code runs here
};

/// Every GPU that NVIDIA's driver shows; empty where there is no such driver. Throws DeviceError if the driver fails.
std::vector<CudaDeviceInfo> list_cuda_devices(const CudaOptions& options = {});

/// The N of "cuda:N" ("cuda" is 0), in `select` or, if that is empty, in TESSERA_DEVICE; none for other devices. Throws
/// DeviceError for another text that begins with "cuda:".
std::optional<int> cuda_selected(std::string_view select = {});

class CudaArray;

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

  /// The same into arrays of the caller's, dense and row-major, from others like them, which are only read. An output
  /// may lie where the input that it is aliased to does.
  void run_into(const Program& program, std::span<const HostArray> inputs, std::span<const HostArray> outputs,
                const DimValues& dims = {}) const;

  /// The same on arrays of this device, without copies to or from the host. Returns when the call is queued; where the
  /// program prints or checks, when it is done. Inputs are not changed: one that is aliased to an output, or that the
  /// program stores to, is copied, unless it is donated: device.launch(program, {donate(x)}). A kernel that fails later
  /// than this returns is told of by what next waits for the device.
  std::vector<CudaArray> launch(const Program& program, const std::vector<CudaArray>& inputs,
                                const DimValues& dims = {}) const;
  /// Returns when all that is queued has been done. Throws DeviceError if the driver fails, or a kernel has.
  void wait() const;

  /// A call through this handle or its copies has failed in a way that ends all work of the process on the device (say,
  /// an access to no memory): every later one throws a DeviceError that says which kernel was running.
  bool lost() const;
  /// If it was lost, makes this handle one of the same device with a new context of the driver's, with the same options
  /// and all that has been compiled for it. Other handles (copies, those inside arrays) stay with the lost one, whose
  /// arrays have lost what they held. Throws DeviceError where the driver gives the process no new context (NVIDIA
  /// promises none after a kernel's fault), or another handle or library still holds the old one: then a new process
  /// can use the device.
  void recover();
  bool operator==(const CudaDevice&) const = default;

  const std::shared_ptr<cuda::Context>& context() const { return context_; }  ///< for runtime/ itself

 private:
  std::shared_ptr<cuda::Context> context_;
};

/// A dense row-major array in an NVIDIA GPU's memory. Copies are handles to the same memory. What calls do with it is
/// done in the order of the calls.
class CudaArray {
 public:
  /// No array: every use of it throws SpecError.
  CudaArray() = default;
  /// Unspecified contents. Throws SpecError on a negative size, DeviceError if the device cannot hold it.
  CudaArray(const CudaDevice& device, Shape shape, DType dtype);
  /// A copy of a host array, which may be changed or gone when this returns.
  CudaArray(const CudaDevice& device, const Array& host);
  /// A number for an argument by value (ts::by_value): device.launch(program, {x, 0.5f}).
  template <ScalarNumber T>
  CudaArray(T number) : number_(number) {}  // NOLINT: implicit on purpose

  /// Memory of another library of the process, on the same GPU, used in place: what DLPack and __cuda_array_interface__
  /// describe. `address` is that of element 0 and a multiple of 16; the elements lie row by row, and take a multiple of
  /// 4 bytes. What other streams do with the memory has to be done when a call is made that uses it; other streams find
  /// it done after wait(). `owner` keeps the memory, and is let go when no call uses it any more. SpecError otherwise.
  static CudaArray import(const CudaDevice& device, uint64_t address, Shape shape, DType dtype,
                          std::shared_ptr<const void> owner);

  const Shape& shape() const;
  DType dtype() const;
  int64_t nbytes() const { return num_elements(shape()) * size_bytes(dtype()); }
  const CudaDevice& device() const;
  /// Where element 0 lies, for other libraries of the process; 0 without elements.
  uint64_t address() const;
  const std::optional<Scalar>& number() const { return number_; }  ///< if it is one

  /// Waits for the calls that were made, and copies it to the host.
  Array download() const;
  /// This array as an argument of one call that may keep its memory: every later use of the array, through any handle,
  /// throws SpecError.
  friend CudaArray donate(CudaArray x);

 private:
  friend class cuda::Context;
  struct State;
  State& get(const char* use) const;
  std::shared_ptr<State> state_;
  std::optional<Scalar> number_;
  bool donated_ = false;
};
CudaArray donate(CudaArray x);

/// Made at its first use: the device that TESSERA_DEVICE names. What calls on host arrays use where that is "cuda:N".
CudaDevice& default_cuda_device();

}  // namespace tessera
