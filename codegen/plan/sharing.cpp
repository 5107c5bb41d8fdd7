#include "codegen/plan/sharing.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {

bool has(const std::vector<int>& axes, int a) { return std::find(axes.begin(), axes.end(), a) != axes.end(); }
int64_t ceil_power(int64_t v) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(v, 1))));
}

// Bytes of a row that invocations next to each other read at once, where others read other rows: a sector of a cache.
constexpr int64_t kSector = 32;
constexpr int64_t kLine = 128;
constexpr int kManyLanes = 64;  // of a subgroup, in which a transpose's squares leave none idle

}  // namespace

std::vector<int> drop_none(const std::vector<int>& axes) {
  std::vector<int> r;
  for (int a : axes)
    if (a != kNoAxis) r.push_back(a);
  return r;
}

ir::Value larger_operand(const ir::Kernel& k, const ir::Op& dot) {
  const auto elements = [&](size_t i) { return num_elements(k.type(dot.operands[i]).shape); };
  return dot.operands[elements(0) > elements(1) ? 0 : 1];
}

std::vector<int> Sharing::order_of(const Nest& n) const {
  if (!n.dot) return n.order;
  const std::vector<int> read = drop_none(axes_.of(larger_operand(k_, *n.dot)));
  std::vector<int> order = n.order;
  std::erase_if(order, [&](int a) { return has(read, a); });
  order.insert(order.end(), read.begin(), read.end());
  return order;
}

int Sharing::transposed_axis(ir::Value stored, const std::vector<int>& order) const {
  std::set<uint32_t> seen;
  std::set<int> fastest;
  ir::walk_back(k_, stored, seen, [&](ir::Value v, std::vector<ir::Value>& next) {
    const ir::Op* o = k_.def(v);
    if (o && o->code == ir::Opcode::load && !o->index.empty()) {
      const int32_t last = ir::access_dims(k_, *o).slice.back();
      if (last >= 0 && drop_none(axes_.of(v)).size() > 1) fastest.insert(axes_.of(v, static_cast<size_t>(last)));
    }
    if (!o || !ir::is_index_function(o->code)) return true;
    next.insert(next.end(), o->operands.begin(), o->operands.end());
    return true;
  });
  if (fastest.size() != 1 || *fastest.begin() == order.back()) return kNoAxis;
  return has(order, *fastest.begin()) ? *fastest.begin() : kNoAxis;
}

int64_t Sharing::vector_of(int a) const {
  int64_t v = std::max(s_.widths[static_cast<size_t>(a)], s_.tapped[static_cast<size_t>(a)] ? 4 : 1);
  while (v > 1 && axis(a).extent % v != 0) v /= 2;
  return v;
}

bool Sharing::only_tapped(int a) const {
  return s_.tapped[static_cast<size_t>(a)] && s_.widths[static_cast<size_t>(a)] == 1;
}

int64_t Sharing::vector_of_columns(const Nest& n, int a) const {
  int64_t v = vector_of(a), all = results(n), rows = 1;
  for (int r : n.reduced) {
    all *= plan(r).invocations;
    rows *= cdiv(axis(r).extent, int64_t{plan(r).invocations});
  }
  if (read_again(n))  // rows stay in registers if one column's do
    while (v > 1 && rows <= kInRegisters && rows * v > kInRegisters) v /= 2;
  const auto too_few = [&] {
    if (n.reduced.empty()) return all < v * busy();
    const int64_t read = v * plan(a).invocations;  // as columns_of() has it: not less than a sector
    return results(n) < read * units() && read * n.bytes > kSector;
  };
  while (v > 1 && (v * plan(a).invocations > axis(a).extent || (v * n.bytes > 4 && too_few()))) v /= 2;
  return v;
}

int64_t Sharing::units() const { return std::max(target_.compute_units, 16); }

// Invocations that hide each other's waits, on all of the device.
int64_t Sharing::busy() const { return 2048 * units(); }

int64_t Sharing::results(const Nest& n) const {
  double r = 1;
  for (int g : s_.parallel) r *= static_cast<double>(k_.grid[static_cast<size_t>(g)].size.value().value_or(64));
  for (int a : n.kept) r *= static_cast<double>(std::max<int64_t>(axis(a).extent, 1));
  return static_cast<int64_t>(std::min(r, 1e12));
}

