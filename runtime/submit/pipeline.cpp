#include "runtime/submit/pipeline.h"

#include <span>

#include "runtime/device/names.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline_file.h"

namespace tessera::vulkan {
namespace {

void fits(const Program& p, int64_t need, int64_t limit, const char* of_what, const std::string& device) {
  if (need > limit)
    throw CompileError(
        p.name + ": needs " + std::to_string(need) + of_what + " but " + device + " has " + std::to_string(limit),
        p.loc);
}

// FNV-1a, word by word.
uint64_t hash_words(std::span<const uint32_t> words, uint64_t h) {
  for (uint32_t word : words) h = (h ^ word) * 0x100000001b3u;
  return h;
}

// All that a pipeline is made of, for the key of its file; the code by two hashes, since what the driver keeps is
// checked by the driver.
std::string of_code(const Program& p) {
  std::string s = "push " + std::to_string(pushed_bytes(p)) + " subgroup " + std::to_string(p.required_subgroup_size) +
                  " code " + std::to_string(p.spirv.size());
  for (const uint64_t seed : {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u})
    s += " " + std::to_string(hash_words(p.spirv, seed));
  return s;
}

}  // namespace

void check_limits(const Program& p, const Target& t) {
  fits(p, p.shared_bytes, t.shared_bytes, " bytes of shared memory", t.name);
  fits(p, pushed_bytes(p), t.push_constant_bytes, " bytes of push constants", t.name);
  fits(p, p.workgroup_size, t.max_workgroup_size, " invocations per workgroup", t.name);
  const int32_t s = p.required_subgroup_size;
  if (s == 0) return;
  if (!t.can_require_subgroup_size || s < t.min_subgroup_size || s > t.max_subgroup_size || (s & (s - 1)) != 0)
    throw CompileError(p.name + ": needs subgroups of " + std::to_string(s) + " but " + t.name + " has " +
                           (t.can_require_subgroup_size
                                ? std::to_string(t.min_subgroup_size) + " to " + std::to_string(t.max_subgroup_size)
                                : "no way to require a size"),
                       p.loc);
  if (p.workgroup_size % s != 0)
    throw InternalError(p.name + ": a workgroup of " + std::to_string(p.workgroup_size) +
                            " does not consist of full subgroups of " + std::to_string(s),
                        p.loc);
}

uint32_t pushed_bytes(const Program& p) { return p.indirect_table ? 8 : static_cast<uint32_t>(p.push_bytes()); }

uint64_t Pipeline::hash(const Program& p) {
  // of the code, spread over it: this is done at every launch, and is_for() compares the rest
  constexpr size_t kWords = 64;
  uint32_t words[kWords + 3] = {pushed_bytes(p), static_cast<uint32_t>(p.required_subgroup_size),
                                static_cast<uint32_t>(p.spirv.size())};
  for (size_t i = 0; !p.spirv.empty() && i < kWords; ++i) words[3 + i] = p.spirv[i * p.spirv.size() / kWords];
  return hash_words(words, 0xcbf29ce484222325u);
}

bool Pipeline::is_for(const Program& p) const {
  return spirv_ == p.spirv && push_bytes_ == pushed_bytes(p) && subgroup_size_ == p.required_subgroup_size;
}

Pipeline::Pipeline(Context& context, const Program& p)
    : context_(context), spirv_(p.spirv), push_bytes_(pushed_bytes(p)), subgroup_size_(p.required_subgroup_size) {
  if (!p.ptx.empty()) throw DeviceError(p.name + ": its code is PTX, which " + context.name() + " does not run", p.loc);
  const DeviceTable& vk = context.vk();
  VkDevice device = context.handle();

  VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes_};
  VkPipelineLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.pushConstantRangeCount = push_bytes_ ? 1 : 0;
  layout.pPushConstantRanges = &range;
  const auto failed = [&](const char* call, VkResult r) {
    return DeviceError(p.name + ": " + call + " on " + context.name() + ": " + to_string(r), p.loc);
  };
  if (const VkResult r = vk.vkCreatePipelineLayout(device, &layout, vk.host, &layout_); r < 0)
    throw failed("vkCreatePipelineLayout", r);

  const std::string name = has_names(vk) ? with_line(p.name, p.loc) : "";
  name_object(vk, device, layout_, name);
  VkShaderModule module = VK_NULL_HANDLE;
  VkShaderModuleCreateInfo code{};
  code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  code.codeSize = spirv_.size() * sizeof(uint32_t);
  code.pCode = spirv_.data();
  VkResult r = vk.vkCreateShaderModule(device, &code, vk.host, &module);
  const char* call = "vkCreateShaderModule";
  if (r >= 0) {
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{};
    size.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
    size.requiredSubgroupSize = static_cast<uint32_t>(subgroup_size_);
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.layout = layout_;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module;
    info.stage.pName = "main";
    if (subgroup_size_) {
      // A device of one size may have no way to ask for it.
      const Target& t = context.probe().info.target;
      if (t.min_subgroup_size != t.max_subgroup_size) info.stage.pNext = &size;
      info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    // Whether a call is cut into slices is known only when it comes, and a second pipeline would be compiled anew.
    info.flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT;
    name_object(vk, device, module, name);
    call = "vkCreateComputePipelines";
    PipelineFile file(vk, device, context.probe().driver, of_code(p), context.hosts_pipeline_cache());
    r = vk.vkCreateComputePipelines(device, file.handle(), 1, &info, vk.host, &pipeline_);
    vk.vkDestroyShaderModule(device, module, vk.host);
    if (r >= 0) name_object(vk, device, pipeline_, name);
    if (r >= 0) file.store();
    from_disk_ = file.from_disk();
  }
  if (r < 0) {
    vk.vkDestroyPipelineLayout(device, layout_, vk.host);
    throw failed(call, r);
  }
}

Pipeline::~Pipeline() {
  context_.vk().vkDestroyPipeline(context_.handle(), pipeline_, context_.vk().host);
  context_.vk().vkDestroyPipelineLayout(context_.handle(), layout_, context_.vk().host);
}

}  // namespace tessera::vulkan
