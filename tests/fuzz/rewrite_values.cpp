// Rewritings of values: through memory, through a choice, through moves that undo each other, through wider dtypes; and
// of constants, which are given at run time.
#include <algorithm>
#include <numeric>

#include "tests/fuzz/rewriter.h"

namespace tessera::fuzz {
using ir::Attr, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {
// Up to `most` of the body's values become f(), which is made behind them or returns nothing.
template <class F> bool each_of_some(Rewriter& e, size_t most, bool maps, const F& f) {
  bool any = false;
  size_t done = 0;
  std::vector<Value> order;
  for (const auto& [v, s] : e.values(maps)) order.push_back(v);
  e.random.shuffle(order);
  for (const Value v : order) {
    if (done == most) break;
    for (const auto& [w, s] : e.values(maps)) {
      if (w != v) continue;
      Spot at = s;
      const size_t first = e.k.ops.size();
      if (const Value to = f(v, at)) {
        e.replace_uses(v, to, first);
        any = true, ++done;
      }
      break;
    }
  }
  return any;
}

bool is_array(const Type& t) { return !t.shape.empty() && num_elements(t.shape) > 0; }
}  // namespace

// Constants arrive at run time: as sizes, arguments by value, elements of arrays; also in index maps.
bool rewrite_given_constants(Rewriter& e) {
  if (e.random.chance(0.6)) e.prefetch();
  return each_of_some(e, static_cast<size_t>(e.random.in(1, 6)), true, [&](Value v, Spot& s) -> Value {
    const Op* def = e.k.def(v);
    if (!def || def->code != Opcode::constant) return {};
    const Type t = e.k.type(v);
    const auto bits = static_cast<uint64_t>(def->attr(Attr::bits));
    if (t.dtype == DType::i32 && e.random.chance(0.7)) {
      const Value n = e.number(s, static_cast<int32_t>(bits));
      return e.broadcast(s, n, t.shape);
    }
    if (e.in_map(s.region)) return {};
    const Value x = e.element(s, t.dtype, bits);
    return e.broadcast(s, x, t.shape);
  });
}

// A value is stored to scratch, or to memory of a scope, and loaded again.
bool rewrite_kept(Rewriter& e) {
  return each_of_some(e, 3, false, [&](Value v, Spot& s) -> Value {
    const Type t = e.k.type(v);
    if (num_elements(t.shape) > 4096) return {};
    const auto access = [&](Opcode code, Value ref, std::vector<Value> more) {
      Op op{.code = code, .operands = {ref}};
      op.operands.insert(op.operands.end(), more.begin(), more.end());
      for (const int64_t n : t.shape) op.index.push_back(ir::Index::all(n));
      return op;
    };
    const Type ref = Type::ref(t.dtype, t.shape,
                               t.shape.empty() && e.random.chance(0.7) ? ir::MemorySpace::smem : ir::MemorySpace::vmem);
    if (e.random.chance(0.6)) {
      const Value scratch = e.add_scratch(ref);
      e.insert(s, access(Opcode::store, scratch, {v}));
      return e.one(s, access(Opcode::load, scratch, {}));
    }
    ir::Builder b(e.k);
    const ir::RegionId r = b.new_region({ref});
    const Value scoped = b.arg(r, 0);
    b.set_region(r);
    b.append(access(Opcode::store, scoped, {v}));
    b.yield({b.one(access(Opcode::load, scoped, {}))});
    return e.one(s, {.code = Opcode::run_scoped, .regions = {r}});
  });
}

// select(true, x, garbage), select(false, garbage, x).
bool rewrite_chosen(Rewriter& e) {
  if (e.random.chance(0.6)) e.prefetch();
  return each_of_some(e, 4, true, [&](Value v, Spot& s) -> Value {
    const Type t = e.k.type(v);
    Value yes = e.truth(s);
    const bool turned = e.random.chance(0.3);
    if (turned) yes = e.elementwise(s, Opcode::not_, {yes}, DType::boolean);
    yes = e.broadcast(s, yes, t.shape);
    const Value other = e.garbage(s, t);
    return e.elementwise(s, Opcode::select,
                         turned ? std::vector<Value>{yes, other, v} : std::vector<Value>{yes, v, other}, t.dtype);
  });
}

namespace {
Value reversed(Rewriter& e, Value v, Spot& s, const std::vector<int64_t>& axes) {
  Op op{.code = Opcode::rev, .operands = {v}};
  op.set(Attr::axes, axes);
  return e.one(s, std::move(op));
}
Value transposed(Rewriter& e, Value v, Spot& s, const std::vector<int64_t>& perm) {
  Op op{.code = Opcode::transpose, .operands = {v}};
  op.set(Attr::perm, perm);
  return e.one(s, std::move(op));
}
Value sliced(Rewriter& e, Value v, Spot& s, size_t axis, int64_t from, int64_t to) {
  Op op{.code = Opcode::slice, .operands = {v}};
  const Shape shape = e.k.type(v).shape;
  std::vector<int64_t> start(shape.size(), 0), limit = shape;
  start[axis] = from, limit[axis] = to;
  op.set(Attr::start, start);
  op.set(Attr::limit, limit);
  op.set(Attr::stride, std::vector<int64_t>(shape.size(), 1));
  return e.one(s, std::move(op));
}
Value joined(Rewriter& e, Spot& s, size_t axis, std::vector<Value> parts) {
  Op op{.code = Opcode::concatenate, .operands = std::move(parts)};
  op.set(Attr::axis, static_cast<int64_t>(axis));
  return e.one(s, std::move(op));
}

// Rolled by some places and back.
Value rolled(Rewriter& e, Value v, Spot& s) {
  const Shape shape = e.k.type(v).shape;
  const size_t axis = e.random.below(shape.size());
  const int64_t n = shape[axis];
  if (n < 2) return {};
  const int64_t by = e.random.in(1, n - 1);
  const Value back = sliced(e, v, s, axis, by, n), front = sliced(e, v, s, axis, 0, by);
  const Value turned = joined(e, s, axis, {back, front});
  const Value begin = sliced(e, turned, s, axis, n - by, n), end = sliced(e, turned, s, axis, 0, n - by);
  return joined(e, s, axis, {begin, end});
}

// With a further dim of 2, and one of its halves, or their maximum.
Value doubled(Rewriter& e, Value v, Spot& s) {
  const Type t = e.k.type(v);
  const size_t at = e.random.below(t.shape.size() + 1);
  Shape shape = t.shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), 2);
  std::vector<int64_t> dims;
  for (size_t d = 0; d < t.shape.size(); ++d) dims.push_back(static_cast<int64_t>(d + (d >= at)));
  Op op{.code = Opcode::broadcast, .operands = {v}};
  op.set(Attr::dims, dims);
  const Value two = e.one(s, std::move(op), Type::array(t.dtype, shape));
  if (e.random.chance(0.5)) {
    Op reduce{.code = t.dtype == DType::boolean ? Opcode::reduce_or
                      : e.random.chance(0.5)    ? Opcode::reduce_max
                                                : Opcode::reduce_min,
              .operands = {two}};
    reduce.set(Attr::axes, std::vector<int64_t>{static_cast<int64_t>(at)});
    return e.one(s, std::move(reduce));
  }
  const int64_t half = e.random.in(0, 1);
  const Value part = sliced(e, two, s, at, half, half + 1);
  return e.reshape(s, part, t.shape);
}
}  // namespace

