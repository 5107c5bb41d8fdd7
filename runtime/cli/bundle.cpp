// tessera bundle: reads kernels, compiles them for every target, writes the bundle and its header.
#include "codegen/program/bundle.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <system_error>

#include "codegen/make_bundle.h"
#include "engine/base/function.h"
#include "engine/base/platform.h"
#include "engine/base/plural.h"
#include "engine/base/write_file.h"
#include "engine/graph/graph.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/call/make_graph_program.h"
#include "runtime/call/tuning.h"
#include "runtime/cli/bundle_header.h"
#include "runtime/cli/commands.h"

namespace tessera::cli {
namespace {
namespace fs = std::filesystem;

std::vector<Target> targets(const std::string& list) {
  std::vector<Target> found;
  std::set<std::string> seen;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, comma - at);
    at = comma + 1;
    if (!seen.insert(name).second) throw UsageError("--targets: " + name + " is there twice");
    if (name == "gpu16" || name == "gpu64") {
      Target t = gpu_target();
      t.name = name;
      t.min_subgroup_size = t.max_subgroup_size = t.subgroup_size = name == "gpu16" ? 16 : 64;
      found.push_back(t);
    } else if (name == "minimum" || name == "lavapipe" || name == "gpu" || name == "gpu-matrix" || name == "device" ||
               name.starts_with("nvidia:")) {
      found.push_back(target(name));
      if (name != "device") found.back().name = name;
    } else {
      throw UsageError(
          "--targets: there is no target \"" + name +
          "\"; the targets are minimum, lavapipe, gpu, gpu16, gpu64, gpu-matrix, device and nvidia:CHIP as "
          "in nvidia:sm_80");
    }
  }
  return found;
}

/// In place by rename, so that whoever reads meanwhile, or reloads, has one bundle or the other. A file that already
/// holds that is left alone: what is built from it is not built again.
void replace(const std::string& file, const std::string& bytes) {
  std::error_code error;
  const fs::file_status there = fs::status(file, error);
  // a device or a pipe takes them, a folder does not
  if (fs::exists(there) && !fs::is_regular_file(there)) return write_file(file, bytes);
  if (fs::exists(there) && fs::file_size(file, error) == bytes.size()) {
    std::ifstream in(file, std::ios::binary);
    const std::string old = in ? std::string(std::istreambuf_iterator<char>(in), {}) : "";
    if (in && old == bytes) return;
  }
  if (!put_file(file, {bytes})) throw Error(file + ": cannot be written");
}

std::vector<std::string> argument_names(const ir::Kernel& k, const std::string& text) {
  const std::vector<std::string> given = ir::body_names(text);
  std::vector<std::string> names;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const bool output = k.is_output(static_cast<int>(i));
    const bool named = i < given.size() && given[i].find_first_not_of("0123456789") != std::string::npos;
    std::string name = named    ? given[i]
                       : output ? "out" + std::to_string(i - static_cast<size_t>(k.num_inputs))
                                : "in" + std::to_string(i);
    while (std::find(names.begin(), names.end(), name) != names.end()) name += "_";
    names.push_back(std::move(name));
  }
  return names;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  const fs::path x = fs::weakly_canonical(fs::absolute(a), error), y = fs::weakly_canonical(fs::absolute(b), error);
  return x == y || fs::equivalent(a, b, error);
}

/// "a", or "a::b", of names that C++ takes; neither Tessera's nor the standard library's.
void check_namespace(const std::string& space, const std::string& from) {
  bool good = true;
  for (size_t at = 0; at <= space.size();) {
    const size_t end = std::min(space.find("::", at), space.size());
    const std::string part = space.substr(at, end - at);
    good = good && part == identifier(part);
    at = end + 2;
  }
  if (!good) throw UsageError("--namespace " + space + ": is no name in C++");
  if (space == "std" || space == "tessera" || space.starts_with("std::") || space.starts_with("tessera::"))
    throw UsageError((from.empty() ? "--namespace " : "--header " + from + ": the namespace ") + space + ": is taken",
                     {}, "give another name: --namespace NAME");
}

using Progress = Function<void(size_t, const std::string&)>;
using Choices = Function<ScheduleChoices(const Target&, const ir::Kernel&)>;

/// A folder of a graph, as JAX's tessera.export() and jit's save() write it.
struct GraphSource {
  std::string name;
  RecordableGraph graph;
  std::vector<std::string> arguments;
};
/// All kernels and graphs, and what messages and headers call the files that they are from.
struct Sources {
  std::vector<BundleSource> kernels;
  std::vector<GraphSource> graphs;
  std::vector<std::string> files;

