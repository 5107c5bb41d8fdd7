#include "engine/call/buffered.h"

#include <algorithm>
#include <utility>

#include "engine/base/function.h"
#include "engine/base/plural.h"
#include "engine/front/ops.h"
#include "engine/front/pipeline.h"
#include "engine/front/trace.h"

namespace tessera::spec {

namespace {

/// A call taken apart: the specs of all blocks, which axes are the call's own grid, and what is left to the pipeline.
class BufferedCall {
 public:
  BufferedCall(KernelFunction kernel, PallasCallParams params, Loc loc)
      : kernel_(std::move(kernel)),
        params_(std::move(params)),
        loc_(loc),
        given_(params_.grid_spec ? *params_.grid_spec : own_spec(params_)),
        prefetch_(static_cast<size_t>(std::max(given_.num_scalar_prefetch, 0))) {}

  PallasCall make(const std::optional<std::vector<int64_t>>& input_buffer_count) {
    find_blocks(input_buffer_count);
    divide_grid();
    GridSpec outer;
    outer.num_scalar_prefetch = given_.num_scalar_prefetch;
    outer.grid = own_grid_;
    std::vector<BlockSpec> inputs(in_.size(), no_block_spec);
    for (size_t i = 0; i < in_.size(); ++i)
      if (in_[i].value) inputs[i] = in_[i];
    outer.in_specs = BlockSpecs(std::move(inputs));
    outer.out_specs = BlockSpecs(std::vector<BlockSpec>(out_.size(), no_block_spec));
    params_.grid_spec = outer;
    all_parallel();
    return make_pallas_call({kernel_.arity - static_cast<int>(given_.scratch_shapes.size()), trace()},
                            std::move(params_), loc_);
  }

