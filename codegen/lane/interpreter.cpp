#include "codegen/lane/interpreter.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "codegen/lane/bytecode.h"
#include "codegen/lane/matrix_parts.h"
#include "codegen/lane/tensor_copies.h"
#include "codegen/lane/touched.h"
#include "codegen/lane/verify.h"
#include "codegen/program/program.h"
#include "engine/base/splitmix64.h"
#include "engine/ir/reference.h"
#include "engine/passes/ranges.h"

namespace tessera::lane {
namespace {
using ir::Kernel;
using Random = SplitMix64;

class Machine {
 public:
  Machine(const Kernel& k, const std::vector<Array>& arrays, int num_inputs, const DimValues& dims,
          const RunOptions& options)
      : k_(k),
        options_(options),
        dims_(dims),
        random_{Random{options.seed}.next()},
        code_(flatten(k, options.ranges, options.watched)),
        has_barriers_(
            std::any_of(code_.code.begin(), code_.code.end(), [](auto& i) { return i.code == Code::barrier; })),
        seen_sums_(options.watched.size()) {
    const size_t num_args = k.region(k.body).args.size();
    if (arrays.size() != num_args)
      throw SpecError(
          k.name + ": " + std::to_string(arrays.size()) + " arrays for " + std::to_string(num_args) + " args", k.loc);
    if (num_inputs < 0 || static_cast<size_t>(num_inputs) > num_args)
      throw SpecError(k.name + ": num_inputs is " + std::to_string(num_inputs), k.loc);
    num_inputs_ = static_cast<size_t>(num_inputs);
    for (size_t i = 0; i < num_args; ++i) {
      const DType wanted = k.type(k.region(k.body).args[i]).dtype;
      if (arrays[i].dtype() != wanted)
        throw SpecError(k.name + ": arg " + std::to_string(i) + " has dtype " + std::string(name(arrays[i].dtype())) +
                            ", but " + std::string(name(wanted)) + " is wanted",
                        k.loc);
      arrays_.push_back(arrays[i]);
      arg_bytes_.push_back(arrays_.back().bytes());
      arg_length_.push_back(static_cast<uint64_t>(arrays_.back().size()));
      const bool tracked = code_.written[i];
      arg_cells_.emplace_back(tracked ? arg_length_.back() : 0);
      group_cells_.emplace_back(tracked ? arg_length_.back() : 0);
    }
    size_ = std::max(1, k.lane.workgroup_size);
    subgroup_ = k.lane.subgroup_size > 0 ? k.lane.subgroup_size : std::max(1, options.subgroup_size);
    own_epochs_.assign(static_cast<size_t>(cdiv(int64_t{size_}, int64_t{subgroup_})), 0);
    if (code_.subgroup_ops && k.lane.subgroup_size > 0 && size_ % subgroup_ != 0)
      throw InternalError(k.name + ": workgroup_size " + std::to_string(size_) +
                              " is no multiple of the required subgroup_size " + std::to_string(subgroup_),
                          k.loc);
    const bool prints = k.lane.report_bytes >= 4 * PrintReport::kRecords;
    const int64_t room = prints ? std::max<int64_t>(options.print_bytes / 4, 0) : 0;
    report_.resize(static_cast<size_t>(k.lane.report_bytes / 4 + room));
    if (prints) report_[PrintReport::kCapacity] = static_cast<uint32_t>(room);
    report_cells_.resize(report_.size());
    report_groups_.resize(report_.size());
    make_arena(shared_, k.lane.shared_bytes, 4);
    make_arena(scratch_, k.lane.scratch_bytes, code_.scratch_cell);
    count_ = k.lane.num_units.eval(dims);
    if (count_ < 0 || count_ > INT32_MAX) throw SpecError(k.name + ": num_units is " + std::to_string(count_), k.loc);
    if (k.lane.max_workgroups > 0) {
      count_ = std::min(count_, k.lane.max_workgroups);
      if (options.max_workgroups > 0) count_ = std::min<int64_t>(count_, options.max_workgroups);
    } else if (!k.lane.exact && count_ > 0 && random_.below(3) == 0) {
      count_ += 1 + random_.below(3);  // surplus workgroups of a folded dispatch
    }
    for (const auto& [reg, i] : code_.extents) {
      const int64_t v = k.lane.extents[static_cast<size_t>(i)].eval(dims);
      const bool wide =
          static_cast<size_t>(i) < k.lane.extent_is_64.size() && k.lane.extent_is_64[static_cast<size_t>(i)];
      code_.registers[reg] = wide ? static_cast<uint64_t>(v) : static_cast<uint32_t>(v);
    }
    for (const uint32_t reg : code_.num_workgroups) code_.registers[reg] = static_cast<uint32_t>(count_);
    invocations_.resize(static_cast<size_t>(size_));
    for (int32_t i = 0; i < size_; ++i) {
      auto& regs = invocations_[static_cast<size_t>(i)].regs;
      regs.resize(code_.registers.size());
      for (size_t r = 0; r < regs.size(); ++r) regs[r].bits = code_.registers[r];
      for (const uint32_t r : code_.local_index) regs[r].bits = static_cast<uint32_t>(i);
      for (const uint32_t r : code_.subgroup_id) regs[r].bits = static_cast<uint32_t>(i / subgroup_);
      for (const uint32_t r : code_.lane_id) regs[r].bits = static_cast<uint32_t>(i % subgroup_);
    }
    garbage_ = random_.next();
    for (const Instr& i : code_.once) within(i, {code_.registers[i.a], 0}, 0);
  }

