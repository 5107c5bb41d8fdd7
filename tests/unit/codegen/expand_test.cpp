// Every elementwise op on every dtype it takes, on a device, against engine/reference: special values in all
// combinations and random ones, of 8 bits and fewer all values in all combinations. Integers, bools and exact float ops
// must agree bit for bit; others within the row's ulp of the reference in double. f32 and f64 subnormals may be
// flushed, in and out, to a zero of the same sign (those of f16 and f8 may not: they are normal f32).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <random>

#include "codegen/compile.h"
#include "codegen/nvidia/emit.h"
#include "codegen/program/program_file.h"
#include "engine/ir/text.h"
#include "tests/support/elementwise.h"
#include "tests/support/emulate/emulate.h"
#include "tests/support/judge/judge.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/codegen/spirv_support.h"

namespace expand_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int kWorkgroup = 64;

std::vector<uint64_t> special_values(DType t) {
  std::vector<uint64_t> v;
  if (t == DType::boolean) return {0, 1};
  if (is_int(t)) {
    const uint64_t mask = bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1,
                   high = uint64_t{1} << (bits(t) - 1);
    for (uint64_t x : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{7}, uint64_t(bits(t)) / 2,
                       uint64_t(bits(t)) / 2 + 1, uint64_t(bits(t)) - 1, uint64_t(bits(t)), high - 1, high, high + 1,
                       mask, mask - 1, mask - 6, (high >> 1) + (high >> 9) + 1})
      v.push_back(x & mask);
    return v;
  }
  for (double x : {0.0,
                   1.0,
                   0.5,
                   1.5,
                   2.5,
                   2.0,
                   3.0,
                   0.25,
                   0.49999997,
                   0.9,
                   100.0,
                   1e4,
                   1e-3,
                   88.5,
                   127.9,
                   1e6,
                   65519.0,
                   3.4e38,
                   1e-30,
                   2147483648.0,
                   4294967296.0,
                   1e300,
                   1e-300,
                   9.2233720368547758e18,
                   1.8446744073709552e19,
                   1 + 0x1p-11 + 0x1p-40,
                   1 + 0x1p-8 + 0x1p-40,
                   HUGE_VAL,
                   std::nan("")})
    for (double s : {x, -x}) v.push_back(reference::from_double(t, s));
  v.push_back(1);  // the least subnormal
  v.push_back(sign_mask(t) | 5);
  v.push_back(reference::from_double(t, least_normal(t)));
  v.push_back(float_format(t).greatest);
  return v;
}

uint64_t random_value(DType t, std::mt19937_64& g, int kind) {
  if (t == DType::boolean) return g() & 1;
  const uint64_t mask = bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1;
  if (is_int(t)) return (kind % 2 ? g() : g() >> (g() % 64)) & mask;  // all sizes
  if (kind % 3 == 0) return g() & mask;                               // all exponents
  std::uniform_real_distribution<double> near(-8, 8), far(-120, 120);
  return reference::from_double(t, kind % 3 == 1 ? near(g) : far(g));
}

