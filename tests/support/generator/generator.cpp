// What the kernels contain: grids of rank 0 to 6, empty ones too; blocked and squeezed dims with overhang, element dims
// with padding and bounded ones, which overlap; outputs that are aliased to inputs, in the same blocks or others;
// inputs that are stored to; block shapes that are not powers of two; index maps that are identities, permutations,
// constants, sums, halves, and beyond the array's edge (clamped); whole-array Refs; run-time extents and grid sizes;
// scratch that is a program's own, initialised once, or an accumulator along an axis; loads and stores by slices,
// steps, integers, index arrays, program-dependent starts (in bounds or not) and masks; swaps and updates; memory in
// run_scoped, with copies in and out and semaphores; scratch that is initialised again where something about the
// program ids holds; integers whose arithmetic wraps in every width, in index maps, starts and conditions; loops of up
// to 100 rounds whose number data says, or with counters near the ends of i32; outputs that are read back; elementwise
// chains over all dtypes, data movement, reductions, scans, dots; for loops with carried tiles, while loops, if and
// switch; constants that come as numbers by value, or as run-time sizes.
#include "tests/support/generator/generator.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "engine/ir/builder.h"
#include "engine/ir/walk.h"
#include "tests/support/generator/control.h"
#include "tests/support/generator/integers.h"
#include "tests/support/generator/patterns.h"
#include "tests/support/generator/threads.h"

namespace tessera::fuzz {
namespace {
class Generator : Patterns {
 public:
  Generator(uint64_t seed, Pattern pattern) : Patterns(seed), pattern_(pattern) {}

  Case run() {
    if (pattern_ != Pattern::none) return patterned();
    ir::Kernel& k = out_.kernel;
    grid();
    arrays();
    for (int i = k.num_prefetch; i < k.num_inputs; ++i)
      if (ir::BlockMapping& m = k.blocks[static_cast<size_t>(i)]; !m.is_whole() && random_.chance(0.12))
        m.buffering.count = random_.in(1, 3);
    values_.b.set_region(k.body);
    for (size_t axis = first_visible(); axis < k.grid.size(); ++axis)
      if (random_.chance(0.85)) pid(axis);
    if (random_.chance(0.2) && k.grid.size() > first_visible()) {
      const size_t axis = first_visible() + random_.below(k.grid.size() - first_visible());
      Op op{.code = Opcode::num_programs};
      op.set(Attr::axis, static_cast<int64_t>(axis - first_visible()));
      values_.pool.push_back(
          values_.note(values_.b.one(std::move(op)), {static_cast<double>(grid_[axis]), 0, true, false}));
    }
    initialise_scratch();
    if (random_.chance(0.4)) stream();
    if (accumulator_ >= 0) accumulate();
    if (random_.chance(0.07)) chain();
    if (random_.chance(0.09)) einsum();
    for (int64_t n = size_ == Size::huge || size_ == Size::many ? random_.in(1, 4) : random_.in(2, 10); n-- > 0;)
      statement(0);
    std::vector<bool> swapped(refs_.size(), false);
    for (size_t i = 0; i < refs_.size(); ++i)
      if (refs_[i].block >= k.num_inputs && random_.chance(0.08))
        swapped[i] = swap_a_part(refs_[i]) && random_.chance(0.7);
    for (size_t i = 0; i < refs_.size(); ++i)
      if (refs_[i].block >= k.num_inputs && !swapped[i]) final_store(refs_[i]);
    values_.b.yield({});
    if (random_.chance(0.4)) declare_parallel();
    for (const RefInfo& r : refs_)
      if (r.block >= k.num_inputs) out_.tolerance.push_back({4 * r.fact.err});
    return std::move(out_);
  }

 private:
  // A kernel of a pattern, with a few random statements at times.
  Case patterned() {
    make(pattern_);
    if (random_.chance(0.3)) statement(0);
    for (size_t i = 0; i < refs_.size(); ++i)
      if (refs_[i].block >= out_.kernel.num_inputs && !stored_[i]) final_store(refs_[i]);
    values_.b.yield({});
    for (const RefInfo& r : refs_)
      if (r.block >= out_.kernel.num_inputs) out_.tolerance.push_back({4 * r.fact.err});
    return std::move(out_);
  }

  // -- control flow; what a region makes stays in it

  // Blocks of inputs as most kernels read them: whole, and outside of control flow; some multiplied there and then.
  void stream() {
    for (RefInfo& r : refs_) {
      if (r.block < out_.kernel.num_prefetch || r.block >= out_.kernel.num_inputs || !r.readable ||
          num_elements(r.shape) == 0 || random_.chance(0.3))
        continue;
      Value v = load_block(r, 1);
      if (r.shape.size() == 2 && !values_.fact(v).dirty && r.dtype != DType::boolean && num_elements(r.shape) < 3000 &&
          random_.chance(0.5)) {
        const auto to = values_.cast(
            v, (r.dtype == DType::f16 || r.dtype == DType::bf16 || r.dtype == DType::i32) && random_.chance(0.5)
                   ? r.dtype
                   : DType::f32);
        const DType t = to ? values_.type(*to).dtype : DType::f32;
        if (to) v = values_.product(*to, values_.want(t, {r.shape[1], random_.in(3, 16)}, true), {{1}, {0}, {}, {}}, t);
      }
      values_.pool.push_back(v);
    }
  }

