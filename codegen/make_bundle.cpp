#include "codegen/make_bundle.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <spirv/unified1/spirv.hpp>

#include "codegen/compile.h"
#include "codegen/program/program_file.h"
#include "engine/base/function.h"
#include "engine/base/in_parallel.h"

namespace tessera {
namespace {

// The feature of Target that a capability is, or null: one that every device has that Tessera runs on.
const char* feature_of(uint32_t capability, const std::string& kernel) {
  switch (capability) {
    case spv::CapabilityShader:
    case spv::CapabilityPhysicalStorageBufferAddresses:
    case spv::CapabilityVulkanMemoryModel:
    case spv::CapabilityGroupNonUniform:
    // these two by width: execution modes say which
    case spv::CapabilityRoundingModeRTE:
    case spv::CapabilitySignedZeroInfNanPreserve:
    // CooperativeMatrixKHR, BFloat16TypeKHR, BFloat16CooperativeMatrixKHR, Float8EXT, Float8CooperativeMatrixEXT:
    // shapes say which
    case 6022:
    case 5116:
    case 5118:
    case 4212:
    case 4213: return nullptr;
    case spv::CapabilityFloat16: return "float16";
    case spv::CapabilityFloat64: return "float64";
    case spv::CapabilityInt8: return "int8";
    case spv::CapabilityInt16: return "int16";
    case spv::CapabilityInt64: return "int64";
    case spv::CapabilityInt64Atomics: return "int64_atomics";
    case spv::CapabilityStorageBuffer8BitAccess: return "storage8";
    case spv::CapabilityStorageBuffer16BitAccess: return "storage16";
    case spv::CapabilityDotProduct:
    case spv::CapabilityDotProductInput4x8BitPacked: return "integer_dot";
    case spv::CapabilityWorkgroupMemoryExplicitLayoutKHR: return "shared_vectors";
    case spv::CapabilityGroupNonUniformVote: return "subgroup_vote";
    case spv::CapabilityGroupNonUniformArithmetic: return "subgroup_arithmetic";
    case spv::CapabilityGroupNonUniformBallot: return "subgroup_ballot";
    case spv::CapabilityGroupNonUniformShuffle: return "subgroup_shuffle";
    case spv::CapabilityVulkanMemoryModelDeviceScope: return "vulkan_memory_model_device_scope";
    default:
      throw InternalError(kernel + ": its code declares the capability " + std::to_string(capability) +
                          ", for which make_bundle.cpp has no feature");
  }
}

// The shapes of the products of matrices in a module (SPV_KHR_cooperative_matrix), as Target has them.
class UsedMatrices {
 public:
  void instruction(const uint32_t* w) {
    const uint32_t op = w[0] & 0xffff, length = w[0] >> 16;
    constexpr uint32_t kType = 4456, kLoad = 4457, kMultiplyAdd = 4459, kE4m3 = 4214;
    if (op == spv::OpTypeFloat)
      scalars_[w[1]] = w[2] == 32                    ? DType::f32
                       : w[2] == 16                  ? length > 3 ? DType::bf16 : DType::f16
                       : length > 3 && w[3] == kE4m3 ? DType::f8e4m3fn
                                                     : DType::f8e5m2;
    else if (op == spv::OpTypeInt)
      scalars_[w[1]] = w[2] == 8 ? w[3] ? DType::i8 : DType::u8 : w[3] ? DType::i32 : DType::u32;
    else if (op == spv::OpConstant) constants_[w[2]] = w[3];
    else if (op == kType) types_[w[1]] = {scalars_[w[2]], constants_[w[4]], constants_[w[5]]};
    else if (op == kLoad) of_[w[2]] = types_[w[1]];
    else if (op == kMultiplyAdd) {
      const Matrix &a = of_[w[3]], &b = of_[w[4]], &c = types_[w[1]];
      const auto size = [](uint32_t n) { return static_cast<int32_t>(n); };
      names.insert("matrix " + to_string(MatrixShape{size(a.rows), size(b.cols), size(a.cols), a.of, b.of, c.of}));
    }
  }
  std::set<std::string> names;

