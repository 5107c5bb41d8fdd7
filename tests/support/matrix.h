// The functions that make values from values, by name, as tests/data/make_matrix_answers.py has JAX's, and the stored
// answers of JAX for them: on every dtype that JAX takes and on shapes that go wrong. matrix_test.cpp of the unit tests
// has the interpreter compute them, tests/ops compiled code. Elementwise rows are compared elsewhere (answers_test.cpp,
// ops/elementwise_test.cpp).
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/front.h"
#include "tests/support/answers.h"

namespace tessera::test {

struct MatrixLine {
  Shape shape;
  std::string function;
  std::vector<std::string> results;  // of up to eight elements their bits in hexadecimal, or # and the digest of more
};
struct Matrix {
  // the elements that operands are made of; the second also has subnormal numbers
  std::vector<uint64_t> special, subnormal;
  std::vector<MatrixLine> lines;
};

inline std::vector<uint64_t> hex_words(const std::string& text) {
  std::istringstream in(text);
  std::vector<uint64_t> words;
  for (std::string w; in >> w;) words.push_back(std::stoull(w, nullptr, 16));
  return words;
}

inline Matrix read_matrix(DType t) {
  std::ifstream in("tests/data/matrix/" + std::string(name(t)) + ".txt");
  REQUIRE(in);
  Matrix m;
  for (std::string text, shape; std::getline(in, text);) {
    std::istringstream words(text);
    MatrixLine line;
    words >> shape;
    if (shape == "special" || shape == "subnormal") {
      (shape == "special" ? m.special : m.subnormal) = hex_words(text.substr(shape.size()));
      continue;
    }
    std::istringstream dims(shape == "-" ? "" : shape);
    for (std::string n; std::getline(dims, n, ',');) line.shape.push_back(std::stoll(n));
    words >> line.function >> std::ws;
    for (std::string result; std::getline(words, result, '|');) {
      const size_t first = result.find_first_not_of(' ');
      line.results.push_back(result.substr(first, result.find_last_not_of(' ') + 1 - first));
    }
    m.lines.push_back(line);
  }
  return m;
}

/// What a function is called with. w is i > 3.
struct MatrixOperands {
  Value x, y;  // special values
  Value z;     // with subnormal numbers
  Value n;     // small whole numbers: sums are exact in every order
  Value p;     // 1, now and then -1 or 2
  Value i;     // i32, some far beyond any dim
  Value j;     // i32[6]: -9 -1 0 2 6 2147483647
  Value w;
};

inline std::vector<Array> matrix_inputs(DType t, const Shape& shape, const Matrix& m) {
  std::vector<Array> inputs(5, Array(shape, t));
  inputs.emplace_back(shape, i32);
  const uint64_t nan = is_float(t) ? reference::from_double(t, std::nan("")) : 0;
  const auto special = [&](const std::vector<uint64_t>& of, int64_t k) {
    return is_float(t) && k % 101 == 50 ? nan : of[static_cast<size_t>(k * 5) % of.size()];
  };
  const bool is_signed = is_float(t) || is_signed_int(t);
  for (int64_t k = 0; k < inputs[0].size(); ++k) {
    const int64_t small = is_signed ? k * 7 % 5 - 2 : k * 7 % 5 % 2, factor = k % 97 == 13              ? 2
                                                                              : k % 7 == 3 && is_signed ? -1
                                                                                                        : 1;
    const auto number = [&](int64_t v) {
      return t == boolean ? static_cast<uint64_t>(v != 0) : reference::from_double(t, static_cast<double>(v));
    };
    const uint64_t words[] = {special(m.special, k), special(m.special, k + 11), special(m.subnormal, k + 3),
                              number(small), number(factor)};
    for (size_t a = 0; a < 5; ++a) inputs[a].set_element_bits(k, words[a]);
    inputs[5].set_element_bits(k, static_cast<uint32_t>(k % 17 == 5    ? INT32_MAX
                                                        : k % 17 == 11 ? INT32_MIN
                                                                       : k * 13 % 29 - 9));
  }
  inputs.emplace_back(Shape{6}, std::vector<int32_t>{-9, -1, 0, 2, 6, INT32_MAX});
  return inputs;
}

using MatrixFunction = std::function<std::vector<Value>(const MatrixOperands&)>;
using MatrixFunctions = std::map<std::string, MatrixFunction>;

inline Value index_of(const MatrixOperands& o, int64_t k) { return reshape(slice(o.j, {k}, {k + 1}), {}); }

inline void matrix_moves(MatrixFunctions& all, DType t, const Shape& s) {
  using O = const MatrixOperands&;
  using R = std::vector<Value>;
  const auto rank = static_cast<int64_t>(s.size());
  Shape twice{2};
  std::vector<int64_t> axes, start, stride;
  for (int64_t a = 0; a < rank; ++a) {
    const int64_t n = s[static_cast<size_t>(a)];
    twice.push_back(n), axes.push_back(a), start.push_back(n / 3), stride.push_back(n > 4 ? 2 : 1);
  }
  all["broadcast"] = [=](O o) { return R{broadcast_to(o.z, twice)}; };
  all["reshape"] = [=](O o) { return R{reshape(o.z, {num_elements(s), 1})}; };
  all["transpose"] = [](O o) { return R{transpose(o.z)}; };
  all["slice"] = [=](O o) { return R{slice(o.z, start, s, stride)}; };
  all["rev"] = [=](O o) { return R{rev(o.z, axes)}; };
  all["stack"] = [](O o) { return R{stack({o.z, o.y}, -1)}; };
  all["tile"] = [](O o) { return R{tile(o.z, {2})}; };
  all["where"] = [](O o) { return R{where(o.w, o.z, o.y)}; };
  all["select_n"] = [](O o) { return R{select_n(clamp(0, o.i, 2), {o.z, o.y, o.x})}; };
  all["pad"] = [=](O o) { return R{pad(o.z, cast(full({}, 1, i32), t), std::vector<Padding>(s.size(), {1, 2, 1}))}; };
  all["iota"] = [=](O) { return R{iota(t, s, -1)}; };
  all["split"] = [=](O o) { return split(o.z, {s[0] / 3, s[0] - s[0] / 3}); };
  all["einshape"] = [=](O o) {
    if (rank == 1) return R{einshape("(ab)->ba", o.z, {{'b', s[0] == 1000 ? 8 : 1}})};
    return R{rank == 2 ? einshape("a(bc)->cab", o.z, {{'b', 4}}) : einshape("ab(cd)->d(ba)c", o.z, {{'c', 3}})};
  };
  for (int64_t a = 0; a < rank; ++a) {
    all["concatenate" + std::to_string(a)] = [=](O o) { return R{concatenate({o.x, o.z}, a)}; };
    all["roll" + std::to_string(a)] = [=](O o) { return R{roll(o.z, 3, a)}; };
  }
}

inline void matrix_moves_by_indices(MatrixFunctions& all, const Shape& s) {
  using O = const MatrixOperands&;
  using R = std::vector<Value>;
  const auto rank = static_cast<int64_t>(s.size());
  for (int64_t a = 0; a < rank; ++a) {
    const std::string axis = std::to_string(a);
    all["take_fill" + axis] = [=](O o) { return R{take(o.z, o.j, a)}; };
    all["take_clip" + axis] = [=](O o) { return R{take(o.z, o.j, a, IndexMode::clip)}; };
    all["take_wrap" + axis] = [=](O o) { return R{take(o.z, o.j, a, IndexMode::wrap)}; };
    all["take_along_axis" + axis] = [=](O o) {
      return R{take_along_axis(o.z, o.i, a), take_along_axis(o.z, o.i, a, IndexMode::clip)};
    };
    all["roll_by_value" + axis] = [=](O o) { return R{roll(o.z, index_of(o, 0), a)}; };
  }
  const auto updated = [](const Value& x, const Value& with, O o, Update u) {
    return R{scatter(x, {o.j}, gather(with, {o.j}), u)};
  };
  all["gather"] = [](O o) { return R{gather(o.z, {o.j})}; };
  all["scatter_set"] = [=](O o) { return updated(o.z, o.y, o, Update::set); };
  all["scatter_min"] = [=](O o) { return updated(o.x, o.y, o, Update::min); };
  all["scatter_max"] = [=](O o) { return updated(o.x, o.y, o, Update::max); };
  all["scatter_add"] = [=](O o) { return updated(o.n, o.n, o, Update::add); };
  all["scatter_multiply"] = [=](O o) { return updated(o.p, o.p, o, Update::multiply); };
  Shape sizes;
  for (const int64_t n : s) sizes.push_back(std::max<int64_t>(n / 2, 1));
  const auto starts = [rank](O o) {
    std::vector<Operand> list;
    for (const int64_t k : {0, 3, 1})
      if (static_cast<int64_t>(list.size()) < rank) list.push_back(index_of(o, k));
    return list;
  };
  all["dynamic_slice"] = [=](O o) { return R{dynamic_slice(o.z, starts(o), sizes)}; };
  all["dynamic_update_slice"] = [=](O o) {
    return R{dynamic_update_slice(o.z, slice(o.y, std::vector<int64_t>(s.size(), 0), sizes), starts(o))};
  };
  all["dynamic_index_in_dim"] = [](O o) { return R{dynamic_index_in_dim(o.z, index_of(o, 3), 0)}; };
}

inline void matrix_comparisons(MatrixFunctions& all, const Shape& s) {
  using O = const MatrixOperands&;
  using R = std::vector<Value>;
  for (int64_t a = 0; a < static_cast<int64_t>(s.size()); ++a) {
    const std::string axis = std::to_string(a);
    all["sort" + axis] = [=](O o) { return R{sort(o.x, {.axis = a})}; };
    all["argsort" + axis] = [=](O o) { return R{argsort(o.x, a)}; };
    all["sort_two_keys" + axis] = [=](O o) { return sort({o.w, o.x, o.y}, {.axis = a, .num_keys = 2}); };
    all["max" + axis] = [=](O o) { return R{max(o.x, {.axis = a})}; };
    all["min" + axis] = [=](O o) { return R{min(o.x, {.axis = a})}; };
    all["argmax" + axis] = [=](O o) { return R{argmax(o.x, {.axis = a})}; };
    all["argmin" + axis] = [=](O o) { return R{argmin(o.x, {.axis = a})}; };
    all["cummax" + axis] = [=](O o) { return R{cummax(o.x, {.axis = a, .reverse = a % 2 == 1})}; };
    all["cummin" + axis] = [=](O o) { return R{cummin(o.x, {.axis = a, .reverse = a % 2 == 0})}; };
    all["reduce_and" + axis] = [=](O o) { return R{reduce_and(o.x, {.axis = a})}; };
    all["reduce_or" + axis] = [=](O o) { return R{reduce_or(o.x, {.axis = a})}; };
  }
  all["max"] = [](O o) { return R{max(o.x)}; };
  all["min"] = [](O o) { return R{min(o.x)}; };
  all["reduce_and"] = [](O o) { return R{reduce_and(o.x)}; };
  all["reduce_or"] = [](O o) { return R{reduce_or(o.x)}; };
}

inline void matrix_arithmetic(MatrixFunctions& all, DType t, const Shape& s) {
  using O = const MatrixOperands&;
  using R = std::vector<Value>;
  const auto rank = static_cast<int64_t>(s.size());
  for (int64_t a = 0; a < rank; ++a) {
    const std::string axis = std::to_string(a);
    all["sum" + axis] = [=](O o) { return R{sum(o.n, {.axis = a})}; };
    all["prod" + axis] = [=](O o) { return R{prod(o.p, {.axis = a})}; };
    all["cumsum" + axis] = [=](O o) { return R{cumsum(o.n, {.axis = a, .reverse = a % 2 == 1})}; };
    all["cumprod" + axis] = [=](O o) { return R{cumprod(o.p, {.axis = a, .reverse = a % 2 == 1})}; };
  }
  all["sum"] = [](O o) { return R{sum(o.n)}; };
  all["prod"] = [](O o) { return R{prod(o.p)}; };
  std::vector<int64_t> batch;
  if (rank == 3) batch = {0};
  all["dot"] = [=](O o) {
    return R{dot(o.n, o.p,
                 {.lhs_contract = {rank - 1},
                  .rhs_contract = {rank - 1},
                  .lhs_batch = batch,
                  .rhs_batch = batch,
                  .preferred_element_type = is_narrow_float(t) ? f32 : t,
                  .precision = Precision::highest})};
  };
}

inline void matrix_bits(MatrixFunctions& all, DType t) {
  using O = const MatrixOperands&;
  using R = std::vector<Value>;
  DType back = t;  // another dtype of t's width, the last
  for (int d = 0; d < kNumDTypes; ++d)
    if (const auto q = static_cast<DType>(d); q != t && q != boolean && bits(q) == bits(t)) back = q;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto q = static_cast<DType>(d);
    const std::string to(name(q));
    all["bitcast_" + to] = [=](O o) {
      const Value part = bitcast(o.z, q);
      return bits(q) == bits(t) ? R{part} : R{part, bitcast(part, back)};
    };
    all["pack_" + to] = [=](O o) {
      if (t == f32) {  // which NaN a conversion makes is not specified
        const auto number = [](const Value& v) { return where(is_nan(v), 2.5, v); };
        return R{pack_elementwise({number(o.x), number(o.y)}, q)};
      }
      std::vector<Operand> parts;
      for (int k = 0; k < bits(t) / bits(q); ++k) parts.push_back(k % 2 ? o.y : o.z);
      return R{pack_elementwise(parts, q)};
    };
    all["unpack_" + to] = [=](O o) { return R{unpack_elementwise(o.z, 1, q, t)}; };
  }
  all["stochastic_round"] = [](O o) { return R{stochastic_round(o.x, cast(o.i, u32), bf16)}; };
}

