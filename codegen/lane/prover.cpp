#include "codegen/lane/prover.h"

#include <algorithm>
#include <numeric>

#include "engine/base/function.h"
#include "engine/passes/ranges.h"

namespace tessera::lane {
using ir::Opcode;
using ir::Value;

namespace {
using Wide = __int128;
constexpr Wide kFar = Wide{1} << 80;   // beyond every value
constexpr Wide kMost = Wide{1} << 56;  // factors and constants beyond this prove nothing
constexpr size_t kTerms = 64;          // nor do longer sums: 64 factors of 56 bits times values of 64 stay in 126 bits
constexpr int kSteps = 1500, kDepth = 14;

std::pair<Wide, Wide> type_range(DType t) {
  if (!is_int(t)) return {-kFar, kFar};
  const int n = bits(t);
  if (is_unsigned_int(t)) return {0, (Wide{1} << n) - 1};
  return {-(Wide{1} << (n - 1)), (Wide{1} << (n - 1)) - 1};
}
// Node i of an extent, as an extent.
Extent part(const Extent& e, size_t i) {
  const Extent::Node& n = e.nodes()[i];
  if (const auto* constant = std::get_if<int64_t>(&n)) return *constant;
  if (const auto* name = std::get_if<std::string>(&n)) return Extent::named(*name);
  const auto& o = std::get<Extent::Operation>(n);
  return Extent::make(o.op, part(e, o.lhs), part(e, o.rhs));
}
}  // namespace

bool Prover::small(const Form& f) {
  const auto is = [](Wide c) { return c < kMost && c > -kMost; };
  return is(f.constant) && f.terms.size() <= kTerms &&
         std::all_of(f.terms.begin(), f.terms.end(), [&](const auto& t) { return is(t.second); });
}

void Prover::between(const Between& b) {
  between_[b.v.index] = b;
  forms_.erase(b.v.index);
  ranges_.erase(b.v.index);
}

Prover::Form Prover::plus(const Form& a, const Form& b, Wide factor) {
  Form r;
  r.constant = a.constant + factor * b.constant;
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    if (j == b.terms.size() || (i < a.terms.size() && a.terms[i].first < b.terms[j].first))
      r.terms.push_back(a.terms[i++]);
    else if (i == a.terms.size() || b.terms[j].first < a.terms[i].first)
      r.terms.emplace_back(b.terms[j].first, factor * b.terms[j].second), ++j;
    else {
      const Wide c = a.terms[i].second + factor * b.terms[j].second;
      if (c != 0) r.terms.emplace_back(a.terms[i].first, c);
      ++i, ++j;
    }
  }
  return r;
}

Prover::Interval Prover::range(const Form& f) {
  Interval r{f.constant, f.constant};
  if (!f.terms.empty() && !small(f)) return {-kFar, kFar};
  for (const auto& [atom, c] : f.terms) {
    const Interval x = range(atom);
    if (x.lo <= -kFar || x.hi >= kFar) return {-kFar, kFar};
    r.lo += c * (c > 0 ? x.lo : x.hi);
    r.hi += c * (c > 0 ? x.hi : x.lo);
  }
  return r;
}

// What is computed without wrapping is its form; else the value stands for itself.
Prover::Form Prover::exact_or_atom(Value v, Form f) {
  const Form atom{{{v.index, 1}}, 0};
  if (!small(f)) return atom;
  const auto [lo, hi] = type_range(k_.type(v).dtype);
  const Interval r = range(f);
  return r.lo >= lo && r.hi <= hi ? f : atom;
}

const Prover::Form& Prover::form(Value v) {
  if (const auto it = forms_.find(v.index); it != forms_.end()) return it->second;
  Form f = compute(v);
  return forms_[v.index] = std::move(f);
}

Prover::Form Prover::replaced(const Form& f, uint32_t atom, const Form& with) {
  const auto at = std::find_if(f.terms.begin(), f.terms.end(), [&](const auto& t) { return t.first == atom; });
  if (at == f.terms.end()) return f;
  const Wide c = at->second;
  return plus(plus(f, {{{atom, 1}}, 0}, -c), with, c);
}

