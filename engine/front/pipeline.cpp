#include "engine/front/pipeline.h"

#include <algorithm>

#include "engine/base/function.h"
#include "engine/base/plural.h"
#include "engine/front/ops.h"
#include "engine/front/trace.h"

namespace tessera::pipeline {
namespace {
using Ids = std::vector<Value>;

/// One Ref that the pipeline cuts into blocks.
struct Port {
  std::string origin;
  BlockSpec spec;
  std::vector<BlockDim> block;
  Ref source;
  bool output = false;
  int64_t count = 2;     // buffers; 0: the source itself is used
  bool clip = false;     // a block may hang over the edge
  bool bounded = false;  // a block's size is known at run time only
  std::vector<ir::BlockDim> dims = {};
  Shape shape = {};  // of a block, as the body sees it
  // Positions among the Refs of the run_scoped: the block that the body sees, and if there is more than one buffer
  // those that copies run to or from.
  size_t block_at = 0, between = 0, semaphore = 0;
  // Carried from step to step: of inputs with more than two buffers the slot that is fetched into next and the one that
  // arrives next; of outputs with two whether a block is on its way.
  std::vector<Value> carried = {};
  int64_t slots() const { return count - 1; }
};

class Emitter {
 public:
  Emitter(const Body& body, const PipelineParams& params, const std::vector<Ref>& refs, Loc loc)
      : e_("emit_pipeline", loc), body_(body), params_(params), loc_(loc) {
    const auto specs = [](const BlockSpecs& s) { return s.list() ? *s.list() : std::vector<BlockSpec>{}; };
    const std::vector<BlockSpec> in = specs(params.in_specs), out = specs(params.out_specs);
    if (refs.size() != in.size() + out.size())
      fail("", "called with " + plural(refs.size(), "Ref") + " but in_specs has " + plural(in.size(), "BlockSpec") +
                   " and out_specs has " + std::to_string(out.size()));
    if (const size_t wanted = refs.size() + params.scratch_shapes.size(); body.refs != wanted)
      fail("", "the body takes " + plural(body.refs, "Ref") + " but there are " + plural(in.size(), "input") + ", " +
                   plural(out.size(), "output") + " and " + plural(params.scratch_shapes.size(), "scratch shape"));
    if (body.values != params.init_carry.size())
      fail("", "the body takes " + plural(body.values, "Value") + " but init_carry has " +
                   std::to_string(params.init_carry.size()));
    if (!params.dimension_semantics.empty() && params.dimension_semantics.size() != params.grid.size())
      fail("", "dimension_semantics has " + std::to_string(params.dimension_semantics.size()) +
                   " entries but the grid has " + axes());
    for (const std::string& s : params.dimension_semantics)
      if (s != "parallel" && s != "arbitrary")
        fail("", "dimension_semantics \"" + s + "\" is unknown", "\"parallel\" and \"arbitrary\" are known");
    if (params.core_axis)
      fail("", "core_axis: a pipeline runs in one program, and its axes are not dealt to cores",
           "make it an axis of pallas_call's grid, declared \"parallel\"");
    grid();
    for (size_t i = 0; i < refs.size(); ++i) {
      const bool output = i >= in.size();
      port(output ? "out_specs[" + std::to_string(i - in.size()) + "]" : "in_specs[" + std::to_string(i) + "]",
           output ? out[i - in.size()] : in[i], refs[i], output);
    }
  }

  std::vector<Value> run() {
    std::vector<ScratchShape> memory;
    for (Port& p : ports_) {
      if (p.count == 0) continue;
      p.block_at = memory.size();
      memory.push_back({p.shape, p.source.dtype(), p.spec.memory_space});
      if (p.count > 1) {
        p.between = memory.size();
        Shape shape = p.shape;
        if (p.slots() > 1) shape.insert(shape.begin(), p.slots());
        memory.push_back({std::move(shape), p.source.dtype(), p.spec.memory_space});
      }
      p.semaphore = memory.size();
      memory.push_back(SemaphoreType::DMA(p.slots() > 1 ? Shape{p.slots()} : Shape{}));
    }
    const size_t own = memory.size();
    memory.insert(memory.end(), params_.scratch_shapes.begin(), params_.scratch_shapes.end());
    return scope::run(
        memory, memory.size(),
        [&](const std::vector<Ref>& refs) {
          refs_ = refs;
          scratch_.assign(refs.begin() + static_cast<ptrdiff_t>(own), refs.end());
          // A grid of unknown size may be empty; all else does nothing then, but that the first blocks would be
          // fetched.
          return pipeline();
        },
        loc_);
  }

