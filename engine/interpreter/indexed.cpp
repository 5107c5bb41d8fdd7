// Accesses whose positions wrap and are clamped or dropped one by one: those with index arrays, and dynamic starts
// beside a step. A negative position wraps once; then a load without a mask takes the nearest element, and all else
// leaves what is outside alone. Under a mask a slice's positions do not wrap. Elements go in the value's order: of
// stores to one element the last stays, atomics find what those before have left.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "engine/interpreter/machine.h"
#include "engine/interpreter/threads.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {
namespace {

struct IndexedDim {
  bool is_array;
  int64_t extent, start, step;
  uint32_t start_value;  // UINT32_MAX: static
  int value_dim;         // of a slice; else -1
};

struct Indexed {
  const ir::Op* op;
  size_t ref;
  int64_t bytes;
  DType dtype;
  int fill;
  ir::AccessDims form;
  std::vector<IndexedDim> dims;
  ir::Value result, value, mask, other, compare;
  reference::ArrayFunction sum;
  // of atomics: with what is there (none: the value replaces it), or eq of a compare-and-swap
  reference::ScalarFunction combine;

  // The position along one dim where element `at` goes, wrapped; it may be outside.
  int64_t position(const Machine& m, const IndexedDim& x, const int64_t* at) const {
    int64_t p = x.start;
    bool wraps = false;
    if (x.is_array) {
      int64_t i = 0;
      for (size_t d = form.array_at; d < form.array_at + form.array_rank; ++d) i = i * form.shape[d] + at[d];
      p = reinterpret_cast<const int32_t*>(m.place[x.start_value])[i];
      wraps = true;
    } else if (x.value_dim < 0) {
      if (x.start_value == UINT32_MAX) return p;
      p = m.scalar({x.start_value});
      wraps = form.arrays || !mask;
    } else {
      if (x.start_value == UINT32_MAX) return p + at[x.value_dim] * x.step;
      // as i32 does
      p = static_cast<int32_t>(static_cast<uint32_t>(m.scalar({x.start_value})) +
                               static_cast<uint32_t>(at[x.value_dim] * x.step));
      wraps = !mask;
    }
    return p < 0 && wraps ? p + x.extent : p;
  }

  // Calls f(element of the ref or null, position in the value) for every element. `clamp`: null only where the mask
  // says so.
  template <class F> void each(const Machine& m, bool clamp, Touching how, F&& f) const {
    const View& view = m.views[ref];
    const auto* mask_bytes = mask ? reinterpret_cast<const uint8_t*>(m.place[mask.index]) : nullptr;
    if (m.threads) m.threads->before(m, ref);
    const bool by_threads = m.threads && m.threads->follows(ref);
    const Tracked* tracked = m.races && m.races->follows(ref) ? &m.tracked[ref] : nullptr;
    int64_t i = 0;
    for_each_index(form.shape.size(), form.shape.data(), [&](const int64_t* at) {
      bool inside = !mask_bytes || mask_bytes[i] != 0, in_array = tracked != nullptr;
      int64_t positions[kMaxRank] = {};
      int64_t offset = 0, element = tracked ? tracked->first : 0;
      for (size_t d = 0; inside && d < dims.size(); ++d) {
        const IndexedDim& x = dims[d];
        int64_t p = position(m, x, at);
        inside = p >= 0 && p < x.extent;
        if (!inside && m.raise)
          out_of_bounds(m, *op, {ref, d, x.extent, p, p},
                        clamp  ? "unless out-of-bounds accesses raise, the nearest element is taken"
                        : mask ? "its mask is true; unless out-of-bounds accesses raise, it is left alone"
                               : "unless out-of-bounds accesses raise, it is left alone");
        if (!inside && clamp && x.extent > 0) {
          p = std::clamp<int64_t>(p, 0, x.extent - 1);
          inside = true;
        }
        offset += p * view.strides[d];
        positions[d] = p;
        if (!in_array) continue;
        in_array = p >= tracked->below[d] && p < tracked->below[d] + tracked->inside[d];
        element += p * tracked->strides[d];
      }
      if (inside && by_threads) m.threads->touch(m, *op, ref, view.data + offset * bytes, positions, how);
      if (inside && in_array) m.races->access(*op, ref, element, how);
      f(inside ? view.data + offset * bytes : nullptr, i++);
    });
  }

