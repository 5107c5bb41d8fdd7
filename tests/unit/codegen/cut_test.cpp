// Loops cut into successive dispatches (lane/cut.h): however many steps each has, on the lane-level interpreter and on
// the judge, what comes out is the interpreter's.
#include "codegen/lane/cut.h"

#include <fstream>
#include <sstream>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "codegen/lane/loops.h"
#include "codegen/lane/uniformity.h"
#include "codegen/lane/verify.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "spirv_support.h"
#include "tests/support/judge/judge.h"
#include "tests/support/sanitizer.h"

namespace cut_test {
using namespace tessera;
using namespace tessera::test;

namespace {

struct Cut {
  ir::Kernel kernel, lanes;
  Program program;
};

Cut cut(const ir::Kernel& k, bool general = false, int64_t limit = 200) {
  Cut c{k, {}, {}};
  Target t = lavapipe_target();
  t.max_loop_iterations = limit;
  CompileOptions options;
  options.general = general;
  options.dump = [&](std::string_view, const ir::Kernel& now, bool) { c.lanes = now; };
  c.program = compile(k, t, options);
  return c;
}

ir::Kernel file(const std::string& name) {
  std::ifstream in("tests/tir/" + name + ".tir");
  std::stringstream text;
  text << in.rdbuf();
  return ir::parse(text.str(), name + ".tir");
}

int64_t steps_of(const Program& p, const DimValues& dims) {
  return p.extents.at(static_cast<size_t>(p.steps_extent) + 1).eval(dims);
}

bool same(const Array& a, const Array& b) {
  for (int64_t i = 0; i < b.size(); ++i)
    if (a.element_bits(i) != b.element_bits(i)) return false;
  return a.shape() == b.shape();
}

void check_cut(const ir::Kernel& k, const DimValues& dims, bool general) {
  CAPTURE(k.name);
  CAPTURE(general);
  const Cut c = cut(k, general);
  REQUIRE(c.program.steps_extent >= 0);
  CHECK(c.program.max_workgroups == 0);
  std::vector<Array> inputs, arrays;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    Shape shape;
    for (const Extent& e : k.blocks[i].array_shape) shape.push_back(e.eval(dims));
    Array a(shape, k.blocks[i].dtype);
    for (int64_t e = 0; e < a.size(); ++e)
      a.set_element_bits(
          e, reference::from_double(a.dtype(), static_cast<int>(i) < k.num_inputs ? static_cast<double>(e % 13) : 77));
    if (static_cast<int>(i) < k.num_inputs) inputs.push_back(a);
    arrays.push_back(std::move(a));
  }
  const std::vector<Array> want = interpret(k, inputs, {.dims = dims});
  const int64_t all = steps_of(c.program, dims);
  const int64_t usual = steps_at_once(c.program, all, &dims);
  for (const int64_t steps : {all > 1000 ? usual : 1, cdiv(all, 7), cdiv(all, 2), usual, all}) {
    CAPTURE(steps);
    const auto lane =
        lane::run(c.lanes, arrays, k.num_inputs, dims, {.seed = static_cast<uint64_t>(steps), .steps = steps});
    for (const std::string& r : lane.reports) FAIL_CHECK(r);
    const judge::Result judged = judge::run(
        c.program, arrays, dims, {.seed = static_cast<uint64_t>(steps), .steps = steps, .loops = c.program.loops});
    for (const std::string& r : judged.reports) FAIL_CHECK(r);
    for (size_t o = 0; o < want.size(); ++o) {
      CHECK(same(lane.outputs.at(o), want[o]));
      CHECK(same(judged.outputs.at(o), want[o]));
    }
    if (steps == usual && steps > 1) CHECK(judged.most_iterations <= 200);
  }
}

// Programs of which each adds up as many numbers as there are, packed many to a workgroup.
const char* const kSums = R"(tir 1
kernel @sums
grid (m)
in i32[m] block (1) map (%i) { yield %i }
out i32[m] block (1) map (%i) { yield %i }
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %2 = constant 2 : i32[]
  %v = load %x[0]
  %n = constant 5000 : i32[]
  %r, %s = for %i = %0 to %n step %1 carry (%a = %v, %b = %0) {
    %c = mul %a, %2
    %d = xor %c, %i
    %h = convert %b : i16[]
    %g = convert %h : i32[]
    %e = add %g, %d
    yield %d, %e
  }
  %t = add %r, %s
  store %o[0], %t
}
)";

}  // namespace

