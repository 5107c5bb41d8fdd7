#include "engine/front/buffered.h"

#include "engine/front/ops.h"
#include "engine/front/pipeline.h"
#include "engine/front/trace.h"

namespace tessera::spec {

PallasCall make_buffered_pallas_call(KernelFunction kernel, PallasCallParams params,
                                     const std::optional<std::vector<int64_t>>& input_buffer_count, Loc loc) {
  const std::string name = params.name.value_or("kernel");
  const auto fail = [&](const std::string& what, const std::string& note = {}) {
    throw SpecError(name + ": buffered_pallas_call: " + what, loc, note);
  };
  const auto count_of = [](size_t n, const std::string& noun, const std::string& nouns) {
    return std::to_string(n) + " " + (n == 1 ? noun : nouns);
  };
  const GridSpec given = *params.grid_spec;
  std::vector<BlockSpec> in = given.in_specs.list() ? *given.in_specs.list() : std::vector<BlockSpec>{};
  if (input_buffer_count && input_buffer_count->size() != in.size())
    fail("input_buffer_count has " + count_of(input_buffer_count->size(), "entry", "entries") + " but in_specs has " +
             count_of(in.size(), "BlockSpec", "BlockSpecs"),
         "give one count per input; scalar-prefetch operands have none");
  const auto prefetch = static_cast<size_t>(std::max(given.num_scalar_prefetch, 0)),
             scratch = given.scratch_shapes.size();
  const size_t outputs = params.out_shape.list() ? params.out_shape.list()->size() : 0;
  const auto arity = static_cast<size_t>(kernel.arity);
  if (!given.in_specs.list() && arity >= prefetch + outputs + scratch)
    in.assign(arity - prefetch - outputs - scratch, no_block_spec);
  const std::vector<BlockSpec> out =
      given.out_specs.list() ? *given.out_specs.list() : std::vector<BlockSpec>(outputs, no_block_spec);
  if (out.size() != outputs)
    fail("out_specs has " + count_of(out.size(), "BlockSpec", "BlockSpecs") + " but out_shape has " +
         count_of(outputs, "output", "outputs"));
  if (arity != prefetch + in.size() + outputs + scratch)
    fail("the kernel takes " + count_of(arity, "Ref", "Refs") + " but there are " +
         (prefetch ? count_of(prefetch, "scalar-prefetch operand", "scalar-prefetch operands") + ", " : "") +
         count_of(in.size(), "input", "inputs") + ", " + count_of(outputs, "output", "outputs") + " and " +
         count_of(scratch, "scratch shape", "scratch shapes"));
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t n = input_buffer_count ? (*input_buffer_count)[i] : 2;
    if (n < 1)
      fail("input_buffer_count[" + std::to_string(i) + "] is " + std::to_string(n),
           "a block needs one buffer at least");
    if (!in[i].whole) in[i].pipeline_mode = Buffered{n};
  }

  // Which axes are the call's own grid, and which the pipeline's.
  const std::vector<GridSize> axes = given.grid.axes();
  std::vector<bool> parallel;
  try {
    parallel = read(params.compiler_params, axes.size()).parallel;
  } catch (const CompilerParamsProblem& p) {
    fail(p.what, p.note);
  }
  std::vector<bool> outside(axes.size(), false);
  std::vector<GridSize> grid;
  PipelineParams inner;
  for (size_t a = 0; a < axes.size(); ++a) {
    outside[a] = !parallel.empty() && parallel[a];
    if (outside[a]) {
      grid.push_back(axes[a]);
      continue;
    }
    const auto n = axes[a].size().value();
    if (axes[a].not_an_integer() || !n)
      fail("grid: the size of axis " + std::to_string(a) + " is not a number that is known now",
           "declare the axis parallel, or take pallas_call");
    inner.grid.emplace_back(*n, loc);
  }
  const auto place = [](BlockSpec s) {  // the whole array where it is
    if (s.whole) s = BlockSpec{{}, {}, MemorySpace::any, std::nullopt, s.loc};
    return s;
  };
  std::vector<BlockSpec> in_places, out_places;
  for (const BlockSpec& s : in) in_places.push_back(place(s));
  for (const BlockSpec& s : out) out_places.push_back(place(s));
  inner.in_specs = in_places;
  inner.out_specs = out_places;
  inner.scratch_shapes = given.scratch_shapes;

  const auto trace = [kernel, inner, outside, prefetch, loc](const std::vector<Ref>& refs) {
    const std::vector<Ref> operands(refs.begin(), refs.begin() + static_cast<ptrdiff_t>(prefetch)),
        arrays(refs.begin() + static_cast<ptrdiff_t>(prefetch), refs.end());
    std::vector<Value> own, sizes;
    for (size_t a = 0, o = 0; a < outside.size(); ++a) {
      if (!outside[a]) continue;
      own.push_back(program_id(static_cast<int64_t>(o), loc));
      sizes.push_back(num_programs(static_cast<int64_t>(o++), loc));
    }
    const auto all_axes = [&](const std::vector<Value>& outer, const std::vector<Value>& within) {
      std::vector<Value> list;
      for (size_t a = 0, o = 0, i = 0; a < outside.size(); ++a) list.push_back(outside[a] ? outer[o++] : within[i++]);
      return list;
    };
    pipeline::Body body;
    body.refs = static_cast<size_t>(kernel.arity) - prefetch;
    body.values = 0;
    body.index_arity = static_cast<int>(outside.size());
    body.index = [&](const BlockSpec& s, const std::vector<Value>& ids) {
      return s.index_map(all_axes(own, ids), s.index_map.num_refs() > 0 ? operands : std::vector<Ref>{});
    };
    body.call = [&](const std::vector<Ref>& blocks, const std::vector<Value>&) -> control::Operands {
      Trace& t = *Trace::innermost();
      const Trace::InnerGrid whole(t, all_axes(own, t.inner_grid()->ids),
                                   all_axes(sizes, t.inner_grid()->num_programs));
      std::vector<Ref> all = operands;
      all.insert(all.end(), blocks.begin(), blocks.end());
      kernel.call(all);
      return {};
    };
    pipeline::emit(body, inner, arrays, loc);
  };
  GridSpec outer;
  outer.num_scalar_prefetch = given.num_scalar_prefetch;
  outer.grid = grid;
  outer.in_specs = BlockSpecs(std::vector<BlockSpec>(in.size(), no_block_spec));
  outer.out_specs = BlockSpecs(std::vector<BlockSpec>(outputs, no_block_spec));
  params.grid_spec = outer;
  // What is left of the axes is parallel.
  std::map<std::string, BackendCompilerParams::One> left;
  for (auto [backend, one] : params.compiler_params.given()) {
    std::visit(
        [&](auto& p) {
          if constexpr (requires { p.dimension_semantics; }) p.dimension_semantics.assign(grid.size(), "parallel");
        },
        one);
    left.emplace(backend, one);
  }
  params.compiler_params = left.empty() ? BackendCompilerParams() : BackendCompilerParams(left);
  return make_pallas_call({static_cast<int>(arity - scratch), trace}, std::move(params), loc);
}

}  // namespace tessera::spec
