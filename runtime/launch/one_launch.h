// Launch: one call of a Program, in two steps: everything that may fail, then the commands. launch.h makes a submission
// of each, a LoadedGraph one of many. Internal to runtime/. Read next: bound.h.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codegen/program/program.h"
#include "runtime/device_array.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"

namespace tessera::vulkan {

class Pipeline;

class Launch {
 public:
  /// What a graph knows of a call of its own. Outputs that are aliased to an input may lie where it does, and donated
  /// arguments stay arrays: the call may leave anything in them.
  struct InGraph {
    std::shared_ptr<Buffer> groups = nullptr;  // where the device finds the numbers of workgroups, if not null
    uint64_t offset = 0;                       // in bytes
  };

  /// All three are there until it ends.
  Launch(const Device& device, const Program& program, const std::vector<DeviceArray>& inputs);
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// Checks, makes and finds what the call needs. `into`: the outputs' arrays, or null where they are to be made.
  void prepare(const std::vector<DeviceArray>* into, const DimValues& given,
               const std::optional<InGraph>& in_graph = {});
  /// Of the call's: the outputs.
  std::vector<DeviceArray>& outputs() { return outputs_; }
  /// Takes several submissions.
  bool cut() const { return bound_.cut(); }
  /// How long it may take, as far as that can be estimated: else 0.
  double seconds() const;

  /// One submission of calls that are not cut, in order, or those of one that is; `what` and `loc` name it.
  static void submit(std::span<Launch* const> calls, const std::string& what, Loc loc);

 private:
  void take_inputs();
  void take_outputs(const CallSignature& call, const std::vector<DeviceArray>* into);
  void find_copies();
  void find_memory();
  bool dispatches() const { return bound_.count > 0; }
  void check_arrays() const;
  void note_inputs();
  void record(bool named);
  void submit_cut();
  void submit_slices(std::unique_lock<std::mutex>& lock);
  void submit_slices(size_t first, size_t end);
  std::vector<Turns::Use> uses() const;
  double work_of_slice(const GroupSlice& s, int64_t parts) const;
  void give();
  std::vector<std::shared_ptr<Outcome>> doubts() const;
  void set_outcome(std::vector<std::shared_ptr<Outcome>> from);

  const Device& device_;
  const std::shared_ptr<Context>& context_;
  const Program& p_;
  const std::vector<DeviceArray>& inputs_;
  std::optional<InGraph> in_graph_;
  std::vector<std::pair<DType, Shape>> types_;  // of the inputs
  DimValues dims_;
  std::vector<uint64_t> values_;  // of arguments by value, if there are any
  std::vector<DeviceArray> outputs_;
  std::vector<std::shared_ptr<Buffer>> buffers_, given_buffers_;                     // per argument
  std::vector<std::pair<std::shared_ptr<Buffer>, std::shared_ptr<Buffer>>> copies_;  // from, to
  Bound bound_;
  const Pipeline* pipeline_ = nullptr;
  std::unique_ptr<Buffer> scratch_, report_;
  std::shared_ptr<Buffer> table_;
  std::vector<std::vector<std::byte>> pushes_;  // one for all, or one per slice
  std::vector<Access> accesses_;
  std::vector<Buffer*> shown_;  // which the host may read
  double work_ = 0;
  int timer_ = -1;
  uint64_t value_ = 0;  // of the last submission
  std::optional<Turns::Turn> turn_;
};

}  // namespace tessera::vulkan
