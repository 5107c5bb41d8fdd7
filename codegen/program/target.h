// Target: all properties of a device that codegen uses, as a plain value. runtime/ fills one from Vulkan's limits and
// features; tests make their own (minimum_target: the least that Vulkan 1.3 with our required features guarantees).
// codegen never queries a device.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/program/choices.h"
#include "engine/base/dtype.h"

namespace tessera {

/// A product that the invocations of a subgroup make together: [m, k] of dtype a times [k, n] of b, added to [m, n] of
/// `sum` (VK_KHR_cooperative_matrix, of subgroup scope; accumulator and result have one dtype, and integers wrap).
struct MatrixShape {
  int32_t m = 0, n = 0, k = 0;
  DType a = DType::f16, b = DType::f16, sum = DType::f32;
  bool operator==(const MatrixShape&) const = default;
};
std::string to_string(const MatrixShape& s);  ///< "16x16x16 f16 f16 f32"

struct Target {
  std::string name = "minimum";
  /// Of a target for PTX: the module's .target and .version, "sm_90a" and "8.0". Empty for SPIR-V.
  std::string chip, ptx_version;
  // cpu: lavapipe and its like; decides the cost model, never what is legal
  enum class Kind : uint8_t { gpu, cpu } kind = Kind::gpu;

  /// A TPU by its chip's name, "v5e"; then nothing below counts (codegen/tpu/README.md). Empty: Vulkan.
  std::string tpu_chip;
  static Target tpu(const std::string& chip);

  // limits
  int32_t max_workgroup_size = 128;     // invocations, and along x
  int32_t max_workgroup_count = 65535;  // per dispatch dimension
  int64_t shared_bytes = 16384;         // maxComputeSharedMemorySize
  int32_t push_constant_bytes = 128;
  int64_t max_buffer_bytes = int64_t{1} << 27;
  int32_t min_subgroup_size = 4, max_subgroup_size = 4;
  /// The size codegen plans for. With can_require_subgroup_size a pipeline has full subgroups of it: because it insists
  /// on the size, or because the device has no other.
  int32_t subgroup_size = 4;
  bool can_require_subgroup_size = false;
  /// Loop iterations after which the driver silently leaves every loop of an invocation, all loops together; 0: no
  /// limit. Lavapipe before Mesa 25 has 65535 (seen on 22.3; 25.0 is free of it). codegen/loops.md says how it counts,
  /// and what is done about it.
  int64_t max_loop_iterations = 0;
  /// Results of a large dot that one invocation keeps (CPU drivers): 256 measured best on lavapipe before Mesa 25, 128
  /// since.
  int32_t dot_results = 128;
  // cores or multiprocessors, where known: how many workgroups keep the device busy
  int32_t compute_units = 1;
  /// Of the kernel that is compiled, by a tuning file.
  ScheduleChoices choices = {};

  // subgroup op classes in compute shaders; BASIC is always there
  bool subgroup_vote = false, subgroup_arithmetic = false, subgroup_ballot = false, subgroup_shuffle = false;

  /// A reduction or a scan over a subgroup is an instruction, and a shuffle several; where subgroup_arithmetic is.
  bool subgroup_reductions = false;

  // features
  bool int8 = false, int16 = false, int64 = false, float16 = false, float64 = false;
  bool int64_atomics = false;  // in buffers; of 32 bits they are always there
  // 8 and 16-bit loads and stores through buffer addresses; else by the words around them
  bool storage8 = false, storage16 = false;
  /// Neighbours in shared memory are accessed as vectors (VK_KHR_workgroup_memory_explicit_layout).
  bool shared_vectors = false;
  /// Loads and stores in buffers add a number of elements of 32 bits to a base, which they multiply; and nothing else.
  bool indexed_addresses = false;
  bool vulkan_memory_model_device_scope = false;
  /// Dot products of four elements of 8 bits packed in a word (shaderIntegerDotProduct); and whether the device has
  /// instructions for them: of signed elements, of unsigned ones, of both.
  bool integer_dot = false, dot4_signed = false, dot4_unsigned = false, dot4_mixed = false;
  std::vector<MatrixShape> matrices;  // in the device's order; empty: products are made by each invocation
  /// The first chunk of a product of matrices stands before the loop over the others, where its sums start from zeros.
  bool first_chunk_apart = false;
  /// Matrices of 16-bit elements come from shared memory by rows or by columns at one cost.
  bool transposes_matrices = false;
  /// What goes from an array to shared memory needs no registers on its way (cp.async).
  bool async_stores = false;
  /// Four subgroups may multiply factors together as shared memory has them (wgmma).
  bool warpgroup_matrices = false;
  /// Boxes of whole arrays go to shared memory by themselves, swizzled (cp.async.bulk.tensor).
  bool tensor_copies = false;
  /// Which elements of a matrix a lane holds is known, and what matrix_elements says (mma.sync, wgmma).
  bool matrix_lanes = false;
  /// The driver jumps over a branch that no invocation takes. Lavapipe from Mesa 25 on runs it, and loads there from
  /// addresses that are the same for all invocations (seen on 26.1).
  bool skips_branches = false;

  // float controls, per width: where false, conversions go through integer bits
  bool rte16 = false, rte32 = false, rte64 = false;
  bool preserve16 = false, preserve32 = false, preserve64 = false;  // SignedZeroInfNanPreserve
  /// Quotients and remainders of 64-bit integers come out wrong: NVIDIA's driver (580.159).
  bool wrong_int64_division = false;
  bool forgets_zeros = false;  // breaks that promise where a constant is 0: lavapipe (seen on 22.3) makes 0 of inf * 0

  bool operator==(const Target&) const = default;

  /// An NVIDIA chip by its architecture's name, "sm_80" or later. A CompileError lists those that there are.
  static Target nvidia(const std::string& chip);
  /// For a device of that compute capability whose driver knows CUDA up to `driver_version` (12040 is 12.4): the newest
  /// chip whose code both run, for PTX of an older chip runs on newer ones. None: there is no such chip.
  static std::optional<Target> nvidia_for(int major, int minor, int driver_version);
  /// Of a target for PTX: whether its devices read PTX of that chip; and the chip's place among all, from the oldest on
  /// (-1: there is no such chip).
  bool reads_ptx_of(const std::string& other) const;
  static int chip_number(const std::string& chip);
  /// The target with this name: "minimum", "lavapipe", "gpu", "nvidia:sm_90a", "tpu:v5e". A CompileError lists the
  /// names.
  static Target named(const std::string& name);
};

/// 16 KiB shared memory, 128 invocations, subgroups of 4 with BASIC ops only, no optional feature. All dtypes but f64
/// work there: 64-bit integers as two words, 8 and 16-bit elements within words of memory.
inline Target minimum_target() { return {}; }
/// What Debian 12's lavapipe reports (Mesa 22.3); a newer one differs in nothing that codegen needs.
Target lavapipe_target();
/// What a desktop GPU of the middle class reports, with 32 invocations to a subgroup: wide workgroups, all features. To
/// see what is chosen for one without having one.
Target gpu_target();
/// The same with matrices of 16x16x16: f16, bf16, i8, u8, f8e4m3fn, f8e5m2.
Target gpu_matrix_target();

}  // namespace tessera