  RunResult run() {
    std::vector<uint32_t> order(static_cast<size_t>(count_));
    std::iota(order.begin(), order.end(), 0u);
    random_.shuffle(order);
    const int32_t at = k_.lane.steps_extent;
    const int64_t total = at < 0 ? 1 : k_.lane.extents[static_cast<size_t>(at) + 1].eval(dims_),
                  per = at < 0 || options_.steps <= 0 ? total : options_.steps;
    const bool open = k_.lane.open_ended;
    cut_ = open || per < total;
    bool left = true;
    for (first_step_ = 0; left && !stopped_; first_step_ += per) {
      const int64_t begin = !open ? first_step_ : Program::kTells | (first_step_ > 0 ? Program::kGoesOn : 0),
                    end = open ? per : std::min(first_step_ + per, total);
      for (Invocation& v : invocations_)
        for (const auto& [reg, i] : code_.extents)
          if (passes::tells_steps(k_.lane, i)) v.regs[reg].bits = static_cast<uint64_t>(i == at ? begin : end);
      for (const uint32_t g : order) {
        workgroup(g);
        if (stopped_) break;
      }
      for (auto& cells : group_cells_) std::fill(cells.begin(), cells.end(), GroupCell{});
      random_.shuffle(order);
      left = open ? (report_.at(0) & Program::kUnfinished) != 0 : end < total;
      if (open) report_[0] &= ~Program::kUnfinished;
    }
    RunResult result;
    for (size_t i = num_inputs_; i < arrays_.size(); ++i) result.outputs.push_back(arrays_[i]);
    result.report = report_.empty() ? 0 : report_[0];
    result.report_words = std::move(report_);
    result.reports = std::move(reports_);
    result.seen = std::move(seen_sums_);
    result.out_of_steps = out_of_steps_;
    return result;
  }

 private:
  friend TensorCopies;
  enum class State : uint8_t { ready, waiting, finished };
  struct Invocation {
    std::vector<Register> regs;
    uint32_t pc = 0;
    State state = State::ready;
  };

  void make_arena(Arena& a, int64_t bytes, int64_t cell) {
    if (bytes < 0 || bytes > (int64_t{1} << 30))
      throw InternalError(k_.name + ": an arena of " + std::to_string(bytes) + " bytes", k_.loc);
    a.bytes.resize(static_cast<size_t>(bytes));
    a.poison.resize(static_cast<size_t>(bytes));
    a.cell_shift = std::countr_zero(static_cast<uint64_t>(cell));
    a.cells.resize(static_cast<size_t>(bytes / cell + 2));
  }

  // -- workgroups

  void workgroup(uint32_t g) {
    group_ = g;
    ++epoch_;
    copies_ = {};
    const auto fill = static_cast<uint8_t>(random_.next());
    for (Arena* a : {&shared_, &scratch_}) {
      if (a->bytes.empty()) continue;
      std::memset(a->bytes.data(), fill, a->bytes.size());
      std::memset(a->poison.data(), 1, a->poison.size());
    }
    if (const auto it = kept_.find(g); it != kept_.end() && first_step_ > 0)
      std::tie(scratch_.bytes, scratch_.poison) = it->second;
    invocations(g);
    if (cut_) kept_[g] = {scratch_.bytes, scratch_.poison};
  }

  void invocations(uint32_t g) {
    for (Invocation& v : invocations_) {
      v.pc = 0;
      v.state = State::ready;
      for (const uint32_t r : code_.workgroup_index) v.regs[r].bits = g;
    }
    std::vector<uint32_t> ready;
    for (;;) {
      ready.clear();
      for (uint32_t i = 0; i < invocations_.size(); ++i)
        if (invocations_[i].state == State::ready) ready.push_back(i);
      random_.shuffle(ready);
      for (const uint32_t i : ready) {
        advance(i);
        if (stopped_) return;
      }
      if (release_subgroups()) continue;
      const bool done = std::all_of(invocations_.begin(), invocations_.end(),
                                    [](const Invocation& v) { return v.state == State::finished; });
      if (done || !release_barrier()) return;
    }
  }

  bool same_place(const Invocation& a, const Invocation& b) const {
    if (a.state != State::waiting || b.state != State::waiting || a.pc != b.pc) return false;
    for (const uint32_t c : code_.syncs[code_.code[a.pc].aux].counters)
      if (a.regs[c].bits != b.regs[c].bits) return false;
    return true;
  }

