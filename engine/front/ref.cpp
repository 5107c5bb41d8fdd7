#include "engine/front/ref.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "engine/front/control.h"
#include "engine/front/scope.h"
#include "engine/front/trace.h"
#include "engine/front/view.h"

namespace tessera {
using ir::Attr;
using ir::Index;
using ir::Opcode;

IndexItem::IndexItem(All) : item_(All{}) {}
IndexItem::IndexItem(Ellipsis) : item_(Ellipsis{}) {}
IndexItem::IndexItem(Ds d) : item_(std::move(d)) {}
IndexItem::IndexItem(Range r) : item_(r) {}
IndexItem::IndexItem(Operand item) : item_(std::move(item)) {}
IndexItem::IndexItem(const Value& v, Loc l) : item_(Operand(v, l)) {}
IndexItem::IndexItem(const IndexItem&) = default;
IndexItem::IndexItem(IndexItem&&) noexcept = default;
IndexItem& IndexItem::operator=(const IndexItem&) = default;
IndexItem& IndexItem::operator=(IndexItem&&) noexcept = default;
IndexItem::~IndexItem() = default;
IndexItem::IndexItem(RefItem&& read, Loc l) : item_(Operand(std::move(read), l)) {}
RefIndex::RefIndex(All, Loc l) : loc_(l) {}
RefIndex::RefIndex(Ellipsis, Loc l) : loc_(l) {}
RefIndex::RefIndex(std::initializer_list<IndexItem> items, Loc l) : items_(items), loc_(l) {}
RefIndex::RefIndex(std::vector<IndexItem> items, Loc l) : items_(std::move(items)), loc_(l) {}
RefIndex::RefIndex(Loc l, IndexItem&& one) : items_{std::move(one)}, loc_(l) {}
RefIndex::RefIndex(Ds d, Loc l) : RefIndex(l, std::move(d)) {}
RefIndex::RefIndex(Range r, Loc l) : RefIndex(l, r) {}
RefIndex::RefIndex(const Value& v, Loc l) : RefIndex(l, IndexItem(v, l)) {}
RefIndex::RefIndex(RefItem&& read, Loc l) : RefIndex(l, IndexItem(std::move(read), l)) {}
RefIndex::RefIndex(const RefIndex&) = default;
RefIndex::RefIndex(RefIndex&&) noexcept = default;
RefIndex& RefIndex::operator=(const RefIndex&) = default;
RefIndex& RefIndex::operator=(RefIndex&&) noexcept = default;
RefIndex::~RefIndex() = default;

/// One access being recorded: the index of every dim, its dynamic starts and arrays, and the shape it selects.
class RefAccess {
 public:
  RefAccess(std::string_view op, const Ref& ref, const RefIndex& index, Loc loc, bool masked, bool writes)
      : e_(op, loc), ref_(ref), masked_(masked) {
    const bool in_index_map = !e_.trace().index_map_origin().empty();
    if (in_index_map && !(ref.trace_ == e_.trace().serial() && e_.trace().is_open(ref.region_)))
      throw TraceError(
          e_.trace().prefix() + "reads a Ref, but an index map sees only its program ids and scalar-prefetch Refs", loc,
          "read in the kernel, or give the data as a scalar-prefetch operand");
    e_.check_owner(ref.trace_, ref.region_, "Ref");
    if (writes) {
      const ir::Kernel& k = e_.trace().kernel();
      const uint32_t at = k.value(ref.id_).number;
      if (in_index_map || (k.value(ref.id_).region == k.body && at < static_cast<uint32_t>(k.num_prefetch)))
        e_.fail("a scalar-prefetch operand is only read", "keep what changes in scratch: SMEM({n}, ts::i32)");
      const int output = k.value(ref.id_).region == k.body ? k.aliased_output(static_cast<int>(at)) : -1;
      if (output >= 0)
        e_.fail(
            k.blocks[at].origin + " is aliased to " + k.blocks[static_cast<size_t>(output)].origin + " and only read",
            "store to the output");
      if (k.value(ref.id_).region == k.body && at < k.blocks.size() && k.blocks[at].is_by_value())
        e_.fail(k.blocks[at].origin + " is passed by value and only read", "store to an output or to scratch");
      if (k.value(ref.id_).region == k.body && at < k.blocks.size() && k.has_halo(static_cast<int>(at)))
        e_.fail(k.blocks[at].origin + " has a halo and is only read", "store to an output or to scratch");
    }
    entries(index.items());
    const ir::Op access{.code = Opcode::load, .operands = starts_, .index = index_};
    form_ = ir::access_dims(e_.trace().kernel(), access);
    if (in_index_map && op != "at" && !form_.shape.empty())
      e_.fail(
          "reads " + to_string(ir::Type::array(ref.dtype(), form_.shape)) + ", but an index map reads single elements",
          "index every dim with an integer");
  }