  void read(Machine& m, std::byte* out, Touching how = Touching::load) const {
    const std::byte* instead = other ? m.place[other.index] : nullptr;
    const uint64_t owner = mask ? masked_load_owner(m) : 0;
    each(m, !mask || (fill == kEdge && !instead), how, [&](const std::byte* element, int64_t i) {
      uint64_t unspecified = 0;
      if (!element && !instead) unspecified = unspecified_bits(dtype, fill, place_of(owner, i));
      const std::byte* from = element   ? element
                              : instead ? instead + i * bytes
                                        : reinterpret_cast<const std::byte*>(&unspecified);
      copy_element(out + i * bytes, from, bytes);
    });
  }
  void write(Machine& m) const {
    const std::byte* from = m.place[value.index];
    std::unordered_map<const std::byte*, int64_t> taken;
    const bool must_differ = m.races && op->attr_or(ir::Attr::unordered, 0);
    each(m, false, Touching::store, [&](std::byte* element, int64_t i) {
      if (!element) return;
      if (must_differ)
        if (const auto [before, fresh] = taken.try_emplace(element, i); !fresh) meet(m, before->second, i);
      if (sum) {
        const void* operands[] = {element, from + i * bytes, element};
        sum(operands, element, 1);
      } else {
        copy_element(element, from + i * bytes, bytes);
      }
    });
  }
  [[noreturn]] void meet(const Machine& m, int64_t a, int64_t b) const {
    throw KernelError(m.kernel->name + ": store: elements " + std::to_string(a) + " and " + std::to_string(b) +
                          " of the value go to one element of " + ref_text(*m.kernel, ref) +
                          ", and the store leaves open which stays",
                      op->loc, "without unique_indices the last one stays");
  }
  // What is outside finds what the nearest element held before any of them.
  void update(Machine& m) const {
    std::byte* out = m.place[result.index];
    read(m, out, Touching::atomic);
    const auto bits_at = [&](const std::byte* from) {
      uint64_t x = 0;
      std::memcpy(&x, from, static_cast<size_t>(bytes));
      return x;
    };
    each(m, false, Touching::atomic, [&](std::byte* element, int64_t i) {
      if (!element) return;
      const uint64_t old = bits_at(element), given = bits_at(m.place[value.index] + i * bytes);
      const uint64_t operands[2] = {old, compare ? bits_at(m.place[compare.index] + i * bytes) : given};
      const uint64_t now = compare ? (combine(operands) ? given : old) : combine ? combine(operands) : given;
      std::memcpy(element, &now, static_cast<size_t>(bytes));
      std::memcpy(out + i * bytes, &old, static_cast<size_t>(bytes));
    });
  }
};
}  // namespace

Step per_element_step(const ir::Kernel& k, const ir::Op& op, size_t ref, int fill) {
  const ir::Type& t = k.type(op.operands[0]);
  Indexed a{.op = &op,
            .ref = ref,
            .bytes = size_bytes(t.dtype),
            .dtype = t.dtype,
            .fill = fill,
            .form = ir::access_dims(k, op),
            .dims = {},
            .result = {},
            .value = {},
            .mask = {},
            .other = {},
            .compare = {},
            .sum = nullptr,
            .combine = nullptr};
  for (size_t d = 0; d < op.index.size(); ++d) {
    const ir::Index& x = op.index[d];
    a.dims.push_back({x.is_array(), t.shape[d], x.is_static() ? x.constant() : 0, x.slice() ? x.slice()->step : 1,
                      op.operand_of(x).index, a.form.slice[d]});
  }
  if (!op.results.empty() && loads(k, op)) a.result = op.results[0];
  if (op.value_position() >= 0) a.value = op.operands[static_cast<size_t>(op.value_position())];
  if (op.has_mask()) a.mask = op.operands[static_cast<size_t>(op.mask_position())];
  if (op.has_other()) a.other = op.operands[static_cast<size_t>(op.other_position())];
  if (op.code == ir::Opcode::addupdate) a.sum = reference::array_function(ir::Opcode::add, t.dtype, t.dtype);
  if (ir::is_atomic(op.code)) {
    a.dtype = k.type(op.operands[1]).dtype;
    if (op.code == ir::Opcode::atomic_cas) {
      a.compare = op.operands[2];
      a.combine = reference::scalar_function(ir::Opcode::eq, a.dtype, DType::boolean);
    } else if (const auto kind = static_cast<ir::Opcode>(op.attr(ir::Attr::kind)); kind != ir::Opcode::swap) {
      a.combine = reference::scalar_function(kind, a.dtype, a.dtype);
    }
    return [a = std::move(a)](Machine& m) { a.update(m); };
  }
  return [a = std::move(a)](Machine& m) {
    if (a.result) a.read(m, m.place[a.result.index]);
    if (a.value) a.write(m);
  };
}

}  // namespace tessera::interpreter
