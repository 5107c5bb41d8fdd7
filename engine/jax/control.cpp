// The primitives with jaxprs inside: branches, loops, and calls, which are imported in place. A body's Refs are those
// outside: they pass through the operands, never through a loop's carry.
#include <algorithm>

#include "engine/base/function.h"
#include "engine/front/trace.h"
#include "engine/jax/primitives.h"

namespace tessera::jax {
namespace {
using control::Operands;

Operands operands(const Equation& e, const Entries& from) {
  Operands all;
  for (const Entry& x : from) all.emplace_back(value_of(x, e), e.loc);
  return all;
}
Entries part(const Entries& all, size_t from, size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(from + count)};
}
Entries joined(Entries a, const Entries& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
/// A count of operands that must be there.
size_t count(const Equation& e, const char* key, size_t taken) {
  return static_cast<size_t>(e.params.at(key).integer(0, static_cast<int64_t>(e.size() - taken)));
}
void check_results(const Equation& e, const Node& jaxpr, size_t got, size_t wanted) {
  if (got != wanted)
    jaxpr.fail("returns " + std::to_string(got) + (got == 1 ? " value" : " values") + " but " + e.name + " needs " +
               std::to_string(wanted));
}

Values call(Equation& e, const Node& jaxpr) {
  Values all;
  for (const Entry& x : run(e.import, jaxpr, e.in, e.loc)) all.push_back(value_of(x, e));
  return all;
}
Values call_jaxpr(Equation& e) { return call(e, e.params.at("call_jaxpr")); }
Values inner_jaxpr(Equation& e) { return call(e, e.params.at("jaxpr")); }

Values cond(Equation& e) {
  const std::vector<Node> branches = e.params.at("branches").items();
  if (branches.empty()) e.params.at("branches").fail("is empty");
  if (e.in.empty()) e.fail("has no index");
  const Entries rest = part(e.in, 1, e.size() - 1);
  std::vector<Function<Operands()>> bodies;
  size_t results = 0;
  for (const Node& b : branches) {
    const size_t n = b.at("out").size();
    if (&b == &branches[0]) results = n;
    check_results(e, b, n, results);
    bodies.push_back([&e, &rest, b] { return operands(e, run(e.import, b, rest, e.loc)); });
  }
  // Two branches by a truth value are an if, which the passes know more about than about a switch.
  if (branches.size() == 2) {
    std::optional<Value> truth = e.in[0].truth;
    if (!truth && e.value(0).dtype() == DType::boolean) truth = e.value(0);
    if (truth) {
      std::swap(bodies[0], bodies[1]);
      return control::switch_("cond", Operand(*truth, e.loc), {bodies.begin(), bodies.end()}, e.loc);
    }
  }
  const Operand index = e.value(0).dtype() == DType::boolean ? Operand(cast(e.x(0), DType::i32), e.loc) : e.x(0);
  return control::switch_("switch", index, {bodies.begin(), bodies.end()}, e.loc);
}

Values while_of(Equation& e) {
  const size_t in_test = count(e, "cond_nconsts", 0), in_body = count(e, "body_nconsts", in_test);
  const Node test = e.params.at("cond_jaxpr"), body = e.params.at("body_jaxpr");
  const Entries test_consts = part(e.in, 0, in_test), body_consts = part(e.in, in_test, in_body);
  const Entries carries = part(e.in, in_test + in_body, e.size() - in_test - in_body);
  check_results(e, test, test.at("out").size(), 1);
  check_results(e, body, body.at("out").size(), carries.size());
  return control::while_loop(
      operands(e, carries),
      [&](const std::vector<Value>& v) {
        return operands(e, run(e.import, test, joined(test_consts, entries(v)), e.loc)).at(0);
      },
      [&](const std::vector<Value>& v) {
        return operands(e, run(e.import, body, joined(body_consts, entries(v)), e.loc));
      },
      e.loc);
}

/// Whether the leading position is i: bool of x's shape.
Value leading(const Value& i, const Shape& shape, Loc loc) {
  const Value at = iota(DType::i32, {shape[0]}, 0, loc);
  Shape column(shape.size(), 1);
  column[0] = shape[0];
  const Value here = Operand(at, loc) == Operand(i, loc);
  return broadcast_to(Operand(reshape(Operand(here, loc), column), loc), shape);
}
/// x[i], by or-ing everything after all else has been made zero: exact for every bit pattern.
Value row(const Value& x, const Value& i, Loc loc) {
  const Value here = leading(i, x.shape(), loc);
  const bool truth = x.dtype() == DType::boolean;
  // can be or-ed without losing a bit
  const Value wide = truth ? x : bitcast(Operand(x, loc), unsigned_of(bits(x.dtype())));
  const Value kept = where(Operand(here, loc), Operand(wide, loc), Operand(zeros(x.shape(), wide.dtype(), loc), loc));
  const Value all = reduce_or(Operand(kept, loc), {.axis = 0});
  return truth ? all : bitcast(Operand(all, loc), x.dtype());
}

/// A loop over the leading dim of some arrays, which also makes arrays, a row each iteration.
Values scan(Equation& e) {
  const size_t num_consts = count(e, "num_consts", 0), num_carry = count(e, "num_carry", num_consts);
  const int64_t length = e.params.at("length").integer(0, INT32_MAX);
  const bool reverse = e.params.at("reverse").boolean();
  const Node body = e.params.at("jaxpr");
  const Entries consts = part(e.in, 0, num_consts), carries = part(e.in, num_consts, num_carry);
  const Entries arrays = part(e.in, num_consts + num_carry, e.size() - num_consts - num_carry);
  const size_t results = body.at("out").size();
  if (results < num_carry) check_results(e, body, results, num_carry);
  if (e.num_out() != results)
    e.fail("gives " + std::to_string(results) + " results but JAX says " + std::to_string(e.num_out()));
  for (const Entry& a : arrays)
    if (const Value v = value_of(a, e); v.shape().empty() || v.shape()[0] != length)
      e.fail("goes " + std::to_string(length) + " times through an array of shape " + to_string(v.shape()));

  Operands init = operands(e, carries);
  for (size_t k = num_carry; k < results; ++k) {
    // What is dropped has no type of its own outside: it is not made at all.
    if (e.dropped(k)) continue;
    const TypeForm t = e.out(k);
    if (t.shape.empty() || t.shape[0] != length)
      e.fail("result " + std::to_string(k) + " is " + to_string(t) + " after " + std::to_string(length) +
             " iterations");
    init.emplace_back(zeros(t.shape, t.dtype, e.loc), e.loc);
  }
  const auto iteration = [&](const Value& i, const std::vector<Value>& now) {
    const Value at = reverse ? Operand(length - 1, e.loc) - Operand(i, e.loc) : i;
    Entries arguments = joined(consts, entries({now.begin(), now.begin() + static_cast<std::ptrdiff_t>(num_carry)}));
    for (const Entry& a : arrays) arguments.push_back({row(value_of(a, e), at, e.loc)});
    const Operands out = operands(e, run(e.import, body, arguments, e.loc));
    Operands next(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(num_carry));
    for (size_t k = num_carry, made = num_carry; k < results; ++k) {
      if (e.dropped(k)) continue;
      const Value& whole = now[made++];
      const Value& y = *out[k].value();
      if (Shape(whole.shape().begin() + 1, whole.shape().end()) != y.shape() || whole.dtype() != y.dtype())
        e.fail("result " + std::to_string(k) + " is " + to_string(e.out(k)) + " but its rows are " +
               to_string(TypeForm{y.dtype(), y.shape(), {}}));
      Shape one = y.shape();
      one.insert(one.begin(), 1);
      const Value wide = broadcast_to(Operand(reshape(Operand(y, e.loc), one), e.loc), whole.shape());
      next.emplace_back(
          where(Operand(leading(at, whole.shape(), e.loc), e.loc), Operand(wide, e.loc), Operand(whole, e.loc)), e.loc);
    }
    return next;
  };
  const Values made = control::for_loop(Operand(int64_t{0}, e.loc), Operand(length, e.loc), init, iteration, e.loc);
  Values all(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(num_carry));
  for (size_t k = num_carry, m = num_carry; k < results; ++k)
    all.push_back(e.dropped(k) ? constant(DType::boolean, 0, {}, e.loc) : made[m++]);
  return all;
}
}  // namespace

Entries entries(const std::vector<Value>& values) {
  Entries all;
  for (const Value& v : values) all.push_back({v});
  return all;
}

const std::vector<Row>& control_rows() {
  static const std::vector<Row> rows{
      {"closed_call", -1, call_jaxpr},
      {"composite", -1, inner_jaxpr},
      {"cond", -1, cond},
      {"core_call", -1, call_jaxpr},
      {"custom_jvp_call", -1, call_jaxpr},
      {"custom_vjp_call", -1, call_jaxpr},
      {"custom_vmap_call", -1, [](Equation& e) { return call(e, e.params.at("call")); }},
      {"jit", -1, inner_jaxpr},
      {"linear_call", -1, [](Equation& e) { return call(e, e.params.at("callee")); }},
      {"pjit", -1, inner_jaxpr},
      {"program_order", -1, call_jaxpr},
      {"remat2", -1, inner_jaxpr},
      {"scan", -1, scan},
      {"while", -1, while_of},
      {"xla_metadata_call", -1, inner_jaxpr},
  };
  return rows;
}

}  // namespace tessera::jax