  static bool is_view(const Ref& ref) { return !ref.views_.empty(); }
  /// For ops that move windows: integers and slices alone.
  PlaceParts parts() && {
    if (form_.arrays) e_.fail("an index array is for loads and stores", "load by it, and store what came");
    if (ref_.views_.empty()) return {ref_.id_, ref_.dtype(), std::move(index_), std::move(starts_), form_.shape};
    const bool casts =
        std::any_of(ref_.views_.begin(), ref_.views_.end(), [](const RefTransform& t) { return t.is_bitcast(); });
    if (!casts && !masked_) {
      Selection s = selection({}, false);
      for (size_t level = ref_.views_.size(); level-- > 0;) s.undo(ref_.views_[level], shape_at(level + 1), false);
      Selection::Access a = s.access(false);
      const bool slices = std::none_of(a.index.begin(), a.index.end(), [](const Index& x) { return x.is_array(); });
      const auto one = [&](int loop) { return s.size[static_cast<size_t>(loop)] == 1; };
      std::erase_if(a.loops, one);
      std::erase_if(s.order, one);
      if (slices && a.loops == s.order && selects(a.index, form_.shape))
        return {ref_.id_, ref_.dtype(), std::move(a.index), std::move(a.starts), form_.shape};
    }
    e_.fail("through this view of the Ref the index is not one slice per dim",
            "load through the view, and store what came");
  }

  Value load(const LoadParams& p) {
    const ir::Value mask = mask_of(p.mask), other = other_of(p.other, mask);
    if (ref_.views_.empty())
      return e_.wrap(e_.builder().one(complete({.code = Opcode::load, .operands = {ref_.id_}}, mask, other)));
    return e_.wrap(load_view(mask, other));
  }
  void store(const Operand& v, const StoreParams& p) {
    const ir::Value value = stored(v), mask = mask_of(p.mask);
    if (!ref_.views_.empty()) return store_view(value, mask);
    ir::Op op = complete({.code = Opcode::store, .operands = {ref_.id_, value}}, mask, {});
    if (p.unique_indices && form_.arrays) op.set(Attr::unordered, 1);
    e_.builder().append(std::move(op));
  }
  Value swap(const Operand& v, const LoadParams& p) {
    const ir::Value value = stored(v), mask = mask_of(p.mask), other = other_of(p.other, mask);
    if (ref_.views_.empty())
      return e_.wrap(e_.builder().one(complete({.code = Opcode::swap, .operands = {ref_.id_, value}}, mask, other)));
    const ir::Value before = load_view(mask, other);
    store_view(value, mask);
    return e_.wrap(before);
  }
  void addupdate(const Operand& v, const StoreParams& p) {
    const ir::Value value = stored(v), mask = mask_of(p.mask);
    if (ref_.dtype() == DType::boolean) e_.fail("bool has no sum", "or it to what is there: x[i] |= value");
    const bool casts =
        std::any_of(ref_.views_.begin(), ref_.views_.end(), [](const RefTransform& t) { return t.is_bitcast(); });
    bool arrays = form_.arrays;  // elements may meet
    for (const RefTransform& t : ref_.views_)
      if (const auto* x = std::get_if<RefTransform::Index>(&t.what))
        for (const RefTransform::Dim& d : x->dims) arrays |= std::holds_alternative<RefTransform::Array>(d);
    if (arrays && casts) {
      for (size_t level = ref_.views_.size(); level-- > 0;)
        if (const DType from = dtype_at(level), to = dtype_at(level + 1); bits(from) != bits(to))
          e_.fail("what an index array brings to one element cannot add up through a bitcast of " +
                      std::string(name(from)) + " to " + std::string(name(to)) + ", of another width",
                  "add into scratch of the Ref's dtype, and bitcast the sum");
      ir::Op op{.code = Opcode::atomic_rmw, .operands = {ref_.id_, value}};
      op.set(Attr::kind, static_cast<int64_t>(Opcode::add));
      atomic_view(std::move(op), mask, {}, false);
      return;
    }
    if (arrays) {
      if (ref_.views_.empty())
        e_.builder().append(complete({.code = Opcode::addupdate, .operands = {ref_.id_, value}}, mask, {}));
      else store_view(value, mask, Opcode::addupdate);
      return;
    }
    const ir::Value before = ref_.views_.empty()
                                 ? e_.builder().one(complete({.code = Opcode::load, .operands = {ref_.id_}}, mask, {}))
                                 : load_view(mask, {});
    const ir::Value sum = e_.builder().elementwise(Opcode::add, {before, value});
    if (ref_.views_.empty())
      e_.builder().append(complete({.code = Opcode::store, .operands = {ref_.id_, sum}}, mask, {}));
    else store_view(sum, mask);
  }

  /// Ref::at: what the index takes, with dynamic starts of windows in range.
  Ref view() {
    RefTransform::Index t;
    ir::Builder& b = e_.builder();
    const auto number = [&](int64_t n) { return b.constant_int(DType::i32, n); };
    for (size_t d = 0; d < index_.size(); ++d) {
      const Index& x = index_[d];
      const int64_t n = ref_.shape()[d];
      const Index::Slice* slice = x.slice();
      std::variant<int64_t, Value> start;
      if (x.is_static()) {
        start = x.constant();
      } else {
        ir::Value v = starts_[*x.operand()];
        if (!form_.per_element) {
          const int64_t most = n - 1 - (slice ? std::max<int64_t>(slice->size - 1, 0) : 0);
          const ir::Value wrapped = b.elementwise(Opcode::select, {b.elementwise(Opcode::lt, {v, number(0)}),
                                                                   b.elementwise(Opcode::add, {v, number(n)}), v});
          v = b.elementwise(Opcode::clamp, {number(0), wrapped, number(std::max<int64_t>(most, 0))});
        }
        start = e_.wrap(v);
      }
      if (slice) t.dims.push_back(RefTransform::Slice{std::move(start), slice->size, slice->step});
      else if (x.is_array()) t.dims.push_back(RefTransform::Array{std::get<Value>(start)});
      else t.dims.push_back(RefTransform::Integer{std::move(start)});
    }
    return ref_.with({std::move(t), ref_.shape(), ref_.dtype()}, form_.shape, ref_.dtype());
  }
  Value atomic(Opcode kind, const Operand& v, const LoadParams& p) {
    const DType t = ref_.dtype();
    if (const ir::OperandRule rule = ir::info(kind).operands; !ir::takes(rule, t))
      e_.fail("takes integers or " + std::string(rule == ir::OperandRule::num ? "floats" : "bool") +
              " but the Ref holds " + std::string(name(t)));
    ir::Op op{.code = Opcode::atomic_rmw, .operands = {ref_.id_, stored(v)}};
    op.set(Attr::kind, static_cast<int64_t>(kind));
    return atomic(std::move(op), p);
  }
  Value compare_and_swap(const Operand& compare, const Operand& v, const LoadParams& p) {
    const ir::Value value = stored(v);
    if (compare.value() && compare.value()->dtype() != ref_.dtype())
      e_.fail("what the elements are compared with is " + std::string(name(compare.value()->dtype())) +
              " but the Ref holds " + std::string(name(ref_.dtype())));
    return atomic(
        {.code = Opcode::atomic_cas, .operands = {ref_.id_, value, e_.as(compare, ref_.dtype(), form_.shape)}}, p);
  }

