#include "engine/front/mosaic_gpu_pipeline.h"

#include <algorithm>
#include <set>

#include "engine/base/plural.h"
#include "engine/front/ops.h"
#include "engine/front/trace.h"
#include "engine/ir/walk.h"

namespace tessera::mosaic_gpu {
namespace {

/// A grid whose sizes may be numbers or Values.
class Steps {
 public:
  Steps(Emit& e, const std::vector<Operand>& grid, Loc loc) : loc_(loc) {
    int64_t product = 1;
    bool known = true;
    for (size_t i = 0; i < grid.size(); ++i) {
      const std::string what = "grid axis " + std::to_string(i);
      const ir::Value v = e.index_scalar(grid[i], what);
      const auto n = ir::constant_int(e.trace().kernel(), v);
      if (n && *n <= 0) e.fail(what + " has size " + std::to_string(*n) + ", not at least 1");
      known &= n.has_value();
      product = n ? std::min<int64_t>(product * *n, int64_t{1} << 40) : product;
      sizes_.push_back(e.wrap(v));
    }
    if (known && product > INT32_MAX) e.fail("the grid has more than 2147483647 steps");
    if (known) static_count_ = product;
  }
  const std::optional<int64_t>& static_count() const { return static_count_; }
  Operand count() const {
    if (static_count_) return Operand(*static_count_, loc_);
    Value n = sizes_[0];
    for (size_t i = 1; i < sizes_.size(); ++i) n = n * sizes_[i];
    return Operand(n, loc_);
  }
  std::vector<Value> index(Value step) const {
    std::vector<Value> at;
    for (size_t i = sizes_.size(); i-- > 0;) {
      at.insert(at.begin(), i == 0 ? step : step % sizes_[i]);
      if (i > 0) step = step / sizes_[i];
    }
    return at;
  }
  size_t rank() const { return sizes_.size(); }

 private:
  Loc loc_;
  std::vector<Value> sizes_;
  std::optional<int64_t> static_count_;
};

/// An input or output of a pipeline.
struct Part {
  const BlockSpec* spec;
  Ref gmem;
  std::string place;          // "in_specs[0]"
  std::vector<int64_t> dims;  // of a block; -1: squeezed
  bool invariant = false;     // the index map does not use the point of the grid
  size_t buffer = SIZE_MAX;   // among the Refs to smem
  bool in_smem() const { return spec->memory_space == MemorySpace::smem; }
};

class Maker {
 public:
  Maker(std::string_view name, const pipelines::Body& body, const std::vector<Operand>& grid, int64_t most_steps,
        Loc loc)
      : name_(name),
        loc_(loc),
        body_(body),
        e_(name, loc),
        steps_(e_, grid, loc),
        most_steps_(most_steps),
        stages_(most_steps) {
    if (most_steps < 1) e_.fail("max_concurrent_steps is " + std::to_string(most_steps) + ", not at least 1");
    if (steps_.static_count()) stages_ = std::min(stages_, *steps_.static_count());
  }

  void add(const std::vector<BlockSpec>& in, const std::vector<BlockSpec>& out, const std::vector<Ref>& refs) {
    if (refs.size() != in.size() + out.size())
      e_.fail("is called with " + plural(refs.size(), "Ref") + " but there are " + plural(in.size(), "in_spec") +
              " and " + plural(out.size(), "out_spec"));
    for (size_t i = 0; i < refs.size(); ++i) {
      const bool output = i >= in.size();
      Part p{output ? &out[i - in.size()] : &in[i],
             refs[i],
             (output ? "out_specs[" : "in_specs[") + std::to_string(output ? i - in.size() : i) + "]",
             {}};
      check(p, output);
      if (p.in_smem()) {
        p.buffer = types_.size();
        Shape shape{p.invariant && output ? 1 : stages_};
        for (const int64_t d : p.dims)
          if (d >= 0) shape.push_back(d);
        types_.push_back(ScratchType(ScratchShape{std::move(shape), p.gmem.dtype(), MemorySpace::smem},
                                     p.spec->transforms, p.spec->loc));
        if (output) (p.invariant ? last_outputs_ : step_outputs_) = true;
        else ++arrivals_;
      }
      (output ? outputs_ : inputs_).push_back(std::move(p));
    }
  }

