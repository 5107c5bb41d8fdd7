// What a random kernel does with its Refs: loads, stores, swaps, updates and atomics at random indices, and messages
// about what is known exactly. generator.cpp puts them into statements and control flow.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/generator/spec.h"

namespace tessera::fuzz {
using ir::Attr, ir::BlockDim, ir::BlockMapping, ir::Index, ir::MemorySpace, ir::Op, ir::Opcode, ir::RegionId, ir::Type,
    ir::Value;

class Accesses : protected Spec {
 protected:
  using Spec::Spec;

  Value pid(size_t axis) {
    Op op{.code = Opcode::program_id};
    op.set(Attr::axis, static_cast<int64_t>(axis - first_visible()));
    const Value v = values_.note(values_.b.one(std::move(op)),
                                 {static_cast<double>(std::max<int64_t>(grid_[axis] - 1, 0)), 0, true, false});
    values_.pool.push_back(v);
    if (grid_[axis] > 0) values_.counters.push_back({v, grid_[axis] - 1});
    return v;
  }
  Value is_id(size_t axis, int64_t at) {
    return *values_.apply(Opcode::eq, {pid(axis), values_.constant(DType::i32, static_cast<double>(at))});
  }

  void store_all(const RefInfo& r, Value v) {
    Op op{.code = Opcode::store, .operands = {r.ref, v}};
    for (const int64_t n : r.shape) op.index.push_back(Index::all(n));
    values_.b.append(std::move(op));
  }
  Value load_all(const RefInfo& r) {
    Op op{.code = Opcode::load, .operands = {r.ref}};
    for (const int64_t n : r.shape) op.index.push_back(Index::all(n));
    return values_.b.one(std::move(op));
  }

  void initialise_scratch() {
    for (size_t i = 0; i < refs_.size(); ++i) {
      RefInfo& r = refs_[i];
      if (r.block >= 0 || (accumulator_ >= 0 && i + 1 == refs_.size())) continue;
      const Value v = values_.conform(values_.leaf(r.dtype, r.shape), r.fact.bound);
      if (random_.chance(0.5) && grid_.size() > first_visible()) {
        sometimes(r, v);
      } else if (random_.chance(0.5) && grid_.size() > first_visible()) {
        // Once: scratch lives from program to program (and starts anew with each element of a batch).
        persistent_ = true;
        Value first = is_id(first_visible(), 0);
        for (size_t axis = first_visible() + 1; axis < grid_.size(); ++axis)
          first = *values_.apply(Opcode::and_, {first, is_id(axis, 0)});
        values_.b.when(first, [&] { store_all(r, v); });
      } else {
        store_all(r, v);
      }
      r.readable = true;
    }
  }

  // In the first program, and where something about the program ids holds; every program hands on what it makes of it.
  void sometimes(RefInfo& r, Value v) {
    persistent_ = true;
    const auto reset = [&] {
      const Value again = values_.scalar_wrapped_bool();
      const bool otherwise = random_.chance(0.4);
      const auto store = [&] {
        store_all(r, v);
        return std::vector<Value>{};
      };
      const auto nothing = [] { return std::vector<Value>{}; };
      values_.b.if_else(
          again, [&] { return otherwise ? nothing() : store(); }, [&] { return otherwise ? store() : nothing(); });
    };
    const bool before = random_.chance(0.5);
    if (before) reset();
    Value first = is_id(first_visible(), 0);
    for (size_t axis = first_visible() + 1; axis < grid_.size(); ++axis)
      first = *values_.apply(Opcode::and_, {first, is_id(axis, 0)});
    values_.b.when(first, [&] { store_all(r, v); });
    if (!before) reset();
    const Value old = values_.note(load_all(r), r.fact);
    values_.pool.push_back(old);
    if (values_.counters.empty()) return;  // a grid without programs
    if (const auto mine = values_.cast(random_.pick(values_.counters).v, r.dtype); mine && r.dtype != DType::boolean)
      if (const auto sum = values_.apply(Opcode::add, {old, values_.coerce(*mine, r.shape)}))
        store_all(r, values_.conform(*sum, r.fact.bound));
  }

