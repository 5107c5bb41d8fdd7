// The verifier. A well-formed kernel:
//   tables      every value, op and region that is reachable exists; a region belongs to one place, an op stands once;
//               every value's entry names the op or region that it comes from, and its position there
//   regions     end in a yield and have no other
//   level       every op is legal at the kernel's level; at lane level arrays are scalars and Refs have rank 1
//   types       every result has the type that infer() gives, region arguments and yields of for, while, if and switch
//               included
//   scopes      an operand is defined before, in the same region or one around it; index maps and body see nothing of
//               each other
//   grid        static sizes are not negative; names of sizes are identifiers
//   blocks      num_inputs of them are inputs, of which the first num_prefetch are scalar-prefetch operands, in smem.
//               Each is the whole array (static extents) or has one block dim per array dim, of at least one element
//               (none where the array has none), squeezed ones of exactly one. An output may be aliased to one input
//               of its shape and dtype, other than a scalar-prefetch operand, and an input to one output. Padding
//               belongs to element dims. Halo dims belong to inputs, which are stored to neither themselves nor by an
//               alias. An input by value is of rank 0, whole, aliased to no output, and no op but loads takes its Ref.
//               Buffer counts are not negative, and outputs do not look ahead
//   index maps  take one i32 per grid axis (vmapped ones too) and the Ref of every scalar-prefetch operand (those of
//               such operands themselves: no Refs), yield one i32 per block dim (two for a bounded one), and compute on
//               scalars by elementwise ops, constants, num_programs and loads only
//   scratch     refs to any, vmem, smem, semaphores (of i32), in kernels of threads also barriers and accumulators; so
//               are the arguments of run_scoped. The last num_private_scratch are private
//   body        takes the Ref of every block, then of every scratch buffer (lane level: one global ref of unknown
//               length per block); stores and copies to no scalar-prefetch operand and no aliased input; yields nothing
//   threads     the grid's axes are its own, then a cluster's (16 programs at most), then one of threads (8 at most);
//               such kernels have whole arrays, and neither vmem nor DMA semaphores nor their copies; traits of memory
//               (arrivals, axes, tiling, swizzle) stand where they mean something
//   call info   compiler parameters are known ones; costs are not negative
//   lane info   workgroup_size of at least 1, subgroup_size 0 or a power of two, allocations inside their arenas,
//               extents that exist
// Barriers under divergent control flow are codegen/lane's to find.
#include "engine/ir/verify.h"

#include <algorithm>

#include "engine/base/plural.h"
#include "engine/ir/builder.h"
#include "engine/ir/text.h"

