// Pace: how long a call may take, from its estimated cost (engine/passes/cost.h) and the measured rate of the device.
// Internal to runtime/. Read next: slices.h, which cuts calls that take too long.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "codegen/program/program.h"
#include "runtime/device/probe.h"
#include "runtime/device/vulkan.h"

namespace tessera::vulkan {

class Recorder;

/// Work of a call, in units of about one arithmetic operation; 0 if its sizes do not tell.
double work_of(const Program& program, const DimValues& dims);

/// What the device does in a second, measured by timestamps around long dispatches; a guess on the slow side until
/// then. With the Context's mutex held.
class Pace {
 public:
  Pace(const DeviceTable& vk, VkDevice device, const Probe& probe);
  ~Pace();  // the device is idle
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  /// By what `code` (any address that stands for a program's) has done so far, or else all of them.
  double seconds(double work, const void* code) const;
  /// Around a dispatch of so much work: before, after, and when it has been submitted (`value`: the timeline's) or not
  /// (0).
  int begin(Recorder& recorder, double work, const void* code);
  void end(Recorder& recorder, int slot);
  void submitted(int slot, uint64_t value, double work, const void* code);
  /// Reads the timestamps of what is done.
  void collect(uint64_t completed);
  bool waits() const { return !in_flight_.empty(); }  // for what is not done
  void learn(double work, double seconds, const void* code);

 private:
  struct Measurement {
    int slot;
    uint64_t value;
    double work;
    const void* code;
  };
  const DeviceTable& vk_;
  VkDevice device_;
  uint32_t bits_;
  double step_;  // seconds
  VkQueryPool pool_ = VK_NULL_HANDLE;
  bool tried_ = false;
  std::vector<int> idle_;
  std::deque<Measurement> in_flight_;
  double rate_, least_;  // of all: work per second, and what it does not fall below
  bool measured_ = false;
  std::unordered_map<const void*, double> rates_;  // per code; 0: it has been dispatched
  bool compiles_late_;                             // the driver: in the first dispatch, whose time then says nothing
};

}  // namespace tessera::vulkan
