// Products by matrices of every shape that a device may have, by subgroups of any size: what the lanes compute is the
// interpreter's. The targets that have names have one shape for each dtype.
#include <doctest/doctest.h>

#include <string>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/support/sanitizer.h"

namespace matrix_shapes_test {
using namespace tessera;

namespace {

Target target(MatrixShape shape, int lanes) {
  Target t = Target::named("gpu-matrix");
  t.subgroup_size = t.min_subgroup_size = t.max_subgroup_size = lanes;
  t.matrices = {shape};
  return t;
}

std::string dims(int64_t a, int64_t b) { return "[" + std::to_string(a) + ", " + std::to_string(b) + "]"; }
std::string all(int64_t a, int64_t b) { return "[0:" + std::to_string(a) + ", 0:" + std::to_string(b) + "]"; }
std::string load(const std::string& to, const std::string& from, int64_t a, int64_t b) {
  return "  " + to + " = load " + from + all(a, b) + "\n";
}
std::string dot(const std::string& to, const std::string& of, bool left, bool right, const std::string& type) {
  return "  " + to + " = dot " + of + " lhs_contract " + (left ? "[0]" : "[1]") + " rhs_contract " +
         (right ? "[1]" : "[0]") + " lhs_batch [] rhs_batch [] : " + type + "\n";
}

/// [m, k] times [k, n]; of what is turned, [k, m] and [n, k].
std::string product(const MatrixShape& s, int64_t m, int64_t k, int64_t n, bool left, bool right) {
  const std::string t(name(s.a)), sum(name(s.sum));
  const int64_t a = left ? k : m, b = left ? m : k, c = right ? n : k, d = right ? k : n;
  return "in " + t + dims(a, b) + " whole\nin " + t + dims(c, d) + " whole\nout " + sum + dims(m, n) +
         " whole\nbody (%x, %y, %o) {\n" + load("%a", "%x", a, b) + load("%b", "%y", c, d) +
         dot("%c", "%a, %b", left, right, sum + dims(m, n)) + "  store %o" + all(m, n) + ", %c\n}\n";
}
/// A second product, whose rows are the first one's columns: [n, m] times [m, k].
std::string turned_again(const MatrixShape& s, int64_t m, int64_t k, int64_t n) {
  const std::string t(name(s.a)), sum(name(s.sum));
  return "compiler_params triton (num_warps: 2)\nin " + t + dims(m, k) + " whole\nin " + t + dims(k, n) +
         " whole\nout " + sum + dims(n, k) + " whole\nbody (%x, %y, %o) {\n" + load("%a", "%x", m, k) +
         load("%b", "%y", k, n) + dot("%c", "%a, %b", false, false, sum + dims(m, n)) + "  %d = convert %c : " + t +
         dims(m, n) + "\n" + dot("%e", "%d, %a", true, false, sum + dims(n, k)) + "  store %o" + all(n, k) +
         ", %e\n}\n";
}

/// On inputs of small whole numbers; whether any product is by matrices.
bool agrees(const std::string& text, const Target& t) {
  const ir::Kernel k = ir::parse("tir 1\nkernel @k\n" + text, "k.tir");
  std::vector<Array> arrays;
  for (int i = 0; i < k.num_inputs; ++i) {
    arrays.emplace_back(bind_shape(k, i, {}), k.blocks[static_cast<size_t>(i)].dtype);
    Array& a = arrays.back();
    for (int64_t e = 0; e < a.size(); ++e)
      a.set_element_bits(e, reference::from_double(a.dtype(), static_cast<double>((e * 7 + e / 5 + i) % 3)));
  }
  const std::vector<Array> wanted = interpret(k, arrays);
  for (const Array& w : wanted) arrays.emplace_back(w.shape(), w.dtype());
  ir::Kernel lanes;
  CompileOptions o;
  o.dump = [&](std::string_view, const ir::Kernel& now, bool) { lanes = now; };
  compile(k, t, o);
  lane::RunOptions run;
  run.subgroup_size = t.subgroup_size;
  const lane::RunResult r = lane::run(lanes, arrays, k.num_inputs, {}, run);
  for (const std::string& s : r.reports) FAIL_CHECK(s);
  for (size_t n = 0; n < wanted.size(); ++n)
    for (int64_t e = 0; e < wanted[n].size(); ++e)
      if (wanted[n].element_bits(e) != r.outputs.at(n).element_bits(e)) {
        FAIL_CHECK("element " << e << " is " << r.outputs[n].at(e) << ", not " << wanted[n].at(e));
        break;
      }
  return ir::print(lanes).find("matrix_multiply_add") != std::string::npos;
}

const MatrixShape kShapes[] = {
    {8, 8, 32, DType::i8, DType::i8, DType::i32},    {8, 8, 8, DType::f16, DType::f16, DType::f32},
    {8, 16, 16, DType::f16, DType::f16, DType::f32}, {16, 8, 16, DType::bf16, DType::bf16, DType::f32},
    {4, 8, 16, DType::u8, DType::u8, DType::u32},    {16, 16, 32, DType::i8, DType::i8, DType::i32}};

}  // namespace

TEST_CASE("matrix shapes: products of each, by subgroups of each size") {
  struct Size {
    int64_t m, k, n;
  };
  size_t cases = 0, tried = 0, by_matrices = 0;
  for (const MatrixShape& s : kShapes)
    for (const int lanes : {8, 16, 32, 64})
      for (const Size& z : {Size{9, 64, 16}, {24, 36, 20}, {40, 256, 8}}) {
        if (!test::sampled(cases++)) continue;
        ++tried;
        const Target t = target(s, lanes);
        CAPTURE(to_string(s));
        CAPTURE(lanes);
        CAPTURE(z.m);
        for (const bool left : {false, true})
          for (const bool right : {false, true}) {
            CAPTURE(left);
            CAPTURE(right);
            by_matrices += agrees(product(s, z.m, z.k, z.n, left, right), t);
          }
        by_matrices += agrees(turned_again(s, z.m, z.k, z.n), t);
      }
  CHECK(by_matrices > tried);
}

}  // namespace matrix_shapes_test
