#include "tests/fuzz/claims.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "codegen/plan/indexed.h"
#include "codegen/tile/uniform.h"
#include "engine/ir/text.h"

namespace tessera::fuzz {
using ir::Opcode;
using lowering::Affine;

namespace {
__int128 number(DType t, uint64_t bits) {
  const int n = tessera::bits(t);
  if (t == DType::boolean) return bits & 1;
  if (!is_signed_int(t)) return n == 64 ? __int128{bits} : __int128{bits & ((uint64_t{1} << n) - 1)};
  return static_cast<int64_t>(bits << (64 - n)) >> (64 - n);
}
std::string show(__int128 x) {
  return x > INT64_MAX ? std::to_string(static_cast<uint64_t>(x)) : std::to_string(static_cast<int64_t>(x));
}
/// Operands are seen in their order.
bool given_later(const ir::Op& op, const ir::Index& x, ir::Value v) {
  const auto last = std::find(op.operands.rbegin(), op.operands.rend(), v).base() - op.operands.begin() - 1;
  return static_cast<ptrdiff_t>(*x.operand()) > last;
}
std::string show(const Interval& r) { return "[" + std::to_string(r.lo) + ", " + std::to_string(r.hi) + "]"; }

void compute_ranges(const ir::Kernel& k, ir::RegionId r, passes::Ranges& ranges) {
  for (const ir::OpId id : k.region(r).ops) {
    const ir::Op& o = k.op(id);
    if (o.results.size() == 1 && o.regions.empty()) ranges.set(o.results[0], ranges.compute(o, k.type(o.results[0])));
    if (o.code == Opcode::for_)
      ranges.set(k.region(o.regions[0]).args[0], counter_bounds(*ranges.of(o.operands[0]), *ranges.of(o.operands[1])));
    for (const ir::RegionId inner : o.regions) compute_ranges(k, inner, ranges);
  }
}
}  // namespace

Claims::Claims(const ir::Kernel& k, const DimValues& dims)
    : k_(k), used_(lowering::used_values(k)), ranges_(k), divisors_(k) {
  for (const ir::BlockMapping& b : k.blocks)
    if (!b.is_whole()) compute_ranges(k, b.index_map(), ranges_);
  compute_ranges(k, k.body, ranges_);
  scalars_.emplace(k);
  // Sums of floats are the interpreter's in an order that differs from column to column, so equal columns may have sums
  // that do not.
  const auto in_some_order = [&](const ir::Op& o) {
    if (o.code == Opcode::run_scoped || ir::is_copy(o.code)) return true;  // uniform_dims() does not see their stores
    if (o.results.size() != 1 || !is_float(k.type(o.results[0]).dtype)) return false;
    return o.code == Opcode::dot ||
           ((ir::is_reduce(o.code) || ir::is_scan(o.code)) && ir::combiner(ir::combining_op(o.code))->wide);
  };
  if (std::none_of(k.ops.begin(), k.ops.end(), in_some_order)) uniform_ = lowering::uniform_dims(k);
  for (int i = 0; i < static_cast<int>(k.blocks.size()); ++i) {
    starts_.push_back(lowering::block_starts(k, i, *scalars_));
    shapes_.push_back(bind_shape(k, i, dims));
    const ir::BlockMapping& b = k.blocks[static_cast<size_t>(i)];
    for (size_t d = 0; d < b.array_shape.size() && !b.is_whole(); ++d)
      map_results_[k.terminator(b.index_map()).operands[k.map_result(i, d)].index].push_back({i, d});
  }
}

void Claims::with_parallel(const std::vector<bool>& axes) {
  known_.clear();
  for (lowering::KnownScalar& known : lowering::known_scalars(k_, axes, *scalars_))
    known_[known.v.index].push_back(std::move(known));
}

void Claims::known(const SeenValue& s, __int128 x) {
  const auto it = known_.find(s.value.index);
  if (it == known_.end()) return;
  for (const lowering::KnownScalar& claim : it->second) {
    bool holds_here = true;
    for (size_t a = 0; a < claim.at_first.size(); ++a)
      holds_here = holds_here && (!claim.at_first[a] || s.program[a] == 0);
    const __int128 said = number(k_.type(s.value).dtype, claim.bits);
    if (holds_here && x != said)
      return fail("it is known to be " + show(said) + ", but it is " + show(x) + " where the program ids are " +
                  to_string(Shape(s.program)) + " (" + name_of(s.value) + ")");
  }
}

std::string Claims::name_of(ir::Value v) const {
  const ir::Op* op = k_.def(v);
  return "value " + std::to_string(v.index) + ", " + (op ? "of " + std::string(ir::name(op->code)) : "an argument") +
         ": " + to_string(k_.type(v));
}

bool Claims::within_range(ir::Value v, __int128 x) {
  const Bounds r = ranges_.of(v);
  if (!r || (x >= r->lo && x <= r->hi)) return true;
  fail("its range is " + show(*r) + " but it is " + show(x) + " (" + name_of(v) + ")");
  return false;
}

void Claims::equal_along_dims(const SeenValue& s) {
  const Shape& shape = k_.type(s.value).shape;
  const int64_t n = num_elements(shape), size = size_bytes(k_.type(s.value).dtype);
  int64_t stride = n;
  for (size_t d = 0; d < shape.size() && n > 0; ++d) {
    stride /= shape[d];
    if (!uniform_[s.value.index][d]) continue;
    for (int64_t i = 0; i < n; ++i)
      if (i / stride % shape[d] != 0 &&
          std::memcmp(s.elements + i * size, s.elements + (i - stride) * size, static_cast<size_t>(size)) != 0)
        return fail("it is taken to be the same along dim " + std::to_string(d) + ", but its element " +
                    std::to_string(i) + " is another than the one before along it (" + name_of(s.value) + ")");
  }
}

void Claims::see(const SeenValue& s) {
  if (!used_[s.value.index]) return;  // the interpreter does not compute what a swap finds for nobody
  const ir::Type& t = k_.type(s.value);
  if (!broken_ && !uniform_.empty()) equal_along_dims(s);
  if (broken_ || is_float(t.dtype)) return;
  const Affine& form = scalars_->of(s.value);
  const lowering::Range range = scalars_->range(form);
  __int128 base = 0;
  for (size_t a = 0; a < form.coef.size(); ++a) base += __int128{form.coef[a]} * s.program[a];
  const auto below = [](__int128 x, int64_t lo) { return lo > -lowering::Range::kUnbounded && x < lo; };
  const auto above = [](__int128 x, int64_t hi) { return hi < lowering::Range::kUnbounded && x > hi; };
  const int64_t n = num_elements(t.shape), size = size_bytes(t.dtype);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, s.elements + i * size, static_cast<size_t>(size));
    const __int128 x = number(t.dtype, bits);
    if (!within_range(s.value, x)) return;
    if (t.shape.empty()) known(s, x);
    if (const int64_t by = divisors_.of(s.value); x % by != 0)
      return fail("it is taken for a multiple of " + std::to_string(by) + ", but it is " + show(x) + " (" +
                  name_of(s.value) + ")");
    if (below(x - base, form.rest.lo) || above(x - base, form.rest.hi) || below(x, range.lo) || above(x, range.hi)) {
      std::string text;
      for (size_t a = 0; a < form.coef.size(); ++a)
        if (form.coef[a]) text += std::to_string(form.coef[a]) + " * pid" + std::to_string(a) + " + ";
      return fail("its form is " + text + show(Interval{form.rest.lo, form.rest.hi}) + ", its range " +
                  show(Interval{range.lo, range.hi}) + ", but it is " + show(x) + " where the program ids are " +
                  to_string(Shape(s.program)) + " (" + name_of(s.value) + ")");
    }
  }
  if (n != 1 || !t.shape.empty()) return positions(s);
  const auto it = map_results_.find(s.value.index);
  if (it == map_results_.end() || (s.op && ir::accesses_ref(k_.op(s.op).code) && k_.def(s.value) != &k_.op(s.op)))
    return;
  int32_t index = 0;
  std::memcpy(&index, s.elements, 4);
  for (const MapResult& m : it->second) block(m, index);
}

