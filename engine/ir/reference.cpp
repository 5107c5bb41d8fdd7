#include "engine/ir/reference.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "engine/base/convert_element.h"
#include "engine/base/element.h"
#include "engine/base/platform.h"
#include "engine/ir/narrow_math.h"

namespace tessera::reference {
namespace {
using ir::Opcode, ir::OperandRule, ir::ResultRule;

// Integers wrap: arithmetic goes through an unsigned type at least as wide as unsigned int, so that promotion to int
// cannot overflow.
template <class T> using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T> constexpr Wide<T> wide(T x) { return static_cast<Wide<T>>(x); }
template <class T> constexpr T wrap(Wide<T> x) { return static_cast<T>(x); }
template <class T> constexpr bool kFloat = std::is_floating_point_v<T>;

// The functions that the reference column of ops.def names. T is the compute type: bool, an integer (i4 and u4 in 8
// bits, of which the low four are kept), float (f32 and narrower) or double. InDouble: computes in double and rounds
// once to the dtype. ByWidth: gets the dtype's width too.
namespace fn {
enum class Form { in_compute, in_double, by_width };
struct InCompute {
  static constexpr Form kForm = Form::in_compute;
};
struct InDouble {
  static constexpr Form kForm = Form::in_double;
};
struct ByWidth {
  static constexpr Form kForm = Form::by_width;
};

struct add : InCompute {
  template <class T> static T run(T a, T b) {
    if constexpr (kFloat<T>) return a + b;
    else return wrap<T>(wide(a) + wide(b));
  }
};
struct sub : InCompute {
  template <class T> static T run(T a, T b) {
    if constexpr (kFloat<T>) return a - b;
    else return wrap<T>(wide(a) - wide(b));
  }
};
struct mul : InCompute {
  template <class T> static T run(T a, T b) {
    if constexpr (kFloat<T>) return a * b;
    else return wrap<T>(wide(a) * wide(b));
  }
};
struct neg : InCompute {
  template <class T> static T run(T a) {
    if constexpr (kFloat<T>) return -a;
    else return wrap<T>(Wide<T>{0} - wide(a));
  }
};
struct div : InCompute {
  template <class T> static T run(T a, T b) {
    if constexpr (kFloat<T>) return a / b;  // IEEE 754: division by zero gives an infinity or NaN
    else {
      if (b == 0) return static_cast<T>(-1);
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return neg::run(a);
      }
      return static_cast<T>(a / b);
    }
  }
};
struct rem : InCompute {
  template <class T> static T run(T a, T b) {
    if constexpr (kFloat<T>) return std::fmod(a, b);
    else {
      if (b == 0) return a;
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
      }
      return static_cast<T>(a % b);
    }
  }
};
// a where one of the conditions holds, else b: its very bits, and without branches, so that loops become vector code.
template <class T> using FloatBits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T> bool negative(T a) { return std::bit_cast<FloatBits<T>>(a) >> (8 * sizeof(T) - 1); }
template <class T> T either(T a, T b, bool first, bool second) {
  const auto keep = static_cast<FloatBits<T>>(FloatBits<T>{0} - static_cast<FloatBits<T>>(first | second));
  return std::bit_cast<T>((std::bit_cast<FloatBits<T>>(a) & keep) | (std::bit_cast<FloatBits<T>>(b) & ~keep));
}
struct max : InCompute {
  template <class T> static T run(T a, T b) {
    // if b is NaN, a > b fails and b is the result
    if constexpr (kFloat<T>) return either(a, b, (a == b) & !negative(a), (a > b) | (a != a));
    else return a > b ? a : b;
  }
};
struct min : InCompute {
  template <class T> static T run(T a, T b) {
    if constexpr (kFloat<T>) return either(a, b, (a == b) & negative(a), (a < b) | (a != a));
    else return a < b ? a : b;
  }
};
struct clamp : InCompute {
  template <class T> static T run(T low, T x, T high) { return min::run(max::run(x, low), high); }
};
struct abs : InCompute {
  template <class T> static T run(T a) {
    if constexpr (kFloat<T>) return std::fabs(a);
    else if constexpr (std::is_signed_v<T>) return a < 0 ? neg::run(a) : a;
    else return a;
  }
};
struct sign : InCompute {
  template <class T> static T run(T a) {
    if constexpr (kFloat<T>) return a > 0 ? T{1} : a < 0 ? T{-1} : a;
    else if constexpr (std::is_signed_v<T>) return static_cast<T>((a > 0) - (a < 0));
    else return static_cast<T>(a != 0);
  }
};
struct floor : InCompute {
  template <class T> static T run(T a) { return std::floor(a); }
};
struct ceil : InCompute {
  template <class T> static T run(T a) { return std::ceil(a); }
};
struct round : InCompute {
  template <class T> static T run(T a) { return platform::round(a); }
};
struct round_even : InCompute {
  // Without the host's rounding mode: the distance to floor is exact, and so is the parity test.
  template <class T> static T run(T a) {
    const T below = std::floor(a), distance = a - below;
    if (!(distance > 0)) return a;  // integers, infinities, NaN, signed zeros
    const bool up = distance > T{0.5} || (distance == T{0.5} && below - 2 * std::floor(below / 2) != 0);
    return std::copysign(up ? below + 1 : below, a);
  }
};
struct sqrt : InCompute {
  template <class T> static T run(T a) { return std::sqrt(a); }
};
struct fma : InCompute {
  template <class T> static T run(T a, T b, T c) { return std::fma(a, b, c); }
};

// What f32 and narrower floats have instead of run(): the same function to fewer bits, and a loop over an array of f32
// that is made of vector code.
#define TESSERA_NARROW(f)                                     \
  static double run_narrow(double a) { return narrow::f(a); } \
  static constexpr auto kArray = &narrow::f##_array;
struct rsqrt : InDouble {
  static double run(double a) { return 1 / std::sqrt(a); }
};
struct pow : InDouble {
  static double run(double a, double b) { return platform::pow(a, b); }
};
struct exp : InDouble {
  static double run(double a) { return std::exp(a); }
  TESSERA_NARROW(exp)
};
struct exp2 : InDouble {
  static double run(double a) { return std::exp2(a); }
  TESSERA_NARROW(exp2)
};
struct log : InDouble {
  static double run(double a) { return std::log(a); }
  TESSERA_NARROW(log)
};
struct log2 : InDouble {
  static double run(double a) { return std::log2(a); }
  TESSERA_NARROW(log2)
};
struct tanh : InDouble {
  static double run(double a) { return std::tanh(a); }
  TESSERA_NARROW(tanh)
};
struct sin : InDouble {
  static double run(double a) { return platform::sin(a); }
};
struct cos : InDouble {
  static double run(double a) { return platform::cos(a); }
};
struct erf : InDouble {
  static double run(double a) { return std::erf(a); }
};
struct logistic : InDouble {
  static double run(double a) {  // exp of a negative number only: no overflow, and accurate in both tails
    const double e = std::exp(-std::fabs(a));
    return a < 0 ? e / (1 + e) : 1 / (1 + e);
  }
  TESSERA_NARROW(logistic)
};
#undef TESSERA_NARROW

struct expm1 : InDouble {
  static double run(double a) { return std::expm1(a); }
};
struct log1p : InDouble {
  static double run(double a) { return std::log1p(a); }
};
struct cbrt : InDouble {
  static double run(double a) { return std::cbrt(a); }
};
struct tan : InDouble {
  static double run(double a) { return std::tan(a); }
};
struct asin : InDouble {
  static double run(double a) { return std::asin(a); }
};
struct acos : InDouble {
  static double run(double a) { return std::acos(a); }
};
struct atan : InDouble {
  static double run(double a) { return std::atan(a); }
};
struct atan2 : InDouble {
  static double run(double a, double b) { return std::atan2(a, b); }
};
struct sinh : InDouble {
  static double run(double a) { return std::sinh(a); }
};
struct cosh : InDouble {
  static double run(double a) { return std::cosh(a); }
};
struct asinh : InDouble {
  static double run(double a) { return std::asinh(a); }
};
struct acosh : InDouble {
  static double run(double a) { return platform::acosh(a); }
};
struct atanh : InDouble {
  static double run(double a) { return std::atanh(a); }
};
struct erf_inv : InDouble {
  // C has none: Newton's method with a second-order term, on erf(y) = a near 0 and on erfc(y) = 1 - |a| (exact there)
  // in the tails.
  static double run(double a) {
    const double x = std::fabs(a), q = 1 - x;
    if (!(x < 1))
      return x == 1 ? std::copysign(std::numeric_limits<double>::infinity(), a)
                    : std::numeric_limits<double>::quiet_NaN();
    const double w = -std::log(q * (1 + x)), root = std::sqrt(w);
    // within 5 %
    double y =
        w < 5 ? x * (0.8862 + w * (0.2282 - w * 0.0045)) : root - 0.5 * std::log(1.7724538509055160 * root) / root;
    for (int i = 0; i < 4; ++i) {
      const double slope = 1.1283791670955126 * std::exp(-y * y);
      const double step = (x < 0.5 ? std::erf(y) - x : q - std::erfc(y)) / slope;
      y -= step / (1 + y * step);
    }
    return std::copysign(y, a);
  }
};

struct eq : InCompute {
  template <class T> static bool run(T a, T b) { return a == b; }
};
struct ne : InCompute {
  template <class T> static bool run(T a, T b) { return a != b; }
};
struct lt : InCompute {
  template <class T> static bool run(T a, T b) { return a < b; }
};
struct le : InCompute {
  template <class T> static bool run(T a, T b) { return a <= b; }
};
struct gt : InCompute {
  template <class T> static bool run(T a, T b) { return a > b; }
};
struct ge : InCompute {
  template <class T> static bool run(T a, T b) { return a >= b; }
};
struct is_finite : InCompute {
  template <class T> static bool run(T a) { return std::isfinite(a); }
};

struct bit_and : InCompute {
  template <class T> static T run(T a, T b) { return static_cast<T>(a & b); }
};
struct bit_or : InCompute {
  template <class T> static T run(T a, T b) { return static_cast<T>(a | b); }
};
struct bit_xor : InCompute {
  template <class T> static T run(T a, T b) { return static_cast<T>(a ^ b); }
};
struct bit_not : InCompute {
  template <class T> static T run(T a) {
    if constexpr (std::is_same_v<T, bool>) return !a;
    else return wrap<T>(~wide(a));
  }
};
// A shift count counts as unsigned, so negative ones are beyond the width. `w` is the dtype's width, which i4 and u4
// have less of than T.
template <class T> std::make_unsigned_t<T> bits_of(T x) { return static_cast<std::make_unsigned_t<T>>(x); }
template <int w, class T> std::make_unsigned_t<T> low_bits(T x) {
  if constexpr (w == kBits<T>) return bits_of(x);
  else return static_cast<std::make_unsigned_t<T>>(bits_of(x) & ((1 << w) - 1));
}
struct shift_left : ByWidth {
  template <int w, class T> static T run(T a, T b) { return bits_of(b) >= w ? T{0} : wrap<T>(wide(a) << bits_of(b)); }
};
struct shift_right_logical : ByWidth {
  template <int w, class T> static T run(T a, T b) {
    return bits_of(b) >= w ? T{0} : static_cast<T>(low_bits<w>(a) >> bits_of(b));
  }
};
struct shift_right_arithmetic : ByWidth {  // of unsigned types too: the top bit fills
  template <int w, class T> static T run(T a, T b) {
    auto s = static_cast<std::make_signed_t<T>>(a);
    if constexpr (w < kBits<T>) s = static_cast<decltype(s)>((low_bits<w>(a) ^ (1 << (w - 1))) - (1 << (w - 1)));
    return static_cast<T>(s >> (bits_of(b) >= w ? w - 1 : static_cast<int>(bits_of(b))));
  }
};
struct mulhi : ByWidth {
  template <int w, class T> static T run(T a, T b) {
    using Product = std::conditional_t<sizeof(T) < 8, int64_t,
                                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>;
    using Exact = std::conditional_t<std::is_same_v<T, uint32_t>, uint64_t, Product>;
    return static_cast<T>((static_cast<Exact>(a) * static_cast<Exact>(b)) >> w);
  }
};
struct clz : ByWidth {
  template <int w, class T> static T run(T a) {
    return static_cast<T>(std::countl_zero(low_bits<w>(a)) - (kBits<T> - w));
  }
};
struct population_count : ByWidth {
  template <int w, class T> static T run(T a) { return static_cast<T>(std::popcount(low_bits<w>(a))); }
};
// Works on the bits of the dtype itself. Floats are in the order of their bits as signed magnitudes.
struct nextafter {
  template <DType t, class U> static U run(U a, U b) {
    using S = std::make_signed_t<U>;
    constexpr U sign = static_cast<U>(U{1} << (kBits<U> - 1));
    const auto order = [](U x) { return static_cast<S>(x & sign ? -static_cast<S>(x & ~sign) : static_cast<S>(x)); };
    constexpr FloatFormat f = float_format(t);
    constexpr U last = static_cast<U>(f.has_infinity ? f.greatest + 1 : f.greatest);  // beyond it are the NaNs
    if ((a & ~sign) > last || (b & ~sign) > last) return static_cast<U>(f.nan);
    const S x = order(a), y = order(b);
    if (x == y) return b;
    const S next = static_cast<S>(x + (x < y ? 1 : -1));
    return next == 0  ? static_cast<U>(a & sign)
           : next < 0 ? static_cast<U>(sign | static_cast<U>(-next))
                      : static_cast<U>(next);
  }
};
struct select {};  // moves bits: made below
struct convert {};
struct bitcast {};
}  // namespace fn

