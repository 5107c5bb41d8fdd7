// Images of a host as arguments: every format's texels against numbers worked out here, both ways of writing, layouts,
// and what is said about bad ones.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "engine/base/dtype.h"
#include "runtime/record.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace image_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int64_t kHeight = 5, kWidth = 7;  // no multiples of anything
constexpr VkExtent2D kExtent{kWidth, kHeight};
constexpr VkImageUsageFlags kCopies = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT,
                            kStorage = VK_IMAGE_USAGE_STORAGE_BIT;
constexpr ImageLayouts kFresh{VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL},
    kGeneral{VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_GENERAL};

struct Format {
  VkFormat format;
  int channels, bits;  // of a channel
  enum { unorm, srgb, half, single, whole } numbers;
  bool bgra = false, last_has_2 = false;
};
const Format kFormats[] = {
    {VK_FORMAT_R8_UNORM, 1, 8, Format::unorm},
    {VK_FORMAT_R8G8_UNORM, 2, 8, Format::unorm},
    {VK_FORMAT_R8G8B8A8_UNORM, 4, 8, Format::unorm},
    {VK_FORMAT_R8G8B8A8_SRGB, 4, 8, Format::srgb},
    {VK_FORMAT_B8G8R8A8_UNORM, 4, 8, Format::unorm, true},
    {VK_FORMAT_B8G8R8A8_SRGB, 4, 8, Format::srgb, true},
    {VK_FORMAT_A2B10G10R10_UNORM_PACK32, 4, 10, Format::unorm, false, true},
    {VK_FORMAT_R16_SFLOAT, 1, 16, Format::half},
    {VK_FORMAT_R16G16_SFLOAT, 2, 16, Format::half},
    {VK_FORMAT_R16G16B16A16_SFLOAT, 4, 16, Format::half},
    {VK_FORMAT_R32_SFLOAT, 1, 32, Format::single},
    {VK_FORMAT_R32G32_SFLOAT, 2, 32, Format::single},
    {VK_FORMAT_R32G32B32A32_SFLOAT, 4, 32, Format::single},
    {VK_FORMAT_R32_UINT, 1, 32, Format::whole},
    {VK_FORMAT_R32_SINT, 1, 32, Format::whole},
};

int bits_of(const Format& f, int c) { return f.last_has_2 && c == 3 ? 2 : f.bits; }
double most_of(const Format& f, int c) { return std::exp2(bits_of(f, c)) - 1; }
/// Channel `c` of texel `t`, as it is stored: every value of 8 bits comes by.
uint32_t stored(const Format& f, int64_t t, int c) {
  const auto k = static_cast<uint32_t>(t * 37 + c * 91 + 1);
  if (f.numbers == Format::half) return to_f16_bits(static_cast<float>(static_cast<int>(k % 400) - 200) / 8);
  if (f.numbers == Format::single) {
    const float x = static_cast<float>(static_cast<int>(k % 4000) - 2000) / 3;
    uint32_t u;
    std::memcpy(&u, &x, 4);
    return u;
  }
  if (f.numbers == Format::whole)
    return f.format == VK_FORMAT_R32_SINT ? static_cast<uint32_t>(-static_cast<int32_t>(k * 100000)) : k * 90000000u;
  return k & ((1u << bits_of(f, c)) - 1);
}
/// The number that sampling makes of it.
double value(const Format& f, uint32_t s, int c) {
  if (f.numbers == Format::half) return from_f16_bits(static_cast<uint16_t>(s));
  if (f.numbers == Format::single) {
    float x;
    std::memcpy(&x, &s, 4);
    return x;
  }
  if (f.numbers == Format::whole)
    return f.format == VK_FORMAT_R32_SINT ? static_cast<double>(static_cast<int32_t>(s)) : s;
  const double x = s / most_of(f, c);
  if (f.numbers == Format::unorm || c == 3) return x;
  return x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4);
}
std::vector<std::byte> texels(const Format& f, int64_t channels) {
  std::vector<std::byte> bytes;
  for (int64_t t = 0; t < kHeight * kWidth; ++t) {
    uint64_t word[2] = {};
    int at = 0;
    for (int i = 0; i < f.channels; ++i) {
      const int c = f.bgra && i < 3 ? 2 - i : i;
      uint64_t s = c < channels ? stored(f, t, c) : 0;
      if (c >= channels && c == 3)
        s = f.numbers == Format::half     ? to_f16_bits(1)
            : f.numbers == Format::single ? 0x3f800000u
                                          : static_cast<uint64_t>(most_of(f, c));
      word[at / 64] |= s << (at % 64);
      at += bits_of(f, c);
    }
    const auto* w = reinterpret_cast<const std::byte*>(word);
    bytes.insert(bytes.end(), w, w + at / 8);
  }
  return bytes;
}
Array values(const Format& f, int64_t channels, DType dtype) {
  Array a({kHeight, kWidth, channels}, dtype);
  for (int64_t t = 0; t < kHeight * kWidth; ++t)
    for (int c = 0; c < channels; ++c) {
      const uint32_t s = stored(f, t, c);
      const auto x = static_cast<float>(value(f, s, c));
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      if (f.numbers == Format::whole || dtype == DType::u8) bits = s;
      else if (dtype == DType::f16) bits = to_f16_bits(x);
      else if (dtype == DType::bf16) bits = to_bf16_bits(x);
      a.set_element_bits(t * channels + c, bits);
    }
  return a;
}
DType plain_dtype(const Format& f) {
  return f.numbers != Format::whole ? f32 : f.format == VK_FORMAT_R32_SINT ? i32 : u32;
}

