#include "codegen/tile/uniform.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>

#include "codegen/plan/axes.h"
#include "codegen/plan/parallel.h"
#include "engine/ir/builder.h"
#include "engine/ir/moves.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Family;
using ir::Index;
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Value;

namespace {

using Dims = std::vector<bool>;

/// Runs of dims of a reshape's operand and of its result with equal products, in order.
struct Group {
  size_t from, from_end, to, to_end;
};
std::vector<Group> reshape_groups(const Shape& from, const Shape& to) {
  std::vector<Group> groups;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    Group g{i, i, j, j};
    int64_t a = 1, b = 1;
    do {
      if (g.from_end < from.size() && (a <= b || g.to_end == to.size())) a *= from[g.from_end++];
      else b *= to[g.to_end++];
    } while (a != b && (g.from_end < from.size() || g.to_end < to.size()));
    i = g.from_end;
    j = g.to_end;
    groups.push_back(g);
  }
  return groups;
}

class Analysis {
 public:
  explicit Analysis(const ir::Kernel& k) : k_(k) {
    for (const ir::ValueInfo& v : k.values) uniform.emplace_back(v.type.shape.size(), true);
    // Optimistic: everything is, but for what is seen not to be, until nothing more is seen.
    const auto& args = k.region(k.body).args;
    for (size_t i = 0; i < k.blocks.size(); ++i) clear(args[i]);
    do {
      changed_ = false;
      walk(k.body);
    } while (changed_);
  }
  std::vector<Dims> uniform;

 private:
  void lower(Value v, size_t d, bool to) {
    if (to || !uniform[v.index][d] || k_.type(v).shape[d] == 1) return;
    uniform[v.index][d] = false;
    changed_ = true;
  }
  void lower(Value v, const Dims& to) {
    for (size_t d = 0; d < to.size(); ++d) lower(v, d, to[d]);
  }
  void clear(Value v) {
    for (size_t d = 0; d < k_.type(v).shape.size(); ++d) lower(v, d, false);
  }
  void join(Value a, Value b) {  // b flows into a
    if (!k_.type(a).is_ref) lower(a, uniform[b.index]);
  }
  void walk(RegionId r) {
    for (OpId id : k_.region(r).ops) visit(k_.op(id));
  }

  void visit(const Op& o) {
    for (size_t i = 0; i < o.results.size() && !o.regions.empty(); ++i) {
      for (Value from : ir::flows_into(k_, o, i)) join(o.results[i], from);
      for (RegionId r : o.regions)
        if (ir::is_loop(o.code)) join(k_.region(r).args[ir::first_carried(o) + i], o.results[i]);
    }
    for (RegionId r : o.regions) walk(r);
    if (!o.regions.empty()) return;
    if (ir::accesses_ref(o.code)) return access(o);
    if (o.results.empty()) return;
    const Value v = o.results[0];
    const auto of = [&](size_t operand) -> const Dims& { return uniform[o.operands[operand].index]; };
    const auto contains = [](const std::vector<int64_t>& list, size_t i) {
      return std::find(list.begin(), list.end(), static_cast<int64_t>(i)) != list.end();
    };
    switch (ir::family(o.code)) {
      case Family::elementwise:
        for (Value x : o.operands) join(v, x);
        return;
      case Family::source:
        return o.code == Opcode::iota ? lower(v, static_cast<size_t>(o.attr(Attr::axis)), false) : void();
      case Family::move: return move(o, v);
      case Family::reduce:
      case Family::argreduce: {
        const auto& axes = o.ints(o.has(Attr::axes) ? Attr::axes : Attr::axis);
        size_t d = 0;
        for (size_t i = 0; i < of(0).size(); ++i)
          if (!contains(axes, i)) lower(v, d++, of(0)[i]);
        return;
      }
      case Family::contract: {
        const ir::DotDims dims = ir::dot_dims(k_, o);
        const auto same = [&](size_t operand, int64_t dim) { return of(operand)[static_cast<size_t>(dim)]; };
        size_t d = 0;
        for (size_t i = 0; i < dims.lhs_batch.size(); ++i)
          lower(v, d++, same(0, dims.lhs_batch[i]) && same(1, dims.rhs_batch[i]));
        for (int64_t i : dims.lhs_free) lower(v, d++, same(0, i));
        for (int64_t i : dims.rhs_free) lower(v, d++, same(1, i));
        if (o.operands.size() == 3) join(v, o.operands[2]);
        return;
      }
      case Family::scan:
      case Family::rearrange:
      case Family::grid:
      case Family::memory:
      case Family::print:
      case Family::control:
      case Family::async:
      case Family::thread:
      case Family::end:
      case Family::launch:
      case Family::ref:
      case Family::group:
      case Family::packed:
      case Family::matrix:
      case Family::report:
        for (Value x : o.results) clear(x);
    }
  }

