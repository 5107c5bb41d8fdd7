#include "codegen/tile/lower_async.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/ir/builder.h"
#include "engine/passes/replacements.h"

namespace tessera::lowering {
namespace {
using ir::Attr, ir::Index, ir::MemorySpace, ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Type, ir::Value;

constexpr int64_t kScalarCounters = 8;  // arrays of so many semaphores become scalars, which live in registers

int64_t bytes_of(const ir::Kernel& k, const Op& copy) {
  const ir::CopyPlace source = ir::copy_places(k, copy)[0];
  int64_t n = size_bytes(k.type(source.ref).dtype);
  for (size_t d = 0; d < source.rank; ++d)
    if (const Index::Slice* x = copy.index[source.first + d].slice()) n *= x->size;
  return n;
}

/// What the ops of a program add up to in the semaphores of scratch. Where that is certainly nothing, a program finds
/// them at 0 whichever ran before it, and they are its own.
class Balance {
 public:
  explicit Balance(const ir::Kernel& k) : k_(k) {}
  bool zero() const {
    const auto net = of(k_.body);
    return net && net->empty();
  }

 private:
  using Key = std::vector<int64_t>;  // the semaphore's Ref, then per dim its start, or -1 - the value that gives it
  using Net = std::map<Key, int64_t>;
  const ir::Kernel& k_;

  static void add(Net& net, const Key& key, int64_t n) {
    if ((net[key] += n) == 0) net.erase(key);
  }
  std::optional<Net> of(RegionId r) const {
    Net net;
    for (OpId id : k_.region(r).ops) {
      const Op& op = k_.op(id);
      if (ir::is_async(op.code) && op.code != Opcode::semaphore_read) {
        const bool copy = ir::is_copy(op.code);
        const ir::CopyPlace s = copy ? ir::copy_places(k_, op)[2] : ir::CopyPlace{op.operands[0], 0, op.index.size()};
        if (k_.value(s.ref).region != k_.body) continue;
        const auto n = copy ? std::optional(bytes_of(k_, op)) : ir::constant_int(k_, op.operands[1]);
        if (!n) return std::nullopt;
        Key key{s.ref.index};
        for (size_t d = 0; d < s.rank; ++d) {
          const Index& x = op.index[s.first + d];
          key.push_back(x.is_static() ? x.constant() : -1 - int64_t{op.operand_of(x).index});
        }
        add(net, key, op.code == Opcode::copy_start || op.code == Opcode::semaphore_signal ? *n : -*n);
      }
      std::optional<Net> first;
      for (RegionId inner : op.regions) {
        const auto n = of(inner);
        if (!n) return std::nullopt;
        if (ir::is_loop(op.code) && !n->empty()) return std::nullopt;
        if (first && *first != *n) return std::nullopt;
        first = n;
      }
      if (first)
        for (const auto& [key, n] : *first) add(net, key, n);
    }
    return net;
  }
};

class Expander {
 public:
  Expander(ir::Kernel& k, std::vector<WaitSite>& sites, PrefetchedCopies* prefetch)
      : k_(k), b_(k), sites_(sites), prefetch_(prefetch), replaced_(k) {}