  // when(k == 0) acc = 0; acc += value; the sum goes to the pool, or to an output when(k == last).
  void accumulate() {
    RefInfo& r = refs_.back();
    const size_t axis = static_cast<size_t>(accumulator_);
    statement(0), statement(0);
    const Value zero = values_.constant(r.dtype, 0, r.shape);
    values_.b.when(is_id(axis, 0), [&] { store_all(r, zero); });
    Value v;
    if (r.shape.size() == 2 && random_.chance(0.6)) {  // a product in pieces along the axis
      const int64_t depth = some_size();
      v = values_.product(values_.want(r.dtype, {r.shape[0], depth}, true),
                          values_.want(r.dtype, {depth, r.shape[1]}, true), {{1}, {0}, {}, {}}, r.dtype);
    } else {
      v = values_.want(r.dtype, r.shape, true);
    }
    v = values_.conform(v, 4000);
    const double bound = 4000.0 * static_cast<double>(programs_);
    const Value old = values_.note(load_all(r), {bound - 4000, 0, true, false});
    store_all(r, *values_.apply(Opcode::add, {old, v}));
    r.fact = {bound, 0, true, false};
    r.readable = true;
    const Value sum = values_.note(load_all(r), r.fact);
    values_.pool.push_back(sum);
    for (RefInfo& o : refs_)
      if (o.block >= out_.kernel.num_inputs && random_.chance(0.6)) {
        const auto c = values_.cast(sum, o.dtype);
        if (!c) continue;
        const Value piece = fit(o, values_.coerce(*c, o.shape));
        values_.b.when(is_id(axis, grid_[axis] - 1), [&] { store_all(o, piece); });
        break;
      }
  }

  template <class F> auto scoped(F f) {
    const size_t n = values_.pool.size(), counters = values_.counters.size(), outer = region_start_;
    region_start_ = n;
    auto result = f();
    region_start_ = outer;
    values_.pool.resize(n);
    values_.counters.resize(counters);
    return result;
  }
  void statements(int depth) {
    for (int64_t n = random_.in(1, 3); n-- > 0;) statement(depth);
    if (random_.chance(0.4))
      if (RefInfo* r = some_ref(true)) store(*r, depth);
  }

  struct Carry {
    Type type;
    Fact fact;
  };
  std::vector<Carry> carries(std::vector<Value>& init) {
    std::vector<Carry> list;
    for (int64_t n = random_.in(0, 2); n-- > 0;) {
      Value v = values_.pool.empty() ? values_.leaf(values_.some_dtype(), {}) : random_.pick(values_.pool);
      if (num_elements(values_.type(v).shape) > 1500) continue;
      if (values_.fact(v).dirty) v = values_.leaf(values_.type(v).dtype, values_.type(v).shape);
      v = values_.conform(v, 100);
      const DType t = values_.type(v).dtype;
      init.push_back(v);
      list.push_back({values_.type(v), {is_float(t) ? 100 : std::max(exact_limit(t), 1.0), 0, true, false}});
    }
    return list;
  }
  Value next(const Carry& c, Value now) {
    Value v = values_.want(c.type.dtype, c.type.shape, true);
    if (random_.chance(0.6)) {
      const auto sum = values_.apply(c.type.dtype == DType::boolean ? Opcode::xor_ : Opcode::add, {now, v});
      if (sum) v = *sum;
    }
    return values_.conform(with_unused(v, 2, true), c.fact.bound);
  }

