#include "runtime/device/matrices.h"

#include <algorithm>
#include <optional>
#include <string>

namespace tessera::vulkan {
namespace {

constexpr const char* kMatrix = "VK_KHR_cooperative_matrix";
constexpr const char* kBfloat16 = "VK_KHR_shader_bfloat16";
constexpr const char* kFloat8 = "VK_EXT_shader_float8";

struct MatrixProperties {  // VkCooperativeMatrixPropertiesKHR
  VkStructureType sType = static_cast<VkStructureType>(1000506001);
  void* pNext = nullptr;
  uint32_t m = 0, n = 0, k = 0;
  uint32_t a = 0, b = 0, c = 0, result = 0;  // VkComponentTypeKHR
  VkBool32 saturating = VK_FALSE;
  uint32_t scope = 0;  // VkScopeKHR
};
using GetProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, MatrixProperties*);
constexpr uint32_t kSubgroup = 3;

// A VkComponentTypeKHR, if code for matrices uses such.
std::optional<DType> component(uint32_t type) {
  switch (type) {
    case 0: return DType::f16;
    case 1: return DType::f32;
    case 3: return DType::i8;
    case 5: return DType::i32;
    case 7: return DType::u8;
    case 9: return DType::u32;
    case 1000141000: return DType::bf16;
    case 1000491002: return DType::f8e4m3fn;
    case 1000491003: return DType::f8e5m2;
    default: return std::nullopt;
  }
}
bool is_f8(DType t) { return t == DType::f8e4m3fn || t == DType::f8e5m2; }

bool has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
// Copies the members of a structure in a chain.
template <class T> void take(const void* chain, T& to) {
  for (auto* s = static_cast<const VkBaseInStructure*>(chain); s; s = s->pNext)
    if (s->sType == to.sType) {
      to = *reinterpret_cast<const T*>(s);
      to.pNext = nullptr;
    }
}

}  // namespace

void Matrices::probe(const Instance& instance, VkPhysicalDevice device, const std::vector<std::string>& extensions,
                     bool imported, const void* enabled) {
  if (!has(extensions, kMatrix)) return;
  const bool bfloat16 = has(extensions, kBfloat16), float8 = has(extensions, kFloat8);
  if (imported) {
    take(enabled, matrix_);
    take(enabled, bfloat16_);
    take(enabled, float8_);
  } else {
    void* next = nullptr;
    const auto chained = [&](bool there, auto& s) {
      if (!there) return;
      s.pNext = next;
      next = &s;
    };
    chained(float8, float8_);
    chained(bfloat16, bfloat16_);
    chained(true, matrix_);
    VkPhysicalDeviceFeatures2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    all.pNext = next;
    instance.vk().vkGetPhysicalDeviceFeatures2(device, &all);
  }
  matrix_.cooperativeMatrixRobustBufferAccess = bfloat16_.shaderBFloat16DotProduct = VK_FALSE;  // not used
  if (!matrix_.cooperativeMatrix) return;
  read_shapes(instance, device);
  if (shapes.empty()) return;
  extensions_.push_back(kMatrix);
  if (bfloat16 && bfloat16_.shaderBFloat16CooperativeMatrix) extensions_.push_back(kBfloat16);
  if (float8 && float8_.shaderFloat8CooperativeMatrix) extensions_.push_back(kFloat8);
}

void Matrices::read_shapes(const Instance& instance, VkPhysicalDevice device) {
  const auto get = reinterpret_cast<GetProperties>(
      instance.library().vkGetInstanceProcAddr(instance.handle(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  uint32_t n = 0;
  if (!get || get(device, &n, nullptr) != VK_SUCCESS) return;
  std::vector<MatrixProperties> all(n);
  if (get(device, &n, all.data()) != VK_SUCCESS) return;
  all.resize(n);
  for (const MatrixProperties& p : all) {
    const auto a = component(p.a), b = component(p.b), c = component(p.c);
    if (p.scope != kSubgroup || p.saturating || p.c != p.result || !a || !b || !c) continue;
    if (size_bytes(*a) > 2 || size_bytes(*b) > 2 || size_bytes(*c) != 4) continue;
    const auto uses = [&](auto which) { return which(*a) || which(*b); };
    if (uses([](DType t) { return t == DType::bf16; }) && !bfloat16_.shaderBFloat16CooperativeMatrix) continue;
    if (uses(is_f8) && !float8_.shaderFloat8CooperativeMatrix) continue;
    const MatrixShape s{static_cast<int32_t>(p.m), static_cast<int32_t>(p.n), static_cast<int32_t>(p.k), *a, *b, *c};
    if (std::find(shapes.begin(), shapes.end(), s) == shapes.end()) shapes.push_back(s);
  }
}

void* Matrices::chain(void* next) {
  if (extensions_.empty()) return next;
  const auto chained = [&](bool there, auto& s) {
    if (!there) return;
    s.pNext = next;
    next = &s;
  };
  chained(bfloat16_.shaderBFloat16CooperativeMatrix, bfloat16_);
  chained(float8_.shaderFloat8CooperativeMatrix, float8_);
  chained(true, matrix_);
  return next;
}

}  // namespace tessera::vulkan
