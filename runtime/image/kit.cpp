#include "runtime/image/kit.h"

#include <array>
#include <span>
#include <vector>

#include "image_shaders/pack_0.h"
#include "image_shaders/pack_1.h"
#include "image_shaders/pack_2.h"
#include "image_shaders/read_0.h"
#include "image_shaders/read_1.h"
#include "image_shaders/read_2.h"
#include "image_shaders/store_0.h"
#include "image_shaders/store_1.h"
#include "image_shaders/store_2.h"
#include "runtime/device/names.h"

namespace tessera::vulkan {
namespace {

const std::span<const uint32_t> kCodes[3][3] = {
    {kread_0, kread_1, kread_2}, {kstore_0, kstore_1, kstore_2}, {kpack_0, kpack_1, kpack_2}};  // by Way and kind
constexpr uint32_t kReadPush = 32, kWritePush = 36;

// A shader's code for images of three dimensions, or for a format, which it then names. It is written for arrays of
// layers, without one: the type of its image is all that differs, since places have three coordinates in both.
std::vector<uint32_t> made_for(std::span<const uint32_t> code, bool solid, uint32_t format) {
  enum : uint32_t { kOpCapability = 17, kOpTypeImage = 25, kShader = 1, kWriteWithoutFormat = 56, kDim3D = 2 };
  std::vector<uint32_t> words(code.begin(), code.end());
  for (size_t at = 5; at < words.size() && words[at] >> 16; at += words[at] >> 16) {
    uint32_t* i = &words[at];
    if ((i[0] & 0xffff) == kOpTypeImage) {
      if (solid) i[3] = kDim3D, i[5] = 0;  // not arrayed
      if (format) i[8] = format;
    }
    if ((i[0] & 0xffff) == kOpCapability && i[1] == kWriteWithoutFormat && format) i[1] = kShader;
  }
  return words;
}

}  // namespace

ImageKit::ImageKit(Context& context) : context_(context) {
  const DeviceTable& vk = context.vk();
  VkDevice device = context.handle();
  const VkDescriptorType types[] = {VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE, VK_DESCRIPTOR_TYPE_STORAGE_IMAGE};
  VkResult r = VK_SUCCESS;
  const char* call = "DeviceImage: vkCreateDescriptorSetLayout";
  for (int i = 0; i < 2 && r >= 0; ++i) {
    const VkDescriptorSetLayoutBinding binding{0, types[i], 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
    const VkDescriptorSetLayoutCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, nullptr, 0, 1,
                                               &binding};
    r = vk.vkCreateDescriptorSetLayout(device, &info, vk.host, &sets_[i]);
    if (r >= 0)
      name_object(vk, device, sets_[i], i == 0 ? "Tessera's image that is read" : "Tessera's image that is written");
  }
  for (int i = 0; i < 3 && r >= 0; ++i) {
    const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, i == 0 ? kReadPush : kWritePush};
    call = "DeviceImage: vkCreatePipelineLayout";
    const VkPipelineLayoutCreateInfo info{
        VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, i < 2 ? 1u : 0u, &sets_[i % 2], 1, &range};
    r = vk.vkCreatePipelineLayout(device, &info, vk.host, &layouts_[i]);
    if (r >= 0)
      name_object(vk, device, layouts_[i],
                  i == 0   ? "Tessera's reading of images"
                  : i == 1 ? "Tessera's storing to images"
                           : "Tessera's packing of texels");
  }
  if (r >= 0) return;
  release();
  check(r, call, context.name());
}

std::shared_ptr<Staging> ImageKit::staging() {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Staging> s = staging_.lock();
  if (!s) staging_ = s = std::make_shared<Staging>();
  return s;
}

ImageKit& images_of(Context& context) {
  const std::lock_guard lock(context.images_mutex);
  if (!context.images) context.images = std::make_shared<ImageKit>(context);
  return *static_cast<ImageKit*>(context.images.get());
}

ImageKit::~ImageKit() { release(); }

void ImageKit::release() {
  const DeviceTable& vk = context_.vk();
  VkDevice device = context_.handle();
  for (const auto& [name, pipeline] : pipelines_) vk.vkDestroyPipeline(device, pipeline, vk.host);
  for (VkPipelineLayout l : layouts_) vk.vkDestroyPipelineLayout(device, l, vk.host);
  for (VkDescriptorSetLayout l : sets_) vk.vkDestroyDescriptorSetLayout(device, l, vk.host);
}

ImageKit::Kernel ImageKit::kernel(Way way, const ImageFormat& format, bool solid, bool any_format) {
  constexpr const char* kWays[] = {"reading of ", "storing to ", "packing of "};
  constexpr const char* kKinds[] = {"floating-point", "unsigned", "signed"};
  const bool named = way == Way::store && !any_format;
  const std::string what =
      std::string("Tessera's ") + kWays[static_cast<int>(way)] +
      (way == Way::read ? kKinds[format.kind()] + std::string(" images") : std::string("images of ") + format.name) +
      (solid && way != Way::pack ? " of three dimensions" : "");
  const std::lock_guard lock(mutex_);
  const VkPipelineLayout layout = layouts_[static_cast<int>(way)];
  if (const auto it = pipelines_.find(what); it != pipelines_.end()) return {it->second, layout};
  const std::vector<uint32_t> code =
      made_for(kCodes[static_cast<int>(way)][format.kind()], solid, named ? format.storage : 0);
  const DeviceTable& vk = context_.vk();
  VkShaderModule module = VK_NULL_HANDLE;
  const VkShaderModuleCreateInfo words{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0,
                                       code.size() * sizeof(uint32_t), code.data()};
  check(vk.vkCreateShaderModule(context_.handle(), &words, vk.host, &module), "DeviceImage: vkCreateShaderModule",
        context_.name());
  name_object(vk, context_.handle(), module, what);
  const std::array<uint32_t, 4> constants = format.constants();
  constexpr VkSpecializationMapEntry kEntries[] = {{0, 0, 4}, {1, 4, 4}, {2, 8, 4}, {3, 12, 4}};
  const VkSpecializationInfo special{4, kEntries, sizeof constants, constants.data()};
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.layout = layout;
  info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                nullptr,
                0,
                VK_SHADER_STAGE_COMPUTE_BIT,
                module,
                "main",
                way == Way::read ? nullptr : &special};
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult r =
      vk.vkCreateComputePipelines(context_.handle(), context_.hosts_pipeline_cache(), 1, &info, vk.host, &pipeline);
  vk.vkDestroyShaderModule(context_.handle(), module, vk.host);
  check(r, "DeviceImage: vkCreateComputePipelines", context_.name());
  name_object(vk, context_.handle(), pipeline, what);
  pipelines_.emplace(what, pipeline);
  return {pipeline, layout};
}

}  // namespace tessera::vulkan
