// The command line: parses, runs one command, reports errors in one place. Exit codes: 0, 1 (the kernel or the device),
// 2 (usage).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "engine/base/platform.h"
#include "runtime/cli/commands.h"
#include "tessera/version.h"

namespace {

using namespace tessera::cli;

/// What the options of each command are parsed into.
struct Arguments {
  std::string op;
  RunArguments run;
  std::string run_codegen = "fast";
  CompileArguments compile;
  BundleArguments bundle;
  TuneArguments tune;
};

void add_ops(CLI::App& app, Arguments& a) {
  CLI::App* command = app.add_subcommand("ops", "List the ops of the IR, or say more about one");
  command->add_option("NAME", a.op, "an op");
  command->callback([&] { ops(a.op); });
}

void add_lint(CLI::App* command, std::string& lint, const std::string& otherwise) {
  command
      ->add_option("--lint", lint,
                   "what becomes of a kernel that hardly means what it says, as one that stores to no element of an "
                   "output: off, warn or error; default: TESSERA_LINT, else " +
                       otherwise)
      ->check(CLI::IsMember({"off", "warn", "error"}));
}

void add_run(CLI::App& app, Arguments& a) {
  RunArguments& r = a.run;
  CLI::App* command = app.add_subcommand("run", "Run a kernel, or a graph of kernels, on .npy arrays");
  command->add_option("FILE", r.file, "tile-level kernel (.tir), or a folder with graph.txt")->required();
  command->add_option("--in", r.in, "inputs, in order (.npy, or a number for an argument by value)");
  command->add_option("--out", r.out, "outputs, in order (.npy); without it they are printed");
  command->add_option(
      "--device", r.device,
      "index or part of a name, cuda:N (NVIDIA's own driver), or interpreter; default: TESSERA_DEVICE, else the best "
      "device");
  command->add_option("--trace", r.trace, "write when each kernel ran to this file, for Perfetto or chrome://tracing");
  command
      ->add_option("--repeat", r.repeat, "call it so often, and print the device's time for a call: median and range")
      ->check(CLI::Range(1, 1000000));
  command->add_option("--dim", r.dims, "NAME=SIZE: a run-time size that no input's shape gives");
  command->add_option("--codegen", a.run_codegen, "fast or general")->check(CLI::IsMember({"fast", "general"}));
  command->add_flag(
      "--debug-info", r.debug_info,
      "compile with the lines and texts of source files, and name Vulkan's objects: for RenderDoc and its like");
  command->add_flag("--races", r.races,
                    "interpreter: report accesses that parallel axes, declared or proved, leave without an order");
  command->add_option("--seed", r.seed,
                      "interpreter: N or random: permute the programs of parallel axes, and print the seed");
  command
      ->add_option("--uninitialised", r.uninitialised,
                   "interpreter: what unwritten memory holds: nan, zero or pattern (by the seed)")
      ->check(CLI::IsMember({"nan", "zero", "pattern"}))
      ->capture_default_str();
  command->add_option("--out-of-bounds", r.out_of_bounds, "interpreter: raise, or clamp as devices do")
      ->check(CLI::IsMember({"raise", "clamp"}))
      ->capture_default_str();
  add_lint(command, r.lint, "warn");
  command->callback([&] {
    a.run.general = a.run_codegen == "general";
    run(a.run);
  });
}

/// What compile and explain have in common.
void add_kernel(CLI::App* command, CompileArguments& c) {
  command->add_option("FILE", c.file, "tile-level kernel (.tir)")->required();
  command
      ->add_option("--target", c.target,
                   "device (the best, or TESSERA_DEVICE), gpu (one of the middle class), gpu-matrix (with matrices), "
                   "minimum, lavapipe, nvidia:CHIP as in nvidia:sm_90a, or tpu:CHIP as in tpu:v5e")
      ->check([](const std::string& name) -> std::string {
        if (name.starts_with("nvidia:") || name.starts_with("tpu:")) return {};
        return CLI::IsMember({"device", "gpu", "gpu-matrix", "minimum", "lavapipe", "nvidia:CHIP", "tpu:CHIP"})(name);
      });
  command->add_option("--codegen", c.codegen, "fast or general")->check(CLI::IsMember({"fast", "general"}));
  command->add_option("--dim", c.dims, "a run-time size, for a TPU, whose modules have none, and for lints: --dim n=5");
}

void add_compile(CLI::App& app, CompileArguments& c) {
  CLI::App* command = app.add_subcommand("compile", "Compile a kernel and print a stage of it");
  add_kernel(command, c);
  command
      ->add_option("--emit", c.emit,
                   "ir (optimised tile level), lane, spirv (text), spirv-bin, ptx; for a TPU mosaic or stablehlo; else "
                   "the code as text")
      ->check(CLI::IsMember({"ir", "lane", "spirv", "spirv-bin", "ptx", "mosaic", "stablehlo"}));
  command->add_flag("--debug-info", c.debug_info,
                    "with the lines and texts of source files: NonSemantic.Shader.DebugInfo.100");
  command->add_flag(
      "--dump-ir{*}", c.dump,
      "print the kernel to stderr after every step, or after the one step or pass that is named: --dump-ir=cse");
  command->add_option("-o", c.output, "file to write instead of stdout");
  add_lint(command, c.lint, "off");
  command->callback([&] { compile(c); });
}

void add_explain(CLI::App& app, CompileArguments& c) {
  CLI::App* command = app.add_subcommand(
      "explain",
      "Say how a kernel, or a graph in a folder, is laid out on the device: parallel axes, workgroups, memory");
  add_kernel(command, c);
  command->add_option("--dot", c.dot, "of a graph: write a picture for Graphviz to this file");
  command->add_option("--svg", c.svg, "of a graph: write a picture to this file");
  add_lint(command, c.lint, "warn");
  command->callback([&] { explain(c); });
}

void add_bundle(CLI::App& app, BundleArguments& b) {
  CLI::App* command =
      app.add_subcommand("bundle", "Compile kernels ahead of time into one file, for programs without a compiler");
  command
      ->add_option(
          "FILE", b.files,
          "tile-level kernels (.tir), folders with a graph.txt, or what tessera_add_kernels makes of a C++ source "
          "(.kernels)")
      ->required();
  command->add_option("-o,--output", b.output, "the bundle (.tsb)")->required();
  command->add_option("--header", b.header, "C++ header to write, with a typed function per kernel and graph");
  command->add_option(
      "--c-header", b.c_header,
      "C header to write, with functions to get and launch each kernel, to launch or record each graph");
  command->add_option("--namespace", b.name_space,
                      "of the header, and the beginning of the names in C; default: the header's name");
  command
      ->add_option("--targets", b.targets,
                   "for what to compile each kernel, with commas: minimum (the least of Vulkan 1.3), lavapipe, gpu, "
                   "gpu16 and gpu64 (by their subgroups), gpu-matrix (with cooperative matrices of 16x16x16), device, "
                   "nvidia:CHIP (PTX, for programs that use NVIDIA's driver: nvidia:sm_80 runs on all chips since)")
      ->capture_default_str();
  command->add_option(
      "--tuning", b.tuning,
      "what tessera tune has written, for the target device: its code is taken on devices of that name");
  command->add_flag("--embed", b.embed, "put the bundle's bytes into the headers too, for programs that read no file");
  command->add_option("--threads", b.threads, "how many compile; 0: one per core")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("-q,--quiet", b.quiet, "no progress on stderr");
  command->callback([&] { bundle(b); });
}

void add_tune(CLI::App& app, TuneArguments& t) {
  CLI::App* command = app.add_subcommand(
      "tune", "Measure which schedules of kernels are faster on a device, for TESSERA_TUNING=FILE to use");
  command->add_option("FILE", t.files, "tile-level kernels (.tir), or folders of them")->required();
  command->add_option("-o,--output", t.output, "the tuning file, which keeps what it has of other kernels and devices")
      ->capture_default_str();
  command->add_option("--in", t.in, "inputs of the kernel, in order (.npy); default: random numbers");
  command->add_option("--dim", t.dims, "NAME=SIZE: a run-time size");
  command->add_option("--device", t.device, "index or part of a name; default: TESSERA_DEVICE, else the best device");
  command->add_option("--seconds", t.seconds, "so long for each kernel, beside its compilation")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->callback([&] { tune(t); });
}

/// CLI11 says of any word that it is not expected, or that a subcommand is required.
std::string no_command(const CLI::App& app, int argc, char** argv) {
  const auto word = std::find_if(argv + 1, argv + argc, [](const char* a) { return *a != '-'; });
  std::string what = word == argv + argc ? "no command is given" : "there is no command \"" + std::string(*word) + "\"";
  std::string names;
  for (const CLI::App* command : app.get_subcommands({}))
    names += (names.empty() ? "; the commands are " : ", ") + command->get_name();
  return what + names;
}

int command_line(int argc, char** argv) {
  CLI::App app("Compiles and runs kernels over blocks (.tir files) on Vulkan devices.", "tessera");
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "tessera COMMAND --help says more. TESSERA_DEVICE chooses the device, TESSERA_VALIDATION=1 switches on Vulkan's "
      "validation layers.");
  Arguments a;
  app.add_subcommand("devices", "List the Vulkan devices; * is the one that is used")->callback(devices);
  add_ops(app, a);
  add_run(app, a);
  add_compile(app, a.compile);
  add_explain(app, a.compile);
  add_bundle(app, a.bundle);
  add_tune(app, a.tune);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    throw UsageError(app.get_subcommands().empty() ? no_command(app, argc, argv) : e.what(), {},
                     "tessera --help lists the commands, tessera COMMAND --help their options");
  }
  if (!std::cout.flush()) throw tessera::Error("stdout: cannot be written");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::platform::print_bytes();
  try {
    return command_line(argc, argv);
  } catch (const tessera::cli::UsageError& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
}
