#include "tests/support/judge/arithmetic.h"

#include <spirv/unified1/GLSL.std.450.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <spirv/unified1/spirv.hpp>

#include "engine/base/dtype.h"

namespace tessera::judge {
namespace {

float f32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double f64(uint64_t bits) { return std::bit_cast<double>(bits); }
uint64_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }

/// The number of a float of any width: exact.
double number(uint64_t bits, uint32_t width) {
  return width == 16 ? from_half(bits) : width == 32 ? static_cast<double>(f32(bits)) : f64(bits);
}

/// `x` rounded once.
uint64_t rounded(long double x, uint32_t width, bool to_zero) {
  if (width == 16) {
    const auto near = static_cast<double>(x);  // of a float or double: exact
    return to_half(near, to_zero);
  }
  if (width == 32) {
    auto r = static_cast<float>(x);
    if (to_zero && std::fabs(static_cast<long double>(r)) > std::fabs(x)) r = std::nextafter(r, 0.0f);
    return bits_of(r);
  }
  auto r = static_cast<double>(x);
  if (to_zero && std::fabs(static_cast<long double>(r)) > std::fabs(x)) r = std::nextafter(r, 0.0);
  return bits_of(r);
}

template <class T> T floats(Code code, T a, T b) {
  switch (code) {
    case Code::fadd: return a + b;
    case Code::fsub: return a - b;
    case Code::fmul: return a * b;
    default: return a / b;
  }
}

template <class T> T one(uint32_t op, T a) {
  switch (op) {
    case GLSLstd450Round:
    case GLSLstd450RoundEven: return std::nearbyint(a);
    case GLSLstd450Trunc: return std::trunc(a);
    case GLSLstd450FSign: return a > 0 ? T(1) : a < 0 ? T(-1) : a;
    case GLSLstd450Floor: return std::floor(a);
    case GLSLstd450Ceil: return std::ceil(a);
    case GLSLstd450Fract: return a - std::floor(a);
    case GLSLstd450Exp2: return std::exp2(a);
    case GLSLstd450Log2: return std::log2(a);
    case GLSLstd450Sqrt: return std::sqrt(a);
    default: return T(1) / std::sqrt(a);
  }
}
template <class T> T several(uint32_t op, T a, T b, T c) {
  switch (op) {
    case GLSLstd450FMin: return b < a ? b : a;
    case GLSLstd450FMax: return a < b ? b : a;
    case GLSLstd450NMin: return std::fmin(a, b);
    case GLSLstd450NMax: return std::fmax(a, b);
    default: return std::fmin(std::fmax(a, b), c);
  }
}
uint64_t highest(uint64_t x) { return x ? 63 - static_cast<uint64_t>(std::countl_zero(x)) : 0xffffffffu; }

}  // namespace

double from_half(uint64_t bits) { return from_f16_bits(static_cast<uint16_t>(bits)); }
uint64_t to_half(double x, bool to_zero) {
  const uint16_t r = to_f16_bits(x);
  return to_zero && std::fabs(from_half(r)) > std::fabs(x) ? r - 1u : r;
}

float Arithmetic::inexact(double exact, double most, uint64_t operands) const {
  if (!std::isfinite(exact) || exact == 0) return static_cast<float>(exact);
  Random hash{errors ^ operands};
  const uint64_t h = hash.next();
  // As far as allowed to one side or the other, or less; the rounding to come takes half an ulp of it.
  const double share = h % 4 < 2 ? 1 : static_cast<double>(h >> 11) * 0x1p-53, side = h & 4 ? share : -share;
  int e = 0;
  std::frexp(exact, &e);
  const double off = exact + side * (most - 0.5) * std::ldexp(1.0, std::max(e, -125) - 24);
  return static_cast<float>(std::signbit(off) == std::signbit(exact) ? off : std::copysign(0.0, exact));
}

