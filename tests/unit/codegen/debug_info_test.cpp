// NonSemantic.Shader.DebugInfo.100 in modules: read from the words, from the disassembly, and valid for every kernel of
// tests/tir.
#include "codegen/spirv/debug_info.h"

#include <doctest/doctest.h>
#include <spirv/unified1/NonSemanticShaderDebugInfo100.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "engine/ir/text.h"
#include "spirv_support.h"
#include "tests/support/sanitizer.h"

namespace debug_info_test {
using namespace tessera;
using namespace tessera::test;

namespace {

/// A module's words, read by rules of their own.
struct Reader {
  struct Instruction {
    spv::Op code;
    std::vector<uint32_t> operands;  // all words after the first
  };
  std::vector<Instruction> all;
  std::map<uint32_t, std::string> strings;
  std::map<uint32_t, uint32_t> numbers;
  uint32_t set = 0;

  explicit Reader(const std::vector<uint32_t>& words) {
    for (size_t i = 5; i < words.size(); i += words[i] >> spv::WordCountShift) {
      REQUIRE((words[i] >> spv::WordCountShift) > 0);
      const auto code = static_cast<spv::Op>(words[i] & spv::OpCodeMask);
      std::vector<uint32_t> operands(
          words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
          words.begin() + static_cast<std::ptrdiff_t>(i + (words[i] >> spv::WordCountShift)));
      const auto text = [&](size_t from) { return std::string(reinterpret_cast<const char*>(operands.data() + from)); };
      if (code == spv::OpString) strings[operands[0]] = text(1);
      if (code == spv::OpConstant && operands.size() == 3) numbers[operands[1]] = operands[2];
      if (code == spv::OpExtInstImport && text(1) == "NonSemantic.Shader.DebugInfo.100") set = operands[0];
      all.push_back({code, std::move(operands)});
    }
  }
  /// The operands after set and instruction; those of each instruction of that kind.
  std::vector<std::vector<uint32_t>> debug(uint32_t code) const {
    std::vector<std::vector<uint32_t>> found;
    for (const Instruction& i : all)
      if (i.code == spv::OpExtInst && i.operands[2] == set && i.operands[3] == code) found.push_back(i.operands);
    return found;
  }
  /// "kernel.cpp:7" for each instruction of the function that makes or does something and is of a line, in order; "?"
  /// where it is of none.
  std::vector<std::string> lines(std::initializer_list<spv::Op> codes) const {
    std::vector<std::string> out;
    std::string at = "?";
    for (const Instruction& i : all) {
      if (i.code == spv::OpLabel) at = "?";
      if (i.code == spv::OpExtInst && i.operands[2] == set) {
        if (i.operands[3] == NonSemanticShaderDebugInfo100DebugNoLine) at = "?";
        if (i.operands[3] == NonSemanticShaderDebugInfo100DebugLine)
          at = file(i.operands[4]) + ":" + std::to_string(numbers.at(i.operands[5]));
      }
      if (std::find(codes.begin(), codes.end(), i.code) != codes.end()) out.push_back(at);
    }
    return out;
  }
  std::string file(uint32_t source) const {
    for (const auto& o : debug(NonSemanticShaderDebugInfo100DebugSource))
      if (o[1] == source) return strings.at(o[4]);
    return "no such source";
  }
  /// The text of each file that has one.
  std::map<std::string, std::string> texts() const {
    std::map<std::string, std::string> out;
    std::string* last = nullptr;
    for (const Instruction& i : all) {
      if (i.code != spv::OpExtInst || i.operands[2] != set) continue;
      if (i.operands[3] == NonSemanticShaderDebugInfo100DebugSource) {
        last = nullptr;
        if (i.operands.size() > 5) *(last = &out[strings.at(i.operands[4])]) = strings.at(i.operands[5]);
      }
      if (i.operands[3] == NonSemanticShaderDebugInfo100DebugSourceContinued) {
        REQUIRE(last);
        *last += strings.at(i.operands[4]);
      }
    }
    return out;
  }
};

constexpr const char* kKernel = R"(tir 1
kernel @damped
in f32[64] whole
out f32[64] whole
body (%x, %o) {
  %a = load %x[0:64] : f32[64]
  %b = sin %a
  %c = mul %b, %a
  store %o[0:64], %c
}
)";

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Program compiled(const std::string& text, const Target& target, const std::string& source) {
  CompileOptions options;
  options.debug_info = true;
  options.source = [source](const std::string& file) {
    return file == "damped.tir" ? std::optional(source) : std::nullopt;
  };
  return compile(ir::parse(text, "damped.tir"), target, options);
}

}  // namespace

