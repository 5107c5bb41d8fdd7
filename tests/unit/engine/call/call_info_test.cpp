// What a caller says about a call beside what it computes: metadata, cost, compiler parameters, backend, interpret,
// debug; through the text form and vmap.
#include "engine/base/call_info.h"

#include <doctest/doctest.h>

#include <iostream>
#include <sstream>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"

namespace call_info_test {

namespace ts = tessera;
using tessera::test::expect;
using ts::all, ts::Ref, ts::Value;

namespace {
ts::PallasCallParams params() { return {.out_shape = {{{8, 6}, ts::f32}}, .grid = {4, 3}, .name = "copy"}; }
const std::vector<ts::ShapeDtype> kInputs{{{8, 6}, ts::f32}};
int line = 0;  // of the last call()
ts::PallasCall call(const ts::PallasCallParams& p) {
  line = __LINE__ + 1;
  return ts::pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, p);
}
template <class Change>
ts::PallasCall with(Change change) {
  ts::PallasCallParams p = params();
  change(p);
  return call(p);
}
template <class Change>
std::string error(Change change) {
  try {
    with(change);
  } catch (const ts::SpecError& e) {
    return e.what();
  }
  return "no error";
}
std::string at() { return "\n  at " + std::string(__FILE__) + ":" + std::to_string(line); }

std::vector<bool> parallel(const ts::PallasCall& c) { return c.grid_mapping(kInputs).grid_parallel; }

std::string parse_error(const std::string& clause) {
  try {
    ts::ir::parse("tir 1\nkernel @k\n" + clause + "\nbody () {}\n", "k.tir");
  } catch (const ts::TraceError& e) {
    const std::string what = e.what();
    return what.substr(0, what.find('\n'));
  }
  return "no error";
}

struct Captured {  // of std::cout, until it goes
  std::ostringstream text;
  std::streambuf* old = std::cout.rdbuf(text.rdbuf());
  ~Captured() { std::cout.rdbuf(old); }
};
}  // namespace

TEST_CASE("call info: round trip through the text form") {
  const ts::PallasCall c = with([](auto& p) {
    p.metadata = {{"author", "a \"b\" \\ c\n\td"}, {"key with spaces", ""}};
    p.cost_estimate = ts::CostEstimate{.flops = ts::dim("n") * 2, .bytes_accessed = 64};
    p.compiler_params = {{"triton", ts::triton::CompilerParams{.num_warps = 4, .num_stages = 2}},
                         {"mosaic_gpu", ts::mosaic_gpu::CompilerParams{
                                            .approx_math = true, .profile_space = 3, .profile_dir = "a dir/b"}}};
  });
  const ts::ir::Kernel k = c.trace(kInputs);
  const std::string text = ts::ir::print(k);
  expect(text.substr(0, text.find("in f32")), R"(tir 1
kernel @copy
metadata (author: "a \"b\" \\ c\n	d", "key with spaces": "")
cost_estimate (flops: n * 2, transcendentals: 0, bytes_accessed: 64)
compiler_params triton (num_warps: 4, num_stages: 2)
compiler_params mosaic_gpu (approx_math: true, profile_space: 3, profile_dir: "a dir/b")
grid (4 parallel, 3 parallel)
)");
  const ts::ir::Kernel back = ts::ir::parse(text);
  CHECK(ts::ir::print(back) == text);
  CHECK(back.call.metadata == k.call.metadata);
  CHECK(back.call.cost_estimate == k.call.cost_estimate);
  CHECK(back.call.compiler_params == k.call.compiler_params);
  expect(ts::ir::to_json(k.call.metadata), R"({"author": "a \"b\" \\ c\n\td", "key with spaces": ""})");
  expect(ts::ir::to_json({{"\x01", "\x1f"}}), R"({"\u0001": "\u001f"})");
}

TEST_CASE("call info: mistakes in the text form") {
  expect(parse_error("metadata (a: \"1\", a: \"2\")"), "k.tir:3:19: the key is given twice");
  expect(parse_error("metadata (a: 1)"), "k.tir:3:14: expected a string but found '1'");
  expect(parse_error("cost_estimate (flops: -1)"), "k.tir:3:23: a cost of -1 is negative");
  expect(parse_error("cost_estimate (joules: 1)"),
         "k.tir:3:16: expected flops, transcendentals, bytes_accessed or remote_bytes_transferred but found 'joules'");
  expect(parse_error("cost_estimate (flops: 1) cost_estimate ()"), "k.tir:3:26: cost_estimate is given twice");
  expect(parse_error("compiler_params cuda (num_warps: 4)"),
         "k.tir:3:23: no backend cuda has compiler parameters: mosaic_tpu, triton and mosaic_gpu have");
  expect(parse_error("compiler_params triton (num_wraps: 4)"),
         "k.tir:3:25: there is no compiler parameter num_wraps of triton: it has num_warps, num_stages");
  expect(parse_error("compiler_params triton (num_warps: -4)"),
         "k.tir:3:25: compiler parameter num_warps of triton is \"-4\", not an integer of at least 0");
  expect(parse_error("compiler_params mosaic_gpu (approx_math: 1)"),
         "k.tir:3:29: compiler parameter approx_math of mosaic_gpu is \"1\", not true or false");
  expect(parse_error("compiler_params triton (num_warps: 4, num_warps: 4)"),
         "k.tir:3:39: compiler parameter num_warps of triton is given twice");
}

