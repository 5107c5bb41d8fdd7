// What `tessera explain` says: the schedule in the words of the user's blocks, and the estimate of registers.
#include "codegen/plan/explain.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "codegen/compile.h"
#include "codegen/lane/unroll.h"
#include "engine/ir/text.h"

namespace explain_test {
using namespace tessera;

namespace {

int64_t registers(const std::string& body) {
  return lowering::live_registers(
      ir::parse("tir 1\nlane kernel @k\nworkgroup_size 8\nextents (n: i64)\nin f32[n] whole\nout f32[n] whole\nbody "
                "(%x, %o) {\n  %i = local_index\n" +
                body + "}\n"));
}

std::string explained(const std::string& text, bool general = false) {
  CompileOptions options;
  options.general = general;
  return compile(ir::parse(text, "k.tir"), lavapipe_target(), options).explain;
}
std::string file(const std::string& name) {
  std::ifstream in("tests/tir/" + name + ".tir");
  return {std::istreambuf_iterator<char>(in), {}};
}
bool says(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n  " + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("explain: registers are what is live at once") {
  CHECK(registers("") == 0);
  CHECK(registers("  %a = load %x[%i]\n  store %o[%i], %a\n") == 2);  // %i and %a
  // Two loads before the first use, against one after the other; constants are free.
  CHECK(registers("  %a = load %x[%i]\n  %b = load %x[%i]\n  %c = add %a, %b\n  store %o[%i], %c\n") == 3);
  CHECK(registers("  %a = load %x[%i]\n  %c = constant 2.0 : f32[]\n  %d = mul %a, %c\n  %e = mul %d, %c\n  store "
                  "%o[%i], %e\n") == 2);
  // 64 bits and views take two.
  CHECK(registers("  %n = extent index 0 : i64[]\n  %y = view %x, %n\n  %a = load %y[%i]\n  store %o[%i], %a\n") == 3);
  // What a loop reads is live all through it, and so are its carries; branches share.
  const std::string ends =
      "  %0 = constant 0 : i32[]\n  %9 = constant 9 : i32[]\n  %1 = constant 1 : i32[]\n  %a = load %x[%i]\n";
  CHECK(registers(ends + "  %s = for %k = %0 to %9 step %1 carry (%c = %a) {\n    %b = load %x[%k]\n    %d = add %b, "
                         "%a\n    %e = add %d, %c\n    yield %e\n  }\n  store %o[%i], %s\n") == 4);
  CHECK(registers(ends + "  %p = lt %i, %9\n  %s = if %p {\n    %b = add %a, %a\n    yield %b\n  } else {\n    %b = "
                         "mul %a, %a\n    yield %b\n  }\n  store %o[%i], %s\n") == 3);
}

TEST_CASE("explain: axes are named by the blocks that have them") {
  const std::string product = explained(R"(tir 1
kernel @product
in f32[64, 48] whole
in f32[48, 80] whole
out f32[64, 80] whole
body (%x, %y, %o) {
  %a = load %x[0:64, 0:48]
  %b = load %y[0:48, 0:80]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[64, 80]
  store %o[0:64, 0:80], %c
}
)");
  CAPTURE(product);
  CHECK(product.find("\n  dim 1 of in_specs[0], dim 0 of in_specs[1]: 48 contracted") != std::string::npos);
  CHECK(product.find("\n  dim 0 of in_specs[0], dim 0 of out_specs[0]: 64: ") != std::string::npos);
  CHECK(product.find(" registers per invocation\n") != std::string::npos);
}

TEST_CASE("explain: what keeps a program whole, and programs in order") {
  const std::string turned = explained(R"(tir 1
kernel @turned
out f32[2000, 2000] whole
body (%o) {
  %a = load %o[0:2000, 0:2000]
  %t = transpose %a perm [1, 0]
  store %o[0:2000, 0:2000], %t
}
)");
  CAPTURE(turned);
  CHECK(
      turned.find(", not split: some access to memory that the call writes lacks it or has another index along it\n") !=
      std::string::npos);
  const std::string scattered = R"(tir 1
kernel @scattered
grid (100)
in i32[100] whole
out i32[100] whole
body (%x, %o) {
  %i = program_id axis 0
  %v = load %x[%i]
  store %o[%v], %i
}
)";
  for (bool general : {false, true}) {
    const std::string text = explained(scattered, general);
    CAPTURE(text);
    CHECK(says(text, "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it"));
    CHECK(says(text, "no axis is parallel: the call runs in one workgroup, or in one per tile of what is split"));
    CHECK(text.find(general ? "general form, each unit of work on one workgroup of"
                            : ": one invocation runs all programs; workgroups 1\n") != std::string::npos);
  }
  std::string declared = scattered;
  declared.replace(declared.find("(100)"), 5, "(100 parallel, 1)");
  CHECK(says(explained(declared), "grid axis 0: parallel, declared"));
  CHECK(says(explained(declared), "grid axis 1: parallel, at most one program"));
  // But not beside an axis that stays sequential: what all programs accumulate in one block of an output has no copy
  // for each coordinate.
  declared.replace(declared.find("(100 parallel, 1)"), 17, "(10 parallel, 10)");
  CHECK(says(explained(declared),
             "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it; declared parallel, "
             "but another axis is sequential and the order between them could not be kept"));
  CHECK(says(explained(declared),
             "grid axis 1: sequential: out_specs[0] is not proved to be touched only once along it"));
  // Nor, even where nothing is sequential, along an axis whose programs all accumulate in one block.
  const std::string shared = R"(tir 1
kernel @shared
grid (8 parallel, 1)
in f32[8, 16] block (1, 16) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
out f32[16] block (16) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %0
}
out f32[8, 16] block (1, 16) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
body (%x, %s, %o) {
  %a = load %x[0, 0:16]
  %b = load %s[0:16]
  %c = add %a, %b
  store %s[0:16], %c
  store %o[0, 0:16], %b
}
)";
  CHECK(says(explained(shared),
             "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it, although it is "
             "declared parallel"));
}

