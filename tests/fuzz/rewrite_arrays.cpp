// Rewritings of arrays and blocks: sizes that arrive with the call, dims, other kinds of windows, other dtypes.
#include <algorithm>
#include <numeric>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "tests/fuzz/rewriter.h"

namespace tessera::fuzz {
using ir::Attr, ir::BlockDim, ir::BlockMapping, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {
Array permuted(const Array& a, const std::vector<int64_t>& perm) {  // result dim i is dim perm[i]
  Shape shape;
  for (const int64_t p : perm) shape.push_back(a.shape()[static_cast<size_t>(p)]);
  Array r(shape, a.dtype());
  for (int64_t i = 0; i < r.size(); ++i) {
    Shape at(perm.size());
    int64_t left = i, from = 0;
    for (size_t d = perm.size(); d-- > 0;) at[static_cast<size_t>(perm[d])] = left % shape[d], left /= shape[d];
    for (size_t d = 0; d < perm.size(); ++d) from = from * a.shape()[d] + at[d];
    r.set_element_bits(i, a.element_bits(from));
  }
  return r;
}

Array resized(const Array& a, const Shape& shape, uint64_t fill) {  // along each dim cropped, or filled behind its end
  Array r(shape, a.dtype());
  for (int64_t i = 0; i < r.size(); ++i) {
    int64_t left = i, from = 0, scale = 1;
    bool inside = true;
    for (size_t d = shape.size(); d-- > 0; left /= shape[d]) {
      const int64_t at = left % shape[d];
      inside = inside && at < a.shape()[d];
      from += at * scale;
      scale *= a.shape()[d];
    }
    r.set_element_bits(i, inside ? a.element_bits(from) : fill);
  }
  return r;
}

bool in_pair(const ir::Kernel& k, size_t i) {
  return k.blocks[i].alias >= 0 || (!k.is_output(static_cast<int>(i)) && k.aliased_output(static_cast<int>(i)) >= 0);
}

Value argument(const Rewriter& e, size_t i) { return e.k.region(e.k.body).args[i]; }

// Whether all that takes the Ref is a load, store, swap, addupdate or atomic, none with arrays in its index if so
// asked.
bool only_accessed(const Rewriter& e, Value ref, bool no_arrays) {
  for (const Spot& s : e.uses(ref)) {
    const Op& op = e.k.op(e.k.region(s.region).ops[s.at]);
    if (!ir::accesses_ref(op.code) || op.operands[0] != ref || op.code == Opcode::semaphore_read) return false;
    if (ir::is_copy(op.code) || ir::is_thread_copy(op.code)) return false;
    if (no_arrays && ir::access_dims(e.k, op).arrays) return false;
  }
  return true;
}

// The blocks that f holds for, in random order.
template <class F> std::vector<size_t> chosen_blocks(Rewriter& e, const F& f) {
  std::vector<size_t> list;
  for (size_t i = 0; i < e.k.blocks.size(); ++i)
    if (f(i)) list.push_back(i);
  e.random.shuffle(list);
  return list;
}

// Each access gets position 0 in a further dim of the Ref.
void index_one_more(Rewriter& e, Value ref, size_t dim, bool dynamic) {
  std::vector<ir::OpId> ids;
  for (const Spot& s : e.uses(ref)) ids.push_back(e.k.region(s.region).ops[s.at]);
  for (const ir::OpId id : ids) {
    ir::Index index = ir::Index::at(0);
    if (dynamic && e.random.chance(0.3)) {
      Spot place;
      for (const Spot& s : e.uses(ref))
        if (e.k.region(s.region).ops[s.at] == id) place = s;
      const Value zero = e.number(place, 0);
      index.start() = ir::Index::Dynamic{e.k.op(id).operands.size()};
      e.k.op(id).operands.push_back(zero);
    }
    auto& list = e.k.op(id).index;
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(dim), index);
  }
}

void insert_ref_dim(Rewriter& e, Value ref, size_t dim) {
  Shape& shape = e.k.values[ref.index].type.shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), 1);
}

size_t seen_before(const BlockMapping& b, size_t d) {
  return static_cast<size_t>(std::count_if(b.block().begin(), b.block().begin() + static_cast<std::ptrdiff_t>(d),
                                           [](const BlockDim& x) { return x.seen(); }));
}
}  // namespace

