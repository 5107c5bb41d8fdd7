// Elements: index functions, which compute one element of a lazy tile value; and scalars.
#pragma once
#include "codegen/lower/part.h"
#include "engine/base/function.h"
#include "engine/ir/moves.h"

namespace tessera::lowering {

class Elements : public Part {
 public:
  using Part::Part;
  /// The element of v at c, wherever v lives.
  Value of(Value v, const Coords& c);
  /// The element of v's op at c: as of(), but computed although v may have a place.
  Value compute(Value v, const ir::Op& op, const Coords& c);
  Value scalar(Value v);
  void compute_scalar(ir::OpId id);
  /// Elements are computed for another step of the grid while f runs: what this one remembers does not hold there.
  Values in_another_step(FunctionRef<Values()> f);

 private:
  Value scalar_result(const ir::Op& o);
  Value gathered(const ir::Op& o, const Coords& c);
  Value moved(Value v, const ir::Op& o, const Coords& c);
  Value from_slices(const ir::MoveMap& map, const std::vector<const ir::Op*>& slices, const Coords& c);
  Coord source(const ir::DimSource& s, const Coords& c);

  uint32_t step_ = 0, steps_ = 0;  // numbers the steps for which elements are computed: 0 is the program's own
};

}  // namespace tessera::lowering