TEST_CASE("explain: dims of one element that are indexed by 0 leave the Refs") {
  const std::string text = explained(R"(tir 1
kernel @units
grid (4, 2)
in f32[4, 16] block (1, 8) map (%i, %j) { yield %i, %j }
out f32[4, 1, 8] block (1, 1, 8) map (%i, %j) {
  %0 = constant 0 : i32[]
  yield %i, %0, %0
}
scratch ref<vmem, f32[1, 8]>
body (%x, %o, %sum) {
  %j = program_id axis 1
  %0 = constant 0 : i32[]
  %first = eq %j, %0
  if %first {
    %z = constant 0.0 : f32[8]
    %old = swap %sum[0, 0:8], %z
  }
  %a = load %x[0, 0:8]
  %b = load %sum[0, 0:8]
  %c = add %a, %b
  %older = swap %sum[0, 0:8], %c
  %row = broadcast %c dims [1] : f32[1, 8]
  %oldest = swap %o[0, 0:1, 0:8], %row
}
)");
  CAPTURE(text);
  CHECK(says(text, "in_specs[0]: f32 (4, 16) in blocks (squeezed, 8); interior, no masks"));
  CHECK(says(text, "out_specs[0]: f32 (4, 1, 8) in blocks (squeezed, 1, 8); interior, no masks"));
  CHECK(says(text, "scratch[0]: ref<vmem, f32[8]>; in registers"));
  CHECK(says(text, "grid axis 0: parallel, proved: no output is touched twice along it"));
}

TEST_CASE("explain: what the caller said about the call, and its cost") {
  const std::string head = "tir 1\nkernel @k\n";
  const std::string rest = R"(grid (4 parallel)
in f32[64, 64] block (16, 64) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
out f32[64, 64] block (16, 64) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
body (%x, %o) {
  %a = load %x[0:16, 0:64]
  %b = add %a, %a
  %c = exp %b
  store %o[0:16, 0:64], %c
}
)";
  CHECK(says(explained(head + rest), "cost: 4096 flops, 4096 transcendentals, 32768 bytes accessed (computed)"));
  const std::string said = R"(metadata (author: "me", version: "2")
