// Flash attention, forward: softmax(q k^T scale) v without the logits ever being in memory. A program keeps a block of
// queries and, for each of its rows, the greatest logit so far, the sum of exponentials and their product with v, and
// walks over blocks of keys that stay on chip. Dao, FlashAttention-2 (2023), whose order of loops this is; Milakov and
// Gimelshein, Online normalizer calculation for softmax (2018); the cap on logits is Gemma 2's (2024). No backward
// pass. Read next: paged_attention.h, for one new token at a time.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "samples/kernels/support.h"

namespace tessera::kernels {

struct AttentionParams {
  /// query i sees the keys up to i + keys - queries: the last query sees all of them
  bool causal = false;
  std::optional<double> scale = std::nullopt;     ///< of the logits; else 1 / sqrt(head_dim)
  std::optional<double> soft_cap = std::nullopt;  ///< logits become cap * tanh(logit / cap)
  /// a second output: log of the sum of e^logit, f32 [batch, heads, queries]; -inf where no key is seen
  bool log_sum_exp = false;
  int64_t block_queries = 64, block_keys = 64;  ///< at most
};

namespace attention {
inline constexpr double kLog2e = 1.4426950408889634;
// below every logit, and finite: no infinity meets its like
inline constexpr double kLeast = -std::numeric_limits<float>::max();

/// What a row of queries has gathered: the greatest logit [rows, 1] (all logits are in units of ln 2), the sum of
/// 2^(logit - greatest) [rows, 1], and that of 2^(logit - greatest) * v [rows, head_dim].
using State = std::tuple<Value, Value, Value>;
inline State nothing(int64_t rows, int64_t head_dim) {
  return {full({rows, 1}, kLeast, f32), zeros({rows, 1}), zeros({rows, head_dim})};
}

/// q k^T in units of ln 2, scaled and capped; f32 [rows, keys].
inline Value logits(const Value& q, const Value& k, double scale, std::optional<double> soft_cap) {
  Value s = dot(q, k, {.lhs_contract = {1}, .rhs_contract = {1}, .preferred_element_type = f32});
  if (!soft_cap) return s * (scale * kLog2e);
  return tanh(s * (scale / *soft_cap)) * (*soft_cap * kLog2e);
}
/// The state with these keys' logits [rows, keys] and values [keys, head_dim] added; -inf is a key that the row does
/// not see.
inline State add(const Value& s, const Value& v, const Value& greatest, const Value& total, const Value& product) {
  Value now = maximum(greatest, max(s, {.axis = 1, .keepdims = true}));
  Value p = exp2(s - now), shrink = exp2(greatest - now);
  return {now, total * shrink + sum(p, {.axis = 1, .keepdims = true}),
          product * shrink + dot(cast(p, v.dtype()), v, {.preferred_element_type = f32})};
}
/// The rows' results: zeros for those that have seen no key.
inline Value result(const State& state) {
  const auto& [greatest, total, product] = state;
  return product / where(total > 0, total, 1);
}
inline Value log_sum_exp(const State& state) {  // [rows, 1]
  const auto& [greatest, total, product] = state;
  return where(total > 0, (greatest + log2(where(total > 0, total, 1))) / kLog2e,
               -std::numeric_limits<float>::infinity());
}

inline void check(const Checks& c, const Type& q, const Type& k, const Type& v, int head_dim, int heads) {
  c.floats("q", q);
  c.dtype("k", k, {q.dtype});
  c.dtype("v", v, {q.dtype});
  const auto at = [](const Type& t, int d) { return t.shape[static_cast<size_t>(d)]; };
  c.require(at(q, q.rank() - 1) > 0 && at(q, q.rank() - 2) > 0,
            "q has shape " + tessera::to_string(q.shape) + ", which has no heads, or heads without elements");
  c.require(at(k, head_dim) == at(q, q.rank() - 1), "heads of k have " + std::to_string(at(k, head_dim)) +
                                                        " elements but those of q have " +
                                                        std::to_string(at(q, q.rank() - 1)));
  c.shape("v", v, k.shape, "that of k");
  const int64_t q_heads = at(q, q.rank() - 2), kv_heads = at(k, heads);
  c.require(kv_heads > 0 && q_heads % kv_heads == 0,
            "q has " + std::to_string(q_heads) + " heads, which is no multiple of k's " + std::to_string(kv_heads),
            "each head of k and v serves as many heads of q, one after another");
}

inline void check_flash(const Checks& c, const std::optional<Type>& lengths, const Type& q, const Type& k,
                        const Type& v, const AttentionParams& params) {
  c.rank("q", q, 4, "[batch, queries, heads, head_dim]");
  c.rank("k", k, 4, "[batch, keys, heads, head_dim]");
  c.require(q.shape[0] == k.shape[0],
            "q has a batch of " + std::to_string(q.shape[0]) + " but k one of " + std::to_string(k.shape[0]));
  check(c, q, k, v, 3, 2);
  if (lengths) {
    c.dtype("lengths", *lengths, {i32});
    c.shape("lengths", *lengths, {2, q.shape[0]}, "queries and keys of each element of the batch");
  }
  c.require(params.block_queries > 0 && params.block_keys > 0, "blocks of " + std::to_string(params.block_queries) +
                                                                   " queries and " + std::to_string(params.block_keys) +
                                                                   " keys");
  c.require(!params.soft_cap || *params.soft_cap > 0,
            "the soft cap " + std::to_string(params.soft_cap.value_or(0)) + " is not positive");
}

inline PallasCall flash(const std::optional<Type>& lengths, const Type& q, const Type& k, const Type& v,
                        const AttentionParams& params, Loc loc) {
  check_flash({"flash_attention", loc}, lengths, q, k, v, params);
  const int64_t batch = q.shape[0], queries = q.shape[1], heads = q.shape[2], head_dim = q.shape[3], keys = k.shape[1];
  const int64_t bq = std::min(params.block_queries, power_of_two(queries)),
                bk = std::min(params.block_keys, std::max<int64_t>(keys, 1)), group = heads / k.shape[2];
  const double scale = params.scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));

