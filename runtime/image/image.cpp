#include "runtime/image/image.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <thread>

#include "engine/base/error.h"
#include "image_shaders/pack_0.h"
#include "image_shaders/pack_1.h"
#include "image_shaders/pack_2.h"
#include "image_shaders/read_0.h"
#include "image_shaders/read_1.h"
#include "image_shaders/read_2.h"
#include "image_shaders/store_0.h"
#include "image_shaders/store_0_r32f.h"
#include "image_shaders/store_0_rgba16f.h"
#include "image_shaders/store_0_rgba32f.h"
#include "image_shaders/store_0_rgba8.h"
#include "image_shaders/store_1.h"
#include "image_shaders/store_1_r32ui.h"
#include "image_shaders/store_2.h"
#include "image_shaders/store_2_r32i.h"
#include "runtime/device/names.h"

namespace tessera::vulkan {
namespace {

// The packings of shaders/image_write.comp.
enum : int { kR8, kRg8, kRgba8, kRgba8Srgb, kBgra8, kBgra8Srgb, kRgb10a2, kR16f, kRg16f, kRgba16f, kWords };

#define F(format) VK_FORMAT_##format, "VK_FORMAT_" #format
constexpr ImageFormat kFormats[] = {
    {F(R8_UNORM), 1, 0, true, kR8, nullptr, 1},
    {F(R8G8_UNORM), 2, 0, true, kRg8, nullptr, 2},
    {F(R8G8B8A8_UNORM), 4, 0, true, kRgba8, "rgba8", 4},
    {F(R8G8B8A8_SRGB), 4, 0, false, kRgba8Srgb, nullptr, 4},
    {F(B8G8R8A8_UNORM), 4, 0, true, kBgra8, nullptr, 4},
    {F(B8G8R8A8_SRGB), 4, 0, false, kBgra8Srgb, nullptr, 4},
    {F(A2B10G10R10_UNORM_PACK32), 4, 0, false, kRgb10a2, nullptr, 4},
    {F(R16_SFLOAT), 1, 0, false, kR16f, nullptr, 2},
    {F(R16G16_SFLOAT), 2, 0, false, kRg16f, nullptr, 4},
    {F(R16G16B16A16_SFLOAT), 4, 0, false, kRgba16f, "rgba16f", 8},
    {F(R32_SFLOAT), 1, 0, false, kWords + 1, "r32f", 4},
    {F(R32G32_SFLOAT), 2, 0, false, kWords + 2, nullptr, 8},
    {F(R32G32B32A32_SFLOAT), 4, 0, false, kWords + 4, "rgba32f", 16},
    {F(R32_UINT), 1, 1, false, kWords + 1, "r32ui", 4},
    {F(R32_SINT), 1, 2, false, kWords + 1, "r32i", 4},
    {F(D16_UNORM), 1, 0, false, -1, nullptr, 2},
    {F(D32_SFLOAT), 1, 0, false, -1, nullptr, 4},
};
#undef F

struct Code {
  const char* name;
  std::span<const uint32_t> words;
};
const Code kCodes[] = {{"read 0", kread_0},
                       {"read 1", kread_1},
                       {"read 2", kread_2},
                       {"pack 0", kpack_0},
                       {"pack 1", kpack_1},
                       {"pack 2", kpack_2},
                       {"store 0", kstore_0},
                       {"store 1", kstore_1},
                       {"store 2", kstore_2},
                       {"store 0 rgba8", kstore_0_rgba8},
                       {"store 0 rgba16f", kstore_0_rgba16f},
                       {"store 0 rgba32f", kstore_0_rgba32f},
                       {"store 0 r32f", kstore_0_r32f},
                       {"store 1 r32ui", kstore_1_r32ui},
                       {"store 2 r32i", kstore_2_r32i}};
constexpr uint32_t kReadPush = 24, kWritePush = 36;

// The shaders' number for a dtype; -1: the format has no such arrays.
int dtype_code(const ImageFormat& f, DType d) {
  if (f.kind == 1) return d == DType::u32 ? 0 : -1;
  if (f.kind == 2) return d == DType::i32 ? 0 : -1;
  if (d == DType::f32) return 0;
  if (d == DType::f16) return 1;
  if (d == DType::bf16) return 2;
  return d == DType::u8 && f.normalized8 ? 3 : -1;
}
std::string dtypes_of(const ImageFormat& f) {
  if (f.kind) return f.kind == 1 ? "u32" : "i32";
  return f.normalized8 ? "f32, f16, bf16 or u8" : "f32, f16 or bf16";
}

}  // namespace

const ImageFormat* find_format(VkFormat format) {
  const auto* it =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const ImageFormat& f) { return f.format == format; });
  return it == std::end(kFormats) ? nullptr : it;
}

