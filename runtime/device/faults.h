// Faults: for tests. While one exists, the function tables of every Device that is made go through it: it counts the
// calls, can make any call return any VkResult instead of executing it, and lists which objects were created and not
// destroyed. Otherwise the tables hold the driver's own functions. The allocator's calls go through the same tables.
// Internal to runtime/ and its tests. Read next: vulkan.h, the tables.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/device/vulkan.h"

namespace tessera::vulkan {

class Faults {
 public:
  struct Call {
    const char* name;     // "vkQueueSubmit2"
    bool returns_result;  // a VkResult
  };

  /// One at a time, and one driver at a time: the Devices that are made while it lives are all of the same, under the
  /// same layers, for the last one's functions are called for all of them.
  Faults();
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  /// Forgets the calls so far. From now on the call of `function` of that number, counted from 0, returns `result`.
  /// Only for VK_INCOMPLETE is it made. What is lost stays lost: after VK_ERROR_DEVICE_LOST the functions that can tell
  /// say it until the next vkCreateDevice, or the next count() or fail().
  void fail(const std::string& function, uint64_t number, VkResult result);
  /// Devices made from now on seem to have no memory that host and device see alike without a flush.
  void hide_coherent_memory(bool hide);
  /// As fail(), without a failure.
  void count();
  /// Since then.
  std::vector<Call> calls() const;
  /// Objects named since the Faults while an instance or a device was made or destroyed, or the other way round.
  uint64_t overlaps() const;
  /// Calls since the Faults that make or destroy something without callbacks for host memory.
  uint64_t without_callbacks() const;
  bool failed() const;  ///< the failure has been returned
  /// Objects created and not destroyed, by what creates them: {"Buffer", 2}. Destroying what was never created counts
  /// as -1.
  std::map<std::string, int64_t> alive() const;
};

/// Lead the functions of a table through the Faults that lives, if one does.
void intercept(Library& library);
void intercept(InstanceTable& table);
void intercept(DeviceTable& table, VkDevice device);

}  // namespace tessera::vulkan