  bool run() {
    const bool any =
        std::any_of(k_.ops.begin(), k_.ops.end(),
                    [](const Op& o) { return o.code == Opcode::run_scoped || ir::is_async(o.code); }) ||
        std::any_of(k_.scratch.begin(), k_.scratch.end(), [](const Type& t) { return is_semaphore(t.space); });
    if (!any) return false;
    own_ = Balance(k_).zero();
    const std::vector<Value> args = k_.region(k_.body).args;
    const size_t shared = k_.scratch.size() - static_cast<size_t>(k_.num_private_scratch);
    std::vector<Value> counters;  // the kernel's own, from program to program
    for (size_t i = 0; i < k_.scratch.size(); ++i) {
      const Value arg = args[k_.blocks.size() + i];
      if (is_semaphore(k_.scratch[i].space)) {
        Semaphore& s =
            make_semaphore(arg, "scratch_shapes[" + std::to_string(i) + "]", own_ || i >= shared ? private_ : kept_);
        if (!own_ && i < shared) counters.insert(counters.end(), s.cells.begin(), s.cells.end());
        else fresh_.push_back(arg);
      } else {
        (i < shared ? kept_ : private_).push_back(arg);
      }
    }
    allocate(k_.body);
    const std::vector<OpId> ops = std::exchange(k_.region(k_.body).ops, {});
    b_.set_region(k_.body);
    b_.set_loc(k_.loc);
    for (const auto& [id, p] : prefetched_) {
      if (p.lasts) counters.push_back(p.pending);
      else reset({p.pending});
    }
    for (const Value s : fresh_) reset(semaphores_.at(s.index).cells);
    if (!counters.empty()) at_first_program([&] { reset(counters); });
    list(ops);

    std::vector<Value> all(args.begin(), args.begin() + static_cast<ptrdiff_t>(k_.blocks.size()));
    all.insert(all.end(), kept_.begin(), kept_.end());
    all.insert(all.end(), private_.begin(), private_.end());
    k_.region(k_.body).args = all;
    k_.scratch.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      k_.values[all[i].index].number = static_cast<uint32_t>(i);
      k_.values[all[i].index].region = k_.body;
      if (i >= k_.blocks.size()) k_.scratch.push_back(k_.type(all[i]));
    }
    k_.num_private_scratch = static_cast<int>(private_.size());
    return true;
  }

 private:
  struct Semaphore {
    std::string name;
    Shape shape;
    std::vector<Value> cells;  // one scalar each, or a single array
    bool scalars = true;
  };
  /// A copy that is loaded where it starts and stored where it is waited for.
  struct Prefetched {
    bool lasts = false;  // a later program may wait for it
    Value tile, pending;
    std::vector<Value> starts;       // of the target's index
    std::vector<Value> from_starts;  // of the source's, if what is outside there is left out of the target
    Value semaphore;
  };
  ir::Kernel& k_;
  ir::Builder b_;
  std::vector<WaitSite>& sites_;
  PrefetchedCopies* prefetch_;
  passes::Replacements replaced_;
  std::map<uint32_t, Semaphore> semaphores_;  // by Ref
  bool own_ = true;                           // each program ends with the semaphores as they were
  std::vector<Value> kept_, private_, fresh_;
  std::map<uint32_t, Prefetched> prefetched_;  // by op

  Value new_scratch(const Type& t, std::vector<Value>& list) {
    const Value v{static_cast<uint32_t>(k_.values.size())};
    k_.values.push_back({t, {}, k_.body, UINT32_MAX});  // numbered when all are known: behind the blocks
    list.push_back(v);
    return v;
  }
  Semaphore& make_semaphore(Value ref, std::string name, std::vector<Value>& list) {
    Semaphore s{std::move(name), k_.type(ref).shape, {}, num_elements(k_.type(ref).shape) <= kScalarCounters};
    if (s.scalars)
      for (int64_t i = 0; i < num_elements(s.shape); ++i)
        s.cells.push_back(new_scratch(Type::ref(DType::i32, {}, MemorySpace::smem), list));
    else s.cells.push_back(new_scratch(Type::ref(DType::i32, s.shape, MemorySpace::smem), list));
    return semaphores_[ref.index] = std::move(s);
  }

  void reset(const std::vector<Value>& cells) {
    for (const Value c : cells) {
      Op op{.code = Opcode::store, .operands = {c, b_.constant_int(DType::i32, 0, k_.type(c).shape)}};
      for (int64_t n : k_.type(c).shape) op.index.push_back(Index::all(n));
      b_.append(std::move(op));
    }
  }
  /// Of those that share scratch: the first along every axis that is not parallel by contract. Counters go from program
  /// to program along such an axis, so what lies inside it comes in order too.
  template <class F> void at_first_program(F f) {
    Value first;
    int64_t axis = 0;
    bool ordered = false;
    for (ir::GridAxis& g : k_.grid) {
      if (g.vmapped) continue;
      Op id{.code = Opcode::program_id};
      id.set(Attr::axis, axis++);
      if (ordered) g.parallel = false;
      if (g.parallel) continue;
      ordered = ordered || !(g.size == Extent(1));
      const Value is = b_.elementwise(Opcode::eq, {b_.one(std::move(id)), b_.constant_int(DType::i32, 0)});
      first = first ? b_.elementwise(Opcode::and_, {first, is}) : is;
    }
    if (first) b_.when(first, f);
    else f();
  }

