// LaneBuilder: what it makes of operands that are constants, of empty conditions, and of an op that it has made before.
#include "codegen/lane/lane_builder.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

namespace lane_builder_test {
using namespace tessera;
using ir::Opcode, ir::Value;
using lowering::LaneBuilder;

namespace {
struct Built {
  ir::Kernel k;
  LaneBuilder b{k};
  Value l, g, p, q;
  Built() {
    k.name = "k";
    k.body = b.raw().new_region({});
    b.raw().set_region(k.body);
    l = b.leaf(Opcode::local_index), g = b.leaf(Opcode::subgroup_id);
    p = b.lt(l, g), q = b.eq(l, g);
  }
  Value n(int64_t v) { return b.i32(v); }
};

std::string text(const ir::Kernel& k, Value v) {
  if (!v) return "nothing";
  if (const auto c = ir::constant_int(k, v)) return std::to_string(*c);
  const ir::Op& o = *k.def(v);
  if (o.code == Opcode::local_index) return "l";
  if (o.code == Opcode::subgroup_id) return "g";
  std::string s(ir::name(o.code));
  for (size_t i = 0; i < o.operands.size(); ++i) s += (i ? ", " : "(") + text(k, o.operands[i]);
  return s + ")";
}
}  // namespace

TEST_CASE("lane builder: what is known is computed, and constants move outwards") {
  const struct {
    const char* is;
    std::function<Value(Built&)> make;
  } all[] = {
      {"12", [](Built& x) { return x.b.add(x.n(5), x.n(7)); }},
      {"l", [](Built& x) { return x.b.add(x.n(0), x.l); }},
      {"l", [](Built& x) { return x.b.add(x.l, x.n(0)); }},
      {"add(l, 3)", [](Built& x) { return x.b.add(x.n(3), x.l); }},
      {"add(l, 7)", [](Built& x) { return x.b.add(x.b.add(x.l, x.n(3)), x.n(4)); }},
      {"l", [](Built& x) { return x.b.add(x.b.add(x.l, x.n(3)), x.n(-3)); }},
      {"add(l, g)", [](Built& x) { return x.b.add(x.l, x.g); }},
      {"add(add(l, g), 3)", [](Built& x) { return x.b.add(x.b.add(x.l, x.n(3)), x.g); }},
      {"add(add(l, g), 4)", [](Built& x) { return x.b.add(x.l, x.b.add(x.g, x.n(4))); }},
      {"add(add(l, g), 7)", [](Built& x) { return x.b.add(x.b.add(x.l, x.n(3)), x.b.add(x.g, x.n(4))); }},
      {"add(l, g)", [](Built& x) { return x.b.add(x.b.add(x.l, x.n(3)), x.b.add(x.g, x.n(-3))); }},
      {"add(l, -2147483648)", [](Built& x) { return x.b.add(x.b.add(x.l, x.n(INT32_MAX)), x.n(1)); }},
      {"-2", [](Built& x) { return x.b.sub(x.n(5), x.n(7)); }},
      {"l", [](Built& x) { return x.b.sub(x.l, x.n(0)); }},
      {"sub(0, l)", [](Built& x) { return x.b.sub(x.n(0), x.l); }},
      {"35", [](Built& x) { return x.b.mul(x.n(5), x.n(7)); }},
      {"0", [](Built& x) { return x.b.mul(x.l, x.n(0)); }},
      {"0", [](Built& x) { return x.b.mul(x.n(0), x.l); }},
      {"l", [](Built& x) { return x.b.mul(x.l, x.n(1)); }},
      {"l", [](Built& x) { return x.b.mul(x.n(1), x.l); }},
      {"mul(l, 2)", [](Built& x) { return x.b.mul(x.n(2), x.l); }},
      {"add(mul(l, 2), 6)", [](Built& x) { return x.b.mul(x.b.add(x.l, x.n(3)), x.n(2)); }},
      {"mul(l, g)", [](Built& x) { return x.b.mul(x.l, x.g); }},
      {"2", [](Built& x) { return x.b.div(x.n(7), 3); }},
      {"0", [](Built& x) { return x.b.div(x.n(0), x.l); }},
      {"l", [](Built& x) { return x.b.div(x.l, 1); }},
      {"div(l, 2)", [](Built& x) { return x.b.div(x.l, 2); }},
      {"div(-7, 3)", [](Built& x) { return x.b.div(x.n(-7), 3); }},
      {"div(7, 0)", [](Built& x) { return x.b.div(x.n(7), x.n(0)); }},
      {"1", [](Built& x) { return x.b.rem(x.n(7), 3); }},
      {"0", [](Built& x) { return x.b.rem(x.n(0), x.l); }},
      {"0", [](Built& x) { return x.b.rem(x.l, 1); }},
      {"rem(l, 2)", [](Built& x) { return x.b.rem(x.l, 2); }},
      {"rem(-7, 3)", [](Built& x) { return x.b.rem(x.n(-7), 3); }},
      {"rem(7, 0)", [](Built& x) { return x.b.rem(x.n(7), x.n(0)); }},
      {"5", [](Built& x) { return x.b.min(x.n(5), x.n(7)); }},
      {"5", [](Built& x) { return x.b.min(x.n(7), x.n(5)); }},
      {"l", [](Built& x) { return x.b.min(x.l, x.l); }},
      {"min(l, 5)", [](Built& x) { return x.b.min(x.l, x.n(5)); }},
      {"7", [](Built& x) { return x.b.max(x.n(5), x.n(7)); }},
      {"7", [](Built& x) { return x.b.max(x.n(7), x.n(5)); }},
      {"l", [](Built& x) { return x.b.max(x.l, x.l); }},
      {"min(max(l, 2), 9)", [](Built& x) { return x.b.clamp(x.l, 2, 9); }},
      {"select(lt(l, 0), add(l, g), l)", [](Built& x) { return x.b.wrap(x.l, x.g); }},
      {"4", [](Built& x) { return x.b.wrap(x.n(-1), x.n(5)); }},
      {"0", [](Built& x) { return x.b.wrap(x.n(0), x.n(5)); }},
  };
  for (const auto& row : all) {
    Built x;
    const Value v = row.make(x);
    CHECK(text(x.k, v) == row.is);
  }
}

TEST_CASE("lane builder: tests of constants, and conditions that may be empty") {
  const struct {
    const char* is;
    std::function<Value(Built&)> make;
  } all[] = {
      {"1", [](Built& x) { return x.b.lt(x.n(5), x.n(7)); }},
      {"0", [](Built& x) { return x.b.lt(x.n(5), x.n(5)); }},
      {"0", [](Built& x) { return x.b.lt(x.n(7), x.n(5)); }},
      {"lt(l, 5)", [](Built& x) { return x.b.lt(x.l, x.n(5)); }},
      {"1", [](Built& x) { return x.b.ge_zero(x.n(1)); }},
      {"1", [](Built& x) { return x.b.ge_zero(x.n(0)); }},
      {"0", [](Built& x) { return x.b.ge_zero(x.n(-1)); }},
      {"ge(l, 0)", [](Built& x) { return x.b.ge_zero(x.l); }},
      {"1", [](Built& x) { return x.b.eq(x.n(5), x.n(5)); }},
      {"0", [](Built& x) { return x.b.eq(x.n(5), x.n(7)); }},
      {"eq(l, 5)", [](Built& x) { return x.b.eq(x.l, x.n(5)); }},
      {"l", [](Built& x) { return x.b.select(x.b.boolean(true), x.l, x.g); }},
      {"g", [](Built& x) { return x.b.select(x.b.boolean(false), x.l, x.g); }},
      {"l", [](Built& x) { return x.b.select(x.p, x.l, x.l); }},
      {"select(lt(l, g), l, g)", [](Built& x) { return x.b.select(x.p, x.l, x.g); }},
      {"lt(l, g)", [](Built& x) { return x.b.both({}, x.p); }},
      {"lt(l, g)", [](Built& x) { return x.b.both(x.p, {}); }},
      {"nothing", [](Built& x) { return x.b.both({}, {}); }},
      {"lt(l, g)", [](Built& x) { return x.b.both(x.p, x.p); }},
      {"lt(l, g)", [](Built& x) { return x.b.both(x.b.boolean(true), x.p); }},
      {"0", [](Built& x) { return x.b.both(x.b.boolean(false), x.p); }},
      {"lt(l, g)", [](Built& x) { return x.b.both(x.p, x.b.boolean(true)); }},
      {"0", [](Built& x) { return x.b.both(x.p, x.b.boolean(false)); }},
      {"and(lt(l, g), eq(l, g))", [](Built& x) { return x.b.both(x.p, x.q); }},
      {"l", [](Built& x) { return x.b.convert(x.l, DType::i32); }},
      {"-5", [](Built& x) { return x.b.convert(x.n(-5), DType::i64); }},
      {"convert(l)", [](Built& x) { return x.b.convert(x.l, DType::i64); }},
  };
  for (const auto& row : all) {
    Built x;
    const Value v = row.make(x);
    CHECK(text(x.k, v) == row.is);
  }
}

TEST_CASE("lane builder: an op is made once in a region, and what a closed region made is forgotten") {
  Built x;
  CHECK(x.b.op(Opcode::add, {x.l, x.g}) == x.b.op(Opcode::add, {x.l, x.g}));
  CHECK_FALSE(x.b.op(Opcode::add, {x.l, x.g}) == x.b.op(Opcode::add, {x.g, x.l}));
  CHECK_FALSE(x.b.op(Opcode::convert, {x.l}, DType::i64) == x.b.op(Opcode::convert, {x.l}, DType::u32));
  x.b.open();
  const Value outside = x.b.op(Opcode::add, {x.l, x.g}), inside = x.b.op(Opcode::mul, {x.l, x.g});
  CHECK(outside == x.b.op(Opcode::add, {x.l, x.g}));
  CHECK(inside == x.b.op(Opcode::mul, {x.l, x.g}));
  x.b.close();
  CHECK_FALSE(inside == x.b.op(Opcode::mul, {x.l, x.g}));
}

TEST_CASE("lane builder: what is known to be false is not made, what is known to be true without a branch") {
  for (const int known : {-1, 0, 1, 2}) {
    Built x;
    int made = 0;
    const size_t before = x.k.region(x.k.body).ops.size();
    x.b.when(known < 0 ? Value{} : known == 2 ? x.p : x.b.boolean(known == 1), [&] { ++made; });
    CHECK(made == (known != 0));
    CHECK(x.k.region(x.k.body).ops.size() == before + (known == 2));
  }
}

}  // namespace lane_builder_test
