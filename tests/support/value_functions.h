// Functions of the front end that move, pack and draw values, each with the stored answers of JAX that it must give:
// tests/data/values/NAME.inI.npy and NAME.outI.npy, written by make_value_answers.py. values_test.cpp has the
// interpreter compute them, tests/ops compiled code.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/npy.h"
#include "engine/front.h"

namespace tessera::test {

using Operands = std::vector<Value>;
struct ValueFunction {
  std::vector<DType> inputs, outputs;
  std::function<Operands(const Operands&)> f;
  double ulp = 0;  // of the interpreter and of compiled code against JAX
};
using ValueFunctions = std::map<std::string, ValueFunction>;

inline const std::vector<DType> kAllDTypes{boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64};

/// x[i] of a vector, as a scalar.
inline Value scalar_of(const Value& x, int64_t i) { return reshape(slice(x, {i}, {i + 1}), {}); }

inline void sorting_functions(ValueFunctions& all) {
  for (const DType t : kAllDTypes)
    all["sort_" + std::string(name(t))] = {{t}, {t, t, t}, [](const Operands& o) {
                                             return Operands{sort(o[0], {.axis = 0}), sort(o[0], {.axis = 1}),
                                                             sort(o[0])};
                                           }};
  for (int n = 0; n < 5; ++n)
    all["sort_shape_" + std::to_string(n)] = {{f32}, {f32}, [](const Operands& o) { return Operands{sort(o[0])}; }};
  all["sort_two_keys"] = {{i8, f32, i32}, {i8, f32, i32}, [](const Operands& o) {
                            return sort({o[0], o[1], o[2]}, {.axis = 1, .num_keys = 2});
                          }};
  all["sort_one_key"] = {
      {i8, f32, i32}, {i8, f32, i32}, [](const Operands& o) { return sort({o[0], o[1], o[2]}, {.axis = 0}); }};
  all["argsort"] = {{f32}, {i32, i32}, [](const Operands& o) { return Operands{argsort(o[0], 0), argsort(o[0])}; }};
}

inline void gather_functions(ValueFunctions& all) {
  const std::map<std::string, IndexMode> modes{
      {"fill", IndexMode::fill}, {"clip", IndexMode::clip}, {"wrap", IndexMode::wrap}};
  for (const auto& [mode_name, mode] : modes)
    for (const DType t : {f32, i8, u16, boolean, bf16})
      all["take_" + mode_name + "_" + std::string(name(t))] = {
          {t, i32}, {t, t}, [mode = mode](const Operands& o) {
            return Operands{take(o[0], o[1], 1, mode), take(o[0], reshape(slice(o[1], {0, 0}, {1, 3}), {3}), 0, mode)};
          }};
  all["take_i64"] = {
      {f32, i64}, {f32}, [](const Operands& o) { return Operands{take(o[0], o[1], -1, IndexMode::clip)}; }};
  all["take_scalar"] = {{f32, u8}, {f32}, [](const Operands& o) { return Operands{take(o[0], o[1], 1)}; }};
  all["take_empty"] = {{f32, i32}, {f32, f32}, [](const Operands& o) {
                         return Operands{take(o[0], o[1], 0), take(slice(o[0], {0, 0, 0}, {0, 4, 5}), o[1] + 1, 1)};
                       }};
  all["take_along_axis"] = {{f32, i32, i32}, {f32, f32, f32}, [](const Operands& o) {
                              return Operands{take_along_axis(o[0], o[1], 2), take_along_axis(o[0], o[2], 0),
                                              take_along_axis(o[0], o[2], 0, IndexMode::clip)};
                            }};
  all["gather"] = {{f32, i32, i32}, std::vector<DType>(6, f32), [](const Operands& o) {
                     const Value &x = o[0], &i = o[1], &j = o[2];
                     return Operands{gather(x, {i, j}),         gather(x, {i}, {1}), gather(x, {i, j}, {0, 2}),
                                     gather(x, {j, i}, {1, 2}), gather(x, {j}),      gather(x, {i, j, j})};
                   }};
  all["gather_fill"] = {{f32, i32, i32}, {f32}, [](const Operands& o) {
                          return Operands{gather(o[0], {o[1], o[2]}, {1, 2}, IndexMode::fill)};
                        }};
  const auto starts = [](const Value& s, int64_t row) {
    std::vector<Operand> list;
    for (int64_t d = 0; d < 3; ++d) list.push_back(reshape(slice(s, {row, d}, {row + 1, d + 1}), {}));
    return list;
  };
  all["dynamic_slice"] = {{f32, i32}, std::vector<DType>(4, f32), [starts](const Operands& o) {
                            Operands r;
                            for (int64_t k = 0; k < 4; ++k)
                              r.push_back(dynamic_slice(o[0], starts(o[1], k), {2, 4, 3}));
                            return r;
                          }};
  all["dynamic_update_slice"] = {{f32, f32, i32}, std::vector<DType>(4, f32), [starts](const Operands& o) {
                                   Operands r;
                                   for (int64_t k = 0; k < 4; ++k)
                                     r.push_back(dynamic_update_slice(o[0], o[1], starts(o[2], k)));
                                   return r;
                                 }};
  all["dynamic_index"] = {{f32, i32}, {f32, f32}, [starts](const Operands& o) {
                            return Operands{dynamic_index_in_dim(o[0], starts(o[1], 0)[0], 1),
                                            dynamic_index_in_dim(o[0], starts(o[1], 3)[0], 2, false)};
                          }};
  all["roll_by_value"] = {{f32, i32}, {f32, f32, f32}, [starts](const Operands& o) {
                            const Operand nine = starts(o[1], 1)[2], minus_nine = starts(o[1], 3)[0];
                            return Operands{roll(o[0], nine, 1), roll(o[0], minus_nine, 2), roll(o[0], nine, 2, 3, 1)};
                          }};
  all["argmax_dtypes"] = {{f32}, {i8, u8, i32, i64}, [](const Operands& o) {
                            Operands r;
                            for (const DType t : {i8, u8, i32, i64})
                              r.push_back(argmax(o[0], {.axis = 1, .index_dtype = t}));
                            return r;
                          }};
  all["select_n_four"] = {{i32, i16}, {i16}, [](const Operands& o) {
                            return Operands{select_n(o[0], {o[1], o[1] + 1, o[1] + 2, o[1] + 3})};
                          }};
}

inline void scatter_functions(ValueFunctions& all) {
  for (const DType t : {f32, i8, u32, bf16, i64})
    all["scatter_" + std::string(name(t))] = {
        {t, i32, i32, t}, std::vector<DType>(7, t), [](const Operands& o) {
          const Value &x = o[0], &i = o[1], &j = o[2], &u = o[3];
          const auto part = [&](std::vector<int64_t> limit) { return slice(u, {0, 0, 0, 0}, limit); };
          const Value matrix = reshape(part({3, 4, 1, 4}), {3, 4, 4});
          return Operands{scatter(x, {i, j}, slice(transpose(matrix, {1, 2, 0}), {0, 0, 0}, {4, 4, 1})),
                          scatter(x, {j, i}, matrix, Update::set, {1, 2}),
                          scatter(x, {i}, part({3, 4, 1, 1}), Update::add, {1}),
                          scatter(x, {j, i}, matrix, Update::multiply, {1, 2}),
                          scatter(x, {j, i}, reshape(part({1, 4, 4, 4}), {4, 4, 4}), Update::min, {0, 2}),
                          scatter(x, {j}, reshape(part({1, 1, 1, 4}), {4, 1, 1}) * 7, Update::max),
                          scatter(x, {j, i, j}, 1, Update::add)};
        }};
  all["scatter_bool"] = {{boolean, i32}, {boolean}, [](const Operands& o) {
                           return Operands{scatter(o[0], {reshape(o[1], {4})}, true, Update::set, {1})};
                         }};
  all["scatter_none"] = {{f32, i32}, {f32}, [](const Operands& o) { return Operands{scatter(o[0], {o[1]}, o[0])}; }};
}

inline void bit_functions(ValueFunctions& all) {
  for (const auto& [a, b] : std::vector<std::pair<DType, DType>>{
           {u8, u32}, {f32, u8}, {f32, bf16}, {bf16, f32}, {i16, u64}, {f64, i16}, {i8, f16}, {u64, f32}, {i32, f32}})
    all["bitcast_" + std::string(name(a)) + "_" + std::string(name(b))] = {
        {a}, {b}, [b = b](const Operands& o) { return Operands{bitcast(o[0], b)}; }};
  all["bitcast_rows"] = {{i16}, {u32, i8}, [](const Operands& o) {
                           const auto matrix = [](const Value& v) { return reshape(v, {-1, v.shape().back()}); };
                           return Operands{matrix(bitcast_along(o[0], u32, -2)), matrix(bitcast_along(o[0], i8, -2))};
                         }};
  all["pack_i32"] = {
      {i32, i32}, {u32}, [](const Operands& o) { return Operands{pack_elementwise({o[0], o[1]}, i16)}; }};
  all["unpack_i32"] = {{i32}, {i32, i32, u32}, [](const Operands& o) {
                         return Operands{unpack_elementwise(o[0], 0, i8, i32), unpack_elementwise(o[0], 2, i8, i32),
                                         unpack_elementwise(o[0], 3, u8, u32)};
                       }};
  all["pack_f32"] = {
      {f32, f32}, {u32}, [](const Operands& o) { return Operands{pack_elementwise({o[0], o[1]}, bf16)}; }};
  all["stochastic_round"] = {
      {f32, u32}, {bf16}, [](const Operands& o) { return Operands{stochastic_round(o[0], o[1], bf16)}; }};
  all["einshape"] = {{f32}, {f32, f32, f32}, [](const Operands& o) {
                       return Operands{einshape("a(bc)d->d(ca)b", o[0], {{'b', 2}}), einshape("abc->(abc)", o[0]),
                                       einshape("(ab)cd->bac d", o[0], {{'a', 3}})};
                     }};
  all["unstack"] = {{i32}, {i32, i32, i32}, [](const Operands& o) { return unstack(o[0], 1); }};
}

inline void product_functions(ValueFunctions& all) {
  struct Product {
    DType l, r, to;
  };
  for (const Product p : {Product{i8, i8, i32},
                          {i8, i8, u32},
                          {u8, u8, i32},
                          {u8, i8, i32},
                          {i8, i8, f32},
                          {i8, i8, i8},
                          {boolean, boolean, boolean},
                          {boolean, boolean, i32},
                          {f32, f32, bf16},
                          {f16, bf16, f32},
                          {f32, f32, i32},
                          {bf16, bf16, f32},
                          {f16, f16, f16},
                          {f8e4m3fn, f8e5m2, f32},
                          {f8e5m2, f8e4m3fn, bf16},
                          {f8e4m3fn, f8e5m2, f16},
                          {f8e5m2, f8e4m3fn, f64}})
    all["dot_" + std::string(name(p.l)) + "_" + std::string(name(p.r)) + "_" + std::string(name(p.to))] = {
        {p.l, p.r}, {p.to}, [p](const Operands& o) {
          return Operands{dot(o[0], o[1], {.preferred_element_type = p.to, .precision = Precision::highest})};
        }};
}

inline void random_functions(ValueFunctions& all) {
  const auto key_of = [](const Value& seeds, int64_t i) { return random::key(scalar_of(seeds, i)); };
  all["random_key"] = {{i32}, {u32}, [key_of](const Operands& o) {
                         // Numbers and 32-bit Values make the same keys.
                         return Operands{stack({random::key(0), key_of(o[0], 1), random::key(-1), key_of(o[0], 3)})};
                       }};
  all["random_fold_in"] = {
      {i32}, {u32}, [key_of](const Operands& o) {
        const Value key = key_of(o[0], 1);
        return Operands{stack({random::fold_in(key, 0), random::fold_in(key, 42),
                               random::fold_in(key, scalar_of(o[0], 2)), random::fold_in(key, scalar_of(o[0], 3))})};
      }};
  all["random_split"] = {{i32}, {u32, u32, u32}, [key_of](const Operands& o) {
                           return Operands{random::split(key_of(o[0], 1)), random::split(key_of(o[0], 2), 5),
                                           random::split(key_of(o[0], 2), 0)};
                         }};
  for (const DType t : {u8, u16, u32, u64})
    all["random_bits_" + std::string(name(t))] = {{i32}, {t, t, t}, [t, key_of](const Operands& o) {
                                                    const Value key = key_of(o[0], 1);
                                                    return Operands{random::bits(key, {}, t), random::bits(key, {7}, t),
                                                                    random::bits(key, {3, 5, 33}, t)};
                                                  }};
  for (const DType t : {f16, bf16, f32, f64}) {
    all["random_uniform_" + std::string(name(t))] = {{i32}, {t, t}, [t, key_of](const Operands& o) {
                                                       return Operands{
                                                           random::uniform(key_of(o[0], 1), {3, 5, 33}, t),
                                                           random::uniform(key_of(o[0], 2), {7}, t, -2.5, 4)};
                                                     }};
    all["random_normal_" + std::string(name(t))] = {
        {i32},
        {t},
        [t, key_of](const Operands& o) { return Operands{random::normal(key_of(o[0], 1), {8, 128}, t)}; },
        4};
    all["random_normal_worst_" + std::string(name(t))] = {
        {i32, i32},
        {t},
        [t, key_of](const Operands& o) {
          return Operands{take(random::normal(key_of(o[0], 1), {131072}, t), o[1], 0, IndexMode::clip)};
        },
        4};
  }
  for (const DType t : {i8, i16, i32, i64, u8, u16, u32, u64})
    all["random_randint_" + std::string(name(t))] = {
        {i32}, {t, t, t}, [t, key_of](const Operands& o) {
          const uint64_t beyond = bits(t) == 64 ? uint64_t{INT64_MAX} : (uint64_t{1} << (bits(t) - is_signed_int(t)));
          return Operands{random::randint(key_of(o[0], 1), {40}, 3, 100, t),
                          random::randint(key_of(o[0], 2), {7}, 0, beyond, t),
                          random::randint(key_of(o[0], 2), {7}, 5, 5, t)};
        }};
  all["random_bernoulli"] = {{i32, f32}, {boolean, boolean}, [key_of](const Operands& o) {
                               return Operands{random::bernoulli(key_of(o[0], 1), o[1], {4, 9}),
                                               random::bernoulli(key_of(o[0], 2), 0.25, {33})};
                             }};
  all["philox4x32"] = {std::vector<DType>(6, u32), std::vector<DType>(4, u32), [](const Operands& o) {
                         const auto x = random::philox4x32(o[0], o[1], {o[2], o[3], o[4], o[5]});
                         return Operands(x.begin(), x.end());
                       }};
}

inline ValueFunctions value_functions() {
  ValueFunctions all;
  sorting_functions(all);
  gather_functions(all);
  scatter_functions(all);
  bit_functions(all);
  product_functions(all);
  random_functions(all);
  return all;
}

struct ValueCase {
  std::vector<Array> inputs, answers;
  ir::Kernel kernel;  // over whole arrays
};
inline ValueCase value_case(const std::string& of, const ValueFunction& function) {
  const std::string stem = "tests/data/values/" + of;
  ValueCase c;
  for (size_t i = 0; i < function.inputs.size(); ++i)
    c.inputs.push_back(read_npy(stem + ".in" + std::to_string(i) + ".npy", function.inputs[i]));
  std::vector<ShapeDtype> shapes, given;
  for (const Array& a : c.inputs) given.push_back({{a.shape().begin(), a.shape().end()}, a.dtype()});
  for (size_t i = 0; i < function.outputs.size(); ++i) {
    c.answers.push_back(read_npy(stem + ".out" + std::to_string(i) + ".npy", function.outputs[i]));
    REQUIRE(c.answers.back().dtype() == function.outputs[i]);
    const Shape& s = c.answers.back().shape();
    shapes.push_back({{s.begin(), s.end()}, function.outputs[i]});
  }
  const auto call =
      spec::make_pallas_call({static_cast<int>(c.inputs.size() + c.answers.size()),
                              [&](const std::vector<Ref>& refs) {
                                Operands operands;
                                for (size_t i = 0; i < c.inputs.size(); ++i) operands.push_back(refs[i][tessera::all]);
                                const Operands results = function.f(operands);
                                REQUIRE(results.size() == c.answers.size());
                                for (size_t i = 0; i < results.size(); ++i) {
                                  REQUIRE(results[i].dtype() == function.outputs[i]);
                                  REQUIRE(to_string(results[i].shape()) == to_string(c.answers[i].shape()));
                                  refs[c.inputs.size() + i][tessera::all] = results[i];
                                }
                              }},
                             {.out_shape = shapes}, Loc::here());
  c.kernel = call.trace(given);
  return c;
}

}  // namespace tessera::test