  /// All in one thread.
  std::vector<Value> plain(const PipelineParams& params) {
    std::vector<int64_t> delays;
    for (const Part& p : inputs_) {
      if (p.spec->delay_release >= most_steps_)
        fail(p, "delay_release is " + std::to_string(p.spec->delay_release) + ", not below max_concurrent_steps, " +
                    std::to_string(most_steps_));
      if (std::find(delays.begin(), delays.end(), p.spec->delay_release) == delays.end())
        delays.push_back(p.spec->delay_release);
    }
    if (arrivals_ > 0) types_.push_back(ScratchType(Barrier{arrivals_, stages_}, loc_));
    check_body(0, params.init_carry.size());
    return scoped::run(
        types_, types_.size(), {},
        [&](const std::vector<Ref>& buffers) {
          buffers_ = &buffers;
          if (arrivals_ > 0) {
            full_ = &buffers.back();
            control::for_loop(
                0, first_steps(), {},
                [&](const Value& step, const control::Values&) {
                  fetch(step, [](const Part&) { return true; });
                  return control::Operands{};
                },
                loc_);
          }
          const control::Values last = control::for_loop(
              0, steps_.count(), params.init_carry,
              [&](const Value& step, const control::Values& carries) {
                const control::Operands next = compute(step, carries, {});
                for (const int64_t delay : delays) {
                  const Value coming = step + (stages_ - delay);
                  const Value there = coming < steps_.count();
                  when(
                      delay > 0 ? (step >= delay) & there : there,
                      [&] { fetch(coming, [&](const Part& p) { return p.spec->delay_release == delay; }); }, loc_);
                }
                return next;
              },
              loc_);
          epilogue();
          control::Operands results;
          for (const Value& v : last) results.push_back(Operand(v, loc_));
          return results;
        },
        loc_);
  }

  /// The last thread copies, the others compute.
  void specialized(const WarpSpecializedParams& params) {
    const ir::Kernel& k = e_.trace().kernel();
    const ir::GridAxis& threads = k.grid.back();
    if (!k.has_threads() || threads.name.empty() || threads.name != params.wg_axis)
      e_.fail("wg_axis \"" + params.wg_axis + "\" is not the kernel's thread_name");
    const int64_t n = params.num_compute_wgs;
    if (n < 1 || *threads.size.value() != n + 1)
      e_.fail("num_compute_wgs is " + std::to_string(n) + " but the kernel has " +
                  plural(static_cast<size_t>(*threads.size.value()), "thread"),
              "the kernel has one more, which copies");
    if (params.memory_thread_idx && *params.memory_thread_idx != n)
      e_.fail("memory_thread_idx is " + std::to_string(*params.memory_thread_idx) + ", not the last thread, " +
              std::to_string(n));
    if (params.pipeline_state)
      throw CompileError(std::string(name_) + ": pipeline_state is not built yet", loc_,
                         "each pipeline runs to its end by itself");
    int64_t delay = 0;
    for (const Part& p : inputs_) {
      if (!p.in_smem()) fail(p, "is not in smem, and the thread that copies brings every input there");
      if (&p != &inputs_[0] && p.spec->delay_release != delay)
        fail(p,
             "delay_release is " + std::to_string(p.spec->delay_release) + ", but that of in_specs[0] is " +
                 std::to_string(delay),
             "all inputs have one");
      delay = p.spec->delay_release;
    }
    if (delay >= most_steps_)
      e_.fail("delay_release is " + std::to_string(delay) + ", not below max_concurrent_steps, " +
              std::to_string(most_steps_));
    if ((step_outputs_ || last_outputs_) && n > 1)
      e_.fail("there are outputs in smem and " + std::to_string(n) + " computing threads",
              "one thread can write a block back; with several, store to gmem or copy in the compute_context");
    if (inputs_.empty()) e_.fail("there are no in_specs", "emit_pipeline needs no thread that copies");
    const size_t first = types_.size(), consumed = params.manual_consumed_barriers ? inputs_.size() : 1;
    types_.push_back(ScratchType(Barrier{arrivals_, stages_}, loc_));
    for (size_t i = 0; i < consumed; ++i) types_.push_back(ScratchType(Barrier{n, stages_}, loc_));
    check_body(params.manual_consumed_barriers ? inputs_.size() : 0, params.compute_context ? body_.values : 0);
    scoped::run(
        types_, types_.size(), {.collective_axes = {params.wg_axis}},
        [&](const std::vector<Ref>& buffers) {
          buffers_ = &buffers;
          full_ = &buffers[first];
          const std::vector<Ref> free(buffers.begin() + static_cast<ptrdiff_t>(first) + 1, buffers.end());
          const Value copies = axis_index(params.wg_axis, loc_) == n;
          cond_threads(copies, [&] { copy_thread(params, free, delay); }, [&] { compute_thread(params, free, delay); });
          return control::Operands{};
        },
        loc_);
  }

