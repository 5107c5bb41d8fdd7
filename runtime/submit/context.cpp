#include "runtime/submit/context.h"

#include <chrono>
#include <thread>

#include "codegen/program/program.h"
#include "engine/base/error.h"
#include "runtime/device/names.h"
#include "runtime/submit/pipeline.h"
#include "runtime/submit/process_end.h"

namespace tessera::vulkan {
namespace {

// Before a device is opened.
const DeviceOptions& checked(const DeviceOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (options.print_bytes < 0 || options.print_bytes > kMost)
    throw SpecError("DeviceOptions::print_bytes is " + std::to_string(options.print_bytes) + ", not between 0 and " +
                    std::to_string(kMost));
  if (options.memory_limit < 0)
    throw SpecError("DeviceOptions::memory_limit is " + std::to_string(options.memory_limit) + ", which is below 0");
  if (!(options.watchdog_seconds >= 0))
    throw SpecError("DeviceOptions::watchdog_seconds is " + std::to_string(options.watchdog_seconds) +
                    ", which is not 0 or more");
  return options;
}

}  // namespace

std::shared_ptr<Context> Context::create(const DeviceOptions& options) {
  return end_with_process(std::shared_ptr<Context>(new Context(options, nullptr)));
}
std::shared_ptr<Context> Context::import(const ImportedDevice& device, const DeviceOptions& options) {
  return end_with_process(std::shared_ptr<Context>(new Context(options, &device)));
}

void Context::end(bool waits) noexcept {
  try {
    if (waits && !imported_) wait_all();  // a host's device may be gone
  } catch (...) {                         // the device is lost
  }
  for (bool said = !waits; !said;) try {
      say();
      said = true;
    } catch (...) {  // of the user's callback
    }
  ended_ = true;
}

std::shared_ptr<Context> Context::again() {
  if (imported_)
    throw DeviceError("Device::recover: " + name() +
                      " has been imported: its host makes a new device and imports that");
  DeviceOptions options = options_;
  options.select = std::to_string(probe_.info.index);
  std::shared_ptr<Context> fresh = create(options);
  const std::scoped_lock lock(programs_mutex, choices_mutex);
  fresh->programs = programs;
  fresh->choices = choices;
  return fresh;
}

Context::Context(const DeviceOptions& options, const ImportedDevice* imported)
    : DeviceHeap(checked(options), imported) {
  print_bytes_ = options.print_bytes / 4 * 4;
  if (imported) hosts_pipeline_cache_ = imported->pipeline_cache;
  recorder_ = std::make_unique<Recorder>(vk_, device_, queue_, name(), options_.log_commands, imported_);
  pace_ = std::make_unique<Pace>(vk_, device_, probe_);
  if (!imported_) {
    name_object(vk_, device_, device_, "Tessera's device");
    name_object(vk_, device_, queue_.handle, "Tessera's queue");
  }
}

Context::~Context() {
  // Objects may go when the device is idle or lost. Short of memory it is neither.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const VkResult r = imported_ ? idle() : vk_.vkDeviceWaitIdle(device_);
    if (r >= 0 || r == VK_ERROR_DEVICE_LOST) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const auto& o : in_flight_) {
    const bool prints = o->report && !o->sites.prints.empty();
    try {
      if (prints) settle(*o);
    } catch (...) {  // the device is lost
    }
    o->inputs.clear();
    if (o->report) reports_.push_back(std::move(o->report));
  }
  in_flight_.clear();
  for (bool said = false; !said;) try {
      say();
      said = true;
    } catch (...) {  // of the user's callback, which has been given one line more
    }
  reports_.clear();
  free_all_garbage();
  pipelines_.clear();
  images.reset();
}

// Of an imported device only what is ours: its host may be using the other queues.
VkResult Context::idle() {
  VkSemaphore timeline = recorder_->timeline();
  const uint64_t value = recorder_->submitted();
  const VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &timeline, &value};
  const VkResult r = vk_.vkWaitSemaphores(device_, &info, UINT64_MAX);
  return r == VK_TIMEOUT ? VK_ERROR_UNKNOWN : r;
}

void Context::require_alive() {
  const std::lock_guard lock(mutex_);
  recorder_->require_alive();
}

void Context::wait(uint64_t value) {
  {
    const std::lock_guard lock(mutex_);
    recorder_->require_alive();
    if (value == 0) return;
    if (value <= recorder_->known_completed()) return collect();
  }
  VkSemaphore timeline = recorder_->timeline();
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &timeline, &value};
  VkResult r = VK_TIMEOUT;
  // drivers may count in less than 64 bits
  while (r == VK_TIMEOUT) r = vk_.vkWaitSemaphores(device_, &info, UINT64_MAX);
  std::lock_guard lock(mutex_);
  recorder_->check_alive(r, "vkWaitSemaphores");
  recorder_->note_completed(value);
  collect();
}

void Context::wait_all() {
  uint64_t value;
  {
    std::lock_guard lock(mutex_);
    value = recorder_->submitted();
  }
  wait(value);
}

bool Context::lost() const { return recorder_->lost(); }
void Context::note_release(AddressRange range) { recorder_->note_release(range); }
Hazards Context::used_by_anything() { return recorder_->used_by_anything(); }

void Context::collect() {
  recorder_->require_alive();
  if (!has_garbage() && in_flight_.empty() && !pace_->waits()) return;
  const uint64_t completed = recorder_->completed();
  pace_->collect(completed);
  for (; !in_flight_.empty() && in_flight_.front()->value <= completed; in_flight_.pop_front())
    settle(*in_flight_.front());
  free_garbage(completed);
}

const Pipeline& Context::pipeline(const Program& program) {
  require_alive();
  check_limits(program, probe_.info.target);  // not part of the key
  const uint64_t key = Pipeline::hash(program);
  const auto find = [&]() -> const Pipeline* {
    for (auto [it, end] = pipelines_.equal_range(key); it != end; ++it)
      if (it->second->is_for(program)) return it->second.get();
    return nullptr;
  };
  {
    std::lock_guard lock(pipelines_mutex_);
    if (const Pipeline* p = find()) return *p;
  }
  auto made = std::make_unique<Pipeline>(*this, program);  // several threads at once, perhaps of the same program
  std::lock_guard lock(pipelines_mutex_);
  if (const Pipeline* p = find()) return *p;
  ++(made->from_disk() ? pipelines_from_disk : pipelines_made);
  return *pipelines_.emplace(key, std::move(made))->second;
}

}  // namespace tessera::vulkan
