// The primitives that read and write elements of values at computed positions. XLA's gather and scatter take windows:
// which dims of the operand a window keeps, where it starts and what becomes of one that does not fit is said by lists
// of dims. Here they become one index array per dim that is not taken whole.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "engine/jax/primitives.h"

namespace tessera::jax {
namespace {
Value as_value(const Operand& o) { return *o.value(); }

std::vector<Operand> operands_from(Equation& e, size_t first) {
  std::vector<Operand> all = e.operands();
  if (all.size() < first)
    e.fail("has " + std::to_string(all.size()) + " operands but takes at least " + std::to_string(first));
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first));
  return all;
}
/// The starts of a window: JAX has wrapped negative ones before, what is still negative is clamped.
std::vector<Operand> starts(Equation& e, size_t first) {
  std::vector<Operand> all = operands_from(e, first);
  for (Operand& o : all)
    if (is_signed_int(as_value(o).dtype())) o = Operand(maximum(o, Operand(int64_t{0}, e.loc)), e.loc);
  return all;
}

bool has(const std::vector<int64_t>& list, size_t d) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(d)) != list.end();
}

/// XLA's dimension numbers of a gather or scatter.
struct DimensionNumbers {
  std::vector<int64_t> window_dims;  // of the result or the updates, that come from the window
  std::vector<int64_t> dropped;      // of the operand: the window's dims of size 1 that the result does not have
  std::vector<int64_t> map;          // of the operand, that the indices' elements are positions along
  std::vector<int64_t> operand_batch, start_batch;  // of the operand and of the indices, that belong together
};

/// How a gather or scatter of XLA looks at its operand.
struct Windows {
  std::vector<int64_t> axes = {};     // dims of the operand with an index array
  std::vector<Operand> indices = {};  // over the batch dims, then the dims of the window that it takes in part
  // of batch dims: whether the whole window does; none where it is moved until it does
  std::optional<Value> fits = {};
  Shape batch = {}, part = {};
  std::vector<int64_t> order = {};  // the dims of x[indices]: which dim of the result (or the updates) each is

  /// `sizes` are the window's.
  Windows(Equation& e, const Shape& operand, const Value& start, const Shape& sizes, const DimensionNumbers& n) {
    const auto& [window_dims, dropped, map, operand_batch, start_batch] = n;
    const Shape& s = start.shape();
    if (s.empty() || s.back() != static_cast<int64_t>(map.size()) || sizes.size() != operand.size() ||
        operand_batch.size() != start_batch.size())
      e.fail("indices of shape " + to_string(s) + " for dims " + to_string(map) + " and windows of shape " +
             to_string(sizes) + " do not fit an operand of shape " + to_string(operand));
    batch = Shape(s.begin(), s.end() - 1);
    const std::string mode = e.params.find("mode") ? e.params.at("mode").string() : "fill_or_drop";
    std::vector<size_t> kept, partial;  // dims of the operand
    for (size_t d = 0; d < operand.size(); ++d) {
      if (sizes[d] < 0 || sizes[d] > operand[d])
        e.fail("a window of shape " + to_string(sizes) + " does not fit an operand of shape " + to_string(operand));
      if (has(dropped, d) || has(operand_batch, d)) continue;
      kept.push_back(d);
      if (sizes[d] != operand[d]) partial.push_back(d), part.push_back(sizes[d]);
    }
    if (kept.size() != window_dims.size())
      e.fail("windows have " + std::to_string(kept.size()) + " dims but the result has " +
             std::to_string(window_dims.size()) + " of them");
    const size_t dims = batch.size() + partial.size();
    Shape common = batch;
    common.insert(common.end(), part.begin(), part.end());
    const auto spread = [&](const Value& v, size_t rank) {  // ones behind
      Shape wide = v.shape();
      wide.insert(wide.end(), rank - wide.size(), 1);
      return reshape(Operand(v, e.loc), wide);
    };
    for (size_t d = 0; d < operand.size(); ++d) {
      const auto at = std::find(map.begin(), map.end(), static_cast<int64_t>(d));
      const auto shared = std::find(operand_batch.begin(), operand_batch.end(), static_cast<int64_t>(d));
      const bool indexed = at != map.end() || shared != operand_batch.end();  // else a window starts at 0
      if (!indexed && sizes[d] == operand[d] && !has(dropped, d)) continue;
      Value position = zeros({}, DType::i32, e.loc);
      if (shared != operand_batch.end()) {
        const auto dim = start_batch[static_cast<size_t>(shared - operand_batch.begin())];
        if (dim < 0 || dim >= static_cast<int64_t>(batch.size()))
          e.fail("there is no batch dim " + std::to_string(dim));
        position = iota(DType::i32, batch, dim, e.loc);
      } else if (at != map.end()) {
        const int64_t most = operand[d] - sizes[d];
        Shape low(s.size(), 0), high = s;
        low.back() = at - map.begin();
        high.back() = low.back() + 1;
        Value one = reshape(Operand(slice(Operand(start, e.loc), low, high), e.loc), batch);
        if (bits(one.dtype()) < 32) one = cast(Operand(one, e.loc), DType::i32);
        const Operand o(one, e.loc);
        if (mode == "fill_or_drop") {
          Value inside = o <= Operand(most, e.loc);
          if (!is_unsigned_int(one.dtype()))
            inside = Operand((o >= Operand(int64_t{0}, e.loc)), e.loc) & Operand(inside, e.loc);
          fits = fits ? Operand(*fits, e.loc) & Operand(inside, e.loc) : inside;
        }
        if (most == 0 && has(kept_dims(kept), d)) continue;  // a window that takes the dim whole can only start at 0
        position = cast(Operand(clamp(Operand(int64_t{0}, e.loc), o, Operand(most, e.loc)), e.loc), DType::i32);
      }
      position = spread(position, dims);
      if (const auto p = std::find(partial.begin(), partial.end(), d); p != partial.end()) {
        Shape along(dims, 1);
        const size_t dim = batch.size() + static_cast<size_t>(p - partial.begin());
        along[dim] = sizes[d];
        position = Operand(position, e.loc) + Operand(iota(DType::i32, along, static_cast<int64_t>(dim), e.loc), e.loc);
      }
      indices.emplace_back(broadcast_to(Operand(position, e.loc), common), e.loc);
      axes.push_back(static_cast<int64_t>(d));
    }
    place(kept, partial, window_dims, operand.size());
  }