/// The inputs of a case: operand i's elements, all of the same number, a multiple of the workgroup.
std::vector<Elements> inputs(const Case& c, int64_t random) {
  const ir::OpInfo& row = ir::info(c.op);
  const auto dtype_of = [&](int i) { return c.op == Opcode::select && i == 0 ? DType::boolean : c.operand; };
  std::vector<std::vector<uint64_t>> v(static_cast<size_t>(row.arity));
  std::vector<std::vector<uint64_t>> special;
  for (int i = 0; i < row.arity; ++i) {
    special.push_back(special_values(dtype_of(i)));
    if (bits(dtype_of(i)) * (row.arity - (c.op == Opcode::select)) > 16) continue;
    special.back().clear();
    for (uint64_t b = 0; b < uint64_t{1} << bits(dtype_of(i)); ++b) special.back().push_back(b);
  }
  std::mt19937_64 g(static_cast<uint64_t>(c.op) * 64 + static_cast<uint64_t>(c.operand));
  if (row.arity == 3) {  // all pairs; the third by turns, of few bits all, too
    const size_t thirds = bits(dtype_of(2)) <= 4 ? special[2].size() : 1;
    for (size_t i = 0; i < special[0].size(); ++i)
      for (size_t j = 0; j < special[1].size(); ++j)
        for (size_t k = 0; k < thirds; ++k) {
          v[0].push_back(special[0][i]);
          v[1].push_back(special[1][j]);
          v[2].push_back(special[2][thirds > 1 ? k : g() % special[2].size()]);
        }
  } else if (row.arity == 2) {
    for (uint64_t a : special[0])
      for (uint64_t b : special[1]) {
        v[0].push_back(a);
        v[1].push_back(b);
      }
  } else {
    v[0] = special[0];
  }
  for (int64_t n = 0; n < random || v[0].size() % kWorkgroup; ++n)
    for (int i = 0; i < row.arity; ++i)
      v[static_cast<size_t>(i)].push_back(random_value(dtype_of(i), g, static_cast<int>(n)));
  std::vector<Elements> out;
  for (int i = 0; i < row.arity; ++i) {
    out.emplace_back(dtype_of(i), static_cast<int64_t>(v[0].size()));
    for (size_t j = 0; j < v[0].size(); ++j) out.back().set(static_cast<int64_t>(j), v[static_cast<size_t>(i)][j]);
  }
  return out;
}

/// The op on element i of each operand, by invocation i; `widened`: its result as an i32.
void make_kernel(LaneKernel& t, const Case& c, bool widened = false) {
  const int arity = ir::info(c.op).arity;
  std::vector<Value> refs, loaded;
  for (int i = 0; i < arity; ++i) refs.push_back(t.arg(c.op == Opcode::select && i == 0 ? DType::boolean : c.operand));
  const Value out = t.arg(widened ? DType::i32 : c.result), index = t.global_index();
  for (Value r : refs) loaded.push_back(t.load(r, index));
  const Value result = t.op(c.op, loaded, c.result);
  t.store(out, index, widened ? t.op(Opcode::convert, {result}, DType::i32) : result);
  t.finish();
}

std::vector<uint32_t> module_of(const Case& c, const Target& target, bool relaxed = false) {
  LaneKernel t(kWorkgroup);
  make_kernel(t, c);
  return emit_valid(t.k, target, false, relaxed);
}

/// c's op with a constant for operand `at`, of each special value; where `ranged`, the other operand's lower bits
/// alone, of which a range is known.
void run_constants(const Case& c, const Target& target, size_t at, bool ranged) {
  if (!device()) return;
  std::vector<uint64_t> constants = special_values(c.operand);
  if (ranged) constants.erase(constants.begin() + 11, constants.end());
  const Case one{Opcode::neg, c.operand, c.operand};
  const Elements in = inputs(one, 0)[0];
  const int64_t n = in.size();
  const uint64_t low = bits(c.operand) < 8 ? 0x7 : 0x7f;
  LaneKernel t(kWorkgroup);
  const Value x = t.arg(c.operand), out = t.arg(c.result), index = t.global_index();
  Value v = t.load(x, index);
  if (ranged) v = t.op(Opcode::and_, {v, t.b.constant(c.operand, low)}, c.operand);
  for (size_t i = 0; i < constants.size(); ++i) {
    std::vector<Value> operands{v};
    operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(at), t.b.constant(c.operand, constants[i]));
    t.store(out, t.op(Opcode::add, {index, t.i32c(static_cast<int64_t>(i) * n)}, DType::i32),
            t.op(c.op, operands, c.result));
  }
  t.finish();
  Elements given = in, got(c.result, n * static_cast<int64_t>(constants.size()));
  Dispatch d{.workgroups = {static_cast<uint32_t>(n / kWorkgroup), 1, 1}};
  d.buffers = {&given.bytes, &got.bytes};
  device()->run(emit_valid(t.k, target), d);
  for (size_t i = 0; i < constants.size(); ++i)
    for (int64_t j = 0; j < n; ++j) {
      uint64_t a[2] = {in.get(j) & (ranged ? low : ~uint64_t{0}), in.get(j) & (ranged ? low : ~uint64_t{0})};
      a[at] = constants[i];
      if (device_distance(c, a, 2, got.get(static_cast<int64_t>(i) * n + j)) <= allowed_distance(c)) continue;
      FAIL_CHECK(ir::name(c.op) << " " << name(c.operand) << " of constant operand " << at << " 0x" << std::hex << a[at]
                                << " and 0x" << a[1 - at] << ": 0x" << got.get(static_cast<int64_t>(i) * n + j));
      return;
    }
}

