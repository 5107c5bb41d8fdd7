#include "codegen/plan/schedule.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <tuple>

#include "codegen/plan/call_remarks.h"
#include "codegen/plan/indexed.h"
#include "codegen/plan/matrices.h"
#include "codegen/plan/program_memory.h"
#include "codegen/plan/residency.h"
#include "codegen/plan/sharing.h"
#include "codegen/plan/vector_width.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
namespace {
using ir::Attr;
using ir::Opcode;
using ir::Value;

constexpr int kLargestGroup = 1024;
constexpr int64_t kMostTerms = 4096;  // of a product, in an invocation's code
bool is_reduction(Opcode c) { return ir::is_reduce(c) || ir::is_argreduce(c); }

class Scheduler {
 public:
  Scheduler(const ScheduleInput& in, const std::vector<Kept>& kept)
      : k_(in.k),
        axes_(in.axes),
        resident_(in.resident),
        parallel_(in.parallel),
        scalars_(in.scalars),
        target_(in.target),
        smaller_(cpu() ? std::max(in.smaller - 2, 0) : in.smaller),
        used_(used_values(k_)) {
    s_.kept = kept;
    s_.general = in.general;
    s_.carried = in.carried;
    s_.rolled = cpu() && in.smaller > 0;
  }

  Schedule run() {
    s_.plans.resize(axes_.size());
    for (size_t a = 0; a < axes_.size(); ++a) s_.plans[a].tile = axes_.axes[a].extent;
    for (size_t a = 0; a < k_.grid.size(); ++a)
      (parallel_.is_parallel(a) ? s_.parallel : s_.sequential).push_back(static_cast<int>(a));
    s_.scope = scopes(k_, s_.sequential);
    find_accesses();
    s_.subgroup = static_cast<int>(std::bit_floor(static_cast<unsigned>(target_.subgroup_size)));
    if (s_.general) {
      s_.workgroup = s_.group =
          std::min(k_.has_threads() ? kThreadSize : std::max(s_.subgroup, 64),
                   static_cast<int>(std::bit_floor(static_cast<unsigned>(target_.max_workgroup_size))));
    } else {
      s_.max_registers = cpu() ? 320 : 128;
      collect_nests();
      find_splittable();
      if (!try_packed()) {
        choose_group();
        lay_out();
        choose_tiles();
      }
    }
    residencies();
    return s_;
  }

 private:
  bool cpu() const { return target_.kind == Target::Kind::cpu; }

  void residencies() {
    const size_t args = k_.region(k_.body).args.size();
    s_.residency.assign(args, Residency::memory);
    for (size_t i = 0; i < args; ++i) {
      const bool scratch = i >= k_.blocks.size();
      if (!scratch && !written_[i]) continue;  // what is only read has nothing to write back
      if (resident_[i] && !s_.general) {
        std::vector<int> dims;
        for (size_t d = 0; d < k_.type(k_.region(k_.body).args[i]).shape.size(); ++d)
          dims.push_back(axes_.of_ref(static_cast<int>(i), d));
        if (s_.enumerable(axes_, dims)) {
          s_.residency[i] = Residency::registers;
          continue;
        }
      }
      if (scratch) {
        s_.residency[i] = Residency::arena;
        continue;
      }
      if (wants_room(i) || needs_copy(k_, static_cast<int>(i))) s_.residency[i] = Residency::arena;
    }
  }

  void find_accesses() {
    read_.assign(k_.region(k_.body).args.size(), false);
    written_ = stored_memory(k_);
    ir::each_op(k_, k_.body, [&](ir::OpId id) {
      const ir::Op& op = k_.op(id);
      if (!ir::accesses_ref(op.code)) return;
      const auto ref = static_cast<size_t>(ref_position(k_, op.operands[0]));
      if (ir::reads_ref(op.code) && !(ref < k_.blocks.size() && parallel_.commuting[ref])) read_[ref] = true;
    });
  }

  // What a program stores beyond the array's edge it must read back: registers or a private tile have room for it.
  bool wants_room(size_t i) {
    if (i >= k_.blocks.size() || k_.aliased_output(static_cast<int>(i)) >= 0 || !read_[i] || !written_[i] ||
        k_.blocks[i].is_whole() || k_.shares_at_once(k_.blocks[i].alias))
      return false;
    for (const BlockStart& b : block_starts(k_, static_cast<int>(i), scalars_))
      if (!b.interior) return true;
    return false;
  }

  // A nest reads the elements of `of`; of a dot's operands that is the larger one.
  void add_nest(std::vector<int> kept, std::vector<int> reduced, std::vector<int> order, Value of,
                const ir::Op* dot = nullptr) {
    Nest n{std::move(kept), std::move(reduced), std::move(order), dot, size_bytes(k_.type(of).dtype), 1};
    for (int a : n.order)
      if (a != kNoAxis) n.work *= static_cast<double>(axes_.axes[static_cast<size_t>(a)].extent);
    if (dot)
      for (int a : n.reduced)
        if (a != kNoAxis) n.work *= static_cast<double>(axes_.axes[static_cast<size_t>(a)].extent);
    nests_.push_back(std::move(n));
  }

  void place(Value v) {
    if (k_.type(v).shape.empty()) return;
    placed_.push_back(drop_none(axes_.of(v)));
    for (int a : placed_.back()) placed_axis_.insert(a);
  }

