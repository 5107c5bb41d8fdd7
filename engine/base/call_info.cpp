#include "engine/base/call_info.h"

#include <algorithm>
#include <charconv>

namespace tessera {

std::string to_string(const CostEstimate& c) {
  std::string s = to_string(c.flops) + " flops, " + to_string(c.transcendentals) + " transcendentals, " +
                  to_string(c.bytes_accessed) + " bytes accessed";
  if (c.remote_bytes_transferred != Extent(0))
    s += ", " + to_string(c.remote_bytes_transferred) + " bytes to other devices";
  return s;
}

namespace ir {
namespace {
enum class Kind : uint8_t { integer, boolean, text };
struct Known {
  std::string_view backend, name;
  Kind kind;
};
// The fields of Pallas's dataclasses, but dimension_semantics.
constexpr Known kKnown[] = {
    {"mosaic_tpu", "allow_input_fusion", Kind::text},
    {"mosaic_tpu", "vmem_limit_bytes", Kind::integer},
    {"mosaic_tpu", "collective_id", Kind::integer},
    {"mosaic_tpu", "has_side_effects", Kind::boolean},
    {"mosaic_tpu", "flags", Kind::text},
    {"mosaic_tpu", "internal_scratch_in_bytes", Kind::integer},
    {"mosaic_tpu", "serialization_format", Kind::integer},
    {"mosaic_tpu", "disable_bounds_checks", Kind::boolean},
    {"mosaic_tpu", "disable_semaphore_checks", Kind::boolean},
    {"mosaic_tpu", "skip_device_barrier", Kind::boolean},
    {"mosaic_tpu", "allow_collective_id_without_custom_barrier", Kind::boolean},
    {"mosaic_tpu", "shape_invariant_numerics", Kind::boolean},
    {"mosaic_tpu", "use_tc_tiling_on_sc", Kind::boolean},
    {"mosaic_tpu", "needs_layout_passes", Kind::boolean},
    {"mosaic_tpu", "fuse_transposed_lhs_in_matmul", Kind::boolean},
    {"triton", "num_warps", Kind::integer},
    {"triton", "num_stages", Kind::integer},
    {"mosaic_gpu", "approx_math", Kind::boolean},
    {"mosaic_gpu", "max_concurrent_steps", Kind::integer},
    {"mosaic_gpu", "delay_release", Kind::integer},
    {"mosaic_gpu", "unsafe_no_auto_barriers", Kind::boolean},
    {"mosaic_gpu", "reduction_scratch_bytes", Kind::integer},
    {"mosaic_gpu", "profile_space", Kind::integer},
    {"mosaic_gpu", "profile_dir", Kind::text},
    {"mosaic_gpu", "profile_trace_scope", Kind::text},
    {"mosaic_gpu", "lowering_semantics", Kind::text},
};

bool is_natural(std::string_view s) {
  int64_t v = -1;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  return error == std::errc() && end == s.data() + s.size() && v >= 0;
}
}  // namespace

const std::vector<std::string_view>& compiler_param_backends() {
  static const std::vector<std::string_view> all{"mosaic_tpu", "triton", "mosaic_gpu"};
  return all;
}

std::optional<std::string> problem(const CompilerParam& p) {
  const auto& backends = compiler_param_backends();
  if (std::find(backends.begin(), backends.end(), p.backend) == backends.end())
    return "no backend " + p.backend + " has compiler parameters: mosaic_tpu, triton and mosaic_gpu have";
  const auto it = std::find_if(std::begin(kKnown), std::end(kKnown),
                               [&](const Known& k) { return k.backend == p.backend && k.name == p.name; });
  if (it == std::end(kKnown)) {
    std::string names;
    for (const Known& k : kKnown)
      if (k.backend == p.backend) names += (names.empty() ? "" : ", ") + std::string(k.name);
    return "there is no compiler parameter " + p.name + " of " + p.backend + ": it has " + names;
  }
  const std::string place = "compiler parameter " + p.name + " of " + p.backend + " is ";
  if (it->kind == Kind::integer && !is_natural(p.value))
    return place + "\"" + p.value + "\", not an integer of at least 0";
  if (it->kind == Kind::boolean && p.value != "true" && p.value != "false")
    return place + "\"" + p.value + "\", not true or false";
  return std::nullopt;
}

const CompilerParam* CallInfo::compiler_param(std::string_view backend, std::string_view name) const {
  const auto it = std::find_if(compiler_params.begin(), compiler_params.end(),
                               [&](const CompilerParam& p) { return p.backend == backend && p.name == name; });
  return it == compiler_params.end() ? nullptr : &*it;
}

std::string to_json(const std::map<std::string, std::string>& metadata) {
  const auto quoted = [](const std::string& s) {
    std::string out = "\"";
    for (const char c : s) {
      if (c == '"' || c == '\\') out += '\\', out += c;
      else if (c == '\n') out += "\\n";
      else if (c == '\t') out += "\\t";
      else if (static_cast<unsigned char>(c) < ' ') {
        constexpr char kDigits[] = "0123456789abcdef";
        out += "\\u00", out += kDigits[c >> 4], out += kDigits[c & 15];
      } else out += c;
    }
    return out + "\"";
  };
  std::string s = "{";
  for (const auto& [key, value] : metadata) s += (s.size() > 1 ? ", " : "") + quoted(key) + ": " + quoted(value);
  return s + "}";
}

}  // namespace ir
}  // namespace tessera