 private:
  [[noreturn]] void fail(const std::string& origin, const std::string& what, const std::string& note = {},
                         Loc loc = {}) const {
    throw SpecError(e_.trace().prefix() + "emit_pipeline: " + (origin.empty() ? "" : origin + ": ") + what,
                    loc ? loc : loc_, note);
  }
  std::string axes() const {
    return std::to_string(params_.grid.size()) + (params_.grid.size() == 1 ? " axis" : " axes");
  }
  Value number(int64_t n) { return e_.wrap(e_.builder().constant_int(DType::i32, n)); }
  Operand at(const Value& v) const { return Operand(v, loc_); }

  void grid() {
    int64_t known = 1;
    for (size_t a = 0; a < params_.grid.size(); ++a) {
      const Operand& size = params_.grid[a];
      std::optional<int64_t> n;
      if (size.number()) {
        if (const auto* i = std::get_if<int64_t>(&*size.number())) n = *i;
        else if (const auto* u = std::get_if<uint64_t>(&*size.number()))
          n = static_cast<int64_t>(std::min<uint64_t>(*u, INT64_MAX));
        else fail("", "grid: the size of axis " + std::to_string(a) + " is no integer");
        if (*n <= 0)
          fail("", "grid: size " + std::to_string(*n) + " of axis " + std::to_string(a) + " is not positive");
        if (*n > INT32_MAX || __builtin_mul_overflow(known, *n, &known) || known > INT32_MAX)
          fail("", "grid: it has more than " + std::to_string(INT32_MAX) + " steps");
      }
      known_.push_back(n);
      sizes_.push_back(e_.wrap(n ? e_.builder().constant_int(DType::i32, *n)
                                 : e_.index_scalar(size, "grid: the size of axis " + std::to_string(a))));
    }
    steps_.push_back(number(1));
    for (const Value& n : sizes_) steps_[0] = at(steps_[0]) * at(n);
  }

