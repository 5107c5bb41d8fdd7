#include "engine/front/view.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace tessera {
using ir::Attr;
using ir::Index;
using ir::Opcode;

Offset Offset::scaled(int64_t factor) const {
  Offset r = *this;
  r.at *= factor;
  for (auto& [v, f] : r.terms) f *= factor;
  return r;
}
Offset Offset::plus(const Offset& o) const {
  Offset r = *this;
  r.at += o.at;
  r.terms.insert(r.terms.end(), o.terms.begin(), o.terms.end());
  return r;
}

const Offset* Position::start() const {
  if (const Fixed* f = fixed()) return &f->start;
  const Slice* s = slice();
  return s ? &s->start : nullptr;
}
const std::vector<int>& Position::loops() const {
  static const std::vector<int> none;
  if (const Slice* s = slice()) return s->loops;
  const Array* a = array();
  return a ? a->loops : none;
}
bool Position::uses(int loop) const { return std::find(loops().begin(), loops().end(), loop) != loops().end(); }

int Selection::new_loop(int64_t n) {
  size.push_back(n);
  return static_cast<int>(size.size()) - 1;
}
int64_t Selection::count(const std::vector<int>& loops) const { return num_elements(sizes(loops)); }
Shape Selection::sizes(const std::vector<int>& loops) const {
  Shape s;
  for (int l : loops) s.push_back(size[static_cast<size_t>(l)]);
  return s;
}

// -- values
ir::Value Selection::scalar(const Offset& o) {
  ir::Builder& b = e_.builder();
  ir::Value v;
  for (const auto& [x, f] : o.terms) {
    const ir::Value term = f == 1 ? x : b.elementwise(Opcode::mul, {x, number(f)});
    v = v ? b.elementwise(Opcode::add, {v, term}) : term;
  }
  if (!v) return number(o.at);
  return o.at == 0 ? v : b.elementwise(Opcode::add, {v, number(o.at)});
}
ir::Value Selection::reshape(ir::Value v, const Shape& shape) {
  const ir::Type& t = e_.builder().kernel().type(v);
  if (t.shape == shape) return v;
  return e_.builder().one({.code = Opcode::reshape, .operands = {v}}, ir::Type::array(t.dtype, shape));
}
ir::Value Selection::expand(ir::Value v, const std::vector<int>& from, const std::vector<int>& to) {
  ir::Builder& b = e_.builder();
  const auto place = [&](int loop) { return static_cast<int64_t>(std::find(to.begin(), to.end(), loop) - to.begin()); };
  std::vector<int64_t> perm(from.size()), dims;
  std::iota(perm.begin(), perm.end(), 0);
  std::stable_sort(perm.begin(), perm.end(), [&](int64_t x, int64_t y) {
    return place(from[static_cast<size_t>(x)]) < place(from[static_cast<size_t>(y)]);
  });
  if (!std::is_sorted(perm.begin(), perm.end())) {
    ir::Op op{.code = Opcode::transpose, .operands = {v}};
    op.set(Attr::perm, perm);
    v = b.one(std::move(op));
  }
  for (int64_t i : perm) dims.push_back(place(from[static_cast<size_t>(i)]));
  return from.size() == to.size() ? v : b.broadcast(v, sizes(to), dims);
}
ir::Value Selection::positions(const Position& p, const std::vector<int>& to) {
  ir::Builder& b = e_.builder();
  if (const Position::Array* a = p.array()) return expand(a->array, a->loops, to);
  const ir::Value start = b.broadcast(scalar(*p.start()), sizes(to), {});
  const Position::Slice* s = p.slice();
  if (!s) return start;
  ir::Op iota{.code = Opcode::iota};
  iota.set(Attr::axis, 0);
  const ir::Value line =
      reshape(b.one(std::move(iota), ir::Type::array(DType::i32, {count(s->loops)})), sizes(s->loops));
  const ir::Value steps = s->step == 1 ? line : b.elementwise(Opcode::mul, {line, number(s->step, sizes(s->loops))});
  return b.elementwise(Opcode::add, {expand(steps, s->loops, to), start});
}
ir::Value Selection::wrapped(ir::Value v, int64_t n) {
  ir::Builder& b = e_.builder();
  const Shape s = b.kernel().type(v).shape;
  return b.elementwise(
      Opcode::select, {b.elementwise(Opcode::lt, {v, number(0, s)}), b.elementwise(Opcode::add, {v, number(n, s)}), v});
}
ir::Value Selection::clamped(ir::Value v, int64_t most) {
  const Shape s = e_.builder().kernel().type(v).shape;
  return e_.builder().elementwise(Opcode::clamp, {number(0, s), v, number(std::max<int64_t>(most, 0), s)});
}
void Selection::test(ir::Value v, const std::vector<int>& loops, int64_t n) {
  ir::Builder& b = e_.builder();
  const Shape s = b.kernel().type(v).shape;
  inside.emplace_back(loops, b.elementwise(Opcode::and_, {b.elementwise(Opcode::ge, {v, number(0, s)}),
                                                          b.elementwise(Opcode::lt, {v, number(n, s)})}));
}
// Positions that go each their own way: wrapped once, then tested or clamped.
Position Selection::settle(const Position& p, int64_t n, bool wrap, bool drop) {
  const Position::Fixed* one = p.fixed();
  ir::Value v = one ? scalar(one->start) : positions(p, p.loops());
  if (wrap) v = wrapped(v, n);
  if (drop) test(v, p.loops(), n);
  else v = clamped(v, n - 1);
  if (one) return Position::fixed({0, {{v, 1}}});
  return Position::array(v, p.loops());
}