// Static sizes of arrays with blocks, and of the grid, arrive with the call.
bool rewrite_sizes(Rewriter& e) {
  ir::Kernel& k = e.k;
  bool any = false;
  const double share = e.random.chance(0.5) ? 1 : 0.5;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    BlockMapping& b = k.blocks[i];
    if (b.is_whole()) continue;
    if (b.alias >= 0) {
      b.array_shape = k.blocks[static_cast<size_t>(b.alias)].array_shape;
      continue;
    }
    for (Extent& n : b.array_shape)
      if (n.is_static() && e.random.chance(share)) {
        const Extent other = e.dynamic(*n.value());
        // what is aliased to a whole array is static
        const int out = k.is_output(static_cast<int>(i)) ? -1 : k.aliased_output(static_cast<int>(i));
        if (out >= 0 && k.blocks[static_cast<size_t>(out)].is_whole()) continue;
        n = other;
        any = true;
      }
  }
  for (size_t i = 0; i < k.blocks.size(); ++i)
    if (k.blocks[i].alias >= 0 && !k.blocks[i].is_whole())
      k.blocks[i].array_shape = k.blocks[static_cast<size_t>(k.blocks[i].alias)].array_shape;
  for (ir::GridAxis& a : k.grid)
    if (a.size.is_static() && a.role == ir::GridAxis::Role::grid && e.random.chance(share))
      a.size = e.dynamic(*a.size.value()), any = true;
  return any;
}

// A dim of 1 in an array, seen by the kernel or not, whose index may be anything, for it is clamped.
bool rewrite_array_dim(Rewriter& e) {
  ir::Kernel& k = e.k;
  if (e.random.chance(0.5)) e.prefetch();
  for (const size_t i : chosen_blocks(e, [&](size_t n) {
         return !k.blocks[n].is_by_value() && !in_pair(k, n) && static_cast<int>(n) >= k.num_prefetch &&
                only_accessed(e, argument(e, n), true);
       })) {
    const Value ref = argument(e, i);
    BlockMapping* b = &k.blocks[i];
    const size_t d = e.random.below(b->array_shape.size() + 1);
    const auto at = static_cast<std::ptrdiff_t>(d);
    size_t seen = d;
    if (!b->is_whole()) {
      const bool squeezed = e.random.chance(0.4);
      seen = seen_before(*b, d);
      const size_t result = k.map_result(static_cast<int>(i), d);
      BlockDim dim{BlockDim::Squeezed{}};
      if (!squeezed) dim = e.random.chance(0.3) ? BlockDim{BlockDim::Element{1}} : BlockDim{BlockDim::Blocked{1}};
      Spot s{b->index_map(), k.region(b->index_map()).ops.size() - 1};
      const std::vector<Value> args = k.region(b->index_map()).args;
      const Value index = !k.grid.empty() && e.random.chance(0.4) ? args[e.random.below(k.grid.size())]
                          : e.random.chance(0.5)                  ? e.number(s, 0)
                                                                  : e.constant_i32(s, 0);
      b = &k.blocks[i];
      Op& yield = k.op(k.region(b->index_map()).ops.back());
      yield.operands.insert(yield.operands.begin() + static_cast<std::ptrdiff_t>(result), index);
      b->block().insert(b->block().begin() + at, dim);
      b->array_shape.insert(b->array_shape.begin() + at, e.random.chance(0.5) ? Extent(1) : e.dynamic(1));
      if (squeezed) seen = SIZE_MAX;
    } else {
      b->array_shape.insert(b->array_shape.begin() + at, Extent(1));
    }
    const auto with_dim = [d](const Array& a) {
      Shape shape = a.shape();
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d), 1);
      Array r(shape, a.dtype());
      for (int64_t n = 0; n < r.size(); ++n) r.set_element_bits(n, a.element_bits(n));
      return r;
    };
    if (!k.is_output(static_cast<int>(i))) {
      e.c.inputs[i] = with_dim(e.c.inputs[i]);
    } else {
      e.undo.emplace_back([d, o = i - static_cast<size_t>(k.num_inputs)](std::vector<Array>& outputs) {
        Shape shape = outputs[o].shape();
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
        outputs[o] = resized(outputs[o], outputs[o].shape(), 0);
        Array r(shape, outputs[o].dtype());
        for (int64_t n = 0; n < r.size(); ++n) r.set_element_bits(n, outputs[o].element_bits(n));
        outputs[o] = r;
      });
    }
    if (seen != SIZE_MAX) {
      insert_ref_dim(e, ref, seen);
      index_one_more(e, ref, seen, true);
    }
    return true;
  }
  return false;
}