template <DType t> using UInt = std::conditional_t<
    size_bytes(t) == 1, uint8_t,
    std::conditional_t<size_bytes(t) == 2, uint16_t, std::conditional_t<size_bytes(t) == 4, uint32_t, uint64_t>>>;

// One element of an arithmetic function, from and to memory form. `r` is the result's dtype.
template <class F, DType t, DType r, class... M> Memory<r> compute(M... m) {
  if constexpr (std::is_same_v<F, fn::nextafter>)
    return element_of<r>(F::template run<t>(static_cast<UInt<t>>(bits_of_element<t>(m))...));
  else if constexpr (F::kForm == fn::Form::in_double && t != DType::f64 && requires { F::kArray; })
    return ElementOf<r>::put_wide(F::run_narrow(static_cast<double>(ElementOf<t>::get(m))...));
  else if constexpr (F::kForm == fn::Form::in_double)
    return ElementOf<r>::put_wide(F::run(static_cast<double>(ElementOf<t>::get(m))...));
  else if constexpr (F::kForm == fn::Form::by_width)
    return ElementOf<r>::put(F::template run<bits(t)>(ElementOf<t>::get(m)...));
  else return ElementOf<r>::put(F::run(ElementOf<t>::get(m)...));
}

template <class F, DType t, DType r, int arity> struct Arithmetic {
  static uint64_t scalar(const uint64_t* o) {
    if constexpr (arity == 1) return bits_of_element<r>(compute<F, t, r>(element_of<t>(o[0])));
    else if constexpr (arity == 2)
      return bits_of_element<r>(compute<F, t, r>(element_of<t>(o[0]), element_of<t>(o[1])));
    else return bits_of_element<r>(compute<F, t, r>(element_of<t>(o[0]), element_of<t>(o[1]), element_of<t>(o[2])));
  }
  static void array(const void* const* o, void* out, int64_t n) {
    auto* y = static_cast<Memory<r>*>(out);
    const auto* a = static_cast<const Memory<t>*>(o[0]);
    if constexpr (arity == 1 && t == DType::f32 && r == DType::f32 && requires { F::kArray; }) {
      F::kArray(a, y, n);
    } else if constexpr (arity == 1) {
      for (int64_t i = 0; i < n; ++i) y[i] = compute<F, t, r>(a[i]);
    } else {
      const auto* b = static_cast<const Memory<t>*>(o[1]);
      if constexpr (arity == 2) {
        for (int64_t i = 0; i < n; ++i) y[i] = compute<F, t, r>(a[i], b[i]);
      } else {
        const auto* c = static_cast<const Memory<t>*>(o[2]);
        for (int64_t i = 0; i < n; ++i) y[i] = compute<F, t, r>(a[i], b[i], c[i]);
      }
    }
  }
};

