#include <cstdio>

#include "codegen/spirv/emit.h"
#ifdef TESSERA_SPIRV_TOOLS
#include <spirv-tools/libspirv.hpp>
#endif

namespace tessera::spirv {

std::string disassemble(const std::vector<uint32_t>& words) {
  std::string text;
#ifdef TESSERA_SPIRV_TOOLS
  const spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_3);
  if (tools.Disassemble(words, &text, SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES | SPV_BINARY_TO_TEXT_OPTION_INDENT))
    return text;
  text.clear();
#endif
  char buffer[16];
  for (size_t i = 0; i < words.size(); ++i) {
    std::snprintf(buffer, sizeof buffer, "%08x%c", words[i], i % 8 == 7 || i + 1 == words.size() ? '\n' : ' ');
    text += buffer;
  }
  return text;
}

}  // namespace tessera::spirv