 private:
  Value atomic(ir::Op op, const LoadParams& p) {
    const ir::Value mask = mask_of(p.mask), other = other_of(p.other, mask);
    if (ref_.views_.empty()) return e_.wrap(e_.builder().one(complete(std::move(op), mask, other)));
    for (size_t level = ref_.views_.size(); level-- > 0;)
      if (const DType from = dtype_at(level), to = dtype_at(level + 1); bits(from) != bits(to))
        e_.fail("through a bitcast of " + std::string(name(from)) + " to " + std::string(name(to)) +
                    ", of another width, no element is one in memory",
                "update the Ref itself, or a view of the same width");
    return e_.wrap(atomic_view(std::move(op), mask, other, true));
  }
  // The Ref that the body got has each element of the view somewhere. What a view's index array leads out of it is left
  // alone, and finds what the nearest element held before; under a mask it is masked out.
  ir::Value atomic_view(ir::Op op, ir::Value mask, ir::Value other, bool wanted) {
    ir::Builder& b = e_.builder();
    if (num_elements(form_.shape) == 0) return b.constant_int(ref_.dtype(), 0, form_.shape);
    Selection s = selection(mask, true);
    for (size_t level = ref_.views_.size(); level-- > 0;) s.undo(ref_.views_[level], shape_at(level + 1), true);
    if (s.at.empty() && num_elements(form_.shape) > 1) return atomic_in_turn(op, s.condition(s.order), other);
    const Selection::Access a = s.access(true);
    const ir::Value inside = s.condition(s.order);
    const auto placed = [&](ir::Value v) { return s.to_memory(s.reshape(v, s.sizes()), s.order, a); };
    ir::Value instead = other;
    if (inside && !mask && wanted)
      instead = load_view(b.elementwise(Opcode::not_, {s.reshape(inside, form_.shape)}), {});
    for (size_t i = 1; i < op.operands.size(); ++i) op.operands[i] = placed(op.operands[i]);
    if (ref_.dtype() != dtype_at(0)) op.set(Attr::bits, 1);
    if (instead) instead = placed(instead);
    add_index(op, a, inside ? placed(inside) : ir::Value{}, instead);
    return s.reshape(s.from_memory(b.one(std::move(op)), a), form_.shape);
  }
  // -- through views
  const Shape& shape_at(size_t level) const {
    return level == ref_.views_.size() ? ref_.shape() : ref_.views_[level].shape;
  }
  DType dtype_at(size_t level) const { return level == ref_.views_.size() ? ref_.dtype() : ref_.views_[level].dtype; }
  Selection selection(ir::Value mask, bool writes) {
    Selection s(e_, index_, starts_, ref_.shape(), masked_, writes);
    if (mask) s.inside.emplace_back(s.order, mask);
    return s;
  }
  ir::Value load_view(ir::Value mask, ir::Value other) {
    if (num_elements(form_.shape) == 0) return e_.builder().constant_int(ref_.dtype(), 0, form_.shape);
    Selection s = selection(mask, false);
    const ir::Value v = load_through(ref_.views_.size(), s);
    return other ? e_.builder().elementwise(Opcode::select, {s.condition(s.order), v, other}) : v;
  }
  void store_view(ir::Value v, ir::Value mask, Opcode code = Opcode::store) {
    if (num_elements(form_.shape) != 0) store_through(ref_.views_.size(), selection(mask, true), v, code);
  }

  static DType bits_of(DType t) { return unsigned_of(static_cast<int>(8 * size_bytes(t))); }
  ir::Value cast_bits(ir::Value v, DType t) {
    ir::Builder& b = e_.builder();
    return b.kernel().type(v).dtype == t ? v : b.elementwise(Opcode::bitcast, {v}, t);
  }
  ir::Value shifted(Opcode shift, ir::Value v, int64_t n) {
    ir::Builder& b = e_.builder();
    const ir::Type t = b.kernel().type(v);
    return n == 0 ? v : b.elementwise(shift, {v, b.constant_int(t.dtype, n, t.shape)});
  }
  // The view's elements are each `ratio` of those before, rows apart: row k of them.
  Selection row_of(const Selection& s, int64_t ratio, int64_t k) {
    Selection r = s;
    Position& p = r.at[r.at.size() - 2];
    p = Selection::affine(e_, p, {k}, ratio);
    return r;
  }

