// Passes over tables of ops of one kind: whatever makes two of them different keeps them apart, and what makes no
// difference does not.
#include <doctest/doctest.h>

#include <string>

#include "tests/unit/engine/passes/passes_support.h"

namespace passes_tables_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("fold: of u64 and of floats no range is known, whatever is known of the others") {
  const auto r = [](const std::string& t, const std::string& op) {
    return fold("  %i = load %n[0]\n  %a = convert %i : " + t + "[]\n  %2 = constant 2 : " + t +
                "[]\n  %9 = constant 9 : " + t + "[]\n  %r = " + op +
                "\n  %s0 = convert %r : i32[]\n  store %m[0], %s0\n");
  };
  for (const std::string t : {"u64", "f32", "i64", "u32"})
    for (const std::string op : {"clamp %a, %2, %9", "clamp %2, %a, %9", "clamp %2, %9, %a", "min %a, %9", "min %9, %a",
                                 "max %a, %2", "max %2, %a", "div %2, %a", "rem %2, %a"}) {
      CAPTURE(t);
      CAPTURE(op);
      CHECK(r(t, op).find(" = " + op.substr(0, op.find(' ')) + " ") != std::string::npos);
    }
}

// A pair to a kernel: nothing else changes there, so that fold has to say of itself that it did.
TEST_CASE("fold: two shape ops of a kind are one") {
  const auto left = [](const std::string& code, const std::string& pair, const std::string& dims) {
    const std::string s =
        fold("  %a = load %x[0:8]\n" + pair + "  %t = reduce_max %r axes [" + dims + "]\n  store %o[0:4], %t\n");
    size_t n = 0;
    for (size_t at = s.find(" = " + code); at != std::string::npos; at = s.find(" = " + code, at + 1)) ++n;
    return n;
  };
  CHECK(left("reshape", "  %b = reshape %a : f32[2, 4]\n  %r = reshape %b : f32[4, 2]\n", "1") == 1);
  CHECK(left("broadcast", "  %b = broadcast %a dims [0] : f32[8, 4]\n  %r = broadcast %b dims [1, 2] : f32[3, 8, 4]\n",
             "0, 1") == 1);
  CHECK(left("transpose",
             "  %b = broadcast %a dims [1] : f32[3, 8, 4]\n  %c = transpose %b perm [1, 2, 0]\n  %r = transpose %c "
             "perm [0, 2, 1]\n",
             "0, 1") == 1);
}

TEST_CASE("fold: a choice between bools is logic") {
  const auto made = [](const std::string& a, const std::string& b) {
    const std::string s = fold(
        "  %n0 = load %n[0:8]\n  %n1 = load %x[0:8]\n  %0 = constant true : bool[8]\n  %1 = constant false : bool[8]\n "
        " %i = load %m[0:8]\n  %p = lt %n0, %i\n  %f = load %o[0:8]\n  %q = lt %n1, %f\n"
        "  %e = le %f, %n1\n  %r = select %p, " +
        a + ", " + b + "\n  store %m[0:8], %i mask %r\n");
    std::string ops;
    for (const char* code : {"select", "not", "and", "or", "ge"})
      if (s.find(std::string(" = ") + code + " ") != std::string::npos) ops += code;
    return ops;
  };
  CHECK(made("%0", "%1") == "");
  CHECK(made("%1", "%0") == "ge");  // the comparison turned
  CHECK(made("%q", "%1") == "and");
  CHECK(made("%0", "%q") == "or");
  CHECK(made("%q", "%0") == "select");
  CHECK(made("%1", "%q") == "select");
  CHECK(made("%q", "%e") == "select");
  CHECK(made("%q", "%q") == "");
}