// -- the access's own index
Selection::Selection(Emit& e, const std::vector<Index>& index, const std::vector<ir::Value>& starts, const Shape& shape,
                     bool masked, bool writes)
    : e_(e) {
  const ir::Op op{.code = Opcode::load, .operands = starts, .index = index};
  const ir::AccessDims form = ir::access_dims(e_.trace().kernel(), op);
  for (int64_t n : form.shape) order.push_back(new_loop(n));
  const std::vector<int> arrays(order.begin() + static_cast<int64_t>(form.array_at),
                                order.begin() + static_cast<int64_t>(form.array_at + form.array_rank));
  for (size_t d = 0; d < index.size(); ++d) {
    const Index& x = index[d];
    const int64_t n = shape[d];
    const ir::Value v = op.operand_of(x);
    const Offset start = v ? Offset{0, {{v, 1}}} : Offset{x.constant()};
    if (x.is_array()) {
      at.push_back(settle(Position::array(v, arrays), n, true, masked || writes));
    } else if (x.is_integer()) {
      if (!v) at.push_back(Position::fixed(start));
      else
        at.push_back(settle(Position::fixed(start), n, form.arrays || !masked, masked || (form.per_element && writes)));
    } else {
      const std::vector<int> loops{order[static_cast<size_t>(form.slice[d])]};
      const int64_t step = x.slice()->step;
      const Position slice = Position::slice(start, step, loops);
      if (!v) {
        at.push_back(slice);
      } else if (masked) {
        test(positions(slice, loops), loops, n);
        at.push_back(slice);
      } else if (form.per_element) {
        at.push_back(settle(slice, n, true, writes));
      } else {
        const ir::Value first = clamped(wrapped(v, n), n - std::max<int64_t>(x.slice()->span(), 1));
        at.push_back(Position::slice({0, {{first, 1}}}, step, loops));
      }
    }
  }
}

