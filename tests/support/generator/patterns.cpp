#include "tests/support/generator/patterns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "engine/ir/reference.h"

namespace tessera::fuzz {

Pattern pattern_of(uint64_t seed) {
  Random random(seed ^ 0x7061747465726e73u);
  // sums are the dearest
  using enum Pattern;
  static const std::vector<Pattern> kShares{revisits, revisits, revisits, sums,     reshapes, reshapes,
                                            bytes,    bytes,    columns,  residues, residues};
  if (random.chance(0.3)) return random.pick(kShares);
  if (random.chance(0.04)) return threads;
  return random.chance(0.08) ? control : none;
}

void Patterns::make(Pattern p) {
  size_ = p == Pattern::revisits || p == Pattern::columns ? Size::huge : Size::big;
  switch (p) {
    case Pattern::none:
    case Pattern::threads:
    case Pattern::control: break;  // threads.h and control.h make them
    case Pattern::revisits: revisits(); break;
    case Pattern::sums: sums(); break;
    case Pattern::reshapes: reshapes(); break;
    case Pattern::bytes: bytes(); break;
    case Pattern::columns: columns(); break;
    case Pattern::residues: residues(); break;
  }
}

// -- the frame

void Patterns::axes(const std::vector<int64_t>& sizes) {
  for (const int64_t n : sizes) {
    ir::GridAxis axis;
    axis.size = n;
    if (random_.chance(0.1)) axis.size = named(n);
    grid_.push_back(n);
    out_.kernel.grid.push_back(axis);
    programs_ *= n;
  }
}

Patterns::Dim Patterns::along(int64_t axis, int64_t size, int64_t hang) {
  const int64_t n = grid_[static_cast<size_t>(axis)];
  DimMap map{.kind = DimMap::Kind::axis, .a = axis, .count = n};
  if (random_.chance(0.1)) map = {.kind = DimMap::Kind::reversed, .number = n - 1, .a = axis, .count = n};
  return {std::max<int64_t>(n * size - hang, 1), {BlockDim::Blocked{size}}, map};
}

Patterns::Dims Patterns::around(Dims dims, bool output) {
  for (size_t axis = grid_.size(); axis-- > 0;) {
    const auto uses = [&](const Dim& d) {
      return d.map.kind != DimMap::Kind::constant && d.map.a == static_cast<int64_t>(axis);
    };
    if (std::any_of(dims.begin(), dims.end(), uses) || (!output && random_.chance(0.5))) continue;
    Dim d = along(static_cast<int64_t>(axis), 1, 0);
    d.block = {BlockDim::Squeezed{}};
    dims.insert(dims.begin(), d);
  }
  return dims;
}

size_t Patterns::array_of(DType t, const Dims& dims, bool output, double most) {
  ir::Kernel& k = out_.kernel;
  BlockMapping m;
  const int i = static_cast<int>(k.blocks.size());
  if (!output) ++k.num_inputs;
  m.origin = k.usual_origin(i);
  m.dtype = t;
  Shape shape;
  std::vector<DimMap> maps;
  const bool plain = std::all_of(dims.begin(), dims.end(), [](const Dim& d) {
    return d.extent == d.block.size() && d.map.kind == DimMap::Kind::constant && d.block.is_blocked();
  });
  for (const Dim& d : dims) {
    shape.push_back(d.extent);
    m.array_shape.push_back(!plain && random_.chance(0.08) ? named(d.extent) : Extent(d.extent));
    if (plain) continue;
    m.block().push_back(d.block);
    maps.push_back(d.map);
  }
  if (plain) m.what = BlockMapping::Whole{}, m.space = MemorySpace::any;
  else index_map(m, maps, std::vector<DimMap>(maps.size()));
  k.blocks.push_back(m);
  maps_.push_back(maps);
  sizes_.emplace_back(maps.size());
  shapes_.push_back(shape);
  if (output) return k.blocks.size() - 1;
  Array a(shape, t);
  const auto bound = static_cast<int64_t>(t == DType::boolean ? 1
                                          : is_float(t)       ? most
                                                              : std::min(most, largest(t) - 1));
  for (int64_t e = 0; e < a.size(); ++e)
    a.set_element_bits(
        e, reference::from_double(
               t, static_cast<double>(random_.in(is_unsigned_int(t) || t == DType::boolean ? 0 : -bound, bound))));
  out_.inputs.push_back(std::move(a));
  input_facts_.push_back({static_cast<double>(bound), 0, true, false});
  return k.blocks.size() - 1;
}

void Patterns::open() {
  refs();
  stored_.assign(refs_.size(), false);
  values_.b.set_region(out_.kernel.body);
  for (size_t axis = 0; axis < grid_.size(); ++axis) pid(axis);
}

DType Patterns::wider(DType t) {
  if (is_float(t)) return bits(t) < 32 ? DType::f32 : t;
  return t == DType::u8 && random_.chance(0.4) ? DType::u32 : bits(t) < 32 ? DType::i32 : t;
}

// -- values

Value Patterns::load_at(size_t ref, const Indices& index, const std::vector<Value>& starts) {
  RefInfo& r = refs_[ref];
  Op op{.code = Opcode::load, .operands = {r.ref}, .index = index};
  op.operands.insert(op.operands.end(), starts.begin(), starts.end());
  Fact f = r.fact;
  f.dirty |= (r.block >= 0 && hangs_over(r)) || !r.readable;
  return values_.note(values_.b.one(std::move(op)), f);
}

void Patterns::store_at(size_t ref, const Indices& index, Value v, const std::vector<Value>& starts) {
  RefInfo& r = refs_[ref];
  v = fit(r, into(v, r.dtype));
  r.fact.dirty |= values_.fact(v).dirty;
  Op op{.code = Opcode::store, .operands = {r.ref, v}, .index = index};
  op.operands.insert(op.operands.end(), starts.begin(), starts.end());
  values_.b.append(std::move(op));
  stored_[ref] = true;
}

Value Patterns::joined(Value x, Value y) {
  const DType t = values_.type(x).dtype;
  static const std::vector<Opcode> kNumbers{Opcode::add, Opcode::sub, Opcode::max, Opcode::min},
      kBools{Opcode::xor_, Opcode::or_, Opcode::and_};
  // Of unspecified elements nothing may be learnt: garbage - garbage is rarely near the greatest in the interpreter.
  const bool dirty = values_.fact(x).dirty || values_.fact(y).dirty;
  const Opcode op = dirty ? (t == DType::boolean ? Opcode::xor_ : Opcode::add)
                          : random_.pick(t == DType::boolean ? kBools : kNumbers);
  const auto r = values_.apply(op, {x, y});
  return r ? *r : *values_.apply(Opcode::max, {x, y});
}

Value Patterns::mixed(Value v, int64_t ops) {
  while (ops-- > 0) {
    const ir::Type t = values_.type(v);
    v = joined(v, random_.chance(0.7) ? values_.leaf(t.dtype, t.shape) : v);
  }
  return v;
}

Value Patterns::into(Value v, DType t) {
  // unspecified elements all become true
  if (t == DType::boolean && values_.fact(v).dirty && values_.type(v).dtype != t)
    return values_.leaf(t, values_.type(v).shape);
  if (const auto c = values_.cast(v, t)) return *c;
  Fact f = values_.fact(v);
  if (!is_float(values_.type(v).dtype) || f.dirty) return values_.leaf(t, values_.type(v).shape);
  v = values_.conform(v, std::min(100.0, is_float(t) ? tame_limit(t) : largest(t) - 1));
  if (const auto c = values_.cast(v, t)) return *c;
  return values_.leaf(t, values_.type(v).shape);
}

// A multiple of `unit` within [0, most], as index arithmetic makes them.
Value Patterns::start_within(int64_t most, int64_t unit) {
  ir::Builder& b = values_.b;
  const auto number = [&](int64_t n) { return values_.constant(DType::i32, static_cast<double>(n)); };
  const int64_t steps = most / unit;
  if (values_.counters.empty() || steps == 0) return number(unit * random_.in(0, steps));
  const auto& c = random_.pick(values_.counters);
  Value v = c.v;
  if (c.most > steps) {
    const Value n = number(steps + 1);
    v = b.elementwise(Opcode::rem, {v, n});
  } else if (c.most > 0 && steps / c.most > 1 && random_.chance(0.5)) {
    const Value n = number(steps / c.most);
    v = b.elementwise(Opcode::mul, {v, n});
  }
  const Value by = number(unit);
  v = b.elementwise(Opcode::mul, {v, by});
  return values_.note(v, {static_cast<double>(most), 0, true, false});
}

// -- blocks of outputs that several programs store to

void Patterns::revisits() {
  const int64_t rank = random_.in(1, 3);
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < rank; ++i) sizes.push_back(random_.in(rank == 1 ? 2 : 1, rank == 3 ? 2 : 3));
  axes(sizes);
  const auto last = rank - 1;  // the axis along which the inputs' blocks lie; the output's may not
  static const std::vector<int64_t> kColumns{64, 128, 256, 512, 1024, 2048, 96, 200, 1000, 1536};
  const int64_t columns = random_.pick(kColumns), rows = columns > 600 ? random_.in(1, 2) : random_.in(1, 8);
  const DType t = random_.chance(0.6) ? DType::f32 : values_.some_dtype();
  std::vector<size_t> in;
  const int64_t hang = random_.chance(0.75) ? random_.in(1, columns - 1) & (random_.chance(0.5) ? -8 : -1) : 0,
                lower = random_.chance(0.3) ? random_.in(0, rows - 1) : 0;
  const bool rows_too = rank > 1;
  const Dim row = rows_too ? along(0, rows, lower) : all_of(rows);
  for (int64_t n = random_.in(1, 2); n-- > 0;) {
    const Dims dims = around({row, along(last, columns, n == 0 || random_.chance(0.5) ? hang : 0)}, false);
    in.push_back(array_of(t, dims, false));
  }
  // The output: as wide as the inputs' blocks or wider, and it stays where it is along the last axis, or half of it.
  const int64_t wider = random_.chance(0.5) ? columns : random_.chance(0.6) ? 2 * columns : columns + random_.in(1, 40);
  Dim column = all_of(wider);
  if (random_.chance(0.3)) {
    column.map = {.kind = DimMap::Kind::half, .a = last, .count = (sizes.back() + 1) / 2};
    column.extent = wider * column.map.count;
  }
  if (random_.chance(0.4)) column.extent = std::max<int64_t>(1, column.extent - random_.in(1, wider - 1));
  const Dim out_row = rows_too && random_.chance(0.3) && sizes[0] == 1 ? all_of(rows) : row;
  std::vector<size_t> outs;
  for (int64_t n = random_.chance(0.75) ? 1 : 2; n-- > 0;) {
    Dims dims{out_row, column};
    if (rank == 3 && random_.chance(0.5)) {  // the middle axis has a dim of its own
      Dim middle = along(1, 1, 0);
      middle.block = {BlockDim::Squeezed{}};
      dims.insert(dims.begin(), middle);
    }
    const DType stored = random_.chance(0.7) ? t : values_.some_dtype();
    if (n == 0 && outs.empty() && random_.chance(0.2)) {  // begins with what an input holds
      const size_t from = array_of(stored, dims, false);
      outs.push_back(array_of(stored, dims, true));
      std::vector<BlockMapping>& blocks = out_.kernel.blocks;
      blocks.back().alias = static_cast<int>(from);
      blocks.back().array_shape = blocks[from].array_shape;
      blocks.back().space = blocks[from].space;
    } else {
      outs.push_back(array_of(stored, dims, true));
    }
  }
  open();
  Indices place{Index::all(rows), Index::all(columns)}, of_inputs = place;
  if (random_.chance(0.25)) {  // a part of each
    const int64_t n = random_.in(1, columns);
    place[1].slice()->size = of_inputs[1].slice()->size = n;
    of_inputs[1].start() = random_.in(0, columns - n);
  }
  for (const size_t out : outs) {
    place[1].start() = random_.chance(0.6) ? 0 : random_.in(0, wider - place[1].slice()->size);
    revisit(out, in, place, of_inputs);
  }
}

