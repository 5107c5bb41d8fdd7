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
  Value take_room(Value memory, Value size, bool check);
  void put_header(const ir::Op& op, Value memory, Value place, Value size);
  void put(Value memory, Value at, Value v);
};

}  // namespace tessera::lowering
