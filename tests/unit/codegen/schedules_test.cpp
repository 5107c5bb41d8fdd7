// The schedules of small kernels of every form, in sizes around the thresholds of the cost model, on each kind of
// target: a threshold that moves is seen here and hardly anywhere else, as few kernels of tests/tir are just as large.
// tests/data/schedules.tsv has them; TESSERA_BLESS=1 writes it anew, and the difference belongs in the review of the
// change.
#include <doctest/doctest.h>

#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/lower/lower.h"
#include "codegen/plan/plan.h"
#include "engine/ir/text.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/codegen/table.h"

namespace schedules_test {
using namespace tessera;

namespace {

constexpr const char* kColumns =
    "form\tsizes\ttarget\tgroup/workgroup, each axis: extent s(plit into tiles) : registers v(ector) r(un) "
    "b(etween) x invocations @ stride\tops\tloads\tstores\tbarriers\tloops\tshared";

struct Form {
  const char* name;
  const char* text;  // R and C are the sizes, R2 and C2 twice as much, C1 one more
};
const Form kForms[] = {
    {"rows", R"(in f32[R, C] whole
out f32[R] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %s = reduce_sum %a axes [1]
  store %o[0:R], %s
})"},
    {"columns", R"(in f32[R, C] whole
out f32[C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %s = reduce_sum %a axes [0]
  store %o[0:C], %s
})"},
    {"rows read again", R"(in f16[R, C] whole
out f16[R, C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %m = reduce_max %a axes [1]
  %w = broadcast %m dims [0] : f16[R, C]
  %b = sub %a, %w
  store %o[0:R, 0:C], %b
})"},
    {"columns read again", R"(in f32[R, C] whole
out f32[R, C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %m = reduce_max %a axes [0]
  %w = broadcast %m dims [1] : f32[R, C]
  %b = sub %a, %w
  store %o[0:R, 0:C], %b
})"},
    {"rows of many programs", R"(grid (64)
in f32[64, R, C] block (squeezed, R, C) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0, %0
}
out f32[64, R] block (squeezed, R) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %s = reduce_sum %a axes [1]
  store %o[0:R], %s
})"},
    {"columns of many programs", R"(grid (64)
in u8[64, R, C] block (squeezed, R, C) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0, %0
}
out u8[64, C] block (squeezed, C) map (%i) {
  %0 = constant 0 : i32[]
  yield %i, %0
}
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %s = reduce_max %a axes [0]
  store %o[0:C], %s
})"},
    {"two dims of three", R"(in f32[4, R, C] whole
out f32[R] whole
body (%x, %o) {
  %a = load %x[0:4, 0:R, 0:C]
  %s = reduce_sum %a axes [0, 2]
  store %o[0:R], %s
})"},
    {"all of three dims", R"(in f32[3, R, C] whole
out f32[] whole
body (%x, %o) {
  %a = load %x[0:3, 0:R, 0:C]
  %s = reduce_sum %a axes [0, 1, 2]
  store %o[], %s
})"},
    {"elementwise", R"(in f16[R, C] whole
out f16[R, C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %b = neg %a
  store %o[0:R, 0:C], %b
})"},
    {"transposed", R"(in f32[R, C] whole
out f32[C, R] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %b = transpose %a perm [1, 0]
  store %o[0:C, 0:R], %b
})"},
    {"beside a sum", R"(in f32[R, C] whole
in f32[R2] whole
out f32[R, C] whole
body (%x, %y, %o) {
  %b = load %y[0:R2]
  %s = reduce_sum %b axes [0]
  %r = broadcast %s dims [] : f32[R, C]
  %a = load %x[0:R, 0:C]
  %c = add %a, %r
  store %o[0:R, 0:C], %c
})"},
    {"neighbours", R"(in f32[R, C2] whole
out f32[R, C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %b = load %x[0:R, 1:C1]
  %c = add %a, %b
  store %o[0:R, 0:C], %c
})"},
    {"running sums of rows", R"(in f32[R, C] whole
out f32[R, C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %s = cumsum %a axis 1
  store %o[0:R, 0:C], %s
})"},
    {"running sums of columns", R"(in f32[R, C] whole
out f32[R, C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %s = cumsum %a axis 0
  store %o[0:R, 0:C], %s
})"},
    {"running sums of rows by 32 warps", R"(compiler_params triton (num_warps: 32)
in f32[R, C] whole
out f32[R, C] whole
body (%x, %o) {
  %a = load %x[0:R, 0:C]
  %s = cumsum %a axis 1
  store %o[0:R, 0:C], %s
})"},
    {"columns that a loop adds up", R"(in f32[R2, C] whole
out f32[C] whole
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %2 = constant 2 : i32[]
  %r = constant R : i32[]
  %z = constant 0.0 : f32[C]
  %s = for %i = %0 to %2 step %1 carry (%p = %z: f32[C]) {
    %at = mul %i, %r
    %b = load %x[ds(%at, R), 0:C]
    %m = reduce_max %b axes [0]
    %q = max %p, %m
    yield %q
  }
  store %o[0:C], %s
})"},
    {"product", R"(in f32[R, 64] whole
in f32[64, C] whole
out f32[R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:64]
  %b = load %y[0:64, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, C]
  store %o[0:R, 0:C], %c
})"},
    {"product of halves", R"(in f16[R, 256] whole
in f16[256, C] whole
out f32[R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:256]
  %b = load %y[0:256, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, C]
  store %o[0:R, 0:C], %c
})"},
    {"deep product by 8 warps", R"(compiler_params triton (num_warps: 8)
in f16[R, 1024] whole
in f16[1024, C] whole
out f32[R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:1024]
  %b = load %y[0:1024, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, C]
  store %o[0:R, 0:C], %c
})"},
    {"shallow product of halves", R"(in f16[R, 128] whole
in f16[128, C] whole
out f32[R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:128]
  %b = load %y[0:128, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, C]
  store %o[0:R, 0:C], %c
})"},
    {"product of halves and a bias", R"(in f16[R, 16] whole
in f16[16, C] whole
in f16[C] whole
out f16[R, C] whole
body (%x, %y, %z, %o) {
  %a = load %x[0:R, 0:16]
  %b = load %y[0:16, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, C]
  %d = load %z[0:C]
  %w = broadcast %d dims [1] : f16[R, C]
  %v = convert %w : f32[R, C]
  %e = add %c, %v
  %h = convert %e : f16[R, C]
  store %o[0:R, 0:C], %h
})"},
    {"product of doubles", R"(in f64[R, 64] whole
in f64[64, C] whole
out f64[R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:64]
  %b = load %y[0:64, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f64[R, C]
  store %o[0:R, 0:C], %c
})"},
    {"product of bytes", R"(in i8[R, 64] whole
in i8[64, C] whole
out i32[R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:64]
  %b = load %y[0:64, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : i32[R, C]
  store %o[0:R, 0:C], %c
})"},
    {"product of bytes in 64 bits", R"(in i8[R, 64] whole
in i8[64, C] whole
out i64[R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:64]
  %p = convert %a : i64[R, 64]
  %b = load %y[0:64, 0:C]
  %q = convert %b : i64[64, C]
  %c = dot %p, %q lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : i64[R, C]
  store %o[0:R, 0:C], %c
})"},
    {"products of a batch", R"(in f32[8, R, 16] whole
in f32[8, 16, C] whole
out f32[8, R, C] whole
body (%x, %y, %o) {
  %a = load %x[0:8, 0:R, 0:16]
  %b = load %y[0:8, 0:16, 0:C]
  %c = dot %a, %b lhs_contract [2] rhs_contract [1] lhs_batch [0] rhs_batch [0] : f32[8, R, C]
  store %o[0:8, 0:R, 0:C], %c
})"},
    {"sum of a product", R"(in f32[R, 64] whole
in f32[64, C] whole
out f32[] whole
body (%x, %y, %o) {
  %a = load %x[0:R, 0:64]
  %b = load %y[0:64, 0:C]
  %c = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, C]
  %s = reduce_max %c axes [0, 1]
  store %o[], %s
})"},
    {"attention", R"(in f16[R, 64] whole
in f16[C, 64] whole
in f16[C, 64] whole
out f32[R, 64] whole
body (%q, %k, %v, %o) {
  %a = load %q[0:R, 0:64]
  %b = load %k[0:C, 0:64]
  %s = dot %a, %b lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[R, C]
  %m = reduce_max %s axes [1]
  %w = broadcast %m dims [0] : f32[R, C]
  %d = sub %s, %w
  %h = convert %d : f16[R, C]
  %x = load %v[0:C, 0:64]
  %r = dot %h, %x lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, 64]
  store %o[0:R, 0:64], %r
})"},
    {"attention, weights in f32", R"(in f16[R, 64] whole
in f16[C, 64] whole
in f32[C, 64] whole
out f32[R, 64] whole
body (%q, %k, %v, %o) {
  %a = load %q[0:R, 0:64]
  %b = load %k[0:C, 0:64]
  %s = dot %a, %b lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[R, C]
  %m = reduce_max %s axes [1]
  %w = broadcast %m dims [0] : f32[R, C]
  %d = sub %s, %w
  %x = load %v[0:C, 0:64]
  %r = dot %d, %x lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, 64]
  store %o[0:R, 0:64], %r
})"},
    {"products one after another", R"(in f16[R, 64] whole
in f16[C, 64] whole
in f16[C, 64] whole
in f16[64, 64] whole
out f16[R, 64] whole
body (%q, %k, %v, %w, %o) {
  %a = load %q[0:R, 0:64]
  %b = load %k[0:C, 0:64]
  %s = dot %a, %b lhs_contract [1] rhs_contract [1] lhs_batch [] rhs_batch [] : f32[R, C]
  %h = convert %s : f16[R, C]
  %x = load %v[0:C, 0:64]
  %r = dot %h, %x lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, 64]
  %m = reduce_max %r axes [1]
  %n = broadcast %m dims [0] : f32[R, 64]
  %d = sub %r, %n
  %f = convert %d : f16[R, 64]
  %y = load %w[0:64, 0:64]
  %t = dot %f, %y lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[R, 64]
  %z = convert %t : f16[R, 64]
  store %o[0:R, 0:64], %z
})"},
};
constexpr std::pair<int, int> kSizes[] = {
    {1, 1},    {1, 300},  {2, 3},   {2, 1024},  {3, 4096},    {7, 33},    {8, 8},      {8, 520},   {16, 64},
    {24, 16},  {31, 100}, {32, 32}, {56, 64},   {64, 56},     {64, 512},  {100, 3},    {128, 128}, {128, 1024},
    {256, 36}, {300, 1},  {512, 8}, {513, 512}, {1000, 1000}, {4096, 16}, {4096, 4096}};

