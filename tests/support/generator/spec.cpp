#include "tests/support/generator/spec.h"

#include <algorithm>
#include <cmath>

#include "codegen/plan/parallel.h"
#include "engine/ir/reference.h"
#include "tests/support/generator/integers.h"

namespace tessera::fuzz {
using ir::BlockDim, ir::BlockMapping, ir::MemorySpace, ir::Opcode, ir::Type, ir::Value;

Spec::Spec(uint64_t seed) : random_(seed), values_(out_.kernel, random_, dtypes(random_)) {
  out_.kernel.name = "fuzz" + std::to_string(seed);
  const double style = static_cast<double>(random_.below(1000)) / 1000;
  size_ = style < 0.12 ? Size::big : style < 0.15 ? Size::huge : style < 0.19 ? Size::many : Size::usual;
  std::vector<Opcode> ops;
  for (int i = 0; i < ir::kNumOpcodes; ++i)
    if (ir::info(static_cast<Opcode>(i)).tile) ops.push_back(static_cast<Opcode>(i));
  values_.favourite = ops[seed % ops.size()];
  values_.plain = random_.chance(0.55);
  values_.sizes.clear();
  for (int64_t n = random_.in(2, 3); n-- > 0;) values_.sizes.push_back(some_size());
}

std::vector<DType> Spec::dtypes(Random& random) {
  if (random.chance(0.25)) return {DType::f32, DType::f32, DType::i32, DType::u32, DType::boolean};
  // parts of a byte
  if (random.chance(0.1)) return {DType::i4, DType::u4, DType::i4, DType::u4, DType::boolean, DType::i32};
  std::vector<DType> all;
  for (int t = 0; t < kNumDTypes; ++t) all.push_back(static_cast<DType>(t));
  if (random.chance(0.4)) {  // much of one
    const DType t = random.pick(all);
    return {t, t, t, DType::i32, random.pick(all)};
  }
  std::vector<DType> some{DType::f32, DType::i32};
  for (int64_t n = random.in(1, 5); n-- > 0;) some.push_back(random.pick(all));
  return some;
}

// -- grid, arrays, Refs

void Spec::grid() {
  ir::Kernel& k = out_.kernel;
  const int64_t rank = random_.chance(0.1)   ? 0
                       : random_.chance(0.6) ? random_.in(1, 2)
                       : random_.chance(0.9) ? random_.in(3, 4)
                                             : random_.in(5, 6);
  const int64_t most_programs = size_ == Size::many ? 2500 : 64;
  vmapped_ = rank > 0 && random_.chance(0.08);
  int64_t programs = 1;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t n = random_.chance(0.05) ? random_.in(1, 40) : random_.in(1, rank > 2 ? 3 : 6);
    if (size_ == Size::many) n = random_.in(1, rank > 2 ? 12 : rank == 2 ? 60 : 2500);
    if (programs * n > most_programs) n = 1;
    ir::GridAxis axis;
    axis.size = n;
    if (random_.chance(0.2)) {
      const int64_t block = random_.in(1, 7);
      axis.size = cdiv(named((n - 1) * block + random_.in(1, block)), Extent(block));
    }
    if (random_.chance(0.004)) n = 0, axis.size = 0;
    axis.vmapped = vmapped_ && i == 0;
    if (random_.chance(0.3)) axis.name = "axis" + std::to_string(i);
    programs *= n;
    grid_.push_back(n);
    k.grid.push_back(axis);
  }
  programs_ = programs;
}

Extent Spec::named(int64_t value) {
  for (const auto& [name, v] : out_.dims)
    if (v == value && random_.chance(0.7)) return Extent::named(name);
  const std::string name = "n" + std::to_string(out_.dims.size());
  out_.dims[name] = value;
  return Extent::named(name);
}

int64_t Spec::some_size() {
  if (size_ == Size::many) return random_.in(1, 4);
  return random_.chance(0.4) ? int64_t{1} << random_.in(1, size_ == Size::big ? 6 : 5)
                             : random_.in(2, size_ == Size::big ? 70 : 24);
}