TEST_CASE("call info: the verifier looks at kernels that no parser has seen") {
  ts::ir::Kernel k = call(params()).trace(kInputs);
  k.call.compiler_params = {{"triton", "speed", "9"}};
  k.call.cost_estimate = ts::CostEstimate{.bytes_accessed = -8};
  const auto problems = ts::ir::find_problems(k);
  REQUIRE(problems.size() == 2);
  expect(problems[0].message, "there is no compiler parameter speed of triton: it has num_warps, num_stages");
  expect(problems[1].message, "cost_estimate has -8, which is negative");
}

TEST_CASE("compiler_params: what they say about grid axes") {
  using Axes = std::vector<bool>;
  CHECK(parallel(call(params())) == Axes{false, false});
  CHECK(parallel(with([](auto& p) { p.compiler_params = ts::CompilerParams{{"parallel", "arbitrary"}}; })) ==
        Axes{true, false});
  CHECK(parallel(with([](auto& p) {
          p.compiler_params = ts::tpu::CompilerParams{.dimension_semantics = {"arbitrary", "core_parallel"}};
        })) == Axes{false, true});
  CHECK(parallel(with([](auto& p) { p.compiler_params = ts::tpu::CompilerParams{.vmem_limit_bytes = 1024}; })) ==
        Axes{false, false});
  CHECK(parallel(with([](auto& p) { p.compiler_params = ts::triton::CompilerParams{}; })) == Axes{true, true});
  CHECK(parallel(with([](auto& p) { p.compiler_params = ts::mosaic_gpu::CompilerParams{}; })) == Axes{true, true});
  CHECK(parallel(with([](auto& p) {
          p.compiler_params = ts::mosaic_gpu::CompilerParams{.dimension_semantics = {"parallel", "sequential"}};
        })) == Axes{true, false});
  // Of several, all must agree, but that Tessera's own have the last word.
  CHECK(parallel(with([](auto& p) {
          p.compiler_params = {
              {"triton", ts::triton::CompilerParams{}},
              {"mosaic_tpu", ts::tpu::CompilerParams{.dimension_semantics = {"parallel", "arbitrary"}}}};
        })) == Axes{true, false});
  CHECK(parallel(with([](auto& p) {
          p.compiler_params = {{"triton", ts::triton::CompilerParams{}},
                               {"vulkan", ts::CompilerParams{{"arbitrary", "parallel"}}}};
        })) == Axes{false, true});
}

TEST_CASE("compiler_params: mistakes") {
  const std::string place = "copy: compiler_params: ";
  expect(error([](auto& p) { p.compiler_params = {{"cuda", ts::CompilerParams{}}}; }),
         place + "backend \"cuda\" is unknown" + at() +
             "\n  note: \"vulkan\", \"mosaic_tpu\", \"triton\" and \"mosaic_gpu\" are known");
  expect(error([](auto& p) { p.compiler_params = {{"triton", ts::tpu::CompilerParams{}}}; }),
         place + "backend \"triton\" has the parameters of \"mosaic_tpu\"" + at());
  expect(error([](auto& p) {
           p.compiler_params = {{"triton", ts::triton::CompilerParams{}}, {"triton", ts::triton::CompilerParams{}}};
         }),
         place + "backend \"triton\" is given twice" + at());
  expect(error([](auto& p) {
           p.compiler_params = ts::tpu::CompilerParams{.dimension_semantics = {"sequential", "parallel"}};
         }),
         place + "dimension_semantics \"sequential\" is unknown" + at() +
             "\n  note: \"parallel\", \"core_parallel\", \"subcore_parallel\" and \"arbitrary\" are known");
  expect(
      error([](auto& p) { p.compiler_params = ts::mosaic_gpu::CompilerParams{.dimension_semantics = {"parallel"}}; }),
      place + "dimension_semantics has 1 entry but the grid has 2 axes" + at());
  expect(error([](auto& p) { p.compiler_params = ts::triton::CompilerParams{.num_warps = 0}; }),
         place + "num_warps is 0" + at());
  expect(error([](auto& p) { p.compiler_params = ts::triton::CompilerParams{.num_stages = -1}; }),
         place + "compiler parameter num_stages of triton is \"-1\", not an integer of at least 0" + at());
  expect(error([](auto& p) { p.compiler_params = ts::mosaic_gpu::CompilerParams{.profile_dir = "d"}; }),
         place + "profile_dir is given without profile_space" + at() + "\n  note: give both or neither");
  expect(error([](auto& p) { p.compiler_params = ts::mosaic_gpu::CompilerParams{.profile_space = 1}; }),
         place + "profile_space is given without profile_dir" + at() + "\n  note: give both or neither");
  expect(error([](auto& p) { p.cost_estimate = ts::CostEstimate{.flops = -1}; }),
         "copy: cost_estimate: flops is -1" + at());
}

