#include "tests/support/proofs/proofs.h"

#include <algorithm>
#include <set>

#include "codegen/lane/prover.h"
#include "codegen/lane/verify.h"
#include "tests/support/generator/random.h"

namespace tessera::fuzz {
using ir::Opcode;
using ir::OpId;
using ir::Value;
using lane::Prover;
using lane::SeenSum;
using lane::WatchedSum;
using Sum = std::vector<std::pair<int64_t, Value>>;

namespace {
bool is_integer(const ir::Kernel& k, Value v) {
  const ir::Type& t = k.type(v);
  return !t.is_ref && t.shape.empty() && is_int(t.dtype);
}
std::string show(__int128 x) {
  if (x < 0) return "-" + show(-x);
  return (x >= 10 ? show(x / 10) : "") + static_cast<char>('0' + static_cast<int>(x % 10));
}

// All ops in their order, with what the branches and loops around say, as the compiler gives it to the prover.
class Walk {
 public:
  explicit Walk(const ir::Kernel& k) : k_(k) {}
  virtual ~Walk() = default;
  void run() { region(k_.body); }

 protected:
  virtual void before(OpId id) = 0;
  virtual void enter(const Prover::Between&) {}

  const ir::Kernel& k_;
  std::vector<Prover::Condition> conditions_;
  std::vector<Prover::Between> scope_;
  std::vector<Value> visible_;  // integers

 private:
  void make(const std::vector<Value>& values) {
    for (const Value v : values)
      if (is_integer(k_, v)) visible_.push_back(v);
  }
  void region(ir::RegionId r) {
    const size_t outside = visible_.size();
    make(k_.region(r).args);
    for (const OpId id : k_.region(r).ops) {
      before(id);
      const ir::Op& o = k_.op(id);
      for (size_t i = 0; i < o.regions.size(); ++i) {
        if (o.code == Opcode::if_) conditions_.push_back({o.operands[0], i == 0});
        if (o.code == Opcode::for_) {
          scope_.push_back({k_.region(o.regions[i]).args[0], o.operands[0], o.operands[1], o.operands[2]});
          enter(scope_.back());
        }
        region(o.regions[i]);
        if (o.code == Opcode::if_) conditions_.pop_back();
        if (o.code == Opcode::for_) scope_.pop_back();
      }
      make(o.results);
    }
    visible_.resize(outside);
  }
};

// Sums that say something: positions of accesses, what is made, what is compared, and any.
class Collect : public Walk {
 public:
  Collect(const ir::Kernel& k, Random& random, size_t most, size_t first) : Walk(k), first_(first), random_(random) {
    std::vector<size_t> ops(k.ops.size() - first);
    for (size_t i = 0; i < ops.size(); ++i) ops[i] = first + i;
    random_.shuffle(ops);
    ops.resize(std::min(ops.size(), most));
    points_.insert(ops.begin(), ops.end());
  }
  std::vector<WatchedSum> sums;

 private:
  void before(OpId id) override {
    const ir::Op& o = k_.op(id);
    if (id.index < first_) return;
    if (ir::accesses_ref(o.code)) access(id, o);
    if (!visible_.empty() && visible_.back() != last_) {
      add(id, {{1, last_ = visible_.back()}});
      digits(id, last_);
    }
    for (const Value v : o.operands)
      if (k_.def(v) && !k_.type(v).is_ref && k_.type(v).dtype == DType::boolean) compared(id, v, 3);
    if (!conditions_.empty() && conditions_.back().v != branch_) compared(id, branch_ = conditions_.back().v, 3);
    if (!points_.contains(id.index) || visible_.empty()) return;
    const auto any = [&] {
      const size_t n = visible_.size();
      return visible_[random_.chance(0.5) ? random_.below(n) : n - 1 - random_.below(std::min<size_t>(n, 12))];
    };
    for (int i = 0; i < 2; ++i) {
      Sum sum{{random_.in(1, 3), any()}};
      while (sum.size() < 4 && random_.chance(0.6)) {
        const int64_t factor = random_.in(-2, 2);
        sum.emplace_back(factor, any());
      }
      add(id, std::move(sum));
    }
    if (!scope_.empty()) {
      const Prover::Between& b = random_.pick(scope_);
      add(id, {{1, random_.chance(0.5) ? any() : b.end}, {-1, b.v}});
      add(id, {{1, b.v}, {-1, b.low}});
    }
  }
  void add(OpId id, Sum sum, Value mask = {}) { sums.push_back({id, std::move(sum), mask}); }
  // The position in its memory.
  void access(OpId id, const ir::Op& o) {
    if (o.index.size() != 1) return;
    Sum sum;
    if (!o.index[0].is_static()) sum.emplace_back(1, o.operand_of(o.index[0]));
    for (const ir::Op* view = k_.def(o.operands[0]); view && view->code == Opcode::view;
         view = k_.def(view->operands[0]))
      sum.emplace_back(1, view->operands[1]);
    if (!sum.empty())
      add(id, std::move(sum), o.has_mask() ? o.operands[static_cast<size_t>(o.mask_position())] : Value{});
  }
  // Two parts of one number, put together.
  void digits(OpId id, Value v) {
    const ir::Op* lower = k_.def(v);
    if (!lower || (lower->code != Opcode::rem && lower->code != Opcode::and_)) return;
    for (size_t i = visible_.size(); i-- > std::max<size_t>(visible_.size(), 6) - 6;) {
      const ir::Op* upper = k_.def(visible_[i]);
      if (!upper || upper->operands.size() != 2 || upper->operands[0] != lower->operands[0]) continue;
      const auto by = ir::constant_int(k_, upper->operands[1]);
      if (!by || *by < 1 || *by > 30) continue;
      if (upper->code == Opcode::div) add(id, {{*by, visible_[i]}, {1, v}});
      if (upper->code == Opcode::shift_right_logical) add(id, {{int64_t{1} << *by, visible_[i]}, {1, v}});
    }
  }
  void compared(OpId id, Value v, int depth) {
    const ir::Op* o = k_.def(v);
    if (!o || depth == 0) return;
    if (ir::is_comparison(o->code) && is_integer(k_, o->operands[0])) {
      add(id, {{1, o->operands[0]}, {-1, o->operands[1]}});
      for (const Value x : o->operands) add(id, {{1, x}});
    } else if (o->code == Opcode::and_ || o->code == Opcode::or_ || o->code == Opcode::not_) {
      for (const Value x : o->operands)
        if (k_.type(x).dtype == DType::boolean) compared(id, x, depth - 1);
    }
  }

