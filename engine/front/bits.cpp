#include "engine/front/bits.h"

#include <algorithm>

#include "engine/front/trace.h"

namespace tessera {
using ir::Opcode;

namespace {
/// As a dtype of the same width.
Value same_width(Emit& e, const Value& x, DType t) {
  return x.dtype() == t ? x : e.wrap(e.builder().elementwise(Opcode::bitcast, {e.use(x)}, t));
}

/// Adds a last dim of the parts of each element (to is narrower), or joins the last dim's elements into one (to is
/// wider).
Value other_width(Emit& e, const Value& x, DType to) {
  const int from_bits = bits(x.dtype()), to_bits = bits(to);
  const DType from_word = unsigned_of(from_bits), to_word = unsigned_of(to_bits);
  const Value word = same_width(e, x, from_word);
  Shape shape = x.shape();
  if (from_bits > to_bits) {
    Shape parts = shape;
    parts.push_back(from_bits / to_bits);
    shape.push_back(1);
    const Value apart = broadcast_to(reshape(word, shape), parts);
    return same_width(e, cast(shift_right_logical(apart, iota(from_word, parts, -1, e.loc()) * to_bits), to_word), to);
  }
  const Value placed = cast(word, to_word) << (iota(to_word, shape, -1, e.loc()) * from_bits);
  return same_width(e, reduce_or(placed, {.axis = -1}), to);
}

void check_width(Emit& e, DType from, DType to) {
  if (from == DType::boolean || to == DType::boolean)
    e.fail("cannot reinterpret " + std::string(name(from)) + " as " + std::string(name(to)),
           "a bool has no bits of its own; cast() converts");
}
}  // namespace

Value bitcast(Operand x, DType dtype) {
  Emit e("bitcast", x);
  const Value v = e.wrap(e.as_is(x));
  const DType from = v.dtype();
  if (from == dtype) return v;
  check_width(e, from, dtype);
  if (bits(from) == bits(dtype)) return same_width(e, v, dtype);
  const int64_t ratio = std::max(bits(from), bits(dtype)) / std::min(bits(from), bits(dtype));
  if (bits(from) < bits(dtype) && (v.shape().empty() || v.shape().back() != ratio))
    e.fail(to_string(ir::Type::array(from, v.shape())) + " as " + std::string(name(dtype)) +
           ": the last dim must have " + std::to_string(ratio) + " elements, which make one " +
           std::string(name(dtype)));
  return other_width(e, v, dtype);
}

Value bitcast_along(Operand x, DType dtype, int64_t axis) {
  Emit e("bitcast_along", x);
  const Value v = e.wrap(e.as_is(x));
  const DType from = v.dtype();
  check_width(e, from, dtype);
  const auto d = static_cast<size_t>(e.axis(axis, v.shape().size()));
  if (bits(from) == bits(dtype)) return same_width(e, v, dtype);
  const int64_t ratio = std::max(bits(from), bits(dtype)) / std::min(bits(from), bits(dtype));
  const bool wider = bits(dtype) > bits(from);
  if (wider && v.shape()[d] % ratio != 0)
    e.fail("dim " + std::to_string(d) + " of " + to_string(v.shape()) + " does not divide by " + std::to_string(ratio) +
           ", which is how many " + std::string(name(from)) + " make one " + std::string(name(dtype)));
  // The parts get a dim of their own behind dim d, which is the last while they are joined or taken apart.
  Shape apart = v.shape(), result = v.shape();
  result[d] = wider ? result[d] / ratio : result[d] * ratio;
  apart[d] = wider ? result[d] : apart[d];
  apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(d) + 1, ratio);
  std::vector<int64_t> to_last, from_last(apart.size());
  for (size_t i = 0; i < apart.size(); ++i)
    if (i != d + 1) to_last.push_back(static_cast<int64_t>(i));
  to_last.push_back(static_cast<int64_t>(d) + 1);
  for (size_t i = 0; i < to_last.size(); ++i) from_last[static_cast<size_t>(to_last[i])] = static_cast<int64_t>(i);
  if (wider) return other_width(e, transpose(reshape(v, apart), to_last), dtype);
  return reshape(transpose(other_width(e, v, dtype), from_last), result);
}