  void move(const Op& o, Value v) {
    const std::optional<ir::MoveMap> map = ir::move_map(k_, o);
    if (!map) return mixing_reshape(o, v);
    for (const ir::MovePiece& p : map->pieces)
      for (size_t i = 0; i < p.dims.size(); ++i)
        if (p.dims[i].dim >= 0 && k_.type(p.operand).shape[i] != 1)
          lower(v, static_cast<size_t>(p.dims[i].dim), uniform[p.operand.index][i]);
    if (map->pieces.size() > 1) lower(v, map->axis, false);
  }
  void mixing_reshape(const Op& o, Value v) {
    const Shape& from = k_.type(o.operands[0]).shape;
    if (num_elements(from) == 0) return clear(v);
    for (const Group& g : reshape_groups(from, k_.type(v).shape)) {
      bool all = true;
      for (size_t i = g.from; i < g.from_end; ++i) all = all && (from[i] == 1 || uniform[o.operands[0].index][i]);
      for (size_t j = g.to; j < g.to_end; ++j) lower(v, j, all);
    }
  }

  void access(const Op& o) {
    const Value ref = o.operands[0];
    const ir::AccessDims form = ir::access_dims(k_, o);
    const bool plain = !ir::is_atomic(o.code) && !form.arrays && o.code != Opcode::semaphore_read && is_scratch(ref);
    if (!plain) {
      clear(ref);
      for (Value v : o.results) clear(v);
      return;
    }
    // Which dims of the value are those of a slice of the Ref, and what is the same along them.
    for (size_t d = 0; d < o.index.size(); ++d) {
      const Index& ix = o.index[d];
      const int at = form.slice[d];
      const bool whole = ix == Index::all(k_.type(ref).shape[d]);
      if (ir::writes_ref(o.code)) {
        bool same = whole && at >= 0 && uniform[o.operands[1].index][static_cast<size_t>(std::max(at, 0))];
        if (same && o.has_mask())
          same = uniform[o.operands[static_cast<size_t>(o.mask_position())].index][static_cast<size_t>(at)];
        lower(ref, d, same);
      }
      if (!ix.is_static() || ix.as_slice().size == 0) lower(ref, d, false);  // such an access stays as it is
      if (!o.results.empty() && at >= 0) {
        // What a mask leaves out is `other`: where either differs along a dim, one element does not say all. With a
        // mask, a dynamic start may leave out a part of the window.
        bool masks = !o.has_mask() || ix.is_static();
        for (const int extra : {o.has_mask() ? o.mask_position() : -1, o.has_other() ? o.other_position() : -1})
          if (extra >= 0)
            masks = masks && uniform[o.operands[static_cast<size_t>(extra)].index][static_cast<size_t>(at)];
        lower(ref, d, masks);
        lower(o.results[0], static_cast<size_t>(at), masks && uniform[ref.index][d]);
      }
    }
  }
  bool is_scratch(Value ref) const {
    const auto& args = k_.region(k_.body).args;
    const auto it = std::find(args.begin() + static_cast<std::ptrdiff_t>(k_.blocks.size()), args.end(), ref);
    return it != args.end() && !k_.has_threads() && !ir::is_semaphore(k_.type(ref).space);
  }

  const ir::Kernel& k_;
  bool changed_ = false;
};