  // v joined with values of this region that nothing has used yet: what no output depends on is gone before it reaches
  // lowering. `strict`: the result must be clean and exact, as memory and carried values that are read again.
  Value with_unused(Value v, int64_t most, bool strict) {
    const ir::Kernel& k = out_.kernel;
    std::vector<bool> used(k.values.size(), false);
    for (const Op& op : k.ops)
      for (const Value x : op.operands) used[x.index] = true;
    const DType t = values_.type(v).dtype;
    const Shape shape = values_.type(v).shape;
    const bool inexact_left = std::any_of(values_.pool.begin(), values_.pool.end(),
                                          [&](Value u) { return !used[u.index] && values_.fact(u).err != 0; });
    for (size_t i = values_.pool.size(); i-- > region_start_ && most > 0;) {
      const Value u = values_.pool[i];
      const Fact f = values_.fact(u);
      if (used[u.index] || u == v || (strict && (f.dirty || f.err != 0)) || (f.dirty && random_.chance(0.6))) continue;
      // they have no other place to go
      if (f.err == 0 && inexact_left && !strict && is_float(t) && random_.chance(0.5)) continue;
      const auto c = values_.cast(u, t);
      if (!c || (strict && values_.fact(*c).err != 0)) continue;
      const Value piece = values_.coerce(*c, shape);
      static const std::vector<Opcode> kInts{Opcode::add, Opcode::xor_, Opcode::max, Opcode::sub},
          kFloats{Opcode::add, Opcode::add, Opcode::max, Opcode::sub}, kBools{Opcode::xor_, Opcode::ne, Opcode::or_};
      Opcode op = random_.pick(t == DType::boolean ? kBools : is_int(t) ? kInts : kFloats);
      auto r = values_.apply(op, {v, piece});
      if (!r && t != DType::boolean) r = values_.apply(Opcode::max, {v, piece});
      if (!r || (strict && values_.fact(*r).err != 0)) continue;
      v = *r;
      --most;
    }
    return v;
  }

  // v as the Ref may hold it: stateful Refs keep their fact (the caller's v is clean), the others' fact grows.
  Value fit(RefInfo& r, Value v) {
    if (r.stateful) return values_.conform(v, r.fact.bound);
    r.fact = join(r.fact, values_.fact(v));
    return v;
  }

  void final_store(RefInfo& r) {
    if (random_.chance(0.03)) return;
    Value v = with_unused(values_.want(r.dtype, r.shape, r.stateful || random_.chance(0.8)), 6, r.stateful);
    if (!r.stateful && random_.chance(0.3))
      if (const auto c = values_.cast(values_.elementwise(v), r.dtype)) v = *c;
    v = fit(r, v);
    if (random_.chance(0.07) && !grid_.empty()) {
      values_.b.when(values_.scalar_bool(), [&] { store_all(r, v); });
    } else if (random_.chance(0.1)) {
      const Value mask = values_.want(DType::boolean, r.shape, true);
      Op op{.code = Opcode::store, .operands = {r.ref, v, mask}};
      op.set(Attr::mask, 1);
      for (const int64_t n : r.shape) op.index.push_back(Index::all(n));
      values_.b.append(std::move(op));
    } else {
      store_all(r, v);
    }
  }