  size_t kernel_count() const {
    size_t n = kernels.size();
    for (const GraphSource& g : graphs) n += g.graph.kernels.size();
    return n;
  }
};
/// The name of the folder that a path leads to.
std::string folder_name(const std::string& path) {
  const fs::path full = fs::absolute(path).lexically_normal();
  return (full.has_filename() ? full : full.parent_path()).filename().string();
}
Sources read_all(const std::vector<std::string>& files) {
  Sources r;
  std::vector<size_t> file_of;  // of each kernel
  const auto add = [&](ir::Kernel k, const std::string& text) {
    for (size_t i = 0; i < r.kernels.size(); ++i)
      if (r.kernels[i].kernel.name == k.name)
        throw SpecError(r.files.back() + ": the kernel is called " + k.name + ", as is that of " + r.files[file_of[i]],
                        k.loc, "kernels of a bundle are found by name: give one of them another name");
    std::vector<std::string> names = argument_names(k, text);
    r.kernels.push_back({std::move(k), std::move(names)});
    file_of.push_back(r.files.size() - 1);
  };
  const auto add_graph = [&](const std::string& folder, std::vector<std::string> names) {
    const std::string name = folder_name(folder);
    if (!fs::exists(fs::path(folder) / "graph.txt"))
      throw SpecError(folder + ": is a folder without a graph.txt", {},
                      "give its kernels (" + (fs::path(folder) / "*.tir").generic_string() +
                          "), or a folder that tessera.export() or ts::write_graph() has written");
    if (std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }))
      throw SpecError(r.files.back() + ": the folder's name, which is the graph's, has a control character", {},
                      "give the folder another name");
    for (const GraphSource& other : r.graphs)
      if (other.name == name)
        throw SpecError(r.files.back() + ": there is a graph called " + name + " already", {},
                        "graphs of a bundle are called as their folders: give one of them another name");
    Graph g = read_graph(folder);
    g.name = name;
    const size_t inputs = g.body.inputs.size(), all = inputs + g.body.outputs.size();
    if (names.size() > all)
      throw SpecError(r.files.back() + ": " + name + " has " + plural(all, "argument") + ", inputs and outputs, but " +
                          plural_is(names.size(), "name") + " given",
                      {}, "tessera_add_kernels writes them: build the project again");
    for (size_t i = names.size(); i < all; ++i)
      names.push_back(i < inputs ? "in" + std::to_string(i) : "out" + std::to_string(i - inputs));
    r.graphs.push_back({name, make_graph_program(g), std::move(names)});
  };
  for (const std::string& file : files) {
    if (fs::is_directory(file)) {
      r.files.push_back(file);
      add_graph(file, {});
      continue;
    }
    if (!is_kernel_list(file)) {
      r.files.push_back(file);
      add(read_kernel(file), read_text(file));
      continue;
    }
    const KernelFiles list = read_kernel_list(file);
    r.files.push_back(list.source);
    for (const std::string& kernel : list.files) {
      const std::string text = read_text(kernel);
      add(parse_kernel(text, fs::path(kernel).filename().string()), text);
    }
    // Lines of kernels that have none of their own are to name no folder of the machine.
    for (const KernelFiles::Graph& g : list.graphs) {
      const fs::path folder = fs::path(g.folder).lexically_relative(fs::current_path());
      add_graph(folder.empty() ? g.folder : folder.generic_string(), g.names);
    }
  }
  for (const GraphSource& g : r.graphs)
    for (const BundleSource& k : r.kernels)
      if (k.kernel.name == g.name)
        throw SpecError(g.name + ": is the name of a kernel and of a graph", k.kernel.loc,
                        "give one of them another name: a graph is called as its folder");
  return r;
}

/// What a tuning file has of a kernel for the target that is a device. A file that has nothing for it is left out, with
/// a line.
Choices tuned(const BundleArguments& a) {
  if (a.tuning.empty()) return {};
  if (("," + a.targets + ",").find(",device,") == std::string::npos)
    throw UsageError("--tuning " + a.tuning + ": tunes the target device, which is not among " + a.targets, {},
                     "add it: --targets " + a.targets + ",device");
  const DeviceInfo device = find_device();
  try {
    const Tuning tuning = read_tuning(a.tuning);
    if (const Tuning::Kernels* kernels = tuning.of(device))
      return [kernels = *kernels, name = device.name](const Target& t, const ir::Kernel& k) {
        const auto found = t.name == name ? kernels.find(tuning_digest(k)) : kernels.end();
        return found == kernels.end() ? ScheduleChoices{} : found->second.choices;
      };
    std::cerr << "note: --tuning " << a.tuning << ": has nothing for " << device.name << " with the driver "
              << device.driver << "\n";
  } catch (const SpecError& e) {
    std::cerr << "note: --tuning: left out: " << e.what() << "\n";
  }
  return {};
}

