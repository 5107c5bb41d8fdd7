// Random functions under jit over arrays of three dtypes of all there are, by seed: kernels on whole arrays, whose
// arguments they may not read, and kernels with blocks, which hang over, are read once or twice, row by row or
// transposed, and are stored at once, in parts, again, or onto an input; loops and branches around them. Floats are
// small integers, exact in every dtype and order, so that outputs must be equal. random_jit.h has more steps, in f32.
#pragma once
#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/front.h"

namespace tessera::test {

class MixedFunction {
 public:
  explicit MixedFunction(uint64_t seed) : random_(seed), m_(size({1, 2, 3, 4, 5})), n_(size({1, 3, 5, 7, 8, 9})) {
    if (below(24) == 0) n_ = 0;
    for (int i = 0; i < 3; ++i) dtypes_.push_back(static_cast<DType>(below(kNumDTypes)));
    inputs_seed_ = random_();
  }

  std::vector<ShapeDtype> arguments() const {
    std::vector<ShapeDtype> a;
    const std::vector<Shape> shapes{{m_, n_}, {n_}, {m_, n_}, {m_, 1}, {n_, m_}, {}};
    for (size_t i = 0; i < shapes.size(); ++i) a.push_back(typed(shapes[i], dtypes_[i % 3]));
    a.push_back(typed({3}, i32));
    return a;
  }
  bool uses(DType t) const { return std::find(dtypes_.begin(), dtypes_.end(), t) != dtypes_.end(); }
  std::vector<Array> inputs() const {
    std::mt19937_64 random(inputs_seed_);
    std::vector<Array> list;
    for (const ShapeDtype& t : arguments()) {
      Shape shape;
      for (const Extent& e : t.shape) shape.push_back(*e.value());
      Array& a = list.emplace_back(shape, t.dtype);
      for (int64_t i = 0; i < a.size(); ++i) {
        const int v = static_cast<int>(random() % 9) - 4;
        a.set_element_bits(i, t.dtype == boolean  ? static_cast<uint64_t>(v > 0)
                              : is_float(t.dtype) ? float_bits(t.dtype, v)
                                                  : static_cast<uint64_t>(v) & (~uint64_t{0} >> (64 - bits(t.dtype))));
      }
    }
    return list;
  }

