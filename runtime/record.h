// Kernels in a host program's command buffer. A PreparedKernel has everything that a call needs for as many frames as
// are in flight; a CommandStream records calls of such kernels into one VkCommandBuffer, between the host's own
// commands:
//   ts::PreparedKernel blur(device, program, {.frames_in_flight = 2});
//   ts::CommandStream stream(device);
//   // every frame:
//   stream.begin(commands, frame);
//   stream.record(blur, {picture, blurred});
//   const ts::Scopes scopes = stream.end();
// Recording allocates and creates nothing and does not wait. Of the command buffer's state it changes only the compute
// pipeline and its push constants (and descriptor set 0 of the compute bind point, if images are read or written). Any
// number of threads may record at once, each into a stream of its own, with kernels of its own. Read next: interop.h,
// arrays over the host's buffers.
#pragma once
#include <vulkan/vulkan_core.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "codegen/program/program.h"
#include "runtime/device_array.h"
#include "runtime/interop.h"
#include "runtime/trace.h"

namespace tessera {

namespace vulkan {
class HostStream;
struct HostCall;
}  // namespace vulkan

/// What recorded commands do, for the host's barriers around them: the stages and accesses that wait for what comes
/// before, a VkMemoryBarrier2's dst masks, and those that later commands have to wait for, its src masks.
struct Scopes {
  VkPipelineStageFlags2 wait_stages = 0;
  VkAccessFlags2 wait_accesses = 0;
  VkPipelineStageFlags2 signal_stages = 0;
  VkAccessFlags2 signal_accesses = 0;
};

/// An array, or an image with the layouts that it comes in and is left in, which refer to what they are made from; or a
/// number for an argument by value.
class Argument {
 public:
  Argument(const DeviceArray& array) : array_(array.number() ? nullptr : &array), number_(array.number()) {}
  template <ScalarNumber T>
  Argument(T number) : number_(number) {}  // NOLINT: implicit on purpose
  Argument(const DeviceImage& image, ImageLayouts layouts) : image_(&image), layouts_(layouts) {}
  const DeviceArray* array() const { return array_; }  ///< or null
  const DeviceImage* image() const { return image_; }  ///< or null
  const std::optional<Scalar>& number() const { return number_; }
  ImageLayouts layouts() const { return layouts_; }

 private:
  const DeviceArray* array_ = nullptr;
  const DeviceImage* image_ = nullptr;
  std::optional<Scalar> number_;
  ImageLayouts layouts_;
};

struct PrepareOptions {
  /// Frames that may be recorded or running at once: beginning frame n says that the commands of frame n -
  /// frames_in_flight are done.
  int frames_in_flight = 2;
  /// Calls of the kernel in each frame. Each has an arena of its own, which it shares with the same call of all frames.
  int calls_per_frame = 1;
  /// Values of the program's run-time sizes, all of them (bind_dims()): those of the first calls, and the largest that
  /// PreparedKernel::resize() may set.
  DimValues dims = {};
  /// Arguments that are images, by position (inputs before outputs): of the same format, extent, number of layers and
  /// usage as this one, of any level, from any layer on.
  /// The arrays that they are read into or written from are shared by all prepared kernels of the Device, with all
  /// their frames and calls: they take the memory of one call. So calls with images wait for each other.
  struct Image {
    size_t argument;
    DeviceImage like;
  };
  std::vector<Image> images = {};
};

/// A run-time size and its value.
struct NamedSize {
  std::string_view name;
  int64_t value;
};

/// A kernel made ready to be recorded: compiled by the driver, its memory allocated. Used by one thread at a time. It
/// goes when no recorded command of it will run any more.
class PreparedKernel {
 public:
  /// Throws SpecError on a size that `dims` lacks, CompileError if the program exceeds the device's limits, DeviceError
  /// if Vulkan fails.
  PreparedKernel(const Device& device, std::shared_ptr<const Program> program, const PrepareOptions& options = {});
  PreparedKernel(const Device& device, Program program, const PrepareOptions& options = {});
  PreparedKernel(PreparedKernel&&) noexcept;
  PreparedKernel& operator=(PreparedKernel&&) noexcept;
  ~PreparedKernel();