  // A random index; `starts` are the dynamic starts, whose operand positions begin at `first`. Returns the shape it
  // selects.
  Shape random_index(const RefInfo& r, bool masked, std::vector<Index>& index, std::vector<Value>& starts, size_t first,
                     bool arrays = false) {
    Shape common;  // of index arrays, if there are some
    if (arrays && random_.chance(values_.favourite == Opcode::addupdate ? 0.6 : 0.2))
      for (int64_t rank = random_.chance(0.75) ? 1 : 2; rank-- > 0;) common.push_back(random_.in(1, 6));
    for (const int64_t n : r.shape) {
      Index x = Index::all(n);
      if (!common.empty() && n > 0 && random_.chance(0.6)) {
        index.push_back(Index::array(first + starts.size()));
        starts.push_back(index_array(n, common));
        continue;
      }
      if (!random_.chance(0.5)) {
        const bool dynamic = random_.chance(0.5);
        if (random_.chance(0.3) && n > 0) {
          x = Index::at(random_.in(0, n - 1));
        } else {
          Index::Slice slice{0, 0, random_.chance(0.2) ? random_.in(1, 3) : 1};
          if (n > 0)
            slice.size = random_.in(1, (n - 1) / slice.step + 1), slice.start = random_.in(0, n - slice.span());
          x = {slice};
        }
        if (dynamic && n > 0) {
          x.start() = Index::Dynamic{first + starts.size()};
          // Beyond the edges at times: unmasked starts wrap once and clamp, masked ones are tested per element.
          const int64_t last = n - std::max<int64_t>(x.as_slice().span(), 1);
          if (random_.chance(0.12)) starts.push_back(values_.wrapped_scalar(random_.chance(0.7) ? last + 1 : n));
          else if (random_.chance(masked ? 0.25 : 0.06)) starts.push_back(far_start(masked));
          else if (random_.chance(0.45)) starts.push_back(values_.counted_index(last));
          else
            starts.push_back(random_.chance(0.8) ? values_.scalar_int(0, std::max<int64_t>(0, n - 1))
                                                 : values_.scalar_int(-n - 2, n + 2));
          if (masked && random_.chance(0.3) && x.slice()) x.slice()->size += 2;
        }
      }
      index.push_back(x);
    }
    Op op{.code = Opcode::load, .operands = std::vector<Value>(first), .index = index};
    op.operands.insert(op.operands.end(), starts.begin(), starts.end());
    return ir::access_dims(out_.kernel, op).shape;
  }

  // A start near the limits of i32, on either side of which it may wrap; at times with a sign that is known.
  // Under a mask mostly one that is known not to be negative, while the window's end wraps: then its sign alone tells
  // nothing.
  Value far_start(bool masked) {
    ir::Builder& b = values_.b;
    static const std::vector<int64_t> kEnds{INT32_MAX, INT32_MAX - 9, INT32_MAX - 40, int64_t{1} << 30,
                                            INT32_MIN, INT32_MIN + 9, INT32_MIN + 40};
    const auto number = [&](int64_t n) { return b.constant_int(DType::i32, n); };
    Value v = b.elementwise(Opcode::add, {values_.scalar_int(-8, 8), number(random_.pick(kEnds))});
    if (masked && random_.chance(0.6))
      v = b.elementwise(Opcode::max,
                        {b.elementwise(Opcode::add, {values_.scalar_int(-8, 8), number(INT32_MAX - 9)}), number(0)});
    else if (random_.chance(0.5))
      v = b.elementwise(random_.chance(0.7) ? Opcode::max : Opcode::min, {v, number(random_.in(-3, 3))});
    return values_.note(v, {2147483648.0, 0, true, false});
  }

  // A part of an output, once and at a place that is fixed: that may be all that touches it, and its elements be the
  // invocations' own that store them.
  bool swap_a_part(RefInfo& r) {
    if (num_elements(r.shape) == 0) return false;
    Op op{.code = Opcode::swap, .operands = {r.ref}};
    Shape shape;
    for (const int64_t n : r.shape) {
      Index x = Index::at(random_.in(0, n - 1));
      if (random_.chance(0.6)) x = {Index::Slice{x.start(), random_.chance(0.6) ? 1 : random_.in(1, n - x.constant())}};
      if (random_.chance(0.1)) x = Index::all(n);
      if (x.slice()) shape.push_back(x.slice()->size);
      op.index.push_back(x);
    }
    // What it finds may be what another program stores later in the text: from here on that is exact.
    if (!r.stateful && is_float(r.dtype)) r.fact = join(r.fact, {100, 0, true, false});
    r.stateful = true;
    op.operands.push_back(fit(r, values_.want(r.dtype, shape, true)));
    Fact f = r.fact;
    f.dirty = true;
    const ir::OpId id = values_.b.append(std::move(op));
    values_.pool.push_back(values_.note(out_.kernel.op(id).results[0], f));
    return true;
  }

