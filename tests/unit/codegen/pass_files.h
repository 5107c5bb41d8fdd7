// The folders of tests/tir/passes: what a file of each goes through, a pass that rewrites its kernel or an analysis
// that is printed. Not the files themselves, nor how they are compared: pass_files_test.cpp. Read next: pass_files.cpp.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::test {

/// What the words of a file ask for, `// target: gpu` and the like: pass_settings() has them all.
struct PassSettings {
  Target target;
  std::vector<std::string> after;       // folders whose passes run before
  int budget = 64;                      // of unroll
  int prefetch = 0;                     // of lower_async: elements that a prefetched copy may have
  bool general = false;                 // lower: the general form
  bool raw = false;                     // lower: as it comes, before the passes
  std::string chip = "any";             // mosaic: the TPU
  bool in_arena = false, dear = false;  // kept: what keeping a value means
};
/// Throws std::runtime_error for a word or a value that it does not know.
PassSettings pass_settings(const std::map<std::string, std::string>& words);

struct PassFolder {
  std::string name;
  /// Rewrites the kernel and says whether it changed it; `remarks` gets lines that belong to the result. None for an
  /// analysis.
  std::function<bool(ir::Kernel&, const PassSettings&, std::string& remarks)> run;
  /// Of an analysis: its text.
  std::function<std::string(const ir::Kernel&, const PassSettings&)> print;
  bool settles = false;  // the pass promises that it finds nothing more to do in what it made
};
const std::vector<PassFolder>& pass_folders();

}  // namespace tessera::test
