#include "engine/call/compiler_params.h"

#include <algorithm>
#include <string_view>

namespace tessera {

BackendCompilerParams::BackendCompilerParams() = default;
BackendCompilerParams::BackendCompilerParams(std::nullopt_t) {}
BackendCompilerParams::BackendCompilerParams(CompilerParams p) : given_{{"vulkan", std::move(p)}} {}
BackendCompilerParams::BackendCompilerParams(tpu::CompilerParams p) : given_{{"mosaic_tpu", std::move(p)}} {}
BackendCompilerParams::BackendCompilerParams(triton::CompilerParams p) : given_{{"triton", std::move(p)}} {}
BackendCompilerParams::BackendCompilerParams(mosaic_gpu::CompilerParams p) : given_{{"mosaic_gpu", std::move(p)}} {}
BackendCompilerParams::BackendCompilerParams(std::map<std::string, One> p) : given_(p.begin(), p.end()) {}
BackendCompilerParams::BackendCompilerParams(std::initializer_list<std::pair<const std::string, One>> p)
    : given_(p.begin(), p.end()) {}
BackendCompilerParams::BackendCompilerParams(const BackendCompilerParams&) = default;
BackendCompilerParams::BackendCompilerParams(BackendCompilerParams&&) noexcept = default;
BackendCompilerParams& BackendCompilerParams::operator=(const BackendCompilerParams&) = default;
BackendCompilerParams& BackendCompilerParams::operator=(BackendCompilerParams&&) noexcept = default;
BackendCompilerParams::~BackendCompilerParams() = default;

}  // namespace tessera

namespace tessera::spec {
namespace {

class Reader {
 public:
  explicit Reader(size_t rank) : rank_(rank) {}

  ReadCompilerParams run(const BackendCompilerParams& params) {
    for (const auto& [backend, one] : params.given()) {
      backend_ = backend;
      if (std::count_if(params.given().begin(), params.given().end(),
                        [&](const auto& p) { return p.first == backend_; }) > 1)
        throw CompilerParamsProblem{"backend \"" + backend + "\" is given twice", {}};
      constexpr std::string_view kBackends[] = {"vulkan", "mosaic_tpu", "triton", "mosaic_gpu"};  // as in the variant
      const auto known = std::find(std::begin(kBackends), std::end(kBackends), backend);
      if (known == std::end(kBackends))
        throw CompilerParamsProblem{"backend \"" + backend + "\" is unknown",
                                    "\"vulkan\", \"mosaic_tpu\", \"triton\" and \"mosaic_gpu\" are known"};
      if (const auto meant = static_cast<size_t>(known - std::begin(kBackends)); meant != one.index())
        throw CompilerParamsProblem{
            "backend \"" + backend + "\" has the parameters of \"" + std::string(kBackends[one.index()]) + "\"", {}};
      std::visit([&](const auto& p) { read(p); }, one);
    }
    // Empty: in order. Tessera's own say it alone; else an axis is parallel where every backend's contract makes it so.
    bool first = true;
    for (const auto& [backend, axes] : semantics_) {
      if (own_ && backend != "vulkan") continue;
      std::vector<bool> all = axes.empty() ? std::vector<bool>(rank_, false) : axes;
      for (size_t a = 0; a < rank_ && !first; ++a) all[a] = all[a] && out_.parallel[a];
      out_.parallel = std::move(all);
      first = false;
    }
    return std::move(out_);
  }

 private:
  /// dimension_semantics; `parallel` and `in_order` are the words that it may have.
  void axes(const std::vector<std::string>& given, const std::vector<std::string_view>& parallel,
            std::string_view in_order, bool otherwise) {
    std::vector<bool> out;
    if (!given.empty() && given.size() != rank_)
      throw CompilerParamsProblem{"dimension_semantics has " + std::to_string(given.size()) +
                                      (given.size() == 1 ? " entry" : " entries") + " but the grid has " +
                                      std::to_string(rank_) + (rank_ == 1 ? " axis" : " axes"),
                                  {}};
    for (const std::string& s : given) {
      const bool is_parallel = std::find(parallel.begin(), parallel.end(), s) != parallel.end();
      if (!is_parallel && s != in_order) {
        std::string known;
        for (const std::string_view p : parallel) known += (known.empty() ? "\"" : ", \"") + std::string(p) + "\"";
        throw CompilerParamsProblem{"dimension_semantics \"" + s + "\" is unknown",
                                    known + " and \"" + std::string(in_order) + "\" are known"};
      }
      out.push_back(is_parallel);
    }
    if (given.empty() && otherwise) out.assign(rank_, true);
    semantics_.emplace_back(backend_, std::move(out));
  }
  void note(const char* name, std::string value) {
    ir::CompilerParam p{backend_, name, std::move(value)};
    if (auto wrong = ir::problem(p)) throw CompilerParamsProblem{std::move(*wrong), {}};
    out_.others.push_back(std::move(p));
  }
  void note(const char* name, const std::optional<int64_t>& v) {
    if (v) note(name, std::to_string(*v));
  }
  void note(const char* name, const std::optional<bool>& v) {
    if (v) note(name, std::string(*v ? "true" : "false"));
  }
  void note(const char* name, const std::optional<std::string>& v) {
    if (v) note(name, *v);
  }

