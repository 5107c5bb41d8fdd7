#include "engine/ir/builder.h"

#include <bit>

namespace tessera::ir {

RegionId Builder::new_region(const std::vector<Type>& args) {
  const RegionId r{static_cast<uint32_t>(k_.regions.size())};
  k_.regions.emplace_back();
  for (const Type& t : args) add_arg(r, t);
  return r;
}

Value Builder::add_arg(RegionId r, const Type& t) {
  const Value v{static_cast<uint32_t>(k_.values.size())};
  k_.values.push_back({t, {}, r, static_cast<uint32_t>(k_.region(r).args.size())});
  k_.region(r).args.push_back(v);
  return v;
}

OpId Builder::append(Op op, const Type& requested) {
  if (!op.loc) op.loc = loc_;
  const std::vector<Type> types = infer(k_, op, requested);
  const OpId id{static_cast<uint32_t>(k_.ops.size())};
  op.results.clear();
  for (const Type& t : types) {
    op.results.push_back({static_cast<uint32_t>(k_.values.size())});
    k_.values.push_back({t, id, {}, static_cast<uint32_t>(op.results.size() - 1)});
  }
  k_.ops.push_back(std::move(op));
  k_.region(at_).ops.push_back(id);
  return id;
}

Value Builder::elementwise(Opcode c, std::vector<Value> operands, DType result) {
  return one({.code = c, .operands = std::move(operands)}, Type::array(result));
}

Value Builder::constant(DType t, uint64_t bits, Shape shape) {
  Op op{.code = Opcode::constant};
  op.set(Attr::bits, static_cast<int64_t>(bits));
  return one(std::move(op), Type::array(t, std::move(shape)));
}

Value Builder::constant_int(DType t, int64_t v, Shape shape) {
  if (is_float(t)) return constant_float(t, static_cast<double>(v), std::move(shape));
  if (t == DType::boolean) return constant(t, v != 0, std::move(shape));
  const int n = bits(t);
  return constant(t, static_cast<uint64_t>(v) & (n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1), std::move(shape));
}

Value Builder::constant_float(DType t, double v, Shape shape) {
  if (!is_float(t)) throw InternalError("constant_float of " + std::string(tessera::name(t)), loc_);
  const uint64_t b = t == DType::f64   ? std::bit_cast<uint64_t>(v)
                     : t == DType::f32 ? std::bit_cast<uint32_t>(static_cast<float>(v))
                                       : to_narrow_bits(t, v);
  return constant(t, b, std::move(shape));
}

Value Builder::convert(Value v, DType t) { return k_.type(v).dtype == t ? v : elementwise(Opcode::convert, {v}, t); }

Value Builder::broadcast(Value v, Shape shape, std::vector<int64_t> dims) {
  if (k_.type(v).shape == shape) return v;
  Op op{.code = Opcode::broadcast, .operands = {v}};
  op.set(Attr::dims, std::move(dims));
  return one(std::move(op), Type::array(k_.type(v).dtype, std::move(shape)));
}

void Builder::yield(std::vector<Value> values) { append({.code = Opcode::yield, .operands = std::move(values)}); }

std::vector<Value> Builder::for_loop(Value lower, Value upper, Value step, const std::vector<Value>& init,
                                     FunctionRef<std::vector<Value>(Value, const std::vector<Value>&)> body) {
  std::vector<Type> types{Type::array(DType::i32)};
  for (Value v : init) types.push_back(k_.type(v));
  const RegionId r = new_region(types), outer = at_;
  const std::vector<Value> args = k_.region(r).args;
  at_ = r;
  yield(body(args[0], {args.begin() + 1, args.end()}));
  at_ = outer;
  Op op{.code = Opcode::for_, .operands = {lower, upper, step}, .regions = {r}};
  op.operands.insert(op.operands.end(), init.begin(), init.end());
  return k_.op(append(std::move(op))).results;
}

std::vector<Value> Builder::if_else(Value pred, FunctionRef<std::vector<Value>()> then_body,
                                    FunctionRef<std::vector<Value>()> else_body) {
  const RegionId outer = at_, a = new_region({}), b = new_region({});
  at_ = a;
  yield(then_body());
  at_ = b;
  yield(else_body());
  at_ = outer;
  return k_.op(append({.code = Opcode::if_, .operands = {pred}, .regions = {a, b}})).results;
}

void Builder::when(Value pred, FunctionRef<void()> body) {
  if_else(
      pred,
      [&] {
        body();
        return std::vector<Value>{};
      },
      [] { return std::vector<Value>{}; });
}

}  // namespace tessera::ir
