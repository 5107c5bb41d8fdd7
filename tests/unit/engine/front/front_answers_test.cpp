// Functions of the front end that no op stands for, against answers of JAX on the CPU: tests/data/front, written by
// make_answers.py. Each is traced as a kernel over whole arrays and run by the interpreter.
#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <map>

#include "engine/base/npy.h"
#include "engine/front.h"
#include "tests/support/answers.h"

namespace front_answers_test {
using namespace tessera;
using namespace tessera::test;

namespace {
using Operands = std::vector<Value>;
struct Function {
  std::vector<DType> inputs;  // of the stored arrays
  std::vector<DType> outputs;
  std::function<std::vector<Value>(const Operands&)> f;
  double ulp = 0;
};
using Functions = std::map<std::string, Function>;

void check(const std::string& name, const Function& function) {
  INFO(name);
  const std::string stem = "tests/data/front/" + name;
  std::vector<Array> inputs, answers;
  for (size_t i = 0; i < function.inputs.size(); ++i)
    inputs.push_back(read_npy(stem + ".in" + std::to_string(i) + ".npy", function.inputs[i]));
  std::vector<ShapeDtype> shapes;
  for (size_t i = 0; i < function.outputs.size(); ++i) {
    answers.push_back(read_npy(stem + ".out" + std::to_string(i) + ".npy", function.outputs[i]));
    REQUIRE(answers.back().dtype() == function.outputs[i]);
    const Shape& s = answers.back().shape();
    shapes.push_back({{s.begin(), s.end()}, function.outputs[i]});
  }
  const auto call = spec::make_pallas_call({static_cast<int>(inputs.size() + answers.size()),
                                            [&](const std::vector<Ref>& refs) {
                                              Operands operands;
                                              for (size_t i = 0; i < inputs.size(); ++i)
                                                operands.push_back(refs[i][all]);
                                              const std::vector<Value> results = function.f(operands);
                                              REQUIRE(results.size() == answers.size());
                                              for (size_t i = 0; i < results.size(); ++i) {
                                                CHECK(results[i].dtype() == function.outputs[i]);
                                                CHECK(results[i].shape() == answers[i].shape());
                                                refs[inputs.size() + i][all] = results[i];
                                              }
                                            }},
                                           {.out_shape = shapes}, Loc::here());
  const Arrays got = interpret(call, inputs);
  for (Array& x : inputs)
    for (int64_t i = 0; i < x.size(); ++i) x.set_element_bits(i, flushed(x.dtype(), x.element_bits(i)));
  const Arrays flushed_first = interpret(call, inputs);
  for (size_t o = 0; o < answers.size(); ++o) {
    const DType t = answers[o].dtype();
    for (int64_t i = 0; i < answers[o].size(); ++i) {
      const uint64_t a = got[o].element_bits(i), b = answers[o].element_bits(i);
      if (!agrees(t, a, b, function.ulp) && !agrees(t, flushed_first[o].element_bits(i), b, function.ulp))
        FAIL_CHECK(name, " output ", o, " element ", i, " is ", show(t, a), " but JAX has ", show(t, b));
    }
  }
}

Functions elementwise() {
  Functions all;
  const auto one = [&](const std::string& name, DType in, DType out, std::function<Value(Value)> f, double ulp = 0) {
    all[name] = {{in}, {out}, [f](const Operands& o) { return std::vector<Value>{f(o[0])}; }, ulp};
  };
  const std::map<DType, std::vector<std::pair<int, int>>> formats{{f8e4m3fn, {{4, 1}, {3, 2}}},
                                                                  {f8e5m2, {{4, 1}, {2, 2}}},
                                                                  {f16, {{5, 4}, {4, 3}, {3, 10}}},
                                                                  {bf16, {{4, 3}, {5, 2}}},
                                                                  {f32, {{8, 7}, {5, 10}, {4, 3}, {2, 0}, {8, 23}}},
                                                                  {f64, {{8, 23}, {11, 20}}}};
  for (const auto& [t, list] : formats)
    for (const auto& [e, m] : list)
      one("reduce_precision_" + std::string(name(t)) + "_" + std::to_string(e) + "_" + std::to_string(m), t, t,
          [e = e, m = m](Value x) { return reduce_precision(x, e, m); });
  for (const DType t : {i8, u32, f32}) {
    const std::string of = std::string(name(t));
    one("square_" + of, t, t, [](Value x) { return square(x); });
    for (const int n : {0, 1, 3, 10, -1, -3})
      if (n >= 0 || is_float(t))
        one("integer_pow_" + of + "_" + std::to_string(n), t, t, [n](Value x) { return integer_pow(x, n); }, 1);
  }
  one("reciprocal_f32", f32, f32, [](Value x) { return reciprocal(x); });
  for (const DType t : {f8e4m3fn, f8e5m2, f16, bf16, f32, f64}) {
    one("is_nan_" + std::string(name(t)), t, boolean, [](Value x) { return is_nan(x); });
    one("is_inf_" + std::string(name(t)), t, boolean, [](Value x) { return is_inf(x); });
  }
  all["select_n_i32"] = {
      {i32, f32, f32, f32}, {f32}, [](const Operands& o) { return Operands{select_n(o[0], {o[1], o[2], o[3]})}; }};
  all["select_n_bool"] = {
      {boolean, f32, f32}, {f32}, [](const Operands& o) { return Operands{select_n(o[0], {o[1], o[2]})}; }};
  return all;
}

Functions shapes() {
  Functions all;
  const auto one = [&](const std::string& name, std::function<Operands(Value)> f, DType t = f32, size_t outputs = 1,
                       DType out = f32, double ulp = 0) {
    all[name] = {{t}, std::vector<DType>(outputs, out), [f](const Operands& o) { return f(o[0]); }, ulp};
  };
  one("expand_dims", [](Value x) { return Operands{expand_dims(x, {0, -1})}; });
  one("squeeze",
      [](Value x) { return Operands{squeeze(slice(expand_dims(x, {0}), {0, 0, 0, 0}, {1, 2, 1, 3}), {0, 2})}; });
  one("stack", [](Value x) { return Operands{stack({x, x * 2}, -1)}; });
  one("split", [](Value x) { return split(x, {1, 0, 4}, 1); }, f32, 3);
  one("tile", [](Value x) { return Operands{tile(x, {2, 1, 3})}; });
  one("rev", [](Value x) { return Operands{rev(x, {0, -1})}; });
  one("roll", [](Value x) { return Operands{roll(x, -7, 1)}; });
  one("pad_edges", [](Value x) { return Operands{pad(x, 9, {{1, 2, 0}, {0, 1, 0}, {2, 0, 0}})}; });
  one("pad_interior", [](Value x) { return Operands{pad(x, 9, {{0, 0, 3}, {1, 0, 1}, {0, 2, 2}})}; });
  one("pad_cut", [](Value x) { return Operands{pad(x, 9, {{-1, 2, 0}, {-2, -1, 1}, {3, -4, 0}})}; });
  using Scan = Value (*)(Operand, ScanParams);
  for (const auto& [name, f] :
       std::map<std::string, Scan>{{"cumprod", cumprod}, {"cummax", cummax}, {"cummin", cummin}}) {
    one(
        name + "_f32", [f = f](Value x) { return Operands{f(x, {.axis = 1}), f(x, {.axis = 2, .reverse = true})}; },
        f32, 2);
    one(name + "_i8", [f = f](Value x) { return Operands{f(x, {}), f(x, {.reverse = true})}; }, i8, 2, i8);
    one(name + "_bf16", [f = f](Value x) { return Operands{f(x, {})}; }, bf16, 1, bf16);
  }
  one("cummax_special", [](Value x) { return Operands{cummax(x), cummin(x, {.reverse = true})}; }, f32, 2);
  one(
      "cumlogsumexp",
      [](Value x) { return Operands{cumlogsumexp(x, {.axis = 1}), cumlogsumexp(x, {.axis = 2, .reverse = true})}; },
      f32, 2, f32, 8);
  one("argmax_u8", [](Value x) { return Operands{argmax(x, {.axis = 1, .index_dtype = u8})}; }, f32, 1, u8);
  all["logaddexp"] = {{f32, f32}, {f32}, [](const Operands& o) { return Operands{logaddexp(o[0], o[1])}; }, 8};
  return all;
}
}  // namespace

TEST_CASE("front: functions of shape, and scans, agree with JAX") {
  for (const auto& [name, f] : shapes()) check(name, f);
}

TEST_CASE("front: elementwise functions agree with JAX") {
  for (const auto& [name, f] : elementwise()) check(name, f);
}

TEST_CASE("front: every stored answer is compared") {
  Functions functions = elementwise();
  functions.merge(shapes());
  for (const auto& file : std::filesystem::directory_iterator("tests/data/front")) {
    const std::string name = file.path().filename().string();
    CHECK_MESSAGE(functions.contains(name.substr(0, name.find('.'))), name);
  }
}

}  // namespace front_answers_test