 private:
  [[noreturn]] void fail(const Part& p, const std::string& what, const std::string& note = {}) {
    throw SpecError(e_.trace().prefix() + std::string(name_) + ": " + p.place + ": " + what, p.spec->loc, note);
  }

  void check(Part& p, bool output) {
    const BlockSpec& s = *p.spec;
    if (p.gmem.memory_space() != MemorySpace::any)
      fail(p, "its Ref is in " + std::string(ir::name(p.gmem.memory_space())) + ", not in gmem");
    if (s.memory_space != MemorySpace::smem && s.memory_space != MemorySpace::any)
      fail(p, "memory space " + std::string(ir::name(s.memory_space)) + " is neither smem nor gmem");
    if (!s.collective_axes.empty()) {
      if (output) fail(p, "collective_axes are for inputs");
      throw CompileError(
          e_.trace().prefix() + std::string(name_) + ": " + p.place + ": collective_axes are not built yet", s.loc,
          "copy_gmem_to_smem has them");
    }
    if (s.delay_release < 0 || (output && s.delay_release != 0))
      fail(p, "delay_release is " + std::to_string(s.delay_release) +
                  (output ? ", and outputs have none" : ", which is negative"));
    if (!s.block_shape.dims()) p.dims = p.gmem.shape();
    else
      for (const BlockDim& d : *s.block_shape.dims()) {
        if (const auto* blocked = std::get_if<Blocked>(&d.kind())) p.dims.push_back(blocked->size);
        else if (std::holds_alternative<Squeezed>(d.kind())) p.dims.push_back(-1);
        else
          fail(p, "block shape " + to_string(*s.block_shape.dims()) + " has a dim that is no number and not squeezed");
        if (p.dims.back() == 0 || p.dims.back() < -1)
          fail(p, "block shape " + to_string(*s.block_shape.dims()) + " has a dim below 1");
      }
    if (p.dims.size() != p.gmem.shape().size())
      fail(p, "the block has " + plural(p.dims.size(), "dim") + " but the Ref " + to_string(p.gmem.shape()) + " has " +
                  std::to_string(p.gmem.shape().size()));
    if (s.index_map.given() && (s.index_map.arity() != static_cast<int>(steps_.rank()) || s.index_map.num_refs() > 0))
      fail(p, "the index map takes " + std::to_string(s.index_map.arity() + s.index_map.num_refs()) +
                  " values but the grid has " + plural(steps_.rank(), "axis", "axes"));
    p.invariant = !uses_point(p);
  }
  /// Whether the index map uses what it is called with: asked in a region that is thrown away.
  bool uses_point(const Part& p) {
    Trace& t = e_.trace();
    const ir::Kernel& k = t.kernel();
    const ir::RegionId r = t.builder().new_region(std::vector<ir::Type>(steps_.rank(), ir::Type::array(DType::i32)));
    const Trace::Region inside(t, r);
    std::vector<Value> at;
    for (size_t i = 0; i < steps_.rank(); ++i) at.push_back(t.argument(r, i));
    std::set<uint32_t> seen;
    const std::vector<Operand> index = indices(p, at);
    return std::any_of(index.begin(), index.end(), [&](const Operand& o) {
      if (o.number()) return false;
      return !ir::walk_back(k, e_.index_scalar(o, "a block index"), seen, [&](ir::Value v, auto& next) {
        const ir::Op* def = k.def(v);
        if (!def) return k.value(v).region != r;
        next.insert(next.end(), def->operands.begin(), def->operands.end());
        ir::each_op_inside(
            k, *def, [&](ir::OpId id) { next.insert(next.end(), k.op(id).operands.begin(), k.op(id).operands.end()); });
        return true;
      });
    });
  }

