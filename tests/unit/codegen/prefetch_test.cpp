// Prefetching on GPUs: what explain says of each block, that the next step's loads stand before the arithmetic of
// this one, that Buffered(1) and CPUs do without, and that the results are the same in random orders of invocations.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"

namespace prefetch_test {
using namespace tessera;

namespace {
Target gpu() {
  Target t = minimum_target();
  t.max_workgroup_size = 256;
  t.shared_bytes = 32 << 10;
  t.compute_units = 24;
  return t;
}
std::string file(const std::string& name) {
  std::ifstream in("tests/tir/" + name + ".tir");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  REQUIRE_MESSAGE(!text.empty(), "run from the repository's root");
  return text;
}
std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}
struct Compiled {
  std::string explain;
  ir::Kernel lanes;  // before loops are unrolled
};
Compiled compiled(const std::string& text, const Target& t = gpu(), bool general = false) {
  Compiled c;
  CompileOptions o;
  o.general = general;
  bool unrolled = false;
  o.dump = [&](std::string_view step, const ir::Kernel& k, bool) {
    unrolled = unrolled || step == "lane/unroll";
    if (k.level == ir::Level::lane && !unrolled) c.lanes = k;
  };
  c.explain = compile(ir::parse(text, "k.tir"), t, o).explain;
  return c;
}
/// What happens in the innermost loop with this arithmetic of floats: 'l' loads of buffers, 'S' stores to shared
/// memory, '*' the arithmetic, 's' stores to buffers. `once`: several in a row count as one.
std::string order(const ir::Kernel& k, ir::Opcode arithmetic, bool once = true) {
  std::string s;
  const auto walk = [&](const auto& self, ir::RegionId r) -> void {
    for (ir::OpId id : k.region(r).ops) {
      const ir::Op& o = k.op(id);
      const bool memory = o.code == ir::Opcode::load || o.code == ir::Opcode::store,
                 shared = memory && k.type(o.operands[0]).space == ir::MemorySpace::shared;
      const char c = o.code == arithmetic && is_float(k.type(o.results[0]).dtype) ? '*'
                     : !memory                                                    ? ' '
                     : o.code == ir::Opcode::load                                 ? (shared ? ' ' : 'l')
                     : shared                                                     ? 'S'
                                                                                  : 's';
      if (c != ' ' && (!once || s.empty() || s.back() != c)) s += c;
      for (ir::RegionId inner : o.regions) self(self, inner);
    }
  };
  for (size_t i = 0; i < k.ops.size(); ++i) {  // a loop comes after those inside of it
    if (k.ops[i].code != ir::Opcode::for_) continue;
    s.clear();
    walk(walk, k.ops[i].regions[0]);
    if (s.find('*') != std::string::npos) return s;
  }
  return s;
}
bool says(const Compiled& c, const std::string& what) { return c.explain.find(what) != std::string::npos; }
void agrees(const std::string& text) {
  const ir::Kernel k = ir::parse(text, "k.tir");
  std::vector<Array> arrays;
  for (int i = 0; i < k.num_inputs; ++i) {
    arrays.emplace_back(bind_shape(k, i, {}), k.blocks[static_cast<size_t>(i)].dtype);
    for (int64_t e = 0; e < arrays.back().size(); ++e)
      arrays.back().set_element_bits(
          e, reference::from_double(arrays.back().dtype(), static_cast<double>((e * 7 + i) % 13)));
  }
  const std::vector<Array> wanted = interpret(k, arrays);
  for (size_t i = 0; i < wanted.size(); ++i) arrays.emplace_back(wanted[i].shape(), wanted[i].dtype());
  const Compiled c = compiled(text);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    lane::RunOptions run;
    run.seed = seed;
    run.subgroup_size = 4;
    const lane::RunResult r = lane::run(c.lanes, arrays, k.num_inputs, {}, run);
    REQUIRE(r.reports.empty());
    for (size_t n = 0; n < wanted.size(); ++n)
      for (int64_t e = 0; e < wanted[n].size(); ++e) CHECK(wanted[n].element_bits(e) == r.outputs[n].element_bits(e));
  }
}
}  // namespace

