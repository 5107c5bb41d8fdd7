#include "tests/bench/gpu/time/suite_files.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "engine/base/error.h"
#include "engine/interpreter/interpreter.h"

namespace tessera::bench {

const char* const kClasses[4] = {"any", "wave64", "dot4", "matrix"};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw SpecError("bench_gpu_time: cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

namespace {
/// The lines of a table, as maps by the names of its columns.
std::vector<std::map<std::string, std::string>> table(const std::string& path) {
  std::vector<std::map<std::string, std::string>> rows;
  std::vector<std::string> names;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = split(line, '\t');
    if (names.empty()) {
      names = cells;
      continue;
    }
    rows.emplace_back();
    for (size_t i = 0; i < names.size() && i < cells.size(); ++i) rows.back()[names[i]] = cells[i];
  }
  return rows;
}
}  // namespace

std::vector<SuiteEntry> read_suite(const std::string& folder, const std::vector<std::string>& parts) {
  namespace fs = std::filesystem;
  std::map<std::string, SuiteEntry> entries;
  for (const auto& file : fs::directory_iterator(fs::path(folder) / "kernels")) {
    if (file.path().extension() != ".tir") continue;
    SuiteEntry e;
    e.name = file.path().stem().string();
    e.kernel_path = file.path().string();
    const auto matches = [&](const std::string& part) { return e.name.find(part) != std::string::npos; };
    if (parts.empty() || std::any_of(parts.begin(), parts.end(), matches)) entries[e.name] = e;
  }
  std::map<std::string, int> numbers;
  for (auto& row : table((fs::path(folder) / "suite.tsv").string())) {
    const std::string kernel = row["kernel"];
    const int number = numbers[kernel]++;
    const auto it = entries.find(kernel);
    if (it == entries.end()) continue;
    ShaderRow s{row["shader"],          row["defines"], row["class"], row["note"], "", std::stoll(row["groups"]),
                std::stoi(row["local"])};
    s.module = (fs::path(folder) / "shaders" / (kernel + "." + std::to_string(number) + ".spv")).string();
    it->second.shaders.push_back(s);
  }
  for (auto& row : table((fs::path(folder) / "work.tsv").string()))
    if (const auto it = entries.find(row["kernel"]); it != entries.end()) {
      it->second.tolerance = std::stod(row["tolerance"]);
      it->second.flops = std::stod(row["flops"]);
    }
  std::vector<SuiteEntry> all;
  for (auto& [name, e] : entries) all.push_back(e);
  return all;
}

int ShaderRow::macro(const std::string& name, int otherwise) const {
  for (const std::string& d : split(defines, ' '))
    if (d.starts_with("-D" + name + "=")) return std::stoi(d.substr(name.size() + 3));
  return otherwise;
}

int rank_of(const ShaderRow& row, const Target& target) {
  const int wave = row.macro("WAVE", 0);
  if (wave != 0 && (wave < target.min_subgroup_size || wave > target.max_subgroup_size)) return -1;
  if (row.local > target.max_workgroup_size) return -1;
  if (row.device_class == "any") return 0;
  if (row.device_class == "wave64") return target.max_subgroup_size >= 64 ? 1 : -1;
  if (row.device_class == "dot4") return target.dot4_signed ? 2 : -1;
  if (row.device_class != "matrix") return -1;
  const int m = row.macro("FM", 16), n = row.macro("FN", m), k = row.macro("FK", m);
  const bool bytes = row.macro("KIND", 1) == 3;
  const MatrixShape wanted{
      m, n, k, bytes ? DType::i8 : DType::f16, bytes ? DType::i8 : DType::f16, bytes ? DType::i32 : DType::f32};
  const auto& has = target.matrices;
  return std::find(has.begin(), has.end(), wanted) != has.end() ? 3 : -1;
}

namespace {
uint64_t next(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
float unit(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-23f - 1; }

template <class Bits, class F> void fill(Array& a, uint64_t seed, F value) {
  auto* to = reinterpret_cast<Bits*>(a.bytes());
  for (int64_t i = 0; i < a.size(); ++i) to[i] = value(next(seed));
}
}  // namespace

Array random_array(const Shape& shape, DType dtype, uint64_t seed) {
  Array a(shape, dtype);
  if (dtype == DType::f32) fill<float>(a, seed, unit);
  else if (dtype == DType::f16)
    fill<uint16_t>(a, seed, [](uint64_t r) { return static_cast<uint16_t>(to_f16_bits(unit(r))); });
  else if (dtype == DType::bf16)
    fill<uint16_t>(a, seed, [](uint64_t r) { return static_cast<uint16_t>(to_bf16_bits(unit(r))); });
  else if (size_bytes(dtype) == 1) fill<uint8_t>(a, seed, [](uint64_t r) { return static_cast<uint8_t>(r >> 40); });
  else
    for (int64_t i = 0; i < a.size(); ++i) a.set_element_bits(i, next(seed) >> 40 & 255);
  return a;
}

Array poisoned(const Shape& shape, DType dtype) {
  Array a(shape, dtype);
  if (a.nbytes() > 0) std::memset(a.bytes(), 0xff, static_cast<size_t>(a.nbytes()));
  return a;
}

namespace {
template <class T, class F> double greatest(const Array& a, const Array& b, F value) {
  const auto *x = reinterpret_cast<const T*>(a.bytes()), *y = reinterpret_cast<const T*>(b.bytes());
  double most = 0, magnitude = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double u = value(x[i]), v = value(y[i]), d = std::fabs(u - v);
    if (!(d <= most)) most = d < HUGE_VAL ? d : HUGE_VAL;
    magnitude = std::max(magnitude, std::fabs(v));
  }
  return magnitude > 0 ? most / magnitude : most;
}
}  // namespace

double difference(const Array& a, const Array& b) {
  if (a.size() != b.size() || a.dtype() != b.dtype()) return HUGE_VAL;
  if (a.dtype() == DType::f32) return greatest<float>(a, b, [](float x) { return static_cast<double>(x); });
  if (a.dtype() == DType::i32) return greatest<int32_t>(a, b, [](int32_t x) { return static_cast<double>(x); });
  if (size_bytes(a.dtype()) == 2) {  // by a table: there are 65,536 values
    Array values(Shape{1}, a.dtype());
    std::vector<double> known(65536);
    for (size_t i = 0; i < known.size(); ++i) {
      values.set_element_bits(0, i);
      known[i] = values.at(0);
    }
    return greatest<uint16_t>(a, b, [&](uint16_t x) { return known[x]; });
  }
  double most = 0, magnitude = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(a.at(i) - b.at(i));
    if (!(d <= most)) most = d < HUGE_VAL ? d : HUGE_VAL;
    magnitude = std::max(magnitude, std::fabs(b.at(i)));
  }
  return magnitude > 0 ? most / magnitude : most;
}

Traffic traffic_of(const ir::Kernel& kernel) {
  Traffic t;
  for (size_t i = 0; i < kernel.blocks.size(); ++i) {
    const int64_t bytes =
        num_elements(bind_shape(kernel, static_cast<int>(i), {})) * size_bytes(kernel.blocks[i].dtype);
    (static_cast<int>(i) < kernel.num_inputs ? t.inputs : t.outputs) += bytes;
  }
  return t;
}

}  // namespace tessera::bench
