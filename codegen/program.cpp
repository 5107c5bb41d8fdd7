#include "codegen/program.h"

#include "codegen/target.h"

namespace tessera {

int64_t Program::push_bytes() const {
  int64_t n = 8 * static_cast<int64_t>(args.size()) + (scratch_bytes > 0 ? 8 : 0);
  for (bool wide : extent_is_64) n += wide ? 8 : 4;
  return n;
}

Target lavapipe_target() {
  Target t;
  t.name = "llvmpipe";
  t.kind = Target::Kind::cpu;
  t.max_workgroup_size = 256;  // 32 subgroups: the limit that comes with requiring their size; 1024 without it
  t.shared_bytes = 32768;
  t.push_constant_bytes = 128;
  t.min_subgroup_size = t.max_subgroup_size = t.subgroup_size = 8;
  t.can_require_subgroup_size = true;
  t.compute_units = 2;
  t.max_loop_iterations = 65535;
  t.dot_results = 256;
  t.subgroup_vote = t.subgroup_arithmetic = t.subgroup_ballot = t.subgroup_shuffle = true;
  t.int8 = t.int16 = t.int64 = t.float16 = t.float64 = true;
  t.storage8 = t.storage16 = true;
  t.vulkan_memory_model_device_scope = true;
  t.rte16 = t.rte32 = t.rte64 = true;
  t.preserve16 = t.preserve32 = t.preserve64 = true;
  return t;
}

}  // namespace tessera
