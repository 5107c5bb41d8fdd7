#include "engine/graph/pointwise.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "engine/graph/sizes.h"
#include "engine/ir/builder.h"
#include "engine/ir/copy.h"
#include "engine/ir/verify.h"
#include "engine/ir/walk.h"
#include "engine/passes/passes.h"
#include "engine/passes/programs.h"

namespace tessera::fusion {

using ir::Index, ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Type, ir::Value;

std::string joined(const std::string& a, const std::string& b) {
  constexpr size_t most = 48;
  const std::string both = a + "_" + b;
  if (both.size() <= most) return both;
  constexpr std::string_view more = "_and_more";
  return a.ends_with(more) || a.size() + more.size() > most ? a : a + std::string(more);
}

namespace {

bool is_whole(const Op& op, const Shape& shape) {
  if (op.has_mask() || op.index.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (op.index[d] != Index::all(shape[d])) return false;
  return true;
}

struct Refused {};  // by what is found on the way

/// A dim of a value of an element-wise kernel: the dim of its result along which it lies, or none (-1; its size is 1).
/// `one`: of size 1 there, the same for all.
struct Along {
  int dim = -1;
  bool one = true;
  bool operator==(const Along&) const = default;
};
using Map = std::vector<Along>;

/// An element-wise kernel of one output, all of whose values lie along the dims of that.
class Pointwise {
 public:
  Pointwise(const ir::Kernel& k, const Plain& p) : k_(k), plain_(p) {
    const Shape& shape = k.type(p.stored[0]).shape;
    Map identity;
    for (size_t d = 0; d < shape.size(); ++d) identity.push_back({static_cast<int>(d), false});
    visit(p.stored[0], identity);
  }
  struct Leaf {
    size_t input;
    Map map;
  };
  const std::vector<Leaf>& leaves() const { return leaves_; }

  /// The ops once more, on a part of the result: `sizes` are those of its dims that are there. `leaves`: the values of
  /// the leaves.
  Value emit(ir::Builder& b, const std::vector<std::optional<int64_t>>& sizes, const std::vector<Value>& leaves) const {
    std::map<Value, Value> done;
    for (size_t i = 0; i < leaves_.size(); ++i) done[leaf_values_[i]] = leaves[i];
    return emit(plain_.stored[0], b, sizes, done);
  }

 private:
  void visit(Value v, const Map& map) {
    const auto [it, fresh] = maps_.emplace(v, map);
    if (!fresh) {
      if (it->second != map) throw Refused();
      return;
    }
    if (const auto l = plain_.loads.find(v); l != plain_.loads.end()) {
      leaves_.push_back({l->second, map});
      leaf_values_.push_back(v);
      return;
    }
    const Op* op = k_.def(v);
    if (!op || op->results.size() != 1 || !op->regions.empty()) throw Refused();
    if (op->code == Opcode::constant) return;
    if (ir::is_elementwise(op->code)) {
      for (Value o : op->operands) {
        if (k_.type(o).shape == k_.type(v).shape) visit(o, map);
        else if (k_.type(o).shape.empty()) visit(o, {});
        else throw Refused();
      }
    } else if (op->code == Opcode::broadcast) {
      const Value from = op->operands[0];
      const auto& dims = op->ints(ir::Attr::dims);
      Map m;
      for (size_t i = 0; i < dims.size(); ++i) {
        const auto d = static_cast<size_t>(dims[i]);
        m.push_back(k_.type(from).shape[i] == k_.type(v).shape[d] ? map[d] : Along{map[d].dim, true});
      }
      visit(from, m);
    } else if (op->code == Opcode::transpose) {
      const auto& perm = op->ints(ir::Attr::perm);
      Map m(perm.size());
      for (size_t i = 0; i < perm.size(); ++i) m[static_cast<size_t>(perm[i])] = map[i];
      visit(op->operands[0], m);
    } else if (op->code == Opcode::reshape) {
      // Dims of size 1 come and go; the others stay in order.
      const Shape &from = k_.type(op->operands[0]).shape, &to = k_.type(v).shape;
      Map m;
      size_t d = 0;
      for (int64_t n : from) {
        if (n == 1) {
          m.push_back({});
          continue;
        }
        while (d < to.size() && to[d] == 1) ++d;
        if (d == to.size() || to[d] != n) throw Refused();
        m.push_back(map[d++]);
      }
      for (; d < to.size(); ++d)
        if (to[d] != 1) throw Refused();
      visit(op->operands[0], m);
    } else {
      throw Refused();
    }
  }

  static bool there(const Along& a, const std::vector<std::optional<int64_t>>& sizes) {
    return a.dim < 0 || sizes[static_cast<size_t>(a.dim)].has_value();
  }
  Shape shape_of(const Map& m, const std::vector<std::optional<int64_t>>& sizes) const {
    Shape s;
    for (const Along& a : m)
      if (there(a, sizes)) s.push_back(a.one ? 1 : *sizes[static_cast<size_t>(a.dim)]);
    return s;
  }
  Value emit(Value v, ir::Builder& b, const std::vector<std::optional<int64_t>>& sizes,
             std::map<Value, Value>& done) const {
    if (const auto it = done.find(v); it != done.end()) return it->second;
    const Map& map = maps_.at(v);
    const Shape shape = shape_of(map, sizes);
    const Op& op = *k_.def(v);
    std::vector<Value> operands;
    for (Value o : op.operands) operands.push_back(emit(o, b, sizes, done));
    Value made;
    if (op.code == Opcode::constant) {
      made = b.constant(k_.type(v).dtype, static_cast<uint64_t>(op.attr(ir::Attr::bits)), shape);
    } else if (ir::is_elementwise(op.code)) {
      Op copy = op;
      copy.operands = operands;
      copy.results.clear();
      made = b.one(std::move(copy), Type::array(k_.type(v).dtype, shape));
    } else if (op.code == Opcode::broadcast) {
      std::vector<int64_t> position(map.size()), dims;
      int64_t at = 0;
      for (size_t d = 0; d < map.size(); ++d) {
        position[d] = at;
        at += there(map[d], sizes);
      }
      const auto& from = op.ints(ir::Attr::dims);
      const Map& m = maps_.at(op.operands[0]);
      for (size_t i = 0; i < m.size(); ++i) {
        const auto d = static_cast<size_t>(from[i]);
        if (there(m[i], sizes) != there(map[d], sizes)) throw Refused();
        if (there(m[i], sizes)) dims.push_back(position[d]);
      }
      made = b.broadcast(operands[0], shape, dims);
    } else if (op.code == Opcode::transpose) {
      const auto& perm = op.ints(ir::Attr::perm);
      const Map& m = maps_.at(op.operands[0]);
      std::vector<int64_t> position(m.size()), kept;
      int64_t at = 0;
      for (size_t d = 0; d < m.size(); ++d) {
        position[d] = at;
        at += there(m[d], sizes);
      }
      for (int64_t p : perm)
        if (there(m[static_cast<size_t>(p)], sizes)) kept.push_back(position[static_cast<size_t>(p)]);
      Op copy{.code = Opcode::transpose, .operands = operands};
      copy.set(ir::Attr::perm, kept);
      made = b.one(std::move(copy));
    } else {
      const Shape from = b.kernel().type(operands[0]).shape;
      int64_t n = 1, m = 1;
      for (int64_t d : from) n *= d;
      for (int64_t d : shape) m *= d;
      if (n != m) throw Refused();  // a block of more than the one element that the array has
      made = from == shape
                 ? operands[0]
                 : b.one({.code = Opcode::reshape, .operands = operands}, Type::array(k_.type(v).dtype, shape));
    }
    if (b.kernel().type(made).shape != shape) throw Refused();
    return done[v] = made;
  }

  const ir::Kernel& k_;
  const Plain& plain_;
  std::map<Value, Map> maps_;
  std::vector<Leaf> leaves_;
  std::vector<Value> leaf_values_;
};

// -- how often a kernel with a grid reads or stores

constexpr int64_t kPrograms = 1 << 16;  // beyond, it is not found out

passes::Programs programs_of(const ir::Kernel& k) {
  std::vector<int64_t> grid;
  for (const ir::GridAxis& a : k.grid) {
    if (!a.size.is_static()) throw Refused();
    grid.push_back(*a.size.value());
  }
  passes::Programs programs(k, std::move(grid));
  if (programs.count() > kPrograms) throw Refused();
  return programs;
}
/// Calls f(times, op) for every op on the Ref in every program.
template <class F>
void each_access(const ir::Kernel& k, passes::Programs& programs, Value ref, const F& f) {
  const auto touches = [&](OpId o) {
    const Op& op = k.op(o);
    return std::find(op.operands.begin(), op.operands.end(), ref) != op.operands.end();
  };
  std::set<uint32_t> wanted;
  for (uint32_t r = 0; r < k.regions.size(); ++r)
    if (ir::any_op(k, {r}, touches)) wanted.insert(r);
  programs.each([&] {
    programs.visit(
        [&](OpId o, passes::Times times) {
          if (!touches(o)) return;
          if (!times.exact || !k.op(o).regions.empty()) throw Refused();
          f(times.least, o);
        },
        [&](RegionId r) { return wanted.contains(r.index); });
    return true;
  });
}
/// The block that the program sees, wrapped once and clamped.
std::vector<int64_t> block_of(passes::Programs& programs, const ir::BlockMapping& m) {
  if (m.whole) return {};
  std::vector<int64_t> block;
  const auto given = programs.map(m);
  if (!given) throw Refused();
  for (size_t d = 0; d < m.block.size(); ++d) {
    if (m.block[d].results() != 1 || m.block[d].is_element()) throw Refused();
    const Extent last = ir::last_index(m.block[d], m.array_shape[d]);
    if (!last.is_static()) throw Refused();
    block.push_back(ir::block_index(m.block[d], (*given)[d], std::max<int64_t>(*last.value(), 0)));
  }
  return block;
}

int64_t elements_of(const ir::BlockMapping& m) {
  int64_t n = 1;
  for (size_t d = 0; d < m.array_shape.size(); ++d) {
    const int64_t size = m.array_shape[d].value().value_or(0),
                  b = m.whole || !m.block[d].is_blocked() ? 1 : m.block[d].size();
    n *= (size + b - 1) / b * b;
  }
  return n;
}

// -- kernels with other blocks

/// k with inputs [at, at + 1) (or none) replaced by `with`, and its Refs in place.
class Rebuilt {
 public:
  Rebuilt(const ir::Kernel& from, size_t at, bool replaces, const std::vector<ir::BlockMapping>& with)
      : from_(from), at_(at), replaces_(replaces), copier_(from, k_) {
    k_.name = from.name;
    k_.loc = from.loc;
    k_.grid = from.grid;
    k_.num_prefetch = from.num_prefetch;
    k_.scratch = from.scratch;
    k_.num_private_scratch = from.num_private_scratch;
    k_.texts = from.texts;
    k_.sizes = from.sizes;
    k_.call = from.call;
    const auto added = static_cast<int>(with.size()) - (replaces ? 1 : 0);
    for (size_t i = 0; i < from.blocks.size(); ++i) {
      if (i == at) k_.blocks.insert(k_.blocks.end(), with.begin(), with.end());
      if (i == at && replaces) continue;
      k_.blocks.push_back(from.blocks[i]);
      ir::BlockMapping& b = k_.blocks.back();
      if (b.index_map) b.index_map = copier_.copy(b.index_map);
      if (b.alias > static_cast<int>(at)) b.alias += added;
    }
    k_.num_inputs = from.num_inputs + added;
    for (int i = 0; i < static_cast<int>(k_.blocks.size()); ++i)
      k_.blocks[static_cast<size_t>(i)].origin = k_.usual_origin(i);
  }
  ir::Kernel& kernel() { return k_; }
  ir::Copier& copier() { return copier_; }
  /// The body, empty, once the blocks are what they shall be. What `from`'s body names is mapped to it, but for a Ref
  /// that was replaced.
  ir::Builder body() {
    std::vector<Type> args;
    for (size_t i = 0; i < k_.blocks.size(); ++i) args.push_back(k_.block_ref_type(static_cast<int>(i)));
    args.insert(args.end(), k_.scratch.begin(), k_.scratch.end());
    ir::Builder builder(k_);
    k_.body = builder.new_region(args);
    const std::vector<Value>& old = from_.region(from_.body).args;
    for (size_t i = 0; i < old.size(); ++i)
      if (i != at_ || !replaces_)
        copier_.map(old[i], k_.region(k_.body).args[i < at_ ? i : i + k_.blocks.size() - from_.blocks.size()]);
    return builder;
  }
  /// The finished kernel, under the names of both that it was made of; or under its own, which is in its messages, if
  /// it checks or prints.
  ir::Kernel finish(const std::string& first, const std::string& second) {
    if (k_.texts.empty()) k_.name = joined(first, second);
    ir::verify(k_, "fusing");
    return std::move(k_);
  }

  /// A block of an array that lies along block `like` as `map` says.
  ir::BlockMapping along(const ir::BlockMapping& like, const Map& map, const Type& t) {
    ir::BlockMapping b;
    b.dtype = t.dtype;
    b.array_shape.assign(t.shape.begin(), t.shape.end());
    b.loc = like.loc;
    b.space = like.space;
    b.buffering = like.buffering;
    b.whole = like.whole;
    if (like.whole) return b;
    ir::Copier copier(from_, k_);
    b.index_map = copier.copy(like.index_map);
    const Op yield = from_.terminator(like.index_map);
    std::vector<Value> results;
    ir::Builder builder(k_);
    k_.region(b.index_map).ops.pop_back();
    builder.set_region(b.index_map);
    builder.set_loc(like.loc);
    size_t at = 0;
    std::vector<size_t> first;
    for (const ir::BlockDim& d : like.block) {
      first.push_back(at);
      at += d.results();
    }
    for (const Along& a : map) {
      if (a.one) {
        const bool squeezed = a.dim >= 0 && !like.block[static_cast<size_t>(a.dim)].seen();
        if (squeezed) b.block.push_back({ir::BlockDim::Squeezed{}});
        else b.block.push_back({ir::BlockDim::Blocked{1}});
        results.push_back(builder.constant_int(DType::i32, 0));
      } else {
        const ir::BlockDim& d = like.block[static_cast<size_t>(a.dim)];
        b.block.push_back(d);
        for (size_t r = 0; r < d.results(); ++r)
          results.push_back(copier(yield.operands[first[static_cast<size_t>(a.dim)] + r]));
      }
    }
    builder.yield(std::move(results));
    return b;
  }

 private:
  const ir::Kernel& from_;
  size_t at_;
  bool replaces_;
  ir::Kernel k_;
  ir::Copier copier_;
};

/// Where an access to a Ref of block `like` reads: its dims that are there, with their sizes.
struct Site {
  std::vector<std::optional<int64_t>> sizes;  // by dim of the array
  std::vector<int> index;                     // by dim of the array: position in op.index, or -1 (squeezed)
  bool per_element = false;                   // ir::AccessDims
};
Site site(const ir::Kernel& k, const ir::BlockMapping& like, const Op& op) {
  if (op.has_mask()) throw Refused();
  Site s;
  s.per_element = ir::access_dims(k, op).per_element;
  size_t at = 0;
  for (size_t d = 0; d < like.array_shape.size(); ++d) {
    const bool seen = like.whole || like.block[d].seen();
    s.index.push_back(seen ? static_cast<int>(at) : -1);
    s.sizes.emplace_back();
    if (!seen) continue;
    const Index& x = op.index.at(at++);
    if (x.is_array()) throw Refused();
    if (const Index::Slice* slice = x.slice()) s.sizes.back() = slice->size;
  }
  return s;
}
/// A load of what lies along the access `op` (already copied: its operands are the new kernel's) as `map` says.
Value load_along(ir::Builder& b, Value ref, const Op& op, const Site& s, const Map& map,
                 const ir::BlockMapping& block) {
  Op load{.code = Opcode::load, .operands = {ref}, .loc = op.loc};
  for (size_t d = 0; d < map.size(); ++d) {
    if (!block.whole && !block.block[d].seen()) continue;
    const Along& a = map[d];
    const int at = a.dim < 0 ? -1 : s.index[static_cast<size_t>(a.dim)];
    if (a.one) {
      const bool there = a.dim < 0 || s.sizes[static_cast<size_t>(a.dim)].has_value();
      load.index.push_back(there ? Index::all(1) : Index::at(0));
      continue;
    }
    if (at < 0) throw Refused();
    Index x = op.index[static_cast<size_t>(at)];
    if (size_t* start = x.operand()) {
      load.operands.push_back(op.operand_of(x));
      *start = load.operands.size() - 1;
    }
    load.index.push_back(x);
  }
  // A start that does not fit moves otherwise where the dim that has a step is not there.
  if (ir::access_dims(b.kernel(), load).per_element != s.per_element) throw Refused();
  return b.one(std::move(load));
}

/// Copies the body op by op, but where `f` handles an op.
template <class F>
void copy_body(const ir::Kernel& from, Rebuilt& to, RegionId r, RegionId into, const F& f) {
  for (OpId o : from.region(r).ops) {
    const Op& op = from.op(o);
    if (f(o, into)) continue;
    if (op.regions.empty()) {
      to.copier().copy(o, into);
      continue;
    }
    Op copy = op;
    for (Value& v : copy.operands) v = to.copier()(v);
    ir::Kernel& k = to.kernel();
    for (RegionId& inner : copy.regions) {
      const RegionId source = inner;
      std::vector<Type> args;
      for (Value a : from.region(source).args) args.push_back(from.type(a));
      inner = ir::Builder(k).new_region(args);
      for (size_t i = 0; i < args.size(); ++i) to.copier().map(from.region(source).args[i], k.region(inner).args[i]);
      copy_body(from, to, source, inner, f);
    }
    const OpId made{static_cast<uint32_t>(k.ops.size())};
    for (Value& v : copy.results) {
      const Value result{static_cast<uint32_t>(k.values.size())};
      k.values.push_back({from.type(v), made, {}, from.value(v).number});
      to.copier().map(v, result);
      v = result;
    }
    k.ops.push_back(std::move(copy));
    k.region(into).ops.push_back(made);
  }
}

/// The Ref is used by ops of this code alone, as their first operand, and by no copy.
bool only(const ir::Kernel& k, Value ref, Opcode code) {
  for (const Op& op : k.ops)
    for (size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] == ref && (op.code != code || i != 0)) return false;
  return true;
}
bool has_dynamic_sizes(const ir::Kernel& k) {
  return std::any_of(k.blocks.begin(), k.blocks.end(), [](const ir::BlockMapping& b) {
    return std::any_of(b.array_shape.begin(), b.array_shape.end(), [](const Extent& e) { return !e.is_static(); });
  });
}

}  // namespace

std::optional<Plain> plain(const ir::Kernel& k) {
  if (!k.grid.empty() || !k.scratch.empty() || k.num_prefetch > 0 || !k.texts.empty() || !k.sizes.empty() ||
      k.level != ir::Level::tile)
    return {};
  for (const ir::BlockMapping& b : k.blocks)
    if (!b.whole || b.alias >= 0) return {};
  Plain p;
  const std::vector<Value>& args = k.region(k.body).args;
  p.stored.resize(static_cast<size_t>(k.num_outputs()));
  for (OpId o : k.region(k.body).ops) {
    const Op& op = k.op(o);
    if (op.code == Opcode::yield) continue;
    if (op.code == Opcode::load || op.code == Opcode::store) {
      const Value ref = op.operands[0];
      if (k.value(ref).region != k.body) return {};
      const auto i = static_cast<size_t>(k.value(ref).number);
      if (!is_whole(op, k.type(args[i]).shape)) return {};
      const bool output = i >= static_cast<size_t>(k.num_inputs);
      if (output != (op.code == Opcode::store)) return {};
      if (!output) p.loads[op.results[0]] = i;
      else if (p.stored[i - static_cast<size_t>(k.num_inputs)]) return {};
      else p.stored[i - static_cast<size_t>(k.num_inputs)] = op.operands[1];
      continue;
    }
    if (ir::info(op.code).effect != ir::Effect::pure || !op.regions.empty()) return {};
    p.ops.push_back(o);
  }
  if (std::any_of(p.stored.begin(), p.stored.end(), [](Value v) { return !v; })) return {};
  return p;
}

std::optional<Fusion> by_blocks(const ir::Kernel& given, const std::vector<std::vector<Extent>>& dims) try {
  const auto p = plain(given);
  if (!p || p->stored.size() != 1) return {};
  const Pointwise pointwise(given, *p);
  const Type made = given.type(p->stored[0]);
  std::vector<Extent> result(made.shape.begin(), made.shape.end());
  for (const Pointwise::Leaf& leaf : pointwise.leaves())
    for (size_t i = 0; i < leaf.map.size(); ++i)
      if (const Along& a = leaf.map[i]; !dims[leaf.input][i].is_static() && a.dim >= 0 && !a.one)
        result[static_cast<size_t>(a.dim)] = Extent::named("n" + std::to_string(a.dim));
  const std::vector<int64_t> block = small_blocks(result);

  Fusion f;
  ir::Kernel& k = f.kernel;
  k.name = given.name;
  k.loc = given.loc;
  for (size_t d = 0; d < result.size(); ++d)
    k.grid.push_back({cdiv(result[d], block[d]), "", false, false, ir::GridAxis::Role::grid});
  ir::Builder builder(k);
  builder.set_loc(k.loc);
  const auto add = [&](const Map& map, DType t) {
    ir::BlockMapping b;
    b.dtype = t;
    b.loc = k.loc;
    b.index_map = builder.new_region(std::vector<Type>(k.grid.size(), Type::array(DType::i32)));
    builder.set_region(b.index_map);
    std::vector<Value> position;
    for (const Along& a : map) {
      const auto d = static_cast<size_t>(a.dim);
      b.array_shape.push_back(a.one ? Extent(1) : result[d]);
      b.block.push_back({ir::BlockDim::Blocked{a.one ? 1 : block[d]}});
      position.push_back(a.one ? builder.constant_int(DType::i32, 0) : builder.arg(b.index_map, d));
    }
    builder.yield(std::move(position));
    k.blocks.push_back(std::move(b));
  };
  for (const Pointwise::Leaf& leaf : pointwise.leaves()) {
    add(leaf.map, given.type(given.region(given.body).args[leaf.input]).dtype);
    f.arguments.push_back(leaf.input);
  }
  k.num_inputs = static_cast<int>(k.blocks.size());
  Map identity;
  for (size_t d = 0; d < result.size(); ++d) identity.push_back({static_cast<int>(d), false});
  add(identity, made.dtype);
  std::vector<Type> args;
  for (int i = 0; i < static_cast<int>(k.blocks.size()); ++i) {
    k.blocks[static_cast<size_t>(i)].origin = k.usual_origin(i);
    args.push_back(k.block_ref_type(i));
  }
  k.body = builder.new_region(args);
  builder.set_region(k.body);
  const auto all = [](const Shape& shape) {
    std::vector<Index> index;
    for (const int64_t n : shape) index.push_back(Index::all(n));
    return index;
  };
  std::vector<Value> leaves;
  for (size_t i = 0; i + 1 < args.size(); ++i)
    leaves.push_back(builder.one(
        {.code = Opcode::load, .operands = {builder.arg(k.body, i)}, .index = all(args[i].shape), .loc = k.loc}));
  const Value value = pointwise.emit(builder, {block.begin(), block.end()}, leaves);
  builder.append({.code = Opcode::store,
                  .operands = {builder.arg(k.body, leaves.size()), value},
                  .index = all(args.back().shape),
                  .loc = k.loc});
  builder.yield({});
  return f;
} catch (const Refused&) {
  return {};
}

std::optional<Fusion> into_loads(const ir::Kernel& producer, const std::vector<size_t>& producer_arguments,
                                 const ir::Kernel& given, const std::vector<size_t>& consumer_arguments,
                                 size_t value) try {
  const auto p = plain(producer);
  if (!p || p->stored.size() != 1 || given.level != ir::Level::tile || has_dynamic_sizes(given)) return {};
  if (std::count(consumer_arguments.begin(), consumer_arguments.end(), value) != 1) return {};
  const auto at = static_cast<size_t>(std::find(consumer_arguments.begin(), consumer_arguments.end(), value) -
                                      consumer_arguments.begin());
  ir::Kernel consumer = given;
  passes::cse(consumer);  // equal loads are one
  const ir::BlockMapping& like = consumer.blocks[at];
  const Value ref = consumer.region(consumer.body).args[at];
  // The edge of a halo is made of what was computed, not of what it was computed from.
  if (at < static_cast<size_t>(consumer.num_prefetch) || consumer.aliased_output(static_cast<int>(at)) >= 0 ||
      consumer.has_halo(static_cast<int>(at)) || !only(consumer, ref, Opcode::load))
    return {};
  const Pointwise pointwise(producer, *p);
  int64_t read = 0;
  passes::Programs programs = programs_of(consumer);
  each_access(consumer, programs, ref, [&](int64_t times, OpId o) {
    read += times * num_elements(consumer.type(consumer.op(o).results[0]).shape);
  });
  if (read > elements_of(like)) return {};

  std::vector<ir::BlockMapping> with(pointwise.leaves().size());
  Rebuilt to(consumer, at, true, with);
  ir::Kernel& k = to.kernel();
  Fusion f;
  f.arguments = consumer_arguments;
  f.arguments.erase(f.arguments.begin() + static_cast<std::ptrdiff_t>(at));
  for (size_t i = 0; i < with.size(); ++i) {
    const Pointwise::Leaf& leaf = pointwise.leaves()[i];
    k.blocks[at + i] = to.along(like, leaf.map, producer.type(producer.region(producer.body).args[leaf.input]));
    k.blocks[at + i].origin = k.usual_origin(static_cast<int>(at + i));
    f.arguments.insert(f.arguments.begin() + static_cast<std::ptrdiff_t>(at + i), producer_arguments[leaf.input]);
  }
  ir::Builder builder = to.body();
  copy_body(consumer, to, consumer.body, k.body, [&](OpId o, RegionId into) {
    const Op& op = consumer.op(o);
    if (op.operands.empty() || op.operands[0] != ref) return false;
    Op copied = op;
    for (size_t i = 1; i < copied.operands.size(); ++i) copied.operands[i] = to.copier()(op.operands[i]);
    builder.set_region(into);
    builder.set_loc(op.loc);
    const Site s = site(consumer, like, op);
    std::vector<Value> leaves;
    for (size_t i = 0; i < with.size(); ++i)
      leaves.push_back(
          load_along(builder, k.region(k.body).args[at + i], copied, s, pointwise.leaves()[i].map, k.blocks[at + i]));
    to.copier().map(op.results[0], pointwise.emit(builder, s.sizes, leaves));
    return true;
  });
  f.kernel = to.finish(producer.name, consumer.name);
  return f;
} catch (const Refused&) {
  return {};
}

std::optional<Fusion> into_stores(const ir::Kernel& producer, const std::vector<size_t>& producer_arguments,
                                  size_t output, size_t value, const ir::Kernel& consumer,
                                  const std::vector<size_t>& consumer_arguments) try {
  const auto q = plain(consumer);
  if (!q || q->stored.size() != 1 || producer.level != ir::Level::tile || has_dynamic_sizes(producer) ||
      !producer.texts.empty())
    return {};
  const size_t inputs = static_cast<size_t>(producer.num_inputs), at = inputs + output;
  const ir::BlockMapping& like = producer.blocks[at];
  const Value ref = producer.region(producer.body).args[at];
  const Type made = consumer.type(q->stored[0]);
  // A consumer that does not read the value may make an array of another shape.
  if (like.alias >= 0 || !only(producer, ref, Opcode::store) ||
      !std::equal(like.array_shape.begin(), like.array_shape.end(), made.shape.begin(), made.shape.end(),
                  [](const Extent& e, int64_t n) { return e.value() == n; }))
    return {};
  const Pointwise pointwise(consumer, *q);
  // It is stored by whole blocks, each of them once.
  passes::Programs programs = programs_of(producer);
  std::set<std::vector<int64_t>> blocks;
  int64_t stores = 0;
  const Shape whole = producer.type(ref).shape;
  each_access(producer, programs, ref, [&](int64_t times, OpId o) {
    if (!is_whole(producer.op(o), whole)) throw Refused();
    stores += times;
    blocks.insert(block_of(programs, like));
  });
  int64_t all = 1;
  for (size_t d = 0; d < like.array_shape.size() && !like.whole; ++d)
    all *= std::max<int64_t>(ir::last_index(like.block[d], like.array_shape[d]).value().value_or(-2), -1) + 1;
  if (stores != static_cast<int64_t>(blocks.size()) || stores != all) return {};

  Map identity;
  for (size_t d = 0; d < made.shape.size(); ++d) identity.push_back({static_cast<int>(d), false});
  std::vector<size_t> extra;  // leaves that are no value of the producer's
  for (size_t i = 0; i < pointwise.leaves().size(); ++i) {
    const Pointwise::Leaf& leaf = pointwise.leaves()[i];
    if (consumer_arguments[leaf.input] != value) extra.push_back(i);
    else if (leaf.map != identity) return {};
  }
  Rebuilt to(producer, inputs, false, std::vector<ir::BlockMapping>(extra.size()));
  ir::Kernel& k = to.kernel();
  Fusion f;
  f.arguments = producer_arguments;
  for (size_t i = 0; i < extra.size(); ++i) {
    const Pointwise::Leaf& leaf = pointwise.leaves()[extra[i]];
    k.blocks[inputs + i] = to.along(like, leaf.map, consumer.type(consumer.region(consumer.body).args[leaf.input]));
    k.blocks[inputs + i].buffering = {};
    k.blocks[inputs + i].origin = k.usual_origin(static_cast<int>(inputs + i));
    f.arguments.push_back(consumer_arguments[leaf.input]);
  }
  k.blocks[at + extra.size()].dtype = made.dtype;
  ir::Builder builder = to.body();
  copy_body(producer, to, producer.body, k.body, [&](OpId o, RegionId into) {
    const Op& op = producer.op(o);
    if (op.operands.empty() || op.operands[0] != ref) return false;
    Op copied = op;
    for (Value& v : copied.operands) v = to.copier()(v);
    builder.set_region(into);
    builder.set_loc(op.loc);
    const Site s = site(producer, like, op);
    std::vector<Value> leaves(pointwise.leaves().size(), copied.operands[1]);
    for (size_t i = 0; i < extra.size(); ++i)
      leaves[extra[i]] = load_along(builder, k.region(k.body).args[inputs + i], copied, s,
                                    pointwise.leaves()[extra[i]].map, k.blocks[inputs + i]);
    copied.operands[1] = pointwise.emit(builder, s.sizes, leaves);
    builder.append(std::move(copied));
    return true;
  });
  f.kernel = to.finish(producer.name, consumer.name);
  return f;
} catch (const Refused&) {
  return {};
}

}  // namespace tessera::fusion