TEST_CASE("cut: any number of steps to a dispatch gives what one dispatch does" *
          doctest::skip(tessera::test::kSanitized)) {
  for (const bool general : {false, true}) {
    for (const char* name : {"cut_own_loop", "cut_branches", "cut_overhang"}) check_cut(file(name), {}, general);
    for (const int64_t n : {0, 1, 5}) check_cut(file("cut_nested"), {{"n", n}}, general);
    for (const int64_t m : {0, 1, 9}) check_cut(ir::parse(kSums, "sums.tir"), {{"m", m}}, general);
  }
}

TEST_CASE("cut: only where constants do not prove the loops short enough") {
  CHECK(cut(file("cut_own_loop"), false, 65535).program.steps_extent == -1);
  CHECK(cut(file("cut_own_loop"), false, 0).program.steps_extent == -1);
  CHECK(cut(file("cut_nested"), false, 65535).program.steps_extent >= 0);
  // A loop of 20,000 iterations, ten of them in each of the code's.
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @k
in i32[8] whole
out i32[8] whole
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %n = constant 20000 : i32[]
  %a = load %x[0:8]
  %r = for %i = %0 to %n step %1 carry (%c = %a) {
    %ii = broadcast %i dims [] : i32[8]
    %d = mul %c, %a
    %e = add %d, %ii
    yield %e
  }
  store %o[0:8], %r
}
)",
                                 "k.tir");
  int64_t cut_at = 0, runs_at = 20001;  // limits
  while (runs_at - cut_at > 1) {
    const int64_t limit = (cut_at + runs_at) / 2;
    (cut(k, false, limit).program.steps_extent >= 0 ? cut_at : runs_at) = limit;
  }
  CHECK(runs_at == 2001);  // with the last test
}

// Data decides how often each of three loops around each other goes round, and one behind them, and which of two
// branches is taken.
const char* const kInData = R"(tir 1
kernel @in_data
grid (2)
in i32[2, 4] block (1, 4) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
out i32[2, 70] block (1, 70) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %3 = constant 3 : i32[]
  %many = constant 600 : i32[]
  %rows = constant 600 : i32[70]
  %three = constant 3 : i32[70]
  %first = iota axis 0 : i32[70]
  %n = load %x[0, 0]
  %m = load %x[0, 1]
  %w = load %x[0, 2]
  %z = load %x[0, 3]
  %r = for %i = %0 to %n step %3 carry (%a = %first) {
    %p = and %i, %1
    %odd = eq %p, %1
    %b = if %odd {
      %c = mul %a, %three
      yield %c
    } else {
      %d, %e = while (%f = %a : i32[70], %g = %1 : i32[]) {
        %h = lt %g, %m
        yield %h
      } do (%j : i32[70], %k : i32[]) {
        %l = for %q = %0 to %w step %1 carry (%s = %j) {
          %t = for %u = %0 to %many step %1 carry (%v = %s) {
            %y = mul %v, %rows
            %un = broadcast %u dims [] : i32[70]
            %aa = xor %y, %un
            yield %aa
          }
          %qn = broadcast %q dims [] : i32[70]
          %bb = add %t, %qn
          yield %bb
        }
        %cc = add %k, %k
        yield %l, %cc
      }
      yield %d
    }
    yield %b
  }
  %dd = for %ee = %0 to %z step %1 carry (%ff = %r) {
    %gg = mul %ff, %rows
    %en = broadcast %ee dims [] : i32[70]
    %hh = add %gg, %en
    yield %hh
  }
  store %o[0, 0:70], %dd
}
)";

