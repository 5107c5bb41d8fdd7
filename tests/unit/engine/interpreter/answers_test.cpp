// The reference arithmetic and the interpreter against answers of JAX on the CPU, stored in tests/data by
// make_answers.py. Integers, bools, comparisons and conversions are exact. Floats agree within the row's bound in units
// in the last place (ops.def): transcendental ones with answers of mpmath, because JAX's own may be hundreds of units
// off, and with what JAX makes of special values; all others with JAX. JAX's CPU backend treats subnormal numbers as
// zeros of the same sign, in operands and results, for most ops and not for others: we keep them, so an answer also
// counts if it is ours for flushed operands, or our flushed result.
#include "tests/support/answers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "engine/base/npy.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace answers_test {
using namespace tessera;
using namespace tessera::test;
using ir::Opcode;

namespace {
const std::string kFolder = "tests/data/";

struct Stored {
  std::string kind;
  DType dtype;
  std::vector<Opcode> ops;
};
std::vector<Stored> stored_answers() {
  std::ifstream list(kFolder + "elementwise/ops.txt");
  REQUIRE(list);
  std::vector<Stored> all;
  for (std::string line, type, name; std::getline(list, line);) {
    std::istringstream words(line);
    Stored s;
    words >> s.kind >> type;
    s.dtype = *dtype_from_name(type);
    while (words >> name) s.ops.push_back(*ir::opcode_from_name(name));
    all.push_back(std::move(s));
  }
  return all;
}
Array elementwise_file(const std::string& kind, DType t, DType holds) {
  return read_npy(kFolder + "elementwise/" + kind + "_" + std::string(name(t)) + ".npy", holds);
}

/// Of a float answer: NaN, infinite, or zero or subnormal, with its sign; or an ordinary number.
std::string kind_of(DType t, uint64_t bits) {
  const double x = reference::to_double(t, bits);
  if (std::isnan(x)) return "nan";
  return (std::signbit(x) ? "-" : "+") + std::string(std::isinf(x) ? "inf"
                                                     : flushed(t, bits) << 1 == 0 || x == 0 || is_subnormal(t, bits)
                                                         ? "zero"
                                                         : "number");
}

/// How far a transcendental op's answer is from mpmath's, in units in the last place of that; infinity if JAX has
/// another kind of answer.
double distance_from_exact(DType t, uint64_t got, double exact, uint64_t of_jax, bool doubtful) {
  const uint64_t wanted = reference::from_double(t, exact);
  if (!doubtful && kind_of(t, got) != kind_of(t, of_jax)) return std::numeric_limits<double>::infinity();
  if (kind_of(t, wanted) != "+number" && kind_of(t, wanted) != "-number")
    return distance(t, flushed(t, got), flushed(t, wanted));
  const double x = reference::to_double(t, got);
  return std::fabs(x - exact) /
         std::ldexp(1.0, std::max(std::ilogb(exact), float_format(t).least_exponent) - float_format(t).mantissa);
}
}  // namespace

