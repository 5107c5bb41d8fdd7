// load, store, swap, addupdate and atomics. Without a mask a negative start wraps once and is then clamped so that the
// window fits; with a mask nothing shifts and each element is tested against the ref's shape and the mask. indexed.cpp
// has the accesses whose elements go each their own way.
#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/interpreter/async_copies.h"
#include "engine/interpreter/machine.h"
#include "engine/interpreter/threads.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {

uint64_t place_of(uint64_t owner, int64_t i) { return mix(owner * 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(i); }

void out_of_bounds(const Machine& m, const ir::Op& op, const Outside& o, const std::string& note) {
  const std::string first = std::to_string(o.first), last = std::to_string(o.last);
  throw KernelError(m.kernel->name + ": " + std::string(ir::name(op.code)) + " of " + ref_text(*m.kernel, o.ref) +
                        " by program " + program_text(*m.kernel, m.grid_point.data()) + ": element" +
                        (o.first == o.last ? " " + first : "s " + first + " to " + last) + " along dim " +
                        std::to_string(o.dim) + ", which has " + std::to_string(o.extent),
                    op.loc, note);
}

namespace {
struct Dim {
  int64_t extent, size, step, start;  // size 1 for an integer; start is static where no operand gives it
  uint32_t start_value = UINT32_MAX;
};

struct Access {
  const ir::Op* op;
  size_t ref;
  int64_t bytes;
  DType dtype;
  int fill;
  std::vector<Dim> dims;  // one per dim of the ref
  Shape shape;            // sizes of all dims, integers included as 1: the value's elements in order
  Strides dense;
  int64_t elements;
  ir::Value result, value, mask, other, compare;
  bool all;  // every element of the Ref, in order

  int64_t given_start(const Machine& m, const Dim& x) const {
    return x.start_value == UINT32_MAX ? x.start : *reinterpret_cast<const int32_t*>(m.place[x.start_value]);
  }

  // Where the window starts along dim d, without a mask.
  int64_t fitted_start(const Machine& m, size_t d) const {
    const Dim& x = dims[d];
    if (x.start_value == UINT32_MAX) return x.start;
    const int64_t given = given_start(m, x), span = x.size == 0 ? 0 : (x.size - 1) * x.step + 1,
                  wrapped = given < 0 ? given + x.extent : given;
    const int64_t start = std::max<int64_t>(0, std::min(wrapped, x.extent - span));
    if (m.raise && start != wrapped && elements)
      out_of_bounds(m, *op, {ref, d, x.extent, given, given + span - 1},
                    "unless out-of-bounds accesses raise, the start is moved to " + std::to_string(start));
    return start;
  }

  // Offset of the window's first element, and its strides.
  int64_t window(const Machine& m, int64_t* strides) const {
    const View& view = m.views[ref];
    int64_t offset = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      offset += fitted_start(m, d) * view.strides[d];
      strides[d] = dims[d].step * view.strides[d];
    }
    return offset;
  }

  // Copies the window to `out`, or `from` to the window.
  void copy_out(const Machine& m, std::byte* out) const {
    const View& view = m.views[ref];
    if (all && view.dense) return copy_all(out, view.data);
    if (elements == 0) return;  // an empty array has no address
    int64_t strides[kMaxRank];
    const std::byte* const first = view.data + window(m, strides) * bytes;
    if (elements == 1) copy_element(out, first, bytes);
    else StridedCopy(dims.size(), shape.data(), dense.data(), strides, bytes).run(out, first);
  }
  void copy_in(const Machine& m, const std::byte* from) const {
    const View& view = m.views[ref];
    if (all && view.dense) return copy_all(view.data, from);
    if (elements == 0) return;
    int64_t strides[kMaxRank];
    std::byte* const first = view.data + window(m, strides) * bytes;
    if (elements == 1) copy_element(first, from, bytes);
    else StridedCopy(dims.size(), shape.data(), strides, dense.data(), bytes).run(first, from);
  }
  void copy_all(std::byte* to, const std::byte* from) const {
    if (elements) std::memcpy(to, from, static_cast<size_t>(elements * bytes));
  }

  // Tells the race detector of every element that is accessed, where the array or scratch is followed; overhang is
  // private to a program.
  void record(const Machine& m, Touching how) const {
    if (m.async || m.races || m.threads) record_all(m, how);
  }
  void record_all(const Machine& m, Touching how) const {
    if (m.threads) m.threads->before(m, ref);
    const bool by_threads = m.threads && m.threads->follows(ref);
    if (m.async) m.async->tick();
    const bool followed = m.races && m.races->follows(ref), copies = m.races && m.async && m.async->under_way();
    if (!followed && !copies && !by_threads) return;
    const Tracked& t = m.tracked[ref];
    const View& view = m.views[ref];
    const std::byte* mask_bytes = mask ? m.place[mask.index] : nullptr;
    int64_t starts[kMaxRank], i = 0;
    for (size_t d = 0; d < dims.size(); ++d) starts[d] = mask ? given_start(m, dims[d]) : fitted_start(m, d);
    for_each_index(dims.size(), shape.data(), [&](const int64_t* at) {
      if (mask_bytes && mask_bytes[i++] == std::byte{0}) return;
      int64_t element = t.first, offset = 0, position[kMaxRank];
      bool inside = true;
      for (size_t d = 0; d < dims.size(); ++d) {
        const int64_t p = position[d] = starts[d] + at[d] * dims[d].step;
        if (p < 0 || p >= dims[d].extent) return;
        if (followed) inside &= p >= t.below[d] && p < t.below[d] + t.inside[d], element += p * t.strides[d];
        offset += p * view.strides[d];
      }
      if (by_threads) m.threads->touch(m, *op, ref, view.data + offset * bytes, position, how);
      if (copies) m.async->access(*op, ref, view.data + offset * bytes, position, dims.size(), how != Touching::load);
      if (followed && inside) m.races->access(*op, ref, element, how);
    });
  }

  // The nearest element of the ref, where it has elements.
  std::byte* nearest(const Machine& m, const int64_t* starts, const int64_t* at) const {
    int64_t offset = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].extent == 0) return nullptr;
      const int64_t p = std::clamp<int64_t>(starts[d] + at[d] * dims[d].step, 0, dims[d].extent - 1);
      offset += p * m.views[ref].strides[d];
    }
    return m.views[ref].data + offset * bytes;
  }

  // Calls f(element of the ref or null, position in the value) for every element. `edge`: elements that are left alone
  // are the nearest ones.
  template <class F> void masked(const Machine& m, bool edge, F&& f) const {
    const View& view = m.views[ref];
    const auto* mask_bytes = reinterpret_cast<const uint8_t*>(m.place[mask.index]);
    int64_t starts[kMaxRank], i = 0;
    for (size_t d = 0; d < dims.size(); ++d) starts[d] = given_start(m, dims[d]);
    for_each_index(dims.size(), shape.data(), [&](const int64_t* at) {
      bool inside = mask_bytes[i] != 0;
      int64_t offset = 0;
      for (size_t d = 0; inside && d < dims.size(); ++d) {
        const int64_t p = starts[d] + at[d] * dims[d].step;
        inside = p >= 0 && p < dims[d].extent;
        if (!inside && m.raise)
          out_of_bounds(m, *op, {ref, d, dims[d].extent, p, p},
                        "its mask is true; unless out-of-bounds accesses raise, it is left alone");
        offset += p * view.strides[d];
      }
      f(inside ? view.data + offset * bytes : edge ? nearest(m, starts, at) : nullptr, i++);
    });
  }

  // The offset of a masked access that leaves out no element, and its strides: it is done like one without a mask.
  std::optional<int64_t> complete(const Machine& m, int64_t* strides) const {
    if (elements == 0 || std::memchr(m.place[mask.index], 0, static_cast<size_t>(elements))) return std::nullopt;
    int64_t offset = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      const int64_t start = given_start(m, dims[d]);
      if (start < 0 || start + (dims[d].size - 1) * dims[d].step >= dims[d].extent) return std::nullopt;
      offset += start * m.views[ref].strides[d];
      strides[d] = dims[d].step * m.views[ref].strides[d];
    }
    return offset;
  }

  void read(Machine& m, std::byte* out) const {
    record(m, Touching::load);
    if (!mask) return copy_out(m, out);
    const std::byte* instead = other ? m.place[other.index] : nullptr;
    const uint64_t owner = masked_load_owner(m);
    int64_t strides[kMaxRank];
    if (const auto offset = complete(m, strides))
      return StridedCopy(dims.size(), shape.data(), dense.data(), strides, bytes)
          .run(out, m.views[ref].data + *offset * bytes);
    masked(m, fill == kEdge && !instead, [&](const std::byte* element, int64_t i) {
      uint64_t unspecified = 0;
      if (!element && !instead) unspecified = unspecified_bits(dtype, fill, place_of(owner, i));
      const std::byte* from = element   ? element
                              : instead ? instead + i * bytes
                                        : reinterpret_cast<const std::byte*>(&unspecified);
      copy_element(out + i * bytes, from, bytes);
    });
  }
  void write(Machine& m, const std::byte* from) const {
    record(m, Touching::store);
    if (!mask) return copy_in(m, from);
    int64_t strides[kMaxRank];
    if (const auto offset = complete(m, strides))
      return StridedCopy(dims.size(), shape.data(), strides, dense.data(), bytes)
          .run(m.views[ref].data + *offset * bytes, from);
    masked(m, false, [&](std::byte* element, int64_t i) {
      if (element) copy_element(element, from + i * bytes, bytes);
    });
  }
  // Element by element, in row-major order: what an element held before, and then what combine(position, that) makes of
  // it.
  template <class F> void update(Machine& m, F&& combine) const {
    record(m, Touching::atomic);
    std::byte* out = m.place[result.index];
    const auto step = [&](std::byte* element, int64_t i) {
      uint64_t old = 0;
      std::memcpy(&old, element, static_cast<size_t>(bytes));
      const uint64_t now = combine(i, old);
      std::memcpy(element, &now, static_cast<size_t>(bytes));
      std::memcpy(out + i * bytes, &old, static_cast<size_t>(bytes));
    };
    if (!mask) {
      int64_t strides[kMaxRank], i = 0;
      const int64_t first = window(m, strides);
      for_each_index(dims.size(), shape.data(), [&](const int64_t* at) {
        int64_t offset = first;
        for (size_t d = 0; d < dims.size(); ++d) offset += at[d] * strides[d];
        step(m.views[ref].data + offset * bytes, i++);
      });
      return;
    }
    const std::byte* instead = other ? m.place[other.index] : nullptr;
    const uint64_t owner = masked_load_owner(m);
    masked(m, false, [&](std::byte* element, int64_t i) {
      if (element) return step(element, i);
      const uint64_t unspecified = instead ? 0 : unspecified_bits(dtype, fill, place_of(owner, i));
      std::memcpy(out + i * bytes, instead ? instead + i * bytes : reinterpret_cast<const std::byte*>(&unspecified),
                  static_cast<size_t>(bytes));
    });
  }
  uint64_t operand(const Machine& m, ir::Value v, int64_t i) const {
    uint64_t x = 0;
    std::memcpy(&x, m.place[v.index] + i * bytes, static_cast<size_t>(bytes));
    return x;
  }
};