// A sum, difference or product with a constant, if it does not wrap.
std::optional<Prover::Form> Prover::unwrapped(Value v) {
  const ir::Op* o = k_.def(v);
  if (!o || between_.count(v.index)) return std::nullopt;
  const auto operand = [&](size_t i) { return form(o->operands[i]); };
  if (o->code == Opcode::add || o->code == Opcode::sub) {
    const Form right = operand(1);
    return plus(operand(0), right, o->code == Opcode::add ? 1 : -1);
  }
  if (o->code != Opcode::mul) return std::nullopt;
  if (const Form right = operand(1); right.terms.empty()) return plus({}, operand(0), right.constant);
  return std::nullopt;
}

// The greatest value of what `b` bounds.
Prover::Form Prover::last(const Between& b) {
  if (!b.end) return {{}, type_range(k_.type(b.v).dtype).second};
  Form r = form(b.end);
  r.constant -= 1;
  if (!b.step || !r.terms.empty()) return r;
  const Form low = form(b.low), step = form(b.step);
  if (low.terms.empty() && step.terms.empty() && step.constant > 1 && r.constant >= low.constant)
    r.constant -= (r.constant - low.constant) % step.constant;
  return r;
}

// x % b is x - b * (x / b), where the form has both.
std::optional<Prover::Form> Prover::without_digit(const Form& f, uint32_t atom) {
  struct Digit {
    Value x;
    Wide base;
    bool upper;
  };
  const auto digit = [&](uint32_t a) -> std::optional<Digit> {
    const ir::Op* o = a < kSizes ? k_.def(Value{a}) : nullptr;
    if (!o || o->operands.size() != 2 || !is_int(k_.type(o->operands[0]).dtype)) return std::nullopt;
    const Form& by = form(o->operands[1]);
    if (!by.terms.empty() || range(form(o->operands[0])).lo < 0) return std::nullopt;
    const Wide n = by.constant;
    const bool div = o->code == Opcode::div;
    if ((div || o->code == Opcode::rem) && n >= 1) return Digit{o->operands[0], n, div};
    if (o->code == Opcode::shift_right_logical && n >= 0 && n < 31)
      return Digit{o->operands[0], Wide{1} << static_cast<int>(n), true};
    if (o->code == Opcode::and_ && n >= 0 && (n & (n + 1)) == 0) return Digit{o->operands[0], n + 1, false};
    return std::nullopt;
  };
  const auto mine = digit(atom);
  if (!mine) return std::nullopt;
  for (const auto& [other, c] : f.terms) {
    const auto d = digit(other);
    if (!d || d->x != mine->x || d->base != mine->base || d->upper == mine->upper) continue;
    const uint32_t upper = mine->upper ? atom : other, lower = mine->upper ? other : atom;
    return replaced(f, lower, plus(form(mine->x), {{{upper, 1}}, 0}, -mine->base));
  }
  return std::nullopt;
}

Prover::Form Prover::compute(Value v) {
  const Form atom{{{v.index, 1}}, 0};
  const ir::Op* o = k_.def(v);
  if (!o || !is_int(k_.type(v).dtype) || between_.count(v.index)) return atom;
  if (const auto c = ir::constant_int(k_, v)) {
    const bool beyond = k_.type(v).dtype == DType::u64 && *c < 0;  // 2^63 and more
    return beyond ? atom : Form{{}, *c};
  }
  if (o->code == Opcode::add || o->code == Opcode::sub) {
    const Form& right = form(o->operands[1]);
    return exact_or_atom(v, plus(form(o->operands[0]), right, o->code == Opcode::add ? 1 : -1));
  }
  if (o->code == Opcode::mul) {
    const Form &a = form(o->operands[0]), &b = form(o->operands[1]);
    if (b.terms.empty()) return exact_or_atom(v, plus({}, a, b.constant));
    return a.terms.empty() ? exact_or_atom(v, plus({}, b, a.constant)) : atom;
  }
  if (o->code == Opcode::convert && is_int(k_.type(o->operands[0]).dtype))
    return exact_or_atom(v, form(o->operands[0]));
  if (o->code == Opcode::extent && !passes::tells_steps(k_.lane, o->attr(ir::Attr::index))) {
    const Extent& e = k_.lane.extents.at(static_cast<size_t>(o->attr(ir::Attr::index)));
    return exact_or_atom(v, size(e, e.nodes().size() - 1));
  }
  return atom;
}