  // Up to 100 rounds, as many as data says, or with a counter near the ends of i32: sums over elements at the counter's
  // position.
  void straight_loop() {
    ir::Builder& b = values_.b;
    const Fact any{exact_limit(DType::i32), 0, true, false};
    const auto number = [&](int64_t n) { return b.constant_int(DType::i32, n); };
    Value lower = number(0), upper = values_.scalar_int(0, 100),
          step = number(random_.chance(0.6) ? 1 : random_.in(1, 40));
    if (random_.chance(0.5)) {
      const ExtremeLoop e = extreme_loop(random_, 40);
      lower = number(e.lower), upper = number(e.upper), step = number(e.step);
      if (random_.chance(0.4) && e.lower < INT32_MAX - 3)
        lower = b.elementwise(Opcode::add, {lower, values_.scalar_int(0, 3)});
      if (random_.chance(0.4) && e.upper > INT32_MIN + 3)
        upper = b.elementwise(Opcode::sub, {upper, values_.scalar_int(0, 3)});
    }
    std::vector<const RefInfo*> list;
    for (const RefInfo& r : refs_)
      if (r.readable && r.block < out_.kernel.num_inputs && r.fact.err == 0 && !r.fact.dirty && !wild(r.fact) &&
          num_elements(r.shape) > 0 && (r.block < 0 || !hangs_over(r)))
        list.push_back(&r);
    const RefInfo* from = list.empty() ? nullptr : random_.pick(list);
    const Value start = values_.scalar_int(-5, 5);
    const int64_t odd = random_.in(-4, 4) * 2 + 1;
    const std::vector<Value> sum =
        b.for_loop(lower, upper, step, {start}, [&](Value iv, const std::vector<Value>& carried) {
          values_.note(iv, any);
          values_.note(carried[0], any);
          Value v = b.elementwise(random_.chance(0.5) ? Opcode::xor_ : Opcode::sub, {carried[0], iv});
          if (from) {
            Op op{.code = Opcode::load, .operands = {from->ref}};
            for (const int64_t n : from->shape) {
              op.index.push_back(Index::at(Index::Dynamic{op.operands.size()}));
              const Value other = values_.any_int();
              op.operands.push_back(random_.chance(0.7) ? iv : wrapped_int(b, Random(random_.next()), iv, other, n));
            }
            if (const auto x = values_.cast(values_.note(b.one(std::move(op)), from->fact), DType::i32);
                x && values_.fact(*x).err == 0)
              v = b.elementwise(Opcode::add, {v, *x});
          }
          return std::vector<Value>{
              b.elementwise(Opcode::add, {b.elementwise(Opcode::mul, {v, number(odd)}), carried[0]})};
        });
    values_.pool.push_back(values_.note(sum[0], any));
  }

  void for_loop(int depth) {
    if (random_.chance(0.3)) return straight_loop();
    std::vector<Value> init;
    const std::vector<Carry> list = carries(init);
    const bool simple = random_.chance(0.5);
    const Value lower = simple ? values_.constant(DType::i32, 0) : values_.scalar_int(-2, 2);
    const int64_t rounds = random_.chance(0.7) ? random_.in(2, 5) : random_.in(0, random_.chance(0.3) ? 20 : 1);
    const Value upper = simple ? values_.constant(DType::i32, static_cast<double>(rounds)) : values_.scalar_int(0, 4);
    const Value step = values_.constant(DType::i32, random_.chance(0.8) ? 1 : static_cast<double>(random_.in(1, 3)));
    const auto results = scoped([&] {
      return values_.b.for_loop(lower, upper, step, init, [&](Value iv, const std::vector<Value>& args) {
        values_.pool.push_back(values_.note(iv, {20, 0, true, false}));
        if (simple && rounds > 0) values_.counters.push_back({iv, rounds - 1});
        for (size_t i = 0; i < args.size(); ++i) values_.pool.push_back(values_.note(args[i], list[i].fact));
        statements(depth + 1);
        std::vector<Value> out;
        for (size_t i = 0; i < args.size(); ++i) out.push_back(next(list[i], args[i]));
        return out;
      });
    });
    for (size_t i = 0; i < results.size(); ++i) values_.pool.push_back(values_.note(results[i], list[i].fact));
  }