/// What c's op leaves in a register, where a store would cut off what the dtype does not hold.
void run_widened(const Case& c, const Target& target) {
  if (!device()) return;
  LaneKernel t(kWorkgroup);
  make_kernel(t, c, true);
  std::vector<Elements> in = inputs(c, 0);
  Elements out(DType::i32, in[0].size());
  Dispatch d{.workgroups = {static_cast<uint32_t>(out.size() / kWorkgroup), 1, 1}};
  for (Elements& e : in) d.buffers.push_back(&e.bytes);
  d.buffers.push_back(&out.bytes);
  device()->run(emit_valid(t.k, target), d);
  const int64_t step = out.size() > 4096 ? 7 : 1;
  for (int64_t j = 0; j < out.size(); j += step) {
    uint64_t a[3] = {};
    for (size_t i = 0; i < in.size(); ++i) a[i] = in[i].get(j);
    const uint64_t narrow = reference::eval(c.op, c.operand, c.result, a),
                   want = reference::eval(Opcode::convert, c.result, DType::i32, &narrow);
    if (out.get(j) == want) continue;
    FAIL_CHECK(ir::name(c.op) << " " << name(c.operand) << " -> " << name(c.result) << " of 0x" << std::hex << a[0]
                              << ", 0x" << a[1] << ": 0x" << out.get(j) << " in a register, not 0x" << want);
    return;
  }
}

struct Outcome {
  double worst = 0;
  int failures = 0;
};

/// What comes out, or is to be held against what should.
using Outputs = std::vector<uint64_t>;

Outputs on_device(const Case& c, const std::vector<uint32_t>& words, std::vector<Elements> in) {
  Elements out(c.result, in[0].size());
  Dispatch d{.workgroups = {static_cast<uint32_t>(out.size() / kWorkgroup), 1, 1}};
  for (Elements& e : in) d.buffers.push_back(&e.bytes);
  d.buffers.push_back(&out.bytes);
  device()->run(words, d);
  Outputs v;
  for (int64_t j = 0; j < out.size(); ++j) v.push_back(out.get(j));
  return v;
}

/// A Program without code, and its arrays.
std::pair<Program, std::vector<Array>> call_of(const Case& c, const std::vector<Elements>& in) {
  Program p;
  p.name = "row";
  p.workgroup_size = kWorkgroup;
  p.num_units = in[0].size() / kWorkgroup;
  std::vector<Array> arrays;
  const auto add = [&](DType t, int64_t n, bool output) {
    p.args.push_back({"a", t, {n}, output, !output, output});
    arrays.emplace_back(Shape{n}, t);
  };
  for (const Elements& e : in) {
    add(e.dtype, e.size(), false);
    for (int64_t j = 0; j < e.size(); ++j) arrays.back().set_element_bits(j, e.get(j));
  }
  add(c.result, in[0].size(), true);
  return {p, arrays};
}
Outputs elements_of(const Array& a) {
  Outputs v;
  for (int64_t j = 0; j < a.size(); ++j) v.push_back(a.element_bits(j));
  return v;
}

