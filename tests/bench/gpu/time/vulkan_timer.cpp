#include "tests/bench/gpu/time/vulkan_timer.h"

#include <cstring>
#include <functional>
#include <mutex>

#include "engine/interpreter/interpreter.h"
#include "runtime/call/call.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"

namespace tessera::bench {
namespace {

using vulkan::Buffer, vulkan::Context;

void everything(const vulkan::DeviceTable& vk, VkCommandBuffer commands, bool transfers) {
  VkMemoryBarrier2 barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2;
  barrier.srcStageMask = barrier.dstStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT;
  if (transfers) barrier.srcStageMask = barrier.dstStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  barrier.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT;
  VkDependencyInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO;
  info.memoryBarrierCount = 1;
  info.pMemoryBarriers = &barrier;
  vk.vkCmdPipelineBarrier2(commands, &info);
}

/// A command buffer with a batch in it, and the two timestamps.
class Batch {
 public:
  /// `one` records a run, the how-manieth it is given; a barrier follows.
  Batch(std::shared_ptr<Context> context, int repeats, bool transfers,
        const std::function<void(VkCommandBuffer, int)>& one)
      : context_(std::move(context)), repeats_(repeats) {
    const vulkan::DeviceTable& vk = context_->vk();
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = 2;
    if (context_->probe().timestamp_bits == 0) throw DeviceError("the device's queue has no timestamps");
    vulkan::check(vk.vkCreateQueryPool(context_->handle(), &info, vk.host, &pool_), "vkCreateQueryPool",
                  context_->probe().info.name);
    const std::lock_guard lock(context_->mutex());
    commands_ = context_->recorder().begin_replayable();
    vk.vkCmdResetQueryPool(commands_, pool_, 0, 2);
    everything(vk, commands_, true);
    vk.vkCmdWriteTimestamp2(commands_, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, pool_, 0);
    for (int i = 0; i < repeats; ++i) {
      one(commands_, i);
      everything(vk, commands_, transfers);
    }
    vk.vkCmdWriteTimestamp2(commands_, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, pool_, 1);
    everything(vk, commands_, true);
    context_->recorder().end_replayable(commands_);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    const std::lock_guard lock(context_->mutex());
    context_->recorder().retire(commands_);
    context_->vk().vkDestroyQueryPool(context_->handle(), pool_, context_->vk().host);
  }

  int repeats() const { return repeats_; }
  double seconds(const std::string& what) const {
    uint64_t value = 0;
    {
      const std::lock_guard lock(context_->mutex());
      vulkan::Recorder& recorder = context_->recorder();
      value = recorder.submit(what, [&] { recorder.replay(what, commands_, {}, {}); });
    }
    context_->wait(value);
    uint64_t times[2] = {};
    vulkan::check(
        context_->vk().vkGetQueryPoolResults(context_->handle(), pool_, 0, 2, sizeof times, times, sizeof times[0],
                                             VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
        "vkGetQueryPoolResults", context_->probe().info.name);
    const uint32_t bits = context_->probe().timestamp_bits;
    uint64_t ticks = times[1] - times[0];
    if (bits < 64) ticks &= (uint64_t{1} << bits) - 1;
    return 1e-9 * static_cast<double>(context_->probe().timestamp_period) * static_cast<double>(ticks) / repeats_;
  }

 private:
  std::shared_ptr<Context> context_;
  int repeats_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
};

class Dispatched : public Contender {
 public:
  Dispatched(const Device& device, std::shared_ptr<const Program> program, const VulkanArrays& arrays)
      : context_(device.context()), program_(std::move(program)), arrays_(arrays) {
    const Program& p = *program_;
    bound_ = vulkan::bind(p, {}, device, vulkan::Cut::loops);
    if (bound_.cut() || p.open_ended) throw DeviceError(p.name + ": its loops are cut, which is not timed");
    std::shared_ptr<Buffer> arena, report;
    if (p.scratch_bytes > 0) arena = vulkan::scratch_of(context_, p, bound_);
    if (p.report_bytes > 0) {
      report = context_->report_buffer(p);
      const std::lock_guard lock(context_->mutex());
      context_->recorder().submit(p.name, [&] { context_->clear_report(p.name, *report, p); });
    }
    keep_ = {arena, report};
    for (const auto& set : arrays_.sets) {
      std::vector<uint64_t> addresses;
      for (size_t i = 0; i < set.size(); ++i) {
        addresses.push_back(set[i].memory() ? set[i].memory()->address() : 0);
        vulkan::check_alignment(p, i, addresses.back());
      }
      if (arena) addresses.push_back(arena->address());
      if (report) addresses.push_back(report->address());
      std::shared_ptr<Buffer> table;
      pushes_.push_back(vulkan::pushes_of(context_, p, addresses, bound_, table)[0]);
      keep_.push_back(table);
    }
    device.wait();
  }

