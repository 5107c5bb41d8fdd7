// Which loads become vector loads: kernels of a few loads, in any order, and how many elements each load brings
// afterwards.
#include "codegen/lane/vectorize.h"

#include <doctest/doctest.h>

#include <string>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace vectorize_test {
using namespace tessera;
namespace {

/// The sizes of the loads of %x and %y in order, afterwards: on a CPU driver, which likes pairs, or a GPU, which likes
/// 16 bytes.
std::string sizes(const std::string& ops, Target::Kind kind, const std::string& dtype = "f32") {
  ir::Kernel k = ir::parse(
      "tir 1\nlane kernel @k\nworkgroup_size 8 shared_bytes 256\nnum_units 1 exact\nextents (n: i64)\nin " + dtype +
          "[64] whole\nin " + dtype + "[64] whole\nout " + dtype +
          "[64] whole\nbody (%x, %y, %o) {\n"
          "  %l = local_index : i32[]\n  %0 = constant 0 : i32[]\n  %1 = constant 1 : i32[]\n  %2 = constant 2 : "
          "i32[]\n  %3 = constant 3 : i32[]\n  %4 = constant 4 : i32[]\n"
          "  %l2 = mul %l, %2\n  %l4 = mul %l, %4\n  %i1 = add %l4, %1\n  %i2 = add %l4, %2\n  %i3 = add %3, %l4\n" +
          ops + "}\n",
      "k.tir");
  const std::string before = ir::print(k);
  Target target;
  target.kind = kind;
  const bool changed = lowering::vectorize(k, target);
  CHECK(changed == (ir::print(k) != before));
  ir::verify(k, "vectorize");
  std::string s;
  for (const ir::OpId id : k.region(k.body).ops) {
    const ir::Op& o = k.op(id);
    CHECK(o.loc);  // what is made has the place of what it is made for
    if (o.code != ir::Opcode::load) continue;
    s += std::to_string(o.results.size());
    for (size_t i = 0; i < o.results.size(); ++i)
      CHECK((k.def(o.results[i]) == &o && k.value(o.results[i]).number == i));
  }
  return s;
}
constexpr Target::Kind kPairs = Target::Kind::cpu, kAny = Target::Kind::gpu;
}  // namespace

TEST_CASE("vectorize: loads of neighbours whose first is at a multiple of the width") {
  const std::string four = "  %a = load %x[%l4]\n  %b = load %x[%i1]\n  %c = load %x[%i2]\n  %d = load %x[%i3]\n";
  CHECK(sizes(four, kAny) == "4");
  CHECK(sizes(four, kPairs) == "22");
  // the last comes first
  CHECK(sizes("  %d = load %x[%i3]\n  %b = load %x[%i1]\n  %c = load %x[%i2]\n  %a = load %x[%l4]\n", kAny) == "4");
  CHECK(sizes("  %b = load %x[%i1]\n  %a = load %x[%l4]\n", kPairs) == "2");
  CHECK(sizes("  %m = sub %l4, %0\n  %d = load %x[%i3]\n  %c = load %x[%i2]\n  %a = load %x[%m]\n", kPairs) == "21");
  // at odd places
  CHECK(sizes("  %a = load %x[%i1]\n  %b = load %x[%i2]\n", kPairs) == "11");
  // not neighbours
  CHECK(sizes("  %a = load %x[%l4]\n  %b = load %x[%i2]\n", kPairs) == "11");
  CHECK(sizes("  %a = load %x[%l4]\n  %b = load %y[%i1]\n", kPairs) == "11");
  CHECK(sizes("  %m = add %l2, %1\n  %a = load %x[%l2]\n  %b = load %x[%m]\n", kPairs) == "2");
  CHECK(sizes("  %m = add %l2, %1\n  %m2 = add %l2, %2\n  %m3 = add %l2, %3\n  %a = load %x[%l2]\n  %b = load %x[%m]\n "
              " %c = load %x[%m2]\n  %d = load %x[%m3]\n",
              kAny) == "22");
  CHECK(sizes("  %m = add %l, %1\n  %a = load %x[%l]\n  %b = load %x[%m]\n", kPairs) == "11");
  CHECK(sizes("  %a = load %x[0]\n  %b = load %x[1]\n  %c = load %x[2]\n  %d = load %x[3]\n", kAny) == "4");
  CHECK(sizes("  %a = load %x[1]\n  %b = load %x[2]\n  %c = load %x[3]\n", kPairs) == "12");
  CHECK(sizes("  %a = load %x[3]\n  %b = load %x[2]\n", kPairs) == "2");
}

