// engine/front/pallas.md stays true: a row for every primitive that JAX lets appear in a Pallas kernel, and every name
// on Tessera's side exists.
#include <doctest/doctest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace pallas_table_test {

namespace {

// JAX 0.10.2: what its lowerings for GPUs and TPUs, or its interpreter, accept in a kernel.
const char* const kPrimitives =
    "abs add add_any and argmax argmin atan2 axis_index bitcast_convert_type broadcast_in_dim broadcast_to ceil clamp "
    "clz concatenate cond "
    "convert_element_type cos custom_jvp_call debug_print div dot_general eq erf_inv exp exp2 floor ge get gt "
    "integer_pow iota is_finite jit le log "
    "log1p logistic lt masked_load masked_swap max min mul multiple_of ne neg nextafter not num_programs or "
    "population_count pow program_id reduce_max "
    "reduce_min reduce_sum rem reshape reshard rsqrt scan select_n shift_left shift_right_arithmetic "
    "shift_right_logical sign sin split sqrt square "
    "squeeze stack stop_gradient sub swap tan tanh transpose unstack while xor "
    "acos acosh addupdate asin asinh atan atanh atomic_cas atomic_rmw cbrt closed_call cosh cumsum debug_barrier "
    "elementwise_inline_asm expm1 "
    "max_contiguous remat2 sinh "
    "add_dependency bitcast check custom_vjp_call debug_callback delay dma_start dma_wait einshape_lo emit_pipeline "
    "empty_ref erf gather pad "
    "pack_elementwise unpack_elementwise pipeline_body platform_index prng_seed prng_random_bits prng_split prng_join "
    "random_bits random_fold_in "
    "random_seed random_unwrap random_wrap threefry2x32 iota_2x32_shape reciprocal reduce_and reduce_or roll round "
    "run_scoped semaphore_read "
    "semaphore_signal semaphore_wait get_barrier_semaphore slice stage stochastic_round tile trace_value dim_as_value "
    "matmul_push_rhs matmul_acc_lhs "
    "matmul_pop "
    "rev sort cumprod cummax cummin reduce_prod reduce_precision dynamic_slice dynamic_update_slice scatter";

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}
/// What stands between backticks.
std::vector<std::string> in_backticks(const std::string& cell) {
  std::vector<std::string> words;
  for (size_t at = cell.find('`'); at != std::string::npos; at = cell.find('`', at + 1)) {
    const size_t end = cell.find('`', at + 1);
    if (end == std::string::npos) break;
    words.push_back(cell.substr(at + 1, end - at - 1));
    at = end;
  }
  return words;
}
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool declares(const std::string& headers, std::string name) {
  if (name.starts_with("operator")) return headers.find(name + "(") != std::string::npos;
  if (name.find("[all]") != std::string::npos) return true;  // an example
  if (const size_t inner = name.rfind("::"); inner != std::string::npos) name = name.substr(inner + 2);
  for (size_t at = headers.find(name); at != std::string::npos; at = headers.find(name, at + 1))
    if ((at == 0 || !is_word(headers[at - 1])) && !is_word(headers[at + name.size()])) return true;
  return false;
}
}  // namespace

TEST_CASE("pallas.md: every primitive has its row, and every name of Tessera's exists") {
  std::istringstream table(read("engine/front/pallas.md"));
  std::string headers;
  for (const char* folder : {"engine/front", "engine/call"})
    for (const auto& file : std::filesystem::directory_iterator(folder))
      if (file.path().extension() == ".h") {
        std::istringstream lines(read(file.path()));
        for (std::string line; std::getline(lines, line);) headers += line.substr(0, line.find("//")) + "\n";
      }
  REQUIRE(headers.size() > 10000);
  headers += read("engine/base/extent.h");
  std::set<std::string> rows;
  for (std::string line; std::getline(table, line);) {
    if (line == "## Beyond a Ref") break;  // no table of primitives
    if (!line.starts_with("| `")) continue;
    size_t bar = 1;
    while ((bar = line.find('|', bar)) != std::string::npos && line[bar - 1] == '\\') ++bar;
    REQUIRE(bar != std::string::npos);
    for (const std::string& primitive : in_backticks(line.substr(0, bar)))
      CHECK_MESSAGE(rows.insert(primitive).second, primitive, " has two rows");
    std::string ours = line.substr(bar);
    for (size_t at = ours.find("\\|"); at != std::string::npos; at = ours.find("\\|")) ours.erase(at, 1);
    for (const std::string& name : in_backticks(ours))
      CHECK_MESSAGE(declares(headers, name), name, " is declared in no header of engine/front and engine/call");
  }
  std::istringstream all(kPrimitives);
  for (std::string primitive; all >> primitive;) CHECK_MESSAGE(rows.contains(primitive), primitive, " has no row");
}

}  // namespace pallas_table_test
