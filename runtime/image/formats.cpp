#include "runtime/image/formats.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace tessera::vulkan {
namespace {

// SPIR-V's Image Format.
enum : uint32_t {
  kRgba32f = 1,
  kRgba16f = 2,
  kR32f = 3,
  kRgba8 = 4,
  kRgba8Snorm = 5,
  kRgba32i = 21,
  kRgba16i = 22,
  kRgba8i = 23,
  kR32i = 24,
  kRgba32ui = 30,
  kRgba16ui = 31,
  kRgba8ui = 32,
  kR32ui = 33
};

#define F(format) VK_FORMAT_##format, "VK_FORMAT_" #format
constexpr ImageFormat kFormats[] = {
    {F(R8_UNORM), 1, Numbers::unorm, {8}},
    {F(R8_SNORM), 1, Numbers::snorm, {8}},
    {F(R8_UINT), 1, Numbers::uint, {8}},
    {F(R8_SINT), 1, Numbers::sint, {8}},
    {F(R8_SRGB), 1, Numbers::srgb, {8}},
    {F(R8G8_UNORM), 2, Numbers::unorm, {8, 8}},
    {F(R8G8_SNORM), 2, Numbers::snorm, {8, 8}},
    {F(R8G8_UINT), 2, Numbers::uint, {8, 8}},
    {F(R8G8_SINT), 2, Numbers::sint, {8, 8}},
    {F(R8G8_SRGB), 2, Numbers::srgb, {8, 8}},
    {F(R8G8B8A8_UNORM), 4, Numbers::unorm, {8, 8, 8, 8}, false, kRgba8},
    {F(R8G8B8A8_SNORM), 4, Numbers::snorm, {8, 8, 8, 8}, false, kRgba8Snorm},
    {F(R8G8B8A8_UINT), 4, Numbers::uint, {8, 8, 8, 8}, false, kRgba8ui},
    {F(R8G8B8A8_SINT), 4, Numbers::sint, {8, 8, 8, 8}, false, kRgba8i},
    {F(R8G8B8A8_SRGB), 4, Numbers::srgb, {8, 8, 8, 8}},
    {F(B8G8R8A8_UNORM), 4, Numbers::unorm, {8, 8, 8, 8}, true},
    {F(B8G8R8A8_SNORM), 4, Numbers::snorm, {8, 8, 8, 8}, true},
    {F(B8G8R8A8_UINT), 4, Numbers::uint, {8, 8, 8, 8}, true},
    {F(B8G8R8A8_SINT), 4, Numbers::sint, {8, 8, 8, 8}, true},
    {F(B8G8R8A8_SRGB), 4, Numbers::srgb, {8, 8, 8, 8}, true},
    {F(R16_UNORM), 1, Numbers::unorm, {16}},
    {F(R16_SNORM), 1, Numbers::snorm, {16}},
    {F(R16_UINT), 1, Numbers::uint, {16}},
    {F(R16_SINT), 1, Numbers::sint, {16}},
    {F(R16_SFLOAT), 1, Numbers::half, {16}},
    {F(R16G16_UNORM), 2, Numbers::unorm, {16, 16}},
    {F(R16G16_SNORM), 2, Numbers::snorm, {16, 16}},
    {F(R16G16_UINT), 2, Numbers::uint, {16, 16}},
    {F(R16G16_SINT), 2, Numbers::sint, {16, 16}},
    {F(R16G16_SFLOAT), 2, Numbers::half, {16, 16}},
    {F(R16G16B16A16_UNORM), 4, Numbers::unorm, {16, 16, 16, 16}},
    {F(R16G16B16A16_SNORM), 4, Numbers::snorm, {16, 16, 16, 16}},
    {F(R16G16B16A16_UINT), 4, Numbers::uint, {16, 16, 16, 16}, false, kRgba16ui},
    {F(R16G16B16A16_SINT), 4, Numbers::sint, {16, 16, 16, 16}, false, kRgba16i},
    {F(R16G16B16A16_SFLOAT), 4, Numbers::half, {16, 16, 16, 16}, false, kRgba16f},
    {F(R32_UINT), 1, Numbers::uint, {32}, false, kR32ui},
    {F(R32_SINT), 1, Numbers::sint, {32}, false, kR32i},
    {F(R32_SFLOAT), 1, Numbers::single, {32}, false, kR32f},
    {F(R32G32_UINT), 2, Numbers::uint, {32, 32}},
    {F(R32G32_SINT), 2, Numbers::sint, {32, 32}},
    {F(R32G32_SFLOAT), 2, Numbers::single, {32, 32}},
    {F(R32G32B32A32_UINT), 4, Numbers::uint, {32, 32, 32, 32}, false, kRgba32ui},
    {F(R32G32B32A32_SINT), 4, Numbers::sint, {32, 32, 32, 32}, false, kRgba32i},
    {F(R32G32B32A32_SFLOAT), 4, Numbers::single, {32, 32, 32, 32}, false, kRgba32f},
    {F(A2B10G10R10_UNORM_PACK32), 4, Numbers::unorm, {10, 10, 10, 2}},
    {F(A2B10G10R10_UINT_PACK32), 4, Numbers::uint, {10, 10, 10, 2}},
    {F(A2R10G10B10_UNORM_PACK32), 4, Numbers::unorm, {10, 10, 10, 2}, true},
    {F(A2R10G10B10_UINT_PACK32), 4, Numbers::uint, {10, 10, 10, 2}, true},
    {F(B10G11R11_UFLOAT_PACK32), 3, Numbers::small, {11, 11, 10}},
    {F(E5B9G9R9_UFLOAT_PACK32), 3, Numbers::shared_exponent},
    {F(D16_UNORM), 1, Numbers::depth},
    {F(X8_D24_UNORM_PACK32), 1, Numbers::depth},
    {F(D32_SFLOAT), 1, Numbers::depth},
    {F(D16_UNORM_S8_UINT), 1, Numbers::depth, {}, false, 0, true},
    {F(D24_UNORM_S8_UINT), 1, Numbers::depth, {}, false, 0, true},
    {F(D32_SFLOAT_S8_UINT), 1, Numbers::depth, {}, false, 0, true},
};
#undef F

}  // namespace