TEST_CASE("answers: every elementwise op agrees with JAX") {
  std::set<std::pair<Opcode, DType>> covered;
  std::map<Opcode, double> worst;
  std::map<std::pair<Opcode, DType>, std::vector<double>> exact;
  for (const Stored& s : stored_answers()) {
    if (!s.kind.starts_with("exact_")) continue;
    const Array numbers = elementwise_file(s.kind, s.dtype, f64);
    for (size_t row = 0; row < s.ops.size(); ++row)
      for (int64_t i = 0; i < numbers.shape()[1]; ++i)
        exact[{s.ops[row], s.dtype}].push_back(
            reference::to_double(f64, numbers.element_bits(static_cast<int64_t>(row) * numbers.shape()[1] + i)));
  }
  for (const Stored& s : stored_answers()) {
    if (s.kind.starts_with("exact_")) continue;
    const DType t = s.dtype, r = s.kind == "compare" || s.kind == "finite" ? boolean : t;
    const Array operands = elementwise_file(s.kind + "_operands", t, t), answers = elementwise_file(s.kind, t, r);
    REQUIRE(operands.dtype() == t);
    REQUIRE(answers.dtype() == r);
    REQUIRE(answers.shape()[0] == static_cast<int64_t>(s.ops.size()));
    const int64_t n = operands.shape()[1];
    const auto arity = static_cast<size_t>(operands.shape()[0]);
    for (size_t row = 0; row < s.ops.size(); ++row) {
      const Opcode op = s.ops[row];
      const double ulp = ir::info(op).ulp;
      CHECK(ir::info(op).arity == static_cast<int>(arity));
      covered.emplace(op, t);
      CHECK(exact.contains({op, t}) == ir::info(op).transcendental);
      for (int64_t i = 0; i < n; ++i) {
        uint64_t o[3] = {}, flushed_operands[3] = {};
        std::string shown;
        bool any_subnormal = false;
        for (size_t a = 0; a < arity; ++a) {
          o[a] = operands.element_bits(static_cast<int64_t>(a) * n + i);
          flushed_operands[a] = flushed(t, o[a]);
          any_subnormal |= is_subnormal(t, o[a]);
          shown += (a ? ", " : "") + show(t, o[a]);
        }
        const uint64_t wanted = answers.element_bits(static_cast<int64_t>(row) * n + i),
                       got = reference::eval(op, t, r, o);
        if (ir::info(op).transcendental && !std::isnan(exact[{op, t}][static_cast<size_t>(i)])) {
          // Where numbers end JAX's sequences give anything: the cube root of 1e-45 is -6e-16 there, 2^128 in bf16
          // is 2.7e38.
          const double e = exact[{op, t}][static_cast<size_t>(i)],
                       least = std::ldexp(1.0, float_format(t).least_exponent);
          const bool doubtful = any_subnormal || std::fabs(e) < 2 * least || std::fabs(e) > 1 / least;
          const double off = distance_from_exact(t, got, e, wanted, doubtful);
          if (!(off <= ulp))
            FAIL_CHECK(ir::name(op), " ", name(t), "(", shown, ") is ", show(r, got), " but exactly ", e,
                       ", and JAX has ", show(r, wanted));
          else worst[op] = std::max(worst[op], off);
          continue;
        }
        if (ir::info(op).transcendental && any_subnormal) continue;
        const bool good =
            agrees(r, got, wanted, ulp) || agrees(r, reference::eval(op, t, r, flushed_operands), wanted, ulp);
        if (!good)
          FAIL_CHECK(ir::name(op), " ", name(t), "(", shown, ") is ", show(r, got), " but JAX has ", show(r, wanted));
        else if (distance(r, got, wanted) <= ulp && !is_subnormal(r, got))
          worst[op] = std::max(worst[op], distance(r, got, wanted));
      }
    }
  }
  // Nothing is left out but what JAX does not define, and what moves bits or is made for the lane level only.
  for (int code = 0; code < ir::kNumOpcodes; ++code) {
    const auto op = static_cast<Opcode>(code);
    if (!ir::is_elementwise(op) || op == Opcode::convert || op == Opcode::bitcast || op == Opcode::select ||
        op == Opcode::fma)
      continue;
    for (int ti = 0; ti < kNumDTypes; ++ti) {
      const auto t = static_cast<DType>(ti);
      const bool defined =
          reference::scalar_function(op, t, ir::info(op).result == ir::ResultRule::pred ? boolean : t) != nullptr;
      if (!defined || (op == Opcode::abs && (is_unsigned_int(t) || t == i4))) continue;
      // where XLA works on eight bits
      if (is_int4(t) && (op == Opcode::population_count || op == Opcode::mulhi)) continue;
      INFO(ir::name(op), " of ", name(t));
      CHECK(covered.contains({op, t}));
    }
  }
  std::string summary;
  for (const auto& [op, ulp] : worst)
    if (ulp > 0) summary += " " + std::string(ir::name(op)) + " " + std::to_string(ulp).substr(0, 4);
  MESSAGE("largest distances in ulp:", summary);
}

TEST_CASE("answers: every conversion agrees with JAX") {
  for (int fi = 0; fi < kNumDTypes; ++fi) {
    const auto from = static_cast<DType>(fi);
    const Array operands = read_npy(kFolder + "elementwise/convert_operands_" + std::string(name(from)) + ".npy", from);
    const Array packed = read_npy(kFolder + "elementwise/convert_" + std::string(name(from)) + ".npy");
    REQUIRE(operands.dtype() == from);
    int64_t at = 0;
    for (int ti = 0; ti < kNumDTypes; ++ti) {
      const auto to = static_cast<DType>(ti);
      for (int64_t i = 0; i < operands.size(); ++i) {
        uint64_t wanted = 0;
        for (int64_t b = 0; b < size_bytes(to); ++b) wanted |= packed.element_bits(at++) << (8 * b);
        const uint64_t o = operands.element_bits(i), zero = flushed(from, o);
        const uint64_t got = reference::eval(Opcode::convert, from, to, &o);
        bool good =
            agrees(to, got, wanted, 0) || agrees(to, reference::eval(Opcode::convert, from, to, &zero), wanted, 0);
        // JAX rounds f64 to f16 straight where the CPU can (AVX512-FP16) and through f32 elsewhere; ours goes through
        // f32 everywhere.
        if (from == f64 && to == f16) good |= wanted == to_f16_bits(reference::to_double(f64, o));
        if (!good)
          FAIL_CHECK(name(from), " ", show(from, o), " to ", name(to), " is ", show(to, got), " but JAX has ",
                     show(to, wanted));
      }
    }
    CHECK(at == packed.size());
  }
}