std::string kernel(const Form& f, std::pair<int, int> sizes) {
  std::string text = std::string("tir 1\nkernel @k\n") + f.text + "\n";
  const auto put = [&](const std::string& name, int n) {
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
      const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)); };
      if (!is_word(text[at - 1]) && !is_word(text[at + name.size()])) text.replace(at, name.size(), std::to_string(n));
      else ++at;
    }
  };
  put("R2", 2 * sizes.first), put("C2", 2 * sizes.second), put("C1", sizes.second + 1), put("R", sizes.first),
      put("C", sizes.second);
  return text;
}

/// Group and workgroup, what axis is how, and how products are made: "128/128 256s4:1x4@1 512:4v4x32@4 staged 16".
std::string of_plan(const lowering::Plan& p) {
  const lowering::Schedule& s = p.schedule;
  std::string out = std::to_string(s.group) + "/" + std::to_string(s.workgroup);
  for (size_t a = 0; a < s.plans.size(); ++a) {
    const lowering::AxisPlan& x = s.plans[a];
    out += " " + std::to_string(p.axes->axes[a].extent);
    if (x.split) out += "s" + std::to_string(x.tile);
    if (!x.laid_out) continue;
    out += ":" + std::to_string(x.reg);
    if (x.vec > 1) out += "v" + std::to_string(x.vec);
    if (x.run) out += "r" + std::to_string(x.run) + "b" + std::to_string(x.between);
    if (x.invocations > 1) out += "x" + std::to_string(x.invocations) + "@" + std::to_string(x.invocation_stride);
  }
  if (s.wide_dot == lowering::DotForm::shuffle) out += " shuffled";
  if (s.wide_dot == lowering::DotForm::staged) out += " staged " + std::to_string(s.dot_chunk);
  if (s.wide_dot == lowering::DotForm::matrix) out += s.matrix_lanes ? " by lanes" : " matrices";
  return out;
}
/// Of the lane-level kernel, before passes: ops, loads, stores, barriers, loops, shared bytes.
std::string of_code(const ir::Kernel& lanes) {
  int64_t ops = 0, loads = 0, stores = 0, barriers = 0, loops = 0;
  for (const ir::Region& r : lanes.regions)
    for (const ir::OpId id : r.ops) {
      const ir::Opcode code = lanes.op(id).code;
      ++ops;
      loads += code == ir::Opcode::load, stores += code == ir::Opcode::store;
      barriers += code == ir::Opcode::barrier || code == ir::Opcode::subgroup_barrier;
      loops += code == ir::Opcode::for_;
    }
  std::string out;
  for (const int64_t n : {ops, loads, stores, barriers, loops, lanes.lane.shared_bytes})
    out += "\t" + std::to_string(n);
  return out;
}
}  // namespace

