// A decoder-only transformer in the form of Llama (Touvron et al. 2023): embedding, then layers of RMS norm,
// grouped-query attention with rotary positions, and a SwiGLU, then a norm and logits. Nothing but calls of
// samples/kernels, over whatever `Passes` runs them on: host arrays one after another, or, as graph() does, values of a
// function under jit, so that all are one graph.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "samples/kernels/flash_attention.h"
#include "samples/kernels/linear.h"
#include "samples/kernels/norm.h"
#include "samples/kernels/passes.h"
#include "samples/kernels/rope.h"

namespace transformer {
namespace ts = tessera;
namespace kernels = tessera::kernels;

struct Config {
  int64_t vocabulary = 256, dim = 128, layers = 4, heads = 8, kv_heads = 2, head_dim = 16, hidden = 352;
  double norm_epsilon = 1e-5, rope_base = 10000;
  bool operator==(const Config&) const = default;
};

/// What the file holds besides the tensors, as text; and back. std::runtime_error names what is missing or no number.
std::map<std::string, std::string> to_metadata(const Config& c);
Config from_metadata(const std::map<std::string, std::string>& metadata);

/// The names and shapes of all weights, in the order in which forward() takes them.
std::vector<std::pair<std::string, ts::Shape>> weight_shapes(const Config& c);

/// What one call of forward() makes: logits [batch, length, vocabulary], and the caches with the new keys and values,
/// two per layer.
template <class A>
struct Step {
  A logits;
  std::vector<A> caches;
};

/// tokens, positions i32 [batch, length]; lengths i32 [2, batch]: the queries and the keys (new ones counted) of each
/// element; start i32 [1]: the row of the caches that the first new token gets. caches [batch, most, kv_heads,
/// head_dim], keys and values of each layer in turn.
template <class A>
Step<A> forward(const kernels::Passes<A>& run, const Config& c, const std::vector<A>& weights, const A& tokens,
                const A& positions, const A& lengths, const A& start, std::vector<A> caches) {
  const auto call = [&](const ts::PallasCall& f, std::vector<A> arguments) { return run.call(f, arguments).at(0); };
  size_t next = 0;
  const auto weight = [&]() -> const A& { return weights.at(next++); };
  const int64_t batch = tokens.shape()[0], length = tokens.shape()[1];
  const kernels::NormParams norm{c.norm_epsilon};
  const kernels::RopeParams turn{.base = c.rope_base};

  const A& table = weight();
  A x = call(kernels::embed(table, tokens), {table, tokens});  // [batch, length, dim]
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const A &attention_norm = weight(), &wq = weight(), &wk = weight(), &wv = weight(), &wo = weight(),
            &mlp_norm = weight(), &gate = weight(), &up = weight(), &down = weight();
    const A h = call(kernels::rms_norm(x, attention_norm, norm), {x, attention_norm});
    A q = call(kernels::linear(h, wq, {batch, length, c.heads, c.head_dim}), {h, wq});
    A k = call(kernels::linear(h, wk, {batch, length, c.kv_heads, c.head_dim}), {h, wk});
    const A v = call(kernels::linear(h, wv, {batch, length, c.kv_heads, c.head_dim}), {h, wv});
    q = call(kernels::rope(q, positions, turn), {q, positions});
    k = call(kernels::rope(k, positions, turn), {k, positions});
    A &keys = caches.at(static_cast<size_t>(2 * layer)), &values = caches.at(static_cast<size_t>(2 * layer + 1));
    keys = call(kernels::update_cache(start, keys, k), {start, keys, k});
    values = call(kernels::update_cache(start, values, v), {start, values, v});
    const A attended =
        call(kernels::flash_attention(lengths, q, keys, values, {.causal = true}), {lengths, q, keys, values});
    x = call(kernels::linear_and_add(attended, wo, x), {attended, wo, x});
    const A m = call(kernels::rms_norm(x, mlp_norm, norm), {x, mlp_norm});
    const A inner = call(kernels::swiglu(m, gate, up), {m, gate, up});
    x = call(kernels::linear_and_add(inner, down, x), {inner, down, x});
  }
  const A &final_norm = weight(), &head = weight();
  const A h = call(kernels::rms_norm(x, final_norm, norm), {x, final_norm});
  return {call(kernels::linear(h, head, {batch, length, c.vocabulary}), {h, head}), std::move(caches)};
}

/// forward() as one graph: takes tokens, positions, lengths, start, the weights and the caches; returns the logits and
/// the caches.
inline auto graph(const Config& c) {
  return ts::jit(
      [c](const std::vector<ts::Value>& a) {
        const auto caches = static_cast<std::ptrdiff_t>(2 * c.layers);
        Step<ts::Value> step = forward(kernels::graph_passes(), c, {a.begin() + 4, a.end() - caches}, a[0], a[1], a[2],
                                       a[3], {a.end() - caches, a.end()});
        step.caches.insert(step.caches.begin(), step.logits);
        return step.caches;
      },
      {.name = "transformer"});
}

}  // namespace transformer