Slot Arithmetic::imprecise(uint32_t op, Slot a) const {
  const double x = f32(a.bits);
  const uint64_t mask = mask_of(32);
  if (!std::isfinite(x) || a.poison) return {Random{errors ^ a.bits}.next() & mask, mask};
  switch (op) {
    case GLSLstd450Exp2: return {bits_of(inexact(std::exp2(x), 3 + 2 * std::fabs(x), a.bits)), 0};
    case GLSLstd450Sqrt:
      if (x < 0) return {0, mask};
      return {bits_of(inexact(std::sqrt(x), 4.5, a.bits)), 0};
    case GLSLstd450InverseSqrt:
      if (x <= 0) return {0, mask};
      return {bits_of(inexact(1 / std::sqrt(x), 2, a.bits)), 0};
    default: {
      if (x <= 0) return {0, mask};
      const double exact = std::log2(x);
      if (x < 0.5 || x > 2) return {bits_of(inexact(exact, 3, a.bits)), 0};
      const double off = 0x1p-21 - 0x1p-24;  // absolute there
      return {bits_of(static_cast<float>(exact + (Random{errors ^ a.bits}.next() & 1 ? off : -off))), 0};
    }
  }
}

Slot Arithmetic::divide(const Instr& i, Slot a, Slot b) {
  const uint64_t mask = mask_of(i.width), poison = whole(a.poison | b.poison, mask);
  const int64_t x = signed_of(a.bits, i.width), y = signed_of(b.bits, i.width);
  if (b.bits == 0) return undefined = "division by 0", Slot{0, poison};
  const bool is_signed = i.code == Code::sdiv || i.code == Code::srem || i.code == Code::smod;
  if (is_signed && y == -1 && a.bits == mask / 2 + 1)
    return undefined = "the least integer divided by -1", Slot{0, poison};
  switch (i.code) {
    case Code::udiv: return {a.bits / b.bits, poison};
    case Code::umod: return {a.bits % b.bits, poison};
    case Code::sdiv: return {static_cast<uint64_t>(x / y) & mask, poison};
    default:
      // Vulkan: undefined where either operand is negative.
      if (x < 0 || y < 0) return undefined = "a remainder of negative numbers", Slot{0, poison};
      return {static_cast<uint64_t>(x % y), poison};
  }
}

Slot Arithmetic::floating(const Instr& i, Slot a, Slot b, Slot) {
  const uint32_t w = i.width, to = i.n;
  const uint64_t poison = a.poison | b.poison;
  switch (i.code) {
    case Code::fadd:
    case Code::fsub:
    case Code::fmul:
    case Code::fdiv:
      if (w == 16) return {to_half(floats(i.code, from_half(a.bits), from_half(b.bits)), false), whole(poison, 0xffff)};
      if (w == 32 && i.code == Code::fdiv && errors) {
        const double quotient = static_cast<double>(f32(a.bits)) / static_cast<double>(f32(b.bits));
        return {bits_of(inexact(quotient, 2.5, a.bits << 32 | b.bits)), whole(poison, mask_of(32))};
      }
      if (w == 32) return {bits_of(floats(i.code, f32(a.bits), f32(b.bits))), whole(poison, mask_of(32))};
      return {bits_of(floats(i.code, f64(a.bits), f64(b.bits))), whole(poison, ~uint64_t{0})};
    case Code::fneg: return {a.bits ^ uint64_t{1} << (w - 1), a.poison};
    case Code::fcompare: {
      const double x = number(a.bits, w), y = number(b.bits, w);
      const uint32_t is = x < y ? kLess : x > y ? kGreater : x == y ? kEqual : kUnordered;
      return {(i.aux & is) != 0, poison != 0};
    }
    case Code::is_nan: return {std::isnan(number(a.bits, w)), poison != 0};
    case Code::is_inf: return {std::isinf(number(a.bits, w)), poison != 0};
    case Code::fconvert:
      return {
          to > w ? rounded(number(a.bits, w), to, false) : rounded(number(a.bits, w), to, to_zero[to == 16 ? 0 : 1]),
          whole(poison, mask_of(to))};
    case Code::u_to_f:
      return {rounded(static_cast<long double>(a.bits), to,
                      to_zero[to == 16   ? 0
                              : to == 32 ? 1
                                         : 2]),
              whole(poison, mask_of(to))};
    case Code::s_to_f:
      return {rounded(static_cast<long double>(signed_of(a.bits, w)), to,
                      to_zero[to == 16   ? 0
                              : to == 32 ? 1
                                         : 2]),
              whole(poison, mask_of(to))};
    case Code::f_to_u: {
      const double x = std::trunc(number(a.bits, w));
      if (!(x >= 0 && x < std::ldexp(1.0, static_cast<int>(to))))
        return undefined = "a float that the unsigned integer cannot hold", Slot{0, whole(poison, mask_of(to))};
      return {static_cast<uint64_t>(x), whole(poison, mask_of(to))};
    }
    default: {
      const double x = std::trunc(number(a.bits, w)), limit = std::ldexp(1.0, static_cast<int>(to) - 1);
      if (!(x >= -limit && x < limit))
        return undefined = "a float that the integer cannot hold", Slot{0, whole(poison, mask_of(to))};
      return {static_cast<uint64_t>(static_cast<int64_t>(x)) & mask_of(to), whole(poison, mask_of(to))};
    }
  }
}

