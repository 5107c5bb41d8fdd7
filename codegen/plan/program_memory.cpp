#include "codegen/plan/program_memory.h"

#include <algorithm>
#include <string>

#include "engine/base/error.h"

namespace tessera::lowering {
namespace {
constexpr int64_t kBarrierBytes = 8, kAlignment = 128;  // each thread's arena begins in the first bank

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
}  // namespace

ProgramMemory program_memory(const ir::Kernel& k) {
  ProgramMemory m;
  const std::vector<ir::Value>& args = k.region(k.body).args;
  m.offset.assign(args.size(), -1);
  m.first_barrier.assign(args.size(), -1);
  if (!k.has_threads()) return m;
  for (size_t i = k.blocks.size(); i < args.size(); ++i) {
    const ir::Type& t = k.type(args[i]);
    if (!ir::is_barrier(t.space)) continue;
    m.first_barrier[i] = static_cast<int>(m.arrivals.size());
    m.arrivals.resize(m.arrivals.size() + static_cast<size_t>(num_elements(t.shape)),
                      static_cast<int32_t>(t.thread_traits().arrivals));
  }
  m.bytes = aligned(static_cast<int64_t>(m.arrivals.size()) * kBarrierBytes);
  for (size_t i = k.blocks.size(); i < args.size(); ++i) {
    const ir::Type& t = k.type(args[i]);
    if (t.space != ir::MemorySpace::smem) continue;
    m.offset[i] = m.bytes;
    m.bytes = aligned(m.bytes + num_elements(t.shape) * size_bytes(t.dtype));
  }
  return m;
}

Target target_of_thread(const ir::Kernel& k, const Target& target) {
  if (!k.has_threads()) return target;
  const int64_t threads = *k.grid.back().size.value();
  const ProgramMemory m = program_memory(k);
  Target one = target;
  const int64_t left = target.shared_bytes - m.bytes;
  if (left < 0) {
    std::string parts = std::to_string(m.arrivals.size()) + " barriers";
    for (size_t i = 0; i < m.offset.size(); ++i)
      if (m.offset[i] >= 0) parts += ", " + to_string(k.type(k.region(k.body).args[i]));
    throw CompileError(k.name + ": its threads have " + std::to_string(m.bytes) +
                           " bytes of shared memory in common, " + target.name + " has " +
                           std::to_string(target.shared_bytes),
                       k.loc, "they are " + parts);
  }
  one.shared_bytes = left / threads / kAlignment * kAlignment;
  one.max_workgroup_size = std::min(target.max_workgroup_size, kThreadSize);
  return one;
}

}  // namespace tessera::lowering