/// Graphs run on Vulkan alone.
void add_graphs(MadeBundle& made, const Sources& read, std::vector<Target> targets, int threads,
                const Progress& progress, const Choices& choices) {
  std::erase_if(targets, [](const Target& t) { return !t.chip.empty(); });
  if (targets.empty() && !read.graphs.empty())
    throw UsageError("--targets: " + read.graphs[0].name + " is a graph, which runs on Vulkan alone", {},
                     "give a target for that too, as minimum or gpu");
  size_t before = read.kernels.size();
  for (const GraphSource& g : read.graphs) {
    std::vector<BundleSource> kernels;
    for (const ir::Kernel& k : g.graph.kernels) kernels.push_back({k, argument_names(k, "")});
    MadeBundle own = make_bundle(
        kernels, targets, threads,
        [&](size_t done, const std::string& kernel) { progress(before + done, g.name + ": " + kernel); },
        strict_by_environment(), choices);
    before += kernels.size();
    BundleGraph& graph =
        made.file.graphs.emplace_back(BundleGraph{g.name, g.graph.program.loc, g.arguments, g.graph.program, {}});
    graph.kernels = std::move(own.file.kernels);
    for (std::string& text : own.left_out) made.left_out.push_back(g.name + ": " + text);
  }
}

}  // namespace

void bundle(const BundleArguments& a) {
  if (a.embed && a.header.empty() && a.c_header.empty())
    throw UsageError("--embed: there is no header to embed the bundle in", {}, "give --header FILE or --c-header FILE");
  if (!a.header.empty() && same_file(a.header, a.output))
    throw UsageError("--header " + a.header + ": is the bundle's file too", {}, "give the header a name of its own");
  if (!a.c_header.empty() &&
      (same_file(a.c_header, a.output) || (!a.header.empty() && same_file(a.c_header, a.header))))
    throw UsageError("--c-header " + a.c_header + ": is " +
                         (same_file(a.c_header, a.output) ? "the bundle's file" : "the C++ header") + " too",
                     {}, "give the header a name of its own");
  for (const std::string& file : a.files)
    for (const std::string& out : {a.output, a.header, a.c_header})
      if (!out.empty() && same_file(file, out))
        throw UsageError(out + ": is to be read and to be written", {},
                         "give the bundle and the header names of their own");
  const std::string& named = a.header.empty() ? a.c_header : a.header;
  const std::string space = !a.name_space.empty() ? a.name_space
                            : named.empty()       ? ""
                                                  : identifier(fs::path(named).stem().string());
  if (!named.empty()) check_namespace(space, a.name_space.empty() ? named : "");
  const std::vector<Target> compiled_for = targets(a.targets);
  const Sources read = read_all(a.files);
  const std::vector<BundleSource>& sources = read.kernels;
  const size_t count = read.kernel_count();
  const bool live = !a.quiet && platform::errors_to_terminal();
  const auto progress = [&](size_t done, const std::string& kernel) {
    if (live) std::cerr << "\r\033[K" << done << " of " << count << ": " << kernel << std::flush;
    else if (!a.quiet && count > 1) std::cerr << done << " of " << count << ": " << kernel << "\n";
  };
  const auto choices = tuned(a);
  MadeBundle made = make_bundle(sources, compiled_for, a.threads, progress, strict_by_environment(), choices);
  add_graphs(made, read, compiled_for, a.threads, progress, choices);
  if (live) std::cerr << "\r\033[K";
  for (const std::string& text : made.left_out) std::cerr << "note: left out: " << text << "\n";
  const std::string bytes = bundle_to_bytes(made.file);
  replace(a.output, bytes);
  const HeaderOptions options{space, fs::path(a.output).filename().string(), read.files, a.embed ? bytes : ""};
  if (!a.header.empty()) replace(a.header, bundle_header(made.file, options));
  if (!a.c_header.empty()) replace(a.c_header, bundle_c_header(made.file, options));
}

}  // namespace tessera::cli
