#include "engine/front/scope.h"

#include <algorithm>

#include "engine/front/trace.h"

namespace tessera {
using ir::Opcode;

ScratchShape SemaphoreType::BARRIER(Shape, Loc loc) {
  throw SpecError("SemaphoreType::BARRIER: barrier semaphores wait for other devices, and a kernel runs on one", loc,
                  "SemaphoreType::REGULAR() counts signals within a kernel");
}

namespace scope {
control::Values run(const std::vector<ScratchShape>& types, size_t wanted,
                    FunctionRef<control::Operands(const std::vector<Ref>&)> body, Loc loc) {
  Emit e("run_scoped", loc);
  if (e.trace().kernel().has_threads())
    e.fail("this form is not for kernels of mosaic_gpu", "mosaic_gpu::run_scoped is");
  if (types.size() != wanted)
    e.fail("the body takes " + std::to_string(wanted) + (wanted == 1 ? " Ref" : " Refs") + " but there " +
               (types.size() == 1 ? "is " : "are ") + std::to_string(types.size()) +
               (types.size() == 1 ? " type" : " types"),
           "a body takes one Ref per type: VMEM({8, 128}, ts::f32), SemaphoreType::DMA()");
  std::vector<ir::Type> args;
  for (size_t i = 0; i < types.size(); ++i) {
    const ScratchShape& s = types[i];
    const std::string place = "type " + std::to_string(i) + ": ";
    if (std::any_of(s.shape.begin(), s.shape.end(), [](int64_t d) { return d < 0; }))
      e.fail(place + "shape " + to_string(s.shape) + " has a negative size");
    if (!ir::within_limits(s.shape))
      e.fail(place + "shape " + to_string(s.shape) + " is too large", "at most 32 dims and 2^40 elements are allowed");
    if (!ir::is_for_scratch(s.memory_space) || ir::is_of_threads(s.memory_space))
      e.fail(place + "memory space " + std::string(ir::name(s.memory_space)) + " is not for scratch",
             "vmem, smem, any and semaphores are");
    args.push_back(ir::Type::ref(s.dtype, s.shape, s.memory_space));
  }
  return run_types(args, wanted, body, loc);
}

control::Values run_types(const std::vector<ir::Type>& types, size_t wanted,
                          FunctionRef<control::Operands(const std::vector<Ref>&)> body, Loc loc) {
  Emit e("run_scoped", loc);
  Trace& t = e.trace();
  ir::Builder& b = e.builder();
  if (types.size() != wanted)
    e.fail("the body takes " + std::to_string(wanted) + (wanted == 1 ? " Ref" : " Refs") + " but there " +
           (types.size() == 1 ? "is " : "are ") + std::to_string(types.size()) +
           (types.size() == 1 ? " type" : " types"));
  const ir::RegionId r = b.new_region(types);
  {
    const Trace::Region inside(t, r);
    std::vector<Ref> refs;
    for (size_t i = 0; i < types.size(); ++i) refs.push_back(t.ref_argument(r, i));
    std::vector<ir::Value> results;
    for (const Operand& o : body(refs)) results.push_back(e.as_is(o));
    b.set_loc(loc);
    b.yield(std::move(results));
  }
  b.set_loc(loc);
  const ir::OpId op = b.append({.code = Opcode::run_scoped, .regions = {r}});
  control::Values results;
  for (const ir::Value v : t.kernel().op(op).results) results.push_back(t.wrap(v));
  return results;
}
}  // namespace scope

namespace {
/// The index of one semaphore. `what` is "wait for", say.
void check_semaphore(const Emit& e, const PlaceParts& s, const Place& place, const char* what, bool dma) {
  const ir::MemorySpace space = place.ref().memory_space();
  if (!ir::is_semaphore(space))
    e.fail(std::string("the Ref to ") + what + " is in " + std::string(ir::name(space)) + ", not a semaphore",
           "SemaphoreType::REGULAR() and DMA() make them, in scratch_shapes and run_scoped");
  if (!s.shape.empty())
    e.fail(std::string("cannot ") + what + " " + to_string(s.shape) + " semaphores at once", "index one of them: s[i]");
  if (dma && space != ir::MemorySpace::dma_semaphore)
    e.fail("the semaphore is a regular one, and copies count in DMA semaphores", "SemaphoreType::DMA() makes one");
  if (!dma && space == ir::MemorySpace::dma_semaphore)
    e.fail(std::string("cannot ") + what + " a DMA semaphore, in which copies alone count",
           "SemaphoreType::REGULAR() makes one for signals");
}
void append(ir::Op& op, const PlaceParts& p, size_t first_start) {
  for (ir::Index i : p.index) {
    i.shift(static_cast<ptrdiff_t>(first_start));
    op.index.push_back(i);
  }
}

void count(Opcode code, std::string_view name, const char* what, const Place& semaphore, const Operand& by, Loc loc) {
  Emit e(name, loc);
  const PlaceParts s = place_parts(name, semaphore, loc, false, true);
  check_semaphore(e, s, semaphore, what, false);
  const ir::Value n = e.index_scalar(by, code == Opcode::semaphore_signal ? "the increment" : "what is waited for");
  ir::Op op{.code = code, .operands = {s.ref, n}};
  append(op, s, op.operands.size());
  op.operands.insert(op.operands.end(), s.starts.begin(), s.starts.end());
  e.builder().set_loc(loc);
  e.builder().append(std::move(op));
}

void not_of_threads(Emit&& e) {
  if (e.trace().kernel().has_threads())
    e.fail("is not for kernels of mosaic_gpu", "mosaic_gpu::copy_gmem_to_smem and copy_smem_to_gmem are");
}
void not_of_threads(Emit& e) { not_of_threads(std::move(e)); }

void copy(Opcode code, const Place& source, const Place& target, const Place& semaphore, bool clip, Loc loc) {
  constexpr std::string_view name = "async_copy";
  Emit e(name, loc);
  not_of_threads(e);
  const PlaceParts from = place_parts(name, source, loc, clip, false),
                   to = place_parts(name, target, loc, clip, code == Opcode::copy_start),
                   s = place_parts(name, semaphore, loc, false, true);
  for (const Place* p : {&source, &target})
    if (ir::is_semaphore(p->ref().memory_space()))
      e.fail(std::string("the ") + (p == &source ? "source" : "target") + " is a semaphore");
  check_semaphore(e, s, semaphore, "count a copy in", true);
  if (from.shape != to.shape)
    e.fail("the source is " + to_string(from.shape) + " but the target is " + to_string(to.shape),
           "a copy does not change shapes: index both alike");
  if (from.dtype != to.dtype)
    e.fail("the source holds " + std::string(tessera::name(from.dtype)) + " but the target " +
               std::string(tessera::name(to.dtype)),
           "a copy does not convert: load, cast() and store");
  ir::Op op{.code = code, .operands = {from.ref, to.ref, s.ref}};
  if (clip) op.set(ir::Attr::clip, 1);
  for (const PlaceParts* p : {&from, &to, &s}) {
    append(op, *p, op.operands.size());
    op.operands.insert(op.operands.end(), p->starts.begin(), p->starts.end());
  }
  e.builder().set_loc(loc);
  e.builder().append(std::move(op));
}
}  // namespace

void semaphore_signal(Place semaphore, Operand increment, Loc loc) {
  count(Opcode::semaphore_signal, "semaphore_signal", "signal", semaphore, increment, loc);
}
void semaphore_wait(Place semaphore, Operand value, Loc loc) {
  count(Opcode::semaphore_wait, "semaphore_wait", "wait for", semaphore, value, loc);
}
void semaphore_wait(Place semaphore, Operand value, bool decrement, Loc loc) {
  semaphore_wait(semaphore, value, loc);
  if (!decrement) semaphore_signal(semaphore, value, loc);
}
Value semaphore_read(Place semaphore, Loc loc) {
  Emit e("semaphore_read", loc);
  const PlaceParts s = place_parts("semaphore_read", semaphore, loc, false, false);
  check_semaphore(e, s, semaphore, "read", semaphore.ref().memory_space() == ir::MemorySpace::dma_semaphore);
  ir::Op op{.code = Opcode::semaphore_read, .operands = {s.ref}};
  append(op, s, 1);
  op.operands.insert(op.operands.end(), s.starts.begin(), s.starts.end());
  e.builder().set_loc(loc);
  return e.wrap(e.builder().one(std::move(op)));
}

void AsyncCopy::start(Loc loc) const { copy(Opcode::copy_start, source_, target_, semaphore_, clip_, loc); }
void AsyncCopy::wait(Loc loc) const { copy(Opcode::copy_wait, source_, target_, semaphore_, clip_, loc); }

void sync_copy(Place source, Place target, Loc loc) {
  not_of_threads(Emit("sync_copy", loc));
  scope::run(
      {SemaphoreType::DMA()}, 1,
      [&](const std::vector<Ref>& refs) {
        const AsyncCopy c = make_async_copy(source, target, Place(refs[0], loc));
        c.start(loc);
        c.wait(loc);
        return control::Operands{};
      },
      loc);
}

void make_async_remote_copy(Place, Place, Place, Place, Operand, Loc loc) {
  throw SpecError("make_async_remote_copy: copies go to no other device: a kernel runs on one", loc,
                  "make_async_copy copies on this one");
}
void get_barrier_semaphore(Loc loc) {
  throw SpecError("get_barrier_semaphore: barrier semaphores wait for other devices, and a kernel runs on one", loc,
                  "SemaphoreType::REGULAR() counts signals within a kernel");
}

}  // namespace tessera