  bool any_later_program() const {
    return std::any_of(k_.grid.begin(), k_.grid.end(),
                       [](const ir::GridAxis& g) { return !g.vmapped && !g.parallel && !(g.size == Extent(1)); });
  }

  void region(RegionId r) {
    const std::vector<OpId> ops = std::move(k_.region(r).ops);
    k_.region(r).ops.clear();
    const RegionId outer = b_.region();
    b_.set_region(r);
    list(ops);
    b_.set_region(outer);
  }
  void list(const std::vector<OpId>& ops) {
    for (OpId id : ops) {
      replaced_.apply(k_.op(id));
      b_.set_loc(k_.op(id).loc);
      const Op op = k_.op(id);
      if (op.code == Opcode::run_scoped) scoped(op);
      else if (ir::is_async(op.code)) async(id, op);
      else {
        for (RegionId r : op.regions) region(r);
        if (const OpId one = passes::keep_step(k_, id)) k_.region(b_.region()).ops.push_back(one);
        k_.region(b_.region()).ops.push_back(id);
      }
    }
  }
  void async(OpId id, const Op& op) {
    switch (ir::Async(op.code)) {
      case ir::Async::semaphore_signal: return count(op, {op.operands[0], 0, op.index.size()}, op.operands[1]);
      case ir::Async::semaphore_wait: return wait(op, {op.operands[0], 0, op.index.size()}, op.operands[1]);
      case ir::Async::semaphore_read:
        return replaced_.replace(op.results[0], read(op, {op.operands[0], 0, op.index.size()}));
      case ir::Async::copy_start:
        if (const auto it = prefetched_.find(id.index); it != prefetched_.end()) start_prefetched(id, it->second);
        else copy(op);
        return count(op, ir::copy_places(k_, op)[2], b_.constant_int(DType::i32, bytes_of(k_, op)));
      case ir::Async::copy_wait:
        for (const auto& [start, a] : prefetched_)
          if (a.semaphore == op.operands[2]) finish({start}, a);
        return wait(op, ir::copy_places(k_, op)[2], b_.constant_int(DType::i32, bytes_of(k_, op)));
    }
  }