  void port(const std::string& origin, const BlockSpec& spec, const Ref& ref, bool output) {
    Port p{origin, spec, {}, ref, output};
    const Loc loc = spec.loc ? spec.loc : loc_;
    const Shape& array = ref.shape();
    const auto& dims = spec.block_shape.dims();
    if (dims) p.block = *dims;
    else
      for (int64_t n : array) p.block.emplace_back(n);
    check_spec(p, loc);
    for (size_t d = 0; d < p.block.size(); ++d) block_dim(p, d, loc);
    const bool plain =
        std::all_of(p.dims.begin(), p.dims.end(), [](const ir::BlockDim& dim) { return dim.is_blocked(); });
    const bool one = !spec.index_map.given() || (p.shape == array && plain);  // the block never changes
    p.count = one || params_.no_pipelining ? 1 : 2;
    if (spec.pipeline_mode && !params_.no_pipelining && !one) {
      p.count = spec.pipeline_mode->count;
      if (p.count < 1) fail(origin, "pipeline_mode: Buffered(" + std::to_string(p.count) + ") has no buffer", {}, loc);
      if (output && p.count > 2)
        fail(origin, "pipeline_mode: Buffered(" + std::to_string(p.count) + ") of an output, which has at most 2", {},
             loc);
      if (p.bounded) p.count = std::min<int64_t>(p.count, 2);  // what begins is done at once: more would only take room
    }
    if (ref.memory_space() == spec.memory_space && p.shape == array && plain) p.count = 0;
    ports_.push_back(std::move(p));
  }
  void check_spec(const Port& p, Loc loc) const {
    const std::string& origin = p.origin;
    const BlockSpec& spec = p.spec;
    const Shape& array = p.source.shape();
    if (p.block.size() != array.size())
      fail(origin,
           "block shape " + to_string(p.block) + " has " + plural(p.block.size(), "dim") + " but the Ref " +
               to_string(array) + " has " + std::to_string(array.size()),
           "give one block size per dim of the Ref, or ts::squeezed for a dim that the body should not see", loc);
    if (spec.index_map.given() && spec.index_map.num_refs() > 0 && !body_.index)
      fail(origin, "the index map takes Refs", "it may read Refs of the kernel that its lambda captures", loc);
    if (body_.index && spec.index_map.given() && spec.index_map.arity() != body_.index_arity)
      fail(origin,
           "the index map takes " + plural(static_cast<size_t>(spec.index_map.arity()), "program id") +
               " but the grid has " + std::to_string(body_.index_arity) + (body_.index_arity == 1 ? " axis" : " axes"),
           {}, loc);
    if (!body_.index && spec.index_map.given() && spec.index_map.arity() != static_cast<int>(params_.grid.size()))
      fail(origin,
           "the index map takes " + plural(static_cast<size_t>(spec.index_map.arity()), "argument") +
               " but the grid has " + axes(),
           "an index map takes one Value per grid axis", loc);
    if (spec.value)
      fail(origin, "by_value is for the in_specs of a pallas_call", "read the number outside of the pipeline", loc);
    if (spec.memory_space != MemorySpace::vmem && spec.memory_space != MemorySpace::smem &&
        spec.memory_space != MemorySpace::any)
      fail(origin, "memory space " + std::string(ir::name(spec.memory_space)) + " is not one for blocks",
           "vmem, smem and any are", loc);
  }
  void block_dim(Port& p, size_t d, Loc loc) const {
    const std::string& origin = p.origin;
    const BlockSpec& spec = p.spec;
    const Shape& array = p.source.shape();
    const auto& kind = p.block[d].kind();
    ir::BlockDim& dim = p.dims.emplace_back();
    if (std::holds_alternative<Squeezed>(kind)) {
      dim = {ir::BlockDim::Squeezed{}};
      return;
    }
    if (const auto* b = std::get_if<Blocked>(&kind)) dim = {ir::BlockDim::Blocked{b->size}};
    if (const auto* b = std::get_if<Extent>(&kind)) {
      if (!b->value())
        fail(origin, "block size " + to_string(*b) + " of dim " + std::to_string(d) + " is not static", {}, loc);
      dim = {ir::BlockDim::Blocked{*b->value()}};
    }
    if (const auto* b = std::get_if<Element>(&kind)) {
      const auto [low, high] = b->padding;
      if (low < 0 || high < 0)
        fail(origin,
             "padding (" + std::to_string(low) + ", " + std::to_string(high) + ") of dim " + std::to_string(d) +
                 " is negative",
             "padding counts the elements before and behind the array", loc);
      dim = {ir::BlockDim::Element{b->size, low, high}};
    }
    if (std::holds_alternative<Halo>(kind))
      fail(origin,
           "dim " + std::to_string(d) + " of the block shape " + to_string(p.block) +
               " has a halo, which a pipeline inside a kernel does not copy",
           "give the Halo to the call's in_specs, or use Element and masks", loc);
    if (const auto* b = std::get_if<BoundedSlice>(&kind)) {
      dim = {ir::BlockDim::BoundedSlice{b->size}};
      p.bounded = true;
      if (!spec.index_map.given())
        fail(origin,
             "dim " + std::to_string(d) + " of the block shape " + to_string(p.block) +
                 " is a BoundedSlice, but there is no index map",
             "its index map returns ts::ds(start, size) there", loc);
    }
    const int64_t size = dim.size();
    if (size < 1)
      fail(origin, "block size " + std::to_string(size) + " of dim " + std::to_string(d) + " is not positive", {}, loc);
    if (size + dim.low() + dim.high() + array[d] > INT32_MAX)
      fail(origin,
           "block size " + std::to_string(size) + " of dim " + std::to_string(d) +
               " and its padding are too large: positions are i32",
           {}, loc);
    p.shape.push_back(size);
    p.clip |= !dim.is_blocked() || array[d] % size != 0;
    if (array[d] == 0) fail(origin, "the Ref " + to_string(array) + " has no elements", "leave the pipeline out", loc);
  }