 private:
  struct Matrix {
    DType of = DType::f32;
    uint32_t rows = 0, cols = 0;
  };
  std::map<uint32_t, DType> scalars_;
  std::map<uint32_t, uint32_t> constants_;
  std::map<uint32_t, Matrix> types_, of_;
};

}  // namespace

Needs needs_of(const Program& p, const Target& target) {
  Needs n;
  n.workgroup_size = p.workgroup_size;
  n.required_subgroup_size = p.required_subgroup_size;
  n.shared_bytes = p.shared_bytes;
  if (!p.ptx.empty()) {
    n.features = {"ptx " + target.chip};
    // Products of f8 want a newer driver than the chip does (codegen/nvidia).
    if (p.ptx.find(".version " + target.ptx_version + "\n") == std::string::npos)
      n.features.emplace_back("products of f8");
    return n;
  }
  std::set<std::string> features;
  bool subgroups = false, loops = false;
  UsedMatrices matrices;
  for (size_t at = 5; at < p.spirv.size(); at += p.spirv[at] >> 16) {
    const uint32_t op = p.spirv[at] & 0xffff;
    if (op == spv::OpCapability) {
      if (const char* f = feature_of(p.spirv[at + 1], p.name)) features.insert(f);
      subgroups = subgroups || p.spirv[at + 1] == spv::CapabilityGroupNonUniform;
    } else if (op == spv::OpExecutionMode && p.spirv[at + 2] == spv::ExecutionModeRoundingModeRTE) {
      features.insert("rte" + std::to_string(p.spirv[at + 3]));
    } else if (op == spv::OpExecutionMode && p.spirv[at + 2] == spv::ExecutionModeSignedZeroInfNanPreserve) {
      features.insert("preserve" + std::to_string(p.spirv[at + 3]));
    }
    loops = loops || op == spv::OpLoopMerge;
    matrices.instruction(&p.spirv[at]);
  }
  if (target.skips_branches) features.insert("skips_branches");
  features.merge(matrices.names);
  n.features = {features.begin(), features.end()};
  n.push_constant_bytes = p.indirect_table ? 8 : static_cast<int32_t>(p.push_bytes());
  n.most_subgroup_size = subgroups && p.required_subgroup_size == 0 ? target.max_subgroup_size : 0;
  // Code whose number of workgroups is known and within the target's limit does not test for surplus ones
  // (codegen/rules.md).
  if (const auto groups = p.num_units.value(); groups && *groups <= target.max_workgroup_count)
    n.workgroup_count = static_cast<int32_t>(std::max<int64_t>(*groups, 1));
  n.loop_iterations = loops ? target.max_loop_iterations : -1;
  return n;
}

MadeBundle make_bundle(std::span<const BundleSource> sources, std::span<const Target> targets, int threads,
                       const Function<void(size_t, const std::string&)>& progress, bool strict,
                       const Function<ScheduleChoices(const Target&, const ir::Kernel&)>& choices) {
  MadeBundle made;
  std::vector<BundleKernel>& kernels = made.file.kernels;
  kernels.resize(sources.size());
  std::vector<std::exception_ptr> failures(sources.size());
  std::vector<std::vector<std::string>> left_out(sources.size());
  CompileOptions options;
  options.strict = strict;
  const auto make = [&](size_t i) {
    const BundleSource& s = sources[i];
    BundleKernel& k = kernels[i];
    k.name = s.kernel.name, k.loc = s.kernel.loc, k.arguments = s.arguments;
    for (const Target& t : targets) {
      try {
        Target tuned = t;
        if (choices) tuned.choices = choices(t, s.kernel);
        const Program p = compile(s.kernel, tuned, options);
        BundleVariant variant{t.name, t.kind == Target::Kind::cpu, needs_of(p, t), program_to_bytes(p)};
        // Without products it would be what it is for "gpu".
        const bool same = t.name == gpu_matrix_target().name && !k.variants.empty() &&
                          std::none_of(variant.needs.features.begin(), variant.needs.features.end(),
                                       [](const std::string& f) { return f.starts_with("matrix "); });
        if (!same) k.variants.push_back(std::move(variant));
      } catch (const CompileError& e) {
        if (&t == &targets.back() && k.variants.empty()) throw;
        left_out[i].push_back(e.what());
      }
    }
  };
  // Kept here, so that others go on and the first in the order given is thrown.
  const auto work = [&](size_t i) {
    try {
      make(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  in_parallel(sources.size(), threads, work, [&](size_t done, size_t i) {
    if (progress && !failures[i]) progress(done, sources[i].kernel.name);
  });
  for (const std::exception_ptr& f : failures)
    if (f) std::rethrow_exception(f);
  for (auto& texts : left_out) made.left_out.insert(made.left_out.end(), texts.begin(), texts.end());
  return made;
}

}  // namespace tessera