/// By the judge, on the worst device that Vulkan allows, one of them by seed.
Outputs on_worst_device(const Case& c, const std::vector<uint32_t>& words, const std::vector<Elements>& in,
                        uint64_t seed) {
  auto [p, arrays] = call_of(c, in);
  p.spirv = words;
  judge::Options options;
  options.seed = seed;
  options.inexact = true;
  const judge::Result r = judge::run(p, arrays, {}, options);
  for (const std::string& s : r.reports) FAIL_CHECK(s);
  return elements_of(r.outputs.at(0));
}

/// PTX on the emulator, whose approximate functions are as wrong as PTX allows, by seed.
Outputs on_emulator(const Case& c, const Target& target, const std::vector<Elements>& in, bool relaxed, uint64_t seed) {
  LaneKernel t(kWorkgroup);
  make_kernel(t, c);
  auto [p, arrays] = call_of(c, in);
  p.ptx = nvidia::emit(t.k, target, relaxed, false);
  p.relaxed = true;
  emulated::Options options;
  options.seed = seed;
  const emulated::Result r = emulated::run(p, arrays, {}, options);
  CHECK(r.fault == "");
  return elements_of(r.outputs.at(0));
}

struct Form {
  bool relaxed = false;
  std::optional<uint64_t> worst = {};  // a seed: not on the device
};

Outcome run_case(const Case& c, const Target& target, int64_t random, bool only_floats, const Form& form = {}) {
  if (only_floats && !is_float(c.operand) && !is_float(c.result)) return {};
  const std::string what =
      std::string(ir::name(c.op)) + " " + std::string(name(c.operand)) + " -> " + std::string(name(c.result));
  const bool ptx = !target.chip.empty();
  const auto words = ptx ? std::vector<uint32_t>{} : module_of(c, target, form.relaxed);
  // Drivers may cut loops, and only those of lane/loops.h are counted.
  for (size_t at = 5; at < words.size(); at += words[at] >> spv::WordCountShift)
    CHECK_MESSAGE((words[at] & spv::OpCodeMask) != spv::OpLoopMerge, what, " has a loop");
  Outcome outcome;
  if (!form.worst && !device()) return outcome;
  const std::vector<Elements> in = inputs(c, random);
  const int64_t n = in[0].size();
  const Outputs out = ptx          ? on_emulator(c, target, in, form.relaxed, *form.worst)
                      : form.worst ? on_worst_device(c, words, in, *form.worst)
                                   : on_device(c, words, in);
  const int arity = ir::info(c.op).arity;
  const double allowed = allowed_distance(c, form.relaxed);
  for (int64_t j = 0; j < n; ++j) {
    uint64_t a[3] = {};
    for (int i = 0; i < arity; ++i) a[i] = in[static_cast<size_t>(i)].get(j);
    const double error = device_distance(c, a, arity, out[static_cast<size_t>(j)], form.relaxed);
    outcome.worst = std::max(outcome.worst, error);
    if (error <= allowed) continue;
    if (++outcome.failures > 3) continue;
    std::string text = what + "(";
    for (int i = 0; i < arity; ++i)
      text += (i ? ", " : "") + std::to_string(reference::to_double(c.operand, a[i])) + " = 0x" + [&] {
        char b[32];
        std::snprintf(b, sizeof b, "%llx", static_cast<unsigned long long>(a[i]));
        return std::string(b);
      }();
    char tail[160];
    std::snprintf(tail, sizeof tail, ") = %.17g (0x%llx), reference %.17g, %g ulp, allowed %g",
                  reference::to_double(c.result, out[static_cast<size_t>(j)]),
                  static_cast<unsigned long long>(out[static_cast<size_t>(j)]),
                  reference::to_double(c.result, reference::eval(c.op, c.operand, c.result, a)), error, allowed);
    FAIL_CHECK((text + tail));
  }
  if (outcome.failures > 3) FAIL_CHECK(what << ": " << outcome.failures << " of " << n << " wrong");
  return outcome;
}