TEST_CASE("cse: accesses are equal if all that makes them is") {
  const std::string before =
      "  %i = load %n[0]\n  %j = load %n[1]\n  %a = load %x[0:4]\n  %b = load %x[4:8]\n  %v = load %n[0:4]\n  %w = "
      "load %n[4:8]\n  %g = constant 0 : i32[4]\n"
      "  %p = gt %v, %g\n  %q = gt %w, %g\n";
  const char* loads[] = {"%s[0:4]",
                         "%s[1:5]",
                         "%s[0:3]",
                         "%s[0:6:2]",
                         "%s[0:8:2]",
                         "%s[0]",
                         "%s[1]",
                         "%s[%i]",
                         "%s[%j]",
                         "%s[ds(%i, 4)]",
                         "%s[ds(%j, 4)]",
                         "%s[ds(%i, 3)]",
                         "%s[ds(%i, 4, 2)]",
                         "%s[%v]",
                         "%s[%w]",
                         "%s[0:4] mask %p",
                         "%s[0:4] mask %q",
                         "%s[0:4] mask %p other %a",
                         "%s[0:4] mask %p other %b",
                         "%s[0:4] mask %q other %a",
                         "%s[1:5] mask %p",
                         "%o[0:4]"};
  const auto count = [](const std::string& text) {
    size_t n = 0;
    for (size_t at = text.find(" = load "); at != std::string::npos; at = text.find(" = load ", at + 1)) ++n;
    return n;
  };
  const size_t others = count(cse(before));
  for (const std::string a : loads)
    for (const std::string b : loads) {
      CAPTURE(a);
      CAPTURE(b);
      CHECK(count(cse(before + "  %r = load " + a + "\n  %t = load " + b + "\n")) == others + (a == b ? 1 : 2));
    }
}

TEST_CASE(
    "cse and licm: what an op may store to is read again behind it, and in loops around it; what it does not is not") {
  const std::string head =
      "tir 1\nkernel @k\nin i32[8] whole\nout i32[8] whole\nscratch ref<vmem, i32[8]>\nscratch ref<vmem, "
      "i32[8]>\nscratch ref<semaphore, i32[]>\nscratch ref<dma_semaphore, i32[]>\nbody (%x, %o, %s, %t, %c, %d) {\n"
      "  %0 = constant 0 : i32[]\n  %1 = constant 1 : i32[]\n  %e = load %x[0]\n";
  const std::string start = "  copy_start %x[0:8] to %s[0:8] with %d[]\n",
                    wait = "  copy_wait %x[0:8] to %s[0:8] with %d[]\n";
  struct {
    std::string first, op;
    bool stores;
  } const all[] = {{"", "  store %s[0], %e\n", true},
                   {"", "  store %t[0], %e\n", false},
                   {"", "  %r = swap %s[0], %e\n", true},
                   {"", "  %r = swap %t[0], %e\n", false},
                   {"", "  addupdate %s[0], %e\n", true},
                   {"", "  addupdate %t[0], %e\n", false},
                   {"", "  %r = atomic_rmw %s[0], %e kind add\n", true},
                   {"", "  %r = atomic_rmw %t[0], %e kind add\n", false},
                   {"", "  %r = atomic_cas %s[0], %e compare %0\n", true},
                   {"", "  %r = atomic_cas %t[0], %e compare %0\n", false},
                   {"", "  semaphore_signal %c[], %1\n", false},
                   {"", "  semaphore_wait %c[], %1\n", false},
                   {"", start, true},
                   {start, wait, true},
                   {start, "  semaphore_wait %c[], %1\n", true},
                   {"", "  if %p {\n    store %s[0], %e\n  }\n", true},
                   {"", "  if %p {\n    store %t[0], %e\n  }\n", false}};
  for (const auto& c : all) {
    CAPTURE(c.first);
    CAPTURE(c.op);
    const std::string before = "  %p = gt %e, %0\n" + c.first;
    const auto reads = [](const std::string& text) {
      size_t n = 0;
      for (size_t at = text.find("load %2["); at != std::string::npos; at = text.find("load %2[", at + 1)) ++n;
      return n;
    };
    CHECK(reads(apply(passes::cse, head,
                      before + "  %v = load %s[1]\n" + c.op +
                          "  %w = load %s[1]\n  %z = add %v, %w\n  store %o[0], %z\n")) == (c.stores ? 2 : 1));
    const std::string looped =
        apply(passes::licm, head,
              before + "  for %i = %0 to %e step %1 {\n    %w = load %s[1]\n    store %o[%i], %w\n" + c.op + "  }\n");
    CHECK((looped.find("load %2[") > looped.find("for ")) == c.stores);
  }
}

}  // namespace passes_tables_test