  double batch(int repeats) override {
    if (!batch_ || batch_->repeats() != repeats) {
      const vulkan::Pipeline& pipeline = context_->pipeline(*program_);
      const vulkan::DeviceTable& vk = context_->vk();
      batch_ = std::make_unique<Batch>(context_, repeats, false, [&](VkCommandBuffer c, int i) {
        const std::vector<std::byte>& push = pushes_[static_cast<size_t>(i) % pushes_.size()];
        if (i == 0) vk.vkCmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle());
        if (!push.empty())
          vk.vkCmdPushConstants(c, pipeline.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                static_cast<uint32_t>(push.size()), push.data());
        if (bound_.count > 0) vk.vkCmdDispatch(c, bound_.groups[0], bound_.groups[1], bound_.groups[2]);
      });
    }
    return batch_->seconds(program_->name);
  }

  std::vector<Array> outputs() override {
    std::vector<DeviceArray>& set = arrays_.sets[0];
    for (size_t i = 0; i < arrays_.begin.size(); ++i) set[arrays_.num_inputs + i].write(arrays_.begin[i]);
    set[0].device().wait();
    batch(1);
    std::vector<Array> all;
    for (size_t i = arrays_.num_inputs; i < set.size(); ++i) all.push_back(set[i].download());
    return all;
  }

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<const Program> program_;
  VulkanArrays arrays_;
  vulkan::Bound bound_;
  std::vector<std::shared_ptr<Buffer>> keep_;
  std::vector<std::vector<std::byte>> pushes_;
  std::unique_ptr<Batch> batch_;
};

class Copied : public Contender {
 public:
  Copied(const Device& device, int64_t bytes)
      : context_(device.context()),
        from_(device, Shape{bytes / 4}, DType::f32),
        to_(device, Shape{bytes / 4}, DType::f32) {}
  double batch(int repeats) override {
    if (!batch_ || batch_->repeats() != repeats)
      batch_ = std::make_unique<Batch>(context_, repeats, true, [&](VkCommandBuffer c, int) {
        const auto from = from_.memory(), to = to_.memory();
        const VkBufferCopy all{from->offset(), to->offset(), static_cast<VkDeviceSize>(from_.nbytes())};
        context_->vk().vkCmdCopyBuffer(c, from->handle(), to->handle(), 1, &all);
      });
    return batch_->seconds("copy");
  }
  std::vector<Array> outputs() override { return {}; }

 private:
  std::shared_ptr<Context> context_;
  DeviceArray from_, to_;
  std::unique_ptr<Batch> batch_;
};

}  // namespace

VulkanTimer::VulkanTimer(const DeviceOptions& options) : device_(options) {}

std::shared_ptr<const Program> VulkanTimer::load(const ir::Kernel& kernel) const {
  auto program = std::make_shared<const Program>(tessera::load(device_, kernel).program());
  device_.context()->pipeline(*program);
  return program;
}

std::shared_ptr<const Program> VulkanTimer::load(const Program& ours, const ShaderRow& row) const {
  const std::string code = read_file(row.module);
  auto program = std::make_shared<Program>();
  program->name = row.title();
  program->args = ours.args;
  program->alignment = ours.alignment;
  program->spirv.resize(code.size() / sizeof(uint32_t));
  std::memcpy(program->spirv.data(), code.data(), program->spirv.size() * sizeof(uint32_t));
  program->num_units = row.groups;
  program->workgroup_size = row.local;
  const int wave = row.macro("WAVE", 0);
  if (device_.target().can_require_subgroup_size) program->required_subgroup_size = wave;
  device_.context()->pipeline(*program);
  return program;
}

VulkanArrays VulkanTimer::arrays(const ir::Kernel& kernel, const std::vector<Array>& inputs, int sets) const {
  VulkanArrays all;
  all.num_inputs = inputs.size();
  for (const Array& a : inputs) all.begin.emplace_back(device_, a);
  std::vector<DeviceArray> originals;
  originals.swap(all.begin);
  std::vector<int> aliased(kernel.blocks.size(), -1);  // of an input: its output
  for (size_t i = inputs.size(); i < kernel.blocks.size(); ++i) {
    const int alias = kernel.blocks[i].alias;
    if (alias >= 0) aliased[static_cast<size_t>(alias)] = static_cast<int>(i);
    all.begin.push_back(alias >= 0 ? originals[static_cast<size_t>(alias)]
                                   : DeviceArray(device_, poisoned(bind_shape(kernel, static_cast<int>(i), {}),
                                                                   kernel.blocks[i].dtype)));
  }
  for (int s = 0; s < sets; ++s) {
    std::vector<DeviceArray> set(kernel.blocks.size());
    for (size_t i = 0; i < set.size(); ++i) {
      const bool input = i < inputs.size();
      if (input && aliased[i] >= 0) continue;
      if (input) set[i] = s == 0 ? originals[i] : originals[i].copy();
      else set[i] = all.begin[i - inputs.size()].copy();
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      if (aliased[i] >= 0) set[i] = set[static_cast<size_t>(aliased[i])];
    all.sets.push_back(std::move(set));
  }
  device_.wait();
  return all;
}

std::unique_ptr<Contender> VulkanTimer::contender(std::shared_ptr<const Program> program, const VulkanArrays& arrays) {
  return std::make_unique<Dispatched>(device_, std::move(program), arrays);
}

std::unique_ptr<Contender> VulkanTimer::copy(int64_t bytes) { return std::make_unique<Copied>(device_, bytes); }

}  // namespace tessera::bench