TEST_CASE("cut: loops with as many iterations as data says go on until they are done") {
  const ir::Kernel k = ir::parse(kInData, "in_data.tir");
  for (const bool general : {false, true}) {
    const Cut c = cut(k, general);
    REQUIRE(c.program.open_ended);
    CHECK(ir::parse(ir::print(c.lanes), "cut.tir").lane.open_ended);
    for (const std::vector<int32_t>& x : std::vector<std::vector<int32_t>>{{0, 0, 0, 0, 0, 0, 0, 0},
                                                                           {1, 1, 1, 1, 0, 5, 5, 0},
                                                                           {12, 3, 2, 40, 1, 0, 9, 2000},
                                                                           {-1, 3, 3, 3, 7, -2, 3, -4},
                                                                           {4, 5, 1, 0, 9, 1, 3, 1}}) {
      const Array a({2, 4}, x), none({2, 70}, std::vector<int32_t>(140, 77));
      const Array want = interpret(k, {a}).at(0);
      for (const int64_t steps :
           {int64_t{1}, int64_t{7}, int64_t{60}, steps_at_once(c.program, 1 << 20, nullptr), int64_t{1} << 40}) {
        CAPTURE(steps);
        const auto lane = lane::run(c.lanes, {a, none}, 1, {}, {.seed = static_cast<uint64_t>(steps), .steps = steps});
        for (const std::string& text : lane.reports) FAIL_CHECK(text);
        CHECK(same(lane.outputs.at(0), want));
        CHECK(lane.report == 0);
        if (steps > 60 && steps < 1 << 20) {
          const judge::Result judged =
              judge::run(c.program, {a, none}, {},
                         {.seed = static_cast<uint64_t>(steps), .steps = steps, .loops = c.program.loops});
          for (const std::string& text : judged.reports) FAIL_CHECK(text);
          CHECK(judged.most_iterations <= 200);
          CHECK(same(judged.outputs.at(0), want));
        }
      }
    }
  }
}

TEST_CASE("cut: what is not done after as many iterations as there is room for is reported" *
          doctest::skip(tessera::test::kSanitized)) {
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @endless
in i32[2] whole any
out i32[1] whole any
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %n = load %x[0]
  %m = load %x[1]
  %r, %t = while (%a = %0 : i32[], %b = %0 : i32[]) {
    %c = lt %a, %n
    yield %c
  } do (%i : i32[], %d : i32[]) {
    %s = for %j = %0 to %m step %1 carry (%e = %d) {
      %f = mul %e, %m
      %g = xor %f, %j
      yield %g
    }
    %k = add %i, %1
    yield %k, %s
  }
  %u = add %r, %t
  store %o[0], %u
}
)",
                                 "endless.tir");
  const Cut c = cut(k, true);
  REQUIRE(c.program.open_ended);
  for (const int32_t n : {1000, (1 << 20) + 1}) {
    const auto lane = lane::run(c.lanes, {Array({2}, std::vector<int32_t>{n, 1}), Array({1}, std::vector<int32_t>{0})},
                                1, {}, {.steps = int64_t{1} << 40, .max_steps = int64_t{1} << 40});
    CHECK(lane.report == (n > 1000 ? Program::kLoopsCut : 0));
  }
}