int64_t Spec::block_size() {
  if (size_ == Size::many) return random_.in(1, 4);
  if (size_ == Size::huge && random_.chance(0.6))
    return random_.chance(0.3) ? int64_t{1} << random_.in(8, 14) : random_.in(200, 12000);
  if (values_.plain && random_.chance(0.9)) return random_.pick(values_.sizes);
  if (size_ == Size::big && random_.chance(0.4)) return random_.in(1, 70);
  return random_.chance(0.15)  ? random_.in(1, 40)
         : random_.chance(0.2) ? int64_t{1} << random_.in(0, 4)
                               : random_.in(1, 9);
}

size_t Spec::visible_axis() { return first_visible() + random_.below(grid_.size() - first_visible()); }

DimMap Spec::dim_map(bool output) {
  DimMap m;
  if (grid_.size() <= first_visible() || random_.chance(0.12)) {
    m.number = output && random_.chance(0.8) ? 0 : random_.in(0, 2);
    m.count = m.number + 1;
    return m;
  }
  m.a = static_cast<int64_t>(visible_axis());
  m.b = static_cast<int64_t>(visible_axis());
  const int64_t na = grid_[static_cast<size_t>(m.a)], nb = grid_[static_cast<size_t>(m.b)];
  const bool data = !prefetch_.empty() && random_.chance(output ? 0.35 : 0.5);
  const size_t operand = data ? random_.below(prefetch_.size()) : 0;
  // An operand without elements has no positions, not even for programs that never run.
  if (data && num_elements(prefetch_[operand].shape) > 0) {
    m.kind = DimMap::Kind::data;
    m.number = static_cast<int64_t>(operand);
    const Prefetch& p = prefetch_[operand];
    for (size_t d = 0; d < p.shape.size(); ++d)
      m.at.push_back(p.permutes >= 0 && random_.chance(0.8) ? p.permutes : static_cast<int64_t>(visible_axis()));
    m.plus = random_.chance(0.15);
    m.count = std::max<int64_t>(p.largest, 0) + (m.plus ? nb : 1);
    return m;
  }
  m.kind = random_.chance(0.75) ? DimMap::Kind::axis
                                : random_.pick(std::vector{DimMap::Kind::sum, DimMap::Kind::half,
                                                           DimMap::Kind::reversed, DimMap::Kind::wrapped});
  switch (m.kind) {
    case DimMap::Kind::constant: break;
    case DimMap::Kind::axis: m.count = na; break;
    case DimMap::Kind::sum: m.count = na + nb - 1; break;
    case DimMap::Kind::half: m.count = (na + 1) / 2; break;
    case DimMap::Kind::reversed: m.number = na - 1, m.count = na; break;
    case DimMap::Kind::wrapped: m.number = random_.in(0, INT32_MAX), m.count = na; break;
    case DimMap::Kind::data: break;
  }
  return m;
}

Value Spec::emit(const DimMap& m, const std::vector<Value>& ids, const std::vector<Value>& refs) {
  if (m.scale != 1 || m.base != 0) {
    DimMap plain = m;
    plain.scale = 1, plain.base = 0;
    const Value scaled =
        values_.b.elementwise(Opcode::mul, {emit(plain, ids, refs), values_.b.constant_int(DType::i32, m.scale)});
    return m.base == 0 ? scaled
                       : values_.b.elementwise(Opcode::add, {scaled, values_.b.constant_int(DType::i32, m.base)});
  }
  ir::Builder& b = values_.b;
  const auto number = [&](int64_t n) { return b.constant_int(DType::i32, n); };
  switch (m.kind) {
    case DimMap::Kind::constant: return number(m.number);
    case DimMap::Kind::axis: return ids[static_cast<size_t>(m.a)];
    case DimMap::Kind::sum:
      return b.elementwise(Opcode::add, {ids[static_cast<size_t>(m.a)], ids[static_cast<size_t>(m.b)]});
    case DimMap::Kind::half: return b.elementwise(Opcode::div, {ids[static_cast<size_t>(m.a)], number(2)});
    case DimMap::Kind::reversed: return b.elementwise(Opcode::sub, {number(m.number), ids[static_cast<size_t>(m.a)]});
    case DimMap::Kind::wrapped:
      return wrapped_int(b, Random(static_cast<uint64_t>(m.number)), ids[static_cast<size_t>(m.a)],
                         ids[static_cast<size_t>(m.b)], m.count);
    case DimMap::Kind::data: {
      ir::Op load{.code = Opcode::load, .operands = {refs[static_cast<size_t>(m.number)]}};
      for (const int64_t axis : m.at) {
        load.index.push_back(ir::Index::at(ir::Index::Dynamic{load.operands.size()}));
        load.operands.push_back(ids[static_cast<size_t>(axis)]);
      }
      const Value v = b.convert(b.one(std::move(load)), DType::i32);
      return m.plus ? b.elementwise(Opcode::add, {v, ids[static_cast<size_t>(m.b)]}) : v;
    }
  }
  return {};
}

