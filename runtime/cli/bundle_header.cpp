#include "runtime/cli/bundle_header.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <set>
#include <sstream>

#include "runtime/bundle.h"
#include "runtime/cli/header_text.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

constexpr std::array kKeywords = {
    "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
    "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
    "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
    "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
    "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
    "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
    "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
    "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
    "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
    "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
    "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
    "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
    "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
    "xor_eq"};
// Macros of C's headers and of GNU's compilers, and keywords of C alone: what is called so could not be a struct or its
// member.
constexpr std::array kMacros = {"BUFSIZ",   "EOF",    "HUGE_VAL", "INFINITY", "NAN",   "NULL",
                                "RAND_MAX", "assert", "errno",    "i386",     "linux", "restrict",
                                "stderr",   "stdin",  "stdout",   "typeof",   "unix"};

/// The C++ type of a number that a call passes: the narrowest that has the numbers of the dtype.
std::string number_type(DType t) {
  if (t == DType::boolean) return "bool";
  if (t == DType::f64) return "double";
  if (is_float(t)) return "float";
  return std::string("std::") + (is_signed_int(t) ? "" : "u") + "int" + std::to_string(8 * size_bytes(t)) + "_t";
}
std::string type_text(const ProgramArg& a) {
  if (a.by_value) return number_type(a.dtype);
  return "tessera::TypedArray<tessera::" + std::string(a.dtype == DType::boolean ? "boolean" : name(a.dtype)) + ", " +
         std::to_string(a.shape.size()) + ">";
}

void kernel(std::ostream& out, const BundleKernel& k, const std::string& bundle, std::set<std::string>& used) {
  const Program p = program_of(k, k.variants.front(), bundle);
  const std::string type = fresh(k.name, used);
  std::set<std::string> members;
  std::vector<std::string> names;
  for (const std::string& n : k.arguments) names.push_back(fresh(n, members));
  const size_t inputs = static_cast<size_t>(
      std::count_if(p.args.begin(), p.args.end(), [](const ProgramArg& a) { return !a.is_output; }));
  const std::vector<std::string> sizes = given_sizes(p);
  const auto list = [&](size_t from, size_t to, const char* indent) {
    for (size_t i = from; i < to; ++i) {
      out << indent << type_text(p.args[i]) << " " << names[i] << ";  ///< " << commented(array_text(p.args[i]))
          << (p.args[i].by_value ? ", by value" : "");
      if (p.args[i].alias >= 0)
        out << ", which begins as " << names[static_cast<size_t>(p.args[i].alias)]
            << "; donate() that to give its memory";
      out << "\n";
    }
  };
  out << "\n/// " << commented(k.name) << signature(p) << (k.loc ? ", from " + commented(to_string(k.loc)) : "")
      << "; for";
  for (const BundleVariant& v : k.variants) out << (&v == &k.variants.front() ? " " : ", ") << v.target;
  out << ".\nstruct " << type << " {\n  struct Inputs {\n";
  list(0, inputs, "    ");
  out << "  };\n  struct Outputs {\n";
  list(inputs, p.args.size(), "    ");
  out << "  };\n";
  if (!sizes.empty()) {
    out << "  /// What no input's shape shows.\n  struct Sizes {\n";
    std::set<std::string> own;
    for (const std::string& n : sizes) out << "    std::int64_t " << fresh(n, own) << ";\n";
    out << "  };\n";
  }
  const std::string more = sizes.empty() ? "" : ", const Sizes& sizes";
  std::string arguments = "{";
  for (size_t i = 0; i < inputs; ++i) arguments += (i ? ", " : "") + std::string("inputs.") + names[i];
  arguments += "}";
  std::string dims;
  if (!sizes.empty()) {
    std::set<std::string> own;
    for (const std::string& n : sizes)
      dims += (dims.empty() ? "" : ", ") + std::string("{") + string_literal(n) + ", sizes." + fresh(n, own) + "}";
    dims = ", {" + dims + "}";
  }
  out << "\n  tessera::CompiledKernel kernel;\n"
      << "  " << type
      << "(const tessera::Bundle& bundle, const tessera::Device& device) : "
         "kernel(tessera::checked(bundle.kernel(device, "
      << string_literal(k.name) << "), " << string_literal(signature(p)) << ")) {}\n"
      << "  /// Starts a call, and does not wait for it.\n"
      << "  Outputs operator()([[maybe_unused]] const Inputs& inputs" << more << ") const {\n"
      << "    [[maybe_unused]] const std::vector<tessera::DeviceArray> out = kernel(" << arguments << dims
      << ");\n    return {";
  for (size_t i = inputs; i < p.args.size(); ++i) out << (i > inputs ? ", " : "") << "out[" << i - inputs << "]";
  out << "};\n  }\n"
      << "  /// The same into arrays of the caller's, which it returns; tessera::in_place stands for one that begins "
         "as a donated input.\n"
      << "  Outputs operator()([[maybe_unused]] const Inputs& inputs, [[maybe_unused]] const Outputs& outputs" << more
      << ") const {\n"
      << "    [[maybe_unused]] const std::vector<tessera::DeviceArray> out = tessera::launch_into(kernel.device(), "
         "kernel.program(), "
      << arguments << ", {";
  for (size_t i = inputs; i < p.args.size(); ++i) out << (i > inputs ? ", " : "") << "outputs." << names[i];
  out << "}" << dims << ");\n    return {";
  for (size_t i = inputs; i < p.args.size(); ++i) out << (i > inputs ? ", " : "") << "out[" << i - inputs << "]";
  out << "};\n  }\n};\n";
}