// -- sizes that arrive with the call
Prover::Form Prover::size(const Extent& e, size_t node) {
  const Extent::Node& n = e.nodes()[node];
  if (const auto* constant = std::get_if<int64_t>(&n)) return {{}, *constant};
  if (const auto* o = std::get_if<Extent::Operation>(&n)) {
    if (o->op == Extent::Op::add || o->op == Extent::Op::sub) {
      const Form right = size(e, o->rhs);
      return plus(size(e, o->lhs), right, o->op == Extent::Op::add ? 1 : -1);
    }
    if (o->op == Extent::Op::mul) {
      const Form a = size(e, o->lhs), b = size(e, o->rhs);
      if (b.terms.empty() && b.constant < INT32_MAX) return plus({}, a, b.constant);
      if (a.terms.empty() && a.constant < INT32_MAX) return plus({}, b, a.constant);
    }
  }
  return {{{size_atom(e, node), 1}}, 0};
}

uint32_t Prover::size_atom(const Extent& e, size_t node) {
  const auto [it, added] = sizes_.try_emplace(to_string(part(e, node)), static_cast<uint32_t>(kSizes + sizes_.size()));
  const uint32_t atom = it->second;
  if (!added) return atom;
  const Extent::Node& n = e.nodes()[node];
  Interval& r = size_ranges_[atom] = {-kFar, kFar};
  if (std::holds_alternative<std::string>(n)) r = {0, INT32_MAX};  // a launch refuses others
  const auto* o = std::get_if<Extent::Operation>(&n);
  if (!o || (o->op != Extent::Op::cdiv && o->op != Extent::Op::floordiv)) return atom;
  const Form a = size(e, o->lhs), b = size(e, o->rhs);
  if (!b.terms.empty() || b.constant < 1 || b.constant > INT32_MAX) return atom;
  // a <= b * atom < a + b, or a - b < b * atom <= a.
  const bool up = o->op == Extent::Op::cdiv;
  const Form times{{{atom, b.constant}}, 0};
  size_facts_.push_back(plus(plus(times, a, -1), {{}, 1}, up ? 0 : b.constant - 1));
  size_facts_.push_back(plus(plus(a, times, -1), {{}, 1}, up ? b.constant - 1 : 0));
  const Interval x = range(a);
  if (x.lo >= 0 && x.hi < kFar)
    size_ranges_[atom] = {(x.lo + (up ? b.constant - 1 : 0)) / b.constant,
                          (x.hi + (up ? b.constant - 1 : 0)) / b.constant};
  return atom;
}

// -- intervals
Prover::Interval Prover::range(uint32_t atom) {
  if (atom >= kSizes) return size_ranges_.at(atom);
  if (const auto it = ranges_.find(atom); it != ranges_.end()) return it->second;
  const auto [lo, hi] = type_range(k_.type(Value{atom}).dtype);
  Interval r = compute_range(atom);
  if (r.lo < lo || r.hi > hi || r.lo > r.hi) r = {lo, hi};
  return ranges_[atom] = r;
}

