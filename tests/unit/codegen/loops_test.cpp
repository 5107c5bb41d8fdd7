// Loops counted for drivers that leave them too early, and what compile() makes of the counts.
#include "codegen/lane/loops.h"

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "codegen/lane/verify.h"
#include "engine/ir/text.h"
#include "spirv_support.h"

namespace loops_test {
using namespace tessera;
using namespace tessera::test;

namespace {

// A lane-level kernel whose %n is a size that arrives with the call, and %d a number that the data says.
ir::Kernel lanes(const std::string& ops, const std::string& clauses = "") {
  return ir::parse(R"(tir 1
lane kernel @k
workgroup_size 8 )" + clauses +
                       R"(
num_units n
extents (n)
in i32[n] whole
out i32[n] whole
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %3 = constant 3 : i32[]
  %100 = constant 100 : i32[]
  %n = extent index 0 : i32[]
  %d = load %x[0]
)" + ops + "}\n",
                   "k.tir");
}

std::string counts(const std::string& ops, const std::string& clauses = "") {
  std::string s;
  for (const ProgramLoop& l : lane::count_loops(lanes(ops, clauses), lavapipe_target()))
    s += (s.empty() ? "" : "; ") + to_string(l.at_least) + " to " + (l.at_most ? to_string(*l.at_most) : "any");
  return s;
}

// A program per workgroup that runs as many iterations as its grid has, one after another; too large to be unrolled.
ir::Kernel rounds(const std::string& grid) {
  return ir::parse("tir 1\nkernel @rounds\ngrid (" + grid + R"()
in f32[8, 8] whole
out f32[8, 8] whole
scratch ref<vmem, f32[8, 8]>
body (%x, %o, %s) {
  %0 = constant 0 : i32[]
  %i = program_id axis 0
  %first = eq %i, %0
  %a = load %x[0:8, 0:8]
  if %first {
    store %s[0:8, 0:8], %a
  }
  %b = load %s[0:8, 0:8]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[8, 8]
  %e = exp %c
  store %s[0:8, 0:8], %e
  store %o[0:8, 0:8], %e
}
)",
                   "rounds.tir");
}

