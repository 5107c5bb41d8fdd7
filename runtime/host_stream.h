// HostCall and HostStream: what PreparedKernel and CommandStream (record.h) are inside. Internal to runtime/. Read next: record.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/bound.h"
#include "runtime/context.h"
#include "runtime/record.h"

namespace tessera::vulkan {

class HostStream;

struct HostCall {
  /// The memory of one call in one frame.
  struct Call {
    std::vector<std::byte> block;                    // the argument block; addresses of arrays are put in by each recording
    std::unique_ptr<Buffer> scratch, table, report;
    std::vector<std::unique_ptr<Buffer>> own;        // per argument: for an input that the code writes
    std::vector<std::shared_ptr<Buffer>> arguments;  // of the last recording
  };
  struct Slot {
    uint64_t frame = 0;
    size_t used = 0;
    std::vector<Call> calls;
  };

  HostCall(const Device& device, std::shared_ptr<const Program> program, const PrepareOptions& options);
  ~HostCall();
  Call& next(uint64_t frame);
  void restart(Slot& slot, uint64_t frame);
  void take_report(Call& c);

  Device device;
  std::shared_ptr<const Program> program;
  DimValues dims;
  int frames_in_flight, calls_per_frame;
  std::string label;  // "dispatch blur"
  std::vector<Shape> shapes;
  size_t num_inputs = 0;
  Bound bound;
  const Pipeline* pipeline = nullptr;
  Scopes scopes;
  uint64_t newest = 0;  // frame
  std::vector<Slot> slots;
  std::unique_ptr<HostStream> alone;  // for calls by themselves
};

class HostStream {
 public:
  explicit HostStream(const Device& device);
  void begin(VkCommandBuffer commands, uint64_t frame);
  void record(HostCall& call, std::span<const DeviceArray> arguments);
  void end();
  const Scopes& scopes() const { return scopes_; }

 private:
  static constexpr size_t kLive = 256;
  struct Live {
    uint64_t begin, end;
    bool write;
  };
  struct Copy { Buffer *from, *to; };
  void command(const std::string& name, Stage stage, std::span<const Access> accesses);
  void barrier(StageMask from, StageMask to);

  Device device_;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  uint64_t frame_ = 0, began_at_ = 0;  // the recorder's number of the last command before this stream's
  StageMask ordered_[2] = {};          // per stage, compute and transfer: of which stages it comes after whatever is older than the stream
  bool dispatched_ = false, copied_ = false, reported_ = false;
  std::vector<Live> live_;             // accesses since the last barrier between our own commands
  std::vector<Access> accesses_;       // of the call being recorded
  std::vector<Copy> copies_;
  Scopes scopes_;
};

}  // namespace tessera::vulkan