std::string format_name(VkFormat format) {
  const ImageFormat* f = find_format(format);
  return f ? f->name : "VkFormat " + std::to_string(format);
}

// ---- ImageKit

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

ImageKit::Kernel ImageKit::kernel(Way way, const ImageFormat& format, bool any_format) {
  std::string name = (way == Way::read    ? "read "
                      : way == Way::store ? "store "
                                          : "pack ") +
                     std::to_string(format.kind);
  if (way == Way::store && !any_format) name += std::string(" ") + format.storage;
  const std::lock_guard lock(mutex_);
  const VkPipelineLayout layout = layouts_[static_cast<int>(way)];
  if (const auto it = pipelines_.find(name); it != pipelines_.end()) return {it->second, layout};
  const Code& code = *std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) { return name == c.name; });
  const DeviceTable& vk = context_.vk();
  VkShaderModule module = VK_NULL_HANDLE;
  const VkShaderModuleCreateInfo words{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, code.words.size_bytes(),
                                       code.words.data()};
  check(vk.vkCreateShaderModule(context_.handle(), &words, vk.host, &module), "DeviceImage: vkCreateShaderModule",
        context_.name());
  constexpr const char* kKinds[] = {"floating-point", "unsigned", "signed"};
  const std::string what = std::string("Tessera's ") +
                           (way == Way::read    ? "reading of "
                            : way == Way::store ? "storing to "
                                                : "packing of ") +
                           kKinds[format.kind] + " images" +
                           (way == Way::store && !any_format ? std::string(" of ") + format.storage : "");
  name_object(vk, context_.handle(), module, what);
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.layout = layout;
  info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                nullptr,
                0,
                VK_SHADER_STAGE_COMPUTE_BIT,
                module,
                "main",
                nullptr};
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult r =
      vk.vkCreateComputePipelines(context_.handle(), context_.hosts_pipeline_cache(), 1, &info, vk.host, &pipeline);
  vk.vkDestroyShaderModule(context_.handle(), module, vk.host);
  check(r, "DeviceImage: vkCreateComputePipelines", context_.name());
  name_object(vk, context_.handle(), pipeline, what);
  pipelines_.emplace(name, pipeline);
  return {pipeline, layout};
}

// ---- ImageState