  // -- where
  Ids ids(const Value& step) {
    Ids result;
    Value left = step;
    for (size_t a = sizes_.size(); a-- > 0;) {
      if (known_[a] == 1) {
        result.insert(result.begin(), number(0));
        continue;
      }
      result.insert(result.begin(), a == 0 ? left : at(left) % at(sizes_[a]));
      if (a > 0) left = at(left) / at(sizes_[a]);
    }
    return result;
  }
  /// The block's index along each dim, wrapped once and clamped as those of pallas_call are.
  std::vector<Value> indices(const Port& p, const Value& step) {
    std::vector<Value> result;
    if (!p.spec.index_map.given()) {
      for (size_t d = 0; d < p.block.size(); ++d) result.push_back(number(0));
      return result;
    }
    const Indices given = body_.index ? body_.index(p.spec, ids(step)) : p.spec.index_map(ids(step), {});
    if (given.values.size() != p.block.size())
      fail(p.origin,
           "the index map returns " + std::to_string(given.values.size()) +
               (given.values.size() == 1 ? " index" : " indices") + " but the block " + to_string(p.block) + " has " +
               plural(p.block.size(), "dim"),
           {}, p.spec.loc ? p.spec.loc : loc_);
    for (size_t d = 0; d < given.values.size(); ++d) {
      const BlockIndex& x = given.values[d];
      const ir::BlockDim& dim = p.dims[d];
      const Loc loc = p.spec.loc ? p.spec.loc : loc_;
      const std::string what = "the index map's result " + std::to_string(d);
      const bool bounded = dim.is_bounded();
      if (bounded == x.size.absent())
        fail(p.origin,
             what + (bounded ? " is one index, but dim " : " is a slice, but dim ") + std::to_string(d) +
                 " of the block shape " + to_string(p.block) +
                 (bounded ? " is a BoundedSlice" : " is none that is sliced"),
             bounded ? "return ts::ds(start, size) there" : "a slice is for a BoundedSlice dim", loc);
      if (x.stepped)
        fail(p.origin, what + " is a slice with a step", "a BoundedSlice takes adjacent elements", x.stepped);
      const Value i = e_.wrap(e_.index_scalar(x.start.at(loc_), p.origin + ": " + what));
      const int64_t last = *ir::last_index(dim, Extent(p.source.shape()[d])).value();
      const auto wrapped = [&] {
        const Value behind = at(i) + (last + dim.wrap());
        return where(at(i) < 0, at(behind), at(i));
      };
      result.push_back(clamp(Operand(0, loc_), dim.wrap() ? at(wrapped()) : at(i), Operand(last, loc_)));
      if (bounded)
        result.push_back(clamp(Operand(0, loc_), at(e_.wrap(e_.index_scalar(x.size.at(loc_), p.origin + ": " + what))),
                               Operand(dim.size(), loc_)));
    }
    return result;
  }
  RefIndex window(const Port& p, const std::vector<Value>& index) {
    std::vector<IndexItem> items;
    size_t next = 0;
    for (const ir::BlockDim& dim : p.dims) {
      const Value& i = index[next];
      next += dim.results();
      if (!dim.seen()) items.emplace_back(i, loc_);
      else if (dim.is_blocked()) items.emplace_back(ds(Operand(at(i) * Operand(dim.size(), loc_), loc_), dim.size()));
      else items.emplace_back(ds(dim.low() ? Operand(at(i) - Operand(dim.low(), loc_), loc_) : at(i), dim.size()));
    }
    return RefIndex(std::move(items), loc_);
  }
  /// Of a block with bounded dims: what belongs to its slice.
  Value inside(const Port& p, const std::vector<Value>& index) {
    Value mask = e_.wrap(e_.builder().constant(DType::boolean, 1, p.shape));
    size_t next = 0;
    int64_t axis = 0;
    for (const ir::BlockDim& dim : p.dims) {
      if (dim.is_bounded()) mask = at(mask) & at(at(iota(DType::i32, p.shape, axis, loc_)) < at(index[next + 1]));
      next += dim.results();
      axis += dim.seen();
    }
    return mask;
  }
  /// Whether the blocks of two steps differ.
  Value differ(const Port& p, const Value& a, const Value& b) {
    const std::vector<Value> x = indices(p, a), y = indices(p, b);
    Value result = e_.wrap(e_.builder().constant(DType::boolean, 0));
    for (size_t d = 0; d < x.size(); ++d) result = at(result) | at(at(x[d]) != at(y[d]));
    return result;
  }