 private:
  static std::vector<int64_t> kept_dims(const std::vector<size_t>& kept) { return {kept.begin(), kept.end()}; }

  /// What ts::gather makes: the dims before the first axis, the arrays' dims, the rest, where the axes are neighbours;
  /// else the arrays' come first.
  void place(const std::vector<size_t>& kept, const std::vector<size_t>& partial,
             const std::vector<int64_t>& window_dims, size_t rank) {
    std::vector<int64_t> of_batch;  // the result's dims that are none of the window's
    for (size_t d = 0; d < batch.size() + window_dims.size(); ++d)
      if (!has(window_dims, d)) of_batch.push_back(static_cast<int64_t>(d));
    const auto of_dim = [&](size_t d) {
      return window_dims[static_cast<size_t>(std::find(kept.begin(), kept.end(), d) - kept.begin())];
    };
    const bool neighbours = axes.empty() || axes.back() - axes.front() + 1 == static_cast<int64_t>(axes.size());
    const auto arrays = [&] {
      order.insert(order.end(), of_batch.begin(), of_batch.end());
      for (const size_t d : partial) order.push_back(of_dim(d));
    };
    if (!neighbours) arrays();
    for (size_t d = 0; d < rank; ++d) {
      if (!has(axes, d)) order.push_back(of_dim(d));
      else if (neighbours && static_cast<int64_t>(d) == axes.front()) arrays();
    }
    if (axes.empty()) order.insert(order.begin(), of_batch.begin(), of_batch.end());
  }
};

