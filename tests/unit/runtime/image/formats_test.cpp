// Every format of images, each level, layer and slice of them, against numbers that are worked out here from Vulkan's
// specification: texels that are read, and arrays that are written by storing and by packing their bytes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "engine/base/dtype.h"
#include "runtime/image/image.h"
#include "runtime/record.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace formats_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr ImageLayouts kGeneral{VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_GENERAL};

struct Format {
  VkFormat format;
  int channels;
  enum Numbers { unorm, snorm, srgb, whole, negative, floats, shared } numbers;
  int bits[4] = {};
  bool blue_first = false;

  bool integers() const { return numbers == whole || numbers == negative; }
  bool depth() const { return !(aspects_of(format) & VK_IMAGE_ASPECT_COLOR_BIT); }
  bool written() const { return !depth() && numbers != shared; }
  uint32_t bytes() const {  // of a texel that is copied
    const int sum = bits[0] + bits[1] + bits[2] + bits[3];
    return static_cast<uint32_t>(sum == 24 || numbers == shared ? 4 : sum / 8);
  }
};
const Format kFormats[] = {
    {VK_FORMAT_R8_UNORM, 1, Format::unorm, {8}},
    {VK_FORMAT_R8_SNORM, 1, Format::snorm, {8}},
    {VK_FORMAT_R8_UINT, 1, Format::whole, {8}},
    {VK_FORMAT_R8_SINT, 1, Format::negative, {8}},
    {VK_FORMAT_R8_SRGB, 1, Format::srgb, {8}},
    {VK_FORMAT_R8G8_UNORM, 2, Format::unorm, {8, 8}},
    {VK_FORMAT_R8G8_SNORM, 2, Format::snorm, {8, 8}},
    {VK_FORMAT_R8G8_UINT, 2, Format::whole, {8, 8}},
    {VK_FORMAT_R8G8_SINT, 2, Format::negative, {8, 8}},
    {VK_FORMAT_R8G8_SRGB, 2, Format::srgb, {8, 8}},
    {VK_FORMAT_R8G8B8A8_UNORM, 4, Format::unorm, {8, 8, 8, 8}},
    {VK_FORMAT_R8G8B8A8_SNORM, 4, Format::snorm, {8, 8, 8, 8}},
    {VK_FORMAT_R8G8B8A8_UINT, 4, Format::whole, {8, 8, 8, 8}},
    {VK_FORMAT_R8G8B8A8_SINT, 4, Format::negative, {8, 8, 8, 8}},
    {VK_FORMAT_R8G8B8A8_SRGB, 4, Format::srgb, {8, 8, 8, 8}},
    {VK_FORMAT_B8G8R8A8_UNORM, 4, Format::unorm, {8, 8, 8, 8}, true},
    {VK_FORMAT_B8G8R8A8_SNORM, 4, Format::snorm, {8, 8, 8, 8}, true},
    {VK_FORMAT_B8G8R8A8_UINT, 4, Format::whole, {8, 8, 8, 8}, true},
    {VK_FORMAT_B8G8R8A8_SINT, 4, Format::negative, {8, 8, 8, 8}, true},
    {VK_FORMAT_B8G8R8A8_SRGB, 4, Format::srgb, {8, 8, 8, 8}, true},
    {VK_FORMAT_R16_UNORM, 1, Format::unorm, {16}},
    {VK_FORMAT_R16_SNORM, 1, Format::snorm, {16}},
    {VK_FORMAT_R16_UINT, 1, Format::whole, {16}},
    {VK_FORMAT_R16_SINT, 1, Format::negative, {16}},
    {VK_FORMAT_R16_SFLOAT, 1, Format::floats, {16}},
    {VK_FORMAT_R16G16_UNORM, 2, Format::unorm, {16, 16}},
    {VK_FORMAT_R16G16_SNORM, 2, Format::snorm, {16, 16}},
    {VK_FORMAT_R16G16_UINT, 2, Format::whole, {16, 16}},
    {VK_FORMAT_R16G16_SINT, 2, Format::negative, {16, 16}},
    {VK_FORMAT_R16G16_SFLOAT, 2, Format::floats, {16, 16}},
    {VK_FORMAT_R16G16B16A16_UNORM, 4, Format::unorm, {16, 16, 16, 16}},
    {VK_FORMAT_R16G16B16A16_SNORM, 4, Format::snorm, {16, 16, 16, 16}},
    {VK_FORMAT_R16G16B16A16_UINT, 4, Format::whole, {16, 16, 16, 16}},
    {VK_FORMAT_R16G16B16A16_SINT, 4, Format::negative, {16, 16, 16, 16}},
    {VK_FORMAT_R16G16B16A16_SFLOAT, 4, Format::floats, {16, 16, 16, 16}},
    {VK_FORMAT_R32_UINT, 1, Format::whole, {32}},
    {VK_FORMAT_R32_SINT, 1, Format::negative, {32}},
    {VK_FORMAT_R32_SFLOAT, 1, Format::floats, {32}},
    {VK_FORMAT_R32G32_UINT, 2, Format::whole, {32, 32}},
    {VK_FORMAT_R32G32_SINT, 2, Format::negative, {32, 32}},
    {VK_FORMAT_R32G32_SFLOAT, 2, Format::floats, {32, 32}},
    {VK_FORMAT_R32G32B32A32_UINT, 4, Format::whole, {32, 32, 32, 32}},
    {VK_FORMAT_R32G32B32A32_SINT, 4, Format::negative, {32, 32, 32, 32}},
    {VK_FORMAT_R32G32B32A32_SFLOAT, 4, Format::floats, {32, 32, 32, 32}},
    {VK_FORMAT_A2B10G10R10_UNORM_PACK32, 4, Format::unorm, {10, 10, 10, 2}},
    {VK_FORMAT_A2B10G10R10_UINT_PACK32, 4, Format::whole, {10, 10, 10, 2}},
    {VK_FORMAT_A2R10G10B10_UNORM_PACK32, 4, Format::unorm, {10, 10, 10, 2}, true},
    {VK_FORMAT_A2R10G10B10_UINT_PACK32, 4, Format::whole, {10, 10, 10, 2}, true},
    {VK_FORMAT_B10G11R11_UFLOAT_PACK32, 3, Format::floats, {11, 11, 10}},
    {VK_FORMAT_E5B9G9R9_UFLOAT_PACK32, 3, Format::shared, {9, 9, 9}},
    {VK_FORMAT_D16_UNORM, 1, Format::unorm, {16}},
    {VK_FORMAT_X8_D24_UNORM_PACK32, 1, Format::unorm, {24}},
    {VK_FORMAT_D32_SFLOAT, 1, Format::floats, {32}},
    {VK_FORMAT_D16_UNORM_S8_UINT, 1, Format::unorm, {16}},
    {VK_FORMAT_D24_UNORM_S8_UINT, 1, Format::unorm, {24}},
    {VK_FORMAT_D32_SFLOAT_S8_UINT, 1, Format::floats, {32}},
};

