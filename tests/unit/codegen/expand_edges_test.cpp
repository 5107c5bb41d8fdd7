// Expansions where they go over from one formula to another, lose the most digits, or leave the numbers of their dtype:
// every place on both sides of each such edge, against long double; f16 and bf16 by all their values. Conversions at
// every value of the narrow dtype, halfway between its neighbours, and one step beside.
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numbers>
#include <random>

#include "tests/support/elementwise.h"
#include "tests/unit/codegen/spirv_support.h"

namespace expand_edges_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int kWorkgroup = 64;
using Long = long double;

Target base() { return device() ? device()->target() : lavapipe_target(); }
/// The same device without its optional float features: conversions and roundings through integer code.
Target plain(Target t) {
  t.float16 = t.int16 = t.int8 = t.rte16 = t.rte32 = t.rte64 = t.preserve16 = t.preserve32 = t.preserve64 = false;
  return t;
}

/// What the device makes of the op's operands, of each a vector of elements.
std::vector<uint64_t> run(const Case& c, const Target& target, const std::vector<std::vector<uint64_t>>& operands,
                          bool relaxed = false) {
  LaneKernel t(kWorkgroup);
  const auto n = static_cast<int64_t>(operands[0].size()), padded = (n + kWorkgroup - 1) / kWorkgroup * kWorkgroup;
  std::vector<Value> refs, loaded;
  for (size_t i = 0; i < operands.size(); ++i) refs.push_back(t.arg(c.operand));
  const Value out = t.arg(c.result), index = t.global_index();
  for (const Value r : refs) loaded.push_back(t.load(r, index));
  t.store(out, index, t.op(c.op, loaded, c.result));
  t.finish();
  const auto words = emit_valid(t.k, target, false, relaxed);
  if (!device()) return {};
  std::vector<Elements> in;
  for (const auto& values : operands) {
    in.emplace_back(c.operand, padded);
    for (int64_t i = 0; i < n; ++i) in.back().set(i, values[static_cast<size_t>(i)]);
  }
  Elements got(c.result, padded);
  Dispatch d{.workgroups = {static_cast<uint32_t>(padded / kWorkgroup), 1, 1}};
  for (Elements& e : in) d.buffers.push_back(&e.bytes);
  d.buffers.push_back(&got.bytes);
  device()->run(words, d);
  std::vector<uint64_t> r;
  for (int64_t i = 0; i < n; ++i) r.push_back(got.get(i));
  return r;
}

Long erf_inv(Long x) {
  const auto bits = std::bit_cast<uint64_t>(static_cast<double>(x));
  Long r = std::fabs(std::bit_cast<double>(reference::eval(Opcode::erf_inv, DType::f64, DType::f64, &bits)));
  const Long a = std::fabs(x), slope = std::sqrt(std::numbers::pi_v<Long>) / 2;
  for (int i = 0; i < 2; ++i) r -= (a < 0.5L ? std::erf(r) - a : (1 - a) - std::erfc(r)) * slope * std::exp(r * r);
  return std::copysign(r, x);
}

Long exact(Opcode op, Long x, Long y) {
  switch (op) {
    case Opcode::exp: return std::exp(x);
    case Opcode::exp2: return std::exp2(x);
    case Opcode::expm1: return std::expm1(x);
    case Opcode::logistic: return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    case Opcode::tanh: return std::tanh(x);
    case Opcode::log: return std::log(x);
    case Opcode::log2: return std::log2(x);
    case Opcode::log1p: return std::log1p(x);
    case Opcode::cbrt: return std::cbrt(x);
    case Opcode::sin: return std::sin(x);
    case Opcode::cos: return std::cos(x);
    case Opcode::tan: return std::tan(x);
    case Opcode::asin: return std::asin(x);
    case Opcode::acos: return std::acos(x);
    case Opcode::atan: return std::atan(x);
    case Opcode::atan2: return std::atan2(x, y);
    case Opcode::sinh: return std::sinh(x);
    case Opcode::cosh: return std::cosh(x);
    case Opcode::asinh: return std::asinh(x);
    case Opcode::acosh: return std::acosh(x);
    case Opcode::atanh: return std::atanh(x);
    case Opcode::erf: return std::erf(x);
    case Opcode::erf_inv: return erf_inv(x);
    case Opcode::sqrt: return std::sqrt(x);
    case Opcode::rsqrt: return 1 / std::sqrt(x);
    case Opcode::pow: return std::pow(x, y);
    default: FAIL("no reference");
  }
  return 0;
}

