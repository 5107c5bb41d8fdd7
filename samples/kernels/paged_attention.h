// Attention of one new token per sequence to all that came before, whose keys and values lie in pages that a table
// names. A program takes the heads of q that share a head of k, so that every page is read once, and may take a part of
// a sequence only: then merge_attention joins the parts, which is how a few long sequences fill a GPU. Kwon et al.,
// PagedAttention (2023); the parts are Flash-Decoding's (Dao et al. 2023). The sums are flash_attention.h's.
#pragma once
#include <algorithm>

#include "samples/kernels/flash_attention.h"

namespace tessera::kernels {

struct PagedAttentionParams {
  std::optional<double> scale = std::nullopt;     ///< of the logits; else 1 / sqrt(head_dim)
  std::optional<double> soft_cap = std::nullopt;  ///< logits become cap * tanh(logit / cap)
  int64_t block_keys = 64;                        ///< keys that a program takes at a time, whatever the size of a page
};

namespace attention {
inline void check_paged(const Checks& c, const Type& lengths, const Type& table, const Type& q, const Type& k_pages,
                        const Type& v_pages, const PagedAttentionParams& params) {
  c.rank("q", q, 3, "[batch, heads, head_dim]");
  c.rank("k_pages", k_pages, 4, "[pages, page_size, heads, head_dim]");
  check(c, q, k_pages, v_pages, 3, 2);
  const int64_t batch = q.shape[0];
  c.dtype("lengths", lengths, {i32});
  c.shape("lengths", lengths, {batch}, "the batch of q");
  c.dtype("table", table, {i32});
  c.rank("table", table, 2, "[batch, pages of a sequence]");
  c.require(table.shape[0] == batch,
            "q has a batch of " + std::to_string(batch) + " but table one of " + std::to_string(table.shape[0]));
  c.require(k_pages.shape[0] > 0 && k_pages.shape[1] > 0,
            "k_pages has shape " + tessera::to_string(k_pages.shape) + ", which holds no keys");
  c.require(params.block_keys > 0, "blocks of " + std::to_string(params.block_keys) + " keys");
  c.require(!params.soft_cap || *params.soft_cap > 0,
            "the soft cap " + std::to_string(params.soft_cap.value_or(0)) + " is not positive");
}

/// parts 0: one program per sequence and head of k, whose only output is the result. Else outputs are results and
/// log-sum-exps of so many parts.
inline PallasCall paged(const std::string& name, const Type& lengths, const Type& table, const Type& q,
                        const Type& k_pages, const Type& v_pages, int64_t parts, const PagedAttentionParams& params,
                        Loc loc) {
  check_paged({name, loc}, lengths, table, q, k_pages, v_pages, params);
  const int64_t batch = q.shape[0], heads = q.shape[1], head_dim = q.shape[2], page_size = k_pages.shape[1],
                kv_heads = k_pages.shape[2], group = heads / kv_heads;
  const int64_t most = table.shape[1] * page_size, bk = std::min(params.block_keys, power_of_two(most));
  const double scale = params.scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));

  const auto kernel = [=](const std::vector<Ref>& r) {
    if (batch == 0) return;  // no program runs, and there is no length to read
    const Ref &lengths_ref = r[0], &table_ref = r[1], &q_ref = r[2], &k = r[3], &v = r[4], &o = r[5];
    const Value b = program_id(0), head = program_id(1), length = clamp(0, lengths_ref[b], most);
    Value first = full({}, 0, i32), last = (length + (bk - 1)) / bk;  // blocks of keys
    if (parts > 0) {
      const Value share = (last + (parts - 1)) / parts;
      first = minimum(program_id(2) * share, last);
      last = minimum(first + share, last);
    }
    const Value queries = q_ref[all];  // [group, head_dim]
    State state = nothing(group, head_dim);
    if (most > 0)
      state = fori_loop(first, last, state, [&](Value j, Value greatest, Value total, Value product) {
        const Value key = j * bk + iota(i32, {bk});
        const Value there = key < length;
        const Value page = load(table_ref, {b, key / page_size}, {.mask = there, .other = 0}), slot = key % page_size;
        const Value column = reshape(there, {bk, 1});
        Value k_block = load(k, {page, slot, head, all}, {.mask = column, .other = 0});  // [bk, head_dim]
        Value v_block = load(v, {page, slot, head, all}, {.mask = column, .other = 0});
        Value s = where(reshape(there, {1, bk}), logits(queries, k_block, scale, params.soft_cap),
                        -std::numeric_limits<float>::infinity());
        return add(s, v_block, greatest, total, product);
      });
    o[all] = cast(result(state), o.dtype());
    if (parts > 0) r[6][all] = reshape(log_sum_exp(state), {group});
  };