double most_of(const Format& f, int c) {
  return std::exp2(f.bits[c] - (f.numbers == Format::snorm || f.numbers == Format::negative)) - 1;
}

// ---- texels, channel by channel: the codes that are stored

uint64_t mask_of(int bits) { return (uint64_t{1} << bits) - 1; }

struct Texel {
  uint32_t code[4] = {};
  uint32_t exponent = 0;  // that its channels share
};
int place_of(const Format& f, int c) {  // its first bit
  int at = 0;
  for (int i = 0; i < f.channels; ++i) {
    const int other = f.blue_first && i < 3 ? 2 - i : i;
    if (other == c) return at;
    at += f.bits[other];
  }
  return at;
}
void put(const Format& f, const Texel& t, std::byte* to) {
  uint64_t words[2] = {};
  for (int c = 0; c < f.channels; ++c) {
    const int at = place_of(f, c);
    words[at / 64] |= static_cast<uint64_t>(t.code[c]) << (at % 64);
  }
  if (f.numbers == Format::shared) words[0] |= static_cast<uint64_t>(t.exponent) << 27;
  std::memcpy(to, words, f.bytes());
}
Texel texel(const Format& f, const std::byte* from) {
  uint64_t words[2] = {};
  std::memcpy(words, from, f.bytes());
  Texel t;
  for (int c = 0; c < f.channels; ++c) {
    const int at = place_of(f, c);
    t.code[c] = static_cast<uint32_t>(words[at / 64] >> (at % 64) & mask_of(f.bits[c]));
  }
  t.exponent = static_cast<uint32_t>(words[0] >> 27 & 31);
  return t;
}

