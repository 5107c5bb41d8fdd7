#include "runtime/device/extensions.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>

namespace tessera::vulkan {
namespace {

struct Extension {
  const char* name;
  int type;           // of its structure of features
  uint32_t features;  // in that
  uint32_t used;      // of these, as bits
  uint32_t needed;    // of these: the one without which there is no use of it
};
constexpr Extension kExtensions[] = {
    {"VK_KHR_cooperative_matrix", 1000506000, 2, 0b1, 0},  // cooperativeMatrix
    {"VK_KHR_shader_bfloat16", 1000141000, 3, 0b101, 2},   // and not ...DotProduct
    {"VK_EXT_shader_float8", 1000567000, 2, 0b11, 1},
    {"VK_KHR_workgroup_memory_explicit_layout", 1000336000, 4, 0b1, 0},  // of 32-bit elements
};

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

}  // namespace

void Extensions::probe(const Instance& instance, VkPhysicalDevice device, const std::vector<std::string>& extensions,
                       bool imported, const void* enabled) {
  VkPhysicalDeviceFeatures2 all{};
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  for (int i = 0; i < count; ++i) {
    const Extension& e = kExtensions[i];
    Features& f = features_[i];
    f.type = static_cast<VkStructureType>(e.type);
    if (std::find(extensions.begin(), extensions.end(), e.name) == extensions.end()) continue;
    f.next = all.pNext;
    all.pNext = &f;
    for (auto* s = static_cast<const VkBaseInStructure*>(enabled); s; s = s->pNext)
      if (s->sType == f.type) std::memcpy(f.is, s + 1, e.features * sizeof(VkBool32));
  }
  if (!imported) instance.vk().vkGetPhysicalDeviceFeatures2(device, &all);
  if (features_[matrix].is[0]) read_matrices(instance, device);
  for (int i = 0; i < count; ++i) {
    const Extension& e = kExtensions[i];
    Features& f = features_[i];
    f.used = f.is[e.needed] && (i == shared ? shared_vectors : !matrices.empty());
    if (f.used) names_.push_back(e.name);
    for (uint32_t j = 0; j < std::size(f.is); ++j) f.is[j] &= e.used >> j & 1;
  }
  shared_vectors = features_[shared].used;
}

void Extensions::read_matrices(const Instance& instance, VkPhysicalDevice device) {
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
    if (uses([](DType t) { return t == DType::bf16; }) && !features_[bfloat16].is[kExtensions[bfloat16].needed])
      continue;
    if (uses(is_f8) && !features_[float8].is[kExtensions[float8].needed]) continue;
    const MatrixShape s{static_cast<int32_t>(p.m), static_cast<int32_t>(p.n), static_cast<int32_t>(p.k), *a, *b, *c};
    if (std::find(matrices.begin(), matrices.end(), s) == matrices.end()) matrices.push_back(s);
  }
}

void* Extensions::chain(void* next) {
  for (Features& f : features_) {
    if (!f.used) continue;
    f.next = next;
    next = &f;
  }
  return next;
}

}  // namespace tessera::vulkan
