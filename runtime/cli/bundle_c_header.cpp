#include <algorithm>
#include <set>
#include <sstream>

#include "runtime/bundle.h"
#include "runtime/cli/bundle_header.h"
#include "runtime/cli/header_text.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

/// The C type of a number that a call passes. Floats that C has no type of are passed as their bits.
std::string c_type(DType t) {
  if (t == DType::boolean) return "bool";
  if (t == DType::f64) return "double";
  if (t == DType::f32) return "float";
  return (is_float(t) || !is_signed_int(t) ? "uint" : "int") + std::to_string(8 * size_bytes(t)) + "_t";
}
std::string c_dtype(DType t) {
  std::string s = "TESSERA_" + std::string(t == DType::boolean ? "bool" : name(t));
  for (char& c : s)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return s;
}

/// A kernel as its declarations need it.
struct CKernel {
  const BundleKernel& kernel;
  Program program;
  std::string prefix;  // "kernels_gain"
  std::vector<std::string> arguments;
  size_t inputs;
  std::vector<std::string> sizes, size_members;
};

void c_struct(std::ostream& out, const CKernel& k, const char* what, size_t from, size_t to) {
  if (from == to) return;  // C has no empty structs
  out << "typedef struct " << k.prefix << "_" << what << " {\n";
  for (size_t i = from; i < to; ++i) {
    const ProgramArg& a = k.program.args[i];
    out << "  " << (a.by_value ? c_type(a.dtype) + " " : "tessera_array* ") << k.arguments[i] << ";  ///< "
        << commented(array_text(a));
    if (a.by_value)
      out << (is_float(a.dtype) && a.dtype != DType::f32 && a.dtype != DType::f64 ? ", by value, as its bits"
                                                                                  : ", by value");
    if (a.alias >= 0)
      out << ", which begins as " << k.arguments[static_cast<size_t>(a.alias)]
          << "; tessera_array_donate() that to give its memory";
    out << "\n";
  }
  out << "} " << k.prefix << "_" << what << ";\n";
}

void c_get(std::ostream& out, const CKernel& k) {
  out << "/// The kernel for the device; destroy it with tessera_kernel_destroy().\n"
      << "static inline tessera_result " << k.prefix
      << "_get(const tessera_bundle* bundle, tessera_device* device, tessera_kernel** kernel) {\n"
      << "  tessera_result result = tessera_kernel_get(bundle, device, " << string_literal(k.kernel.name)
      << ", kernel);\n  if (result != TESSERA_OK) return result;\n  result = tessera_kernel_check(*kernel, "
      << string_literal(signature(k.program)) << ");\n  if (result != TESSERA_OK) {\n"
      << "    tessera_kernel_destroy(*kernel);\n    *kernel = NULL;\n  }\n  return result;\n}\n";
}

void c_launch(std::ostream& out, const CKernel& k) {
  const size_t outputs = k.program.args.size() - k.inputs;
  const auto begin_array = [&](const char* declared, size_t n) { out << "  " << declared << "[" << n << "] = {"; };
  out << "/// Starts a call, and does not wait for it. Outputs that are NULL are made.\n"
      << "static inline tessera_result " << k.prefix << "_launch(const tessera_kernel* kernel";
  if (k.inputs) out << ", const " << k.prefix << "_inputs* inputs";
  if (outputs) out << ", " << k.prefix << "_outputs* outputs";
  if (!k.sizes.empty()) out << ", const " << k.prefix << "_sizes* sizes";
  out << ") {\n";
  if (k.inputs) {
    begin_array("tessera_array* in", k.inputs);
    for (size_t i = 0; i < k.inputs; ++i)
      out << (i ? ", " : "") << (k.program.args[i].by_value ? "NULL" : "inputs->" + k.arguments[i]);
    out << "};\n";
  }
  if (outputs) {
    begin_array("tessera_array* out", outputs);
    for (size_t i = 0; i < outputs; ++i) out << (i ? ", " : "") << "outputs->" << k.arguments[k.inputs + i];
    out << "};\n";
  }
  if (!k.sizes.empty()) {
    begin_array("const tessera_size dims", k.sizes.size());
    for (size_t i = 0; i < k.sizes.size(); ++i)
      out << (i ? ", {" : "{") << string_literal(k.sizes[i]) << ", sizes->" << k.size_members[i] << "}";
    out << "};\n";
  }
  out << "  tessera_result result = TESSERA_OK;\n";
  for (size_t i = 0; i < k.inputs; ++i)
    if (k.program.args[i].by_value)
      out << "  if (result == TESSERA_OK) result = tessera_scalar_create(" << c_dtype(k.program.args[i].dtype)
          << ", &inputs->" << k.arguments[i] << ", &in[" << i << "]);\n";
  out << "  if (result == TESSERA_OK) result = tessera_launch(kernel, " << (k.inputs ? "in" : "NULL") << ", "
      << k.inputs << ", " << (outputs ? "out" : "NULL") << ", " << outputs << ", "
      << (k.sizes.empty() ? "NULL" : "dims") << ", " << k.sizes.size() << ");\n";
  for (size_t i = 0; i < k.inputs; ++i)
    if (k.program.args[i].by_value) out << "  tessera_array_destroy(in[" << i << "]);\n";
  for (size_t i = 0; i < outputs; ++i) out << "  outputs->" << k.arguments[k.inputs + i] << " = out[" << i << "];\n";
  out << "  return result;\n}\n";
}