ImageState::ImageState(const Device& d, const ImportedImage& i) : device(d), image(i), format(find_format(i.format)) {
  const std::string where = "DeviceImage: ";
  Context& context = *device.context();
  context.require_alive();
  if (!context.imported())
    throw SpecError(where + "this Device is none that the host has made", {},
                    "import the host's device: Device::import()");
  if (image.image == VK_NULL_HANDLE) throw SpecError(where + "ImportedImage::image is null");
  if (!format) {
    std::string names;
    for (const ImageFormat& f : kFormats) names += std::string(names.empty() ? "" : ", ") + (f.name + 10);
    throw SpecError(where + format_name(image.format) + " is none of the formats that arrays are made of", {},
                    "VK_FORMAT_ " + names);
  }
  if (image.extent.width == 0 || image.extent.height == 0 ||
      uint64_t{image.extent.width} * image.extent.height >= uint64_t{1} << 30)
    throw SpecError(where + "an image of " + std::to_string(image.extent.width) + " x " +
                    std::to_string(image.extent.height) + " texels is empty or too large");
  if (!(image.usage & (VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT)))
    throw SpecError(
        where + describe() + " can be neither read nor written", {},
        "make it with VK_IMAGE_USAGE_SAMPLED_BIT, VK_IMAGE_USAGE_STORAGE_BIT or VK_IMAGE_USAGE_TRANSFER_DST_BIT");
  if (image.format == VK_FORMAT_D16_UNORM || image.format == VK_FORMAT_D32_SFLOAT) aspect_ = VK_IMAGE_ASPECT_DEPTH_BIT;
  VkFormatProperties3 has{};
  has.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_3;
  VkFormatProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_2;
  properties.pNext = &has;
  context.instance().vk().vkGetPhysicalDeviceFormatProperties2(context.physical(), image.format, &properties);
  const auto can = [&](VkFormatFeatureFlags2 what) { return (has.optimalTilingFeatures & what) == what; };
  const bool any_format = context.probe().enable->core.features.shaderStorageImageWriteWithoutFormat &&
                          can(VK_FORMAT_FEATURE_2_STORAGE_WRITE_WITHOUT_FORMAT_BIT);
  sampled_ = (image.usage & VK_IMAGE_USAGE_SAMPLED_BIT) && can(VK_FORMAT_FEATURE_2_SAMPLED_IMAGE_BIT);
  stored_ = (image.usage & VK_IMAGE_USAGE_STORAGE_BIT) && can(VK_FORMAT_FEATURE_2_STORAGE_IMAGE_BIT) &&
            format->packing >= 0 && (format->storage || any_format);
  packed_ = !stored_ && format->packing >= 0 && (image.usage & VK_IMAGE_USAGE_TRANSFER_DST_BIT);
  ImageKit& kit = images_of(context);
  const DeviceTable& vk = context.vk();
  try {
    if (sampled_) read_ = kit.kernel(ImageKit::Way::read, *format, any_format);
    if (stored_ || packed_)
      write_ = kit.kernel(stored_ ? ImageKit::Way::store : ImageKit::Way::pack, *format, any_format);
    VkDevice handle = context.handle();
    if (sampled_) read_view_ = view(VK_IMAGE_USAGE_SAMPLED_BIT);
    if (stored_) write_view_ = view(VK_IMAGE_USAGE_STORAGE_BIT);
    if (has_names(vk)) {
      name_object(vk, handle, read_view_, role(false));
      name_object(vk, handle, write_view_, role(true));
    }
    if (sampled_ || stored_) {
      const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE, 1},
                                            {VK_DESCRIPTOR_TYPE_STORAGE_IMAGE, 1}};
      const VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 2, 2, sizes};
      check(vk.vkCreateDescriptorPool(context.handle(), &info, vk.host, &pool_),
            failing("vkCreateDescriptorPool").c_str(), context.name());
      if (has_names(vk)) name_object(vk, handle, pool_, describe());
    }
    const auto make_set = [&](ImageKit::Way way, VkImageView v, VkDescriptorType type, VkDescriptorSet& set) {
      const VkDescriptorSetLayout layout = kit.set_layout(way);
      const VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool_, 1,
                                             &layout};
      check(vk.vkAllocateDescriptorSets(context.handle(), &info, &set), failing("vkAllocateDescriptorSets").c_str(),
            context.name());
      if (has_names(vk)) name_object(vk, handle, set, role(way != ImageKit::Way::read));
      const VkDescriptorImageInfo what{VK_NULL_HANDLE, v, own_layout(way != ImageKit::Way::read)};
      VkWriteDescriptorSet write{};
      write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
      write.dstSet = set;
      write.descriptorCount = 1;
      write.descriptorType = type;
      write.pImageInfo = &what;
      vk.vkUpdateDescriptorSets(context.handle(), 1, &write, 0, nullptr);
    };
    if (sampled_) make_set(ImageKit::Way::read, read_view_, VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE, read_set_);
    if (stored_) make_set(ImageKit::Way::store, write_view_, VK_DESCRIPTOR_TYPE_STORAGE_IMAGE, write_set_);
  } catch (...) {
    release();
    throw;
  }
}