Access make_access(const ir::Kernel& k, const ir::Op& op, size_t ref, int fill) {
  const ir::Type& t = k.type(op.operands[0]);
  Access a{.op = &op,
           .ref = ref,
           .bytes = size_bytes(t.dtype),
           .dtype = t.dtype,
           .fill = fill,
           .dims = {},
           .shape = {},
           .dense = {},
           .elements = 1,
           .result = {},
           .value = {},
           .mask = {},
           .other = {},
           .compare = {},
           .all = true};
  for (size_t d = 0; d < op.index.size(); ++d) {
    const ir::Index& x = op.index[d];
    const ir::Index::Slice slice = x.as_slice();
    a.dims.push_back({t.shape[d], slice.size, slice.step, x.is_static() ? x.constant() : 0, op.operand_of(x).index});
    a.shape.push_back(a.dims.back().size);
    const Dim& dim = a.dims.back();
    a.all &=
        dim.start_value == UINT32_MAX && dim.start == 0 && dim.size == dim.extent && (dim.step == 1 || dim.size <= 1);
  }
  a.dense = dense_strides(a.shape);
  a.elements = num_elements(a.shape);
  if (!op.results.empty()) a.result = op.results[0];
  if (op.value_position() >= 0) a.value = op.operands[static_cast<size_t>(op.value_position())];
  if (op.has_mask()) a.mask = op.operands[static_cast<size_t>(op.mask_position())];
  if (op.code == ir::Opcode::atomic_cas) a.compare = op.operands[2];
  if (op.has_other()) a.other = op.operands[static_cast<size_t>(op.other_position())];
  if (ir::is_atomic(op.code)) a.dtype = k.type(a.value).dtype;  // attr bits
  return a;
}
}  // namespace

