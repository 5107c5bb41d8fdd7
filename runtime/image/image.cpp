#include "runtime/image/image.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "runtime/device/names.h"

namespace tessera::vulkan {

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
    for (const ImageFormat& f : image_formats()) names += std::string(names.empty() ? "" : ", ") + (f.name + 10);
    throw SpecError(where + format_name(image.format) + " is none of the formats that arrays are made of", {},
                    "VK_FORMAT_ " + names);
  }
  check_range();
  if (!(image.usage & (VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT)))
    throw SpecError(
        where + describe() + " can be neither read nor written", {},
        "make it with VK_IMAGE_USAGE_SAMPLED_BIT, VK_IMAGE_USAGE_STORAGE_BIT or VK_IMAGE_USAGE_TRANSFER_DST_BIT");
  if (format->numbers == Numbers::depth) aspect_ = VK_IMAGE_ASPECT_DEPTH_BIT;
  find_uses();
  try {
    make_views();
  } catch (...) {
    release();
    throw;
  }
}

// Which part of the image it is: its dims, and whether the image has it.
void ImageState::check_range() {
  const std::string where = "DeviceImage: ";
  const auto number = [](uint64_t n) { return std::to_string(n); };
  if (image.type != VK_IMAGE_TYPE_2D && !solid())
    throw SpecError(where + "ImportedImage::type is " +
                        (image.type == VK_IMAGE_TYPE_1D ? "VK_IMAGE_TYPE_1D" : number(uint64_t{image.type})) +
                        ", of which no arrays are made",
                    {}, "VK_IMAGE_TYPE_2D or VK_IMAGE_TYPE_3D");
  if (image.layer_count == VK_REMAINING_ARRAY_LAYERS) {
    if (image.array_layers == 0)
      throw SpecError(where + "ImportedImage::layer_count is VK_REMAINING_ARRAY_LAYERS, but array_layers is not given",
                      {}, "array_layers is VkImageCreateInfo::arrayLayers");
    image.layer_count = std::max(image.array_layers, image.array_layer) - image.array_layer;
  }
  if (solid() && (image.array_layer != 0 || image.layer_count != 0))
    throw SpecError(where + "ImportedImage::type is VK_IMAGE_TYPE_3D, but array_layer is " + number(image.array_layer) +
                        " and layer_count " + number(image.layer_count),
                    {}, "a 3-D image has no layers: leave them 0; all its slices are in the array");
  if (!solid() && image.depth != 1)
    throw SpecError(where + "ImportedImage::depth is " + number(image.depth) + ", but type is VK_IMAGE_TYPE_2D", {},
                    "an image of layers has layer_count of them and a depth of 1, a 3-D image is VK_IMAGE_TYPE_3D");
  layers_ = std::max(image.layer_count, 1u);
  rank_ = solid() || image.layer_count > 0 ? 3 : 2;
  dims_[0] = solid() ? image.depth : layers_;
  dims_[1] = image.extent.height, dims_[2] = image.extent.width;
  const uint64_t slice = uint64_t{image.extent.width} * image.extent.height;
  // The shaders count the words of an array, and drivers take an index for signed: fewer than 2^31.
  const uint64_t most = (uint64_t{1} << 31) / std::max<uint64_t>(2, static_cast<uint64_t>(format->channels));
  if (slice == 0 || dims_[0] == 0 || slice >= most || slice * static_cast<uint64_t>(dims_[0]) >= most)
    throw SpecError(where + "an image of " + number(image.extent.width) + " x " + number(image.extent.height) +
                    (solid() ? " x " + number(image.depth) : "") + " texels" +
                    (image.layer_count > 0 ? " in " + number(layers_) + " layers" : "") + " is empty or too large");
  if (image.mip_levels != 0 && image.mip_level >= image.mip_levels)
    throw SpecError(where + describe() + ": there is no level " + number(image.mip_level) + ": the image has " +
                    number(image.mip_levels) + ", from 0 on");
  if (image.array_layers != 0 && uint64_t{image.array_layer} + layers_ > image.array_layers)
    throw SpecError(where + describe() + ": there is no layer " +
                    number(std::max(image.array_layer, image.array_layers)) + ": the image has " +
                    number(image.array_layers) + ", from 0 on");
}