cost_estimate (flops: 5, bytes_accessed: 7)
compiler_params triton (num_warps: 3, num_stages: 2)
)";
  const std::string on_cpu = explained(head + said + rest);
  CAPTURE(on_cpu);
  CHECK(says(on_cpu,
             "cost: 5 flops, 0 transcendentals, 7 bytes accessed (given; computed: 4096 flops, 4096 transcendentals, "
             "32768 bytes accessed)"));
  CHECK(says(on_cpu, "compiler parameter num_warps = 3 of triton: not used on CPU drivers"));
  CHECK(says(on_cpu, "compiler parameter num_stages = 2 of triton: not used"));
  CHECK(says(on_cpu, R"(metadata: {"author": "me", "version": "2"})"));
  Target gpu = lavapipe_target();
  gpu.kind = Target::Kind::gpu;
  gpu.max_workgroup_size = 1024;
  const Program hinted = compile(ir::parse(head + said + rest, "k.tir"), gpu);
  CAPTURE(hinted.explain);
  CHECK(says(
      hinted.explain,
      "compiler parameter num_warps = 3 of triton: workgroups of 64 invocations, where a workgroup runs a program"));
  CHECK(hinted.workgroup_size == 64);
  CHECK(compile(ir::parse(head + rest, "k.tir"), gpu).workgroup_size != 64);
  CHECK(hinted.metadata == std::map<std::string, std::string>{{"author", "me"}, {"version", "2"}});
  CHECK(hinted.cost_estimate == CostEstimate{5, 0, 7});
  // More than the target has, or absurd, is as much as there is.
  for (const char* warps : {"64", "9223372036854775807"}) {
    std::string many = said;
    many.replace(many.find("num_warps: 3") + 11, 1, warps);
    CHECK(compile(ir::parse(head + many + rest, "k.tir"), gpu).workgroup_size == 1024);
  }
}

TEST_CASE(
    "explain: values that know only positions tie no axes together, and no axis is split where that repeats most of "
    "the work") {
  const std::string text = explained(file("attention_masks"));
  CAPTURE(text);
  // One mask value for queries and keys; rows and columns of the scores have layouts of their own nevertheless.
  CHECK(says(text,
             "dim 0 of in_specs[0], dim 0 of out_specs[0]: 64: 16 registers x 1 invocation, split into 4 tiles of 16"));
  CHECK(says(text, "dim 0 of in_specs[1], dim 0 of in_specs[2]: 64 contracted, 8 registers x 8 invocations"));
  // The columns of the values could be split, but each slice would compute all scores.
  CHECK(says(text, "dim 1 of in_specs[2], dim 1 of out_specs[0]: 40: 5 registers x 8 invocations"));
  CHECK(text.find("arena") == std::string::npos);
}

TEST_CASE(
    "explain: values that no layout has are in the arena from the start, those that a nest without a layout reads go "
    "there") {
  for (const Target& target : {minimum_target(), gpu_target()}) {
    const std::string text = compile(ir::parse(file("registers_without_layout"), "k.tir"), target).explain;
    CAPTURE(text);
    CHECK(says(text,
               "3 values with a layout live in the arena: a nest that reads them finds two of its axes on the same "
               "invocations, or one without a layout"));
  }
}

TEST_CASE("explain: scratch that is the same along a dim keeps one element of it") {
  const std::string text = explained(file("attention_lanes"));
  CAPTURE(text);
  CHECK(says(text, "scratch[0]: the same along dim 1, so one element of 16 is kept"));
  CHECK(says(text, "scratch[1]: the same along dim 1, so one element of 16 is kept"));
  CHECK(says(text, "scratch[1]: ref<vmem, f32[16, 1]>; in registers"));
  CHECK(text.find("arena") == std::string::npos);
  // Of six that look like it, those that are.
  const std::string some = explained(file("uniform_dims"));
  CAPTURE(some);
  CHECK(says(some, "scratch[0]: the same along dim 1, so one element of 6 is kept"));
  CHECK(says(some, "scratch[3]: the same along dim 0, so one element of 4 is kept"));
  CHECK(says(some, "scratch[3]: the same along dim 1, so one element of 6 is kept"));
  for (const char* i : {"1", "2", "4", "5"})
    CHECK(some.find(std::string("scratch[") + i + "]: the same") == std::string::npos);
}

TEST_CASE("explain: matrices of 64 invocations, and columns that no power of two divides") {
  Target gpu = gpu_matrix_target();
  gpu.min_subgroup_size = gpu.max_subgroup_size = gpu.subgroup_size = 64;
  const Program p = compile(ir::parse(file("matrix_two_widths"), "k.tir"), gpu);
  CAPTURE(p.explain);
  CHECK(p.explain.find("matri") != std::string::npos);
  CHECK(p.scratch_bytes == 0);
}

