#include "codegen/lane/lane_builder.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

LaneBuilder::LaneBuilder(ir::Kernel& out) : b_(out), bounds_(out) {
  prologue_ = b_.new_region({});
  open();
}

void LaneBuilder::finish() {
  ir::Kernel& k = b_.kernel();
  std::vector<ir::OpId>& body = k.region(k.body).ops;
  std::vector<ir::OpId>& early = k.region(prologue_).ops;
  body.insert(body.begin(), early.begin(), early.end());
  early.clear();
}

Value LaneBuilder::constant(DType t, uint64_t bits) {
  auto [it, added] = constants_.try_emplace({t, bits});
  if (added) {
    const ir::RegionId at = b_.region();
    b_.set_region(prologue_);
    it->second = b_.constant(t, bits);
    b_.set_region(at);
  }
  return it->second;
}

Value LaneBuilder::i32(int64_t v) {
  if (v < INT32_MIN || v > INT32_MAX) throw InternalError(kernel().name + ": " + std::to_string(v) + " is no i32");
  return constant(DType::i32, static_cast<uint32_t>(v));
}

std::optional<int64_t> LaneBuilder::known(Value v) const {
  return ir::constant_int(const_cast<LaneBuilder*>(this)->kernel(), v);
}

// Equal positions are one value, so that elements at them are computed once.
Value LaneBuilder::op(Opcode c, std::vector<Value> operands, DType result) {
  std::vector<uint32_t> key{UINT32_MAX, static_cast<uint32_t>(c) << 8 | static_cast<uint32_t>(result)};
  for (Value v : operands) key.push_back(v.index);
  if (const Value* known = recall(key)) return *known;
  const Value v = b_.elementwise(c, std::move(operands), result);
  remember(std::move(key), v);
  return v;
}

Value LaneBuilder::add(Value a, Value b) {
  const auto x = known(a), y = known(b);
  const DType t = dtype(a);
  if (x && y) return wrapped(t, static_cast<uint64_t>(*x) + static_cast<uint64_t>(*y));
  if (x == 0) return b;
  if (y == 0) return a;
  // Constants move outwards, so that addresses that differ by a constant show it: (p + c) + (q + d) = (p + q) + (c +
  // d).
  if (x) return add(b, a);
  const auto [p, c] = split_constant(a);
  const auto [q, d] = split_constant(b);
  if (y)
    return c == 0 ? op(Opcode::add, {a, b}) : add(p, wrapped(t, static_cast<uint64_t>(c) + static_cast<uint64_t>(*y)));
  if (c == 0 && d == 0) return op(Opcode::add, {a, b});
  const Value sum = op(Opcode::add, {p, q});
  return add(sum, wrapped(t, static_cast<uint64_t>(c) + static_cast<uint64_t>(d)));
}

