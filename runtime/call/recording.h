// Recording: commands of a GraphPlan in a command buffer that is recorded once and replayed with other arguments:
// kernels read their addresses from a table, which is updated before the replay. Inputs and outputs of the graph lie
// elsewhere in every replay, so a copy from or to one is not part of a recording. A loop that the device iterates is
// recorded as several copies of its commands. Internal to runtime/call. Read next: graph.cpp.
#pragma once
#include <memory>
#include <vector>

#include "engine/graph/order.h"
#include "engine/graph/plan.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"
#include "runtime/submit/timestamps.h"

namespace tessera::vulkan {

/// A call of the plan, ready to be dispatched.
struct PreparedCall {
  const Program* program = nullptr;
  const Pipeline* pipeline = nullptr;
  Bound bound;                // unless values give sizes of its grid; its slices are submissions
  DimValues dims;             // complete, with bound
  uint64_t table_at = 0;      // of its block in the table
  double seconds = 0;         // as far as they can be estimated
  uint64_t block_stride = 0;  // from slice to slice in the table; 0: they share a block
  size_t num_addresses = 0;   // at the block's beginning; the scratch's and the report's last
};

/// A plan with what its commands need on the device.
struct PreparedPlan {
  const GraphPlan& plan;
  const std::vector<PreparedCall>& calls;             // by command
  const std::vector<std::shared_ptr<Buffer>>& fixed;  // by storage: the arena's and the constants' memory, else null
  const Buffer* table;                                // of the calls' blocks; null if there are none
};

/// What a command uses, as its compiled program says.
std::vector<PlaceUse> uses_of(const GraphPlan& plan, const std::vector<PreparedCall>& calls, size_t command);

class Recording {
 public:
  /// Those commands of the plan one after another, with the time before and after each if `timestamps`.
  Recording(std::shared_ptr<Context> context, const PreparedPlan& plan, std::vector<size_t> sequence, bool timestamps);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  VkCommandBuffer commands() const { return commands_; }
  size_t first() const { return sequence_.front(); }
  /// Each once.
  const std::vector<size_t>& different() const { return different_; }
  size_t barriers() const { return barriers_; }
  /// Whether the last call has replayed it: before that, its queries have never been reset, and may not be read.
  void set_ran(bool ran) { ran_ = ran; }
  /// Of what the last call's last replay ran, which is done: command of the plan, and the device's time before and
  /// after it. Nothing if it did not replay it.
  struct Timed {
    size_t command;
    Timestamps::Ticks ticks;
  };
  std::vector<Timed> times() const;
  /// The log's entries, if one is kept; `buffers` by storage.
  std::vector<LogEntry> log(const std::vector<std::shared_ptr<Buffer>>& buffers, const Buffer& table) const;

 private:
  void record_copy(const PreparedPlan& plan, size_t command) const;
  void record_call(const PreparedPlan& plan, size_t command) const;
  struct Step {
    bool barrier = false;  // before it
    bool copy = false;
    std::string name;
    std::vector<PlaceUse> uses;
  };
  std::shared_ptr<Context> context_;
  const GraphPlan& plan_;
  std::vector<size_t> sequence_, different_;
  size_t barriers_ = 0;
  bool indirect_ = false;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  std::vector<Step> steps_;
  std::unique_ptr<Timestamps> timestamps_;  // null: no times are taken
  std::vector<size_t> timed_;               // commands
  bool ran_ = false;
};

/// Where a storage's bytes begin in its buffer.
uint64_t base(const GraphPlan::Storage& s);

}  // namespace tessera::vulkan
