// Softmax cross-entropy of rows of logits, forward and backward, over any number of classes: the probabilities are
// never in memory. The forward kernel keeps each row's log-sum-exp, from which the backward one makes the gradient in
// one pass. A program takes some whole rows; rows of more than 8192 logits are walked over in chunks with the running
// maximum and sum of Milakov and Gimelshein, Online normalizer calculation for softmax (2018).
#pragma once
#include <limits>

#include "samples/kernels/long_rows.h"

namespace tessera::kernels {

namespace cross_entropy {
inline constexpr int64_t kBlock = 4096;  // elements of a program of several rows
inline constexpr double kLeast = -std::numeric_limits<float>::max();

inline void check(const Checks& c, const Type& logits, const Type& labels) {
  c.floats("logits", logits);
  c.rank("logits", logits, 2, "[rows, classes]");
  c.require(logits.shape[1] > 0, "logits has shape " + tessera::to_string(logits.shape) + ", which has no classes");
  c.dtype("labels", labels, {i32});
  c.shape("labels", labels, {logits.shape[0]}, "the rows of logits");
}
/// Blocks of one number per row.
inline BlockSpec per_row(const RowBlocks& rows, Loc loc) {
  return {{rows.rows}, [](Value i) { return i; }, MemorySpace::vmem, {}, loc};
}
}  // namespace cross_entropy

/// For logits [rows, classes] (f32, f16 or bf16) and labels i32 [rows]: the losses log(sum of e^logit) - logits[label],
/// f32 [rows], and the log-sum-exps, f32 [rows]. A label that is no class (-100, say) is ignored: its loss is 0. Two
/// outputs; SpecError for other shapes or dtypes.
inline PallasCall cross_entropy_forward(const Type& logits, const Type& labels, Loc loc = Loc::here()) {
  const Checks c{"cross_entropy_forward", loc};
  cross_entropy::check(c, logits, labels);
  const int64_t classes = logits.shape[1];
  const RowBlocks rows(logits.shape, cross_entropy::kBlock, loc);
  const BlockSpec per_row = cross_entropy::per_row(rows, loc);
  const Type numbers({logits.shape[0]}, f32);
  return pallas_call(
      [=](Ref x, Ref labels_ref, Ref loss, Ref log_sum_exp) {
        const Value label = labels_ref[all], counts = (label >= 0) & (label < classes);  // [rows]
        const auto finish = [&](const Value& greatest, const Value& total, const Value& at_label) {
          const Value rest = log(total);
          log_sum_exp[all] = greatest + rest;
          // the sum of a large logit and a small log has lost the log
          loss[all] = where(counts, rest + (greatest - at_label), 0);
        };
        if (classes <= long_rows::kLongest) {
          Value v = cast(x[all], f32);  // [rows, classes]
          Value greatest = maximum(max(v, {.axis = 1, .keepdims = true}), cross_entropy::kLeast);
          Value chosen = where(iota(i32, {1, classes}, 1) == expand_dims(label, {1}), v, 0);
          finish(squeeze(greatest, {1}), sum(exp(v - greatest), {.axis = 1}), sum(chosen, {.axis = 1}));
          return;
        }
        const Value none = full({1, 1}, cross_entropy::kLeast, f32), zero = zeros({1, 1});
        auto [greatest, total] = long_rows::over_chunks(
            classes, std::tuple{none, zero}, [&](Value first, Value greatest_so_far, Value total_so_far) {
              const long_rows::Part p = long_rows::part(x, first, classes, -std::numeric_limits<float>::infinity());
              Value now = maximum(greatest_so_far, max(p.values, {.axis = 1, .keepdims = true}));
              return std::tuple{now, total_so_far * exp(greatest_so_far - now) +
                                         sum(exp(p.values - now), {.axis = 1, .keepdims = true})};
            });
        Value at_label = cast(x[{0, clamp(0, reshape(label, {}), classes - 1)}], f32);
        finish(reshape(greatest, {1}), reshape(total, {1}), reshape(at_label, {1}));
      },
      {.out_shape = {ShapeDtype(numbers), ShapeDtype(numbers)},
       .grid = rows.grid,
       .in_specs = {rows.spec, per_row},
       .out_specs = {per_row, per_row},
       .name = "cross_entropy_forward",
       .in_shape = {logits, labels}},
      loc);
}

/// The gradient of sum(losses * gradient) by the logits, of their shape and dtype: (e^(logit - log_sum_exp) - (class ==
/// label)) * gradient, 0 for rows whose label is ignored. log_sum_exp is the forward kernel's second output, gradient
/// f32 [rows]. A probability is wrong by as much of itself as log_sum_exp's rounding is: 2^-24 of the greatest logit.
/// SpecError for other shapes or dtypes.
inline PallasCall cross_entropy_backward(const Type& logits, const Type& labels, const Type& log_sum_exp,
                                         const Type& gradient, Loc loc = Loc::here()) {
  const Checks c{"cross_entropy_backward", loc};
  cross_entropy::check(c, logits, labels);
  for (const auto& [argument, type] :
       {std::pair<const char*, const Type*>{"log_sum_exp", &log_sum_exp}, {"gradient", &gradient}}) {
    c.dtype(argument, *type, {f32});
    c.shape(argument, *type, labels.shape, "the rows of logits");
  }
  const int64_t classes = logits.shape[1];
  const RowBlocks rows(logits.shape, cross_entropy::kBlock, loc);
  const BlockSpec per_row = cross_entropy::per_row(rows, loc);
  return pallas_call(
      [=](Ref x, Ref labels_ref, Ref log_sum_exp_ref, Ref gradient_ref, Ref o) {
        const Value label = expand_dims(labels_ref[all], {1});  // [rows, 1]
        const Value scale = where((label >= 0) & (label < classes), expand_dims(gradient_ref[all], {1}), 0),
                    lse = expand_dims(log_sum_exp_ref[all], {1});
        const auto slope = [&](const Value& v, const Value& at) {
          return (exp(v - lse) - where(at == label, 1.0f, 0.0f)) * scale;
        };
        if (classes <= long_rows::kLongest) {
          o[all] = cast(slope(cast(x[all], f32), iota(i32, {1, classes}, 1)), o.dtype());
          return;
        }
        long_rows::write_chunks(x, o, classes, [&](Value v, Value first, Value) {
          return slope(v, first + iota(i32, {1, long_rows::kChunk}, 1));
        });
      },
      {.out_shape = ShapeDtype(logits),
       .grid = rows.grid,
       .in_specs = {rows.spec, per_row, per_row, per_row},
       .out_specs = rows.spec,
       .name = "cross_entropy_backward",
       .in_shape = {logits, labels, log_sum_exp, gradient}},
      loc);
}

}  // namespace tessera::kernels