  /// The elements of s, positions in what is left of the views, over the loops that s has now.
  ir::Value load_through(size_t level, Selection s) {
    ir::Builder& b = e_.builder();
    const Shape sizes = s.sizes();
    if (level == 0) {
      Selection::Access a = s.access(false);
      ir::Op op{.code = Opcode::load, .operands = {ref_.id_}};
      const std::vector<int> loops = s.common(a.loops);  // elements of other loops are one
      const ir::Value mask = s.condition(loops);
      add_index(op, a, mask ? s.to_memory(mask, loops, a) : mask);
      return s.reshape(s.from_memory(b.one(std::move(op)), a), sizes);
    }
    const RefTransform& t = ref_.views_[level - 1];
    const DType to = dtype_at(level);
    const int64_t wide = size_bytes(to), narrow = size_bytes(t.dtype);
    if (!t.is_bitcast() || wide == narrow) {
      s.undo(t, shape_at(level), false);
      return s.reshape(cast_bits(load_through(level - 1, s), to), sizes);
    }
    if (wide > narrow) {
      const DType u = bits_of(to);
      ir::Value r;
      for (int64_t k = 0; k < wide / narrow; ++k) {
        const ir::Value part = cast_bits(load_through(level - 1, row_of(s, wide / narrow, k)), bits_of(t.dtype));
        const ir::Value placed = shifted(Opcode::shift_left, b.convert(part, u), 8 * narrow * k);
        r = r ? b.elementwise(Opcode::or_, {r, placed}) : placed;
      }
      return cast_bits(r, to);
    }
    const auto [row, part] = split_row(s, shape_at(level), narrow / wide);
    const DType u = bits_of(t.dtype);
    const ir::Value whole = cast_bits(load_through(level - 1, s), u);
    const ir::Value shift =
        b.elementwise(Opcode::mul, {s.positions(part, s.order), b.constant_int(DType::i32, 8 * wide, s.sizes())});
    const ir::Value piece = b.elementwise(Opcode::shift_right_logical, {whole, b.convert(shift, u)});
    return s.reshape(cast_bits(b.convert(piece, bits_of(to)), to), sizes);
  }

  std::pair<Position, Position> split_row(Selection& s, const Shape& view, int64_t ratio) {
    const size_t q = view.size() - 2;
    const auto parts = s.split(s.at[q], view[q], ratio);
    s.at[q] = parts.first;
    return parts;
  }