// Of every index map but those of scalar-prefetch operands.
std::vector<Type> Spec::map_types() const {
  std::vector<Type> types(grid_.size(), Type::array(DType::i32));
  for (int i = 0; i < out_.kernel.num_prefetch; ++i) types.push_back(out_.kernel.block_ref_type(i));
  return types;
}

// Small whole numbers, at times a permutation of an axis's program ids, at times beyond the arrays' blocks.
void Spec::prefetch() {
  ir::Kernel& k = out_.kernel;
  BlockMapping m;
  m.origin = k.usual_origin(static_cast<int>(k.blocks.size()));
  m.space = MemorySpace::smem;
  m.dtype = random_.chance(0.8) ? DType::i32 : random_.pick(std::vector{DType::i16, DType::u8, DType::u32, DType::i64});
  Prefetch p;
  const bool axes = grid_.size() > first_visible();
  if (axes && random_.chance(0.4)) p.permutes = static_cast<int64_t>(visible_axis());
  if (p.permutes >= 0) p.shape = {grid_[static_cast<size_t>(p.permutes)]};
  else
    for (int64_t rank = axes ? random_.in(1, random_.chance(0.2) ? 2 : 1) : 0; rank-- > 0;)
      p.shape.push_back(random_.in(1, 9));
  Shape shape = p.shape;
  const bool batched = vmapped_ && random_.chance(0.5);
  if (batched) shape.insert(shape.begin(), std::max<int64_t>(grid_[0], 1));
  Array a(shape, m.dtype);
  const int64_t n = std::max<int64_t>(num_elements(p.shape), 1);
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  for (int64_t i = 0; i < a.size(); ++i) {
    if (i % n == 0)
      for (size_t e = order.size(); e > 1; --e) std::swap(order[e - 1], order[random_.below(e)]);
    const int64_t least = is_unsigned_int(m.dtype) ? 0 : -2;
    const int64_t v = p.permutes >= 0       ? order[static_cast<size_t>(i % n)]
                      : random_.chance(0.1) ? random_.in(least, 12)
                                            : random_.in(0, 4);
    a.set_element_bits(i, reference::from_double(m.dtype, static_cast<double>(v)));
    p.largest = std::max(p.largest, random_.chance(0.9) ? v : 0);
  }
  m.array_shape.assign(shape.begin(), shape.end());
  if (batched) {
    m.block().push_back({BlockDim::Squeezed{}});
    for (const int64_t d : p.shape) m.block().push_back({BlockDim::Blocked{d}});
    m.index_map() = values_.b.new_region(std::vector<Type>(grid_.size(), Type::array(DType::i32)));
    values_.b.set_region(m.index_map());
    std::vector<Value> results{k.region(m.index_map()).args[0]};
    for (size_t d = 0; d < p.shape.size(); ++d) results.push_back(values_.b.constant_int(DType::i32, 0));
    values_.b.yield(results);
  } else {
    m.what = BlockMapping::Whole{};
  }
  k.blocks.push_back(m);
  prefetch_.push_back(p);
  maps_.emplace_back(batched ? shape.size() : 0);
  sizes_.emplace_back(batched ? shape.size() : 0);
  shapes_.push_back(shape);
  input_facts_.push_back({12, 0, true, false});
  if (p.permutes >= 0) input_facts_.back().bound = static_cast<double>(n);
  out_.inputs.push_back(std::move(a));
}