  // Positions along a dim of n elements: by data, some of them outside and some twice, or provably each its own.
  Value index_array(int64_t n, const Shape& shape) {
    ir::Builder& b = values_.b;
    const auto number = [&](int64_t x) { return values_.constant(DType::i32, static_cast<double>(x), shape); };
    const int64_t m = num_elements(shape);
    if (m <= n && random_.chance(0.4)) {
      Value sum;
      int64_t stride = 1;
      for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
        Op iota{.code = Opcode::iota};
        iota.set(Attr::axis, static_cast<int64_t>(d));
        Value line = b.one(std::move(iota), Type::array(DType::i32, shape));
        if (stride != 1) line = b.elementwise(Opcode::mul, {line, number(stride)});
        sum = sum ? b.elementwise(Opcode::add, {line, sum}) : line;
      }
      apart_ = true;
      const Value start = random_.chance(0.5) ? values_.counted_index(n - m) : values_.scalar_int(-n - 1, n);
      sum = b.elementwise(Opcode::add, {sum, b.broadcast(start, shape, {})});
      return values_.note(sum, {static_cast<double>(2 * n + 2), 0, true, false});
    }
    Value v = values_.want(DType::i32, shape, true);
    if (values_.fact(v).err != 0) v = values_.leaf(DType::i32, shape);
    v = b.elementwise(Opcode::clamp,
                      {number(random_.chance(0.5) ? 0 : -n - 1), v, number(random_.chance(0.5) ? n - 1 : n + 1)});
    return values_.note(v, {static_cast<double>(n + 1), 0, true, false});
  }

  // What the access's index selects has this shape; the fact becomes that of what is read.
  void add_mask(Op& op, DType t, const Shape& shape, bool masked, bool other, Fact& f) {
    if (masked) {
      op.set(Attr::mask, 1);
      op.operands.push_back(values_.want(DType::boolean, shape, true));
    }
    if (other) {
      op.set(Attr::other, 1);
      op.operands.push_back(values_.conform(values_.want(t, shape, true), 100));
      f = join(f, values_.fact(op.operands.back()));
    }
  }

  /// The whole of it; what hangs over an input's edge is masked out with that probability.
  Value load_block(RefInfo& r, double masked) {
    Fact f = r.fact;
    const bool over = r.block >= 0 && hangs_over(r);
    f.dirty |= over || !r.readable;
    const Value v = values_.note(load_all(r), f);
    return over && r.block < out_.kernel.num_inputs && random_.chance(masked) ? mask_overhang(r, v) : v;
  }

  void load(RefInfo& r) {
    Op op{.code = Opcode::load, .operands = {r.ref}};
    std::vector<Value> starts;
    const bool masked = random_.chance(0.15), other = masked && random_.chance(0.7);
    Fact f = r.fact;
    // The block may hang over the edge; what lies there is unspecified.
    const bool over = r.block >= 0 && hangs_over(r);
    f.dirty |= over || (masked && !other) || !r.readable;
    if (!masked && random_.chance(values_.plain ? 0.85 : 0.5)) {
      values_.pool.push_back(load_block(r, 0.8));
      return;
    }
    const Shape shape = random_index(r, masked, op.index, starts, masked ? (other ? 3 : 2) : 1, true);
    add_mask(op, r.dtype, shape, masked, other, f);
    op.operands.insert(op.operands.end(), starts.begin(), starts.end());
    values_.pool.push_back(values_.note(values_.b.one(std::move(op)), f));
  }