// Moves that undo each other.
bool rewrite_moved(Rewriter& e) {
  return each_of_some(e, 3, false, [&](Value v, Spot& s) -> Value {
    const Type t = e.k.type(v);
    if (!is_array(t) || num_elements(t.shape) > 65536) return {};
    switch (e.random.below(5)) {
      case 0: {
        const int64_t n = num_elements(t.shape);
        Shape other{n};
        if (n % 2 == 0 && e.random.chance(0.6)) other = e.random.chance(0.5) ? Shape{2, n / 2} : Shape{n / 2, 2};
        const Value flat = e.reshape(s, v, other);
        return e.reshape(s, flat, t.shape);
      }
      case 1: {
        if (t.shape.size() < 2) return {};
        std::vector<int64_t> perm(t.shape.size()), back(perm.size());
        std::iota(perm.begin(), perm.end(), 0);
        e.random.shuffle(perm);
        for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
        const Value turned = transposed(e, v, s, perm);
        return transposed(e, turned, s, back);
      }
      case 2: {
        const std::vector<int64_t> axes{static_cast<int64_t>(e.random.below(t.shape.size()))};
        const Value turned = reversed(e, v, s, axes);
        return reversed(e, turned, s, axes);
      }
      case 3: return rolled(e, v, s);
      default: return doubled(e, v, s);
    }
  });
}