void Spec::arrays() {
  ir::Kernel& k = out_.kernel;
  const int num_inputs = static_cast<int>(random_.in(random_.chance(0.05) ? 0 : 1, 3)),
            num_outputs = static_cast<int>(random_.chance(0.68) ? 1 : random_.in(2, 3));
  const int num_prefetch = static_cast<int>(random_.chance(0.22) ? random_.in(1, 2) : 0);
  k.num_inputs = num_prefetch + num_inputs;
  k.num_prefetch = num_prefetch;
  for (int i = 0; i < num_prefetch; ++i) prefetch();
  for (int i = num_prefetch; i < k.num_inputs + num_outputs; ++i) array(i, i >= k.num_inputs);
  if (grid_.size() > first_visible() && random_.chance(0.25)) accumulator_ = static_cast<int>(visible_axis());
  const int64_t num_scratch = random_.chance(0.6) ? 0 : random_.in(1, 2);
  for (int64_t i = 0; i < num_scratch + (accumulator_ >= 0); ++i) {
    Shape shape;
    for (int64_t rank = random_.in(0, values_.plain ? 2 : 3), d = 0; d < rank; ++d)
      shape.push_back(values_.plain ? random_.pick(values_.sizes) : random_.in(1, size_ == Size::many ? 3 : 9));
    k.scratch.push_back(Type::ref(i == num_scratch ? DType::f32 : values_.some_dtype(), shape,
                                  random_.chance(0.15) && shape.empty() ? MemorySpace::smem : MemorySpace::vmem));
  }
  refs();
}

// The body's Refs, one for each block and scratch.
void Spec::refs() {
  ir::Kernel& k = out_.kernel;
  std::vector<Type> args;
  for (size_t i = 0; i < k.blocks.size(); ++i) args.push_back(k.block_ref_type(static_cast<int>(i)));
  args.insert(args.end(), k.scratch.begin(), k.scratch.end());
  k.body = values_.b.new_region(args);
  for (size_t i = 0; i < args.size(); ++i) {
    RefInfo r;
    r.ref = k.region(k.body).args[i];
    r.dtype = args[i].dtype, r.shape = args[i].shape;
    r.block = i < k.blocks.size() ? static_cast<int>(i) : -1;
    if (r.block >= 0 && r.block < k.num_inputs) {
      r.readable = true;
      r.fact = input_facts_[i];
    } else {
      r.stateful = r.block < 0 || random_.chance(0.25);
      // What it may hold: ints and bools anything, floats small whole numbers. Outputs that are never read hold what
      // they get.
      r.fact = {
          r.stateful || !is_float(r.dtype) ? (is_float(r.dtype) ? 100.0 : std::max(exact_limit(r.dtype), 1.0)) : 0.0, 0,
          true, false};
    }
    refs_.push_back(r);
  }
  alias_facts();
}

// An output that is aliased starts with what the input holds, and the input's Ref sees what programs before have
// stored: both hold what either may. Some inputs are stored to as well, which later programs see.
void Spec::alias_facts() {
  const ir::Kernel& k = out_.kernel;
  const auto tame = [&](size_t i) { return !wild(refs_[i].fact) && refs_[i].fact.err == 0 && !refs_[i].fact.dirty; };
  for (size_t i = static_cast<size_t>(k.num_prefetch); i < k.blocks.size(); ++i) {
    RefInfo& r = refs_[i];
    const Fact any{is_float(r.dtype) ? 100.0 : std::max(exact_limit(r.dtype), 1.0), 0, true, false};
    if (const int from = k.blocks[i].alias; from >= 0) {
      r.stateful = r.readable = true;
      r.fact = refs_[static_cast<size_t>(from)].fact = join(any, refs_[static_cast<size_t>(from)].fact);
    } else if (!k.is_output(static_cast<int>(i)) && k.aliased_output(static_cast<int>(i)) < 0 && !vmapped_ && tame(i) &&
               !k.has_halo(static_cast<int>(i)) && random_.chance(0.05)) {
      r.stateful = true;
      r.fact = join(any, r.fact);
    }
  }
}

int64_t Spec::most_elements() const {
  switch (size_) {
    case Size::huge: return 20000;
    case Size::big: return programs_ < 20 ? 6000 : 1100;
    case Size::many: return 12;
    case Size::usual: break;
  }
  return values_.plain ? 1100 : 700;
}

void Spec::index_map(BlockMapping& m, const std::vector<DimMap>& maps, const std::vector<DimMap>& sizes) {
  m.index_map() = values_.b.new_region(map_types());
  values_.b.set_region(m.index_map());
  const std::vector<Value> args = out_.kernel.region(m.index_map()).args,
                           refs(args.begin() + static_cast<std::ptrdiff_t>(grid_.size()), args.end());
  std::vector<Value> results;
  for (size_t d = 0; d < maps.size(); ++d) {
    results.push_back(emit(maps[d], args, refs));
    if (m.block()[d].is_bounded()) results.push_back(emit(sizes[d], args, refs));
  }
  values_.b.yield(results);
}

