// The primitives that compute values from values. Each row says in the front end's words what the primitive means in
// JAX.
#include "engine/jax/primitives.h"

#include <algorithm>
#include <numeric>

#include "engine/front/elementwise.h"
#include "engine/front/trace.h"

namespace tessera::jax {
namespace {
using ir::Opcode;

template <Value (*f)(Operand)>
Values unary_of(Equation& e) {
  return {f(e.x(0))};
}
template <Value (*f)(Operand, Operand)>
Values binary_of(Equation& e) {
  return {f(e.x(0), e.x(1))};
}
/// Straight to the op: where the front end's operator means something else for some dtypes.
template <Opcode code>
Values op_of(Equation& e) {
  if (e.size() == 1) return {unary(code, e.x(0), e.name)};
  return {binary(code, e.x(0), e.x(1), e.name)};
}
Values same(Equation& e) {
  Values all;
  for (size_t i = 0; i < e.size(); ++i) all.push_back(e.value(i));
  return all;
}
/// What orders a program's threads says nothing about a program as a whole.
Values nothing(Equation&) { return {}; }

template <Value (*f)(Operand, ReduceParams)>
Values reduction(Equation& e) {
  const std::vector<int64_t> axes = e.params.at("axes").integers();
  // the front end widens sums of narrow integers, JAX wraps them
  return {cast(Operand(f(e.x(0), {.axis = axes}), e.loc), e.value(0).dtype())};
}
template <Value (*f)(Operand, ArgParams)>
Values position(Equation& e) {
  const std::vector<int64_t> axes = e.params.at("axes").integers();
  if (axes.size() != 1) e.fail("takes one axis but is given " + to_string(axes));
  return {f(e.x(0), {.axis = axes[0], .index_dtype = e.params.at("index_dtype").dtype()})};
}
template <Value (*f)(Operand, ScanParams)>
Values running(Equation& e) {
  const auto reverse = e.params.find("reverse");
  return {f(e.x(0), {.axis = e.params.at("axis").integer(), .reverse = reverse && reverse->boolean()})};
}

Values broadcast_in_dim(Equation& e) {
  const Shape shape = e.params.at("shape").shape();
  const std::vector<int64_t> dims = e.params.at("broadcast_dimensions").integers();
  const Value v = e.value(0);
  bool good = dims.size() == v.shape().size();
  for (size_t i = 0; good && i < dims.size(); ++i)
    good = dims[i] >= 0 && dims[i] < static_cast<int64_t>(shape.size()) && (i == 0 || dims[i] > dims[i - 1]) &&
           (v.shape()[i] == 1 || v.shape()[i] == shape[static_cast<size_t>(dims[i])]);
  if (!good)
    e.fail("shape " + to_string(v.shape()) + " with dims " + to_string(dims) + " does not broadcast to " +
           to_string(shape));
  Emit emit(e.name, e.loc);
  return {emit.wrap(emit.builder().broadcast(emit.use(v), shape, dims))};
}

/// A product without anything summed, which ts::dot would take for a matrix product.
Value outer(Equation& e, DType t) {
  Shape rows = e.value(0).shape(), columns(rows.size(), 1);
  const Shape s = e.value(1).shape();
  rows.insert(rows.end(), s.size(), 1);
  columns.insert(columns.end(), s.begin(), s.end());
  const Value a = cast(e.x(0), t), b = cast(e.x(1), t);
  const Operand right(reshape(Operand(b, e.loc), columns), e.loc);
  return Operand(reshape(Operand(a, e.loc), rows), e.loc) * right;
}
Values dot_general(Equation& e) {
  const Node dims = e.params.at("dimension_numbers");
  const auto list = [&](size_t i, size_t k) { return dims.at(i).at(k).integers(); };
  DotParams p{.lhs_contract = list(0, 0), .rhs_contract = list(0, 1), .lhs_batch = list(1, 0), .rhs_batch = list(1, 1)};
  const DType t = e.out(0).dtype;
  if (p.lhs_contract.empty() && p.rhs_contract.empty() && p.lhs_batch.empty() && p.rhs_batch.empty())
    return {outer(e, t)};
  p.preferred_element_type = t;
  return {dot(e.x(0), e.x(1), std::move(p))};
}

Values iota_of(Equation& e) {
  return {iota(e.params.at("dtype").dtype(), e.params.at("shape").shape(), e.params.at("dimension").integer(), e.loc)};
}
Values slice_of(Equation& e) {
  const auto strides = e.params.find("strides");
  return {slice(e.x(0), e.params.at("start_indices").integers(), e.params.at("limit_indices").integers(),
                strides ? strides->integers() : std::vector<int64_t>{})};
}
Values split_of(Equation& e) { return split(e.x(0), e.params.at("sizes").integers(0), e.params.at("axis").integer()); }
Values unstack(Equation& e) {
  const int64_t axis = e.params.at("axis").integer(0, e.value(0).rank() - 1);
  const int64_t n = e.value(0).shape()[static_cast<size_t>(axis)];
  Values all;
  for (const Value& v : split(e.x(0), std::vector<int64_t>(static_cast<size_t>(n), 1), axis))
    all.push_back(squeeze(Operand(v, e.loc), {axis}));
  return all;
}
Values pad_of(Equation& e) {
  std::vector<Padding> dims;
  for (const Node& n : e.params.at("padding_config").items()) {
    const std::vector<int64_t> p = n.integers(-INT32_MAX, INT32_MAX);
    if (p.size() != 3) n.fail("has " + std::to_string(p.size()) + " numbers but should have 3");
    dims.push_back({p[0], p[1], p[2]});
  }
  return {pad(e.x(0), e.x(1), dims)};
}
Values round_of(Equation& e) {
  const std::string method = e.params.at("rounding_method").string();
  if (method == "to_nearest_even") return {round_even(e.x(0))};
  if (method != "away_from_zero") e.fail("the rounding method " + method + " is not known");
  return {tessera::round(e.x(0))};
}
Values select_n_of(Equation& e) {
  std::vector<Operand> cases = e.operands();
  if (cases.empty()) e.fail("has no operands");
  const Operand which = cases.front();
  cases.erase(cases.begin());
  return {select_n(which, std::move(cases))};
}
Values sort_of(Equation& e) {
  return sort(e.operands(), {.axis = e.params.at("dimension").integer(),
                             .num_keys = static_cast<int>(e.params.at("num_keys").integer(1, INT32_MAX))});
}
Values roll_of(Equation& e) {
  const auto stride = e.params.find("stride"), stride_axis = e.params.find("stride_axis");
  return {roll(e.x(0), e.x(1), e.params.at("axis").integer(), stride ? stride->integer(0, INT32_MAX) : 0,
               stride_axis ? stride_axis->integer() : 0)};
}
Values threefry(Equation& e) {
  const auto [a, b] = random::threefry2x32(e.x(0), e.x(1), e.x(2), e.x(3));
  return {a, b};
}
Values iota_2x32_of(Equation& e) {
  const auto [high, low] = iota_2x32(e.params.at("shape").shape(), e.loc);
  return {high, low};
}
/// Which of several versions, each for some platforms, is meant: the one for all others, or the CPU's, which JAX
/// believes to run.
Values platform_index(Equation& e) {
  const std::vector<Node> versions = e.params.at("platforms").items();
  size_t chosen = versions.size();
  for (size_t i = 0; i < versions.size(); ++i) {
    if (versions[i].is_null() && chosen == versions.size()) chosen = i;
    if (!versions[i].is_list()) continue;
    for (const Node& name : versions[i].items())
      if (name.string() == "cpu") chosen = i;
  }
  if (chosen == versions.size()) e.fail("no version is for the CPU platform");
  return {constant(DType::i32, chosen, {}, e.loc)};
}
Values einshape_of(Equation& e) {
  std::vector<std::pair<char, int64_t>> sizes;
  for (const Node& n : e.params.at("sizes").items()) {
    const std::string name = n.at(size_t{0}).string();
    if (name.size() != 1) n.fail("names a dim \"" + name + "\" but should with one letter");
    sizes.emplace_back(name[0], n.at(1).integer(0, INT32_MAX));
  }
  return {einshape(e.params.at("equation").string(), e.x(0), sizes)};
}
/// An axis of the grid as JAX counts: without those that vmap added.
int64_t grid_axis(Equation& e) {
  const auto n = static_cast<int64_t>(e.import.grid_axes.size());
  const int64_t axis = e.params.at("axis").integer();
  if (axis < 0 || axis >= n)
    e.fail("axis " + std::to_string(axis) + " is out of range for a grid of " + std::to_string(n) +
           (n == 1 ? " axis" : " axes"));
  return e.import.grid_axes[static_cast<size_t>(axis)];
}
Values program_id_of(Equation& e) {
  const std::vector<Value>& own = e.import.program_ids;
  if (own.empty()) return {program_id(grid_axis(e), e.loc)};
  const int64_t axis = e.params.at("axis").integer();
  if (axis < 0 || axis >= static_cast<int64_t>(own.size()))
    e.fail("axis " + std::to_string(axis) + " is out of range for a grid of " + std::to_string(own.size()) + " axes");
  return {own[static_cast<size_t>(axis)]};
}
/// Along the last dim but one, unless it is said which.
Values bitcast_of(Equation& e) {
  const auto dim = e.params.find("dim");
  return {bitcast_along(e.x(0), e.params.at("ty").dtype(), dim ? dim->integer() : -2)};
}
/// 1 - x * x, without losing the digits of an x close to 1.
Values one_minus_square(Equation& e) {
  const Operand one(int64_t{1}, e.loc);
  const Value more = one + e.x(0), less = one - e.x(0);
  return {Operand(more, e.loc) * Operand(less, e.loc)};
}
/// A position along an axis of the grid that has a name: the grid is all the mesh that a kernel sees.
Values axis_index(Equation& e) {
  const Node n = e.params.at("axis_name");
  const std::string axis = n.is_list() ? n.size() == 1 ? n.at(size_t{0}).string() : "" : n.string();
  const auto at = std::find(e.import.grid_names.begin(), e.import.grid_names.end(), axis);
  if (axis.empty() || at == e.import.grid_names.end()) e.fail("the grid has no axis of the name \"" + axis + "\"");
  return {program_id(at - e.import.grid_names.begin(), e.loc)};
}
}  // namespace

const std::vector<Row>& value_rows() {
  static const std::vector<Row> rows{
      // elementwise
      {"abs", 1, unary_of<tessera::abs>},
      {"acos", 1, unary_of<tessera::acos>},
      {"acosh", 1, unary_of<tessera::acosh>},
      {"add", 2, binary_of<(operator+)>},
      {"add_any", 2, binary_of<(operator+)>},
      {"and", 2, binary_of<(operator&)>},
      {"asin", 1, unary_of<tessera::asin>},
      {"asinh", 1, unary_of<tessera::asinh>},
      {"atan", 1, unary_of<tessera::atan>},
      {"atan2", 2, binary_of<tessera::atan2>},
      {"atanh", 1, unary_of<tessera::atanh>},
      {"cbrt", 1, unary_of<tessera::cbrt>},
      {"ceil", 1, unary_of<tessera::ceil>},
      {"clamp", 3, [](Equation& e) { return Values{clamp(e.x(0), e.x(1), e.x(2))}; }},
      {"clz", 1, unary_of<clz>},
      {"cos", 1, unary_of<tessera::cos>},
      {"cosh", 1, unary_of<tessera::cosh>},
      {"div", 2, binary_of<(operator/)>},
      {"eq", 2, binary_of<(operator==)>},
      {"erf", 1, unary_of<tessera::erf>},
      {"erf_inv", 1, unary_of<erf_inv>},
      {"exp", 1, unary_of<tessera::exp>},
      {"exp2", 1, unary_of<tessera::exp2>},
      {"expm1", 1, unary_of<tessera::expm1>},
      {"floor", 1, unary_of<tessera::floor>},
      {"ge", 2, binary_of<(operator>=)>},
      {"gt", 2, binary_of<(operator>)>},
      {"integer_pow", 1,
       [](Equation& e) { return Values{integer_pow(e.x(0), e.params.at("y").integer(INT32_MIN, INT32_MAX))}; }},
      {"is_finite", 1, unary_of<is_finite>},
      {"le", 2, binary_of<(operator<=)>},
      {"log", 1, unary_of<tessera::log>},
      {"log1p", 1, unary_of<tessera::log1p>},
      {"log2", 1, unary_of<tessera::log2>},
      {"logistic", 1, unary_of<logistic>},
      {"lt", 2, binary_of<(operator<)>},
      {"max", 2, binary_of<maximum>},
      {"min", 2, binary_of<minimum>},
      {"mul", 2, binary_of<(operator*)>},
      {"ne", 2, binary_of<(operator!=)>},
      {"neg", 1, op_of<Opcode::neg>},
      {"nextafter", 2, binary_of<tessera::nextafter>},
      {"not", 1, unary_of<operator~ >},
      {"one_minus_square", 1, one_minus_square},
      {"or", 2, binary_of<(operator|)>},
      {"population_count", 1, unary_of<population_count>},
      {"pow", 2, binary_of<tessera::pow>},
      {"reciprocal", 1, unary_of<reciprocal>},
      {"reduce_precision", 1,
       [](Equation& e) {
         return Values{reduce_precision(e.x(0), static_cast<int>(e.params.at("exponent_bits").integer(1, 64)),
                                        static_cast<int>(e.params.at("mantissa_bits").integer(0, 64)))};
       }},
      {"rem", 2, binary_of<(operator%)>},
      {"round", 1, round_of},
      {"rsqrt", 1, unary_of<rsqrt>},
      {"select_n", -1, select_n_of},
      {"shift_left", 2, op_of<Opcode::shift_left>},
      {"shift_right_arithmetic", 2, op_of<Opcode::shift_right_arithmetic>},
      {"shift_right_logical", 2, op_of<Opcode::shift_right_logical>},
      {"sign", 1, unary_of<sign>},
      {"sin", 1, unary_of<tessera::sin>},
      {"sinh", 1, unary_of<tessera::sinh>},
      {"sqrt", 1, unary_of<tessera::sqrt>},
      {"square", 1, unary_of<square>},
      {"sub", 2, binary_of<(operator-)>},
      {"tan", 1, unary_of<tessera::tan>},
      {"tanh", 1, unary_of<tessera::tanh>},
      {"xor", 2, binary_of<(operator^)>},

      // dtypes
      {"bitcast", 1, bitcast_of},
      {"bitcast_convert_type", 1,
       [](Equation& e) { return Values{bitcast(e.x(0), e.params.at("new_dtype").dtype())}; }},
      {"convert_element_type", 1, [](Equation& e) { return Values{cast(e.x(0), e.params.at("new_dtype").dtype())}; }},
      {"pack_elementwise", -1,
       [](Equation& e) { return Values{pack_elementwise(e.operands(), e.params.at("packed_dtype").dtype())}; }},
      {"stochastic_round", 2,
       [](Equation& e) { return Values{stochastic_round(e.x(0), e.x(1), e.params.at("target_dtype").dtype())}; }},
      {"unpack_elementwise", 1,
       [](Equation& e) {
         return Values{unpack_elementwise(e.x(0), static_cast<int>(e.params.at("index").integer(0, 64)),
                                          e.params.at("packed_dtype").dtype(), e.params.at("unpacked_dtype").dtype())};
       }},

      // making values
      {"axis_index", 0, axis_index},
      {"empty", 0,
       [](Equation& e) { return Values{zeros(e.params.at("shape").shape(), e.params.at("dtype").dtype(), e.loc)}; }},
      {"iota", 0, iota_of},
      {"iota_2x32_shape", 0, iota_2x32_of},
      {"num_programs", 0, [](Equation& e) { return Values{num_programs(grid_axis(e), e.loc)}; }},
      {"platform_index", 0, platform_index},
      {"program_id", 0, program_id_of},
      {"threefry2x32", 4, threefry},

      // shapes
      {"broadcast_in_dim", 1, broadcast_in_dim},
      {"broadcast_to", 1, [](Equation& e) { return Values{broadcast_to(e.x(0), e.params.at("shape").shape())}; }},
      {"concatenate", -1,
       [](Equation& e) { return Values{concatenate(e.operands(), e.params.at("dimension").integer())}; }},
      {"einshape_lo", 1, einshape_of},
      {"pad", 2, pad_of},
      {"reshape", 1, [](Equation& e) { return Values{reshape(e.x(0), e.params.at("new_sizes").shape())}; }},
      {"rev", 1, [](Equation& e) { return Values{rev(e.x(0), e.params.at("dimensions").integers())}; }},
      {"roll", 2, roll_of},
      {"slice", 1, slice_of},
      {"sort", -1, sort_of},
      {"split", 1, split_of},
      {"squeeze", 1, [](Equation& e) { return Values{squeeze(e.x(0), e.params.at("dimensions").integers())}; }},
      {"stack", -1, [](Equation& e) { return Values{stack(e.operands(), e.params.at("axis").integer())}; }},
      {"tile", 1, [](Equation& e) { return Values{tile(e.x(0), e.params.at("reps").integers(0, INT32_MAX))}; }},
      {"transpose", 1, [](Equation& e) { return Values{transpose(e.x(0), e.params.at("permutation").integers())}; }},
      {"unstack", 1, unstack},

      // products, reductions, scans
      {"argmax", 1, position<argmax>},
      {"argmin", 1, position<argmin>},
      {"cumlogsumexp", 1, running<cumlogsumexp>},
      {"cummax", 1, running<cummax>},
      {"cummin", 1, running<cummin>},
      {"cumprod", 1, running<cumprod>},
      {"cumsum", 1, running<cumsum>},
      {"dot_general", 2, dot_general},
      {"reduce_and", 1, reduction<reduce_and>},
      {"reduce_max", 1, reduction<tessera::max>},
      {"reduce_min", 1, reduction<tessera::min>},
      {"reduce_or", 1, reduction<reduce_or>},
      {"reduce_prod", 1, reduction<prod>},
      {"reduce_sum", 1, reduction<sum>},

      // what says something about a value, or about when it is computed
      {"add_dependency", 1, nothing},
      {"copy", 1, same},
      {"debug_barrier", 0, nothing},
      {"delay", 1, nothing},
      {"device_put", -1, same},
      {"layout_cast", 1, same},
      {"layout_constraint", 1, same},
      {"max_contiguous", 1, same},
      {"multiple_of", 1, same},
      {"name", 1, same},
      {"optimization_barrier", -1, same},
      {"reshard", 1, same},
      {"sharding_constraint", 1, same},
      {"stop_gradient", 1, same},
      {"trace_value", 1, nothing},
      {"with_memory_space_constraint", 1, same},
  };
  return rows;
}

}  // namespace tessera::jax