// A squeezed dim becomes one of 1 that the kernel sees, and the other way.
bool rewrite_squeezed(Rewriter& e) {
  ir::Kernel& k = e.k;
  bool any = false;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    if (k.blocks[i].is_whole() || !only_accessed(e, argument(e, i), true)) continue;
    const Value ref = argument(e, i);
    for (size_t d = 0; d < k.blocks[i].block().size(); ++d) {
      BlockDim& dim = k.blocks[i].block()[d];
      if (!dim.seen() && e.random.chance(0.7)) {
        dim = {BlockDim::Blocked{1}};
        const size_t seen = seen_before(k.blocks[i], d);
        insert_ref_dim(e, ref, seen);
        index_one_more(e, ref, seen, false);
        any = true;
      } else if (dim.is_blocked() && dim.size() == 1 && e.random.chance(0.7)) {
        const size_t seen = seen_before(k.blocks[i], d);
        const std::vector<Spot> uses = e.uses(ref);
        if (!std::all_of(uses.begin(), uses.end(), [&](const Spot& s) {
              const ir::Index& x = e.op_at(s).index[seen];
              return x.is_integer() && x.is_static();
            }))
          continue;
        for (const Spot& s : uses) {
          auto& index = e.op_at(s).index;
          index.erase(index.begin() + static_cast<std::ptrdiff_t>(seen));
        }
        Shape& shape = k.values[ref.index].type.shape;
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(seen));
        dim = {BlockDim::Squeezed{}};
        any = true;
      }
    }
  }
  return any;
}

namespace {
// The value of an access as it was, or as the access now takes it: slices moved.
void turn_access(Rewriter& e, const Spot& at, const std::vector<int64_t>& perm) {
  const ir::OpId id = e.k.region(at.region).ops[at.at];
  const std::vector<ir::Index> old = e.k.op(id).index;
  std::vector<ir::Index> now;
  std::vector<int64_t> order, rank(old.size(), -1);  // of the slices
  for (size_t d = 0, n = 0; d < old.size(); ++d)
    if (old[d].slice()) rank[d] = static_cast<int64_t>(n++);
  for (const int64_t p : perm) {
    now.push_back(old[static_cast<size_t>(p)]);
    if (rank[static_cast<size_t>(p)] >= 0) order.push_back(rank[static_cast<size_t>(p)]);
  }
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  e.k.op(id).index = now;
  if (std::is_sorted(order.begin(), order.end())) return;
  const auto turned = [&](Spot& s, Value v, const std::vector<int64_t>& p) {
    Op op{.code = Opcode::transpose, .operands = {v}};
    op.set(Attr::perm, p);
    return e.one(s, std::move(op));
  };
  Spot s = at;
  const Op& o = e.k.op(id);
  std::vector<int> values;
  if (o.value_position() >= 0) values.push_back(o.value_position());
  if (o.code == Opcode::atomic_cas) values.push_back(2);
  if (o.has_mask()) values.push_back(o.mask_position());
  if (o.has_other()) values.push_back(o.other_position());
  for (const int n : values) {
    const Value v = e.k.op(id).operands[static_cast<size_t>(n)];
    if (e.k.type(v).shape.size() != order.size()) continue;
    const Value w = turned(s, v, order);
    e.k.op(id).operands[static_cast<size_t>(n)] = w;
  }
  if (e.k.op(id).results.empty()) return;
  const Value result = e.k.op(id).results[0];
  Shape shape;
  for (const int64_t p : order) shape.push_back(e.k.type(result).shape[static_cast<size_t>(p)]);
  e.k.values[result.index].type.shape = shape;
  const size_t first = e.k.ops.size();
  ++s.at;
  e.replace_uses(result, turned(s, result, back), first);
}
}  // namespace