  bool release_subgroups() {
    if (!code_.subgroup_ops) return false;
    bool any = false;
    for (int32_t first = 0; first < size_; first += subgroup_) {
      const int32_t end = std::min(first + subgroup_, size_);
      const Invocation& lead = invocations_[static_cast<size_t>(first)];
      if (lead.state != State::waiting || code_.code[lead.pc].code == Code::barrier) continue;
      bool together = true;
      for (int32_t i = first + 1; i < end; ++i) together &= same_place(lead, invocations_[static_cast<size_t>(i)]);
      if (!together) continue;
      subgroup_op(static_cast<size_t>(first), static_cast<size_t>(end - first), code_.code[lead.pc]);
      any = true;
      for (int32_t i = first; i < end; ++i) {
        invocations_[static_cast<size_t>(i)].state = State::ready;
        ++invocations_[static_cast<size_t>(i)].pc;
      }
    }
    return any;
  }

  void subgroup_op(size_t first, size_t n, const Instr& op) {
    const uint32_t at = static_cast<uint32_t>(&op - code_.code.data());
    if (op.code == Code::subgroup_barrier) {
      ++own_epochs_[first / static_cast<size_t>(subgroup_)];
      return;
    }
    std::vector<Register> in(n), out(n);
    if (op.code >= Code::matrix_fill && op.code <= Code::multiply_add) return matrix_op(first, n, op, at);
    for (size_t i = 0; i < n; ++i) in[i] = invocations_[first + i].regs[op.a];
    const auto shuffled = [&](uint64_t lane) { return lane < n ? in[lane] : Register{garbage(op.result), at + 1}; };
    const auto add = [&](Register& sum, const Register& next) {
      const uint64_t operands[2] = {sum.bits, next.bits};
      sum.bits = reference::eval(op.op, op.operand, op.result, operands);
      if (!sum.poison) sum.poison = next.poison;
    };
    if (op.code == Code::reduce) {
      // The device may combine in any order; so does this.
      const size_t start = random_.below(static_cast<uint32_t>(n));
      Register sum = in[start];
      for (size_t i = 1; i < n; ++i) add(sum, in[(start + i) % n]);
      std::fill(out.begin(), out.end(), sum);
    } else if (op.code == Code::scan) {
      Register sum{reference::identity(op.op, op.result)};
      for (size_t i = 0; i < n; ++i) {
        out[i] = sum;
        add(sum, in[i]);
      }
    } else if (op.code == Code::shuffle_xor) {
      for (size_t i = 0; i < n; ++i) out[i] = shuffled(i ^ op.d);
    } else {
      for (size_t i = 0; i < n; ++i) {
        const Register lane = invocations_[first + i].regs[op.b];
        out[i] = shuffled(static_cast<uint32_t>(lane.bits));
        if (!out[i].poison) out[i].poison = lane.poison;
      }
    }
    for (size_t i = 0; i < n; ++i) invocations_[first + i].regs[op.dst] = out[i];
  }

  // -- matrices: element e is lane e % n's, in its register e / n behind the first