// ---- what codes mean

double sign_extended(uint32_t code, int bits) {
  const auto x = static_cast<int64_t>(code);
  return static_cast<double>(x >> (bits - 1) & 1 ? x - (int64_t{1} << bits) : x);
}
// A float with 5 bits of exponent and without a sign.
double small_float(uint32_t code, int bits) {
  const int mantissa = bits - 5;
  const auto m = static_cast<double>(code & mask_of(mantissa)) / std::exp2(mantissa);
  const auto e = static_cast<int>(code >> mantissa & 31);
  if (e == 31) return m == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return e == 0 ? std::exp2(-14) * m : std::exp2(e - 15) * (1 + m);
}
double value(const Format& f, const Texel& t, int c) {
  const uint32_t code = t.code[c];
  const int bits = f.bits[c];
  switch (f.numbers) {
    case Format::unorm: return code / most_of(f, c);
    case Format::snorm: return std::max(sign_extended(code, bits) / most_of(f, c), -1.0);
    case Format::srgb: {
      const double x = code / 255.0;
      return c == 3 ? x : x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4);
    }
    case Format::whole: return code;
    case Format::negative: return sign_extended(code, bits);
    case Format::shared: return code * std::exp2(static_cast<int>(t.exponent) - 15 - 9);
    case Format::floats: break;
  }
  if (bits == 32) return static_cast<double>(std::bit_cast<float>(code));
  return bits == 16 ? from_f16_bits(static_cast<uint16_t>(code)) : small_float(code, bits);
}

// ---- what numbers become

uint32_t rounded_small(double x, int bits) {  // by trying all of them
  const uint32_t infinity = 31u << (bits - 5);
  if (std::isnan(x)) return infinity | 1;
  if (x == std::numeric_limits<double>::infinity()) return infinity;
  if (!(x > 0)) return 0;
  uint32_t low = 0, high = infinity - 1;  // of two neighbours, x between
  if (x >= small_float(high, bits)) return high;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (small_float(middle, bits) <= x ? low : high) = middle;
  }
  const double below = x - small_float(low, bits), above = small_float(high, bits) - x;
  return below < above || (below == above && low % 2 == 0) ? low : high;
}
uint32_t nearest(double x, double most) {  // x from 0 on; exact, since x is an f32
  return static_cast<uint32_t>(std::floor(std::min(x, 1.0) * most + 0.5));
}
uint32_t code_of(const Format& f, double x, int c) {
  const int bits = f.bits[c];
  const double most = most_of(f, c);
  switch (f.numbers) {
    case Format::unorm: return x > 0 ? nearest(x, most) : 0;
    case Format::snorm: {
      const double n = std::isnan(x) ? 0 : std::copysign(nearest(std::abs(x), most), x);
      return static_cast<uint32_t>(static_cast<int64_t>(n)) & static_cast<uint32_t>(mask_of(bits));
    }
    case Format::srgb: {
      if (!(x > 0)) return 0;
      const long double l = std::min(x, 1.0);
      return c == 3 ? nearest(x, 255)
                    : static_cast<uint32_t>(std::floor(
                          255 * (l <= 0.0031308L ? 12.92L * l : 1.055L * std::pow(l, 1 / 2.4L) - 0.055L) + 0.5L));
    }
    case Format::whole: return static_cast<uint32_t>(std::clamp(x, 0.0, most));
    case Format::negative:
      return static_cast<uint32_t>(static_cast<int64_t>(std::clamp(x, -most - 1, most))) &
             static_cast<uint32_t>(mask_of(bits));
    case Format::shared: break;
    case Format::floats: break;
  }
  if (bits == 32) return std::bit_cast<uint32_t>(static_cast<float>(x));
  return bits == 16 ? to_f16_bits(x) : rounded_small(x, bits);
}
bool same(const Format& f, const Texel& a, const Texel& b) {
  for (int c = 0; c < f.channels; ++c)
    if (a.code[c] != b.code[c] && !(std::isnan(value(f, a, c)) && std::isnan(value(f, b, c)))) return false;
  return true;
}

