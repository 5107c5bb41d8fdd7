// Conversions between dtypes. Floats and integers are converted as f32 and i32, whose conversions Mosaic has; those
// saturate, with NaN to 0, which the instruction does not promise.
#include "codegen/tpu/emitter.h"

namespace tessera::tpu {

Val Emitter::expand_convert(const ir::Op& op, const Operands& x) { return convert(x[0], k_.type(op.results[0]).dtype); }

Val Emitter::convert(const Val& x, DType t) {
  const DType from = x.dtype;
  if (from == t) return x;
  if (t == DType::boolean) {
    const Val wide = is_float(from) ? convert(x, DType::f32) : x;
    return t_.compare(is_float(from) ? "une" : "ne", wide, t_.integer(wide.dtype, 0, x.shape));
  }
  if (from == DType::boolean) {
    const Val one = t_.cast("arith.extui", x, DType::i32);
    return convert(one, t);
  }
  if (is_float(from) && is_float(t)) {
    if (bits(from) < bits(t)) return t_.cast("arith.extf", x, t);
    if (bits(from) > bits(t)) return t_.cast("arith.truncf", x, t);
    const Val wide = t_.cast("arith.extf", x, DType::f32);
    return t_.cast("arith.truncf", wide, t);
  }
  if (is_float(from)) return to_int(x, t);
  if (is_float(t)) return to_float(x, t);
  if (bits(from) > bits(t)) return t_.cast("arith.trunci", x, t);
  if (bits(from) < bits(t)) return t_.cast(is_signed_int(from) ? "arith.extsi" : "arith.extui", x, t);
  return {x.name, t, x.shape};
}

Val Emitter::to_int(const Val& x, DType t) {
  const Val a = convert(x, DType::f32);
  const Val zero = t_.number(DType::f32, 0, a.shape);
  const Val is_number = t_.compare("oeq", a, a);
  const Val number = t_.select(is_number, a, zero);
  const int width = bits(t);
  if (width < 32) {
    const double least = is_signed_int(t) ? -static_cast<double>(int64_t{1} << (width - 1)) : 0,
                 greatest = static_cast<double>((int64_t{1} << (is_signed_int(t) ? width - 1 : width)) - 1);
    const Val above = t_.binary("arith.maximumf", number, t_.number(DType::f32, least, a.shape));
    const Val inside = t_.binary("arith.minimumf", above, t_.number(DType::f32, greatest, a.shape));
    const Val wide = t_.cast("arith.fptosi", inside, DType::i32);
    return convert(wide, t);
  }
  // 2^31 is the first float beyond i32; of u32 what is as large is converted without its upper bit
  const double most = 2147483648.0;
  if (is_signed_int(t)) {
    const Val above = t_.binary("arith.maximumf", number, t_.number(DType::f32, -most, a.shape));
    const Val inside = t_.binary("arith.minimumf", above, t_.number(DType::f32, most - 128, a.shape));
    const Val r = t_.cast("arith.fptosi", inside, DType::i32);
    const Val beyond = t_.compare("oge", number, t_.number(DType::f32, most, a.shape));
    return t_.select(beyond, t_.integer(DType::i32, INT32_MAX, a.shape), r);
  }
  const Val above = t_.binary("arith.maximumf", number, zero);
  const Val inside = t_.binary("arith.minimumf", above, t_.number(DType::f32, 2 * most - 256, a.shape));
  const Val is_large = t_.compare("oge", inside, t_.number(DType::f32, most, a.shape));
  const Val lowered = t_.binary("arith.subf", inside, t_.number(DType::f32, most, a.shape));
  const Val low = t_.select(is_large, lowered, inside);
  const Val r = t_.cast("arith.fptosi", low, DType::u32);
  const Val with_bit = t_.binary("arith.xori", r, t_.integer(DType::u32, INT64_C(0x80000000), a.shape));
  const Val whole = t_.select(is_large, with_bit, r);
  const Val beyond = t_.compare("oge", number, t_.number(DType::f32, 2 * most, a.shape));
  return t_.select(beyond, t_.integer(DType::u32, -1, a.shape), whole);
}

Val Emitter::to_float(const Val& x, DType t) {
  Val r = x;
  if (x.dtype == DType::u32) {  // by halves of 16 bits: exact until the one sum
    const Val high = t_.binary("arith.shrui", x, t_.integer(x.dtype, 16, x.shape));
    const Val low = t_.binary("arith.andi", x, t_.integer(x.dtype, 0xffff, x.shape));
    const Val h = t_.cast("arith.sitofp", high, DType::f32), l = t_.cast("arith.sitofp", low, DType::f32);
    const Val scaled = t_.binary("arith.mulf", h, t_.number(DType::f32, 65536, x.shape));
    r = t_.binary("arith.addf", scaled, l);
  } else {
    const Val wide = convert(x, DType::i32);
    r = t_.cast("arith.sitofp", wide, DType::f32);
  }
  return convert(r, t);
}

Val Emitter::expand_bitcast(const ir::Op& op, const Operands& x) {
  const DType t = k_.type(op.results[0]).dtype;
  if (is_int(x[0].dtype) && is_int(t)) return {x[0].name, t, x[0].shape};
  if (x[0].shape.empty()) return t_.cast("arith.bitcast", x[0], t);
  return t_.make("tpu.bitcast " + x[0].name + " : " + type_of(x[0]) + " -> " + value_type(t, x[0].shape), t,
                 x[0].shape);
}

}  // namespace tessera::tpu