void c_kernel(std::ostream& out, const BundleKernel& b, const std::string& bundle, const std::string& space,
              std::set<std::string>& used) {
  CKernel k{b, program_of(b, b.variants.front(), bundle), fresh(space + "_" + b.name, used), {}, 0, {}, {}};
  std::set<std::string> members, size_members;
  for (const std::string& n : b.arguments) k.arguments.push_back(fresh(n, members));
  k.inputs = static_cast<size_t>(
      std::count_if(k.program.args.begin(), k.program.args.end(), [](const ProgramArg& a) { return !a.is_output; }));
  k.sizes = given_sizes(k.program);
  for (const std::string& n : k.sizes) k.size_members.push_back(fresh(n, size_members));
  out << "\n// " << commented(b.name) << commented(signature(k.program))
      << (b.loc ? ", from " + commented(to_string(b.loc)) : "") << "; for";
  for (const BundleVariant& v : b.variants) out << (&v == &b.variants.front() ? " " : ", ") << v.target;
  out << ".\n\n";
  c_struct(out, k, "inputs", 0, k.inputs);
  c_struct(out, k, "outputs", k.inputs, k.program.args.size());
  if (!k.sizes.empty()) {
    out << "/// What no input's shape shows.\ntypedef struct " << k.prefix << "_sizes {\n";
    for (const std::string& n : k.size_members) out << "  int64_t " << n << ";\n";
    out << "} " << k.prefix << "_sizes;\n";
  }
  c_get(out, k);
  c_launch(out, k);
}

void c_graph_struct(std::ostream& out, const std::string& prefix, const char* what,
                    const std::vector<GraphProgram::Type>& types, const std::string* names) {
  if (types.empty()) return;
  out << "typedef struct " << prefix << "_" << what << " {\n";
  for (size_t i = 0; i < types.size(); ++i)
    out << "  tessera_array* " << names[i] << ";  ///< " << to_string(types[i]) << "\n";
  out << "} " << prefix << "_" << what << ";\n";
}

void c_graph_launch(std::ostream& out, const std::string& prefix, const std::vector<std::string>& names,
                    size_t inputs) {
  const size_t outputs = names.size() - inputs;
  out << "/// Starts a call, and does not wait for it. Outputs that are NULL are made.\nstatic inline tessera_result "
      << prefix << "_launch(const tessera_graph* graph";
  if (inputs) out << ", const " << prefix << "_inputs* inputs";
  if (outputs) out << ", " << prefix << "_outputs* outputs";
  out << ") {\n";
  const auto array = [&](const char* name, const char* from, size_t begin, size_t end) {
    out << "  tessera_array* " << name << "[" << std::max<size_t>(end - begin, 1) << "] = {";
    for (size_t i = begin; i < end; ++i) out << (i > begin ? ", " : "") << from << names[i];
    out << (begin == end ? "NULL" : "") << "};\n";
  };
  array("in", "inputs->", 0, inputs);
  array("out", "outputs->", inputs, names.size());
  out << "  const tessera_result result = tessera_graph_launch(graph, in, " << inputs << ", out, " << outputs << ");\n";
  for (size_t i = 0; i < outputs; ++i) out << "  outputs->" << names[inputs + i] << " = out[" << i << "];\n";
  out << "  return result;\n}\n";
}