TEST_CASE("explain: on GPUs tiles shrink until the arena fits shared memory") {
  const ir::Kernel k = ir::parse(file("attention_masks"), "k.tir");
  Target gpu = gpu_target();
  const Program whole = compile(k, gpu);
  CAPTURE(whole.explain);
  CHECK(whole.scratch_bytes == 0);
  CHECK(whole.explain.find("as wide as elsewhere") == std::string::npos);
  gpu.shared_bytes = whole.shared_bytes - 64;
  const Program in_place = compile(k, gpu);  // chunks do not take turns with two tiles
  CHECK(in_place.explain.find("as wide as elsewhere") == std::string::npos);
  gpu.shared_bytes = in_place.shared_bytes - 64;
  const Program half = compile(k, gpu);
  CAPTURE(half.explain);
  // half is what the rows have anyway
  CHECK(says(half.explain, "tiles a quarter as wide as elsewhere, so that the arena fits shared memory"));
  CHECK(half.scratch_bytes == 0);
  CHECK(half.shared_bytes <= gpu.shared_bytes);
  gpu.shared_bytes = 512;  // no tiles are small enough
  const Program none = compile(k, gpu);
  CHECK(none.scratch_bytes > 0);
  CHECK(none.explain.find("as wide as elsewhere") == std::string::npos);
}

TEST_CASE(
    "explain: what one invocation does stays small enough for a CPU driver's compiler, however many taps a kernel is "
    "written out for") {
  std::string head = "tir 1\nkernel @taps\n", names, body;
  int n = 0;
  for (int c = 0; c < 14; ++c) {
    head += "in f32[12, 68] whole\n";
    names += "%x" + std::to_string(c) + ", ";
    for (int dy = 0; dy < 5; ++dy)
      for (int dx = 0; dx < 5; ++dx, ++n) {
        const std::string t = std::to_string(n);
        body += "  %t" + t + " = load %x" + std::to_string(c) + "[" + std::to_string(dy) + ":" +
                std::to_string(dy + 8) + ", " + std::to_string(dx) + ":" + std::to_string(dx + 64) + "]\n";
        body += "  %e" + t + " = exp %t" + t + "\n  %s" + t + " = add %e" + t + ", %" +
                (n == 0 ? "t0" : "s" + std::to_string(n - 1)) + "\n";
      }
  }
  const std::string text = head + "out f32[8, 64] whole\nbody (" + names + "%o) {\n" + body +
                           "  store %o[0:8, 0:64], %s" + std::to_string(n - 1) + "\n}\n";
  int64_t branches = 0;
  CompileOptions options;
  options.dump = [&](std::string_view step, const ir::Kernel& k, bool) {
    if (step == "lane/loops") branches = lowering::count_branches(k);
  };
  const std::string explain = compile(ir::parse(text, "k.tir"), lavapipe_target(), options).explain;
  INFO(explain);
  CHECK(branches <= 640);
  CHECK(branches >= n);
  CHECK(explain.find(" loads, stores and branches would take a CPU driver's compiler long (the aim is 640)") !=
        std::string::npos);
}

namespace {
// Keys' and values' gradients of blocks of 128, by n blocks of queries: four products, of which two read what exp made
// of the first one's result.
std::string gradient(int n) {
  const std::string all = std::to_string(128 * n);
  const std::string blocks = "in f32[" + all +
                             ", 64] block (128, 64) map (%i, %j) {\n  %z = constant 0 : i32[]\n  yield %j, %z\n}\n",
                    rows = "in f32[" + all +
                           ", 128] block (128, 128) map (%i, %j) {\n  %z = constant 0 : i32[]\n  yield %j, %z\n}\n";
  const std::string keys =
      "f32[256, 64] block (128, 64) map (%i, %j) {\n  %z = constant 0 : i32[]\n  yield %i, %z\n}\n";
  return "tir 1\nkernel @gradient\ngrid (2, " + std::to_string(n) + ")\n" + blocks + "in " + keys + "in " + keys +
         blocks + rows + rows + "out " + keys + "out " + keys + R"(scratch ref<vmem, f32[128, 64]>
scratch ref<vmem, f32[128, 64]>
body (%q, %k, %v, %g, %m, %d, %dk, %dv, %sk, %sv) {
  %zero = constant 0 : i32[]
  %zeros = constant 0.0 : f32[128, 64]
  %step = program_id axis 1 : i32[]
  %first = eq %step, %zero : bool[]
  if %first {
    store %sk[0:128, 0:64], %zeros
    store %sv[0:128, 0:64], %zeros
  }
  %qs = load %q[0:128, 0:64] : f32[128, 64]
  %ks = load %k[0:128, 0:64] : f32[128, 64]
  %vs = load %v[0:128, 0:64] : f32[128, 64]
  %gs = load %g[0:128, 0:64] : f32[128, 64]
  %ms = load %m[0:128, 0:128] : f32[128, 128]
  %ds = load %d[0:128, 0:128] : f32[128, 128]
  %s = dot %qs, %ks lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[128, 128]
  %below = sub %s, %ms : f32[128, 128]
  %p = exp %below : f32[128, 128]
  %pt = transpose %p perm [1, 0] : f32[128, 128]
  %pv = dot %pt, %gs lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[128, 64]
  %ov = load %sv[0:128, 0:64] : f32[128, 64]
  %nv = add %ov, %pv : f32[128, 64]
  store %sv[0:128, 0:64], %nv
  %dp = dot %gs, %vs lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[128, 128]
  %rest = sub %dp, %ds : f32[128, 128]
  %e = mul %rest, %p : f32[128, 128]
  %et = transpose %e perm [1, 0] : f32[128, 128]
  %pk = dot %et, %qs lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[128, 64]
  %ok = load %sk[0:128, 0:64] : f32[128, 64]
  %nk = add %ok, %pk : f32[128, 64]
  store %sk[0:128, 0:64], %nk
  %end = constant )" +
         std::to_string(n - 1) + R"( : i32[]
  %last = eq %step, %end : bool[]
  if %last {
    store %dk[0:128, 0:64], %nk
    store %dv[0:128, 0:64], %nv
  }
  yield
}
)";
}
}  // namespace