 private:
  /// What is given of a grid_spec directly, which the call's own replaces.
  static GridSpec own_spec(PallasCallParams& p) {
    return {.grid = std::exchange(p.grid, {}),
            .in_specs = std::exchange(p.in_specs, {}),
            .out_specs = std::exchange(p.out_specs, {}),
            .scratch_shapes = std::exchange(p.scratch_shapes, {})};
  }
  [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const {
    throw SpecError(params_.name.value_or("kernel") + ": buffered_pallas_call: " + what, loc_, note);
  }

  void find_blocks(const std::optional<std::vector<int64_t>>& input_buffer_count) {
    if (given_.in_specs.list()) in_ = *given_.in_specs.list();
    if (input_buffer_count && input_buffer_count->size() != in_.size())
      fail("input_buffer_count has " + plural(input_buffer_count->size(), "entry", "entries") + " but in_specs has " +
               plural(in_.size(), "BlockSpec"),
           "give one count per input; scalar-prefetch operands have none");
    const size_t outputs = params_.out_shape.list() ? params_.out_shape.list()->size() : 0,
                 scratch = given_.scratch_shapes.size();
    const auto arity = static_cast<size_t>(kernel_.arity);
    if (!given_.in_specs.list() && arity >= prefetch_ + outputs + scratch)
      in_.assign(arity - prefetch_ - outputs - scratch, no_block_spec);
    out_ = given_.out_specs.list() ? *given_.out_specs.list() : std::vector<BlockSpec>(outputs, no_block_spec);
    if (out_.size() != outputs)
      fail("out_specs has " + plural(out_.size(), "BlockSpec") + " but out_shape has " + plural(outputs, "output"));
    if (arity != prefetch_ + in_.size() + outputs + scratch)
      fail("the kernel takes " + plural(arity, "Ref") + " but there are " +
           (prefetch_ ? plural(prefetch_, "scalar-prefetch operand") + ", " : "") + plural(in_.size(), "input") + ", " +
           plural(outputs, "output") + " and " + plural(scratch, "scratch shape"));
    for (size_t i = 0; i < in_.size(); ++i) {
      const int64_t n = input_buffer_count ? (*input_buffer_count)[i] : 2;
      if (n < 1)
        fail("input_buffer_count[" + std::to_string(i) + "] is " + std::to_string(n),
             "a block needs one buffer at least");
      if (!in_[i].whole) in_[i].pipeline_mode = Buffered{n};
    }
  }

  /// Axes that are declared parallel are the call's own grid, the others the pipeline's.
  void divide_grid() {
    const std::vector<GridSize> axes = given_.grid.axes();
    std::vector<bool> parallel;
    try {
      parallel = read(params_.compiler_params, axes.size()).parallel;
    } catch (const CompilerParamsProblem& p) {
      fail(p.what, p.note);
    }
    own_.assign(axes.size(), false);
    for (size_t a = 0; a < axes.size(); ++a) {
      own_[a] = !parallel.empty() && parallel[a];
      if (own_[a]) {
        own_grid_.push_back(axes[a]);
        continue;
      }
      const auto n = axes[a].size().value();
      if (axes[a].not_an_integer() || !n)
        fail("grid: the size of axis " + std::to_string(a) + " is not a number that is known now",
             "declare the axis parallel, or take pallas_call");
      inner_.grid.emplace_back(*n, loc_);
    }
    const auto places = [](std::vector<BlockSpec> specs) {  // a block that is whole is the array where it is
      for (BlockSpec& s : specs)
        if (s.whole) s = BlockSpec{{}, {}, s.value ? MemorySpace::smem : MemorySpace::any, std::nullopt, s.loc};
      return specs;
    };
    inner_.in_specs = places(in_);
    inner_.out_specs = places(out_);
    inner_.scratch_shapes = given_.scratch_shapes;
  }

  Function<void(const std::vector<Ref>&)> trace() const {
    return
        [kernel = kernel_, inner = inner_, own = own_, prefetch = prefetch_, loc = loc_](const std::vector<Ref>& refs) {
          const std::vector<Ref> operands(refs.begin(), refs.begin() + static_cast<ptrdiff_t>(prefetch)),
              arrays(refs.begin() + static_cast<ptrdiff_t>(prefetch), refs.end());
          std::vector<Value> ids, sizes;
          for (const bool outside : own) {
            if (!outside) continue;
            const auto axis = static_cast<int64_t>(ids.size());
            ids.push_back(program_id(axis, loc));
            sizes.push_back(num_programs(axis, loc));
          }
          const auto all_axes = [&](const std::vector<Value>& outer, const std::vector<Value>& within) {
            std::vector<Value> list;
            for (size_t a = 0, o = 0, i = 0; a < own.size(); ++a) list.push_back(own[a] ? outer[o++] : within[i++]);
            return list;
          };
          pipeline::Body body;
          body.refs = static_cast<size_t>(kernel.arity) - prefetch;
          body.values = 0;
          body.index_arity = static_cast<int>(own.size());
          body.index = [&](const BlockSpec& s, const std::vector<Value>& within) {
            return s.index_map(all_axes(ids, within), s.index_map.num_refs() > 0 ? operands : std::vector<Ref>{});
          };
          body.call = [&](const std::vector<Ref>& blocks, const std::vector<Value>&) -> control::Operands {
            Trace& t = *Trace::innermost();
            const std::vector<Value> all_ids = all_axes(ids, t.inner_grid()->ids);
            const Trace::InnerGrid whole(t, all_ids, all_axes(sizes, t.inner_grid()->num_programs));
            std::vector<Ref> all = operands;
            all.insert(all.end(), blocks.begin(), blocks.end());
            kernel.call(all);
            return {};
          };
          pipeline::build(body, inner, arrays, loc);
        };
  }

  /// What is left of the axes is parallel.
  void all_parallel() {
    std::map<std::string, BackendCompilerParams::One> left;
    for (auto [backend, one] : params_.compiler_params.given()) {
      std::visit(
          [&](auto& p) {
            if constexpr (requires { p.dimension_semantics; })
              p.dimension_semantics.assign(own_grid_.size(), "parallel");
          },
          one);
      left.emplace(backend, one);
    }
    params_.compiler_params = left.empty() ? BackendCompilerParams() : BackendCompilerParams(left);
  }

  KernelFunction kernel_;
  PallasCallParams params_;
  Loc loc_;
  GridSpec given_;
  size_t prefetch_;
  std::vector<BlockSpec> in_, out_;
  std::vector<bool> own_;  // per axis
  std::vector<GridSize> own_grid_;
  PipelineParams inner_;
};

}  // namespace

PallasCall make_buffered_pallas_call(KernelFunction kernel, PallasCallParams params,
                                     const std::optional<std::vector<int64_t>>& input_buffer_count, Loc loc) {
  return BufferedCall(std::move(kernel), std::move(params), loc).make(input_buffer_count);
}

}  // namespace tessera::spec