std::string error_of(const ir::Kernel& k, const Target& t) {
  try {
    compile(k, t);
  } catch (const CompileError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("loops: an iteration for every test, those in vain included") {
  // Innermost with run-time bounds: several of the kernel's iterations in one, and a loop for the rest.
  CHECK(counts("for %i = %0 to %n step %1 {\n store %o[%i], %i\n }") ==
        "floordiv(max(n, 0), 16) to cdiv(max(n, 0), 16) + 17");
  CHECK(counts("for %i = %0 to %100 step %3 {\n barrier\n }") == "0 to 35");  // a driver may unroll so few
  CHECK(counts("for %i = %0 to %100 step %1 {\n barrier\n }") == "100 to 101");
  CHECK(counts("for %i = %0 to %d step %1 {\n store %o[%i], %i\n }") == "0 to any");
  CHECK(counts("%m = max %d, %0\nfor %i = %0 to %m step %1 {\n store %o[%i], %i\n }") == "0 to any");  // to INT32_MAX
  CHECK(counts("for %i = %0 to %100 step %d {\n barrier\n }") == "0 to 101");
  CHECK(counts("%k = min %d, %100\n for %i = %0 to %k step %1 {\n store %o[%i], %i\n }") == "0 to 24");
}

TEST_CASE("loops: nests multiply, branches add up, and whiles have no bound") {
  CHECK(counts("for %i = %0 to %n step %1 {\n for %j = %0 to %100 step %1 {\n barrier\n }\n }") ==
        "max(n, 0) to max(n, 0) + 1; max(n, 0) * 100 to (max(n, 0) + 1) * 101");
  CHECK(counts("for %i = %0 to %100 step %1 {\n for %j = %i to %100 step %1 {\n store %o[%j], %i\n }\n }") ==
        "100 to 101; 0 to 2424");
  // The first if is the test whether there is a unit for this workgroup.
  CHECK(counts("%w = workgroup_index\n %p = lt %w, %n\n if %p {\n for %j = %0 to %100 step %1 {\n barrier\n }\n %q = "
               "lt %d, %n\n if %q {\n for %i = %0 to %100 step %1 {\n barrier\n }\n } else {\n for %h = %0 to %100 "
               "step %1 {\n barrier\n }\n }\n }") == "100 to 101; 0 to 101; 0 to 101");
  CHECK(counts("%r = while (%c = %d) {\n for %j = %0 to %100 step %1 {\n barrier\n }\n %p = lt %c, %n\n yield %p\n } "
               "do (%e) {\n for %i = %0 to %100 step %1 {\n barrier\n }\n yield %e\n }") ==
        "1 to any; 100 to any; 0 to any");
}

TEST_CASE("loops: a test that holds for the first invocation") {
  const auto under = [](const std::string& test) {
    return counts("%w = workgroup_index\n %l = local_index\n %z = mul %l, %100\n " + test +
                  "\n if %p {\n for %j = %0 to %100 step %1 {\n barrier\n }\n }");
  };
  const std::string surely = "100 to 101", perhaps = "0 to 101";
  CHECK(under("%p = lt %w, %3") == surely);
  CHECK(under("%p = lt %l, %1") == surely);
  CHECK(under("%p = lt %z, %n") == surely);
  CHECK(under("%a = add %w, %l\n %p = lt %a, %1") == surely);
  CHECK(under("%p = lt %w, %0") == perhaps);
  CHECK(under("%p = lt %w, %d") == perhaps);
  CHECK(under("%p = lt %d, %3") == perhaps);
  CHECK(under("%p = le %w, %3") == perhaps);  // not asked for
  CHECK(under("%a = add %w, %1\n %p = lt %a, %3") == perhaps);
  CHECK(under("%a = add %n, %n\n %p = lt %w, %a") == perhaps);  // not the number of units
}

TEST_CASE("loops: bounds are followed through a few sums, and no chain of them takes long") {
  const auto sums = [](int n) {
    std::string s = "%a0 = add %n, %n\n";
    for (int i = 0; i < n; ++i)
      s += "%a" + std::to_string(i + 1) + " = add %a" + std::to_string(i) + ", %a" + std::to_string(i) + "\n";
    return counts(s + "for %i = %0 to %a" + std::to_string(n) + " step %1 {\n barrier\n }");
  };
  CHECK(sums(0) == "floordiv(max(n + n, 0), 16) to cdiv(max(n + n, 0), 16) + 17");
  CHECK(sums(40) == "0 to any");
}

TEST_CASE("loops: all counts are per unit of work") {
  const std::string units =
      "%w = workgroup_index\n %m = num_workgroups\n for %u = %w to %n step %m {\n for %j = %0 to %100 step %1 {\n "
      "barrier\n }\n }";
  CHECK(counts(units, "max_workgroups 4") == "1 to 1; 100 to 101");
  const DimValues dims{{"n", 40}};
  const std::vector<ProgramLoop> loops = lane::count_loops(lanes(units, "max_workgroups 4"), lavapipe_target());
  CHECK(total_iterations(loops, 10, &dims).at_least == 1010);
  CHECK(total_iterations(loops, 10, &dims).at_most == 1122);
  CHECK(total_iterations(loops, 0, nullptr).at_most == 102);
}

TEST_CASE("loops: totals name the longest, and do not overflow") {
  const std::vector<ProgramLoop> loops{
      {{"a", 1}, 5, Extent(5)}, {{"b", 2}, dim("n"), dim("n") * dim("n")}, {{"c", 3}, 7, Extent(8)}};
  const DimValues small{{"n", 6}}, large{{"n", int64_t{1} << 40}};
  CHECK(total_iterations(loops, 0, &small).at_least == 18);
  CHECK(to_string(total_iterations(loops, 0, &small).at_least_loc) == "c:3");
  CHECK(to_string(total_iterations(loops, 0, &small).at_most_loc) == "b:2");
  CHECK(total_iterations(loops, 1000, &large).at_most == INT64_MAX);
  CHECK_FALSE(total_iterations(loops, 0, nullptr).at_most);
  CHECK(to_string(total_iterations(loops, 0, nullptr).at_most_loc) == "b:2");
}

TEST_CASE("loops: constants that prove them too long are an error, where the target has a limit") {
  Target t = lavapipe_target();
  CHECK(error_of(rounds("70000"), t) == "");  // cut
  // What the condition of a while runs is not.
  const ir::Kernel waits = ir::parse(R"(tir 1
kernel @waits
in i32[4] whole
out i32[1] whole
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %n = constant 70000 : i32[]
  %4 = constant 4 : i32[]
  %v = load %x[0]
  %r = while (%c = %v) {
    %s = for %i = %0 to %n step %1 carry (%a = %c) {
      %p = rem %a, %4
      %q = load %x[%p]
      %t = while (%b = %q) {
        %on = gt %b, %0
        yield %on
      } do (%d) {
        %e = sub %d, %1
        yield %e
      }
      %u = add %a, %t
      yield %u
    }
    %go = gt %s, %c
    yield %go
  } do (%f) {
    %g = add %f, %1
    yield %g
  }
  store %o[0], %r
}
)",
                                     "waits.tir");
  CHECK(error_of(waits, t) ==
        R"(waits: one invocation runs at least 140001 loop iterations, but llvmpipe leaves all loops after 65535
  at waits.tir:12
  note: use a driver without that limit (lavapipe from Mesa 25 on), smaller blocks, more of them in parallel, or the interpreter)");
  t.max_loop_iterations = 0;
  CHECK(error_of(rounds("70000"), t) == "");
  const Program p = compile(rounds("70000"), t);
  CHECK(p.loops.empty());
  CHECK(p.report_bytes == 0);
}