// Makes a blocked dim one that is indexed by elements, at times. Blocks overlap, meet or leave gaps; some begin before
// the array or reach beyond it.
void Spec::other_block(BlockDim& block, DimMap& map, DimMap& size) {
  const int64_t n = block.size();
  if (!block.is_blocked() || n == 0 || map.kind == DimMap::Kind::data) return;
  if (!random_.chance(0.14)) return;
  const bool bounded = !random_.chance(0.65);
  map.scale = random_.chance(0.4) ? n : random_.in(1, n + 1);
  if (random_.chance(0.15)) map.base = random_.in(-2, 2);
  if (bounded) {
    block = {BlockDim::BoundedSlice{n}};
    size.number = random_.chance(0.3) ? n : random_.in(random_.chance(0.1) ? -1 : 0, n + 1);
    if (random_.chance(0.5) && grid_.size() > first_visible())
      size = {.kind = DimMap::Kind::axis, .a = static_cast<int64_t>(visible_axis()), .base = random_.in(0, 2)};
    return;
  }
  BlockDim::Element padded{n};
  if (random_.chance(0.4)) padded.low = random_.in(0, 3), padded.high = random_.in(0, 3);
  constexpr int64_t kFar = int64_t{1} << 30;  // the most there may be
  if (random_.chance(0.04))
    padded.low = kFar, padded.high = random_.chance(0.6) ? kFar : 1, map.base += kFar - random_.in(0, 4);
  block = {padded};
}

// Makes a blocked dim one with a halo, at times a halo that is larger than block and array.
void Spec::halo(BlockDim& block) {
  if (!block.is_blocked() || block.size() == 0 || !random_.chance(0.12)) return;
  BlockDim::Halo halo{block.size()};
  const auto around = [&] { return random_.chance(0.08) ? random_.in(4, 2 * halo.size + 9) : random_.in(0, 3); };
  halo.edge = static_cast<ir::Edge>(random_.in(0, static_cast<int64_t>(ir::Edge::wrap)));
  halo.low = around();
  halo.high = random_.chance(0.4) ? halo.low : around();
  block = {halo};
}

// An output that starts with an input's contents: in the same blocks, mostly.
bool Spec::aliased_array(int i) {
  ir::Kernel& k = out_.kernel;
  std::vector<int> candidates;
  for (int j = k.num_prefetch; j < k.num_inputs; ++j) {
    const Fact& f = input_facts_[static_cast<size_t>(j)];
    const auto& maps = maps_[static_cast<size_t>(j)];
    const bool batched = !maps.empty() && maps[0].kind == DimMap::Kind::axis && maps[0].a == 0 &&
                         !k.blocks[static_cast<size_t>(j)].block()[0].seen();
    if (k.aliased_output(j) < 0 && !wild(f) && f.err == 0 && (!vmapped_ || batched) && !k.has_halo(j))
      candidates.push_back(j);
  }
  if (candidates.empty()) return false;
  const int from = random_.pick(candidates);
  const auto at = static_cast<size_t>(from);
  BlockMapping m = k.blocks[at];
  m.origin = k.usual_origin(i);
  m.alias = from;
  std::vector<DimMap> maps = maps_[at], sizes = sizes_[at];
  const Shape shape = shapes_[at];
  if (m.is_whole() && !vmapped_ && random_.chance(0.3)) {
    m.what = BlockMapping::Blocks{};
    m.space = random_.chance(0.7) ? MemorySpace::vmem : MemorySpace::any;
    for (const int64_t n : shape)
      m.block().push_back({BlockDim::Blocked{n}}), maps.emplace_back(), sizes.emplace_back();
  } else if (!m.is_whole() && random_.chance(0.35)) {
    int64_t elements = 1;
    for (size_t d = vmapped_ ? 1 : 0; d < shape.size(); ++d) {
      maps[d] = dim_map(true);
      m.block()[d] = random_.chance(0.2) || shape[d] == 0
                         ? BlockDim{BlockDim::Squeezed{}}
                         : BlockDim{BlockDim::Blocked{random_.in(1, std::min<int64_t>(shape[d] + 1, 24))}};
      if (m.block()[d].seen() && elements * m.block()[d].size() > most_elements())
        m.block()[d] = {BlockDim::Blocked{1}};
      other_block(m.block()[d], maps[d], sizes[d]);
      elements *= m.block()[d].size();
    }
  }
  if (!m.is_whole()) index_map(m, maps, sizes);
  k.blocks.push_back(m);
  maps_.push_back(maps);
  sizes_.push_back(sizes);
  shapes_.push_back(shape);
  return true;
}