  const auto kernel = [=](const std::vector<Ref>& refs) {
    if (batch == 0) return;  // no program runs, and there are no lengths to read
    const size_t first = lengths ? 1 : 0;
    const Ref &q_ref = refs[first], &k_ref = refs[first + 1], &v_ref = refs[first + 2], &o = refs[first + 3];
    const Value first_row = program_id(2) * bq;
    const auto number = [](int64_t n) { return full({}, n, i32); };
    const auto length = [&](int64_t row, int64_t most) {
      return lengths ? clamp(0, refs[0][{row, program_id(0)}], most) : number(most);
    };
    const Value num_queries = length(0, queries), num_keys = length(1, keys);
    const Value shift = num_keys - num_queries;  // from a query's number to the last key that it sees, if causal
    // Blocks of keys that all rows see whole, and those that any row sees.
    Value some = where(first_row < num_queries, (num_keys + (bk - 1)) / bk, 0), whole = minimum(num_keys / bk, some);
    if (params.causal) {
      some = minimum(some, (maximum(first_row + bq + shift, 0) + (bk - 1)) / bk);
      whole = minimum(minimum(whole, maximum(first_row + shift + 1, 0) / bk), some);
    }
    const Value queries_block = q_ref[all];  // [bq, head_dim]
    const auto step = [&](bool masked) {
      return [&, masked](Value j, Value greatest, Value total, Value product) {
        const Value start = j * bk;
        if (!masked) {
          Value k_block = k_ref[{ds(start, bk), all}], v_block = v_ref[{ds(start, bk), all}];
          return add(logits(queries_block, k_block, scale, params.soft_cap), v_block, greatest, total, product);
        }
        const Value there = start + iota(i32, {bk, 1}) < num_keys;  // what lies behind may be anything, and no number
        Value k_block = load(k_ref, {ds(start, bk), all}, {.mask = there, .other = 0});
        Value v_block = load(v_ref, {ds(start, bk), all}, {.mask = there, .other = 0});
        const Value key = start + iota(i32, {1, bk}, 1);
        Value seen = key < num_keys;
        if (params.causal) seen = seen & (key <= first_row + shift + iota(i32, {bq, 1}));
        Value s = where(seen, logits(queries_block, k_block, scale, params.soft_cap),
                        -std::numeric_limits<float>::infinity());
        return add(s, v_block, greatest, total, product);
      };
    };
    State state = fori_loop(0, whole, nothing(bq, head_dim), step(false));
    if (params.causal || lengths || keys % bk != 0) state = fori_loop(whole, some, state, step(true));
    const Value row = first_row + iota(i32, {bq, 1});
    o[all] = cast(where(row < num_queries, result(state), 0), o.dtype());
    if (params.log_sum_exp)
      refs[first + 4][all] =
          reshape(where(row < num_queries, log_sum_exp(state), -std::numeric_limits<float>::infinity()), {bq});
  };

