// Semaphores and asynchronous copies. A copy's places are parts of memrefs: slices, without the dims that an integer
// picks.
#include <algorithm>

#include "codegen/tpu/emitter.h"
#include "engine/base/error.h"

namespace tessera::tpu {
using ir::Opcode;

Memory Emitter::part(const ir::Op& op, const ir::CopyPlace& place, bool clip) {
  Memory m = memory(place.ref);
  const Window w = window(op, m, place.first, clip ? Outside::is_error : Outside::moves);
  if (!w.inside)
    fail(op, "a part of the copy may lie outside of its array, and it leaves nothing out",
         "let the blocks divide the array");
  Shape kept;
  bool squeezed = false;
  for (size_t d = 0; d < m.shape.size(); ++d) {
    const bool drops = m.dims[d] < 0 || op.index[place.first + static_cast<size_t>(m.dims[d])].is_integer();
    squeezed |= drops;
    if (!drops) kept.push_back(w.sizes[d]);
    if (w.steps[d] != 1) fail(op, "its copies have no steps");
  }
  if (w.sizes != m.shape || std::any_of(w.bounds.begin(), w.bounds.end(), [](auto b) { return b.second != 0; })) {
    const std::string name = t_.fresh();
    t_.line(name + " = tpu.memref_slice " + m.name + "[" + names(w.starts) + "] : " + memref_type(m) + " -> " +
            memref_type(m, w.sizes));
    m.name = name;
    m.shape = w.sizes;
  }
  if (squeezed) {
    const std::string name = t_.fresh();
    t_.line(name + " = tpu.memref_squeeze " + m.name + " : " + memref_type(m) + " -> " + memref_type(m, kept));
    m.name = name;
    m.shape = kept;
  }
  return m;
}

void Emitter::copy(const ir::Op& op) {
  const std::array<ir::CopyPlace, 3> places = ir::copy_places(k_, op);
  const bool clip = op.attr_or(ir::Attr::clip, 0) != 0;
  const ir::Type& t = k_.type(places[0].ref);
  if (t.dtype == DType::boolean) fail(op, "it has no copies of bool");
  const Memory from = part(op, places[0], clip);
  const Memory to = part(op, places[1], clip);
  const Memory semaphore = part(op, places[2], false);
  if (op.code == Opcode::copy_start)
    t_.line("tpu.enqueue_dma source(" + from.name + " : " + memref_type(from) + ") target(" + to.name + " : " +
            memref_type(to) + ") target_semaphore(" + semaphore.name + " : " + memref_type(semaphore) + ")");
  else
    t_.line("tpu.wait_dma2 semaphore(" + semaphore.name + " : " + memref_type(semaphore) + ") src(" + from.name +
            " : " + memref_type(from) + ") dst(" + to.name + " : " + memref_type(to) + ")");
}

void Emitter::async(const ir::Op& op) {
  if (ir::is_copy(op.code)) return copy(op);
  const Memory m = part(op, {op.operands[0], 0, op.index.size()}, false);
  const std::string type = memref_type(m);
  if (op.code == Opcode::semaphore_read)
    return set(op, t_.make("tpu.sem_read " + m.name + " : " + type + " -> i32", DType::i32, {}));
  const std::string instruction = op.code == Opcode::semaphore_signal ? "tpu.sem_signal " : "tpu.sem_wait ";
  t_.line(instruction + m.name + ", " + value(op.operands[1]).name + " : " + type);
}

}  // namespace tessera::tpu