TEST_CASE("loops: only what is not proved short reports") {
  Target t = lavapipe_target();
  CHECK(compile(rounds("600"), t).report_bytes == 0);
  for (const char* grid : {"65535", "m"}) {  // near the limit; not known yet
    const Program p = compile(rounds(grid), t);
    CHECK(p.report_bytes == 4);
    CHECK(p.max_loop_iterations == 65535);
    CHECK(validate(p.spirv) == "");
    t.max_loop_iterations = 0;
    CHECK(compile(rounds(grid), t).report_bytes == 0);
    t.max_loop_iterations = 65535;
  }
}

TEST_CASE("a report's bits are set by whoever has something to say") {
  const std::string ops =
      "%l = local_index\n %p = eq %l, %3\n report %p mask 4\n %q = lt %l, %0\n report %q mask 2\n %c = loops_cut\n "
      "report %c mask 1\n";
  const ir::Kernel k = lanes(ops, "report_bytes 4");
  lane::verify_lane(k, "the test");
  const auto r = lane::run(k, {Array({1}, DType::i32), Array({1}, DType::i32)}, 1, {{"n", 1}});
  CHECK(r.reports.empty());
  CHECK(r.report == 4);
  CHECK(lane::find_lane_problems(lanes(ops)).size() == 4);
  CHECK(lane::find_lane_problems(lanes(ops)).at(0).message ==
        "needs a report of at least 4 bytes, but report_bytes is 0");

  const std::vector<uint32_t> words = emit_valid(k, device() ? device()->target() : lavapipe_target());
  if (!device()) return;
  std::vector<std::byte> x(4), o(4), report(64);
  const std::vector<int32_t> n{1};
  device()->run(words, {.buffers = {&x, &o, &report}, .extents = bytes_of(n)});
  CHECK(report[0] == std::byte{4});
  for (size_t i = 1; i < report.size(); ++i) CHECK(report[i] == std::byte{0});
  quiet();
}

}  // namespace loops_test