  const size_t first_;
  Random& random_;
  std::set<size_t> points_;
  Value last_, branch_;
};

std::string place(const ir::Kernel& k, OpId before, const SeenSum::End& e) {
  const ir::Op& op = k.op(before);
  return " in invocation " + std::to_string(e.invocation) + " of workgroup " + std::to_string(e.workgroup) +
         ", before `" + lane::op_text(k, op) + "`" + (op.loc ? " (" + to_string(op.loc) + ")" : "");
}

// Asks for more than what was seen.
class Ask : public Walk {
 public:
  /// The sums from `first` on.
  Ask(const ir::Kernel& k, uint64_t seed, const std::vector<WatchedSum>& watched, const std::vector<SeenSum>& seen,
      size_t first)
      : Walk(k), watched_(watched), seen_(seen), prover_(k), random_(seed) {
    for (size_t i = first; i < watched.size(); ++i) at_[watched[i].before.index].push_back(i);
  }
  std::optional<std::string> broken;

 private:
  void enter(const Prover::Between& b) override { prover_.between(b); }
  void before(OpId id) override {
    const auto it = at_.find(id.index);
    if (it == at_.end() || broken) return;
    for (const size_t i : it->second) {
      const WatchedSum& w = watched_[i];
      if (seen_[i].times == 0) continue;
      if (w.mask) conditions_.push_back({w.mask, true});
      ask(w, seen_[i].least, 1);
      ask(w, seen_[i].greatest, -1);
      if (w.mask) conditions_.pop_back();
    }
  }
  // That the sum, or minus the sum, is more than it was there.
  void ask(const WatchedSum& w, const SeenSum::End& end, int64_t sign) {
    constexpr int64_t kBeyond[] = {1, 1, 1, 1, 2, 7, 1000};
    const int64_t times = random_.chance(0.7) ? 1 : random_.in(2, 4);
    const __int128 least = end.value * sign * times + kBeyond[random_.below(std::size(kBeyond))];
    if (least > INT64_MAX || least < -INT64_MAX || broken) return;
    std::vector<Prover::Term> terms{{-static_cast<int64_t>(least), {}}};
    for (const auto& [factor, v] : w.sum) terms.emplace_back(sign * times * factor, v);
    if (!prover_.not_negative(terms, conditions_, scope_)) return;
    std::string text;
    for (const auto& [factor, v] : w.sum) {
      const ir::Op* made = k_.def(v);
      const int64_t f = sign * times * factor;
      text += (text.empty() ? "" : " + ") + (f == 1 ? "" : std::to_string(f) + " * ") + "value " +
              std::to_string(v.index) + " (" + (made ? lane::op_text(k_, *made) : "an argument") + ")";
    }
    broken = "the prover proves that " + text + " is at least " + show(least) + ", but it is " +
             show(end.value * sign * times) + place(k_, w.before, end);
  }

  const std::vector<WatchedSum>& watched_;
  const std::vector<SeenSum>& seen_;
  Prover prover_;
  Random random_;
  std::unordered_map<uint32_t, std::vector<size_t>> at_;  // by op
};
}  // namespace

Proofs::Proofs(const ir::Kernel& lanes, uint64_t seed, size_t most, size_t first) : k_(lanes), seed_(seed) {
  conditions_ = lowering::known_conditions(lanes);
  for (const lowering::KnownCondition& c : conditions_)
    watched_.push_back({c.op, {{1, lanes.op(c.op).operands[c.operand]}}});
  Random random(seed);
  Collect all(lanes, random, most / 4, first);
  all.run();
  random.shuffle(all.sums);
  all.sums.resize(std::min(all.sums.size(), most));
  watched_.insert(watched_.end(), all.sums.begin(), all.sums.end());
}

std::optional<std::string> Proofs::broken(const std::vector<SeenSum>& seen) const {
  for (size_t i = 0; i < conditions_.size(); ++i) {
    const lowering::KnownCondition& c = conditions_[i];
    const SeenSum::End& e = c.holds ? seen[i].least : seen[i].greatest;
    if (seen[i].times > 0 && (e.value != 0) != c.holds)
      return "operand " + std::to_string(c.operand) + " is known to be " + (c.holds ? "true" : "false") +
             ", but it is not" + place(k_, c.op, e);
  }
  Ask ask(k_, seed_, watched_, seen, conditions_.size());
  ask.run();
  return ask.broken;
}

}  // namespace tessera::fuzz