  const Program& program() const;
  /// Of argument i, inputs before outputs.
  const Shape& shape(size_t i) const;
  DType dtype(size_t i) const;
  /// Run-time sizes of the calls that are recorded from now on, each at most what PrepareOptions::dims has for it;
  /// those that are not named stay as they are. shape() has what arrays and images then are. What has been recorded
  /// before keeps its sizes. Nothing is allocated or created (but host memory where loops are cut into dispatches).
  /// Throws SpecError on a size that does not fit; then nothing has changed.
  void resize(std::span<const NamedSize> sizes);
  void resize(std::initializer_list<NamedSize> sizes) { resize(std::span(sizes.begin(), sizes.size())); }
  /// Of one record().
  Scopes scopes() const;
  /// One call by itself, as a CommandStream of one.
  Scopes record(VkCommandBuffer commands, uint64_t frame, std::span<const Argument> arguments);
  Scopes record(VkCommandBuffer commands, uint64_t frame, std::initializer_list<Argument> arguments) {
    return record(commands, frame, std::span(arguments.begin(), arguments.size()));
  }

 private:
  friend class CommandStream;
  friend class PreparedGraph;
  std::array<uint32_t, 3> groups() const;  ///< of a call; zeros if it dispatches nothing
  std::unique_ptr<vulkan::HostCall> call_;
};

struct StreamOptions {
  /// trace() has when calls ran: the first so many of each frame. Each costs two writes of the time. 0: none. A stream
  /// with times goes when no command that it recorded will run any more.
  int timed_calls = 0;
  /// As PrepareOptions::frames_in_flight says, for timed_calls.
  int frames_in_flight = 2;
};

/// What is recorded into one command buffer. Barriers between its calls are made here; those between them and the
/// host's own commands are the host's, by scopes(). Execution has the order of submission to the imported queue: of the
/// host's command buffers, and of what is called on the Device (launch(), write(), download(), copies, graphs), which
/// submits at once, whether a command buffer that uses the same arrays has been submitted yet or not. All of these see
/// what those before them on the queue have written: a stream begins with a barrier from everything before it in the
/// compute and transfer stages, and a call on an array that any stream has recorded makes one of its own. Streams may
/// be recorded at the same time and submitted in any order, late or never; a command buffer that is submitted more than
/// once is done before it is submitted again, and before its frame is taken again. Outcomes are passed on as they are
/// at the recording: what is recorded from an array whose call has failed, or may yet say so, fails with it.
class CommandStream {
 public:
  /// Throws SpecError on options that are not positive, DeviceError where times are asked for and the device's queue
  /// has none.
  explicit CommandStream(const Device& device, const StreamOptions& options = {});
  CommandStream(CommandStream&&) noexcept;
  CommandStream& operator=(CommandStream&&) noexcept;
  ~CommandStream();

  /// `commands` is being recorded, outside a render pass, and is for the imported queue's family. Frames are numbered
  /// upwards. Throws SpecError if an earlier begin() has not been ended, DeviceError if the device is lost.
  void begin(VkCommandBuffer commands, uint64_t frame);
  /// A call: inputs, then outputs, all of them arrays of the Device with the dtypes and shapes that the kernel was
  /// prepared for, or images. An image is read into memory of the Device's before the call, or stored from
  /// there after it. An output that is aliased to an input starts with its contents: by a copy, or in place if both are
  /// the same array. An input that the code stores to is copied before, unless it is donated: donate(x) here means that
  /// its contents may change. The arrays' memory is kept until their frame is done, freed or not. Nothing is allocated,
  /// but where two of the inputs come from calls in flight that may yet fail. Throws SpecError on what does not fit,
  /// DeviceError if the device is lost; then nothing has been recorded.
  Scopes record(PreparedKernel& kernel, std::span<const Argument> arguments);
  Scopes record(PreparedKernel& kernel, std::span<const DeviceArray> arrays);
  Scopes record(PreparedKernel& kernel, std::initializer_list<Argument> arguments) {
    return record(kernel, std::span(arguments.begin(), arguments.size()));
  }
  /// When the timed calls of a frame ran, with their copies and images: of a graph, each of its kernels. The frame has
  /// been submitted and is done, and is among the last frames_in_flight + 1 that have begun; else SpecError. Of what
  /// has not run, the times are those of an earlier frame, or missing. SpecError without StreamOptions::timed_calls.
  std::vector<TimedCommand> trace(uint64_t frame) const;
  /// Of everything since begin(), the barriers' own included. Kernels that report (checks, prints, loops that a driver
  /// may cut) add one towards the host here; what they have to say comes from Device::wait() once a later frame has
  /// taken their place.
  Scopes end();

 private:
  friend class PreparedGraph;
  /// A call whose three numbers of workgroups are read from `groups`, an i32 array of the Device's that goes no earlier
  /// than the kernel.
  Scopes record_indirect(PreparedKernel& kernel, std::span<const DeviceArray> arrays, const DeviceArray& groups,
                         uint64_t offset);
  std::unique_ptr<vulkan::HostStream> stream_;
};

}  // namespace tessera
