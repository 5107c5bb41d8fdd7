// Targets between those that codegen/program/target.h names: each feature, class of subgroup operations and limit by
// itself, as devices may have them, and a few as none has (a dispatch of seven workgroups along a dimension), which the
// code must not notice.
#pragma once
#include "codegen/program/target.h"
#include "tests/support/generator/random.h"

namespace tessera::fuzz {

inline Target random_target(uint64_t seed) {
  Random r(seed);
  const auto maybe = [&] { return r.in(0, 1) == 1; };
  const auto one_of = [&](std::initializer_list<int32_t> v) {
    return *(v.begin() + r.in(0, static_cast<int64_t>(v.size()) - 1));
  };
  Target t;
  t.kind = maybe() ? Target::Kind::gpu : Target::Kind::cpu;
  t.max_workgroup_size = one_of({128, 256, 512, 1024});
  t.max_workgroup_count = one_of({65535, 65535, 7});
  t.shared_bytes = one_of({16384, 32768, 49152});
  t.push_constant_bytes = one_of({128, 256, 16});
  t.subgroup_size = one_of({1, 4, 8, 16, 32, 64, 128});
  t.can_require_subgroup_size = maybe();
  t.min_subgroup_size = maybe() ? t.subgroup_size : 1;
  t.max_subgroup_size = maybe() ? t.subgroup_size : 128;
  t.max_loop_iterations = one_of({0, 65535, 200});
  t.dot_results = one_of({128, 256});
  t.compute_units = one_of({1, 2, 32});
  t.subgroup_vote = maybe(), t.subgroup_arithmetic = maybe(), t.subgroup_ballot = maybe(), t.subgroup_shuffle = maybe();
  t.int8 = maybe(), t.int16 = maybe(), t.int64 = maybe(), t.float16 = maybe();
  t.int64_atomics = t.int64 && maybe();
  t.storage8 = maybe(), t.storage16 = maybe();
  t.vulkan_memory_model_device_scope = maybe();
  t.integer_dot = maybe();
  t.dot4_signed = t.integer_dot && maybe(), t.dot4_unsigned = t.integer_dot && maybe(),
  t.dot4_mixed = t.integer_dot && maybe();
  t.skips_branches = maybe();
  t.rte16 = maybe(), t.rte32 = maybe(), t.rte64 = maybe(), t.preserve16 = maybe(), t.preserve32 = maybe(),
  t.preserve64 = maybe(), t.forgets_zeros = maybe();
  t.wrong_int64_division = maybe();
  t.shared_vectors = maybe();
  // Any of these, on subgroups of any size: code that cannot use them does without.
  if (t.kind == Target::Kind::gpu && maybe()) {
    const int32_t m = one_of({4, 8, 16}), n = one_of({8, 16}), k = one_of({8, 16, 32});
    t.matrices = {{m, n, k, DType::f16, DType::f16, DType::f32},
                  {m, n, k, DType::bf16, DType::bf16, DType::f32},
                  {m, n, k, DType::i8, DType::i8, DType::i32},
                  {n, m, k, DType::u8, DType::u8, DType::u32}};
    t.transposes_matrices = maybe();
  }
  if (maybe()) {  // none makes a form legal
    t.choices.workgroup = one_of({0, 1, 32, 64, 256, 1024});
    t.choices.smaller = one_of({0, 0, 1, 2}), t.choices.registers = one_of({0, 0, 1, 2});
    t.choices.work = one_of({0, -3, -1, 1, 3}), t.choices.spread = one_of({0, -3, 3});
  }
  t.subgroup_reductions = maybe(), t.indexed_addresses = maybe(), t.first_chunk_apart = maybe();
  const auto say = [&](const char* what, int64_t v) { t.name += std::string(" ") + what + " " + std::to_string(v); };
  t.name = t.kind == Target::Kind::gpu ? "gpu" : "cpu";
  say("workgroup", t.max_workgroup_size), say("count", t.max_workgroup_count), say("shared", t.shared_bytes),
      say("push", t.push_constant_bytes);
  say("subgroup", t.subgroup_size), say("from", t.min_subgroup_size), say("to", t.max_subgroup_size),
      say("require", t.can_require_subgroup_size), say("loops", t.max_loop_iterations);
  say("arithmetic", t.subgroup_arithmetic), say("shuffle", t.subgroup_shuffle),
      say("reductions", t.subgroup_reductions), say("int8", t.int8), say("int16", t.int16), say("int64", t.int64),
      say("float16", t.float16);
  say("atomics", t.int64_atomics), say("storage8", t.storage8), say("storage16", t.storage16), say("rte16", t.rte16),
      say("rte32", t.rte32), say("rte64", t.rte64);
  say("preserve16", t.preserve16), say("preserve32", t.preserve32), say("preserve64", t.preserve64),
      say("skips", t.skips_branches);
  say("dots", t.dot4_signed), say("unsigned", t.dot4_unsigned), say("mixed", t.dot4_mixed);
  say("vectors", t.shared_vectors), say("indexed", t.indexed_addresses);
  for (const MatrixShape& s : t.matrices) t.name += " matrix " + to_string(s);
  if (t.transposes_matrices) t.name += " transposing";
  if (t.first_chunk_apart) t.name += " apart";
  if (t.choices != ScheduleChoices{}) t.name += " tuned " + to_string(t.choices);
  return t;
}

}  // namespace tessera::fuzz