// Skipped under the sanitizers: it lowers thousands of kernels.
TEST_CASE("costs of schedules: every form in sizes around the thresholds of the cost model" *
          doctest::skip(tessera::test::kSanitized)) {
  test::Table table("tests/data/schedules.tsv", kColumns, 3);
  std::map<std::string, std::string> all;  // by form, sizes and target
  for (const char* name : {"minimum", "lavapipe", "gpu", "gpu-matrix", "nvidia:sm_90a"})
    for (const Form& f : kForms)
      for (const auto& sizes : kSizes)
        for (const int smaller : {0, 2, 9}) {
          // As small as code for CPUs becomes: of some sizes.
          if (smaller == 9 && (std::string_view(name) != "lavapipe" || (&sizes - kSizes) % 5 != 0)) continue;
          const std::string what =
              std::string(f.name) + "\t" + std::to_string(sizes.first) + "x" + std::to_string(sizes.second) + "\t";
          const std::string key = what + name + (smaller ? ", attempt " + std::to_string(smaller + 1) : "");
          const Target t = Target::named(name);
          const bool gpu = t.kind == Target::Kind::gpu;
          const ir::Kernel k = ir::parse(kernel(f, sizes), "k.tir");
          std::string now = of_plan(lowering::Plan(k, t, false, smaller, gpu, std::nullopt));
          if (!smaller) now += of_code(lower(k, t, false, 0, nullptr, gpu));
          all[key] = now;
          // Only what differs is listed: of GPUs with matrices from those without, of a later attempt from the first.
          const std::string plan = now.substr(0, now.find('\t'));
          if (const auto it = all.find(what + (smaller ? name : "gpu"));
              it != all.end() && (smaller ? it->second.substr(0, it->second.find('\t')) == plan
                                          : std::string_view(name) != "gpu" && it->second == now))
            continue;
          table.add(key, now);
        }
  table.finish();
}

}  // namespace schedules_test
