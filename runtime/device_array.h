// DeviceArray: a dense row-major array in a device's memory. Copies are handles to the same memory; nothing waits
// except download(). Memory is kept until the calls that use it have finished, whenever its handles go or free() is
// called. Read next: launch.h.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "engine/base/array.h"
#include "engine/base/function.h"
#include "engine/base/scalar.h"
#include "runtime/device.h"

namespace tessera {

namespace vulkan {
class Buffer;
}

class DeviceArray {
 public:
  /// No array: every use of it throws SpecError. What a moved-from DeviceArray is, too.
  DeviceArray() = default;
  /// Unspecified contents. A zero-size array has no memory. Throws SpecError on a negative size, DeviceError if the
  /// device cannot hold it.
  DeviceArray(const Device& device, Shape shape, DType dtype);
  /// A copy of a host array, which may be changed or gone when this returns.
  DeviceArray(const Device& device, const Array& host);

  /// A number for an argument by value (ts::by_value), of no device: launch(device, program, {x, 0.5f}).
  template <ScalarNumber T>
  DeviceArray(T number) : number_(number) {}  // NOLINT: implicit on purpose
  /// The number, if it is one.
  const std::optional<Scalar>& number() const { return number_; }

  const Shape& shape() const { return get("shape").shape; }
  DType dtype() const { return get("dtype").dtype; }
  int64_t nbytes() const { return num_elements(shape()) * size_bytes(dtype()); }
  const Device& device() const { return get("device").device; }
  /// A copy of `data`, which may be changed or gone when this returns.
  DeviceArray(const Device& device, Shape shape, DType dtype, const void* data);
  /// The host's memory itself, without a copy; nothing where the device cannot use it (it shares no memory with the
  /// host, or the memory lies badly). The memory stays the owner's, who neither touches nor frees it before
  /// wait_unused() has returned.
  static std::optional<DeviceArray> import_host(const Device& device, void* data, Shape shape, DType dtype);

  /// Neither empty, nor moved from, nor freed.
  bool valid() const;

  /// Waits for the calls that write it, and copies it to the host. Throws DeviceError, every time, if one of the calls
  /// that the contents come from has reported that its results are wrong.
  Array download() const;
  /// The same to memory of the caller's, nbytes() of it. Where that is the array's own (import_host), it only waits.
  void download(void* to) const;
  /// Returns when no call uses the array any more, or the device is lost.
  void wait_unused() const noexcept;
  /// Replaces the contents, for calls made from now on; SpecError if shape or dtype differ.
  void write(const Array& host);
  void write(const DeviceArray& from);  ///< the same, from an array on the same device
  /// A new array on the same device with these contents.
  DeviceArray copy() const;
  /// Gives the memory back as soon as the calls in flight are done with it. Every later use, through any handle, throws
  /// SpecError.
  void free();
  /// This array as an argument of one call that may keep its memory: call({donate(x)}). The output that is aliased to
  /// it takes the memory instead of a copy, and every later use of the array, through any handle, throws SpecError.
  friend DeviceArray donate(DeviceArray x);

  /// For runtime/ itself: the memory, null for a zero-size array; throws SpecError, `use` saying what for, if there is
  /// no array.
  std::shared_ptr<vulkan::Buffer> buffer(const std::string& use) const;
  /// For runtime/ itself: the memory, or null if there is none or no array.
  std::shared_ptr<vulkan::Buffer> memory() const;
  /// For runtime/ itself: whether that is it; cheap.
  bool is_at(const std::shared_ptr<vulkan::Buffer>& memory) const;
  /// For runtime/ itself: throws what buffer() throws if that was the memory and is it no more, since another thread
  /// has given the array away or freed it: once a call's turn has come. `use` is asked for then.
  void still_at(const std::shared_ptr<vulkan::Buffer>& memory, FunctionRef<std::string()> use) const;
  /// For runtime/ itself: over memory that `make(bytes, what)` gives; without asking it if the array has no elements.
  static DeviceArray over(const Device& device, Shape shape, DType dtype,
                          FunctionRef<std::shared_ptr<vulkan::Buffer>(uint64_t, const std::string&)> make);
  /// For runtime/ itself: made by donate().
  bool donated() const { return donated_; }
  /// For runtime/ itself: an array of its own that shares this one's memory until give_to().
  DeviceArray share() const;
  /// For runtime/ itself, of an array that no other thread uses: another shape of as many dims, where the memory is
  /// large enough; else SpecError, whose text begins with `of`. Takes no memory of the host's.
  void set_shape(const Shape& shape, const std::string& of) const;
  /// For runtime/ itself: ends every other use of the array; `taker` is said to have its memory.
  void give_to(const std::string& taker) const;

 private:
  struct State;
  [[noreturn]] void throw_gone(const std::string& use) const;  ///< with the State's mutex held
  struct View {
    const Device& device;
    const Shape& shape;
    DType dtype;
  };
  View get(const char* use) const;
  std::shared_ptr<State> state_;
  std::optional<Scalar> number_;
  bool donated_ = false;
};
DeviceArray donate(DeviceArray x);

}  // namespace tessera