  // Products that share axes, as in attention: for each chunk of keys, scores = q k^T against their own maximum, and
  // acc += scores v.
  void chain() {
    const DType t = random_.chance(0.6) ? DType::f32 : values_.some_dtype();
    const DType sum = t == DType::boolean ? DType::f32 : is_float(t) && bits(t) < 32 ? DType::f32 : t;
    const DType in = t == DType::boolean ? DType::f32 : t;
    std::vector<int64_t> n;  // queries, keys, depth, columns
    for (int i = 0; i < 4; ++i)
      n.push_back(values_.plain && random_.chance(0.8) ? random_.pick(values_.sizes) : some_size());
    while (n[0] * n[1] * (n[2] + n[3]) > 100000) n[static_cast<size_t>(random_.below(4))] = random_.in(1, 16);
    const Value q = values_.conform(values_.want(in, {n[0], n[2]}, true), 4);
    std::vector<Value> init{values_.conform(values_.want(sum, {n[0], n[3]}, true), 100)};
    const bool with_maximum = random_.chance(0.5);
    if (with_maximum) init.push_back(values_.conform(values_.want(sum, {n[0]}, true), 100));
    const double bound = is_float(sum) ? 100 : std::max(exact_limit(sum), 1.0);
    const int64_t rounds = random_.in(1, 3);
    const auto rows_of = [&](Value v, int64_t columns) { return values_.broadcast(v, {n[0], columns}, {0}); };
    const auto results = scoped([&] {
      return values_.b.for_loop(
          values_.constant(DType::i32, 0), values_.constant(DType::i32, static_cast<double>(rounds)),
          values_.constant(DType::i32, 1), init, [&](Value iv, const std::vector<Value>& args) {
            values_.counters.push_back({iv, rounds - 1});
            for (const Value v : args) values_.note(v, {bound, 0, true, false});
            if (random_.chance(0.7)) statement(2);
            const Value k = values_.conform(values_.want(in, {n[1], n[2]}, true), 4),
                        v = values_.conform(values_.want(in, {n[1], n[3]}, true), 4);
            Value scores = values_.conform(values_.product(q, k, {{1}, {1}, {}, {}}, sum), 50);
            Op op{.code = Opcode::reduce_max, .operands = {scores}};
            op.set(Attr::axes, 1);
            const Fact f = values_.fact(scores);
            Value greatest = values_.note(values_.b.one(std::move(op)), f);
            if (with_maximum) greatest = *values_.apply(Opcode::max, {args[1], greatest});
            scores = values_.conform(*values_.apply(Opcode::sub, {scores, rows_of(greatest, n[1])}), 4);
            if (const auto p = values_.cast(scores, in)) scores = values_.conform(*p, 4);
            else scores = values_.leaf(in, {n[0], n[1]});
            Value acc = args[0];
            if (with_maximum) acc = *values_.apply(Opcode::min, {acc, rows_of(greatest, n[3])});
            acc = values_.conform(
                *values_.apply(Opcode::add, {acc, values_.product(scores, v, {{1}, {0}, {}, {}}, sum)}), 100);
            std::vector<Value> out{acc};
            if (with_maximum) out.push_back(values_.conform(greatest, 100));
            return out;
          });
    });
    for (const Value v : results) values_.pool.push_back(values_.note(v, {bound, 0, true, false}));
  }

  // Of a product's other operand: some of the first one's dims, as batch or contracted dims, and some of its own.
  std::vector<size_t> other_dims(const std::vector<size_t>& first, size_t all, std::vector<size_t>& batch,
                                 std::vector<size_t>& contracted) {
    std::vector<size_t> dims;
    for (const size_t d : first) {
      const double role = static_cast<double>(random_.below(100)) / 100;
      if (role < 0.25) batch.push_back(d), dims.push_back(d);
      else if (role < 0.65) contracted.push_back(d), dims.push_back(d);
    }
    for (size_t d = 0; d < all; ++d)
      if (std::find(first.begin(), first.end(), d) == first.end() && dims.size() < 3 && random_.chance(0.6))
        dims.push_back(d);
    if (random_.chance(0.4)) random_.shuffle(dims);
    return dims;
  }

  // Products and sums over tiles that share a few named dims, as einsum writes them: one dim is batch here, contracted
  // or free there.
  void einsum() {
    struct Tile {
      Value v;
      std::vector<size_t> dims;
    };
    std::vector<int64_t> sizes;
    for (int64_t n = random_.in(3, 4); n-- > 0;)
      sizes.push_back(values_.plain ? random_.pick(values_.sizes) : some_size());
    const auto shape = [&](const std::vector<size_t>& dims) {
      Shape s;
      for (const size_t d : dims) s.push_back(sizes[d]);
      return s;
    };
    const DType t = random_.chance(0.7)                      ? DType::f32
                    : values_.some_dtype() == DType::boolean ? DType::i32
                                                             : values_.some_dtype();
    const DType type = t == DType::boolean ? DType::i32 : t;
    std::vector<Tile> tiles;
    const auto fresh = [&](std::vector<size_t> dims) {
      for (const Tile& x : tiles)
        if (x.dims == dims && random_.chance(0.5)) return x;
      while (num_elements(shape(dims)) > 6000) dims.pop_back();
      return Tile{values_.conform(values_.want(type, shape(dims), true), 4), dims};
    };
    for (int64_t n = random_.in(2, 4); n-- > 0;) {
      Tile x = !tiles.empty() && random_.chance(0.7) ? random_.pick(tiles) : Tile{};
      if (!x.v) {
        std::vector<size_t> dims;
        for (size_t d = 0; d < sizes.size(); ++d) dims.push_back(d);
        random_.shuffle(dims);
        dims.resize(static_cast<size_t>(random_.in(1, 3)));
        x = fresh(dims);
        tiles.push_back(x);
      }
      std::vector<size_t> contracted, batch;
      const Tile y = fresh(other_dims(x.dims, sizes.size(), batch, contracted));
      const auto position = [](const Tile& tile, size_t d) {
        return static_cast<int64_t>(std::find(tile.dims.begin(), tile.dims.end(), d) - tile.dims.begin());
      };
      Values::DotDims dims;
      Tile r;
      double work = 1;
      for (const size_t d : batch)
        if (position(y, d) < static_cast<int64_t>(y.dims.size()))
          dims.lhs_batch.push_back(position(x, d)), dims.rhs_batch.push_back(position(y, d)), r.dims.push_back(d);
      for (const size_t d : contracted)
        if (position(y, d) < static_cast<int64_t>(y.dims.size()))
          dims.lhs_contract.push_back(position(x, d)), dims.rhs_contract.push_back(position(y, d));
      const auto free_dims = [&](const Tile& tile, const std::vector<int64_t>& a, const std::vector<int64_t>& c) {
        for (size_t i = 0; i < tile.dims.size(); ++i)
          if (std::find(a.begin(), a.end(), static_cast<int64_t>(i)) == a.end() &&
              std::find(c.begin(), c.end(), static_cast<int64_t>(i)) == c.end())
            r.dims.push_back(tile.dims[i]);
      };
      free_dims(x, dims.lhs_batch, dims.lhs_contract);
      free_dims(y, dims.rhs_batch, dims.rhs_contract);
      for (const size_t d : r.dims) work *= static_cast<double>(sizes[d]);
      for (const int64_t d : dims.lhs_contract) work *= static_cast<double>(sizes[x.dims[static_cast<size_t>(d)]]);
      if (work > 150000 || r.dims.size() > 4) continue;
      r.v = values_.product(x.v, y.v, dims, type);
      values_.pool.push_back(r.v);
      for (const Tile& z : tiles) {  // what has some of its dims, in order, joins it
        if (r.dims.empty() || random_.chance(0.5)) continue;
        std::vector<int64_t> to;
        for (const size_t d : z.dims) to.push_back(position(r, d));
        if (!std::is_sorted(to.begin(), to.end()) ||
            std::any_of(to.begin(), to.end(), [&](int64_t at) { return at >= static_cast<int64_t>(r.dims.size()); }))
          continue;
        if (const auto sum = values_.apply(random_.chance(0.5) ? Opcode::add : Opcode::max,
                                           {r.v, values_.broadcast(z.v, shape(r.dims), to)}))
          r.v = *sum;
      }
      r.v = values_.conform(r.v, 50);
      values_.pool.push_back(r.v);
      if (r.dims.size() <= 3) tiles.push_back(r);
    }
  }