  Register& element(size_t first, size_t n, uint32_t base, int64_t e) {
    const auto i = static_cast<size_t>(e);
    return invocations_[first + i % n].regs[base + static_cast<uint32_t>(i / n)];
  }
  void matrix_op(size_t first, size_t n, const Instr& op, uint32_t at) {
    const MatrixOp& m = code_.matrices[op.d];
    const auto part = [&](uint32_t base, int64_t e) -> Register& { return element(first, n, base, e); };
    if (op.code == Code::multiply_add)
      return multiply_add(
          m, op, static_cast<int64_t>(first / n % 4),
          [&](int64_t depth) { return random_.below(static_cast<uint32_t>(depth)); }, part);
    if (op.code == Code::matrix_fill) {
      const Register x = invocations_[first].regs[op.a];
      for (int64_t e = 0; e < m.rows * m.cols; ++e) element(first, n, op.dst, e) = x;
      return;
    }
    if (op.code == Code::multiply) {
      for (int64_t e = 0; e < m.rows * m.cols; ++e) {
        const Register a = element(first, n, op.a, e), b = element(first, n, op.b, e);
        const uint64_t operands[2] = {a.bits, b.bits};
        element(first, n, op.dst, e) = {reference::eval(ir::Opcode::mul, m.dtype, m.dtype, operands),
                                        a.poison ? a.poison : b.poison};
      }
      return;
    }
    if (op.code == Code::matrix_elements || op.code == Code::matrix_of)
      return of_lanes(m, op, part, [&](int64_t l, uint32_t r) -> Register& {
        return invocations_[first + static_cast<size_t>(l)].regs[r];
      });
    const auto& memory = std::get<MatrixOp::Memory>(m.what);
    Instr access = op;
    access.aux = memory.place;
    const int64_t size = size_bytes(m.dtype);
    const int64_t word = index_of(access, at, static_cast<uint32_t>(first), invocations_[first].regs);
    for (int64_t e = 0; e < m.rows * m.cols; ++e) {
      const int64_t row = e / m.cols, col = e % m.cols, byte = (memory.by_columns ? row : col) * size;
      const int64_t across = memory.by_columns ? col : row;
      const int64_t index = word + memory.word(across, byte);
      const auto who = static_cast<uint32_t>(first + static_cast<size_t>(e) % n);
      uint8_t* poison = nullptr;
      if (op.code == Code::matrix_load) {
        const std::byte* from = reach<kRead>(access, at, who, index, &poison);
        bool bad = false;
        for (int64_t b = 0; from && b < size; ++b) bad |= poison[byte % 4 + b] != 0;
        element(first, n, op.dst, e) =
            from ? Register{read(from + byte % 4, m.dtype), bad ? at + 1 : 0} : Register{garbage(m.dtype), 0};
      } else if (std::byte* to = reach<kWrite>(access, at, who, index, &poison)) {
        const Register x = element(first, n, op.c, e);
        write(to + byte % 4, m.dtype, x.bits);
        std::memset(poison + byte % 4, x.poison ? 1 : 0, static_cast<size_t>(size));
      }
    }
  }
  // All wait at one barrier: lets them go on. Otherwise no invocation can go on: reports it and gives the workgroup up.
  bool release_barrier() {
    const Invocation& lead = invocations_[0];
    size_t other = 0;
    const bool at_barrier = lead.state == State::waiting && code_.code[lead.pc].code == Code::barrier;
    for (size_t i = 1; i < invocations_.size() && !other; ++i)
      if (!same_place(lead, invocations_[i])) other = i;
    if (at_barrier && !other) {
      if (const Instr& wait = code_.code[lead.pc]; wait.a != kNone)
        copies_.land(*this, lead.regs[wait.a].bits, lead.pc, k_.lane.barriers);
      ++epoch_;
      for (Invocation& v : invocations_) {
        v.state = State::ready;
        ++v.pc;
      }
      return true;
    }
    // Name two that disagree: within the first subgroup that does, for subgroup ops; a lone disagreement with the first
    // otherwise.
    size_t a = 0, b = other;
    for (size_t i = 0; i < invocations_.size(); ++i) {
      const size_t first = i - i % static_cast<size_t>(subgroup_);
      const Invocation& v = invocations_[first];
      if (v.state == State::waiting && code_.code[v.pc].code != Code::barrier && !same_place(v, invocations_[i])) {
        a = first, b = i;
        break;
      }
    }
    const auto where = [&](size_t i) {
      const Invocation& v = invocations_[i];
      if (v.state == State::finished) return "invocation " + std::to_string(i) + " has finished";
      std::string s = "invocation " + std::to_string(i) + " waits at " + op_at(v.pc);
      const auto& counters = code_.syncs[code_.code[v.pc].aux].counters;
      for (size_t c = 0; c < counters.size(); ++c)
        s += (c ? ", " : " in iteration ") + std::to_string(v.regs[counters[c]].bits - 1);
      return s;
    };
    const auto pc = [&](size_t i) { return invocations_[i].state == State::finished ? kNone : invocations_[i].pc; };
    if (is_new(6, pc(a), pc(b)))
      report("divergence in workgroup " + std::to_string(group_) + ": " + where(a) + ", but " + where(b));
    return false;
  }

  // -- reports

  bool is_new(int kind, uint32_t a, uint32_t b) {
    return reports_.size() < options_.max_reports && seen_.insert({kind, a, b}).second;
  }
  void report(std::string what) { reports_.push_back(k_.name + ": " + std::move(what)); }
  std::string op_at(uint32_t at) const {
    const uint32_t source = code_.code[at].source;
    if (source == kNone) return "the end";
    const ir::Op& op = k_.op(ir::OpId{source});
    return "`" + op_text(k_, op) + "`" + (op.loc ? " (" + to_string(op.loc) + ")" : "");
  }
  std::string element_of(const Place& p, int64_t index) const {
    const std::string element = "element " + std::to_string(index) + " of ";
    if (const Place::Arg* arg = p.arg()) {
      const uint32_t n = arg->number;
      return element + (n < k_.blocks.size() ? k_.blocks[n].origin : "arg " + std::to_string(n));
    }
    const Place::Arena* arena = p.arena();
    if (!arena) return element + "the report";
    return element + std::string(name(p.dtype)) + (arena->shared ? " shared memory" : " scratch") + " at byte " +
           std::to_string(arena->offset);
  }
  std::string who(uint32_t invocation) const {
    return (invocation == kMany ? "another invocation" : "invocation " + std::to_string(invocation)) +
           " of workgroup " + std::to_string(group_);
  }

  void poisoned(uint32_t invocation, uint32_t at, const Register& r, const char* use) {
    if (!is_new(3, at, r.poison)) return;
    report(std::string("uninitialised memory, read by ") + op_at(r.poison - 1) + ", is " + use + " of " + op_at(at) +
           " in " + who(invocation));
  }

