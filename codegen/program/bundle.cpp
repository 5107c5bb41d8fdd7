#include "codegen/program/bundle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <tuple>

#include "codegen/program/program_file.h"
#include "engine/base/plural.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers of a bundle are little-endian");

constexpr std::string_view kMagic = "TESSERA\n";

struct Header {
  uint32_t version = kBundleVersion, zero = 0;
  uint64_t bytes = 0, checksum = 0, layout = 0;  // the layout of Programs (program_layout()) that wrote it
};
static_assert(sizeof(Header) == 32);

// Eight bytes at a time: a bundle is read whole before its first kernel runs. Each step is a bijection of the sum, so
// that no single damage is missed.
uint64_t checksum(std::string_view s, uint64_t seed) {
  uint64_t h = seed ^ s.size();
  while (!s.empty()) {
    uint64_t word = 0;
    const size_t n = std::min(s.size(), sizeof word);
    std::memcpy(&word, s.data(), n);
    s.remove_prefix(n);
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return h;
}

constexpr const char* kMakeAgain = "make it again with this version's tessera bundle";

// Names of features and their places in Target, in order.
struct Feature {
  const char* name;
  bool Target::* member;
};
constexpr Feature kFeatures[] = {{"float16", &Target::float16},
                                 {"float64", &Target::float64},
                                 {"int16", &Target::int16},
                                 {"integer_dot", &Target::integer_dot},
                                 {"int64", &Target::int64},
                                 {"int64_atomics", &Target::int64_atomics},
                                 {"int8", &Target::int8},
                                 {"preserve16", &Target::preserve16},
                                 {"preserve32", &Target::preserve32},
                                 {"preserve64", &Target::preserve64},
                                 {"rte16", &Target::rte16},
                                 {"rte32", &Target::rte32},
                                 {"rte64", &Target::rte64},
                                 {"shared_vectors", &Target::shared_vectors},
                                 {"storage16", &Target::storage16},
                                 {"storage8", &Target::storage8},
                                 {"skips_branches", &Target::skips_branches},
                                 {"subgroup_arithmetic", &Target::subgroup_arithmetic},
                                 {"subgroup_ballot", &Target::subgroup_ballot},
                                 {"subgroup_shuffle", &Target::subgroup_shuffle},
                                 {"subgroup_vote", &Target::subgroup_vote},
                                 {"vulkan_memory_model_device_scope", &Target::vulkan_memory_model_device_scope}};

std::string listed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& t : texts) all += (all.empty() ? "" : ", ") + t;
  return all;
}

constexpr std::string_view kPtx = "ptx ";
/// The chip that the code, which is PTX, is for; else nothing.
std::string chip_of(const Needs& n) {
  for (const std::string& f : n.features)
    if (f.starts_with(kPtx)) return f.substr(kPtx.size());
  return "";
}
bool multiplies_f8(const MatrixShape& s) { return is_float(s.a) && bits(s.a) == 8; }

}  // namespace

std::vector<std::string> missing(const Needs& n, const Target& device) {
  std::vector<std::string> lacks;
  const std::string chip = chip_of(n);
  if (chip.empty() != device.chip.empty()) return {chip.empty() ? "Vulkan" : "NVIDIA's driver, for PTX of " + chip};
  if (!chip.empty() && !device.reads_ptx_of(chip)) lacks.push_back("a chip that reads PTX of " + chip);
  for (const std::string& feature : n.features) {
    if (feature.starts_with(kPtx)) continue;
    bool has =
        feature == "products of f8" && std::any_of(device.matrices.begin(), device.matrices.end(), multiplies_f8);
    for (const Feature& f : kFeatures) has = has || (feature == f.name && device.*f.member);
    for (const MatrixShape& s : device.matrices) has = has || feature == "matrix " + to_string(s);
    if (!has) lacks.push_back(feature);
  }
  const auto least = [&](int64_t need, int64_t limit, const std::string& of_what) {
    if (need > limit) lacks.push_back(std::to_string(need) + " " + of_what + " (it has " + std::to_string(limit) + ")");
  };
  least(n.workgroup_size, device.max_workgroup_size, "invocations per workgroup");
  least(n.shared_bytes, device.shared_bytes, "bytes of shared memory");
  least(n.push_constant_bytes, device.push_constant_bytes, "bytes of push constants");
  least(n.workgroup_count, device.max_workgroup_count, "workgroups in a row");
  if (const int32_t s = n.required_subgroup_size;
      s != 0 && (!device.can_require_subgroup_size || s < device.min_subgroup_size || s > device.max_subgroup_size))
    lacks.push_back("subgroups of " + std::to_string(s) + " (it has " +
                    (device.can_require_subgroup_size
                         ? std::to_string(device.min_subgroup_size) + " to " + std::to_string(device.max_subgroup_size)
                         : "no way to require a size") +
                    ")");
  if (n.most_subgroup_size != 0 && device.max_subgroup_size > n.most_subgroup_size)
    lacks.push_back("subgroups of at most " + std::to_string(n.most_subgroup_size) + " (it has up to " +
                    std::to_string(device.max_subgroup_size) + ")");
  if (device.max_loop_iterations != 0 && n.loop_iterations >= 0 &&
      (n.loop_iterations == 0 || n.loop_iterations > device.max_loop_iterations))
    lacks.push_back("loops without end (it leaves them after " + std::to_string(device.max_loop_iterations) +
                    " iterations)");
  return lacks;
}