uint32_t ImageFormat::most() const {
  if (writable() && kind() == 0 && (bits[0] == 8 || bits[0] == 16)) {
    if (numbers == Numbers::unorm) return (1u << bits[0]) - 1;
    if (numbers == Numbers::snorm) return (1u << (bits[0] - 1)) - 1;
  }
  return 0;
}

std::array<uint32_t, 4> ImageFormat::constants() const {
  return {static_cast<uint32_t>(numbers), static_cast<uint32_t>(channels), blue_first,
          bits[0] | uint32_t{bits[1]} << 8 | uint32_t{bits[2]} << 16 | uint32_t{bits[3]} << 24};
}

std::span<const ImageFormat> image_formats() { return kFormats; }

const ImageFormat* find_format(VkFormat format) {
  const auto* it =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const ImageFormat& f) { return f.format == format; });
  return it == std::end(kFormats) ? nullptr : it;
}

std::string format_name(VkFormat format) {
  const ImageFormat* f = find_format(format);
  return f ? f->name : "VkFormat " + std::to_string(format);
}

namespace {
// Integers of the channels' own width that arrays may be of, beside what every format of that kind has.
bool narrow(const ImageFormat& f, DType d) {
  const bool is_signed = f.kind() == 2 || f.numbers == Numbers::snorm;
  return (f.kind() != 0 || f.most() != 0) && bits(d) < 32 && bits(d) == f.bits[0] &&
         (is_signed ? is_signed_int(d) : is_unsigned_int(d));
}
}  // namespace

int dtype_code(const ImageFormat& f, DType d) {
  if (f.kind() == 0 ? d == DType::f32 : d == (f.kind() == 1 ? DType::u32 : DType::i32)) return 0;
  if (f.kind() == 0 && d == DType::f16) return 1;
  if (f.kind() == 0 && d == DType::bf16) return 2;
  return narrow(f, d) ? (bits(d) == 8 ? 3 : 4) : -1;
}

std::string dtypes_of(const ImageFormat& f) {
  std::vector<std::string_view> names;
  for (const DType d :
       {DType::f32, DType::f16, DType::bf16, DType::u32, DType::i32, DType::u8, DType::u16, DType::i8, DType::i16})
    if (dtype_code(f, d) >= 0) names.push_back(name(d));
  std::string list(names[0]);
  for (size_t i = 1; i < names.size(); ++i) list.append(i + 1 == names.size() ? " or " : ", ").append(names[i]);
  return list;
}

}  // namespace tessera::vulkan