// -- back through a view
namespace {
ir::Value affine(ir::Builder& b, ir::Value array, const Offset& start, int64_t step) {
  const Shape s = b.kernel().type(array).shape;
  const auto number = [&](int64_t n) { return b.constant_int(DType::i32, n, s); };
  if (step != 1) array = b.elementwise(Opcode::mul, {array, number(step)});
  for (const auto& [v, f] : start.terms)
    array = b.elementwise(
        Opcode::add,
        {array, b.broadcast(f == 1 ? v : b.elementwise(Opcode::mul, {v, b.constant_int(DType::i32, f)}), s, {})});
  return start.at == 0 ? array : b.elementwise(Opcode::add, {array, number(start.at)});
}
}  // namespace
Position Selection::affine(Emit& e, const Position& p, const Offset& start, int64_t step) {
  if (const Position::Array* a = p.array())
    return Position::array(tessera::affine(e.builder(), a->array, start, step), a->loops);
  const Offset from = p.start()->scaled(step).plus(start);
  const Position::Slice* s = p.slice();
  return s ? Position::slice(from, s->step * step, s->loops) : Position::fixed(from);
}

// array[of...]: what an index takes of a view's index array.
Position Selection::compose(ir::Value array, const std::vector<Position>& of) {
  ir::Builder& b = e_.builder();
  const Shape from = b.kernel().type(array).shape;
  Position::Array r;
  if (std::all_of(of.begin(), of.end(), [](const Position& p) { return p.start() && p.start()->terms.empty(); })) {
    ir::Op slice{.code = Opcode::slice, .operands = {array}};
    std::vector<int64_t> start, limit, stride;
    for (const Position& p : of) {
      const int64_t n = count(p.loops()), step = p.slice() ? p.slice()->step : 1;
      start.push_back(p.start()->at);
      stride.push_back(step);
      limit.push_back(p.start()->at + (n - 1) * step + 1);
      r.loops.insert(r.loops.end(), p.loops().begin(), p.loops().end());
    }
    slice.set(Attr::start, std::move(start));
    slice.set(Attr::limit, std::move(limit));
    slice.set(Attr::stride, std::move(stride));
    r.array = reshape(b.one(std::move(slice)), sizes(r.loops));
  } else {
    // By data: of all elements of the array, the one whose number it is.
    r.loops = sorted(of);
    std::vector<int> with_all = r.loops;
    const int64_t n = num_elements(from);
    with_all.push_back(new_loop(n));
    const ir::Value number_of = expand(flat_number(of, from, r.loops), r.loops, with_all),
                    zero = number(0, sizes(with_all));
    const ir::Value each = positions(Position::slice({}, 1, {with_all.back()}), with_all),
                    held = expand(reshape(array, {n}), {with_all.back()}, with_all);
    ir::Op sum{.code = Opcode::reduce_sum,
               .operands = {b.elementwise(Opcode::select, {b.elementwise(Opcode::eq, {number_of, each}), held, zero})}};
    sum.set(Attr::axes, std::vector<int64_t>{static_cast<int64_t>(r.loops.size())});
    r.array = b.one(std::move(sum));
  }
  if (r.loops.empty()) return Position::fixed({0, {{r.array, 1}}});
  return {std::move(r)};
}

// The row-major number of an element among dims of these sizes, over the loops.
ir::Value Selection::flat_number(const std::vector<Position>& of, const Shape& shape, const std::vector<int>& loops) {
  ir::Builder& b = e_.builder();
  ir::Value sum;
  int64_t stride = 1;
  for (size_t d = of.size(); d-- > 0; stride *= shape[d]) {
    const ir::Value one = positions(of[d], loops);
    const ir::Value term = stride == 1 ? one : b.elementwise(Opcode::mul, {one, number(stride, sizes(loops))});
    sum = sum ? b.elementwise(Opcode::add, {sum, term}) : term;
  }
  return sum ? sum : number(0, sizes(loops));
}

namespace {
template <class... F> struct Cases : F... {
  using F::operator()...;
};
template <class... F> Cases(F...) -> Cases<F...>;
}  // namespace

void Selection::undo(const RefTransform& t, const Shape& view, bool writes) {
  std::visit(Cases{
                 [&](const RefTransform::Index& x) { undo_index(x, t.shape, writes); },
                 [&](const RefTransform::Reshape&) { undo_reshape(t.shape, view); },
                 [](const RefTransform::Bitcast&) {},
                 [&](const RefTransform::Transpose& x) {
                   std::vector<Position> before(at.size());
                   for (size_t i = 0; i < at.size(); ++i) before[static_cast<size_t>(x.perm[i])] = at[i];
                   at = std::move(before);
                 },
             },
             t.what);
}

