// What a reader sees of a module: its instructions as SPIRV-Tools prints them, and the lines that they came from.
#include <algorithm>

#include "tests/support/judge/module.h"
#ifdef TESSERA_SPIRV_TOOLS
#include <spirv-tools/libspirv.hpp>
#endif

namespace tessera::judge {

std::string instruction_text(const std::vector<uint32_t>& words, size_t at) {
  std::string text;
#ifdef TESSERA_SPIRV_TOOLS
  std::vector<uint32_t> one(words.begin(), words.begin() + 5);
  one.insert(one.end(), words.begin() + static_cast<std::ptrdiff_t>(at),
             words.begin() + static_cast<std::ptrdiff_t>(at + (words[at] >> 16)));
  spvtools::SpirvTools tools(SPV_ENV_UNIVERSAL_1_6);
  tools.SetMessageConsumer([](spv_message_level_t, const char*, const spv_position_t&, const char*) {});
  if (tools.Disassemble(one, &text, SPV_BINARY_TO_TEXT_OPTION_NO_HEADER)) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
  }
#endif
  text = "opcode " + std::to_string(words[at] & 0xffff) + ":";
  for (size_t i = 1; i < words[at] >> 16 && i < 8; ++i) text += " " + std::to_string(words[at + i]);
  return text;
}

std::string Module::text(uint32_t at) const {
  std::string s = "`" + instruction_text(words, code.at(at).word) + "`";
  const auto behind =
      std::upper_bound(lines.begin(), lines.end(), at, [](uint32_t i, const Line& l) { return i < l.code; });
  if (behind != lines.begin()) s += " (" + (behind - 1)->file + ":" + std::to_string((behind - 1)->line) + ")";
  return s;
}

}  // namespace tessera::judge