TEST_CASE("vectorize: what comes between, and what is never vectorized") {
  CHECK(sizes("  %a = load %x[%l4]\n  store %o[%l], %a\n  %b = load %x[%i1]\n", kPairs) == "2");
  CHECK(sizes("  %a = load %x[%l4]\n  barrier\n  %b = load %x[%i1]\n", kPairs) == "11");
  CHECK(sizes("  %p = lt %l, %2\n  %a = load %x[%l4]\n  if %p {\n    %e = load %y[0]\n    store %o[%l], %e\n  }\n  %b "
              "= load %x[%i1]\n",
              kPairs) == "11");
  CHECK(sizes("  %p = lt %l, %2\n  %a = load %x[%l4] mask %p\n  %b = load %x[%i1] mask %p\n", kPairs) == "11");
  CHECK(sizes("  %a = load %x[%l4]\n  %b = load %x[%i1]\n", kPairs, "f16") == "11");
  CHECK(sizes("  %a = load %x[%l4]\n  %b = load %x[%i1]\n", kPairs, "f64") == "11");
  CHECK(sizes("  %a = load %x[%l4]\n  %b = load %x[%i1]\n", kPairs, "u32") == "2");
  CHECK(sizes("  %s = alloc_shared offset 0 : ref<shared, f32[64]>\n  %a = load %s[%l4]\n  %b = load %s[%i1]\n",
              kPairs) == "11");
  // begins anywhere
  CHECK(sizes("  %n = extent index 0 : i64[]\n  %v = view %x, %n\n  %a = load %v[%l4]\n  %b = load %v[%i1]\n",
              kPairs) == "11");
  CHECK(sizes("  %n = constant 6 : i64[]\n  %v = view %x, %n\n  %a = load %v[%l4]\n  %b = load %v[%i1]\n", kPairs) ==
        "2");
  CHECK(sizes("  %n = constant 5 : i64[]\n  %v = view %x, %n\n  %a = load %v[%l4]\n  %b = load %v[%i1]\n", kPairs) ==
        "11");
}

TEST_CASE("vectorize: what is known to be a multiple of two") {
  const auto two = [](const std::string& at) {
    return sizes(at + "  %m = add %e, %1\n  %a = load %x[%e]\n  %b = load %x[%m]\n", kPairs) == "2";
  };
  CHECK(two("  %e = shift_left %l, %1\n"));
  CHECK(two("  %e = mul %l2, %l\n"));
  CHECK(two("  %e = sub %l4, %l2\n"));
  CHECK(two("  %e = min %l4, %2\n"));
  CHECK(two("  %e = max %l4, %2\n"));
  CHECK(two("  %p = lt %l, %2\n  %e = select %p, %l2, %4\n"));
  CHECK(two("  %u = convert %l2 : u32[]\n  %e = convert %u : i32[]\n"));
  CHECK_FALSE(two("  %e = shift_left %l, %0\n"));
  CHECK_FALSE(two("  %e = shift_left %l, %l2\n"));
  CHECK_FALSE(two("  %e = mul %l, %3\n"));
  CHECK_FALSE(two("  %e = sub %l4, %l\n"));
  CHECK_FALSE(two("  %e = min %l4, %3\n"));
  CHECK_FALSE(two("  %e = max %3, %l4\n"));
  CHECK_FALSE(two("  %p = lt %l, %2\n  %e = select %p, %3, %4\n"));
  CHECK_FALSE(two("  %p = lt %l, %2\n  %e = select %p, %4, %3\n"));
  CHECK_FALSE(two("  %f = convert %l2 : f32[]\n  %e = convert %f : i32[]\n"));
  CHECK_FALSE(two("  %e = div %l4, %2\n"));
}

}  // namespace vectorize_test