  void store_through(size_t level, Selection s, ir::Value v, Opcode code) {
    ir::Builder& b = e_.builder();
    if (level == 0) {
      if (s.at.empty() && num_elements(s.sizes()) > 1) return store_in_turn(v, s.condition(s.order), code);
      Selection::Access a = s.access(true);
      ir::Op op{.code = code, .operands = {ref_.id_, s.to_memory(s.reshape(v, s.sizes()), s.order, a)}};
      const ir::Value mask = s.condition(s.order);
      add_index(op, a, mask ? s.to_memory(mask, s.order, a) : mask);
      b.append(std::move(op));
      return;
    }
    const RefTransform& t = ref_.views_[level - 1];
    const int64_t wide = size_bytes(dtype_at(level)), narrow = size_bytes(t.dtype);
    if (!t.is_bitcast() || wide == narrow) {
      s.undo(t, shape_at(level), true);
      return store_through(level - 1, s, cast_bits(v, t.dtype), code);
    }
    const ir::Value bits = cast_bits(v, bits_of(dtype_at(level)));
    if (wide > narrow) {
      for (int64_t k = 0; k < wide / narrow; ++k)
        store_through(
            level - 1, row_of(s, wide / narrow, k),
            cast_bits(b.convert(shifted(Opcode::shift_right_logical, bits, 8 * narrow * k), bits_of(t.dtype)), t.dtype),
            code);
      return;
    }
    // Parts of one element before are stored one after another, each into what it then holds.
    const int64_t ratio = narrow / wide;
    const auto [row, part] = split_row(s, shape_at(level), ratio);
    const ir::Value spread = s.reshape(b.convert(bits, bits_of(t.dtype)), s.sizes());
    std::vector<int> loops = part.loops();
    std::erase_if(loops, [&](int l) { return s.size[static_cast<size_t>(l)] == 1; });
    const Position::Slice* slice = part.slice();
    if (slice && loops.size() == 1) {
      for (int64_t i = 0; i < s.size[static_cast<size_t>(loops[0])]; ++i)
        store_part(level - 1, s.without(loops[0], i), s.take(spread, s.order, loops[0], i), t.dtype,
                   slice->start.at + i * slice->step, wide);
    } else if (part.start() && part.start()->terms.empty() && loops.empty()) {
      store_part(level - 1, s, spread, t.dtype, part.start()->at, wide);
    } else {
      const ir::Value at = s.positions(part, s.order);
      for (int64_t k = 0; k < ratio; ++k) {
        Selection some = s;
        some.inside.emplace_back(s.order, b.elementwise(Opcode::eq, {at, b.constant_int(DType::i32, k, s.sizes())}));
        store_part(level - 1, some, spread, t.dtype, k, wide);
      }
    }
  }
  // A Ref of rank 0 is one element, to which all of a view come in turn.
  ir::Value flat(ir::Value v) {
    ir::Builder& b = e_.builder();
    const ir::Type t = b.kernel().type(v);
    if (t.shape.size() == 1) return v;
    return b.one({.code = Opcode::reshape, .operands = {v}}, ir::Type::array(t.dtype, {num_elements(t.shape)}));
  }
  ir::Value is_element(const Value& i, int64_t n) {
    ir::Builder& b = e_.builder();
    ir::Op iota{.code = Opcode::iota};
    iota.set(Attr::axis, 0);
    return b.elementwise(Opcode::eq,
                         {b.one(std::move(iota), ir::Type::array(DType::i32, {n})), b.broadcast(e_.use(i), {n}, {})});
  }
  /// Element i of a flat value, bit by bit.
  ir::Value element_of(ir::Value v, ir::Value is_it) {
    ir::Builder& b = e_.builder();
    const ir::Type t = b.kernel().type(v);
    const DType as = is_float(t.dtype) ? bits_of(t.dtype) : t.dtype;
    ir::Op any{.code = Opcode::reduce_or,
               .operands = {b.elementwise(Opcode::select, {is_it, cast_bits(v, as), b.constant_int(as, 0, t.shape)})}};
    any.set(Attr::axes, std::vector<int64_t>{0});
    return cast_bits(b.one(std::move(any)), t.dtype);
  }
  void store_in_turn(ir::Value v, ir::Value inside, Opcode code) {
    const int64_t n = num_elements(e_.builder().kernel().type(v).shape);
    v = flat(v);
    if (inside) inside = flat(inside);
    control::for_loop(
        Operand(0, e_.loc()), Operand(n, e_.loc()), {},
        [&](const Value& i, const control::Values&) {
          const ir::Value is_it = is_element(i, n);
          ir::Op op{.code = code, .operands = {ref_.id_, element_of(v, is_it)}};
          add_index(op, {}, inside ? element_of(inside, is_it) : ir::Value{});
          e_.builder().append(std::move(op));
          return control::Operands{};
        },
        e_.loc());
  }
  ir::Value atomic_in_turn(const ir::Op& op, ir::Value inside, ir::Value other) {
    ir::Builder& b = e_.builder();
    const int64_t n = num_elements(form_.shape);
    std::vector<ir::Value> operands(op.operands.begin() + 1, op.operands.end());
    for (ir::Value& v : operands) v = flat(v);
    if (inside) inside = flat(inside);
    const ir::Value start = other    ? flat(other)
                            : inside ? flat(load_view({}, {}))
                                     : b.constant_int(ref_.dtype(), 0, {n});
    const control::Values found = control::for_loop(
        Operand(0, e_.loc()), Operand(n, e_.loc()), {Operand(e_.wrap(start), e_.loc())},
        [&](const Value& i, const control::Values& before) {
          const ir::Value is_it = is_element(i, n), held = e_.use(before[0]);
          ir::Op one{.code = op.code, .operands = {op.operands[0]}, .attrs = op.attrs};
          for (ir::Value v : operands) one.operands.push_back(element_of(v, is_it));
          if (ref_.dtype() != dtype_at(0)) one.set(Attr::bits, 1);
          const ir::Value instead = inside ? element_of(held, is_it) : ir::Value{};
          add_index(one, {}, inside ? element_of(inside, is_it) : ir::Value{}, instead);
          const ir::Value old = b.broadcast(b.one(std::move(one)), {n}, {});
          return control::Operands{Operand(e_.wrap(b.elementwise(Opcode::select, {is_it, old, held})), e_.loc())};
        },
        e_.loc());
    return b.one({.code = Opcode::reshape, .operands = {e_.use(found[0])}}, ir::Type::array(ref_.dtype(), form_.shape));
  }
  /// v, unsigned of t's width, holds the part's bits in its lowest `bytes`.
  void store_part(size_t level, const Selection& s, ir::Value v, DType t, int64_t part, int64_t bytes) {
    ir::Builder& b = e_.builder();
    const DType u = bits_of(t);
    const ir::Value held = cast_bits(load_through(level, s), u);
    const uint64_t ones = ((uint64_t{1} << (8 * bytes)) - 1) << (8 * bytes * part);
    const ir::Value kept = b.elementwise(
        Opcode::and_, {held, b.constant_int(u, static_cast<int64_t>(~ones), b.kernel().type(held).shape)});
    store_through(level, s,
                  cast_bits(b.elementwise(Opcode::or_, {kept, shifted(Opcode::shift_left, v, 8 * bytes * part)}), t),
                  Opcode::store);
  }
  static void add_index(ir::Op& op, const Selection::Access& a, ir::Value mask, ir::Value other = {}) {
    if (mask) {
      op.operands.push_back(mask);
      op.set(Attr::mask, 1);
    }
    if (other) {
      op.operands.push_back(other);
      op.set(Attr::other, 1);
    }
    op.index = a.index;
    for (Index& i : op.index) i.shift(static_cast<ptrdiff_t>(op.operands.size()));
    op.operands.insert(op.operands.end(), a.starts.begin(), a.starts.end());
  }

