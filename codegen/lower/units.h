// UnitEmitter: the whole kernel: workgroups, units of work, loops over sequential grid axes.
#pragma once
#include "codegen/lower/part.h"

namespace tessera::lowering {

class UnitEmitter : public Part {
 public:
  using Part::Part;
  void run();

 private:
  void set_up_kernel();
  bool is_thread_axis(int a) const;
  Extent count_units() const;
  void place_unit(Value unit);
  void emit_units();
  void keep_sizes();
  void emit_sequential(size_t depth);
  void emit_steps(size_t axis, size_t depth, Value n);
};

}  // namespace tessera::lowering
