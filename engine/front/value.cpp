#include "engine/front/value.h"

#include <algorithm>

#include "engine/front/elementwise.h"
#include "engine/front/ref.h"
#include "engine/front/trace.h"

namespace tessera {

std::optional<DType> promote_types(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::boolean) return b;
  if (b == DType::boolean) return a;
  if (is_int4(a) || is_int4(b) || (is_float8(a) && is_float(b)) || (is_float8(b) && is_float(a))) return std::nullopt;
  if (is_float(a) && is_float(b)) {
    if (bits(a) == bits(b)) return DType::f32;  // f16 and bf16
    return bits(a) > bits(b) ? a : b;
  }
  if (is_float(a) || is_float(b)) return is_float(a) ? a : b;
  if (is_signed_int(a) == is_signed_int(b)) return bits(a) > bits(b) ? a : b;
  const DType s = is_signed_int(a) ? a : b, u = is_signed_int(a) ? b : a;
  if (bits(s) > bits(u)) return s;
  switch (u) {  // the signed dtype twice as wide, of which there is none for u64
    case DType::u8: return DType::i16;
    case DType::u16: return DType::i32;
    case DType::u32: return DType::i64;
    default: return DType::f64;
  }
}

Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

Operand::Operand() = default;
Operand::Operand(const Operand&) = default;
Operand::Operand(Operand&&) noexcept = default;
Operand& Operand::operator=(const Operand&) = default;
Operand& Operand::operator=(Operand&&) noexcept = default;
Operand::~Operand() = default;
Operand::Operand(const Value& v, Loc l) : value_(v), loc_(l) {}
Operand::Operand(Number number, Loc l) : number_(number), loc_(l) {}
Operand::Operand(RefItem&& read, Loc l) : value_(std::move(read).read(l)), loc_(l) {}

Operand Operand::at(Loc l) const {
  Operand o = *this;
  o.loc_ = l;
  return o;
}

Value binary(ir::Opcode code, const Operand& a, const Operand& b, std::string_view name,
             std::optional<ir::Opcode> for_bool) {
  Emit e(name, a);
  const DType t = e.common_dtype({&a, &b});
  const Shape shape = e.common_shape({&a, &b});
  const ir::Value x = e.as(a, t, shape), y = e.as(b, t, shape);
  return e.wrap(e.builder().elementwise(t == DType::boolean && for_bool ? *for_bool : code, {x, y}));
}

Value unary(ir::Opcode code, const Operand& a, std::string_view name) {
  Emit e(name, a);
  return e.wrap(e.builder().elementwise(code, {e.as_is(a)}));
}

Value unary_float(ir::Opcode code, const Operand& a, std::string_view name) {
  Emit e(name, a);
  const DType t = e.dtype(a);
  return e.wrap(e.builder().elementwise(code, {e.as(a, is_float(t) || a.absent() ? t : DType::f32)}));
}

namespace {
using ir::Opcode;
Value binary(Opcode code, const Operand& a, const Operand& b) { return tessera::binary(code, a, b, ir::name(code)); }
Value logical(Opcode code, std::string_view name, const Operand& a, const Operand& b) {
  Emit e(name, b);
  const Shape shape = e.common_shape({&a, &b});
  const ir::Value x = e.truth(a), y = e.truth(b);
  return e.wrap(e.builder().elementwise(code, {e.broadcast(x, shape), e.broadcast(y, shape)}));
}
Value negation(const Operand& a) {
  Emit e("!", a);
  return e.wrap(e.builder().elementwise(Opcode::not_, {e.truth(a)}));
}
Value shift_right(const Operand& a, const Operand& b) {
  Emit e(">>", a);
  const DType t = e.common_dtype({&a, &b});
  return binary(is_unsigned_int(t) ? Opcode::shift_right_logical : Opcode::shift_right_arithmetic, a, b);
}
}  // namespace