// Two dims of an array swapped, in the array, the block and the accesses.
bool rewrite_transposed(Rewriter& e) {
  ir::Kernel& k = e.k;
  for (const size_t i : chosen_blocks(e, [&](size_t n) {
         const BlockMapping& b = k.blocks[n];
         return b.array_shape.size() > 1 && !in_pair(k, n) && static_cast<int>(n) >= k.num_prefetch &&
                only_accessed(e, argument(e, n), true) && e.uses(argument(e, n)).size() < 20;
       })) {
    BlockMapping& b = k.blocks[i];
    const size_t rank = b.array_shape.size(), x = e.random.below(rank), y = (x + 1 + e.random.below(rank - 1)) % rank;
    std::vector<int64_t> perm(rank), seen;
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[x], perm[y]);
    const Value ref = argument(e, i);
    if (b.is_whole()) {
      seen = perm;
    } else {
      std::vector<Value> yields;
      Op& yield = k.op(k.region(b.index_map()).ops.back());
      std::vector<BlockDim> block;
      for (const int64_t p : perm) {
        const auto d = static_cast<size_t>(p);
        for (size_t r = 0; r < b.block()[d].results(); ++r)
          yields.push_back(yield.operands[k.map_result(static_cast<int>(i), d) + r]);
        block.push_back(b.block()[d]);
        if (b.block()[d].seen()) seen.push_back(static_cast<int64_t>(seen_before(b, d)));
      }
      yield.operands = yields;
      b.block() = block;
    }
    std::vector<Extent> extents;
    for (const int64_t p : perm) extents.push_back(b.array_shape[static_cast<size_t>(p)]);
    b.array_shape = extents;
    Shape shape;
    for (const int64_t p : seen) shape.push_back(k.type(ref).shape[static_cast<size_t>(p)]);
    k.values[ref.index].type.shape = shape;
    const std::vector<Value> refs{ref};
    std::vector<ir::OpId> ids;
    for (const Spot& s : e.uses(ref)) ids.push_back(k.region(s.region).ops[s.at]);
    for (const ir::OpId id : ids)
      for (const Spot& s : e.uses(ref))
        if (k.region(s.region).ops[s.at] == id) {
          turn_access(e, s, seen);
          break;
        }
    if (!k.is_output(static_cast<int>(i))) e.c.inputs[i] = permuted(e.c.inputs[i], perm);
    else
      e.undo.emplace_back([perm, o = i - static_cast<size_t>(k.num_inputs)](std::vector<Array>& outputs) {
        outputs[o] = permuted(outputs[o], perm);  // its own inverse
      });
    return true;
  }
  return false;
}

// An array with room behind its end: what was overhang is elements now, and other blocks hang over. Only where no index
// was clamped or wrapped, which the interpreter says.
bool rewrite_padded(Rewriter& e) {
  ir::Kernel& k = e.k;
  for (const size_t i : chosen_blocks(e, [&](size_t n) {
         const BlockMapping& b = k.blocks[n];
         return !b.is_whole() && !in_pair(k, n) && !b.block().empty() &&
                std::all_of(b.block().begin(), b.block().end(),
                            [](const BlockDim& d) { return d.is_blocked() || !d.seen(); });
       })) {
    BlockMapping& b = k.blocks[i];
    const Shape before = e.shape(i);
    Shape now = before;
    for (size_t d = 0; d < now.size(); ++d) {
      if (before[d] == 0) return false;
      if (e.random.chance(0.3)) continue;
      now[d] += e.random.in(1, b.block()[d].size() + 2);
      b.array_shape[d] = e.random.chance(0.5) ? Extent(now[d]) : e.dynamic(now[d]);
    }
    if (now == before) return false;
    if (!k.is_output(static_cast<int>(i)))
      e.c.inputs[i] = resized(e.c.inputs[i], now, b.dtype == DType::boolean ? 1 : 3);
    else
      e.undo.emplace_back([before, o = i - static_cast<size_t>(k.num_inputs)](std::vector<Array>& outputs) {
        outputs[o] = resized(outputs[o], before, 0);
      });
    return true;
  }
  return false;
}