TEST_CASE("backend and interpret") {
  for (const char* name : {"mosaic_tpu", "triton", "mosaic_gpu"})
    expect(error([&](auto& p) { p.backend = name; }),
           "copy: backend \"" + std::string(name) + "\" is Pallas's, and not in this build" + at() +
               "\n  note: \"vulkan\" and \"interpreter\" are; what is meant for \"" + name +
               "\" can be given in compiler_params");
  expect(error([](auto& p) { p.backend = "cuda"; }),
         "copy: backend \"cuda\" is unknown" + at() + "\n  note: \"vulkan\" and \"interpreter\" are known");
  expect(error([](auto& p) {
           p.backend = "vulkan";
           p.interpret = true;
         }),
         "copy: backend is \"vulkan\", and interpret is given too" + at() + "\n  note: give one of them");
  CHECK_FALSE(with([](auto& p) { p.backend = "vulkan"; }).interpreted());
  CHECK(with([](auto& p) { p.backend = "interpreter"; }).interpreted());
  CHECK(with([](auto& p) { p.interpret = true; }).interpreted());

  // Options reach the interpreter, under vmap too: axis 1 is declared parallel and every program writes all of the
  // output.
  const ts::PallasCall judged =
      with([](auto& p) { p.interpret = ts::InterpretOptions{.races = true, .parallel = {false, true}}; });
  REQUIRE(judged.interpret_options());
  CHECK(judged.interpret_options()->races);
  const ts::Array x({8, 6}, std::vector<float>(48, 1)), xs({2, 8, 6}, std::vector<float>(96, 1));
  CHECK_THROWS_AS(judged(x), ts::KernelError);
  const ts::PallasCall batched = ts::vmap(judged);
  CHECK(batched.interpret_options()->parallel == std::vector<bool>{true, false, true});
  CHECK_THROWS_AS(batched(xs), ts::KernelError);
}

TEST_CASE("debug prints what is traced, once per trace") {
  const ts::PallasCall c = with([](auto& p) { p.debug = true; });
  const std::string where = "copy for kernel function kernel at " + std::string(__FILE__) + ":" + std::to_string(line);
  const Captured captured;
  const ts::ir::Kernel k = c.trace(kInputs);
  c.trace(kInputs);
  std::ostringstream mapping;
  mapping << c.grid_mapping(kInputs);
  expect(captured.text.str(), "The grid mapping for pallas_call " + where + ":\n" + mapping.str() +
                                  "The kernel for pallas_call " + where + ":\n" + ts::ir::print(k));
  CHECK(ts::grid_mapping(k).debug);
  CHECK(ts::vmap(c).trace({{{2, 8, 6}, ts::f32}}).call.debug);
}

TEST_CASE("the description of a call") {
  ts::ir::Kernel k;
  expect(k.description(), "kernel");
  k.loc = {"a.cpp", 7};
  expect(k.description(), "kernel at a.cpp:7");
  k.name = "matmul";
  expect(k.description(), "matmul for kernel function kernel at a.cpp:7");
}

TEST_CASE("vmap keeps what the caller said, and multiplies the cost") {
  const ts::PallasCall c = with([](auto& p) {
    p.metadata = {{"author", "me"}};
    p.cost_estimate = ts::CostEstimate{.flops = 10, .transcendentals = 3, .bytes_accessed = 40};
    p.compiler_params = ts::triton::CompilerParams{.num_warps = 2};
  });
  const ts::ir::Kernel k = ts::vmap(c).trace({{{5, 8, 6}, ts::f32}});
  CHECK(k.call.metadata == std::map<std::string, std::string>{{"author", "me"}});
  CHECK(k.call.cost_estimate == ts::CostEstimate{50, 15, 200});
  CHECK(k.call.compiler_params == std::vector<ts::ir::CompilerParam>{{"triton", "num_warps", "2"}});
}

}  // namespace call_info_test