  /// A load of what the program itself stores.
  bool loads_changing(const ir::Op& op) const {
    if (op.code != Opcode::load) return false;
    const auto from = static_cast<size_t>(ref_position(k_, op.operands[0]));
    return written_[from] || from >= k_.blocks.size();
  }

  void collect_nests() {
    ir::each_op(k_, k_.body, [&](ir::OpId id) {
      const ir::Op& op = k_.op(id);
      if (ir::writes_ref(op.code)) {
        const std::vector<int> d = drop_none(axes_.of(op.operands[1]));
        add_nest(d, {}, d, op.operands[1]);
        if (!cpu() && !d.empty()) nests_.back().transposed = sharing_.transposed_axis(op.operands[1], d);
        if (op.code == Opcode::swap || (ir::is_atomic(op.code) && used_[op.results[0].index])) place(op.results[0]);
      } else if (is_reduction(op.code)) {
        const std::vector<int> kept = drop_none(axes_.of(op.results[0])), order = drop_none(axes_.of(op.operands[0]));
        std::vector<int> reduced;
        for (int a : order)
          if (std::find(kept.begin(), kept.end(), a) == kept.end()) reduced.push_back(a);
        add_nest(kept, reduced, order, op.operands[0]);
        place(op.results[0]);
      } else if (op.code == Opcode::dot) {
        const std::vector<int> kept = drop_none(axes_.of(op.results[0]));
        std::vector<int> reduced;
        for (int64_t d : ir::dot_dims(k_, op).lhs_contract)
          if (const int a = axes_.of(op.operands[0], static_cast<size_t>(d)); a != kNoAxis) reduced.push_back(a);
        add_nest(kept, reduced, kept, larger_operand(k_, op), &op);
        place(op.results[0]);
      } else if (ir::is_scan(op.code) && !cpu()) {
        const std::vector<int> order = drop_none(axes_.of(op.results[0]));
        const int along = axes_.of(op.results[0], static_cast<size_t>(op.attr(Attr::axis)));
        std::vector<int> lines = order;
        std::erase(lines, along);
        add_nest(lines, along == kNoAxis ? std::vector<int>{} : std::vector{along}, order, op.results[0]);
        place(op.results[0]);
      } else if (ir::is_scan(op.code) || ir::is_rearranged(op.code) || ir::is_loop(op.code) || ir::is_branch(op.code)) {
        for (Value v : op.results) {
          const std::vector<int> d = drop_none(axes_.of(v));
          if (!d.empty()) add_nest(d, {}, d, v);
          place(v);
        }
      } else if (loads_changing(op) || (op.results.size() == 1 && s_.kept[op.results[0].index].yes)) {
        const std::vector<int> d = drop_none(axes_.of(op.results[0]));
        add_nest(d, {}, d, op.results[0]);
        place(op.results[0]);
      }
    });
    const auto& args = k_.region(k_.body).args;
    for (size_t i = 0; i < args.size(); ++i)
      if (resident_[i]) place(args[i]);
    std::stable_sort(nests_.begin(), nests_.end(), [](const Nest& a, const Nest& b) { return a.work > b.work; });
  }

