// HostCall and HostStream: the implementation of PreparedKernel and CommandStream (record.h). Internal to runtime/.
// Read next: host_call.cpp, host_stream.cpp.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "runtime/image/image.h"
#include "runtime/launch/bound.h"
#include "runtime/record.h"
#include "runtime/record/stream_times.h"
#include "runtime/submit/context.h"

namespace tessera::vulkan {

class HostStream;

/// Of maps with the same names. Their nodes stay: recording allocates nothing.
void take_values(DimValues& to, const DimValues& from);
/// What is given other sizes, for messages.
struct Resized {
  const std::string& name;
  Loc loc;
  const char *what, *option;
};
/// Puts sizes into a map that has them. SpecError on one that is none of the largest, or beyond it.
void put_sizes(const Resized& of, std::span<const NamedSize> sizes, const DimValues& largest, DimValues& into);

struct HostCall {
  /// The memory of one call in one frame.
  struct Call {
    // the argument block; addresses of arrays are put in by each recording
    std::span<std::byte> block;
    std::span<std::shared_ptr<Buffer>> arguments;  // of the last recording
    std::unique_ptr<Buffer> table, report;
    std::shared_ptr<Buffer> scratch;  // the same call's of every frame
    uint64_t version = 0;             // of the sizes that `arguments` have been checked for
    // of the last recording, for its report
    DimValues dims;
    Loc longest_loop;
    // Per argument, and empty where no argument has one: what recording does not touch costs it no time.
    std::vector<std::shared_ptr<Buffer>> own;  // for an input that the code writes: the same call's of every frame
    std::vector<std::shared_ptr<ImageState>> images;
    std::vector<std::shared_ptr<Buffer>> staging;  // of the last recording, by HostCall::Staged
    void put_address(size_t position, uint64_t address) {
      std::memcpy(block.data() + 8 * position, &address, sizeof address);
    }
  };
  struct Slot {
    uint64_t frame = 0;
    size_t used = 0;
    std::vector<Call> calls;
    std::vector<std::byte> blocks;  // of all calls, one behind the other
    std::vector<std::shared_ptr<Buffer>> arguments;
  };

  HostCall(const Device& device, std::shared_ptr<const Program> program, const PrepareOptions& options);
  ~HostCall();
  void bind_sizes();
  void check_grid(const char* of) const;
  void resize(std::span<const NamedSize> sizes);
  void use_sizes();
  void take_images(const PrepareOptions& options);
  void take_staging();
  void make_slots(bool images);
  void make_memory(Call& c, const Call& first);
  void check_room(uint64_t frame, size_t more) const;
  Call& next(uint64_t frame);
  void restart(Slot& slot, uint64_t frame);
  void take_report(Call& c);
  int64_t total_bytes() const { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }
  size_t dispatches() const { return bound.count == 0 ? 0 : std::max<size_t>(bound.slices.size(), 1); }
  std::span<const std::byte> block(const Call& c, size_t dispatch);  ///< valid until the next

  Device device;
  std::shared_ptr<const Program> program;
  DimValues dims, largest, before;  // the same names: now, as prepared, and room for what was before a resize
  int frames_in_flight, calls_per_frame;
  std::string label;  // "dispatch blur"
  std::string range;  // "blur at samples/blur.cpp:12": of all commands of a call, and per argument of those that read
                      // or write an image
  std::vector<std::string> image_ranges;  // "read in_specs[0]"
  std::vector<Shape> shapes;
  std::vector<std::shared_ptr<ImageState>> like;  // per argument: null for arrays
  std::vector<int> channels;
  /// Which pieces of the staging an image's array and, where they are copied into it, its texels' bytes are in.
  struct Staged {
    size_t array = 0, texels = 0;
  };
  std::vector<Staged> staged;  // per argument
  size_t pieces = 0;           // that a call needs
  std::unique_ptr<Staging::Lease> staging;
  size_t num_inputs = 0;
  uint64_t version = 0;        // of the sizes: resizes so far
  Bound bound, prepared;       // now, and of the largest sizes
  std::vector<int64_t> bytes;  // of each argument, as prepared
  // Per slice of a program whose loops are cut, each of which is a dispatch: what it adds to the call's argument block.
  std::vector<std::vector<std::byte>> slice_blocks;
  std::vector<std::byte> sum;  // room for that
  const Pipeline* pipeline = nullptr;
  Scopes scopes;
  uint64_t newest = 0;  // frame
  std::vector<Slot> slots;
  Slot* current = nullptr;            // of the newest frame
  std::unique_ptr<HostStream> alone;  // for calls by themselves
};

/// Where a dispatch reads its numbers of workgroups, instead of those that it has been prepared for.
struct Indirect {
  Buffer* groups = nullptr;
  uint64_t offset = 0;
};

class HostStream {
 public:
  explicit HostStream(const Device& device, const StreamOptions& options = {});
  void begin(VkCommandBuffer commands, uint64_t frame);
  void record(HostCall& call, std::span<const Argument> arguments, Indirect indirect = {});
  void record(HostCall& call, std::span<const DeviceArray> arrays, Indirect indirect = {});
  /// Throws what record() would say of the first of so many calls.
  void check_room(const HostCall& call, size_t calls) const;
  void end();
  std::vector<TimedCommand> trace(uint64_t frame) const;
  void abandon() { commands_ = VK_NULL_HANDLE; }  // ends a recording that holds nothing
  const Scopes& scopes() const { return scopes_; }

 private:
  struct Copy {
    Buffer *from, *to;
  };
  void barrier(StageMask from, StageMask to);
  void check(const HostCall& call, size_t arguments, const Indirect& indirect) const;
  void take_arguments(const HostCall& call, HostCall::Call& c, std::span<const Argument> arguments);
  void uses(Buffer* b, bool reads, bool writes, uint64_t offset, uint64_t size, bool indirect = false);
  void dispatch(HostCall& call, const HostCall::Call& c, size_t n, const Indirect& indirect);
  void pass_on(const HostCall& call, const HostCall::Call& c, const Buffer* groups);
  Buffer* take(const HostCall& call, HostCall::Call& c, const Argument& argument, size_t i);
  static void check_apart(const HostCall& call, size_t output, size_t other);
  void read_image(const HostCall& call, const HostCall::Call& c, const Argument& argument, size_t i);
  void store_image(const HostCall& call, const HostCall::Call& c, const Argument& argument, size_t i);
  void command(const std::string& name, Stage stage, std::span<const Access> accesses, bool indirect = false);

  Device device_;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  uint64_t frame_ = 0;
  Ordered ordered_ = {};  // by barriers in this command buffer
  uint64_t number_ = 0;   // of the stream
  bool begun_ = false;    // its first barrier is there
  bool reported_ = false;
  std::unique_ptr<StreamTimes> times_;    // null: none are taken
  bool timed_ = false, unbegun_ = false;  // the call being recorded; no command of it is there yet
  std::vector<Access> accesses_;          // of the call being recorded, num_accesses_ of them, and rooms for more
  size_t num_accesses_ = 0;
  std::vector<Argument> arguments_;
  std::vector<Buffer*> buffers_;
  std::vector<Copy> copies_;
  StageMask waits_ = 0, signals_ = 0;  // of all commands so far
  Scopes scopes_;                      // since end()
};

}  // namespace tessera::vulkan