// As it is, with a mask, as kernels without padding have, or added.
void Patterns::store_somehow(size_t out, const Indices& at, Value v) {
  RefInfo& r = refs_[out];
  const DType t = r.dtype;
  const bool adds = t != DType::boolean && !(is_float(t) && bits(t) < 32) && values_.fact(v).whole &&
                    values_.fact(v).bound < 1000 && !r.stateful && random_.chance(0.15);
  if (!adds && !random_.chance(0.15)) return store_at(out, at, v);
  Op op{.code = adds ? Opcode::addupdate : Opcode::store, .operands = {r.ref, fit(r, v)}, .index = at};
  if (!adds) {
    Op iota{.code = Opcode::iota};
    iota.set(Attr::axis, 1);
    const Shape shape = values_.type(v).shape;
    const Value line = values_.note(values_.b.one(std::move(iota), Type::array(DType::i32, shape)),
                                    {static_cast<double>(shape[1]), 0, true, false});
    const Value end = values_.coerce(values_.scalar_int(0, shape[1]), shape);
    op.operands.push_back(*values_.apply(Opcode::lt, {line, end}));
    op.set(Attr::mask, 1);
  }
  values_.b.append(std::move(op));
  r.fact.dirty |= values_.fact(v).dirty;
  stored_[out] = true;
}