  /// Scratch for every run_scoped, and for every copy that is prefetched: what waits for it may stand before its
  /// start, in a loop.
  void allocate(RegionId r) {
    const std::vector<OpId> ops = k_.region(r).ops;
    for (size_t n = 0; n < ops.size(); ++n) {
      const OpId id = ops[n];
      const std::vector<RegionId> regions = k_.op(id).regions;
      if (k_.op(id).code == Opcode::run_scoped) {
        const std::vector<Value> args = k_.region(regions[0]).args;
        for (size_t i = 0; i < args.size(); ++i) {
          const Type t = k_.type(args[i]);
          if (is_semaphore(t.space)) make_semaphore(args[i], "run_scoped[" + std::to_string(i) + "]", private_);
          else replaced_.replace(args[i], new_scratch(t, private_));
        }
      }
      // Nothing is gained where the wait follows at once.
      if (k_.op(id).code == Opcode::copy_start &&
          !(k_.op(ops[n + 1]).code == Opcode::copy_wait && k_.op(ops[n + 1]).operands[2] == k_.op(id).operands[2]))
        prefetch_copy(id);
      for (RegionId inner : regions) allocate(inner);
    }
  }
  void prefetch_copy(OpId id) {
    const Op op = k_.op(id);
    if (!prefetch_ || prefetch_->most_elements == 0) return;
    const std::array<ir::CopyPlace, 3> places = ir::copy_places(k_, op);
    const ir::ValueInfo &from = k_.value(places[0].ref), &to = k_.value(places[1].ref);
    const bool array = from.region == k_.body && from.number < k_.blocks.size(),
               scratch = to.region != k_.body || to.number >= k_.blocks.size();
    Shape shape;
    for (size_t d = 0; d < places[0].rank; ++d)
      if (const Index::Slice* x = op.index[d].slice()) shape.push_back(x->size);
    // Where the target is always taken whole it can be registers itself.
    const int64_t n = num_elements(shape);
    if (!array || !scratch || n == 0 || only_whole(places[1].ref)) return;
    if (n > prefetch_->most_elements) {
      prefetch_->refused[id.index] = "at most " + std::to_string(prefetch_->most_elements) + " elements are";
      return;
    }
    Prefetched a;
    // What its program does not wait for lies where the target does, until another one of those that share it waits.
    a.lasts = !own_ && any_later_program() && std::find(kept_.begin(), kept_.end(), places[1].ref) != kept_.end();
    std::vector<Value>& list = a.lasts ? kept_ : private_;
    a.tile = new_scratch(Type::ref(k_.type(places[0].ref).dtype, shape, MemorySpace::vmem), list);
    const Type scalar = Type::ref(DType::i32, {}, MemorySpace::smem);
    a.pending = new_scratch(scalar, list);
    for (size_t d = 0; d < places[1].rank; ++d)
      if (!op.index[places[1].first + d].is_static()) a.starts.push_back(new_scratch(scalar, list));
    for (size_t d = 0; d < places[0].rank && clips(op); ++d)
      if (!op.index[places[0].first + d].is_static()) a.from_starts.push_back(new_scratch(scalar, list));
    a.semaphore = places[2].ref;
    prefetched_.emplace(id.index, std::move(a));
    prefetch_->copies.push_back(id.index);
  }
  bool only_whole(Value ref) const {
    const auto all = [&](const Op& op, size_t first) {
      for (size_t d = 0; d < k_.type(ref).shape.size(); ++d)
        if (!(op.index[first + d] == Index::all(k_.type(ref).shape[d]))) return false;
      return true;
    };
    return std::all_of(k_.ops.begin(), k_.ops.end(), [&](const Op& op) {
      if (ir::accesses_ref(op.code)) return op.operands[0] != ref || (!op.has_mask() && all(op, 0));
      if (!ir::is_copy(op.code)) return true;
      const std::array<ir::CopyPlace, 3> places = ir::copy_places(k_, op);
      return std::all_of(places.begin(), places.begin() + 2,
                         [&](const ir::CopyPlace& p) { return p.ref != ref || all(op, p.first); });
    });
  }
  bool fills(const Op& op, const ir::CopyPlace& place) const {
    const ir::ValueInfo& ref = k_.value(place.ref);
    bool all = ref.region != k_.body || ref.number >= k_.blocks.size();
    for (size_t d = 0; d < place.rank; ++d) all = all && op.index[place.first + d] == Index::all(ref.type.shape[d]);
    return all;
  }
  void load_all(Value ref, Op& load) {
    load.operands = {ref};
    for (int64_t n : k_.type(ref).shape) load.index.push_back(Index::all(n));
  }
  /// What was prefetched, if anything, goes where it belongs.
  void finish(OpId id, const Prefetched& a) {
    const Op op = k_.op(id);
    const Value pending = b_.elementwise(Opcode::ne, {load(a.pending), b_.constant_int(DType::i32, 0)});
    b_.when(pending, [&] {
      Op all{.code = Opcode::load};
      load_all(a.tile, all);
      const Value v = b_.one(std::move(all));
      const std::array<ir::CopyPlace, 3> places = ir::copy_places(k_, op);
      const ir::CopyPlace& target = places[1];
      Op to{.code = Opcode::store, .operands = {replaced_(target.ref), v}};
      if (clips(op)) {
        std::vector<Value> from;
        for (const Value s : a.from_starts) from.push_back(load(s));
        to.operands.push_back(inside(op, places[0], from));
        to.set(Attr::mask, 1);
      }
      to.index.assign(op.index.begin() + static_cast<ptrdiff_t>(target.first),
                      op.index.begin() + static_cast<ptrdiff_t>(target.first + target.rank));
      size_t next = 0;
      for (Index& x : to.index) {
        if (x.is_static()) continue;
        *x.operand() = to.operands.size();
        to.operands.push_back(load(a.starts[next++]));
      }
      b_.append(std::move(to));
      store(a.pending, b_.constant_int(DType::i32, 0));
    });
  }
  void start_prefetched(OpId id, const Prefetched& a) {
    finish(id, a);  // an earlier one
    const Op op = k_.op(id);
    const std::array<ir::CopyPlace, 3> places = ir::copy_places(k_, op);
    const std::vector<Value> from = dynamic_starts(op, places[0]);
    Value v;
    if (clips(op)) {
      Op load{.code = Opcode::load, .operands = {places[0].ref, inside(op, places[0], from)}};
      load.set(Attr::mask, 1);
      load.index = index_of(op, places[0], load.operands);
      v = b_.one(std::move(load));
      for (size_t i = 0; i < from.size(); ++i) store(a.from_starts[i], from[i]);
    } else {
      v = load(places[0].ref, &op, &places[0]);
    }
    Op all{.code = Opcode::store};
    load_all(a.tile, all);
    all.operands.push_back(v);
    b_.append(std::move(all));
    size_t next = 0;
    for (size_t d = 0; d < places[1].rank; ++d) {
      const Index& x = op.index[places[1].first + d];
      if (x.is_static()) continue;
      const Value start = op.operand_of(x);
      store(a.starts[next++], clips(op) ? start : fitted(start, x, k_.type(places[1].ref).shape[d]));
    }
    store(a.pending, b_.constant_int(DType::i32, 1));
  }

