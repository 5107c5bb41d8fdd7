// Drivers that leave all loops of an invocation after so many iterations (Target::max_loop_iterations): a call that they cut short is an
// error, never a wrong answer, whatever the loops look like; and what stays below the limit is right.
#include <algorithm>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "support.h"

using namespace tessera;
using namespace tessera::test;

namespace {

// Programs of one i32 each, packed into one subgroup: o[i] = body(x[i], y[i], i). A semicolon ends a line.
ir::Kernel each(std::string ops) {
  std::replace(ops.begin(), ops.end(), ';', '\n');
  return ir::parse(R"(tir 1
kernel @each
grid (8)
in i32[8] block (1) map (%i) { yield %i }
in i32[8] block (1) map (%i) { yield %i }
out i32[8] block (1) map (%i) { yield %i }
body (%x, %y, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %2 = constant 2 : i32[]
  %i = program_id axis 0
  %n = load %x[0]
  %m = load %y[0]
)" + ops + "  store %o[0], %r\n}\n", "each.tir");
}

const std::string kWhile = R"(
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %e = sub %d, %1
    %u = add %t, %2
    yield %e, %u
  }
)";
const std::string kNested = R"(
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %b, %p = while (%f = %m, %q = %t) { %on = gt %f, %0; yield %on } do (%g, %v) {
      %h = sub %g, %1
      %w = add %v, %1
      yield %h, %w
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
// The inner loop is another program's turn in every round, so the subgroup runs it every time.
const std::string kTurns = R"(
  %8 = constant 8 : i32[]
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %turn = rem %d, %8
    %mine = eq %turn, %i
    %k = if %mine { yield %m } else { yield %0 }
    %b, %p = while (%f = %k, %q = %t) { %on = gt %f, %0; yield %on } do (%g, %v) {
      %h = sub %g, %1
      %w = add %v, %1
      yield %h, %w
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
// Loops on both sides of an if that divides the programs, in a loop.
const std::string kSides = R"(
  %odd = rem %i, %2
  %left = eq %odd, %0
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %p = if %left {
      %b1, %p1 = while (%f = %m, %q = %t) { %on = gt %f, %0; yield %on } do (%g, %v) {
        %h = sub %g, %1
        %w = add %v, %1
        yield %h, %w
      }
      yield %p1
    } else {
      %b2, %p2 = while (%f2 = %m, %q2 = %t) { %on2 = gt %f2, %0; yield %on2 } do (%g2, %v2) {
        %h2 = sub %g2, %1
        %w2 = sub %v2, %1
        yield %h2, %w2
      }
      yield %p2
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
// Nobody ever enters the inner loops, but the driver counts them.
const std::string kUntaken = R"(
  %never = lt %m, %0
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %p = if %never {
      %q = for %j = %0 to %d step %1 carry (%v = %t) { %w = mul %v, %d; yield %w }
      yield %q
    } else {
      %w1 = add %t, %1
      yield %w1
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
const std::string kFor = R"(
  %r = for %j = %0 to %n step %1 carry (%s = %m) { %q = mul %s, %j; %t = add %q, %1; yield %t }
)";
const std::string kForNested = R"(
  %r = for %j = %0 to %n step %1 carry (%s = %m) {
    %p = for %k = %0 to %m step %1 carry (%v = %s) { %q = mul %v, %k; %t = add %q, %j; yield %t }
    yield %p
  }
)";
// The condition itself has a loop.
const std::string kInCondition = R"(
  %a, %r = while (%c = %n, %s = %0) {
    %z = for %j = %0 to %m step %1 carry (%q = %c) { %q1 = sub %q, %0; yield %q1 }
    %go = gt %z, %0
    yield %go
  } do (%d, %t) {
    %e = sub %d, %1
    %u = add %t, %2
    yield %e, %u
  }
)";
enum class Result { right, error, wrong };

Result run(const ir::Kernel& k, const std::vector<int32_t>& x, const std::vector<int32_t>& y, bool general = false) {
  const std::vector<Array> inputs{Array({8}, x), Array({8}, y)};
  CompileOptions options;
  options.general = general;
  const Array want = interpret(k, inputs).at(0);
  try {
    const Array got = load(device(), k, options).run(inputs).at(0);
    for (int64_t i = 0; i < want.size(); ++i)
      if (got.element_bits(i) != want.element_bits(i)) return Result::wrong;
    return Result::right;
  } catch (const DeviceError&) {
    return Result::error;
  }
}
std::vector<int32_t> same(int32_t n) { return std::vector<int32_t>(8, n); }

bool limited() { return device().target().max_loop_iterations > 0; }

/// Right up to n = `good`, and beyond that right or an error; `bad` is an error where the driver has the limit (in the general form, a
/// program has a workgroup of its own, and what its neighbours do does not count).
void sweep(const char* name, const ir::Kernel& k, int32_t m, int32_t good, int32_t bad) {
  for (bool general : {false, true}) {
    CAPTURE(name);
    CAPTURE(general);
    for (int32_t n : {0, 1, 1000, good}) {
      CAPTURE(n);
      CHECK(run(k, same(n), same(m), general) == Result::right);
    }
    for (int32_t n = good; n <= bad; n += std::max(1, (bad - good) / 6)) {
      CAPTURE(n);
      CHECK(run(k, same(n), same(m), general) != Result::wrong);
    }
    CAPTURE(bad);
    const Result r = run(k, same(bad), same(m), general);
    CHECK(r != Result::wrong);
    if (!general) CHECK(r == (limited() ? Result::error : Result::right));
  }
}

}  // namespace

// With the limit of 65535, and iterations counted as the driver does: each test of a condition is one.
TEST_CASE("loops that data makes too long are an error, and below the limit they are right") {
  sweep("while", each(kWhile), 0, 65532, 65536);
  sweep("nested", each(kNested), 9, 65532 / 11, 65536 / 11 + 2);
  sweep("turns", each(kTurns), 20, 65530 / 22, 65536 / 22 + 2);
  sweep("sides", each(kSides), 9, 65530 / 21, 65536 / 21 + 2);
  sweep("untaken", each(kUntaken), 1, 65530 / 3 - 1, 65540 / 3 + 2);
  sweep("for", each(kFor), 3, 65500 * 8, 65535 * 17);
  sweep("for nested", each(kForNested), 5, 65530 / 9, 70000);
  sweep("in the condition", each(kInCondition), 4, 65530 / 8, 70000);
}

TEST_CASE("one lane's long loop is seen among short ones") {
  std::vector<int32_t> n = same(3);
  n[5] = 65530;
  CHECK(run(each(kWhile), n, same(0)) == Result::right);
  n[5] = 65540;
  CHECK(run(each(kWhile), n, same(0)) == (limited() ? Result::error : Result::right));
}