namespace tessera::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& k) : k_(k) {}

  std::vector<Problem> run() {
    if (k_.num_inputs < 0 || k_.num_inputs > static_cast<int>(k_.blocks.size()))
      add(k_.name,
          "has " + std::to_string(k_.num_inputs) + " inputs but " + std::to_string(k_.blocks.size()) + " blocks",
          k_.loc);
    if (k_.num_prefetch < 0 || k_.num_prefetch > k_.num_inputs)
      add(k_.name,
          "has " + std::to_string(k_.num_prefetch) + " scalar-prefetch operands but " + std::to_string(k_.num_inputs) +
              " inputs",
          k_.loc);
    numbers_ = numbering(k_);
    seen_ops_.resize(k_.ops.size());
    seen_regions_.resize(k_.regions.size());
    for (const BlockMapping& b : k_.blocks)
      if (!b.is_whole() && b.index_map()) tables(b.index_map(), b.origin + ": index map", b.loc);
    if (k_.body) tables(k_.body, "body", k_.loc);
    else add("body", "is missing", k_.loc);
    if (!problems_.empty()) return std::move(problems_);  // the rest may follow any index
    visible_.resize(k_.values.size());
    call_info();
    grid();
    for (size_t i = 0; i < k_.blocks.size(); ++i) block(static_cast<int>(i));
    for (size_t i = 0; i < k_.scratch.size(); ++i) scratch(i);
    if (k_.num_private_scratch < 0 || k_.num_private_scratch > static_cast<int>(k_.scratch.size()))
      add(k_.name,
          "has " + std::to_string(k_.num_private_scratch) + " private scratch buffers but " +
              std::to_string(k_.scratch.size()) + " scratch buffers",
          k_.loc);
    if (k_.level == Level::lane) lane();
    threads();
    body();
    return std::move(problems_);
  }

 private:
  const Kernel& k_;
  std::vector<Problem> problems_;
  std::vector<uint32_t> numbers_;
  std::vector<bool> seen_ops_, seen_regions_, visible_;

  void add(std::string entity, std::string message, Loc loc) {
    problems_.push_back({std::move(entity), std::move(message), loc});
  }
  void call_info() {
    for (const CompilerParam& p : k_.call.compiler_params)
      if (auto wrong = problem(p)) add(k_.name, std::move(*wrong), k_.loc);
    if (const auto& c = k_.call.cost_estimate)
      for (const Extent* e : {&c->flops, &c->transcendentals, &c->bytes_accessed, &c->remote_bytes_transferred})
        if (e->is_static() && *e->value() < 0)
          add(k_.name, "cost_estimate has " + to_string(*e) + ", which is negative", k_.loc);
  }
  std::string value(Value v) const {
    if (v.index >= numbers_.size() || numbers_[v.index] == UINT32_MAX) return "<value " + std::to_string(v.index) + ">";
    return "%" + std::to_string(numbers_[v.index]);
  }
  /// "%12 = add", "store %3".
  std::string entity(const Op& o) const {
    std::string s;
    for (size_t i = 0; i < o.results.size(); ++i) s += (i ? ", " : "") + value(o.results[i]);
    if (!s.empty()) return s + " = " + std::string(name(o.code));
    return std::string(name(o.code)) + (o.operands.empty() ? "" : " " + value(o.operands[0]));
  }

  // -- tables and regions: everything that the rest indexes with
  void tables(RegionId id, const std::string& place, Loc loc) {
    if (id.index >= k_.regions.size()) return add(place, "region " + std::to_string(id.index) + " does not exist", loc);
    if (seen_regions_[id.index]) return add(place, "region " + std::to_string(id.index) + " is used twice", loc);
    seen_regions_[id.index] = true;
    const Region& r = k_.region(id);
    for (size_t i = 0; i < r.args.size(); ++i) {
      const Value v = r.args[i];
      if (v.index >= k_.values.size()) add(place, "argument " + std::to_string(i) + " does not exist", loc);
      else if (k_.value(v).region != id || k_.value(v).number != i || k_.value(v).def)
        add(place, "argument " + value(v) + " is recorded as coming from elsewhere", loc);
      else check_type([&] { return place; }, v, loc);
    }
    for (size_t n = 0; n < r.ops.size(); ++n) {
      const OpId o = r.ops[n];
      if (o.index >= k_.ops.size()) {
        add(place, "op " + std::to_string(o.index) + " does not exist", loc);
        continue;
      }
      const Op& op = k_.op(o);
      if (seen_ops_[o.index]) {
        add(entity(op), "stands in two places", op.loc);
        continue;
      }
      seen_ops_[o.index] = true;
      for (Value v : op.operands)
        if (v.index >= k_.values.size()) add(entity(op), "operand " + value(v) + " does not exist", op.loc);
      for (size_t i = 0; i < op.results.size(); ++i) {
        const Value v = op.results[i];
        if (v.index >= k_.values.size()) add(entity(op), "result " + std::to_string(i) + " does not exist", op.loc);
        else if (k_.value(v).def != o || k_.value(v).number != i || k_.value(v).region)
          add(entity(op), "result " + std::to_string(i) + " is recorded as coming from elsewhere", op.loc);
        else check_type([&] { return entity(op); }, v, op.loc);
      }
      if (op.code == Opcode::yield && n + 1 < r.ops.size())
        add(entity(op), "stands before the end of its region", op.loc);
      for (size_t i = 0; i < op.regions.size(); ++i)
        tables(op.regions[i], entity(op) + ": region " + std::to_string(i), op.loc);
    }
    if (r.ops.empty() || (r.ops.back().index < k_.ops.size() && k_.op(r.ops.back()).code != Opcode::yield))
      add(place, "does not end in a yield", loc);
  }
  /// `place` is called only if there is something to say.
  template <class Place> void check_type(const Place& place, Value v, Loc loc) {
    const Type& t = k_.type(v);
    const bool lane = k_.level == Level::lane;
    if (!within_limits(t.shape)) add(place(), value(v) + ": " + to_string(t) + " is too large", loc);
    for (int64_t d : t.shape)
      if (d < 0 && !(lane && t.is_ref && d == -1))
        return add(place(), value(v) + ": " + to_string(t) + " has a negative size", loc);
    if (lane && t.is_ref && t.shape.size() != 1)
      add(place(), value(v) + ": lane-level refs have rank 1, not " + to_string(t), loc);
    if (lane && !t.is_ref && !t.shape.empty() && t.shape.size() != 2)
      add(place(), value(v) + ": lane-level values are scalars and matrices, not " + to_string(t), loc);
    if (t.is_ref) {
      const bool global = t.space == MemorySpace::global || t.space == MemorySpace::shared;
      if (global != lane) add(place(), value(v) + ": " + to_string(t) + " belongs to the other level", loc);
    }
  }

  // -- types and scopes
  /// `index_map`: restricted ops. Marks what it defines as visible and takes that back at the end.
  void walk(RegionId id, bool index_map, const std::string& place) {
    const Region& r = k_.region(id);
    for (Value v : r.args) visible_[v.index] = true;
    for (OpId o : r.ops) {
      const Op& op = k_.op(o);
      bool in_scope = true;
      for (size_t i = 0; i < op.operands.size(); ++i)
        if (const Value v = op.operands[i]; !visible_[v.index]) {
          in_scope = false;
          if (std::find(op.operands.begin(), op.operands.begin() + static_cast<ptrdiff_t>(i), v) !=
              op.operands.begin() + static_cast<ptrdiff_t>(i))
            continue;
          add(entity(op), value(v) + " is not defined before it in its region or one around it", op.loc);
        }
      const OpInfo& row = info(op.code);
      if (!(k_.level == Level::tile ? row.tile : row.lane))
        add(entity(op), "is not legal at " + std::string(k_.level == Level::tile ? "tile" : "lane") + " level", op.loc);
      if (index_map) in_index_map(op, place);
      else if (const Value to = stored_ref(op); to && k_.value(to).region == k_.body)
        if (const uint32_t at = k_.value(to).number; at < static_cast<uint32_t>(k_.num_inputs)) {
          const std::string stores = "stores to " + k_.blocks[at].origin + ": ";
          if (at < static_cast<uint32_t>(k_.num_prefetch))
            add(entity(op), stores + "a scalar-prefetch operand is only read", op.loc);
          else if (const int output = k_.aliased_output(static_cast<int>(at)); output >= 0)
            add(entity(op),
                stores + "an input that is aliased to " + k_.blocks[static_cast<size_t>(output)].origin +
                    " is only read",
                op.loc);
          else if (k_.has_halo(static_cast<int>(at)))
            add(entity(op), stores + "a block with a halo is only read", op.loc);
        }
      for (const Value v : op.operands)
        if (const BlockMapping* b = by_value(v); b && op.code != Opcode::load && op.code != Opcode::view)
          add(entity(op), "is no load but takes " + b->origin + ": an argument by value is only loaded", op.loc);
      for (size_t i = 0; i < op.regions.size(); ++i) walk(op.regions[i], index_map, place);
      if (in_scope) types(op);
      for (Value v : op.results) visible_[v.index] = true;
    }
    for (Value v : r.args) visible_[v.index] = false;
    for (OpId o : r.ops)
      for (Value v : k_.op(o).results) visible_[v.index] = false;
  }
  void types(const Op& op) {
    try {
      const std::vector<Type> wanted = infer(k_, op, op.results.size() == 1 ? k_.type(op.results[0]) : Type{});
      if (wanted.size() != op.results.size())
        return add(entity(op),
                   "has " + std::to_string(op.results.size()) + " results instead of " + std::to_string(wanted.size()),
                   op.loc);
      for (size_t i = 0; i < wanted.size(); ++i)
        if (k_.type(op.results[i]) != wanted[i])
          add(entity(op),
              value(op.results[i]) + " is " + to_string(k_.type(op.results[i])) + " instead of " + to_string(wanted[i]),
              op.loc);
    } catch (const Error& e) {
      std::string what = e.what();
      what = what.substr(0, what.find('\n'));
      const std::string prefix = k_.name + ": " + std::string(name(op.code)) + ": ";
      add(entity(op), what.starts_with(prefix) ? what.substr(prefix.size()) : what, op.loc);
    }
  }
  void in_index_map(const Op& op, const std::string& place) {
    if (op.code == Opcode::yield) return;
    if (!is_elementwise(op.code) && op.code != Opcode::constant && op.code != Opcode::num_programs &&
        op.code != Opcode::load)
      return add(
          place,
          entity(op) +
              ": an index map may only have elementwise ops, constants, num_programs and loads of single elements",
          op.loc);
    for (Value v : op.results)
      if (const Type& t = k_.type(v); !t.is_scalar())
        add(place, entity(op) + " is " + to_string(t) + ": an index map computes on scalars", op.loc);
  }

  // -- the kernel around the ops
  static bool is_identifier(const std::string& s) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    return !s.empty() && letter(s[0]) &&
           std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
  }
  void sizes(const Extent& e, const std::string& place, Loc loc) {
    if (e.is_static() && *e.value() < 0) add(place, "size " + to_string(e) + " is negative", loc);
    names_of(e, place, loc);
  }
  void names_of(const Extent& e, const std::string& place, Loc loc) {
    std::vector<std::string> names;
    e.collect_names(names);
    for (const std::string& n : names)
      if (!is_identifier(n)) add(place, "size name \"" + n + "\" is not an identifier", loc);
  }
  /// Of an argument of the body that is passed by value.
  const BlockMapping* by_value(Value v) const {
    const ValueInfo& x = k_.value(v);
    if (x.def || x.region != k_.body || x.number >= k_.blocks.size() || !k_.blocks[x.number].is_by_value())
      return nullptr;
    return &k_.blocks[x.number];
  }
  void grid() {
    for (size_t i = 0; i < k_.sizes.size(); ++i) {  // a Value, which may be negative
      const auto n = k_.sizes[i].value();
      if (n && *n != static_cast<int32_t>(*n))
        add("size " + std::to_string(i), std::to_string(*n) + " is beyond 32 bits", k_.loc);
      names_of(k_.sizes[i], "size " + std::to_string(i), k_.loc);
    }
    for (size_t i = 0; i < k_.grid.size(); ++i) sizes(k_.grid[i].size, "grid axis " + std::to_string(i), k_.loc);
  }
  void block(int i) {
    const BlockMapping& b = k_.blocks[static_cast<size_t>(i)];
    for (const Extent& e : b.array_shape) sizes(e, b.origin, b.loc);
    if (b.alias != -1) alias(i);
    if (b.is_by_value()) number(i);
    if (b.buffering.count < 0) add(b.origin, "has " + std::to_string(b.buffering.count) + " buffers", b.loc);
    if (b.buffering.lookahead && k_.is_output(i)) add(b.origin, "is an output, which cannot look ahead", b.loc);
    if (k_.level == Level::lane) return;
    if (is_semaphore(b.space)) add(b.origin, "is in " + std::string(name(b.space)) + ", where no array lies", b.loc);
    if (i < k_.num_prefetch && b.space != MemorySpace::smem)
      add(b.origin, "is in " + std::string(name(b.space)) + " but scalar-prefetch operands are in smem", b.loc);
    if (b.is_whole()) return;
    if (b.block().size() != b.array_shape.size()) {
      Shape shape;
      for (const BlockDim& d : b.block()) shape.push_back(d.size());
      add(b.origin,
          "block shape " + to_string(shape) + " has " + dims(shape.size()) + " but the array " +
              to_string(b.array_shape) + " has " + std::to_string(b.array_shape.size()),
          b.loc);
    } else {
      for (size_t d = 0; d < b.block().size(); ++d) {
        const BlockDim& x = b.block()[d];
        constexpr int64_t kMost = int64_t{1} << 30;  // positions are i32
        const int64_t low = x.low(), high = x.high(), size = x.halo() ? x.unit() : x.size();
        if (low < 0 || high < 0 || low > kMost || high > kMost)
          add(b.origin,
              "block dim " + std::to_string(d) + (x.halo() ? " has a halo of (" : " has padding (") +
                  std::to_string(low) + ", " + std::to_string(high) + "), not from 0 to 1073741824",
              b.loc);
        if (size < 1 && (x.halo() || size != 0 || b.array_shape[d] != Extent(0)))
          add(b.origin, "block dim " + std::to_string(d) + " has size " + std::to_string(size) + ", not at least 1",
              b.loc);
      }
    }
    if (k_.has_halo(i) && (i < k_.num_prefetch || k_.is_output(i)))
      add(b.origin, "has a halo dim, which is for inputs", b.loc);
    if (!b.index_map()) return add(b.origin, "has no index map", b.loc);
    const std::string place = b.origin + ": index map";
    const Region& r = k_.region(b.index_map());
    const size_t refs = i < k_.num_prefetch ? 0 : static_cast<size_t>(k_.num_prefetch), wanted = k_.grid.size() + refs;
    const std::string axes = std::to_string(k_.grid.size()) + (k_.grid.size() == 1 ? " axis" : " axes");
    if (r.args.size() != wanted && refs == 0)
      add(place, "takes " + std::to_string(r.args.size()) + " program ids but the grid has " + axes, b.loc);
    else if (r.args.size() != wanted)
      add(place,
          "takes " + plural(r.args.size(), "argument") + " but the grid has " + axes + " and there " +
              (refs == 1 ? "is " : "are ") + plural(static_cast<size_t>(refs), "scalar-prefetch operand"),
          b.loc);
    for (size_t a = 0; a < r.args.size(); ++a) {
      const Type type =
          a < k_.grid.size() || a >= wanted ? Type::array(DType::i32) : ref_type(static_cast<int>(a - k_.grid.size()));
      if (k_.type(r.args[a]) != type)
        add(place, value(r.args[a]) + " is " + to_string(k_.type(r.args[a])) + " instead of " + to_string(type), b.loc);
    }
    const Op& yield = k_.terminator(b.index_map());
    size_t results = 0;
    for (const BlockDim& d : b.block()) results += d.results();
    const std::string bounded =
        results == b.block().size()
            ? ""
            : ", of which " + std::to_string(results - b.block().size()) + " bounded, with a start and a size each";
    if (yield.operands.size() != results)
      add(place, "yields " + indices(yield.operands.size()) + " but the block has " + dims(b.block().size()) + bounded,
          yield.loc);
    for (Value v : yield.operands)
      if (k_.type(v) != Type::array(DType::i32))
        add(place, "yields " + value(v) + ": " + to_string(k_.type(v)) + " instead of i32[]", yield.loc);
    walk(b.index_map(), true, place);
  }
  void number(int i) {
    const BlockMapping& b = k_.blocks[static_cast<size_t>(i)];
    if (k_.is_output(i)) add(b.origin, "is an output, which has no value before the call", b.loc);
    if (!b.array_shape.empty())
      add(b.origin,
          "is passed by value but the array " + to_string(b.array_shape) + " has " + dims(b.array_shape.size()) +
              " instead of 0",
          b.loc);
  }
  void alias(int i) {
    const BlockMapping& b = k_.blocks[static_cast<size_t>(i)];
    const auto type = [](const BlockMapping& m) { return std::string(name(m.dtype)) + to_string(m.array_shape); };
    if (!k_.is_output(i))
      return add(b.origin, "is an input and has an alias: outputs name the inputs that they are aliased to", b.loc);
    if (b.alias < k_.num_prefetch || b.alias >= k_.num_inputs)
      return add(b.origin,
                 "is aliased to input " + std::to_string(b.alias) + ", which is none of the " +
                     std::to_string(k_.num_inputs - k_.num_prefetch) + " inputs from " +
                     std::to_string(k_.num_prefetch) + " on",
                 b.loc);
    const BlockMapping& in = k_.blocks[static_cast<size_t>(b.alias)];
    if (in.dtype != b.dtype || in.array_shape != b.array_shape)
      add(b.origin, "is " + type(b) + " but is aliased to " + in.origin + ", which is " + type(in), b.loc);
    if (in.is_by_value())
      add(b.origin, "is aliased to " + in.origin + ", which is passed by value and has no memory", b.loc);
    if (k_.has_halo(b.alias))
      add(b.origin, "is aliased to " + in.origin + ", whose halo reads what other programs may have stored", b.loc);
    if (const int first = k_.aliased_output(b.alias); first != i)
      add(b.origin, "is aliased to " + in.origin + " as " + k_.blocks[static_cast<size_t>(first)].origin + " is",
          b.loc);
  }
  /// The Ref that a kernel sees for a block, or a type that nothing has where there is none: body() says why.
  Type ref_type(int i) const {
    try {
      return k_.block_ref_type(i);
    } catch (const Error&) {
      return Type::ref(k_.blocks[static_cast<size_t>(i)].dtype, {}, MemorySpace::global);
    }
  }
  static std::string dims(size_t n) { return std::to_string(n) + (n == 1 ? " dim" : " dims"); }
  static std::string indices(size_t n) { return std::to_string(n) + (n == 1 ? " index" : " indices"); }
  void scratch(size_t i) {
    const Type& t = k_.scratch[i];
    const std::string place = "scratch[" + std::to_string(i) + "]";
    if (!t.is_ref || !is_for_scratch(t.space))
      add(place, "must be a ref to any, vmem, smem, semaphore or dma_semaphore but is " + to_string(t), k_.loc);
    else if (is_semaphore(t.space) && t.dtype != DType::i32)
      add(place, "is " + to_string(t) + ", but semaphores are i32", k_.loc);
    if (std::any_of(t.shape.begin(), t.shape.end(), [](int64_t d) { return d < 0; }) || !within_limits(t.shape))
      add(place, to_string(t) + " has a size that is negative or too large", k_.loc);
  }
  void threads() {
    using Role = GridAxis::Role;
    constexpr int64_t kMostPrograms = 16, kMostThreads = 8;  // of a cluster, of a program
    int64_t programs = 1;
    Role last = Role::grid;
    for (size_t i = 0; i < k_.grid.size(); ++i) {
      const GridAxis& g = k_.grid[i];
      const std::string place = "grid axis " + std::to_string(i);
      if (g.role < last || (g.role == Role::thread && last == Role::thread))
        add(place,
            "must come " +
                std::string(g.role == Role::grid ? "before cluster and thread axes" : "before the one thread axis"),
            k_.loc);
      last = std::max(last, g.role);
      if (g.role == Role::grid) continue;
      const int64_t n = g.size.value().value_or(0), most = g.role == Role::thread ? kMostThreads : kMostPrograms;
      if (n < 1 || n > most || (g.role == Role::cluster && (programs *= n) > kMostPrograms))
        add(place,
            "has size " + to_string(g.size) + ": a program has 1 to " + std::to_string(kMostThreads) +
                " threads, and a cluster 1 to " + std::to_string(kMostPrograms) + " programs",
            k_.loc);
      if (g.vmapped) add(place, "is vmapped", k_.loc);
    }
    if (last == Role::cluster) add(k_.name, "has cluster axes but no thread axis behind them", k_.loc);
    const auto check = [&](const Type& t, const std::string& place, Loc loc) {
      if (!k_.has_threads() && (is_of_threads(t.space) || t.traits))
        return add(place, to_string(t) + " belongs to kernels of threads", loc);
      if (!k_.has_threads()) return;
      if (t.space == MemorySpace::vmem || t.space == MemorySpace::dma_semaphore)
        return add(place, to_string(t) + " has no place in a kernel of threads", loc);
      traits(t, place, loc);
    };
    if (k_.has_threads())
      for (const BlockMapping& b : k_.blocks)
        if (!b.is_whole()) add(b.origin, "has blocks, and kernels of threads take whole arrays", b.loc);
    for (size_t i = 0; i < k_.scratch.size(); ++i) check(k_.scratch[i], "scratch[" + std::to_string(i) + "]", k_.loc);
    for (size_t o = 0; o < k_.ops.size(); ++o) {
      const Op& op = k_.ops[o];
      if (!seen_ops_[o]) continue;
      if (k_.has_threads() && is_copy(op.code)) add(entity(op), "is not for kernels of threads", op.loc);
      if (op.code != Opcode::run_scoped || op.regions.empty()) continue;
      for (const Value v : k_.region(op.regions[0]).args) check(k_.type(v), entity(op), op.loc);
    }
  }
  void traits(const Type& t, const std::string& place, Loc loc) {
    const ThreadTraits& more = t.thread_traits();
    const bool smem = t.space == MemorySpace::smem;
    const auto wrong = [&](const std::string& why) { add(place, to_string(t) + ": " + why, loc); };
    if (is_barrier(t.space) && t.dtype != DType::i32) wrong("barriers are i32");
    if (more.arrivals < 1) wrong("a phase of " + std::to_string(more.arrivals) + " arrivals never ends");
    if (more.arrivals != 1 && !is_barrier(t.space)) wrong("arrivals belong to barriers");
    if ((t.space == MemorySpace::cluster_barrier) != !more.axes.empty())
      wrong("cluster_barriers, and they alone, have axes");
    for (size_t i = 0; i < more.axes.size(); ++i) {
      const int64_t a = more.axes[i];
      if (a < 0 || a >= static_cast<int64_t>(k_.grid.size()) ||
          k_.grid[static_cast<size_t>(a)].role != GridAxis::Role::cluster || (i > 0 && a <= more.axes[i - 1]))
        wrong("axes are cluster axes of the grid, in ascending order");
    }
    if (!smem && (!more.tiling.empty() || more.swizzle != 0)) wrong("tiling and swizzle belong to smem");
    if (more.tiling.size() > t.shape.size()) wrong("the tiling has more dims than the memory");
    else
      for (size_t i = 0; i < more.tiling.size(); ++i)
        if (const int64_t n = t.shape[t.shape.size() - more.tiling.size() + i];
            more.tiling[i] < 1 || n % more.tiling[i] != 0)
          wrong("tiles of " + std::to_string(more.tiling[i]) + " do not divide " + std::to_string(n));
    if (more.swizzle != 0 && more.swizzle != 16 && more.swizzle != 32 && more.swizzle != 64 && more.swizzle != 128)
      wrong("a swizzle is over 16, 32, 64 or 128 bytes");
  }
  void lane() {
    const LaneInfo& l = k_.lane;
    if (l.workgroup_size < 1) add(k_.name, "workgroup_size is " + std::to_string(l.workgroup_size), k_.loc);
    if (l.subgroup_size < 0 || (l.subgroup_size & (l.subgroup_size - 1)))
      add(k_.name, "subgroup_size " + std::to_string(l.subgroup_size) + " is not 0 or a power of two", k_.loc);
    if (l.extents.size() != l.extent_is_64.size())
      add(k_.name,
          "has " + std::to_string(l.extents.size()) + " extents but widths for " +
              std::to_string(l.extent_is_64.size()),
          k_.loc);
    for (const Extent& e : l.extents) sizes(e, k_.name + ": extents", k_.loc);
    sizes(l.num_units, k_.name + ": num_units", k_.loc);
    for (size_t o = 0; o < k_.ops.size(); ++o) {
      const Op& op = k_.ops[o];
      if (!seen_ops_[o] || op.results.size() != 1) continue;
      const Type& t = k_.type(op.results[0]);
      if (op.code == Opcode::extent && op.has(Attr::index) && op.ints(Attr::index).size() == 1) {
        const int64_t i = op.attr(Attr::index);
        if (i < 0 || i >= static_cast<int64_t>(std::min(l.extents.size(), l.extent_is_64.size())))
          add(entity(op),
              "index " + std::to_string(i) + " is out of range for " + std::to_string(l.extents.size()) + " extents",
              op.loc);
        else if ((t.dtype == DType::i64) != l.extent_is_64[static_cast<size_t>(i)])
          add(entity(op),
              "is " + to_string(t) + " but the extent is " + (l.extent_is_64[static_cast<size_t>(i)] ? "i64" : "i32"),
              op.loc);
      }
      const bool shared = op.code == Opcode::alloc_shared;
      const bool common = op.code == Opcode::alloc_program;
      if (ir::is_alloc(op.code) && op.has(Attr::offset) && op.ints(Attr::offset).size() == 1 && t.shape.size() == 1) {
        const int64_t at = op.attr(Attr::offset), size = shared ? arena_stride(t.dtype) : size_bytes(t.dtype),
                      bytes = shared   ? l.shared_bytes
                              : common ? l.program_bytes
                                       : l.scratch_bytes;
        if (at < 0 || t.shape[0] < 0 || at > bytes || t.shape[0] > (bytes - at) / size)
          add(entity(op),
              "takes " + std::to_string(t.shape[0]) + " elements of " + std::to_string(size) + " bytes from byte " +
                  std::to_string(at) + " but the arena has " + std::to_string(bytes) + " bytes",
              op.loc);
        else if (at % size)
          add(entity(op),
              "offset " + std::to_string(at) + " is not a multiple of the element's " + std::to_string(size) + " bytes",
              op.loc);
      }
    }
  }
  void body() {
    const Region& r = k_.region(k_.body);
    std::vector<Type> wanted;
    for (int i = 0; i < static_cast<int>(k_.blocks.size()); ++i) {
      try {
        wanted.push_back(k_.level == Level::lane
                             ? Type::ref(k_.blocks[static_cast<size_t>(i)].dtype, {-1}, MemorySpace::global)
                             : k_.block_ref_type(i));
      } catch (const Error& e) {
        const std::string what = e.what(), prefix = k_.name + ": ";
        const std::string first = what.substr(0, what.find('\n'));
        add("body", first.starts_with(prefix) ? first.substr(prefix.size()) : first,
            k_.blocks[static_cast<size_t>(i)].loc);
        wanted.push_back(static_cast<size_t>(i) < r.args.size() ? k_.type(r.args[static_cast<size_t>(i)]) : Type{});
      }
    }
    if (k_.level == Level::tile) wanted.insert(wanted.end(), k_.scratch.begin(), k_.scratch.end());
    if (r.args.size() != wanted.size())
      add("body",
          "takes " + std::to_string(r.args.size()) + " refs but there are " + std::to_string(wanted.size()) +
              " inputs, outputs and scratch buffers",
          k_.loc);
    for (size_t i = 0; i < std::min(r.args.size(), wanted.size()); ++i)
      if (k_.type(r.args[i]) != wanted[i])
        add("body",
            "argument " + value(r.args[i]) + " is " + to_string(k_.type(r.args[i])) + " instead of " +
                to_string(wanted[i]),
            k_.loc);
    if (!k_.terminator(k_.body).operands.empty()) add("body", "yields values", k_.terminator(k_.body).loc);
    walk(k_.body, false, "body");
  }
};