  void while_loop(int depth) {
    ir::Builder& b = values_.b;
    std::vector<Value> init{values_.scalar_int(-1, 2)};
    const std::vector<Carry> list = carries(init);
    const Value limit = values_.scalar_int(0, 4);
    std::vector<Type> types;
    for (const Value v : init) types.push_back(values_.type(v));
    const RegionId outer = b.region(), cond = b.new_region(types), body = b.new_region(types);
    const auto enter = [&](RegionId r) {
      b.set_region(r);
      const std::vector<Value> args = out_.kernel.region(r).args;
      values_.pool.push_back(values_.note(args[0], {4, 0, true, false}));
      for (size_t i = 0; i < list.size(); ++i) values_.pool.push_back(values_.note(args[i + 1], list[i].fact));
      return args;
    };
    scoped([&] {
      const std::vector<Value> args = enter(cond);
      if (random_.chance(0.3))
        if (RefInfo* r = some_ref(true)) store(*r, depth + 1);
      Value go = *values_.apply(Opcode::lt, {args[0], limit});
      if (random_.chance(0.2)) go = *values_.apply(Opcode::and_, {go, values_.want(DType::boolean, {}, true)});
      b.yield({go});
      return 0;
    });
    scoped([&] {
      const std::vector<Value> args = enter(body);
      statements(depth + 1);
      std::vector<Value> out{b.elementwise(Opcode::add, {args[0], values_.constant(DType::i32, 1)})};
      for (size_t i = 0; i < list.size(); ++i) out.push_back(next(list[i], args[i + 1]));
      b.yield(out);
      return 0;
    });
    b.set_region(outer);
    const ir::OpId id = b.append({.code = Opcode::while_, .operands = init, .regions = {cond, body}});
    const std::vector<Value> results = out_.kernel.op(id).results;
    values_.pool.push_back(values_.note(results[0], {4, 0, true, false}));
    for (size_t i = 0; i < list.size(); ++i) values_.pool.push_back(values_.note(results[i + 1], list[i].fact));
  }