  void scoped(const Op& op) {
    const ir::Region body = k_.region(op.regions[0]);
    for (const Value v : body.args)
      if (is_semaphore(k_.type(v).space)) reset(semaphores_.at(v.index).cells);
    const OpId yield = body.ops.back();
    list({body.ops.begin(), body.ops.end() - 1});
    replaced_.apply(k_.op(yield));
    for (size_t i = 0; i < op.results.size(); ++i) replaced_.replace(op.results[i], k_.op(yield).operands[i]);
  }

  /// A copy's window moves as a whole, whatever its step; in loads and stores a step parts its elements.
  Value fitted(Value start, const Index& x, int64_t n) {
    const auto number = [&](int64_t i) { return b_.constant_int(DType::i32, i); };
    const int64_t span = std::max<int64_t>(x.as_slice().span() - 1, 0);
    const Value wrapped = b_.elementwise(Opcode::select, {b_.elementwise(Opcode::lt, {start, number(0)}),
                                                          b_.elementwise(Opcode::add, {start, number(n)}), start});
    return b_.elementwise(Opcode::clamp, {number(0), wrapped, number(std::max<int64_t>(n - 1 - span, 0))});
  }

  // -- counters
  /// The index of a place for an op of its own, whose starts come behind `operands`.
  std::vector<Index> index_of(const Op& op, const ir::CopyPlace& place, std::vector<Value>& operands) {
    std::vector<Index> index(op.index.begin() + static_cast<ptrdiff_t>(place.first),
                             op.index.begin() + static_cast<ptrdiff_t>(place.first + place.rank));
    for (Index& x : index) {
      if (x.is_static()) continue;
      const Value start = op.operand_of(x);
      const bool steps = std::any_of(index.begin(), index.end(), [](const Index& y) { return y.as_slice().step > 1; });
      *x.operand() = operands.size();
      operands.push_back(steps && op.attr_or(Attr::clip, 0) == 0
                             ? fitted(start, x, k_.type(place.ref).shape[static_cast<size_t>(&x - index.data())])
                             : start);
    }
    return index;
  }
  Value load(Value ref, const Op* op = nullptr, const ir::CopyPlace* place = nullptr) {
    Op load{.code = Opcode::load, .operands = {ref}};
    if (place) load.index = index_of(*op, *place, load.operands);
    return b_.one(std::move(load));
  }
  void store(Value ref, Value v, const Op* op = nullptr, const ir::CopyPlace* place = nullptr) {
    Op store{.code = Opcode::store, .operands = {ref, v}};
    if (place) store.index = index_of(*op, *place, store.operands);
    b_.append(std::move(store));
  }
  /// Which of the cells an index means: a number, or a value that is clamped as every index is.
  std::optional<int64_t> known_cell(const Op& op, const ir::CopyPlace& place, const Semaphore& s) const {
    int64_t at = 0;
    for (size_t d = 0; d < place.rank; ++d) {
      const Index& x = op.index[place.first + d];
      if (!x.is_static()) return std::nullopt;
      at = at * s.shape[d] + x.constant();
    }
    return at;
  }
  Value cell(const Op& op, const ir::CopyPlace& place, const Semaphore& s) {
    const auto number = [&](int64_t n) { return b_.constant_int(DType::i32, n); };
    Value at;
    for (size_t d = 0; d < place.rank; ++d) {
      const Index& x = op.index[place.first + d];
      Value i = x.is_static() ? number(x.constant()) : op.operand_of(x);
      if (!x.is_static()) {
        const Value wrapped = b_.elementwise(Opcode::select, {b_.elementwise(Opcode::lt, {i, number(0)}),
                                                              b_.elementwise(Opcode::add, {i, number(s.shape[d])}), i});
        i = b_.elementwise(Opcode::clamp, {number(0), wrapped, number(s.shape[d] - 1)});
      }
      at = at ? b_.elementwise(Opcode::add, {b_.elementwise(Opcode::mul, {at, number(s.shape[d])}), i}) : i;
    }
    return at;
  }
  Value read(const Op& op, const ir::CopyPlace& place) {
    const Semaphore& s = semaphores_.at(place.ref.index);
    if (!s.scalars) return load(s.cells[0], &op, &place);
    if (const auto at = known_cell(op, place, s)) return load(s.cells[static_cast<size_t>(*at)]);
    const Value at = cell(op, place, s);
    Value v = load(s.cells[0]);
    for (size_t i = 1; i < s.cells.size(); ++i)
      v = b_.elementwise(Opcode::select,
                         {b_.elementwise(Opcode::eq, {at, b_.constant_int(DType::i32, static_cast<int64_t>(i))}),
                          load(s.cells[i]), v});
    return v;
  }
  void count(const Op& op, const ir::CopyPlace& place, Value by) {
    const Semaphore& s = semaphores_.at(place.ref.index);
    if (!s.scalars)
      return store(s.cells[0], b_.elementwise(Opcode::add, {load(s.cells[0], &op, &place), by}), &op, &place);
    if (const auto at = known_cell(op, place, s)) {
      const Value c = s.cells[static_cast<size_t>(*at)];
      return store(c, b_.elementwise(Opcode::add, {load(c), by}));
    }
    const Value at = cell(op, place, s), zero = b_.constant_int(DType::i32, 0);
    for (size_t i = 0; i < s.cells.size(); ++i) {
      const Value mine = b_.elementwise(
          Opcode::select,
          {b_.elementwise(Opcode::eq, {at, b_.constant_int(DType::i32, static_cast<int64_t>(i))}), by, zero});
      store(s.cells[i], b_.elementwise(Opcode::add, {load(s.cells[i]), mine}));
    }
  }
  void wait(const Op& op, const ir::CopyPlace& place, Value amount) {
    const Semaphore& s = semaphores_.at(place.ref.index);
    const Value holds = read(op, place);
    Op report{.code = Opcode::report,
              .operands = {b_.elementwise(Opcode::lt, {holds, amount}),
                           b_.constant_int(DType::i32, static_cast<int64_t>(sites_.size())), holds, amount}};
    report.set(Attr::mask, Program::kWaitFailed);
    b_.append(std::move(report));
    std::string where = s.name;
    if (place.rank > 0) {
      where += "[";
      for (size_t d = 0; d < place.rank; ++d) {
        const Index& x = op.index[place.first + d];
        where += (d ? ", " : "") + (x.is_static() ? std::to_string(x.constant()) : std::string("?"));
      }
      where += "]";
    }
    const bool copy = op.code == Opcode::copy_wait;
    sites_.push_back({std::string(ir::name(op.code)), where, copy, op.loc});
    count(op, place, b_.elementwise(Opcode::sub, {b_.constant_int(DType::i32, 0), amount}));
  }