/// Line `number` of the text, from 1; empty if there is none.
std::string_view line_of(std::string_view text, uint32_t number) {
  while (--number > 0 && text.find('\n') != std::string_view::npos) text.remove_prefix(text.find('\n') + 1);
  return number > 0 ? std::string_view() : text.substr(0, text.find('\n'));
}

std::string list(const Kernel& k, const std::vector<Problem>& problems, const std::string& when,
                 std::string_view text = {}, std::string_view file = {}) {
  std::string s =
      k.name + ": " + std::to_string(problems.size()) + (problems.size() == 1 ? " problem" : " problems") + when;
  for (const Problem& p : problems) {
    s += "\n  " + p.entity + ": " + p.message;
    if (!p.loc) continue;
    s += "\n    at " + to_string(p.loc);
    if (p.loc.file != file) continue;
    const std::string_view line = line_of(text, p.loc.line);
    // ops and clauses begin their lines
    const size_t column = line.find_first_not_of(" \t"), end = line.find_last_not_of(" \t\r");
    if (column != std::string_view::npos)
      s += ":" + std::to_string(column + 1) + "\n      " + std::string(line.substr(column, end + 1 - column));
  }
  return s;
}

}  // namespace

std::vector<Problem> find_problems(const Kernel& k) { return Verifier(k).run(); }

void verify(const Kernel& k, std::string_view when) {
  if (const auto problems = find_problems(k); !problems.empty())
    throw InternalError(list(k, problems, " after " + std::string(when)));
}

void check(const Kernel& k, std::string_view text, std::string_view file) {
  if (const auto problems = find_problems(k); !problems.empty()) throw TraceError(list(k, problems, "", text, file));
}

}  // namespace tessera::ir
