#include "samples/renderer/overlay.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "samples/support/text.h"

namespace renderer {

Timer::Timer(Host& host) : host_(host) {
  for (Frame& f : frames_) {
    VkQueryPoolCreateInfo info{
        VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, nullptr, 0, VK_QUERY_TYPE_TIMESTAMP, 2 * kPasses, 0};
    VkQueryPool pool;
    check(vkCreateQueryPool(host.device(), &info, nullptr, &pool), "vkCreateQueryPool");
    f.pool = {pool, [d = host.device()](VkQueryPool x) { vkDestroyQueryPool(d, x, nullptr); }};
  }
}

void Timer::begin(VkCommandBuffer commands, uint64_t frame) {
  now_ = &frames_[frame % Host::kFramesInFlight];
  if (const size_t n = now_->names.size(); n > 0) {
    uint64_t ticks[2 * kPasses];
    check(vkGetQueryPoolResults(host_.device(), now_->pool, 0, static_cast<uint32_t>(2 * n), sizeof ticks, ticks,
                                sizeof ticks[0], VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
          "vkGetQueryPoolResults");
    times_.clear();
    for (size_t i = 0; i < n; ++i)
      times_.push_back(
          {now_->names[i], static_cast<double>(ticks[2 * i + 1] - ticks[2 * i]) * 1e-6 * host_.timestamp_period()});
  }
  now_->names.clear();
  vkCmdResetQueryPool(commands, now_->pool, 0, 2 * kPasses);
}
void Timer::start(VkCommandBuffer commands, const char* name) {
  vkCmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, now_->pool,
                       static_cast<uint32_t>(2 * now_->names.size()));
  now_->names.push_back(name);
}
void Timer::stop(VkCommandBuffer commands) {
  vkCmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, now_->pool,
                       static_cast<uint32_t>(2 * now_->names.size() - 1));
}

Overlay::Overlay(Host& host, Scene& scene) : host_(host), scene_(scene), since_(std::chrono::steady_clock::now()) {}

void Overlay::resize(VkExtent2D size) {
  scene_.resize(size);
  most_ = size;
  for (Buffer& b : panels_)
    b = host_.make_buffer(VkDeviceSize{4} * size.width * size.height, VK_BUFFER_USAGE_TRANSFER_SRC_BIT, true);
}

Scene::Result Overlay::draw(VkCommandBuffer commands, uint64_t frame) {
  const Result drawn = scene_.draw(commands, frame);
  const auto now = std::chrono::steady_clock::now();
  if (const double seconds = std::chrono::duration<double>(now - since_).count(); ++frames_ && seconds > 0.5)
    per_second_ = static_cast<double>(frames_) / seconds, frames_ = 0, since_ = now;
  std::vector<std::string> lines = scene_.words();
  char text[64];
  std::snprintf(text, sizeof text, "%u x %u  %.3g fps", std::min(drawn.picture->size.width, most_.width),
                std::min(drawn.picture->size.height, most_.height), per_second_);
  lines.insert(lines.begin(), text);
  size_t longest = 0;
  for (const std::string& l : lines) longest = std::max(longest, l.size());
  const uint32_t w = std::min(static_cast<uint32_t>(sample::kCharacterWidth * longest + 4), most_.width),
                 h = std::min(static_cast<uint32_t>(sample::kCharacterHeight * lines.size() + 4), most_.height);
  const Buffer& panel = panels_[frame % Host::kFramesInFlight];
  uint8_t* to = static_cast<uint8_t*>(panel.mapped);
  for (size_t i = 0; i < size_t{w} * h; ++i) std::memcpy(to + 4 * i, "\x14\x16\x1c\xff", 4);
  for (size_t i = 0; i < lines.size(); ++i)
    sample::draw_text(to, static_cast<int>(w), static_cast<int>(h), 4, 2,
                      2 + sample::kCharacterHeight * static_cast<int>(i), lines[i]);
  constexpr Scope copy{VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT};
  image_barrier(commands, *drawn.picture, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                {drawn.stages, drawn.accesses}, copy);
  const VkBufferImageCopy region{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, {w, h, 1}};
  vkCmdCopyBufferToImage(commands, panel.buffer, drawn.picture->image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1,
                         &region);
  image_barrier(commands, *drawn.picture, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                copy, {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_READ_BIT});
  return {drawn.picture, copy.stages, copy.accesses};
}

}  // namespace renderer