std::vector<std::byte> bytes_of(VulkanHost& host, const VulkanHost::Image& image, size_t size) {
  const VulkanHost::Buffer b = host.buffer(size, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
  const VkCommandBuffer c = host.commands();
  host.begin(c);
  host.barrier(c, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_WRITE_BIT,
               VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_READ_BIT);
  const VkBufferImageCopy region{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, {kWidth, kHeight, 1}};
  host.vkCmdCopyImageToBuffer(c, image.handle, VK_IMAGE_LAYOUT_GENERAL, b.handle, 1, &region);
  host.barrier(c, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_2_HOST_BIT,
               VK_ACCESS_2_HOST_READ_BIT);
  host.run(c);
  const auto* from = reinterpret_cast<const std::byte*>(b.mapped);
  return {from, from + size};
}

DeviceImage taken(const Device& d, const VulkanHost::Image& i) {
  return DeviceImage(d, {i.handle, i.format, i.extent, i.usage});
}

}  // namespace

TEST_CASE("texels are numbers and numbers are texels, in every format and both ways") {
  for (const bool all_features : {true, false}) {
    auto host = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = all_features, .without = {}});
    {
      const Device d = Device::import(host->imported());
      for (const Format& f : kFormats) {
        VkFormatProperties has;
        host->vkGetPhysicalDeviceFormatProperties(host->physical, f.format, &has);
        for (const bool stores : {false, true}) {
          if (stores && !(has.optimalTilingFeatures & VK_FORMAT_FEATURE_STORAGE_IMAGE_BIT)) continue;
          const VulkanHost::Image image =
              host->image(f.format, kExtent, VK_IMAGE_USAGE_SAMPLED_BIT | kCopies | (stores ? kStorage : 0));
          const DeviceImage i = taken(d, image);
          CHECK(i.channels() == f.channels);
          for (int64_t channels = 1; channels <= f.channels; ++channels)
            for (const DType dtype : {plain_dtype(f), DType::f16, DType::bf16, DType::u8}) {
              if (dtype != plain_dtype(f) &&
                  (f.numbers == Format::whole || (dtype == DType::u8 && (f.numbers != Format::unorm || f.bits != 8))))
                continue;
              CAPTURE(all_features);
              CAPTURE(f.format);
              CAPTURE(stores);
              CAPTURE(channels);
              CAPTURE(name(dtype));
              const Array want = values(f, channels, dtype);
              const std::vector<std::byte> bytes = texels(f, channels);
              // What the narrower dtypes hold exactly of the texels, they write; the others are only read.
              write_image(i, DeviceArray(d, dtype == DType::u8 ? want : values(f, channels, plain_dtype(f))), kFresh);
              CHECK(bytes_of(*host, image, bytes.size()) == bytes);
              const Array got = read_image(i, dtype, kGeneral, static_cast<int>(channels)).download();
              // then half a unit in the dtype's last place
              if (f.numbers == Format::srgb) {
                for (int64_t e = 0; e < want.size(); ++e)
                  CHECK(std::abs(got.at(e) - want.at(e)) <
                        srgb_tolerance(want.at(e)) + (dtype == DType::bf16 ? 0x1p-8 : 0x1p-11));
              } else if (f.numbers == Format::unorm && dtype != DType::u8) {  // a driver may be an ulp off
                for (int64_t e = 0; e < want.size(); ++e)
                  CHECK(std::abs(got.at(e) - want.at(e)) <= (dtype == f32 ? 2e-7 : dtype == DType::f16 ? 1e-3 : 8e-3));
              } else {
                CHECK(std::equal(got.bytes(), got.bytes() + got.nbytes(), want.bytes()));
              }
            }
        }
      }
      CHECK(d.allocated_bytes() == 0);
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("what numbers round to, and numbers that no texel holds") {
  auto host = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = true, .without = {}});
  {
    const Device d = Device::import(host->imported());
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> x{-1,   -0.0f, 0,     0.5f / 255 * 0.99f, 0.5f / 255 * 1.01f, 0.25f, 1, 2, inf,
                               -inf, nan,   1e-30f};
    const VulkanHost::Image image = host->image(VK_FORMAT_R8_UNORM, {4, 3}, VK_IMAGE_USAGE_SAMPLED_BIT | kCopies);
    const DeviceImage i = taken(d, image);
    write_image(i, DeviceArray(d, Array({3, 4}, x)), kFresh);
    const Array got = read_image(i, DType::u8, kGeneral).download();
    const std::vector<double> want{0, 0, 0, 0, 1, 64, 255, 255, 255, 0, 0, 0};
    for (int64_t e = 0; e < got.size(); ++e) CHECK(got.at(e) == want[static_cast<size_t>(e)]);
    // f32 to f16, by the shader that reads and by the one that packs.
    std::vector<float> hard{65504,      65519.996f,    65520,         1e30f,         inf,          -inf,
                            nan,        5.9604645e-8f, 2.9802322e-8f, 2.9802326e-8f, 6.097555e-5f, 6.1035156e-5f,
                            1.0004883f, 1.0014648f,    1.00048840f,   -1.0004883f};
    const DeviceArray in(d, Array({4, 4}, hard));
    const VulkanHost::Image single = host->image(VK_FORMAT_R32_SFLOAT, {4, 4}, VK_IMAGE_USAGE_SAMPLED_BIT | kCopies),
                            half = host->image(VK_FORMAT_R16_SFLOAT, {4, 4}, VK_IMAGE_USAGE_SAMPLED_BIT | kCopies);
    const DeviceImage s = taken(d, single), h = taken(d, half);
    write_image(s, in, kFresh);
    write_image(h, in, kFresh);
    const Array read = read_image(s, DType::f16, kGeneral).download(),
                packed = read_image(h, DType::f16, kGeneral).download();
    for (size_t e = 0; e < hard.size(); ++e) {
      CAPTURE(hard[e]);
      const auto at = static_cast<int64_t>(e);
      if (std::isnan(hard[e])) {
        CHECK(std::isnan(read.at(at)));
        CHECK(std::isnan(packed.at(at)));
      } else {
        CHECK(read.element_bits(at) == to_f16_bits(hard[e]));
        CHECK(packed.element_bits(at) == to_f16_bits(hard[e]));
      }
    }
  }
  check_silent(std::move(host));
}