namespace {
DType wide_of(DType t) {
  switch (t) {
    case DType::i4:
    case DType::i8:
    case DType::i16:
    case DType::u4:
    case DType::u8:
    case DType::u16: return DType::i32;
    case DType::i32:
    case DType::u32: return DType::i64;
    case DType::f16:
    case DType::bf16: return DType::f32;
    default: return t;
  }
}
// Ops whose low bits hang on the low bits of the operands alone; of floats those that are exact, or rounded twice as
// once (a wider format of more than twice the digits).
bool may_be_wide(Opcode code, DType t) {
  switch (code) {
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul: return true;
    case Opcode::neg:
    case Opcode::min:
    case Opcode::max: return true;
    case Opcode::div:
    case Opcode::sqrt: return is_float(t);
    case Opcode::and_:
    case Opcode::or_:
    case Opcode::xor_:
    case Opcode::not_: return !is_float(t);
    default: return false;
  }
}
bool is_compare(Opcode code) {
  return code == Opcode::eq || code == Opcode::ne || code == Opcode::lt || code == Opcode::le || code == Opcode::gt ||
         code == Opcode::ge;
}
}  // namespace

// Arithmetic of narrow dtypes in wider ones; bits through another dtype and back; x ^ y ^ y.
bool rewrite_wide(Rewriter& e) {
  return each_of_some(e, 4, false, [&](Value v, Spot& s) -> Value {
    const Type t = e.k.type(v);
    const Op* def = e.k.def(v);
    if (def && ir::is_elementwise(def->code) && !def->operands.empty()) {
      const Op op = *def;
      const DType from = e.k.type(op.operands[0]).dtype, wide = wide_of(from);
      if (wide != from && (is_compare(op.code) || (from == t.dtype && may_be_wide(op.code, from)))) {
        std::vector<Value> operands;
        for (const Value x : op.operands) operands.push_back(e.convert(s, x, wide));
        const Value w = e.elementwise(s, op.code, operands, is_compare(op.code) ? DType::boolean : wide);
        return is_compare(op.code) ? w : e.convert(s, w, t.dtype);
      }
    }
    if (t.dtype == DType::boolean) {
      const Value no = e.elementwise(s, Opcode::not_, {v}, DType::boolean);
      return e.elementwise(s, Opcode::not_, {no}, DType::boolean);
    }
    if (is_float(t.dtype)) {
      const DType bits_of = bits(t.dtype) == 8    ? DType::u8
                            : bits(t.dtype) == 16 ? DType::u16
                            : bits(t.dtype) == 32 ? DType::u32
                                                  : DType::u64;
      const Value b = e.elementwise(s, Opcode::bitcast, {v}, bits_of);
      return e.elementwise(s, Opcode::bitcast, {b}, t.dtype);
    }
    if (bits(t.dtype) < 32 && e.random.chance(0.5)) {
      const Value w = e.convert(s, v, DType::i32);
      return e.convert(s, w, t.dtype);
    }
    const Value x = e.element(
        s, t.dtype, e.random.next() & (bits(t.dtype) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t.dtype)) - 1));
    const Value y = e.broadcast(s, x, t.shape);
    const Value z = e.elementwise(s, Opcode::xor_, {v, y}, t.dtype);
    return e.elementwise(s, Opcode::xor_, {z, y}, t.dtype);
  });
}

}  // namespace tessera::fuzz