VkFormatFeatureFlags2 ImageState::features_of(VkFormat f) const {
  VkFormatProperties3 has{};
  has.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_3;
  VkFormatProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_2;
  properties.pNext = &has;
  const Context& context = *device.context();
  context.instance().vk().vkGetPhysicalDeviceFormatProperties2(context.physical(), f, &properties);
  return has.optimalTilingFeatures;
}

// What can be done with it, as it has been made, on this device.
void ImageState::find_uses() {
  const VkFormatFeatureFlags2 can = features_of(image.format);
  any_format_ = device.context()->probe().enable->core.features.shaderStorageImageWriteWithoutFormat &&
                (can & VK_FORMAT_FEATURE_2_STORAGE_WRITE_WITHOUT_FORMAT_BIT);
  sampled_ = (image.usage & VK_IMAGE_USAGE_SAMPLED_BIT) && (can & VK_FORMAT_FEATURE_2_SAMPLED_IMAGE_BIT);
  if (!format->writable()) return;
  stored_ = (image.usage & VK_IMAGE_USAGE_STORAGE_BIT) && (can & VK_FORMAT_FEATURE_2_STORAGE_IMAGE_BIT) &&
            !format->always_packed() && (format->storage || any_format_);
  packed_ = !stored_ && (image.usage & VK_IMAGE_USAGE_TRANSFER_DST_BIT) && (can & VK_FORMAT_FEATURE_2_TRANSFER_DST_BIT);
}

void ImageState::make_views() {
  Context& context = *device.context();
  ImageKit& kit = images_of(context);
  const DeviceTable& vk = context.vk();
  VkDevice handle = context.handle();
  if (sampled_) read_ = kit.kernel(ImageKit::Way::read, *format, solid(), any_format_);
  if (stored_ || packed_)
    write_ = kit.kernel(stored_ ? ImageKit::Way::store : ImageKit::Way::pack, *format, solid(), any_format_);
  if (sampled_) read_view_ = view(VK_IMAGE_USAGE_SAMPLED_BIT);
  if (stored_) write_view_ = view(VK_IMAGE_USAGE_STORAGE_BIT);
  if (has_names(vk)) {
    name_object(vk, handle, read_view_, role(false));
    name_object(vk, handle, write_view_, role(true));
  }
  if (!sampled_ && !stored_) return;
  const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE, 1}, {VK_DESCRIPTOR_TYPE_STORAGE_IMAGE, 1}};
  const VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 2, 2, sizes};
  check(vk.vkCreateDescriptorPool(handle, &info, vk.host, &pool_), failing("vkCreateDescriptorPool").c_str(),
        context.name());
  if (has_names(vk)) name_object(vk, handle, pool_, describe());
  if (sampled_) make_set(ImageKit::Way::read, read_view_, read_set_);
  if (stored_) make_set(ImageKit::Way::store, write_view_, write_set_);
}

void ImageState::make_set(ImageKit::Way way, VkImageView v, VkDescriptorSet& set) const {
  Context& context = *device.context();
  const DeviceTable& vk = context.vk();
  const bool reads = way == ImageKit::Way::read;
  const VkDescriptorSetLayout layout = images_of(context).set_layout(way);
  const VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool_, 1, &layout};
  check(vk.vkAllocateDescriptorSets(context.handle(), &info, &set), failing("vkAllocateDescriptorSets").c_str(),
        context.name());
  if (has_names(vk)) name_object(vk, context.handle(), set, role(!reads));
  const VkDescriptorImageInfo what{VK_NULL_HANDLE, v, own_layout(!reads)};
  VkWriteDescriptorSet write{};
  write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
  write.dstSet = set;
  write.descriptorCount = 1;
  write.descriptorType = reads ? VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE : VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
  write.pImageInfo = &what;
  vk.vkUpdateDescriptorSets(context.handle(), 1, &write, 0, nullptr);
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
  const VkImageViewCreateInfo info{VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
                                   &use,
                                   0,
                                   image.image,
                                   solid() ? VK_IMAGE_VIEW_TYPE_3D : VK_IMAGE_VIEW_TYPE_2D_ARRAY,
                                   image.format,
                                   {},
                                   {aspect_, image.mip_level, 1, image.array_layer, layers_}};
  VkImageView v = VK_NULL_HANDLE;
  check(device.context()->vk().vkCreateImageView(device.context()->handle(), &info, device.context()->vk().host, &v),
        failing("vkCreateImageView").c_str(), device.context()->name());
  return v;
}