Value operator+(Operand a, Operand b) { return tessera::binary(Opcode::add, a, b, "add", Opcode::or_); }
Value operator-(Operand a, Operand b) { return binary(Opcode::sub, a, b); }
Value operator*(Operand a, Operand b) { return tessera::binary(Opcode::mul, a, b, "mul", Opcode::and_); }
Value operator/(Operand a, Operand b) { return binary(Opcode::div, a, b); }
Value operator%(Operand a, Operand b) { return binary(Opcode::rem, a, b); }
Value operator-(Operand a) { return unary(Opcode::neg, a, "neg"); }
Value operator==(Operand a, Operand b) { return binary(Opcode::eq, a, b); }
Value operator!=(Operand a, Operand b) { return binary(Opcode::ne, a, b); }
Value operator<(Operand a, Operand b) { return binary(Opcode::lt, a, b); }
Value operator<=(Operand a, Operand b) { return binary(Opcode::le, a, b); }
Value operator>(Operand a, Operand b) { return binary(Opcode::gt, a, b); }
Value operator>=(Operand a, Operand b) { return binary(Opcode::ge, a, b); }
Value operator&(Operand a, Operand b) { return binary(Opcode::and_, a, b); }
Value operator|(Operand a, Operand b) { return binary(Opcode::or_, a, b); }
Value operator^(Operand a, Operand b) { return binary(Opcode::xor_, a, b); }
Value operator~(Operand a) { return unary(Opcode::not_, a, "not"); }
Value operator<<(Operand a, Operand b) { return binary(Opcode::shift_left, a, b); }
Value operator>>(Operand a, Operand b) { return shift_right(a, b); }

Value operator&&(const Value& a, Operand b) { return logical(Opcode::and_, "&&", Operand(a, b.loc()), b); }
Value operator&&(const Value& a, bool b) { return logical(Opcode::and_, "&&", Operand(a, Loc{}), Operand(b, Loc{})); }
Value operator&&(bool a, const Value& b) { return logical(Opcode::and_, "&&", Operand(a, Loc{}), Operand(b, Loc{})); }
Value operator&&(RefItem&& a, Operand b) { return logical(Opcode::and_, "&&", Operand(std::move(a), b.loc()), b); }
Value operator||(const Value& a, Operand b) { return logical(Opcode::or_, "||", Operand(a, b.loc()), b); }
Value operator||(const Value& a, bool b) { return logical(Opcode::or_, "||", Operand(a, Loc{}), Operand(b, Loc{})); }
Value operator||(bool a, const Value& b) { return logical(Opcode::or_, "||", Operand(a, Loc{}), Operand(b, Loc{})); }
Value operator||(RefItem&& a, Operand b) { return logical(Opcode::or_, "||", Operand(std::move(a), b.loc()), b); }
Value operator!(const Value& a) { return negation(Operand(a, Loc{})); }
Value operator!(RefItem&& a) { return negation(Operand(std::move(a), Loc{})); }

Value& Value::operator+=(Operand b) { return *this = Operand(*this, b.loc()) + b; }
Value& Value::operator-=(Operand b) { return *this = Operand(*this, b.loc()) - b; }
Value& Value::operator*=(Operand b) { return *this = Operand(*this, b.loc()) * b; }
Value& Value::operator/=(Operand b) { return *this = Operand(*this, b.loc()) / b; }
Value& Value::operator%=(Operand b) { return *this = Operand(*this, b.loc()) % b; }
Value& Value::operator&=(Operand b) { return *this = Operand(*this, b.loc()) & b; }
Value& Value::operator|=(Operand b) { return *this = Operand(*this, b.loc()) | b; }
Value& Value::operator^=(Operand b) { return *this = Operand(*this, b.loc()) ^ b; }
Value& Value::operator<<=(Operand b) { return *this = Operand(*this, b.loc()) << b; }
Value& Value::operator>>=(Operand b) { return *this = Operand(*this, b.loc()) >> b; }

}  // namespace tessera
