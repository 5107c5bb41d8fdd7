// Attention by its definition, in double precision: for every query the logits of the keys that it sees, their softmax,
// and the values' mean by it.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/array.h"

namespace tessera::test {

struct AttentionReference {
  std::vector<double> out, log_sum_exp;
};
struct AttentionMask {
  bool causal = false;
  std::vector<std::pair<int64_t, int64_t>> lengths = {};  // queries and keys per element of the batch; empty: all
};

/// q [batch, queries, heads, d]; k, v [batch, keys, kv_heads, d].
inline AttentionReference attention_reference(const Array& q, const Array& k, const Array& v, double scale,
                                              std::optional<double> soft_cap, const AttentionMask& mask) {
  const int64_t batch = q.shape()[0], queries = q.shape()[1], heads = q.shape()[2], d = q.shape()[3],
                keys = k.shape()[1], kv_heads = k.shape()[2];
  AttentionReference r;
  r.out.assign(static_cast<size_t>(q.size()), 0);
  r.log_sum_exp.assign(static_cast<size_t>(batch * heads * queries), -INFINITY);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < queries; ++i) {
        const auto [nq, nk] = mask.lengths.empty() ? std::pair(queries, keys) : mask.lengths[static_cast<size_t>(b)];
        if (i >= nq) continue;
        const int64_t seen = mask.causal ? std::min(nk, i + nk - nq + 1) : nk, g = h / (heads / kv_heads);
        std::vector<double> s;
        double greatest = -INFINITY, total = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double x = 0;
          for (int64_t c = 0; c < d; ++c)
            x += q.at(((b * queries + i) * heads + h) * d + c) * k.at(((b * keys + j) * kv_heads + g) * d + c);
          x *= scale;
          s.push_back(soft_cap ? *soft_cap * std::tanh(x / *soft_cap) : x);
          greatest = std::max(greatest, s.back());
        }
        if (s.empty()) continue;
        for (double& x : s) total += x = std::exp(x - greatest);
        for (int64_t j = 0; j < seen; ++j)
          for (int64_t c = 0; c < d; ++c)
            r.out[static_cast<size_t>(((b * queries + i) * heads + h) * d + c)] +=
                s[static_cast<size_t>(j)] / total * v.at(((b * keys + j) * kv_heads + g) * d + c);
        r.log_sum_exp[static_cast<size_t>((b * heads + h) * queries + i)] = greatest + std::log(total);
      }
  return r;
}

}  // namespace tessera::test
