#include "runtime/record/stream_times.h"

#include <algorithm>

#include "engine/base/error.h"

namespace tessera::vulkan {
namespace {
size_t positive_of(const char* name, int value) {
  if (value < 1)
    throw SpecError("CommandStream: StreamOptions::" + std::string(name) + " must be positive but is " +
                    std::to_string(value));
  return static_cast<size_t>(value);
}
}  // namespace

StreamTimes::StreamTimes(const Device& device, const StreamOptions& options)
    : context_(device.context()),
      calls_(positive_of("timed_calls", options.timed_calls)),
      slots_(positive_of("frames_in_flight", options.frames_in_flight) + 1) {
  if (context_->probe().timestamp_bits == 0)
    throw DeviceError("CommandStream: times are asked for, but the queue of " + device.info().name +
                      " writes no timestamps");
  timestamps_ = Timestamps::make(context_, calls_ * slots_.size(), "a stream's timestamps");
  if (!timestamps_)
    throw DeviceError("CommandStream: the driver makes no pool of " + std::to_string(2 * calls_ * slots_.size()) +
                      " timestamps (vkCreateQueryPool)");
  for (Slot& s : slots_) s.calls.resize(calls_);
}

StreamTimes::Slot* StreamTimes::of(uint64_t frame) {
  for (Slot& s : slots_)
    if (s.begun && s.frame == frame) return &s;
  return nullptr;
}

void StreamTimes::begin(uint64_t frame) {
  if (const Slot* slot = of(frame)) {  // another command buffer of the frame
    current_ = static_cast<size_t>(slot - slots_.data());
    return;
  }
  current_ = next_;
  next_ = (next_ + 1) % slots_.size();
  slots_[current_].begun = true;
  slots_[current_].frame = frame;
  slots_[current_].used = 0;
}

size_t StreamTimes::newest() const { return current_ * calls_ + slots_[current_].used - 1; }

bool StreamTimes::add(VkCommandBuffer commands, const std::shared_ptr<const Program>& program, int64_t bytes) {
  Slot& slot = slots_[current_];
  if (slot.used == calls_) return false;
  slot.calls[slot.used++] = {program, bytes};
  timestamps_->reset(commands, newest(), 1);
  return true;
}
void StreamTimes::write_begin(VkCommandBuffer commands, bool waits) const {
  timestamps_->write_begin(commands, newest(), waits);
}
void StreamTimes::write_end(VkCommandBuffer commands) const { timestamps_->write_end(commands, newest()); }

std::vector<TimedCommand> StreamTimes::trace(uint64_t frame) {
  const Slot* slot = of(frame);
  if (!slot) {
    std::string kept;
    std::vector<uint64_t> frames;
    for (const Slot& s : slots_)
      if (s.begun) frames.push_back(s.frame);
    std::sort(frames.begin(), frames.end());
    for (const uint64_t f : frames) kept += (kept.empty() ? "" : ", ") + std::to_string(f);
    throw SpecError("CommandStream::trace: there are no times of frame " + std::to_string(frame) + " but of " +
                        (frames.empty() ? "none" : kept),
                    {}, "a frame's times are kept while StreamOptions::frames_in_flight others begin");
  }
  std::vector<std::optional<Timestamps::Ticks>> read(slot->used);
  timestamps_->read(static_cast<size_t>(slot - slots_.data()) * calls_, read);
  std::vector<TimedCommand> commands;
  std::vector<Timestamps::Ticks> ticks;
  for (size_t i = 0; i < slot->used; ++i) {
    if (!read[i]) continue;
    const Call& c = slot->calls[i];
    commands.push_back({.name = c.program->name, .loc = c.program->loc, .bytes = c.bytes});
    ticks.push_back(*read[i]);
  }
  set_times(context_->probe(), commands, ticks);
  return commands;
}

}  // namespace tessera::vulkan