void Patterns::revisit(size_t out, const std::vector<size_t>& in, const Indices& place, const Indices& of_inputs) {
  RefInfo& r = refs_[out];
  const size_t last = grid_.size() - 1;
  const bool wants_to_read = random_.chance(0.4);
  Value v;
  for (const size_t i : in) {
    Value x = load_at(i, of_inputs);
    if (wants_to_read && values_.type(x).shape == refs_[i].shape && hangs_over(refs_[i]))
      x = mask_overhang(refs_[i], x);
    v = v ? joined(v, x) : x;
  }
  v = into(mixed(v, random_.in(0, 2)), r.dtype);
  const bool reads = wants_to_read && !values_.fact(v).dirty;
  const bool aliased = out_.kernel.blocks[out].alias >= 0;
  r.stateful = reads || aliased;
  if (reads) {
    if (!aliased) r.fact = {is_float(r.dtype) ? 100.0 : std::max(exact_limit(r.dtype), 1.0), 0, true, false};
    Indices all;
    for (const int64_t n : r.shape) all.push_back(Index::all(n));
    const Value zero = values_.leaf(r.dtype, r.shape);
    if (random_.chance(aliased ? 0.3 : 0.8)) {
      const Value first = is_id(last, 0);
      values_.b.when(first, [&] { store_at(out, all, zero); });
      r.readable = true;
    }
    v = joined(load_at(out, place), v);
  }
  const auto store = [&](const Indices& at) { reads ? store_at(out, at, v) : store_somehow(out, at, v); };
  const double way = static_cast<double>(random_.below(100)) / 100;
  if (way < 0.2) {  // in some programs only, or here and there
    const Value some = is_id(random_.below(grid_.size()), 0);
    Indices other = place;
    other[1].start() = random_.in(0, r.shape[1] - other[1].slice()->size);
    const bool both = random_.chance(0.5);
    values_.b.if_else(
        some,
        [&] {
          store(place);
          return std::vector<Value>{};
        },
        [&] {
          if (both) store(other);
          return std::vector<Value>{};
        });
    stored_[out] = true;
  } else if (way < 0.4) {  // where the program's id says
    Indices at = place;
    const int64_t size = place[1].slice()->size, most = r.shape[1] - size;
    at[1].start() = Index::Dynamic{2};
    store_at(out, at, v, {start_within(most, std::max<int64_t>(1, std::min(size, most)))});
  } else {
    store(place);
    if (random_.chance(0.3)) {
      v = mixed(v, 1);
      Indices again = place;
      const int64_t size = place[1].slice()->size, part = random_.chance(0.5) ? size : random_.in(1, size);
      again[1] = {Index::Slice{random_.in(0, r.shape[1] - part), part}};
      if (part == size) store(again);
    }
  }
}

