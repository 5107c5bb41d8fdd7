#include "tests/support/proofs/lane_integers.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engine/ir/builder.h"
#include "tests/support/generator/random.h"

namespace tessera::fuzz {
using ir::Opcode, ir::OpId, ir::Value;

namespace {
class Writer {
 public:
  Writer(ir::Kernel& k, uint64_t seed, size_t places) : k_(k), b_(k), random_(seed), ops_(k.ops.size()) {
    for (size_t i = 0; i < places; ++i) places_.insert(static_cast<uint32_t>(random_.below(ops_)));
    region(k_.body);
  }

 private:
  static constexpr int kDepth = 3;

  void region(ir::RegionId r) {
    const size_t integers = integers_.size(), bools = bools_.size();
    make(k_.region(r).args);
    const std::vector<OpId> list = std::move(k_.regions[r.index].ops);
    k_.regions[r.index].ops.clear();
    for (const OpId id : list) {
      b_.set_region(r);
      if (places_.contains(id.index)) block(0);
      k_.regions[r.index].ops.push_back(id);
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (const ir::RegionId i : inner) region(i);
      make(std::vector<Value>(k_.op(id).results));
    }
    integers_.resize(integers), bools_.resize(bools);
  }
  void make(const std::vector<Value>& values) {
    for (const Value v : values) {
      const ir::Type& t = k_.type(v);
      if (t.is_ref || !t.shape.empty()) continue;
      if (is_int(t.dtype)) integers_.push_back(v);
      if (t.dtype == DType::boolean) bools_.push_back(v);
    }
  }

  /// Leaves what it makes visible to what follows in its region.
  void block(int depth) {
    for (int64_t n = random_.in(2, 6); n-- > 0;) {
      if (random_.chance(0.5)) integers_.push_back(integer());
      else if (random_.chance(0.6) || depth == kDepth) bools_.push_back(condition());
      else if (random_.chance(0.7)) branch(depth);
      else loop(depth);
    }
  }
  void inner(int depth) {
    const size_t integers = integers_.size(), bools = bools_.size();
    block(depth + 1);
    integers_.resize(integers), bools_.resize(bools);
  }
  void branch(int depth) {
    if (bools_.empty() || random_.chance(0.4)) bools_.push_back(condition());
    const auto side = [&] {
      inner(depth);
      return std::vector<Value>{};
    };
    b_.if_else(random_.chance(0.6) ? bools_.back() : random_.pick(bools_), side, side);
  }
  // Of a few rounds, or none; an end that wraps is before the beginning.
  void loop(int depth) {
    const Value low = of(DType::i32), span = number(DType::i32, random_.in(0, 4));
    Value end = b_.elementwise(Opcode::add, {low, span});
    if (random_.chance(0.4)) end = b_.elementwise(Opcode::min, {end, of(DType::i32)});
    const Value step = number(DType::i32, random_.in(1, 3));
    b_.for_loop(low, end, step, {}, [&](Value counter, const std::vector<Value>&) {
      integers_.push_back(counter);
      inner(depth);
      integers_.pop_back();
      return std::vector<Value>{};
    });
  }

