// ScheduleChoices: their text, and what they change; that any of them computes the same is the fuzzer's to see, whose
// random targets have random ones.
#include "codegen/program/choices.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "codegen/compile.h"
#include "engine/ir/text.h"

namespace choices_test {
using namespace tessera;

TEST_CASE("schedule choices: each has one text") {
  CHECK(to_string(ScheduleChoices{}) == "default");
  const ScheduleChoices some{.workgroup = 128, .smaller = 1, .registers = 2, .work = -3, .spread = 3};
  CHECK(to_string(some) == "workgroup=128 smaller=1 registers=2 work=-3 spread=3");
  CHECK(choices_from(to_string(some)) == some);
  CHECK(choices_from("default") == ScheduleChoices{});
  CHECK(choices_from("work=-1") == ScheduleChoices{.work = -1});
  for (const char* other : {"",
                            " ",
                            "defaults",
                            "default work=1",
                            "work",
                            "work=",
                            "work=x",
                            "work=1 ",
                            " work=1",
                            "work=1  spread=1",
                            "work=01",
                            "work=+1",
                            "work=0",
                            "work=4",
                            "work=-4",
                            "work=1 work=1",
                            "work=1 workgroup=64",
                            "workgroup=3",
                            "workgroup=2048",
                            "workgroup=-64",
                            "smaller=3",
                            "smaller=-1",
                            "registers=3",
                            "spread=4",
                            "spread=99999999999",
                            "colour=1",
                            "workgroups=64",
                            "work=1\tspread=1"}) {
    CAPTURE(other);
    CHECK_FALSE(choices_from(other));
  }
}

namespace {
Program tuned(const std::string& text, const ScheduleChoices& choices) {
  Target t = gpu_target();
  t.choices = choices;
  return compile(ir::parse(text, "k.tir"), t);
}
}  // namespace

TEST_CASE("schedule choices: what they change") {
  const std::string product =
      "tir 1\nkernel @product\nin f32[512, 256] whole\nin f32[256, 512] whole\nout f32[512, 512] whole\n"
      "body (%x, %y, %o) {\n  %a = load %x[0:512, 0:256]\n  %b = load %y[0:256, 0:512]\n  %c = dot %a, %b "
      "lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[512, 512]\n  store %o[0:512, 0:512], %c\n}\n";
  const std::string sum =
      "tir 1\nkernel @add\nin f32[65536] whole\nout f32[65536] whole\nbody (%x, %o) {\n  %a = load %x[0:65536]\n"
      "  %b = add %a, %a\n  store %o[0:65536], %b\n}\n";
  const Program usual = tuned(product, {}), usual_sum = tuned(sum, {});
  CHECK(tuned(product, {.workgroup = 64}).workgroup_size == 64);
  CHECK(tuned(product, {.workgroup = 1024}).workgroup_size == 1024);
  CHECK(tuned(sum, {.workgroup = 1}).workgroup_size == 32);  // no less than a subgroup
  const auto units = [](const Program& p) { return p.num_units.value().value(); };
  CHECK(units(tuned(product, {.smaller = 1})) == 2 * units(usual));
  CHECK(units(tuned(product, {.spread = 3})) > units(usual));
  CHECK(units(tuned(sum, {.work = 1})) == units(usual_sum) / 2);
  CHECK(units(tuned(sum, {.work = -1})) == units(usual_sum) * 2);
  const std::string rows =
      "tir 1\nkernel @rows\nin f32[64, 20000] whole\nout f32[64] whole\nbody (%x, %o) {\n  %a = load %x[0:64, "
      "0:20000]\n"
      "  %s = reduce_sum %a axes [1]\n  store %o[0:64], %s\n}\n";
  CHECK(tuned(rows, {.registers = 2}).spirv != tuned(rows, {}).spirv);
  CHECK(tuned(product, {.work = 1}).explain.find("  tuned: work=1\n") != std::string::npos);
  CHECK(usual.explain.find("tuned") == std::string::npos);

  // A hint of the caller's comes first; a CPU driver takes what is no GPU's.
  std::string hinted = product;
  hinted.replace(hinted.find("\nin "), 1, "\ncompiler_params triton (num_warps: 2)\n");
  CHECK(tuned(hinted, {.workgroup = 512}).workgroup_size == 64);
  Target cpu = lavapipe_target();
  cpu.choices = {.workgroup = 512, .smaller = 2, .registers = 2};
  CHECK(compile(ir::parse(product, "k.tir"), cpu).spirv ==
        compile(ir::parse(product, "k.tir"), lavapipe_target()).spirv);
}

// Rows times a matrix, and the matrix times a column: what the one keeps the other adds up, and its results would be
// kept along all of an axis that the first has in registers already.
TEST_CASE("schedule choices: a product's terms in code stay few where other ops have an axis of it alone") {
  const std::string text =
      "tir 1\nkernel @products\nin f32[3, 70] whole\nin f32[70, 130] whole\nin f32[130, 1] whole\n"
      "out f32[3, 130] whole\nout f32[70, 1] whole\nbody (%x, %y, %z, %o, %p) {\n  %a = load %x[0:3, 0:70]\n"
      "  %b = load %y[0:70, 0:130]\n  %c = load %z[0:130, 0:1]\n"
      "  %d = dot %a, %b lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[3, 130]\n"
      "  %e = dot %b, %c lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[70, 1]\n"
      "  store %o[0:3, 0:130], %d\n  store %p[0:70, 0:1], %e\n}\n";
  Target t = gpu_target();
  t.subgroup_size = t.max_subgroup_size = 4;
  t.choices = {.workgroup = 1, .registers = 2};
  CompileOptions options;
  std::ptrdiff_t terms = 0;
  options.dump = [&](std::string_view step, const ir::Kernel& k, bool) {
    if (step == "lower")
      terms = std::count_if(k.ops.begin(), k.ops.end(), [](const ir::Op& o) { return o.code == ir::Opcode::fma; });
  };
  compile(ir::parse(text, "k.tir"), t, options);
  CHECK(terms > 0);
  CHECK(terms <= 2 * 1024);
}

}  // namespace choices_test