void run_all(bool (*wanted)(Opcode), const Target& target, int64_t random, bool only_floats = false) {
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const auto op = static_cast<Opcode>(i);
    if (!ir::is_elementwise(op) || !wanted(op)) continue;
    for (const Case& c : cases_of(op)) {
      const Outcome o = run_case(c, target, random, only_floats);
      if (std::getenv("TESSERA_TEST_ULP")) MESSAGE(ir::name(op), " ", name(c.operand), ": ", o.worst, " ulp");
    }
  }
  quiet();
}

/// The same device without its optional float features: conversions and roundings through integer code.
Target plain(Target t) {
  t.float16 = t.int16 = t.int8 = t.rte16 = t.rte32 = t.rte64 = t.preserve16 = t.preserve32 = t.preserve64 = false;
  return t;
}

/// The same device without 64-bit integers and without 8 and 16-bit accesses.
Target of_words(Target t) {
  t.int8 = t.int16 = t.int64 = t.storage8 = t.storage16 = false;
  return t;
}

Target base() { return device() ? device()->target() : lavapipe_target(); }

bool transcendental(Opcode op) { return ir::info(op).transcendental || op == Opcode::sqrt || op == Opcode::rsqrt; }

}  // namespace

TEST_CASE("expand: arithmetic, comparison, logic and choice of every dtype") {
  run_all([](Opcode op) { return !transcendental(op) && op != Opcode::convert && op != Opcode::bitcast; }, base(), 500);
}
TEST_CASE("expand: conversions between all dtypes") {
  run_all([](Opcode op) { return op == Opcode::convert || op == Opcode::bitcast; }, base(), 1000);
}
TEST_CASE("expand: narrow integers in registers") {
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const auto op = static_cast<Opcode>(i);
    if (!ir::is_elementwise(op)) continue;
    for (const Case& c : cases_of(op))
      if (is_int(c.result) && bits(c.result) < 32) run_widened(c, base());
  }
  quiet();
}
TEST_CASE("expand: arithmetic and conversions of floats without float controls and 16-bit types") {
  run_all(
      [](Opcode op) {
        return op == Opcode::add || op == Opcode::max || op == Opcode::min || op == Opcode::floor ||
               op == Opcode::convert || op == Opcode::exp;
      },
      plain(base()), 1000, true);
}
TEST_CASE("expand: integers of 64 bits as two words, memory in words") {
  const auto wide = [](DType t) { return t == DType::i64 || t == DType::u64; };
  for (const bool controls : {true, false})
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const auto op = static_cast<Opcode>(i);
      if (!ir::is_elementwise(op) || transcendental(op)) continue;
      for (const Case& c : cases_of(op))
        if (wide(c.operand) || wide(c.result)) run_case(c, of_words(controls ? base() : plain(base())), 1500, false);
    }
  quiet();
}
TEST_CASE("expand: quotients of 64 bits by words, on devices that have such integers") {
  Target t = base();
  t.wrong_int64_division = true;
  for (const Opcode op : {Opcode::div, Opcode::rem})
    for (const Case& c : cases_of(op))
      if (c.operand == DType::i64 || c.operand == DType::u64)
        for (const bool ranged : {false, true}) {
          run_case(c, t, 1500, false);
          for (const size_t at : {size_t{0}, size_t{1}}) run_constants(c, t, at, ranged);
        }
  quiet();
}
TEST_CASE("expand: remainders of floats, near and far apart") {
  for (const Target& t : {base(), plain(base()), of_words(base())})
    for (const Case& c : cases_of(Opcode::rem))
      if (is_float(c.operand)) run_case(c, t, 30000, true);
  quiet();
}
TEST_CASE("expand: integers, an operand that is a constant, another of which a range is known") {
  for (const bool words : {false, true})
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const auto op = static_cast<Opcode>(i);
      if (!ir::is_elementwise(op) || ir::info(op).arity != 2 || transcendental(op)) continue;
      for (const Case& c : cases_of(op))
        for (const size_t at : {size_t{0}, size_t{1}})
          for (const bool ranged : {false, true}) {
            const bool wide = c.operand == DType::i64 || c.operand == DType::u64;
            if (words  ? wide
                : wide ? !ranged
                       : c.operand == DType::i8 || c.operand == DType::i32 || c.operand == DType::u32)
              run_constants(c, words ? of_words(base()) : base(), at, ranged);
          }
    }
  quiet();
}
namespace {
void floats_and_constants(std::initializer_list<Opcode> ops) {
  for (const Target& t : {base(), plain(base())})
    for (const Opcode op : ops)
      for (const Case& c : cases_of(op))
        for (const size_t at : {size_t{0}, size_t{1}})
          if (c.operand == DType::f32 || c.operand == DType::f64 || c.operand == DType::f16 || c.operand == DType::bf16)
            run_constants(c, t, at, false);
  quiet();
}
}  // namespace
TEST_CASE("expand: sums of floats and constants" * doctest::skip(tessera::test::kSanitized)) {
  floats_and_constants({Opcode::add, Opcode::sub});
}
TEST_CASE("expand: products of floats and constants" * doctest::skip(tessera::test::kSanitized)) {
  floats_and_constants({Opcode::mul, Opcode::div});
}
TEST_CASE("expand: comparisons of floats and constants" * doctest::skip(tessera::test::kSanitized)) {
  floats_and_constants({Opcode::min, Opcode::max, Opcode::lt, Opcode::eq});
}
// Without float controls, too, and on targets that have both.
// Minutes under sanitizers; the edges of the same formulas, relaxed too, are in expand_edges_test.cpp.
TEST_CASE("expand: relaxed floats, on the device and on the worst that Vulkan allows" *
          doctest::skip(tessera::test::kSanitized)) {
  for (const bool controls : {true, false}) {
    const Target target = controls ? gpu_target() : minimum_target();
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const auto op = static_cast<Opcode>(i);
      if (!ir::is_elementwise(op) || op == Opcode::convert || op == Opcode::bitcast) continue;
      for (const Case& c : cases_of(op)) {
        if (c.operand != DType::f32 && c.operand != DType::f16 && c.operand != DType::bf16) continue;
        const int64_t random = c.operand == DType::f32 && transcendental(op) ? 4000 : 500;
        double worst = 0;
        for (uint64_t seed = 0; seed < 2; ++seed)
          worst = std::max(worst, run_case(c, target, random, true, {.relaxed = true, .worst = seed}).worst);
        if (std::getenv("TESSERA_TEST_ULP")) MESSAGE("worst ", ir::name(op), " ", name(c.operand), ": ", worst, " ulp");
        if (controls) run_case(c, base(), random, true, {.relaxed = true});
      }
    }
  }
  quiet();
}
namespace {
// The rows as PTX, a part to each case: sm_80 has no conversions of 8-bit floats, and relaxed code rests on ex2.approx.
// All together take 21 s without sanitizers: too long with them.
void rows_as_ptx(bool relaxed, const std::function<bool(const Case&)>& wanted) {
  for (const char* chip : {"sm_80", "sm_90a"})
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const auto op = static_cast<Opcode>(i);
      if (!ir::is_elementwise(op)) continue;
      for (const Case& c : cases_of(op)) {
        const bool f8 = is_narrow_float(c.operand) && size_bytes(c.operand) == 1;
        if (relaxed ? c.operand != DType::f32 : chip == std::string("sm_90a") && !f8) continue;
        if (!wanted(c)) continue;
        const Outcome o = run_case(c, Target::nvidia(chip), 300, false, {.relaxed = relaxed, .worst = uint64_t(i)});
        if (std::getenv("TESSERA_TEST_ULP")) MESSAGE("PTX ", ir::name(op), " ", name(c.operand), ": ", o.worst, " ulp");
      }
    }
  quiet();
}
bool converts(const Case& c) { return c.op == Opcode::convert || c.op == Opcode::bitcast; }
}  // namespace
TEST_CASE("expand: conversions as PTX" * doctest::skip(tessera::test::kSanitized)) { rows_as_ptx(false, converts); }
TEST_CASE("expand: rows of narrow floats as PTX" * doctest::skip(tessera::test::kSanitized)) {
  rows_as_ptx(false, [](const Case& c) { return !converts(c) && is_narrow_float(c.operand); });
}
TEST_CASE("expand: rows of wide floats as PTX" * doctest::skip(tessera::test::kSanitized)) {
  rows_as_ptx(false, [](const Case& c) { return !converts(c) && is_float(c.operand) && !is_narrow_float(c.operand); });
}
TEST_CASE("expand: rows of integers as PTX" * doctest::skip(tessera::test::kSanitized)) {
  rows_as_ptx(false, [](const Case& c) { return !converts(c) && !is_float(c.operand); });
}
TEST_CASE("expand: relaxed rows as PTX" * doctest::skip(tessera::test::kSanitized)) {
  rows_as_ptx(true, [](const Case&) { return true; });
}
TEST_CASE("expand: code for GPUs is relaxed unless strict, code for CPUs never") {
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @k
in f32[64] whole any
out f32[64] whole any
body (%0: ref<any, f32[64]>, %1: ref<any, f32[64]>) {
  %2 = load %0[0:64] : f32[64]
  %3 = exp %2 : f32[64]
  store %1[0:64], %3
}
)",
                                 "k.tir");
  for (const Target& t : {gpu_target(), minimum_target(), lavapipe_target()}) {
    CAPTURE(t.name);
    CompileOptions strict;
    strict.strict = true;
    const Program loose = compile(k, t), exact = compile(k, t, strict);
    const bool gpu = t.kind == Target::Kind::gpu;
    CHECK(loose.relaxed == gpu);
    CHECK_FALSE(exact.relaxed);
    CHECK((loose.spirv == exact.spirv) == !gpu);
    CHECK((loose.explain.find("arithmetic relaxed") != std::string::npos) == gpu);
    CHECK(exact.explain.find("arithmetic relaxed") == std::string::npos);
    CHECK(program_from_bytes(program_to_bytes(loose))->relaxed == gpu);
  }
}
// The numbers of codegen/spirv/precision.md, a little rounded up: what an expansion loses shows long before a row's
// bound, which is as wide as Vulkan's division and square root.
TEST_CASE("expand: transcendental functions") {
  const std::map<Opcode, double> measured = {
      {Opcode::exp, 0.9},    {Opcode::exp2, 1},     {Opcode::expm1, 1},      {Opcode::log, 0.75},
      {Opcode::log2, 1.2},   {Opcode::log1p, 1.35}, {Opcode::pow, 0.85},     {Opcode::cbrt, 0.85},
      {Opcode::sin, 2.2},    {Opcode::cos, 1.6},    {Opcode::tan, 3.1},      {Opcode::asin, 1.55},
      {Opcode::acos, 0.85},  {Opcode::atan, 1.6},   {Opcode::atan2, 1.7},    {Opcode::sinh, 1.25},
      {Opcode::cosh, 1.3},   {Opcode::tanh, 1.65},  {Opcode::asinh, 1.35},   {Opcode::acosh, 1.55},
      {Opcode::atanh, 1.15}, {Opcode::erf, 2.05},   {Opcode::erf_inv, 2.75}, {Opcode::logistic, 2.05},
      {Opcode::rsqrt, 1.45}};
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const auto op = static_cast<Opcode>(i);
    if (!ir::is_elementwise(op) || !transcendental(op)) continue;
    for (const Case& c : cases_of(op)) {
      const double worst = run_case(c, base(), 5000, false).worst;
      if (std::getenv("TESSERA_TEST_ULP")) MESSAGE(ir::name(op), " ", name(c.operand), ": ", worst, " ulp");
      if (base().kind != Target::Kind::cpu) continue;
      CAPTURE(ir::name(op));
      if (c.operand == DType::f32 && measured.contains(op)) CHECK(worst <= measured.at(op));
      if (c.operand == DType::f64) CHECK(worst <= 3);
      if (c.operand == DType::f16 || c.operand == DType::bf16) CHECK(worst <= 0.51);
    }
  }
  quiet();
}

}  // namespace expand_test