// ---- images

/// A part of an image.
struct Place {
  VkExtent3D whole;
  uint32_t levels = 1, layers = 1;
  uint32_t level = 0, layer = 0, count = 0;  // as in ImportedImage

  bool solid() const { return whole.depth > 1; }
  VkExtent3D extent() const {
    const auto at = [&](uint32_t n) { return std::max(n >> level, 1u); };
    return {at(whole.width), at(whole.height), at(whole.depth)};
  }
  Shape dims() const {
    const VkExtent3D e = extent();
    Shape s{e.height, e.width};
    if (solid() || count > 0) s.insert(s.begin(), solid() ? e.depth : count);
    return s;
  }
  int64_t texels() const { return num_elements(dims()); }
};
const Place kPlaces[] = {{{33, 17, 1}},
                         {{1, 1, 1}},
                         {{5, 3, 1}},
                         {{37, 22, 1}, 3, 4, 1, 1, 2},
                         {{9, 6, 1}, 2, 3, 1, 2, 0},
                         {{3, 7, 1}, 1, 3, 0, 0, 3},
                         {{4, 4, 1}, 3, 2, 2, 1, 1},
                         {{13, 6, 5}, 2, 1, 1},
                         {{3, 5, 7}}};

struct Picture {
  /// `uses`: of its usage, what is said to Tessera, which makes code for all of them.
  Picture(VulkanHost& h, const Device& d, const Format& format, const Place& p, VkImageUsageFlags usage,
          VkImageUsageFlags uses)
      : host(h),
        f(format),
        place(p),
        image(h.image(format.format, p.whole, p.levels, p.layers, usage)),
        bytes(h.buffer(static_cast<VkDeviceSize>(p.texels()) * format.bytes(),
                       VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT)),
        commands(h.commands()),
        taken(d, imported(uses)) {
    host.begin(commands);
    host.image_barrier(commands, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
    host.run(commands);
  }
  ImportedImage imported(VkImageUsageFlags uses) const {
    ImportedImage i{image.handle, f.format, {place.extent().width, place.extent().height}, uses};
    i.mip_level = place.level, i.array_layer = place.layer, i.layer_count = place.count;
    i.type = place.solid() ? VK_IMAGE_TYPE_3D : VK_IMAGE_TYPE_2D, i.depth = place.extent().depth;
    i.mip_levels = place.levels, i.array_layers = place.layers;
    return i;
  }
  VkBufferImageCopy region() const {
    const VkImageAspectFlags aspect = f.depth() ? VK_IMAGE_ASPECT_DEPTH_BIT : VK_IMAGE_ASPECT_COLOR_BIT;
    return {0, 0, 0, {aspect, place.level, place.layer, std::max(place.count, 1u)}, {}, place.extent()};
  }
  std::byte* at(int64_t t) const { return reinterpret_cast<std::byte*>(bytes.mapped) + t * f.bytes(); }
  void upload() const {
    host.begin(commands);
    host.barrier(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_WRITE_BIT,
                 VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT);
    const VkBufferImageCopy r = region();
    host.vkCmdCopyBufferToImage(commands, bytes.handle, image.handle, VK_IMAGE_LAYOUT_GENERAL, 1, &r);
    host.barrier(commands, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT,
                 VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT);
    host.run(commands);
  }
  void download() const {
    host.begin(commands);
    host.barrier(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_WRITE_BIT,
                 VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT);
    const VkBufferImageCopy r = region();
    host.vkCmdCopyImageToBuffer(commands, image.handle, VK_IMAGE_LAYOUT_GENERAL, bytes.handle, 1, &r);
    host.barrier(commands, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT,
                 VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT);
    host.run(commands);
  }
  VulkanHost& host;
  const Format& f;
  const Place& place;
  VulkanHost::Image image;
  VulkanHost::Buffer bytes;
  VkCommandBuffer commands;
  DeviceImage taken;
};

/// Whether the device makes such an image.
bool possible(const VulkanHost& host, const Format& f, const Place& p, VkImageUsageFlags usage) {
  VkImageFormatProperties has;
  return host.vkGetPhysicalDeviceImageFormatProperties(host.physical, f.format,
                                                       p.solid() ? VK_IMAGE_TYPE_3D : VK_IMAGE_TYPE_2D,
                                                       VK_IMAGE_TILING_OPTIMAL, usage, 0, &has) == VK_SUCCESS;
}

std::vector<DType> dtypes_of(const Format& f) {
  std::vector<DType> d;
  if (f.numbers == Format::whole) d = {u32};
  else if (f.numbers == Format::negative) d = {i32};
  else d = {f32, f16, bf16};
  const bool is_signed = f.numbers == Format::snorm || f.numbers == Format::negative,
             narrow = (f.bits[0] == 8 || f.bits[0] == 16) && f.numbers != Format::srgb && f.numbers != Format::floats;
  if (narrow && !f.depth()) d.push_back(is_signed ? (f.bits[0] == 8 ? i8 : i16) : f.bits[0] == 8 ? u8 : u16);
  return d;
}
/// Whether arrays of it hold the numbers that a normalized format stores.
bool stored_numbers(const Format& f, DType d) { return !f.integers() && is_int(d); }

/// Numbers at the edges of a format, and between them.
std::vector<double> hard_numbers(const Format& f) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> x{0, -0.0, 1, -1, 0.5, -0.5, 2, -2};
  const auto around = [&](double at) {
    const auto a = static_cast<float>(at);
    for (const float b : {a, std::nextafter(a, 0.0f), std::nextafter(a, std::numeric_limits<float>::infinity())})
      x.insert(x.end(), {static_cast<double>(b), static_cast<double>(-b)});
  };
  if (f.integers()) {
    for (const double n :
         {127., 128., 255., 256., 3., 4., 1023., 1024., 32767., 32768., 65535., 65536., 2147483647., 4294967295.})
      x.insert(x.end(), {n, -n, n - 1, 1 - n, -n - 1});
    return x;
  }
  x.insert(x.end(), {inf, -inf, nan, 1e30, -1e30, 1e-30, -1e-30});
  if (f.bits[0] < 32 && f.numbers == Format::floats)
    for (const double at :
         {65504.,         65519.996,  65520.,         65024.,      64512.,          65535.,        65536.,
          0x1p-14,        0x1p-20,    0x1p-21,        0x1p-24,     0x1p-25,         1.5 * 0x1p-20, 1 + 0x1p-7,
          1 + 3 * 0x1p-7, 1 + 0x1p-6, 1 + 3 * 0x1p-6, 1 + 0x1p-11, 1 + 3 * 0x1p-11, 65024 + 256.,  64512. + 512})
      around(at);
  if (f.numbers == Format::unorm || f.numbers == Format::snorm)
    for (const double k : {0., 1., 2., 63., 126., 254., 511., 1022., 16383., 32766., 65534.})
      if (k < most_of(f, 0)) around((k + 0.5) / most_of(f, 0));
  if (f.numbers == Format::srgb)
    for (int k = 0; k < 255; k += 3) {  // where numbers begin
      const double v = (k + 0.5) / 255;
      around(v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4));
    }
  return x;
}