const BundleVariant& best_variant(const BundleKernel& k, const Target& device, const std::string& name) {
  const bool cpu = device.kind == Target::Kind::cpu;
  const BundleVariant* best = nullptr;
  std::tuple<bool, int, bool, bool, size_t, int32_t> rank;
  std::string lacks;
  for (const BundleVariant& v : k.variants) {
    const std::vector<std::string> missed = missing(v.needs, device);
    if (!missed.empty()) {
      lacks += (lacks.empty() ? "" : "; ") + v.target + " needs " + listed(missed);
      continue;
    }
    const std::tuple own(v.target == device.name, Target::chip_number(chip_of(v.needs)), v.cpu == cpu,
                         v.needs.required_subgroup_size == device.subgroup_size, v.needs.features.size(),
                         v.needs.workgroup_size);
    if (!best || own > rank) best = &v, rank = own;
  }
  if (!best)
    throw CompileError(name + ": " + k.name + ": none of its variants runs on " + device.name + ": " + lacks, k.loc,
                       "give tessera bundle a target that it can run: --targets=" +
                           (device.chip.empty() ? "minimum" : device.name) + ",...");
  return *best;
}

std::string explain_variants(const BundleKernel& k, const Target& device, const std::string& name) {
  const BundleVariant& best = best_variant(k, device, name);
  std::string text;
  for (const BundleVariant& v : k.variants) {
    const std::vector<std::string> missed = missing(v.needs, device);
    text += v.target + (&v == &best      ? ": taken: "
                        : missed.empty() ? ": runs here too: "
                                         : ": cannot run: needs " + listed(missed));
    if (missed.empty()) {
      text += std::string("for ") + (v.cpu ? "CPUs" : "GPUs");
      if (v.needs.required_subgroup_size != 0)
        text += ", subgroups of " + std::to_string(v.needs.required_subgroup_size);
      text += ", workgroups of " + std::to_string(v.needs.workgroup_size) +
              (v.needs.features.empty() ? ", no features" : ", uses " + listed(v.needs.features));
    }
    text += "\n";
  }
  return text;
}

std::string bundle_to_bytes(const BundleFile& b) {
  const std::string content = kernels_to_bytes(b);
  Header h;
  h.bytes = content.size();
  h.layout = program_layout();
  h.checksum = checksum(content, h.layout);
  std::string out(kMagic);
  out.append(reinterpret_cast<const char*>(&h), sizeof h);
  return out + content;
}