TEST_CASE("prefetch: the blocks of a product move along a sequential axis") {
  const std::string text = file("prefetch_matmul");
  const Compiled c = compiled(text);
  CAPTURE(c.explain);
  CHECK(says(c,
             "in_specs[0]: f32 (30, 70) in blocks (16, 24); the next step's first chunk is prefetched into 1 "
             "register per invocation; may hang over the edge, masked\n"));
  CHECK(says(c,
             "in_specs[1]: f32 (70, 40) in blocks (24, 20); the next step's first chunk is prefetched into 2 "
             "registers per invocation, one step early, as Buffered(2) asks: Buffered(3) has no more effect; may hang "
             "over the edge, masked\n"));
  CHECK(order(c.lanes, ir::Opcode::fma) == "Sl*");
  const Compiled one = compiled(replaced(text, "buffered 3", "buffered 1"));
  CHECK(says(one, "in_specs[0]: f32 (30, 70) in blocks (16, 24); the next step's first chunk is prefetched into "));
  CHECK(says(one, "in_specs[1]: f32 (70, 40) in blocks (24, 20); Buffered(1): loaded where it is used; may"));
  CHECK(says(compiled(text, lavapipe_target()),
             "; Buffered(3) asked for, no effect: nothing is prefetched on a CPU; may"));
  CHECK(says(compiled(text, gpu(), true),
             "; Buffered(3) asked for, no effect: the general form loads where it stands; may"));
  agrees(text);
  agrees(replaced(text, "buffered 3", "buffered 1"));
}

TEST_CASE("prefetch: one chunk per step is loaded before the arithmetic of the step before") {
  const std::string text = replaced(replaced(file("prefetch_matmul"), "24", "8"), "k: 3", "k: 9");
  const Compiled c = compiled(text);
  CAPTURE(c.explain);
  CHECK(says(c, "in_specs[0]: f32 (30, 70) in blocks (16, 8); the next step's first chunk is prefetched into "));
  // the first step's own, in its branch; the next one's behind the stores
  CHECK(order(c.lanes, ir::Opcode::fma).substr(0, 4) == "lSl*");
  const Compiled one =
      compiled(replaced(replaced(text, "buffered 3", "buffered 1"), "block (16, 8)", "block (16, 8) buffered 1"));
  CHECK(order(one.lanes, ir::Opcode::fma).substr(0, 3) == "lS*");
  CHECK(!says(one, "is prefetched"));
  agrees(text);
}

TEST_CASE("prefetch: blocks whose elements have registers") {
  const std::string text = file("prefetch_sums");
  const Compiled c = compiled(text);
  CAPTURE(c.explain);
  CHECK(says(c,
             "in_specs[0]: f32 (5, 64) in blocks (squeezed, 64); the next step's block is prefetched into 1 register "
             "per invocation; interior, no masks\n"));
  CHECK(says(c,
             "in_specs[1]: i32 (5, 64) in blocks (squeezed, 64); not prefetched: it is read inside of control flow "
             "only, or one element at a time; interior, no masks\n"));
  CHECK(says(c, "in_specs[2]: f32 (64,) in blocks (64); interior, no masks\n"));
  agrees(text);
  const Compiled one = compiled(replaced(text, "block (squeezed, 64)", "block (squeezed, 64) buffered 1"));
  // the first step's own, the next step's, what never moves; then the other input in its branch
  CHECK(order(c.lanes, ir::Opcode::mul, false) == "lll*l");
  CHECK(order(one.lanes, ir::Opcode::mul, false) == "ll*l");
  CHECK(says(one, "in_specs[0]: f32 (5, 64) in blocks (squeezed, 64); Buffered(1): loaded where it is used; interior"));
  CHECK(!says(one, "is prefetched"));
}

