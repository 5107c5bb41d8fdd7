// CompiledKernel: a Program for one device, ready to be called. load() (call/call.h) compiles one; Bundle::kernel()
// (bundle.h) returns one that was compiled ahead of time. Read next: launch.h.
#pragma once
#include <memory>
#include <vector>

#include "codegen/program/program.h"
#include "runtime/device_array.h"

namespace tessera {

class PreparedKernel;
struct PrepareOptions;

/// A kernel compiled for one device. Copies share it.
class CompiledKernel {
 public:
  CompiledKernel(Device device, std::shared_ptr<const Program> program)
      : device_(std::move(device)), program_(std::move(program)) {}
  const Program& program() const { return *program_; }
  const Device& device() const { return device_; }

  /// The same code for another Device, which the caller knows to be the same physical device by the same driver.
  CompiledKernel on(Device other) const { return {std::move(other), program_}; }

  /// Starts a call and returns its outputs without waiting. Errors as launch().
  std::vector<DeviceArray> operator()(const std::vector<DeviceArray>& inputs, const DimValues& dims = {}) const;
  /// Uploads, calls, waits and downloads.
  std::vector<Array> run(const std::vector<Array>& inputs, const DimValues& dims = {}) const;
  /// For calls in a host's command buffers (record.h, which a program that calls this includes).
  PreparedKernel prepare(const PrepareOptions& options) const;

 private:
  Device device_;
  std::shared_ptr<const Program> program_;
};

}  // namespace tessera