BundleFile bundle_from_bytes(std::string_view bytes, const std::string& name) {
  const auto fail = [&](const std::string& what, const std::string& note = {}) {
    throw BundleError(name + ": " + what, {}, note);
  };
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    if (kMagic.starts_with(bytes))
      fail("is cut off: it has " + std::to_string(bytes.size()) + " bytes, and its header alone takes " +
           std::to_string(kMagic.size() + sizeof(Header)));
    fail("is no bundle of kernels: it does not begin with \"TESSERA\"", "tessera bundle makes bundles, of .tir files");
  }
  // The version comes first: what follows it is that version's own.
  Header h;
  uint32_t version = 0;
  bytes.remove_prefix(kMagic.size());
  if (bytes.size() >= sizeof version) {
    std::memcpy(&version, bytes.data(), sizeof version);
    if (version > kBundleVersion)
      fail("is a bundle of version " + std::to_string(version) + ", and this Tessera reads version " +
               std::to_string(kBundleVersion),
           "use a newer Tessera, or " + std::string(kMakeAgain));
    if (version < kBundleVersion)
      fail("is a bundle of version " + std::to_string(version) + ", and this Tessera reads version " +
               std::to_string(kBundleVersion),
           kMakeAgain);
  }
  if (bytes.size() < sizeof h)
    fail("is cut off: it has " + std::to_string(kMagic.size() + bytes.size()) + " bytes, and its header alone takes " +
         std::to_string(kMagic.size() + sizeof h));
  std::memcpy(&h, bytes.data(), sizeof h);
  bytes.remove_prefix(sizeof h);
  if (h.layout != program_layout())
    fail("holds kernels in a form that this build of Tessera does not read", kMakeAgain);
  if (h.bytes > bytes.size())
    fail("is cut off: its kernels take " + std::to_string(h.bytes) + " bytes and it has " +
         std::to_string(bytes.size()) + " of them");
  if (h.bytes < bytes.size()) fail("goes on for " + std::to_string(bytes.size() - h.bytes) + " bytes after its end");
  if (h.zero != 0 || h.checksum != checksum(bytes, h.layout))
    fail("is damaged: its checksum is wrong", "copy it anew, or make it again");
  std::optional<BundleFile> b = kernels_from_bytes(bytes);
  if (!b) fail("is damaged: its bytes are no kernels, though the checksum is right", kMakeAgain);
  std::set<std::string> names;
  const auto take = [&](const std::string& called, bool has_code) {
    if (!names.insert(called).second || !has_code)
      fail("is damaged: " + called + (has_code ? " is there twice" : " has no code"), kMakeAgain);
  };
  for (const BundleKernel& k : b->kernels) take(k.name, !k.variants.empty());
  for (const BundleGraph& g : b->graphs) {
    take(g.name, true);
    for (const BundleKernel& k : g.kernels)
      if (k.variants.empty()) fail("is damaged: " + k.name + " of " + g.name + " has no code", kMakeAgain);
    if (g.arguments.size() != g.program.inputs.size() + g.program.outputs.size())
      fail("is damaged: " + g.name + " has " + plural(g.program.inputs.size() + g.program.outputs.size(), "array") +
               ", and " + plural_is(g.arguments.size(), "array") + " named",
           kMakeAgain);
  }
  return std::move(*b);
}

namespace {

// Of two variants' Programs with as many arrays. Signatures are read off one and launches made of another.
std::string disagreement(const Program& a, const Program& b) {
  for (size_t i = 0; i < a.args.size(); ++i) {
    const ProgramArg &x = a.args[i], &y = b.args[i];
    const std::string array = "array " + std::to_string(i);
    const auto type = [](const ProgramArg& arg) { return std::string(name(arg.dtype)) + to_string(arg.shape); };
    const auto role = [](const ProgramArg& arg) {
      return arg.by_value     ? std::string("an input by value")
             : !arg.is_output ? std::string("an input")
             : arg.alias < 0  ? "an output of its own"
                              : "an output aliased to input " + std::to_string(arg.alias);
    };
    if (x.dtype != y.dtype || x.shape != y.shape) return "has as " + array + " " + type(x) + " and " + type(y);
    if (x.is_output != y.is_output || x.alias != y.alias || x.by_value != y.by_value)
      return "has as " + array + " " + role(x) + " and " + role(y);
  }
  return {};
}

Program read_program(const BundleKernel& k, const BundleVariant& v, const std::string& name) {
  std::optional<Program> p = program_from_bytes(v.program);
  const bool ours = p && p->workgroup_size == v.needs.workgroup_size && p->shared_bytes == v.needs.shared_bytes &&
                    p->required_subgroup_size == v.needs.required_subgroup_size &&
                    p->indirect_table == (v.needs.push_constant_bytes == 8 && p->push_bytes() != 8);
  if (!ours)
    throw BundleError(
        name + ": is damaged: " + k.name + " for " + v.target + " is no kernel, though the checksum is right", {},
        kMakeAgain);
  if (p->name != k.name)
    throw BundleError(name + ": is damaged: " + k.name + " for " + v.target + " is called " + p->name, {}, kMakeAgain);
  if (p->args.size() != k.arguments.size())
    throw BundleError(name + ": is damaged: " + k.name + " for " + v.target + " has " +
                          plural(p->args.size(), "array") + ", and " + plural_is(k.arguments.size(), "array") +
                          " named",
                      {}, kMakeAgain);
  return std::move(*p);
}

}  // namespace

Program program_of(const BundleKernel& k, const BundleVariant& v, const std::string& name) {
  Program p = read_program(k, v, name);
  const BundleVariant& first = k.variants.front();
  if (&v == &first) return p;
  if (const std::string what = disagreement(read_program(k, first, name), p); !what.empty())
    throw BundleError(name + ": is damaged: " + k.name + " " + what + ", for " + first.target + " and for " + v.target,
                      {}, kMakeAgain);
  return p;
}

}  // namespace tessera
