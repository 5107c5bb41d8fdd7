#include "codegen/spirv/debug_info.h"

#include <spirv/unified1/NonSemanticShaderDebugInfo100.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/read_file.h"

namespace tessera::spirv {
namespace {

constexpr size_t kMostSource = size_t{1} << 20;
// An instruction has at most 65,535 words; two of an OpString are not text, which ends with a zero byte.
constexpr size_t kMostString = (65535 - 2) * 4 - 1;

/// What may stand in a module's literal: UTF-8 without zeros.
bool is_text(const std::string& s) {
  for (size_t i = 0; i < s.size();) {
    const auto at = [&](size_t j) { return static_cast<unsigned char>(s[j]); };
    const unsigned char c = at(i);
    const size_t n = c < 0x80                ? 1
                     : c >= 0xc2 && c < 0xe0 ? 2
                     : c >= 0xe0 && c < 0xf0 ? 3
                     : c >= 0xf0 && c < 0xf5 ? 4
                                             : 0;
    if (c == 0 || n == 0 || i + n > s.size()) return false;
    for (size_t j = i + 1; j < i + n; ++j)
      if (at(j) >> 6 != 2) return false;
    i += n;
  }
  return true;
}

}  // namespace

std::optional<std::string> read_source(const std::string& file) {
  try {
    std::string text = InputFile(file).rest(kMostSource);
    if (!text.empty()) return text;
  } catch (const SpecError&) {  // then without
  }
  return std::nullopt;
}

DebugInfo::DebugInfo(Module& module, const SourceReader& read, const std::string& kernel, Loc loc)
    : m_(module), read_(read), set_(module.import("NonSemantic.Shader.DebugInfo.100")) {
  constexpr uint32_t kDwarf = 4;
  const Id file = source(loc ? loc.file : kernel), flags = number(NonSemanticShaderDebugInfo100FlagIsPublic);
  const Id unit =
      global(NonSemanticShaderDebugInfo100DebugCompilationUnit,
             {number(NonSemanticShaderDebugInfo100Version), number(kDwarf), file, number(spv::SourceLanguageUnknown)});
  const Id type = global(NonSemanticShaderDebugInfo100DebugTypeFunction, {flags, m_.type_void()});
  const Id name = m_.string(kernel), line = number(loc.line);
  function_ = global(NonSemanticShaderDebugInfo100DebugFunction,
                     {name, type, file, line, number(0), unit, m_.string("main"), flags, line});
  global(NonSemanticShaderDebugInfo100DebugEntryPoint, {function_, unit, m_.string("Tessera"), m_.string("")});
}

void DebugInfo::define(Id function) {
  local(NonSemanticShaderDebugInfo100DebugFunctionDefinition, {function_, function});
}

void DebugInfo::locate(Id block, Loc loc) {
  if (block != block_) {  // both hold to the end of a block only
    local(NonSemanticShaderDebugInfo100DebugScope, {function_});
    block_ = block;
    loc_ = {};
  }
  if (loc.line == loc_.line && (loc.file == loc_.file || (loc && loc_ && std::strcmp(loc.file, loc_.file) == 0)))
    return;
  loc_ = loc;
  if (!loc) return local(NonSemanticShaderDebugInfo100DebugNoLine, {});
  const Id line = number(loc.line);
  local(NonSemanticShaderDebugInfo100DebugLine, {source(loc.file), line, line, number(0), number(0)});
}

Id DebugInfo::source(const std::string& file) {
  Id& id = sources_[file];
  if (id) return id;
  const Id name = m_.string(file);
  const std::optional<std::string> text = read_(file);
  if (!text || text->empty() || !is_text(*text)) return id = global(NonSemanticShaderDebugInfo100DebugSource, {name});
  for (size_t at = 0; at < text->size();) {
    size_t end = std::min(text->size(), at + kMostString);
    while (end < text->size() && static_cast<unsigned char>((*text)[end]) >> 6 == 2) --end;  // between characters
    const Id part = m_.long_string(std::string_view(*text).substr(at, end - at));
    if (at == 0) id = global(NonSemanticShaderDebugInfo100DebugSource, {name, part});
    else global(NonSemanticShaderDebugInfo100DebugSourceContinued, {part});
    at = end;
  }
  return id;
}

Id DebugInfo::global(uint32_t code, const Words& operands) {
  Words w{set_, code};
  w.insert(w.end(), operands.begin(), operands.end());
  return m_.global_op(spv::OpExtInst, m_.type_void(), w);
}

void DebugInfo::local(uint32_t code, const Words& operands) {
  Words w{set_, code};
  w.insert(w.end(), operands.begin(), operands.end());
  m_.op(spv::OpExtInst, m_.type_void(), w);
}

}  // namespace tessera::spirv
