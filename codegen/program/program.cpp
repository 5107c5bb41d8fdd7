#include "codegen/program/program.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "codegen/program/target.h"
#include "engine/base/array.h"
#include "engine/base/print_text.h"

namespace tessera {

int64_t Program::push_bytes() const { return tensors_at() + kTensorBytes * static_cast<int64_t>(tensors.size()); }

int64_t Program::tensors_at() const {
  int64_t n = 8 * static_cast<int64_t>(args.size()) + (scratch_bytes > 0 ? 8 : 0) + (report_bytes > 0 ? 8 : 0);
  for (bool wide : extent_is_64) n += wide ? 8 : 4;
  return tensors.empty() ? n : cdiv(n, kTensorAlignment) * kTensorAlignment;
}

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
int64_t capped(__int128 n) { return n > kMost ? kMost : static_cast<int64_t>(n); }

// What overflows is as good as kMost.
std::optional<int64_t> evaluate(const Extent& e, const DimValues* dims) {
  if (const auto v = e.value()) return v;
  if (!dims) return std::nullopt;
  try {
    return e.eval(*dims);
  } catch (const SpecError&) {
    return kMost;
  }
}

}  // namespace

LoopTotal total_iterations(const std::vector<ProgramLoop>& loops, int64_t units, const DimValues* dims) {
  LoopTotal t;
  int64_t least = -1, most = -1;
  for (const ProgramLoop& l : loops) {
    const int64_t few = evaluate(l.at_least, dims).value_or(0);
    if (few > least) least = few, t.at_least_loc = l.loc;
    t.at_least = capped(static_cast<__int128>(t.at_least) + few);
    const std::optional<int64_t> many = l.at_most ? evaluate(*l.at_most, dims) : std::nullopt;
    if (!many && t.at_most) t.at_most_loc = l.loc;  // the first of those without a bound
    if (many && t.at_most && *many > most) most = *many, t.at_most_loc = l.loc;
    t.at_most = many && t.at_most ? std::optional(capped(static_cast<__int128>(*t.at_most) + *many)) : std::nullopt;
  }
  t.at_least = capped(static_cast<__int128>(t.at_least) * std::max<int64_t>(units, 1));
  // the last test runs the body with no invocation in it
  if (t.at_most) t.at_most = capped(static_cast<__int128>(*t.at_most) * (static_cast<__int128>(units) + 1));
  return t;
}

int64_t steps_at_once(const Program& p, int64_t total, const DimValues* dims) {
  constexpr int64_t kDispatches = 1024;  // where the time of a step is unknown
  const LoopTotal beyond = total_iterations(p.loops, 0, dims);
  const int64_t steps = beyond.at_most ? p.max_loop_iterations - *beyond.at_most
                        : p.open_ended ? p.max_loop_iterations / 4
                                       : cdiv(total, kDispatches);
  return std::clamp<int64_t>(steps, 1, std::max<int64_t>(total, 1));
}

std::string loops_too_long(const std::string& kernel, int64_t iterations, const std::string& sizes,
                           const std::string& device, int64_t limit) {
  return kernel + ": one invocation runs at least " + std::to_string(iterations) + " loop iterations" + sizes +
         ", but " + device + " leaves all loops after " + std::to_string(limit);
}
const char* const kShorterLoops =
    "use a driver without that limit (lavapipe from Mesa 25 on), smaller blocks, more of them in parallel, or the "
    "interpreter";