  DType dtype() {
    constexpr DType kTypes[] = {DType::i32, DType::i32, DType::i32, DType::i64, DType::i64, DType::u64,
                                DType::u32, DType::i16, DType::u16, DType::i8,  DType::u8};
    return kTypes[random_.below(std::size(kTypes))];
  }
  Value number(DType t, int64_t v) { return b_.constant_int(t, v); }
  Value number(DType t) {
    const int n = bits(t);
    if (random_.chance(0.6)) return number(t, random_.in(is_signed_int(t) ? -9 : 0, 9));
    if (random_.chance(0.3) && !is_signed_int(t)) return number(t, random_.in(-3, -1));  // the last ones
    const size_t place = random_.chance(0.2) ? static_cast<size_t>(n) - 1 : random_.below(static_cast<size_t>(n));
    const uint64_t near = (uint64_t{1} << place) + static_cast<uint64_t>(random_.in(-2, 2));
    return number(t, static_cast<int64_t>(near));  // wraps
  }
  // Rather one of the last ones.
  Value any() {
    const size_t n = integers_.size();
    return integers_[random_.chance(0.3) ? random_.below(n) : n - 1 - random_.below(std::min<size_t>(n, 6))];
  }
  Value of(DType t) {
    if (integers_.empty()) return number(t);
    return b_.convert(any(), t);
  }
  Value size() {
    std::vector<Extent>& all = k_.lane.extents;
    if (all.empty() || k_.lane.steps_extent >= 0) return number(DType::i32);
    Extent e = all[random_.below(all.size())];
    const Extent by = random_.in(1, 9);
    switch (random_.below(5)) {
      case 0: e = Extent::make(Extent::Op::cdiv, e, by); break;
      case 1: e = Extent::make(Extent::Op::floordiv, e, by); break;
      case 2: e = e * by; break;
      case 3: e = e - by; break;
      default: e = e + all[random_.below(all.size())]; break;
    }
    all.push_back(e);
    k_.lane.extent_is_64.resize(all.size(), false);
    const bool wide = random_.chance(0.5);
    k_.lane.extent_is_64.back() = wide;
    ir::Op o{.code = Opcode::extent};
    o.set(ir::Attr::index, static_cast<int64_t>(all.size() - 1));
    return b_.one(std::move(o), ir::Type::array(wide ? DType::i64 : DType::i32));
  }

