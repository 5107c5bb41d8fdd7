// compile: tile-level kernel + Target -> Program. The steps are also callable one by one, each with a text dump.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "engine/base/function.h"
#include "engine/ir/kernel.h"
#include "engine/lint/lint.h"

namespace tessera {

struct CompileOptions {
  /// --codegen=general: every tile op a cooperative loop through the arena, no fusion, no splitting
  bool general = false;
  /// --debug-info: the code says of which line each instruction is, and holds the text of those files
  /// (NonSemantic.Shader.DebugInfo.100), for tools like RenderDoc. What it computes is the same.
  bool debug_info = false;
  /// Every op rounds as the interpreter's, on GPUs too. Without it code for a GPU may differ within the op table's
  /// bounds for GPUs (codegen/spirv/README.md, "Precision"); code for a CPU driver is always strict.
  bool strict = false;
  /// What becomes of a lint (engine/lint/README.md); where the kernel has run-time sizes, of those in `sizes`.
  Lint lint = Lint::off;
  /// The run-time sizes, for lints and for a TPU, whose modules have none.
  DimValues sizes = {};
  /// Gives the text of a file for that; unset: read from disk, by the name that the lines have.
  Function<std::optional<std::string>(const std::string& file)> source = {};
  /// Sees the kernel after each step ("tile/squeeze", "lower", "lane/cse", ...): --dump-ir.
  Function<void(std::string_view step, const ir::Kernel&, bool changed)> dump;
};

/// Verifies, optimizes, lowers and emits. Deterministic: the same kernel and target give the same words.
Program compile(const ir::Kernel& k, const Target& target, const CompileOptions& options = {});

/// What compile() does with `options.lint`, alone.
void check_lints(const ir::Kernel& k, const CompileOptions& options);

/// The grid axes that a compiled program runs in no order: declared parallel, added by vmap, or proved to be.
std::vector<bool> parallel_axes(const ir::Kernel& k);

}  // namespace tessera
