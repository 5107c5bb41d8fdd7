#include "samples/support/window.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "samples/renderer/host.h"
#include "samples/support/text.h"

namespace {
thread_local std::string error;

/// The picture, copied from memory that the host sees.
class Shown : public renderer::Scene {
 public:
  Shown(renderer::Host& host, VkExtent2D size) : size_(size) {
    for (renderer::Buffer& b : texels_)
      b = host.make_buffer(VkDeviceSize{4} * size.width * size.height, VK_BUFFER_USAGE_TRANSFER_SRC_BIT, true);
    image_ = host.make_image(size, VK_FORMAT_R8G8B8A8_UNORM,
                             VK_IMAGE_USAGE_TRANSFER_DST_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT);
  }
  void next(const uint8_t* rgb, std::string text) { rgb_ = rgb, text_ = std::move(text); }
  size_t bytes() const { return size_t{3} * size_.width * size_.height; }
  bool drawn() const { return rgb_ == nullptr; }

  void resize(VkExtent2D) override {}  // the window may have any size; the picture keeps its own
  Result draw(VkCommandBuffer commands, uint64_t frame) override {
    const renderer::Buffer& from = texels_[frame % renderer::Host::kFramesInFlight];
    uint8_t* to = static_cast<uint8_t*>(from.mapped);
    for (size_t i = 0; i < size_t{size_.width} * size_.height; ++i) {
      std::memcpy(to + 4 * i, rgb_ + 3 * i, 3);
      to[4 * i + 3] = 255;
    }
    if (!text_.empty())
      sample::draw_text(to, static_cast<int>(size_.width), static_cast<int>(size_.height), 4, 0, 0, text_);
    rgb_ = nullptr;
    constexpr renderer::Scope copy{VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT};
    renderer::image_barrier(commands, image_, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                            {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, 0}, copy);
    const VkBufferImageCopy region{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, {size_.width, size_.height, 1}};
    vkCmdCopyBufferToImage(commands, from.buffer, image_.image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &region);
    renderer::image_barrier(commands, image_, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                            VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, copy,
                            {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_READ_BIT});
    return {&image_, VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT};
  }

 private:
  VkExtent2D size_;
  renderer::Buffer texels_[renderer::Host::kFramesInFlight];
  renderer::Image image_;
  const uint8_t* rgb_ = nullptr;
  std::string text_;
};

renderer::HostOptions options(const char* title, int width, int height) {
  const int times = std::clamp((511 + std::max(width, height)) / std::max(width, height), 1, 16);
  const char* validation = std::getenv("TESSERA_VALIDATION");
  return {.title = title,
          .size = {static_cast<uint32_t>(width * times), static_cast<uint32_t>(height * times)},
          .window = true,
          .device = {},
          .validation = validation && std::string(validation) == "1"};
}
}  // namespace

struct sample_window {
  renderer::Host host;
  Shown shown;
  std::vector<uint8_t> last;
  std::chrono::steady_clock::time_point start;
  uint64_t frames = 0;  // since `start`
  double per_second = 0;
  sample_window(const char* title, int width, int height)
      : host(options(title, width, height)),
        shown(host, {static_cast<uint32_t>(width), static_cast<uint32_t>(height)}) {}
};

sample_window* sample_window_open(const char* title, int width, int height) try {
  if (!title || width < 1 || height < 1)
    throw std::runtime_error("a window of " + std::to_string(width) + " x " + std::to_string(height) +
                             " pixels shows nothing");
  return new sample_window(title, width, height);
} catch (const std::exception& e) {
  error = e.what();
  return nullptr;
}

int sample_window_show(sample_window* window, const uint8_t* rgb) try {
  // Of the last half second, or of the last frame where one takes longer.
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - window->start).count();
  if (window->last.empty()) window->start = now;
  else if (++window->frames; seconds > 0.5 || window->per_second == 0)
    window->per_second = static_cast<double>(window->frames) / std::max(seconds, 1e-6), window->start = now,
    window->frames = 0;
  window->last.assign(rgb, rgb + window->shown.bytes());
  char text[32] = "";
  if (window->per_second > 0) std::snprintf(text, sizeof text, "%.3g fps", window->per_second);
  window->shown.next(rgb, text);
  window->host.run(window->shown, 1);
  if (!window->host.validation_messages().empty())
    throw std::runtime_error("the validation layers say of the window: " + window->host.validation_messages()[0]);
  return window->shown.drawn() ? 1 : 0;
} catch (const std::exception& e) {
  error = e.what();
  return -1;
}

void sample_window_hold(sample_window* window, double seconds) try {
  if (!(seconds > 0)) return;
  if (window->per_second > 0) {
    window->shown.next(window->last.data(), "");
    window->host.run(window->shown, 1);
  }
  window->host.hold(seconds);
} catch (const std::exception& e) {
  error = e.what();
}
void sample_window_close(sample_window* window) { delete window; }
const char* sample_window_error(void) { return error.c_str(); }