  void choice(int depth, bool is_switch) {
    ir::Builder& b = values_.b;
    const Value selector = is_switch ? values_.scalar_int(-1, 4) : values_.scalar_bool();
    std::vector<Type> types;
    for (int64_t n = random_.in(0, 2); n-- > 0;) {
      if (!values_.pool.empty() && random_.chance(0.7)) types.push_back(values_.type(random_.pick(values_.pool)));
      else types.push_back(Type::array(values_.some_dtype()));
      if (num_elements(types.back().shape) > 1500) types.pop_back();
    }
    std::vector<Fact> facts(types.size());
    std::vector<RegionId> regions;
    const RegionId outer = b.region();
    for (int64_t n = is_switch ? random_.in(1, 4) : 2; n-- > 0;) {
      regions.push_back(b.new_region({}));
      b.set_region(regions.back());
      scoped([&] {
        if (random_.chance(0.85)) statements(depth + 1);
        std::vector<Value> out;
        for (size_t i = 0; i < types.size(); ++i) {
          out.push_back(with_unused(values_.want(types[i].dtype, types[i].shape, false), 2, false));
          facts[i] = join(facts[i], values_.fact(out.back()));
        }
        b.yield(out);
        return 0;
      });
    }
    b.set_region(outer);
    const ir::OpId id =
        b.append({.code = is_switch ? Opcode::switch_ : Opcode::if_, .operands = {selector}, .regions = regions});
    const std::vector<Value> results = out_.kernel.op(id).results;
    for (size_t i = 0; i < results.size(); ++i) values_.pool.push_back(values_.note(results[i], facts[i]));
  }

  // Memory of a region's own, and what copies and semaphores do there: a tile that a copy fills from a window of
  // something readable while values are computed, statements on it, a copy back into something else.
  void run_scoped(int depth) {
    ir::Builder& b = values_.b;
    const ir::Kernel& k = out_.kernel;
    RefInfo* from = random_.chance(0.8) ? some_ref(false) : nullptr;
    std::vector<Index> window;
    std::vector<Value> starts;
    Shape shape{random_.in(1, 9), random_.in(1, 9)};
    if (from) shape = random_index(*from, false, window, starts, 3);
    const DType t = from ? from->dtype : values_.some_dtype();
    if (num_elements(shape) > (size_ == Size::huge ? 20000 : 3000)) return;
    const Type tile = Type::ref(t, shape,
                                random_.chance(0.85) ? MemorySpace::vmem
                                : shape.empty()      ? MemorySpace::smem
                                                     : MemorySpace::any);
    const Shape several = random_.chance(0.4) ? Shape{} : random_.chance(0.8) ? Shape{random_.in(1, 4)} : Shape{3, 4};
    const RegionId outer = b.region(),
                   r = b.new_region({tile, Type::ref(DType::i32, several, MemorySpace::dma_semaphore),
                                     Type::ref(DType::i32, several, MemorySpace::semaphore)});
    const std::vector<Value> args = k.region(r).args;
    std::vector<Type> types;
    std::vector<Fact> facts;
    const size_t tiles = scoped_.size();
    b.set_region(r);
    scoped([&] {
      RefInfo mine;
      mine.ref = args[0], mine.dtype = t, mine.shape = shape, mine.stateful = true, mine.readable = true;
      mine.fact = {is_float(t) ? 100.0 : std::max(exact_limit(t), 1.0), 0, true, false};
      const auto copy = [&](Value source, const std::vector<Index>& source_index, Value target,
                            const std::vector<Index>& target_index, const std::vector<Value>& window_starts) {
        Op op{.code = Opcode::copy_start, .operands = {source, target}, .index = source_index};
        op.index.insert(op.index.end(), target_index.begin(), target_index.end());
        op.operands.insert(op.operands.end(), window_starts.begin(), window_starts.end());
        op = on_semaphore(std::move(op), args[1], several);
        Op wait = op;
        wait.code = Opcode::copy_wait;
        b.append(std::move(op));
        return wait;
      };
      std::vector<Index> all_of;
      for (const int64_t n : shape) all_of.push_back(Index::all(n));
      const bool fits = from && !(from->fact.dirty || !from->readable || (from->block >= 0 && hangs_over(*from))) &&
                        from->fact.err == 0 && (!is_float(t) || from->fact.bound <= 100);
      if (fits) {
        Op wait = copy(from->ref, window, args[0], all_of, starts);
        for (int64_t n = random_.in(0, 2); n-- > 0 && !values_.pool.empty();)
          values_.pool.push_back(values_.elementwise(random_.pick(values_.pool)));
        b.append(std::move(wait));
      } else {
        store_all(mine, values_.conform(values_.want(t, shape, true), mine.fact.bound));
      }
      scoped_.push_back(mine);
      if (random_.chance(0.4)) signal_and_wait(args[2], several);
      statements(depth + 1);
      RefInfo* to = some_ref(true);
      if (to && to->dtype == t && to->ref != args[0] && random_.chance(0.7)) {
        std::vector<Index> place;
        std::vector<Value> at;
        if (random_index(*to, false, place, at, 3) == shape) {
          store_all(scoped_[tiles], fit(*to, values_.conform(values_.want(t, shape, true), 100)));
          scoped_[tiles].readable = true;
          b.append(copy(args[0], all_of, to->ref, place, at));
        }
      }
      std::vector<Value> out;
      for (int64_t n = random_.in(0, 2); n-- > 0;) {
        out.push_back(n == 0                 ? with_unused(values_.want(t, shape, true), 2, false)
                      : values_.pool.empty() ? values_.leaf(t, {})
                                             : values_.pool.back());
        types.push_back(values_.type(out.back()));
        facts.push_back(values_.fact(out.back()));
      }
      b.yield(out);
      return 0;
    });
    scoped_.resize(tiles);
    b.set_region(outer);
    const ir::OpId id = b.append({.code = Opcode::run_scoped, .regions = {r}});
    const std::vector<Value> results = k.op(id).results;
    for (size_t i = 0; i < results.size(); ++i) values_.pool.push_back(values_.note(results[i], facts[i]));
  }