/// In ulps, of numbers that are ordinary against long double; of others as device_distance says.
double distance(const Case& c, const uint64_t* a, int arity, uint64_t got) {
  const double value = reference::to_double(c.result, got), x = reference::to_double(c.operand, a[0]),
               y = arity > 1 ? reference::to_double(c.operand, a[1]) : 0;
  const bool ordinary = std::isfinite(value) && std::isfinite(x) && std::isfinite(y) && !subnormal(c.operand, a[0]) &&
                        !(arity > 1 && subnormal(c.operand, a[1]));
  const Long want = ordinary ? exact(c.op, x, y) : 0;
  if (!ordinary || std::isnan(want) || std::fabs(static_cast<double>(want)) < least_normal(c.result) * 2 ||
      std::isinf(static_cast<double>(want)))
    return device_distance(c, a, arity, got);
  if (std::signbit(value) != std::signbit(want)) return HUGE_VAL;
  return static_cast<double>(std::fabs(value - want) / static_cast<Long>(ulp_of(c.result, static_cast<double>(want))));
}

struct Edges {
  Opcode op;
  std::vector<double> at;  // of both widths; each with its negative
  double f32, f64;         // ulps at most
};

std::vector<double> multiples(double step, int from, int to, double plus = 0) {
  std::vector<double> v;
  for (int i = from; i <= to; ++i) v.push_back(i * step + plus);
  return v;
}
std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::vector<double> powers(double times, int from, int to) {
  std::vector<double> v;
  for (int e = from; e <= to; ++e) v.push_back(std::ldexp(times, e));
  return v;
}

constexpr double kLn2 = std::numbers::ln2, kPi = std::numbers::pi;