std::vector<PrintedLine> printed_lines(const std::vector<ProgramPrint>& prints, const std::vector<uint32_t>& records) {
  std::vector<PrintedLine> lines;
  for (size_t at = 0; at + PrintReport::kHeader <= records.size();) {
    const uint32_t* r = &records[at];
    const size_t size = r[0];
    if (size < PrintReport::kHeader || size > records.size() - at || r[1] >= prints.size()) break;  // never
    const ProgramPrint& print = prints[r[1]];
    std::vector<Array> arguments;
    size_t word = PrintReport::kHeader;
    for (const auto& [dtype, shape] : print.arguments) {
      Array a(shape, dtype);
      const size_t each = size_bytes(dtype) == 8 ? 2 : 1;
      for (int64_t i = 0; i < a.size() && word + each <= size; ++i, word += each)
        a.set_element_bits(i, each == 2 ? uint64_t{r[word + 1]} << 32 | r[word] : r[word]);
      arguments.push_back(std::move(a));
    }
    lines.push_back({uint64_t{r[3]} << 32 | r[2], r[1], format_text(print.text, arguments)});
    at += size;
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const PrintedLine& a, const PrintedLine& b) { return a.program < b.program; });
  return lines;
}
std::string wait_failed(const std::string& kernel, const WaitSite& site, std::optional<int64_t> holds,
                        std::optional<int64_t> amount) {
  return kernel + ": " + site.op + ": waits for " + (amount ? std::to_string(*amount) : "more") +
         (site.bytes ? " bytes" : "") + " in " + site.semaphore + ", which holds " +
         (holds ? std::to_string(*holds) : "less");
}
const char* const kSignalFirst =
    "nothing that is under way can bring that: signal or start the copy before waiting, on the same semaphore";

Target Target::tpu(const std::string& chip) {
  Target t;
  t.name = "tpu:" + chip;
  t.tpu_chip = chip;
  return t;
}

std::string to_string(const MatrixShape& s) {
  return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + " " + std::string(name(s.a)) +
         " " + std::string(name(s.b)) + " " + std::string(name(s.sum));
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
  t.int64_atomics = true;
  t.storage8 = t.storage16 = t.integer_dot = true;
  t.vulkan_memory_model_device_scope = true;
  t.rte16 = t.rte32 = t.rte64 = true;
  t.preserve16 = t.preserve32 = t.preserve64 = t.forgets_zeros = true;
  return t;
}

namespace {

struct Chip {
  const char *name, *ptx_version;  // the first that knows it
  int64_t shared_kib;              // of a workgroup, at most
  int32_t multiprocessors;         // of the largest product
  int capability, cuda;            // 90: 9.0; the first driver that reads such PTX, 12000: of CUDA 12.0
};
// From NVIDIA's "CUDA C++ Programming Guide", "Compute Capabilities", and "PTX ISA", "Target" and "Release Notes".
constexpr Chip kChips[] = {{"sm_80", "7.8", 163, 108, 80, 11080},   {"sm_86", "7.8", 99, 84, 86, 11080},
                           {"sm_87", "7.8", 163, 16, 87, 11080},    {"sm_89", "8.1", 99, 142, 89, 12010},
                           {"sm_90", "7.8", 227, 132, 90, 11080},   {"sm_90a", "8.0", 227, 132, 90, 12000},
                           {"sm_100", "8.6", 227, 148, 100, 12070}, {"sm_100a", "8.6", 227, 148, 100, 12070},
                           {"sm_103", "8.8", 227, 160, 103, 12090}, {"sm_120", "8.7", 99, 188, 120, 12080},
                           {"sm_121", "8.8", 99, 48, 121, 12090}};

/// Pairs and fours of what mma.sync multiplies (PTX ISA, "Matrix multiply-accumulate operation using mma instruction"):
/// 32 bytes of k, as many as one ldmatrix brings of 16 rows.
std::vector<MatrixShape> nvidia_matrices(const std::string& chip) {
  std::vector<MatrixShape> all;
  for (const DType t : {DType::f16, DType::bf16}) all.push_back({16, 16, 16, t, t, DType::f32});
  for (const DType a : {DType::i8, DType::u8})
    for (const DType b : {DType::i8, DType::u8}) all.push_back({16, 16, 32, a, b, DType::i32});
  if (std::stoi(chip.substr(3)) < 89) return all;
  for (const DType a : {DType::f8e4m3fn, DType::f8e5m2})
    for (const DType b : {DType::f8e4m3fn, DType::f8e5m2}) all.push_back({16, 16, 32, a, b, DType::f32});
  return all;
}

}  // namespace

