// emit_pipeline: a grid inside a kernel, whose blocks are moved by asynchronous copies while other blocks are computed.
//   emit_pipeline([](Ref x, Ref y, Ref o) { o[all] = x[all] + y[all]; },
//                 {.grid = {4},
//                  .in_specs = {{{8, 128}, [](Value i) { return Indices{i, 0}; }}, ...},
//                  .out_specs = {...}})(x_ref, y_ref, o_ref);
// The specs cut Refs (mostly whole arrays in memory space any) as those of pallas_call cut arrays. The body sees
// blocks; its program_id and num_programs are the inner grid's. Of an input's n buffers (Buffered(n), else 2) one is
// the block that the body sees; the others receive blocks, which move over once they have arrived. Each step s waits
// for its block, if that differs from the last one; starts copying the block of step s + n - 1; runs the body; and
// moves an output's block that the next step does not continue to its other buffer, from which it is copied back. The
// same block is not copied twice in a row. A Ref that is in the blocks' memory space already, and is one block, is used
// in place. Blocks may hang over their Ref's edge: reads there are unspecified, stores there are dropped. Every kind of
// block dim means the same as in a pallas_call; blocks with BoundedSlice dims are loaded and stored under a mask
// instead of copied, with at most two buffers. A pipeline is traced as run_scoped, copies and a loop, so the rules of
// scope.h hold. In compiled code, a buffer between array and block is registers where it fits: the next block's loads
// are under way while the body computes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/base/function.h"
#include "engine/front/scope.h"
#include "engine/front/spec.h"

namespace tessera {

struct PipelineParams {
  /// Sizes of the inner grid, integers or integer scalars; those known while tracing must be positive. The last axis
  /// runs fastest.
  std::vector<Operand> grid = {};
  BlockSpecs in_specs = {};
  BlockSpecs out_specs = {};
  /// Refs of the pipeline's own, the body's last ones. They keep their contents from step to step.
  std::vector<ScratchShape> scratch_shapes = {};
  /// "parallel" or "arbitrary" per axis. All steps of a pipeline run in order.
  std::vector<std::string> dimension_semantics = {};
  /// Values that the body gets after its Refs and returns for the next step.
  std::vector<Operand> init_carry = {};
  /// Every copy is waited for where it starts.
  bool no_pipelining = false;
  /// JAX deals such axes to the cores of a TPU: refused, since a pipeline runs in one program.
  std::optional<std::vector<int64_t>> core_axis = std::nullopt;
};

namespace pipeline {
struct Body {
  size_t refs, values;
  Function<control::Operands(const std::vector<Ref>&, const std::vector<Value>&)> call;
  /// Instead of a spec's index map, where that takes more than the pipeline's ids: so many.
  Function<Indices(const BlockSpec&, const std::vector<Value>&)> index = {};
  int index_arity = -1;
};
std::vector<Value> build(const Body& body, const PipelineParams& params, const std::vector<Ref>& refs, Loc loc);
}  // namespace pipeline

/// What emit_pipeline returns: called with the Refs of in_specs and then of out_specs, it records the pipeline and
/// returns the last carries.
class Pipeline {
 public:
  Pipeline(pipeline::Body body, PipelineParams params, Loc loc)
      : body_(std::move(body)), params_(std::move(params)), loc_(loc) {}
  std::vector<Value> operator()(const std::vector<Ref>& refs) const {
    return pipeline::build(body_, params_, refs, loc_);
  }
  template <class... R>
    requires(std::convertible_to<const R&, Ref> && ...)
  std::vector<Value> operator()(const R&... refs) const {
    return (*this)(std::vector<Ref>{refs...});
  }

 private:
  pipeline::Body body_;
  PipelineParams params_;
  Loc loc_;
};

/// body: a lambda of Refs (inputs, outputs, scratch) and then of Values (the carries), which returns the next carries:
/// nothing, a Value or number, or a std::tuple. Throws SpecError for specs that do not fit, when the pipeline is
/// called.
template <class F>
Pipeline emit_pipeline(F body, PipelineParams params, Loc loc = Loc::here()) {
  static_assert(
      spec::Countable<F>,
      "emit_pipeline: the body's parameters must be spelled as Ref and Value (not auto), so that they can be counted");
  using P = typename spec::Signature<F>::Parameters;
  using R = std::remove_cvref_t<typename spec::Signature<F>::Result>;
  constexpr int refs = spec::leading_refs<P>;
  static_assert(refs >= 0, "emit_pipeline: the body takes Refs, then Values (one per carry)");
  static_assert(control::count<R> >= 0,
                "emit_pipeline: the body must return nothing, a Value, a number, or a std::tuple of them");
  constexpr size_t num_refs = refs < 0 ? 0 : static_cast<size_t>(refs), values = std::tuple_size_v<P> - num_refs;
  static_assert(control::count<R> == static_cast<int>(values),
                "emit_pipeline: the body must return as many Values as it takes");
  auto step = [=, body = std::move(body)](const std::vector<Ref>& r,
                                          [[maybe_unused]] const std::vector<Value>& v) -> control::Operands {
    return [&]<size_t... i, size_t... j>(std::index_sequence<i...>, std::index_sequence<j...>) -> control::Operands {
      if constexpr (std::is_void_v<R>) {
        body(r[i]..., v[j]...);
        return {};
      } else {
        return control::flatten<R>(body(r[i]..., v[j]...), loc);
      }
    }(std::make_index_sequence<num_refs>{}, std::make_index_sequence<values>{});
  };
  return Pipeline({num_refs, values, std::move(step)}, std::move(params), loc);
}

}  // namespace tessera
