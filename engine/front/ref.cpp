#include "engine/front/ref.h"

#include <algorithm>
#include <functional>

#include "engine/front/scope.h"
#include "engine/front/trace.h"

namespace tessera {
using ir::Attr;
using ir::Index;
using ir::Opcode;

IndexItem::IndexItem(RefItem&& read, Loc l) : item_(Operand(std::move(read), l)) {}
RefIndex::RefIndex(RefItem&& read, Loc l) : items_{IndexItem(std::move(read), l)}, loc_(l) {}

/// One access being recorded: the index of every dim, its dynamic starts, and the shape it selects.
class RefAccess {
 public:
  RefAccess(std::string_view op, const Ref& ref, const RefIndex& index, Loc loc, bool masked, bool writes) : e_(op, loc), ref_(ref), masked_(masked) {
    const bool in_index_map = !e_.trace().index_map_origin().empty();
    if (in_index_map && !(ref.trace_ == e_.trace().serial() && e_.trace().is_open(ref.region_)))
      throw TraceError(e_.trace().prefix() + "reads a Ref, but an index map sees only its program ids and scalar-prefetch Refs", loc,
                       "read in the kernel, or give the data as a scalar-prefetch operand");
    e_.check_owner(ref.trace_, ref.region_, "Ref");
    if (writes) {
      const ir::Kernel& k = e_.trace().kernel();
      const uint32_t at = k.value(ref.id_).number;
      if (in_index_map || (k.value(ref.id_).region == k.body && at < static_cast<uint32_t>(k.num_prefetch)))
        e_.fail("a scalar-prefetch operand is only read", "keep what changes in scratch: SMEM({n}, ts::i32)");
      const int output = k.value(ref.id_).region == k.body ? k.aliased_output(static_cast<int>(at)) : -1;
      if (output >= 0)
        e_.fail(k.blocks[at].origin + " is aliased to " + k.blocks[static_cast<size_t>(output)].origin + " and only read", "store to the output");
    }
    const auto& items = index.items();
    if (items.size() > ref.shape().size())
      e_.fail("the index has " + std::to_string(items.size()) + " entries but the Ref " + to_string(ref.shape()) + " has " +
              std::to_string(ref.rank()) + (ref.rank() == 1 ? " dim" : " dims"));
    for (size_t d = 0; d < ref.shape().size(); ++d) {
      const int64_t n = ref.shape()[d];
      index_.push_back(d < items.size() ? std::visit([&](const auto& item) { return lower(item, d, n); }, items[d].item()) : Index::all(n));
      if (index_.back().kind == Index::Kind::slice) shape_.push_back(index_.back().size);
    }
    if (in_index_map && !shape_.empty())
      e_.fail("reads " + to_string(ir::Type::array(ref.dtype(), shape_)) + ", but an index map reads single elements", "index every dim with an integer");
  }

  PlaceParts parts() && { return {ref_.id_, ref_.dtype(), std::move(index_), std::move(starts_), std::move(shape_)}; }

  Value load(const LoadParams& p) {
    ir::Op op{.code = Opcode::load, .operands = {ref_.id_}};
    return finish(std::move(op), p.mask, p.other);
  }
  void store(const Operand& v, const StoreParams& p) {
    ir::Op op{.code = Opcode::store, .operands = {ref_.id_, stored(v)}};
    e_.builder().append(complete(std::move(op), p.mask, {}));
  }
  Value swap(const Operand& v, const LoadParams& p) {
    ir::Op op{.code = Opcode::swap, .operands = {ref_.id_, stored(v)}};
    return finish(std::move(op), p.mask, p.other);
  }

 private:
  std::string dim(size_t d) const { return "dim " + std::to_string(d) + ": "; }
  static std::string elements(int64_t n) { return std::to_string(n) + (n == 1 ? " element" : " elements"); }
  int32_t start_operand(ir::Value v) {
    starts_.push_back(v);
    return static_cast<int32_t>(starts_.size() - 1);  // made an operand position by complete()
  }
  static std::optional<int64_t> static_value(const Operand& o) {
    if (!o.number()) return std::nullopt;
    if (const auto* i = std::get_if<int64_t>(&*o.number())) return *i;
    if (const auto* u = std::get_if<uint64_t>(&*o.number())) return static_cast<int64_t>(std::min<uint64_t>(*u, INT64_MAX));
    return std::nullopt;
  }