// Whether what it drops an axis of is wanted again, or is a running sum: then rows in registers save a pass.
bool Sharing::read_again(const Nest& n) const {
  return std::any_of(n.reduced.begin(), n.reduced.end(), [&](int a) {
    return axis(a).scanned || std::count_if(nests_.begin(), nests_.end(), [&](const Nest& other) {
                                return has(other.order, a) || has(other.reduced, a);
                              }) > 1;
  });
}

int64_t Sharing::group_for_rows(const Nest& n, int64_t usual, int64_t limit) const {
  if (n.dot || n.reduced.empty() || n.order.empty() || n.order.back() != n.reduced.back() || !read_again(n))
    return usual;
  const int64_t size = axis(n.reduced.back()).extent;
  int64_t group = usual;
  while (group < limit && group * kInRegisters < size) group *= 2;
  return group * kInRegisters < size ? usual : group;
}

// A row to a subgroup if a lane can hold its part; longer ones to all. More invocations where there are few rows.
int64_t Sharing::of_a_row(const Nest& n, int fastest, int64_t rows, int64_t group) const {
  const int64_t lanes = s_.shuffles ? s_.subgroup : 32, size = axis(fastest).extent, vec = vector_of(fastest);
  int64_t mine = std::min({ceil_power(cdiv(size, vec)), lanes, group});
  // Of a wide subgroup, no more lanes than have something to do between the steps of a sum.
  while (mine > 64 && cdiv(size, mine / 2) <= kInRegisters / 4 && results(n) * mine >= 2 * busy()) mine /= 2;
  if (cdiv(size, mine) > kInRegisters) mine = std::min(ceil_power(cdiv(size, int64_t{8})), group);
  while (2 * mine <= group && 8 * results(n) * mine < busy() && cdiv(size, mine) > vec) mine *= 2;
  while (2 * mine <= group && mine * rows < group && mine < size) mine *= 2;
  return mine;
}

// Columns to lanes, a vector to each. Where that leaves too few invocations, only as many as read a line of a cache;
// where it leaves compute units idle, a sector.
int64_t Sharing::columns_of(const Nest& n, int fastest, int64_t group) const {
  const int64_t lanes = s_.shuffles ? s_.subgroup : 32, vec = vector_of(fastest);
  int64_t columns = std::min({ceil_power(axis(fastest).extent), lanes, group});
  if (vec == 1 || !axis(fastest).splittable) return columns;
  const auto bytes = [&] { return columns * vec * n.bytes; };
  while (columns > 1 && results(n) * (group / columns) < vec * busy() && bytes() > kLine) columns /= 2;
  while (columns > 1 && results(n) < columns * vec * units() && bytes() > kSector) columns /= 2;
  return columns;
}

// Invocations that columns do not use take some of the rows each.
int64_t Sharing::of_a_column(const Nest& n, int64_t size, int64_t columns, int64_t rows, int64_t vec,
                             int64_t group) const {
  const int64_t most = std::max<int64_t>(group / columns, 1);
  int64_t mine = 1;
  const auto idle = [&] { return mine * rows < group && size > mine; };
  while (2 * mine <= most && (idle() || (results(n) * mine < vec * busy() && size > 4 * mine))) mine *= 2;
  if (read_again(n)) {
    const int64_t narrow = std::max<int64_t>(std::min(columns, kSector / std::max<int64_t>(n.bytes, 1)), 1);
    int64_t more = mine;
    while (2 * more * narrow <= group && cdiv(size, more) > kInRegisters) more *= 2;
    if (cdiv(size, more) <= kInRegisters) mine = more;
  }
  return mine;
}

// A subgroup stores lines of one array and reads at least sectors of the other.
std::pair<int64_t, int64_t> Sharing::square(const Nest& n, int64_t group) const {
  const int64_t lanes = s_.shuffles ? s_.subgroup : 32, vec = vector_of(n.order.back()),
                other = vector_of(n.transposed);
  const auto most = [&](int a, int64_t v) { return ceil_power(cdiv(axis(a).extent, v)); };
  const int64_t sector = std::max<int64_t>(kSector / (n.bytes * other), 1);
  int64_t across = std::clamp<int64_t>(kLine / (n.bytes * vec), 1, std::max<int64_t>(lanes / sector, 1));
  across = std::min({across, most(n.order.back(), vec), group});
  return {across, std::min(group / across, most(n.transposed, other))};
}