TEST_CASE("a recorded kernel reads an image and writes another, frame after frame") {
  for (const bool stores : {true, false}) {
    CAPTURE(stores);
    auto host = std::make_unique<VulkanHost>();
    {
      DeviceOptions o;
      o.log_commands = true;
      const Device d = Device::import(host->imported(), o);
      const VulkanHost::Image from = host->image(VK_FORMAT_R32G32B32A32_SFLOAT, kExtent,
                                                 VK_IMAGE_USAGE_SAMPLED_BIT | kCopies),
                              to = host->image(VK_FORMAT_R32G32B32A32_SFLOAT, kExtent,
                                               kCopies | (stores ? kStorage : 0) | VK_IMAGE_USAGE_SAMPLED_BIT);
      const DeviceImage a = taken(d, from), b = taken(d, to);
      PreparedKernel kernel(d, scale_shaped({kHeight, kWidth, 4}),
                            {.frames_in_flight = 2, .calls_per_frame = 1, .dims = {}, .images = {{0, a}, {1, b}}}),
          again(d, scale_shaped({kHeight, kWidth, 4}),
                {.frames_in_flight = 2, .calls_per_frame = 1, .dims = {}, .images = {{0, b}}});
      CHECK(kernel.scopes().wait_stages ==
            (VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | (stores ? 0 : VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT)));
      const DeviceArray y(d, {kHeight, kWidth, 4}, f32);
      CommandStream stream(d);
      const VkCommandBuffer c = host->commands();
      for (uint64_t frame = 0; frame < 3; ++frame) {
        host->begin(c);
        host->image_barrier(c, from, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
        const VkClearColorValue colour{{1, 2, 3, 4 + static_cast<float>(frame)}};
        const VkImageSubresourceRange all{VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
        host->vkCmdClearColorImage(c, from.handle, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &colour, 1, &all);
        const Scopes s = kernel.scopes();
        host->barrier(c, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT, s.wait_stages,
                      s.wait_accesses);
        stream.begin(c, frame);
        stream.record(kernel, {{a, {VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_GENERAL}},
                               {b, {VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL}}});
        stream.record(again, {{b, {VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL, VK_IMAGE_LAYOUT_GENERAL}}, y});
        stream.end();
        host->run(c);
        const Array got = y.download(), stored = read_image(b, f32, kGeneral).download();
        for (int64_t e = 0; e < got.size(); ++e) {
          const double x = e % 4 == 3 ? 4.0 + static_cast<double>(frame) : static_cast<double>(e % 4 + 1);
          CHECK(got.at(e) == 4 * x + 3);
          CHECK(stored.at(e) == 2 * x + 1);
        }
      }
      d.submit_nothing();
      for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("depth is read") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const VulkanHost::Image image =
        host->image(VK_FORMAT_D32_SFLOAT, kExtent,
                    VK_IMAGE_USAGE_SAMPLED_BIT | kCopies | VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT);
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    host->image_barrier(c, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
    const VkClearDepthStencilValue depth{0.625f, 0};
    const VkImageSubresourceRange all{VK_IMAGE_ASPECT_DEPTH_BIT, 0, 1, 0, 1};
    host->vkCmdClearDepthStencilImage(c, image.handle, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &depth, 1, &all);
    host->run(c);
    const DeviceImage i = taken(d, image);
    const Array got =
        read_image(i, f32, {VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_DEPTH_STENCIL_ATTACHMENT_OPTIMAL})
            .download();
    for (int64_t e = 0; e < got.size(); ++e) CHECK(got.at(e) == 0.625);
    CHECK(error_of<SpecError>([&] { write_image(i, DeviceArray(d, {kHeight, kWidth}, f32), kGeneral); }) ==
          "write_image: the image of 7 x 5 texels of VK_FORMAT_D32_SFLOAT cannot be written: depth is only read");
  }
  check_silent(std::move(host));
}

TEST_CASE("depth beside stencil is read, and the stencil kept") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const VulkanHost::Image image =
        host->image(VK_FORMAT_D32_SFLOAT_S8_UINT, kExtent,
                    VK_IMAGE_USAGE_SAMPLED_BIT | kCopies | VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT);
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    host->image_barrier(c, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
    const VkClearDepthStencilValue both{0.375f, 77};
    const VkImageSubresourceRange all{VK_IMAGE_ASPECT_DEPTH_BIT | VK_IMAGE_ASPECT_STENCIL_BIT, 0, 1, 0, 1};
    host->vkCmdClearDepthStencilImage(c, image.handle, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &both, 1, &all);
    host->run(c);
    const DeviceImage i = taken(d, image);
    const Array got =
        read_image(i, f32, {VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL}).download();
    for (int64_t e = 0; e < got.size(); ++e) CHECK(got.at(e) == 0.375);
    const VulkanHost::Buffer b = host->buffer(kWidth * kHeight, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
    host->begin(c);
    const VkBufferImageCopy region{0, 0, 0, {VK_IMAGE_ASPECT_STENCIL_BIT, 0, 0, 1}, {}, {kWidth, kHeight, 1}};
    host->vkCmdCopyImageToBuffer(c, image.handle, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, b.handle, 1, &region);
    host->barrier(c, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_2_HOST_BIT,
                  VK_ACCESS_2_HOST_READ_BIT);
    host->run(c);
    const auto* stencil = reinterpret_cast<const uint8_t*>(b.mapped);
    CHECK(std::all_of(stencil, stencil + kWidth * kHeight, [](uint8_t s) { return s == 77; }));
    CHECK(error_of<SpecError>([&] { write_image(i, DeviceArray(d, {kHeight, kWidth}, f32), kGeneral); }) ==
          "write_image: the image of 7 x 5 texels of VK_FORMAT_D32_SFLOAT_S8_UINT cannot be written: depth is only "
          "read");
  }
  check_silent(std::move(host));
}

TEST_CASE("depth is read where depth and stencil have layouts of their own") {
  auto host = std::make_unique<VulkanHost>(VulkanHostOptions{.without = {}, .separate_depth_stencil = true});
  const auto* v12 = static_cast<const VkPhysicalDeviceVulkan12Features*>(
      static_cast<const VkPhysicalDeviceVulkan11Features*>(host->features.pNext)->pNext);
  REQUIRE(v12->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  if (v12->separateDepthStencilLayouts) {
    const Device d = Device::import(host->imported());
    const VulkanHost::Image image =
        host->image(VK_FORMAT_D32_SFLOAT_S8_UINT, kExtent,
                    VK_IMAGE_USAGE_SAMPLED_BIT | kCopies | VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT);
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    host->image_barrier(c, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
    const VkClearDepthStencilValue both{0.375f, 77};
    const VkImageSubresourceRange all{VK_IMAGE_ASPECT_DEPTH_BIT | VK_IMAGE_ASPECT_STENCIL_BIT, 0, 1, 0, 1};
    host->vkCmdClearDepthStencilImage(c, image.handle, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &both, 1, &all);
    host->image_barrier(c, image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                        VK_IMAGE_LAYOUT_DEPTH_STENCIL_READ_ONLY_OPTIMAL);
    host->run(c);
    const DeviceImage i = taken(d, image);
    // A layout of both is that of each: from here on the depth has its own.
    for (const ImageLayouts& layouts :
         {ImageLayouts{VK_IMAGE_LAYOUT_DEPTH_STENCIL_READ_ONLY_OPTIMAL, VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL},
          {VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_DEPTH_READ_ONLY_OPTIMAL},
          {VK_IMAGE_LAYOUT_DEPTH_READ_ONLY_OPTIMAL, VK_IMAGE_LAYOUT_DEPTH_STENCIL_READ_ONLY_OPTIMAL}}) {
      const Array got = read_image(i, f32, layouts).download();
      for (int64_t e = 0; e < got.size(); ++e) CHECK(got.at(e) == 0.375);
    }
    host->begin(c);  // the stencil has stayed in its layout
    host->image_barrier(c, image, VK_IMAGE_LAYOUT_DEPTH_STENCIL_READ_ONLY_OPTIMAL, VK_IMAGE_LAYOUT_GENERAL);
    host->run(c);
  }
  check_silent(std::move(host));
}

// Level 1 of an image with 3 levels and 4 layers: 2 of its layers; every other texel stays.
TEST_CASE("a recorded kernel reads and writes layers of a level, and slices of a 3-D image, and nothing else") {
  for (const bool solid : {false, true})
    for (const bool stores : {true, false}) {
      CAPTURE(solid);
      CAPTURE(stores);
      auto host = std::make_unique<VulkanHost>();
      {
        const Device d = Device::import(host->imported());
        constexpr uint32_t kLayers = 4, kLevels = 3;
        const VkExtent3D whole{2 * kWidth, 2 * kHeight, solid ? 4u : 1u};
        const auto made = [&](VkImageUsageFlags more) {
          return host->image(VK_FORMAT_R32_SFLOAT, whole, kLevels, solid ? 1 : kLayers,
                             kCopies | VK_IMAGE_USAGE_SAMPLED_BIT | more);
        };
        const VulkanHost::Image from = made(0), to = made(stores ? kStorage : 0);
        const auto part = [&](const VulkanHost::Image& image, uint32_t level, uint32_t layer) {
          ImportedImage i{
              image.handle, image.format, {whole.width >> level, whole.height >> level}, image.usage, level};
          i.mip_levels = kLevels, i.array_layers = solid ? 1 : kLayers;
          if (solid) i.type = VK_IMAGE_TYPE_3D, i.depth = whole.depth >> level;
          else i.array_layer = layer, i.layer_count = level == 1 ? 2 : VK_REMAINING_ARRAY_LAYERS;
          return DeviceImage(d, i);
        };
        const VkCommandBuffer c = host->commands();
        host->begin(c);
        for (const VulkanHost::Image& image : {from, to}) {
          host->image_barrier(c, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
          const VkClearColorValue nine{{9, 9, 9, 9}};
          const VkImageSubresourceRange all{VK_IMAGE_ASPECT_COLOR_BIT, 0, kLevels, 0, solid ? 1 : kLayers};
          host->vkCmdClearColorImage(c, image.handle, VK_IMAGE_LAYOUT_GENERAL, &nine, 1, &all);
        }
        host->barrier(c, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT,
                      VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT);
        host->run(c);
        const DeviceImage a = part(from, 1, 1), b = part(to, 1, 2);
        const Shape shape{2, kHeight, kWidth};
        CHECK(a.shape() == Shape{2, kHeight, kWidth, 1});
        Array ramp(shape, f32);
        for (int64_t e = 0; e < ramp.size(); ++e) ramp.data<float>()[static_cast<size_t>(e)] = static_cast<float>(e);
        write_image(a, DeviceArray(d, ramp), kFresh);
        PreparedKernel kernel(d, scale_shaped(shape), {.frames_in_flight = 1, .images = {{0, a}, {1, b}}});
        host->begin(c);
        kernel.record(c, 0, {{a, kGeneral}, {b, kGeneral}});
        host->run(c);
        const Array got = read_image(b, f32, kGeneral).download();
        for (int64_t e = 0; e < got.size(); ++e) CHECK(got.at(e) == 2 * static_cast<double>(e) + 1);
        for (const uint32_t level : {0u, 1u, 2u})
          for (uint32_t layer = 0; layer < (solid ? 1u : kLayers); ++layer) {
            if (level == 1 && (solid || layer == 2 || layer == 3)) continue;
            ImportedImage i = part(to, level, 0).image();
            if (!solid) i.array_layer = layer, i.layer_count = 0;
            const Array other = read_image(DeviceImage(d, i), f32, kGeneral).download();
            for (int64_t e = 0; e < other.size(); ++e) CHECK(other.at(e) == 9);
          }
        CHECK(error_of<SpecError>([&] { kernel.record(c, 1, {{part(from, 0, 0), kGeneral}, {b, kGeneral}}); }) ==
              "scale: in_specs[0]: the kernel has been prepared for the image of 7 x 5 " +
                  std::string(solid ? "x 2 texels" : "texels in 2 layers") + " of VK_FORMAT_R32_SFLOAT (level 1" +
                  (solid ? "" : ", layers 1 to 2") + ") but is given the image of 14 x 10 " +
                  (solid ? "x 4 texels" : "texels in 4 layers") +
                  " of VK_FORMAT_R32_SFLOAT\n  note: images of one argument have the same format, extent and usage");
      }
      check_silent(std::move(host));
    }
}

TEST_CASE("what is wrong with levels, layers and slices is said") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const VulkanHost::Image image =
        host->image(VK_FORMAT_R8_UNORM, {14, 10, 1}, 2, 4, VK_IMAGE_USAGE_SAMPLED_BIT | kCopies);
    const auto error = [&](const std::function<void(ImportedImage&)>& change) {
      ImportedImage i{image.handle, image.format, kExtent, image.usage, 1};
      i.mip_levels = 2, i.array_layers = 4;
      change(i);
      return error_of<SpecError>([&] { DeviceImage(d, i); });
    };
    const std::string name = "DeviceImage: the image of 7 x 5 texels", of = " of VK_FORMAT_R8_UNORM";
    CHECK(error([](ImportedImage& i) { i.mip_level = 2; }) ==
          name + of + " (level 2): there is no level 2: the image has 2, from 0 on");
    CHECK(error([](ImportedImage& i) { i.array_layer = 7; }) ==
          name + of + " (level 1, layer 7): there is no layer 7: the image has 4, from 0 on");
    CHECK(error([](ImportedImage& i) { i.array_layer = 2, i.layer_count = 3; }) ==
          name + " in 3 layers" + of + " (level 1, layers 2 to 4): there is no layer 4: the image has 4, from 0 on");
    CHECK(error([](ImportedImage& i) { i.array_layer = 4, i.layer_count = VK_REMAINING_ARRAY_LAYERS; }) ==
          name + of + " (level 1, layer 4): there is no layer 4: the image has 4, from 0 on");
    CHECK(
        error([](ImportedImage& i) { i.array_layers = 0, i.layer_count = VK_REMAINING_ARRAY_LAYERS; }) ==
        "DeviceImage: ImportedImage::layer_count is VK_REMAINING_ARRAY_LAYERS, but array_layers is not given\n  note: "
        "array_layers is VkImageCreateInfo::arrayLayers");
    CHECK(error([](ImportedImage& i) { i.type = VK_IMAGE_TYPE_3D, i.array_layer = 1; }) ==
          "DeviceImage: ImportedImage::type is VK_IMAGE_TYPE_3D, but array_layer is 1 and layer_count 0\n  note: a 3-D "
          "image has no layers: leave them 0; all its slices are in the array");
    CHECK(error([](ImportedImage& i) { i.depth = 3; }) ==
          "DeviceImage: ImportedImage::depth is 3, but type is VK_IMAGE_TYPE_2D\n  note: an image of layers has "
          "layer_count of them and a depth of 1, a 3-D image is VK_IMAGE_TYPE_3D");
    CHECK(error([](ImportedImage& i) { i.type = VK_IMAGE_TYPE_1D; }) ==
          "DeviceImage: ImportedImage::type is VK_IMAGE_TYPE_1D, of which no arrays are made\n  note: VK_IMAGE_TYPE_2D "
          "or VK_IMAGE_TYPE_3D");
    CHECK(error([](ImportedImage& i) { i.type = VK_IMAGE_TYPE_3D, i.depth = 0; }) ==
          "DeviceImage: an image of 7 x 5 x 0 texels is empty or too large");
    CHECK(error([](ImportedImage& i) { i.extent = {65536, 16384}; }) ==
          "DeviceImage: an image of 65536 x 16384 texels is empty or too large");
    CHECK(error([](ImportedImage& i) { i.extent = {16384, 16384}, i.layer_count = 4; }) ==
          "DeviceImage: an image of 16384 x 16384 texels in 4 layers is empty or too large");

    ImportedImage two{image.handle, image.format, kExtent, image.usage, 1};
    two.array_layer = 1, two.layer_count = 2;
    const DeviceImage layers(d, two);
    CHECK(error_of<SpecError>([&] { write_image(layers, DeviceArray(d, {kHeight, kWidth, 1}, f32), kFresh); }) ==
          "write_image: the array is (5, 7, 1) but the image of 7 x 5 texels in 2 layers of VK_FORMAT_R8_UNORM (level "
          "1, layers 1 to 2) is (2, 5, 7) or (2, 5, 7, C) with C from 1 to 1");
    const DeviceImage none =
        taken(d, host->image(VK_FORMAT_E5B9G9R9_UFLOAT_PACK32, kExtent, VK_IMAGE_USAGE_SAMPLED_BIT));
    CHECK(error_of<SpecError>([&] { write_image(none, DeviceArray(d, {kHeight, kWidth}, f32), kFresh); }) ==
          "write_image: the image of 7 x 5 texels of VK_FORMAT_E5B9G9R9_UFLOAT_PACK32 cannot be written: numbers that "
          "share an exponent are only read\n  note: VK_FORMAT_B10G11R11_UFLOAT_PACK32 and "
          "VK_FORMAT_R16G16B16A16_SFLOAT are written");
  }
  check_silent(std::move(host));
}

TEST_CASE("what is wrong with an image is said") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const VulkanHost::Image image = host->image(VK_FORMAT_R8G8B8A8_UNORM, kExtent,
                                                VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT),
                            sampled = host->image(VK_FORMAT_R8G8B8A8_UNORM, kExtent, VK_IMAGE_USAGE_SAMPLED_BIT),
                            target = host->image(VK_FORMAT_R32_SINT, kExtent, kCopies),
                            bgra = host->image(VK_FORMAT_R8_UNORM, kExtent, VK_IMAGE_USAGE_STORAGE_BIT);
    const DeviceImage i = taken(d, image), s = taken(d, sampled), t = taken(d, target), b = taken(d, bgra);
    const std::string texels = "the image of 7 x 5 texels of VK_FORMAT_R8G8B8A8_UNORM ";
    using E = SpecError;
    CHECK(error_of<E>([&] { DeviceImage(d, {}); }) == "DeviceImage: ImportedImage::image is null");
    CHECK(error_of<E>([&] { DeviceImage(d, {image.handle, VK_FORMAT_BC7_SRGB_BLOCK, kExtent, image.usage}); }) ==
          "DeviceImage: VkFormat 146 is none of the formats that arrays are made of\n  note: VK_FORMAT_ "
          "R8_UNORM, R8_SNORM, R8_UINT, R8_SINT, R8_SRGB, R8G8_UNORM, R8G8_SNORM, R8G8_UINT, R8G8_SINT, "
          "R8G8_SRGB, R8G8B8A8_UNORM, R8G8B8A8_SNORM, R8G8B8A8_UINT, R8G8B8A8_SINT, R8G8B8A8_SRGB, "
          "B8G8R8A8_UNORM, B8G8R8A8_SNORM, B8G8R8A8_UINT, B8G8R8A8_SINT, B8G8R8A8_SRGB, R16_UNORM, R16_SNORM, "
          "R16_UINT, R16_SINT, R16_SFLOAT, R16G16_UNORM, R16G16_SNORM, R16G16_UINT, R16G16_SINT, "
          "R16G16_SFLOAT, R16G16B16A16_UNORM, R16G16B16A16_SNORM, R16G16B16A16_UINT, R16G16B16A16_SINT, "
          "R16G16B16A16_SFLOAT, R32_UINT, R32_SINT, R32_SFLOAT, R32G32_UINT, R32G32_SINT, R32G32_SFLOAT, "
          "R32G32B32A32_UINT, R32G32B32A32_SINT, R32G32B32A32_SFLOAT, A2B10G10R10_UNORM_PACK32, "
          "A2B10G10R10_UINT_PACK32, A2R10G10B10_UNORM_PACK32, A2R10G10B10_UINT_PACK32, "
          "B10G11R11_UFLOAT_PACK32, E5B9G9R9_UFLOAT_PACK32, D16_UNORM, X8_D24_UNORM_PACK32, D32_SFLOAT, "
          "D16_UNORM_S8_UINT, D24_UNORM_S8_UINT, D32_SFLOAT_S8_UINT");
    CHECK(error_of<E>([&] { DeviceImage(d, {image.handle, image.format, {0, 4}, image.usage}); }) ==
          "DeviceImage: an image of 0 x 4 texels is empty or too large");
    CHECK(error_of<E>([&] {
            DeviceImage(d, {image.handle, image.format, kExtent, VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT});
          }) == "DeviceImage: " + texels +
                    "can be neither read nor written\n  note: make it with VK_IMAGE_USAGE_SAMPLED_BIT, "
                    "VK_IMAGE_USAGE_STORAGE_BIT or VK_IMAGE_USAGE_TRANSFER_DST_BIT");
    CHECK(
        error_of<E>([&] { DeviceImage(device(), {image.handle, image.format, kExtent, image.usage}); }) ==
        "DeviceImage: this Device is none that the host has made\n  note: import the host's device: Device::import()");
    CHECK(error_of<E>([&] { read_image(i, DType::f64, kGeneral); }) ==
          "read_image: the array is of f64 but " + texels + "is one of f32, f16, bf16 or u8");
    CHECK(error_of<E>([&] { read_image(i, f32, {}); }) ==
          "read_image: the image is read but comes in VK_IMAGE_LAYOUT_UNDEFINED, which discards what it holds\n  note: "
          "say in ImageLayouts::before which layout it is in");
    CHECK(error_of<E>([&] { read_image(i, f32, {VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_UNDEFINED}); }) ==
          "read_image: no image can be left in the layout that ImageLayouts::after says\n  note: name one that the "
          "next user of the image wants");
    CHECK(error_of<E>([&] { read_image(i, f32, kGeneral, 5); }) ==
          "read_image: the array is (5, 7, 5) but " + texels + "is (5, 7) or (5, 7, C) with C from 1 to 4");
    CHECK(error_of<E>([&] { read_image(t, i32, kGeneral); }) ==
          "read_image: the image of 7 x 5 texels of VK_FORMAT_R32_SINT cannot be read: it has been made without "
          "VK_IMAGE_USAGE_SAMPLED_BIT");
    CHECK(error_of<E>([&] { write_image(t, DeviceArray(d, {kHeight, kWidth}, f32), kGeneral); }) ==
          "write_image: the array is of f32 but the image of 7 x 5 texels of VK_FORMAT_R32_SINT is one of i32");
    CHECK(error_of<E>([&] { write_image(s, DeviceArray(d, {kHeight, kWidth}, f32), kGeneral); }) ==
          "write_image: " + texels +
              "cannot be written: it has been made with neither VK_IMAGE_USAGE_STORAGE_BIT nor "
              "VK_IMAGE_USAGE_TRANSFER_DST_BIT");
    CHECK(error_of<E>([&] { write_image(b, DeviceArray(d, {kHeight, kWidth}, f32), kGeneral); }) ==
          "write_image: the image of 7 x 5 texels of VK_FORMAT_R8_UNORM cannot be written: " + d.info().name +
              " stores to no images of that format as it is enabled\n  note: make it with "
              "VK_IMAGE_USAGE_TRANSFER_DST_BIT, or enable "
              "VkPhysicalDeviceFeatures::shaderStorageImageWriteWithoutFormat");

    VkFormatProperties has;
    host->vkGetPhysicalDeviceFormatProperties(host->physical, VK_FORMAT_R8G8_SRGB, &has);
    if (has.optimalTilingFeatures == 0) {  // then there is no view of it either
      const std::string pair = "the image of 7 x 5 texels of VK_FORMAT_R8G8_SRGB ",
                        those =
                            "VK_FORMAT_R8G8_UNORM, VK_FORMAT_R8G8_SNORM, VK_FORMAT_R16G16_UNORM, "
                            "VK_FORMAT_R16G16_SNORM, VK_FORMAT_R16G16_SFLOAT, VK_FORMAT_R32G32_SFLOAT";
      const DeviceImage none(d, {image.handle, VK_FORMAT_R8G8_SRGB, kExtent, VK_IMAGE_USAGE_SAMPLED_BIT | kCopies});
      CHECK(error_of<E>([&] { read_image(none, f32, kGeneral); }) ==
            "read_image: " + pair + "cannot be read: " + d.info().name +
                " samples no images of that format\n  note: it samples " + those);
      CHECK(error_of<E>([&] { write_image(none, DeviceArray(d, {kHeight, kWidth}, f32), kGeneral); }) ==
            "write_image: " + pair + "cannot be written: " + d.info().name +
                " copies to no images of that format\n  note: it copies to " + those);
    }
    const DeviceImage curved = taken(d, host->image(VK_FORMAT_R8G8B8A8_SRGB, kExtent, VK_IMAGE_USAGE_SAMPLED_BIT));
    CHECK(error_of<E>([&] { write_image(curved, DeviceArray(d, {kHeight, kWidth}, f32), kGeneral); }) ==
          "write_image: the image of 7 x 5 texels of VK_FORMAT_R8G8B8A8_SRGB cannot be written: sRGB's numbers come "
          "into it by a copy, and it has been made without VK_IMAGE_USAGE_TRANSFER_DST_BIT");

    const auto prepared = [&](const Shape& shape, std::vector<PrepareOptions::Image> images) {
      return PreparedKernel(d, scale_shaped(shape),
                            {.frames_in_flight = 1, .calls_per_frame = 1, .dims = {}, .images = std::move(images)});
    };
    CHECK(error_of<E>([&] { prepared({kHeight, kWidth, 4}, {{2, i}}); }) ==
          "scale: PrepareOptions::images names argument 2 of 2");
    CHECK(error_of<E>([&] { prepared({kHeight, kWidth, 5}, {{0, i}}); }) ==
          "scale: in_specs[0]: the array is (5, 7, 5) but " + texels + "is (5, 7) or (5, 7, C) with C from 1 to 4");
    CHECK(error_of<E>([&] { prepared({kHeight, kWidth, 4}, {{1, s}}); }) ==
          "scale: out_specs[0]: " + texels +
              "cannot be written: it has been made with neither VK_IMAGE_USAGE_STORAGE_BIT nor "
              "VK_IMAGE_USAGE_TRANSFER_DST_BIT");
    PreparedKernel kernel = prepared({kHeight, kWidth, 4}, {{0, i}});
    const DeviceArray y(d, {kHeight, kWidth, 4}, f32);
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    CHECK(error_of<E>([&] { kernel.record(c, 0, {y, y}); }) ==
          "scale: in_specs[0]: an array is given, but PrepareOptions::images names this argument");
    CHECK(error_of<E>([&] { kernel.record(c, 0, {{i, kGeneral}, {i, kGeneral}}); }) ==
          "scale: out_specs[0]: an image is given, but PrepareOptions::images does not name this argument");
    CHECK(error_of<E>([&] { kernel.record(c, 0, {{t, kGeneral}, y}); }) ==
          "scale: in_specs[0]: the kernel has been prepared for " + texels +
              "but is given the image of 7 x 5 texels of VK_FORMAT_R32_SINT\n  note: images of one argument have the "
              "same "
              "format, extent and usage");
    host->run(c);
  }
  check_silent(std::move(host));
}

}  // namespace image_test