uint64_t unspecified_bits(DType t, int fill, uint64_t place) {
  if (fill >= 4) {
    const uint64_t h = mix(mix(place) + static_cast<uint64_t>(fill) * 0x9e3779b97f4a7c15u);
    if (t == DType::boolean) return h & 1;
    // Zeros, extremes and small numbers often, so that no test of such a number, and no max or min with it, always
    // comes out the same.
    const uint64_t style = h >> 60, ones = bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1;
    const int64_t most = h >> 59 & 1 ? 1000 : 12;
    const double small = static_cast<double>(static_cast<int64_t>(h % static_cast<uint64_t>(2 * most + 1)) - most);
    // By every fourth seed none but a few small numbers, so that what is compared with one of them hits it soon.
    if (fill % 4 == 3) return reference::from_double(t, static_cast<double>(h % 17) - (is_unsigned_int(t) ? 0 : 8));
    if (style < 4) return 0;
    if (is_float(t)) return reference::from_double(t, style < 6 ? small * 30 : small / 8);
    if (style < 8) return style == 4 ? ones : style == 5 ? ones >> 1 : style == 6 ? ones ^ (ones >> 1) : 1;
    return style < 12 ? static_cast<uint64_t>(static_cast<int64_t>(small)) & ones : h & ones;
  }
  if (fill == 1 && t == DType::boolean) return 0;
  if (fill == 1) return reference::from_double(t, is_float(t) ? 3e4 : 1e30);
  if (fill == 2) return reference::from_double(t, 77);
  if (fill == 3) return 0;
  switch (t) {
    case DType::boolean: return 1;
    case DType::i4:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64: return uint64_t{1} << (bits(t) - 1);
    case DType::u4:
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64: return 0;
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64: return float_format(t).nan;
  }
  return 0;
}