  // One of `several` semaphores: its index and start go to the op's end.
  Op on_semaphore(Op op, Value ref, const Shape& several) {
    op.operands.insert(op.operands.begin() + (op.code == Opcode::copy_start || op.code == Opcode::copy_wait ? 2 : 0),
                       ref);
    for (const int64_t n : several) {
      Index x = Index::at(random_.in(0, n - 1));
      if (random_.chance(0.4)) {
        x = Index::at(Index::Dynamic{op.operands.size()});
        op.operands.push_back(values_.counted_index(n - 1));
      }
      op.index.push_back(x);
    }
    return op;
  }
  void signal_and_wait(Value ref, const Shape& several) {
    ir::Builder& b = values_.b;
    Op signal = on_semaphore({.code = Opcode::semaphore_signal, .operands = {}}, ref, several), read = signal,
       wait = signal;
    const Value n = values_.scalar_int(0, 9);
    signal.operands.insert(signal.operands.begin() + 1, n);
    for (Index& x : signal.index) x.shift(1);
    wait = signal;
    read.code = Opcode::semaphore_read, wait.code = Opcode::semaphore_wait;
    b.append(std::move(signal));
    values_.pool.push_back(values_.note(b.one(std::move(read)), {9, 0, true, false}));
    b.append(std::move(wait));
  }

  RefInfo* some_ref(bool to_write) {
    std::vector<RefInfo*> list;
    for (RefInfo& r : scoped_) list.push_back(&r);
    for (size_t i = 0; i < refs_.size(); ++i) {
      RefInfo& r = refs_[i];
      if (accumulator_ >= 0 && i + 1 == refs_.size()) continue;
      if (to_write ? r.block < 0 || r.block >= out_.kernel.num_inputs || r.stateful : r.readable || r.stateful)
        list.push_back(&r);
    }
    return list.empty() ? nullptr : random_.pick(list);
  }

  // Where statement() makes this op.
  static double turn(Opcode op) {
    using ir::Control, ir::Family;
    switch (ir::family(op)) {
      case Family::memory: return op == Opcode::load ? 0 : ir::is_atomic(op) ? 0.285 : 0.25;
      case Family::print: return 0.2925;
      case Family::move:
      case Family::rearrange: return 0.6;
      case Family::reduce:
      case Family::argreduce:
      case Family::scan: return 0.75;
      case Family::contract: return 0.85;
      case Family::async: return 0.9;
      case Family::control:
        switch (Control(op)) {
          case Control::for_:
          case Control::run_scoped: return 0.9;
          case Control::while_: return 0.94;
          case Control::if_: return 0.96;
          case Control::switch_: return 0.99;
        }
        break;
      case Family::elementwise:
      case Family::source:
      case Family::grid:
      case Family::thread:
      case Family::end:
      case Family::launch:
      case Family::ref:
      case Family::group:
      case Family::packed:
      case Family::matrix:
      case Family::report: break;
    }
    return 0.5;
  }

  void statement(int depth) {
    std::vector<Value>& pool = values_.pool;
    const auto some = [&]() -> Value {
      if (pool.empty() || random_.chance(0.05))
        return values_.leaf(values_.some_dtype(), {random_.in(1, 6), random_.in(1, 6)});
      const size_t n = pool.size();
      Value v = random_.chance(0.6) ? pool[n - 1 - random_.below(std::min<size_t>(n, 3))] : random_.pick(pool);
      // tiles are the point
      for (int tries = 0; tries < 3 && values_.type(v).is_scalar() && random_.chance(0.7); ++tries)
        v = random_.pick(pool);
      return v;
    };
    double roll = static_cast<double>(random_.below(1000)) / 1000;
    if (random_.chance(0.2)) roll = turn(values_.favourite);
    if (values_.plain && random_.chance(0.15)) {
      const Value v = some();
      if (num_elements(values_.type(v).shape) > 1)
        if (const auto r = values_.normalised(v)) return pool.push_back(*r);
    }
    if (roll < 0.22) {
      if (RefInfo* r = some_ref(false)) return load(*r);
    } else if (roll < 0.29) {
      if (RefInfo* r = some_ref(true)) return roll < 0.28 ? store(*r, depth) : update(*r);
    } else if (roll < 0.295) {
      if (size_ != Size::huge && size_ != Size::many) return say();
    } else if (roll < 0.56) {
      Value v = values_.elementwise(some());
      for (int64_t n = random_.in(0, 3); n-- > 0;) v = values_.elementwise(v);
      return pool.push_back(v);
    } else if (roll < 0.70) {
      const Value v = values_.movement(some());
      if (num_elements(values_.type(v).shape) <= (size_ == Size::huge ? 60000 : 8000)) pool.push_back(v);
      return;
    } else if (roll < 0.81) {
      if (const auto v = values_.reduction(some())) pool.push_back(*v);
      return;
    } else if (roll < 0.88) {
      if (random_.chance(0.5))
        if (const auto v = values_.dot_of(some())) return pool.push_back(*v);
      return pool.push_back(values_.dot());
    } else if (depth < 2) {
      if (random_.chance(0.25)) return run_scoped(depth);
      if (roll < 0.93) return for_loop(depth);
      if (roll < 0.95) return while_loop(depth);
      return choice(depth, roll > 0.98);
    }
    pool.push_back(values_.elementwise(some()));
  }