Target Target::nvidia(const std::string& chip) {
  std::string known;
  for (const Chip& c : kChips) {
    known += (known.empty() ? "" : ", ") + std::string(c.name);
    if (chip != c.name) continue;
    Target t = gpu_target();
    t.name = "nvidia:" + chip;
    t.chip = chip;
    t.ptx_version = c.ptx_version;
    t.max_workgroup_count = INT32_MAX;
    t.shared_bytes = c.shared_kib << 10;
    t.push_constant_bytes = 4096;
    t.max_buffer_bytes = int64_t{1} << 40;
    t.compute_units = c.multiprocessors;
    t.matrices = nvidia_matrices(chip);
    t.transposes_matrices = t.async_stores = t.matrix_lanes = true;
    t.warpgroup_matrices = t.tensor_copies = chip == "sm_90a";
    return t;
  }
  throw CompileError("target nvidia:" + chip + ": no such chip", {}, "the chips are " + known);
}

std::optional<Target> Target::nvidia_for(int major, int minor, int driver_version) {
  const Chip* best = nullptr;
  const int capability = 10 * major + minor;
  for (const Chip& c : kChips) {  // PTX of sm_90a is read by that chip alone
    const bool reads = std::string_view(c.name).back() == 'a' ? c.capability == capability : c.capability <= capability;
    if (reads && c.cuda <= driver_version) best = &c;
  }
  if (!best) return std::nullopt;
  Target t = nvidia(best->name);
  constexpr int kProductsOfF8 = 12040;  // PTX 8.4 (codegen/nvidia)
  if (driver_version < kProductsOfF8)
    std::erase_if(t.matrices, [](const MatrixShape& s) { return is_float(s.a) && bits(s.a) == 8; });
  return t;
}

int Target::chip_number(const std::string& chip) {
  const auto* const at =
      std::find_if(std::begin(kChips), std::end(kChips), [&](const Chip& c) { return chip == c.name; });
  return at == std::end(kChips) ? -1 : static_cast<int>(at - std::begin(kChips));
}

bool Target::reads_ptx_of(const std::string& other) const {
  const int own = chip_number(chip), n = chip_number(other);
  if (own < 0 || n < 0) return false;
  const Chip &a = kChips[n], &b = kChips[own];  // a driver that is told to read b's knows what came with older ones
  return other == chip || (other.back() != 'a' && a.capability <= b.capability && a.cuda <= b.cuda);
}

Target Target::named(const std::string& name) {
  if (name == "minimum") return minimum_target();
  if (name == "lavapipe") return lavapipe_target();
  if (name == "gpu") return gpu_target();
  if (name == "gpu-matrix") return gpu_matrix_target();
  if (name.starts_with("nvidia:")) return nvidia(name.substr(7));
  if (name.starts_with("tpu:")) return tpu(name.substr(4));
  throw CompileError("target " + name + ": no such target", {},
                     "the targets are gpu, gpu-matrix, lavapipe, minimum, nvidia:CHIP as in nvidia:sm_90a, and "
                     "tpu:CHIP as in tpu:v5e");
}

Target gpu_matrix_target() {
  Target t = gpu_target();
  t.name = "gpu-matrix";
  for (const auto& [factor, sum] : {std::pair{DType::f16, DType::f32},
                                    {DType::bf16, DType::f32},
                                    {DType::i8, DType::i32},
                                    {DType::u8, DType::u32},
                                    {DType::f8e4m3fn, DType::f32},
                                    {DType::f8e5m2, DType::f32}})
    t.matrices.push_back({16, 16, 16, factor, factor, sum});
  return t;
}

Target gpu_target() {
  Target t = minimum_target();
  t.name = "gpu";
  t.max_workgroup_size = 1024;
  t.shared_bytes = 48 << 10;
  t.push_constant_bytes = 256;
  t.max_buffer_bytes = int64_t{1} << 32;
  t.min_subgroup_size = t.max_subgroup_size = t.subgroup_size = 32;
  t.can_require_subgroup_size = true;
  t.compute_units = 24;
  t.subgroup_vote = t.subgroup_arithmetic = t.subgroup_ballot = t.subgroup_shuffle = true;
  t.int64_atomics = t.int8 = t.int16 = t.int64 = t.float16 = t.float64 = t.storage8 = t.storage16 =
      t.vulkan_memory_model_device_scope = t.skips_branches = true;
  t.integer_dot = t.dot4_signed = t.dot4_unsigned = t.dot4_mixed = true;
  t.rte16 = t.rte32 = t.rte64 = t.preserve16 = t.preserve32 = t.preserve64 = true;
  return t;
}

}  // namespace tessera