std::vector<Edges> all_edges() {
  const double half_root = std::sqrt(0.5);
  const std::vector<double> exponents =
      joined(joined({89, 710, 104, 746, 20, 40, 88.7228, 709.78271, 87.3365, 103.9721, 708.3964, 744.4401, 745.1332},
                    multiples(kLn2, 0, 24, kLn2 / 2)),
             multiples(kLn2, 0, 24));
  std::vector<double> turns =
      joined(joined({400, 0x1p20, 0x1p22, 0x1p24, 0x1p30, 0x1p52, 0x1p53, 0x1p54, 0x1p64, 0x1p100, 0x1p127, 1e22},
                    multiples(kPi / 4, 1, 520)),
             powers(1.37, -30, 127));
  for (const int n : {1 << 10, 1 << 12, 12345, 1 << 15, 99999, 1 << 17, 400000, 600001, 667543, 667544, 700000})
    turns.push_back(n * (kPi / 2));
  std::vector<double> inverse{0.5,
                              std::sqrt(-std::expm1(-5.0)),
                              std::sqrt(-std::expm1(-5.4)),
                              std::sqrt(-std::expm1(-12.96)),
                              std::sqrt(-std::expm1(-9.0)),
                              std::sqrt(-std::expm1(-22.5625))};
  for (int i = 1; i < 54; ++i) inverse.push_back(1 - std::ldexp(1.0, -i)), inverse.push_back(1 - std::ldexp(1.41, -i));
  // The bounds are what lavapipe gives, a little rounded up.
  return {
      {Opcode::exp, exponents, 0.92, 0.92},
      {Opcode::exp2, joined({127.99, 128, 1024, 126, 149, 150, 151, 1022, 1074, 1075, 1076}, multiples(0.5, 0, 60)),
       0.93, 1.02},
      {Opcode::expm1, exponents, 1.4,
       1.84},  // f64: 1.15 where the driver rounds 0.5 and a little to 0 (README, "Rounding of f64")
      {Opcode::logistic, exponents, 1.95, 2.2},
      {Opcode::tanh, joined({9.1, 20, 9.01, 19.06}, multiples(kLn2 / 4, 0, 60)), 1.52, 1.56},
      {Opcode::log, joined(powers(half_root, -30, 30), powers(1, -1022, 127)), 0.7, 0.82},
      {Opcode::log2, joined(powers(half_root, -30, 30), powers(1, -1022, 127)), 1.3, 1.68},
      {Opcode::log1p,
       joined({half_root - 1, std::sqrt(2.0) - 1, 1 - 0x1p-20, 1 - 0x1p-50, 1},
              joined(powers(1, -60, 127), powers(half_root, -30, 90))),
       1.16, 1.2},
      {Opcode::cbrt, joined(powers(half_root, -40, 40), powers(1, -126, 127)), 0.84, 0.81},
      {Opcode::sin, turns, 2.18, 2},
      {Opcode::cos, turns, 2.1, 2.18},
      {Opcode::tan, turns, 3.5, 4.1},
      {Opcode::asin, joined({0.5, 1}, multiples(0.05, 0, 20)), 1.7, 1.68},
      {Opcode::acos, joined({0.5, 1}, multiples(0.05, 0, 20)), 0.96, 1.24},
      {Opcode::atan,
       joined({std::tan(kPi / 8), 1, std::tan(3 * kPi / 8), 0x1p120, 0x1p121, 0x1p126}, powers(1.3, -40, 40)), 1.82,
       1.37},
      {Opcode::sinh, joined(joined({1, 90, 711, 41.58883, 42.28198, 89.4159, 710.4758}, exponents), powers(1, -30, 0)),
       1.33, 1.46},
      {Opcode::cosh, joined({1, 90, 711, 41.58883, 42.28198, 89.4159, 710.4758}, exponents), 1.36, 1.37},
      {Opcode::asinh, joined({0x1p28, 0x1p54}, powers(1.1, -60, 126)), 1.05, 1.23},
      {Opcode::acosh, joined({1, 0x1p28, 0x1p54}, powers(1.1, 0, 126)), 1.3, 1.31},
      {Opcode::atanh, joined(multiples(0.05, 0, 20), powers(1, -60, -1)), 1.4, 1.4},
      {Opcode::erf, joined({0.9, 3.95, 5.95, 3.83, 5.86}, multiples(0.1, 0, 60)), 1.92, 1.31},
      {Opcode::erf_inv, inverse, 2.8, 3.45},
      {Opcode::sqrt, powers(1.5, -126, 126), 0.52, 0.78},
      {Opcode::rsqrt, powers(1.5, -126, 126), 1.12, 0.81}};
}

/// Both sides of x, near and farther away.
void around(DType t, double x, std::vector<uint64_t>& to) {
  if (t == DType::f32 && std::fabs(x) > 3.4e38) return;
  const uint64_t b = reference::from_double(t, x);
  for (uint64_t i = 0; i <= 6; ++i)
    for (const uint64_t v : {b + i, b - i})
      if ((v & ~sign_mask(t)) <= float_format(t).greatest && std::isfinite(reference::to_double(t, v))) to.push_back(v);
  for (int i = 2; i <= float_format(t).mantissa; i += 2)
    for (const double by : {std::ldexp(1.0, -i), -std::ldexp(1.0, -i)})
      to.push_back(reference::from_double(t, x * (1 + by)));
}