double rounded(double x, DType d) {
  return d == f16 ? from_f16_bits(to_f16_bits(x)) : d == bf16 ? from_bf16_bits(to_bf16_bits(x)) : x;
}
/// An array for the place, its numbers hard ones and, where these are used up, others.
Array numbers_for(const Format& f, const Place& p, int channels, DType d, std::mt19937& random) {
  Shape shape = p.dims();
  shape.push_back(channels);
  Array a(shape, d);
  const std::vector<double> hard = hard_numbers(f);
  const auto offset = p.texels() == 1 ? random() : 0;
  for (int64_t e = 0; e < a.size(); ++e) {
    const size_t k = static_cast<size_t>(e) + offset;
    double x = k < hard.size() || p.texels() == 1 ? hard[k % hard.size()] : 0;
    if (k >= hard.size() && p.texels() > 1) {
      x = static_cast<double>(static_cast<float>(random()) * 0x1p-31f - 0.5f);  // from -0.5 to 1.5
      if (f.integers()) x = std::floor(x * 70000);
      else if (f.numbers == Format::floats)
        x = static_cast<double>(static_cast<float>(std::ldexp(x, static_cast<int>(random() % 40) - 22)));
    }
    if (is_int(d)) {
      const auto bits =
          static_cast<uint64_t>(stored_numbers(f, d) ? static_cast<int64_t>(random()) : static_cast<int64_t>(x));
      a.set_element_bits(e, bits & mask_of(tessera::bits(d)));
    } else if (d == f32) {
      a.set_element_bits(e, std::bit_cast<uint32_t>(static_cast<float>(x)));
    } else {
      a.set_element_bits(e, d == f16 ? to_f16_bits(x) : to_bf16_bits(x));
    }
  }
  return a;
}
Texel written(const Format& f, const Array& a, int64_t t, int channels) {
  Texel made;
  for (int c = 0; c < f.channels; ++c) {
    if (c >= channels) {
      made.code[c] = code_of(f, c == 3 ? 1 : 0, c);
    } else if (const double x = a.at(t * channels + c); stored_numbers(f, a.dtype())) {
      made.code[c] =
          static_cast<uint32_t>(static_cast<int64_t>(std::max(x, -most_of(f, c) * (f.numbers == Format::snorm)))) &
          static_cast<uint32_t>(mask_of(f.bits[c]));
    } else {
      made.code[c] = code_of(f, x, c);
    }
  }
  return made;
}