namespace {
bool other_windows(Rewriter& e, bool to_bounded) {
  ir::Kernel& k = e.k;
  if (e.random.chance(0.5)) e.prefetch();
  bool any = false;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    if (k.blocks[i].is_whole() || static_cast<int>(i) < k.num_prefetch) continue;
    const bool pair = in_pair(k, i);
    for (size_t d = 0; d < k.blocks[i].block().size(); ++d) {
      BlockDim& dim = k.blocks[i].block()[d];
      if (!dim.is_blocked() || dim.size() < 1 || e.random.chance(0.3)) continue;
      const bool halo = !to_bounded && !k.is_output(static_cast<int>(i)) && !pair &&
                        !k.is_stored(static_cast<int>(i)) && e.random.chance(0.3);
      const bool bounded = to_bounded && e.random.chance(0.8);
      any = true;
      if (halo) {
        dim = {BlockDim::Halo{dim.size(), 0, 0, static_cast<ir::Edge>(e.random.below(5))}};
        continue;
      }
      const int64_t size = dim.size();
      const size_t result = k.map_result(static_cast<int>(i), d);
      if (bounded) dim = {BlockDim::BoundedSlice{size}};
      else dim = {BlockDim::Element{size}};
      const ir::RegionId map = k.blocks[i].index_map();
      Spot s{map, k.region(map).ops.size() - 1};
      const Value at = k.terminator(map).operands[result];
      const Value n = e.random.chance(0.3) ? e.number(s, size) : e.constant_i32(s, size);
      const Value start = e.elementwise(s, Opcode::mul, {at, n});
      auto& operands = k.op(k.region(map).ops.back()).operands;
      operands[result] = start;
      if (bounded) operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(result) + 1, n);
    }
  }
  return any;
}
}  // namespace

// A blocked dim becomes an element or halo one, with the same elements inside of the array.
bool rewrite_windows(Rewriter& e) { return other_windows(e, false); }
// A bounded one, whose start is clamped otherwise and does not wrap.
bool rewrite_bounded(Rewriter& e) { return other_windows(e, true); }

// A whole array is one block in space any.
bool rewrite_blocked_whole(Rewriter& e) {
  ir::Kernel& k = e.k;
  bool any = false;
  if (k.has_threads()) return false;
  for (size_t i = static_cast<size_t>(k.num_prefetch); i < k.blocks.size(); ++i) {
    BlockMapping& b = k.blocks[i];
    if (!b.is_whole() || b.is_by_value() || b.array_shape.empty() || in_pair(k, i)) continue;
    const Shape shape = e.shape(i);
    if (std::count(shape.begin(), shape.end(), 0)) continue;
    b.what = BlockMapping::Blocks{};
    b.space = ir::MemorySpace::any;
    for (const int64_t n : shape) b.block().push_back({BlockDim::Blocked{n}});
    ir::Builder builder(k);
    std::vector<Type> types(k.grid.size(), Type::array(DType::i32));
    for (int p = 0; p < k.num_prefetch; ++p) types.push_back(k.type(argument(e, static_cast<size_t>(p))));
    const ir::RegionId map = builder.new_region(types);
    builder.set_region(map);
    std::vector<Value> zeros;
    for (size_t d = 0; d < shape.size(); ++d) zeros.push_back(builder.constant_int(DType::i32, 0));
    builder.yield(zeros);
    k.blocks[i].index_map() = map;
    any = true;
  }
  return any;
}

// An input that is only loaded is given twice, and some loads take the other.
bool rewrite_twice(Rewriter& e) {
  ir::Kernel& k = e.k;
  for (const size_t i : chosen_blocks(e, [&](size_t n) {
         return n >= static_cast<size_t>(k.num_prefetch) && !k.is_output(static_cast<int>(n)) &&
                !k.blocks[n].is_by_value() && !in_pair(k, n) && !k.is_stored(static_cast<int>(n)) &&
                only_accessed(e, argument(e, n), false) && !e.uses(argument(e, n)).empty();
       })) {
    const Value ref = argument(e, i);
    const Type type = k.type(ref);
    const BlockMapping from = k.blocks[i];
    const Value other = e.add_input(e.c.inputs[i], false);
    k.values[other.index].type = type;
    const auto at = static_cast<size_t>(k.num_inputs) - 1;
    k.blocks[at] = from;
    k.blocks[at].origin = k.usual_origin(static_cast<int>(at));
    if (!from.is_whole()) {
      std::vector<Type> types;
      for (const Value v : k.region(from.index_map()).args) types.push_back(k.type(v));
      // a copy of the map
      ir::Builder b(k);
      const ir::RegionId map = b.new_region(types);
      std::vector<std::pair<Value, Value>> to;
      for (size_t a = 0; a < types.size(); ++a)
        to.emplace_back(k.region(from.index_map()).args[a], k.region(map).args[a]);
      b.set_region(map);
      for (const ir::OpId id : std::vector<ir::OpId>(k.region(from.index_map()).ops)) {
        Op op = k.op(id);
        if (!op.regions.empty()) return false;
        for (Value& v : op.operands)
          for (const auto& [x, y] : to)
            if (v == x) v = y;
        const std::vector<Value> old = op.results;
        const Type requested = old.empty() ? Type{} : k.type(old[0]);
        const ir::OpId made = b.append(std::move(op), requested);
        for (size_t r = 0; r < old.size(); ++r) to.emplace_back(old[r], k.op(made).results[r]);
      }
      k.blocks[at].index_map() = map;
    }
    for (const Spot& s : e.uses(ref))
      if (!e.in_map(s.region) && e.random.chance(0.5)) e.op_at(s).operands[0] = other;
    return true;
  }
  return false;
}

