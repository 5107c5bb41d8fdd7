// Prefetch: loads the input blocks of the next step of the innermost sequential axis while the current step computes.
#pragma once
#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

class Prefetch : public Part {
 public:
  using Part::Part;
  struct Load {
    uint32_t op;    // a load, or a staged dot
    int operand;    // of the dot
    int64_t count;  // registers per invocation
    DType dtype;
    std::vector<int> refs;       // that move with the axis
    std::set<uint32_t> scalars;  // ops that say where, by number
    Values regs;                 // what this step finds, then what it leaves for the next
  };
  void choose();  ///< the loads, before values are spilled
  void settle();  ///< those whose registers were not spilled, and operands of products
  /// per block, for explain: whether it is prefetched
  const std::vector<std::string>& remarks() const { return remarks_; }

  int axis() const { return axis_; }  ///< the grid axis whose next step is loaded; -1: none
  Load* of(ir::OpId id, int operand);
  void load(Load& a, const ir::Op& o);
  Value next_step();
  Value in_first_step();
  /// What f loads in another step of the axis.
  Values at_step(const Load& a, Value step, FunctionRef<Values()> f);

  /// The registers that the axis' loop carries: none before its first step, then what the step left.
  void append_initial(Values& carried);
  void append_carried(Values& carried) const;
  void set_carried(const Values& carried);  ///< the last of these are ours

 private:
  bool moves(int ref) const { return s_.scope[static_cast<size_t>(ref)] > static_cast<int>(depth_); }
  bool readable_early(Value root, std::set<int>& refs, std::set<uint32_t>& scalars) const;
  void choose_staged(ir::OpId id);

  std::vector<Load> loads_;
  std::set<int> moving_;  // inputs whose blocks move with the axis and may be prefetched
  int axis_ = -1;
  size_t depth_ = 0;  // the axis' place among the sequential ones
  std::vector<std::string> remarks_;
};

}  // namespace tessera::lowering
