// Extensions of a VkPhysicalDevice that code for kernels uses, with the features to enable for them: cooperative
// matrices, and vectors in shared memory. Vulkan's structures and numbers for them are newer than the headers of some
// systems: they stand here. Internal to runtime/.
#pragma once
#include <vector>

#include "codegen/program/target.h"
#include "runtime/device/instance.h"

namespace tessera::vulkan {

/// What of these a device has or, of an imported one, its host has enabled.
class Extensions {
 public:
  Extensions() = default;
  Extensions(const Extensions&) = delete;  // the structs point to one another
  /// `enabled`: an imported device's chain; null: the device's own list.
  void probe(const Instance& instance, VkPhysicalDevice device, const std::vector<std::string>& extensions,
             bool imported, const void* enabled);
  /// Names of those that are used, to enable.
  const std::vector<const char*>& names() const { return names_; }
  /// The features as a chain that ends with `next`.
  void* chain(void* next);
  std::vector<MatrixShape> matrices;  // of subgroup scope, and of dtypes that code may use
  bool shared_vectors = false;        // before probe(): whether they are of use

 private:
  enum Which { matrix, bfloat16, float8, shared, count };
  struct Features {  // the structure of any extension
    VkStructureType type = VK_STRUCTURE_TYPE_MAX_ENUM;
    void* next = nullptr;
    VkBool32 is[4] = {};
    bool used = false;
  };
  void read_matrices(const Instance& instance, VkPhysicalDevice device);
  Features features_[count];
  std::vector<const char*> names_;
};

}  // namespace tessera::vulkan
