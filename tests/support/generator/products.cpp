// Random sums of products, reshapes around products, and products of bytes.
#include <algorithm>
#include <array>

#include "tests/support/generator/patterns.h"

namespace tessera::fuzz {

// -- sums of products

// An array from which each term takes its own operand, [rows, columns].
Patterns::Source Patterns::source(int64_t rows, int64_t columns, int64_t terms, DType t, int64_t rounds) {
  Source s;
  s.rows = rows, s.columns = columns;
  s.turned = random_.chance(0.25);
  if (s.turned) std::swap(s.rows, s.columns);
  s.form = static_cast<int>(random_.below(6));
  s.constant = random_.in(0, 2);
  s.operation = random_.chance(0.6) ? 0 : static_cast<int>(random_.in(1, 4));
  const int64_t more = random_.chance(0.2) ? random_.in(1, 4) : 0;
  Dims dims;
  switch (s.form) {
    case 0:  // side by side, or overlapping
      s.by = random_.chance(0.5) ? s.columns : random_.in(1, 8);
      dims = {all_of(s.rows), all_of((terms + 1) * s.by + s.columns + more)};
      break;
    case 1:  // shifted windows of one
      s.by = random_.chance(0.3) ? s.rows : random_.in(1, 3);
      dims = {all_of((terms + 1) * s.by + s.rows + more), all_of(s.columns)};
      break;
    case 2:  // of a picture, at the rows and columns of the taps
    case 3: {
      s.height = 2;
      for (int64_t h = 2; h <= s.rows / 2; ++h)
        if (s.rows % h == 0 && random_.chance(0.5)) s.height = h;
      if (s.rows % s.height != 0) s.height = 1;
      s.inner = 1;
      for (int64_t w = 2; w <= terms; ++w)
        if (terms % w == 0 && random_.chance(0.5)) s.inner = w;
      const int64_t step = random_.chance(0.2) ? 2 : 1;
      s.by = step;
      dims = {all_of(s.height * step + terms / s.inner + 1), all_of(s.rows / s.height * step + s.inner + 1),
              all_of(s.columns)};
      if (s.form == 3) dims.insert(dims.begin(), all_of(random_.chance(0.5) ? s.height : 3));
      break;
    }
    case 4: dims = {all_of(terms + more + 1), all_of(s.rows), all_of(s.columns)}; break;
    default: dims = {all_of(s.rows), all_of(terms + more + 1), all_of(s.columns)}; break;
  }
  s.rounds = rounds > 0 && random_.chance(0.7);
  if (s.rounds) dims.insert(dims.begin(), all_of(rounds));
  s.ref = array_of(t, around(dims, false), false, 2);
  return s;
}

Value Patterns::operand(const Source& s, int64_t term) {
  const auto window = [](int64_t start, int64_t size, int64_t step = 1) {
    return Index{Index::Slice{start, size, step}};
  };
  Indices at;
  const int64_t h = s.height, w = s.rows / h;
  switch (s.form) {
    case 0: at = {Index::all(s.rows), window(term * s.by, s.columns)}; break;
    case 1: at = {window(term * s.by, s.rows), Index::all(s.columns)}; break;
    case 2:
    case 3:
      at = {window(term / s.inner, h, s.by), window(term % s.inner, w, s.by), Index::all(s.columns)};
      if (s.form == 3) at.insert(at.begin(), Index::at(s.constant % refs_[s.ref].shape[s.rounds ? 1 : 0]));
      break;
    case 4: at = {Index::at(term), Index::all(s.rows), Index::all(s.columns)}; break;
    default: at = {Index::all(s.rows), Index::at(term), Index::all(s.columns)}; break;
  }
  const std::pair key{s.ref, term};
  if (const auto found = loaded_.find(key); found != loaded_.end() && random_.chance(0.8)) return found->second;
  std::vector<Value> starts;
  if (s.rounds) at.insert(at.begin(), Index::at(Index::Dynamic{1})), starts.push_back(round_);
  Value v = load_at(s.ref, at, starts);
  if (s.form == 2 || s.form == 3) v = values_.reshape(v, {s.rows, s.columns});
  loaded_[key] = v;
  return v;
}

Value Patterns::term(const Source& a, const Source& b, int64_t left, int64_t right, DType to) {
  const auto changed = [&](const Source& s, int64_t term) {
    Value v = operand(s, term);
    const ir::Type t = values_.type(v);
    if (s.operation == 1) return *values_.apply(Opcode::max, {v, values_.constant(t.dtype, 1, t.shape)});
    if (s.operation == 2) return *values_.apply(Opcode::max, {v, operand(s, s.constant)});  // which varies elsewhere
    if (s.operation == 3) return *values_.apply(Opcode::min, {operand(s, term / 2), v});
    return v;
  };
  const Value x = changed(a, left), y = changed(b, right);
  return values_.product(x, y, {{a.turned ? 0 : 1}, {b.turned ? 1 : 0}, {}, {}}, to);
}

// start + term + term ...; `start` may be missing.
Value Patterns::sum_of(const Source& a, const Source& b, int64_t terms, DType to, Value start) {
  // Which operand each term takes: its own, one and the same, the other way round.
  const auto way_of = [&] { return static_cast<int>(random_.chance(0.6) ? 0 : random_.in(1, 4)); };
  const int left = way_of(), right = way_of();
  const auto which = [&](int way, int64_t i) {
    return way == 0 ? i : way == 1 ? 0 : way == 2 ? terms - 1 - i : way == 3 ? (i + 1) % terms : terms / 2;
  };
  const int64_t odd = random_.chance(0.2) ? random_.in(0, terms - 1) : -1;
  const bool first = random_.chance(0.3), two = random_.chance(0.2);
  Value sum = start, other;  // other: a second sum, term by term, of nearly the same operands
  const auto add = [&](Value& to_it, Value d) {
    if (!to_it) to_it = d;
    else to_it = values_.apply(Opcode::add, first ? std::vector{d, to_it} : std::vector{to_it, d}).value_or(to_it);
  };
  for (int64_t i = 0; i < terms; ++i) {
    add(sum, term(a, b, which(left, i) + (i == odd), which(right, i), to));
    if (two) add(other, term(a, b, which(right, i), which(left, i), to));
    if (random_.chance(0.02)) values_.pool.push_back(sum);
  }
  return two ? joined(sum, other) : sum;
}

void Patterns::sums() {
  if (random_.chance(0.4)) axes(random_.chance(0.7) ? std::vector{random_.in(1, 3)} : std::vector<int64_t>{2, 2});
  static const std::vector<DType> kTypes{DType::f32, DType::f32,  DType::f32, DType::i32,
                                         DType::f16, DType::bf16, DType::i8,  DType::u8};
  const DType t = random_.pick(kTypes), to = random_.chance(0.15) ? t : wider(t);
  static const std::vector<std::array<int64_t, 3>> kSizes{{32, 32, 32}, {64, 32, 16}, {16, 64, 32}, {32, 16, 64},
                                                          {48, 32, 24}, {64, 64, 8},  {40, 36, 24}, {16, 16, 16}};
  auto [m, n, k] = random_.pick(kSizes);
  const int64_t terms = random_.chance(0.1) ? random_.in(2, 3) : random_.pick(std::vector<int64_t>{4, 4, 5, 6, 8, 9}),
                rounds = (is_int(to) || bits(to) == 32) && random_.chance(0.2) ? random_.in(1, 3) : 0;
  const bool gram = random_.chance(0.35);
  const Source a = source(m, k, terms, t, rounds);
  Source b = a;
  b.turned = !a.turned;
  if (gram) n = m;  // with the same operands, turned
  else b = source(k, n, terms, t, rounds);
  const bool biased = random_.chance(0.3);
  const size_t bias = biased ? array_of(to, around({all_of(m), all_of(n)}, false), false, 8) : 0;
  const DType stored = random_.chance(0.8) ? to : values_.some_dtype();
  const size_t out = array_of(stored, around({all_of(m), all_of(n)}, true), true);
  open();
  const Indices all{Index::all(m), Index::all(n)};
  Value sum;
  if (biased) sum = load_at(bias, all);
  else if (rounds > 0 || random_.chance(0.5)) sum = values_.constant(to, 0, {m, n});
  if (rounds > 0) {
    const Fact f{is_float(to) ? 20000 : std::max(exact_limit(to), 1.0), 0, true, false};  // of 54 terms of 64 times 4
    const Value zero = values_.constant(DType::i32, 0), one = values_.constant(DType::i32, 1),
                end = values_.constant(DType::i32, static_cast<double>(rounds));
    const size_t outside = values_.pool.size();
    sum = values_.b.for_loop(zero, end, one, {sum}, [&](Value iv, const std::vector<Value>& carried) {
      round_ = values_.note(iv, {3, 0, true, false});
      const Value now = values_.note(carried[0], f);
      return std::vector<Value>{sum_of(a, b, terms, to, now)};
    })[0];
    values_.pool.resize(outside);
    values_.note(sum, f);
  } else {
    sum = sum_of(a, b, terms, to, sum);
  }
  if (random_.chance(0.2)) sum = mixed(sum, 1);
  store_at(out, Indices(all), sum);
}

// -- reshapes around products

// Windows of an array with a few dims more, each at an integer.
Patterns::View Patterns::view(const Shape& s, const std::vector<int64_t>& few, bool output) {
  View v;
  for (size_t d = 0; d <= s.size(); ++d) {
    while (random_.chance(0.35) && v.dims.size() < d + 2) {
      const int64_t n = output                ? random_.in(1, 2)
                        : random_.chance(0.5) ? std::min<int64_t>(random_.pick(few), 8)
                                              : random_.in(1, 3);
      v.dims.push_back(all_of(n));
      v.index.push_back(Index::at(random_.in(0, n - 1)));
      if (random_.chance(0.25)) v.dynamic.emplace_back(v.dims.size() - 1, n - 1);
    }
    if (d == s.size()) break;
    const int64_t step = random_.chance(output ? 0.07 : 0.15) ? 2 : 1,
                  more = random_.chance(output ? 0.15 : 0.4) ? random_.in(1, 3) : 0, n = (s[d] - 1) * step + 1;
    v.dims.push_back(all_of(n + more));
    v.index.push_back({Index::Slice{random_.in(0, more), s[d], step}});
    if (more > 0 && random_.chance(0.3)) v.dynamic.emplace_back(v.dims.size() - 1, more);
  }
  return v;
}

// The starts that programs or loops decide; `first`: the first one's place among the operands.
std::vector<Value> Patterns::starts(View& v, size_t first) {
  std::vector<Value> values;
  for (const auto& [d, most] : v.dynamic) {
    v.index[d].start() = Index::Dynamic{first + values.size()};
    values.push_back(values_.counted_index(most));
  }
  return values;
}

// One dim in two parts, if it is not prime.
Shape Patterns::in_parts(Shape s) {
  const size_t split = random_.below(s.size());
  const int64_t n = s[split];
  for (int64_t f = 2; f < n; ++f)
    if (n % f == 0 && random_.chance(0.5)) {
      s[split] = f;
      s.insert(s.begin() + static_cast<std::ptrdiff_t>(split) + 1, n / f);
      break;
    }
  return s;
}

Value Patterns::sign_changed(Value v) {
  if (!random_.chance(0.25)) return v;
  static const std::vector<Opcode> kOne{Opcode::neg, Opcode::abs};
  return values_.apply(random_.pick(kOne), {v}).value_or(v);
}

void Patterns::reshapes() {
  if (random_.chance(0.4)) axes({random_.in(1, 3)});
  // Few sizes, so that dims that change places are often as long as each other.
  std::vector<int64_t> few{random_.pick(std::vector<int64_t>{2, 3, 4, 8}),
                           random_.pick(std::vector<int64_t>{4, 6, 8, 16})};
  int64_t elements = 1;
  const auto size = [&] {
    const int64_t n = elements > 1000 ? 1 : random_.pick(few);
    elements *= n;
    return n;
  };
  static const std::vector<DType> kTypes{DType::f32, DType::f32, DType::i32, DType::f16, DType::i8, DType::u16};
  const DType t = random_.pick(kTypes), to = wider(t);
  const int64_t parts = random_.chance(0.8) ? 2 : 3;
  const auto merged = static_cast<size_t>(random_.below(2));  // dims before the merged ones
  Shape loaded;
  for (size_t d = 0; d < merged; ++d) loaded.push_back(size());
  for (int64_t d = 0; d < parts; ++d) loaded.push_back(size());
  if (merged == 0 || random_.chance(0.3)) loaded.push_back(size());
  const auto squashed = [&](const Shape& s) {
    Shape whole(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(merged));
    int64_t n = 1;
    for (int64_t d = 0; d < parts; ++d) n *= s[merged + static_cast<size_t>(d)];
    whole.push_back(n);
    whole.insert(whole.end(), s.begin() + static_cast<std::ptrdiff_t>(merged) + parts, s.end());
    return whole;
  };
  View in = view(loaded, few, false);
  const Shape whole = squashed(loaded);
  const size_t x = array_of(t, around(in.dims, false), false);
  // The other operand, and which dim of this one is contracted.
  const auto contracted = static_cast<int64_t>(random_.below(whole.size()));
  const int64_t n = random_.pick(few) * (elements > 200 || random_.chance(0.5) ? 1 : random_.pick(few)),
                k = whole[static_cast<size_t>(contracted)];
  const bool k_first = random_.chance(0.6);
  const size_t w = array_of(t, around({all_of(k_first ? k : n), all_of(k_first ? n : k)}, false), false);
  Shape result;
  const bool left = random_.chance(0.6);
  for (size_t d = 0; d < whole.size(); ++d)
    if (static_cast<int64_t>(d) != contracted) result.push_back(whole[d]);
  result.insert(left ? result.end() : result.begin(), n);
  const Shape apart = in_parts(result);
  View to_view = view(apart, few, true);
  const size_t out = array_of(to, around(to_view.dims, true), true);
  const size_t second = random_.chance(0.4) ? array_of(to, around({all_of(result.back())}, true), true) : 0;
  open();
  const std::vector<Value> begin = starts(in, 1);
  Value v = load_at(x, in.index, begin);
  if (random_.chance(0.15)) {  // another order of the dims, of the same sizes
    std::vector<int64_t> perm;
    for (size_t d = 0; d < loaded.size(); ++d) perm.push_back(static_cast<int64_t>(d));
    random_.shuffle(perm);
    const Value moved = values_.transpose(v, perm);
    if (values_.type(moved).shape == loaded) v = moved;
  }
  v = values_.reshape(v, whole);
  const Value y = load_at(w, {Index::all(k_first ? k : n), Index::all(k_first ? n : k)});
  const std::vector<int64_t> of_x{contracted}, of_y{k_first ? 0 : 1};
  Value d = left ? values_.product(v, y, {of_x, of_y, {}, {}}, to) : values_.product(y, v, {of_y, of_x, {}, {}}, to);
  if (random_.chance(0.1)) d = values_.coerce(v, result), d = into(d, to);
  if (second) {
    Value other = d;
    if (random_.chance(0.4)) other = values_.reduction(d).value_or(d);
    else if (random_.chance(0.4)) other = values_.movement(d);
    if (num_elements(values_.type(other).shape) > 8000) other = d;
    store_at(second, {Index::all(result.back())}, values_.coerce(other, {result.back()}));
  }
  d = sign_changed(d);
  if (random_.chance(0.3)) d = mixed(d, 1);
  d = sign_changed(values_.reshape(d, apart));
  const std::vector<Value> end = starts(to_view, 2);
  store_at(out, to_view.index, d, end);
}

// -- products in chunks, mostly of bytes

Patterns::Indices Patterns::whole(const Dims& dims) const {
  Indices at;
  for (const Dim& d : dims) at.push_back(Index::all(d.block.size()));
  return at;
}

Patterns::Side Patterns::side(DType t, int64_t free_size, const Dim& depth, int64_t batch, bool turned) {
  Side s;
  s.dims = {all_of(free_size), depth};
  if (turned) std::swap(s.dims[0], s.dims[1]);
  s.contracted = turned ? 0 : 1;
  if (batch > 0) {
    s.batch = random_.chance(0.8) ? 0 : 1;
    s.dims.insert(s.dims.begin() + static_cast<std::ptrdiff_t>(s.batch), all_of(batch));
    if (s.batch <= s.contracted) ++s.contracted;
  }
  s.ref = array_of(t, s.dims, false, bits(t) == 8 ? 127 : 2);
  return s;
}

// The product of what `along` takes from the contracted dims, in wider integers at times.
Value Patterns::chunk(const Side& left, const Side& right, const Index& along, const std::vector<Value>& start,
                      DType to) {
  const auto operand = [&](const Side& s) {
    Indices at = whole(s.dims);
    at[static_cast<size_t>(s.contracted)] = along;
    const Value v = load_at(s.ref, at, start);
    return hangs_over(refs_[s.ref]) && values_.type(v).shape == refs_[s.ref].shape ? mask_overhang(refs_[s.ref], v) : v;
  };
  Value a = operand(left), c = operand(right);
  const DType l = values_.type(a).dtype, r = values_.type(c).dtype;
  if (l != r || (bits(l) == 8 && random_.chance(0.15))) {
    const DType wide = l != r || random_.chance(0.5) ? (to == DType::u32 ? DType::u32 : DType::i32) : l;
    if (bits(wide) <= bits(to)) a = into(a, wide), c = into(c, wide);
  }
  Values::DotDims dims{{left.contracted}, {right.contracted}, {}, {}};
  if (left.batch >= 0) dims.lhs_batch = {left.batch}, dims.rhs_batch = {right.batch};
  return values_.product(a, c, dims, to);
}

void Patterns::bytes() {
  // Chunks of the contracted dim: a program each, a round of a loop each, or written out.
  const int64_t chunks = random_.chance(0.5) ? random_.in(2, 3) : 1;
  const bool stepped = chunks > 1 && random_.chance(0.6), loops = !stepped && chunks > 1 && random_.chance(0.6);
  if (stepped) axes({chunks});
  else if (random_.chance(0.3)) axes({random_.in(1, 3)});
  const bool vectors = random_.chance(0.3);  // the free dims last, in whole vectors
  const auto size = [&] {
    return random_.chance(vectors ? 0.95 : 0.4) ? random_.pick(std::vector<int64_t>{8, 16, 32, 64}) : random_.in(1, 72);
  };
  const int64_t m = size(), n = size(),
                k = random_.chance(0.6) ? 4 * random_.in(vectors ? 4 : 1, 17) : random_.in(vectors ? 16 : 1, 70);
  const int64_t batch = random_.chance(0.25) ? random_.in(1, 3) : 0;
  static const std::vector<DType> kOthers{DType::f32, DType::f32, DType::f16, DType::bf16, DType::i16, DType::i32},
      kBytes{DType::i8, DType::u8};
  const bool of_bytes = random_.chance(0.75);
  const DType l = random_.pick(of_bytes ? kBytes : kOthers), other = l == DType::i8 ? DType::u8 : DType::i8,
              r = of_bytes && random_.chance(0.4) ? other : l;
  const int64_t hang = stepped && k > 1 && random_.chance(0.3) ? random_.in(1, k - 1) : 0;
  const Dim depth = stepped ? along(0, k, hang) : all_of(k * chunks);
  const bool turned_l = vectors || random_.chance(0.5), turned_r = vectors || random_.chance(0.5);
  const Side left = side(l, m, depth, batch, turned_l), right = side(r, n, depth, batch, turned_r);
  const DType to = l != r           ? DType::i32
                   : l == DType::u8 ? random_.pick(std::vector{DType::u32, DType::i32, DType::u8})
                   : l == DType::i8 ? random_.pick(std::vector{DType::i32, DType::i32, DType::i16, DType::i8})
                                    : wider(l);
  Dims result;
  if (batch) result.push_back(all_of(batch));
  result.push_back(all_of(m)), result.push_back(all_of(n));
  const size_t out = array_of(to, stepped ? result : around(result, true), true);
  open();
  RefInfo& o = refs_[out];
  o.fact = {is_float(to) ? 20000 : std::max(exact_limit(to), 1.0), 0, true, false};  // of 210 terms, 6 times 6
  o.stateful = stepped;
  const Indices all = whole(result);
  const Value zero = values_.constant(to, 0, values_.type(o.ref).shape);
  const auto number = [&](int64_t x) { return values_.constant(DType::i32, static_cast<double>(x)); };
  Value sum;
  if (stepped) {
    const Value first = is_id(0, 0);
    values_.b.when(first, [&] { store_at(out, all, zero); });
    o.readable = true;
    const Value d = chunk(left, right, Index::all(k), {}, to), before = load_at(out, all);
    sum = values_.note(*values_.apply(Opcode::add, {before, d}), o.fact);
  } else if (loops) {
    const Value none = number(0), one = number(1), end = number(chunks), by = number(k);
    sum = values_.b.for_loop(none, end, one, {zero}, [&](Value iv, const std::vector<Value>& carried) {
      const Value now = values_.note(carried[0], o.fact), start = values_.b.elementwise(Opcode::mul, {iv, by});
      const Value d = chunk(left, right, {Index::Slice{Index::Dynamic{1}, k}}, {start}, to);
      return std::vector<Value>{values_.b.elementwise(Opcode::add, {now, d})};
    })[0];
    values_.note(sum, o.fact);
  } else {
    for (int64_t c = 0; c < chunks; ++c) {
      const Value d = chunk(left, right, {Index::Slice{c * k, k}}, {}, to);
      sum = sum ? *values_.apply(Opcode::add, {sum, d}) : d;
    }
  }
  store_at(out, all, sum);
}

}  // namespace tessera::fuzz