void Spec::array(int i, bool output) {
  ir::Kernel& k = out_.kernel;
  if (output && random_.chance(0.22) && aliased_array(i)) return;
  BlockMapping m;
  m.origin = k.usual_origin(i);
  // only floats that nobody reads again can take inexact ones
  m.dtype = output && random_.chance(0.35) ? DType::f32 : values_.some_dtype();
  const int64_t rank = random_.chance(0.08) ? 0 : random_.chance(0.75) ? random_.in(1, 2) : random_.in(3, 4);
  Shape shape;
  std::vector<DimMap> maps, sizes;
  if (random_.chance(0.15) && !(output && vmapped_)) {
    m.what = BlockMapping::Whole{};
    m.space = MemorySpace::any;
    for (int64_t d = 0; d < rank; ++d) shape.push_back(random_.in(1, rank > 2 ? 6 : 14));
    m.array_shape.assign(shape.begin(), shape.end());
  } else {
    int64_t elements = 1;
    if (vmapped_ && (output || random_.chance(0.6))) {  // what vmap makes: a dim per element of the batch
      m.block().push_back({BlockDim::Squeezed{}});
      maps.push_back({.kind = DimMap::Kind::axis, .count = grid_[0]});
      sizes.emplace_back();
      shape.push_back(std::max<int64_t>(grid_[0], 1));
      m.array_shape.push_back(shape.back());
    }
    for (int64_t d = 0; d < rank; ++d) {
      DimMap map = dim_map(output);
      BlockDim block{BlockDim::Squeezed{}};
      DimMap size;
      if (!random_.chance(0.2)) {
        const int64_t n = block_size();
        block = {BlockDim::Blocked{elements * n > most_elements() ? random_.in(1, 2) : n}};
      }
      if (!output) halo(block);
      elements *= block.size();
      other_block(block, map, size);
      // Usually as many blocks as the map reaches, at times fewer (clamped) or more.
      int64_t blocks = std::max<int64_t>(1, map.count);
      if (random_.chance(0.12)) blocks = std::max<int64_t>(1, blocks - random_.in(1, 2));
      else if (random_.chance(0.08)) ++blocks;
      int64_t extent = blocks * (block.halo() ? block.unit() : block.size());
      if (block.is_element() || block.is_bounded())
        extent = std::max<int64_t>(
            1, (blocks - 1) * map.scale + block.size() - block.low() - block.high() % (int64_t{1} << 30) + map.base);
      if (random_.chance(0.45)) extent = std::max<int64_t>(1, extent - random_.in(0, block.size() - 1));
      if (random_.chance(0.04)) extent = random_.in(1, block.size());
      if (random_.chance(0.003)) extent = 0;
      const int64_t most = size_ == Size::huge ? 100000 : 40000;  // the lane-level interpreter keeps books per element
      if (num_elements(shape) * extent > most) {
        map = {};
        extent = block.size();
        if (num_elements(shape) * extent > most) extent = 1;
        if (block.seen()) block = {BlockDim::Blocked{extent}};
      }
      // the sum may wrap
      if (!output && random_.chance(0.01))
        map.base = random_.chance(0.5) ? INT32_MAX - random_.in(0, 4) : INT32_MIN + random_.in(0, 4);
      shape.push_back(extent);
      m.block().push_back(block);
      maps.push_back(map);
      sizes.push_back(size);
      m.array_shape.push_back(random_.chance(0.15) ? named(extent) : Extent(extent));
    }
    index_map(m, maps, sizes);
  }
  k.blocks.push_back(m);
  maps_.push_back(maps);
  sizes_.push_back(sizes);
  shapes_.push_back(shape);
  if (!output) input(m.dtype, shape);
}