  Value integer() {
    if (integers_.empty() || random_.chance(0.1)) return number(dtype());
    if (random_.chance(0.08)) return size();
    if (random_.chance(0.12)) return spread();
    if (random_.chance(0.12)) return narrowed(any());
    if (random_.chance(0.15)) return bounded(any());
    if (random_.chance(0.06)) return digits();
    constexpr Opcode kOps[] = {Opcode::add,
                               Opcode::sub,
                               Opcode::mul,
                               Opcode::div,
                               Opcode::rem,
                               Opcode::min,
                               Opcode::max,
                               Opcode::and_,
                               Opcode::or_,
                               Opcode::xor_,
                               Opcode::clamp,
                               Opcode::select,
                               Opcode::shift_left,
                               Opcode::shift_right_logical,
                               Opcode::shift_right_arithmetic,
                               Opcode::abs,
                               Opcode::neg,
                               Opcode::convert};
    const Opcode op = kOps[random_.below(std::size(kOps))];
    const Value x = any();
    const DType t = k_.type(x).dtype;
    if (op == Opcode::convert) return b_.convert(x, dtype());
    if (op == Opcode::abs || op == Opcode::neg) return b_.elementwise(op, {x});
    const auto other = [&] { return random_.chance(0.5) ? number(t) : random_.chance(0.3) ? bounded(of(t)) : of(t); };
    const Value y = other();
    if (op == Opcode::clamp) {
      const Value z = other();
      return b_.elementwise(op, {y, x, z});
    }
    if (op == Opcode::select) {
      if (bools_.empty()) bools_.push_back(condition());
      return b_.elementwise(op, {random_.chance(0.5) ? bools_.back() : random_.pick(bools_), x, y});
    }
    return random_.chance(0.2) ? b_.elementwise(op, {y, x}) : b_.elementwise(op, {x, y});
  }
  /// Of few numbers, often none of them negative.
  Value bounded(Value x) {
    const DType t = k_.type(x).dtype;
    const int64_t least = random_.in(is_signed_int(t) ? -3 : 0, 3);
    const Value low = number(t, least), high = number(t, least + random_.in(0, 20));
    switch (random_.below(4)) {
      case 0: return b_.elementwise(Opcode::clamp, {low, x, high});
      case 1: return b_.elementwise(Opcode::max, {x, low});
      case 2: {
        const Value below = b_.elementwise(Opcode::min, {x, high});
        return b_.elementwise(Opcode::max, {below, low});
      }
      default: return b_.elementwise(Opcode::and_, {x, high});
    }
  }
  /// Parts of a number that is mostly not negative, and their sum.
  Value digits() {
    const Value any_x = any();
    const DType t = k_.type(any_x).dtype;
    const Value zero = number(t, 0), x = random_.chance(0.3) ? any_x : b_.elementwise(Opcode::max, {any_x, zero});
    const int shift = static_cast<int>(random_.in(1, 3));
    const bool bits = random_.chance(0.4);
    const Value by = number(t, bits ? int64_t{1} << shift : random_.in(2, 9));
    const Value places = number(t, shift), mask = number(t, (int64_t{1} << shift) - 1);
    const Value upper = bits && random_.chance(0.7) ? b_.elementwise(Opcode::shift_right_logical, {x, places})
                                                    : b_.elementwise(Opcode::div, {x, by});
    const Value lower =
        bits && random_.chance(0.7) ? b_.elementwise(Opcode::and_, {x, mask}) : b_.elementwise(Opcode::rem, {x, by});
    integers_.push_back(upper), integers_.push_back(lower);
    const Value all = random_.chance(0.7) ? b_.elementwise(Opcode::mul, {upper, by}) : upper;
    return b_.elementwise(random_.chance(0.7) ? Opcode::add : Opcode::sub, {all, lower});
  }
  /// Any number of its dtype, in each invocation another one: products that wrap.
  Value spread() {
    const DType t = dtype();
    const Value x = of(t), by = number(t, static_cast<int64_t>(random_.next() | 1));
    return b_.elementwise(Opcode::mul, {x, by});
  }
  /// A large number's part, small enough that the prover counts with it.
  Value narrowed(Value x) {
    const DType t = k_.type(x).dtype;
    const int n = bits(t), low = static_cast<int>(random_.in(1, std::min(6, n - 1)));
    if (random_.chance(0.4)) return b_.elementwise(Opcode::shift_right_logical, {x, number(t, n - low)});
    const uint64_t power = uint64_t{1} << (n - low);
    const uint64_t near = random_.chance(0.5) ? power : power + static_cast<uint64_t>(random_.in(-2, 2));
    const Value by = number(t, static_cast<int64_t>(near));
    if (random_.chance(0.2)) x = b_.elementwise(random_.chance(0.5) ? Opcode::min : Opcode::sub, {x, by});
    return b_.elementwise(Opcode::div, {x, by});
  }
  Value condition() {
    if (!bools_.empty() && random_.chance(0.35)) {
      const Value x = random_.pick(bools_), y = bools_.back();
      if (random_.chance(0.4)) return b_.elementwise(Opcode::not_, {x});
      return b_.elementwise(random_.chance(0.5) ? Opcode::and_ : Opcode::or_, {x, y});
    }
    constexpr Opcode kOps[] = {Opcode::eq, Opcode::ne, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge};
    const Value x = integers_.empty() ? number(DType::i32) : any();
    const DType t = k_.type(x).dtype;
    const Value y = random_.chance(0.5) ? number(t) : of(t);
    const Opcode op = kOps[random_.below(std::size(kOps))];
    return random_.chance(0.3) ? b_.elementwise(op, {y, x}) : b_.elementwise(op, {x, y});
  }

  ir::Kernel& k_;
  ir::Builder b_;
  Random random_;
  const size_t ops_;
  std::set<uint32_t> places_;
  std::vector<Value> integers_, bools_;  // in scope
};
}  // namespace

ir::Kernel with_random_integers(const ir::Kernel& lanes, uint64_t seed, size_t places) {
  ir::Kernel k = lanes;
  if (!k.ops.empty()) Writer(k, seed, places);
  return k;
}

}  // namespace tessera::fuzz