  const Pattern pattern_;
  std::deque<RefInfo> scoped_;  // the tiles of the run_scoped around, which stay where they are as others are added
};
}  // namespace

void keep_used_dims(Case& c) {
  const std::vector<std::string> names = c.kernel.dim_names();
  std::erase_if(c.dims, [&](const auto& d) { return std::find(names.begin(), names.end(), d.first) == names.end(); });
}

/// What a caller may say beside the kernel: nothing that is computed may change by it. Numbers of its own, so that the
/// kernels of the seeds stay.
void say_something(ir::CallInfo& call, Random random) {
  if (random.chance(0.15))
    call.compiler_params.push_back({"triton", "num_warps", std::to_string(int64_t{1} << random.in(0, 6))});
  if (random.chance(0.1)) call.compiler_params.push_back({"mosaic_gpu", "profile_dir", "a \"b\" \\ c"});
  if (random.chance(0.1)) call.metadata = {{"author", "fuzz"}, {"two words", "\n\t// \"x\""}};
  if (random.chance(0.1)) call.cost_estimate = CostEstimate{.flops = random.in(0, 100), .bytes_accessed = dim("n") * 4};
}

/// Some scalar constants come as numbers by value, or as run-time sizes of that value, instead: nothing that is
/// computed changes.
void pass_constants(Case& c, Random random) {
  if (!random.chance(0.25)) return;
  ir::Kernel& k = c.kernel;
  std::vector<ir::OpId> constants;
  ir::each_op(k, k.body, [&](ir::OpId o) {
    if (k.op(o).code == Opcode::constant && k.type(k.op(o).results[0]).is_scalar()) constants.push_back(o);
  });
  for (const ir::OpId o : constants) {
    if (!random.chance(0.4)) continue;
    const ir::Value result = k.op(o).results[0];
    const DType t = k.type(result).dtype;
    const auto bits = static_cast<uint64_t>(k.op(o).attr(Attr::bits));
    if (!c.dims.empty() && t == DType::i32 && random.chance(0.5)) {
      const auto& [name, n] = *c.dims.begin();
      Op size{.code = Opcode::size, .results = {result}, .loc = k.op(o).loc};
      size.set(Attr::index, static_cast<int64_t>(k.sizes.size()));
      k.sizes.push_back(dim(name) + Extent(int64_t{static_cast<int32_t>(bits)} - n));
      k.op(o) = size;
      continue;
    }
    ir::BlockMapping b;
    b.origin = k.usual_origin(k.num_inputs);
    b.dtype = t;
    b.what = ir::BlockMapping::ByValue{};
    b.space = ir::MemorySpace::smem;
    k.blocks.insert(k.blocks.begin() + k.num_inputs, b);
    const ir::Value ref = ir::Builder(k).add_arg(k.body, k.block_ref_type(k.num_inputs));
    std::vector<ir::Value>& args = k.region(k.body).args;
    std::rotate(args.begin() + k.num_inputs, args.end() - 1, args.end());
    for (size_t i = 0; i < args.size(); ++i) k.values[args[i].index].number = static_cast<uint32_t>(i);
    ++k.num_inputs;
    Op load{.code = Opcode::load, .operands = {ref}, .results = {result}, .loc = k.op(o).loc};
    k.op(o) = load;
    Array number({}, t);
    number.set_element_bits(0, bits);
    c.inputs.push_back(std::move(number));
  }
}

Case generate(uint64_t seed, Pattern pattern) {
  if (pattern == Pattern::threads) return threads(seed);
  if (pattern == Pattern::control) return control(seed);
  Case c = Generator(seed, pattern).run();
  pass_constants(c, Random(~seed * 3));
  say_something(c.kernel.call, Random(~seed));
  keep_used_dims(c);
  return c;
}

}  // namespace tessera::fuzz