ImageState::~ImageState() {
  Context& context = *device.context();
  if (context.ended()) return;
  uint64_t value;
  {
    const std::lock_guard lock(context.mutex());
    value = used_at;
  }
  for (int attempt = 0; value && attempt < 1000; ++attempt) {  // short of memory it may be in use
    try {
      context.wait(value);
      break;
    } catch (const std::exception&) {
      if (device.lost()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  release();
}

void ImageState::release() {
  const DeviceTable& vk = device.context()->vk();
  VkDevice d = device.context()->handle();
  vk.vkDestroyDescriptorPool(d, pool_, vk.host);
  vk.vkDestroyImageView(d, read_view_, vk.host);
  vk.vkDestroyImageView(d, write_view_, vk.host);
}

VkImageView ImageState::view(VkImageUsageFlags usage) const {
  const VkImageViewUsageCreateInfo use{VK_STRUCTURE_TYPE_IMAGE_VIEW_USAGE_CREATE_INFO, nullptr, usage};
  const VkImageViewCreateInfo info{
      VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,           &use, 0, image.image, VK_IMAGE_VIEW_TYPE_2D, image.format, {},
      {aspect_, image.mip_level, 1, image.array_layer, 1}};
  VkImageView v = VK_NULL_HANDLE;
  check(device.context()->vk().vkCreateImageView(device.context()->handle(), &info, device.context()->vk().host, &v),
        failing("vkCreateImageView").c_str(), device.context()->name());
  return v;
}

std::string ImageState::describe() const {
  return "the image of " + std::to_string(image.extent.width) + " x " + std::to_string(image.extent.height) +
         " texels of " + format_name(image.format);
}

int ImageState::check_shape(const std::string& where, const Shape& shape, DType dtype) const {
  const auto h = static_cast<int64_t>(image.extent.height), w = static_cast<int64_t>(image.extent.width);
  const bool flat = shape.size() == 2, fits = (flat || shape.size() == 3) && shape[0] == h && shape[1] == w &&
                                              (flat || (shape[2] >= 1 && shape[2] <= format->channels));
  if (!fits)
    throw SpecError(where + "the array is " + tessera::to_string(shape) + " but " + describe() + " is (" +
                    std::to_string(h) + ", " + std::to_string(w) + ") or (" + std::to_string(h) + ", " +
                    std::to_string(w) + ", C) with C from 1 to " + std::to_string(format->channels));
  if (dtype_code(*format, dtype) < 0)
    throw SpecError(where + "the array is of " + std::string(name(dtype)) + " but " + describe() + " is one of " +
                    dtypes_of(*format));
  return flat ? 1 : static_cast<int>(shape[2]);
}

bool ImageState::good(ImageLayouts layouts, bool writes) {
  return (writes || layouts.before != VK_IMAGE_LAYOUT_UNDEFINED) && layouts.after != VK_IMAGE_LAYOUT_UNDEFINED &&
         layouts.after != VK_IMAGE_LAYOUT_PREINITIALIZED;
}
void ImageState::check_layouts(const std::string& where, ImageLayouts layouts, bool writes) const {
  if (!writes && layouts.before == VK_IMAGE_LAYOUT_UNDEFINED)
    throw SpecError(where + "the image is read but comes in VK_IMAGE_LAYOUT_UNDEFINED, which discards what it holds",
                    {}, "say in ImageLayouts::before which layout it is in");
  if (layouts.after == VK_IMAGE_LAYOUT_UNDEFINED || layouts.after == VK_IMAGE_LAYOUT_PREINITIALIZED)
    throw SpecError(where + "no image can be left in the layout that ImageLayouts::after says", {},
                    "name one that the next user of the image wants");
}
void ImageState::check_read(const std::string& where) const {
  if (sampled_) return;
  if (!(image.usage & VK_IMAGE_USAGE_SAMPLED_BIT))
    throw SpecError(where + describe() + " cannot be read: it has been made without VK_IMAGE_USAGE_SAMPLED_BIT");
  throw SpecError(where + describe() + " cannot be read: " + device.info().name + " samples no images of that format");
}

void ImageState::check_write(const std::string& where) const {
  if (stored_ || packed_) return;
  if (format->packing < 0) throw SpecError(where + describe() + " cannot be written: depth is only read");
  if (image.usage & VK_IMAGE_USAGE_STORAGE_BIT)
    throw SpecError(where + describe() + " cannot be written: " + device.info().name +
                        " stores to no images of that format as it is enabled",
                    {},
                    "make it with VK_IMAGE_USAGE_TRANSFER_DST_BIT, or enable "
                    "VkPhysicalDeviceFeatures::shaderStorageImageWriteWithoutFormat");
  throw SpecError(where + describe() +
                  " cannot be written: it has been made with neither VK_IMAGE_USAGE_STORAGE_BIT nor "
                  "VK_IMAGE_USAGE_TRANSFER_DST_BIT");
}

bool ImageState::alike(const ImageState& o, const Shape& shape) const {
  return format == o.format && shape[0] == int64_t{o.image.extent.height} &&
         shape[1] == int64_t{o.image.extent.width} && sampled_ == o.sampled_ && stored_ == o.stored_ &&
         packed_ == o.packed_;
}

VkImageLayout ImageState::own_layout(bool write) const {
  return !write    ? VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL
         : packed_ ? VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL
                   : VK_IMAGE_LAYOUT_GENERAL;
}

void ImageState::transition(VkCommandBuffer c, VkImageLayout from, VkImageLayout to, StageMask before,
                            StageMask after) const {
  VkImageMemoryBarrier2 b{};
  b.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2;
  b.srcStageMask = stage_flags(before);
  b.srcAccessMask = access_flags(before, false);
  b.dstStageMask = stage_flags(after);
  b.dstAccessMask = access_flags(after, true);
  b.oldLayout = from;
  b.newLayout = to;
  b.srcQueueFamilyIndex = b.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
  b.image = image.image;
  b.subresourceRange = {aspect_, image.mip_level, 1, image.array_layer, 1};
  VkDependencyInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO;
  info.imageMemoryBarrierCount = 1;
  info.pImageMemoryBarriers = &b;
  device.context()->vk().vkCmdPipelineBarrier2(c, &info);
}

namespace {
constexpr StageMask kBoth = mask(Stage::compute) | mask(Stage::transfer);
}

// After whatever any of our commands, or the host's by its barrier before them, has done with it.
void ImageState::enter(VkCommandBuffer c, bool write, VkImageLayout from) const {
  transition(c, from, own_layout(write), kBoth, mask(write && packed_ ? Stage::transfer : Stage::compute));
}
void ImageState::leave(VkCommandBuffer c, bool write, VkImageLayout to) const {
  if (to != own_layout(write))
    transition(c, own_layout(write), to, mask(write && packed_ ? Stage::transfer : Stage::compute), kBoth);
}

void ImageState::dispatch(VkCommandBuffer c, const ImageKit::Kernel& kernel, VkDescriptorSet set,
                          std::span<const uint32_t> push, uint64_t items) const {
  const DeviceTable& vk = device.context()->vk();
  const uint64_t groups = (items + 63) / 64, x = std::min<uint64_t>(groups, device.context()->probe().max_groups[0]);
  vk.vkCmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
  if (set) vk.vkCmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1, &set, 0, nullptr);
  vk.vkCmdPushConstants(c, kernel.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size_bytes()),
                        push.data());
  vk.vkCmdDispatch(c, static_cast<uint32_t>(x), static_cast<uint32_t>((groups + x - 1) / x), 1);
}

namespace {
uint32_t low(uint64_t a) { return static_cast<uint32_t>(a); }
uint32_t high(uint64_t a) { return static_cast<uint32_t>(a >> 32); }
}  // namespace

void ImageState::read(VkCommandBuffer c, const Buffer& to, DType dtype, int channels) const {
  const uint32_t push[] = {low(to.address()),
                           high(to.address()),
                           image.extent.width,
                           image.extent.height,
                           static_cast<uint32_t>(channels),
                           static_cast<uint32_t>(dtype_code(*format, dtype))};
  const uint64_t elements = uint64_t{image.extent.width} * image.extent.height * static_cast<uint64_t>(channels),
                 per = 4 / static_cast<uint64_t>(size_bytes(dtype));
  dispatch(c, read_, read_set_, push, (elements + per - 1) / per);
}

void ImageState::store(VkCommandBuffer c, const Buffer& from, DType dtype, int channels) const {
  const uint32_t push[] = {low(from.address()),
                           high(from.address()),
                           0,
                           0,
                           image.extent.width,
                           image.extent.height,
                           static_cast<uint32_t>(channels),
                           static_cast<uint32_t>(dtype_code(*format, dtype)),
                           0};
  dispatch(c, write_, write_set_, push, uint64_t{image.extent.width} * image.extent.height);
}

void ImageState::pack(VkCommandBuffer c, const Buffer& from, DType dtype, int channels, const Buffer& bytes) const {
  const uint32_t push[] = {low(from.address()),
                           high(from.address()),
                           low(bytes.address()),
                           high(bytes.address()),
                           image.extent.width,
                           image.extent.height,
                           static_cast<uint32_t>(channels),
                           static_cast<uint32_t>(dtype_code(*format, dtype)),
                           static_cast<uint32_t>(format->packing)};
  const uint64_t per = format->bytes < 4 ? 4 / format->bytes : 1;  // texels in a word
  dispatch(c, write_, VK_NULL_HANDLE, push, (uint64_t{image.extent.width} * image.extent.height + per - 1) / per);
}

void ImageState::copy(VkCommandBuffer c, const Buffer& bytes) const {
  const VkBufferImageCopy region{bytes.offset(),
                                 0,
                                 0,
                                 {aspect_, image.mip_level, image.array_layer, 1},
                                 {0, 0, 0},
                                 {image.extent.width, image.extent.height, 1}};
  device.context()->vk().vkCmdCopyBufferToImage(c, bytes.handle(), image.image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1,
                                                &region);
}

}  // namespace tessera::vulkan

