// The formats of images that arrays are made of: what their channels hold, which arrays there are of them, and what the
// shaders (shaders/image_read.comp, image_write.comp) are told about them. Plain data, no Vulkan calls. Read next:
// image.h.
#pragma once
#include <vulkan/vulkan_core.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/base/dtype.h"

namespace tessera::vulkan {

/// What a format's channels hold. The first ones are image_write.comp's numbers; the last ones are only read.
enum class Numbers : uint8_t { unorm, snorm, srgb, half, single, small, uint, sint, shared_exponent, depth };

struct ImageFormat {
  VkFormat format;
  const char* name;  // "VK_FORMAT_R8_UNORM"
  int channels;      // of its arrays
  Numbers numbers;
  uint8_t bits[4] = {};  // of each channel; a channel of depth has no bits that anybody writes
  bool blue_first = false;
  /// SPIR-V's number for it as a storage image, where every device has it without a further feature; 0: none
  uint32_t storage = 0;
  bool stencil = false;  // the image has a second aspect

  /// Of the shader's numbers: 0 float, 1 unsigned, 2 signed.
  int kind() const { return numbers == Numbers::uint ? 1 : numbers == Numbers::sint ? 2 : 0; }
  bool writable() const { return numbers < Numbers::shared_exponent; }
  /// Stored through the bytes of its texels on every device: their numbers are rounded exactly.
  bool always_packed() const { return numbers == Numbers::srgb; }
  uint32_t texel_bytes() const { return (bits[0] + uint32_t{bits[1]} + bits[2] + bits[3]) / 8; }
  /// What 1 is as an integer, in formats of which arrays of integers hold the numbers that are stored; otherwise 0.
  uint32_t most() const;
  /// image_write.comp's constants, in their order.
  std::array<uint32_t, 4> constants() const;
};

std::span<const ImageFormat> image_formats();
const ImageFormat* find_format(VkFormat format);
std::string format_name(VkFormat format);
/// The shaders' number for an array's dtype; -1: the format has no such arrays.
int dtype_code(const ImageFormat& format, DType dtype);
std::string dtypes_of(const ImageFormat& format);  // "f32, f16, bf16 or u8"

}  // namespace tessera::vulkan
