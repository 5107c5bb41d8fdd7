#include "tests/fuzz/rewriter.h"

#include <algorithm>
#include <set>

#include "engine/interpreter/interpreter.h"

namespace tessera::fuzz {
using ir::Attr, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Type, ir::Value;

void Rewriter::collect(RegionId r, std::vector<Spot>& list) const {
  for (size_t i = 0; i + 1 < k.region(r).ops.size(); ++i) {
    list.push_back({r, i});
    for (const RegionId inner : k.op(k.region(r).ops[i]).regions) collect(inner, list);
  }
}

std::vector<Spot> Rewriter::spots(bool maps) const {
  std::vector<Spot> list;
  collect(k.body, list);
  if (maps)
    for (const ir::BlockMapping& b : k.blocks)
      if (!b.is_whole()) collect(b.index_map(), list);
  return list;
}

std::vector<RegionId> Rewriter::regions(bool maps) const {
  std::vector<RegionId> list{k.body};
  for (const Spot& s : spots())
    for (const RegionId r : k.op(k.region(s.region).ops[s.at]).regions) list.push_back(r);
  if (maps)
    for (const ir::BlockMapping& b : k.blocks)
      if (!b.is_whole()) list.push_back(b.index_map());
  return list;
}

std::vector<std::pair<Value, Spot>> Rewriter::values(bool maps) const {
  std::vector<std::pair<Value, Spot>> list;
  std::set<Value> used;
  for (const Spot& s : spots(maps))
    for (const Value v : k.op(k.region(s.region).ops[s.at]).operands) used.insert(v);
  for (const RegionId r : regions(maps))
    for (const Value v : k.terminator(r).operands) used.insert(v);
  const auto wanted = [&](Value v) { return !k.type(v).is_ref && used.contains(v); };
  for (const Spot& s : spots(maps)) {
    const Op& op = k.op(k.region(s.region).ops[s.at]);
    for (const Value v : op.results)
      if (wanted(v)) list.emplace_back(v, Spot{s.region, s.at + 1});
    for (const RegionId r : op.regions)
      for (const Value v : k.region(r).args)
        if (wanted(v)) list.emplace_back(v, Spot{r, 0});
  }
  return list;
}

bool Rewriter::in_map(RegionId r) const {
  return std::any_of(k.blocks.begin(), k.blocks.end(),
                     [&](const ir::BlockMapping& b) { return !b.is_whole() && b.index_map() == r; });
}

OpId Rewriter::insert(Spot& s, Op op, const Type& requested) {
  ir::Builder b(k);
  b.set_region(s.region);
  b.set_loc(k.loc);
  const OpId id = b.append(std::move(op), requested);
  auto& ops = k.region(s.region).ops;
  ops.pop_back();
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(s.at), id);
  ++s.at;
  return id;
}

Value Rewriter::constant(Spot& s, const Type& t, uint64_t bits) {
  Op op{.code = Opcode::constant};
  op.set(Attr::bits, static_cast<int64_t>(bits));
  return one(s, std::move(op), t);
}

Value Rewriter::reshape(Spot& s, Value v, const Shape& shape) {
  return one(s, {.code = Opcode::reshape, .operands = {v}}, Type::array(k.type(v).dtype, shape));
}

Value Rewriter::broadcast(Spot& s, Value scalar, const Shape& shape) {
  if (shape.empty()) return scalar;
  Op op{.code = Opcode::broadcast, .operands = {scalar}};
  op.set(Attr::dims, std::vector<int64_t>{});
  return one(s, std::move(op), Type::array(k.type(scalar).dtype, shape));
}

Value Rewriter::convert(Spot& s, Value v, DType t) {
  return k.type(v).dtype == t ? v : elementwise(s, Opcode::convert, {v}, t);
}

Value Rewriter::number(Spot& s, int64_t v) {
  if (in_map(s.region)) {
    if (prefetched_ < 0 || used_ == kPrefetched) return constant_i32(s, v);
    c.inputs[static_cast<size_t>(prefetched_)].set_element_bits(used_, static_cast<uint32_t>(v));
    const Value ref = k.region(s.region).args[k.grid.size() + static_cast<size_t>(prefetched_)];
    return one(s, {.code = Opcode::load, .operands = {ref}, .index = {ir::Index::at(used_++)}});
  }
  if (v >= 0 && random.chance(0.4)) {
    Op op{.code = Opcode::size};
    op.set(Attr::index, static_cast<int64_t>(k.sizes.size()));
    k.sizes.push_back(dynamic(v));
    return one(s, std::move(op));
  }
  return element(s, DType::i32, static_cast<uint32_t>(v));
}

Value Rewriter::element(Spot& s, DType t, uint64_t bits) {
  const bool by_value = random.chance(0.6);
  Array a(by_value ? Shape{} : Shape{3}, t);
  for (int64_t i = 0; i < a.size(); ++i) a.set_element_bits(i, by_value || i == 1 ? bits : 0);
  const Value ref = add_input(a, by_value);
  Op load{.code = Opcode::load, .operands = {ref}};
  if (!by_value) load.index = {ir::Index::at(1)};
  return one(s, std::move(load));
}

Value Rewriter::truth(Spot& s) {
  const Value n = number(s, random.in(1, 3)), zero = constant_i32(s, 0);
  return random.chance(0.5) ? elementwise(s, Opcode::lt, {zero, n}, DType::boolean)
                            : elementwise(s, Opcode::ne, {n, zero}, DType::boolean);
}