  // -- the index
  void entries(const std::vector<IndexItem>& items) {
    const size_t rank = ref_.shape().size();
    size_t dots = items.size(), named = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!std::holds_alternative<Ellipsis>(items[i].item())) {
        ++named;
        continue;
      }
      if (dots != items.size()) e_.fail("the index has more than one ellipsis");
      dots = i;
    }
    if (named > rank)
      e_.fail("the index has " + std::to_string(named) + " entries but the Ref " + to_string(ref_.shape()) + " has " +
              std::to_string(rank) + (rank == 1 ? " dim" : " dims"));
    std::vector<std::pair<size_t, ir::Value>> arrays;  // by dim
    size_t item = 0;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t n = ref_.shape()[d];
      if (item == dots && d < rank - (named - item)) {
        index_.push_back(Index::all(n));
        if (d + 1 == rank - (named - item)) ++item;
        continue;
      }
      if (item == dots) ++item;
      if (item >= items.size()) {
        index_.push_back(Index::all(n));
        continue;
      }
      const auto& entry = items[item++].item();
      if (const Operand* o = std::get_if<Operand>(&entry); o && o->value() && o->value()->rank() != 0) {
        arrays.emplace_back(d, index_array(*o, d, n));
        index_.push_back(Index::array(0));  // for now: the arrays are broadcast below
      } else {
        index_.push_back(std::visit([&](const auto& x) { return lower(x, d, n); }, entry));
      }
    }
    if (arrays.empty()) return;
    Shape common;
    const auto shape_of = [&](ir::Value v) { return e_.builder().kernel().type(v).shape; };
    for (const auto& [d, v] : arrays) {
      const Shape s = shape_of(v);
      if (s.size() > common.size()) common.insert(common.begin(), s.size() - common.size(), 1);
      for (size_t i = 0; i < s.size(); ++i) {
        int64_t& c = common[common.size() - s.size() + i];
        if (s[i] != c && s[i] != 1 && c != 1)
          e_.fail(dim(d) + "the index array has shape " + to_string(s) + ", which does not broadcast with " +
                  to_string(common) + " of those before");
        if (c == 1) c = s[i];
      }
    }
    for (const auto& [d, v] : arrays) index_[d] = Index::array(start(e_.broadcast(v, common)).operand);
  }
  ir::Value index_array(const Operand& o, size_t d, int64_t n) {
    const Value& v = *o.value();
    ir::Value x = e_.use(v);
    if (!is_int(v.dtype()))
      e_.fail(dim(d) + "an index array must hold integers but is " + to_string(ir::Type::array(v.dtype(), v.shape())));
    if (n == 0 && num_elements(v.shape()) != 0) e_.fail(dim(d) + "an index into " + elements(n));
    ir::Builder& b = e_.builder();
    // As JAX: unsigned ones turn signed by their bits, 64 bits keep what is outside outside.
    if (v.dtype() == DType::u64) x = b.convert(x, DType::i64);
    if (b.kernel().type(x).dtype == DType::i64) {
      const auto limit = [&](int64_t most) { return b.constant_int(DType::i64, most, v.shape()); };
      x = b.elementwise(Opcode::clamp,
                        {limit(std::numeric_limits<int32_t>::min()), x, limit(std::numeric_limits<int32_t>::max())});
    }
    return b.convert(x, DType::i32);
  }
  std::string dim(size_t d) const { return "dim " + std::to_string(d) + ": "; }
  static std::string elements(int64_t n) { return std::to_string(n) + (n == 1 ? " element" : " elements"); }
  Index::Dynamic start(ir::Value v) {
    starts_.push_back(v);
    return {starts_.size() - 1};  // made an operand position by complete() and add_index()
  }
  static std::optional<int64_t> static_value(const Operand& o) {
    if (!o.number()) return std::nullopt;
    if (const auto* i = std::get_if<int64_t>(&*o.number())) return *i;
    if (const auto* u = std::get_if<uint64_t>(&*o.number()))
      return static_cast<int64_t>(std::min<uint64_t>(*u, INT64_MAX));
    return std::nullopt;
  }

  Index lower(All, size_t, int64_t n) { return Index::all(n); }
  Index lower(Ellipsis, size_t, int64_t n) { return Index::all(n); }
  Index lower(const Operand& i, size_t d, int64_t n) {
    if (const auto at = static_value(i)) {
      if (*at < -n || *at >= n)
        e_.fail(dim(d) + "index " + std::to_string(*at) + " is out of range for " + elements(n));
      return Index::at(*at < 0 ? *at + n : *at);
    }
    if (n == 0) e_.fail(dim(d) + "an index into " + elements(n));
    return Index::at(start(e_.index_scalar(i, dim(d) + "the index")));
  }
  Index lower(const Range& r, size_t d, int64_t n) {
    if (r.step < 1) e_.fail(dim(d) + "the step " + std::to_string(r.step) + " is not positive");
    const auto end = [&](std::optional<int64_t> x, int64_t open) {
      return std::clamp<int64_t>(!x ? open : *x < 0 ? std::max<int64_t>(*x, -n) + n : *x, 0, n);
    };
    const int64_t start = end(r.start, 0), stop = end(r.stop, n),
                  count = start < stop ? (stop - start - 1) / r.step + 1 : 0;
    return {Index::Slice{count ? start : 0, count, r.step}};
  }
  Index lower(const Ds& s, size_t d, int64_t n) {
    if (s.size < 0) e_.fail(dim(d) + "ds has the negative size " + std::to_string(s.size));
    if (s.step < 1) e_.fail(dim(d) + "the step " + std::to_string(s.step) + " of ds is not positive");
    using Wide = __int128;
    const Wide span = s.size ? Wide{s.size - 1} * s.step + 1 : 0;  // first to last element
    const auto at = static_value(s.start);
    const auto describe = [&] {
      return "ds of " + elements(s.size) + (s.step == 1 ? "" : " with step " + std::to_string(s.step));
    };
    if (at) {
      const int64_t first = *at < 0 && !masked_ ? *at + n : *at;
      if (first >= 0 && Wide{first} + span <= n) return {Index::Slice{first, s.size, s.step}};
      if (!masked_)
        e_.fail(dim(d) + describe() + " from " + std::to_string(*at) + " is out of range for " + elements(n));
    } else if (!masked_ && span > n) {
      e_.fail(dim(d) + describe() + " does not fit " + elements(n));
    }
    return {Index::Slice{start(e_.index_scalar(s.start, dim(d) + "the start of ds")), s.size, s.step}};
  }

  ir::Value stored(const Operand& v) {
    const DType t = ref_.dtype();
    if (v.value() && v.value()->dtype() != t) {
      e_.use(*v.value());
      e_.fail("the value is " + std::string(name(v.value()->dtype())) + " but the Ref holds " + std::string(name(t)),
              "cast(value, " + std::string(name(t)) + ") converts");
    }
    return e_.as(v, t, form_.shape);
  }
  ir::Value mask_of(const Operand& mask) {
    return mask.absent() ? ir::Value{} : e_.broadcast(e_.truth(mask), form_.shape);
  }
  ir::Value other_of(const Operand& other, ir::Value mask) {
    if (other.absent()) return {};
    if (!mask) e_.fail("other is given without a mask");
    if (other.value() && other.value()->dtype() != ref_.dtype())
      e_.fail("other is " + std::string(name(other.value()->dtype())) + " but the Ref holds " +
              std::string(name(ref_.dtype())));
    return e_.as(other, ref_.dtype(), form_.shape);
  }
  ir::Op complete(ir::Op op, ir::Value mask, ir::Value other) {
    if (mask) {
      op.operands.push_back(mask);
      op.set(Attr::mask, 1);
    }
    if (other) {
      op.operands.push_back(other);
      op.set(Attr::other, 1);
    }
    op.index = index_;
    for (Index& i : op.index) i.shift(static_cast<ptrdiff_t>(op.operands.size()));
    op.operands.insert(op.operands.end(), starts_.begin(), starts_.end());
    return op;
  }

  Emit e_;
  const Ref ref_;
  bool masked_;
  std::vector<Index> index_;  // operand(): position in starts_
  std::vector<ir::Value> starts_;
  ir::AccessDims form_;
};