namespace {
DType wider(DType t, Random& random) {
  switch (t) {
    case DType::boolean: return random.chance(0.5) ? DType::u8 : DType::i32;
    case DType::i4:
    case DType::i8: return random.chance(0.5) ? DType::i16 : DType::i32;
    case DType::u4:
    case DType::u8: return random.chance(0.5) ? DType::u16 : DType::i32;
    case DType::i16:
    case DType::u16: return DType::i32;
    case DType::i32: return DType::i64;
    case DType::f8e4m3fn:
    case DType::f8e5m2: return random.chance(0.5) ? DType::f16 : DType::f32;
    case DType::f16:
    case DType::bf16: return DType::f32;
    default: return t;
  }
}
uint64_t converted(DType from, DType to, uint64_t bits) {
  if (to == DType::boolean) return reference::to_double(from, bits) != 0;
  return reference::from_double(to, reference::to_double(from, bits));
}
Array converted(const Array& a, DType t) {
  Array r(a.shape(), t);
  for (int64_t i = 0; i < a.size(); ++i) r.set_element_bits(i, converted(a.dtype(), t, a.element_bits(i)));
  return r;
}
}  // namespace

// An array of a narrow dtype lies in memory as a wider one: loads and stores convert.
bool rewrite_stored_wide(Rewriter& e) {
  ir::Kernel& k = e.k;
  for (const size_t i : chosen_blocks(e, [&](size_t n) {
         if (n < static_cast<size_t>(k.num_prefetch) || k.blocks[n].is_by_value() || in_pair(k, n)) return false;
         for (const Spot& s : e.uses(argument(e, n))) {
           const Op& op = e.op_at(s);
           if (e.in_map(s.region) || (op.code != Opcode::load && op.code != Opcode::store) ||
               op.operands[0] != argument(e, n))
             return false;
         }
         Random any(1);
         return wider(k.blocks[n].dtype, any) != k.blocks[n].dtype;
       })) {
    const Value ref = argument(e, i);
    const DType narrow = k.blocks[i].dtype, wide = wider(narrow, e.random);
    k.blocks[i].dtype = wide;
    k.values[ref.index].type.dtype = wide;
    std::vector<ir::OpId> ids;
    for (const Spot& s : e.uses(ref)) ids.push_back(k.region(s.region).ops[s.at]);
    for (const ir::OpId id : ids)
      for (Spot s : e.uses(ref)) {
        if (k.region(s.region).ops[s.at] != id) continue;
        if (k.op(id).code == Opcode::store) {
          const Value v = e.convert(s, k.op(id).operands[1], wide);
          k.op(id).operands[1] = v;
          break;
        }
        if (k.op(id).has_other()) {
          const auto at = static_cast<size_t>(k.op(id).other_position());
          const Value v = e.convert(s, k.op(id).operands[at], wide);
          k.op(id).operands[at] = v;
        }
        const Value result = k.op(id).results[0];
        k.values[result.index].type.dtype = wide;
        const size_t first = k.ops.size();
        ++s.at;
        const Value zero = narrow == DType::boolean ? e.constant(s, k.type(result), 0) : Value{};
        const Value v =
            zero ? e.elementwise(s, Opcode::ne, {result, zero}, DType::boolean) : e.convert(s, result, narrow);
        e.replace_uses(result, v, first);
        break;
      }
    if (!k.is_output(static_cast<int>(i))) e.c.inputs[i] = converted(e.c.inputs[i], wide);
    else
      e.undo.emplace_back([narrow, o = i - static_cast<size_t>(k.num_inputs)](std::vector<Array>& outputs) {
        outputs[o] = converted(outputs[o], narrow);
      });
    return true;
  }
  return false;
}

}  // namespace tessera::fuzz