TEST_CASE("debug info: every instruction has the user's line, in whatever block it ends up") {
  const std::string text = kKernel;
  const Program p = compiled(text, gpu_target(), text);
  CHECK(validate(p.spirv) == "");
  const Reader module(p.spirv);
  REQUIRE(module.set != 0);
  CHECK(module.texts() == std::map<std::string, std::string>{{"damped.tir", text}});
  // The polynomial of sin has branches of its own, and all its blocks are of line 7.
  for (const std::string& at : module.lines({spv::OpFMul, spv::OpFAdd, spv::OpFSub}))
    CHECK((at == "damped.tir:7" || at == "damped.tir:8"));
  for (const std::string& at : module.lines({spv::OpStore})) CHECK(at == "damped.tir:9");
  CHECK(module.lines({spv::OpLine}).empty());
  const auto functions = module.debug(NonSemanticShaderDebugInfo100DebugFunction);
  REQUIRE(functions.size() == 1);
  CHECK(module.strings.at(functions[0][4]) == "damped");
  CHECK(module.file(functions[0][6]) == "damped.tir");
  CHECK(module.numbers.at(functions[0][7]) == 2);
  CHECK(module.debug(NonSemanticShaderDebugInfo100DebugCompilationUnit).size() == 1);
  CHECK(module.debug(NonSemanticShaderDebugInfo100DebugEntryPoint).size() == 1);
  const auto definitions = module.debug(NonSemanticShaderDebugInfo100DebugFunctionDefinition);
  REQUIRE(definitions.size() == 1);
  CHECK(definitions[0][4] == functions[0][1]);
#ifdef TESSERA_SPIRV_TOOLS
  const std::string readable = spirv::disassemble(p.spirv);
  for (const char* wanted :
       {"OpExtInstImport \"NonSemantic.Shader.DebugInfo.100\"", "DebugSource", "DebugCompilationUnit",
        "DebugFunctionDefinition", "DebugLine", "DebugScope", "OpString \"damped.tir\"",
        "OpName %Arguments \"Arguments\"", "OpMemberName %Arguments 0 \"in_specs[0]\""})
    CHECK_MESSAGE(readable.find(wanted) != std::string::npos, wanted << " in\n" << readable);
#endif
}

TEST_CASE("debug info: without it nothing of it is in the module, and with it nothing else changes") {
  const Program with = compiled(kKernel, lavapipe_target(), kKernel),
                without = compile(ir::parse(kKernel, "damped.tir"), lavapipe_target());
  const Reader a(with.spirv), b(without.spirv);
  CHECK(b.set == 0);
  CHECK(with.spirv.size() > without.spirv.size());
  const auto code = [](const Reader& r) {
    std::vector<spv::Op> ops;
    bool inside = false;
    for (const auto& i : r.all) {
      inside |= i.code == spv::OpFunction;
      if (inside && i.code != spv::OpLine && !(i.code == spv::OpExtInst && i.operands[2] == r.set))
        ops.push_back(i.code);
    }
    return ops;
  };
  CHECK(code(a) == code(b));
  CHECK(with.explain == without.explain);
}