  PallasCallParams call;
  const BlockSpec q_block = {
      {squeezed, group, head_dim},
      IndexMap::of(parts > 0 ? 3 : 2, 0,
                   [](const std::vector<Value>& i, const std::vector<Ref>&) { return Indices{i[0], i[1], 0}; }),
      MemorySpace::vmem,
      {},
      loc};
  GridSpec grid{.num_scalar_prefetch = 2,
                .grid = {batch, kv_heads},
                .in_specs = std::vector<BlockSpec>{q_block, no_block_spec, no_block_spec},
                .out_specs = q_block};
  std::vector<ShapeDtype> outputs = {q};
  if (parts > 0) {
    grid.grid = {batch, kv_heads, parts};
    const BlockSpec results = {{squeezed, squeezed, group, head_dim},
                               [](Value b, Value h, Value p) { return Indices{p, b, h, 0}; },
                               MemorySpace::vmem,
                               {},
                               loc};
    const BlockSpec sums = {{squeezed, squeezed, group},
                            [](Value b, Value h, Value p) { return Indices{p, b, h}; },
                            MemorySpace::vmem,
                            {},
                            loc};
    grid.out_specs = std::vector<BlockSpec>{results, sums};
    outputs = {Type({parts, batch, heads, head_dim}, f32), Type({parts, batch, heads}, f32)};
  }
  call.grid_spec = std::move(grid);
  call.in_shape = std::vector<ShapeDtype>{lengths, table, q, k_pages, v_pages};
  call.out_shape = outputs;
  call.name = name;
  return pallas_call_of(5 + outputs.size(), kernel, std::move(call), loc);
}
}  // namespace attention

/// softmax(scale * q k^T) v for q [batch, heads, head_dim] and, of sequence b, the first lengths[b] keys: key i lies in
/// k_pages and v_pages [pages, page_size, kv_heads, head_dim] at [table[b, i / page_size], i % page_size]. lengths i32
/// [batch], table i32 [batch, pages of a sequence]; the call's arguments are lengths, table, q, k_pages, v_pages. Heads
/// and dtypes as in flash_attention. Lengths are clamped to what the table names, pages to those that there are;
/// entries of the table behind a sequence's end may be anything. A length of 0 gives zeros. SpecError for other shapes
/// or dtypes.
inline PallasCall paged_attention(const Type& lengths, const Type& table, const Type& q, const Type& k_pages,
                                  const Type& v_pages, const PagedAttentionParams& params = {}, Loc loc = Loc::here()) {
  return attention::paged("paged_attention", lengths, table, q, k_pages, v_pages, 0, params, loc);
}
/// The same of each sequence's keys in `parts` parts, of whole blocks of keys, for merge_attention: results f32 [parts,
/// batch, heads, head_dim] and their log-sum-exps f32 [parts, batch, heads].
inline PallasCall paged_attention_parts(const Type& lengths, const Type& table, const Type& q, const Type& k_pages,
                                        const Type& v_pages, int64_t parts, const PagedAttentionParams& params = {},
                                        Loc loc = Loc::here()) {
  Checks{"paged_attention_parts", loc}.require(parts > 0, std::to_string(parts) + " parts");
  return attention::paged("paged_attention_parts", lengths, table, q, k_pages, v_pages, parts, params, loc);
}

/// Joins attention to parts of the keys: results f32 [parts, batch, heads, head_dim] and log_sum_exps f32 [parts,
/// batch, heads] (-inf: no keys) to [batch, heads, head_dim] of `dtype`. SpecError for other shapes or dtypes.
inline PallasCall merge_attention(const Type& results, const Type& log_sum_exps, DType dtype, Loc loc = Loc::here()) {
  const Checks c{"merge_attention", loc};
  c.dtype("results", results, {f32});
  c.rank("results", results, 4, "[parts, batch, heads, head_dim]");
  const int64_t parts = results.shape[0], batch = results.shape[1], heads = results.shape[2],
                head_dim = results.shape[3];
  c.require(parts > 0, "results has shape " + tessera::to_string(results.shape) + ", which holds no parts");
  c.dtype("log_sum_exps", log_sum_exps, {f32});
  c.shape("log_sum_exps", log_sum_exps, {parts, batch, heads}, "parts, batch and heads of results");
  const int64_t bh = std::min<int64_t>(power_of_two(heads), 8), width = std::max<int64_t>(head_dim, 1);
  const BlockSpec x_block = {
      {parts, squeezed, bh, width}, [](Value b, Value h) { return Indices{0, b, h, 0}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec sums_block = {
      {parts, squeezed, bh}, [](Value b, Value h) { return Indices{0, b, h}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec out_block = {
      {squeezed, bh, width}, [](Value b, Value h) { return Indices{b, h, 0}; }, MemorySpace::vmem, {}, loc};
  return pallas_call(
      [=](Ref x, Ref sums, Ref o) {
        Value s = sums[all];  // [parts, bh]
        Value weight = exp(s - maximum(max(s, {.axis = 0, .keepdims = true}), attention::kLeast));
        Value total = sum(weight, {.axis = 0});  // [bh]
        weight = weight / where(total > 0, total, 1);
        o[all] = cast(sum(x[all] * reshape(weight, {parts, bh, 1}), {.axis = 0}), dtype);
      },
      {.out_shape = ShapeDtype(Type({batch, heads, head_dim}, dtype)),
       .grid = {batch, cdiv(heads, bh)},
       .in_specs = {x_block, sums_block},
       .out_specs = out_block,
       .name = "merge_attention",
       .in_shape = {results, log_sum_exps}},
      loc);
}

}  // namespace tessera::kernels
