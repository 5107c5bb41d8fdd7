// PrintEmitter: debug_print and check.
#pragma once
#include "codegen/lower/part.h"

namespace tessera::lowering {

class PrintEmitter : public Part {
 public:
  using Part::Part;
  void emit(const ir::Op& op);

 private:
  void record(const ir::Op& op, size_t first);
};

}  // namespace tessera::lowering
