#include "runtime/nvidia/driver.h"

#include "engine/base/platform.h"

namespace tessera::cuda {

bool ends_context(Status status) {
  switch (status) {
    case 214:             // CUDA_ERROR_ECC_UNCORRECTABLE
    case 220:             // CUDA_ERROR_NVLINK_UNCORRECTABLE
    case 700:             // CUDA_ERROR_ILLEGAL_ADDRESS
    case kLaunchTimeout:  // CUDA_ERROR_LAUNCH_TIMEOUT
    case 709:             // CUDA_ERROR_CONTEXT_IS_DESTROYED
    case 710:             // CUDA_ERROR_ASSERT
    case 714:             // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:             // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case 716:             // CUDA_ERROR_MISALIGNED_ADDRESS
    case 717:             // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:             // CUDA_ERROR_INVALID_PC
    case 719:             // CUDA_ERROR_LAUNCH_FAILED
      return true;
    default: return false;
  }
}

std::shared_ptr<const Driver> Driver::open(const std::string& library) {
  const std::string file = library.empty() ? platform::kCudaDriver : library;
  void* opened = platform::open_library(file);
  if (!opened) {
    if (library.empty()) return nullptr;
    throw DeviceError("NVIDIA's driver: there is no library " + library);
  }
  const std::shared_ptr<Driver> driver(new Driver);
#define TESSERA_CUDA_LOAD(name, arguments)                                               \
  driver->name = reinterpret_cast<Status(*) arguments>(platform::symbol(opened, #name)); \
  if (!driver->name)                                                                     \
    throw DeviceError("NVIDIA's driver: " + file + " has no function " #name, {}, "install a newer driver");
  TESSERA_CUDA_FUNCTIONS(TESSERA_CUDA_LOAD)
#undef TESSERA_CUDA_LOAD
  driver->cuTensorMapEncodeTiled =
      reinterpret_cast<decltype(driver->cuTensorMapEncodeTiled)>(platform::symbol(opened, "cuTensorMapEncodeTiled"));
  const Status status = driver->cuInit(0);
  if (status == kNoDevice) return nullptr;
  driver->check(status, "cuInit", "NVIDIA's driver");
  return driver;
}

std::string Driver::text(Status status) const {
  const char *name = nullptr, *words = nullptr;
  if (cuGetErrorName(status, &name) != kSuccess || !name) return "error " + std::to_string(status);
  if (cuGetErrorString(status, &words) != kSuccess || !words) return name;
  return std::string(name) + " (" + words + ")";
}

void Driver::check(Status status, const char* function, const std::string& what, Loc loc,
                   const std::string& note) const {
  if (status == kSuccess) return;
  throw DeviceError((what.empty() ? "" : what + ": ") + function + ": " + text(status), loc, note);
}

}  // namespace tessera::cuda