// An input of rank 0 may be given as a number, which goes by value.
void graph(std::ostream& out, const BundleGraph& g, std::set<std::string>& used) {
  const std::string type = fresh(g.name, used);
  std::set<std::string> members;
  std::vector<std::string> names;
  for (const std::string& n : g.arguments) names.push_back(fresh(n, members));
  const size_t inputs = g.program.inputs.size();
  const auto list = [&](const std::vector<GraphProgram::Type>& types, size_t first) {
    for (size_t i = 0; i < types.size(); ++i)
      out << "    tessera::TypedArray<tessera::"
          << (types[i].first == DType::boolean ? "boolean" : name(types[i].first)) << ", " << types[i].second.size()
          << "> " << names[first + i] << ";  ///< " << to_string(types[i]) << "\n";
  };
  const auto given = [&](const char* from, size_t begin, size_t end) {
    std::string text = "{";
    for (size_t i = begin; i < end; ++i) text += (i > begin ? ", " : "") + std::string(from) + "." + names[i];
    return text + "}";
  };
  out << "\n/// " << commented(g.name) << signature(g.program) << ", a graph of " << g.program.calls.size()
      << (g.program.calls.size() == 1 ? " call" : " calls") << ".\nstruct " << type << " {\n  struct Inputs {\n";
  list(g.program.inputs, 0);
  out << "  };\n  struct Outputs {\n";
  list(g.program.outputs, inputs);
  const std::string code = "tessera::checked(bundle.graph(device, " + string_literal(g.name) + "), " +
                           string_literal(signature(g.program)) + ")";
  const std::vector<std::string> sizes = size_names(g.program);
  std::string dims;
  if (!sizes.empty()) {
    std::set<std::string> own;
    out << "  };\n  /// Run-time sizes.\n  struct Sizes {\n";
    for (const std::string& n : sizes) {
      const std::string member = fresh(n, own);
      out << "    std::int64_t " << member << ";\n";
      dims += (dims.empty() ? "{" : ", {") + string_literal(n) + ", sizes." + member + "}";
    }
  }
  std::string results;
  for (size_t i = inputs; i < names.size(); ++i)
    results += (i > inputs ? ", " : "") + ("out[" + std::to_string(i - inputs)) + "]";
  out << "  };\n\n  /// The graph by itself, outside of a frame.\n  struct Loaded {\n    tessera::LoadedGraph graph;\n"
      << (sizes.empty()
              ? "    Loaded(const tessera::Bundle& bundle, const tessera::Device& device)\n        : graph(device, " +
                    code + ") {}\n"
              : "    /// For inputs of at most these sizes.\n    Loaded(const tessera::Bundle& bundle, const "
                "tessera::Device& device, const Sizes& sizes)\n        : graph(device, " +
                    code + ", {.dims = {" + dims + "}}) {}\n")
      << "    /// Starts a call, and does not wait for it.\n    Outputs operator()([[maybe_unused]] const "
         "Inputs& "
         "inputs) const {\n      [[maybe_unused]] const std::vector<tessera::DeviceArray> out = graph("
      << given("inputs", 0, inputs) << ");\n      return {" << results
      << "};\n    }\n    /// The same into arrays of the caller's, which it returns.\n    Outputs "
         "operator()([[maybe_unused]] const Inputs& inputs, [[maybe_unused]] const Outputs& outputs) const {\n      "
         "[[maybe_unused]] const std::vector<tessera::DeviceArray> out = graph.run_into("
      << given("inputs", 0, inputs) << ", " << given("outputs", inputs, names.size()) << ");\n      return {" << results
      << "};\n    }\n  };\n\n  tessera::PreparedGraph graph;\n  " << type
      << "(const tessera::Bundle& bundle, const tessera::Device& device, "
      << (sizes.empty()
              ? "const tessera::PrepareGraphOptions& options = {})\n      : graph(device, " + code + ", options) {}\n"
              : "const Sizes& sizes, tessera::PrepareGraphOptions options = {})\n      : graph(device, " + code +
                    ", (options.dims = {" + dims +
                    "}, options)) {}\n  /// Of the calls from now on, each at most what it was made with; "
                    "nothing is allocated.\n  void resize(const Sizes& sizes) { graph.resize({" +
                    dims + "}); }\n")
      << "  /// A call, into the command buffer that the stream records; nothing is allocated.\n"
      << "  tessera::Scopes record(tessera::CommandStream& stream, [[maybe_unused]] const Inputs& inputs, "
         "[[maybe_unused]] const Outputs& outputs) {\n    return graph.record(stream, "
      << given("inputs", 0, inputs) << ", " << given("outputs", inputs, names.size()) << ");\n  }\n};\n";
}

}  // namespace