Value load(const Ref& ref, RefIndex index, LoadParams params) {
  return RefAccess("load", ref, index, index.loc(), !params.mask.absent(), false).load(params);
}
void store(const Ref& ref, RefIndex index, Operand value, StoreParams params) {
  RefAccess("store", ref, index, index.loc(), !params.mask.absent(), true).store(value, params);
}
void addupdate(const Ref& ref, RefIndex index, Operand value, StoreParams params) {
  RefAccess("addupdate", ref, index, index.loc(), !params.mask.absent(), true).addupdate(value, params);
}
Value swap(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return RefAccess("swap", ref, index, index.loc(), !params.mask.absent(), true).swap(value, params);
}

Ref::Ref(uint64_t trace, ir::RegionId region, ir::Value id, ir::Type type)
    : trace_(trace), region_(region), id_(id), type_(std::move(type)) {}
Ref::Ref(const Ref&) = default;
Ref::Ref(Ref&&) noexcept = default;
Ref& Ref::operator=(const Ref&) = default;
Ref& Ref::operator=(Ref&&) noexcept = default;
Ref::~Ref() = default;

Ref Ref::with(RefTransform step, Shape to, DType dtype) const {
  Ref r = *this;
  r.views_.push_back(std::move(step));
  r.type_.shape = std::move(to);
  r.type_.dtype = dtype;
  return r;
}
Ref Ref::at(RefIndex index) const { return RefAccess("at", *this, index, index.loc(), false, false).view(); }

Ref Ref::reshape(Shape to, Loc loc) const {
  const Emit e("reshape", loc);
  e.check_owner(trace_, region_, "Ref");
  const int64_t n = num_elements(shape());
  const auto mine = [&] {
    return "the Ref " + to_string(shape()) + " has " + std::to_string(n) + (n == 1 ? " element" : " elements");
  };
  int64_t* open = nullptr;
  __int128 product = 1;
  for (int64_t& d : to) {
    if (d < -1) e.fail("the size " + std::to_string(d) + " in " + to_string(to) + " is negative");
    if (d == -1 && open) e.fail("more than one size of " + to_string(to) + " is -1");
    if (d == -1) open = &d;
    else if ((product *= d) > (int64_t{1} << 40)) e.fail(mine() + " but " + to_string(to) + " has more");
  }
  if (open) {
    if (product == 0 || n % static_cast<int64_t>(product) != 0)
      e.fail(mine() + ", which the sizes of " + to_string(to) + " do not divide");
    *open = n / static_cast<int64_t>(product);
  } else if (product != n) {
    e.fail(mine() + " but " + to_string(to) + " has " + std::to_string(static_cast<int64_t>(product)));
  }
  return with({RefTransform::Reshape{}, shape(), dtype()}, std::move(to), dtype());
}