TEST_CASE("explain: an attention gradient's code stays small enough for a CPU driver") {
  int64_t branches = 0, ops = 0;
  CompileOptions options;
  options.dump = [&](std::string_view step, const ir::Kernel& k, bool) {
    if (step == "lane/loops") branches = lowering::count_branches(k), ops = static_cast<int64_t>(k.ops.size());
  };
  const std::string explain = compile(ir::parse(gradient(2), "k.tir"), lavapipe_target(), options).explain;
  INFO(explain);
  CHECK(branches <= 960);
  CHECK(ops <= 8000);
}

TEST_CASE(
    "explain: code stays small enough for a CPU driver where that makes loops longer than a dispatch of it runs") {
  int64_t branches = 0;
  CompileOptions options;
  options.dump = [&](std::string_view step, const ir::Kernel& k, bool) {
    if (step == "lane/loops") branches = lowering::count_branches(k);
  };
  const Program p = compile(ir::parse(gradient(16), "k.tir"), lavapipe_target(), options);
  INFO(p.explain);
  CHECK(branches <= 640 + 80);  // cutting adds some
  REQUIRE(p.steps_extent >= 0);
  const int64_t steps = p.extents[static_cast<size_t>(p.steps_extent) + 1].value().value_or(0),
                at_once = steps_at_once(p, steps, nullptr);
  CHECK(cdiv(steps, at_once) <= 512);
  // What one of the dispatches runs at most is what the driver allows.
  CHECK(at_once + total_iterations(p.loops, 0, nullptr).at_most.value_or(INT32_MAX) <= p.max_loop_iterations);
}

TEST_CASE("explain: one iota that counts rows and columns of a mask makes no axis of both") {
  CHECK(says(explained(file("attention_square")), "dots: columns on lanes, k values handed round by shuffle"));
}

TEST_CASE("explain: tiny programs of many accesses are no copy of the code for each element") {
  // An array's 16 elements each in one invocation would be 16 loads of it, and a driver's time grows with the square of
  // those.
  const auto lines = [](int inputs) {
    std::string text = "tir 1\nkernel @many\n", args, body;
    for (int i = 0; i < inputs; ++i) {
      const std::string n = std::to_string(i);
      text += "in f32[16] whole\n";
      args += "%x" + n + ", ";
      body += "  %l" + n + " = load %x" + n + "[0:16]\n" +
              (i > 0 ? "  %a" + n + " = add %" + (i > 1 ? "a" : "l") + std::to_string(i - 1) + ", %l" + n + "\n" : "");
    }
    text += "out f32[16] whole\nbody (" + args + "%o) {\n" + body + "  store %o[0:16], %a" +
            std::to_string(inputs - 1) + "\n  yield\n}\n";
    int64_t ops = 0;
    for (const Target& t : {minimum_target(), lavapipe_target(), gpu_target()}) {
      CompileOptions options;
      options.dump = [&](std::string_view, const ir::Kernel& k, bool) { ops = static_cast<int64_t>(k.ops.size()); };
      compile(ir::parse(text, "k.tir"), t, options);
      CHECK(ops < 12 * inputs + 200);
    }
    return ops;
  };
  lines(40);
  lines(300);
}

}  // namespace explain_test