  // -- copies
  /// A buffer, or one of its semaphores: slot `slot` where there are several.
  Place slot_of(size_t ref, const Port& p, const Value& slot) const {
    return p.slots() > 1 ? Place(refs_[ref], RefIndex(slot, loc_)) : Place(refs_[ref], loc_);
  }
  /// Between the array and `buffer`, the window of this step. Where the window's size is known at run time only, no
  /// copy can say it: masked accesses do what a copy would, where it starts.
  void begin(const Port& p, const Value& step, Place buffer, Place semaphore) {
    const std::vector<Value> index = indices(p, step);
    if (!p.bounded) return copy(p, index, std::move(buffer), std::move(semaphore)).start(loc_);
    const Value mask = inside(p, index);
    if (p.output) store(p.source, window(p, index), at(load(buffer.ref(), buffer.index())), {at(mask)});
    else store(buffer.ref(), buffer.index(), at(load(p.source, window(p, index), {at(mask)})));
  }
  void finish(const Port& p, const Value& step, Place buffer, Place semaphore) {
    if (!p.bounded) copy(p, indices(p, step), std::move(buffer), std::move(semaphore)).wait(loc_);
  }
  AsyncCopy copy(const Port& p, const std::vector<Value>& index, Place buffer, Place semaphore) {
    Place array(p.source, window(p, index));
    AsyncCopy c = p.output ? make_async_copy(std::move(buffer), std::move(array), std::move(semaphore))
                           : make_async_copy(std::move(array), std::move(buffer), std::move(semaphore));
    return p.clip ? std::move(c).clipped() : c;
  }
  void begin_prefetch(const Port& p, const Value& step, const Value& slot) {
    begin(p, step, slot_of(p.between, p, slot), slot_of(p.semaphore, p, slot));
  }
  void finish_prefetch(const Port& p, const Value& step, const Value& slot) {
    finish(p, step, slot_of(p.between, p, slot), slot_of(p.semaphore, p, slot));
  }
  void sync(const Port& p, const Value& step) {
    const Place buffer(refs_[p.block_at], loc_), semaphore(refs_[p.semaphore], loc_);
    if (p.bounded) return begin(p, step, buffer, semaphore);
    const AsyncCopy c = copy(p, indices(p, step), buffer, semaphore);
    c.start(loc_);
    c.wait(loc_);
  }
  void move(const Place& from, const Place& to) {
    store(to.ref(), to.index(), Operand(load(from.ref(), from.index()), loc_));
  }
  Value next(const Port& p, const Value& slot, const Value& moves) {
    const Value up = at(slot) + Operand(1, loc_),
                wrapped = where(at(at(up) == Operand(p.slots(), loc_)), Operand(0, loc_), at(up));
    return where(at(moves), at(wrapped), at(slot));
  }
  void when_(const Value& predicate, FunctionRef<void()> f) {
    when(at(predicate), [&] { f(); }, loc_);
  }
  static bool prefetches(const Port& p) { return !p.output && p.count > 1; }
  Value& fetch_slot(Port& p) { return p.carried[0]; }
  Value& use_slot(Port& p) { return p.carried[1]; }