  // Rule: an axis may be split over workgroups if it is never reduced, scanned or gathered along, and every access to
  // memory that the call writes uses it with one and the same index function. Scratch that lacks the axis is replicated
  // by each slice.
  void find_splittable() {
    // What happens to positions outside: nothing is there, the window moves, each takes the nearest, each is dropped
    // (wrapped before or not).
    enum class Outside : uint8_t { none, window, nearest, dropped, masked };
    struct Use {
      bool present = false;
      size_t dim = 0;
      int64_t start = 0;
      Value operand;
      int64_t step = 1;
      Outside outside = Outside::none;
      bool operator==(const Use&) const = default;
    };
    const size_t args = k_.region(k_.body).args.size();
    for (size_t a = 0; a < axes_.size(); ++a) {
      Axis& axis = axes_.axes[a];
      axis.splittable =  // a thread is one workgroup
          !k_.has_threads() && !axis.mixed && !axis.reduced && !axis.contracted && !axis.scanned && axis.stored &&
          axis.extent > 1;
      axis.repeats = false;
      if (!axis.splittable) continue;
      std::vector<std::vector<Use>> uses(args);
      ir::each_op(k_, k_.body, [&](ir::OpId id) {
        const ir::Op& op = k_.op(id);
        if (!ir::accesses_ref(op.code)) return;
        const auto ref = static_cast<size_t>(ref_position(k_, op.operands[0]));
        if (!written_[ref]) return;
        const Value v = op.code == Opcode::load ? op.results[0] : op.operands[1];
        Use use;
        const ir::AccessDims form = ir::access_dims(k_, op);
        for (size_t i = 0; i < form.array_rank; ++i)  // any element of it may be any of the Ref's
          if (axes_.of(v, form.array_at + i) == static_cast<int>(a)) axis.splittable = false;
        for (size_t d = 0; d < op.index.size(); ++d) {
          if (form.slice[d] < 0 || axes_.of(v, static_cast<size_t>(form.slice[d])) != static_cast<int>(a)) continue;
          const ir::Index& ix = op.index[d];
          const ir::Index::Slice& slice = *ix.slice();
          use = {true, d, ix.is_static() ? ix.constant() : 0, op.operand_of(ix), slice.step, Outside::none};
          if (ix.is_static()) continue;
          if (!scalars_.constant_along(use.operand, s_.sequential)) axis.splittable = false;
          const Range r = scalars_.range(use.operand);
          if (r.lo >= 0 && r.hi + std::max<int64_t>(slice.span() - 1, 0) < k_.type(op.operands[0]).shape[d]) continue;
          use.outside = op.has_mask()             ? Outside::masked
                        : !form.per_element       ? Outside::window
                        : ir::writes_ref(op.code) ? Outside::dropped
                                                  : Outside::nearest;
          // what it reads is the nearest
          if (use.outside == Outside::dropped && ir::reads_ref(op.code)) axis.splittable = false;
        }
        uses[static_cast<size_t>(memory_of(k_, static_cast<int>(ref)))].push_back(use);
      });
      for (size_t r = 0; r < args; ++r) {
        if (uses[r].empty()) continue;
        const bool scratch = r >= k_.blocks.size();
        for (const Use& u : uses[r]) {
          if (!(u == uses[r][0])) axis.splittable = false;
          if (!u.present && !scratch) axis.splittable = false;
        }
      }
    }
    split_only_what_pays();
    // A program prints once, and in its order.
    ir::each_op(k_, k_.body, [&](ir::OpId id) {
      if (!ir::is_print(k_.op(id).code)) return;
      for (Axis& axis : axes_.axes) axis.splittable = false;
    });
    // A private tile is loaded and written back whole, so the program stays in one workgroup. So it does where an
    // aliased input is copied, or where its elements are not those of the output; and where one program's block
    // overlaps the next one's, so that elements pass from slice to slice.
    for (size_t r = 0; r < args; ++r) {
      const int o = written_[r] && read_[r] ? k_.aliased_output(static_cast<int>(r)) : -1;
      const bool overlaps =
          r < k_.blocks.size() && written_[r] && !s_.sequential.empty() && may_overlap(k_, static_cast<int>(r));
      if (overlaps || (wants_room(r) && !resident_[r]) ||
          (o >= 0 && (needs_copy(k_, static_cast<int>(r)) || !same_blocks(k_, static_cast<int>(r), o))))
        for (Axis& axis : axes_.axes) axis.splittable = false;
    }
  }

  // Each slice repeats what lacks the axis: attention's scores do not depend on the columns of its values. That pays
  // while compute units are idle.
  void split_only_what_pays() {
    const auto costly = [&](size_t a) {
      double with = 0, without = 0;
      for (const Nest& n : nests_) {
        const bool has = std::count(n.order.begin(), n.order.end(), static_cast<int>(a)) ||
                         std::count(n.reduced.begin(), n.reduced.end(), static_cast<int>(a));
        (has ? with : without) += n.work;
      }
      return 4 * without > with;
    };
    double units = 1;
    for (int g : s_.parallel) units *= static_cast<double>(k_.grid[static_cast<size_t>(g)].size.value().value_or(64));
    for (size_t a = 0; a < axes_.size(); ++a)
      if (axes_.axes[a].splittable && !costly(a))
        units *= static_cast<double>(std::max<int64_t>(axes_.axes[a].extent / 32, 1));
    if (!cpu() && 2 * units < target_.compute_units) return;
    for (size_t a = 0; a < axes_.size(); ++a) {
      Axis& axis = axes_.axes[a];
      axis.repeats = axis.splittable && costly(a);
      axis.splittable = axis.splittable && !axis.repeats;
    }
  }