std::string identifier(std::string_view name) {
  std::string s;
  for (const char c : name) {
    const bool good = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (good || s.empty() || s.back() != '_') s += good ? c : '_';  // names with two in a row are the compiler's
  }
  if (s.empty() || s.front() == '_' || std::isdigit(static_cast<unsigned char>(s.front()))) s = "k" + s;
  if (std::find(kKeywords.begin(), kKeywords.end(), s) != kKeywords.end() ||
      std::find(kMacros.begin(), kMacros.end(), s) != kMacros.end())
    s += "_";
  return s;
}

std::string fresh(std::string_view name, std::set<std::string>& used) {
  std::string s = identifier(name);
  while (!used.insert(s).second) s += "_";
  return s;
}

std::string string_literal(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}
std::string commented(std::string s) {
  for (char& c : s)
    if (std::iscntrl(static_cast<unsigned char>(c)) || c == '\\') c = ' ';
  return s;
}

std::string array_text(const ProgramArg& a) {
  std::string dims;
  for (const Extent& e : a.shape) dims += (dims.empty() ? "" : ", ") + to_string(e);
  return std::string(name(a.dtype)) + "[" + dims + "]";
}
std::vector<std::string> given_sizes(const Program& p) {
  std::vector<std::string> names, shown;
  for (const ProgramArg& a : p.args)
    for (const Extent& e : a.shape) {
      e.collect_names(names);
      if (const auto n = e.as_name(); n && !a.is_output) shown.push_back(*n);
    }
  for (const Extent& e : p.grid) e.collect_names(names);
  for (const Extent& e : p.extents) e.collect_names(names);
  p.num_units.collect_names(names);
  std::erase_if(names, [&](const std::string& n) { return std::find(shown.begin(), shown.end(), n) != shown.end(); });
  return names;
}

std::string words(const std::string& bytes) {
  std::ostringstream out;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    out << (at % 64 == 0 ? "\n    0x" : " 0x") << std::hex << word << std::dec << ",";
  }
  return out.str();
}

std::string bundle_header(const BundleFile& bundle, const HeaderOptions& o) {
  std::ostringstream out;
  out << "// Made by tessera bundle " TESSERA_VERSION ", with " << commented(o.bundle) << ". Of:";
  for (const std::string& f : o.files) out << "\n//   " << commented(f);
  out << "\n#pragma once\n#include <tessera/runtime.hpp>\n"
      << (bundle.graphs.empty() ? "" : "#include <tessera/vulkan.hpp>\n")
      << "\n#include <cstddef>\n#include <cstdint>\n#include "
         "<span>\n#include <string>\n#include <vector>\n\nnamespace "
      << o.name_space << " {\n\n";
  std::set<std::string> used{"Inputs",       "Outputs", "Sizes", "kernel",    "inputs", "outputs",
                             "sizes",        "out",     "dims",  "bundle",    "device", "kBundle",
                             "kBundleBytes", "tessera", "std",   o.name_space};
  if (o.embedded.empty()) {
    out << "/// The kernels below, from " << commented(o.bundle) << ".\n"
        << "inline tessera::Bundle bundle(const std::string& path) { return tessera::Bundle(path); }\n"
        << "/// The same from the file's bytes in memory.\n"
        << "inline tessera::Bundle bundle(std::span<const std::byte> bytes) { return tessera::Bundle(bytes, "
        << string_literal(o.bundle) << "); }\n";
  } else {
    out << "/// " << commented(o.bundle)
        << ", little-endian.\ninline constexpr std::size_t kBundleBytes = " << o.embedded.size()
        << ";\ninline constexpr std::uint64_t kBundle[] = {";
    out << words(o.embedded);
    out << "\n};\n/// The kernels below.\n"
        << "inline tessera::Bundle bundle() { return "
           "tessera::Bundle(std::as_bytes(std::span(kBundle)).first(kBundleBytes), "
        << string_literal(o.bundle) << "); }\n";
  }
  for (const BundleKernel& k : bundle.kernels) kernel(out, k, o.bundle, used);
  used.insert({"graph", "record", "stream", "options", "Loaded", "Sizes", "sizes",
               "resize"});  // members and parameters of graphs' structs
  for (const BundleGraph& g : bundle.graphs) graph(out, g, used);
  out << "\n}  // namespace " << o.name_space << "\n";
  return out.str();
}

}  // namespace tessera::cli