  // -- copies
  static bool clips(const Op& op) { return op.attr_or(Attr::clip, 0) != 0; }
  std::vector<Value> dynamic_starts(const Op& op, const ir::CopyPlace& place) const {
    std::vector<Value> starts;
    for (size_t d = 0; d < place.rank; ++d)
      if (const Index& x = op.index[place.first + d]; !x.is_static()) starts.push_back(op.operand_of(x));
    return starts;
  }
  /// Which elements of a copy lie in its source, whose dynamic starts are these.
  Value inside(const Op& op, const ir::CopyPlace& source, const std::vector<Value>& starts) {
    Shape shape;
    for (size_t d = 0; d < source.rank; ++d)
      if (const Index::Slice* x = op.index[source.first + d].slice()) shape.push_back(x->size);
    const auto number = [&](int64_t n) { return b_.constant_int(DType::i32, n, shape); };
    Value mask = b_.constant(DType::boolean, 1, shape);
    size_t next = 0;
    for (size_t d = 0, axis = 0; d < source.rank; ++d) {
      const Index& x = op.index[source.first + d];
      const Index::Slice* slice = x.slice();
      if (!x.is_static()) {
        Value at = b_.broadcast(starts[next++], shape, {});
        if (slice) {
          Op iota{.code = Opcode::iota};
          iota.set(Attr::axis, static_cast<int64_t>(axis));
          at = b_.elementwise(Opcode::add,
                              {at, b_.elementwise(Opcode::mul, {b_.one(std::move(iota), Type::array(DType::i32, shape)),
                                                                number(slice->step)})});
        }
        const int64_t n = k_.type(source.ref).shape[d];
        mask = b_.elementwise(Opcode::and_,
                              {mask, b_.elementwise(Opcode::and_, {b_.elementwise(Opcode::ge, {at, number(0)}),
                                                                   b_.elementwise(Opcode::lt, {at, number(n)})})});
      }
      axis += slice != nullptr;
    }
    return mask;
  }