  void read(const CompilerParams& p) {
    own_ = true;
    axes(p.dimension_semantics, {"parallel"}, "arbitrary", false);
    out_.allow_float_atomics = p.allow_float_atomics;
  }
  void read(const tpu::CompilerParams& p) {
    axes(p.dimension_semantics, {"parallel", "core_parallel", "subcore_parallel"}, "arbitrary", false);
    if (p.allow_input_fusion) {
      std::string list;
      for (const bool b : *p.allow_input_fusion) list += (list.empty() ? "" : ", ") + std::string(b ? "true" : "false");
      note("allow_input_fusion", std::move(list));
    }
    note("vmem_limit_bytes", p.vmem_limit_bytes);
    note("collective_id", p.collective_id);
    note("has_side_effects", p.has_side_effects);
    if (!p.flags.empty()) {
      std::string list;
      for (const auto& [name, value] : p.flags) list += (list.empty() ? "" : ", ") + name + "=" + value;
      note("flags", std::move(list));
    }
    note("internal_scratch_in_bytes", p.internal_scratch_in_bytes);
    note("serialization_format", p.serialization_format);
    note("disable_bounds_checks", p.disable_bounds_checks);
    note("disable_semaphore_checks", p.disable_semaphore_checks);
    note("skip_device_barrier", p.skip_device_barrier);
    note("allow_collective_id_without_custom_barrier", p.allow_collective_id_without_custom_barrier);
    note("shape_invariant_numerics", p.shape_invariant_numerics);
    note("use_tc_tiling_on_sc", p.use_tc_tiling_on_sc);
    note("needs_layout_passes", p.needs_layout_passes);
    note("fuse_transposed_lhs_in_matmul", p.fuse_transposed_lhs_in_matmul);
  }
  void read(const triton::CompilerParams& p) {
    axes({}, {}, {}, true);
    if (p.num_warps && *p.num_warps < 1)
      throw CompilerParamsProblem{"num_warps is " + std::to_string(*p.num_warps), {}};
    note("num_warps", p.num_warps);
    note("num_stages", p.num_stages);
  }
  void read(const mosaic_gpu::CompilerParams& p) {
    if (p.profile_space.value_or(0) != 0 && p.profile_dir.value_or("").empty())
      throw CompilerParamsProblem{"profile_space is given without profile_dir", "give both or neither"};
    if (p.profile_space.value_or(0) == 0 && !p.profile_dir.value_or("").empty())
      throw CompilerParamsProblem{"profile_dir is given without profile_space", "give both or neither"};
    axes(p.dimension_semantics, {"parallel"}, "sequential", true);
    note("approx_math", p.approx_math);
    note("max_concurrent_steps", p.max_concurrent_steps);
    note("delay_release", p.delay_release);
    note("unsafe_no_auto_barriers", p.unsafe_no_auto_barriers);
    note("reduction_scratch_bytes", p.reduction_scratch_bytes);
    note("profile_space", p.profile_space);
    note("profile_dir", p.profile_dir);
    note("profile_trace_scope", p.profile_trace_scope);
    note("lowering_semantics", p.lowering_semantics);
  }

  size_t rank_;
  std::string backend_;
  bool own_ = false;
  std::vector<std::pair<std::string, std::vector<bool>>> semantics_;
  ReadCompilerParams out_;
};
}  // namespace

ReadCompilerParams read(const BackendCompilerParams& params, size_t grid_rank) { return Reader(grid_rank).run(params); }

}  // namespace tessera::spec