inline void matrix_random(MatrixFunctions& all, DType t, const Shape& s) {
  using O = const MatrixOperands&;
  using R = std::vector<Value>;
  all["random_bits"] = [=](O) { return R{random::bits(random::key(42), s, t)}; };
  all["randint"] = [=](O) { return R{random::randint(random::key(42), s, 3, 100, t)}; };
  all["uniform"] = [=](O) {
    return R{random::uniform(random::key(42), s, t), random::uniform(random::key(42), s, t, -2.5, 4)};
  };
  all["normal"] = [=](O) { return R{random::normal(random::key(42), s, t)}; };
  all["bernoulli"] = [=](O) { return R{random::bernoulli(random::key(42), 0.25, s)}; };
}

inline MatrixFunctions matrix_functions(DType t, const Shape& s) {
  MatrixFunctions all;
  matrix_moves(all, t, s);
  matrix_moves_by_indices(all, s);
  matrix_comparisons(all, s);
  matrix_arithmetic(all, t, s);
  matrix_bits(all, t);
  matrix_random(all, t, s);
  return all;
}

struct MatrixKernel {
  ir::Kernel kernel;
  std::vector<const MatrixLine*> lines;  // whose functions it computes
  std::vector<size_t> line_of;           // of each output
};

/// One kernel over whole arrays that computes the functions of `lines`, all of one shape, each result in an output of
/// its own.
inline MatrixKernel matrix_kernel(DType t, const std::vector<const MatrixLine*>& lines,
                                  const std::vector<Array>& inputs) {
  MatrixKernel m;
  const MatrixFunctions functions = matrix_functions(t, lines.at(0)->shape);
  std::vector<ShapeDtype> given, shapes;
  for (const Array& a : inputs) given.push_back({{a.shape().begin(), a.shape().end()}, a.dtype()});
  const auto results_of = [&](const std::vector<Ref>& refs, const std::vector<const MatrixLine*>& of) {
    std::vector<Value> in;
    for (size_t k = 0; k < inputs.size(); ++k) in.push_back(refs[k][tessera::all]);
    const MatrixOperands o{in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[5] > 3};
    std::vector<std::vector<Value>> results;
    for (const MatrixLine* line : of) {
      const std::string place = std::string(name(t)) + " " + to_string(line->shape) + " " + line->function;
      REQUIRE_MESSAGE(functions.contains(line->function), place);
      try {
        results.push_back(functions.at(line->function)(o));
      } catch (const Error& error) {
        FAIL_CHECK(place, ": ", std::string(error.what()));
        continue;
      }
      REQUIRE_MESSAGE(results.back().size() == line->results.size(), place);
      if (shapes.empty()) m.lines.push_back(line);
    }
    return results;
  };
  // What the results' types are is known once the kernel is traced: once without them (no call is without an output),
  // and again with them.
  spec::make_pallas_call({static_cast<int>(inputs.size()) + 1,
                          [&](const std::vector<Ref>& refs) {
                            const auto results = results_of(refs, lines);
                            for (size_t l = 0; l < results.size(); ++l)
                              for (const Value& v : results[l]) {
                                shapes.push_back({{v.shape().begin(), v.shape().end()}, v.dtype()});
                                m.line_of.push_back(l);
                              }
                          }},
                         {.out_shape = {{{1}, i32}}}, Loc::here())
      .trace(given);
  m.kernel = spec::make_pallas_call({static_cast<int>(inputs.size() + shapes.size()),
                                     [&](const std::vector<Ref>& refs) {
                                       const auto results = results_of(refs, m.lines);
                                       size_t at = inputs.size();
                                       for (const auto& of_line : results)
                                         for (const Value& v : of_line) refs[at++][tessera::all] = v;
                                     }},
                                    {.out_shape = shapes}, Loc::here())
                 .trace(given);
  return m;
}