// -- running sums, sums and transposes of large blocks

Value Patterns::down(Value v) {
  const ir::Type t = values_.type(v);
  const Fact f = values_.fact(v);
  const size_t axis = t.shape[0] > t.shape[1] ? (random_.chance(0.85) ? 0 : 1) : (random_.chance(0.85) ? 1 : 0);
  const double n = static_cast<double>(t.shape[axis]);
  std::vector<Opcode> scans{Opcode::cummax, Opcode::cummin};
  const auto sum = rounded(t.dtype, f.bound * n, 0, f.whole, f.dirty);
  if (sum && sum->err == 0 && !f.dirty) scans = {Opcode::cumsum, Opcode::cumsum, Opcode::cummax};
  if (f.dirty || t.dtype == DType::boolean) return v;
  Op op{.code = random_.pick(scans), .operands = {v}};
  op.set(Attr::axis, static_cast<int64_t>(axis));
  op.set(Attr::reverse, random_.in(0, 1));
  const Fact g = op.code == Opcode::cumsum ? *sum : f;
  return values_.note(values_.b.one(std::move(op)), g);
}

void Patterns::columns() {
  if (random_.chance(0.4)) axes({random_.in(1, 2)});
  static const std::vector<std::array<int64_t, 2>> kLong{{1, 33001}, {20000, 1}, {3, 9000},
                                                         {9001, 2},  {17000, 1}, {1, 16500}},
      kWide{{512, 16}, {64, 64}, {128, 64}, {64, 128}, {96, 80}, {256, 33}, {40, 200}, {1000, 5}};
  const bool is_long = random_.chance(grid_.empty() ? 0.4 : 0.15);
  const auto [m, n] = random_.pick(is_long ? kLong : kWide);
  const DType t = random_.pick(std::vector{DType::f32, DType::f32, DType::i32, DType::i8, DType::u16, DType::f16});
  const Dims dims{all_of(m), all_of(n)};
  const bool turns = random_.chance(is_long ? 0.2 : 0.5);
  const size_t x = array_of(t, around(dims, false), false, 3),
               y = array_of(t, around(turns ? Dims{all_of(n), all_of(m)} : dims, false), false, 3);
  const DType stored = random_.chance(0.8) ? t : DType::i32;
  std::vector<size_t> outs{array_of(stored, around(dims, true), true)};
  const bool turned_out = !is_long && random_.chance(0.5);
  if (turned_out) outs.push_back(array_of(t, around({all_of(n), all_of(m)}, true), true));
  const bool sums = random_.chance(0.4);
  const bool of_rows = random_.chance(0.5);
  if (sums) outs.push_back(array_of(t, around({all_of(of_rows ? m : n)}, true), true));
  open();
  const Indices all{Index::all(m), Index::all(n)}, turned{Index::all(n), Index::all(m)};
  Value v = load_at(x, all);
  Value w = load_at(y, turns ? turned : all);
  if (turns) w = values_.transpose(w, {1, 0});
  if (turns && random_.chance(0.5)) return store_at(outs[0], all, mixed(w, random_.in(0, 2)));  // nothing else
  v = random_.chance(0.6) ? joined(v, w) : v;
  v = mixed(v, random_.in(0, 1));
  if (random_.chance(0.75)) {
    Value s = down(v);
    if (random_.chance(0.3)) s = down(s);
    if (random_.chance(0.5)) s = joined(s, random_.chance(0.5) ? w : v);
    store_at(outs[0], all, s);
    if (random_.chance(0.3)) v = s;
    if (random_.chance(0.2)) {  // and once more, over what was stored
      refs_[outs[0]].stateful = refs_[outs[0]].readable = true;
      const Value again = load_at(outs[0], all);
      if (!values_.fact(again).dirty && values_.fact(again).err == 0) store_at(outs[0], all, down(again));
    }
  } else {
    store_at(outs[0], all, joined(v, w));
  }
  if (turned_out) {
    const Value moved = values_.transpose(v, {1, 0});
    store_at(outs[1], turned, random_.chance(0.4) ? down(moved) : moved);
  }
  if (sums && !values_.fact(v).dirty) {
    Op op{.code = random_.pick(std::vector{Opcode::reduce_max, Opcode::reduce_sum, Opcode::reduce_min}),
          .operands = {v}};
    Fact f = values_.fact(v);
    if (op.code == Opcode::reduce_sum) {
      const auto g = rounded(t, f.bound * static_cast<double>(of_rows ? n : m), 0, f.whole, false);
      if (g && g->err == 0) f = *g;
      else op.code = Opcode::reduce_max;
    }
    op.set(Attr::axes, of_rows ? 1 : 0);
    const Value r = values_.note(values_.b.one(std::move(op)), f);
    store_at(outs.back(), {Index::all(of_rows ? m : n)}, r);
  }
}