  void within(const Instr& i, const Register& r, uint32_t invocation) {
    const Claim& c = code_.claims[i.aux];
    const uint64_t high = r.bits << c.shift;  // one of u64 above INT64_MAX is less than any bound
    const int64_t x = c.is_signed ? static_cast<int64_t>(high) >> c.shift : static_cast<int64_t>(high >> c.shift);
    if ((x < c.range.lo || x > c.range.hi) && !r.poison) beyond(c, x, invocation);
  }
  void beyond(const Claim& c, int64_t x, uint32_t invocation) {
    if (!is_new(9, c.value.index, 0)) return;
    const ir::Op* op = k_.def(c.value);
    report("the range of value " + std::to_string(c.value.index) + ", " +
           (op ? "of " + std::string(ir::name(op->code)) : "an argument") + ": " + to_string(k_.type(c.value)) +
           ", is [" + std::to_string(c.range.lo) + ", " + std::to_string(c.range.hi) + "] but it is " +
           std::to_string(x) + " in " + who(invocation));
  }

  // Control that hangs on garbage: whatever follows says nothing.
  void stop_at(uint32_t invocation, uint32_t at, const Register& r, const char* use) {
    poisoned(invocation, at, r, use);
    stopped_ = true;
  }

  // -- memory

  uint64_t garbage(DType t) const {
    const int n = bits(t);
    return n == 64 ? garbage_ : garbage_ & ((uint64_t{1} << n) - 1);
  }

  template <How how>
  void touch(Cell& c, uint32_t invocation, uint32_t at, const Place& p, int64_t index) {
    const uint32_t subgroup = invocation / static_cast<uint32_t>(subgroup_);
    const bool shared = p.is_shared();  // what a subgroup's barrier orders
    const uint32_t own = shared ? own_epochs_[subgroup] : 0;
    c.touch<how>(
        {invocation, subgroup, epoch_, own, how == kAtomic && has_barriers_ ? code_.code[at].op : ir::Opcode{}}, at,
        [&](How other) { conflict({how, at, invocation}, {other, c.at[other], c.by[other]}, p, index); });
  }
  static const char* verb(How how) { return how == kRead ? "read" : how == kWrite ? "written" : "atomically updated"; }
  struct Touch {
    How how;
    uint32_t at, by;  // the instruction, and the invocation or the workgroup
  };
  void conflict(const Touch& one, const Touch& other, const Place& p, int64_t index) {
    if (!is_new(20 + one.how * 3 + other.how, one.at, other.at)) return;
    report("conflict without a barrier between: " + element_of(p, index) + " is " + verb(one.how) + " by " +
           who(one.by) + " in " + op_at(one.at) + " and " + verb(other.how) + " by " + who(other.by) + " in " +
           op_at(other.at));
  }

  template <How how>
  void touch_group(GroupCell& c, uint32_t at, const Place& p, int64_t index) {
    const auto meet = [&](How other) {
      if (disturbs(how, other) && c.by[other] != kNone && c.by[other] != group_)
        group_conflict({how, at, group_}, {other, c.at[other], c.by[other]}, p, index);
    };
    meet(kWrite), meet(kRead), meet(kAtomic);
    c.by[how] = how == kWrite || c.by[how] == kNone || c.by[how] == group_ ? group_ : kMany;
    c.at[how] = at;
  }
  void group_conflict(const Touch& one, const Touch& other, const Place& p, int64_t index) {
    if (!is_new(30 + one.how * 3 + other.how, one.at, other.at)) return;
    report("conflict between workgroups: " + element_of(p, index) + " is " + verb(one.how) + " by workgroup " +
           std::to_string(one.by) + " in " + op_at(one.at) + " and " + verb(other.how) + " by " +
           (other.by == kMany ? "another one" : "workgroup " + std::to_string(other.by)) + " in " + op_at(other.at));
  }

  // The element's first byte, its poison flags (arenas) and bookkeeping done; null where it is out of bounds.
  template <How how>
  std::byte* reach(const Instr& i, uint32_t at, uint32_t invocation, int64_t index, uint8_t** poison) {
    const Place& p = code_.places[i.aux];
    const Place::Arg* arg = p.arg();
    const Place::Arena* arena = p.arena();
    const uint64_t length = arg     ? arg_length_[arg->number]
                            : arena ? static_cast<uint64_t>(arena->length)
                                    : report_.size();
    if (static_cast<uint64_t>(index) >= length) {
      if (is_new(4, at, 0))
        report("out of bounds: " + element_of(p, index) + ", which has " + std::to_string(length) + ", in " +
               op_at(at) + " by " + who(invocation));
      return nullptr;
    }
    if (arg) {
      const uint32_t n = arg->number;
      if (code_.written[n]) {
        touch<how>(arg_cells_[n][static_cast<size_t>(index)], invocation, at, p, index);
        touch_group<how>(group_cells_[n][static_cast<size_t>(index)], at, p, index);
      }
      return arg_bytes_[n] + index * p.stride;
    }
    if (!arena) {  // each record belongs to one invocation; only the host reads them
      const auto i32_index = static_cast<size_t>(index);
      touch<how>(report_cells_[i32_index], invocation, at, p, index);
      touch_group<how>(report_groups_[i32_index], at, p, index);
      return reinterpret_cast<std::byte*>(&report_[i32_index]);
    }
    Arena& a = arena->shared ? shared_ : scratch_;
    const int64_t byte = arena->offset + index * p.stride;
    for (int64_t c = byte >> a.cell_shift, end = (byte + p.stride - 1) >> a.cell_shift; c <= end; ++c)
      touch<how>(a.cells[static_cast<size_t>(c)], invocation, at, p, index);
    *poison = a.poison.data() + byte;
    return a.bytes.data() + byte;
  }