Value Rewriter::garbage(Spot& s, const Type& t) {
  const uint64_t all = bits(t.dtype) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t.dtype)) - 1;
  return constant(s, t, t.dtype == DType::boolean ? random.next() & 1 : random.chance(0.5) ? 0 : random.next() & all);
}

void Rewriter::replace_uses(Value from, Value to, size_t first) {
  for (size_t i = 0; i < first; ++i)
    for (Value& v : k.ops[i].operands)
      if (v == from) v = to;
}

void Rewriter::erase(const Spot& s) {
  auto& ops = k.region(s.region).ops;
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(s.at));
}

std::vector<Spot> Rewriter::uses(Value v) const {
  std::vector<Spot> list;
  for (const Spot& s : spots(true)) {
    const Op& op = k.op(k.region(s.region).ops[s.at]);
    if (std::find(op.operands.begin(), op.operands.end(), v) != op.operands.end()) list.push_back(s);
  }
  return list;
}

Extent Rewriter::named(int64_t value) {
  for (const auto& [name, size] : c.dims)
    if (size == value && name.starts_with("rw") && random.chance(0.5)) return Extent::named(name);
  size_t number = c.dims.size();
  while (c.dims.count("rw" + std::to_string(number))) ++number;  // where others are gone
  const std::string name = "rw" + std::to_string(number);
  c.dims[name] = value;
  return Extent::named(name);
}

Extent Rewriter::dynamic(int64_t value) {
  const int64_t part = random.in(2, 5);
  if (value > 1 << 24) return named(value);  // a size is an i32
  if (value > 0 && value % part == 0 && random.chance(0.2)) return named(value / part) * Extent(part);
  if (value > 0 && random.chance(0.15)) return cdiv(named(value * part - random.in(0, part - 1)), Extent(part));
  if (random.chance(0.1)) return named(value + part) - Extent(part);
  return named(value);
}

void Rewriter::renumber(RegionId r) {
  const std::vector<Value>& args = k.region(r).args;
  for (size_t i = 0; i < args.size(); ++i) k.values[args[i].index].number = static_cast<uint32_t>(i);
}

void Rewriter::prefetch() {
  if (k.has_threads()) return;
  for (int i = 0; i < k.num_prefetch; ++i)
    if (!k.blocks[static_cast<size_t>(i)].is_whole()) return;  // vmap's, whose index maps see fewer Refs
  const Array a({kPrefetched}, DType::i32);
  const Value ref = add_input(a, false);
  prefetched_ = k.num_prefetch;
  const auto from = static_cast<std::ptrdiff_t>(k.num_inputs) - 1, to = static_cast<std::ptrdiff_t>(prefetched_);
  const auto move = [&](auto& list) { std::rotate(list.begin() + to, list.begin() + from, list.begin() + from + 1); };
  move(k.blocks), move(c.inputs), move(k.region(k.body).args);
  ++k.num_prefetch;
  k.blocks[static_cast<size_t>(prefetched_)].space = ir::MemorySpace::smem;
  k.values[ref.index].type.space = ir::MemorySpace::smem;
  renumber(k.body);
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    ir::BlockMapping& b = k.blocks[i];
    b.origin = k.usual_origin(static_cast<int>(i));
    if (b.alias >= prefetched_) ++b.alias;
    if (b.is_whole()) continue;
    auto& args = k.region(b.index_map()).args;
    args.insert(args.begin() + static_cast<std::ptrdiff_t>(k.grid.size()) + to,
                {static_cast<uint32_t>(k.values.size())});
    k.values.push_back({k.type(ref), {}, b.index_map(), 0});
    renumber(b.index_map());
  }
}

Value Rewriter::add_input(Array a, bool by_value) {
  ir::BlockMapping b;
  b.dtype = a.dtype();
  for (const int64_t n : a.shape()) b.array_shape.emplace_back(n);
  if (by_value) b.what = ir::BlockMapping::ByValue{};
  else b.what = ir::BlockMapping::Whole{};
  b.space = by_value ? ir::MemorySpace::smem : ir::MemorySpace::any;
  b.loc = k.loc;
  const auto at = static_cast<std::ptrdiff_t>(k.num_inputs);
  b.origin = k.usual_origin(k.num_inputs);
  k.blocks.insert(k.blocks.begin() + at, b);
  c.inputs.push_back(a);
  const Value v{static_cast<uint32_t>(k.values.size())};
  k.values.push_back({Type::ref(a.dtype(), a.shape(), b.space), {}, k.body, 0});
  auto& args = k.region(k.body).args;
  args.insert(args.begin() + at, v);
  renumber(k.body);
  ++k.num_inputs;
  for (size_t i = 0; i < k.blocks.size(); ++i) k.blocks[i].origin = k.usual_origin(static_cast<int>(i));
  return v;
}

Value Rewriter::add_scratch(const Type& t) {
  const Value v{static_cast<uint32_t>(k.values.size())};
  auto& args = k.region(k.body).args;
  k.values.push_back({t, {}, k.body, static_cast<uint32_t>(args.size())});
  args.push_back(v);
  k.scratch.push_back(t);
  ++k.num_private_scratch;
  return v;
}

Shape Rewriter::shape(size_t i) const { return bind_shape(k, static_cast<int>(i), c.dims); }

}  // namespace tessera::fuzz
