#include "codegen/tpu/text.h"

#include "engine/base/error.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"

namespace tessera::tpu {
namespace {
std::string hex(uint64_t bits, int digits) {
  static const char* const kDigits = "0123456789ABCDEF";
  std::string s = "0x";
  for (int i = digits - 1; i >= 0; --i) s += kDigits[bits >> (4 * i) & 15];
  return s;
}

// Floats that MLIR cannot read back from decimals are written as bits.
std::string constant_text(DType t, uint64_t b) {
  if (t == DType::boolean) return b ? "true" : "false";
  if (!is_float(t)) {
    const int shift = 64 - bits(t);
    return std::to_string(static_cast<int64_t>(b << shift) >> shift);
  }
  const std::string text = ir::literal(t, b);
  const bool decimal = text.find_first_not_of("-0123456789.e+") == std::string::npos;
  if (!decimal || text.find('.') == std::string::npos) return hex(b, bits(t) / 4);
  return text;
}
}  // namespace

std::string element_type(DType t) {
  switch (t) {
    case DType::boolean: return "i1";
    case DType::i4:
    case DType::u4: return "i4";
    case DType::i8:
    case DType::u8: return "i8";
    case DType::i16:
    case DType::u16: return "i16";
    case DType::i32:
    case DType::u32: return "i32";
    case DType::i64:
    case DType::u64: return "i64";
    case DType::f8e4m3fn: return "f8E4M3FN";
    case DType::f8e5m2: return "f8E5M2";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f32: return "f32";
    case DType::f64: return "f64";
  }
  return "";
}

std::string value_type(DType t, const Shape& shape) {
  if (shape.empty()) return element_type(t);
  std::string s = "vector<";
  for (const int64_t n : shape) s += std::to_string(n) + "x";
  return s + element_type(t) + ">";
}

std::string list(const std::vector<int64_t>& xs) {
  std::string s = "[";
  for (size_t i = 0; i < xs.size(); ++i) s += (i ? ", " : "") + std::to_string(xs[i]);
  return s + "]";
}

std::string names(const std::vector<Val>& vs) {
  std::string s;
  for (size_t i = 0; i < vs.size(); ++i) s += (i ? ", " : "") + vs[i].name;
  return s;
}

std::string types(const std::vector<Val>& vs) {
  std::string s;
  for (size_t i = 0; i < vs.size(); ++i) s += (i ? ", " : "") + type_of(vs[i]);
  return s;
}

void Text::line(const std::string& text) { body_ += std::string(static_cast<size_t>(2 * depth_), ' ') + text + "\n"; }

Val Text::make(const std::string& text, DType t, Shape shape) {
  const std::string name = fresh();
  line(name + " = " + text);
  return {name, t, std::move(shape)};
}

std::string Text::str() const {
  std::string s;
  for (const std::string& c : constants_) s += "    " + c + "\n";
  return s + body_;
}

std::string Text::constant(const std::string& type, const std::string& text) {
  const std::string what = "arith.constant " + text + " : " + type;
  const auto [at, isNew] = known_.emplace(what, "%c" + std::to_string(known_.size()));
  if (isNew) constants_.push_back(at->second + " = " + what);
  return at->second;
}

std::string Text::index(int64_t v) { return constant("index", std::to_string(v)); }

Val Text::constant(DType t, uint64_t b, const Shape& shape) {
  std::string text = constant_text(t, b);
  if (t == DType::boolean && shape.empty()) {  // its type is known
    const auto [at, isNew] = known_.emplace(text, "%" + text);
    if (isNew) constants_.push_back(at->second + " = arith.constant " + text);
    return {at->second, t, shape};
  }
  if (!shape.empty()) text = "dense<" + text + ">";
  return {constant(value_type(t, shape), text), t, shape};
}

Val Text::integer(DType t, int64_t v, const Shape& shape) {
  const uint64_t all = bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1;
  return constant(t, static_cast<uint64_t>(v) & all, shape);
}

Val Text::number(DType t, double v, const Shape& shape) { return constant(t, reference::from_double(t, v), shape); }

Val Text::unary(std::string_view op, const Val& a) {
  return make(std::string(op) + " " + a.name + " : " + type_of(a), a.dtype, a.shape);
}

Val Text::binary(std::string_view op, const Val& a, const Val& b) {
  return make(std::string(op) + " " + a.name + ", " + b.name + " : " + type_of(a), a.dtype, a.shape);
}

Val Text::compare(std::string_view predicate, const Val& a, const Val& b) {
  return make(std::string(is_float(a.dtype) ? "arith.cmpf " : "arith.cmpi ") + std::string(predicate) + ", " + a.name +
                  ", " + b.name + " : " + type_of(a),
              DType::boolean, a.shape);
}

Val Text::select(const Val& c, const Val& a, const Val& b) {
  const std::string type = a.shape.empty() ? type_of(a) : type_of(c) + ", " + type_of(a);
  return make("arith.select " + c.name + ", " + a.name + ", " + b.name + " : " + type, a.dtype, a.shape);
}

Val Text::cast(std::string_view op, const Val& a, DType t) {
  return make(std::string(op) + " " + a.name + " : " + type_of(a) + " to " + value_type(t, a.shape), t, a.shape);
}

Val Text::shape_cast(const Val& a, const Shape& shape) {
  if (a.shape == shape) return a;
  return make("vector.shape_cast " + a.name + " : " + type_of(a) + " to " + value_type(a.dtype, shape), a.dtype, shape);
}

Val Text::broadcast(const Val& a, const Shape& shape) {
  if (a.shape == shape) return a;
  return make("vector.broadcast " + a.name + " : " + type_of(a) + " to " + value_type(a.dtype, shape), a.dtype, shape);
}

Val Text::extract(const Val& a) {
  return make("vector.extract " + a.name + list(Shape(a.shape.size(), 0)) + " : " + element_type(a.dtype) + " from " +
                  type_of(a),
              a.dtype, {});
}

Val Text::slice(const Val& a, size_t axis, int64_t start, int64_t size) {
  Shape starts(a.shape.size(), 0), sizes = a.shape;
  starts[axis] = start;
  sizes[axis] = size;
  if (sizes == a.shape) return a;
  return make("vector.extract_strided_slice " + a.name + " {offsets = " + list(starts) + ", sizes = " + list(sizes) +
                  ", strides = " + list(Shape(a.shape.size(), 1)) + "} : " + type_of(a) + " to " +
                  value_type(a.dtype, sizes),
              a.dtype, sizes);
}

Val Text::concatenate(const std::vector<Val>& parts, size_t axis) {
  if (parts.size() == 1) return parts[0];
  Shape shape = parts[0].shape;
  shape[axis] = 0;
  for (const Val& p : parts) shape[axis] += p.shape[axis];
  return make("tpu.concatenate " + names(parts) + " in " + std::to_string(axis) + " : " + types(parts) + " -> " +
                  value_type(parts[0].dtype, shape),
              parts[0].dtype, shape);
}

Val Text::iota(const Shape& shape, size_t axis) {
  return make("tpu.iota {dimensions = array<i32: " + std::to_string(axis) + ">} : " + value_type(DType::i32, shape),
              DType::i32, shape);
}

Val Text::to_index(const Val& a) { return make("arith.index_cast " + a.name + " : i32 to index", DType::i32, {}); }

}  // namespace tessera::tpu