void check(const Case& c, const std::vector<std::vector<uint64_t>>& operands, double allowed, bool relaxed = false) {
  const std::vector<uint64_t> got = run(c, base(), operands, relaxed);
  double worst = 0;
  size_t at = 0;
  std::array<uint64_t, 2> a{};
  const int arity = static_cast<int>(operands.size());
  for (size_t i = 0; i < got.size(); ++i) {
    for (size_t j = 0; j < operands.size(); ++j) a[j] = operands[j][i];
    const double d = distance(c, a.data(), arity, got[i]);
    if (d > worst) worst = d, at = i;
  }
  if (std::getenv("TESSERA_TEST_ULP")) MESSAGE(ir::name(c.op), " ", name(c.operand), ": ", worst, " ulp");
  if (relaxed || base().kind != Target::Kind::cpu) allowed = allowed_distance(c, relaxed);
  if (worst <= allowed || got.empty()) return;
  FAIL_CHECK(ir::name(c.op) << " " << name(c.operand) << " of " << reference::to_double(c.operand, operands[0][at])
                            << " (bits " << operands[0][at] << ")" << (arity > 1 ? " and " : "")
                            << (arity > 1 ? std::to_string(reference::to_double(c.operand, operands[1][at])) : "")
                            << " is " << reference::to_double(c.result, got[at]) << ": " << worst << " ulp, allowed "
                            << allowed);
}

}  // namespace

TEST_CASE("expand: transcendental functions at the edges of their formulas") {
  for (const Edges& e : all_edges())
    for (const DType t : {DType::f32, DType::f64}) {
      std::vector<uint64_t> x;
      for (const double at : e.at)
        for (const double s : {at, -at}) around(t, s, x);
      check({e.op, t, t}, {x}, t == DType::f32 ? e.f32 : e.f64);
      if (t == DType::f32) check({e.op, t, t}, {x}, 0, true);
    }
  quiet();
}

TEST_CASE("expand: transcendental functions at numbers of every size") {
  // Of f32 and of f64: what 300,000 numbers gave against MPFR, a little rounded up.
  const std::map<Opcode, std::pair<double, double>> allowed{
      {Opcode::exp, {0.95, 1.01}},     {Opcode::exp2, {0.98, 1.01}},  {Opcode::expm1, {1.65, 1.9}},
      {Opcode::logistic, {2.15, 2.2}}, {Opcode::tanh, {2.25, 2.3}},   {Opcode::log, {0.77, 0.77}},
      {Opcode::log2, {1.7, 1.6}},      {Opcode::log1p, {1.35, 1.35}}, {Opcode::cbrt, {0.95, 0.95}},
      {Opcode::sin, {2.55, 2.1}},      {Opcode::cos, {2.45, 2.2}},    {Opcode::tan, {4.2, 3.6}},
      {Opcode::asin, {2.2, 2.4}},      {Opcode::acos, {1.1, 1.3}},    {Opcode::atan, {2.0, 2.1}},
      {Opcode::sinh, {1.6, 1.6}},      {Opcode::cosh, {1.4, 1.35}},   {Opcode::asinh, {1.65, 1.6}},
      {Opcode::acosh, {2.3, 2.15}},    {Opcode::atanh, {1.65, 1.7}},  {Opcode::erf, {2.5, 1.65}},
      {Opcode::erf_inv, {3.4, 3.7}},   {Opcode::sqrt, {0.51, 0.76}},  {Opcode::rsqrt, {1.5, 1.02}}};
  std::mt19937_64 g(6);
  for (const Edges& e : all_edges())
    for (const DType t : {DType::f32, DType::f64}) {
      std::vector<uint64_t> x;
      const auto number = [&](int from, int to) {  // either sign
        const double whole = 1 + static_cast<double>(g() >> 11) * 0x1p-53;
        const int power = from + static_cast<int>(g() % static_cast<uint64_t>(to - from));
        x.push_back(reference::from_double(t, std::ldexp(g() & 1 ? whole : -whole, power)));
      };
      for (int i = 0; i < 3000; ++i) number(-4, 5), number(-30, 30), number(-120, 126);
      const auto [narrow, wide] = allowed.at(e.op);
      check({e.op, t, t}, {x}, t == DType::f32 ? narrow : wide);
    }
  quiet();
}