  std::vector<Value> operator()(const std::vector<Value>& arguments) {
    pool_ = arguments;
    for (size_t i = 0, n = 3 + below(10); i < n; ++i) step(0);
    std::vector<Value> out;
    for (size_t i = 0, n = 1 + below(3); i < n; ++i) out.push_back(late(pool_, 5));
    return out;
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  int64_t size(std::initializer_list<int64_t> of) { return of.begin()[below(of.size())]; }
  static ShapeDtype typed(const Shape& s, DType t) { return {std::vector<Extent>(s.begin(), s.end()), t}; }
  static uint64_t float_bits(DType t, int v) {
    if (t == f64) return std::bit_cast<uint64_t>(static_cast<double>(v));
    if (t == f32) return std::bit_cast<uint32_t>(static_cast<float>(v));
    return to_narrow_bits(t, v);
  }
  Value late(const std::vector<Value>& from, size_t most) {
    return from[from.size() - 1 - below(std::min(from.size(), most))];
  }
  static Value tame(const Value& v) { return is_float(v.dtype()) ? clamp(-4, v, 4) : v; }
  /// Exactly, and the same on every device.
  static Value convert(const Value& v, DType t) {
    const DType from = v.dtype();
    if (from == t) return v;
    if (t == boolean) return v > 0;
    if (is_float(t) && is_int(from)) return cast(is_signed_int(from) ? clamp(-4, v, 4) : minimum(v, 4), t);
    if (is_unsigned_int(t) && is_float(from)) return cast(maximum(v, 0), t);
    return cast(v, t);
  }
  Value of_dtype(DType t) {
    std::vector<Value> fit;
    for (const Value& v : pool_)
      if (v.dtype() == t) fit.push_back(v);
    return fit.empty() || below(6) == 0 ? convert(late(pool_, 8), t) : late(fit, 4);
  }
  /// Some value as one of this dtype and shape.
  Value of(DType t, const Shape& shape) {
    std::vector<Value> fit;
    for (const Value& v : pool_)
      if (v.shape() == shape && (v.dtype() == t || below(4) == 0)) fit.push_back(v);
    if (!fit.empty() && below(5)) return convert(late(fit, 3), t);
    return shaped(of_dtype(t), shape);
  }
  Value shaped(const Value& v, const Shape& shape) {
    if (v.shape() == shape) return v;
    if (v.rank() == 2 && shape == Shape{v.shape()[1], v.shape()[0]}) return transpose(v);
    if (num_elements(v.shape()) == num_elements(shape)) return reshape(v, shape);
    if (v.rank() == 1 && shape.size() == 2 && shape[1] == v.shape()[0]) return broadcast_to(v, shape);
    if (v.rank() == 2 && shape.size() == 2 && v.shape()[1] == 1 && v.shape()[0] == shape[0])
      return broadcast_to(v, shape);
    if (num_elements(v.shape()) == 0) return zeros(shape, v.dtype());
    if (v.rank() == 2 && shape.size() == 1 && shape[0] == v.shape()[1])
      return v.dtype() == boolean ? reduce_or(v, {.axis = 0}) : max(v, {.axis = 0});
    return broadcast_to(v.dtype() == boolean ? reduce_or(v) : max(v), shape);
  }
  Shape some_shape() {
    const std::vector<Shape> shapes{{m_, n_}, {m_, n_}, {m_, n_}, {n_}, {m_, 1}, {n_, m_}, {}, {1, n_}};
    return shapes[below(shapes.size())];
  }
  DType some_dtype() { return dtypes_[below(3)]; }

  /// One element of each operand for each of the result.
  Value elementwise(const Value& v, const Value& w) {
    if (v.dtype() == boolean) return below(3) == 0 ? !v : below(2) ? v & w : v ^ w;
    switch (below(7)) {
      case 0: return is_float(v.dtype()) ? -v : v - w;
      case 1: return is_float(v.dtype()) ? abs(v) - 1 : v ^ w;
      case 2: return tame(v + w);
      case 3: return maximum(v, w);
      case 4: return where(v < w, v, w);
      case 5: return tame(convert(tame(convert(v, i32) + 1), v.dtype()));
      default: return tame(v - w);
    }
  }
  /// Of values of one shape, of which all may be left out, as one of dtype t.
  Value expression(const std::vector<Value>& leaves, DType t, const Shape& shape) {
    std::vector<Value> made;
    for (const Value& v : leaves)
      if (below(8)) made.push_back(v);
    if (made.empty()) made.push_back(ones(shape, t));
    for (size_t i = below(4); i > 0; --i) {
      const Value v = late(made, 4), w = late(made, 4);
      made.push_back(elementwise(v, convert(w, v.dtype())));
    }
    return tame(convert(made.back(), t));
  }

  /// A kernel on whole arrays.
  void whole() {
    const Shape shape = some_shape();
    const DType t = some_dtype();
    std::vector<Value> given;
    for (size_t i = 1 + below(3); i > 0; --i) given.push_back(below(3) ? of(some_dtype(), shape) : late(pool_, 6));
    const bool onto = given[0].shape() == shape && given[0].dtype() == t && below(4) == 0;
    const auto body = [&](const std::vector<Ref>& refs) {
      std::vector<Value> leaves;
      for (size_t i = 0; i < given.size(); ++i) {
        if (below(5) == 0) continue;  // an argument that is not read
        const Value v = refs[i == 0 && onto ? given.size() : i][all];
        if (can_broadcast(v.shape(), shape)) leaves.push_back(broadcast_to(v, shape));
      }
      refs.back()[all] = expression(leaves, t, shape);
    };
    call(body, given, {.out_shape = typed(shape, t), .name = "whole"}, onto);
  }
  static bool can_broadcast(const Shape& from, const Shape& to) {
    if (from.size() > to.size()) return false;
    for (size_t i = 0; i < from.size(); ++i) {
      const int64_t a = from[from.size() - 1 - i], b = to[to.size() - 1 - i];
      if (a != b && a != 1) return false;
    }
    return true;
  }
  template <class F>
  void call(const F& body, const std::vector<Value>& given, PallasCallParams p, bool onto = false) {
    if (onto) p.input_output_aliases = {{0, 0}};
    const size_t refs = given.size() + p.out_shape.list()->size() + p.scratch_shapes.size();
    const PallasCall made = spec::make_pallas_call({static_cast<int>(refs), body}, p, Loc::here());
    const Results r = made.in_graph({given.begin(), given.end()});
    for (size_t i = 0; i < r.size(); ++i) pool_.push_back(r[i]);
  }

  // -- kernels with blocks, on matrices

  enum class Kind : uint8_t { matrix, row, column, turned, unseen };
  struct Blocks {
    int64_t rows, columns;  // 0: squeezed
    bool swapped;           // the grid's first axis is that of the columns
    int64_t again;          // so many programs see a block one after another
    Shape shape() const {
      Shape s;
      for (int64_t n : {rows, columns})
        if (n > 0) s.push_back(n);
      return s;
    }
  };
  static BlockDim dim(int64_t n) { return n == 0 ? BlockDim(squeezed) : BlockDim(n); }
  static BlockSpec spec(Kind kind, const Blocks& b, int64_t shift = 0) {
    const auto map = [&](auto indices) {
      return [swapped = b.swapped, shift, indices](Value i, Value j, Value) {
        return indices((swapped ? j : i) + shift, swapped ? i : j);
      };
    };
    switch (kind) {
      case Kind::matrix: return {{dim(b.rows), dim(b.columns)}, map([](Value i, Value j) { return Indices{i, j}; })};
      case Kind::row: return {{dim(b.columns)}, map([](Value, Value j) { return Indices{j}; })};
      case Kind::column: return {{dim(b.rows), BlockDim(1)}, map([](Value i, Value) { return Indices{i, 0}; })};
      case Kind::turned: return {{dim(b.columns), dim(b.rows)}, map([](Value i, Value j) { return Indices{j, i}; })};
      case Kind::unseen: break;
    }
    return no_block_spec;
  }
  /// What a block's Ref holds, as a value of the output block's shape.
  Value seen(const Ref& r, Kind kind, const Shape& shape) {
    if (kind == Kind::column && r.rank() > static_cast<int>(shape.size())) return reshape(Value(r[all]), shape);
    if (kind == Kind::column || kind == Kind::row) return broadcast_to(Value(r[all]), shape);
    if (kind == Kind::turned && shape.size() == 2) return transpose(Value(r[all]));
    const Value v = r[all];
    if (shape.empty() || below(4)) return v;
    std::vector<Operand> rows;
    for (int64_t i = 0; i < shape[0]; ++i) rows.emplace_back(Value(r[i]));
    if (below(2)) return stack(rows);  // row by row alone, once the load above has no use
    return elementwise(v, stack(rows));
  }
  void store(const Ref& o, const Value& v) {
    const Shape& shape = o.shape();
    switch (below(7)) {
      case 0: o[all] = zeros(shape, o.dtype()); break;  // and again
      case 1: return when(program_id(0) >= 0, [&] { o[all] = v; });
      case 2:
        for (int64_t i = 0; i < (shape.empty() ? 0 : shape[0]); ++i)
          o[i] = reshape(slice(v, first(shape, i), behind(shape, i)), Shape(shape.begin() + 1, shape.end()));
        if (shape.empty()) break;
        return;
      case 3: when(program_id(1) == 0, [&] { o[all] = zeros(shape, o.dtype()); }); break;
      default: break;
    }
    o[all] = v;
  }
  static std::vector<int64_t> first(const Shape& s, int64_t i) {
    std::vector<int64_t> at(s.size());
    at[0] = i;
    return at;
  }
  static std::vector<int64_t> behind(Shape s, int64_t i) {
    s[0] = i + 1;
    return s;
  }
  /// A row of the block in each iteration of a loop.
  void by_rows(const std::vector<Ref>& refs, const std::vector<Kind>& kinds, const Ref& o, const Blocks& b) {
    const Shape shape = b.columns > 0 ? Shape{b.columns} : Shape{};
    fori_loop(0, static_cast<int>(b.rows), [&](Value i) {
      std::vector<Value> leaves;
      for (size_t k = 0; k < kinds.size(); ++k) {
        if (kinds[k] == Kind::matrix || (kinds[k] == Kind::turned && b.columns == 0)) leaves.push_back(refs[k][i]);
        if (kinds[k] == Kind::turned && b.columns > 0) leaves.push_back(refs[k][{all, i}]);
        if (kinds[k] == Kind::row) leaves.push_back(refs[k][all]);
      }
      o[i] = expression(leaves, o.dtype(), shape);
    });
  }
  void blocked() {
    const Blocks b{static_cast<int64_t>(below(static_cast<size_t>(m_) + 2)),
                   static_cast<int64_t>(below(static_cast<size_t>(n_) + 3)), below(2) == 1,
                   below(3) ? 1 : static_cast<int64_t>(1 + below(3))};
    const int64_t i = cdiv(m_, std::max<int64_t>(b.rows, 1)), j = cdiv(n_, std::max<int64_t>(b.columns, 1));
    std::vector<Kind> kinds;
    std::vector<Value> given;
    std::vector<BlockSpec> in_specs;
    for (size_t n = 1 + below(3); n > 0; --n) {
      const Kind kind = below(2) ? Kind::matrix : static_cast<Kind>(below(5));
      const std::vector<Shape> shapes{{m_, n_}, {n_}, {m_, 1}, {n_, m_}};
      kinds.push_back(kind);
      given.push_back(kind == Kind::unseen ? late(pool_, 6) : of(some_dtype(), shapes[static_cast<size_t>(kind)]));
      // the block below, where none hangs over
      const bool next = kind == Kind::matrix && b.rows > 0 && m_ % b.rows == 0 && given.size() > 1 && below(4) == 0;
      in_specs.push_back(spec(kind, b, next));
    }
    const DType t = below(3) ? some_dtype() : given[0].dtype();
    const bool onto = kinds[0] == Kind::matrix && t == given[0].dtype() && below(3) == 0, two = below(3) == 0;
    const bool looped = b.rows > 0 && !two && below(5) == 0, sums = !looped && b.again > 1 && below(2),
               check_it = below(16) == 0;
    const auto body = [&](const std::vector<Ref>& refs) {
      std::vector<Value> leaves;
      for (size_t k = 0; k < given.size(); ++k)
        if (kinds[k] != Kind::unseen)
          leaves.push_back(seen(refs[k == 0 && onto && below(2) ? given.size() : k], kinds[k], b.shape()));
      if (below(4) == 0) leaves.push_back(broadcast_to(convert(program_id(0), t), b.shape()));
      const Ref &o = refs[given.size()], &acc = refs.back();
      if (looped) return by_rows(refs, kinds, o, b);
      const Value made = expression(leaves, t, b.shape());
      if (sums) {
        when(program_id(2) == 0, [&] { acc[all] = zeros(b.shape(), i32); });
        acc[all] += convert(made, i32);
        when(program_id(2) == b.again - 1, [&] { o[all] = tame(convert(clamp(-4, acc[all], 4), t)); });
      } else {
        store(o, made);
      }
      if (two) store(refs[given.size() + 1], expression(leaves, t, b.shape()));
      if (check_it) check(program_id(0) >= 0, "a program {}", program_id(0));
    };
    PallasCallParams p{.out_shape = std::vector<ShapeDtype>(two ? 2 : 1, typed({m_, n_}, t)),
                       .grid = b.swapped ? Grid{j, i, b.again} : Grid{i, j, b.again},
                       .in_specs = in_specs,
                       .out_specs = std::vector<BlockSpec>(two ? 2 : 1, spec(Kind::matrix, b)),
                       .name = "blocked"};
    if (sums) p.scratch_shapes = {VMEM(b.shape(), i32)};
    call(body, given, p, onto);
  }
  /// Rows by a table of their numbers; a row's neighbours; windows, which may not fit; how often values come.
  void special() {
    const DType t = some_dtype();
    Value x = of(t, {m_, n_});
    if (below(2)) x = elementwise(x, broadcast_to(of(t, {n_}), {m_, n_}));
    if (n_ == 0) return;
    switch (below(4)) {
      case 0: {
        const auto body = [&](const std::vector<Ref>& refs) { refs[2][all] = refs[1][all]; };
        const BlockSpec from{{1, n_}, [](Value i, Ref rows) { return Indices{rows[i], 0}; }},
            to{{1, n_}, [](Value i, Ref) { return Indices{i, 0}; }};
        return call(body, {of(i32, {3}), x},
                    {.out_shape = typed({3, n_}, t), .grid_spec = GridSpec{1, 3, from, to}, .name = "rows"});
      }
      case 1: {
        const auto body = [&](const std::vector<Ref>& refs) {
          const Value v = refs[0][all];
          refs[1][all] = elementwise(slice(v, {0, 0}, {2, n_}), slice(v, {2, 0}, {4, n_}));
        };
        const auto at = [](Value i) { return Indices{i, 0}; };
        const BlockSpec from{{Halo(2, 1, static_cast<Edge>(below(5))), n_}, at}, to{{2, n_}, at};
        return call(body, {x},
                    {.out_shape = typed({m_, n_}, t),
                     .grid = {cdiv(m_, 2)},
                     .in_specs = {from},
                     .out_specs = {to},
                     .name = "neighbours"});
      }
      case 2: {
        const auto some = [&](int64_t n) { return static_cast<int64_t>(below(static_cast<size_t>(n))); };
        const int64_t step = 1 + some(2), rows = 1 + some((m_ - 1) / step + 1), columns = 1 + some(n_);
        const int64_t i = some(3 * m_) - m_, j = some(3 * n_) - n_;
        const auto body = [&](const std::vector<Ref>& refs) {
          refs[1][all] = refs[0][{ds(program_id(0) + i, rows, step), ds(program_id(0) + j, columns)}];
        };
        return call(body, {x}, {.out_shape = typed({rows, columns}, t), .grid = {1}, .name = "window"});
      }
      default: {
        const DType counts = below(2) ? i32 : u32;
        const auto body = [&](const std::vector<Ref>& refs) {
          const Value i = convert(refs[1][all], i32) & 7;
          atomic_add(refs[2], {i}, ones(i.shape(), counts));
        };
        return call(body, {of(counts, {8}), x}, {.out_shape = typed({8}, counts), .name = "counts"}, true);
      }
    }
  }

  /// Some steps of a body that is given these; what the pool has of them the caller drops.
  void inside(int depth, std::initializer_list<Value> given, size_t steps) {
    pool_.insert(pool_.end(), given);
    for (; steps > 0; --steps) step(depth + 1);
  }

  void step(int depth) {
    switch (below(depth < 2 ? 17 : 14)) {
      case 0:
      case 1: {
        const Value v = late(pool_, 5);
        return pool_.push_back(elementwise(v, of(v.dtype(), v.shape())));
      }
      case 2: return pool_.push_back(of(some_dtype(), some_shape()));
      case 3: return pool_.push_back(convert(late(pool_, 5), some_dtype()));
      case 4:
      case 5:
      case 6: return whole();
      case 7:
      case 8: return special();
      case 14: {
        const auto outside = pool_;
        const DType t = some_dtype(), u = some_dtype();
        const Shape s = some_shape(), r = some_shape();
        const auto [a, c] =
            fori_loop(0, static_cast<int>(below(4)), std::tuple{of(t, s), of(u, r)}, [&](Value i, Value x, Value y) {
              inside(depth, {i, x, y}, 1 + below(4));
              if (t == u && s == r && below(2)) return std::tuple{y, x};
              return std::tuple{of(t, s), of(u, r)};
            });
        pool_ = outside;
        pool_.push_back(a);
        return pool_.push_back(c);
      }
      case 15: {
        const auto outside = pool_;
        const DType t = some_dtype();
        const Shape s = some_shape();
        const auto [n, a] = while_loop(
            std::tuple{Value(convert(of(some_dtype(), {}), i32) - 2), of(t, s)}, [&](Value i, Value) { return i < 3; },
            [&](Value i, Value x) {
              inside(depth, {i, x}, 1 + below(3));
              return std::tuple{i + 1, of(t, s)};
            });
        pool_ = outside;
        pool_.push_back(n);
        return pool_.push_back(a);
      }
      case 16: {
        const auto outside = pool_;
        const DType t = some_dtype();
        const Shape s = some_shape();
        const auto branch = [&] {
          inside(depth, {}, below(3));
          const Value v = of(t, s);
          pool_ = outside;
          return v;
        };
        return pool_.push_back(switch_(convert(of(some_dtype(), {}), i32), branch, branch, branch));
      }
      default: return blocked();
    }
  }

  std::mt19937_64 random_;
  int64_t m_, n_;
  std::vector<DType> dtypes_;
  uint64_t inputs_seed_ = 0;
  std::vector<Value> pool_;
};

inline auto mixed_jit(uint64_t seed) {
  return jit([seed](const std::vector<Value>& v) { return MixedFunction(seed)(v); }, {.name = "mixed"});
}

}  // namespace tessera::test