void Selection::undo_index(const RefTransform::Index& t, const Shape& to, bool writes) {
  ir::Op op{.code = Opcode::load};
  const auto operand = [&](const Value& v) {
    op.operands.push_back(e_.use(v));
    return op.operands.size() - 1;
  };
  const auto start_of = [&](const std::variant<int64_t, Value>& start) -> Index::Start {
    if (const Value* dynamic = std::get_if<Value>(&start)) return Index::Dynamic{operand(*dynamic)};
    return std::get<int64_t>(start);
  };
  for (const RefTransform::Dim& d : t.dims)
    op.index.push_back(std::visit(
        Cases{
            [&](const RefTransform::Integer& x) { return Index::at(start_of(x.at)); },
            [&](const RefTransform::Slice& x) { return Index{Index::Slice{start_of(x.start), x.size, x.step}}; },
            [&](const RefTransform::Array& x) { return Index::array(operand(x.positions)); },
        },
        d));
  const ir::AccessDims form = ir::access_dims(e_.trace().kernel(), op);
  std::vector<Position> before;
  for (size_t i = 0; i < t.dims.size(); ++i) {
    const Index& x = op.index[i];
    const ir::Value v = op.operand_of(x);
    const Offset start = v ? Offset{0, {{v, 1}}} : Offset{x.constant()};
    Position p =
        std::visit(Cases{
                       [&](const RefTransform::Integer&) { return Position::fixed(start); },
                       [&](const RefTransform::Slice& slice) {
                         return affine(e_, at[static_cast<size_t>(form.slice[i])], start, slice.step);
                       },
                       [&](const RefTransform::Array&) {
                         return compose(v, {at.begin() + static_cast<int64_t>(form.array_at),
                                            at.begin() + static_cast<int64_t>(form.array_at + form.array_rank)});
                       },
                   },
                   t.dims[i]);
    before.push_back(v && form.per_element ? settle(p, to[i], true, writes) : std::move(p));
  }
  at = std::move(before);
}

// Dims of size 1 aside, a reshape is a row of groups, each some dims of the view over as many elements as some dims
// before.
void Selection::undo_reshape(const Shape& to, const Shape& view) {
  std::vector<size_t> v, p;
  for (size_t d = 0; d < view.size(); ++d)
    if (view[d] != 1) v.push_back(d);
  for (size_t d = 0; d < to.size(); ++d)
    if (to[d] != 1) p.push_back(d);
  std::vector<Position> before(to.size());  // at 0 where nothing else is said
  for (size_t i = 0, j = 0; i < v.size() || j < p.size();) {
    Shape from_sizes, to_sizes;
    std::vector<Position> from;
    const size_t first = j;
    int64_t a = 1, b = 1;
    do {
      if ((a <= b && i < v.size()) || j == p.size()) {
        from.push_back(at[v[i]]);
        from_sizes.push_back(view[v[i]]);
        a *= view[v[i++]];
      } else {
        to_sizes.push_back(to[p[j]]);
        b *= to[p[j++]];
      }
    } while (a != b || to_sizes.empty() || from_sizes.empty());
    const std::vector<Position> group = regroup(from, from_sizes, to_sizes);
    for (size_t d = 0; d < group.size(); ++d) before[p[first + d]] = group[d];
  }
  at = std::move(before);
}

std::vector<int> Selection::sorted(const std::vector<Position>& list) const {
  std::vector<int> r;
  for (int l : order)
    if (std::any_of(list.begin(), list.end(), [&](const Position& p) { return p.uses(l); })) r.push_back(l);
  return r;
}

namespace {
Position progressing(const Position::Slice& flat) {
  return flat.loops.empty() ? Position::fixed(flat.start) : Position{flat};
}
}  // namespace