TEST_CASE("expand: pow and atan2 at the edges of their formulas") {
  for (const DType t : {DType::f32, DType::f64}) {
    std::vector<std::vector<uint64_t>> v(2);
    const auto pairs = [&](double x, double y) {
      std::vector<uint64_t> xs, ys;
      around(t, x, xs), around(t, y, ys);
      if (xs.empty() || ys.empty()) return;
      for (size_t i = 0; i < 12; ++i) v[0].push_back(xs[i % xs.size()]), v[1].push_back(ys[(i * 7) % ys.size()]);
    };
    for (const double x : {0.1, 0.5, std::sqrt(0.5), 0.75, 0.999, 1.0009, 1.3, std::sqrt(2.0), 2.0, 3.0, 10.0, 1e10,
                           1e30, 1e-30, 1 + 0x1p-12, 1 - 0x1p-12, 1 + 0x1p-22, 1 + 0x1p-40})
      for (const double to : {128.0,   127.5,   130.0,   -126.0,  -149.0, -150.0, -152.0, 1024.0, 1023.5, 1026.0,
                              -1022.0, -1074.0, -1075.0, -1077.0, 0.5,    -0.5,   1.0,    3.5,    -17.5,  64.25})
        pairs(x, to / std::log2(x));
    for (const double x : {-1.0, -2.0, -0.5, -1.001, -3.0, 1.0, -0.0, 0.0})
      for (const double y : {1.0, 2.0, 3.0, 0.5, 1.5, 33.0, 0x1p23, 0x1p24, 0x1p33, 0x1p52, 0x1p53, 0x1p64})
        for (const double s : {y, -y, y + 1, -y - 1})
          v[0].push_back(reference::from_double(t, x)), v[1].push_back(reference::from_double(t, s));
    check({Opcode::pow, t, t}, v, t == DType::f32 ? 0.98 : 1.11);

    v = {{}, {}};
    for (const double scale :
         t == DType::f32 ? std::vector<double>{1, 0x1p-100, 0x1p-30, 0x1p60, 0x1p119, 0x1p120, 0x1p121, 0x1p125}
                         : std::vector<double>{1, 0x1p-900, 0x1p-30, 0x1p60, 0x1p999, 0x1p1000, 0x1p1001, 0x1p1020})
      for (const double q : {std::tan(kPi / 8), 1.0, std::tan(3 * kPi / 8), 1e-3, 1e-6, 0.3, 0.7, 1.4, 3.0, 1e3, 1e6})
        for (const double sy : {1.0, -1.0})
          for (const double sx : {1.0, -1.0})
            pairs(sy * scale * q * (q > 1 ? 0x1p-21 : 1), sx * scale * (q > 1 ? 0x1p-21 : 1));
    check({Opcode::atan2, t, t}, v, t == DType::f32 ? 1.3 : 1.68);
  }
  quiet();
}

TEST_CASE("expand: transcendental functions of every f16 and bf16") {
  for (const DType t : {DType::f16, DType::bf16})
    for (const Edges& e : all_edges()) {
      std::vector<uint64_t> x;
      for (uint64_t b = 0; b < 65536; ++b) x.push_back(b);
      const Case c{e.op, t, t};
      const std::vector<uint64_t> got = run(c, base(), {x});
      double worst = 0;
      uint64_t at = 0;
      for (size_t i = 0; i < got.size(); ++i)
        if (const double d = device_distance(c, &x[i], 1, got[i]); d > worst) worst = d, at = i;
      if (std::getenv("TESSERA_TEST_ULP")) MESSAGE(ir::name(e.op), " ", name(t), ": ", worst, " ulp");
      if (worst > 0.51)
        FAIL_CHECK(ir::name(e.op) << " " << name(t) << " of 0x" << std::hex << at << ": " << worst << " ulp");
    }
  quiet();
}