class Narrowing {
 public:
  Narrowing(ir::Kernel& k, std::string& explain) : k_(k), explain_(explain), uniform_(uniform_dims(k)), b_(k) {}

  bool run() {
    const auto& args = k_.region(k_.body).args;
    narrow_.resize(args.size());
    for (size_t i = k_.blocks.size(); i < args.size(); ++i) {
      const ir::Type& t = k_.type(args[i]);
      narrow_[i].assign(t.shape.size(), false);
      for (size_t d = 0; d < t.shape.size() && !ir::is_semaphore(t.space); ++d)
        narrow_[i][d] = t.shape[d] > 1 && uniform_[args[i].index][d];
      if (std::count(narrow_[i].begin(), narrow_[i].end(), true) == 0) continue;
      Shape shape = t.shape;
      for (size_t d = 0; d < shape.size(); ++d)
        if (narrow_[i][d]) {
          explain_ += "  scratch[" + std::to_string(i - k_.blocks.size()) + "]: the same along dim " +
                      std::to_string(d) + ", so one element of " + std::to_string(shape[d]) + " is kept\n";
          shape[d] = 1;
        }
      k_.values[args[i].index].type.shape = shape;
      k_.scratch[i - k_.blocks.size()].shape = shape;
      changed_ = true;
    }
    for (const Op& o : k_.ops) {
      if (o.code != Opcode::slice ||
          only_along(known(o.operands[0]), k_.type(o.operands[0]).shape, k_.type(o.results[0]).shape))
        continue;
      const Window w{o.ints(Attr::start), o.ints(Attr::limit), o.ints(Attr::stride)};
      const auto [it, fresh] = windows_.try_emplace(o.operands[0].index, w);
      if (it->second != w) it->second = {};
    }
    rewrite(k_.body);
    return changed_;
  }

 private:
  using Window = std::array<std::vector<int64_t>, 3>;  // start, limit, stride

  void rewrite(RegionId r) {
    const std::vector<OpId> ops = std::move(k_.region(r).ops);
    k_.region(r).ops.clear();
    for (OpId id : ops) {
      for (RegionId inner : std::vector<RegionId>(k_.op(id).regions)) {
        const auto outer = slices_;
        rewrite(inner);
        slices_ = outer;
      }
      b_.set_region(r);
      b_.set_loc(k_.op(id).loc);
      const Opcode code = k_.op(id).code;
      if (ir::accesses_ref(code)) access(id);
      else if (code == Opcode::reshape) reshape(id);
      else if (code == Opcode::slice) slice(id);
      else k_.region(r).ops.push_back(id);
    }
  }

