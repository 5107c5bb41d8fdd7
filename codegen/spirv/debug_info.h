// NonSemantic.Shader.DebugInfo.100: the file and line of each instruction, with the files' text, for tools like
// RenderDoc. Drivers ignore it. It describes one function, the kernel, and no types or variables of the user's. Private
// to codegen/spirv. Read next: emitter.h, which sets the current line.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "codegen/spirv/builder/module.h"
#include "engine/base/error.h"
#include "engine/base/function.h"

namespace tessera::spirv {

/// The text of a file of source, or nothing where it is not to be had.
using SourceReader = tessera::Function<std::optional<std::string>(const std::string& file)>;
/// From disk, by the name that the compiler saw: nothing where there is no such file, or it is larger than 1 MiB.
std::optional<std::string> read_source(const std::string& file);

class DebugInfo {
 public:
  /// Declares the compilation unit and the function; `module` and `read` are kept.
  DebugInfo(Module& module, const SourceReader& read, const std::string& kernel, Loc loc);
  /// In the first block of the function.
  void define(Id function);
  /// The instructions that follow in `block` are of that line, or of none.
  void locate(Id block, Loc loc);

 private:
  Id global(uint32_t code, const Words& operands);
  void local(uint32_t code, const Words& operands);
  Id number(uint32_t n) { return m_.constant(m_.type_uint(32), n, 32); }
  Id source(const std::string& file);

  Module& m_;
  const SourceReader& read_;
  Id set_, function_ = 0;
  std::map<std::string, Id> sources_;
  Id block_ = 0;
  Loc loc_;  // of the last instruction in block_
};

}  // namespace tessera::spirv
