#include "runtime/device.h"

#include <mutex>

#include "engine/base/error.h"
#include "runtime/submit/context.h"

namespace tessera {

Device::Device(const DeviceOptions& options) : context_(vulkan::Context::create(options)) {}
const DeviceInfo& Device::info() const { return context_->probe().info; }
void Device::recover() {
  if (lost()) context_ = context_->again();
}
void Device::wait() const {
  context_->wait_all();
  context_->say();
  context_->throw_untold();
}
void Device::submit_nothing() const {
  uint64_t value;
  {
    std::lock_guard lock(context_->mutex());
    value = context_->recorder().submit("nothing", [] {});
  }
  context_->wait(value);
}
bool Device::lost() const {
  std::lock_guard lock(context_->mutex());
  return context_->recorder().lost();
}
std::vector<std::string> Device::validation_messages() const { return context_->instance().messages(); }
int64_t Device::allocated_bytes() const { return context_->allocated_bytes(); }
CommandLog Device::command_log() const {
  std::lock_guard lock(context_->mutex());
  return context_->recorder().log();
}

Device& default_device() {
  // Never destroyed: the driver may be gone by the time that static objects are. Work in flight is awaited, so that no
  // thread of the driver runs while the process ends.
  struct Holder {
    Device* device = new Device();
    ~Holder() {
      try {
        device->wait();
      } catch (const Error&) {
      }
    }
  };
  static Holder holder;
  return *holder.device;
}

}  // namespace tessera