std::vector<Position> Selection::regroup(const std::vector<Position>& from, const Shape& view, const Shape& to) {
  if (view == to) return from;
  // The elements as one progression through the group, if they are one: what an inner dim takes whole, an outer one
  // continues.
  Position::Slice flat;  // without loops it is fixed
  bool progression = true;
  int64_t stride = 1, taken = 1;
  for (size_t d = from.size(); d-- > 0; stride *= view[d]) {
    if (from[d].array()) {
      progression = false;
      continue;
    }
    flat.start = flat.start.plus(from[d].start()->scaled(stride));
    const Position::Slice* p = from[d].slice();
    const int64_t n = count(from[d].loops());
    if (!p || n == 1) continue;
    if (flat.loops.empty()) flat.step = p->step * stride;
    else if (p->step * stride != flat.step * taken) progression = false;
    flat.loops.insert(flat.loops.begin(), p->loops.begin(), p->loops.end());
    taken *= n;
  }
  std::vector<Position> out(to.size());
  if (progression) {
    if (to.size() == 1) return {progressing(flat)};
    const auto before = std::make_tuple(at, order, size, inside);
    if (digits(flat, to, out)) return out;
    std::tie(at, order, size, inside) = before;
  }
  // Each element by itself: its number in the group, taken apart.
  ir::Builder& b = e_.builder();
  const std::vector<int> loops = sorted(from);
  const Shape s = sizes(loops);
  ir::Value element = flat_number(from, view, loops);
  for (size_t d = to.size(); d-- > 0;) {
    const ir::Value digit = d == 0 ? element : b.elementwise(Opcode::rem, {element, number(to[d], s)});
    if (d > 0) element = b.elementwise(Opcode::div, {element, number(to[d], s)});
    out[d] = loops.empty() ? Position::fixed({0, {{digit, 1}}}) : Position::array(digit, loops);
  }
  return out;
}

// Takes the loops of the innermost `inner` elements off the end, parting a loop where it must. Empty if they do not
// part there.
std::vector<int> Selection::cut(std::vector<int>& loops, int64_t inner) {
  std::vector<int> off;
  int64_t n = 1;
  while (n < inner) {
    const int l = loops.back();
    const int64_t whole = size[static_cast<size_t>(l)], part = inner / n;
    if (inner % n != 0) return {};
    loops.pop_back();
    if (whole <= part) {
      off.insert(off.begin(), l);
      n *= whole;
      continue;
    }
    // A loop that several dims share stays one.
    if (whole % part != 0 || std::count_if(at.begin(), at.end(), [&](const Position& p) { return p.uses(l); }) > 1)
      return {};
    const int a = new_loop(whole / part), c = new_loop(part);
    const auto replace = [&](std::vector<int>& list) {
      const auto it = std::find(list.begin(), list.end(), l);
      if (it == list.end()) return;
      *it = a;
      list.insert(it + 1, c);
    };
    replace(order);
    for (Position& p : at) {
      if (!p.uses(l)) continue;
      std::vector<int> parted = p.loops();
      replace(parted);
      if (Position::Slice* s = p.slice()) s->loops = std::move(parted);
      else p = Position::array(reshape(p.array()->array, sizes(parted)), parted);
    }
    for (auto& [list, v] : inside) {
      const bool has = std::find(list.begin(), list.end(), l) != list.end();
      replace(list);
      if (has) v = reshape(v, sizes(list));
    }
    loops.push_back(a);
    off.insert(off.begin(), c);
    n *= part;
  }
  return n == inner ? off : std::vector<int>{};
}