  std::vector<Operand> indices(const Part& p, const std::vector<Value>& at) {
    if (!p.spec->index_map.given()) return std::vector<Operand>(p.dims.size(), Operand(0, loc_));
    const Indices found = p.spec->index_map(at, {});
    if (found.values.size() != p.dims.size())
      fail(p, "the index map gives " + plural(found.values.size(), "index", "indices") + " but the block has " +
                  plural(p.dims.size(), "dim"));
    std::vector<Operand> list;
    for (const BlockIndex& i : found.values) {
      if (!i.size.absent()) fail(p, "the index map gives a slice", "blocks have fixed sizes");
      list.push_back(i.start);
    }
    return list;
  }
  RefIndex window(const Part& p, const std::vector<Value>& at) {
    const std::vector<Operand> index = indices(p, at);
    std::vector<IndexItem> items;
    for (size_t d = 0; d < index.size(); ++d) {
      // a Value also where it is known: windows may hang over the Ref
      const Value start = e_.wrap(e_.index_scalar(index[d], "a block index"));
      if (p.dims[d] < 0) items.push_back(IndexItem(start, loc_));
      else items.push_back(IndexItem(ds(Operand(start * p.dims[d], loc_), p.dims[d])));
    }
    return RefIndex(std::move(items), loc_);
  }
  RefIndex slot(const Part& p, const Value& step, bool output) const {
    if (p.invariant && output) return RefIndex(0, loc_);
    return RefIndex(step % stages_, loc_);
  }
  Ref buffer(const Part& p) const { return (*buffers_)[p.buffer]; }

  void check_body(size_t barriers, size_t carries) {
    const size_t refs = inputs_.size() + outputs_.size() + barriers;
    if (body_.refs != refs)
      e_.fail("the body takes " + plural(body_.refs, "Ref") + " but there are " + plural(inputs_.size(), "input") +
              (barriers ? ", " : " and ") + plural(outputs_.size(), "output") +
              (barriers ? " and " + plural(barriers, "barrier") : ""));
    if (body_.values != carries)
      e_.fail("the body takes " + plural(body_.values, "carry", "carries") + " but there " +
              plural_is(carries, "is", "are"));
  }

  Operand first_steps() const {
    if (steps_.static_count()) return Operand(stages_, loc_);
    return Operand(minimum(Operand(stages_, loc_), steps_.count()), loc_);
  }
  template <class F> void fetch(const Value& step, F wanted) {
    const std::vector<Value> at = steps_.index(step);
    for (const Part& p : inputs_)
      if (p.in_smem() && wanted(p)) {
        const RefIndex from = window(p, at), to = slot(p, step, false), full(step % stages_, loc_);
        copy_gmem_to_smem(Place(p.gmem, from), Place(buffer(p), to), Place(*full_, full), {}, loc_);
      }
  }

