// ControlEmitter: walks regions, hands each op to the part that emits it, and emits structured control flow.
#pragma once
#include "codegen/lower/part.h"

namespace tessera::lowering {

class ControlEmitter : public Part {
 public:
  using Part::Part;
  void region(ir::RegionId r);
  Value condition(Value v);  ///< the scalar v, the same in every invocation of the group by construction

 private:
  void op(ir::OpId id);
  void memory_op(ir::OpId id);
  void control_op(ir::OpId id);
  void thread_op(const ir::Op& o);
  void for_op(ir::OpId id);
  void while_op(ir::OpId id);
  void branch_op(ir::OpId id);
  bool uniform_scalar(Value v);
};

}  // namespace tessera::lowering