std::string ImageState::describe() const {
  std::string text = "the image of " + std::to_string(image.extent.width) + " x " + std::to_string(image.extent.height);
  if (solid()) text += " x " + std::to_string(image.depth);
  text += " texels";
  if (image.layer_count > 0) text += " in " + std::to_string(layers_) + (layers_ == 1 ? " layer" : " layers");
  text += " of " + format_name(image.format);
  std::string part;
  if (image.mip_level > 0) part = "level " + std::to_string(image.mip_level);
  if (image.array_layer > 0) {
    part += std::string(part.empty() ? "" : ", ") + (layers_ > 1 ? "layers " : "layer ") +
            std::to_string(image.array_layer);
    if (layers_ > 1) part += " to " + std::to_string(uint64_t{image.array_layer} + layers_ - 1);
  }
  return part.empty() ? text : text + " (" + part + ")";
}

int ImageState::check_shape(const std::string& where, const Shape& shape, DType dtype) const {
  const bool flat = shape.size() == rank_;
  const std::span<const int64_t> own = dims();
  const bool fits = (flat || (shape.size() == rank_ + 1 && shape[rank_] >= 1 && shape[rank_] <= format->channels)) &&
                    std::equal(own.begin(), own.end(), shape.begin());
  if (!fits) {
    std::string list;
    for (const int64_t n : own) list += std::to_string(n) + ", ";
    throw SpecError(where + "the array is " + tessera::to_string(shape) + " but " + describe() + " is (" +
                    list.substr(0, list.size() - 2) + ") or (" + list + "C) with C from 1 to " +
                    std::to_string(format->channels));
  }
  if (dtype_code(*format, dtype) < 0)
    throw SpecError(where + "the array is of " + std::string(name(dtype)) + " but " + describe() + " is one of " +
                    dtypes_of(*format));
  return flat ? 1 : static_cast<int>(shape[rank_]);
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
// Formats with the same channels that the device can do that with.
std::string ImageState::possible(VkFormatFeatureFlags2 use) const {
  std::string list;
  for (const ImageFormat& f : image_formats())
    if (f.channels == format->channels && f.kind() == format->kind() &&
        (f.numbers == Numbers::depth) == (format->numbers == Numbers::depth) &&
        (f.writable() || use == VK_FORMAT_FEATURE_2_SAMPLED_IMAGE_BIT) && (features_of(f.format) & use))
      list += std::string(list.empty() ? "" : ", ") + f.name;
  return list.empty() ? "none with such channels" : list;
}

void ImageState::check_read(const std::string& where) const {
  if (sampled_) return;
  if (!(image.usage & VK_IMAGE_USAGE_SAMPLED_BIT))
    throw SpecError(where + describe() + " cannot be read: it has been made without VK_IMAGE_USAGE_SAMPLED_BIT");
  throw SpecError(where + describe() + " cannot be read: " + device.info().name + " samples no images of that format",
                  {}, "it samples " + possible(VK_FORMAT_FEATURE_2_SAMPLED_IMAGE_BIT));
}

void ImageState::check_write(const std::string& where) const {
  if (stored_ || packed_) return;
  const std::string cannot = where + describe() + " cannot be written: ";
  if (format->numbers == Numbers::depth) throw SpecError(cannot + "depth is only read");
  if (!format->writable())
    throw SpecError(cannot + "numbers that share an exponent are only read", {},
                    "VK_FORMAT_B10G11R11_UFLOAT_PACK32 and VK_FORMAT_R16G16B16A16_SFLOAT are written");
  if (image.usage & VK_IMAGE_USAGE_TRANSFER_DST_BIT)
    throw SpecError(cannot + device.info().name + " copies to no images of that format", {},
                    "it copies to " + possible(VK_FORMAT_FEATURE_2_TRANSFER_DST_BIT));
  if (format->always_packed())
    throw SpecError(cannot +
                    "sRGB's numbers come into it by a copy, and it has been made without "
                    "VK_IMAGE_USAGE_TRANSFER_DST_BIT");
  if (image.usage & VK_IMAGE_USAGE_STORAGE_BIT)
    throw SpecError(cannot + device.info().name + " stores to no images of that format as it is enabled", {},
                    "make it with VK_IMAGE_USAGE_TRANSFER_DST_BIT, or enable "
                    "VkPhysicalDeviceFeatures::shaderStorageImageWriteWithoutFormat");
  throw SpecError(cannot +
                  "it has been made with neither VK_IMAGE_USAGE_STORAGE_BIT nor VK_IMAGE_USAGE_TRANSFER_DST_BIT");
}

bool ImageState::alike(const ImageState& o, const Shape& shape) const {
  return format == o.format && rank_ == o.rank_ && image.type == o.image.type &&
         std::equal(o.dims().begin(), o.dims().end(), shape.begin()) && sampled_ == o.sampled_ &&
         stored_ == o.stored_ && packed_ == o.packed_;
}

VkImageLayout ImageState::own_layout(bool write) const {
  return !write    ? VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL
         : packed_ ? VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL
                   : VK_IMAGE_LAYOUT_GENERAL;
}

void ImageState::transition(VkCommandBuffer c, ImageLayouts layouts, VkImageLayout from, VkImageLayout to,
                            StageMask before, StageMask after) const {
  // Both aspects at once, unless the host keeps them in layouts of their own.
  const auto of_depth = [](VkImageLayout l) {
    return l == VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL || l == VK_IMAGE_LAYOUT_DEPTH_READ_ONLY_OPTIMAL;
  };
  const bool stencil = format->stencil && !of_depth(layouts.before) && !of_depth(layouts.after);
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
  b.subresourceRange = {aspect_ | (stencil ? VkImageAspectFlags{VK_IMAGE_ASPECT_STENCIL_BIT} : 0), image.mip_level, 1,
                        image.array_layer, layers_};
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
void ImageState::enter(VkCommandBuffer c, bool write, ImageLayouts layouts) const {
  transition(c, layouts, layouts.before, own_layout(write), kBoth,
             mask(write && packed_ ? Stage::transfer : Stage::compute));
}
void ImageState::leave(VkCommandBuffer c, bool write, ImageLayouts layouts) const {
  if (layouts.after != own_layout(write))
    transition(c, layouts, own_layout(write), layouts.after, mask(write && packed_ ? Stage::transfer : Stage::compute),
               kBoth);
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
                           static_cast<uint32_t>(dims_[0]),
                           static_cast<uint32_t>(channels),
                           static_cast<uint32_t>(dtype_code(*format, dtype)),
                           format->most()};
  const uint64_t elements = texels() * static_cast<uint64_t>(channels),
                 per = 4 / static_cast<uint64_t>(size_bytes(dtype));
  dispatch(c, read_, read_set_, push, (elements + per - 1) / per);
}

void ImageState::write(VkCommandBuffer c, const Buffer& from, DType dtype, int channels, VkDeviceAddress bytes,
                       uint64_t items) const {
  const uint32_t push[] = {low(from.address()),
                           high(from.address()),
                           low(bytes),
                           high(bytes),
                           image.extent.width,
                           image.extent.height,
                           static_cast<uint32_t>(dims_[0]),
                           static_cast<uint32_t>(channels),
                           static_cast<uint32_t>(dtype_code(*format, dtype))};
  dispatch(c, write_, write_set_, push, items);
}

void ImageState::store(VkCommandBuffer c, const Buffer& from, DType dtype, int channels) const {
  write(c, from, dtype, channels, 0, texels());
}

void ImageState::pack(VkCommandBuffer c, const Buffer& from, DType dtype, int channels, const Buffer& bytes) const {
  const uint64_t size = format->texel_bytes(), per = size < 4 ? 4 / size : 1;  // texels in a word
  write(c, from, dtype, channels, bytes.address(), (texels() + per - 1) / per);
}

void ImageState::copy(VkCommandBuffer c, const Buffer& bytes) const {
  const VkBufferImageCopy region{bytes.offset(),
                                 0,
                                 0,
                                 {aspect_, image.mip_level, image.array_layer, layers_},
                                 {},
                                 {image.extent.width, image.extent.height, image.depth}};
  device.context()->vk().vkCmdCopyBufferToImage(c, bytes.handle(), image.image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1,
                                                &region);
}

}  // namespace tessera::vulkan