// v as p + c, if it is the sum of something and a constant.
std::pair<Value, int64_t> LaneBuilder::split_constant(Value v) {
  const ir::Op* o = kernel().def(v);
  if (!o || o->code != Opcode::add) return {v, 0};
  if (const auto c = known(o->operands[1])) return {o->operands[0], *c};
  return {v, 0};
}
Value LaneBuilder::sub(Value a, Value b) {
  const auto x = known(a), y = known(b);
  if (x && y) return wrapped(dtype(a), static_cast<uint64_t>(*x) - static_cast<uint64_t>(*y));
  if (y == 0) return a;
  return op(Opcode::sub, {a, b});
}
Value LaneBuilder::mul(Value a, Value b) {
  const auto x = known(a), y = known(b);
  const DType t = dtype(a);
  if (x && y) return wrapped(t, static_cast<uint64_t>(*x) * static_cast<uint64_t>(*y));
  if (x == 0 || y == 1) return a;
  if (y == 0 || x == 1) return b;
  if (x) return mul(b, a);
  if (y)
    if (const auto [p, c] = split_constant(a); c != 0) {
      const Value product = wrapped(t, static_cast<uint64_t>(c) * static_cast<uint64_t>(*y));
      return add(mul(p, b), product);
    }
  return op(Opcode::mul, {a, b});
}
Value LaneBuilder::div(Value a, int64_t b) { return div(a, dtype(a) == DType::i64 ? i64(b) : i32(b)); }
Value LaneBuilder::rem(Value a, int64_t b) { return rem(a, dtype(a) == DType::i64 ? i64(b) : i32(b)); }
Value LaneBuilder::div(Value a, Value b) {
  const auto x = known(a), y = known(b);
  if (y == 1 || x == 0) return a;
  if (x && y && *y > 0 && *x >= 0) return dtype(a) == DType::i64 ? i64(*x / *y) : i32(*x / *y);
  return op(Opcode::div, {a, b});
}
Value LaneBuilder::rem(Value a, Value b) {
  const auto x = known(a), y = known(b);
  if (x == 0) return a;
  if (y == 1) return dtype(a) == DType::i64 ? i64(0) : i32(0);
  if (x && y && *y > 0 && *x >= 0) return dtype(a) == DType::i64 ? i64(*x % *y) : i32(*x % *y);
  return op(Opcode::rem, {a, b});
}
Value LaneBuilder::min(Value a, Value b) {
  const auto x = known(a), y = known(b);
  if (x && y) return *x < *y ? a : b;
  return a == b ? a : op(Opcode::min, {a, b});
}
Value LaneBuilder::max(Value a, Value b) {
  const auto x = known(a), y = known(b);
  if (x && y) return *x > *y ? a : b;
  return a == b ? a : op(Opcode::max, {a, b});
}
Value LaneBuilder::clamp(Value v, int64_t lo, int64_t hi) {
  const Value end = i32(hi);
  return clamp(v, i32(lo), end);
}
Value LaneBuilder::wrap(Value v, Value n) {
  const Value sum = add(v, n);
  return select(lt(v, i32(0)), sum, v);
}
Value LaneBuilder::lt(Value a, Value b) {
  const auto x = known(a), y = known(b);
  if (x && y) return boolean(*x < *y);
  return op(Opcode::lt, {a, b});
}
Value LaneBuilder::ge_zero(Value a) {
  if (const auto x = known(a)) return boolean(*x >= 0);
  return op(Opcode::ge, {a, zero(dtype(a))});
}
Value LaneBuilder::eq(Value a, Value b) {
  const auto x = known(a), y = known(b);
  if (x && y) return boolean(*x == *y);
  return op(Opcode::eq, {a, b});
}
Value LaneBuilder::select(Value c, Value a, Value b) {
  if (const auto x = known(c)) return *x ? a : b;
  return a == b ? a : op(Opcode::select, {c, a, b});
}
Value LaneBuilder::both(Value a, Value b) {
  if (!a) return b;
  if (!b || a == b) return a;
  const auto x = known(a), y = known(b);
  if (x) return *x ? b : a;
  if (y) return *y ? a : b;
  return op(Opcode::and_, {a, b});
}
Value LaneBuilder::convert(Value v, DType t) {
  if (dtype(v) == t) return v;
  if (const auto x = known(v); x && t == DType::i64) return i64(*x);
  return op(Opcode::convert, {v}, t);
}
Value LaneBuilder::shuffle_xor(Value v, int64_t mask) {
  ir::Op o{.code = Opcode::subgroup_shuffle_xor, .operands = {v}};
  o.set(Attr::mask, mask);
  return b_.one(std::move(o));
}

namespace {
ir::Op access(const LaneBuilder& b, Opcode code, std::vector<Value> operands, Value index) {
  ir::Op o{.code = code, .operands = std::move(operands)};
  if (const auto c = b.known(index)) o.index = {ir::Index::at(*c)};
  else {
    o.index = {ir::Index::at(ir::Index::Dynamic{o.operands.size()})};
    o.operands.push_back(index);
  }
  return o;
}
}  // namespace
Value LaneBuilder::load(Value ref, Value index) { return b_.one(access(*this, Opcode::load, {ref}, index)); }
void LaneBuilder::store(Value ref, Value index, Value v, bool late) {
  ir::Op o = access(*this, Opcode::store, {ref, v}, index);
  if (late) o.set(Attr::late, 1);
  b_.append(std::move(o));
}
void LaneBuilder::async_wait(int64_t groups) {
  ir::Op o{.code = Opcode::async_wait};
  o.set(Attr::count, groups);
  b_.append(std::move(o));
}
Value LaneBuilder::atomic(Opcode kind, Value ref, Value index, Value v, Value compare) {
  const bool swaps = kind == Opcode::atomic_cas;
  ir::Op o = swaps ? access(*this, kind, {ref, v, compare}, index) : access(*this, Opcode::atomic_rmw, {ref, v}, index);
  if (!swaps) o.set(Attr::kind, static_cast<int64_t>(kind));
  if (dtype(v) != dtype(ref)) o.set(Attr::bits, 1);
  return b_.one(std::move(o));
}
Value LaneBuilder::view(Value ref, Value offset) {
  if (known(offset) == 0) return ref;
  return b_.one({.code = Opcode::view, .operands = {ref, convert(offset, DType::i64)}});
}
Value LaneBuilder::pack(std::vector<Value> elements) {
  std::vector<uint32_t> key{UINT32_MAX, static_cast<uint32_t>(Opcode::pack) << 8};
  for (Value v : elements) key.push_back(v.index);
  if (const Value* known = recall(key)) return *known;
  const Value v = b_.one({.code = Opcode::pack, .operands = std::move(elements)});
  remember(std::move(key), v);
  return v;
}

Value LaneBuilder::alloc(Opcode c, DType t, int64_t elements, int64_t offset) {
  const ir::RegionId at = b_.region();
  b_.set_region(prologue_);
  ir::Op o{.code = c};
  o.set(Attr::offset, offset);
  const Value v = b_.one(
      std::move(o),
      ir::Type::ref(t, {elements}, c == Opcode::alloc_shared ? ir::MemorySpace::shared : ir::MemorySpace::global));
  b_.set_region(at);
  return v;
}

