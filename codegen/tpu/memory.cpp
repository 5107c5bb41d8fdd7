// Accesses of Refs. VMEM is read and written by vectors, SMEM by scalars. A start that may lie outside moves inside as
// in the interpreter: Mosaic promises nothing of what lies outside, so a start that is not proved inside is clamped.
#include <algorithm>

#include "codegen/tpu/emitter.h"
#include "engine/base/error.h"

namespace tessera::tpu {
using ir::Index;
using ir::MemorySpace;
using ir::Opcode;

namespace {
std::string_view space_name(MemorySpace s) {
  switch (s) {
    case MemorySpace::vmem: return "vmem";
    case MemorySpace::smem: return "smem";
    case MemorySpace::any: return "any";
    case MemorySpace::semaphore:
    case MemorySpace::dma_semaphore: return "semaphore_mem";
    case MemorySpace::barrier:
    case MemorySpace::cluster_barrier:
    case MemorySpace::accumulator:
    case MemorySpace::global:
    case MemorySpace::shared: break;
  }
  throw InternalError("a Ref of the lane level");
}
}  // namespace

std::string memref_type(const Memory& m, const Shape& shape) {
  std::string s = "memref<";
  for (const int64_t n : shape) s += std::to_string(n) + "x";
  s += m.space == MemorySpace::semaphore       ? "!tpu.semaphore"
       : m.space == MemorySpace::dma_semaphore ? "!tpu.dma_semaphore"
                                               : element_type(stored(m.dtype));
  return s + ", #tpu.memory_space<" + std::string(space_name(m.space)) + ">>";
}
std::string memref_type(const Memory& m) { return memref_type(m, m.shape); }

Emitter::Window Emitter::window(const ir::Op& op, const Memory& m, size_t first, Outside outside) {
  Window w;
  for (size_t d = 0; d < m.shape.size(); ++d) {
    if (m.dims[d] < 0) {
      w.starts.push_back(t_.integer(DType::i32, 0));
      w.sizes.push_back(1), w.steps.push_back(1), w.bounds.emplace_back(0, 0);
      continue;
    }
    const Index& x = op.index[first + static_cast<size_t>(m.dims[d])];
    if (x.is_array()) fail(op, "it has no accesses at positions that an array holds");
    const int64_t size = x.as_slice().size, step = size > 1 ? x.as_slice().step : 1;
    const int64_t last = m.shape[d] - ((size - 1) * step + 1);  // where it may start at most
    w.sizes.push_back(size), w.steps.push_back(step);
    if (x.is_static()) {
      const int64_t start = x.constant();
      w.starts.push_back(t_.integer(DType::i32, start));
      w.bounds.emplace_back(start, start);
      w.inside &= start >= 0 && start <= last;
      continue;
    }
    const ir::Value given = op.operand_of(x);
    Val start = value(given);
    Interval r = ranges_.of(given).value_or(Interval{INT32_MIN, INT32_MAX});
    const bool inside = r.lo >= 0 && r.hi <= last;
    if (!inside && outside == Outside::is_error) w.inside = false;
    if (!inside && outside == Outside::moves) {
      if (step != 1)
        fail(op, "the start of an access with a step is not known to lie inside",
             "a TPU's compiler has to know it: compute it from the program's ids and constants");
      if (r.lo < 0) {
        const Val zero = t_.integer(DType::i32, 0), n = t_.integer(DType::i32, m.shape[d]);
        const Val negative = t_.compare("slt", start, zero);
        const Val wrapped = t_.binary("arith.addi", start, n);
        const Val once = t_.select(negative, wrapped, start);
        start = t_.binary("arith.maxsi", once, zero);
      }
      start = t_.binary("arith.minsi", start, t_.integer(DType::i32, last));
      r = {0, last};
    }
    w.starts.push_back(start);
    w.bounds.emplace_back(r.lo, r.hi);
  }
  return w;
}

std::vector<std::string> Emitter::indices(const Window& w) {
  std::vector<std::string> names;
  for (size_t d = 0; d < w.starts.size(); ++d)
    names.push_back(w.bounds[d].first == w.bounds[d].second ? t_.index(w.bounds[d].first)
                                                            : t_.to_index(w.starts[d]).name);
  return names;
}

namespace {
std::string at(const Memory& m, const std::vector<std::string>& indices) {
  std::string s = m.name + "[";
  for (size_t i = 0; i < indices.size(); ++i) s += (i ? ", " : "") + indices[i];
  return s + "]";
}
bool has_steps(const Shape& steps) {
  return std::any_of(steps.begin(), steps.end(), [](int64_t s) { return s != 1; });
}
std::string strides(const Shape& steps) {
  std::string s = "{strides = array<i32: ";
  for (size_t i = 0; i < steps.size(); ++i) s += (i ? ", " : "") + std::to_string(steps[i]);
  return s + ">}";
}
}  // namespace

Val Emitter::from_memory(const Memory& m, const Val& v) {
  return m.dtype == DType::boolean ? convert(v, DType::boolean) : v;
}
Val Emitter::to_memory(const Memory& m, const Val& v) {
  return m.dtype == DType::boolean ? t_.cast("arith.extui", v, DType::i32) : v;
}

Val Emitter::load(const Memory& m, const Window& w, const Shape& shape) {
  const std::string place = at(m, indices(w)), type = memref_type(m);
  const DType t = stored(m.dtype);
  if (m.space == MemorySpace::smem) {
    const Val one = t_.make("memref.load " + place + " : " + type, t, {});
    const Val v = reshape(one, shape);
    return from_memory(m, v);
  }
  const Val v =
      t_.make((has_steps(w.steps) ? "tpu.strided_load " + place + " " + strides(w.steps) : "vector.load " + place) +
                  " : " + type + ", " + value_type(t, w.sizes),
              t, w.sizes);
  const Val shaped = reshape(v, shape);
  return from_memory(m, shaped);
}

void Emitter::store(const ir::Op& op, const Memory& m, const Window& w, const Val& v, const Val* mask) {
  const std::string place = at(m, indices(w)), type = memref_type(m);
  const Val stored_value = to_memory(m, v);
  if (m.space == MemorySpace::smem) {
    const Val one = reshape(stored_value, {});
    if (mask) fail(op, "it has no stores to SMEM with a mask", "use an if");
    return t_.line("memref.store " + one.name + ", " + place + " : " + type);
  }
  Val shaped = reshape(stored_value, w.sizes);
  const std::string vector = type_of(shaped);
  if (mask && (has_steps(w.steps) || bits(shaped.dtype) != 32)) {  // masks are of 32-bit elements
    const Val old =
        t_.make((has_steps(w.steps) ? "tpu.strided_load " + place + " " + strides(w.steps) : "vector.load " + place) +
                    " : " + type + ", " + vector,
                shaped.dtype, w.sizes);
    const Val where = reshape(*mask, w.sizes);
    shaped = t_.select(where, shaped, old);
    mask = nullptr;
  }
  if (has_steps(w.steps))
    return t_.line("tpu.strided_store " + place + ", " + shaped.name + " " + strides(w.steps) + " : " + type + ", " +
                   vector);
  if (!mask)
    return t_.line("tpu.vector_store " + place + ", " + shaped.name + " {strides = array<i32>} : " + type + ", " +
                   vector + ",");
  const Val where = reshape(*mask, w.sizes);
  t_.line("tpu.vector_store " + place + ", " + shaped.name + " masked " + where.name +
          " {strides = array<i32>} : " + type + ", " + vector + ", " + type_of(where));
}

void Emitter::access(const ir::Op& op) {
  const Memory& m = memory(op.operands[0]);
  const bool masked = op.has_mask();
  if (ir::is_atomic(op.code)) fail(op, "it has no atomics", "programs that share memory run in order: use an update");
  const Window w = window(op, m, 0, masked ? Outside::is_error : Outside::moves);
  if (!w.inside) fail(op, "the start of an access with a mask is not known to lie inside");
  if (m.space == MemorySpace::smem && num_elements(w.sizes) != 1)
    fail(op, "it loads and stores scalars of SMEM, one at a time", "or keep the array in VMEM");
  const bool makes = !op.results.empty();
  const Shape shape = makes ? k_.type(op.results[0]).shape : value(op.operands[1]).shape;
  Val mask, old;
  if (masked) mask = value(op.operands[static_cast<size_t>(op.mask_position())]);
  const auto loaded = [&] {
    const Val v = load(m, w, shape);
    if (!masked || !op.has_other()) return v;
    return t_.select(mask, v, value(op.operands[static_cast<size_t>(op.other_position())]));
  };
  switch (ir::Memory(op.code)) {
    case ir::Memory::load: return set(op, loaded());
    case ir::Memory::store: return store(op, m, w, value(op.operands[1]), masked ? &mask : nullptr);
    case ir::Memory::swap:
      old = loaded();
      store(op, m, w, value(op.operands[1]), masked ? &mask : nullptr);
      return set(op, old);
    case ir::Memory::addupdate: {
      const Val before = load(m, w, shape);
      const Val sum = elementwise(op, Opcode::add, {before, value(op.operands[1])});
      return store(op, m, w, sum, masked ? &mask : nullptr);
    }
    case ir::Memory::atomic_rmw:
    case ir::Memory::atomic_cas: break;
  }
}

Val Emitter::load_all(const Memory& m) {
  Window w;
  for (const int64_t n : m.shape) {
    w.starts.push_back(t_.integer(DType::i32, 0));
    w.sizes.push_back(n), w.steps.push_back(1), w.bounds.emplace_back(0, 0);
  }
  return t_.make(
      "vector.load " + at(m, indices(w)) + " : " + memref_type(m) + ", " + value_type(stored(m.dtype), m.shape),
      stored(m.dtype), m.shape);
}

void Emitter::store_all(const Memory& m, const Val& v) {
  std::vector<std::string> zeros;
  for (size_t d = 0; d < m.shape.size(); ++d) zeros.push_back(t_.index(0));
  t_.line("tpu.vector_store " + at(m, zeros) + ", " + v.name + " {strides = array<i32>} : " + memref_type(m) + ", " +
          type_of(v) + ",");
}

}  // namespace tessera::tpu