// A progression as positions along several dims, slices all of them. False if it is none there.
bool Selection::digits(Position::Slice flat, const Shape& to, std::vector<Position>& out) {
  for (size_t d = to.size(); d-- > 1;) {
    const int64_t n = to[d], taken = count(flat.loops);
    const bool aligned =
        std::all_of(flat.start.terms.begin(), flat.start.terms.end(), [&](const auto& t) { return t.second % n == 0; });
    if (!aligned && !flat.loops.empty()) return false;
    Offset outer;
    const int64_t first = flat.start.at < 0 ? 0 : flat.start.at % n;  // below 0 only where a mask leaves it out
    if (!aligned) {
      ir::Builder& b = e_.builder();
      const ir::Value element = scalar(flat.start);
      out[d] = Position::fixed({0, {{b.elementwise(Opcode::rem, {element, number(n)}), 1}}});
      flat.start = {0, {{b.elementwise(Opcode::div, {element, number(n)}), 1}}};
      continue;
    }
    outer.at = flat.start.at / n;
    for (const auto& [v, f] : flat.start.terms) outer.terms.emplace_back(v, f / n);
    if (flat.loops.empty() || flat.step % n == 0) {
      out[d] = Position::fixed({first});
      flat.step /= n;
    } else if (first + (taken - 1) * flat.step < n) {
      out[d] = Position::slice({first}, flat.step, flat.loops);
      flat.loops.clear();
    } else {
      const int64_t row = n / flat.step;
      if (n % flat.step != 0 || first >= flat.step || taken % row != 0) return false;
      const std::vector<int> inner = cut(flat.loops, row);
      if (inner.empty()) return false;
      out[d] = Position::slice({first}, flat.step, inner);
      flat.step = 1;
    }
    flat.start = outer;
  }
  out[0] = progressing(flat);
  return true;
}

std::pair<Position, Position> Selection::split(const Position& p, int64_t n, int64_t ratio) {
  const std::vector<Position> parts = regroup({p}, {n}, {n / ratio, ratio});
  return {parts[0], parts[1]};
}

// -- what is left at the body's Ref
Selection::Access Selection::access(bool writes) {
  Access a;
  // A loop that two dims share, and all loops of arrays, are taken by arrays.
  std::vector<Position> list = at;
  const auto shares = [](const Position& x, const Position& y) {
    return std::any_of(x.loops().begin(), x.loops().end(), [&](int l) { return y.uses(l); });
  };
  for (Position& p : list) {
    Position::Slice* s = p.slice();
    if (!s) continue;
    const int first = s->loops[0];
    std::erase_if(s->loops, [&](int l) { return size[static_cast<size_t>(l)] == 1; });
    if (!s->loops.empty()) continue;
    if (std::any_of(list.begin(), list.end(), [&](const Position& o) { return o.uses(first); }))
      p = Position::fixed(s->start);
    else s->loops = {first};
  }
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t j = 0; j < list.size(); ++j)
      if (i != j && list[i].slice() && shares(list[i], list[j])) {
        const std::vector<int> loops = sorted({list[i]});
        list[i] = Position::array(positions(list[i], loops), loops);
      }
  // What meets in one element because a dim of size 1 had an index array is stored in order, too.
  const std::vector<int> used = sorted(list);
  for (int l : order)
    if (writes && size[static_cast<size_t>(l)] != 1 && std::find(used.begin(), used.end(), l) == used.end()) {
      const std::vector<int> loops = sorted({list[0], Position::slice({}, 0, {l})});
      list[0] = Position::array(positions(list[0], loops), loops);
    }
  std::vector<Position> arrays;
  for (const Position& p : list)
    if (p.array()) arrays.push_back(p);
  const std::vector<int> common = sorted(arrays);
  std::vector<std::vector<int>> of;  // loops per dim of the Ref that is a slice
  const auto dynamic = [&](ir::Value v) {
    a.starts.push_back(v);
    return a.starts.size() - 1;
  };
  const auto start_of = [&](const Offset& start) -> Index::Start {
    if (start.terms.empty()) return start.at;
    return Index::Dynamic{dynamic(scalar(start))};
  };
  for (const Position& p : list)
    a.index.push_back(std::visit(
        Cases{
            [&](const Position::Fixed& x) { return Index::at(start_of(x.start)); },
            [&](const Position::Slice& x) { return Index{Index::Slice{start_of(x.start), count(x.loops), x.step}}; },
            [&](const Position::Array& x) { return Index::array(dynamic(expand(x.array, x.loops, common))); },
        },
        p.what));
  const ir::Op op{.code = Opcode::load, .operands = a.starts, .index = a.index};
  const ir::AccessDims form = ir::access_dims(e_.trace().kernel(), op);
  a.shape = form.shape;
  for (size_t d = 0; d < form.shape.size(); ++d) {
    if (form.is_array_dim(d)) {
      a.loops.push_back(common[d - form.array_at]);
      continue;
    }
    for (size_t i = 0; i < list.size(); ++i)
      if (form.slice[i] == static_cast<int>(d))
        a.loops.insert(a.loops.end(), list[i].loops().begin(), list[i].loops().end());
  }
  return a;
}

