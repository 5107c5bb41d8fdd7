// Which floats are proved to be no negative numbers (codegen/expand/positive.h): each rule, and what does not meet it.
#include "codegen/expand/positive.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "engine/ir/text.h"
#include "engine/ir/walk.h"

namespace positive_test {
using namespace tessera;
using expand::Sign;

namespace {
/// Of what the kernel stores. %x, %y may be anything, %b is a bool, %a and %c are >= 0, %p is positive, %n negative.
Sign sign(const std::string& body, const std::string& dtype = "f32") {
  const auto type = [&](const std::string& of) { return " : " + of + "[]\n"; };
  const ir::Kernel k = ir::parse(
      "tir 1\nkernel @k\nin " + dtype + "[2] whole\nout " + dtype + "[1] whole\nbody (%i, %o) {\n  %x = load %i[0]\n" +
      "  %y = load %i[1]\n  %b = lt %x, %y\n  %a = abs %x\n  %c = abs %y\n  %p = constant 0.5" + type(dtype) +
      "  %n = constant -0.5" + type(dtype) + "  %z = constant 0.0" + type(dtype) + "  %m = constant -0.0" +
      type(dtype) + "  %s = constant 1e-40" + type(dtype) + body + "  store %o[0], %r\n}\n");
  Sign found = Sign::any;
  ir::each_op(k, k.body, [&](ir::OpId id) {
    if (k.op(id).code == ir::Opcode::store) found = expand::sign_of(k, k.op(id).operands[1]);
  });
  return found;
}
}  // namespace

TEST_CASE("positive: each rule of what is no negative number") {
  const Sign any = Sign::any, not_negative = Sign::not_negative, positive = Sign::positive;
  for (const auto& [what, wanted] : {std::pair<std::string, Sign>{"add %x, %y", any},
                                     {"neg %a", any},
                                     {"sqrt %a", any},
                                     {"sub %a, %c", any},
                                     {"abs %x", not_negative},
                                     {"exp %x", not_negative},
                                     {"exp2 %x", not_negative},
                                     {"logistic %x", not_negative},
                                     {"mul %x, %x", not_negative},
                                     {"mul %x, %y", any},
                                     {"mul %a, %y", any},
                                     {"mul %x, %c", any},
                                     {"mul %a, %c", not_negative},
                                     {"mul %p, %p", not_negative},  // it may underflow
                                     {"div %a, %c", any},
                                     {"div %a, %p", not_negative},
                                     {"div %p, %p", not_negative},
                                     {"div %x, %p", any},
                                     {"add %a, %c", not_negative},
                                     {"add %a, %p", positive},
                                     {"add %p, %a", positive},
                                     {"add %a, %y", any},
                                     {"add %x, %c", any},
                                     {"add %a, %z", not_negative},
                                     {"add %a, %m", not_negative},
                                     {"add %a, %s", not_negative},
                                     {"add %a, %n", any},
                                     {"max %x, %y", any},
                                     {"max %a, %y", not_negative},
                                     {"max %x, %c", not_negative},
                                     {"max %x, %p", positive},
                                     {"max %p, %y", positive},
                                     {"min %a, %y", any},
                                     {"min %x, %c", any},
                                     {"min %a, %c", not_negative},
                                     {"min %a, %p", not_negative},
                                     {"min %p, %p", positive},
                                     {"select %b, %x, %y", any},
                                     {"select %b, %a, %y", any},
                                     {"select %b, %x, %c", any},
                                     {"select %b, %a, %c", not_negative},
                                     {"select %b, %p, %c", not_negative},
                                     {"select %b, %a, %p", not_negative},
                                     {"select %b, %p, %p", positive}}) {
    const std::string made = what;
    CAPTURE(made);
    CHECK(sign("  %r = " + made + "\n") == wanted);
  }
  CHECK(sign("  %r = max %p, %p\n", "f64") == positive);
}

TEST_CASE("positive: integers and what lies many ops back are not looked at") {
  CHECK(sign("  %w = convert %a : i32[]\n  %v = abs %w\n  %r = convert %v : f32[]\n") == Sign::any);
  std::string chain, last = "%a";
  for (int i = 1; i <= 13; ++i) {
    const std::string next = "%d" + std::to_string(i);
    chain += "  " + next + " = add " + last + ", %c\n";
    last = next;
    CAPTURE(i);
    CHECK(sign(chain + "  %r = max " + last + ", " + last + "\n") == (i < 11 ? Sign::not_negative : Sign::any));
  }
}

}  // namespace positive_test