TEST_CASE("debug info: texts of any length and content; what is no text leaves the file's name") {
  const auto texts = [](const std::string& source) {
    const Program p = compiled(kKernel, minimum_target(), source);
    CHECK(validate(p.spirv) == "");
    return Reader(p.spirv).texts();
  };
  // An instruction holds 262,131 bytes of text; a character is not torn apart.
  for (size_t n : {262130, 262131, 262132, 600000}) {
    std::string text(n, 'x');
    CHECK(texts(text).at("damped.tir") == text);
    for (size_t i = n % 2; i + 2 <= n; i += 2) text.replace(i, 2, "\xc3\xa9");
    CHECK(texts(text).at("damped.tir") == text);
  }
  CHECK(texts("").empty());
  CHECK(texts(std::string("a\0b", 3)).empty());
  CHECK(texts("caf\xe9").empty());
  CHECK(texts("\xed").empty());
  const Program p = compiled(kKernel, minimum_target(), std::string("a\0b", 3));
  for (const std::string& at : Reader(p.spirv).lines({spv::OpStore})) CHECK(at == "damped.tir:9");
}

TEST_CASE("debug info: files are read from disk unless the caller says how") {
  CHECK(spirv::read_source("tests/tir/no_such_file.tir") == std::nullopt);
  CHECK(spirv::read_source("tests/tir") == std::nullopt);
  CompileOptions options;
  options.debug_info = true;
  const std::string name = "tests/tir/add.tir", text = text_of(name);
  const Program p = compile(ir::parse(text, name), minimum_target(), options);
  CHECK(Reader(p.spirv).texts() == std::map<std::string, std::string>{{name, text}});
}

TEST_CASE("debug info: lines of several files, and none where an op has none") {
  LaneKernel t;
  const ir::Value x = t.arg(DType::f32), i = t.value(ir::Opcode::local_index);
  t.b.set_loc({"a.cpp", 5});
  const ir::Value v = t.load(x, i);
  t.b.set_loc({"b.h", 7});
  const ir::Value w = t.op(ir::Opcode::mul, {v, v});
  t.b.set_loc({});
  const ir::Value u = t.op(ir::Opcode::add, {w, v});
  t.b.set_loc({"a.cpp", 6});
  t.store(x, i, u);
  t.finish();
  const spirv::SourceReader read = [](const std::string& file) { return std::optional("// " + file); };
  const auto words = spirv::emit(t.k, lavapipe_target(), false, &read);
  CHECK(validate(words) == "");
  const Reader module(words);
  CHECK(module.lines({spv::OpFMul, spv::OpFAdd, spv::OpStore}) == std::vector<std::string>{"b.h:7", "?", "a.cpp:6"});
  CHECK(module.texts().at("b.h") == "// b.h");
  CHECK(module.debug(NonSemanticShaderDebugInfo100DebugNoLine).size() == 1);
}

TEST_CASE("debug info: every kernel of tests/tir is valid with it" * doctest::skip(tessera::test::kSanitized)) {
  int kernels = 0;
  size_t plain = 0, larger = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/tir")) {
    if (entry.path().extension() != ".tir") continue;
    const std::string file = "tests/tir/" + entry.path().filename().string();
    INFO(file);
    const auto words = [&](bool debug_info) -> std::vector<uint32_t> {
      CompileOptions options;
      options.debug_info = debug_info;
      try {
        return compile(ir::parse(text_of(file), file), lavapipe_target(), options).spirv;
      } catch (const CompileError&) {
        return {};  // some of them are there to fail
      }
    };
    const std::vector<uint32_t> with = words(true);
    if (with.empty()) continue;
    ++kernels;
    CHECK(validate(with) == "");
    larger += with.size();
    plain += words(false).size();
    CHECK(Reader(with).texts().count(file) == 1);
  }
  CHECK(kernels > 50);
  MESSAGE(kernels << " kernels: " << 4 * plain << " bytes of SPIR-V, with debug info " << 4 * larger);
}

}  // namespace debug_info_test