  Index lower(All, size_t, int64_t n) { return Index::all(n); }
  Index lower(const Operand& i, size_t d, int64_t n) {
    if (const auto at = static_value(i)) {
      if (*at < -n || *at >= n) e_.fail(dim(d) + "index " + std::to_string(*at) + " is out of range for " + elements(n));
      return Index::at(*at < 0 ? *at + n : *at);
    }
    if (n == 0) e_.fail(dim(d) + "an index into " + elements(n));
    return {Index::Kind::integer, 0, start_operand(e_.index_scalar(i, dim(d) + "the index")), 1, 1};
  }
  Index lower(const Range& r, size_t d, int64_t n) {
    if (r.step < 1) e_.fail(dim(d) + "the step " + std::to_string(r.step) + " is not positive");
    const auto end = [&](std::optional<int64_t> x, int64_t open) {
      return std::clamp<int64_t>(!x ? open : *x < 0 ? std::max<int64_t>(*x, -n) + n : *x, 0, n);
    };
    const int64_t start = end(r.start, 0), stop = end(r.stop, n), count = start < stop ? (stop - start - 1) / r.step + 1 : 0;
    return {Index::Kind::slice, count ? start : 0, -1, count, r.step};
  }
  Index lower(const Ds& s, size_t d, int64_t n) {
    if (s.size < 0) e_.fail(dim(d) + "ds has the negative size " + std::to_string(s.size));
    if (s.step < 1) e_.fail(dim(d) + "the step " + std::to_string(s.step) + " of ds is not positive");
    using Wide = __int128;
    const Wide span = s.size ? Wide{s.size - 1} * s.step + 1 : 0;  // first to last element
    const auto at = static_value(s.start);
    const auto describe = [&] { return "ds of " + elements(s.size) + (s.step == 1 ? "" : " with step " + std::to_string(s.step)); };
    if (at) {
      const int64_t start = *at < 0 && !masked_ ? *at + n : *at;
      if (start >= 0 && Wide{start} + span <= n) return {Index::Kind::slice, start, -1, s.size, s.step};
      if (!masked_) e_.fail(dim(d) + describe() + " from " + std::to_string(*at) + " is out of range for " + elements(n));
    } else if (!masked_ && span > n) {
      e_.fail(dim(d) + describe() + " does not fit " + elements(n));
    }
    return {Index::Kind::slice, 0, start_operand(e_.index_scalar(s.start, dim(d) + "the start of ds")), s.size, s.step};
  }

  ir::Value stored(const Operand& v) {
    const DType t = ref_.dtype();
    if (v.value() && v.value()->dtype() != t) {
      e_.use(*v.value());
      e_.fail("the value is " + std::string(name(v.value()->dtype())) + " but the Ref holds " + std::string(name(t)),
              "cast(value, " + std::string(name(t)) + ") converts");
    }
    return e_.as(v, t, shape_);
  }
  ir::Op complete(ir::Op op, const Operand& mask, const Operand& other) {
    if (!mask.absent()) {
      op.operands.push_back(e_.broadcast(e_.truth(mask), shape_));
      op.set(Attr::mask, 1);
    }
    if (!other.absent()) {
      if (mask.absent()) e_.fail("other is given without a mask");
      if (other.value() && other.value()->dtype() != ref_.dtype())
        e_.fail("other is " + std::string(name(other.value()->dtype())) + " but the Ref holds " + std::string(name(ref_.dtype())));
      op.operands.push_back(e_.as(other, ref_.dtype(), shape_));
      op.set(Attr::other, 1);
    }
    op.index = index_;
    for (Index& i : op.index)
      if (i.start_operand >= 0) i.start_operand += static_cast<int32_t>(op.operands.size());
    op.operands.insert(op.operands.end(), starts_.begin(), starts_.end());
    return op;
  }
  Value finish(ir::Op op, const Operand& mask, const Operand& other) {
    return e_.wrap(e_.builder().one(complete(std::move(op), mask, other)));
  }

  Emit e_;
  const Ref ref_;
  bool masked_;
  std::vector<Index> index_;
  std::vector<ir::Value> starts_;
  Shape shape_;
};

Value load(const Ref& ref, RefIndex index, LoadParams params) {
  return RefAccess("load", ref, index, index.loc(), !params.mask.absent(), false).load(params);
}
void store(const Ref& ref, RefIndex index, Operand value, StoreParams params) {
  RefAccess("store", ref, index, index.loc(), !params.mask.absent(), true).store(value, params);
}
Value swap(const Ref& ref, RefIndex index, Operand value, LoadParams params) {
  return RefAccess("swap", ref, index, index.loc(), !params.mask.absent(), true).swap(value, params);
}

PlaceParts place_parts(std::string_view op, const Place& place, Loc loc, bool masked, bool writes) {
  return RefAccess(op, place.ref(), place.index(), loc, masked, writes).parts();
}

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
