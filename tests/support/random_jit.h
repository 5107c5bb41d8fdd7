// Random functions under jit, by seed: plain operations, kernels with blocks, loops and branches. All they compute are
// small integers in f32, exact in every order and on every device, so that outputs must be equal.
#pragma once
#include <algorithm>
#include <random>
#include <vector>

#include "engine/front.h"

namespace tessera::test {

inline std::vector<ShapeDtype> random_jit_arguments() { return {{{4, 8}, f32}, {{8}, f32}, {{8, 4}, f32}, {{}, f32}}; }
inline std::vector<Array> random_jit_inputs(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Array> a;
  for (const ShapeDtype& t : random_jit_arguments()) {
    Shape shape;
    for (const Extent& e : t.shape) shape.push_back(*e.value());
    a.emplace_back(shape, f32);
    for (float& v : a.back().data<float>()) v = static_cast<float>(random() % 9) - 4;
  }
  return a;
}

class RandomFunction {
 public:
  explicit RandomFunction(uint64_t seed) : random_(seed) {}

  std::vector<Value> operator()(const std::vector<Value>& arguments) {
    pool_ = arguments;
    const size_t n = 3 + below(14);
    for (size_t i = 0; i < n; ++i) step(0);
    std::vector<Value> out;
    for (size_t i = 0; i < 1 + below(3); ++i)
      out.push_back(pool_[pool_.size() - 1 - below(std::min<size_t>(pool_.size(), 4))]);
    return out;
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  static Value tame(const Value& v) { return clamp(-8.0f, v, 8.0f); }
  Value any() {
    return pool_[below(3) ? pool_.size() - 1 - below(std::min<size_t>(pool_.size(), 5)) : below(pool_.size())];
  }
  /// Some value as one of this shape.
  Value of(const Shape& shape) {
    std::vector<Value> fit;
    for (const Value& v : pool_)
      if (v.shape() == shape) fit.push_back(v);
    if (!fit.empty() && below(5)) return fit[fit.size() - 1 - below(std::min<size_t>(fit.size(), 3))];
    const Value v = any();
    if (v.shape() == shape) return v;
    if (num_elements(v.shape()) == num_elements(shape)) return reshape(v, shape);
    if (v.rank() == 2 && shape == Shape{v.shape()[1], v.shape()[0]}) return transpose(v);
    if (v.rank() == 1 && shape.size() == 2 && shape[1] == v.shape()[0]) return broadcast_to(v, shape);
    if (v.rank() == 1 && shape.size() == 2 && shape[0] == v.shape()[0]) return broadcast_to(expand_dims(v, {1}), shape);
    return broadcast_to(tame(sum(v)), shape);
  }
  Value elementwise(const Value& v) {
    switch (below(8)) {
      case 0: return -v;
      case 1: return abs(v) - 1;
      case 2: return tame(v * of(v.shape()));
      case 3: return tame(v + of(v.shape()));
      case 4: return maximum(v, of(v.shape()));
      case 5: return where(v < of(v.shape()), v, of(v.shape()));
      case 6: return cast(cast(v, i32) + 1, f32);
      default: return tame(v + (v.rank() == 2 ? of({v.shape()[1]}) : of({})));
    }
  }
  static const PallasCall& rows() {
    static const PallasCall call = pallas_call([](Ref x, Ref o) { o[all] = x[all] * 2 - program_id(0); },
                                               {.out_shape = {{{4, 8}, f32}},
                                                .grid = {2},
                                                .in_specs = {{{2, 8}, [](Value i) { return Indices{i, 0}; }}},
                                                .out_specs = {{{2, 8}, [](Value i) { return Indices{i, 0}; }}},
                                                .name = "rows"});
    return call;
  }
  /// A product in three grid axes, stored in the last step of the last one.
  static const PallasCall& product() {
    static const PallasCall call = pallas_call(
        [](Ref a, Ref b, Ref o, Ref acc) {
          when(program_id(2) == 0, [&] { acc[all] = zeros({2, 2}); });
          acc[all] += dot(a[all], b[all]);
          when(program_id(2) == 1, [&] { o[all] = acc[all]; });
        },
        {.out_shape = {{{4, 4}, f32}},
         .grid = {2, 2, 2},
         .in_specs = {{{2, 4}, [](Value i, Value, Value k) { return Indices{i, k}; }},
                      {{4, 2}, [](Value, Value j, Value k) { return Indices{k, j}; }}},
         .out_specs = {{{2, 2}, [](Value i, Value j, Value) { return Indices{i, j}; }}},
         .scratch_shapes = {VMEM({2, 2}, f32)},
         .name = "product"});
    return call;
  }
  /// Blocks that hang over the edge, squeezed dims, two outputs.
  static const PallasCall& columns() {
    static const PallasCall call = pallas_call(
        [](Ref x, Ref y, Ref s, Ref t) {
          s[all] = x[all] + y[0];
          t[all] = maximum(x[all], y[0]);
        },
        {.out_shape = {{{4, 8}, f32}, {{4, 8}, f32}},
         .grid = {4, 3},
         .in_specs = {{{squeezed, 3}, [](Value i, Value j) { return Indices{i, j}; }},
                      {{1}, [](Value i, Value) { return i; }}},
         .out_specs = {{{squeezed, 3}, [](Value i, Value j) { return Indices{i, j}; }},
                       {{squeezed, 3}, [](Value i, Value j) { return Indices{i, j}; }}},
         .name = "columns"});
    return call;
  }
  static const PallasCall& in_place() {
    static const PallasCall call =
        pallas_call([](Ref, Ref o) { o[0] = o[0] + 1; },
                    {.out_shape = {{{8}, f32}}, .input_output_aliases = {{0, 0}}, .name = "in_place"});
    return call;
  }

  void step(int depth) {
    const size_t kinds = depth < 2 ? 20 : 17;
    switch (below(kinds)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6: return add(elementwise(any()));
      case 7: return add(of({4, 8}));
      case 8: return add(of({8, 4}));
      case 9: {
        const Value v = any();
        return add(v.rank() ? tame(sum(v, {.axis = -1, .keepdims = below(2) == 1})) : v + 1);
      }
      case 10: return add(max(of({4, 8}), {.axis = 0}));
      case 11: return add(tame(dot(of({4, 8}), of({8, 4}))));
      case 12: return add(concatenate({slice(of({4, 8}), {0, 2}, {4, 8}), slice(of({4, 8}), {0, 0}, {4, 2})}, 1));
      case 13: return add(tame(rows()(of({4, 8}))));
      case 14: return add(tame(product()(of({4, 8}), of({8, 4}))));
      case 15: {
        const Results r = columns()(of({4, 8}), of({4}));
        add(tame(r[0]));
        return add(tame(r[1]));
      }
      case 16: return add(tame(in_place()(of({8}))));
      case 17: {
        const auto outside = pool_;
        const auto [a, b] =
            fori_loop(0, static_cast<int>(below(4)), std::tuple{of({4, 8}), of({8})}, [&](Value i, Value x, Value y) {
              pool_.insert(pool_.end(), {x, y, cast(i, f32)});
              const Value next = tame(rows()(x));
              add(next);
              for (size_t n = below(4); n > 0; --n) step(depth + 1);
              return std::tuple{of({4, 8}), of({8})};
            });
        pool_ = outside;
        add(a);
        return add(b);
      }
      case 18: {
        const auto outside = pool_;
        // Ended by a count, by a value that something bounds, or by one that nothing does.
        const Value first = of({8}), value = cast(abs(max(of({8}))), i32);
        const size_t ends = below(4);
        const auto more = [&](Value i, Value x) {
          return ends == 0   ? i < 3
                 : ends == 1 ? i < minimum(value, 3)
                 : ends == 2 ? i <= 2 && sum(x) < 20
                             : i < where(value > 3, 3, value);
        };
        const auto [n, v] = while_loop(std::tuple{0, first}, more, [&](Value i, Value x) {
          pool_.push_back(x);
          const Value next = tame(in_place()(x));
          add(next);
          for (size_t k = below(3); k > 0; --k) step(depth + 1);
          return std::tuple{i + 1, of({8})};
        });
        pool_ = outside;
        add(cast(n, f32));
        return add(v);
      }
      default: {
        const auto outside = pool_;
        const auto branch = [&] {
          for (size_t k = below(3); k > 0; --k) step(depth + 1);
          const Value v = tame(rows()(of({4, 8})));
          pool_ = outside;
          return v;
        };
        const Value index = cast(sum(of({8})), i32);
        return add(switch_(index, branch, [&] { return of({4, 8}); }, branch));
      }
    }
  }
  void add(const Value& v) { pool_.push_back(v); }

  std::mt19937_64 random_;
  std::vector<Value> pool_;
};

inline auto random_jit(uint64_t seed) {
  return jit([seed](const std::vector<Value>& v) { return RandomFunction(seed)(v); }, {.name = "random"});
}

}  // namespace tessera::test