void c_graph(std::ostream& out, const BundleGraph& g, const std::string& space, std::set<std::string>& used) {
  const std::string prefix = fresh(space + "_" + g.name, used);
  std::set<std::string> members;
  std::vector<std::string> names;
  for (const std::string& n : g.arguments) names.push_back(fresh(n, members));
  const size_t inputs = g.program.inputs.size();
  out << "\n// " << commented(g.name) << signature(g.program) << ", a graph of " << g.program.calls.size()
      << (g.program.calls.size() == 1 ? " call" : " calls") << ".\n\n";
  c_graph_struct(out, prefix, "inputs", g.program.inputs, names.data());
  c_graph_struct(out, prefix, "outputs", g.program.outputs, names.data() + inputs);
  const std::vector<std::string> sizes = size_names(g.program);
  std::string list, passed = "NULL, 0, ";
  if (!sizes.empty()) {
    std::set<std::string> own;
    out << "/// Run-time sizes.\ntypedef struct " << prefix << "_sizes {\n";
    for (const std::string& n : sizes) {
      const std::string member = fresh(n, own);
      out << "  int64_t " << member << ";\n";
      list += (list.empty() ? "{" : ", {") + string_literal(n) + ", sizes->" + member + "}";
    }
    out << "} " << prefix << "_sizes;\n";
    list = "  const tessera_size dims[" + std::to_string(sizes.size()) + "] = {" + list + "};\n";
    passed = "dims, " + std::to_string(sizes.size()) + ", ";
  }
  const std::string largest = sizes.empty() ? "" : "const " + prefix + "_sizes* sizes, ";
  const auto taken = [&](const char* what, const char* function, const std::string& parameters, const char* given) {
    out << "/// " << what << "; destroy it with tessera_graph_destroy().\nstatic inline tessera_result " << prefix
        << "_" << function << "(const tessera_bundle* bundle, tessera_device* device, " << parameters << largest
        << "tessera_graph** graph) {\n"
        << list << "  tessera_result result = tessera_graph_" << function << "(bundle, device, "
        << string_literal(g.name) << ", " << given << passed << "graph);\n"
        << "  if (result != TESSERA_OK) return result;\n  result = tessera_graph_check(*graph, "
        << string_literal(signature(g.program)) << ");\n  if (result != TESSERA_OK) {\n"
        << "    tessera_graph_destroy(*graph);\n    *graph = NULL;\n  }\n  return result;\n}\n";
  };
  const std::string at_most = sizes.empty() ? "" : ", with inputs of at most these sizes";
  taken(("The graph, to be launched" + at_most).c_str(), "load", "", "");
  c_graph_launch(out, prefix, names, inputs);
  taken(("The graph, to be recorded" + at_most).c_str(), "prepare",
        "int32_t frames_in_flight, int32_t calls_per_frame, ", "frames_in_flight, calls_per_frame, ");
  if (!sizes.empty())
    out << "/// Of the calls from now on, each at most what it was prepared with; nothing is allocated.\n"
        << "static inline tessera_result " << prefix << "_resize(tessera_graph* graph, const " << prefix
        << "_sizes* sizes) {\n"
        << list << "  return tessera_graph_resize(graph, dims, " << sizes.size() << ");\n}\n";
  out << "/// A call, into the command buffer that the stream records. `scopes` may be NULL.\n"
      << "static inline tessera_result " << prefix << "_record(tessera_stream* stream, tessera_graph* graph";
  if (inputs) out << ", const " << prefix << "_inputs* inputs";
  if (names.size() > inputs) out << ", const " << prefix << "_outputs* outputs";
  out << ", tessera_scopes* scopes) {\n  tessera_array* arrays[" << std::max<size_t>(names.size(), 1) << "] = {";
  for (size_t i = 0; i < names.size(); ++i)
    out << (i ? ", " : "") << (i < inputs ? "inputs->" : "outputs->") << names[i];
  out << (names.empty() ? "NULL" : "") << "};\n  return tessera_stream_record_graph(stream, graph, arrays, "
      << names.size() << ", scopes);\n}\n";
}

}  // namespace

std::string bundle_c_header(const BundleFile& bundle, const HeaderOptions& o) {
  std::string space = o.name_space;
  for (size_t at; (at = space.find("::")) != std::string::npos;) space.replace(at, 2, "_");
  std::ostringstream out;
  out << "// Made by tessera bundle " TESSERA_VERSION ", with " << commented(o.bundle) << ". Of:";
  for (const std::string& f : o.files) out << "\n//   " << commented(f);
  out << "\n#pragma once\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include "
         "<tessera/tessera.h>\n"
      << (bundle.graphs.empty() ? "" : "#include <tessera/tessera_vulkan.h>\n");
  if (!o.embedded.empty())
    out << "\n/// " << commented(o.bundle) << ", little-endian.\nstatic const uint64_t " << space
        << "_bundle_words[] = {" << words(o.embedded)
        << "\n};\n/// The kernels below; destroy it with tessera_bundle_destroy().\n"
        << "static inline tessera_result " << space << "_bundle(tessera_bundle** bundle) {\n"
        << "  return tessera_bundle_load_memory(" << space << "_bundle_words, " << o.embedded.size() << ", "
        << string_literal(o.bundle) << ", bundle);\n}\n";
  std::set<std::string> used;
  for (const BundleKernel& k : bundle.kernels) c_kernel(out, k, o.bundle, space, used);
  for (const BundleGraph& g : bundle.graphs) c_graph(out, g, space, used);
  return out.str();
}

}  // namespace tessera::cli