inline uint64_t matrix_digest(const std::vector<uint64_t>& words) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    uint64_t v = (words[i] ^ words[i] >> 29) * 0xBF58476D1CE4E5B9;
    v ^= v >> 32;
    sum += v * (2 * i + 1) + i;
  }
  return sum;
}

/// Compares the outputs of a kernel with JAX's answers, which are exact but for normal's (within 4 units in the last
/// place).
inline void compare_matrix(DType t, const MatrixKernel& m, const std::vector<Array>& outputs) {
  REQUIRE(outputs.size() == m.line_of.size());
  size_t result = 0;
  for (size_t o = 0; o < outputs.size(); ++o) {
    result = o > 0 && m.line_of[o] == m.line_of[o - 1] ? result + 1 : 0;
    const MatrixLine& line = *m.lines[m.line_of[o]];
    const std::string& wanted = line.results[result];
    const DType r = outputs[o].dtype();
    const auto place = [&] {
      return std::string(name(t)) + " " + to_string(line.shape) + " " + line.function + ", result " +
             std::to_string(result);
    };
    // Of the least and the greatest the zeros have no sign: JAX's hangs on how XLA vectorises.
    const bool any_zero =
        is_float(r) &&
        (line.function.find("min") != std::string::npos || line.function.find("max") != std::string::npos) &&
        !line.function.starts_with("arg");
    std::vector<uint64_t> words;
    for (int64_t i = 0; i < outputs[o].size(); ++i) {
      uint64_t b = outputs[o].element_bits(i);
      if (any_zero && b == uint64_t{1} << (bits(r) - 1)) b = 0;
      words.push_back(is_float(r) && std::isnan(reference::to_double(r, b)) ? ~uint64_t{0} : b);
    }
    if (wanted == "none" || wanted[0] != '#') {
      const std::vector<uint64_t> elements = hex_words(wanted == "none" ? "" : wanted);
      if (elements.size() != words.size()) {
        FAIL_CHECK(place(), " has ", words.size(), " elements but JAX's has ", elements.size());
        continue;
      }
      const double ulp = line.function == "normal" ? 4 : 0;
      for (size_t i = 0; i < words.size(); ++i)
        if (words[i] != elements[i] && !(ulp > 0 && agrees(r, words[i], elements[i], ulp)))
          FAIL_CHECK(place(), ", element ", i, " is ", show(r, words[i]), " but JAX has ", show(r, elements[i]));
    } else if (matrix_digest(words) != std::stoull(wanted.substr(1), nullptr, 16)) {
      std::string first;
      for (size_t i = 0; i < words.size() && i < 12; ++i) first += " " + show(r, words[i]);
      FAIL_CHECK(place(), " differs from JAX's (make_matrix_answers.py prints that); ", words.size(),
                 " elements:", first);
    }
  }
}

}  // namespace tessera::test