void Spec::input(DType t, const Shape& shape) {
  Array a(shape, t);
  Fact f{8, 0, true, false};
  const int style = static_cast<int>(random_.below(4));
  if (t == DType::boolean) f.bound = 1;
  else if (is_int(t) && style == 0) f.bound = std::max(exact_limit(t), 1.0);
  else if (is_float(t) && random_.chance(0.1)) return wild_input(std::move(a));
  else if (is_float(t) && style == 0) f = {3, 0, false, false};
  else if (is_unsigned_int(t)) f.bound = 16;
  for (int64_t i = 0; i < a.size(); ++i) {
    if (t == DType::boolean) a.set_element_bits(i, random_.next() & 1);
    else if (is_int(t) && style == 0)
      a.set_element_bits(i, bits(t) == 64 ? random_.next() : random_.next() & ((uint64_t{1} << bits(t)) - 1));
    else if (is_float(t) && style == 0)
      a.set_element_bits(i, reference::from_double(t, static_cast<double>(random_.in(-24, 24)) / 8));
    else
      a.set_element_bits(i, reference::from_double(
                                t, static_cast<double>(is_unsigned_int(t) ? random_.in(0, 16) : random_.in(-8, 8))));
  }
  out_.inputs.push_back(std::move(a));
  input_facts_.push_back(f);
}

// Not a number, infinities, zeros of both signs and the largest among ordinary numbers; no subnormals, which devices
// may flush.
void Spec::wild_input(Array a) {
  const DType t = a.dtype();
  const double most = t == DType::bf16  ? 3e38
                      : t == DType::f32 ? 3.4e38
                      : t == DType::f64 ? 1e308
                                        : reference::to_double(t, float_format(t).greatest);
  const std::vector<double> special{NAN, INFINITY, -INFINITY, 0.0, -0.0, most, -most, 0.5, -1};
  for (int64_t i = 0; i < a.size(); ++i)
    a.set_element_bits(
        i, reference::from_double(
               t, random_.chance(0.4) ? random_.pick(special) : static_cast<double>(random_.in(-50, 50)) / 8));
  out_.inputs.push_back(std::move(a));
  input_facts_.push_back({INFINITY, 0, false, false});
}

// Axes along which programs share nothing: every output has a dim of distinct blocks along it, and scratch is written
// before it is read.
void Spec::declare_parallel() {
  for (size_t axis = first_visible(); axis < grid_.size(); ++axis) {
    bool free = !persistent_ && (accumulator_ < 0 || static_cast<int>(axis) < accumulator_);
    // no input is stored to
    for (const RefInfo& r : refs_) free &= r.block < 0 || r.block >= out_.kernel.num_inputs || !r.stateful;
    for (size_t i = static_cast<size_t>(out_.kernel.num_inputs); i < out_.kernel.blocks.size(); ++i) {
      bool distinct = false;
      const int from = out_.kernel.blocks[i].alias;
      // Where it is aliased to an input with other blocks, programs read what others store.
      const bool alone = from < 0 || lowering::same_blocks(out_.kernel, from, static_cast<int>(i));
      for (size_t d = 0; d < maps_[i].size() && alone; ++d) {
        const BlockDim& block = out_.kernel.blocks[i].block()[d];
        if (block.is_element() || block.is_bounded()) continue;
        const DimMap& m = maps_[i][d];
        const int64_t at = static_cast<int64_t>(axis);
        const bool permuted = m.kind == DimMap::Kind::data && !m.plus && m.at == std::vector{at} &&
                              prefetch_[static_cast<size_t>(m.number)].permutes == at;
        // Blocks that begin near the limits of i32 are all the first one, or the last.
        const bool near = m.base == 0 && m.scale == 1;
        distinct |= near && (permuted || (m.kind == DimMap::Kind::axis && m.a == at)) &&
                    cdiv(shapes_[i][d], block.size()) >= grid_[axis];
      }
      free &= distinct;
    }
    if (free) out_.kernel.grid[axis].parallel = true;
  }
}

bool Spec::hangs_over(const RefInfo& r) const {
  const BlockMapping& m = out_.kernel.blocks[static_cast<size_t>(r.block)];
  for (size_t d = 0; d < m.array_shape.size() && !m.is_whole(); ++d)
    if (m.block()[d].halo()) continue;
    else if (m.block()[d].is_bounded() || m.block()[d].low() || m.block()[d].high() ||
             shapes_[static_cast<size_t>(r.block)][d] % m.block()[d].size() != 0 ||
             shapes_[static_cast<size_t>(r.block)][d] == 0)
      return true;
  return false;
}

}  // namespace tessera::fuzz