  void copy(const Op& op) {
    const std::array<ir::CopyPlace, 3> places = ir::copy_places(k_, op);
    if (!clips(op)) return store(places[1].ref, load(places[0].ref, &op, &places[0]), &op, &places[1]);
    // Nothing shifts under a mask. What lies outside of the source is left out of the store as well.
    const Value mask = inside(op, places[0], dynamic_starts(op, places[0]));
    // A target that is filled whole keeps what is left out by being stored again: whole stores let it be registers.
    const bool whole = fills(op, places[1]);
    Op load{.code = Opcode::load, .operands = {places[0].ref, mask}};
    load.set(Attr::mask, 1);
    if (whole) {
      Op all{.code = Opcode::load};
      load_all(places[1].ref, all);
      load.operands.push_back(b_.one(std::move(all)));
      load.set(Attr::other, 1);
    }
    load.index = index_of(op, places[0], load.operands);
    const Value v = b_.one(std::move(load));
    if (whole) return this->store(places[1].ref, v, &op, &places[1]);
    Op store{.code = Opcode::store, .operands = {places[1].ref, v, mask}};
    store.set(Attr::mask, 1);
    store.index = index_of(op, places[1], store.operands);
    b_.append(std::move(store));
  }
};
}  // namespace

bool lower_async(ir::Kernel& k, std::vector<WaitSite>& sites, PrefetchedCopies* prefetch) {
  return Expander(k, sites, prefetch).run();
}