  // select(inside the array, v, a number), as kernels do before they reduce. An empty array has no inside.
  Value mask_overhang(const RefInfo& r, Value v) {
    if (num_elements(shapes_[static_cast<size_t>(r.block)]) == 0) return v;
    ir::Builder& b = values_.b;
    const BlockMapping& m = out_.kernel.blocks[static_cast<size_t>(r.block)];
    for (const BlockDim& d : m.block())
      if (d.is_element() || d.is_bounded()) return v;
    std::vector<Value> ids;
    for (size_t axis = 0; axis < grid_.size(); ++axis) ids.push_back(axis < first_visible() ? Value{} : pid(axis));
    int64_t seen = 0;
    for (size_t d = 0; d < m.block().size(); ++d) {
      if (!m.block()[d].seen()) continue;
      if (m.block()[d].halo() && ++seen) continue;
      const int64_t at = seen++, extent = shapes_[static_cast<size_t>(r.block)][d], size = m.block()[d].size();
      if (extent % size == 0) continue;
      const auto number = [&](int64_t n, const Shape& s = {}) {
        return values_.constant(DType::i32, static_cast<double>(n), s);
      };
      const Value block = b.elementwise(
          Opcode::clamp,
          {number(0), emit(maps_[static_cast<size_t>(r.block)][d], ids, out_.kernel.region(out_.kernel.body).args),
           number(cdiv(extent, size) - 1)});
      const Value base = b.elementwise(Opcode::mul, {block, number(size)});
      Op iota{.code = Opcode::iota};
      iota.set(Attr::axis, at);
      const Value place = b.elementwise(
          Opcode::add, {b.one(std::move(iota), Type::array(DType::i32, r.shape)), b.broadcast(base, r.shape, {})});
      const Value inside = b.elementwise(Opcode::lt, {place, number(extent, r.shape)});
      const Value otherwise = values_.leaf(r.dtype, r.shape);
      Fact f = join(values_.fact(v), values_.fact(otherwise));
      v = values_.note(b.elementwise(Opcode::select, {inside, v, otherwise}), f);
    }
    Fact f = values_.fact(v);
    f.dirty = false;
    return values_.note(v, f);
  }

  void store(RefInfo& r, int depth) {
    if (depth == 0 && r.stateful && random_.chance(0.5)) {
      store_all(r, fit(r, with_unused(values_.want(r.dtype, r.shape, true), 2, true)));
      r.readable = true;
      return;
    }
    Op op{.code = random_.chance(0.35) && (r.readable || random_.chance(0.2)) ? Opcode::swap : Opcode::store,
          .operands = {r.ref}};
    // Sums stay exact: of integers, or of whole numbers into what is never read again.
    const bool adds = r.dtype != DType::boolean && (is_int(r.dtype) || (!r.stateful && r.fact.whole)) &&
                      random_.chance(values_.favourite == Opcode::addupdate ? 0.8 : 0.2);
    if (adds) op.code = Opcode::addupdate;
    std::vector<Value> starts;
    const bool masked = random_.chance(0.2), other = masked && op.code == Opcode::swap && random_.chance(0.7);
    apart_ = false;
    const Shape shape = random_index(r, masked, op.index, starts, 2 + masked + other, true);
    if (op.code == Opcode::store && apart_ && random_.chance(0.5)) op.set(Attr::unordered, 1);
    const bool was_readable = r.readable;
    Value v = with_unused(values_.want(r.dtype, shape, r.stateful || adds), depth ? 2 : 1, r.stateful || adds);
    if (adds && is_float(r.dtype)) {
      v = values_.conform(v, 4);
      // and again where a loop adds: whole numbers all the same
      r.fact.bound += 4.0 * static_cast<double>(num_elements(shape));
    }
    v = fit(r, v);
    op.operands.push_back(v);
    Fact f = r.fact;
    add_mask(op, r.dtype, shape, masked, other, f);
    op.operands.insert(op.operands.end(), starts.begin(), starts.end());
    const bool is_swap = op.code == Opcode::swap;
    const ir::OpId id = values_.b.append(std::move(op));
    if (!is_swap || !r.stateful) return;
    f.dirty |= !was_readable || (masked && !other) || (r.block >= 0 && hangs_over(r));
    values_.pool.push_back(values_.note(out_.kernel.op(id).results[0], f));
  }