Prover::Interval Prover::compute_range(uint32_t atom) {
  const Value v{atom};
  const auto [lo, hi] = type_range(k_.type(v).dtype);
  const Interval any{lo, hi};
  if (const auto it = between_.find(atom); it != between_.end()) {
    return {std::max(range(form(it->second.low)).lo, lo), std::min(range(last(it->second)).hi, hi)};
  }
  const ir::Op* o = k_.def(v);
  if (!o) return any;
  const auto of = [&](size_t i) {
    const Interval r = range(form(o->operands[i]));
    const auto [least, most] = type_range(k_.type(o->operands[i]).dtype);
    return r.lo <= -kFar || r.hi >= kFar ? Interval{least, most} : r;
  };
  // With a default: of an op without a case only its dtype is known. Whatever stands here the proofs believe.
  switch (o->code) {
    case Opcode::workgroup_index:
      return {0, k_.lane.exact ? std::max<int64_t>(k_.lane.num_units.value().value_or(int64_t{1} << 31), 1) - 1
                               : INT32_MAX};
    case Opcode::num_workgroups: return {0, INT32_MAX};
    case Opcode::local_index:
    case Opcode::lane_id:
    case Opcode::subgroup_id: return {0, std::max(k_.lane.workgroup_size, 1) - 1};
    case Opcode::thread_index: return {0, std::max(k_.lane.threads, 1) - 1};
    case Opcode::min: {
      const Interval a = of(0), b = of(1);
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    }
    case Opcode::max: {
      const Interval a = of(0), b = of(1);
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    case Opcode::clamp: {
      const Interval low = of(0), x = of(1), high = of(2);
      return {std::min(std::max(x.lo, low.lo), high.lo), std::min(std::max(x.hi, low.hi), high.hi)};
    }
    case Opcode::select: {
      const Interval a = of(1), b = of(2);
      return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    case Opcode::and_: {
      const Interval a = of(0), b = of(1);
      if (a.lo >= 0 && b.lo >= 0) return {0, std::min(a.hi, b.hi)};
      return a.lo >= 0 ? Interval{0, a.hi} : b.lo >= 0 ? Interval{0, b.hi} : any;
    }
    case Opcode::div: {  // towards 0
      const Interval a = of(0), b = of(1);
      return b.lo >= 1 ? Interval{a.lo / (a.lo < 0 ? b.lo : b.hi), a.hi / (a.hi < 0 ? b.hi : b.lo)} : any;
    }
    case Opcode::rem: {  // with the sign of what is divided
      const Interval a = of(0), b = of(1);
      return b.lo >= 1 ? Interval{a.lo < 0 ? std::max(a.lo, 1 - b.hi) : 0, a.hi < 0 ? 0 : std::min(a.hi, b.hi - 1)}
                       : any;
    }
    case Opcode::shift_right_logical: {
      const Interval a = of(0), b = of(1);
      return a.lo >= 0 && b.lo == b.hi && b.lo >= 0 && b.lo < 31
                 ? Interval{a.lo >> static_cast<int>(b.lo), a.hi >> static_cast<int>(b.lo)}
                 : any;
    }
    case Opcode::add: {
      const Interval a = of(0), b = of(1);
      return {a.lo + b.lo, a.hi + b.hi};
    }
    case Opcode::sub: {
      const Interval a = of(0), b = of(1);
      return {a.lo - b.hi, a.hi - b.lo};
    }
    default: return any;
  }
}

// -- conditions
const std::vector<Prover::Form>& Prover::facts(Value condition, bool holds) {
  const auto [it, added] = facts_.try_emplace({condition.index, holds});
  std::vector<Form>& list = it->second;
  const ir::Op* o = k_.def(condition);
  if (!added || !o) return list;
  const auto all_of = [&](Value v, bool h) {
    const std::vector<Form> more = facts(v, h);
    list.insert(list.end(), more.begin(), more.end());
  };
  if (o->code == Opcode::not_) {
    all_of(o->operands[0], !holds);
    return list;
  }
  if (o->code == (holds ? Opcode::and_ : Opcode::or_)) {
    for (const Value v : o->operands) all_of(v, holds);
    return list;
  }
  if (o->operands.size() != 2 || !is_int(k_.type(o->operands[0]).dtype)) return list;
  const Value x = o->operands[0], y = o->operands[1];
  // says something where one is never the greater one
  if ((o->code == Opcode::eq && !holds) || (o->code == Opcode::ne && holds)) {
    const Form& of_x = form(x);
    Form apart = plus(form(y), of_x, -1);
    const Interval r = range(apart);
    if (r.lo < 0 && r.hi > 0) return list;
    if (r.lo < 0) apart = plus({}, apart, -1);
    apart.constant -= 1;
    list.push_back(std::move(apart));
    return list;
  }
  // low + by <= high, and so for all that low is the greatest of and high the least
  const Function<void(Value, Value, Wide)> less = [&](Value low, Value high, Wide by) {
    const Form& of_low = form(low);
    Form f = plus(form(high), of_low, -1);
    f.constant -= by;
    list.push_back(std::move(f));
    for (const auto& [v, code] : {std::pair{low, Opcode::max}, std::pair{high, Opcode::min}})
      if (const ir::Op* of = k_.def(v); of && of->code == code)
        for (const Value part : of->operands) code == Opcode::max ? less(part, high, by) : less(low, part, by);
  };
  if (o->code == Opcode::lt) holds ? less(x, y, 1) : less(y, x, 0);
  else if (o->code == Opcode::le) holds ? less(x, y, 0) : less(y, x, 1);
  else if (o->code == Opcode::gt) holds ? less(y, x, 1) : less(x, y, 0);
  else if (o->code == Opcode::ge) holds ? less(y, x, 0) : less(x, y, 1);
  else if (o->code == Opcode::eq || o->code == Opcode::ne) less(x, y, 0), less(y, x, 0);
  return list;
}

bool Prover::not_negative(const std::vector<Term>& sum, const std::vector<Condition>& conditions,
                          const std::vector<Between>& scope) {
  Form f;
  for (const auto& [factor, v] : sum) f = plus(f, v ? form(v) : Form{{}, 1}, factor);
  if (range(f).lo >= 0) return true;
  std::vector<Form> loops;
  for (const Between& b : scope) {
    const Form &counter = form(b.v), &low = form(b.low);
    loops.push_back(plus(last(b), counter, -1));
    loops.push_back(plus(counter, low, -1));
  }
  std::vector<const Form*> known;
  for (const Condition& c : conditions)
    for (const Form& g : facts(c.v, c.holds)) known.push_back(&g);
  for (const Form& g : loops) known.push_back(&g);
  for (const Form& g : size_facts_) known.push_back(&g);
  steps_ = kSteps;
  return prove(f, known, kDepth);
}

// What made the atom, in its place: a counter's end, a digit, the operands of its op.
bool Prover::prove_by_maker(const Step& s, const std::vector<const Form*>& known, int depth) {
  const auto& [f, without, atom, c] = s;
  const auto with = [&](const Form& x) { return prove(plus(s.without, x, s.c), known, depth - 1); };
  if (const auto it = between_.find(atom); it != between_.end())
    if (with(c > 0 ? form(it->second.low) : last(it->second))) return true;
  if (const auto whole = without_digit(f, atom); whole && prove(*whole, known, depth - 1)) return true;
  const ir::Op* o = k_.def(Value{atom});
  if (!o) return false;
  const auto operand = [&](size_t i) { return form(o->operands[i]); };
  if (o->code == Opcode::min || o->code == Opcode::max) {
    const bool either = (o->code == Opcode::min) == (c < 0);
    if (either ? with(operand(0)) || with(operand(1)) : with(operand(0)) && with(operand(1))) return true;
  } else if (o->code == Opcode::clamp) {  // min(max(1, 0), 2)
    if (c < 0 ? with(operand(2)) || (with(operand(0)) && with(operand(1)))
              : with(operand(2)) && (with(operand(0)) || with(operand(1))))
      return true;
  } else if (o->code == Opcode::select) {
    const auto if_it = [&](bool holds, size_t i) {
      std::vector<const Form*> more;
      for (const Form& fact : facts(o->operands[0], holds)) more.push_back(&fact);
      more.insert(more.end(), known.begin(), known.end());
      Form rest = plus(s.without, operand(i), s.c);
      for (const auto& [other, factor] : Form(rest).terms)  // of the same condition
        if (const ir::Op* like = other < kSizes ? k_.def(Value{other}) : nullptr;
            like && like->code == Opcode::select && like->operands[0] == o->operands[0])
          rest = replaced(rest, other, form(like->operands[i]));
      return prove(rest, more, depth - 1);
    };
    if (if_it(true, 1) && if_it(false, 2)) return true;
  } else if (o->code == Opcode::rem && c < 0 && range(operand(1)).lo >= 1) {
    Form x = operand(1);
    x.constant -= 1;
    if (with(x)) return true;
  } else if (o->code == Opcode::div && operand(1).terms.empty() && operand(1).constant >= 1 &&
             range(operand(0)).lo >= 0) {
    // b times what is to be proved is b * rest + c * b * (x / b), where x - b < b * (x / b) <= x; and more than -b
    // is enough, of integers.
    const Wide b = operand(1).constant;
    Form x = plus(plus({}, without, b), operand(0), c);
    x.constant += (c > 0 ? -c * (b - 1) : 0) + b - 1;
    if (prove(x, known, depth - 1)) return true;
  }
  return false;
}

// The youngest atom goes first, for what made it, for a fact that holds of it, or for its interval; then what is left
// is proved.
bool Prover::prove(const Form& given, const std::vector<const Form*>& known, int depth) {
  if (!small(given)) return false;
  // Integers: g * sum + c >= 0 says sum + floor(c / g) >= 0.
  Form f = given;
  int64_t g = 0;
  for (const auto& t : f.terms) g = std::gcd(g, static_cast<int64_t>(t.second));
  if (g > 1) {
    for (auto& t : f.terms) t.second /= g;
    const Wide rest = ((f.constant % g) + g) % g;
    f.constant = (f.constant - rest) / g;
  }
  if (range(f).lo >= 0) return true;
  if (f.terms.empty() || depth == 0 || --steps_ < 0) return false;
  // Lane values by age; sizes are older than all.
  const auto at = std::max_element(f.terms.begin(), f.terms.end(), [](const auto& a, const auto& b) {
    const auto age = [](uint32_t atom) { return atom >= kSizes ? int64_t{atom} - (int64_t{1} << 33) : int64_t{atom}; };
    return age(a.first) < age(b.first);
  });
  const uint32_t atom = at->first;
  const Wide c = at->second;
  const Form without = plus(f, {{{atom, 1}}, 0}, -c);
  const auto with = [&](const Form& x) { return prove(plus(without, x, c), known, depth - 1); };
  if (atom < kSizes && prove_by_maker({f, without, atom, c}, known, depth)) return true;
  for (const Form* fact : known) {
    const auto of =
        std::find_if(fact->terms.begin(), fact->terms.end(), [&](const auto& t) { return t.first == atom; });
    if (of == fact->terms.end() || (of->second > 0) != (c > 0)) continue;
    const Wide d = of->second > 0 ? of->second : -of->second, m = c > 0 ? c : -c;
    Form rest = plus(plus({}, f, d), *fact, -m);
    rest.constant += d - 1;  // d * f > -d is enough
    if (prove(rest, known, depth - 1)) return true;
  }
  if (atom < kSizes)
    if (const auto sum = unwrapped(Value{atom})) {
      const auto [lo, hi] = type_range(k_.type(Value{atom}).dtype);
      if (prove(plus(*sum, {{}, 1}, -lo), known, depth - 1) && prove(plus({{}, hi}, *sum, -1), known, depth - 1) &&
          with(*sum))
        return true;
    }
  const Interval r = range(atom);
  const Wide end = c > 0 ? r.lo : r.hi;
  return end > -kFar && end < kFar && with({{}, end});
}

}  // namespace tessera::lane
