#include "runtime/call/recording.h"

#include <algorithm>

#include "runtime/device/names.h"
#include "runtime/submit/pipeline.h"

namespace tessera::vulkan {

using Command = GraphPlan::Command;
using Place = GraphPlan::Place;

uint64_t base(const GraphPlan::Storage& s) { return s.arena() ? static_cast<uint64_t>(s.arena()->offset) : 0; }

std::vector<PlaceUse> uses_of(const GraphPlan& plan, const std::vector<PreparedCall>& calls, size_t position) {
  return tessera::uses_of(plan, plan.commands[position], [&](size_t i) {
    const ProgramArg& a = calls[position].program->args[i];
    return std::pair(a.read, a.written);
  });
}

Recording::Recording(std::shared_ptr<Context> context, const PreparedPlan& prepared, std::vector<size_t> sequence,
                     bool timestamps)
    : context_(std::move(context)), plan_(prepared.plan), sequence_(std::move(sequence)), different_(sequence_) {
  const GraphPlan& plan = prepared.plan;
  const std::vector<PreparedCall>& calls = prepared.calls;
  std::sort(different_.begin(), different_.end());
  different_.erase(std::unique(different_.begin(), different_.end()), different_.end());
  indirect_ =
      std::any_of(different_.begin(), different_.end(), [&](size_t i) { return plan.commands[i].guard.has_value(); });
  const DeviceTable& vk = context_->vk();
  // To the end: recording into a command buffer uses the pool that those of all other threads are of.
  const std::lock_guard lock(context_->mutex());
  commands_ = context_->recorder().begin_replayable();
  name_object(vk, context_->handle(), commands_, "a graph");
  if (timestamps) timestamps_ = Timestamps::make(context_, sequence_.size(), "a graph's timestamps");
  if (timestamps_) timestamps_->reset(commands_, 0, sequence_.size());
  BarrierRule rule(plan, true);
  for (const size_t i : sequence_) {
    const Command& c = plan.commands[i];
    const bool copy = c.copy() != nullptr;
    Step step{
        .copy = copy, .name = copy ? "copy" : "dispatch " + calls[i].program->name, .uses = uses_of(plan, calls, i)};
    if (copy ? step.uses.empty() : calls[i].bound.count == 0) continue;
    step.barrier = rule.before(step.uses);
    if (step.barrier) {
      constexpr StageMask stages = mask(Stage::compute) | mask(Stage::transfer);
      memory_barrier(vk, commands_, stages, indirect_ ? stages | mask(Stage::indirect) : stages);
      ++barriers_;
    }
    // what waits for no other begins beside it; before the first one may stand a barrier of the recorder's
    if (timestamps_) timestamps_->write_begin(commands_, timed_.size(), step.barrier || steps_.empty());
    if (copy) record_copy(prepared, i);
    else record_call(prepared, i);
    if (timestamps_) {
      timestamps_->write_end(commands_, timed_.size());
      timed_.push_back(i);
    }
    steps_.push_back(std::move(step));
  }
  try {
    context_->recorder().end_replayable(commands_);
  } catch (...) {
    context_->recorder().retire(commands_);
    throw;
  }
}

void Recording::record_copy(const PreparedPlan& prepared, size_t command) const {
  const DeviceTable& vk = context_->vk();
  const Command::Copy& c = *plan_.commands[command].copy();
  const Buffer &from = *prepared.fixed[c.from.storage], &to = *prepared.fixed[c.to.storage];
  const VkBufferCopy region{from.offset() + base(plan_.storages[c.from.storage]) + static_cast<uint64_t>(c.from.offset),
                            to.offset() + base(plan_.storages[c.to.storage]) + static_cast<uint64_t>(c.to.offset),
                            static_cast<uint64_t>(c.to.bytes)};
  vk.vkCmdCopyBuffer(commands_, from.handle(), to.handle(), 1, &region);
}

void Recording::record_call(const PreparedPlan& prepared, size_t command) const {
  const DeviceTable& vk = context_->vk();
  const Command& c = plan_.commands[command];
  const PreparedCall& call = prepared.calls[command];
  if (has_names(vk)) begin_label(vk, commands_, with_line(call.program->name, call.program->loc));
  vk.vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, call.pipeline->handle());
  if (pushed_bytes(*call.program) > 0) {
    const uint64_t at = prepared.table->address() + call.table_at;
    vk.vkCmdPushConstants(commands_, call.pipeline->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof at, &at);
  }
  if (c.guard) {
    const Place& groups = plan_.gates[c.guard->gate].groups;
    const Buffer& b = *prepared.fixed[groups.storage];
    vk.vkCmdDispatchIndirect(
        commands_, b.handle(),
        b.offset() + base(plan_.storages[groups.storage]) + static_cast<uint64_t>(groups.offset + c.guard->offset()));
  } else {
    vk.vkCmdDispatch(commands_, call.bound.groups[0], call.bound.groups[1], call.bound.groups[2]);
  }
  end_label(vk, commands_);
}

Recording::~Recording() {
  if (context_->ended()) return;
  if (timestamps_) {
    try {
      context_->wait_all();
    } catch (const Error&) {  // the device is lost
    }
  }
  std::lock_guard lock(context_->mutex());
  context_->recorder().retire(commands_);
}

std::vector<Recording::Timed> Recording::times() const {
  std::vector<Timed> times;
  if (!ran_ || timed_.empty()) return times;
  std::vector<std::optional<Timestamps::Ticks>> ticks(timed_.size());
  timestamps_->read(0, ticks);
  for (size_t i = 0; i < timed_.size(); ++i)
    if (ticks[i]) times.push_back({timed_[i], *ticks[i]});
  return times;
}

std::vector<LogEntry> Recording::log(const std::vector<std::shared_ptr<Buffer>>& buffers, const Buffer& table) const {
  std::vector<LogEntry> entries;
  constexpr StageMask all = mask(Stage::compute) | mask(Stage::transfer);
  const StageMask to = indirect_ ? all | mask(Stage::indirect) : all;
  for (const Step& s : steps_) {
    if (s.barrier) entries.push_back({.event = LogEntry::Barrier{all, to}, .what = "barrier"});
    LogEntry::Command c{.stage = s.copy ? Stage::transfer : Stage::compute};
    for (const PlaceUse& t : s.uses) {
      const uint64_t at = buffers[t.place.storage]->address() + base(plan_.storages[t.place.storage]) +
                          static_cast<uint64_t>(t.place.offset);
      const AddressRange r{at, at + static_cast<uint64_t>(t.place.bytes)};
      if (t.reads) c.reads.push_back(r);
      if (t.writes) c.writes.push_back(r);
      if (t.indirect) c.indirect.push_back(r);
    }
    if (!s.copy) c.reads.push_back({table.address(), table.address() + table.size()});
    entries.push_back({.event = std::move(c), .what = s.name});
  }
  return entries;
}

}  // namespace tessera::vulkan
