// RearrangeEmitter: ops that move elements to positions given by data: scatter, sort.
#pragma once
#include "codegen/lower/part.h"

namespace tessera::lowering {

class RearrangeEmitter : public Part {
 public:
  using Part::Part;
  void scatter(ir::OpId id);
  void sort(ir::OpId id);
};

}  // namespace tessera::lowering