  control::Operands compute(const Value& step, const control::Values& carries, const std::vector<Ref>& more) {
    const std::vector<Value> at = steps_.index(step);
    if (arrivals_ > 0) barrier_wait(Place(*full_, RefIndex(step % stages_, loc_)), loc_);
    if (step_outputs_) wait_smem_to_gmem(stages_ - 1, true, loc_);
    std::vector<Ref> refs;
    for (const Part& p : inputs_) refs.push_back(p.in_smem() ? buffer(p).at(slot(p, step, false)) : p.gmem);
    for (const Part& p : outputs_) refs.push_back(p.in_smem() ? buffer(p).at(slot(p, step, true)) : p.gmem);
    refs.insert(refs.end(), more.begin(), more.end());
    control::Operands next = body_.call(at, refs, carries);
    if (!step_outputs_) return next;
    commit_smem(loc_);
    const Value after = step + 1;
    for (const Part& p : outputs_) {
      if (!p.in_smem() || p.invariant) continue;
      // A block is written back by the last of the steps in a row that have it.
      const std::vector<Operand> now = indices(p, at), then = indices(p, steps_.index(after));
      Value leaves = after == steps_.count();
      for (size_t d = 0; d < now.size(); ++d) leaves = leaves | (now[d] != then[d]);
      const RefIndex from = slot(p, step, true), to = window(p, at);
      copy_smem_to_gmem(Place(buffer(p), from), Place(p.gmem, to),
                        {.predicate = Operand(leaves, loc_), .commit_group = false}, loc_);
    }
    commit_smem_to_gmem_group(loc_);
    return next;
  }
  void epilogue() {
    if (last_outputs_) {
      commit_smem(loc_);
      const Value last = e_.wrap(e_.index_scalar(steps_.count(), "the number of steps")) - 1;
      for (const Part& p : outputs_)
        if (p.in_smem() && p.invariant)
          copy_smem_to_gmem(Place(buffer(p), RefIndex(0, loc_)), Place(p.gmem, window(p, steps_.index(last))),
                            {.commit_group = false}, loc_);
      commit_smem_to_gmem_group(loc_);
    }
    if (last_outputs_ || step_outputs_) wait_smem_to_gmem(0, false, loc_);
  }

  void cond_threads(const Value& first, FunctionRef<void()> a, FunctionRef<void()> b) {
    control::switch_("cond", Operand(first, loc_),
                     {[&] {
                        a();
                        return control::Operands{};
                      },
                      [&] {
                        b();
                        return control::Operands{};
                      }},
                     loc_);
  }
  void copy_thread(const WarpSpecializedParams& params, const std::vector<Ref>& free, int64_t delay) {
    set_max_registers(params.memory_registers, "decrease", loc_);
    const auto consumed = [&](const Value& step) {
      for (const Ref& b : free) barrier_wait(Place(b, RefIndex(step % stages_, loc_)), loc_);
    };
    const auto none = control::Operands{};
    control::for_loop(
        0, first_steps(), {},
        [&](const Value& step, const control::Values&) {
          fetch(step, [](const Part&) { return true; });
          return none;
        },
        loc_);
    const Operand begun = first_steps(), end = steps_.count();
    control::for_loop(
        begun, end, {},
        [&](const Value& step, const control::Values&) {
          consumed(step);
          fetch(step, [](const Part&) { return true; });
          return none;
        },
        loc_);
    // What is still to be consumed, so that the memory is nobody's in the end.
    const Value count = e_.wrap(e_.index_scalar(steps_.count(), "the number of steps"));
    const Value from = count - e_.wrap(e_.index_scalar(first_steps(), "the number of steps"));
    const Operand consumed_to(count - delay, loc_);
    control::for_loop(
        Operand(from, loc_), consumed_to, {},
        [&](const Value& step, const control::Values&) {
          consumed(step);
          return none;
        },
        loc_);
  }
  void compute_thread(const WarpSpecializedParams& params, const std::vector<Ref>& free, int64_t delay) {
    // 504 registers of a program's invocations are dealt by eights: what the copying thread leaves.
    const int64_t n = params.num_compute_wgs, left = (504 - params.memory_registers) / n;
    set_max_registers(std::min<int64_t>(left / 8 * 8, 232), "increase", loc_);
    bool called = false;
    const PipelineCallback run = [&](const std::vector<Operand>& init) {
      if (called) e_.fail("the compute_context calls the pipeline twice");
      called = true;
      if (init.size() != body_.values)
        e_.fail("the pipeline is called with " + plural(init.size(), "carry", "carries") + " but the body takes " +
                std::to_string(body_.values));
      return control::for_loop(
          0, steps_.count(), init,
          [&](const Value& step, const control::Values& carries) {
            std::vector<Ref> more;
            const RefIndex released((step - delay + stages_ * (delay / stages_ + 1)) % stages_, loc_);
            if (params.manual_consumed_barriers)
              for (const Ref& b : free) more.push_back(b.at(released));
            control::Operands next = compute(step, carries, more);
            if (!params.manual_consumed_barriers) {
              if (delay > 0) when(step >= delay, [&] { barrier_arrive(Place(free[0], released), loc_); }, loc_);
              else barrier_arrive(Place(free[0], released), loc_);
            }
            return next;
          },
          loc_);
    };
    if (params.compute_context) params.compute_context(run);
    else run({});
    if (!called) e_.fail("the compute_context does not call the pipeline");
    epilogue();
  }

