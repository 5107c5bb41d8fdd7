// Device: a Vulkan device that runs Programs, as a handle that copies share. It can be chosen, describes itself (as a
// Target for codegen), and can be waited for. No Vulkan header is needed to use it. Several calls may be in flight: no
// function waits unless it says so. Any number of threads may use one Device. Read next: device_array.h, launch.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program/target.h"
#include "engine/base/print_text.h"
#include "runtime/log.h"
#include "runtime/order.h"

struct VkAllocationCallbacks;  // of vulkan_core.h

namespace tessera {

namespace vulkan {
class Context;
}
struct ImportedDevice;

struct DeviceOptions {
  /// Index in list_devices() or a part of the name, in any case; empty: the environment's TESSERA_DEVICE, else the best
  /// device.
  std::string select;
  /// Core and synchronisation validation. Messages are collected; where TESSERA_VALIDATION=1 switched it on, or `log`
  /// is set, they are logged too (log.h).
  bool validation = false;
  /// Keep a log for find_unordered() (order.h). It grows with every call.
  bool log_commands = false;
  /// Kernels are compiled with debug info (CompileOptions::debug_info), and Vulkan's objects and commands have names,
  /// for tools like RenderDoc and for validation messages. The environment's TESSERA_DEBUG_INFO=1 sets it too.
  bool debug_info = false;
  /// Takes this device's validation messages as they come, instead of the process' callback (set_log()) or stderr.
  LogCallback log = {};
  /// For the host memory of the driver, the loader and the memory allocator: given to every Vulkan function that takes
  /// callbacks. The struct is copied; its functions are called on any thread, until the Device and all that is made of
  /// it have gone.
  const VkAllocationCallbacks* allocation_callbacks = nullptr;
  /// Treat memory that the host could map as if it could not, so that all transfers are staged (for tests on CPU
  /// devices).
  bool always_stage = false;
  /// Most bytes of memory to hold per heap; 0: what the driver gives.
  int64_t memory_limit = 0;
  /// Takes what kernels print (debug_print), line by line, in the order of the calls and in each call in the order of
  /// its programs; without it that goes to stdout. It is called by whoever waits for the device or downloads, or at the
  /// latest when the device goes. What it throws comes out of that call, and the lines after it of the next.
  PrintCallback print = {};
  /// Room for what one call prints or its checks say, in bytes (at most 1 GiB): what finds none is counted, and the
  /// count is printed.
  int64_t print_bytes = int64_t{1} << 20;
  /// Longest that one submission should keep the device: drivers take it away from programs that do not give it back.
  /// Calls that are estimated to take longer are cut into slices of their workgroups, where they have several. 0:
  /// never.
  double watchdog_seconds = 0.5;
  /// The Vulkan loader to open instead of the system's.
  std::string library;
};

struct DeviceInfo {
  int index = 0;
  std::string name;                // "llvmpipe (LLVM 15.0.6, 256 bits)"
  std::string kind;                // "discrete GPU", "integrated GPU", "virtual GPU", "CPU", "other"
  std::string driver;              // "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"
  std::string api_version;         // "1.3.230"
  int64_t memory_bytes = 0;        // of the largest device-local heap
  int64_t max_array_bytes = 0;     // the largest buffer and allocation
  std::vector<std::string> lacks;  // what Tessera needs and the device has not; empty: usable
  Target target;
};

/// Every device that Vulkan shows. Throws DeviceError, saying what to install, if there is no loader or no driver.
std::vector<DeviceInfo> list_devices(const DeviceOptions& options = {});
/// The one that Device(options) would be, without making it.
DeviceInfo find_device(const DeviceOptions& options = {});

class Device {
 public:
  /// The best device (discrete before integrated before virtual before CPU; of CPU drivers side by side the newer), or
  /// the one that the options or TESSERA_DEVICE name. Throws DeviceError listing the devices if none fits.
  explicit Device(const DeviceOptions& options = {});
  /// A Vulkan device that the program has already (interop.h). Of the options those count that say how to use a device,
  /// not which. Throws DeviceError, naming what to enable, where it lacks what Tessera needs.
  static Device import(const ImportedDevice& device, const DeviceOptions& options = {});

  const DeviceInfo& info() const;
  const Target& target() const { return info().target; }
  /// Waits until all calls and copies so far are done. Throws DeviceError if a call has reported that its results are
  /// wrong (submit/README.md), or KernelError if a check failed in one, and no download has said so; once per such
  /// call.
  void wait() const;
  /// The driver has given it up: every later call and every use of its arrays throws a DeviceError, which says what it
  /// was running.
  bool lost() const;
  /// If it was lost, makes this handle one of the same device opened anew, with the same options and all that has been
  /// compiled for it. Other handles (copies, those inside arrays and CompiledKernels) stay with the lost one, whose
  /// arrays have lost what they held: make arrays and load() kernels again. Throws DeviceError if the driver will not
  /// open the device; then this handle stays as it was.
  void recover();
  /// What the validation layers have said about this device's calls so far.
  std::vector<std::string> validation_messages() const;
  CommandLog command_log() const;  ///< empty without DeviceOptions::log_commands
  /// Bytes that arrays and calls in flight hold now.
  int64_t allocated_bytes() const;
  /// Submits nothing and waits for it: what every call costs at least, for benchmarks.
  void submit_nothing() const;
  bool operator==(const Device&) const = default;

  const std::shared_ptr<vulkan::Context>& context() const { return context_; }  ///< for runtime/ itself
  explicit Device(std::shared_ptr<vulkan::Context> context) : context_(std::move(context)) {}

 private:
  std::shared_ptr<vulkan::Context> context_;
};

/// The environment's TESSERA_DEVICE; empty if it is not set.
std::string device_in_environment();
/// Whether a call runs on the host: `select` says "interpreter", or nothing and TESSERA_DEVICE does.
bool interpreter_selected(std::string_view select = {});

/// Made at its first use with default options; what calls on host arrays use.
Device& default_device();

}  // namespace tessera