Value pack_elementwise(std::vector<Operand> parts, DType packed_dtype) {
  Emit e("pack_elementwise", parts.empty() ? Operand() : parts[0]);
  if (parts.empty()) e.fail("there is nothing to pack");
  const DType t = e.dtype(parts[0]);
  const Shape shape = e.shape(parts[0]);
  for (const Operand& p : parts) {
    if (e.shape(p) != shape) e.fail("shapes " + to_string(shape) + " and " + to_string(e.shape(p)) + " differ");
    if (e.dtype(p) != t)
      e.fail("dtypes " + std::string(name(t)) + " and " + std::string(name(e.dtype(p))) + " differ",
             "cast() one of them first");
  }
  if (!(t == f32 && packed_dtype == bf16) && !(is_int(t) && is_int(packed_dtype) && bits(packed_dtype) <= bits(t)))
    e.fail("cannot pack " + std::string(name(t)) + " as " + std::string(name(packed_dtype)),
           "f32 as bf16, and integers as narrower ones");
  const auto factor = static_cast<size_t>(bits(t) / bits(packed_dtype));
  if (parts.size() != factor)
    e.fail(std::to_string(factor) + " " + std::string(name(packed_dtype)) + " make one " + std::string(name(t)) +
           " but there are " + std::to_string(parts.size()) + " operands");
  const DType word = unsigned_of(bits(t)), part = unsigned_of(bits(packed_dtype));
  std::optional<Value> all;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Value narrow = same_width(e, cast(parts[i], packed_dtype), part);
    const Value placed = cast(narrow, word) << static_cast<int64_t>(i) * bits(packed_dtype);
    all = all ? *all | placed : placed;
  }
  return *all;
}

Value unpack_elementwise(Operand x, int index, DType packed_dtype, DType unpacked_dtype) {
  Emit e("unpack_elementwise", x);
  const Value v = e.wrap(e.as_is(x));
  const DType t = v.dtype();
  check_width(e, t, packed_dtype);
  check_width(e, t, unpacked_dtype);
  if (bits(t) != bits(unpacked_dtype) || bits(packed_dtype) > bits(t))
    e.fail("cannot unpack " + std::string(name(packed_dtype)) + " from " + std::string(name(t)) + " to " +
               std::string(name(unpacked_dtype)),
           "the last two must have the same width, and the first no more");
  const int factor = bits(t) / bits(packed_dtype);
  if (index < 0 || index >= factor)
    e.fail("index " + std::to_string(index) + " is out of range for " + std::to_string(factor) +
           (factor == 1 ? " part" : " parts"));
  const Value word = same_width(e, v, unsigned_of(bits(t)));
  return cast(
      same_width(e, cast(shift_right_logical(word, index * bits(packed_dtype)), unsigned_of(bits(packed_dtype))),
                 packed_dtype),
      unpacked_dtype);
}

Value stochastic_round(Operand x, Operand random_bits, DType dtype) {
  Emit e("stochastic_round", x);
  if (e.dtype(x) != f32) e.fail("the operand must be f32 but is " + std::string(name(e.dtype(x))));
  if (dtype != bf16) e.fail("rounds to bf16, not to " + std::string(name(dtype)));
  if (e.dtype(random_bits) != u32)
    e.fail("the random bits must be u32 but are " + std::string(name(e.dtype(random_bits))));
  if (e.shape(random_bits) != e.shape(x))
    e.fail("the random bits have shape " + to_string(e.shape(random_bits)) + " but the operand has " +
           to_string(e.shape(x)));
  const Value v = e.wrap(e.as_is(x)), random = e.wrap(e.as_is(random_bits));
  const Value noise = random & 0xffff, sum = same_width(e, v, u32) + noise;
  const Value up_or_down = same_width(e, cast(shift_right_logical(sum, 16), u16), bf16);
  const Value special = cast(v, bf16);
  return where(is_finite(v), up_or_down, special);
}

std::pair<Value, Value> iota_2x32(Shape shape, Loc loc) {
  Emit e("iota_2x32", loc);
  Value low = e.wrap(e.builder().constant(DType::u32, 0, shape));
  const Value high = low;  // at most 2^40 elements, and no block has 2^32 of them
  if (num_elements(shape) > (int64_t{1} << 32))
    e.fail("the shape " + to_string(shape) + " has more than 2^32 elements");
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] > 1) low = low + iota(u32, shape, static_cast<int64_t>(d), loc) * stride;
    stride *= shape[d];
  }
  return {high, low};
}

void delay(Operand nanoseconds) {
  Emit e("delay", nanoseconds);
  if (!is_int(e.dtype(nanoseconds)) || !e.shape(nanoseconds).empty())
    e.fail("the time must be an integer scalar but is " +
           to_string(ir::Type::array(e.dtype(nanoseconds), e.shape(nanoseconds))));
}
void debug_barrier(Loc loc) { Emit("debug_barrier", loc); }
void trace_value(const std::string&, Operand value) {
  Emit e("trace_value", value);
  if (!e.shape(value).empty()) e.fail("the value must be a scalar but has shape " + to_string(e.shape(value)));
}
void elementwise_inline_asm(const std::string&, Loc loc) {
  Emit("elementwise_inline_asm", loc)
      .fail("assembly is written for one vendor's GPU, and this kernel must run on every one",
            "say it with the ops of ops.h");
}

}  // namespace tessera