  // -- the pipeline
  control::Operands pipeline() {
    const Value zero = number(0), steps = steps_[0];
    for (Port& p : ports_)
      if (p.count > 1) p.carried.assign(p.output ? 1 : 2, zero);
    // What comes first is fetched in the order of the steps.
    int64_t most = 0;
    for (const Port& p : ports_)
      if (prefetches(p)) most = std::max(most, p.slots());
    for (int64_t s = 0; s < most; ++s)
      for (Port& p : ports_) {
        if (!prefetches(p) || s >= p.slots()) continue;
        const Value step = number(s);
        Value needed = at(step) < at(steps);
        if (s > 0) needed = at(needed) & at(differ(p, step, number(s - 1)));
        when_(needed, [&] { begin_prefetch(p, step, fetch_slot(p)); });
        if (p.slots() > 1) fetch_slot(p) = next(p, fetch_slot(p), needed);
      }
    const auto carried = [&] {
      control::Operands list;
      for (const Port& p : ports_)
        for (const Value& v : p.carried) list.push_back(at(v));
      return list;
    };
    control::Operands init = carried();
    const size_t own = init.size();
    for (const Operand& o : params_.init_carry) init.push_back(o.at(loc_));
    const auto take = [&](const control::Values& v) {
      size_t i = 0;
      for (Port& p : ports_)
        for (Value& x : p.carried) x = v[i++];
    };
    const control::Values last = control::for_loop(
        Operand(0, loc_), at(steps), init,
        [&](const Value& step, const control::Values& v) {
          take(v);
          const control::Operands result =
              one_step(step, std::vector<Value>(v.begin() + static_cast<ptrdiff_t>(own), v.end()));
          control::Operands all_next = carried();
          all_next.insert(all_next.end(), result.begin(), result.end());
          return all_next;
        },
        loc_);
    take(last);
    for (Port& p : ports_)
      if (p.output && p.count > 1)
        when_(at(p.carried[0]) != Operand(0, loc_), [&] { finish_prefetch(p, at(steps) - Operand(1, loc_), zero); });
    control::Operands results;
    for (size_t i = own; i < last.size(); ++i) results.push_back(at(last[i]));
    return results;
  }

  control::Operands one_step(const Value& step, const std::vector<Value>& carry) {
    const Value steps = steps_[0], zero = number(0);
    const Value first = at(step) == Operand(0, loc_), final = at(step) == at(at(steps) - Operand(1, loc_));
    const Value previous = at(step) - Operand(1, loc_), following = at(step) + Operand(1, loc_);
    for (Port& p : ports_) {
      if (p.output || p.count == 0) continue;
      const Value arrives = at(first) | at(differ(p, step, previous));
      if (p.count == 1) {
        when_(arrives, [&] { sync(p, step); });
        continue;
      }
      when_(arrives, [&] {
        finish_prefetch(p, step, use_slot(p));
        move(slot_of(p.between, p, use_slot(p)), Place(refs_[p.block_at], loc_));
      });
      if (p.slots() > 1) use_slot(p) = next(p, use_slot(p), arrives);
    }
    for (Port& p : ports_) {
      if (!prefetches(p)) continue;
      const Value later = at(step) + Operand(p.slots(), loc_);
      const Value moves = differ(p, later, at(later) - Operand(1, loc_)),
                  needed = at(at(later) < at(steps)) & at(moves);
      when_(needed, [&] { begin_prefetch(p, later, fetch_slot(p)); });
      if (p.slots() > 1) fetch_slot(p) = next(p, fetch_slot(p), needed);
    }
    std::vector<Ref> blocks;
    for (const Port& p : ports_) blocks.push_back(p.count == 0 ? p.source : refs_[p.block_at]);
    blocks.insert(blocks.end(), scratch_.begin(), scratch_.end());
    control::Operands result;
    {
      const Trace::InnerGrid inner(e_.trace(), ids(step), sizes_);
      result = body_.call(blocks, carry);
    }
    e_.builder().set_loc(loc_);
    for (Port& p : ports_) {
      if (!p.output || p.count == 0) continue;
      const Value leaves = at(final) | at(differ(p, step, following));
      if (p.count == 1) {
        when_(leaves, [&] { sync(p, step); });
        continue;
      }
      when_(leaves, [&] {
        // the one before has left the buffer
        when_(at(p.carried[0]) != Operand(0, loc_), [&] { finish_prefetch(p, step, zero); });
        move(Place(refs_[p.block_at], loc_), Place(refs_[p.between], loc_));
        begin_prefetch(p, step, zero);
      });
      p.carried[0] = where(at(leaves), Operand(1, loc_), at(p.carried[0]));
    }
    return result;
  }

  mutable Emit e_;
  const Body& body_;
  const PipelineParams& params_;
  Loc loc_;
  std::vector<std::optional<int64_t>> known_;  // sizes that are numbers
  std::vector<Value> sizes_, steps_;           // steps_: one, how many there are
  std::vector<Port> ports_;
  std::vector<Ref> refs_, scratch_;
};
}  // namespace

std::vector<Value> build(const Body& body, const PipelineParams& params, const std::vector<Ref>& refs, Loc loc) {
  return Emitter(body, params, refs, loc).run();
}

}  // namespace tessera::pipeline