// The index map gave this block, or element.
void Claims::block(const MapResult& m, int64_t index) {
  const auto i = static_cast<size_t>(m.block);
  const lowering::BlockStart& start = starts_[i][m.dim];
  const ir::BlockDim& dim = k_.blocks[i].block()[m.dim];
  const int64_t extent = shapes_[i][m.dim], last = std::max<int64_t>(*ir::last_index(dim, extent).value(), 0);
  const std::string what = k_.blocks[i].origin + ", dim " + std::to_string(m.dim) + " of " + std::to_string(extent) +
                           " elements, index " + std::to_string(index);
  if (start.in_range && (index < 0 || index > last))
    return fail(what + " needs its clamp to [0, " + std::to_string(last) + "] after all");
  const int64_t wrapped = index < 0 && !dim.is_bounded() ? index + last + (dim.is_element() ? dim.size() : 1) : index;
  const int64_t first = std::clamp<int64_t>(wrapped, 0, last) * dim.unit() - dim.low();
  if (start.nothing_below && !dim.halo() && first < 0) return fail(what + " begins before the array after all");
  if (start.interior && !dim.is_bounded() && !dim.halo() && (first < 0 || first + dim.size() > extent))
    return fail(what + " does not lie inside the array after all");
}

// Index arrays that go into a store in no order hold no position twice.
void Claims::positions(const SeenValue& s) {
  if (!s.op) return;
  const ir::Op& op = k_.op(s.op);
  if (!ir::writes_ref(op.code) || k_.def(s.value) == &op || op.attr_or(ir::Attr::unordered, 0)) return;
  const bool is_index = std::any_of(op.index.begin(), op.index.end(),
                                    [&](const ir::Index& x) { return x.is_array() && op.operand_of(x) == s.value; });
  if (!is_index || lowering::must_scatter_in_order(k_, op)) return;
  std::vector<int64_t>& mine = given_[s.value.index];
  mine.clear();
  for (int64_t i = 0, n = num_elements(k_.type(s.value).shape); i < n; ++i) {
    int32_t x = 0;
    std::memcpy(&x, s.elements + 4 * i, 4);
    mine.push_back(x);
  }
  for (const ir::Index& x : op.index)
    if (x.is_array() && op.operand_of(x) != s.value && given_later(op, x, s.value)) return;
  std::set<std::vector<int64_t>> seen;
  for (size_t e = 0; e < mine.size(); ++e) {
    std::vector<int64_t> at;
    bool inside = true;
    for (size_t d = 0; d < op.index.size(); ++d) {
      if (!op.index[d].is_array()) continue;
      const auto it = given_.find(op.operand_of(op.index[d]).index);
      if (it == given_.end() || it->second.size() != mine.size())
        return fail("index arrays of different sizes in a " + std::string(ir::name(op.code)));
      const int64_t n = k_.type(op.operands[0]).shape[d], x = it->second[e], wrapped = x < 0 ? x + n : x;
      inside = inside && wrapped >= 0 && wrapped < n;
      at.push_back(wrapped);
    }
    if (inside && !seen.insert(at).second)
      return fail("index arrays of a " + std::string(ir::name(op.code)) +
                  " are taken to hold no position twice, but element " + std::to_string(e) + " is another one's (" +
                  name_of(s.value) + ")");
  }
}

std::vector<Bounds> lane_ranges(const ir::Kernel& k) {
  passes::Ranges ranges(k);
  compute_ranges(k, k.body, ranges);
  std::vector<Bounds> all;
  for (uint32_t v = 0; v < k.values.size(); ++v) all.push_back(ranges.of({v}));
  return all;
}

}  // namespace tessera::fuzz