  // True if the access happens.
  bool masked_in(const Instr& i, uint32_t at, uint32_t invocation, const std::vector<Register>& r) {
    if (i.c == kNone) return true;
    if (r[i.c].poison) poisoned(invocation, at, r[i.c], "the mask");
    return r[i.c].bits != 0;
  }
  int64_t index_of(const Instr& i, uint32_t at, uint32_t invocation, const std::vector<Register>& r) {
    if (r[i.b].poison) poisoned(invocation, at, r[i.b], "the index");
    if (r[i.a].poison) poisoned(invocation, at, r[i.a], "the view's offset");
    return static_cast<int64_t>(r[i.a].bits +
                                static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(r[i.b].bits))));
  }

  void check_alignment(const Instr& i, uint32_t at, uint32_t invocation, int64_t element) {
    const Place& p = code_.places[i.aux];
    const int64_t offset = p.arena() ? p.arena()->offset : 0;
    if ((offset / p.stride + element) % i.align != 0 && is_new(8, at, element))
      report("vector access at element " + std::to_string(element) + ", which is no multiple of " +
             std::to_string(i.align) + ", in " + op_at(at) + " in " + who(invocation));
  }

  void load(const Instr& i, uint32_t at, uint32_t invocation, std::vector<Register>& r) {
    if (!masked_in(i, at, invocation, r)) {
      r[i.dst] = i.d == kNone ? Register{garbage(i.result), 0} : r[i.d];
      return;
    }
    uint8_t* poison = nullptr;
    const int64_t element = index_of(i, at, invocation, r);
    check_alignment(i, at, invocation, element);
    const std::byte* from = reach<kRead>(i, at, invocation, element, &poison);
    if (!from) {
      r[i.dst] = {garbage(i.result), 0};
      return;
    }
    bool bad = false;
    if (poison)
      for (int64_t b = 0; b < size_bytes(i.result); ++b) bad |= poison[b] != 0;
    r[i.dst] = {read(from, i.result), bad ? at + 1 : 0};
  }

  void store(const Instr& i, uint32_t at, uint32_t invocation, std::vector<Register>& r) {
    if (!masked_in(i, at, invocation, r)) return;
    uint8_t* poison = nullptr;
    const int64_t element = index_of(i, at, invocation, r);
    check_alignment(i, at, invocation, element);
    std::byte* to = reach<kWrite>(i, at, invocation, element, &poison);
    if (!to) return;
    write(to, i.operand, r[i.d].bits);
    // shared memory is words, and may be copied so
    if (poison) std::memset(poison, r[i.d].poison ? 1 : 0, static_cast<size_t>(code_.places[i.aux].stride));
    else if (r[i.d].poison) poisoned(invocation, at, r[i.d], "the stored value");
  }

  void atomic(const Instr& i, uint32_t at, uint32_t invocation, std::vector<Register>& r) {
    uint8_t* poison = nullptr;
    std::byte* place = reach<kAtomic>(i, at, invocation, index_of(i, at, invocation, r), &poison);
    if (r[i.d].poison) poisoned(invocation, at, r[i.d], "the stored value");
    if (i.c != kNone && r[i.c].poison) poisoned(invocation, at, r[i.c], "what it is compared with");
    if (!place) {
      r[i.dst] = {garbage(i.result), 0};
      return;
    }
    const uint64_t old = read(place, i.operand), given = r[i.d].bits;
    uint64_t now = given;
    if (i.op == ir::Opcode::atomic_cas) {
      const uint64_t operands[2] = {old, r[i.c].bits};
      if (!reference::eval(ir::Opcode::eq, i.operand, DType::boolean, operands)) now = old;
    } else if (i.op != ir::Opcode::swap) {
      const uint64_t operands[2] = {old, given};
      now = reference::eval(i.op, i.operand, i.operand, operands);
    }
    write(place, i.operand, now);
    r[i.dst] = {old, 0};
  }

  // -- instructions

  bool charge(uint32_t steps, uint32_t at) {
    steps_ += steps;
    if (steps_ <= options_.max_steps) return true;
    if (is_new(5, at, 0))
      report("still running after " + std::to_string(options_.max_steps) + " steps, in " + op_at(at));
    stopped_ = out_of_steps_ = true;
    return false;
  }