void check_written(const Picture& p, const Array& a, int channels) {
  p.download();
  int64_t wrong = 0;
  for (int64_t t = 0; t < p.place.texels(); ++t) {
    const Texel got = texel(p.f, p.at(t)), want = written(p.f, a, t, channels);
    if (same(p.f, got, want) || wrong++ > 0) continue;
    for (int c = 0; c < p.f.channels; ++c) {
      CAPTURE(t);
      CAPTURE(c);
      if (c < channels) CAPTURE(a.at(t * channels + c));
      CHECK(got.code[c] == want.code[c]);
    }
  }
  CHECK(wrong == 0);
}

void check_read(const Picture& p, const Array& got, int channels) {
  const Format& f = p.f;
  const DType d = got.dtype();
  int64_t wrong = 0;
  for (int64_t e = 0; e < got.size(); ++e) {
    const Texel t = texel(f, p.at(e / channels));
    const auto c = static_cast<int>(e % channels);
    double want = value(f, t, c), tolerance = 0;
    if (stored_numbers(f, d)) want = std::round(want * most_of(f, c));
    else if (f.numbers == Format::srgb && c < 3) tolerance = srgb_tolerance(want);
    else if (f.numbers <= Format::srgb) tolerance = 2e-7;  // a driver may be an ulp off
    if (!is_int(d)) {
      if (tolerance > 0) tolerance += d == f16 ? 1e-3 : d == bf16 ? 8e-3 : 0;
      else want = rounded(want, d);
    }
    const double x = got.at(e);
    if ((std::isnan(x) && std::isnan(want)) || x == want || std::abs(x - want) <= tolerance || wrong++ > 0) continue;
    CAPTURE(e);
    CHECK(x == want);
  }
  CHECK(wrong == 0);
}

