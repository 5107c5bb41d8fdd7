#include "codegen/lower/part.h"

#include <algorithm>

#include "codegen/lower/emission.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

Part::Part(Emission& e)
    : e_(e),
      k_(e.k),
      target_(e.target),
      axes_(*e.plan.axes),
      s_(e.plan.schedule),
      parallel_(e.plan.parallel),
      scalars_(e.plan.scalars),
      out_(e.out),
      b_(e.b),
      pid_(e.pid),
      invocation_(e.invocation),
      lane_(e.lane),
      nests_(e.nests),
      arena_(e.arena),
      placement_(e.placement),
      elements_(e.elements),
      refs_(e.refs),
      prefetch_(e.prefetch),
      atomics_(e.atomics),
      reduces_(e.reduces),
      rearranges_(e.rearranges),
      dots_(e.dots),
      sums_(e.sums),
      prints_(e.prints),
      control_(e.control) {}

Value Part::extent_value(const Extent& e, DType t) {
  if (const auto v = e.value()) return t == DType::i64 ? b_.i64(*v) : b_.i32(*v);
  Value& v = e_.extents[{to_string(e), t}];
  if (!v) v = pushed_extent(e, t);
  return v;
}

Value Part::pushed_extent(const Extent& e, DType t) {
  ir::Op o{.code = Opcode::extent};
  o.set(Attr::index, static_cast<int64_t>(out_.lane.extents.size()));
  out_.lane.extents.push_back(e);
  out_.lane.extent_is_64.push_back(t == DType::i64);
  const ir::RegionId at = b_.raw().region();
  b_.raw().set_region(b_.prologue());
  const Value v = b_.raw().one(std::move(o), ir::Type::array(t));
  b_.raw().set_region(at);
  return v;
}

Value Part::linear(const Coords& c, const Shape& s) {
  Value e = b_.i32(0);
  for (size_t d = 0; d < s.size(); ++d) e = b_.add(b_.mul(e, b_.i32(s[d])), c[d].v);
  return e;
}

Coords Part::unravel(Value e, const Shape& s) {
  Coords c(s.size());
  for (size_t d = s.size(); d-- > 0;) {
    if (d == 0) {
      c[0] = {e};
      break;
    }
    c[d] = {b_.rem(e, std::max<int64_t>(s[d], 1))};
    e = b_.div(e, std::max<int64_t>(s[d], 1));
  }
  return c;
}

}  // namespace tessera::lowering
