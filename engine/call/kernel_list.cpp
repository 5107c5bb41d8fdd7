#include "engine/call/kernel_list.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "engine/base/plural.h"
#include "engine/base/write_file.h"
#include "engine/graph/write.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace tessera {
namespace {
namespace fs = std::filesystem;

bool is_argument_name(const std::string& s) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !s.empty() && letter(s[0]) &&
         std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

void check_names(const std::string& name, bool graph, size_t num_inputs, size_t num_outputs,
                 const std::vector<std::string>& names, Loc loc) {
  if (names.empty()) return;
  const std::string add = name + (graph ? ": add_graph()" : ": add()");
  if (names.size() != num_inputs + num_outputs)
    throw SpecError(add + " has " + plural(names.size(), "name") + " but the " + (graph ? "graph" : "kernel") +
                        " has " + plural(num_inputs, "input") + " and " + plural(num_outputs, "output"),
                    loc, "give a name for each input, then for each output, or none");
  std::set<std::string> seen;
  for (const std::string& n : names) {
    if (!is_argument_name(n))
      throw SpecError(add + ": \"" + n + "\" is no name for an argument", loc,
                      "names have letters, digits and _, and do not begin with a digit");
    if (!seen.insert(n).second)
      throw SpecError(add + ": the name \"" + n + "\" is there twice", loc, "give each argument a name of its own");
  }
}

/// Writes the texts, then the list, which is the newest: a build that was interrupted goes on.
void write_texts(const KernelList& kernels, const std::string& source, const std::string& list,
                 const fs::path& folder) {
  fs::create_directories(folder);
  std::set<std::string> files;
  std::string text = "tessera kernels 1\nsource " + source + "\n";
  for (const KernelList::Entry& e : kernels.entries()) {
    std::string stem = file_stem(e.kernel.name);
    while (files.contains(stem + ".tir")) stem += "_";
    files.insert(stem + ".tir");
    const fs::path file = folder / (stem + ".tir");
    write_file(file.string(), ir::print(e.kernel, true, e.names));
    text += "kernel " + file.lexically_relative(fs::path(list).parent_path()).generic_string() + "\n";
  }
  for (const KernelList::GraphEntry& e : kernels.graphs()) {
    const fs::path of_graph = folder / e.name;
    fs::remove_all(of_graph);
    write_graph(e.graph, of_graph.string());
    files.insert(e.name);
    text += "graph " + of_graph.lexically_relative(fs::path(list).parent_path()).generic_string() + "\n";
    if (e.names.empty()) continue;
    text += "names";
    for (const std::string& n : e.names) text += " " + n;
    text += "\n";
  }
  std::vector<fs::path> stale;
  for (const fs::directory_entry& e : fs::directory_iterator(folder))
    if ((e.path().extension() == ".tir" || fs::exists(e.path() / "graph.txt")) &&
        !files.contains(e.path().filename().string()))
      stale.push_back(e.path());
  for (const fs::path& path : stale) fs::remove_all(path);
  write_file(list, text);
}

}  // namespace

void KernelList::add(const PallasCall& call, std::vector<std::string> names, Loc loc) {
  if (!call.in_shape())
    throw SpecError(call.name() + ": in_shape is not given, so that its arguments are not known", loc,
                    "give .in_shape, with ts::dim(\"n\") for sizes of run time, or the inputs: add_for(call, {{{8}, "
                    "ts::f32}}, names)");
  add_for(call, *call.in_shape(), std::move(names), loc);
}

void KernelList::add_for(const PallasCall& call, const std::vector<ShapeDtype>& inputs, std::vector<std::string> names,
                         Loc loc) {
  const auto spreads = call.spreads(inputs);
  if (std::any_of(spreads.begin(), spreads.end(), [](const auto& s) { return s.has_value(); }))
    throw SpecError(call.name() + ": vmap copies an argument of it before each call, which a bundle cannot", loc,
                    "map that argument over the batch too (in_axes)");
  ir::Kernel k = call.trace(inputs);
  for (const Entry& other : entries_)
    if (other.kernel.name == k.name)
      throw SpecError(k.name + ": a kernel of this name was added at " + to_string(other.loc), loc,
                      "kernels of a bundle are found by name: give one of them another .name");
  const auto num_inputs = static_cast<size_t>(k.num_inputs);
  check_names(k.name, false, num_inputs, k.blocks.size() - num_inputs, names, loc);
  ir::check(k);
  entries_.push_back({std::move(k), std::move(names), loc});
}

void KernelList::add_graph(const std::string& name, const Graph& graph, std::vector<std::string> names, Loc loc) {
  if (!is_argument_name(name))
    throw SpecError("add_graph(): \"" + name + "\" is no name for a graph", loc,
                    "names have letters, digits and _, and do not begin with a digit");
  for (const GraphEntry& other : graphs_)
    if (other.name == name)
      throw SpecError(name + ": a graph of this name was added at " + to_string(other.loc), loc,
                      "graphs of a bundle are found by name: give one of them another");
  check_names(name, true, graph.body.inputs.size(), graph.body.outputs.size(), names, loc);
  graphs_.push_back({name, graph, std::move(names), loc});
}

int trace_kernels(void (*source)(KernelList&), int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  try {
    if (argc != 4) throw Error("trace_kernels: expected SOURCE LIST FOLDER");
    KernelList kernels;
    source(kernels);
    if (kernels.entries().empty() && kernels.graphs().empty())
      throw Error("tessera_kernels() adds no kernel", {}, "kernels.add(call, {\"x\", \"y\"}) adds one");
    write_texts(kernels, name, argv[2], argv[3]);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << name << ": error: " << e.what() << "\n";
  } catch (...) {
    std::cerr << name << ": error: tessera_kernels() threw something that is no std::exception\n";
  }
  return 1;
}

}  // namespace tessera