  AxisPlan& plan(int a) { return s_.plans[static_cast<size_t>(a)]; }
  const Axis& axis(int a) const { return axes_.axes[static_cast<size_t>(a)]; }
  // Tiny programs: one invocation runs a whole program, its values in registers.
  bool try_packed() {
    // each is code of its own, and on CPU drivers a loop: compilers take time that grows with the square
    const int64_t limit = 16, most_accesses = 512;
    for (const Nest& n : nests_)
      if (n.work > static_cast<double>(n.dot ? 4 * limit : limit)) return false;
    int64_t accesses = 0, most = 0;
    ir::each_op(k_, k_.body, [&](ir::OpId id) {
      const ir::Op& op = k_.op(id);
      if (!ir::accesses_ref(op.code)) return;
      const int64_t n = num_elements(k_.type(ir::writes_ref(op.code) ? op.operands[1] : op.results[0]).shape);
      accesses += n;
      most = std::max(most, n);
    });
    if (accesses > most_accesses && most > 1) return false;
    bool ordered = true;  // the one invocation stores every scatter's elements in order
    ir::each_op(k_, k_.body, [&](ir::OpId id) {
      if (!must_scatter_in_order(k_, k_.op(id))) return;
      const ir::AccessDims form = ir::access_dims(k_, k_.op(id));
      for (size_t i = 0; i < form.array_rank && form.array_rank > 1; ++i)
        if (const int a = axes_.of(k_.op(id).operands[1], form.array_at + i); a != kNoAxis && axis(a).mixed)
          ordered = false;
    });
    if (!ordered) return false;
    bool rearranged = false;  // in the arena, which belongs to a workgroup
    ir::each_op(k_, k_.body, [&](ir::OpId id) { rearranged = rearranged || ir::is_rearranged(k_.op(id).code); });
    if (rearranged) return false;
    for (size_t a = 0; a < axes_.size(); ++a)
      if (axes_.axes[a].mixed) {
        for (const auto& dims : placed_)
          if (std::find(dims.begin(), dims.end(), static_cast<int>(a)) != dims.end()) return false;
      }
    // Refs that would need the arena belong to a workgroup, not to an invocation.
    const auto& args = k_.region(k_.body).args;
    for (size_t i = k_.blocks.size(); i < args.size(); ++i)
      if (!resident_[i]) return false;
    for (size_t a = 0; a < axes_.size(); ++a) {
      AxisPlan& p = s_.plans[a];
      p.laid_out = !axes_.axes[a].mixed && p.tile > 0;
      p.reg = p.laid_out ? static_cast<int>(p.tile) : 1;
    }
    for (const auto& dims : placed_)
      if (s_.registers(dims) > 64 >> (cpu() ? smaller_ : 2 * smaller_)) {
        for (AxisPlan& p : s_.plans) {
          p.laid_out = false;
          p.reg = 1;
        }
        return false;
      }
    s_.group = 1;
    s_.workgroup = std::min(cpu() ? 8 * s_.subgroup : 128,
                            static_cast<int>(std::bit_floor(static_cast<unsigned>(target_.max_workgroup_size))));
    residencies();
    for (size_t i = 0; i < args.size(); ++i)
      if (s_.residency[i] == Residency::arena) {
        for (AxisPlan& p : s_.plans) {
          p.laid_out = false;
          p.reg = 1;
        }
        return false;
      }
    s_.remarks.push_back("programs are tiny: each invocation runs a whole one");
    return true;
  }

  void choose_group() {
    const int limit = static_cast<int>(std::bit_floor(static_cast<unsigned>(target_.max_workgroup_size)));
    double work = 1;
    for (const Nest& n : nests_) work = std::max(work, n.work);
    int group = cpu() ? std::max(s_.subgroup, 4) : 256;
    if (!cpu()) {
      while (group > s_.subgroup && group > 32 && work < group * 2.0) group /= 2;
      s_.widths = vector_widths(k_, axes_);
      s_.tapped = tapped_axes(k_, axes_);
      if (!nests_.empty() && nests_[0].transposed != kNoAxis && !placed_axis_.count(nests_[0].transposed) &&
          !placed_axis_.count(nests_[0].order.back())) {
        const auto [across, down] = sharing_.square(nests_[0], group);
        group = std::min(group, static_cast<int>(std::max<int64_t>(across * down, std::max(s_.subgroup, 32))));
      }
      for (const Nest& n : nests_)
        group = std::max(group, static_cast<int>(sharing_.group_for_rows(n, group, std::min(limit, kLargestGroup))));
    }
    s_.group = s_.workgroup = hinted_workgroup(k_, target_).value_or(std::min(group, limit));
    if (k_.has_threads()) s_.group = s_.workgroup = kThreadSize;
    choose_matrix(limit);
    s_.shuffles = target_.subgroup_shuffle && target_.can_require_subgroup_size && s_.subgroup > 1 &&
                  s_.subgroup == target_.subgroup_size && s_.group % s_.subgroup == 0;
  }

  // The rows and columns of a dot's result that have layouts, or nothing.
  std::optional<std::pair<int, int>> wide_axes(const Nest& n) const {
    const ir::DotDims dims = ir::dot_dims(k_, *n.dot);
    const auto free_axes = [&](Value v, const std::vector<int64_t>& free) {
      std::vector<int> r;
      for (int64_t d : free) r.push_back(axes_.of(v, static_cast<size_t>(d)));
      return drop_none(r);
    };
    const std::vector<int> rows = free_axes(n.dot->operands[0], dims.lhs_free);
    const std::vector<int> cols = free_axes(n.dot->operands[1], dims.rhs_free);
    if (rows.empty() || cols.empty() || n.reduced.empty()) return std::nullopt;
    for (int a : n.kept)
      if (axis(a).mixed || axis(a).extent == 0) return std::nullopt;
    const int i = rows.back(), j = cols.back();
    // Shuffled columns go to all lanes; a staged tile is as narrow as half a subgroup of 32.
    const int fewest = cpu() ? s_.subgroup : std::min(s_.subgroup, 32);
    if (i == j || axis(j).extent < fewest || axis(i).extent < 2) return std::nullopt;
    return std::pair{i, j};
  }

  // Matrices, where the device has them for the dtypes of the largest dot, and it fills some.
  void choose_matrix(int limit) {
    const auto largest = std::find_if(nests_.begin(), nests_.end(), [](const Nest& n) { return n.dot; });
    if (cpu() || target_.matrices.empty() || largest == nests_.end()) return;
    const auto ij = wide_axes(*largest);
    MatrixProduct p = matrix_product(k_, *largest->dot);
    if (ij) p.rows = axis(ij->first).extent, p.cols = axis(ij->second).extent, p.depth = 1;
    for (int r : largest->reduced) p.depth *= axis(r).extent;
    std::string why;
    const auto shape = matrices_for(target_, s_.subgroup, p, why);
    if (!shape) return s_.remarks.push_back("dots: not by matrices: " + why);
    int waves = hinted_workgroup(k_, target_) ? s_.group / s_.subgroup : 4;
    while (waves > 1 && (waves * s_.subgroup > limit || int64_t{waves} * shape->m >= 2 * axis(ij->first).extent))
      waves /= 2;
    if (k_.has_threads() && waves * s_.subgroup != kThreadSize)
      return s_.remarks.push_back("dots: not by matrices: a thread's subgroups would find too few rows");
    if (waves < 1) return;  // the caller's hint: less than a subgroup
    s_.matrix = shape;
    s_.group = s_.workgroup = waves * s_.subgroup;
  }

