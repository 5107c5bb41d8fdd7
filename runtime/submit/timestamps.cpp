#include "runtime/submit/timestamps.h"

#include <algorithm>

#include "runtime/device/names.h"

namespace tessera::vulkan {

std::unique_ptr<Timestamps> Timestamps::make(const std::shared_ptr<Context>& context, size_t commands,
                                             const char* name) {
  if (context->probe().timestamp_bits == 0 || commands == 0 || commands > UINT32_MAX / 2) return nullptr;
  const DeviceTable& vk = context->vk();
  VkQueryPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = static_cast<uint32_t>(2 * commands);
  VkQueryPool pool = VK_NULL_HANDLE;
  if (vk.vkCreateQueryPool(context->handle(), &info, vk.host, &pool) < 0) return nullptr;
  name_object(vk, context->handle(), pool, name);
  return std::unique_ptr<Timestamps>(new Timestamps(context, pool));
}

Timestamps::Timestamps(std::shared_ptr<Context> context, VkQueryPool pool)
    : context_(std::move(context)), pool_(pool) {}

Timestamps::~Timestamps() {
  if (!context_->ended()) context_->vk().vkDestroyQueryPool(context_->handle(), pool_, context_->vk().host);
}

void Timestamps::reset(VkCommandBuffer commands, size_t first, size_t count) const {
  context_->vk().vkCmdResetQueryPool(commands, pool_, static_cast<uint32_t>(2 * first),
                                     static_cast<uint32_t>(2 * count));
}

void Timestamps::write(VkCommandBuffer commands, size_t query, VkPipelineStageFlags2 stage) const {
  context_->vk().vkCmdWriteTimestamp2(commands, stage, pool_, static_cast<uint32_t>(query));
}
void Timestamps::write_begin(VkCommandBuffer commands, size_t n, bool waits) const {
  write(commands, 2 * n, waits ? VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT : VK_PIPELINE_STAGE_2_TOP_OF_PIPE_BIT);
}
void Timestamps::write_end(VkCommandBuffer commands, size_t n) const {
  write(commands, 2 * n + 1, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT);
}

void Timestamps::read(size_t first, std::span<std::optional<Ticks>> ticks) {
  std::fill(ticks.begin(), ticks.end(), std::nullopt);
  if (ticks.empty()) return;
  const auto query = static_cast<uint32_t>(2 * first), count = static_cast<uint32_t>(2 * ticks.size());
  values_.resize(std::max(values_.size(), 4 * ticks.size()));
  const VkResult r = context_->vk().vkGetQueryPoolResults(
      context_->handle(), pool_, query, count, 2 * count * sizeof values_[0], values_.data(), 2 * sizeof values_[0],
      VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
  if (r < 0) return;
  for (size_t i = 0; i < ticks.size(); ++i)
    if (values_[4 * i + 1] && values_[4 * i + 3]) ticks[i] = Ticks{values_[4 * i], values_[4 * i + 2]};
}

// Differences are taken of ticks, before they become a double, which has 53 bits; the counter may have begun anew
// between them, and the bits above the queue's are not defined.
void set_times(const Probe& probe, std::span<TimedCommand> commands, std::span<const Timestamps::Ticks> ticks) {
  const uint32_t unused = 64 - std::clamp<uint32_t>(probe.timestamp_bits, 1, 64);
  const auto period = static_cast<double>(probe.timestamp_period);
  const auto since_first = [&](uint64_t t) {
    return static_cast<double>(static_cast<int64_t>((t - ticks[0].begin) << unused) >> unused) * period;
  };
  double earliest = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    commands[i].begin = since_first(ticks[i].begin);
    commands[i].end = since_first(ticks[i].end);
    earliest = std::min(earliest, commands[i].begin);
  }
  for (TimedCommand& c : commands) {
    c.begin -= earliest;
    c.end -= earliest;
  }
}

}  // namespace tessera::vulkan
