// AtomicEmitter: the atomic updates that plan/expand_atomics.h leaves: updates of arrays by concurrent programs, and
// updates at index arrays whose elements may coincide.
#pragma once
#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

class AtomicEmitter : public Part {
 public:
  using Part::Part;
  void update(ir::OpId id);

 private:
  Value update_element(const ir::Op& op, const Coords& c, Value predicate, FunctionRef<Value()> instead);
  Value nearest_element(const ir::Op& op, const Coords& c, Value predicate);
  /// Programs that run at once update the Ref: by the device's atomics alone.
  bool concurrent(size_t ref) const { return ref < k_.blocks.size() && parallel_.concurrent[ref]; }
};

}  // namespace tessera::lowering