  std::string_view name_;
  Loc loc_;
  const pipelines::Body& body_;
  Emit e_;
  Steps steps_;
  int64_t most_steps_, stages_;  // max_concurrent_steps, and no more than there are steps
  std::vector<Part> inputs_, outputs_;
  std::vector<ScratchType> types_;
  int64_t arrivals_ = 0;
  bool step_outputs_ = false, last_outputs_ = false;  // copied back in the loop, and behind it
  const std::vector<Ref>* buffers_ = nullptr;
  const Ref* full_ = nullptr;
};

}  // namespace

std::vector<Value> pipelines::build(const Body& body, const PipelineParams& params, const std::vector<Ref>& refs,
                                    Loc loc) {
  Maker m("emit_pipeline", body, params.grid, params.max_concurrent_steps, loc);
  m.add(params.in_specs, params.out_specs, refs);
  return m.plain(params);
}
void pipelines::build_warp_specialized(const Body& body, const WarpSpecializedParams& params,
                                       const std::vector<Ref>& refs, Loc loc) {
  Maker m("emit_pipeline_warp_specialized", body, params.grid, params.max_concurrent_steps, loc);
  m.add(params.in_specs, params.out_specs, refs);
  m.specialized(params);
}

control::Values loops::nd_loop(const std::vector<Operand>& grid, const NDLoopParams& params,
                               const control::Operands& init,
                               FunctionRef<control::Operands(const NDLoopInfo&, const control::Values&)> body,
                               Loc loc) {
  Emit e("nd_loop", loc);
  const Value mine = axis_index(params.collective_axes, loc), all = axis_size(params.collective_axes, loc);
  std::vector<Operand> outer = grid;
  const std::vector<int64_t>& tiling = params.tiling;
  if (!tiling.empty()) {
    if (tiling.size() != grid.size())
      e.fail("the tiling has " + plural(tiling.size(), "dim") + " but the grid has " + std::to_string(grid.size()));
    for (size_t i = 0; i < grid.size(); ++i) {
      const ir::Value size = e.index_scalar(grid[i], "a size of the grid");
      const auto n = ir::constant_int(e.trace().kernel(), size);
      if (tiling[i] < 1 || (n && *n % tiling[i] != 0))
        e.fail("tiles of " + std::to_string(tiling[i]) + " do not divide " + (n ? std::to_string(*n) : "the grid") +
               " along axis " + std::to_string(i));
      outer[i] = n ? Operand(*n / tiling[i], loc) : Operand(e.wrap(size) / tiling[i], loc);
    }
    for (const int64_t t : tiling) outer.push_back(Operand(t, loc));
  }
  const Steps steps(e, outer, loc);
  const Value count = e.wrap(e.index_scalar(steps.count(), "the number of steps"));
  const Value whole = count / all, rest = mine < count % all;
  const Value upper = whole + cast(rest, i32);
  return control::for_loop(
      0, Operand(upper, loc), init,
      [&](const Value& wave, const control::Values& carries) {
        const Value before = wave * all;
        std::vector<Value> at = steps.index(before + mine);
        if (!tiling.empty()) {
          for (size_t i = 0; i < tiling.size(); ++i) {
            const Value tile = at[i] * tiling[i];
            at[i] = tile + at[tiling.size() + i];
          }
          at.erase(at.begin() + static_cast<ptrdiff_t>(tiling.size()), at.end());
        }
        return body({std::move(at), wave, upper}, carries);
      },
      loc);
}

int64_t find_swizzle(int64_t minor_dim_bits, std::string_view what, Loc loc) {
  for (const int64_t swizzle : {128, 64, 32, 16})
    if (minor_dim_bits > 0 && minor_dim_bits % (swizzle * 8) == 0) return swizzle;
  throw SpecError("find_swizzle" + (what.empty() ? std::string() : " for " + std::string(what)) + ": a minor dim of " +
                      std::to_string(minor_dim_bits) + " bits has no swizzle",
                  loc, "it must be a multiple of 128 bits");
}

}  // namespace tessera::mosaic_gpu