  void put(OpId id) { k_.region(b_.region()).ops.push_back(id); }
  /// The op `id` becomes one that gives its result from v.
  void becomes_broadcast(OpId id, Value v) {
    Op& o = k_.op(id);
    std::vector<int64_t> dims(k_.type(v).shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    o = Op{.code = Opcode::broadcast, .operands = {v}, .results = o.results, .loc = o.loc};
    o.set(Attr::dims, dims);
    put(id);
  }

  // One element along the dims marked, which is each of them.
  Value first_along(Value v, const Dims& dims) {
    std::vector<int64_t> start(dims.size(), 0), limit = k_.type(v).shape, stride(dims.size(), 1);
    bool any = false;
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] && limit[d] != 1) limit[d] = 1, any = true;
    return any ? sliced(v, start, limit, stride) : v;
  }

  void access(OpId id) {
    const Value ref = k_.op(id).operands[0];
    const auto& args = k_.region(k_.body).args;
    const auto position = static_cast<size_t>(std::find(args.begin(), args.end(), ref) - args.begin());
    if (position >= args.size() || position < k_.blocks.size() ||
        std::count(narrow_[position].begin(), narrow_[position].end(), true) == 0)
      return put(id);
    const Dims& narrow = narrow_[position];
    const ir::AccessDims form = ir::access_dims(k_, k_.op(id));
    Op o = k_.op(id);
    Dims dims(form.shape.size(), false);
    for (size_t d = 0; d < narrow.size(); ++d) {
      if (!narrow[d]) continue;
      if (form.slice[d] >= 0) dims[static_cast<size_t>(form.slice[d])] = true;
      o.index[d] = o.index[d].is_integer() ? Index::at(0) : Index::all(1);
    }
    for (const int at :
         {o.value_position(), o.has_mask() ? o.mask_position() : -1, o.has_other() ? o.other_position() : -1})
      if (at >= 0) o.operands[static_cast<size_t>(at)] = first_along(o.operands[static_cast<size_t>(at)], dims);
    if (o.results.empty()) {
      k_.op(id) = o;
      return put(id);
    }
    o.results.clear();
    becomes_broadcast(id, b_.one(std::move(o)));
  }

  // A reshape that mixes no dims but such as are the same along all of them.
  void reshape(OpId id) {
    const Value from = k_.op(id).operands[0], to = k_.op(id).results[0];
    const Shape in = k_.type(from).shape, out = k_.type(to).shape;
    if (num_elements(in) == 0 || ir::reshape_keeps_dims(in, out)) return put(id);
    Dims equal_in(in.size(), false);
    Shape narrow = out;
    for (const Group& g : reshape_groups(in, out)) {
      bool all = true;
      for (size_t i = g.from; i < g.from_end; ++i) all = all && (in[i] == 1 || known(from)[i]);
      for (size_t i = g.from; i < g.from_end && all; ++i) equal_in[i] = true;
      for (size_t j = g.to; j < g.to_end && all; ++j) narrow[j] = 1;
    }
    if (narrow == out) return put(id);
    changed_ = true;
    Op o{.code = Opcode::reshape, .operands = {first_along(from, equal_in)}};
    becomes_broadcast(id, b_.one(std::move(o), ir::Type::array(k_.type(from).dtype, narrow)));
  }

  void slice(OpId id) {
    const Op o = k_.op(id);
    const Dims& equal = known(o.operands[0]);
    const Shape &from = k_.type(o.operands[0]).shape, &to = k_.type(o.results[0]).shape;
    if (from == to) return put(id);  // of everything: the passes drop it
    if (only_along(equal, from, to) && num_elements(to) > 0) {
      changed_ = true;
      Dims taken(from.size(), false);
      for (size_t d = 0; d < from.size(); ++d) taken[d] = from[d] != to[d];
      return becomes_broadcast(id, first_along(o.operands[0], taken));
    }
    const std::optional<Value> v = sink(o.operands[0], o.ints(Attr::start), o.ints(Attr::limit), o.ints(Attr::stride));
    if (!v) return put(id);
    changed_ = true;
    // A slice that takes all, which the passes drop.
    std::vector<int64_t> zero(k_.type(*v).shape.size(), 0), one(zero.size(), 1);
    Op& all = k_.op(id);
    all.operands = {*v};
    all.set(Attr::start, zero);
    all.set(Attr::limit, k_.type(*v).shape);
    all.set(Attr::stride, one);
    put(id);
  }

  Value sliced(Value v, const std::vector<int64_t>& start, const std::vector<int64_t>& limit,
               const std::vector<int64_t>& stride) {
    const std::pair key{v.index, Window{start, limit, stride}};
    if (const auto it = slices_.find(key); it != slices_.end()) return it->second;
    std::optional<Value> result = sink(v, start, limit, stride);
    if (!result) {
      Op o{.code = Opcode::slice, .operands = {v}};
      o.set(Attr::start, start);
      o.set(Attr::limit, limit);
      o.set(Attr::stride, stride);
      result = b_.one(std::move(o));
    }
    slices_.emplace(key, *result);
    return *result;
  }

  // Whether a slice takes less only along dims where all elements are equal.
  static bool only_along(const Dims& equal, const Shape& from, const Shape& to) {
    for (size_t d = 0; d < from.size(); ++d)
      if (from[d] != to[d] && !equal[d]) return false;
    return true;
  }
  // A value of which different parts are taken is not computed anew for each of them. Of equal elements always the
  // first is taken.
  bool only_part(Value v, const Window& w) {
    const auto [it, fresh] = windows_.try_emplace(v.index, w);
    return it->second == w;
  }

  /// The slice of v as an op on slices of what v is computed from; none where v is neither an element-wise op nor a
  /// move of whole dims.
  std::optional<Value> sink(Value v, const std::vector<int64_t>& start, const std::vector<int64_t>& limit,
                            const std::vector<int64_t>& stride) {
    const Op* def = k_.def(v);
    if (!def || depth_ > kDeepest) return std::nullopt;
    const Shape full = k_.type(v).shape;
    Shape shape;
    for (size_t d = 0; d < full.size(); ++d)
      shape.push_back(limit[d] <= start[d] ? 0 : cdiv(limit[d] - start[d], stride[d]));
    if (shape == full) return v;
    if (!only_along(known(v), full, shape) && !only_part(v, {start, limit, stride})) return std::nullopt;
    Op o = *def;
    o.results.clear();
    struct Deeper {
      int& d;
      explicit Deeper(int& x) : d(x) { ++d; }
      ~Deeper() { --d; }
    } deeper(depth_);
    if (ir::is_elementwise(o.code)) {
      for (Value& x : o.operands)
        if (!k_.type(x).shape.empty()) x = sliced(x, start, limit, stride);
      return b_.one(std::move(o), ir::Type::array(k_.type(v).dtype, shape));
    }
    if (o.code == Opcode::constant) return b_.one(std::move(o), ir::Type::array(k_.type(v).dtype, shape));
    if (o.code == Opcode::slice) {
      std::vector<int64_t> s, l, t;
      for (size_t d = 0; d < full.size(); ++d) {
        const bool none = shape[d] == 0;  // then its start need not be a position of the operand
        s.push_back(none ? 0 : o.ints(Attr::start)[d] + start[d] * o.ints(Attr::stride)[d]);
        t.push_back(none ? 1 : stride[d] * o.ints(Attr::stride)[d]);
        l.push_back(none ? 0 : s[d] + (shape[d] - 1) * t[d] + 1);
      }
      return sliced(o.operands[0], s, l, t);
    }
    // A move that takes whole dims elsewhere takes their slices there. Where the slice leaves a dim of one element out,
    // the operand would have to lose it, too.
    const auto dims = ir::move_dims(k_, *def);
    if (!dims || num_elements(shape) == 0) return std::nullopt;
    std::vector<int64_t> s(dims->size(), 0), l(dims->size(), 1), t(dims->size(), 1);
    for (size_t i = 0; i < dims->size(); ++i) {
      const ir::DimSource& source = (*dims)[i];
      if (source.dim < 0) continue;
      if (!source.whole) return std::nullopt;
      const auto d = static_cast<size_t>(source.dim);
      s[i] = start[d], l[i] = limit[d], t[i] = stride[d];
    }
    if (!dims->empty()) o.operands[0] = sliced(o.operands[0], s, l, t);
    return b_.one(std::move(o), ir::Type::array(k_.type(v).dtype, shape));
  }

  static constexpr int kDeepest = 64;
  const Dims& known(Value v) const {
    static const Dims none(64, false);
    return v.index < uniform_.size() ? uniform_[v.index] : none;
  }

  ir::Kernel& k_;
  std::string& explain_;
  const std::vector<Dims> uniform_;  // of the values that the kernel had
  ir::Builder b_;
  std::vector<Dims> narrow_;                             // per body argument
  std::map<std::pair<uint32_t, Window>, Value> slices_;  // made so far, where they are in scope
  // per value: the part of it that is computed by itself; none if there would be several
  std::map<uint32_t, Window> windows_;
  int depth_ = 0;
  bool changed_ = false;
};

}  // namespace

std::vector<std::vector<bool>> uniform_dims(const ir::Kernel& k) { return Analysis(k).uniform; }

bool narrow_uniform(ir::Kernel& k, std::string& explain) { return Narrowing(k, explain).run(); }

}  // namespace tessera::lowering