namespace tessera {

using vulkan::Access;
using vulkan::Buffer;
using vulkan::Memory;
using vulkan::Turns;

DeviceImage::DeviceImage(const Device& device, const ImportedImage& image)
    : state_(std::make_shared<vulkan::ImageState>(device, image)) {}
const ImportedImage& DeviceImage::image() const { return state_->image; }
int DeviceImage::channels() const { return state_->format->channels; }
Shape DeviceImage::shape() const {
  const std::span<const int64_t> dims = state_->dims();
  Shape shape(dims.begin(), dims.end());
  shape.push_back(channels());
  return shape;
}

DeviceArray read_image(const DeviceImage& image, DType dtype, ImageLayouts layouts, int channels) {
  vulkan::ImageState& s = *image.state();
  s.check_read("read_image: ");
  s.check_layouts("read_image: ", layouts, false);
  Shape shape = image.shape();
  if (channels) shape.back() = channels;
  channels = s.check_shape("read_image: ", shape, dtype);
  DeviceArray array(s.device, shape, dtype);
  const std::shared_ptr<Buffer> memory = array.buffer("read_image");
  vulkan::Context& context = *s.device.context();
  const std::lock_guard lock(context.mutex());
  s.used_at = context.recorder().submit("the reading of an image", [&] {
    const Access list[] = {{memory.get(), false, true, 0, memory->size()}};
    const VkCommandBuffer c = context.recorder().command("read image", Stage::compute, list);
    s.enter(c, false, layouts);
    s.read(c, *memory, dtype, channels);
    s.leave(c, false, layouts);
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
  if (memory->borrowed() && memory->size() % 4 != 0)  // of others the last word is ours, too
    throw SpecError("write_image: the array has " + std::to_string(memory->size()) +
                        " bytes of the host's VkBuffer, no whole words, and images are written by words",
                    {}, "write a copy() of it, or import an array of whole words");
  vulkan::Context& context = *s.device.context();
  std::optional<Buffer> bytes;
  if (s.packed()) bytes.emplace(s.device.context(), s.packed_bytes(), Memory::scratch, "the texels of an image");
  std::unique_lock lock(context.mutex());
  context.turns().wait(lock, [&] { return std::vector<Turns::Use>{{memory.get(), false}}; });
  array.still_at(memory, [] { return std::string("write_image"); });
  s.used_at = context.recorder().submit("the writing of an image", [&] {
    if (!bytes) {
      const Access list[] = {{memory.get(), true, false, 0, memory->size()}};
      const VkCommandBuffer c = context.recorder().command("write image", Stage::compute, list);
      s.enter(c, true, layouts);
      s.store(c, *memory, array.dtype(), channels);
      s.leave(c, true, layouts);
      return;
    }
    const Access list[] = {{memory.get(), true, false, 0, memory->size()}, {&*bytes, false, true, 0, bytes->size()}},
                 last[] = {{&*bytes, true, false, 0, bytes->size()}};
    VkCommandBuffer c = context.recorder().command("pack image", Stage::compute, list);
    s.pack(c, *memory, array.dtype(), channels, *bytes);
    c = context.recorder().command("write image", Stage::transfer, last);
    s.enter(c, true, layouts);
    s.copy(c, *bytes);
    s.leave(c, true, layouts);
  });
}

}  // namespace tessera