  int used_bits(const std::vector<int>& dims) const {
    int bits = 0;
    for (int a : dims) {
      const AxisPlan& p = s_.plans[static_cast<size_t>(a)];
      if (p.laid_out) bits |= (p.invocations - 1) * p.invocation_stride;
    }
    return bits;
  }

  // Deals invocations to the axes of a nest, the fastest in memory first; axes already laid out keep theirs.
  void deal_invocations(const Nest& n, const std::vector<int>& order, const Sharing::Wanted& wanted) {
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const int a = *it;
      AxisPlan& p = plan(a);
      if (!open(a)) continue;
      int used = used_bits(cpu() ? n.order : order);
      for (const auto& other : placed_)
        if (std::find(other.begin(), other.end(), a) != other.end()) used |= used_bits(other);
      p.laid_out = true;
      const auto w = wanted.find(a);
      const int64_t most = std::min<int64_t>(w == wanted.end() ? axis(a).extent : w->second, s_.group);
      const int want = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(most)));
      int stride = 1;
      while (stride < s_.group && (used & stride)) stride *= 2;
      int count = 1;
      while (stride * count < s_.group && count < want && !(used & (stride * count))) count *= 2;
      p.invocation_stride = stride;
      p.invocations = count;
    }
  }

  bool open(int a) const { return !s_.plans[static_cast<size_t>(a)].laid_out && !axis(a).mixed && axis(a).extent > 0; }
  static bool has(const std::vector<int>& axes, int a) { return std::find(axes.begin(), axes.end(), a) != axes.end(); }

  // Along an axis that products before this nest have, too: all their terms are code, beside what they have already.
  int64_t room_in_products(const Nest& n, int a) const {
    int64_t room = INT64_MAX;
    for (const Nest* m = nests_.data(); m != &n; ++m) {
      const auto ij = m->dot ? wide_axes(*m) : std::nullopt;
      if (!m->dot || (ij && fixed_.count(ij->second))) continue;  // the latter's terms are loops over chunks
      std::set<int> axes(m->order.begin(), m->order.end());
      axes.insert(m->reduced.begin(), m->reduced.end());
      const int64_t most = cpu() ? kMostTerms : kMostTerms / 4;
      if (axes.count(a)) room = std::min(room, std::max<int64_t>(most / s_.registers({axes.begin(), axes.end()}), 1));
    }
    return room;
  }

  // Registers along one axis of a nest that has `regs` per invocation so far, and vectors along the fastest axis.
  void hold(const Nest& n, int a, int64_t regs, bool fastest) {
    AxisPlan& p = plan(a);
    const int64_t budget = cpu() ? std::max(128 >> smaller_, 1)
                                 : kInRegisters << (n.transposed != kNoAxis) << target_.choices.registers >> smaller_;
    const int64_t room = std::min(std::max<int64_t>(budget / std::max<int64_t>(regs, 1), 1), room_in_products(n, a));
    const int64_t need = cdiv(axis(a).extent, int64_t{p.invocations});
    // Of a dropped axis that is the fastest in an array, too: of all pairs of two blocks, say.
    const bool wide = !cpu() && axis(a).reduced && !axis(a).scanned && s_.widths[static_cast<size_t>(a)] > 1;
    const bool neighbours = !cpu() && (fastest || a == n.transposed || wide || s_.tapped[static_cast<size_t>(a)]);
    int64_t vec = neighbours ? sharing_.vector_of(a) : 1;
    // Each stretch of neighbours takes part in the sums across invocations.
    if (!cpu() && axis(a).scanned && fastest) vec = std::max<int64_t>(vec, 4);
    const bool reduced = has(n.reduced, a);
    int64_t reg = 1;
    if (need <= room) reg = need > vec && reduced && cdiv(need, vec) * vec <= room ? cdiv(need, vec) * vec : need;
    else if (reduced || !placed_axis_.count(a)) {  // strips that end where the axis ends need no masks
      const int64_t few = cpu() ? 8 : axis(a).scanned && fastest ? 4 * vec : std::max<int64_t>(vec, 4);
      const int64_t most = reg = std::min(room, few);
      while (reg > most / 2 && axis(a).extent % (reg * p.invocations) != 0) --reg;
      if (reg == most / 2) reg = most;
    } else if (cpu() && n.dot && smaller_ > 0) {  // in the arena: what is read for a result serves its neighbours
      for (reg = 4; reg > 1 && (need % reg != 0 || regs * reg > 2 * budget);) reg /= 2;
    }
    if (axis(a).splittable)
      reg = !placed_axis_.count(a)   ? std::min<int64_t>(reg, cpu() ? 8 : std::max<int64_t>(vec, 4))
              : vec > 1 && room >= vec ? sharing_.vector_of_columns(n, a)
                                     : 1;
    p.reg = static_cast<int>(std::max<int64_t>(reg, 1));
    while (p.reg % vec != 0) vec /= 2;
    // Along columns a running sum goes over one stretch of each invocation, and a filter's taps.
    p.vec = !fastest && (axis(a).scanned || (!cpu() && sharing_.only_tapped(a))) ? p.reg : static_cast<int>(vec);
  }

  void lay_out() {
    for (const Nest& n : nests_)
      if (n.dot) plan_dot(n);
    for (const CarriedSum& sum : s_.carried) plan_pairs(sum);
    for (const Nest& n : nests_)
      if (!n.dot || s_.wide_dot == DotForm::reduce) {
        std::vector<int> order = cpu() ? n.order : sharing_.order_of(n);
        if (cpu() && n.dot) order.insert(order.end(), n.reduced.begin(), n.reduced.end());
        deal_invocations(n, order, cpu() ? Sharing::Wanted{} : sharing_.wanted(n, order));
      }
    // Registers: reduced axes first, then kept ones that something in registers needs, within the budget of each nest.
    for (const Nest& n : nests_) {
      const std::vector<int> order = cpu() ? n.order : sharing_.order_of(n);
      int64_t regs = 1;
      for (int a : order) regs *= plan(a).reg;
      for (auto it = order.rbegin(); it != order.rend(); ++it) {
        const AxisPlan& p = plan(*it);
        if (!p.laid_out || p.reg > 1 || fixed_.count(*it)) continue;
        hold(n, *it, regs, it == order.rbegin());
        regs *= p.reg;
      }
    }
  }

  void plan_pairs(const CarriedSum& sum) {
    const auto pairs = pairs_of(k_, axes_, k_.op(sum.reduce));
    const auto plans = pairs ? sharing_.of_pairs(*pairs) : std::nullopt;
    if (!plans) return;
    std::tie(plan(pairs->kept), plan(pairs->dropped)) = *plans;
    fixed_.insert(pairs->kept);
  }

  void plan_dot(const Nest& n) {
    const auto ij = wide_axes(n);
    if (!ij) return;
    const auto [i, j] = *ij;
    const bool same_rows = s_.wide_dot == DotForm::matrix && plan(i).laid_out && !plan(j).laid_out;
    if (same_rows) plan_more_columns(n, i, j);
    if (plan(i).laid_out || plan(j).laid_out) return;  // a larger dot has decided
    if (!cpu() && few_rows(n, i)) return;
    if (s_.shuffles && cpu()) plan_shuffled_dot(i, j);
    else if (!s_.matrix || !plan_matrix_dot(n, i, j)) plan_staged_dot(n, i, j);
    plan(i).laid_out = plan(j).laid_out = true;
    fixed_.insert(i);
    fixed_.insert(j);
    for (int a : n.kept) {
      if (a == i || a == j || plan(a).laid_out) continue;
      plan(a).laid_out = true;  // batch and further free dims: one element at a time
      fixed_.insert(a);
    }
  }

  // GPUs: a tile of so few rows would leave most of its invocations idle. Each invocation has all of them in registers,
  // and a part of the columns and of what is contracted.
  bool few_rows(const Nest& n, int i) {
    if (n.work < kTermsOfAPart * static_cast<double>(s_.group * axis(i).extent)) return false;  // too little to share
    if (axis(i).extent > 8 || std::any_of(n.reduced.begin(), n.reduced.end(), [&](int a) { return axis(a).mixed; }))
      return false;
    plan(i).laid_out = true;
    plan(i).reg = static_cast<int>(axis(i).extent);
    fixed_.insert(i);
    return true;
  }

  // Columns j over the group's invocations, each of which holds several of them and rows i in registers.
  void plan_shuffled_dot(int i, int j) {
    AxisPlan &pi = plan(i), &pj = plan(j);
    pj.invocation_stride = 1;
    pj.invocations = s_.group;
    pi.invocations = 1;
    const int64_t want_j = cdiv(axis(j).extent, int64_t{pj.invocations});
    // Eight columns, adjacent ones in pairs that one 64-bit load brings.
    pj.reg = static_cast<int>(axis(j).splittable ? std::min<int64_t>(want_j, 8) : (want_j <= 16 ? want_j : 8));
    if (pj.reg % 2 == 0 && !axis(j).contracted) pj.vec = 2;
    // What follows in registers is unrolled over all results, and each takes its time to compile.
    const int results =
        (axes_.elementwise_over(i, j) ? std::min(target_.dot_results, 128) : target_.dot_results) >> smaller_;
    pi.reg = static_cast<int>(std::min<int64_t>(axis(i).extent, std::max(1, results / pj.reg)));
    s_.wide_dot = DotForm::shuffle;
  }

  // Workgroups that a nest gets where each takes so many rows and columns of a product.
  double tiles(const Nest& n, int i, int64_t rows, int j, int64_t cols) const {
    double u = 1;
    for (int a : n.kept)
      if (axis(a).splittable)
        u *= static_cast<double>(cdiv(axis(a).extent, a == i ? rows : a == j ? cols : int64_t{1}));
    for (int g : s_.parallel) u *= static_cast<double>(k_.grid[static_cast<size_t>(g)].size.value().value_or(64));
    return u;
  }

  // What is done along it afterwards finds it in registers; a smaller tile would be no smaller part for a workgroup.
  bool whole_in_registers(int a) const {
    return !axis(a).splittable && (axis(a).reduced || axis(a).contracted || axis(a).scanned || k_.has_threads());
  }

  // Square tiles of the group's invocations, each of which holds a square tile of registers: that grows while enough
  // workgroups remain. But an axis that is reduced or contracted afterwards stays whole where it can, so that those
  // find it in registers.
  void plan_staged_dot(const Nest& n, int i, int j) {
    AxisPlan &pi = plan(i), &pj = plan(j);
    int tj = 1;
    while (tj * tj < s_.group) tj *= 2;
    const int ti = s_.group / tj;
    pj.invocation_stride = 1;
    pj.invocations = tj;
    pi.invocation_stride = tj;
    pi.invocations = ti;
    int ri = std::max(8 >> smaller_, 1), rj = ri;
    const auto whole = [&](int a, int invocations) {
      return whole_in_registers(a) && axis(a).extent <= int64_t{8} * invocations;
    };
    if (whole(i, ti)) ri = static_cast<int>(cdiv(axis(i).extent, int64_t{ti}));
    if (whole(j, tj)) rj = static_cast<int>(cdiv(axis(j).extent, int64_t{tj}));
    const auto units = [&] { return tiles(n, i, int64_t{ri} * ti, j, int64_t{rj} * tj); };
    const auto halve = [&](int a, int& r, int invocations) {
      if (whole(a, invocations) || r == 1) return false;
      r /= 2;
      return true;
    };
    while (int64_t{ri} * ti >= 2 * axis(i).extent && halve(i, ri, ti)) {
    }
    while (int64_t{rj} * tj >= 2 * axis(j).extent && halve(j, rj, tj)) {
    }
    while (ri * rj > 16 && units() < target_.compute_units &&
           (ri >= rj ? halve(i, ri, ti) || halve(j, rj, tj) : halve(j, rj, tj) || halve(i, ri, ti))) {
    }
    s_.dot_chunk = 16;
    while (s_.dot_chunk > 4 && s_.dot_chunk * (int64_t{ri} * ti + int64_t{rj} * tj + 8) * 4 * (is_64(*n.dot) ? 2 : 1) >
                                   target_.shared_bytes / 2)
      s_.dot_chunk /= 2;
    pi.reg = ri;
    pj.reg = rj;
    // Neighbours, which one access to shared memory brings; and the results of a row are neighbours in memory.
    pi.vec = std::gcd(ri, 4);
    pj.vec = std::gcd(rj, 4);
    s_.wide_dot = DotForm::staged;
  }

  // Subgroups under each other, each with whole rows of the workgroup's tile. The rows of its matrices lie on its lanes
  // (codegen/lower/dot_matrix.cpp); tiles shrink as plan_staged_dot's do.
  bool plan_matrix_dot(const Nest& n, int i, int j) {
    const MatrixProduct p = matrix_product(k_, *n.dot);
    const auto shape = matrix_shape(target_, p.a, p.b, p.sum);
    if (!shape || !(*shape == *s_.matrix)) return false;
    const MatrixLanes lanes = *matrix_lanes(*shape, s_.subgroup);
    const int waves = s_.group / s_.subgroup, down = waves * shape->m;
    const auto units = [&](const MatrixTile& t) { return tiles(n, i, t.rows * down, j, t.cols); };
    const auto [rows, cols] = matrix_tile(*shape, lanes,
                                          {.rows = axis(i).extent,
                                           .cols = axis(j).extent,
                                           .down = down,
                                           .all_rows = whole_in_registers(i),
                                           .all_cols = whole_in_registers(j),
                                           .smaller = smaller_,
                                           .compute_units = target_.compute_units,
                                           .units = units});
    s_.matrix_lanes = target_.matrix_lanes && size_bytes(shape->a) == 2 && s_.subgroup == 32 && results_go_on();
    lay_out_rows(plan(i), *shape, s_.subgroup, waves, rows, s_.matrix_lanes);
    lay_out_columns(plan(j), *shape, s_.subgroup, cols, s_.matrix_lanes);
    s_.wide_dot = DotForm::matrix;
    s_.remarks.push_back(describe(target_, *shape, {rows, cols}, contracted(k_, *n.dot), s_.matrix_lanes));
    return true;
  }

  // Sums of some product are reduced or multiplied further, or much is computed of them; no running sum follows their
  // rows. Others go to a store, which the layout of whole rows does by 16 bytes.
  bool results_go_on() const {
    bool further = false;
    for (const Nest& n : nests_)
      if (const auto ij = n.dot ? wide_axes(n) : std::nullopt) {
        const Axis& columns = axis(ij->second);
        if (axis(ij->first).scanned) return false;
        further |= columns.reduced || columns.contracted || axes_.elementwise_over(ij->first, ij->second, true);
      }
    return further;
  }

  // Of a product whose rows have their layout from a larger one by matrices, as attention's second product: its columns
  // go to matrices too.
  void plan_more_columns(const Nest& n, int i, int j) {
    const MatrixProduct p = matrix_product(k_, *n.dot);
    const auto shape = matrix_shape(target_, p.a, p.b, p.sum);
    if (!shape || !(*shape == *s_.matrix) || axis(j).extent < shape->n) return;
    const MatrixLanes lanes = *matrix_lanes(*shape, s_.subgroup);
    AxisPlan rows = plan(i);
    lay_out_rows(rows, *shape, s_.subgroup, s_.group / s_.subgroup, 1, s_.matrix_lanes);
    if (plan(i).invocation_stride != rows.invocation_stride || plan(i).invocations != rows.invocations ||
        plan(i).run != rows.run)
      return;
    const int64_t cols = matrix_columns(*shape, lanes, axis(j).extent, smaller_);
    lay_out_columns(plan(j), *shape, s_.subgroup, cols, s_.matrix_lanes);
    plan(j).laid_out = true;
    fixed_.insert(j);
  }

  bool is_64(const ir::Op& op) const { return size_bytes(k_.type(op.results[0]).dtype) == 8; }

  void choose_tiles() {
    // Axes with values in registers: one strip per unit. Others: as much as makes a unit worth its launch.
    const double target_work = (cpu() ? 16384 : s_.group * 8.0) * target_.choices.work_factor();
    for (size_t a = 0; a < axes_.size(); ++a) {
      AxisPlan& p = s_.plans[a];
      if (!axes_.axes[a].splittable || !p.laid_out || !placed_axis_.count(static_cast<int>(a))) continue;
      p.tile = p.cover();
      p.split = p.tile < axes_.axes[a].extent;
    }
    for (const Nest& n : nests_) {
      double work = 1;
      std::vector<int> open;
      for (auto it = n.order.rbegin(); it != n.order.rend(); ++it) {
        const AxisPlan& p = plan(*it);
        if (p.split || !axis(*it).splittable || placed_axis_.count(*it) || decided_.count(*it))
          work *= static_cast<double>(p.tile);
        else open.push_back(*it);
      }
      for (int a : n.reduced)
        if (std::find(n.order.begin(), n.order.end(), a) == n.order.end()) work *= static_cast<double>(axis(a).extent);
      // What streams through takes as many bytes of each dtype.
      const bool streams = !cpu() && n.reduced.empty() && !n.dot && n.bytes < 4;
      const double wanted_work = streams ? target_work * 4 / static_cast<double>(n.bytes) : target_work;
      for (int a : open) {
        AxisPlan& p = plan(a);
        decided_.insert(a);
        const int64_t cover = p.laid_out ? p.cover() : 1;
        int64_t tile = static_cast<int64_t>(std::max(1.0, wanted_work / std::max(work, 1.0)));
        tile = std::max(tile / cover * cover, cover);
        if (tile < axis(a).extent) {
          // An even cut: no unit gets much less than the others.
          const int64_t parts = cdiv(axis(a).extent, tile);
          tile = cdiv(cdiv(axis(a).extent, parts), cover) * cover;
          p.tile = tile;
          p.split = p.tile < axis(a).extent;
          if (!p.split) p.tile = axis(a).extent;
        }
        work *= static_cast<double>(p.tile);
      }
    }
    for (size_t a = 0; a < axes_.size(); ++a) {
      AxisPlan& p = s_.plans[a];
      if (p.split) s_.split_axes.push_back(static_cast<int>(a));
      else p.tile = axes_.axes[a].extent;
    }
  }

  const ir::Kernel& k_;
  Axes& axes_;
  const std::vector<bool>& resident_;
  const ParallelPlan& parallel_;
  ScalarAnalysis& scalars_;
  const Target& target_;
  int smaller_;                       // what is unrolled is halved so often
  std::vector<bool> used_;            // per value
  std::vector<bool> read_, written_;  // per argument of the body
  Schedule s_;
  std::vector<Nest> nests_;
  std::vector<std::vector<int>> placed_;  // axes of every value that has a place of its own
  std::set<int> placed_axis_, fixed_, decided_;
  const Sharing sharing_{k_, axes_, target_, s_, nests_, placed_axis_};  // GPUs
};
}  // namespace

bool Schedule::enumerable(const Axes& all, const std::vector<int>& dims) const {
  if (general) return false;
  for (int a : dims) {
    if (a == kNoAxis) continue;
    const AxisPlan& p = plans[static_cast<size_t>(a)];
    if (!p.laid_out || all.axes[static_cast<size_t>(a)].mixed || p.strips() > 1) return false;
  }
  // Two axes that share invocation bits cannot both be laid out in one value.
  int bits = 0;
  for (int a : dims) {
    if (a == kNoAxis) continue;
    const AxisPlan& p = plans[static_cast<size_t>(a)];
    const int mine = (p.invocations - 1) * p.invocation_stride;
    if (bits & mine) return false;
    bits |= mine;
  }
  return registers(dims) <= max_registers;
}

int64_t Schedule::registers(const std::vector<int>& dims) const {
  int64_t n = 1;
  for (int a : dims)
    if (a != kNoAxis) n *= plans[static_cast<size_t>(a)].reg;
  return n;
}

Schedule make_schedule(const ScheduleInput& in, const std::vector<Kept>& kept) { return Scheduler(in, kept).run(); }

}  // namespace tessera::lowering