  // Runs one invocation until it waits or ends.
  void advance(uint32_t id) {
    Invocation& me = invocations_[id];
    std::vector<Register>& regs = me.regs;
    Register* r = regs.data();
    const Instr* const code = code_.code.data();
    const auto i32_of = [&](uint32_t reg) { return static_cast<int32_t>(static_cast<uint32_t>(r[reg].bits)); };
    const auto f32_of = [&](uint32_t reg) { return std::bit_cast<float>(static_cast<uint32_t>(r[reg].bits)); };
    uint32_t pc = me.pc;
    for (;; ++pc) {
      const Instr& i = code[pc];
      const auto set = [&](uint64_t bits) __attribute__((always_inline)) {
        r[i.dst] = {bits, r[i.a].poison ? r[i.a].poison : r[i.b].poison};
      };
      const auto set_i32 = [&](uint32_t bits) { set(bits); };
      const auto set_f32 = [&](float x) { set(std::bit_cast<uint32_t>(x)); };
      const auto u32_of = [&](uint32_t reg) { return static_cast<uint32_t>(r[reg].bits); };
      switch (i.code) {
        case Code::eval1: r[i.dst] = {code_.functions[i.aux](&r[i.a].bits), r[i.a].poison}; break;
        case Code::eval2: {
          const uint64_t in[2] = {r[i.a].bits, r[i.b].bits};
          set(code_.functions[i.aux](in));
          break;
        }
        case Code::eval3: {
          const uint64_t in[3] = {r[i.a].bits, r[i.b].bits, r[i.c].bits};
          const uint32_t poison = r[i.c].poison;
          set(code_.functions[i.aux](in));
          if (!r[i.dst].poison) r[i.dst].poison = poison;
          break;
        }
        case Code::dot4: {
          const uint32_t poison = r[i.c].poison;
          set(reference::dot4(u32_of(i.a), is_signed_int(i.operand), u32_of(i.b), is_signed_int(i.result),
                              u32_of(i.c)));
          if (!r[i.dst].poison) r[i.dst].poison = poison;
          break;
        }
        case Code::add_i32: set_i32(u32_of(i.a) + u32_of(i.b)); break;
        case Code::sub_i32: set_i32(u32_of(i.a) - u32_of(i.b)); break;
        case Code::mul_i32: set_i32(u32_of(i.a) * u32_of(i.b)); break;
        case Code::add_i64:
        case Code::view: set(r[i.a].bits + r[i.b].bits); break;
        case Code::mul_i64: set(r[i.a].bits * r[i.b].bits); break;
        case Code::eq_i32: set(u32_of(i.a) == u32_of(i.b)); break;
        case Code::ne_i32: set(u32_of(i.a) != u32_of(i.b)); break;
        case Code::lt_i32: set(i32_of(i.a) < i32_of(i.b)); break;
        case Code::le_i32: set(i32_of(i.a) <= i32_of(i.b)); break;
        case Code::gt_i32: set(i32_of(i.a) > i32_of(i.b)); break;
        case Code::ge_i32: set(i32_of(i.a) >= i32_of(i.b)); break;
        case Code::min_i32: set_i32(static_cast<uint32_t>(std::min(i32_of(i.a), i32_of(i.b)))); break;
        case Code::max_i32: set_i32(static_cast<uint32_t>(std::max(i32_of(i.a), i32_of(i.b)))); break;
        case Code::i32_to_i64:
          r[i.dst] = {static_cast<uint64_t>(static_cast<int64_t>(i32_of(i.a))), r[i.a].poison};
          break;
        case Code::add_f32: set_f32(f32_of(i.a) + f32_of(i.b)); break;
        case Code::sub_f32: set_f32(f32_of(i.a) - f32_of(i.b)); break;
        case Code::mul_f32: set_f32(f32_of(i.a) * f32_of(i.b)); break;
        case Code::and_bool: {
          // A false that is known decides, whatever the other side is.
          const Register a = r[i.a], b = r[i.b];
          const bool decided = (!a.poison && !a.bits) || (!b.poison && !b.bits);
          r[i.dst] = {a.bits & b.bits, 0};
          if (decided) r[i.dst].bits = 0;
          else r[i.dst].poison = a.poison ? a.poison : b.poison;
          break;
        }
        case Code::or_bool: {
          const Register a = r[i.a], b = r[i.b];
          const bool decided = (!a.poison && a.bits) || (!b.poison && b.bits);
          r[i.dst] = {a.bits | b.bits, 0};
          if (decided) r[i.dst].bits = 1;
          else r[i.dst].poison = a.poison ? a.poison : b.poison;
          break;
        }
        case Code::not_bool: r[i.dst] = {r[i.a].bits ^ 1, r[i.a].poison}; break;
        case Code::select: {
          const uint32_t poison = r[i.a].poison;
          r[i.dst] = r[i.a].bits ? r[i.b] : r[i.c];
          if (poison) r[i.dst].poison = poison;
          break;
        }
        case Code::load: load(i, pc, id, regs); break;
        case Code::store: store(i, pc, id, regs); break;
        case Code::atomic: atomic(i, pc, id, regs); break;
        case Code::move: r[i.dst] = r[i.a]; break;
        case Code::moves: {
          const auto& list = code_.moves[i.aux];
          temporary_.resize(std::max(temporary_.size(), list.size()));
          for (size_t m = 0; m < list.size(); ++m) temporary_[m] = r[list[m].second];
          for (size_t m = 0; m < list.size(); ++m) r[list[m].first] = temporary_[m];
          break;
        }
        case Code::jump: pc = i.aux - 1; break;
        case Code::branch_false:
          if (r[i.a].poison) return stop_at(id, pc, r[i.a], "the condition");
          if (!r[i.a].bits) pc = i.aux - 1;
          break;
        case Code::switch_:
          if (r[i.a].poison) return stop_at(id, pc, r[i.a], "the choice");
          pc = code_.targets[i.aux + static_cast<uint32_t>(std::clamp<int64_t>(i32_of(i.a), 0, i.d - 1))] - 1;
          break;
        case Code::for_begin:
          for (const uint32_t reg : {i.a, i.b, i.c})
            if (r[reg].poison) return stop_at(id, pc, r[reg], "a bound");
          if (i32_of(i.c) <= 0) {
            if (is_new(7, pc, 0))
              report("the step is " + std::to_string(i32_of(i.c)) + " in " + op_at(pc) + " in " + who(id));
            // Runs no iteration: beyond every bound.
            r[i.dst] = {static_cast<uint64_t>(INT64_MAX), 0};
          } else {
            r[i.dst] = {static_cast<uint64_t>(static_cast<int64_t>(i32_of(i.a))), 0};
          }
          r[i.d] = {0, 0};
          break;
        case Code::for_head:
          if (static_cast<int64_t>(r[i.a].bits) >= i32_of(i.b)) {
            pc = i.aux - 1;
            break;
          }
          ++r[i.d].bits;
          r[i.dst] = {static_cast<uint32_t>(r[i.a].bits), 0};
          if (!charge(i.aux - pc, pc)) return;
          break;
        case Code::for_next:
          r[i.dst].bits += static_cast<uint64_t>(static_cast<int64_t>(i32_of(i.c)));
          pc = i.aux - 1;
          break;
        case Code::iteration:
          if (i.d == kNone) {
            r[i.aux] = {0, 0};
            break;
          }
          ++r[i.aux].bits;
          if (!charge(i.d, pc)) return;
          break;
        case Code::report:
          if (r[i.a].poison) poisoned(id, pc, r[i.a], "the condition");
          if (r[i.a].bits) report_.at(0) |= i.aux;
          break;
        case Code::within: within(i, r[i.a], id); break;
        case Code::watch: code_.watches[i.aux].look(r, group_, id, seen_sums_[i.aux]); break;
        case Code::pack: {
          Register word;
          const int width = bits(i.operand);
          const uint32_t from[] = {i.a, i.b, i.c, i.d};
          for (int p = 0; p < 32 / width; ++p) {
            word.bits |= (r[from[p]].bits & ((uint64_t{1} << width) - 1)) << (p * width);
            if (!word.poison) word.poison = r[from[p]].poison;
          }
          r[i.dst] = word;
          break;
        }
        case Code::tensor_load: copies_.begin(*this, i, pc, id, index_of(i, pc, id, regs), regs); break;
        case Code::barrier:
        case Code::subgroup_barrier:
        case Code::reduce:
        case Code::scan:
        case Code::shuffle:
        case Code::shuffle_xor:
        case Code::matrix_fill:
        case Code::matrix_load:
        case Code::matrix_store:
        case Code::matrix_elements:
        case Code::matrix_of:
        case Code::multiply:
        case Code::multiply_add:
          me.pc = pc;
          me.state = State::waiting;
          return;
        case Code::end:
          me.pc = pc;
          me.state = State::finished;
          return;
      }
    }
  }