template <DType to, DType from> struct Convert {
  static uint64_t scalar(const uint64_t* o) {
    return bits_of_element<to>(convert_element<to, from>(element_of<from>(o[0])));
  }
  static void array(const void* const* o, void* out, int64_t n) {
    auto* y = static_cast<Memory<to>*>(out);
    const auto* a = static_cast<const Memory<from>*>(o[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = convert_element<to, from>(a[i]);
  }
};

// Select and bitcast move bits: one instance per element size.
template <class U> struct Select {
  static uint64_t scalar(const uint64_t* o) { return o[0] ? o[1] : o[2]; }
  static void array(const void* const* o, void* out, int64_t n) {
    auto* y = static_cast<U*>(out);
    const auto* p = static_cast<const uint8_t*>(o[0]);
    const auto* a = static_cast<const U*>(o[1]);
    const auto* b = static_cast<const U*>(o[2]);
    for (int64_t i = 0; i < n; ++i) {  // without a branch: predicates of data are unpredictable
      const U keep = static_cast<U>(U{0} - static_cast<U>(p[i] != 0));
      y[i] = static_cast<U>((a[i] & keep) | (b[i] & ~keep));
    }
  }
};
template <class U> struct Copy {
  static uint64_t scalar(const uint64_t* o) { return o[0]; }
  static void array(const void* const* o, void* out, int64_t n) {
    if (n > 0) std::memmove(out, o[0], static_cast<size_t>(n) * sizeof(U));
  }
};

struct Functions {
  ScalarFunction scalar = nullptr;
  ArrayFunction array = nullptr;
};
template <class S> constexpr Functions functions_of() { return {&S::scalar, &S::array}; }
template <template <class> class S> constexpr Functions by_size(int64_t bytes) {
  return bytes == 1   ? functions_of<S<uint8_t>>()
         : bytes == 2 ? functions_of<S<uint16_t>>()
         : bytes == 4 ? functions_of<S<uint32_t>>()
                      : functions_of<S<uint64_t>>();
}

// Row rules, named as the columns of ops.def are.
constexpr OperandRule rule_num = OperandRule::num, rule_flt = OperandRule::flt, rule_int = OperandRule::int_,
                      rule_ibl = OperandRule::ibl, rule_any = OperandRule::any, rule_select = OperandRule::select;

constexpr size_t kDTypes = kNumDTypes;
using Row = std::array<Functions, kDTypes>;

template <class F, int arity, OperandRule rule, ResultRule result, size_t i> constexpr Functions entry() {
  constexpr DType t = static_cast<DType>(i);
  if constexpr (std::is_same_v<F, fn::select>) return by_size<Select>(size_bytes(t));
  else if constexpr (result == ResultRule::other || !ir::takes(rule, t))
    return {};  // convert and bitcast have their own tables
  else if constexpr (result == ResultRule::pred) return functions_of<Arithmetic<F, t, DType::boolean, arity>>();
  else return functions_of<Arithmetic<F, t, t, arity>>();
}
template <class F, int arity, OperandRule rule, ResultRule result, size_t... i> constexpr Row make_row(
    std::index_sequence<i...>) {
  return {entry<F, arity, rule, result, i>()...};
}

constexpr std::array<Row, ir::kNumOpcodes> kTable = [] {
  std::array<Row, ir::kNumOpcodes> t{};
#define TESSERA_ELEMENTWISE(name, arity, operands, result, flags, reference, ...) \
  t[static_cast<size_t>(Opcode::name)] =                                          \
      make_row<fn::reference, arity, rule_##operands, ResultRule::result>(std::make_index_sequence<kDTypes>());
#include "engine/ir/ops.def"
  return t;
}();

template <size_t from, size_t... to> constexpr Row convert_row(std::index_sequence<to...>) {
  return {functions_of<Convert<static_cast<DType>(to), static_cast<DType>(from)>>()...};
}
template <size_t... from> constexpr std::array<Row, kDTypes> convert_table(std::index_sequence<from...>) {
  return {convert_row<from>(std::make_index_sequence<kDTypes>())...};
}
constexpr std::array<Row, kDTypes> kConvert = convert_table(std::make_index_sequence<kDTypes>());

Functions find(Opcode op, DType operand, DType result) {
  if (op == Opcode::convert) return kConvert[static_cast<size_t>(operand)][static_cast<size_t>(result)];
  if (op == Opcode::bitcast) {
    if (bits(operand) != bits(result)) return {};
    return by_size<Copy>(size_bytes(operand));
  }
  return kTable[static_cast<size_t>(op)][static_cast<size_t>(operand)];
}

[[noreturn]] void undefined(Opcode op, DType operand, DType result) {
  throw InternalError("reference: " + std::string(ir::name(op)) + " is not defined from " + std::string(name(operand)) +
                      " to " + std::string(name(result)));
}
}  // namespace

ScalarFunction scalar_function(Opcode op, DType operand, DType result) { return find(op, operand, result).scalar; }
ArrayFunction array_function(Opcode op, DType operand, DType result) { return find(op, operand, result).array; }

uint64_t eval(Opcode op, DType operand, DType result, const uint64_t* operands) {
  const ScalarFunction f = scalar_function(op, operand, result);
  if (!f) undefined(op, operand, result);
  return f(operands);
}

void eval_array(Opcode op, DType operand, DType result, const void* const* operands, void* out, int64_t n) {
  const ArrayFunction f = array_function(op, operand, result);
  if (!f) undefined(op, operand, result);
  f(operands, out, n);
}

uint32_t dot4(uint32_t a, bool a_signed, uint32_t b, bool b_signed, uint32_t c) {
  const auto element = [](uint32_t word, int i, bool is_signed) {
    const auto byte = static_cast<uint8_t>(word >> (8 * i));
    return static_cast<uint32_t>(is_signed ? int32_t{static_cast<int8_t>(byte)} : int32_t{byte});
  };
  for (int i = 0; i < 4; ++i) c += element(a, i, a_signed) * element(b, i, b_signed);
  return c;
}

uint64_t identity(Opcode combiner, DType t) {
  const ir::Combiner* row = ir::combiner(combiner);
  if (!row) throw InternalError("reference: nothing is combined by " + std::string(ir::name(combiner)));
  return with_dtype(t, [&](auto c) -> uint64_t {
    constexpr DType d = c;
    using C = Compute<d>;
    using L = std::numeric_limits<C>;
    constexpr FloatFormat f = float_format(d);
    constexpr uint64_t extreme = is_float(d) ? f.greatest + (f.has_infinity ? 1 : 0) : 0;  // f8e4m3fn has no infinity
    constexpr int unused = is_int4(d) ? 4 : 0;
    C x{0};
    switch (row->identity) {
      case ir::Identity::zero: break;
      case ir::Identity::one: x = C{1}; break;
      case ir::Identity::least:
        if constexpr (is_float(d)) return f.sign | extreme;
        else x = static_cast<C>(L::lowest() >> unused);
        break;
      case ir::Identity::greatest:
        if constexpr (is_float(d)) return extreme;
        else x = static_cast<C>(L::max() >> unused);
        break;
      case ir::Identity::ones:
        if constexpr (is_int(d)) x = fn::bit_not::run(C{0});
        else x = C{1};
        break;
    }
    return bits_of_element<d>(ElementOf<d>::put(x));
  });
}

}  // namespace tessera::reference
