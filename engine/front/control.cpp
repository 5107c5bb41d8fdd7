#include "engine/front/control.h"

#include "engine/front/trace.h"

namespace tessera::control {
namespace {
using ir::Opcode;
using ir::Type;

std::vector<ir::Value> start(Emit& e, const Operands& init) {
  std::vector<ir::Value> v;
  for (const Operand& o : init) v.push_back(e.as_is(o));
  return v;
}
std::vector<Type> types(const ir::Kernel& k, const std::vector<ir::Value>& values) {
  std::vector<Type> t;
  for (ir::Value v : values) t.push_back(k.type(v));
  return t;
}
Values arguments(Trace& t, ir::RegionId r, size_t from) {
  Values v;
  for (size_t i = from; i < t.kernel().region(r).args.size(); ++i) v.push_back(t.argument(r, i));
  return v;
}
Values results(Trace& t, ir::OpId op) {
  Values v;
  for (ir::Value r : t.kernel().op(op).results) v.push_back(t.wrap(r));
  return v;
}
/// Yields what a loop body returned, as the carries' types.
void yield_carries(Emit& e, const std::vector<Type>& carries, const Operands& returned) {
  std::vector<ir::Value> v;
  for (size_t i = 0; i < carries.size(); ++i) {
    const Type& t = carries[i];
    const Operand& o = returned[i];
    if (o.value()) {
      v.push_back(e.use(*o.value()));
      if (const Type got = e.trace().kernel().type(v.back()); got != t)
        e.fail("carry " + std::to_string(i) + " starts as " + to_string(t) + " but the body returns " + to_string(got),
               "a carry keeps its shape and dtype: cast() or broadcast_to() one of them");
    } else if (!t.is_scalar()) {
      e.fail("carry " + std::to_string(i) + " starts as " + to_string(t) + " but the body returns a number",
             "a carry keeps its shape: use full()");
    } else {
      v.push_back(e.as(o, t.dtype));
    }
  }
  e.builder().set_loc(e.loc());
  e.builder().yield(std::move(v));
}
ir::Value scalar_truth(Emit& e, const Operand& o, const char* what) {
  if (!e.shape(o).empty())
    e.fail(std::string(what) + " must be a scalar but has shape " + to_string(e.shape(o)),
           "a branch is taken by the whole program; where() chooses per element");
  return e.truth(o);
}
}  // namespace

Values for_loop(const Operand& lower, const Operand& upper, const Operands& init,
                FunctionRef<Operands(const Value&, const Values&)> body, Loc loc) {
  Emit e("fori_loop", loc);
  ir::Builder& b = e.builder();
  Trace& t = e.trace();
  ir::Op op{.code = Opcode::for_};
  op.operands = {e.index_scalar(lower, "the lower bound"), e.index_scalar(upper, "the upper bound"),
                 b.constant_int(DType::i32, 1)};
  const std::vector<ir::Value> first = start(e, init);
  op.operands.insert(op.operands.end(), first.begin(), first.end());
  const std::vector<Type> carries = types(t.kernel(), first);
  std::vector<Type> args{Type::array(DType::i32)};
  args.insert(args.end(), carries.begin(), carries.end());
  const ir::RegionId r = b.new_region(args);
  {
    const Trace::Region scope(t, r);
    const Value i = t.argument(r, 0);
    yield_carries(e, carries, body(i, arguments(t, r, 1)));
  }
  op.regions = {r};
  b.set_loc(loc);
  return results(t, b.append(std::move(op)));
}

Values while_loop(const Operands& init, FunctionRef<Operand(const Values&)> test,
                  FunctionRef<Operands(const Values&)> body, Loc loc) {
  Emit e("while_loop", loc);
  ir::Builder& b = e.builder();
  Trace& t = e.trace();
  ir::Op op{.code = Opcode::while_, .operands = start(e, init)};
  const std::vector<Type> carries = types(t.kernel(), op.operands);
  const ir::RegionId test_region = b.new_region(carries), body_region = b.new_region(carries);
  {
    const Trace::Region scope(t, test_region);
    const ir::Value go_on = scalar_truth(e, test(arguments(t, test_region, 0)), "what the test returns");
    b.set_loc(loc);
    b.yield({go_on});
  }
  {
    const Trace::Region scope(t, body_region);
    yield_carries(e, carries, body(arguments(t, body_region, 0)));
  }
  op.regions = {test_region, body_region};
  b.set_loc(loc);
  return results(t, b.append(std::move(op)));
}

Values switch_(std::string_view name, const Operand& selector, const std::vector<FunctionRef<Operands()>>& branches,
               Loc loc) {
  Emit e(name, loc);
  ir::Builder& b = e.builder();
  Trace& t = e.trace();
  const bool is_switch = name == "switch";
  ir::Op op{.code = is_switch ? Opcode::switch_ : Opcode::if_};
  op.operands = {is_switch ? e.index_scalar(selector, "the index") : scalar_truth(e, selector, "the condition")};
  std::vector<Operands> returned;
  for (const auto& branch : branches) {
    op.regions.push_back(b.new_region({}));
    const Trace::Region scope(t, op.regions.back());
    returned.push_back(branch());
    for (const Operand& o : returned.back())
      if (o.value()) e.use(*o.value());
  }
  // A number adopts the dtype that another branch's Value gives the result; among numbers alone they meet as operands
  // do.
  const size_t n = returned[0].size();
  std::vector<DType> dtypes;
  for (size_t i = 0; i < n; ++i) {
    std::optional<DType> strong;
    for (const Operands& r : returned)
      if (r[i].value() && !strong) strong = r[i].value()->dtype();
    if (!strong) {
      strong = e.dtype(returned[0][i]);
      for (const Operands& r : returned) strong = e.promote(*strong, e.dtype(r[i]));
    }
    dtypes.push_back(*strong);
  }
  std::vector<Type> first;
  for (size_t k = 0; k < branches.size(); ++k) {
    const Trace::Region scope(t, op.regions[k]);
    std::vector<ir::Value> v;
    for (size_t i = 0; i < n; ++i)
      v.push_back(returned[k][i].value() ? e.use(*returned[k][i].value()) : e.as(returned[k][i], dtypes[i]));
    const std::vector<Type> got = types(t.kernel(), v);
    if (k == 0) first = got;
    for (size_t i = 0; i < n; ++i)
      if (got[i] != first[i])
        e.fail("result " + std::to_string(i) + " is " + to_string(first[i]) + " in branch 0 but " + to_string(got[i]) +
                   " in branch " + std::to_string(k),
               "all branches return the same shapes and dtypes");
    b.set_loc(loc);
    b.yield(std::move(v));
  }
  b.set_loc(loc);
  return results(t, b.append(std::move(op)));
}

}  // namespace tessera::control