namespace tessera {

using vulkan::Access;
using vulkan::Buffer;
using vulkan::Memory;

DeviceImage::DeviceImage(const Device& device, const ImportedImage& image)
    : state_(std::make_shared<vulkan::ImageState>(device, image)) {}
const ImportedImage& DeviceImage::image() const { return state_->image; }
int DeviceImage::channels() const { return state_->format->channels; }

DeviceArray read_image(const DeviceImage& image, DType dtype, ImageLayouts layouts, int channels) {
  vulkan::ImageState& s = *image.state();
  s.check_read("read_image: ");
  s.check_layouts("read_image: ", layouts, false);
  DeviceArray array(s.device, {s.image.extent.height, s.image.extent.width, channels ? channels : s.format->channels},
                    dtype);
  channels = s.check_shape("read_image: ", array.shape(), dtype);
  const std::shared_ptr<Buffer> memory = array.buffer("read_image");
  vulkan::Context& context = *s.device.context();
  const std::lock_guard lock(context.mutex());
  s.used_at = context.recorder().submit("the reading of an image", [&] {
    const Access list[] = {{memory.get(), false, true, 0, memory->size()}};
    const VkCommandBuffer c = context.recorder().command("read image", Stage::compute, list);
    s.enter(c, false, layouts.before);
    s.read(c, *memory, dtype, channels);
    s.leave(c, false, layouts.after);
    Buffer* shown[] = {memory.get()};
    if (memory->host_reads()) context.recorder().show_host(shown);
  });
  return array;
}

void write_image(const DeviceImage& image, const DeviceArray& array, ImageLayouts layouts) {
  vulkan::ImageState& s = *image.state();
  s.check_write("write_image: ");
  s.check_layouts("write_image: ", layouts, true);
  const std::shared_ptr<Buffer> memory = array.buffer("write_image");
  const int channels = s.check_shape("write_image: ", array.shape(), array.dtype());
  if (!(array.device() == s.device)) throw SpecError("write_image: the array is on another Device than the image");
  vulkan::Context& context = *s.device.context();
  std::optional<Buffer> bytes;
  if (s.packed()) bytes.emplace(s.device.context(), s.packed_bytes(), Memory::scratch, "the texels of an image");
  const std::lock_guard lock(context.mutex());
  s.used_at = context.recorder().submit("the writing of an image", [&] {
    if (!bytes) {
      const Access list[] = {{memory.get(), true, false, 0, memory->size()}};
      const VkCommandBuffer c = context.recorder().command("write image", Stage::compute, list);
      s.enter(c, true, layouts.before);
      s.store(c, *memory, array.dtype(), channels);
      s.leave(c, true, layouts.after);
      return;
    }
    const Access list[] = {{memory.get(), true, false, 0, memory->size()}, {&*bytes, false, true, 0, bytes->size()}},
                 last[] = {{&*bytes, true, false, 0, bytes->size()}};
    VkCommandBuffer c = context.recorder().command("pack image", Stage::compute, list);
    s.pack(c, *memory, array.dtype(), channels, *bytes);
    c = context.recorder().command("write image", Stage::transfer, last);
    s.enter(c, true, layouts.before);
    s.copy(c, *bytes);
    s.leave(c, true, layouts.after);
  });
}

}  // namespace tessera