Slot Arithmetic::glsl(const Instr& i, Slot a, Slot b, Slot c) {
  const uint32_t w = i.width;
  const uint64_t mask = mask_of(w), poison = a.poison | b.poison | c.poison;
  const int64_t x = signed_of(a.bits, w), y = signed_of(b.bits, w), z = signed_of(c.bits, w);
  const auto integer = [&](uint64_t v) { return Slot{v & mask, whole(poison, mask)}; };
  switch (i.aux) {
    case GLSLstd450FAbs: return {a.bits & mask >> 1, a.poison & mask >> 1};
    case GLSLstd450SAbs:
      return integer(static_cast<uint64_t>(x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x)));
    case GLSLstd450SSign: return integer(static_cast<uint64_t>(static_cast<int64_t>(x > 0) - (x < 0)));
    case GLSLstd450UMin: return integer(std::min(a.bits, b.bits));
    case GLSLstd450UMax: return integer(std::max(a.bits, b.bits));
    case GLSLstd450SMin: return integer(static_cast<uint64_t>(std::min(x, y)));
    case GLSLstd450SMax: return integer(static_cast<uint64_t>(std::max(x, y)));
    case GLSLstd450UClamp: return integer(std::min(std::max(a.bits, b.bits), c.bits));
    case GLSLstd450SClamp: return integer(static_cast<uint64_t>(std::min(std::max(x, y), z)));
    case GLSLstd450FindILsb: return integer(a.bits ? static_cast<uint64_t>(std::countr_zero(a.bits)) : mask);
    case GLSLstd450FindUMsb:
    case GLSLstd450FindSMsb:
      if (w != 32) undefined = "FindMsb of other than 32 bits";
      return integer(highest(i.aux == GLSLstd450FindSMsb && x < 0 ? ~a.bits & mask : a.bits));
    case GLSLstd450Fma: {
      if (w == 16) {
        const double exact = from_half(a.bits) * from_half(b.bits);
        const double product = fused ? exact : from_half(to_half(exact, false));
        return {to_half(product + from_half(c.bits), false), whole(poison, mask)};
      }
      if (w == 64)
        return {
            bits_of(fused ? std::fma(f64(a.bits), f64(b.bits), f64(c.bits)) : f64(a.bits) * f64(b.bits) + f64(c.bits)),
            whole(poison, mask)};
      const float product = f32(a.bits) * f32(b.bits);
      return {bits_of(fused ? std::fma(f32(a.bits), f32(b.bits), f32(c.bits)) : product + f32(c.bits)),
              whole(poison, mask)};
    }
    case GLSLstd450FMin:
    case GLSLstd450FMax:
    case GLSLstd450NMin:
    case GLSLstd450NMax:
    case GLSLstd450FClamp:
    case GLSLstd450NClamp:
      // A device may assume that there are no NaNs.
      if (std::isnan(number(a.bits, w)) || std::isnan(number(b.bits, w)) || std::isnan(number(c.bits, w)))
        return {Random{a.bits}.next() & mask, mask};
      if (w == 64) return {bits_of(several(i.aux, f64(a.bits), f64(b.bits), f64(c.bits))), whole(poison, mask)};
      return {bits_of(several(i.aux, f32(a.bits), f32(b.bits), f32(c.bits))), whole(poison, mask)};
    case GLSLstd450Exp2:
    case GLSLstd450Log2:
    case GLSLstd450Sqrt:
    case GLSLstd450InverseSqrt:
      if (w == 32 && errors) return imprecise(i.aux, a);
      [[fallthrough]];
    default:
      if (w == 64) return {bits_of(one(i.aux, f64(a.bits))), whole(poison, mask)};
      return {bits_of(one(i.aux, f32(a.bits))), whole(poison, mask)};
  }
}