const Value* LaneBuilder::recall(const std::vector<uint32_t>& key) const {
  for (auto it = memo_.rbegin(); it != memo_.rend(); ++it)
    if (const auto found = it->find(key); found != it->end()) return &found->second;
  return nullptr;
}

LaneBuilder::Values LaneBuilder::for_loop(Value lower, Value upper, Value step, const Values& init,
                                          FunctionRef<Values(Value, const Values&)> body) {
  return b_.for_loop(lower, upper, step, init, [&](Value iv, const Values& carries) {
    open();
    between(iv, lower, upper);
    Values r = body(iv, carries);
    scope_.pop_back();
    close();
    return r;
  });
}
LaneBuilder::Values LaneBuilder::for_loop(int64_t lower, int64_t upper, const Values& init,
                                          FunctionRef<Values(Value, const Values&)> body) {
  const Value one = i32(1), end = i32(upper);
  return for_loop(i32(lower), end, one, init, body);
}
LaneBuilder::Values LaneBuilder::if_else(Value pred, FunctionRef<Values()> x, FunctionRef<Values()> y) {
  auto scoped = [&](bool holds, FunctionRef<Values()> f) {
    return [this, pred, holds, f] {
      open();
      conditions_.push_back({pred, holds});
      Values r = f();
      conditions_.pop_back();
      close();
      return r;
    };
  };
  return b_.if_else(pred, scoped(true, x), scoped(false, y));
}
void LaneBuilder::between(Value v, Value low, Value end) {
  scope_.push_back({v, low, end});
  bounds_.between(scope_.back());
}
bool LaneBuilder::not_negative(const std::vector<lane::Prover::Term>& sum, Value also) {
  if (!also) return bounds_.not_negative(sum, conditions_, scope_);
  conditions_.push_back({also, true});
  const bool proved = bounds_.not_negative(sum, conditions_, scope_);
  conditions_.pop_back();
  return proved;
}
void LaneBuilder::when(Value pred, FunctionRef<void()> body) {
  if (!pred || known(pred) == 1) return body();
  if (known(pred) == 0) return;
  if_else(
      pred,
      [&] {
        body();
        return Values{};
      },
      [] { return Values{}; });
}

// -- by instructions of the device

namespace {
bool is_extreme(Opcode c) { return c == Opcode::max || c == Opcode::min; }

// A float as an integer of its place in their order: of what is negative all bits but the sign are inverted, which
// undoes itself. A NaN wins: it is the greatest or the least.
Value other_order(LaneBuilder& b, Value bits) {
  const Value signs = b.op(Opcode::shift_right_arithmetic, {bits, b.i32(31)}, DType::i32);
  const Value inverted = b.op(Opcode::and_, {signs, b.i32(INT32_MAX)}, DType::i32);
  return b.op(Opcode::xor_, {bits, inverted}, DType::i32);
}
Value to_order(LaneBuilder& b, Opcode combiner, Value v) {
  const Value x = b.convert(v, DType::f32), nan = b.op(Opcode::ne, {x, x}, DType::boolean);
  const Value place = other_order(b, b.op(Opcode::bitcast, {x}, DType::i32));
  return b.select(nan, b.i32(combiner == Opcode::max ? INT32_MAX : INT32_MIN), place);
}
Value from_order(LaneBuilder& b, Value place, DType t) {
  return b.convert(b.op(Opcode::bitcast, {other_order(b, place)}, DType::f32), t);
}
Value joined(LaneBuilder& b, Opcode how, Opcode combiner, Value v) {
  ir::Op o{.code = how, .operands = {v}};
  o.set(ir::Attr::kind, static_cast<int64_t>(combiner));
  return b.raw().one(std::move(o));
}
}  // namespace

bool joins_lanes(const Target& target, Opcode combiner, DType t) {
  if (!target.subgroup_reductions || !target.subgroup_arithmetic || size_bytes(t) > 4) return false;
  if (is_float(t)) return is_extreme(combiner) || (combiner == Opcode::add && t == DType::f32);
  return combiner != Opcode::mul;
}
Value joined_lanes(LaneBuilder& b, Opcode combiner, Value v) {
  const DType t = b.dtype(v);
  if (!is_float(t) || !is_extreme(combiner)) return joined(b, Opcode::subgroup_reduce, combiner, v);
  return from_order(b, joined(b, Opcode::subgroup_reduce, combiner, to_order(b, combiner, v)), t);
}
Value joined_before(LaneBuilder& b, Opcode combiner, Value v, Value lane, Value identity) {
  const DType t = b.dtype(v);
  if (!is_float(t) || !is_extreme(combiner)) return joined(b, Opcode::subgroup_scan, combiner, v);
  const Value before = from_order(b, joined(b, Opcode::subgroup_scan, combiner, to_order(b, combiner, v)), t);
  return b.select(b.eq(lane, b.i32(0)), identity, before);
}

}  // namespace tessera::lowering