  const Kernel& k_;
  RunOptions options_;
  const DimValues& dims_;
  Random random_;
  Bytecode code_;
  const bool has_barriers_;         // else its programs may share a workgroup
  TensorCopies copies_;             // of this workgroup
  std::vector<SeenSum> seen_sums_;  // of options_.watched
  size_t num_inputs_ = 0;
  std::vector<Array> arrays_;
  std::vector<std::byte*> arg_bytes_;
  std::vector<uint64_t> arg_length_;
  std::vector<std::vector<Cell>> arg_cells_;
  std::vector<std::vector<GroupCell>> group_cells_;
  Arena shared_, scratch_;
  // scratch of a workgroup, from one dispatch to the next
  std::map<uint32_t, std::pair<std::vector<std::byte>, std::vector<uint8_t>>> kept_;
  int64_t first_step_ = 0;
  bool cut_ = false;
  int32_t size_ = 1, subgroup_ = 1;
  int64_t count_ = 0, steps_ = 0;
  std::vector<Invocation> invocations_;
  std::vector<Register> temporary_;
  uint32_t group_ = 0, epoch_ = 0;
  std::vector<uint32_t> own_epochs_;  // per subgroup
  std::vector<uint32_t> report_;      // words
  std::vector<Cell> report_cells_;
  std::vector<GroupCell> report_groups_;
  uint64_t garbage_ = 0;
  bool stopped_ = false, out_of_steps_ = false;
  std::vector<std::string> reports_;
  std::set<std::tuple<int, uint32_t, uint32_t>> seen_;
};
}  // namespace

RunResult run(const Kernel& lane_kernel, const std::vector<Array>& arrays, int num_inputs, const DimValues& dims,
              const RunOptions& options) {
  return Machine(lane_kernel, arrays, num_inputs, dims, options).run();
}

}  // namespace tessera::lane