  // A line with a few values that are known exactly, or a check that holds.
  void say() {
    const Value scalar = values_.conform(values_.want(DType::i32, {}, true), 100);
    if (random_.chance(0.3)) {
      const Value most = values_.constant(DType::i32, 1000);
      // what other programs have made of it included
      const Value small = *values_.apply(Opcode::and_, {scalar, values_.constant(DType::i32, 511)});
      Op op{.code = Opcode::check, .operands = {*values_.apply(Opcode::lt, {small, most}), small}};
      op.set(Attr::text, text("{} is not below 1000"));
      values_.b.append(std::move(op));
      return;
    }
    Op op{.code = Opcode::debug_print, .operands = {scalar}};
    std::string format = "{:4d}:";
    for (int64_t n = random_.in(0, 3); n-- > 0;) {
      const Value v = random_.chance(0.5)    ? values_.want(static_cast<DType>(random_.below(kNumDTypes)),
                                                         random_.chance(0.5) ? Shape{} : Shape{random_.in(1, 9)}, true)
                      : values_.pool.empty() ? scalar
                                             : random_.pick(values_.pool);
      const Type t = values_.type(v);
      if (is_float(t.dtype) || values_.fact(v).dirty || values_.fact(v).err != 0 || num_elements(t.shape) > 200)
        continue;
      op.operands.push_back(v);
      format += " {}";
    }
    op.set(Attr::text, text(format));
    values_.b.append(std::move(op));
  }
  int64_t text(const std::string& s) {
    auto& texts = out_.kernel.texts;
    const auto at = std::find(texts.begin(), texts.end(), s);
    if (at == texts.end()) return texts.push_back(s), static_cast<int64_t>(texts.size()) - 1;
    return at - texts.begin();
  }

  // An atomic, with a value that is exact: what it combines with may be anything. What is read again stays within its
  // bound.
  void update(RefInfo& r) {
    static const std::vector<Opcode> kBool{Opcode::and_, Opcode::or_, Opcode::xor_, Opcode::swap, Opcode::atomic_cas},
        kBounded{Opcode::max, Opcode::min, Opcode::swap, Opcode::atomic_cas},
        kFloat{Opcode::add, Opcode::max, Opcode::min, Opcode::swap, Opcode::atomic_cas},
        kInt{Opcode::add, Opcode::add,  Opcode::max,  Opcode::min,       Opcode::and_,
             Opcode::or_, Opcode::xor_, Opcode::swap, Opcode::atomic_cas};
    // At times the bits of floats as integers, where nothing reads them again.
    const bool bits = is_float(r.dtype) && !r.stateful && random_.chance(0.15);
    const int width = static_cast<int>(8 * size_bytes(r.dtype));
    const DType t = !bits ? r.dtype : width == 32 && random_.chance(0.5) ? DType::i32 : unsigned_of(width);
    const Opcode kind = random_.pick(t == DType::boolean ? kBool : r.stateful ? kBounded : is_float(t) ? kFloat : kInt);
    const bool cas = kind == Opcode::atomic_cas, masked = random_.chance(0.25), other = masked && random_.chance(0.7);
    Op op{.code = cas ? Opcode::atomic_cas : Opcode::atomic_rmw, .operands = {r.ref}};
    if (!cas) op.set(Attr::kind, static_cast<int64_t>(kind));
    if (bits) op.set(Attr::bits, 1);
    if (kind == Opcode::add && is_float(t) && random_.chance(0.2)) op.set(Attr::unordered, 1);
    std::vector<Value> starts;
    const Shape shape = random_index(r, masked, op.index, starts, 2 + cas + masked + other, true);
    const auto exact = [&] { return values_.conform(values_.want(t, shape, true), r.stateful ? r.fact.bound : 100); };
    op.operands.push_back(exact());
    if (cas) op.operands.push_back(exact());
    Fact f = r.fact;
    add_mask(op, t, shape, masked, other, f);
    op.operands.insert(op.operands.end(), starts.begin(), starts.end());
    const Value old = values_.b.one(std::move(op));
    if (!r.stateful) return;
    f.dirty |= !r.readable || (masked && !other) || (r.block >= 0 && hangs_over(r));
    values_.pool.push_back(values_.note(old, f));
  }

  size_t region_start_ = 0;  // in the pool: what this region has made
};

}  // namespace tessera::fuzz