std::optional<std::pair<AxisPlan, AxisPlan>> Sharing::of_pairs(const Pairs& p) const {
  constexpr int kEach = 2;
  const int64_t all = axis(p.kept).extent;
  if (!open(p.kept) || !open(p.dropped) || all % kEach != 0 || all / kEach < s_.subgroup || s_.group <= s_.subgroup)
    return std::nullopt;
  AxisPlan kept = plan(p.kept), dropped = plan(p.dropped);
  kept.laid_out = dropped.laid_out = true;
  kept.reg = kEach;
  kept.vec = static_cast<int>(std::min<int64_t>(kEach, vector_of(p.kept)));
  kept.invocations = dropped.invocation_stride = s_.subgroup;
  dropped.invocations = s_.group / s_.subgroup;
  return std::pair{kept, dropped};
}

// Without shuffles, joining the parts of a product through shared memory takes longer than a few more terms.
int64_t Sharing::worth_joining(const Nest& n, int64_t size, int64_t mine) const {
  while (n.dot && !s_.shuffles && mine > 1 && size < kTermsOfAPart * mine) mine /= 2;
  return mine;
}

Sharing::Wanted Sharing::wanted(const Nest& n, const std::vector<int>& order) const {
  Wanted wanted;
  if (order.empty()) return wanted;
  std::vector<int> dropped, kept;
  int used = 0;
  for (int a : order) {
    if (open(a)) (has(n.reduced, a) ? dropped : kept).push_back(a);
    if (plan(a).laid_out) used |= (plan(a).invocations - 1) * plan(a).invocation_stride;
  }
  const int64_t group = std::max(s_.group >> std::popcount(static_cast<unsigned>(used)), 1);
  const int fastest = order.back();
  if (open(n.transposed) && open(fastest)) {
    auto [across, down] = square(n, group);
    // Of subgroups of 128 each lane has a part of a square, where there are too few: else half of them would be idle,
    // and a nest that leaves lanes idle is dealt out element by element. Vectors stay of 8 bytes.
    const int64_t rows = axis(n.transposed).extent;
    while (s_.subgroup > kManyLanes && across * down < group && rows % (2 * down) == 0 &&
           rows / (2 * down) * n.bytes >= 8)
      down *= 2;
    wanted[fastest] = across;
    wanted[n.transposed] = down;
    return wanted;
  }
  if (dropped.empty()) {
    if (!open(fastest)) return wanted;
    // What streams through: a vector to each invocation, if that leaves enough of them. A thread's are as many anyway.
    // What overlapping windows share is in one invocation's registers.
    const int64_t vec = vector_of(fastest), fewest = vec * busy();
    const bool streams = !placed_.count(fastest) && (k_.has_threads() || results(n) >= fewest),
               shared = s_.tapped[static_cast<size_t>(fastest)] && 4 * results(n) >= fewest;
    if (streams || shared) wanted[fastest] = cdiv(axis(fastest).extent, vec);
    return wanted;
  }
  int64_t rows = 1;
  for (int a : kept) rows = std::min(rows * ceil_power(axis(a).extent), group);
  if (open(fastest) && has(n.reduced, fastest)) {
    int64_t mine = wanted[fastest] = worth_joining(n, axis(fastest).extent, of_a_row(n, fastest, rows, group));
    for (int a : dropped) {
      if (a == fastest) continue;
      wanted[a] = std::clamp<int64_t>(group / (mine * rows), 1, axis(a).extent);
      mine *= ceil_power(wanted[a]);
    }
    return wanted;
  }
  int64_t size = 1;
  for (int a : dropped) size *= axis(a).extent;
  const int64_t lanes = s_.shuffles ? s_.subgroup : 32;
  const bool across = has(kept, fastest);
  const int64_t columns = across ? columns_of(n, fastest, group) : std::min({kept.empty() ? 1 : rows, lanes, group});
  const int64_t vec = across && axis(fastest).splittable ? vector_of(fastest) : 1;
  const int64_t mine = worth_joining(n, size, of_a_column(n, size, columns, rows, vec, group));
  int64_t rest = mine;
  for (auto it = dropped.rbegin(); it != dropped.rend(); ++it) {
    wanted[*it] = std::min(rest, ceil_power(axis(*it).extent));
    rest /= wanted[*it];
  }
  if (across) wanted[fastest] = std::min(group / mine, ceil_power(axis(fastest).extent));
  return wanted;
}

}  // namespace tessera::lowering