Ref Ref::bitcast(DType to, Loc loc) const {
  const Emit e("bitcast", loc);
  e.check_owner(trace_, region_, "Ref");
  if (to == dtype()) return *this;
  if (to == DType::boolean || dtype() == DType::boolean)
    e.fail("bool is not a matter of bits", "cast() converts values");
  if (is_int4(to) != is_int4(dtype()))
    e.fail(std::string(name(dtype())) + " to " + std::string(name(to)) +
               ": 4-bit integers lie one to a byte in memory, whose other bits say nothing",
           "load the Ref and bitcast() the value");
  Shape s = shape();
  const int64_t mine = size_bytes(dtype()), its = size_bytes(to);
  const auto names = [&] { return std::string(name(dtype())) + " to " + std::string(name(to)); };
  if (mine != its) {
    if (s.size() < 2)
      e.fail(names() + " changes the width, which joins or parts rows, but the Ref " + to_string(s) + " has " +
                 std::to_string(s.size()) + (s.size() == 1 ? " dim" : " dims"),
             "reshape it to 2 dims first");
    int64_t& rows = s[s.size() - 2];
    if (rows * mine % its != 0)
      e.fail("dim " + std::to_string(s.size() - 2) + ": " + std::to_string(rows) + " rows of " +
             std::to_string(8 * mine) + " bits do not make whole rows of " + std::to_string(8 * its) + " bits");
    rows = rows * mine / its;
  }
  return with({RefTransform::Bitcast{}, shape(), dtype()}, std::move(s), to);
}

Ref Ref::transpose(std::vector<int64_t> perm, Loc loc) const {
  const Emit e("transpose", loc);
  e.check_owner(trace_, region_, "Ref");
  std::vector<int64_t> all_dims = perm;
  std::sort(all_dims.begin(), all_dims.end());
  bool right = perm.size() == shape().size();
  for (size_t d = 0; right && d < all_dims.size(); ++d) right = all_dims[d] == static_cast<int64_t>(d);
  if (!right) e.fail("perm " + to_string(Shape(perm)) + " is not a permutation of the dims of " + to_string(shape()));
  Shape s;
  for (int64_t d : perm) s.push_back(shape()[static_cast<size_t>(d)]);
  return with({RefTransform::Transpose{std::move(perm)}, shape(), dtype()}, std::move(s), dtype());
}
Ref Ref::T(Loc loc) const {
  std::vector<int64_t> perm;
  for (size_t d = shape().size(); d-- > 0;) perm.push_back(static_cast<int64_t>(d));
  return transpose(std::move(perm), loc);
}

namespace {
Value atomic(std::string_view op, Opcode kind, const Ref& ref, const RefIndex& index, const Operand& value,
             const LoadParams& params) {
  return RefAccess(op, ref, index, index.loc(), !params.mask.absent(), true).atomic(kind, value, params);
}
}  // namespace
Value atomic_add(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return atomic("atomic_add", Opcode::add, ref, index, value, params);
}
Value atomic_max(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return atomic("atomic_max", Opcode::max, ref, index, value, params);
}
Value atomic_min(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return atomic("atomic_min", Opcode::min, ref, index, value, params);
}
Value atomic_and(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return atomic("atomic_and", Opcode::and_, ref, index, value, params);
}
Value atomic_or(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return atomic("atomic_or", Opcode::or_, ref, index, value, params);
}
Value atomic_xor(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return atomic("atomic_xor", Opcode::xor_, ref, index, value, params);
}
Value atomic_xchg(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return atomic("atomic_xchg", Opcode::swap, ref, index, value, params);
}
Value atomic_cas(const Ref& ref, RefIndex index, Operand compare, Operand value, LoadParams params) {
  return RefAccess("atomic_cas", ref, index, index.loc(), !params.mask.absent(), true)
      .compare_and_swap(compare, value, params);
}

bool is_view(const Ref& ref) { return RefAccess::is_view(ref); }
PlaceParts place_parts(std::string_view op, const Place& place, Loc loc, bool masked, bool writes) {
  return RefAccess(op, place.ref(), place.index(), loc, masked, writes).parts();
}

RefItem::RefItem(const Ref& ref, RefIndex&& index) : ref_(ref), index_(std::move(index)) {}
RefItem::~RefItem() = default;
RefItem Ref::operator[](RefIndex index) const { return RefItem(*this, std::move(index)); }
RefItem::operator Value() && { return std::move(*this).read(index_.loc()); }
Value RefItem::read(Loc loc) && { return RefAccess("load", ref_, index_, loc, false, false).load({}); }
void RefItem::operator=(Operand v) && { RefAccess("store", ref_, index_, v.loc(), false, true).store(v, {}); }
void RefItem::operator=(RefItem&& other) && {
  const Loc loc = other.index_.loc();
  std::move(*this) = Operand(std::move(other), loc);
}

namespace {
using Combine = Value (*)(Operand, Operand);
void update(const Ref& ref, const RefIndex& index, const Operand& v, Combine combine) {
  const Value before = RefAccess("load", ref, index, v.loc(), false, false).load({});
  const Value after = combine(Operand(before, v.loc()), v);
  RefAccess("store", ref, index, v.loc(), false, true).store(Operand(after, v.loc()), {});
}
}  // namespace
void RefItem::operator+=(Operand v) && { update(ref_, index_, v, operator+); }
void RefItem::operator-=(Operand v) && { update(ref_, index_, v, operator-); }
void RefItem::operator*=(Operand v) && { update(ref_, index_, v, operator*); }
void RefItem::operator/=(Operand v) && { update(ref_, index_, v, operator/); }
void RefItem::operator%=(Operand v) && { update(ref_, index_, v, operator%); }
void RefItem::operator&=(Operand v) && { update(ref_, index_, v, operator&); }
void RefItem::operator|=(Operand v) && { update(ref_, index_, v, operator|); }
void RefItem::operator^=(Operand v) && { update(ref_, index_, v, operator^); }

}  // namespace tessera