TEST_CASE("expand: halves and quarters between whole numbers of all sizes") {
  for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    std::vector<uint64_t> x;
    for (int e = -3; e <= float_format(t).mantissa + 2; ++e)
      for (const double whole :
           {std::ldexp(1.0, e), std::ldexp(1.0, e) + 1, std::ldexp(1.0, e) - 1, std::ldexp(1.25, e)})
        for (const double part : {0.0, 0.25, 0.5, 0.75})
          for (const double s : {1.0, -1.0}) {
            const uint64_t b = reference::from_double(t, s * (whole + part));
            for (const uint64_t v : {b, b + 1, b - 1})
              if (std::isfinite(reference::to_double(t, v))) x.push_back(v);
          }
    for (const Opcode op : {Opcode::floor, Opcode::ceil, Opcode::round, Opcode::round_even})
      for (const bool integer_code : {false, true}) {
        const Case c{op, t, t};
        const std::vector<uint64_t> got = run(c, integer_code ? plain(base()) : base(), {x});
        int64_t wrong = 0;
        for (size_t i = 0; i < got.size(); ++i)
          if (device_distance(c, &x[i], 1, got[i]) != 0 && ++wrong <= 3)
            FAIL_CHECK(ir::name(op) << " " << name(t) << " of " << reference::to_double(t, x[i]) << ": "
                                    << reference::to_double(t, got[i]));
        CHECK(wrong == 0);
      }
  }
  quiet();
}

TEST_CASE("expand: conversions at every value of the narrow float, halfway to the next, and beside") {
  for (const DType from : {DType::f32, DType::f64})
    for (const DType to : {DType::f8e4m3fn, DType::f8e5m2, DType::f16, DType::bf16, DType::f32}) {
      if (from == to) continue;
      std::vector<uint64_t> x;
      const auto beside = [&](double v) {
        const uint64_t b = reference::from_double(from, v);
        for (const uint64_t n : {b, b + 1, b - 1})
          if ((n & ~sign_mask(from)) <= float_format(from).greatest) x.push_back(n);
      };
      std::mt19937_64 g(5);
      const uint64_t count = bits(to) == 32 ? 40000 : uint64_t{1} << (bits(to) - 1);
      for (uint64_t i = 0; i < count; ++i) {
        // Of f32 the exponents in turn, each with a fraction of all kinds.
        const uint64_t b = bits(to) < 32 ? i
                                         : ((i % 255) << 23) | (i % 3 == 0   ? 0
                                                                : i % 3 == 1 ? 0x7fffff >> (i % 23)
                                                                             : (g() & 0x7fffff) >> (g() % 23));
        const double low = reference::to_double(to, b), high = reference::to_double(to, b + 1);
        if (!std::isfinite(low)) continue;
        const double middle = std::isfinite(high) ? (low + high) / 2 : low;
        for (const double s : {1.0, -1.0}) beside(s * low), beside(s * middle);
      }
      for (const double v : {65504.0, 65519.0, 65520.0, 65536.0, 57344.0, 61439.0, 61440.0, 448.0,   464.0,
                             480.0,   0x1p-24, 0x1p-25, 0x1p-26, 0x1p-9,  0x1p-10, 0x1p-11, 0x1p-16, 0x1p-17,
                             0x1p-40, 0x1p-55, 0x1p-56, 0x1p-57, 0x1p-58, 0x1p127, 3.4e38})
        for (const double s : {1.0, -1.0}) beside(s * v);
      // Beyond the greatest: half a step decides, and what is far beyond is infinity too (NaN in f8e4m3fn).
      const uint64_t greatest = float_format(to).greatest;
      const double last = reference::to_double(to, greatest), step = last - reference::to_double(to, greatest - 1);
      for (const double s : {1.0, -1.0}) {
        for (const double steps : {0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0}) beside(s * (last + steps * step));
        for (double v = last + step; v <= reference::to_double(from, float_format(from).greatest); v *= 2)
          beside(s * v);
        x.push_back(reference::from_double(from, s * HUGE_VAL));
      }
      for (const bool integer_code : {false, true}) {
        const Case c{Opcode::convert, from, to};
        const std::vector<uint64_t> got = run(c, integer_code ? plain(base()) : base(), {x});
        int64_t wrong = 0;
        for (size_t i = 0; i < got.size(); ++i)
          if (device_distance(c, &x[i], 1, got[i]) != 0 && ++wrong <= 3)
            FAIL_CHECK(name(from) << " -> " << name(to) << (integer_code ? " by integer code" : "") << " of 0x"
                                  << std::hex << x[i] << ": 0x" << got[i]);
        CHECK(wrong == 0);
      }
    }
  quiet();
}