// Between two long loops: a load runs in every dispatch if nobody writes what it reads and its place is right at every
// time; else once, in its step.
TEST_CASE("cut: what runs again in every dispatch, and what is kept") {
  struct {
    const char* middle;
    bool again;
  } const all[] = {
      {"  %y = load %x[3]\n", true},
      {"  %p = program_id axis 0\n  %y = load %x[%p]\n", true},
      {"  %y = load %x[%n]\n", true},
      {"  %p = program_id axis 0\n  %c = eq %p, %0\n  %y = if %c {\n    %z = load %x[2]\n    yield %z\n  } else {\n    "
       "yield %n\n  }\n",
       true},
      // of a loop's result
      {"  %i = and %s, %7\n  %y = load %x[%i]\n", false},
      // however far behind it
      {"  %i = and %s, %7\n  %j = rem %i, %3\n  %l = max %j, %0\n  %y = load %x[%l]\n", false},
      {"  %c = gt %s, %0\n  %y = if %c {\n    %z = load %x[2]\n    yield %z\n  } else {\n    yield %n\n  }\n", false},
      {"  %i = and %s, %7\n  %c = eq %n, %0\n  %y = if %c {\n    %z = load %x[%i]\n    yield %z\n  } else {\n    yield "
       "%n\n  }\n",
       false},
      // behind what is kept itself
      {"  %v = load %o[1]\n  %i = and %v, %7\n  %y = load %x[%i]\n", false},
      {"  %c = gt %s, %0\n  if %c {\n    store %o[4], %s\n  }\n  %v = load %o[4]\n  %i = and %v, %7\n  %y = load "
       "%x[%i]\n",
       false}};
  for (const auto& x : all) {
    CAPTURE(std::string(x.middle));
    const ir::Kernel k = ir::parse(
        "tir 1\nkernel @between\ngrid (2)\nin i32[8] whole\nin i32[2] block (squeezed) map (%i) { yield %i }\nout "
        "i32[2, 8] block (squeezed, 8) map (%i) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\nbody (%x, %w, %o) {\n"
        "  %0 = constant 0 : i32[]\n  %1 = constant 1 : i32[]\n  %3 = constant 3 : i32[]\n  %7 = constant 7 : i32[]\n  "
        "%far = constant 4600 : i32[]\n  %m = load %w[]\n  %n = and %m, %7\n"
        "  %five = constant 5 : i32[8]\n  store %o[0:8], %five\n"
        "  %s = for %k = %0 to %far step %1 carry (%a = %n) {\n    %t = mul %a, %3\n    %u = add %t, %k\n    %q = xor "
        "%u, %7\n    yield %q\n  }\n" +
            std::string(x.middle) +
            "  %r = for %k = %0 to %far step %1 carry (%a = %y) {\n    %t = mul %a, %7\n    %u = sub %t, %k\n    %q = "
            "xor %u, %3\n    yield %q\n  }\n  store %o[0], %r\n  store %o[2], %s\n}\n",
        "k.tir");
    const Cut c = cut(k);
    REQUIRE(c.program.steps_extent >= 0);
    std::vector<int> loads;  // of %x: how many regions are around them
    int loop_depth = -1;
    const auto walk = [&](const auto& self, ir::RegionId r, int depth) -> void {
      for (const ir::OpId id : c.lanes.region(r).ops) {
        const ir::Op& o = c.lanes.op(id);
        if (o.code == Opcode::for_ && loop_depth < 0) loop_depth = depth;
        if (o.code == Opcode::load && lane::root_of(c.lanes, o.operands[0]) == c.lanes.region(c.lanes.body).args[0])
          loads.push_back(depth);
        for (const ir::RegionId inner : o.regions) self(self, inner, depth + 1);
      }
    };
    walk(walk, c.lanes.body, 0);
    REQUIRE(loads.size() == 1);
    REQUIRE(loop_depth >= 0);
    // a branch of its own may stay, or become a select
    const bool branched = std::string(x.middle).find("%z = load") != std::string::npos && x.again;
    CAPTURE(ir::print(c.lanes));
    if (x.again) CHECK(loads[0] <= loop_depth + (branched ? 1 : 0));
    else CHECK(loads[0] > loop_depth);
    check_cut(k, {}, false);
    if (x.middle == all[4].middle) check_cut(k, {}, true);
  }
}

TEST_CASE("cut: explain says into how many dispatches") {
  const Program p = cut(file("cut_overhang")).program;
  const int64_t all = steps_of(p, {}), each = steps_at_once(p, all, nullptr);
  CHECK(all == 1003);  // the last test of the one loop, and an iteration of no invocation
  CHECK(each > 1);
  CHECK(p.explain.find("  loops cut: " + std::to_string(cdiv(all, each)) + " dispatches of " + std::to_string(each) +
                       " steps each, 1003 in all, because the driver leaves all loops after 200 iterations\n") !=
        std::string::npos);
  CHECK(cut(file("cut_nested"))
            .program.explain.find("  loops cut: into as many dispatches as the sizes of the call ask for, because the "
                                  "driver leaves all loops after 200 iterations\n") != std::string::npos);
}

TEST_CASE("cut: the extents that tell steps are two of one width") {
  ir::Kernel k = cut(file("cut_overhang")).lanes;
  CHECK(lane::find_lane_problems(k).empty());
  const auto n = static_cast<int32_t>(k.lane.extents.size());
  for (const int32_t at : {n - 1, -2, INT32_MAX}) {
    ir::Kernel bad = k;
    bad.lane.steps_extent = at;
    CHECK(lane::find_lane_problems(bad).at(0).message == "steps_extent is " + std::to_string(at) +
                                                             ", but two extents of one width, of the " +
                                                             std::to_string(n) + ", are wanted");
  }
  CHECK(ir::parse(ir::print(k), "cut.tir").lane.steps_extent == k.lane.steps_extent);
}

}  // namespace cut_test