std::vector<int> Selection::common(const std::vector<int>& loops) const {
  std::vector<int> r;
  for (int l : order)
    if (std::find(loops.begin(), loops.end(), l) != loops.end()) r.push_back(l);
  return r;
}

ir::Value Selection::to_memory(ir::Value v, const std::vector<int>& over, const Access& a) {
  for (int l : over)
    if (size[static_cast<size_t>(l)] != 1 && std::find(a.loops.begin(), a.loops.end(), l) == a.loops.end())
      throw InternalError("a view stores elements of one loop to one place", e_.loc());
  const std::vector<int> kept = common(a.loops);
  return reshape(expand(reshape(v, sizes(kept)), kept, a.loops), a.shape);
}

ir::Value Selection::condition(const std::vector<int>& over) {
  ir::Value r;
  for (const auto& [of, v] : inside) {
    std::vector<int> kept;
    bool varies = false;
    for (int l : of) {
      const bool there = std::find(over.begin(), over.end(), l) != over.end();
      if (there) kept.push_back(l);
      varies = varies || (!there && size[static_cast<size_t>(l)] != 1);
    }
    if (varies) continue;
    const ir::Value x = expand(reshape(v, sizes(kept)), kept, over);
    r = r ? e_.builder().elementwise(Opcode::and_, {r, x}) : x;
  }
  return r;
}

ir::Value Selection::take(ir::Value v, const std::vector<int>& loops, int loop, int64_t i) const {
  ir::Op slice{.code = Opcode::slice, .operands = {v}};
  std::vector<int64_t> start, limit, stride;
  Shape left;
  for (int l : loops) {
    const int64_t n = size[static_cast<size_t>(l)];
    start.push_back(l == loop ? i : 0);
    limit.push_back(l == loop ? i + 1 : n);
    stride.push_back(1);
    if (l != loop) left.push_back(n);
  }
  slice.set(Attr::start, std::move(start));
  slice.set(Attr::limit, std::move(limit));
  slice.set(Attr::stride, std::move(stride));
  ir::Builder& b = e_.builder();
  const ir::Value part = b.one(std::move(slice));
  return b.one({.code = Opcode::reshape, .operands = {part}}, ir::Type::array(b.kernel().type(part).dtype, left));
}

Selection Selection::without(int loop, int64_t i) const {
  Selection s = *this;
  std::erase(s.order, loop);
  for (auto& [loops, v] : s.inside) {
    if (std::find(loops.begin(), loops.end(), loop) == loops.end()) continue;
    v = take(v, loops, loop, i);
    std::erase(loops, loop);
  }
  return s;
}

bool selects(std::vector<ir::Index>& index, const Shape& shape) {
  size_t left = shape.size();
  for (size_t d = index.size(); d-- > 0;) {
    ir::Index& x = index[d];
    const ir::Index::Slice slice = x.as_slice();
    const bool one = slice.size == 1, shown = left > 0 && shape[left - 1] == 1;
    if (!one && (left == 0 || shape[left - 1] != slice.size)) return false;
    if (!one || shown) --left;
    if (one && shown) x = {ir::Index::Slice{slice.start, 1}};
    else if (one) x = ir::Index::at(slice.start);
  }
  return left == 0;
}

}  // namespace tessera