uint64_t Arithmetic::combine(uint32_t op, uint32_t w, uint64_t a, uint64_t b) {
  const uint64_t mask = mask_of(w);
  const int64_t x = signed_of(a, w), y = signed_of(b, w);
  switch (op) {
    case spv::OpAtomicIAdd:
    case spv::OpGroupNonUniformIAdd: return (a + b) & mask;
    case spv::OpAtomicISub: return (a - b) & mask;
    case spv::OpGroupNonUniformIMul: return a * b & mask;
    case spv::OpAtomicSMin:
    case spv::OpGroupNonUniformSMin: return static_cast<uint64_t>(std::min(x, y)) & mask;
    case spv::OpAtomicSMax:
    case spv::OpGroupNonUniformSMax: return static_cast<uint64_t>(std::max(x, y)) & mask;
    case spv::OpAtomicUMin:
    case spv::OpGroupNonUniformUMin: return std::min(a, b);
    case spv::OpAtomicUMax:
    case spv::OpGroupNonUniformUMax: return std::max(a, b);
    case spv::OpAtomicAnd:
    case spv::OpGroupNonUniformBitwiseAnd:
    case spv::OpGroupNonUniformLogicalAnd: return a & b;
    case spv::OpAtomicOr:
    case spv::OpGroupNonUniformBitwiseOr:
    case spv::OpGroupNonUniformLogicalOr: return a | b;
    case spv::OpAtomicXor:
    case spv::OpGroupNonUniformBitwiseXor:
    case spv::OpGroupNonUniformLogicalXor: return a ^ b;
    case spv::OpGroupNonUniformFAdd: return w == 64 ? bits_of(f64(a) + f64(b)) : bits_of(f32(a) + f32(b));
    case spv::OpGroupNonUniformFMul: return w == 64 ? bits_of(f64(a) * f64(b)) : bits_of(f32(a) * f32(b));
    case spv::OpGroupNonUniformFMin:
      return w == 64 ? bits_of(std::fmin(f64(a), f64(b))) : bits_of(std::fmin(f32(a), f32(b)));
    case spv::OpGroupNonUniformFMax:
      return w == 64 ? bits_of(std::fmax(f64(a), f64(b))) : bits_of(std::fmax(f32(a), f32(b)));
    default: return b;  // exchange, store
  }
}

uint64_t Arithmetic::identity(uint32_t op, uint32_t w) {
  const uint64_t mask = mask_of(w), sign = uint64_t{1} << (w - 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto floating = [&](double v) { return w == 64 ? bits_of(v) : bits_of(static_cast<float>(v)); };
  switch (op) {
    case spv::OpGroupNonUniformIMul: return 1;
    case spv::OpGroupNonUniformFMul: return floating(1);
    case spv::OpGroupNonUniformSMin: return mask ^ sign;
    case spv::OpGroupNonUniformSMax: return sign;
    case spv::OpGroupNonUniformUMin:
    case spv::OpGroupNonUniformBitwiseAnd:
    case spv::OpGroupNonUniformLogicalAnd: return mask;
    case spv::OpGroupNonUniformFMin: return floating(kInfinity);
    case spv::OpGroupNonUniformFMax: return floating(-kInfinity);
    default: return 0;
  }
}

}  // namespace tessera::judge