Texel random_texel(const Format& f, std::mt19937& random) {
  Texel t;
  for (int c = 0; c < f.channels; ++c) {
    t.code[c] = static_cast<uint32_t>(random() & mask_of(f.bits[c]));
    if (f.depth() && f.numbers == Format::floats)
      t.code[c] = std::bit_cast<uint32_t>(static_cast<float>(random()) * 0x1p-32f);
    else if (f.bits[c] == 32 && f.numbers == Format::floats && (t.code[c] & 0x7f800000u) == 0)
      t.code[c] = 0;  // subnormal
  }
  t.exponent = static_cast<uint32_t>(random() & 31);
  return t;
}

}  // namespace

TEST_CASE("formats: every texel is read as its number") {
  auto host = std::make_unique<VulkanHost>();
  std::mt19937 random(1);
  {
    const Device d = Device::import(host->imported());
    for (const Format& f : kFormats) {
      CAPTURE(f.format);
      for (const Place& place : kPlaces) {
        CAPTURE(to_string(place.dims()));
        constexpr VkImageUsageFlags kUsage =
            VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT;
        if (!possible(*host, f, place, kUsage)) {
          MESSAGE(f.format << " is no image of " << to_string(place.dims()) << " here");
          continue;
        }
        const Picture p(*host, d, f, place, kUsage, VK_IMAGE_USAGE_SAMPLED_BIT);
        CHECK(p.taken.channels() == f.channels);
        for (int64_t t = 0; t < place.texels(); ++t) {
          Texel x = random_texel(f, random);
          if (f.bits[0] == 8)
            for (uint32_t c = 0; c < 4; ++c) x.code[c] = static_cast<uint32_t>(t + 37 * c) & 255;  // all of them
          put(f, x, p.at(t));
        }
        p.upload();
        for (const DType dtype : dtypes_of(f)) {
          CAPTURE(name(dtype));
          const Array got = read_image(p.taken, dtype, kGeneral).download();
          CHECK(got.shape() == p.taken.shape());
          check_read(p, got, f.channels);
        }
        if (f.channels > 1) check_read(p, read_image(p.taken, dtypes_of(f)[0], kGeneral, 1).download(), 1);
      }
    }
  }
  check_silent(std::move(host));
}

TEST_CASE("formats: every number is written as its texel, stored or packed") {
  for (const bool all_features : {true, false}) {
    CAPTURE(all_features);
    auto host = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = all_features, .without = {}});
    std::mt19937 random(1);
    int stored_formats = 0;
    {
      const Device d = Device::import(host->imported());
      for (const Format& f : kFormats) {
        if (!f.written()) continue;
        CAPTURE(f.format);
        VkFormatProperties has;
        host->vkGetPhysicalDeviceFormatProperties(host->physical, f.format, &has);
        for (const bool stores : {false, true}) {
          if (stores && !(has.optimalTilingFeatures & VK_FORMAT_FEATURE_STORAGE_IMAGE_BIT)) continue;
          if (!stores && !all_features) continue;  // as with all features
          CAPTURE(stores);
          for (const Place& place : kPlaces) {
            CAPTURE(to_string(place.dims()));
            const VkImageUsageFlags usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT |
                                            VK_IMAGE_USAGE_SAMPLED_BIT | (stores ? VK_IMAGE_USAGE_STORAGE_BIT : 0);
            if (!possible(*host, f, place, usage)) continue;
            const Picture p(*host, d, f, place, usage, usage & ~VkImageUsageFlags{VK_IMAGE_USAGE_SAMPLED_BIT});
            stored_formats += !p.taken.state()->packed() && &place == kPlaces;
            for (const DType dtype : dtypes_of(f)) {
              CAPTURE(name(dtype));
              for (int channels = f.channels; channels >= 1; channels -= 2) {
                const Array a = numbers_for(f, place, channels, dtype, random);
                write_image(p.taken, DeviceArray(d, a), kGeneral);
                check_written(p, a, channels);
                if (&place != kPlaces) break;
              }
              if (&place != kPlaces) break;
            }
            if (!all_features && p.taken.state()->packed()) break;  // all places have been packed above
          }
        }
      }
    }
    // Without features, those that every device stores to.
    CHECK((all_features ? stored_formats >= 13 : stored_formats == 13));
    check_silent(std::move(host));
  }
}

}  // namespace formats_test