TEST_CASE("answers: conversions to the 8-bit floats agree with JAX, from every f16 and around every tie of f32") {
  const std::string folder = kFolder + "narrow/";
  const Array numbers = read_npy(folder + "f32.npy");
  for (const DType to : {f8e4m3fn, f8e5m2})
    for (const DType from : {f16, f32}) {
      const Array answers = read_npy(folder + std::string(name(from)) + "_to_" + std::string(name(to)) + ".npy", to);
      REQUIRE(answers.size() == (from == f16 ? 65536 : numbers.size()));
      for (int64_t i = 0; i < answers.size(); ++i) {
        const uint64_t o = from == f16 ? static_cast<uint64_t>(i) : numbers.element_bits(i);
        const uint64_t got = reference::eval(Opcode::convert, from, to, &o), wanted = answers.element_bits(i);
        if (distance(to, got, wanted) != 0)
          FAIL_CHECK(name(from), " ", show(from, o), " to ", name(to), " is ", show(to, got), " but JAX has ",
                     show(to, wanted));
        // Straight from double, as transcendental functions round: numbers of f16 and f32 are no doubles beyond them.
        const uint64_t straight = to_narrow_bits(to, reference::to_double(from, o));
        if (distance(to, straight, wanted) != 0)
          FAIL_CHECK(name(from), " ", show(from, o), " straight to ", name(to), " is ", show(to, straight));
      }
    }
}

namespace {
// Runs every NAME.tir of a folder on its NAME.inI.npy and compares with NAME.outI.npy, within `ulp` (whole numbers are
// exact anyway).
int run_cases(const std::string& folder, double ulp) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + folder)) {
    if (entry.path().extension() != ".tir") continue;
    ++cases;
    const std::string stem = entry.path().parent_path().string() + "/" + entry.path().stem().string();
    INFO(stem);
    std::ifstream in(entry.path());
    const ir::Kernel k = ir::parse(std::string(std::istreambuf_iterator<char>(in), {}), stem + ".tir");
    ir::verify(k, "parsing");
    std::vector<Array> inputs;
    for (int i = 0; i < k.num_inputs; ++i)
      inputs.push_back(read_npy(stem + ".in" + std::to_string(i) + ".npy", k.blocks[static_cast<size_t>(i)].dtype));
    const std::vector<Array> copies = inputs, outputs = interpret(k, inputs);
    for (size_t i = 0; i < inputs.size(); ++i)
      CHECK(std::equal(inputs[i].bytes(), inputs[i].bytes() + inputs[i].nbytes(), copies[i].bytes()));
    REQUIRE(outputs.size() == static_cast<size_t>(k.num_outputs()));
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Array &got = outputs[o], wanted = read_npy(stem + ".out" + std::to_string(o) + ".npy", got.dtype());
      REQUIRE(got.dtype() == wanted.dtype());
      REQUIRE(got.shape() == wanted.shape());
      for (int64_t i = 0; i < got.size(); ++i) {
        const bool good = agrees(got.dtype(), got.element_bits(i), wanted.element_bits(i), ulp);
        if (!good)
          FAIL_CHECK(stem, " output ", o, " element ", i, " is ", show(got.dtype(), got.element_bits(i)),
                     " but JAX has ", show(got.dtype(), wanted.element_bits(i)));
      }
    }
  }
  return cases;
}
}  // namespace

TEST_CASE("answers: structured ops agree with JAX") { CHECK(run_cases("structured", 0) > 60); }

TEST_CASE("answers: kernels agree with pallas_call(interpret=True)") { CHECK(run_cases("pallas", 0) >= 12); }

}  // namespace answers_test