// -- starts with known residues, and branches of one condition

void Patterns::residues() {
  axes(random_.chance(0.5) ? std::vector{random_.in(2, 5)} : std::vector{random_.in(1, 3), random_.in(2, 3)});
  const DType t = random_.chance(0.4)   ? DType::f32
                  : random_.chance(0.5) ? random_.pick(std::vector{DType::u8, DType::i8, DType::f16})
                                        : values_.some_dtype();
  const int64_t unit = random_.pick(std::vector<int64_t>{1, 2, 3, 4, 6, 8, 12, 16}),
                window = random_.chance(0.7) ? 4 * random_.in(1, 40) : random_.in(1, 160);
  const int64_t rows = random_.in(1, 4),
                length = window + unit * random_.in(1, 6) + (random_.chance(0.3) ? random_.in(1, 7) : 0);
  const auto last = static_cast<int64_t>(grid_.size()) - 1;
  const Dims source{all_of(rows), all_of(length)};
  const size_t x = array_of(t, around(source, false), false, 5);
  const Dim piece = along(last, window, random_.chance(0.6) ? random_.in(0, window - 1) : 0);
  const size_t y = array_of(t, around({all_of(rows), piece}, false), false, 5);
  const DType of_other = random_.chance(0.7) ? t : DType::i32;
  const size_t out = array_of(t, around({all_of(rows), piece}, true), true),
               other = array_of(of_other, around(source, true), true);
  open();
  const Indices all{Index::all(rows), Index::all(window)};
  const auto read = [&] {
    const Value start = start_within(length - window, unit);
    return load_at(x, {Index::all(rows), {Index::Slice{Index::Dynamic{1}, window}}}, {start});
  };
  Value v = read();
  if (random_.chance(0.5)) v = joined(v, read());
  if (random_.chance(0.4)) {  // rounds of a loop, each further on
    const int64_t rounds = random_.in(2, 4), step = (length - window) / rounds / unit * unit;
    const Value zero = values_.constant(DType::i32, 0), one = values_.constant(DType::i32, 1),
                end = values_.constant(DType::i32, static_cast<double>(rounds)),
                by = values_.constant(DType::i32, static_cast<double>(step));
    const bool is_bool = t == DType::boolean;
    const Value init = values_.conform(v, 8);
    v = values_.b.for_loop(zero, end, one, {init}, [&](Value iv, const std::vector<Value>& c) {
      values_.note(iv, {8, 0, true, false});
      values_.note(c[0], values_.fact(init));
      const Value start = values_.b.elementwise(Opcode::mul, {iv, by});
      const Value e = load_at(x, {Index::all(rows), {Index::Slice{Index::Dynamic{1}, window}}}, {start});
      return std::vector<Value>{values_.b.elementwise(is_bool ? Opcode::xor_ : Opcode::max, {c[0], e})};
    })[0];
    Fact f = values_.fact(init);
    f.bound = std::max(f.bound, 8.0);
    values_.note(v, f);
  }
  const Value w = load_block(refs_[y], 0.3);
  // Branches of the same condition, near each other.
  const size_t axis = random_.below(grid_.size());
  const Value some = random_.chance(0.5) ? is_id(axis, random_.in(0, 1)) : values_.scalar_bool();
  const bool branches = random_.chance(0.6);
  const auto sometimes = [&](const std::function<void()>& f) {
    if (branches) values_.b.when(some, f);
    else f();
  };
  if (!branches || random_.chance(0.5)) store_at(out, all, joined(v, w));
  const Value further = start_within(length - window, unit);
  const Indices place{Index::all(rows), {Index::Slice{Index::Dynamic{2}, window}}};
  sometimes([&] { store_at(other, place, v, {further}); });
  v = mixed(v, 1);
  sometimes([&] { store_at(out, all, random_.chance(0.5) ? w : joined(v, w)); });
  if (random_.chance(0.4)) {
    const Value again = start_within(length - window, unit);
    sometimes([&] { store_at(other, place, v, {again}); });
  }
}

}  // namespace tessera::fuzz