TEST_CASE("expand: conversions of integers and floats at the ends of what either holds") {
  const std::vector<DType> floats{DType::f8e4m3fn, DType::f8e5m2, DType::f16, DType::bf16, DType::f32, DType::f64};
  const std::vector<DType> integers{DType::i4,  DType::u4,  DType::i8,  DType::u8,  DType::i16,
                                    DType::u16, DType::i32, DType::u32, DType::i64, DType::u64};
  const auto check = [](const Case& c, const std::vector<uint64_t>& x) {
    for (const bool integer_code : {false, true}) {
      const std::vector<uint64_t> got = run(c, integer_code ? plain(base()) : base(), {x});
      int64_t wrong = 0;
      for (size_t i = 0; i < got.size(); ++i)
        if (device_distance(c, &x[i], 1, got[i]) != 0 && ++wrong <= 3)
          FAIL_CHECK(name(c.operand) << " -> " << name(c.result) << (integer_code ? " by integer code" : "") << " of 0x"
                                     << std::hex << x[i] << ": 0x" << got[i]);
      CHECK(wrong == 0);
    }
  };
  for (const DType f : floats)
    for (const DType n : integers) {
      std::vector<uint64_t> x;
      const uint64_t mask = bits(n) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(n)) - 1;
      for (int e = 0; e < bits(n); ++e)
        // 2^e + 2^d and halfway between what such floats are, a little more and a little less
        for (int d = 0; d <= e; ++d)
          for (const int64_t by : {-1, 0, 1})
            for (const uint64_t v : {(uint64_t{1} << e) + static_cast<uint64_t>(by),
                                     (uint64_t{1} << e) + (uint64_t{1} << d) + static_cast<uint64_t>(by),
                                     (uint64_t{1} << e) - (uint64_t{1} << d) + static_cast<uint64_t>(by),
                                     (uint64_t{1} << e) + (uint64_t{3} << d >> 1) + static_cast<uint64_t>(by)})
              x.push_back(v & mask), x.push_back((~v + 1) & mask);
      check({Opcode::convert, n, f}, x);
      x.clear();
      for (const double v : {0.0,
                             0.5,
                             1.0,
                             1.5,
                             std::ldexp(1.0, bits(n) - 1),
                             std::ldexp(1.0, bits(n)),
                             std::ldexp(1.0, bits(n) - 2),
                             7.0,
                             8.0,
                             15.0,
                             16.0,
                             127.0,
                             128.0,
                             255.0,
                             256.0,
                             32767.0,
                             65535.0,
                             65536.0,
                             1e9,
                             1e18})
        for (const double s : {v, -v}) {
          const uint64_t b = reference::from_double(f, s);
          for (const uint64_t near : {b, b + 1, b - 1})
            if ((near & ~sign_mask(f)) <= float_format(f).greatest) x.push_back(near);
        }
      check({Opcode::convert, f, n}, x);
    }
  quiet();
}

}  // namespace expand_edges_test