void fill_unspecified(std::byte* to, int64_t n, DType t, int fill, uint64_t owner) {
  if (fill < 4) return interpreter::fill(to, n, unspecified_bits(t, fill), size_bytes(t));
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t v = unspecified_bits(t, fill, place_of(owner, i));
    std::memcpy(to + i * size_bytes(t), &v, static_cast<size_t>(size_bytes(t)));
  }
}

bool loads(const ir::Kernel& k, const ir::Op& op) {
  if (op.code != ir::Opcode::swap) return ir::reads_ref(op.code);
  return std::any_of(k.ops.begin(), k.ops.end(), [&](const ir::Op& o) {
    return std::find(o.operands.begin(), o.operands.end(), op.results[0]) != o.operands.end();
  });
}

Step memory_step(const ir::Kernel& k, const ir::Op& op, size_t ref, std::byte* buffer, bool borrow, int fill) {
  if (ir::access_dims(k, op).per_element) return per_element_step(k, op, ref, fill);
  Access a = make_access(k, op, ref, fill);
  switch (ir::Memory(op.code)) {
    case ir::Memory::load:
      if (borrow && !a.mask)
        return [a = std::move(a), buffer](Machine& m) {
          a.record(m, Touching::load);
          const View& view = m.views[a.ref];
          std::byte*& place = m.place[a.result.index];
          if (a.all && view.dense && a.elements) {
            place = view.data;
            return;
          }
          place = buffer;
          if (a.elements == 0) return;
          int64_t strides[kMaxRank];
          std::byte* from = view.data + a.window(m, strides) * a.bytes;
          if (a.elements == 1 || is_dense(a.dims.size(), a.shape.data(), strides)) {
            place = from;
          } else {
            StridedCopy(a.dims.size(), a.shape.data(), a.dense.data(), strides, a.bytes).run(buffer, from);
          }
        };
      return [a = std::move(a)](Machine& m) { a.read(m, m.place[a.result.index]); };
    case ir::Memory::store: return [a = std::move(a)](Machine& m) { a.write(m, m.place[a.value.index]); };
    case ir::Memory::swap:
      if (!loads(k, op)) return [a = std::move(a)](Machine& m) { a.write(m, m.place[a.value.index]); };
      return [a = std::move(a)](Machine& m) {
        a.read(m, m.place[a.result.index]);
        a.write(m, m.place[a.value.index]);
      };
    case ir::Memory::addupdate:
      return [a = std::move(a), sum = reference::array_function(ir::Opcode::add, a.dtype, a.dtype),
              held = std::vector<std::byte>()](Machine& m) mutable {
        held.resize(static_cast<size_t>(a.elements * a.bytes));
        a.read(m, held.data());
        const void* operands[] = {held.data(), m.place[a.value.index], held.data()};
        sum(operands, held.data(), a.elements);
        a.write(m, held.data());
      };
    case ir::Memory::atomic_rmw: {
      const auto kind = static_cast<ir::Opcode>(op.attr(ir::Attr::kind));
      const auto combine = kind == ir::Opcode::swap ? nullptr : reference::scalar_function(kind, a.dtype, a.dtype);
      return [a = std::move(a), combine](Machine& m) {
        a.update(m, [&](int64_t i, uint64_t old) {
          const uint64_t operands[2] = {old, a.operand(m, a.value, i)};
          return combine ? combine(operands) : operands[1];
        });
      };
    }
    case ir::Memory::atomic_cas: {
      const auto equal = reference::scalar_function(ir::Opcode::eq, a.dtype, DType::boolean);
      return [a = std::move(a), equal](Machine& m) {
        a.update(m, [&](int64_t i, uint64_t old) {
          const uint64_t operands[2] = {old, a.operand(m, a.compare, i)};
          return equal(operands) ? a.operand(m, a.value, i) : old;
        });
      };
    }
  }
  throw InternalError(std::string(ir::name(op.code)) + " does not access memory", op.loc);
}

}  // namespace tessera::interpreter
