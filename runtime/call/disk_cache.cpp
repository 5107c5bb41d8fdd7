#include "runtime/call/disk_cache.h"

#include "codegen/program/program_file.h"
#include "runtime/submit/cache_file.h"
#include "tessera/build_id.h"

namespace tessera::disk_cache {

std::string key(const Target& target, std::string_view kernel) {
  const auto& [name, chip, ptx_version, kind, tpu_chip, max_workgroup_size, max_workgroup_count, shared_bytes,
               push_constant_bytes, max_buffer_bytes, min_subgroup_size, max_subgroup_size, subgroup_size,
               can_require_subgroup_size, max_loop_iterations, dot_results, compute_units, choices, subgroup_vote,
               subgroup_arithmetic, subgroup_ballot, subgroup_shuffle, subgroup_reductions, int8, int16, int64, float16,
               float64, int64_atomics, storage8, storage16, shared_vectors, indexed_addresses,
               vulkan_memory_model_device_scope, integer_dot, dot4_signed, dot4_unsigned, dot4_mixed, matrices,
               first_chunk_apart, transposes_matrices, async_stores, warpgroup_matrices, tensor_copies, matrix_lanes,
               skips_branches, wrong_int64_division, forgets_zeros, rte16, rte32, rte64, preserve16, preserve32,
               preserve64] = target;
  std::string k =
      std::string("build ") + kBuildId + "\ntarget " + name + " " + chip + " " + ptx_version + " " + tpu_chip + "\n";
  for (int64_t v :
       {int64_t{kind == Target::Kind::cpu}, int64_t{max_workgroup_size}, int64_t{max_workgroup_count}, shared_bytes,
        int64_t{push_constant_bytes}, max_buffer_bytes, int64_t{min_subgroup_size}, int64_t{max_subgroup_size},
        int64_t{subgroup_size}, max_loop_iterations, int64_t{dot_results}, int64_t{compute_units}})
    k += std::to_string(v) + " ";
  for (bool b : {can_require_subgroup_size,
                 subgroup_vote,
                 subgroup_arithmetic,
                 subgroup_ballot,
                 subgroup_shuffle,
                 subgroup_reductions,
                 int8,
                 int16,
                 int64,
                 float16,
                 float64,
                 int64_atomics,
                 storage8,
                 storage16,
                 shared_vectors,
                 indexed_addresses,
                 vulkan_memory_model_device_scope,
                 integer_dot,
                 dot4_signed,
                 dot4_unsigned,
                 dot4_mixed,
                 first_chunk_apart,
                 transposes_matrices,
                 async_stores,
                 warpgroup_matrices,
                 tensor_copies,
                 matrix_lanes,
                 skips_branches,
                 wrong_int64_division,
                 forgets_zeros,
                 rte16,
                 rte32,
                 rte64,
                 preserve16,
                 preserve32,
                 preserve64})
    k += b ? '1' : '0';
  for (const MatrixShape& s : matrices) k += " " + to_string(s);
  k += " " + to_string(choices);
  return k + "\n" + std::string(kernel);
}

std::optional<Program> read(const std::string& folder, std::string_view key) {
  const auto bytes = cache_file::read(folder, "program", key);
  if (!bytes) return std::nullopt;
  auto program = program_from_bytes(*bytes);
  if (!program) cache_file::say_broken(cache_file::path(folder, "program", key));
  return program;
}

void write(const std::string& folder, std::string_view key, const Program& program) {
  cache_file::write(folder, "program", key, program_to_bytes(program), "kernels are compiled in every process");
}

}  // namespace tessera::disk_cache