std::vector<int64_t> inverse(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> out(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) out[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return out;
}
bool is_identity(const std::vector<int64_t>& p) { return std::is_sorted(p.begin(), p.end()); }

/// What is read where a window does not fit: NaN, the least signed or greatest unsigned integer, true, or what the call
/// says.
Value filler(Equation& e, DType t) {
  if (const auto given = e.params.find("fill_value")) {
    if (given->is_boolean()) return cast(Operand(int64_t{given->boolean()}, e.loc), t);
    if (!given->is_string()) return constant(t, given->bits() & (~uint64_t{0} >> (64 - bits(t))), {}, e.loc);
    const std::string s = given->string();  // a float, as Python writes it
    char* end = nullptr;
    const double v = std::strtod(s.c_str(), &end);
    if (s.empty() || *end != 0) given->fail("is no number");
    return cast(Operand(v, e.loc), t);
  }
  if (is_float(t)) return cast(Operand(std::numeric_limits<double>::quiet_NaN(), e.loc), t);
  if (t == DType::boolean) return constant(t, 1, {}, e.loc);
  const uint64_t ones = bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1;
  return constant(t, is_signed_int(t) ? ones ^ (ones >> 1) : ones, {}, e.loc);
}

Values gather_of(Equation& e) {
  const Node n = e.params.at("dimension_numbers");
  const auto list = [&](const char* key) { return n.at(key).integers(0, INT32_MAX); };
  const Value x = e.value(0);
  const DimensionNumbers dims{list("offset_dims"), list("collapsed_slice_dims"), list("start_index_map"),
                              list("operand_batching_dims"), list("start_indices_batching_dims")};
  const std::vector<int64_t>& window_dims = dims.window_dims;
  const Windows w(e, x.shape(), e.value(1), e.params.at("slice_sizes").shape(), dims);
  const TypeForm out = e.out(0);
  if (out.shape.size() != w.batch.size() + window_dims.size())
    e.fail("the result is " + to_string(out) + " but has dims " + to_string(window_dims) + " and " +
           to_string(w.batch));
  if (num_elements(x.shape()) == 0) return {broadcast_to(Operand(filler(e, x.dtype()), e.loc), out.shape)};
  Value r = x;
  if (!w.axes.empty()) r = gather(e.x(0), w.indices, w.axes);
  else if (!w.batch.empty()) {  // every window is the whole operand
    Shape wide = w.batch;
    wide.insert(wide.end(), x.shape().begin(), x.shape().end());
    r = broadcast_to(e.x(0), wide);
  }
  if (!is_identity(w.order)) r = transpose(Operand(r, e.loc), inverse(w.order));
  if (!w.fits) return {r};
  std::vector<int64_t> batch_dims;
  for (size_t d = 0; d < out.shape.size(); ++d)
    if (!has(window_dims, d)) batch_dims.push_back(static_cast<int64_t>(d));
  Shape wide(out.shape.size(), 1);
  for (size_t i = 0; i < batch_dims.size(); ++i) wide[static_cast<size_t>(batch_dims[i])] = w.batch[i];
  const Value fits = broadcast_to(Operand(reshape(Operand(*w.fits, e.loc), wide), e.loc), out.shape);
  return {where(Operand(fits, e.loc), Operand(r, e.loc), Operand(filler(e, r.dtype()), e.loc))};
}

template <Update update>
Values scatter_of(Equation& e) {
  const Node n = e.params.at("dimension_numbers");
  const auto list = [&](const char* key) { return n.at(key).integers(0, INT32_MAX); };
  const Value x = e.value(0), updates = e.value(2);
  const DimensionNumbers dims{list("update_window_dims"), list("inserted_window_dims"),
                              list("scatter_dims_to_operand_dims"), list("operand_batching_dims"),
                              list("scatter_indices_batching_dims")};
  const std::vector<int64_t>& window_dims = dims.window_dims;
  Shape sizes;
  for (size_t d = 0, k = 0; d < x.shape().size(); ++d) {
    if (has(dims.dropped, d) || has(dims.operand_batch, d)) {
      sizes.push_back(x.shape()[d] == 0 ? 0 : 1);
      continue;
    }
    if (k >= window_dims.size() || window_dims[k] >= static_cast<int64_t>(updates.shape().size()))
      e.fail("updates of shape " + to_string(updates.shape()) + " with windows in dims " + to_string(window_dims) +
             " do not fit an operand of shape " + to_string(x.shape()));
    sizes.push_back(updates.shape()[static_cast<size_t>(window_dims[k++])]);
  }
  if (num_elements(x.shape()) == 0 || num_elements(updates.shape()) == 0) return {x};
  Windows w(e, x.shape(), e.value(1), sizes, dims);
  if (w.order.size() != updates.shape().size())
    e.fail("updates have shape " + to_string(updates.shape()) + " but dims " + to_string(w.order) + " are expected");
  Operand given = e.x(2);
  if (!is_identity(w.order)) given = Operand(transpose(given, w.order), e.loc);
  if (w.axes.empty()) {  // the windows are all of the operand: they meet in one place, under a dim of its own
    Shape wide = x.shape();
    wide.insert(wide.begin(), 1);
    Value at = zeros(w.batch, DType::i32, e.loc);
    if (w.fits) at = where(Operand(*w.fits, e.loc), Operand(at, e.loc), Operand(int64_t{1}, e.loc));
    const Value r = scatter(Operand(reshape(e.x(0), wide), e.loc), {Operand(at, e.loc)}, given, update, {0});
    return {reshape(Operand(r, e.loc), x.shape())};
  }
  if (w.fits) {  // what does not fit is left out: moved to where it is dropped
    Shape wide = w.batch;
    wide.insert(wide.end(), w.part.size(), 1);
    Operand& first = w.indices.front();
    const Shape positions = as_value(first).shape();
    const Value fits = broadcast_to(Operand(reshape(Operand(*w.fits, e.loc), wide), e.loc), positions);
    first = Operand(where(Operand(fits, e.loc), first, Operand(x.shape()[static_cast<size_t>(w.axes.front())], e.loc)),
                    e.loc);
  }
  return {scatter(e.x(0), w.indices, given, update, w.axes)};
}
}  // namespace

const std::vector<Row>& indexed_rows() {
  static const std::vector<Row> rows{
      {"dynamic_slice", -1,
       [](Equation& e) {
         const std::vector<Operand> at = starts(e, 1);
         return Values{dynamic_slice(e.x(0), at, e.params.at("slice_sizes").shape())};
       }},
      {"dynamic_update_slice", -1,
       [](Equation& e) {
         const std::vector<Operand> at = starts(e, 2);
         return Values{dynamic_update_slice(e.x(0), e.x(1), at)};
       }},
      {"gather", 2, gather_of},
      {"scatter", 3, scatter_of<Update::set>},
      {"scatter-add", 3, scatter_of<Update::add>},
      {"scatter-max", 3, scatter_of<Update::max>},
      {"scatter-min", 3, scatter_of<Update::min>},
      {"scatter-mul", 3, scatter_of<Update::multiply>},
  };
  return rows;
}

}  // namespace tessera::jax
