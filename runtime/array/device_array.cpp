#include "runtime/device_array.h"

#include <atomic>
#include <mutex>

#include "engine/base/function.h"
#include "runtime/array/bytes.h"
#include "runtime/array/transfer.h"
#include "runtime/submit/context.h"

namespace tessera {

using vulkan::Buffer;
using vulkan::Context;
using vulkan::Memory;
using vulkan::read_bytes;
using vulkan::write_bytes;

struct DeviceArray::State {
  Device device;
  Shape shape;
  DType dtype;
  std::mutex mutex;
  std::shared_ptr<Buffer> buffer;  // guarded by mutex
  bool freed = false;
  std::string taker;                             // freed: the call that it was donated to, if any
  std::atomic<const Buffer*> at = buffer.get();  // of buffer, to be compared without the mutex
};

DeviceArray::DeviceArray(const Device& device, Shape shape, DType dtype) {
  const auto bytes = static_cast<uint64_t>(checked_bytes("DeviceArray", shape, dtype));
  std::shared_ptr<Buffer> buffer;
  if (bytes) buffer = std::make_shared<Buffer>(device.context(), bytes, Memory::array, describe(shape, dtype));
  state_ = std::shared_ptr<State>(new State{device, std::move(shape), dtype, {}, std::move(buffer), false, {}});
}

DeviceArray::DeviceArray(const Device& device, const Array& host) : DeviceArray(device, host.shape(), host.dtype()) {
  write(host);
}

bool DeviceArray::valid() const {
  if (!state_) return false;
  std::lock_guard lock(state_->mutex);
  return !state_->freed;
}

DeviceArray::View DeviceArray::get(const char* use) const {
  if (number_)
    throw SpecError(std::string(use) + ": a number is given, and no array", {},
                    "numbers are for arguments by value: ts::by_value(dtype) in in_specs");
  if (!state_)
    throw SpecError(std::string(use) +
                    ": this DeviceArray holds no array: it was never given one, or has been moved from");
  return {state_->device, state_->shape, state_->dtype};
}

// Whoever holds that memory keeps its address from becoming another array's.
bool DeviceArray::is_at(const std::shared_ptr<Buffer>& memory) const {
  return memory && state_ && state_->at.load(std::memory_order_acquire) == memory.get();
}

std::shared_ptr<Buffer> DeviceArray::memory() const {
  if (!state_) return nullptr;
  std::lock_guard lock(state_->mutex);
  return state_->buffer;
}

std::shared_ptr<Buffer> DeviceArray::buffer(const std::string& use) const {
  const View v = get(use.c_str());
  v.device.context()->require_alive();
  std::lock_guard lock(state_->mutex);
  if (state_->freed) throw_gone(use);
  return state_->buffer;
}

void DeviceArray::still_at(const std::shared_ptr<Buffer>& memory, FunctionRef<std::string()> use) const {
  if (!memory || is_at(memory)) return;
  std::lock_guard lock(state_->mutex);
  throw_gone(use());
}

void DeviceArray::throw_gone(const std::string& use) const {
  throw SpecError(use + ": the device array " + describe(state_->shape, state_->dtype) + " has been " +
                  (state_->taker.empty() ? "freed" : "donated to " + state_->taker));
}

DeviceArray::DeviceArray(const Device& device, Shape shape, DType dtype, const void* data)
    : DeviceArray(device, std::move(shape), dtype) {
  if (const auto& memory = state_->buffer)
    write_bytes(device.context(), *memory, static_cast<const std::byte*>(data), static_cast<uint64_t>(nbytes()),
                describe(state_->shape, state_->dtype), [] {});
}

std::optional<DeviceArray> DeviceArray::import_host(const Device& device, void* data, Shape shape, DType dtype) {
  const auto bytes = static_cast<uint64_t>(checked_bytes("DeviceArray", shape, dtype));
  std::shared_ptr<Buffer> memory;
  if (bytes) memory = Buffer::import_host(device.context(), data, bytes);
  if (bytes && !memory) return std::nullopt;
  DeviceArray a;
  a.state_ = std::shared_ptr<State>(new State{device, std::move(shape), dtype, {}, std::move(memory), false, {}});
  return a;
}

DeviceArray DeviceArray::over(const Device& device, Shape shape, DType dtype,
                              FunctionRef<std::shared_ptr<Buffer>(uint64_t, const std::string&)> make) {
  const auto bytes = static_cast<uint64_t>(checked_bytes("DeviceArray", shape, dtype));
  std::shared_ptr<Buffer> memory;
  if (bytes) memory = make(bytes, describe(shape, dtype));
  DeviceArray a;
  a.state_ = std::shared_ptr<State>(new State{device, std::move(shape), dtype, {}, std::move(memory), false, {}});
  return a;
}

void DeviceArray::wait_unused() const noexcept {
  if (!state_) return;
  std::shared_ptr<Buffer> memory;
  {
    std::lock_guard lock(state_->mutex);
    memory = state_->buffer;
  }
  if (memory) memory->wait_unused();
}

Array DeviceArray::download() const {
  const View v = get("download");
  Array host(v.shape, v.dtype);
  download(host.bytes());
  return host;
}

void DeviceArray::download(void* to) const {
  const std::shared_ptr<Buffer> memory = buffer("download");
  if (!memory) return;
  const std::shared_ptr<Context>& context = state_->device.context();
  const std::shared_ptr<vulkan::Outcome> outcome = read_bytes(
      context, *memory, static_cast<std::byte*>(to), static_cast<uint64_t>(nbytes()),
      describe(state_->shape, state_->dtype), [&] { still_at(memory, [] { return std::string("download"); }); });
  context->say();
  context->throw_if_wrong(outcome);
}

void DeviceArray::write(const Array& host) {
  const std::shared_ptr<Buffer> memory = buffer("write");
  if (host.shape() != state_->shape || host.dtype() != state_->dtype)
    throw SpecError("write: the array is " + describe(host.shape(), host.dtype()) + " but the device array is " +
                    describe(state_->shape, state_->dtype));
  if (memory)
    write_bytes(state_->device.context(), *memory, host.bytes(), static_cast<uint64_t>(nbytes()),
                describe(state_->shape, state_->dtype), [&] { still_at(memory, [] { return std::string("write"); }); });
}

void DeviceArray::write(const DeviceArray& from) {
  const std::shared_ptr<Buffer> memory = buffer("write"), source = from.buffer("write");
  if (from.shape() != shape() || from.dtype() != dtype())
    throw SpecError("write: the array is " + describe(from.shape(), from.dtype()) + " but the device array is " +
                    describe(shape(), dtype()));
  if (!(from.device() == device()))
    throw SpecError("write: the array is on another Device", {}, "download it, then write the host array");
  if (!memory || memory == source) return;
  const std::shared_ptr<Context>& context = state_->device.context();
  std::unique_lock lock(context->mutex());
  context->turns().wait(lock,
                        [&] { return std::vector<vulkan::Turns::Use>{{source.get(), false}, {memory.get(), true}}; });
  still_at(memory, [] { return std::string("write"); });
  from.still_at(source, [] { return std::string("write"); });
  context->recorder().submit("the copy of " + describe(shape(), dtype()), [&] {
    context->recorder().copy(*source, 0, *memory, 0, static_cast<uint64_t>(nbytes()));
    Buffer* shown[] = {memory.get()};
    if (memory->host_reads()) context->recorder().show_host(shown);
  });
  memory->outcome = source->outcome;
}

DeviceArray DeviceArray::copy() const {
  DeviceArray c(device(), shape(), dtype());
  c.write(*this);
  return c;
}

DeviceArray donate(DeviceArray x) {
  x.get("donate");
  x.donated_ = true;
  return x;
}

DeviceArray DeviceArray::share() const {
  DeviceArray a;
  a.state_ =
      std::shared_ptr<State>(new State{state_->device, state_->shape, state_->dtype, {}, buffer("share"), false, {}});
  return a;
}

void DeviceArray::give_to(const std::string& taker) const {
  std::shared_ptr<Buffer> memory;  // goes after the lock
  std::lock_guard lock(state_->mutex);
  state_->freed = true;
  state_->at = nullptr;
  state_->taker = taker;
  memory.swap(state_->buffer);
}

void DeviceArray::free() {
  get("free");
  std::shared_ptr<Buffer> memory;  // goes after the lock
  std::lock_guard lock(state_->mutex);
  state_->freed = true;
  state_->at = nullptr;
  memory.swap(state_->buffer);
}

}  // namespace tessera