  const auto block = [&](const BlockShape& shape, std::function<Indices(const Value&, const Value&, const Value&)> f) {
    const auto map = [f](const std::vector<Value>& i, const std::vector<Ref>&) { return f(i[0], i[1], i[2]); };
    return BlockSpec{shape, IndexMap::of(3, 0, map), MemorySpace::vmem, {}, loc};
  };
  const BlockSpec rows =
      block({squeezed, bq, squeezed, head_dim}, [](Value b, Value h, Value i) { return Indices{b, i, h, 0}; });
  const BlockSpec all_keys = block({squeezed, std::max<int64_t>(keys, 1), squeezed, head_dim},
                                   [group](Value b, Value h, Value) { return Indices{b, 0, h / group, 0}; });
  const BlockSpec sums = block({squeezed, squeezed, bq}, [](Value b, Value h, Value i) { return Indices{b, h, i}; });
  PallasCallParams call;
  std::vector<ShapeDtype> inputs, outputs = {q};
  if (lengths) inputs.push_back(*lengths);
  for (const Type* t : {&q, &k, &v}) inputs.push_back(*t);
  std::vector<BlockSpec> out_specs = {rows};
  if (params.log_sum_exp) {
    outputs.push_back(Type({batch, heads, queries}, f32));
    out_specs.push_back(sums);
  }
  call.grid_spec = GridSpec{.num_scalar_prefetch = lengths ? 1 : 0,
                            .grid = {batch, heads, cdiv(queries, bq)},
                            .in_specs = std::vector<BlockSpec>{rows, all_keys, all_keys},
                            .out_specs = out_specs};
  call.out_shape = outputs;
  call.in_shape = inputs;
  call.name = "flash_attention";
  return pallas_call_of(inputs.size() + outputs.size(), kernel, std::move(call), loc);
}
}  // namespace attention

/// softmax(scale * q k^T) v for q [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim], all
/// f32, f16 or bf16 alike; the result is as q. heads is a multiple of kv_heads: head h of q meets head h / (heads /
/// kv_heads) of k. Sums are f32, and weights round to the inputs' dtype before they meet v. A query that sees no key
/// gives zeros. SpecError for other shapes or dtypes.
inline PallasCall flash_attention(const Type& q, const Type& k, const Type& v, const AttentionParams& params = {},
                                  Loc loc = Loc::here()) {
  return attention::flash(std::nullopt, q, k, v, params, loc);
}
/// The same where elements of the batch have lengths of their own: lengths i32 [2, batch] says how many queries and how
/// many keys count (clamped to what there is). Behind them q, k and v may hold anything; results there are zeros. It is
/// the call's first argument.
inline PallasCall flash_attention(const Type& lengths, const Type& q, const Type& k, const Type& v,
                                  const AttentionParams& params = {}, Loc loc = Loc::here()) {
  return attention::flash(lengths, q, k, v, params, loc);
}

}  // namespace tessera::kernels