void check_waits(const ir::Kernel& k, const std::vector<WaitSite>& sites) {
  for (OpId id : k.region(k.body).ops) {
    const Op& op = k.op(id);
    if (op.code != Opcode::report || op.attr(Attr::mask) != Program::kWaitFailed ||
        ir::constant_int(k, op.operands[0]).value_or(0) == 0)
      continue;
    const auto holds = ir::constant_int(k, op.operands[2]), amount = ir::constant_int(k, op.operands[3]);
    const WaitSite& site = sites.at(static_cast<size_t>(*ir::constant_int(k, op.operands[1])));
    throw CompileError(wait_failed(k.name, site, holds, amount), site.loc, kSignalFirst);
  }
}

std::string explain_copies(const ir::Kernel& source, const ir::Kernel& lowered, size_t waits,
                           const PrefetchedCopies& prefetch) {
  const auto ref = [&](Value v) {
    const ir::ValueInfo& info = source.value(v);
    if (info.region != source.body) return "run_scoped[" + std::to_string(info.number) + "]";
    return info.number < source.blocks.size() ? source.blocks[info.number].origin
                                              : "scratch[" + std::to_string(info.number - source.blocks.size()) + "]";
  };
  std::string out;
  for (uint32_t i = 0; i < source.ops.size(); ++i) {
    const Op& op = source.ops[i];
    if (op.code != Opcode::copy_start) continue;
    out += "  copy from " + ref(op.operands[0]) + " to " + ref(op.operands[1]) + ", " +
           std::to_string(bytes_of(source, op)) + " B" + (op.loc ? ", at " + to_string(op.loc) : "") + ": " +
           (std::find(prefetch.copies.begin(), prefetch.copies.end(), i) != prefetch.copies.end()
                ? "prefetched where it starts, stored where it is waited for"
                : "done by loads and stores where it starts") +
           (op.attr_or(Attr::clip, 0) ? ", each element tested against the edges" : "") +
           (prefetch.refused.count(i) ? ", not prefetched: " + prefetch.refused.at(i) : "") + "\n";
  }
  if (waits == 0) return out;
  const auto tested = static_cast<size_t>(std::count_if(lowered.ops.begin(), lowered.ops.end(), [](const Op& op) {
    return op.code == Opcode::report && op.attr(Attr::mask) == Program::kWaitFailed;
  }));
  out += "  waits: " + std::to_string(waits) +
         (tested == 0      ? ", all proved to be satisfied: no semaphore is counted\n"
          : tested < waits ? ", " + std::to_string(tested) + " of them tested at run time\n"
                           : ", tested at run time\n");
  return out;
}

bool drop_unread_scratch(ir::Kernel& k) {
  std::vector<bool> read(k.values.size(), false);
  for (const ir::Region& r : k.regions)
    for (OpId id : r.ops)
      for (size_t i = 0; i < k.op(id).operands.size(); ++i)
        if (k.op(id).code != Opcode::store || i != 0) read[k.op(id).operands[i].index] = true;
  std::vector<Value>& args = k.region(k.body).args;
  std::vector<bool> gone(k.values.size(), false);
  bool any = false;
  for (size_t i = args.size() - static_cast<size_t>(k.num_private_scratch); i < args.size(); ++i)
    if (!read[args[i].index]) any = gone[args[i].index] = true;
  if (!any) return false;
  for (ir::Region& r : k.regions)
    std::erase_if(r.ops, [&](OpId id) { return k.op(id).code == Opcode::store && gone[k.op(id).operands[0].index]; });
  std::erase_if(args, [&](Value v) { return gone[v.index]; });
  k.num_private_scratch -= static_cast<int>(k.blocks.size() + k.scratch.size() - args.size());
  k.scratch.clear();
  for (size_t i = 0; i < args.size(); ++i) {
    k.values[args[i].index].number = static_cast<uint32_t>(i);
    if (i >= k.blocks.size()) k.scratch.push_back(k.type(args[i]));
  }
  return true;
}

}  // namespace tessera::lowering