// A block that moves is read at a place that a scalar says: which scalars may be known a step early.
TEST_CASE(
    "prefetch: where a block is read may hang on what is there before the step, not on what the step stores or reads "
    "elsewhere") {
  const auto text = [](const std::string& scalar) {
    return "tir 1\nkernel @where\ngrid (5)\nprefetch i32[5] whole\nin f32[5, 96] block (squeezed, 96) map (%i, %p: "
           "ref<smem, i32[5]>) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\nin i32[5] block (1) map (%i, %p: "
           "ref<smem, i32[5]>) { yield %i }\n"
           "in i32[5] whole\nout f32[32] whole\nout i32[5] whole\nbody (%p, %x, %y, %z, %o, %q) {\n  %i = program_id "
           "axis 0\n  %0 = constant 0 : i32[]\n  %3 = constant 3 : i32[]\n"
           "  %first = eq %i, %0\n  if %first {\n    %f = constant 1.0 : f32[32]\n    %g = constant 2 : i32[5]\n    "
           "store %o[0:32], %f\n    store %q[0:5], %g\n  }\n" +
           scalar +
           "  %at = and %s, %3\n  %a = load %x[ds(%at, 32)]\n  %b = load %o[0:32]\n  %h = constant 0.5 : f32[32]\n  %c "
           "= mul %b, %h\n  %d = add %a, %c\n  store %o[0:32], %d\n  %n = add %i, %3\n  store %q[%i], %n\n}\n";
  };
  struct {
    const char* scalar;
    bool early;
  } const all[] = {{"  %s = add %i, %3\n", true},
                   {"  %s = num_programs axis 0\n", true},
                   {"  %s = load %p[%i]\n", true},
                   {"  %t = load %p[0]\n  %s = mul %t, %i\n", true},
                   {"  %s = load %y[0]\n", false},
                   {"  %s = load %z[%i]\n", false},
                   {"  %s = load %q[%i]\n", false},
                   {"  %t = load %q[0]\n  %s = add %t, %i\n", false},
                   {"  %w = load %z[0:5]\n  %s = reduce_sum %w axes [0]\n", false},
                   {"  %t = load %p[0]\n  %u = load %z[0]\n  %s = add %t, %u\n", false}};
  for (const auto& x : all) {
    CAPTURE(std::string(x.scalar));
    const Compiled c = compiled(text(x.scalar));
    CAPTURE(c.explain);
    CHECK(says(c, "in_specs[0]: f32 (5, 96) in blocks (squeezed, 96); the next step's block is prefetched into ") ==
          x.early);
    CHECK(says(c,
               "in_specs[0]: f32 (5, 96) in blocks (squeezed, 96); not prefetched: where it is read depends on what "
               "the step computes") == !x.early);
    agrees(text(x.scalar));
  }
}

TEST_CASE("prefetch: copies that are started before others are waited for, by hand and by emit_pipeline") {
  const std::string under_way = "; in registers; every program's own; its loads are under way until it is used\n",
                    early = "prefetched where it starts, stored where it is waited for";
  const auto count = [](const std::string& text, const std::string& what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  struct Kernel {
    const char* name;
    int under_way, early;
  };
  for (const Kernel& k : {Kernel{"copies_double_buffer", 2, 2}, Kernel{"pipeline_matmul", 4, 3},
                          Kernel{"pipeline_overhang", 2, 0}, Kernel{"pipeline_three_buffers", 4, 3}}) {
    CAPTURE(k.name);
    const Compiled c = compiled(file(k.name));
    CAPTURE(c.explain);
    CHECK(count(c.explain, under_way) == k.under_way);
    CHECK(count(c.explain, early) == k.early);
    CHECK(!says(c, "its loads are waited for where they stand"));
    CHECK(!says(compiled(file(k.name), lavapipe_target()), early));
    agrees(file(k.name));
  }
}

TEST_CASE("prefetch: what is too large for registers says so") {
  const Compiled c = compiled(R"(tir 1
kernel @k
in f32[300, 300] whole any
out f32[2] whole
body (%x, %o) {
  run_scoped (%t: ref<vmem, f32[300, 300]>, %s: ref<dma_semaphore, i32[]>) {
    copy_start %x[0:300, 0:300] to %t[0:300, 0:300] with %s[]
    %0 = constant 0 : i32[]
    %1 = constant 1 : i32[]
    %2 = constant 2 : i32[]
    for %k = %0 to %2 step %1 {
      copy_wait %x[0:300, 0:300] to %t[0:300, 0:300] with %s[]
      %v = load %t[0:300, 0:300]
      %r = reduce_sum %v axes [0, 1] : f32[]
      store %o[%k], %r
      copy_start %x[0:300, 0:300] to %t[0:300, 0:300] with %s[]
    }
    copy_wait %x[0:300, 0:300] to %t[0:300, 0:300] with %s[]
  }
}
)");
  CAPTURE(c.explain);
  CHECK(says(c,
             "ref<vmem, f32[300, 300]>; in the arena; every program's own; its loads are waited for where they stand: "
             "it does not fit registers\n"));
}

TEST_CASE("prefetch: a product too narrow to be staged reads its blocks like any value") {
  const std::string text = file("prefetch_rows");
  const Compiled c = compiled(text);
  CAPTURE(c.explain);
  CHECK(says(c,
             "in_specs[1]: f32 (64, 1) in blocks (16, 1); the next step's block is prefetched into 16 registers per "
             "invocation; interior, no masks\n"));
  CHECK(says(c,
             "in_specs[0]: f32 (8, 64) in blocks (4, 16); not prefetched: it takes 64 registers per invocation, and "
             "32 are left for that; interior, no masks\n"));
  agrees(text);
}

}  // namespace prefetch_test
