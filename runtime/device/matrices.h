// Cooperative matrices (VK_KHR_cooperative_matrix) of a VkPhysicalDevice, with the features to enable for them.
// Vulkan's structures for them are newer than the headers of some systems: they stand here. Internal to runtime/.
#pragma once
#include <vector>

#include "codegen/program/target.h"
#include "runtime/device/instance.h"

namespace tessera::vulkan {

struct MatrixFeatures {  // VkPhysicalDeviceCooperativeMatrixFeaturesKHR
  VkStructureType sType = static_cast<VkStructureType>(1000506000);
  void* pNext = nullptr;
  VkBool32 cooperativeMatrix = VK_FALSE, cooperativeMatrixRobustBufferAccess = VK_FALSE;
};
struct Bfloat16Features {  // VkPhysicalDeviceShaderBfloat16FeaturesKHR
  VkStructureType sType = static_cast<VkStructureType>(1000141000);
  void* pNext = nullptr;
  VkBool32 shaderBFloat16Type = VK_FALSE, shaderBFloat16DotProduct = VK_FALSE,
           shaderBFloat16CooperativeMatrix = VK_FALSE;
};
struct Float8Features {  // VkPhysicalDeviceShaderFloat8FeaturesEXT
  VkStructureType sType = static_cast<VkStructureType>(1000567000);
  void* pNext = nullptr;
  VkBool32 shaderFloat8 = VK_FALSE, shaderFloat8CooperativeMatrix = VK_FALSE;
};

/// What of these a device has or, of an imported one, its host has enabled.
class Matrices {
 public:
  Matrices() = default;
  Matrices(const Matrices&) = delete;  // the structs point to one another
  /// `enabled`: an imported device's chain; null: the device's own list.
  void probe(const Instance& instance, VkPhysicalDevice device, const std::vector<std::string>& extensions,
             bool imported, const void* enabled);
  /// Names of the extensions, to enable; empty where there are no matrices.
  const std::vector<const char*>& extensions() const { return extensions_; }
  /// The features as a chain that ends with `next`.
  void* chain(void* next);
  std::vector<MatrixShape> shapes;  // of subgroup scope, and of dtypes that code may use

 private:
  void read_shapes(const Instance& instance, VkPhysicalDevice device);
  MatrixFeatures matrix_;
  Bfloat16Features bfloat16_;
  Float8Features float8_;
  std::vector<const char*> extensions_;
};

}  // namespace tessera::vulkan
