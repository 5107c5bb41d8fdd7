#include "samples/support/picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace sample {
using tessera::Array;

namespace {
constexpr uint64_t kMostPixels = uint64_t{1} << 26;

[[noreturn]] void fail(const std::string& path, png_image& image) {
  const std::string why = image.message;
  png_image_free(&image);
  throw std::runtime_error(path + ": " + why);
}
}  // namespace

Array read_png(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::string file = tessera::InputFile(path).rest();
  if (!png_image_begin_read_from_memory(&image, file.data(), file.size())) fail(path, image);
  image.format = PNG_FORMAT_RGB;
  if (uint64_t{image.width} * image.height > kMostPixels) {  // a few bytes of file may say so
    const std::string size = std::to_string(image.width) + " x " + std::to_string(image.height);
    png_image_free(&image);
    throw std::runtime_error(path + ": a picture of " + size + " pixels, and at most " + std::to_string(kMostPixels) +
                             " are read");
  }
  std::vector<uint8_t> bytes(PNG_IMAGE_SIZE(image));
  const png_color white{255, 255, 255};
  if (!png_image_finish_read(&image, &white, bytes.data(), 0, nullptr)) fail(path, image);
  const size_t plane = size_t{image.width} * image.height;
  Array picture({3, image.height, image.width}, tessera::f32);
  const std::span<float> out = picture.data<float>();
  for (size_t p = 0; p < plane; ++p)
    for (size_t c = 0; c < 3; ++c) out[c * plane + p] = static_cast<float>(bytes[p * 3 + c]) / 255;
  return picture;
}

void write_png(const std::string& path, const Array& picture) {
  if (picture.shape().size() != 3 || picture.shape()[0] != 3)
    throw std::runtime_error(path + ": a picture is [3, height, width], not " + tessera::to_string(picture.shape()));
  const size_t plane = static_cast<size_t>(picture.shape()[1] * picture.shape()[2]);
  const std::span<const float> in = picture.data<float>();
  std::vector<uint8_t> bytes(plane * 3);
  for (size_t p = 0; p < plane; ++p)
    for (size_t c = 0; c < 3; ++c) {
      const float v = in[c * plane + p];
      bytes[p * 3 + c] = static_cast<uint8_t>(std::lround(255 * (v > 0 ? std::min(v, 1.0f) : 0.0f)));
    }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.width = static_cast<png_uint_32>(picture.shape()[2]);
  image.height = static_cast<png_uint_32>(picture.shape()[1]);
  if (!png_image_write_to_file(&image, path.c_str(), 0, bytes.data(), 0, nullptr)) fail(path, image);
}

tessera::Array planes(const tessera::Array& image) {
  const int64_t h = image.shape()[0], w = image.shape()[1];
  tessera::Array p({3, h, w}, tessera::f32);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < h * w; ++i)
      p.data<float>()[static_cast<size_t>(c * h * w + i)] = static_cast<float>(image.at(4 * i + c));
  return p;
}

Array gaussian(int taps, double sigma) {
  std::vector<double> bell;
  double sum = 0;
  for (int t = 0; t < taps; ++t) {
    const double d = t - (taps - 1) / 2.0;
    bell.push_back(std::exp(-d * d / (2 * sigma * sigma)));
    sum += bell.back();
  }
  std::vector<float> weights;
  for (double b : bell) weights.push_back(static_cast<float>(b / sum));
  return Array({taps}, weights);
}

double blurred_entry(const Array& picture, const Array& weights, int64_t position) {
  const int64_t h = picture.shape()[1], w = picture.shape()[2], taps = weights.size();
  const int64_t plane = position / (h * w), y = position / w % h, x = position % w;
  const std::span<const float> pixels = picture.data<float>().subspan(static_cast<size_t>(plane * h * w)),
                               weight = weights.data<float>();
  double sum = 0;
  for (int64_t i = 0; i < taps; ++i) {
    const int64_t row = std::clamp(y + i - taps / 2, int64_t{0}, h - 1);
    for (int64_t j = 0; j < taps; ++j) {
      const int64_t column = std::clamp(x + j - taps / 2, int64_t{0}, w - 1);
      sum += double{weight[static_cast<size_t>(i)]} * weight[static_cast<size_t>(j)] *
             pixels[static_cast<size_t>(row * w + column)];
    }
  }
  return sum;
}

}  // namespace sample
